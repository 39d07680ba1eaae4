//! Audit: replays the log and never believes a store.
//!
//! - [`replay`]: a partition from the first record, and both digests
//! - [`state`]: one owner as of (valid, known)
//! - [`erasure`]: how far an erasure is
//! - [`explain`]: from a memory back to the sentence
//! - [`verify`]: chain, causes, re-decision
//! - [`diff`]: each store against the fold
//! - [`balance`]: is everything that was accepted accounted for
//! - [`ledger`]: the same at any moment, record by record
//! - [`sample`]: one owner in every store against the fold, while the stores go on

pub mod balance;
pub mod diff;
pub mod erasure;
pub mod explain;
pub mod ledger;
pub mod replay;
pub mod sample;
pub mod state;
pub mod verify;
