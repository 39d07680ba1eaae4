//! Is the log what its writers wrote? Chain, causes and re-decision; names the first bad record.

use std::collections::BTreeMap;
use std::sync::Arc;

use anamnesis_domain::evolve::evolve;
use anamnesis_domain::ids::OwnerKey;
use anamnesis_domain::input::{Input, Position, Topic};
use anamnesis_domain::invariants;
use anamnesis_domain::skeleton::Verdict;
use anamnesis_domain::state::OwnerState;
use anamnesis_domain::time::{Known, Timestamp};
use anamnesis_domain::transition::{Decision, PartBody, Transition};
use anamnesis_pipeline::codec::{Codec, Opened, OpenedDecided};
use anamnesis_pipeline::consumer::{BATCH_BYTES_MAX, StageError};
use anamnesis_pipeline::fold::{self, Folded};
use anamnesis_pipeline::log::{EventLog, LogError, partition_of};
use serde::Serialize;

use crate::replay::read_partition;

/// Corrupt inputs that are named one by one; a file that was cut would name all of them.
const BAD_MAX: usize = 1_000;

/// Decides again what was decided; handed in, because audit does not know how decisions are made.
pub type Redecide = Arc<dyn Fn(&OwnerState, &Input, Timestamp) -> Decision + Send + Sync>;

/// The first thing that is wrong, and how much was found right before it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Verified {
    pub records: u64,
    pub decisions: u64,
    /// Decisions that were decided again and came out the same.
    pub redecided: u64,
    /// Decisions of replaced writers and repeats, which every fold drops.
    pub dropped: u64,
    /// Parts that cannot be read because their key is destroyed.
    pub unreadable_parts: u64,
    pub bad: Vec<Bad>,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Bad {
    pub position: Position,
    /// `corrupt` (altered or missing in the log's file), `undecodable`, `sequence`, `hash`, `tampered`, `foreign_key`, `no_cause`, `redecided_otherwise`,
    /// or the name of an invariant.
    pub what: String,
}

impl Verified {
    pub fn is_good(&self) -> bool {
        self.bad.is_empty()
    }
}

/// Verifies every partition, or the partition of one owner with only that owner's decisions counted.
///
/// # Errors
/// When the log or the keyring cannot be read.
pub async fn verify(
    log: &dyn EventLog,
    codec: &Codec,
    only: Option<OwnerKey>,
    redecide: Option<Redecide>,
) -> Result<Verified, StageError> {
    let mut total = Verified {
        records: 0,
        decisions: 0,
        redecided: 0,
        dropped: 0,
        unreadable_parts: 0,
        bad: Vec::new(),
    };
    for partition in 0..log.partitions() {
        if only.is_some_and(|owner| partition_of(owner, log.partitions()) != partition) {
            continue;
        }
        verify_partition(log, codec, partition, only, redecide.as_ref(), &mut total).await?;
    }
    total.bad.sort_by_key(|bad| bad.position);
    Ok(total)
}

async fn verify_partition(
    log: &dyn EventLog,
    codec: &Codec,
    partition: u32,
    only: Option<OwnerKey>,
    redecide: Option<&Redecide>,
    total: &mut Verified,
) -> Result<(), StageError> {
    let mut applied: Vec<OpenedDecided> = Vec::new();
    let mut bad: Vec<Bad> = Vec::new();
    let mut broken: BTreeMap<OwnerKey, u64> = BTreeMap::new();
    let (mut records, mut dropped) = (0, 0);
    read_partition(log, codec, partition, Known::Latest, &mut |step| {
        records += 1;
        let position = step.record.position;
        let mut wrong = |what: &str| {
            bad.push(Bad {
                position,
                what: what.to_owned(),
            })
        };
        match &step.folded {
            Folded::Undecodable(_) => wrong("undecodable"),
            Folded::Decision(owner, _) if *owner != step.record.key => wrong("foreign_key"),
            // Records after a break are its consequence: the first one is named.
            Folded::Decision(owner, Verdict::Broken(why)) => {
                if broken.insert(*owner, why.offset).is_none() {
                    wrong(&why.what);
                }
            }
            Folded::Decision(_, Verdict::Fenced | Verdict::Repeat) => dropped += 1,
            Folded::Decision(owner, Verdict::Apply) => match step.decided {
                Some(decided) if only.is_none_or(|only| only == *owner) => {
                    applied.push(decided.clone());
                }
                Some(_) => (),
                None => wrong("tampered"),
            },
            Folded::Other => (),
        }
    })
    .await?;
    check_inputs(log, partition, &mut bad).await?;
    total.records += records;
    total.dropped += dropped;
    total.bad.append(&mut bad);
    follow(log, codec, partition, &applied, redecide, total).await
}

/// Whether what was said and ordered is there, record by record, as it was written. A decision that was
/// made long ago does not need its input again, so nobody else would notice.
async fn check_inputs(
    log: &dyn EventLog,
    partition: u32,
    bad: &mut Vec<Bad>,
) -> Result<(), StageError> {
    for topic in [Topic::Conversation, Topic::Commands, Topic::Candidates] {
        let end = log.end(topic, partition).await?;
        let mut from = log.start(topic, partition).await?;
        while from < end && bad.len() < BAD_MAX {
            match log.read(topic, partition, from, 500, BATCH_BYTES_MAX).await {
                Ok(records) => {
                    let Some(last) = records.last() else { break };
                    from = last.position.offset + 1;
                }
                Err(LogError::Corrupt { position }) => {
                    bad.push(Bad {
                        position,
                        what: "corrupt".to_owned(),
                    });
                    from = position.offset + 1;
                }
                Err(error) => return Err(error.into()),
            }
        }
    }
    Ok(())
}

/// Follows the applied decisions: each has its cause, keeps the invariants, and is decided the same
/// again.
async fn follow(
    log: &dyn EventLog,
    codec: &Codec,
    partition: u32,
    applied: &[OpenedDecided],
    redecide: Option<&Redecide>,
    total: &mut Verified,
) -> Result<(), StageError> {
    let mut states: BTreeMap<OwnerKey, OwnerState> = BTreeMap::new();
    for chunk in applied.chunks(500) {
        let inputs = causes(log, codec, partition, chunk).await?;
        for opened in chunk {
            let decided = &opened.decided;
            total.decisions += 1;
            let state = states
                .entry(decided.owner)
                .or_insert_with(|| OwnerState::new(decided.owner));
            let unreadable = decided
                .parts
                .iter()
                .filter(|part| part.body == PartBody::Unreadable)
                .count() as u64;
            total.unreadable_parts += unreadable;
            match inputs.get(&decided.cause.position) {
                None => total.bad.push(Bad {
                    position: opened.position,
                    what: "no_cause".to_owned(),
                }),
                // A state that lost something to an erasure cannot be decided upon again.
                Some(Some(input)) if unreadable == 0 && state.erased.is_empty() => {
                    if let Some(redecide) = redecide {
                        let again = redecide(state, input, decided.decided_at);
                        if is_same(&again, opened) {
                            total.redecided += 1;
                        } else {
                            total.bad.push(Bad {
                                position: opened.position,
                                what: "redecided_otherwise".to_owned(),
                            });
                        }
                    }
                }
                Some(_) => (),
            }
            evolve(state, decided, fold::recorded(opened));
        }
    }
    for (owner, state) in &states {
        if let Err(violation) = invariants::check(state) {
            let last = applied
                .iter()
                .rev()
                .find(|opened| opened.decided.owner == *owner);
            if let Some(last) = last {
                total.bad.push(Bad {
                    position: last.position,
                    what: violation.name.to_owned(),
                });
            }
        }
    }
    Ok(())
}

/// The inputs that decisions name, opened: `Some(None)` where the record is there and unreadable.
async fn causes(
    log: &dyn EventLog,
    codec: &Codec,
    partition: u32,
    decisions: &[OpenedDecided],
) -> Result<BTreeMap<Position, Option<Input>>, StageError> {
    let mut found = BTreeMap::new();
    for topic in [Topic::Candidates, Topic::Commands] {
        let end = log.end(topic, partition).await?;
        let mut offsets: Vec<u64> = decisions
            .iter()
            .map(|opened| opened.decided.cause.position)
            .filter(|position| position.topic == topic && position.offset < end)
            .map(|position| position.offset)
            .collect();
        offsets.sort_unstable();
        offsets.dedup();
        let records = log.read_at(topic, partition, &offsets).await?;
        let opened = codec.open(&records).await?;
        for (record, opened) in records.iter().zip(opened) {
            let input = match opened {
                Ok(Opened::Candidates { set, .. }) => Some(Input::Candidates(set)),
                Ok(Opened::Command { command, .. }) => Some(Input::Command(command)),
                Ok(_) | Err(_) => None,
            };
            found.insert(record.position, input);
        }
    }
    Ok(found)
}

fn is_same(again: &Decision, opened: &OpenedDecided) -> bool {
    let recorded: Vec<&Transition> = opened
        .decided
        .parts
        .iter()
        .filter_map(|part| match &part.body {
            PartBody::Open(transition) => Some(&**transition),
            PartBody::Unreadable => None,
        })
        .collect();
    // A decision on a record that had been erased by then cannot be told from its input.
    let was_erased = opened.decided.source_key.is_none();
    was_erased
        || (again.outcome == opened.decided.outcome
            && again.transitions.iter().collect::<Vec<_>>() == recorded)
}
