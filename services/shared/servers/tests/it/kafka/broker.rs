//! Brokers for tests: the one that the environment names, and own ones that may be killed.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use anamnesis_domain::ids::OwnerKey;
use anamnesis_domain::input::Topic;
use anamnesis_pipeline::clock::SystemClock;
use anamnesis_pipeline::log::{EventLog, NewRecord, Record};
use anamnesis_servers::kafka::{KafkaConfig, KafkaLog, Topics, create_topics};
use bytes::Bytes;
use rdkafka::ClientConfig;
use rdkafka::admin::{AdminClient, AdminOptions};
use rdkafka::client::DefaultClientContext;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::producer::{FutureProducer, FutureRecord};
use tempfile::TempDir;

const VARIABLE: &str = "ANAMNESIS_TEST_KAFKA";

pub(super) fn shared_brokers() -> String {
    std::env::var(VARIABLE).unwrap_or_else(|_| {
        panic!("{VARIABLE} is not set: start a broker with infra/servers/kafka.sh start DIR")
    })
}

/// Names that nobody else has; the topics are deleted at the end.
pub(super) struct Prefix {
    pub(super) config: KafkaConfig,
}

impl Prefix {
    pub(super) fn new(brokers: &str, partitions: u32) -> Self {
        let mut config = KafkaConfig::new(brokers);
        let mut random = [0; 8];
        getrandom::fill(&mut random).unwrap();
        config.topic_prefix = format!("it-{:016x}.", u64::from_le_bytes(random));
        config.partitions = Some(partitions);
        config.replication_factor = Some(1);
        config.min_insync_replicas = Some(1);
        Self { config }
    }

    pub(super) fn name(&self, topic: Topic) -> String {
        self.config.topic_name(topic)
    }

    pub(super) fn topics(&self) -> Topics {
        Topics::of(&self.config).unwrap()
    }

    pub(super) async fn create(&self) {
        create_topics(&self.config, &self.topics(), &SystemClock)
            .await
            .unwrap();
    }

    pub(super) async fn connect(&self) -> Arc<KafkaLog> {
        let log = KafkaLog::connect(&self.config, &self.topics(), Arc::new(SystemClock)).await;
        Arc::new(log.unwrap())
    }

    pub(super) async fn log(&self) -> Arc<KafkaLog> {
        self.create().await;
        self.connect().await
    }

    pub(super) fn admin(&self) -> AdminClient<DefaultClientContext> {
        self.client().create().unwrap()
    }

    pub(super) fn client(&self) -> ClientConfig {
        let mut client = ClientConfig::new();
        client.set("bootstrap.servers", &self.config.brokers);
        for (name, value) in &self.config.client {
            client.set(name, value);
        }
        client
    }

    /// Writes as a platform's own program would.
    pub(super) async fn produce(
        &self,
        topic: Topic,
        partition: i32,
        key: Option<&[u8]>,
        payload: Option<&[u8]>,
    ) -> i64 {
        let producer: FutureProducer = self
            .client()
            .set("message.max.bytes", "12000000")
            .create()
            .unwrap();
        let name = self.name(topic);
        let mut record = FutureRecord::<[u8], [u8]>::to(&name).partition(partition);
        record.key = key;
        record.payload = payload;
        producer
            .send(record, Duration::from_secs(10))
            .await
            .unwrap()
            .offset
    }

    /// Deletes a topic and makes it anew, with the settings that it must have.
    pub(super) async fn recreate(&self, topic: Topic) {
        let admin = self.admin();
        let name = self.name(topic);
        let deleted = admin
            .delete_topics(&[&name], &AdminOptions::new())
            .await
            .unwrap();
        assert!(deleted.iter().all(Result::is_ok));
        let topics = self.topics();
        let plan = topics
            .topics
            .iter()
            .find(|plan| plan.topic == topic)
            .unwrap();
        let settings = settings_of(&topics, plan);
        let partitions = self.config.partitions.unwrap() as i32;
        loop {
            let mut new = rdkafka::admin::NewTopic::new(
                &name,
                partitions,
                rdkafka::admin::TopicReplication::Fixed(1),
            );
            for (setting, value) in &settings {
                new = new.set(setting, value);
            }
            let made = admin
                .create_topics([&new], &AdminOptions::new())
                .await
                .unwrap();
            // It exists until the broker has taken note of its end.
            if made.iter().all(Result::is_ok) {
                return;
            }
        }
    }
}

fn settings_of(
    topics: &Topics,
    plan: &anamnesis_servers::kafka::TopicPlan,
) -> Vec<(&'static str, String)> {
    let retention = plan
        .retention_at_most
        .map_or(-1, |most| most.as_millis() as i64);
    vec![
        ("retention.ms", retention.to_string()),
        ("message.timestamp.type", topics.timestamp_type.clone()),
        ("max.message.bytes", topics.max_message_bytes.to_string()),
        (
            "min.insync.replicas",
            topics.min_insync_replicas.to_string(),
        ),
    ]
}

impl Drop for Prefix {
    fn drop(&mut self) {
        let (prefix, client) = (self.config.topic_prefix.clone(), self.client());
        // A broker that is gone took its topics with it.
        let cleaned = std::thread::spawn(move || {
            let consumer: BaseConsumer = client.create().ok()?;
            let metadata = consumer.fetch_metadata(None, Duration::from_secs(2)).ok()?;
            let names: Vec<&str> = metadata
                .topics()
                .iter()
                .map(|topic| topic.name())
                .filter(|name| name.starts_with(&prefix))
                .collect();
            let admin: AdminClient<DefaultClientContext> = client.create().ok()?;
            let options = AdminOptions::new().request_timeout(Some(Duration::from_secs(5)));
            futures::executor::block_on(admin.delete_topics(&names, &options)).ok()
        });
        let _ = cleaned.join();
    }
}

/// As the files says, but with the sender's time and without any retention of the broker's, since the
/// suite's clock stands years ago.
pub(super) fn topics_with_sender_time(config: &KafkaConfig) -> Topics {
    let mut topics = Topics::of(config).unwrap();
    topics.timestamp_type = "CreateTime".to_owned();
    for plan in &mut topics.topics {
        plan.retention_at_most = None;
    }
    topics
}

/// A broker that a test may kill.
pub(super) struct Broker {
    dir: TempDir,
    pub(super) address: String,
}

fn script() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../infra/servers/kafka.sh")
}

fn run(verb: &str, dir: &Path) -> String {
    let done = Command::new(script()).arg(verb).arg(dir).output().unwrap();
    let said = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "kafka.sh {verb}: {said}");
    String::from_utf8_lossy(&done.stdout).trim().to_owned()
}

impl Broker {
    pub(super) fn start() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let said = run("start", dir.path());
        let address = said
            .lines()
            .find_map(|line| line.strip_prefix(&format!("{VARIABLE}=")))
            .unwrap()
            .to_owned();
        Self { dir, address }
    }

    pub(super) fn kill(&self) {
        run("kill", self.dir.path());
    }

    pub(super) fn stop(&self) {
        run("stop", self.dir.path());
    }

    pub(super) fn start_again(&self) {
        run("start", self.dir.path());
    }

    /// The folder with the files of a partition.
    pub(super) fn files(&self, topic: &str, partition: u32) -> PathBuf {
        self.dir
            .path()
            .join("data")
            .join(format!("{topic}-{partition}"))
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        let _ = Command::new(script())
            .arg("kill")
            .arg(self.dir.path())
            .output();
    }
}

pub(super) fn key(byte: u8) -> OwnerKey {
    OwnerKey::from_bytes([byte; 16])
}

pub(super) fn records(texts: &[String]) -> Vec<NewRecord> {
    texts
        .iter()
        .map(|text| NewRecord {
            key: key(1),
            payload: Bytes::copy_from_slice(text.as_bytes()),
        })
        .collect()
}

pub(super) fn text(record: &Record) -> String {
    String::from_utf8_lossy(&record.payload).into_owned()
}

/// Everything from `from` to the tail.
pub(super) async fn read_all(
    log: &dyn EventLog,
    topic: Topic,
    partition: u32,
    from: u64,
) -> Vec<Record> {
    let mut all: Vec<Record> = Vec::new();
    loop {
        let next = from + all.len() as u64;
        let batch = log
            .read(topic, partition, next, 1_000, 8 << 20)
            .await
            .unwrap();
        if batch.is_empty() {
            return all;
        }
        all.extend(batch);
    }
}
