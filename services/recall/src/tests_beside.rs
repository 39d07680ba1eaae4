//! A text index that stands beside the records and brings their word along: the answer is the same, and
//! what was told is not asked again.

use std::sync::Arc;

use anamnesis_domain::ids::{MemoryId, OwnerKey};
use anamnesis_domain::memory::{Kind, Memory};
use anamnesis_domain::owner::OwnerScope;
use anamnesis_pipeline::stores::{
    Change, CheckedAnswer, Checkpoint, Filter, LegAnswer, Projection, Records, RowDigest, Store,
    StoreError, Stores, TextIndex,
};
use async_trait::async_trait;

use crate::fixture::{claim, memory};
use crate::request::Ask;
use crate::world::World;

struct Beside {
    text: Arc<dyn TextIndex>,
    /// `None` for records that admit nothing.
    records: Option<Arc<dyn Records>>,
}

#[async_trait]
impl Projection for Beside {
    fn store(&self) -> Store {
        self.text.store()
    }

    async fn checkpoint(&self, partition: u32) -> Result<Option<Checkpoint>, StoreError> {
        self.text.checkpoint(partition).await
    }

    async fn apply(
        &self,
        partition: u32,
        from: u64,
        changes: &[Change],
        next: Checkpoint,
    ) -> Result<(), StoreError> {
        self.text.apply(partition, from, changes, next).await
    }

    async fn owners(&self) -> Result<Vec<OwnerKey>, StoreError> {
        self.text.owners().await
    }

    async fn rows(&self, scope: OwnerScope) -> Result<Vec<RowDigest>, StoreError> {
        self.text.rows(scope).await
    }

    async fn compact(&self) -> Result<(), StoreError> {
        self.text.compact().await
    }
}

#[async_trait]
impl TextIndex for Beside {
    async fn search(
        &self,
        filter: &Filter,
        terms: &[String],
        top: usize,
    ) -> Result<LegAnswer, StoreError> {
        self.text.search(filter, terms, top).await
    }

    async fn search_checked(
        &self,
        filter: &Filter,
        terms: &[String],
        top: usize,
    ) -> Result<CheckedAnswer, StoreError> {
        let answer = self.text.search(filter, terms, top).await?;
        let ids: Vec<MemoryId> = answer.hits.iter().map(|hit| hit.memory_id).collect();
        let checked = match &self.records {
            Some(records) => records.check(filter, &ids).await?,
            None => Vec::new(),
        };
        Ok(CheckedAnswer {
            answer,
            checked: Some(checked),
        })
    }
}

fn beside(stores: &Stores, admits: bool) -> Stores {
    Stores {
        text: Arc::new(Beside {
            text: stores.text.clone(),
            records: admits.then(|| stores.records.clone()),
        }),
        ..stores.clone()
    }
}

async fn world() -> World {
    let memories: Vec<Memory> = (0..60)
        .map(|n| {
            memory(claim(
                Kind::Fact,
                &format!("复查记录 {n} 血压正常, follow-up {n}"),
            ))
        })
        .chain([memory(claim(Kind::Allergy, "我对花生过敏"))])
        .collect();
    let world = World::new();
    world.consents("p1").await;
    world.remembers("p1", &memories).await;
    world
}

#[tokio::test]
async fn an_answer_is_the_same_whether_the_authority_is_asked_or_told_along() {
    for question in ["复查记录 7", "follow-up 33", "我对什么过敏", "天气"] {
        let mut ask = Ask::new(question);
        ask.explain = true;
        ask.top_k = 60;
        let mut world = world().await;
        let asked = world.asks("p1", ask.clone()).await.settled().to_string();
        world.parts.stores = beside(&world.parts.stores, true);
        let told = world.asks("p1", ask).await.settled().to_string();
        assert_eq!(asked, told, "{question}");
    }
}

#[tokio::test]
async fn what_the_authority_did_not_admit_is_not_asked_again() {
    let mut world = world().await;
    let ask = || Ask::new("复查记录 7");
    assert!(world.asks("p1", ask()).await.answerable);
    world.parts.stores = beside(&world.parts.stores, false);
    let answer = world.asks("p1", ask()).await;
    let has_refused = answer
        .memories
        .iter()
        .any(|memory| memory.record.text.expose().contains("记录 7 "));
    assert!(!has_refused, "{answer:?}");
}
