//! Recall's questions and explicit writes, read with the extractor's lexicons and rules: one vocabulary
//! for what is said, stored and asked.

use std::ops::Range;

use anamnesis_domain::input::Turn;
use anamnesis_domain::memory::{Claim, Entity};
use anamnesis_domain::owner::Subject;
use anamnesis_intake::service::StatementReader;
use anamnesis_recall::understand::QueryReader;

pub(crate) struct LexiconReader;

/// Explicit writes, read with the extractor's rules.
pub(crate) struct RuleReader;

impl StatementReader for RuleReader {
    fn read(&self, turn: &Turn) -> Vec<Claim> {
        anamnesis_extractor::statements(turn)
    }
}

impl QueryReader for LexiconReader {
    fn entities(&self, text: &str) -> Vec<Entity> {
        anamnesis_extractor::query_entities(text)
    }

    fn subject(&self, text: &str) -> Option<Subject> {
        anamnesis_extractor::query_subject(text)
    }

    fn things(&self, text: &str) -> Vec<Range<usize>> {
        anamnesis_extractor::query_things(text)
    }

    fn persons(&self, text: &str) -> Vec<Range<usize>> {
        anamnesis_extractor::query_persons(text)
    }
}
