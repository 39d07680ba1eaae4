//! Which keys need no second look into the database? Those that were read lately, while every erasure
//! is told of.
//!
//! Three things bound how long a key that was destroyed elsewhere can be used here:
//! - every destruction is announced to all processes, which then forget the owner's keys;
//! - what was read longer than a lease ago is read again;
//! - while announcements cannot be heard, nothing is taken from the cache.
//!
//! A read that began before a destruction can end after it. What it found is kept only when nothing
//! was forgotten in between.

use std::num::NonZeroUsize;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anamnesis_domain::ids::{KeyId, OwnerKey};
use anamnesis_pipeline::keyring::DataKey;
use lru::LruCache;

/// Owners whose open epoch is remembered; a busy hour of a large hospital has fewer.
const OWNERS_MAX: NonZeroUsize = NonZeroUsize::new(1 << 12).unwrap();

/// An open data key and whose it is.
#[derive(Clone)]
pub(super) struct Known {
    pub(super) owner: OwnerKey,
    pub(super) key: DataKey,
}

struct Kept<T> {
    value: T,
    read_at: Instant,
}

/// Taken before the database is read.
#[derive(Clone, Copy)]
pub(super) struct Turn {
    number: u64,
    at: Instant,
}

pub(super) struct Cache {
    lease: Duration,
    state: Mutex<State>,
}

struct State {
    keys: LruCache<KeyId, Kept<Known>>,
    epochs: LruCache<OwnerKey, Kept<u32>>,
    /// Rises whenever something is forgotten.
    turn: u64,
    hears: bool,
}

impl Cache {
    /// Keeps nothing until [`Cache::hear`].
    pub(super) fn new(keys_max: usize, lease: Duration) -> Self {
        let keys_max = NonZeroUsize::new(keys_max).unwrap_or(NonZeroUsize::MIN);
        let state = State {
            keys: LruCache::new(keys_max),
            epochs: LruCache::new(OWNERS_MAX),
            turn: 0,
            hears: false,
        };
        Self {
            lease,
            state: Mutex::new(state),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn turn(&self) -> Turn {
        self.turn_at(Instant::now())
    }

    fn turn_at(&self, at: Instant) -> Turn {
        Turn {
            number: self.lock().turn,
            at,
        }
    }

    /// The keys of these ids that are known, in the order asked.
    pub(super) fn keys(&self, ids: &[KeyId]) -> Vec<Option<DataKey>> {
        self.keys_at(ids, Instant::now())
    }

    fn keys_at(&self, ids: &[KeyId], now: Instant) -> Vec<Option<DataKey>> {
        let mut state = self.lock();
        if !state.hears {
            return vec![None; ids.len()];
        }
        ids.iter()
            .map(|id| {
                let kept = state.keys.get(id)?;
                let is_fresh = now.duration_since(kept.read_at) < self.lease;
                is_fresh.then(|| kept.value.key.clone())
            })
            .collect()
    }

    pub(super) fn epoch(&self, owner: OwnerKey) -> Option<u32> {
        let now = Instant::now();
        let mut state = self.lock();
        if !state.hears {
            return None;
        }
        let kept = state.epochs.get(&owner)?;
        (now.duration_since(kept.read_at) < self.lease).then_some(kept.value)
    }

    /// Remembers what was read since `turn`.
    pub(super) fn learn(&self, turn: Turn, keys: impl IntoIterator<Item = (KeyId, Known)>) {
        let mut state = self.lock();
        if !state.hears || state.turn != turn.number {
            return;
        }
        for (id, value) in keys {
            let read_at = turn.at;
            state.keys.put(id, Kept { value, read_at });
        }
    }

    pub(super) fn learn_epoch(&self, turn: Turn, owner: OwnerKey, epoch: u32) {
        let mut state = self.lock();
        if state.hears && state.turn == turn.number {
            let kept = Kept {
                value: epoch,
                read_at: turn.at,
            };
            state.epochs.put(owner, kept);
        }
    }

    /// Something of this owner was destroyed.
    pub(super) fn forget(&self, owner: OwnerKey) {
        let mut state = self.lock();
        state.turn += 1;
        state.epochs.pop(&owner);
        let theirs: Vec<KeyId> = state
            .keys
            .iter()
            .filter(|(_, kept)| kept.value.owner == owner)
            .map(|(id, _)| *id)
            .collect();
        for id in theirs {
            state.keys.pop(&id);
        }
    }

    /// Announcements arrive from now on; what was missed before is not in the cache.
    pub(super) fn hear(&self) {
        let mut state = self.lock();
        state.forget_all();
        state.hears = true;
    }

    /// No announcement arrives any more.
    pub(super) fn go_deaf(&self) {
        let mut state = self.lock();
        state.forget_all();
        state.hears = false;
    }

    pub(super) fn forget_all(&self) {
        self.lock().forget_all();
    }
}

impl State {
    fn forget_all(&mut self) {
        self.turn += 1;
        self.keys.clear();
        self.epochs.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEASE: Duration = Duration::from_secs(10);

    fn owner(byte: u8) -> OwnerKey {
        OwnerKey::from_bytes([byte; 16])
    }

    fn id(byte: u8) -> KeyId {
        KeyId::from_bytes([byte; 16])
    }

    fn known(byte: u8) -> (KeyId, Known) {
        let known = Known {
            owner: owner(byte),
            key: DataKey::new([byte; 32]),
        };
        (id(byte), known)
    }

    fn hearing(keys_max: usize) -> Cache {
        let cache = Cache::new(keys_max, LEASE);
        cache.hear();
        cache
    }

    /// Which of the keys 1 to 5 are found.
    fn check(cache: &Cache, now: Instant, expected: &[u8]) {
        let found: Vec<u8> = (1..6)
            .filter(|byte| cache.keys_at(&[id(*byte)], now)[0].is_some())
            .collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn what_is_older_than_the_lease_is_not_used() {
        let (cache, start) = (hearing(10), Instant::now());
        cache.learn(cache.turn_at(start), [known(1)]);
        cache.learn(cache.turn_at(start + LEASE / 2), [known(2)]);
        check(&cache, start + LEASE / 2, &[1, 2]);
        check(&cache, start + LEASE, &[2]);
        check(&cache, start + LEASE * 2, &[]);
    }

    #[test]
    fn a_read_that_began_before_a_destruction_is_not_kept() {
        let (cache, now) = (hearing(10), Instant::now());
        let turn = cache.turn_at(now);
        cache.forget(owner(1));
        cache.learn(turn, [known(1)]);
        cache.learn_epoch(turn, owner(1), 1);
        check(&cache, now, &[]);
        assert_eq!(cache.epoch(owner(1)), None);
    }

    #[test]
    fn an_owner_is_forgotten_and_no_other() {
        let (cache, now) = (hearing(10), Instant::now());
        cache.learn(cache.turn_at(now), [known(1), known(2)]);
        cache.learn_epoch(cache.turn(), owner(1), 1);
        cache.learn_epoch(cache.turn(), owner(2), 3);
        cache.forget(owner(1));
        check(&cache, now, &[2]);
        assert_eq!(cache.epoch(owner(1)), None);
        assert_eq!(cache.epoch(owner(2)), Some(3));
    }

    #[test]
    fn nothing_is_used_or_kept_while_news_cannot_arrive() {
        let (cache, now) = (hearing(10), Instant::now());
        cache.learn(cache.turn_at(now), [known(1)]);
        let turn = cache.turn_at(now);
        cache.go_deaf();
        check(&cache, now, &[]);
        cache.learn(cache.turn_at(now), [known(2)]);
        cache.hear();
        cache.learn(turn, [known(3)]);
        check(&cache, now, &[]);
    }

    #[test]
    fn what_is_used_stays_and_the_rest_is_bounded() {
        let (cache, now) = (hearing(2), Instant::now());
        cache.learn(cache.turn_at(now), [known(1), known(2)]);
        check(&cache, now, &[1, 2]);
        assert!(cache.keys_at(&[id(1)], now)[0].is_some());
        cache.learn(cache.turn_at(now), [known(3)]);
        check(&cache, now, &[1, 3]);
    }
}
