//! How do the events of platforms that write to Kafka get in? One [`Reading`] per partition of `inbox`
//! hands them to [`Intake`] in the order in which they stand there, as HTTP does with what is posted.
//!
//! The position is kept with the effect: after the messages of a batch are durable, an [`InboxRead`] in
//! topic `receipts` says how far the partition is read and what was turned down. It stands in partition
//! `inbox partition % partitions of the log`, under nobody's key. Whoever begins looks for the newest
//! one. What was appended without one is appended again, and the first (source, event id) of an owner
//! wins: an event that brings no id is called by its place in the topic.
//!
//! - `config`: what an operator can say
//! - `decode`: which events a record holds

mod config;
mod decode;

use std::sync::Arc;
use std::time::Duration;

use anamnesis_domain::input::Topic;
use anamnesis_domain::receipt::{InboxRead, InboxRejected};
use anamnesis_pipeline::caller::Caller;
use anamnesis_pipeline::codec::{Clear, CodecError, Opened, read_clear};
use anamnesis_pipeline::consumer::{
    APPEND_PACE, BATCH_BYTES_MAX, BATCH_RECORDS_MAX, Progress, backoff,
};
use anamnesis_pipeline::inbox::{Inbox, InboxRecord, SchemaError, SchemaSource};
use anamnesis_pipeline::keyring::KeyringError;
use anamnesis_pipeline::log::LogError;
use anamnesis_pipeline::stands::Stands;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

pub use self::config::InboxConfig;
use self::decode::{Failure, Schemas};
use crate::message::Message;
use crate::metrics;
use crate::normalise::{Context, normalise_each};
use crate::service::{Intake, IntakeError};

/// As the stage is called in stands.
const STAGE: &str = "intake";

/// Source of events whose shape names none.
const SOURCE: &str = "inbox";

/// Rejections that one receipt lists; the others are counted. A receipt stays below 100 KiB.
const REJECTED_MAX: usize = 1_000;

/// Receipts that are read at once while the newest position is looked for.
const LOOK_BACK_RECORDS: u64 = 500;

/// Longest sleep at the tail: bounds how late a record is noticed that no wake-up told of.
const IDLE_WAIT: Duration = Duration::from_secs(1);

/// Code of what retention took before it was read.
const LOST: &str = "lost";

#[derive(Debug, thiserror::Error)]
pub enum InboxError {
    #[error(transparent)]
    Log(#[from] LogError),
    #[error(transparent)]
    Intake(#[from] IntakeError),
    #[error(transparent)]
    Codec(#[from] CodecError),
    #[error(transparent)]
    Keyring(#[from] KeyringError),
    /// A record names a schema that cannot be asked for now. It waits, and what stands behind it.
    #[error(transparent)]
    Registry(#[from] SchemaError),
    /// Retention has passed records that were never read, or the topic was made anew.
    #[error(
        "inbox-{partition} was read up to {next} and now holds {start}..{end}: what lies between is \
         lost or the topic is another one; nothing is skipped until an operator says so \
         (anamnesis topics give-up-lost)"
    )]
    OutOfRange {
        partition: u32,
        next: u64,
        start: u64,
        end: u64,
    },
}

impl InboxError {
    /// Whether beginning again may help.
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Log(error) => error.is_retryable(),
            // An owner who is erased again and again while messages arrive: the next look sees it.
            Self::Intake(IntakeError::Codec(CodecError::Keyring(KeyringError::Destroyed))) => true,
            Self::Intake(error) => error.is_retryable(),
            Self::Codec(error) => error.is_retryable(),
            Self::Keyring(error) => error.is_retryable(),
            Self::Registry(_) => true,
            Self::OutOfRange { .. } => false,
        }
    }
}

/// Reads every partition of `inbox` for one caller.
pub struct InboxReader {
    inbox: Arc<dyn Inbox>,
    intake: Arc<Intake>,
    caller: Caller,
    schemas: Option<Schemas>,
    stands: Stands,
    batch_records_max: usize,
}

impl InboxReader {
    /// The caller is who the platforms are; see [`InboxConfig::caller`].
    pub fn new(inbox: Arc<dyn Inbox>, intake: Arc<Intake>, caller: Caller) -> Self {
        Self {
            inbox,
            intake,
            caller,
            schemas: None,
            stands: Stands::default(),
            batch_records_max: BATCH_RECORDS_MAX,
        }
    }

    /// Reads Avro in Confluent's frame too.
    #[must_use]
    pub fn with_registry(mut self, source: Arc<dyn SchemaSource>) -> Self {
        self.schemas = Some(Schemas::new(source));
        self
    }

    /// Tells these stands where it is after each turn.
    #[must_use]
    pub fn with_stands(mut self, stands: &Stands) -> Self {
        self.stands = stands.clone();
        self
    }

    /// Smaller batches, for tests that vary their boundaries.
    #[must_use]
    pub fn with_batch(mut self, records_max: usize) -> Self {
        self.batch_records_max = records_max.max(1);
        self
    }

    /// Of `inbox`: each wants a task that runs it.
    pub fn partitions(&self) -> u32 {
        self.inbox.partitions()
    }

    /// A reading of one partition, which has not begun.
    pub fn reading(self: &Arc<Self>, partition: u32) -> Reading {
        self.stands.expect(STAGE, partition);
        Reading {
            reader: self.clone(),
            partition,
            place: None,
        }
    }

    /// Reads one partition until `shutdown`. Two who read the same partition do no harm but work.
    ///
    /// # Errors
    /// The first error that beginning again cannot help.
    pub async fn run(
        self: Arc<Self>,
        partition: u32,
        shutdown: CancellationToken,
    ) -> Result<(), InboxError> {
        self.reading(partition).run(shutdown).await
    }

    /// Records that what retention took unread is given up, so that reading goes on at the first record
    /// that is left. Gives the offsets that are lost; an operator asks for it, and nobody else.
    ///
    /// # Errors
    /// [`InboxError::OutOfRange`] when the topic ends before the position: then it is another topic.
    pub async fn give_up_lost(&self, partition: u32) -> Result<std::ops::Range<u64>, InboxError> {
        let start = self.inbox.start(partition).await?;
        let end = self.inbox.end(partition).await?;
        let next = self.last_read(partition).await?.unwrap_or(start);
        if next > end {
            return Err(InboxError::OutOfRange {
                partition,
                next,
                start,
                end,
            });
        }
        if next < start {
            let lost = InboxRejected {
                offset: next,
                code: LOST.to_owned(),
            };
            self.record(InboxRead {
                partition,
                from: next,
                next: start,
                read: 0,
                accepted: 0,
                rejected_count: 1,
                rejected: vec![lost],
                at: self.intake.now(),
            })
            .await?;
        }
        Ok(next..start.max(next))
    }

    /// Where positions of this partition stand.
    fn receipts_of(&self, partition: u32) -> u32 {
        partition % self.intake.log.partitions().max(1)
    }

    async fn record(&self, read: InboxRead) -> Result<(), InboxError> {
        let record = self.intake.codec.inbox_read(&read)?;
        let partition = self.receipts_of(read.partition);
        self.intake
            .log
            .append(Topic::Receipts, partition, vec![record])
            .await?;
        Ok(())
    }

    /// The newest position of this partition, looked for from the end backwards.
    async fn last_read(&self, partition: u32) -> Result<Option<u64>, InboxError> {
        let log = &self.intake.log;
        let at = self.receipts_of(partition);
        let start = log.start(Topic::Receipts, at).await?;
        let mut end = log.end(Topic::Receipts, at).await?;
        while end > start {
            let from = end.saturating_sub(LOOK_BACK_RECORDS).max(start);
            let mut newest = None;
            let mut next = from;
            while next < end {
                let most = (end - next) as usize;
                let records = log
                    .read(Topic::Receipts, at, next, most, BATCH_BYTES_MAX)
                    .await?;
                let Some(last) = records.last() else { break };
                next = last.position.offset + 1;
                for opened in self.intake.codec.open(&records).await? {
                    match opened {
                        Ok(Opened::InboxRead(read)) if read.partition == partition => {
                            newest = Some(read.next);
                        }
                        Ok(_) => (),
                        // An older position reads again, which does no harm.
                        Err(error) => {
                            warn!(%error, "a receipt cannot be read and is passed over");
                        }
                    }
                }
            }
            if newest.is_some() {
                return Ok(newest);
            }
            end = from;
        }
        Ok(None)
    }

    /// Whether this log's identity record stands here: it begins the topic, and may be repeated when
    /// two have made the topic at once.
    async fn is_identity(&self, record: &InboxRecord) -> Result<bool, InboxError> {
        let Some(payload) = &record.payload else {
            return Ok(false);
        };
        if !payload.starts_with(&[0xC3, 0x01]) {
            return Ok(false);
        }
        let Ok(Clear::Identity(said)) = read_clear(payload) else {
            return Ok(false);
        };
        let ours = self.intake.log.identity(Topic::Receipts, 0).await?;
        Ok(said.log_id == ours.log_id)
    }
}

/// Where a reading stands.
#[derive(Clone, Copy)]
struct Place {
    /// The next record to read.
    next: u64,
    /// As the newest receipt says. Behind `next` while only places without a record lie between.
    recorded: u64,
}

/// One partition that is being read. What it knows is in the log: it is dropped at any error.
pub struct Reading {
    reader: Arc<InboxReader>,
    partition: u32,
    place: Option<Place>,
}

impl Reading {
    /// The next record to read; `None` before it has begun.
    pub fn position(&self) -> Option<u64> {
        self.place.map(|place| place.next)
    }

    /// One step: begin, or answer one batch.
    ///
    /// # Errors
    /// What the log, the keyring, the authority or the registry say; the place is forgotten.
    pub async fn turn(&mut self) -> Result<Progress, InboxError> {
        let result = self.try_turn().await;
        let now = self.reader.intake.now();
        let stands = &self.reader.stands;
        if result.is_err() {
            self.place = None;
            stands.failed(STAGE, self.partition, now);
        } else {
            let positions = self.position().map(|next| (Topic::Inbox, next));
            stands.advanced(STAGE, self.partition, positions.into_iter().collect());
        }
        result
    }

    async fn try_turn(&mut self) -> Result<Progress, InboxError> {
        let Some(place) = self.place else {
            self.place = Some(self.begin().await?);
            return Ok(Progress::Began);
        };
        let reader = &self.reader;
        let batch = reader
            .inbox
            .read(
                self.partition,
                place.next,
                reader.batch_records_max,
                BATCH_BYTES_MAX,
            )
            .await?;
        if batch.next == place.next {
            if place.next > place.recorded {
                self.answer(place, Batch::new(place.next)).await?;
            }
            return Ok(Progress::Idle);
        }
        let read = self.read(batch.records, batch.next).await?;
        let count = read.read as usize;
        if read.is_nothing() {
            // Many transactions must not cost a receipt each.
            self.place = Some(Place {
                next: read.next,
                ..place
            });
        } else {
            self.answer(place, read).await?;
        }
        Ok(Progress::Advanced(count))
    }

    /// Makes the messages of a batch durable, and then the position behind it.
    async fn answer(&mut self, place: Place, mut batch: Batch) -> Result<(), InboxError> {
        let messages = std::mem::take(&mut batch.messages);
        self.accept(messages, &mut batch).await?;
        let Batch {
            next,
            read,
            accepted,
            mut rejected,
            codes,
            ..
        } = batch;
        let rejected_count = rejected.len() as u64;
        rejected.sort_unstable();
        rejected.dedup();
        rejected.truncate(REJECTED_MAX);
        let noted = InboxRead {
            partition: self.partition,
            from: place.recorded,
            next,
            read,
            accepted,
            rejected_count,
            rejected,
            at: self.reader.intake.now(),
        };
        self.reader.record(noted).await?;
        self.place = Some(Place {
            next,
            recorded: next,
        });
        for code in codes {
            metrics::rejected(code);
        }
        metrics::inbox_read(read);
        Ok(())
    }

    /// Which messages the records hold, up to the first that has to wait for the registry.
    async fn read(&self, records: Vec<InboxRecord>, next: u64) -> Result<Batch, InboxError> {
        let reader = &self.reader;
        let mut batch = Batch::new(next);
        let mut context = Context::new(&reader.caller.default_tenant, reader.intake.now());
        context.source_default = SOURCE.to_owned();
        for (number, record) in records.iter().enumerate() {
            if reader.is_identity(record).await? {
                continue;
            }
            let offset = record.offset;
            let events = match decode::events(record, reader.schemas.as_ref()).await {
                Ok(events) => events,
                Err(Failure::Rejected(rejected)) => {
                    batch.read += 1;
                    batch.reject(offset, rejected.code);
                    continue;
                }
                Err(Failure::Waits(error)) if number == 0 => return Err(error.into()),
                // What stands before it need not wait.
                Err(Failure::Waits(_)) => {
                    batch.next = offset;
                    break;
                }
            };
            batch.read += 1;
            batch.offsets.push(offset);
            let index = batch.offsets.len() - 1;
            let is_list = events.len() > 1;
            for (event, value) in events.iter().enumerate() {
                let place = format!("{SOURCE}/{}/{offset}", self.partition);
                context.event_id_default = Some(if is_list {
                    format!("{place}/{event}")
                } else {
                    place
                });
                for read in normalise_each(value, &context) {
                    match read {
                        Ok(messages) => batch
                            .messages
                            .extend(messages.into_iter().map(|message| (index, message))),
                        Err(rejected) => batch.reject(offset, rejected.code),
                    }
                }
            }
        }
        Ok(batch)
    }

    async fn accept(
        &self,
        messages: Vec<(usize, Message)>,
        batch: &mut Batch,
    ) -> Result<(), InboxError> {
        match self.admit(messages.clone(), batch).await {
            // One of them is beyond what a record can hold. Which one, each alone tells.
            Err(IntakeError::Codec(CodecError::Unwritable(_))) => {
                for (index, message) in messages {
                    match self.admit(vec![(index, message)], batch).await {
                        Err(IntakeError::Codec(CodecError::Unwritable(error))) => {
                            let offset = batch.offsets[index];
                            batch.reject(offset, error.code());
                        }
                        admitted => admitted?,
                    }
                }
                Ok(())
            }
            admitted => Ok(admitted?),
        }
    }

    async fn admit(
        &self,
        messages: Vec<(usize, Message)>,
        batch: &mut Batch,
    ) -> Result<(), IntakeError> {
        if messages.is_empty() {
            return Ok(());
        }
        let reader = &self.reader;
        let answer = reader
            .intake
            .admit(&reader.caller, messages, Default::default())
            .await?;
        batch.accepted += answer.accepted.len() as u64;
        for rejected in answer.rejected {
            let (offset, code) = (batch.offsets[rejected.index], rejected.code);
            // Counted where it was turned down.
            batch.rejected.push(note(offset, code));
        }
        Ok(())
    }

    async fn begin(&self) -> Result<Place, InboxError> {
        let (reader, partition) = (&self.reader, self.partition);
        let start = reader.inbox.start(partition).await?;
        let next = match reader.last_read(partition).await? {
            Some(next) => next,
            None => {
                let next = self.first(start).await?;
                if start == 0 {
                    info!(
                        partition,
                        next, "inbox was never read: it is read from the first record on"
                    );
                } else {
                    warn!(
                        partition,
                        next,
                        "inbox was never read, and retention has dropped its first records: it is \
                         read from the first one that is left"
                    );
                }
                next
            }
        };
        // Asked last: what is appended meanwhile is no contradiction.
        let end = reader.inbox.end(partition).await?;
        if next < start || next > end {
            return Err(InboxError::OutOfRange {
                partition,
                next,
                start,
                end,
            });
        }
        Ok(Place {
            next,
            recorded: next,
        })
    }

    /// The first record that a platform wrote.
    async fn first(&self, start: u64) -> Result<u64, InboxError> {
        if start > 0 {
            return Ok(start);
        }
        let batch = self.reader.inbox.read(self.partition, 0, 1, 1).await?;
        let Some(first) = batch.records.first() else {
            return Ok(0);
        };
        let is_identity = first.offset == 0 && self.reader.is_identity(first).await?;
        Ok(u64::from(is_identity))
    }

    /// Turns until `shutdown`, waiting at the tail and backing off after an error that may pass.
    ///
    /// # Errors
    /// The first error that beginning again cannot help.
    pub async fn run(mut self, shutdown: CancellationToken) -> Result<(), InboxError> {
        let mut failures = 0_u32;
        while !shutdown.is_cancelled() {
            let began = tokio::time::Instant::now();
            let pause = match self.turn().await {
                // To begin is no success yet: what failed before may fail again.
                Ok(Progress::Began) => continue,
                Ok(Progress::Advanced(records)) => {
                    failures = 0;
                    let whole = self.reader.batch_records_max;
                    let rest = APPEND_PACE.rest_after(records, whole, began.elapsed());
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
                    let partition = self.partition;
                    warn!(partition, %error, failures, "inbox is read again from its position");
                    Some(backoff(failures))
                }
                Err(error) => return Err(error),
            };
            tokio::select! {
                biased;
                () = shutdown.cancelled() => break,
                result = self.rest(pause) => match result {
                    Err(error) if !error.is_retryable() => return Err(error.into()),
                    Ok(()) | Err(_) => (),
                },
            }
        }
        // Nobody reads here any more, so nobody is late.
        self.reader.stands.forget(STAGE, self.partition);
        Ok(())
    }

    /// Waits for new records, or for a pause between batches or after a failure.
    async fn rest(&self, pause: Option<Duration>) -> Result<(), LogError> {
        match (pause, self.position()) {
            (Some(pause), _) => tokio::time::sleep(pause).await,
            (None, Some(next)) => {
                let inbox = &self.reader.inbox;
                inbox.wait_beyond(self.partition, next, IDLE_WAIT).await?;
            }
            (None, None) => (),
        }
        Ok(())
    }
}

/// What was read and is not answered yet.
struct Batch {
    /// The first offset that is not part of it.
    next: u64,
    read: u64,
    accepted: u64,
    /// Of the records that messages are numbered by.
    offsets: Vec<u64>,
    messages: Vec<(usize, Message)>,
    rejected: Vec<InboxRejected>,
    /// Of rejections that nobody has counted.
    codes: Vec<&'static str>,
}

impl Batch {
    fn new(next: u64) -> Self {
        Self {
            next,
            read: 0,
            accepted: 0,
            offsets: Vec::new(),
            messages: Vec::new(),
            rejected: Vec::new(),
            codes: Vec::new(),
        }
    }

    fn is_nothing(&self) -> bool {
        self.read == 0
    }

    fn reject(&mut self, offset: u64, code: &'static str) {
        self.rejected.push(note(offset, code));
        self.codes.push(code);
    }
}

fn note(offset: u64, code: &'static str) -> InboxRejected {
    InboxRejected {
        offset,
        code: code.to_owned(),
    }
}

#[cfg(test)]
mod tests;
