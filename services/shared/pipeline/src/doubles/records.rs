//! The authority in memory: every read is a scan that says what the answer means.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anamnesis_domain::ids::{EventTag, LogId, MemoryId, OwnerKey};
use anamnesis_domain::memory::{Kind, Status};
use anamnesis_domain::owner::OwnerScope;
use anamnesis_domain::time::Known;
use async_trait::async_trait;

use super::versions::{Held, Versions};
use crate::digests;
use crate::feed::Batch;
use crate::paging::{Cursor, PAGE_VERSIONS_MAX, sort_key};
use crate::stores::{
    Change, Checkpoint, Cut, DecisionRow, Filter, MemoryVersion, Order, OwnerView, Page,
    Projection, Records, RowDigest, Store, StoreError,
};

pub struct MemoryRecords {
    state: Mutex<State>,
}

struct State {
    versions: Versions<Arc<MemoryVersion>>,
    /// By owner and sequence.
    decisions: BTreeMap<(OwnerKey, u64), DecisionRow>,
    views: BTreeMap<OwnerKey, OwnerView>,
}

impl MemoryRecords {
    pub fn new(log_id: LogId, partitions: u32) -> Self {
        Self {
            state: Mutex::new(State {
                versions: Versions::new(Store::Records, log_id, partitions),
                decisions: BTreeMap::new(),
                views: BTreeMap::new(),
            }),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn decisions_of(&self, owner: OwnerKey) -> impl Iterator<Item = &DecisionRow> {
        self.decisions
            .range((owner, 0)..=(owner, u64::MAX))
            .map(|(_, row)| row)
    }

    fn admitted(&self, filter: &Filter) -> impl Iterator<Item = MemoryVersion> {
        let held = self.versions.of(filter.scope);
        held.filter(|(_, _, held)| filter.admits(&held.facets))
            .map(|(_, _, held)| version_of(held))
    }
}

/// The version as it stands now: a later one may have closed it.
fn version_of(held: &Held<Arc<MemoryVersion>>) -> MemoryVersion {
    let mut version = MemoryVersion::clone(&held.payload);
    version.recorded_to = held.facets.recorded_to;
    version
}

#[async_trait]
impl Projection for MemoryRecords {
    fn store(&self) -> Store {
        Store::Records
    }

    async fn checkpoint(&self, partition: u32) -> Result<Option<Checkpoint>, StoreError> {
        Ok(self.lock().versions.checkpoint(partition))
    }

    async fn apply(
        &self,
        partition: u32,
        from: u64,
        changes: &[Change],
        next: Checkpoint,
    ) -> Result<(), StoreError> {
        let mut state = self.lock();
        let batch = Batch {
            partition,
            from,
            changes,
            next,
        };
        state
            .versions
            .apply(&batch, |version, _| Some(Arc::new(version.clone())))?;
        for change in changes {
            match change {
                Change::Decision(row) => {
                    state
                        .decisions
                        .insert((row.owner, row.owner_seq), row.clone());
                }
                Change::Owner(view) => {
                    state.views.insert(view.key, OwnerView::clone(view));
                }
                Change::Rewrite(rows) => {
                    state.decisions.retain(|(owner, _), _| *owner != rows.owner);
                    for row in &rows.decisions {
                        state
                            .decisions
                            .insert((row.owner, row.owner_seq), row.clone());
                    }
                    state.views.insert(rows.owner, rows.view.clone());
                }
                Change::Version {
                    version: _,
                    vector: _,
                } => (),
            }
        }
        Ok(())
    }

    async fn owners(&self) -> Result<Vec<OwnerKey>, StoreError> {
        let state = self.lock();
        let mut owners: BTreeSet<OwnerKey> = state.versions.owners().collect();
        owners.extend(state.decisions.keys().map(|(owner, _)| *owner));
        owners.extend(state.views.keys());
        Ok(owners.into_iter().collect())
    }

    async fn rows(&self, scope: OwnerScope) -> Result<Vec<RowDigest>, StoreError> {
        let state = self.lock();
        let mut rows: Vec<RowDigest> = state
            .versions
            .of(scope)
            .map(|(_, _, held)| {
                let version = version_of(held);
                RowDigest {
                    key: digests::version_key(&version),
                    hash: digests::records_hash(&version),
                }
            })
            .collect();
        rows.extend(
            state
                .decisions_of(scope.key())
                .map(digests::decision_digest),
        );
        rows.extend(state.views.get(&scope.key()).map(digests::owner_digest));
        rows.sort();
        Ok(rows)
    }

    async fn compact(&self) -> Result<(), StoreError> {
        Ok(())
    }
}

#[async_trait]
impl Records for MemoryRecords {
    async fn cut(&self, scope: OwnerScope, known: Known) -> Result<Cut, StoreError> {
        let state = self.lock();
        let latest = state.versions.position(scope);
        let at = match known {
            Known::Latest => return Ok(Cut(latest)),
            Known::At(at) => at,
        };
        let feed = state.versions.feed();
        let partition = feed.partition_of(scope.key());
        let later = state
            .decisions
            .values()
            .filter(|row| feed.partition_of(row.owner) == partition && row.recorded_at > at);
        Ok(Cut(later.map(|row| row.offset).min().unwrap_or(latest)))
    }

    async fn check(
        &self,
        filter: &Filter,
        ids: &[MemoryId],
    ) -> Result<Vec<MemoryVersion>, StoreError> {
        let state = self.lock();
        let admitted: BTreeMap<MemoryId, MemoryVersion> = state
            .admitted(filter)
            .map(|version| (version.memory.id, version))
            .collect();
        Ok(ids
            .iter()
            .filter_map(|id| admitted.get(id).cloned())
            .collect())
    }

    async fn history(
        &self,
        scope: OwnerScope,
        id: MemoryId,
    ) -> Result<Vec<MemoryVersion>, StoreError> {
        let state = self.lock();
        let held = state.versions.of(scope).filter(|(held, _, _)| *held == id);
        Ok(held.map(|(_, _, held)| version_of(held)).collect())
    }

    async fn list(
        &self,
        filter: &Filter,
        order: Order,
        limit: usize,
        cursor: Option<&str>,
    ) -> Result<Page, StoreError> {
        let limit = limit.clamp(1, PAGE_VERSIONS_MAX);
        let after = cursor.map(|text| Cursor::read(text, order)).transpose()?;
        let mut filter = filter.clone();
        if let Some(after) = after {
            filter.cut = after.cut;
        }
        let mut versions: Vec<MemoryVersion> = self
            .lock()
            .admitted(&filter)
            .filter(|version| after.is_none_or(|after| after.is_before(version)))
            .collect();
        versions.sort_by_key(|version| (Reverse(sort_key(order, version)), version.memory.id));
        let has_more = versions.len() > limit;
        versions.truncate(limit);
        let last = versions.last().filter(|_| has_more);
        let cursor = last.map(|version| Cursor::of(order, filter.cut, version).write());
        Ok(Page { versions, cursor })
    }

    async fn owner(&self, scope: OwnerScope) -> Result<Option<OwnerView>, StoreError> {
        Ok(self.lock().views.get(&scope.key()).cloned())
    }

    async fn decision(
        &self,
        scope: OwnerScope,
        event: EventTag,
    ) -> Result<Option<DecisionRow>, StoreError> {
        Ok(self
            .lock()
            .decisions_of(scope.key())
            .find(|row| row.event == event)
            .cloned())
    }

    async fn decision_offsets(&self, scope: OwnerScope) -> Result<Vec<u64>, StoreError> {
        let mut offsets: Vec<u64> = self
            .lock()
            .decisions_of(scope.key())
            .map(|row| row.offset)
            .collect();
        offsets.sort_unstable();
        Ok(offsets)
    }

    async fn counts(&self) -> Result<Vec<(Kind, Status, u64)>, StoreError> {
        let state = self.lock();
        let mut counts: BTreeMap<(Kind, Status), u64> = BTreeMap::new();
        let current = state.versions.all().map(|held| &held.facets);
        for facets in current.filter(|f| f.recorded_to.is_none() && !f.is_confirmation) {
            *counts.entry((facets.kind, facets.status)).or_insert(0) += 1;
        }
        Ok(counts
            .into_iter()
            .map(|((kind, status), count)| (kind, status, count))
            .collect())
    }
}
