//! Anthropic messages: the request's messages beside the answer's content. The API's own objects carry
//! no time, so a platform that sends them adds one.

use anamnesis_domain::memory::Role;

use super::content;
use crate::message::Rejected;
use crate::normalise::{Context, Draft};
use crate::read::Node;

pub(crate) fn messages(root: &Node<'_>, context: &Context) -> Result<Draft, Rejected> {
    let owner = root
        .get("metadata")
        .and_then(|metadata| metadata.get_any(&["owner", "patient_id", "user_id"]))
        .or_else(|| root.get("owner"))
        .ok_or_else(|| {
            Rejected::missing(
                "metadata.user_id",
                "whose conversation this is, <tenant>/<scope>/<id>",
            )
        })?
        .owner(&context.default_tenant)?;
    let time = root
        .get_any(&["created_at", "created", "timestamp", "at"])
        .ok_or_else(|| {
            Rejected::missing(
                "created_at",
                "Anthropic messages carry no time; add created_at (RFC 3339) beside them",
            )
        })?;
    let mut parts = Vec::new();
    let mut count = 0;
    if let Some(system) = root.get("system") {
        parts.append(&mut content::parts_of(
            Some(&system),
            "system",
            Role::System,
        )?);
    }
    if let Some(list) = root.get("messages") {
        count = list.items()?.len();
        parts.append(&mut content::chat_messages(&list, 0)?);
    }
    // The answer stands at the top level, with the role there.
    let role = match root.get("role") {
        Some(role) => role.role()?,
        None => Role::Assistant,
    };
    parts.append(&mut content::parts_of(
        root.get("content").as_ref(),
        &count.to_string(),
        role,
    )?);
    let metadata = root.get("metadata");
    let conversation = metadata
        .map(|m| m.opt_id(&["conversation_id", "session_id"]))
        .transpose()?;
    Ok(Draft {
        owner,
        source: Some(
            root.opt_id(&["source"])?
                .unwrap_or_else(|| "anthropic".to_owned()),
        ),
        event_id: root.opt_id(&["id"])?,
        conversation_id: conversation
            .flatten()
            .or(root.opt_id(&["conversation_id"])?),
        turn_id: None,
        at: time.instant()?,
        at_field: time.path,
        context_tags: Vec::new(),
        parts,
        text_field: "messages".to_owned(),
    })
}
