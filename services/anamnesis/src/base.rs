//! What does every service have? The log, the keys, a clock, and what shortens its next start.

use std::path::Path;
use std::sync::Arc;

use anamnesis_adapters::master_key::MasterKey;
use anamnesis_adapters::sqlite_keyring::SqliteKeyring;
use anamnesis_adapters::sqlite_log::SqliteLog;
use anamnesis_audit::erasure::Copies;
use anamnesis_domain::ids::OwnerKey;
use anamnesis_domain::input::Topic;
use anamnesis_pipeline::clock::Clock;
use anamnesis_pipeline::codec::{self, Codec};
use anamnesis_pipeline::feed::Feed;
use anamnesis_pipeline::keyring::Keys;
use anamnesis_pipeline::log::{Log, LogError, NewRecord};
use anamnesis_pipeline::snapshots::{FileSnapshots, Snaps};
use anamnesis_servers::kafka::{Difference, KafkaConfig, KafkaLog, Topics, What, check_topics};
use anamnesis_servers::postgres_keyring::PostgresKeyring;

use crate::config::{Config, KeyringConfig, LogConfig, RecordsConfig};
use crate::node::NodeError;

/// The part of a node that needs no store.
#[derive(Clone)]
pub struct Base {
    pub config: Config,
    pub log: Log,
    /// The same log, when it is Kafka: for what only Kafka has.
    pub kafka: Option<Arc<KafkaLog>>,
    pub codec: Codec,
    pub clock: Arc<dyn Clock>,
    pub snapshots: Snaps,
    pub feed: Feed,
}

impl Base {
    /// Opens the log and the keyring of the configuration; makes what is not there, but no topics.
    ///
    /// # Errors
    /// When the folder is in use, of a newer version, half deleted, or a server cannot be reached.
    pub async fn open(config: Config, clock: Arc<dyn Clock>) -> Result<Self, NodeError> {
        let dir = config.data_dir.clone();
        std::fs::create_dir_all(&dir).map_err(|source| NodeError::Io {
            what: format!("cannot make the data folder {}", dir.display()),
            source,
        })?;
        let mut kafka = None;
        let log: Log = match &config.log {
            LogConfig::Sqlite { partitions } => Arc::new(SqliteLog::open(
                &dir,
                clock.clone(),
                *partitions,
                codec::identity_payload,
            )?),
            LogConfig::Kafka(settings) => {
                let opened = Arc::new(open_kafka(settings, clock.clone()).await?);
                kafka = Some(opened.clone());
                opened
            }
        };
        publish_schemas(&log).await?;
        let codec = Codec::new(open_keyring(&config, &log).await?).over(log.partitions());
        let feed = Feed {
            log_id: log.identity(Topic::Memories, 0).await?.log_id,
            partitions: log.partitions(),
        };
        let snapshots: Snaps = Arc::new(FileSnapshots::new(dir.join("stores").join("snapshots")));
        Ok(Self {
            config,
            log,
            kafka,
            codec,
            clock,
            snapshots,
            feed,
        })
    }
}

/// Opens the log in its topics. Topics that nobody has made yet are waited for, others are refused.
async fn open_kafka(config: &KafkaConfig, clock: Arc<dyn Clock>) -> Result<KafkaLog, LogError> {
    let topics = Topics::of(config)?;
    let refused = match KafkaLog::connect(config, &topics, clock).await {
        Err(error @ LogError::Unusable { .. }) => error,
        opened => return opened,
    };
    let differences = check_topics(config, &topics).await?;
    let is_missing = |difference: &Difference| {
        matches!(
            difference.what,
            What::Missing | What::IdentityMissing { .. }
        )
    };
    if differences.is_empty() || !differences.iter().all(is_missing) {
        return Err(refused);
    }
    let missing: Vec<&str> = differences.iter().map(|d| d.name.as_str()).collect();
    Err(LogError::Unavailable {
        reason: format!(
            "the topics are not there yet ({}): anamnesis topics create makes them",
            missing.join(", ")
        ),
    })
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

/// Opens the keyring. What a used log or keyring needs is never made up: new keys would read nothing,
/// and would stand where the right ones belong.
async fn open_keyring(config: &Config, log: &Log) -> Result<Keys, NodeError> {
    let missing = |what: String| {
        let what = format!(
            "{what} is missing, and nothing in the log can be read without it: restore it from its \
             backup, or use another data folder"
        );
        Err(NodeError::WrongUse { what })
    };
    match &config.keyring {
        KeyringConfig::Sqlite { path, .. } => {
            let path = path
                .clone()
                .unwrap_or_else(|| config.data_dir.join("keys.db"));
            if !path.exists() && is_used(log).await? {
                return missing(path.display().to_string());
            }
            let master = embedded_master(config, &path)?;
            Ok(Arc::new(SqliteKeyring::open(&path, &master)?))
        }
        KeyringConfig::Postgres(settings) => {
            let master = match config.keyring.master_key() {
                (_, Some(variable)) => MasterKey::from_env(variable)?,
                (Some(file), None) => MasterKey::from_file(file)?,
                (None, None) => {
                    let what = "the keyring has no master key".to_owned();
                    return Err(NodeError::WrongUse { what });
                }
            };
            if !PostgresKeyring::exists(settings).await? && is_used(log).await? {
                return missing(format!(
                    "the keyring {} of {}",
                    settings.schema, settings.url
                ));
            }
            Ok(Arc::new(PostgresKeyring::open(settings, &master).await?))
        }
    }
}

/// The master key of a data folder; made with it.
fn embedded_master(config: &Config, keyring: &Path) -> Result<MasterKey, NodeError> {
    let (file, variable) = config.keyring.master_key();
    if let Some(variable) = variable {
        return Ok(MasterKey::from_env(variable)?);
    }
    let file = file.map_or_else(|| config.data_dir.join("master.key"), Path::to_owned);
    if keyring.exists() && !file.exists() {
        return Err(NodeError::WrongUse {
            what: format!(
                "{} is missing, and {} cannot be opened without it: restore it from its backup",
                file.display(),
                keyring.display()
            ),
        });
    }
    Ok(MasterKey::from_file_or_new(&file)?)
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

impl Base {
    /// How many indexers keep each partition.
    pub fn copies(&self) -> Copies {
        let RecordsConfig::Shards(shards) = &self.config.records else {
            return Copies::default();
        };
        let all = shards.shards.iter();
        let of_partition = all.flat_map(|shard| {
            let copies = shard.replicas.len();
            shard
                .partitions
                .iter()
                .map(move |partition| (partition, copies))
        });
        Copies {
            of_partition: of_partition.collect(),
            lease: shards.lease,
        }
    }

    /// Decides again what was decided, for `audit verify`.
    pub fn redecide(&self) -> anamnesis_audit::verify::Redecide {
        let rules = self.rules();
        let ids = self.codec.keys().id_key().clone();
        Arc::new(move |state, input, now| {
            anamnesis_validity_manager::decide::decide(state, input, now, &ids, &rules)
        })
    }
}
