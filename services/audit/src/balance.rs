//! Is everything that was accepted accounted for? accepted = decided + in flight + parked, by replay.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};

use anamnesis_domain::ids::{EventTag, OwnerKey};
use anamnesis_domain::input::{Position, Topic};
use anamnesis_domain::skeleton::Verdict;
use anamnesis_domain::time::Known;
use anamnesis_pipeline::codec::{Clear, Codec, Opened, read_clear};
use anamnesis_pipeline::consumer::{BATCH_BYTES_MAX, StageError};
use anamnesis_pipeline::fold::Folded;
use anamnesis_pipeline::log::EventLog;
use serde::Serialize;

use crate::replay::{each_record, read_partition};

/// How a second candidates record of one turn may be answered.
pub(crate) const REPEATS: [&str; 3] = ["duplicate", "rejected(erased)", "rejected(id_reused)"];

/// What became of every accepted record.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Balance {
    /// Records of `conversation`, `commands` and `quarantine`.
    pub accepted: u64,
    /// Accepted records that a decision answers, by outcome (`stored`, `duplicate`, `no_op`,
    /// `rejected(code)`, `failed(code)`), and `quarantined` ones.
    pub decided: BTreeMap<String, u64>,
    /// Accepted and not answered yet.
    pub in_flight: u64,
    /// Waiting behind a record that cannot be applied.
    pub parked: u64,
    /// Answered more than once by applied decisions: must be 0.
    pub answered_twice: u64,
    /// Decisions that answer a record of another owner or no record at all: must be 0.
    pub foreign: u64,
    /// Accepted and neither answered, in flight nor parked: must be 0.
    pub lost: u64,
}

impl Balance {
    pub fn is_exact(&self) -> bool {
        let decided: u64 = self.decided.values().sum();
        self.accepted == decided + self.in_flight + self.parked
            && self.answered_twice == 0
            && self.foreign == 0
            && self.lost == 0
    }
}

/// Counts every record of every partition.
///
/// # Errors
/// When the log or the keyring cannot be read.
pub async fn balance(log: &dyn EventLog, codec: &Codec) -> Result<Balance, StageError> {
    let mut total = Balance::default();
    for partition in 0..log.partitions() {
        count_partition(log, codec, partition, &mut total).await?;
    }
    Ok(total)
}

async fn count_partition(
    log: &dyn EventLog,
    codec: &Codec,
    partition: u32,
    total: &mut Balance,
) -> Result<(), StageError> {
    let conversation = keys_of(log, Topic::Conversation, partition).await?;
    let commands = keys_of(log, Topic::Commands, partition).await?;
    let mut answers: BTreeMap<Position, (OwnerKey, String)> = BTreeMap::new();
    let mut answered: BTreeSet<Position> = BTreeSet::new();
    let mut released: BTreeMap<u64, (OwnerKey, String)> = BTreeMap::new();
    let mut inputs_answered: BTreeMap<Topic, u64> = BTreeMap::new();
    let skeleton = read_partition(log, codec, partition, Known::Latest, &mut |step| {
        if let (Folded::Decision(owner, Verdict::Apply), Some(decided)) =
            (&step.folded, step.decided)
        {
            let cause = decided.decided.cause;
            let code = decided.decided.outcome.code();
            let highest = inputs_answered.entry(cause.position.topic).or_insert(0);
            *highest = (*highest).max(cause.position.offset);
            if !answered.insert(cause.position) {
                total.answered_twice += 1;
            }
            // Candidates that could not be read when an erasure released them name no turn; their own
            // place stands for it.
            if cause.origin.topic == Topic::Candidates {
                released.insert(cause.origin.offset, (*owner, code));
                return;
            }
            // A second candidates record of the same turn: the first one wins, and this one may change
            // nothing.
            match answers.entry(cause.origin) {
                Entry::Vacant(slot) => {
                    slot.insert((*owner, code));
                }
                Entry::Occupied(_) if REPEATS.contains(&code.as_str()) => (),
                Entry::Occupied(_) => total.answered_twice += 1,
            }
        }
    })
    .await?;
    let extracted = extracted_to(log, partition).await?;
    let parked: BTreeSet<OwnerKey> = skeleton
        .parked_owners()
        .map(|parked| parked.owner)
        .chain(skeleton.broken_owners().map(|(owner, _)| *owner))
        .chain(extracted.parked.iter().copied())
        .collect();
    for (topic, keys) in [
        (Topic::Conversation, &conversation),
        (Topic::Commands, &commands),
    ] {
        for (offset, key) in keys {
            total.accepted += 1;
            let position = Position {
                topic,
                partition,
                offset: *offset,
            };
            let by_place = match topic {
                Topic::Conversation => {
                    let place = extracted.by_origin.get(offset);
                    place.and_then(|place| released.remove(place))
                }
                Topic::Inbox
                | Topic::Quarantine
                | Topic::Candidates
                | Topic::Commands
                | Topic::Memories
                | Topic::Embeddings
                | Topic::Accesses
                | Topic::Receipts
                | Topic::Schemas => None,
            };
            match answers.remove(&position).or(by_place) {
                Some((owner, code)) if owner == *key => {
                    *total.decided.entry(code).or_insert(0) += 1
                }
                Some(_) => total.foreign += 1,
                None if parked.contains(key) => total.parked += 1,
                None => {
                    let is_passed = match topic {
                        Topic::Commands => inputs_answered
                            .get(&Topic::Commands)
                            .is_some_and(|highest| offset <= highest),
                        Topic::Inbox
                        | Topic::Conversation
                        | Topic::Quarantine
                        | Topic::Candidates
                        | Topic::Memories
                        | Topic::Embeddings
                        | Topic::Accesses
                        | Topic::Receipts
                        | Topic::Schemas => {
                            extracted.by_origin.get(offset).is_some_and(|candidates| {
                                inputs_answered
                                    .get(&Topic::Candidates)
                                    .is_some_and(|highest| candidates <= highest)
                            })
                        }
                    };
                    if is_passed {
                        total.lost += 1;
                    } else {
                        total.in_flight += 1;
                    }
                }
            }
        }
    }
    total.foreign += answers.len() as u64;
    count_quarantine(log, codec, partition, &conversation, total).await
}

/// Owner keys of the records of a topic, by offset; the identity record is not one.
async fn keys_of(
    log: &dyn EventLog,
    topic: Topic,
    partition: u32,
) -> Result<BTreeMap<u64, OwnerKey>, StageError> {
    let mut keys = BTreeMap::new();
    each_record(log, topic, partition, &mut |record| {
        keys.insert(record.position.offset, record.key);
    })
    .await?;
    Ok(keys)
}

struct Extracted {
    /// Offset in `candidates` of the first answer to each conversation offset.
    by_origin: BTreeMap<u64, u64>,
    parked: BTreeSet<OwnerKey>,
}

async fn extracted_to(log: &dyn EventLog, partition: u32) -> Result<Extracted, StageError> {
    let mut extracted = Extracted {
        by_origin: BTreeMap::new(),
        parked: BTreeSet::new(),
    };
    each_record(
        log,
        Topic::Candidates,
        partition,
        &mut |record| match read_clear(&record.payload) {
            Ok(Clear::Input {
                origin: Some(origin),
                ..
            }) => {
                extracted
                    .by_origin
                    .entry(origin.offset)
                    .or_insert(record.position.offset);
            }
            Ok(Clear::Parked(parked)) => {
                extracted.parked.insert(parked.owner);
            }
            Ok(Clear::Unparked(unparked)) => {
                extracted.parked.remove(&unparked.owner);
            }
            Ok(_) | Err(_) => (),
        },
    )
    .await?;
    Ok(extracted)
}

/// A quarantined record that was released stands in `conversation` too and is counted there.
async fn count_quarantine(
    log: &dyn EventLog,
    codec: &Codec,
    partition: u32,
    conversation: &BTreeMap<u64, OwnerKey>,
    total: &mut Balance,
) -> Result<(), StageError> {
    let mut released: BTreeSet<EventTag> = BTreeSet::new();
    if log.end(Topic::Quarantine, partition).await? <= 1 {
        return Ok(());
    }
    let offsets: Vec<u64> = conversation.keys().copied().collect();
    for chunk in offsets.chunks(2_000) {
        for record in log.read_at(Topic::Conversation, partition, chunk).await? {
            if let Ok(Clear::Input { event, .. }) = read_clear(&record.payload) {
                released.insert(event);
            }
        }
    }
    let mut from = log.start(Topic::Quarantine, partition).await?.max(1);
    let end = log.end(Topic::Quarantine, partition).await?;
    while from < end {
        let records = log
            .read(Topic::Quarantine, partition, from, 2_000, BATCH_BYTES_MAX)
            .await?;
        let Some(last) = records.last() else { break };
        from = last.position.offset + 1;
        for opened in codec.open(&records).await? {
            let event = match opened {
                Ok(Opened::Turn { meta, .. } | Opened::Erased { meta }) => meta.event,
                Ok(_) | Err(_) => continue,
            };
            if !released.contains(&event) {
                total.accepted += 1;
                *total.decided.entry("quarantined".to_owned()).or_insert(0) += 1;
            }
        }
    }
    Ok(())
}
