//! How do changes reach the tables of the records store?

use std::collections::BTreeMap;

use anamnesis_domain::ids::OwnerKey;
use anamnesis_pipeline::stores::{Change, DecisionRow, MemoryVersion, OwnerRows, OwnerView};
use rusqlite::{Connection, params};

use super::body;
use crate::sqlite_store::facets::{self, version_columns};
use crate::sqlite_store::{Failure, to_column};

const INSERT_VERSION: &str = concat!(
    "INSERT OR IGNORE INTO versions (",
    version_columns!(),
    ", recorded_at, body) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14)"
);

/// Applies changes in order; tells how many versions there are more.
pub(super) fn all(
    connection: &Connection,
    partition: u32,
    changes: &[Change],
) -> Result<i64, Failure> {
    let mut added = 0;
    // Many decisions of one owner may be in a batch; only the last view of each is written.
    let mut views: BTreeMap<OwnerKey, &OwnerView> = BTreeMap::new();
    for change in changes {
        match change {
            Change::Version { version, vector: _ } => {
                facets::close(connection, body::version_id(version), version.recorded_from)?;
                added += insert(connection, version)?;
            }
            Change::Decision(row) => write_decision(connection, partition, row)?,
            Change::Owner(view) => {
                views.insert(view.key, view);
            }
            Change::Rewrite(rows) => {
                added += rewrite(connection, partition, rows)?;
                views.insert(rows.owner, &rows.view);
            }
        }
    }
    for view in views.into_values() {
        write_owner(connection, view)?;
    }
    Ok(added)
}

fn insert(connection: &Connection, version: &MemoryVersion) -> Result<i64, Failure> {
    let values = body::version_values(version);
    facets::insert(
        connection,
        INSERT_VERSION,
        body::version_id(version),
        &values,
    )
}

fn write_decision(
    connection: &Connection,
    partition: u32,
    row: &DecisionRow,
) -> rusqlite::Result<()> {
    let insert =
        "INSERT OR REPLACE INTO decisions (owner, owner_seq, partition, \"offset\", recorded_at, event, body)
                  VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)";
    connection.prepare_cached(insert)?.execute(params![
        row.owner.bytes(),
        to_column(row.owner_seq),
        partition,
        to_column(row.offset),
        row.recorded_at.millis(),
        row.event.bytes(),
        body::write_decision(row),
    ])?;
    Ok(())
}

fn write_owner(connection: &Connection, view: &OwnerView) -> rusqlite::Result<()> {
    let sql = "INSERT OR REPLACE INTO owners (owner, body) VALUES (?1, ?2)";
    connection
        .prepare_cached(sql)?
        .execute(params![view.key.bytes(), body::write_owner(view)])?;
    Ok(())
}

fn rewrite(connection: &Connection, partition: u32, rows: &OwnerRows) -> Result<i64, Failure> {
    let mut added = delete(connection, rows.owner)?;
    for (version, _) in &rows.versions {
        added += insert(connection, version)?;
    }
    for row in &rows.decisions {
        write_decision(connection, partition, row)?;
    }
    Ok(added)
}

fn delete(connection: &Connection, owner: OwnerKey) -> rusqlite::Result<i64> {
    for sql in [
        "DELETE FROM decisions WHERE owner = ?1",
        "DELETE FROM owners WHERE owner = ?1",
    ] {
        connection
            .prepare_cached(sql)?
            .execute(params![owner.bytes()])?;
    }
    facets::delete_owner(connection, owner)
}
