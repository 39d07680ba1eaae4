//! LangGraph checkpoints. A checkpoint repeats every message of its thread, so a message is identified
//! by its own id within the thread: the first checkpoint that holds it says when it was said, and
//! later ones are the same event again.

use super::content;
use crate::message::Rejected;
use crate::normalise::{Context, Draft};
use crate::read::Node;

pub(crate) fn checkpoint(root: &Node<'_>, context: &Context) -> Result<Draft, Rejected> {
    let configurable = root.walk(&["config", "configurable"]);
    let owner = configurable
        .as_ref()
        .and_then(|c| c.get_any(&["owner", "patient_id", "user_id"]))
        .or_else(|| {
            root.get("metadata")
                .and_then(|m| m.get_any(&["owner", "patient_id", "user_id"]))
        })
        .ok_or_else(|| {
            Rejected::missing(
                "config.configurable.user_id",
                "whose thread this is, <tenant>/<scope>/<id>",
            )
        })?
        .owner(&context.default_tenant)?;
    let checkpoint = root.require("checkpoint", "the checkpoint")?;
    let time = checkpoint.require("ts", "when the checkpoint was made, in RFC 3339")?;
    let thread = configurable
        .map(|c| c.opt_id(&["thread_id"]))
        .transpose()?
        .flatten();
    let checkpoint_id = checkpoint.opt_id(&["id"])?;
    let graph = root
        .get("metadata")
        .map(|m| m.opt_id(&["graph_id"]))
        .transpose()?
        .flatten();

    let mut parts = Vec::new();
    let mut all_have_ids = true;
    if let Some(list) = checkpoint.walk(&["channel_values", "messages"]) {
        for (i, message) in list.items()?.iter().enumerate() {
            // Serialised constructors keep the fields in `kwargs`.
            let fields = message.get("kwargs").unwrap_or_else(|| message.clone());
            let role = fields
                .get_any(&["type", "role"])
                .ok_or_else(|| {
                    Rejected::missing(fields.path_of("type"), "human, ai, system or tool")
                })?
                .role()?;
            let id = fields.opt_id(&["id"])?;
            all_have_ids &= id.is_some();
            let label = id.clone().unwrap_or_else(|| i.to_string());
            let speaker = fields.opt_id(&["name"])?;
            let mut said = content::memory_writes(&fields, &label)?;
            said.append(&mut content::parts_of(
                fields.get("content").as_ref(),
                &label,
                role,
            )?);
            for mut part in said {
                part.message_id.clone_from(&id);
                if part.speaker.is_none() {
                    part.speaker.clone_from(&speaker);
                }
                parts.push(part);
            }
        }
    }
    Ok(Draft {
        owner,
        source: Some(graph.unwrap_or_else(|| "langgraph".to_owned())),
        event_id: if all_have_ids {
            thread.clone().or(checkpoint_id)
        } else {
            checkpoint_id
        },
        conversation_id: thread,
        turn_id: None,
        at: time.instant()?,
        at_field: time.path,
        context_tags: Vec::new(),
        parts,
        text_field: "checkpoint.channel_values.messages".to_owned(),
    })
}
