//! How do the topics on the broker differ from what they must be, and whose log do they hold? Asked by
//! `topics check`, before `topics create` does anything, and at every start.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anamnesis_domain::ids::LogId;
use anamnesis_domain::input::Topic;
use anamnesis_pipeline::broken::broke_off;
use anamnesis_pipeline::codec::{Clear, identity_payload, read_clear};
use anamnesis_pipeline::log::{Identity, LogError};
use bytes::Bytes;
use rdkafka::admin::{
    AdminClient, AdminOptions, ConfigResource, OwnedResourceSpecifier, ResourceSpecifier,
};
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::KafkaError;
use rdkafka::message::Message;
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};

use super::client::{Asker, Bounds, Context, Found, number};
use super::config::KafkaConfig;
use super::place::is_kept_for_ever;
use super::record::Foreign;
use super::topics::{Difference, Topics, What};
use super::writer::drop_apart;

/// A partition as it was found.
pub(super) struct Held {
    pub(super) topic: Topic,
    pub(super) partition: u32,
    pub(super) bounds: Bounds,
}

impl Held {
    fn has_first(&self) -> bool {
        self.bounds.start == 0 && self.bounds.end > 0
    }
}

pub(super) struct Survey {
    /// What most of the partitions say.
    pub(super) identity: Option<Identity>,
    pub(super) held: Vec<Held>,
    pub(super) differences: Vec<Difference>,
}

impl Survey {
    pub(super) async fn take(
        config: &KafkaConfig,
        topics: &Topics,
        asker: &Asker,
        admin: &AdminClient<Context>,
    ) -> Result<Self, LogError> {
        let names: Vec<String> = Topic::ALL.map(|topic| config.topic_name(topic)).into();
        let found = asker.topics(names).await?;
        let mut survey = Self {
            identity: None,
            held: survey_bounds(config, &found, asker).await?,
            differences: Vec::new(),
        };
        survey
            .compare_settings(config, topics, &found, asker, admin)
            .await?;
        let firsts = first_records(config, &survey.held).await?;
        survey.look_again(config, asker, &firsts).await?;
        survey.compare_identities(config, &firsts);
        let partitions = match (survey.identity, config.partitions) {
            (Some(identity), _) => identity.partitions,
            (None, _) => topics.partitions,
        };
        survey.compare_counts(config, topics, &found, partitions);
        Ok(survey)
    }

    fn differs(&mut self, config: &KafkaConfig, topic: Topic, what: What) {
        let name = config.topic_name(topic);
        self.differences.push(Difference { name, topic, what });
    }

    /// A partition that gave no first record although it has some: a topic that was just made anew has
    /// the bounds of the old one for a moment.
    async fn look_again(
        &mut self,
        config: &KafkaConfig,
        asker: &Asker,
        firsts: &[Option<Foreign>],
    ) -> Result<(), LogError> {
        let silent: Vec<usize> = (0..firsts.len())
            .filter(|index| firsts[*index].is_none() && self.held[*index].has_first())
            .collect();
        if silent.is_empty() {
            return Ok(());
        }
        let named = |held: &Held| (config.topic_name(held.topic), held.partition);
        let asked = silent
            .iter()
            .map(|index| named(&self.held[*index]))
            .collect();
        let bounds = asker.all_bounds(asked).await?;
        for (index, bounds) in silent.into_iter().zip(bounds) {
            let held = &mut self.held[index];
            held.bounds = bounds;
            if held.has_first() {
                let (name, partition) = named(held);
                return Err(LogError::Unavailable {
                    reason: format!("{name}-{partition} did not send its first record in time"),
                });
            }
        }
        Ok(())
    }

    async fn compare_settings(
        &mut self,
        config: &KafkaConfig,
        topics: &Topics,
        found: &BTreeMap<String, Found>,
        asker: &Asker,
        admin: &AdminClient<Context>,
    ) -> Result<(), LogError> {
        let described = describe(found, config.connect_timeout, asker, admin).await?;
        for plan in &topics.topics {
            let name = config.topic_name(plan.topic);
            let Some(shape) = found.get(&name) else {
                self.differs(config, plan.topic, What::Missing);
                continue;
            };
            if shape.replicas < topics.replication_factor {
                let what = What::Replication {
                    found: shape.replicas,
                    expected: topics.replication_factor,
                };
                self.differs(config, plan.topic, what);
            }
            let is_it = |resource: &&ConfigResource| matches!(&resource.specifier, OwnedResourceSpecifier::Topic(topic) if *topic == name);
            let resource = described.iter().find(is_it);
            for (setting, _) in topics.settings(plan) {
                let entry = resource.and_then(|resource| resource.get(setting));
                let value = entry.and_then(|entry| entry.value.as_deref()).unwrap_or("");
                if let Err(what) = topics.check(plan, setting, value) {
                    self.differs(config, plan.topic, what);
                }
            }
        }
        Ok(())
    }

    fn compare_counts(
        &mut self,
        config: &KafkaConfig,
        topics: &Topics,
        found: &BTreeMap<String, Found>,
        partitions: u32,
    ) {
        for topic in Topic::ALL {
            let expected = topics.partitions_of(topic, partitions);
            if let Some(shape) = found.get(&config.topic_name(topic))
                && shape.partitions != expected
            {
                let what = What::Partitions {
                    found: shape.partitions,
                    expected,
                };
                self.differs(config, topic, what);
            }
        }
    }

    fn compare_identities(&mut self, config: &KafkaConfig, firsts: &[Option<Foreign>]) {
        let said: Vec<Option<Identity>> = firsts
            .iter()
            .map(|first| first.as_ref().and_then(identity_in))
            .collect();
        self.identity = most_said(&said);
        let mut differences = Vec::new();
        for ((held, first), said) in self.held.iter().zip(firsts).zip(said) {
            let partition = held.partition;
            let what = match (first, said, self.identity) {
                // Known without its record, which retention has taken.
                (None, _, _) if held.bounds.start > 0 && !is_kept_for_ever(held.topic) => continue,
                (None, _, _) => What::IdentityMissing { partition },
                (Some(_), None, _) | (Some(_), Some(_), None) => What::NoIdentity { partition },
                (Some(_), Some(said), Some(log)) if said.log_id != log.log_id => What::OtherLog {
                    partition,
                    found: said.log_id,
                    expected: log.log_id,
                },
                (Some(first), Some(_), Some(log)) => {
                    if first.payload.as_ref() == Some(&identity_payload(&log, held.topic)) {
                        continue;
                    }
                    What::OtherIdentity { partition }
                }
            };
            differences.push((held.topic, what));
        }
        for (topic, what) in differences {
            self.differs(config, topic, what);
        }
    }
}

/// What a first record says, if it is an identity record.
pub(super) fn identity_in(first: &Foreign) -> Option<Identity> {
    let payload = first.payload.as_ref()?;
    match read_clear(payload) {
        Ok(Clear::Identity(identity)) => Some(identity),
        Ok(
            Clear::Input { .. }
            | Clear::WriterStarted { .. }
            | Clear::Decided(_)
            | Clear::Parked(_)
            | Clear::Unparked(_)
            | Clear::Other,
        )
        | Err(_) => None,
    }
}

/// One recreated topic should be what differs, and not all the others.
fn most_said(said: &[Option<Identity>]) -> Option<Identity> {
    let mut counts: BTreeMap<LogId, (usize, Identity)> = BTreeMap::new();
    for identity in said.iter().flatten() {
        let (count, _) = counts.entry(identity.log_id).or_insert((0, *identity));
        *count += 1;
    }
    let most = counts.into_values().max_by_key(|(count, _)| *count);
    most.map(|(_, identity)| identity)
}

async fn survey_bounds(
    config: &KafkaConfig,
    found: &BTreeMap<String, Found>,
    asker: &Asker,
) -> Result<Vec<Held>, LogError> {
    let mut places = Vec::new();
    for topic in Topic::ALL {
        let name = config.topic_name(topic);
        let partitions = found.get(&name).map_or(0, |found| found.partitions);
        places.extend((0..partitions).map(|partition| (topic, name.clone(), partition)));
    }
    if places.is_empty() {
        return Ok(Vec::new());
    }
    let asked = places
        .iter()
        .map(|(_, name, partition)| (name.clone(), *partition))
        .collect();
    let bounds = asker.all_bounds(asked).await?;
    let held = places.into_iter().zip(bounds);
    Ok(held
        .map(|((topic, _, partition), bounds)| Held {
            topic,
            partition,
            bounds,
        })
        .collect())
}

async fn describe(
    found: &BTreeMap<String, Found>,
    timeout: Duration,
    asker: &Asker,
    admin: &AdminClient<Context>,
) -> Result<Vec<ConfigResource>, LogError> {
    if found.is_empty() {
        return Ok(Vec::new());
    }
    let asked: Vec<ResourceSpecifier<'_>> = found
        .keys()
        .map(|name| ResourceSpecifier::Topic(name))
        .collect();
    let options = AdminOptions::new().request_timeout(Some(timeout));
    let described = admin
        .describe_configs(asked.iter(), &options)
        .await
        .map_err(|error| asker.explain(&error))?;
    let mut resources = Vec::with_capacity(described.len());
    for resource in described {
        resources.push(resource.map_err(|code| asker.explain(&KafkaError::AdminOp(code)))?);
    }
    Ok(resources)
}

/// First records are sent within milliseconds; a broker that is slower is asked again by the caller.
const FIRSTS_MAX: Duration = Duration::from_secs(10);

/// The record at offset 0 of each partition that has one and sends it in time.
async fn first_records(
    config: &KafkaConfig,
    held: &[Held],
) -> Result<Vec<Option<Foreign>>, LogError> {
    let mut settings = config.base()?;
    settings
        .set("group.id", format!("{}readers", config.topic_prefix))
        .set("enable.auto.commit", "false")
        .set("auto.offset.reset", "error")
        .set("check.crcs", "true")
        .set("fetch.wait.max.ms", "10")
        // An identity record is some hundred bytes, and only it is wanted of each partition.
        .set("fetch.message.max.bytes", "4096");
    let consumer: BaseConsumer<Context> = settings
        .create_with_context(Context::default())
        .map_err(|error| config.refused(&error))?;
    let wanted: Vec<(usize, Topic, String, u32)> = held
        .iter()
        .enumerate()
        .filter(|(_, held)| held.has_first())
        .map(|(index, held)| {
            (
                index,
                held.topic,
                config.topic_name(held.topic),
                held.partition,
            )
        })
        .collect();
    let mut firsts = vec![None; held.len()];
    let timeout = config.connect_timeout.min(FIRSTS_MAX);
    let read = tokio::task::spawn_blocking(move || {
        let read = read_firsts(&consumer, &wanted, timeout);
        drop_apart(consumer);
        read
    });
    let read = read.await.map_err(|error| LogError::Unavailable {
        reason: broke_off(&error).to_owned(),
    })?;
    let read = read.map_err(|error| LogError::Unavailable {
        reason: format!("the identity records cannot be read: {error}"),
    })?;
    for (index, first) in read {
        firsts[index] = Some(first);
    }
    Ok(firsts)
}

fn read_firsts(
    consumer: &BaseConsumer<Context>,
    wanted: &[(usize, Topic, String, u32)],
    timeout: Duration,
) -> Result<Vec<(usize, Foreign)>, KafkaError> {
    let mut firsts = Vec::with_capacity(wanted.len());
    if wanted.is_empty() {
        return Ok(firsts);
    }
    let mut list = TopicPartitionList::with_capacity(wanted.len());
    for (_, _, name, partition) in wanted {
        list.add_partition_offset(name, number(*partition), Offset::Offset(0))?;
    }
    consumer.assign(&list)?;
    let mut missing: BTreeMap<(String, i32), (usize, Topic)> = wanted
        .iter()
        .map(|(index, topic, name, partition)| {
            ((name.clone(), number(*partition)), (*index, *topic))
        })
        .collect();
    let deadline = Instant::now() + timeout;
    while !missing.is_empty() {
        if Instant::now() > deadline {
            break;
        }
        let message = match consumer.poll(Duration::from_millis(100)) {
            Some(Ok(message)) => message,
            // Whose record does not come is looked at again afterwards.
            Some(Err(error)) => {
                tracing::debug!(%error, "while the identity records are read");
                continue;
            }
            None => continue,
        };
        let place = (message.topic().to_owned(), message.partition());
        if let Some((index, topic)) = missing.remove(&place) {
            firsts.push((index, Foreign::read(&message, topic)));
            let mut done = TopicPartitionList::with_capacity(1);
            done.add_partition(message.topic(), message.partition());
            consumer.pause(&done)?;
        }
    }
    Ok(firsts)
}

/// The payload that offset 0 of a partition of this topic must have.
pub(super) fn expected_first(identity: &Identity, topic: Topic) -> Bytes {
    identity_payload(identity, topic)
}
