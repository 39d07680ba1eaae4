//! The audit calls over HTTP: the same answers as on the command line.

use std::sync::Arc;

use anamnesis_audit::erasure::Copies;
use anamnesis_audit::verify::Redecide;
use anamnesis_audit::{balance, erasure, explain, state, verify};
use anamnesis_domain::ids::{ErasureId, MemoryId};
use anamnesis_domain::owner::{Owner, OwnerScope};
use anamnesis_domain::time::{AsOf, Known, Timestamp};
use anamnesis_pipeline::caller::{Caller, CallerRole, Callers, parse_owner};
use anamnesis_pipeline::clock::Clock;
use anamnesis_pipeline::codec::Codec;
use anamnesis_pipeline::consumer::StageError;
use anamnesis_pipeline::log::Log;
use anamnesis_pipeline::problem::Problem;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Path, Query, State};
use axum::http::HeaderMap;
use axum::routing::get;
use axum::{Json, Router};
use serde::Deserialize;

use crate::node::Node;

#[derive(Clone)]
struct Shared {
    log: Log,
    codec: Codec,
    clock: Arc<dyn Clock>,
    callers: Callers,
    redecide: Redecide,
    copies: Copies,
}

pub fn router(node: &Node, callers: Callers) -> Router {
    let shared = Shared {
        log: node.log.clone(),
        codec: node.codec.clone(),
        clock: node.clock.clone(),
        callers,
        redecide: node.redecide(),
        copies: node.copies(),
    };
    Router::new()
        .route("/v1/audit/state", get(owner_state))
        .route("/v1/audit/memories/{id}", get(explain_memory))
        .route("/v1/audit/verify", get(verify_log))
        .route("/v1/audit/balance", get(count_balance))
        .route("/v1/erasures/{id}", get(erasure_certificate))
        .with_state(shared)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct StateQuery {
    owner: Option<String>,
    as_of: Option<String>,
    known_at: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct OwnerQuery {
    owner: Option<String>,
}

impl Shared {
    fn auditor(&self, headers: &HeaderMap) -> Result<Caller, Problem> {
        let caller = self.callers.resolve(headers)?;
        caller.require(CallerRole::Auditor)?;
        Ok(caller)
    }

    fn scope(&self, caller: &Caller, owner: &Owner) -> Result<OwnerScope, Problem> {
        caller.scope(owner, self.codec.keys().id_key())
    }
}

fn query<T>(query: Result<Query<T>, QueryRejection>) -> Result<T, Problem> {
    match query {
        Ok(Query(query)) => Ok(query),
        // The rejection names the parameter and never its value.
        Err(_) => Err(Problem::bad_request(
            "unknown_parameter",
            "a query parameter is not known or cannot be read; known are owner, as_of, known_at",
        )),
    }
}

fn instant(text: Option<&str>, field: &str) -> Result<Option<Timestamp>, Problem> {
    text.map(Timestamp::parse)
        .transpose()
        .map_err(|error| Problem::bad_request("invalid_time", error.to_string()).at(field))
}

fn unreadable(error: StageError) -> Problem {
    tracing::error!(%error, "an audit call failed");
    if error.is_retryable() {
        Problem::unavailable("the log cannot be read at the moment; try again")
    } else {
        Problem::new(
            500,
            "log_unreadable",
            "the log cannot be read; the operator's log says why",
        )
    }
}

async fn owner_state(
    State(shared): State<Shared>,
    headers: HeaderMap,
    asked: Result<Query<StateQuery>, QueryRejection>,
) -> Result<Json<state::StateAsOf>, Problem> {
    let caller = shared.auditor(&headers)?;
    let asked = query(asked)?;
    let owner = parse_owner(asked.owner.as_deref(), "owner")?;
    let scope = shared.scope(&caller, &owner)?;
    let as_of = AsOf {
        valid: instant(asked.as_of.as_deref(), "as_of")?.unwrap_or_else(|| shared.clock.now()),
        known: instant(asked.known_at.as_deref(), "known_at")?.map_or(Known::Latest, Known::At),
    };
    let answer = state::state_as_of(&*shared.log, &shared.codec, scope.key(), as_of).await;
    Ok(Json(answer.map_err(unreadable)?))
}

async fn explain_memory(
    State(shared): State<Shared>,
    headers: HeaderMap,
    Path(id): Path<String>,
    asked: Result<Query<OwnerQuery>, QueryRejection>,
) -> Result<Json<explain::Explanation>, Problem> {
    let caller = shared.auditor(&headers)?;
    let owner = parse_owner(query(asked)?.owner.as_deref(), "owner")?;
    let scope = shared.scope(&caller, &owner)?;
    let id: MemoryId = id
        .parse()
        .map_err(|_| Problem::bad_request("invalid_id", "not a memory id").at("id"))?;
    explain::explain(&*shared.log, &shared.codec, id, Some(scope.key()))
        .await
        .map_err(unreadable)?
        .map(Json)
        .ok_or_else(|| Problem::not_found("memory"))
}

async fn verify_log(
    State(shared): State<Shared>,
    headers: HeaderMap,
    asked: Result<Query<OwnerQuery>, QueryRejection>,
) -> Result<Json<verify::Verified>, Problem> {
    let caller = shared.auditor(&headers)?;
    let only = match query(asked)?.owner {
        Some(owner) => {
            let owner = parse_owner(Some(&owner), "owner")?;
            Some(shared.scope(&caller, &owner)?.key())
        }
        None => None,
    };
    let redecide = Some(shared.redecide.clone());
    let answer = verify::verify(&*shared.log, &shared.codec, only, redecide).await;
    Ok(Json(answer.map_err(unreadable)?))
}

async fn count_balance(
    State(shared): State<Shared>,
    headers: HeaderMap,
) -> Result<Json<balance::Balance>, Problem> {
    shared.auditor(&headers)?;
    let answer = balance::balance(&*shared.log, &shared.codec).await;
    Ok(Json(answer.map_err(unreadable)?))
}

/// Who decides erasures sees how far they are, too. Only a caller of every tenant may leave out the
/// owner: an id does not say which tenant it is of.
async fn erasure_certificate(
    State(shared): State<Shared>,
    headers: HeaderMap,
    Path(id): Path<String>,
    asked: Result<Query<OwnerQuery>, QueryRejection>,
) -> Result<Json<erasure::Certificate>, Problem> {
    let caller = shared.callers.resolve(&headers)?;
    if !caller.has(CallerRole::Reviewer) {
        caller.require(CallerRole::Auditor)?;
    }
    let owner = match query(asked)?.owner {
        None if caller.covers_all() => None,
        words => {
            let owner = parse_owner(words.as_deref(), "owner")?;
            Some(shared.scope(&caller, &owner)?.key())
        }
    };
    let id: ErasureId = id
        .parse()
        .map_err(|_| Problem::bad_request("invalid_id", "not an erasure id").at("id"))?;
    let (copies, now) = (&shared.copies, shared.clock.now());
    erasure::certificate(&*shared.log, &shared.codec, id, owner, copies, now)
        .await
        .map_err(unreadable)?
        .map(Json)
        .ok_or_else(|| Problem::not_found("erasure"))
}
