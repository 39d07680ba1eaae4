//! What platforms write to `inbox` on a real broker, read by intake over the same log.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anamnesis_domain::input::Topic;
use anamnesis_intake::inbox::{InboxError, Reading};
use anamnesis_pipeline::conformance::inbox::InboxBackend;
use anamnesis_pipeline::consumer::Progress;
use anamnesis_pipeline::doubles::inbox::Produced;
use anamnesis_pipeline::inbox::{Damage, Inbox};
use anamnesis_servers::kafka::KafkaLog;
use async_trait::async_trait;
use rdkafka::admin::AdminOptions;
use rdkafka::message::{Header, OwnedHeaders};
use rdkafka::producer::{FutureProducer, FutureRecord, Producer};
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};
use serde_json::{Value, json};
use tokio::sync::OnceCell;
use tokio_util::sync::CancellationToken;

use super::broker::{Broker, Prefix, shared_brokers};
use crate::{registry, site};

const WITHIN: Duration = Duration::from_secs(20);

fn producer(prefix: &Prefix) -> FutureProducer {
    let mut client = prefix.client();
    client.set("message.max.bytes", "12000000");
    client.create().unwrap()
}

fn record<'a>(
    name: &'a str,
    partition: u32,
    produced: &'a Produced,
) -> FutureRecord<'a, [u8], [u8]> {
    let mut record = FutureRecord::to(name).partition(partition as i32);
    record.key = produced.key.as_deref();
    record.payload = produced.payload.as_deref();
    let mut headers = OwnedHeaders::new();
    for (key, value) in &produced.headers {
        let value = value.as_deref();
        headers = headers.insert(Header { key, value });
    }
    record.headers(headers)
}

async fn send(prefix: &Prefix, producer: &FutureProducer, partition: u32, what: &Produced) -> u64 {
    let name = prefix.name(Topic::Inbox);
    let sent = producer.send(record(&name, partition, what), WITHIN).await;
    sent.unwrap().offset as u64
}

/// A transaction with these records; each leaves a marker behind.
async fn transact(prefix: &Prefix, partition: u32, what: &[Produced], is_kept: bool) {
    let mut random = [0; 8];
    getrandom::fill(&mut random).unwrap();
    let id = format!(
        "{}-{:x}",
        prefix.name(Topic::Inbox),
        u64::from_le_bytes(random)
    );
    let producer: FutureProducer = prefix
        .client()
        .set("transactional.id", &id)
        .create()
        .unwrap();
    producer.init_transactions(WITHIN).unwrap();
    producer.begin_transaction().unwrap();
    let name = prefix.name(Topic::Inbox);
    let sends = what
        .iter()
        .map(|what| producer.send(record(&name, partition, what), WITHIN));
    for sent in futures::future::join_all(sends).await {
        sent.unwrap();
    }
    if is_kept {
        producer.commit_transaction(WITHIN).unwrap();
    } else {
        producer.abort_transaction(WITHIN).unwrap();
    }
}

struct Kafka {
    prefix: Prefix,
    log: OnceCell<Arc<KafkaLog>>,
}

impl Kafka {
    fn new() -> Self {
        Self {
            prefix: Prefix::new(&shared_brokers(), 2),
            log: OnceCell::new(),
        }
    }
}

#[async_trait]
impl InboxBackend for Kafka {
    async fn make(&self) -> Arc<dyn Inbox> {
        let made = self.log.get_or_init(|| self.prefix.log());
        made.await.clone()
    }

    async fn produce(&self, partition: u32, produced: Produced) -> u64 {
        send(&self.prefix, &producer(&self.prefix), partition, &produced).await
    }

    async fn leave_gap(&self, partition: u32) {
        transact(&self.prefix, partition, &[Produced::of("given up")], false).await;
    }

    async fn drop_before(&self, partition: u32, offset: u64) {
        let mut list = TopicPartitionList::new();
        let name = self.prefix.name(Topic::Inbox);
        list.add_partition_offset(&name, partition as i32, Offset::Offset(offset as i64))
            .unwrap();
        let admin = self.prefix.admin();
        admin
            .delete_records(&list, &AdminOptions::new())
            .await
            .unwrap();
    }
}

anamnesis_pipeline::inbox_conformance!(Kafka::new());

async fn settle(reading: &mut Reading) -> Result<(), InboxError> {
    while reading.turn().await? != Progress::Idle {}
    Ok(())
}

fn of(value: &Value) -> Produced {
    Produced::of(value.to_string())
}

fn binary(owner: &str, id: &str, data: impl Into<bytes::Bytes>) -> Produced {
    Produced::of(data)
        .with("ce_specversion", "1.0")
        .with("ce_id", id)
        .with("ce_source", "/分诊台")
        .with("ce_type", "turn")
        .with("ce_time", "2025-05-01T02:00:00Z")
        .with("ce_subject", owner)
        .with("content-type", "application/json")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_platforms_write_is_let_in_once_whoever_reads() {
    let prefix = Prefix::new(&shared_brokers(), 2);
    let log = prefix.log().await;
    let intake = site::intake(log.clone());
    let producer = producer(&prefix);
    let put = async |what: &Produced| send(&prefix, &producer, 1, what).await;
    let said = |role: &str, text: &str| json!({"role": role, "text": text}).to_string();
    put(&of(&site::plain("h/a", "1", "我对芒果过敏")).with_key("会话-1")).await;
    let null = put(&Produced::default().with_key("h/a")).await;
    let mut headers = binary("h/b", "2", said("user", "I take warfarin 5 mg"));
    headers.headers.push(("x-note".to_owned(), None));
    put(&headers).await;
    let given_up = of(&site::plain("h/c", "3", "given up"));
    transact(&prefix, 1, &[given_up], false).await;
    let kept = [
        of(&site::plain("h/c", "4", "kept")),
        binary("h/c", "5", said("assistant", "也保留")),
    ];
    transact(&prefix, 1, &kept, true).await;
    let garbage = put(&Produced::of(vec![0xff; 2 << 20])).await;
    let other = put(&of(&site::plain("elsewhere/p", "6", "x"))).await;
    let event = json!({"specversion": "1.0", "id": "7", "source": "/his", "type": "turn",
        "subject": "h/d", "time": "2025-05-01T02:00:00Z", "data": {"text": "结构化"}});
    put(&of(&event).with("content-type", "application/cloudevents+json")).await;

    let reader = site::reader(log.clone(), &intake, None);
    let mut reading = reader.reading(1);
    settle(&mut reading).await.unwrap();
    let expected = [
        "h/patient/a 我对芒果过敏",
        "h/patient/b I take warfarin 5 mg",
        "h/patient/c kept",
        "h/patient/c 也保留",
        "h/patient/d 结构化",
    ];
    assert_eq!(site::texts(&intake).await, expected);
    let codes = [
        (null, "empty_record"),
        (garbage, "invalid_utf8"),
        (other, "tenant_not_covered"),
    ];
    let codes = codes.map(|(offset, code)| (offset, code.to_owned()));
    assert_eq!(site::rejected(&intake, 1).await, codes);
    let receipts = site::receipts(&intake, 1).await;
    let read: u64 = receipts.iter().map(|read| read.read).sum();
    assert_eq!(read, 8, "what was given up and markers are no records");
    assert!(
        receipts
            .iter()
            .zip(&receipts[1..])
            .all(|(a, b)| a.next == b.from)
    );

    // Another process goes on, and reads nothing again.
    let next = prefix.connect().await;
    put(&of(&site::plain("h/a", "8", "later"))).await;
    let mut reading = site::reader(next, &intake, None).reading(1);
    settle(&mut reading).await.unwrap();
    assert_eq!(site::texts(&intake).await.len(), expected.len() + 1);
    assert_eq!(reading.position(), Some(log_end(&*log, 1).await));
}

async fn log_end(inbox: &dyn Inbox, partition: u32) -> u64 {
    inbox.end(partition).await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_header_that_is_no_text_is_one_record_of_many() {
    let prefix = Prefix::new(&shared_brokers(), 1);
    let log = prefix.log().await;
    let mut bad = binary("h/a", "1", "{}");
    bad.headers.push((
        "ce_note".to_owned(),
        Some(bytes::Bytes::from_static(&[0xff, 0xfe])),
    ));
    let producer = producer(&prefix);
    let first = send(&prefix, &producer, 0, &bad).await;
    send(&prefix, &producer, 0, &of(&site::plain("h/a", "2", "good"))).await;
    let batch = Inbox::read(&*log, 0, first, 10, 1 << 20).await.unwrap();
    assert_eq!(batch.records[0].damage, None::<Damage>);
    let intake = site::intake(log.clone());
    settle(&mut site::reader(log, &intake, None).reading(0))
        .await
        .unwrap();
    let expected = [(first, "invalid_utf8".to_owned())];
    assert_eq!(site::rejected(&intake, 0).await, expected);
    assert_eq!(site::texts(&intake).await, ["h/patient/a good"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn avro_of_a_real_registry_is_read_from_a_real_topic() {
    let url = registry::shared_registry();
    let id = registry::register(&url, "inbox-value", json!({"schema": site::schema()})).await;
    let prefix = Prefix::new(&shared_brokers(), 1);
    let log = prefix.log().await;
    let intake = site::intake(log.clone());
    let producer = producer(&prefix);
    let put = async |payload: Vec<u8>| send(&prefix, &producer, 0, &Produced::of(payload)).await;
    for (n, text) in ["胸痛三天", "chest pain for three days"].iter().enumerate() {
        let event = site::plain("h/a", &format!("{n}"), text);
        put(site::framed(id, &event)).await;
    }
    let unknown = put(site::framed(4_000_000_000, &site::plain("h/a", "9", "x"))).await;
    let cut = put(site::framed(id, &site::plain("h/a", "9", "x"))[..9].to_vec()).await;
    let source = registry::connect(&url);
    let reader = site::reader(log, &intake, Some(source));
    settle(&mut reader.reading(0)).await.unwrap();
    let expected = [
        "h/patient/a chest pain for three days",
        "h/patient/a 胸痛三天",
    ];
    assert_eq!(site::texts(&intake).await, expected);
    let codes = [(unknown, "unknown_schema"), (cut, "undecodable")];
    let codes = codes.map(|(offset, code)| (offset, code.to_owned()));
    assert_eq!(site::rejected(&intake, 0).await, codes);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_position_that_the_topic_no_longer_has_stops_the_reader() {
    let kafka = Kafka::new();
    let log = kafka.prefix.log().await;
    let intake = site::intake(log.clone());
    let reader = site::reader(log.clone(), &intake, None);
    for n in 0..3 {
        let event = site::plain("h/a", &format!("{n}"), "read");
        kafka.produce(0, of(&event)).await;
    }
    settle(&mut reader.reading(0)).await.unwrap();
    for n in 3..8 {
        let event = site::plain("h/a", &format!("{n}"), "late");
        kafka.produce(0, of(&event)).await;
    }
    kafka.drop_before(0, 6).await;
    let error = settle(&mut reader.reading(0)).await.unwrap_err();
    let text = error.to_string();
    assert!(
        !error.is_retryable() && text.contains("up to 4") && text.contains("6..9"),
        "{text}"
    );
    assert_eq!(reader.give_up_lost(0).await.unwrap(), 4..6);
    settle(&mut reader.reading(0)).await.unwrap();
    assert_eq!(site::texts(&intake).await.len(), 6);
    assert_eq!(site::rejected(&intake, 0).await, [(4, "lost".to_owned())]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_broker_costs_repeats_and_no_message() {
    let broker = Arc::new(tokio::task::spawn_blocking(Broker::start).await.unwrap());
    let mut prefix = Prefix::new(&broker.address, 2);
    prefix.config.append_timeout = Duration::from_secs(3);
    prefix.config.read_timeout = Duration::from_secs(3);
    let log = prefix.log().await;
    let intake = site::intake(log.clone());
    let reader = site::reader(log.clone(), &intake, None);
    let shutdown = CancellationToken::new();
    let running: Vec<_> = (0..2)
        .map(|partition| tokio::spawn(reader.clone().run(partition, shutdown.clone())))
        .collect();
    let mut sent = 0;
    for _ in 0..3 {
        let producer = producer(&prefix);
        for _ in 0..200 {
            let event = site::plain(&format!("h/p{}", sent % 9), &format!("{sent}"), "x");
            send(&prefix, &producer, sent % 2, &of(&event)).await;
            sent += 1;
        }
        let broker = broker.clone();
        let killed = tokio::task::spawn_blocking(move || {
            broker.kill();
            broker.start_again();
        });
        killed.await.unwrap();
    }
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        let mut left = 0;
        for partition in 0..2 {
            let end = log_end(&*log, partition).await;
            let receipts = site::receipts(&intake, partition).await;
            left += end - receipts.last().map_or(1, |read| read.next);
        }
        if left == 0 {
            break;
        }
        assert!(Instant::now() < deadline, "{left} records are left");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    shutdown.cancel();
    for running in running {
        running.await.unwrap().unwrap();
    }
    let mut ids: Vec<u64> = site::ids(&intake).await;
    let all = ids.len();
    ids.sort_unstable();
    ids.dedup();
    println!("{} repeats of {sent}", all - ids.len());
    assert_eq!(ids, (0..u64::from(sent)).collect::<Vec<_>>());
    assert_eq!(site::rejected(&intake, 0).await, []);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_large_transaction_that_was_given_up_does_not_hold_others_up() {
    let prefix = Prefix::new(&shared_brokers(), 1);
    let log = prefix.log().await;
    let large = vec![Produced::of("given up"); 1_000];
    transact(&prefix, 0, &large, false).await;
    let producer = producer(&prefix);
    send(
        &prefix,
        &producer,
        0,
        &of(&site::plain("h/a", "1", "behind")),
    )
    .await;
    let intake = site::intake(log.clone());
    let began = Instant::now();
    settle(&mut site::reader(log, &intake, None).reading(0))
        .await
        .unwrap();
    println!("1,000 records that were given up: {:?}", began.elapsed());
    assert_eq!(site::texts(&intake).await, ["h/patient/a behind"]);
    assert_eq!(site::rejected(&intake, 0).await, []);
    assert!(began.elapsed() < Duration::from_secs(30));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_small_transactions_are_read_at_speed() {
    let prefix = Prefix::new(&shared_brokers(), 1);
    let log = prefix.log().await;
    let producer: FutureProducer = prefix
        .client()
        .set("transactional.id", prefix.name(Topic::Inbox))
        .create()
        .unwrap();
    producer.init_transactions(WITHIN).unwrap();
    for n in 0..200 {
        producer.begin_transaction().unwrap();
        let event = site::plain("h/a", &format!("{n}"), "one of many");
        send(&prefix, &producer, 0, &of(&event)).await;
        producer.commit_transaction(WITHIN).unwrap();
    }
    let intake = site::intake(log.clone());
    let mut reading = site::reader(log.clone(), &intake, None).reading(0);
    let began = Instant::now();
    let mut read = 0;
    while read < 200 {
        if let Progress::Advanced(count) = reading.turn().await.unwrap() {
            read += count;
        }
    }
    println!("200 transactions: {:?}", began.elapsed());
    assert!(began.elapsed() < Duration::from_secs(20));
    // The marker at the end is passed over as well.
    settle(&mut reading).await.unwrap();
    assert_eq!(reading.position(), Some(log_end(&*log, 0).await));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_transaction_that_is_open_is_waited_for_and_not_passed_over() {
    let prefix = Prefix::new(&shared_brokers(), 1);
    let log = prefix.log().await;
    let intake = site::intake(log.clone());
    let plain = producer(&prefix);
    let put = async |id: &str, text: &str| {
        send(&prefix, &plain, 0, &of(&site::plain("h/a", id, text))).await;
    };
    put("1", "1 before").await;
    let producer: FutureProducer = prefix
        .client()
        .set("transactional.id", prefix.name(Topic::Inbox))
        .create()
        .unwrap();
    producer.init_transactions(WITHIN).unwrap();
    producer.begin_transaction().unwrap();
    let within = of(&site::plain("h/a", "2", "2 within"));
    send(&prefix, &producer, 0, &within).await;
    put("3", "3 beside").await;
    let mut reading = site::reader(log.clone(), &intake, None).reading(0);
    for _ in 0..3 {
        settle(&mut reading).await.unwrap();
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    assert_eq!(site::texts(&intake).await, ["h/patient/a 1 before"]);
    assert_eq!(reading.position(), Some(2));
    producer.commit_transaction(WITHIN).unwrap();
    // The broker answers a commit before its mark stands in the partition.
    let deadline = Instant::now() + WITHIN;
    while reading.position() == Some(2) && Instant::now() < deadline {
        settle(&mut reading).await.unwrap();
    }
    settle(&mut reading).await.unwrap();
    let expected = [
        "h/patient/a 1 before",
        "h/patient/a 2 within",
        "h/patient/a 3 beside",
    ];
    assert_eq!(site::texts(&intake).await, expected);
}

/// Printed, not judged: machines differ.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn throughput_of_inbox() {
    const EVENTS: u32 = 10_000;
    let prefix = Prefix::new(&shared_brokers(), 8);
    let log = prefix.log().await;
    let intake = site::intake(log.clone());
    let producer = producer(&prefix);
    let name = prefix.name(Topic::Inbox);
    let events: Vec<Produced> = (0..EVENTS)
        .map(|n| {
            let text = "今天早上血压 150/95，头有点晕，二甲双胍已经停了两周。";
            of(&site::plain(
                &format!("h/p{}", n % 200),
                &format!("{n}"),
                text,
            ))
        })
        .collect();
    let sends = events
        .iter()
        .map(|what| producer.send(record(&name, 0, what), WITHIN));
    for sent in futures::future::join_all(sends).await {
        sent.unwrap();
    }
    let mut reading = site::reader(log, &intake, None).reading(0);
    let began = Instant::now();
    settle(&mut reading).await.unwrap();
    let each = began.elapsed().as_secs_f64() / f64::from(EVENTS);
    println!(
        "{:.0} events/s from inbox to conversation, unoptimised",
        1.0 / each
    );
    assert_eq!(site::texts(&intake).await.len(), EVENTS as usize);
}
