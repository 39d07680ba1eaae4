//! What a caller gets when something cannot be done: an RFC 9457 problem document with a stable code,
//! the field that offends, and what to do. Never a word of what was sent.

use axum::Json;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;

#[derive(Clone, PartialEq, Eq, Debug, Serialize, thiserror::Error)]
#[error("{code}: {detail}")]
pub struct Problem {
    /// `about:blank` with a code of ours: RFC 9457 wants a URI, and ours are not dereferenceable.
    #[serde(rename = "type")]
    pub kind: String,
    pub title: String,
    pub status: u16,
    /// Stable, for programs.
    pub code: String,
    /// For people: what is wrong and what to do.
    pub detail: String,
    /// Path of the offending field, as `messages[2].at`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub field: Option<String>,
    /// Further machine-readable facts, for example the current version on a conflict.
    #[serde(skip_serializing_if = "serde_json::Map::is_empty")]
    #[serde(flatten)]
    pub more: serde_json::Map<String, serde_json::Value>,
}

impl Problem {
    pub fn new(status: u16, code: &str, detail: impl Into<String>) -> Self {
        let title = StatusCode::from_u16(status)
            .ok()
            .and_then(|s| s.canonical_reason());
        Self {
            kind: format!("urn:anamnesis:problem:{code}"),
            title: title.unwrap_or("Problem").to_owned(),
            status,
            code: code.to_owned(),
            detail: detail.into(),
            field: None,
            more: serde_json::Map::new(),
        }
    }

    pub fn bad_request(code: &str, detail: impl Into<String>) -> Self {
        Self::new(400, code, detail)
    }

    pub fn unavailable(detail: impl Into<String>) -> Self {
        Self::new(503, "unavailable", detail)
    }

    pub fn not_found(what: &str) -> Self {
        Self::new(404, "not_found", format!("no such {what} for this owner"))
    }

    #[must_use]
    pub fn at(mut self, field: impl Into<String>) -> Self {
        self.field = Some(field.into());
        self
    }

    #[must_use]
    pub fn with(mut self, name: &str, value: impl Into<serde_json::Value>) -> Self {
        self.more.insert(name.to_owned(), value.into());
        self
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let mut response = (status, Json(self)).into_response();
        response.headers_mut().insert(
            header::CONTENT_TYPE,
            HeaderValue::from_static("application/problem+json"),
        );
        if status == StatusCode::SERVICE_UNAVAILABLE {
            let seconds = HeaderValue::from_static("1");
            response.headers_mut().insert(header::RETRY_AFTER, seconds);
        }
        response
    }
}
