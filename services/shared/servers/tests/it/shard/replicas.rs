//! Who is asked when a replica does not answer?

use std::net::SocketAddr;
use std::time::Duration;

use anamnesis_domain::time::Known;
use anamnesis_pipeline::conformance::stores::script::{
    OwnedBatch, Script, event, everything, id, scope,
};
use anamnesis_pipeline::stores::{Order, StoreError};
use anamnesis_servers::shard::client::ShardStores;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::{Copy, Served, client, decisions, is_unavailable, one_shard, serving, turn, until};

/// An owner that is asked of the first replica first, and one of the second.
const OF_FIRST: u8 = 2;
const OF_SECOND: u8 = 1;

/// Somebody takes connections, and never says a word.
struct Hung {
    address: SocketAddr,
    task: JoinHandle<()>,
}

impl Hung {
    async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let task = tokio::spawn(async move {
            let mut held = Vec::new();
            while let Ok((socket, _)) = listener.accept().await {
                held.push(socket);
            }
        });
        Self { address, task }
    }

    fn url(&self) -> String {
        format!("http://{}", self.address)
    }
}

impl Drop for Hung {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// A port where nobody listens.
async fn nobody() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    listener.local_addr().unwrap()
}

/// Decisions on the memory of both owners, `count` times.
fn batches(script: &mut Script, count: usize) -> Vec<OwnedBatch> {
    (0..count)
        .flat_map(|_| decisions(script, &[OF_FIRST, OF_SECOND], "x"))
        .collect()
}

/// How many versions the replica that answers has: this tells which one it is.
async fn versions(stores: &ShardStores, number: u8) -> Result<usize, StoreError> {
    let history = stores.records.history(scope(number), id(1)).await?;
    Ok(history.len())
}

#[tokio::test]
async fn owners_are_spread_over_replicas_and_stay_with_theirs() {
    assert_eq!((turn(OF_FIRST), turn(OF_SECOND)), (0, 1));
    let mut script = Script::default();
    let all = batches(&mut script, 2);
    let (first, second) = (Copy::with(&all[..2]).await, Copy::with(&all).await);
    let (a, b) = (Served::whole(&first).await, Served::whole(&second).await);
    let stores = client(&one_shard(vec![a.url(), b.url()]));
    for _ in 0..3 {
        assert_eq!(versions(&stores, OF_FIRST).await.unwrap(), 1);
        assert_eq!(versions(&stores, OF_SECOND).await.unwrap(), 2);
    }
}

#[tokio::test]
async fn a_dead_replica_is_passed_over_and_found_again() {
    let mut script = Script::default();
    let all = batches(&mut script, 2);
    let (first, second) = (Copy::with(&all[..2]).await, Copy::with(&all).await);
    let (dead, b) = (nobody().await, Served::whole(&second).await);
    let mut config = one_shard(vec![format!("http://{dead}"), b.url()]);
    config.deadline = Duration::from_secs(10);
    let stores = client(&config);
    let started = Instant::now();
    assert_eq!(versions(&stores, OF_FIRST).await.unwrap(), 2);
    assert!(started.elapsed() < config.deadline);

    let _a = Served::start(serving(dead), first.parts()).await.unwrap();
    let answer = until(
        || versions(&stores, OF_FIRST),
        |answer| matches!(answer, Ok(1)),
    );
    answer.await.unwrap();
}

#[tokio::test]
async fn a_hung_replica_costs_its_share_once() {
    let mut script = Script::default();
    let all = batches(&mut script, 1);
    let (hung, copy) = (Hung::start().await, Copy::with(&all).await);
    let b = Served::whole(&copy).await;
    let mut config = one_shard(vec![hung.url(), b.url()]);
    config.deadline = Duration::from_secs(4);
    // It is found to hang again and again, and nobody waits for that.
    config.look_again_after = Duration::from_millis(20);
    let stores = client(&config);
    let share = config.deadline / 2;

    let started = Instant::now();
    assert_eq!(versions(&stores, OF_FIRST).await.unwrap(), 1);
    let spent = started.elapsed();
    assert!(spent >= share, "{spent:?}: it was not asked at all");
    assert!(spent < config.deadline, "{spent:?}");
    for _ in 0..20 {
        let started = Instant::now();
        assert_eq!(versions(&stores, OF_FIRST).await.unwrap(), 1);
        let spent = started.elapsed();
        assert!(spent < share, "{spent:?}: it was asked again");
    }
}

#[tokio::test]
async fn when_all_are_down_the_answer_comes_within_the_deadline_and_may_be_tried_again() {
    let (hung, dead) = (Hung::start().await, nobody().await);
    let mut config = one_shard(vec![hung.url(), format!("http://{dead}")]);
    config.deadline = Duration::from_secs(1);
    config.sweep_deadline = Duration::from_secs(1);
    let stores = client(&config);
    let (records, text) = (&stores.records, &stores.text);
    let filter = everything(OF_FIRST, 9);
    for round in 0..2 {
        let started = Instant::now();
        let answers = tokio::join!(
            async { records.cut(scope(OF_FIRST), Known::Latest).await.map(drop) },
            async { records.check(&filter, &[id(1)]).await.map(drop) },
            async { records.list(&filter, Order::Valid, 9, None).await.map(drop) },
            async { records.owners().await.map(drop) },
            async { records.rows(scope(OF_FIRST)).await.map(drop) },
            async { records.checkpoint(0).await.map(drop) },
            async { records.counts().await.map(drop) },
            async { text.search(&filter, &["x".to_owned()], 9).await.map(drop) },
        );
        let spent = started.elapsed();
        let (a, b, c, d, e, f, g, h) = answers;
        for answer in [a, b, c, d, e, f, g, h] {
            assert!(
                is_unavailable(&answer, "no replica of the shard"),
                "{answer:?}"
            );
            assert!(answer.unwrap_err().is_retryable());
        }
        // As slow as a busy machine may make it, and far from waiting for each replica in full.
        assert!(spent < config.deadline * 2, "round {round}: {spent:?}");
    }
}

#[tokio::test]
async fn a_copy_is_looked_at_even_if_it_is_the_only_one_left() {
    let mut script = Script::default();
    let all = batches(&mut script, 2);
    let (first, second) = (Copy::with(&all[..2]).await, Copy::with(&all).await);
    let (a, b) = (Served::whole(&first).await, Served::whole(&second).await);
    let stores = client(&one_shard(vec![a.url(), b.url()]));
    let partition = script.partition_of(OF_FIRST);
    let next = |checkpoint: Option<anamnesis_pipeline::stores::Checkpoint>| {
        checkpoint.map(|checkpoint| checkpoint.next)
    };
    // What is said to be applied is applied on both.
    let both = next(stores.records.checkpoint(partition).await.unwrap());
    assert_eq!(both, next(first.records_checkpoint(partition).await));
    a.stop().await;
    let left = next(stores.records.checkpoint(partition).await.unwrap());
    assert_eq!(left, next(second.records_checkpoint(partition).await));
    assert!(left > both);
}

#[tokio::test]
async fn what_was_answered_is_not_taken_back_by_another_replica() {
    let mut script = Script::default();
    let all = batches(&mut script, 2);
    let (behind, ahead) = (Copy::with(&all[..2]).await, Copy::with(&all).await);
    let a = Served::whole(&behind).await;
    let (address, b) = (a.address(), Served::whole(&ahead).await);
    let mut config = one_shard(vec![a.url(), b.url()]);
    config.deadline = Duration::from_secs(10);
    let stores = client(&config);
    let decision = || stores.records.decision(scope(OF_FIRST), event(2));
    assert_eq!(decision().await.unwrap(), None, "the first one is behind");

    // The decision is found on the other one, while the first is away.
    a.stop().await;
    assert!(decision().await.unwrap().is_some());
    let a = Served::start(serving(address), behind.parts())
        .await
        .unwrap();
    // Only a question that is not bound shows when it is back: what stands on both replicas.
    let back = until(
        async || {
            let partition = script.partition_of(OF_FIRST);
            stores.records.checkpoint(partition).await.unwrap()
        },
        |checkpoint| checkpoint.is_some_and(|c| c.next < script.end(OF_FIRST)),
    );
    back.await;
    assert_eq!(versions(&stores, OF_FIRST).await.unwrap(), 2);

    // The first one alone does not know what was answered, and says so until it does.
    b.stop().await;
    let answer = versions(&stores, OF_FIRST).await;
    assert!(
        answer.as_ref().is_err_and(StoreError::is_retryable),
        "{answer:?}"
    );
    behind.apply(&all[2..]).await;
    assert_eq!(versions(&stores, OF_FIRST).await.unwrap(), 2);
    drop(a);
}

#[tokio::test]
async fn a_cut_is_only_asked_of_who_has_reached_it() {
    let mut script = Script::default();
    let all = batches(&mut script, 2);
    let (behind, ahead) = (Copy::with(&all[..2]).await, Copy::with(&all).await);
    let (a, b) = (Served::whole(&behind).await, Served::whole(&ahead).await);
    let mut config = one_shard(vec![a.url(), b.url()]);
    config.deadline = Duration::from_secs(10);
    let stores = client(&config);
    // The second replica gives the cut, and is away when the versions are asked for.
    let cut = stores
        .records
        .cut(scope(OF_SECOND), Known::Latest)
        .await
        .unwrap();
    assert_eq!(cut.0, script.end(OF_SECOND));
    b.stop().await;
    let filter = everything(OF_SECOND, cut.0);
    let stale = stores.records.check(&filter, &[id(1)]).await;
    assert!(is_unavailable(&stale, ""), "{stale:?}");
    let stale = stores.text.search(&filter, &["peanut".to_owned()], 5).await;
    assert!(is_unavailable(&stale, ""), "{stale:?}");
    behind.apply(&all[2..]).await;
    let current = stores.records.check(&filter, &[id(1)]).await.unwrap();
    assert_eq!(current[0].memory.version, 2);
    let found = stores.text.search(&filter, &["peanut".to_owned()], 5).await;
    assert_eq!(found.unwrap().hits[0].version, 2);
    drop(a);
}
