//! What chat shapes have in common: a message's content is a string or a list of typed parts.

use std::borrow::Cow;

use anamnesis_domain::input::MEMORY_WRITE;
use anamnesis_domain::memory::Role;
use serde_json::Value;

use crate::message::Rejected;
use crate::normalise::Part;
use crate::read::Node;

/// The parts of one chat message: its own text, the tool results that it carries, and what an assistant
/// wants written down. Other calls of tools, images and reasoning are not what anybody said and give
/// nothing.
pub(crate) fn parts_of(
    content: Option<&Node<'_>>,
    label: &str,
    role: Role,
) -> Result<Vec<Part>, Rejected> {
    let Some(content) = content else {
        return Ok(Vec::new());
    };
    if let Value::String(text) = content.value {
        return Ok(vec![Part::new(
            label,
            role,
            text.clone(),
            content.path.clone(),
        )]);
    }
    let mut own: Vec<&str> = Vec::new();
    // What is to be written down stands before what the assistant says about it.
    let mut parts = Vec::new();
    let mut results = Vec::new();
    for (i, part) in content.items()?.iter().enumerate() {
        if let Value::String(text) = part.value {
            own.push(text);
            continue;
        }
        let kind = part
            .get("type")
            .map(|kind| kind.text())
            .transpose()?
            .unwrap_or("text");
        match kind {
            "text" | "input_text" | "output_text" => {
                // OpenTelemetry calls it `content`, everybody else `text`.
                if let Some(text) = part.get_any(&["text", "content"]) {
                    own.push(text.text()?);
                }
            }
            "tool_result" | "tool_call_response" => {
                let result = part.get_any(&["content", "result", "response"]);
                if let Some(result) = result {
                    let text = result_text(&result)?;
                    results.push(Part::new(
                        format!("{label}.{i}"),
                        Role::Tool,
                        text,
                        result.path,
                    ));
                }
            }
            "tool_use" | "tool_call" => {
                parts.extend(memory_write(part, &format!("{label}.{i}"))?);
            }
            _ => {}
        }
    }
    parts.push(Part::new(label, role, own.join("\n"), content.path.clone()));
    parts.append(&mut results);
    Ok(parts)
}

/// What an assistant wants written down, if this is a call of the tool for that: its name and arguments
/// stand in the call, or in `function` within it.
pub(crate) fn memory_write(call: &Node<'_>, label: &str) -> Result<Option<Part>, Rejected> {
    let inner = call.get("function");
    let call = inner.as_ref().unwrap_or(call);
    let is_write = call
        .get("name")
        .is_some_and(|name| name.value.as_str() == Some(MEMORY_WRITE));
    let arguments = call.get_any(&["arguments", "args", "input"]);
    let (true, Some(arguments)) = (is_write, arguments) else {
        return Ok(None);
    };
    let written = match arguments.value {
        // Arguments that are not JSON are the tool's to refuse; here they say nothing.
        Value::String(json) => Cow::Owned(serde_json::from_str(json).unwrap_or(Value::Null)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => {
            Cow::Borrowed(arguments.value)
        }
    };
    let Some(text) = written.get("text").and_then(Value::as_str) else {
        return Ok(None);
    };
    let mut part = Part::new(
        label,
        Role::Assistant,
        text.to_owned(),
        arguments.path.clone(),
    );
    part.speaker = Some(MEMORY_WRITE.to_owned());
    Ok(Some(part))
}

/// The same for the list of calls that stands beside a message's content.
pub(crate) fn memory_writes(message: &Node<'_>, label: &str) -> Result<Vec<Part>, Rejected> {
    let Some(calls) = message
        .get("tool_calls")
        .filter(|calls| calls.value.is_array())
    else {
        return Ok(Vec::new());
    };
    let mut parts = Vec::new();
    for (i, call) in calls.items()?.iter().enumerate() {
        parts.extend(memory_write(call, &format!("{label}.call{i}"))?);
    }
    Ok(parts)
}

/// A tool's result in words: a string, text parts, or JSON as it is.
fn result_text(result: &Node<'_>) -> Result<String, Rejected> {
    match result.value {
        Value::String(text) => Ok(text.clone()),
        Value::Array(_) => {
            let mut texts = Vec::new();
            for part in result.items()? {
                if let Some(text) = part.get("text") {
                    texts.push(text.text()?);
                }
            }
            Ok(texts.join("\n"))
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => {
            Ok(result.value.to_string())
        }
    }
}

/// Messages of the form `{role, content, name?, id?}`. The label is the message's own id, or its place.
pub(crate) fn chat_messages(list: &Node<'_>, first: usize) -> Result<Vec<Part>, Rejected> {
    let mut parts = Vec::new();
    for (i, message) in list.items()?.iter().enumerate() {
        parts.append(&mut chat_message(message, first + i)?);
    }
    Ok(parts)
}

pub(crate) fn chat_message(message: &Node<'_>, place: usize) -> Result<Vec<Part>, Rejected> {
    let role = message
        .require("role", "who says it: user, assistant, system or tool")?
        .role()?;
    let id = message.opt_id(&["id"])?;
    let label = id.clone().unwrap_or_else(|| place.to_string());
    // OpenTelemetry calls the list `parts`.
    let content = message.get_any(&["content", "parts"]);
    let speaker = message.opt_id(&["name"])?;
    let mut parts = memory_writes(message, &label)?;
    parts.append(&mut parts_of(content.as_ref(), &label, role)?);
    for part in &mut parts {
        part.message_id.clone_from(&id);
        if part.speaker.is_none() {
            part.speaker.clone_from(&speaker);
        }
    }
    Ok(parts)
}
