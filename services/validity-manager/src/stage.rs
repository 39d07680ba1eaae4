//! The shell around `decide`: reads candidates and commands of one partition, decides, appends to
//! `memories`. Fenced by the log itself (rule 6): it appends `WriterStarted`, reads up to it, then
//! decides; an append of unknown outcome, or somebody else's record between its own, starts over.
//!
//! Keys that an erasure names are destroyed before anything else of that owner is decided: a decision
//! that was sealed after an erasure and made unreadable by it would be believed here and by nobody
//! else.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use anamnesis_domain::evolve::{Recorded, evolve};
use anamnesis_domain::ids::{ErasureId, EventTag, Hash, OwnerKey};
use anamnesis_domain::input::{Cause, Command, Input, Position, Target, Topic};
use anamnesis_domain::receipt::{Parked, Unparked};
use anamnesis_domain::skeleton::{Skeleton, Verdict};
use anamnesis_domain::state::OwnerState;
use anamnesis_domain::time::Timestamp;
use anamnesis_domain::transition::{
    Decided, Decision, Detail, Outcome, Part, PartBody, Transition,
};
use anamnesis_pipeline::codec::{
    Clear, Codec, CodecError, DecidedDraft, InputMeta, Opened, read_clear,
};
use anamnesis_pipeline::consumer::{APPEND_PACE, BATCH_BYTES_MAX, Running, Stage, StageError};
use anamnesis_pipeline::fold;
use anamnesis_pipeline::log::{Log, NewRecord, Record};
use anamnesis_pipeline::owner_states::OwnerStates;
use anamnesis_pipeline::pace::Pace;
use anamnesis_pipeline::snapshots::{self, Snaps};
use async_trait::async_trait;

use crate::decide::{Rules, decide};
use crate::metrics;

pub const STAGE: &str = "validity-manager";

/// Decisions between two snapshots of the skeleton.
const SNAPSHOT_EVERY: u64 = 10_000;
/// The same when there is nothing else to do: a trickle must not write a snapshot per record.
const SNAPSHOT_EVERY_IDLE: u64 = 1_000;

/// The validity-manager as a stage.
pub struct ValidityManager {
    pub log: Log,
    pub codec: Codec,
    pub rules: Rules,
    pub snapshots: Snaps,
}

#[async_trait]
impl Stage for ValidityManager {
    fn name(&self) -> &'static str {
        STAGE
    }

    fn pace(&self) -> Pace {
        APPEND_PACE
    }

    async fn begin(&self, partition: u32, now: Timestamp) -> Result<Box<dyn Running>, StageError> {
        let log_id = self.log.identity(Topic::Memories, partition).await?.log_id;
        let name = format!("{STAGE}-{partition}");
        let end = self.log.end(Topic::Memories, partition).await?;
        let mut skeleton: Skeleton =
            match snapshots::load::<Skeleton>(&*self.snapshots, &name, log_id).await {
                Some(snapshot) if snapshot.next <= end => snapshot,
                Some(_) | None => Skeleton::default(),
            };
        let started = self.codec.writer_started(now)?;
        let appended = self
            .log
            .append(Topic::Memories, partition, vec![started])
            .await?;
        let epoch = appended
            .first()
            .map(|a| a.position.offset)
            .unwrap_or_default();
        fold::fold_skeleton(&*self.log, partition, &mut skeleton, epoch + 1).await?;
        if skeleton.writer_epoch != Some(epoch) {
            return Err(StageError::Fenced { partition });
        }
        let mut writer = Writer {
            log: self.log.clone(),
            codec: self.codec.clone(),
            rules: self.rules.clone(),
            snapshots: self.snapshots.clone(),
            snapshot_name: name,
            snapshot_next: skeleton.next,
            log_id,
            partition,
            epoch,
            positions: [Topic::Commands, Topic::Candidates]
                .map(|topic| (topic, skeleton.next_input(topic).unwrap_or(1)))
                .into(),
            skeleton,
            states: OwnerStates::of_one_in(self.log.partitions()),
            carried_out: BTreeSet::new(),
        };
        writer.retry_parked(now).await?;
        Ok(Box::new(writer))
    }
}

/// The one writer of a partition, from its `WriterStarted` on.
struct Writer {
    log: Log,
    codec: Codec,
    rules: Rules,
    snapshots: Snaps,
    snapshot_name: String,
    snapshot_next: u64,
    log_id: anamnesis_domain::ids::LogId,
    partition: u32,
    epoch: u64,
    positions: BTreeMap<Topic, u64>,
    skeleton: Skeleton,
    states: OwnerStates,
    /// Erasures whose keys are known to be destroyed.
    carried_out: BTreeSet<ErasureId>,
}

/// One input, decided and not yet recorded.
struct Answer {
    owner: OwnerKey,
    draft: DecidedDraft,
    decision: Decision,
}

#[async_trait]
impl Running for Writer {
    fn positions(&self) -> Vec<(Topic, u64)> {
        // Commands first: an erasure or a withdrawal should not wait behind a batch of turns.
        [Topic::Commands, Topic::Candidates]
            .map(|topic| (topic, self.positions[&topic]))
            .into()
    }

    async fn step(&mut self, records: Vec<Record>, now: Timestamp) -> Result<(), StageError> {
        let Some(last) = records.last().map(|record| record.position) else {
            return Ok(());
        };
        self.answer(records, now, None).await?;
        self.positions.insert(last.topic, last.offset + 1);
        if self.skeleton.next >= self.snapshot_next + SNAPSHOT_EVERY {
            self.save_snapshot().await;
        }
        Ok(())
    }

    async fn idle(&mut self, _now: Timestamp) -> Result<(), StageError> {
        if self.skeleton.next >= self.snapshot_next + SNAPSHOT_EVERY_IDLE {
            self.save_snapshot().await;
        }
        Ok(())
    }

    fn parked(&self) -> Vec<OwnerKey> {
        let mine = self
            .skeleton
            .parked_owners()
            .filter(|parked| parked.stage == STAGE);
        mine.map(|parked| parked.owner).collect()
    }
}

impl Writer {
    async fn save_snapshot(&mut self) {
        snapshots::save(
            &*self.snapshots,
            &self.snapshot_name,
            self.log_id,
            &self.skeleton,
        )
        .await;
        self.snapshot_next = self.skeleton.next;
    }

    /// Decides a batch and appends the decisions. With `released`, the records are those of one owner
    /// that had been parked.
    async fn answer(
        &mut self,
        records: Vec<Record>,
        now: Timestamp,
        released: Option<OwnerKey>,
    ) -> Result<(), StageError> {
        let mut rest = records.as_slice();
        while !rest.is_empty() {
            let answered = self.answer_some(rest, now, released).await?;
            rest = &rest[answered..];
        }
        Ok(())
    }

    /// Answers records up to an erasure that others of the same owner follow: these have to be opened
    /// again, with the keys that are left. Gives how many records were answered.
    async fn answer_some(
        &mut self,
        records: &[Record],
        now: Timestamp,
        released: Option<OwnerKey>,
    ) -> Result<usize, StageError> {
        let opened = self.codec.open(records).await?;
        let mut parked: Vec<(usize, Parked)> = Vec::new();
        let mut waiting: BTreeSet<OwnerKey> = self.parked().into_iter().collect();
        if let Some(owner) = released {
            waiting.remove(&owner);
        }
        let mut inputs: Vec<(OwnerKey, InputMeta, Input)> = Vec::new();
        let mut read = records.len();
        for (place, (record, opened)) in records.iter().zip(opened).enumerate() {
            if let Some(broken) = self
                .skeleton
                .owners
                .get(&record.key)
                .and_then(|c| c.broken.as_ref())
            {
                tracing::error!(
                    partition = self.partition,
                    offset = broken.offset,
                    what = broken.what,
                    "an owner's chain is broken; its records wait"
                );
                waiting.insert(record.key);
            }
            let input = match opened {
                Ok(Opened::Candidates { meta, set }) => Some((meta, Input::Candidates(set))),
                Ok(Opened::Command { meta, command }) => Some((meta, Input::Command(command))),
                Ok(Opened::Erased { meta }) => {
                    let event = meta.event;
                    Some((meta, Input::Erased { event }))
                }
                // A parking note of the extractor, or the identity record: nothing to decide.
                Ok(Opened::Identity(_) | Opened::Parked(_) | Opened::Unparked(_)) => None,
                Ok(_) => {
                    return Err(StageError::Broken {
                        what: format!("{} holds a record of another topic", record.position),
                    });
                }
                Err(CodecError::Keyring(error)) if error.is_retryable() => return Err(error.into()),
                // The owner was erased while it waited: what cannot be read is answered by that.
                Err(_) if released == Some(record.key) => {
                    let meta = self.unreadable(record).await?;
                    let event = meta.event;
                    Some((meta, Input::Erased { event }))
                }
                Err(error) => {
                    if waiting.insert(record.key) {
                        let parking = Parked {
                            stage: STAGE.to_owned(),
                            owner: record.key,
                            first: record.position,
                            reason: error.reason().to_owned(),
                            at: now,
                            writer_epoch: Some(self.epoch),
                        };
                        parked.push((inputs.len(), parking));
                    }
                    None
                }
            };
            let Some((meta, input)) = input else { continue };
            let overtakes = matches!(&input, Input::Command(command)
                if Command::overtakes_parked(command.command.code()));
            if waiting.contains(&meta.owner) && !overtakes {
                continue;
            }
            let erases = matches!(&input, Input::Command(command)
                if matches!(command.command, Command::Erase { .. }));
            inputs.push((meta.owner, meta, input));
            let after = &records[place + 1..];
            if erases && after.iter().any(|later| later.key == record.key) {
                read = place + 1;
                break;
            }
        }
        let answers = self.decide_all(inputs, now).await?;
        let erasures: Vec<(OwnerKey, ErasureId, Target)> = answers
            .iter()
            .flat_map(|answer| erased(answer.owner, &answer.decision))
            .collect();
        self.record(answers, parked).await?;
        for (owner, erasure, target) in erasures {
            self.carry_out(owner, erasure, &target).await?;
            // What is left is read from the log again, as everybody else reads it.
            self.states.remove(owner);
        }
        Ok(read)
    }

    /// Destroys the keys of an erasure that is recorded. The projections do it too; whoever comes first
    /// reaches what there is, and a repeat reaches nothing more.
    async fn carry_out(
        &mut self,
        owner: OwnerKey,
        erasure: ErasureId,
        target: &Target,
    ) -> Result<(), StageError> {
        self.codec.keys().destroy(owner, target, erasure).await?;
        self.carried_out.insert(erasure);
        Ok(())
    }

    async fn decide_all(
        &mut self,
        inputs: Vec<(OwnerKey, InputMeta, Input)>,
        now: Timestamp,
    ) -> Result<Vec<Answer>, StageError> {
        let ids = self.codec.keys().id_key().clone();
        let rules = self.rules.clone();
        let writer_epoch = self.epoch;
        self.states.begin_batch();
        let mut answers: Vec<Answer> = Vec::with_capacity(inputs.len());
        for (owner, meta, input) in inputs {
            let place = self.skeleton.next + answers.len() as u64;
            let state = self.state(owner).await?;
            let input = if meta.key_epoch <= state.closed_through {
                Input::Erased { event: meta.event }
            } else {
                input
            };
            let decision = decide(state, &input, now, &ids, &rules);
            let owner_words = match &input {
                Input::Candidates(set) => Some(set.owner.to_string()),
                Input::Command(command) => Some(command.owner.to_string()),
                Input::Erased { .. } => None,
            };
            let draft = DecidedDraft {
                owner,
                owner_seq: state.seq + 1,
                // Set when sealing: the hash of the record before.
                prev_hash: Hash::NONE,
                writer_epoch,
                key_epoch: meta.key_epoch,
                cause: Cause {
                    position: meta.position,
                    event: meta.event,
                    source_tag: meta.source_tag,
                    origin: meta.origin,
                },
                source_key: owner_words.is_some().then_some(meta.key_id),
                decided_at: now,
                owner_words: owner_words.unwrap_or_default(),
            };
            // The place is where the record will stand if nobody else writes; if somebody does, the
            // state is dropped. Nothing in `decide` reads it.
            let recorded = Recorded {
                offset: place,
                at: now,
                hash: Hash::NONE,
            };
            let decided = as_decided(&draft, &decision);
            evolve(state, &decided, recorded);
            metrics::decided(meta.position.topic, &decision, state);
            answers.push(Answer {
                owner,
                draft,
                decision,
            });
        }
        self.states.trim();
        Ok(answers)
    }

    /// The owner's state, from the cache or from the log. Erasures that are in it are carried out first:
    /// a writer may have stopped between deciding one and destroying its keys.
    async fn state(&mut self, owner: OwnerKey) -> Result<&mut OwnerState, StageError> {
        if !self.states.contains(owner) {
            let mut state = self.load(owner).await?;
            let open: Vec<_> = state
                .erasures
                .iter()
                .filter(|erased| !self.carried_out.contains(&erased.erasure))
                .map(|erased| (erased.erasure, erased.target.clone()))
                .collect();
            for (erasure, target) in &open {
                self.carry_out(owner, *erasure, target).await?;
            }
            if !open.is_empty() {
                state = self.load(owner).await?;
            }
            self.states.insert(state);
        }
        Ok(self.states.get(owner).expect("inserted above"))
    }

    async fn load(&self, owner: OwnerKey) -> Result<OwnerState, StageError> {
        let offsets = self
            .skeleton
            .owners
            .get(&owner)
            .map(|c| c.offsets.as_slice());
        fold::owner_state(
            &*self.log,
            &self.codec,
            self.partition,
            owner,
            offsets.unwrap_or_default(),
        )
        .await
    }

    /// Seals and appends, and folds what was appended as every other reader does. A parking note stands
    /// where its record stood among the inputs (`usize` counts those before it), so that any prefix of
    /// what is appended leaves nothing behind it unanswered.
    async fn record(
        &mut self,
        answers: Vec<Answer>,
        parked: Vec<(usize, Parked)>,
    ) -> Result<(), StageError> {
        let mut records = self.seal(answers).await?;
        for (place, parking) in parked.iter().rev() {
            tracing::warn!(
                stage = STAGE,
                partition = self.partition,
                position = %parking.first,
                reason = parking.reason,
                "an owner is parked"
            );
            records.insert(*place, self.codec.parked(parking)?);
        }
        self.append(records).await
    }

    async fn seal(&self, mut answers: Vec<Answer>) -> Result<Vec<NewRecord>, StageError> {
        let pairs: Vec<(&DecidedDraft, &Decision)> = answers
            .iter()
            .map(|answer| (&answer.draft, &answer.decision))
            .collect();
        let keys = self.codec.prepare_decided(&pairs).await?;
        let mut heads: BTreeMap<OwnerKey, Hash> = BTreeMap::new();
        let mut records = Vec::with_capacity(answers.len() + 1);
        for (answer, keys) in answers.iter_mut().zip(&keys) {
            let head = match heads.get(&answer.owner) {
                Some(head) => *head,
                None => self
                    .skeleton
                    .owners
                    .get(&answer.owner)
                    .map_or(Hash::NONE, |c| c.head),
            };
            answer.draft.prev_hash = head;
            let (record, hash) = self
                .codec
                .seal_decided(&answer.draft, &answer.decision, keys)?;
            heads.insert(answer.owner, hash);
            records.push(record);
        }
        Ok(records)
    }

    async fn append(&mut self, records: Vec<NewRecord>) -> Result<(), StageError> {
        if records.is_empty() {
            return Ok(());
        }
        let appended = self
            .log
            .append(Topic::Memories, self.partition, records.clone())
            .await?;
        for (record, appended) in records.into_iter().zip(appended) {
            if appended.position.offset != self.skeleton.next {
                return Err(StageError::Fenced {
                    partition: self.partition,
                });
            }
            let record = Record {
                position: appended.position,
                key: record.key,
                appended_at: appended.appended_at,
                payload: record.payload,
            };
            match fold::fold_header(&mut self.skeleton, &record) {
                fold::Folded::Decision(_, Verdict::Apply) | fold::Folded::Other => (),
                fold::Folded::Decision(_, Verdict::Fenced | Verdict::Repeat) => {
                    return Err(StageError::Fenced {
                        partition: self.partition,
                    });
                }
                fold::Folded::Decision(_, Verdict::Broken(_)) | fold::Folded::Undecodable(_) => {
                    return Err(StageError::Broken {
                        what: format!("{} does not continue its owner's chain", record.position),
                    });
                }
            }
        }
        Ok(())
    }

    /// Reads the records of parked owners again, in order: a fix or an erasure may have released them.
    async fn retry_parked(&mut self, now: Timestamp) -> Result<(), StageError> {
        for owner in self.parked() {
            let waiting = self.undecided(owner).await?;
            let opened = self.codec.open(&waiting).await?;
            let is_unreadable = opened.iter().any(Result::is_err);
            if is_unreadable && !self.is_erased_since_parked(owner).await? {
                continue;
            }
            self.answer(waiting, now, Some(owner)).await?;
            let unparked = Unparked {
                stage: STAGE.to_owned(),
                owner,
                at: now,
                writer_epoch: Some(self.epoch),
            };
            let record = self.codec.unparked(&unparked)?;
            self.append(vec![record]).await?;
        }
        Ok(())
    }

    /// Whether the whole owner was erased after it was parked. An earlier erasure says nothing about
    /// the record that waits: the owner had come back.
    async fn is_erased_since_parked(&mut self, owner: OwnerKey) -> Result<bool, StageError> {
        let state = self.state(owner).await?;
        let erasures = state
            .erasures
            .iter()
            .filter(|erased| erased.target == Target::Owner);
        let Some(last) = erasures.map(|erased| erased.offset).max() else {
            return Ok(false);
        };
        let parked = self
            .skeleton
            .parked_owners()
            .find(|p| p.stage == STAGE && p.owner == owner);
        let Some(first) = parked.map(|parked| parked.first) else {
            return Ok(false);
        };
        // The note stands before the erasure, or it does not: reading on from there tells.
        let mut from = last + 1;
        while from < self.skeleton.next {
            let records = self
                .log
                .read(
                    Topic::Memories,
                    self.partition,
                    from,
                    2_000,
                    BATCH_BYTES_MAX,
                )
                .await?;
            let Some(end) = records.last() else { break };
            from = end.position.offset + 1;
            let is_note = |record: &Record| {
                record.key == owner
                    && matches!(read_clear(&record.payload),
                        Ok(Clear::Parked(note)) if note.stage == STAGE && note.first == first)
            };
            if records.iter().any(is_note) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// An identity for a record whose header cannot be read: its place.
    fn position_event(&self, record: &Record) -> EventTag {
        let place = record.position.to_string();
        self.codec
            .keys()
            .id_key()
            .event(record.key, "position", &place, "")
    }

    /// What is known of a record that cannot be opened: its header, where that can be read, so that the
    /// turn behind candidates is answered; otherwise its place.
    async fn unreadable(&mut self, record: &Record) -> Result<InputMeta, StageError> {
        let key_epoch = self.state(record.key).await?.closed_through;
        let by_place = self.position_event(record);
        let ids = self.codec.keys().id_key();
        let (event, source_tag, origin) = match read_clear(&record.payload) {
            Ok(Clear::Input {
                owner,
                event,
                source_tag,
                origin,
                ..
            }) if owner == record.key => (event, source_tag, origin),
            Ok(
                Clear::Input { .. }
                | Clear::Identity(_)
                | Clear::WriterStarted { .. }
                | Clear::Decided(_)
                | Clear::Parked(_)
                | Clear::Unparked(_)
                | Clear::Other,
            )
            | Err(_) => (by_place, ids.source(record.key, "position"), None),
        };
        Ok(InputMeta {
            position: record.position,
            appended_at: record.appended_at,
            owner: record.key,
            event,
            source_tag,
            key_id: ids.source_data_key(by_place, &[0; 16]),
            key_epoch,
            consent_version: 0,
            code: "undecodable".to_owned(),
            origin: origin.unwrap_or(record.position),
            failed: None,
        })
    }

    /// Records of one owner below the positions that no decision answers.
    async fn undecided(&self, owner: OwnerKey) -> Result<Vec<Record>, StageError> {
        let offsets = self
            .skeleton
            .owners
            .get(&owner)
            .map(|c| c.offsets.clone())
            .unwrap_or_default();
        let decided = fold::decisions_at(&*self.log, &self.codec, self.partition, &offsets).await?;
        let answered: BTreeSet<Position> = decided
            .iter()
            .map(|decided| decided.decided.cause.position)
            .collect();
        let mut found = Vec::new();
        for topic in [Topic::Candidates, Topic::Commands] {
            let end = self.positions[&topic];
            let mut from = 1;
            while from < end {
                let most = 2_000.min((end - from) as usize);
                let records = self
                    .log
                    .read(topic, self.partition, from, most, BATCH_BYTES_MAX)
                    .await?;
                let Some(last) = records.last() else { break };
                from = last.position.offset + 1;
                found.extend(
                    records
                        .into_iter()
                        .filter(|r| r.key == owner && !answered.contains(&r.position)),
                );
            }
        }
        Ok(found)
    }
}

/// What a decision makes unreadable.
fn erased(owner: OwnerKey, decision: &Decision) -> Vec<(OwnerKey, ErasureId, Target)> {
    let mut found = Vec::new();
    for transition in &decision.transitions {
        if let Transition::Erased {
            erasure, target, ..
        } = transition
        {
            found.push((owner, *erasure, target.clone()));
        }
    }
    found
}

/// The record as its readers will see it, for the writer's own fold.
fn as_decided(draft: &DecidedDraft, decision: &Decision) -> Decided {
    Decided {
        owner: draft.owner,
        owner_seq: draft.owner_seq,
        prev_hash: draft.prev_hash,
        writer_epoch: draft.writer_epoch,
        key_epoch: draft.key_epoch,
        cause: draft.cause,
        decided_at: draft.decided_at,
        outcome: decision.outcome.clone(),
        parts: decision
            .transitions
            .iter()
            .map(|transition| Part {
                code: transition.code().to_owned(),
                memory_id: transition.memory_id(),
                key: None,
                body: PartBody::Open(Box::new(transition.clone())),
            })
            .collect(),
        source_key: draft.source_key,
        detail: draft.source_key.map(|_| Detail {
            owner: draft.owner_words.clone(),
            content: decision.content,
            notes: decision.notes.clone(),
        }),
    }
}

/// Whether an outcome leaves something to be found; for callers that wait for a token.
pub fn is_stored(outcome: &Outcome) -> bool {
    *outcome == Outcome::Stored
}

pub type Manager = Arc<ValidityManager>;
