//! What does a log have to do to be an [`EventLog`]? One case per line of its contract.
//!
//! A backend calls [`crate::log_conformance!`] with a value of its [`LogBackend`]; the macro holds the
//! list of cases, so that no backend can leave one out.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use anamnesis_domain::ids::OwnerKey;
use anamnesis_domain::input::Topic;
use anamnesis_domain::time::Timestamp;
use async_trait::async_trait;
use bytes::Bytes;

use crate::clock::{Clock, ManualClock};
use crate::log::{EventLog, Log, LogError, NewRecord, PAYLOAD_BYTES_MAX, Record};

/// A way to make logs of one kind.
#[async_trait]
pub trait LogBackend: Send + Sync {
    /// A fresh log, with nothing in it but the identity records.
    async fn make(&self, clock: Arc<dyn Clock>, partitions: u32) -> Log;

    /// The log that [`LogBackend::make`] made last, after a restart of its process.
    async fn restart(&self, log: Log, clock: Arc<dyn Clock>) -> Log;
}

/// Runs every case of the log's contract over a backend: `log_conformance!(Sqlite::new());`
#[macro_export]
macro_rules! log_conformance {
    ($backend:expr) => {
        $crate::log_conformance! { @each $backend;
            an_answered_append_is_adjacent_in_order_and_survives_a_restart,
            an_empty_append_changes_nothing,
            offsets_have_no_gaps_and_start_with_the_identity,
            the_identity_is_the_same_everywhere_and_after_a_restart,
            the_append_time_never_decreases,
            the_append_time_does_not_decrease_over_a_restart,
            a_read_starts_where_it_was_asked_to,
            a_read_gives_at_least_one_record_and_keeps_its_limits,
            only_the_tail_reads_empty,
            a_read_out_of_range_is_refused,
            exact_offsets_are_read,
            a_payload_comes_back_byte_for_byte,
            an_append_that_is_too_large_is_refused_whole,
            owner_topics_have_equal_partitions,
            topics_and_partitions_do_not_mix,
            a_waiter_wakes_when_the_end_moves,
            a_waiter_gives_up_in_time,
            retention_drops_from_the_start,
            retention_of_everything_keeps_the_end,
            topics_that_are_kept_for_ever_are_not_retained,
            concurrent_appends_share_no_offset,
        }
    };
    (@each $backend:expr; $($case:ident,)+) => {
        $(
            #[tokio::test]
            async fn $case() {
                $crate::conformance::log::$case(&$backend).await;
            }
        )+
    };
}

const TOPIC: Topic = Topic::Conversation;
const BYTES: usize = 1 << 20;

fn key(byte: u8) -> OwnerKey {
    OwnerKey::from_bytes([byte; 16])
}

fn record(text: &str) -> NewRecord {
    NewRecord {
        key: key(1),
        payload: Bytes::copy_from_slice(text.as_bytes()),
    }
}

fn records(texts: &[&str]) -> Vec<NewRecord> {
    texts.iter().map(|text| record(text)).collect()
}

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_millis(1_700_000_000_000 + seconds * 1000)
}

fn clock() -> Arc<ManualClock> {
    Arc::new(ManualClock::new(at(0)))
}

async fn make(backend: &dyn LogBackend) -> Log {
    backend.make(clock(), 3).await
}

async fn append(log: &dyn EventLog, topic: Topic, partition: u32, texts: &[&str]) -> Vec<u64> {
    let appended = log.append(topic, partition, records(texts)).await.unwrap();
    appended.iter().map(|one| one.position.offset).collect()
}

/// Everything from `from` on, in however many reads.
async fn read_all(log: &dyn EventLog, topic: Topic, partition: u32, from: u64) -> Vec<Record> {
    let mut all: Vec<Record> = Vec::new();
    loop {
        let next = from + all.len() as u64;
        let batch = log.read(topic, partition, next, 100, BYTES).await.unwrap();
        if batch.is_empty() {
            return all;
        }
        all.extend(batch);
    }
}

async fn texts_from(log: &dyn EventLog, topic: Topic, partition: u32, from: u64) -> Vec<String> {
    let all = read_all(log, topic, partition, from).await;
    all.iter()
        .map(|record| String::from_utf8_lossy(&record.payload).into_owned())
        .collect()
}

pub async fn an_answered_append_is_adjacent_in_order_and_survives_a_restart(
    backend: &dyn LogBackend,
) {
    let clock = clock();
    let log = backend.make(clock.clone(), 3).await;
    assert_eq!(append(&*log, TOPIC, 1, &["a", "b", "c"]).await, [1, 2, 3]);
    assert_eq!(append(&*log, TOPIC, 1, &["d"]).await, [4]);
    assert_eq!(texts_from(&*log, TOPIC, 1, 1).await, ["a", "b", "c", "d"]);
    let before = read_all(&*log, TOPIC, 1, 0).await;
    let log = backend.restart(log, clock).await;
    assert_eq!(read_all(&*log, TOPIC, 1, 0).await, before);
    assert_eq!(append(&*log, TOPIC, 1, &["e"]).await, [5]);
}

pub async fn an_empty_append_changes_nothing(backend: &dyn LogBackend) {
    let log = make(backend).await;
    assert!(log.append(TOPIC, 0, Vec::new()).await.unwrap().is_empty());
    assert_eq!(log.end(TOPIC, 0).await.unwrap(), 1);
    assert_eq!(append(&*log, TOPIC, 0, &["a"]).await, [1]);
}

pub async fn offsets_have_no_gaps_and_start_with_the_identity(backend: &dyn LogBackend) {
    let log = make(backend).await;
    for topic in Topic::ALL {
        assert_eq!(log.start(topic, 0).await.unwrap(), 0, "{topic}");
        assert_eq!(log.end(topic, 0).await.unwrap(), 1, "{topic}");
        assert_eq!(
            append(&*log, topic, 0, &["a", "b"]).await,
            [1, 2],
            "{topic}"
        );
        let all = read_all(&*log, topic, 0, 0).await;
        let offsets: Vec<u64> = all.iter().map(|record| record.position.offset).collect();
        assert_eq!(offsets, [0, 1, 2], "{topic}");
        assert!(
            !all[0].payload.is_empty(),
            "{topic} starts with what says which log it is"
        );
        assert_eq!(all[0].key, key(0), "{topic}");
        assert!(
            all.iter()
                .all(|r| r.position.topic == topic && r.position.partition == 0)
        );
    }
}

pub async fn the_identity_is_the_same_everywhere_and_after_a_restart(backend: &dyn LogBackend) {
    let clock = clock();
    let log = backend.make(clock.clone(), 3).await;
    let identity = log.identity(Topic::Memories, 0).await.unwrap();
    assert_eq!(identity.partitions, 3);
    assert_eq!(identity.created_at, at(0));
    for partition in 0..3 {
        assert_eq!(log.identity(TOPIC, partition).await.unwrap(), identity);
    }
    clock.set(at(60));
    let log = backend.restart(log, clock).await;
    assert_eq!(log.identity(Topic::Inbox, 0).await.unwrap(), identity);
    assert_eq!(log.partitions(), 3);
}

pub async fn the_append_time_never_decreases(backend: &dyn LogBackend) {
    let clock = clock();
    let log = backend.make(clock.clone(), 3).await;
    let mut given = Vec::new();
    for seconds in [5, 3, 9, 9, 1] {
        clock.set(at(seconds));
        let appended = log.append(TOPIC, 0, records(&["a"])).await.unwrap();
        given.push(appended[0].appended_at);
    }
    assert_eq!(given, [at(5), at(5), at(9), at(9), at(9)]);
    let read: Vec<Timestamp> = read_all(&*log, TOPIC, 0, 1)
        .await
        .iter()
        .map(|record| record.appended_at)
        .collect();
    assert_eq!(read, given);
}

pub async fn the_append_time_does_not_decrease_over_a_restart(backend: &dyn LogBackend) {
    let clock = clock();
    let log = backend.make(clock.clone(), 3).await;
    clock.set(at(100));
    append(&*log, TOPIC, 0, &["a"]).await;
    clock.set(at(7));
    let log = backend.restart(log, clock).await;
    let appended = log.append(TOPIC, 0, records(&["b"])).await.unwrap();
    assert_eq!(appended[0].appended_at, at(100));
}

pub async fn a_read_starts_where_it_was_asked_to(backend: &dyn LogBackend) {
    let log = make(backend).await;
    append(&*log, TOPIC, 0, &["a", "b", "c"]).await;
    for from in 0..4 {
        let read = log.read(TOPIC, 0, from, 10, BYTES).await.unwrap();
        assert_eq!(read[0].position.offset, from);
        let expected: Vec<u64> = (from..from + read.len() as u64).collect();
        let offsets: Vec<u64> = read.iter().map(|record| record.position.offset).collect();
        assert_eq!(offsets, expected, "adjacent from {from}");
    }
}

pub async fn a_read_gives_at_least_one_record_and_keeps_its_limits(backend: &dyn LogBackend) {
    let log = make(backend).await;
    let long = "x".repeat(1000);
    append(&*log, TOPIC, 0, &[&long, &long, &long, &long]).await;
    let count = async |records_max, bytes_max| {
        log.read(TOPIC, 0, 1, records_max, bytes_max)
            .await
            .unwrap()
            .len()
    };
    assert_eq!(count(1, BYTES).await, 1);
    assert!((1..=2).contains(&count(2, BYTES).await));
    assert_eq!(
        count(10, 1).await,
        1,
        "a record longer than the limit is still read"
    );
    assert_eq!(count(0, 0).await, 1, "only the tail reads empty");
    assert!((1..=3).contains(&count(10, 2500).await));
}

pub async fn only_the_tail_reads_empty(backend: &dyn LogBackend) {
    let log = make(backend).await;
    assert!(log.read(TOPIC, 0, 1, 10, BYTES).await.unwrap().is_empty());
    append(&*log, TOPIC, 0, &["a"]).await;
    assert!(!log.read(TOPIC, 0, 1, 10, BYTES).await.unwrap().is_empty());
    assert!(log.read(TOPIC, 0, 2, 10, BYTES).await.unwrap().is_empty());
}

fn check_out_of_range<T: std::fmt::Debug>(answer: Result<T, LogError>, expected: (u64, u64, u64)) {
    match answer.unwrap_err() {
        LogError::OutOfRange {
            offset, start, end, ..
        } => {
            assert_eq!((offset, start, end), expected);
        }
        other @ (LogError::Unknown { .. }
        | LogError::Unavailable { .. }
        | LogError::Corrupt { .. }
        | LogError::NoPartition { .. }
        | LogError::TooLarge { .. }
        | LogError::InUse { .. }
        | LogError::Unusable { .. }) => panic!("not out of range: {other}"),
    }
}

pub async fn a_read_out_of_range_is_refused(backend: &dyn LogBackend) {
    let log = make(backend).await;
    append(&*log, TOPIC, 0, &["a"]).await;
    check_out_of_range(log.read(TOPIC, 0, 3, 10, BYTES).await, (3, 0, 2));
    check_out_of_range(
        log.read(TOPIC, 0, u64::MAX, 10, BYTES).await,
        (u64::MAX, 0, 2),
    );
    check_out_of_range(log.read_at(TOPIC, 0, &[1, 2]).await, (2, 0, 2));
}

pub async fn exact_offsets_are_read(backend: &dyn LogBackend) {
    let log = make(backend).await;
    append(&*log, TOPIC, 0, &["a", "b", "c", "d"]).await;
    let read = log.read_at(TOPIC, 0, &[1, 3, 4]).await.unwrap();
    assert_eq!(
        read.iter().map(|r| r.position.offset).collect::<Vec<_>>(),
        [1, 3, 4]
    );
    assert_eq!(
        read.iter().map(|r| &r.payload[..]).collect::<Vec<_>>(),
        [b"a", b"c", b"d"]
    );
    assert!(log.read_at(TOPIC, 0, &[]).await.unwrap().is_empty());
}

pub async fn a_payload_comes_back_byte_for_byte(backend: &dyn LogBackend) {
    let log = make(backend).await;
    let every_byte: Vec<u8> = (0..=255).collect();
    let longest = vec![0xa5; PAYLOAD_BYTES_MAX];
    let payloads = [
        Vec::new(),
        vec![0],
        every_byte,
        "芒果 mango".into(),
        longest,
    ];
    let new = payloads
        .iter()
        .zip(1..)
        .map(|(payload, byte)| NewRecord {
            key: key(byte),
            payload: payload.clone().into(),
        })
        .collect();
    log.append(TOPIC, 0, new).await.unwrap();
    let read = read_all(&*log, TOPIC, 0, 1).await;
    assert_eq!(read.len(), payloads.len());
    for ((record, payload), byte) in read.iter().zip(&payloads).zip(1..) {
        assert!(
            record.payload == *payload,
            "a payload of {} bytes",
            payload.len()
        );
        assert_eq!(record.key, key(byte));
    }
}

pub async fn an_append_that_is_too_large_is_refused_whole(backend: &dyn LogBackend) {
    let log = make(backend).await;
    let large = NewRecord {
        key: key(1),
        payload: vec![0; PAYLOAD_BYTES_MAX + 1].into(),
    };
    let answer = log
        .append(TOPIC, 0, vec![record("a"), large, record("b")])
        .await;
    assert!(matches!(answer, Err(LogError::TooLarge { bytes }) if bytes == PAYLOAD_BYTES_MAX + 1));
    assert_eq!(log.end(TOPIC, 0).await.unwrap(), 1);
}

pub async fn owner_topics_have_equal_partitions(backend: &dyn LogBackend) {
    let log = make(backend).await;
    for topic in Topic::ALL {
        let is_owner_topic = !matches!(topic, Topic::Inbox | Topic::Schemas);
        if is_owner_topic {
            assert_eq!(append(&*log, topic, 2, &["a"]).await, [1], "{topic}");
        }
        let beyond = log.append(topic, 3, records(&["a"])).await;
        assert!(
            matches!(beyond, Err(LogError::NoPartition { partition: 3, .. })),
            "{topic}"
        );
        assert!(log.read(topic, 3, 0, 1, BYTES).await.is_err(), "{topic}");
        assert!(log.end(topic, 3).await.is_err(), "{topic}");
    }
}

pub async fn topics_and_partitions_do_not_mix(backend: &dyn LogBackend) {
    let log = make(backend).await;
    append(&*log, Topic::Candidates, 0, &["candidates 0"]).await;
    append(&*log, Topic::Candidates, 1, &["candidates 1"]).await;
    append(&*log, Topic::Commands, 0, &["commands 0"]).await;
    assert_eq!(
        texts_from(&*log, Topic::Candidates, 0, 1).await,
        ["candidates 0"]
    );
    assert_eq!(
        texts_from(&*log, Topic::Candidates, 1, 1).await,
        ["candidates 1"]
    );
    assert_eq!(
        texts_from(&*log, Topic::Commands, 0, 1).await,
        ["commands 0"]
    );
    assert!(texts_from(&*log, Topic::Commands, 1, 1).await.is_empty());
}

pub async fn a_waiter_wakes_when_the_end_moves(backend: &dyn LogBackend) {
    let log = make(backend).await;
    let waiter = log.wait_beyond(TOPIC, 0, 1, Duration::from_secs(600));
    let appender = append(&*log, TOPIC, 0, &["a"]);
    let (waited, _) = futures::join!(waiter, appender);
    waited.unwrap();
    // What is there already is not waited for.
    log.wait_beyond(TOPIC, 0, 0, Duration::from_secs(600))
        .await
        .unwrap();
}

pub async fn a_waiter_gives_up_in_time(backend: &dyn LogBackend) {
    let log = make(backend).await;
    log.wait_beyond(TOPIC, 0, 1, Duration::from_millis(1))
        .await
        .unwrap();
    assert!(
        log.wait_beyond(TOPIC, 9, 1, Duration::from_millis(1))
            .await
            .is_err()
    );
}

async fn three_seconds_of(backend: &dyn LogBackend, topic: Topic) -> (Log, Arc<ManualClock>) {
    let clock = clock();
    let log = backend.make(clock.clone(), 3).await;
    for (seconds, text) in [(1, "a"), (2, "b"), (3, "c")] {
        clock.set(at(seconds));
        append(&*log, topic, 0, &[text]).await;
    }
    (log, clock)
}

pub async fn retention_drops_from_the_start(backend: &dyn LogBackend) {
    let topic = Topic::Accesses;
    let (log, clock) = three_seconds_of(backend, topic).await;
    assert_eq!(
        log.retain(topic, 0, at(2)).await.unwrap(),
        2,
        "the new start"
    );
    assert_eq!(log.start(topic, 0).await.unwrap(), 2);
    assert_eq!(texts_from(&*log, topic, 0, 2).await, ["b", "c"]);
    check_out_of_range(log.read(topic, 0, 1, 10, BYTES).await, (1, 2, 4));
    check_out_of_range(log.read_at(topic, 0, &[0]).await, (0, 2, 4));
    assert_eq!(
        log.retain(topic, 0, at(1)).await.unwrap(),
        2,
        "nothing comes back"
    );
    let log = backend.restart(log, clock).await;
    assert_eq!(log.start(topic, 0).await.unwrap(), 2);
    assert_eq!(texts_from(&*log, topic, 0, 2).await, ["b", "c"]);
}

pub async fn retention_of_everything_keeps_the_end(backend: &dyn LogBackend) {
    let topic = Topic::Quarantine;
    let (log, clock) = three_seconds_of(backend, topic).await;
    assert_eq!(log.retain(topic, 0, at(60)).await.unwrap(), 4);
    assert!(log.read(topic, 0, 4, 10, BYTES).await.unwrap().is_empty());
    let log = backend.restart(log, clock.clone()).await;
    assert_eq!(log.end(topic, 0).await.unwrap(), 4);
    assert!(
        log.identity(topic, 0).await.is_ok(),
        "known without its record"
    );
    clock.set(at(0));
    let appended = log.append(topic, 0, records(&["d"])).await.unwrap();
    assert_eq!(appended[0].position.offset, 4);
    assert_eq!(
        appended[0].appended_at,
        at(3),
        "time does not fall back either"
    );
}

pub async fn topics_that_are_kept_for_ever_are_not_retained(backend: &dyn LogBackend) {
    let log = make(backend).await;
    for topic in [
        Topic::Memories,
        Topic::Conversation,
        Topic::Candidates,
        Topic::Commands,
    ] {
        append(&*log, topic, 0, &["a"]).await;
        assert!(matches!(
            log.retain(topic, 0, at(9)).await,
            Err(LogError::Unusable { .. })
        ));
        assert_eq!(log.start(topic, 0).await.unwrap(), 0, "{topic}");
    }
}

pub async fn concurrent_appends_share_no_offset(backend: &dyn LogBackend) {
    let log = make(backend).await;
    let mut tasks = Vec::new();
    for appender in 0..8 {
        let log = log.clone();
        tasks.push(tokio::spawn(async move {
            let mut offsets = Vec::new();
            for round in 0..10 {
                let text = format!("{appender}/{round}");
                let given = append(&*log, TOPIC, 2, &[&text, &text]).await;
                assert_eq!(given[0] + 1, given[1], "adjacent");
                offsets.extend(given);
            }
            offsets
        }));
    }
    let mut all = BTreeSet::new();
    for task in tasks {
        all.extend(task.await.unwrap());
    }
    assert!(all.into_iter().eq(1..161));
    let texts = texts_from(&*log, TOPIC, 2, 1).await;
    assert_eq!(texts.len(), 160);
    assert!(
        texts.chunks(2).all(|pair| pair[0] == pair[1]),
        "nobody is appended into a batch"
    );
}
