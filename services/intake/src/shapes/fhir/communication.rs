//! FHIR Communication: a message.

use anamnesis_domain::memory::Role;

use super::{event_id, references, source};
use crate::message::Rejected;
use crate::normalise::{Context, Draft, Part};
use crate::read::Node;

pub(super) fn read(root: &Node<'_>, context: &Context) -> Result<Draft, Rejected> {
    if let Some(status) = root.get("status") {
        let happened = matches!(
            status.text()?,
            "completed" | "in-progress" | "stopped" | "on-hold"
        );
        if !happened {
            return Err(Rejected::new(
                "not_a_statement",
                status.path,
                "only a communication that took place is a message",
            ));
        }
    }
    let owner = references::patient(root, "subject", "whose message this is", context)?;
    let time = root
        .get_any(&["sent", "received"])
        .ok_or_else(|| Rejected::missing("sent", "when it was said, in RFC 3339"))?;
    let sender = root
        .walk(&["sender", "reference"])
        .map(|sender| sender.id())
        .transpose()?;
    let role = sender.as_deref().map_or(Role::Document, references::role);
    let payload = root.require("payload", "what was said")?.items()?;
    let mut parts = Vec::new();
    for (i, item) in payload.iter().enumerate() {
        let text = item
            .get("contentString")
            .or_else(|| item.walk(&["contentCodeableConcept", "text"]));
        if let Some(text) = text {
            let label = if payload.len() == 1 {
                String::new()
            } else {
                i.to_string()
            };
            let mut part = Part::new(label, role, text.text()?.to_owned(), text.path.clone());
            part.speaker.clone_from(&sender);
            parts.push(part);
        }
    }
    Ok(Draft {
        owner,
        source: source(root)?,
        event_id: event_id(root, "Communication")?.map(|id| id.event),
        conversation_id: root
            .walk(&["encounter", "reference"])
            .map(|e| e.id())
            .transpose()?,
        turn_id: None,
        at: time.instant()?,
        at_field: time.path,
        context_tags: Vec::new(),
        parts,
        text_field: "payload[0].contentString".to_owned(),
    })
}
