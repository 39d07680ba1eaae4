//! Which parts make up a node, from the configuration: a base, and the stores that its role has.

use std::collections::BTreeMap;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use anamnesis_adapters::graph::SqliteGraph;
use anamnesis_adapters::master_key::MasterKeyError;
use anamnesis_adapters::records::SqliteRecords;
use anamnesis_adapters::text::TantivyText;
use anamnesis_adapters::vectors::SqliteVectors;
use anamnesis_domain::input::Topic;
use anamnesis_pipeline::clock::{Clock, SystemClock};
use anamnesis_pipeline::consumer::StageError;
use anamnesis_pipeline::embedder::{Embed, EmbedError};
use anamnesis_pipeline::keyring::KeyringError;
use anamnesis_pipeline::log::{Log, LogError};
use anamnesis_pipeline::pace::Pace;
use anamnesis_pipeline::stores::{GraphIndex, Projection, Store, StoreError, Stores, VectorIndex};
use anamnesis_servers::generations::{Generations as ServerGenerations, begun_at};
use anamnesis_servers::live::{self, Access};
use anamnesis_servers::neo4j::Neo4jGraph;
use anamnesis_servers::qdrant::{Place, QdrantVectors};
use anamnesis_servers::shard::client;

use crate::base::Base;
use crate::config::{Config, GraphConfig, LogConfig, RecordsConfig, VectorsConfig};
use crate::generations::{Generations, GenerationsError};
use crate::role::Role;

/// A commit takes some ten milliseconds of a processor: ten milliseconds are gathered per change of the last one, and
/// 50 where many come.
const TEXT_COMMIT_PACE: Pace =
    Pace::gathering(Duration::from_millis(10), Duration::from_millis(50), 200);

/// Why a node could not be opened, or stopped.
#[derive(Debug, thiserror::Error)]
pub enum NodeError {
    #[error(transparent)]
    Log(#[from] LogError),
    #[error(transparent)]
    Keyring(#[from] KeyringError),
    #[error(transparent)]
    MasterKey(#[from] MasterKeyError),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Embed(#[from] EmbedError),
    #[error(transparent)]
    Stage(#[from] StageError),
    #[error(transparent)]
    Generations(#[from] GenerationsError),
    #[error("{what}: {source}")]
    Io {
        what: String,
        source: std::io::Error,
    },
    #[error("{what}")]
    WrongUse { what: String },
    /// A running part stopped without being asked to.
    #[error("{part} has stopped: {reason}")]
    Stopped { part: String, reason: String },
}

/// Everything that services are made of.
pub struct Node {
    pub base: Base,
    pub stores: Stores,
    pub embed: Embed,
    /// Of the stores in the data folder.
    pub generations: Generations,
    /// Of the stores on servers.
    pub remote: Remote,
}

/// The generations of each store that a server holds, and the one that is being built.
pub type Remote = BTreeMap<Store, RemoteStore>;

pub struct RemoteStore {
    pub generations: Arc<dyn ServerGenerations>,
    /// The generation that this node opened in place of the live one.
    pub building: Option<String>,
}

impl Deref for Node {
    type Target = Base;

    fn deref(&self) -> &Base {
        &self.base
    }
}

impl Node {
    /// Opens what the configuration names; makes what is not there.
    ///
    /// # Errors
    /// When the folder is in use, of a newer version, half deleted, or a model does not fit.
    pub async fn open(config: Config) -> Result<Self, NodeError> {
        Self::open_with(config, Arc::new(SystemClock)).await
    }

    /// As [`Node::open`], with the clock that a test or a demonstration sets.
    ///
    /// # Errors
    /// As [`Node::open`].
    pub async fn open_with(config: Config, clock: Arc<dyn Clock>) -> Result<Self, NodeError> {
        Self::open_with_next(config, clock, &[]).await
    }

    /// Opens an empty next generation of these stores in place of the one in use, for a rebuild: what
    /// is damaged, or of another model, is not opened.
    ///
    /// # Errors
    /// As [`Node::open`].
    pub async fn open_with_next(
        config: Config,
        clock: Arc<dyn Clock>,
        next: &[Store],
    ) -> Result<Self, NodeError> {
        let base = Base::open(config, clock).await?;
        Self::over(base, Role::All, next).await
    }

    /// As a command opens it: in a folder everything, beside running services what they serve.
    ///
    /// # Errors
    /// As [`Node::open`].
    pub async fn open_tool(config: Config) -> Result<Self, NodeError> {
        Self::open_tool_with_next(config, &[]).await
    }

    /// As [`Node::open_with_next`], for a command.
    ///
    /// # Errors
    /// As [`Node::open`].
    pub async fn open_tool_with_next(config: Config, next: &[Store]) -> Result<Self, NodeError> {
        let role = match config.log {
            LogConfig::Sqlite { .. } => Role::All,
            LogConfig::Kafka(_) => Role::Tool,
        };
        let base = Base::open(config, Arc::new(SystemClock)).await?;
        Self::over(base, role, next).await
    }

    /// The stores that a role has, over a base that is open.
    ///
    /// # Errors
    /// As [`Node::open`].
    pub async fn over(base: Base, role: Role, next: &[Store]) -> Result<Self, NodeError> {
        let config = &base.config;
        let embed = config.embedding.open()?;
        let generations = Generations::open(&config.data_dir.join("stores"))?;
        let mut remote = Remote::new();
        let folder = |store: Store| {
            if next.contains(&store) {
                generations.next_folder(store)
            } else {
                Ok(generations.folder(store))
            }
        };
        let access = || match role.writes_stores() {
            true => Access::Write(base.clock.clone()),
            false => Access::Read,
        };
        let feed = base.feed;
        let building = |store: Store| {
            let is_next = next.contains(&store);
            is_next.then(|| begun_at(base.clock.now()))
        };
        let vectors: Arc<dyn VectorIndex> = match &config.vectors {
            VectorsConfig::Mmap {} => Arc::new(SqliteVectors::open(
                &folder(Store::Vectors)?,
                feed,
                embed.identity().clone(),
            )?),
            VectorsConfig::Qdrant(settings) => {
                let model = embed.identity().clone();
                let live = live::vectors(settings, feed, model.clone(), access())?;
                let building = building(Store::Vectors);
                let held = RemoteStore {
                    generations: live.generations(),
                    building: building.clone(),
                };
                remote.insert(Store::Vectors, held);
                match building {
                    Some(name) => Arc::new(
                        QdrantVectors::open(settings, Place::Generation(name), feed, model).await?,
                    ),
                    None => Arc::new(live),
                }
            }
        };
        let graph: Arc<dyn GraphIndex> = match &config.graph {
            GraphConfig::Sqlite {} => Arc::new(SqliteGraph::open(&folder(Store::Graph)?, feed)?),
            GraphConfig::Neo4j(settings) => {
                let live = live::graph(settings, feed, access())?;
                let building = building(Store::Graph);
                let held = RemoteStore {
                    generations: live.generations(),
                    building: building.clone(),
                };
                remote.insert(Store::Graph, held);
                match building {
                    Some(name) => {
                        Arc::new(Neo4jGraph::open(&settings.of_generation(&name), feed).await?)
                    }
                    None => Arc::new(live),
                }
            }
        };
        let shards = match &config.records {
            RecordsConfig::Shards(shards) if role != Role::Indexer => Some(shards),
            RecordsConfig::Shards(_) | RecordsConfig::Sqlite {} => None,
        };
        let stores = match shards {
            Some(shards) => {
                if role == Role::All
                    || next
                        .iter()
                        .any(|s| [Store::Records, Store::Text].contains(s))
                {
                    return Err(NodeError::WrongUse {
                        what: "records and text are served by indexers of their own, each of which \
                               builds its copy from the log: to build one anew, stop that indexer and \
                               delete the folder `stores` of its data"
                            .to_owned(),
                    });
                }
                let served = client::connect(shards, feed)?;
                Stores {
                    records: served.records,
                    text: served.text,
                    vectors,
                    graph,
                }
            }
            None => Stores {
                records: Arc::new(SqliteRecords::open(&folder(Store::Records)?, feed)?),
                text: Arc::new(TantivyText::open_paced(
                    &folder(Store::Text)?,
                    feed,
                    TEXT_COMMIT_PACE,
                )?),
                vectors,
                graph,
            },
        };
        if role.writes_stores() {
            let local = stores.projections().into_iter();
            let local: Vec<Arc<dyn Projection>> = local
                .filter(|store| !remote.contains_key(&store.store()))
                .collect();
            check_positions(&base.log, &local).await?;
        }
        Ok(Self {
            base,
            stores,
            embed,
            generations,
            remote,
        })
    }

    /// One of the four stores.
    pub fn projection(&self, store: Store) -> Arc<dyn Projection> {
        match store {
            Store::Records => self.stores.records.clone(),
            Store::Text => self.stores.text.clone(),
            Store::Vectors => self.stores.vectors.clone(),
            Store::Graph => self.stores.graph.clone(),
        }
    }
}

/// Stores that have read further than the log goes would never apply what is written next. Looked at
/// here, before a stage appends and hides it.
async fn check_positions(log: &Log, stores: &[Arc<dyn Projection>]) -> Result<(), NodeError> {
    for store in stores {
        for partition in 0..log.partitions() {
            let next = store.checkpoint(partition).await?.map_or(0, |c| c.next);
            let end = log.end(Topic::Memories, partition).await?;
            if next > end {
                let store = store.store();
                let what = format!(
                    "{store} stands at {next} of memories-{partition}, which ends at {end}: the log \
                     was replaced or cut; restore it, or rebuild what has read further: anamnesis \
                     rebuild --store {store}, or all"
                );
                return Err(StageError::Broken { what }.into());
            }
        }
    }
    Ok(())
}
