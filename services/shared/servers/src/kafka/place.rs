//! One partition of one topic, and what this process knows of it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use anamnesis_domain::input::{Position, Topic};
use anamnesis_pipeline::log::LogError;
use tokio::sync::watch;

use super::append_time::Times;
use super::client::Bounds;

pub(super) struct Place {
    pub(super) topic: Topic,
    pub(super) partition: u32,
    /// The topic's name on the broker.
    pub(super) name: String,
    /// Held while the records of one append are handed to the producer.
    pub(super) turn: Mutex<()>,
    pub(super) times: Times,
    /// The largest start and end that this process was ever told of.
    start: AtomicU64,
    end: watch::Sender<u64>,
    /// Counts what librdkafka put into a reader's queue.
    pub(super) arrivals: watch::Sender<u64>,
    /// When the identity record was last seen to be the same.
    verified: Mutex<Option<Instant>>,
}

impl Place {
    pub(super) fn new(topic: Topic, partition: u32, name: String) -> Self {
        Self {
            topic,
            partition,
            name,
            turn: Mutex::default(),
            times: Times::default(),
            start: AtomicU64::new(0),
            end: watch::Sender::new(0),
            arrivals: watch::Sender::new(0),
            verified: Mutex::new(None),
        }
    }

    pub(super) fn at(&self, offset: u64) -> Position {
        Position {
            topic: self.topic,
            partition: self.partition,
            offset,
        }
    }

    /// Whether the identity record was seen to be the same so short a time ago.
    pub(super) fn is_trusted(&self, within: Duration) -> bool {
        let verified = self.verified.lock().unwrap_or_else(PoisonError::into_inner);
        verified.is_some_and(|at| at.elapsed() < within)
    }

    pub(super) fn trust(&self) {
        *self.verified.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
    }

    pub(super) fn doubt(&self) {
        *self.verified.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// Whether a record is known to be there, as far as this process was told.
    pub(super) fn is_known(&self, offset: u64) -> bool {
        offset >= self.start.load(Ordering::Relaxed) && offset < self.known_end()
    }

    /// Retention has passed everything before.
    pub(super) fn starts(&self, start: u64) {
        self.start.fetch_max(start, Ordering::Relaxed);
    }

    pub(super) fn known_end(&self) -> u64 {
        *self.end.borrow()
    }

    pub(super) fn ends(&self) -> watch::Receiver<u64> {
        self.end.subscribe()
    }

    /// A record before `end` is known to be there. Readers and waiters are told.
    pub(super) fn reaches(&self, end: u64) {
        self.end.send_if_modified(|known| {
            let is_news = end > *known;
            *known = end.max(*known);
            is_news
        });
    }

    pub(super) fn unknown(&self, reason: String) -> LogError {
        LogError::Unknown {
            topic: self.topic,
            partition: self.partition,
            reason,
        }
    }

    pub(super) fn out_of_range(&self, offset: u64, bounds: Bounds) -> LogError {
        LogError::OutOfRange {
            topic: self.topic,
            partition: self.partition,
            offset,
            start: bounds.start,
            end: bounds.end,
        }
    }
}

/// Whose records are kept for ever.
pub(super) fn is_kept_for_ever(topic: Topic) -> bool {
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
