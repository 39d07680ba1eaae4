//! Which parts of a question stand for a kind or an attribute of memory, for a thing, for a person, and
//! which words are left to be looked for?
//!
//! A part that stands for something is never cut into tokens: 高血压 is no 血压, and 我妈妈有什么病 asks
//! for 病 alone. What is then compared is canonical, so it does not matter in which language anything
//! was said.

use std::ops::Range;

use anamnesis_domain::memory::{Entity, EntityKind, Kind};
use anamnesis_domain::tokens;

use crate::cues::{self, Cue};
use crate::understand::QueryReader;

/// A question taken apart.
#[derive(Clone, PartialEq, Debug, Default)]
pub(crate) struct Parts {
    /// Kinds and attributes that are alternatives: "my weight and my allergies" asks for either.
    pub kinds: Vec<Kind>,
    pub attributes: Vec<&'static str>,
    /// The words that said so.
    pub cues: Vec<String>,
    pub things: Vec<Thing>,
    /// What of the question stands for nothing.
    pub rest: Vec<String>,
    /// Whether a drug is asked for: what must not be given is then the answer.
    pub is_request: bool,
}

/// A thing that the question names: any of its entities is that thing.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Thing {
    pub words: String,
    /// By their place in the question's list.
    pub entities: Vec<usize>,
}

enum What {
    Cue(&'static Cue),
    Thing(Vec<usize>),
    Person,
}

/// A word behind which [`tokens::query_tokens`] never takes the stop words for telling ones.
const MARK: &str = "qqq";

/// What "What does my sister have?" asks for.
const HEALTH: &[Kind] = &[
    Kind::Condition,
    Kind::Allergy,
    Kind::Contraindication,
    Kind::Medication,
    Kind::Procedure,
];

impl Parts {
    pub(crate) fn of(question: &str, entities: &[Entity], reader: &dyn QueryReader) -> Self {
        let mut parts = Self::default();
        let mut rest = question.to_owned();
        for (range, what) in stretches(question, entities, reader) {
            let words = &question[range.clone()];
            match what {
                What::Cue(cue) => {
                    push_new(&mut parts.kinds, cue.kinds);
                    push_new(&mut parts.attributes, cue.attributes);
                    if !cue.kinds.is_empty() || !cue.attributes.is_empty() {
                        parts.cues.push(words.to_owned());
                    }
                }
                What::Thing(entities) => parts.things.push(Thing {
                    words: words.to_owned(),
                    entities,
                }),
                What::Person => (),
            }
            // Bytes for bytes: later ranges still point at their words.
            rest.replace_range(range.clone(), &" ".repeat(range.len()));
        }
        let left = |text: &str| {
            let mut left = tokens::query_tokens(&format!("{text} {MARK}"));
            left.retain(|token| token != MARK);
            left
        };
        let mut tokens = left(&rest);
        for token in &tokens {
            let kinds: Vec<Kind> = cues::kinds_of(token)
                .iter()
                .copied()
                .filter(|kind| is_alternative(*kind))
                .collect();
            if !kinds.is_empty() {
                parts.cues.push(token.clone());
                push_new(&mut parts.kinds, &kinds);
            }
        }
        tokens.retain(|token| !parts.cues.contains(token));
        let is_relative = reader
            .subject(question)
            .is_some_and(|who| who != anamnesis_domain::owner::Subject::Self_);
        let says_nothing = tokens.iter().all(|token| cues::is_light(token));
        if !parts.is_anything() && is_relative && says_nothing {
            push_new(&mut parts.kinds, HEALTH);
            parts.cues.extend(left(question));
        }
        if !parts.is_anything() {
            parts.rest = tokens::query_tokens(&rest);
            return parts;
        }
        tokens.retain(|token| !cues::is_light(token));
        parts.rest = tokens;
        let is_drug = |place: &usize| {
            entities
                .get(*place)
                .is_some_and(|e| e.kind == EntityKind::Drug)
        };
        let names_drug = parts
            .things
            .iter()
            .any(|thing| thing.entities.iter().any(is_drug));
        parts.is_request = names_drug && cues::is_request(question);
        let is_about_harm = [Kind::Allergy, Kind::Contraindication]
            .iter()
            .any(|kind| parts.kinds.contains(kind));
        if parts.is_request {
            push_new(
                &mut parts.kinds,
                &[Kind::Allergy, Kind::Contraindication, Kind::Medication],
            );
        } else if is_about_harm && !is_list(question) {
            // In 药物过敏 and "allergic to any medication" the drug says what the allergy is to.
            parts.kinds.retain(|kind| *kind != Kind::Medication);
        }
        parts
    }

    fn is_anything(&self) -> bool {
        !self.kinds.is_empty() || !self.attributes.is_empty() || !self.things.is_empty()
    }
}

/// Kinds that a question may ask for side by side. A policy or a lesson is another matter than the fact
/// that it is about.
pub(crate) fn is_alternative(kind: Kind) -> bool {
    match kind {
        Kind::Allergy
        | Kind::Contraindication
        | Kind::Medication
        | Kind::Condition
        | Kind::Procedure
        | Kind::Measurement
        | Kind::Event => true,
        Kind::Preference
        | Kind::Constraint
        | Kind::Fact
        | Kind::Policy
        | Kind::Lesson
        | Kind::Episode => false,
    }
}

fn push_new<T: Copy + PartialEq>(into: &mut Vec<T>, more: &[T]) {
    for one in more {
        if !into.contains(one) {
            into.push(*one);
        }
    }
}

/// 药和过敏 are two things that are asked for.
fn is_list(question: &str) -> bool {
    ["和", "跟", "与", "、", "以及", "还有", " and ", "&", ","]
        .iter()
        .any(|word| question.contains(word))
}

/// "Medications" and "food" name a sort of things and no thing.
fn is_general(entity: &Entity) -> bool {
    matches!(
        entity.name.expose(),
        "drug" | "food" | "any" | "environment"
    )
}

/// The longest at each place: 过敏性鼻炎 is a disease and no 过敏.
fn stretches(
    question: &str,
    entities: &[Entity],
    reader: &dyn QueryReader,
) -> Vec<(Range<usize>, What)> {
    let mut all: Vec<(Range<usize>, What)> = cues::find(question)
        .into_iter()
        .map(|(range, cue)| (range, What::Cue(cue)))
        .collect();
    for range in reader.things(question) {
        let named = reader.entities(&question[range.clone()]);
        let places: Vec<usize> = entities
            .iter()
            .enumerate()
            .filter(|(_, entity)| named.contains(entity) && !is_general(entity))
            .map(|(place, _)| place)
            .collect();
        if !places.is_empty() {
            all.push((range, What::Thing(places)));
        }
    }
    let persons = reader.persons(question);
    all.extend(persons.into_iter().map(|range| (range, What::Person)));
    // Stable: of equally long ones the cue stays.
    all.sort_by_key(|(range, _)| std::cmp::Reverse(range.len()));
    let mut taken: Vec<(Range<usize>, What)> = Vec::new();
    for (range, what) in all {
        let is_free = taken
            .iter()
            .all(|(other, _)| range.end <= other.start || other.end <= range.start);
        if is_free {
            taken.push((range, what));
        }
    }
    taken.sort_by_key(|(range, _)| range.start);
    taken
}
