//! What do the tables of the records store answer?
//!
//! Every question of one owner begins with the owner's key, which leads each index. SQL narrows to the
//! versions that are live at the cut; [`Filter::admits`] says the rest, as in every other backend.

use std::collections::BTreeMap;

use anamnesis_domain::ids::{EventTag, MemoryId};
use anamnesis_domain::memory::{Kind, Status};
use anamnesis_domain::owner::OwnerScope;
use anamnesis_domain::time::Known;
use anamnesis_pipeline::digests::{self, OWNER_KEY};
use anamnesis_pipeline::feed::Feed;
use anamnesis_pipeline::paging::{Cursor, PAGE_VERSIONS_MAX};
use anamnesis_pipeline::stores::{
    Cut, DecisionRow, Filter, MemoryVersion, Order, OwnerView, Page, RowDigest,
};
use rusqlite::{Connection, OptionalExtension as _, params};

use super::body;
use crate::sqlite_store::facets::{self, VersionId, version_columns};
use crate::sqlite_store::{Failure, altered, cut_column, position, unreadable};

macro_rules! select_versions {
    ($rest:literal) => {
        concat!(
            "SELECT ",
            version_columns!(),
            ", recorded_at, body FROM versions ",
            $rest
        )
    };
}

/// Without the hint, SQLite takes the index by recorded time and walks over all of the owner's.
const LIVE_VERSION: &str = select_versions!(
    "INDEXED BY versions_by_memory
     WHERE owner = ?1 AND memory = ?2
       AND recorded_from < ?3 AND (recorded_to IS NULL OR recorded_to >= ?3)"
);

const HISTORY: &str = select_versions!("WHERE owner = ?1 AND memory = ?2 ORDER BY version");

const ALL_VERSIONS: &str = select_versions!("WHERE owner = ?1");

const BY_RECORDED: &str = select_versions!(
    "INDEXED BY versions_by_recorded
     WHERE owner = ?1 AND recorded_from <= ?2 AND (recorded_from < ?2 OR memory > ?3)
       AND recorded_from < ?4 AND (recorded_to IS NULL OR recorded_to >= ?4)
       AND (?5 IS NULL OR instr(?5, ',' || kind || ','))
     ORDER BY recorded_from DESC, memory"
);

const BY_VALID: &str = select_versions!(
    "INDEXED BY versions_by_valid
     WHERE owner = ?1 AND valid_from <= ?2 AND (valid_from < ?2 OR memory > ?3)
       AND recorded_from < ?4 AND (recorded_to IS NULL OR recorded_to >= ?4)
       AND (?5 IS NULL OR instr(?5, ',' || kind || ','))
     ORDER BY valid_from DESC, memory"
);

macro_rules! select_decisions {
    ($rest:literal) => {
        concat!(
            "SELECT owner, owner_seq, \"offset\", recorded_at, event, body FROM decisions ",
            $rest
        )
    };
}

pub(super) fn cut(
    connection: &Connection,
    feed: Feed,
    scope: OwnerScope,
    known: Known,
) -> Result<Cut, Failure> {
    let at = match known {
        Known::Latest => return Ok(Cut(position(connection, feed, scope)?)),
        Known::At(at) => at,
    };
    // Recorded time never decreases along a partition, so the first row of the index has the first
    // offset.
    let sql = "SELECT \"offset\" FROM decisions WHERE partition = ?1 AND recorded_at > ?2
               ORDER BY recorded_at, \"offset\" LIMIT 1";
    let mut statement = connection.prepare_cached(sql)?;
    let partition = feed.partition_of(scope.key());
    let later: Option<i64> = statement
        .query_row(params![partition, at.millis()], |row| row.get(0))
        .optional()?;
    match later {
        Some(offset) => Ok(Cut(offset as u64)),
        None => Ok(Cut(position(connection, feed, scope)?)),
    }
}

pub(super) fn check(
    connection: &Connection,
    filter: &Filter,
    ids: &[MemoryId],
) -> Result<Vec<MemoryVersion>, Failure> {
    let mut statement = connection.prepare_cached(LIVE_VERSION)?;
    let owner = filter.scope.key();
    let mut versions = Vec::with_capacity(ids.len());
    for id in ids {
        let asked = params![owner.bytes(), id.bytes(), cut_column(filter.cut)];
        let mut rows = statement.query(asked)?;
        while let Some(row) = rows.next()? {
            if filter.admits(&facets::read(row)?) {
                versions.push(body::read_version(row)?);
                break;
            }
        }
    }
    Ok(versions)
}

pub(super) fn history(
    connection: &Connection,
    scope: OwnerScope,
    id: MemoryId,
) -> Result<Vec<MemoryVersion>, Failure> {
    let mut statement = connection.prepare_cached(HISTORY)?;
    let owner = scope.key();
    let asked = params![owner.bytes(), id.bytes()];
    let versions = statement.query_map(asked, body::read_version)?;
    Ok(versions.collect::<Result<_, _>>()?)
}

pub(super) fn list(
    connection: &Connection,
    mut filter: Filter,
    order: Order,
    limit: usize,
    cursor: Option<&str>,
) -> Result<Page, Failure> {
    let limit = limit.clamp(1, PAGE_VERSIONS_MAX);
    let after = cursor.map(|text| Cursor::read(text, order)).transpose()?;
    if let Some(after) = after {
        filter.cut = after.cut;
    }
    let mut statement = connection.prepare_cached(match order {
        Order::Recorded => BY_RECORDED,
        Order::Valid => BY_VALID,
    })?;
    // An empty id comes before every other one.
    let (key, id) = after.map_or((i64::MAX, Vec::new()), |after| {
        (after.key, after.id.bytes().to_vec())
    });
    let owner = filter.scope.key();
    // Kinds are narrowed in the index already: a few protected memories are asked for at each recall,
    // among all of an owner's.
    let kinds = filter.kinds.as_ref().map(|kinds| {
        let codes = kinds.iter().map(|kind| kind.code());
        codes.fold(",".to_owned(), |list, code| list + code + ",")
    });
    let cut = cut_column(filter.cut);
    let mut rows = statement.query(params![owner.bytes(), key, id, cut, kinds])?;
    let mut versions: Vec<MemoryVersion> = Vec::new();
    let mut cursor = None;
    while let Some(row) = rows.next()? {
        if !filter.admits(&facets::read(row)?) {
            continue;
        }
        if versions.len() == limit {
            let last = versions.last();
            cursor = last.map(|version| Cursor::of(order, filter.cut, version).write());
            break;
        }
        versions.push(body::read_version(row)?);
    }
    Ok(Page { versions, cursor })
}

pub(super) fn owner(
    connection: &Connection,
    scope: OwnerScope,
) -> Result<Option<OwnerView>, Failure> {
    let mut statement =
        connection.prepare_cached("SELECT owner, body FROM owners WHERE owner = ?1")?;
    Ok(statement
        .query_row(params![scope.key().bytes()], body::read_owner)
        .optional()?)
}

/// The first decision on the event: later ones say that it came again.
pub(super) fn decision(
    connection: &Connection,
    scope: OwnerScope,
    event: EventTag,
) -> Result<Option<DecisionRow>, Failure> {
    let sql = select_decisions!("WHERE owner = ?1 AND event = ?2 ORDER BY owner_seq LIMIT 1");
    let mut statement = connection.prepare_cached(sql)?;
    let owner = scope.key();
    let asked = params![owner.bytes(), event.bytes()];
    Ok(statement.query_row(asked, body::read_decision).optional()?)
}

pub(super) fn decision_offsets(
    connection: &Connection,
    scope: OwnerScope,
) -> Result<Vec<u64>, Failure> {
    let sql = "SELECT \"offset\" FROM decisions WHERE owner = ?1";
    let mut statement = connection.prepare_cached(sql)?;
    let offsets = statement.query_map(params![scope.key().bytes()], |row| row.get::<_, i64>(0))?;
    let mut offsets: Vec<u64> = offsets
        .map(|offset| offset.map(|offset| offset as u64))
        .collect::<Result<_, _>>()?;
    offsets.sort_unstable();
    Ok(offsets)
}

pub(super) fn counts(connection: &Connection) -> Result<Vec<(Kind, Status, u64)>, Failure> {
    let sql = "SELECT kind, status, count(*) FROM versions
               WHERE recorded_to IS NULL AND is_confirmation = 0 GROUP BY kind, status";
    let mut statement = connection.prepare_cached(sql)?;
    let mut rows = statement.query([])?;
    let mut counts = BTreeMap::new();
    while let Some(row) = rows.next()? {
        let kind = Kind::from_code(&row.get::<_, String>(0)?);
        let status = Status::from_code(&row.get::<_, String>(1)?);
        let kind = kind.ok_or_else(|| unreadable(0, "no kind of memory"))?;
        let status = status.ok_or_else(|| unreadable(1, "no status"))?;
        counts.insert((kind, status), row.get::<_, i64>(2)? as u64);
    }
    Ok(counts
        .into_iter()
        .map(|((kind, status), count)| (kind, status, count))
        .collect())
}

pub(super) fn rows(connection: &Connection, scope: OwnerScope) -> Result<Vec<RowDigest>, Failure> {
    let mut digests = version_rows(connection, scope)?;
    let owner = scope.key();

    let sql = select_decisions!("WHERE owner = ?1");
    let mut statement = connection.prepare_cached(sql)?;
    let mut rows = statement.query(params![owner.bytes()])?;
    while let Some(row) = rows.next()? {
        digests.push(match body::read_decision(row) {
            Ok(decision) if body::write_decision(&decision) == row.get::<_, String>(5)? => {
                digests::decision_digest(&decision)
            }
            Ok(_) | Err(_) => altered(row, format!("decision/{:010}", row.get::<_, i64>(1)?))?,
        });
    }

    let mut statement =
        connection.prepare_cached("SELECT owner, body FROM owners WHERE owner = ?1")?;
    let mut rows = statement.query(params![owner.bytes()])?;
    while let Some(row) = rows.next()? {
        digests.push(match body::read_owner(row) {
            Ok(view) if body::write_owner(&view) == row.get::<_, String>(1)? => {
                digests::owner_digest(&view)
            }
            Ok(_) | Err(_) => altered(row, OWNER_KEY.to_owned())?,
        });
    }
    digests.sort();
    Ok(digests)
}

fn version_rows(connection: &Connection, scope: OwnerScope) -> Result<Vec<RowDigest>, Failure> {
    let mut statement = connection.prepare_cached(ALL_VERSIONS)?;
    let mut rows = statement.query(params![scope.key().bytes()])?;
    let mut digests = Vec::new();
    while let Some(row) = rows.next()? {
        digests.push(match body::read_version(row) {
            Ok(version) if body::is_as_written(row, &version)? => RowDigest {
                key: digests::version_key(&version),
                hash: digests::records_hash(&version),
            },
            Ok(_) | Err(_) => altered(row, VersionId::read(row)?.key())?,
        });
    }
    Ok(digests)
}
