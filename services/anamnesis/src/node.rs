//! Which parts make up a node, from the configuration: one data folder, opened once.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anamnesis_adapters::graph::SqliteGraph;
use anamnesis_adapters::master_key::{MasterKey, MasterKeyError};
use anamnesis_adapters::onnx_embedder::OnnxEmbedder;
use anamnesis_adapters::records::SqliteRecords;
use anamnesis_adapters::sqlite_keyring::SqliteKeyring;
use anamnesis_adapters::sqlite_log::SqliteLog;
use anamnesis_adapters::text::TantivyText;
use anamnesis_adapters::vectors::SqliteVectors;
use anamnesis_domain::ids::OwnerKey;
use anamnesis_domain::input::Topic;
use anamnesis_pipeline::clock::{Clock, SystemClock};
use anamnesis_pipeline::codec::{self, Codec};
use anamnesis_pipeline::consumer::StageError;
use anamnesis_pipeline::embedder::{Embed, EmbedError};
use anamnesis_pipeline::feed::Feed;
use anamnesis_pipeline::hash_embedder::HashEmbedder;
use anamnesis_pipeline::keyring::{KeyringError, Keys};
use anamnesis_pipeline::log::{Log, LogError, NewRecord};
use anamnesis_pipeline::snapshots::{FileSnapshots, Snaps};
use anamnesis_pipeline::stores::{Projection, Store, StoreError, Stores};

use crate::config::{Config, EmbeddingConfig, KeyringConfig, LogConfig};
use crate::generations::{Generations, GenerationsError};

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

/// Everything that services are made of, over one data folder.
pub struct Node {
    pub config: Config,
    pub log: Log,
    pub codec: Codec,
    pub stores: Stores,
    pub embed: Embed,
    pub clock: Arc<dyn Clock>,
    pub snapshots: Snaps,
    pub generations: Generations,
    pub feed: Feed,
}

impl Node {
    /// Opens the data folder of the configuration; makes what is not there.
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
        let dir = config.data_dir.clone();
        create_dir(&dir)?;
        let LogConfig::Sqlite { partitions } = config.log;
        let log: Log = Arc::new(SqliteLog::open(
            &dir,
            clock.clone(),
            partitions,
            codec::identity_payload,
        )?);
        publish_schemas(&log).await?;
        let codec = Codec::new(open_keyring(&config, &log).await?);
        let embed = open_embedder(&config)?;
        let log_id = log.identity(Topic::Memories, 0).await?.log_id;
        let feed = Feed {
            log_id,
            partitions: log.partitions(),
        };
        let generations = Generations::open(&dir.join("stores"))?;
        let folder = |store: Store| {
            if next.contains(&store) {
                generations.next_folder(store)
            } else {
                Ok(generations.folder(store))
            }
        };
        let stores = Stores {
            records: Arc::new(SqliteRecords::open(&folder(Store::Records)?, feed)?),
            text: Arc::new(TantivyText::open(&folder(Store::Text)?, feed)?),
            vectors: Arc::new(SqliteVectors::open(
                &folder(Store::Vectors)?,
                feed,
                embed.identity().clone(),
            )?),
            graph: Arc::new(SqliteGraph::open(&folder(Store::Graph)?, feed)?),
        };
        check_positions(&log, &stores).await?;
        let snapshots: Snaps = Arc::new(FileSnapshots::new(dir.join("stores").join("snapshots")));
        Ok(Self {
            config,
            log,
            codec,
            stores,
            embed,
            clock,
            snapshots,
            generations,
            feed,
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

/// Publishes every schema that this version writes or reads, so that the log explains itself.
async fn publish_schemas(log: &Log) -> Result<(), LogError> {
    let end = log.end(Topic::Schemas, 0).await?;
    let mut known = std::collections::BTreeSet::new();
    let mut from = 1;
    while from < end {
        let records = log.read(Topic::Schemas, 0, from, 500, 8 << 20).await?;
        let Some(last) = records.last() else { break };
        from = last.position.offset + 1;
        known.extend(records.into_iter().map(|record| record.payload));
    }
    let missing: Vec<NewRecord> = anamnesis_schemas::published()
        .map(|schema| bytes::Bytes::from_static(schema.text.as_bytes()))
        .filter(|text| !known.contains(text))
        .map(|payload| NewRecord {
            key: OwnerKey::from_bytes([0; 16]),
            payload,
        })
        .collect();
    log.append(Topic::Schemas, 0, missing).await?;
    Ok(())
}

/// Stores that have read further than the log goes would never apply what is written next. Looked at
/// here, before a stage appends and hides it.
async fn check_positions(log: &Log, stores: &Stores) -> Result<(), NodeError> {
    for store in stores.projections() {
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

fn create_dir(dir: &Path) -> Result<(), NodeError> {
    std::fs::create_dir_all(dir).map_err(|source| NodeError::Io {
        what: format!("cannot make the data folder {}", dir.display()),
        source,
    })
}

/// Opens the keyring. What a used log or keyring needs is never made up: new keys would read nothing,
/// and would stand where the right ones belong.
async fn open_keyring(config: &Config, log: &Log) -> Result<Keys, NodeError> {
    let KeyringConfig::Sqlite {
        path,
        master_key_file,
        master_key_env,
    } = &config.keyring;
    let path = path
        .clone()
        .unwrap_or_else(|| config.data_dir.join("keys.db"));
    if !path.exists() && is_used(log).await? {
        return Err(NodeError::WrongUse {
            what: format!(
                "{} is missing, and nothing in the log can be read without it: restore it from its \
                 backup, or use another data folder",
                path.display()
            ),
        });
    }
    let master = match (master_key_env, master_key_file) {
        (Some(variable), _) => MasterKey::from_env(variable)?,
        (None, file) => {
            let file: PathBuf = file
                .clone()
                .unwrap_or_else(|| config.data_dir.join("master.key"));
            if path.exists() && !file.exists() {
                return Err(NodeError::WrongUse {
                    what: format!(
                        "{} is missing, and {} cannot be opened without it: restore it from its \
                         backup",
                        file.display(),
                        path.display()
                    ),
                });
            }
            MasterKey::from_file_or_new(&file)?
        }
    };
    Ok(Arc::new(SqliteKeyring::open(&path, &master)?))
}

/// Whether anything was ever accepted.
async fn is_used(log: &Log) -> Result<bool, NodeError> {
    for topic in [Topic::Conversation, Topic::Quarantine, Topic::Commands] {
        for partition in 0..log.partitions() {
            // The first record is the partition's identity.
            if log.end(topic, partition).await? > 1 {
                return Ok(true);
            }
        }
    }
    Ok(false)
}

fn open_embedder(config: &Config) -> Result<Embed, NodeError> {
    Ok(match &config.embedding {
        EmbeddingConfig::Hash {} => Arc::new(HashEmbedder::new()),
        EmbeddingConfig::Onnx {
            dir,
            runtime,
            threads,
        } => Arc::new(OnnxEmbedder::load(
            dir,
            runtime.as_deref(),
            *threads as usize,
        )?),
    })
}

impl Node {
    /// Decides again what was decided, for `audit verify`.
    pub fn redecide(&self) -> anamnesis_audit::verify::Redecide {
        let rules = self.rules();
        let ids = self.codec.keys().id_key().clone();
        Arc::new(move |state, input, now| {
            anamnesis_validity_manager::decide::decide(state, input, now, &ids, &rules)
        })
    }
}
