//! Who reads a turn: the rules, or beside them a language model?

use std::num::NonZeroU32;
use std::path::PathBuf;
use std::sync::Arc;

use anamnesis_extractor::ask::{Asker, Settings};
use anamnesis_extractor::prompt::Prompt;
use anamnesis_servers::chat::{ChatConfig, ChatServer};
use serde::{Deserialize, Serialize};

use super::units::Period;

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum ExtractionConfig {
    /// Rules over lexicons, and nothing that is asked over a network.
    Rules {
        #[serde(default)]
        episodes: Episodes,
    },
    /// The rules, and what a model adds that the speaker's words bear out.
    Chat(Box<ChatExtraction>),
}

impl Default for ExtractionConfig {
    fn default() -> Self {
        Self::Rules {
            episodes: Episodes::default(),
        }
    }
}

/// Which turns become memories of kind `episode` themselves.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Episodes {
    #[default]
    All,
    UserOnly,
    Off,
}

/// How a model is asked over HTTP.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ChatExtraction {
    #[serde(default)]
    pub episodes: Episodes,
    /// Of an OpenAI-compatible API, down to the part before `/chat/completions`.
    pub url: String,
    pub model: String,
    /// Environment variable that holds the API key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub api_key_env: Option<String>,
    /// Certificates (PEM) that the server is trusted by, instead of the system's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ca_file: Option<PathBuf>,
    #[serde(default = "prompt_default")]
    pub prompt: String,
    #[serde(default = "connect_timeout_default")]
    pub connect_timeout: Period,
    /// For one answer.
    #[serde(default = "timeout_default")]
    pub timeout: Period,
    /// For one turn, with everything that is tried again. Then the rules speak alone.
    #[serde(default = "patience_default")]
    pub patience: Period,
    #[serde(default = "tries_max_default")]
    pub tries_max: NonZeroU32,
    /// Owners that are asked about at the same time by this process.
    #[serde(default = "concurrency_default")]
    pub concurrency: NonZeroU32,
    /// Calls for one owner in an hour, with every repeated one.
    #[serde(default = "calls_per_hour_default")]
    pub calls_per_hour: NonZeroU32,
    /// Tokens for one owner in an hour; any number unless given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tokens_per_hour: Option<NonZeroU32>,
    #[serde(default = "answer_tokens_max_default")]
    pub answer_tokens_max: NonZeroU32,
    /// Turns in a row that fail by an outage before the model is left alone.
    #[serde(default = "outages_max_default")]
    pub outages_max: NonZeroU32,
    /// For how long.
    #[serde(default = "rest_default")]
    pub rest: Period,
}

fn prompt_default() -> String {
    Prompt::NEWEST.to_owned()
}

fn connect_timeout_default() -> Period {
    Period::secs(2)
}

fn timeout_default() -> Period {
    Period::secs(30)
}

fn period(duration: std::time::Duration) -> Period {
    Period::millis(u64::try_from(duration.as_millis()).unwrap_or(u64::MAX))
}

fn number(number: u32) -> NonZeroU32 {
    NonZeroU32::new(number).unwrap_or(NonZeroU32::MIN)
}

fn patience_default() -> Period {
    period(Settings::default().patience)
}

fn tries_max_default() -> NonZeroU32 {
    number(Settings::default().tries_max)
}

fn concurrency_default() -> NonZeroU32 {
    number(u32::try_from(Settings::default().concurrency).unwrap_or(u32::MAX))
}

fn calls_per_hour_default() -> NonZeroU32 {
    number(Settings::default().calls_per_hour.unwrap_or(u32::MAX))
}

fn answer_tokens_max_default() -> NonZeroU32 {
    number(Settings::default().answer_tokens_max)
}

fn outages_max_default() -> NonZeroU32 {
    number(Settings::default().outages_max)
}

fn rest_default() -> Period {
    period(Settings::default().rest)
}

impl ExtractionConfig {
    pub fn episodes(&self) -> anamnesis_extractor::Episodes {
        let episodes = match self {
            Self::Rules { episodes } => *episodes,
            Self::Chat(chat) => chat.episodes,
        };
        match episodes {
            Episodes::All => anamnesis_extractor::Episodes::All,
            Episodes::UserOnly => anamnesis_extractor::Episodes::UserOnly,
            Episodes::Off => anamnesis_extractor::Episodes::Off,
        }
    }

    pub fn set_episodes(&mut self, which: Episodes) {
        match self {
            Self::Rules { episodes } => *episodes = which,
            Self::Chat(chat) => chat.episodes = which,
        }
    }

    /// What no single key can tell.
    ///
    /// # Errors
    /// A sentence that names the key.
    pub(super) fn check(&self) -> Result<(), String> {
        let Self::Chat(chat) = self else {
            return Ok(());
        };
        if Prompt::of(&chat.prompt).is_none() {
            let versions = Prompt::versions().join(", ");
            return Err(format!(
                "extraction.prompt `{}` does not exist; there are: {versions}",
                chat.prompt
            ));
        }
        if chat.patience < chat.timeout {
            return Err(
                "extraction.patience is shorter than extraction.timeout: no answer could be waited for"
                    .to_owned(),
            );
        }
        Ok(())
    }

    /// The model that is asked; `None` when the rules read alone.
    ///
    /// # Errors
    /// A sentence that says what is wrong, or which variable is not set.
    pub fn asker(&self) -> Result<Option<Arc<Asker>>, String> {
        let Self::Chat(chat) = self else {
            return Ok(None);
        };
        let key = |name: &String| {
            std::env::var(name).map_err(|_| {
                format!(
                    "the environment variable {name} should hold the model's API key and is not set"
                )
            })
        };
        let server = ChatServer::new(&ChatConfig {
            url: chat.url.clone(),
            model: chat.model.clone(),
            api_key: chat.api_key_env.as_ref().map(key).transpose()?,
            ca_file: chat.ca_file.clone(),
            connect_timeout: chat.connect_timeout.duration(),
            timeout: chat.timeout.duration(),
        });
        let server = server.map_err(|error| error.to_string())?;
        let prompt = Prompt::of(&chat.prompt)
            .ok_or_else(|| format!("extraction.prompt `{}` does not exist", chat.prompt))?;
        let settings = Settings {
            concurrency: chat.concurrency.get() as usize,
            tries_max: chat.tries_max.get(),
            patience: chat.patience.duration(),
            calls_per_hour: Some(chat.calls_per_hour.get()),
            tokens_per_hour: chat.tokens_per_hour.map(NonZeroU32::get),
            outages_max: chat.outages_max.get(),
            rest: chat.rest.duration(),
            answer_tokens_max: chat.answer_tokens_max.get(),
            ..Settings::default()
        };
        Ok(Some(Asker::new(Arc::new(server), prompt, settings)))
    }
}
