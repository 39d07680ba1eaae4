//! Topics that are not as they must be, each named; and logs that two people make at once.

use std::sync::Arc;
use std::time::Duration;

use anamnesis_domain::ids::LogId;
use anamnesis_domain::input::Topic;
use anamnesis_domain::time::Timestamp;
use anamnesis_pipeline::clock::SystemClock;
use anamnesis_pipeline::codec::identity_payload;
use anamnesis_pipeline::log::{EventLog, Identity, LogError};
use anamnesis_servers::kafka::{
    Difference, KafkaConfig, KafkaLog, Topics, What, check_topics, create_topics,
};
use rdkafka::admin::{
    AdminOptions, AlterConfig, NewPartitions, NewTopic, ResourceSpecifier, TopicReplication,
};

use super::broker::{Prefix, records, shared_brokers};

fn prefix() -> Prefix {
    Prefix::new(&shared_brokers(), 2)
}

async fn differences(prefix: &Prefix) -> Vec<Difference> {
    check_topics(&prefix.config, &prefix.topics())
        .await
        .unwrap()
}

async fn refusal(prefix: &Prefix) -> String {
    let connected =
        KafkaLog::connect(&prefix.config, &prefix.topics(), Arc::new(SystemClock)).await;
    match connected {
        Ok(_) => panic!("it opened"),
        Err(error) => {
            assert!(!error.is_retryable(), "{error}");
            error.to_string()
        }
    }
}

async fn check_named(prefix: &Prefix, words: &str) {
    let found = differences(prefix).await;
    let said: Vec<String> = found.iter().map(ToString::to_string).collect();
    assert!(
        said.iter().any(|said| said.contains(words)),
        "{words}: {said:?}"
    );
    let refused = refusal(prefix).await;
    assert!(refused.contains(words), "{words}: {refused}");
    let create = create_topics(&prefix.config, &prefix.topics(), &SystemClock).await;
    assert!(create.unwrap_err().to_string().contains(words), "{words}");
}

#[tokio::test]
async fn a_log_that_was_made_has_no_differences_and_is_made_once() {
    let prefix = prefix();
    let made = create_topics(&prefix.config, &prefix.topics(), &SystemClock)
        .await
        .unwrap();
    assert_eq!(differences(&prefix).await, []);
    let again = create_topics(&prefix.config, &prefix.topics(), &SystemClock)
        .await
        .unwrap();
    assert_eq!(made, again);
    let log = prefix.connect().await;
    assert_eq!(log.identity(Topic::Memories, 1).await.unwrap(), made);
    assert!(differences(&prefix).await.is_empty());
}

#[tokio::test]
async fn every_missing_topic_is_named() {
    let prefix = prefix();
    let found = differences(&prefix).await;
    assert_eq!(found.len(), Topic::ALL.len());
    assert!(
        found
            .iter()
            .all(|difference| difference.what == What::Missing)
    );
    let refused = refusal(&prefix).await;
    for topic in Topic::ALL {
        assert!(
            refused.contains(&format!("topic {} is missing", prefix.name(topic))),
            "{topic}"
        );
    }
}

async fn check_setting(topic: Topic, setting: &str, value: &str) {
    let prefix = prefix();
    prefix.create().await;
    let name = prefix.name(topic);
    // All settings are written at once, so that only this one differs.
    let topics = prefix.topics();
    let bytes = topics.max_message_bytes.to_string();
    let mut all = vec![
        ("retention.ms", "-1"),
        ("message.timestamp.type", "LogAppendTime"),
        ("max.message.bytes", bytes.as_str()),
        ("min.insync.replicas", "1"),
    ];
    all.retain(|(name, _)| *name != setting);
    all.push((setting, value));
    let mut altered = AlterConfig::new(ResourceSpecifier::Topic(&name));
    for (setting, value) in &all {
        altered = altered.set(setting, value);
    }
    let done = prefix
        .admin()
        .alter_configs([&altered], &AdminOptions::new())
        .await
        .unwrap();
    assert!(done.iter().all(Result::is_ok), "{setting}={value}");
    let words = format!("topic {name} has {setting}={value}");
    check_named(&prefix, &words).await;
    assert_eq!(differences(&prefix).await.len(), 1, "{words}");
}

#[tokio::test]
async fn a_setting_that_differs_is_named() {
    check_setting(Topic::Memories, "retention.ms", "604800000").await;
    check_setting(Topic::Conversation, "cleanup.policy", "compact").await;
    check_setting(Topic::Commands, "message.timestamp.type", "CreateTime").await;
    check_setting(Topic::Candidates, "max.message.bytes", "1048588").await;
    check_setting(Topic::Inbox, "retention.ms", "-1").await;
}

#[tokio::test]
async fn another_number_of_partitions_is_named() {
    let prefix = prefix();
    prefix.create().await;
    let name = prefix.name(Topic::Conversation);
    let more = NewPartitions::new(&name, 3);
    prefix
        .admin()
        .create_partitions([&more], &AdminOptions::new())
        .await
        .unwrap();
    // The broker takes a moment to tell of it.
    while differences(&prefix).await.is_empty() {}
    check_named(&prefix, &format!("topic {name} has 3 partitions, not 2")).await;
    // Of the log as a whole: only whoever creates or checks is told, a start takes the log's own.
    let other = Prefix::new(&shared_brokers(), 2);
    other.create().await;
    let mut asks = other.config.clone();
    asks.partitions = Some(5);
    let found = check_topics(&asks, &other.topics()).await.unwrap();
    assert!(matches!(
        &found[..],
        [Difference {
            what: What::Partitions {
                found: 2,
                expected: 5
            },
            ..
        }]
    ));
    assert!(
        create_topics(&asks, &other.topics(), &SystemClock)
            .await
            .is_err()
    );
}

#[tokio::test]
async fn a_recreated_topic_is_refused_at_start() {
    let prefix = prefix();
    let log = prefix.log().await;
    log.append(Topic::Memories, 0, records(&["a".to_owned()]))
        .await
        .unwrap();
    drop(log);
    prefix.recreate(Topic::Commands).await;
    check_named(
        &prefix,
        &format!("{}-0 has no identity record", prefix.name(Topic::Commands)),
    )
    .await;
}

#[tokio::test]
async fn a_topic_of_another_log_is_refused() {
    let prefix = prefix();
    prefix.create().await;
    prefix.recreate(Topic::Commands).await;
    let other = Identity {
        log_id: LogId::from_bytes([9; 16]),
        created_at: Timestamp::from_millis(0),
        partitions: 2,
    };
    let payload = identity_payload(&other, Topic::Commands);
    for partition in 0..2 {
        prefix
            .produce(Topic::Commands, partition, Some(&[0; 16]), Some(&payload))
            .await;
    }
    check_named(
        &prefix,
        &format!(
            "the topic id changed: {}-1 is of log {}",
            prefix.name(Topic::Commands),
            other.log_id
        ),
    )
    .await;
}

#[tokio::test]
async fn a_partition_that_begins_with_something_else_is_refused() {
    let prefix = prefix();
    prefix.create().await;
    prefix.recreate(Topic::Receipts).await;
    prefix
        .produce(Topic::Receipts, 1, Some(b"k"), Some(b"x"))
        .await;
    check_named(
        &prefix,
        &format!(
            "{}-1 begins with something else",
            prefix.name(Topic::Receipts)
        ),
    )
    .await;
}

#[tokio::test]
async fn a_topic_that_is_recreated_under_a_running_log_stops_it() {
    let prefix = prefix();
    let log = prefix.log().await;
    let texts: Vec<String> = (0..5).map(|n| n.to_string()).collect();
    log.append(Topic::Commands, 0, records(&texts))
        .await
        .unwrap();
    assert_eq!(
        log.read(Topic::Commands, 0, 3, 1, 1 << 20)
            .await
            .unwrap()
            .len(),
        1
    );
    prefix.recreate(Topic::Commands).await;
    // It may take a moment until the client hears of it; nothing foreign may come meanwhile.
    let name = prefix.name(Topic::Commands);
    let refused = loop {
        match log.read(Topic::Commands, 0, 6, 10, 1 << 20).await {
            Ok(records) => assert!(records.is_empty()),
            Err(error) if error.is_retryable() => (),
            Err(error) => break error,
        }
    };
    assert!(refused.to_string().contains(&name), "{refused}");
    // Grown beyond the position by somebody who does not know the log.
    for _ in 0..8 {
        prefix
            .produce(Topic::Commands, 0, Some(&[1; 16]), Some(b"foreign"))
            .await;
    }
    let refused = log.end(Topic::Commands, 0).await.and(
        log.read(Topic::Commands, 0, 6, 10, 1 << 20)
            .await
            .map(|_| 0),
    );
    // Either the growth is not seen yet, or it begins with no identity record.
    assert!(
        matches!(refused, Err(LogError::Unusable { .. })),
        "{refused:?}"
    );
}

#[tokio::test]
async fn a_topic_that_vanishes_under_a_running_log_is_named() {
    let prefix = prefix();
    let log = prefix.log().await;
    let name = prefix.name(Topic::Embeddings);
    prefix
        .admin()
        .delete_topics(&[&name], &AdminOptions::new())
        .await
        .unwrap();
    let refused = loop {
        match log.end(Topic::Embeddings, 0).await {
            Ok(_) => (),
            Err(error) if error.is_retryable() => (),
            Err(error) => break error,
        }
    };
    assert!(refused.to_string().contains("missing"), "{refused}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn creators_at_once_make_one_log() {
    let prefix = prefix();
    let create = || async { create_topics(&prefix.config, &prefix.topics(), &SystemClock).await };
    let (one, two, three) = futures::join!(create(), create(), create());
    let identity = one.unwrap();
    assert_eq!((identity, identity), (two.unwrap(), three.unwrap()));
    assert_eq!(differences(&prefix).await, []);
    prefix.connect().await;
}

/// As a creator leaves it that was killed: some topics, and one identity.
#[tokio::test]
async fn a_creation_that_was_killed_is_finished() {
    let prefix = prefix();
    let topics = prefix.topics();
    let schemas = prefix.name(Topic::Schemas);
    let bytes = topics.max_message_bytes.to_string();
    let new = NewTopic::new(&schemas, 1, TopicReplication::Fixed(1))
        .set("retention.ms", "-1")
        .set("message.timestamp.type", "LogAppendTime")
        .set("max.message.bytes", &bytes)
        .set("min.insync.replicas", "1");
    prefix
        .admin()
        .create_topics([&new], &AdminOptions::new())
        .await
        .unwrap();
    let begun = Identity {
        log_id: LogId::from_bytes([3; 16]),
        created_at: Timestamp::from_millis(1_700_000_000_000),
        partitions: 2,
    };
    let payload = identity_payload(&begun, Topic::Schemas);
    prefix
        .produce(Topic::Schemas, 0, Some(&[0; 16]), Some(&payload))
        .await;
    let made = create_topics(&prefix.config, &topics, &SystemClock)
        .await
        .unwrap();
    assert_eq!(made, begun, "the identity that was there wins");
    assert_eq!(differences(&prefix).await, []);
}

#[tokio::test]
async fn without_a_broker_a_start_says_why_and_may_be_tried_again() {
    let mut config = KafkaConfig::new("127.0.0.1:9");
    config.connect_timeout = Duration::from_secs(2);
    let topics = Topics::of(&config).unwrap();
    let began = std::time::Instant::now();
    let refused = KafkaLog::connect(&config, &topics, Arc::new(SystemClock)).await;
    let error = refused.err().unwrap();
    assert!(error.is_retryable(), "{error}");
    assert!(error.to_string().contains("127.0.0.1:9"), "{error}");
    assert!(began.elapsed() < Duration::from_secs(5));
}

#[tokio::test]
async fn a_setting_that_is_not_allowed_or_not_known_is_refused_by_name() {
    for (setting, value) in [
        ("acks", "1"),
        ("sasl.no.such", "x"),
        ("security.protocol", "carrier pigeon"),
    ] {
        let mut config = KafkaConfig::new("127.0.0.1:9");
        config.client.insert(setting.to_owned(), value.to_owned());
        let topics = Topics::of(&config).unwrap();
        let error = check_topics(&config, &topics).await.unwrap_err();
        assert!(
            !error.is_retryable() && error.to_string().contains(setting),
            "{error}"
        );
    }
}
