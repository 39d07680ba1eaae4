//! What every accepted shape becomes, and how a shape is turned down.

use anamnesis_domain::ids::{Hash, IdKey};
use anamnesis_domain::input::{StructuredClaim, Turn};
use anamnesis_domain::memory::Role;
use anamnesis_domain::owner::Owner;
use anamnesis_domain::text::Text;
use anamnesis_domain::time::Timestamp;
use anamnesis_pipeline::problem::Problem;

/// One message of one event, normalised. Its text is still in clear and not yet redacted.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Message {
    pub owner: Owner,
    /// CloudEvents source, document or tool.
    pub source: String,
    pub event_id: String,
    /// Tells the messages of one event apart; empty for a shape with one message.
    pub message: String,
    pub conversation_id: Option<String>,
    pub turn_id: Option<String>,
    pub message_id: Option<String>,
    pub role: Role,
    pub speaker: Option<Text>,
    pub at: Timestamp,
    /// The speaker's clock, in minutes east of Greenwich.
    pub zone_minutes: i32,
    pub text: Text,
    pub context_tags: Vec<String>,
    /// Half-open ranges of `text`, in code points, that recall had injected.
    pub injected: Vec<(u32, u32)>,
    pub structured: Option<StructuredClaim>,
}

impl Message {
    /// `event` or `event#message`: how the answer of the API names it.
    pub fn public_id(&self) -> String {
        if self.message.is_empty() {
            self.event_id.clone()
        } else {
            format!("{}#{}", self.event_id, self.message)
        }
    }

    /// The message as the log keeps it: with its identity under the site key. The text must have been
    /// redacted before.
    pub fn into_turn(self, ids: &IdKey) -> Turn {
        let key = ids.owner(&self.owner);
        Turn {
            event: ids.event(key, &self.source, &self.event_id, &self.message),
            source_tag: ids.source(key, &self.source),
            owner: self.owner,
            source: self.source,
            event_id: self.event_id,
            message: self.message,
            conversation_id: self.conversation_id,
            turn_id: self.turn_id,
            message_id: self.message_id,
            role: self.role,
            speaker: self.speaker,
            at: self.at,
            zone_minutes: self.zone_minutes,
            text: self.text,
            context_tags: self.context_tags,
            injected: self.injected,
            structured: self.structured,
        }
    }
}

/// Why an event was not accepted. Never repeats what was sent.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{code}: {detail}")]
pub struct Rejected {
    /// Stable.
    pub code: &'static str,
    /// Path of the offending field, as `messages[1].content`.
    pub field: Option<String>,
    /// For people: what is wrong and what to do.
    pub detail: String,
}

impl Rejected {
    pub fn new(code: &'static str, field: impl Into<String>, detail: impl Into<String>) -> Self {
        Self {
            code,
            field: Some(field.into()),
            detail: detail.into(),
        }
    }

    pub fn whole(code: &'static str, detail: impl Into<String>) -> Self {
        Self {
            code,
            field: None,
            detail: detail.into(),
        }
    }

    pub fn missing(field: impl Into<String>, what: &str) -> Self {
        let field = field.into();
        let detail = format!("{field} is missing: {what}");
        Self {
            code: "missing_field",
            field: Some(field),
            detail,
        }
    }

    pub fn wrong_type(field: impl Into<String>, wanted: &str) -> Self {
        let field = field.into();
        let detail = format!("{field} must be {wanted}");
        Self {
            code: "invalid_field",
            field: Some(field),
            detail,
        }
    }

    pub fn into_problem(self) -> Problem {
        let status = match self.code {
            "text_too_long" | "body_too_large" => 413,
            "tenant_not_covered" | "role_required" => 403,
            _ => 400,
        };
        let problem = Problem::new(status, self.code, self.detail);
        match self.field {
            Some(field) => problem.at(field),
            None => problem,
        }
    }
}

/// An id for an event that brings none: the same content at the same place gives the same id, so a
/// second import changes nothing.
pub(crate) fn derived_id(value: &serde_json::Value, position: u64) -> String {
    let mut bytes = position.to_le_bytes().to_vec();
    bytes.extend_from_slice(value.to_string().as_bytes());
    let hex = Hash::of(&bytes).to_string();
    format!("derived-{}", &hex[..32])
}
