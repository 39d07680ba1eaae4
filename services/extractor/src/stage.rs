//! The shell around `extract`: one candidates record per conversation record, in order per owner.
//!
//! It finds its position in its own output. What it cannot read parks the owner, by a note in
//! `candidates`; a start reads the records of parked owners again.

use std::collections::{BTreeSet, HashMap};
use std::future::ready;
use std::sync::Arc;
use std::time::Instant;

use anamnesis_domain::ids::{LogId, OwnerKey};
use anamnesis_domain::input::{CandidateSet, Position, Topic, Turn};
use anamnesis_domain::receipt::{Parked, Unparked};
use anamnesis_domain::skeleton::Skeleton;
use anamnesis_domain::time::Timestamp;
use anamnesis_pipeline::codec::{Clear, Codec, CodecError, InputMeta, Opened, read_clear};
use anamnesis_pipeline::consumer::{
    APPEND_PACE, BATCH_BYTES_MAX, BATCH_RECORDS_MAX, Running, Stage, StageError,
};
use anamnesis_pipeline::log::{Log, LogError, Record};
use anamnesis_pipeline::pace::Pace;
use anamnesis_pipeline::snapshots::{self, Snaps};
use async_trait::async_trait;
use futures::future::{BoxFuture, FutureExt as _};
use futures::stream::{FuturesOrdered, StreamExt as _};
use tokio::sync::oneshot;

use crate::ask::{Asker, Spent, hour_began};
use crate::context::{Context, Episodes};
use crate::extract::extract_with;
use crate::metrics;
use crate::reply::Reply;
use crate::request::Recorded;

mod recent;

use recent::Recent;

pub const STAGE: &str = "extractor";

/// Conversation records that a start reads again, to know what was said just before.
const WARM_RECORDS_MAX: u64 = 1_000;
/// Candidates records that are read at a time to find what this hour has cost.
const SPENT_RECORDS: u64 = 2_000;
/// Turns under way for each place at the model: those of one owner wait for each other, and others shall
/// not wait behind them.
const WINDOW_FACTOR: usize = 4;
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
    /// A language model that is asked beside the rules.
    pub asker: Option<Arc<Asker>>,
}

#[async_trait]
impl Stage for Extractor {
    fn name(&self) -> &'static str {
        STAGE
    }

    fn pace(&self) -> Pace {
        APPEND_PACE
    }

    fn batch_records_max(&self) -> usize {
        match &self.asker {
            None => BATCH_RECORDS_MAX,
            Some(asker) => window(asker),
        }
    }

    /// An answer that is waited for would hold up the end of the process.
    fn is_interruptible(&self) -> bool {
        self.asker.is_some()
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
            asker: self.asker.clone(),
            snapshots: self.snapshots.clone(),
            snapshot_name: name,
            snapshot_next: output.next,
            log_id,
            partition,
            next: output.next_input(Topic::Conversation).unwrap_or(1),
            output,
            recent: Recent::default(),
        };
        reading.recall_spent(now).await?;
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

/// Turns under way at most.
fn window(asker: &Asker) -> usize {
    asker.concurrency().saturating_mul(WINDOW_FACTOR)
}

/// One record of a batch, and what has become of it so far.
enum Item {
    /// A turn, with what a model said of it.
    Turn(InputMeta, Box<Turn>, Option<Box<Reply>>),
    Erased(InputMeta),
    Parked(Parked),
}

fn timed(turn: &Turn, context: &Context, reply: Option<&Reply>) -> CandidateSet {
    let started = Instant::now();
    let set = extract_with(turn, context, reply);
    metrics::extracted(&set, started.elapsed());
    set
}

struct Reading {
    log: Log,
    codec: Codec,
    episodes: Episodes,
    asker: Option<Arc<Asker>>,
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
        let mut items = Vec::with_capacity(records.len());
        for (record, opened) in records.iter().zip(opened) {
            match opened {
                _ if waiting.contains(&record.key) => (),
                Ok(Opened::Turn { meta, turn }) => items.push(Item::Turn(meta, turn, None)),
                Ok(Opened::Erased { meta }) => items.push(Item::Erased(meta)),
                Ok(Opened::Identity(_)) => (),
                Ok(_) => {
                    return Err(StageError::Broken {
                        what: format!("{} holds a record of another topic", record.position),
                    });
                }
                Err(CodecError::Keyring(error)) if error.is_retryable() => return Err(error.into()),
                Err(error) => {
                    waiting.insert(record.key);
                    items.push(Item::Parked(park(record, error.reason(), now)));
                }
            }
        }
        match self.asker.clone() {
            None => self.append(items, now).await,
            Some(asker) => self.ask_and_append(&asker, items, now).await,
        }
    }

    /// Owners side by side, the turns of one in order, and no more at once than there is room for. What is
    /// answered is appended in the order of the records, so that a crash costs the calls under way.
    async fn ask_and_append(
        &mut self,
        asker: &Arc<Asker>,
        items: Vec<Item>,
        now: Timestamp,
    ) -> Result<(), StageError> {
        let window = window(asker);
        let mut under_way: FuturesOrdered<BoxFuture<'static, Item>> = FuturesOrdered::new();
        // Dropped when a turn is answered, for whoever waits at the other end.
        let mut last: HashMap<OwnerKey, oneshot::Receiver<()>> = HashMap::new();
        for item in items {
            if under_way.len() >= window {
                self.append_next(&mut under_way, now).await?;
            }
            let Item::Turn(meta, turn, _) = item else {
                under_way.push_back(ready(item).boxed());
                continue;
            };
            let context = self.recent.begin(meta.owner, &turn, self.episodes);
            let (answered, next) = oneshot::channel::<()>();
            let before = last.insert(meta.owner, next);
            let asker = asker.clone();
            let ask = async move {
                if let Some(before) = before {
                    // Ends when the turn before is answered: its sender is dropped then.
                    let _ = before.await;
                }
                let reply = asker.ask(meta.owner, &turn, &context, now).await;
                drop(answered);
                Item::Turn(meta, turn, reply.map(Box::new))
            };
            under_way.push_back(ask.boxed());
        }
        while !under_way.is_empty() {
            self.append_next(&mut under_way, now).await?;
        }
        Ok(())
    }

    /// Waits for the first, and takes with it what is ready behind it.
    async fn append_next(
        &mut self,
        under_way: &mut FuturesOrdered<BoxFuture<'static, Item>>,
        now: Timestamp,
    ) -> Result<(), StageError> {
        let Some(first) = under_way.next().await else {
            return Ok(());
        };
        let mut items = vec![first];
        while let Some(Some(next)) = under_way.next().now_or_never() {
            items.push(next);
        }
        self.append(items, now).await
    }

    /// Reads the turns and writes what is found, in their order: what came of one is known when the next is
    /// read, and a note about a parked owner moves the position past what stands before.
    async fn append(&mut self, items: Vec<Item>, now: Timestamp) -> Result<(), StageError> {
        let mut sets = Vec::with_capacity(items.len());
        let mut parked: Vec<(usize, Parked)> = Vec::new();
        for item in items {
            match item {
                Item::Turn(meta, turn, reply) => {
                    let context = self.recent.context(meta.owner, &turn, self.episodes);
                    let set = timed(&turn, &context, reply.as_deref());
                    let came = Recorded::of(&set).came(&turn);
                    self.recent.push(meta.owner, &turn, Some(came), now);
                    sets.push((meta, Some(set)));
                }
                Item::Erased(meta) => sets.push((meta, None)),
                Item::Parked(note) => parked.push((sets.len(), note)),
            }
        }
        let mut records = self.codec.seal_candidates(&sets).await?;
        for (at, note) in parked.iter().rev() {
            tracing::warn!(
                stage = STAGE,
                partition = self.partition,
                position = %note.first,
                reason = note.reason,
                "an owner is parked"
            );
            records.insert(*at, self.codec.parked(note)?);
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

    /// Reads what was said just before the position, for words that refer back, and what came of it.
    async fn warm(&mut self, now: Timestamp) -> Result<(), StageError> {
        let recorded = self.recorded().await?;
        // What a parked owner said since is read again, and then it was said.
        let parked: HashMap<OwnerKey, u64> = self
            .output
            .parked_owners()
            .map(|parked| (parked.owner, parked.first.offset))
            .collect();
        let is_waiting = |meta: &InputMeta| {
            let first = parked.get(&meta.owner);
            first.is_some_and(|first| meta.origin.offset >= *first)
        };
        let mut from = self.next.saturating_sub(WARM_RECORDS_MAX).max(1);
        while from < self.next {
            let records = self
                .read_on(Topic::Conversation, &mut from, self.next)
                .await?;
            for opened in self.codec.open(&records).await? {
                if let Ok(Opened::Turn { meta, turn }) = opened
                    && !is_waiting(&meta)
                {
                    let came = recorded.get(&meta.origin.offset).map(|one| one.came(&turn));
                    self.recent.push(meta.owner, &turn, came, now);
                }
            }
        }
        Ok(())
    }

    /// What the newest candidates tell, by the position of their turn. The first record of a turn counts.
    async fn recorded(&self) -> Result<HashMap<u64, Recorded>, StageError> {
        let mut recorded = HashMap::new();
        let end = self.output.next;
        let mut from = end.saturating_sub(WARM_RECORDS_MAX);
        while from < end {
            let records = self.read_on(Topic::Candidates, &mut from, end).await?;
            for opened in self.codec.open(&records).await? {
                if let Ok(Opened::Candidates { meta, set }) = opened {
                    recorded
                        .entry(meta.origin.offset)
                        .or_insert_with(|| Recorded::of(&set));
                }
            }
        }
        Ok(recorded)
    }

    /// Tells the asker what this hour's candidates have cost, for it may be new. What was asked at the end of
    /// an hour and written in the next counts for the next.
    async fn recall_spent(&self, now: Timestamp) -> Result<(), StageError> {
        let asker = self.asker.as_ref().filter(|asker| asker.has_budget());
        let Some(asker) = asker else { return Ok(()) };
        let began = hour_began(now);
        let mut spent: HashMap<OwnerKey, Spent> = HashMap::new();
        let mut end = self.output.next;
        let mut is_before = false;
        while end > 0 && !is_before {
            let first = end.saturating_sub(SPENT_RECORDS);
            let mut from = first;
            while from < end {
                let mut records = self.read_on(Topic::Candidates, &mut from, end).await?;
                let read = records.len();
                records.retain(|record| record.appended_at >= began);
                is_before |= records.len() < read;
                for opened in self.codec.open(&records).await? {
                    if let Ok(Opened::Candidates { meta, set }) = opened
                        && let Some(used) = &set.model_use
                    {
                        spent.entry(meta.owner).or_default().add(used);
                    }
                }
            }
            end = first;
        }
        for (owner, spent) in spent {
            asker.recall(owner, now, spent);
        }
        Ok(())
    }

    /// Reads some records of what was answered, and moves `from` past them.
    async fn read_on(
        &self,
        topic: Topic,
        from: &mut u64,
        end: u64,
    ) -> Result<Vec<Record>, StageError> {
        let most = (end - *from) as usize;
        let read = self
            .log
            .read(topic, self.partition, *from, most, BATCH_BYTES_MAX)
            .await;
        match read {
            Ok(records) => {
                *from = records.last().map_or(end, |last| last.position.offset + 1);
                Ok(records)
            }
            // Only words that refer back to it are lost. The audit names it, and nobody else has to wait.
            Err(LogError::Corrupt { position }) => {
                tracing::error!(%position, "a record that was answered is corrupt in the log");
                *from = position.offset + 1;
                Ok(Vec::new())
            }
            Err(error) => Err(error.into()),
        }
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
