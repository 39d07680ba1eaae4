//! Exactness, ties, the optimiser's work, and speed.

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use anamnesis_domain::ids::MemoryId;
use anamnesis_domain::memory::Memory;
use anamnesis_pipeline::conformance::stores::draw::Draw;
use anamnesis_pipeline::conformance::stores::projection::holds_bytes;
use anamnesis_pipeline::conformance::stores::script::{
    Script, day, everything, memory, scope, vector_of,
};
use anamnesis_pipeline::conformance::stores::{LOG_ID, PARTITIONS, model};
use anamnesis_pipeline::doubles::vectors::MemoryVectors;
use anamnesis_pipeline::embedder::ModelIdentity;
use anamnesis_pipeline::stores::{
    Change, Checkpoint, Filter, MemoryVersion, Projection, Store, VectorIndex,
};
use qdrant_client::qdrant::{
    Filter as Conditions, OptimizersConfigDiffBuilder, UpdateCollectionBuilder,
};

use super::{FEED, Fresh, GENERATION, OwnServer, vector_of_point};

fn numbered(number: u32, text: &str) -> Memory {
    let mut bytes = [0; 16];
    bytes[12..].copy_from_slice(&number.to_be_bytes());
    let mut memory = memory(0, text);
    memory.id = MemoryId::from_bytes(bytes);
    memory
}

/// More memories with the very same words than are asked for.
#[tokio::test]
async fn equal_scores_are_told_apart_by_id() {
    let fresh = Fresh::new();
    let store = fresh.opened().await;
    let mut script = Script::default();
    let mut numbers: Vec<u32> = (1..=150).collect();
    let mut draw = Draw::new(3);
    for end in (1..numbers.len()).rev() {
        numbers.swap(end, draw.below(end as u64 + 1) as usize);
    }
    script.decide(
        1,
        numbers
            .iter()
            .map(|number| numbered(*number, "tea"))
            .collect(),
    );
    script.play(&store).await;
    let query = vector_of("coffee").unwrap();
    for top in [0, 1, 5, 149, 150, 151] {
        let answer = store
            .search(&everything(1, 100), &query, top)
            .await
            .unwrap();
        let found: Vec<MemoryId> = answer.hits.iter().map(|hit| hit.memory_id).collect();
        let expected: Vec<MemoryId> = (1..=150)
            .take(top)
            .map(|number| numbered(number, "").id)
            .collect();
        assert_eq!(found, expected, "{top}");
    }
}

/// with a graph over thousands of vectors, an owner who has three among them is answered as by
/// brute force; so is the big one.
#[tokio::test]
async fn answers_stay_exact_when_the_graph_is_built() {
    let fresh = Fresh::new();
    let store = fresh.opened().await;
    let reference = MemoryVectors::new(LOG_ID, PARTITIONS, model());
    let mut script = Script::default();
    let mut next = 0;
    for _ in 0..6 {
        let some = (next..next + 400).map(|number| numbered(number, &format!("n {number}")));
        script.decide(1, some.collect());
        next += 400;
    }
    script.decide(
        2,
        (1..=3)
            .map(|number| numbered(number, &format!("few {number}")))
            .collect(),
    );
    for batch in script.take(100) {
        batch.apply(&store).await.unwrap();
        batch.apply(&reference).await.unwrap();
    }
    build_graph(&fresh).await;
    for number in [1, 2, 3] {
        for question in 0..10 {
            let query = vector_of(&format!("question {question}")).unwrap();
            let filter = everything(number, 100);
            let answer = store.search(&filter, &query, 10).await.unwrap();
            assert_eq!(answer, reference.search(&filter, &query, 10).await.unwrap());
        }
    }
}

/// Has the optimiser build whatever there is to build, however small.
async fn build_graph(fresh: &Fresh) {
    let raw = fresh.raw();
    let smallest = OptimizersConfigDiffBuilder::default().indexing_threshold(1);
    let request = UpdateCollectionBuilder::new(&raw.collection).optimizers_config(smallest);
    raw.client.update_collection(request).await.unwrap();
    // A server does it in the background.
    let since = Instant::now();
    loop {
        let info = raw
            .client
            .collection_info(&raw.collection)
            .await
            .unwrap()
            .result
            .unwrap();
        if info.indexed_vectors_count.unwrap_or(0) > 0 && info.status == 1 {
            return;
        }
        assert!(since.elapsed().as_secs() < 60, "the graph is not built");
        tokio::task::yield_now().await;
    }
}

/// A point that the optimiser has moved keeps what an upsert does not name: an erasure must name the
/// vector.
#[tokio::test]
async fn an_erasure_reaches_what_the_optimiser_has_moved() {
    check_erasure(&Fresh::new(), None).await;
}

/// The files of the test tool's engine, which are a server's: what the optimiser wrote anew holds no
/// erased vector. (The write-ahead log is another matter; see the module comment of the adapter.)
#[tokio::test(flavor = "multi_thread")]
async fn compaction_leaves_no_erased_vector_in_the_segments() {
    let server = OwnServer::start();
    check_erasure(&Fresh::on(&server.url), Some(&server.collections())).await;
}

async fn check_erasure(fresh: &Fresh, files: Option<&Path>) {
    let store = fresh.opened().await;
    let mut script = Script::default();
    script.decide(
        1,
        (0..300).map(|number| numbered(number, "secret")).collect(),
    );
    script.play(&store).await;
    build_graph(fresh).await;
    let secret = vector_of(numbered(0, "secret").claim.text.expose()).unwrap();
    let secret: Vec<u8> = secret.iter().flat_map(|x| x.to_le_bytes()).collect();
    let segments = files.map(|files| files.join(fresh.raw().collection).join("segments"));
    if let Some(segments) = &segments {
        assert!(holds_bytes(segments, &secret), "the search is broken");
    }
    script.decide(1, vec![numbered(7, "again")]);
    let all: Vec<MemoryId> = (0..300).map(|number| numbered(number, "").id).collect();
    script.erase(1, &all);
    script.play(&store).await;
    store.compact().await.unwrap();
    assert_eq!(
        store.rows(scope(1)).await.unwrap(),
        script.expected(Store::Vectors, scope(1).key())
    );
    for point in fresh.raw().points(Conditions::default()).await {
        assert!(
            vector_of_point(&point)
                .iter()
                .all(|component| *component == 0.0)
        );
    }
    if let Some(segments) = &segments {
        assert!(!holds_bytes(segments, &secret), "an erased vector is left");
    }
    // Indexes are still there, and the store goes on.
    fresh.opened().await;
    script.decide(1, vec![memory(200, "after")]);
    script.play(&store).await;
    assert_eq!(
        store.rows(scope(1)).await.unwrap(),
        script.expected(Store::Vectors, scope(1).key())
    );
}

/// what was applied is found at once, also by another reader.
#[tokio::test]
async fn what_was_applied_is_found_at_once() {
    let fresh = Fresh::new();
    let (writer, reader) = (fresh.opened().await, fresh.opened().await);
    let mut script = Script::default();
    for number in 1..=60 {
        script.decide(1, vec![memory(number, "tea")]);
        script.play(&writer).await;
        let query = vector_of("tea").unwrap();
        let answer = reader
            .search(&everything(1, u64::MAX), &query, 100)
            .await
            .unwrap();
        assert_eq!(
            (answer.hits.len(), answer.position),
            (number as usize, script.end(1))
        );
    }
}

/// Not a limit, but a figure: points a second in batches of 500, and how long a question takes.
#[tokio::test]
async fn speed_is_printed() {
    const DIMENSION: u32 = 384;
    const BATCHES: u64 = 6;
    const BATCH: u64 = 500;
    let fresh = Fresh::new();
    let model = ModelIdentity {
        id: "speed".to_owned(),
        dimension: DIMENSION,
    };
    let store = fresh.open_as(GENERATION, FEED, model).await.unwrap();
    let mut draw = Draw::new(1);
    let mut unit = move || -> Arc<[f32]> {
        let raw: Vec<f32> = (0..DIMENSION)
            .map(|_| draw.below(2001) as f32 / 1000.0 - 1.0)
            .collect();
        let length = raw.iter().map(|x| x * x).sum::<f32>().sqrt();
        raw.iter().map(|x| x / length).collect()
    };
    let script = Script::default();
    let partition = script.partition_of(1);
    let mut writing = std::time::Duration::ZERO;
    for batch in 0..BATCHES {
        let changes: Vec<Change> = (0..BATCH)
            .map(|number| {
                let offset = batch * BATCH + number;
                let mut memory = numbered(offset as u32, "");
                memory.version = offset + 1;
                memory.standing.valid_from = day(0);
                let version = MemoryVersion {
                    owner: scope(1).key(),
                    memory,
                    recorded_from: offset,
                    recorded_to: None,
                    recorded_at: day(0),
                };
                Change::Version {
                    version: Arc::new(version),
                    vector: Some(unit()),
                }
            })
            .collect();
        let next = Checkpoint {
            log_id: LOG_ID,
            next: (batch + 1) * BATCH,
        };
        let since = Instant::now();
        store
            .apply(partition, batch * BATCH, &changes, next)
            .await
            .unwrap();
        writing += since.elapsed();
    }
    let filter = Filter {
        valid_at: Some(day(1)),
        ..everything(1, u64::MAX)
    };
    let mut times = Vec::new();
    for _ in 0..100 {
        let query = unit();
        let since = Instant::now();
        let answer = store.search(&filter, &query, 50).await.unwrap();
        times.push(since.elapsed());
        assert_eq!(answer.hits.len(), 50);
    }
    times.sort();
    let points = (BATCHES * BATCH) as f64;
    eprintln!(
        "qdrant: {:.0} points/s in batches of {BATCH}; among {points} of {DIMENSION} dimensions a \
         question takes {:?} (p50), {:?} (p95)",
        points / writing.as_secs_f64(),
        times[50],
        times[95],
    );
    assert_ne!(store.rows(scope(1)).await.unwrap(), []);
}
