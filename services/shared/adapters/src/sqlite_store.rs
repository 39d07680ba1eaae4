//! How is a store kept in one SQLite file: opened or refused, read beside a writer, changed together
//! with its checkpoint, and rewritten without what was erased?
//!
//! Used by [`crate::records`], [`crate::vectors`] and [`crate::graph`]; each adds its tables.

pub(crate) mod facets;

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anamnesis_domain::ids::{Hash, LogId, OwnerKey};
use anamnesis_domain::owner::OwnerScope;
use anamnesis_pipeline::embedder::ModelIdentity;
use anamnesis_pipeline::feed::{Batch, Feed};
use anamnesis_pipeline::stores::{Change, Checkpoint, Cut, RowDigest, Store, StoreError};
use rusqlite::types::ValueRef;
use rusqlite::{Connection, ErrorCode, OptionalExtension as _, Row, TransactionBehavior, params};
use tokio::sync::Semaphore;

use crate::folder::{Found, look, reuse_statements};

/// Layout of the tables of all three stores. A change of any table, or of what a column means, is a
/// new number, and the store is rebuilt.
const FORMAT: i64 = 1;

/// Reads at the same time; more would wait for the same two or three processors.
const READERS_MAX: usize = 4;

/// How long a statement waits for another process before it is reported as unavailable.
const BUSY: Duration = Duration::from_secs(5);

/// Distinct statements of one store, so that none is prepared twice.
const STATEMENTS_MAX: usize = 48;

/// Page cache of the connection that writes: the inner pages of the indexes of a hundred thousand memories.
const WRITER_CACHE_KIB: i64 = 8192;
/// Of each that reads: what is asked for often is at hand of its owner ([`crate::owner_cache`]).
const READER_CACHE_KIB: i64 = 2048;

const COMMON_TABLES: &str = "
    CREATE TABLE meta (
        format INTEGER NOT NULL,
        store TEXT NOT NULL,
        log_id BLOB NOT NULL,
        partitions INTEGER NOT NULL,
        model TEXT,
        dimension INTEGER,
        -- How many versions were written: none of them left means that somebody emptied the table.
        versions INTEGER NOT NULL
    ) STRICT;
    CREATE TABLE checkpoints (partition INTEGER PRIMARY KEY, next INTEGER NOT NULL) STRICT;
";

/// What one store keeps in its file.
pub(crate) struct Layout {
    pub(crate) store: Store,
    pub(crate) sql: &'static str,
    pub(crate) tables: &'static [&'static str],
}

/// Why a statement or a step of it failed; made a [`StoreError`] at the border.
#[derive(Debug)]
pub(crate) enum Failure {
    Sql(rusqlite::Error),
    Store(StoreError),
}

impl From<rusqlite::Error> for Failure {
    fn from(error: rusqlite::Error) -> Self {
        Self::Sql(error)
    }
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

/// One store's file: one connection that writes, a few that read.
#[derive(Clone)]
pub(crate) struct Database {
    shared: Arc<Shared>,
}

struct Shared {
    store: Store,
    feed: Feed,
    path: PathBuf,
    writer: Mutex<Connection>,
    readers: Mutex<Vec<Connection>>,
    reading: Semaphore,
}

impl Database {
    /// Opens `dir/<store>.db`, or makes it.
    ///
    /// # Errors
    /// [`StoreError::OtherLog`], [`StoreError::OtherModel`], [`StoreError::Damaged`], or
    /// [`StoreError::Unusable`] for another format.
    pub(crate) fn open(
        dir: &Path,
        layout: &Layout,
        feed: Feed,
        model: Option<&ModelIdentity>,
    ) -> Result<Self, StoreError> {
        let store = layout.store;
        let path = dir.join(format!("{store}.db"));
        std::fs::create_dir_all(dir).map_err(|error| StoreError::Unavailable {
            store,
            reason: format!("cannot make {}: {error}", dir.display()),
        })?;
        let writer =
            open_or_make(&path, layout, feed, model).map_err(|error| explain(store, error))?;
        Ok(Self {
            shared: Arc::new(Shared {
                store,
                feed,
                path,
                writer: Mutex::new(writer),
                readers: Mutex::new(Vec::new()),
                reading: Semaphore::new(READERS_MAX),
            }),
        })
    }

    pub(crate) fn feed(&self) -> Feed {
        self.shared.feed
    }

    /// Answers from one snapshot of the store, on a thread that may wait for the disk.
    pub(crate) async fn read<T, F>(&self, ask: F) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: FnOnce(&Connection) -> Result<T, Failure> + Send + 'static,
    {
        // The semaphore is never closed.
        let permit = self.shared.reading.acquire().await.ok();
        let shared = self.shared.clone();
        let answer = blocking(shared.store, move || shared.read(ask)).await;
        drop(permit);
        answer
    }

    /// Applies a batch with `change` in one transaction with its checkpoint. `change` tells how many
    /// versions it added. `ended` is told whether the batch was applied, before anybody else is; also
    /// when nobody waits for it any more, and it is committed all the same.
    pub(crate) async fn apply<F, E>(
        &self,
        partition: u32,
        from: u64,
        changes: &[Change],
        next: Checkpoint,
        change: F,
        ended: E,
    ) -> Result<(), StoreError>
    where
        F: FnOnce(&Connection, &[Change]) -> Result<i64, Failure> + Send + 'static,
        E: FnOnce(bool) + Send + 'static,
    {
        let shared = self.shared.clone();
        let changes = changes.to_vec();
        blocking(shared.store, move || {
            let batch = Batch {
                partition,
                from,
                changes: &changes,
                next,
            };
            let applied = shared.apply(&batch, change);
            ended(applied.is_ok());
            applied.map_err(|error| explain(shared.store, error))
        })
        .await
    }

    pub(crate) async fn checkpoint(
        &self,
        partition: u32,
    ) -> Result<Option<Checkpoint>, StoreError> {
        let log_id = self.shared.feed.log_id;
        self.read(move |connection| {
            let next = stored_next(connection, partition)?;
            Ok(next.map(|next| Checkpoint { log_id, next }))
        })
        .await
    }

    pub(crate) async fn owners(&self, sql: &'static str) -> Result<Vec<OwnerKey>, StoreError> {
        self.read(move |connection| {
            let mut statement = connection.prepare_cached(sql)?;
            let owners = statement.query_map([], |row| Ok(OwnerKey::from_bytes(row.get(0)?)))?;
            Ok(owners.collect::<Result<_, _>>()?)
        })
        .await
    }

    /// Writes the file anew without its free pages, and empties the write-ahead log.
    pub(crate) async fn compact(&self) -> Result<(), StoreError> {
        let shared = self.shared.clone();
        blocking(shared.store, move || {
            let writer = shared.writer();
            compact(&writer, shared.store).map_err(|error| explain(shared.store, error))
        })
        .await
    }
}

impl Shared {
    fn writer(&self) -> MutexGuard<'_, Connection> {
        // A transaction that a panic left behind was rolled back when it was dropped.
        self.writer.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn readers(&self) -> MutexGuard<'_, Vec<Connection>> {
        self.readers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn read<T>(
        &self,
        ask: impl FnOnce(&Connection) -> Result<T, Failure>,
    ) -> Result<T, StoreError> {
        let idle = self.readers().pop();
        let answer = idle
            .map_or_else(|| open_reader(&self.path), Ok)
            .map_err(Failure::from)
            .and_then(|connection| {
                // Dropped at the end of the question, which gives the snapshot back.
                let snapshot = connection.unchecked_transaction()?;
                let answer = ask(&connection);
                snapshot.finish()?;
                self.readers().push(connection);
                answer
            });
        answer.map_err(|error| explain(self.store, error))
    }

    fn apply(
        &self,
        batch: &Batch<'_>,
        change: impl FnOnce(&Connection, &[Change]) -> Result<i64, Failure>,
    ) -> Result<(), Failure> {
        let mut writer = self.writer();
        let transaction = writer.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let stored = stored_next(&transaction, batch.partition)?.unwrap_or(0);
        self.feed.check(self.store, stored, batch)?;
        let added = change(&transaction, batch.changes)?;
        transaction
            .prepare_cached("INSERT OR REPLACE INTO checkpoints (partition, next) VALUES (?1, ?2)")?
            .execute(params![batch.partition, to_column(batch.next.next)])?;
        if added != 0 {
            transaction
                .prepare_cached("UPDATE meta SET versions = versions + ?1")?
                .execute(params![added])?;
        }
        transaction.commit()?;
        Ok(())
    }
}

async fn blocking<T: Send + 'static>(
    store: Store,
    work: impl FnOnce() -> Result<T, StoreError> + Send + 'static,
) -> Result<T, StoreError> {
    match tokio::task::spawn_blocking(work).await {
        Ok(answer) => answer,
        Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
        Err(_) => Err(StoreError::Unavailable {
            store,
            reason: "the process is stopping".to_owned(),
        }),
    }
}

fn open_or_make(
    path: &Path,
    layout: &Layout,
    feed: Feed,
    model: Option<&ModelIdentity>,
) -> Result<Connection, Failure> {
    let mut connection = Connection::open(path)?;
    prepare(&connection, WRITER_CACHE_KIB)?;
    match look(&connection)? {
        Found::Empty => make(&mut connection, layout, feed, model)?,
        Found::Format(FORMAT) => check_identity(&connection, layout, feed, model)?,
        Found::Format(format) => {
            let store = layout.store;
            let what = format!(
                "{} has the format {format} and this program writes {FORMAT}: use the other version, or \
                 rebuild it: anamnesis rebuild --store {store}",
                path.display()
            );
            return Err(StoreError::Unusable { what }.into());
        }
        Found::SomethingElse => {
            return Err(damaged(layout.store, "the table meta is missing").into());
        }
    }
    connection.pragma_update(None, "journal_mode", "WAL")?;
    connection.pragma_update(None, "synchronous", "NORMAL")?;
    Ok(connection)
}

fn prepare(connection: &Connection, cache_kib: i64) -> rusqlite::Result<()> {
    connection.busy_timeout(BUSY)?;
    reuse_statements(connection, STATEMENTS_MAX)?;
    connection.pragma_update(None, "cache_size", -cache_kib)?;
    // What is deleted is overwritten at once; `compact` removes even the free pages.
    connection.pragma_update(None, "secure_delete", "ON")
}

fn open_reader(path: &Path) -> rusqlite::Result<Connection> {
    let connection = Connection::open(path)?;
    prepare(&connection, READER_CACHE_KIB)?;
    connection.pragma_update(None, "query_only", "ON")?;
    Ok(connection)
}

fn make(
    connection: &mut Connection,
    layout: &Layout,
    feed: Feed,
    model: Option<&ModelIdentity>,
) -> Result<(), Failure> {
    let transaction = connection.transaction()?;
    transaction.execute_batch(COMMON_TABLES)?;
    transaction.execute_batch(layout.sql)?;
    transaction.execute(
        "INSERT INTO meta (format, store, log_id, partitions, model, dimension, versions)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, 0)",
        params![
            FORMAT,
            layout.store.as_str(),
            feed.log_id.bytes(),
            feed.partitions,
            model.map(|model| model.id.as_str()),
            model.map(|model| model.dimension),
        ],
    )?;
    transaction.commit()?;
    Ok(())
}

struct Meta {
    store: String,
    log_id: LogId,
    partitions: u32,
    model: Option<ModelIdentity>,
    versions: i64,
}

fn check_identity(
    connection: &Connection,
    layout: &Layout,
    feed: Feed,
    model: Option<&ModelIdentity>,
) -> Result<(), Failure> {
    let store = layout.store;
    for table in layout.tables.iter().chain(&["checkpoints"]) {
        if !connection.table_exists(None, *table)? {
            return Err(damaged(store, &format!("the table {table} is missing")).into());
        }
    }
    let meta = read_meta(connection)?;
    if meta.store != store.as_str() {
        return Err(damaged(store, "the file belongs to another store").into());
    }
    if meta.log_id != feed.log_id {
        let other = StoreError::OtherLog {
            store,
            expected: feed.log_id,
            found: meta.log_id,
        };
        return Err(other.into());
    }
    if meta.partitions != feed.partitions {
        let reason = format!(
            "it follows {} partitions, the log has {}",
            meta.partitions, feed.partitions
        );
        return Err(damaged(store, &reason).into());
    }
    if let (Some(expected), Some(found)) = (model, meta.model)
        && *expected != found
    {
        return Err(StoreError::OtherModel {
            store,
            expected: expected.clone(),
            found,
        }
        .into());
    }
    let holds_any: bool =
        connection.query_row("SELECT EXISTS (SELECT 1 FROM versions)", [], |row| {
            row.get(0)
        })?;
    if meta.versions > 0 && !holds_any {
        return Err(damaged(store, "the checkpoint is there and the versions are not").into());
    }
    let is_placed: bool =
        connection.query_row("SELECT EXISTS (SELECT 1 FROM checkpoints)", [], |row| {
            row.get(0)
        })?;
    if holds_any && !is_placed {
        return Err(damaged(store, "the versions are there and the checkpoint is not").into());
    }
    Ok(())
}

fn read_meta(connection: &Connection) -> rusqlite::Result<Meta> {
    let sql = "SELECT store, log_id, partitions, model, dimension, versions FROM meta";
    connection.query_row(sql, [], |row| {
        let model: Option<String> = row.get(3)?;
        let dimension: Option<u32> = row.get(4)?;
        Ok(Meta {
            store: row.get(0)?,
            log_id: LogId::from_bytes(row.get(1)?),
            partitions: row.get(2)?,
            model: model
                .zip(dimension)
                .map(|(id, dimension)| ModelIdentity { id, dimension }),
            versions: row.get(5)?,
        })
    })
}

fn stored_next(connection: &Connection, partition: u32) -> rusqlite::Result<Option<u64>> {
    let mut statement =
        connection.prepare_cached("SELECT next FROM checkpoints WHERE partition = ?1")?;
    let next: Option<i64> = statement
        .query_row([partition], |row| row.get(0))
        .optional()?;
    Ok(next.map(|next| next as u64))
}

/// How far the owner's partition is applied, in the same snapshot as the rest of the answer.
pub(crate) fn position(
    connection: &Connection,
    feed: Feed,
    scope: OwnerScope,
) -> rusqlite::Result<u64> {
    Ok(stored_next(connection, feed.partition_of(scope.key()))?.unwrap_or(0))
}

fn compact(writer: &Connection, store: Store) -> Result<(), Failure> {
    writer.execute_batch("VACUUM")?;
    let is_busy: bool =
        writer.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| row.get(0))?;
    if is_busy {
        let reason = "a reader holds an old snapshot; compact again".to_owned();
        return Err(StoreError::Unavailable { store, reason }.into());
    }
    Ok(())
}

pub(crate) fn damaged(store: Store, reason: &str) -> StoreError {
    StoreError::Damaged {
        store,
        reason: reason.to_owned(),
    }
}

/// What a failure means to the caller: try again, rebuild, or stop.
fn explain(store: Store, failure: Failure) -> StoreError {
    let error = match failure {
        Failure::Store(error) => return error,
        Failure::Sql(error) => error,
    };
    let reason = error.to_string();
    match error.sqlite_error_code() {
        Some(
            ErrorCode::DatabaseBusy
            | ErrorCode::DatabaseLocked
            | ErrorCode::DiskFull
            | ErrorCode::CannotOpen
            | ErrorCode::OutOfMemory
            | ErrorCode::OperationInterrupted
            | ErrorCode::PermissionDenied
            | ErrorCode::ReadOnly,
        ) => StoreError::Unavailable { store, reason },
        Some(ErrorCode::SystemIoFailure) if !is_short_read(&error) => {
            StoreError::Unavailable { store, reason }
        }
        // A file that is no database, a table or column that is gone, a value of another type.
        Some(_) | None => StoreError::Damaged { store, reason },
    }
}

fn is_short_read(error: &rusqlite::Error) -> bool {
    error
        .sqlite_error()
        .is_some_and(|e| e.extended_code == rusqlite::ffi::SQLITE_IOERR_SHORT_READ)
}

/// An offset or sequence number as a column; SQLite's integers are signed.
pub(crate) fn to_column(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

pub(crate) fn cut_column(cut: Cut) -> i64 {
    to_column(cut.0)
}

/// A value in a row that this program did not write.
pub(crate) fn unreadable(column: usize, why: &'static str) -> rusqlite::Error {
    rusqlite::Error::FromSqlConversionFailure(column, rusqlite::types::Type::Text, why.into())
}

/// Digest of a row that says one thing in its columns and another in its body, or that cannot be read
/// at all: of everything that stands in it, so that it equals nothing that the fold expects.
pub(crate) fn altered(row: &Row<'_>, key: String) -> rusqlite::Result<RowDigest> {
    let mut bytes = b"altered".to_vec();
    for column in 0..row.as_ref().column_count() {
        let (tag, value): (u8, Vec<u8>) = match row.get_ref(column)? {
            ValueRef::Null => (0, Vec::new()),
            ValueRef::Integer(number) => (1, number.to_le_bytes().to_vec()),
            ValueRef::Real(number) => (2, number.to_le_bytes().to_vec()),
            ValueRef::Text(text) => (3, text.to_vec()),
            ValueRef::Blob(blob) => (4, blob.to_vec()),
        };
        bytes.push(tag);
        bytes.extend_from_slice(&(value.len() as u64).to_le_bytes());
        bytes.extend_from_slice(&value);
    }
    Ok(RowDigest {
        key,
        hash: Hash::of(&bytes),
    })
}
