//! One seed: a workload, played once in calm weather and once in a storm, and everything that must hold
//! afterwards.
//!
//! The storm moves the consumers that production runs: short reads, refusals, answers lost after a
//! durable append, repeated appends, crashes, machines that stop and lose what was not synced, managers
//! that were replaced and do not know it, two of them at once, lost snapshots, a clock that jumps.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;

use anamnesis_audit::replay::{Step, read_partition};
use anamnesis_domain::digest;
use anamnesis_domain::ids::{Hash, OwnerKey};
use anamnesis_domain::input::Position;
use anamnesis_domain::invariants;
use anamnesis_domain::skeleton::Verdict;
use anamnesis_domain::time::{DAY_MS, Known};
use anamnesis_domain::transition::PartBody;
use anamnesis_indexer::stage::Indexer;
use anamnesis_pipeline::codec::{Codec, Opened};
use anamnesis_pipeline::consumer::{Consumer, Stage, StageError};
use anamnesis_pipeline::doubles::graph::MemoryGraph;
use anamnesis_pipeline::doubles::log::{Dice, Weather};
use anamnesis_pipeline::doubles::records::MemoryRecords;
use anamnesis_pipeline::doubles::text::MemoryText;
use anamnesis_pipeline::doubles::vectors::MemoryVectors;
use anamnesis_pipeline::fold::Folded;
use anamnesis_pipeline::log::{EventLog as _, Log};
use anamnesis_pipeline::stores::Projection;
use anamnesis_validity_manager::stage::ValidityManager;

use crate::faults::{
    FaultyEmbedder, FaultyKeyring, LostSnapshots, Luck, TornLog, UnsyncedStore,
};
use crate::naive;
use crate::play::play;
use crate::workload::{Scope, Workload};
use crate::world::{START, World, believed, drain};

/// What does not hold, with the seed that shows it.
#[derive(Debug, thiserror::Error)]
#[error("seed {seed}: {what}")]
pub struct Failure {
    pub seed: u64,
    pub what: String,
}

/// What a run left behind.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Ran {
    /// What every owner is believed to have said.
    pub content: BTreeMap<OwnerKey, Hash>,
    pub believed: BTreeMap<OwnerKey, Vec<String>>,
    /// The answer to each input.
    pub outcomes: BTreeMap<Position, String>,
    /// The log in words, without what is drawn at random (nonces, keys' ids) and hashed from it.
    pub log: Vec<String>,
    pub faults: Faults,
}

/// How much went wrong: a storm that does nothing tests nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Faults {
    pub turns: u64,
    pub failed_turns: u64,
    pub crashes: u64,
    pub stops: u64,
    pub takeovers: u64,
    pub losses: u64,
    pub fenced: u64,
    pub repeats: u64,
}

impl Faults {
    pub fn add(&mut self, other: Self) {
        self.turns += other.turns;
        self.failed_turns += other.failed_turns;
        self.crashes += other.crashes;
        self.stops += other.stops;
        self.takeovers += other.takeovers;
        self.losses += other.losses;
        self.fenced += other.fenced;
        self.repeats += other.repeats;
    }
}

/// Runs one seed and checks everything.
///
/// # Errors
/// The first thing that does not hold.
pub async fn run(seed: u64) -> Result<Faults, Failure> {
    match seed % 4 {
        0 => in_order(seed, Scope::Plain).await,
        1 => in_order(seed, Scope::Full).await,
        _ => in_haste(seed).await,
    }
}

/// Round by round: the storm must end in what the calm run ends in, and answer every input the same.
async fn in_order(seed: u64, scope: Scope) -> Result<Faults, Failure> {
    let during = |phase| move |what| Failure { seed, what: format!("{phase}: {what}") };
    let workload = Workload::new(seed, scope);
    let calm = Sim::new(seed, false).play(&workload, true).await.map_err(during("in calm"))?;
    if scope == Scope::Plain {
        check_naive(seed, &workload, &calm).map_err(during("in calm"))?;
    }
    let storm = Sim::new(seed, true).play(&workload, true).await.map_err(during("in the storm"))?;
    compare(&calm, &storm).map_err(during("in the storm"))?;
    Ok(storm.faults)
}

/// One owner's inputs from both topics at once: no calm run to compare with, all else holds.
async fn in_haste(seed: u64) -> Result<Faults, Failure> {
    let workload = Workload::new(seed, Scope::Full);
    let ran = Sim::new(seed, true).play(&workload, false).await;
    Ok(ran.map_err(|what| Failure { seed, what: format!("in haste: {what}") })?.faults)
}

fn compare(calm: &Ran, storm: &Ran) -> Result<(), String> {
    for (owner, content) in &calm.content {
        if storm.content.get(owner) != Some(content) {
            return Err(format!(
                "the storm ends in other beliefs\ncalm: {:#?}\nstorm: {:#?}",
                calm.believed.get(owner),
                storm.believed.get(owner),
            ));
        }
    }
    for (position, outcome) in &calm.outcomes {
        let other = storm.outcomes.get(position);
        if other != Some(outcome) {
            return Err(format!("{position} was answered {outcome} in calm and {other:?} in storm"));
        }
    }
    Ok(())
}

/// The log of one run in the storm, in words.
///
/// # Errors
/// As [`run`].
pub async fn log_of(seed: u64) -> Result<Vec<String>, Failure> {
    let workload = Workload::new(seed, Scope::Full);
    let ran = Sim::new(seed, true).play(&workload, true).await;
    Ok(ran.map_err(|what| Failure { seed, what })?.log)
}

fn check_naive(seed: u64, workload: &Workload, calm: &Ran) -> Result<(), String> {
    let world = World::new(seed, 1);
    for owner in workload.owners() {
        let (_, key) = world.owner(&owner);
        let ids = world.codec.keys().id_key();
        let id = |source: &str, event: &str, ordinal: u32| {
            ids.memory(ids.event(key, source, event, ""), ordinal)
        };
        let acts = workload
            .acts()
            .filter(|(who, _)| *who == owner)
            .map(|(_, act)| act);
        let expected: Vec<String> = naive::beliefs(acts, &id)
            .iter()
            .map(|belief| format!("{belief:?}"))
            .collect();
        let found = calm.log_beliefs(key);
        if expected != found {
            let mut what = String::from("the naive interpreter believes otherwise");
            for line in expected.iter().filter(|line| !found.contains(line)) {
                let _ = write!(what, "\n  expected {line}");
            }
            for line in found.iter().filter(|line| !expected.contains(line)) {
                let _ = write!(what, "\n  found    {line}");
            }
            return Err(what);
        }
    }
    Ok(())
}

impl Ran {
    fn log_beliefs(&self, owner: OwnerKey) -> Vec<String> {
        self.believed.get(&owner).cloned().unwrap_or_default()
    }
}

/// A consumer and what it was made to be.
struct Seat {
    consumer: Consumer,
    partition: u32,
    /// Replaced by another one, and not aware of it.
    is_zombie: bool,
    is_manager: bool,
}

/// Everything of one run.
struct Sim {
    world: World,
    /// As the stages see it: torn, and behind that in bad weather.
    log: Log,
    dice: Dice,
    luck: Arc<Luck>,
    manager: Arc<dyn Stage>,
    indexers: Vec<Arc<dyn Stage>>,
    stores: Vec<Arc<UnsyncedStore>>,
    snapshots: Arc<LostSnapshots>,
    seats: Vec<Seat>,
    is_storm: bool,
    faults: Faults,
}

/// Turns of the storm for each round; then it must come to rest.
const STORM_TURNS: u64 = 40;
/// Zombies at once.
const ZOMBIES_MAX: usize = 3;

impl Sim {
    fn new(seed: u64, is_storm: bool) -> Self {
        let mut dice = Dice::new(seed);
        // The keyring's seed is the run's, so that ids are the same in calm and in storm.
        let world = World::new(seed, 1 + (seed % 3) as u32);
        let luck = Luck::new(dice.roll());
        let partitions = world.calm.partitions();
        let log_id = anamnesis_domain::ids::LogId::from_bytes([7; 16]);
        let model = world.embed.identity().clone();
        let stores = vec![
            UnsyncedStore::new(luck.clone(), move || {
                Arc::new(MemoryRecords::new(log_id, partitions))
            }),
            UnsyncedStore::new(luck.clone(), move || {
                Arc::new(MemoryText::new(log_id, partitions))
            }),
            UnsyncedStore::new(luck.clone(), move || {
                Arc::new(MemoryVectors::new(log_id, partitions, model.clone()))
            }),
            UnsyncedStore::new(luck.clone(), move || {
                Arc::new(MemoryGraph::new(log_id, partitions))
            }),
        ];
        let snapshots = Arc::new(LostSnapshots::default());
        let keys = FaultyKeyring {
            inner: world.keyring.clone(),
            luck: luck.clone(),
        };
        let codec = Codec::new(Arc::new(keys));
        let log: Log = Arc::new(TornLog { inner: world.log(), luck: luck.clone() });
        let manager = Arc::new(ValidityManager {
            log: log.clone(),
            codec: codec.clone(),
            rules: world.rules.clone(),
            snapshots: snapshots.clone(),
        });
        let indexer = |stores: &[Arc<UnsyncedStore>]| -> Arc<dyn Stage> {
            Arc::new(Indexer {
                log: log.clone(),
                codec: codec.clone(),
                embed: Arc::new(FaultyEmbedder {
                    inner: world.embed.clone(),
                    luck: luck.clone(),
                }),
                stores: stores
                    .iter()
                    .map(|store| store.clone() as Arc<dyn Projection>)
                    .collect(),
                snapshots: snapshots.clone(),
            })
        };
        // All stores in one stage, or two stages that lag on their own.
        let indexers = if dice.strikes(500) {
            vec![indexer(&stores)]
        } else {
            vec![indexer(&stores[..2]), indexer(&stores[2..])]
        };
        let mut sim = Self {
            world,
            log,
            dice,
            luck,
            manager,
            indexers,
            stores,
            snapshots,
            seats: Vec::new(),
            is_storm,
            faults: Faults::default(),
        };
        for partition in 0..partitions {
            sim.seat_manager(partition);
            sim.seat_indexers(partition);
        }
        sim
    }

    fn consumer(&mut self, stage: Arc<dyn Stage>, partition: u32) -> Consumer {
        let batch = if self.is_storm {
            1 + self.dice.below(6) as usize
        } else {
            500
        };
        Consumer::new(self.log.clone(), stage, partition, self.world.clock.clone())
            .with_batch(batch)
    }

    fn seat_manager(&mut self, partition: u32) {
        let consumer = self.consumer(self.manager.clone(), partition);
        self.seats.push(Seat {
            consumer,
            partition,
            is_zombie: false,
            is_manager: true,
        });
    }

    fn seat_indexers(&mut self, partition: u32) {
        for stage in self.indexers.clone() {
            let consumer = self.consumer(stage, partition);
            self.seats.push(Seat {
                consumer,
                partition,
                is_zombie: false,
                is_manager: false,
            });
        }
    }

    async fn play(mut self, workload: &Workload, in_order: bool) -> Result<Ran, String> {
        for round in &workload.rounds {
            for (owner, act) in round {
                self.world.clock.advance_millis(1_000);
                play(&self.world, owner, act).await;
                if !in_order && self.is_storm {
                    self.storm(6).await?;
                }
            }
            if self.is_storm {
                self.storm(STORM_TURNS).await?;
            }
            if in_order {
                self.rest().await?;
            }
        }
        self.rest().await?;
        self.check().await?;
        let before = self.exact().await;
        self.wake_zombies().await?;
        self.rest().await?;
        if self.exact().await != before {
            return Err("a replaced manager changed something".to_owned());
        }
        self.check_balance().await?;
        self.report().await
    }

    async fn storm(&mut self, turns: u64) -> Result<(), String> {
        self.world.faulty.set_weather(Weather::STORM);
        self.luck.set_per_mille(30);
        for _ in 0..turns {
            let at = self.dice.below(self.seats.len() as u64) as usize;
            match self.dice.below(100) {
                0..=79 => self.turn(at).await?,
                80..=87 => {
                    self.faults.crashes += 1;
                    self.seats[at].consumer.drop_state();
                }
                88..=90 => self.stop_machine().await?,
                91..=94 => self.replace(at),
                95..=96 => {
                    let days = self.dice.below(5) as i64 - 2;
                    self.world.clock.advance_millis(days * DAY_MS);
                }
                97 => self.snapshots.lose(),
                _ => self.set_back(at).await?,
            }
        }
        Ok(())
    }

    async fn turn(&mut self, at: usize) -> Result<(), String> {
        self.faults.turns += 1;
        match self.seats[at].consumer.turn().await {
            Ok(_) => Ok(()),
            Err(error) if error.is_retryable() => {
                self.faults.failed_turns += 1;
                Ok(())
            }
            Err(error) => Err(format!("a stage stopped: {}", chain(&error))),
        }
    }

    /// Everything stops at once: what was appended and never seen may be gone, and so may be the last
    /// steps of the stores.
    async fn stop_machine(&mut self) -> Result<(), String> {
        self.faults.stops += 1;
        self.seats.retain(|seat| !seat.is_zombie);
        for seat in &mut self.seats {
            seat.consumer.drop_state();
        }
        self.world.faulty.crash();
        for store in self.stores.clone() {
            self.lose_steps(&store).await?;
        }
        Ok(())
    }

    async fn lose_steps(&mut self, store: &UnsyncedStore) -> Result<(), String> {
        let steps = self.dice.below(4) as usize;
        self.faults.losses += steps as u64;
        store
            .lose(steps)
            .await
            .map_err(|error| format!("a store cannot be set back: {error}"))
    }

    /// One store loses its last steps; whoever feeds it begins again.
    async fn set_back(&mut self, at: usize) -> Result<(), String> {
        let which = at % self.stores.len();
        let store = self.stores[which].clone();
        for seat in self.seats.iter_mut().filter(|seat| !seat.is_manager) {
            seat.consumer.drop_state();
        }
        self.lose_steps(&store).await
    }

    /// A second one of the same kind begins in the same partition. The first lives on.
    fn replace(&mut self, at: usize) {
        self.faults.takeovers += 1;
        let partition = self.seats[at].partition;
        let is_manager = self.seats[at].is_manager;
        for seat in &mut self.seats {
            if seat.partition == partition && seat.is_manager == is_manager {
                seat.is_zombie = true;
            }
        }
        if is_manager {
            self.seat_manager(partition);
        } else {
            self.seat_indexers(partition);
        }
        let mut excess = self.seats.iter().filter(|seat| seat.is_zombie).count();
        self.seats.retain(|seat| {
            let is_kept = !seat.is_zombie || excess <= ZOMBIES_MAX;
            if !is_kept {
                excess -= 1;
            }
            is_kept
        });
    }

    /// The weather clears, and everything that is not a zombie comes to rest.
    async fn rest(&mut self) -> Result<(), String> {
        self.world.faulty.set_weather(Weather::CALM);
        self.luck.set_per_mille(0);
        for is_manager in [true, false] {
            for seat in &mut self.seats {
                if seat.is_zombie || seat.is_manager != is_manager {
                    continue;
                }
                drain(&mut seat.consumer)
                    .await
                    .map_err(|error| format!("does not come to rest: {}", chain(&error)))?;
            }
        }
        Ok(())
    }

    async fn wake_zombies(&mut self) -> Result<(), String> {
        for at in 0..self.seats.len() {
            if self.seats[at].is_zombie {
                self.turn(at).await?;
                self.turn(at).await?;
            }
        }
        // Awake and up to date, they are ordinary members; two of them must not both lead.
        self.seats.retain(|seat| !seat.is_zombie);
        Ok(())
    }

    async fn exact(&self) -> BTreeMap<OwnerKey, Hash> {
        let states = self.world.states().await;
        states
            .iter()
            .map(|(key, state)| (*key, digest::exact(state)))
            .collect()
    }

    async fn check(&mut self) -> Result<(), String> {
        for replayed in self.world.replay().await {
            for (owner, state) in &replayed.states {
                invariants::check(state)
                    .map_err(|violation| format!("{owner}: {violation}\n{:#?}", believed(state)))?;
            }
            if let Some((owner, broken)) = replayed.skeleton.broken_owners().next() {
                return Err(format!("{owner} is broken: {broken:?}"));
            }
        }
        self.check_balance().await?;
        let stores: Vec<Arc<dyn Projection>> =
            self.stores.iter().map(|store| store.clone() as Arc<dyn Projection>).collect();
        let diff = self.world.diff(&stores).await;
        if !diff.is_clean() {
            return Err(format!("the stores are not the fold: {diff:?}"));
        }
        let verified = self.world.verify().await;
        if !verified.is_good() {
            return Err(format!("the log does not verify: {:?}", verified.bad));
        }
        Ok(())
    }

    async fn check_balance(&self) -> Result<(), String> {
        let mut balance = self.world.balance().await;
        // A turn that was extracted twice and erased in between is answered a second time, by
        // `rejected(erased)`; the balance counts that as a fault.
        balance.answered_twice -= balance.answered_twice.min(self.extracted_twice().await);
        if !balance.is_exact() || balance.in_flight + balance.parked > 0 {
            return Err(format!("the balance is not exact: {balance:?}"));
        }
        Ok(())
    }

    /// Decisions that refuse, as erased, a turn that another candidates record had brought before.
    async fn extracted_twice(&self) -> u64 {
        let mut seen = BTreeMap::new();
        let mut count = 0;
        for partition in 0..self.world.calm.partitions() {
            let see = &mut |step: &Step<'_>| {
                if let (Folded::Decision(_, Verdict::Apply), Some(opened)) =
                    (&step.folded, step.decided)
                {
                    let cause = opened.decided.cause;
                    let first = *seen.entry(cause.origin).or_insert(cause.position);
                    let is_refused = opened.decided.outcome.code() == "rejected(erased)";
                    count += u64::from(first != cause.position && is_refused);
                }
            };
            let codec = &self.world.codec;
            let read =
                read_partition(&*self.world.calm, codec, partition, Known::Latest, see).await;
            read.expect("the log is readable");
        }
        count
    }

    async fn report(mut self) -> Result<Ran, String> {
        let mut ran = Ran::default();
        for replayed in self.world.replay().await {
            self.faults.fenced += replayed.skeleton.fenced;
            self.faults.repeats += replayed.skeleton.repeats;
            for (owner, state) in &replayed.states {
                ran.content.insert(*owner, digest::content(state));
                let beliefs = naive::read(state);
                let told = beliefs.iter().map(|belief| format!("{belief:?}")).collect();
                ran.believed.insert(*owner, told);
                debug_assert_eq!(beliefs.len(), believed(state).len());
            }
        }
        ran.faults = self.faults;
        for record in self.world.calm.dump() {
            let opened = self.world.codec.open(std::slice::from_ref(&record)).await;
            let opened = opened.map_err(|error| error.to_string())?.remove(0);
            let at = record.appended_at.millis() - START.millis();
            let told = match opened {
                Ok(Opened::Decided(opened)) => {
                    let decided = &opened.decided;
                    ran.outcomes
                        .entry(decided.cause.position)
                        .or_insert(decided.outcome.code());
                    let parts: Vec<String> = decided
                        .parts
                        .iter()
                        .map(|part| match &part.body {
                            PartBody::Open(body) => serde_json::to_string(body).unwrap_or_default(),
                            PartBody::Unreadable => format!("unreadable {}", part.code),
                        })
                        .collect();
                    format!(
                        "decided {} {} by {} on {} at {}: {} {parts:?} {:?}",
                        decided.owner,
                        decided.owner_seq,
                        decided.writer_epoch,
                        decided.cause.position,
                        decided.decided_at,
                        decided.outcome.code(),
                        decided.detail,
                    )
                }
                Ok(Opened::WriterStarted { at, .. }) => format!("writer started at {at}"),
                Ok(Opened::Turn { meta, .. }) => format!("turn {} {}", meta.event, meta.key_epoch),
                Ok(Opened::Candidates { meta, set }) => {
                    format!("candidates {} {}", meta.origin, set.candidates.len())
                }
                Ok(Opened::Command { meta, command }) => {
                    format!("{} {:?}", meta.event, command.command)
                }
                Ok(Opened::Erased { meta }) => format!("erased {} {}", meta.event, meta.code),
                Ok(Opened::Embedding {
                    memory_id, vector, ..
                }) => {
                    format!("vector of {memory_id}: {}", vector.is_some())
                }
                Ok(other) => format!("{other:?}"),
                Err(error) => format!("{error}"),
            };
            ran.log.push(format!("{} {at}: {told}", record.position));
        }
        Ok(ran)
    }
}

/// An error with its causes.
fn chain(error: &StageError) -> String {
    let mut told = error.to_string();
    let mut source = std::error::Error::source(error);
    while let Some(cause) = source {
        let _ = write!(told, ": {cause}");
        source = cause.source();
    }
    told
}
