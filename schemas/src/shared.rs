//! What commands and transitions both carry: targets, consents, tasks, accesses.

use anamnesis_domain::ids::{EventTag, MemoryId, SourceTag};
use anamnesis_domain::input as domain;
use anamnesis_domain::memory::Kind;
use anamnesis_domain::text::Text;
use anamnesis_domain::time::Timestamp;
use apache_avro::AvroSchema;
use serde::{Deserialize, Serialize};

use crate::claim::{words, words_of};
use crate::error::WireError;
use crate::scalar::{Id, ids, instant, known, list, millis, narrow};

#[derive(AvroSchema, Serialize, Deserialize)]
#[avro(namespace = "anamnesis")]
pub(crate) struct Target {
    code: String,
    ids: Vec<Id>,
}

impl Target {
    pub(crate) fn of(target: &domain::Target) -> Result<Self, WireError> {
        let (code, ids) = match target {
            domain::Target::Memories(memories) => ("memories", ids("target.ids", memories)?),
            domain::Target::Message(event) => ("message", vec![(*event).into()]),
            domain::Target::Source(source) => ("source", vec![(*source).into()]),
            domain::Target::Owner => ("owner", Vec::new()),
        };
        Ok(Self {
            code: code.to_owned(),
            ids,
        })
    }

    pub(crate) fn read(self) -> Result<domain::Target, WireError> {
        match (self.code.as_str(), self.ids.as_slice()) {
            ("memories", ids) => Ok(domain::Target::Memories(
                ids.iter().map(|id| MemoryId::from(*id)).collect(),
            )),
            ("message", [event]) => Ok(domain::Target::Message(EventTag::from(*event))),
            ("source", [source]) => Ok(domain::Target::Source(SourceTag::from(*source))),
            ("owner", []) => Ok(domain::Target::Owner),
            ("message" | "source" | "owner", _) => Err(WireError::Field {
                field: "target.ids",
                problem: "has the wrong length",
            }),
            _ => known("target.code", None),
        }
    }
}

#[derive(AvroSchema, Serialize, Deserialize)]
#[avro(namespace = "anamnesis")]
pub(crate) struct Consent {
    purposes: Vec<String>,
    kinds: Option<Vec<String>>,
    max_sensitivity: i64,
    valid_from: i64,
    valid_to: Option<i64>,
}

pub(crate) fn kind_codes(kinds: Option<&Vec<Kind>>) -> Option<Vec<String>> {
    kinds.map(|kinds| kinds.iter().map(|kind| kind.code().to_owned()).collect())
}

pub(crate) fn read_kinds(codes: Option<Vec<String>>) -> Result<Option<Vec<Kind>>, WireError> {
    let Some(codes) = codes else { return Ok(None) };
    let kinds = codes
        .iter()
        .map(|code| known("kinds", Kind::from_code(code)));
    kinds.collect::<Result<_, _>>().map(Some)
}

impl Consent {
    pub(crate) fn of(consent: &domain::Consent) -> Result<Self, WireError> {
        Ok(Self {
            purposes: list("purposes", &consent.purposes, |purpose| Ok(purpose.clone()))?,
            kinds: kind_codes(consent.kinds.as_ref()),
            max_sensitivity: consent.max_sensitivity.into(),
            valid_from: consent.valid_from.millis(),
            valid_to: millis(consent.valid_to),
        })
    }

    pub(crate) fn read(self) -> Result<domain::Consent, WireError> {
        Ok(domain::Consent {
            purposes: self.purposes,
            kinds: read_kinds(self.kinds)?,
            max_sensitivity: narrow("max_sensitivity", self.max_sensitivity)?,
            valid_from: Timestamp::from_millis(self.valid_from),
            valid_to: instant(self.valid_to),
        })
    }
}

#[derive(AvroSchema, Serialize, Deserialize)]
#[avro(namespace = "anamnesis")]
pub(crate) struct Task {
    id: String,
    goal: String,
    status: String,
    decision: Option<String>,
    confirmed_facts: Vec<String>,
    constraints: Vec<String>,
    open_questions: Vec<String>,
    tool_error: Option<String>,
    pending_confirmations: Vec<String>,
    expires_at: Option<i64>,
    updated_at: i64,
}

fn texts(field: &'static str, texts: &[Text]) -> Result<Vec<String>, WireError> {
    list(field, texts, |text| Ok(words(text)))
}

fn read_texts(texts: Vec<String>) -> Vec<Text> {
    texts.into_iter().map(Text::new).collect()
}

impl Task {
    pub(crate) fn of(task: &domain::Task) -> Result<Self, WireError> {
        Ok(Self {
            id: task.id.clone(),
            goal: words(&task.goal),
            status: task.status.code().to_owned(),
            decision: words_of(task.decision.as_ref()),
            confirmed_facts: texts("confirmed_facts", &task.confirmed_facts)?,
            constraints: texts("constraints", &task.constraints)?,
            open_questions: texts("open_questions", &task.open_questions)?,
            tool_error: words_of(task.tool_error.as_ref()),
            pending_confirmations: texts("pending_confirmations", &task.pending_confirmations)?,
            expires_at: millis(task.expires_at),
            updated_at: task.updated_at.millis(),
        })
    }

    pub(crate) fn read(self) -> Result<domain::Task, WireError> {
        Ok(domain::Task {
            id: self.id,
            goal: Text::new(self.goal),
            status: known("task.status", domain::TaskStatus::from_code(&self.status))?,
            decision: self.decision.map(Text::new),
            confirmed_facts: read_texts(self.confirmed_facts),
            constraints: read_texts(self.constraints),
            open_questions: read_texts(self.open_questions),
            tool_error: self.tool_error.map(Text::new),
            pending_confirmations: read_texts(self.pending_confirmations),
            expires_at: instant(self.expires_at),
            updated_at: Timestamp::from_millis(self.updated_at),
        })
    }
}

#[derive(AvroSchema, Serialize, Deserialize)]
#[avro(namespace = "anamnesis")]
pub(crate) struct Access {
    memory_id: Id,
    count: i64,
    last_at: i64,
}

impl Access {
    pub(crate) fn of(access: &domain::AccessSummary) -> Self {
        Self {
            memory_id: access.memory_id.into(),
            count: access.count.into(),
            last_at: access.last_at.millis(),
        }
    }

    pub(crate) fn read(self) -> Result<domain::AccessSummary, WireError> {
        Ok(domain::AccessSummary {
            memory_id: self.memory_id.into(),
            count: narrow("access.count", self.count)?,
            last_at: Timestamp::from_millis(self.last_at),
        })
    }
}
