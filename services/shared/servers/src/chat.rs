//! A language model behind an OpenAI-compatible API (`/chat/completions`), as many servers speak it: one
//! try, at temperature 0, with a JSON schema for the answer.
//!
//! No redirect is followed and no proxy asked: what a patient said is for this server. Nothing of a
//! question or an answer stands in an error, not even the server's own words about it.
//!
//! | answer | means |
//! | --- | --- |
//! | 200 with a choice | the answer, whatever it says |
//! | 200 without a choice, or with an empty one | `empty_answer` |
//! | a refusal, or stopped by a content filter | `declined` |
//! | 200 with anything else | `not_an_answer` |
//! | 408, or no answer in time | `timeout` |
//! | 429, and how long to wait | `busy` |
//! | 5xx | `server_failing` |
//! | any other | `refused` |

use std::fmt;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use anamnesis_domain::text::Text;
use anamnesis_pipeline::chat::{ChatAnswer, ChatError, ChatModel, ChatRequest};
use async_trait::async_trait;
use reqwest::header::{AUTHORIZATION, HeaderMap, HeaderValue, RETRY_AFTER};
use reqwest::redirect::Policy;
use reqwest::{Client, Response, StatusCode, Url};
use serde::Deserialize;
use serde_json::json;

/// Longest answer with its frame. A record holds it whole, beside the candidates found in it.
pub const ANSWER_BYTES_MAX: usize = 256 << 10;

#[derive(Clone, PartialEq, Eq)]
pub struct ChatConfig {
    /// Down to the part before `/chat/completions`: `https://host/v1`.
    pub url: String,
    pub model: String,
    pub api_key: Option<String>,
    /// Certificates (PEM) that it is trusted by, instead of the system's.
    pub ca_file: Option<PathBuf>,
    pub connect_timeout: Duration,
    /// For one answer.
    pub timeout: Duration,
}

impl ChatConfig {
    pub fn new(url: &str, model: &str) -> Self {
        Self {
            url: url.to_owned(),
            model: model.to_owned(),
            api_key: None,
            ca_file: None,
            connect_timeout: Duration::from_secs(2),
            timeout: Duration::from_secs(30),
        }
    }
}

/// The key is not shown, and somebody may have put one into the address.
impl fmt::Debug for ChatConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ChatConfig")
            .field("model", &self.model)
            .field("has_api_key", &self.api_key.is_some())
            .field("ca_file", &self.ca_file)
            .field("connect_timeout", &self.connect_timeout)
            .field("timeout", &self.timeout)
            .finish_non_exhaustive()
    }
}

#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum ChatConfigError {
    #[error("the language model cannot be used: {what}")]
    Unusable { what: String },
}

fn unusable(what: impl Into<String>) -> ChatConfigError {
    ChatConfigError::Unusable { what: what.into() }
}

/// A model that is asked over HTTP.
pub struct ChatServer {
    client: Client,
    url: Url,
    model: String,
}

impl ChatServer {
    /// Does not ask anything yet: a model that is down is done without.
    ///
    /// # Errors
    /// [`ChatConfigError::Unusable`] says what is wrong with the configuration.
    pub fn new(config: &ChatConfig) -> Result<Self, ChatConfigError> {
        let not_an_address = || unusable("its url is not http://host/path or https://host/path");
        let base: Url = config.url.parse().map_err(|_| not_an_address())?;
        if !matches!(base.scheme(), "http" | "https") || !base.has_host() {
            return Err(not_an_address());
        }
        let has_more = base.query().is_some() || base.fragment().is_some();
        if !base.username().is_empty() || base.password().is_some() || has_more {
            return Err(unusable(
                "its url holds more than an address: the key has a setting of its own",
            ));
        }
        let path = format!("{}/chat/completions", base.path().trim_end_matches('/'));
        let mut url = base;
        url.set_path(&path);
        if config.model.is_empty() {
            return Err(unusable("it has no name"));
        }
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
        let tls = tls.map_err(unusable)?;
        let client = Client::builder()
            .tls_backend_preconfigured(tls)
            .redirect(Policy::none())
            .no_proxy()
            .default_headers(headers)
            .connect_timeout(config.connect_timeout)
            .timeout(config.timeout)
            .build()
            .map_err(|_| unusable("no client can be made"))?;
        Ok(Self {
            client,
            url,
            model: config.model.clone(),
        })
    }

    fn body(&self, request: &ChatRequest) -> serde_json::Value {
        json!({
            "model": self.model,
            "messages": [
                {"role": "system", "content": &*request.system},
                {"role": "user", "content": request.user.expose()},
            ],
            "temperature": 0,
            "max_tokens": request.answer_tokens_max,
            "stream": false,
            "response_format": {
                "type": "json_schema",
                "json_schema": {
                    "name": request.schema.name,
                    "strict": true,
                    "schema": request.schema.json,
                },
            },
        })
    }
}

#[async_trait]
impl ChatModel for ChatServer {
    fn model(&self) -> &str {
        &self.model
    }

    async fn complete(&self, request: &ChatRequest) -> Result<ChatAnswer, ChatError> {
        let sent = self
            .client
            .post(self.url.clone())
            .json(&self.body(request))
            .send()
            .await;
        let mut response = sent.map_err(|error| failed(&error))?;
        if response.status() != StatusCode::OK {
            return Err(refused(&response));
        }
        let mut body = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(|error| failed(&error))? {
            body.extend_from_slice(&chunk);
            if body.len() > ANSWER_BYTES_MAX {
                return Err(ChatError::TooLong {
                    bytes_max: ANSWER_BYTES_MAX,
                });
            }
        }
        read(&body, &self.model)
    }
}

/// The kind of failure, without the words of the error: they may hold the address with what is in it.
fn failed(error: &reqwest::Error) -> ChatError {
    if error.is_timeout() {
        return ChatError::Timeout;
    }
    let reason = if error.is_connect() {
        "no connection"
    } else if error.is_body() || error.is_decode() {
        "the answer broke off"
    } else {
        "the question was not answered"
    };
    ChatError::Unreachable {
        reason: reason.to_owned(),
    }
}

fn refused(response: &Response) -> ChatError {
    let status = response.status();
    let retry_after = response
        .headers()
        .get(RETRY_AFTER)
        .and_then(|value| value.to_str().ok())
        .and_then(|text| wait(text, SystemTime::now()));
    match status {
        StatusCode::TOO_MANY_REQUESTS => ChatError::Busy { retry_after },
        StatusCode::REQUEST_TIMEOUT => ChatError::Timeout,
        status if status.is_server_error() => ChatError::Failing {
            status: status.as_u16(),
            retry_after,
        },
        status => ChatError::Refused {
            status: status.as_u16(),
        },
    }
}

/// `retry-after` in both its forms: seconds, or a date.
fn wait(text: &str, now: SystemTime) -> Option<Duration> {
    let text = text.trim();
    if let Ok(seconds) = text.parse::<u32>() {
        return Some(Duration::from_secs(seconds.into()));
    }
    let at = httpdate::parse_http_date(text).ok()?;
    Some(at.duration_since(now).unwrap_or_default())
}

#[derive(Deserialize)]
struct Completion {
    choices: Vec<Choice>,
    model: Option<String>,
    usage: Option<Usage>,
}

#[derive(Deserialize)]
struct Choice {
    message: Message,
    finish_reason: Option<String>,
}

#[derive(Deserialize)]
struct Message {
    content: Option<String>,
    refusal: Option<String>,
}

#[derive(Deserialize, Default)]
struct Usage {
    #[serde(default)]
    prompt_tokens: u32,
    #[serde(default)]
    completion_tokens: u32,
}

/// Longest name of a model that is recorded with each candidate.
const MODEL_CHARS_MAX: usize = 200;

fn read(body: &[u8], asked: &str) -> Result<ChatAnswer, ChatError> {
    let read: Completion = serde_json::from_slice(body).map_err(|_| ChatError::NotAnAnswer)?;
    let choice = read.choices.into_iter().next().ok_or(ChatError::Empty)?;
    let is_filtered = choice.finish_reason.as_deref() == Some("content_filter");
    if is_filtered
        || choice
            .message
            .refusal
            .is_some_and(|words| !words.is_empty())
    {
        return Err(ChatError::Declined);
    }
    let content = choice.message.content.unwrap_or_default();
    if content.trim().is_empty() {
        return Err(ChatError::Empty);
    }
    let named = read.model.filter(|name| !name.trim().is_empty());
    let model = named.unwrap_or_else(|| asked.to_owned());
    let usage = read.usage.unwrap_or_default();
    Ok(ChatAnswer {
        content: Text::new(content),
        model: model.chars().take(MODEL_CHARS_MAX).collect(),
        prompt_tokens: usage.prompt_tokens,
        completion_tokens: usage.completion_tokens,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(url: &str, key: Option<&str>, expected: Result<&str, &str>) {
        let config = ChatConfig {
            api_key: key.map(str::to_owned),
            ..ChatConfig::new(url, "m")
        };
        let shown = format!("{config:?}");
        assert!(!shown.contains("secret"), "{shown}");
        match (ChatServer::new(&config), expected) {
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
        let local = "http://127.0.0.1:8080/v1/chat/completions";
        check("http://127.0.0.1:8080/v1", None, Ok(local));
        check("http://127.0.0.1:8080/v1/", Some("secret"), Ok(local));
        check("https://host", None, Ok("https://host/chat/completions"));
        check("host:80/v1", None, Err("its url"));
        check("ftp://host/v1", None, Err("its url"));
        check("http://a:secret@host/v1", None, Err("more than an address"));
        check(
            "http://host/v1?key=secret",
            None,
            Err("more than an address"),
        );
        check("http://host/v1", Some("secret\n"), Err("no header can"));
    }

    fn check_answer(body: &str, expected: &str) {
        let found = match read(body.as_bytes(), "asked") {
            Ok(answer) => format!(
                "{} {} {}+{}",
                answer.model,
                answer.content.expose(),
                answer.prompt_tokens,
                answer.completion_tokens
            ),
            Err(error) => error.code().to_owned(),
        };
        assert_eq!(found, expected, "{body}");
    }

    #[test]
    fn an_answer_is_told_from_everything_else() {
        check_answer(
            r#"{"choices":[{"message":{"content":"{}"},"finish_reason":"stop"}],"model":"m-2","usage":{"prompt_tokens":7,"completion_tokens":2,"total_tokens":9}}"#,
            "m-2 {} 7+2",
        );
        check_answer(
            r#"{"choices":[{"message":{"content":"x","refusal":null}}]}"#,
            "asked x 0+0",
        );
        check_answer(r#"{"choices":[]}"#, "empty_answer");
        check_answer(
            r#"{"choices":[{"message":{"content":null}}]}"#,
            "empty_answer",
        );
        check_answer(
            r#"{"choices":[{"message":{"content":" \n"}}]}"#,
            "empty_answer",
        );
        check_answer(
            r#"{"choices":[{"message":{"content":null,"refusal":"I will not"}}]}"#,
            "declined",
        );
        check_answer(
            r#"{"choices":[{"message":{"content":"{\"fa"},"finish_reason":"content_filter"}]}"#,
            "declined",
        );
        for body in [
            "",
            "null",
            "{}",
            "<html>sign in</html>",
            r#"{"error":{"message":"x"}}"#,
        ] {
            check_answer(body, "not_an_answer");
        }
    }

    #[test]
    fn a_time_to_wait_comes_in_two_forms() {
        let now = httpdate::parse_http_date("Sun, 06 Nov 1994 08:49:37 GMT").unwrap();
        for (text, seconds) in [
            ("120", Some(120)),
            (" 0 ", Some(0)),
            ("Sun, 06 Nov 1994 08:50:07 GMT", Some(30)),
            ("Sun, 06 Nov 1994 08:00:00 GMT", Some(0)),
            ("soon", None),
            ("-5", None),
            ("99999999999", None),
        ] {
            assert_eq!(wait(text, now).map(|w| w.as_secs()), seconds, "{text}");
        }
    }
}
