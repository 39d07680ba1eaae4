//! Is everything that was accepted accounted for, at any moment? The cheap form of [`crate::balance`]:
//! each record of a partition is read once, its header alone, and what is kept is what is not answered.
//!
//! `memories` is read before the inputs that it answers, and an input whenever an answer names one that
//! was not read yet: so a record that counts as lost was passed over, and not merely written since.

use std::collections::{BTreeMap, BTreeSet};

use anamnesis_domain::ids::{ErasureId, EventTag, OwnerKey};
use anamnesis_domain::input::{Position, Topic};
use anamnesis_domain::receipt::{Parked, store_of};
use anamnesis_domain::skeleton::{Skeleton, Verdict};
use anamnesis_domain::time::Timestamp;
use anamnesis_domain::transition::Outcome;
use anamnesis_pipeline::codec::{Clear, ClearDecided, Codec, Opened, read_clear};
use anamnesis_pipeline::consumer::{BATCH_BYTES_MAX, StageError};
use anamnesis_pipeline::fold::{Folded, fold_header};
use anamnesis_pipeline::log::{EventLog, Record};
use anamnesis_pipeline::stores::Store;

use crate::balance::REPEATS;

/// Records per read.
const READ_RECORDS_MAX: usize = 2_000;
/// What a decision's cause can be, and the turn behind it.
const INPUTS: [Topic; 3] = [Topic::Conversation, Topic::Commands, Topic::Candidates];

/// What a ledger reads besides `memories`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Reads {
    /// The inputs and what became of them.
    pub inputs: bool,
    /// Where each owner's vectors stand in `embeddings`, for comparing stores with the fold.
    pub vectors: bool,
}

/// One partition, kept up to date by [`Ledger::advance`].
pub struct Ledger {
    partition: u32,
    reads: Reads,
    skeleton: Skeleton,
    /// The first offset of each other topic that was not read.
    next: BTreeMap<Topic, u64>,
    /// Highest answered offset of each input topic.
    answered: BTreeMap<Topic, u64>,
    /// Records of `conversation` and `commands` that nothing has answered.
    open: BTreeMap<(Topic, u64), Open>,
    /// Candidates that nothing has answered, with the turn behind them.
    candidates: BTreeMap<u64, Option<u64>>,
    /// The first candidates of each turn in `open`.
    extracted: BTreeMap<u64, u64>,
    extractor_parked: BTreeMap<OwnerKey, Parked>,
    /// Events of `quarantine` that no grant has let in.
    quarantined: BTreeSet<EventTag>,
    erasures: BTreeMap<ErasureId, Erasing>,
    vectors: BTreeMap<OwnerKey, Vec<u64>>,
    decided: u64,
    answered_twice: u64,
    foreign: u64,
}

struct Open {
    owner: OwnerKey,
    at: Timestamp,
}

struct Erasing {
    since: Timestamp,
    command: u64,
    effective: BTreeSet<String>,
    physical: BTreeSet<String>,
}

/// What a ledger says of its partition; sums over partitions say it of the log.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Counts {
    pub accepted: u64,
    /// Answered by a decision.
    pub decided: u64,
    pub quarantined: u64,
    pub in_flight: u64,
    pub parked: u64,
    /// As in [`crate::balance::Balance`]: must be 0.
    pub answered_twice: u64,
    pub foreign: u64,
    pub lost: u64,
    /// When the oldest record was appended that is not answered and does not wait behind another.
    pub oldest_in_flight: Option<Timestamp>,
    /// Owners that wait, by stage, and since when the first of them does.
    pub parked_owners: BTreeMap<String, (u64, Timestamp)>,
    pub broken_owners: u64,
    /// Erasures that some store has not confirmed as unreachable, and the oldest command.
    pub not_effective: (u64, Option<Timestamp>),
    /// Erasures whose bytes some store has not rewritten, and the oldest command.
    pub not_physical: (u64, Option<Timestamp>),
}

impl Counts {
    pub fn add(&mut self, other: &Self) {
        self.accepted += other.accepted;
        self.decided += other.decided;
        self.quarantined += other.quarantined;
        self.in_flight += other.in_flight;
        self.parked += other.parked;
        self.answered_twice += other.answered_twice;
        self.foreign += other.foreign;
        self.lost += other.lost;
        self.oldest_in_flight = oldest(self.oldest_in_flight, other.oldest_in_flight);
        for (stage, (owners, since)) in &other.parked_owners {
            note_parked(&mut self.parked_owners, stage, *owners, *since);
        }
        self.broken_owners += other.broken_owners;
        for (sum, one) in [
            (&mut self.not_effective, other.not_effective),
            (&mut self.not_physical, other.not_physical),
        ] {
            *sum = (sum.0 + one.0, oldest(sum.1, one.1));
        }
    }
}

fn oldest(one: Option<Timestamp>, other: Option<Timestamp>) -> Option<Timestamp> {
    [one, other].into_iter().flatten().min()
}

fn note_parked(
    parked: &mut BTreeMap<String, (u64, Timestamp)>,
    stage: &str,
    owners: u64,
    since: Timestamp,
) {
    let noted = parked.entry(stage.to_owned()).or_insert((0, since));
    *noted = (noted.0 + owners, noted.1.min(since));
}

impl Ledger {
    pub fn new(partition: u32, reads: Reads) -> Self {
        Self {
            partition,
            reads,
            skeleton: Skeleton::default(),
            next: BTreeMap::new(),
            answered: BTreeMap::new(),
            open: BTreeMap::new(),
            candidates: BTreeMap::new(),
            extracted: BTreeMap::new(),
            extractor_parked: BTreeMap::new(),
            quarantined: BTreeSet::new(),
            erasures: BTreeMap::new(),
            vectors: BTreeMap::new(),
            decided: 0,
            answered_twice: 0,
            foreign: 0,
        }
    }

    pub fn partition(&self) -> u32 {
        self.partition
    }

    pub fn reads(&self) -> Reads {
        self.reads
    }

    /// Offsets of an owner's applied decisions.
    pub fn decisions(&self, owner: OwnerKey) -> &[u64] {
        let chain = self.skeleton.owners.get(&owner);
        chain.map_or(&[], |chain| chain.offsets.as_slice())
    }

    /// Offsets of what was embedded of an owner.
    pub fn vectors(&self, owner: OwnerKey) -> &[u64] {
        self.vectors.get(&owner).map_or(&[], Vec::as_slice)
    }

    /// The first owner at or after `from`, going round: with a random `from`, a random owner.
    pub fn owner_from(&self, from: OwnerKey) -> Option<OwnerKey> {
        let owners = &self.skeleton.owners;
        let after = owners.range(from..).next();
        after.or_else(|| owners.iter().next()).map(|(key, _)| *key)
    }

    pub fn owners(&self) -> usize {
        self.skeleton.owners.len()
    }

    /// Reads what was written since.
    ///
    /// # Errors
    /// When the log or the keyring cannot be read; what was read before stays, and the next call goes
    /// on there.
    pub async fn advance(&mut self, log: &dyn EventLog, codec: &Codec) -> Result<(), StageError> {
        loop {
            let (at, most) = (self.skeleton.next, READ_RECORDS_MAX);
            let memories = Topic::Memories;
            let records = log
                .read(memories, self.partition, at, most, BATCH_BYTES_MAX)
                .await?;
            if records.is_empty() {
                break;
            }
            if self.reads.inputs {
                // Before anything is counted, so that an error leaves nothing counted twice.
                for (topic, offset) in named_inputs(&records) {
                    self.read_beyond(topic, offset, log, codec).await?;
                }
            }
            for record in &records {
                self.fold(record);
            }
        }
        let mut topics = Vec::new();
        if self.reads.inputs {
            topics.extend([
                Topic::Conversation,
                Topic::Commands,
                Topic::Candidates,
                Topic::Quarantine,
                Topic::Receipts,
            ]);
        }
        if self.reads.vectors {
            topics.push(Topic::Embeddings);
        }
        for topic in topics {
            let end = log.end(topic, self.partition).await?;
            if let Some(last) = end.checked_sub(1) {
                self.read_beyond(topic, last, log, codec).await?;
            }
        }
        Ok(())
    }

    fn fold(&mut self, record: &Record) {
        match fold_header(&mut self.skeleton, record) {
            Folded::Decision(_, Verdict::Apply) => (),
            Folded::Decision(_, Verdict::Fenced | Verdict::Repeat | Verdict::Broken(_))
            | Folded::Undecodable(_)
            | Folded::Other => return,
        }
        if !self.reads.inputs {
            return;
        }
        if let Ok(Clear::Decided(decided)) = read_clear(&record.payload) {
            self.answer(&decided);
        }
    }

    fn answer(&mut self, decided: &ClearDecided) {
        let Position { topic, offset, .. } = decided.cause.position;
        let highest = self.answered.entry(topic).or_insert(0);
        *highest = (*highest).max(offset);
        if topic != Topic::Candidates {
            self.erasures.retain(|_, erasing| {
                erasing.command != offset || decided.outcome == Outcome::Stored.code()
            });
            return self.answer_input(topic, offset, decided.owner, false);
        }
        let Some(turn) = self.candidates.remove(&offset) else {
            self.answered_twice += 1;
            return;
        };
        // Candidates that could not be read when an erasure released them name no turn; then their own
        // record tells.
        let origin = decided.cause.origin;
        let turn = if origin.topic == Topic::Candidates {
            turn
        } else {
            Some(origin.offset)
        };
        if let Some(turn) = turn {
            let is_repeat = REPEATS.contains(&decided.outcome.as_str());
            self.answer_input(Topic::Conversation, turn, decided.owner, is_repeat);
        }
    }

    fn answer_input(&mut self, topic: Topic, offset: u64, owner: OwnerKey, is_repeat: bool) {
        match self.open.remove(&(topic, offset)) {
            Some(open) if open.owner == owner => self.decided += 1,
            Some(_) => self.foreign += 1,
            // The log holds no such record.
            None if offset == 0 || offset >= self.next.get(&topic).copied().unwrap_or(0) => {
                self.foreign += 1;
            }
            None if is_repeat => (),
            None => self.answered_twice += 1,
        }
        if topic == Topic::Conversation {
            self.extracted.remove(&offset);
        }
    }

    /// Reads a topic on until `offset` was read.
    async fn read_beyond(
        &mut self,
        topic: Topic,
        offset: u64,
        log: &dyn EventLog,
        codec: &Codec,
    ) -> Result<(), StageError> {
        let mut next = self.next.get(&topic).copied().unwrap_or(1);
        if next > offset {
            return Ok(());
        }
        // Retention may have passed what was not read.
        next = next.max(log.start(topic, self.partition).await?);
        let end = log.end(topic, self.partition).await?;
        while next <= offset && next < end {
            let records = log
                .read(
                    topic,
                    self.partition,
                    next,
                    READ_RECORDS_MAX,
                    BATCH_BYTES_MAX,
                )
                .await?;
            let Some(last) = records.last() else { break };
            if topic == Topic::Receipts {
                // A receipt follows its command, which must be known by then.
                let commands = log.end(Topic::Commands, self.partition).await?;
                let last = commands.saturating_sub(1);
                Box::pin(self.read_beyond(Topic::Commands, last, log, codec)).await?;
                self.confirm_erasures(&records, codec).await?;
            } else {
                for record in &records {
                    self.take(topic, record, codec);
                }
            }
            next = last.position.offset + 1;
            self.next.insert(topic, next);
        }
        Ok(())
    }

    /// Notes one record of another topic than `memories`.
    fn take(&mut self, topic: Topic, record: &Record, codec: &Codec) {
        let offset = record.position.offset;
        match topic {
            Topic::Embeddings => self.vectors.entry(record.key).or_default().push(offset),
            Topic::Candidates => self.take_candidates(record),
            Topic::Quarantine => {
                if let Ok(Clear::Input { event, .. }) = read_clear(&record.payload) {
                    self.quarantined.insert(event);
                }
            }
            Topic::Conversation | Topic::Commands => {
                let open = Open {
                    owner: record.key,
                    at: record.appended_at,
                };
                self.open.insert((topic, offset), open);
                let Ok(Clear::Input { kind, event, .. }) = read_clear(&record.payload) else {
                    return;
                };
                if topic == Topic::Conversation {
                    self.quarantined.remove(&event);
                } else if kind == "erase" {
                    let erasing = Erasing {
                        since: record.appended_at,
                        command: offset,
                        effective: BTreeSet::new(),
                        physical: BTreeSet::new(),
                    };
                    let id = codec.keys().id_key().erasure(event);
                    self.erasures.insert(id, erasing);
                }
            }
            Topic::Inbox | Topic::Memories | Topic::Accesses | Topic::Receipts | Topic::Schemas => {
            }
        }
    }

    fn take_candidates(&mut self, record: &Record) {
        let offset = record.position.offset;
        match read_clear(&record.payload) {
            Ok(Clear::Input { origin, .. }) => {
                let turn = origin.map(|origin| origin.offset);
                self.candidates.insert(offset, turn);
                if let Some(turn) = turn {
                    self.extracted.entry(turn).or_insert(offset);
                }
            }
            Ok(Clear::Parked(parked)) => {
                self.extractor_parked.entry(parked.owner).or_insert(parked);
            }
            Ok(Clear::Unparked(unparked)) => {
                self.extractor_parked.remove(&unparked.owner);
            }
            // Cannot be read by the manager either; it parks the owner or answers it by its place.
            Err(_) => {
                self.candidates.insert(offset, None);
            }
            Ok(
                Clear::Identity(_) | Clear::WriterStarted { .. } | Clear::Decided(_) | Clear::Other,
            ) => (),
        }
    }

    async fn confirm_erasures(
        &mut self,
        records: &[Record],
        codec: &Codec,
    ) -> Result<(), StageError> {
        for opened in codec.open(records).await? {
            let Ok(Opened::Receipt(receipt)) = opened else {
                continue;
            };
            let Some(erasing) = self.erasures.get_mut(&receipt.erasure) else {
                continue;
            };
            if receipt.stage == "physical" {
                erasing.physical.insert(receipt.place);
            } else {
                erasing.effective.insert(receipt.place);
            }
            if erasing.is_effective() && erasing.is_physical() {
                self.erasures.remove(&receipt.erasure);
            }
        }
        Ok(())
    }

    pub fn counts(&self) -> Counts {
        let quarantined = self.quarantined.len() as u64;
        let mut counts = Counts {
            accepted: quarantined + self.decided + self.foreign + self.open.len() as u64,
            decided: self.decided,
            quarantined,
            answered_twice: self.answered_twice,
            foreign: self.foreign,
            ..Counts::default()
        };
        let mut waiting: BTreeSet<OwnerKey> = BTreeSet::new();
        for (owner, _) in self.skeleton.broken_owners() {
            waiting.insert(*owner);
            counts.broken_owners += 1;
        }
        for parked in self
            .skeleton
            .parked_owners()
            .chain(self.extractor_parked.values())
        {
            waiting.insert(parked.owner);
            note_parked(&mut counts.parked_owners, &parked.stage, 1, parked.at);
        }
        for ((topic, offset), open) in &self.open {
            if waiting.contains(&open.owner) {
                counts.parked += 1;
                continue;
            }
            counts.oldest_in_flight = oldest(counts.oldest_in_flight, Some(open.at));
            if self.is_passed(*topic, *offset) {
                counts.lost += 1;
            } else {
                counts.in_flight += 1;
            }
        }
        for erasing in self.erasures.values() {
            let since = Some(erasing.since);
            for (is_open, count) in [
                (!erasing.is_effective(), &mut counts.not_effective),
                (!erasing.is_physical(), &mut counts.not_physical),
            ] {
                if is_open {
                    *count = (count.0 + 1, oldest(count.1, since));
                }
            }
        }
        counts
    }

    /// Whether the manager has answered something behind this input: it answers in order.
    fn is_passed(&self, topic: Topic, offset: u64) -> bool {
        let (topic, offset) = if topic == Topic::Conversation {
            let Some(candidates) = self.extracted.get(&offset) else {
                return false;
            };
            (Topic::Candidates, *candidates)
        } else {
            (topic, offset)
        };
        let highest = self.answered.get(&topic);
        highest.is_some_and(|highest| offset <= *highest)
    }
}

impl Erasing {
    fn is_effective(&self) -> bool {
        have_all(&self.effective) && self.effective.contains("keyring")
    }

    /// The keyring overwrites a key when it destroys it; there is nothing left to rewrite.
    fn is_physical(&self) -> bool {
        have_all(&self.physical)
    }
}

fn have_all(places: &BTreeSet<String>) -> bool {
    Store::ALL
        .into_iter()
        .all(|store| places.iter().any(|place| store_of(place) == store.as_str()))
}

/// The furthest input of each topic that these decisions name.
fn named_inputs(records: &[Record]) -> BTreeMap<Topic, u64> {
    let mut named = BTreeMap::new();
    for record in records {
        if let Ok(Clear::Decided(decided)) = read_clear(&record.payload) {
            for position in [decided.cause.position, decided.cause.origin] {
                if INPUTS.contains(&position.topic) {
                    let furthest = named.entry(position.topic).or_insert(0);
                    *furthest = position.offset.max(*furthest);
                }
            }
        }
    }
    named
}
