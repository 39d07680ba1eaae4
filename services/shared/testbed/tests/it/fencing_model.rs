//! Is every input decided effectively once, in every order in which two writers can get in each other's
//! way? Not sampled: every interleaving of a small system, with the fold that production uses.
//!
//! Two writers decide three inputs of one owner. An append may be answered, answered without the answer
//! arriving, arrive late (after anything else), arrive in part, or arrive twice. A writer that was
//! replaced goes on as if nothing had happened.

use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use anamnesis_domain::ids::{Hash, OwnerKey};
use anamnesis_domain::input::{Position, Topic};
use anamnesis_domain::skeleton::{ChainLink, Skeleton, Verdict};

const OWNER: OwnerKey = OwnerKey::from_bytes([1; 16]);
const INPUTS: u64 = 3;

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Rec {
    Started,
    /// `salt` stands for nonces and clock: two writers never seal the same bytes.
    Decided {
        epoch: u64,
        seq: u64,
        prev: u64,
        input: u64,
        salt: usize,
    },
}

impl Rec {
    /// Never 0, which is what the first record of a chain points to.
    fn name(self) -> u64 {
        let mut hasher = DefaultHasher::new();
        self.hash(&mut hasher);
        hasher.finish() | 1
    }

    /// Folds the record at `offset`; `None` for one that is no decision.
    fn fold(self, offset: u64, skeleton: &mut Skeleton) -> Option<Verdict> {
        match self {
            Self::Started => {
                skeleton.writer_started(offset);
                None
            }
            Self::Decided {
                epoch,
                seq,
                prev,
                input,
                salt: _,
            } => {
                let link = ChainLink {
                    owner: OWNER,
                    owner_seq: seq,
                    prev_hash: as_hash(prev),
                    writer_epoch: epoch,
                    cause: Position {
                        topic: Topic::Commands,
                        partition: 0,
                        offset: input,
                    },
                    hash: as_hash(self.name()),
                };
                Some(skeleton.decided(offset, &link))
            }
        }
    }
}

fn as_hash(name: u64) -> Hash {
    let mut hash = Hash::NONE;
    hash.0[..8].copy_from_slice(&name.to_le_bytes());
    hash
}

fn as_name(hash: Hash) -> u64 {
    let [a, b, c, d, e, f, g, h, ..] = hash.0;
    u64::from_le_bytes([a, b, c, d, e, f, g, h])
}

/// What a writer does next.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Phase {
    Stopped,
    /// It has read so far and not said that it begins: no phase of a real writer.
    Read {
        known: u64,
    },
    /// Its `WriterStarted` stands at `epoch`; it has not read up to it.
    Started {
        epoch: u64,
    },
    /// It knows the log below `known`, expects to append at `next`, and believes that nobody else does.
    Leading {
        epoch: u64,
        known: u64,
        next: u64,
    },
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct State {
    log: Vec<Rec>,
    writers: [Phase; 2],
    /// Appends that nobody waits for any more and that may still arrive.
    late: Vec<Vec<Rec>>,
    starts_left: u8,
    faults_left: u8,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Rule {
    /// As production does it.
    Real,
    /// A writer that reads first and says that it begins afterwards.
    ReadsTooEarly,
    /// A writer that begins without saying so.
    StartsSilently,
}

/// What happens to an append.
#[derive(Clone, Copy, Debug)]
enum Fate {
    Answered,
    AnswerLost,
    Late,
    InPart,
    Twice,
}

const FATES: [Fate; 5] = [
    Fate::Answered,
    Fate::AnswerLost,
    Fate::Late,
    Fate::InPart,
    Fate::Twice,
];

struct Explored {
    states: usize,
    violation: Option<String>,
}

fn explore(starts: u8, faults: u8, rule: Rule) -> Explored {
    let first = State {
        // The identity record of the partition folds to nothing.
        log: Vec::new(),
        writers: [Phase::Stopped; 2],
        late: Vec::new(),
        starts_left: starts,
        faults_left: faults,
    };
    let mut seen: HashSet<State> = HashSet::new();
    let mut open = vec![first];
    while let Some(state) = open.pop() {
        if !seen.insert(state.clone()) {
            continue;
        }
        if let Err(what) = check(&state) {
            return Explored {
                states: seen.len(),
                violation: Some(format!("{what}: {state:?}")),
            };
        }
        for next in successors(&state, rule) {
            if !seen.contains(&next) {
                open.push(next);
            }
        }
    }
    Explored {
        states: seen.len(),
        violation: None,
    }
}

/// Whoever folds the log sees one unbroken chain in which inputs are answered in order and once, and a
/// writer that is left in peace from here on finishes it.
fn check(state: &State) -> Result<(), String> {
    let mut log = state.log.clone();
    decided(&log)?;
    let epoch = log.len() as u64;
    log.push(Rec::Started);
    let skeleton = fold(&log);
    for rec in decide(&skeleton, epoch, INPUTS as usize, 2) {
        log.push(rec);
    }
    match decided(&log)?.as_slice() {
        [1, 2, 3] => Ok(()),
        other => Err(format!("a calm writer ends with {other:?}")),
    }
}

fn fold(log: &[Rec]) -> Skeleton {
    let mut skeleton = Skeleton::default();
    for (offset, rec) in (0..).zip(log) {
        rec.fold(offset, &mut skeleton);
    }
    skeleton
}

fn decided(log: &[Rec]) -> Result<Vec<u64>, String> {
    let mut skeleton = Skeleton::default();
    let mut inputs = Vec::new();
    for (offset, rec) in (0..).zip(log) {
        match (rec.fold(offset, &mut skeleton), rec) {
            (Some(Verdict::Apply), Rec::Decided { input, .. }) => inputs.push(*input),
            (Some(Verdict::Broken(broken)), _) => return Err(format!("{broken:?}")),
            (Some(Verdict::Apply | Verdict::Fenced | Verdict::Repeat) | None, _) => (),
        }
    }
    let in_order: Vec<u64> = (1..=inputs.len() as u64).collect();
    if inputs == in_order {
        Ok(inputs)
    } else {
        Err(format!("decided {inputs:?}"))
    }
}

/// The next decisions of a writer that knows this much.
fn decide(skeleton: &Skeleton, epoch: u64, most: usize, salt: usize) -> Vec<Rec> {
    let (mut seq, mut head) = skeleton
        .owners
        .get(&OWNER)
        .map_or((0, 0), |chain| (chain.seq, as_name(chain.head)));
    let from = skeleton.next_input(Topic::Commands).unwrap_or(1);
    let mut made = Vec::new();
    for input in (from..=INPUTS).take(most) {
        seq += 1;
        let rec = Rec::Decided {
            epoch,
            seq,
            prev: head,
            input,
            salt,
        };
        head = rec.name();
        made.push(rec);
    }
    made
}

fn successors(state: &State, rule: Rule) -> Vec<State> {
    let mut next = Vec::new();
    for at in 0..state.late.len() {
        let mut after = state.clone();
        let records = after.late.remove(at);
        after.log.extend(records);
        next.push(after);
    }
    for writer in 0..2 {
        match state.writers[writer] {
            Phase::Stopped if state.starts_left > 0 => {
                let mut begins = state.clone();
                begins.starts_left -= 1;
                if rule == Rule::StartsSilently && !begins.log.is_empty() {
                    let epoch = fold(&begins.log).writer_epoch.unwrap_or_default();
                    let next_offset = begins.log.len() as u64;
                    begins.writers[writer] = Phase::Leading {
                        epoch,
                        known: next_offset,
                        next: next_offset,
                    };
                    next.push(begins);
                    continue;
                }
                if rule == Rule::ReadsTooEarly {
                    begins.writers[writer] = Phase::Read {
                        known: begins.log.len() as u64,
                    };
                    next.push(begins);
                    continue;
                }
                for fate in FATES {
                    next.extend(append(&begins, writer, &[Rec::Started], fate, |offset| {
                        Phase::Started { epoch: offset }
                    }));
                }
            }
            Phase::Stopped => (),
            Phase::Read { known } => {
                for fate in FATES {
                    next.extend(append(state, writer, &[Rec::Started], fate, |offset| {
                        Phase::Leading {
                            epoch: offset,
                            known,
                            next: offset + 1,
                        }
                    }));
                }
            }
            Phase::Started { epoch } => {
                let mut after = state.clone();
                let end = epoch + 1;
                after.writers[writer] = Phase::Leading {
                    epoch,
                    known: end,
                    next: end,
                };
                next.push(after);
            }
            Phase::Leading {
                epoch,
                known,
                next: expected,
            } => {
                let skeleton = fold(&state.log[..known as usize]);
                for most in 1..=2 {
                    let records = decide(&skeleton, epoch, most, writer);
                    if records.len() < most {
                        continue;
                    }
                    for fate in FATES {
                        let count = records.len() as u64;
                        next.extend(append(state, writer, &records, fate, |offset| {
                            if offset == expected {
                                let end = expected + count;
                                Phase::Leading {
                                    epoch,
                                    known: end,
                                    next: end,
                                }
                            } else {
                                Phase::Stopped
                            }
                        }));
                    }
                }
            }
        }
    }
    next
}

/// The state after an append with this fate; `answered` says what the writer makes of its offset.
fn append(
    state: &State,
    writer: usize,
    records: &[Rec],
    fate: Fate,
    answered: impl Fn(u64) -> Phase,
) -> Option<State> {
    let mut after = state.clone();
    let offset = after.log.len() as u64;
    if !matches!(fate, Fate::Answered) {
        after.faults_left = after.faults_left.checked_sub(1)?;
    }
    after.writers[writer] = Phase::Stopped;
    match fate {
        Fate::Answered => {
            after.log.extend(records);
            after.writers[writer] = answered(offset);
        }
        Fate::AnswerLost => after.log.extend(records),
        Fate::Late => after.late.push(records.to_vec()),
        Fate::InPart if records.len() > 1 => after.log.push(records[0]),
        Fate::InPart => return None,
        Fate::Twice => {
            after.log.extend(records);
            after.log.extend(records);
            after.writers[writer] = answered(offset);
        }
    }
    Some(after)
}

#[test]
fn every_input_is_decided_once_in_every_interleaving() {
    let explored = explore(3, 2, Rule::Real);
    println!("{} states", explored.states);
    assert_eq!(explored.violation, None);
    assert!(
        explored.states > 10_000,
        "the model shrank to {} states",
        explored.states
    );
}

#[test]
fn the_model_would_notice_a_writer_that_reads_before_it_says_so() {
    assert!(explore(3, 1, Rule::ReadsTooEarly).violation.is_some());
}

#[test]
fn the_model_would_notice_a_writer_that_starts_silently() {
    assert!(explore(3, 1, Rule::StartsSilently).violation.is_some());
}
