//! How is the log kept in Apache Kafka? Topics that `infra/kafka/topics.toml` describes, one idempotent
//! producer, and readers that stand exactly where they were told to.
//!
//! - [`config`] is what an operator can set
//! - [`topics`] says what each topic must be, [`survey`] what it is, and [`create`] makes it so
//! - [`place`] is one partition, and what is known of it
//! - [`client`] asks the broker questions
//! - [`writer`] appends
//! - [`reader`] and [`cursor`] read
//! - [`append_time`] gives the time of a record, which never decreases; [`retention`] drops old records
//! - [`record`] says what becomes of records that other producers wrote, and [`inbox`] what platforms did
//! - [`assignment`] says which partitions this process handles
//!
//! No transactions (rule 5): delivery is at least once, and nobody's position is kept here (rule 7).

mod append_time;
mod assignment;
mod client;
mod config;
mod create;
mod cursor;
mod inbox;
mod place;
mod reader;
mod record;
mod retention;
mod survey;
mod topics;
mod writer;

use std::sync::Arc;
use std::time::Duration;

use anamnesis_domain::input::Topic;
use anamnesis_domain::time::Timestamp;
use anamnesis_pipeline::clock::Clock;
use anamnesis_pipeline::log::{
    Appended, EventLog, Identity, LogError, NewRecord, PAYLOAD_BYTES_MAX, Record,
};
use async_trait::async_trait;
use rdkafka::error::RDKafkaErrorCode as Code;

use client::{Asker, Bounds, is_forbidden, is_missing};
use place::{Place, is_kept_for_ever};
use reader::{Failure, Readers, Timed};
use retention::Retention;
use survey::{Survey, expected_first, identity_in};
use topics::refusal;
use writer::Writer;

pub use assignment::{DriveError, GroupConfig, Lease, Membership, Owned};
pub use config::KafkaConfig;
pub use create::{check_topics, create_topics};
pub use record::{Foreign, Lack};
pub use topics::{Difference, TopicPlan, Topics, What};

/// A partition in use is looked at this often, whether it still belongs to this log. What a recreated
/// topic holds can be read for so long, if it has grown beyond the reader's position by then.
const VERIFY_EVERY: Duration = Duration::from_secs(10);

/// A waiter sees this often whether somebody still stands at the tail for it.
const LOOK_AGAIN: Duration = Duration::from_secs(2);

/// The log in the topics of a Kafka cluster.
pub struct KafkaLog {
    identity: Identity,
    clock: Arc<dyn Clock>,
    asker: Arc<Asker>,
    writer: Writer,
    readers: Arc<Readers>,
    retention: Retention,
    /// In the order of [`Topic::ALL`], then by number.
    places: Vec<Arc<Place>>,
    /// Where the places of each topic begin, and how many there are.
    ranges: Vec<(Topic, usize, u32)>,
}

impl KafkaLog {
    /// Opens the log in these topics, which [`create_topics`] has made. The clock gives the time of
    /// records only where a topic is told to keep the sender's.
    ///
    /// # Errors
    /// [`LogError::Unusable`] names everything that differs from what must be;
    /// [`LogError::Unavailable`] says why no broker answered.
    pub async fn connect(
        config: &KafkaConfig,
        topics: &Topics,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, LogError> {
        let starting = Asker::new(config, config.connect_timeout)?;
        let admin = create::admin(config)?;
        let survey = Survey::take(config, topics, &starting, &admin).await?;
        let identity = match survey.identity {
            Some(identity) if survey.differences.is_empty() => identity,
            Some(_) | None => return Err(refusal(&survey.differences)),
        };
        writer::drop_apart(starting);
        let mut ranges = Vec::with_capacity(Topic::ALL.len());
        let mut places = Vec::new();
        for topic in Topic::ALL {
            let partitions = topics.partitions_of(topic, identity.partitions);
            ranges.push((topic, places.len(), partitions));
            for partition in 0..partitions {
                let name = config.topic_name(topic);
                places.push(Arc::new(Place::new(topic, partition, name)));
            }
        }
        // Found in the same order, and as many, since nothing differs.
        let mut retained = Vec::new();
        for (place, held) in places.iter().zip(&survey.held) {
            place.reaches(held.bounds.end);
            place.starts(held.bounds.start);
            if held.bounds.start > 0 {
                retained.push(place.clone());
            }
        }
        let retention = Retention::new(admin, config);
        retention.load(retained).await?;
        let asker = Arc::new(Asker::new(config, config.read_timeout)?);
        let readers = Readers::new(config, asker.clone(), places.clone())?;
        Ok(Self {
            identity,
            clock,
            writer: Writer::new(config)?,
            readers,
            retention,
            asker,
            places,
            ranges,
        })
    }

    fn index(&self, topic: Topic, partition: u32) -> Result<usize, LogError> {
        let found = self.ranges.iter().find(|(of, _, _)| *of == topic);
        let (first, partitions) = found.map_or((0, 0), |(_, first, count)| (*first, *count));
        if partition >= partitions {
            return Err(LogError::NoPartition {
                topic,
                partition,
                partitions,
            });
        }
        Ok(first + partition as usize)
    }

    /// Asks the broker. An end below what was there is not believed.
    async fn bounds(&self, index: usize) -> Result<Bounds, LogError> {
        let place = &self.places[index];
        // Before it is asked: what is appended meanwhile is no contradiction.
        let known = place.known_end();
        let bounds = self.asker.bounds(&place.name, place.partition).await?;
        if bounds.end < known {
            place.doubt();
            self.verify(index, bounds).await?;
            return Err(LogError::Unusable {
                what: format!(
                    "{}-{} went back from {known} to {}: it was cut or made anew",
                    place.name, place.partition, bounds.end
                ),
            });
        }
        place.reaches(bounds.end);
        place.starts(bounds.start);
        Ok(bounds)
    }

    /// Whether the partition still begins with this log's identity record.
    async fn verify(&self, index: usize, bounds: Bounds) -> Result<(), LogError> {
        let place = &self.places[index];
        if bounds.start > 0 && !is_kept_for_ever(place.topic) {
            return Ok(());
        }
        let named = |what: What| {
            let (name, topic) = (place.name.clone(), place.topic);
            refusal(&[Difference { name, topic, what }])
        };
        let partition = place.partition;
        // Until it is seen to be the same again.
        place.doubt();
        if bounds.start > 0 || bounds.end == 0 {
            return Err(named(What::IdentityMissing { partition }));
        }
        let first = match self.readers.first(index).await {
            Ok(first) => first,
            Err(failure) => return Err(self.explain_plainly(index, 0, failure)),
        };
        if first.payload.as_ref() == Some(&expected_first(&self.identity, place.topic)) {
            place.trust();
            return Ok(());
        }
        Err(named(match identity_in(&first) {
            None => What::NoIdentity { partition },
            Some(said) if said.log_id == self.identity.log_id => What::OtherIdentity { partition },
            Some(said) => What::OtherLog {
                partition,
                found: said.log_id,
                expected: self.identity.log_id,
            },
        }))
    }

    async fn verify_at_times(&self, index: usize) -> Result<(), LogError> {
        if self.places[index].is_trusted(VERIFY_EVERY) {
            return Ok(());
        }
        self.verified_bounds(index).await?;
        Ok(())
    }

    /// The bounds of a partition that still belongs to this log.
    async fn verified_bounds(&self, index: usize) -> Result<Bounds, LogError> {
        let bounds = self.bounds(index).await?;
        if !self.places[index].is_trusted(VERIFY_EVERY) {
            self.verify(index, bounds).await?;
        }
        Ok(bounds)
    }

    /// What a failed read means: first of all, whether this is still the same log.
    async fn explain(&self, index: usize, offset: u64, failure: Failure) -> LogError {
        let is_about_place = match &failure {
            Failure::Kafka(error) => error.rdkafka_error_code().is_some_and(|code| {
                [Code::OffsetOutOfRange, Code::AutoOffsetReset].contains(&code) || is_missing(code)
            }),
            Failure::Gap | Failure::Late(_) => true,
            Failure::Log(_) => false,
        };
        if is_about_place {
            let bounds = match self.bounds(index).await {
                Ok(bounds) => bounds,
                Err(error) => return error,
            };
            if let Err(error) = self.verify(index, bounds).await {
                return error;
            }
            if offset < bounds.start || offset > bounds.end {
                return self.places[index].out_of_range(offset, bounds);
            }
            // The broker answers and has it: then the client is at fault.
            if let Failure::Late(Some(lane)) = failure {
                self.readers.stalled(lane);
            }
        }
        self.explain_plainly(index, offset, failure)
    }

    fn explain_plainly(&self, index: usize, offset: u64, failure: Failure) -> LogError {
        let place = &self.places[index];
        let at = format!("{}-{}", place.name, place.partition);
        match failure {
            Failure::Log(error) => error,
            Failure::Late(_) => LogError::Unavailable {
                reason: format!("{at} did not send the record at {offset} in time"),
            },
            Failure::Gap => LogError::Unusable {
                what: format!(
                    "{at} holds no record at {offset}: it was compacted, or a transaction was written to it"
                ),
            },
            Failure::Kafka(error) => match error.rdkafka_error_code() {
                Some(Code::BadMessage) => LogError::Corrupt {
                    position: place.at(offset),
                },
                // Whether it is missing is seen by asking for its bounds.
                Some(code) if is_missing(code) => LogError::Unavailable {
                    reason: format!("{at} is not known to the broker"),
                },
                Some(code) if is_forbidden(code) => LogError::Unusable {
                    what: format!("{at} cannot be read: {code}"),
                },
                Some(_) | None => LogError::Unavailable {
                    reason: format!("{at}: {error}"),
                },
            },
        }
    }

    /// As [`EventLog::read`], with what other producers wrote as it stands: keys of any length, headers.
    /// For `inbox`, whose producers are not ours.
    ///
    /// # Errors
    /// As [`EventLog::read`].
    pub async fn read_foreign(
        &self,
        topic: Topic,
        partition: u32,
        from: u64,
        records_max: usize,
        bytes_max: usize,
    ) -> Result<Vec<(Foreign, Timestamp)>, LogError> {
        let index = self.index(topic, partition)?;
        let place = &self.places[index];
        if !place.is_known(from) {
            let bounds = self.bounds(index).await?;
            if from < bounds.start || from > bounds.end {
                self.verify(index, bounds).await?;
                return Err(place.out_of_range(from, bounds));
            }
            if from == bounds.end {
                return Ok(Vec::new());
            }
        }
        self.verify_at_times(index).await?;
        match self.readers.read(index, from, records_max, bytes_max).await {
            Ok(records) => Ok(records),
            Err(Failure::Gap) if topic == Topic::Inbox => self.over_a_gap(index, from).await,
            Err(failure) => Err(self.explain(index, from, failure).await),
        }
    }

    /// Platforms may write transactions to `inbox`, whose markers take offsets.
    async fn over_a_gap(&self, index: usize, from: u64) -> Result<Vec<Timed>, LogError> {
        let place = &self.places[index];
        let bounds = self.bounds(index).await?;
        if from < bounds.start {
            return Err(place.out_of_range(from, bounds));
        }
        let own = Timestamp::from_millis(0);
        let at = place
            .times
            .of(&self.asker, &place.name, place.partition, from, own)
            .await?;
        Ok(vec![(Foreign::nothing(from, at), at)])
    }

    fn records(&self, index: usize, timed: Vec<Timed>) -> Vec<Record> {
        let place = &self.places[index];
        timed
            .into_iter()
            .map(|(record, at)| {
                let position = place.at(record.offset);
                record.into_record(position, at)
            })
            .collect()
    }
}

#[async_trait]
impl EventLog for KafkaLog {
    fn partitions(&self) -> u32 {
        self.identity.partitions
    }

    fn rebuilt_readers(&self) -> u64 {
        self.readers.rebuilt()
    }

    async fn identity(&self, topic: Topic, partition: u32) -> Result<Identity, LogError> {
        self.index(topic, partition)?;
        Ok(self.identity)
    }

    async fn append(
        &self,
        topic: Topic,
        partition: u32,
        records: Vec<NewRecord>,
    ) -> Result<Vec<Appended>, LogError> {
        let index = self.index(topic, partition)?;
        let place = &self.places[index];
        if let Some(large) = records.iter().find(|r| r.payload.len() > PAYLOAD_BYTES_MAX) {
            return Err(LogError::TooLarge {
                bytes: large.payload.len(),
            });
        }
        if records.is_empty() {
            return Ok(Vec::new());
        }
        self.verify_at_times(index).await?;
        let written = self
            .writer
            .append(place, self.clock.now(), &records)
            .await?;
        let mut times = Vec::with_capacity(written.len());
        let mut before: Option<Timestamp> = None;
        for (offset, own, known) in written {
            let at = match (known, before) {
                (Some(at), _) => at,
                (None, Some(before)) => own.max(before),
                (None, None) => {
                    let (name, partition) = (&place.name, place.partition);
                    let asked = place
                        .times
                        .of(&self.asker, name, partition, offset, own)
                        .await;
                    asked.map_err(|error| {
                        place.unknown(format!(
                            "it stands in the log, but its time cannot be told: {error}"
                        ))
                    })?
                }
            };
            before = Some(at);
            times.push((offset, at));
        }
        if let Some((last, at)) = times.last() {
            place.times.learn(*last, *at);
            place.reaches(last + 1);
        }
        Ok(writer::appended(place, times))
    }

    async fn read(
        &self,
        topic: Topic,
        partition: u32,
        from: u64,
        records_max: usize,
        bytes_max: usize,
    ) -> Result<Vec<Record>, LogError> {
        let index = self.index(topic, partition)?;
        let timed = self
            .read_foreign(topic, partition, from, records_max, bytes_max)
            .await?;
        Ok(self.records(index, timed))
    }

    async fn read_at(
        &self,
        topic: Topic,
        partition: u32,
        offsets: &[u64],
    ) -> Result<Vec<Record>, LogError> {
        let index = self.index(topic, partition)?;
        if offsets.is_empty() {
            return Ok(Vec::new());
        }
        let place = &self.places[index];
        if !offsets.iter().all(|offset| place.is_known(*offset)) {
            let bounds = self.bounds(index).await?;
            let is_outside = |offset: &&u64| **offset < bounds.start || **offset >= bounds.end;
            if let Some(offset) = offsets.iter().find(is_outside) {
                self.verify(index, bounds).await?;
                return Err(place.out_of_range(*offset, bounds));
            }
        }
        self.verify_at_times(index).await?;
        match self.readers.pick_all(index, offsets).await {
            Ok(timed) => Ok(self.records(index, timed)),
            Err((offset, failure)) => Err(self.explain(index, offset, failure).await),
        }
    }

    async fn start(&self, topic: Topic, partition: u32) -> Result<u64, LogError> {
        Ok(self
            .verified_bounds(self.index(topic, partition)?)
            .await?
            .start)
    }

    async fn end(&self, topic: Topic, partition: u32) -> Result<u64, LogError> {
        Ok(self
            .verified_bounds(self.index(topic, partition)?)
            .await?
            .end)
    }

    async fn wait_beyond(
        &self,
        topic: Topic,
        partition: u32,
        offset: u64,
        at_most: Duration,
    ) -> Result<(), LogError> {
        let index = self.index(topic, partition)?;
        // "Too late" is no error: the caller reads next and sees for itself.
        match tokio::time::timeout(at_most, self.wait(index, offset)).await {
            Ok(waited) => waited,
            Err(_) => Ok(()),
        }
    }

    async fn retain(
        &self,
        topic: Topic,
        partition: u32,
        before: Timestamp,
    ) -> Result<u64, LogError> {
        let index = self.index(topic, partition)?;
        if is_kept_for_ever(topic) {
            return Err(LogError::Unusable {
                what: format!("{topic} is kept for ever"),
            });
        }
        let place = &self.places[index];
        let bounds = self.verified_bounds(index).await?;
        // What is left from before has an append time of at least the floor.
        if place.times.floor().is_some_and(|floor| floor >= before) {
            return Ok(bounds.start);
        }
        // The first record whose own time is late enough is the first whose append time is.
        let first = self.asker.first_at(&place.name, partition, before).await?;
        let start = first.unwrap_or(bounds.end).min(bounds.end);
        if start <= bounds.start {
            return Ok(bounds.start);
        }
        let last = match self.readers.pick(index, &[start - 1]).await {
            Ok(picked) => picked.first().map(|(_, at)| *at),
            Err((offset, failure)) => return Err(self.explain(index, offset, failure).await),
        };
        let at = last.unwrap_or(before);
        self.retention
            .drop_before(&self.asker, place, start, at)
            .await?;
        place.starts(start);
        Ok(start)
    }
}

impl KafkaLog {
    async fn wait(&self, index: usize, offset: u64) -> Result<(), LogError> {
        let place = &self.places[index];
        let mut ends = place.ends();
        let mut arrivals = place.arrivals.subscribe();
        let mut is_tailed = false;
        loop {
            let end = *ends.borrow_and_update();
            if end > offset {
                return Ok(());
            }
            arrivals.borrow_and_update();
            // What is wrong, the next read tells.
            if self.readers.peek(index) || place.known_end() > offset {
                return Ok(());
            }
            if !is_tailed && !self.readers.is_waiting_at(index, end) {
                let bounds = self.bounds(index).await?;
                if let Err(failure) = self.readers.tail(index, bounds.end).await {
                    return Err(self.explain_plainly(index, bounds.end, failure));
                }
                is_tailed = true;
                continue;
            }
            tokio::select! {
                changed = ends.changed() => if changed.is_err() { return Ok(()) },
                changed = arrivals.changed() => if changed.is_err() { return Ok(()) },
                () = tokio::time::sleep(LOOK_AGAIN) => is_tailed = false,
            }
        }
    }
}
