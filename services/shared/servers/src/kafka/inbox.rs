//! What have platforms written to `inbox`? The same reader as for every topic, with what other topics
//! do not have: keys of any kind, headers, null payloads, and the places that transactions leave.

use std::time::Duration;

use anamnesis_domain::input::Topic;
use anamnesis_pipeline::inbox::{Damage, Inbox, InboxBatch, InboxRecord};
use anamnesis_pipeline::log::{EventLog, LogError};
use async_trait::async_trait;

use super::reader::Timed;
use super::record::Lack;
use super::{KafkaLog, Read};

/// What somebody wrote here; nothing for a place without a record.
fn record((foreign, appended_at): Timed) -> Option<InboxRecord> {
    let damage = match foreign.lack {
        None => None,
        Some(Lack::TooLarge) => Some(Damage::TooLarge),
        Some(Lack::HeaderName) => Some(Damage::HeaderName),
        Some(Lack::NoRecord) => return None,
    };
    let mut record = InboxRecord {
        offset: foreign.offset,
        appended_at,
        key: None,
        headers: Vec::new(),
        payload: None,
        damage,
    };
    if damage.is_none() {
        record.key = foreign.key;
        record.headers = foreign.headers;
        record.payload = foreign.payload;
    }
    Some(record)
}

#[async_trait]
impl Inbox for KafkaLog {
    fn partitions(&self) -> u32 {
        let found = self.ranges.iter().find(|(of, _, _)| *of == Topic::Inbox);
        found.map_or(0, |(_, _, count)| *count)
    }

    async fn start(&self, partition: u32) -> Result<u64, LogError> {
        EventLog::start(self, Topic::Inbox, partition).await
    }

    async fn end(&self, partition: u32) -> Result<u64, LogError> {
        EventLog::end(self, Topic::Inbox, partition).await
    }

    async fn read(
        &self,
        partition: u32,
        from: u64,
        records_max: usize,
        bytes_max: usize,
    ) -> Result<InboxBatch, LogError> {
        let index = self.index(Topic::Inbox, partition)?;
        match self.read_on(index, from, records_max, bytes_max).await? {
            Read::Records(timed) => {
                let next = timed.last().map_or(from, |(last, _)| last.offset + 1);
                let records = timed.into_iter().filter_map(record).collect();
                Ok(InboxBatch { records, next })
            }
            Read::Hole(next) => Ok(InboxBatch {
                records: Vec::new(),
                next,
            }),
        }
    }

    async fn wait_beyond(
        &self,
        partition: u32,
        offset: u64,
        at_most: Duration,
    ) -> Result<(), LogError> {
        EventLog::wait_beyond(self, Topic::Inbox, partition, offset, at_most).await
    }
}
