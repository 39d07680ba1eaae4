//! Reading `memories`: the skeleton of a partition by headers, and one owner's decisions by offset.

use anamnesis_domain::evolve::{Recorded, evolve};
use anamnesis_domain::ids::{Hash, OwnerKey};
use anamnesis_domain::input::Topic;
use anamnesis_domain::skeleton::{ChainLink, Skeleton, Verdict};
use anamnesis_domain::state::OwnerState;

use crate::codec::{Clear, Codec, Opened, OpenedDecided, read_clear};
use crate::consumer::{BATCH_BYTES_MAX, StageError};
use crate::log::{EventLog, Record};

/// Records per read while folding.
const READ_RECORDS_MAX: usize = 2_000;

/// What the skeleton says to one record of `memories`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Folded {
    /// A decision, and what the fold does with it.
    Decision(OwnerKey, Verdict),
    /// A writer started, an owner was parked or released, or the identity record.
    Other,
    /// The record cannot be decoded: the chain of the owner that the record is keyed by ends here.
    Undecodable(OwnerKey),
}

/// Folds the header of one record; needs no key.
pub fn fold_header(skeleton: &mut Skeleton, record: &Record) -> Folded {
    let offset = record.position.offset;
    match read_clear(&record.payload) {
        Ok(Clear::Decided(decided)) => {
            let link = ChainLink {
                owner: decided.owner,
                owner_seq: decided.owner_seq,
                prev_hash: decided.prev_hash,
                writer_epoch: decided.writer_epoch,
                cause: decided.cause.position,
                hash: Hash::of(&record.payload),
            };
            Folded::Decision(decided.owner, skeleton.decided(offset, &link))
        }
        Ok(Clear::WriterStarted { .. }) => {
            skeleton.writer_started(offset);
            Folded::Other
        }
        Ok(Clear::Parked(parked)) => {
            skeleton.parked(offset, parked);
            Folded::Other
        }
        Ok(Clear::Unparked(unparked)) => {
            skeleton.unparked(offset, &unparked);
            Folded::Other
        }
        Ok(Clear::Identity(_) | Clear::Input { .. } | Clear::Other) => {
            skeleton.pass(offset);
            Folded::Other
        }
        Err(_) => {
            skeleton.undecodable(offset, record.key);
            Folded::Undecodable(record.key)
        }
    }
}

/// Folds headers of a partition of `memories` up to (not including) `end`.
///
/// # Errors
/// When the log cannot be read.
pub async fn fold_skeleton(
    log: &dyn EventLog,
    partition: u32,
    skeleton: &mut Skeleton,
    end: u64,
) -> Result<(), StageError> {
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
        for record in &records {
            fold_header(skeleton, record);
        }
    }
    Ok(())
}

/// The decisions at these offsets, opened, in order. The offsets come from a skeleton, so every record
/// there is an applied decision of one owner.
///
/// # Errors
/// When the log or the keyring cannot be read, or a record is not what the skeleton saw.
pub async fn decisions_at(
    log: &dyn EventLog,
    codec: &Codec,
    partition: u32,
    offsets: &[u64],
) -> Result<Vec<OpenedDecided>, StageError> {
    let mut decisions = Vec::with_capacity(offsets.len());
    for chunk in offsets.chunks(READ_RECORDS_MAX) {
        let records = log.read_at(Topic::Memories, partition, chunk).await?;
        for opened in codec.open(&records).await? {
            match opened? {
                Opened::Decided(decided) => decisions.push(*decided),
                Opened::Identity(_)
                | Opened::Turn { .. }
                | Opened::Candidates { .. }
                | Opened::Command { .. }
                | Opened::Erased { .. }
                | Opened::Parked(_)
                | Opened::Unparked(_)
                | Opened::Receipt(_)
                | Opened::InboxRead(_)
                | Opened::Embedding { .. }
                | Opened::Access { .. }
                | Opened::WriterStarted { .. } => {
                    return Err(StageError::Broken {
                        what: format!(
                            "memories-{partition} holds no decision where one was folded"
                        ),
                    });
                }
            }
        }
    }
    Ok(decisions)
}

/// Where the log holds a decision.
pub fn recorded(decided: &OpenedDecided) -> Recorded {
    Recorded {
        offset: decided.position.offset,
        at: decided.appended_at,
        hash: decided.hash,
    }
}

/// One owner's state out of the log.
///
/// # Errors
/// As [`decisions_at`].
pub async fn owner_state(
    log: &dyn EventLog,
    codec: &Codec,
    partition: u32,
    owner: OwnerKey,
    offsets: &[u64],
) -> Result<OwnerState, StageError> {
    let mut state = OwnerState::new(owner);
    for decided in decisions_at(log, codec, partition, offsets).await? {
        evolve(&mut state, &decided.decided, recorded(&decided));
    }
    Ok(state)
}
