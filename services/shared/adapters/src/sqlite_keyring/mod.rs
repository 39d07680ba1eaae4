//! How are the keys kept in one SQLite file, apart from the log, so that they can be destroyed?
//!
//! - [`file`]: what stands in `keys.db`, and why a destroyed key is in none of its bytes
//! - [`opener`]: from the master key down to a data key
//! - [`worker`]: the thread that makes and destroys
//! - [`cache`]: which keys are kept open in memory

mod cache;
mod file;
mod opener;
mod worker;

use std::path::Path;
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use anamnesis_domain::ids::{ErasureId, IdKey, KeyId, OwnerKey};
use anamnesis_domain::input::Target;
use anamnesis_domain::time::Timestamp;
use anamnesis_pipeline::broken::broke_off;
use anamnesis_pipeline::keyring::master_key::MasterKey;
use anamnesis_pipeline::keyring::{
    DataKey, Destroyed, EpochState, KeyState, Keyring, KeyringError, NewKey, wrapping,
};
use async_trait::async_trait;
use rusqlite::Connection;
use tokio::sync::oneshot;

use crate::folder::{FolderLock, LockError};
use cache::{Cache, Learned};
use opener::{Opened, Opener};
use worker::{Job, Worker};

/// Usual name of the database; the data folder is the usual place.
pub const FILE_NAME: &str = "keys.db";

/// What readers and the worker share. `reader` is locked before `cache`, never after.
struct Shared {
    reader: Mutex<Connection>,
    cache: Mutex<Cache>,
    wrapping: wrapping::Key,
}

impl Shared {
    fn cache(&self) -> MutexGuard<'_, Cache> {
        self.cache.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads from the file; what was opened on the way is cached before a destruction can begin.
    fn read<T>(
        &self,
        work: impl FnOnce(&mut Opener<'_>) -> Result<T, KeyringError>,
    ) -> Result<T, KeyringError> {
        let connection = self.reader.lock().unwrap_or_else(PoisonError::into_inner);
        let mut learned = Learned::default();
        let answer = work(&mut Opener {
            connection: &connection,
            cache: &self.cache,
            wrapping: &self.wrapping,
            before: None,
            learned: &mut learned,
        })?;
        self.cache().absorb(learned);
        Ok(answer)
    }
}

/// The keyring in an SQLite file.
pub struct SqliteKeyring {
    id_key: IdKey,
    shared: Arc<Shared>,
    jobs: Mutex<Option<Sender<Job>>>,
    worker: Mutex<Option<JoinHandle<()>>>,
    /// Given back after the worker has stopped: fields drop in order, and `Drop` joins first.
    _lock: FolderLock,
}

impl SqliteKeyring {
    /// Opens the keyring in the file `path`, or makes one.
    ///
    /// # Errors
    /// [`KeyringError::WrongMasterKey`], [`KeyringError::InUse`] and [`KeyringError::Unusable`] need
    /// an operator.
    pub fn open(path: &Path, master: &MasterKey) -> Result<Self, KeyringError> {
        let dir = path
            .parent()
            .filter(|dir| !dir.as_os_str().is_empty())
            .unwrap_or(Path::new("."));
        let lock = FolderLock::acquire(dir, "keys.lock").map_err(|error| match error {
            LockError::InUse { what } => KeyringError::InUse { what },
            LockError::Io { .. } => KeyringError::Unavailable {
                reason: error.to_string(),
            },
        })?;
        let opened = file::open(path, master)?;
        let reader = file::open_reader(path).map_err(|error| unavailable(&error))?;
        let shared = Arc::new(Shared {
            reader: Mutex::new(reader),
            cache: Mutex::new(Cache::new()),
            wrapping: opened.wrapping,
        });
        let worker = Worker {
            connection: opened.connection,
            shared: shared.clone(),
            next_secret: opened.next_secret,
            needs_checkpoint: false,
        };
        let (jobs, queue) = std::sync::mpsc::channel();
        let thread = std::thread::Builder::new()
            .name("keyring".to_owned())
            .spawn(move || worker.run(&queue))
            .map_err(|error| KeyringError::Unavailable {
                reason: error.to_string(),
            })?;
        Ok(Self {
            id_key: opened.id_key,
            shared,
            jobs: Mutex::new(Some(jobs)),
            worker: Mutex::new(Some(thread)),
            _lock: lock,
        })
    }

    /// Waits until what was handed in is durable, and stops. Later changes are refused.
    pub fn close(&self) {
        drop(
            self.jobs
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .take(),
        );
        let thread = self
            .worker
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        if let Some(thread) = thread {
            // A worker that panicked has answered nobody, which its callers see for themselves.
            let _ = thread.join();
        }
    }

    async fn ask<T>(
        &self,
        job: impl FnOnce(oneshot::Sender<Result<T, KeyringError>>) -> Job,
    ) -> Result<T, KeyringError> {
        let closed = || KeyringError::Unavailable {
            reason: "the keyring is closed".to_owned(),
        };
        let (answer, answered) = oneshot::channel();
        {
            let jobs = self.jobs.lock().unwrap_or_else(PoisonError::into_inner);
            jobs.as_ref()
                .ok_or_else(closed)?
                .send(job(answer))
                .map_err(|_| closed())?;
        }
        answered.await.unwrap_or_else(|_| Err(closed()))
    }

    /// Reads away from the threads that must not block.
    async fn read<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Opener<'_>) -> Result<T, KeyringError> + Send + 'static,
    ) -> Result<T, KeyringError> {
        let shared = self.shared.clone();
        let task = tokio::task::spawn_blocking(move || shared.read(work));
        task.await.map_err(|error| KeyringError::Unavailable {
            reason: broke_off(&error).to_owned(),
        })?
    }
}

impl Drop for SqliteKeyring {
    fn drop(&mut self) {
        self.close();
    }
}

#[async_trait]
impl Keyring for SqliteKeyring {
    fn id_key(&self) -> &IdKey {
        &self.id_key
    }

    async fn epoch(&self, owner: OwnerKey) -> Result<EpochState, KeyringError> {
        self.read(move |opener| opener.epoch_state(owner)).await
    }

    async fn open_epoch(&self, owner: OwnerKey) -> Result<u32, KeyringError> {
        // Asked before every message; the cache holds open epochs only.
        let cached = self.shared.cache().epoch(&owner);
        match cached {
            Some(open) => Ok(open.epoch),
            None => self.ask(|answer| Job::OpenEpoch(owner, answer)).await,
        }
    }

    async fn create(&self, keys: &[NewKey]) -> Result<Vec<DataKey>, KeyringError> {
        if keys.is_empty() {
            return Ok(Vec::new());
        }
        self.ask(|answer| Job::Create(keys.to_vec(), answer)).await
    }

    async fn get(&self, ids: &[KeyId]) -> Result<Vec<KeyState>, KeyringError> {
        let cached: Option<Vec<KeyState>> = {
            let mut cache = self.shared.cache();
            ids.iter()
                .map(|id| cache.key(id).map(|known| KeyState::Open(known.key)))
                .collect()
        };
        if let Some(all) = cached {
            return Ok(all);
        }
        let ids = ids.to_vec();
        let open = move |opener: &mut Opener<'_>| {
            let mut states = Vec::with_capacity(ids.len());
            for id in ids {
                states.push(match opener.open(id)? {
                    Opened::Open(known) => KeyState::Open(known.key),
                    Opened::Destroyed => KeyState::Destroyed,
                    Opened::Unknown => KeyState::Unknown,
                });
            }
            Ok(states)
        };
        self.read(open).await
    }

    async fn destroy(
        &self,
        owner: OwnerKey,
        target: &Target,
        erasure: ErasureId,
    ) -> Result<Destroyed, KeyringError> {
        self.ask(|answer| Job::Destroy(owner, target.clone(), erasure, answer))
            .await
    }

    async fn destroy_expired(&self, now: Timestamp) -> Result<u64, KeyringError> {
        self.ask(|answer| Job::DestroyExpired(now, answer)).await
    }

    async fn keep(&self, ids: &[KeyId]) -> Result<(), KeyringError> {
        self.ask(|answer| Job::Keep(ids.to_vec(), answer)).await
    }
}

fn unavailable(error: &rusqlite::Error) -> KeyringError {
    KeyringError::Unavailable {
        reason: error.to_string(),
    }
}
