//! What waits for a person, with both sides and their evidence; what persons decided; and what extraction
//! turned down. Everything that a reviewer reads is shown with its hidden characters written out.

use std::sync::Arc;

use anamnesis_domain::attribute::Attributes;
use anamnesis_domain::decay;
use anamnesis_domain::ids::MemoryId;
use anamnesis_domain::input::ADMITTED;
use anamnesis_domain::memory::{Kind, Memory, Permille, Role, Status};
use anamnesis_domain::owner::{Owner, OwnerScope};
use anamnesis_domain::text::visible;
use anamnesis_domain::time::{AsOf, Known, Timestamp};
use anamnesis_domain::transition::Review;
use anamnesis_pipeline::codec::Codec;
use anamnesis_pipeline::fold;
use anamnesis_pipeline::log::{Log, partition_of};
use anamnesis_pipeline::reviews::{self, Rejected};
use anamnesis_pipeline::stores::{Filter, MemoryVersion, Order, StoreError, current};
use async_trait::async_trait;
use serde::Serialize;
use serde_json::{Value, json};

use crate::answer::Record;
use crate::authority::own;
use crate::service::{Recall, RecallError};

/// Pages that one answer looks through before it says "go on from here": what is asked for may be rare.
const PAGES_MAX: usize = 20;
/// Decisions that are opened at a time when looking for what was turned down.
const OPENED_AT_A_TIME: usize = 200;

/// Which items are asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum State {
    /// Waits for a person.
    Open,
    /// Has waited too long: nobody is asked any more, and everything stands as it stood.
    Expired,
    Decided,
    /// Turned down by extraction or a gate, and not admitted since.
    Rejected,
}

impl State {
    pub const ALL: [Self; 4] = [Self::Open, Self::Expired, Self::Decided, Self::Rejected];

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Expired => "expired",
            Self::Decided => "decided",
            Self::Rejected => "rejected",
        }
    }

    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.as_str() == text)
    }
}

/// One question to a person, or one answer.
#[derive(Serialize)]
pub struct Item {
    /// What [`State::Rejected`] items are admitted by, others decided by.
    pub id: String,
    pub state: &'static str,
    /// `conflicted`, `pending_review` …; of a rejected candidate its code.
    pub why: String,
    /// The rule that opened it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rule: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub opened_at: Option<Timestamp>,
    /// After this nobody is asked any more unless it is opened again.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expected_version: Option<u64>,
    /// What came.
    pub new: Value,
    /// What it stands against.
    pub old: Value,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub decision: Option<Value>,
    /// Something of what is shown cannot be seen where it is usually shown.
    pub has_hidden_characters: bool,
}

#[derive(Serialize, Default)]
pub struct Items {
    pub reviews: Vec<Item>,
    pub cursor: Option<String>,
}

/// Opens recorded decisions: what was turned down stands in them, and in no store.
#[async_trait]
pub trait Rejects: Send + Sync {
    /// What was turned down in the owner's decisions at these offsets, in their order.
    async fn at(&self, scope: OwnerScope, offsets: &[u64]) -> Result<Vec<Rejected>, RecallError>;
}

/// The owner's decisions as the log holds them.
pub struct LogRejects {
    pub log: Log,
    pub codec: Codec,
}

#[async_trait]
impl Rejects for LogRejects {
    async fn at(&self, scope: OwnerScope, offsets: &[u64]) -> Result<Vec<Rejected>, RecallError> {
        let partition = partition_of(scope.key(), self.log.partitions());
        let opened = fold::decisions_at(&*self.log, &self.codec, partition, offsets).await?;
        // The store names offsets; what stands there may not be the owner's only by damage.
        let own = opened
            .iter()
            .filter(|opened| opened.decided.owner == scope.key());
        Ok(own.flat_map(reviews::rejected).collect())
    }
}

pub type RejectsReader = Arc<dyn Rejects>;

/// What is asked of the queue.
pub struct Asked<'a> {
    pub owner: &'a Owner,
    pub scope: OwnerScope,
    pub state: State,
    /// Kinds that whoever asks may see.
    pub kinds: Vec<Kind>,
    pub limit: usize,
    pub cursor: Option<&'a str>,
}

impl Recall {
    /// A page of the queue.
    ///
    /// # Errors
    /// When the authority or the log cannot be read; [`StoreError::Unusable`] for a cursor of another
    /// listing.
    pub async fn reviews(&self, asked: &Asked<'_>) -> Result<Items, RecallError> {
        match asked.state {
            State::Open | State::Expired | State::Decided => self.of_memories(asked).await,
            State::Rejected => self.of_rejects(asked).await,
        }
    }

    async fn filter(&self, asked: &Asked<'_>, statuses: Vec<Status>) -> Result<Filter, StoreError> {
        let records = &self.parts.stores.records;
        let known = Known::Latest;
        let cut = records.cut(asked.scope, known).await?;
        let valid = self.now();
        let mut filter = current(asked.scope, cut, AsOf { valid, known });
        filter.valid_at = None;
        filter.kinds = Some(asked.kinds.clone());
        filter.statuses = statuses;
        Ok(filter)
    }

    async fn of_memories(&self, asked: &Asked<'_>) -> Result<Items, RecallError> {
        let seen = |status: &Status| !matches!(status, Status::Restricted | Status::Erased);
        let all: Vec<Status> = Status::ALL.iter().copied().filter(seen).collect();
        let statuses = match asked.state {
            State::Open | State::Expired => all
                .iter()
                .copied()
                .filter(|s| reviews::is_open(*s))
                .collect(),
            State::Decided | State::Rejected => all.clone(),
        };
        let filter = self.filter(asked, statuses).await?;
        let both = Filter {
            statuses: all,
            ..filter.clone()
        };
        let records = &self.parts.stores.records;
        let mut items = Items {
            cursor: asked.cursor.map(str::to_owned),
            ..Items::default()
        };
        for _ in 0..PAGES_MAX {
            let left = asked.limit - items.reviews.len();
            let page = records
                .list(&filter, Order::Recorded, left, items.cursor.as_deref())
                .await?;
            items.cursor = page.cursor;
            for version in own(&filter, page.versions) {
                if let Some(item) = self.item(asked, &both, &version).await? {
                    items.reviews.push(item);
                }
            }
            if items.cursor.is_none() || items.reviews.len() >= asked.limit {
                break;
            }
        }
        Ok(items)
    }

    /// The item, if it is in the state that is asked for.
    async fn item(
        &self,
        asked: &Asked<'_>,
        both: &Filter,
        version: &MemoryVersion,
    ) -> Result<Option<Item>, RecallError> {
        let memory = &version.memory;
        let records = &self.parts.stores.records;
        let history = records.history(asked.scope, memory.id).await?;
        let opened_at = reviews::opened_at(&history);
        let expires_at = opened_at.map(|at| at.plus_millis(self.parts.review_expires_millis));
        let state = match expires_at {
            Some(end) if end <= self.now() => State::Expired,
            Some(_) => State::Open,
            None => State::Decided,
        };
        let decision = reviews::decided(memory.review.as_ref());
        let is_it = state == asked.state && (state != State::Decided || decision.is_some());
        if !is_it {
            return Ok(None);
        }
        let other: Vec<MemoryId> = memory.standing.conflict_with.into_iter().collect();
        let other = records.check(both, &other).await?;
        let other = own(both, other).next();
        let now = self.now();
        let new = side(asked.owner, memory, now);
        let old = other.map_or(Value::Null, |other| side(asked.owner, &other.memory, now));
        let (new, new_hides) = shown(new);
        let (old, old_hides) = shown(old);
        Ok(Some(Item {
            id: memory.id.to_string(),
            state: state.as_str(),
            why: memory.standing.status.code().to_owned(),
            rule: Some(memory.standing.rule.clone()),
            opened_at,
            expires_at,
            expected_version: Some(memory.version),
            new,
            old,
            decision: decision.map(told),
            has_hidden_characters: new_hides || old_hides,
        }))
    }

    /// Newest first. The cursor is the place of the oldest decision that was looked at.
    async fn of_rejects(&self, asked: &Asked<'_>) -> Result<Items, RecallError> {
        let records = &self.parts.stores.records;
        let before = match asked.cursor {
            None => u64::MAX,
            Some(cursor) => cursor.parse().map_err(|_| StoreError::Unusable {
                what: "the cursor is not one of this listing".to_owned(),
            })?,
        };
        let mut offsets = records.decision_offsets(asked.scope).await?;
        offsets.retain(|offset| *offset < before);
        let mut items = Items::default();
        for chunk in offsets.rchunks(OPENED_AT_A_TIME).take(PAGES_MAX) {
            let mut found = self.parts.rejects.at(asked.scope, chunk).await?;
            found.reverse();
            for rejected in found {
                let id = self.parts.ids.memory(
                    rejected.id.event,
                    ADMITTED.saturating_add(rejected.id.index),
                );
                if records.history(asked.scope, id).await?.is_empty() {
                    items.reviews.push(turned_down(&rejected));
                }
            }
            items.cursor = chunk.first().map(u64::to_string);
            if items.reviews.len() >= asked.limit {
                break;
            }
        }
        if items.cursor.as_deref() == offsets.first().map(u64::to_string).as_deref() {
            items.cursor = None;
        }
        Ok(items)
    }
}

fn turned_down(rejected: &Rejected) -> Item {
    let (new, has_hidden_characters) = shown(json!({
        "text": rejected.text,
        "event": rejected.id.event,
        "position": rejected.origin,
        // Of a secret even the words are not kept.
        "admissible": rejected.text.is_some(),
    }));
    Item {
        id: rejected.id.to_string(),
        state: State::Rejected.as_str(),
        why: rejected.code.code().to_owned(),
        rule: None,
        opened_at: Some(rejected.recorded_at),
        expires_at: None,
        expected_version: None,
        new,
        old: Value::Null,
        decision: None,
        has_hidden_characters,
    }
}

/// Who decided, when, what and why.
fn told(review: &Review) -> Value {
    json!({
        "decision": review.verdict,
        "by": review.actor,
        "at": review.at,
        "reason": review.reason,
    })
}

/// The memory and what speaks for it.
fn side(owner: &Owner, memory: &Memory, now: Timestamp) -> Value {
    let source = &memory.claim.source;
    let half_life = Attributes::shipped().kind(memory.claim.kind).half_life_days;
    let last = memory.last_verified_at.unwrap_or(source.at).max(source.at);
    let authority = source.role.authority();
    let faded = decay::recency(now.days_since(last), f64::from(half_life));
    let weight = Permille::from_share(authority.share() * faded).unwrap_or_default();
    let mut side = serde_json::to_value(Record::of(owner, memory)).unwrap_or_default();
    side["evidence"] = json!({
        "role": source.role,
        "said_at": source.at,
        "last_said_at": last,
        "confirmations": memory.confirmations,
        "authority": authority,
        // As a vote would weigh it now.
        "weight": weight,
        "verified": matches!(source.role, Role::Clinician | Role::Record),
    });
    side
}

/// The value with every hidden character of its texts written out, and whether there was any.
fn shown(value: Value) -> (Value, bool) {
    match value {
        Value::String(text) => {
            let shown = visible(&text);
            let hides = shown != text;
            (Value::String(shown), hides)
        }
        Value::Array(items) => {
            let mut hides = false;
            let items = items.into_iter().map(|item| {
                let (item, hidden) = shown(item);
                hides |= hidden;
                item
            });
            let items: Vec<Value> = items.collect();
            (Value::Array(items), hides)
        }
        Value::Object(fields) => {
            let mut hides = false;
            let fields = fields.into_iter().map(|(name, field)| {
                let (field, hidden) = shown(field);
                hides |= hidden;
                (name, field)
            });
            let fields: serde_json::Map<String, Value> = fields.collect();
            (Value::Object(fields), hides)
        }
        other @ (Value::Null | Value::Bool(_) | Value::Number(_)) => (other, false),
    }
}
