//! What is in a request's body, and what is wrong with it?

use anamnesis_pipeline::http;
use anamnesis_pipeline::problem::Problem;
use axum::body::Body;
use serde_json::{Map, Value};

/// Longest body, in bytes: a question of 8 KiB with the messages of a long conversation.
const BODY_BYTES_MAX: usize = 1 << 20;

/// # Errors
/// 413 `body_too_large`, 400 `invalid_utf8`, `invalid_json` (with the place) or `not_an_object`.
pub(super) async fn object(body: Body) -> Result<Map<String, Value>, Problem> {
    let bytes = http::whole_body(body, BODY_BYTES_MAX).await?;
    let text = std::str::from_utf8(&bytes).map_err(|error| {
        let detail = format!("the body is not UTF-8 from byte {} on", error.valid_up_to());
        Problem::bad_request("invalid_utf8", detail)
    })?;
    match serde_json::from_str(text) {
        Ok(Value::Object(fields)) => Ok(fields),
        Ok(_) => Err(Problem::bad_request(
            "not_an_object",
            "the body must be one JSON object",
        )),
        Err(error) => {
            let detail = format!(
                "the body is not JSON: line {}, column {}",
                error.line(),
                error.column()
            );
            Err(Problem::bad_request("invalid_json", detail))
        }
    }
}
