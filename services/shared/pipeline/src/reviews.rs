//! What waits for a person: since when, until when, and what extraction turned down. Read from a
//! memory's versions and from recorded decisions; recall shows it, intake decides on it.

use std::fmt;
use std::str::FromStr;

use anamnesis_domain::ids::EventTag;
use anamnesis_domain::input::{Position, RejectCode, Topic, Verdict};
use anamnesis_domain::memory::Status;
use anamnesis_domain::text::Text;
use anamnesis_domain::time::Timestamp;
use anamnesis_domain::transition::Review;

use crate::codec::OpenedDecided;
use crate::stores::MemoryVersion;

/// How long a question stays open unless configured otherwise.
pub const EXPIRES_MILLIS: i64 = 30 * 86_400_000;

/// Whether a memory of this status is a question to a person.
pub fn is_open(status: Status) -> bool {
    match status {
        Status::Conflicted | Status::PendingReview => true,
        Status::Active
        | Status::Superseded
        | Status::Retired
        | Status::Archived
        | Status::Restricted
        | Status::Erased => false,
    }
}

/// Since when the memory's question has been open, by its versions (oldest first); `None` when it is
/// not. Who opens it again starts the time anew.
pub fn opened_at(history: &[MemoryVersion]) -> Option<Timestamp> {
    let since = history
        .iter()
        .rev()
        .take_while(|version| is_open(version.memory.standing.status))
        .last()?;
    let reopened = history
        .last()
        .and_then(|latest| reopened_at(&latest.memory.review));
    Some(reopened.map_or(since.recorded_at, |at| at.max(since.recorded_at)))
}

fn reopened_at(review: &Option<Review>) -> Option<Timestamp> {
    let review = review.as_ref()?;
    (review.verdict == Verdict::Reopen).then_some(review.at)?
}

/// The latest decision of a person, when the question was not opened again since.
pub fn decided(review: Option<&Review>) -> Option<&Review> {
    review.filter(|review| review.verdict != Verdict::Reopen)
}

/// A candidate that extraction or a gate turned down.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Rejected {
    pub id: RejectId,
    pub code: RejectCode,
    /// What it would have said; `None` where even that must not be kept (a secret).
    pub text: Option<Text>,
    pub recorded_at: Timestamp,
    /// The turn.
    pub origin: Position,
}

/// Names a rejected candidate: its message, and its place among what was turned down of it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct RejectId {
    pub event: EventTag,
    pub index: u32,
}

impl fmt::Display for RejectId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.event, self.index)
    }
}

#[derive(Debug, thiserror::Error, PartialEq, Eq, Clone, Copy)]
#[error("not the id of a rejected candidate")]
pub struct NotARejectId;

impl FromStr for RejectId {
    type Err = NotARejectId;

    fn from_str(text: &str) -> Result<Self, NotARejectId> {
        let (event, index) = text.split_once('.').ok_or(NotARejectId)?;
        Ok(Self {
            event: event.parse().map_err(|_| NotARejectId)?,
            index: index.parse().map_err(|_| NotARejectId)?,
        })
    }
}

/// What was turned down of the turn that this decision answers, in order.
pub fn rejected(opened: &OpenedDecided) -> Vec<Rejected> {
    let decided = &opened.decided;
    if decided.cause.position.topic != Topic::Candidates {
        return Vec::new();
    }
    let notes = decided.detail.iter().flat_map(|detail| &detail.notes);
    let codes = notes.filter_map(|note| {
        let code = RejectCode::from_code(&note.code).filter(|_| note.memory_id.is_none())?;
        Some((code, note.detail.clone()))
    });
    (0..)
        .zip(codes)
        .map(|(index, (code, text))| Rejected {
            id: RejectId {
                event: decided.cause.event,
                index,
            },
            code,
            text,
            recorded_at: opened.appended_at,
            origin: decided.cause.origin,
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rejected_candidate_is_named_by_its_message_and_place() {
        let id = RejectId {
            event: EventTag::from_bytes([7; 16]),
            index: 12,
        };
        assert_eq!(id.to_string().parse(), Ok(id));
        assert_eq!("m-07.1".parse::<RejectId>(), Err(NotARejectId));
        assert_eq!(id.event.to_string().parse::<RejectId>(), Err(NotARejectId));
    }
}
