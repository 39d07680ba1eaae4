//! Everything that one turn says: candidates with their quotes, and what was turned down with its reason.

use std::collections::BTreeSet;
use std::ops::Range;

use anamnesis_domain::attribute::Attributes;
use anamnesis_domain::input::{Candidate, CandidateSet, Reject, RejectCode, Turn};
use anamnesis_domain::memory::{
    Claim, Entity, EntityKind, Intent, Kind, Permille, Polarity, Quantity, Role, Source,
};
use anamnesis_domain::owner::Subject;
use anamnesis_domain::text::Text;
use anamnesis_domain::time::Timestamp;

use crate::asked::Asked;
use crate::context::{Context, Episodes, RECENT_MAX, SAID_BYTES_MAX, may_refer_back};
use crate::dates::Clock;
use crate::directives::claims_to_have_recorded;
use crate::fold::language;
use crate::gates;
use crate::lexicon::{Class, drug_classes, lookup};
use crate::reading::{Heard, Reader, Statement};
use crate::reply::Reply;
use crate::request;
use crate::scene::Known;
use crate::sentence::sentences;
use crate::structured;

mod kept;
mod said;

use kept::{between, closed, injected_ranges};
pub(crate) use kept::{is_open, kept_ranges, spoken_ranges};
pub(crate) use said::Judged;
use said::Said;

/// Below this value score a candidate is not worth keeping (`domain.md` §2).
const VALUE_SCORE_MIN: i64 = 3;
/// Below this a statement does not stay true long enough to be remembered (`domain.md` §2).
const STABILITY_MIN: u16 = 700;
/// More facts than anybody states in one turn. A pasted register is a document, and its candidates would
/// not fit one record.
const CANDIDATES_MAX: usize = 500;
/// More rejects of one turn tell nothing new; a pasted book must not become a record of its own size.
const REJECTS_MAX: usize = 64;

/// Candidates of the rules where a model was to be asked, and was not or did not answer.
pub(crate) const FALLBACK: &str = "rules_fallback";
const RULES: &str = "rules";
const MODEL: &str = "model";

/// Reads a turn by the rules alone. Never fails: what cannot be used is a reject.
pub fn extract(turn: &Turn, context: &Context) -> CandidateSet {
    extract_with(turn, context, None)
}

/// Reads a turn, with what a model said about it. What the rules find stands whatever the model says or
/// leaves out; what the model adds is taken only where the speaker's words bear it out.
pub fn extract_with(turn: &Turn, context: &Context, reply: Option<&Reply>) -> CandidateSet {
    let mut set = CandidateSet {
        owner: turn.owner.clone(),
        event: turn.event,
        source_tag: turn.source_tag,
        content: turn.content_hash(),
        at: turn.at,
        candidates: Vec::new(),
        rejects: Vec::new(),
        extractor: RULES.to_owned(),
        prompt_version: None,
        model_answer: None,
        failed: None,
        model_use: None,
    };
    if let Some(reply) = reply {
        reply.record_in(&mut set);
    }
    if let Some(structured) = &turn.structured {
        for claim in structured::claims(turn, structured) {
            push(&mut set, claim, 950);
        }
        return set;
    }
    let text = turn.text.expose();
    let injected = injected_ranges(turn);
    for range in &injected {
        let words = text[range.clone()].trim();
        if words.chars().any(char::is_alphanumeric) {
            reject(&mut set, RejectCode::Echo, Some(words));
        }
    }
    let kept = between(text, &injected);
    if let Some(code) = closed(text, &kept, turn.role) {
        reject(&mut set, code, None);
        return set;
    }
    let mut model = Said::of(turn, reply);
    let episode = read_statements(turn, context, &kept, &mut model, &mut set);
    model.reject_the_rest(turn, context, &kept, &mut set);
    if turn.is_memory_write() {
        return set;
    }
    if turn.role == Role::Assistant && request::is_unmet(turn, context) {
        reject(&mut set, RejectCode::NotStored, None);
    }
    if is_episode(turn.role, context.episodes) && !episode.is_empty() {
        let claim = episode_claim(turn, &episode);
        push(&mut set, claim, gates_of_episode());
    }
    set
}

fn gates_of_episode() -> u16 {
    // An episode is what was said, which stays true; it is never gated as a fact.
    1000
}

/// Reads all sentences of the kept ranges. Gives the text of the episode: all but secrets.
fn read_statements(
    turn: &Turn,
    context: &Context,
    kept: &[Range<usize>],
    model: &mut Said<'_>,
    set: &mut CandidateSet,
) -> String {
    let text = turn.text.expose();
    let clock = Clock::new(turn.at, turn.zone_minutes);
    let speaks = matches!(turn.role, Role::User | Role::Clinician | Role::Record);
    let is_silent = matches!(turn.role, Role::System);
    let needs_past = (speaks && may_refer_back(text)) || turn.role == Role::Assistant;
    let known = if needs_past {
        remember(context, clock)
    } else {
        Known::default()
    };
    let is_announced = speaks && request::is_announced(context);
    let mut asked = (turn.role == Role::User)
        .then(|| asked_before(context))
        .flatten();
    let mut reader = Reader::new(clock, known.clone());
    let mut episode = String::new();
    let mut seen = BTreeSet::new();
    for range in kept {
        let part = &text[range.clone()];
        let mut statements: Vec<Statement> = Vec::new();
        let mut spoken = Vec::new();
        for mut sentence in sentences(part) {
            sentence.range = sentence.range.start + range.start..sentence.range.end + range.start;
            if gates::is_secret(sentence.folded.as_str()) {
                reject(set, RejectCode::Secret, None);
                model.secrets.push(sentence.range.clone());
                continue;
            }
            if turn.role == Role::Assistant && claims_to_have_recorded(sentence.folded.as_str()) {
                reject(set, RejectCode::NotUserAssertion, None);
                continue;
            }
            spoken.push(sentence.range.clone());
            if !is_silent {
                let asks = model.asks_to_keep(&sentence.range);
                let words = text[sentence.range.clone()].trim();
                let mut read = reader.read_beside(text, sentence, asks, &mut model.offers);
                // Only the first sentence answers, and only what is no statement itself.
                let answered = asked
                    .take()
                    .filter(|_| read.heard.is_empty() && !read.asks_to_keep)
                    .and_then(|asked| asked.answered_by(words));
                if let Some(answered) = answered {
                    reader.hear_answer(&answered, words, &mut read);
                }
                statements.push(read);
            }
        }
        append(&mut episode, text, &spoken, range);
        if turn.is_memory_write() {
            write(turn, context, &mut statements, model.reply, &mut seen, set);
            continue;
        }
        spread_explicit(&mut statements, is_announced);
        for statement in &statements {
            if speaks {
                accept(turn, statement, model.reply, &mut seen, set);
            } else {
                refuse(statement, &known, set);
            }
        }
    }
    episode
}

/// The episode keeps the text as it was written; only sentences that must not be kept are cut out.
fn append(episode: &mut String, text: &str, spoken: &[Range<usize>], range: &Range<usize>) {
    let whole = text[range.clone()].trim();
    let spoken_bytes: usize = spoken.iter().map(|r| text[r.clone()].trim().len()).sum();
    let all = sentences(whole)
        .iter()
        .map(|s| whole[s.range.clone()].trim().len())
        .sum::<usize>();
    let part = if spoken_bytes >= all {
        whole.to_owned()
    } else {
        spoken
            .iter()
            .map(|r| text[r.clone()].trim())
            .collect::<Vec<_>>()
            .join(" ")
    };
    if !part.is_empty() && !episode.is_empty() {
        episode.push('\n');
    }
    episode.push_str(&part);
}

/// What an assistant wants written down is taken as its user's request, or refused like anything else that
/// an assistant says.
fn write(
    turn: &Turn,
    context: &Context,
    statements: &mut [Statement],
    reply: Option<&Reply>,
    seen: &mut BTreeSet<Key>,
    set: &mut CandidateSet,
) {
    let refused = request::may_write(turn, context).err();
    for statement in statements {
        match refused {
            Some(code) => reject(set, code, Some(&statement.text)),
            None => {
                statement.explicit = true;
                accept(turn, statement, reply, seen, set);
            }
        }
    }
}

/// A bare "记一下" asks for what was said before it; "记住：" for what follows, and so may the message
/// before.
fn spread_explicit(statements: &mut [Statement], mut announced: bool) {
    let mut asked_back_to = 0;
    let mut meant = Vec::new();
    let mut last_said = None;
    for (i, statement) in statements.iter_mut().enumerate() {
        statement.explicit |= announced;
        let is_bare = statement.asks_to_keep && !statement.says_something;
        // Asked for in words that no pattern knows: they may mean what was said just before, and state
        // something too. Both are kept: better a sentence too many than what was to be kept lost.
        if statement.is_unworded && !is_bare && statement.heard.is_empty() {
            meant.extend(last_said);
        }
        if is_bare && last_said.is_some() && !statement.announces {
            asked_back_to = i;
        } else if statement.asks_to_keep && (statement.announces || is_bare) {
            announced = true;
        }
        if statement.says_something {
            last_said = Some(i);
        }
    }
    for (i, statement) in statements.iter_mut().enumerate() {
        statement.explicit |= i < asked_back_to || meant.contains(&i);
    }
}

/// What makes two candidates of one turn the same.
type Key = (
    String,
    Option<String>,
    Option<String>,
    Polarity,
    Option<Quantity>,
    Option<String>,
    Timestamp,
);

fn accept(
    turn: &Turn,
    statement: &Statement,
    reply: Option<&Reply>,
    seen: &mut BTreeSet<Key>,
    set: &mut CandidateSet,
) {
    let mut kept = 0;
    if statement.asks_to_forget {
        // A command for the API to carry out; nothing in it is told.
        reject(set, RejectCode::NotUserAssertion, Some(&statement.text));
        return;
    }
    for heard in &statement.heard {
        if let Some(code) = heard.refused {
            reject(set, code, Some(&heard.text));
            continue;
        }
        let explicit = statement.explicit;
        let stability = heard.stability;
        if stability < STABILITY_MIN && !explicit {
            reject(set, RejectCode::Transient, Some(&heard.text));
            continue;
        }
        if value_score(heard) < VALUE_SCORE_MIN && !explicit {
            continue;
        }
        kept += 1;
        let one = claim(turn, heard, explicit, reply);
        // Said twice in one turn is said once.
        let key = (
            one.subject.to_string(),
            one.attribute.clone(),
            one.value.clone(),
            one.polarity,
            one.quantity.clone(),
            one.schedule.clone(),
            one.valid_from,
        );
        if seen.insert(key) {
            push(set, one, stability);
        }
    }
    if statement.explicit && kept == 0 && statement.says_something && !statement.is_question {
        push(set, explicit_claim(turn, statement, reply), 800);
    }
}

/// Somebody else's words: what they would have said is counted, not kept.
fn refuse(statement: &Statement, known: &Known, set: &mut CandidateSet) {
    for heard in &statement.heard {
        let repeats = known
            .allergies
            .iter()
            .any(|(_, value, _)| heard.found.value.as_ref() == Some(value))
            || known
                .drug
                .as_ref()
                .is_some_and(|(drug, _)| heard.found.value.as_ref() == Some(drug))
            || known.condition.is_some() && heard.found.value == known.condition;
        let code = if repeats {
            RejectCode::Echo
        } else {
            RejectCode::NotUserAssertion
        };
        reject(set, code, Some(&heard.text));
    }
}

/// What the conversation has named before this turn.
fn remember(context: &Context, clock: Clock) -> Known {
    let mut reader = Reader::new(clock, Known::default());
    let from = context.recent.len().saturating_sub(RECENT_MAX);
    for said in &context.recent[from..] {
        let text = said.text.expose();
        let is_own = matches!(said.role, Role::User | Role::Clinician | Role::Record);
        if !is_own || text.len() > SAID_BYTES_MAX {
            continue;
        }
        for sentence in sentences(text) {
            reader.read(text, sentence);
        }
    }
    reader.into_known()
}

/// What the message right before this one asks its speaker.
fn asked_before(context: &Context) -> Option<Asked> {
    let said = context.recent.last()?;
    let asks = matches!(said.role, Role::Clinician | Role::Assistant) && !said.is_memory_write;
    let text = said.text.expose();
    (asks && text.len() <= SAID_BYTES_MAX)
        .then(|| Asked::of(text))
        .flatten()
}

fn is_episode(role: Role, setting: Episodes) -> bool {
    match (setting, role) {
        (Episodes::Off, _) | (_, Role::System | Role::Tool) => false,
        (Episodes::UserOnly, role) => role == Role::User,
        (Episodes::All, _) => true,
    }
}

/// The weight of the kind, more for a wish to change, less for a guess.
fn value_score(heard: &Heard) -> i64 {
    let weight = i64::from(Attributes::shipped().kind(heard.found.kind).weight);
    let change = if heard.found.intent == Intent::Change {
        5
    } else {
        0
    };
    let hedge = if heard.confidence < 850 { -1 } else { 0 };
    weight + change + hedge
}

fn push(set: &mut CandidateSet, claim: Claim, stability: u16) {
    if set.candidates.len() >= CANDIDATES_MAX {
        reject(set, RejectCode::Unconfirmed, None);
        return;
    }
    let ordinal = u32::try_from(set.candidates.len()).unwrap_or(u32::MAX);
    set.candidates.push(Candidate {
        ordinal,
        claim,
        stability: Permille::new(stability),
    });
}

fn reject(set: &mut CandidateSet, code: RejectCode, text: Option<&str>) {
    if set.rejects.len() < REJECTS_MAX {
        set.rejects.push(Reject {
            code,
            text: text.map(Text::from),
        });
    }
}

/// The source of what the rules found; of a model's finding with the model and its prompt.
fn source_beside(turn: &Turn, is_offered: bool, reply: Option<&Reply>) -> Source {
    match reply {
        None => source(turn, turn.role, RULES),
        Some(reply) if is_offered => Source {
            model: Some(reply.model().to_owned()),
            prompt_version: Some(reply.prompt_version().to_owned()),
            ..source(turn, turn.role, MODEL)
        },
        Some(reply) if reply.fallback().is_some() => source(turn, turn.role, FALLBACK),
        Some(_) => source(turn, turn.role, RULES),
    }
}

pub(crate) fn source(turn: &Turn, role: Role, extractor: &str) -> Source {
    Source {
        event: turn.event,
        source_tag: turn.source_tag,
        source: turn.source.clone(),
        event_id: turn.event_id.clone(),
        conversation_id: turn.conversation_id.clone(),
        turn_id: turn.turn_id.clone(),
        message_id: turn.message_id.clone(),
        role,
        speaker: turn.speaker.clone(),
        at: turn.at,
        zone_minutes: turn.zone_minutes,
        extractor: extractor.to_owned(),
        model: None,
        prompt_version: None,
    }
}

/// A claim with nothing said yet but where it came from.
pub(crate) fn blank(turn: &Turn, kind: Kind, text: &str) -> Claim {
    Claim {
        subject: Subject::Self_,
        kind,
        text: Text::from(text),
        attribute: None,
        value: None,
        quantity: None,
        schedule: None,
        polarity: Polarity::Positive,
        intent: Intent::Assert,
        quote: None,
        entities: Vec::new(),
        valid_from: turn.at,
        valid_to: None,
        importance: Attributes::shipped().kind(kind).importance,
        confidence: turn.role.authority(),
        explicit: false,
        namespace: None,
        key: None,
        context_tags: turn.context_tags.clone(),
        language: language(text).to_owned(),
        source: source(turn, turn.role, RULES),
    }
}

fn claim(turn: &Turn, heard: &Heard, explicit: bool, reply: Option<&Reply>) -> Claim {
    let found = &heard.found;
    let own = turn.role.authority().thousandths();
    Claim {
        subject: heard.subject.clone(),
        attribute: found.attribute.map(str::to_owned),
        value: found.value.clone(),
        quantity: found.quantity.clone(),
        schedule: found.schedule.clone(),
        polarity: found.polarity,
        intent: found.intent,
        quote: Some(Text::from(heard.quote.as_str())),
        entities: heard.entities.clone(),
        valid_from: heard.valid_from,
        valid_to: heard.valid_to.filter(|to| *to >= heard.valid_from),
        importance: if explicit {
            Permille::ONE
        } else {
            Attributes::shipped().kind(found.kind).importance
        },
        confidence: Permille::new(own.min(heard.confidence)),
        explicit,
        source: source_beside(turn, found.offered.is_some(), reply),
        ..blank(turn, found.kind, &heard.text)
    }
}

/// The whole statement, when somebody asks to keep what no pattern reads.
fn explicit_claim(turn: &Turn, statement: &Statement, reply: Option<&Reply>) -> Claim {
    Claim {
        subject: statement.subject.clone(),
        quote: Some(Text::from(statement.text.as_str())),
        entities: statement.entities.clone(),
        importance: Permille::ONE,
        explicit: true,
        valid_to: statement.valid_to,
        source: source_beside(turn, false, reply),
        ..blank(turn, Kind::Fact, &statement.text)
    }
}

fn episode_claim(turn: &Turn, text: &str) -> Claim {
    blank(turn, Kind::Episode, text)
}

/// The name, and what a question may ask about it: a substance that is a drug, and the drug's classes.
pub(crate) fn entities_of(kind: EntityKind, name: &str) -> Vec<Entity> {
    let mut names = vec![(kind, name)];
    if lookup(name, &[Class::Drug]).is_some() {
        names.push((EntityKind::Drug, name));
        names.extend(drug_classes(name).map(|class| (EntityKind::Drug, class)));
    }
    names.dedup();
    let entity = |(kind, name)| Entity {
        kind,
        name: Text::from(name),
    };
    names.into_iter().map(entity).collect()
}

#[cfg(test)]
pub(crate) mod tests;
