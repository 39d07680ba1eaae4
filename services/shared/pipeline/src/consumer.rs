//! The one loop that every stage runs, in production, in tests and in the simulation.
//!
//! A [`Stage`] says how to begin in one partition; what it begins is a [`Running`], a disposable state
//! with positions. [`Consumer::turn`] reads one batch and lets the running stage answer it. **At any
//! error the running state is dropped**, so that start, retry and crash are one path.

use std::sync::Arc;
use std::time::Duration;

use anamnesis_domain::ids::OwnerKey;
use anamnesis_domain::input::Topic;
use anamnesis_domain::time::Timestamp;
use async_trait::async_trait;
use tokio_util::sync::CancellationToken;

use crate::clock::Clock;
use crate::codec::CodecError;
use crate::embedder::EmbedError;
use crate::keyring::KeyringError;
use crate::log::{Log, LogError, Record};
use crate::pace::Pace;
use crate::stands::Stands;
use crate::stores::StoreError;

/// Records in one batch: large enough that one durable write serves many, small enough that a batch is
/// decided in a few tens of milliseconds.
pub const BATCH_RECORDS_MAX: usize = 500;
/// Bytes in one batch, so that a run of long turns does not fill memory.
pub const BATCH_BYTES_MAX: usize = 8 << 20;

/// Of a stage that appends: to the log and to each of its readers, an append of one record costs about as much as
/// one of twenty.
pub const APPEND_PACE: Pace =
    Pace::gathering(Duration::from_millis(50), Duration::from_millis(200), 20);

#[derive(Debug, thiserror::Error)]
pub enum StageError {
    #[error(transparent)]
    Log(#[from] LogError),
    #[error(transparent)]
    Keyring(#[from] KeyringError),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Codec(#[from] CodecError),
    #[error(transparent)]
    Embed(#[from] EmbedError),
    /// Somebody else owns this partition now: begin again, and let the log say who writes.
    #[error("another writer has started in partition {partition}")]
    Fenced { partition: u32 },
    /// What was read does not fit what had been written: stop.
    #[error("{what}")]
    Broken { what: String },
}

impl StageError {
    /// Whether beginning again may help.
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Log(error) => error.is_retryable(),
            Self::Keyring(error) => {
                // A key that was destroyed between reading and sealing is read as erased next time.
                error.is_retryable() || matches!(error, KeyringError::Destroyed)
            }
            Self::Store(error) => error.is_retryable() || matches!(error, StoreError::Moved { .. }),
            Self::Codec(CodecError::Keyring(error)) => {
                error.is_retryable() || matches!(error, KeyringError::Destroyed)
            }
            Self::Codec(error) => error.is_retryable(),
            Self::Embed(error) => matches!(error, EmbedError::Unavailable { .. }),
            Self::Fenced { .. } => true,
            Self::Broken { .. } => false,
        }
    }
}

/// One service's work in one partition.
#[async_trait]
pub trait Stage: Send + Sync {
    /// Stable name, as in `parked` records and metrics.
    fn name(&self) -> &'static str;

    /// Whether it gathers before its next batch.
    fn pace(&self) -> Pace {
        Pace::NONE
    }

    /// Most records of one batch. Fewer where each takes long: positions move, and a stop is heard, only
    /// between batches.
    fn batch_records_max(&self) -> usize {
        BATCH_RECORDS_MAX
    }

    /// Whether a turn may be dropped at any moment to stop at once. True only for a stage that writes
    /// nothing but the log: then dropping a turn is a crash that nobody notices.
    fn is_interruptible(&self) -> bool {
        false
    }

    /// Finds out from the stage's own output where it stands.
    async fn begin(&self, partition: u32, now: Timestamp) -> Result<Box<dyn Running>, StageError>;
}

/// A stage that has begun. Dropped at any error; what it knows is in the log or a store.
#[async_trait]
pub trait Running: Send + Sync {
    /// What to read next: the first offset of each input that is not answered.
    fn positions(&self) -> Vec<(Topic, u64)>;

    /// Answers records that stand exactly at the position of their topic. Returns when the answer is
    /// durable and the positions have moved past the batch.
    async fn step(&mut self, records: Vec<Record>, now: Timestamp) -> Result<(), StageError>;

    /// Called when there was nothing to read, and before a graceful stop: write a snapshot, commit
    /// what was held back. Losing it costs time, never data.
    async fn idle(&mut self, now: Timestamp) -> Result<(), StageError>;

    /// Owners that wait behind a record that cannot be applied.
    fn parked(&self) -> Vec<OwnerKey>;
}

/// What one turn did.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Progress {
    /// The stage had to begin; the next turn reads.
    Began,
    /// So many records were answered.
    Advanced(usize),
    /// Every input is at its tail.
    Idle,
}

/// Runs one stage in one partition.
pub struct Consumer {
    log: Log,
    stage: Arc<dyn Stage>,
    partition: u32,
    clock: Arc<dyn Clock>,
    running: Option<Box<dyn Running>>,
    batch_records_max: usize,
    stands: Stands,
    lease: Option<IsCurrent>,
}

/// Whether the partition is still this process's.
pub type IsCurrent = Arc<dyn Fn() -> bool + Send + Sync>;

impl Consumer {
    pub fn new(log: Log, stage: Arc<dyn Stage>, partition: u32, clock: Arc<dyn Clock>) -> Self {
        Self {
            log,
            batch_records_max: stage.batch_records_max(),
            stage,
            partition,
            clock,
            running: None,
            stands: Stands::default(),
            lease: None,
        }
    }

    /// Asks before each turn whether the partition is still this process's, and ends when it is not.
    /// The log fences a writer that was replaced; this spares it the attempt.
    #[must_use]
    pub fn with_lease(mut self, is_current: IsCurrent) -> Self {
        self.lease = Some(is_current);
        self
    }

    fn is_current(&self) -> bool {
        self.lease.as_ref().is_none_or(|is_current| is_current())
    }

    /// Tells these stands where it is after each turn.
    #[must_use]
    pub fn with_stands(mut self, stands: &Stands) -> Self {
        stands.expect(self.stage.name(), self.partition);
        self.stands = stands.clone();
        self
    }

    /// Smaller batches, for tests that vary their boundaries.
    #[must_use]
    pub fn with_batch(mut self, records_max: usize) -> Self {
        self.batch_records_max = records_max.max(1);
        self
    }

    /// Forgets the running state, as a crash would.
    pub fn drop_state(&mut self) {
        self.running = None;
    }

    pub fn parked(&self) -> Vec<OwnerKey> {
        self.running
            .as_ref()
            .map(|running| running.parked())
            .unwrap_or_default()
    }

    /// The positions that the running stage stands at; empty before it began.
    pub fn positions(&self) -> Vec<(Topic, u64)> {
        self.running
            .as_ref()
            .map(|running| running.positions())
            .unwrap_or_default()
    }

    /// One step: begin, or read one batch of each input and answer it.
    ///
    /// # Errors
    /// Whatever the stage or the log says; the running state is dropped.
    pub async fn turn(&mut self) -> Result<Progress, StageError> {
        let result = self.try_turn().await;
        let name = self.stage.name();
        if result.is_err() {
            self.running = None;
            self.stands.failed(name, self.partition, self.clock.now());
        } else {
            self.stands.advanced(name, self.partition, self.positions());
        }
        result
    }

    async fn try_turn(&mut self) -> Result<Progress, StageError> {
        let Some(running) = &mut self.running else {
            self.running = Some(self.stage.begin(self.partition, self.clock.now()).await?);
            return Ok(Progress::Began);
        };
        let mut advanced = 0;
        for (topic, from) in running.positions() {
            let records = self
                .log
                .read(
                    topic,
                    self.partition,
                    from,
                    self.batch_records_max,
                    BATCH_BYTES_MAX,
                )
                .await?;
            if records.is_empty() {
                continue;
            }
            advanced += records.len();
            running.step(records, self.clock.now()).await?;
        }
        if advanced == 0 {
            running.idle(self.clock.now()).await?;
            return Ok(Progress::Idle);
        }
        Ok(Progress::Advanced(advanced))
    }

    /// Turns until `shutdown`, waiting for the log at its tail and backing off after an error that may
    /// pass.
    ///
    /// # Errors
    /// The first error that beginning again cannot help.
    pub async fn run(mut self, shutdown: CancellationToken) -> Result<(), StageError> {
        let ended = self.turn_until(shutdown).await;
        if ended.is_ok() {
            self.stands.forget(self.stage.name(), self.partition);
        }
        ended
    }

    async fn turn_until(&mut self, shutdown: CancellationToken) -> Result<(), StageError> {
        let mut failures = 0u32;
        while !shutdown.is_cancelled() && self.is_current() {
            let began = tokio::time::Instant::now();
            let is_interruptible = self.stage.is_interruptible();
            let turned = tokio::select! {
                biased;
                () = shutdown.cancelled(), if is_interruptible => None,
                turned = self.turn() => Some(turned),
            };
            let Some(turned) = turned else {
                self.running = None;
                break;
            };
            let pause = match turned {
                // Beginning is no progress: a stage that begins and fails again must not do so at once.
                Ok(Progress::Began) => continue,
                Ok(Progress::Advanced(records)) => {
                    failures = 0;
                    let pace = self.stage.pace();
                    let rest = pace.rest_after(records, self.batch_records_max, began.elapsed());
                    if rest.is_zero() {
                        continue;
                    }
                    Some(rest)
                }
                Ok(Progress::Idle) => {
                    failures = 0;
                    None
                }
                Err(error) if error.is_retryable() => {
                    failures += 1;
                    tracing::warn!(
                        stage = self.stage.name(),
                        partition = self.partition,
                        %error,
                        failures,
                        "stage begins again"
                    );
                    Some(backoff(failures))
                }
                Err(error) => return Err(error),
            };
            tokio::select! {
                biased;
                () = shutdown.cancelled() => break,
                result = self.rest(pause) => match result {
                    Err(error) if !error.is_retryable() => return Err(error),
                    Ok(()) | Err(_) => (),
                },
            }
        }
        // Whoever was replaced writes nothing more.
        if self.is_current()
            && let Some(running) = &mut self.running
        {
            running.idle(self.clock.now()).await?;
        }
        Ok(())
    }

    /// Waits for new records, or for a pause between batches or after a failure.
    async fn rest(&self, pause: Option<Duration>) -> Result<(), StageError> {
        if let Some(pause) = pause {
            tokio::time::sleep(pause).await;
            return Ok(());
        }
        let waits = self.positions().into_iter().map(|(topic, offset)| {
            // "Beyond" means that a record at `offset` exists.
            Box::pin(
                self.log
                    .wait_beyond(topic, self.partition, offset, IDLE_WAIT),
            )
        });
        let waits: Vec<_> = waits.collect();
        if waits.is_empty() {
            return Ok(());
        }
        let (first, _, _) = futures::future::select_all(waits).await;
        first?;
        Ok(())
    }
}

/// Longest sleep at the tail: bounds how late a stage notices what no wake-up told it.
const IDLE_WAIT: Duration = Duration::from_secs(1);

/// The pause after so many failures in a row: 50 ms doubling to 5 s.
pub fn backoff(failures: u32) -> Duration {
    Duration::from_millis(50u64 << failures.min(7).saturating_sub(1)).min(Duration::from_secs(5))
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use anamnesis_domain::ids::LogId;
    use bytes::Bytes;
    use tokio::time::{Instant, advance, sleep};

    use super::*;
    use crate::clock::ManualClock;
    use crate::doubles::log::MemoryLog;
    use crate::log::NewRecord;

    const PACE: Duration = Duration::from_millis(250);

    /// Notes how many records each batch had, and when it came.
    struct Noting {
        batches: Arc<Mutex<Vec<(usize, Duration)>>>,
        since: Instant,
    }

    struct Noted {
        next: u64,
        batches: Arc<Mutex<Vec<(usize, Duration)>>>,
        since: Instant,
    }

    #[async_trait]
    impl Stage for Noting {
        fn name(&self) -> &'static str {
            "noting"
        }

        fn pace(&self) -> Pace {
            Pace::every(PACE)
        }

        async fn begin(&self, _: u32, _: Timestamp) -> Result<Box<dyn Running>, StageError> {
            Ok(Box::new(Noted {
                next: 1,
                batches: self.batches.clone(),
                since: self.since,
            }))
        }
    }

    #[async_trait]
    impl Running for Noted {
        fn positions(&self) -> Vec<(Topic, u64)> {
            vec![(Topic::Memories, self.next)]
        }

        async fn step(&mut self, records: Vec<Record>, _: Timestamp) -> Result<(), StageError> {
            self.next += records.len() as u64;
            let batch = (records.len(), self.since.elapsed());
            self.batches.lock().unwrap().push(batch);
            Ok(())
        }

        async fn idle(&mut self, _: Timestamp) -> Result<(), StageError> {
            Ok(())
        }

        fn parked(&self) -> Vec<OwnerKey> {
            Vec::new()
        }
    }

    #[tokio::test(start_paused = true)]
    async fn small_batches_are_spaced_and_whole_ones_are_not() {
        let clock = Arc::new(ManualClock::new(Timestamp::from_millis(0)));
        let id = LogId::from_bytes([1; 16]);
        let log: Log = Arc::new(MemoryLog::new(clock.clone(), 1, id, |_, _| Bytes::new()));
        let append = |count: usize| {
            let record = NewRecord {
                key: OwnerKey::from_bytes([1; 16]),
                payload: Bytes::from_static(b"x"),
            };
            log.append(Topic::Memories, 0, vec![record; count])
        };
        let batches = Arc::new(Mutex::new(Vec::new()));
        let stage = Noting {
            batches: batches.clone(),
            since: Instant::now(),
        };
        let consumer = Consumer::new(log.clone(), Arc::new(stage), 0, clock).with_batch(4);
        let shutdown = CancellationToken::new();
        let running = tokio::spawn(consumer.run(shutdown.clone()));
        let ms = Duration::from_millis;

        // After a rest at once; what comes within the pace waits for its end, together.
        advance(ms(1_000)).await;
        append(1).await.unwrap();
        sleep(ms(50)).await;
        append(1).await.unwrap();
        sleep(ms(50)).await;
        append(2).await.unwrap();
        sleep(ms(1_000)).await;
        // Whole batches follow each other, and the rest of them.
        append(9).await.unwrap();
        sleep(ms(1_000)).await;
        shutdown.cancel();
        running.await.unwrap().unwrap();
        assert_eq!(
            *batches.lock().unwrap(),
            [
                (1, ms(1_000)),
                (3, ms(1_250)),
                (4, ms(2_100)),
                (4, ms(2_100)),
                (1, ms(2_100)),
            ]
        );
    }
}
