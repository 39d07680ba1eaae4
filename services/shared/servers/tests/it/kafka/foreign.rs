//! What other people's producers do to the topics.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anamnesis_domain::input::Topic;
use anamnesis_domain::time::Timestamp;
use anamnesis_pipeline::clock::{Clock, ManualClock, SystemClock};
use anamnesis_pipeline::log::{EventLog, LogError, NewRecord, PAYLOAD_BYTES_MAX};
use anamnesis_servers::kafka::KafkaLog;
use bytes::Bytes;
use rdkafka::message::{Header, OwnedHeaders};
use rdkafka::producer::{FutureProducer, FutureRecord, Producer};

use super::broker::{Prefix, key, read_all, records, shared_brokers, text};

fn prefix() -> Prefix {
    Prefix::new(&shared_brokers(), 2)
}

const OWNER: &[u8] = &[7; 16];

/// Key and payload as written; whose the record is said to be and what the decoder gets.
type Case<'a> = (Option<&'a [u8]>, Option<&'a [u8]>, (u8, &'a [u8]));

#[tokio::test]
async fn records_that_no_writer_of_ours_makes_reach_the_decoder_as_nothing() {
    let prefix = prefix();
    let log = prefix.log().await;
    let topic = Topic::Conversation;
    let long = vec![1; PAYLOAD_BYTES_MAX + 1];
    let written: [Case<'_>; 7] = [
        (Some(OWNER), None, (7, b"")),
        (Some(OWNER), Some(&[]), (7, b"")),
        (None, Some(b"lawful?"), (0, b"")),
        (Some("患者".as_bytes()), Some(b"lawful?"), (0, b"")),
        (
            Some(OWNER),
            Some(b"\xff\x00garbage"),
            (7, b"\xff\x00garbage"),
        ),
        (Some(OWNER), Some(&long), (7, b"")),
        (Some(OWNER), Some(b"good"), (7, b"good")),
    ];
    for (key, payload, _) in written {
        prefix.produce(topic, 1, key, payload).await;
    }
    let read = read_all(&*log, topic, 1, 1).await;
    assert_eq!(read.len(), written.len());
    for (record, (_, _, (byte, payload))) in read.iter().zip(written) {
        assert_eq!(record.key, key(byte), "{}", record.position);
        assert_eq!(record.payload, payload, "{}", record.position);
    }
    // The same records, one by one.
    let picked = log.read_at(topic, 1, &[1, 3, 6, 7]).await.unwrap();
    assert!(picked.iter().all(|one| read.contains(one)));
}

#[tokio::test]
async fn platforms_events_come_with_their_headers_and_keys() {
    let prefix = prefix();
    let log = prefix.log().await;
    let producer: FutureProducer = prefix.client().create().unwrap();
    let name = prefix.name(Topic::Inbox);
    let headers = OwnedHeaders::new()
        .insert(Header {
            key: "ce_type",
            value: Some("turn"),
        })
        .insert(Header {
            key: "ce_note",
            value: None::<&str>,
        });
    let record = FutureRecord::to(&name)
        .partition(0)
        .key("会话-1")
        .payload("{}")
        .headers(headers);
    producer
        .send(record, Duration::from_secs(10))
        .await
        .unwrap();
    let read = log
        .read_foreign(Topic::Inbox, 0, 1, 10, 1 << 20)
        .await
        .unwrap();
    let (foreign, _) = &read[0];
    assert_eq!(foreign.key.as_deref(), Some("会话-1".as_bytes()));
    assert_eq!(foreign.payload.as_deref(), Some(&b"{}"[..]));
    assert_eq!(
        foreign.headers[0],
        ("ce_type".to_owned(), Some(Bytes::from_static(b"turn")))
    );
    assert_eq!(foreign.headers[1], ("ce_note".to_owned(), None));
    let plain = log.read(Topic::Inbox, 0, 1, 10, 1 << 20).await.unwrap();
    assert_eq!((plain[0].key, text(&plain[0])), (key(0), "{}".to_owned()));
}

/// Writes in transactions: the first is given up, the second is kept. Each leaves a marker.
async fn write_transactions(prefix: &Prefix, topic: Topic) {
    let producer: FutureProducer = prefix
        .client()
        .set("transactional.id", prefix.name(topic))
        .create()
        .unwrap();
    let name = prefix.name(topic);
    let within = Duration::from_secs(20);
    producer.init_transactions(within).unwrap();
    for (payload, is_kept) in [("given up", false), ("kept", true)] {
        producer.begin_transaction().unwrap();
        let record = FutureRecord::to(&name)
            .partition(0)
            .key(OWNER)
            .payload(payload);
        producer.send(record, within).await.unwrap();
        if is_kept {
            producer.commit_transaction(within).unwrap();
        } else {
            producer.abort_transaction(within).unwrap();
        }
    }
}

#[tokio::test]
async fn transactions_of_platforms_leave_undecodable_places_and_no_hole() {
    let prefix = prefix();
    let log = prefix.log().await;
    write_transactions(&prefix, Topic::Inbox).await;
    // identity, given up, marker, kept, marker
    let read = read_all(&*log, Topic::Inbox, 0, 0).await;
    let offsets: Vec<u64> = read.iter().map(|record| record.position.offset).collect();
    assert_eq!(offsets, [0, 1, 2, 3, 4]);
    let texts: Vec<String> = read[1..].iter().map(text).collect();
    assert_eq!(texts, ["", "", "kept", ""]);
    assert!(read.is_sorted_by_key(|record| record.appended_at));
}

#[tokio::test]
async fn a_hole_in_an_owners_topic_stops_with_its_place() {
    let prefix = prefix();
    let log = prefix.log().await;
    write_transactions(&prefix, Topic::Commands).await;
    let error = log
        .read(Topic::Commands, 0, 1, 10, 1 << 20)
        .await
        .unwrap_err();
    assert!(!error.is_retryable());
    assert!(
        error.to_string().contains("holds no record at 1"),
        "{error}"
    );
    let error = log.read_at(Topic::Commands, 0, &[0, 2]).await.unwrap_err();
    assert!(
        error.to_string().contains("holds no record at 2"),
        "{error}"
    );
    assert_eq!(
        log.read_at(Topic::Commands, 0, &[3]).await.unwrap().len(),
        1
    );
}

#[tokio::test]
async fn the_brokers_clock_counts_and_not_the_senders() {
    let prefix = prefix();
    prefix.create().await;
    let sender = Arc::new(ManualClock::new(Timestamp::from_millis(1_000)));
    let log = KafkaLog::connect(&prefix.config, &prefix.topics(), sender)
        .await
        .unwrap();
    let before = SystemClock.now();
    let mut given = Vec::new();
    for n in 0..3 {
        let texts = [format!("{n}"), format!("{n} too")];
        given.extend(
            log.append(Topic::Memories, 0, records(&texts))
                .await
                .unwrap(),
        );
    }
    let after = SystemClock.now();
    let read = read_all(&log, Topic::Memories, 0, 1).await;
    for (given, read) in given.iter().zip(&read) {
        assert_eq!(
            (given.position, given.appended_at),
            (read.position, read.appended_at)
        );
        assert!((before..=after).contains(&read.appended_at));
    }
    assert_eq!(given.len(), read.len());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_writer_in_the_same_partition_is_told_or_does_no_harm() {
    let prefix = prefix();
    let log = prefix.log().await;
    let other = prefix.connect().await;
    let topic = Topic::Candidates;
    let writes = async |log: &dyn EventLog, name: &str| {
        let mut answered = Vec::new();
        for round in 0..40 {
            let texts: Vec<String> = (0..50).map(|n| format!("{name} {round} {n}")).collect();
            match log.append(topic, 0, records(&texts)).await {
                Ok(appended) => answered.push((appended[0].position.offset, texts)),
                Err(LogError::Unknown { .. }) => (),
                Err(error) => panic!("{error}"),
            }
        }
        answered
    };
    let (ours, theirs) = futures::join!(writes(&*log, "ours"), writes(&*other, "theirs"));
    assert!(ours.len() + theirs.len() > 40, "most appends are whole");
    let read = read_all(&*log, topic, 0, 0).await;
    for (first, texts) in ours.into_iter().chain(theirs) {
        let there: Vec<String> = read[first as usize..][..texts.len()]
            .iter()
            .map(text)
            .collect();
        assert_eq!(there, texts);
    }
    assert!(read.is_sorted_by_key(|record| record.appended_at));
}

#[tokio::test]
async fn another_process_wakes_a_waiter_at_once() {
    let prefix = prefix();
    let log = prefix.log().await;
    let other = prefix.connect().await;
    let mut slowest = Duration::ZERO;
    for round in 1..=20 {
        // Everything is read, so that the reader stands at the tail as a stage does.
        read_all(&*log, Topic::Memories, 1, 0).await;
        let waiter = async {
            log.wait_beyond(Topic::Memories, 1, round, Duration::from_secs(60))
                .await
                .unwrap();
            Instant::now()
        };
        let appender = async {
            other
                .append(Topic::Memories, 1, records(&[round.to_string()]))
                .await
                .unwrap();
            Instant::now()
        };
        let (woken, appended) = futures::join!(waiter, appender);
        slowest = slowest.max(woken.saturating_duration_since(appended));
    }
    println!("slowest wake-up after another process's append: {slowest:?}");
    assert!(slowest < Duration::from_secs(5));
    assert_eq!(read_all(&*log, Topic::Memories, 1, 0).await.len(), 21);
}

#[tokio::test]
async fn what_another_process_dropped_is_out_of_range() {
    let prefix = prefix();
    let log = prefix.log().await;
    let other = prefix.connect().await;
    let topic = Topic::Accesses;
    let texts: Vec<String> = (0..4).map(|n| n.to_string()).collect();
    log.append(topic, 0, records(&texts)).await.unwrap();
    let before = Timestamp::from_millis(i64::MAX / 2);
    assert_eq!(other.retain(topic, 0, before).await.unwrap(), 5);
    let out = |answer: &LogError| {
        matches!(
            answer,
            LogError::OutOfRange {
                start: 5,
                end: 5,
                ..
            }
        )
    };
    assert!(out(&log.read(topic, 0, 2, 10, 1 << 20).await.unwrap_err()));
    assert!(out(&log.read_at(topic, 0, &[3]).await.unwrap_err()));
    assert_eq!(log.start(topic, 0).await.unwrap(), 5);
    // The next process knows the log without its identity record, and goes on.
    let next = prefix.connect().await;
    let appended = next.append(topic, 0, records(&texts)).await.unwrap();
    assert_eq!(appended[0].position.offset, 5);
}

#[tokio::test]
async fn long_payloads_come_back() {
    let prefix = prefix();
    let log = prefix.log().await;
    let long = |byte: u8| NewRecord {
        key: key(byte),
        payload: vec![byte; PAYLOAD_BYTES_MAX].into(),
    };
    let appended = log
        .append(Topic::Conversation, 0, (1..=6).map(long).collect())
        .await
        .unwrap();
    assert_eq!(appended.len(), 6);
    let read = read_all(&*log, Topic::Conversation, 0, 1).await;
    for (record, byte) in read.iter().zip(1_u8..) {
        assert_eq!(record.payload.len(), PAYLOAD_BYTES_MAX);
        assert!(record.payload.iter().all(|found| *found == byte));
    }
    assert_eq!(read.len(), 6);
}

/// An answer about the end that is older than what was appended meanwhile is no contradiction.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn appends_and_questions_at_once_do_not_contradict_each_other() {
    let prefix = prefix();
    let log = prefix.log().await;
    let appends = async {
        for n in 0..300 {
            log.append(Topic::Commands, 0, records(&[n.to_string()]))
                .await
                .unwrap();
        }
    };
    let questions = async {
        let mut last = 0;
        while last < 301 {
            let end = log.end(Topic::Commands, 0).await.unwrap();
            assert!(end >= last);
            last = end;
        }
    };
    let reads = async {
        let mut from = 0;
        while from < 301 {
            let read = log
                .read(Topic::Commands, 0, from, 500, 1 << 20)
                .await
                .unwrap();
            from += read.len() as u64;
        }
    };
    futures::join!(appends, questions, reads);
}
