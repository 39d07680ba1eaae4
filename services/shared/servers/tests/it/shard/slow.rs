//! A copy whose index takes as long as a test wants.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anamnesis_domain::ids::OwnerKey;
use anamnesis_domain::owner::OwnerScope;
use anamnesis_pipeline::stores::{
    Change, Checkpoint, Filter, LegAnswer, Projection, RowDigest, Store, StoreError, TextIndex,
};
use anamnesis_servers::shard::server::ShardParts;
use async_trait::async_trait;
use tokio::sync::Notify;

use super::Copy;

/// An index that says when it was asked, and answers when it may.
pub(super) struct Slow {
    index: Arc<dyn TextIndex>,
    pub(super) asked: Notify,
    pub(super) was_asked: AtomicBool,
    pub(super) may_answer: Notify,
}

#[async_trait]
impl Projection for Slow {
    fn store(&self) -> Store {
        self.index.store()
    }

    async fn checkpoint(&self, partition: u32) -> Result<Option<Checkpoint>, StoreError> {
        self.index.checkpoint(partition).await
    }

    async fn apply(
        &self,
        partition: u32,
        from: u64,
        changes: &[Change],
        next: Checkpoint,
    ) -> Result<(), StoreError> {
        self.index.apply(partition, from, changes, next).await
    }

    async fn owners(&self) -> Result<Vec<OwnerKey>, StoreError> {
        self.index.owners().await
    }

    async fn rows(&self, scope: OwnerScope) -> Result<Vec<RowDigest>, StoreError> {
        self.index.rows(scope).await
    }

    async fn compact(&self) -> Result<(), StoreError> {
        self.index.compact().await
    }
}

#[async_trait]
impl TextIndex for Slow {
    async fn search(
        &self,
        filter: &Filter,
        terms: &[String],
        top: usize,
    ) -> Result<LegAnswer, StoreError> {
        self.was_asked.store(true, Ordering::SeqCst);
        self.asked.notify_one();
        self.may_answer.notified().await;
        self.index.search(filter, terms, top).await
    }
}

pub(super) fn slow(copy: &Copy) -> (Arc<Slow>, ShardParts) {
    let index = Arc::new(Slow {
        index: copy.text.clone(),
        asked: Notify::new(),
        was_asked: AtomicBool::new(false),
        may_answer: Notify::new(),
    });
    let parts = ShardParts {
        text: index.clone(),
        ..copy.parts()
    };
    (index, parts)
}
