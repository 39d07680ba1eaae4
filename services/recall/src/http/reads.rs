//! The calls that read records from the authority: memories, reviews, tasks, changes.

use anamnesis_domain::ids::MemoryId;
use anamnesis_domain::input::Task;
use anamnesis_domain::memory::{Kind, Status};
use anamnesis_domain::owner::{Owner, OwnerScope};
use anamnesis_domain::time::{AsOf, Known, Timestamp};
use anamnesis_pipeline::caller::Caller;
use anamnesis_pipeline::problem::Problem;
use anamnesis_pipeline::stores::{
    Cut, ErasureRow, Filter, MemoryVersion, Order, OwnerView, StoreError, current,
};
use axum::Json;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, Uri};
use serde::Serialize;
use serde_json::{Value, json};

use super::params::Params;
use super::{Shared, is_privileged, problem};
use crate::answer::{Erased, Record, erased_since};
use crate::authority::own;
use crate::reach::readable_kinds;
use crate::reviews::{self, Items};
use crate::service::RecallError;

const PAGE_DEFAULT: u64 = 50;
const PAGE_MAX: u64 = 200;
/// Most changes of one answer; the caller asks again from the last version.
const CHANGES_MAX: usize = 500;

/// Everything that a read starts from.
struct Reading {
    params: Params,
    caller: Caller,
    owner: Owner,
    scope: OwnerScope,
    view: Option<OwnerView>,
    now: Timestamp,
}

impl Reading {
    async fn begin(
        shared: &Shared,
        headers: &HeaderMap,
        uri: &Uri,
        known: &[&str],
    ) -> Result<Self, Problem> {
        let caller = shared.caller(headers)?;
        let params = Params::read(uri, known)?;
        let owner = params.owner()?;
        let scope = shared.scope(&caller, &owner)?;
        let records = &shared.recall.parts.stores.records;
        let view = records.owner(scope).await.map_err(store_problem)?;
        Ok(Self {
            params,
            caller,
            owner,
            scope,
            view,
            now: shared.recall.now(),
        })
    }

    /// Kinds that this caller may see of this owner.
    fn readable(&self, shared: &Shared) -> Vec<Kind> {
        let is_required =
            shared.recall.parts.settings.is_consent_required && !is_privileged(&self.caller);
        readable_kinds(&self.owner, self.view.as_ref(), is_required, self.now)
    }

    fn may_see(&self, status: Status) -> bool {
        match status {
            Status::Restricted | Status::Erased => is_privileged(&self.caller),
            Status::Active
            | Status::Superseded
            | Status::Conflicted
            | Status::PendingReview
            | Status::Retired
            | Status::Archived => true,
        }
    }
}

fn store_problem(error: StoreError) -> Problem {
    problem(error.into())
}

#[derive(Serialize)]
pub(super) struct MemoriesPage {
    memories: Vec<Record>,
    cursor: Option<String>,
    /// Erasures since the time asked about.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    erased: Vec<Erased>,
}

pub(super) async fn memories(
    State(shared): State<Shared>,
    headers: HeaderMap,
    uri: Uri,
) -> Result<Json<MemoriesPage>, Problem> {
    let known = [
        "owner", "as_of", "known_at", "status", "kind", "order", "limit", "cursor",
    ];
    let reading = Reading::begin(&shared, &headers, &uri, &known).await?;
    let filter = listing_filter(&shared, &reading).await?;
    let order = match reading.params.get("order") {
        None | Some("recorded") => Order::Recorded,
        Some("valid") => Order::Valid,
        Some(_) => {
            let problem =
                Problem::bad_request("invalid_parameter", "order must be recorded or valid");
            return Err(problem.at("order"));
        }
    };
    let limit = page_limit(&reading.params)?;
    let cursor = reading.params.get("cursor");
    let page = shared
        .recall
        .parts
        .stores
        .records
        .list(&filter, order, limit, cursor)
        .await
        .map_err(|error| page_problem(error, cursor.is_some()))?;
    Ok(Json(MemoriesPage {
        memories: own_records(&reading, &filter, page.versions),
        cursor: page.cursor,
        erased: erased_before(&reading, filter.cut)?,
    }))
}

fn erased_before(reading: &Reading, cut: Cut) -> Result<Vec<Erased>, Problem> {
    let as_of = reading.params.instant("as_of")?.unwrap_or(reading.now);
    let known_at = reading.params.instant("known_at")?.unwrap_or(reading.now);
    Ok(erased_since(reading.view.as_ref(), cut, as_of, known_at))
}

/// What the system knew at `known_at`, or knows now.
async fn known_cut(shared: &Shared, reading: &Reading) -> Result<(Known, Cut), Problem> {
    let known_at = reading.params.instant("known_at")?;
    if known_at.is_some_and(|known| known > reading.now) {
        let detail = "what will be known later cannot be asked";
        return Err(Problem::bad_request("known_at_in_future", detail).at("known_at"));
    }
    let known = known_at.map_or(Known::Latest, Known::At);
    let records = &shared.recall.parts.stores.records;
    let cut = records
        .cut(reading.scope, known)
        .await
        .map_err(store_problem)?;
    Ok((known, cut))
}

async fn listing_filter(shared: &Shared, reading: &Reading) -> Result<Filter, Problem> {
    let (known, cut) = known_cut(shared, reading).await?;
    let as_of = reading.params.instant("as_of")?;
    let valid = as_of.unwrap_or(reading.now);
    let mut filter = current(reading.scope, cut, AsOf { valid, known });
    if let Some(statuses) = reading.params.statuses()? {
        if let Some(hidden) = statuses.iter().find(|status| !reading.may_see(**status)) {
            let detail = format!("memories that are {hidden} need the role reviewer or auditor");
            return Err(Problem::new(403, "role_required", detail).at("status"));
        }
        filter.statuses = statuses;
        // What is superseded is over by now, so "now" would hide what was asked for.
        filter.valid_at = as_of;
    }
    let readable = reading.readable(shared);
    filter.kinds = Some(match reading.params.kinds()? {
        Some(asked) => readable
            .into_iter()
            .filter(|kind| asked.contains(kind))
            .collect(),
        None => readable,
    });
    Ok(filter)
}

fn page_limit(params: &Params) -> Result<usize, Problem> {
    let limit = params.number("limit", PAGE_MAX)?.unwrap_or(PAGE_DEFAULT);
    if limit == 0 {
        return Err(
            Problem::bad_request("invalid_parameter", "limit must be at least 1").at("limit"),
        );
    }
    Ok(limit as usize)
}

fn page_problem(error: StoreError, has_cursor: bool) -> Problem {
    if has_cursor && matches!(error, StoreError::Unusable { .. }) {
        let detail = "the cursor does not belong to this listing; start again without it";
        return Problem::bad_request("invalid_cursor", detail).at("cursor");
    }
    store_problem(error)
}

fn own_records(reading: &Reading, filter: &Filter, versions: Vec<MemoryVersion>) -> Vec<Record> {
    own(filter, versions)
        .map(|version| Record::of(&reading.owner, &version.memory))
        .collect()
}

#[derive(Serialize)]
pub(super) struct MemoryRead {
    #[serde(flatten)]
    record: Record,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    versions: Vec<VersionRead>,
}

#[derive(Serialize)]
struct VersionRead {
    recorded_at: Timestamp,
    #[serde(flatten)]
    record: VersionRecord,
}

/// Only what differs between versions; the claim itself never changes.
#[derive(Serialize)]
struct VersionRecord {
    version: u64,
    status: Status,
    valid_from: Timestamp,
    valid_to: Option<Timestamp>,
    superseded_by: Option<MemoryId>,
    rule: String,
}

pub(super) async fn memory(
    State(shared): State<Shared>,
    headers: HeaderMap,
    uri: Uri,
    Path(id): Path<String>,
) -> Result<Json<MemoryRead>, Problem> {
    let known = ["owner", "history", "as_of", "known_at"];
    let reading = Reading::begin(&shared, &headers, &uri, &known).await?;
    let Ok(id) = id.parse::<MemoryId>() else {
        return Err(Problem::bad_request(
            "invalid_id",
            "a memory's id is m-<32 hexadecimal digits>",
        )
        .at("id"));
    };
    if let Some(row) = erasure_of(reading.view.as_ref(), id) {
        return Err(erased(row));
    }
    let (known, cut) = known_cut(&shared, &reading).await?;
    let records = &shared.recall.parts.stores.records;
    let mut versions = records
        .history(reading.scope, id)
        .await
        .map_err(store_problem)?;
    versions
        .retain(|version| version.owner == reading.scope.key() && version.recorded_from < cut.0);
    if let Some(valid) = reading.params.instant("as_of")? {
        let mut filter = current(reading.scope, cut, AsOf { valid, known });
        filter.statuses = Status::ALL.to_vec();
        let holds = |version: &MemoryVersion| filter.admits(&version.facets());
        if !versions.last().is_some_and(holds) {
            return Err(Problem::not_found("memory"));
        }
    }
    let is_visible = |version: &&MemoryVersion| {
        let memory = &version.memory;
        reading.may_see(memory.standing.status)
            && reading.readable(&shared).contains(&memory.claim.kind)
    };
    let Some(latest) = versions.last().filter(is_visible) else {
        return Err(Problem::not_found("memory"));
    };
    let record = Record::of(&reading.owner, &latest.memory);
    let history = if reading.params.get("history") == Some("true") {
        versions
    } else {
        Vec::new()
    };
    Ok(Json(MemoryRead {
        record,
        versions: history.iter().map(version_read).collect(),
    }))
}

fn version_read(version: &MemoryVersion) -> VersionRead {
    let standing = &version.memory.standing;
    VersionRead {
        recorded_at: version.recorded_at,
        record: VersionRecord {
            version: version.memory.version,
            status: standing.status,
            valid_from: standing.valid_from,
            valid_to: standing.valid_to,
            superseded_by: standing.superseded_by,
            rule: standing.rule.clone(),
        },
    }
}

fn erasure_of(view: Option<&OwnerView>, id: MemoryId) -> Option<&ErasureRow> {
    view?
        .erasures
        .iter()
        .find(|row| row.memory_ids.contains(&id))
}

/// "Erased on D under R", in place of absence.
fn erased(row: &ErasureRow) -> Problem {
    let day = row.recorded_at.to_utc().format("%Y-%m-%d");
    Problem::new(
        410,
        "erased",
        format!("erased on {day} under erasure {}", row.erasure),
    )
    .with("erasure_id", row.erasure.to_string())
    .with("erased_at", row.recorded_at.to_string())
}

pub(super) async fn reviews(
    State(shared): State<Shared>,
    headers: HeaderMap,
    uri: Uri,
) -> Result<Json<Items>, Problem> {
    let known = ["owner", "state", "limit", "cursor"];
    let reading = Reading::begin(&shared, &headers, &uri, &known).await?;
    let asked = reading.params.get("state").unwrap_or("open");
    let Some(state) = reviews::State::parse(asked) else {
        let detail = "state must be open, expired, decided or rejected";
        return Err(Problem::bad_request("invalid_parameter", detail).at("state"));
    };
    if state == reviews::State::Rejected && !is_privileged(&reading.caller) {
        let detail = "rejected candidates need the role reviewer or auditor";
        return Err(Problem::new(403, "role_required", detail).at("state"));
    }
    let cursor = reading.params.get("cursor");
    let asked = reviews::Asked {
        owner: &reading.owner,
        scope: reading.scope,
        state,
        kinds: reading.readable(&shared),
        limit: page_limit(&reading.params)?,
        cursor,
    };
    match shared.recall.reviews(&asked).await {
        Ok(items) => Ok(Json(items)),
        Err(RecallError::Store(error)) => Err(page_problem(error, cursor.is_some())),
        Err(error) => Err(problem(error)),
    }
}

pub(super) async fn tasks(
    State(shared): State<Shared>,
    headers: HeaderMap,
    uri: Uri,
) -> Result<Json<Value>, Problem> {
    let reading = Reading::begin(&shared, &headers, &uri, &["owner"]).await?;
    let tasks: Vec<&Task> = open_tasks(&reading).collect();
    Ok(Json(json!({ "tasks": tasks })))
}

pub(super) async fn task(
    State(shared): State<Shared>,
    headers: HeaderMap,
    uri: Uri,
    Path(task_id): Path<String>,
) -> Result<Json<Task>, Problem> {
    let reading = Reading::begin(&shared, &headers, &uri, &["owner"]).await?;
    let found = open_tasks(&reading).find(|task| task.id == task_id);
    found
        .cloned()
        .map(Json)
        .ok_or_else(|| Problem::not_found("task"))
}

/// Tasks whose time is not over.
fn open_tasks(reading: &Reading) -> impl Iterator<Item = &Task> {
    let tasks = reading.view.iter().flat_map(|view| view.tasks.values());
    tasks.filter(|task| task.expires_at.is_none_or(|end| reading.now < end))
}

/// What changed since a version; the version of (owner, tag) is the sequence number of the latest
/// decision that touched one of its memories.
pub(super) async fn changes(
    State(shared): State<Shared>,
    headers: HeaderMap,
    uri: Uri,
) -> Result<Json<Value>, Problem> {
    let reading = Reading::begin(&shared, &headers, &uri, &["owner", "tag", "since"]).await?;
    let since = reading.params.number("since", u64::MAX)?.unwrap_or(0);
    let records = &shared.recall.parts.stores.records;
    let cut = records
        .cut(reading.scope, Known::Latest)
        .await
        .map_err(store_problem)?;
    let mut filter = current(
        reading.scope,
        cut,
        AsOf {
            valid: reading.now,
            known: Known::Latest,
        },
    );
    filter.valid_at = None;
    filter.kinds = Some(reading.readable(&shared));
    filter.statuses = Status::ALL
        .iter()
        .copied()
        .filter(|status| reading.may_see(*status))
        .collect();
    let tag = reading.params.get("tag");
    filter.context_tags = tag.map(|tag| vec![tag.to_owned()]);
    let page = records
        .list(&filter, Order::Recorded, CHANGES_MAX, None)
        .await
        .map_err(store_problem)?;
    let mut changed = own_records(&reading, &filter, page.versions);
    if let Some(tag) = tag {
        changed.retain(|record| record.context_tags.iter().any(|one| one == tag));
    }
    let version = changed
        .iter()
        .map(|record| record.version)
        .max()
        .unwrap_or(0);
    let changes: Vec<Value> = changed
        .iter()
        .filter(|record| record.version > since)
        .map(|record| {
            json!({
                "memory_id": record.id,
                "version": record.version,
                "kind": record.kind,
                "status": record.status,
            })
        })
        .collect();
    Ok(Json(json!({ "version": version, "changes": changes })))
}
