//! Vectors from a server behind an OpenAI-compatible API (`/embeddings`), as TEI, vLLM and Ollama speak it.
//!
//! No redirect is followed and no proxy asked: what a patient said is for this server. Nothing of a text or
//! an answer stands in an error, not even the server's own words about it.
//!
//! | answer | means |
//! | --- | --- |
//! | 200 with one vector of the configured dimension per text | the vectors, made of length one |
//! | 200 with anything else, 4xx | cannot be used: asking again brings the same |
//! | 408, 429, 5xx, no answer in time, no connection | unavailable: worth another try |
//!
//! What a server runs cannot be looked into. The identity is what the configuration says, so that another
//! model behind the same name needs another name there.

use std::fmt;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::time::Duration;

use anamnesis_pipeline::embedder::{EmbedError, Embedder, ModelIdentity, Purpose};
use async_trait::async_trait;
use reqwest::header::{AUTHORIZATION, HeaderMap, HeaderValue};
use reqwest::redirect::Policy;
use reqwest::{Client, StatusCode, Url};
use serde::Deserialize;
use serde_json::json;

/// Bytes of an answer for each number in it, with room for its frame.
const BYTES_PER_NUMBER_MAX: usize = 64;
const FRAME_BYTES_MAX: usize = 64 << 10;

#[derive(Clone, PartialEq, Eq)]
pub struct EmbeddingsConfig {
    /// Down to the part before `/embeddings`: `https://host/v1`.
    pub url: String,
    pub model: String,
    pub dimension: u32,
    pub api_key: Option<String>,
    /// Certificates (PEM) that it is trusted by, instead of the system's.
    pub ca_file: Option<PathBuf>,
    pub connect_timeout: Duration,
    /// For one call.
    pub timeout: Duration,
    /// Texts in one call.
    pub batch: NonZeroUsize,
    pub query_prefix: String,
    pub passage_prefix: String,
}

impl EmbeddingsConfig {
    pub fn new(url: &str, model: &str, dimension: u32) -> Self {
        Self {
            url: url.to_owned(),
            model: model.to_owned(),
            dimension,
            api_key: None,
            ca_file: None,
            connect_timeout: Duration::from_secs(2),
            timeout: Duration::from_secs(10),
            batch: NonZeroUsize::new(32).unwrap_or(NonZeroUsize::MIN),
            query_prefix: String::new(),
            passage_prefix: String::new(),
        }
    }
}

/// The key is not shown, and somebody may have put one into the address.
impl fmt::Debug for EmbeddingsConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EmbeddingsConfig")
            .field("model", &self.model)
            .field("dimension", &self.dimension)
            .field("has_api_key", &self.api_key.is_some())
            .field("ca_file", &self.ca_file)
            .field("timeout", &self.timeout)
            .field("batch", &self.batch)
            .finish_non_exhaustive()
    }
}

/// A model that is asked over HTTP.
pub struct EmbeddingsServer {
    client: Client,
    url: Url,
    config: EmbeddingsConfig,
    identity: ModelIdentity,
}

impl EmbeddingsServer {
    /// Does not ask anything yet: without vectors the other legs answer.
    ///
    /// # Errors
    /// [`EmbedError::Unusable`] says what is wrong with the configuration.
    pub fn new(config: EmbeddingsConfig) -> Result<Self, EmbedError> {
        let not_an_address = || unusable("its url is not http://host/path or https://host/path");
        let mut url: Url = config.url.parse().map_err(|_| not_an_address())?;
        if !matches!(url.scheme(), "http" | "https") || !url.has_host() {
            return Err(not_an_address());
        }
        let has_more = url.query().is_some() || url.fragment().is_some();
        if !url.username().is_empty() || url.password().is_some() || has_more {
            return Err(unusable(
                "its url holds more than an address: the key has a setting of its own",
            ));
        }
        if config.model.is_empty() || config.dimension == 0 {
            return Err(unusable("it needs a name and a dimension"));
        }
        let path = format!("{}/embeddings", url.path().trim_end_matches('/'));
        url.set_path(&path);
        let mut headers = HeaderMap::new();
        if let Some(key) = &config.api_key {
            let value = HeaderValue::from_str(&format!("Bearer {key}"));
            let mut value = value.map_err(|_| unusable("its key holds what no header can"))?;
            value.set_sensitive(true);
            headers.insert(AUTHORIZATION, value);
        }
        let tls = if url.scheme() == "https" {
            crate::tls::client_config(config.ca_file.as_deref())
        } else {
            crate::tls::believing_nobody()
        };
        let client = Client::builder()
            .tls_backend_preconfigured(tls.map_err(unusable)?)
            .redirect(Policy::none())
            .no_proxy()
            .default_headers(headers)
            .connect_timeout(config.connect_timeout)
            .timeout(config.timeout)
            .build()
            .map_err(|_| unusable("no client can be made"))?;
        let identity = identity(&config);
        Ok(Self {
            client,
            url,
            config,
            identity,
        })
    }

    /// The vectors of as many texts as one call holds.
    async fn ask(&self, texts: &[String]) -> Result<Vec<Vec<f32>>, EmbedError> {
        let body = json!({"model": self.config.model, "input": texts, "encoding_format": "float"});
        let sent = self.client.post(self.url.clone()).json(&body).send().await;
        let mut response = sent.map_err(|error| failed(&error))?;
        match response.status() {
            StatusCode::OK => (),
            status @ (StatusCode::REQUEST_TIMEOUT | StatusCode::TOO_MANY_REQUESTS) => {
                return Err(unavailable(format!(
                    "the server answers {}",
                    status.as_u16()
                )));
            }
            status if status.is_server_error() => {
                return Err(unavailable(format!(
                    "the server answers {}",
                    status.as_u16()
                )));
            }
            status => return Err(unusable(format!("the server answers {}", status.as_u16()))),
        }
        let numbers = texts.len() * self.config.dimension as usize;
        let bytes_max = numbers * BYTES_PER_NUMBER_MAX + FRAME_BYTES_MAX;
        let mut body = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(|error| failed(&error))? {
            body.extend_from_slice(&chunk);
            if body.len() > bytes_max {
                return Err(unusable("the answer is longer than the vectors can be"));
            }
        }
        read(&body, texts.len(), self.config.dimension)
    }
}

#[async_trait]
impl Embedder for EmbeddingsServer {
    fn identity(&self) -> &ModelIdentity {
        &self.identity
    }

    fn is_semantic(&self) -> bool {
        true
    }

    async fn embed(&self, texts: &[&str], purpose: Purpose) -> Result<Vec<Vec<f32>>, EmbedError> {
        let prefix = match purpose {
            Purpose::Query => &self.config.query_prefix,
            Purpose::Passage => &self.config.passage_prefix,
        };
        let mut vectors = vec![vec![0.0; self.config.dimension as usize]; texts.len()];
        let wanted: Vec<usize> = (0..texts.len())
            .filter(|at| !texts[*at].trim().is_empty())
            .collect();
        for batch in wanted.chunks(self.config.batch.get()) {
            let asked: Vec<String> = batch
                .iter()
                .map(|at| format!("{prefix}{}", texts[*at]))
                .collect();
            for (at, vector) in batch.iter().zip(self.ask(&asked).await?) {
                vectors[*at] = vector;
            }
        }
        Ok(vectors)
    }
}

/// Everything in the configuration that decides what a vector is. Where the server stands does not.
fn identity(config: &EmbeddingsConfig) -> ModelIdentity {
    let mut hasher = blake3::Hasher::new();
    for part in [&config.model, &config.query_prefix, &config.passage_prefix] {
        hasher
            .update(&(part.len() as u64).to_le_bytes())
            .update(part.as_bytes());
    }
    let hash = hasher.finalize().to_hex();
    ModelIdentity {
        id: format!("{}-{}", config.model, &hash[..16]),
        dimension: config.dimension,
    }
}

#[derive(Deserialize)]
struct Answer {
    data: Vec<One>,
}

#[derive(Deserialize)]
struct One {
    index: usize,
    embedding: Vec<f32>,
}

/// The vectors in the order of the texts, which an answer need not have.
fn read(body: &[u8], count: usize, dimension: u32) -> Result<Vec<Vec<f32>>, EmbedError> {
    let answer: Answer =
        serde_json::from_slice(body).map_err(|_| unusable("the answer holds no vectors"))?;
    let mut vectors: Vec<Option<Vec<f32>>> = vec![None; count];
    for one in answer.data {
        let width = one.embedding.len();
        if width != dimension as usize {
            return Err(unusable(format!(
                "the server makes vectors of {width} dimensions, and the configuration says {dimension}"
            )));
        }
        let place = vectors.get_mut(one.index);
        let place = place.ok_or_else(|| unusable("the answer has more vectors than texts"))?;
        *place = Some(unit_length(one.embedding)?);
    }
    let all: Option<Vec<Vec<f32>>> = vectors.into_iter().collect();
    all.ok_or_else(|| unusable("the answer has fewer vectors than texts"))
}

fn unit_length(mut vector: Vec<f32>) -> Result<Vec<f32>, EmbedError> {
    let square: f64 = vector.iter().map(|c| f64::from(*c).powi(2)).sum();
    let length = square.sqrt();
    if !length.is_finite() || length <= 0.0 {
        return Err(unusable("the server makes a vector without a direction"));
    }
    for component in &mut vector {
        *component = (f64::from(*component) / length) as f32;
    }
    Ok(vector)
}

/// The kind of failure, without the words of the error: they may hold the address with what is in it.
fn failed(error: &reqwest::Error) -> EmbedError {
    unavailable(if error.is_timeout() {
        "no answer in time"
    } else if error.is_connect() {
        "no connection"
    } else if error.is_body() || error.is_decode() {
        "the answer broke off"
    } else {
        "the question was not answered"
    })
}

fn unusable(reason: impl Into<String>) -> EmbedError {
    EmbedError::Unusable {
        reason: reason.into(),
    }
}

fn unavailable(reason: impl Into<String>) -> EmbedError {
    EmbedError::Unavailable {
        reason: reason.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(url: &str, key: Option<&str>, expected: Result<&str, &str>) {
        let config = EmbeddingsConfig {
            api_key: key.map(str::to_owned),
            ..EmbeddingsConfig::new(url, "m", 2)
        };
        let shown = format!("{config:?}");
        assert!(!shown.contains("secret"), "{shown}");
        match (EmbeddingsServer::new(config), expected) {
            (Ok(made), Ok(url)) => assert_eq!(made.url.as_str(), url),
            (Err(error), Err(words)) => {
                let text = error.to_string();
                assert!(text.contains(words) && !text.contains("secret"), "{text}");
            }
            (made, _) => panic!("{url}: {}", made.is_ok()),
        }
    }

    #[test]
    fn an_address_is_checked_before_anything_is_asked() {
        check(
            "http://h:80/v1/",
            Some("secret"),
            Ok("http://h/v1/embeddings"),
        );
        check("https://h", None, Ok("https://h/embeddings"));
        check("ftp://h/v1", None, Err("its url"));
        check("http://a:secret@h/v1", None, Err("more than an address"));
        check("http://h/v1?key=secret", None, Err("more than an address"));
        check("http://h/v1", Some("secret\n"), Err("no header can"));
    }

    #[test]
    fn vectors_are_put_in_order_and_made_of_length_one() {
        let check = |body: &str, expected: Result<&[[f32; 2]], &str>| match (
            read(body.as_bytes(), 2, 2),
            expected,
        ) {
            (Ok(vectors), Ok(expected)) => assert_eq!(vectors, expected, "{body}"),
            (Err(error), Err(words)) => {
                assert!(error.to_string().contains(words), "{error}");
            }
            (read, _) => panic!("{body}: {}", read.is_ok()),
        };
        let one =
            |index: u32, numbers: &str| format!(r#"{{"index":{index},"embedding":[{numbers}]}}"#);
        let data = |ones: &[String]| format!(r#"{{"data":[{}]}}"#, ones.join(","));
        check(
            &data(&[one(1, "0,5"), one(0, "3,4")]),
            Ok(&[[0.6, 0.8], [0.0, 1.0]]),
        );
        check(&data(&[one(0, "3,4")]), Err("fewer"));
        check(&data(&[one(0, "3,4"), one(2, "3,4")]), Err("more"));
        check(
            &data(&[one(0, "3,4,5")]),
            Err("3 dimensions, and the configuration says 2"),
        );
        check(&data(&[one(0, "0,0")]), Err("without a direction"));
        check("<html>", Err("no vectors"));
        check(r#"{"error":"x"}"#, Err("no vectors"));
    }

    #[test]
    fn another_name_or_prefix_is_another_identity_and_another_address_is_not() {
        let usual = EmbeddingsConfig::new("http://a/v1", "m", 2);
        let named = |change: fn(&mut EmbeddingsConfig)| {
            let mut config = usual.clone();
            change(&mut config);
            identity(&config)
        };
        assert_eq!(
            named(|c| c.url = "http://b/v1".to_owned()),
            identity(&usual)
        );
        assert_ne!(named(|c| c.model = "n".to_owned()), identity(&usual));
        assert_ne!(named(|c| c.query_prefix = "q".to_owned()), identity(&usual));
        assert_ne!(
            named(|c| c.passage_prefix = "q".to_owned()),
            identity(&usual)
        );
    }
}
