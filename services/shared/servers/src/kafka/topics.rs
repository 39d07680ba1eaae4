//! Which topics does the log have, and what must hold for each of them? The answer is
//! `infra/kafka/topics.toml`, with the numbers that the configuration may change.

use std::fmt;
use std::time::Duration;

use anamnesis_domain::ids::LogId;
use anamnesis_domain::input::Topic;
use anamnesis_pipeline::log::LogError;
use serde::Deserialize;

use super::config::KafkaConfig;

const FILE: &str = include_str!("../../../../../infra/kafka/topics.toml");

/// A value of each setting that the file gives. Public so that a test can ask for something else.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Topics {
    pub partitions: u32,
    pub replication_factor: u16,
    pub min_insync_replicas: u16,
    pub max_message_bytes: u64,
    pub timestamp_type: String,
    pub cleanup_policy: String,
    pub topics: Vec<TopicPlan>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TopicPlan {
    pub topic: Topic,
    /// Other than the log's own number of partitions.
    pub partitions: Option<u32>,
    /// The broker may drop records; `None` is never.
    pub retention_at_most: Option<Duration>,
    pub segment: Option<Duration>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    partitions: u32,
    replication_factor: u16,
    min_insync_replicas: u16,
    max_message_bytes: u64,
    timestamp_type: String,
    cleanup_policy: String,
    topic: Vec<Entry>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    name: String,
    partitions: Option<u32>,
    retention_at_most: Option<String>,
    segment: Option<String>,
}

/// Something that a topic on the broker does otherwise than it must.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Difference {
    /// Its name on the broker.
    pub name: String,
    pub topic: Topic,
    pub what: What,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum What {
    Missing,
    Partitions {
        found: u32,
        expected: u32,
    },
    Replication {
        found: u16,
        expected: u16,
    },
    Setting {
        setting: &'static str,
        found: String,
        expected: String,
    },
    /// The partition is empty, or holds nothing from its beginning on.
    IdentityMissing {
        partition: u32,
    },
    /// The first record is something else.
    NoIdentity {
        partition: u32,
    },
    /// The partition was recreated, or belongs to another log.
    OtherLog {
        partition: u32,
        found: LogId,
        expected: LogId,
    },
    /// The identity says another topic, creation time or number of partitions.
    OtherIdentity {
        partition: u32,
    },
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = &self.name;
        match &self.what {
            What::Missing => write!(f, "topic {name} is missing"),
            What::Partitions { found, expected } => {
                write!(f, "topic {name} has {found} partitions, not {expected}")
            }
            What::Replication { found, expected } => {
                write!(f, "topic {name} has {found} replicas, not {expected}")
            }
            What::Setting {
                setting,
                found,
                expected,
            } => write!(f, "topic {name} has {setting}={found}, not {expected}"),
            What::IdentityMissing { partition } => {
                write!(f, "{name}-{partition} has no identity record")
            }
            What::NoIdentity { partition } => {
                write!(
                    f,
                    "{name}-{partition} begins with something else than an identity record"
                )
            }
            What::OtherLog {
                partition,
                found,
                expected,
            } => write!(
                f,
                "the topic id changed: {name}-{partition} is of log {found}, not {expected}"
            ),
            What::OtherIdentity { partition } => write!(
                f,
                "the identity record of {name}-{partition} is of another topic or number of partitions"
            ),
        }
    }
}

/// All differences in one refusal.
pub(super) fn refusal(differences: &[Difference]) -> LogError {
    let all: Vec<String> = differences.iter().map(ToString::to_string).collect();
    LogError::Unusable {
        what: format!("the topics are not as they must be: {}", all.join("; ")),
    }
}

impl Topics {
    /// The file, with what the configuration says otherwise.
    ///
    /// # Errors
    /// [`LogError::Unusable`] when the file and the program do not fit.
    pub fn of(config: &KafkaConfig) -> Result<Self, LogError> {
        let mut topics = parse(FILE).map_err(|what| LogError::Unusable {
            what: format!("topics.toml: {what}"),
        })?;
        if let Some(partitions) = config.partitions {
            topics.partitions = partitions;
        }
        if let Some(factor) = config.replication_factor {
            topics.replication_factor = factor;
        }
        if let Some(replicas) = config.min_insync_replicas {
            topics.min_insync_replicas = replicas;
        }
        Ok(topics)
    }

    /// How many partitions a topic of a log with so many has.
    pub(super) fn partitions_of(&self, topic: Topic, partitions: u32) -> u32 {
        let plan = self.topics.iter().find(|plan| plan.topic == topic);
        plan.and_then(|plan| plan.partitions).unwrap_or(partitions)
    }

    /// The settings with which a topic is made, by Kafka's names.
    pub(super) fn settings(&self, plan: &TopicPlan) -> Vec<(&'static str, String)> {
        let retention = plan
            .retention_at_most
            .map_or_else(|| "-1".to_owned(), |d| d.as_millis().to_string());
        let mut settings = vec![
            ("retention.ms", retention),
            ("retention.bytes", "-1".to_owned()),
            ("cleanup.policy", self.cleanup_policy.clone()),
            ("message.timestamp.type", self.timestamp_type.clone()),
            ("max.message.bytes", self.max_message_bytes.to_string()),
            ("min.insync.replicas", self.min_insync_replicas.to_string()),
        ];
        if let Some(segment) = plan.segment {
            settings.push(("segment.ms", segment.as_millis().to_string()));
        }
        settings
    }

    /// Whether the broker's value of a setting does.
    pub(super) fn check(
        &self,
        plan: &TopicPlan,
        setting: &'static str,
        found: &str,
    ) -> Result<(), What> {
        let number = found.parse::<i64>();
        let (is_right, expected) = match setting {
            "retention.ms" => match plan.retention_at_most {
                // Longer would keep what must go; shorter is the operator's choice.
                Some(most) => {
                    let most = i64::try_from(most.as_millis()).unwrap_or(i64::MAX);
                    (
                        number.is_ok_and(|ms| (1..=most).contains(&ms)),
                        format!("at most {most}"),
                    )
                }
                None => (found == "-1", "-1".to_owned()),
            },
            "retention.bytes" => (found == "-1", "-1".to_owned()),
            "cleanup.policy" => (found == self.cleanup_policy, self.cleanup_policy.clone()),
            "message.timestamp.type" => (found == self.timestamp_type, self.timestamp_type.clone()),
            "max.message.bytes" => (
                number.is_ok_and(|bytes| bytes.unsigned_abs() >= self.max_message_bytes),
                format!("at least {}", self.max_message_bytes),
            ),
            "min.insync.replicas" => (
                number.is_ok_and(|n| n >= i64::from(self.min_insync_replicas)),
                format!("at least {}", self.min_insync_replicas),
            ),
            // How often a segment is begun harms nothing that is promised.
            _ => (true, String::new()),
        };
        if is_right {
            return Ok(());
        }
        Err(What::Setting {
            setting,
            found: found.to_owned(),
            expected,
        })
    }
}

fn parse(text: &str) -> Result<Topics, String> {
    let file: File = toml::from_str(text).map_err(|error| error.to_string())?;
    let period = |text: Option<String>| -> Result<Option<Duration>, String> {
        text.map(|t| humantime::parse_duration(&t).map_err(|e| format!("{t}: {e}")))
            .transpose()
    };
    let mut topics = Vec::with_capacity(file.topic.len());
    for entry in file.topic {
        let topic =
            Topic::parse(&entry.name).ok_or_else(|| format!("no topic is {}", entry.name))?;
        topics.push(TopicPlan {
            topic,
            partitions: entry.partitions,
            retention_at_most: period(entry.retention_at_most)?,
            segment: period(entry.segment)?,
        });
    }
    // The order of `Topic::ALL` is also that of the places.
    topics.sort_by_key(|plan| Topic::ALL.iter().position(|topic| *topic == plan.topic));
    if !topics.iter().map(|plan| plan.topic).eq(Topic::ALL) {
        return Err("every topic stands there exactly once".to_owned());
    }
    Ok(Topics {
        partitions: file.partitions,
        replication_factor: file.replication_factor,
        min_insync_replicas: file.min_insync_replicas,
        max_message_bytes: file.max_message_bytes,
        timestamp_type: file.timestamp_type,
        cleanup_policy: file.cleanup_policy,
        topics,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use anamnesis_pipeline::log::PAYLOAD_BYTES_MAX;

    fn topics() -> Topics {
        Topics::of(&KafkaConfig::new("a:1")).unwrap()
    }

    #[test]
    fn the_file_keeps_the_promises_of_the_log() {
        let topics = topics();
        assert!(topics.max_message_bytes > PAYLOAD_BYTES_MAX as u64);
        assert_eq!(topics.timestamp_type, "LogAppendTime");
        assert_eq!(topics.cleanup_policy, "delete");
        for plan in &topics.topics {
            let is_free = matches!(plan.topic, Topic::Schemas);
            assert_eq!(plan.partitions.is_some(), is_free, "{}", plan.topic);
            let may_go = matches!(plan.topic, Topic::Inbox);
            assert_eq!(plan.retention_at_most.is_some(), may_go, "{}", plan.topic);
        }
    }

    #[test]
    fn what_differs_is_named() {
        let topics = topics();
        let plan = |topic| topics.topics.iter().find(|p| p.topic == topic).unwrap();
        let check = |topic, setting, found| topics.check(plan(topic), setting, found).is_ok();
        assert!(check(Topic::Memories, "retention.ms", "-1"));
        assert!(!check(Topic::Memories, "retention.ms", "604800000"));
        assert!(check(Topic::Inbox, "retention.ms", "3600000"));
        assert!(!check(Topic::Inbox, "retention.ms", "-1"));
        assert!(!check(Topic::Inbox, "retention.ms", "86400001"));
        assert!(!check(Topic::Schemas, "cleanup.policy", "compact"));
        assert!(!check(
            Topic::Memories,
            "message.timestamp.type",
            "CreateTime"
        ));
        assert!(!check(Topic::Memories, "max.message.bytes", "1048588"));
        assert!(check(Topic::Memories, "max.message.bytes", "20000000"));
        assert!(!check(Topic::Memories, "min.insync.replicas", "1"));
    }

    #[test]
    fn a_file_with_a_fault_is_refused() {
        for (from, to) in [
            ("name = \"inbox\"", "name = \"outbox\""),
            ("name = \"inbox\"", "name = \"commands\""),
            ("\"24h\"", "\"a day\""),
            ("partitions = 24", "partition = 24"),
        ] {
            assert!(
                FILE.contains(from) && parse(&FILE.replacen(from, to, 1)).is_err(),
                "{to}"
            );
        }
    }
}
