//! A log that refuses to append to one topic, as a process that is killed before that append.

use std::sync::Mutex;
use std::time::Duration;

use anamnesis_domain::input::Topic;
use anamnesis_domain::time::Timestamp;
use anamnesis_pipeline::log::{Appended, EventLog, Identity, Log, LogError, NewRecord, Record};
use async_trait::async_trait;

pub(super) struct RefusingLog {
    pub(super) inner: Log,
    pub(super) refused: Mutex<Option<Topic>>,
}

#[async_trait]
impl EventLog for RefusingLog {
    fn partitions(&self) -> u32 {
        self.inner.partitions()
    }

    async fn identity(&self, topic: Topic, partition: u32) -> Result<Identity, LogError> {
        self.inner.identity(topic, partition).await
    }

    async fn append(
        &self,
        topic: Topic,
        partition: u32,
        records: Vec<NewRecord>,
    ) -> Result<Vec<Appended>, LogError> {
        if *self.refused.lock().unwrap() == Some(topic) {
            return Err(LogError::Unavailable {
                reason: "refused".to_owned(),
            });
        }
        self.inner.append(topic, partition, records).await
    }

    async fn read(
        &self,
        topic: Topic,
        partition: u32,
        from: u64,
        records_max: usize,
        bytes_max: usize,
    ) -> Result<Vec<Record>, LogError> {
        self.inner
            .read(topic, partition, from, records_max, bytes_max)
            .await
    }

    async fn read_at(
        &self,
        topic: Topic,
        partition: u32,
        offsets: &[u64],
    ) -> Result<Vec<Record>, LogError> {
        self.inner.read_at(topic, partition, offsets).await
    }

    async fn start(&self, topic: Topic, partition: u32) -> Result<u64, LogError> {
        self.inner.start(topic, partition).await
    }

    async fn end(&self, topic: Topic, partition: u32) -> Result<u64, LogError> {
        self.inner.end(topic, partition).await
    }

    async fn wait_beyond(
        &self,
        topic: Topic,
        partition: u32,
        offset: u64,
        at_most: Duration,
    ) -> Result<(), LogError> {
        self.inner
            .wait_beyond(topic, partition, offset, at_most)
            .await
    }

    async fn retain(
        &self,
        topic: Topic,
        partition: u32,
        before: Timestamp,
    ) -> Result<u64, LogError> {
        self.inner.retain(topic, partition, before).await
    }
}
