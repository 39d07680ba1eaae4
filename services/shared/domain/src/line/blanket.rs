//! "I have no allergies" beside a named allergy: what is said of everything meets what is said of one.
//!
//! A denial of everything never ends a named fact: while one holds, the denial waits for a person, and
//! both are shown as in conflict. A named fact that begins later ends the denial.

use super::records::Records;
use super::{ALLERGY, Derived, EVERY_DRUG, EVERYTHING, follow_to_representatives, take_off, walk};
use crate::attribute::Attributes;
use crate::ids::MemoryId;
use crate::input::Verdict;
use crate::memory::{EntityKind, Polarity, Standing, Status};
use crate::state::Entry;
use crate::time::Timestamp;

/// Derives a line that is about everything. `named` are the claims of the attribute's other lines, whose
/// standings are derived.
pub(super) fn derive(
    entries: &[&Entry],
    named: &[&Entry],
    records: &Records<'_>,
    attributes: &Attributes,
    derived: &mut Derived,
) {
    let standing = take_off(entries, records, &mut derived.standings);
    let turns = turns(named, derived);
    // Denials with nothing begun or ended between them are one statement; others are each their own.
    let mut parts: Vec<(usize, Vec<&Entry>)> = Vec::new();
    let mut sorted = standing;
    sorted.sort_by_key(|entry| (entry.claim.valid_from, entry.id));
    for entry in sorted {
        let part = turns.partition_point(|turn| *turn <= entry.claim.valid_from);
        match parts.last_mut() {
            Some((last, of)) if *last == part => of.push(entry),
            Some(_) | None => parts.push((part, vec![entry])),
        }
    }
    let mut before: Option<MemoryId> = None;
    for (_, part) in &parts {
        walk(part, attributes, derived);
        let denials: Vec<&Entry> = part
            .iter()
            .copied()
            .filter(|entry| is_denial(entry, derived))
            .collect();
        for denial in denials {
            meet(denial, named, attributes, derived);
        }
        before = close_before(before, part, derived);
    }
    follow_to_representatives(entries, &mut derived.standings);
    for entry in entries.iter().chain(named) {
        like_its_memory(entry, derived);
    }
}

/// What only confirms a memory stands as the memory does.
fn like_its_memory(entry: &Entry, derived: &mut Derived) {
    let Some(of) = derived
        .standings
        .get(&entry.id)
        .and_then(|own| own.confirms)
    else {
        return;
    };
    let Some(memory) = derived.standings.get(&of).cloned() else {
        return;
    };
    if let Some(own) = derived.standings.get_mut(&entry.id) {
        *own = Standing {
            confirms: own.confirms,
            rule: own.rule.clone(),
            ..memory
        };
    }
}

/// When named facts begin and end, ascending.
fn turns(named: &[&Entry], derived: &Derived) -> Vec<Timestamp> {
    let mut turns = Vec::new();
    for entry in named {
        if let Some(standing) = named_standing(entry, derived) {
            turns.push(standing.valid_from);
            turns.extend(standing.valid_to);
        }
    }
    turns.sort_unstable();
    turns
}

/// The standing of a named fact that held at some time; none of what only confirms, waits or was wrong.
fn named_standing<'d>(entry: &Entry, derived: &'d Derived) -> Option<&'d Standing> {
    let standing = derived.standings.get(&entry.id)?;
    let held = matches!(standing.status, Status::Active | Status::Superseded)
        && standing.confirms.is_none()
        && entry.hidden_as().is_none()
        && entry.claim.polarity == Polarity::Positive;
    held.then_some(standing)
}

fn is_denial(entry: &Entry, derived: &Derived) -> bool {
    entry.claim.polarity == Polarity::Negative
        && derived.standings.get(&entry.id).is_some_and(|standing| {
            standing.status == Status::Active && standing.confirms.is_none()
        })
}

/// Whether the denial is about what the claim names.
fn covers(denial: &Entry, entry: &Entry, attributes: &Attributes) -> bool {
    let denied = denial.claim.value.as_deref().unwrap_or(EVERYTHING);
    if denied == EVERYTHING {
        return true;
    }
    let entities = &entry.claim.entities;
    if entities.iter().any(|one| one.kind == EntityKind::Drug) {
        return denied == EVERY_DRUG;
    }
    if entry.claim.attribute.as_deref() != Some(ALLERGY) {
        return false;
    }
    let name = entry.claim.value.as_deref().unwrap_or_default();
    let sorts = attributes.sorts_of_allergen(name);
    // What nobody has sorted may be of this sort: a needless question harms nobody, a false all-clear
    // does.
    sorts.is_empty() || sorts.contains(&denied)
}

fn meet(denial: &Entry, named: &[&Entry], attributes: &Attributes, derived: &mut Derived) {
    let from = derived.standings[&denial.id].valid_from;
    let mut of: Vec<(Timestamp, String, &Entry)> = Vec::new();
    for entry in named
        .iter()
        .filter(|entry| covers(denial, entry, attributes))
    {
        if let Some(standing) = named_standing(entry, derived)
            && standing.valid_to.is_none_or(|to| from < to)
        {
            let value = entry.claim.value.clone().unwrap_or_default();
            of.push((standing.valid_from, value, entry));
        }
    }
    of.sort_by(|a, b| (a.0, &a.1, a.2.id).cmp(&(b.0, &b.1, b.2.id)));
    let (held, later): (Vec<_>, Vec<_>) = of.into_iter().partition(|(start, ..)| *start <= from);
    match (denial.verdict(), held.first()) {
        (Some(Verdict::KeepBoth), Some(_)) => (),
        (Some(Verdict::TakeNew), Some(_)) => {
            for (.., entry) in &held {
                if let Some(standing) = derived.standings.get_mut(&entry.id) {
                    standing.status = Status::Superseded;
                    standing.valid_to = Some(from);
                    standing.superseded_by = Some(denial.id);
                    standing.rule = "review_take_new".to_owned();
                }
            }
        }
        (_, Some((.., first))) => {
            for (.., entry) in &held {
                if let Some(standing) = derived.standings.get_mut(&entry.id) {
                    standing.conflict_with.get_or_insert(denial.id);
                }
            }
            if let Some(standing) = derived.standings.get_mut(&denial.id) {
                standing.status = Status::Conflicted;
                standing.conflict_with = Some(first.id);
                standing.rule = "denies_all".to_owned();
            }
        }
        (_, None) => {
            let Some((start, _, next)) = later.first() else {
                return;
            };
            if let Some(standing) = derived.standings.get_mut(&denial.id)
                && standing.valid_to.is_none_or(|to| *start < to)
            {
                standing.status = Status::Superseded;
                standing.valid_to = Some(*start);
                standing.superseded_by = Some(next.id);
            }
        }
    }
}

/// Of two parts only one is in force: what an earlier part left open ends where the later one begins.
/// Gives what this part leaves open.
fn close_before(
    before: Option<MemoryId>,
    part: &[&Entry],
    derived: &mut Derived,
) -> Option<MemoryId> {
    let is_open = |entry: &&&Entry| {
        let standing = &derived.standings[&entry.id];
        standing.status == Status::Active
            && standing.confirms.is_none()
            && standing.valid_to.is_none()
            && entry.verdict().is_none()
    };
    let open = part.iter().find(is_open).map(|entry| entry.id);
    let (Some(before), Some(open)) = (before, open) else {
        return open.or(before);
    };
    let from = derived.standings[&open].valid_from;
    if let Some(standing) = derived.standings.get_mut(&before) {
        standing.status = Status::Superseded;
        standing.valid_to = Some(from);
        standing.superseded_by = Some(open);
    }
    Some(open)
}
