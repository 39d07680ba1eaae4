//! Which owners' states are kept in memory between batches?

use std::collections::BTreeMap;

use anamnesis_domain::ids::OwnerKey;
use anamnesis_domain::state::OwnerState;

/// Claims of all kept owners together, in one stage of one partition; about 1.5 KiB each.
const CLAIMS_MAX: usize = 50_000;
/// The same in all partitions, where these are few: their owners are as many as those of more partitions.
const CLAIMS_MAX_OF_ALL: usize = 200_000;

/// States of owners, each rebuilt from the log by its holder when it is missing. Above a bound on
/// their size, the owners used longest ago are dropped, but never those of the latest batch: an owner
/// beyond the bound would be rebuilt for every batch.
pub struct OwnerStates {
    states: BTreeMap<OwnerKey, (OwnerState, u64)>,
    turn: u64,
    claims_max: usize,
}

impl OwnerStates {
    /// For one of so many partitions of the log.
    pub fn of_one_in(partitions: u32) -> Self {
        Self {
            states: BTreeMap::new(),
            turn: 0,
            claims_max: CLAIMS_MAX.max(CLAIMS_MAX_OF_ALL / partitions.max(1) as usize),
        }
    }

    /// A new batch begins: what is used from here on was used later than all before.
    pub fn begin_batch(&mut self) {
        self.turn += 1;
    }

    pub fn contains(&self, owner: OwnerKey) -> bool {
        self.states.contains_key(&owner)
    }

    /// The state, without counting as a use.
    pub fn peek(&self, owner: OwnerKey) -> Option<&OwnerState> {
        self.states.get(&owner).map(|(state, _)| state)
    }

    pub fn get(&mut self, owner: OwnerKey) -> Option<&mut OwnerState> {
        let (state, used) = self.states.get_mut(&owner)?;
        *used = self.turn;
        Some(state)
    }

    pub fn insert(&mut self, state: OwnerState) {
        self.states.insert(state.key, (state, self.turn));
    }

    pub fn remove(&mut self, owner: OwnerKey) {
        self.states.remove(&owner);
    }

    /// Drops what was used longest ago when all together are too large.
    pub fn trim(&mut self) {
        self.trim_to(self.claims_max);
    }

    fn trim_to(&mut self, claims_max: usize) {
        let mut left: usize = self.states.values().map(|(state, _)| size(state)).sum();
        if left <= claims_max {
            return;
        }
        let mut by_use: Vec<(u64, OwnerKey)> = self
            .states
            .iter()
            .map(|(owner, (_, used))| (*used, *owner))
            .collect();
        by_use.sort_unstable();
        for (used, owner) in by_use {
            if left <= claims_max / 2 || used == self.turn {
                break;
            }
            if let Some((state, _)) = self.states.remove(&owner) {
                left -= size(&state);
            }
        }
    }
}

/// An owner without claims costs something too.
fn size(state: &OwnerState) -> usize {
    state.claims.len() + 1
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owner(number: u8) -> OwnerKey {
        OwnerKey::from_bytes([number; 16])
    }

    #[test]
    fn few_partitions_keep_as_much_as_four() {
        let of = |partitions| OwnerStates::of_one_in(partitions).claims_max;
        assert_eq!([1, 2, 4, 32].map(of), [200_000, 100_000, 50_000, 50_000]);
    }

    #[test]
    fn what_was_used_longest_ago_goes_first() {
        let mut states = OwnerStates::of_one_in(4);
        for number in 0..10 {
            states.begin_batch();
            states.insert(OwnerState::new(owner(number)));
        }
        states.begin_batch();
        assert!(states.get(owner(0)).is_some());
        states.trim_to(10);
        assert!((0..10).all(|number| states.contains(owner(number))));
        states.trim_to(9);
        let kept: Vec<u8> = (0..10).filter(|n| states.contains(owner(*n))).collect();
        assert_eq!(kept, [0, 7, 8, 9]);
        states.trim_to(0);
        let kept: Vec<u8> = (0..10).filter(|n| states.contains(owner(*n))).collect();
        assert_eq!(kept, [0], "the latest batch's owner stays");
    }
}
