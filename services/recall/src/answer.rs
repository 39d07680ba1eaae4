//! What does a recall answer look like?

use anamnesis_domain::ids::{ErasureId, Hash, MemoryId, RecallId};
use anamnesis_domain::memory::{Entity, Kind, Memory, Permille, Polarity, Quantity, Role, Status};
use anamnesis_domain::owner::{Owner, Subject};
use anamnesis_domain::text::Text;
use anamnesis_domain::time::Timestamp;
use anamnesis_pipeline::stores::{Cut, OwnerView, SubjectFilter};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::kept::LATE;
use crate::score::{Score, Staleness};

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Answer {
    pub recall_id: RecallId,
    /// False when nothing clears the floor: to decline is a right answer.
    pub answerable: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<Reason>,
    pub query: QueryView,
    pub memories: Vec<Recalled>,
    pub legs: Legs,
    /// What the answer had to do without: `text`, `vector`, `graph`, `wait_for`; `overload` when too many
    /// asked at once and only what protects was looked at.
    pub degraded: Vec<String>,
    /// Erasures since the time asked about: what they took would perhaps have answered.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub erased: Vec<Erased>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub explain: Option<Explain>,
}

/// "Erased on D under R", in place of absence.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Erased {
    pub erasure_id: ErasureId,
    pub erased_at: Timestamp,
}

/// What of the owner was erased after the earlier of both clocks that a question is asked by, as far as
/// the cut knows.
pub(crate) fn erased_since(
    view: Option<&OwnerView>,
    cut: Cut,
    as_of: Timestamp,
    known_at: Timestamp,
) -> Vec<Erased> {
    let rows = view.map_or(&[][..], |view| &view.erasures);
    rows.iter()
        .filter(|row| row.offset < cut.0 && row.recorded_at > as_of.min(known_at))
        .map(|row| Erased {
            erasure_id: row.erasure,
            erased_at: row.recorded_at,
        })
        .collect()
}

/// Why there is no answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reason {
    /// Nothing that this question may be answered from is stored. The same for an owner that nobody
    /// has heard of.
    NothingStored,
    /// There are memories, and none is relevant enough.
    BelowFloor,
    /// What would have answered no longer holds at the time asked about: the appointment is past.
    /// `include_history` brings it.
    Over,
    /// Nothing that protects answers, and there was no time to look at anything else: ask again.
    Overload,
}

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct QueryView {
    pub original: Text,
    pub rewritten: Text,
    /// `self`, a relative, or `any`.
    pub subject: String,
    pub as_of: Timestamp,
    pub known_at: Timestamp,
    /// The time that the question's words ask about, when it is a range.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub during: Option<RangeView>,
    /// Tokens that the text leg searched beside the question's own.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub added_terms: Vec<String>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct RangeView {
    pub from: Timestamp,
    pub to: Option<Timestamp>,
}

pub(crate) fn subject_view(subject: &SubjectFilter) -> String {
    match subject {
        SubjectFilter::Any => "any".to_owned(),
        SubjectFilter::Only(subject) => subject.to_string(),
    }
}

#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Legs {
    pub text: LegReport,
    pub vector: LegReport,
    pub graph: LegReport,
}

#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct LegReport {
    pub ran: bool,
    pub ms: f64,
    /// How far the store had applied the log.
    pub position: Option<u64>,
    /// `late`, `failed` or `overload`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// False for the hash embedding: its vectors find shared words, not meaning.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub semantic: Option<bool>,
}

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Recalled {
    #[serde(flatten)]
    pub record: Record,
    pub score: Score,
    pub staleness: Staleness,
    /// What it replaced, latest first; only when the history was asked for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub history: Vec<Record>,
}

/// A memory as callers see it (`domain.md` §3): one flat record.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Record {
    pub id: MemoryId,
    pub version: u64,
    pub owner: Owner,
    pub subject: Subject,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    pub kind: Kind,
    pub text: Text,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attribute: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quantity: Option<Quantity>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schedule: Option<String>,
    pub polarity: Polarity,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quote: Option<Text>,
    pub entities: Vec<Entity>,
    pub valid_from: Timestamp,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub valid_to: Option<Timestamp>,
    pub status: Status,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub superseded_by: Option<MemoryId>,
    pub supersedes: Vec<MemoryId>,
    /// The other side of an open conflict.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub conflict_with: Option<MemoryId>,
    /// The rule that decided the status, by its stable code.
    pub rule: String,
    pub importance: Permille,
    pub confidence: Permille,
    pub protected: bool,
    pub explicit: bool,
    pub context_tags: Vec<String>,
    pub language: String,
    pub recorded_at: Timestamp,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_verified_at: Option<Timestamp>,
    pub confirmations: u32,
    pub access_count: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_accessed_at: Option<Timestamp>,
    pub source: SourceView,
}

/// Where it came from, down to the message and the speaker.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct SourceView {
    pub source: String,
    pub event_id: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub conversation_id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turn_id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message_id: Option<String>,
    pub role: Role,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub speaker: Option<Text>,
    pub at: Timestamp,
    pub zone_minutes: i32,
    pub extractor: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prompt_version: Option<String>,
}

impl Record {
    pub fn of(owner: &Owner, memory: &Memory) -> Self {
        let (claim, standing, source) = (&memory.claim, &memory.standing, &memory.claim.source);
        Self {
            id: memory.id,
            version: memory.version,
            owner: owner.clone(),
            subject: claim.subject.clone(),
            namespace: claim.namespace.clone(),
            key: claim.key.clone(),
            kind: claim.kind,
            text: claim.text.clone(),
            attribute: claim.attribute.clone(),
            value: claim.value.clone(),
            quantity: claim.quantity.clone(),
            schedule: claim.schedule.clone(),
            polarity: claim.polarity,
            quote: claim.quote.clone(),
            entities: claim.entities.clone(),
            valid_from: standing.valid_from,
            valid_to: standing.valid_to,
            status: standing.status,
            superseded_by: standing.superseded_by,
            supersedes: memory.supersedes.clone(),
            conflict_with: standing.conflict_with,
            rule: standing.rule.clone(),
            importance: claim.importance,
            confidence: claim.confidence,
            protected: memory.protected,
            explicit: claim.explicit,
            context_tags: claim.context_tags.clone(),
            language: claim.language.clone(),
            recorded_at: memory.recorded_at,
            last_verified_at: memory.last_verified_at,
            confirmations: memory.confirmations,
            access_count: memory.access_count,
            last_accessed_at: memory.last_accessed_at,
            source: SourceView {
                source: source.source.clone(),
                event_id: source.event_id.clone(),
                conversation_id: source.conversation_id.clone(),
                turn_id: source.turn_id.clone(),
                message_id: source.message_id.clone(),
                role: source.role,
                speaker: source.speaker.clone(),
                at: source.at,
                zone_minutes: source.zone_minutes,
                extractor: source.extractor.clone(),
                model: source.model.clone(),
                prompt_version: source.prompt_version.clone(),
            },
        }
    }
}

/// How the answer came about, for `explain: true`.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Explain {
    /// Telling words of the question with their weights.
    pub terms: Vec<(String, f64)>,
    pub entities: Vec<Entity>,
    /// Kinds that the question asks for by a word.
    pub kinds_asked: Vec<Kind>,
    /// Kinds that consent lets be read.
    pub kinds_readable: Vec<Kind>,
    pub floor: f64,
    pub proposed: Proposed,
    /// Every memory that was scored, best first, and what became of it.
    pub considered: Vec<Considered>,
}

/// What each leg put forward on its own, best first, before anything was scored: which leg finds what.
/// Only what the authority admits.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Proposed {
    pub text: Vec<MemoryId>,
    pub vector: Vec<MemoryId>,
    pub graph: Vec<MemoryId>,
    /// The three by reciprocal rank: the order in which they go on to be scored.
    pub fused: Vec<MemoryId>,
}

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Considered {
    pub memory_id: MemoryId,
    pub relevance: f64,
    #[serde(rename = "final")]
    pub final_score: f64,
    /// `returned`, `below_floor`, `over` (a turn of which nothing holds any more), `told` (a turn whose
    /// memory is returned), `not_selected`.
    pub outcome: String,
}

impl Answer {
    /// The answer without its id and without what differs between two runs over the same state: times
    /// taken, what did not come in time, and how far the stores had read. What a re-run must reproduce.
    pub fn settled(&self) -> Value {
        serde_json::to_value(Settled::of(self)).expect("an answer is plain data")
    }

    /// Of the settled answer's bytes: all that a receipt can keep of the words in it.
    pub fn digest(&self) -> Hash {
        // The bytes that the settled value prints, without making the value.
        let bytes = serde_json::to_vec(&Settled::of(self)).expect("an answer is plain data");
        Hash::of(&bytes)
    }

    /// Of how the question was understood.
    pub fn question_digest(&self) -> Hash {
        let question = serde_json::to_vec(&self.query).expect("a question is plain data");
        Hash::of(&question)
    }
}

/// [`Answer::settled`] before it is written.
#[derive(Serialize)]
struct Settled<'a> {
    answerable: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<Reason>,
    query: &'a QueryView,
    memories: &'a [Recalled],
    legs: SettledLegs<'a>,
    degraded: Vec<&'a str>,
    #[serde(skip_serializing_if = "<[Erased]>::is_empty")]
    erased: &'a [Erased],
    #[serde(skip_serializing_if = "Option::is_none")]
    explain: Option<&'a Explain>,
}

#[derive(Serialize)]
struct SettledLegs<'a> {
    text: SettledLeg<'a>,
    vector: SettledLeg<'a>,
    graph: SettledLeg<'a>,
}

#[derive(Serialize)]
struct SettledLeg<'a> {
    ran: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    model: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    semantic: Option<bool>,
}

impl<'a> Settled<'a> {
    fn of(answer: &'a Answer) -> Self {
        let Answer {
            recall_id: _,
            answerable,
            reason,
            query,
            memories,
            legs,
            degraded,
            erased,
            explain,
        } = answer;
        let parts = degraded.iter().map(String::as_str);
        Self {
            answerable: *answerable,
            reason: *reason,
            query,
            memories,
            legs: SettledLegs {
                text: SettledLeg::of(&legs.text),
                vector: SettledLeg::of(&legs.vector),
                graph: SettledLeg::of(&legs.graph),
            },
            degraded: parts.filter(|part| *part != LATE).collect(),
            erased,
            explain: explain.as_ref(),
        }
    }
}

impl<'a> SettledLeg<'a> {
    fn of(leg: &'a LegReport) -> Self {
        let LegReport {
            ran,
            ms: _,
            position: _,
            reason,
            model,
            semantic,
        } = leg;
        Self {
            ran: *ran,
            reason: reason.as_deref(),
            model: model.as_deref(),
            semantic: *semantic,
        }
    }
}
