//! How do appends become durable? One thread takes what is queued, for whatever partitions, writes it
//! in one transaction, and answers everybody after the one sync.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::mpsc::Receiver;

use anamnesis_domain::ids::OwnerKey;
use anamnesis_domain::time::Timestamp;
use anamnesis_pipeline::clock::Clock;
use anamnesis_pipeline::log::{Appended, LogError, NewRecord};
use rusqlite::{Connection, ErrorCode, params};
use tokio::sync::{oneshot, watch};

use super::{Bounds, Place, checksum, file, signed, unavailable};

/// A transaction takes no further append beyond these, so that the first one waits no longer than a
/// few dozen milliseconds. An append of any size is still taken whole.
const GROUP_RECORDS_MAX: usize = 10_000;
const GROUP_BYTES_MAX: usize = 16 << 20;

pub(super) enum Job {
    Append {
        place: usize,
        records: Vec<NewRecord>,
        answer: oneshot::Sender<Result<Vec<Appended>, LogError>>,
    },
    Retain {
        place: usize,
        before: Timestamp,
        answer: oneshot::Sender<Result<u64, LogError>>,
    },
}

struct Append {
    place: usize,
    records: Vec<NewRecord>,
    answer: oneshot::Sender<Result<Vec<Appended>, LogError>>,
}

/// Where a partition stands.
#[derive(Clone, Copy)]
pub(super) struct Head {
    pub(super) bounds: Bounds,
    pub(super) last_at: Timestamp,
}

pub(super) struct Writer {
    pub(super) connection: Connection,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) places: Arc<[Place]>,
    pub(super) heads: Vec<Head>,
    pub(super) bounds: Arc<[watch::Sender<Bounds>]>,
}

/// How far a transaction came before it failed.
enum Failed {
    /// Nothing of it remains.
    Before(rusqlite::Error),
    /// It may come back with the next opening of the file.
    AtCommit(rusqlite::Error),
}

impl Writer {
    /// Ends when the last sender is gone and the queue is empty.
    pub(super) fn run(mut self, queue: &Receiver<Job>) {
        let mut next = queue.recv().ok();
        while let Some(job) = next.take() {
            match job {
                Job::Retain {
                    place,
                    before,
                    answer,
                } => {
                    // Whoever asked may have given up; the work is done all the same.
                    let _ = answer.send(self.retain(place, before));
                }
                Job::Append {
                    place,
                    records,
                    answer,
                } => {
                    let mut group = vec![Append {
                        place,
                        records,
                        answer,
                    }];
                    next = fill(&mut group, queue);
                    self.append(group);
                }
            }
            if next.is_none() {
                next = queue.recv().ok();
            }
        }
    }

    fn append(&mut self, group: Vec<Append>) {
        let mut heads = self.heads.clone();
        match self.write(&group, &mut heads) {
            Ok(answers) => {
                self.heads = heads;
                for append in &group {
                    self.publish(append.place);
                }
                for (append, appended) in group.into_iter().zip(answers) {
                    let _ = append.answer.send(Ok(appended));
                }
            }
            Err(failed) => {
                self.back_to_the_file();
                for Append { place, answer, .. } in group {
                    let _ = answer.send(Err(self.explain(&failed, place)));
                }
            }
        }
    }

    fn write(&self, group: &[Append], heads: &mut [Head]) -> Result<Vec<Vec<Appended>>, Failed> {
        self.connection
            .execute_batch("BEGIN IMMEDIATE")
            .map_err(Failed::Before)?;
        let answers = self.insert(group, heads).map_err(Failed::Before)?;
        self.commit()?;
        Ok(answers)
    }

    fn insert(&self, group: &[Append], heads: &mut [Head]) -> rusqlite::Result<Vec<Vec<Appended>>> {
        let now = self.clock.now();
        let mut answers = Vec::with_capacity(group.len());
        let mut touched = BTreeSet::new();
        for Append {
            place: index,
            records,
            ..
        } in group
        {
            let (place, head) = (&self.places[*index], &mut heads[*index]);
            let appended_at = now.max(head.last_at);
            head.last_at = appended_at;
            let mut appended = Vec::with_capacity(records.len());
            for NewRecord { key, payload } in records {
                let offset = head.bounds.end;
                insert_record(&self.connection, place, offset, *key, appended_at, payload)?;
                appended.push(Appended {
                    position: place.at(offset),
                    appended_at,
                });
                head.bounds.end += 1;
            }
            answers.push(appended);
            touched.insert(*index);
        }
        for index in touched {
            self.store_head(index, &heads[index])?;
        }
        Ok(answers)
    }

    fn store_head(&self, index: usize, head: &Head) -> rusqlite::Result<()> {
        let place = &self.places[index];
        let mut update = self.connection.prepare_cached(
            "UPDATE partitions SET start_offset = ?3, end_offset = ?4, last_at = ?5
             WHERE topic = ?1 AND partition = ?2",
        )?;
        update.execute(params![
            place.topic.as_str(),
            place.partition,
            signed(head.bounds.start),
            signed(head.bounds.end),
            head.last_at.millis(),
        ])?;
        Ok(())
    }

    fn commit(&self) -> Result<(), Failed> {
        self.connection.execute_batch("COMMIT").map_err(|error| {
            // Without room or lock the commit mark was never written. After any other failure it may
            // lie in the write-ahead log, where the next opening finds it, or the next commit
            // overwrites it.
            match error.sqlite_error_code() {
                Some(ErrorCode::DiskFull | ErrorCode::DatabaseBusy) => Failed::Before(error),
                Some(_) | None => Failed::AtCommit(error),
            }
        })
    }

    fn retain(&mut self, index: usize, before: Timestamp) -> Result<u64, LogError> {
        let mut head = self.heads[index];
        match self.drop_records(index, &mut head, before) {
            Ok(()) => {
                self.heads[index] = head;
                self.publish(index);
                Ok(head.bounds.start)
            }
            // Retention is asked for again anyway, so both kinds of failure are the same here.
            Err(Failed::Before(error) | Failed::AtCommit(error)) => {
                self.back_to_the_file();
                Err(unavailable(&error))
            }
        }
    }

    fn drop_records(&self, index: usize, head: &mut Head, before: Timestamp) -> Result<(), Failed> {
        let table = &self.places[index].table;
        let first_kept = format!(
            "SELECT coalesce(
                 (SELECT offset FROM {table} WHERE appended_at >= ?1 ORDER BY offset LIMIT 1),
                 ?2)"
        );
        let end = signed(head.bounds.end);
        let start: i64 = self
            .connection
            .query_row(&first_kept, params![before.millis(), end], |row| row.get(0))
            .map_err(Failed::Before)?;
        if start <= signed(head.bounds.start) {
            return Ok(());
        }
        head.bounds.start = start.unsigned_abs();
        self.connection
            .execute_batch("BEGIN IMMEDIATE")
            .map_err(Failed::Before)?;
        self.connection
            .execute(&format!("DELETE FROM {table} WHERE offset < ?1"), [start])
            .map_err(Failed::Before)?;
        self.store_head(index, head).map_err(Failed::Before)?;
        self.commit()
    }

    /// Tells readers and waiters where a partition stands.
    fn publish(&self, index: usize) {
        self.bounds[index].send_replace(self.heads[index].bounds);
    }

    /// After a failure the file says where the partitions stand.
    fn back_to_the_file(&mut self) {
        if !self.connection.is_autocommit() {
            // When even this fails, the next BEGIN is refused and its caller is told.
            let _ = self.connection.execute_batch("ROLLBACK");
        }
        for (place, head) in self.places.iter().zip(&mut self.heads) {
            // A head that cannot be read stays as it was, which is right unless the commit happened;
            // then the next insert meets an offset that is taken, and fails.
            if let Ok(stored) = file::load_head(&self.connection, place) {
                *head = stored;
            }
        }
        for index in 0..self.places.len() {
            self.publish(index);
        }
    }

    fn explain(&self, failed: &Failed, index: usize) -> LogError {
        match failed {
            Failed::Before(error) => unavailable(error),
            Failed::AtCommit(error) => LogError::Unknown {
                topic: self.places[index].topic,
                partition: self.places[index].partition,
                reason: error.to_string(),
            },
        }
    }
}

/// Takes what is queued; gives the first job that is not part of this group.
fn fill(group: &mut Vec<Append>, queue: &Receiver<Job>) -> Option<Job> {
    let size = |records: &[NewRecord]| records.iter().map(|r| r.payload.len()).sum::<usize>();
    let mut records_count: usize = group.iter().map(|append| append.records.len()).sum();
    let mut bytes: usize = group.iter().map(|append| size(&append.records)).sum();
    while records_count < GROUP_RECORDS_MAX && bytes < GROUP_BYTES_MAX {
        match queue.try_recv().ok()? {
            Job::Append {
                place,
                records,
                answer,
            } => {
                records_count += records.len();
                bytes += size(&records);
                group.push(Append {
                    place,
                    records,
                    answer,
                });
            }
            other @ Job::Retain { .. } => return Some(other),
        }
    }
    None
}

pub(super) fn insert_record(
    connection: &Connection,
    place: &Place,
    offset: u64,
    key: OwnerKey,
    appended_at: Timestamp,
    payload: &[u8],
) -> rusqlite::Result<()> {
    let sum = checksum(place.at(offset), key.bytes(), appended_at.millis(), payload);
    let sql = format!(
        "INSERT INTO {} (offset, appended_at, owner, checksum, payload)
         VALUES (?1, ?2, ?3, ?4, ?5)",
        place.table
    );
    let mut insert = connection.prepare_cached(&sql)?;
    insert.execute(params![
        signed(offset),
        appended_at.millis(),
        key.bytes(),
        sum,
        payload
    ])?;
    Ok(())
}
