//! One function per call.

use anamnesis_domain::owner::Owner;
use anamnesis_domain::text::Text;
use anamnesis_domain::time::{Known, Timestamp};
use anamnesis_pipeline::caller::{Caller, parse_owner};
use anamnesis_pipeline::http;
use anamnesis_pipeline::problem::Problem;
use anamnesis_pipeline::stores::StoreError;
use axum::Json;
use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

use super::answer::{Wait, accepted, answer, with_winner};
use super::{Shared, body};
use crate::commands::{Order, Ordered, ReviewId};
use crate::request::{
    ConsentChange, Correct, Forget, ForgetMode, Remember, Restore, Restrict, Retract,
    ReviewDecision, Targets, TaskChange, read,
};
use crate::service::{IntakeError, granted_version};

type Reply = Result<Response, Problem>;

/// What every call brings beside its body.
struct Call {
    caller: Caller,
    key: Option<String>,
    wait: Wait,
}

fn begin(shared: &Shared, headers: &HeaderMap, uri: &Uri, wait: Wait) -> Result<Call, Problem> {
    let caller = shared.callers.resolve(headers)?;
    let parameters = http::parameters(uri, &["wait"])?;
    Ok(Call {
        caller,
        key: body::idempotency_key(headers)?,
        wait: Wait::read(&parameters, wait)?,
    })
}

impl Call {
    fn owner(&self, text: Option<&str>) -> Result<Owner, Problem> {
        owner_of(&self.caller, text)
    }

    fn order<'a>(&'a self, owner: &'a Owner) -> Order<'a> {
        Order {
            caller: &self.caller,
            owner,
            key: self.key.as_deref(),
        }
    }
}

/// An owner without a tenant is the caller's.
fn owner_of(caller: &Caller, text: Option<&str>) -> Result<Owner, Problem> {
    match text {
        Some(text) if !text.is_empty() && !text.contains('/') => {
            Owner::parse_in_tenant(text, &caller.default_tenant).map_err(|error| {
                Problem::bad_request("invalid_owner", format!("{error}")).at("owner")
            })
        }
        Some(_) | None => parse_owner(text, "owner"),
    }
}

async fn finish(shared: &Shared, call: &Call, ordered: Result<Ordered, IntakeError>) -> Reply {
    let ordered = ordered.map_err(IntakeError::into_problem)?;
    Ok(accepted(
        answer(&shared.intake, &ordered, call.wait).await?.fields,
    ))
}

pub(super) async fn events(
    State(shared): State<Shared>,
    uri: Uri,
    headers: HeaderMap,
    body: Body,
) -> Reply {
    let call = begin(&shared, &headers, &uri, Wait::No)?;
    let events = body::events(&headers, body).await?;
    let mut given = shared
        .intake
        .accept_values(&call.caller, &events.list, call.key.as_deref())
        .await
        .map_err(IntakeError::into_problem)?;
    if !events.is_batch
        && let Some(rejected) = given.rejected.pop()
    {
        let rejected = crate::message::Rejected {
            code: rejected.code,
            field: rejected.field,
            detail: rejected.detail,
        };
        return Err(rejected.into_problem());
    }
    let mut fields = serde_json::Map::new();
    if call.wait == Wait::Decided {
        let at_most = shared.intake.wait_at_most();
        let mut all_decided = true;
        for one in given.accepted.iter().filter(|one| !one.quarantined) {
            let decision = shared.intake.wait(one.scope, one.token, at_most).await;
            all_decided &= decision.map_err(IntakeError::into_problem)?.is_some();
            if !all_decided {
                break;
            }
        }
        fields.insert("decided".to_owned(), json!(all_decided));
    }
    fields.insert("accepted".to_owned(), json!(given.accepted));
    fields.insert("rejected".to_owned(), json!(given.rejected));
    Ok(accepted(fields))
}

pub(super) async fn remember(
    State(shared): State<Shared>,
    uri: Uri,
    headers: HeaderMap,
    body: Body,
) -> Reply {
    let call = begin(&shared, &headers, &uri, Wait::No)?;
    let ask: Remember = read(body::json(body).await?)?;
    let owner = call.owner(ask.owner.as_deref())?;
    let ordered = shared.intake.remember(&call.order(&owner), &ask).await;
    finish(&shared, &call, ordered).await
}

pub(super) async fn correct(
    State(shared): State<Shared>,
    uri: Uri,
    headers: HeaderMap,
    body: Body,
) -> Reply {
    // Who edits what another has edited meanwhile is to be told.
    let call = begin(&shared, &headers, &uri, Wait::Decided)?;
    let ask: Correct = read(body::json(body).await?)?;
    let owner = call.owner(ask.owner.as_deref())?;
    let ordered = shared
        .intake
        .correct(&call.order(&owner), &ask)
        .await
        .map_err(IntakeError::into_problem)?;
    match answer(&shared.intake, &ordered, call.wait).await {
        Ok(answer) => Ok(accepted(answer.fields)),
        Err(problem) => {
            Err(with_winner(&shared.intake, ordered.scope, ask.memory_id, problem).await?)
        }
    }
}

pub(super) async fn retract(
    State(shared): State<Shared>,
    uri: Uri,
    headers: HeaderMap,
    body: Body,
) -> Reply {
    let call = begin(&shared, &headers, &uri, Wait::No)?;
    let ask: Retract = read(body::json(body).await?)?;
    let owner = call.owner(ask.owner.as_deref())?;
    let ordered = shared.intake.retire(&call.order(&owner), &ask).await;
    finish(&shared, &call, ordered).await
}

pub(super) async fn forget(
    State(shared): State<Shared>,
    uri: Uri,
    headers: HeaderMap,
    body: Body,
) -> Reply {
    let call = begin(&shared, &headers, &uri, Wait::No)?;
    let ask: Forget = read(body::json(body).await?)?;
    let owner = call.owner(ask.owner.as_deref())?;
    let order = call.order(&owner);
    let ordered = shared
        .intake
        .forget(&order, &ask.targets(), ask.mode, &ask.reason)
        .await;
    finish(&shared, &call, ordered).await
}

/// Erases everything of one owner.
pub(super) async fn forget_user(
    State(shared): State<Shared>,
    Path(id): Path<String>,
    uri: Uri,
    headers: HeaderMap,
) -> Reply {
    let caller = shared.callers.resolve(&headers)?;
    let parameters = http::parameters(&uri, &["reason", "wait"])?;
    let Some(reason) = parameters.get("reason").filter(|reason| !reason.is_empty()) else {
        return Err(Problem::bad_request("missing_parameter", "say why: ?reason=").at("reason"));
    };
    let call = Call {
        caller,
        key: body::idempotency_key(&headers)?,
        wait: Wait::read(&parameters, Wait::No)?,
    };
    let owner = call.owner(Some(&id))?;
    let targets = Targets {
        all: Some(true),
        ..Targets::default()
    };
    let reason = Text::from(reason.as_str());
    let order = call.order(&owner);
    let ordered = shared
        .intake
        .forget(&order, &targets, ForgetMode::Erase, &reason)
        .await;
    finish(&shared, &call, ordered).await
}

pub(super) async fn restore(
    State(shared): State<Shared>,
    uri: Uri,
    headers: HeaderMap,
    body: Body,
) -> Reply {
    let call = begin(&shared, &headers, &uri, Wait::No)?;
    let ask: Restore = read(body::json(body).await?)?;
    let owner = call.owner(ask.owner.as_deref())?;
    let ordered = shared
        .intake
        .restore(&call.order(&owner), &ask.memory_ids)
        .await;
    finish(&shared, &call, ordered).await
}

pub(super) async fn restrict(
    State(shared): State<Shared>,
    uri: Uri,
    headers: HeaderMap,
    body: Body,
) -> Reply {
    let call = begin(&shared, &headers, &uri, Wait::No)?;
    let ask: Restrict = read(body::json(body).await?)?;
    let owner = call.owner(ask.owner.as_deref())?;
    let order = call.order(&owner);
    let ordered = shared
        .intake
        .forget(&order, &ask.targets(), ForgetMode::Restrict, &ask.reason)
        .await;
    finish(&shared, &call, ordered).await
}

pub(super) async fn unrestrict(
    State(shared): State<Shared>,
    uri: Uri,
    headers: HeaderMap,
    body: Body,
) -> Reply {
    let call = begin(&shared, &headers, &uri, Wait::No)?;
    let ask: Restrict = read(body::json(body).await?)?;
    let owner = call.owner(ask.owner.as_deref())?;
    let ordered = shared
        .intake
        .unrestrict(&call.order(&owner), &ask.targets())
        .await;
    finish(&shared, &call, ordered).await
}

/// Waits until the change is visible unless told not to, so that what is sent next is let in; then
/// lets in what had waited for it.
pub(super) async fn change_consent(
    State(shared): State<Shared>,
    uri: Uri,
    headers: HeaderMap,
    body: Body,
) -> Reply {
    let call = begin(&shared, &headers, &uri, Wait::Decided)?;
    let ask: ConsentChange = read(body::json(body).await?)?;
    let owner = call.owner(ask.owner.as_deref())?;
    let ordered = shared
        .intake
        .consent(&call.order(&owner), &ask)
        .await
        .map_err(IntakeError::into_problem)?;
    let mut answer = answer(&shared.intake, &ordered, call.wait).await?;
    if answer.decision.is_some() {
        let released = shared
            .intake
            .release(&owner)
            .await
            .map_err(IntakeError::into_problem)?;
        answer.fields.insert("released".to_owned(), json!(released));
    }
    Ok(accepted(answer.fields))
}

pub(super) async fn consents(State(shared): State<Shared>, uri: Uri, headers: HeaderMap) -> Reply {
    let caller = shared.callers.resolve(&headers)?;
    let parameters = http::parameters(&uri, &["owner", "as_of", "known_at"])?;
    let owner = owner_of(&caller, parameters.get("owner").map(String::as_str))?;
    let scope = caller.scope(&owner, shared.intake.ids())?;
    let instant = |name: &str| match parameters.get(name) {
        Some(text) => Timestamp::parse(text).map(Some).map_err(|_| {
            let detail = format!("{name} must be an instant in RFC 3339");
            Problem::bad_request("invalid_parameter", detail).at(name)
        }),
        None => Ok(None),
    };
    let (as_of, known_at) = (instant("as_of")?, instant("known_at")?);
    let records = &shared.intake.records;
    let failed = |error: StoreError| IntakeError::from(error).into_problem();
    let mut view = records.owner(scope).await.map_err(failed)?;
    if let (Some(view), Some(known)) = (&mut view, known_at) {
        let cut = records.cut(scope, Known::At(known)).await.map_err(failed)?;
        view.consents.retain(|held| held.recorded_from < cut.0);
        for held in &mut view.consents {
            held.recorded_to = held.recorded_to.filter(|at| *at < cut.0);
        }
    }
    let at = as_of.unwrap_or_else(|| shared.intake.now());
    let is_granted = view
        .as_ref()
        .is_some_and(|view| granted_version(view, at).is_some());
    let list: Vec<Value> = view
        .map(|view| view.consents)
        .unwrap_or_default()
        .into_iter()
        .map(|held| {
            let consent = held.consent;
            json!({
                "purposes": consent.purposes,
                "kinds": consent.kinds,
                "max_sensitivity": consent.max_sensitivity,
                "valid_from": consent.valid_from,
                "valid_to": consent.valid_to,
                "recorded_from": held.recorded_from,
                "recorded_to": held.recorded_to,
            })
        })
        .collect();
    let required = shared.intake.settings.consent_required;
    let answer = json!({"required": required, "granted": is_granted, "consents": list});
    Ok((StatusCode::OK, Json(answer)).into_response())
}

/// Answers when it is decided, so that the second of two reviewers learns who won.
pub(super) async fn decide_review(
    State(shared): State<Shared>,
    Path(id): Path<String>,
    uri: Uri,
    headers: HeaderMap,
    body: Body,
) -> Reply {
    let call = begin(&shared, &headers, &uri, Wait::Decided)?;
    let id = ReviewId::parse(&id).ok_or_else(|| Problem::not_found("review"))?;
    let memory_id = shared.intake.reviewed_memory(id);
    let ask: ReviewDecision = read(body::json(body).await?)?;
    let owner = call.owner(ask.owner.as_deref())?;
    let ordered = shared
        .intake
        .review(&call.order(&owner), id, &ask)
        .await
        .map_err(IntakeError::into_problem)?;
    match answer(&shared.intake, &ordered, call.wait).await {
        Ok(answer) if answer.decision.is_some() => {
            Ok((StatusCode::OK, Json(Value::Object(answer.fields))).into_response())
        }
        Ok(answer) => Ok(accepted(answer.fields)),
        Err(problem) => Err(with_winner(&shared.intake, ordered.scope, memory_id, problem).await?),
    }
}

pub(super) async fn task(
    State(shared): State<Shared>,
    uri: Uri,
    headers: HeaderMap,
    body: Body,
) -> Reply {
    let call = begin(&shared, &headers, &uri, Wait::No)?;
    let ask: TaskChange = read(body::json(body).await?)?;
    let owner = call.owner(ask.owner.as_deref())?;
    let ordered = shared.intake.task(&call.order(&owner), &ask).await;
    finish(&shared, &call, ordered).await
}
