//! The SQLite log: the contract, and what only a file can do wrong.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use anamnesis_adapters::sqlite_log::SqliteLog;
use anamnesis_domain::ids::OwnerKey;
use anamnesis_domain::input::{Position, Topic};
use anamnesis_domain::time::Timestamp;
use anamnesis_pipeline::clock::{Clock, ManualClock, SystemClock};
use anamnesis_pipeline::conformance::log::LogBackend;
use anamnesis_pipeline::log::{EventLog, Identity, Log, LogError, NewRecord};
use async_trait::async_trait;
use bytes::Bytes;
use tempfile::TempDir;

fn encode(identity: &Identity, topic: Topic) -> Bytes {
    format!("{identity:?} {topic}").into()
}

fn open_at(dir: &Path) -> Result<SqliteLog, LogError> {
    SqliteLog::open(dir, Arc::new(SystemClock), 2, encode)
}

/// Every log in a folder of its own.
#[derive(Default)]
struct Sqlite {
    dirs: Mutex<Vec<TempDir>>,
}

impl Sqlite {
    fn last(&self) -> PathBuf {
        self.dirs.lock().unwrap().last().unwrap().path().to_owned()
    }
}

#[async_trait]
impl LogBackend for Sqlite {
    async fn make(&self, clock: Arc<dyn Clock>, partitions: u32) -> Log {
        self.dirs.lock().unwrap().push(tempfile::tempdir().unwrap());
        Arc::new(SqliteLog::open(&self.last(), clock, partitions, encode).unwrap())
    }

    async fn restart(&self, log: Log, clock: Arc<dyn Clock>) -> Log {
        drop(log);
        // Other partitions are asked for: a log that is there keeps its own.
        Arc::new(SqliteLog::open(&self.last(), clock, 7, encode).unwrap())
    }
}

anamnesis_pipeline::log_conformance!(Sqlite::default());

/// The files as `kill -9` leaves them: copied while the log is open, without a checkpoint or a close.
mod after_a_kill {
    use super::*;

    #[derive(Default)]
    struct Killed(Sqlite);

    #[async_trait]
    impl LogBackend for Killed {
        async fn make(&self, clock: Arc<dyn Clock>, partitions: u32) -> Log {
            self.0.make(clock, partitions).await
        }

        async fn restart(&self, log: Log, clock: Arc<dyn Clock>) -> Log {
            let copy = copy_of(&self.0.last());
            drop(log);
            let reopened = SqliteLog::open(copy.path(), clock, 7, encode).unwrap();
            self.0.dirs.lock().unwrap().push(copy);
            Arc::new(reopened)
        }
    }

    anamnesis_pipeline::log_conformance!(Killed::default());
}

fn copy_of(dir: &Path) -> TempDir {
    let copy = tempfile::tempdir().unwrap();
    for entry in std::fs::read_dir(dir).unwrap() {
        let entry = entry.unwrap();
        std::fs::copy(entry.path(), copy.path().join(entry.file_name())).unwrap();
    }
    copy
}

fn records(count: usize, bytes: usize) -> Vec<NewRecord> {
    let payload = Bytes::from(vec![7; bytes]);
    vec![
        NewRecord {
            key: OwnerKey::from_bytes([1; 16]),
            payload
        };
        count
    ]
}

/// A folder with a closed log that has three records behind the identity in `memories` 1.
async fn closed_log() -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    let log = open_at(dir.path()).unwrap();
    log.append(Topic::Memories, 1, records(3, 100))
        .await
        .unwrap();
    dir
}

fn alter(dir: &Path, sql: &str) {
    let connection = rusqlite::Connection::open(dir.join("log.db")).unwrap();
    connection.execute_batch(sql).unwrap();
}

fn refusal(dir: &Path) -> LogError {
    match open_at(dir) {
        Ok(_) => panic!("it opened"),
        Err(error) => error,
    }
}

async fn check_rot(sql: &str, offset: u64) {
    let dir = closed_log().await;
    alter(dir.path(), sql);
    let log = open_at(dir.path()).unwrap();
    let bad = Position {
        topic: Topic::Memories,
        partition: 1,
        offset,
    };
    let names_it =
        |answer: &LogError| matches!(answer, LogError::Corrupt { position } if *position == bad);
    let before = log.read(Topic::Memories, 1, 0, 10, 1 << 20).await.unwrap();
    assert_eq!(before.len() as u64, offset, "what precedes is read: {sql}");
    let answer = log
        .read(Topic::Memories, 1, offset, 10, 1 << 20)
        .await
        .unwrap_err();
    assert!(names_it(&answer), "{sql}: {answer}");
    let answer = log
        .read_at(Topic::Memories, 1, &[0, offset])
        .await
        .unwrap_err();
    assert!(names_it(&answer), "{sql}: {answer}");
    assert!(
        log.read(Topic::Memories, 1, offset + 1, 10, 1 << 20)
            .await
            .is_ok(),
        "{sql}"
    );
}

#[tokio::test]
async fn bit_rot_is_refused_and_named() {
    for change in [
        "payload = CAST(substr(payload, 1, 49) || x'06' || substr(payload, 51) AS BLOB)",
        "payload = x''",
        "payload = 'seven'",
        "owner = x'02020202020202020202020202020202'",
        "owner = x'01'",
        "appended_at = appended_at + 1",
        "checksum = checksum + 1",
    ] {
        check_rot(
            &format!("UPDATE memories_1 SET {change} WHERE offset = 2"),
            2,
        )
        .await;
    }
}

#[tokio::test]
async fn a_record_that_was_taken_out_is_named() {
    check_rot("DELETE FROM memories_1 WHERE offset = 2", 2).await;
}

#[tokio::test]
async fn a_record_from_elsewhere_is_named() {
    let swap = "UPDATE memories_1 SET (appended_at, owner, checksum, payload) = (
                    SELECT appended_at, owner, checksum, payload FROM memories_1 WHERE offset = 1)
                WHERE offset = 2";
    check_rot(swap, 2).await;
}

#[tokio::test]
async fn a_cut_tail_is_named_at_once() {
    let dir = closed_log().await;
    alter(dir.path(), "DELETE FROM memories_1 WHERE offset >= 2");
    let expected = Position {
        topic: Topic::Memories,
        partition: 1,
        offset: 3,
    };
    let refused = refusal(dir.path());
    assert!(matches!(refused, LogError::Corrupt { position } if position == expected));
}

#[tokio::test]
async fn a_folder_is_opened_once() {
    let dir = tempfile::tempdir().unwrap();
    let log = open_at(dir.path()).unwrap();
    let refused = refusal(dir.path());
    assert!(matches!(refused, LogError::InUse { .. }));
    let message = refused.to_string();
    assert!(
        message.contains(&dir.path().display().to_string()),
        "{message}"
    );
    assert!(message.contains("stop that process"), "{message}");
    drop(log);
    open_at(dir.path()).unwrap();
}

#[tokio::test]
async fn a_newer_format_is_refused_untouched() {
    let dir = closed_log().await;
    alter(dir.path(), "UPDATE meta SET format = 2");
    let before = std::fs::read(dir.path().join("log.db")).unwrap();
    let refused = refusal(dir.path());
    assert!(matches!(refused, LogError::Unusable { .. }));
    assert!(refused.to_string().contains("newer version"), "{refused}");
    assert!(std::fs::read(dir.path().join("log.db")).unwrap() == before);
}

#[tokio::test]
async fn what_is_no_log_is_refused_untouched() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("log.db");
    std::fs::write(
        &path,
        "a diary, and not a database, of more than a hundred bytes; ".repeat(9),
    )
    .unwrap();
    let before = std::fs::read(&path).unwrap();
    assert!(matches!(refusal(dir.path()), LogError::Unusable { .. }));
    assert!(std::fs::read(&path).unwrap() == before);

    let dir = tempfile::tempdir().unwrap();
    alter(dir.path(), "CREATE TABLE meta (something TEXT)");
    assert!(matches!(refusal(dir.path()), LogError::Unusable { .. }));
}

#[tokio::test]
async fn a_log_needs_a_partition() {
    let dir = tempfile::tempdir().unwrap();
    let answer = SqliteLog::open(dir.path(), Arc::new(SystemClock), 0, encode);
    assert!(matches!(answer, Err(LogError::Unusable { .. })));
    open_at(dir.path()).unwrap();
}

#[tokio::test]
async fn two_logs_have_two_identities() {
    let (one, two) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (one, two) = (open_at(one.path()).unwrap(), open_at(two.path()).unwrap());
    let (one, two) = (
        one.identity(Topic::Memories, 0).await.unwrap(),
        two.identity(Topic::Memories, 0).await.unwrap(),
    );
    assert_ne!(one.log_id, two.log_id);
}

#[tokio::test]
async fn a_closed_log_reads_and_does_not_append() {
    let dir = tempfile::tempdir().unwrap();
    let log = open_at(dir.path()).unwrap();
    log.append(Topic::Memories, 0, records(1, 1)).await.unwrap();
    log.close();
    log.close();
    let answer = log.append(Topic::Memories, 0, records(1, 1)).await;
    assert!(matches!(answer, Err(LogError::Unavailable { .. })));
    assert_eq!(
        log.read(Topic::Memories, 0, 0, 10, 1000)
            .await
            .unwrap()
            .len(),
        2
    );
}

#[tokio::test]
async fn a_failed_append_leaves_nothing_and_the_next_one_works() {
    let dir = tempfile::tempdir().unwrap();
    let log = open_at(dir.path()).unwrap();
    log.append(Topic::Memories, 0, records(1, 10))
        .await
        .unwrap();
    // A trigger stands in for a full disk: the insert fails.
    alter(
        dir.path(),
        "CREATE TRIGGER full BEFORE INSERT ON memories_0 BEGIN SELECT raise(ABORT, 'full'); END",
    );
    let answer = log.append(Topic::Memories, 0, records(2, 10)).await;
    assert!(
        matches!(answer, Err(LogError::Unavailable { .. })),
        "{answer:?}"
    );
    assert_eq!(log.end(Topic::Memories, 0).await.unwrap(), 2);
    alter(dir.path(), "DROP TRIGGER full");
    let appended = log
        .append(Topic::Memories, 0, records(1, 10))
        .await
        .unwrap();
    assert_eq!(appended[0].position.offset, 2);
}

/// A floor far below what was measured, so that only a mistake such as a sync per record falls through.
#[tokio::test]
async fn appends_are_fast_enough_for_an_import() {
    const BATCHES: usize = 40;
    let dir = tempfile::tempdir().unwrap();
    let log = open_at(dir.path()).unwrap();
    let started = Instant::now();
    for _ in 0..BATCHES {
        log.append(Topic::Conversation, 0, records(500, 300))
            .await
            .unwrap();
    }
    let per_second = (BATCHES * 500) as f64 / started.elapsed().as_secs_f64();
    println!("{per_second:.0} records/s appended");
    assert!(per_second > 5_000.0, "{per_second:.0} records/s");

    let started = Instant::now();
    let mut next = 0;
    loop {
        let batch = log
            .read(Topic::Conversation, 0, next, 1000, 4 << 20)
            .await
            .unwrap();
        if batch.is_empty() {
            break;
        }
        next += batch.len() as u64;
    }
    println!(
        "{:.0} records/s read",
        next as f64 / started.elapsed().as_secs_f64()
    );
}

/// Many writers share a sync: otherwise this takes as many syncs as there are appends.
#[tokio::test]
async fn appends_share_a_commit() {
    let dir = tempfile::tempdir().unwrap();
    let clock = Arc::new(ManualClock::new(Timestamp::from_millis(1)));
    let log = Arc::new(SqliteLog::open(dir.path(), clock, 2, encode).unwrap());
    let started = Instant::now();
    let appends = (0..1000).map(|i| {
        let topic = if i % 2 == 0 {
            Topic::Conversation
        } else {
            Topic::Commands
        };
        log.append(topic, i / 2 % 2, records(1, 10))
    });
    let answers = futures::future::join_all(appends).await;
    assert!(answers.iter().all(Result::is_ok));
    println!("1000 appends of 1 record in {:?}", started.elapsed());
    let end = log.end(Topic::Commands, 1).await.unwrap();
    assert_eq!(end, 251);
}
