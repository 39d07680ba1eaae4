//! Recall's questions, read with the extractor's lexicons: one vocabulary for what is stored and what
//! is asked.

use std::ops::Range;

use anamnesis_domain::memory::Entity;
use anamnesis_domain::owner::Subject;
use anamnesis_recall::understand::QueryReader;

pub(crate) struct LexiconReader;

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
