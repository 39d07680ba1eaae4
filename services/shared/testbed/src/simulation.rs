//! One seed: a workload, played once in calm weather and once in a storm, and everything that must hold
//! afterwards.
//!
//! The storm moves the consumers that production runs: short reads, refusals, answers lost after a
//! durable append, repeated appends, crashes, machines that stop and lose what was not synced, managers
//! that were replaced and do not know it, two of them at once, lost snapshots, a clock that jumps.

mod checks;
mod storm;

use std::collections::BTreeMap;
use std::fmt::Write as _;

use anamnesis_domain::ids::{Hash, OwnerKey};
use anamnesis_domain::input::Position;

use self::storm::Sim;
use crate::naive;
use crate::play::Extraction;
use crate::workload::{Scope, Workload};
use crate::world::World;

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
    /// The first answer to each turn and command.
    pub outcomes: BTreeMap<Position, String>,
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
    // The real extractor reads every second of the full stories.
    let extraction = if seed & 4 == 0 {
        Extraction::Given
    } else {
        Extraction::Real
    };
    match seed % 4 {
        0 => in_order(seed, Scope::Plain, Extraction::Given).await,
        1 => in_order(seed, Scope::Full, extraction).await,
        _ => in_haste(seed, extraction).await,
    }
}

/// Round by round: the storm must end in what the calm run ends in, and answer every input the same.
async fn in_order(seed: u64, scope: Scope, extraction: Extraction) -> Result<Faults, Failure> {
    let during = |phase| {
        move |what| Failure {
            seed,
            what: format!("{phase}: {what}"),
        }
    };
    let workload = Workload::new(seed, scope);
    let calm = Sim::new(seed, false, extraction)
        .play(&workload, true)
        .await;
    let calm = calm.map_err(during("in calm"))?.0;
    if scope == Scope::Plain {
        check_naive(seed, &workload, &calm).map_err(during("in calm"))?;
    }
    let storm = Sim::new(seed, true, extraction).play(&workload, true).await;
    let storm = storm.map_err(during("in the storm"))?.0;
    compare(&calm, &storm).map_err(during("in the storm"))?;
    Ok(storm.faults)
}

/// One owner's inputs from both topics at once: no calm run to compare with, all else holds.
async fn in_haste(seed: u64, extraction: Extraction) -> Result<Faults, Failure> {
    let workload = Workload::new(seed, Scope::Full);
    let ran = Sim::new(seed, true, extraction)
        .play(&workload, false)
        .await;
    let (ran, _) = ran.map_err(|what| Failure {
        seed,
        what: format!("in haste: {what}"),
    })?;
    Ok(ran.faults)
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
            return Err(format!(
                "{position} was answered {outcome} in calm and {other:?} in storm"
            ));
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
    let fail = |what| Failure { seed, what };
    let ran = Sim::new(seed, true, Extraction::Given)
        .play(&workload, true)
        .await;
    let (_, sim) = ran.map_err(fail)?;
    sim.told().await.map_err(fail)
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
