//! A partition of `memories`, folded from the first record: what audit believes, never a store.

use std::collections::BTreeMap;

use anamnesis_domain::digest;
use anamnesis_domain::evolve::evolve;
use anamnesis_domain::ids::{Hash, OwnerKey};
use anamnesis_domain::input::Topic;
use anamnesis_domain::skeleton::{Skeleton, Verdict};
use anamnesis_domain::state::OwnerState;
use anamnesis_domain::time::{Known, Timestamp};
use anamnesis_pipeline::codec::{Codec, Opened, OpenedDecided};
use anamnesis_pipeline::consumer::{BATCH_BYTES_MAX, StageError};
use anamnesis_pipeline::fold::{self, Folded, fold_header};
use anamnesis_pipeline::log::{EventLog, Record};

/// Records per read.
const READ_RECORDS_MAX: usize = 2_000;

/// One applied decision or another record, as it is read in order.
pub struct Step<'a> {
    pub record: &'a Record,
    pub folded: Folded,
    /// The decision, where the record is one and can be read.
    pub decided: Option<&'a OpenedDecided>,
}

/// Reads a partition from the start to its end (or to what was known at `known`), folding headers, and
/// shows every record to `see`.
///
/// # Errors
/// When the log or the keyring cannot be read.
pub async fn read_partition(
    log: &dyn EventLog,
    codec: &Codec,
    partition: u32,
    known: Known,
    see: &mut (dyn FnMut(&Step<'_>) + Send),
) -> Result<Skeleton, StageError> {
    let end = log.end(Topic::Memories, partition).await?;
    let mut skeleton = Skeleton::default();
    while skeleton.next < end {
        let most = READ_RECORDS_MAX.min((end - skeleton.next) as usize);
        let records = log
            .read(
                Topic::Memories,
                partition,
                skeleton.next,
                most,
                BATCH_BYTES_MAX,
            )
            .await?;
        if records.is_empty() {
            break;
        }
        let opened = codec.open(&records).await?;
        for (record, opened) in records.iter().zip(opened) {
            let is_later = match known {
                Known::Latest => false,
                Known::At(at) => record.appended_at > at,
            };
            if is_later {
                return Ok(skeleton);
            }
            let folded = fold_header(&mut skeleton, record);
            let decided = match opened {
                Ok(Opened::Decided(decided)) => Some(*decided),
                Ok(_) => None,
                Err(error) if error.is_retryable() => return Err(error.into()),
                Err(_) => None,
            };
            see(&Step {
                record,
                folded,
                decided: decided.as_ref(),
            });
        }
    }
    Ok(skeleton)
}

/// Shows every record of a topic's partition but the identity, in order.
///
/// # Errors
/// When the log cannot be read.
pub async fn each_record(
    log: &dyn EventLog,
    topic: Topic,
    partition: u32,
    see: &mut (dyn FnMut(&Record) + Send),
) -> Result<(), StageError> {
    let end = log.end(topic, partition).await?;
    let mut from = log.start(topic, partition).await?.max(1);
    while from < end {
        let records = log
            .read(topic, partition, from, READ_RECORDS_MAX, BATCH_BYTES_MAX)
            .await?;
        let Some(last) = records.last() else { break };
        from = last.position.offset + 1;
        records.iter().for_each(&mut *see);
    }
    Ok(())
}

/// Every owner's state in one partition.
pub struct Replayed {
    pub skeleton: Skeleton,
    pub states: BTreeMap<OwnerKey, OwnerState>,
}

/// Folds a partition in full.
///
/// # Errors
/// As [`read_partition`].
pub async fn replay(
    log: &dyn EventLog,
    codec: &Codec,
    partition: u32,
    known: Known,
) -> Result<Replayed, StageError> {
    let mut states: BTreeMap<OwnerKey, OwnerState> = BTreeMap::new();
    let skeleton = read_partition(log, codec, partition, known, &mut |step| {
        if let (Folded::Decision(owner, Verdict::Apply), Some(decided)) =
            (&step.folded, step.decided)
        {
            let state = states
                .entry(*owner)
                .or_insert_with(|| OwnerState::new(*owner));
            evolve(state, &decided.decided, fold::recorded(decided));
        }
    })
    .await?;
    Ok(Replayed { skeleton, states })
}

/// One owner's state, and where the fold ended.
///
/// # Errors
/// As [`read_partition`].
pub async fn replay_owner(
    log: &dyn EventLog,
    codec: &Codec,
    owner: OwnerKey,
    known: Known,
) -> Result<(OwnerState, u64, Timestamp), StageError> {
    let partition = anamnesis_pipeline::log::partition_of(owner, log.partitions());
    let mut state = OwnerState::new(owner);
    let mut last_at = Timestamp::default();
    let skeleton = read_partition(log, codec, partition, known, &mut |step| {
        last_at = step.record.appended_at;
        if let (Folded::Decision(key, Verdict::Apply), Some(decided)) = (&step.folded, step.decided)
            && *key == owner
        {
            evolve(&mut state, &decided.decided, fold::recorded(decided));
        }
    })
    .await?;
    Ok((state, skeleton.next, last_at))
}

/// Both digests over every owner of every partition.
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Serialize)]
pub struct Digests {
    /// Everything: a rebuild equals the live state.
    pub exact: Hash,
    /// What is believed and when: equal for any order of arrival.
    pub content: Hash,
    pub owners: usize,
}

/// # Errors
/// As [`read_partition`].
pub async fn digests(log: &dyn EventLog, codec: &Codec) -> Result<Digests, StageError> {
    let mut exact = BTreeMap::new();
    let mut content = BTreeMap::new();
    for partition in 0..log.partitions() {
        let replayed = replay(log, codec, partition, Known::Latest).await?;
        for (owner, state) in &replayed.states {
            exact.insert(*owner, digest::exact(state));
            content.insert(*owner, digest::content(state));
        }
    }
    Ok(Digests {
        exact: digest::of_owners(exact.iter().map(|(key, hash)| (key, *hash))),
        content: digest::of_owners(content.iter().map(|(key, hash)| (key, *hash))),
        owners: exact.len(),
    })
}
