//! The shell around `extract`: one candidates record per conversation record, in order per owner.
//!
//! It finds its position in its own output. What it cannot read parks the owner, by a note in
//! `candidates`; a start reads the records of parked owners again.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::{Duration, Instant};

use anamnesis_domain::ids::{EventTag, LogId, OwnerKey};
use anamnesis_domain::input::{CandidateSet, Position, RejectCode, Topic, Turn};
use anamnesis_domain::receipt::{Parked, Unparked};
use anamnesis_domain::skeleton::Skeleton;
use anamnesis_domain::time::Timestamp;
use anamnesis_pipeline::codec::{Clear, Codec, CodecError, InputMeta, Opened, read_clear};
use anamnesis_pipeline::consumer::{APPEND_PACE, BATCH_BYTES_MAX, Running, Stage, StageError};
use anamnesis_pipeline::log::{Log, LogError, Record};
use anamnesis_pipeline::snapshots::{self, Snaps};
use async_trait::async_trait;

use crate::context::{Context, Episodes, RECENT_MAX, Said};
use crate::extract::extract;
use crate::{metrics, request};

pub const STAGE: &str = "extractor";

/// Conversations whose last turns are kept at hand.
const CONVERSATIONS_MAX: usize = 10_000;
/// Conversation records that a start reads again, to know what was said just before.
const WARM_RECORDS_MAX: u64 = 1_000;
/// A conversation in which nobody has said anything for so long is over (`domain.md` §2).
const IDLE_MILLIS: i64 = 5 * 60 * 1_000;
/// Records between two snapshots.
const SNAPSHOT_EVERY: u64 = 10_000;
/// The same when there is nothing else to do: a trickle must not write a snapshot per record.
const SNAPSHOT_EVERY_IDLE: u64 = 1_000;

/// The extractor as a stage.
pub struct Extractor {
    pub log: Log,
    pub codec: Codec,
    pub episodes: Episodes,
    pub snapshots: Snaps,
}

#[async_trait]
impl Stage for Extractor {
    fn name(&self) -> &'static str {
        STAGE
    }

    fn pace(&self) -> Duration {
        APPEND_PACE
    }

    async fn begin(&self, partition: u32, now: Timestamp) -> Result<Box<dyn Running>, StageError> {
        let log_id = self
            .log
            .identity(Topic::Candidates, partition)
            .await?
            .log_id;
        let name = format!("{STAGE}-{partition}");
        let end = self.log.end(Topic::Candidates, partition).await?;
        let mut output: Skeleton =
            match snapshots::load::<Skeleton>(&*self.snapshots, &name, log_id).await {
                Some(snapshot) if snapshot.next <= end => snapshot,
                Some(_) | None => Skeleton::default(),
            };
        while output.next < end {
            let records = self
                .log
                .read(
                    Topic::Candidates,
                    partition,
                    output.next,
                    2_000,
                    BATCH_BYTES_MAX,
                )
                .await?;
            if records.is_empty() {
                break;
            }
            for record in &records {
                fold_output(&mut output, record);
            }
        }
        let mut reading = Reading {
            log: self.log.clone(),
            codec: self.codec.clone(),
            episodes: self.episodes,
            snapshots: self.snapshots.clone(),
            snapshot_name: name,
            snapshot_next: output.next,
            log_id,
            partition,
            next: output.next_input(Topic::Conversation).unwrap_or(1),
            output,
            recent: Recent::default(),
        };
        reading.warm(now).await?;
        reading.retry_parked(now).await?;
        Ok(Box::new(reading))
    }
}

/// Notes what one record of `candidates` says about positions and parking.
fn fold_output(output: &mut Skeleton, record: &Record) {
    let offset = record.position.offset;
    match read_clear(&record.payload) {
        Ok(Clear::Input {
            origin: Some(origin),
            ..
        }) => output.answer(offset, origin),
        Ok(Clear::Parked(parked)) => output.parked(offset, parked),
        Ok(Clear::Unparked(unparked)) => output.unparked(offset, &unparked),
        Ok(
            Clear::Input { origin: None, .. }
            | Clear::Identity(_)
            | Clear::WriterStarted { .. }
            | Clear::Decided(_)
            | Clear::Other,
        )
        | Err(_) => output.pass(offset),
    }
}

/// The last turns of each conversation.
#[derive(Default)]
struct Recent {
    turns: BTreeMap<(OwnerKey, String), VecDeque<Said>>,
    /// Conversations that wait for an answer to a request that nothing has come of, and since when.
    unmet: BTreeMap<(OwnerKey, String), (Timestamp, EventTag)>,
}

impl Recent {
    fn context(&self, owner: OwnerKey, turn: &Turn, episodes: Episodes) -> Context {
        let conversation = turn.conversation_id.clone().unwrap_or_default();
        let recent = self.turns.get(&(owner, conversation));
        Context {
            recent: recent.into_iter().flatten().cloned().collect(),
            episodes,
        }
    }

    fn push(&mut self, owner: OwnerKey, turn: &Turn, now: Timestamp) {
        if self.turns.len() >= CONVERSATIONS_MAX {
            // Losing what was said before costs an omitted word, never a fact.
            self.turns.clear();
            self.unmet.clear();
        }
        let conversation = turn.conversation_id.clone().unwrap_or_default();
        let key = (owner, conversation);
        let turns = self.turns.entry(key.clone()).or_default();
        turns.push_back(Said::from(turn));
        while turns.len() > RECENT_MAX {
            turns.pop_front();
        }
        if request::is_unmet(turn, &self.context(owner, turn, Episodes::Off)) {
            self.unmet.insert(key, (now, turn.event));
        } else {
            // Met, or the answer is there and its own record says so.
            self.unmet.remove(&key);
        }
    }

    /// Tells of requests that nothing came of before their conversation went idle. There is no record that
    /// could say so: the next message may come in a year.
    fn tell_idle(&mut self, now: Timestamp) {
        let is_over = |since: &Timestamp| now.millis() - since.millis() >= IDLE_MILLIS;
        self.unmet.retain(|_, (since, event)| {
            if is_over(since) {
                tracing::error!(
                    stage = STAGE,
                    %event,
                    code = RejectCode::NotStored.code(),
                    "somebody asked for something to be written down, and nothing was stored"
                );
                metrics::went_idle();
            }
            !is_over(since)
        });
    }
}

struct Reading {
    log: Log,
    codec: Codec,
    episodes: Episodes,
    snapshots: Snaps,
    snapshot_name: String,
    snapshot_next: u64,
    log_id: LogId,
    partition: u32,
    /// The first conversation offset that is not answered.
    next: u64,
    /// What stands in `candidates` so far.
    output: Skeleton,
    recent: Recent,
}

#[async_trait]
impl Running for Reading {
    fn positions(&self) -> Vec<(Topic, u64)> {
        vec![(Topic::Conversation, self.next)]
    }

    async fn step(&mut self, records: Vec<Record>, now: Timestamp) -> Result<(), StageError> {
        let Some(last) = records.last().map(|record| record.position.offset) else {
            return Ok(());
        };
        self.answer(records, now, None).await?;
        self.next = last + 1;
        self.recent.tell_idle(now);
        if self.output.next >= self.snapshot_next + SNAPSHOT_EVERY {
            self.save_snapshot().await;
        }
        Ok(())
    }

    async fn idle(&mut self, now: Timestamp) -> Result<(), StageError> {
        self.recent.tell_idle(now);
        if self.output.next >= self.snapshot_next + SNAPSHOT_EVERY_IDLE {
            self.save_snapshot().await;
        }
        Ok(())
    }

    fn parked(&self) -> Vec<OwnerKey> {
        self.output
            .parked_owners()
            .map(|parked| parked.owner)
            .collect()
    }
}

impl Reading {
    async fn save_snapshot(&mut self) {
        snapshots::save(
            &*self.snapshots,
            &self.snapshot_name,
            self.log_id,
            &self.output,
        )
        .await;
        self.snapshot_next = self.output.next;
    }

    async fn answer(
        &mut self,
        records: Vec<Record>,
        now: Timestamp,
        released: Option<OwnerKey>,
    ) -> Result<(), StageError> {
        let opened = self.codec.open(&records).await?;
        let mut waiting: BTreeSet<OwnerKey> = self.parked().into_iter().collect();
        if let Some(owner) = released {
            waiting.remove(&owner);
        }
        let mut parked = Vec::new();
        let mut items: Vec<(InputMeta, Option<CandidateSet>)> = Vec::with_capacity(records.len());
        for (record, opened) in records.iter().zip(opened) {
            match opened {
                _ if waiting.contains(&record.key) => (),
                Ok(Opened::Turn { meta, turn }) => {
                    let context = self.recent.context(meta.owner, &turn, self.episodes);
                    let started = Instant::now();
                    let set = extract(&turn, &context);
                    metrics::extracted(&set, started.elapsed());
                    self.recent.push(meta.owner, &turn, now);
                    items.push((meta, Some(set)));
                }
                Ok(Opened::Erased { meta }) => items.push((meta, None)),
                Ok(Opened::Identity(_)) => (),
                Ok(_) => {
                    return Err(StageError::Broken {
                        what: format!("{} holds a record of another topic", record.position),
                    });
                }
                Err(CodecError::Keyring(error)) if error.is_retryable() => return Err(error.into()),
                Err(error) => {
                    waiting.insert(record.key);
                    parked.push(park(record, error.reason(), now));
                }
            }
        }
        self.append(items, &parked).await
    }

    async fn append(
        &mut self,
        items: Vec<(InputMeta, Option<CandidateSet>)>,
        parked: &[Parked],
    ) -> Result<(), StageError> {
        let mut records = self.codec.seal_candidates(&items).await?;
        for parked in parked {
            tracing::warn!(
                stage = STAGE,
                partition = self.partition,
                position = %parked.first,
                reason = parked.reason,
                "an owner is parked"
            );
            records.push(self.codec.parked(parked)?);
        }
        self.write(records).await
    }

    async fn write(
        &mut self,
        records: Vec<anamnesis_pipeline::log::NewRecord>,
    ) -> Result<(), StageError> {
        if records.is_empty() {
            return Ok(());
        }
        let appended = self
            .log
            .append(Topic::Candidates, self.partition, records.clone())
            .await?;
        for (record, appended) in records.into_iter().zip(appended) {
            let record = Record {
                position: appended.position,
                key: record.key,
                appended_at: appended.appended_at,
                payload: record.payload,
            };
            fold_output(&mut self.output, &record);
        }
        Ok(())
    }

    /// Reads what was said just before the position, for words that refer back.
    async fn warm(&mut self, now: Timestamp) -> Result<(), StageError> {
        let mut from = self.next.saturating_sub(WARM_RECORDS_MAX).max(1);
        while from < self.next {
            let most = (self.next - from) as usize;
            let read = self
                .log
                .read(
                    Topic::Conversation,
                    self.partition,
                    from,
                    most,
                    BATCH_BYTES_MAX,
                )
                .await;
            let records = match read {
                Ok(records) => records,
                // It was answered long ago; only words that refer back to it are lost. The audit names
                // it, and nobody else has to wait.
                Err(LogError::Corrupt { position }) => {
                    tracing::error!(%position, "a message that was answered is corrupt in the log");
                    from = position.offset + 1;
                    continue;
                }
                Err(error) => return Err(error.into()),
            };
            let Some(last) = records.last() else { break };
            from = last.position.offset + 1;
            for opened in self.codec.open(&records).await? {
                if let Ok(Opened::Turn { meta, turn }) = opened {
                    self.recent.push(meta.owner, &turn, now);
                }
            }
        }
        Ok(())
    }

    /// Reads the records of parked owners again, in order.
    async fn retry_parked(&mut self, now: Timestamp) -> Result<(), StageError> {
        let parked: Vec<Parked> = self.output.parked_owners().cloned().collect();
        for parked in parked {
            let waiting = self.records_since(parked.owner, parked.first).await?;
            let opened = self.codec.open(&waiting).await?;
            if opened.iter().any(Result::is_err) {
                continue;
            }
            self.answer(waiting, now, Some(parked.owner)).await?;
            let unparked = Unparked {
                stage: STAGE.to_owned(),
                owner: parked.owner,
                at: now,
                writer_epoch: None,
            };
            let record = self.codec.unparked(&unparked)?;
            self.write(vec![record]).await?;
        }
        Ok(())
    }

    async fn records_since(
        &self,
        owner: OwnerKey,
        first: Position,
    ) -> Result<Vec<Record>, StageError> {
        let mut found = Vec::new();
        let mut from = first.offset;
        while from < self.next {
            let most = 2_000.min((self.next - from) as usize);
            let records = self
                .log
                .read(
                    Topic::Conversation,
                    self.partition,
                    from,
                    most,
                    BATCH_BYTES_MAX,
                )
                .await?;
            let Some(last) = records.last() else { break };
            from = last.position.offset + 1;
            found.extend(records.into_iter().filter(|record| record.key == owner));
        }
        Ok(found)
    }
}

fn park(record: &Record, reason: &str, at: Timestamp) -> Parked {
    Parked {
        stage: STAGE.to_owned(),
        owner: record.key,
        first: record.position,
        reason: reason.to_owned(),
        at,
        writer_epoch: None,
    }
}

#[cfg(test)]
mod tests {
    use anamnesis_domain::memory::Role;

    use super::*;
    use crate::extract::tests::turn;

    #[test]
    fn a_request_that_nothing_came_of_is_told_once_when_its_conversation_goes_idle() {
        let owner = OwnerKey::from_bytes([3; 16]);
        let at = |minutes: i64| Timestamp::from_millis(minutes * 60_000);
        let mut recent = Recent::default();
        recent.push(owner, &turn(Role::User, "帮我记一下"), at(0));
        recent.tell_idle(at(4));
        assert_eq!(recent.unmet.len(), 1);
        recent.tell_idle(at(5));
        assert!(recent.unmet.is_empty());

        recent.push(owner, &turn(Role::User, "帮我记一下我对芒果过敏"), at(6));
        assert!(recent.unmet.is_empty());
        recent.push(owner, &turn(Role::Assistant, "好的"), at(7));
        recent.push(owner, &turn(Role::User, "记一下"), at(8));
        recent.push(owner, &turn(Role::Assistant, "好的"), at(9));
        // The answer's own record says it.
        assert!(recent.unmet.is_empty());
    }
}
