//! Audit: replays the log and never believes a store.
//!
//! - [`replay`]: a partition from the first record, and both digests
//! - [`state`]: one owner as of (valid, known)
//! - [`erasure`]: how far an erasure is
//! - [`explain`]: from a memory back to the sentence
//! - [`verify`]: chain, causes, re-decision
//! - [`diff`]: each store against the fold
//! - [`balance`]: is everything that was accepted accounted for

pub mod balance;
pub mod diff;
pub mod erasure;
pub mod explain;
pub mod replay;
pub mod state;
pub mod verify;
