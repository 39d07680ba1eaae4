//! What a record says in clear: opaque ids, codes and numbers, nothing that tells about a person.
//! Chain, fencing, positions and erasure are readable from here when every key is gone.

use anamnesis_domain::ids::{
    EventTag, Hash, KeyId, LogId, MemoryId, OwnerKey, RecallId, SourceTag,
};
use anamnesis_domain::input::{Cause, Position, Topic};
use anamnesis_domain::receipt::{ErasureReceipt, InboxRead, InboxRejected, Parked, Unparked};
use anamnesis_domain::time::Timestamp;
use anamnesis_domain::transition::Outcome;
use apache_avro::AvroSchema;
use serde::{Deserialize, Serialize};

use crate::datum::{self, Wire};
use crate::error::WireError;
use crate::registry::{Record, registry};
use crate::scalar::{Hash32, Id, known, narrow, to_long, unsigned};

/// A header of any record.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Header {
    Identity(IdentityHeader),
    Input(InputHeader),
    Decided(DecidedHeader),
    WriterStarted(WriterStartedHeader),
    Parked(Parked),
    Unparked(Unparked),
    Embedding(EmbeddingHeader),
    Access(AccessHeader),
    ErasureReceipt(ErasureReceipt),
    InboxRead(InboxRead),
}

/// The first record of a partition.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct IdentityHeader {
    pub log_id: LogId,
    pub created_at: Timestamp,
    pub partitions: u32,
    pub topic: Topic,
}

/// A turn (in `conversation` or `quarantine`), its candidates, or a command.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct InputHeader {
    /// `turn`, `candidates`, or the command's code.
    pub kind: String,
    pub owner: OwnerKey,
    pub event: EventTag,
    pub source_tag: SourceTag,
    /// The key of the conversation record or command; candidates are sealed with their turn's key.
    pub key_id: KeyId,
    pub key_epoch: u32,
    /// Version of the consent that intake checked; 0 where none was asked for.
    pub consent_version: u64,
    /// The turn behind candidates; `None` otherwise.
    pub origin: Option<Position>,
    /// For candidates: why there are none (`erased`, or the code of a failed extraction).
    pub failed: Option<String>,
}

/// One decision: its place in the owner's chain, and what it answers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DecidedHeader {
    pub owner: OwnerKey,
    pub owner_seq: u64,
    pub prev_hash: Hash,
    pub writer_epoch: u64,
    pub key_epoch: u32,
    pub cause: Cause,
    /// The key of the cause; `None` when it was destroyed before the decision.
    pub source_key: Option<KeyId>,
    pub decided_at: Timestamp,
    pub outcome: Outcome,
    /// The owner whose claim a merge carried over.
    pub origin: Option<OwnerKey>,
}

/// A writer of the partition begins; the record's offset is its epoch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WriterStartedHeader {
    /// Random, so that a writer recognises its own record.
    pub writer: [u8; 16],
    pub at: Timestamp,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct EmbeddingHeader {
    pub owner: OwnerKey,
    pub memory_id: MemoryId,
    /// The key of the transition that asserted the memory.
    pub key_id: KeyId,
    pub key_epoch: u32,
    pub model: String,
    pub dimension: u32,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AccessHeader {
    pub owner: OwnerKey,
    pub recall_id: RecallId,
    pub key_id: KeyId,
    pub key_epoch: u32,
}

impl Header {
    /// # Errors
    /// When a number is beyond what the contract holds.
    pub fn encode(&self) -> Result<Vec<u8>, WireError> {
        match self {
            Self::Identity(header) => datum::encode_object(&wire::IdentityHeader {
                log_id: header.log_id.into(),
                created_at: header.created_at.millis(),
                partitions: header.partitions.into(),
                topic: header.topic.as_str().to_owned(),
            }),
            Self::Input(header) => datum::encode_object(&wire::InputHeader {
                kind: header.kind.clone(),
                owner: header.owner.into(),
                event: header.event.into(),
                source_tag: header.source_tag.into(),
                key_id: header.key_id.into(),
                key_epoch: header.key_epoch.into(),
                consent_version: to_long("consent_version", header.consent_version)?,
                origin: header.origin.map(wire::Position::of).transpose()?,
                failed: header.failed.clone(),
            }),
            Self::Decided(header) => datum::encode_object(&wire::DecidedHeader {
                owner: header.owner.into(),
                owner_seq: to_long("owner_seq", header.owner_seq)?,
                prev_hash: header.prev_hash.into(),
                writer_epoch: to_long("writer_epoch", header.writer_epoch)?,
                key_epoch: header.key_epoch.into(),
                cause: wire::Cause {
                    position: wire::Position::of(header.cause.position)?,
                    event: header.cause.event.into(),
                    source_tag: header.cause.source_tag.into(),
                    origin: wire::Position::of(header.cause.origin)?,
                },
                source_key: header.source_key.map(Id::from),
                decided_at: header.decided_at.millis(),
                outcome: header.outcome.code(),
                origin: header.origin.map(Id::from),
            }),
            Self::WriterStarted(header) => datum::encode_object(&wire::WriterStartedHeader {
                writer: Id(header.writer),
                at: header.at.millis(),
            }),
            Self::Parked(parked) => datum::encode_object(&wire::ParkedHeader {
                stage: parked.stage.clone(),
                owner: parked.owner.into(),
                first: wire::Position::of(parked.first)?,
                reason: parked.reason.clone(),
                at: parked.at.millis(),
                writer_epoch: parked
                    .writer_epoch
                    .map(|epoch| to_long("writer_epoch", epoch))
                    .transpose()?,
            }),
            Self::Unparked(unparked) => datum::encode_object(&wire::UnparkedHeader {
                stage: unparked.stage.clone(),
                owner: unparked.owner.into(),
                at: unparked.at.millis(),
                writer_epoch: unparked
                    .writer_epoch
                    .map(|epoch| to_long("writer_epoch", epoch))
                    .transpose()?,
            }),
            Self::Embedding(header) => datum::encode_object(&wire::EmbeddingHeader {
                owner: header.owner.into(),
                memory_id: header.memory_id.into(),
                key_id: header.key_id.into(),
                key_epoch: header.key_epoch.into(),
                model: header.model.clone(),
                dimension: header.dimension.into(),
            }),
            Self::Access(header) => datum::encode_object(&wire::AccessHeader {
                owner: header.owner.into(),
                recall_id: header.recall_id.into(),
                key_id: header.key_id.into(),
                key_epoch: header.key_epoch.into(),
            }),
            Self::ErasureReceipt(receipt) => datum::encode_object(&wire::ErasureReceiptHeader {
                erasure: receipt.erasure.into(),
                owner: receipt.owner.into(),
                place: receipt.place.clone(),
                stage: receipt.stage.clone(),
                count: to_long("count", receipt.count)?,
                at: receipt.at.millis(),
            }),
            Self::InboxRead(read) => datum::encode_object(&wire::InboxReadHeader {
                partition: read.partition.into(),
                from: to_long("from", read.from)?,
                next: to_long("next", read.next)?,
                read: to_long("read", read.read)?,
                accepted: to_long("accepted", read.accepted)?,
                rejected_count: to_long("rejected_count", read.rejected_count)?,
                rejected: read
                    .rejected
                    .iter()
                    .map(wire::InboxRejected::of)
                    .collect::<Result<_, _>>()?,
                at: read.at.millis(),
            }),
        }
    }

    /// # Errors
    /// When the bytes are not a header of a version that this one knows.
    pub fn decode(bytes: &[u8]) -> Result<Self, WireError> {
        let (fingerprint, rest) = datum::split_object(bytes)?;
        let version = registry()
            .version(fingerprint)
            .ok_or(WireError::UnknownSchema(fingerprint))?;
        match version.record {
            Record::IdentityHeader => {
                let wire: wire::IdentityHeader = datum::decode_datum(fingerprint, rest)?;
                Ok(Self::Identity(IdentityHeader {
                    log_id: wire.log_id.into(),
                    created_at: Timestamp::from_millis(wire.created_at),
                    partitions: narrow("partitions", wire.partitions)?,
                    topic: known("topic", Topic::parse(&wire.topic))?,
                }))
            }
            Record::InputHeader => {
                let wire: wire::InputHeader = datum::decode_datum(fingerprint, rest)?;
                Ok(Self::Input(InputHeader {
                    kind: wire.kind,
                    owner: wire.owner.into(),
                    event: wire.event.into(),
                    source_tag: wire.source_tag.into(),
                    key_id: wire.key_id.into(),
                    key_epoch: narrow("key_epoch", wire.key_epoch)?,
                    consent_version: unsigned("consent_version", wire.consent_version)?,
                    origin: wire.origin.map(wire::Position::read).transpose()?,
                    failed: wire.failed,
                }))
            }
            Record::DecidedHeader => {
                let wire: wire::DecidedHeader = datum::decode_datum(fingerprint, rest)?;
                Ok(Self::Decided(DecidedHeader {
                    owner: wire.owner.into(),
                    owner_seq: unsigned("owner_seq", wire.owner_seq)?,
                    prev_hash: wire.prev_hash.into(),
                    writer_epoch: unsigned("writer_epoch", wire.writer_epoch)?,
                    key_epoch: narrow("key_epoch", wire.key_epoch)?,
                    cause: Cause {
                        position: wire.cause.position.read()?,
                        event: wire.cause.event.into(),
                        source_tag: wire.cause.source_tag.into(),
                        origin: wire.cause.origin.read()?,
                    },
                    source_key: wire.source_key.map(KeyId::from),
                    decided_at: Timestamp::from_millis(wire.decided_at),
                    outcome: known("outcome", Outcome::parse(&wire.outcome))?,
                    origin: wire.origin.map(OwnerKey::from),
                }))
            }
            Record::WriterStartedHeader => {
                let wire: wire::WriterStartedHeader = datum::decode_datum(fingerprint, rest)?;
                Ok(Self::WriterStarted(WriterStartedHeader {
                    writer: wire.writer.0,
                    at: Timestamp::from_millis(wire.at),
                }))
            }
            Record::ParkedHeader => {
                let wire: wire::ParkedHeader = datum::decode_datum(fingerprint, rest)?;
                Ok(Self::Parked(Parked {
                    stage: wire.stage,
                    owner: wire.owner.into(),
                    first: wire.first.read()?,
                    reason: wire.reason,
                    at: Timestamp::from_millis(wire.at),
                    writer_epoch: wire
                        .writer_epoch
                        .map(|epoch| unsigned("writer_epoch", epoch))
                        .transpose()?,
                }))
            }
            Record::UnparkedHeader => {
                let wire: wire::UnparkedHeader = datum::decode_datum(fingerprint, rest)?;
                Ok(Self::Unparked(Unparked {
                    stage: wire.stage,
                    owner: wire.owner.into(),
                    at: Timestamp::from_millis(wire.at),
                    writer_epoch: wire
                        .writer_epoch
                        .map(|epoch| unsigned("writer_epoch", epoch))
                        .transpose()?,
                }))
            }
            Record::EmbeddingHeader => {
                let wire: wire::EmbeddingHeader = datum::decode_datum(fingerprint, rest)?;
                Ok(Self::Embedding(EmbeddingHeader {
                    owner: wire.owner.into(),
                    memory_id: wire.memory_id.into(),
                    key_id: wire.key_id.into(),
                    key_epoch: narrow("key_epoch", wire.key_epoch)?,
                    model: wire.model,
                    dimension: narrow("dimension", wire.dimension)?,
                }))
            }
            Record::AccessHeader => {
                let wire: wire::AccessHeader = datum::decode_datum(fingerprint, rest)?;
                Ok(Self::Access(AccessHeader {
                    owner: wire.owner.into(),
                    recall_id: wire.recall_id.into(),
                    key_id: wire.key_id.into(),
                    key_epoch: narrow("key_epoch", wire.key_epoch)?,
                }))
            }
            Record::ErasureReceiptHeader => {
                let wire: wire::ErasureReceiptHeader = datum::decode_datum(fingerprint, rest)?;
                Ok(Self::ErasureReceipt(ErasureReceipt {
                    erasure: wire.erasure.into(),
                    owner: wire.owner.into(),
                    place: wire.place,
                    stage: wire.stage,
                    count: unsigned("count", wire.count)?,
                    at: Timestamp::from_millis(wire.at),
                }))
            }
            Record::InboxReadHeader => {
                let wire: wire::InboxReadHeader = datum::decode_datum(fingerprint, rest)?;
                Ok(Self::InboxRead(InboxRead {
                    partition: narrow("partition", wire.partition)?,
                    from: unsigned("from", wire.from)?,
                    next: unsigned("next", wire.next)?,
                    read: unsigned("read", wire.read)?,
                    accepted: unsigned("accepted", wire.accepted)?,
                    rejected_count: unsigned("rejected_count", wire.rejected_count)?,
                    rejected: wire
                        .rejected
                        .into_iter()
                        .map(wire::InboxRejected::read)
                        .collect::<Result<_, _>>()?,
                    at: Timestamp::from_millis(wire.at),
                }))
            }
            Record::Envelope
            | Record::PartHeader
            | Record::TurnBody
            | Record::CandidatesBody
            | Record::CommandBody
            | Record::TransitionBody
            | Record::DetailBody
            | Record::VectorBody
            | Record::ReceiptBody => Err(WireError::WrongRecord {
                expected: "header",
                found: version.record.name(),
            }),
        }
    }
}

/// The newest version of each header, field by field as in its schema.
pub(crate) mod wire {
    use super::*;

    #[derive(AvroSchema, Serialize, Deserialize)]
    #[avro(namespace = "anamnesis")]
    pub(crate) struct Position {
        topic: String,
        partition: i64,
        offset: i64,
    }

    impl Position {
        pub(super) fn of(position: super::Position) -> Result<Self, WireError> {
            Ok(Self {
                topic: position.topic.as_str().to_owned(),
                partition: position.partition.into(),
                offset: to_long("offset", position.offset)?,
            })
        }

        pub(super) fn read(self) -> Result<super::Position, WireError> {
            Ok(super::Position {
                topic: known("topic", Topic::parse(&self.topic))?,
                partition: narrow("partition", self.partition)?,
                offset: unsigned("offset", self.offset)?,
            })
        }
    }

    #[derive(AvroSchema, Serialize, Deserialize)]
    #[avro(namespace = "anamnesis")]
    pub(crate) struct Cause {
        pub(super) position: Position,
        pub(super) event: Id,
        pub(super) source_tag: Id,
        pub(super) origin: Position,
    }

    #[derive(AvroSchema, Serialize, Deserialize)]
    #[avro(namespace = "anamnesis")]
    pub(crate) struct IdentityHeader {
        pub(super) log_id: Id,
        pub(super) created_at: i64,
        pub(super) partitions: i64,
        pub(super) topic: String,
    }

    #[derive(AvroSchema, Serialize, Deserialize)]
    #[avro(namespace = "anamnesis")]
    pub(crate) struct InputHeader {
        pub(super) kind: String,
        pub(super) owner: Id,
        pub(super) event: Id,
        pub(super) source_tag: Id,
        pub(super) key_id: Id,
        pub(super) key_epoch: i64,
        pub(super) consent_version: i64,
        pub(super) origin: Option<Position>,
        pub(super) failed: Option<String>,
    }

    #[derive(AvroSchema, Serialize, Deserialize)]
    #[avro(namespace = "anamnesis")]
    pub(crate) struct DecidedHeader {
        pub(super) owner: Id,
        pub(super) owner_seq: i64,
        pub(super) prev_hash: Hash32,
        pub(super) writer_epoch: i64,
        pub(super) key_epoch: i64,
        pub(super) cause: Cause,
        pub(super) source_key: Option<Id>,
        pub(super) decided_at: i64,
        pub(super) outcome: String,
        pub(super) origin: Option<Id>,
    }

    #[derive(AvroSchema, Serialize, Deserialize)]
    #[avro(namespace = "anamnesis")]
    pub(crate) struct WriterStartedHeader {
        pub(super) writer: Id,
        pub(super) at: i64,
    }

    #[derive(AvroSchema, Serialize, Deserialize)]
    #[avro(namespace = "anamnesis")]
    pub(crate) struct ParkedHeader {
        pub(super) stage: String,
        pub(super) owner: Id,
        pub(super) first: Position,
        pub(super) reason: String,
        pub(super) at: i64,
        #[serde(default)]
        pub(super) writer_epoch: Option<i64>,
    }

    #[derive(AvroSchema, Serialize, Deserialize)]
    #[avro(namespace = "anamnesis")]
    pub(crate) struct UnparkedHeader {
        pub(super) stage: String,
        pub(super) owner: Id,
        pub(super) at: i64,
        #[serde(default)]
        pub(super) writer_epoch: Option<i64>,
    }

    #[derive(AvroSchema, Serialize, Deserialize)]
    #[avro(namespace = "anamnesis")]
    pub(crate) struct EmbeddingHeader {
        pub(super) owner: Id,
        pub(super) memory_id: Id,
        pub(super) key_id: Id,
        pub(super) key_epoch: i64,
        pub(super) model: String,
        pub(super) dimension: i64,
    }

    #[derive(AvroSchema, Serialize, Deserialize)]
    #[avro(namespace = "anamnesis")]
    pub(crate) struct AccessHeader {
        pub(super) owner: Id,
        pub(super) recall_id: Id,
        pub(super) key_id: Id,
        pub(super) key_epoch: i64,
    }

    #[derive(AvroSchema, Serialize, Deserialize)]
    #[avro(namespace = "anamnesis")]
    pub(crate) struct ErasureReceiptHeader {
        pub(super) erasure: Id,
        pub(super) owner: Id,
        pub(super) place: String,
        pub(super) stage: String,
        pub(super) count: i64,
        pub(super) at: i64,
    }

    #[derive(AvroSchema, Serialize, Deserialize)]
    #[avro(namespace = "anamnesis")]
    pub(crate) struct InboxRejected {
        offset: i64,
        code: String,
    }

    impl InboxRejected {
        pub(super) fn of(rejected: &super::InboxRejected) -> Result<Self, WireError> {
            Ok(Self {
                offset: to_long("rejected.offset", rejected.offset)?,
                code: rejected.code.clone(),
            })
        }

        pub(super) fn read(self) -> Result<super::InboxRejected, WireError> {
            Ok(super::InboxRejected {
                offset: unsigned("rejected.offset", self.offset)?,
                code: self.code,
            })
        }
    }

    #[derive(AvroSchema, Serialize, Deserialize)]
    #[avro(namespace = "anamnesis")]
    pub(crate) struct InboxReadHeader {
        pub(super) partition: i64,
        pub(super) from: i64,
        pub(super) next: i64,
        pub(super) read: i64,
        pub(super) accepted: i64,
        pub(super) rejected_count: i64,
        pub(super) rejected: Vec<InboxRejected>,
        pub(super) at: i64,
    }

    macro_rules! wire {
        ($($name:ident),+) => {
            $(impl Wire for $name {
                const RECORD: Record = Record::$name;
            })+
        };
    }

    wire!(
        IdentityHeader,
        InputHeader,
        DecidedHeader,
        WriterStartedHeader,
        ParkedHeader,
        UnparkedHeader,
        EmbeddingHeader,
        AccessHeader,
        ErasureReceiptHeader,
        InboxReadHeader
    );
}
