//! What is in a request, and what is wrong with it?

use std::collections::BTreeMap;

use anamnesis_pipeline::problem::Problem;
use axum::body::Body;
use axum::extract::Query;
use axum::http::{HeaderMap, Uri};
use futures::StreamExt as _;
use serde_json::{Map, Value};

use crate::caps;
use crate::import::parse;
use crate::message::Rejected;

/// The body as JSON.
///
/// # Errors
/// 413 `body_too_large`; 400 `incomplete_body`, `invalid_utf8`, `too_deep` or `invalid_json`.
pub(super) async fn json(body: Body) -> Result<Value, Problem> {
    let bytes = whole(body).await?;
    if bytes.iter().all(u8::is_ascii_whitespace) {
        return Err(Problem::bad_request(
            "missing_body",
            "the body must be JSON",
        ));
    }
    parse(&bytes).map_err(Rejected::into_problem)
}

/// All bytes of a body. What exceeds the limit is read to its end and thrown away: a sender that is
/// still writing when the connection closes never sees the answer.
async fn whole(body: Body) -> Result<Vec<u8>, Problem> {
    let mut stream = body.into_data_stream();
    let mut bytes = Vec::new();
    let mut seen = 0;
    while let Some(chunk) = stream.next().await {
        let chunk = chunk.map_err(|_| {
            Problem::bad_request("incomplete_body", "the body broke off; send the same again")
        })?;
        seen += chunk.len();
        if seen <= caps::BODY_BYTES_MAX {
            bytes.extend_from_slice(&chunk);
        } else if seen <= caps::DRAINED_BYTES_MAX {
            bytes = Vec::new();
        } else {
            break;
        }
    }
    if seen <= caps::BODY_BYTES_MAX {
        return Ok(bytes);
    }
    let detail = format!(
        "a body has at most {} bytes; send fewer events at once, and one message has at most {}",
        caps::BODY_BYTES_MAX,
        caps::TEXT_BYTES_MAX
    );
    Err(Problem::new(413, "body_too_large", detail))
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

/// The query's parameters; one that is not among `known` is refused by name.
///
/// # Errors
/// 400 `unknown_parameter`, `repeated_parameter` or `invalid_parameter`.
pub(super) fn parameters(uri: &Uri, known: &[&str]) -> Result<BTreeMap<String, String>, Problem> {
    let Ok(Query(pairs)) = Query::<Vec<(String, String)>>::try_from_uri(uri) else {
        let detail = "the query string cannot be read";
        return Err(Problem::bad_request("invalid_parameter", detail));
    };
    let mut found = BTreeMap::new();
    for (name, value) in pairs {
        if !known.contains(&name.as_str()) {
            let shown: String = name.chars().take(40).collect();
            let detail = format!(
                "not a parameter of this call; it takes {}",
                known.join(", ")
            );
            return Err(Problem::bad_request("unknown_parameter", detail).at(shown));
        }
        if found.insert(name.clone(), value).is_some() {
            return Err(Problem::bad_request("repeated_parameter", "give it once").at(name));
        }
    }
    Ok(found)
}
