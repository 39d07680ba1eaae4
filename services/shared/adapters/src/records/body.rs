//! What stands in columns of the records store, what in the JSON beside them, and do the two agree?
//!
//! Questions are answered from the columns, and what a caller sees comes from the body. A row in which
//! they differ was altered by hand: no question is answered from it, and its digest is of all that
//! stands in it.

use anamnesis_domain::ids::{EventTag, MemoryId, OwnerKey};
use anamnesis_domain::memory::{Claim, Memory, Standing};
use anamnesis_domain::time::Timestamp;
use anamnesis_domain::transition::Review;
use anamnesis_pipeline::stores::{DecisionRow, MemoryVersion, OwnerView};
use rusqlite::Row;
use rusqlite::types::Value;
use serde::{Deserialize, Serialize};

use crate::sqlite_store::facets::{self, VERSION_COLUMNS, VersionId};
use crate::sqlite_store::{to_column, unreadable};

/// A memory without its id and version, which are columns. Written out, because reading a flattened
/// structure takes several times as long, and recall reads fifty of these.
#[derive(Serialize, Deserialize)]
struct Body<C, S> {
    claim: C,
    standing: S,
    protected: bool,
    supersedes: Vec<MemoryId>,
    recorded_at: Timestamp,
    last_verified_at: Option<Timestamp>,
    confirmations: u32,
    access_count: u64,
    last_accessed_at: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    review: Option<Review>,
}

fn write_body(memory: &Memory) -> String {
    let Memory {
        id: _,
        version: _,
        claim,
        standing,
        protected,
        supersedes,
        recorded_at,
        last_verified_at,
        confirmations,
        access_count,
        last_accessed_at,
        review,
    } = memory;
    let body = Body {
        claim,
        standing,
        protected: *protected,
        supersedes: supersedes.clone(),
        recorded_at: *recorded_at,
        last_verified_at: *last_verified_at,
        confirmations: *confirmations,
        access_count: *access_count,
        last_accessed_at: *last_accessed_at,
        review: review.clone(),
    };
    serde_json::to_string(&body).expect("plain data")
}

fn read_body(id: MemoryId, version: u64, body: &str) -> Option<Memory> {
    let body: Body<Claim, Standing> = serde_json::from_str(body).ok()?;
    Some(Memory {
        id,
        version,
        claim: body.claim,
        standing: body.standing,
        protected: body.protected,
        supersedes: body.supersedes,
        recorded_at: body.recorded_at,
        last_verified_at: body.last_verified_at,
        confirmations: body.confirmations,
        access_count: body.access_count,
        last_accessed_at: body.last_accessed_at,
        review: body.review,
    })
}

/// Columns of a version, as [`crate::records::read`] selects and [`crate::records::write`] fills them.
pub(super) fn version_values(version: &MemoryVersion) -> Vec<Value> {
    let id = version_id(version);
    let mut values = facets::values(id, &version.facets());
    values.push(Value::Integer(version.recorded_at.millis()));
    values.push(Value::Text(write_body(&version.memory)));
    values
}

pub(super) fn version_id(version: &MemoryVersion) -> VersionId {
    let MemoryVersion { owner, memory, .. } = version;
    VersionId {
        owner: *owner,
        memory: memory.id,
        version: memory.version,
    }
}

/// Reads a version.
///
/// # Errors
/// When the body cannot be read, or says something else than the columns.
pub(super) fn read_version(row: &Row<'_>) -> rusqlite::Result<MemoryVersion> {
    let id = VersionId::read(row)?;
    let facets = facets::read(row)?;
    let recorded_at = Timestamp::from_millis(row.get(VERSION_COLUMNS)?);
    let body = row.get_ref(VERSION_COLUMNS + 1)?.as_str()?;
    let memory = read_body(id.memory, id.version, body)
        .ok_or_else(|| unreadable(VERSION_COLUMNS + 1, "the body is no memory"))?;
    let version = MemoryVersion {
        owner: id.owner,
        memory,
        recorded_from: facets.recorded_from,
        recorded_to: facets.recorded_to,
        recorded_at,
    };
    if version.facets() != facets {
        return Err(unreadable(
            VERSION_COLUMNS + 1,
            "the body says something else than the columns",
        ));
    }
    Ok(version)
}

/// Whether the row's body is what this program would write for the version: nothing was added to it
/// that reading ignores.
pub(super) fn is_as_written(row: &Row<'_>, version: &MemoryVersion) -> rusqlite::Result<bool> {
    Ok(row.get_ref(VERSION_COLUMNS + 1)?.as_str()? == write_body(&version.memory))
}

pub(super) fn write_decision(row: &DecisionRow) -> String {
    serde_json::to_string(row).expect("plain data")
}

/// Reads `owner, owner_seq, offset, recorded_at, event, body`.
///
/// # Errors
/// As [`read_version`].
pub(super) fn read_decision(row: &Row<'_>) -> rusqlite::Result<DecisionRow> {
    let decision: DecisionRow = serde_json::from_str(row.get_ref(5)?.as_str()?)
        .map_err(|_| unreadable(5, "the body is no decision"))?;
    let agrees = OwnerKey::from_bytes(row.get(0)?) == decision.owner
        && row.get::<_, i64>(1)? == to_column(decision.owner_seq)
        && row.get::<_, i64>(2)? == to_column(decision.offset)
        && row.get::<_, i64>(3)? == decision.recorded_at.millis()
        && EventTag::from_bytes(row.get(4)?) == decision.event;
    if agrees {
        Ok(decision)
    } else {
        Err(unreadable(
            5,
            "the body says something else than the columns",
        ))
    }
}

pub(super) fn write_owner(view: &OwnerView) -> String {
    serde_json::to_string(view).expect("plain data")
}

/// Reads `owner, body`.
///
/// # Errors
/// As [`read_version`].
pub(super) fn read_owner(row: &Row<'_>) -> rusqlite::Result<OwnerView> {
    let view: OwnerView = serde_json::from_str(row.get_ref(1)?.as_str()?)
        .map_err(|_| unreadable(1, "the body is no owner"))?;
    if OwnerKey::from_bytes(row.get(0)?) == view.key {
        Ok(view)
    } else {
        Err(unreadable(
            1,
            "the body says something else than the columns",
        ))
    }
}
