//! What do all our HTTP services do in the same way?

use std::collections::BTreeMap;

use axum::Router;
use axum::body::Body;
use axum::extract::Query;
use axum::http::{HeaderValue, Uri};
use axum::middleware::map_response;
use axum::response::Response;
use futures::StreamExt as _;

use crate::caller::{Callers, OPEN_HEADER};
use crate::problem::Problem;

/// How much of a body that is too long is still read, so that its sender gets an answer. Who sends more
/// finds the connection closed.
const DRAINED_BYTES_MAX: usize = 64 << 20;

/// All bytes of a body. What exceeds `bytes_max` is read to its end and thrown away: a sender that is
/// still writing when the connection closes never sees the answer.
///
/// # Errors
/// 413 `body_too_large`, 400 `incomplete_body`.
pub async fn whole_body(body: Body, bytes_max: usize) -> Result<Vec<u8>, Problem> {
    let mut stream = body.into_data_stream();
    let mut bytes = Vec::new();
    let mut seen = 0;
    while let Some(chunk) = stream.next().await {
        let chunk = chunk.map_err(|_| {
            Problem::bad_request("incomplete_body", "the body broke off; send the same again")
        })?;
        seen += chunk.len();
        if seen <= bytes_max {
            bytes.extend_from_slice(&chunk);
        } else if seen <= DRAINED_BYTES_MAX {
            bytes = Vec::new();
        } else {
            break;
        }
    }
    if seen <= bytes_max {
        return Ok(bytes);
    }
    let detail = format!("the body of this call may have {bytes_max} bytes; send less at once");
    Err(Problem::new(413, "body_too_large", detail))
}

/// The query's parameters; one that is not among `known` is refused by name.
///
/// # Errors
/// 400 `unknown_parameter`, `repeated_parameter` or `invalid_parameter`.
pub fn parameters(uri: &Uri, known: &[&str]) -> Result<BTreeMap<String, String>, Problem> {
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

/// Says in every answer that nobody had to prove who they are, when that is so.
pub fn mark_open(router: Router, callers: &Callers) -> Router {
    if !callers.is_open() {
        return router;
    }
    router.layer(map_response(async |mut response: Response| {
        response
            .headers_mut()
            .insert(OPEN_HEADER, HeaderValue::from_static("true"));
        response
    }))
}
