//! Which calls does recall answer, and who may make them? Every call names its owner; a missing, empty
//! or wildcard owner is refused and never means "all".

mod body;
mod params;
mod questions;
mod reads;

use std::sync::Arc;

use anamnesis_domain::owner::{Owner, OwnerScope};
use anamnesis_pipeline::caller::{Caller, CallerRole, Callers};
use anamnesis_pipeline::http;
use anamnesis_pipeline::problem::Problem;
use axum::Router;
use axum::http::HeaderMap;
use axum::routing::{get, post};
use tracing::error;

use crate::service::{Recall, RecallError};

#[derive(Clone)]
struct Shared {
    recall: Arc<Recall>,
    callers: Callers,
}

/// All calls of the service.
pub fn router(recall: Arc<Recall>, callers: Callers) -> Router {
    let shared = Shared {
        recall,
        callers: callers.clone(),
    };
    let router = Router::new()
        .route("/v1/recall", post(questions::recall))
        .route("/v1/context", post(questions::context))
        .route("/v1/outcomes", post(questions::outcome))
        .route("/v1/memories", get(reads::memories))
        .route("/v1/memories/{id}", get(reads::memory))
        .route("/v1/reviews", get(reads::reviews))
        .route("/v1/owners/tasks", get(reads::tasks))
        .route("/v1/tasks/{task_id}", get(reads::task))
        .route("/v1/changes", get(reads::changes))
        .with_state(shared);
    http::mark_open(router, &callers)
}

impl Shared {
    fn caller(&self, headers: &HeaderMap) -> Result<Caller, Problem> {
        self.callers.resolve(headers)
    }

    fn scope(&self, caller: &Caller, owner: &Owner) -> Result<OwnerScope, Problem> {
        caller.scope(owner, self.recall.ids())
    }
}

/// Who may see what is restricted or hidden by a withdrawn consent.
fn is_privileged(caller: &Caller) -> bool {
    caller.has(CallerRole::Reviewer) || caller.has(CallerRole::Auditor)
}

/// What the caller is told of a failure; the journey of the error ends here, so it is logged here.
fn problem(error: RecallError) -> Problem {
    if let RecallError::Overloaded = error {
        // Counted, and not logged: there are hundreds in a second of it.
        return Problem::new(
            503,
            "overloaded",
            "more is asked at once than can be answered; ask again in a second",
        );
    }
    error!(%error, "a call to recall failed");
    if error.is_retryable() {
        Problem::unavailable("memory cannot be read at the moment; try again")
    } else {
        Problem::new(
            500,
            "internal",
            "memory cannot be read; the operator's log says why",
        )
    }
}

#[cfg(test)]
mod tests;
#[cfg(test)]
mod tests_questions;
