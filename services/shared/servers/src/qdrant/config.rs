//! Where is Qdrant, and how long may it take to answer?

use std::time::Duration;

use anamnesis_pipeline::stores::StoreError;
use qdrant_client::Qdrant;
use serde::{Deserialize, Serialize};

/// The section of the configuration. It holds no secret: the API key is named, not written.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct QdrantConfig {
    /// The gRPC address, `http://host:6334`; `https://` speaks TLS and trusts the system's roots.
    pub url: String,
    /// Name of the alias that recall asks, and how the names of all generations begin.
    #[serde(default = "default_prefix")]
    pub prefix: String,
    /// Environment variable that holds the API key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub api_key_env: Option<String>,
    #[serde(default = "default_connect_timeout", with = "crate::period")]
    pub connect_timeout: Duration,
    /// For one question. Recall has a shorter deadline of its own; this one frees the connection.
    #[serde(default = "default_read_deadline", with = "crate::period")]
    pub read_deadline: Duration,
    /// For one write that is waited for.
    #[serde(default = "default_write_deadline", with = "crate::period")]
    pub write_deadline: Duration,
    /// For the optimiser to drop what is deleted.
    #[serde(default = "default_compact_deadline", with = "crate::period")]
    pub compact_deadline: Duration,
    /// Owners with more versions than this are searched approximately.
    #[serde(default = "default_exact_versions_max")]
    pub exact_versions_max: u64,
    /// Connections that calls take turns on.
    #[serde(default = "default_connections")]
    pub connections: usize,
    /// Copies of each collection in a cluster; applies when a generation is made.
    #[serde(default = "default_replicas")]
    pub replicas: u32,
}

fn default_prefix() -> String {
    "anamnesis".to_owned()
}

fn default_connect_timeout() -> Duration {
    Duration::from_secs(2)
}

fn default_read_deadline() -> Duration {
    Duration::from_secs(5)
}

fn default_write_deadline() -> Duration {
    Duration::from_secs(30)
}

fn default_compact_deadline() -> Duration {
    Duration::from_secs(600)
}

fn default_exact_versions_max() -> u64 {
    // Half a hundred million multiplications with 1,024 dimensions: some tens of milliseconds.
    50_000
}

fn default_connections() -> usize {
    2
}

fn default_replicas() -> u32 {
    1
}

/// Between the alias and the name of a generation. Neither may hold it, so that one prefix never
/// claims the collections of another.
const BETWEEN: &str = "--";

impl QdrantConfig {
    /// All defaults.
    pub fn new(url: impl Into<String>) -> Self {
        Self {
            url: url.into(),
            prefix: default_prefix(),
            api_key_env: None,
            connect_timeout: default_connect_timeout(),
            read_deadline: default_read_deadline(),
            write_deadline: default_write_deadline(),
            compact_deadline: default_compact_deadline(),
            exact_versions_max: default_exact_versions_max(),
            connections: default_connections(),
            replicas: default_replicas(),
        }
    }

    /// The collection of a generation.
    ///
    /// # Errors
    /// [`StoreError::Unusable`] for a name that Qdrant, or a reader of its list, would misread.
    pub(super) fn collection(&self, generation: &str) -> Result<String, StoreError> {
        for (what, name) in [("prefix", self.prefix.as_str()), ("generation", generation)] {
            let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
            let is_name = !name.is_empty()
                && name.len() <= 100
                && name.chars().all(is_plain)
                && !name.starts_with('-')
                && !name.ends_with('-')
                && !name.contains(BETWEEN);
            if !is_name {
                let what = format!(
                    "the {what} of the qdrant collections must be of a-z, 0-9, _ and single hyphens"
                );
                return Err(StoreError::Unusable { what });
            }
        }
        Ok(format!("{}{BETWEEN}{generation}", self.prefix))
    }

    /// The generation that a collection is, if it is one of this prefix.
    pub(super) fn generation<'a>(&self, collection: &'a str) -> Option<&'a str> {
        collection
            .strip_prefix(self.prefix.as_str())?
            .strip_prefix(BETWEEN)
    }

    /// A client; nothing is sent yet.
    ///
    /// # Errors
    /// [`StoreError::Unusable`] for an address that is none, or a key that is not in the environment.
    pub(super) fn client(&self) -> Result<Qdrant, StoreError> {
        let mut builder = Qdrant::from_url(&self.url)
            .connect_timeout(self.connect_timeout)
            // The deadlines around each call are shorter; this ends what they have abandoned.
            .timeout(self.read_deadline.max(self.write_deadline))
            // It prints. The version is checked when the store is opened.
            .skip_compatibility_check();
        builder.set_pool_size(self.connections);
        if let Some(name) = &self.api_key_env {
            match std::env::var(name) {
                Ok(key) if !key.is_empty() => builder = builder.api_key(key),
                Ok(_) | Err(_) => {
                    return Err(StoreError::Unusable {
                        what: format!(
                            "the environment variable {name} holds no API key for qdrant"
                        ),
                    });
                }
            }
            if !self.url.starts_with("https://") {
                tracing::warn!(
                    "the API key of qdrant travels unencrypted: its address is not https"
                );
            }
        }
        builder.build().map_err(|_| StoreError::Unusable {
            what: "the url of qdrant is no address such as http://host:6334".to_owned(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_period_has_a_unit() {
        let with =
            |line: &str| toml::from_str::<QdrantConfig>(&format!("url = \"http://q\"\n{line}"));
        let config = with("read_deadline = \"250ms\"").unwrap();
        assert_eq!(config.read_deadline, Duration::from_millis(250));
        for line in [
            "read_deadline = 5",
            "read_deadline = \"0s\"",
            "read_deadline = \"5\"",
            "key = \"x\"",
        ] {
            assert!(with(line).is_err(), "{line}");
        }
    }

    #[test]
    fn a_generation_is_told_from_its_collection() {
        let config = QdrantConfig::new("http://q");
        let collection = config.collection("g-7").unwrap();
        assert_eq!(config.generation(&collection), Some("g-7"));
        assert_eq!(config.generation("anamnesis-2--g-7"), None);
        for name in ["", "a--b", "a/b", "-a", "a b", "日"] {
            assert!(config.collection(name).is_err(), "{name}");
        }
    }

    #[test]
    fn a_key_that_is_not_there_is_named() {
        let mut config = QdrantConfig::new("http://127.0.0.1:1");
        config.api_key_env = Some("ANAMNESIS_NO_SUCH_KEY".to_owned());
        let Err(error) = config.client() else {
            panic!("built")
        };
        assert!(
            error.to_string().contains("ANAMNESIS_NO_SUCH_KEY"),
            "{error}"
        );
    }
}
