//! Does the Neo4j graph pass what every graph passes, and refuse what is not its own?
//!
//! Against the server that `ANAMNESIS_TEST_NEO4J` names. Each place is a generation of its own and is
//! deleted at the end. Tests that stop or kill a server start one of their own: [`server`].

mod erasure;
mod failures;
mod server;
mod speed;
mod writers;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anamnesis_domain::ids::LogId;
use anamnesis_domain::memory::EntityKind;
use anamnesis_pipeline::conformance::stores::script::{
    Script, entity, everything, id, memory, memory_with, peanut, scope,
};
use anamnesis_pipeline::conformance::stores::{Backend, LOG_ID, PARTITIONS};
use anamnesis_pipeline::feed::Feed;
use anamnesis_pipeline::stores::{GraphIndex, Projection, RowDigest, Store, StoreError};
use anamnesis_servers::neo4j::{Neo4jConfig, Neo4jGraph};
use neo4rs::{Graph, Row, query};

const FEED: Feed = Feed {
    log_id: LOG_ID,
    partitions: PARTITIONS,
};

fn address() -> String {
    let named = std::env::var("ANAMNESIS_TEST_NEO4J");
    named.expect("ANAMNESIS_TEST_NEO4J must hold what `infra/servers/neo4j.sh start DIR` prints")
}

/// A name that no other test of this or any other run has.
fn generation() -> String {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .expect("after 1970");
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    format!("t{}-{}-{count}", since.as_nanos(), std::process::id())
}

/// A generation of its own, deleted at the end.
struct Place {
    config: Neo4jConfig,
    /// Where the server's files are, if it is this test's own.
    dir: Option<PathBuf>,
}

impl Place {
    fn at(uri: &str) -> Self {
        let mut config = Neo4jConfig::new(uri);
        config.generation = generation();
        // What is tested here is answers; a busy machine may take its time.
        config.deadline = Duration::from_secs(60);
        config.write_deadline = Duration::from_secs(60);
        Self { config, dir: None }
    }

    async fn graph(&self) -> Neo4jGraph {
        Neo4jGraph::open(&self.config, FEED)
            .await
            .expect("the generation opens")
    }

    /// Runs a statement by hand, as an administrator would.
    async fn by_hand(&self, statement: &str) -> Vec<Row> {
        let graph = Graph::new(self.config.uri.as_str(), "neo4j", "").expect("an address");
        let asked = query(statement).param("generation", self.config.generation.as_str());
        let mut answer = graph
            .execute(asked)
            .await
            .unwrap_or_else(|error| panic!("{statement}: {error}"));
        let mut rows = Vec::new();
        while let Some(row) = answer
            .next()
            .await
            .unwrap_or_else(|error| panic!("{statement}: {error}"))
        {
            rows.push(row);
        }
        rows
    }

    async fn count(&self, statement: &str) -> i64 {
        self.by_hand(statement).await[0]
            .get("count")
            .expect("a number")
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let config = self.config.clone();
        // On a thread of its own: the test's runtime may be the one that is dropping.
        let deleted = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build();
            runtime
                .expect("a runtime")
                .block_on(Neo4jGraph::delete_generation(&config))
        });
        let deleted = deleted.join();
        // A server of the test's own may be gone already.
        if self.dir.is_none() && !std::thread::panicking() {
            deleted
                .expect("no panic")
                .expect("the generation can be deleted");
        }
    }
}

impl Backend for Place {
    type Store = dyn GraphIndex;

    async fn open(&self) -> Result<Arc<Self::Store>, StoreError> {
        Ok(Arc::new(Neo4jGraph::open(&self.config, FEED).await?))
    }

    fn dir(&self) -> Option<&Path> {
        self.dir.as_deref()
    }

    /// No word stands in the files as it was said, not even before it is erased.
    fn is_plain(&self) -> bool {
        false
    }
}

fn fresh() -> Place {
    Place::at(&address())
}

anamnesis_pipeline::projection_cases!(fresh);
anamnesis_pipeline::graph_cases!(fresh);

/// A generation in which owners 1 and 2 have two memories each.
async fn filled() -> Place {
    let place = fresh();
    let graph = place.graph().await;
    let mut script = Script::default();
    for owner in [1, 2] {
        script.decide(owner, vec![memory(1, "tea"), memory(2, "花生")]);
        script.decide(owner, vec![memory(1, "green tea")]);
    }
    script.play(&graph).await;
    place
}

async fn rows(place: &Place) -> Vec<(u8, RowDigest)> {
    let graph = place.graph().await;
    let mut all = Vec::new();
    for owner in [1, 2] {
        let rows = graph.rows(scope(owner)).await.unwrap();
        all.extend(rows.into_iter().map(|row| (owner, row)));
    }
    all
}

/// Runs `statement` by hand and says whose rows then differ.
async fn check_altered(statement: &str, expected: &[&str]) {
    let place = filled().await;
    let before = rows(&place).await;
    place.by_hand(statement).await;
    let after = rows(&place).await;
    let mut differing: Vec<String> = before
        .iter()
        .filter(|row| !after.contains(row))
        .chain(after.iter().filter(|row| !before.contains(row)))
        .map(|(owner, row)| format!("{owner}:{}", row.key.replace(&id(1).to_string(), "m1")))
        .collect();
    differing.sort();
    differing.dedup();
    assert_eq!(differing, expected, "{statement}");
}

/// The first version of memory 1 of owner 1.
const ONE_VERSION: &str = "MATCH (v:AnamnesisVersion {generation: $generation,
    owner: '01010101010101010101010101010101', memory: '01010101010101010101010101010101', version: 1})";

#[tokio::test]
async fn any_altered_property_shows_in_its_own_row_only() {
    for set in [
        "v.recorded_from = v.recorded_from + 1",
        "v.recorded_to = NULL",
        "v.recorded_to = 77",
        "v.valid_from = v.valid_from - 1",
        "v.valid_from = 'soon'",
        "v.valid_to = v.valid_from",
        "v.subject = v.kind",
        "v.kind = v.subject",
        "v.status = ''",
        "v.tags = ['ward']",
        "v.tags = NULL",
        "v.is_confirmation = true",
        "v.words = NULL",
        "v.words = 'broken'",
    ] {
        check_altered(&format!("{ONE_VERSION} SET {set}"), &["1:m1/0000000001"]).await;
    }
    check_altered(
        &format!("{ONE_VERSION} DETACH DELETE v"),
        &["1:m1/0000000001"],
    )
    .await;
    check_altered(
        &format!("{ONE_VERSION} SET v.version = 7"),
        &["1:m1/0000000001", "1:m1/0000000007"],
    )
    .await;
    check_altered(
        &format!("{ONE_VERSION} MATCH (v)-[a:ANAMNESIS_ABOUT]->() DELETE a"),
        &["1:m1/0000000001"],
    )
    .await;
    // Words of another version do not open here.
    check_altered(
        &format!(
            "{ONE_VERSION} MATCH (w:AnamnesisVersion {{generation: $generation, owner: v.owner,
                memory: v.memory, version: 2}}) SET v.words = w.words"
        ),
        &["1:m1/0000000001"],
    )
    .await;
}

#[tokio::test]
async fn an_altered_entity_shows_in_all_that_have_it() {
    let entity = "MATCH (e:AnamnesisEntity {generation: $generation,
        owner: '01010101010101010101010101010101'})";
    let all = [
        "1:m-02020202020202020202020202020202/0000000001",
        "1:m1/0000000001",
        "1:m1/0000000002",
    ];
    check_altered(&format!("{entity} SET e.words = NULL"), &all).await;
    check_altered(&format!("{entity} DETACH DELETE e"), &all).await;
    // An edge to somebody else's entity.
    check_altered(
        &format!(
            "{ONE_VERSION} MATCH (v)-[a:ANAMNESIS_ABOUT]->() DELETE a
             WITH v MATCH (e:AnamnesisEntity {{generation: $generation,
                owner: '02020202020202020202020202020202'}})
             CREATE (v)-[:ANAMNESIS_ABOUT]->(e)"
        ),
        &["1:m1/0000000001"],
    )
    .await;
}

fn refusal(opened: Result<Neo4jGraph, StoreError>) -> StoreError {
    match opened {
        Ok(graph) => panic!("{} opened", graph.store()),
        Err(error) => error,
    }
}

#[tokio::test]
async fn a_half_deleted_generation_says_so() {
    for label in [
        "AnamnesisVersion",
        "AnamnesisPartition",
        "AnamnesisGeneration",
    ] {
        let place = filled().await;
        place
            .by_hand(&format!(
                "MATCH (n:{label} {{generation: $generation}}) DETACH DELETE n"
            ))
            .await;
        let error = refusal(Neo4jGraph::open(&place.config, FEED).await);
        assert!(
            matches!(error, StoreError::Damaged { .. }),
            "{label}: {error}"
        );
        assert!(
            error
                .to_string()
                .contains("anamnesis rebuild --store graph"),
            "{error}"
        );
        assert!(!error.is_retryable());
        // And can be built anew.
        Neo4jGraph::delete_generation(&place.config).await.unwrap();
        let graph = place.graph().await;
        assert_eq!(graph.owners().await.unwrap(), []);
        assert_eq!(graph.checkpoint(0).await.unwrap(), None);
    }
}

#[tokio::test]
async fn a_generation_of_another_log_is_refused() {
    let place = filled().await;
    let other = LogId::from_bytes([0x20; 16]);
    let feed = Feed {
        log_id: other,
        ..FEED
    };
    let error = refusal(Neo4jGraph::open(&place.config, feed).await);
    assert!(
        matches!(error, StoreError::OtherLog { store: Store::Graph, expected, found }
            if expected == other && found == LOG_ID),
        "{error}"
    );
    let feed = Feed {
        partitions: PARTITIONS + 1,
        ..FEED
    };
    let error = refusal(Neo4jGraph::open(&place.config, feed).await);
    assert!(matches!(error, StoreError::Damaged { .. }), "{error}");
    place
        .by_hand("MATCH (g:AnamnesisGeneration {generation: $generation}) SET g.format = 99")
        .await;
    let error = refusal(Neo4jGraph::open(&place.config, FEED).await);
    assert!(matches!(error, StoreError::Unusable { .. }), "{error}");
    assert!(
        error
            .to_string()
            .contains("has 99 format and this program writes 1"),
        "{error}"
    );
}

/// Two generations of one database answer each for itself, and one is deleted without the other.
#[tokio::test]
async fn generations_never_meet() {
    let (old, new) = (filled().await, fresh());
    let graph = new.graph().await;
    assert_eq!(graph.owners().await.unwrap(), []);
    let mut script = Script::default();
    script.decide(1, vec![memory(9, "only here")]);
    script.play(&graph).await;
    let answer = graph
        .neighbours(&everything(1, 100), &[], &[peanut()], 50)
        .await
        .unwrap();
    assert_eq!(
        answer
            .hits
            .iter()
            .map(|hit| hit.memory_id)
            .collect::<Vec<_>>(),
        [id(9)]
    );
    let before = rows(&new).await;
    Neo4jGraph::delete_generation(&old.config).await.unwrap();
    assert_eq!(rows(&new).await, before);
    assert_eq!(old.graph().await.owners().await.unwrap(), []);
}

#[tokio::test]
async fn no_two_owners_share_an_entity() {
    let place = filled().await;
    let entities = "MATCH (e:AnamnesisEntity {generation: $generation}) RETURN count(*) AS count";
    assert_eq!(place.count(entities).await, 2);
    let tokens = "MATCH (e:AnamnesisEntity {generation: $generation})
                  RETURN count(DISTINCT e.token) AS count";
    assert_eq!(place.count(tokens).await, 2);
    let bridges =
        "MATCH (a:AnamnesisVersion {generation: $generation})-[*1..4]-(b:AnamnesisVersion)
                   WHERE a.owner <> b.owner RETURN count(*) AS count";
    assert_eq!(place.count(bridges).await, 0);
}

#[tokio::test]
async fn what_a_memory_replaced_is_an_edge() {
    let place = fresh();
    let graph = place.graph().await;
    let mut script = Script::default();
    script.decide(1, vec![memory(1, "5 mg")]);
    let replacing = memory_with(2, "10 mg", |memory| memory.supersedes = vec![id(1), id(77)]);
    script.decide(1, vec![memory(1, "5 mg, until now"), replacing]);
    script.decide(2, vec![memory(1, "somebody else's")]);
    script.play(&graph).await;
    let edges = "MATCH (a:AnamnesisVersion {generation: $generation})-[:ANAMNESIS_SUPERSEDES]->(b)
                 RETURN a.memory AS a, b.memory AS b, b.version AS version, a.owner = b.owner AS own";
    let edges = place.by_hand(edges).await;
    assert_eq!(edges.len(), 1);
    let text = |column: &str| edges[0].get::<String>(column).unwrap();
    assert_eq!((text("a"), text("b")), ("02".repeat(16), "01".repeat(16)));
    assert_eq!(edges[0].get::<i64>("version").unwrap(), 2);
    assert!(edges[0].get::<bool>("own").unwrap());
}

/// Neither a property nor an index can hold what no node holds.
#[tokio::test]
async fn no_word_stands_in_the_database() {
    let place = fresh();
    let graph = place.graph().await;
    let mut script = Script::default();
    let tagged = memory_with(1, "said", |memory| {
        memory.claim.context_tags = vec!["病房".to_owned()];
        memory
            .claim
            .entities
            .push(entity(EntityKind::Person, "Zyzzyva"));
    });
    script.decide(1, vec![tagged]);
    script.play(&graph).await;
    let nodes = place
        .by_hand("MATCH (n {generation: $generation}) RETURN properties(n) AS all")
        .await;
    assert_eq!(
        nodes.len(),
        6,
        "generation, partition, owner, version, two entities"
    );
    let text = format!("{nodes:?}");
    for word in [
        "said", "peanut", "花生", "病房", "Zyzzyva", "person", "fact", "active", "self",
    ] {
        assert!(!text.contains(word), "{word}");
    }
    // Bytes are printed as numbers or escapes: looked for as such too.
    assert!(!text.contains("122, 121, 122, 122") && !text.contains("\\xe8\\x8a\\xb1"));
}
