//! Reads a JSON value without trusting it: every look has a path, and every surprise names that path.

use anamnesis_domain::memory::Role;
use anamnesis_domain::owner::Owner;
use anamnesis_domain::time::{TimeError, Timestamp};
use serde_json::Value;

use crate::message::Rejected;

/// A value and the way that led to it.
#[derive(Clone, Debug)]
pub(crate) struct Node<'a> {
    pub(crate) value: &'a Value,
    pub(crate) path: String,
}

impl<'a> Node<'a> {
    pub(crate) fn root(value: &'a Value) -> Self {
        Self {
            value,
            path: String::new(),
        }
    }

    pub(crate) fn path_of(&self, key: &str) -> String {
        if self.path.is_empty() {
            key.to_owned()
        } else {
            format!("{}.{key}", self.path)
        }
    }

    /// `None` when the field is absent or null.
    pub(crate) fn get(&self, key: &str) -> Option<Self> {
        let value = self.value.get(key).filter(|value| !value.is_null())?;
        Some(Self {
            value,
            path: self.path_of(key),
        })
    }

    /// The first of these fields that is there.
    pub(crate) fn get_any(&self, keys: &[&str]) -> Option<Self> {
        keys.iter().find_map(|key| self.get(key))
    }

    /// Follows fields inward.
    pub(crate) fn walk(&self, keys: &[&str]) -> Option<Self> {
        keys.iter()
            .try_fold(self.clone(), |node, key| node.get(key))
    }

    pub(crate) fn require(&self, key: &str, what: &str) -> Result<Self, Rejected> {
        self.get(key)
            .ok_or_else(|| Rejected::missing(self.path_of(key), what))
    }

    pub(crate) fn text(&self) -> Result<&'a str, Rejected> {
        self.value
            .as_str()
            .ok_or_else(|| Rejected::wrong_type(&self.path, "a string"))
    }

    pub(crate) fn items(&self) -> Result<Vec<Self>, Rejected> {
        let list = self
            .value
            .as_array()
            .ok_or_else(|| Rejected::wrong_type(&self.path, "an array"))?;
        Ok(list
            .iter()
            .enumerate()
            .map(|(i, value)| Self {
                value,
                path: format!("{}[{i}]", self.path),
            })
            .collect())
    }

    /// An id, which some platforms write as a number.
    pub(crate) fn id(&self) -> Result<String, Rejected> {
        match self.value {
            Value::String(text) => Ok(text.clone()),
            Value::Number(number) => Ok(number.to_string()),
            Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => {
                Err(Rejected::wrong_type(&self.path, "a string"))
            }
        }
    }

    /// An optional id; an empty one is none.
    pub(crate) fn opt_id(&self, keys: &[&str]) -> Result<Option<String>, Rejected> {
        let Some(node) = self.get_any(keys) else {
            return Ok(None);
        };
        Ok(Some(node.id()?).filter(|id| !id.is_empty()))
    }

    pub(crate) fn owner(&self, tenant: &str) -> Result<Owner, Rejected> {
        let text = self.text()?;
        if text.is_empty() {
            return Err(Rejected::missing(
                &self.path,
                "the owner, <tenant>/<scope>/<id>",
            ));
        }
        Owner::parse_in_tenant(text, tenant)
            .map_err(|error| Rejected::new("invalid_owner", &self.path, format!("{error}")))
    }

    /// A reference to a FHIR patient: relative, absolute, or with a version.
    pub(crate) fn patient(&self, tenant: &str) -> Result<Owner, Rejected> {
        let mut parts = self.text()?.split('/');
        let id = loop {
            match parts.next() {
                Some("Patient") => break parts.next().unwrap_or_default(),
                Some(_) => {}
                None => {
                    return Err(Rejected::new(
                        "invalid_owner",
                        &self.path,
                        "the reference must name a patient, as Patient/<id>",
                    ));
                }
            }
        };
        Owner::parse_in_tenant(&format!("Patient/{id}"), tenant)
            .map_err(|error| Rejected::new("invalid_owner", &self.path, format!("{error}")))
    }

    pub(crate) fn role(&self) -> Result<Role, Rejected> {
        role_of(self.text()?).ok_or_else(|| {
            Rejected::new(
                "unknown_role",
                &self.path,
                "the role must be user, assistant, system, tool, clinician, record or document",
            )
        })
    }

    /// RFC 3339, or a number since 1970 whose unit its size tells (seconds up to nanoseconds), also
    /// when the number is written as a string, as OTLP does.
    pub(crate) fn instant(&self) -> Result<(Timestamp, i32), Rejected> {
        match self.value {
            Value::Number(number) => {
                let at = match number.as_i64() {
                    Some(whole) => from_epoch(whole),
                    None => number.as_f64().and_then(from_epoch_share),
                };
                self.in_range(at.map(|at| (at, 0)))
            }
            Value::String(text) if is_number(text) => {
                self.in_range(text.parse().ok().and_then(from_epoch).map(|at| (at, 0)))
            }
            Value::String(text) => match Timestamp::parse_with_zone(text) {
                Ok(read) => self.in_range(Some(read)),
                Err(TimeError::NoZone) => Err(Rejected::new(
                    "time_without_zone",
                    &self.path,
                    "the time has no zone; write RFC 3339 with Z or an offset such as +08:00",
                )),
                Err(TimeError::NotAnInstant | TimeError::EndsBeforeStart) => self.in_range(None),
            },
            Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => {
                self.in_range(None)
            }
        }
    }

    fn in_range(&self, read: Option<(Timestamp, i32)>) -> Result<(Timestamp, i32), Rejected> {
        read.filter(|(at, _)| (EARLIEST..=LATEST).contains(&at.millis())).ok_or_else(|| {
            Rejected::new(
                "invalid_time",
                &self.path,
                "not an RFC 3339 instant of the years 1900 to 9999, and not a number since 1970",
            )
        })
    }
}

/// 1900-01-01 and the end of 9999: whatever lies outside is a mistake of unit.
const EARLIEST: i64 = -2_208_988_800_000;
const LATEST: i64 = 253_402_300_799_999;

fn is_number(text: &str) -> bool {
    let digits = text.strip_prefix('-').unwrap_or(text);
    // Up to eight digits it would be a date such as 20261102.
    digits.len() > 8 && digits.bytes().all(|b| b.is_ascii_digit())
}

/// Seconds, milliseconds, microseconds or nanoseconds, told apart by size: each unit covers the years
/// 1973 to 5138 before it could be taken for the next.
fn from_epoch(number: i64) -> Option<Timestamp> {
    let millis = match number.unsigned_abs() {
        0..100_000_000_000 => number.checked_mul(1000)?,
        100_000_000_000..100_000_000_000_000 => number,
        100_000_000_000_000..100_000_000_000_000_000 => number.div_euclid(1000),
        _ => number.div_euclid(1_000_000),
    };
    Some(Timestamp::from_millis(millis))
}

fn from_epoch_share(seconds: f64) -> Option<Timestamp> {
    let is_seconds = seconds.is_finite() && seconds.abs() < 100_000_000_000.0;
    is_seconds.then(|| Timestamp::from_millis((seconds * 1000.0).round() as i64))
}

/// The words that platforms use for the same roles.
pub(crate) fn role_of(text: &str) -> Option<Role> {
    match text.to_lowercase().as_str() {
        "user" | "human" | "patient" | "customer" | "患者" | "用户" => Some(Role::User),
        "assistant" | "ai" | "model" | "bot" | "agent" | "助手" => Some(Role::Assistant),
        "system" | "developer" => Some(Role::System),
        "tool" | "function" | "tool_result" => Some(Role::Tool),
        "clinician" | "doctor" | "physician" | "nurse" | "practitioner" | "pharmacist" | "医生"
        | "护士" | "药师" => Some(Role::Clinician),
        "record" => Some(Role::Record),
        "document" => Some(Role::Document),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn check(value: Value, expected: Result<&str, &str>) {
        let read = Node {
            value: &value,
            path: "at".to_owned(),
        }
        .instant();
        let read = read
            .map(|(at, _)| at.to_string())
            .map_err(|rejected| rejected.code);
        assert_eq!(read, expected.map(str::to_owned), "{value}");
    }

    #[test]
    fn a_time_is_read_in_every_unit() {
        check(json!(1_700_000_000), Ok("2023-11-14T22:13:20Z"));
        check(json!(1_700_000_000.25), Ok("2023-11-14T22:13:20.250Z"));
        check(json!(1_700_000_000_250_i64), Ok("2023-11-14T22:13:20.250Z"));
        check(json!("1700000000250000000"), Ok("2023-11-14T22:13:20.250Z"));
        check(
            json!("2023-11-15T06:13:20.250+08:00"),
            Ok("2023-11-14T22:13:20.250Z"),
        );
    }

    #[test]
    fn a_time_that_could_mean_anything_is_refused() {
        check(json!("2023-11-14T22:13:20"), Err("time_without_zone"));
        check(json!("2023-11-14"), Err("time_without_zone"));
        check(json!("20231114"), Err("invalid_time"));
        check(json!("yesterday"), Err("invalid_time"));
        check(json!("0001-01-01T00:00:00Z"), Err("invalid_time"));
        check(json!(f64::MAX), Err("invalid_time"));
        check(json!(true), Err("invalid_time"));
    }

    #[test]
    fn a_patient_reference_reads_in_every_form() {
        for text in [
            "Patient/p7",
            "https://his.example/fhir/Patient/p7/_history/2",
        ] {
            let value = json!(text);
            let owner = Node::root(&value).patient("h1").unwrap();
            assert_eq!(owner.to_string(), "h1/patient/p7");
        }
        assert!(Node::root(&json!("Group/g1")).patient("h1").is_err());
        assert!(Node::root(&json!("Patient/")).patient("h1").is_err());
    }
}
