//! What any implementation of a port must pass. Each suite takes a way to make a fresh, empty backend.

pub mod inbox;
pub mod keyring;
pub mod log;
pub mod stores;
