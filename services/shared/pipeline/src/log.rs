//! The append-only log that every memory state is rebuilt from.

use std::sync::Arc;
use std::time::Duration;

use anamnesis_domain::ids::{LogId, OwnerKey};
use anamnesis_domain::input::{Position, Topic};
use anamnesis_domain::time::Timestamp;
use async_trait::async_trait;
use bytes::Bytes;

/// Longest payload of one record, in bytes. Readers allocate at most this much for a record whatever
/// its length field claims; 4 MiB holds the longest turn that intake accepts (1 MiB) four times.
pub const PAYLOAD_BYTES_MAX: usize = 4 << 20;

/// A record to be appended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NewRecord {
    /// The owner's pseudonym. `schemas` records, which have no owner, use sixteen zero bytes.
    pub key: OwnerKey,
    pub payload: Bytes,
}

/// A record as the log returns it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Record {
    pub position: Position,
    pub key: OwnerKey,
    /// Append time, set by the log; never decreases within a partition.
    pub appended_at: Timestamp,
    pub payload: Bytes,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Appended {
    pub position: Position,
    pub appended_at: Timestamp,
}

/// What the first record of each partition says; offset 0 is always this record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Identity {
    pub log_id: LogId,
    pub created_at: Timestamp,
    pub partitions: u32,
}

#[derive(Debug, thiserror::Error, Clone)]
pub enum LogError {
    /// The append may or may not have happened. A writer of `memories` starts a new epoch.
    #[error("the outcome of an append to {topic}-{partition} is unknown: {reason}")]
    Unknown {
        topic: Topic,
        partition: u32,
        reason: String,
    },
    /// Nothing was appended; trying again may help.
    #[error("the log is unavailable: {reason}")]
    Unavailable { reason: String },
    /// A record fails its checksum. Retrying cannot help, and skipping would falsify the audit.
    #[error("the record at {position} is corrupt: its checksum does not match")]
    Corrupt { position: Position },
    /// The offset was never written, or retention has passed it. Nothing jumps over this.
    #[error("offset {offset} of {topic}-{partition} is out of range: the log holds {start}..{end}")]
    OutOfRange {
        topic: Topic,
        partition: u32,
        offset: u64,
        start: u64,
        end: u64,
    },
    #[error("{topic} has partitions 0..{partitions}, not {partition}")]
    NoPartition {
        topic: Topic,
        partition: u32,
        partitions: u32,
    },
    #[error("a payload of {bytes} bytes exceeds the limit of {PAYLOAD_BYTES_MAX}")]
    TooLarge { bytes: usize },
    /// Another process has the data folder.
    #[error("{what} is in use by another process")]
    InUse { what: String },
    /// The data was written by a newer version, or is not a log.
    #[error("{what}")]
    Unusable { what: String },
}

impl LogError {
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Unknown { .. } | Self::Unavailable { .. } => true,
            Self::Corrupt { .. }
            | Self::OutOfRange { .. }
            | Self::NoPartition { .. }
            | Self::TooLarge { .. }
            | Self::InUse { .. }
            | Self::Unusable { .. } => false,
        }
    }
}

/// The append-only log that every memory state is rebuilt from.
///
/// Contract, checked by [`crate::conformance::log`]:
/// - an `append` that returned `Ok` is durable, and its records are adjacent and in order;
/// - an empty `append` changes nothing and answers an empty list;
/// - offsets have no gaps; offset 0 is the identity record, written when the partition is made;
/// - the append time is set by the log and never decreases within a partition, whatever the clock does;
/// - a read starts exactly at the asked offset, may be short, and is empty only at the tail;
/// - a read below `start` or above `end` is [`LogError::OutOfRange`]; nothing ever jumps;
/// - a payload comes back byte for byte, or the read is [`LogError::Corrupt`] and names the record;
/// - an append above [`PAYLOAD_BYTES_MAX`] is refused whole: none of its records is appended;
/// - partitions of all topics but `inbox` and `schemas` are equal in number and fixed at creation.
#[async_trait]
pub trait EventLog: Send + Sync {
    /// Partition count of the owner-keyed topics.
    fn partitions(&self) -> u32;

    async fn identity(&self, topic: Topic, partition: u32) -> Result<Identity, LogError>;

    /// Appends in order and returns when durable.
    async fn append(
        &self,
        topic: Topic,
        partition: u32,
        records: Vec<NewRecord>,
    ) -> Result<Vec<Appended>, LogError>;

    /// Records from `from` on, at most `records_max` and about `bytes_max` (at least one record when
    /// there is one).
    async fn read(
        &self,
        topic: Topic,
        partition: u32,
        from: u64,
        records_max: usize,
        bytes_max: usize,
    ) -> Result<Vec<Record>, LogError>;

    /// The records at exactly these ascending offsets, to load one owner without a scan.
    async fn read_at(
        &self,
        topic: Topic,
        partition: u32,
        offsets: &[u64],
    ) -> Result<Vec<Record>, LogError>;

    /// The first offset that retention has left.
    async fn start(&self, topic: Topic, partition: u32) -> Result<u64, LogError>;

    /// The offset that the next record will get.
    async fn end(&self, topic: Topic, partition: u32) -> Result<u64, LogError>;

    /// Returns when the partition's end is beyond `offset`, or after `at_most`.
    async fn wait_beyond(
        &self,
        topic: Topic,
        partition: u32,
        offset: u64,
        at_most: Duration,
    ) -> Result<(), LogError>;

    /// Drops records appended before `before`, from the start on. Refused for the topics that are kept
    /// for ever (`memories`, `conversation`, `candidates`, `commands`).
    async fn retain(
        &self,
        topic: Topic,
        partition: u32,
        before: Timestamp,
    ) -> Result<u64, LogError>;

    /// Reading clients that stalled and were made anew, for a metric; a log without clients has none.
    fn rebuilt_readers(&self) -> u64 {
        0
    }
}

pub type Log = Arc<dyn EventLog>;

/// The partition of an owner. The same function for every topic, so that all of one owner's records
/// have the same partition number.
pub fn partition_of(owner: OwnerKey, partitions: u32) -> u32 {
    (murmur2(owner.bytes()) & 0x7fff_ffff) % partitions.max(1)
}

/// Kafka's default partitioner hash (murmur2, seed 0x9747b28c), so that Java and Rust producers agree.
fn murmur2(data: &[u8]) -> u32 {
    const M: u32 = 0x5bd1_e995;
    let mut hash: u32 = 0x9747_b28c ^ data.len() as u32;
    let mut chunks = data.chunks_exact(4);
    for chunk in &mut chunks {
        let mut k = u32::from_le_bytes([chunk[0], chunk[1], chunk[2], chunk[3]]);
        k = k.wrapping_mul(M);
        k ^= k >> 24;
        k = k.wrapping_mul(M);
        hash = hash.wrapping_mul(M) ^ k;
    }
    let rest = chunks.remainder();
    if rest.len() == 3 {
        hash ^= u32::from(rest[2]) << 16;
    }
    if rest.len() >= 2 {
        hash ^= u32::from(rest[1]) << 8;
    }
    if !rest.is_empty() {
        hash ^= u32::from(rest[0]);
        hash = hash.wrapping_mul(M);
    }
    hash ^= hash >> 13;
    hash = hash.wrapping_mul(M);
    hash ^ (hash >> 15)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reference values of the Java client's own test.
    #[test]
    fn murmur2_agrees_with_the_java_client() {
        for (text, hash) in [
            ("21", -973_932_308_i32),
            ("foobar", -790_332_482),
            ("a-little-bit-long-string", -985_981_536),
            ("a-little-bit-longer-string", -1_486_304_829),
            (
                "lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8",
                -58_897_971,
            ),
            ("abc", 479_470_107),
        ] {
            assert_eq!(murmur2(text.as_bytes()) as i32, hash, "{text}");
        }
    }

    #[test]
    fn a_partition_is_within_range() {
        for byte in 0..=255 {
            assert!(partition_of(OwnerKey::from_bytes([byte; 16]), 4) < 4);
        }
    }
}
