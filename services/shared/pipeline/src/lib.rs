//! Ports, the consumer loop, in-memory doubles and the conformance suites that every backend passes.
//!
//! - [`log`], [`inbox`], [`keyring`], [`stores`], [`embedder`], [`clock`]: the ports, each with its contract
//! - [`hash_embedder`]: what stands in for a language model; [`chat`]: a language model that is asked
//! - [`codec`]: from domain values to sealed records and back
//! - [`consumer`], [`snapshots`], [`stands`]: the one loop that every stage runs, what shortens its
//!   start, and how far it is
//! - [`fold`], [`history`], [`owner_states`]: reading `memories`, and what the stores should hold of an owner
//! - [`reviews`]: what waits for a person, and what extraction turned down
//! - [`caller`], [`http`], [`problem`]: who calls, how, and what a caller is told
//! - [`guarded`]: a store that is left alone while it fails
//! - [`digests`]: what a store should hold of a version
//! - [`feed`], [`similarity`], [`paging`]: what every store does in the same way
//! - [`doubles`]: in-memory implementations, stricter than the real thing
//! - [`conformance`]: what any implementation of a port must pass

pub mod beside;
pub mod caller;
pub mod chat;
pub mod clock;
pub mod codec;
pub mod conformance;
pub mod consumer;
pub mod digests;
pub mod doubles;
pub mod embedder;
pub mod feed;
pub mod fold;
pub mod guarded;
pub mod hash_embedder;
pub mod history;
pub mod http;
pub mod inbox;
pub mod keyring;
pub mod log;
pub mod owner_states;
pub mod pace;
pub mod paging;
pub mod problem;
pub mod reviews;
pub mod similarity;
pub mod snapshots;
pub mod stands;
pub mod stores;
