//! What a decision answers: candidates that an extractor found in a turn, and commands.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::ids::{ErasureId, EventTag, Hash, MemoryId, OwnerKey, SourceTag};
use crate::memory::{Claim, Kind, Permille, Role, coded};
use crate::owner::{Owner, Subject};
use crate::text::Text;
use crate::time::Timestamp;

/// One message of a conversation, as intake accepted it: normalised, consented, redacted.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Turn {
    pub owner: Owner,
    pub event: EventTag,
    pub source_tag: SourceTag,
    pub source: String,
    pub event_id: String,
    /// Tells the messages of one event apart; empty for an event with one message.
    pub message: String,
    pub conversation_id: Option<String>,
    pub turn_id: Option<String>,
    pub message_id: Option<String>,
    pub role: Role,
    pub speaker: Option<Text>,
    pub at: Timestamp,
    pub zone_minutes: i32,
    pub text: Text,
    pub context_tags: Vec<String>,
    /// Half-open ranges of `text` (in code points) that recall had injected: never learned again.
    pub injected: Vec<(u32, u32)>,
    /// What a hospital system said in structured form beside the text.
    pub structured: Option<StructuredClaim>,
}

/// The tool by which an assistant asks for something to be written down. A call of it is a message of the
/// assistant with the tool as its speaker.
pub const MEMORY_WRITE: &str = "memory_write";

impl Turn {
    /// Whether this is an assistant's call of [`MEMORY_WRITE`], and not something that anybody said.
    pub fn is_memory_write(&self) -> bool {
        let speaker = self.speaker.as_ref().map(Text::expose);
        self.role == Role::Assistant && speaker == Some(MEMORY_WRITE)
    }

    /// Tells "the same event again" from "the same id with other content". The time does not count:
    /// platforms send a message again with the time of the sending.
    pub fn content_hash(&self) -> Hash {
        let mut bytes = Vec::new();
        for part in [self.role.code(), self.text.expose()] {
            bytes.extend_from_slice(&(part.len() as u64).to_le_bytes());
            bytes.extend_from_slice(part.as_bytes());
        }
        Hash::of(&bytes)
    }
}

/// A coded statement (a FHIR resource, a structured import), beside its text.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct StructuredClaim {
    pub kind: Kind,
    /// Code in its system, as the value of the attribute.
    pub code: String,
    /// The attribute that the code belongs to; the kind's own attribute when absent.
    pub attribute: Option<String>,
    /// The statement ends what the code names, instead of asserting it.
    pub ends: bool,
    pub valid_from: Option<Timestamp>,
    pub valid_to: Option<Timestamp>,
    #[serde(default)]
    pub stance: Stance,
    /// Other names of what the code names: displays in other languages, the name that belongs to a code.
    #[serde(default)]
    pub names: Vec<String>,
    /// Amount and schedule in words: "500 mg twice daily".
    #[serde(default)]
    pub dose: Option<String>,
    /// With `ends`: since when it had held, and the same in words. A record that is first seen when it
    /// is over still says that it once was so.
    #[serde(default)]
    pub held: Option<Held>,
}

impl StructuredClaim {
    /// That the code holds, from when it was said.
    pub fn new(kind: Kind, code: impl Into<String>) -> Self {
        Self {
            kind,
            code: code.into(),
            attribute: None,
            ends: false,
            valid_from: None,
            valid_to: None,
            stance: Stance::Holds,
            names: Vec::new(),
            dose: None,
            held: None,
        }
    }
}

/// The time before an end.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Held {
    pub from: Timestamp,
    /// "Allergic to mango from 2015 to 2020-05."
    pub text: Text,
}

coded!(
    /// How a record stands to what its code names.
    #[derive(Default)]
    Stance {
        /// It is so; with `ends`, it is no longer so.
        #[default]
        Holds => "holds",
        /// Nobody has confirmed it: a person looks at it before it counts.
        Unconfirmed => "unconfirmed",
        /// It is not so; nothing is said about before.
        Absent => "absent",
        /// Looked into, and it never was so.
        Refuted => "refuted",
        /// The record was a mistake: what it said is taken back, and nothing else is said.
        EnteredInError => "entered_in_error",
    }
);

/// Everything that an extractor found in one turn. Exactly one per conversation record.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct CandidateSet {
    pub owner: Owner,
    pub event: EventTag,
    pub source_tag: SourceTag,
    /// The turn's [`Turn::content_hash`].
    pub content: Hash,
    pub at: Timestamp,
    pub candidates: Vec<Candidate>,
    pub rejects: Vec<Reject>,
    /// `rules`, `rules_fallback` where a model was to be asked, or the id of the model that answered.
    pub extractor: String,
    pub prompt_version: Option<String>,
    /// The model's whole answer, so that it can be judged later.
    pub model_answer: Option<Text>,
    /// Set when extraction failed: the coded reason. Nothing is decided from such a set.
    pub failed: Option<String>,
    /// `None` when no model was asked.
    pub model_use: Option<ModelUse>,
}

/// What asking a language model about one turn took.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ModelUse {
    /// With every repeated one.
    pub calls: u32,
    pub prompt_tokens: u32,
    pub completion_tokens: u32,
    /// Why the rules spoke in place of the model, by its code; `None` when the model answered.
    pub fallback: Option<String>,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Candidate {
    pub ordinal: u32,
    pub claim: Claim,
    /// How long the statement will stay true, 0 to 1.
    pub stability: Permille,
}

/// What was looked at and turned down, with the coded reason.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Reject {
    pub code: RejectCode,
    pub text: Option<Text>,
}

coded!(RejectCode {
    QuoteNotFound => "quote_not_found",
    NotUserAssertion => "not_user_assertion",
    OtherSpeaker => "other_speaker",
    Hypothetical => "hypothetical",
    ReportedQuestion => "reported_question",
    NegationChanged => "negation_changed",
    NumberChanged => "number_changed",
    Echo => "echo",
    Secret => "secret",
    Transient => "transient",
    Unconfirmed => "unconfirmed",
    Consent => "consent",
    NotStored => "not_stored",
    Malformed => "malformed",
});

/// Ordinals of admitted candidates begin here, above any that an extractor gives.
pub const ADMITTED: u32 = 1 << 20;

/// What somebody wants done, with who asked and when.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct CommandRecord {
    pub owner: Owner,
    pub event: EventTag,
    pub source_tag: SourceTag,
    pub source: String,
    pub event_id: String,
    /// Who asked: the caller's name from its token, or a service.
    pub actor: String,
    pub at: Timestamp,
    pub zone_minutes: i32,
    pub command: Command,
}

impl CommandRecord {
    /// The message whose words the command holds: its own, or the one whose candidate it admits. What
    /// the command causes goes with that message.
    pub fn words_of(&self) -> (EventTag, SourceTag) {
        match &self.command {
            Command::Admit { claim, .. } => (claim.source.event, claim.source.source_tag),
            Command::Remember { .. }
            | Command::Correct { .. }
            | Command::Retire { .. }
            | Command::Archive { .. }
            | Command::Restore { .. }
            | Command::Restrict { .. }
            | Command::Unrestrict { .. }
            | Command::Erase { .. }
            | Command::Grant { .. }
            | Command::Withdraw { .. }
            | Command::Review { .. }
            | Command::Task { .. }
            | Command::Summarise { .. } => (self.event, self.source_tag),
        }
    }

    pub fn content_hash(&self) -> Hash {
        let json = serde_json::to_vec(&self.command).expect("a command is plain data");
        Hash::of(&json)
    }
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Command {
    /// Store this claim; an explicit write.
    Remember {
        claim: Box<Claim>,
    },
    /// Replace what a memory says, or say that it ended.
    Correct {
        memory_id: MemoryId,
        /// The new claim; `None` when the memory only ended.
        claim: Option<Box<Claim>>,
        ended_at: Option<Timestamp>,
        expected_version: Option<u64>,
        reason: Text,
    },
    /// The record was wrong; it was never true.
    Retire {
        memory_id: MemoryId,
        expected_version: Option<u64>,
        reason: Text,
    },
    /// Out of recall, restorable. Carries the versions that the forgetter saw.
    Archive {
        memories: Vec<(MemoryId, u64)>,
        reason: String,
    },
    Restore {
        memory_ids: Vec<MemoryId>,
    },
    Restrict {
        target: Target,
        reason: Text,
    },
    Unrestrict {
        target: Target,
    },
    Erase {
        erasure: ErasureId,
        target: Target,
        reason: Text,
    },
    Grant {
        consent: Consent,
    },
    Withdraw {
        kinds: Option<Vec<Kind>>,
        from: Timestamp,
    },
    Review {
        memory_id: MemoryId,
        verdict: Verdict,
        expected_version: Option<u64>,
        reason: Text,
    },
    Task {
        task: Box<Task>,
    },
    /// Accesses of one hour, so that reads change ranking only through the log.
    Summarise {
        accesses: Vec<AccessSummary>,
    },
    /// A rejected candidate of a message is right after all.
    Admit {
        /// The message.
        event: EventTag,
        /// Which of its rejects.
        index: u32,
        /// What the candidate says. Its source is the message's, so that it goes when the message does.
        claim: Box<Claim>,
        reason: Text,
    },
}

impl Command {
    /// Every [`Command::code`].
    pub const CODES: [&str; 14] = [
        "remember",
        "correct",
        "retire",
        "archive",
        "restore",
        "restrict",
        "unrestrict",
        "erase",
        "grant",
        "withdraw",
        "review",
        "task",
        "summarise",
        "admit",
    ];

    /// Stable code, in clear in the record's header.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Remember { .. } => "remember",
            Self::Correct { .. } => "correct",
            Self::Retire { .. } => "retire",
            Self::Archive { .. } => "archive",
            Self::Restore { .. } => "restore",
            Self::Restrict { .. } => "restrict",
            Self::Unrestrict { .. } => "unrestrict",
            Self::Erase { .. } => "erase",
            Self::Grant { .. } => "grant",
            Self::Withdraw { .. } => "withdraw",
            Self::Review { .. } => "review",
            Self::Task { .. } => "task",
            Self::Summarise { .. } => "summarise",
            Self::Admit { .. } => "admit",
        }
    }

    /// Erasure, restriction and withdrawal of consent are decided at once, also for a parked owner.
    pub fn overtakes_parked(code: &str) -> bool {
        matches!(code, "erase" | "restrict" | "withdraw")
    }
}

/// What an erasure or restriction is about. Only opaque ids: it stands in the clear header.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Target {
    Memories(Vec<MemoryId>),
    /// One message and everything derived from it.
    Message(EventTag),
    /// Every record of one source.
    Source(SourceTag),
    /// Everything of the owner, up to and including the current key epoch.
    Owner,
}

coded!(Verdict {
    KeepOld => "keep_old",
    TakeNew => "take_new",
    KeepBoth => "keep_both",
    Retire => "retire",
    /// What the extractor turned down, or was not sure of, counts as if it had been sure.
    Admit => "admit",
    /// Takes an earlier decision back: the same question is open again.
    Reopen => "reopen",
});

/// What the owner agreed to.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Consent {
    pub purposes: Vec<String>,
    /// `None`: every kind.
    pub kinds: Option<Vec<Kind>>,
    /// Highest sensitivity covered, 1 to 4 (L1–L4).
    pub max_sensitivity: u8,
    pub valid_from: Timestamp,
    pub valid_to: Option<Timestamp>,
}

impl Consent {
    /// Whether this grant lets a memory of `kind` be stored and used at `at`.
    pub fn covers(&self, kind: Kind, sensitivity: u8, at: Timestamp) -> bool {
        let in_time = self.valid_from <= at && self.valid_to.is_none_or(|to| at < to);
        let in_kinds = self
            .kinds
            .as_ref()
            .is_none_or(|kinds| kinds.contains(&kind));
        in_time && in_kinds && sensitivity <= self.max_sensitivity
    }
}

coded!(TaskStatus {
    Active => "active",
    WaitingUserConfirm => "waiting_user_confirm",
    BlockedByToolError => "blocked_by_tool_error",
    Done => "done",
});

/// Working memory of one task: the whole state after a change (the last change wins).
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Task {
    pub id: String,
    pub goal: Text,
    pub status: TaskStatus,
    pub decision: Option<Text>,
    pub confirmed_facts: Vec<Text>,
    pub constraints: Vec<Text>,
    pub open_questions: Vec<Text>,
    /// The last tool error; a new one replaces it and blocks.
    pub tool_error: Option<Text>,
    pub pending_confirmations: Vec<Text>,
    pub expires_at: Option<Timestamp>,
    pub updated_at: Timestamp,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct AccessSummary {
    pub memory_id: MemoryId,
    /// How many recalls returned it in the hour.
    pub count: u32,
    pub last_at: Timestamp,
}

/// Topics of the log. `design.md` §2 says who writes each and what it holds.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Topic {
    Inbox,
    Conversation,
    Quarantine,
    Candidates,
    Commands,
    Memories,
    Embeddings,
    Accesses,
    Receipts,
    Schemas,
}

impl Topic {
    pub const ALL: [Self; 10] = [
        Self::Inbox,
        Self::Conversation,
        Self::Quarantine,
        Self::Candidates,
        Self::Commands,
        Self::Memories,
        Self::Embeddings,
        Self::Accesses,
        Self::Receipts,
        Self::Schemas,
    ];

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Inbox => "inbox",
            Self::Conversation => "conversation",
            Self::Quarantine => "quarantine",
            Self::Candidates => "candidates",
            Self::Commands => "commands",
            Self::Memories => "memories",
            Self::Embeddings => "embeddings",
            Self::Accesses => "accesses",
            Self::Receipts => "receipts",
            Self::Schemas => "schemas",
        }
    }

    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|topic| topic.as_str() == text)
    }
}

impl fmt::Display for Topic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A place in the log.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct Position {
    pub topic: Topic,
    pub partition: u32,
    pub offset: u64,
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}@{}", self.topic, self.partition, self.offset)
    }
}

/// The input that a decision answers.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Cause {
    pub position: Position,
    pub event: EventTag,
    pub source_tag: SourceTag,
    /// The position of the turn behind a candidates record; the same as `position` for a command.
    pub origin: Position,
}

/// An opened input of the validity-manager.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Input {
    Candidates(Box<CandidateSet>),
    Command(Box<CommandRecord>),
    /// The record is there, and its key is destroyed or its epoch is closed.
    Erased {
        event: EventTag,
    },
}

/// Who asks, for stores that must not mix owners up: kept beside an opened record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RecordOwner {
    pub key: OwnerKey,
    pub key_epoch: u32,
}

/// A subject named in a query (used by recall and by the extractor's tests).
pub fn is_about_owner(subject: &Subject) -> bool {
    *subject == Subject::Self_
}
