//! The ports over the shards: what is asked for each call, and what of the answer is kept.

use std::collections::BTreeMap;
use std::sync::Arc;

use anamnesis_domain::ids::{EventTag, MemoryId, OwnerKey};
use anamnesis_domain::memory::{Kind, Status};
use anamnesis_domain::owner::OwnerScope;
use anamnesis_domain::time::Known;
use anamnesis_pipeline::stores::{
    Change, CheckedAnswer, Checkpoint, Cut, DecisionRow, Filter, LegAnswer, MemoryVersion, Order,
    OwnerView, Page, Projection, Records, RowDigest, Store, StoreError, TextIndex,
};
use async_trait::async_trait;

use super::client::Shards;
use super::config::unusable;
use super::wire::{self, Answer, Question, known_at, unpack};

pub(super) struct ShardRecords(Arc<Shards>);

pub(super) struct ShardText(Arc<Shards>);

impl ShardRecords {
    pub(super) fn new(shards: Arc<Shards>) -> Self {
        Self(shards)
    }

    async fn ask(&self, scope: OwnerScope, question: Question) -> Result<Answer, StoreError> {
        let asked = self.0.ask_of_owner(Store::Records, scope.key(), question);
        Ok(asked.await?.answer)
    }
}

impl ShardText {
    pub(super) fn new(shards: Arc<Shards>) -> Self {
        Self(shards)
    }

    async fn ask(
        &self,
        filter: &Filter,
        terms: &[String],
        top: usize,
        with_check: bool,
    ) -> Result<CheckedAnswer, StoreError> {
        let question = Question::Search {
            filter: wire::Filter::of(filter),
            terms: terms.to_vec(),
            top: top as u64,
            with_check,
        };
        let asked = self
            .0
            .ask_of_owner(Store::Text, filter.scope.key(), question);
        let Answer::Hits {
            hits,
            position,
            checked,
        } = asked.await?.answer
        else {
            return Err(something_else());
        };
        Ok(CheckedAnswer {
            answer: LegAnswer { hits, position },
            checked: checked.map(unpack),
        })
    }
}

/// A replica of this protocol answers what it was asked.
fn something_else() -> StoreError {
    unusable("the shard answers something that was not asked".to_owned())
}

/// A copy is written by its own indexer, from the log.
fn read_only() -> StoreError {
    unusable("a shard is written by its own indexer only".to_owned())
}

/// Where all replicas stand that answer: the least of them, so that what is said to be applied is
/// applied wherever the next question goes.
async fn checkpoint(
    shards: &Shards,
    store: Store,
    partition: u32,
) -> Result<Option<Checkpoint>, StoreError> {
    let question = Question::Checkpoint { store, partition };
    let mut least: Option<Option<Checkpoint>> = None;
    for answer in shards.look_at_all(store, partition, question).await? {
        let Answer::Checkpoint(found) = answer else {
            return Err(something_else());
        };
        let is_less = least.is_none_or(|least| {
            let next = |checkpoint: Option<Checkpoint>| checkpoint.map_or(0, |c| c.next);
            next(found) < next(least)
        });
        if is_less {
            least = Some(found);
        }
    }
    Ok(least.flatten())
}

async fn owners(shards: &Shards, store: Store) -> Result<Vec<OwnerKey>, StoreError> {
    let question = |partitions| Question::Owners { store, partitions };
    let mut owners = Vec::new();
    for answer in shards.sweep(store, true, question).await? {
        let Answer::Owners(some) = answer else {
            return Err(something_else());
        };
        owners.extend(some);
    }
    owners.sort();
    Ok(owners)
}

async fn rows(
    shards: &Shards,
    store: Store,
    scope: OwnerScope,
) -> Result<Vec<RowDigest>, StoreError> {
    let owner = scope.key();
    let question = Question::Rows { store, owner };
    let Answer::Rows(rows) = shards.look_at_owner(store, owner, question).await? else {
        return Err(something_else());
    };
    Ok(rows)
}

#[async_trait]
impl Projection for ShardRecords {
    fn store(&self) -> Store {
        Store::Records
    }

    async fn checkpoint(&self, partition: u32) -> Result<Option<Checkpoint>, StoreError> {
        checkpoint(&self.0, Store::Records, partition).await
    }

    async fn apply(&self, _: u32, _: u64, _: &[Change], _: Checkpoint) -> Result<(), StoreError> {
        Err(read_only())
    }

    async fn owners(&self) -> Result<Vec<OwnerKey>, StoreError> {
        owners(&self.0, Store::Records).await
    }

    async fn rows(&self, scope: OwnerScope) -> Result<Vec<RowDigest>, StoreError> {
        rows(&self.0, Store::Records, scope).await
    }

    async fn compact(&self) -> Result<(), StoreError> {
        Err(read_only())
    }
}

#[async_trait]
impl Projection for ShardText {
    fn store(&self) -> Store {
        Store::Text
    }

    async fn checkpoint(&self, partition: u32) -> Result<Option<Checkpoint>, StoreError> {
        checkpoint(&self.0, Store::Text, partition).await
    }

    async fn apply(&self, _: u32, _: u64, _: &[Change], _: Checkpoint) -> Result<(), StoreError> {
        Err(read_only())
    }

    async fn owners(&self) -> Result<Vec<OwnerKey>, StoreError> {
        owners(&self.0, Store::Text).await
    }

    async fn rows(&self, scope: OwnerScope) -> Result<Vec<RowDigest>, StoreError> {
        rows(&self.0, Store::Text, scope).await
    }

    async fn compact(&self) -> Result<(), StoreError> {
        Err(read_only())
    }
}

#[async_trait]
impl Records for ShardRecords {
    async fn cut(&self, scope: OwnerScope, known: Known) -> Result<Cut, StoreError> {
        let owner = scope.key();
        let known_at = known_at(known);
        let question = Question::Cut { owner, known_at };
        let answered = self.0.ask_of_owner(Store::Records, owner, question).await?;
        let Answer::Cut(cut) = answered.answer else {
            return Err(something_else());
        };
        // The questions that follow name this cut: only who has reached it knows what was replaced
        // before it.
        self.0.pin(owner, answered.replica, cut.0);
        Ok(cut)
    }

    async fn check(
        &self,
        filter: &Filter,
        ids: &[MemoryId],
    ) -> Result<Vec<MemoryVersion>, StoreError> {
        if ids.is_empty() {
            return Ok(Vec::new());
        }
        let question = Question::Check {
            filter: wire::Filter::of(filter),
            ids: ids.to_vec(),
        };
        let Answer::Versions(versions) = self.ask(filter.scope, question).await? else {
            return Err(something_else());
        };
        Ok(unpack(versions))
    }

    async fn history(
        &self,
        scope: OwnerScope,
        id: MemoryId,
    ) -> Result<Vec<MemoryVersion>, StoreError> {
        let owner = scope.key();
        let Answer::Versions(versions) = self.ask(scope, Question::History { owner, id }).await?
        else {
            return Err(something_else());
        };
        Ok(unpack(versions))
    }

    async fn list(
        &self,
        filter: &Filter,
        order: Order,
        limit: usize,
        cursor: Option<&str>,
    ) -> Result<Page, StoreError> {
        let question = Question::List {
            filter: wire::Filter::of(filter),
            order,
            limit: limit as u64,
            cursor: cursor.map(str::to_owned),
        };
        let Answer::Page { versions, cursor } = self.ask(filter.scope, question).await? else {
            return Err(something_else());
        };
        Ok(Page {
            versions: unpack(versions),
            cursor,
        })
    }

    async fn owner(&self, scope: OwnerScope) -> Result<Option<OwnerView>, StoreError> {
        let owner = scope.key();
        let Answer::Owner(view) = self.ask(scope, Question::Owner { owner }).await? else {
            return Err(something_else());
        };
        Ok(view.map(|view| *view))
    }

    async fn decision(
        &self,
        scope: OwnerScope,
        event: EventTag,
    ) -> Result<Option<DecisionRow>, StoreError> {
        let owner = scope.key();
        let question = Question::Decision { owner, event };
        let answered = self.0.ask_of_owner(Store::Records, owner, question).await?;
        let Answer::Decision(row) = answered.answer else {
            return Err(something_else());
        };
        // Whoever waited for it asks for what it changed next.
        if let Some(row) = &row {
            self.0.pin(owner, answered.replica, row.offset + 1);
        }
        Ok(row)
    }

    async fn decision_offsets(&self, scope: OwnerScope) -> Result<Vec<u64>, StoreError> {
        let owner = scope.key();
        let Answer::Offsets(offsets) = self.ask(scope, Question::DecisionOffsets { owner }).await?
        else {
            return Err(something_else());
        };
        Ok(offsets)
    }

    async fn counts(&self) -> Result<Vec<(Kind, Status, u64)>, StoreError> {
        let question = |partitions| Question::Counts { partitions };
        let mut counts: BTreeMap<(Kind, Status), u64> = BTreeMap::new();
        for answer in self.0.sweep(Store::Records, false, question).await? {
            let Answer::Counts(some) = answer else {
                return Err(something_else());
            };
            for (kind, status, count) in some {
                *counts.entry((kind, status)).or_insert(0) += count;
            }
        }
        Ok(counts
            .into_iter()
            .map(|((kind, status), count)| (kind, status, count))
            .collect())
    }
}

#[async_trait]
impl TextIndex for ShardText {
    async fn search(
        &self,
        filter: &Filter,
        terms: &[String],
        top: usize,
    ) -> Result<LegAnswer, StoreError> {
        Ok(self.ask(filter, terms, top, false).await?.answer)
    }

    async fn search_checked(
        &self,
        filter: &Filter,
        terms: &[String],
        top: usize,
    ) -> Result<CheckedAnswer, StoreError> {
        self.ask(filter, terms, top, true).await
    }
}
