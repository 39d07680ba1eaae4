//! Do the stories hold over the distributed form? The same files that are played over doubles and
//! embedded stores, over Kafka, a keyring in PostgreSQL, shards asked over gRPC, Qdrant's protocol and
//! Neo4j.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use anamnesis_adapters::records::SqliteRecords;
use anamnesis_adapters::text::TantivyText;
use anamnesis_domain::ids::{EventTag, MemoryId, OwnerKey};
use anamnesis_domain::input::Topic;
use anamnesis_domain::memory::{Kind, Status};
use anamnesis_domain::owner::OwnerScope;
use anamnesis_domain::time::{Known, Timestamp};
use anamnesis_pipeline::clock::ManualClock;
use anamnesis_pipeline::codec::Codec;
use anamnesis_pipeline::embedder::{Embed, Embedder as _};
use anamnesis_pipeline::feed::Feed;
use anamnesis_pipeline::hash_embedder::HashEmbedder;
use anamnesis_pipeline::keyring::master_key::MasterKey;
use anamnesis_pipeline::log::Log;
use anamnesis_pipeline::stores::{
    Change, CheckedAnswer, Checkpoint, Cut, DecisionRow, Filter, LegAnswer, MemoryVersion, Order,
    OwnerView, Page, Projection, Records, RowDigest, Store, StoreError, Stores, TextIndex,
};
use anamnesis_servers::kafka::{KafkaConfig, KafkaLog, Topics, create_topics};
use anamnesis_servers::live::{self, Access};
use anamnesis_servers::neo4j::Neo4jConfig;
use anamnesis_servers::postgres_keyring::{PostgresKeyring, PostgresKeyringConfig};
use anamnesis_servers::qdrant::config::QdrantConfig;
use anamnesis_servers::shard::client;
use anamnesis_servers::shard::config::{Partitions, ShardConfig, ShardServerConfig, ShardsConfig};
use anamnesis_servers::shard::server::{ShardParts, serve};
use anamnesis_testbed::story::{Ground, play_all};
use async_trait::async_trait;

use crate::fleet::{Servers, new_name};

const PARTITIONS: u32 = 2;

/// Written as an indexer writes its own copy, read as everybody else reads it.
struct Served<S: ?Sized> {
    own: Arc<S>,
    asked: Arc<S>,
}

#[async_trait]
impl<S: Projection + ?Sized> Projection for Served<S> {
    fn store(&self) -> Store {
        self.own.store()
    }

    async fn checkpoint(&self, partition: u32) -> Result<Option<Checkpoint>, StoreError> {
        self.own.checkpoint(partition).await
    }

    async fn apply(
        &self,
        partition: u32,
        from: u64,
        changes: &[Change],
        next: Checkpoint,
    ) -> Result<(), StoreError> {
        self.own.apply(partition, from, changes, next).await
    }

    async fn owners(&self) -> Result<Vec<OwnerKey>, StoreError> {
        self.asked.owners().await
    }

    async fn rows(&self, scope: OwnerScope) -> Result<Vec<RowDigest>, StoreError> {
        self.asked.rows(scope).await
    }

    async fn compact(&self) -> Result<(), StoreError> {
        self.own.compact().await
    }
}

#[async_trait]
impl Records for Served<dyn Records> {
    async fn cut(&self, scope: OwnerScope, known: Known) -> Result<Cut, StoreError> {
        self.asked.cut(scope, known).await
    }

    async fn check(
        &self,
        filter: &Filter,
        ids: &[MemoryId],
    ) -> Result<Vec<MemoryVersion>, StoreError> {
        self.asked.check(filter, ids).await
    }

    async fn history(
        &self,
        scope: OwnerScope,
        id: MemoryId,
    ) -> Result<Vec<MemoryVersion>, StoreError> {
        self.asked.history(scope, id).await
    }

    async fn list(
        &self,
        filter: &Filter,
        order: Order,
        limit: usize,
        cursor: Option<&str>,
    ) -> Result<Page, StoreError> {
        self.asked.list(filter, order, limit, cursor).await
    }

    async fn owner(&self, scope: OwnerScope) -> Result<Option<OwnerView>, StoreError> {
        self.asked.owner(scope).await
    }

    async fn decision(
        &self,
        scope: OwnerScope,
        event: EventTag,
    ) -> Result<Option<DecisionRow>, StoreError> {
        self.asked.decision(scope, event).await
    }

    async fn decision_offsets(&self, scope: OwnerScope) -> Result<Vec<u64>, StoreError> {
        self.asked.decision_offsets(scope).await
    }

    async fn counts(&self) -> Result<Vec<(Kind, Status, u64)>, StoreError> {
        self.asked.counts().await
    }
}

#[async_trait]
impl TextIndex for Served<dyn TextIndex> {
    async fn search(
        &self,
        filter: &Filter,
        terms: &[String],
        top: usize,
    ) -> Result<LegAnswer, StoreError> {
        self.asked.search(filter, terms, top).await
    }

    async fn search_checked(
        &self,
        filter: &Filter,
        terms: &[String],
        top: usize,
    ) -> Result<CheckedAnswer, StoreError> {
        self.asked.search_checked(filter, terms, top).await
    }
}

/// Topics whose times are the sender's: a story sets the clock.
async fn open_log(servers: &Servers, name: &str, clock: &Arc<ManualClock>) -> Log {
    let mut config = KafkaConfig::new(&servers.kafka);
    config.topic_prefix = format!("{name}.");
    config.partitions = Some(PARTITIONS);
    config.replication_factor = Some(1);
    config.min_insync_replicas = Some(1);
    let mut topics = Topics::of(&config).unwrap();
    topics.timestamp_type = "CreateTime".to_owned();
    create_topics(&config, &topics, &**clock).await.unwrap();
    let log = KafkaLog::connect(&config, &topics, clock.clone()).await;
    Arc::new(log.unwrap())
}

/// The records and the text in a folder, served over gRPC.
async fn serve_shard(
    folder: &Path,
    log: &Log,
    feed: Feed,
) -> (Served<dyn Records>, Served<dyn TextIndex>) {
    let records: Arc<dyn Records> =
        Arc::new(SqliteRecords::open(&folder.join("records"), feed).unwrap());
    let text: Arc<dyn TextIndex> = Arc::new(TantivyText::open(&folder.join("text"), feed).unwrap());
    // A copy that has not applied the log's first record is behind, and would say so.
    for partition in 0..PARTITIONS {
        let next = Checkpoint {
            log_id: feed.log_id,
            next: log.end(Topic::Memories, partition).await.unwrap(),
        };
        records.apply(partition, 0, &[], next).await.unwrap();
        text.apply(partition, 0, &[], next).await.unwrap();
    }
    let all = Partitions::new(0..PARTITIONS).unwrap();
    let listen = "127.0.0.1:0".parse().unwrap();
    let parts = ShardParts {
        records: records.clone(),
        text: text.clone(),
        log: log.clone(),
        feed,
    };
    // A story that takes long between two looks at the log is no reason to doubt the copy.
    let mut config = ShardServerConfig::new(listen, all.clone(), "a");
    config.lease = std::time::Duration::from_secs(60);
    let server = serve(config, parts, std::future::pending()).await.unwrap();
    let shard = ShardConfig {
        partitions: all,
        replicas: vec![format!("http://{}", server.address())],
    };
    let mut config = ShardsConfig::new(vec![shard]);
    config.deadline = std::time::Duration::from_secs(20);
    let asked = client::connect(&config, feed).unwrap();
    let records = Served {
        own: records,
        asked: asked.records,
    };
    let text = Served {
        own: text,
        asked: asked.text,
    };
    (records, text)
}

async fn make(folder: &Path) -> Ground {
    let (servers, name) = (Servers::shared(), new_name());
    let clock = Arc::new(ManualClock::new(Timestamp::from_millis(1_700_000_000_000)));
    let log = open_log(&servers, &name, &clock).await;
    let feed = Feed {
        log_id: log.identity(Topic::Memories, 0).await.unwrap().log_id,
        partitions: PARTITIONS,
    };
    let mut keyring = PostgresKeyringConfig::new(servers.postgres.parse().unwrap());
    keyring.schema.clone_from(&name);
    keyring.connections_max = 1;
    let master = MasterKey::from_bytes([7; 32]);
    let keyring = PostgresKeyring::open(&keyring, &master).await.unwrap();
    let embed: Embed = Arc::new(HashEmbedder::new());
    let model = HashEmbedder::new().identity().clone();
    let mut qdrant = QdrantConfig::new(&servers.qdrant);
    qdrant.prefix.clone_from(&name);
    let mut neo4j = Neo4jConfig::new(&servers.neo4j);
    neo4j.prefix.clone_from(&name);
    neo4j.deadline = std::time::Duration::from_secs(20);
    let access = || Access::Write(clock.clone());
    let (records, text) = serve_shard(folder, &log, feed).await;
    Ground {
        log,
        codec: Codec::new(Arc::new(keyring)),
        stores: Stores {
            records: Arc::new(records),
            text: Arc::new(text),
            vectors: Arc::new(live::vectors(&qdrant, feed, model, access()).unwrap()),
            graph: Arc::new(live::graph(&neo4j, feed, access()).unwrap()),
        },
        embed,
        clock,
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_story_holds_over_real_servers() {
    let scratch = tempfile::tempdir().unwrap();
    let made = AtomicUsize::new(0);
    let over_servers = || {
        let number = made.fetch_add(1, Ordering::Relaxed);
        let folder = scratch.path().join(number.to_string());
        async move { make(&folder).await }
    };
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared/testbed/stories");
    let wrong = play_all(&folder, over_servers).await;
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
