//! What the four in-memory projections share: versions per owner, with their facets, and checkpoints.

use std::collections::BTreeMap;
use std::sync::Arc;

use anamnesis_domain::ids::{LogId, MemoryId, OwnerKey};
use anamnesis_domain::owner::OwnerScope;

use crate::feed::{Batch, Feed};
use crate::stores::{
    Change, Checkpoint, Facets, Filter, MemoryVersion, OwnerRows, Store, StoreError,
};

/// One version as a store keeps it: its facets, and what only this store holds of it.
pub(super) struct Held<P> {
    pub(super) facets: Facets,
    pub(super) payload: P,
}

type OwnerVersions<P> = BTreeMap<(MemoryId, u64), Held<P>>;

pub(super) struct Versions<P> {
    store: Store,
    feed: Feed,
    checkpoints: BTreeMap<u32, u64>,
    owners: BTreeMap<OwnerKey, OwnerVersions<P>>,
}

/// What a store takes from a version; `None` when it holds nothing of it.
pub(super) type Project<P> = fn(&MemoryVersion, Option<&Arc<[f32]>>) -> Option<P>;

impl<P> Versions<P> {
    pub(super) fn new(store: Store, log_id: LogId, partitions: u32) -> Self {
        Self {
            store,
            feed: Feed { log_id, partitions },
            checkpoints: BTreeMap::new(),
            owners: BTreeMap::new(),
        }
    }

    pub(super) fn feed(&self) -> Feed {
        self.feed
    }

    pub(super) fn checkpoint(&self, partition: u32) -> Option<Checkpoint> {
        let next = *self.checkpoints.get(&partition)?;
        Some(Checkpoint {
            log_id: self.feed.log_id,
            next,
        })
    }

    /// How far the owner's partition has been applied.
    pub(super) fn position(&self, scope: OwnerScope) -> u64 {
        let partition = self.feed.partition_of(scope.key());
        self.checkpoints.get(&partition).copied().unwrap_or(0)
    }

    /// Applies what concerns versions; the caller has done its own checks before.
    pub(super) fn apply(
        &mut self,
        batch: &Batch<'_>,
        project: Project<P>,
    ) -> Result<(), StoreError> {
        let stored = self.checkpoints.get(&batch.partition).copied().unwrap_or(0);
        self.feed.check(self.store, stored, batch)?;
        for change in batch.changes {
            match change {
                Change::Version { version, vector } => self.add(version, vector.as_ref(), project),
                Change::Rewrite(rows) => self.rewrite(rows, project),
                Change::Decision(_) | Change::Owner(_) => (),
            }
        }
        self.checkpoints.insert(batch.partition, batch.next.next);
        Ok(())
    }

    fn add(&mut self, version: &MemoryVersion, vector: Option<&Arc<[f32]>>, project: Project<P>) {
        let id = version.memory.id;
        if let Some(held) = self.owners.get_mut(&version.owner) {
            let earlier = held.range_mut((id, 0)..(id, version.memory.version));
            for (_, open) in earlier.filter(|(_, held)| held.facets.recorded_to.is_none()) {
                open.facets.recorded_to = Some(version.recorded_from);
            }
        }
        self.insert(version, vector, project);
    }

    fn rewrite(&mut self, rows: &OwnerRows, project: Project<P>) {
        self.owners.remove(&rows.owner);
        for (version, vector) in &rows.versions {
            self.insert(version, vector.as_ref(), project);
        }
    }

    fn insert(
        &mut self,
        version: &MemoryVersion,
        vector: Option<&Arc<[f32]>>,
        project: Project<P>,
    ) {
        let Some(payload) = project(version, vector) else {
            return;
        };
        let key = (version.memory.id, version.memory.version);
        let held = Held {
            facets: version.facets(),
            payload,
        };
        self.owners
            .entry(version.owner)
            .or_default()
            .insert(key, held);
    }

    pub(super) fn owners(&self) -> impl Iterator<Item = OwnerKey> + '_ {
        self.owners.keys().copied()
    }

    /// Every version of one owner, by memory id and version.
    pub(super) fn of(&self, scope: OwnerScope) -> impl Iterator<Item = (MemoryId, u64, &Held<P>)> {
        let held = self.owners.get(&scope.key()).into_iter().flatten();
        held.map(|((id, version), held)| (*id, *version, held))
    }

    /// Every version, of all owners.
    pub(super) fn all(&self) -> impl Iterator<Item = &Held<P>> {
        self.owners.values().flat_map(BTreeMap::values)
    }

    /// The versions that were current at the filter's cut.
    pub(super) fn live(&self, filter: &Filter) -> impl Iterator<Item = (MemoryId, u64, &Held<P>)> {
        self.of(filter.scope)
            .filter(|(_, _, held)| filter.is_live(&held.facets))
    }
}

pub(super) fn row_key(id: MemoryId, version: u64) -> String {
    format!("{id}/{version:010}")
}
