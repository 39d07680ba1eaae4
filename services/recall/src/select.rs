//! Which of the scored memories are the answer, and in which order?

use std::collections::{BTreeMap, BTreeSet};

use anamnesis_domain::ids::{EventTag, MemoryId};
use anamnesis_domain::memory::{Kind, Status};
use anamnesis_domain::rank::RECENCY_PART;
use anamnesis_pipeline::stores::MemoryVersion;

use crate::latest::latest_first;
use crate::score::Score;

/// Most memories without protection that a context gets by default.
pub const INJECTED_MAX: usize = 5;
/// How many candidates a context chooses from.
pub const CANDIDATES: usize = 12;

#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Scored {
    pub version: MemoryVersion,
    pub score: Score,
}

/// The answer: what clears the floor, best first, at most `top_k`.
///
/// - An episode does not stand beside a memory that was distilled from it and answers about as well: one
///   thing said once is counted once.
/// - Half of the places are reserved for protected facts, chosen without regard to recency: an old
///   allergy that matches is never buried by what was said last week.
/// - Of the owner's own turns that answer about as well the latest stands first, when the question asks for
///   how things stand ([`crate::latest`]).
/// - Equal scores are ordered by content, then by id, so the same state gives the same answer.
pub(crate) fn select(
    scored: Vec<Scored>,
    floor: f64,
    top_k: usize,
    is_about_now: bool,
) -> Vec<Scored> {
    let mut matching: Vec<Scored> = scored
        .into_iter()
        .filter(|one| one.score.relevance >= floor)
        .collect();
    drop_told_episodes(&mut matching);
    sort(&mut matching, |one| one.score.final_score);
    newcomers_behind(&mut matching);
    if is_about_now {
        latest_first(&mut matching);
    }
    if matching.len() <= top_k {
        return matching;
    }
    let mut protected: Vec<&Scored> = matching
        .iter()
        .filter(|one| one.version.memory.protected)
        .collect();
    let timeless = |one: &Scored| one.score.final_score - RECENCY_PART * one.score.recency;
    protected.sort_by(|a, b| {
        timeless(b)
            .total_cmp(&timeless(a))
            .then_with(|| by_content(a, b))
    });
    let mut taken: BTreeSet<_> = protected
        .into_iter()
        .take(top_k / 2)
        .map(|one| one.version.memory.id)
        .collect();
    for one in &matching {
        if taken.len() == top_k {
            break;
        }
        taken.insert(one.version.memory.id);
    }
    matching.retain(|one| taken.contains(&one.version.memory.id));
    matching
}

/// What of an answer a context is given: the protected ones, and at most [`INJECTED_MAX`] others.
pub(crate) fn injected<T>(answer: Vec<T>, is_protected: impl Fn(&T) -> bool) -> (Vec<T>, Vec<T>) {
    let mut others = 0;
    answer.into_iter().partition(|one| {
        let is_protected = is_protected(one);
        others += usize::from(!is_protected);
        is_protected || others <= INJECTED_MAX
    })
}

fn drop_told_episodes(matching: &mut Vec<Scored>) {
    let event = |one: &Scored| one.version.memory.claim.source.event;
    let is_episode = |one: &Scored| one.version.memory.claim.kind == Kind::Episode;
    let mut tellers: BTreeMap<EventTag, Vec<Score>> = BTreeMap::new();
    for one in matching.iter().filter(|one| !is_episode(one)) {
        tellers.entry(event(one)).or_default().push(one.score);
    }
    let is_told = |turn: &Scored| {
        let mut own = tellers.get(&event(turn)).into_iter().flatten();
        own.any(|memory| memory.speaks_for(&turn.score))
    };
    matching.retain(|one| !is_episode(one) || !is_told(one));
}

/// What is in conflict as the newcomer stands right behind what it contradicts, however new it is: who
/// reads only the first line must not read a tenfold dose as the dose.
fn newcomers_behind(sorted: &mut Vec<Scored>) {
    let pairs: Vec<(MemoryId, MemoryId)> = sorted
        .iter()
        .filter_map(|one| {
            let other = one.version.memory.standing.conflict_with?;
            let held = sorted.iter().find(|held| held.version.memory.id == other)?;
            is_newcomer(one, held).then_some((one.version.memory.id, other))
        })
        .collect();
    for (newcomer, held) in pairs {
        let place = |id| sorted.iter().position(|one| one.version.memory.id == id);
        if let (Some(at), Some(behind)) = (place(newcomer), place(held))
            && at < behind
        {
            let held = sorted.remove(behind);
            sorted.insert(at, held);
        }
    }
}

fn is_newcomer(one: &Scored, held: &Scored) -> bool {
    let is_open = |scored: &Scored| scored.version.memory.standing.status == Status::Conflicted;
    match (is_open(one), is_open(held)) {
        (true, false) => true,
        (false, _) => false,
        (true, true) => {
            let since =
                |scored: &Scored| (scored.version.memory.recorded_at, scored.version.memory.id);
            since(one) > since(held)
        }
    }
}

fn sort(scored: &mut [Scored], by: impl Fn(&Scored) -> f64) {
    scored.sort_by(|a, b| by(b).total_cmp(&by(a)).then_with(|| by_content(a, b)));
}

fn by_content(a: &Scored, b: &Scored) -> std::cmp::Ordering {
    let (a, b) = (&a.version.memory, &b.version.memory);
    a.claim.text.cmp(&b.claim.text).then(a.id.cmp(&b.id))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{claim, memory, version};
    use anamnesis_domain::memory::Memory;

    fn scored(memory: Memory, relevance: f64, recency: f64) -> Scored {
        let protected = if memory.protected { 0.05 } else { 0.0 };
        let importance = memory.claim.importance.share();
        Scored {
            version: version(memory, 1),
            score: Score {
                final_score: 0.90 * relevance + 0.04 * recency + 0.05 * importance + protected,
                relevance,
                recency,
                importance,
                protected,
                ..Score::default()
            },
        }
    }

    fn texts(selected: &[Scored]) -> Vec<&str> {
        selected
            .iter()
            .map(|one| one.version.memory.claim.text.expose())
            .collect()
    }

    #[test]
    fn nothing_below_the_floor_is_returned() {
        let weak = scored(memory(claim(Kind::Fact, "a")), 0.44, 1.0);
        assert!(select(vec![weak], 0.45, 8, false).is_empty());
    }

    #[test]
    fn equal_scores_are_ordered_by_content() {
        let one = |text: &str| scored(memory(claim(Kind::Fact, text)), 0.8, 1.0);
        let forth = select(vec![one("b"), one("a"), one("c")], 0.45, 8, false);
        let back = select(vec![one("c"), one("a"), one("b")], 0.45, 8, false);
        assert_eq!(texts(&forth), ["a", "b", "c"]);
        assert_eq!(texts(&back), texts(&forth));
    }

    #[test]
    fn a_disputed_newcomer_stands_behind_what_it_contradicts() {
        let old = memory(claim(Kind::Medication, "华法林 5 mg"));
        let mut new = memory(claim(Kind::Medication, "华法林 50 mg"));
        new.standing.status = Status::Conflicted;
        new.standing.conflict_with = Some(old.id);
        let mut held = scored(old, 0.8, 0.1);
        held.version.memory.standing.conflict_with = Some(new.id);
        let other = scored(memory(claim(Kind::Medication, "阿司匹林")), 0.8, 0.5);
        let all = vec![scored(new, 0.9, 1.0), held, other];
        let expected = ["华法林 5 mg", "华法林 50 mg", "阿司匹林"];
        assert_eq!(texts(&select(all.clone(), 0.45, 8, false)), expected);
        let back = all.into_iter().rev().collect();
        assert_eq!(texts(&select(back, 0.45, 8, false)), expected);
    }

    #[test]
    fn an_old_allergy_is_not_buried_by_recent_memories() {
        let mut allergy = memory(claim(Kind::Allergy, "青霉素过敏"));
        allergy.protected = true;
        let mut all = vec![scored(allergy, 0.5, 0.05)];
        for n in 0..20 {
            let mut order = memory(claim(Kind::Event, &format!("visit {n}")));
            order.protected = true;
            all.push(scored(order, 0.5, 1.0));
            all.push(scored(
                memory(claim(Kind::Fact, &format!("fact {n}"))),
                0.9,
                1.0,
            ));
        }
        let selected = select(all, 0.45, 4, false);
        assert_eq!(selected.len(), 4);
        assert!(
            texts(&selected).contains(&"青霉素过敏"),
            "{:?}",
            texts(&selected)
        );
        assert!(texts(&selected).iter().any(|text| text.starts_with("fact")));
    }

    #[test]
    fn a_turn_and_what_was_distilled_from_it_count_once() {
        let told = claim(Kind::Allergy, "花生过敏");
        let mut turn = claim(Kind::Episode, "我对花生过敏，下周去杭州");
        turn.source = told.source.clone();
        let other = claim(Kind::Episode, "花生酱很好吃");
        let all = vec![
            scored(memory(turn.clone()), 0.9, 1.0),
            scored(memory(told.clone()), 0.8, 1.0),
            scored(memory(other), 0.8, 1.0),
        ];
        assert_eq!(
            texts(&select(all, 0.45, 8, false)),
            ["花生过敏", "花生酱很好吃"]
        );
        // The turn stays when what was distilled from it does not match the question.
        let all = vec![
            scored(memory(turn), 0.9, 1.0),
            scored(memory(told), 0.1, 1.0),
        ];
        assert_eq!(select(all, 0.45, 8, false).len(), 1);
    }

    #[test]
    fn protected_memories_do_not_use_up_the_places_of_others() {
        let (given, withheld) = injected((0..20).collect(), |n| n % 2 == 0);
        assert_eq!(given.len(), 10 + INJECTED_MAX);
        assert_eq!(withheld.len(), 5);
    }
}
