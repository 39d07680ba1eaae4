//! The write calls over HTTP. Every refusal is a problem document that names field and reason.

mod answer;
mod body;
mod calls;

use std::sync::Arc;

use anamnesis_pipeline::caller::Callers;
use anamnesis_pipeline::http;
use axum::Router;
use axum::routing::post;

use crate::service::Intake;

#[derive(Clone)]
struct Shared {
    intake: Arc<Intake>,
    callers: Callers,
}

/// All calls of the service.
pub fn router(intake: Arc<Intake>, callers: Callers) -> Router {
    let shared = Shared {
        intake,
        callers: callers.clone(),
    };
    let router = Router::new()
        .route("/v1/events", post(calls::events))
        .route("/v1/remember", post(calls::remember))
        .route("/v1/correct", post(calls::correct))
        .route("/v1/retract", post(calls::retract))
        .route("/v1/forget", post(calls::forget))
        .route("/v1/users/{id}/forget", post(calls::forget_user))
        .route("/v1/restore", post(calls::restore))
        .route("/v1/restrict", post(calls::restrict))
        .route("/v1/unrestrict", post(calls::unrestrict))
        .route(
            "/v1/consents",
            post(calls::change_consent).get(calls::consents),
        )
        .route("/v1/reviews/{id}/decision", post(calls::decide_review))
        .route("/v1/tasks", post(calls::task))
        .with_state(shared);
    http::mark_open(router, &callers)
}

#[cfg(test)]
mod tests;
