//! How do appends become durable? An idempotent producer with `acks=all`, one delivery report per
//! record, and one answer when all are in.
//!
//! The records of one append are handed over under a lock of their partition, so that they are adjacent
//! in this process, and they fit into one batch, which a broker takes whole, so that no other process
//! comes between. When somebody does all the same (a large append, a batch that was sent early), the
//! offsets say so, and the answer is [`LogError::Unknown`]: the records are there, but not as the port
//! promises, and whoever cares begins again by the log. Nothing is skipped: a place below what was known
//! to be written means that the partition was cut or made anew.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anamnesis_domain::time::Timestamp;
use anamnesis_pipeline::log::{Appended, LogError, NewRecord};
use rdkafka::ClientConfig;
use rdkafka::client::ClientContext;
use rdkafka::config::{FromClientConfigAndContext, RDKafkaLogLevel};
use rdkafka::error::{KafkaError, RDKafkaErrorCode as Code};
use rdkafka::message::Message;
use rdkafka::producer::{BaseProducer, BaseRecord, DeliveryResult, Producer, ProducerContext};
use tokio::sync::{Semaphore, oneshot};

use super::client::{Context, is_forbidden, is_missing, number};
use super::config::{KafkaConfig, millis};
use super::place::Place;

/// Larger than the payloads of a stage's batch with their keys and lengths, smaller than the topics'
/// `max.message.bytes`.
const BATCH_BYTES_MAX: usize = 10 << 20;

/// How long a batch waits for the rest of its append to be handed over: 500 records take about a third
/// of it.
const LINGER_MS: &str = "1";

/// Payloads that wait for their answer, in KiB. Whoever comes later waits before handing over.
const WAITING_KIB_MAX: u32 = 128 << 10;

/// What one record adds to its payload, at most: its key, lengths and a share of the batch's header.
const RECORD_BYTES: usize = 128;

/// The producer answers by itself; this is for the case that it does not.
const GRACE: Duration = Duration::from_secs(5);

/// One turn of the thread that takes reports. They are taken as they come, but the client looks into an
/// empty queue without a pause for the last millisecond of each turn: with the library's own thread, whose
/// turns take a tenth of a second, each idle process spends a hundredth of a processor on it.
const TURN: Duration = Duration::from_secs(1);

pub(super) struct Writer {
    config: KafkaConfig,
    producer: Mutex<Arc<Polled>>,
    waiting: Semaphore,
}

/// A producer, and a thread that takes its reports. The thread ends the client, within a turn after
/// nobody needs it any more: that waits for threads that may wait for a broker.
struct Polled {
    producer: Arc<BaseProducer<Reports>>,
    is_over: Arc<AtomicBool>,
}

impl Polled {
    fn start(config: &KafkaConfig) -> Result<Self, LogError> {
        let settings = settings(config)?;
        let producer = BaseProducer::from_config_and_context(&settings, Reports::default())
            .map_err(|error| config.refused(&error))?;
        let polled = Self {
            producer: Arc::new(producer),
            is_over: Arc::default(),
        };
        let (producer, is_over) = (polled.producer.clone(), polled.is_over.clone());
        std::thread::Builder::new()
            .name("kafka-reports".to_owned())
            .spawn(move || {
                while !is_over.load(Ordering::Acquire) {
                    producer.poll(TURN);
                }
            })
            .map_err(|error| LogError::Unavailable {
                reason: error.to_string(),
            })?;
        Ok(polled)
    }
}

impl Drop for Polled {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Release);
    }
}

/// An append whose records are under way.
struct Batch {
    place: Arc<Place>,
    reports: Mutex<Collected>,
}

struct Collected {
    reports: Vec<Option<Report>>,
    missing: usize,
    answer: Option<oneshot::Sender<Vec<Option<Report>>>>,
}

/// What became of one record: its offset, its own time, its append time if that is known already.
type Report = Result<(u64, Timestamp, Option<Timestamp>), Code>;

impl Batch {
    fn report(&self, index: usize, report: Report) {
        let mut collected = self.reports.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(slot) = collected.reports.get_mut(index)
            && slot.is_none()
        {
            *slot = Some(report);
            collected.missing -= 1;
        }
        if collected.missing == 0
            && let Some(answer) = collected.answer.take()
        {
            // Whoever asked may have given up.
            let _ = answer.send(std::mem::take(&mut collected.reports));
        }
    }
}

/// Takes the delivery reports, on the producer's own polling thread, in the order of each partition.
#[derive(Clone, Default)]
struct Reports(Context);

impl ClientContext for Reports {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, message: &str) {
        self.0.log(level, facility, message);
    }

    fn error(&self, error: KafkaError, reason: &str) {
        self.0.error(error, reason);
    }
}

impl ProducerContext for Reports {
    type DeliveryOpaque = Box<(Arc<Batch>, usize)>;

    fn delivery(&self, result: &DeliveryResult<'_>, sent: Self::DeliveryOpaque) {
        let (batch, index) = *sent;
        let report = match result {
            // Acknowledged as a repeat of something so old that the broker does not know its place.
            Ok(message) if message.offset() < 0 => Err(Code::DuplicateSequenceNumber),
            Ok(message) => {
                let offset = message.offset().unsigned_abs();
                let own = message.timestamp().to_millis().unwrap_or(0);
                let own = Timestamp::from_millis(own);
                Ok((offset, own, batch.place.times.appended(offset, own)))
            }
            Err((error, _)) => Err(error.rdkafka_error_code().unwrap_or(Code::Fail)),
        };
        batch.report(index, report);
    }
}

impl Writer {
    pub(super) fn new(config: &KafkaConfig) -> Result<Self, LogError> {
        Ok(Self {
            config: config.clone(),
            producer: Mutex::new(Arc::new(Polled::start(config)?)),
            waiting: Semaphore::new(WAITING_KIB_MAX as usize),
        })
    }

    /// The producer, or a new one when this one has failed for good: one sequence that the broker does
    /// not expect makes an idempotent producer refuse everything.
    fn producer(&self) -> Result<Arc<Polled>, LogError> {
        let mut producer = self.producer.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((code, reason)) = producer.producer.client().fatal_error() {
            tracing::warn!(%code, reason, "the producer has failed and is made anew");
            *producer = Arc::new(Polled::start(&self.config)?);
        }
        Ok(producer.clone())
    }

    /// Hands the records over, and gives each its offset, its own time and, if known, its append time.
    pub(super) async fn append(
        &self,
        place: &Arc<Place>,
        now: Timestamp,
        records: &[NewRecord],
    ) -> Result<Vec<(u64, Timestamp, Option<Timestamp>)>, LogError> {
        let bytes: usize = records.iter().map(|r| r.payload.len() + RECORD_BYTES).sum();
        let kib = u32::try_from(bytes >> 10).unwrap_or(u32::MAX);
        let permits = self
            .waiting
            .acquire_many(kib.clamp(1, WAITING_KIB_MAX))
            .await
            .map_err(|error| LogError::Unavailable {
                reason: error.to_string(),
            })?;
        let producer = self.producer()?;
        let (answer, answered) = oneshot::channel();
        let batch = Arc::new(Batch {
            place: place.clone(),
            reports: Mutex::new(Collected {
                reports: vec![None; records.len()],
                missing: records.len(),
                answer: Some(answer),
            }),
        });
        let end = hand_over(&producer.producer, &batch, now, records);
        let answered = tokio::time::timeout(self.config.append_timeout + GRACE, answered).await;
        drop(permits);
        let Ok(Ok(reports)) = answered else {
            return Err(place.unknown("the producer gave no answer".to_owned()));
        };
        judge(place, end, &reports)
    }
}

/// Gives the place that was known to be the end of the partition before.
fn hand_over(
    producer: &BaseProducer<Reports>,
    batch: &Arc<Batch>,
    now: Timestamp,
    records: &[NewRecord],
) -> u64 {
    let place = &batch.place;
    let _turn = place.turn.lock().unwrap_or_else(PoisonError::into_inner);
    let end = place.known_end();
    for (index, NewRecord { key, payload }) in records.iter().enumerate() {
        // The time is only read where the broker is told to keep the sender's.
        let record = BaseRecord::with_opaque_to(&place.name, Box::new((batch.clone(), index)))
            .partition(number(place.partition))
            .key(&key.bytes()[..])
            .payload(&payload[..])
            .timestamp(now.millis());
        if let Err((error, _)) = producer.send(record) {
            let code = error.rdkafka_error_code().unwrap_or(Code::Fail);
            // Nothing behind a record that was not taken may stand before it.
            for later in index..records.len() {
                batch.report(later, Err(code));
            }
            break;
        }
    }
    end
}

fn judge(
    place: &Place,
    end: u64,
    reports: &[Option<Report>],
) -> Result<Vec<(u64, Timestamp, Option<Timestamp>)>, LogError> {
    let mut written = Vec::with_capacity(reports.len());
    let mut failed = Vec::new();
    for report in reports.iter().flatten() {
        match report {
            Ok(report) => written.push(*report),
            Err(code) => failed.push(*code),
        }
    }
    if let Some(code) = failed.first() {
        if written.is_empty() && failed.iter().all(|code| is_refusal(*code)) {
            return Err(refused(place, *code));
        }
        return Err(place.unknown(format!(
            "{} of {} records were acknowledged: {code}",
            written.len(),
            reports.len()
        )));
    }
    let first = written.first().map_or(end, |(offset, _, _)| *offset);
    if first < end {
        return Err(LogError::Unusable {
            what: format!(
                "{}-{} went back from {end} to {first}: it was cut or made anew",
                place.name, place.partition
            ),
        });
    }
    let is_adjacent = (first..)
        .zip(&written)
        .all(|(expected, (offset, _, _))| expected == *offset);
    if !is_adjacent {
        return Err(place.unknown("another writer's records stand between these".to_owned()));
    }
    Ok(written)
}

/// The record was certainly not written. Anything else, a time-out above all, may have been.
fn is_refusal(code: Code) -> bool {
    const REFUSALS: [Code; 6] = [
        Code::QueueFull,
        Code::PurgeQueue,
        Code::MessageSizeTooLarge,
        Code::InvalidRecord,
        Code::PolicyViolation,
        Code::InvalidPartitions,
    ];
    REFUSALS.contains(&code) || is_missing(code) || is_forbidden(code)
}

fn refused(place: &Place, code: Code) -> LogError {
    // Whether a topic is missing, or a broker that came back does not know it yet, is seen when its
    // bounds are asked for.
    if code == Code::QueueFull || code == Code::PurgeQueue || is_missing(code) {
        place.doubt();
        return LogError::Unavailable {
            reason: code.to_string(),
        };
    }
    LogError::Unusable {
        what: format!(
            "an append to {}-{} is refused: {code}",
            place.name, place.partition
        ),
    }
}

fn settings(config: &KafkaConfig) -> Result<ClientConfig, LogError> {
    let mut settings = config.base()?;
    let batch_bytes = BATCH_BYTES_MAX.to_string();
    settings
        .set("enable.idempotence", "true")
        .set("acks", "all")
        // Whoever produces by key, as platforms do to `inbox`, agrees with Java.
        .set("partitioner", "murmur2_random")
        .set("message.timeout.ms", millis(config.append_timeout))
        .set("message.max.bytes", &batch_bytes)
        .set("batch.size", &batch_bytes)
        .set("batch.num.messages", "100000")
        .set("linger.ms", LINGER_MS)
        // Bounded by bytes above, before anything is handed over.
        .set("queue.buffering.max.messages", "0")
        .set("queue.buffering.max.kbytes", "2097151")
        // Bodies are sealed: there is nothing to compress.
        .set("compression.type", "none");
    Ok(settings)
}

/// Ends a client where nobody waits for it: its end waits for threads that may wait for a broker.
pub(super) fn drop_apart(client: impl Send + 'static) {
    let spawned = std::thread::Builder::new()
        .name("kafka-end".to_owned())
        .spawn(move || drop(client));
    if let Err(error) = spawned {
        tracing::warn!(%error, "a client is ended in place");
    }
}

/// Answers in the port's form.
pub(super) fn appended(place: &Place, written: Vec<(u64, Timestamp)>) -> Vec<Appended> {
    written
        .into_iter()
        .map(|(offset, appended_at)| Appended {
            position: place.at(offset),
            appended_at,
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use anamnesis_domain::input::Topic;

    /// A broker that finds a hole in the sequence makes an idempotent producer refuse everything.
    #[tokio::test]
    async fn a_producer_that_failed_for_good_is_made_anew() {
        let cluster = rdkafka::mocking::MockCluster::new(1).unwrap();
        cluster.create_topic("t.memories", 3, 1).unwrap();
        let mut config = KafkaConfig::new(cluster.bootstrap_servers());
        config.append_timeout = Duration::from_secs(5);
        let writer = Writer::new(&config).unwrap();
        let place = Arc::new(Place::new(Topic::Memories, 2, "t.memories".to_owned()));
        let now = Timestamp::from_millis(1);
        let record = NewRecord {
            key: anamnesis_domain::ids::OwnerKey::from_bytes([1; 16]),
            payload: "x".into(),
        };
        let append = async || {
            writer
                .append(&place, now, std::slice::from_ref(&record))
                .await
        };
        assert_eq!(append().await.unwrap()[0].0, 0);
        cluster.request_errors(
            rdkafka::types::RDKafkaApiKey::Produce,
            &[rdkafka::types::RDKafkaRespErr::RD_KAFKA_RESP_ERR_OUT_OF_ORDER_SEQUENCE_NUMBER],
        );
        let failed = append().await.unwrap_err();
        assert!(matches!(failed, LogError::Unknown { .. }), "{failed}");
        assert!(
            writer
                .producer
                .lock()
                .unwrap()
                .producer
                .client()
                .fatal_error()
                .is_some()
        );
        assert_eq!(append().await.unwrap()[0].0, 1);
    }

    fn judged(end: u64, reports: &[Result<u64, Code>]) -> Result<usize, LogError> {
        let place = Place::new(Topic::Memories, 2, "t.memories".to_owned());
        let time = Timestamp::from_millis(0);
        let reports: Vec<Option<Report>> = reports
            .iter()
            .map(|report| Some(report.map(|offset| (offset, time, None))))
            .collect();
        judge(&place, end, &reports).map(|written| written.len())
    }

    #[test]
    fn an_append_is_answered_only_when_all_of_it_stands_together() {
        assert!(matches!(judged(5, &[Ok(5), Ok(6)]), Ok(2)));
        assert!(
            matches!(judged(5, &[Ok(8), Ok(9)]), Ok(2)),
            "somebody else's came before"
        );
        assert!(matches!(
            judged(5, &[Ok(5), Ok(7)]),
            Err(LogError::Unknown { .. })
        ));
        assert!(matches!(
            judged(5, &[Ok(4)]),
            Err(LogError::Unusable { .. })
        ));
    }

    #[test]
    fn what_may_have_been_written_is_unknown() {
        let unknown = |answer| matches!(answer, Err(LogError::Unknown { .. }));
        assert!(unknown(judged(5, &[Err(Code::MessageTimedOut)])));
        assert!(unknown(judged(
            5,
            &[Err(Code::NotEnoughReplicasAfterAppend)]
        )));
        assert!(unknown(judged(5, &[Ok(5), Err(Code::QueueFull)])));
        assert!(unknown(judged(
            5,
            &[Err(Code::QueueFull), Err(Code::Fatal)]
        )));
        assert!(unknown(judged(5, &[Err(Code::PurgeInflight)])));
    }

    #[test]
    fn what_was_certainly_not_written_says_whether_to_try_again() {
        let answer = |code| judged(5, &[Err(code), Err(code)]).unwrap_err();
        assert!(answer(Code::QueueFull).is_retryable());
        assert!(!answer(Code::TopicAuthorizationFailed).is_retryable());
        // A broker that has just come back knows no topic: whether one is missing, its list says.
        assert!(answer(Code::UnknownTopic).is_retryable());
    }
}
