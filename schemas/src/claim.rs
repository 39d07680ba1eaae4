//! What a claim and its standing are on the wire: nested records that several bodies share.

use anamnesis_domain::ids::MemoryId;
use anamnesis_domain::memory as domain;
use anamnesis_domain::owner::Subject;
use anamnesis_domain::text::Text;
use anamnesis_domain::time::Timestamp;
use apache_avro::AvroSchema;
use serde::{Deserialize, Serialize};

use crate::error::WireError;
use crate::scalar::{Id, instant, known, list, millis, narrow, permille};

#[derive(AvroSchema, Serialize, Deserialize)]
#[avro(namespace = "anamnesis")]
pub(crate) struct Claim {
    subject: String,
    kind: String,
    text: String,
    attribute: Option<String>,
    value: Option<String>,
    quantity: Option<Quantity>,
    schedule: Option<String>,
    polarity: String,
    intent: String,
    quote: Option<String>,
    entities: Vec<Entity>,
    valid_from: i64,
    valid_to: Option<i64>,
    importance: i64,
    confidence: i64,
    explicit: bool,
    namespace: Option<String>,
    key: Option<String>,
    context_tags: Vec<String>,
    language: String,
    source: Source,
}

#[derive(AvroSchema, Serialize, Deserialize)]
#[avro(namespace = "anamnesis")]
pub(crate) struct Quantity {
    micros: i64,
    unit: String,
}

#[derive(AvroSchema, Serialize, Deserialize)]
#[avro(namespace = "anamnesis")]
pub(crate) struct Entity {
    kind: String,
    name: String,
}

#[derive(AvroSchema, Serialize, Deserialize)]
#[avro(namespace = "anamnesis")]
pub(crate) struct Source {
    event: Id,
    source_tag: Id,
    source: String,
    event_id: String,
    conversation_id: Option<String>,
    turn_id: Option<String>,
    message_id: Option<String>,
    role: String,
    speaker: Option<String>,
    at: i64,
    zone_minutes: i64,
    extractor: String,
    model: Option<String>,
    prompt_version: Option<String>,
}

#[derive(AvroSchema, Serialize, Deserialize)]
#[avro(namespace = "anamnesis")]
pub(crate) struct Standing {
    status: String,
    valid_from: i64,
    valid_to: Option<i64>,
    superseded_by: Option<Id>,
    conflict_with: Option<Id>,
    confirms: Option<Id>,
    rule: String,
}

pub(crate) fn words(text: &Text) -> String {
    text.expose().to_owned()
}

pub(crate) fn words_of(text: Option<&Text>) -> Option<String> {
    text.map(words)
}

impl Claim {
    pub(crate) fn of(claim: &domain::Claim) -> Result<Self, WireError> {
        let source = &claim.source;
        Ok(Self {
            subject: claim.subject.to_string(),
            kind: claim.kind.code().to_owned(),
            text: words(&claim.text),
            attribute: claim.attribute.clone(),
            value: claim.value.clone(),
            quantity: claim.quantity.as_ref().map(|quantity| Quantity {
                micros: quantity.micros,
                unit: quantity.unit.clone(),
            }),
            schedule: claim.schedule.clone(),
            polarity: claim.polarity.code().to_owned(),
            intent: claim.intent.code().to_owned(),
            quote: words_of(claim.quote.as_ref()),
            entities: list("entities", &claim.entities, |entity| {
                Ok(Entity {
                    kind: entity.kind.code().to_owned(),
                    name: words(&entity.name),
                })
            })?,
            valid_from: claim.valid_from.millis(),
            valid_to: millis(claim.valid_to),
            importance: claim.importance.thousandths().into(),
            confidence: claim.confidence.thousandths().into(),
            explicit: claim.explicit,
            namespace: claim.namespace.clone(),
            key: claim.key.clone(),
            context_tags: list("context_tags", &claim.context_tags, |tag| Ok(tag.clone()))?,
            language: claim.language.clone(),
            source: Source {
                event: source.event.into(),
                source_tag: source.source_tag.into(),
                source: source.source.clone(),
                event_id: source.event_id.clone(),
                conversation_id: source.conversation_id.clone(),
                turn_id: source.turn_id.clone(),
                message_id: source.message_id.clone(),
                role: source.role.code().to_owned(),
                speaker: words_of(source.speaker.as_ref()),
                at: source.at.millis(),
                zone_minutes: source.zone_minutes.into(),
                extractor: source.extractor.clone(),
                model: source.model.clone(),
                prompt_version: source.prompt_version.clone(),
            },
        })
    }

    pub(crate) fn read(self) -> Result<domain::Claim, WireError> {
        let mut entities = Vec::with_capacity(self.entities.len());
        for entity in self.entities {
            entities.push(domain::Entity {
                kind: known("entities.kind", domain::EntityKind::from_code(&entity.kind))?,
                name: Text::new(entity.name),
            });
        }
        let source = self.source;
        Ok(domain::Claim {
            subject: Subject::parse(&self.subject),
            kind: known("kind", domain::Kind::from_code(&self.kind))?,
            text: Text::new(self.text),
            attribute: self.attribute,
            value: self.value,
            quantity: self.quantity.map(|quantity| domain::Quantity {
                micros: quantity.micros,
                unit: quantity.unit,
            }),
            schedule: self.schedule,
            polarity: known("polarity", domain::Polarity::from_code(&self.polarity))?,
            intent: known("intent", domain::Intent::from_code(&self.intent))?,
            quote: self.quote.map(Text::new),
            entities,
            valid_from: Timestamp::from_millis(self.valid_from),
            valid_to: instant(self.valid_to),
            importance: permille("importance", self.importance)?,
            confidence: permille("confidence", self.confidence)?,
            explicit: self.explicit,
            namespace: self.namespace,
            key: self.key,
            context_tags: self.context_tags,
            language: self.language,
            source: domain::Source {
                event: source.event.into(),
                source_tag: source.source_tag.into(),
                source: source.source,
                event_id: source.event_id,
                conversation_id: source.conversation_id,
                turn_id: source.turn_id,
                message_id: source.message_id,
                role: known("source.role", domain::Role::from_code(&source.role))?,
                speaker: source.speaker.map(Text::new),
                at: Timestamp::from_millis(source.at),
                zone_minutes: narrow("source.zone_minutes", source.zone_minutes)?,
                extractor: source.extractor,
                model: source.model,
                prompt_version: source.prompt_version,
            },
        })
    }
}

impl Standing {
    pub(crate) fn of(standing: &domain::Standing) -> Self {
        Self {
            status: standing.status.code().to_owned(),
            valid_from: standing.valid_from.millis(),
            valid_to: millis(standing.valid_to),
            superseded_by: standing.superseded_by.map(Id::from),
            conflict_with: standing.conflict_with.map(Id::from),
            confirms: standing.confirms.map(Id::from),
            rule: standing.rule.clone(),
        }
    }

    pub(crate) fn read(self) -> Result<domain::Standing, WireError> {
        Ok(domain::Standing {
            status: known("standing.status", domain::Status::from_code(&self.status))?,
            valid_from: Timestamp::from_millis(self.valid_from),
            valid_to: instant(self.valid_to),
            superseded_by: self.superseded_by.map(MemoryId::from),
            conflict_with: self.conflict_with.map(MemoryId::from),
            confirms: self.confirms.map(MemoryId::from),
            rule: self.rule,
        })
    }
}
