//! How one decision changes an owner's memory: the full fold's step.
//!
//! `evolve` trusts that the skeleton accepted the record (right sequence, hash and writer). Erasure is
//! stronger than order: what belongs to a destroyed key or a closed epoch changes nothing, wherever it
//! arrives, so a fold after the keys are gone ends in the same state as the fold that saw it happen.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::attribute::Attributes;
use crate::ids::{Hash, MemoryId};
use crate::input::{Target, Topic};
use crate::line::LineKey;
use crate::state::{Access, CausedBy, Entry, Erasure, Held, OwnerState, Seen};
use crate::time::Timestamp;
use crate::transition::{Decided, Part, PartBody, Transition};

/// Where and when the log holds a decision.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Recorded {
    pub offset: u64,
    /// Recorded time: the running maximum of the append time.
    pub at: Timestamp,
    /// Hash of the record's payload.
    pub hash: Hash,
}

/// Applies one decision. Gives the memories that the decision names and that still exist, in order:
/// each of them has a new version.
pub fn evolve(state: &mut OwnerState, decided: &Decided, recorded: Recorded) -> Vec<MemoryId> {
    state.seq = decided.owner_seq;
    state.head = recorded.hash;
    let is_closed = decided.key_epoch <= state.closed_through;
    let by = depends_on(decided);
    note_event(state, decided, is_closed, by);
    for part in &decided.parts {
        match &part.body {
            PartBody::Open(transition) if !is_closed || is_clear(transition) => {
                apply(state, transition, by, recorded);
            }
            PartBody::Open(_) | PartBody::Unreadable => leave_tombstone(state, part),
        }
    }
    if erases_owner(decided) {
        // The header's epoch is the one whose key was destroyed.
        state.closed_through = state.closed_through.max(decided.key_epoch);
    }
    let mut named: Vec<MemoryId> = decided
        .parts
        .iter()
        .filter_map(|part| part.memory_id)
        .collect();
    named.sort();
    named.dedup();
    named.retain(|id| match state.claims.get_mut(id) {
        Some(entry) => {
            entry.version = decided.owner_seq;
            true
        }
        None => false,
    });
    named
}

/// The message that the decision stands and falls with: its cause, or the message whose words the cause
/// uses.
fn depends_on(decided: &Decided) -> CausedBy {
    let cause = &decided.cause;
    for part in &decided.parts {
        if let PartBody::Open(transition) = &part.body
            && let Transition::Asserted { claim, .. } = &**transition
            && claim.source.event != cause.event
        {
            return CausedBy {
                event: claim.source.event,
                source: claim.source.source_tag,
            };
        }
    }
    CausedBy {
        event: cause.event,
        source: cause.source_tag,
    }
}

/// An erasure stands in clear: it is applied whatever happened to its own key.
fn is_clear(transition: &Transition) -> bool {
    matches!(transition, Transition::Erased { .. })
}

/// Whether the decision erased its owner as a whole.
pub fn erases_owner(decided: &Decided) -> bool {
    decided.parts.iter().any(|part| match &part.body {
        PartBody::Open(transition) => {
            matches!(
                &**transition,
                Transition::Erased {
                    target: Target::Owner,
                    ..
                }
            )
        }
        PartBody::Unreadable => false,
    })
}

fn note_event(state: &mut OwnerState, decided: &Decided, is_closed: bool, by: CausedBy) {
    let detail = decided.detail.as_ref().filter(|_| !is_closed);
    if let Some(owner) = detail.and_then(|detail| detail.owner.parse().ok()) {
        state.owner = Some(owner);
    }
    let seen = Seen {
        content: detail.and_then(|detail| detail.content),
        source: decided.cause.source_tag,
        of: (by.event != decided.cause.event).then_some(by),
    };
    // The first decision on an event wins.
    state.events.entry(decided.cause.event).or_insert(seen);
    debug_assert!(decided.cause.position.topic != Topic::Memories);
}

fn leave_tombstone(state: &mut OwnerState, part: &Part) {
    let asserts = matches!(part.code.as_str(), "memory_asserted" | "memory_confirmed");
    if let Some(id) = part.memory_id.filter(|_| asserts) {
        state.erased.insert(id);
    }
}

fn apply(state: &mut OwnerState, transition: &Transition, by: CausedBy, recorded: Recorded) {
    match transition {
        Transition::Asserted {
            id,
            claim,
            standing,
        } => {
            if state.erased.contains(id) {
                return;
            }
            let key = LineKey::of(*id, claim, Attributes::shipped());
            let entry = Entry {
                id: *id,
                seq: state.seq,
                version: state.seq,
                recorded_at: recorded.at,
                claim: Arc::new((**claim).clone()),
                marks: Vec::new(),
                standing: standing.clone(),
                standing_by: by,
                accesses: Vec::new(),
            };
            // A memory is asserted once; a second assertion would be a broken decide.
            if state.claims.contains_key(id) {
                return;
            }
            state.claims.insert(*id, entry);
            state.lines.entry(key).or_default().insert(*id);
        }
        Transition::Moved { id, standing } => {
            if let Some(entry) = state.claims.get_mut(id) {
                entry.standing = standing.clone();
                entry.standing_by = by;
            }
        }
        Transition::Marked { id, mark } => {
            if let Some(entry) = state.claims.get_mut(id) {
                entry.marks.push(held(mark.clone(), by, recorded));
            }
        }
        Transition::Erased {
            erasure,
            target,
            memory_ids,
        } => {
            erase(state, target, memory_ids);
            state.erasures.push(Erasure {
                erasure: *erasure,
                target: target.clone(),
                memory_ids: memory_ids.clone(),
                recorded_at: recorded.at,
                offset: recorded.offset,
            });
        }
        Transition::ConsentGranted { consent } => {
            state.consents.push(held(consent.clone(), by, recorded));
        }
        Transition::ConsentWithdrawn { kinds, .. } => {
            withdraw(state, kinds.as_deref(), by, recorded)
        }
        Transition::TaskChanged { task } => {
            let states = state.tasks.entry(task.id.clone()).or_default();
            states.push(held((**task).clone(), by, recorded));
        }
        Transition::Accessed { access } => {
            if let Some(entry) = state.claims.get_mut(&access.memory_id) {
                let value = Access {
                    count: access.count,
                    last_at: access.last_at,
                };
                entry.accesses.push(held(value, by, recorded));
            }
        }
    }
}

fn held<T>(value: T, by: CausedBy, recorded: Recorded) -> Held<T> {
    Held {
        value,
        by,
        recorded_from: recorded.offset,
        recorded_to: None,
        closed_by: None,
    }
}

/// A withdrawal ends the grants that are open; a partial one leaves what it does not name.
fn withdraw(
    state: &mut OwnerState,
    kinds: Option<&[crate::memory::Kind]>,
    by: CausedBy,
    recorded: Recorded,
) {
    let mut kept = Vec::new();
    for grant in state
        .consents
        .iter_mut()
        .filter(|grant| grant.recorded_to.is_none())
    {
        let Some(withdrawn) = kinds else {
            grant.recorded_to = Some(recorded.offset);
            grant.closed_by = Some(by);
            continue;
        };
        let covered = grant
            .value
            .kinds
            .clone()
            .unwrap_or_else(|| crate::memory::Kind::ALL.to_vec());
        let rest: Vec<_> = covered
            .iter()
            .copied()
            .filter(|kind| !withdrawn.contains(kind))
            .collect();
        if rest.len() == covered.len() {
            continue;
        }
        grant.recorded_to = Some(recorded.offset);
        grant.closed_by = Some(by);
        if !rest.is_empty() {
            let mut consent = grant.value.clone();
            consent.kinds = Some(rest);
            // The rest of the grant is still the grant's.
            kept.push(held(consent, grant.by, recorded));
        }
    }
    state.consents.extend(kept);
}

/// Takes back everything that the erased inputs had set.
fn erase(state: &mut OwnerState, target: &Target, memory_ids: &[MemoryId]) {
    if *target == Target::Owner {
        let ids: Vec<MemoryId> = state.claims.keys().copied().collect();
        state.erased.extend(ids);
        state.claims.clear();
        state.lines.clear();
        state.consents.clear();
        state.tasks.clear();
        state.owner = None;
        state.events.values_mut().for_each(Seen::forget);
        return;
    }
    let mut said_in = BTreeSet::new();
    for id in memory_ids {
        if let Some(entry) = state.claims.remove(id) {
            let key = LineKey::of(*id, &entry.claim, Attributes::shipped());
            if let Some(line) = state.lines.get_mut(&key) {
                line.remove(id);
                if line.is_empty() {
                    state.lines.remove(&key);
                }
            }
            if matches!(target, Target::Memories(_)) {
                said_in.insert(entry.claim.source.event);
            }
        }
        state.erased.insert(*id);
    }
    let is_gone = |by: CausedBy| OwnerState::is_erased_cause(target, by);
    for (event, seen) in &mut state.events {
        let by = seen.of.unwrap_or(CausedBy {
            event: *event,
            source: seen.source,
        });
        if is_gone(by) || said_in.contains(&by.event) {
            seen.forget();
        }
    }
    for entry in state.claims.values_mut() {
        entry.marks.retain(|mark| !is_gone(mark.by));
        entry.accesses.retain(|access| !is_gone(access.by));
    }
    state.tasks.retain(|_, states| {
        states.retain(|held| !is_gone(held.by));
        !states.is_empty()
    });
}
