//! Which owners' vectors are at hand, and are they those of now?
//!
//! A block is read from a snapshot while others write. It is kept only when no batch ended between the
//! look into the cache and the put, and a batch drops the blocks of its owners before it is reported
//! as applied; so a search after `apply` sees what was applied.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anamnesis_domain::ids::OwnerKey;
use lru::LruCache;

use super::Block;

pub(super) struct BlockCache {
    bytes_max: usize,
    state: Mutex<State>,
}

struct State {
    blocks: LruCache<OwnerKey, Arc<Block>>,
    bytes: usize,
    /// How far each partition is applied, as the blocks are.
    positions: BTreeMap<u32, u64>,
    /// Batches that ended.
    turn: u64,
}

pub(super) enum Found {
    Block {
        block: Arc<Block>,
        position: u64,
    },
    /// To be given back with the block that was read instead.
    Nothing {
        turn: u64,
    },
}

impl BlockCache {
    pub(super) fn new(bytes_max: usize) -> Self {
        let state = State {
            blocks: LruCache::unbounded(),
            bytes: 0,
            positions: BTreeMap::new(),
            turn: 0,
        };
        Self {
            bytes_max,
            state: Mutex::new(state),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn get(&self, owner: OwnerKey, partition: u32) -> Found {
        let mut state = self.lock();
        let position = state.positions.get(&partition).copied();
        let turn = state.turn;
        match (state.blocks.get(&owner), position) {
            (Some(block), Some(position)) => Found::Block {
                block: block.clone(),
                position,
            },
            (Some(_) | None, _) => Found::Nothing { turn },
        }
    }

    pub(super) fn put(
        &self,
        owner: OwnerKey,
        partition: u32,
        block: &Arc<Block>,
        position: u64,
        turn: u64,
    ) {
        let mut state = self.lock();
        if state.turn != turn || block.bytes() > self.bytes_max {
            return;
        }
        state.positions.insert(partition, position);
        state.bytes += block.bytes();
        if let Some(before) = state.blocks.put(owner, block.clone()) {
            state.bytes -= before.bytes();
        }
        while state.bytes > self.bytes_max {
            let Some((_, oldest)) = state.blocks.pop_lru() else {
                break;
            };
            state.bytes -= oldest.bytes();
        }
    }

    /// A batch is over: the blocks of its owners are dropped. `position` is where the partition then
    /// stands; `None` when the batch failed.
    pub(super) fn batch_ended(
        &self,
        partition: u32,
        owners: &BTreeSet<OwnerKey>,
        position: Option<u64>,
    ) {
        let mut state = self.lock();
        state.turn += 1;
        match position {
            Some(position) => state.positions.insert(partition, position),
            // A commit whose outcome is unknown: the next search asks the file.
            None => state.positions.remove(&partition),
        };
        for owner in owners {
            if let Some(block) = state.blocks.pop(owner) {
                state.bytes -= block.bytes();
            }
        }
    }
}
