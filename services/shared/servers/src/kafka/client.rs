//! What is asked of a broker besides appending and reading: which topics there are, where a partition
//! starts and ends, which record is the first of a time.
//!
//! librdkafka's questions block, so each runs on a thread that may wait. All have the read deadline.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::{Duration, Instant};

use anamnesis_domain::time::Timestamp;
use anamnesis_pipeline::broken::broke_off;
use anamnesis_pipeline::log::LogError;
use rdkafka::ClientConfig;
use rdkafka::client::ClientContext;
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::consumer::{BaseConsumer, Consumer, ConsumerContext};
use rdkafka::error::{KafkaError, RDKafkaErrorCode as Code};
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};

use super::config::KafkaConfig;
use super::writer::drop_apart;

/// Says that a topic or partition is not there.
const MISSING: [Code; 4] = [
    Code::UnknownTopicOrPartition,
    Code::UnknownTopic,
    Code::UnknownPartition,
    Code::UnknownTopicId,
];

/// No later try will be allowed either, until somebody changes something.
const FORBIDDEN: [Code; 5] = [
    Code::TopicAuthorizationFailed,
    Code::GroupAuthorizationFailed,
    Code::ClusterAuthorizationFailed,
    Code::SaslAuthenticationFailed,
    Code::Authentication,
];

/// Leadership that moves, or that not every broker has heard of.
const PASSING: [Code; 6] = [
    Code::NotLeaderForPartition,
    Code::LeaderNotAvailable,
    Code::ReplicaNotAvailable,
    Code::FencedLeaderEpoch,
    Code::UnknownLeaderEpoch,
    Code::OffsetNotAvailable,
];

const ASK_AGAIN: Duration = Duration::from_millis(50);

/// A topic that no list of the broker's has held for so long is missing. A broker that has just come
/// back knows nothing for a moment.
const MISSING_FOR: Duration = Duration::from_secs(3);

/// For the list that shows whether a topic is missing.
const LIST_WITHIN: Duration = Duration::from_secs(2);

/// Events that are looked through for the reason of a failure.
const EVENTS_MAX: usize = 100;

/// Takes what librdkafka says without being asked.
#[derive(Clone, Default)]
pub(super) struct Context {
    /// Why the brokers could not be reached last: the calls themselves only say "timed out".
    trouble: Arc<Mutex<Option<String>>>,
}

impl Context {
    fn trouble(&self) -> Option<String> {
        self.trouble
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    fn is_troubled(&self, reason: &str) {
        let mut trouble = self.trouble.lock().unwrap_or_else(PoisonError::into_inner);
        *trouble = Some(reason.to_owned());
    }
}

impl ClientContext for Context {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, message: &str) {
        // The errors come again as events and as answers; its log is for whoever debugs.
        let is_grave = matches!(
            level,
            RDKafkaLogLevel::Emerg | RDKafkaLogLevel::Alert | RDKafkaLogLevel::Critical
        );
        if is_grave {
            tracing::warn!(facility, message, "librdkafka");
        } else {
            tracing::debug!(facility, message, "librdkafka");
        }
        // That a broker hangs up on whoever speaks another protocol comes only this way.
        if facility == "FAIL" {
            self.is_troubled(message);
        }
    }

    fn error(&self, error: KafkaError, reason: &str) {
        tracing::debug!(%error, reason, "librdkafka");
        // That all brokers are down says less than why the last of them was.
        if error.rdkafka_error_code() != Some(Code::AllBrokersDown) {
            self.is_troubled(reason);
        }
    }
}

impl ConsumerContext for Context {}

/// Where the records of a partition lie.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Bounds {
    pub(super) start: u64,
    pub(super) end: u64,
}

/// One topic as the broker describes it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Found {
    pub(super) partitions: u32,
    /// Of the partition that has the fewest.
    pub(super) replicas: u16,
    /// Whether every partition has a leader, so that it can be written.
    pub(super) is_led: bool,
}

/// A client that did not get so many answers in a row is made anew: after a broker came back, some never
/// find it again.
const FAILURES_MAX: u32 = 2;

pub(super) struct Asker {
    settings: ClientConfig,
    client: RwLock<Arc<Client>>,
    /// In a row.
    failures: AtomicU32,
    timeout: Duration,
}

struct Client {
    consumer: BaseConsumer<Context>,
    context: Context,
}

impl Client {
    /// What troubled the one before is worth telling until this one has trouble of its own.
    fn make(settings: &ClientConfig, context: Context) -> Result<Self, KafkaError> {
        let consumer = settings.create_with_context(context.clone())?;
        Ok(Self { consumer, context })
    }
}

impl Asker {
    pub(super) fn new(config: &KafkaConfig, timeout: Duration) -> Result<Self, LogError> {
        let settings = config.base()?;
        let client =
            Client::make(&settings, Context::default()).map_err(|error| config.refused(&error))?;
        Ok(Self {
            settings,
            client: RwLock::new(Arc::new(client)),
            failures: AtomicU32::new(0),
            timeout,
        })
    }

    fn client(&self) -> Arc<Client> {
        let client = self.client.read().unwrap_or_else(PoisonError::into_inner);
        client.clone()
    }

    /// Takes what the client says without being asked.
    pub(super) fn take_events(&self) {
        take_events(&self.client().consumer);
    }

    fn failed(&self) {
        if self.failures.fetch_add(1, Ordering::Relaxed) + 1 < FAILURES_MAX {
            return;
        }
        if let Ok(made) = Client::make(&self.settings, self.client().context.clone()) {
            tracing::info!("a client that gets no answers is made anew");
            let mut client = self.client.write().unwrap_or_else(PoisonError::into_inner);
            drop_apart(std::mem::replace(&mut *client, Arc::new(made)));
        }
        self.failures.store(0, Ordering::Relaxed);
    }

    /// A question about these topics.
    async fn ask<T: Send + 'static>(
        &self,
        about: Vec<String>,
        question: impl Fn(&BaseConsumer<Context>, Duration) -> Result<T, KafkaError> + Send + 'static,
    ) -> Result<T, LogError> {
        let (client, timeout) = (self.client(), self.timeout);
        let task = tokio::task::spawn_blocking(move || {
            patiently(&client.consumer, timeout, &about, question)
        });
        let (error, presence) = match task.await {
            Ok(Ok(answer)) => {
                self.failures.store(0, Ordering::Relaxed);
                return Ok(answer);
            }
            Ok(Err(failed)) => failed,
            Err(error) => {
                return Err(LogError::Unavailable {
                    reason: broke_off(&error).to_owned(),
                });
            }
        };
        let is_missing = error.rdkafka_error_code().is_some_and(is_missing);
        if is_missing && presence == Presence::Unknown {
            self.failed();
            return Err(LogError::Unavailable {
                reason: self.reason(&error),
            });
        }
        let explained = self.explain(&error);
        if explained.is_retryable() {
            self.failed();
        }
        Err(explained)
    }

    /// The topics of these names that are there.
    pub(super) async fn topics(
        &self,
        names: Vec<String>,
    ) -> Result<BTreeMap<String, Found>, LogError> {
        self.ask(Vec::new(), move |consumer, timeout| {
            // All topics at once: asking for one that is not there may make it on some brokers.
            let metadata = consumer.fetch_metadata(None, timeout)?;
            let mut found = BTreeMap::new();
            for topic in metadata.topics() {
                if topic.error().is_some() || !names.iter().any(|name| name == topic.name()) {
                    continue;
                }
                let partitions = topic.partitions();
                let replicas = partitions.iter().map(|p| p.replicas().len()).min();
                found.insert(
                    topic.name().to_owned(),
                    Found {
                        partitions: u32::try_from(partitions.len()).unwrap_or(u32::MAX),
                        replicas: u16::try_from(replicas.unwrap_or(0)).unwrap_or(u16::MAX),
                        is_led: partitions.iter().all(|p| p.leader() >= 0),
                    },
                );
            }
            Ok(found)
        })
        .await
    }

    pub(super) async fn bounds(&self, name: &str, partition: u32) -> Result<Bounds, LogError> {
        let name = name.to_owned();
        self.ask(vec![name.clone()], move |consumer, timeout| {
            let (start, end) = consumer.fetch_watermarks(&name, number(partition), timeout)?;
            Ok(Bounds {
                start: start.unsigned_abs(),
                end: end.unsigned_abs(),
            })
        })
        .await
    }

    /// The bounds of many partitions with two questions.
    pub(super) async fn all_bounds(
        &self,
        places: Vec<(String, u32)>,
    ) -> Result<Vec<Bounds>, LogError> {
        let mut names: Vec<String> = places.iter().map(|(name, _)| name.clone()).collect();
        names.dedup();
        self.ask(names, move |consumer, timeout| {
            let ask = |side: Offset| -> Result<Vec<u64>, KafkaError> {
                let mut list = TopicPartitionList::with_capacity(places.len());
                for (name, partition) in &places {
                    list.add_partition_offset(name, number(*partition), side)?;
                }
                let answer = consumer.offsets_for_times(list, timeout)?;
                let mut offsets = Vec::with_capacity(places.len());
                for (name, partition) in &places {
                    offsets.push(offset_in(&answer, name, *partition)?.unwrap_or(0));
                }
                Ok(offsets)
            };
            let starts = ask(Offset::Beginning)?;
            let ends = ask(Offset::End)?;
            let both = starts.into_iter().zip(ends);
            Ok(both.map(|(start, end)| Bounds { start, end }).collect())
        })
        .await
    }

    /// The first record whose own time is `at` or later.
    pub(super) async fn first_at(
        &self,
        name: &str,
        partition: u32,
        at: Timestamp,
    ) -> Result<Option<u64>, LogError> {
        let name = name.to_owned();
        self.ask(vec![name.clone()], move |consumer, timeout| {
            let mut list = TopicPartitionList::with_capacity(1);
            // Times before 1970 mean something else to Kafka, and nothing was appended then.
            let at = Offset::Offset(at.millis().max(0));
            list.add_partition_offset(&name, number(partition), at)?;
            let answer = consumer.offsets_for_times(list, timeout)?;
            offset_in(&answer, &name, partition)
        })
        .await
    }

    fn reason(&self, error: &KafkaError) -> String {
        let said = error.to_string();
        match self.client().context.trouble() {
            Some(trouble) => format!("{said} (last trouble: {trouble})"),
            None => said,
        }
    }

    /// What a failure means for whoever asked.
    pub(super) fn explain(&self, error: &KafkaError) -> LogError {
        let reason = self.reason(error);
        match error.rdkafka_error_code() {
            Some(code) if MISSING.contains(&code) => LogError::Unusable {
                what: format!("a topic or partition of the log is missing: {reason}"),
            },
            Some(code) if is_forbidden(code) => LogError::Unusable { what: reason },
            Some(_) | None => LogError::Unavailable { reason },
        }
    }
}

/// Whether a topic is there.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Presence {
    /// It is there, or nobody can be asked.
    Unknown,
    /// The broker's own list has not held it for a while.
    Missing,
}

/// Asks again while the answer is one that passes by itself: a topic that was just made is not known to
/// every broker, a broker that came back does not know any, and leadership moves.
fn patiently<T>(
    consumer: &BaseConsumer<Context>,
    timeout: Duration,
    about: &[String],
    question: impl Fn(&BaseConsumer<Context>, Duration) -> Result<T, KafkaError>,
) -> Result<T, (KafkaError, Presence)> {
    let began = Instant::now();
    let mut missing_since: Option<Instant> = None;
    loop {
        let left = timeout.saturating_sub(began.elapsed());
        let error = match question(consumer, left.max(ASK_AGAIN)) {
            Ok(answer) => return Ok(answer),
            Err(error) => error,
        };
        let code = error.rdkafka_error_code();
        let mut presence = Presence::Unknown;
        if code.is_some_and(is_missing) && is_unlisted(consumer, about) {
            let since = *missing_since.get_or_insert_with(Instant::now);
            if since.elapsed() >= MISSING_FOR {
                presence = Presence::Missing;
            }
        } else {
            missing_since = None;
        }
        let passes = code.is_some_and(|code| is_missing(code) || PASSING.contains(&code));
        if !passes || presence == Presence::Missing || left < ASK_AGAIN {
            take_events(consumer);
            return Err((error, presence));
        }
        std::thread::sleep(ASK_AGAIN);
    }
}

/// Whether a broker answers, and its list lacks one of these topics.
fn is_unlisted(consumer: &BaseConsumer<Context>, about: &[String]) -> bool {
    // All topics at once: asking for one that is not there may make it on some brokers.
    let Ok(listed) = consumer.fetch_metadata(None, LIST_WITHIN) else {
        return false;
    };
    let is_listed = |name: &String| {
        let mut topics = listed.topics().iter();
        topics.any(|topic| topic.name() == name && topic.error().is_none())
    };
    !about.iter().all(is_listed)
}

/// What the client says by itself goes to its context, from where a failure takes its reason.
fn take_events(consumer: &BaseConsumer<Context>) {
    for _ in 0..EVENTS_MAX {
        let _ = consumer.poll(Duration::ZERO);
    }
}

pub(super) fn is_missing(code: Code) -> bool {
    MISSING.contains(&code)
}

pub(super) fn is_forbidden(code: Code) -> bool {
    FORBIDDEN.contains(&code)
}

/// Kafka counts partitions in signed numbers.
pub(super) fn number(partition: u32) -> i32 {
    i32::try_from(partition).unwrap_or(i32::MAX)
}

fn offset_in(
    list: &TopicPartitionList,
    name: &str,
    partition: u32,
) -> Result<Option<u64>, KafkaError> {
    let Some(element) = list.find_partition(name, number(partition)) else {
        return Err(KafkaError::OffsetFetch(Code::UnknownPartition));
    };
    element.error()?;
    Ok(element
        .offset()
        .to_raw()
        .and_then(|raw| u64::try_from(raw).ok()))
}
