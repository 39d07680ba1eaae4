//! What stands in `log.db`, and what is refused when it is opened?
//!
//! - `meta`: format, log id, creation time, partition count
//! - `partitions`: start, end and last append time of each partition. The end stands here and not only
//!   in the records, so that it survives retention and that a cut tail is noticed.
//! - `<topic>_<partition>`: the records, one table per partition, so that appends go to the end of a
//!   tree and retention drops its beginning

use std::path::Path;
use std::time::Duration;

use anamnesis_domain::ids::{LogId, OwnerKey};
use anamnesis_domain::input::Topic;
use anamnesis_domain::time::Timestamp;
use anamnesis_pipeline::clock::Clock;
use anamnesis_pipeline::log::{Identity, LogError};
use bytes::Bytes;
use rusqlite::{Connection, params};

use super::writer::{Head, insert_record};
use super::{Bounds, Place, signed, unavailable};
use crate::folder::{Found, foreign_format, look, reuse_statements, sync_folder};

const FORMAT: i64 = 1;

/// Each partition of each topic is a table; SQLite reads the list of tables at every opening.
const PARTITIONS_MAX: u32 = 256;

/// The writer has one insert statement for each table.
const STATEMENTS_MAX: usize = 64;

/// Only a checkpoint of an operator's tool can hold the file for a moment.
const BUSY_MAX: Duration = Duration::from_secs(5);

pub(super) struct Opened {
    pub(super) connection: Connection,
    pub(super) identity: Identity,
    pub(super) places: Vec<Place>,
    pub(super) heads: Vec<Head>,
}

/// How many partitions a topic has. `schemas` has no owner to be spread by.
pub(super) fn partitions_of(topic: Topic, partitions: u32) -> u32 {
    match topic {
        Topic::Schemas => 1,
        Topic::Inbox
        | Topic::Conversation
        | Topic::Quarantine
        | Topic::Candidates
        | Topic::Commands
        | Topic::Memories
        | Topic::Embeddings
        | Topic::Accesses
        | Topic::Receipts => partitions,
    }
}

pub(super) fn open(
    path: &Path,
    clock: &dyn Clock,
    partitions: u32,
    encode_identity: &dyn Fn(&Identity, Topic) -> Bytes,
) -> Result<Opened, LogError> {
    let mut connection = Connection::open(path).map_err(|error| unavailable(&error))?;
    let refused = |what: String| Err(LogError::Unusable { what });
    match look(&connection).map_err(|error| unavailable(&error))? {
        Found::Empty => {
            if !(1..=PARTITIONS_MAX).contains(&partitions) {
                return refused(format!(
                    "a log has 1 to {PARTITIONS_MAX} partitions, not {partitions}"
                ));
            }
            configure(&connection).map_err(|error| unavailable(&error))?;
            create(&mut connection, clock, partitions, encode_identity)?;
            if let Some(dir) = path.parent() {
                sync_folder(dir).map_err(|error| LogError::Unavailable {
                    reason: error.to_string(),
                })?;
            }
        }
        Found::Format(FORMAT) => configure(&connection).map_err(|error| unavailable(&error))?,
        Found::Format(other) => return refused(foreign_format(path, "log", other, FORMAT)),
        Found::SomethingElse => return refused(format!("{} is no log", path.display())),
    }
    load(connection)
}

fn configure(connection: &Connection) -> rusqlite::Result<()> {
    connection.busy_timeout(BUSY_MAX)?;
    reuse_statements(connection, STATEMENTS_MAX)?;
    connection.pragma_update(None, "journal_mode", "WAL")?;
    // An acknowledged append survives a loss of power: FULL syncs the write-ahead log at each commit.
    connection.pragma_update(None, "synchronous", "FULL")?;
    // 16 MiB between checkpoints: fewer interruptions of the writer, and still a quick opening.
    connection.pragma_update(None, "wal_autocheckpoint", 4096)?;
    connection.pragma_update(None, "journal_size_limit", 64 << 20)
}

/// Makes everything in one transaction, so that a crash leaves an empty file or a whole log.
fn create(
    connection: &mut Connection,
    clock: &dyn Clock,
    partitions: u32,
    encode_identity: &dyn Fn(&Identity, Topic) -> Bytes,
) -> Result<(), LogError> {
    let mut log_id = [0; 16];
    getrandom::fill(&mut log_id).map_err(|error| LogError::Unavailable {
        reason: error.to_string(),
    })?;
    let identity = Identity {
        log_id: LogId::from_bytes(log_id),
        created_at: clock.now(),
        partitions,
    };
    fill(connection, &identity, encode_identity).map_err(|error| unavailable(&error))
}

fn fill(
    connection: &mut Connection,
    identity: &Identity,
    encode_identity: &dyn Fn(&Identity, Topic) -> Bytes,
) -> rusqlite::Result<()> {
    let transaction = connection.transaction()?;
    transaction.execute_batch(
        "CREATE TABLE meta (
             format INTEGER NOT NULL,
             log_id BLOB NOT NULL,
             created_at INTEGER NOT NULL,
             partitions INTEGER NOT NULL
         );
         CREATE TABLE partitions (
             topic TEXT NOT NULL,
             partition INTEGER NOT NULL,
             start_offset INTEGER NOT NULL,
             end_offset INTEGER NOT NULL,
             last_at INTEGER NOT NULL,
             PRIMARY KEY (topic, partition)
         ) WITHOUT ROWID;",
    )?;
    let created_at = identity.created_at.millis();
    transaction.execute(
        "INSERT INTO meta VALUES (?1, ?2, ?3, ?4)",
        params![
            FORMAT,
            identity.log_id.bytes(),
            created_at,
            identity.partitions
        ],
    )?;
    for place in places(identity.partitions) {
        transaction.execute_batch(&format!(
            "CREATE TABLE {} (
                 offset INTEGER PRIMARY KEY,
                 appended_at INTEGER NOT NULL,
                 owner BLOB NOT NULL,
                 checksum INTEGER NOT NULL,
                 payload BLOB NOT NULL
             );",
            place.table
        ))?;
        let no_owner = OwnerKey::from_bytes([0; 16]);
        let payload = encode_identity(identity, place.topic);
        insert_record(
            &transaction,
            &place,
            0,
            no_owner,
            identity.created_at,
            &payload,
        )?;
        transaction.execute(
            "INSERT INTO partitions VALUES (?1, ?2, 0, 1, ?3)",
            params![place.topic.as_str(), place.partition, created_at],
        )?;
    }
    transaction.commit()
}

/// In the order of [`Topic::ALL`], then by number.
fn places(partitions: u32) -> Vec<Place> {
    let mut places = Vec::new();
    for topic in Topic::ALL {
        for partition in 0..partitions_of(topic, partitions) {
            places.push(Place {
                topic,
                partition,
                table: format!("{topic}_{partition}"),
            });
        }
    }
    places
}

fn load(connection: Connection) -> Result<Opened, LogError> {
    let identity = connection
        .query_row(
            "SELECT log_id, created_at, partitions FROM meta",
            [],
            |row| {
                Ok(Identity {
                    log_id: LogId::from_bytes(row.get(0)?),
                    created_at: Timestamp::from_millis(row.get(1)?),
                    partitions: row.get(2)?,
                })
            },
        )
        .map_err(|error| unavailable(&error))?;
    let places = places(identity.partitions);
    let mut heads = Vec::with_capacity(places.len());
    for place in &places {
        let head = load_head(&connection, place).map_err(|error| unavailable(&error))?;
        check_ends(&connection, place, head.bounds)?;
        heads.push(head);
    }
    Ok(Opened {
        connection,
        identity,
        places,
        heads,
    })
}

pub(super) fn load_head(connection: &Connection, place: &Place) -> rusqlite::Result<Head> {
    connection.query_row(
        "SELECT start_offset, end_offset, last_at FROM partitions
         WHERE topic = ?1 AND partition = ?2",
        params![place.topic.as_str(), place.partition],
        |row| {
            let (start, end): (i64, i64) = (row.get(0)?, row.get(1)?);
            Ok(Head {
                bounds: Bounds {
                    start: start.unsigned_abs(),
                    end: end.unsigned_abs(),
                },
                last_at: Timestamp::from_millis(row.get(2)?),
            })
        },
    )
}

/// Records that were cut off at either end are missed at once, not when somebody reads there.
fn check_ends(connection: &Connection, place: &Place, bounds: Bounds) -> Result<(), LogError> {
    let sql = format!("SELECT min(offset), max(offset) FROM {}", place.table);
    let held: (Option<i64>, Option<i64>) = connection
        .query_row(&sql, [], |row| Ok((row.get(0)?, row.get(1)?)))
        .map_err(|error| unavailable(&error))?;
    if bounds.start == bounds.end {
        return match held {
            (None, None) => Ok(()),
            (Some(_), _) | (None, Some(_)) => Err(LogError::Corrupt {
                position: place.at(bounds.start),
            }),
        };
    }
    if held.0 != Some(signed(bounds.start)) {
        return Err(LogError::Corrupt {
            position: place.at(bounds.start),
        });
    }
    if held.1 != Some(signed(bounds.end - 1)) {
        return Err(LogError::Corrupt {
            position: place.at(bounds.end - 1),
        });
    }
    Ok(())
}
