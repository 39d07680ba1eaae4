//! Utterances about several people, and neighbouring terms: is each statement filed under its person, and
//! is one thing never taken for another? The set is the project's own and lies in its repository.

use std::collections::BTreeMap;

use anamnesis_domain::memory::{Claim, Entity, Kind, Memory, Polarity, Role};
use anamnesis_domain::owner::{Owner, Subject};
use anamnesis_domain::time::Timestamp;
use anamnesis_extractor::query_entities;
use anamnesis_recall::request::Ask;
use serde::Deserialize;
use unicode_normalization::UnicodeNormalization as _;

use crate::cli::EvalArgs;
use crate::config::{Config, Episodes};
use crate::eval::score::{Means, share};
use crate::eval::world::{World, message};
use crate::eval::{Figures, read_lines};
use crate::failure::Failure;

const FIRST_TOLD: &str = "2026-03-02T09:00:00+08:00";
const THEN_TOLD: &str = "2026-03-03T09:00:00+08:00";
const ASKED: &str = "2026-03-20T09:00:00+08:00";

#[derive(Deserialize)]
struct Line {
    id: String,
    /// The phenomenon, for break-downs.
    #[serde(default)]
    cat: String,
    text: String,
    facts: Vec<Fact>,
    not: Vec<Place>,
}

#[derive(Deserialize)]
struct Fact {
    subject: String,
    term: String,
    polarity: Polarity,
}

#[derive(Deserialize)]
struct Place {
    subject: String,
    term: String,
}

#[derive(Deserialize)]
struct Pair {
    id: String,
    says_a: String,
    says_b: String,
    asks_a: String,
    asks_b: String,
}

/// # Errors
/// When the set cannot be read or a node cannot be opened.
pub async fn measure(config: &Config, args: &EvalArgs) -> Result<Figures, Failure> {
    let folder = args.folder("attribution")?;
    let mut figures = Figures::default();
    let mut means = Means::default();
    for language in ["zh", "en"] {
        let limit = args.limit.unwrap_or(usize::MAX);
        let mut lines: Vec<Line> = read_lines(&folder.join(format!("subjects.{language}.jsonl")))?;
        lines.truncate(limit);
        let mut pairs: Vec<Pair> = read_lines(&folder.join(format!("pairs.{language}.jsonl")))?;
        pairs.truncate(limit);
        figures.n += lines.len() + pairs.len();
        let told = tell_subjects(config, language, &lines, &mut means, &mut figures).await?;
        let filed = told.leaks + told.found;
        let errors = told.leaks as f64 / filed.max(1) as f64;
        figures
            .metrics
            .insert(format!("{language}.subject_errors"), errors);
        tell_pairs(config, language, &pairs, &mut means, &mut figures).await?;
    }
    figures.put(&means);
    Ok(figures)
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Told {
    /// Facts that were found under their person, whatever the polarity.
    found: usize,
    /// Terms that were found under somebody whom they are not about.
    leaks: usize,
}

async fn tell_subjects(
    config: &Config,
    language: &str,
    lines: &[Line],
    means: &mut Means,
    figures: &mut Figures,
) -> Result<Told, Failure> {
    let now = Timestamp::parse(ASKED).map_err(Failure::wrong_use)?;
    let mut world = World::open(config, "attribution", Episodes::All, Some(now)).await?;
    figures.model = world.node.embed.identity().to_string();
    let at = Timestamp::parse(FIRST_TOLD).map_err(Failure::wrong_use)?;
    let mut said = Vec::new();
    for line in lines {
        let owner = world.owner(&line.id)?;
        said.push(message(&owner, &line.id, Role::User, at, &line.text));
    }
    world.say(said).await?;
    let mut all = Told::default();
    for line in lines {
        let memories = world.memories(&world.owner(&line.id)?).await?.into_iter();
        let stored: Vec<Claim> = memories
            .map(|memory| memory.claim)
            .filter(|claim| claim.kind != Kind::Episode)
            .collect();
        let told = count(line, &stored, language, means);
        figures.notes.extend(missed(line, &stored));
        all.found += told.found;
        all.leaks += told.leaks;
    }
    let coverage = world.coverage().await?;
    figures
        .metrics
        .insert(format!("{language}.coverage"), coverage);
    world.close().await;
    Ok(all)
}

/// What of a line is not stored as it should be: where, of which kind, and what is there instead.
fn missed(line: &Line, stored: &[Claim]) -> Vec<String> {
    let about = |fact: &Fact| -> Vec<String> {
        let matching = stored.iter().filter(|claim| is_about(claim, &fact.term));
        matching
            .map(|claim| format!("{} {}", bucket(&claim.subject), claim.polarity))
            .collect()
    };
    let mut notes = Vec::new();
    for fact in &line.facts {
        let wanted = format!("{} {}", fact.subject, fact.polarity);
        let found = about(fact);
        if !found.contains(&wanted) {
            let instead = match found.as_slice() {
                [] => "nothing".to_owned(),
                found => found.join(", "),
            };
            notes.push(format!(
                "missed: {} {} {} ({wanted}): {instead}",
                line.id,
                line.cat,
                kind(&fact.term)
            ));
        }
    }
    notes
}

/// What kind of thing a term is, as far as the lexicons know it.
fn kind(term: &str) -> &'static str {
    match query_entities(term).first() {
        Some(entity) => entity.kind.code(),
        None => "unknown",
    }
}

fn count(line: &Line, stored: &[Claim], language: &str, means: &mut Means) -> Told {
    let of = |subject: &str, term: &str| {
        let matching = stored
            .iter()
            .filter(|claim| bucket(&claim.subject) == subject && is_about(claim, term));
        matching.map(|claim| claim.polarity).collect::<Vec<_>>()
    };
    let mut put = |key: &str, value: f64| means.add(format!("{language}.{key}"), value);
    let mut told = Told::default();
    let mut is_exact = true;
    for fact in &line.facts {
        let polarities = of(&fact.subject, &fact.term);
        let is_hit = polarities.contains(&fact.polarity);
        let is_flip = !polarities.is_empty() && !is_hit;
        told.found += usize::from(!polarities.is_empty());
        is_exact &= is_hit;
        put("recall", share(is_hit));
        let who = match fact.subject.as_str() {
            "self" => "self",
            _ => "others",
        };
        put(&format!("recall.{who}"), share(is_hit));
        let sign = match fact.polarity {
            Polarity::Positive => "recall.positive",
            Polarity::Negative => "recall.negative",
        };
        put(sign, share(is_hit));
        put(&format!("recall.kind.{}", kind(&fact.term)), share(is_hit));
        if !line.cat.is_empty() {
            put(&format!("recall.shape.{}", line.cat), share(is_hit));
        }
        put("flip_rate", share(is_flip));
    }
    for place in &line.not {
        let is_leak = !of(&place.subject, &place.term).is_empty();
        told.leaks += usize::from(is_leak);
        is_exact &= !is_leak;
        put("leak_rate", share(is_leak));
        if place.subject == "self" {
            put("leak_self", share(is_leak));
        }
    }
    put("line_exact", share(is_exact));
    if line.facts.is_empty() {
        put("empty_clean", share(told.leaks == 0));
    }
    told
}

/// The set's seven persons: everybody who is none of the six goes by `other`. The product tells brothers
/// and children apart and names them by their relation, as `younger brother`; the set does not.
fn bucket(subject: &Subject) -> &'static str {
    const RANKS: [&str; 9] = [
        "second", "third", "older", "oldest", "younger", "youngest", "twin", "only", "middle",
    ];
    match subject {
        Subject::Other(who) => {
            let relation: Vec<&str> = who
                .split(' ')
                .skip_while(|word| RANKS.contains(word))
                .collect();
            match relation.as_slice() {
                ["brother" | "brothers" | "sister" | "sisters"] => "sibling",
                ["son" | "sons" | "daughter" | "daughters" | "child"] => "child",
                _ => "other",
            }
        }
        Subject::Self_ => "self",
        Subject::Father => "father",
        Subject::Mother => "mother",
        Subject::Spouse => "spouse",
        Subject::Child => "child",
        Subject::Sibling => "sibling",
    }
}

/// Whether a claim is about the term: its value holds it, or both are one thing in the lexicons. A claim
/// without a value is read by its words.
fn is_about(claim: &Claim, term: &str) -> bool {
    let plain = |text: &str| -> String {
        let folded: String = text.nfkc().collect();
        folded
            .to_lowercase()
            .chars()
            .filter(|c| !c.is_whitespace())
            .collect()
    };
    let wanted = plain(term);
    // The first is the thing itself; classes of a drug follow.
    let named = query_entities(term).into_iter().next();
    match claim.value.as_deref() {
        Some(value) => {
            let value = plain(value);
            let is_named = |one: &Entity| value.contains(&plain(one.name.expose()));
            let quote = claim.quote.as_ref();
            let is_quoted = quote.is_some_and(|quote| plain(quote.expose()).contains(&wanted));
            value.contains(&wanted)
                || named.as_ref().is_some_and(is_named)
                // A value that no lexicon knows stands in the speaker's own words.
                || (named.is_none() && is_quoted)
        }
        None => plain(claim.text.expose()).contains(&wanted),
    }
}

/// In which order a pair is told to an owner.
const ORDERS: [(&str, &[&str]); 4] = [
    ("ab", &["a", "b"]),
    ("ba", &["b", "a"]),
    ("a", &["a"]),
    ("b", &["b"]),
];

async fn tell_pairs(
    config: &Config,
    language: &str,
    pairs: &[Pair],
    means: &mut Means,
    figures: &mut Figures,
) -> Result<(), Failure> {
    let now = Timestamp::parse(ASKED).map_err(Failure::wrong_use)?;
    let mut world = World::open(config, "pairs", Episodes::All, Some(now)).await?;
    let mut said = Vec::new();
    for pair in pairs {
        for (name, order) in ORDERS {
            let owner = world.owner(&format!("{}-{name}", pair.id))?;
            for (which, at) in order.iter().zip([FIRST_TOLD, THEN_TOLD]) {
                let at = Timestamp::parse(at).map_err(Failure::wrong_use)?;
                let text = match *which {
                    "a" => &pair.says_a,
                    _ => &pair.says_b,
                };
                said.push(message(&owner, *which, Role::User, at, text));
            }
        }
    }
    world.say(said).await?;
    for pair in pairs {
        let mut is_told_apart = true;
        for (name, order) in ORDERS {
            let owner = world.owner(&format!("{}-{name}", pair.id))?;
            let is_both = order.len() == 2;
            for (which, asks) in [("a", &pair.asks_a), ("b", &pair.asks_b)] {
                let first = first(&world, &owner, asks).await?;
                let first = first.as_deref();
                if is_both {
                    let is_confused = first.is_some_and(|first| first != which);
                    is_told_apart &= !is_confused;
                    means.add(
                        format!("{language}.pair_right"),
                        share(first == Some(which)),
                    );
                    means.add(format!("{language}.confusion"), share(is_confused));
                } else if !order.contains(&which) {
                    let key = format!("{language}.only_the_other_shown");
                    means.add(key, share(first.is_some()));
                }
            }
            if is_both {
                let is_merged = is_merged(&world.memories(&owner).await?);
                is_told_apart &= !is_merged;
                means.add(format!("{language}.merge"), share(is_merged));
                if is_merged {
                    figures.notes.push(format!("merged: {} ({name})", pair.id));
                }
            }
        }
        means.add(format!("{language}.pairs_told_apart"), share(is_told_apart));
        if !is_told_apart {
            figures.notes.push(format!("not told apart: {}", pair.id));
        }
    }
    world.close().await;
    Ok(())
}

/// Which of the two statements the first memory of the answer comes from.
async fn first(world: &World, owner: &Owner, asks: &str) -> Result<Option<String>, Failure> {
    let answer = world.ask(owner, Ask::new(asks)).await?;
    let first = answer.memories.into_iter().next();
    Ok(first.map(|one| one.record.source.event_id))
}

/// Whether a memory of one statement was ended by, merged into, or set against one of the other.
fn is_merged(memories: &[Memory]) -> bool {
    let events: BTreeMap<_, &str> = memories
        .iter()
        .map(|one| (one.id, one.claim.source.event_id.as_str()))
        .collect();
    memories.iter().any(|one| {
        let standing = &one.standing;
        let others = [
            standing.superseded_by,
            standing.confirms,
            standing.conflict_with,
        ];
        others
            .into_iter()
            .flatten()
            .any(|other| events.get(&other) != Some(&one.claim.source.event_id.as_str()))
    })
}

#[cfg(test)]
mod tests {
    use anamnesis_domain::ids::IdKey;
    use anamnesis_domain::input::Turn;

    use super::*;

    fn stored(text: &str) -> Vec<Claim> {
        let owner: Owner = "h/p".parse().unwrap();
        let at = Timestamp::parse(FIRST_TOLD).unwrap();
        let turn: Turn =
            message(&owner, "e", Role::User, at, text).into_turn(&IdKey::from_bytes([7; 32]));
        anamnesis_extractor::statements(&turn)
    }

    fn check(line: &str, stored: &[Claim], expected: &[(&str, f64)]) {
        let line: Line = serde_json::from_str(line).unwrap();
        let mut means = Means::default();
        count(&line, stored, "x", &mut means);
        let means = means.means();
        for (key, value) in expected {
            assert_eq!(means[&format!("x.{key}")], *value, "{key}");
        }
    }

    #[test]
    fn what_is_filed_under_the_wrong_person_leaks() {
        let line = r#"{"id": "1", "text": "", "facts": [
            {"subject": "father", "term": "花生", "polarity": "+"},
            {"subject": "self", "term": "青霉素", "polarity": "-"}],
            "not": [{"subject": "self", "term": "花生"}]}"#;
        let right = stored("我爸对花生过敏。我对青霉素不过敏。");
        check(
            line,
            &right,
            &[("recall", 1.0), ("leak_rate", 0.0), ("line_exact", 1.0)],
        );
        let wrong = stored("我对花生过敏。我对青霉素过敏。");
        let expected = [
            ("recall", 0.0),
            ("flip_rate", 0.5),
            ("leak_self", 1.0),
            ("line_exact", 0.0),
        ];
        check(line, &wrong, &expected);
    }

    #[test]
    fn what_is_missed_is_named_by_kind_and_shape() {
        let line = r#"{"id": "1", "cat": "relative", "text": "", "facts": [
            {"subject": "father", "term": "peanut", "polarity": "+"},
            {"subject": "self", "term": "aspirin", "polarity": "-"}], "not": []}"#;
        let line: Line = serde_json::from_str(line).unwrap();
        let told = stored("I am allergic to peanuts. I don't take aspirin.");
        assert_eq!(
            missed(&line, &told),
            ["missed: 1 relative allergen (father +): self +"]
        );
        let nothing = ["missed: 1 relative drug (self -): nothing"];
        assert_eq!(missed(&line, &[])[1..], nothing);
    }

    #[test]
    fn brothers_and_children_are_one_bucket_each() {
        for (subject, expected) in [
            ("self", "self"),
            ("other(second older brother)", "sibling"),
            ("other(younger daughter)", "child"),
            ("other(wife's brother)", "other"),
            ("other(daughter-in-law)", "other"),
        ] {
            assert_eq!(bucket(&Subject::parse(subject)), expected, "{subject}");
        }
    }

    #[test]
    fn silence_about_a_question_is_clean() {
        let line = r#"{"id": "1", "text": "", "facts": [], "not": [{"subject": "self", "term": "peanut"}]}"#;
        check(line, &[], &[("empty_clean", 1.0), ("line_exact", 1.0)]);
        let told = stored("I am allergic to peanuts.");
        check(line, &told, &[("empty_clean", 0.0), ("leak_rate", 1.0)]);
    }

    #[test]
    fn a_term_in_either_language_is_the_same_thing() {
        let told = stored("I am allergic to peanuts.");
        assert!(told.iter().any(|claim| is_about(claim, "花生")));
        assert!(!told.iter().any(|claim| is_about(claim, "芒果")));
    }
}
