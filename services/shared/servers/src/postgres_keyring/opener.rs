//! How is a data key opened? Down the chain: the master key opens the owner's key, that one a source's
//! key, that one a transition's key. Over rows that one statement read, so that they fit together.

use std::collections::HashMap;

use anamnesis_domain::ids::{KeyId, OwnerKey};
use anamnesis_pipeline::keyring::wrapping::{self, Key, Purpose};
use anamnesis_pipeline::keyring::{DataKey, KeyringError};

use super::cache::Known;
use super::failed::unusable;

/// Keys above a key. The contract has two; more is a loop in damaged tables.
const DEPTH_MAX: u32 = 8;

pub(super) enum Opened {
    Open(Known),
    Destroyed,
    Unknown,
}

/// A key as it is stored.
pub(super) struct Row {
    pub(super) id: KeyId,
    pub(super) owner: OwnerKey,
    pub(super) epoch: u32,
    pub(super) wrapped_by: Option<KeyId>,
    pub(super) is_destroyed: bool,
    pub(super) wrapped: Option<Vec<u8>>,
}

pub(super) struct Opener<'a> {
    wrapping: &'a Key,
    rows: HashMap<KeyId, Row>,
    /// The owners' keys as they are stored, and of which epoch each is.
    wrapped_epochs: HashMap<OwnerKey, (u32, Vec<u8>)>,
    epoch_keys: HashMap<OwnerKey, Key>,
    opened: HashMap<KeyId, Known>,
}

impl<'a> Opener<'a> {
    pub(super) fn new(wrapping: &'a Key) -> Self {
        Self {
            wrapping,
            rows: HashMap::new(),
            wrapped_epochs: HashMap::new(),
            epoch_keys: HashMap::new(),
            opened: HashMap::new(),
        }
    }

    pub(super) fn add_row(&mut self, row: Row) {
        self.rows.insert(row.id, row);
    }

    pub(super) fn add_epoch(&mut self, owner: OwnerKey, epoch: u32, wrapped: Vec<u8>) {
        self.wrapped_epochs.insert(owner, (epoch, wrapped));
    }

    /// A key that is being made counts as open from now on.
    pub(super) fn add_made(&mut self, id: KeyId, known: Known) {
        self.opened.insert(id, known);
    }

    pub(super) fn open(&mut self, id: KeyId) -> Result<Opened, KeyringError> {
        self.open_below(id, 0)
    }

    fn open_below(&mut self, id: KeyId, depth: u32) -> Result<Opened, KeyringError> {
        if let Some(known) = self.opened.get(&id) {
            return Ok(Opened::Open(known.clone()));
        }
        let Some(row) = self.rows.get(&id) else {
            return Ok(Opened::Unknown);
        };
        if row.is_destroyed {
            return Ok(Opened::Destroyed);
        }
        let damaged = || {
            unusable(&format!(
                "{id} is damaged in the keyring: what wraps it does not open it"
            ))
        };
        let (owner, epoch, wrapped_by) = (row.owner, row.epoch, row.wrapped_by);
        let wrapped = row.wrapped.clone().ok_or_else(damaged)?;
        let outer = match wrapped_by {
            None => self.epoch_key(owner, epoch)?.ok_or_else(damaged)?,
            Some(_) if depth >= DEPTH_MAX => return Err(damaged()),
            Some(above) => match self.open_below(above, depth + 1)? {
                Opened::Open(above) => Key::new(*above.key.bytes()),
                Opened::Destroyed | Opened::Unknown => return Err(damaged()),
            },
        };
        let purpose = Purpose::Data(owner, id);
        let key = wrapping::unwrap(&outer, &wrapped, &purpose).ok_or_else(damaged)?;
        let known = Known {
            owner,
            key: DataKey::new(*key),
        };
        self.opened.insert(id, known.clone());
        Ok(Opened::Open(known))
    }

    /// The key of an owner's open epoch; `None` when it is closed or was never opened.
    pub(super) fn epoch_key(
        &mut self,
        owner: OwnerKey,
        epoch: u32,
    ) -> Result<Option<Key>, KeyringError> {
        let Some((open, wrapped)) = self.wrapped_epochs.get(&owner) else {
            return Ok(None);
        };
        if *open != epoch {
            return Ok(None);
        }
        if let Some(key) = self.epoch_keys.get(&owner) {
            return Ok(Some(key.clone()));
        }
        let purpose = Purpose::Epoch(owner, epoch);
        let key = wrapping::unwrap(self.wrapping, wrapped, &purpose).ok_or_else(|| {
            unusable(&format!(
                "the key of epoch {epoch} of {owner} is damaged in the keyring"
            ))
        })?;
        self.epoch_keys.insert(owner, key.clone());
        Ok(Some(key))
    }

    pub(super) fn into_opened(self) -> HashMap<KeyId, Known> {
        self.opened
    }
}
