//! Which words name a drug, an allergen, a condition, a test …, in both languages and by brand, and
//! what is each of them called canonically?
//!
//! The words are data (`data/*.json`): canonical name, then the other names. A word that the lexicon
//! does not know is still caught by the open slots of the patterns; it is then its own name.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use aho_corasick::{AhoCorasick, MatchKind};

use crate::fold::{fold, is_han};

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Class {
    Drug,
    Allergen,
    Condition,
    /// A complaint that comes and goes.
    Symptom,
    Test,
    Procedure,
    Food,
    Occupation,
    /// `acute`, `viral`, `left`, `knee`: part of a condition's name, with its place in the order in
    /// which English names them.
    Modifier(u8),
}

/// A known word in a text.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Mention {
    pub(crate) start: usize,
    pub(crate) end: usize,
    pub(crate) class: Class,
    pub(crate) name: &'static str,
}

struct Lexicon {
    automaton: AhoCorasick,
    /// By pattern number of the automaton.
    entries: Vec<Vec<(Class, &'static str)>>,
    exact: BTreeMap<String, Vec<(Class, &'static str)>>,
    /// Every word in the order of its entry.
    surfaces: Vec<(Class, &'static str, String)>,
}

type Table = BTreeMap<String, Vec<String>>;

static LEXICON: LazyLock<Lexicon> = LazyLock::new(|| {
    let tables = [
        (Class::Drug, include_str!("../data/drugs.json")),
        (Class::Condition, include_str!("../data/conditions.json")),
        (Class::Symptom, include_str!("../data/symptoms.json")),
        (Class::Test, include_str!("../data/tests.json")),
        (Class::Procedure, include_str!("../data/procedures.json")),
        (Class::Allergen, include_str!("../data/allergens.json")),
        (Class::Food, include_str!("../data/foods.json")),
        (Class::Occupation, include_str!("../data/occupations.json")),
    ];
    let mut exact: BTreeMap<String, Vec<(Class, &'static str)>> = BTreeMap::new();
    let mut words: Vec<(Class, &'static str, String)> = Vec::new();
    let mut add = |class: Class, name: &'static str, surface: &str| {
        words.push((class, name, fold(surface)));
        let known = exact.entry(fold(surface)).or_default();
        if known.iter().all(|(other, _)| *other != class) {
            known.push((class, name));
        }
    };
    for (class, json) in tables {
        let table: Table = serde_json::from_str(json).expect("the lexicon is checked by a test");
        for (name, surfaces) in table {
            let name: &'static str = Box::leak(name.into_boxed_str());
            add(class, name, name);
            surfaces
                .iter()
                .for_each(|surface| add(class, name, surface));
        }
    }
    let modifiers: Vec<(String, Vec<String>)> =
        serde_json::from_str(include_str!("../data/modifiers.json"))
            .expect("the lexicon is checked by a test");
    for (rank, (name, surfaces)) in modifiers.into_iter().enumerate() {
        let name: &'static str = Box::leak(name.into_boxed_str());
        let class = Class::Modifier(u8::try_from(rank).unwrap_or(u8::MAX));
        add(class, name, name);
        surfaces
            .iter()
            .for_each(|surface| add(class, name, surface));
    }
    // One Han character stands inside too many other words to be looked for in running text.
    let is_searched = |surface: &str| surface.chars().count() > 1;
    let (surfaces, entries): (Vec<_>, Vec<_>) = exact
        .iter()
        .filter(|(surface, _)| is_searched(surface))
        .map(|(surface, entry)| (surface.clone(), entry.clone()))
        .unzip();
    let automaton = AhoCorasick::builder()
        .match_kind(MatchKind::LeftmostLongest)
        .build(&surfaces)
        .expect("some thousand short words fit an automaton");
    Lexicon {
        automaton,
        entries,
        exact,
        surfaces: words,
    }
});

/// Known words of a folded text, longest first at each place, without overlaps; a word of several
/// classes is given once per class.
pub(crate) fn mentions(folded: &str) -> Vec<Mention> {
    let mut found = Vec::new();
    for hit in LEXICON.automaton.find_iter(folded) {
        if !stands_alone(folded, hit.start(), hit.end()) {
            continue;
        }
        let entry = &LEXICON.entries[hit.pattern().as_usize()];
        found.extend(entry.iter().map(|(class, name)| Mention {
            start: hit.start(),
            end: hit.end(),
            class: *class,
            name,
        }));
    }
    found
}

/// A Latin word is not part of a longer one; a plural ending is allowed.
fn stands_alone(text: &str, start: usize, end: usize) -> bool {
    let is_latin = |c: char| c.is_alphanumeric() && !is_han(c);
    let first_is_latin = text[start..].chars().next().is_some_and(is_latin);
    if first_is_latin && text[..start].chars().next_back().is_some_and(is_latin) {
        return false;
    }
    let last_is_latin = text[..end].chars().next_back().is_some_and(is_latin);
    if !last_is_latin {
        return true;
    }
    let rest = &text[end..];
    let rest = rest
        .strip_prefix("es")
        .filter(|r| !r.starts_with(is_latin))
        .unwrap_or(rest);
    let rest = rest
        .strip_prefix('s')
        .filter(|r| !r.starts_with(is_latin))
        .unwrap_or(rest);
    !rest.starts_with(is_latin)
}

/// The canonical name of a whole phrase in one of `classes` (the first that knows it).
pub(crate) fn lookup(phrase: &str, classes: &[Class]) -> Option<&'static str> {
    lookup_class(phrase, classes).map(|(_, name)| name)
}

pub(crate) fn lookup_class(phrase: &str, classes: &[Class]) -> Option<(Class, &'static str)> {
    let phrase = phrase.trim();
    let direct = |text: &str| {
        let known = LEXICON.exact.get(text)?;
        classes
            .iter()
            .find_map(|class| known.iter().find(|(other, _)| other == class).copied())
    };
    direct(phrase)
        .or_else(|| direct(strip_leading(phrase)))
        .or_else(|| direct(&singular(strip_leading(phrase))))
        .or_else(|| direct(strip_trailing_han(phrase)))
}

/// A known word as its lexicon calls it: in Chinese by the first Chinese word of its entry.
pub(crate) fn named_in(mention: &Mention, is_chinese: bool) -> String {
    let chinese = CHINESE_NAMES.get(&(mention.class, mention.name));
    match chinese.filter(|_| is_chinese) {
        Some(name) => name.clone(),
        None => mention.name.to_owned(),
    }
}

static CHINESE_NAMES: LazyLock<BTreeMap<(Class, &'static str), String>> = LazyLock::new(|| {
    let mut names: BTreeMap<(Class, &'static str), String> = BTreeMap::new();
    for (class, name, surface) in &LEXICON.surfaces {
        if surface.chars().all(is_han) {
            names
                .entry((*class, *name))
                .or_insert_with(|| surface.clone());
        }
    }
    names
});

static DRUG_CLASSES: LazyLock<Table> = LazyLock::new(|| {
    serde_json::from_str(include_str!("../data/drug_classes.json"))
        .expect("the lexicon is checked by a test")
});

/// The classes that a drug belongs to, by canonical names: what is said of penicillins bears on
/// amoxicillin.
pub(crate) fn drug_classes(drug: &str) -> impl Iterator<Item = &'static str> {
    DRUG_CLASSES
        .iter()
        .filter(move |(_, members)| members.iter().any(|member| member == drug))
        .map(|(class, _)| class.as_str())
}

/// A word that is a modifier whatever else it may be.
pub(crate) fn modifier(word: &str) -> Option<(u8, &'static str)> {
    let known = LEXICON.exact.get(word)?;
    known.iter().find_map(|(class, name)| match class {
        Class::Modifier(rank) => Some((*rank, *name)),
        Class::Drug
        | Class::Allergen
        | Class::Condition
        | Class::Symptom
        | Class::Test
        | Class::Procedure
        | Class::Food
        | Class::Occupation => None,
    })
}

/// Without an article or quantifier.
pub(crate) fn strip_leading(phrase: &str) -> &str {
    const LEADING: [&str; 16] = [
        "this ", "that ", "a ", "an ", "the ", "any ", "all ", "some ", "my ", "most ", "certain ",
        "other ", "eating ", "raw ", "这种", "所有",
    ];
    let mut rest = phrase.trim();
    while let Some(shorter) = LEADING.iter().find_map(|word| rest.strip_prefix(word)) {
        rest = shorter.trim_start();
    }
    rest
}

fn strip_trailing_han(phrase: &str) -> &str {
    const TRAILING: [&str; 10] = [
        "类药物",
        "类药品",
        "类药",
        "类抗生素",
        "类",
        "药物",
        "制品",
        "之类的",
        "之类",
        "等",
    ];
    TRAILING
        .iter()
        .find_map(|word| phrase.strip_suffix(word))
        .unwrap_or(phrase)
}

/// A light English singular: enough for `kiwis`, `cherries`, `peaches`.
pub(crate) fn singular(word: &str) -> String {
    let is_plain = word.chars().next_back().is_some_and(|c| c == 's')
        && !word.ends_with("ss")
        && !word.ends_with("us")
        && !word.ends_with("is")
        && word.len() > 3;
    if !is_plain {
        return word.to_owned();
    }
    if let Some(stem) = word.strip_suffix("ies").filter(|stem| stem.len() > 2) {
        return format!("{stem}y");
    }
    for ending in ["ches", "shes", "xes", "oes"] {
        if word.ends_with(ending) {
            return word[..word.len() - 2].to_owned();
        }
    }
    word[..word.len() - 1].to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: &str) {
        let names: Vec<&str> = mentions(&fold(text)).iter().map(|m| m.name).collect();
        assert_eq!(names.join(","), expected, "{text}");
    }

    #[test]
    fn both_languages_and_brands_meet_in_one_name() {
        check(
            "二甲双胍 Glucophage metformin 格华止",
            "metformin,metformin,metformin,metformin",
        );
        check("青霉素V", "penicillin v");
        check("头孢曲松钠", "ceftriaxone");
    }

    #[test]
    fn a_short_word_is_not_found_inside_a_longer_one() {
        check("although", "");
        check("alternate salt", "");
        check("ALT", "alanine aminotransferase");
    }

    #[test]
    fn a_phrase_is_looked_up_without_article_plural_or_class_word() {
        let classes = [Class::Allergen, Class::Drug];
        for (phrase, name) in [
            ("peanuts", "peanut"),
            ("the mangoes", "mango"),
            ("青霉素类药物", "penicillin"),
            ("鱼", "fish"),
        ] {
            assert_eq!(lookup(phrase, &classes), Some(name), "{phrase}");
        }
        assert_eq!(lookup("dragonfruit", &classes), None);
    }

    /// Or "no food allergies" would put every named allergy in doubt.
    #[test]
    fn every_allergen_is_a_drug_or_of_a_known_sort() {
        let table = anamnesis_domain::attribute::Attributes::shipped();
        let is_general = |name: &str| matches!(name, "any" | "drug" | "food" | "environment");
        for (class, name) in LEXICON.exact.values().flatten() {
            let is_allergen = matches!(class, Class::Allergen | Class::Food);
            if is_allergen && !is_general(name) && lookup(name, &[Class::Drug]).is_none() {
                assert!(!table.sorts_of_allergen(name).is_empty(), "{name}");
            }
        }
    }

    #[test]
    fn every_class_and_member_is_a_known_drug() {
        for (class, members) in DRUG_CLASSES.iter() {
            for name in members.iter().chain([class]) {
                assert_eq!(lookup(name, &[Class::Drug]), Some(name.as_str()));
            }
        }
    }

    #[test]
    fn the_lexicon_is_broad() {
        let count = |class: Class| {
            let mut names: Vec<&str> = LEXICON
                .exact
                .values()
                .flatten()
                .filter(|(other, _)| *other == class)
                .map(|(_, name)| *name)
                .collect();
            names.sort_unstable();
            names.dedup();
            names.len()
        };
        assert!(count(Class::Drug) >= 250);
        assert!(count(Class::Condition) >= 200);
        assert!(count(Class::Allergen) >= 80);
        assert!(count(Class::Test) + count(Class::Procedure) >= 80);
    }
}
