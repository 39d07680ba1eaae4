//! Who owns a data folder, and how are its database files opened?

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io;
use std::path::Path;

use rusqlite::config::DbConfig;
use rusqlite::{Connection, ErrorCode};

/// The right to write into a data folder. The operating system takes it back when the process ends,
/// however it ends, so a stale lock cannot be left behind.
#[derive(Debug)]
pub struct FolderLock {
    _file: File,
}

#[derive(Debug, thiserror::Error)]
pub enum LockError {
    #[error("{what} is in use by another process")]
    InUse { what: String },
    #[error("{what}: {source}")]
    Io { what: String, source: io::Error },
}

impl FolderLock {
    /// Locks the file `name` in `dir`, which is made when it is not there.
    ///
    /// # Errors
    /// [`LockError::InUse`] says which folder and what to do.
    pub fn acquire(dir: &Path, name: &str) -> Result<Self, LockError> {
        let failed = |source| LockError::Io {
            what: format!("cannot lock {}", dir.display()),
            source,
        };
        fs::create_dir_all(dir).map_err(failed)?;
        let mut options = OpenOptions::new();
        options.create(true).write(true).truncate(false);
        let file = options.open(dir.join(name)).map_err(failed)?;
        match file.try_lock() {
            Ok(()) => Ok(Self { _file: file }),
            Err(TryLockError::WouldBlock) => Err(LockError::InUse {
                what: format!(
                    "the data folder {} (stop that process, or choose another folder)",
                    dir.display()
                ),
            }),
            Err(TryLockError::Error(source)) => Err(failed(source)),
        }
    }
}

/// Makes the names of new files in `dir` survive a loss of power.
///
/// # Errors
/// When the folder cannot be synced.
pub fn sync_folder(dir: &Path) -> io::Result<()> {
    File::open(dir)?.sync_all()
}

/// Keeps up to `statements_max` statements prepared. Their plans do not depend on the values bound to
/// them; otherwise SQLite would prepare those anew at each call whose table has a partial index.
pub(crate) fn reuse_statements(
    connection: &Connection,
    statements_max: usize,
) -> rusqlite::Result<()> {
    connection.set_prepared_statement_cache_capacity(statements_max);
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
    Ok(())
}

/// What a database file turned out to be.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Found {
    Empty,
    /// The number in the table `meta`.
    Format(i64),
    SomethingElse,
}

/// Looks into a database without changing it.
pub(crate) fn look(connection: &Connection) -> rusqlite::Result<Found> {
    let tables: i64 =
        match connection.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0)) {
            Ok(tables) => tables,
            Err(error) if error.sqlite_error_code() == Some(ErrorCode::NotADatabase) => {
                return Ok(Found::SomethingElse);
            }
            Err(error) => return Err(error),
        };
    if tables == 0 {
        return Ok(Found::Empty);
    }
    let is_ours = connection.table_exists(None, "meta")?
        && connection.column_exists(None, "meta", "format")?;
    if !is_ours {
        return Ok(Found::SomethingElse);
    }
    Ok(Found::Format(connection.query_row(
        "SELECT format FROM meta",
        [],
        |row| row.get(0),
    )?))
}

/// Why a file whose format is not the one that this program writes cannot be used.
pub(crate) fn foreign_format(path: &Path, what: &str, found: i64, known: i64) -> String {
    let path = path.display();
    if found > known {
        format!(
            "{path} was written by a newer version (format {found}, this program knows up to \
             {known}): use that version, or another data folder"
        )
    } else {
        format!("{path} is no {what}: it has the format {found}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_has_one_owner() {
        let dir = tempfile::tempdir().unwrap();
        let first = FolderLock::acquire(dir.path(), "lock").unwrap();
        let refused = FolderLock::acquire(dir.path(), "lock").unwrap_err();
        assert!(matches!(refused, LockError::InUse { .. }));
        assert!(
            refused
                .to_string()
                .contains(&dir.path().display().to_string())
        );
        drop(first);
        FolderLock::acquire(dir.path(), "lock").unwrap();
    }
}
