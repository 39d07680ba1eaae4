//! Topic `inbox` and a schema registry in memory: what do intake's tests write as a platform would?

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anamnesis_domain::input::Topic;
use async_trait::async_trait;
use bytes::Bytes;
use tokio::sync::watch;

use crate::clock::Clock;
use crate::inbox::{
    Damage, FRAME_BYTES_MAX, HEADERS_MAX, Inbox, InboxBatch, InboxRecord, SchemaError, SchemaSource,
};
use crate::log::{LogError, PAYLOAD_BYTES_MAX};

#[derive(Default)]
struct Partition {
    start: u64,
    /// `None` where no record is.
    places: Vec<Option<InboxRecord>>,
}

impl Partition {
    fn end(&self) -> u64 {
        self.start + self.places.len() as u64
    }
}

/// A record on its way in.
#[derive(Clone, Default)]
pub struct Produced {
    pub key: Option<Bytes>,
    pub headers: Vec<(String, Option<Bytes>)>,
    pub payload: Option<Bytes>,
}

impl Produced {
    pub fn of(payload: impl Into<Bytes>) -> Self {
        Self {
            payload: Some(payload.into()),
            ..Self::default()
        }
    }

    #[must_use]
    pub fn with_key(mut self, key: &str) -> Self {
        self.key = Some(Bytes::copy_from_slice(key.as_bytes()));
        self
    }

    #[must_use]
    pub fn with(mut self, name: &str, value: &str) -> Self {
        let value = Bytes::copy_from_slice(value.as_bytes());
        self.headers.push((name.to_owned(), Some(value)));
        self
    }
}

pub struct MemoryInbox {
    clock: Arc<dyn Clock>,
    partitions: Mutex<Vec<Partition>>,
    ends: Vec<watch::Sender<u64>>,
}

impl MemoryInbox {
    /// Without an identity record: a test writes one when it wants it.
    pub fn new(clock: Arc<dyn Clock>, partitions: u32) -> Self {
        Self {
            clock,
            partitions: Mutex::new((0..partitions).map(|_| Partition::default()).collect()),
            ends: (0..partitions).map(|_| watch::Sender::new(0)).collect(),
        }
    }

    /// Gives the record's offset.
    ///
    /// # Panics
    /// In a partition that is not there.
    pub fn put(&self, partition: u32, produced: Produced) -> u64 {
        let frame: usize = produced.key.as_ref().map_or(0, Bytes::len)
            + produced
                .headers
                .iter()
                .map(|(name, value)| name.len() + value.as_ref().map_or(0, Bytes::len))
                .sum::<usize>();
        let is_too_large = produced
            .payload
            .as_ref()
            .is_some_and(|payload| payload.len() > PAYLOAD_BYTES_MAX)
            || frame > FRAME_BYTES_MAX
            || produced.headers.len() > HEADERS_MAX;
        let damage = is_too_large.then_some(Damage::TooLarge);
        let Produced {
            key,
            headers,
            payload,
        } = match damage {
            Some(_) => Produced::default(),
            None => produced,
        };
        let appended_at = self.clock.now();
        self.push(partition, |offset| {
            Some(InboxRecord {
                offset,
                appended_at,
                key,
                headers,
                payload,
                damage,
            })
        })
    }

    /// An offset without a record, as a transaction leaves it.
    pub fn put_gap(&self, partition: u32) -> u64 {
        self.push(partition, |_| None)
    }

    /// What retention does.
    pub fn drop_before(&self, partition: u32, offset: u64) {
        let held = &mut self.lock()[partition as usize];
        let gone = offset
            .saturating_sub(held.start)
            .min(held.places.len() as u64);
        held.places.drain(..gone as usize);
        held.start += gone;
    }

    fn push(&self, partition: u32, make: impl FnOnce(u64) -> Option<InboxRecord>) -> u64 {
        let mut partitions = self.lock();
        let held = &mut partitions[partition as usize];
        let offset = held.end();
        held.places.push(make(offset));
        self.ends[partition as usize].send_replace(offset + 1);
        offset
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Partition>> {
        // The state is whole between statements that can panic.
        self.partitions
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn check(&self, partition: u32) -> Result<(), LogError> {
        let partitions = self.partitions();
        if partition < partitions {
            return Ok(());
        }
        Err(LogError::NoPartition {
            topic: Topic::Inbox,
            partition,
            partitions,
        })
    }
}

#[async_trait]
impl Inbox for MemoryInbox {
    fn partitions(&self) -> u32 {
        self.ends.len() as u32
    }

    async fn start(&self, partition: u32) -> Result<u64, LogError> {
        self.check(partition)?;
        Ok(self.lock()[partition as usize].start)
    }

    async fn end(&self, partition: u32) -> Result<u64, LogError> {
        self.check(partition)?;
        Ok(self.lock()[partition as usize].end())
    }

    async fn read(
        &self,
        partition: u32,
        from: u64,
        records_max: usize,
        bytes_max: usize,
    ) -> Result<InboxBatch, LogError> {
        self.check(partition)?;
        let partitions = self.lock();
        let held = &partitions[partition as usize];
        let (start, end) = (held.start, held.end());
        if from < start || from > end {
            return Err(LogError::OutOfRange {
                topic: Topic::Inbox,
                partition,
                offset: from,
                start,
                end,
            });
        }
        let mut batch = InboxBatch {
            records: Vec::new(),
            next: from,
        };
        let mut bytes = 0;
        for place in &held.places[(from - start) as usize..] {
            let Some(record) = place else {
                // As the broker's clients do: a hole ends a read, and the next one passes over it.
                if batch.records.is_empty() {
                    batch.next += 1;
                }
                break;
            };
            bytes += record.payload.as_ref().map_or(0, Bytes::len);
            let is_full = batch.records.len() >= records_max.max(1);
            if is_full || (bytes > bytes_max && !batch.records.is_empty()) {
                break;
            }
            batch.records.push(record.clone());
            batch.next = record.offset + 1;
        }
        Ok(batch)
    }

    async fn wait_beyond(
        &self,
        partition: u32,
        offset: u64,
        at_most: Duration,
    ) -> Result<(), LogError> {
        self.check(partition)?;
        let mut ends = self.ends[partition as usize].subscribe();
        // "Too late" is no error: the caller reads next and sees for itself.
        let _ = tokio::time::timeout(at_most, ends.wait_for(|end| *end > offset)).await;
        Ok(())
    }
}

/// A registry that a test can stop.
#[derive(Default)]
pub struct MemorySchemas {
    texts: Mutex<BTreeMap<u32, String>>,
    is_down: AtomicBool,
    asked: AtomicU64,
}

impl MemorySchemas {
    pub fn register(&self, id: u32, text: &str) {
        let mut texts = self.texts.lock().unwrap_or_else(PoisonError::into_inner);
        texts.insert(id, text.to_owned());
    }

    pub fn set_down(&self, is_down: bool) {
        self.is_down.store(is_down, Ordering::SeqCst);
    }

    /// How often it was asked.
    pub fn asked(&self) -> u64 {
        self.asked.load(Ordering::SeqCst)
    }
}

#[async_trait]
impl SchemaSource for MemorySchemas {
    async fn schema(&self, id: u32) -> Result<String, SchemaError> {
        self.asked.fetch_add(1, Ordering::SeqCst);
        if self.is_down.load(Ordering::SeqCst) {
            return Err(SchemaError::Unavailable {
                reason: "it is stopped".to_owned(),
            });
        }
        let texts = self.texts.lock().unwrap_or_else(PoisonError::into_inner);
        texts.get(&id).cloned().ok_or(SchemaError::Unknown { id })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::SystemClock;
    use crate::conformance::inbox::InboxBackend;

    struct Memory(Arc<MemoryInbox>);

    impl Memory {
        fn new() -> Self {
            Self(Arc::new(MemoryInbox::new(Arc::new(SystemClock), 2)))
        }
    }

    #[async_trait]
    impl InboxBackend for Memory {
        async fn make(&self) -> Arc<dyn Inbox> {
            self.0.clone()
        }

        async fn produce(&self, partition: u32, produced: Produced) -> u64 {
            self.0.put(partition, produced)
        }

        async fn leave_gap(&self, partition: u32) {
            self.0.put_gap(partition);
        }

        async fn drop_before(&self, partition: u32, offset: u64) {
            self.0.drop_before(partition, offset);
        }
    }

    crate::inbox_conformance!(Memory::new());
}
