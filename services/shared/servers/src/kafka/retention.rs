//! How are old records dropped, without the append time falling back? What a broker drops is gone with
//! its times. So the largest time among the dropped is first written down, as metadata of the offset
//! that the group `…retention` has committed for the partition: the one small thing that a client can
//! leave on a broker beside records. A cluster forgets it a week after the last retention, by when its
//! clock would have to be set back by a week to matter.

use std::sync::Arc;
use std::time::Duration;

use anamnesis_domain::time::Timestamp;
use anamnesis_pipeline::broken::broke_off;
use anamnesis_pipeline::log::LogError;
use rdkafka::admin::{AdminClient, AdminOptions};
use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer};
use rdkafka::error::KafkaError;
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};

use super::client::{Asker, Context, number};
use super::config::KafkaConfig;
use super::place::Place;
use super::writer::drop_apart;

pub(super) struct Retention {
    admin: AdminClient<Context>,
    config: KafkaConfig,
    timeout: Duration,
}

impl Retention {
    pub(super) fn new(admin: AdminClient<Context>, config: &KafkaConfig) -> Self {
        Self {
            admin,
            config: config.clone(),
            timeout: config.connect_timeout,
        }
    }

    fn member(&self) -> Result<BaseConsumer<Context>, LogError> {
        let mut settings = self.config.base()?;
        settings
            .set("group.id", format!("{}retention", self.config.topic_prefix))
            .set("enable.auto.commit", "false")
            .set("enable.auto.offset.store", "false");
        settings
            .create_with_context(Context::default())
            .map_err(|error| self.config.refused(&error))
    }

    /// Tells these partitions the largest time of what was dropped from them.
    pub(super) async fn load(&self, places: Vec<Arc<Place>>) -> Result<(), LogError> {
        if places.is_empty() {
            return Ok(());
        }
        let timeout = self.timeout;
        self.with_member(move |member| {
            let mut list = TopicPartitionList::with_capacity(places.len());
            for place in &places {
                list.add_partition(&place.name, number(place.partition));
            }
            let committed = member.committed_offsets(list, timeout)?;
            for place in &places {
                let element = committed.find_partition(&place.name, number(place.partition));
                let said = element.and_then(|element| element.metadata().parse::<i64>().ok());
                if let Some(millis) = said {
                    place.times.raise_floor(Timestamp::from_millis(millis));
                }
            }
            Ok(())
        })
        .await
    }

    /// Writes down that nothing up to `start` is later than `at`.
    async fn remember(&self, place: &Place, start: u64, at: Timestamp) -> Result<(), LogError> {
        let (name, partition) = (place.name.clone(), number(place.partition));
        self.with_member(move |member| {
            let mut list = TopicPartitionList::with_capacity(1);
            let offset = Offset::Offset(i64::try_from(start).unwrap_or(i64::MAX));
            list.add_partition_offset(&name, partition, offset)?;
            if let Some(mut element) = list.find_partition(&name, partition) {
                element.set_metadata(at.millis().to_string());
            }
            member.commit(&list, CommitMode::Sync)
        })
        .await
    }

    async fn with_member<T: Send + 'static>(
        &self,
        work: impl FnOnce(&BaseConsumer<Context>) -> Result<T, KafkaError> + Send + 'static,
    ) -> Result<T, LogError> {
        let member = self.member()?;
        let task = tokio::task::spawn_blocking(move || {
            let done = work(&member);
            drop_apart(member);
            done
        });
        let failed = |reason: String| LogError::Unavailable { reason };
        match tokio::time::timeout(self.timeout, task).await {
            Ok(Ok(done)) => done.map_err(|error| failed(error.to_string())),
            Ok(Err(error)) => Err(failed(broke_off(&error).to_owned())),
            Err(_) => Err(failed("the group coordinator does not answer".to_owned())),
        }
    }

    /// Drops everything before `start`, of which the last record has the append time `at`.
    pub(super) async fn drop_before(
        &self,
        asker: &Asker,
        place: &Place,
        start: u64,
        at: Timestamp,
    ) -> Result<(), LogError> {
        self.remember(place, start, at).await?;
        place.times.raise_floor(at);
        let mut list = TopicPartitionList::with_capacity(1);
        let offset = Offset::Offset(i64::try_from(start).unwrap_or(i64::MAX));
        let partition = number(place.partition);
        list.add_partition_offset(&place.name, partition, offset)
            .map_err(|error| asker.explain(&error))?;
        let options = AdminOptions::new()
            .request_timeout(Some(self.timeout))
            .operation_timeout(Some(self.timeout));
        let deleted = self
            .admin
            .delete_records(&list, &options)
            .await
            .map_err(|error| asker.explain(&error))?;
        match deleted.find_partition(&place.name, partition) {
            Some(element) => element.error().map_err(|error| asker.explain(&error)),
            None => Ok(()),
        }
    }
}
