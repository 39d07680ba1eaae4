//! What platforms that write to Kafka leave in topic `inbox`, and where the schemas of their Avro come
//! from.

use std::fmt;
use std::time::Duration;

use anamnesis_domain::time::Timestamp;
use async_trait::async_trait;
use bytes::Bytes;

use crate::log::LogError;

/// Most bytes of a record's key and headers together. CloudEvents asks for attributes that fit in some
/// hundred bytes each, and a reader's memory is bounded whatever was written.
pub const FRAME_BYTES_MAX: usize = 64 << 10;

/// Most headers of one record.
pub const HEADERS_MAX: usize = 1_000;

/// A record that a platform wrote, as it stands.
#[derive(Clone, PartialEq, Eq)]
pub struct InboxRecord {
    pub offset: u64,
    /// Append time, set by the broker; never decreases within a partition.
    pub appended_at: Timestamp,
    pub key: Option<Bytes>,
    /// In order; a name may stand there twice, and a value may be null.
    pub headers: Vec<(String, Option<Bytes>)>,
    pub payload: Option<Bytes>,
    /// Why parts of the record are not here; key, headers and payload are empty then.
    pub damage: Option<Damage>,
}

/// Why a record cannot be handed on as it stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Damage {
    /// The payload exceeds [`crate::log::PAYLOAD_BYTES_MAX`], or key and headers [`FRAME_BYTES_MAX`].
    TooLarge,
    /// A header's name is not UTF-8.
    HeaderName,
}

/// What a patient said stands in there: only lengths are shown.
impl fmt::Debug for InboxRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InboxRecord")
            .field("offset", &self.offset)
            .field("appended_at", &self.appended_at)
            .field("key_bytes", &self.key.as_ref().map(Bytes::len))
            .field("headers", &self.headers.len())
            .field("payload_bytes", &self.payload.as_ref().map(Bytes::len))
            .field("damage", &self.damage)
            .finish()
    }
}

/// What one read gave.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct InboxBatch {
    pub records: Vec<InboxRecord>,
    /// Where the next read goes on. Beyond the last record when places without a record follow it.
    pub next: u64,
}

/// Topic `inbox`, whose writers are not ours: any key, any headers, any payload, any partition count.
///
/// Contract, checked by [`crate::conformance::inbox`]:
/// - a read starts at `from`, gives what stands there in order and may be short; it is at the tail only
///   when `next` is `from`;
/// - an offset without a record (a transaction's marker, a transaction that was given up) is passed
///   over by `next` and is no record;
/// - key, headers and payload come back byte for byte, null told apart from empty; what is too large or
///   cannot be represented comes as a record with [`Damage`];
/// - a read below `start` or above `end` is [`LogError::OutOfRange`]; nothing ever jumps.
#[async_trait]
pub trait Inbox: Send + Sync {
    fn partitions(&self) -> u32;

    /// The first offset that retention has left.
    async fn start(&self, partition: u32) -> Result<u64, LogError>;

    /// The offset that the next record will get.
    async fn end(&self, partition: u32) -> Result<u64, LogError>;

    /// At most `records_max` records and about `bytes_max`, and at least one place when there is one.
    async fn read(
        &self,
        partition: u32,
        from: u64,
        records_max: usize,
        bytes_max: usize,
    ) -> Result<InboxBatch, LogError>;

    /// Returns when the partition's end is beyond `offset`, or after `at_most`.
    async fn wait_beyond(
        &self,
        partition: u32,
        offset: u64,
        at_most: Duration,
    ) -> Result<(), LogError>;
}

#[derive(Debug, thiserror::Error, Clone, PartialEq, Eq)]
pub enum SchemaError {
    /// Asking again may help: the record waits.
    #[error("the schema registry cannot be asked: {reason}")]
    Unavailable { reason: String },
    /// The registry has answered that it knows no schema of this id.
    #[error("the schema registry knows no schema {id}")]
    Unknown { id: u32 },
    #[error("schema {id} cannot be used: {reason}")]
    Unsupported { id: u32, reason: &'static str },
}

/// Where the schemas of Confluent's frame come from. An id names one schema for ever.
#[async_trait]
pub trait SchemaSource: Send + Sync {
    /// The text of an Avro schema that needs no other one.
    async fn schema(&self, id: u32) -> Result<String, SchemaError>;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_shows_lengths_and_no_word() {
        let record = InboxRecord {
            offset: 7,
            appended_at: Timestamp::from_millis(0),
            key: Some(Bytes::from_static("患者-17".as_bytes())),
            headers: vec![("ce_subject".to_owned(), Some(Bytes::from_static(b"h1/p1")))],
            payload: Some(Bytes::from_static(b"chest pain")),
            damage: None,
        };
        let shown = format!("{record:?}");
        assert!(shown.contains("payload_bytes: Some(10)"), "{shown}");
        for word in ["chest", "h1/p1", "患者"] {
            assert!(!shown.contains(word), "{shown}");
        }
    }
}
