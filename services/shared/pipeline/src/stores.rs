//! The four projections and what recall asks of them. Stores are caches of a fold: any of them can be
//! deleted at any time and comes back equal.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use anamnesis_domain::ids::{ErasureId, EventTag, Hash, LogId, MemoryId, OwnerKey};
use anamnesis_domain::input::{Consent, Position, Target, Task};
use anamnesis_domain::memory::{Entity, Kind, Memory, Status};
use anamnesis_domain::owner::{Owner, OwnerScope, Subject};
use anamnesis_domain::time::{AsOf, Interval, Known, Timestamp};
use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use crate::embedder::ModelIdentity;

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Store {
    /// The authority: every fused hit is checked against it.
    Records,
    Text,
    Vectors,
    Graph,
}

impl Store {
    pub const ALL: [Self; 4] = [Self::Records, Self::Text, Self::Vectors, Self::Graph];

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Records => "records",
            Self::Text => "text",
            Self::Vectors => "vectors",
            Self::Graph => "graph",
        }
    }

    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|store| store.as_str() == text)
    }
}

impl fmt::Display for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Where a store stands in one partition of `memories`; kept in the same atomic step as the data.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Checkpoint {
    pub log_id: LogId,
    /// The first offset that is not applied.
    pub next: u64,
}

/// What every store keeps beside a version so that the hard filter is applied inside it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Facets {
    /// Offset of the decision that made this version.
    pub recorded_from: u64,
    /// Offset of the decision that replaced it.
    pub recorded_to: Option<u64>,
    pub valid_from: Timestamp,
    pub valid_to: Option<Timestamp>,
    pub subject: Subject,
    pub kind: Kind,
    pub status: Status,
    pub context_tags: Vec<String>,
    /// Claims that only confirm another memory are kept for history and never recalled on their own.
    pub is_confirmation: bool,
}

/// One version of one memory: what was believed between two decisions.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct MemoryVersion {
    pub owner: OwnerKey,
    pub memory: Memory,
    pub recorded_from: u64,
    pub recorded_to: Option<u64>,
    /// Recorded time of `recorded_from`: the running maximum of the append time.
    pub recorded_at: Timestamp,
}

impl MemoryVersion {
    pub fn facets(&self) -> Facets {
        let standing = &self.memory.standing;
        Facets {
            recorded_from: self.recorded_from,
            recorded_to: self.recorded_to,
            valid_from: standing.valid_from,
            valid_to: standing.valid_to,
            subject: self.memory.claim.subject.clone(),
            kind: self.memory.claim.kind,
            status: standing.status,
            context_tags: self.memory.claim.context_tags.clone(),
            is_confirmation: standing.confirms.is_some(),
        }
    }
}

/// One decision, as the authority remembers it: satisfies tokens, maps recorded time to offsets, and
/// lets one owner be folded without a scan.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct DecisionRow {
    pub owner: OwnerKey,
    pub owner_seq: u64,
    pub offset: u64,
    /// Hash of the record's payload: the next record's `prev_hash`.
    pub hash: Hash,
    pub recorded_at: Timestamp,
    pub outcome: String,
    pub event: EventTag,
    pub cause: Position,
    pub origin: Position,
    pub memory_ids: Vec<MemoryId>,
}

/// What is known of an owner as a whole. One row per owner, replaced when it changes.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct OwnerView {
    pub key: OwnerKey,
    /// In words; `None` once erased.
    pub owner: Option<Owner>,
    pub owner_seq: u64,
    pub head: Hash,
    pub consents: Vec<RecordedConsent>,
    pub tasks: BTreeMap<String, Task>,
    /// Key epochs up to this one are closed.
    pub closed_through: u32,
    pub erasures: Vec<ErasureRow>,
}

/// A grant with the recorded interval in which it was known; a withdrawal ends it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct RecordedConsent {
    pub consent: Consent,
    pub recorded_from: u64,
    pub recorded_to: Option<u64>,
}

/// "Erased on D under R", in place of absence.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ErasureRow {
    pub erasure: ErasureId,
    pub target: Target,
    pub memory_ids: Vec<MemoryId>,
    pub recorded_at: Timestamp,
    pub offset: u64,
}

/// One change that a projection applies. The same list goes to all four; each takes what it holds.
#[derive(Clone, Debug)]
pub enum Change {
    /// A new version; it closes the version before it (of the same memory) at its `recorded_from`.
    Version {
        version: Arc<MemoryVersion>,
        /// Present when a vectors store is among the projections and the version has text to find.
        vector: Option<Arc<[f32]>>,
    },
    Decision(DecisionRow),
    Owner(Box<OwnerView>),
    /// After an erasure: what the store holds of this owner becomes exactly this, and nothing of what
    /// was there before stays readable in it.
    Rewrite(Box<OwnerRows>),
}

/// A version, and what was embedded of its text.
pub type VersionWithVector = (Arc<MemoryVersion>, Option<Arc<[f32]>>);

/// Everything of one owner, refolded from the log.
#[derive(Clone, Debug)]
pub struct OwnerRows {
    pub owner: OwnerKey,
    pub versions: Vec<VersionWithVector>,
    pub decisions: Vec<DecisionRow>,
    pub view: OwnerView,
}

/// One row of a store, reduced to a hash of what the store really holds (not of a hash that it kept),
/// to be compared with what the fold says.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub struct RowDigest {
    /// `m-…/version` for a version; `decision/seq` or `owner` for the rows that only records has.
    pub key: String,
    pub hash: Hash,
}

#[derive(Debug, thiserror::Error, Clone, Serialize, Deserialize)]
pub enum StoreError {
    #[error("{store} is unavailable: {reason}")]
    Unavailable { store: Store, reason: String },
    /// Somebody else wrote from another position: stop and read the checkpoint again.
    #[error("{store} partition {partition} stands at {found}, not {expected}")]
    Moved {
        store: Store,
        partition: u32,
        expected: u64,
        found: u64,
    },
    #[error(
        "{store} belongs to log {found}, not {expected}; rebuild it: anamnesis rebuild --store {store}"
    )]
    OtherLog {
        store: Store,
        expected: LogId,
        found: LogId,
    },
    #[error(
        "{store} was built with {found}, and the configuration names {expected}; rebuild it: \
         anamnesis rebuild --store {store}"
    )]
    OtherModel {
        store: Store,
        expected: ModelIdentity,
        found: ModelIdentity,
    },
    #[error(
        "{store} is damaged or half deleted ({reason}); rebuild it: anamnesis rebuild --store {store}"
    )]
    Damaged { store: Store, reason: String },
    #[error("{what} is in use by another process")]
    InUse { what: String },
    #[error("{what}")]
    Unusable { what: String },
}

impl StoreError {
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Unavailable { .. } => true,
            Self::Moved { .. }
            | Self::OtherLog { .. }
            | Self::OtherModel { .. }
            | Self::Damaged { .. }
            | Self::InUse { .. }
            | Self::Unusable { .. } => false,
        }
    }
}

/// A store that is kept equal to the fold.
///
/// Contract, checked by [`crate::conformance::stores`]:
/// - `apply` is atomic with its checkpoint: after a crash the store stands before or after the batch;
/// - `apply` from another position than the stored one is [`StoreError::Moved`] and changes nothing:
///   `from` must equal the stored `next` (0 when there is none);
/// - applying the same history in batches of any size gives the same rows;
/// - `Version` closes the memory's open version at the new one's `recorded_from`;
/// - after `Rewrite` nothing of the owner is found but what it lists, and after `compact` no byte of
///   the earlier text or vectors is left in the store's files;
/// - `rows` recomputes hashes from what is stored, so that a row altered by hand shows.
#[async_trait]
pub trait Projection: Send + Sync {
    fn store(&self) -> Store;

    async fn checkpoint(&self, partition: u32) -> Result<Option<Checkpoint>, StoreError>;

    async fn apply(
        &self,
        partition: u32,
        from: u64,
        changes: &[Change],
        next: Checkpoint,
    ) -> Result<(), StoreError>;

    /// Every owner that the store holds anything of, ascending.
    async fn owners(&self) -> Result<Vec<OwnerKey>, StoreError>;

    /// Digests of everything the store holds of one owner, ascending by key.
    async fn rows(&self, scope: OwnerScope) -> Result<Vec<RowDigest>, StoreError>;

    /// Rewrites the store's files so that no erased byte is left: physical erasure.
    async fn compact(&self) -> Result<(), StoreError>;
}

/// What a memory's subject must be to answer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum SubjectFilter {
    Any,
    Only(Subject),
}

/// The recorded time asked about, as an offset: decisions below it are known.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub struct Cut(pub u64);

/// The hard filter, applied in every store before scoring and again after fusion.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Filter {
    pub scope: OwnerScope,
    pub cut: Cut,
    /// Valid time asked about; `None` for a history over all of it.
    pub valid_at: Option<Timestamp>,
    /// Only memories that held at some time in this range.
    pub time_range: Option<Interval>,
    pub kinds: Option<Vec<Kind>>,
    pub statuses: Vec<Status>,
    pub subject: SubjectFilter,
    /// Only memories without tags, or with one of these; `None` for no restriction.
    pub context_tags: Option<Vec<String>>,
}

impl Filter {
    /// Whether a version may answer. Every backend gives the same answer as this function.
    pub fn admits(&self, facets: &Facets) -> bool {
        let known = self.is_live(facets);
        let Ok(valid) = Interval::new(facets.valid_from, facets.valid_to) else {
            return false;
        };
        let holds = self.valid_at.is_none_or(|at| valid.contains(at));
        let in_range = self.time_range.is_none_or(|range| range.overlaps(valid));
        let kind = self
            .kinds
            .as_ref()
            .is_none_or(|kinds| kinds.contains(&facets.kind));
        let subject = match &self.subject {
            SubjectFilter::Any => true,
            SubjectFilter::Only(subject) => *subject == facets.subject,
        };
        let tags = facets.context_tags.is_empty()
            || self
                .context_tags
                .as_ref()
                .is_none_or(|asked| facets.context_tags.iter().any(|tag| asked.contains(tag)));
        known
            && holds
            && in_range
            && kind
            && subject
            && tags
            && self.statuses.contains(&facets.status)
            && !facets.is_confirmation
    }

    /// Whether what a turn says may count for the turns beside it: it could answer itself, or would if it
    /// did not repeat another.
    pub fn hears(&self, facets: &Facets) -> bool {
        let itself = Facets {
            is_confirmation: false,
            ..facets.clone()
        };
        self.admits(&itself)
    }

    /// Whether the version was the current one at the cut: the population of the text statistics.
    pub fn is_live(&self, facets: &Facets) -> bool {
        facets.recorded_from < self.cut.0 && facets.recorded_to.is_none_or(|to| to >= self.cut.0)
    }
}

/// What a leg returned: a version, and the leg's own score (higher is better).
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Hit {
    pub memory_id: MemoryId,
    pub version: u64,
    pub score: f64,
}

/// Hits of one leg: descending score, ties by memory id; and how far the store had applied the log.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct LegAnswer {
    pub hits: Vec<Hit>,
    pub position: u64,
}

/// Hits of the text leg, with the authority's word on them where it comes along.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct CheckedAnswer {
    pub answer: LegAnswer,
    /// What [`Records::check`] gives for exactly these hits under the same filter; `None` where it has
    /// to be asked.
    pub checked: Option<Vec<MemoryVersion>>,
}

/// BM25 over one owner's own versions. Scores are those of [`anamnesis_domain::bm25`] with statistics
/// over the versions that are live at the cut; terms come from [`anamnesis_domain::tokens`].
#[async_trait]
pub trait TextIndex: Projection {
    async fn search(
        &self,
        filter: &Filter,
        terms: &[String],
        top: usize,
    ) -> Result<LegAnswer, StoreError>;

    /// [`TextIndex::search`], and the authority's word on the hits when that costs no further question:
    /// where the index stands beside the records and both are far away.
    async fn search_checked(
        &self,
        filter: &Filter,
        terms: &[String],
        top: usize,
    ) -> Result<CheckedAnswer, StoreError> {
        Ok(CheckedAnswer {
            answer: self.search(filter, terms, top).await?,
            checked: None,
        })
    }
}

/// Exact cosine over one owner's own vectors.
#[async_trait]
pub trait VectorIndex: Projection {
    fn model(&self) -> &ModelIdentity;

    async fn search(
        &self,
        filter: &Filter,
        query: &[f32],
        top: usize,
    ) -> Result<LegAnswer, StoreError>;
}

/// One hop over the owner's own entities, from the seeds' entities and those that the query names;
/// each shared entity adds [`anamnesis_domain::rank::hub_weight`] of how many admitted memories have
/// it. Seeds themselves may be among the hits.
#[async_trait]
pub trait GraphIndex: Projection {
    async fn neighbours(
        &self,
        filter: &Filter,
        seeds: &[MemoryId],
        entities: &[Entity],
        top: usize,
    ) -> Result<LegAnswer, StoreError>;
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Order {
    /// Newest recorded first.
    #[default]
    Recorded,
    /// Latest `valid_from` first.
    Valid,
}

/// A page of memories; `cursor` asks for the next one.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Page {
    pub versions: Vec<MemoryVersion>,
    pub cursor: Option<String>,
}

/// The authority: without any model, exact, transactional.
#[async_trait]
pub trait Records: Projection {
    /// The cut that `known` means in the owner's partition: the first offset that was recorded later.
    async fn cut(&self, scope: OwnerScope, known: Known) -> Result<Cut, StoreError>;

    /// The versions of these memories that are live at the cut and admitted, in the order asked.
    async fn check(
        &self,
        filter: &Filter,
        ids: &[MemoryId],
    ) -> Result<Vec<MemoryVersion>, StoreError>;

    /// All versions of one memory, oldest first.
    async fn history(
        &self,
        scope: OwnerScope,
        id: MemoryId,
    ) -> Result<Vec<MemoryVersion>, StoreError>;

    async fn list(
        &self,
        filter: &Filter,
        order: Order,
        limit: usize,
        cursor: Option<&str>,
    ) -> Result<Page, StoreError>;

    async fn owner(&self, scope: OwnerScope) -> Result<Option<OwnerView>, StoreError>;

    /// The decision that answered this event, if it has reached the store: satisfies a token.
    async fn decision(
        &self,
        scope: OwnerScope,
        event: EventTag,
    ) -> Result<Option<DecisionRow>, StoreError>;

    /// Offsets of all decisions of an owner, ascending.
    async fn decision_offsets(&self, scope: OwnerScope) -> Result<Vec<u64>, StoreError>;

    /// Current memories by kind and status, over all owners: for metrics, never per owner.
    async fn counts(&self) -> Result<Vec<(Kind, Status, u64)>, StoreError>;
}

/// The four stores that recall reads, by what they can do.
#[derive(Clone)]
pub struct Stores {
    pub records: Arc<dyn Records>,
    pub text: Arc<dyn TextIndex>,
    pub vectors: Arc<dyn VectorIndex>,
    pub graph: Arc<dyn GraphIndex>,
}

impl Stores {
    /// The stores as projections, the authority first.
    pub fn projections(&self) -> Vec<Arc<dyn Projection>> {
        vec![
            self.records.clone(),
            self.text.clone(),
            self.vectors.clone(),
            self.graph.clone(),
        ]
    }
}

/// The default read: what holds at `as_of` and is not hidden, whatever its kind.
pub fn current(scope: OwnerScope, cut: Cut, as_of: AsOf) -> Filter {
    Filter {
        scope,
        cut,
        valid_at: Some(as_of.valid),
        time_range: None,
        kinds: None,
        // Superseded ones are over by now: their interval excludes them, and admits them in the past.
        statuses: vec![Status::Active, Status::Superseded, Status::Conflicted],
        subject: SubjectFilter::Any,
        context_tags: None,
    }
}
