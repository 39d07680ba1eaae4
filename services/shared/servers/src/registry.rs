//! Which schema does a number in Confluent's frame stand for? Asked over HTTP, by Confluent's API, which
//! Apicurio and others speak too.
//!
//! One question per schema and process, so each has a connection of its own. No redirect is followed
//! and no proxy asked: the credentials are for the registry. What the answers mean:
//!
//! | answer | means |
//! | --- | --- |
//! | 200 with an Avro schema | this is it, for ever |
//! | 200 with another kind, or one that needs other schemas | never usable |
//! | 404 that says that the schema is unknown (`error_code` 40403) | there is none |
//! | anything else, or none | ask again: a wrong address must not turn records down |

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anamnesis_pipeline::inbox::{SchemaError, SchemaSource};
use async_trait::async_trait;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http_body_util::{BodyExt as _, Empty, LengthLimitError, Limited};
use hyper::header::{ACCEPT, AUTHORIZATION, HOST, HeaderValue};
use hyper::{Request, StatusCode, Uri};
use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use serde::Deserialize;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

/// Longest answer. A schema is at most half of it before JSON escapes its quotes.
const ANSWER_BYTES_MAX: usize = 2 << 20;

/// Confluent's code of a 404 that is about the schema and not about the address.
const SCHEMA_NOT_FOUND: u32 = 40_403;

/// What both registries call their answers.
const MEDIA_TYPES: &str = "application/vnd.schemaregistry.v1+json, application/json";

#[derive(Clone)]
pub struct RegistryConfig {
    /// Down to the part before `/schemas`: `https://registry/apis/ccompat/v7`.
    pub url: String,
    /// `user:password`, or a whole value of the `authorization` header.
    pub credentials: Option<String>,
    /// Certificates (PEM) that it is trusted by, instead of the system's.
    pub ca_file: Option<PathBuf>,
    /// For one question.
    pub timeout: Duration,
}

impl RegistryConfig {
    pub fn new(url: &str) -> Self {
        Self {
            url: url.to_owned(),
            credentials: None,
            ca_file: None,
            timeout: Duration::from_secs(5),
        }
    }
}

/// Credentials are not shown, and somebody may have put them into the address.
impl fmt::Debug for RegistryConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RegistryConfig")
            .field("has_credentials", &self.credentials.is_some())
            .field("ca_file", &self.ca_file)
            .field("timeout", &self.timeout)
            .finish_non_exhaustive()
    }
}

#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum RegistryError {
    #[error("the schema registry cannot be used: {what}")]
    Unusable { what: String },
}

fn unusable(what: impl Into<String>) -> RegistryError {
    RegistryError::Unusable { what: what.into() }
}

/// A registry that is asked over HTTP.
pub struct SchemaRegistry {
    host: String,
    port: u16,
    /// As the `host` header names it.
    authority: String,
    path: String,
    authorization: Option<HeaderValue>,
    tls: Option<(TlsConnector, ServerName<'static>)>,
    timeout: Duration,
}

impl SchemaRegistry {
    /// Does not ask anything yet: a registry that is down is waited for.
    ///
    /// # Errors
    /// [`RegistryError::Unusable`] says what is wrong with the configuration.
    pub fn new(config: &RegistryConfig) -> Result<Self, RegistryError> {
        let not_an_address = || unusable("its url is not http://host/path or https://host/path");
        let url: Uri = config.url.parse().map_err(|_| not_an_address())?;
        let is_tls = match url.scheme_str() {
            Some("http") => false,
            Some("https") => true,
            Some(_) | None => return Err(not_an_address()),
        };
        let authority = url.authority().ok_or_else(not_an_address)?;
        if authority.as_str().contains('@') || url.query().is_some() {
            return Err(unusable(
                "its url holds more than an address: credentials have a setting of their own",
            ));
        }
        let host = authority
            .host()
            .trim_start_matches('[')
            .trim_end_matches(']')
            .to_owned();
        let tls = if is_tls {
            let settings = crate::tls::client_config(config.ca_file.as_deref());
            let name = ServerName::try_from(host.clone()).map_err(|_| not_an_address())?;
            let settings = Arc::new(settings.map_err(unusable)?);
            Some((TlsConnector::from(settings), name))
        } else {
            None
        };
        let authorization = config
            .credentials
            .as_deref()
            .map(authorization)
            .transpose()?;
        Ok(Self {
            port: authority
                .port_u16()
                .unwrap_or(if is_tls { 443 } else { 80 }),
            authority: authority.as_str().to_owned(),
            path: url.path().trim_end_matches('/').to_owned(),
            host,
            authorization,
            tls,
            timeout: config.timeout,
        })
    }

    async fn ask(&self, id: u32) -> Result<Answer, String> {
        let address = (self.host.as_str(), self.port);
        let stream = TcpStream::connect(address)
            .await
            .map_err(|error| format!("{}: {error}", self.authority))?;
        match &self.tls {
            None => self.exchange(stream, id).await,
            Some((connector, name)) => {
                let stream = connector.connect(name.clone(), stream).await;
                let stream = stream.map_err(|error| format!("{}: {error}", self.authority))?;
                self.exchange(stream, id).await
            }
        }
    }

    async fn exchange<S>(&self, stream: S, id: u32) -> Result<Answer, String>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let broken = |error: hyper::Error| format!("{}: {error}", self.authority);
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
            .await
            .map_err(broken)?;
        // Ends with the connection, which the answer below closes.
        let driver = tokio::spawn(connection);
        let mut request = Request::get(format!("{}/schemas/ids/{id}", self.path))
            .header(HOST, &self.authority)
            .header(ACCEPT, MEDIA_TYPES);
        if let Some(authorization) = &self.authorization {
            request = request.header(AUTHORIZATION, authorization);
        }
        let request = request
            .body(Empty::<Bytes>::new())
            .map_err(|error| error.to_string())?;
        let answered = async {
            let response = sender.send_request(request).await.map_err(broken)?;
            let status = response.status();
            let body = Limited::new(response.into_body(), ANSWER_BYTES_MAX).collect();
            match body.await {
                Ok(body) => Ok(Answer::Whole(status, body.to_bytes())),
                Err(error) if error.is::<LengthLimitError>() => Ok(Answer::TooLong(status)),
                Err(error) => Err(format!("{}: {error}", self.authority)),
            }
        };
        let answered = answered.await;
        driver.abort();
        answered
    }
}

fn authorization(credentials: &str) -> Result<HeaderValue, RegistryError> {
    let is_whole = ["Basic ", "Bearer "]
        .iter()
        .any(|scheme| credentials.starts_with(scheme));
    let text = if is_whole {
        credentials.to_owned()
    } else if credentials.contains(':') {
        format!("Basic {}", STANDARD.encode(credentials))
    } else {
        return Err(unusable(
            "its credentials are neither user:password nor a value of the authorization header",
        ));
    };
    let value = HeaderValue::from_str(&text);
    let mut value = value.map_err(|_| unusable("its credentials hold what no header can"))?;
    value.set_sensitive(true);
    Ok(value)
}

enum Answer {
    Whole(StatusCode, Bytes),
    TooLong(StatusCode),
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Found {
    schema: String,
    /// Absent for Avro.
    schema_type: Option<String>,
    references: Option<Vec<serde_json::Value>>,
}

#[derive(Deserialize)]
struct Fault {
    error_code: u32,
}

fn read(id: u32, answer: Answer) -> Result<String, SchemaError> {
    let unavailable = |reason: String| SchemaError::Unavailable { reason };
    let unsupported = |reason| SchemaError::Unsupported { id, reason };
    let (status, body) = match answer {
        Answer::Whole(status, body) => (status, body),
        Answer::TooLong(StatusCode::OK) => return Err(unsupported("its text is too long")),
        Answer::TooLong(status) => {
            return Err(unavailable(format!("it answers {status} at great length")));
        }
    };
    match status {
        StatusCode::OK => {
            let found: Found = serde_json::from_slice(&body)
                .map_err(|_| unavailable("it answers, and not with a schema".to_owned()))?;
            if found.schema_type.is_some_and(|kind| kind != "AVRO") {
                return Err(unsupported("it is no Avro schema"));
            }
            if found.references.is_some_and(|others| !others.is_empty()) {
                return Err(unsupported("it needs other schemas"));
            }
            Ok(found.schema)
        }
        StatusCode::NOT_FOUND => match serde_json::from_slice(&body) {
            Ok(Fault {
                error_code: SCHEMA_NOT_FOUND,
            }) => Err(SchemaError::Unknown { id }),
            Ok(Fault { .. }) | Err(_) => Err(unavailable(
                "it answers 404 without a word about the schema: is the address right?".to_owned(),
            )),
        },
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => Err(unavailable(format!(
            "it refuses the credentials ({status})"
        ))),
        status => Err(unavailable(format!("it answers {status}"))),
    }
}

#[async_trait]
impl SchemaSource for SchemaRegistry {
    async fn schema(&self, id: u32) -> Result<String, SchemaError> {
        let unavailable = |reason| SchemaError::Unavailable { reason };
        match tokio::time::timeout(self.timeout, self.ask(id)).await {
            Ok(Ok(answer)) => read(id, answer),
            Ok(Err(reason)) => Err(unavailable(reason)),
            Err(_) => Err(unavailable(format!(
                "{} did not answer within {:?}",
                self.authority, self.timeout
            ))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(url: &str, credentials: Option<&str>, expected: Result<(&str, u16, &str), &str>) {
        let mut config = RegistryConfig::new(url);
        config.credentials = credentials.map(str::to_owned);
        let shown = format!("{config:?}");
        assert!(!shown.contains("secret"), "{shown}");
        match (SchemaRegistry::new(&config), expected) {
            (Ok(made), Ok((host, port, path))) => {
                assert_eq!(
                    (made.host.as_str(), made.port, made.path.as_str()),
                    (host, port, path)
                );
            }
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
            "http://127.0.0.1:8080/apis/ccompat/v7/",
            None,
            Ok(("127.0.0.1", 8080, "/apis/ccompat/v7")),
        );
        check(
            "http://registry",
            Some("a:secret"),
            Ok(("registry", 80, "")),
        );
        check(
            "http://[::1]:81",
            Some("Bearer secret"),
            Ok(("::1", 81, "")),
        );
        check("registry:8081", None, Err("its url"));
        check("ftp://registry", None, Err("its url"));
        check(
            "http://a:secret@registry",
            None,
            Err("credentials have a setting"),
        );
        check(
            "http://registry",
            Some("secret"),
            Err("neither user:password"),
        );
        check(
            "http://registry",
            Some("a:secret\n"),
            Ok(("registry", 80, "")),
        );
        check(
            "http://registry",
            Some("Bearer secret\n"),
            Err("no header can"),
        );
    }

    fn check_answer(status: u16, body: &str, expected: &str) {
        let status = StatusCode::from_u16(status).unwrap();
        let answer = Answer::Whole(status, Bytes::copy_from_slice(body.as_bytes()));
        let read = match read(7, answer) {
            Ok(schema) => schema,
            Err(SchemaError::Unavailable { .. }) => "waits".to_owned(),
            Err(SchemaError::Unknown { .. }) => "unknown".to_owned(),
            Err(SchemaError::Unsupported { reason, .. }) => reason.to_owned(),
        };
        assert_eq!(read, expected, "{status} {body}");
    }

    #[test]
    fn only_a_clear_answer_turns_records_down() {
        check_answer(200, r#"{"schema": "\"string\""}"#, "\"string\"");
        let kind = r#"{"schema": "\"int\"", "schemaType": "AVRO", "references": [], "id": 7}"#;
        check_answer(200, kind, "\"int\"");
        let other = r#"{"schema": "{}", "schemaType": "JSON"}"#;
        check_answer(200, other, "it is no Avro schema");
        let needs = r#"{"schema": "{}", "references": [{"name": "a"}]}"#;
        check_answer(200, needs, "it needs other schemas");
        check_answer(404, r#"{"error_code": 40403, "message": "…"}"#, "unknown");
        check_answer(404, r#"{"error_code": 404, "message": "…"}"#, "waits");
        check_answer(404, "", "waits");
        check_answer(404, "<html>nothing here</html>", "waits");
        check_answer(200, "<html>sign in</html>", "waits");
        check_answer(302, "", "waits");
        check_answer(401, "{}", "waits");
        check_answer(503, "", "waits");
        let too_long = read(7, Answer::TooLong(StatusCode::OK));
        assert!(matches!(too_long, Err(SchemaError::Unsupported { .. })));
    }
}
