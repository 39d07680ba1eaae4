//! What came of asking a model about one turn, in the form that is recorded: from the record alone the
//! same candidates come again.

use anamnesis_domain::input::{CandidateSet, ModelUse};
use anamnesis_domain::text::Text;

use crate::answer::{self, Answer, Fact, Repair, Unusable};

/// Begins each answer of a record that holds several (RFC 7464).
const SEPARATOR: char = '\u{1e}';
/// The end of an answer is missing; what was complete is used, and the rules speak for the rest.
const CUT_OFF: &str = "answer_cut_off";

/// Codes of what can be wrong with an answer that came.
pub const ANSWER_CODES: [&str; 3] = [
    Unusable::BrokenJson.code(),
    Unusable::WrongSchema.code(),
    CUT_OFF,
];

/// The answers of a model about one turn, and what they took.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Reply {
    model: String,
    prompt_version: String,
    /// One for each question, in order; `None` where none came.
    answers: Vec<Option<Text>>,
    taken: ModelUse,
    read: Answer,
}

impl Reply {
    /// `answers` are in the order of the questions. `taken.fallback` says why there is none, if there is
    /// none; why one that came cannot be used is found here.
    pub fn new(
        model: String,
        prompt_version: String,
        answers: Vec<Option<Text>>,
        taken: ModelUse,
    ) -> Self {
        let mut taken = taken;
        let mut all = Answer::default();
        for content in answers.iter().flatten() {
            match answer::read(content.expose()) {
                Ok(read) => {
                    if read.repairs.contains(&Repair::End) {
                        taken.fallback.get_or_insert(CUT_OFF.to_owned());
                    }
                    all.facts.extend(read.facts);
                    all.asks.extend(read.asks);
                    all.malformed += read.malformed;
                    all.repairs.extend(read.repairs);
                }
                Err(code) => {
                    taken.fallback.get_or_insert(code.code().to_owned());
                }
            }
        }
        Self {
            model,
            prompt_version,
            answers,
            taken,
            read: all,
        }
    }

    /// The reply that a candidates record holds; `None` when no model was asked.
    pub fn recorded(set: &CandidateSet) -> Option<Self> {
        let taken = set.model_use.clone()?;
        let answers = match &set.model_answer {
            None => Vec::new(),
            Some(text) => split(text.expose()),
        };
        let version = set.prompt_version.clone().unwrap_or_default();
        let model = if set.model_answer.is_some() {
            set.extractor.clone()
        } else {
            String::new()
        };
        Some(Self::new(model, version, answers, taken))
    }

    /// Why the rules spoke in place of the model, in whole or in part.
    pub fn fallback(&self) -> Option<&str> {
        self.taken.fallback.as_deref()
    }

    /// What was put right before the answers could be read.
    pub fn repairs(&self) -> &[Repair] {
        &self.read.repairs
    }

    pub(crate) fn facts(&self) -> &[Fact] {
        &self.read.facts
    }

    /// Sentences that ask to be kept, as the model judges; `None` when it has not judged all of the turn.
    pub(crate) fn asks(&self) -> Option<&[String]> {
        self.fallback().is_none().then_some(&self.read.asks)
    }

    pub(crate) fn malformed(&self) -> usize {
        self.read.malformed
    }

    pub(crate) fn model(&self) -> &str {
        &self.model
    }

    pub(crate) fn prompt_version(&self) -> &str {
        &self.prompt_version
    }

    /// Writes into a set what must be known to judge it later.
    pub(crate) fn record_in(&self, set: &mut CandidateSet) {
        set.model_answer = joined(&self.answers);
        set.extractor = if set.model_answer.is_some() {
            self.model.clone()
        } else {
            crate::extract::FALLBACK.to_owned()
        };
        set.prompt_version = Some(self.prompt_version.clone());
        set.model_use = Some(self.taken.clone());
    }
}

/// `None` when no answer came at all.
fn joined(answers: &[Option<Text>]) -> Option<Text> {
    answers.iter().flatten().next()?;
    if let [Some(only)] = answers {
        // A lone answer that begins like several must not be read as such.
        return Some(Text::new(only.expose().trim_start_matches(SEPARATOR)));
    }
    let mut text = String::new();
    for answer in answers {
        text.push(SEPARATOR);
        let answer = answer.as_ref().map_or("", Text::expose);
        text.extend(answer.chars().map(|c| if c == SEPARATOR { ' ' } else { c }));
    }
    Some(Text::new(text))
}

fn split(recorded: &str) -> Vec<Option<Text>> {
    match recorded.strip_prefix(SEPARATOR) {
        None => vec![Some(Text::from(recorded))],
        Some(rest) => rest
            .split(SEPARATOR)
            .map(|answer| (!answer.is_empty()).then(|| Text::from(answer)))
            .collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: &str = r#"{"asks_to_remember":["记一下"],"facts":[{"quote":"我对花生过敏","kind":"allergy","subject":"self","value":"花生","negated":false,"amount":null}]}"#;

    fn reply(answers: &[Option<&str>], fallback: Option<&str>) -> Reply {
        let taken = ModelUse {
            calls: 1,
            prompt_tokens: 10,
            completion_tokens: 5,
            fallback: fallback.map(str::to_owned),
        };
        let answers = answers.iter().map(|a| a.map(Text::from)).collect();
        Reply::new("m".to_owned(), "v1".to_owned(), answers, taken)
    }

    fn check(answers: &[Option<&str>], fallback: Option<&str>, facts: usize, code: Option<&str>) {
        let reply = reply(answers, fallback);
        assert_eq!(reply.facts().len(), facts, "{answers:?}");
        assert_eq!(reply.fallback(), code, "{answers:?}");
        assert_eq!(reply.asks().is_some(), code.is_none(), "{answers:?}");
    }

    #[test]
    fn one_answer_that_is_missing_or_broken_makes_a_fallback() {
        check(&[Some(ONE)], None, 1, None);
        check(&[Some(ONE), Some(ONE)], None, 2, None);
        check(&[Some(ONE), Some("no")], None, 1, Some("broken_json"));
        check(&[Some("[]"), Some(ONE)], None, 1, Some("wrong_schema"));
        check(&[Some(ONE), None], Some("timeout"), 1, Some("timeout"));
        check(&[], Some("no_budget"), 0, Some("no_budget"));
        check(
            &[Some(&ONE[..ONE.len() - 2])],
            None,
            1,
            Some("answer_cut_off"),
        );
    }

    #[test]
    fn the_recorded_form_gives_the_answers_back() {
        for answers in [
            vec![Some(ONE)],
            vec![Some("")],
            vec![Some(ONE), None, Some("broken {")],
            vec![None, Some(ONE)],
        ] {
            let text = joined(&reply(&answers, None).answers).unwrap();
            let expected: Vec<Option<Text>> = answers.iter().map(|a| a.map(Text::from)).collect();
            assert_eq!(split(text.expose()), expected);
        }
        assert_eq!(joined(&[None, None]), None);
        let hostile = joined(&[Some(Text::from("\u{1e}a\u{1e}b"))]).unwrap();
        assert_eq!(split(hostile.expose()).len(), 1);
        let two = joined(&[Some(Text::from("a\u{1e}b")), None]).unwrap();
        assert_eq!(split(two.expose()).len(), 2);
    }
}
