//! Do the vectors in Qdrant keep the contract of their ports?
//!
//! The server is the one of `ANAMNESIS_TEST_QDRANT_URL`, or the test tool that
//! `infra/servers/qdrant-double.sh start DIR` starts: nothing here is more than the protocol of both.
//!
//! - [`faults`]: crashes, late writers, a server that goes away
//! - [`refusals`]: what is not opened, and what altered rows show
//! - [`generations`]: the alias and what it stands for
//! - [`answers`]: exactness, ties, the optimiser, speed
//! - [`lost_answers`]: deadlines that pass after the server has written

mod answers;
mod faults;
mod generations;
mod lost_answers;
mod refusals;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use anamnesis_pipeline::conformance::stores::{Backend, LOG_ID, PARTITIONS, model};
use anamnesis_pipeline::embedder::ModelIdentity;
use anamnesis_pipeline::feed::Feed;
use anamnesis_pipeline::stores::{StoreError, VectorIndex};
use anamnesis_servers::qdrant::config::QdrantConfig;
use anamnesis_servers::qdrant::{Place, QdrantVectors};
use qdrant_client::Qdrant;
use qdrant_client::qdrant::{
    Condition, Filter, PointStruct, RetrievedPoint, ScrollPointsBuilder, SetPayloadPointsBuilder,
    UpsertPointsBuilder, Value,
};
use tempfile::TempDir;

const FEED: Feed = Feed {
    log_id: LOG_ID,
    partitions: PARTITIONS,
};

const GENERATION: &str = "g1";

/// The server under test.
fn url() -> String {
    for name in ["ANAMNESIS_TEST_QDRANT_URL", "ANAMNESIS_TEST_QDRANT"] {
        match std::env::var(name) {
            Ok(url) if !url.is_empty() => return url,
            Ok(_) | Err(_) => (),
        }
    }
    panic!("ANAMNESIS_TEST_QDRANT is not set: infra/servers/qdrant-double.sh start DIR prints it");
}

/// Collections of its own, deleted at the end.
struct Fresh {
    config: QdrantConfig,
}

impl Fresh {
    fn new() -> Self {
        Self::on(&url())
    }

    fn on(url: &str) -> Self {
        let mut config = QdrantConfig::new(url);
        let mut random = [0u8; 8];
        getrandom::fill(&mut random).expect("random numbers");
        config.prefix = format!("test_{:016x}", u64::from_le_bytes(random));
        config.api_key_env = std::env::var("ANAMNESIS_TEST_QDRANT_API_KEY")
            .is_ok()
            .then(|| "ANAMNESIS_TEST_QDRANT_API_KEY".to_owned());
        Self { config }
    }

    async fn open_as(
        &self,
        generation: &str,
        feed: Feed,
        model: ModelIdentity,
    ) -> Result<QdrantVectors, StoreError> {
        let place = Place::Generation(generation.to_owned());
        QdrantVectors::open(&self.config, place, feed, model).await
    }

    async fn opened(&self) -> QdrantVectors {
        let opened = self.open_as(GENERATION, FEED, model()).await;
        opened.expect("the collection opens")
    }

    /// The same server without the adapter, as a person at its console.
    fn raw(&self) -> Raw {
        Raw {
            client: client(&self.config),
            collection: format!("{}--{GENERATION}", self.config.prefix),
        }
    }
}

impl Drop for Fresh {
    fn drop(&mut self) {
        let config = self.config.clone();
        let delete = move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .expect("a runtime");
            runtime.block_on(async {
                let client = client(&config);
                // A server that a test has stopped keeps nothing that matters.
                let Ok(listed) = client.list_collections().await else {
                    return;
                };
                for collection in listed.collections {
                    if collection.name.starts_with(&config.prefix) {
                        let _ = client.delete_collection(collection.name).await;
                    }
                }
            });
        };
        // A test's own runtime cannot be waited for inside it.
        let _ = std::thread::spawn(delete).join();
    }
}

fn client(config: &QdrantConfig) -> Qdrant {
    let mut builder = Qdrant::from_url(&config.url).skip_compatibility_check();
    if let Some(name) = &config.api_key_env {
        builder = builder.api_key(std::env::var(name));
    }
    builder.build().expect("an address")
}

impl Backend for Fresh {
    type Store = dyn VectorIndex;

    async fn open(&self) -> Result<Arc<dyn VectorIndex>, StoreError> {
        Ok(Arc::new(self.open_as(GENERATION, FEED, model()).await?))
    }

    fn dir(&self) -> Option<&Path> {
        None
    }
}

anamnesis_pipeline::projection_cases!(fresh);
anamnesis_pipeline::vectors_cases!(fresh);

fn fresh() -> Fresh {
    Fresh::new()
}

/// One collection, without the adapter.
struct Raw {
    client: Qdrant,
    collection: String,
}

impl Raw {
    async fn points(&self, filter: Filter) -> Vec<RetrievedPoint> {
        let request = ScrollPointsBuilder::new(&self.collection)
            .filter(filter)
            .limit(10_000)
            .with_payload(true)
            .with_vectors(true);
        self.client.scroll(request).await.unwrap().result
    }

    /// The checkpoint of a partition as it is now.
    async fn checkpoint(&self, partition: u32) -> PointStruct {
        let filter = Filter::must([
            Condition::matches("row", "checkpoint".to_owned()),
            Condition::matches("partition", i64::from(partition)),
        ]);
        let point = self.points(filter).await.remove(0);
        PointStruct {
            vectors: Some(vec![0.0; model().dimension as usize].into()),
            id: point.id,
            payload: point.payload,
        }
    }

    /// Puts points back as they were, as if nothing had been written to them since.
    async fn put(&self, point: PointStruct) {
        let request = UpsertPointsBuilder::new(&self.collection, vec![point]).wait(true);
        self.client.upsert_points(request).await.unwrap();
    }

    async fn set(&self, filter: Filter, name: &str, value: impl Into<Value>) {
        let payload = std::collections::HashMap::from([(name.to_owned(), value.into())]);
        let request = SetPayloadPointsBuilder::new(&self.collection, payload)
            .points_selector(filter)
            .wait(true);
        self.client.set_payload(request).await.unwrap();
    }
}

fn row(kind: &str) -> Filter {
    Filter::must([Condition::matches("row", kind.to_owned())])
}

fn vector_of_point(point: &RetrievedPoint) -> Vec<f32> {
    use qdrant_client::qdrant::vectors_output::VectorsOptions;
    let vectors = point
        .vectors
        .clone()
        .and_then(|vectors| vectors.vectors_options);
    let Some(VectorsOptions::Vector(vector)) = vectors else {
        panic!("one vector without a name");
    };
    let qdrant_client::qdrant::vector_output::Vector::Dense(dense) = vector.into_vector() else {
        panic!("a dense vector");
    };
    dense.data
}

/// A server of its own, which a test may kill.
struct OwnServer {
    dir: TempDir,
    url: String,
}

impl OwnServer {
    fn start() -> Self {
        let dir = TempDir::new().unwrap();
        let url = run("start", &dir);
        Self { dir, url }
    }

    fn start_again(&self) {
        assert_eq!(run("start", &self.dir), self.url, "the port is kept");
    }

    fn kill(&self) {
        run("kill", &self.dir);
    }

    /// The files of its collections.
    fn collections(&self) -> PathBuf {
        self.dir.path().join("data/collections")
    }
}

impl Drop for OwnServer {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Runs the start script; gives the address that it printed.
fn run(command: &str, dir: &TempDir) -> String {
    let script =
        PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../infra/servers/qdrant-double.sh");
    let output = Command::new(&script)
        .arg(command)
        .arg(dir.path())
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{command}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    let printed = String::from_utf8(output.stdout).unwrap();
    let printed = printed.trim();
    printed
        .strip_prefix("ANAMNESIS_TEST_QDRANT=")
        .unwrap_or(printed)
        .to_owned()
}
