//! What can go wrong below the stages, besides the log's weather: stores that refuse, answer too late or
//! lose what was not synced; a keyring and a model that are not there for a moment.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anamnesis_domain::ids::{ErasureId, IdKey, KeyId, OwnerKey};
use anamnesis_domain::input::{Position, Target, Topic};
use anamnesis_domain::owner::OwnerScope;
use anamnesis_domain::time::Timestamp;
use anamnesis_pipeline::doubles::log::Dice;
use anamnesis_pipeline::embedder::{Embed, EmbedError, Embedder, ModelIdentity, Purpose};
use anamnesis_pipeline::keyring::{
    DataKey, Destroyed, EpochState, KeyState, Keyring, KeyringError, Keys, NewKey,
};
use anamnesis_pipeline::log::{Appended, EventLog, Identity, Log, LogError, NewRecord, Record};
use anamnesis_pipeline::snapshots::{MemorySnapshots, Snapshots};
use anamnesis_pipeline::stores::{Change, Checkpoint, Projection, RowDigest, Store, StoreError};
use async_trait::async_trait;

/// One seeded source of misfortune for everything but the log.
pub struct Luck(Mutex<(Dice, u32)>);

impl Luck {
    pub fn new(seed: u64) -> Arc<Self> {
        Arc::new(Self(Mutex::new((Dice::new(seed), 0))))
    }

    /// How many calls in a thousand go wrong.
    pub fn set_per_mille(&self, per_mille: u32) {
        self.lock().1 = per_mille;
    }

    fn strikes(&self) -> bool {
        let mut held = self.lock();
        let per_mille = held.1;
        held.0.strikes(per_mille)
    }

    fn lock(&self) -> MutexGuard<'_, (Dice, u32)> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

struct Applied {
    partition: u32,
    from: u64,
    changes: Vec<Change>,
    next: Checkpoint,
}

struct Held {
    store: Arc<dyn Projection>,
    journal: Vec<Applied>,
    /// Steps below this one survive whatever happens.
    synced: usize,
}

/// A store that can be set back: after a power loss it stands at an earlier step, checkpoint and data
/// together.
pub struct UnsyncedStore {
    make: Box<dyn Fn() -> Arc<dyn Projection> + Send + Sync>,
    held: Mutex<Held>,
    luck: Arc<Luck>,
}

impl UnsyncedStore {
    pub fn new(
        luck: Arc<Luck>,
        make: impl Fn() -> Arc<dyn Projection> + Send + Sync + 'static,
    ) -> Arc<Self> {
        let held = Held {
            store: make(),
            journal: Vec::new(),
            synced: 0,
        };
        Arc::new(Self {
            make: Box::new(make),
            held: Mutex::new(held),
            luck,
        })
    }

    /// Loses up to so many of the last steps.
    ///
    /// # Errors
    /// When the earlier steps cannot be applied again, which they could before.
    pub async fn lose(&self, steps: usize) -> Result<(), StoreError> {
        let store = (self.make)();
        let kept: Vec<Applied> = {
            let mut held = self.lock();
            let keep = held.journal.len().saturating_sub(steps).max(held.synced);
            held.journal.drain(..).take(keep).collect()
        };
        for step in &kept {
            store
                .apply(step.partition, step.from, &step.changes, step.next)
                .await?;
        }
        let mut held = self.lock();
        held.journal = kept;
        held.store = store;
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn store_now(&self) -> Arc<dyn Projection> {
        self.lock().store.clone()
    }

    fn refuse(&self) -> Result<(), StoreError> {
        if self.luck.strikes() {
            let store = self.store_now().store();
            return Err(StoreError::Unavailable {
                store,
                reason: "bad weather".to_owned(),
            });
        }
        Ok(())
    }
}

#[async_trait]
impl Projection for UnsyncedStore {
    fn store(&self) -> Store {
        self.store_now().store()
    }

    async fn checkpoint(&self, partition: u32) -> Result<Option<Checkpoint>, StoreError> {
        self.refuse()?;
        self.store_now().checkpoint(partition).await
    }

    async fn apply(
        &self,
        partition: u32,
        from: u64,
        changes: &[Change],
        next: Checkpoint,
    ) -> Result<(), StoreError> {
        self.refuse()?;
        self.store_now()
            .apply(partition, from, changes, next)
            .await?;
        let changes = changes.to_vec();
        self.lock().journal.push(Applied {
            partition,
            from,
            changes,
            next,
        });
        // Applied, and the answer is lost.
        self.refuse()
    }

    async fn owners(&self) -> Result<Vec<OwnerKey>, StoreError> {
        self.store_now().owners().await
    }

    async fn rows(&self, scope: OwnerScope) -> Result<Vec<RowDigest>, StoreError> {
        self.store_now().rows(scope).await
    }

    async fn compact(&self) -> Result<(), StoreError> {
        self.refuse()?;
        self.store_now().compact().await?;
        let mut held = self.lock();
        // Rewritten files are synced, or the erased bytes would still be there.
        held.synced = held.journal.len();
        Ok(())
    }
}

/// A keyring that is away now and then, before or after it did what was asked.
pub struct FaultyKeyring {
    pub inner: Keys,
    pub luck: Arc<Luck>,
}

impl FaultyKeyring {
    fn refuse(&self) -> Result<(), KeyringError> {
        if self.luck.strikes() {
            return Err(KeyringError::Unavailable {
                reason: "bad weather".to_owned(),
            });
        }
        Ok(())
    }
}

#[async_trait]
impl Keyring for FaultyKeyring {
    fn id_key(&self) -> &IdKey {
        self.inner.id_key()
    }

    async fn epoch(&self, owner: OwnerKey) -> Result<EpochState, KeyringError> {
        self.refuse()?;
        self.inner.epoch(owner).await
    }

    async fn open_epoch(&self, owner: OwnerKey) -> Result<u32, KeyringError> {
        self.refuse()?;
        self.inner.open_epoch(owner).await
    }

    async fn create(&self, keys: &[NewKey]) -> Result<Vec<DataKey>, KeyringError> {
        self.refuse()?;
        let made = self.inner.create(keys).await?;
        self.refuse()?;
        Ok(made)
    }

    async fn get(&self, ids: &[KeyId]) -> Result<Vec<KeyState>, KeyringError> {
        self.refuse()?;
        self.inner.get(ids).await
    }

    async fn destroy(
        &self,
        owner: OwnerKey,
        target: &Target,
        erasure: ErasureId,
    ) -> Result<Destroyed, KeyringError> {
        self.refuse()?;
        let destroyed = self.inner.destroy(owner, target, erasure).await?;
        self.refuse()?;
        Ok(destroyed)
    }

    async fn destroy_expired(&self, now: Timestamp) -> Result<u64, KeyringError> {
        self.refuse()?;
        self.inner.destroy_expired(now).await
    }

    async fn keep(&self, ids: &[KeyId]) -> Result<(), KeyringError> {
        self.refuse()?;
        self.inner.keep(ids).await
    }
}

/// A model that is away now and then.
pub struct FaultyEmbedder {
    pub inner: Embed,
    pub luck: Arc<Luck>,
}

#[async_trait]
impl Embedder for FaultyEmbedder {
    fn identity(&self) -> &ModelIdentity {
        self.inner.identity()
    }

    fn is_semantic(&self) -> bool {
        self.inner.is_semantic()
    }

    async fn embed(&self, texts: &[&str], purpose: Purpose) -> Result<Vec<Vec<f32>>, EmbedError> {
        if self.luck.strikes() {
            return Err(EmbedError::Unavailable {
                reason: "bad weather".to_owned(),
            });
        }
        self.inner.embed(texts, purpose).await
    }
}

/// Snapshots of a folder that somebody empties.
#[derive(Default)]
pub struct LostSnapshots(Mutex<Arc<MemorySnapshots>>);

impl LostSnapshots {
    pub fn lose(&self) {
        *self.lock() = Arc::default();
    }

    fn lock(&self) -> MutexGuard<'_, Arc<MemorySnapshots>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl Snapshots for LostSnapshots {
    async fn load(&self, name: &str) -> Option<Vec<u8>> {
        let now = self.lock().clone();
        now.load(name).await
    }

    async fn save(&self, name: &str, bytes: Vec<u8>) {
        let now = self.lock().clone();
        now.save(name, bytes).await;
    }
}

/// A log whose appends may arrive in part: the first records are there, the rest and the answer are not.
pub struct TornLog {
    pub inner: Log,
    pub luck: Arc<Luck>,
}

#[async_trait]
impl EventLog for TornLog {
    fn partitions(&self) -> u32 {
        self.inner.partitions()
    }

    async fn identity(&self, topic: Topic, partition: u32) -> Result<Identity, LogError> {
        self.inner.identity(topic, partition).await
    }

    async fn append(
        &self,
        topic: Topic,
        partition: u32,
        mut records: Vec<NewRecord>,
    ) -> Result<Vec<Appended>, LogError> {
        if records.len() > 1 && self.luck.strikes() {
            records.truncate(records.len() / 2);
            self.inner.append(topic, partition, records).await?;
            let reason = "part of it arrived".to_owned();
            return Err(LogError::Unknown {
                topic,
                partition,
                reason,
            });
        }
        self.inner.append(topic, partition, records).await
    }

    async fn read(
        &self,
        topic: Topic,
        partition: u32,
        from: u64,
        records_max: usize,
        bytes_max: usize,
    ) -> Result<Vec<Record>, LogError> {
        self.inner
            .read(topic, partition, from, records_max, bytes_max)
            .await
    }

    async fn read_at(
        &self,
        topic: Topic,
        partition: u32,
        offsets: &[u64],
    ) -> Result<Vec<Record>, LogError> {
        self.inner.read_at(topic, partition, offsets).await
    }

    async fn start(&self, topic: Topic, partition: u32) -> Result<u64, LogError> {
        self.inner.start(topic, partition).await
    }

    async fn end(&self, topic: Topic, partition: u32) -> Result<u64, LogError> {
        self.inner.end(topic, partition).await
    }

    async fn wait_beyond(
        &self,
        topic: Topic,
        partition: u32,
        offset: u64,
        at_most: Duration,
    ) -> Result<(), LogError> {
        self.inner
            .wait_beyond(topic, partition, offset, at_most)
            .await
    }

    async fn retain(
        &self,
        topic: Topic,
        partition: u32,
        before: Timestamp,
    ) -> Result<u64, LogError> {
        self.inner.retain(topic, partition, before).await
    }
}

/// A log as a version sees it that cannot decode some of its records, until it is mended.
pub struct MisreadLog {
    inner: Log,
    misread: Mutex<BTreeSet<Position>>,
}

impl MisreadLog {
    pub fn new(inner: Log) -> Arc<Self> {
        Arc::new(Self {
            inner,
            misread: Mutex::default(),
        })
    }

    pub fn misread(&self, position: Position) {
        self.lock().insert(position);
    }

    pub fn mend(&self) {
        self.lock().clear();
    }

    fn lock(&self) -> MutexGuard<'_, BTreeSet<Position>> {
        self.misread.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn seen(&self, mut records: Vec<Record>) -> Vec<Record> {
        let misread = self.lock();
        for record in records
            .iter_mut()
            .filter(|record| misread.contains(&record.position))
        {
            record.payload = b"what is this".as_slice().into();
        }
        records
    }
}

#[async_trait]
impl EventLog for MisreadLog {
    fn partitions(&self) -> u32 {
        self.inner.partitions()
    }

    async fn identity(&self, topic: Topic, partition: u32) -> Result<Identity, LogError> {
        self.inner.identity(topic, partition).await
    }

    async fn append(
        &self,
        topic: Topic,
        partition: u32,
        records: Vec<NewRecord>,
    ) -> Result<Vec<Appended>, LogError> {
        self.inner.append(topic, partition, records).await
    }

    async fn read(
        &self,
        topic: Topic,
        partition: u32,
        from: u64,
        records_max: usize,
        bytes_max: usize,
    ) -> Result<Vec<Record>, LogError> {
        Ok(self.seen(
            self.inner
                .read(topic, partition, from, records_max, bytes_max)
                .await?,
        ))
    }

    async fn read_at(
        &self,
        topic: Topic,
        partition: u32,
        offsets: &[u64],
    ) -> Result<Vec<Record>, LogError> {
        Ok(self.seen(self.inner.read_at(topic, partition, offsets).await?))
    }

    async fn start(&self, topic: Topic, partition: u32) -> Result<u64, LogError> {
        self.inner.start(topic, partition).await
    }

    async fn end(&self, topic: Topic, partition: u32) -> Result<u64, LogError> {
        self.inner.end(topic, partition).await
    }

    async fn wait_beyond(
        &self,
        topic: Topic,
        partition: u32,
        offset: u64,
        at_most: Duration,
    ) -> Result<(), LogError> {
        self.inner
            .wait_beyond(topic, partition, offset, at_most)
            .await
    }

    async fn retain(
        &self,
        topic: Topic,
        partition: u32,
        before: Timestamp,
    ) -> Result<u64, LogError> {
        self.inner.retain(topic, partition, before).await
    }
}

/// A keyring that destroys nothing before it is told to: what does the log say while the keys are there?
pub struct PatientKeyring {
    inner: Keys,
    held_back: Mutex<Vec<(OwnerKey, Target, ErasureId)>>,
}

impl PatientKeyring {
    pub fn new(inner: Keys) -> Arc<Self> {
        Arc::new(Self {
            inner,
            held_back: Mutex::default(),
        })
    }

    /// Destroys what was asked for so far.
    ///
    /// # Errors
    /// The keyring's.
    pub async fn catch_up(&self) -> Result<(), KeyringError> {
        let due = std::mem::take(&mut *self.lock());
        for (owner, target, erasure) in due {
            self.inner.destroy(owner, &target, erasure).await?;
        }
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, Vec<(OwnerKey, Target, ErasureId)>> {
        self.held_back
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl Keyring for PatientKeyring {
    fn id_key(&self) -> &IdKey {
        self.inner.id_key()
    }

    async fn epoch(&self, owner: OwnerKey) -> Result<EpochState, KeyringError> {
        self.inner.epoch(owner).await
    }

    async fn open_epoch(&self, owner: OwnerKey) -> Result<u32, KeyringError> {
        self.inner.open_epoch(owner).await
    }

    async fn create(&self, keys: &[NewKey]) -> Result<Vec<DataKey>, KeyringError> {
        self.inner.create(keys).await
    }

    async fn get(&self, ids: &[KeyId]) -> Result<Vec<KeyState>, KeyringError> {
        self.inner.get(ids).await
    }

    async fn destroy(
        &self,
        owner: OwnerKey,
        target: &Target,
        erasure: ErasureId,
    ) -> Result<Destroyed, KeyringError> {
        self.lock().push((owner, target.clone(), erasure));
        Ok(Destroyed { keys: 0 })
    }

    async fn destroy_expired(&self, now: Timestamp) -> Result<u64, KeyringError> {
        self.inner.destroy_expired(now).await
    }

    async fn keep(&self, ids: &[KeyId]) -> Result<(), KeyringError> {
        self.inner.keep(ids).await
    }
}
