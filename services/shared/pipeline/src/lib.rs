//! Ports, the consumer loop, in-memory doubles and the conformance suites that every backend passes.
//!
//! - [`log`], [`keyring`], [`stores`], [`embedder`], [`clock`]: the ports, each with its contract
//! - [`seal`], [`codec`]: from domain values to sealed records and back
//! - [`consumer`]: the one loop that every stage runs
//! - [`doubles`]: in-memory implementations, stricter than the real thing
//! - [`conformance`]: what any implementation of a port must pass

pub mod clock;
pub mod digests;
pub mod embedder;
pub mod keyring;
pub mod log;
pub mod stores;
