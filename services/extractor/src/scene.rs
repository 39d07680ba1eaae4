//! What a pattern sees of one clause, and what it may find there.

use std::ops::Range;

use anamnesis_domain::memory::{Entity, EntityKind, Intent, Kind, Polarity, Quantity};
use anamnesis_domain::owner::Subject;
use anamnesis_domain::text::Text;
use anamnesis_domain::time::Timestamp;

use crate::answer::Whom;
use crate::dates::{Clock, Direction, Moment, moments};
use crate::lexicon::{Class, Mention, mentions};
use crate::modality::Modality;
use crate::negation::{is_negated, negators};
use crate::quantity::{Amount, amounts};
use crate::subject::{Person, persons};

/// One clause, read once, and what was named before it.
pub(crate) struct Scene<'a> {
    pub(crate) text: &'a str,
    pub(crate) mentions: Vec<Mention>,
    pub(crate) negators: Vec<Range<usize>>,
    pub(crate) amounts: Vec<Amount>,
    pub(crate) persons: Vec<Person>,
    pub(crate) modality: Modality,
    pub(crate) clock: Clock,
    pub(crate) known: &'a Known,
}

/// What the conversation has named so far, for statements that leave it out ("改成 10 mg", "其实我不过敏
/// 了").
#[derive(Clone, Default, Debug)]
pub(crate) struct Known {
    /// Last drug named, and its last dose.
    pub(crate) drug: Option<(String, Option<Quantity>)>,
    /// Allergies stated, latest last.
    pub(crate) allergies: Vec<(Vec<Subject>, String, Polarity)>,
    pub(crate) condition: Option<String>,
    /// The last relative named, for 他 and "she".
    pub(crate) relative: Option<Subject>,
}

impl<'a> Scene<'a> {
    pub(crate) fn read(text: &'a str, modality: Modality, clock: Clock, known: &'a Known) -> Self {
        let mentions = mentions(text);
        Self {
            negators: negators(text, &mentions),
            amounts: amounts(text),
            persons: persons(text),
            mentions,
            text,
            modality,
            clock,
            known,
        }
    }

    /// Whether the words before `end` negate what stands at `end`.
    pub(crate) fn negated_before(&self, end: usize) -> bool {
        is_negated(self.text, &self.negators, 0..end)
    }

    pub(crate) fn polarity_before(&self, end: usize) -> Polarity {
        if self.negated_before(end) {
            Polarity::Negative
        } else {
            Polarity::Positive
        }
    }

    /// Assert, unless a word says that the world or the record changed.
    pub(crate) fn intent(&self) -> Intent {
        if self.modality.corrects {
            Intent::Correct
        } else if self.modality.changes {
            Intent::Change
        } else {
            Intent::Assert
        }
    }

    pub(crate) fn of_class(&self, class: Class) -> impl Iterator<Item = &Mention> {
        self.mentions
            .iter()
            .filter(move |mention| mention.class == class)
    }

    pub(crate) fn moments(&self, direction: Direction) -> Vec<Moment> {
        moments(self.text, self.clock, direction)
    }

    pub(crate) fn is_chinese(&self) -> bool {
        crate::fold::language(self.text) == "zh"
    }
}

/// A plain assertion becomes a change where the words around it say so; a correction stays one.
pub(crate) fn changed_if(intent: Intent, changes: bool) -> Intent {
    if changes && intent == Intent::Assert {
        Intent::Change
    } else {
        intent
    }
}

/// When a finding holds.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) enum Holds {
    /// A state: from the date said in the clause, else from the moment of speaking.
    #[default]
    State,
    /// Given by the pattern.
    Given {
        from: Timestamp,
        to: Option<Timestamp>,
    },
}

/// What a pattern found. Places are bytes of the clause's folded text.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Found {
    pub(crate) kind: Kind,
    pub(crate) attribute: Option<&'static str>,
    pub(crate) value: Option<String>,
    pub(crate) polarity: Polarity,
    pub(crate) intent: Intent,
    pub(crate) quantity: Option<Quantity>,
    pub(crate) schedule: Option<String>,
    /// Where the predicate stands: its subject is the person named before it.
    pub(crate) anchor: usize,
    /// Given by the pattern where the predicate's place does not tell.
    pub(crate) subjects: Option<Vec<Subject>>,
    pub(crate) entities: Vec<Entity>,
    pub(crate) holds: Holds,
    /// Thousandths added to the kind's stability.
    pub(crate) stability: i32,
    /// Thousandths of confidence at most.
    pub(crate) confidence_max: u16,
    /// Denied for all time: "I've never had a colonoscopy", 没做过胃镜.
    pub(crate) never: bool,
    /// Whom a model says that it is about; `None` for what the rules found themselves.
    pub(crate) offered: Option<Whom>,
}

impl Found {
    pub(crate) fn new(
        kind: Kind,
        attribute: &'static str,
        value: impl Into<String>,
        anchor: usize,
    ) -> Self {
        Self {
            kind,
            attribute: Some(attribute),
            value: Some(value.into()),
            polarity: Polarity::Positive,
            intent: Intent::Assert,
            quantity: None,
            schedule: None,
            anchor,
            subjects: None,
            entities: Vec::new(),
            holds: Holds::State,
            stability: 0,
            confidence_max: 1000,
            never: false,
            offered: None,
        }
    }

    pub(crate) fn polarity(mut self, polarity: Polarity) -> Self {
        self.polarity = polarity;
        self
    }

    pub(crate) fn intent(mut self, intent: Intent) -> Self {
        self.intent = intent;
        self
    }

    pub(crate) fn entity(mut self, kind: EntityKind, name: &str) -> Self {
        self.entities.push(Entity {
            kind,
            name: Text::new(name),
        });
        self
    }
}

/// Items of a list in one slot: `花生、芒果和海鲜`, `peanuts, mango and shellfish`.
pub(crate) fn items(slot: &str) -> Vec<&str> {
    const JOINTS: [&str; 20] = [
        "、",
        ",",
        ";",
        " and ",
        " or ",
        " & ",
        " as well as ",
        " plus ",
        " nor ",
        "以及",
        "还有",
        "和",
        "及",
        "与",
        "跟",
        "或者",
        "或",
        "外加",
        "and ",
        " also ",
    ];
    let mut parts = vec![slot];
    for joint in JOINTS {
        parts = parts
            .into_iter()
            .flat_map(|part| part.split(joint))
            .collect();
    }
    parts
        .into_iter()
        .map(str::trim)
        .filter(|part| !part.is_empty())
        .collect()
}

/// A name that nobody knows, in a comparable form: no marks around it, no article, no plural.
pub(crate) fn open_name(phrase: &str) -> Option<String> {
    let phrase = crate::lexicon::strip_leading(phrase);
    let phrase = phrase.trim_matches(|c: char| !(c.is_alphanumeric() || c == ')'));
    let words: Vec<&str> = phrase.split_whitespace().collect();
    let is_name = !words.is_empty() && words.len() <= 4 && phrase.chars().count() <= 32;
    if !is_name || !phrase.chars().any(char::is_alphabetic) {
        return None;
    }
    let mut name = words.join(" ");
    if let Some(last) = words.last() {
        let single = crate::lexicon::singular(last);
        name.truncate(name.len() - last.len());
        name.push_str(&single);
    }
    Some(name)
}
