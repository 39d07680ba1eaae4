//! Does a turn still say something that holds?
//!
//! A turn is kept as it was said, so it never ends by itself. What was distilled from it does: a dose is
//! replaced, an address was wrong. A turn whose content is over must not come back as if it were news.

use std::collections::{BTreeMap, BTreeSet};

use anamnesis_domain::ids::{EventTag, MemoryId};
use anamnesis_domain::memory::{Kind, Memory, Status};
use anamnesis_domain::time::Interval;
use anamnesis_pipeline::stores::{Filter, MemoryVersion, SubjectFilter};
use futures::future::try_join_all;

use crate::reach::Reach;
use crate::select::Scored;
use crate::service::{Recall, RecallError};
use crate::terms::Terms;

/// Most single claims that are looked up one by one in a recall. Only those that confirm another memory
/// are, so a recall that reaches this asks about dozens of turns that repeat each other.
const LOOKED_UP_MAX: usize = 50;

/// Turns that must not answer.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Silent {
    /// Nothing that they said about the question holds any more.
    pub over: BTreeSet<MemoryId>,
    /// What they said of the question is among the answers already, as a memory that they made or confirmed.
    pub told: BTreeSet<MemoryId>,
}

impl Silent {
    pub(crate) fn has(&self, id: MemoryId) -> bool {
        self.over.contains(&id) || self.told.contains(&id)
    }
}

/// What was distilled from one turn.
#[derive(Default)]
struct Distilled {
    /// Whether anything was: a turn without memories is all that there is of it.
    is_any: bool,
    /// The memories that hold, themselves or by the memory that they confirm.
    holding: Vec<Memory>,
    over: Vec<Memory>,
}

impl Recall {
    /// Which of the turns among `matching` must not answer. One lookup for each turn that no memory of
    /// its own beside it speaks for, and two for all of them together.
    pub(crate) async fn silent_turns(
        &self,
        reach: &Reach,
        terms: &Terms,
        matching: &[&Scored],
    ) -> Result<Silent, RecallError> {
        let mut silent = Silent::default();
        let is_turn = |one: &&Scored| one.version.memory.claim.kind == Kind::Episode;
        let (turns, answering): (Vec<&Scored>, Vec<&Scored>) =
            matching.iter().copied().partition(is_turn);
        let mut asked_about: Vec<&Scored> = Vec::new();
        for turn in turns {
            let mut own = answering
                .iter()
                .filter(|memory| event_of(memory) == event_of(turn));
            if own.any(|memory| memory.score.speaks_for(&turn.score)) {
                silent.told.insert(turn.version.memory.id);
            } else {
                asked_about.push(turn);
            }
        }
        let turns: Vec<(MemoryId, EventTag)> = asked_about
            .iter()
            .map(|turn| (turn.version.memory.id, event_of(turn)))
            .collect();
        let Some(claims) = reach.filters.first().filter(|_| !turns.is_empty()) else {
            return Ok(silent);
        };
        let distilled = self.distilled(claims, reach, &turns).await?;
        for (turn, distilled) in asked_about.into_iter().zip(distilled) {
            let id = turn.version.memory.id;
            let mut holding = answering.iter().filter(|one| {
                let id = one.version.memory.id;
                distilled.holding.iter().any(|memory| memory.id == id)
            });
            if holding.any(|memory| memory.score.speaks_for(&turn.score)) {
                silent.told.insert(id);
            } else if distilled.is_over(terms) {
                silent.over.insert(id);
            }
        }
        Ok(silent)
    }

    async fn distilled(
        &self,
        claims: &Filter,
        reach: &Reach,
        turns: &[(MemoryId, EventTag)],
    ) -> Result<Vec<Distilled>, RecallError> {
        let records = &self.parts.stores.records;
        let scope = claims.scope;
        let decisions = try_join_all(
            turns
                .iter()
                .map(|(_, event)| records.decision(scope, *event)),
        )
        .await?;
        let ids: Vec<Vec<MemoryId>> = turns
            .iter()
            .zip(decisions)
            .map(|((turn, _), decision)| {
                let decision = decision.filter(|decision| decision.owner == scope.key());
                let ids = decision.map(|decision| decision.memory_ids);
                let mut ids = ids.unwrap_or_default();
                ids.retain(|id| id != turn);
                ids
            })
            .collect();

        let everything = everything(claims);
        let all: BTreeSet<MemoryId> = ids.iter().flatten().copied().collect();
        let mut found = self
            .live(&everything, all.iter().copied().collect())
            .await?;
        // What is not found is erased, or confirms another memory, which then speaks for it.
        let unfound = all.iter().copied().filter(|id| !found.contains_key(id));
        let unfound: Vec<MemoryId> = unfound.take(LOOKED_UP_MAX).collect();
        let histories = try_join_all(unfound.iter().map(|id| records.history(scope, *id))).await?;
        let confirmed: BTreeMap<MemoryId, MemoryId> = unfound
            .into_iter()
            .zip(histories)
            .filter_map(|(id, versions)| {
                let live = versions.into_iter().find(|version| {
                    version.owner == scope.key() && claims.is_live(&version.facets())
                })?;
                Some((id, live.memory.standing.confirms?))
            })
            .collect();
        let others = confirmed
            .values()
            .copied()
            .filter(|id| !found.contains_key(id));
        let others = self.live(&everything, others.collect()).await?;
        found.extend(others);

        let holding = holding(claims, &reach.readable);
        Ok(ids
            .into_iter()
            .map(|ids| {
                let mut distilled = Distilled {
                    is_any: !ids.is_empty(),
                    ..Distilled::default()
                };
                for id in ids {
                    let speaks = confirmed.get(&id).copied().unwrap_or(id);
                    match found.get(&speaks) {
                        Some(version) if holding.admits(&version.facets()) => {
                            distilled.holding.push(version.memory.clone());
                        }
                        Some(version) => distilled.over.push(version.memory.clone()),
                        None => (),
                    }
                }
                distilled
            })
            .collect())
    }

    /// Versions at the cut by id, whatever became of them. They are compared with the question and not
    /// shown.
    async fn live(
        &self,
        everything: &Filter,
        ids: Vec<MemoryId>,
    ) -> Result<BTreeMap<MemoryId, MemoryVersion>, RecallError> {
        if ids.is_empty() {
            return Ok(BTreeMap::new());
        }
        let versions = self.parts.stores.records.check(everything, &ids).await?;
        Ok(crate::authority::own(everything, versions)
            .map(|version| (version.memory.id, version))
            .collect())
    }
}

impl Distilled {
    /// Whether the turn has nothing to say to the question. When a part of what it said holds, the part
    /// that the question is about decides.
    fn is_over(&self, terms: &Terms) -> bool {
        let best = |memories: &[Memory]| {
            let relevance = memories.iter().map(|memory| terms.relevance(memory, 0.0));
            relevance.fold(0.0, f64::max)
        };
        self.is_any && (self.holding.is_empty() || best(&self.over) > best(&self.holding))
    }
}

fn event_of(one: &Scored) -> EventTag {
    one.version.memory.claim.source.event
}

fn everything(claims: &Filter) -> Filter {
    Filter {
        valid_at: None,
        time_range: None,
        kinds: None,
        statuses: Status::ALL.to_vec(),
        subject: SubjectFilter::Any,
        context_tags: None,
        ..claims.clone()
    }
}

/// What keeps a turn alive: whatever would answer at the time asked about, of any kind that may be read
/// and of any person (whom a turn may answer about is another question). What only begins later is not
/// over, and neither is what waits for a person to decide.
fn holding(claims: &Filter, readable: &[Kind]) -> Filter {
    let mut statuses = claims.statuses.clone();
    statuses.push(Status::PendingReview);
    let from_then_on = claims.valid_at.and_then(|at| Interval::new(at, None).ok());
    let is_range = claims.time_range.is_some();
    Filter {
        valid_at: claims.valid_at.filter(|_| is_range),
        time_range: claims.time_range.or(from_then_on),
        kinds: Some(
            readable
                .iter()
                .copied()
                .filter(|kind| *kind != Kind::Episode)
                .collect(),
        ),
        statuses,
        subject: SubjectFilter::Any,
        ..claims.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{Reader, claim, memory};

    fn terms(question: &str) -> Terms {
        Terms::of(question, Vec::new(), &Reader)
    }

    fn check(question: &str, holding: &[&str], over: &[&str], expected: bool) {
        let of = |texts: &[&str]| -> Vec<Memory> {
            texts
                .iter()
                .map(|text| memory(claim(Kind::Fact, text)))
                .collect()
        };
        let distilled = Distilled {
            is_any: !(holding.is_empty() && over.is_empty()),
            holding: of(holding),
            over: of(over),
        };
        assert_eq!(
            distilled.is_over(&terms(question)),
            expected,
            "{question}: {holding:?} {over:?}"
        );
    }

    #[test]
    fn a_turn_is_over_when_what_the_question_is_about_is() {
        check("card number", &[], &[], false);
        check("card number", &[], &["the card ends in 8812"], true);
        check("card number", &["the card ends in 3047"], &[], false);
        check(
            "card number",
            &["I live in Suzhou"],
            &["the card ends in 8812"],
            true,
        );
        check(
            "where do I live",
            &["I live in Suzhou"],
            &["the card ends in 8812"],
            false,
        );
        check(
            "what did I say",
            &["I live in Suzhou"],
            &["the card ends in 8812"],
            false,
        );
    }
}
