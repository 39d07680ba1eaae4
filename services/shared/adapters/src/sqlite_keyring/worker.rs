//! Who changes the keyring? One thread: it makes keys for whoever is queued in one transaction, and
//! destroys keys one destruction at a time, with every reader kept out.

use std::sync::mpsc::Receiver;
use std::sync::{Arc, PoisonError};

use anamnesis_domain::ids::{ErasureId, EventTag, KeyId, MemoryId, OwnerKey, SourceTag};
use anamnesis_domain::input::Target;
use anamnesis_domain::time::Timestamp;
use anamnesis_pipeline::keyring::plan::{OpenKey, What, plan};
use anamnesis_pipeline::keyring::wrapping::{self as wrap, Purpose, WRAPPED_BYTES, Wrapped};
use anamnesis_pipeline::keyring::{DataKey, Destroyed, KeyringError, NewKey};
use rusqlite::{Connection, params};
use tokio::sync::oneshot;

use super::cache::{Known, Learned, OpenEpoch};
use super::opener::{Opened, Opener};
use super::{Shared, file, unavailable};

/// Requests in one transaction. Each is a handful of keys, or a batch of some hundreds.
const GROUP_MAX: usize = 256;

/// What expiry leaves in the place of an erasure.
const EXPIRED: ErasureId = ErasureId::from_bytes([0; 16]);

type Answer<T> = oneshot::Sender<Result<T, KeyringError>>;

pub(super) enum Job {
    Create(Vec<NewKey>, Answer<Vec<DataKey>>),
    OpenEpoch(OwnerKey, Answer<u32>),
    Keep(Vec<KeyId>, Answer<()>),
    Destroy(OwnerKey, Target, ErasureId, Answer<Destroyed>),
    DestroyExpired(Timestamp, Answer<u64>),
}

/// A job of a group, carried out and not yet committed.
enum Done {
    Create(Result<Vec<DataKey>, KeyringError>, Answer<Vec<DataKey>>),
    OpenEpoch(Result<u32, KeyringError>, Answer<u32>),
    Keep(Result<(), KeyringError>, Answer<()>),
}

impl Done {
    /// Answers now that the outcome of the transaction is known. A caller that has gone is no error:
    /// what was made stays.
    fn answer(self, broken: Option<&KeyringError>) {
        fn send<T>(result: Result<T, KeyringError>, broken: Option<&KeyringError>, to: Answer<T>) {
            let _ = to.send(broken.map_or(result, |error| Err(error.clone())));
        }
        match self {
            Self::Create(made, to) => send(made, broken, to),
            Self::OpenEpoch(opened, to) => send(opened, broken, to),
            Self::Keep(kept, to) => send(kept, broken, to),
        }
    }
}

/// Jobs that share a transaction.
#[derive(Default)]
struct Group {
    done: Vec<Done>,
    learned: Learned,
    /// Why the transaction as a whole cannot be committed.
    broken: Option<KeyringError>,
}

impl Group {
    fn note(&mut self, result: rusqlite::Result<()>) {
        if let Err(error) = result {
            self.broken.get_or_insert(unavailable(&error));
        }
    }
}

pub(super) struct Worker {
    pub(super) connection: Connection,
    pub(super) shared: Arc<Shared>,
    pub(super) next_secret: i64,
    /// A destruction was committed and its old pages may still be in the write-ahead log.
    pub(super) needs_checkpoint: bool,
}

impl Worker {
    /// Ends when the last sender is gone and the queue is empty.
    pub(super) fn run(mut self, queue: &Receiver<Job>) {
        let mut next = queue.recv().ok();
        while let Some(job) = next.take() {
            // Whoever asked may have given up; the work is done all the same.
            match job {
                Job::Destroy(owner, target, erasure, answer) => {
                    let _ = answer.send(self.destroy(owner, &target, erasure));
                }
                Job::DestroyExpired(now, answer) => {
                    let _ = answer.send(self.destroy_expired(now));
                }
                job @ (Job::Create(..) | Job::OpenEpoch(..) | Job::Keep(..)) => {
                    next = self.make_group(job, queue);
                }
            }
            if next.is_none() {
                next = queue.recv().ok();
            }
        }
    }

    /// Carries out what is queued in one transaction; gives the first job that is not part of it.
    fn make_group(&mut self, first: Job, queue: &Receiver<Job>) -> Option<Job> {
        let mut group = Group::default();
        let mut next = Some(first);
        group.note(self.connection.execute_batch("BEGIN IMMEDIATE"));
        while let Some(job) = next.take() {
            match job {
                Job::Create(keys, answer) => {
                    let made = self.apart(&mut group, |worker, group, own| {
                        keys.iter()
                            .map(|new| worker.create(new, group, own))
                            .collect()
                    });
                    group.done.push(Done::Create(made, answer));
                }
                Job::OpenEpoch(owner, answer) => {
                    let opened =
                        self.apart(&mut group, |worker, _, own| worker.open_epoch(owner, own));
                    group.done.push(Done::OpenEpoch(opened, answer));
                }
                Job::Keep(ids, answer) => {
                    let kept = self.apart(&mut group, |worker, _, _| worker.keep(&ids));
                    group.done.push(Done::Keep(kept, answer));
                }
                other @ (Job::Destroy(..) | Job::DestroyExpired(..)) => {
                    next = Some(other);
                    break;
                }
            }
            if group.done.len() >= GROUP_MAX || group.broken.is_some() {
                break;
            }
            next = queue.try_recv().ok();
        }
        if group.broken.is_none() {
            group.note(self.connection.execute_batch("COMMIT"));
        }
        if group.broken.is_none() {
            self.shared.cache().absorb(group.learned);
        } else {
            self.roll_back();
        }
        for one in group.done {
            one.answer(group.broken.as_ref());
        }
        next
    }

    /// One job of a group: if it is refused, nothing of it remains and the others go on.
    fn apart<T>(
        &mut self,
        group: &mut Group,
        work: impl FnOnce(&mut Self, &Learned, &mut Learned) -> Result<T, KeyringError>,
    ) -> Result<T, KeyringError> {
        if let Some(broken) = &group.broken {
            return Err(broken.clone());
        }
        group.note(self.connection.execute_batch("SAVEPOINT job"));
        let mut own = Learned::default();
        let answer = work(self, &group.learned, &mut own);
        let end = match &answer {
            Ok(_) => "RELEASE job",
            Err(_) => "ROLLBACK TO job; RELEASE job",
        };
        // Fails when an error such as a full disk has undone the whole transaction.
        group.note(self.connection.execute_batch(end));
        if answer.is_ok() {
            group.learned.absorb(own);
        }
        answer
    }

    /// The key of `new`, which may be there already. `group` is what the transaction knows from
    /// earlier jobs and `own` what this job finds out.
    fn create(
        &mut self,
        new: &NewKey,
        group: &Learned,
        own: &mut Learned,
    ) -> Result<DataKey, KeyringError> {
        let shared = self.shared.clone();
        let mut opener = Opener {
            connection: &self.connection,
            cache: &shared.cache,
            wrapping: &shared.wrapping,
            before: Some(group),
            learned: own,
        };
        match opener.open(new.id)? {
            Opened::Destroyed => return Err(KeyringError::Destroyed),
            Opened::Unknown => (),
            Opened::Open(known) if known.owner != new.owner => {
                return Err(unusable("a key id is asked for by two owners"));
            }
            Opened::Open(known) => return Ok(known.key),
        }
        // A key of the epoch that opens is the key of an open epoch; otherwise the books say why not.
        let Some(epoch_key) = opener.epoch_key(new.owner, new.epoch)? else {
            let is_closed = new.epoch <= opener.epoch_state(new.owner)?.closed_through;
            return Err(if is_closed {
                KeyringError::Destroyed
            } else {
                KeyringError::Unknown
            });
        };
        let outer = match new.parent {
            None => epoch_key,
            Some(parent) => match opener.open(parent)? {
                Opened::Open(parent) if parent.owner != new.owner => {
                    return Err(unusable("a key and its parent belong to two owners"));
                }
                Opened::Open(parent) => wrap::Key::new(*parent.key.bytes()),
                Opened::Destroyed => return Err(KeyringError::Destroyed),
                Opened::Unknown => return Err(KeyringError::Unknown),
            },
        };
        let key = wrap::draw().map_err(no_randomness)?;
        let purpose = Purpose::Data(new.owner, new.id);
        let wrapped = wrap::wrap(&outer, &key, &purpose).map_err(no_randomness)?;
        self.insert(new, &wrapped)
            .map_err(|error| unavailable(&error))?;
        let known = Known {
            owner: new.owner,
            key: DataKey::new(*key),
        };
        own.keys.insert(new.id, known.clone());
        Ok(known.key)
    }

    fn insert(&mut self, new: &NewKey, wrapped: &Wrapped) -> rusqlite::Result<()> {
        let secret = self.insert_secret(wrapped)?;
        let mut insert = self.connection.prepare_cached(
            "INSERT INTO keys VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, NULL)",
        )?;
        insert.execute(params![
            secret,
            new.id.bytes(),
            new.owner.bytes(),
            new.epoch,
            new.parent.as_ref().map(KeyId::bytes),
            new.parent.is_none(),
            new.event.bytes(),
            new.source.bytes(),
            new.memory.as_ref().map(MemoryId::bytes),
            new.expires_at.map(Timestamp::millis),
        ])?;
        Ok(())
    }

    fn insert_secret(&mut self, wrapped: &Wrapped) -> rusqlite::Result<i64> {
        let secret = self.next_secret;
        self.connection
            .prepare_cached("INSERT INTO secrets VALUES (?1, ?2)")?
            .execute(params![secret, wrapped])?;
        // Not taken back with the transaction: numbers only have to rise.
        self.next_secret += 1;
        Ok(secret)
    }

    fn open_epoch(&mut self, owner: OwnerKey, learned: &mut Learned) -> Result<u32, KeyringError> {
        let failed = |error: rusqlite::Error| unavailable(&error);
        let state = super::opener::epoch_state(&self.connection, owner).map_err(failed)?;
        if let Some(open) = state.open {
            return Ok(open);
        }
        let epoch = state.closed_through + 1;
        let key = wrap::draw().map_err(no_randomness)?;
        let wrapped = wrap::wrap(&self.shared.wrapping, &key, &Purpose::Epoch(owner, epoch))
            .map_err(no_randomness)?;
        let secret = self.insert_secret(&wrapped).map_err(failed)?;
        self.connection
            .prepare_cached("INSERT INTO epochs VALUES (?1, ?2, ?3, 0)")
            .and_then(|mut insert| insert.execute(params![owner.bytes(), epoch, secret]))
            .map_err(failed)?;
        learned.epochs.insert(owner, OpenEpoch { epoch, key });
        Ok(epoch)
    }

    fn keep(&self, ids: &[KeyId]) -> Result<(), KeyringError> {
        for id in ids {
            let kept = self
                .connection
                .prepare_cached(
                    "UPDATE keys SET expires_at = NULL WHERE id = ?1 AND destroyed_by IS NULL",
                )
                .and_then(|mut update| update.execute([id.bytes()]))
                .map_err(|error| unavailable(&error))?;
            if kept > 0 {
                continue;
            }
            let is_there = self
                .connection
                .prepare_cached("SELECT 1 FROM keys WHERE id = ?1")
                .and_then(|mut select| select.exists([id.bytes()]))
                .map_err(|error| unavailable(&error))?;
            return Err(if is_there {
                KeyringError::Destroyed
            } else {
                KeyringError::Unknown
            });
        }
        Ok(())
    }

    fn destroy(
        &mut self,
        owner: OwnerKey,
        target: &Target,
        erasure: ErasureId,
    ) -> Result<Destroyed, KeyringError> {
        let named =
            serde_json::to_vec(&(owner, target)).map_err(|error| KeyringError::Unusable {
                what: error.to_string(),
            })?;
        self.destroying(|worker| {
            let mut doomed = Vec::new();
            let failed = |error: rusqlite::Error| unavailable(&error);
            let is_new = worker
                .connection
                .execute(
                    "INSERT OR IGNORE INTO erasures VALUES (?1, ?2)",
                    params![erasure.bytes(), blake3::hash(&named).as_bytes()],
                )
                .map_err(failed)?;
            if is_new > 0 {
                doomed = worker.destroy_keys(owner, &What::Target(target), erasure, None)?;
                if *target == Target::Owner {
                    worker.close_epoch(owner).map_err(failed)?;
                }
            }
            let keys: i64 = worker
                .connection
                .query_row(
                    "SELECT count(*) FROM keys WHERE destroyed_by = ?1",
                    [erasure.bytes()],
                    |row| row.get(0),
                )
                .map_err(failed)?;
            let closed = (*target == Target::Owner).then_some(owner);
            Ok((
                Destroyed {
                    keys: keys.unsigned_abs(),
                },
                doomed,
                closed,
            ))
        })
    }

    fn destroy_expired(&mut self, now: Timestamp) -> Result<u64, KeyringError> {
        let owners = self
            .owners_with_expired(now)
            .map_err(|error| unavailable(&error))?;
        if owners.is_empty() && !self.needs_checkpoint {
            return Ok(0);
        }
        self.destroying(|worker| {
            let mut doomed = Vec::new();
            for owner in owners {
                let keys = worker.destroy_keys(owner, &What::Expired, EXPIRED, Some(now))?;
                doomed.extend(keys);
            }
            Ok((doomed.len() as u64, doomed, None))
        })
    }

    fn owners_with_expired(&self, now: Timestamp) -> rusqlite::Result<Vec<OwnerKey>> {
        let mut select = self.connection.prepare_cached(
            "SELECT DISTINCT owner FROM keys
             WHERE expires_at IS NOT NULL AND expires_at <= ?1 AND destroyed_by IS NULL",
        )?;
        let owners =
            select.query_map([now.millis()], |row| row.get(0).map(OwnerKey::from_bytes))?;
        owners.collect()
    }

    /// Runs a destruction with every reader kept out, so that none of them can put a key back into the
    /// cache, and clears the old pages before it is acknowledged.
    fn destroying<T>(
        &mut self,
        work: impl FnOnce(&Self) -> Result<(T, Vec<KeyId>, Option<OwnerKey>), KeyringError>,
    ) -> Result<T, KeyringError> {
        let shared = self.shared.clone();
        let _no_reader = shared.reader.lock().unwrap_or_else(PoisonError::into_inner);
        let run = |sql| {
            self.connection
                .execute_batch(sql)
                .map_err(|error| unavailable(&error))
        };
        let destroyed = run("BEGIN IMMEDIATE")
            .and_then(|()| work(self))
            .and_then(|answer| {
                run("COMMIT")?;
                Ok(answer)
            });
        // A failed commit may have happened all the same.
        self.needs_checkpoint = true;
        let (answer, ids, closed) = match destroyed {
            Ok(destroyed) => destroyed,
            Err(error) => {
                self.roll_back();
                shared.cache().clear();
                return Err(error);
            }
        };
        {
            let mut cache = shared.cache();
            cache.forget(&ids);
            if let Some(owner) = closed {
                cache.forget_epoch(&owner);
            }
        }
        file::checkpoint(&self.connection)?;
        self.needs_checkpoint = false;
        Ok(answer)
    }

    /// Overwrites keys of one owner; gives which.
    fn destroy_keys(
        &self,
        owner: OwnerKey,
        what: &What<'_>,
        erasure: ErasureId,
        now: Option<Timestamp>,
    ) -> Result<Vec<KeyId>, KeyringError> {
        let failed = |error: rusqlite::Error| unavailable(&error);
        let open = self.open_keys(owner, now).map_err(failed)?;
        let plan = plan(&open, what);
        for id in &plan.rewrapped {
            self.rewrap(*id)?;
        }
        for id in &plan.doomed {
            self.overwrite(*id, erasure).map_err(failed)?;
        }
        Ok(plan.doomed.into_iter().collect())
    }

    fn open_keys(&self, owner: OwnerKey, now: Option<Timestamp>) -> rusqlite::Result<Vec<OpenKey>> {
        let mut select = self.connection.prepare_cached(
            "SELECT id, wrapped_by, is_source_key, event, source, memory,
                    expires_at IS NOT NULL AND expires_at <= ?2
             FROM keys WHERE owner = ?1 AND destroyed_by IS NULL",
        )?;
        let read = |row: &rusqlite::Row<'_>| {
            Ok(OpenKey {
                id: KeyId::from_bytes(row.get(0)?),
                wrapped_by: row.get::<_, Option<[u8; 16]>>(1)?.map(KeyId::from_bytes),
                is_source_key: row.get(2)?,
                event: EventTag::from_bytes(row.get(3)?),
                source: SourceTag::from_bytes(row.get(4)?),
                memory: row.get::<_, Option<[u8; 16]>>(5)?.map(MemoryId::from_bytes),
                is_expired: row.get::<_, Option<bool>>(6)?.unwrap_or(false),
            })
        };
        let keys = select.query_map(params![owner.bytes(), now.map(Timestamp::millis)], read)?;
        keys.collect()
    }

    /// Saves a key from the destruction of what wraps it: the owner's key wraps it from now on.
    fn rewrap(&self, id: KeyId) -> Result<(), KeyringError> {
        let mut opener = Opener {
            connection: &self.connection,
            cache: &self.shared.cache,
            wrapping: &self.shared.wrapping,
            before: None,
            learned: &mut Learned::default(),
        };
        let Opened::Open(known) = opener.open(id)? else {
            return Err(unusable(
                "a key that must outlive another one does not open",
            ));
        };
        let failed = |error: rusqlite::Error| unavailable(&error);
        let (secret, epoch): (i64, u32) = self
            .connection
            .prepare_cached("SELECT secret, epoch FROM keys WHERE id = ?1")
            .and_then(|mut select| {
                select.query_row([id.bytes()], |row| Ok((row.get(0)?, row.get(1)?)))
            })
            .map_err(failed)?;
        let outer = opener
            .epoch_key(known.owner, epoch)?
            .ok_or_else(|| unusable("an open key belongs to a closed epoch"))?;
        let purpose = Purpose::Data(known.owner, id);
        let wrapped = wrap::wrap(&outer, known.key.bytes(), &purpose).map_err(no_randomness)?;
        self.set_secret(secret, &wrapped).map_err(failed)?;
        self.connection
            .prepare_cached("UPDATE keys SET wrapped_by = NULL WHERE secret = ?1")
            .and_then(|mut update| update.execute([secret]))
            .map_err(failed)?;
        Ok(())
    }

    fn overwrite(&self, id: KeyId, erasure: ErasureId) -> rusqlite::Result<()> {
        let secret: i64 = self
            .connection
            .prepare_cached("SELECT secret FROM keys WHERE id = ?1")?
            .query_row([id.bytes()], |row| row.get(0))?;
        self.set_secret(secret, &[0; WRAPPED_BYTES])?;
        self.connection
            .prepare_cached("UPDATE keys SET destroyed_by = ?2 WHERE secret = ?1")?
            .execute(params![secret, erasure.bytes()])?;
        Ok(())
    }

    fn set_secret(&self, secret: i64, wrapped: &Wrapped) -> rusqlite::Result<()> {
        self.connection
            .prepare_cached("UPDATE secrets SET wrapped = ?2 WHERE n = ?1")?
            .execute(params![secret, wrapped])?;
        Ok(())
    }

    fn close_epoch(&self, owner: OwnerKey) -> rusqlite::Result<()> {
        self.connection
            .prepare_cached(
                "UPDATE secrets SET wrapped = ?2 WHERE n IN
                     (SELECT secret FROM epochs WHERE owner = ?1 AND is_closed = 0)",
            )?
            .execute(params![owner.bytes(), [0_u8; WRAPPED_BYTES]])?;
        self.connection
            .prepare_cached("UPDATE epochs SET is_closed = 1 WHERE owner = ?1 AND is_closed = 0")?
            .execute([owner.bytes()])?;
        Ok(())
    }

    fn roll_back(&self) {
        if !self.connection.is_autocommit() {
            // When even this fails, the next BEGIN is refused and its caller is told.
            let _ = self.connection.execute_batch("ROLLBACK");
        }
    }
}

fn unusable(what: &str) -> KeyringError {
    KeyringError::Unusable {
        what: what.to_owned(),
    }
}

fn no_randomness(reason: String) -> KeyringError {
    KeyringError::Unavailable { reason }
}
