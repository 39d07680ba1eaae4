//! Crashes, late writers, and a server that goes away.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anamnesis_domain::ids::OwnerKey;
use anamnesis_domain::owner::OwnerScope;
use anamnesis_pipeline::conformance::stores::draw::Draw;
use anamnesis_pipeline::conformance::stores::script::{
    OwnedBatch, Script, everything, id, memory, scope, vector_of,
};
use anamnesis_pipeline::conformance::stores::{LOG_ID, PARTITIONS, model};
use anamnesis_pipeline::doubles::vectors::MemoryVectors;
use anamnesis_pipeline::stores::{
    Change, LegAnswer, Projection, RowDigest, Store, StoreError, VectorIndex,
};
use anamnesis_servers::qdrant::config::QdrantConfig;
use anamnesis_servers::qdrant::{Place, QdrantVectors};
use qdrant_client::qdrant::{Filter, RetrievedPoint};

use super::{FEED, Fresh, GENERATION, OwnServer, row, vector_of_point};

fn reference() -> MemoryVectors {
    MemoryVectors::new(LOG_ID, PARTITIONS, model())
}

async fn all_rows(store: &dyn Projection, owners: u8) -> BTreeMap<u8, Vec<RowDigest>> {
    let mut rows = BTreeMap::new();
    for number in 1..=owners {
        rows.insert(number, store.rows(scope(number)).await.unwrap());
    }
    rows
}

async fn ask(store: &dyn VectorIndex, number: u8) -> LegAnswer {
    let query = vector_of("peanut 花生").unwrap();
    store
        .search(&everything(number, u64::MAX), &query, 1000)
        .await
        .unwrap()
}

fn rewritten(batch: &OwnedBatch) -> BTreeSet<OwnerKey> {
    let rewrites = batch.changes.iter().filter_map(|change| match change {
        Change::Rewrite(rows) => Some(rows.owner),
        Change::Version { .. } | Change::Decision(_) | Change::Owner(_) => None,
    });
    rewrites.collect()
}

/// A writer dies after its points and before its checkpoint, again and again. Nothing of the batch is
/// seen, but that an erasure may come early; and each successor cuts its batches otherwise.
#[tokio::test]
async fn a_batch_without_its_checkpoint_is_not_seen_and_is_repeated() {
    const OWNERS: u8 = 5;
    let fresh = Fresh::new();
    let store = fresh.opened().await;
    let raw = fresh.raw();
    let reference = reference();
    let mut script = Script::default();
    Draw::new(44).history(&mut script, u64::from(OWNERS), 90);
    let mut batches: BTreeMap<u32, VecDeque<OwnedBatch>> = BTreeMap::new();
    for batch in script.take(2) {
        batches.entry(batch.partition).or_default().push_back(batch);
    }
    for (partition, mut batches) in batches {
        while !batches.is_empty() {
            let lost = joined(batches.iter().take(5));
            let before = raw.checkpoint(partition).await;
            lost.apply(&store).await.unwrap();
            raw.put(before).await;
            check_unseen(&store, &reference, &lost, OWNERS).await;
            for batch in batches.drain(..batches.len().min(3)) {
                batch.apply(&store).await.unwrap();
                batch.apply(&reference).await.unwrap();
            }
        }
    }
    let (found, expected) = (
        all_rows(&store, OWNERS).await,
        all_rows(&reference, OWNERS).await,
    );
    assert_eq!(found, expected);
    let owners = store.owners().await.unwrap();
    assert_eq!(owners, reference.owners().await.unwrap());
    for owner in owners {
        let rows = store.rows(OwnerScope::of_log_record(owner)).await.unwrap();
        assert_eq!(rows, script.expected(Store::Vectors, owner));
    }
}

/// These batches, which follow each other, as one.
fn joined<'a>(batches: impl Iterator<Item = &'a OwnedBatch>) -> OwnedBatch {
    let joined = batches.cloned().reduce(|mut all, batch| {
        all.changes.extend(batch.changes);
        all.next = batch.next;
        all
    });
    joined.expect("one at least")
}

/// Nothing of `lost` shows, but that it may have erased.
async fn check_unseen(
    store: &QdrantVectors,
    reference: &MemoryVectors,
    lost: &OwnedBatch,
    owners: u8,
) {
    let erased = rewritten(lost);
    for (number, rows) in all_rows(store, owners).await {
        let expected = reference.rows(scope(number)).await.unwrap();
        if erased.contains(&scope(number).key()) {
            let keys: BTreeSet<&str> = expected.iter().map(|row| row.key.as_str()).collect();
            let is_less = rows.iter().all(|row| keys.contains(row.key.as_str()));
            assert!(is_less, "owner {number}");
            continue;
        }
        assert_eq!(rows, expected, "owner {number}");
        assert_eq!(
            ask(store, number).await,
            ask(reference, number).await,
            "owner {number}"
        );
    }
    let known = reference.owners().await.unwrap();
    for owner in store.owners().await.unwrap() {
        assert!(known.contains(&owner), "an owner is seen too early");
    }
}

/// a writer that was stopped after it had compared its position writes when an erasure is long
/// applied. (The comparison is passed by putting the old checkpoint back.)
#[tokio::test]
async fn a_late_write_brings_no_erased_version_back() {
    let fresh = Fresh::new();
    let (store, late) = (fresh.opened().await, fresh.opened().await);
    let raw = fresh.raw();
    let mut script = Script::default();
    let partition = script.partition_of(1);
    let at_first = raw.checkpoint(partition).await;
    script.decide(1, vec![memory(1, "secret"), memory(2, "kept")]);
    script.decide(
        1,
        vec![memory(1, "secret, updated"), memory(3, "said once")],
    );
    let stale = script.take(1);
    let whole = {
        let mut whole = Script::default();
        whole.decide(1, vec![memory(1, "secret"), memory(2, "kept")]);
        whole.decide(
            1,
            vec![memory(1, "secret, updated"), memory(3, "said once")],
        );
        whole.take(2)
    };
    for batch in &stale {
        batch.apply(&store).await.unwrap();
    }
    script.erase(1, &[id(1), id(3)]);
    script.play(&store).await;
    let at_last = raw.checkpoint(partition).await;
    let expected = script.expected(Store::Vectors, scope(1).key());
    assert_eq!(store.rows(scope(1)).await.unwrap(), expected);

    for late_batches in [&stale, &whole] {
        raw.put(at_first.clone()).await;
        for batch in late_batches {
            batch.apply(&late).await.unwrap();
        }
        raw.put(at_last.clone()).await;
        assert_eq!(store.rows(scope(1)).await.unwrap(), expected);
        let hits = ask(&store, 1).await.hits;
        assert_eq!(
            hits.iter().map(|hit| hit.memory_id).collect::<Vec<_>>(),
            [id(2)]
        );
    }
    let tombstones = raw.points(row("tombstone")).await;
    assert_eq!(tombstones.len(), 3);
    for tombstone in tombstones {
        assert!(
            vector_of_point(&tombstone)
                .iter()
                .all(|component| *component == 0.0)
        );
    }
}

/// An erasure in the same batch as what it takes: a late writer of a part of the batch finds the place
/// taken.
#[tokio::test]
async fn what_was_said_and_erased_in_one_batch_stays_erased() {
    let fresh = Fresh::new();
    let (store, late) = (fresh.opened().await, fresh.opened().await);
    let raw = fresh.raw();
    let mut script = Script::default();
    let partition = script.partition_of(1);
    let at_first = raw.checkpoint(partition).await;
    let mut stale = Script::default();
    stale.decide(1, vec![memory(1, "secret")]);
    script.decide(1, vec![memory(1, "secret")]);
    script.erase(1, &[id(1)]);
    script.take(2).remove(0).apply(&store).await.unwrap();
    let at_last = raw.checkpoint(partition).await;
    raw.put(at_first).await;
    stale.play(&late).await;
    raw.put(at_last).await;
    assert_eq!(store.rows(scope(1)).await.unwrap(), []);
    assert_eq!(store.owners().await.unwrap(), []);
    assert_eq!(ask(&store, 1).await.hits, []);
}

#[tokio::test]
async fn of_two_writers_one_is_told_that_it_moved() {
    let fresh = Fresh::new();
    let (first, second) = (fresh.opened().await, fresh.opened().await);
    let mut script = Script::default();
    for number in 1..20 {
        script.decide(1, vec![memory(number % 5, "tea")]);
    }
    for batch in script.take(1) {
        let (a, b) = tokio::join!(batch.apply(&first), batch.apply(&second));
        let (applied, refused) = if a.is_ok() { (a, b) } else { (b, a) };
        applied.unwrap();
        assert!(
            matches!(refused, Err(StoreError::Moved { .. })),
            "{refused:?}"
        );
    }
    let expected = script.expected(Store::Vectors, scope(1).key());
    assert_eq!(second.rows(scope(1)).await.unwrap(), expected);
}

/// A configuration with time for a loaded machine.
fn patient(server: &OwnServer) -> QdrantConfig {
    let mut config = Fresh::on(&server.url).config.clone();
    config.read_deadline = Duration::from_secs(20);
    config
}

async fn open(config: &QdrantConfig) -> Result<QdrantVectors, StoreError> {
    let place = Place::Generation(GENERATION.to_owned());
    QdrantVectors::open(config, place, FEED, model()).await
}

fn assert_unavailable<T: std::fmt::Debug>(answer: Result<T, StoreError>) {
    match answer {
        Err(error @ StoreError::Unavailable { .. }) => assert!(error.is_retryable()),
        other => panic!("not unavailable: {other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_went_away_is_waited_for() {
    let server = OwnServer::start();
    let config = patient(&server);
    let store = open(&config).await.unwrap();
    let mut script = Script::default();
    script.decide(1, vec![memory(1, "tea")]);
    script.play(&store).await;
    script.decide(1, vec![memory(2, "coffee")]);
    let batch = script.take(1).remove(0);
    server.kill();

    assert_unavailable(batch.apply(&store).await);
    assert_unavailable(store.rows(scope(1)).await);
    assert_unavailable(store.checkpoint(batch.partition).await);
    assert_unavailable(open(&config).await.map(|_| ()));
    // Recall starts without it.
    let lazy = QdrantVectors::connect(&config, Place::Live, FEED, model()).unwrap();
    let query = vector_of("tea").unwrap();
    assert_unavailable(lazy.search(&everything(1, 100), &query, 5).await);

    server.start_again();
    assert_eq!(
        store
            .checkpoint(batch.partition)
            .await
            .unwrap()
            .map(|c| c.next),
        Some(batch.from)
    );
    batch.apply(&store).await.unwrap();
    let expected = script.expected(Store::Vectors, scope(1).key());
    assert_eq!(store.rows(scope(1)).await.unwrap(), expected);
    let generations =
        anamnesis_servers::qdrant::generations::QdrantGenerations::connect(&config).unwrap();
    anamnesis_servers::generations::Generations::switch(&generations, GENERATION)
        .await
        .unwrap();
    assert_eq!(
        lazy.search(&everything(1, 100), &query, 5)
            .await
            .unwrap()
            .hits
            .len(),
        2
    );
}

/// A batch that was cut off by a crash is read again together with the erasure that came after it, by
/// somebody who cannot read any more what was erased. Then its points arrive at the server.
#[tokio::test]
async fn a_late_write_brings_nothing_in_that_was_erased_before_anybody_had_made_it() {
    let fresh = Fresh::new();
    let (store, late) = (fresh.opened().await, fresh.opened().await);
    let raw = fresh.raw();
    let mut script = Script::default();
    let partition = script.partition_of(1);
    let at_first = raw.checkpoint(partition).await;
    script.decide(1, vec![memory(1, "secret"), memory(2, "kept")]);
    let cut_off = script.take(1);
    script.erase(1, &[id(1)]);
    let mut whole = joined(cut_off.iter().chain(&script.take(1)));
    whole
        .changes
        .retain(|change| matches!(change, Change::Rewrite(_)));
    whole.apply(&store).await.unwrap();
    let at_last = raw.checkpoint(partition).await;
    let expected = script.expected(Store::Vectors, scope(1).key());
    assert_eq!(store.rows(scope(1)).await.unwrap(), expected);

    raw.put(at_first).await;
    for batch in &cut_off {
        batch.apply(&late).await.unwrap();
    }
    raw.put(at_last).await;
    for _ in 0..2 {
        assert_eq!(store.rows(scope(1)).await.unwrap(), expected);
        let hits = ask(&store, 1).await.hits;
        let hits: Vec<_> = hits.iter().map(|hit| hit.memory_id).collect();
        assert_eq!(hits, [id(2)]);
        // What came in is overwritten as well.
        store.compact().await.unwrap();
    }
    let points = raw.points(Filter::default()).await;
    let zero = |point: &&RetrievedPoint| vector_of_point(point).iter().all(|x| *x == 0.0);
    assert_eq!(points.len() - points.iter().filter(zero).count(), 1);
}

/// the server is killed while batches are written. It comes back each time, its position
/// is never ahead of its rows, and going on from there ends where it should.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_killed_while_it_writes_loses_nothing() {
    const OWNERS: u8 = 6;
    let server = OwnServer::start();
    let config = patient(&server);
    let store = Arc::new(open(&config).await.unwrap());
    let mut script = Script::default();
    let mut draw = Draw::new(27);
    let reference = reference();
    for round in 0..6 {
        draw.history(&mut script, u64::from(OWNERS), 60);
        let batches = script.take(2);
        let (applied, mut seen) = tokio::sync::mpsc::unbounded_channel();
        let writer = {
            let (store, batches) = (store.clone(), batches.clone());
            tokio::spawn(async move {
                for batch in batches {
                    if batch.apply(&*store).await.is_err() {
                        return;
                    }
                    let _ = applied.send(());
                }
            })
        };
        // The next one is on its way.
        for _ in 0..=3 * round {
            seen.recv().await;
        }
        server.kill();
        writer.await.unwrap();
        server.start_again();
        for batch in &batches {
            let stood = store.checkpoint(batch.partition).await.unwrap();
            if stood.map_or(0, |stood| stood.next) < batch.next.next {
                batch.apply(&*store).await.unwrap();
            }
            batch.apply(&reference).await.unwrap();
        }
        let (found, expected) = (
            all_rows(&*store, OWNERS).await,
            all_rows(&reference, OWNERS).await,
        );
        assert_eq!(found, expected, "round {round}");
    }
}

#[tokio::test]
async fn a_server_that_does_not_answer_is_given_up_in_time() {
    let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut config = QdrantConfig::new(format!("http://{}", silent.local_addr().unwrap()));
    config.read_deadline = Duration::from_millis(200);
    let store = QdrantVectors::connect(&config, Place::Live, FEED, model()).unwrap();
    let since = Instant::now();
    let query = vector_of("tea").unwrap();
    assert_unavailable(store.search(&everything(1, 100), &query, 5).await);
    assert!(
        since.elapsed() < Duration::from_secs(2),
        "{:?}",
        since.elapsed()
    );
}
