//! Which of an owner's memories share something with these? Entities and their memories, in a Neo4j
//! server.
//!
//! The same answers and the same digests as the embedded graph. What stands in the database is told in
//! [`schema`], why no word stands there as it is in [`words`], and when erased bytes are gone in
//! [`erase`]. A generation is a name that all its nodes carry, so that several live in one database.

mod client;
mod erase;
mod generations;
mod node;
mod read;
mod schema;
mod settings;
mod words;
mod write;

use std::num::NonZeroUsize;
use std::sync::{Mutex, MutexGuard, PoisonError};

use anamnesis_domain::ids::{MemoryId, OwnerKey};
use anamnesis_domain::memory::Entity;
use anamnesis_domain::owner::OwnerScope;
use anamnesis_pipeline::feed::{Batch, Feed};
use anamnesis_pipeline::similarity;
use anamnesis_pipeline::stores::{
    Change, Checkpoint, Filter, GraphIndex, LegAnswer, Projection, RowDigest, Store, StoreError,
};
use async_trait::async_trait;
use lru::LruCache;
use tokio::time::Instant;

use client::Client;
use read::Whom;
use words::Secret;

pub use generations::Neo4jGenerations;
pub use settings::Neo4jConfig;

/// Secrets that are remembered, so that a question takes one round trip.
const SECRETS_MAX: NonZeroUsize = NonZeroUsize::new(10_000).expect("not zero");

/// An owner that is rewritten again and again while it is asked about is not asked for ever.
const ATTEMPTS_MAX: u32 = 5;

/// One generation of the graph in a Neo4j database.
pub struct Neo4jGraph {
    client: Client,
    config: Neo4jConfig,
    feed: Feed,
    secrets: Mutex<LruCache<OwnerKey, Secret>>,
    constraints_checked: Mutex<Instant>,
}

impl Neo4jGraph {
    /// Connects, makes the constraints that are missing, and finds or makes the generation.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] while there is no server, [`StoreError::OtherLog`],
    /// [`StoreError::Damaged`] for nodes that exist twice or a generation that is half deleted, or
    /// [`StoreError::Unusable`] for another format, a wrong password or a wrong configuration.
    pub async fn open(config: &Neo4jConfig, feed: Feed) -> Result<Self, StoreError> {
        let client = Client::new(config)?;
        schema::make_constraints(&client, config).await?;
        schema::open_generation(&client, config, feed).await?;
        Ok(Self {
            client,
            config: config.clone(),
            feed,
            secrets: Mutex::new(LruCache::new(SECRETS_MAX)),
            constraints_checked: Mutex::new(Instant::now()),
        })
    }

    /// Deletes the configured generation, whole or damaged; also one that does not exist.
    ///
    /// # Errors
    /// As for any question. What was deleted stays deleted; call it again.
    pub async fn delete_generation(config: &Neo4jConfig) -> Result<(), StoreError> {
        erase::delete_generation(&Client::new(config)?, config).await
    }

    fn secrets(&self) -> MutexGuard<'_, LruCache<OwnerKey, Secret>> {
        self.secrets.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn whom(&self, scope: OwnerScope) -> Whom<'_> {
        Whom {
            generation: &self.config.generation,
            partition: self.feed.partition_of(scope.key()),
            owner: scope.key(),
        }
    }

    /// Refuses to write while a constraint is missing. Looks again from time to time only.
    async fn check_constraints(&self) -> Result<(), StoreError> {
        let checked = *self
            .constraints_checked
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if checked.elapsed() < self.config.check_constraints_every {
            return Ok(());
        }
        self.client
            .call(self.config.deadline, || {
                schema::check_constraints(&self.client)
            })
            .await?;
        *self
            .constraints_checked
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = Instant::now();
        Ok(())
    }
}

#[async_trait]
impl Projection for Neo4jGraph {
    fn store(&self) -> Store {
        Store::Graph
    }

    async fn checkpoint(&self, partition: u32) -> Result<Option<Checkpoint>, StoreError> {
        let generation = &self.config.generation;
        let next = self
            .client
            .call(self.config.deadline, || {
                read::next(&self.client, generation, partition)
            })
            .await?;
        let log_id = self.feed.log_id;
        Ok(next.map(|next| Checkpoint { log_id, next }))
    }

    async fn apply(
        &self,
        partition: u32,
        from: u64,
        changes: &[Change],
        next: Checkpoint,
    ) -> Result<(), StoreError> {
        self.check_constraints().await?;
        let batch = Batch {
            partition,
            from,
            changes,
            next,
        };
        let (client, generation) = (&self.client, self.config.generation.as_str());
        let secrets = client
            .call(self.config.write_deadline, || {
                write::apply(client, generation, self.feed, &batch)
            })
            .await?;
        let mut known = self.secrets();
        for (owner, secret) in secrets {
            known.put(owner, secret);
        }
        Ok(())
    }

    async fn owners(&self) -> Result<Vec<OwnerKey>, StoreError> {
        let generation = &self.config.generation;
        self.client
            .call(self.config.write_deadline, || {
                read::owners(&self.client, generation)
            })
            .await
    }

    async fn rows(&self, scope: OwnerScope) -> Result<Vec<RowDigest>, StoreError> {
        let whom = self.whom(scope);
        for _ in 0..ATTEMPTS_MAX {
            let rows = self
                .client
                .call(self.config.write_deadline, || {
                    read::digests_of(&self.client, whom)
                })
                .await?;
            if let Some(rows) = rows {
                return Ok(rows);
            }
        }
        Err(rewritten_meanwhile())
    }

    async fn compact(&self) -> Result<(), StoreError> {
        erase::compact(&self.client, &self.config).await
    }
}

#[async_trait]
impl GraphIndex for Neo4jGraph {
    async fn neighbours(
        &self,
        filter: &Filter,
        seeds: &[MemoryId],
        entities: &[Entity],
        top: usize,
    ) -> Result<LegAnswer, StoreError> {
        let (client, whom) = (&self.client, self.whom(filter.scope));
        let deadline = self.config.deadline;
        let mut secret = self.secrets().get(&whom.owner).cloned();
        for _ in 0..ATTEMPTS_MAX {
            let answer = match &secret {
                Some(secret) => {
                    client
                        .call(deadline, || {
                            read::neighbours(client, whom, secret, filter, seeds, entities)
                        })
                        .await?
                }
                None => client.call(deadline, || read::stands(client, whom)).await?,
            };
            if answer.secret.is_none() || answer.secret == secret {
                return Ok(LegAnswer {
                    hits: similarity::best(answer.hits, top),
                    position: answer.position,
                });
            }
            // Not asked about before, or rewritten since: asked again with the secret of now.
            if let Some(now) = &answer.secret {
                self.secrets().put(whom.owner, now.clone());
            }
            secret = answer.secret;
        }
        Err(rewritten_meanwhile())
    }
}

fn rewritten_meanwhile() -> StoreError {
    StoreError::Unavailable {
        store: Store::Graph,
        reason: "neo4j: the owner is being rewritten".to_owned(),
    }
}
