//! Which shape is this, and which messages does it hold? Everything about one event is decided here,
//! without a store and without a clock.

use anamnesis_domain::input::StructuredClaim;
use anamnesis_domain::memory::Role;
use anamnesis_domain::owner::Owner;
use anamnesis_domain::text::{Text, is_blank};
use anamnesis_domain::time::Timestamp;
use serde_json::Value;

use crate::caps;
use crate::message::{Message, Rejected, derived_id};
use crate::read::Node;
use crate::shapes;

/// What the shape itself does not say.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Context {
    /// Tenant of owners that a shape gives without one.
    pub default_tenant: String,
    /// Source of events whose shape names none.
    pub source_default: String,
    pub now: Timestamp,
    /// Place of the event in what was sent, for ids of events that bring none; 0 over HTTP, where a
    /// batch may be split differently when it is sent again.
    pub position: u64,
    /// Id of an event that brings none: the call's `idempotency-key`.
    pub event_id_default: Option<String>,
}

impl Context {
    pub fn new(default_tenant: &str, now: Timestamp) -> Self {
        Self {
            default_tenant: default_tenant.to_owned(),
            source_default: "api".to_owned(),
            now,
            position: 0,
            event_id_default: None,
        }
    }
}

/// Every shape that is accepted, for people who sent something else.
pub const ACCEPTED_SHAPES: &str = "CloudEvents 1.0 (structured, or a Kafka record in binary mode), \
    OpenAI chat completion, OpenAI response, Anthropic messages, LangGraph checkpoint, OpenTelemetry \
    GenAI event or span, OpenInference span, FHIR R4 Communication, AllergyIntolerance, Condition or \
    MedicationStatement or a Bundle of them, or {event_id, owner, role, at, text}";

/// The messages of each event of a value: one, or one for each entry of a FHIR Bundle, since most of an
/// exported Bundle is no statement to remember, and what is one must not be lost for that.
pub fn normalise_each(value: &Value, context: &Context) -> Vec<Result<Vec<Message>, Rejected>> {
    let Some(entries) = shapes::fhir::bundle::entries(&Node::root(value)) else {
        return vec![normalise(value, context)];
    };
    let entries = match entries {
        Ok(entries) => entries,
        Err(rejected) => return vec![Err(rejected)],
    };
    let each = entries.into_iter().enumerate().map(|(place, entry)| {
        let entry = entry?;
        let mut context = context.clone();
        let id = context.event_id_default.take();
        context.event_id_default = id.map(|id| format!("{id}/{place}"));
        let root = Node {
            value: &entry.resource,
            path: entry.path,
        };
        shapes::fhir::resource(&root, &context)?.finish(&entry.resource, &context)
    });
    each.collect()
}

/// The messages of one event of any accepted shape.
///
/// # Errors
/// A stable code, the path of the field that offends, and what to do. An event is accepted whole or
/// not at all.
pub fn normalise(value: &Value, context: &Context) -> Result<Vec<Message>, Rejected> {
    let root = Node::root(value);
    if !value.is_object() {
        return Err(Rejected::whole(
            "unsupported_shape",
            format!("an event is a JSON object; accepted shapes: {ACCEPTED_SHAPES}"),
        ));
    }
    let has = |key: &str| root.get(key).is_some();
    let is = |key: &str, wanted: &str| value.get(key).and_then(Value::as_str) == Some(wanted);
    let draft = if has("specversion") {
        shapes::cloudevents::structured(&root, context)?
    } else if root.walk(&["headers", "ce_specversion"]).is_some() {
        shapes::cloudevents::kafka_binary(&root, context)?
    } else if has("resourceType") {
        shapes::fhir::resource(&root, context)?
    } else if is("object", "response") || (has("output") && has("input")) {
        shapes::openai::response(&root, context)?
    } else if is("type", "message") {
        shapes::anthropic::messages(&root, context)?
    } else if is("object", "chat.completion") || has("choices") || has("messages") {
        shapes::openai::chat_completion(&root, context)?
    } else if root.walk(&["checkpoint", "channel_values"]).is_some() {
        shapes::langgraph::checkpoint(&root, context)?
    } else if has("attributes") {
        shapes::telemetry::event_or_span(&root, context)?
    } else if has("text") {
        shapes::native::message(&root, context)?
    } else {
        return Err(Rejected::whole(
            "unsupported_shape",
            format!("the shape of this event is not known; accepted shapes: {ACCEPTED_SHAPES}"),
        ));
    };
    draft.finish(value, context)
}

/// What a shape was read into, before the checks that are the same for all.
#[derive(Clone, Debug)]
pub(crate) struct Draft {
    pub(crate) owner: Owner,
    pub(crate) source: Option<String>,
    pub(crate) event_id: Option<String>,
    pub(crate) conversation_id: Option<String>,
    pub(crate) turn_id: Option<String>,
    pub(crate) at: (Timestamp, i32),
    pub(crate) at_field: String,
    pub(crate) context_tags: Vec<String>,
    pub(crate) parts: Vec<Part>,
    /// The field that is named when no part has text.
    pub(crate) text_field: String,
}

/// One message of a draft.
#[derive(Clone, Debug)]
pub(crate) struct Part {
    /// Empty for a shape with one message.
    pub(crate) label: String,
    pub(crate) message_id: Option<String>,
    pub(crate) role: Role,
    pub(crate) speaker: Option<String>,
    pub(crate) text: String,
    pub(crate) field: String,
    pub(crate) injected: Vec<(u32, u32)>,
    pub(crate) structured: Option<StructuredClaim>,
}

impl Part {
    pub(crate) fn new(label: impl Into<String>, role: Role, text: String, field: String) -> Self {
        Self {
            label: label.into(),
            message_id: None,
            role,
            speaker: None,
            text,
            field,
            injected: Vec::new(),
            structured: None,
        }
    }
}

impl Draft {
    pub(crate) fn finish(self, value: &Value, context: &Context) -> Result<Vec<Message>, Rejected> {
        let latest = context.now.plus_millis(caps::FUTURE_TOLERANCE_MILLIS);
        if self.at.0 > latest {
            return Err(Rejected::new(
                "time_in_future",
                self.at_field,
                "the time is more than 5 minutes ahead of this server's clock; check zone and unit",
            ));
        }
        let source = self
            .source
            .unwrap_or_else(|| context.source_default.clone());
        let event_id = self
            .event_id
            .or_else(|| context.event_id_default.clone())
            .unwrap_or_else(|| derived_id(value, context.position));
        for (name, id) in [
            ("source", Some(&source)),
            ("event_id", Some(&event_id)),
            ("conversation_id", self.conversation_id.as_ref()),
            ("turn_id", self.turn_id.as_ref()),
        ] {
            check_id(id, name)?;
        }
        check_tags(&self.context_tags)?;

        let mut messages = Vec::new();
        for part in self.parts {
            if part.text.len() > caps::TEXT_BYTES_MAX {
                let detail = format!(
                    "the text has {} bytes and the limit is {}; send a long document in parts",
                    part.text.len(),
                    caps::TEXT_BYTES_MAX
                );
                return Err(Rejected::new("text_too_long", part.field, detail));
            }
            check_id(part.message_id.as_ref(), "message_id")?;
            check_id(Some(&part.label), "message_id")?;
            if part
                .speaker
                .as_ref()
                .is_some_and(|s| s.len() > caps::SPEAKER_BYTES_MAX)
            {
                return Err(Rejected::new(
                    "field_too_long",
                    "speaker",
                    format!(
                        "a speaker's name has at most {} bytes",
                        caps::SPEAKER_BYTES_MAX
                    ),
                ));
            }
            if let Some(claim) = &part.structured {
                check_id(Some(&claim.code), "structured.code")?;
                check_id(claim.attribute.as_ref(), "structured.attribute")?;
                check_id(claim.dose.as_ref(), "structured.dose")?;
                if claim.names.len() > caps::STRUCTURED_NAMES_MAX {
                    let detail = format!("at most {} names", caps::STRUCTURED_NAMES_MAX);
                    return Err(Rejected::new("invalid_field", "structured.names", detail));
                }
                for name in &claim.names {
                    check_id(Some(name), "structured.names")?;
                }
            }
            if is_blank(&part.text) {
                continue;
            }
            messages.push(Message {
                owner: self.owner.clone(),
                source: source.clone(),
                event_id: event_id.clone(),
                message: part.label,
                conversation_id: self.conversation_id.clone(),
                turn_id: self.turn_id.clone(),
                message_id: part.message_id,
                role: part.role,
                speaker: part.speaker.map(Text::new),
                at: self.at.0,
                zone_minutes: self.at.1,
                text: Text::new(part.text),
                context_tags: self.context_tags.clone(),
                injected: part.injected,
                structured: part.structured,
            });
        }
        if messages.is_empty() {
            return Err(Rejected::missing(
                self.text_field,
                "no message of this event has a text",
            ));
        }
        Ok(messages)
    }
}

fn check_id(id: Option<&String>, name: &str) -> Result<(), Rejected> {
    if id.is_some_and(|id| id.len() > caps::ID_BYTES_MAX) {
        let detail = format!("an id has at most {} bytes", caps::ID_BYTES_MAX);
        return Err(Rejected::new("field_too_long", name, detail));
    }
    Ok(())
}

pub(crate) fn check_tags(tags: &[String]) -> Result<(), Rejected> {
    let is_bad = |tag: &String| tag.is_empty() || tag.len() > caps::CONTEXT_TAG_BYTES_MAX;
    if tags.len() > caps::CONTEXT_TAGS_MAX || tags.iter().any(is_bad) {
        let detail = format!(
            "at most {} tags of 1 to {} bytes each",
            caps::CONTEXT_TAGS_MAX,
            caps::CONTEXT_TAG_BYTES_MAX
        );
        return Err(Rejected::new("invalid_field", "context_tags", detail));
    }
    Ok(())
}

#[cfg(test)]
mod tests;
