//! One owner's memory as of (valid, known), by replay, with digests and the offset it was read to.

use anamnesis_domain::digest;
use anamnesis_domain::ids::{Hash, OwnerKey};
use anamnesis_domain::memory::{Memory, Status};
use anamnesis_domain::owner::Owner;
use anamnesis_domain::state::Erasure;
use anamnesis_domain::time::{AsOf, Interval, Timestamp};
use anamnesis_pipeline::codec::Codec;
use anamnesis_pipeline::consumer::StageError;
use anamnesis_pipeline::log::{EventLog, partition_of};
use serde::Serialize;

use crate::replay::replay_owner;

#[derive(Clone, Debug, Serialize)]
pub struct StateAsOf {
    pub owner: OwnerKey,
    /// In words; `None` once erased.
    pub name: Option<Owner>,
    pub valid_at: Timestamp,
    /// Recorded time of the last record that was read.
    pub known_at: Timestamp,
    pub partition: u32,
    /// Records of `memories` below this offset were read.
    pub offset: u64,
    pub owner_seq: u64,
    pub exact_digest: Hash,
    pub content_digest: Hash,
    /// What held at `valid_at`, oldest first.
    pub memories: Vec<Memory>,
    pub erasures: Vec<Erasure>,
    /// What was recorded and did not hold at `valid_at`: superseded, ended, waiting or hidden.
    pub others: Vec<Memory>,
}

/// # Errors
/// When the log or the keyring cannot be read.
pub async fn state_as_of(
    log: &dyn EventLog,
    codec: &Codec,
    owner: OwnerKey,
    as_of: AsOf,
) -> Result<StateAsOf, StageError> {
    let (state, offset, known_at) = replay_owner(log, codec, owner, as_of.known).await?;
    let mut memories = Vec::new();
    let mut others = Vec::new();
    for entry in state
        .claims
        .values()
        .filter(|entry| entry.standing.confirms.is_none())
    {
        let Some(memory) = state.memory(entry.id) else {
            continue;
        };
        let standing = &memory.standing;
        let holds = Interval::new(standing.valid_from, standing.valid_to)
            .is_ok_and(|valid| valid.contains(as_of.valid));
        let counts = matches!(
            standing.status,
            Status::Active | Status::Superseded | Status::Conflicted
        );
        if holds && counts {
            memories.push(memory)
        } else {
            others.push(memory)
        }
    }
    for list in [&mut memories, &mut others] {
        list.sort_by_key(|memory| (memory.standing.valid_from, memory.recorded_at, memory.id));
    }
    Ok(StateAsOf {
        owner,
        name: state.owner.clone(),
        valid_at: as_of.valid,
        known_at,
        partition: partition_of(owner, log.partitions()),
        offset,
        owner_seq: state.seq,
        exact_digest: digest::exact(&state),
        content_digest: digest::content(&state),
        memories,
        erasures: state.erasures.clone(),
        others,
    })
}
