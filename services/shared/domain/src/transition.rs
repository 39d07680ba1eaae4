//! What a decision says. One input gives exactly one [`Decision`], also when nothing changes.

use serde::{Deserialize, Serialize};

use crate::ids::{ErasureId, EventTag, Hash, KeyId, MemoryId, OwnerKey};
use crate::input::{AccessSummary, Cause, Consent, Target, Task, Verdict};
use crate::memory::{Claim, Kind, Standing, Status};
use crate::text::Text;
use crate::time::Timestamp;

/// How an input was answered. The balance is counted by these.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// Something changed.
    Stored,
    /// The same event again.
    Duplicate,
    /// A new event that changes nothing.
    NoOp,
    /// Turned down, by its stable code (`id_reused`, `consent`, `version`, `erased`, …).
    Rejected(String),
    /// A stage before the decision failed, by its stable code.
    Failed(String),
}

impl Outcome {
    /// Every [`Outcome::kind`].
    pub const KINDS: [&str; 5] = ["stored", "duplicate", "no_op", "rejected", "failed"];

    /// The outcome without its code.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Stored => "stored",
            Self::Duplicate => "duplicate",
            Self::NoOp => "no_op",
            Self::Rejected(_) => "rejected",
            Self::Failed(_) => "failed",
        }
    }

    /// `stored`, `duplicate`, `no_op`, `rejected(code)`, `failed(code)`.
    pub fn code(&self) -> String {
        match self {
            Self::Stored => "stored".to_owned(),
            Self::Duplicate => "duplicate".to_owned(),
            Self::NoOp => "no_op".to_owned(),
            Self::Rejected(code) => format!("rejected({code})"),
            Self::Failed(code) => format!("failed({code})"),
        }
    }

    pub fn parse(code: &str) -> Option<Self> {
        let inner = |prefix: &str| {
            let rest = code.strip_prefix(prefix)?;
            Some(rest.strip_prefix('(')?.strip_suffix(')')?.to_owned())
        };
        match code {
            "stored" => Some(Self::Stored),
            "duplicate" => Some(Self::Duplicate),
            "no_op" => Some(Self::NoOp),
            _ => inner("rejected")
                .map(Self::Rejected)
                .or_else(|| inner("failed").map(Self::Failed)),
        }
    }
}

/// How a person decided: who, when, what and why. Later versions keep it; another decision is another
/// review, and never changes this one.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Review {
    pub verdict: Verdict,
    /// `None` in decisions that were recorded before this was kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub actor: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<Text>,
}

/// What a command set on a memory; kept with its cause, so that erasing the cause takes it back.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mark {
    Ended {
        at: Timestamp,
    },
    /// Never true.
    Retired,
    Archived,
    Restored,
    Restricted,
    Unrestricted,
    Reviewed(Box<Review>),
    /// Replaced by an explicit correction of this very memory.
    Corrected {
        by: MemoryId,
    },
}

/// One change of an owner's memory. Each is sealed on its own, under the key of its source.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Transition {
    /// A new claim. Its standing says whether it is active, conflicted, confirming another, …
    Asserted {
        id: MemoryId,
        claim: Box<Claim>,
        standing: Standing,
    },
    /// What is believed of an earlier claim changed.
    Moved {
        id: MemoryId,
        standing: Standing,
    },
    /// A command set a mark.
    Marked {
        id: MemoryId,
        mark: Mark,
    },
    /// Says in clear what became unreadable.
    Erased {
        erasure: ErasureId,
        target: Target,
        memory_ids: Vec<MemoryId>,
    },
    ConsentGranted {
        consent: Consent,
    },
    ConsentWithdrawn {
        kinds: Option<Vec<Kind>>,
        from: Timestamp,
    },
    TaskChanged {
        task: Box<Task>,
    },
    Accessed {
        access: AccessSummary,
    },
}

impl Transition {
    /// Every [`Transition::code`].
    pub const CODES: [&str; 23] = [
        "memory_confirmed",
        "memory_asserted",
        "memory_held",
        "memory_superseded",
        "memory_conflicted",
        "memory_pending_review",
        "memory_retired",
        "memory_archived",
        "memory_restricted",
        "memory_erased",
        "memory_marked_ended",
        "memory_marked_retired",
        "memory_marked_archived",
        "memory_marked_restored",
        "memory_marked_restricted",
        "memory_marked_unrestricted",
        "memory_reviewed",
        "memory_corrected",
        "memories_erased",
        "consent_granted",
        "consent_withdrawn",
        "task_changed",
        "memory_accessed",
    ];

    /// The transition's kind, in clear in the header.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Asserted { standing, .. } if standing.confirms.is_some() => "memory_confirmed",
            Self::Asserted { .. } => "memory_asserted",
            Self::Moved { standing, .. } => match standing.status {
                Status::Active => "memory_held",
                Status::Superseded => "memory_superseded",
                Status::Conflicted => "memory_conflicted",
                Status::PendingReview => "memory_pending_review",
                Status::Retired => "memory_retired",
                Status::Archived => "memory_archived",
                Status::Restricted => "memory_restricted",
                Status::Erased => "memory_erased",
            },
            Self::Marked { mark, .. } => match mark {
                Mark::Ended { .. } => "memory_marked_ended",
                Mark::Retired => "memory_marked_retired",
                Mark::Archived => "memory_marked_archived",
                Mark::Restored => "memory_marked_restored",
                Mark::Restricted => "memory_marked_restricted",
                Mark::Unrestricted => "memory_marked_unrestricted",
                Mark::Reviewed(_) => "memory_reviewed",
                Mark::Corrected { .. } => "memory_corrected",
            },
            Self::Erased { .. } => "memories_erased",
            Self::ConsentGranted { .. } => "consent_granted",
            Self::ConsentWithdrawn { .. } => "consent_withdrawn",
            Self::TaskChanged { .. } => "task_changed",
            Self::Accessed { .. } => "memory_accessed",
        }
    }

    /// The memory that the transition is about, in clear in the header.
    pub fn memory_id(&self) -> Option<MemoryId> {
        match self {
            Self::Asserted { id, .. } | Self::Moved { id, .. } | Self::Marked { id, .. } => {
                Some(*id)
            }
            Self::Accessed { access } => Some(access.memory_id),
            Self::Erased { .. }
            | Self::ConsentGranted { .. }
            | Self::ConsentWithdrawn { .. }
            | Self::TaskChanged { .. } => None,
        }
    }
}

/// What `decide` answers. The shell adds sequence, hash and keys.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Decision {
    pub outcome: Outcome,
    pub transitions: Vec<Transition>,
    /// Names of the rules that decided, and reasons of rejects: for the auditor, sealed.
    pub notes: Vec<Note>,
    /// Content of the input, to tell a repeat from a reused id; sealed.
    pub content: Option<Hash>,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Note {
    /// Stable code: a rule (`coexist`, `update`, `tenfold`), or the reason of a reject.
    pub code: String,
    pub memory_id: Option<MemoryId>,
    pub detail: Option<Text>,
}

/// The part of a `Decided` record that is in clear, with the sealed parts opened where keys exist.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Decided {
    pub owner: OwnerKey,
    pub owner_seq: u64,
    pub prev_hash: Hash,
    pub writer_epoch: u64,
    /// The owner's key epoch that the decision was sealed in.
    pub key_epoch: u32,
    pub cause: Cause,
    pub decided_at: Timestamp,
    pub outcome: Outcome,
    pub parts: Vec<Part>,
    /// The key of the cause, which seals `detail` and wraps the parts' keys; `None` when the cause was
    /// erased before it was decided.
    pub source_key: Option<KeyId>,
    /// `None` when the key is destroyed.
    pub detail: Option<Detail>,
}

/// Sealed beside the transitions, under the key of the cause.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Detail {
    /// The owner in words: needed to show a state, unreadable after erasure.
    pub owner: String,
    pub content: Option<Hash>,
    pub notes: Vec<Note>,
}

/// One transition as the log holds it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Part {
    pub code: String,
    pub memory_id: Option<MemoryId>,
    /// The data key that seals it; `None` for a part in clear (`memories_erased`).
    pub key: Option<KeyId>,
    pub body: PartBody,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum PartBody {
    Open(Box<Transition>),
    /// The key is destroyed: a fixed placeholder, the same for every reader.
    Unreadable,
}

/// What an opened [`Decided`] record is about, for lists: the event that caused it.
pub fn caused_by(decided: &Decided) -> EventTag {
    decided.cause.event
}
