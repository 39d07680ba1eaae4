//! How does a server stop?

use std::sync::Arc;

use anamnesis_domain::ids::OwnerKey;
use anamnesis_domain::owner::OwnerScope;
use anamnesis_pipeline::conformance::stores::script::everything;
use anamnesis_pipeline::stores::{
    Change, Checkpoint, Filter, LegAnswer, Projection, RowDigest, Store, StoreError, TextIndex,
};
use anamnesis_servers::shard::server::ShardParts;
use async_trait::async_trait;
use tokio::net::TcpStream;
use tokio::sync::Notify;

use super::{Copy, LONG, Served, any_port, client, one_shard, serving};

/// An index that says when it was asked, and answers when it may.
struct Slow {
    index: Arc<dyn TextIndex>,
    asked: Notify,
    may_answer: Notify,
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
        self.asked.notify_one();
        self.may_answer.notified().await;
        self.index.search(filter, terms, top).await
    }
}

fn slow(copy: &Copy) -> (Arc<Slow>, ShardParts) {
    let index = Arc::new(Slow {
        index: copy.text.clone(),
        asked: Notify::new(),
        may_answer: Notify::new(),
    });
    let parts = ShardParts {
        text: index.clone(),
        ..copy.parts()
    };
    (index, parts)
}

#[tokio::test]
async fn a_server_that_stops_answers_what_it_was_asked_before() {
    let copy = Copy::new();
    let (index, parts) = slow(&copy);
    let served = Served::start(serving(any_port()), parts).await.unwrap();
    let address = served.address();
    let stores = client(&one_shard(vec![served.url()]));
    let text = stores.text.clone();
    let asking =
        tokio::spawn(async move { text.search(&everything(1, 1), &["x".to_owned()], 1).await });
    index.asked.notified().await;
    served.stop.cancel();
    // The door is shut while the answer is still under way.
    while TcpStream::connect(address).await.is_ok() {
        tokio::task::yield_now().await;
    }
    assert!(!asking.is_finished());
    index.may_answer.notify_one();
    assert_eq!(asking.await.unwrap().unwrap(), LegAnswer::default());
    let stopped = tokio::time::timeout(LONG, served.server.stopped()).await;
    stopped.expect("it stops").unwrap();
}

#[tokio::test]
async fn a_server_does_not_wait_for_ever_for_an_answer() {
    let copy = Copy::new();
    let (index, parts) = slow(&copy);
    let served = Served::start(serving(any_port()), parts).await.unwrap();
    let stores = client(&one_shard(vec![served.url()]));
    let asking = tokio::spawn(async move {
        let filter = everything(1, 1);
        stores.text.search(&filter, &["x".to_owned()], 1).await
    });
    index.asked.notified().await;
    let stopped = tokio::time::timeout(LONG, served.stop());
    stopped.await.expect("it stops");
    asking.abort();
}
