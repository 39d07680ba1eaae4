//! How is the log kept in one SQLite file? A thread appends with group commit; readers have
//! connections of their own.
//!
//! - [`file`]: what stands in `log.db`, and what is refused when it is opened
//! - [`writer`]: the thread that appends
//! - [`reader`]: reading, with a checksum over every record

mod file;
mod reader;
mod writer;

use std::path::Path;
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use anamnesis_domain::input::{Position, Topic};
use anamnesis_domain::time::Timestamp;
use anamnesis_pipeline::clock::Clock;
use anamnesis_pipeline::log::{
    Appended, EventLog, Identity, LogError, NewRecord, PAYLOAD_BYTES_MAX, Record,
};
use async_trait::async_trait;
use bytes::Bytes;
use tokio::sync::{oneshot, watch};

use crate::folder::{FolderLock, LockError};
use reader::Readers;
use writer::Job;

/// Name of the database in the data folder.
pub const FILE_NAME: &str = "log.db";

/// Where the records of a partition lie.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Bounds {
    start: u64,
    end: u64,
}

/// One partition of one topic, and the name of its table.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Place {
    topic: Topic,
    partition: u32,
    table: String,
}

impl Place {
    fn at(&self, offset: u64) -> Position {
        Position {
            topic: self.topic,
            partition: self.partition,
            offset,
        }
    }

    fn out_of_range(&self, offset: u64, bounds: Bounds) -> LogError {
        let Bounds { start, end } = bounds;
        LogError::OutOfRange {
            topic: self.topic,
            partition: self.partition,
            offset,
            start,
            end,
        }
    }
}

/// The log in `log.db` of a data folder.
pub struct SqliteLog {
    identity: Identity,
    places: Arc<[Place]>,
    /// What is committed, by place. Readers see nothing beyond.
    bounds: Arc<[watch::Sender<Bounds>]>,
    readers: Readers,
    jobs: Mutex<Option<Sender<Job>>>,
    writer: Mutex<Option<JoinHandle<()>>>,
    /// Given back after the writer has stopped: fields drop in order, and `Drop` joins first.
    _lock: FolderLock,
}

impl SqliteLog {
    /// Opens the log in `dir`, or makes one with so many partitions. A log that is there keeps its
    /// identity and its partitions. `encode_identity` gives the first record of a partition.
    ///
    /// # Errors
    /// [`LogError::InUse`], [`LogError::Unusable`] and [`LogError::Corrupt`] need an operator.
    pub fn open(
        dir: &Path,
        clock: Arc<dyn Clock>,
        partitions: u32,
        encode_identity: impl Fn(&Identity, Topic) -> Bytes,
    ) -> Result<Self, LogError> {
        let lock = FolderLock::acquire(dir, "log.lock").map_err(|error| match error {
            LockError::InUse { what } => LogError::InUse { what },
            LockError::Io { .. } => LogError::Unavailable {
                reason: error.to_string(),
            },
        })?;
        let path = dir.join(FILE_NAME);
        let opened = file::open(&path, &*clock, partitions, &encode_identity)?;
        let places: Arc<[Place]> = opened.places.into();
        let bounds: Arc<[watch::Sender<Bounds>]> = opened
            .heads
            .iter()
            .map(|head| watch::Sender::new(head.bounds))
            .collect();
        let (jobs, queue) = std::sync::mpsc::channel();
        let writer = writer::Writer {
            connection: opened.connection,
            clock,
            places: places.clone(),
            heads: opened.heads,
            bounds: bounds.clone(),
        };
        let thread = std::thread::Builder::new()
            .name("log-writer".to_owned())
            .spawn(move || writer.run(&queue))
            .map_err(|error| LogError::Unavailable {
                reason: error.to_string(),
            })?;
        Ok(Self {
            identity: opened.identity,
            places,
            bounds,
            readers: Readers::new(path),
            jobs: Mutex::new(Some(jobs)),
            writer: Mutex::new(Some(thread)),
            _lock: lock,
        })
    }

    /// Waits until what was handed in is appended, and stops. Later appends are refused; reads still
    /// work.
    pub fn close(&self) {
        drop(
            self.jobs
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .take(),
        );
        let thread = self
            .writer
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        if let Some(thread) = thread {
            // A writer that panicked has answered nobody, which its callers see for themselves.
            let _ = thread.join();
        }
    }

    fn index(&self, topic: Topic, partition: u32) -> Result<usize, LogError> {
        self.places
            .iter()
            .position(|place| place.topic == topic && place.partition == partition)
            .ok_or(LogError::NoPartition {
                topic,
                partition,
                partitions: file::partitions_of(topic, self.identity.partitions),
            })
    }

    fn bounds(&self, index: usize) -> Bounds {
        *self.bounds[index].borrow()
    }

    fn send(&self, job: Job) -> Result<(), LogError> {
        let jobs = self.jobs.lock().unwrap_or_else(PoisonError::into_inner);
        let closed = || LogError::Unavailable {
            reason: "the log is closed".to_owned(),
        };
        jobs.as_ref()
            .ok_or_else(closed)?
            .send(job)
            .map_err(|_| closed())
    }
}

impl Drop for SqliteLog {
    fn drop(&mut self) {
        self.close();
    }
}

#[async_trait]
impl EventLog for SqliteLog {
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
        let place = self.index(topic, partition)?;
        if let Some(large) = records.iter().find(|r| r.payload.len() > PAYLOAD_BYTES_MAX) {
            return Err(LogError::TooLarge {
                bytes: large.payload.len(),
            });
        }
        if records.is_empty() {
            return Ok(Vec::new());
        }
        let (answer, answered) = oneshot::channel();
        self.send(Job::Append {
            place,
            records,
            answer,
        })?;
        answered.await.unwrap_or_else(|_| {
            Err(LogError::Unknown {
                topic,
                partition,
                reason: "the writer stopped".to_owned(),
            })
        })
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
        let bounds = self.bounds(index);
        if from < bounds.start || from > bounds.end {
            return Err(self.places[index].out_of_range(from, bounds));
        }
        // Consumers at the tail ask often; the answer needs no file.
        if from == bounds.end {
            return Ok(Vec::new());
        }
        let place = self.places[index].clone();
        let read = self
            .readers
            .run(move |connection| {
                reader::read(connection, &place, from..bounds.end, records_max, bytes_max)
            })
            .await;
        self.unless_retained(index, from, read)
    }

    async fn read_at(
        &self,
        topic: Topic,
        partition: u32,
        offsets: &[u64],
    ) -> Result<Vec<Record>, LogError> {
        let index = self.index(topic, partition)?;
        let bounds = self.bounds(index);
        let is_outside = |offset: &&u64| **offset < bounds.start || **offset >= bounds.end;
        if let Some(offset) = offsets.iter().find(is_outside) {
            return Err(self.places[index].out_of_range(*offset, bounds));
        }
        let Some(&first) = offsets.first() else {
            return Ok(Vec::new());
        };
        let place = self.places[index].clone();
        let offsets = offsets.to_vec();
        let read = self
            .readers
            .run(move |connection| reader::read_at(connection, &place, &offsets))
            .await;
        self.unless_retained(index, first, read)
    }

    async fn start(&self, topic: Topic, partition: u32) -> Result<u64, LogError> {
        Ok(self.bounds(self.index(topic, partition)?).start)
    }

    async fn end(&self, topic: Topic, partition: u32) -> Result<u64, LogError> {
        Ok(self.bounds(self.index(topic, partition)?).end)
    }

    async fn wait_beyond(
        &self,
        topic: Topic,
        partition: u32,
        offset: u64,
        at_most: Duration,
    ) -> Result<(), LogError> {
        let mut bounds = self.bounds[self.index(topic, partition)?].subscribe();
        // "Too late" is no error: the caller reads next and sees for itself.
        let _ = tokio::time::timeout(at_most, bounds.wait_for(|b| b.end > offset)).await;
        Ok(())
    }

    async fn retain(
        &self,
        topic: Topic,
        partition: u32,
        before: Timestamp,
    ) -> Result<u64, LogError> {
        let place = self.index(topic, partition)?;
        if is_kept_for_ever(topic) {
            return Err(LogError::Unusable {
                what: format!("{topic} is kept for ever"),
            });
        }
        let (answer, answered) = oneshot::channel();
        self.send(Job::Retain {
            place,
            before,
            answer,
        })?;
        answered.await.unwrap_or_else(|_| {
            Err(LogError::Unavailable {
                reason: "the writer stopped".to_owned(),
            })
        })
    }
}

impl SqliteLog {
    /// Retention may overtake a read; what it took is out of range then, and not corrupt.
    fn unless_retained(
        &self,
        index: usize,
        first: u64,
        read: Result<Vec<Record>, LogError>,
    ) -> Result<Vec<Record>, LogError> {
        let bounds = self.bounds(index);
        if read.is_err() && first < bounds.start {
            return Err(self.places[index].out_of_range(first, bounds));
        }
        read
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

/// Hash of everything that a reader is told of a record. 64 bits of BLAKE3: the guard is against rot,
/// not against an attacker, whom the seal and the chain stop.
fn checksum(position: Position, key: &[u8], appended_at: i64, payload: &[u8]) -> i64 {
    let mut hasher = blake3::Hasher::new();
    hasher.update(position.topic.as_str().as_bytes());
    hasher.update(&[0]);
    hasher.update(&position.partition.to_le_bytes());
    hasher.update(&position.offset.to_le_bytes());
    hasher.update(&appended_at.to_le_bytes());
    hasher.update(key);
    hasher.update(payload);
    let mut bytes = [0; 8];
    bytes.copy_from_slice(&hasher.finalize().as_bytes()[..8]);
    i64::from_le_bytes(bytes)
}

/// A failure before anything was committed, or of a read.
fn unavailable(error: &rusqlite::Error) -> LogError {
    LogError::Unavailable {
        reason: error.to_string(),
    }
}

/// SQLite counts in signed numbers. An offset beyond them would take 292 years at 10⁹ records/s.
fn signed(offset: u64) -> i64 {
    i64::try_from(offset).unwrap_or(i64::MAX)
}
