//! What does a reader get? Records that lie side by side and whose checksums match, or an error that
//! names the first one that does not.

use std::ops::Range;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anamnesis_domain::ids::OwnerKey;
use anamnesis_domain::time::Timestamp;
use anamnesis_pipeline::broken::broke_off;
use anamnesis_pipeline::log::{LogError, PAYLOAD_BYTES_MAX, Record};
use bytes::Bytes;
use rusqlite::types::ValueRef;
use rusqlite::{Connection, ErrorCode, OpenFlags, Row, params};
use tokio::sync::Semaphore;

use super::{Place, checksum, signed, unavailable};
use crate::folder::reuse_statements;

/// Reads at once. More would only queue for the same disk and hold a page cache each.
const READERS_MAX: usize = 4;

/// A reader waits at most this long for a file that recovery holds.
const BUSY_MAX: Duration = Duration::from_secs(5);

const STATEMENTS_MAX: usize = 256;

/// Connections that only read.
pub(super) struct Readers {
    path: PathBuf,
    idle: Arc<Mutex<Vec<Connection>>>,
    permits: Arc<Semaphore>,
}

impl Readers {
    pub(super) fn new(path: PathBuf) -> Self {
        let permits = Arc::new(Semaphore::new(READERS_MAX));
        Self {
            path,
            idle: Arc::default(),
            permits,
        }
    }

    /// Runs `work` with a connection, away from the threads that must not block.
    pub(super) async fn run(
        &self,
        work: impl FnOnce(&Connection) -> Result<Vec<Record>, LogError> + Send + 'static,
    ) -> Result<Vec<Record>, LogError> {
        let failed = |reason: String| LogError::Unavailable { reason };
        let permit = self
            .permits
            .clone()
            .acquire_owned()
            .await
            .map_err(|e| failed(e.to_string()))?;
        let (path, idle) = (self.path.clone(), self.idle.clone());
        let task = tokio::task::spawn_blocking(move || {
            let _permit = permit;
            let found = idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
            let connection = match found {
                Some(connection) => connection,
                None => open(&path).map_err(|error| unavailable(&error))?,
            };
            let answer = work(&connection);
            idle.lock()
                .unwrap_or_else(PoisonError::into_inner)
                .push(connection);
            answer
        });
        task.await
            .map_err(|error| failed(broke_off(&error).to_owned()))?
    }
}

fn open(path: &PathBuf) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags)?;
    connection.busy_timeout(BUSY_MAX)?;
    // Each topic and partition is a table of its own.
    reuse_statements(&connection, STATEMENTS_MAX)?;
    Ok(connection)
}

/// Records from the start of `offsets` on, which is not empty.
pub(super) fn read(
    connection: &Connection,
    place: &Place,
    offsets: Range<u64>,
    records_max: usize,
    bytes_max: usize,
) -> Result<Vec<Record>, LogError> {
    let mut records = Vec::new();
    let read = read_into(
        &mut records,
        connection,
        place,
        offsets,
        records_max,
        bytes_max,
    );
    match read {
        // What precedes a bad record is good; the next read begins with the bad one and fails.
        Err(_) if !records.is_empty() => Ok(records),
        Err(error) => Err(error),
        Ok(()) => Ok(records),
    }
}

fn read_into(
    records: &mut Vec<Record>,
    connection: &Connection,
    place: &Place,
    offsets: Range<u64>,
    records_max: usize,
    bytes_max: usize,
) -> Result<(), LogError> {
    let sql = format!(
        "SELECT offset, appended_at, owner, checksum, payload FROM {}
         WHERE offset >= ?1 AND offset < ?2 ORDER BY offset LIMIT ?3",
        place.table
    );
    let mut statement = connection
        .prepare_cached(&sql)
        .map_err(|error| unavailable(&error))?;
    // Only an empty read means the tail, so one record goes whatever the limits say.
    let limit = i64::try_from(records_max.max(1)).unwrap_or(i64::MAX);
    let mut rows = statement
        .query(params![signed(offsets.start), signed(offsets.end), limit])
        .map_err(|error| unavailable(&error))?;
    let mut expected = offsets.start;
    let mut bytes = 0;
    loop {
        let row = match rows.next() {
            Ok(Some(row)) => row,
            // The range is committed and not empty: a row that is not there has been taken away.
            Ok(None) if records.is_empty() => {
                return Err(LogError::Corrupt {
                    position: place.at(expected),
                });
            }
            Ok(None) => return Ok(()),
            Err(error) => return Err(explain(&error, place, expected)),
        };
        let record = check(row, place, expected)?;
        bytes += record.payload.len();
        if bytes > bytes_max && !records.is_empty() {
            return Ok(());
        }
        records.push(record);
        expected += 1;
    }
}

pub(super) fn read_at(
    connection: &Connection,
    place: &Place,
    offsets: &[u64],
) -> Result<Vec<Record>, LogError> {
    let sql = format!(
        "SELECT offset, appended_at, owner, checksum, payload FROM {} WHERE offset = ?1",
        place.table
    );
    let mut statement = connection
        .prepare_cached(&sql)
        .map_err(|error| unavailable(&error))?;
    let mut records = Vec::with_capacity(offsets.len());
    for &offset in offsets {
        let mut rows = statement
            .query([signed(offset)])
            .map_err(|error| explain(&error, place, offset))?;
        match rows
            .next()
            .map_err(|error| explain(&error, place, offset))?
        {
            Some(row) => records.push(check(row, place, offset)?),
            None => {
                return Err(LogError::Corrupt {
                    position: place.at(offset),
                });
            }
        }
    }
    Ok(records)
}

/// A page that SQLite finds damaged is a record that cannot be read.
fn explain(error: &rusqlite::Error, place: &Place, offset: u64) -> LogError {
    match error.sqlite_error_code() {
        Some(ErrorCode::DatabaseCorrupt) => LogError::Corrupt {
            position: place.at(offset),
        },
        Some(_) | None => unavailable(error),
    }
}

/// The record in `row`, if it is the one expected and whole.
fn check(row: &Row<'_>, place: &Place, expected: u64) -> Result<Record, LogError> {
    let position = place.at(expected);
    let corrupt = || LogError::Corrupt { position };
    let column = |index| {
        row.get_ref(index)
            .map_err(|error| explain(&error, place, expected))
    };
    let columns = (column(0)?, column(1)?, column(2)?, column(3)?, column(4)?);
    let (
        ValueRef::Integer(offset),
        ValueRef::Integer(appended_at),
        ValueRef::Blob(owner),
        ValueRef::Integer(sum),
        ValueRef::Blob(payload),
    ) = columns
    else {
        return Err(corrupt());
    };
    let key: [u8; 16] = owner.try_into().map_err(|_| corrupt())?;
    let is_whole = offset == signed(expected)
        && payload.len() <= PAYLOAD_BYTES_MAX
        && sum == checksum(position, &key, appended_at, payload);
    if !is_whole {
        return Err(corrupt());
    }
    Ok(Record {
        position,
        key: OwnerKey::from_bytes(key),
        appended_at: Timestamp::from_millis(appended_at),
        payload: Bytes::copy_from_slice(payload),
    })
}
