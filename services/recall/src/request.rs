//! What may a caller ask, and what is wrong with a request that cannot be answered?

use anamnesis_domain::ids::EventTag;
use anamnesis_domain::input::{Position, Topic};
use anamnesis_domain::memory::Kind;
use anamnesis_domain::owner::{Owner, Subject};
use anamnesis_domain::text::{Text, is_blank};
use anamnesis_domain::time::{Interval, TimeError, Timestamp};
use anamnesis_pipeline::caller::parse_owner;
use anamnesis_pipeline::problem::Problem;
use anamnesis_pipeline::stores::SubjectFilter;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// Longest question, in bytes. Longer ones are pasted documents: they say nothing that a search can
/// use, and would make one recall as expensive as a hundred.
pub const QUERY_BYTES_MAX: usize = 8 << 10;
/// Most memories that one recall returns: the fused list holds fifty.
pub const TOP_K_MAX: u64 = 50;
pub const TOP_K_DEFAULT: u64 = 8;
/// Longest value of a short field (purpose, task id, tag), in bytes.
const WORD_BYTES_MAX: usize = 200;
/// Most entries of a list field.
const LIST_MAX: usize = 50;

/// `POST /v1/recall` as it arrives, before anything is believed.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RecallRequest {
    pub owner: String,
    pub query: Text,
    pub top_k: Option<u64>,
    pub kinds: Option<Vec<String>>,
    pub subject: Option<String>,
    pub as_of: Option<String>,
    pub known_at: Option<String>,
    pub time_range: Option<TimeRange>,
    pub context_tags: Option<Vec<String>>,
    pub purpose: Option<String>,
    pub task_id: Option<String>,
    pub include_history: bool,
    pub min_score: Option<f64>,
    pub wait_for: Option<WaitForField>,
    pub explain: bool,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TimeRange {
    pub from: String,
    #[serde(default)]
    pub to: Option<String>,
}

/// A token, or a position in either form that the write API gives.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(untagged)]
pub enum WaitForField {
    Word(String),
    Position(Position),
}

/// What the answer must already contain.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WaitFor {
    /// The decision on this event.
    Event(EventTag),
    /// Every decision up to and including this record of `memories`, or the decision on this record of
    /// `conversation`, `candidates` or `commands`.
    Position(Position),
}

/// A request that can be answered.
#[derive(Clone, PartialEq, Debug)]
pub struct Ask {
    pub query: Text,
    pub top_k: usize,
    pub kinds: Option<Vec<Kind>>,
    /// `None`: the question itself tells.
    pub subject: Option<SubjectFilter>,
    pub as_of: Option<Timestamp>,
    pub known_at: Option<Timestamp>,
    pub time_range: Option<Interval>,
    pub context_tags: Option<Vec<String>>,
    pub purpose: Option<String>,
    pub task_id: Option<String>,
    pub include_history: bool,
    pub min_score: Option<f64>,
    pub wait_for: Option<WaitFor>,
    pub explain: bool,
    /// What was said before in the conversation, oldest first; only to resolve pronouns.
    pub said_before: Vec<Text>,
    /// Whom they speak of, where the words themselves are not at hand any more.
    pub spoken_of: Option<Subject>,
}

impl Ask {
    /// The plainest question: everything else as by default.
    pub fn new(query: impl Into<Text>) -> Self {
        Self {
            query: query.into(),
            top_k: TOP_K_DEFAULT as usize,
            kinds: None,
            subject: None,
            as_of: None,
            known_at: None,
            time_range: None,
            context_tags: None,
            purpose: None,
            task_id: None,
            include_history: false,
            min_score: None,
            wait_for: None,
            explain: false,
            said_before: Vec::new(),
            spoken_of: None,
        }
    }
}

/// Names of the fields of [`RecallRequest`], for refusing others by name.
const FIELDS: [&str; 15] = [
    "owner",
    "query",
    "top_k",
    "kinds",
    "subject",
    "as_of",
    "known_at",
    "time_range",
    "context_tags",
    "purpose",
    "task_id",
    "include_history",
    "min_score",
    "wait_for",
    "explain",
];

impl RecallRequest {
    /// Reads a JSON object field by field, so that a problem names the field and repeats no value.
    ///
    /// # Errors
    /// 400 `unknown_field` or `invalid_field`.
    pub fn read(mut fields: Map<String, Value>) -> Result<Self, Problem> {
        refuse_unknown(&fields, &FIELDS)?;
        Ok(Self {
            owner: take(&mut fields, "owner", "a string")?.unwrap_or_default(),
            query: take(&mut fields, "query", "a string")?.unwrap_or_default(),
            top_k: take(&mut fields, "top_k", "a whole number from 1 to 50")?,
            kinds: take(&mut fields, "kinds", "a list of strings")?,
            subject: take(&mut fields, "subject", "a string")?,
            as_of: take(&mut fields, "as_of", "an RFC 3339 instant")?,
            known_at: take(&mut fields, "known_at", "an RFC 3339 instant")?,
            time_range: take(
                &mut fields,
                "time_range",
                "{from, to?} of RFC 3339 instants",
            )?,
            context_tags: take(&mut fields, "context_tags", "a list of strings")?,
            purpose: take(&mut fields, "purpose", "a string")?,
            task_id: take(&mut fields, "task_id", "a string")?,
            include_history: take(&mut fields, "include_history", "true or false")?
                .unwrap_or_default(),
            min_score: take(&mut fields, "min_score", "a number from 0 to 1")?,
            wait_for: take(&mut fields, "wait_for", "a token, or a position")?,
            explain: take(&mut fields, "explain", "true or false")?.unwrap_or_default(),
        })
    }

    /// Checks everything that can be checked without a store.
    ///
    /// # Errors
    /// A 400 problem that names the field and the reason.
    pub fn validate(self, now: Timestamp) -> Result<(Owner, Ask), Problem> {
        let owner = parse_owner(Some(&self.owner), "owner")?;
        let known_at = instant(self.known_at.as_deref(), "known_at")?;
        if known_at.is_some_and(|known| known > now) {
            return Err(Problem::bad_request(
                "known_at_in_future",
                "what will be known later cannot be asked; leave known_at out for everything known now",
            )
            .at("known_at"));
        }
        let ask = Ask {
            query: query(self.query)?,
            top_k: top_k(self.top_k)?,
            kinds: kinds(self.kinds)?,
            subject: self.subject.map(|text| subject(&text)).transpose()?,
            // Valid time may lie ahead: "what will still hold next week" is a fair question.
            as_of: instant(self.as_of.as_deref(), "as_of")?,
            known_at,
            time_range: self.time_range.map(|range| interval(&range)).transpose()?,
            context_tags: self.context_tags.map(context_tags).transpose()?,
            purpose: word(self.purpose, "purpose")?,
            task_id: word(self.task_id, "task_id")?,
            include_history: self.include_history,
            min_score: self.min_score.map(min_score).transpose()?,
            wait_for: self.wait_for.map(wait_for).transpose()?,
            explain: self.explain,
            said_before: Vec::new(),
            spoken_of: None,
        };
        Ok((owner, ask))
    }
}

/// # Errors
/// 400 `unknown_field` that names the first key outside `known`.
pub(crate) fn refuse_unknown(fields: &Map<String, Value>, known: &[&str]) -> Result<(), Problem> {
    let Some(name) = fields.keys().find(|name| !known.contains(&name.as_str())) else {
        return Ok(());
    };
    // A key is the caller's spelling; a long one is not a key but text in the wrong place.
    let shown: String = name.chars().take(40).collect();
    let detail = format!("not a field of this call; it takes {}", known.join(", "));
    Err(Problem::bad_request("unknown_field", detail).at(shown))
}

/// Takes one field out of the object; `null` is absent.
///
/// # Errors
/// 400 `invalid_field` with what is expected there, never with what was sent.
pub(crate) fn take<T: DeserializeOwned>(
    fields: &mut Map<String, Value>,
    name: &str,
    expected: &str,
) -> Result<Option<T>, Problem> {
    match fields.remove(name) {
        None | Some(Value::Null) => Ok(None),
        Some(value) => serde_json::from_value(value).map(Some).map_err(|_| {
            Problem::bad_request("invalid_field", format!("{name} must be {expected}")).at(name)
        }),
    }
}

fn query(query: Text) -> Result<Text, Problem> {
    if is_blank(query.expose()) {
        return Err(
            Problem::bad_request("missing_field", "query is required: what is asked").at("query"),
        );
    }
    let bytes = query.expose().len();
    if bytes > QUERY_BYTES_MAX {
        let detail = format!("the query has {bytes} bytes and may have {QUERY_BYTES_MAX}");
        return Err(Problem::bad_request("query_too_long", detail).at("query"));
    }
    Ok(query)
}

fn top_k(top_k: Option<u64>) -> Result<usize, Problem> {
    let top_k = top_k.unwrap_or(TOP_K_DEFAULT);
    if !(1..=TOP_K_MAX).contains(&top_k) {
        let detail = format!("top_k must be from 1 to {TOP_K_MAX}");
        return Err(Problem::bad_request("invalid_field", detail).at("top_k"));
    }
    Ok(top_k as usize)
}

fn kinds(kinds: Option<Vec<String>>) -> Result<Option<Vec<Kind>>, Problem> {
    let Some(codes) = kinds else { return Ok(None) };
    let mut known = Vec::new();
    for (index, code) in codes.iter().enumerate() {
        known.push(kind(code, &format!("kinds[{index}]"))?);
    }
    if known.is_empty() {
        return Err(Problem::bad_request(
            "invalid_field",
            "an empty list of kinds admits nothing; leave it out for all kinds",
        )
        .at("kinds"));
    }
    known.sort();
    known.dedup();
    Ok(Some(known))
}

/// # Errors
/// 400 `unknown_kind` with the kinds that exist.
pub(crate) fn kind(code: &str, field: &str) -> Result<Kind, Problem> {
    Kind::from_code(code).ok_or_else(|| {
        let known: Vec<&str> = Kind::ALL.iter().map(|kind| kind.code()).collect();
        let detail = format!("not a kind of memory; there are {}", known.join(", "));
        Problem::bad_request("unknown_kind", detail).at(field)
    })
}

fn subject(text: &str) -> Result<SubjectFilter, Problem> {
    let text = text.trim();
    if text.is_empty() || text.len() > WORD_BYTES_MAX {
        return Err(Problem::bad_request(
            "invalid_field",
            "subject must be self, father, mother, spouse, child, sibling, other(<who>), or any",
        )
        .at("subject"));
    }
    Ok(match text {
        "any" => SubjectFilter::Any,
        one => SubjectFilter::Only(Subject::parse(one)),
    })
}

/// # Errors
/// 400 `time_without_zone` or `invalid_time`.
pub(crate) fn instant(text: Option<&str>, field: &str) -> Result<Option<Timestamp>, Problem> {
    let Some(text) = text else { return Ok(None) };
    match Timestamp::parse(text) {
        Ok(at) => Ok(Some(at)),
        Err(error @ TimeError::NoZone) => {
            Err(Problem::bad_request("time_without_zone", format!("{error}")).at(field))
        }
        Err(error @ (TimeError::NotAnInstant | TimeError::EndsBeforeStart)) => {
            Err(Problem::bad_request("invalid_time", format!("{error}")).at(field))
        }
    }
}

fn interval(range: &TimeRange) -> Result<Interval, Problem> {
    let from = instant(Some(&range.from), "time_range.from")?.unwrap_or_default();
    let to = instant(range.to.as_deref(), "time_range.to")?;
    Interval::new(from, to)
        .map_err(|error| Problem::bad_request("invalid_time", format!("{error}")).at("time_range"))
}

fn context_tags(tags: Vec<String>) -> Result<Vec<String>, Problem> {
    let is_bad = |tag: &String| tag.trim().is_empty() || tag.len() > WORD_BYTES_MAX;
    if tags.len() > LIST_MAX || tags.iter().any(is_bad) {
        return Err(Problem::bad_request(
            "invalid_field",
            format!("at most {LIST_MAX} tags of 1 to {WORD_BYTES_MAX} bytes each"),
        )
        .at("context_tags"));
    }
    Ok(tags)
}

fn word(text: Option<String>, field: &str) -> Result<Option<String>, Problem> {
    match text {
        Some(text) if text.trim().is_empty() || text.len() > WORD_BYTES_MAX => {
            let detail = format!("{field} must have 1 to {WORD_BYTES_MAX} bytes");
            Err(Problem::bad_request("invalid_field", detail).at(field))
        }
        text => Ok(text),
    }
}

fn min_score(score: f64) -> Result<f64, Problem> {
    if (0.0..=1.0).contains(&score) {
        return Ok(score);
    }
    Err(
        Problem::bad_request("invalid_field", "min_score must be a number from 0 to 1")
            .at("min_score"),
    )
}

fn wait_for(field: WaitForField) -> Result<WaitFor, Problem> {
    let refused = || {
        Problem::bad_request(
            "invalid_field",
            "wait_for takes a token or a position as a write call gave it",
        )
        .at("wait_for")
    };
    let wait = match field {
        WaitForField::Position(position) => WaitFor::Position(position),
        WaitForField::Word(word) => match word.parse::<EventTag>() {
            Ok(event) => WaitFor::Event(event),
            Err(_) => WaitFor::Position(position(&word).ok_or_else(refused)?),
        },
    };
    match wait {
        WaitFor::Event(_) => Ok(wait),
        WaitFor::Position(position) => match position.topic {
            Topic::Conversation | Topic::Candidates | Topic::Commands | Topic::Memories => Ok(wait),
            Topic::Inbox
            | Topic::Quarantine
            | Topic::Embeddings
            | Topic::Accesses
            | Topic::Receipts
            | Topic::Schemas => Err(refused()),
        },
    }
}

/// Reads what [`Position`] prints: `commands-2@417`.
fn position(text: &str) -> Option<Position> {
    let (rest, offset) = text.rsplit_once('@')?;
    let (topic, partition) = rest.rsplit_once('-')?;
    Some(Position {
        topic: Topic::parse(topic)?,
        partition: partition.parse().ok()?,
        offset: offset.parse().ok()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(json: &str) -> Result<(Owner, Ask), Problem> {
        let Value::Object(fields) = serde_json::from_str(json).unwrap() else {
            panic!("an object")
        };
        let now = Timestamp::parse("2026-11-02T00:00:00Z").unwrap();
        RecallRequest::read(fields)?.validate(now)
    }

    fn check(json: &str, code: &str, field: &str) {
        let problem = read(json).expect_err(json);
        assert_eq!(
            (problem.code.as_str(), problem.field.as_deref()),
            (code, Some(field)),
            "{json}"
        );
        assert!(
            !format!("{problem:?}").contains("SECRET"),
            "{json} is repeated"
        );
    }

    #[test]
    fn a_problem_names_field_and_reason_and_repeats_nothing() {
        check(r#"{"query":"q"}"#, "missing_field", "owner");
        check(r#"{"owner":"*","query":"q"}"#, "invalid_owner", "owner");
        check(r#"{"owner":"h/*","query":"q"}"#, "invalid_owner", "owner");
        check(r#"{"owner":"h/p"}"#, "missing_field", "query");
        check(r#"{"owner":"h/p","query":"  "}"#, "missing_field", "query");
        check(
            r#"{"owner":"h/p","query":{"SECRET":1}}"#,
            "invalid_field",
            "query",
        );
        check(
            r#"{"owner":"h/p","query":"q","topk":3}"#,
            "unknown_field",
            "topk",
        );
        check(
            r#"{"owner":"h/p","query":"q","top_k":0}"#,
            "invalid_field",
            "top_k",
        );
        check(
            r#"{"owner":"h/p","query":"q","top_k":51}"#,
            "invalid_field",
            "top_k",
        );
        check(
            r#"{"owner":"h/p","query":"q","top_k":"SECRET"}"#,
            "invalid_field",
            "top_k",
        );
        check(
            r#"{"owner":"h/p","query":"q","kinds":["allergy","SECRET"]}"#,
            "unknown_kind",
            "kinds[1]",
        );
        check(
            r#"{"owner":"h/p","query":"q","kinds":[]}"#,
            "invalid_field",
            "kinds",
        );
        check(
            r#"{"owner":"h/p","query":"q","subject":""}"#,
            "invalid_field",
            "subject",
        );
        check(
            r#"{"owner":"h/p","query":"q","as_of":"2024-01-01"}"#,
            "time_without_zone",
            "as_of",
        );
        check(
            r#"{"owner":"h/p","query":"q","as_of":"SECRET"}"#,
            "invalid_time",
            "as_of",
        );
        check(
            r#"{"owner":"h/p","query":"q","known_at":"2027-01-01T00:00:00Z"}"#,
            "known_at_in_future",
            "known_at",
        );
        check(
            r#"{"owner":"h/p","query":"q","time_range":{"from":"2024-02-01T00:00:00Z","to":"2024-01-01T00:00:00Z"}}"#,
            "invalid_time",
            "time_range",
        );
        check(
            r#"{"owner":"h/p","query":"q","min_score":1.5}"#,
            "invalid_field",
            "min_score",
        );
        check(
            r#"{"owner":"h/p","query":"q","wait_for":"SECRET"}"#,
            "invalid_field",
            "wait_for",
        );
        check(
            r#"{"owner":"h/p","query":"q","wait_for":"inbox-0@3"}"#,
            "invalid_field",
            "wait_for",
        );
        check(
            &format!(r#"{{"owner":"h/p","query":"{}"}}"#, "x".repeat(8193)),
            "query_too_long",
            "query",
        );
    }

    #[test]
    fn the_defaults_are_those_of_the_interface() {
        let (owner, ask) = read(r#"{"owner":"h/p","query":"q"}"#).unwrap();
        assert_eq!(owner.to_string(), "h/patient/p");
        assert_eq!(ask, Ask::new("q"));
    }

    #[test]
    fn valid_time_may_lie_ahead() {
        let (_, ask) =
            read(r#"{"owner":"h/p","query":"q","as_of":"2030-01-01T00:00:00+08:00"}"#).unwrap();
        assert_eq!(ask.as_of.unwrap().to_string(), "2029-12-31T16:00:00Z");
    }

    #[test]
    fn a_write_is_awaited_by_token_or_position() {
        let tag = EventTag::from_bytes([7; 16]);
        let position = Position {
            topic: Topic::Commands,
            partition: 2,
            offset: 417,
        };
        for (field, expected) in [
            (format!(r#""{tag}""#), WaitFor::Event(tag)),
            (
                r#""commands-2@417""#.to_owned(),
                WaitFor::Position(position),
            ),
            (
                serde_json::to_string(&position).unwrap(),
                WaitFor::Position(position),
            ),
        ] {
            let json = format!(r#"{{"owner":"h/p","query":"q","wait_for":{field}}}"#);
            assert_eq!(read(&json).unwrap().1.wait_for, Some(expected), "{field}");
        }
    }
}
