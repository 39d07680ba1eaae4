//! What should be forgotten, out of plain values: capacity, and accesses by the hour. Pure.

use std::collections::BTreeMap;

use anamnesis_domain::attribute::Attributes;
use anamnesis_domain::decay;
use anamnesis_domain::ids::{MemoryId, OwnerKey};
use anamnesis_domain::input::AccessSummary;
use anamnesis_domain::memory::{Kind, Memory, Status};
use anamnesis_domain::time::Timestamp;

/// How long memories of a kind take to lose half of their recency, in days.
fn half_life_days(kind: Kind) -> f64 {
    f64::from(Attributes::shipped().kind(kind).half_life_days)
}

/// A memory's place in the order of eviction: higher goes first (`domain.md` §7).
pub fn eviction_score(memory: &Memory, now: Timestamp) -> f64 {
    let half_life = half_life_days(memory.claim.kind);
    let since = memory
        .last_verified_at
        .unwrap_or(memory.standing.valid_from);
    let recency = decay::recency(
        now.days_since(since.max(memory.standing.valid_from)),
        half_life,
    );
    let access = memory.last_accessed_at.map_or(0.0, |last| {
        decay::access(memory.access_count, now.days_since(last), half_life)
    });
    decay::eviction(memory.claim.importance, access, recency)
}

/// Memories to archive so that at most `capacity` stay, with the versions that were seen. Protected
/// ones are never among them, whatever the capacity.
pub fn over_capacity(memories: &[Memory], capacity: usize, now: Timestamp) -> Vec<(MemoryId, u64)> {
    let counted: Vec<&Memory> = memories
        .iter()
        .filter(|memory| {
            memory.standing.confirms.is_none()
                && matches!(memory.standing.status, Status::Active | Status::Superseded)
        })
        .collect();
    let excess = counted.len().saturating_sub(capacity);
    let mut evictable: Vec<(f64, MemoryId, u64)> = counted
        .iter()
        .filter(|memory| !memory.protected)
        .map(|memory| (eviction_score(memory, now), memory.id, memory.version))
        .collect();
    evictable.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
    evictable
        .into_iter()
        .take(excess)
        .map(|(_, id, version)| (id, version))
        .collect()
}

/// Accesses of one owner in one hour.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HourlyAccesses {
    pub owner: OwnerKey,
    /// Hours since 1970.
    pub hour: i64,
    pub accesses: Vec<AccessSummary>,
}

pub const HOUR_MS: i64 = 3_600_000;

/// Sums what recalls returned, by owner and hour, for hours that are over at `now`.
pub fn summarise(
    recalls: impl IntoIterator<Item = (OwnerKey, Timestamp, Vec<MemoryId>)>,
    now: Timestamp,
) -> Vec<HourlyAccesses> {
    type Counts = BTreeMap<MemoryId, (u32, Timestamp)>;
    let mut hours: BTreeMap<(OwnerKey, i64), Counts> = BTreeMap::new();
    for (owner, at, returned) in recalls {
        let hour = at.millis().div_euclid(HOUR_MS);
        if (hour + 1) * HOUR_MS > now.millis() {
            continue;
        }
        let counts = hours.entry((owner, hour)).or_default();
        for id in returned {
            let (count, last) = counts.entry(id).or_insert((0, at));
            *count += 1;
            *last = (*last).max(at);
        }
    }
    let mut summaries: Vec<HourlyAccesses> = hours
        .into_iter()
        .map(|((owner, hour), counts)| HourlyAccesses {
            owner,
            hour,
            accesses: counts
                .into_iter()
                .map(|(memory_id, (count, last_at))| AccessSummary {
                    memory_id,
                    count,
                    last_at,
                })
                .collect(),
        })
        .filter(|summary| !summary.accesses.is_empty())
        .collect();
    summaries.sort_by_key(|summary| (summary.hour, summary.owner));
    summaries
}
