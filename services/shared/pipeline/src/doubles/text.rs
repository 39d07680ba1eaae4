//! BM25 by brute force over an owner's versions: what every text index must answer.

use std::sync::{Mutex, MutexGuard, PoisonError};

use anamnesis_domain::bm25::{self, Population};
use anamnesis_domain::ids::{LogId, OwnerKey};
use anamnesis_domain::owner::OwnerScope;
use async_trait::async_trait;

use super::versions::{Versions, row_key};
use crate::beside::{Place, Stand, neighbours};
use crate::digests;
use crate::feed::Batch;
use crate::similarity;
use crate::stores::{
    Change, Checkpoint, Filter, Hit, LegAnswer, Projection, RowDigest, Store, StoreError, TextIndex,
};

/// Terms with their frequencies, ascending, and where the version stands in its conversation.
struct Terms {
    terms: Vec<(String, u32)>,
    place: Option<Place>,
}

pub struct MemoryText {
    versions: Mutex<Versions<Terms>>,
}

impl MemoryText {
    pub fn new(log_id: LogId, partitions: u32) -> Self {
        Self {
            versions: Mutex::new(Versions::new(Store::Text, log_id, partitions)),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Versions<Terms>> {
        self.versions.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn frequency(terms: &Terms, term: &str) -> u32 {
    let terms = &terms.terms;
    let place = terms.binary_search_by(|(held, _)| held.as_str().cmp(term));
    place.map_or(0, |place| terms[place].1)
}

fn length(terms: &Terms) -> u64 {
    let terms = terms.terms.iter();
    terms.map(|(_, frequency)| u64::from(*frequency)).sum()
}

#[async_trait]
impl Projection for MemoryText {
    fn store(&self) -> Store {
        Store::Text
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
            |version, _| {
                Some(Terms {
                    terms: digests::term_frequencies(&version.memory),
                    place: Place::of(&version.memory),
                })
            },
        )
    }

    async fn owners(&self) -> Result<Vec<OwnerKey>, StoreError> {
        Ok(self.lock().owners().collect())
    }

    async fn rows(&self, scope: OwnerScope) -> Result<Vec<RowDigest>, StoreError> {
        let versions = self.lock();
        let rows = versions.of(scope).map(|(id, version, held)| RowDigest {
            key: row_key(id, version),
            hash: digests::text_hash(&held.facets, &held.payload.terms, held.payload.place),
        });
        Ok(rows.collect())
    }

    async fn compact(&self) -> Result<(), StoreError> {
        Ok(())
    }
}

#[async_trait]
impl TextIndex for MemoryText {
    async fn search(
        &self,
        filter: &Filter,
        terms: &[String],
        top: usize,
    ) -> Result<LegAnswer, StoreError> {
        let versions = self.lock();
        let live: Vec<_> = versions.live(filter).collect();
        let stands: Vec<Stand> = live
            .iter()
            .map(|(memory, _, held)| Stand {
                place: held.payload.place,
                recorded_from: held.facets.recorded_from,
                memory: *memory,
            })
            .collect();
        let beside = neighbours(&stands);
        let lengths: Vec<f64> = live
            .iter()
            .zip(&beside)
            .map(|((_, _, held), beside)| {
                let of = |one: usize| length(&live[one].2.payload);
                let around = beside.iter().flatten().map(|one| of(*one)).sum();
                bm25::weighted(length(&held.payload), around)
            })
            .collect();
        let mut population = Population::default();
        for ((_, _, held), length) in live.iter().zip(&lengths) {
            if !held.facets.is_confirmation {
                population.versions += 1;
                population.tokens += length;
            }
        }
        let with_term = |term: &str| {
            live.iter()
                .filter(|(_, _, held)| !held.facets.is_confirmation)
                .filter(|(_, _, held)| frequency(&held.payload, term) > 0)
                .count() as u64
        };
        let weights: Vec<(&str, u64)> = terms
            .iter()
            .map(|term| (term.as_str(), with_term(term)))
            .collect();
        let mut hits = Vec::new();
        for (at, (memory_id, version, held)) in live.iter().enumerate() {
            if !filter.admits(&held.facets) {
                continue;
            }
            let mut score = 0.0;
            for (term, with_term) in &weights {
                let around = beside[at]
                    .iter()
                    .flatten()
                    .map(|one| &live[*one].2)
                    .filter(|held| filter.hears(&held.facets))
                    .map(|held| u64::from(frequency(&held.payload, term)))
                    .sum();
                let own = u64::from(frequency(&held.payload, term));
                let frequency = bm25::weighted(own, around);
                score += bm25::term_score(population, *with_term, frequency, lengths[at]);
            }
            if score > 0.0 {
                hits.push(Hit {
                    memory_id: *memory_id,
                    version: *version,
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
