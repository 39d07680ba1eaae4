//! What has to be said about the server, and what of it is never printed?

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use anamnesis_pipeline::keyring::KeyringError;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use tokio_postgres::config::Host;

use super::failed::unusable;

/// Identifiers of PostgreSQL end at 63 bytes; names of tables are not longer than this one.
const SCHEMA_BYTES_MAX: usize = 63;

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PostgresKeyringConfig {
    /// `postgres://user@host:port/database`. With `?sslmode=require` the connection is encrypted and
    /// the server's certificate and name are checked; without, it is in clear. Directly to the server
    /// or through a pooler in session mode: prepared statements and `LISTEN` belong to a session.
    pub url: Address,
    /// Environment variable that holds the password.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub password_env: Option<String>,
    /// Who may have signed the server's certificate, as PEM. The system's authorities by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls_ca_file: Option<PathBuf>,
    /// File that holds the master key. Every process that uses the keyring has the same one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub master_key_file: Option<PathBuf>,
    /// Environment variable that holds the master key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub master_key_env: Option<String>,
    /// Made when it is not there. Two keyrings in one database have two schemas.
    #[serde(default = "schema_default")]
    pub schema: String,
    /// Connections for calls; one more waits for news of erasures.
    #[serde(default = "connections_default")]
    pub connections_max: usize,
    /// Of one call.
    #[serde(default = "deadline_default", with = "crate::period")]
    pub deadline: Duration,
    /// Of one destruction, which writes a part of the keys anew.
    #[serde(default = "destroy_deadline_default", with = "crate::period")]
    pub destroy_deadline: Duration,
    /// A key that was read longer ago is read again before it is used: how long a key that another
    /// process destroyed can be used if the news of it never arrives.
    #[serde(default = "lease_default", with = "crate::period")]
    pub lease: Duration,
    /// Keys that are kept open in memory, about 200 bytes each.
    #[serde(default = "cached_keys_default")]
    pub cached_keys_max: usize,
}

fn schema_default() -> String {
    "anamnesis_keyring".to_owned()
}

/// A consumer loop makes one call at a time; a process has a handful of loops.
fn connections_default() -> usize {
    4
}

fn deadline_default() -> Duration {
    Duration::from_secs(5)
}

fn destroy_deadline_default() -> Duration {
    Duration::from_secs(60)
}

fn lease_default() -> Duration {
    Duration::from_secs(30)
}

fn cached_keys_default() -> usize {
    1 << 16
}

impl PostgresKeyringConfig {
    /// Everything but the address as it is by default.
    pub fn new(url: Address) -> Self {
        Self {
            url,
            password_env: None,
            tls_ca_file: None,
            master_key_file: None,
            master_key_env: None,
            schema: schema_default(),
            connections_max: connections_default(),
            deadline: deadline_default(),
            destroy_deadline: destroy_deadline_default(),
            lease: lease_default(),
            cached_keys_max: cached_keys_default(),
        }
    }

    pub(super) fn check(&self) -> Result<(), KeyringError> {
        let is_plain =
            |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_';
        let starts_well = self
            .schema
            .bytes()
            .next()
            .is_some_and(|byte| byte.is_ascii_lowercase() || byte == b'_');
        if !starts_well
            || !self.schema.bytes().all(is_plain)
            || self.schema.len() > SCHEMA_BYTES_MAX
            || self.schema.starts_with("pg_")
        {
            return Err(unusable(
                "the keyring's schema must be a name of at most 63 lower-case letters, digits and _, \
                 not starting with a digit or pg_",
            ));
        }
        if self.connections_max == 0 || self.cached_keys_max == 0 {
            return Err(unusable(
                "the keyring's connections_max and cached_keys_max must be at least 1",
            ));
        }
        if self.deadline.is_zero() || self.destroy_deadline.is_zero() || self.lease.is_zero() {
            return Err(unusable(
                "the keyring's deadline, destroy_deadline and lease must be longer than nothing",
            ));
        }
        Ok(())
    }
}

/// Where the server is. The password that it may contain is never printed.
#[derive(Clone, PartialEq, Eq)]
pub struct Address {
    server: tokio_postgres::Config,
    shown: String,
}

#[derive(Debug, thiserror::Error)]
#[error(
    "not an address of the form postgres://user@host:port/database, or with a parameter that is not \
     known (sslmode is disable or require)"
)]
pub struct AddressError;

impl Address {
    pub(super) fn server(&self) -> &tokio_postgres::Config {
        &self.server
    }
}

impl FromStr for Address {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        // What is wrong with it is not repeated: it may be a part of the password.
        let server: tokio_postgres::Config = text.parse().map_err(|_| AddressError)?;
        let mut hosts = Vec::new();
        for (i, host) in server.get_hosts().iter().enumerate() {
            let ports = server.get_ports();
            let port = ports.get(i).or(ports.first()).copied().unwrap_or(5432);
            hosts.push(match host {
                Host::Tcp(name) => format!("{name}:{port}"),
                #[cfg(unix)]
                Host::Unix(path) => format!("{}:{port}", path.display()),
            });
        }
        if hosts.is_empty() {
            return Err(AddressError);
        }
        let user = server.get_user().unwrap_or_default();
        let at = if user.is_empty() { "" } else { "@" };
        let database = server.get_dbname().unwrap_or(user);
        let shown = format!("postgres://{user}{at}{}/{database}", hosts.join(","));
        Ok(Self { server, shown })
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.shown)
    }
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.shown)
    }
}

impl Serialize for Address {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Address {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_is_never_printed() {
        for text in [
            "postgres://anna:s3cret@db.example:6432/keys?sslmode=require",
            "host=db.example port=6432 user=anna password=s3cret dbname=keys",
        ] {
            let config = PostgresKeyringConfig::new(text.parse().unwrap());
            let written = toml::to_string(&config).unwrap();
            for shown in [format!("{config:?}"), config.url.to_string(), written] {
                assert!(
                    shown.contains("postgres://anna@db.example:6432/keys"),
                    "{shown}"
                );
                assert!(!shown.contains("s3cret"), "{shown}");
            }
        }
        let refused = "postgres://anna:s3cret@db:port/".parse::<Address>();
        assert!(!refused.unwrap_err().to_string().contains("s3cret"));
    }

    #[test]
    fn durations_have_units_and_unknown_fields_are_refused() {
        let read = |more: &str| {
            toml::from_str::<PostgresKeyringConfig>(&format!("url = \"postgres://a@h/d\"\n{more}"))
        };
        let config = read("lease = \"500ms\"\nschema = \"keys\"").unwrap();
        assert_eq!(config.lease, Duration::from_millis(500));
        assert_eq!(config.deadline, Duration::from_secs(5));
        config.check().unwrap();
        assert!(read("lease = 500").is_err());
        assert!(read("leese = \"1s\"").is_err());
    }

    #[test]
    fn a_schema_is_a_plain_name() {
        for (schema, is_good) in [
            ("keys_2", true),
            ("_keys", true),
            ("", false),
            ("2keys", false),
            ("Keys", false),
            ("keys; drop", false),
            ("ke\"ys", false),
            ("pg_keys", false),
            ("密钥", false),
        ] {
            let url = "postgres://a@h/d".parse().unwrap();
            let config = PostgresKeyringConfig {
                schema: schema.to_owned(),
                ..PostgresKeyringConfig::new(url)
            };
            assert_eq!(config.check().is_ok(), is_good, "{schema}");
        }
    }
}
