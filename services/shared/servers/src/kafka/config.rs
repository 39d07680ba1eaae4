//! What can be configured of Kafka, and which of librdkafka's settings are ours to decide?

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use anamnesis_domain::input::Topic;
use anamnesis_pipeline::log::LogError;
use rdkafka::ClientConfig;
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::error::KafkaError;
use serde::{Deserialize, Serialize};

use super::assignment::GroupConfig;

/// Settings of librdkafka that an operator may give, by the beginning of their name. All others decide
/// whether the log keeps its promises, and are set here.
const ALLOWED: [&str; 12] = [
    "security.protocol",
    "sasl.",
    "ssl.",
    "enable.ssl.certificate.verification",
    "client.id",
    "client.rack",
    "socket.",
    "reconnect.backoff.",
    "connections.max.idle.ms",
    "broker.address.",
    "client.dns.lookup",
    "debug",
];

/// Parts of the names of settings whose values nobody may see.
const SECRET: [&str; 6] = ["password", "secret", "pem", "token", "oauthbearer", "key"];

/// The Kafka section of the configuration.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KafkaConfig {
    /// Where to begin, as `host:port,host:port`.
    pub brokers: String,
    /// What every topic's name begins with.
    #[serde(default = "default_prefix")]
    pub topic_prefix: String,
    /// Partitions of a log that is created; a log that is there keeps its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub partitions: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replication_factor: Option<u16>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min_insync_replicas: Option<u16>,
    /// How long a start looks for a broker and for the topics' leaders.
    #[serde(default = "default_connect", with = "crate::period")]
    pub connect_timeout: Duration,
    /// After this the outcome of an append is unknown.
    #[serde(default = "default_append", with = "crate::period")]
    pub append_timeout: Duration,
    #[serde(default = "default_read", with = "crate::period")]
    pub read_timeout: Duration,
    /// How this process takes part in its service's group.
    #[serde(default)]
    pub group: GroupConfig,
    /// Security and network settings of librdkafka, by its own names.
    #[serde(default)]
    pub client: BTreeMap<String, String>,
}

fn default_prefix() -> String {
    "anamnesis.".to_owned()
}

fn default_connect() -> Duration {
    Duration::from_secs(30)
}

fn default_append() -> Duration {
    Duration::from_secs(15)
}

fn default_read() -> Duration {
    Duration::from_secs(10)
}

impl KafkaConfig {
    /// These brokers, and the default for everything else.
    pub fn new(brokers: impl Into<String>) -> Self {
        Self {
            brokers: brokers.into(),
            topic_prefix: default_prefix(),
            partitions: None,
            replication_factor: None,
            min_insync_replicas: None,
            connect_timeout: default_connect(),
            append_timeout: default_append(),
            read_timeout: default_read(),
            group: GroupConfig::default(),
            client: BTreeMap::new(),
        }
    }

    /// The same with every secret masked, to be shown.
    #[must_use]
    pub fn masked(&self) -> Self {
        let mut masked = self.clone();
        for (name, value) in &mut masked.client {
            if is_secret(name) {
                "***".clone_into(value);
            }
        }
        masked
    }

    pub fn topic_name(&self, topic: Topic) -> String {
        format!("{}{topic}", self.topic_prefix)
    }

    /// What every client of ours has in common.
    pub(super) fn base(&self) -> Result<ClientConfig, LogError> {
        let mut base = ClientConfig::new();
        // Why a broker hung up is said at this level: a failure is explained by it, whatever is printed.
        base.set_log_level(RDKafkaLogLevel::Info)
            .set("bootstrap.servers", &self.brokers)
            .set("client.id", "anamnesis")
            // A broker that restarts is back within seconds; the defaults look for it every ten.
            .set("reconnect.backoff.ms", "50")
            .set("reconnect.backoff.max.ms", "1000")
            .set("retry.backoff.ms", "50")
            .set("socket.nagle.disable", "true")
            .set("socket.keepalive.enable", "true")
            // A broker that does not answer is given up before the call's own deadline.
            .set("socket.timeout.ms", millis(self.read_timeout))
            .set("topic.metadata.propagation.max.ms", "5000");
        for (name, value) in &self.client {
            if !ALLOWED.iter().any(|allowed| name.starts_with(allowed)) {
                return Err(LogError::Unusable {
                    what: format!(
                        "kafka.client.{name} cannot be set: only security and network settings can"
                    ),
                });
            }
            base.set(name, value);
        }
        Ok(base)
    }

    /// Why librdkafka refuses the configuration, without any secret.
    pub(super) fn refused(&self, error: &KafkaError) -> LogError {
        let what = if let KafkaError::ClientConfig(_, description, name, _) = error {
            format!("{name}: {description}")
        } else {
            error.to_string()
        };
        LogError::Unusable {
            what: format!(
                "the Kafka client cannot be made: {}",
                self.without_secrets(what)
            ),
        }
    }

    fn without_secrets(&self, mut text: String) -> String {
        for (name, value) in &self.client {
            if is_secret(name) && !value.is_empty() {
                text = text.replace(value, "…");
            }
        }
        text
    }
}

pub(super) fn millis(duration: Duration) -> String {
    duration.as_millis().to_string()
}

fn is_secret(name: &str) -> bool {
    SECRET.iter().any(|part| name.contains(part))
}

impl fmt::Debug for KafkaConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KafkaConfig")
            .field("brokers", &self.brokers)
            .field("topic_prefix", &self.topic_prefix)
            .field("partitions", &self.partitions)
            .field("replication_factor", &self.replication_factor)
            .field("min_insync_replicas", &self.min_insync_replicas)
            .field("connect_timeout", &self.connect_timeout)
            .field("append_timeout", &self.append_timeout)
            .field("read_timeout", &self.read_timeout)
            .field("group", &self.group)
            .field("client", &self.masked().client)
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(name: &str, value: &str) -> KafkaConfig {
        let mut config = KafkaConfig::new("127.0.0.1:1");
        config.client.insert(name.to_owned(), value.to_owned());
        config
    }

    #[test]
    fn security_settings_pass_through_and_promises_do_not() {
        for name in ["sasl.username", "ssl.ca.location", "security.protocol"] {
            assert_eq!(with(name, "x").base().unwrap().get(name), Some("x"));
        }
        for name in [
            "acks",
            "enable.idempotence",
            "auto.offset.reset",
            "group.id",
        ] {
            let refused = with(name, "x").base().unwrap_err().to_string();
            assert!(refused.contains(name), "{refused}");
        }
    }

    #[test]
    fn a_setting_that_librdkafka_does_not_know_is_refused_by_name() {
        let config = with("sasl.no.such", "x");
        let error = config.base().unwrap().create_native_config().err().unwrap();
        let refused = config.refused(&error).to_string();
        assert!(refused.contains("sasl.no.such"), "{refused}");
    }

    #[test]
    fn secrets_are_never_shown() {
        let config = with("sasl.password", "hunter2");
        assert!(!format!("{config:?}").contains("hunter2"));
        assert!(format!("{config:?}").contains("sasl.password"));
        assert_eq!(
            config.without_secrets("is hunter2 wrong".to_owned()),
            "is … wrong"
        );
    }

    #[test]
    fn the_section_refuses_what_it_does_not_know() {
        let read = |text| toml::from_str::<KafkaConfig>(text);
        let config = read("brokers = 'a:1'\nappend_timeout = '5s'").unwrap();
        assert_eq!(config.append_timeout, Duration::from_secs(5));
        assert_eq!(config.topic_name(Topic::Memories), "anamnesis.memories");
        assert!(read("brokers = 'a:1'\nappend_timeout = '5'").is_err());
        assert!(read("brokers = 'a:1'\nbroker = 'b'").is_err());
    }
}
