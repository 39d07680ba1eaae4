//! What did a model say, as far as it can be read?
//!
//! Broken JSON is repaired where the repair cannot change what was said: a fence or words around it,
//! a comma too many, a line break inside a string, an end that is missing (complete entries are kept).
//! Whatever else is broken is a code, never an empty list.

use anamnesis_domain::memory::Kind;
use serde_json::Value;

/// More facts than one piece of a turn states.
const FACTS_MAX: usize = 100;
/// Deeper than the schema by far.
const DEPTH_MAX: usize = 64;
/// Longest word of an entry. Quotes are searched for in the turn.
const WORDS_BYTES_MAX: usize = 4_000;

/// One thing that a model says that a turn states. Nothing in it is believed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Fact {
    pub(crate) quote: String,
    pub(crate) kind: Kind,
    pub(crate) subject: Whom,
    pub(crate) value: Option<String>,
    pub(crate) negated: bool,
    pub(crate) amount: Option<String>,
}

/// Whom a model says that a fact is about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Whom {
    Self_,
    Father,
    Mother,
    Spouse,
    Child,
    Sibling,
    Other,
}

/// What was wrong with an answer and was put right.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Repair {
    /// A code fence or words around the JSON.
    Surroundings,
    /// A comma before a closing bracket.
    Comma,
    /// A control character inside a string.
    Control,
    /// The end is missing; the entries that are complete were kept.
    End,
}

impl Repair {
    pub const ALL: [Self; 4] = [Self::Surroundings, Self::Comma, Self::Control, Self::End];

    pub const fn code(self) -> &'static str {
        match self {
            Self::Surroundings => "surroundings",
            Self::Comma => "comma",
            Self::Control => "control_character",
            Self::End => "end",
        }
    }
}

/// Why an answer cannot be used.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Unusable {
    /// No JSON, and none after the repairs.
    BrokenJson,
    /// JSON of another form.
    WrongSchema,
}

impl Unusable {
    pub(crate) const fn code(self) -> &'static str {
        match self {
            Self::BrokenJson => "broken_json",
            Self::WrongSchema => "wrong_schema",
        }
    }
}

/// An answer as it was read.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Answer {
    pub(crate) facts: Vec<Fact>,
    /// Sentences that ask to write something down.
    pub(crate) asks: Vec<String>,
    /// Entries that are no facts.
    pub(crate) malformed: usize,
    pub(crate) repairs: Vec<Repair>,
}

pub(crate) fn read(content: &str) -> Result<Answer, Unusable> {
    let mut repairs = Vec::new();
    let value = json(content, &mut repairs).ok_or(Unusable::BrokenJson)?;
    let object = value.as_object().ok_or(Unusable::WrongSchema)?;
    // An end that is missing before the first entry leaves nothing that could be kept.
    let is_cut = repairs.contains(&Repair::End);
    let Some(listed) = object.get("facts").and_then(Value::as_array) else {
        return Err(if is_cut {
            Unusable::BrokenJson
        } else {
            Unusable::WrongSchema
        });
    };
    let mut answer = Answer {
        repairs,
        ..Answer::default()
    };
    for entry in listed {
        match fact(entry) {
            Some(fact) if answer.facts.len() < FACTS_MAX => answer.facts.push(fact),
            Some(_) | None => answer.malformed += 1,
        }
    }
    match object.get("asks_to_remember") {
        None | Some(Value::Null) => (),
        Some(Value::Array(sentences)) => {
            for sentence in sentences.iter().take(FACTS_MAX) {
                match words(sentence) {
                    Some(words) => answer.asks.push(words),
                    None => answer.malformed += 1,
                }
            }
        }
        Some(_) => answer.malformed += 1,
    }
    if is_cut && answer.facts.is_empty() {
        return Err(Unusable::BrokenJson);
    }
    Ok(answer)
}

fn fact(entry: &Value) -> Option<Fact> {
    let entry = entry.as_object()?;
    let optional = |name: &str| match entry.get(name) {
        None | Some(Value::Null) => Some(None),
        Some(value) => words(value).map(|words| Some(words).filter(|w| !w.trim().is_empty())),
    };
    Some(Fact {
        quote: words(entry.get("quote")?)?,
        kind: Kind::from_code(entry.get("kind")?.as_str()?).filter(|k| *k != Kind::Episode)?,
        subject: whom(entry.get("subject")?.as_str()?)?,
        value: optional("value")?,
        negated: entry.get("negated")?.as_bool()?,
        amount: optional("amount")?,
    })
}

fn words(value: &Value) -> Option<String> {
    let words = value.as_str()?;
    (words.len() <= WORDS_BYTES_MAX).then(|| words.to_owned())
}

fn whom(code: &str) -> Option<Whom> {
    Some(match code {
        "self" => Whom::Self_,
        "father" => Whom::Father,
        "mother" => Whom::Mother,
        "spouse" => Whom::Spouse,
        "child" => Whom::Child,
        "sibling" => Whom::Sibling,
        "other" => Whom::Other,
        _ => return None,
    })
}

/// The JSON in an answer, repaired where that is needed.
fn json(content: &str, repairs: &mut Vec<Repair>) -> Option<Value> {
    if let Ok(value) = serde_json::from_str(content) {
        return Some(value);
    }
    let body = without_surroundings(content);
    let mended = mend(body)?;
    if body.len() != content.trim().len() || mended.has_more {
        repairs.push(Repair::Surroundings);
    }
    repairs.extend(mended.repairs);
    serde_json::from_str(&mended.text).ok()
}

/// From the first brace on, without what a model thought before it answered.
fn without_surroundings(content: &str) -> &str {
    let after_thoughts = content
        .rfind("</think>")
        .map_or(content, |at| &content[at + "</think>".len()..]);
    let at = after_thoughts.find('{').unwrap_or(0);
    after_thoughts[at..].trim()
}

struct Mended {
    text: String,
    repairs: Vec<Repair>,
    /// Something follows the JSON.
    has_more: bool,
}

/// Reads one object, token by token. `None` when it is broken in another way.
fn mend(body: &str) -> Option<Mended> {
    let mut text = String::with_capacity(body.len());
    let mut open: Vec<char> = Vec::new();
    // Up to where the text is whole, and what was open there: after each entry of a list.
    let mut whole: Option<(usize, Vec<char>)> = None;
    let mut repairs = Vec::new();
    let mut note = |repair: Repair| {
        if !repairs.contains(&repair) {
            repairs.push(repair);
        }
    };
    let mut in_string = false;
    let mut is_escaped = false;
    for (at, c) in body.char_indices() {
        if in_string {
            match c {
                _ if is_escaped => is_escaped = false,
                '\\' => is_escaped = true,
                '"' => in_string = false,
                '\n' | '\r' | '\t' => {
                    note(Repair::Control);
                    text.push_str(match c {
                        '\n' => "\\n",
                        '\r' => "\\r",
                        _ => "\\t",
                    });
                    continue;
                }
                _ => (),
            }
            text.push(c);
            if !in_string && open.last() == Some(&']') {
                whole = Some((text.len(), open.clone()));
            }
            continue;
        }
        match c {
            '"' => in_string = true,
            '{' => open.push('}'),
            '[' => open.push(']'),
            '}' | ']' => {
                let before = text.trim_end();
                if before.ends_with(',') {
                    note(Repair::Comma);
                    text.truncate(before.len() - 1);
                }
                if open.pop() != Some(c) {
                    return None;
                }
            }
            _ => (),
        }
        if open.len() > DEPTH_MAX {
            return None;
        }
        text.push(c);
        if matches!(c, '}' | ']') {
            if open.is_empty() {
                let has_more = !body[at + c.len_utf8()..].trim().is_empty();
                return Some(Mended {
                    text,
                    repairs,
                    has_more,
                });
            }
            if open.last() == Some(&']') {
                whole = Some((text.len(), open.clone()));
            }
        }
    }
    let (end, open) = whole?;
    text.truncate(end);
    text.extend(open.iter().rev());
    repairs.push(Repair::End);
    Some(Mended {
        text,
        repairs,
        has_more: false,
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const ONE: &str = r#"{"quote":"我对花生过敏","kind":"allergy","subject":"self","value":"花生","negated":false,"amount":null}"#;

    fn check(content: &str, expected: &str) {
        let read = match read(content) {
            Ok(answer) => {
                let repairs: Vec<&str> = answer.repairs.iter().map(|r| r.code()).collect();
                let mut words = vec![format!("{}", answer.facts.len())];
                words.extend((answer.malformed > 0).then(|| format!("-{}", answer.malformed)));
                words.extend(repairs.into_iter().map(str::to_owned));
                words.join(" ")
            }
            Err(code) => code.code().to_owned(),
        };
        assert_eq!(read, expected, "{content}");
    }

    #[test]
    fn a_plain_answer_is_read() {
        check(
            &format!(r#"{{"asks_to_remember":[],"facts":[{ONE}]}}"#),
            "1",
        );
        check(r#"{"facts":[]}"#, "0");
        let asks = read(r#"{"asks_to_remember":["记一下"],"facts":[]}"#).unwrap();
        assert_eq!(asks.asks, ["记一下"]);
    }

    #[test]
    fn what_cannot_change_the_meaning_is_repaired() {
        check(
            &format!("```json\n{{\"facts\":[{ONE}]}}\n```"),
            "1 surroundings",
        );
        check(
            &format!("Sure! Here it is: {{\"facts\":[{ONE}]}}"),
            "1 surroundings",
        );
        check(
            &format!("{{\"facts\":[{ONE}]}} I hope this helps."),
            "1 surroundings",
        );
        check(
            &format!("<think>{{hm}}</think>\n{{\"facts\":[{ONE}]}}"),
            "1 surroundings",
        );
        check(&format!("{{\"facts\":[{ONE},],}}"), "1 comma");
        check(
            &format!("{{\"facts\":[{},]}}", ONE.replace("我对", "我\n对")),
            "1 control_character comma",
        );
        check(&format!("{{\"facts\":[{ONE},{{\"quote\":\"我"), "1 end");
        check(&format!("{{\"facts\":[{ONE}"), "1 end");
        check(
            &format!("```json\n{{\"facts\":[{ONE}"),
            "1 surroundings end",
        );
    }

    #[test]
    fn what_stays_broken_is_a_code_and_never_an_empty_list() {
        for content in [
            "",
            "I cannot help with that.",
            r#"{"facts": [{"#,
            r#"{"facts": ["#,
            r#"{"asks_to_remember":["记一下"],"facts":[{"quote""#,
            r#"{'facts': []}"#,
            r#"{"facts": [}]"#,
            "{{{{{{{{",
            r#"{"facts": [] "more": 1}"#,
        ] {
            check(content, "broken_json");
        }
        check(
            &format!(r#"{{"facts":{}"#, "[".repeat(100_000)),
            "broken_json",
        );
        for content in [
            "[]",
            "17",
            r#"{"facts":{}}"#,
            r#"{"claims":[]}"#,
            r#""facts""#,
            "null",
        ] {
            check(content, "wrong_schema");
        }
    }

    #[test]
    fn an_entry_that_is_no_fact_is_counted() {
        for (from, to) in [
            (r#""allergy""#, r#""allergies""#),
            (r#""allergy""#, r#""episode""#),
            (r#""self""#, r#""dog""#),
            ("false", r#""no""#),
            (r#""花生""#, "7"),
            (r#""quote""#, r#""quotation""#),
        ] {
            check(
                &format!(r#"{{"facts":[{}]}}"#, ONE.replace(from, to)),
                "0 -1",
            );
        }
        check(r#"{"facts":[null,3,[]],"asks_to_remember":[1]}"#, "0 -4");
        check(r#"{"facts":[],"asks_to_remember":"yes"}"#, "0 -1");
        let many = vec![ONE; 120].join(",");
        check(&format!(r#"{{"facts":[{many}]}}"#), "100 -20");
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(300))]

        #[test]
        fn an_answer_cut_anywhere_keeps_what_is_complete(at in 0_usize..2_000) {
            let whole = format!(r#"{{"asks_to_remember":["a"],"facts":[{}]}}"#, [ONE; 5].join(","));
            let at = at.min(whole.len());
            let cut: String = whole.char_indices().take_while(|(i, _)| *i < at).map(|(_, c)| c).collect();
            match read(&cut) {
                Ok(answer) => prop_assert!(
                    !answer.facts.is_empty() && answer.facts.iter().all(|f| f.quote == "我对花生过敏")
                ),
                Err(code) => prop_assert_eq!(code, Unusable::BrokenJson),
            }
        }

        #[test]
        fn no_answer_panics(content in ".{0,300}") {
            let _ = read(&content);
            let _ = read(&format!("{{\"facts\":[{content}"));
        }
    }
}
