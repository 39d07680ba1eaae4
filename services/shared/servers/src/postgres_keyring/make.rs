//! How are epochs opened and keys made, so that a destruction in another process either sees them or
//! keeps them from being made?
//!
//! A maker shares the owner's row until its keys are committed, a destruction holds it alone: so what
//! the maker read of the epoch and of the keys above stays true until then.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use anamnesis_domain::ids::{KeyId, MemoryId, OwnerKey};
use anamnesis_domain::time::Timestamp;
use anamnesis_pipeline::keyring::wrapping::{self, Key, Purpose, Wrapped};
use anamnesis_pipeline::keyring::{DataKey, EpochState, KeyringError, NewKey};
use async_trait::async_trait;
use tokio_postgres::Row;

use super::cache::Known;
use super::call::{Call, bytes_of, column, epoch, name, sixteen, together};
use super::failed::{Failed, no_randomness, unusable};
use super::opener::{Opened, Opener};
use super::pool::Session;
use super::read::{epoch_state, opener};
use super::schema::part;
use super::statements::{DATA, OWNER};

pub(super) struct Create<'a> {
    pub(super) keys: &'a [NewKey],
    pub(super) wrapping: &'a Key,
}

pub(super) struct Created {
    /// In the order asked.
    pub(super) keys: Vec<DataKey>,
    pub(super) opened: HashMap<KeyId, Known>,
}

#[async_trait]
impl Call for Create<'_> {
    type Answer = Created;

    async fn attempt(&self, session: &Session) -> Result<Created, Failed> {
        let Session { client, statements } = session;
        let owners: BTreeSet<OwnerKey> = self.keys.iter().map(|new| new.owner).collect();
        let owners: Vec<&[u8]> = owners.iter().map(|owner| &owner.bytes()[..]).collect();
        let wanted = self.keys.iter().flat_map(|new| [Some(new.id), new.parent]);
        let wanted: Vec<KeyId> = wanted.flatten().collect();
        // One round trip: the statements are sent at once and carried out one after the other.
        let ((), _, owners, rows) = together!(
            client.batch_execute("BEGIN"),
            client.query(&statements.share_owners, &[&owners]),
            client.query(&statements.owners, &[&owners]),
            client.query(&statements.chain, &[&bytes_of(&wanted)]),
        )
        .map_err(Failed::first)?;
        let mut opener = opener(&rows, self.wrapping)?;
        let epochs = epochs(&owners, &mut opener)?;
        let mut made = BTreeMap::new();
        let mut keys = Vec::with_capacity(self.keys.len());
        for new in self.keys {
            keys.push(make(new, &mut opener, &epochs, &mut made)?);
        }
        let opened = opener.into_opened();
        if made.is_empty() {
            client.batch_execute("COMMIT").await?;
            return Ok(Created { keys, opened });
        }
        insert(session, &made).await?;
        Ok(Created { keys, opened })
    }
}

/// What the rows of the statement `owners` say.
fn epochs(
    rows: &[Row],
    opener: &mut Opener<'_>,
) -> Result<HashMap<OwnerKey, EpochState>, KeyringError> {
    let mut epochs = HashMap::new();
    for row in rows {
        let owner = OwnerKey::from_bytes(sixteen(row, 0)?);
        let (number, is_open) = (epoch(row, 1)?, column(row, 2)?);
        epochs.insert(owner, epoch_state(number, is_open));
        if let Some(wrapped) = column(row, 3)? {
            opener.add_epoch(owner, number, wrapped);
        }
    }
    Ok(epochs)
}

/// The key of `new`, which may be there already.
fn make<'a>(
    new: &'a NewKey,
    opener: &mut Opener<'_>,
    epochs: &HashMap<OwnerKey, EpochState>,
    made: &mut BTreeMap<KeyId, (&'a NewKey, Wrapped)>,
) -> Result<DataKey, KeyringError> {
    match opener.open(new.id)? {
        Opened::Destroyed => return Err(KeyringError::Destroyed),
        Opened::Unknown => (),
        Opened::Open(known) if known.owner != new.owner => {
            return Err(unusable("a key id is asked for by two owners"));
        }
        Opened::Open(known) => return Ok(known.key),
    }
    let state = epochs.get(&new.owner).copied().unwrap_or_default();
    if new.epoch <= state.closed_through {
        return Err(KeyringError::Destroyed);
    }
    if state.open != Some(new.epoch) {
        return Err(KeyringError::Unknown);
    }
    let outer = match new.parent {
        None => opener.epoch_key(new.owner, new.epoch)?.ok_or_else(|| {
            unusable(&format!(
                "the key of epoch {} of {} is missing in the keyring",
                new.epoch, new.owner
            ))
        })?,
        Some(parent) => match opener.open(parent)? {
            Opened::Open(parent) if parent.owner != new.owner => {
                return Err(unusable("a key and its parent belong to two owners"));
            }
            Opened::Open(parent) => Key::new(*parent.key.bytes()),
            Opened::Destroyed => return Err(KeyringError::Destroyed),
            Opened::Unknown => return Err(KeyringError::Unknown),
        },
    };
    let key = wrapping::draw().map_err(no_randomness)?;
    let purpose = Purpose::Data(new.owner, new.id);
    let wrapped = wrapping::wrap(&outer, &key, &purpose).map_err(no_randomness)?;
    made.insert(new.id, (new, wrapped));
    let known = Known {
        owner: new.owner,
        key: DataKey::new(*key),
    };
    opener.add_made(new.id, known.clone());
    Ok(known.key)
}

/// Sorted by id, so that two makers of the same keys do not wait for each other in a ring.
async fn insert(
    session: &Session,
    made: &BTreeMap<KeyId, (&NewKey, Wrapped)>,
) -> Result<(), tokio_postgres::Error> {
    let Session { client, statements } = session;
    let news = || made.values().map(|(new, _)| *new);
    let ids: Vec<&[u8]> = news().map(|new| &new.id.bytes()[..]).collect();
    let owners: Vec<&[u8]> = news().map(|new| &new.owner.bytes()[..]).collect();
    let parts: Vec<i16> = news().map(|new| part(new.owner)).collect();
    let epochs: Vec<i64> = news().map(|new| i64::from(new.epoch)).collect();
    let parents: Vec<Option<&[u8]>> = news()
        .map(|new| new.parent.as_ref().map(|parent| &parent.bytes()[..]))
        .collect();
    let are_source_keys: Vec<bool> = news().map(|new| new.parent.is_none()).collect();
    let events: Vec<&[u8]> = news().map(|new| &new.event.bytes()[..]).collect();
    let sources: Vec<&[u8]> = news().map(|new| &new.source.bytes()[..]).collect();
    let memory = |new: &'_ NewKey| new.memory.as_ref().map(MemoryId::bytes).copied();
    let memories: Vec<Option<[u8; 16]>> = news().map(memory).collect();
    let memories: Vec<Option<&[u8]>> = memories
        .iter()
        .map(|memory| memory.as_ref().map(|memory| &memory[..]))
        .collect();
    let expiries: Vec<Option<i64>> = news()
        .map(|new| new.expires_at.map(Timestamp::millis))
        .collect();

    let mut secrets: Vec<(i16, Vec<u8>, &[u8])> = made
        .values()
        .map(|(new, wrapped)| {
            let name = name(DATA, new.id.bytes());
            (part(new.owner), name, &wrapped[..])
        })
        .collect();
    secrets.sort_unstable();
    let secret_parts: Vec<i16> = secrets.iter().map(|secret| secret.0).collect();
    let names: Vec<&[u8]> = secrets.iter().map(|secret| &secret.1[..]).collect();
    let wrapped: Vec<&[u8]> = secrets.iter().map(|secret| secret.2).collect();

    // An insertion that fails makes the commit a rollback.
    together!(
        client.execute(
            &statements.insert_keys,
            &[
                &ids,
                &owners,
                &parts,
                &epochs,
                &parents,
                &are_source_keys,
                &events,
                &sources,
                &memories,
                &expiries,
            ],
        ),
        client.execute(
            &statements.insert_secrets,
            &[&secret_parts, &names, &wrapped]
        ),
        client.batch_execute("COMMIT"),
    )?;
    Ok(())
}

pub(super) struct OpenEpoch<'a> {
    pub(super) owner: OwnerKey,
    pub(super) wrapping: &'a Key,
}

#[async_trait]
impl Call for OpenEpoch<'_> {
    type Answer = u32;

    async fn attempt(&self, session: &Session) -> Result<u32, Failed> {
        let Session { client, statements } = session;
        let owner = &self.owner.bytes()[..];
        let row = client
            .query_opt(&statements.epoch, &[&owner])
            .await
            .map_err(Failed::first)?;
        if let Some(row) = row
            && column(&row, 1)?
        {
            return Ok(epoch(&row, 0)?);
        }
        let part = part(self.owner);
        let ((), _, rows) = together!(
            client.batch_execute("BEGIN"),
            client.execute(&statements.add_owner, &[&owner, &part]),
            client.query(&statements.take_owners, &[&[owner].as_slice()]),
        )?;
        let row = rows.first().ok_or_else(|| unusable("an owner vanished"))?;
        let (last, is_open): (u32, bool) = (epoch(row, 1)?, column(row, 2)?);
        if is_open {
            client.batch_execute("COMMIT").await?;
            return Ok(last);
        }
        let next = last + 1;
        let key = wrapping::draw().map_err(no_randomness)?;
        let wrapped = wrapping::wrap(self.wrapping, &key, &Purpose::Epoch(self.owner, next))
            .map_err(no_randomness)?;
        together!(
            client.execute(&statements.set_epoch, &[&owner, &i64::from(next), &true]),
            client.execute(
                &statements.insert_secrets,
                &[
                    &[part].as_slice(),
                    &[name(OWNER, self.owner.bytes())].as_slice(),
                    &[&wrapped[..]].as_slice(),
                ]
            ),
            client.batch_execute("COMMIT"),
        )?;
        Ok(next)
    }
}

/// Takes the expiry from keys.
pub(super) struct Keep<'a>(pub(super) &'a [KeyId]);

#[async_trait]
impl Call for Keep<'_> {
    type Answer = ();

    async fn attempt(&self, session: &Session) -> Result<(), Failed> {
        let Session { client, statements } = session;
        let ids = bytes_of(self.0);
        let ((), _, rows) = together!(
            client.batch_execute("BEGIN"),
            client.query(&statements.take_owners_of, &[&ids]),
            client.query(&statements.states, &[&ids]),
        )
        .map_err(Failed::first)?;
        let mut are_destroyed: HashMap<KeyId, bool> = HashMap::new();
        for row in &rows {
            are_destroyed.insert(KeyId::from_bytes(sixteen(row, 0)?), column(row, 1)?);
        }
        for id in self.0 {
            match are_destroyed.get(id) {
                None => return Err(KeyringError::Unknown.into()),
                Some(true) => return Err(KeyringError::Destroyed.into()),
                Some(false) => (),
            }
        }
        together!(
            client.execute(&statements.keep, &[&ids]),
            client.batch_execute("COMMIT"),
        )?;
        Ok(())
    }
}
