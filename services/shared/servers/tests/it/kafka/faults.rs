//! A broker that is killed, stopped or whose disk rots, under a log that goes on.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anamnesis_domain::input::{Position, Topic};
use anamnesis_pipeline::log::{EventLog, LogError};

use super::broker::{Broker, Prefix, read_all, records, text};

const TOPIC: Topic = Topic::Memories;

/// Appends batches until told to stop. Gives the place of each text that was acknowledged.
async fn append_until(
    log: Arc<dyn EventLog>,
    partition: u32,
    stop: Arc<AtomicBool>,
) -> (BTreeMap<String, u64>, usize) {
    let mut acknowledged = BTreeMap::new();
    let mut unknown = 0;
    let mut round = 0;
    while !stop.load(Ordering::SeqCst) {
        let texts: Vec<String> = (0..5).map(|n| format!("{round}/{n}")).collect();
        round += 1;
        match log.append(TOPIC, partition, records(&texts)).await {
            Ok(appended) => {
                for (text, appended) in texts.into_iter().zip(appended) {
                    acknowledged.insert(text, appended.position.offset);
                }
            }
            Err(LogError::Unknown { .. }) => unknown += 1,
            Err(LogError::Unavailable { .. }) => (),
            Err(error) => panic!("{error}"),
        }
    }
    (acknowledged, unknown)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_broker_loses_nothing_that_was_acknowledged() {
    let broker = Arc::new(Broker::start());
    let mut prefix = Prefix::new(&broker.address, 2);
    prefix.config.append_timeout = Duration::from_secs(3);
    prefix.config.read_timeout = Duration::from_secs(3);
    let log = prefix.log().await;
    let stop = Arc::new(AtomicBool::new(false));
    let appenders: Vec<_> = (0..2)
        .map(|partition| tokio::spawn(append_until(log.clone(), partition, stop.clone())))
        .collect();
    for _ in 0..3 {
        tokio::time::sleep(Duration::from_millis(700)).await;
        let broker = broker.clone();
        let killed = tokio::task::spawn_blocking(move || {
            broker.kill();
            broker.start_again();
        });
        killed.await.unwrap();
    }
    tokio::time::sleep(Duration::from_millis(1_500)).await;
    stop.store(true, Ordering::SeqCst);
    for (partition, appender) in (0..).zip(appenders) {
        let (acknowledged, unknown) = appender.await.unwrap();
        let read = read_all(&*log, TOPIC, partition, 1).await;
        let mut seen: BTreeMap<String, u64> = BTreeMap::new();
        let mut rounds = Vec::new();
        for record in &read {
            let text = text(record);
            rounds.push(text.split('/').next().unwrap().parse::<u64>().unwrap());
            let twice = seen.insert(text, record.position.offset);
            assert_eq!(twice, None, "a record is there twice");
        }
        for (text, offset) in &acknowledged {
            assert_eq!(
                seen.get(text),
                Some(offset),
                "{text} is where it was said to be"
            );
        }
        assert!(rounds.is_sorted(), "in the order of the appends");
        println!(
            "partition {partition}: {} acknowledged, {} found, {unknown} appends unknown",
            acknowledged.len(),
            seen.len()
        );
        assert!(acknowledged.len() > 100, "the log went on after every kill");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_broker_that_is_away_is_told_within_the_deadlines_and_comes_back() {
    let broker = Broker::start();
    let mut prefix = Prefix::new(&broker.address, 1);
    prefix.config.append_timeout = Duration::from_secs(2);
    prefix.config.read_timeout = Duration::from_secs(2);
    let log = prefix.log().await;
    log.append(TOPIC, 0, records(&["a".to_owned()]))
        .await
        .unwrap();
    broker.kill();
    let began = Instant::now();
    let unknown = log
        .append(TOPIC, 0, records(&["b".to_owned()]))
        .await
        .unwrap_err();
    assert!(matches!(unknown, LogError::Unknown { .. }), "{unknown}");
    for error in [
        log.read(TOPIC, 0, 2, 10, 1 << 20).await.unwrap_err(),
        log.end(TOPIC, 0).await.unwrap_err(),
        log.wait_beyond(TOPIC, 0, 9, Duration::from_secs(9))
            .await
            .err()
            .unwrap_or(
                // It waits where it stood: then it says nothing, in time.
                LogError::Unavailable {
                    reason: String::new(),
                },
            ),
    ] {
        assert!(matches!(error, LogError::Unavailable { .. }), "{error}");
    }
    assert!(began.elapsed() < Duration::from_secs(30));
    broker.start_again();
    let read = loop {
        match log.read(TOPIC, 0, 1, 10, 1 << 20).await {
            Ok(read) => break read,
            Err(error) => assert!(error.is_retryable(), "{error}"),
        }
    };
    assert_eq!(text(&read[0]), "a");
    let appended = loop {
        match log.append(TOPIC, 0, records(&["c".to_owned()])).await {
            Ok(appended) => break appended,
            Err(error) => assert!(error.is_retryable(), "{error}"),
        }
    };
    let read = read_all(&*log, TOPIC, 0, 0).await;
    let last = read.last().unwrap();
    assert_eq!(
        (text(last), last.position),
        ("c".to_owned(), appended[0].position)
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_record_that_rots_on_the_brokers_disk_is_named() {
    let broker = Broker::start();
    let prefix = Prefix::new(&broker.address, 1);
    let log = prefix.log().await;
    // Each in a batch of its own: a checksum covers a batch.
    for text in ["first", "second", "third"] {
        log.append(TOPIC, 0, records(&[text.to_owned()]))
            .await
            .unwrap();
    }
    drop(log);
    broker.stop();
    let segment = broker
        .files(&prefix.name(TOPIC), 0)
        .join("00000000000000000000.log");
    let mut bytes = std::fs::read(&segment).unwrap();
    let place = bytes
        .windows(6)
        .position(|window| window == b"second")
        .unwrap();
    bytes[place] ^= 1;
    std::fs::write(&segment, bytes).unwrap();
    broker.start_again();
    let log = prefix.connect().await;
    let bad = Position {
        topic: TOPIC,
        partition: 0,
        offset: 2,
    };
    let names_it =
        |error: &LogError| matches!(error, LogError::Corrupt { position } if *position == bad);
    let before = log.read(TOPIC, 0, 1, 10, 1 << 20).await.unwrap();
    assert_eq!(
        before.iter().map(text).collect::<Vec<_>>(),
        ["first"],
        "what precedes is read"
    );
    let error = log.read(TOPIC, 0, 2, 10, 1 << 20).await.unwrap_err();
    assert!(names_it(&error), "{error}");
    let error = log.read_at(TOPIC, 0, &[1, 2]).await.unwrap_err();
    assert!(names_it(&error), "{error}");
    let after = log.read(TOPIC, 0, 3, 10, 1 << 20).await.unwrap();
    assert_eq!(text(&after[0]), "third");
}
