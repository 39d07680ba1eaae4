//! What stands in `keys.db`, and what is done so that a destroyed key is in none of its bytes?
//!
//! - `meta`: format, check value of the master key, the wrapped site key
//! - `secrets`: wrapped keys, all of one length, numbered upwards and never deleted
//! - `epochs`: the owners' keys and which of them are closed
//! - `keys`: what each data key is for, what wraps it, and what destroyed it
//! - `erasures`: what was carried out, so that a repeat reaches nothing that came later
//!
//! Wrapped keys have a table of their own because of how SQLite moves rows: rows that are only ever
//! appended stay where they are, and a row that is replaced by one of the same length is overwritten
//! in place. Rows in the middle of a tree are copied to other pages when these split, and
//! `secure_delete` does not promise to clean the gaps that they leave.
//!
//! The journal is a write-ahead log, because making keys is on the way of every message and costs one
//! sync so. Old pages with the keys lie in it until a checkpoint: a destruction therefore ends with
//! `wal_checkpoint(TRUNCATE)`, which writes the overwritten pages to their places, syncs, and cuts the
//! write-ahead log to nothing. Opening does the same for a process that was killed in between. What a
//! file system or a disk keeps of overwritten blocks is beyond this file.

use std::path::Path;
use std::time::Duration;

use anamnesis_domain::ids::IdKey;
use anamnesis_pipeline::keyring::KeyringError;
use anamnesis_pipeline::keyring::master_key::MasterKey;
use anamnesis_pipeline::keyring::wrapping::{self as wrap, Key, Purpose};
use rusqlite::{Connection, OpenFlags, params};

use super::unavailable;
use crate::folder::{Found, foreign_format, look, reuse_statements, sync_folder};

const FORMAT: i64 = 1;

/// Only another program that looks into the file can hold it for a moment.
const BUSY_MAX: Duration = Duration::from_secs(5);

const STATEMENTS_MAX: usize = 64;

pub(super) struct Opened {
    pub(super) connection: Connection,
    pub(super) id_key: IdKey,
    /// Wraps the owners' keys.
    pub(super) wrapping: Key,
    pub(super) next_secret: i64,
}

pub(super) fn open(path: &Path, master: &MasterKey) -> Result<Opened, KeyringError> {
    let failed = |error: rusqlite::Error| unavailable(&error);
    let mut connection = Connection::open(path).map_err(failed)?;
    let refused = |what: String| Err(KeyringError::Unusable { what });
    match look(&connection).map_err(failed)? {
        Found::Empty => {
            configure(&connection).map_err(failed)?;
            create(&mut connection, master)?;
            if let Some(dir) = path.parent() {
                sync_folder(dir).map_err(|error| KeyringError::Unavailable {
                    reason: error.to_string(),
                })?;
            }
        }
        Found::Format(FORMAT) => configure(&connection).map_err(failed)?,
        Found::Format(other) => return refused(foreign_format(path, "keyring", other, FORMAT)),
        Found::SomethingElse => return refused(format!("{} is no keyring", path.display())),
    }
    let wrapping = wrap::wrapping_key(master);
    let id_key = site_key(&connection, path, master, &wrapping)?;
    checkpoint(&connection)?;
    let next_secret = connection
        .query_row("SELECT coalesce(max(n), 0) + 1 FROM secrets", [], |row| {
            row.get(0)
        })
        .map_err(failed)?;
    Ok(Opened {
        connection,
        id_key,
        wrapping,
        next_secret,
    })
}

pub(super) fn open_reader(path: &Path) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags)?;
    connection.busy_timeout(BUSY_MAX)?;
    reuse_statements(&connection, STATEMENTS_MAX)?;
    Ok(connection)
}

/// Moves everything from the write-ahead log to its place and cuts the log to nothing.
pub(super) fn checkpoint(connection: &Connection) -> Result<(), KeyringError> {
    let is_busy: bool = connection
        .query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| row.get(0))
        .map_err(|error| unavailable(&error))?;
    if is_busy {
        let reason = "another program reads keys.db, so old pages cannot be cleared yet".to_owned();
        return Err(KeyringError::Unavailable { reason });
    }
    Ok(())
}

fn configure(connection: &Connection) -> rusqlite::Result<()> {
    connection.busy_timeout(BUSY_MAX)?;
    reuse_statements(connection, STATEMENTS_MAX)?;
    connection.pragma_update(None, "secure_delete", "ON")?;
    connection.pragma_update(None, "journal_mode", "WAL")?;
    connection.pragma_update(None, "synchronous", "FULL")?;
    // Statement journals hold old pages; they stay in memory.
    connection.pragma_update(None, "temp_store", "MEMORY")
}

fn create(connection: &mut Connection, master: &MasterKey) -> Result<(), KeyringError> {
    let no_randomness = |reason| KeyringError::Unavailable { reason };
    let site = wrap::draw().map_err(no_randomness)?;
    let wrapped =
        wrap::wrap(&wrap::wrapping_key(master), &site, &Purpose::Site).map_err(no_randomness)?;
    fill(connection, &wrap::check_value(master), &wrapped).map_err(|error| unavailable(&error))
}

fn fill(
    connection: &mut Connection,
    check_value: &[u8],
    wrapped_site: &[u8],
) -> rusqlite::Result<()> {
    let transaction = connection.transaction()?;
    transaction.execute_batch(
        "CREATE TABLE meta (
             format INTEGER NOT NULL,
             check_value BLOB NOT NULL,
             site BLOB NOT NULL
         );
         CREATE TABLE secrets (n INTEGER PRIMARY KEY, wrapped BLOB NOT NULL);
         CREATE TABLE epochs (
             owner BLOB NOT NULL,
             epoch INTEGER NOT NULL,
             secret INTEGER NOT NULL,
             is_closed INTEGER NOT NULL,
             PRIMARY KEY (owner, epoch)
         ) WITHOUT ROWID;
         CREATE TABLE keys (
             secret INTEGER PRIMARY KEY,
             id BLOB NOT NULL UNIQUE,
             owner BLOB NOT NULL,
             epoch INTEGER NOT NULL,
             wrapped_by BLOB,
             is_source_key INTEGER NOT NULL,
             event BLOB NOT NULL,
             source BLOB NOT NULL,
             memory BLOB,
             expires_at INTEGER,
             destroyed_by BLOB
         );
         CREATE INDEX open_keys ON keys (owner) WHERE destroyed_by IS NULL;
         CREATE INDEX expiring_keys ON keys (expires_at)
             WHERE expires_at IS NOT NULL AND destroyed_by IS NULL;
         CREATE INDEX destroyed_keys ON keys (destroyed_by) WHERE destroyed_by IS NOT NULL;
         CREATE TABLE erasures (
             erasure BLOB NOT NULL,
             target BLOB NOT NULL,
             PRIMARY KEY (erasure, target)
         ) WITHOUT ROWID;",
    )?;
    transaction.execute(
        "INSERT INTO meta VALUES (?1, ?2, ?3)",
        params![FORMAT, check_value, wrapped_site],
    )?;
    transaction.commit()
}

fn site_key(
    connection: &Connection,
    path: &Path,
    master: &MasterKey,
    wrapping: &Key,
) -> Result<IdKey, KeyringError> {
    let (check_value, wrapped): (Vec<u8>, Vec<u8>) = connection
        .query_row("SELECT check_value, site FROM meta", [], |row| {
            Ok((row.get(0)?, row.get(1)?))
        })
        .map_err(|error| unavailable(&error))?;
    if check_value != wrap::check_value(master) {
        return Err(KeyringError::WrongMasterKey);
    }
    let site =
        wrap::unwrap(wrapping, &wrapped, &Purpose::Site).ok_or_else(|| KeyringError::Unusable {
            what: format!("the site key in {} is damaged", path.display()),
        })?;
    Ok(IdKey::from_bytes(*site))
}
