//! The plain shape, for senders that have no other. Its fields are ours, so an unknown one is a
//! mistake and is refused by name.

use anamnesis_domain::input::StructuredClaim;
use serde_json::Value;

use crate::caps;
use crate::message::Rejected;
use crate::normalise::{Context, Draft, Part};
use crate::read::Node;

const FIELDS: [&str; 13] = [
    "event_id",
    "owner",
    "source",
    "conversation_id",
    "turn_id",
    "message_id",
    "role",
    "speaker",
    "at",
    "text",
    "context_tags",
    "injected",
    "structured",
];

pub(crate) fn message(root: &Node<'_>, context: &Context) -> Result<Draft, Rejected> {
    refuse_unknown(root)?;
    let owner = root
        .require("owner", "whose message this is, <tenant>/<scope>/<id>")?
        .owner(&context.default_tenant)?;
    let role = root
        .require("role", "who says it: user, assistant, clinician …")?
        .role()?;
    let time = root.require("at", "when it was said, in RFC 3339")?;
    let text = root.require("text", "what was said")?;
    let message_id = root.opt_id(&["message_id"])?;
    let mut part = Part::new("", role, text.text()?.to_owned(), text.path.clone());
    part.message_id = message_id;
    part.speaker = root.opt_id(&["speaker"])?;
    part.injected = injected(root, &part.text)?;
    if let Some(structured) = root.get("structured") {
        let claim: Result<StructuredClaim, _> = serde_json::from_value(structured.value.clone());
        let claim = claim.map_err(|_| {
            Rejected::wrong_type(
                "structured",
                "{kind, code, attribute?, ends, valid_from?, valid_to?, stance?, names?, dose?, held?}",
            )
        })?;
        part.structured = Some(claim);
    }
    Ok(Draft {
        owner,
        source: root.opt_id(&["source"])?,
        event_id: root.opt_id(&["event_id"])?,
        conversation_id: root.opt_id(&["conversation_id"])?,
        turn_id: root.opt_id(&["turn_id"])?,
        at: time.instant()?,
        at_field: time.path,
        context_tags: context_tags(root)?,
        parts: vec![part],
        text_field: "text".to_owned(),
    })
}

fn refuse_unknown(root: &Node<'_>) -> Result<(), Rejected> {
    let Value::Object(fields) = root.value else {
        return Ok(());
    };
    let Some(unknown) = fields
        .keys()
        .find(|field| !FIELDS.contains(&field.as_str()))
    else {
        return Ok(());
    };
    let name: String = unknown.chars().take(100).collect();
    Err(Rejected::new(
        "unknown_field",
        name,
        format!(
            "this field is not known; known fields: {}",
            FIELDS.join(", ")
        ),
    ))
}

pub(crate) fn context_tags(root: &Node<'_>) -> Result<Vec<String>, Rejected> {
    let Some(tags) = root.get_any(&["context_tags", "contextTags"]) else {
        return Ok(Vec::new());
    };
    tags.items()?
        .iter()
        .map(|tag| Ok(tag.text()?.to_owned()))
        .collect()
}

/// Pairs of code points, each within the text.
pub(crate) fn injected(root: &Node<'_>, text: &str) -> Result<Vec<(u32, u32)>, Rejected> {
    let Some(list) = root.get("injected") else {
        return Ok(Vec::new());
    };
    let items = list.items()?;
    let wrong = |path: &str| Rejected::wrong_type(path, "[from, to] in code points of the text");
    if items.len() > caps::INJECTED_RANGES_MAX {
        return Err(wrong(&list.path));
    }
    let length = text.chars().count() as u64;
    let mut ranges = Vec::new();
    for item in items {
        let pair = item.value.as_array().filter(|pair| pair.len() == 2);
        let pair = pair.and_then(|pair| Some((pair[0].as_u64()?, pair[1].as_u64()?)));
        let (from, to) = pair
            .filter(|(from, to)| from <= to && *to <= length)
            .ok_or_else(|| wrong(&item.path))?;
        ranges.push((from as u32, to as u32));
    }
    Ok(ranges)
}
