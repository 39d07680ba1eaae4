//! Is what was erased gone, whatever is delivered again, and from the server's files too?

use anamnesis_domain::memory::EntityKind;
use anamnesis_pipeline::conformance::stores::projection::{
    compaction_leaves_no_erased_byte, holds_bytes,
};
use anamnesis_pipeline::conformance::stores::script::{
    OwnedBatch, Script, entity, everything, id, memory, memory_with, peanut, scope,
};
use anamnesis_pipeline::stores::{GraphIndex as _, Projection as _, Store, StoreError};
use anamnesis_servers::neo4j::Neo4jGraph;

use super::server::Server;
use super::{Place, fresh};

/// the position guard is taken away by hand, as by an administrator who resets a checkpoint, and
/// what was applied before the erasure is applied again.
#[tokio::test]
async fn a_stale_write_after_an_erasure_stays_erased() {
    let place = fresh();
    let graph = place.graph().await;
    let mut script = Script::default();
    script.decide(1, vec![memory(1, "secret"), memory(2, "kept")]);
    script.decide(1, vec![memory(1, "secret, updated")]);
    let stale = script.take(1);
    for batch in &stale {
        batch.apply(&graph).await.unwrap();
    }
    script.erase(1, &[id(1)]);
    let first_erasure = script.take(1);
    for batch in &first_erasure {
        batch.apply(&graph).await.unwrap();
    }
    script.decide(1, vec![memory(3, "after")]);
    script.erase(1, &[id(2)]);
    script.play(&graph).await;
    let before = graph.rows(scope(1)).await.unwrap();
    assert_eq!(before, script.expected(Store::Graph, scope(1).key()));

    let again: Vec<&OwnedBatch> = stale.iter().chain(&first_erasure).collect();
    for batch in again {
        place
            .by_hand(&format!(
                "MATCH (p:AnamnesisPartition {{generation: $generation, partition: {}}}) SET p.next = {}",
                batch.partition, batch.from
            ))
            .await;
        batch.apply(&graph).await.unwrap();
        assert_eq!(graph.rows(scope(1)).await.unwrap(), before);
    }
    let written =
        "MATCH (p:AnamnesisPartition {generation: $generation}) RETURN sum(p.versions) AS count";
    assert_eq!(place.count(written).await, before.len() as i64);
}

/// An erasure changes the owner's secret; a process that knew the old one finds that out by itself.
#[tokio::test]
async fn another_process_notices_a_rewrite() {
    let place = fresh();
    let (writer, reader) = (place.graph().await, place.graph().await);
    let mut script = Script::default();
    script.decide(1, vec![memory(1, "secret"), memory(2, "kept")]);
    script.play(&writer).await;
    let (seeds, named) = ([id(2)], [peanut()]);
    for (erased, expected) in [(1, 2), (2, 1)] {
        let filter = everything(1, script.end(1));
        let answer = reader
            .neighbours(&filter, &seeds, &named, 50)
            .await
            .unwrap();
        assert_eq!(answer.hits.len(), expected);
        script.erase(1, &[id(erased)]);
        script.play(&writer).await;
    }
    let filter = everything(1, script.end(1));
    let answer = reader
        .neighbours(&filter, &seeds, &named, 50)
        .await
        .unwrap();
    assert_eq!(answer.hits, []);
}

/// The four numbers of all owners, as bytes in either order.
async fn secrets(place: &Place) -> Vec<Vec<u8>> {
    let statement = "MATCH (o:AnamnesisOwner {generation: $generation})
        UNWIND [o.secret_0, o.secret_1, o.secret_2, o.secret_3] AS number RETURN number";
    let rows = place.by_hand(statement).await;
    let numbers = rows
        .iter()
        .map(|row| row.get::<i64>("number").expect("a number"));
    let bytes = numbers.flat_map(|number| [number.to_le_bytes(), number.to_be_bytes()]);
    bytes.map(Vec::from).collect()
}

fn found(server: &Server, needles: &[Vec<u8>]) -> usize {
    needles
        .iter()
        .filter(|needle| holds_bytes(&server.data(), needle))
        .count()
}

/// On a server of its own, because all of its files are searched.
#[tokio::test]
async fn no_file_of_the_server_holds_what_was_erased() {
    let server = Server::start();
    compaction_leaves_no_erased_byte(|| server.place()).await;

    let place = server.place();
    let graph = place.graph().await;
    let mut script = Script::default();
    let named = memory_with(1, "secret", |memory| {
        memory
            .claim
            .entities
            .push(entity(EntityKind::Person, "zyzzyvacanary"));
    });
    script.decide(1, vec![named]);
    script.decide(2, vec![memory(1, "somebody else's")]);
    script.play(&graph).await;
    assert_eq!(
        found(&server, &[b"zyzzyvacanary".to_vec()]),
        0,
        "no word is written as it is"
    );
    let old = secrets(&place).await;
    assert!(
        found(&server, &old) >= old.len() / 2,
        "the secrets are not found in the files that hold them: the search is broken"
    );

    script.erase(1, &[id(1)]);
    script.erase(2, &[id(1)]);
    script.play(&graph).await;
    graph.compact().await.unwrap();
    assert_eq!(found(&server, &old), 0, "an old secret is left in a file");
    let rows = graph.rows(scope(1)).await.unwrap();
    assert_eq!(rows, script.expected(Store::Graph, scope(1).key()));

    // Without a look at the files it takes its time, and they are gone as well.
    let old = secrets(&place).await;
    let mut blind = place.config.clone();
    blind.server_data = None;
    let blind = Neo4jGraph::open(&blind, super::FEED).await.unwrap();
    script.erase(1, &[id(1)]);
    script.erase(2, &[id(1)]);
    script.play(&blind).await;
    blind.compact().await.unwrap();
    assert_eq!(found(&server, &old), 0, "an old secret is left in a file");

    // A deleted generation leaves none either.
    let old = secrets(&place).await;
    Neo4jGraph::delete_generation(&place.config).await.unwrap();
    let other = server.place();
    other.graph().await.compact().await.unwrap();
    assert_eq!(
        found(&server, &old),
        0,
        "a secret of a deleted generation is left in a file"
    );
}

/// A server that keeps its logs is told which setting to change; nothing is called erased.
#[tokio::test]
async fn compaction_refuses_a_folder_without_logs() {
    let mut place = fresh();
    place.config.server_data = Some("/nonexistent".into());
    let error = place.graph().await.compact().await.unwrap_err();
    assert!(matches!(error, StoreError::Unusable { .. }), "{error}");
}
