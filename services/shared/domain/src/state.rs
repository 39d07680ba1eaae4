//! One owner's memory: the full fold's state, and what can be read from it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::attribute::Attributes;
use crate::ids::{ErasureId, EventTag, Hash, MemoryId, OwnerKey, SourceTag};
use crate::input::{Consent, Target, Task, Verdict};
use crate::line::LineKey;
use crate::memory::{Claim, Kind, Memory, Standing, Status};
use crate::owner::{Owner, Scope};
use crate::time::Timestamp;
use crate::transition::{Mark, Review};

/// Which input set a value; erasing the input takes the value back.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct CausedBy {
    pub event: EventTag,
    pub source: SourceTag,
}

/// A value with its cause and the decision that recorded it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Held<T> {
    pub value: T,
    pub by: CausedBy,
    pub recorded_from: u64,
    pub recorded_to: Option<u64>,
    /// What ended it (a withdrawal, for a grant).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub closed_by: Option<CausedBy>,
}

/// A claim with everything that was decided about it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Entry {
    pub id: MemoryId,
    /// The owner's sequence number of the decision that asserted it.
    pub seq: u64,
    /// The owner's sequence number of the last decision that names it.
    pub version: u64,
    pub recorded_at: Timestamp,
    pub claim: Arc<Claim>,
    pub marks: Vec<Held<Mark>>,
    pub standing: Standing,
    /// What set the standing last.
    pub standing_by: CausedBy,
    pub accesses: Vec<Held<Access>>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Access {
    pub count: u32,
    pub last_at: Timestamp,
}

impl Entry {
    fn last_mark<T>(&self, pick: impl Fn(&Mark) -> Option<T>) -> Option<T> {
        self.marks.iter().rev().find_map(|held| pick(&held.value))
    }

    pub fn ended_at(&self) -> Option<Timestamp> {
        self.last_mark(|mark| match mark {
            Mark::Ended { at } => Some(*at),
            Mark::Retired
            | Mark::Archived
            | Mark::Restored
            | Mark::Restricted
            | Mark::Unrestricted
            | Mark::Reviewed(_)
            | Mark::Corrected { .. } => None,
        })
    }

    /// The latest review, whatever it said.
    pub fn review(&self) -> Option<&Review> {
        self.marks.iter().rev().find_map(|held| match &held.value {
            Mark::Reviewed(review) => Some(&**review),
            Mark::Ended { .. }
            | Mark::Retired
            | Mark::Archived
            | Mark::Restored
            | Mark::Restricted
            | Mark::Unrestricted
            | Mark::Corrected { .. } => None,
        })
    }

    /// What a person decided; none when it was opened again since.
    pub fn verdict(&self) -> Option<Verdict> {
        self.review()
            .map(|review| review.verdict)
            .filter(|verdict| *verdict != Verdict::Reopen)
    }

    /// The memory that replaced this very one by command; it may stand on another line.
    pub fn corrected_by(&self) -> Option<MemoryId> {
        self.last_mark(|mark| match mark {
            Mark::Corrected { by } => Some(*by),
            Mark::Ended { .. }
            | Mark::Retired
            | Mark::Archived
            | Mark::Restored
            | Mark::Restricted
            | Mark::Unrestricted
            | Mark::Reviewed(_) => None,
        })
    }

    /// The rule that took the claim off its line as never true.
    pub fn retired_by(&self) -> Option<&'static str> {
        match self.verdict() {
            Some(Verdict::KeepOld) => return Some("review_keep_old"),
            Some(Verdict::Retire) => return Some("review_retire"),
            Some(Verdict::TakeNew | Verdict::KeepBoth | Verdict::Admit | Verdict::Reopen)
            | None => (),
        }
        self.marks
            .iter()
            .any(|held| held.value == Mark::Retired)
            .then_some("retired")
    }

    /// Archived or restricted: still true, not recalled.
    pub fn hidden_as(&self) -> Option<Status> {
        let restricted = self.last_mark(|mark| match mark {
            Mark::Restricted => Some(true),
            Mark::Unrestricted => Some(false),
            Mark::Ended { .. }
            | Mark::Retired
            | Mark::Archived
            | Mark::Restored
            | Mark::Reviewed(_)
            | Mark::Corrected { .. } => None,
        });
        let archived = self.last_mark(|mark| match mark {
            Mark::Archived => Some(true),
            Mark::Restored => Some(false),
            Mark::Ended { .. }
            | Mark::Retired
            | Mark::Restricted
            | Mark::Unrestricted
            | Mark::Reviewed(_)
            | Mark::Corrected { .. } => None,
        });
        if restricted == Some(true) {
            Some(Status::Restricted)
        } else if archived == Some(true) {
            Some(Status::Archived)
        } else {
            None
        }
    }
}

/// An input that was decided.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Seen {
    /// `None` once the input is erased.
    pub content: Option<Hash>,
    pub source: SourceTag,
    /// The message whose words the input uses, when it is not the input itself: an admission goes with
    /// the message whose candidate it admits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub of: Option<CausedBy>,
}

impl Seen {
    /// The words are gone, and with them what they were taken from.
    pub(crate) fn forget(&mut self) {
        self.content = None;
        self.of = None;
    }
}

/// "Erased on D under R".
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Erasure {
    pub erasure: ErasureId,
    pub target: Target,
    pub memory_ids: Vec<MemoryId>,
    pub recorded_at: Timestamp,
    pub offset: u64,
}

/// Everything that is believed about one owner, by the decisions so far.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct OwnerState {
    pub key: OwnerKey,
    /// In words, as the latest readable decision says; `None` once erased.
    pub owner: Option<Owner>,
    pub seq: u64,
    /// Hash of the latest decision record.
    pub head: Hash,
    /// Key epochs up to this one are closed.
    pub closed_through: u32,
    pub claims: BTreeMap<MemoryId, Entry>,
    pub events: BTreeMap<EventTag, Seen>,
    pub consents: Vec<Held<Consent>>,
    /// Every state of each task, the current one last.
    pub tasks: BTreeMap<String, Vec<Held<Task>>>,
    /// Ids whose text is gone.
    pub erased: BTreeSet<MemoryId>,
    pub erasures: Vec<Erasure>,
    /// Derived from `claims`; not part of the state's identity.
    #[serde(skip)]
    pub lines: BTreeMap<LineKey, BTreeSet<MemoryId>>,
}

impl OwnerState {
    pub fn new(key: OwnerKey) -> Self {
        Self {
            key,
            owner: None,
            seq: 0,
            head: Hash::NONE,
            closed_through: 0,
            claims: BTreeMap::new(),
            events: BTreeMap::new(),
            consents: Vec::new(),
            tasks: BTreeMap::new(),
            erased: BTreeSet::new(),
            erasures: Vec::new(),
            lines: BTreeMap::new(),
        }
    }

    /// Claims of one line, in id order.
    pub fn line(&self, key: &LineKey) -> Vec<&Entry> {
        let ids = self.lines.get(key);
        ids.into_iter()
            .flatten()
            .filter_map(|id| self.claims.get(id))
            .collect()
    }

    /// The lines that have to be derived with this one: all lines of the attribute, where something was
    /// said of everything that it could hold, or where one record said different things of it. `new` are
    /// claims that are about to be, with their lines.
    pub fn lines_beside(&self, key: &LineKey, new: &[(LineKey, &Entry)]) -> BTreeSet<LineKey> {
        let mut beside = BTreeSet::from([key.clone()]);
        let Some(group) = key.group() else {
            return beside;
        };
        let is_of_group =
            |key: &LineKey| key.subject == group.subject && key.head.starts_with(&group.head);
        let known = || {
            let from = self.lines.range(group.clone()..);
            from.take_while(|(key, _)| is_of_group(key))
        };
        let fresh = || new.iter().filter(|(key, _)| is_of_group(key));
        let entries = || {
            let known = known().flat_map(|(key, ids)| ids.iter().map(move |id| (key, id)));
            let known = known.filter_map(|(key, id)| Some((key, self.claims.get(id)?)));
            known.chain(fresh().map(|(key, entry)| (key, *entry)))
        };
        let is_there = |blanket: &LineKey| {
            self.lines.contains_key(blanket) || fresh().any(|(key, _)| key == blanket)
        };
        let own: BTreeSet<(SourceTag, &str)> = self
            .line(key)
            .into_iter()
            .chain(fresh().filter(|(of, _)| of == key).map(|(_, entry)| *entry))
            .filter_map(|entry| entry.claim.source.record())
            .collect();
        let is_shared = |(of, entry): (&LineKey, &Entry)| {
            let record = entry.claim.source.record();
            of != key && record.is_some_and(|record| own.contains(&record))
        };
        if key.blankets().iter().any(is_there) || (!own.is_empty() && entries().any(is_shared)) {
            beside.extend(known().map(|(key, _)| key.clone()));
            beside.extend(fresh().map(|(key, _)| key.clone()));
        }
        beside
    }

    /// Whether a memory of `kind` may be stored and used at `at`.
    pub fn consents_to(&self, kind: Kind, attributes: &Attributes, at: Timestamp) -> bool {
        let sensitivity = attributes.kind(kind).sensitivity;
        self.consents
            .iter()
            .any(|held| held.recorded_to.is_none() && held.value.covers(kind, sensitivity, at))
    }

    /// Policies and lessons are not about a person; nobody has to agree to them.
    pub fn needs_consent(owner: &Owner) -> bool {
        owner.scope() == Scope::Patient
    }

    /// Claims that say the same as `id` and are represented by it.
    pub fn confirming(&self, id: MemoryId) -> Vec<&Entry> {
        let Some(entry) = self.claims.get(&id) else {
            return Vec::new();
        };
        let key = LineKey::of(id, &entry.claim, Attributes::shipped());
        self.line(&key)
            .into_iter()
            .filter(|other| other.standing.confirms == Some(id))
            .collect()
    }

    /// The memory as callers see it.
    pub fn memory(&self, id: MemoryId) -> Option<Memory> {
        let attributes = Attributes::shipped();
        let entry = self.claims.get(&id)?;
        let line = self.line(&LineKey::of(id, &entry.claim, attributes));
        let mut supersedes = Vec::new();
        let mut confirmations = 0;
        let mut last_verified_at = None;
        for other in line {
            if other.standing.superseded_by == Some(id) && other.standing.confirms.is_none() {
                supersedes.push(other.id);
            }
            if other.standing.confirms == Some(id) {
                confirmations += 1;
                last_verified_at = last_verified_at.max(Some(other.claim.source.at));
            }
        }
        Some(Memory {
            id,
            version: entry.version,
            claim: (*entry.claim).clone(),
            standing: entry.standing.clone(),
            protected: attributes.kind(entry.claim.kind).protected,
            supersedes,
            recorded_at: entry.recorded_at,
            last_verified_at,
            confirmations,
            access_count: entry
                .accesses
                .iter()
                .map(|held| u64::from(held.value.count))
                .sum(),
            last_accessed_at: entry.accesses.iter().map(|held| held.value.last_at).max(),
            review: entry.review().cloned(),
        })
    }

    /// Whether a consent record would become unreadable: what was agreed to must stay provable, so only
    /// an erasure of the whole owner takes it.
    pub fn holds_consent_of(&self, target: &Target) -> bool {
        self.consents.iter().any(|held| {
            Self::is_erased_cause(target, held.by)
                || held
                    .closed_by
                    .is_some_and(|by| Self::is_erased_cause(target, by))
        })
    }

    /// Whether an erasure of `target` (with these memories) makes what `by` set unreadable.
    pub fn is_erased_cause(target: &Target, by: CausedBy) -> bool {
        match target {
            Target::Memories(_) => false,
            Target::Message(event) => by.event == *event,
            Target::Source(source) => by.source == *source,
            Target::Owner => true,
        }
    }

    /// Every claim that an erasure of `target` takes away: for single memories also what confirms them
    /// and the turns that said them.
    pub fn claims_of(&self, target: &Target) -> BTreeSet<MemoryId> {
        match target {
            Target::Memories(ids) => {
                let mut all: BTreeSet<MemoryId> = BTreeSet::new();
                for id in ids {
                    if self.claims.contains_key(id) {
                        all.insert(*id);
                        all.extend(self.confirming(*id).iter().map(|entry| entry.id));
                    }
                }
                let events: BTreeSet<EventTag> = all
                    .iter()
                    .filter_map(|id| self.claims.get(id))
                    .map(|e| e.claim.source.event)
                    .collect();
                let episodes = self.claims.values().filter(|entry| {
                    entry.claim.kind == Kind::Episode && events.contains(&entry.claim.source.event)
                });
                all.extend(episodes.map(|entry| entry.id));
                all
            }
            Target::Message(_) | Target::Source(_) | Target::Owner => self
                .claims
                .values()
                .filter(|entry| Self::is_erased_cause(target, entry.asserted_by()))
                .map(|entry| entry.id)
                .collect(),
        }
    }
}

impl Entry {
    pub fn asserted_by(&self) -> CausedBy {
        CausedBy {
            event: self.claim.source.event,
            source: self.claim.source.source_tag,
        }
    }
}
