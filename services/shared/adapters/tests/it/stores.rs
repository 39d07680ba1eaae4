//! Do the SQLite stores pass what every store passes, and refuse files that are not theirs?

use std::path::Path;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use anamnesis_adapters::graph::SqliteGraph;
use anamnesis_adapters::records::SqliteRecords;
use anamnesis_adapters::vectors::SqliteVectors;
use anamnesis_domain::ids::LogId;
use anamnesis_domain::time::Known;
use anamnesis_pipeline::conformance::stores::draw::Draw;
use anamnesis_pipeline::conformance::stores::script::{
    Script, event, everything, id, memory, recorded_at, scope, vector_of,
};
use anamnesis_pipeline::conformance::stores::{Backend, LOG_ID, PARTITIONS, Probe, model};
use anamnesis_pipeline::embedder::ModelIdentity;
use anamnesis_pipeline::feed::Feed;
use anamnesis_pipeline::stores::{
    GraphIndex, Order, Projection, Records, RowDigest, Store, StoreError, VectorIndex,
};
use rusqlite::Connection;
use tempfile::TempDir;

const FEED: Feed = Feed {
    log_id: LOG_ID,
    partitions: PARTITIONS,
};

type Open<S> = fn(&Path) -> Result<Arc<S>, StoreError>;

/// A folder of its own, and how it is opened.
struct Place<S: ?Sized> {
    dir: TempDir,
    open: Open<S>,
}

impl<S: Probe + ?Sized> Place<S> {
    fn new(open: Open<S>) -> Self {
        Self {
            dir: TempDir::new().expect("a temporary folder"),
            open,
        }
    }
}

impl<S: Probe + ?Sized> Backend for Place<S> {
    type Store = S;

    async fn open(&self) -> Result<Arc<S>, StoreError> {
        (self.open)(self.dir.path())
    }

    fn dir(&self) -> Option<&Path> {
        Some(self.dir.path())
    }
}

fn open_records(dir: &Path) -> Result<Arc<dyn Records>, StoreError> {
    Ok(Arc::new(SqliteRecords::open(dir, FEED)?))
}

fn open_vectors(dir: &Path) -> Result<Arc<dyn VectorIndex>, StoreError> {
    Ok(Arc::new(SqliteVectors::open(dir, FEED, model())?))
}

fn open_graph(dir: &Path) -> Result<Arc<dyn GraphIndex>, StoreError> {
    Ok(Arc::new(SqliteGraph::open(dir, FEED)?))
}

mod sqlite_records {
    use super::*;

    fn fresh() -> Place<dyn Records> {
        Place::new(open_records)
    }

    anamnesis_pipeline::projection_cases!(fresh);
    anamnesis_pipeline::records_cases!(fresh);
}

/// What is at hand comes and goes, grows and is dropped, while the answers stay the same.
mod sqlite_records_with_a_small_cache {
    use super::*;

    fn fresh() -> Place<dyn Records> {
        Place::new(|dir| Ok(Arc::new(SqliteRecords::open_with_cache(dir, FEED, 12_000)?)))
    }

    anamnesis_pipeline::projection_cases!(fresh);
    anamnesis_pipeline::records_cases!(fresh);
}

mod sqlite_vectors {
    use super::*;

    fn fresh() -> Place<dyn VectorIndex> {
        Place::new(open_vectors)
    }

    anamnesis_pipeline::projection_cases!(fresh);
    anamnesis_pipeline::vectors_cases!(fresh);
}

/// Blocks come and go while the answers stay the same.
mod sqlite_vectors_with_a_small_cache {
    use super::*;

    fn fresh() -> Place<dyn VectorIndex> {
        Place::new(|dir| {
            Ok(Arc::new(SqliteVectors::open_with_cache(
                dir,
                FEED,
                model(),
                6_000,
            )?))
        })
    }

    anamnesis_pipeline::projection_cases!(fresh);
    anamnesis_pipeline::vectors_cases!(fresh);
}

mod sqlite_graph {
    use super::*;

    fn fresh() -> Place<dyn GraphIndex> {
        Place::new(open_graph)
    }

    anamnesis_pipeline::projection_cases!(fresh);
    anamnesis_pipeline::graph_cases!(fresh);
}

mod sqlite_graph_with_a_small_cache {
    use super::*;

    fn fresh() -> Place<dyn GraphIndex> {
        Place::new(|dir| Ok(Arc::new(SqliteGraph::open_with_cache(dir, FEED, 3_000)?)))
    }

    anamnesis_pipeline::projection_cases!(fresh);
    anamnesis_pipeline::graph_cases!(fresh);
}

/// The same questions to what is at hand, which keeps everything, and to the file: every page of every
/// listing, checks, histories, decisions, views, cuts, as of any time, while history goes on.
#[tokio::test]
async fn what_is_at_hand_answers_as_the_file_does() {
    let dir = TempDir::new().unwrap();
    let kept = SqliteRecords::open(dir.path(), FEED).unwrap();
    let file = SqliteRecords::open_with_cache(dir.path(), FEED, 0).unwrap();
    let mut script = Script::default();
    let mut draw = Draw::new(77);
    let mut versions = 0;
    for round in 0..6 {
        draw.history(&mut script, 20, 150);
        script.play(&kept).await;
        for number in (1..=20u8).flat_map(|number| [number; 4]) {
            let filter = draw.filter(number, script.end(number));
            let order = if draw.chance(50) {
                Order::Recorded
            } else {
                Order::Valid
            };
            let limit = 1 + draw.below(9) as usize;
            let mut cursor: Option<String> = None;
            loop {
                let page = kept
                    .list(&filter, order, limit, cursor.as_deref())
                    .await
                    .unwrap();
                let expected = file
                    .list(&filter, order, limit, cursor.as_deref())
                    .await
                    .unwrap();
                assert_eq!(page, expected, "round {round}, owner {number}");
                versions += page.versions.len();
                cursor = page.cursor;
                if cursor.is_none() {
                    break;
                }
            }
            let ids: Vec<_> = (0..12).map(|_| draw.memory_id()).collect();
            assert_eq!(
                kept.check(&filter, &ids).await.unwrap(),
                file.check(&filter, &ids).await.unwrap()
            );
            let scope = scope(number);
            for id in ids {
                assert_eq!(
                    kept.history(scope, id).await.unwrap(),
                    file.history(scope, id).await.unwrap()
                );
            }
            for known in [
                Known::Latest,
                Known::At(recorded_at(draw.below(script.end(number) + 2))),
            ] {
                assert_eq!(
                    kept.cut(scope, known).await.unwrap(),
                    file.cut(scope, known).await.unwrap()
                );
            }
            let event = event(draw.below(9));
            assert_eq!(
                kept.decision(scope, event).await.unwrap(),
                file.decision(scope, event).await.unwrap()
            );
            assert_eq!(
                kept.owner(scope).await.unwrap(),
                file.owner(scope).await.unwrap()
            );
        }
    }
    assert!(versions > 1_000, "too little to compare: {versions}");
}

/// A row that cannot be read is not answered from; what does not need it is answered from the file.
#[tokio::test]
async fn beside_an_altered_record_the_others_answer() {
    let dir = filled(Store::Records).await;
    alter(
        Store::Records,
        dir.path(),
        "UPDATE versions SET context_tags = 'x' WHERE memory = x'01010101010101010101010101010101'",
    );
    let records = open_records(dir.path()).unwrap();
    let latest = records.cut(scope(1), Known::Latest).await.unwrap();
    let filter = everything(1, latest.0);
    let altered = records.check(&filter, &[id(1)]).await;
    assert!(
        matches!(altered, Err(StoreError::Damaged { .. })),
        "{altered:?}"
    );
    assert_eq!(records.check(&filter, &[id(2)]).await.unwrap().len(), 1);
    assert!(records.owner(scope(1)).await.unwrap().is_some());
}

fn open_any(store: Store, dir: &Path, feed: Feed) -> Result<Arc<dyn Projection>, StoreError> {
    Ok(match store {
        Store::Records => Arc::new(SqliteRecords::open(dir, feed)?),
        Store::Vectors => Arc::new(SqliteVectors::open(dir, feed, model())?),
        Store::Graph => Arc::new(SqliteGraph::open(dir, feed)?),
        Store::Text => panic!("the text index is no SQLite file"),
    })
}

const SQLITE: [Store; 3] = [Store::Records, Store::Vectors, Store::Graph];

/// A folder with this store, in which owners 1 and 2 have two memories each.
async fn filled(store: Store) -> TempDir {
    let dir = TempDir::new().unwrap();
    let opened = open_any(store, dir.path(), FEED).unwrap();
    let mut script = Script::default();
    for owner in [1, 2] {
        script.decide(owner, vec![memory(1, "tea"), memory(2, "花生")]);
        script.decide(owner, vec![memory(1, "green tea")]);
    }
    script.play(&*opened).await;
    dir
}

fn alter(store: Store, dir: &Path, sql: &str) {
    let connection = Connection::open(dir.join(format!("{store}.db"))).unwrap();
    connection
        .execute_batch(sql)
        .unwrap_or_else(|error| panic!("{sql}: {error}"));
}

async fn rows(store: Store, dir: &Path) -> Vec<(u8, RowDigest)> {
    let opened = open_any(store, dir, FEED).unwrap();
    let mut all = Vec::new();
    for owner in [1, 2] {
        let rows = opened.rows(scope(owner)).await.unwrap();
        all.extend(rows.into_iter().map(|row| (owner, row)));
    }
    all
}

/// Applies `sql` to the store's file and says whose rows then differ.
async fn check_altered(store: Store, sql: &str, expected: &[&str]) {
    let dir = filled(store).await;
    let before = rows(store, dir.path()).await;
    alter(store, dir.path(), sql);
    let after = rows(store, dir.path()).await;
    let mut differing: Vec<String> = before
        .iter()
        .filter(|row| !after.contains(row))
        .chain(after.iter().filter(|row| !before.contains(row)))
        .map(|(owner, row)| format!("{owner}:{}", row.key.replace(&id(1).to_string(), "m1")))
        .collect();
    differing.sort();
    differing.dedup();
    assert_eq!(differing, expected, "{store}: {sql}");
}

/// The first version of memory 1 of owner 1.
const ONE_ROW: &str =
    "WHERE owner = x'01010101010101010101010101010101' AND memory = x'01010101010101010101010101010101'
     AND version = 1";

#[tokio::test]
async fn any_altered_column_shows_in_its_own_row_only() {
    for store in SQLITE {
        for set in [
            "recorded_from = recorded_from + 1",
            "recorded_to = NULL",
            "recorded_to = 77",
            "valid_from = valid_from - 1",
            "valid_to = valid_from",
            "subject = 'father'",
            "kind = 'allergy'",
            "kind = 'no such kind'",
            "status = 'erased'",
            "status = ''",
            "context_tags = '[\"ward\"]'",
            "context_tags = 'broken'",
            "is_confirmation = 1",
        ] {
            let sql = format!("UPDATE versions SET {set} {ONE_ROW}");
            check_altered(store, &sql, &["1:m1/0000000001"]).await;
        }
        let sql = format!("DELETE FROM versions {ONE_ROW}");
        check_altered(store, &sql, &["1:m1/0000000001"]).await;
        let sql = format!("UPDATE versions SET version = 7 {ONE_ROW}");
        check_altered(store, &sql, &["1:m1/0000000001", "1:m1/0000000007"]).await;
    }
}

#[tokio::test]
async fn an_altered_record_shows() {
    for set in [
        "recorded_at = recorded_at + 1",
        "body = replace(body, 'tea', 'milk')",
        "body = replace(body, '0.625', '0.5')",
        "body = replace(body, '\"active\"', '\"erased\"')",
        "body = replace(body, '{\"claim\"', '{\"extra\":1,\"claim\"')",
        "body = body || ' '",
        "body = 'broken'",
    ] {
        let sql = format!("UPDATE versions SET {set} {ONE_ROW}");
        check_altered(Store::Records, &sql, &["1:m1/0000000001"]).await;
    }
    for set in [
        "\"offset\" = 77",
        "recorded_at = recorded_at + 1",
        "event = zeroblob(16)",
        "body = replace(body, 'stored', 'no_op')",
        "body = body || ' '",
    ] {
        let sql = format!(
            "UPDATE decisions SET {set} WHERE owner = x'02020202020202020202020202020202' AND owner_seq = 2"
        );
        check_altered(Store::Records, &sql, &["2:decision/0000000002"]).await;
    }
    for set in [
        "body = replace(body, 'p-1', 'p-9')",
        "body = 'broken'",
        "body = body || ' '",
    ] {
        let sql =
            format!("UPDATE owners SET {set} WHERE owner = x'01010101010101010101010101010101'");
        check_altered(Store::Records, &sql, &["1:owner"]).await;
    }
}

#[tokio::test]
async fn an_altered_vector_or_edge_shows() {
    for set in ["vector = zeroblob(84)", "vector = x'00'"] {
        let sql = format!("UPDATE versions SET {set} {ONE_ROW}");
        check_altered(Store::Vectors, &sql, &["1:m1/0000000001"]).await;
    }
    for sql in [
        format!("UPDATE edges SET name = 'walnut' {ONE_ROW}"),
        format!("UPDATE edges SET kind = 'drug' {ONE_ROW}"),
        format!("UPDATE edges SET kind = 'no such kind' {ONE_ROW}"),
        format!("DELETE FROM edges {ONE_ROW}"),
    ] {
        check_altered(Store::Graph, &sql, &["1:m1/0000000001"]).await;
    }
}

/// A row whose body and columns differ is not answered from.
#[tokio::test]
async fn an_altered_record_answers_nothing() {
    let dir = filled(Store::Records).await;
    alter(
        Store::Records,
        dir.path(),
        "UPDATE versions SET body = replace(body, '\"active\"', '\"erased\"') WHERE recorded_to IS NULL",
    );
    let records = open_records(dir.path()).unwrap();
    let answer = records.history(scope(1), id(1)).await;
    assert!(
        matches!(answer, Err(StoreError::Damaged { .. })),
        "{answer:?}"
    );
}

fn refusal(opened: Result<Arc<dyn Projection>, StoreError>) -> StoreError {
    match opened {
        Ok(store) => panic!("{} opened", store.store()),
        Err(error) => error,
    }
}

#[tokio::test]
async fn a_half_deleted_store_says_so() {
    for store in SQLITE {
        for sql in [
            "DROP TABLE versions",
            "DROP TABLE checkpoints",
            "DROP TABLE meta",
            "DELETE FROM versions",
            "DELETE FROM checkpoints",
            "DELETE FROM meta",
            "ALTER TABLE meta RENAME COLUMN log_id TO other",
        ] {
            let dir = filled(store).await;
            alter(store, dir.path(), sql);
            let error = refusal(open_any(store, dir.path(), FEED));
            assert!(
                matches!(error, StoreError::Damaged { .. }),
                "{store}: {sql}: {error:?}"
            );
            let says = error.to_string();
            assert!(
                says.contains(&format!("anamnesis rebuild --store {store}")),
                "{says}"
            );
        }
    }
}

#[tokio::test]
async fn a_truncated_file_says_so() {
    for store in SQLITE {
        let dir = filled(store).await;
        let path = dir.path().join(format!("{store}.db"));
        let length = std::fs::metadata(&path).unwrap().len();
        for kept in [length / 2, 4096, 100] {
            let file = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
            file.set_len(kept).unwrap();
            drop(file);
            let opened = open_any(store, dir.path(), FEED);
            let error = match opened {
                Err(error) => error,
                // The cut is found at the latest when the missing page is read.
                Ok(store) => store
                    .rows(scope(1))
                    .await
                    .expect_err("half of the file is gone"),
            };
            assert!(
                matches!(error, StoreError::Damaged { .. }),
                "{store}: {kept}: {error:?}"
            );
        }
        std::fs::write(
            &path,
            b"not a database at all, but long enough to be read as one",
        )
        .unwrap();
        let error = refusal(open_any(store, dir.path(), FEED));
        assert!(
            matches!(error, StoreError::Damaged { .. }),
            "{store}: {error:?}"
        );
    }
}

#[tokio::test]
async fn another_log_model_or_format_is_refused_by_name() {
    for store in SQLITE {
        let dir = filled(store).await;
        let other = LogId::from_bytes([9; 16]);
        let error = refusal(open_any(
            store,
            dir.path(),
            Feed {
                log_id: other,
                ..FEED
            },
        ));
        assert!(
            matches!(error, StoreError::OtherLog { expected, found, .. } if expected == other && found == LOG_ID),
            "{error:?}"
        );
        let error = refusal(open_any(
            store,
            dir.path(),
            Feed {
                partitions: 9,
                ..FEED
            },
        ));
        assert!(matches!(error, StoreError::Damaged { .. }), "{error:?}");
        alter(store, dir.path(), "UPDATE meta SET format = 2");
        let error = refusal(open_any(store, dir.path(), FEED));
        assert!(matches!(error, StoreError::Unusable { .. }), "{error:?}");
        assert!(error.to_string().contains("format 2"), "{error}");
    }
    let dir = filled(Store::Vectors).await;
    let other = ModelIdentity {
        id: "other".to_owned(),
        dimension: 384,
    };
    let Err(error) = SqliteVectors::open(dir.path(), FEED, other) else {
        panic!("opened")
    };
    let says = error.to_string();
    assert!(
        says.contains("other (384 dimensions)") && says.contains("conformance (21"),
        "{says}"
    );
}

/// Two handles of one file, as a stopped process and its successor: one of them is told to stop.
#[tokio::test]
async fn of_two_writers_one_is_told_that_it_moved() {
    for store in SQLITE {
        let dir = TempDir::new().unwrap();
        let (first, second) = (
            open_any(store, dir.path(), FEED).unwrap(),
            open_any(store, dir.path(), FEED).unwrap(),
        );
        let mut script = Script::default();
        for number in 1..9 {
            script.decide(1, vec![memory(number, "tea")]);
        }
        for batch in script.take(1) {
            let (a, b) = tokio::join!(batch.apply(&*first), batch.apply(&*second));
            let (applied, refused) = if a.is_ok() { (a, b) } else { (b, a) };
            applied.unwrap();
            assert!(
                matches!(refused, Err(StoreError::Moved { .. })),
                "{refused:?}"
            );
        }
        let expected = script.expected(store, scope(1).key());
        assert_eq!(second.rows(scope(1)).await.unwrap(), expected);
    }
}

/// A batch whose caller has gone away is committed all the same, and then no cache answers for the
/// state before it.
#[tokio::test]
async fn a_batch_that_nobody_waits_for_is_seen() {
    let dir = TempDir::new().unwrap();
    let index = open_vectors(dir.path()).unwrap();
    let query = vector_of("tea").unwrap();
    let mut script = Script::default();
    for number in 1..20 {
        script.decide(1, vec![memory(number, "tea")]);
        let batch = script.take(1).remove(0);
        {
            let mut abandoned = pin!(batch.apply(&*index));
            // Started, and maybe even done by now.
            let _ = futures::poll!(abandoned.as_mut());
        }
        let filter = everything(1, script.end(1));
        let seen = async {
            loop {
                let answer = index.search(&filter, &query, 100).await.unwrap();
                if answer.position == script.end(1) {
                    return answer.hits.len();
                }
            }
        };
        let seen = tokio::time::timeout(Duration::from_secs(20), seen).await;
        assert_eq!(seen, Ok(number as usize));
    }
}

/// The files of a process that was killed: whatever its write-ahead log holds counts, and the store
/// goes on from there.
#[tokio::test]
async fn files_left_by_a_kill_open_where_they_stood() {
    for store in SQLITE {
        let dir = TempDir::new().unwrap();
        let opened = open_any(store, dir.path(), FEED).unwrap();
        let mut script = Script::default();
        for number in 1..30 {
            script.decide(1, vec![memory(number, "tea")]);
            script.play(&*opened).await;
            // Copied while open: no connection was closed, nothing was checkpointed.
            let killed = TempDir::new().unwrap();
            for entry in std::fs::read_dir(dir.path()).unwrap() {
                let path = entry.unwrap().path();
                std::fs::copy(&path, killed.path().join(path.file_name().unwrap())).unwrap();
            }
            let successor = open_any(store, killed.path(), FEED).unwrap();
            let partition = script.partition_of(1);
            let stood = successor.checkpoint(partition).await.unwrap();
            assert_eq!(stood.map(|checkpoint| checkpoint.next), Some(script.end(1)));
            let expected = script.expected(store, scope(1).key());
            assert_eq!(successor.rows(scope(1)).await.unwrap(), expected);
        }
    }
}
