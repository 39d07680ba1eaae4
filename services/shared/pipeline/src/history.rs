//! What the stores should hold of an owner: versions, decisions and the owner's view, out of the fold.
//! Pure; the live indexer, a rebuild and `audit diff` all use it.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::stores::{
    DecisionRow, ErasureRow, MemoryVersion, OwnerRows, OwnerView, RecordedConsent,
};
use anamnesis_domain::evolve::{Recorded, erases_owner, evolve};
use anamnesis_domain::ids::{MemoryId, OwnerKey};
use anamnesis_domain::input::Target;
use anamnesis_domain::state::OwnerState;
use anamnesis_domain::transition::{Decided, PartBody, Transition};

/// The versions that one applied decision makes.
pub fn versions(state: &OwnerState, named: &[MemoryId], recorded: Recorded) -> Vec<MemoryVersion> {
    named
        .iter()
        .filter_map(|id| state.memory(*id))
        .map(|memory| MemoryVersion {
            owner: state.key,
            memory,
            recorded_from: recorded.offset,
            recorded_to: None,
            recorded_at: recorded.at,
        })
        .collect()
}

pub fn decision_row(decided: &Decided, recorded: Recorded) -> DecisionRow {
    DecisionRow {
        owner: decided.owner,
        owner_seq: decided.owner_seq,
        offset: recorded.offset,
        hash: recorded.hash,
        recorded_at: recorded.at,
        outcome: decided.outcome.code(),
        event: decided.cause.event,
        cause: decided.cause.position,
        origin: decided.cause.origin,
        memory_ids: decided
            .parts
            .iter()
            .filter(|part| matches!(part.code.as_str(), "memory_asserted" | "memory_confirmed"))
            .filter_map(|part| part.memory_id)
            .collect(),
    }
}

pub fn owner_view(state: &OwnerState) -> OwnerView {
    OwnerView {
        key: state.key,
        owner: state.owner.clone(),
        owner_seq: state.seq,
        head: state.head,
        consents: state
            .consents
            .iter()
            .map(|held| RecordedConsent {
                consent: held.value.clone(),
                recorded_from: held.recorded_from,
                recorded_to: held.recorded_to,
            })
            .collect(),
        tasks: state
            .tasks
            .iter()
            .filter_map(|(id, states)| Some((id.clone(), states.last()?.value.clone())))
            .collect(),
        closed_through: state.closed_through,
        erasures: state
            .erasures
            .iter()
            .map(|erasure| ErasureRow {
                erasure: erasure.erasure,
                target: erasure.target.clone(),
                memory_ids: erasure.memory_ids.clone(),
                recorded_at: erasure.recorded_at,
                offset: erasure.offset,
            })
            .collect(),
    }
}

/// The erasures that a decision asks for.
pub fn erasures(decided: &Decided) -> Vec<(anamnesis_domain::ids::ErasureId, Target)> {
    let mut found = Vec::new();
    for part in &decided.parts {
        if let PartBody::Open(transition) = &part.body
            && let Transition::Erased {
                erasure, target, ..
            } = &**transition
        {
            found.push((*erasure, target.clone()));
        }
    }
    debug_assert!(!erases_owner(decided) || !found.is_empty());
    found
}

/// One owner's whole history, folded decision by decision.
pub struct History {
    pub state: OwnerState,
    versions: BTreeMap<MemoryId, Vec<MemoryVersion>>,
    decisions: Vec<DecisionRow>,
}

impl History {
    pub fn new(owner: OwnerKey) -> Self {
        Self {
            state: OwnerState::new(owner),
            versions: BTreeMap::new(),
            decisions: Vec::new(),
        }
    }

    /// Applies one decision that the skeleton accepted.
    pub fn apply(&mut self, decided: &Decided, recorded: Recorded) {
        let named = evolve(&mut self.state, decided, recorded);
        self.decisions.push(decision_row(decided, recorded));
        for version in versions(&self.state, &named, recorded) {
            let history = self.versions.entry(version.memory.id).or_default();
            if let Some(open) = history.last_mut() {
                open.recorded_to = Some(recorded.offset);
            }
            history.push(version);
        }
        let state = &self.state;
        self.versions.retain(|id, _| state.claims.contains_key(id));
    }

    /// What every store should hold of the owner. `vector` looks up what was embedded.
    pub fn rows(self, vector: impl Fn(MemoryId) -> Option<Arc<[f32]>>) -> OwnerRows {
        let view = owner_view(&self.state);
        let mut versions = Vec::new();
        for (id, history) in self.versions {
            let vector = vector(id);
            versions.extend(
                history
                    .into_iter()
                    .map(|version| (Arc::new(version), vector.clone())),
            );
        }
        OwnerRows {
            owner: self.state.key,
            versions,
            decisions: self.decisions,
            view,
        }
    }

    /// Memories that the owner has now, for looking up what goes with them.
    pub fn memory_ids(&self) -> Vec<MemoryId> {
        self.versions.keys().copied().collect()
    }
}
