//! Which events does a record of `inbox` hold? What the record is decides, and nothing is guessed:
//!
//! | record | read as |
//! | --- | --- |
//! | `content-type: application/cloudevents-batch+json` | each element a CloudEvent |
//! | `content-type: application/cloudevents+json` | a CloudEvent with its attributes beside `data` |
//! | headers `ce_…` | a CloudEvent whose `data` is the payload (binary mode) |
//! | anything else | any shape that the API accepts, or a list of them |
//!
//! A payload is JSON, or Avro in Confluent's frame when a registry is configured: a zero byte, which no
//! JSON begins with, and the number of a schema.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anamnesis_pipeline::inbox::{Damage, InboxRecord, SchemaError, SchemaSource};
use anamnesis_schemas::ForeignSchema;
use bytes::Bytes;
use serde_json::{Map, Value};
use tokio::time::Instant;

use crate::caps;
use crate::import;
use crate::message::Rejected;

/// Why a record holds no event.
pub(super) enum Failure {
    Rejected(Rejected),
    /// The registry does not answer: the record waits.
    Waits(SchemaError),
}

impl From<Rejected> for Failure {
    fn from(rejected: Rejected) -> Self {
        Self::Rejected(rejected)
    }
}

/// The events of a record, in order; more than one only when it holds a list.
pub(super) async fn events(
    record: &InboxRecord,
    schemas: Option<&Schemas>,
) -> Result<Vec<Value>, Failure> {
    match record.damage {
        Some(Damage::TooLarge) => {
            let detail = "a record has at most 4 MiB of payload and 64 KiB of key and headers";
            return Err(Rejected::whole("record_too_large", detail).into());
        }
        Some(Damage::HeaderName) => {
            let detail = "the name of a header is not UTF-8";
            return Err(Rejected::whole("invalid_utf8", detail).into());
        }
        None => (),
    }
    let payload = match &record.payload {
        Some(payload) if !payload.is_empty() => payload,
        Some(_) | None => {
            return Err(Rejected::whole("empty_record", "the record has no payload").into());
        }
    };
    let headers = Headers::read(record)?;
    let kind = headers.kind()?;
    let value = if payload[0] == 0 {
        avro(payload, schemas).await?
    } else if headers.says_avro() {
        let detail = "Avro is read in Confluent's frame: a zero byte and the number of the schema";
        return Err(Rejected::whole("undecodable", detail).into());
    } else {
        import::parse(payload.strip_prefix(b"\xef\xbb\xbf").unwrap_or(payload))?
    };
    match (kind, value) {
        (Kind::Binary, data) => Ok(vec![headers.around(record, data)?]),
        (Kind::Structured, event) => Ok(vec![cloud_event(event)?]),
        (Kind::Batch, Value::Array(list)) => few(list)?
            .into_iter()
            .map(|event| Ok(cloud_event(event)?))
            .collect(),
        (Kind::Batch, _) => Err(Rejected::whole("invalid_field", "a batch is a list").into()),
        (Kind::Plain, Value::Array(list)) => Ok(few(list)?),
        (Kind::Plain, event) => Ok(vec![event]),
    }
}

/// A list that is empty says nothing, and a long one is a file.
fn few(list: Vec<Value>) -> Result<Vec<Value>, Rejected> {
    if list.is_empty() {
        return Err(Rejected::whole("empty_record", "the list holds no event"));
    }
    if list.len() > caps::EVENTS_PER_RECORD_MAX {
        let most = caps::EVENTS_PER_RECORD_MAX;
        let detail = format!("a record holds at most {most} events; send more records");
        return Err(Rejected::whole("too_many_events", detail));
    }
    Ok(list)
}

/// What is called a CloudEvent is one.
fn cloud_event(event: Value) -> Result<Value, Rejected> {
    if event.get("specversion").is_none() {
        return Err(Rejected::missing("specversion", "1.0"));
    }
    Ok(event)
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    Structured,
    Batch,
    Binary,
    Plain,
}

/// What the headers say, with names in lower case.
struct Headers {
    /// Without parameters, in lower case.
    content_type: Option<String>,
    /// `ce_id` and its like.
    attributes: Map<String, Value>,
}

impl Headers {
    fn read(record: &InboxRecord) -> Result<Self, Rejected> {
        let mut headers = Self {
            content_type: None,
            attributes: Map::new(),
        };
        for (name, value) in &record.headers {
            let name = name.to_ascii_lowercase();
            let is_attribute = name.starts_with("ce_");
            // Other headers are the platform's own business.
            if !is_attribute && name != "content-type" {
                continue;
            }
            let Some(value) = value else { continue };
            let path = format!("headers.{name}");
            let Ok(text) = std::str::from_utf8(value) else {
                return Err(Rejected::new("invalid_utf8", path, "a header is UTF-8"));
            };
            let is_new = if is_attribute {
                let before = headers.attributes.insert(name, text.into());
                before.is_none_or(|before| before == text)
            } else {
                let essence = text.split(';').next().unwrap_or_default();
                let essence = essence.trim().to_ascii_lowercase();
                let before = headers.content_type.replace(essence.clone());
                before.is_none_or(|before| before == essence)
            };
            // Whose event it is must not depend on which of two a reader takes.
            if !is_new {
                let detail = "a header stands there twice and says two things";
                return Err(Rejected::new("invalid_field", path, detail));
            }
        }
        Ok(headers)
    }

    /// CloudEvents' own rule: the media type tells structured from binary mode, since a structured event
    /// may repeat its attributes as headers.
    fn kind(&self) -> Result<Kind, Rejected> {
        let content_type = self.content_type.as_deref().unwrap_or_default();
        if let Some(format) = content_type.strip_prefix("application/cloudevents") {
            return match format {
                "-batch+json" => Ok(Kind::Batch),
                "" | "+json" | "+avro" => Ok(Kind::Structured),
                _ => Err(self.unsupported()),
            };
        }
        if self.attributes.is_empty() {
            return Ok(Kind::Plain);
        }
        let is_json = content_type.ends_with("/json") || content_type.ends_with("+json");
        if content_type.is_empty() || is_json || self.says_avro() {
            return Ok(Kind::Binary);
        }
        Err(self.unsupported())
    }

    fn says_avro(&self) -> bool {
        let content_type = self.content_type.as_deref().unwrap_or_default();
        let (_, format) = content_type.rsplit_once(['/', '+']).unwrap_or_default();
        ["avro", "x-avro", "vnd.apache.avro"].contains(&format)
    }

    fn unsupported(&self) -> Rejected {
        let detail = "the payload of a record is JSON or Avro";
        Rejected::new("unsupported_content_type", "headers.content-type", detail)
    }

    /// The record as the normalisation knows CloudEvents in binary mode.
    fn around(self, record: &InboxRecord, data: Value) -> Result<Value, Rejected> {
        if !self.attributes.contains_key("ce_specversion") {
            return Err(Rejected::missing("headers.ce_specversion", "1.0"));
        }
        let mut event = Map::new();
        let key = record.key.as_deref().map(std::str::from_utf8);
        if let Some(Ok(key)) = key
            && !key.is_empty()
        {
            event.insert("key".to_owned(), key.into());
        }
        event.insert("headers".to_owned(), Value::Object(self.attributes));
        event.insert("value".to_owned(), data);
        Ok(Value::Object(event))
    }
}

/// A zero byte, the schema's number, the datum.
async fn avro(payload: &Bytes, schemas: Option<&Schemas>) -> Result<Value, Failure> {
    let Some((frame, datum)) = payload.split_first_chunk::<5>() else {
        return Err(Rejected::whole("undecodable", "the frame of Avro is cut off").into());
    };
    let Some(schemas) = schemas else {
        let detail = "Avro needs a schema registry, and none is configured";
        return Err(Rejected::whole("registry_not_configured", detail).into());
    };
    let [_, a, b, c, d] = *frame;
    let known = schemas.get(u32::from_be_bytes([a, b, c, d])).await?;
    match &*known {
        Known::Usable(schema) => schema
            .decode(datum)
            .map_err(|error| Rejected::whole(error.code(), error.to_string()).into()),
        Known::Refused { code } => {
            let detail = "the schema that the record names cannot be used";
            Err(Rejected::whole(code, detail).into())
        }
    }
}

/// What an id stands for, for ever.
enum Known {
    Usable(ForeignSchema),
    Refused { code: &'static str },
}

/// A registry that answered "unknown" is not asked again for so long. A record may overtake its schema
/// on the way to a registry's replica, so this is not for ever.
const UNKNOWN_FOR: Duration = Duration::from_secs(10);

/// Schemas in memory. A site has some dozens; beyond this all are asked for again.
const KNOWN_MAX: usize = 1_000;

/// The schemas of a registry, each asked for once.
pub(super) struct Schemas {
    source: Arc<dyn SchemaSource>,
    held: Mutex<Held>,
}

#[derive(Default)]
struct Held {
    known: HashMap<u32, Arc<Known>>,
    unknown: HashMap<u32, Instant>,
}

impl Schemas {
    pub(super) fn new(source: Arc<dyn SchemaSource>) -> Self {
        Self {
            source,
            held: Mutex::default(),
        }
    }

    fn held(&self) -> MutexGuard<'_, Held> {
        // Whole between statements that can panic.
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn get(&self, id: u32) -> Result<Arc<Known>, Failure> {
        let unknown = || {
            let detail = format!("the schema registry knows no schema {id}");
            Failure::Rejected(Rejected::whole("unknown_schema", detail))
        };
        {
            let held = self.held();
            if let Some(known) = held.known.get(&id) {
                return Ok(known.clone());
            }
            if held
                .unknown
                .get(&id)
                .is_some_and(|at| at.elapsed() < UNKNOWN_FOR)
            {
                return Err(unknown());
            }
        }
        let known = match self.source.schema(id).await {
            Ok(text) => match ForeignSchema::parse(&text) {
                Ok(schema) => Known::Usable(schema),
                Err(error) => {
                    tracing::warn!(schema = id, %error, "a schema of the registry is refused");
                    Known::Refused { code: error.code() }
                }
            },
            Err(error @ SchemaError::Unsupported { .. }) => {
                tracing::warn!(%error, "a schema of the registry is refused");
                Known::Refused {
                    code: "unsupported_schema",
                }
            }
            Err(SchemaError::Unknown { .. }) => {
                let mut held = self.held();
                held.unknown.retain(|_, at| at.elapsed() < UNKNOWN_FOR);
                if held.unknown.len() < KNOWN_MAX {
                    held.unknown.insert(id, Instant::now());
                }
                return Err(unknown());
            }
            Err(error @ SchemaError::Unavailable { .. }) => return Err(Failure::Waits(error)),
        };
        let known = Arc::new(known);
        let mut held = self.held();
        if held.known.len() >= KNOWN_MAX {
            held.known.clear();
        }
        held.known.insert(id, known.clone());
        Ok(known)
    }
}

#[cfg(test)]
mod tests;
