//! What is in a request, and what is wrong with it?

use anamnesis_pipeline::http;
use anamnesis_pipeline::problem::Problem;
use axum::body::Body;
use axum::http::HeaderMap;
use serde_json::{Map, Value};

use crate::caps;
use crate::import::parse;
use crate::message::Rejected;

/// The body as JSON.
///
/// # Errors
/// 413 `body_too_large`; 400 `incomplete_body`, `invalid_utf8`, `too_deep` or `invalid_json`.
pub(super) async fn json(body: Body) -> Result<Value, Problem> {
    let bytes = http::whole_body(body, caps::BODY_BYTES_MAX).await?;
    if bytes.iter().all(u8::is_ascii_whitespace) {
        return Err(Problem::bad_request(
            "missing_body",
            "the body must be JSON",
        ));
    }
    parse(&bytes).map_err(Rejected::into_problem)
}

/// Events of a request: an array, or one of any shape. In the binary mode of CloudEvents over HTTP the
/// envelope stands in `ce-` headers, and the body is the data.
///
/// # Errors
/// As [`json`], and 400 `empty_batch`.
pub(super) async fn events(headers: &HeaderMap, body: Body) -> Result<Events, Problem> {
    let value = json(body).await?;
    if headers.contains_key("ce-specversion") {
        return Ok(Events {
            list: vec![binary_mode(headers, value)],
            is_batch: false,
        });
    }
    match value {
        Value::Array(list) if list.is_empty() => Err(Problem::bad_request(
            "empty_batch",
            "the array holds no event; send at least one",
        )),
        Value::Array(list) => Ok(Events {
            list,
            is_batch: true,
        }),
        one @ (Value::Null
        | Value::Bool(_)
        | Value::Number(_)
        | Value::String(_)
        | Value::Object(_)) => Ok(Events {
            list: vec![one],
            is_batch: false,
        }),
    }
}

pub(super) struct Events {
    pub(super) list: Vec<Value>,
    pub(super) is_batch: bool,
}

fn binary_mode(headers: &HeaderMap, data: Value) -> Value {
    let mut fields = Map::new();
    for (name, value) in headers {
        if let (Some(name), Ok(value)) = (name.as_str().strip_prefix("ce-"), value.to_str()) {
            fields.insert(format!("ce_{name}"), Value::String(value.to_owned()));
        }
    }
    let mut event = Map::new();
    event.insert("headers".to_owned(), Value::Object(fields));
    event.insert("value".to_owned(), data);
    Value::Object(event)
}

/// The `idempotency-key` header.
///
/// # Errors
/// 400 `invalid_field` for one that is not plain text.
pub(super) fn idempotency_key(headers: &HeaderMap) -> Result<Option<String>, Problem> {
    let Some(value) = headers.get("idempotency-key") else {
        return Ok(None);
    };
    match value.to_str() {
        Ok(key) if !key.is_empty() && key.len() <= caps::ID_BYTES_MAX => Ok(Some(key.to_owned())),
        Ok(_) | Err(_) => Err(Problem::bad_request(
            "invalid_field",
            format!(
                "idempotency-key has 1 to {} visible ASCII characters",
                caps::ID_BYTES_MAX
            ),
        )
        .at("idempotency-key")),
    }
}
