//! What a claim says, and what a memory is.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::ids::{EventTag, MemoryId, SourceTag};
use crate::owner::Subject;
use crate::text::Text;
use crate::time::Timestamp;
use crate::tokens;
use crate::transition::Review;

/// A share of one in thousandths, 0 to 1000: importance, confidence, stability. Whole numbers, because
/// floats have no place in a digest. Outward (JSON) it is a number from 0 to 1.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub struct Permille(u16);

impl Permille {
    pub const ZERO: Self = Self(0);
    pub const ONE: Self = Self(1000);

    /// Values above 1000 become 1000.
    pub const fn new(thousandths: u16) -> Self {
        Self(if thousandths > 1000 {
            1000
        } else {
            thousandths
        })
    }

    /// `None` outside 0 to 1, or for not-a-number.
    pub fn from_share(share: f64) -> Option<Self> {
        (0.0..=1.0)
            .contains(&share)
            .then(|| Self((share * 1000.0).round() as u16))
    }

    pub const fn thousandths(self) -> u16 {
        self.0
    }

    pub fn share(self) -> f64 {
        f64::from(self.0) / 1000.0
    }
}

impl Serialize for Permille {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_f64(self.share())
    }
}

impl<'de> Deserialize<'de> for Permille {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let share = f64::deserialize(deserializer)?;
        Self::from_share(share).ok_or_else(|| serde::de::Error::custom("must be from 0 to 1"))
    }
}

/// An enum whose variants have one stable code each, used in schemas, API, metrics and prose.
macro_rules! coded {
    ($(#[$doc:meta])* $name:ident { $($(#[$vdoc:meta])* $variant:ident => $code:literal),+ $(,)? }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
        pub enum $name { $($(#[$vdoc])* #[serde(rename = $code)] $variant),+ }

        impl $name {
            pub const ALL: &'static [Self] = &[$(Self::$variant),+];

            pub const fn code(self) -> &'static str {
                match self { $(Self::$variant => $code),+ }
            }

            /// `None` for a code that this version does not know.
            pub fn from_code(code: &str) -> Option<Self> {
                Self::ALL.iter().copied().find(|known| known.code() == code)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.code())
            }
        }
    };
}
pub(crate) use coded;

coded!(Kind {
    Allergy => "allergy",
    Contraindication => "contraindication",
    Medication => "medication",
    Condition => "condition",
    Procedure => "procedure",
    Measurement => "measurement",
    Preference => "preference",
    Event => "event",
    Constraint => "constraint",
    Fact => "fact",
    Policy => "policy",
    Lesson => "lesson",
    /// A consented turn itself: lowest importance, first to be evicted, never gated as a fact.
    Episode => "episode",
});

coded!(Status {
    Active => "active",
    Superseded => "superseded",
    Conflicted => "conflicted",
    PendingReview => "pending_review",
    /// The record was wrong; it was never true.
    Retired => "retired",
    Archived => "archived",
    /// Kept, never recalled.
    Restricted => "restricted",
    /// The text is gone; the skeleton remains.
    Erased => "erased",
});

coded!(Polarity {
    Positive => "+",
    Negative => "-",
});

coded!(
    /// How a statement relates to what was believed before.
    Intent {
        /// States something, without a word about what was said before.
        Assert => "assert",
        /// Says that the world changed: "from today", "no longer", "改成".
        Change => "change",
        /// Says that the record was wrong: "更正", "I meant".
        Correct => "correct",
        /// Says that something never was so, whoever had said it: a diagnosis that was ruled out.
        Refute => "refute",
        /// Takes back what the same record had said, and says nothing itself: entered in error.
        Withdraw => "withdraw",
    }
);

coded!(Role {
    User => "user",
    Assistant => "assistant",
    System => "system",
    Tool => "tool",
    Clinician => "clinician",
    /// A structured record of a hospital system.
    Record => "record",
    /// A document that somebody handed in.
    Document => "document",
});

impl Role {
    /// Weight of what this role says about the owner, in thousandths (`domain.md` §4: the owner's own
    /// statement 0.95, clinician-verified 1.0, inferred 0.7).
    pub const fn authority(self) -> Permille {
        match self {
            Self::Clinician | Self::Record => Permille::new(1000),
            Self::User => Permille::new(950),
            Self::Assistant | Self::System | Self::Tool | Self::Document => Permille::new(700),
        }
    }
}

coded!(EntityKind {
    Disease => "disease",
    Drug => "drug",
    Allergen => "allergen",
    Test => "test",
    Person => "person",
    Order => "order",
    Place => "place",
    Thing => "thing",
});

/// Something that memories of one owner share. Nodes are per owner; there is no global "peanut".
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct Entity {
    pub kind: EntityKind,
    /// Canonical, normalised name: `peanut` for peanut, peanuts, 花生.
    pub name: Text,
}

/// An amount in its canonical unit, exact to a millionth: 0.625 g is 625 mg.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct Quantity {
    /// Millionths of `unit`.
    pub micros: i64,
    /// Canonical unit: mg, ml, cm, kg, mmHg, tablet …
    pub unit: String,
}

/// Where a claim came from, down to the message and the speaker.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Source {
    /// The event that said it; all that is derived from it dies with its key.
    pub event: EventTag,
    pub source_tag: SourceTag,
    /// CloudEvents source, document or tool.
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
    /// When it was said.
    pub at: Timestamp,
    /// The speaker's clock, in minutes east of Greenwich.
    pub zone_minutes: i32,
    /// `rules`, `rules_fallback` (a model was to be asked, and was not or did not answer), `model`,
    /// `structured`, `api`.
    pub extractor: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prompt_version: Option<String>,
}

/// Extractor of what a hospital system says in codes.
pub const STRUCTURED: &str = "structured";

impl Source {
    /// The record of a hospital system of which this is a version: the same record is sent again when it
    /// changes. A message of a conversation is none.
    pub fn record(&self) -> Option<(SourceTag, &str)> {
        let id = self.message_id.as_deref()?;
        (self.extractor == STRUCTURED).then_some((self.source_tag, id))
    }
}

/// What one statement says. Immutable: validity is decided beside it, never inside it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Claim {
    pub subject: Subject,
    pub kind: Kind,
    pub text: Text,
    /// Comparable form: the attribute (`allergy`, `medication`, `smoking_status`, …), if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attribute: Option<String>,
    /// Canonical value: `peanut`, `metformin`, `former_smoker`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quantity: Option<Quantity>,
    /// How often or how, in canonical words (`twice_daily`); compared with the quantity.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schedule: Option<String>,
    pub polarity: Polarity,
    pub intent: Intent,
    /// The speaker's own words, found in the turn.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quote: Option<Text>,
    #[serde(default)]
    pub entities: Vec<Entity>,
    /// When it began to hold; the time of the statement unless something else was said.
    pub valid_from: Timestamp,
    /// When it stops to hold, if that was said ("until Friday", "today only") or follows from a TTL.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub valid_to: Option<Timestamp>,
    pub importance: Permille,
    pub confidence: Permille,
    /// "Write this down": bypasses quote, stability and confidence gates.
    pub explicit: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// With a namespace: (namespace, key) holds one value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    #[serde(default)]
    pub context_tags: Vec<String>,
    /// BCP 47 primary tag: `zh`, `en`.
    pub language: String,
    pub source: Source,
}

/// What is believed of a claim now; derived by [`crate::line`] from all claims of its line.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Standing {
    pub status: Status,
    pub valid_from: Timestamp,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub valid_to: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub superseded_by: Option<MemoryId>,
    /// The other side of an open conflict.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub conflict_with: Option<MemoryId>,
    /// This claim says the same as that memory and confirms it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub confirms: Option<MemoryId>,
    /// The rule that decided, by its stable code.
    pub rule: String,
}

impl Memory {
    /// Words that the name of a turn's speaker is found by; none for what was distilled, which is not about
    /// whoever said it.
    pub fn speaker_tokens(&self) -> Vec<String> {
        match (&self.claim.source.speaker, self.claim.kind == Kind::Episode) {
            (Some(speaker), true) => tokens::index_tokens(speaker.expose()),
            (Some(_) | None, _) => Vec::new(),
        }
    }
}

/// A memory as callers see it (`domain.md` §3): the claim that represents it, what is believed of it,
/// and who else said it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Memory {
    pub id: MemoryId,
    /// The owner's sequence number of the last decision that touched it.
    pub version: u64,
    #[serde(flatten)]
    pub claim: Claim,
    pub standing: Standing,
    pub protected: bool,
    pub supersedes: Vec<MemoryId>,
    /// When it was first recorded.
    pub recorded_at: Timestamp,
    /// The latest source time among the claims that confirm it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_verified_at: Option<Timestamp>,
    /// How many other claims say the same.
    pub confirmations: u32,
    pub access_count: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_accessed_at: Option<Timestamp>,
    /// The latest decision of a person on it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub review: Option<Review>,
}
