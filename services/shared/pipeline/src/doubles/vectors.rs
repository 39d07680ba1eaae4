//! Cosine by brute force over an owner's vectors: what every vector index must answer.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anamnesis_domain::ids::{LogId, OwnerKey};
use anamnesis_domain::owner::OwnerScope;
use async_trait::async_trait;

use super::versions::{Versions, row_key};
use crate::digests;
use crate::embedder::ModelIdentity;
use crate::feed::{self, Batch};
use crate::similarity;
use crate::stores::{
    Change, Checkpoint, Filter, Hit, LegAnswer, Projection, RowDigest, Store, StoreError,
    VectorIndex,
};

pub struct MemoryVectors {
    model: ModelIdentity,
    versions: Mutex<Versions<Arc<[f32]>>>,
}

impl MemoryVectors {
    pub fn new(log_id: LogId, partitions: u32, model: ModelIdentity) -> Self {
        Self {
            model,
            versions: Mutex::new(Versions::new(Store::Vectors, log_id, partitions)),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Versions<Arc<[f32]>>> {
        self.versions.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl Projection for MemoryVectors {
    fn store(&self) -> Store {
        Store::Vectors
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
        feed::check_dimension(changes, &self.model)?;
        self.lock().apply(
            &Batch {
                partition,
                from,
                changes,
                next,
            },
            |_, vector| vector.cloned(),
        )
    }

    async fn owners(&self) -> Result<Vec<OwnerKey>, StoreError> {
        Ok(self.lock().owners().collect())
    }

    async fn rows(&self, scope: OwnerScope) -> Result<Vec<RowDigest>, StoreError> {
        let versions = self.lock();
        let rows = versions.of(scope).map(|(id, version, held)| RowDigest {
            key: row_key(id, version),
            hash: digests::vector_hash(&held.facets, &held.payload),
        });
        Ok(rows.collect())
    }

    async fn compact(&self) -> Result<(), StoreError> {
        Ok(())
    }
}

#[async_trait]
impl VectorIndex for MemoryVectors {
    fn model(&self) -> &ModelIdentity {
        &self.model
    }

    async fn search(
        &self,
        filter: &Filter,
        query: &[f32],
        top: usize,
    ) -> Result<LegAnswer, StoreError> {
        feed::check_query(query, &self.model)?;
        let versions = self.lock();
        let admitted = versions
            .of(filter.scope)
            .filter(|(_, _, held)| filter.admits(&held.facets));
        let hits = admitted
            .map(|(memory_id, version, held)| Hit {
                memory_id,
                version,
                score: f64::from(similarity::dot(&held.payload, query)),
            })
            .collect();
        let position = versions.position(filter.scope);
        Ok(LegAnswer {
            hits: similarity::best(hits, top),
            position,
        })
    }
}
