//! Which messages does a line of a file hold? Files may hold every shape that the API accepts, and
//! the shapes of the evaluation sets.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use anamnesis_domain::input::StructuredClaim;
use anamnesis_domain::memory::{Kind, Role};
use anamnesis_domain::owner::{Owner, Scope};
use anamnesis_domain::time::Timestamp;
use serde_json::Value;

use crate::message::{Message, Rejected};
use crate::normalise::{self, Context, Draft, Part};
use crate::read::Node;

/// Which wording of a bilingual file is read.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Language {
    #[default]
    Zh,
    En,
}

/// What the file's lines do not say themselves.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Options {
    /// Tenant of owners that are given without one.
    pub tenant: String,
    /// The file's name without its endings: owner of files that hold one conversation and name none,
    /// and source of lines that name none.
    pub name: String,
    pub language: Language,
    /// Read codes beside the text, where the file has them.
    pub structured: bool,
    /// The clock of dates and times that stand without a zone, in minutes east of Greenwich.
    pub zone_minutes: i32,
    pub now: Timestamp,
    /// Number of the line, for ids of lines that bring none.
    pub position: u64,
}

impl Options {
    pub fn new(tenant: &str, name: &str, now: Timestamp) -> Self {
        Self {
            tenant: tenant.to_owned(),
            name: name.to_owned(),
            language: Language::default(),
            structured: false,
            zone_minutes: 0,
            now,
            position: 0,
        }
    }

    fn context(&self) -> Context {
        Context {
            default_tenant: self.tenant.clone(),
            source_default: self.name.clone(),
            now: self.now,
            position: self.position,
            event_id_default: None,
        }
    }

    fn owner(&self, id: &str) -> Result<Owner, Rejected> {
        Owner::new(&self.tenant, Scope::Patient, id)
            .map_err(|error| Rejected::new("invalid_owner", "owner", format!("{error}")))
    }
}

/// The messages of each event of one line: as [`normalise::normalise_each`].
pub fn detect_and_read_each(
    line: &Value,
    options: &Options,
) -> Vec<Result<Vec<Message>, Rejected>> {
    if line.get("resourceType").is_some() {
        return normalise::normalise_each(line, &options.context());
    }
    vec![detect_and_read(line, options)]
}

/// The messages of one line.
///
/// # Errors
/// As [`normalise::normalise`].
pub fn detect_and_read(line: &Value, options: &Options) -> Result<Vec<Message>, Rejected> {
    let root = Node::root(line);
    let has = |keys: &[&str]| keys.iter().all(|key| line.get(key).is_some());
    let draft = if has(&["action", "time", "owner", "event_id", "text_zh"]) {
        timeline_event(&root, options)?
    } else if has(&["dia_id", "session_time", "speaker", "text"]) {
        dialogue_turn(&root, options)?
    } else if has(&["owner", "ex_id", "date", "user", "assistant"]) {
        exchange(&root, options)?
    } else if has(&["batch", "date", "role", "content"]) {
        dated_message(&root, options)?
    } else if has(&["session_id", "date", "turns"]) {
        session(&root, options)?
    } else if has(&["fact_id", "owner", "valid_from", "evidence"]) {
        dated_fact(&root, options)?
    } else {
        return normalise::normalise(line, &options.context());
    };
    draft.finish(line, &options.context())
}

/// The JSON values of a file: JSON Lines, or one whole document (an array gives its elements). Each
/// comes with the number of its line, from 1.
pub fn values(bytes: &[u8]) -> Vec<(u64, Result<Value, Rejected>)> {
    let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
    let Ok(text) = std::str::from_utf8(bytes) else {
        return lines(bytes);
    };
    let first = text
        .lines()
        .find(|line| !line.trim().is_empty())
        .unwrap_or_default();
    if serde_json::from_str::<Value>(first).is_ok() && text.lines().count() > 1 {
        return lines(bytes);
    }
    match serde_json::from_str::<Value>(text) {
        Ok(Value::Array(list)) => (1..)
            .zip(list)
            .map(|(number, value)| (number, Ok(value)))
            .collect(),
        Ok(value) => vec![(1, Ok(value))],
        Err(_) => lines(bytes),
    }
}

fn lines(bytes: &[u8]) -> Vec<(u64, Result<Value, Rejected>)> {
    let is_blank = |line: &[u8]| line.iter().all(u8::is_ascii_whitespace);
    (1..)
        .zip(bytes.split(|byte| *byte == b'\n'))
        .filter(|(_, line)| !is_blank(line))
        .map(|(number, line)| (number, parse(line)))
        .collect()
}

/// Parses JSON that came from outside, and says what is wrong without repeating it.
///
/// # Errors
/// `invalid_utf8`, `too_deep`, `invalid_json`.
pub fn parse(bytes: &[u8]) -> Result<Value, Rejected> {
    let text = std::str::from_utf8(bytes).map_err(|error| {
        let detail = format!("byte {} is not UTF-8; send UTF-8", error.valid_up_to());
        Rejected::whole("invalid_utf8", detail)
    })?;
    serde_json::from_str(text).map_err(|error| {
        if error.to_string().starts_with("recursion limit") {
            return Rejected::whole("too_deep", "the JSON is nested deeper than 128 levels");
        }
        let place = format!("line {} column {}", error.line(), error.column());
        Rejected::whole("invalid_json", format!("not JSON from {place} on"))
    })
}

/// Attributes that hold one value, by the SNOMED CT codes of their values.
fn attribute_of_code(code: &str) -> Option<&'static str> {
    static TABLE: OnceLock<BTreeMap<String, String>> = OnceLock::new();
    let table = TABLE.get_or_init(|| {
        serde_json::from_str(include_str!("../data/coded_attributes.json"))
            .expect("the table of codes is checked by a test")
    });
    table.get(code).map(String::as_str)
}

fn draft(
    owner: Owner,
    source: String,
    event_id: String,
    at: (Timestamp, i32),
    parts: Vec<Part>,
) -> Draft {
    Draft {
        owner,
        source: Some(source),
        event_id: Some(event_id),
        conversation_id: None,
        turn_id: None,
        at,
        at_field: "time".to_owned(),
        context_tags: Vec::new(),
        parts,
        text_field: "text".to_owned(),
    }
}

/// An instant, or a date at its start on the file's clock.
fn instant(node: &Node<'_>, options: &Options) -> Result<(Timestamp, i32), Rejected> {
    let text = node.text()?;
    if chrono::NaiveDate::parse_from_str(text, "%Y-%m-%d").is_err() {
        return node.instant();
    }
    let zone = options.zone_minutes;
    let (start, _) = Timestamp::parse_with_zone(&format!("{text}T00:00:00Z"))
        .map_err(|error| Rejected::new("invalid_time", &node.path, format!("{error}")))?;
    Ok((start.plus_millis(-i64::from(zone) * 60_000), zone))
}

/// One event of a patient's timeline, in words and (if asked) in codes.
fn timeline_event(root: &Node<'_>, options: &Options) -> Result<Draft, Rejected> {
    let owner = root.require("owner", "the patient")?.id()?;
    let time = root.require("time", "when it was said")?;
    let field = match options.language {
        Language::Zh => "text_zh",
        Language::En => "text_en",
    };
    let text = root.require(field, "the text")?;
    // The words are the patient's; codes come from a hospital system.
    let role = if options.structured {
        Role::Record
    } else {
        Role::User
    };
    let mut part = Part::new("", role, text.text()?.to_owned(), text.path.clone());
    if options.structured {
        part.structured = timeline_claim(root)?;
    }
    let event = root.require("event_id", "the event's id")?.id()?;
    let mut draft = draft(
        options.owner(&owner)?,
        format!("{}/{owner}", options.name),
        event,
        instant(&time, options)?,
        vec![part],
    );
    draft.text_field = field.to_owned();
    Ok(draft)
}

fn timeline_claim(root: &Node<'_>) -> Result<Option<StructuredClaim>, Rejected> {
    let (Some(kind), Some(code), Some(action)) =
        (root.get("kind"), root.get("code"), root.get("action"))
    else {
        return Ok(None);
    };
    let kind = Kind::from_code(kind.text()?)
        .ok_or_else(|| Rejected::new("invalid_field", &kind.path, "not a kind of memory"))?;
    let ends = match action.text()? {
        "assert" => false,
        "end" => true,
        _ => {
            return Err(Rejected::new(
                "invalid_field",
                &action.path,
                "must be assert or end",
            ));
        }
    };
    let code = code.id()?;
    Ok(Some(StructuredClaim {
        attribute: attribute_of_code(&code).map(str::to_owned),
        ends,
        ..StructuredClaim::new(kind, code)
    }))
}

/// One turn of a dialogue between two people who both speak for themselves.
fn dialogue_turn(root: &Node<'_>, options: &Options) -> Result<Draft, Rejected> {
    let text = root.require("text", "what was said")?;
    let mut words = text.text()?.to_owned();
    if let Some(caption) = root.get("image_caption") {
        let caption = caption.text()?.trim();
        if !caption.is_empty() {
            words = format!("{words} [image: {caption}]");
        }
    }
    let id = root.require("dia_id", "the turn's id")?.id()?;
    let session = root.opt_id(&["session"])?;
    let time = root.require("session_time", "when the session was")?;
    // A file `conv-26.turns` is the conversation conv-26.
    let name = options.name.trim_end_matches(".turns");
    let mut part = Part::new("", Role::User, words.trim().to_owned(), text.path);
    part.speaker = root.opt_id(&["speaker"])?;
    part.message_id = Some(id.clone());
    let mut draft = draft(
        options.owner(name)?,
        options.name.clone(),
        id.clone(),
        instant(&time, options)?,
        vec![part],
    );
    draft.conversation_id = session.map(|session| format!("{name}/session-{session}"));
    draft.turn_id = Some(id);
    Ok(draft)
}

/// What a user said on one day, and the answer.
fn exchange(root: &Node<'_>, options: &Options) -> Result<Draft, Rejected> {
    let owner = root.require("owner", "the user")?.id()?;
    let id = root.require("ex_id", "the exchange's id")?.id()?;
    let date = root.require("date", "the day")?;
    let name = root.opt_id(&["name"])?;
    let user = root.require("user", "what the user said")?;
    let assistant = root.require("assistant", "what the assistant said")?;
    let mut said = Part::new("user", Role::User, user.text()?.to_owned(), user.path);
    said.speaker = name;
    let answered = Part::new(
        "assistant",
        Role::Assistant,
        assistant.text()?.to_owned(),
        assistant.path,
    );
    let day = id.split('.').next().unwrap_or_default().to_owned();
    let mut draft = draft(
        options.owner(&owner)?,
        options.name.clone(),
        id.clone(),
        instant(&date, options)?,
        vec![said, answered],
    );
    draft.conversation_id = Some(format!("{owner}/day-{day}"));
    draft.turn_id = Some(id);
    draft.text_field = "user".to_owned();
    Ok(draft)
}

/// One message of a long chat, dated by the day of its batch.
fn dated_message(root: &Node<'_>, options: &Options) -> Result<Draft, Rejected> {
    let id = root.require("id", "the message's id")?.id()?;
    let role = root.require("role", "user or assistant")?.role()?;
    let content = root.require("content", "what was said")?;
    let date = root.require("date", "the day")?;
    let batch = root.opt_id(&["batch"])?;
    let name = options.name.trim_end_matches(".messages");
    let part = Part::new("", role, content.text()?.to_owned(), content.path);
    let mut draft = draft(
        options.owner(name)?,
        options.name.clone(),
        id,
        instant(&date, options)?,
        vec![part],
    );
    draft.conversation_id = batch.map(|batch| format!("{name}/batch-{batch}"));
    draft.text_field = "content".to_owned();
    Ok(draft)
}

/// A whole session; all sessions of a file belong to one owner.
fn session(root: &Node<'_>, options: &Options) -> Result<Draft, Rejected> {
    let id = root.require("session_id", "the session's id")?.id()?;
    let date = root.require("date", "when the session was")?;
    let turns = root.require("turns", "what was said")?;
    let parts = crate::shapes::content::chat_messages(&turns, 0)?;
    let mut draft = draft(
        options.owner(&options.name)?,
        options.name.clone(),
        id.clone(),
        instant(&date, options)?,
        parts,
    );
    draft.conversation_id = Some(id);
    draft.text_field = "turns".to_owned();
    Ok(draft)
}

/// A sentence of a document, with the interval in which it held.
fn dated_fact(root: &Node<'_>, options: &Options) -> Result<Draft, Rejected> {
    let owner = root.require("owner", "whom the fact is about")?.id()?;
    let id = root.require("fact_id", "the fact's id")?.id()?;
    let evidence = root.require("evidence", "the sentence")?;
    let from = root.require("valid_from", "from when on it held")?;
    let at = instant(&from, options)?;
    let to = root
        .get("valid_to")
        .map(|to| instant(&to, options))
        .transpose()?;
    let object = root.opt_id(&["object"])?;
    let mut part = Part::new(
        "",
        Role::Document,
        evidence.text()?.to_owned(),
        evidence.path,
    );
    part.structured = object.map(|object| StructuredClaim {
        valid_from: Some(at.0),
        valid_to: to.map(|(to, _)| to),
        ..StructuredClaim::new(Kind::Fact, object)
    });
    let mut draft = draft(
        options.owner(&owner)?,
        options.name.clone(),
        id,
        at,
        vec![part],
    );
    draft.text_field = "evidence".to_owned();
    Ok(draft)
}

#[cfg(test)]
mod tests;
