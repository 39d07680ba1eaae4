//! How is a data key opened? Down the chain: the master key opens the owner's key, that one a source's
//! key, that one a transition's key.

use std::sync::{Mutex, PoisonError};

use anamnesis_domain::ids::{KeyId, OwnerKey};
use anamnesis_pipeline::keyring::wrapping::{self as wrap, Key, Purpose};
use anamnesis_pipeline::keyring::{DataKey, EpochState, KeyringError};
use rusqlite::{Connection, OptionalExtension as _, params};

use super::cache::{Cache, Known, Learned, OpenEpoch};
use super::unavailable;

/// Keys above a key. The contract has two; more is a loop in a damaged file.
const DEPTH_MAX: u32 = 8;

pub(super) enum Opened {
    Open(Known),
    Destroyed,
    Unknown,
}

/// Opens keys over one connection and remembers what it opened. Whoever owns the connection decides
/// when [`Opener::learned`] goes into the cache.
pub(super) struct Opener<'a> {
    pub(super) connection: &'a Connection,
    pub(super) cache: &'a Mutex<Cache>,
    pub(super) wrapping: &'a Key,
    /// What an uncommitted transaction knows already.
    pub(super) before: Option<&'a Learned>,
    pub(super) learned: &'a mut Learned,
}

struct Row {
    owner: OwnerKey,
    epoch: u32,
    wrapped_by: Option<KeyId>,
    is_destroyed: bool,
    wrapped: Vec<u8>,
}

impl Opener<'_> {
    pub(super) fn open(&mut self, id: KeyId) -> Result<Opened, KeyringError> {
        self.open_below(id, 0)
    }

    fn open_below(&mut self, id: KeyId, depth: u32) -> Result<Opened, KeyringError> {
        let before = self.before.and_then(|before| before.keys.get(&id));
        if let Some(known) = self.learned.keys.get(&id).or(before) {
            return Ok(Opened::Open(known.clone()));
        }
        let cached = self
            .cache
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .key(&id);
        if let Some(known) = cached {
            return Ok(Opened::Open(known));
        }
        let Some(row) = self.row(id)? else {
            return Ok(Opened::Unknown);
        };
        if row.is_destroyed {
            return Ok(Opened::Destroyed);
        }
        let damaged = || KeyringError::Unusable {
            what: format!("{id} is damaged in the keyring: what wraps it does not open it"),
        };
        let outer = match row.wrapped_by {
            None => self.epoch_key(row.owner, row.epoch)?.ok_or_else(damaged)?,
            Some(_) if depth >= DEPTH_MAX => return Err(damaged()),
            Some(above) => match self.open_below(above, depth + 1)? {
                Opened::Open(above) => Key::new(*above.key.bytes()),
                Opened::Destroyed | Opened::Unknown => return Err(damaged()),
            },
        };
        let purpose = Purpose::Data(row.owner, id);
        let key = wrap::unwrap(&outer, &row.wrapped, &purpose).ok_or_else(damaged)?;
        let known = Known {
            owner: row.owner,
            key: DataKey::new(*key),
        };
        self.learned.keys.insert(id, known.clone());
        Ok(Opened::Open(known))
    }

    fn row(&self, id: KeyId) -> Result<Option<Row>, KeyringError> {
        let select = || {
            let mut select = self.connection.prepare_cached(
                "SELECT owner, epoch, wrapped_by, destroyed_by IS NOT NULL, wrapped
                 FROM keys JOIN secrets ON n = secret WHERE id = ?1",
            )?;
            let read = |row: &rusqlite::Row<'_>| {
                Ok(Row {
                    owner: OwnerKey::from_bytes(row.get(0)?),
                    epoch: row.get(1)?,
                    wrapped_by: row.get::<_, Option<[u8; 16]>>(2)?.map(KeyId::from_bytes),
                    is_destroyed: row.get(3)?,
                    wrapped: row.get(4)?,
                })
            };
            select.query_row([id.bytes()], read).optional()
        };
        select().map_err(|error| unavailable(&error))
    }

    /// The key of an owner's open epoch; `None` when it is closed or was never opened.
    pub(super) fn epoch_key(
        &mut self,
        owner: OwnerKey,
        epoch: u32,
    ) -> Result<Option<Key>, KeyringError> {
        let before = self.before.and_then(|before| before.epochs.get(&owner));
        let known = self
            .learned
            .epochs
            .get(&owner)
            .or(before)
            .cloned()
            .or_else(|| {
                self.cache
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .epoch(&owner)
            });
        if let Some(open) = known.filter(|open| open.epoch == epoch) {
            return Ok(Some(open.key));
        }
        let select = || {
            let mut select = self.connection.prepare_cached(
                "SELECT wrapped FROM epochs JOIN secrets ON n = secret
                 WHERE owner = ?1 AND epoch = ?2 AND is_closed = 0",
            )?;
            let read = |row: &rusqlite::Row<'_>| row.get::<_, Vec<u8>>(0);
            select
                .query_row(params![owner.bytes(), epoch], read)
                .optional()
        };
        let Some(wrapped) = select().map_err(|error| unavailable(&error))? else {
            return Ok(None);
        };
        let key = wrap::unwrap(self.wrapping, &wrapped, &Purpose::Epoch(owner, epoch));
        let key = key.ok_or_else(|| KeyringError::Unusable {
            what: format!("the key of epoch {epoch} of {owner} is damaged in the keyring"),
        })?;
        self.learned.epochs.insert(
            owner,
            OpenEpoch {
                epoch,
                key: key.clone(),
            },
        );
        Ok(Some(key))
    }

    pub(super) fn epoch_state(&self, owner: OwnerKey) -> Result<EpochState, KeyringError> {
        epoch_state(self.connection, owner).map_err(|error| unavailable(&error))
    }
}

pub(super) fn epoch_state(
    connection: &Connection,
    owner: OwnerKey,
) -> rusqlite::Result<EpochState> {
    let mut select = connection.prepare_cached(
        "SELECT max(epoch) FILTER (WHERE is_closed = 0), max(epoch) FILTER (WHERE is_closed = 1)
         FROM epochs WHERE owner = ?1",
    )?;
    select.query_row([owner.bytes()], |row| {
        let closed_through: Option<u32> = row.get(1)?;
        Ok(EpochState {
            open: row.get(0)?,
            closed_through: closed_through.unwrap_or(0),
        })
    })
}
