//! What must be configured to reach a Neo4j server, and what may be?

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use anamnesis_pipeline::stores::StoreError;
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

/// Longest name of a generation with its prefix: it stands in every node and every index entry.
const GENERATION_BYTES_MAX: usize = 40;

/// Longest prefix: the rest is for the generation's own name.
const PREFIX_BYTES_MAX: usize = 20;

/// Between the prefix and a generation's own name. No prefix holds it, so that none claims the
/// generations of another.
const BETWEEN: &str = "--";

/// The graph store's section of the configuration.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Neo4jConfig {
    /// `bolt://host:7687`, or `bolt+s://` with TLS. Never with a password in it.
    pub uri: String,
    #[serde(default = "default_user")]
    pub user: String,
    /// The environment variable that holds the password; none for a server without authentication.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub password_env: Option<String>,
    /// The server's default database if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub database: Option<String>,
    /// How the names of all generations begin: two systems in one database have two prefixes.
    #[serde(default = "default_prefix")]
    pub prefix: String,
    /// Everything of one build of the graph carries this name, so that the next build can grow beside
    /// the one that answers, in the same database. Not configured: see [`Self::of_generation`].
    #[serde(skip, default = "default_generation")]
    pub generation: String,
    /// A question that takes longer is given up.
    #[serde(default = "default_deadline", with = "crate::period")]
    pub deadline: Duration,
    /// The same for a batch, and for a step of anything longer.
    #[serde(default = "default_write_deadline", with = "crate::period")]
    pub write_deadline: Duration,
    /// How long deadlocks and the like are tried again before they are reported.
    #[serde(default = "default_retry_budget", with = "crate::period")]
    pub retry_budget: Duration,
    #[serde(default = "default_connections")]
    pub connections: usize,
    /// After so many calls in a row that met their deadline, all connections are given up: they may be
    /// half open.
    #[serde(default = "default_timeouts_max")]
    pub timeouts_max: u32,
    /// How long a look at the constraints counts: somebody may drop one while batches are applied.
    #[serde(default = "default_constraints_every", with = "crate::period")]
    pub check_constraints_every: Duration,
    /// The server's data folder, if this process can read it (one host, or a volume that is mounted
    /// for reading). Physical erasure then waits until it *sees* that the old transaction logs are
    /// gone, instead of as long as the server's settings imply.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server_data: Option<PathBuf>,
}

fn default_user() -> String {
    "neo4j".to_owned()
}

fn default_prefix() -> String {
    "anamnesis".to_owned()
}

fn default_generation() -> String {
    "live".to_owned()
}

const fn default_deadline() -> Duration {
    Duration::from_secs(2)
}

const fn default_write_deadline() -> Duration {
    Duration::from_secs(30)
}

const fn default_retry_budget() -> Duration {
    Duration::from_secs(5)
}

const fn default_connections() -> usize {
    8
}

const fn default_timeouts_max() -> u32 {
    2
}

const fn default_constraints_every() -> Duration {
    Duration::from_secs(30)
}

impl Neo4jConfig {
    /// Defaults for everything but the address.
    pub fn new(uri: impl Into<String>) -> Self {
        Self {
            uri: uri.into(),
            user: default_user(),
            password_env: None,
            database: None,
            prefix: default_prefix(),
            generation: default_generation(),
            deadline: default_deadline(),
            write_deadline: default_write_deadline(),
            retry_budget: default_retry_budget(),
            connections: default_connections(),
            timeouts_max: default_timeouts_max(),
            check_constraints_every: default_constraints_every(),
            server_data: None,
        }
    }

    /// The same for one generation under the prefix.
    #[must_use]
    pub fn of_generation(&self, generation: &str) -> Self {
        Self {
            generation: self.name_of(generation),
            ..self.clone()
        }
    }

    pub(super) fn name_of(&self, generation: &str) -> String {
        format!("{}{BETWEEN}{generation}", self.prefix)
    }

    /// The generation's own name, if it is one of this prefix.
    pub(super) fn generation_of<'a>(&self, name: &'a str) -> Option<&'a str> {
        name.strip_prefix(self.prefix.as_str())?
            .strip_prefix(BETWEEN)
    }

    /// # Errors
    /// [`StoreError::Unusable`] for what can be seen to be wrong without a server.
    pub fn check(&self) -> Result<(), StoreError> {
        let name = &self.generation;
        let prefix = &self.prefix;
        let is_plain =
            |byte: u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'A'..=b'Z' | b'_' | b'-');
        let wrong = if self.uri.contains('@') {
            Some("the uri must not hold a user or password: name the password's variable")
        } else if name.is_empty() || name.len() > GENERATION_BYTES_MAX {
            Some("a generation's name has 1 to 40 bytes")
        } else if !name.bytes().all(is_plain) {
            Some("a generation's name has only letters, digits, _ and -")
        } else if prefix.is_empty() || prefix.len() > PREFIX_BYTES_MAX {
            Some("the prefix has 1 to 20 bytes")
        } else if !prefix.bytes().all(is_plain) || prefix.contains(BETWEEN) || prefix.ends_with('-')
        {
            Some("the prefix has only letters, digits, _ and single - between them")
        } else if self.connections == 0 {
            Some("at least one connection is needed")
        } else {
            None
        };
        match wrong {
            Some(what) => Err(unusable(what)),
            None => Ok(()),
        }
    }

    /// # Errors
    /// [`StoreError::Unusable`] when the named variable is not set.
    pub(super) fn password(&self) -> Result<Zeroizing<String>, StoreError> {
        let Some(name) = &self.password_env else {
            return Ok(Zeroizing::new(String::new()));
        };
        match std::env::var(name) {
            Ok(password) => Ok(Zeroizing::new(password)),
            Err(_) => Err(unusable(&format!(
                "the environment variable {name} should hold its password and is not set"
            ))),
        }
    }
}

fn unusable(what: &str) -> StoreError {
    StoreError::Unusable {
        what: format!("graph (neo4j): {what}"),
    }
}

/// Without the address, which somebody may have put a password into.
impl fmt::Debug for Neo4jConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Neo4jConfig")
            .field("generation", &self.generation)
            .field("database", &self.database)
            .field("deadline", &self.deadline)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str) -> Result<Neo4jConfig, String> {
        let config: Neo4jConfig =
            toml::from_str(text).map_err(|error| error.message().to_owned())?;
        config.check().map_err(|error| error.to_string())?;
        Ok(config)
    }

    #[test]
    fn an_address_is_enough() {
        let config = check("uri = 'bolt://localhost:7687'").unwrap();
        assert_eq!(config.generation, "live");
        assert_eq!(config.deadline, Duration::from_secs(2));
    }

    #[test]
    fn what_is_wrong_is_said() {
        for (text, expected) in [
            ("", "missing field `uri`"),
            ("uri = 'bolt://a'\ndeadline = 5", "invalid type"),
            ("uri = 'bolt://a'\ndeadline = '5 parsecs'", "as 250ms"),
            ("uri = 'bolt://a'\nport = 3", "unknown field"),
            (
                "uri = 'bolt://neo4j:secret@a'",
                "must not hold a user or password",
            ),
            ("uri = 'bolt://a'\ngeneration = 'a'", "unknown field"),
            ("uri = 'bolt://a'\nprefix = ''", "1 to 20 bytes"),
            ("uri = 'bolt://a'\nprefix = 'a b'", "only letters"),
            ("uri = 'bolt://a'\nprefix = 'a--b'", "only letters"),
            ("uri = 'bolt://a'\nconnections = 0", "at least one"),
        ] {
            let error = check(text).unwrap_err();
            assert!(error.contains(expected), "{text}: {error}");
            assert!(!error.contains("secret"), "{error}");
        }
    }

    #[test]
    fn a_missing_password_names_its_variable() {
        let mut config = Neo4jConfig::new("bolt://a");
        config.password_env = Some("ANAMNESIS_NO_SUCH_VARIABLE".to_owned());
        let error = config.password().unwrap_err().to_string();
        assert!(error.contains("ANAMNESIS_NO_SUCH_VARIABLE"), "{error}");
        assert!(!format!("{config:?}").contains("bolt"));
    }
}
