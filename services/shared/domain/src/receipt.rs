//! What recall, stores and stages leave behind on the log besides decisions.

use serde::{Deserialize, Serialize};

use crate::ids::{ErasureId, MemoryId, OwnerKey, RecallId};
use crate::input::Position;
use crate::owner::Owner;
use crate::text::Text;
use crate::time::Timestamp;

/// One recall: enough to run it again and to see that it answers the same.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct RecallReceipt {
    pub recall_id: RecallId,
    pub owner: Owner,
    pub at: Timestamp,
    pub caller: String,
    pub purpose: Option<String>,
    /// The request as JSON, with `as_of`, `known_at` and `now` resolved. Of what a caller sent, only the
    /// question itself.
    pub request: Text,
    /// The answer as JSON without the text of any memory, which would outlive the memory: ids, versions,
    /// the parts of each score, and a digest of the whole.
    pub answer: Text,
    pub returned: Vec<MemoryId>,
}

/// A stage cannot apply a record: its owner waits, in order, from `first` on.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Parked {
    /// `extractor`, `validity-manager`, or a store's name.
    pub stage: String,
    pub owner: OwnerKey,
    pub first: Position,
    /// Stable code: `undecodable`, `unknown_schema`, `corrupt`.
    pub reason: String,
    pub at: Timestamp,
    /// In `memories`: the epoch of the writer. `None` in the outputs of stages that are not fenced.
    pub writer_epoch: Option<u64>,
}

/// The owner's records were read again and applied.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Unparked {
    pub stage: String,
    pub owner: OwnerKey,
    pub at: Timestamp,
    /// As in [`Parked`].
    pub writer_epoch: Option<u64>,
}

/// How far intake has read one partition of `inbox`, and what became of the records. The newest one of
/// a partition is intake's position there.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct InboxRead {
    /// Of `inbox`, which may have another number of partitions than the log.
    pub partition: u32,
    /// What stands from here on, up to `next`, is answered.
    pub from: u64,
    pub next: u64,
    /// Records among them. A place without a record, as a transaction's marker, is none.
    pub read: u64,
    /// Messages that are durable; one record may hold several.
    pub accepted: u64,
    /// Events that were turned down, with those that `rejected` has no room for.
    pub rejected_count: u64,
    pub rejected: Vec<InboxRejected>,
    pub at: Timestamp,
}

/// A record of `inbox` of which something was turned down.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub struct InboxRejected {
    pub offset: u64,
    /// Stable code; never a word of what was sent.
    pub code: String,
}

/// Between a store and the copy of it that a place is.
const COPY: char = '@';

/// Where an erasure was applied: a store, or one of several copies of it.
pub fn place(store: &str, copy: Option<&str>) -> String {
    copy.map_or_else(|| store.to_owned(), |copy| format!("{store}{COPY}{copy}"))
}

/// The store that a place is, or is a copy of.
pub fn store_of(place: &str) -> &str {
    place.split_once(COPY).map_or(place, |(store, _)| store)
}

/// What one store (or the keyring) did about an erasure.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ErasureReceipt {
    pub erasure: ErasureId,
    pub owner: OwnerKey,
    /// `keyring`, `records`, `text`, `vectors`, `graph`; of one of several copies as [`place`] says.
    pub place: String,
    /// `effective` (unreachable) or `physical` (bytes rewritten).
    pub stage: String,
    /// Keys destroyed, or rows removed.
    pub count: u64,
    pub at: Timestamp,
}
