//! How is one sentence read, with what was said before it in mind?

use std::ops::Range;
use std::sync::LazyLock;

use anamnesis_domain::input::RejectCode;
use anamnesis_domain::memory::{Entity, EntityKind, Intent, Kind, Polarity};
use anamnesis_domain::owner::Subject;
use anamnesis_domain::text::Text;
use anamnesis_domain::time::Timestamp;
use regex::Regex;

use crate::dates::{Clock, Direction, Moment};
use crate::lexicon::{Class, drug_classes};
use crate::modality::{
    Hedge, Lasting, Modality, asks_to_forget, is_at_the_vets, modality, opens_supposition,
};
use crate::offer::Offer;
use crate::pattern::compile;
use crate::query::entity_kind;
use crate::scene::{Found, Holds, Known, Scene};
use crate::sentence::{Sentence, clauses};
use crate::subject::{Person, nearest};
use crate::{contrast, explicit, gates, patterns, repair};

mod answered;
mod consider;
mod quoted;
mod unnamed;

use consider::Clause;
use unnamed::{meant_by, unnamed};

/// One fact of a sentence, with its words and whom it is about.
#[derive(Clone, Debug)]
pub(crate) struct Heard {
    pub(crate) found: Found,
    pub(crate) subject: Subject,
    pub(crate) text: String,
    pub(crate) quote: String,
    pub(crate) entities: Vec<Entity>,
    pub(crate) valid_from: Timestamp,
    pub(crate) valid_to: Option<Timestamp>,
    pub(crate) confidence: u16,
    pub(crate) stability: u16,
    pub(crate) refused: Option<RejectCode>,
}

/// A sentence as it was understood.
#[derive(Clone, Debug)]
pub(crate) struct Statement {
    pub(crate) heard: Vec<Heard>,
    /// Asks to be written down, itself or by a neighbour.
    pub(crate) explicit: bool,
    pub(crate) asks_to_keep: bool,
    pub(crate) announces: bool,
    /// Asks in words that are not told from what it may state.
    pub(crate) is_unworded: bool,
    /// More than the request itself.
    pub(crate) says_something: bool,
    pub(crate) is_question: bool,
    pub(crate) asks_to_forget: bool,
    /// The speaker's words without the request.
    pub(crate) text: String,
    pub(crate) subject: Subject,
    pub(crate) entities: Vec<Entity>,
    pub(crate) valid_to: Option<Timestamp>,
}

/// More allergies than one conversation names; a pasted list must not slow every later sentence.
const KNOWN_MAX: usize = 16;

/// Reads sentences in order and remembers what they named.
pub(crate) struct Reader {
    clock: Clock,
    known: Known,
    /// Whom the last sentence of this turn was about.
    last_subject: Option<Vec<Subject>>,
    /// The last clause was about an animal.
    of_animal: bool,
}

/// A clause with what the sentence's course adds to it.
struct Part {
    range: Range<usize>,
    persons: Vec<Person>,
}

/// A comparison names a person without speaking of them: "like my father".
static COMPARES: LazyLock<Regex> = LazyLock::new(|| {
    compile(
        r"^\s*(?:just )?(?:like|similar to|same as|as does|unlike)\b|像|和.{1,8}一样|跟.{1,8}一样|随我|遗传",
    )
});
/// A conjunction that only joined the clause to the one before.
static CONJUNCTION: LazyLock<Regex> = LazyLock::new(|| {
    compile(
        r"^\s*(?:(?:and|but|so|because|also|however|although|though)\s+|(?:但是|但|而且|并且|可是|然而|另外|因为|所以))+",
    )
});
static UNTIL: LazyLock<Regex> = LazyLock::new(|| {
    compile(r"(?:直到|到|至|截止到?|持续到)\s*$|\b(?:until|till|through|up to|ending)(?: the)?\s*$")
});
static BEGINS: LazyLock<Regex> = LazyLock::new(|| {
    compile(r"开始|起|改|换|\b(?:start|starts|starting|begin|beginning|from|will|going to|as of)\b")
});
static AHEAD: LazyLock<Regex> = LazyLock::new(|| {
    compile(
        r"明天|后天|下周|下个?月|将|打算|预约|约了|复查|\b(?:tomorrow|next|will|going to|appointment|scheduled|due)\b",
    )
});

impl Reader {
    pub(crate) fn new(clock: Clock, known: Known) -> Self {
        Self {
            clock,
            known,
            last_subject: None,
            of_animal: false,
        }
    }

    pub(crate) fn into_known(self) -> Known {
        self.known
    }

    /// `text` is the whole turn; the sentence's range points into it.
    pub(crate) fn read(&mut self, text: &str, sentence: Sentence) -> Statement {
        self.read_beside(text, sentence, None, &mut [])
    }

    /// The same, beside what a model says: whether the sentence asks to be kept, and what it states.
    pub(crate) fn read_beside(
        &mut self,
        text: &str,
        sentence: Sentence,
        asks_to_keep: Option<bool>,
        offers: &mut [Offer],
    ) -> Statement {
        let folded = sentence.folded.as_str();
        let cue = explicit::cue_if(folded, asks_to_keep);
        let analysed = match &cue {
            Some(cue) => explicit::masked(folded, &cue.ranges),
            None => folded.to_owned(),
        };
        let analysed = repair::without_quotes(&analysed);
        let repair = repair::repair(&analysed);
        let analysed = match &repair {
            Some(repair) => explicit::masked(&analysed, std::slice::from_ref(&repair.range)),
            None => analysed,
        };
        let raw = &text[sentence.range.clone()];
        let mut statement = self.statement(&sentence, raw, &analysed, cue.as_ref());
        if repair.is_some() {
            // What was taken back stays readable beside what was meant.
            statement.text = without_end_mark(raw);
        }
        if asks_to_forget(&analysed) {
            statement.is_question = true;
            statement.asks_to_forget = true;
            return statement;
        }
        let parts = parts(&analysed);
        let mut heard: Vec<(usize, Heard)> = Vec::new();
        let mut stated: Vec<(Vec<Subject>, Found)> = Vec::new();
        let mut named_only: Option<(usize, Vec<Subject>)> = None;
        let mut carried: Option<Vec<Subject>> = None;
        let mut corrects = false;
        let mut changes = false;
        let mut lasting = Lasting::Open;
        let mut supposed = false;
        let mut of_animal = self.of_animal || is_at_the_vets(&analysed);
        let mut previous = String::new();
        let asks = analysed.trim_end().ends_with('?') && cue.is_none();
        let mut clauses: Vec<Clause> = Vec::new();
        let last = parts.len().saturating_sub(1);
        for (i, part) in parts.iter().enumerate() {
            let clause = &analysed[part.range.clone()];
            let clause = clause.trim_end_matches(['.', '。', '!', ';', ' ', '\n', '\r']);
            let mut mood = modality(clause, asks && i == last, supposed);
            of_animal = crate::modality::is_about_animal(
                clause,
                of_animal,
                // 我们家旺财 names a house.
                part.persons.iter().any(|p| {
                    let names_a_house = p.is_self
                        && clause
                            .get(p.end..)
                            .is_some_and(|rest| rest.starts_with('家'));
                    !p.who.is_empty() && !names_a_house
                }),
            );
            if of_animal && mood.refused.is_none() {
                mood.refused = Some(RejectCode::NotUserAssertion);
            }
            let completed = repair::completed(clause, &previous)
                .or_else(|| repair::allergic_to_it(clause, &previous))
                .or_else(|| contrast::in_plain_order(clause));
            let clause = completed.as_deref().unwrap_or(clause);
            if completed.is_none() {
                clause.clone_into(&mut previous);
            }
            if cue.is_some()
                && mood.refused == Some(RejectCode::NotUserAssertion)
                && i == last
                && !crate::modality::is_question(clause)
            {
                mood.refused = None;
            }
            // Only a supposition that opens the sentence rules what follows.
            supposed |= i == 0 && opens_supposition(clause);
            // "不对，应该是 …": the correction is announced before what is corrected.
            corrects |= mood.corrects;
            mood.corrects = corrects;
            // "Just for today, …" bounds what follows.
            if mood.lasting == Lasting::Open {
                mood.lasting = lasting;
            } else if clause.chars().count() <= 20 {
                lasting = mood.lasting;
            }
            changes |= mood.changes && clause.chars().count() <= 12;
            mood.changes |= changes;
            let known = self.known.clone();
            let scene = Scene::read(clause, mood, self.clock, &known);
            if !offers.is_empty() {
                clauses.push(Clause {
                    text: clause.to_owned(),
                    mood,
                    carried: carried.clone(),
                });
            }
            if let Some(who) = contrast::names_only(clause) {
                named_only = Some((i, who));
            }
            let same = contrast::says_the_same(clause).or_else(|| {
                let who = carried.clone().filter(|_| contrast::denies_it(clause))?;
                Some((who, Polarity::Negative))
            });
            let denied = contrast::denies_whom(clause);
            let mut found = patterns::find(&scene);
            let mut is_echo = false;
            if found.is_empty()
                && let Some((who, polarity)) = same
                && let Some((_, last)) = stated.last()
            {
                // 我爸有痛风，我没有: the thing is left out, and only the whole sentence names it.
                is_echo = true;
                found.push(Found {
                    subjects: Some(who),
                    never: true,
                    ..last.clone().polarity(polarity).intent(Intent::Assert)
                });
            }
            for mut one in found {
                if let Some(who) = &denied {
                    // 打胰岛素的不是我: what the clause says is denied of whom it ends with.
                    one.subjects = Some(who.clone());
                    one.polarity = Polarity::Negative;
                }
                let (who, is_guess) = self.whom(&one, &scene, &part.persons, carried.as_deref());
                if mood.refused.is_none() && mood.hedge != Hedge::Strong {
                    stated.push((who.clone(), one.clone()));
                    self.note(&who, &one);
                }
                for subject in &who {
                    let mut hears = self.hear(&one, subject, &scene, is_guess);
                    if is_echo {
                        WHOLE.clone_into(&mut hears.quote);
                    }
                    heard.push((i, hears));
                }
            }
            if !COMPARES.is_match(clause) {
                let of_facts = heard
                    .iter()
                    .rev()
                    .find(|(at, _)| *at == i)
                    .map(|(_, h)| vec![h.subject.clone()]);
                let of_words = part
                    .persons
                    .iter()
                    .rev()
                    .find(|p| !p.who.is_empty())
                    .map(|p| p.who.clone());
                carried = of_facts.or(of_words).or(carried);
            }
            self.note_relative(&part.persons);
        }
        self.of_animal = of_animal;
        if let Some(repair) = &repair {
            repair::apply(repair, &mut heard);
        }
        let own_count = heard.len();
        if !parts.is_empty() {
            self.add_quoted(folded, &mut heard);
        }
        let has_quoted = heard.len() > own_count;
        self.add_contrasts(&analysed, &parts, &stated, named_only, &mut heard);
        let start = sentence.range.start;
        for offer in offers.iter_mut().filter(|offer| offer.outcome.is_none()) {
            let touched = |part: &Part| {
                let place = sentence.folded.original(part.range.clone());
                offer.touches(&(start + place.start..start + place.end))
            };
            let touched: Vec<usize> = (0..parts.len()).filter(|i| touched(&parts[*i])).collect();
            if !touched.is_empty() {
                self.consider(
                    offer,
                    &touched,
                    &clauses,
                    &parts,
                    repair.is_some(),
                    &mut heard,
                );
            }
        }
        self.last_subject = carried;
        place(&sentence, raw, &analysed, &parts, &mut heard);
        if heard.iter().filter(|(_, h)| h.refused.is_none()).count() == 1
            && !statement.text.is_empty()
            && !has_quoted
        {
            let whole = statement.text.clone();
            heard
                .iter_mut()
                .filter(|(_, h)| h.refused.is_none())
                .for_each(|(_, h)| h.text.clone_from(&whole));
        }
        statement.says_something |= !heard.is_empty();
        statement.heard = heard.into_iter().map(|(_, h)| h).collect();
        statement
    }

    fn statement(
        &self,
        sentence: &Sentence,
        raw: &str,
        analysed: &str,
        cue: Option<&explicit::Cue>,
    ) -> Statement {
        let kept = trimmed(analysed);
        let text = raw
            .get(sentence.folded.original(kept))
            .unwrap_or(raw)
            .trim()
            .to_owned();
        let folded = sentence.folded.as_str();
        let mood = modality(analysed, false, false);
        let valid_to =
            (mood.lasting == Lasting::TodayOnly).then(|| self.clock.end_of_day(self.clock.today()));
        let persons = crate::subject::persons(analysed);
        let first = persons.iter().find_map(|p| p.who.first());
        Statement {
            heard: Vec::new(),
            asks_to_forget: false,
            explicit: cue.is_some(),
            asks_to_keep: cue.is_some(),
            is_unworded: cue.is_some_and(|cue| cue.is_unworded),
            announces: cue.is_some_and(|cue| {
                cue.announces || explicit::only_asks(folded, cue) && explicit::looks_ahead(folded)
            }),
            says_something: match cue {
                Some(cue) => !explicit::only_asks(folded, cue),
                None => explicit::says_something(analysed),
            },
            is_question: cue.is_none()
                && (analysed.trim_end().ends_with('?') || crate::modality::is_question(analysed)),
            text,
            subject: first.cloned().unwrap_or_default(),
            entities: crate::query::query_entities(analysed),
            valid_to,
        }
    }

    /// Whom a finding is about, and whether that is only carried over from another sentence.
    fn whom(
        &self,
        found: &Found,
        scene: &Scene<'_>,
        persons: &[Person],
        carried: Option<&[Subject]>,
    ) -> (Vec<Subject>, bool) {
        if let Some(subjects) = &found.subjects {
            return (subjects.clone(), false);
        }
        let known = self.known.relative.as_ref();
        let pronoun = |person: &Person| vec![meant_by(person, persons, scene, known)];
        let is_health = matches!(
            found.kind,
            Kind::Allergy | Kind::Condition | Kind::Medication
        );
        if let Some(somebody) = unnamed(scene.text, found.anchor)
            .filter(|_| is_health && persons.iter().all(|p| p.is_self || p.who.is_empty()))
        {
            return (vec![somebody], true);
        }
        match nearest(persons, found.anchor) {
            Some(person) if person.who.is_empty() => return (pronoun(person), false),
            Some(person) => return (person.who.clone(), false),
            None => (),
        }
        if let Some(carried) = carried {
            return (carried.to_vec(), false);
        }
        // 降压药我爸停了, 对花生过敏的是我爸: the person stands behind.
        let behind = persons
            .iter()
            .find(|p| !p.who.is_empty())
            .filter(|_| scene.is_chinese() && !COMPARES.is_match(scene.text));
        if let Some(person) = behind {
            return (person.who.clone(), false);
        }
        match &self.last_subject {
            // 我妈有高血压。在吃氨氯地平。 Most likely hers, and never silently the patient's.
            Some(last) if !last.contains(&Subject::Self_) => (last.clone(), true),
            Some(_) | None => (vec![Subject::Self_], false),
        }
    }

    fn hear(&self, found: &Found, subject: &Subject, scene: &Scene<'_>, is_guess: bool) -> Heard {
        let mood = scene.modality;
        let (valid_from, valid_to) = self.interval(found, scene);
        let hedge = match mood.hedge {
            Hedge::None => 1000,
            Hedge::Weak => 700,
            Hedge::Strong => 400,
        };
        let confidence = found
            .confidence_max
            .min(hedge)
            .min(if is_guess { 800 } else { 1000 });
        let is_event = matches!(found.kind, Kind::Procedure | Kind::Measurement)
            || found.attribute == Some("examination");
        let is_denied_event = is_event && found.polarity == Polarity::Negative && !found.never;
        // 他 without anybody named before is nobody.
        let is_nobody =
            matches!(subject, Subject::Other(word) if PRONOUNS.contains(&word.as_str()));
        // "I like the novel" quotes nobody.
        let is_taste =
            found.kind == Kind::Preference && mood.refused == Some(RejectCode::OtherSpeaker);
        let refused = mood
            .refused
            .filter(|_| !is_taste)
            .or(is_nobody.then_some(RejectCode::Unconfirmed))
            .or((mood.hedge == Hedge::Strong).then_some(RejectCode::Unconfirmed))
            .or((mood.lasting == Lasting::ThisOnce).then_some(RejectCode::Transient))
            // "没做过手术" has no comparable form; its opposite must not be kept instead.
            .or(is_denied_event.then_some(RejectCode::NegationChanged));
        Heard {
            found: found.clone(),
            subject: subject.clone(),
            text: String::new(),
            quote: String::new(),
            entities: entities(found, subject, scene),
            valid_from,
            valid_to,
            confidence,
            stability: gates::stability(found.kind, mood, valid_to.is_some(), found.stability),
            refused,
        }
    }

    fn interval(&self, found: &Found, scene: &Scene<'_>) -> (Timestamp, Option<Timestamp>) {
        let at = self.clock.at();
        let day_end = (scene.modality.lasting == Lasting::TodayOnly
            && found.attribute != Some("appointment"))
        .then(|| self.clock.end_of_day(self.clock.today()));
        if let Holds::Given { from, to } = &found.holds {
            return (*from, to.or(day_end));
        }
        let direction = if AHEAD.is_match(scene.text) {
            Direction::Future
        } else {
            Direction::Past
        };
        let moments = scene.moments(direction);
        let is_end = |m: &Moment| {
            UNTIL.is_match(&scene.text[..m.start]) || scene.text[m.start..].starts_with("until")
        };
        let ahead = scene.moments(Direction::Future);
        let to = ahead
            .iter()
            .find(|m| is_end(m))
            .map(|m| self.clock.instant(m.to.max(m.from)));
        // "Only call me at the weekend" names no beginning.
        let is_habitual = matches!(found.kind, Kind::Constraint | Kind::Preference);
        let from = moments
            .iter()
            .filter(|m| !m.attributive && !is_end(m))
            .map(|m| {
                if m.is_now {
                    at
                } else {
                    self.clock.instant(m.from)
                }
            })
            // What lies ahead is when it begins only if the clause says so.
            .find(|from| (*from <= at && !is_habitual) || BEGINS.is_match(scene.text));
        (from.unwrap_or(at), to.or(day_end))
    }

    fn note(&mut self, who: &[Subject], found: &Found) {
        let value = found.value.clone().unwrap_or_default();
        match found.kind {
            Kind::Medication => self.known.drug = Some((value, found.quantity.clone())),
            Kind::Allergy => {
                self.known
                    .allergies
                    .retain(|(whose, v, _)| !(whose.as_slice() == who && *v == value));
                self.known
                    .allergies
                    .push((who.to_vec(), value, found.polarity));
                if self.known.allergies.len() > KNOWN_MAX {
                    self.known.allergies.remove(0);
                }
            }
            Kind::Condition => self.known.condition = found.value.clone(),
            Kind::Contraindication
            | Kind::Procedure
            | Kind::Measurement
            | Kind::Preference
            | Kind::Event
            | Kind::Constraint
            | Kind::Fact
            | Kind::Policy
            | Kind::Lesson
            | Kind::Episode => (),
        }
    }

    fn note_relative(&mut self, persons: &[Person]) {
        let relative = persons
            .iter()
            .flat_map(|p| &p.who)
            .rfind(|who| **who != Subject::Self_);
        if let Some(relative) = relative {
            self.known.relative = Some(relative.clone());
        }
    }

    fn add_contrasts(
        &mut self,
        analysed: &str,
        parts: &[Part],
        stated: &[(Vec<Subject>, Found)],
        named_only: Option<(usize, Vec<Subject>)>,
        heard: &mut Vec<(usize, Heard)>,
    ) {
        let named = named_only.as_ref().map(|(_, who)| who.as_slice());
        let known = self.known.clone();
        let moved = contrast::resolve(analysed, stated, named, &known);
        let at = named_only.as_ref().map_or(0, |(i, _)| *i);
        for (who, found) in moved {
            // The words of the whole sentence: who it is and who not.
            let Some(part) = parts.get(at) else { continue };
            let clause = &analysed[part.range.clone()];
            let mood = modality(clause, false, false);
            let scene = Scene::read(
                clause,
                Modality {
                    refused: None,
                    ..mood
                },
                self.clock,
                &known,
            );
            for subject in &who {
                let mut one = self.hear(&found, subject, &scene, false);
                one.quote = WHOLE.to_owned();
                heard.push((at, one));
            }
            self.note(&who, &found);
        }
    }
}

const PRONOUNS: [&str; 13] = [
    "他", "她", "他们", "她们", "he", "she", "him", "his", "her", "hers", "they", "he's", "she's",
];

/// Marks a finding whose quote is the whole sentence.
pub(crate) const WHOLE: &str = "*";

fn parts(analysed: &str) -> Vec<Part> {
    clauses(analysed)
        .into_iter()
        .map(|range| Part {
            persons: crate::subject::persons(&analysed[range.clone()]),
            range,
        })
        .collect()
}

/// Gives every finding its words: the clause as quote; as text the clause, from where its person is
/// named.
fn place(
    sentence: &Sentence,
    raw: &str,
    analysed: &str,
    parts: &[Part],
    heard: &mut [(usize, Heard)],
) {
    let cut = |from: usize, to: usize| {
        let lead = CONJUNCTION.find(&analysed[from..to]).map_or(0, |m| m.end());
        let from = from + lead;
        let kept = trimmed(&analysed[from..to]);
        let range = sentence.folded.original(from + kept.start..from + kept.end);
        raw.get(range).unwrap_or(raw).trim().to_owned()
    };
    for (at, one) in heard.iter_mut() {
        let part = &parts[*at].range;
        if one.quote == WHOLE {
            one.quote = without_end_mark(raw);
            one.text.clone_from(&one.quote);
            continue;
        }
        one.quote = cut(part.start, part.end);
        // Whose it is must be readable in the text itself.
        let names_subject = |p: &Part| {
            p.persons
                .iter()
                .any(|person| person.who.contains(&one.subject))
        };
        let is_own = one.subject == Subject::Self_ || names_subject(&parts[*at]);
        let from = if is_own {
            part.start
        } else {
            parts[..*at]
                .iter()
                .rev()
                .find(|p| names_subject(p))
                .map_or(part.start, |p| p.range.start)
        };
        one.text = cut(from, part.end);
    }
}

fn without_end_mark(raw: &str) -> String {
    let marks = ['.', '。', '!', '！', ';', '；', ' ', '\n', '\r'];
    raw.trim().trim_end_matches(marks).to_owned()
}

/// The range of a text without white space and marks around it.
fn trimmed(text: &str) -> Range<usize> {
    let is_edge = |c: char| {
        c.is_whitespace()
            || matches!(
                c,
                '.' | ',' | ';' | ':' | '!' | '?' | '。' | '、' | '-' | '…'
            )
    };
    let start = text.len() - text.trim_start_matches(is_edge).len();
    let end = text.trim_end_matches(is_edge).len();
    start..end.max(start)
}

fn entities(found: &Found, subject: &Subject, scene: &Scene<'_>) -> Vec<Entity> {
    let mut all = found.entities.clone();
    if *subject != Subject::Self_ {
        all.push(Entity {
            kind: EntityKind::Person,
            name: Text::new(subject.to_string()),
        });
    }
    for mention in &scene.mentions {
        // Foods and allergens beside the fact are everyday words; only the slot's own counts.
        let is_telling = matches!(
            mention.class,
            Class::Drug | Class::Condition | Class::Test | Class::Procedure
        );
        let is_new_allergy_drug = found.kind == Kind::Allergy && mention.class == Class::Drug;
        if let Some(kind) = entity_kind(mention).filter(|_| is_telling || is_new_allergy_drug) {
            all.push(Entity {
                kind,
                name: Text::new(mention.name),
            });
        }
    }
    let drugs: Vec<Text> = all
        .iter()
        .filter(|e| e.kind == EntityKind::Drug)
        .map(|e| e.name.clone())
        .collect();
    for class in drugs.iter().flat_map(|drug| drug_classes(drug.expose())) {
        all.push(Entity {
            kind: EntityKind::Drug,
            name: Text::new(class),
        });
    }
    let mut unique: Vec<Entity> = Vec::new();
    for entity in all {
        if !unique.contains(&entity) {
            unique.push(entity);
        }
    }
    unique
}
