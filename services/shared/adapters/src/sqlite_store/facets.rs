//! How do the facets of a version stand in columns, so that the hard filter is applied inside a store?

use anamnesis_domain::ids::{MemoryId, OwnerKey};
use anamnesis_domain::memory::{Kind, Status};
use anamnesis_domain::owner::Subject;
use anamnesis_domain::time::Timestamp;
use anamnesis_pipeline::stores::Facets;
use rusqlite::types::Value;
use rusqlite::{Connection, Row, params, params_from_iter};

use super::{Failure, to_column, unreadable};

/// Columns of a version that all stores have, in the order of [`values`]. A literal, so that each
/// store's table and questions can be put together at compile time.
macro_rules! version_columns {
    () => {
        "owner, memory, version, recorded_from, recorded_to, valid_from, valid_to, subject, kind, \
         status, context_tags, is_confirmation"
    };
}
pub(crate) use version_columns;

/// How many there are: the column after them is the first that only one store has.
pub(crate) const VERSION_COLUMNS: usize = 12;

/// Their definition.
macro_rules! version_table {
    ($own:literal) => {
        concat!(
            "CREATE TABLE versions (
                id INTEGER PRIMARY KEY,
                owner BLOB NOT NULL,
                memory BLOB NOT NULL,
                version INTEGER NOT NULL,
                recorded_from INTEGER NOT NULL,
                recorded_to INTEGER,
                valid_from INTEGER NOT NULL,
                valid_to INTEGER,
                subject TEXT NOT NULL,
                kind TEXT NOT NULL,
                status TEXT NOT NULL,
                context_tags TEXT NOT NULL,
                is_confirmation INTEGER NOT NULL",
            $own,
            ") STRICT;
            CREATE UNIQUE INDEX versions_by_memory ON versions (owner, memory, version);"
        )
    };
}
pub(crate) use version_table;

/// A version's name within a store.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct VersionId {
    pub(crate) owner: OwnerKey,
    pub(crate) memory: MemoryId,
    pub(crate) version: u64,
}

impl VersionId {
    pub(crate) fn key(&self) -> String {
        format!("{}/{:010}", self.memory, self.version)
    }

    pub(crate) fn read(row: &Row<'_>) -> rusqlite::Result<Self> {
        Ok(Self {
            owner: OwnerKey::from_bytes(row.get(0)?),
            memory: MemoryId::from_bytes(row.get(1)?),
            version: row.get::<_, i64>(2)? as u64,
        })
    }
}

pub(crate) fn values(id: VersionId, facets: &Facets) -> Vec<Value> {
    let tags = serde_json::to_string(&facets.context_tags).expect("a list of texts");
    vec![
        Value::Blob(id.owner.bytes().to_vec()),
        Value::Blob(id.memory.bytes().to_vec()),
        Value::Integer(to_column(id.version)),
        Value::Integer(to_column(facets.recorded_from)),
        facets
            .recorded_to
            .map_or(Value::Null, |to| Value::Integer(to_column(to))),
        Value::Integer(facets.valid_from.millis()),
        facets
            .valid_to
            .map_or(Value::Null, |to| Value::Integer(to.millis())),
        Value::Text(facets.subject.to_string()),
        Value::Text(facets.kind.code().to_owned()),
        Value::Text(facets.status.code().to_owned()),
        Value::Text(tags),
        Value::Integer(i64::from(facets.is_confirmation)),
    ]
}

/// Reads the facets of a row that begins with [`version_columns`].
pub(crate) fn read(row: &Row<'_>) -> rusqlite::Result<Facets> {
    let text = |column: usize| row.get_ref(column)?.as_str().map_err(rusqlite::Error::from);
    let tags = text(10)?;
    Ok(Facets {
        recorded_from: row.get::<_, i64>(3)? as u64,
        recorded_to: row.get::<_, Option<i64>>(4)?.map(|to| to as u64),
        valid_from: Timestamp::from_millis(row.get(5)?),
        valid_to: row.get::<_, Option<i64>>(6)?.map(Timestamp::from_millis),
        subject: Subject::parse(text(7)?),
        kind: Kind::from_code(text(8)?).ok_or_else(|| unreadable(8, "no kind of memory"))?,
        status: Status::from_code(text(9)?).ok_or_else(|| unreadable(9, "no status"))?,
        context_tags: read_tags(tags).ok_or_else(|| unreadable(10, "no list of tags"))?,
        is_confirmation: row.get(11)?,
    })
}

fn read_tags(tags: &str) -> Option<Vec<String>> {
    // Most memories have none.
    if tags == "[]" {
        Some(Vec::new())
    } else {
        serde_json::from_str(tags).ok()
    }
}

/// Closes the open versions of a memory before this one.
pub(crate) fn close(connection: &Connection, id: VersionId, at: u64) -> rusqlite::Result<()> {
    let sql = "UPDATE versions INDEXED BY versions_by_memory SET recorded_to = ?1
               WHERE owner = ?2 AND memory = ?3 AND version < ?4 AND recorded_to IS NULL";
    connection.prepare_cached(sql)?.execute(params![
        to_column(at),
        id.owner.bytes(),
        id.memory.bytes(),
        to_column(id.version)
    ])?;
    Ok(())
}

/// Writes a version; `insert` is an `INSERT OR IGNORE` of `values` into all columns. Tells how many
/// versions there are more.
pub(crate) fn insert(
    connection: &Connection,
    insert: &str,
    id: VersionId,
    values: &[Value],
) -> Result<i64, Failure> {
    let mut statement = connection.prepare_cached(insert)?;
    if statement.execute(params_from_iter(values))? == 1 {
        return Ok(1);
    }
    // It is there already: only a log that repeats a decision does this.
    let delete = "DELETE FROM versions WHERE owner = ?1 AND memory = ?2 AND version = ?3";
    connection.prepare_cached(delete)?.execute(params![
        id.owner.bytes(),
        id.memory.bytes(),
        to_column(id.version)
    ])?;
    statement.execute(params_from_iter(values))?;
    Ok(0)
}

/// Deletes all versions of an owner. Tells how many there are more: a negative number.
pub(crate) fn delete_owner(connection: &Connection, owner: OwnerKey) -> rusqlite::Result<i64> {
    let sql = "DELETE FROM versions WHERE owner = ?1";
    Ok(-(connection
        .prepare_cached(sql)?
        .execute(params![owner.bytes()])? as i64))
}
