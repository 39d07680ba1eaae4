//! What a caller is told of a command: where it stands, and how it was decided when the call waits.

use std::collections::BTreeMap;

use anamnesis_domain::ids::MemoryId;
use anamnesis_domain::owner::OwnerScope;
use anamnesis_domain::transition::Outcome;
use anamnesis_pipeline::problem::Problem;
use anamnesis_pipeline::reviews;
use anamnesis_pipeline::stores::DecisionRow;
use axum::Json;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde_json::{Map, Value, json};

use crate::commands::Ordered;
use crate::service::{Intake, IntakeError};

/// What the call waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Wait {
    No,
    /// Until the decision has reached the authority, and recall would act on it.
    Decided,
}

impl Wait {
    /// Reads `?wait=`.
    ///
    /// # Errors
    /// 400 `invalid_field`.
    pub(super) fn read(
        parameters: &BTreeMap<String, String>,
        default: Self,
    ) -> Result<Self, Problem> {
        match parameters.get("wait").map(String::as_str) {
            None => Ok(default),
            Some("recallable" | "decided" | "visible" | "true") => Ok(Self::Decided),
            Some("false" | "no" | "accepted") => Ok(Self::No),
            Some(_) => {
                let detail = "wait takes recallable, decided or false";
                Err(Problem::bad_request("invalid_field", detail).at("wait"))
            }
        }
    }
}

/// The fields of an answer, and the decision when there is one.
pub(super) struct Answer {
    pub(super) fields: Map<String, Value>,
    pub(super) decision: Option<DecisionRow>,
}

/// Waits if asked to, and turns a rejection into a problem.
///
/// # Errors
/// The rejection, or what failed.
pub(super) async fn answer(
    intake: &Intake,
    ordered: &Ordered,
    wait: Wait,
) -> Result<Answer, Problem> {
    let mut fields = Map::new();
    if let Some(memory_id) = ordered.memory_id {
        fields.insert("memory_id".to_owned(), json!(memory_id));
    }
    if let Some(erasure) = ordered.erasure {
        fields.insert("erasure_id".to_owned(), json!(erasure));
    }
    fields.insert("token".to_owned(), json!(ordered.event));
    fields.insert("position".to_owned(), json!(ordered.position));
    let decision = match wait {
        Wait::No => None,
        Wait::Decided => intake
            .wait(ordered.scope, ordered.event, intake.wait_at_most())
            .await
            .map_err(IntakeError::into_problem)?,
    };
    if let Some(decision) = &decision {
        match Outcome::parse(&decision.outcome) {
            Some(Outcome::Rejected(code)) => return Err(rejected(&code)),
            Some(Outcome::Failed(_) | Outcome::Stored | Outcome::Duplicate | Outcome::NoOp)
            | None => {}
        }
        fields.insert("outcome".to_owned(), json!(decision.outcome));
    }
    if wait == Wait::Decided {
        fields.insert("decided".to_owned(), json!(decision.is_some()));
    }
    Ok(Answer { fields, decision })
}

/// How a command was turned down.
fn rejected(code: &str) -> Problem {
    match code {
        "not_found" => Problem::not_found("memory"),
        "consent" => Problem::new(
            403,
            "consent_required",
            "the owner has not agreed to this; grant it with POST /v1/consents",
        ),
        "version" => Problem::new(
            409,
            "version",
            "the memory changed since the version that was expected; read it again",
        )
        .at("expected_version"),
        "id_reused" => Problem::new(
            409,
            "id_reused",
            "this idempotency-key was used for another write; use a new one",
        )
        .at("idempotency-key"),
        "not_in_review" => Problem::new(
            409,
            "not_in_review",
            "this was decided before, or was never in doubt",
        ),
        other => Problem::new(409, other, "the write was decided and turned down"),
    }
}

/// Adds who won to a conflict: how the memory stands now.
///
/// # Errors
/// When the store fails.
pub(super) async fn with_winner(
    intake: &Intake,
    scope: OwnerScope,
    id: MemoryId,
    problem: Problem,
) -> Result<Problem, Problem> {
    if problem.status != 409 {
        return Ok(problem);
    }
    let history = intake
        .records
        .history(scope, id)
        .await
        .map_err(|error| IntakeError::from(error).into_problem())?;
    let Some(latest) = history.last() else {
        return Ok(problem);
    };
    let standing = &latest.memory.standing;
    let review = reviews::decided(latest.memory.review.as_ref());
    let winner = json!({
        "memory_id": id,
        "version": latest.memory.version,
        "status": standing.status,
        "rule": standing.rule,
        "superseded_by": standing.superseded_by,
        // Who, when, what and why, where a person decided.
        "decision": review.map(|review| review.verdict),
        "by": review.and_then(|review| review.actor.as_deref()),
        "at": review.and_then(|review| review.at),
        "reason": review.and_then(|review| review.reason.as_ref()),
    });
    Ok(problem.with("winner", winner))
}

pub(super) fn accepted(fields: Map<String, Value>) -> Response {
    (StatusCode::ACCEPTED, Json(Value::Object(fields))).into_response()
}
