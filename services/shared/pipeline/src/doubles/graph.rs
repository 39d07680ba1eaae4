//! One hop over an owner's entities, by brute force: what every graph store must answer.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use anamnesis_domain::ids::{LogId, MemoryId, OwnerKey};
use anamnesis_domain::memory::Entity;
use anamnesis_domain::owner::OwnerScope;
use anamnesis_domain::rank::hub_weight;
use async_trait::async_trait;

use super::versions::{Versions, row_key};
use crate::digests;
use crate::feed::Batch;
use crate::similarity;
use crate::stores::{
    Change, Checkpoint, Filter, GraphIndex, Hit, LegAnswer, Projection, RowDigest, Store,
    StoreError,
};

pub struct MemoryGraph {
    versions: Mutex<Versions<BTreeSet<Entity>>>,
}

impl MemoryGraph {
    pub fn new(log_id: LogId, partitions: u32) -> Self {
        Self {
            versions: Mutex::new(Versions::new(Store::Graph, log_id, partitions)),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Versions<BTreeSet<Entity>>> {
        self.versions.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl Projection for MemoryGraph {
    fn store(&self) -> Store {
        Store::Graph
    }

    async fn checkpoint(&self, partition: u32) -> Result<Option<Checkpoint>, StoreError> {
        Ok(self.lock().checkpoint(partition))
    }

    async fn apply(
        &self,
        partition: u32,
        from: u64,
        changes: &[Change],
        next: Checkpoint,
    ) -> Result<(), StoreError> {
        self.lock().apply(
            &Batch {
                partition,
                from,
                changes,
                next,
            },
            |version, _| Some(version.memory.claim.entities.iter().cloned().collect()),
        )
    }

    async fn owners(&self) -> Result<Vec<OwnerKey>, StoreError> {
        Ok(self.lock().owners().collect())
    }

    async fn rows(&self, scope: OwnerScope) -> Result<Vec<RowDigest>, StoreError> {
        let versions = self.lock();
        let rows = versions.of(scope).map(|(id, version, held)| {
            let entities: Vec<Entity> = held.payload.iter().cloned().collect();
            RowDigest {
                key: row_key(id, version),
                hash: digests::graph_hash(&held.facets, &entities),
            }
        });
        Ok(rows.collect())
    }

    async fn compact(&self) -> Result<(), StoreError> {
        Ok(())
    }
}

#[async_trait]
impl GraphIndex for MemoryGraph {
    async fn neighbours(
        &self,
        filter: &Filter,
        seeds: &[MemoryId],
        entities: &[Entity],
        top: usize,
    ) -> Result<LegAnswer, StoreError> {
        let versions = self.lock();
        let mut asked: BTreeSet<&Entity> = entities.iter().collect();
        for (_, _, held) in versions
            .live(filter)
            .filter(|(id, _, _)| seeds.contains(id))
        {
            asked.extend(&held.payload);
        }
        let admitted: Vec<_> = versions
            .of(filter.scope)
            .filter(|(_, _, held)| filter.admits(&held.facets))
            .collect();
        let weights: BTreeMap<&Entity, f64> = asked
            .into_iter()
            .map(|entity| {
                let having = admitted
                    .iter()
                    .filter(|(_, _, held)| held.payload.contains(entity));
                (entity, hub_weight(having.count() as u64))
            })
            .collect();
        let mut hits = Vec::new();
        for (memory_id, version, held) in admitted {
            // Ascending by entity, so that every backend adds in the same order.
            let shared = held.payload.iter().filter_map(|entity| weights.get(entity));
            let score: f64 = shared.sum();
            if score > 0.0 {
                hits.push(Hit {
                    memory_id,
                    version,
                    score,
                });
            }
        }
        let position = versions.position(filter.scope);
        Ok(LegAnswer {
            hits: similarity::best(hits, top),
            position,
        })
    }
}
