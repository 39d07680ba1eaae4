//! Does a turn state what a model says that it states?
//!
//! Nothing that a model says is believed. Its quote is looked for in the speaker's own words; the clause
//! in which it stands was read by the same rules as every other, and only what agrees with that reading
//! becomes a finding: the thing must be named, its kind said, its polarity, number and person the same.
//! The finding then goes the way of all findings: mood, dates, hedges, text and quote are those of the
//! clause and never the model's.

use std::ops::Range;

use anamnesis_domain::attribute::Attributes;
use anamnesis_domain::input::RejectCode;
use anamnesis_domain::memory::{EntityKind, Kind, Polarity, Quantity};
use anamnesis_domain::owner::Subject;

use crate::answer::{Fact, Whom};
use crate::fold::{fold, is_han};
use crate::lexicon::{Class, lookup, mentions};
use crate::negation::{is_negated, negators};
use crate::pattern::fixed;
use crate::quantity::amounts;
use crate::reading::Heard;
use crate::scene::{Found, Scene, changed_if, open_name};
use crate::subject::persons;

/// A fact that a model offers for a turn.
#[derive(Clone, Debug)]
pub(crate) struct Offer {
    pub(crate) fact: Fact,
    /// Where its quote stands in the turn, in bytes.
    pub(crate) places: Vec<Range<usize>>,
    pub(crate) outcome: Option<Outcome>,
}

/// What has become of an offer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Outcome {
    /// It is a finding now, and is judged like all.
    Heard,
    /// The rules have read it too, and said what is to be said about it.
    SameAsRules,
    Refused(RejectCode),
}

/// A fact of a kind that is never evicted, and that no rule has read, waits for a person.
const PROTECTED_CONFIDENCE_MAX: u16 = 800;
/// A model reads; it was not there.
const CONFIDENCE_MAX: u16 = 900;
/// A quote that stands everywhere proves nothing more by its ninth place.
const PLACES_MAX: usize = 8;

// The kind itself must be said: "I ate peanuts" is no allergy.
fixed!(
    ALLERGY,
    r"过敏|不耐受|皮试|[起出长]疹|皮疹|风团|荨麻疹|休克|喉头|\ballerg|\banaphyla|\bintoleran|\breact(?:s|ed|ions?)?\b|\bhives\b|\brash|\bswell|\bsensitiv"
);
fixed!(
    FORBIDDEN,
    r"禁|忌|避免|[不别勿](?:能|可|宜|得|许|要|让|用|给)|\b(?:contraindicat\w+|avoid\w*|can't|cannot|can not|must not|mustn't|should not|shouldn't|not allowed|not supposed|never|don't|do not)\b"
);
fixed!(
    TAKES,
    r"[吃服用打喷涂滴贴吸输停换]|注射|开了|处方|剂量|\b(?:take[sn]?|taking|took|on|us(?:e[sd]?|ing)|inject\w*|prescri\w+|start\w*|stop\w*|switch\w*|dos(?:e[sd]?|age)|tablets?|pills?|capsules?|drops?|inhal\w+|off)\b"
);
fixed!(
    SUFFERS,
    r"有|患|得了|得过|诊断|确诊|查出|病史|发作|复发|犯|加重|控制|治疗|好了|治好|痊愈|\b(?:have|has|had|having|got|suffer\w*|diagnos\w+|history|with|develop\w*|resolved|cured|treat\w*)\b"
);
fixed!(
    OPERATES,
    r"手术|切除|移植|置换|植入|支架|透析|化疗|放疗|做[了过完]|[术拆]后|\b(?:surgery|operat\w+|procedure|remov\w+|transplant\w*|replac\w+|implant\w*|\w+ectomy|\w+plasty|stent\w*|dialysis|chemo\w*|radiat\w+|had|underwent)\b"
);
// Ends what it stands beside, without a negator.
fixed!(
    ENDED,
    r"停(?:了|掉|用|药|服|止|吃)|戒(?:了|掉|烟|酒)|取消|痊愈|治好|治愈|好了|解除|排除|\b(?:stopped|quit|gave up|discontinued|c[ao]me off|resolved|cured|outgr[eo]wn?|used to)\b"
);

impl Offer {
    pub(crate) fn refuse(&mut self, code: RejectCode) {
        self.outcome = Some(Outcome::Refused(code));
    }

    /// Whether the quote stands, at least in part, in this part of the turn.
    pub(crate) fn touches(&self, range: &Range<usize>) -> bool {
        self.places
            .iter()
            .any(|place| place.start < range.end && range.start < place.end)
    }

    /// Kinds whose meaning is in a value, and the words that may be one.
    fn classes(&self) -> Option<&'static [Class]> {
        match self.fact.kind {
            Kind::Allergy | Kind::Contraindication => {
                Some(&[Class::Allergen, Class::Drug, Class::Food, Class::Test])
            }
            Kind::Medication => Some(&[Class::Drug]),
            Kind::Condition => Some(&[Class::Condition, Class::Symptom]),
            Kind::Procedure => Some(&[Class::Procedure]),
            Kind::Measurement => Some(&[Class::Test]),
            Kind::Preference
            | Kind::Event
            | Kind::Constraint
            | Kind::Fact
            | Kind::Policy
            | Kind::Lesson
            | Kind::Episode => None,
        }
    }

    /// Whether it states a sentence as it is, without a value.
    pub(crate) fn is_free(&self) -> bool {
        self.classes().is_none()
    }

    /// The value's canonical name, if it is known.
    fn known_value(&self) -> Option<&'static str> {
        let value = fold(self.fact.value.as_deref()?);
        lookup(&value, self.classes()?)
    }

    /// What the rules found of the same thing in the same sentence decides.
    pub(crate) fn judged_by(&self, heard: &[(usize, Heard)]) -> Option<Outcome> {
        let value = fold(self.fact.value.as_deref()?);
        let known = self.known_value();
        let is_same_thing = |found: &Found| {
            let is_value = found.value.as_deref().is_some_and(|v| {
                known == Some(v) || v == value || open_name(&value).as_deref() == Some(v)
            });
            is_value && found.kind == self.fact.kind
        };
        let of_rules = heard.iter().map(|(_, h)| h);
        let same: Vec<&Heard> = of_rules
            .filter(|h| h.found.offered.is_none() && is_same_thing(&h.found))
            .collect();
        let first = same.first()?;
        // They have said already why it cannot be kept.
        if same.iter().all(|h| h.refused.is_some()) {
            return Some(Outcome::SameAsRules);
        }
        let polarity = |h: &Heard| h.found.polarity == self.polarity() || self.is_forbidden();
        let person = |h: &Heard| is_same_person(self.fact.subject, &h.subject);
        let amount = |h: &Heard| match self.amount() {
            Amount::None => true,
            Amount::Unreadable => false,
            Amount::Of(amount) => h.found.quantity.as_ref() == Some(&amount),
        };
        if same.iter().any(|h| polarity(h) && person(h) && amount(h)) {
            return Some(Outcome::SameAsRules);
        }
        Some(Outcome::Refused(if !polarity(first) {
            RejectCode::NegationChanged
        } else if !person(first) {
            RejectCode::OtherSpeaker
        } else {
            RejectCode::NumberChanged
        }))
    }

    fn is_forbidden(&self) -> bool {
        self.fact.kind == Kind::Contraindication
    }

    fn polarity(&self) -> Polarity {
        if self.fact.negated {
            Polarity::Negative
        } else {
            Polarity::Positive
        }
    }

    fn amount(&self) -> Amount {
        let Some(written) = &self.fact.amount else {
            return Amount::None;
        };
        match amounts(&fold(written)).as_slice() {
            [amount] if !amount.is_range => Amount::Of(amount.quantity.clone()),
            [] | [_, ..] => Amount::Unreadable,
        }
    }

    /// Where the clause names the value, and under which name it is kept.
    fn named_in(&self, scene: &Scene<'_>) -> Option<(usize, String)> {
        let value = fold(self.fact.value.as_deref()?);
        let value = value.trim();
        if let Some(known) = self.known_value() {
            let mention = scene.mentions.iter().find(|m| m.name == known);
            if let Some(mention) = mention {
                return Some((mention.start, known.to_owned()));
            }
        }
        let at = find_word(scene.text, value)?;
        if let Some(known) = self.known_value() {
            return Some((at, known.to_owned()));
        }
        // 我 in 我对花生过敏 names nothing that one could be allergic to.
        let is_name = value.chars().filter(|c| c.is_alphanumeric()).count() >= 2
            && persons(value).is_empty()
            && negators(value, &mentions(value)).is_empty()
            && amounts(value).is_empty();
        is_name.then(|| open_name(value)).flatten().map(|n| (at, n))
    }

    /// The finding that a clause makes of the offer. `of_rules` is what the rules found in this clause;
    /// `None` when the clause does not name the value.
    pub(crate) fn found_in(
        &self,
        scene: &Scene<'_>,
        of_rules: &[&Heard],
    ) -> Option<Result<Found, RejectCode>> {
        let (at, name) = self.named_in(scene)?;
        Some(self.check(scene, of_rules, at, name))
    }

    fn check(
        &self,
        scene: &Scene<'_>,
        of_rules: &[&Heard],
        at: usize,
        name: String,
    ) -> Result<Found, RejectCode> {
        let fact = &self.fact;
        // The rules have read this very statement, and there is no such thing in it.
        let is_read_otherwise = of_rules.iter().any(|h| h.found.kind == fact.kind);
        if !self.is_kind_said(scene.text) || is_read_otherwise {
            return Err(RejectCode::Unconfirmed);
        }
        let is_denied = is_denied(scene);
        let polarity = if self.is_forbidden() {
            if !FORBIDDEN.is_match(scene.text) {
                return Err(RejectCode::NegationChanged);
            }
            Polarity::Positive
        } else {
            if is_denied != fact.negated {
                return Err(RejectCode::NegationChanged);
            }
            self.polarity()
        };
        let quantity = match self.amount() {
            Amount::None if fact.kind == Kind::Measurement => {
                return Err(RejectCode::NumberChanged);
            }
            Amount::None => None,
            Amount::Unreadable => return Err(RejectCode::NumberChanged),
            Amount::Of(amount) => {
                let is_said = scene
                    .amounts
                    .iter()
                    .any(|said| !said.is_range && said.quantity == amount);
                if !is_said {
                    return Err(RejectCode::NumberChanged);
                }
                Some(amount)
            }
        };
        let one_drug = mentions_of(scene, Class::Drug) == 1;
        let schedule = (fact.kind == Kind::Medication && one_drug)
            .then(|| crate::schedule::schedule(scene.text))
            .flatten();
        let attribute = crate::structured::own_attribute(fact.kind);
        let entity = match fact.kind {
            Kind::Allergy | Kind::Contraindication => EntityKind::Allergen,
            Kind::Medication => EntityKind::Drug,
            Kind::Condition => EntityKind::Disease,
            Kind::Procedure | Kind::Measurement => EntityKind::Test,
            Kind::Preference
            | Kind::Event
            | Kind::Constraint
            | Kind::Fact
            | Kind::Policy
            | Kind::Lesson
            | Kind::Episode => EntityKind::Thing,
        };
        let ended = polarity == Polarity::Negative && ENDED.is_match(scene.text);
        let mut found = Found::new(fact.kind, attribute, name.clone(), at)
            .polarity(polarity)
            .intent(changed_if(scene.intent(), ended))
            .entity(entity, &name);
        found.quantity = quantity;
        found.schedule = schedule;
        self.mark(&mut found);
        Ok(found)
    }

    /// A clause as it is, under the kind that the model gives it.
    pub(crate) fn free(&self, scene: &Scene<'_>) -> Result<Found, RejectCode> {
        if self.fact.negated && !is_denied(scene) {
            return Err(RejectCode::NegationChanged);
        }
        let is_number_said = match self.amount() {
            Amount::None => true,
            Amount::Of(amount) => scene.amounts.iter().any(|said| said.quantity == amount),
            Amount::Unreadable => {
                let written = fold(self.fact.amount.as_deref().unwrap_or_default());
                find_word(scene.text, written.trim()).is_some()
            }
        };
        if !is_number_said {
            return Err(RejectCode::NumberChanged);
        }
        let mut found = Found::new(self.fact.kind, "", "", 0).intent(scene.intent());
        (found.attribute, found.value) = (None, None);
        self.mark(&mut found);
        Ok(found)
    }

    fn mark(&self, found: &mut Found) {
        found.offered = Some(self.fact.subject);
        let is_protected = Attributes::shipped().kind(found.kind).protected;
        found.confidence_max = if is_protected {
            PROTECTED_CONFIDENCE_MAX
        } else {
            CONFIDENCE_MAX
        };
    }

    fn is_kind_said(&self, clause: &str) -> bool {
        let words: &regex::Regex = match self.fact.kind {
            Kind::Allergy => &ALLERGY,
            Kind::Contraindication => &FORBIDDEN,
            Kind::Medication => &TAKES,
            Kind::Condition => &SUFFERS,
            Kind::Procedure => &OPERATES,
            // The number says it.
            Kind::Measurement
            | Kind::Preference
            | Kind::Event
            | Kind::Constraint
            | Kind::Fact
            | Kind::Policy
            | Kind::Lesson
            | Kind::Episode => return true,
        };
        words.is_match(clause)
    }
}

enum Amount {
    None,
    /// Words that are no single amount.
    Unreadable,
    Of(Quantity),
}

fn mentions_of(scene: &Scene<'_>, class: Class) -> usize {
    scene.of_class(class).count()
}

/// Whether the whole clause denies or ends what it speaks of. An inner negation that does not concern
/// the thing counts too: in doubt nothing is kept.
fn is_denied(scene: &Scene<'_>) -> bool {
    let negated = is_negated(scene.text, &scene.negators, 0..scene.text.len());
    let is_inside = |hit: &regex::Match<'_>| {
        scene
            .negators
            .iter()
            .any(|n| n.start < hit.end() && hit.start() < n.end)
    };
    let ends = ENDED.find_iter(scene.text).filter(|hit| !is_inside(hit));
    negated ^ (ends.count() % 2 == 1)
}

/// Where a word stands in a folded text; a Latin one not inside another.
fn find_word(text: &str, word: &str) -> Option<usize> {
    if word.is_empty() {
        return None;
    }
    let is_latin = |c: char| c.is_alphanumeric() && !is_han(c);
    text.match_indices(word)
        .find(|(at, _)| {
            let before = text[..*at].chars().next_back().is_some_and(is_latin);
            let after = text[at + word.len()..].chars().next().is_some_and(is_latin);
            let is_inside =
                (before && word.starts_with(is_latin)) || (after && word.ends_with(is_latin));
            !is_inside
        })
        .map(|(at, _)| at)
}

/// Whether the person that a model names can be the one that was read. "Other" and "sibling" are said of
/// many.
pub(crate) fn is_same_person(named: Whom, read: &Subject) -> bool {
    let is_other = matches!(read, Subject::Other(_));
    match named {
        Whom::Self_ => *read == Subject::Self_,
        Whom::Father => *read == Subject::Father,
        Whom::Mother => *read == Subject::Mother,
        Whom::Spouse => *read == Subject::Spouse,
        Whom::Child => *read == Subject::Child || is_other,
        Whom::Sibling => *read == Subject::Sibling || is_other,
        Whom::Other => *read != Subject::Self_,
    }
}

/// A text in which quotes are looked for: letters folded, white space left out.
pub(crate) struct Searchable {
    text: String,
    /// For every byte of `text`, the byte of the original where its character begins; and the end.
    origin: Vec<usize>,
}

impl Searchable {
    pub(crate) fn of(original: &str) -> Self {
        let mut text = String::with_capacity(original.len());
        let mut origin = Vec::with_capacity(original.len() + 1);
        let mut one = [0; 4];
        for (at, c) in original.char_indices() {
            if c.is_whitespace() || is_hidden(c) {
                continue;
            }
            let before = text.len();
            text.push_str(&fold(c.encode_utf8(&mut one)));
            origin.resize(origin.len() + text.len() - before, at);
        }
        origin.push(original.len());
        Self { text, origin }
    }

    /// The places of a quote in the original. Marks and dots around it do not count.
    pub(crate) fn places(&self, quote: &str) -> Vec<Range<usize>> {
        let folded = Self::of(quote).text;
        let needle = folded.trim_matches(|c: char| !c.is_alphanumeric());
        if needle.chars().filter(|c| c.is_alphanumeric()).count() < 2 {
            return Vec::new();
        }
        let hits = self.text.match_indices(needle).take(PLACES_MAX);
        hits.map(|(at, _)| self.origin[at]..self.origin[at + needle.len()])
            .collect()
    }
}

/// Characters that nobody sees, and that would hide a quote.
fn is_hidden(c: char) -> bool {
    matches!(c, '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{2064}' | '\u{feff}' | '\u{ad}')
}
