//! The bodies of a turn and of what was found in it.

use anamnesis_domain::ids::{EventTag, SourceTag};
use anamnesis_domain::input as domain;
use anamnesis_domain::memory::{Kind, Role};
use anamnesis_domain::owner::Owner;
use anamnesis_domain::text::Text;
use anamnesis_domain::time::Timestamp;
use apache_avro::AvroSchema;
use serde::{Deserialize, Serialize};

use crate::claim::{Claim, words, words_of};
use crate::datum::Wire;
use crate::error::WireError;
use crate::registry::Record;
use crate::scalar::{Hash32, instant, known, list, millis, narrow, permille};

pub(crate) fn read_owner(text: &str) -> Result<Owner, WireError> {
    text.parse().map_err(|_| WireError::Field {
        field: "owner",
        problem: "is not an owner",
    })
}

/// Event and source tag are in the header, which is authenticated with the body.
#[derive(AvroSchema, Serialize, Deserialize)]
#[avro(namespace = "anamnesis")]
pub(crate) struct TurnBody {
    owner: String,
    source: String,
    event_id: String,
    message: String,
    conversation_id: Option<String>,
    turn_id: Option<String>,
    message_id: Option<String>,
    role: String,
    speaker: Option<String>,
    at: i64,
    zone_minutes: i64,
    text: String,
    context_tags: Vec<String>,
    injected: Vec<Span>,
    structured: Option<Structured>,
}

#[derive(AvroSchema, Serialize, Deserialize)]
#[avro(namespace = "anamnesis")]
pub(crate) struct Span {
    from: i64,
    to: i64,
}

#[derive(AvroSchema, Serialize, Deserialize)]
#[avro(namespace = "anamnesis")]
pub(crate) struct Structured {
    kind: String,
    code: String,
    attribute: Option<String>,
    ends: bool,
    valid_from: Option<i64>,
    valid_to: Option<i64>,
    stance: Option<String>,
    names: Option<Vec<String>>,
    dose: Option<String>,
    held_from: Option<i64>,
    held_text: Option<String>,
}

impl Structured {
    fn of(structured: &domain::StructuredClaim) -> Result<Self, WireError> {
        let held = structured.held.as_ref();
        Ok(Self {
            kind: structured.kind.code().to_owned(),
            code: structured.code.clone(),
            attribute: structured.attribute.clone(),
            ends: structured.ends,
            valid_from: millis(structured.valid_from),
            valid_to: millis(structured.valid_to),
            stance: Some(structured.stance.code().to_owned()),
            names: Some(list("structured.names", &structured.names, |name| {
                Ok(name.clone())
            })?),
            dose: structured.dose.clone(),
            held_from: millis(held.map(|held| held.from)),
            held_text: words_of(held.map(|held| &held.text)),
        })
    }

    fn read(self) -> Result<domain::StructuredClaim, WireError> {
        // Version 1 knew no stance but this.
        let stance = match &self.stance {
            None => domain::Stance::Holds,
            Some(code) => known("structured.stance", domain::Stance::from_code(code))?,
        };
        let held = match (instant(self.held_from), self.held_text) {
            (Some(from), Some(text)) => Some(domain::Held {
                from,
                text: Text::new(text),
            }),
            (Some(_) | None, _) => None,
        };
        Ok(domain::StructuredClaim {
            kind: known("structured.kind", Kind::from_code(&self.kind))?,
            code: self.code,
            attribute: self.attribute,
            ends: self.ends,
            valid_from: instant(self.valid_from),
            valid_to: instant(self.valid_to),
            stance,
            names: self.names.unwrap_or_default(),
            dose: self.dose,
            held,
        })
    }
}

impl Wire for TurnBody {
    const RECORD: Record = Record::TurnBody;
}

impl TurnBody {
    pub(crate) fn of(turn: &domain::Turn) -> Result<Self, WireError> {
        Ok(Self {
            owner: turn.owner.to_string(),
            source: turn.source.clone(),
            event_id: turn.event_id.clone(),
            message: turn.message.clone(),
            conversation_id: turn.conversation_id.clone(),
            turn_id: turn.turn_id.clone(),
            message_id: turn.message_id.clone(),
            role: turn.role.code().to_owned(),
            speaker: words_of(turn.speaker.as_ref()),
            at: turn.at.millis(),
            zone_minutes: turn.zone_minutes.into(),
            text: words(&turn.text),
            context_tags: list("context_tags", &turn.context_tags, |tag| Ok(tag.clone()))?,
            injected: list("injected", &turn.injected, |(from, to)| {
                Ok(Span {
                    from: (*from).into(),
                    to: (*to).into(),
                })
            })?,
            structured: turn.structured.as_ref().map(Structured::of).transpose()?,
        })
    }

    pub(crate) fn read(
        self,
        event: EventTag,
        source_tag: SourceTag,
    ) -> Result<domain::Turn, WireError> {
        let mut injected = Vec::with_capacity(self.injected.len());
        for span in self.injected {
            injected.push((
                narrow("injected.from", span.from)?,
                narrow("injected.to", span.to)?,
            ));
        }
        let structured = self.structured.map(Structured::read).transpose()?;
        Ok(domain::Turn {
            owner: read_owner(&self.owner)?,
            event,
            source_tag,
            source: self.source,
            event_id: self.event_id,
            message: self.message,
            conversation_id: self.conversation_id,
            turn_id: self.turn_id,
            message_id: self.message_id,
            role: known("role", Role::from_code(&self.role))?,
            speaker: self.speaker.map(Text::new),
            at: Timestamp::from_millis(self.at),
            zone_minutes: narrow("zone_minutes", self.zone_minutes)?,
            text: Text::new(self.text),
            context_tags: self.context_tags,
            injected,
            structured,
        })
    }
}

#[derive(AvroSchema, Serialize, Deserialize)]
#[avro(namespace = "anamnesis")]
pub(crate) struct CandidatesBody {
    owner: String,
    content: Hash32,
    at: i64,
    candidates: Vec<Candidate>,
    rejects: Vec<Reject>,
    extractor: String,
    prompt_version: Option<String>,
    model_answer: Option<String>,
    failed: Option<String>,
    model_use: Option<ModelUse>,
}

#[derive(AvroSchema, Serialize, Deserialize)]
#[avro(namespace = "anamnesis")]
pub(crate) struct ModelUse {
    calls: i64,
    prompt_tokens: i64,
    completion_tokens: i64,
    fallback: Option<String>,
}

#[derive(AvroSchema, Serialize, Deserialize)]
#[avro(namespace = "anamnesis")]
pub(crate) struct Candidate {
    ordinal: i64,
    claim: Claim,
    stability: i64,
}

#[derive(AvroSchema, Serialize, Deserialize)]
#[avro(namespace = "anamnesis")]
pub(crate) struct Reject {
    code: String,
    text: Option<String>,
}

impl Wire for CandidatesBody {
    const RECORD: Record = Record::CandidatesBody;
}

impl CandidatesBody {
    pub(crate) fn of(set: &domain::CandidateSet) -> Result<Self, WireError> {
        Ok(Self {
            owner: set.owner.to_string(),
            content: set.content.into(),
            at: set.at.millis(),
            candidates: list("candidates", &set.candidates, |candidate| {
                Ok(Candidate {
                    ordinal: candidate.ordinal.into(),
                    claim: Claim::of(&candidate.claim)?,
                    stability: candidate.stability.thousandths().into(),
                })
            })?,
            rejects: list("rejects", &set.rejects, |reject| {
                Ok(Reject {
                    code: reject.code.code().to_owned(),
                    text: words_of(reject.text.as_ref()),
                })
            })?,
            extractor: set.extractor.clone(),
            prompt_version: set.prompt_version.clone(),
            model_answer: words_of(set.model_answer.as_ref()),
            failed: set.failed.clone(),
            model_use: set.model_use.as_ref().map(|used| ModelUse {
                calls: used.calls.into(),
                prompt_tokens: used.prompt_tokens.into(),
                completion_tokens: used.completion_tokens.into(),
                fallback: used.fallback.clone(),
            }),
        })
    }

    pub(crate) fn read(
        self,
        event: EventTag,
        source_tag: SourceTag,
    ) -> Result<domain::CandidateSet, WireError> {
        let mut candidates = Vec::with_capacity(self.candidates.len());
        for candidate in self.candidates {
            candidates.push(domain::Candidate {
                ordinal: narrow("ordinal", candidate.ordinal)?,
                claim: candidate.claim.read()?,
                stability: permille("stability", candidate.stability)?,
            });
        }
        let mut rejects = Vec::with_capacity(self.rejects.len());
        for reject in self.rejects {
            rejects.push(domain::Reject {
                code: known("rejects.code", domain::RejectCode::from_code(&reject.code))?,
                text: reject.text.map(Text::new),
            });
        }
        let model_use = match self.model_use {
            None => None,
            Some(used) => Some(domain::ModelUse {
                calls: narrow("model_use.calls", used.calls)?,
                prompt_tokens: narrow("model_use.prompt_tokens", used.prompt_tokens)?,
                completion_tokens: narrow("model_use.completion_tokens", used.completion_tokens)?,
                fallback: used.fallback,
            }),
        };
        Ok(domain::CandidateSet {
            owner: read_owner(&self.owner)?,
            event,
            source_tag,
            content: self.content.into(),
            at: Timestamp::from_millis(self.at),
            candidates,
            rejects,
            extractor: self.extractor,
            prompt_version: self.prompt_version,
            model_answer: self.model_answer.map(Text::new),
            failed: self.failed,
            model_use,
        })
    }
}
