//! Does a copy that lags keep silent, and does it speak again?

use std::sync::atomic::Ordering;
use std::time::Duration;

use anamnesis_domain::memory::Status;
use anamnesis_domain::time::Known;
use anamnesis_pipeline::conformance::stores::script::{
    OwnedBatch, Script, event, everything, id, memory, scope,
};
use anamnesis_pipeline::stores::{Filter, Order, StoreError};
use anamnesis_servers::shard::client::ShardStores;
use anamnesis_servers::shard::config::ShardServerConfig;
use tokio::time::Instant;

use super::{Copy, Served, any_port, client, is_unavailable, one_shard, serving, slow, until};

const LEASE: Duration = Duration::from_millis(300);

async fn served(copy: &Copy) -> Served {
    let config = ShardServerConfig {
        lease: LEASE,
        ..serving(any_port())
    };
    Served::start(config, copy.parts()).await.unwrap()
}

/// What a patient said, and that it is erased.
fn said_and_erased() -> (Script, Vec<OwnedBatch>, Vec<OwnedBatch>) {
    let mut script = Script::default();
    script.decide(1, vec![memory(1, "secret"), memory(2, "kept")]);
    let said = script.take(1);
    script.erase(1, &[id(1)]);
    let erased = script.take(1);
    (script, said, erased)
}

async fn found(stores: &ShardStores) -> Result<Vec<u64>, StoreError> {
    let filter = Filter {
        statuses: vec![Status::Active],
        ..everything(1, 100)
    };
    let page = stores
        .records
        .list(&filter, Order::Recorded, 9, None)
        .await?;
    Ok(page
        .versions
        .iter()
        .map(|version| version.memory.version)
        .collect())
}

/// The log's end in every partition: other partitions than the owner's have nothing to apply, so the
/// copies are told an end that only the owner's own partition can have reached.
fn append(copies: &[&Copy], end: u64) -> Instant {
    for copy in copies {
        copy.log.end.store(end, Ordering::SeqCst);
    }
    Instant::now()
}

#[tokio::test]
async fn nobody_answers_from_before_an_erasure_later_than_a_lease_after_it() {
    let (script, said, erased) = said_and_erased();
    let copy = Copy::with(&said).await;
    let a = served(&copy).await;
    let stores = client(&one_shard(vec![a.url()]));
    assert_eq!(
        until(|| found(&stores), Result::is_ok).await.unwrap().len(),
        2
    );

    let appended_at = append(&[&copy], script.end(1));
    let refused = loop {
        let asked_at = Instant::now();
        match found(&stores).await {
            Ok(versions) => {
                let age = asked_at - appended_at;
                assert!(age <= LEASE, "still answered {age:?} after the erasure");
                assert_eq!(versions.len(), 2);
            }
            Err(error) => break error,
        }
    };
    assert!(refused.is_retryable());
    let reason = refused.to_string();
    let partition = script.partition_of(1);
    assert!(
        reason.contains(&format!("lags in partition {partition}")),
        "{reason}"
    );

    // Every question about the owner is refused, and what looks at the copy itself is answered.
    let (records, text) = (&stores.records, &stores.text);
    let filter = everything(1, 100);
    let answers = [
        records.cut(scope(1), Known::Latest).await.map(drop),
        records.check(&filter, &[id(1)]).await.map(drop),
        records.history(scope(1), id(1)).await.map(drop),
        records.owner(scope(1)).await.map(drop),
        records.decision(scope(1), event(1)).await.map(drop),
        records.decision_offsets(scope(1)).await.map(drop),
        records.counts().await.map(drop),
        text.search(&filter, &["peanut".to_owned()], 9)
            .await
            .map(drop),
        text.search_checked(&filter, &["peanut".to_owned()], 9)
            .await
            .map(drop),
    ];
    for (number, answer) in answers.iter().enumerate() {
        assert!(is_unavailable(answer, "lags"), "{number}: {answer:?}");
    }
    let next = records.checkpoint(partition).await.unwrap().unwrap().next;
    assert_eq!(next, script.end(1) - 1);
    assert!(!records.rows(scope(1)).await.unwrap().is_empty());
    assert!(!text.rows(scope(1)).await.unwrap().is_empty());
    assert_eq!(records.owners().await.unwrap().len(), 1);

    // Once it has applied the erasure it is asked again, and knows nothing of what was erased.
    copy.apply(&erased).await;
    let answer = until(|| found(&stores), Result::is_ok).await.unwrap();
    assert_eq!(answer.len(), 1);
}

#[tokio::test]
async fn a_copy_that_lags_answers_for_owners_of_whom_it_misses_nothing() {
    let mut script = Script::default();
    let other = (2..)
        .find(|other| script.partition_of(*other) == script.partition_of(1))
        .unwrap();
    script.decide(1, vec![memory(1, "secret")]);
    script.decide(other, vec![memory(2, "kept")]);
    let said = script.take(1);
    script.erase(1, &[id(1)]);
    let erased = script.take(1);
    let copy = Copy::with(&said).await;
    let a = served(&copy).await;
    let stores = client(&one_shard(vec![a.url()]));
    let of_other = async || stores.records.owner(scope(other)).await;
    let key_of = |owner| scope(owner).key();
    append(&[&copy], script.end(1));
    until(|| found(&stores), |answer| is_unavailable(answer, "lags"))
        .await
        .unwrap_err();
    // The keys ahead of the copy cannot be read yet.
    assert!(is_unavailable(&of_other().await, "lags"));

    *copy.log.last.lock().unwrap() = vec![key_of(1)];
    until(of_other, Result::is_ok).await.unwrap();
    assert!(is_unavailable(&found(&stores).await, "lags"));

    // What is recorded for that owner as well silences the copy again, a lease later.
    copy.log.last.lock().unwrap().push(key_of(other));
    append(&[&copy], script.end(1) + 1);
    until(of_other, |answer| is_unavailable(answer, "lags"))
        .await
        .unwrap_err();
    copy.apply(&erased).await;
    until(|| found(&stores), Result::is_ok).await.unwrap();
    assert!(is_unavailable(&of_other().await, "lags"));
}

#[tokio::test]
async fn another_replica_answers_for_the_one_that_lags() {
    let (script, said, erased) = said_and_erased();
    let (lagging, current) = (Copy::with(&said).await, Copy::with(&said).await);
    let (a, b) = (served(&lagging).await, served(&current).await);
    // Owner 1 is asked of the second replica first.
    let stores = client(&one_shard(vec![b.url(), a.url()]));
    current.apply(&erased).await;
    let appended_at = append(&[&lagging, &current], script.end(1));
    let effective = until(
        || found(&stores),
        |answer| answer.as_ref().is_ok_and(|versions| versions.len() == 1),
    );
    effective.await.unwrap();
    // From then on it stays so.
    while appended_at.elapsed() < LEASE * 3 {
        let age = appended_at.elapsed();
        if let Ok(versions) = found(&stores).await {
            assert!(
                versions.len() == 1 || age <= LEASE,
                "what was erased came back after {age:?}"
            );
        }
    }
}

#[tokio::test]
async fn a_copy_that_cannot_ask_the_log_falls_silent() {
    let (script, said, _) = said_and_erased();
    let copy = Copy::with(&said).await;
    copy.log.is_down.store(true, Ordering::SeqCst);
    let a = served(&copy).await;
    let stores = client(&one_shard(vec![a.url()]));
    assert!(is_unavailable(&found(&stores).await, "lags"));
    append(&[&copy], script.end(1) - 1);
    copy.log.is_down.store(false, Ordering::SeqCst);
    until(|| found(&stores), Result::is_ok).await.unwrap();
    copy.log.is_down.store(true, Ordering::SeqCst);
    until(|| found(&stores), |answer| is_unavailable(answer, "lags"))
        .await
        .unwrap_err();
}

#[tokio::test]
async fn a_copy_whose_index_lags_behind_its_records_does_not_answer() {
    let (script, said, erased) = said_and_erased();
    let copy = Copy::with(&said).await;
    for batch in &erased {
        batch.apply(&*copy.records).await.unwrap();
    }
    append(&[&copy], script.end(1));
    let a = served(&copy).await;
    let stores = client(&one_shard(vec![a.url()]));
    assert!(is_unavailable(&found(&stores).await, "lags"));
    for batch in &erased {
        batch.apply(&*copy.text).await.unwrap();
    }
    until(|| found(&stores), Result::is_ok).await.unwrap();
}

#[tokio::test]
async fn an_answer_that_took_longer_than_the_lease_is_not_given() {
    let (_, said, _) = said_and_erased();
    let copy = Copy::with(&said).await;
    let (index, parts) = slow(&copy);
    let config = ShardServerConfig {
        lease: LEASE,
        ..serving(any_port())
    };
    let served = Served::start(config, parts).await.unwrap();
    let stores = client(&one_shard(vec![served.url()]));
    let (text, seen) = (stores.text.clone(), index.clone());
    // The question is let in while the copy is current, and answered when it is not any more.
    let asking = tokio::spawn(async move {
        let filter = everything(1, 100);
        loop {
            let answer = text.search(&filter, &["peanut".to_owned()], 9).await;
            if seen.was_asked.load(Ordering::SeqCst) {
                return answer;
            }
        }
    });
    index.asked.notified().await;
    copy.log.is_down.store(true, Ordering::SeqCst);
    until(|| found(&stores), |answer| is_unavailable(answer, "lags"))
        .await
        .unwrap_err();
    index.may_answer.notify_one();
    let answer = asking.await.unwrap();
    assert!(is_unavailable(&answer, "lags"), "{answer:?}");
}
