//! Names of what the validity-manager counts. Labels come from closed sets; never an owner.

use std::collections::BTreeSet;

use anamnesis_domain::input::Topic;
use anamnesis_domain::memory::{Kind, Status};
use anamnesis_domain::state::OwnerState;
use anamnesis_domain::transition::{Decision, Transition};

/// Decisions by the topic of their input (`candidates`, `commands`) and outcome (`stored`, `duplicate`,
/// `no_op`, `rejected`, `failed`).
pub const DECISIONS_TOTAL: &str = "anamnesis_decisions_total";
/// Transitions by their code.
pub const TRANSITIONS_TOTAL: &str = "anamnesis_transitions_total";
/// New memories, by kind.
pub const ASSERTED_TOTAL: &str = "anamnesis_memories_asserted_total";
/// Memories that came into conflict with another one, by kind.
pub const CONFLICTED_TOTAL: &str = "anamnesis_memories_conflicted_total";

/// `state` is the owner's after the decision.
pub(crate) fn decided(input: Topic, decision: &Decision, state: &OwnerState) {
    let labels = [
        ("input", input.as_str()),
        ("outcome", decision.outcome.kind()),
    ];
    metrics::counter!(DECISIONS_TOTAL, &labels).increment(1);
    let mut conflicted = BTreeSet::new();
    for transition in &decision.transitions {
        metrics::counter!(TRANSITIONS_TOTAL, "transition" => transition.code()).increment(1);
        match transition {
            Transition::Asserted {
                id,
                claim,
                standing,
            } => {
                metrics::counter!(ASSERTED_TOTAL, "kind" => claim.kind.code()).increment(1);
                if standing.status == Status::Conflicted {
                    conflicted.insert((*id, claim.kind));
                }
            }
            Transition::Moved { id, standing } => {
                let kind = state.claims.get(id).map(|entry| entry.claim.kind);
                if let (Status::Conflicted, Some(kind)) = (standing.status, kind) {
                    conflicted.insert((*id, kind));
                }
            }
            Transition::Marked { .. }
            | Transition::Erased { .. }
            | Transition::ConsentGranted { .. }
            | Transition::ConsentWithdrawn { .. }
            | Transition::TaskChanged { .. }
            | Transition::Accessed { .. } => (),
        }
    }
    for (_, kind) in conflicted {
        count_conflict(kind);
    }
}

fn count_conflict(kind: Kind) {
    metrics::counter!(CONFLICTED_TOTAL, "kind" => kind.code()).increment(1);
}
