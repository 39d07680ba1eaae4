//! Who asks the live generation of a store, and who fills it? Opened when it is first needed, so that a
//! service starts while the server is down; looked up again from time to time, so that a switch
//! reaches every process within [`LOOK_EVERY`].
//!
//! A writer finds after a switch that the new generation stands elsewhere ([`StoreError::Moved`]), and
//! its stage begins again from there.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anamnesis_domain::ids::{MemoryId, OwnerKey};
use anamnesis_domain::memory::Entity;
use anamnesis_domain::owner::OwnerScope;
use anamnesis_pipeline::clock::Clock;
use anamnesis_pipeline::embedder::ModelIdentity;
use anamnesis_pipeline::feed::Feed;
use anamnesis_pipeline::stores::{
    Change, Checkpoint, Filter, GraphIndex, LegAnswer, Projection, RowDigest, Store, StoreError,
    VectorIndex,
};
use async_trait::async_trait;
use tokio::sync::Mutex;
use tokio::time::Instant;

use crate::generations::{FIRST, Generations, outdated};
use crate::neo4j::{Neo4jConfig, Neo4jGenerations, Neo4jGraph};
use crate::qdrant::config::QdrantConfig;
use crate::qdrant::generations::QdrantGenerations;
use crate::qdrant::{Place, QdrantVectors};

/// How long a process may go on with a generation after another was made the live one.
pub const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Opens one generation of a store.
#[async_trait]
pub trait Open: Send + Sync {
    type Opened: Projection;

    fn store(&self) -> Store;

    async fn open(&self, generation: &str) -> Result<Self::Opened, StoreError>;
}

/// What this process does with the store.
#[derive(Clone)]
pub enum Access {
    /// Only questions. Nothing is made.
    Read,
    /// The first generation is made when none is there, and what an erasure outdates is deleted. The
    /// clock says which builds were given up.
    Write(Arc<dyn Clock>),
}

/// The live generation of one store.
pub struct Live<O: Open> {
    opener: O,
    generations: Arc<dyn Generations>,
    access: Access,
    current: Mutex<Option<Current<O::Opened>>>,
    /// Who asked for the server's files to be rewritten, counted.
    asked: AtomicU64,
    /// Up to which of them it was done. Held while it is being done.
    compacted: Mutex<u64>,
}

struct Current<S> {
    generation: String,
    store: Arc<S>,
    looked: Instant,
}

impl<O: Open> Live<O> {
    pub fn new(opener: O, generations: Arc<dyn Generations>, access: Access) -> Self {
        Self {
            opener,
            generations,
            access,
            current: Mutex::new(None),
            asked: AtomicU64::new(0),
            compacted: Mutex::new(0),
        }
    }

    pub fn generations(&self) -> Arc<dyn Generations> {
        self.generations.clone()
    }

    async fn current(&self) -> Result<Arc<O::Opened>, StoreError> {
        let mut current = self.current.lock().await;
        if let Some(current) = &*current
            && current.looked.elapsed() < LOOK_EVERY
        {
            return Ok(current.store.clone());
        }
        let generation = self.live().await?;
        if let Some(current) = current
            .as_mut()
            .filter(|current| current.generation == generation)
        {
            current.looked = Instant::now();
            return Ok(current.store.clone());
        }
        let store = Arc::new(self.opener.open(&generation).await?);
        tracing::info!(store = %self.opener.store(), generation, "this generation is live");
        *current = Some(Current {
            generation,
            store: store.clone(),
            looked: Instant::now(),
        });
        Ok(store)
    }

    async fn live(&self) -> Result<String, StoreError> {
        if let Some(live) = self.generations.live().await? {
            return Ok(live);
        }
        match self.access {
            Access::Read => Err(StoreError::Unavailable {
                store: self.opener.store(),
                reason: "no generation is live yet".to_owned(),
            }),
            Access::Write(_) => {
                self.opener.open(FIRST).await?;
                self.generations.switch(FIRST).await?;
                Ok(FIRST.to_owned())
            }
        }
    }

    /// Deletes what an erasure would not reach.
    async fn delete_outdated(&self, clock: &dyn Clock) -> Result<(), StoreError> {
        let Some(live) = self.generations.live().await? else {
            return Ok(());
        };
        for generation in outdated(&self.generations.list().await?, &live, clock.now()) {
            self.generations.delete(generation).await?;
            tracing::info!(store = %self.opener.store(), generation, "deleted: an erasure does not reach it");
        }
        Ok(())
    }
}

#[async_trait]
impl<O: Open> Projection for Live<O> {
    fn store(&self) -> Store {
        self.opener.store()
    }

    async fn checkpoint(&self, partition: u32) -> Result<Option<Checkpoint>, StoreError> {
        self.current().await?.checkpoint(partition).await
    }

    async fn apply(
        &self,
        partition: u32,
        from: u64,
        changes: &[Change],
        next: Checkpoint,
    ) -> Result<(), StoreError> {
        let current = self.current().await?;
        // Before the erasure counts as applied: a repeat does it again.
        if let Access::Write(clock) = &self.access
            && changes
                .iter()
                .any(|change| matches!(change, Change::Rewrite(_)))
        {
            self.delete_outdated(&**clock).await?;
        }
        current.apply(partition, from, changes, next).await
    }

    async fn owners(&self) -> Result<Vec<OwnerKey>, StoreError> {
        self.current().await?.owners().await
    }

    async fn rows(&self, scope: OwnerScope) -> Result<Vec<RowDigest>, StoreError> {
        self.current().await?.rows(scope).await
    }

    /// Once for all partitions that wait for it: the files are the server's.
    async fn compact(&self) -> Result<(), StoreError> {
        let ticket = self.asked.fetch_add(1, Ordering::SeqCst) + 1;
        let mut compacted = self.compacted.lock().await;
        if *compacted >= ticket {
            return Ok(());
        }
        let asked = self.asked.load(Ordering::SeqCst);
        self.current().await?.compact().await?;
        *compacted = asked;
        Ok(())
    }
}

/// Vectors in Qdrant.
pub struct OpenVectors {
    config: QdrantConfig,
    feed: Feed,
    model: ModelIdentity,
}

pub type LiveVectors = Live<OpenVectors>;

/// The live vectors in Qdrant. Nothing is sent yet.
///
/// # Errors
/// [`StoreError::Unusable`] for a configuration that cannot be used.
pub fn vectors(
    config: &QdrantConfig,
    feed: Feed,
    model: ModelIdentity,
    access: Access,
) -> Result<LiveVectors, StoreError> {
    let opener = OpenVectors {
        config: config.clone(),
        feed,
        model,
    };
    let generations = Arc::new(QdrantGenerations::connect(config)?);
    Ok(Live::new(opener, generations, access))
}

#[async_trait]
impl Open for OpenVectors {
    type Opened = QdrantVectors;

    fn store(&self) -> Store {
        Store::Vectors
    }

    async fn open(&self, generation: &str) -> Result<QdrantVectors, StoreError> {
        let place = Place::Generation(generation.to_owned());
        QdrantVectors::open(&self.config, place, self.feed, self.model.clone()).await
    }
}

#[async_trait]
impl VectorIndex for LiveVectors {
    fn model(&self) -> &ModelIdentity {
        &self.opener.model
    }

    async fn search(
        &self,
        filter: &Filter,
        query: &[f32],
        top: usize,
    ) -> Result<LegAnswer, StoreError> {
        self.current().await?.search(filter, query, top).await
    }
}

/// The graph in Neo4j.
pub struct OpenGraph {
    config: Neo4jConfig,
    feed: Feed,
}

pub type LiveGraph = Live<OpenGraph>;

/// The live graph in Neo4j. Nothing is sent yet.
///
/// # Errors
/// [`StoreError::Unusable`] for a configuration that cannot be used.
pub fn graph(config: &Neo4jConfig, feed: Feed, access: Access) -> Result<LiveGraph, StoreError> {
    let opener = OpenGraph {
        config: config.clone(),
        feed,
    };
    let generations = Arc::new(Neo4jGenerations::new(config)?);
    Ok(Live::new(opener, generations, access))
}

#[async_trait]
impl Open for OpenGraph {
    type Opened = Neo4jGraph;

    fn store(&self) -> Store {
        Store::Graph
    }

    async fn open(&self, generation: &str) -> Result<Neo4jGraph, StoreError> {
        Neo4jGraph::open(&self.config.of_generation(generation), self.feed).await
    }
}

#[async_trait]
impl GraphIndex for LiveGraph {
    async fn neighbours(
        &self,
        filter: &Filter,
        seeds: &[MemoryId],
        entities: &[Entity],
        top: usize,
    ) -> Result<LegAnswer, StoreError> {
        let current = self.current().await?;
        current.neighbours(filter, seeds, entities, top).await
    }
}
