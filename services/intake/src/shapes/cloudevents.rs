//! CloudEvents 1.0. The envelope says whose event it is; what stands in `data` never does.

use anamnesis_domain::memory::Role;
use anamnesis_domain::owner::Owner;
use anamnesis_domain::time::Timestamp;
use serde_json::Value;

use super::{content, fhir, native};
use crate::message::Rejected;
use crate::normalise::{Context, Draft, Part};
use crate::read::Node;

/// What the envelope says, in either mode.
struct Envelope {
    owner: Owner,
    source: String,
    id: String,
    at: (Timestamp, i32),
    at_field: String,
}

pub(crate) fn structured(root: &Node<'_>, context: &Context) -> Result<Draft, Rejected> {
    let envelope = envelope(root, "", root.get("partitionkey"), context)?;
    let data = root
        .get("data")
        .ok_or_else(|| match root.get("data_base64") {
            Some(_) => Rejected::wrong_type("data_base64", "absent; send JSON in data"),
            None => Rejected::missing("data", "the message, with text and role"),
        })?;
    with_data(envelope, &data, context)
}

/// A record as Kafka clients show it: `key`, `headers` with `ce_` names, `value`.
pub(crate) fn kafka_binary(root: &Node<'_>, context: &Context) -> Result<Draft, Rejected> {
    let headers = root.require("headers", "the record's headers")?;
    let envelope = envelope(&headers, "ce_", root.get("key"), context)?;
    let value = root.require("value", "the message, with text and role")?;
    let Value::String(json) = value.value else {
        return with_data(envelope, &value, context);
    };
    let parsed: Value = serde_json::from_str(json)
        .map_err(|_| Rejected::wrong_type("value", "JSON, as content-type says"))?;
    with_data(
        envelope,
        &Node {
            value: &parsed,
            path: "value".to_owned(),
        },
        context,
    )
}

fn envelope(
    root: &Node<'_>,
    prefix: &str,
    key: Option<Node<'_>>,
    context: &Context,
) -> Result<Envelope, Rejected> {
    let get = |name: &str| root.get(&format!("{prefix}{name}"));
    let require = |name: &str, what: &str| root.require(&format!("{prefix}{name}"), what);
    let version = require("specversion", "1.0")?;
    if version.text()? != "1.0" {
        return Err(Rejected::new(
            "unsupported_shape",
            version.path,
            "only CloudEvents 1.0 is accepted",
        ));
    }
    // The partition key is the platform's own statement of whose event it is, when there is no subject.
    let owner = get("subject")
        .or_else(|| get("owner"))
        .or_else(|| get("partitionkey"))
        .or(key)
        .ok_or_else(|| {
            let field = root.path_of(&format!("{prefix}subject"));
            Rejected::missing(field, "the owner, <tenant>/<scope>/<id>")
        })?
        .owner(&context.default_tenant)?;
    let time = require("time", "when it was said, in RFC 3339")?;
    Ok(Envelope {
        owner,
        source: require("source", "where the event comes from")?.id()?,
        id: require("id", "the event's id within its source")?.id()?,
        at: time.instant()?,
        at_field: time.path,
    })
}

/// `data` is one message, or a list of chat messages.
fn with_data(envelope: Envelope, data: &Node<'_>, context: &Context) -> Result<Draft, Rejected> {
    if !data.value.is_object() {
        return Err(Rejected::wrong_type(
            &data.path,
            "an object with text and role",
        ));
    }
    if data.get("resourceType").is_some() {
        return record(envelope, data, context);
    }
    let (parts, text_field) = match data.get("messages") {
        Some(messages) => (content::chat_messages(&messages, 0)?, messages.path),
        None => (one_message(data)?, data.path_of("text")),
    };
    Ok(Draft {
        owner: envelope.owner,
        source: Some(envelope.source),
        event_id: Some(envelope.id),
        conversation_id: data.opt_id(&[
            "conversationId",
            "conversation_id",
            "threadId",
            "sessionId",
        ])?,
        turn_id: data.opt_id(&["turnId", "turn_id"])?,
        at: envelope.at,
        at_field: envelope.at_field,
        context_tags: native::context_tags(data)?,
        parts,
        text_field,
    })
}

/// A hospital's record in an envelope. Its own id and version say which event it is: the next version in
/// another envelope must find this one.
fn record(envelope: Envelope, data: &Node<'_>, context: &Context) -> Result<Draft, Rejected> {
    let context = Context {
        default_tenant: envelope.owner.tenant().to_owned(),
        ..context.clone()
    };
    let draft = fhir::resource(data, &context)?;
    if draft.owner != envelope.owner {
        let detail = "the record is of another patient than the envelope's subject";
        return Err(Rejected::new("owner_mismatch", &data.path, detail));
    }
    Ok(Draft {
        source: Some(envelope.source),
        event_id: draft.event_id.or(Some(envelope.id)),
        ..draft
    })
}

fn one_message(data: &Node<'_>) -> Result<Vec<Part>, Rejected> {
    // A channel without roles carries what its subject says.
    let role = match data.get("role") {
        Some(role) => role.role()?,
        None => Role::User,
    };
    let content = data.get_any(&["text", "content"]);
    let mut parts = content::parts_of(content.as_ref(), "", role)?;
    for part in &mut parts {
        part.message_id = data.opt_id(&["messageId", "message_id"])?;
        part.speaker = data.opt_id(&["speaker", "name"])?;
        part.injected = native::injected(data, &part.text)?;
    }
    Ok(parts)
}
