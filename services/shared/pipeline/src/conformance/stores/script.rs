//! Histories for the suites: decisions of several owners in order, what they change, and what a store
//! should hold afterwards, kept by the plainest possible code.

use std::collections::BTreeMap;
use std::sync::Arc;

use anamnesis_domain::ids::{ErasureId, EventTag, Hash, MemoryId, OwnerKey, SourceTag};
use anamnesis_domain::input::{Position, Target, Topic};
use anamnesis_domain::memory::{
    Claim, Entity, EntityKind, Intent, Kind, Memory, Permille, Polarity, Role, Source, Standing,
    Status,
};
use anamnesis_domain::owner::{Owner, OwnerScope, Scope, Subject};
use anamnesis_domain::text::Text;
use anamnesis_domain::time::{DAY_MS, Timestamp};

use super::draw::Draw;
use super::{LOG_ID, PARTITIONS, model};
use crate::digests;
use crate::feed::Feed;
use crate::stores::{
    Change, Checkpoint, Cut, DecisionRow, ErasureRow, Filter, MemoryVersion, OwnerRows, OwnerView,
    Projection, RowDigest, Store, StoreError, SubjectFilter,
};

/// 2026-01-01T00:00:00Z.
pub const START: Timestamp = Timestamp::from_millis(1_767_225_600_000);

pub fn day(days: i64) -> Timestamp {
    START.plus_millis(days * DAY_MS)
}

/// When the decision at `offset` was recorded: one a minute.
pub fn recorded_at(offset: u64) -> Timestamp {
    START.plus_millis(offset as i64 * 60_000)
}

pub fn owner(number: u8) -> OwnerKey {
    OwnerKey::from_bytes([number; 16])
}

pub fn scope(number: u8) -> OwnerScope {
    OwnerScope::of_log_record(owner(number))
}

pub fn id(number: u8) -> MemoryId {
    MemoryId::from_bytes([number; 16])
}

pub fn entity(kind: EntityKind, name: &str) -> Entity {
    Entity {
        kind,
        name: Text::new(name),
    }
}

/// The entity that every [`memory`] has.
pub fn peanut() -> Entity {
    entity(EntityKind::Allergen, "peanut")
}

/// An active fact about the owner that holds from [`START`] on. All of these share the words `peanut`
/// and `花生` and the entity [`peanut`].
pub fn memory(number: u8, text: &str) -> Memory {
    let text = format!("peanut 花生 {text}");
    let event = EventTag::from_bytes([number; 16]);
    Memory {
        id: id(number),
        version: 0,
        claim: Claim {
            subject: Subject::Self_,
            kind: Kind::Fact,
            text: Text::new(text),
            attribute: None,
            value: None,
            quantity: None,
            schedule: None,
            polarity: Polarity::Positive,
            intent: Intent::Assert,
            quote: None,
            entities: vec![peanut()],
            valid_from: START,
            valid_to: None,
            importance: Permille::new(625),
            confidence: Permille::new(950),
            explicit: false,
            namespace: None,
            key: None,
            context_tags: Vec::new(),
            language: "en".to_owned(),
            source: Source {
                event,
                source_tag: SourceTag::from_bytes([1; 16]),
                source: "ward/东区".to_owned(),
                event_id: format!("E-{number}"),
                conversation_id: None,
                turn_id: None,
                message_id: None,
                role: Role::User,
                speaker: None,
                at: START,
                zone_minutes: 480,
                extractor: "rules".to_owned(),
                model: None,
                prompt_version: None,
            },
        },
        standing: Standing {
            status: Status::Active,
            valid_from: START,
            valid_to: None,
            superseded_by: None,
            conflict_with: None,
            confirms: None,
            rule: "new".to_owned(),
        },
        protected: false,
        supersedes: Vec::new(),
        recorded_at: START,
        last_verified_at: None,
        confirmations: 0,
        access_count: 0,
        last_accessed_at: None,
        review: None,
    }
}

/// The same with changes.
pub fn memory_with(number: u8, text: &str, change: impl FnOnce(&mut Memory)) -> Memory {
    let mut memory = memory(number, text);
    change(&mut memory);
    memory
}

/// What remains of an erased memory: no word of it.
fn erased(number: MemoryId) -> Memory {
    memory_with(0, "", |memory| {
        memory.id = number;
        memory.claim.text = Text::default();
        memory.claim.entities.clear();
        memory.standing.status = Status::Erased;
    })
}

/// A unit vector that depends on the text alone; none for an empty text.
pub fn vector_of(text: &str) -> Option<Arc<[f32]>> {
    if text.is_empty() {
        return None;
    }
    let hash = Hash::of(text.as_bytes()).0;
    let mut draw = Draw::new(u64::from_le_bytes(
        hash[..8].try_into().expect("eight bytes"),
    ));
    let raw: Vec<f32> = (0..model().dimension)
        .map(|_| draw.below(2001) as f32 / 1000.0 - 1.0)
        .collect();
    let length = raw.iter().map(|x| x * x).sum::<f32>().sqrt();
    Some(raw.iter().map(|x| x / length).collect())
}

/// Everything of an owner that is live at `cut`, whatever it is.
pub fn everything(owner: u8, cut: u64) -> Filter {
    Filter {
        scope: scope(owner),
        cut: Cut(cut),
        valid_at: None,
        time_range: None,
        kinds: None,
        statuses: Status::ALL.to_vec(),
        subject: SubjectFilter::Any,
        context_tags: None,
    }
}

/// What one decision changes.
struct Step {
    partition: u32,
    offset: u64,
    changes: Vec<Change>,
}

/// A batch as the indexer hands it over.
#[derive(Clone)]
pub struct OwnedBatch {
    pub partition: u32,
    pub from: u64,
    pub changes: Vec<Change>,
    pub next: Checkpoint,
}

impl OwnedBatch {
    pub async fn apply<S: Projection + ?Sized>(&self, store: &S) -> Result<(), StoreError> {
        store
            .apply(self.partition, self.from, &self.changes, self.next)
            .await
    }
}

/// Decisions in order, and what a store should hold after them.
pub struct Script {
    feed: Feed,
    /// Not taken yet.
    steps: Vec<Step>,
    /// Where the last batch of a partition ended.
    taken: BTreeMap<u32, u64>,
    ends: BTreeMap<u32, u64>,
    rows: BTreeMap<OwnerKey, OwnerRows>,
}

impl Default for Script {
    fn default() -> Self {
        Self {
            feed: Feed {
                log_id: LOG_ID,
                partitions: PARTITIONS,
            },
            steps: Vec::new(),
            taken: BTreeMap::new(),
            ends: BTreeMap::new(),
            rows: BTreeMap::new(),
        }
    }
}

impl Script {
    pub fn partition_of(&self, number: u8) -> u32 {
        self.feed.partition_of(owner(number))
    }

    /// The first offset after everything decided in the owner's partition.
    pub fn end(&self, number: u8) -> u64 {
        self.ends
            .get(&self.partition_of(number))
            .copied()
            .unwrap_or(1)
    }

    /// One decision that makes a version of each memory. Gives its offset.
    pub fn decide(&mut self, number: u8, memories: Vec<Memory>) -> u64 {
        let (offset, owner_seq) = self.begin(number);
        let rows = self.rows.get_mut(&owner(number)).expect("begun");
        let memory_ids = memories.iter().map(|memory| memory.id).collect();
        let mut changes = Vec::new();
        for mut memory in memories {
            memory.version = owner_seq;
            for (earlier, _) in &mut rows.versions {
                if earlier.memory.id == memory.id && earlier.recorded_to.is_none() {
                    Arc::make_mut(earlier).recorded_to = Some(offset);
                }
            }
            let vector = vector_of(memory.claim.text.expose());
            let version = Arc::new(MemoryVersion {
                owner: owner(number),
                memory,
                recorded_from: offset,
                recorded_to: None,
                recorded_at: recorded_at(offset),
            });
            rows.versions.push((version.clone(), vector.clone()));
            changes.push(Change::Version { version, vector });
        }
        let row = decision(number, owner_seq, offset, memory_ids);
        rows.decisions.push(row.clone());
        rows.view.owner_seq = owner_seq;
        rows.view.head = row.hash;
        changes.push(Change::Decision(row));
        changes.push(Change::Owner(Box::new(rows.view.clone())));
        self.steps.push(Step {
            partition: self.partition_of(number),
            offset,
            changes,
        });
        offset
    }

    /// One decision that erases these memories: of each, a version without a word remains.
    pub fn erase(&mut self, number: u8, ids: &[MemoryId]) -> u64 {
        let (offset, owner_seq) = self.begin(number);
        let rows = self.rows.get_mut(&owner(number)).expect("begun");
        rows.versions
            .retain(|(version, _)| !ids.contains(&version.memory.id));
        for id in ids {
            let mut memory = erased(*id);
            memory.version = owner_seq;
            let version = MemoryVersion {
                owner: owner(number),
                memory,
                recorded_from: offset,
                recorded_to: None,
                recorded_at: recorded_at(offset),
            };
            rows.versions.push((Arc::new(version), None));
        }
        let row = decision(number, owner_seq, offset, ids.to_vec());
        rows.decisions.push(row.clone());
        rows.view.owner_seq = owner_seq;
        rows.view.head = row.hash;
        rows.view.erasures.push(ErasureRow {
            erasure: ErasureId::from_bytes([number; 16]),
            target: Target::Memories(ids.to_vec()),
            memory_ids: ids.to_vec(),
            recorded_at: recorded_at(offset),
            offset,
        });
        let changes = vec![Change::Rewrite(Box::new(rows.clone()))];
        self.steps.push(Step {
            partition: self.partition_of(number),
            offset,
            changes,
        });
        offset
    }

    fn begin(&mut self, number: u8) -> (u64, u64) {
        let end = self
            .ends
            .entry(self.feed.partition_of(owner(number)))
            .or_insert(1);
        let offset = *end;
        *end += 1;
        let rows = self
            .rows
            .entry(owner(number))
            .or_insert_with(|| new_rows(number));
        (offset, rows.decisions.len() as u64 + 1)
    }

    /// What was decided since the last call, in batches of at most `steps_max` decisions. Partitions
    /// take turns by what was decided first, as consumers of several partitions do.
    pub fn take(&mut self, steps_max: usize) -> Vec<OwnedBatch> {
        let mut by_partition: BTreeMap<u32, Vec<Step>> = BTreeMap::new();
        for step in std::mem::take(&mut self.steps) {
            by_partition.entry(step.partition).or_default().push(step);
        }
        let mut batches = Vec::new();
        for (partition, steps) in by_partition {
            let mut steps = steps.into_iter().peekable();
            while steps.peek().is_some() {
                let from = self.taken.get(&partition).copied().unwrap_or(0);
                let mut next = from;
                let mut changes = Vec::new();
                for step in steps.by_ref().take(steps_max) {
                    next = step.offset + 1;
                    changes.extend(step.changes);
                }
                self.taken.insert(partition, next);
                let next = Checkpoint {
                    log_id: LOG_ID,
                    next,
                };
                batches.push(OwnedBatch {
                    partition,
                    from,
                    changes,
                    next,
                });
            }
        }
        batches
    }

    /// Applies what was decided since the last call, each decision as a batch of its own.
    pub async fn play<S: Projection + ?Sized>(&mut self, store: &S) {
        for batch in self.take(1) {
            batch
                .apply(store)
                .await
                .expect("the batch follows the checkpoint");
        }
    }

    pub fn owners(&self) -> Vec<OwnerKey> {
        self.rows.keys().copied().collect()
    }

    pub fn rows_of(&self, number: u8) -> &OwnerRows {
        &self.rows[&owner(number)]
    }

    /// What `store` should hold of an owner.
    pub fn expected(&self, store: Store, owner: OwnerKey) -> Vec<RowDigest> {
        self.rows
            .get(&owner)
            .map_or_else(Vec::new, |rows| digests::expected_rows(store, rows))
    }
}

fn new_rows(number: u8) -> OwnerRows {
    let words = Owner::new("hospital-7", Scope::Patient, &format!("p-{number}"));
    OwnerRows {
        owner: owner(number),
        versions: Vec::new(),
        decisions: Vec::new(),
        view: OwnerView {
            key: owner(number),
            owner: Some(words.expect("a plain id")),
            owner_seq: 0,
            head: Hash::NONE,
            consents: Vec::new(),
            tasks: BTreeMap::new(),
            closed_through: 0,
            erasures: Vec::new(),
        },
    }
}

fn decision(number: u8, owner_seq: u64, offset: u64, memory_ids: Vec<MemoryId>) -> DecisionRow {
    let position = Position {
        topic: Topic::Candidates,
        partition: 0,
        offset,
    };
    DecisionRow {
        owner: owner(number),
        owner_seq,
        offset,
        hash: Hash::of(&[number, owner_seq as u8, offset as u8]),
        recorded_at: recorded_at(offset),
        outcome: "stored".to_owned(),
        event: event(owner_seq),
        cause: position,
        origin: position,
        memory_ids,
    }
}

/// The event that an owner's decision of this sequence number answers. The same for all owners, so
/// that a store which forgets the owner is found.
pub fn event(owner_seq: u64) -> EventTag {
    EventTag::from_bytes([owner_seq as u8; 16])
}
