//! What can go wrong below the stages, besides the log's weather: stores that refuse, answer too late or
//! lose what was not synced; a keyring and a model that are not there for a moment.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anamnesis_domain::ids::{ErasureId, IdKey, KeyId, OwnerKey};
use anamnesis_domain::input::Target;
use anamnesis_domain::owner::OwnerScope;
use anamnesis_domain::time::Timestamp;
use anamnesis_pipeline::doubles::log::Dice;
use anamnesis_pipeline::embedder::{Embed, EmbedError, Embedder, ModelIdentity, Purpose};
use anamnesis_pipeline::keyring::{
    DataKey, Destroyed, EpochState, KeyState, Keyring, KeyringError, Keys, NewKey,
};
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
