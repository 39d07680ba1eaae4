//! Which owners' rows are at hand, and are they those of now?
//!
//! A block is read from a snapshot while others write. It is kept only when no batch of the owner's
//! partition ended between the look into the cache and the put, and a batch drops the blocks of its
//! owners before it is reported as applied. So an answer after `apply` sees what was applied, and after
//! an erasure no block holds a word of what was erased. A batch that failed, or whose outcome is unknown,
//! drops them too.
//!
//! One process writes a store and reads it: a folder is locked. A row that somebody alters by hand while
//! it is cached is seen by `rows`, which always reads the file.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anamnesis_domain::ids::OwnerKey;
use anamnesis_pipeline::feed::Feed;
use anamnesis_pipeline::stores::StoreError;
use lru::LruCache;
use tokio::sync::Mutex as TurnMutex;

/// Owners whose blocks are read at the same time: more only wait for the same processors.
const LOADING_MAX: usize = 16;

/// What is kept of an owner.
pub(crate) trait Block: Send + Sync {
    /// About how much memory it takes. May grow while it is kept ([`OwnerCache::grew`]).
    fn bytes(&self) -> usize;
}

/// Blocks of some owners, those that were used last, in bounded memory.
pub(crate) struct OwnerCache<B> {
    feed: Feed,
    bytes_max: usize,
    state: Mutex<State<B>>,
    /// Nobody reads what somebody else is just reading.
    loading: [TurnMutex<()>; LOADING_MAX],
}

struct State<B> {
    blocks: LruCache<OwnerKey, Kept<B>>,
    bytes: usize,
    partitions: BTreeMap<u32, Stand>,
}

struct Kept<B> {
    block: Arc<B>,
    /// As they were counted last.
    bytes: usize,
}

#[derive(Clone, Copy, Default)]
struct Stand {
    /// How far the partition is applied, as its blocks are; `None` until it was read.
    position: Option<u64>,
    /// Batches that ended.
    turn: u64,
}

impl<B: Block> OwnerCache<B> {
    pub(crate) fn new(feed: Feed, bytes_max: usize) -> Self {
        let state = State {
            blocks: LruCache::unbounded(),
            bytes: 0,
            partitions: BTreeMap::new(),
        };
        Self {
            feed,
            bytes_max,
            state: Mutex::new(state),
            loading: std::array::from_fn(|_| TurnMutex::new(())),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State<B>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The owner's block and how far its partition is applied. `load` reads both from one snapshot.
    pub(crate) async fn block<F>(
        &self,
        owner: OwnerKey,
        load: impl FnOnce() -> F,
    ) -> Result<(Arc<B>, u64), StoreError>
    where
        F: Future<Output = Result<(Arc<B>, u64), StoreError>>,
    {
        if let Ok(found) = self.get(owner) {
            return Ok(found);
        }
        let place = usize::from(owner.bytes()[0]) % LOADING_MAX;
        let _turn = self.loading[place].lock().await;
        let turn = match self.get(owner) {
            Ok(found) => return Ok(found),
            Err(turn) => turn,
        };
        let (block, position) = load().await?;
        self.put(owner, &block, position, turn);
        Ok((block, position))
    }

    /// The block, or the turn at which it was not there: to be given back with what was read instead.
    fn get(&self, owner: OwnerKey) -> Result<(Arc<B>, u64), u64> {
        let mut state = self.lock();
        let partition = self.feed.partition_of(owner);
        let stand = state.partitions.get(&partition).copied();
        let Stand { position, turn } = stand.unwrap_or_default();
        match (state.blocks.get(&owner), position) {
            (Some(kept), Some(position)) => Ok((kept.block.clone(), position)),
            (Some(_) | None, _) => Err(turn),
        }
    }

    fn put(&self, owner: OwnerKey, block: &Arc<B>, position: u64, turn: u64) {
        let bytes = block.bytes();
        let mut state = self.lock();
        let stand = state
            .partitions
            .entry(self.feed.partition_of(owner))
            .or_default();
        // A batch that is committed and has not ended shows another position: its blocks are still to go.
        let is_of_now = stand.turn == turn && stand.position.is_none_or(|known| known == position);
        if !is_of_now || bytes > self.bytes_max {
            return;
        }
        stand.position = Some(position);
        state.bytes += bytes;
        let kept = Kept {
            block: block.clone(),
            bytes,
        };
        if let Some(before) = state.blocks.put(owner, kept) {
            state.bytes -= before.bytes;
        }
        state.shrink(self.bytes_max);
    }

    /// Drops a block that answers no more, if it is still the one that is kept.
    pub(crate) fn forget(&self, owner: OwnerKey, block: &Arc<B>) {
        let mut state = self.lock();
        let kept = state.blocks.peek(&owner);
        if kept.is_some_and(|kept| Arc::ptr_eq(&kept.block, block))
            && let Some(kept) = state.blocks.pop(&owner)
        {
            state.bytes -= kept.bytes;
        }
    }

    /// Whether this is still the block that others are given.
    pub(crate) fn has(&self, owner: OwnerKey, block: &Arc<B>) -> bool {
        let state = self.lock();
        let kept = state.blocks.peek(&owner);
        kept.is_some_and(|kept| Arc::ptr_eq(&kept.block, block))
    }

    /// The block holds more than before: it is weighed again, if it is still the one that is kept.
    pub(crate) fn grew(&self, owner: OwnerKey, block: &Arc<B>) {
        let bytes = block.bytes();
        let mut state = self.lock();
        let Some(kept) = state.blocks.peek_mut(&owner) else {
            return;
        };
        if !Arc::ptr_eq(&kept.block, block) {
            return;
        }
        let before = std::mem::replace(&mut kept.bytes, bytes);
        state.bytes = state.bytes - before + bytes;
        state.shrink(self.bytes_max);
    }

    /// A batch is over: the blocks of its owners are dropped. `position` is where the partition then
    /// stands; `None` when the batch failed, and then all blocks of the partition are dropped.
    pub(crate) fn batch_ended(
        &self,
        partition: u32,
        owners: &BTreeSet<OwnerKey>,
        position: Option<u64>,
    ) {
        let mut state = self.lock();
        let stand = state.partitions.entry(partition).or_default();
        stand.turn += 1;
        stand.position = position;
        let dropped: Vec<OwnerKey> = if position.is_some() {
            owners.iter().copied().collect()
        } else {
            // Where the partition stands is unknown: the next questions ask the file.
            let kept = state.blocks.iter().map(|(owner, _)| *owner);
            kept.filter(|owner| self.feed.partition_of(*owner) == partition)
                .collect()
        };
        for owner in dropped {
            if let Some(kept) = state.blocks.pop(&owner) {
                state.bytes -= kept.bytes;
            }
        }
    }

    #[cfg(test)]
    fn held(&self) -> (usize, usize) {
        let state = self.lock();
        (state.blocks.len(), state.bytes)
    }
}

impl<B> State<B> {
    /// Drops what was used longest ago.
    fn shrink(&mut self, bytes_max: usize) {
        while self.bytes > bytes_max {
            let Some((_, oldest)) = self.blocks.pop_lru() else {
                break;
            };
            self.bytes -= oldest.bytes;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use anamnesis_domain::ids::LogId;

    use super::*;

    struct Letters(AtomicUsize);

    impl Block for Letters {
        fn bytes(&self) -> usize {
            self.0.load(Ordering::Relaxed)
        }
    }

    fn cache(bytes_max: usize) -> OwnerCache<Letters> {
        let feed = Feed {
            log_id: LogId::from_bytes([1; 16]),
            partitions: 1,
        };
        OwnerCache::new(feed, bytes_max)
    }

    fn owner(number: u8) -> OwnerKey {
        OwnerKey::from_bytes([number; 16])
    }

    /// Asks, and tells whether the file was asked. The file stands where the cache does.
    async fn read(cache: &OwnerCache<Letters>, number: u8, bytes: usize) -> (Arc<Letters>, bool) {
        let mut is_loaded = false;
        let position = cache.lock().partitions.get(&0).and_then(|one| one.position);
        let position = position.unwrap_or(7);
        let loads = &mut is_loaded;
        let (block, _) = cache
            .block(owner(number), || {
                *loads = true;
                async move { Ok((Arc::new(Letters(AtomicUsize::new(bytes))), position)) }
            })
            .await
            .unwrap();
        (block, is_loaded)
    }

    #[tokio::test]
    async fn memory_is_bounded_and_what_was_used_last_stays() {
        let cache = cache(100);
        for number in 1..=20 {
            read(&cache, 0, 10).await;
            read(&cache, number, 30).await;
            assert!(cache.held().1 <= 100);
        }
        assert!(!read(&cache, 0, 10).await.1, "used all the time");
        assert!(read(&cache, 1, 30).await.1, "used long ago");
        read(&cache, 99, 101).await;
        assert!(read(&cache, 99, 101).await.1, "more than there is room for");
        assert!(cache.held().1 <= 100);
    }

    #[tokio::test]
    async fn what_grows_is_weighed_again() {
        let cache = cache(100);
        let (first, _) = read(&cache, 1, 10).await;
        let (second, _) = read(&cache, 2, 10).await;
        second.0.store(95, Ordering::Relaxed);
        cache.grew(owner(2), &second);
        assert_eq!(cache.held(), (1, 95), "the other had to go");
        first.0.store(50, Ordering::Relaxed);
        cache.grew(owner(1), &first);
        assert_eq!(cache.held(), (1, 95), "it is not kept any more");
    }

    #[tokio::test]
    async fn a_batch_drops_its_owners_and_what_was_read_meanwhile() {
        let cache = cache(100);
        read(&cache, 1, 10).await;
        read(&cache, 2, 10).await;
        cache.batch_ended(0, &BTreeSet::from([owner(1)]), Some(8));
        assert!(read(&cache, 1, 10).await.1, "changed");
        assert!(!read(&cache, 2, 10).await.1, "untouched");

        let read_meanwhile = cache.block(owner(3), async || {
            cache.batch_ended(0, &BTreeSet::from([owner(3)]), Some(9));
            Ok((Arc::new(Letters(AtomicUsize::new(10))), 8))
        });
        read_meanwhile.await.unwrap();
        assert!(read(&cache, 3, 10).await.1, "it may be of before");

        let read_ahead = cache.block(owner(4), async || {
            Ok((Arc::new(Letters(AtomicUsize::new(10))), 10))
        });
        assert_eq!(read_ahead.await.unwrap().1, 10);
        assert!(
            read(&cache, 4, 10).await.1,
            "of a batch that has not ended: another owner's block may be of before"
        );

        cache.batch_ended(0, &BTreeSet::new(), None);
        assert!(read(&cache, 2, 10).await.1, "nobody knows where it stands");
    }

    #[tokio::test]
    async fn an_owner_is_read_once_by_all_who_wait() {
        let cache = cache(100);
        let loads = AtomicUsize::new(0);
        let ask = || {
            cache.block(owner(1), async || {
                loads.fetch_add(1, Ordering::Relaxed);
                tokio::task::yield_now().await;
                Ok((Arc::new(Letters(AtomicUsize::new(10))), 7))
            })
        };
        let asked = futures::future::join_all((0..20).map(|_| ask()));
        assert!(asked.await.iter().all(Result::is_ok));
        assert_eq!(loads.load(Ordering::Relaxed), 1);
    }

    #[tokio::test]
    async fn a_failure_is_told_and_not_kept() {
        let cache = cache(100);
        let failed = cache.block(owner(1), async || {
            Err(StoreError::Unusable {
                what: "no".to_owned(),
            })
        });
        assert!(failed.await.is_err());
        assert!(read(&cache, 1, 10).await.1);
    }
}
