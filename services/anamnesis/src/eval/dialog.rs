//! Talk between doctor and patient: are the kinds of fact found that the note has, and do the names of
//! drugs and allergens survive?

use std::collections::{BTreeMap, BTreeSet};

use anamnesis_domain::memory::{Claim, EntityKind, Kind, Role};
use anamnesis_domain::time::Timestamp;
use anamnesis_extractor::query_entities;
use serde::Deserialize;

use crate::cli::EvalArgs;
use crate::config::{Config, Episodes};
use crate::eval::score::{Confusion, Means, share};
use crate::eval::world::{World, message};
use crate::eval::{Figures, read_lines};
use crate::failure::Failure;

const ON: &str = "2026-03-09T10:00:00+08:00";
const FILES: [&str; 2] = ["validationset.jsonl", "testset-1-mediqa-chat-2023.jsonl"];

#[derive(Deserialize)]
struct Part {
    id: String,
    section: String,
    section_text: String,
    dialogue: String,
}

/// # Errors
/// When the set cannot be read or a node cannot be opened.
pub async fn measure(config: &Config, args: &EvalArgs) -> Result<Figures, Failure> {
    let folder = args.folder("mts-dialog")?;
    let mut parts: Vec<(String, Part)> = Vec::new();
    for file in FILES {
        let read: Vec<Part> = read_lines(&folder.join(file))?;
        let name = file.split('-').next().unwrap_or(file);
        parts.extend(read.into_iter().map(|part| {
            let id = format!("{}-{}", name.trim_end_matches(".jsonl"), part.id);
            (id, part)
        }));
    }
    parts.truncate(args.limit.unwrap_or(usize::MAX));
    let mut world = World::open(config, "mts-dialog", Episodes::All, None).await?;
    let at = Timestamp::parse(ON).map_err(Failure::wrong_use)?;
    let mut turns = Vec::new();
    for (id, part) in &parts {
        let owner = world.owner(id)?;
        for (n, (role, words)) in spoken(&part.dialogue).into_iter().enumerate() {
            let at = at.plus_millis(n as i64 * 1_000);
            turns.push(message(&owner, format!("{id}-{n}"), role, at, &words));
        }
    }
    world.say(turns).await?;

    let mut confusion = Confusion::default();
    let mut any: BTreeMap<&'static str, Confusion> = BTreeMap::new();
    let mut means = Means::default();
    for (id, part) in &parts {
        let owner = world.owner(id)?;
        let memories = world.memories(&owner).await?.into_iter();
        let facts: Vec<Claim> = memories
            .map(|memory| memory.claim)
            .filter(|claim| claim.kind != Kind::Episode)
            .collect();
        let right = class_of_section(&part.section);
        let classes: Vec<Option<&'static str>> = facts
            .iter()
            .map(|claim| class_of_kind(claim.kind))
            .collect();
        confusion.add(most(&classes), right);
        for class in CLASSES {
            let is_told = classes.contains(&Some(class));
            let is_right = right == Some(class);
            let any = any.entry(class).or_default();
            any.add(is_told.then_some(class), is_right.then_some(class));
        }
        means.add("dialogue_coverage", share(!facts.is_empty()));
        let told: BTreeSet<String> = facts.iter().flat_map(names).collect();
        for name in named(&part.section_text) {
            means.add("names_kept", share(told.contains(&name)));
        }
    }
    let mut figures = Figures {
        n: parts.len(),
        model: world.node.embed.identity().to_string(),
        ..Figures::default()
    };
    figures.put(&means);
    let coverage = world.coverage().await?;
    figures.metrics.insert("coverage".to_owned(), coverage);
    figures
        .metrics
        .insert("macro_f1".to_owned(), confusion.macro_f1());
    for (class, f1) in confusion.f1() {
        figures.metrics.insert(format!("f1.{class}"), f1);
    }
    for (class, any) in any {
        let f1 = any.f1().get(class).copied().unwrap_or(0.0);
        figures.metrics.insert(format!("f1_any.{class}"), f1);
    }
    figures.notes.push(
        "macro_f1, f1: one class per dialogue, that of most of its facts; f1_any: a class is told when \
         any fact is of it"
            .to_owned(),
    );
    world.close().await;
    Ok(figures)
}

const ALLERGY: &str = "allergy";
const MEDICATION: &str = "medication";
const HISTORY: &str = "history";
const CLASSES: [&str; 3] = [ALLERGY, MEDICATION, HISTORY];

fn class_of_section(section: &str) -> Option<&'static str> {
    match section {
        "ALLERGY" => Some(ALLERGY),
        "MEDICATIONS" => Some(MEDICATION),
        "PASTMEDICALHX" | "PASTSURGICAL" | "FAM/SOCHX" => Some(HISTORY),
        _ => None,
    }
}

/// Conditions and operations, the owner's or a relative's, and habits make up a history.
fn class_of_kind(kind: Kind) -> Option<&'static str> {
    match kind {
        Kind::Allergy | Kind::Contraindication => Some(ALLERGY),
        Kind::Medication => Some(MEDICATION),
        Kind::Condition | Kind::Procedure | Kind::Fact => Some(HISTORY),
        Kind::Measurement
        | Kind::Preference
        | Kind::Event
        | Kind::Constraint
        | Kind::Policy
        | Kind::Lesson
        | Kind::Episode => None,
    }
}

/// The class of most facts; of equally many the rarer in such talk, in the order of [`CLASSES`].
fn most(classes: &[Option<&'static str>]) -> Option<&'static str> {
    let count = |class: &str| classes.iter().filter(|one| **one == Some(class)).count();
    let best = CLASSES.iter().map(|class| count(class)).max()?;
    let found = CLASSES.into_iter().find(|class| count(class) == best);
    found.filter(|_| best > 0)
}

/// Canonical names of the drugs and allergens that a text names, as far as the lexicons know them.
fn named(text: &str) -> BTreeSet<String> {
    let entities = query_entities(text).into_iter();
    entities
        .filter(|one| matches!(one.kind, EntityKind::Drug | EntityKind::Allergen))
        .map(|one| one.name.expose().to_owned())
        .collect()
}

fn names(claim: &Claim) -> Vec<String> {
    let entities = claim
        .entities
        .iter()
        .map(|one| one.name.expose().to_owned());
    entities.chain(claim.value.clone()).collect()
}

/// Who says what, line by line; a line without a speaker goes on with the one before.
fn spoken(dialogue: &str) -> Vec<(Role, String)> {
    let mut turns: Vec<(Role, String)> = Vec::new();
    for line in dialogue
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty())
    {
        let speaker = line.split_once(':').and_then(|(speaker, words)| {
            let role = match speaker
                .trim_start_matches('"')
                .trim_end_matches(char::is_numeric)
            {
                "Doctor" | "Guest_clinician" | "Guest_clinician_" => Role::Clinician,
                "Patient" | "Guest_family" | "Guest_family_" => Role::User,
                _ => return None,
            };
            Some((role, words.trim().to_owned()))
        });
        match (speaker, turns.last_mut()) {
            (Some(turn), _) => turns.push(turn),
            (None, Some((_, words))) => {
                words.push('\n');
                words.push_str(line);
            }
            (None, None) => turns.push((Role::User, line.to_owned())),
        }
    }
    turns.retain(|(_, words)| !words.is_empty());
    turns
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_given_to_their_speakers() {
        let turns = spoken("Doctor: Any pain? \n Patient: No.\nNot now.\nGuest_family_2: None.\n");
        let expected = [
            (Role::Clinician, "Any pain?"),
            (Role::User, "No.\nNot now."),
            (Role::User, "None."),
        ];
        let turns: Vec<(Role, &str)> = turns.iter().map(|(r, w)| (*r, w.as_str())).collect();
        assert_eq!(turns, expected);
    }

    #[test]
    fn a_dialogue_is_of_the_class_of_most_facts() {
        let check = |classes: &[Option<&'static str>], expected| {
            assert_eq!(most(classes), expected, "{classes:?}");
        };
        check(&[], None);
        check(&[None, None], None);
        check(&[Some(HISTORY), None, Some(ALLERGY)], Some(ALLERGY));
        check(
            &[Some(HISTORY), Some(HISTORY), Some(MEDICATION)],
            Some(HISTORY),
        );
    }
}
