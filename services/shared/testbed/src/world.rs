//! A node in one process, over the in-memory doubles: what is said goes in, what is believed comes out.
//!
//! It runs the same consumers that production runs. Only the extractor is missing: whoever says
//! something also says which claims were found in it.

use std::collections::BTreeMap;
use std::sync::Arc;

use anamnesis_audit::balance::{Balance, balance};
use anamnesis_audit::diff::{Diff, diff};
use anamnesis_audit::ledger::{Counts, Ledger, Reads};
use anamnesis_audit::replay::{Replayed, replay, replay_owner};
use anamnesis_audit::verify::{Redecide, Verified, verify};
use anamnesis_domain::ids::{EventTag, LogId, MemoryId, OwnerKey};
use anamnesis_domain::input::{
    Candidate, CandidateSet, Command, CommandRecord, Consent, Position, Target, Topic, Turn,
};
use anamnesis_domain::memory::{Claim, Permille, Role, Source};
use anamnesis_domain::owner::{Owner, OwnerScope, Subject};
use anamnesis_domain::state::OwnerState;
use anamnesis_domain::text::Text;
use anamnesis_domain::time::{DAY_MS, Known, Timestamp};
use anamnesis_indexer::stage::Indexer;
use anamnesis_pipeline::clock::{Clock, ManualClock};
use anamnesis_pipeline::codec::{Codec, InputMeta, Opened, identity_payload};
use anamnesis_pipeline::consumer::{Consumer, Progress, StageError};
use anamnesis_pipeline::doubles::graph::MemoryGraph;
use anamnesis_pipeline::doubles::keyring::MemoryKeyring;
use anamnesis_pipeline::doubles::log::{FaultyLog, MemoryLog, Weather};
use anamnesis_pipeline::doubles::records::MemoryRecords;
use anamnesis_pipeline::doubles::text::MemoryText;
use anamnesis_pipeline::doubles::vectors::MemoryVectors;
use anamnesis_pipeline::embedder::Embed;
use anamnesis_pipeline::hash_embedder::HashEmbedder;
use anamnesis_pipeline::log::{EventLog as _, Log, NewRecord, partition_of};
use anamnesis_pipeline::snapshots::{MemorySnapshots, Snaps};
use anamnesis_pipeline::stores::{Projection, Stores};
use anamnesis_validity_manager::decide::{Rules, decide};
use anamnesis_validity_manager::stage::ValidityManager;

/// The first moment of every world's clock.
pub const START: Timestamp = Timestamp::from_millis(20_000 * DAY_MS);

const LOG_ID: LogId = LogId::from_bytes([7; 16]);

/// Turns that a stage may need to reach the tail; more means that it goes round in circles.
const TURNS_MAX: usize = 2_000;

/// `day(3)` is three days after the clock's start.
pub fn day(n: i64) -> Timestamp {
    START.plus_millis(n * DAY_MS)
}

pub struct World {
    pub clock: Arc<ManualClock>,
    /// What the stages read and write; calm unless a test sets its weather.
    pub faulty: Arc<FaultyLog>,
    /// The log behind it, for oracles and for what is said.
    pub calm: Arc<MemoryLog>,
    pub keyring: Arc<MemoryKeyring>,
    pub codec: Codec,
    pub embed: Embed,
    pub stores: Stores,
    pub snapshots: Arc<MemorySnapshots>,
    pub rules: Rules,
}

/// One message, as intake would accept it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Said {
    pub owner: String,
    pub source: String,
    pub event_id: String,
    pub at: Timestamp,
    pub zone_minutes: i32,
    pub role: Role,
    pub text: Text,
}

impl World {
    pub fn new(seed: u64, partitions: u32) -> Self {
        let clock = Arc::new(ManualClock::new(START));
        let calm = Arc::new(MemoryLog::new(
            clock.clone(),
            partitions,
            LOG_ID,
            identity_payload,
        ));
        let faulty = Arc::new(FaultyLog::new(calm.clone(), seed, Weather::CALM));
        let keyring = Arc::new(MemoryKeyring::new(seed));
        let embed: Embed = Arc::new(HashEmbedder::new());
        let model = embed.identity().clone();
        let stores = Stores {
            records: Arc::new(MemoryRecords::new(LOG_ID, partitions)),
            text: Arc::new(MemoryText::new(LOG_ID, partitions)),
            vectors: Arc::new(MemoryVectors::new(LOG_ID, partitions, model)),
            graph: Arc::new(MemoryGraph::new(LOG_ID, partitions)),
        };
        Self {
            clock,
            faulty,
            calm,
            codec: Codec::new(keyring.clone()).over(partitions),
            keyring,
            embed,
            stores,
            snapshots: Arc::new(MemorySnapshots::default()),
            rules: Rules::default(),
        }
    }

    /// `p1` is `h1/patient/p1`.
    pub fn owner(&self, name: &str) -> (Owner, OwnerKey) {
        let text = if name.contains('/') {
            name.to_owned()
        } else {
            format!("h1/{name}")
        };
        let owner: Owner = text.parse().expect("a test names a lawful owner");
        let key = self.codec.keys().id_key().owner(&owner);
        (owner, key)
    }

    pub fn scope(&self, name: &str) -> OwnerScope {
        OwnerScope::of_log_record(self.owner(name).1)
    }

    pub fn partition(&self, name: &str) -> u32 {
        partition_of(self.owner(name).1, self.calm.partitions())
    }

    pub fn event(&self, owner: &str, source: &str, event_id: &str) -> EventTag {
        self.codec
            .keys()
            .id_key()
            .event(self.owner(owner).1, source, event_id, "")
    }

    /// The memory that the first claim of an event becomes.
    pub fn memory_id(&self, owner: &str, source: &str, event_id: &str) -> MemoryId {
        self.codec
            .keys()
            .id_key()
            .memory(self.event(owner, source, event_id), 0)
    }

    pub fn turn(&self, said: &Said) -> Turn {
        let (owner, key) = self.owner(&said.owner);
        let ids = self.codec.keys().id_key();
        Turn {
            owner,
            event: ids.event(key, &said.source, &said.event_id, ""),
            source_tag: ids.source(key, &said.source),
            source: said.source.clone(),
            event_id: said.event_id.clone(),
            message: String::new(),
            conversation_id: Some(said.source.clone()),
            turn_id: None,
            message_id: None,
            role: said.role,
            speaker: None,
            at: said.at,
            zone_minutes: said.zone_minutes,
            text: said.text.clone(),
            context_tags: Vec::new(),
            injected: Vec::new(),
            structured: None,
        }
    }

    /// Where a claim of this turn comes from.
    pub fn source_of(turn: &Turn) -> Source {
        Source {
            event: turn.event,
            source_tag: turn.source_tag,
            source: turn.source.clone(),
            event_id: turn.event_id.clone(),
            conversation_id: turn.conversation_id.clone(),
            turn_id: turn.turn_id.clone(),
            message_id: turn.message_id.clone(),
            role: turn.role,
            speaker: turn.speaker.clone(),
            at: turn.at,
            zone_minutes: turn.zone_minutes,
            extractor: "test".to_owned(),
            model: None,
            prompt_version: None,
        }
    }

    /// What an extractor that found these claims answers.
    pub fn found(turn: &Turn, claims: Vec<Claim>) -> CandidateSet {
        CandidateSet {
            owner: turn.owner.clone(),
            event: turn.event,
            source_tag: turn.source_tag,
            content: turn.content_hash(),
            at: turn.at,
            candidates: (0..)
                .zip(claims)
                .map(|(ordinal, claim)| Candidate {
                    ordinal,
                    claim,
                    stability: Permille::ONE,
                })
                .collect(),
            rejects: Vec::new(),
            extractor: "test".to_owned(),
            prompt_version: None,
            model_answer: None,
            failed: None,
            model_use: None,
        }
    }

    /// Writes a turn to `conversation`; gives what its header says, as the extractor reads it.
    pub async fn accept(&self, turn: &Turn) -> InputMeta {
        let key = self.codec.keys().id_key().owner(&turn.owner);
        let records = self
            .codec
            .seal_turns(std::slice::from_ref(turn), 1, None)
            .await;
        let position = self
            .append(Topic::Conversation, key, records.expect("calm keyring"))
            .await;
        let Opened::Turn { meta, .. } = self.open(position).await else {
            panic!("{position} is a turn");
        };
        meta
    }

    /// Writes what was found in a turn to `candidates`.
    pub async fn extracted(&self, meta: &InputMeta, set: CandidateSet) -> Position {
        let items = [(meta.clone(), Some(set))];
        let records = self
            .codec
            .seal_candidates(&items)
            .await
            .expect("calm keyring");
        self.append(Topic::Candidates, meta.owner, records).await
    }

    /// A turn with these claims in it.
    pub async fn say(&self, said: &Said, claims: impl FnOnce(&Turn) -> Vec<Claim>) -> Position {
        let turn = self.turn(said);
        let set = Self::found(&turn, claims(&turn));
        let meta = self.accept(&turn).await;
        self.extracted(&meta, set).await
    }

    pub async fn command(
        &self,
        owner: &str,
        source: &str,
        event_id: &str,
        command: Command,
    ) -> Position {
        let (name, key) = self.owner(owner);
        let ids = self.codec.keys().id_key();
        let record = CommandRecord {
            owner: name,
            event: ids.event(key, source, event_id, ""),
            source_tag: ids.source(key, source),
            source: source.to_owned(),
            event_id: event_id.to_owned(),
            actor: "test".to_owned(),
            at: self.clock.now(),
            zone_minutes: 0,
            command,
        };
        let records = self
            .codec
            .seal_commands(&[record])
            .await
            .expect("calm keyring");
        self.append(Topic::Commands, key, records).await
    }

    /// The owner agrees to everything.
    pub async fn grant(&self, owner: &str, event_id: &str) -> Position {
        self.command(
            owner,
            "consent",
            event_id,
            Command::Grant {
                consent: everything(),
            },
        )
        .await
    }

    pub async fn erase(&self, owner: &str, event_id: &str, target: Target) -> Position {
        let event = self.event(owner, "api", event_id);
        let erasure = self.codec.keys().id_key().erasure(event);
        let command = Command::Erase {
            erasure,
            target,
            reason: Text::new("asked"),
        };
        self.command(owner, "api", event_id, command).await
    }

    /// Appends to the calm log, whatever the weather of the stages.
    pub async fn append(&self, topic: Topic, key: OwnerKey, records: Vec<NewRecord>) -> Position {
        let partition = partition_of(key, self.calm.partitions());
        let appended = self
            .calm
            .append(topic, partition, records)
            .await
            .expect("calm log");
        appended.last().expect("one record").position
    }

    pub async fn open(&self, position: Position) -> Opened {
        let Position {
            topic,
            partition,
            offset,
        } = position;
        let records = self
            .calm
            .read_at(topic, partition, &[offset])
            .await
            .expect("calm log");
        let opened = self
            .codec
            .open(&records)
            .await
            .expect("calm keyring")
            .remove(0);
        opened.unwrap_or_else(|error| panic!("{position}: {error}"))
    }

    pub fn log(&self) -> Log {
        self.faulty.clone()
    }

    pub fn manager(&self, partition: u32) -> Consumer {
        self.manager_over(partition, self.log(), self.codec.clone())
    }

    /// A manager that sees the log and the keys through something of the test's.
    pub fn manager_over(&self, partition: u32, log: Log, codec: Codec) -> Consumer {
        let stage = ValidityManager {
            log: log.clone(),
            codec,
            rules: self.rules.clone(),
            snapshots: self.snapshots.clone() as Snaps,
        };
        Consumer::new(log, Arc::new(stage), partition, self.clock.clone())
    }

    pub fn indexer(&self, partition: u32) -> Consumer {
        self.indexer_of(partition, self.stores.projections())
    }

    pub fn indexer_of(&self, partition: u32, stores: Vec<Arc<dyn Projection>>) -> Consumer {
        let stage = Indexer {
            log: self.log(),
            codec: self.codec.clone(),
            embed: self.embed.clone(),
            stores,
            snapshots: self.snapshots.clone() as Snaps,
            copy: None,
            is_on_server: false,
        };
        Consumer::new(self.log(), Arc::new(stage), partition, self.clock.clone())
    }

    /// Fresh consumers in every partition, turned until nothing is left to do.
    ///
    /// # Panics
    /// When a stage fails or does not come to rest.
    pub async fn settle(&self) {
        for partition in 0..self.calm.partitions() {
            drain(&mut self.manager(partition))
                .await
                .expect("the manager settles");
            drain(&mut self.indexer(partition))
                .await
                .expect("the indexer settles");
        }
    }

    /// One owner's state, out of the log.
    pub async fn state(&self, owner: &str) -> OwnerState {
        self.state_known(owner, Known::Latest).await
    }

    pub async fn state_known(&self, owner: &str, known: Known) -> OwnerState {
        let key = self.owner(owner).1;
        replay_owner(&*self.calm, &self.codec, key, known)
            .await
            .expect("the log is readable")
            .0
    }

    pub async fn replay(&self) -> Vec<Replayed> {
        let mut all = Vec::new();
        for partition in 0..self.calm.partitions() {
            let replayed = replay(&*self.calm, &self.codec, partition, Known::Latest).await;
            all.push(replayed.expect("the log is readable"));
        }
        all
    }

    /// Every owner's state, out of the log.
    pub async fn states(&self) -> BTreeMap<OwnerKey, OwnerState> {
        self.replay()
            .await
            .into_iter()
            .flat_map(|replayed| replayed.states)
            .collect()
    }

    /// The balance, counted in both ways.
    ///
    /// # Panics
    /// When a ledger that begins now counts otherwise.
    pub async fn balance(&self) -> Balance {
        let balance = balance(&*self.calm, &self.codec).await;
        let balance = balance.expect("the log is readable");
        let reads = Reads {
            inputs: true,
            vectors: false,
        };
        let mut counts = Counts::default();
        for partition in 0..self.calm.partitions() {
            let mut ledger = Ledger::new(partition, reads);
            let advanced = ledger.advance(&*self.calm, &self.codec).await;
            advanced.expect("the log is readable");
            counts.add(&ledger.counts());
        }
        if let Some(what) = difference(&counts, &balance) {
            panic!("a ledger counts otherwise: {what}: {counts:?} {balance:?}");
        }
        balance
    }

    pub async fn diff(&self, stores: &[Arc<dyn Projection>]) -> Diff {
        let model = self.embed.identity();
        diff(&*self.calm, &self.codec, stores, model)
            .await
            .expect("everything is readable")
    }

    /// Verifies the whole log and decides everything again.
    pub async fn verify(&self) -> Verified {
        let ids = self.codec.keys().id_key().clone();
        let rules = self.rules.clone();
        let redecide: Redecide =
            Arc::new(move |state, input, now| decide(state, input, now, &ids, &rules));
        verify(&*self.calm, &self.codec, None, Some(redecide))
            .await
            .expect("the log is readable")
    }
}

/// Consent to every kind, from the beginning of time.
pub fn everything() -> Consent {
    Consent {
        purposes: vec!["care".to_owned()],
        kinds: None,
        max_sensitivity: 4,
        valid_from: Timestamp::default(),
        valid_to: None,
    }
}

/// Turns a consumer until its inputs are at their tails, beginning again after what may pass.
///
/// # Errors
/// What beginning again cannot help, and the last error when it does not come to rest.
pub async fn drain(consumer: &mut Consumer) -> Result<(), StageError> {
    let mut last = None;
    for _ in 0..TURNS_MAX {
        match consumer.turn().await {
            Ok(Progress::Idle) => return Ok(()),
            Ok(Progress::Began | Progress::Advanced(_)) => (),
            Err(error) if error.is_retryable() => last = Some(error),
            Err(error) => return Err(error),
        }
    }
    let what = "the stage does not come to rest".to_owned();
    Err(last.unwrap_or(StageError::Broken { what }))
}

/// What is believed, one line per memory, in words: `peanut allergy active [20001, …)`. For assertions
/// that a person can read.
pub fn believed(state: &OwnerState) -> Vec<String> {
    let mut lines: Vec<String> = state
        .claims
        .values()
        .filter(|entry| entry.standing.confirms.is_none())
        .map(|entry| {
            let standing = &entry.standing;
            let days = |at: Timestamp| (at.millis() - START.millis()) / DAY_MS;
            let to = standing
                .valid_to
                .map_or("…".to_owned(), |to| days(to).to_string());
            let subject = &entry.claim.subject;
            let who = if *subject == Subject::Self_ {
                String::new()
            } else {
                format!("{subject}: ")
            };
            let words = entry.claim.text.expose();
            format!(
                "{who}{words} {}[{},{to})",
                standing.status,
                days(standing.valid_from)
            )
        })
        .collect();
    lines.sort();
    lines
}

/// What a ledger and the balance do not agree about.
pub fn difference(counts: &Counts, balance: &Balance) -> Option<&'static str> {
    let decided: u64 = balance.decided.values().sum();
    [
        ("accepted", counts.accepted, balance.accepted),
        ("decided", counts.decided + counts.quarantined, decided),
        ("in flight", counts.in_flight, balance.in_flight),
        ("parked", counts.parked, balance.parked),
        ("lost", counts.lost, balance.lost),
        (
            "answered twice",
            counts.answered_twice,
            balance.answered_twice,
        ),
        ("foreign", counts.foreign, balance.foreign),
    ]
    .into_iter()
    .find(|(_, one, other)| one != other)
    .map(|(what, ..)| what)
}
