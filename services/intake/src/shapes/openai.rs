//! OpenAI: chat completions (the request's messages beside the answer's choices) and responses.

use anamnesis_domain::memory::Role;
use anamnesis_domain::owner::Owner;

use super::content;
use crate::message::Rejected;
use crate::normalise::{Context, Draft, Part};
use crate::read::Node;

const TIME: &str = "when it was said, in Unix seconds or RFC 3339";

/// `metadata` is where OpenAI lets a platform say whom the conversation belongs to.
fn owner(root: &Node<'_>, context: &Context) -> Result<Owner, Rejected> {
    let in_metadata = root
        .get("metadata")
        .and_then(|metadata| metadata.get_any(&["owner", "patient_id", "user_id"]));
    in_metadata
        .or_else(|| root.get_any(&["owner", "user", "safety_identifier"]))
        .ok_or_else(|| {
            Rejected::missing(
                "metadata.patient_id",
                "whose conversation this is, <tenant>/<scope>/<id>",
            )
        })?
        .owner(&context.default_tenant)
}

fn conversation(root: &Node<'_>) -> Result<Option<String>, Rejected> {
    if let Some(conversation) = root.get("conversation") {
        return match conversation.get("id") {
            Some(id) => Ok(Some(id.id()?)),
            None => Ok(Some(conversation.id()?)),
        };
    }
    match root.get("metadata") {
        Some(metadata) => metadata.opt_id(&["conversation_id", "thread_id", "session_id"]),
        None => root.opt_id(&["conversation_id"]),
    }
}

pub(crate) fn chat_completion(root: &Node<'_>, context: &Context) -> Result<Draft, Rejected> {
    let owner = owner(root, context)?;
    let time = root
        .get_any(&["created", "created_at", "at"])
        .ok_or_else(|| Rejected::missing("created", TIME))?;
    let mut parts = Vec::new();
    let mut count = 0;
    if let Some(messages) = root.get("messages") {
        count = messages.items()?.len();
        parts = content::chat_messages(&messages, 0)?;
    }
    if let Some(choices) = root.get("choices") {
        for (i, choice) in choices.items()?.iter().enumerate() {
            if let Some(message) = choice.get("message") {
                parts.append(&mut content::chat_message(&message, count + i)?);
            }
        }
    }
    Ok(Draft {
        owner,
        source: Some(
            root.opt_id(&["source"])?
                .unwrap_or_else(|| "openai-chat".to_owned()),
        ),
        event_id: root.opt_id(&["id"])?,
        conversation_id: conversation(root)?,
        turn_id: None,
        at: time.instant()?,
        at_field: time.path,
        context_tags: Vec::new(),
        parts,
        text_field: "messages".to_owned(),
    })
}

pub(crate) fn response(root: &Node<'_>, context: &Context) -> Result<Draft, Rejected> {
    let owner = owner(root, context)?;
    let time = root
        .get_any(&["created_at", "created"])
        .ok_or_else(|| Rejected::missing("created_at", TIME))?;
    let mut parts = Vec::new();
    let mut place = 0;
    for field in ["input", "output"] {
        let Some(list) = root.get(field) else {
            continue;
        };
        // A plain string is the short form of one message of the user.
        if field == "input" && list.value.is_string() {
            parts.push(Part::new(
                "0",
                Role::User,
                list.text()?.to_owned(),
                list.path,
            ));
            place += 1;
            continue;
        }
        for item in list.items()? {
            parts.append(&mut response_item(&item, place)?);
            place += 1;
        }
    }
    Ok(Draft {
        owner,
        source: Some(
            root.opt_id(&["source"])?
                .unwrap_or_else(|| "openai-responses".to_owned()),
        ),
        event_id: root.opt_id(&["id"])?,
        conversation_id: conversation(root)?,
        turn_id: None,
        at: time.instant()?,
        at_field: time.path,
        context_tags: Vec::new(),
        parts,
        text_field: "input".to_owned(),
    })
}

/// Messages, what tools answered and what is to be written down; other calls and reasoning give nothing.
fn response_item(item: &Node<'_>, place: usize) -> Result<Vec<Part>, Rejected> {
    let kind = item
        .get("type")
        .map(|kind| kind.text())
        .transpose()?
        .unwrap_or("message");
    match kind {
        "message" => content::chat_message(item, place),
        "function_call_output" | "custom_tool_call_output" => {
            let label = item
                .opt_id(&["id", "call_id"])?
                .unwrap_or_else(|| place.to_string());
            let output = item.get("output");
            content::parts_of(output.as_ref(), &format!("{label}.output"), Role::Tool)
        }
        "function_call" => {
            let label = item
                .opt_id(&["id", "call_id"])?
                .unwrap_or_else(|| place.to_string());
            Ok(content::memory_write(item, &label)?.into_iter().collect())
        }
        _ => Ok(Vec::new()),
    }
}
