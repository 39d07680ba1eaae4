//! In-memory implementations of the ports, for tests and the simulation: stricter than the real thing.

pub mod chat;
pub mod embedder;
pub mod graph;
pub mod inbox;
pub mod keyring;
pub mod log;
pub mod records;
#[cfg(test)]
mod suites;
pub mod text;
pub mod vectors;
mod versions;
