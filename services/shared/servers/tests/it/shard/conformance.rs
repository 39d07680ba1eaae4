//! Whatever is applied to a copy reads the same through its server.

use std::path::Path;
use std::sync::Arc;

use anamnesis_domain::ids::{EventTag, MemoryId, OwnerKey};
use anamnesis_domain::memory::{Kind, Status};
use anamnesis_domain::owner::OwnerScope;
use anamnesis_domain::time::Known;
use anamnesis_pipeline::conformance::stores::{Backend, LOG_ID, PARTITIONS};
use anamnesis_pipeline::doubles::records::MemoryRecords;
use anamnesis_pipeline::doubles::text::MemoryText;
use anamnesis_pipeline::stores::{
    Change, CheckedAnswer, Checkpoint, Cut, DecisionRow, Filter, LegAnswer, MemoryVersion, Order,
    OwnerView, Page, Projection, Records, RowDigest, Store, StoreError, TextIndex,
};
use anamnesis_servers::shard::client::ShardStores;
use async_trait::async_trait;

use super::{Copy, Served, client, one_shard};

/// Written where it is, read from afar.
struct Front<S: ?Sized> {
    local: Arc<dyn Projection>,
    remote: Arc<S>,
    _served: Served,
}

#[async_trait]
impl<S: Projection + ?Sized> Projection for Front<S> {
    fn store(&self) -> Store {
        self.remote.store()
    }

    async fn checkpoint(&self, partition: u32) -> Result<Option<Checkpoint>, StoreError> {
        self.remote.checkpoint(partition).await
    }

    async fn apply(
        &self,
        partition: u32,
        from: u64,
        changes: &[Change],
        next: Checkpoint,
    ) -> Result<(), StoreError> {
        self.local.apply(partition, from, changes, next).await
    }

    async fn owners(&self) -> Result<Vec<OwnerKey>, StoreError> {
        self.remote.owners().await
    }

    async fn rows(&self, scope: OwnerScope) -> Result<Vec<RowDigest>, StoreError> {
        self.remote.rows(scope).await
    }

    async fn compact(&self) -> Result<(), StoreError> {
        self.local.compact().await
    }
}

#[async_trait]
impl Records for Front<dyn Records> {
    async fn cut(&self, scope: OwnerScope, known: Known) -> Result<Cut, StoreError> {
        self.remote.cut(scope, known).await
    }

    async fn check(
        &self,
        filter: &Filter,
        ids: &[MemoryId],
    ) -> Result<Vec<MemoryVersion>, StoreError> {
        self.remote.check(filter, ids).await
    }

    async fn history(
        &self,
        scope: OwnerScope,
        id: MemoryId,
    ) -> Result<Vec<MemoryVersion>, StoreError> {
        self.remote.history(scope, id).await
    }

    async fn list(
        &self,
        filter: &Filter,
        order: Order,
        limit: usize,
        cursor: Option<&str>,
    ) -> Result<Page, StoreError> {
        self.remote.list(filter, order, limit, cursor).await
    }

    async fn owner(&self, scope: OwnerScope) -> Result<Option<OwnerView>, StoreError> {
        self.remote.owner(scope).await
    }

    async fn decision(
        &self,
        scope: OwnerScope,
        event: EventTag,
    ) -> Result<Option<DecisionRow>, StoreError> {
        self.remote.decision(scope, event).await
    }

    async fn decision_offsets(&self, scope: OwnerScope) -> Result<Vec<u64>, StoreError> {
        self.remote.decision_offsets(scope).await
    }

    async fn counts(&self) -> Result<Vec<(Kind, Status, u64)>, StoreError> {
        self.remote.counts().await
    }
}

#[async_trait]
impl TextIndex for Front<dyn TextIndex> {
    async fn search(
        &self,
        filter: &Filter,
        terms: &[String],
        top: usize,
    ) -> Result<LegAnswer, StoreError> {
        self.remote.search(filter, terms, top).await
    }

    async fn search_checked(
        &self,
        filter: &Filter,
        terms: &[String],
        top: usize,
    ) -> Result<CheckedAnswer, StoreError> {
        self.remote.search_checked(filter, terms, top).await
    }
}

/// Each opening is a new server and a new client.
async fn opened(copy: &Copy) -> (Served, ShardStores) {
    let served = Served::whole(copy).await;
    let stores = client(&one_shard(vec![served.url()]));
    (served, stores)
}

mod shard_records {
    use super::*;

    struct Place(Arc<MemoryRecords>);

    impl Backend for Place {
        type Store = dyn Records;

        async fn open(&self) -> Result<Arc<dyn Records>, StoreError> {
            let mut copy = Copy::new();
            copy.records = self.0.clone();
            let (served, stores) = opened(&copy).await;
            Ok(Arc::new(Front {
                local: self.0.clone(),
                remote: stores.records,
                _served: served,
            }))
        }

        fn dir(&self) -> Option<&Path> {
            None
        }
    }

    fn fresh() -> Place {
        Place(Arc::new(MemoryRecords::new(LOG_ID, PARTITIONS)))
    }

    anamnesis_pipeline::projection_cases!(fresh);
    anamnesis_pipeline::records_cases!(fresh);
}

mod shard_text {
    use super::*;

    struct Place(Arc<MemoryText>);

    impl Backend for Place {
        type Store = dyn TextIndex;

        async fn open(&self) -> Result<Arc<dyn TextIndex>, StoreError> {
            let mut copy = Copy::new();
            copy.text = self.0.clone();
            let (served, stores) = opened(&copy).await;
            Ok(Arc::new(Front {
                local: self.0.clone(),
                remote: stores.text,
                _served: served,
            }))
        }

        fn dir(&self) -> Option<&Path> {
            None
        }
    }

    fn fresh() -> Place {
        Place(Arc::new(MemoryText::new(LOG_ID, PARTITIONS)))
    }

    anamnesis_pipeline::projection_cases!(fresh);
    anamnesis_pipeline::text_cases!(fresh);
}
