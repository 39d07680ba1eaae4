//! Where the keys live that make the log readable, and where they are destroyed.
//!
//! What every keyring does alike, wherever it stores its keys:
//! - [`master_key`]: the key that opens all others
//! - [`wrapping`]: how one key is hidden under another
//! - [`plan`]: which keys a destruction takes and which it must save

pub mod master_key;
pub mod plan;
pub mod wrapping;

use std::fmt;
use std::sync::Arc;

use anamnesis_domain::ids::{ErasureId, EventTag, IdKey, KeyId, MemoryId, OwnerKey, SourceTag};
use anamnesis_domain::input::Target;
use anamnesis_domain::time::Timestamp;
use async_trait::async_trait;
use zeroize::Zeroizing;

/// A data key, in clear, in memory only.
#[derive(Clone)]
pub struct DataKey(Zeroizing<[u8; 32]>);

impl DataKey {
    pub fn new(bytes: [u8; 32]) -> Self {
        Self(Zeroizing::new(bytes))
    }

    pub fn bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

impl fmt::Debug for DataKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("DataKey(…)")
    }
}

/// A key to be made. The keyring draws the bytes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NewKey {
    pub id: KeyId,
    pub owner: OwnerKey,
    /// The owner's key epoch; its key wraps the source keys.
    pub epoch: u32,
    /// The source's key that wraps this one; `None` for a source's own key, wrapped by the owner's.
    pub parent: Option<KeyId>,
    pub event: EventTag,
    pub source: SourceTag,
    /// The memory that the sealed transition is about.
    pub memory: Option<MemoryId>,
    /// Quarantine keys expire.
    pub expires_at: Option<Timestamp>,
}

#[derive(Clone, Debug)]
pub enum KeyState {
    Open(DataKey),
    /// Destroyed for good, by an erasure or by expiry.
    Destroyed,
    /// Never seen: the keyring does not belong to this log, or was restored from an older copy.
    Unknown,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct EpochState {
    /// The epoch that new keys are made in; `None` when none is open.
    pub open: Option<u32>,
    /// Every epoch up to and including this one is closed. Epochs count from 1.
    pub closed_through: u32,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Destroyed {
    /// Keys that this call, or an earlier one for the same erasure, made unreadable.
    pub keys: u64,
}

#[derive(Debug, thiserror::Error, Clone)]
pub enum KeyringError {
    #[error("the keyring is unavailable: {reason}")]
    Unavailable { reason: String },
    /// Late sealing: the source or the epoch has been erased meanwhile.
    #[error("the key or its epoch is destroyed")]
    Destroyed,
    #[error(
        "the keyring does not hold a key that the log names; it belongs to another log or is older"
    )]
    Unknown,
    #[error("the master key does not open this keyring")]
    WrongMasterKey,
    #[error("{what} is in use by another process")]
    InUse { what: String },
    #[error("{what}")]
    Unusable { what: String },
}

impl KeyringError {
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Unavailable { .. } => true,
            Self::Destroyed
            | Self::Unknown
            | Self::WrongMasterKey
            | Self::InUse { .. }
            | Self::Unusable { .. } => false,
        }
    }
}

/// Keys of owners, sources and transitions.
///
/// The master key wraps an owner's key (one per epoch), which wraps source keys (one per conversation
/// record or command), which wrap transition keys. Only wrapped keys are stored.
///
/// Contract, checked by [`crate::conformance::keyring`]:
/// - the site key (`id_key`) is drawn once and never changes;
/// - `create` returns when the keys are durable; an id that exists comes back with its first key, so a
///   repeat after a lost answer seals under the same key;
/// - `create` in a closed epoch, or below a destroyed parent, is [`KeyringError::Destroyed`] and makes
///   nothing;
/// - `get` answers in the order asked;
/// - `destroy` returns when the key bytes are gone from the store's files as far as the store can do
///   it (`secure_delete`); a repeat answers the same count; other owners' keys are untouched;
/// - `destroy(Memories)` destroys the transition keys of these memories **and** the source keys of the
///   events behind them (the sentence must not stay readable in the conversation), after re-wrapping
///   what else was derived from these events under the owner's key;
/// - `destroy(Message)` and `destroy(Source)` destroy every key of that event or source;
/// - `destroy(Owner)` closes the epoch: every key of the owner is gone and `create` in it is refused;
///   `open_epoch` then starts the next epoch;
/// - `destroy_expired` destroys keys whose `expires_at` is not after `now`.
#[async_trait]
pub trait Keyring: Send + Sync {
    fn id_key(&self) -> &IdKey;

    async fn epoch(&self, owner: OwnerKey) -> Result<EpochState, KeyringError>;

    /// The open epoch of the owner; makes the next one when none is open.
    async fn open_epoch(&self, owner: OwnerKey) -> Result<u32, KeyringError>;

    async fn create(&self, keys: &[NewKey]) -> Result<Vec<DataKey>, KeyringError>;

    async fn get(&self, ids: &[KeyId]) -> Result<Vec<KeyState>, KeyringError>;

    /// Makes everything of `target` unreadable for ever.
    async fn destroy(
        &self,
        owner: OwnerKey,
        target: &Target,
        erasure: ErasureId,
    ) -> Result<Destroyed, KeyringError>;

    /// Destroys keys that have expired; gives how many.
    async fn destroy_expired(&self, now: Timestamp) -> Result<u64, KeyringError>;

    /// Moves a quarantined event's key to no expiry: it was released.
    async fn keep(&self, ids: &[KeyId]) -> Result<(), KeyringError>;
}

pub type Keys = Arc<dyn Keyring>;
