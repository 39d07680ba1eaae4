//! Which keys need no second look into the file? Those that were used lately: only keys that are
//! committed and open, and none that was destroyed.

use std::collections::HashMap;

use anamnesis_domain::ids::{KeyId, OwnerKey};
use anamnesis_pipeline::keyring::DataKey;
use anamnesis_pipeline::keyring::wrapping::Key;

/// Keys per generation: with two generations about 8 MiB. A batch of the consumer loop has hundreds.
const KEYS_MAX: usize = 1 << 15;

/// Owners whose key is kept open; a busy hour of a large hospital has fewer.
const OWNERS_MAX: usize = 1 << 12;

/// Bounded by two generations: when the young one is full it becomes the old one, and what was in the
/// old one goes. What is used is moved to the young one.
struct Generations<K, V> {
    young: HashMap<K, V>,
    old: HashMap<K, V>,
    max: usize,
}

impl<K: std::hash::Hash + Eq + Copy, V: Clone> Generations<K, V> {
    fn new(max: usize) -> Self {
        Self {
            young: HashMap::new(),
            old: HashMap::new(),
            max,
        }
    }

    fn get(&mut self, key: &K) -> Option<V> {
        if let Some(value) = self.young.get(key) {
            return Some(value.clone());
        }
        let value = self.old.remove(key)?;
        self.insert(*key, value.clone());
        Some(value)
    }

    fn insert(&mut self, key: K, value: V) {
        if self.young.len() >= self.max {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.insert(key, value);
    }

    fn remove(&mut self, key: &K) {
        self.young.remove(key);
        self.old.remove(key);
    }
}

/// An open data key and whose it is.
#[derive(Clone)]
pub(super) struct Known {
    pub(super) owner: OwnerKey,
    pub(super) key: DataKey,
}

/// The key of the owner's open epoch.
#[derive(Clone)]
pub(super) struct OpenEpoch {
    pub(super) epoch: u32,
    pub(super) key: Key,
}

pub(super) struct Cache {
    keys: Generations<KeyId, Known>,
    epochs: Generations<OwnerKey, OpenEpoch>,
}

/// What was learned on the way and may be cached once it is known to be committed.
#[derive(Default)]
pub(super) struct Learned {
    pub(super) keys: HashMap<KeyId, Known>,
    pub(super) epochs: HashMap<OwnerKey, OpenEpoch>,
}

impl Learned {
    pub(super) fn absorb(&mut self, other: Self) {
        self.keys.extend(other.keys);
        self.epochs.extend(other.epochs);
    }
}

impl Cache {
    pub(super) fn new() -> Self {
        Self {
            keys: Generations::new(KEYS_MAX),
            epochs: Generations::new(OWNERS_MAX),
        }
    }

    pub(super) fn key(&mut self, id: &KeyId) -> Option<Known> {
        self.keys.get(id)
    }

    pub(super) fn epoch(&mut self, owner: &OwnerKey) -> Option<OpenEpoch> {
        self.epochs.get(owner)
    }

    pub(super) fn absorb(&mut self, learned: Learned) {
        for (id, known) in learned.keys {
            self.keys.insert(id, known);
        }
        for (owner, epoch) in learned.epochs {
            self.epochs.insert(owner, epoch);
        }
    }

    pub(super) fn clear(&mut self) {
        *self = Self::new();
    }

    pub(super) fn forget(&mut self, ids: &[KeyId]) {
        for id in ids {
            self.keys.remove(id);
        }
    }

    pub(super) fn forget_epoch(&mut self, owner: &OwnerKey) {
        self.epochs.remove(owner);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_used_stays_and_the_rest_is_bounded() {
        let mut generations = Generations::new(3);
        for number in 0..100 {
            generations.insert(number, number);
            assert_eq!(generations.get(&0), Some(0), "used all the time");
            assert!(generations.young.len() + generations.old.len() <= 6);
        }
        assert_eq!(generations.get(&50), None);
        generations.remove(&0);
        assert_eq!(generations.get(&0), None);
    }
}
