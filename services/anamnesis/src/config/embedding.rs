//! What makes vectors: nothing that knows a language, models in this process, or a server?

use std::num::{NonZeroU32, NonZeroUsize};
use std::path::PathBuf;
use std::sync::Arc;

use anamnesis_adapters::onnx_embedder::OnnxEmbedder;
use anamnesis_adapters::query_cache::QueryCache;
use anamnesis_pipeline::embedder::{Embed, EmbedError};
use anamnesis_pipeline::hash_embedder::HashEmbedder;
use anamnesis_servers::embeddings::{EmbeddingsConfig, EmbeddingsServer};
use serde::{Deserialize, Serialize};

use super::units::Period;

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum EmbeddingConfig {
    /// No language model: vectors say only which words two texts share, and every answer says so.
    Hash {},
    Onnx {
        /// Folder that `infra/get-models.sh` filled.
        dir: PathBuf,
        /// Folders in `dir`, each with a model: their vectors are joined to one. None: the model of `dir`.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        models: Vec<String>,
        /// The ONNX runtime's shared library; looked for in `dir` unless named.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        runtime: Option<PathBuf>,
        #[serde(default = "threads_default")]
        threads: u32,
    },
    /// A server behind an OpenAI-compatible API.
    Endpoint(Box<EndpointEmbedding>),
}

/// How vectors are asked for over HTTP.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EndpointEmbedding {
    /// Down to the part before `/embeddings`.
    pub url: String,
    /// Names the vectors, too: another model behind the same name would be compared with the old one's.
    pub model: String,
    pub dimension: NonZeroU32,
    /// Environment variable that holds the API key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub api_key_env: Option<String>,
    /// Certificates (PEM) that the server is trusted by, instead of the system's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ca_file: Option<PathBuf>,
    #[serde(default = "endpoint_connect_default")]
    pub connect_timeout: Period,
    /// For one call. A question also has `recall.vector_deadline`, whichever is shorter.
    #[serde(default = "endpoint_timeout_default")]
    pub timeout: Period,
    /// Texts in one call.
    #[serde(default = "batch_default")]
    pub batch: NonZeroU32,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub query_prefix: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub passage_prefix: String,
}

fn endpoint_connect_default() -> Period {
    Period::secs(2)
}

fn endpoint_timeout_default() -> Period {
    Period::secs(10)
}

fn batch_default() -> NonZeroU32 {
    NonZeroU32::new(32).unwrap_or(NonZeroU32::MIN)
}

impl Default for EmbeddingConfig {
    fn default() -> Self {
        Self::Hash {}
    }
}

/// One: recalls run side by side, and two threads per sentence only take turns on two cores.
fn threads_default() -> u32 {
    1
}

impl EmbeddingConfig {
    /// Loads the models, or makes the client of the server, which is not asked yet.
    ///
    /// # Errors
    /// [`EmbedError::Unusable`], naming the file, the setting or the variable that is wrong.
    pub fn open(&self) -> Result<Embed, EmbedError> {
        let inner: Embed = match self {
            // Hashing a question again costs less than looking for it.
            Self::Hash {} => return Ok(Arc::new(HashEmbedder::new())),
            Self::Onnx {
                dir,
                models,
                runtime,
                threads,
            } => {
                let threads = *threads as usize;
                Arc::new(OnnxEmbedder::load(
                    dir,
                    models,
                    runtime.as_deref(),
                    threads,
                )?)
            }
            Self::Endpoint(endpoint) => Arc::new(endpoint.server()?),
        };
        Ok(Arc::new(QueryCache::new(inner)?))
    }
}

impl EndpointEmbedding {
    fn server(&self) -> Result<EmbeddingsServer, EmbedError> {
        let key = |name: &String| {
            std::env::var(name).map_err(|_| EmbedError::Unusable {
                reason: format!(
                    "the environment variable {name} should hold the model's API key and is not set"
                ),
            })
        };
        let batch = usize::try_from(self.batch.get()).ok();
        EmbeddingsServer::new(EmbeddingsConfig {
            url: self.url.clone(),
            model: self.model.clone(),
            dimension: self.dimension.get(),
            api_key: self.api_key_env.as_ref().map(key).transpose()?,
            ca_file: self.ca_file.clone(),
            connect_timeout: self.connect_timeout.duration(),
            timeout: self.timeout.duration(),
            batch: batch
                .and_then(NonZeroUsize::new)
                .unwrap_or(NonZeroUsize::MIN),
            query_prefix: self.query_prefix.clone(),
            passage_prefix: self.passage_prefix.clone(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(toml: &str, expected: &str) {
        let read: Result<EmbeddingConfig, toml::de::Error> = toml::from_str(toml);
        let found = match read {
            Err(error) => error.message().to_owned(),
            Ok(config) => match config.open() {
                Err(error) => error.to_string(),
                Ok(embed) => embed.identity().to_string(),
            },
        };
        assert!(found.contains(expected), "{found}");
    }

    #[test]
    fn a_server_is_named_with_what_must_be_known_of_it() {
        let least = "kind = \"endpoint\"\nurl = \"http://127.0.0.1:8080/v1\"\nmodel = \"bge-m3\"\n";
        check(&format!("{least}dimension = 1024"), "bge-m3-");
        check(&format!("{least}dimension = 1024"), "(1024 dimensions)");
        check(least, "dimension");
        check(&format!("{least}dimension = 0"), "nonzero");
        check(
            &format!("{least}dimension = 8\napi_key_env = \"ANAMNESIS_TEST_UNSET\""),
            "ANAMNESIS_TEST_UNSET",
        );
        check(
            "kind = \"endpoint\"\nurl = \"h\"\nmodel = \"m\"\ndimension = 8",
            "its url",
        );
    }

    #[test]
    fn a_model_that_is_not_there_is_named() {
        check(
            "kind = \"onnx\"\ndir = \"no-such-dir\"\nmodels = [\"a\"]",
            "no-such-dir/a has no model.toml",
        );
    }
}
