//! The keyring in memory: which keys exist, which are destroyed, and who may ask for more?
//!
//! Keys are drawn from a seed and the key's id, so that the same seed gives the same log.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use anamnesis_domain::ids::{ErasureId, EventTag, IdKey, KeyId, MemoryId, OwnerKey};
use anamnesis_domain::input::Target;
use anamnesis_domain::time::Timestamp;
use async_trait::async_trait;

use crate::keyring::{DataKey, Destroyed, EpochState, KeyState, Keyring, KeyringError, NewKey};

#[derive(Clone)]
struct Held {
    /// As it was made; `parent` is what wraps it now.
    key: NewKey,
    /// Made without a parent. A key that was re-wrapped has none either, and is still no source's key.
    is_source_key: bool,
    /// `None` once destroyed.
    data: Option<DataKey>,
    destroyed_by: Option<ErasureId>,
}

#[derive(Clone, Default)]
struct State {
    keys: BTreeMap<KeyId, Held>,
    epochs: BTreeMap<OwnerKey, EpochState>,
    /// Erasures that were carried out. A repeat must not reach what came later under the same tag.
    done: BTreeSet<(ErasureId, [u8; 32])>,
}

/// A keyring in memory, strict to the contract.
pub struct MemoryKeyring {
    id_key: IdKey,
    seed: [u8; 32],
    state: Mutex<State>,
}

impl MemoryKeyring {
    pub fn new(seed: u64) -> Self {
        let seed = *blake3::hash(&seed.to_le_bytes()).as_bytes();
        let id_key = *blake3::keyed_hash(&seed, b"site").as_bytes();
        Self {
            id_key: IdKey::from_bytes(id_key),
            seed,
            state: Mutex::new(State::default()),
        }
    }

    /// The same keyring after a restart of the process.
    #[must_use]
    pub fn restarted(&self) -> Self {
        let state = Mutex::new(self.lock().clone());
        Self {
            id_key: self.id_key.clone(),
            seed: self.seed,
            state,
        }
    }

    /// How many keys can still be opened.
    pub fn open_count(&self) -> usize {
        self.lock()
            .keys
            .values()
            .filter(|held| held.data.is_some())
            .count()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn draw(&self, id: KeyId) -> DataKey {
        DataKey::new(*blake3::keyed_hash(&self.seed, id.bytes()).as_bytes())
    }
}

impl State {
    /// Checks one key against what is there and what this call makes before it.
    fn check(&self, new: &NewKey, made: &BTreeMap<KeyId, Held>) -> Result<(), KeyringError> {
        let find = |id: &KeyId| self.keys.get(id).or_else(|| made.get(id));
        if let Some(held) = find(&new.id) {
            if held.data.is_none() {
                return Err(KeyringError::Destroyed);
            }
            if held.key.owner != new.owner {
                return Err(unusable("a key id is asked for by two owners"));
            }
            return Ok(());
        }
        let epoch = self.epochs.get(&new.owner).copied().unwrap_or_default();
        if new.epoch <= epoch.closed_through {
            return Err(KeyringError::Destroyed);
        }
        if epoch.open != Some(new.epoch) {
            return Err(KeyringError::Unknown);
        }
        let Some(parent) = &new.parent else {
            return Ok(());
        };
        let parent = find(parent).ok_or(KeyringError::Unknown)?;
        if parent.key.owner != new.owner {
            return Err(unusable("a key and its parent belong to two owners"));
        }
        if parent.data.is_none() {
            return Err(KeyringError::Destroyed);
        }
        Ok(())
    }

    /// Destroys these keys and whatever they still wrap.
    fn destroy(&mut self, mut ids: BTreeSet<KeyId>, erasure: ErasureId) -> u64 {
        loop {
            let below: Vec<KeyId> = self
                .keys
                .iter()
                .filter(|(id, held)| {
                    held.data.is_some()
                        && !ids.contains(*id)
                        && held.key.parent.is_some_and(|parent| ids.contains(&parent))
                })
                .map(|(id, _)| *id)
                .collect();
            if below.is_empty() {
                break;
            }
            ids.extend(below);
        }
        let mut count = 0;
        for id in ids {
            if let Some(held) = self.keys.get_mut(&id).filter(|held| held.data.is_some()) {
                held.data = None;
                held.destroyed_by = Some(erasure);
                count += 1;
            }
        }
        count
    }

    fn open_ids(&self, owner: OwnerKey, is_wanted: impl Fn(&Held) -> bool) -> BTreeSet<KeyId> {
        self.keys
            .iter()
            .filter(|(_, held)| held.key.owner == owner && held.data.is_some() && is_wanted(held))
            .map(|(id, _)| *id)
            .collect()
    }

    fn destroy_memories(&mut self, owner: OwnerKey, memories: &[MemoryId], erasure: ErasureId) {
        let is_of_memory = |held: &Held| held.key.memory.is_some_and(|m| memories.contains(&m));
        let mut doomed = self.open_ids(owner, is_of_memory);
        let events: BTreeSet<EventTag> = doomed.iter().map(|id| self.keys[id].key.event).collect();
        let sources = self.open_ids(owner, |held| {
            held.is_source_key && events.contains(&held.key.event)
        });
        for (id, held) in &mut self.keys {
            let is_wrapped_by_doomed = held.key.parent.is_some_and(|p| sources.contains(&p));
            if is_wrapped_by_doomed && !doomed.contains(id) {
                held.key.parent = None;
            }
        }
        doomed.extend(sources);
        self.destroy(doomed, erasure);
    }

    fn close_epoch(&mut self, owner: OwnerKey) {
        let epoch = self.epochs.entry(owner).or_default();
        if let Some(open) = epoch.open.take() {
            epoch.closed_through = open;
        }
    }
}

fn unusable(what: &str) -> KeyringError {
    KeyringError::Unusable {
        what: what.to_owned(),
    }
}

/// What expiry leaves in the place of an erasure.
const EXPIRED: ErasureId = ErasureId::from_bytes([0; 16]);

#[async_trait]
impl Keyring for MemoryKeyring {
    fn id_key(&self) -> &IdKey {
        &self.id_key
    }

    async fn epoch(&self, owner: OwnerKey) -> Result<EpochState, KeyringError> {
        Ok(self.lock().epochs.get(&owner).copied().unwrap_or_default())
    }

    async fn open_epoch(&self, owner: OwnerKey) -> Result<u32, KeyringError> {
        let mut state = self.lock();
        let epoch = state.epochs.entry(owner).or_default();
        let next = epoch.closed_through + 1;
        Ok(*epoch.open.get_or_insert(next))
    }

    async fn create(&self, keys: &[NewKey]) -> Result<Vec<DataKey>, KeyringError> {
        let mut state = self.lock();
        let mut made = BTreeMap::new();
        let mut answer = Vec::with_capacity(keys.len());
        for new in keys {
            state.check(new, &made)?;
            let data = self.draw(new.id);
            answer.push(data.clone());
            if !state.keys.contains_key(&new.id) && !made.contains_key(&new.id) {
                let is_source_key = new.parent.is_none();
                let held = Held {
                    key: new.clone(),
                    is_source_key,
                    data: Some(data),
                    destroyed_by: None,
                };
                made.insert(new.id, held);
            }
        }
        state.keys.extend(made);
        Ok(answer)
    }

    async fn get(&self, ids: &[KeyId]) -> Result<Vec<KeyState>, KeyringError> {
        let state = self.lock();
        let one = |id: &KeyId| match state.keys.get(id) {
            None => KeyState::Unknown,
            Some(held) => held
                .data
                .clone()
                .map_or(KeyState::Destroyed, KeyState::Open),
        };
        Ok(ids.iter().map(one).collect())
    }

    async fn destroy(
        &self,
        owner: OwnerKey,
        target: &Target,
        erasure: ErasureId,
    ) -> Result<Destroyed, KeyringError> {
        let mut state = self.lock();
        let named =
            serde_json::to_vec(&(owner, target)).map_err(|error| unusable(&error.to_string()))?;
        if state
            .done
            .insert((erasure, *blake3::hash(&named).as_bytes()))
        {
            match target {
                Target::Memories(memories) => state.destroy_memories(owner, memories, erasure),
                Target::Message(event) => {
                    let doomed = state.open_ids(owner, |held| held.key.event == *event);
                    state.destroy(doomed, erasure);
                }
                Target::Source(source) => {
                    let doomed = state.open_ids(owner, |held| held.key.source == *source);
                    state.destroy(doomed, erasure);
                }
                Target::Owner => {
                    let doomed = state.open_ids(owner, |_| true);
                    state.destroy(doomed, erasure);
                    state.close_epoch(owner);
                }
            }
        }
        let keys = state
            .keys
            .values()
            .filter(|held| held.destroyed_by == Some(erasure))
            .count();
        Ok(Destroyed { keys: keys as u64 })
    }

    async fn destroy_expired(&self, now: Timestamp) -> Result<u64, KeyringError> {
        let mut state = self.lock();
        let expired: BTreeSet<KeyId> = state
            .keys
            .iter()
            .filter(|(_, held)| {
                held.data.is_some() && held.key.expires_at.is_some_and(|at| at <= now)
            })
            .map(|(id, _)| *id)
            .collect();
        Ok(state.destroy(expired, EXPIRED))
    }

    async fn keep(&self, ids: &[KeyId]) -> Result<(), KeyringError> {
        let mut state = self.lock();
        for id in ids {
            let held = state.keys.get(id).ok_or(KeyringError::Unknown)?;
            if held.data.is_none() {
                return Err(KeyringError::Destroyed);
            }
        }
        for id in ids {
            if let Some(held) = state.keys.get_mut(id) {
                held.key.expires_at = None;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::sync::{Arc, Mutex};

    use super::*;
    use crate::conformance::keyring::KeyringBackend;
    use crate::keyring::Keys;

    struct Memory {
        seed: AtomicU64,
        last: Mutex<Option<Arc<MemoryKeyring>>>,
    }

    #[async_trait]
    impl KeyringBackend for Memory {
        async fn make(&self) -> Keys {
            let keys = Arc::new(MemoryKeyring::new(self.seed.fetch_add(1, Ordering::SeqCst)));
            *self.last.lock().unwrap() = Some(keys.clone());
            keys
        }

        async fn restart(&self, _keys: Keys) -> Keys {
            let mut last = self.last.lock().unwrap();
            let keys = Arc::new(last.as_ref().unwrap().restarted());
            *last = Some(keys.clone());
            keys
        }
    }

    crate::keyring_conformance!(Memory {
        seed: AtomicU64::new(1),
        last: Mutex::new(None)
    });
}
