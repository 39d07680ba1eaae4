//! Do two writers, a lost answer and a missing constraint leave one node per identity?

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anamnesis_domain::memory::EntityKind;
use anamnesis_pipeline::conformance::stores::LOG_ID;
use anamnesis_pipeline::conformance::stores::draw::Draw;
use anamnesis_pipeline::conformance::stores::script::{Script, entity, id, memory, owner, scope};
use anamnesis_pipeline::digests;
use anamnesis_pipeline::stores::{Change, Checkpoint, Projection, Store, StoreError};
use anamnesis_servers::neo4j::Neo4jGraph;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use super::server::Server;
use super::{FEED, Place, fresh, refusal};

/// Every owner's rows are what the fold expects.
pub(crate) async fn assert_holds(graph: &Neo4jGraph, script: &Script) {
    for owner in script.owners() {
        let scope = anamnesis_domain::owner::OwnerScope::of_log_record(owner);
        let rows = graph.rows(scope).await.unwrap();
        assert_eq!(rows, script.expected(Store::Graph, owner));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_two_writers_one_moves_the_checkpoint() {
    let place = fresh();
    let (one, other) = (Arc::new(place.graph().await), Arc::new(place.graph().await));
    let mut script = Script::default();
    Draw::new(3).history(&mut script, 3, 60);
    for batch in script.take(3) {
        // The first batch of a partition also makes its checkpoint.
        let (first, second) = tokio::join!(batch.apply(&*one), batch.apply(&*other));
        let (won, lost) = if first.is_ok() {
            (first, second)
        } else {
            (second, first)
        };
        won.unwrap();
        let moved = matches!(lost, Err(StoreError::Moved { expected, found, .. })
            if expected == batch.from && found == batch.next.next);
        assert!(moved, "{lost:?}");
    }
    assert_holds(&one, &script).await;
    let checkpoints =
        "MATCH (p:AnamnesisPartition {generation: $generation}) RETURN count(*) AS count";
    assert!(place.count(checkpoints).await <= 4);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn writers_of_all_partitions_do_not_wait_for_each_other_for_ever() {
    let place = fresh();
    let graph = Arc::new(place.graph().await);
    let mut script = Script::default();
    Draw::new(8).history(&mut script, 12, 200);
    let mut by_partition = std::collections::BTreeMap::<u32, Vec<_>>::new();
    for batch in script.take(5) {
        by_partition.entry(batch.partition).or_default().push(batch);
    }
    let writers = by_partition.into_values().map(|batches| {
        let graph = graph.clone();
        tokio::spawn(async move {
            for batch in batches {
                batch.apply(&*graph).await.unwrap();
            }
        })
    });
    for writer in writers.collect::<Vec<_>>() {
        writer.await.unwrap();
    }
    assert_holds(&graph, &script).await;
}

/// Two transactions that wait for each other: the server ends one, and it is run again unseen.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_deadlock_is_tried_again() {
    let place = fresh();
    let graph = Arc::new(place.graph().await);
    let mut script = Script::default();
    script.decide(1, vec![memory(1, "one")]);
    script.play(&*graph).await;
    let by_hand = neo4rs::Graph::new(place.config.uri.as_str(), "neo4j", "").unwrap();
    let statement =
        |text: &str| neo4rs::query(text).param("generation", place.config.generation.as_str());
    for _ in 0..3 {
        script.decide(1, vec![memory(1, "again")]);
        let batch = script.take(1).remove(0);
        // It holds a version that the batch closes, and then wants the checkpoint that the batch holds.
        let mut rival = by_hand.start_txn().await.unwrap();
        rival
            .run(statement(
                "MATCH (v:AnamnesisVersion {generation: $generation}) SET v.lock = 1",
            ))
            .await
            .unwrap();
        let applying = tokio::spawn({
            let (graph, batch) = (graph.clone(), batch.clone());
            async move { batch.apply(&*graph).await }
        });
        // Until the batch waits for the version, this takes the checkpoint first: no deadlock, and the
        // batch goes on when the rival is gone.
        let rival_second = rival
            .run(statement(
                "MATCH (p:AnamnesisPartition {generation: $generation}) SET p.lock = 1",
            ))
            .await;
        match rival_second {
            Ok(_) => rival.rollback().await.unwrap(),
            Err(_) => drop(rival),
        }
        applying.await.unwrap().unwrap();
    }
    place
        .by_hand("MATCH (n {generation: $generation}) REMOVE n.lock")
        .await;
    assert_holds(&graph, &script).await;
}

/// Only a log that repeats a decision does this; the later one stands, and nothing of the first.
#[tokio::test]
async fn a_repeated_version_replaces_the_first() {
    let place = fresh();
    let graph = place.graph().await;
    let mut script = Script::default();
    script.decide(1, vec![memory(1, "one"), memory(2, "two")]);
    script.decide(1, vec![memory(1, "one, updated")]);
    script.play(&graph).await;
    let mut repeated = script.rows_of(1).versions[0].0.as_ref().clone();
    assert_eq!((repeated.memory.id, repeated.memory.version), (id(1), 1));
    repeated.memory.claim.entities = vec![entity(EntityKind::Drug, "tea")];
    repeated.recorded_to = None;
    let version = Arc::new(repeated);
    let end = script.end(1);
    let next = Checkpoint {
        log_id: LOG_ID,
        next: end + 1,
    };
    let change = Change::Version {
        version: version.clone(),
        vector: None,
    };
    // Twice in the batch, too.
    let partition = script.partition_of(1);
    graph
        .apply(partition, end, &[change.clone(), change], next)
        .await
        .unwrap();
    let mut expected = script.expected(Store::Graph, owner(1));
    let row = expected
        .iter_mut()
        .find(|row| row.key == digests::version_key(&version))
        .expect("it is expected");
    row.hash = digests::graph_hash(&version.facets(), &version.memory.claim.entities);
    assert_eq!(graph.rows(scope(1)).await.unwrap(), expected);
    let written =
        "MATCH (p:AnamnesisPartition {generation: $generation}) RETURN sum(p.versions) AS count";
    assert_eq!(place.count(written).await, 3);
}

/// Forwards bytes; once asked to, cuts the connection between a commit and its answer.
async fn proxy(target: String) -> (String, Arc<AtomicBool>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("bolt://{}", listener.local_addr().unwrap());
    let cut = Arc::new(AtomicBool::new(false));
    let asked = cut.clone();
    tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            let server = TcpStream::connect(&target).await.unwrap();
            tokio::spawn(forward(client, server, asked.clone()));
        }
    });
    (address, cut)
}

async fn forward(mut client: TcpStream, mut server: TcpStream, cut: Arc<AtomicBool>) {
    // A message of two bytes: a structure without fields that means COMMIT.
    const COMMIT: &[u8] = &[0x00, 0x02, 0xB0, 0x12];
    let (mut up, mut down) = (vec![0; 1 << 16], vec![0; 1 << 16]);
    loop {
        tokio::select! {
            read = client.read(&mut up) => {
                let Ok(count @ 1..) = read else { return };
                if server.write_all(&up[..count]).await.is_err() { return }
                let commits = up[..count].windows(COMMIT.len()).any(|bytes| bytes == COMMIT);
                if commits && cut.swap(false, Ordering::SeqCst) {
                    // The answer shows that it is committed; the client never sees it.
                    let _ = server.read(&mut down).await;
                    return;
                }
            }
            read = server.read(&mut down) => {
                let Ok(count @ 1..) = read else { return };
                if client.write_all(&down[..count]).await.is_err() { return }
            }
        }
    }
}

/// the caller cannot know whether it was committed, reads the checkpoint and goes on from there.
#[tokio::test]
async fn a_lost_answer_to_a_commit_changes_nothing_twice() {
    let direct = fresh();
    let target = direct.config.uri.trim_start_matches("bolt://").to_owned();
    let (address, cut) = proxy(target).await;
    let mut config = direct.config.clone();
    config.uri = address;
    let graph = Neo4jGraph::open(&config, FEED).await.unwrap();
    let mut script = Script::default();
    for round in 0..4 {
        script.decide(1, vec![memory(1, "one"), memory(2, &"two ".repeat(round))]);
        let batch = script.take(1).remove(0);
        cut.store(true, Ordering::SeqCst);
        let error = batch.apply(&graph).await.unwrap_err();
        assert!(matches!(error, StoreError::Unavailable { .. }), "{error}");
        assert!(error.is_retryable());
        assert!(!cut.load(Ordering::SeqCst), "the connection was cut");
        let stands = graph.checkpoint(batch.partition).await.unwrap();
        assert_eq!(stands, Some(batch.next), "it was committed");
        let again = batch.apply(&graph).await;
        assert!(matches!(again, Err(StoreError::Moved { .. })), "{again:?}");
        assert_holds(&graph, &script).await;
    }
    let versions = "MATCH (v:AnamnesisVersion {generation: $generation}) RETURN count(*) AS count";
    assert_eq!(direct.count(versions).await, 8);
}

async fn drop_constraints(place: &Place) {
    for row in place
        .by_hand("SHOW CONSTRAINTS YIELD name RETURN name")
        .await
    {
        let name: String = row.get("name").unwrap();
        place.by_hand(&format!("DROP CONSTRAINT {name}")).await;
    }
}

/// R-43, on a server of its own: constraints belong to the database.
#[tokio::test]
async fn nothing_is_written_without_constraints() {
    let server = Server::start();
    let mut place = server.place();
    place.config.check_constraints_every = Duration::ZERO;
    let constraints = "SHOW CONSTRAINTS YIELD name RETURN count(*) AS count";
    assert_eq!(place.count(constraints).await, 0);

    // Many that start at once on an empty database make each of them once.
    let opened =
        futures::future::join_all((0..8).map(|_| Neo4jGraph::open(&place.config, FEED))).await;
    for graph in opened {
        graph.unwrap();
    }
    assert_eq!(place.count(constraints).await, 6);

    let graph = place.graph().await;
    let mut script = Script::default();
    script.decide(1, vec![memory(1, "one")]);
    script.play(&graph).await;
    drop_constraints(&place).await;
    script.decide(1, vec![memory(2, "two")]);
    let batch = script.take(1).remove(0);
    let error = batch.apply(&graph).await.unwrap_err();
    assert!(matches!(error, StoreError::Unusable { .. }), "{error}");
    assert!(error.to_string().contains("AnamnesisVersion"), "{error}");
    assert_eq!(graph.rows(scope(1)).await.unwrap().len(), 1);

    // A start makes them again.
    let graph = place.graph().await;
    batch.apply(&graph).await.unwrap();
    assert_holds(&graph, &script).await;

    // Not over nodes that somebody doubled meanwhile.
    drop_constraints(&place).await;
    place
        .by_hand(
            "MATCH (v:AnamnesisVersion {generation: $generation})
             CREATE (w:AnamnesisVersion) SET w = properties(v)",
        )
        .await;
    let error = refusal(Neo4jGraph::open(&place.config, FEED).await);
    assert!(matches!(error, StoreError::Damaged { .. }), "{error}");
    assert!(error.to_string().contains("AnamnesisVersion"), "{error}");
    Neo4jGraph::delete_generation(&place.config).await.unwrap();
    let graph = place.graph().await;
    assert_eq!(graph.rows(scope(1)).await.unwrap(), []);
}
