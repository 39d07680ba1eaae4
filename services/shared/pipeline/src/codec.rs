//! From domain values to sealed records and back.
//!
//! A record is an envelope: a header in clear and parts, each a body sealed with XChaCha20-Poly1305
//! under a data key of the keyring and bound to both headers and its place (see `anamnesis_schemas`).
//! Who lacks the keys reads [`read_clear`]; who has them reads [`Codec::open`].

mod aead;
mod clear;
mod open;
mod seal;
#[cfg(test)]
#[allow(
    clippy::wildcard_enum_match_arm,
    reason = "a test names what it expects; all else fails"
)]
mod tests;

use anamnesis_domain::ids::{EventTag, Hash, KeyId, MemoryId, OwnerKey, RecallId, SourceTag};
use anamnesis_domain::input::{CandidateSet, Cause, CommandRecord, Position, Turn};
use anamnesis_domain::receipt::{ErasureReceipt, InboxRead, Parked, RecallReceipt, Unparked};
use anamnesis_domain::time::Timestamp;
use anamnesis_domain::transition::Decided;
use anamnesis_schemas::WireError;

pub use self::clear::{Clear, ClearDecided, read_clear};
pub use self::seal::identity_payload;
use crate::embedder::ModelIdentity;
use crate::keyring::{DataKey, KeyringError, Keys};
use crate::log::Identity;

/// Codes of inputs and parts that are not a command's or a transition's own.
const TURN: &str = "turn";
const CANDIDATES: &str = "candidates";
const DETAIL: &str = "detail";
const VECTOR: &str = "vector";
const RECEIPT: &str = "receipt";

/// `failed` of a candidates record whose turn was erased before it was extracted.
const ERASED: &str = "erased";

/// Key of the records that belong to a partition and to no owner.
const NO_OWNER: OwnerKey = OwnerKey::from_bytes([0; 16]);

/// Seals and opens with the keys of one keyring.
#[derive(Clone)]
pub struct Codec {
    keys: Keys,
    /// How many partitions owners are spread over, once that is known.
    partitions: Option<u32>,
}

impl Codec {
    pub fn new(keys: Keys) -> Self {
        Self {
            keys,
            partitions: None,
        }
    }

    /// For a log of so many partitions: a record in another partition than its owner's (somebody else's
    /// partitioner wrote it) is not opened, since nobody who asks for that owner would ever meet it.
    #[must_use]
    pub fn over(self, partitions: u32) -> Self {
        Self {
            partitions: Some(partitions),
            ..self
        }
    }

    pub fn keys(&self) -> &Keys {
        &self.keys
    }
}

/// What the header of an input says, and where it stands.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct InputMeta {
    pub position: Position,
    pub appended_at: Timestamp,
    pub owner: OwnerKey,
    pub event: EventTag,
    pub source_tag: SourceTag,
    /// The key of the turn or command.
    pub key_id: KeyId,
    pub key_epoch: u32,
    /// The consent that intake checked; 0 for a command.
    pub consent_version: u64,
    /// `turn`, `candidates`, or the command's code.
    pub code: String,
    /// The turn behind candidates; otherwise the record's own position.
    pub origin: Position,
    /// For candidates: `erased`, or the code of a failed extraction.
    pub failed: Option<String>,
}

/// A record, opened as far as its keys exist.
#[derive(Clone, PartialEq, Debug)]
pub enum Opened {
    Identity(Identity),
    Turn {
        meta: InputMeta,
        turn: Box<Turn>,
    },
    Candidates {
        meta: InputMeta,
        set: Box<CandidateSet>,
    },
    Command {
        meta: InputMeta,
        command: Box<CommandRecord>,
    },
    /// An input whose key is destroyed: its header is all that is left.
    Erased {
        meta: InputMeta,
    },
    Parked(Parked),
    Unparked(Unparked),
    Receipt(ErasureReceipt),
    InboxRead(InboxRead),
    /// Without a vector when the memory's key is destroyed.
    Embedding {
        owner: OwnerKey,
        memory_id: MemoryId,
        model: ModelIdentity,
        vector: Option<Vec<f32>>,
    },
    Access {
        owner: OwnerKey,
        recall_id: RecallId,
        receipt: Option<Box<RecallReceipt>>,
    },
    WriterStarted {
        writer: [u8; 16],
        at: Timestamp,
        position: Position,
    },
    Decided(Box<OpenedDecided>),
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OpenedDecided {
    pub decided: Decided,
    /// BLAKE3 of the whole payload: what the owner's next record points to.
    pub hash: Hash,
    pub position: Position,
    pub appended_at: Timestamp,
}

/// A decision's place in the owner's chain, before it is sealed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DecidedDraft {
    pub owner: OwnerKey,
    pub owner_seq: u64,
    pub prev_hash: Hash,
    pub writer_epoch: u64,
    pub key_epoch: u32,
    pub cause: Cause,
    /// `None` when the cause's key was destroyed: the record then has no detail.
    pub source_key: Option<KeyId>,
    pub decided_at: Timestamp,
    /// The owner in words, sealed with the detail.
    pub owner_words: String,
}

/// The keys of one decision, durable in the keyring: made by [`Codec::prepare_decided`].
#[derive(Clone, Debug)]
pub struct PreparedKeys {
    source: Option<(KeyId, DataKey)>,
    /// One for each transition that is sealed, in order.
    transitions: Vec<(KeyId, DataKey)>,
}

/// A vector to be recorded.
#[derive(Clone, PartialEq, Debug)]
pub struct EmbeddingDraft {
    pub owner: OwnerKey,
    pub epoch: u32,
    pub memory_id: MemoryId,
    /// The key of the transition that asserted the memory.
    pub key_id: KeyId,
    pub model: ModelIdentity,
    pub vector: Vec<f32>,
}

#[derive(Debug, thiserror::Error, Clone)]
pub enum CodecError {
    /// Reading again cannot help, and skipping would falsify the audit: park the owner.
    #[error("a record cannot be read: {reason}")]
    Undecodable {
        position: Option<Position>,
        /// `undecodable`, `unknown_schema`, `too_large`, `tampered` (the seal does not fit),
        /// `wrong_owner` and `misplaced` (copied from elsewhere), `mislabelled`, `no_body`,
        /// `unsealed`.
        reason: &'static str,
    },
    #[error(transparent)]
    Keyring(#[from] KeyringError),
    /// The value is beyond what a record can hold.
    #[error("a record cannot be written")]
    Unwritable(#[from] WireError),
    #[error("a body cannot be sealed")]
    Unsealable,
    /// The keys at hand are not those of the decision.
    #[error("the keys of a decision were not prepared")]
    Unprepared,
    #[error("the machine gives no random bytes")]
    NoRandomness,
}

impl CodecError {
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Keyring(error) => error.is_retryable(),
            Self::NoRandomness => true,
            Self::Undecodable { .. }
            | Self::Unwritable(_)
            | Self::Unsealable
            | Self::Unprepared => false,
        }
    }

    /// Stable code, for parked records and metrics.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Undecodable { reason, .. } => reason,
            Self::Keyring(KeyringError::Unavailable { .. }) => "keyring_unavailable",
            Self::Keyring(KeyringError::Destroyed) => "key_destroyed",
            Self::Keyring(KeyringError::Unknown) => "key_unknown",
            Self::Keyring(
                KeyringError::WrongMasterKey
                | KeyringError::InUse { .. }
                | KeyringError::Unusable { .. },
            ) => "keyring_unusable",
            Self::Unwritable(error) => error.code(),
            Self::Unsealable => "unsealable",
            Self::Unprepared => "unprepared",
            Self::NoRandomness => "no_randomness",
        }
    }
}
