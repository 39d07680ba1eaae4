//! Which shards are there, who serves them, and what is refused before a byte is sent?

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use anamnesis_pipeline::stores::StoreError;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use tonic::transport::Uri;

/// Far more than any log has.
const PARTITION_MAX: u32 = 65_535;

/// The shards, as recall, intake, the forgetter and the audit ask them.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ShardsConfig {
    /// Each partition of `memories` is in exactly one.
    pub shards: Vec<ShardConfig>,
    /// Of one question, over all replicas: each try gets its share of what is left.
    #[serde(default = "deadline_default", with = "crate::period")]
    pub deadline: Duration,
    /// Of a question over all owners of a shard.
    #[serde(default = "sweep_deadline_default", with = "crate::period")]
    pub sweep_deadline: Duration,
    /// How often a replica that is left out is looked at again, and how long it may take to answer then.
    #[serde(default = "look_again_default", with = "crate::period")]
    pub look_again_after: Duration,
    /// The longest lease of the indexers: an erasure that not every replica has confirmed counts as
    /// effective after it.
    #[serde(default = "lease_default", with = "crate::period")]
    pub lease: Duration,
    /// Environment variable that holds the token. Without one, all replicas must be on loopback.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token_env: Option<String>,
    /// Who may have signed the certificates of `https` replicas, as PEM. The system's authorities by
    /// default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls_ca_file: Option<PathBuf>,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ShardConfig {
    pub partitions: Partitions,
    /// `http://host:port` or `https://host:port`, each an indexer with its own copy.
    pub replicas: Vec<String>,
}

/// What an indexer serves of its own copy.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ShardServerConfig {
    /// With port 0, the system chooses one.
    pub listen: SocketAddr,
    pub partitions: Partitions,
    /// How this copy is called in logs.
    pub replica: String,
    /// Environment variable that holds the token. Without one, only loopback is listened on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token_env: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls: Option<TlsFiles>,
    /// How long ago the copy must have been seen to have everything, to answer: an erasure is effective
    /// on all replicas this long after it was recorded.
    #[serde(default = "lease_default", with = "crate::period")]
    pub lease: Duration,
}

/// A server's certificate chain and key, as PEM.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TlsFiles {
    pub certificate_file: PathBuf,
    pub key_file: PathBuf,
}

fn deadline_default() -> Duration {
    Duration::from_secs(1)
}

fn sweep_deadline_default() -> Duration {
    Duration::from_secs(60)
}

fn look_again_default() -> Duration {
    Duration::from_secs(1)
}

fn lease_default() -> Duration {
    Duration::from_secs(5)
}

/// Shorter ones would fence a copy for a pause of its machine.
const LEASE_MIN: Duration = Duration::from_millis(100);

impl ShardsConfig {
    /// All defaults.
    pub fn new(shards: Vec<ShardConfig>) -> Self {
        Self {
            shards,
            deadline: deadline_default(),
            sweep_deadline: sweep_deadline_default(),
            look_again_after: look_again_default(),
            lease: lease_default(),
            token_env: None,
            tls_ca_file: None,
        }
    }

    /// The addresses of each shard, and which shard each of the log's `partitions` is in.
    ///
    /// # Errors
    /// [`StoreError::Unusable`] that names what is wrong.
    pub(super) fn plan(&self, partitions: u32) -> Result<Plan, StoreError> {
        for (name, period) in [
            ("deadline", self.deadline),
            ("sweep_deadline", self.sweep_deadline),
            ("look_again_after", self.look_again_after),
        ] {
            if period.is_zero() {
                return Err(unusable(format!(
                    "{name} of the shards must be longer than nothing"
                )));
            }
        }
        let mut shard_of = BTreeMap::new();
        let mut addresses = Vec::with_capacity(self.shards.len());
        let mut known = BTreeSet::new();
        for (shard, config) in self.shards.iter().enumerate() {
            for partition in config.partitions.iter() {
                if partition >= partitions {
                    return Err(unusable(format!(
                        "partition {partition} is in a shard, and the log has only 0 to {}",
                        partitions.saturating_sub(1)
                    )));
                }
                if shard_of.insert(partition, shard).is_some() {
                    return Err(unusable(format!(
                        "partition {partition} is in more than one shard"
                    )));
                }
            }
            let mut replicas = Vec::with_capacity(config.replicas.len());
            for text in &config.replicas {
                let address = self.address(text)?;
                if !known.insert(text.trim_end_matches('/').to_owned()) {
                    return Err(unusable(format!("{address} is listed twice as a replica")));
                }
                replicas.push(address);
            }
            if replicas.is_empty() {
                return Err(unusable(format!(
                    "the shard of partitions {} has no replica",
                    config.partitions
                )));
            }
            addresses.push(replicas);
        }
        let absent = (0..partitions).find(|partition| !shard_of.contains_key(partition));
        if let Some(partition) = absent {
            return Err(unusable(format!("partition {partition} is in no shard")));
        }
        let is_any_encrypted = addresses.iter().flatten().any(is_encrypted);
        if self.tls_ca_file.is_some() && !is_any_encrypted {
            return Err(unusable(
                "the shards name a tls_ca_file, and no replica's address is https".to_owned(),
            ));
        }
        Ok(Plan {
            shard_of,
            addresses,
        })
    }

    fn address(&self, text: &str) -> Result<Uri, StoreError> {
        // What is wrong with it is not repeated: there may be a password in it.
        let wrong = || {
            unusable(
                "a replica's address must be of the form http://host:port or https://host:port"
                    .to_owned(),
            )
        };
        let uri: Uri = text.parse().map_err(|_| wrong())?;
        let is_known_scheme = matches!(uri.scheme_str(), Some("http" | "https"));
        let is_bare = matches!(uri.path(), "" | "/") && uri.query().is_none();
        if !is_known_scheme || !is_bare || text.contains('@') || uri.port().is_none() {
            return Err(wrong());
        }
        if self.token_env.is_none() && !is_loopback(&uri) {
            return Err(unusable(format!(
                "{uri} is not on this machine: the shards need a token_env"
            )));
        }
        Ok(uri)
    }
}

impl ShardServerConfig {
    /// All defaults.
    pub fn new(listen: SocketAddr, partitions: Partitions, replica: impl Into<String>) -> Self {
        Self {
            listen,
            partitions,
            replica: replica.into(),
            token_env: None,
            tls: None,
            lease: lease_default(),
        }
    }

    /// # Errors
    /// [`StoreError::Unusable`] that names what is wrong.
    pub(super) fn check(&self, partitions: u32) -> Result<(), StoreError> {
        if let Some(partition) = self.partitions.iter().find(|one| *one >= partitions) {
            return Err(unusable(format!(
                "the shard is to serve partition {partition}, and the log has only 0 to {}",
                partitions.saturating_sub(1)
            )));
        }
        let is_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        if self.replica.is_empty() || !self.replica.chars().all(is_name) {
            return Err(unusable(
                "a replica's name must be of letters, digits, -, _ and .".to_owned(),
            ));
        }
        if self.token_env.is_none() && !self.listen.ip().is_loopback() {
            return Err(unusable(format!(
                "{} is not loopback: the shard needs a token_env",
                self.listen
            )));
        }
        if self.lease < LEASE_MIN {
            return Err(unusable(format!(
                "the lease of a shard must be at least {LEASE_MIN:?}"
            )));
        }
        Ok(())
    }
}

/// The checked whole of the shards.
pub(super) struct Plan {
    pub(super) shard_of: BTreeMap<u32, usize>,
    /// By shard.
    pub(super) addresses: Vec<Vec<Uri>>,
}

pub(super) fn is_encrypted(uri: &Uri) -> bool {
    uri.scheme_str() == Some("https")
}

pub(super) fn is_loopback(uri: &Uri) -> bool {
    let host = uri.host().unwrap_or_default();
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    host == "localhost" || bare.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

pub(super) fn unusable(what: String) -> StoreError {
    StoreError::Unusable { what }
}

/// A set of partitions: `"0-3"`, `"0-3,8"`, or a list. Never empty.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Partitions(BTreeSet<u32>);

#[derive(Debug, thiserror::Error, PartialEq, Eq, Clone, Copy)]
pub enum PartitionsError {
    #[error("partitions must be like 0-3 or 0-3,8, or a list of numbers")]
    Shape,
    #[error("no partition is named")]
    Empty,
    #[error("partition {0} is named twice")]
    Twice(u32),
    #[error("partitions go up to {PARTITION_MAX}")]
    TooLarge,
}

impl Partitions {
    /// # Errors
    /// When none is given, one is given twice, or one is beyond what any log has.
    pub fn new(numbers: impl IntoIterator<Item = u32>) -> Result<Self, PartitionsError> {
        let mut all = BTreeSet::new();
        for number in numbers {
            if number > PARTITION_MAX {
                return Err(PartitionsError::TooLarge);
            }
            if !all.insert(number) {
                return Err(PartitionsError::Twice(number));
            }
        }
        if all.is_empty() {
            return Err(PartitionsError::Empty);
        }
        Ok(Self(all))
    }

    fn parse(text: &str) -> Result<Self, PartitionsError> {
        let number = |text: &str| -> Result<u32, PartitionsError> {
            let text = text.trim();
            if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_digit()) {
                return Err(PartitionsError::Shape);
            }
            let number = text.parse().map_err(|_| PartitionsError::TooLarge)?;
            if number > PARTITION_MAX {
                return Err(PartitionsError::TooLarge);
            }
            Ok(number)
        };
        let mut all = Vec::new();
        for part in text.split(',') {
            match part.split_once('-') {
                Some((first, last)) => {
                    let (first, last) = (number(first)?, number(last)?);
                    if last < first {
                        return Err(PartitionsError::Shape);
                    }
                    all.extend(first..=last);
                }
                None => all.push(number(part)?),
            }
        }
        Self::new(all)
    }

    pub fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        self.0.iter().copied()
    }

    pub fn contains(&self, partition: u32) -> bool {
        self.0.contains(&partition)
    }
}

impl fmt::Display for Partitions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut rest = self.0.iter().copied().peekable();
        let mut is_first = true;
        while let Some(first) = rest.next() {
            let mut last = first;
            while rest.next_if_eq(&(last + 1)).is_some() {
                last += 1;
            }
            if !is_first {
                f.write_str(",")?;
            }
            is_first = false;
            if first == last {
                write!(f, "{first}")?;
            } else {
                write!(f, "{first}-{last}")?;
            }
        }
        Ok(())
    }
}

impl Serialize for Partitions {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Partitions {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Written {
            Text(String),
            List(Vec<u32>),
        }
        let written = Written::deserialize(deserializer)
            .map_err(|_| serde::de::Error::custom(PartitionsError::Shape))?;
        match written {
            Written::Text(text) => Self::parse(&text),
            Written::List(numbers) => Self::new(numbers),
        }
        .map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn partitions_are_ranges_and_lists() {
        for (text, shown) in [
            ("0-3", "0-3"),
            ("8, 0-3", "0-3,8"),
            ("1", "1"),
            ("3,1,2,7", "1-3,7"),
            ("5-5", "5"),
        ] {
            assert_eq!(Partitions::parse(text).unwrap().to_string(), shown);
        }
        for text in [
            "",
            "a",
            "3-1",
            "1,",
            "-1",
            "1-2-3",
            "0-2,2",
            "70000",
            "0-4294967295",
            "1.5",
        ] {
            assert!(Partitions::parse(text).is_err(), "{text}");
        }
    }

    fn shards(text: &str) -> Result<ShardsConfig, toml::de::Error> {
        toml::from_str(text)
    }

    #[test]
    fn a_section_reads_what_it_writes_and_refuses_what_it_does_not_know() {
        let text = "
            deadline = '250ms'
            token_env = 'SHARDS'
            [[shards]]
            partitions = '0-1'
            replicas = ['http://a:1', 'https://b:2']
            [[shards]]
            partitions = [3, 2]
            replicas = ['http://c:1']
        ";
        let config = shards(text).unwrap();
        assert_eq!(config.deadline, Duration::from_millis(250));
        assert_eq!(config.shards[1].partitions.to_string(), "2-3");
        let written = toml::to_string(&config).unwrap();
        assert_eq!(shards(&written).unwrap(), config);
        for wrong in ["deadline = 250", "deadlin = '1s'", "listen = '1s'"] {
            assert!(shards(&format!("shards = []\n{wrong}")).is_err(), "{wrong}");
        }
        let server = |more: &str| {
            let text = format!("listen = '127.0.0.1:0'\npartitions = '0-3'\nreplica = 'a'\n{more}");
            toml::from_str::<ShardServerConfig>(&text)
        };
        assert_eq!(server("").unwrap().lease, Duration::from_secs(5));
        assert!(server("lease = '2s'\n[tls]\ncertificate_file = 'c'\nkey_file = 'k'").is_ok());
        assert!(server("lease = 2").is_err());
        assert!(server("leese = '2s'").is_err());
    }

    /// Shards as `partitions=address,address`.
    fn planned(shards: &[&str], token: bool) -> Result<Plan, String> {
        let shards = shards.iter().map(|text| {
            let (partitions, replicas) = text.split_once('=').unwrap();
            ShardConfig {
                partitions: Partitions::parse(partitions).unwrap(),
                replicas: replicas.split_whitespace().map(str::to_owned).collect(),
            }
        });
        let mut config = ShardsConfig::new(shards.collect());
        config.token_env = token.then(|| "TOKEN".to_owned());
        config.plan(4).map_err(|error| error.to_string())
    }

    #[test]
    fn each_partition_is_in_exactly_one_shard() {
        let plan = planned(
            &[
                "0-1=http://[::1]:1",
                "2,3=http://localhost:2 http://127.0.0.9:3",
            ],
            false,
        );
        let plan = plan.unwrap();
        assert_eq!(
            plan.shard_of,
            BTreeMap::from([(0, 0), (1, 0), (2, 1), (3, 1)])
        );
        assert_eq!(plan.addresses[1].len(), 2);
        for (shards, said) in [
            (
                &["0-2=http://localhost:1"][..],
                "partition 3 is in no shard",
            ),
            (&[], "partition 0 is in no shard"),
            (
                &["0-2=http://localhost:1", "2-3=http://localhost:2"],
                "partition 2 is in more than one shard",
            ),
            (&["0-4=http://localhost:1"], "partition 4 is in a shard"),
            (&["0-3="], "partitions 0-3 has no replica"),
            (
                &["0-1=http://localhost:1", "2-3=http://localhost:1/"],
                "twice",
            ),
        ] {
            let error = planned(shards, false).err().expect("refused");
            assert!(error.contains(said), "{error}");
        }
    }

    #[test]
    fn an_address_is_a_host_and_a_port_and_needs_a_token_elsewhere() {
        for address in [
            "localhost:1",
            "ftp://localhost:1",
            "http://localhost",
            "http://localhost:1/x",
            "http://localhost:1/?a=b",
            "http://anna:s3cret@localhost:1",
            "http://",
            "日",
        ] {
            let error = planned(&[&format!("0-3={address}")], true)
                .err()
                .expect(address);
            assert!(!error.contains("s3cret"), "{error}");
        }
        for address in ["http://10.0.0.1:1", "https://shard-a:1", "http://0.0.0.0:1"] {
            let shard = format!("0-3={address}");
            assert!(planned(&[&shard], true).is_ok(), "{address}");
            let error = planned(&[&shard], false).err().expect("refused");
            assert!(error.contains("token_env"), "{error}");
        }
    }

    #[test]
    fn a_server_listens_elsewhere_only_with_a_token() {
        let with = |listen: &str, change: fn(&mut ShardServerConfig)| {
            let partitions = Partitions::parse("0-3").unwrap();
            let mut config = ShardServerConfig::new(listen.parse().unwrap(), partitions, "a");
            change(&mut config);
            config.check(4)
        };
        assert!(with("127.0.0.1:0", |_| ()).is_ok());
        assert!(with("[::1]:0", |_| ()).is_ok());
        assert!(with("0.0.0.0:0", |_| ()).is_err());
        assert!(
            with("0.0.0.0:0", |config| config.token_env =
                Some("T".to_owned()))
            .is_ok()
        );
        assert!(with("127.0.0.1:0", |config| config.replica = "a b".to_owned()).is_err());
        assert!(with("127.0.0.1:0", |config| config.lease = Duration::ZERO).is_err());
        let beyond = |config: &mut ShardServerConfig| {
            config.partitions = Partitions::parse("4").expect("a number");
        };
        assert!(with("127.0.0.1:0", beyond).is_err());
    }
}
