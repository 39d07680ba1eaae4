//! What a write call may say. Unknown fields are refused by name.

use anamnesis_domain::ids::MemoryId;
use anamnesis_domain::input::{TaskStatus, Verdict};
use anamnesis_domain::memory::{Kind, Permille, Polarity};
use anamnesis_domain::text::Text;
use anamnesis_domain::time::Timestamp;
use anamnesis_pipeline::problem::Problem;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::caps;

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Remember {
    pub owner: Option<String>,
    pub text: Text,
    pub kind: Option<Kind>,
    /// `self`, `father`, `other(neighbour)` …
    pub subject: Option<String>,
    pub importance: Option<Permille>,
    pub valid_from: Option<Timestamp>,
    pub valid_to: Option<Timestamp>,
    /// With its unit: `30d`, `12h`.
    pub ttl: Option<String>,
    pub attribute: Option<String>,
    pub value: Option<String>,
    pub polarity: Option<Polarity>,
    pub namespace: Option<String>,
    pub key: Option<String>,
    #[serde(default)]
    pub context_tags: Vec<String>,
    /// Document or tool that it comes from; `api` when absent.
    pub source: Option<String>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Correct {
    pub owner: Option<String>,
    pub memory_id: MemoryId,
    pub text: Option<Text>,
    pub attribute: Option<String>,
    pub value: Option<String>,
    /// From when on the corrected statement holds; as long as the wrong one when absent.
    pub valid_from: Option<Timestamp>,
    /// It ended.
    pub valid_to: Option<Timestamp>,
    pub expected_version: Option<u64>,
    pub reason: Text,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ForgetMode {
    /// Kept, never recalled.
    Restrict,
    /// Made unreadable for ever.
    Erase,
}

/// What a call is about: exactly one of the four.
#[derive(Clone, Debug, Default)]
pub struct Targets {
    pub memory_ids: Option<Vec<MemoryId>>,
    pub source: Option<String>,
    /// Token or event id of a message; an event id needs its `source` beside it.
    pub message: Option<String>,
    pub all: Option<bool>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Forget {
    pub owner: Option<String>,
    pub memory_ids: Option<Vec<MemoryId>>,
    pub source: Option<String>,
    pub message: Option<String>,
    pub all: Option<bool>,
    pub mode: ForgetMode,
    pub reason: Text,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Restrict {
    pub owner: Option<String>,
    pub memory_ids: Option<Vec<MemoryId>>,
    pub source: Option<String>,
    pub message: Option<String>,
    pub all: Option<bool>,
    #[serde(default)]
    pub reason: Text,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Restore {
    pub owner: Option<String>,
    pub memory_ids: Vec<MemoryId>,
    #[serde(default)]
    pub reason: Text,
}

/// The record was wrong; it was never true.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Retract {
    pub owner: Option<String>,
    pub memory_id: MemoryId,
    pub expected_version: Option<u64>,
    pub reason: Text,
}

/// A grant, or with `withdraw` its end: `true` for all of it, or a list of kinds.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ConsentChange {
    pub owner: Option<String>,
    pub purposes: Option<Vec<String>>,
    pub kinds: Option<Vec<Kind>>,
    /// Highest sensitivity covered: 1 to 4, or `L1` to `L4`.
    pub max_sensitivity: Option<Value>,
    pub valid_from: Option<Timestamp>,
    pub valid_to: Option<Timestamp>,
    pub withdraw: Option<Withdraw>,
}

#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
#[serde(untagged, expecting = "true, false or a list of kinds")]
pub enum Withdraw {
    All(bool),
    Kinds(Vec<Kind>),
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReviewDecision {
    pub owner: Option<String>,
    #[serde(alias = "verdict")]
    pub decision: Verdict,
    pub expected_version: Option<u64>,
    pub reason: Text,
    /// With `admit` of a rejected candidate: what it claims, where its own words do not say it.
    pub text: Option<Text>,
    pub kind: Option<Kind>,
    pub subject: Option<String>,
    pub attribute: Option<String>,
    pub value: Option<String>,
    pub polarity: Option<Polarity>,
    pub valid_from: Option<Timestamp>,
}

impl ReviewDecision {
    pub fn new(decision: Verdict, reason: impl Into<Text>) -> Self {
        Self {
            owner: None,
            decision,
            expected_version: None,
            reason: reason.into(),
            text: None,
            kind: None,
            subject: None,
            attribute: None,
            value: None,
            polarity: None,
            valid_from: None,
        }
    }

    /// The first field that says what is claimed.
    pub(crate) fn says_what(&self) -> Option<&'static str> {
        let given = [
            ("text", self.text.is_some()),
            ("kind", self.kind.is_some()),
            ("subject", self.subject.is_some()),
            ("attribute", self.attribute.is_some()),
            ("value", self.value.is_some()),
            ("polarity", self.polarity.is_some()),
            ("valid_from", self.valid_from.is_some()),
        ];
        given
            .iter()
            .find(|(_, is_given)| *is_given)
            .map(|(field, _)| *field)
    }
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TaskChange {
    pub owner: Option<String>,
    pub task_id: String,
    pub goal: Text,
    pub status: Option<TaskStatus>,
    pub decision: Option<Text>,
    #[serde(default)]
    pub confirmed_facts: Vec<Text>,
    #[serde(default)]
    pub constraints: Vec<Text>,
    #[serde(default)]
    pub open_questions: Vec<Text>,
    pub tool_error: Option<Text>,
    #[serde(default)]
    pub pending_confirmations: Vec<Text>,
    /// With its unit, from an hour to 30 days; 7 days when absent.
    pub ttl: Option<String>,
}

impl Forget {
    pub fn targets(&self) -> Targets {
        Targets {
            memory_ids: self.memory_ids.clone(),
            source: self.source.clone(),
            message: self.message.clone(),
            all: self.all,
        }
    }
}

impl Restrict {
    pub fn targets(&self) -> Targets {
        Targets {
            memory_ids: self.memory_ids.clone(),
            source: self.source.clone(),
            message: self.message.clone(),
            all: self.all,
        }
    }
}

/// Reads a request, and names the field that offends without repeating what stood in it.
///
/// # Errors
/// 400 `unknown_field`, `missing_field`, `time_without_zone` or `invalid_field`.
pub fn read<T: DeserializeOwned>(body: Value) -> Result<T, Problem> {
    if !body.is_object() {
        return Err(Problem::bad_request(
            "invalid_field",
            "the body must be one JSON object",
        ));
    }
    serde_path_to_error::deserialize(body).map_err(|error| {
        let path = error.path().to_string();
        let message = error.inner().to_string();
        let within = |name: &str| match path.as_str() {
            "." => name.to_owned(),
            // The path of an unknown field already ends in its name.
            path if path == name || path.ends_with(&format!(".{name}")) => path.to_owned(),
            path => format!("{path}.{name}"),
        };
        if let Some(name) = quoted(&message, "unknown field ") {
            let known = message.split_once(", ").map_or("", |(_, rest)| rest);
            let name: String = name.chars().take(100).collect();
            let detail = format!("this field is not known; {known}");
            return Problem::bad_request("unknown_field", detail).at(within(&name));
        }
        if let Some(name) = quoted(&message, "missing field ") {
            let detail = format!("{name} is required");
            return Problem::bad_request("missing_field", detail).at(within(&name));
        }
        let no_zone = anamnesis_domain::time::TimeError::NoZone.to_string();
        if message.contains(&no_zone) {
            return Problem::bad_request("time_without_zone", no_zone).at(path);
        }
        // "invalid type: string "…", expected u64": only what was expected may be told.
        let detail = match message.rsplit_once("expected ") {
            Some((_, expected)) => format!("expected {expected}"),
            None => "the value does not fit this field".to_owned(),
        };
        Problem::bad_request("invalid_field", detail).at(path)
    })
}

fn quoted(message: &str, prefix: &str) -> Option<String> {
    let (name, _) = message
        .strip_prefix(prefix)?
        .strip_prefix('`')?
        .split_once('`')?;
    Some(name.to_owned())
}

/// A duration with its unit, in milliseconds.
///
/// # Errors
/// 400 `invalid_field`.
pub(crate) fn ttl_millis(text: &str) -> Result<i64, Problem> {
    let wrong = || {
        Problem::bad_request(
            "invalid_field",
            "a duration carries its unit: 30d, 12h, 90min",
        )
        .at("ttl")
    };
    let duration = humantime::parse_duration(text).map_err(|_| wrong())?;
    let millis = i64::try_from(duration.as_millis()).map_err(|_| wrong())?;
    if millis == 0 || millis > caps::TTL_MILLIS_MAX {
        return Err(wrong());
    }
    Ok(millis)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn check<T: DeserializeOwned>(body: Value, expected: &str) {
        let problem = match read::<T>(body) {
            Ok(_) => panic!("read"),
            Err(problem) => problem,
        };
        assert_eq!(
            format!(
                "{} {}",
                problem.code,
                problem.field.as_deref().unwrap_or("-")
            ),
            expected
        );
        assert!(!problem.detail.contains("4242"), "{}", problem.detail);
    }

    #[test]
    fn a_request_is_refused_by_the_name_of_its_field() {
        check::<Remember>(
            json!({"owner": "h/p", "text": "a", "txet": "4242"}),
            "unknown_field txet",
        );
        check::<Remember>(json!({"owner": "h/p"}), "missing_field text");
        check::<Remember>(json!({"text": "a", "kind": "4242"}), "invalid_field kind");
        check::<Remember>(json!({"text": 4242}), "invalid_field text");
        check::<Remember>(
            json!({"text": "a", "importance": 7}),
            "invalid_field importance",
        );
        check::<Remember>(
            json!({"text": "a", "context_tags": [4242]}),
            "invalid_field context_tags[0]",
        );
        check::<Remember>(
            json!({"text": "a", "valid_from": "2025-01-01T00:00:00"}),
            "time_without_zone valid_from",
        );
        check::<Remember>(
            json!({"text": "a", "valid_from": "4242"}),
            "invalid_field valid_from",
        );
        check::<Correct>(
            json!({"memory_id": "m-4242", "reason": "a"}),
            "invalid_field memory_id",
        );
        check::<Forget>(json!({"all": true, "reason": "a"}), "missing_field mode");
        check::<ConsentChange>(json!({"withdraw": "4242"}), "invalid_field withdraw");
        check::<Remember>(json!(["4242"]), "invalid_field -");
    }

    #[test]
    fn a_duration_carries_its_unit() {
        assert_eq!(ttl_millis("30d").unwrap(), 30 * 86_400_000);
        assert_eq!(ttl_millis("90min").unwrap(), 5_400_000);
        for text in ["30", "", "-1d", "0s", "1000000000y"] {
            assert!(ttl_millis(text).is_err(), "{text}");
        }
    }
}
