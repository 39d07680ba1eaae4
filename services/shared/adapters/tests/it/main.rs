//! Do the embedded backends keep the contracts of their ports?

mod keyring;
mod log;
mod models;
mod stores;
mod text;
