//! The calls that ask: recall, context, and what came of it.

use anamnesis_domain::ids::{MemoryId, RecallId};
use anamnesis_domain::memory::Kind;
use anamnesis_domain::owner::{Owner, Scope};
use anamnesis_domain::text::Text;
use anamnesis_pipeline::caller::{Caller, parse_owner};
use anamnesis_pipeline::problem::Problem;
use axum::Json;
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::IntoResponse;
use serde_json::{Map, Value, json};

use super::{Shared, body, problem};
use crate::answer::Answer;
use crate::compose::{Companion, ContextAsk};
use crate::context::{Context, Tag};
use crate::receipts::{Outcome, OutcomeReport};
use crate::request::{RecallRequest, refuse_unknown, take};
use crate::select::CANDIDATES;

/// Most usable tokens: far above any model's window, and below what the arithmetic can hold.
const USABLE_TOKENS_MAX: u64 = 100_000_000;

pub(super) async fn recall(
    State(shared): State<Shared>,
    headers: HeaderMap,
    body: Body,
) -> Result<Json<Answer>, Problem> {
    let caller = shared.caller(&headers)?;
    let request = RecallRequest::read(body::object(body).await?)?;
    let (owner, ask) = request.validate(shared.recall.now())?;
    let scope = shared.scope(&caller, &owner)?;
    shared
        .recall
        .recall_in_turn(scope, &owner, &caller.name, ask)
        .await
        .map(Json)
        .map_err(problem)
}

pub(super) async fn context(
    State(shared): State<Shared>,
    headers: HeaderMap,
    body: Body,
) -> Result<Json<Context>, Problem> {
    let caller = shared.caller(&headers)?;
    let mut fields = body::object(body).await?;
    let own = OwnFields::take_from(&mut fields)?;
    let has_top_k = fields.get("top_k").is_some_and(|value| !value.is_null());
    let (owner, mut ask) = RecallRequest::read(fields)?.validate(shared.recall.now())?;
    let scope = shared.scope(&caller, &owner)?;
    if !has_top_k {
        ask.top_k = CANDIDATES;
    }
    ask.said_before = own.said_before;
    let mut companions = Vec::new();
    for (field, text, kind, wanted) in [
        ("org", own.org, Kind::Policy, Scope::Org),
        ("project", own.project, Kind::Lesson, Scope::Project),
    ] {
        if let Some(text) = text {
            companions.push(companion(&shared, &caller, &text, field, (kind, wanted))?);
        }
    }
    let wanted = ContextAsk {
        ask,
        usable_tokens: own.usable_tokens,
        sections: own.sections,
        companions,
    };
    shared
        .recall
        .context_in_turn(scope, &owner, &caller.name, wanted)
        .await
        .map(Json)
        .map_err(problem)
}

/// An `org` or `project` owner that the caller names and its token covers.
fn companion(
    shared: &Shared,
    caller: &Caller,
    text: &str,
    field: &str,
    (kind, wanted): (Kind, Scope),
) -> Result<Companion, Problem> {
    let owner = parse_owner(Some(text), field)?;
    if owner.scope() != wanted {
        let detail = format!("{field} must be an owner of scope {}", wanted.as_str());
        return Err(Problem::bad_request("invalid_owner", detail).at(field));
    }
    let scope = shared
        .scope(caller, &owner)
        .map_err(|problem| problem.at(field))?;
    Ok(Companion { owner, scope, kind })
}

/// What a context takes beside the fields of a recall.
struct OwnFields {
    said_before: Vec<Text>,
    usable_tokens: u32,
    sections: Option<Vec<Tag>>,
    org: Option<String>,
    project: Option<String>,
}

impl OwnFields {
    fn take_from(fields: &mut Map<String, Value>) -> Result<Self, Problem> {
        let messages: Option<Vec<Map<String, Value>>> =
            take(fields, "messages", "a list of {role, content}")?;
        let usable: Option<u64> = take(fields, "usable_tokens", "a whole number")?;
        let Some(usable) = usable else {
            let detail = "usable_tokens is required: how much of the window may be used";
            return Err(Problem::bad_request("missing_field", detail).at("usable_tokens"));
        };
        if usable > USABLE_TOKENS_MAX {
            let detail = format!("usable_tokens may be up to {USABLE_TOKENS_MAX}");
            return Err(Problem::bad_request("invalid_field", detail).at("usable_tokens"));
        }
        let sections: Option<Vec<String>> = take(fields, "sections", "a list of tags")?;
        Ok(Self {
            said_before: messages
                .unwrap_or_default()
                .iter()
                .filter_map(said_by_user)
                .collect(),
            usable_tokens: u32::try_from(usable).unwrap_or(u32::MAX),
            sections: sections.map(|codes| tags(&codes)).transpose()?,
            org: take(fields, "org", "an owner: <tenant>/org/<id>")?,
            project: take(fields, "project", "an owner: <tenant>/project/<id>")?,
        })
    }
}

fn tags(codes: &[String]) -> Result<Vec<Tag>, Problem> {
    let mut tags = Vec::new();
    for (index, code) in codes.iter().enumerate() {
        let Some(tag) = Tag::from_code(code) else {
            let known: Vec<&str> = Tag::ALL.iter().map(|tag| tag.code()).collect();
            let detail = format!("not a section; there are {}", known.join(", "));
            return Err(
                Problem::bad_request("unknown_section", detail).at(format!("sections[{index}]"))
            );
        };
        tags.push(tag);
    }
    Ok(tags)
}

/// The text of a user's message, in either form that chat interfaces use. Other messages do not help to
/// understand a question.
fn said_by_user(message: &Map<String, Value>) -> Option<Text> {
    if message.get("role").and_then(Value::as_str) != Some("user") {
        return None;
    }
    match message.get("content")? {
        Value::String(text) => Some(Text::new(text.as_str())),
        Value::Array(parts) => {
            let texts = parts
                .iter()
                .filter_map(|part| part.get("text").and_then(Value::as_str));
            Some(Text::new(texts.collect::<Vec<_>>().join(" ")))
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => None,
    }
}

/// `POST /v1/outcomes`. The owner is known from the recall while this process remembers it; later the
/// caller names it.
pub(super) async fn outcome(
    State(shared): State<Shared>,
    headers: HeaderMap,
    body: Body,
) -> Result<impl IntoResponse, Problem> {
    let caller = shared.caller(&headers)?;
    let mut fields = body::object(body).await?;
    refuse_unknown(&fields, &["recall_id", "memory_id", "outcome", "owner"])?;
    let recall_id: Option<RecallId> = take(&mut fields, "recall_id", "the id that a recall gave")?;
    let Some(recall_id) = recall_id else {
        return Err(Problem::bad_request("missing_field", "recall_id is required").at("recall_id"));
    };
    let memory_id: Option<MemoryId> = take(&mut fields, "memory_id", "a memory's id")?;
    let outcome: Option<Outcome> = take(
        &mut fields,
        "outcome",
        "used, unused, off_topic, wrong or missed",
    )?;
    let Some(outcome) = outcome else {
        let detail = "outcome is required: used, unused, off_topic, wrong or missed";
        return Err(Problem::bad_request("missing_field", detail).at("outcome"));
    };
    let named: Option<String> = take(&mut fields, "owner", "an owner")?;
    let owner: Owner = match (shared.recall.owner_of(recall_id), named) {
        (Some(owner), None) => owner,
        (known, Some(named)) => {
            let named = parse_owner(Some(&named), "owner")?;
            if known.is_some_and(|known| known != named) {
                return Err(unknown_recall());
            }
            named
        }
        (None, None) => return Err(unknown_recall()),
    };
    // A recall of a tenant that the caller does not cover looks like one that never was.
    let scope = shared
        .scope(&caller, &owner)
        .map_err(|_| unknown_recall())?;
    if !shared.recall.knows(scope).await.map_err(problem)? {
        return Err(unknown_recall());
    }
    let report = OutcomeReport { outcome, memory_id };
    let position = shared
        .recall
        .report_outcome(scope, &owner, &caller.name, recall_id, &report)
        .await
        .map_err(problem)?;
    Ok((StatusCode::ACCEPTED, Json(json!({ "position": position }))))
}

fn unknown_recall() -> Problem {
    Problem::new(
        404,
        "not_found",
        "no such recall lately; name its owner too",
    )
    .at("recall_id")
}
