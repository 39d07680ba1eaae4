//! What does the authority say to what the legs proposed? Nothing reaches an answer without passing here.

use std::collections::{BTreeMap, BTreeSet};

use anamnesis_domain::attribute::Attributes;
use anamnesis_domain::ids::MemoryId;
use anamnesis_domain::memory::Kind;
use anamnesis_domain::owner::Owner;
use anamnesis_pipeline::stores::{Filter, Hit, MemoryVersion, Order, SubjectFilter};
use futures::future::try_join_all;
use tokio::time::Instant;
use tracing::error;

use crate::answer::{Proposed, Reason, Record};
use crate::fuse::{Evidence, fuse};
use crate::legs::Checked;
use crate::metrics::{DROPPED_TOTAL, FOREIGN_TOTAL, LEG_SECONDS};
use crate::reach::Reach;
use crate::select::Scored;
use crate::service::{Recall, RecallError};
use crate::terms::Terms;
use crate::understand::Understood;

/// Most memories of a kind that the question names outright which join the legs' hits.
const LISTED_MAX: usize = 50;
/// Most memories that are scored where there is no time for the legs: twice as many as are mostly asked for.
const PROTECTED_MAX: usize = 16;
/// Longest chain of predecessors that a history shows.
const HISTORY_MAX: usize = 10;

impl Recall {
    /// The authority's word on what the legs proposed: only versions that it holds itself, admitted by
    /// the same filters. `listed` joins here ([`Recall::listed`]); what came `checked` with the hits
    /// of a leg, by filter, is not asked again.
    pub(crate) async fn confirm(
        &self,
        reach: &Reach,
        fused: Vec<(MemoryId, Evidence)>,
        listed: Vec<Vec<MemoryVersion>>,
        checked: Vec<Checked>,
    ) -> Result<Vec<(MemoryVersion, Evidence)>, RecallError> {
        let started = Instant::now();
        let ids: Vec<MemoryId> = fused.iter().map(|(id, _)| *id).collect();
        let checked = checked
            .into_iter()
            .chain(std::iter::repeat_with(Checked::default));
        let asked = reach.filters.iter().zip(listed).zip(checked);
        let admitted =
            asked.map(|((filter, listed), checked)| self.admitted(filter, &ids, listed, checked));
        let mut found: BTreeMap<MemoryId, MemoryVersion> = BTreeMap::new();
        for versions in try_join_all(admitted).await? {
            found.extend(versions);
        }
        metrics::histogram!(LEG_SECONDS, "leg" => "records")
            .record(started.elapsed().as_secs_f64());
        let missing = ids.iter().filter(|id| !found.contains_key(id)).count() as u64;
        if missing > 0 {
            metrics::counter!(DROPPED_TOTAL, "reason" => "inadmissible").increment(missing);
        }
        let evidence: BTreeMap<MemoryId, Evidence> = fused.into_iter().collect();
        Ok(found
            .into_iter()
            .map(|(id, version)| (version, evidence.get(&id).copied().unwrap_or_default()))
            .collect())
    }

    /// What one filter admits of the legs' hits, with what was listed and what these are in conflict with.
    async fn admitted(
        &self,
        filter: &Filter,
        ids: &[MemoryId],
        listed: Vec<MemoryVersion>,
        already: Checked,
    ) -> Result<BTreeMap<MemoryId, MemoryVersion>, RecallError> {
        let unchecked: Vec<MemoryId> = ids
            .iter()
            .copied()
            .filter(|id| !already.ids.contains(id))
            .collect();
        let mut checked = self.checked(filter, &unchecked).await?;
        let is_proposed = |version: &MemoryVersion| ids.contains(&version.memory.id);
        checked.extend(already.versions.into_iter().filter(is_proposed));
        let versions = own(filter, checked).chain(own(filter, listed));
        let mut found: BTreeMap<MemoryId, MemoryVersion> = versions
            .map(|version| (version.memory.id, version))
            .collect();
        let others: Vec<MemoryId> = found
            .values()
            .filter_map(|version| version.memory.standing.conflict_with)
            .filter(|other| !found.contains_key(other))
            .collect();
        let other_sides = self.checked(filter, &others).await?;
        found.extend(own(filter, other_sides).map(|version| (version.memory.id, version)));
        Ok(found)
    }

    /// What the legs put forward, without what the authority does not admit.
    pub(crate) async fn proposed(
        &self,
        reach: &Reach,
        [text, vector, graph]: [&[Hit]; 3],
    ) -> Result<Proposed, RecallError> {
        let ids: BTreeSet<MemoryId> = [text, vector, graph]
            .into_iter()
            .flatten()
            .map(|hit| hit.memory_id)
            .collect();
        let ids: Vec<MemoryId> = ids.into_iter().collect();
        let mut admitted: BTreeSet<MemoryId> = BTreeSet::new();
        for filter in &reach.filters {
            let checked = self.checked(filter, &ids).await?;
            admitted.extend(own(filter, checked).map(|version| version.memory.id));
        }
        let of = |hits: &[Hit]| -> Vec<MemoryId> {
            let ids = hits.iter().map(|hit| hit.memory_id);
            ids.filter(|id| admitted.contains(id)).collect()
        };
        let fused = fuse(text, vector, graph).into_iter();
        Ok(Proposed {
            text: of(text),
            vector: of(vector),
            graph: of(graph),
            fused: fused
                .map(|(id, _)| id)
                .filter(|id| admitted.contains(id))
                .collect(),
        })
    }

    async fn checked(
        &self,
        filter: &Filter,
        ids: &[MemoryId],
    ) -> Result<Vec<MemoryVersion>, RecallError> {
        if ids.is_empty() {
            return Ok(Vec::new());
        }
        Ok(self.parts.stores.records.check(filter, ids).await?)
    }

    /// Memories of a kind that the question names outright, whatever words they use, by filter: a
    /// question for allergies must not miss one.
    pub(crate) async fn listed(
        &self,
        reach: &Reach,
        kinds: &[Kind],
    ) -> Result<Vec<Vec<MemoryVersion>>, RecallError> {
        try_join_all(
            reach
                .filters
                .iter()
                .map(|filter| self.listed_by(filter, kinds)),
        )
        .await
    }

    /// What a question may be answered from when there is no time for the legs: memories that protect, of
    /// the kinds that it names or of all such kinds, and of these the few that have most to do with it.
    pub(crate) async fn protected(
        &self,
        reach: &Reach,
        understood: &Understood,
    ) -> Result<Vec<Vec<MemoryVersion>>, RecallError> {
        let table = Attributes::shipped();
        let protects = |kind: &Kind| table.kind(*kind).protected;
        let named = understood.terms.kinds_to_list();
        let mut kinds: Vec<Kind> = named.into_iter().filter(protects).collect();
        if kinds.is_empty() {
            kinds = Kind::ALL.iter().copied().filter(protects).collect();
        }
        let mut listed = self.listed(reach, &kinds).await?;
        for versions in &mut listed {
            // Stable: the latest first among those that share as much.
            versions.sort_by_cached_key(|version| {
                std::cmp::Reverse(understood.shared_with(&version.memory))
            });
            versions.truncate(PROTECTED_MAX);
        }
        Ok(listed)
    }

    async fn listed_by(
        &self,
        filter: &Filter,
        kinds: &[Kind],
    ) -> Result<Vec<MemoryVersion>, RecallError> {
        let is_admitted = |kind: &Kind| {
            filter
                .kinds
                .as_ref()
                .is_none_or(|kinds| kinds.contains(kind))
        };
        let kinds: Vec<Kind> = kinds.iter().copied().filter(is_admitted).collect();
        // Kind by kind, so that many recent doses do not crowd out an old allergy.
        let pages = kinds.into_iter().map(async |kind| {
            let filter = Filter {
                kinds: Some(vec![kind]),
                ..filter.clone()
            };
            let records = &self.parts.stores.records;
            records.list(&filter, Order::Valid, LISTED_MAX, None).await
        });
        let pages = try_join_all(pages).await?;
        Ok(pages.into_iter().flat_map(|page| page.versions).collect())
    }

    /// Whether something would have answered that ended before the time asked about. Only looked for
    /// when nothing answers.
    pub(crate) async fn is_over(
        &self,
        reach: &Reach,
        terms: &Terms,
        floor: f64,
    ) -> Result<bool, RecallError> {
        let kinds = terms.kinds_to_list();
        for filter in reach.filters.iter().filter(|f| f.valid_at.is_some()) {
            let ended = Filter {
                valid_at: None,
                ..filter.clone()
            };
            let listed = self.listed_by(&ended, &kinds).await?;
            let is_any = own(&ended, listed).any(|version| {
                let to = version.memory.standing.valid_to;
                to.is_some_and(|to| to <= reach.at)
                    && terms.relevance(&version.memory, 0.0) >= floor
            });
            if is_any {
                return Ok(true);
            }
        }
        Ok(false)
    }

    pub(crate) async fn why_nothing(&self, reach: &Reach) -> Result<Reason, RecallError> {
        for filter in &reach.filters {
            let page = self
                .parts
                .stores
                .records
                .list(filter, Order::Recorded, 1, None)
                .await?;
            if !page.versions.is_empty() {
                return Ok(Reason::BelowFloor);
            }
        }
        Ok(Reason::NothingStored)
    }

    /// What a memory replaced, latest first, along `supersedes`.
    pub(crate) async fn predecessors(
        &self,
        reach: &Reach,
        owner: &Owner,
        version: &MemoryVersion,
    ) -> Result<Vec<Record>, RecallError> {
        let Some(filter) = reach.filters.first() else {
            return Ok(Vec::new());
        };
        let filter = Filter {
            valid_at: None,
            time_range: None,
            kinds: Some(reach.readable.clone()),
            context_tags: None,
            subject: SubjectFilter::Only(version.memory.claim.subject.clone()),
            ..filter.clone()
        };
        let mut chain: Vec<MemoryVersion> = Vec::new();
        let mut next = version.memory.supersedes.clone();
        while !next.is_empty() && chain.len() < HISTORY_MAX {
            let known = |id: &MemoryId| chain.iter().any(|version| version.memory.id == *id);
            next.retain(|id| !known(id) && *id != version.memory.id);
            let found: Vec<_> = own(
                &filter,
                self.parts.stores.records.check(&filter, &next).await?,
            )
            .collect();
            next = found
                .iter()
                .flat_map(|version| version.memory.supersedes.iter().copied())
                .collect();
            chain.extend(found);
        }
        chain.sort_by_key(|version| {
            (
                std::cmp::Reverse(version.memory.standing.valid_from),
                version.memory.id,
            )
        });
        chain.truncate(HISTORY_MAX);
        Ok(chain
            .iter()
            .map(|version| Record::of(owner, &version.memory))
            .collect())
    }
}

/// The last gate: whatever a store gave, only the owner's own and admitted versions pass. A foreign one
/// is a violation of isolation, counted and told.
pub(crate) fn own(
    filter: &Filter,
    versions: Vec<MemoryVersion>,
) -> impl Iterator<Item = MemoryVersion> {
    versions.into_iter().filter(move |version| {
        if version.owner != filter.scope.key() {
            metrics::counter!(FOREIGN_TOTAL).increment(1);
            metrics::counter!(DROPPED_TOTAL, "reason" => "foreign").increment(1);
            error!("the authority gave a foreign record to a recall; it was dropped");
            return false;
        }
        let is_admitted = filter.admits(&version.facets());
        if !is_admitted {
            metrics::counter!(DROPPED_TOTAL, "reason" => "inadmissible").increment(1);
        }
        is_admitted
    })
}

/// Both sides of an open conflict are as relevant as the one that matches better, and each names the
/// other.
pub(crate) fn show_both_sides(scored: &mut [Scored]) {
    let pairs: Vec<(MemoryId, MemoryId)> = scored
        .iter()
        .filter_map(|one| {
            Some((
                one.version.memory.id,
                one.version.memory.standing.conflict_with?,
            ))
        })
        .collect();
    for (one, other) in pairs {
        let (mut relevance, mut strength) = (0.0f64, 0.0f64);
        for side in scored
            .iter()
            .filter(|scored| [one, other].contains(&scored.version.memory.id))
        {
            relevance = relevance.max(side.score.relevance);
            strength = strength.max(side.score.strength);
        }
        for scored in scored.iter_mut() {
            let id = scored.version.memory.id;
            if id != one && id != other {
                continue;
            }
            scored.score.raise(relevance, strength);
            let names = if id == one { other } else { one };
            scored
                .version
                .memory
                .standing
                .conflict_with
                .get_or_insert(names);
        }
    }
}

#[cfg(test)]
mod tests {
    use anamnesis_domain::memory::Status;
    use anamnesis_domain::owner::OwnerScope;
    use anamnesis_domain::time::{AsOf, Known};
    use anamnesis_pipeline::stores::{Cut, current};

    use super::*;
    use crate::fixture::{at, claim, memory, owner, version};

    #[test]
    fn a_foreign_or_inadmissible_version_never_passes() {
        let scope = OwnerScope::of_log_record(owner("p1").1);
        let as_of = AsOf {
            valid: at("2026-01-01T00:00:00Z"),
            known: Known::Latest,
        };
        let filter = current(scope, Cut(9), as_of);
        let mut mine = version(memory(claim(Kind::Fact, "mine")), 1);
        mine.owner = scope.key();
        let mut restricted = mine.clone();
        restricted.memory.standing.status = Status::Restricted;
        let mut later = mine.clone();
        later.recorded_from = 9;
        let mut foreign = mine.clone();
        foreign.owner = owner("p2").1;
        let passed: Vec<_> = own(&filter, vec![foreign, restricted, later, mine.clone()]).collect();
        assert_eq!(passed, [mine]);
    }
}
