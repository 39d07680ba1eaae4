//! What does a record say that a platform wrote in Avro, by a schema of its own? The schema comes from
//! the platform's registry, so neither it nor the datum is trusted: a schema that could make a small
//! datum large, deep or endless is refused, and nothing here panics.
//!
//! A value becomes the JSON that the platform would have sent otherwise. What JSON has no word for
//! (bytes that are no text, decimals, durations) becomes null; a date or a time of day becomes text
//! without a zone, so that nobody takes it for an instant.

use std::collections::{HashMap, HashSet};
use std::panic::{AssertUnwindSafe, catch_unwind};

use anamnesis_domain::time::Timestamp;
use apache_avro::Schema;
use apache_avro::reader::datum::GenericDatumReader;
use apache_avro::schema::{NamespaceRef, UuidSchema};
use apache_avro::types::Value;
use serde_json::{Map, Number, Value as Json};

use crate::datum::{RECORD_BYTES_MAX, Source};
use crate::registry::registry;

/// Longest text of a schema. The largest of real ones (whole FHIR resources) have a few 100 KiB.
pub const SCHEMA_BYTES_MAX: usize = 1 << 20;

/// Levels of a value. Accepted shapes have fewer than ten; the decoder calls itself for each.
const LEVELS_MAX: usize = 32;

/// Longest name of a field or symbol: every value of a record repeats its names in memory.
const NAME_BYTES_MAX: usize = 256;

/// Never repeats content.
#[derive(Debug, thiserror::Error, PartialEq, Eq, Clone, Copy)]
pub enum ForeignError {
    #[error("the text of the schema is no Avro schema")]
    NoSchema,
    #[error("a schema of this kind is not accepted: {reason}")]
    Unsupported { reason: &'static str },
    #[error("the datum does not fit its schema")]
    Malformed,
}

impl ForeignError {
    /// Stable code, for rejections and metrics.
    pub fn code(self) -> &'static str {
        match self {
            Self::NoSchema => "invalid_schema",
            Self::Unsupported { .. } => "unsupported_schema",
            Self::Malformed => "undecodable",
        }
    }
}

/// A schema that somebody else wrote, checked.
pub struct ForeignSchema {
    schema: Schema,
}

impl ForeignSchema {
    /// # Errors
    /// [`ForeignError::NoSchema`] and [`ForeignError::Unsupported`].
    pub fn parse(text: &str) -> Result<Self, ForeignError> {
        // Sets the library's limit of one allocation, which the first call in a process decides.
        registry();
        if text.len() > SCHEMA_BYTES_MAX {
            return Err(unsupported("its text is too long"));
        }
        // The parser has panicked on bad names in earlier releases.
        let parsed = catch_unwind(AssertUnwindSafe(|| Schema::parse_str(text)));
        let Ok(Ok(schema)) = parsed else {
            return Err(ForeignError::NoSchema);
        };
        let mut survey = Survey::default();
        survey.look(&schema, None, 0)?;
        Ok(Self { schema })
    }

    /// # Errors
    /// [`ForeignError::Malformed`] for what this schema did not write to the last byte.
    pub fn decode(&self, datum: &[u8]) -> Result<Json, ForeignError> {
        if datum.len() > RECORD_BYTES_MAX {
            return Err(ForeignError::Malformed);
        }
        let mut source = Source::new(datum);
        let decoded = catch_unwind(AssertUnwindSafe(|| {
            let reader = GenericDatumReader::builder(&self.schema).build().ok()?;
            reader.read_value(&mut source).ok()
        }));
        match decoded {
            Ok(Some(value)) if source.is_read_exactly() => Ok(json(value)),
            Ok(_) | Err(_) => Err(ForeignError::Malformed),
        }
    }
}

fn unsupported(reason: &'static str) -> ForeignError {
    ForeignError::Unsupported { reason }
}

/// What a type costs.
#[derive(Clone, Copy)]
struct Cost {
    levels: usize,
    /// Whether a value takes no byte at all: any number of them would fit into an empty datum.
    is_free: bool,
}

impl Cost {
    const LEAF: Self = Self {
        levels: 1,
        is_free: false,
    };
}

/// Goes through a schema once; named types are remembered, so that a schema that names them again and
/// again does not take longer.
#[derive(Default)]
struct Survey {
    open: HashSet<String>,
    done: HashMap<String, Cost>,
}

impl Survey {
    fn look(
        &mut self,
        schema: &Schema,
        namespace: NamespaceRef<'_>,
        depth: usize,
    ) -> Result<Cost, ForeignError> {
        if depth > LEVELS_MAX {
            return Err(unsupported("it is nested too deeply"));
        }
        let cost = match schema {
            Schema::Null => Cost {
                levels: 1,
                is_free: true,
            },
            Schema::Boolean
            | Schema::Int
            | Schema::Long
            | Schema::Float
            | Schema::Double
            | Schema::Bytes
            | Schema::String
            | Schema::BigDecimal
            | Schema::Decimal(_)
            | Schema::Date
            | Schema::TimeMillis
            | Schema::TimeMicros
            | Schema::TimestampMillis
            | Schema::TimestampMicros
            | Schema::TimestampNanos
            | Schema::LocalTimestampMillis
            | Schema::LocalTimestampMicros
            | Schema::LocalTimestampNanos
            | Schema::Uuid(UuidSchema::Bytes | UuidSchema::String) => Cost::LEAF,
            Schema::Fixed(fixed)
            | Schema::Duration(fixed)
            | Schema::Uuid(UuidSchema::Fixed(fixed)) => {
                if fixed.size == 0 || fixed.size > RECORD_BYTES_MAX {
                    return Err(unsupported("a fixed type has no lawful size"));
                }
                self.done.insert(fixed.name.fullname(namespace), Cost::LEAF);
                Cost::LEAF
            }
            Schema::Enum(symbols) => {
                symbols.symbols.iter().try_for_each(|name| check(name))?;
                self.done
                    .insert(symbols.name.fullname(namespace), Cost::LEAF);
                Cost::LEAF
            }
            Schema::Array(array) => {
                let items = self.look(&array.items, namespace, depth + 1)?;
                if items.is_free {
                    return Err(unsupported("the items of an array take no bytes"));
                }
                above(items.levels)
            }
            Schema::Map(map) => above(self.look(&map.types, namespace, depth + 1)?.levels),
            Schema::Union(union) => {
                let mut levels = 0;
                for variant in union.variants() {
                    levels = levels.max(self.look(variant, namespace, depth + 1)?.levels);
                }
                above(levels)
            }
            Schema::Record(record) => {
                let name = record.name.fullname(namespace);
                let inner = record.name.fully_qualified_name(namespace);
                self.open.insert(name.clone());
                let mut levels = 0;
                for field in &record.fields {
                    check(&field.name)?;
                    let cost = self.look(&field.schema, inner.namespace(), depth + 1)?;
                    if cost.is_free {
                        return Err(unsupported("a field takes no bytes"));
                    }
                    levels = levels.max(cost.levels);
                }
                self.open.remove(&name);
                let mut cost = above(levels);
                cost.is_free = record.fields.is_empty();
                self.done.insert(name, cost);
                cost
            }
            Schema::Ref { name } => {
                let name = name.fullname(namespace);
                if self.open.contains(&name) {
                    return Err(unsupported("a type holds itself"));
                }
                let known = self.done.get(&name).copied();
                known.ok_or(unsupported("it names a type that it does not hold"))?
            }
        };
        if depth + cost.levels > LEVELS_MAX {
            return Err(unsupported("it is nested too deeply"));
        }
        Ok(cost)
    }
}

fn above(levels: usize) -> Cost {
    Cost {
        levels: levels + 1,
        is_free: false,
    }
}

fn check(name: &str) -> Result<(), ForeignError> {
    if name.len() > NAME_BYTES_MAX {
        return Err(unsupported("a name is too long"));
    }
    Ok(())
}

fn json(value: Value) -> Json {
    match value {
        Value::Null | Value::Decimal(_) | Value::BigDecimal(_) | Value::Duration(_) => Json::Null,
        Value::Boolean(value) => value.into(),
        Value::Int(value) => value.into(),
        Value::Long(value) => value.into(),
        Value::Float(value) => number(value.into()),
        Value::Double(value) => number(value),
        Value::Bytes(bytes) | Value::Fixed(_, bytes) => {
            String::from_utf8(bytes).map_or(Json::Null, Json::String)
        }
        Value::String(text) | Value::Enum(_, text) => Json::String(text),
        Value::Union(_, inner) => json(*inner),
        Value::Array(items) => items.into_iter().map(json).collect(),
        Value::Map(items) => {
            // A hash map has another order each time; what is read twice must be the same twice.
            let mut items: Vec<(String, Value)> = items.into_iter().collect();
            items.sort_unstable_by(|(one, _), (other, _)| one.cmp(other));
            object(items)
        }
        Value::Record(fields) => object(fields),
        Value::Date(days) => local(i64::from(days) * 86_400_000, |text| &text[..10]),
        Value::TimeMillis(millis) => local(millis.into(), |text| &text[11..]),
        Value::TimeMicros(micros) => local(micros.div_euclid(1_000), |text| &text[11..]),
        Value::TimestampMillis(millis) => instant(millis),
        Value::TimestampMicros(micros) => instant(micros.div_euclid(1_000)),
        Value::TimestampNanos(nanos) => instant(nanos.div_euclid(1_000_000)),
        Value::LocalTimestampMillis(millis) => local(millis, |text| text),
        Value::LocalTimestampMicros(micros) => local(micros.div_euclid(1_000), |text| text),
        Value::LocalTimestampNanos(nanos) => local(nanos.div_euclid(1_000_000), |text| text),
        Value::Uuid(uuid) => uuid.to_string().into(),
    }
}

fn object(fields: Vec<(String, Value)>) -> Json {
    let fields = fields.into_iter();
    Json::Object(
        fields
            .map(|(name, value)| (name, json(value)))
            .collect::<Map<_, _>>(),
    )
}

/// Infinity and not-a-number have no word in JSON.
fn number(value: f64) -> Json {
    Number::from_f64(value).map_or(Json::Null, Json::Number)
}

/// An instant in the years that RFC 3339 has; a number otherwise, which no field of ours takes for one.
fn rfc3339(millis: i64) -> Option<String> {
    const YEARS: std::ops::Range<i64> = -62_135_596_800_000..253_402_300_800_000;
    YEARS
        .contains(&millis)
        .then(|| Timestamp::from_millis(millis).to_string())
}

fn instant(millis: i64) -> Json {
    rfc3339(millis).map_or_else(|| millis.into(), Json::String)
}

/// A part of an instant's text, without the zone that nobody named.
fn local(millis: i64, part: impl Fn(&str) -> &str) -> Json {
    let Some(text) = rfc3339(millis) else {
        return Json::Null;
    };
    part(text.trim_end_matches('Z')).into()
}

#[cfg(test)]
mod tests;
