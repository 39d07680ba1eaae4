//! What is configured? One TOML file, the environment (`ANAMNESIS__SECTION__KEY`) over it, flags over
//! both. An unknown key is refused with a suggestion: a misspelt `consent` must not mean its default.
//!
//! A backend is a tagged choice (`kind = "sqlite"`), so that embedded and distributed differ in values
//! and not in code paths. A kind without settings is an empty struct variant, because serde lets a unit
//! variant ignore unknown keys. What goes wrong while reading is told by [`ConfigError`].

mod embedding;
mod error;
mod extraction;
mod layers;
mod units;
mod watch;

use std::net::{Ipv4Addr, SocketAddr};
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};

use anamnesis_domain::memory::Permille;
use anamnesis_intake::inbox::InboxConfig;
use anamnesis_pipeline::caller::{Callers, TokenConfig};
use anamnesis_servers::kafka::KafkaConfig;
use anamnesis_servers::neo4j::Neo4jConfig;
use anamnesis_servers::postgres_keyring::PostgresKeyringConfig;
use anamnesis_servers::qdrant::config::QdrantConfig;
use anamnesis_servers::shard::config::{ShardServerConfig, ShardsConfig};
use figment::Figment;
use figment::providers::Serialized;
use serde::{Deserialize, Serialize};

pub use self::embedding::{EmbeddingConfig, EndpointEmbedding};
pub use self::error::ConfigError;
pub use self::extraction::{ChatExtraction, Episodes, ExtractionConfig};
use self::layers::{Environment, File, Kinds};
pub use self::units::{Period, Zone};
pub use self::watch::WatchConfig;

/// Has no `Debug`: what may be shown is [`Config::to_masked_toml`].
#[derive(Clone, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    pub profile: Profile,
    /// The log, the keys and the stores live here.
    pub data_dir: PathBuf,
    /// Where HTTP is served. Anything but loopback needs `[[callers]]`.
    pub listen: SocketAddr,
    /// The tenant of owners that a shape gives without one.
    pub tenant: String,
    /// The clock of dates and times that come without one, and of "last year" in a question.
    pub zone: Zone,
    pub log: LogConfig,
    pub keyring: KeyringConfig,
    pub records: RecordsConfig,
    pub text: TextConfig,
    /// What an indexer of its own serves of its records and text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shard: Option<ShardServerConfig>,
    pub vectors: VectorsConfig,
    pub graph: GraphConfig,
    pub embedding: EmbeddingConfig,
    pub consent: ConsentConfig,
    pub extraction: ExtractionConfig,
    pub recall: RecallConfig,
    pub review: ReviewConfig,
    pub forget: ForgetConfig,
    pub ready: ReadyConfig,
    pub telemetry: TelemetryConfig,
    pub watch: WatchConfig,
    pub callers: Vec<TokenConfig>,
    /// Platforms that write to Kafka. Without it nothing is read there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub inbox: Option<InboxConfig>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            profile: Profile::default(),
            data_dir: PathBuf::from("data"),
            listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 7700)),
            tenant: "local".to_owned(),
            zone: Zone::default(),
            log: LogConfig::default(),
            keyring: KeyringConfig::default(),
            records: RecordsConfig::default(),
            text: TextConfig::default(),
            shard: None,
            vectors: VectorsConfig::default(),
            graph: GraphConfig::default(),
            embedding: EmbeddingConfig::default(),
            consent: ConsentConfig::default(),
            extraction: ExtractionConfig::default(),
            recall: RecallConfig::default(),
            review: ReviewConfig::default(),
            forget: ForgetConfig::default(),
            ready: ReadyConfig::default(),
            telemetry: TelemetryConfig::default(),
            watch: WatchConfig::default(),
            callers: Vec::new(),
            inbox: None,
        }
    }
}

/// When the node says of itself that it is ready.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ReadyConfig {
    /// Oldest record that a stage may not have answered.
    pub oldest_max: Period,
}

impl Default for ReadyConfig {
    fn default() -> Self {
        Self {
            oldest_max: Period::secs(60),
        }
    }
}

/// Questions to a person.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ReviewConfig {
    /// How long one stays open. After that nobody is asked, and everything stands as it stood.
    pub expires: Period,
}

impl Default for ReviewConfig {
    fn default() -> Self {
        Self {
            expires: Period::days(30),
        }
    }
}

impl ReviewConfig {
    pub fn expires_millis(&self) -> i64 {
        i64::try_from(self.expires.duration().as_millis()).unwrap_or(i64::MAX)
    }
}

/// How careful the process is: production refuses log levels that could carry what was said.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Profile {
    #[default]
    Development,
    Production,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum LogConfig {
    Sqlite {
        /// Fixed when the log is created.
        #[serde(default = "partitions_default")]
        partitions: u32,
    },
    Kafka(Box<KafkaConfig>),
}

/// More than any site needs; each costs some files and a task.
const PARTITIONS_MAX: u32 = 1024;

fn partitions_default() -> u32 {
    4
}

impl Default for LogConfig {
    fn default() -> Self {
        Self::Sqlite {
            partitions: partitions_default(),
        }
    }
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum KeyringConfig {
    Sqlite {
        /// `keys.db` in the data folder unless it shall live elsewhere.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        path: Option<PathBuf>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        master_key_file: Option<PathBuf>,
        /// Environment variable that holds the master key.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        master_key_env: Option<String>,
    },
    Postgres(Box<PostgresKeyringConfig>),
}

impl KeyringConfig {
    /// File and environment variable of the master key.
    pub fn master_key(&self) -> (Option<&Path>, Option<&str>) {
        let (file, variable) = match self {
            Self::Sqlite {
                path: _,
                master_key_file,
                master_key_env,
            } => (master_key_file, master_key_env),
            Self::Postgres(config) => (&config.master_key_file, &config.master_key_env),
        };
        (file.as_deref(), variable.as_deref())
    }
}

impl Default for KeyringConfig {
    fn default() -> Self {
        Self::Sqlite {
            path: None,
            master_key_file: None,
            master_key_env: None,
        }
    }
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum RecordsConfig {
    Sqlite {},
    /// Asked of the indexers that serve them, together with the text.
    Shards(Box<ShardsConfig>),
}

impl Default for RecordsConfig {
    fn default() -> Self {
        Self::Sqlite {}
    }
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum TextConfig {
    Tantivy {},
    /// Asked of the shards that `[records]` names.
    Shards {},
}

impl Default for TextConfig {
    fn default() -> Self {
        Self::Tantivy {}
    }
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum VectorsConfig {
    /// Exact search over one owner's block of memory-mapped vectors.
    Mmap {},
    Qdrant(Box<QdrantConfig>),
}

impl Default for VectorsConfig {
    fn default() -> Self {
        Self::Mmap {}
    }
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum GraphConfig {
    Sqlite {},
    Neo4j(Box<Neo4jConfig>),
}

impl Default for GraphConfig {
    fn default() -> Self {
        Self::Sqlite {}
    }
}

#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ConsentConfig {
    pub default: ConsentDefault,
}

/// What holds for an owner who was never asked.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ConsentDefault {
    /// Nothing is stored without a grant.
    #[default]
    Required,
    Granted,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RecallConfig {
    /// Relevance below which nothing is returned.
    pub floor: Permille,
    /// A slower leg is left out, and the answer says so.
    pub text_deadline: Period,
    /// With the embedding of the question.
    pub vector_deadline: Period,
    pub graph_deadline: Period,
    /// How long `wait_for` waits before the answer comes without what it waited for.
    pub wait_for: Period,
    /// Questions that are answered as a whole at the same time; the others are answered from what protects,
    /// or refused. By default by what the stores are.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at_once: Option<NonZeroU32>,
}

impl Default for RecallConfig {
    fn default() -> Self {
        Self {
            floor: Permille::new(450),
            text_deadline: Period::millis(250),
            vector_deadline: Period::millis(250),
            graph_deadline: Period::millis(100),
            wait_for: Period::secs(5),
            at_once: None,
        }
    }
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ForgetConfig {
    /// Memories of one owner above which the least valuable are archived. Protected ones never.
    pub capacity_per_owner: u32,
    /// How long receipts of recalls are kept.
    pub accesses_kept: Period,
    /// How long raw records of the inbox are kept.
    pub inbox_kept: Period,
    /// What lacked consent is released by a grant within this time, and unreadable after it.
    pub quarantine_kept: Period,
    /// Time between two looks for what has expired, was accessed or is too much.
    pub every: Period,
}

impl Default for ForgetConfig {
    fn default() -> Self {
        Self {
            capacity_per_owner: 50_000,
            accesses_kept: Period::days(90),
            inbox_kept: Period::hours(24),
            quarantine_kept: Period::hours(72),
            every: Period::secs(60),
        }
    }
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TelemetryConfig {
    /// A level (`info`), or levels by module (`info,anamnesis_recall=debug`).
    pub level: String,
    pub format: LogFormat,
}

impl Default for TelemetryConfig {
    fn default() -> Self {
        Self {
            level: "info".to_owned(),
            format: LogFormat::default(),
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LogFormat {
    #[default]
    Text,
    Json,
}

/// What flags set, over file and environment.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Flags {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub data_dir: Option<PathBuf>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub listen: Option<SocketAddr>,
}

impl Config {
    /// Reads the configuration of this process.
    ///
    /// # Errors
    /// A sentence that names the place, the key and what to do; see [`ConfigError`].
    pub fn load(file: Option<&Path>, flags: &Flags) -> Result<Self, ConfigError> {
        // A variable that is not Unicode cannot be one of ours.
        let environment = std::env::vars_os().filter_map(|(name, value)| {
            Some((name.into_string().ok()?, value.into_string().ok()?))
        });
        Self::from_parts(file, environment, flags)
    }

    /// # Errors
    /// As [`Config::load`].
    pub fn from_parts(
        file: Option<&Path>,
        environment: impl IntoIterator<Item = (String, String)>,
        flags: &Flags,
    ) -> Result<Self, ConfigError> {
        let mut figment = Figment::from(Kinds);
        if let Some(path) = file {
            let text = std::fs::read_to_string(path).map_err(|source| ConfigError::Unreadable {
                path: path.to_owned(),
                source,
            })?;
            figment = figment.merge(File { path, text });
        }
        let figment = figment
            .merge(Environment::from(environment))
            .merge(Serialized::defaults(flags));
        let config: Self = figment
            .extract()
            .map_err(|error| ConfigError::from_figment(&figment, error))?;
        config.check()?;
        Ok(config)
    }

    /// What no single key can tell.
    fn check(&self) -> Result<(), ConfigError> {
        let refuse = |message: &str| {
            Err(ConfigError::Refused {
                message: message.to_owned(),
            })
        };
        let partitions = match &self.log {
            LogConfig::Sqlite { partitions } => Some(*partitions),
            LogConfig::Kafka(kafka) => kafka.partitions,
        };
        if partitions.is_some_and(|partitions| !(1..=PARTITIONS_MAX).contains(&partitions)) {
            return refuse("log.partitions must be from 1 to 1024");
        }
        match self.keyring.master_key() {
            (Some(_), Some(_)) => {
                return refuse("give keyring.master_key_file or keyring.master_key_env, not both");
            }
            (None, None) if matches!(self.keyring, KeyringConfig::Postgres(_)) => {
                return refuse(
                    "a keyring that several processes share needs one master key that all of them have: \
                     give keyring.master_key_file or keyring.master_key_env",
                );
            }
            (None, _) | (_, None) => (),
        }
        if let Some(inbox) = &self.inbox {
            if let Err(message) = inbox.caller() {
                return refuse(&message);
            }
            if !matches!(self.log, LogConfig::Kafka(_)) {
                return refuse("inbox is a topic of Kafka: configure [log] with kind = \"kafka\"");
            }
        }
        let is_sharded = matches!(self.records, RecordsConfig::Shards(_));
        if is_sharded != matches!(self.text, TextConfig::Shards {}) {
            return refuse(
                "records and text are served together: give both kind = \"shards\", or none",
            );
        }
        if let GraphConfig::Neo4j(graph) = &self.graph
            && let Err(error) = graph.check()
        {
            return refuse(&error.to_string());
        }
        if let Err(message) = self.extraction.check() {
            return refuse(&message);
        }
        if self.tenant.is_empty() || self.tenant.contains(['/', '*']) {
            return refuse("tenant must be a name without / and *");
        }
        if !self.listen.ip().is_loopback() && self.callers.is_empty() {
            return Err(ConfigError::Refused {
                message: format!(
                    "listening on {} without callers would open every memory to the network; add \
                     [[callers]] with a token (token_blake3 or token_env), or listen on 127.0.0.1:{}",
                    self.listen,
                    self.listen.port(),
                ),
            });
        }
        Ok(())
    }

    /// Who may call. Without configured tokens everybody on this machine may.
    ///
    /// # Errors
    /// When a token is given in neither way or in both, or its variable is not set.
    pub fn callers(&self) -> Result<Callers, ConfigError> {
        if self.callers.is_empty() {
            return Ok(Callers::open_on_loopback(&self.tenant));
        }
        Callers::from_config(&self.callers, &self.tenant).map_err(|message| ConfigError::Refused {
            message: format!("[[callers]] {message}"),
        })
    }

    /// The effective configuration as TOML that can be read again, with secrets masked.
    ///
    /// # Errors
    /// When a path is not Unicode.
    pub fn to_masked_toml(&self) -> Result<String, toml::ser::Error> {
        let mut masked = self.clone();
        for caller in &mut masked.callers {
            // A weak token could be guessed from its hash.
            if let Some(hash) = &mut caller.token_blake3 {
                *hash = MASK.to_owned();
            }
        }
        if let LogConfig::Kafka(kafka) = &mut masked.log {
            **kafka = kafka.masked();
        }
        toml::to_string_pretty(&masked)
    }
}

const MASK: &str = "***";

#[cfg(test)]
mod tests {
    use super::*;

    fn read(toml: &str, environment: &[(&str, &str)], flags: &Flags) -> Config {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("anamnesis.toml");
        std::fs::write(&file, toml).unwrap();
        let environment = environment
            .iter()
            .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()));
        Config::from_parts(Some(&file), environment, flags)
            .unwrap_or_else(|error| panic!("{error}"))
    }

    #[test]
    fn flags_win_over_the_environment_and_that_over_the_file() {
        let file =
            "data_dir = \"f\"\ntenant = \"f\"\nlisten = \"127.0.0.1:1\"\n[log]\npartitions = 8";
        let environment = [
            ("ANAMNESIS__DATA_DIR", "e"),
            ("ANAMNESIS__LISTEN", "127.0.0.1:2"),
            ("ANAMNESIS__RECALL__TEXT_DEADLINE", "20ms"),
            ("ANAMNESIS_DATA", "not ours"),
        ];
        let flags = Flags {
            listen: Some(SocketAddr::from(([127, 0, 0, 1], 3))),
            data_dir: None,
        };
        let config = read(file, &environment, &flags);
        assert_eq!(
            (config.tenant.as_str(), config.data_dir.as_path()),
            ("f", Path::new("e"))
        );
        assert_eq!(config.listen.port(), 3);
        assert_eq!(config.recall.text_deadline, Period::millis(20));
        assert_eq!(config.log, LogConfig::Sqlite { partitions: 8 });
    }

    #[test]
    fn nothing_configured_is_the_embedded_default() {
        let empty = read("", &[], &Flags::default());
        let shown = empty.to_masked_toml().unwrap();
        assert_eq!(shown, Config::default().to_masked_toml().unwrap());
        assert!(empty.listen.ip().is_loopback());
        assert_eq!(empty.consent.default, ConsentDefault::Required);
        assert!(empty.callers().unwrap().is_open());
    }

    #[test]
    fn what_is_shown_can_be_read_again_and_shows_no_secret() {
        let hash = "5".repeat(64);
        let file = format!(
            "listen = \"0.0.0.0:7700\"\n[embedding]\nkind = \"onnx\"\ndir = \"m\"\n[[callers]]\n\
             name = \"triage\"\ntoken_blake3 = \"{hash}\"\ntenants = [\"h1\"]\nroles = [\"assistant\"]"
        );
        let config = read(&file, &[], &Flags::default());
        assert!(!config.callers().unwrap().is_open());
        let shown = config.to_masked_toml().unwrap();
        assert!(!shown.contains(&hash) && shown.contains(MASK), "{shown}");
        let again = read(&shown, &[], &Flags::default());
        assert_eq!(again.to_masked_toml().unwrap(), shown);
    }

    #[test]
    fn a_token_whose_variable_is_not_set_is_refused_by_name() {
        let file = "[[callers]]\nname = \"triage\"\ntoken_env = \"ANAMNESIS_TEST_UNSET\"\n\
                    tenants = [\"*\"]\nroles = [\"operator\"]";
        let error = read(file, &[], &Flags::default()).callers().err().unwrap();
        assert_eq!(
            error.to_string(),
            "[[callers]] token triage: the environment variable ANAMNESIS_TEST_UNSET is not set"
        );
    }
}
