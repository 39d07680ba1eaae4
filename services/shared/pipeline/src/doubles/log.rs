//! The log in memory: what does a log do that keeps every line of the contract, and how does a stage
//! fare when answers get lost?
//!
//! [`MemoryLog`] is strict and calm. [`FaultyLog`] stands before it with seeded weather: short reads,
//! refusals, answers lost after a durable append, repeated appends, and crashes.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anamnesis_domain::ids::{LogId, OwnerKey};
use anamnesis_domain::input::{Position, Topic};
use anamnesis_domain::time::Timestamp;
use async_trait::async_trait;
use bytes::Bytes;
use tokio::sync::watch;

use crate::clock::Clock;
use crate::log::{Appended, EventLog, Identity, LogError, NewRecord, PAYLOAD_BYTES_MAX, Record};

/// `schemas` has no owner to be spread by.
const SCHEMAS_PARTITIONS: u32 = 1;

/// A short read gives at most this many records, so that batch boundaries move even in small logs.
const SHORT_READ_MAX: usize = 8;

#[derive(Clone)]
struct Partition {
    /// Offset of the first record that retention has left.
    start: u64,
    records: Vec<Record>,
    last_at: Timestamp,
}

impl Partition {
    fn end(&self) -> u64 {
        self.start + self.records.len() as u64
    }
}

#[derive(Clone)]
struct State {
    /// In the order of [`Topic::ALL`], then by number.
    partitions: Vec<Partition>,
    rotten: BTreeSet<Position>,
}

/// Everything that a log holds, as of one moment.
#[derive(Clone)]
pub struct MemoryLogSnapshot {
    identity: Identity,
    state: State,
}

/// A log in memory that refuses whatever the contract lets it refuse.
pub struct MemoryLog {
    clock: Arc<dyn Clock>,
    identity: Identity,
    state: Mutex<State>,
    ends: Vec<watch::Sender<u64>>,
}

impl MemoryLog {
    /// A new log. `encode` gives the payload of the identity record of a topic.
    ///
    /// # Panics
    /// With no partitions.
    pub fn new(
        clock: Arc<dyn Clock>,
        partitions: u32,
        log_id: LogId,
        encode: impl Fn(&Identity, Topic) -> Bytes,
    ) -> Self {
        assert!(partitions > 0, "a log has at least one partition");
        let created_at = clock.now();
        let identity = Identity {
            log_id,
            created_at,
            partitions,
        };
        let mut made = Vec::new();
        for topic in Topic::ALL {
            for partition in 0..count(topic, partitions) {
                made.push(Partition {
                    start: 0,
                    records: vec![Record {
                        position: Position {
                            topic,
                            partition,
                            offset: 0,
                        },
                        key: OwnerKey::from_bytes([0; 16]),
                        appended_at: created_at,
                        payload: encode(&identity, topic),
                    }],
                    last_at: created_at,
                });
            }
        }
        let state = State {
            partitions: made,
            rotten: BTreeSet::new(),
        };
        Self::from_snapshot(clock, MemoryLogSnapshot { identity, state })
    }

    /// The same log after a restart of the process.
    pub fn from_snapshot(clock: Arc<dyn Clock>, snapshot: MemoryLogSnapshot) -> Self {
        let MemoryLogSnapshot { identity, state } = snapshot;
        let ends = state
            .partitions
            .iter()
            .map(|p| watch::Sender::new(p.end()))
            .collect();
        Self {
            clock,
            identity,
            state: Mutex::new(state),
            ends,
        }
    }

    pub fn snapshot(&self) -> MemoryLogSnapshot {
        MemoryLogSnapshot {
            identity: self.identity,
            state: self.lock().clone(),
        }
    }

    /// Every record that is there, by topic, partition and offset: to compare two runs.
    pub fn dump(&self) -> Vec<Record> {
        self.lock()
            .partitions
            .iter()
            .flat_map(|p| p.records.iter().cloned())
            .collect()
    }

    /// Lets the record at `position` rot: whoever reads it gets [`LogError::Corrupt`].
    pub fn rot(&self, position: Position) {
        self.lock().rotten.insert(position);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // The state is whole between statements that can panic, so a poisoned lock is still sound.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn index(&self, topic: Topic, partition: u32) -> Result<usize, LogError> {
        let partitions = count(topic, self.identity.partitions);
        if partition >= partitions {
            return Err(LogError::NoPartition {
                topic,
                partition,
                partitions,
            });
        }
        let before: u32 = Topic::ALL
            .into_iter()
            .take_while(|earlier| *earlier != topic)
            .map(|earlier| count(earlier, self.identity.partitions))
            .sum();
        Ok((before + partition) as usize)
    }

    /// Drops records from `end` on, as a crash does with what was not synced.
    fn truncate(&self, topic: Topic, partition: u32, end: u64) {
        let Ok(index) = self.index(topic, partition) else {
            return;
        };
        let mut state = self.lock();
        let held = &mut state.partitions[index];
        let kept = usize::try_from(end.saturating_sub(held.start)).unwrap_or(usize::MAX);
        held.records.truncate(kept);
        let end = held.end();
        self.ends[index].send_replace(end);
    }
}

fn count(topic: Topic, partitions: u32) -> u32 {
    match topic {
        Topic::Schemas => SCHEMAS_PARTITIONS,
        Topic::Inbox
        | Topic::Conversation
        | Topic::Quarantine
        | Topic::Candidates
        | Topic::Commands
        | Topic::Memories
        | Topic::Embeddings
        | Topic::Accesses
        | Topic::Receipts => partitions,
    }
}

fn is_kept_for_ever(topic: Topic) -> bool {
    match topic {
        Topic::Memories | Topic::Conversation | Topic::Candidates | Topic::Commands => true,
        Topic::Inbox
        | Topic::Quarantine
        | Topic::Embeddings
        | Topic::Accesses
        | Topic::Receipts
        | Topic::Schemas => false,
    }
}

#[async_trait]
impl EventLog for MemoryLog {
    fn partitions(&self) -> u32 {
        self.identity.partitions
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
        if let Some(large) = records.iter().find(|r| r.payload.len() > PAYLOAD_BYTES_MAX) {
            return Err(LogError::TooLarge {
                bytes: large.payload.len(),
            });
        }
        if records.is_empty() {
            return Ok(Vec::new());
        }
        let mut state = self.lock();
        let held = &mut state.partitions[index];
        let appended_at = self.clock.now().max(held.last_at);
        held.last_at = appended_at;
        let mut appended = Vec::with_capacity(records.len());
        for NewRecord { key, payload } in records {
            let position = Position {
                topic,
                partition,
                offset: held.end(),
            };
            held.records.push(Record {
                position,
                key,
                appended_at,
                payload,
            });
            appended.push(Appended {
                position,
                appended_at,
            });
        }
        let end = held.end();
        self.ends[index].send_replace(end);
        Ok(appended)
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
        let state = self.lock();
        let held = &state.partitions[index];
        let (start, end) = (held.start, held.end());
        if from < start || from > end {
            return Err(LogError::OutOfRange {
                topic,
                partition,
                offset: from,
                start,
                end,
            });
        }
        let mut records: Vec<Record> = Vec::new();
        let mut bytes = 0;
        for record in &held.records[(from - start) as usize..] {
            bytes += record.payload.len();
            // Only an empty read means the tail, so the first record goes whatever the limits say.
            let is_full = records.len() >= records_max || bytes > bytes_max;
            if is_full && !records.is_empty() {
                break;
            }
            if state.rotten.contains(&record.position) {
                // What precedes it is readable; the next read meets it first.
                if records.is_empty() {
                    return Err(LogError::Corrupt {
                        position: record.position,
                    });
                }
                break;
            }
            records.push(record.clone());
        }
        Ok(records)
    }

    async fn read_at(
        &self,
        topic: Topic,
        partition: u32,
        offsets: &[u64],
    ) -> Result<Vec<Record>, LogError> {
        let index = self.index(topic, partition)?;
        assert!(
            offsets.is_sorted(),
            "read_at is asked for ascending offsets"
        );
        let state = self.lock();
        let held = &state.partitions[index];
        let (start, end) = (held.start, held.end());
        let mut records = Vec::with_capacity(offsets.len());
        for &offset in offsets {
            if offset < start || offset >= end {
                return Err(LogError::OutOfRange {
                    topic,
                    partition,
                    offset,
                    start,
                    end,
                });
            }
            let record = &held.records[(offset - start) as usize];
            if state.rotten.contains(&record.position) {
                return Err(LogError::Corrupt {
                    position: record.position,
                });
            }
            records.push(record.clone());
        }
        Ok(records)
    }

    async fn start(&self, topic: Topic, partition: u32) -> Result<u64, LogError> {
        let index = self.index(topic, partition)?;
        Ok(self.lock().partitions[index].start)
    }

    async fn end(&self, topic: Topic, partition: u32) -> Result<u64, LogError> {
        let index = self.index(topic, partition)?;
        Ok(self.lock().partitions[index].end())
    }

    async fn wait_beyond(
        &self,
        topic: Topic,
        partition: u32,
        offset: u64,
        at_most: Duration,
    ) -> Result<(), LogError> {
        let mut end = self.ends[self.index(topic, partition)?].subscribe();
        // Neither "too late" nor "the log is gone" is an error here: the caller reads next.
        let _ = tokio::time::timeout(at_most, end.wait_for(|end| *end > offset)).await;
        Ok(())
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
        let mut state = self.lock();
        let held = &mut state.partitions[index];
        let dropped = held
            .records
            .partition_point(|record| record.appended_at < before);
        held.records.drain(..dropped);
        held.start += dropped as u64;
        Ok(held.start)
    }
}

/// How often each fault strikes, in calls per thousand.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Weather {
    /// A read gives fewer records than there are.
    pub short_read: u32,
    /// A call is refused and nothing happened.
    pub unavailable: u32,
    /// The records are appended, and the answer is lost.
    pub answer_lost: u32,
    /// Nothing is appended, and the answer is lost too: the writer cannot tell the two apart.
    pub append_lost: u32,
    /// The records are appended twice, as a client that retries without idempotence does; the answer
    /// names the first copy.
    pub repeated: u32,
}

impl Weather {
    pub const CALM: Self = Self {
        short_read: 0,
        unavailable: 0,
        answer_lost: 0,
        append_lost: 0,
        repeated: 0,
    };

    pub const STORM: Self = Self {
        short_read: 300,
        unavailable: 50,
        answer_lost: 30,
        append_lost: 20,
        repeated: 20,
    };
}

/// Small seeded generator (splitmix64): the same seed gives the same faults.
#[derive(Clone, Debug)]
pub struct Dice(u64);

impl Dice {
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub fn roll(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `bound`, and 0 for 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.roll() % bound.max(1)
    }

    /// True `per_mille` times in a thousand.
    pub fn strikes(&mut self, per_mille: u32) -> bool {
        self.below(1000) < u64::from(per_mille)
    }
}

struct Faults {
    dice: Dice,
    weather: Weather,
    /// Tails that were appended without an answer and that nobody has seen yet: a crash may take
    /// them, from this offset on.
    unseen: Vec<(Topic, u32, u64)>,
}

/// A [`MemoryLog`] in bad weather.
pub struct FaultyLog {
    log: Arc<MemoryLog>,
    faults: Mutex<Faults>,
}

impl FaultyLog {
    pub fn new(log: Arc<MemoryLog>, seed: u64, weather: Weather) -> Self {
        let faults = Faults {
            dice: Dice::new(seed),
            weather,
            unseen: Vec::new(),
        };
        Self {
            log,
            faults: Mutex::new(faults),
        }
    }

    /// The calm log behind, for oracles.
    pub fn calm(&self) -> &Arc<MemoryLog> {
        &self.log
    }

    pub fn set_weather(&self, weather: Weather) {
        self.lock().weather = weather;
    }

    /// The machine stops: appends that were never answered nor read may be gone, anything else stays.
    pub fn crash(&self) {
        let mut faults = self.lock();
        let unseen = std::mem::take(&mut faults.unseen);
        for (topic, partition, from) in unseen {
            if faults.dice.strikes(500) {
                self.log.truncate(topic, partition, from);
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Faults> {
        self.faults.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What was seen, or lies before an acknowledged append, is durable.
    fn settle(faults: &mut Faults, topic: Topic, partition: u32) {
        faults
            .unseen
            .retain(|(t, p, _)| (*t, *p) != (topic, partition));
    }

    fn refuse(faults: &mut Faults) -> Result<(), LogError> {
        let per_mille = faults.weather.unavailable;
        if faults.dice.strikes(per_mille) {
            return Err(LogError::Unavailable {
                reason: "bad weather".to_owned(),
            });
        }
        Ok(())
    }
}

enum AppendFault {
    None,
    AnswerLost,
    AppendLost,
    Repeated,
}

#[async_trait]
impl EventLog for FaultyLog {
    fn partitions(&self) -> u32 {
        self.log.partitions()
    }

    async fn identity(&self, topic: Topic, partition: u32) -> Result<Identity, LogError> {
        self.log.identity(topic, partition).await
    }

    async fn append(
        &self,
        topic: Topic,
        partition: u32,
        records: Vec<NewRecord>,
    ) -> Result<Vec<Appended>, LogError> {
        if records.is_empty() {
            return self.log.append(topic, partition, records).await;
        }
        let fault = {
            let mut faults = self.lock();
            Self::refuse(&mut faults)?;
            let weather = faults.weather;
            if faults.dice.strikes(weather.answer_lost) {
                AppendFault::AnswerLost
            } else if faults.dice.strikes(weather.append_lost) {
                AppendFault::AppendLost
            } else if faults.dice.strikes(weather.repeated) {
                AppendFault::Repeated
            } else {
                AppendFault::None
            }
        };
        let unknown = || LogError::Unknown {
            topic,
            partition,
            reason: "the answer was lost".to_owned(),
        };
        match fault {
            AppendFault::None => {
                let appended = self.log.append(topic, partition, records).await?;
                Self::settle(&mut self.lock(), topic, partition);
                Ok(appended)
            }
            AppendFault::AnswerLost => {
                let appended = self.log.append(topic, partition, records).await?;
                let mut faults = self.lock();
                let is_noted = faults
                    .unseen
                    .iter()
                    .any(|(t, p, _)| (*t, *p) == (topic, partition));
                if let Some(first) = appended.first().filter(|_| !is_noted) {
                    faults
                        .unseen
                        .push((topic, partition, first.position.offset));
                }
                Err(unknown())
            }
            // Bad records stay bad: the log's own refusals come first.
            AppendFault::AppendLost => {
                self.log.append(topic, partition, Vec::new()).await?;
                Err(unknown())
            }
            AppendFault::Repeated => {
                let appended = self.log.append(topic, partition, records.clone()).await?;
                self.log.append(topic, partition, records).await?;
                Self::settle(&mut self.lock(), topic, partition);
                Ok(appended)
            }
        }
    }

    async fn read(
        &self,
        topic: Topic,
        partition: u32,
        from: u64,
        records_max: usize,
        bytes_max: usize,
    ) -> Result<Vec<Record>, LogError> {
        let records_max = {
            let mut faults = self.lock();
            Self::refuse(&mut faults)?;
            let per_mille = faults.weather.short_read;
            if faults.dice.strikes(per_mille) {
                1 + faults.dice.below(records_max.min(SHORT_READ_MAX) as u64) as usize
            } else {
                records_max
            }
        };
        let records = self
            .log
            .read(topic, partition, from, records_max, bytes_max)
            .await?;
        if !records.is_empty() {
            Self::settle(&mut self.lock(), topic, partition);
        }
        Ok(records)
    }

    async fn read_at(
        &self,
        topic: Topic,
        partition: u32,
        offsets: &[u64],
    ) -> Result<Vec<Record>, LogError> {
        Self::refuse(&mut self.lock())?;
        let records = self.log.read_at(topic, partition, offsets).await?;
        Self::settle(&mut self.lock(), topic, partition);
        Ok(records)
    }

    async fn start(&self, topic: Topic, partition: u32) -> Result<u64, LogError> {
        self.log.start(topic, partition).await
    }

    async fn end(&self, topic: Topic, partition: u32) -> Result<u64, LogError> {
        // Whoever knows the end relies on it.
        Self::settle(&mut self.lock(), topic, partition);
        self.log.end(topic, partition).await
    }

    async fn wait_beyond(
        &self,
        topic: Topic,
        partition: u32,
        offset: u64,
        at_most: Duration,
    ) -> Result<(), LogError> {
        self.log
            .wait_beyond(topic, partition, offset, at_most)
            .await
    }

    async fn retain(
        &self,
        topic: Topic,
        partition: u32,
        before: Timestamp,
    ) -> Result<u64, LogError> {
        Self::refuse(&mut self.lock())?;
        self.log.retain(topic, partition, before).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::ManualClock;
    use crate::conformance::log::LogBackend;
    use crate::log::Log;

    fn encode(identity: &Identity, topic: Topic) -> Bytes {
        format!("{identity:?} {topic}").into()
    }

    fn memory_log(clock: Arc<dyn Clock>, partitions: u32) -> Arc<MemoryLog> {
        Arc::new(MemoryLog::new(
            clock,
            partitions,
            LogId::from_bytes([7; 16]),
            encode,
        ))
    }

    #[derive(Default)]
    struct Memory(Mutex<Option<Arc<MemoryLog>>>);

    #[async_trait]
    impl LogBackend for Memory {
        async fn make(&self, clock: Arc<dyn Clock>, partitions: u32) -> Log {
            let log = memory_log(clock, partitions);
            *self.0.lock().unwrap() = Some(log.clone());
            log
        }

        async fn restart(&self, _log: Log, clock: Arc<dyn Clock>) -> Log {
            let mut last = self.0.lock().unwrap();
            let snapshot = last.as_ref().unwrap().snapshot();
            let log = Arc::new(MemoryLog::from_snapshot(clock, snapshot));
            *last = Some(log.clone());
            log
        }
    }

    crate::log_conformance!(Memory::default());

    mod in_calm_weather {
        use super::*;

        #[derive(Default)]
        struct Calm(Memory);

        #[async_trait]
        impl LogBackend for Calm {
            async fn make(&self, clock: Arc<dyn Clock>, partitions: u32) -> Log {
                self.0.make(clock, partitions).await;
                let log = self.0.0.lock().unwrap().clone().unwrap();
                Arc::new(FaultyLog::new(log, 1, Weather::CALM))
            }

            async fn restart(&self, log: Log, clock: Arc<dyn Clock>) -> Log {
                self.0.restart(log, clock).await
            }
        }

        crate::log_conformance!(Calm::default());
    }

    mod with_short_reads {
        use super::*;

        #[derive(Default)]
        struct ShortReads(Memory);

        #[async_trait]
        impl LogBackend for ShortReads {
            async fn make(&self, clock: Arc<dyn Clock>, partitions: u32) -> Log {
                self.0.make(clock, partitions).await;
                let log = self.0.0.lock().unwrap().clone().unwrap();
                let weather = Weather {
                    short_read: 700,
                    ..Weather::CALM
                };
                Arc::new(FaultyLog::new(log, 1, weather))
            }

            async fn restart(&self, log: Log, clock: Arc<dyn Clock>) -> Log {
                self.0.restart(log, clock).await
            }
        }

        crate::log_conformance!(ShortReads::default());
    }

    fn one_record(text: &str) -> Vec<NewRecord> {
        let payload = Bytes::copy_from_slice(text.as_bytes());
        vec![NewRecord {
            key: OwnerKey::from_bytes([1; 16]),
            payload,
        }]
    }

    async fn run_in_storm(seed: u64) -> (Vec<Record>, Vec<String>) {
        let clock = Arc::new(ManualClock::new(Timestamp::from_millis(1000)));
        let log = FaultyLog::new(memory_log(clock.clone(), 2), seed, Weather::STORM);
        let mut told = Vec::new();
        for round in 0..300 {
            clock.advance_millis(10);
            let answer = log
                .append(Topic::Memories, round % 2, one_record("x"))
                .await;
            told.push(format!("{answer:?}"));
            let answer = log.read(Topic::Memories, 0, 0, 100, 1 << 20).await;
            told.push(format!("{:?}", answer.map(|records| records.len())));
            if round % 50 == 49 {
                log.crash();
            }
        }
        (log.calm().dump(), told)
    }

    #[tokio::test]
    async fn the_same_seed_gives_the_same_storm() {
        for seed in 0..5 {
            assert_eq!(
                run_in_storm(seed).await,
                run_in_storm(seed).await,
                "seed {seed}"
            );
        }
        assert_ne!(run_in_storm(1).await, run_in_storm(2).await);
    }

    #[tokio::test]
    async fn a_crash_takes_only_what_nobody_was_told() {
        let mut lost = 0;
        for seed in 0..200 {
            let clock = Arc::new(ManualClock::new(Timestamp::from_millis(1000)));
            let weather = Weather {
                answer_lost: 500,
                ..Weather::CALM
            };
            let log = FaultyLog::new(memory_log(clock, 1), seed, weather);
            let mut answered = 0;
            for _ in 0..5 {
                if let Ok(appended) = log.append(Topic::Memories, 0, one_record("x")).await {
                    answered = appended[0].position.offset;
                }
            }
            let end = log.calm().end(Topic::Memories, 0).await.unwrap();
            log.crash();
            let left = log.end(Topic::Memories, 0).await.unwrap();
            assert!(left > answered, "seed {seed}");
            assert!(left == end || left == answered + 1, "seed {seed}");
            lost += end - left;
        }
        assert!(lost > 0);
    }

    #[tokio::test]
    async fn a_crash_spares_what_was_read() {
        for seed in 0..50 {
            let clock = Arc::new(ManualClock::new(Timestamp::from_millis(1000)));
            let weather = Weather {
                answer_lost: 1000,
                ..Weather::CALM
            };
            let log = FaultyLog::new(memory_log(clock, 1), seed, weather);
            log.append(Topic::Memories, 0, one_record("x"))
                .await
                .unwrap_err();
            log.read(Topic::Memories, 0, 1, 1, 10).await.unwrap();
            log.crash();
            assert_eq!(log.end(Topic::Memories, 0).await.unwrap(), 2);
        }
    }

    #[tokio::test]
    async fn a_rotten_record_is_named() {
        let clock = Arc::new(ManualClock::new(Timestamp::from_millis(1000)));
        let log = memory_log(clock, 1);
        for text in ["a", "b", "c"] {
            log.append(Topic::Memories, 0, one_record(text))
                .await
                .unwrap();
        }
        let rotten = Position {
            topic: Topic::Memories,
            partition: 0,
            offset: 2,
        };
        log.rot(rotten);
        assert_eq!(
            log.read(Topic::Memories, 0, 0, 10, 1 << 20)
                .await
                .unwrap()
                .len(),
            2
        );
        let answer = log.read(Topic::Memories, 0, 2, 10, 1 << 20).await;
        assert!(matches!(answer, Err(LogError::Corrupt { position }) if position == rotten));
        assert!(log.read(Topic::Memories, 0, 3, 10, 1 << 20).await.is_ok());
    }
}
