//! OpenTelemetry GenAI (inference events, spans, memory spans) and OpenInference spans: all keep what
//! they say in `attributes`, under names that tell them apart.

use anamnesis_domain::memory::Role;
use anamnesis_domain::owner::Owner;
use serde_json::{Map, Value};

use super::content;
use crate::message::Rejected;
use crate::normalise::{ACCEPTED_SHAPES, Context, Draft, Part};
use crate::read::{Node, role_of};

const INPUT: &str = "gen_ai.input.messages";
const OUTPUT: &str = "gen_ai.output.messages";
const SYSTEM: &str = "gen_ai.system_instructions";
const MEMORY_QUERY: &str = "gen_ai.memory.query.text";

pub(crate) fn event_or_span(root: &Node<'_>, context: &Context) -> Result<Draft, Rejected> {
    let raw = root.require("attributes", "what the event or span says")?;
    let plain = plain_attributes(&raw)?;
    let attributes = Node {
        value: &plain,
        path: raw.path,
    };
    let has_prefix = |prefix: &str| {
        plain
            .as_object()
            .is_some_and(|map| map.keys().any(|key| key.starts_with(prefix)))
    };
    let is_open_inference = has_prefix("openinference.") || has_prefix("llm.");
    let family = if is_open_inference {
        "openinference"
    } else {
        "opentelemetry"
    };
    let parts = if is_open_inference {
        open_inference(&attributes)?
    } else if has_prefix("gen_ai.memory.") {
        memory(&attributes)?
    } else if has_prefix("gen_ai.") {
        gen_ai(&attributes)?
    } else {
        return Err(Rejected::new(
            "unsupported_shape",
            "attributes",
            format!(
                "neither a GenAI nor an OpenInference record; accepted shapes: {ACCEPTED_SHAPES}"
            ),
        ));
    };
    let owner = owner(&attributes, context)?;
    let time = root
        .get_any(&[
            "timeUnixNano",
            "time_unix_nano",
            "startTimeUnixNano",
            "start_time_unix_nano",
            "start_time",
            "startTime",
            "timestamp",
            "observedTimeUnixNano",
        ])
        .ok_or_else(|| {
            Rejected::missing(
                "timeUnixNano",
                "when it happened, in nanoseconds since 1970",
            )
        })?;
    let span = root.opt_id(&["spanId", "span_id"])?.or(root
        .walk(&["context", "span_id"])
        .map(|id| id.id())
        .transpose()?);
    Ok(Draft {
        owner,
        source: Some(
            attributes
                .opt_id(&["service.name"])?
                .unwrap_or_else(|| family.to_owned()),
        ),
        event_id: attributes.opt_id(&["gen_ai.response.id"])?.or(span),
        conversation_id: attributes.opt_id(&["gen_ai.conversation.id", "session.id"])?,
        turn_id: None,
        at: time.instant()?,
        at_field: time.path,
        context_tags: Vec::new(),
        text_field: parts.1,
        parts: parts.0,
    })
}

fn owner(attributes: &Node<'_>, context: &Context) -> Result<Owner, Rejected> {
    attributes
        .get_any(&["user.id", "enduser.id"])
        .ok_or_else(|| {
            Rejected::missing(
                "attributes.user.id",
                "whose conversation this is, <tenant>/<scope>/<id>",
            )
        })?
        .owner(&context.default_tenant)
}

type Parts = (Vec<Part>, String);

fn gen_ai(attributes: &Node<'_>) -> Result<Parts, Rejected> {
    let mut parts = Vec::new();
    if let Some(system) = attributes.get(SYSTEM) {
        let json = unpacked(&system)?;
        let list = Node {
            value: &json,
            path: system.path,
        };
        parts.append(&mut content::parts_of(Some(&list), "system", Role::System)?);
    }
    let mut first = 0;
    for field in [INPUT, OUTPUT] {
        let Some(messages) = attributes.get(field) else {
            continue;
        };
        let json = unpacked(&messages)?;
        let list = Node {
            value: &json,
            path: messages.path,
        };
        let count = list.items()?.len();
        parts.append(&mut content::chat_messages(&list, first)?);
        first += count;
    }
    Ok((parts, attributes.path_of(INPUT)))
}

/// A search of a memory store: what was asked is a tool's words; what the store answered had been
/// learned before, and is not learned again.
fn memory(attributes: &Node<'_>) -> Result<Parts, Rejected> {
    let field = attributes.path_of(MEMORY_QUERY);
    let Some(query) = attributes.get(MEMORY_QUERY) else {
        return Ok((Vec::new(), field));
    };
    let part = Part::new("", Role::Tool, query.text()?.to_owned(), query.path.clone());
    Ok((vec![part], field))
}

/// Span attributes cannot nest, so lists travel as JSON in a string.
fn unpacked(node: &Node<'_>) -> Result<Value, Rejected> {
    match node.value {
        Value::String(json) => serde_json::from_str(json)
            .map_err(|_| Rejected::wrong_type(&node.path, "a list, or JSON of one")),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => {
            Ok(node.value.clone())
        }
    }
}

/// `llm.input_messages.<n>.message.content`, or `….message.contents.<m>.message_content.text`.
fn open_inference(attributes: &Node<'_>) -> Result<Parts, Rejected> {
    let mut parts = Vec::new();
    let mut place = 0;
    for list in ["llm.input_messages", "llm.output_messages"] {
        for n in 0.. {
            let prefix = format!("{list}.{n}.message");
            let Some(role) = attributes.get(&format!("{prefix}.role")) else {
                break;
            };
            let known = role_of(role.text()?);
            let role =
                known.ok_or_else(|| Rejected::new("unknown_role", role.path, "unknown role"))?;
            let mut texts: Vec<&str> = Vec::new();
            let content = format!("{prefix}.content");
            if let Some(text) = attributes.get(&content) {
                texts.push(text.text()?);
            }
            for m in 0.. {
                let part = format!("{prefix}.contents.{m}.message_content");
                if let Some(text) = attributes.get(&format!("{part}.text")) {
                    texts.push(text.text()?);
                } else if attributes.get(&format!("{part}.type")).is_none() {
                    break;
                }
            }
            let field = attributes.path_of(&content);
            parts.push(Part::new(place.to_string(), role, texts.join("\n"), field));
            place += 1;
        }
    }
    Ok((
        parts,
        attributes.path_of("llm.input_messages.0.message.content"),
    ))
}

/// OTLP writes attributes as a list of `{key, value: {stringValue: …}}`; everybody else as an object.
fn plain_attributes(attributes: &Node<'_>) -> Result<Value, Rejected> {
    if !attributes.value.is_array() {
        return Ok(attributes.value.clone());
    }
    let mut map = Map::new();
    for item in attributes.items()? {
        let key = item.require("key", "the attribute's name")?.text()?;
        let value = item
            .get("value")
            .map_or(Value::Null, |value| any_value(value.value));
        map.insert(key.to_owned(), value);
    }
    Ok(Value::Object(map))
}

/// The depth is bounded by the JSON parser's own limit.
fn any_value(value: &Value) -> Value {
    let Some((kind, inner)) = value.as_object().and_then(|map| map.iter().next()) else {
        return Value::Null;
    };
    let list = |inner: &Value| {
        inner
            .get("values")
            .and_then(Value::as_array)
            .cloned()
            .unwrap_or_default()
    };
    match kind.as_str() {
        "arrayValue" => Value::Array(list(inner).iter().map(any_value).collect()),
        "kvlistValue" => Value::Object(
            list(inner)
                .iter()
                .filter_map(|pair| {
                    let key = pair.get("key")?.as_str()?.to_owned();
                    Some((key, any_value(pair.get("value")?)))
                })
                .collect(),
        ),
        _ => inner.clone(),
    }
}
