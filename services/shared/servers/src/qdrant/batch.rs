//! What is each point after a batch? Worked out before anything is sent, so that every point is
//! written once, as it stands at the batch's end.

use std::collections::BTreeMap;
use std::sync::Arc;

use anamnesis_domain::ids::{MemoryId, OwnerKey};
use anamnesis_pipeline::stores::{Change, Facets, MemoryVersion};

use super::row::VersionId;

/// A point after the batch.
#[derive(Clone, PartialEq, Debug)]
pub(super) enum After {
    Version {
        facets: Facets,
        vector: Arc<[f32]>,
    },
    /// The batch made it and took it away again, or an erasure took what was stored.
    Tombstone,
}

/// Versions of a memory older than `below` that are open are over at `at`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Closing {
    below: u64,
    at: u64,
}

#[derive(Default)]
pub(super) struct Effects {
    pub(super) points: BTreeMap<VersionId, After>,
    /// Owners of whom the store must hold exactly what is in `points`, and the offset behind the last
    /// decision that asked for it.
    pub(super) rewritten: BTreeMap<OwnerKey, u64>,
    /// For versions that are stored already, in the order of the batch.
    pub(super) closings: BTreeMap<(OwnerKey, MemoryId), Vec<Closing>>,
}

impl Effects {
    pub(super) fn of(changes: &[Change]) -> Self {
        let mut effects = Self::default();
        for change in changes {
            match change {
                Change::Version { version, vector } => {
                    effects.close(version);
                    effects.insert(version, vector.as_ref());
                }
                Change::Rewrite(rows) => {
                    let last = rows.decisions.iter().map(|decision| decision.offset).max();
                    effects.forget(rows.owner, last.map_or(0, |last| last + 1));
                    for (version, vector) in &rows.versions {
                        effects.insert(version, vector.as_ref());
                    }
                }
                Change::Decision(_) | Change::Owner(_) => (),
            }
        }
        effects
    }

    fn close(&mut self, version: &MemoryVersion) {
        let id = id_of(version);
        let first = VersionId { version: 0, ..id };
        for (_, after) in self.points.range_mut(first..id) {
            match after {
                After::Version { facets, .. } if facets.recorded_to.is_none() => {
                    facets.recorded_to = Some(version.recorded_from);
                }
                After::Version { .. } | After::Tombstone => (),
            }
        }
        // All that is stored of a rewritten owner is in `points`, or becomes a tombstone.
        if !self.rewritten.contains_key(&id.owner) {
            let closing = Closing {
                below: id.version,
                at: version.recorded_from,
            };
            self.closings
                .entry((id.owner, id.memory))
                .or_default()
                .push(closing);
        }
    }

    fn insert(&mut self, version: &MemoryVersion, vector: Option<&Arc<[f32]>>) {
        let Some(vector) = vector else { return };
        let after = After::Version {
            facets: version.facets(),
            vector: vector.clone(),
        };
        self.points.insert(id_of(version), after);
    }

    fn forget(&mut self, owner: OwnerKey, rewritten: u64) {
        let mine = self.points.iter_mut().filter(|(id, _)| id.owner == owner);
        mine.for_each(|(_, after)| *after = After::Tombstone);
        self.closings.retain(|(of, _), _| *of != owner);
        self.rewritten.insert(owner, rewritten);
    }

    /// When a stored, open version is over; `None` for one that stays as it is.
    pub(super) fn closes(&self, stored: VersionId) -> Option<u64> {
        if self.points.contains_key(&stored) {
            return None;
        }
        let closings = self.closings.get(&(stored.owner, stored.memory))?;
        let first = closings
            .iter()
            .find(|closing| stored.version < closing.below)?;
        Some(first.at)
    }
}

fn id_of(version: &MemoryVersion) -> VersionId {
    VersionId {
        owner: version.owner,
        memory: version.memory.id,
        version: version.memory.version,
    }
}
