//! What every store must pass, whatever it holds: checkpoints, batches, rewriting, compaction.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use anamnesis_domain::ids::{LogId, MemoryId};
use anamnesis_domain::memory::{EntityKind, Status};
use anamnesis_domain::owner::OwnerScope;

use super::draw::Draw;
use super::script::{
    OwnedBatch, Script, entity, everything, id, memory, memory_with, scope, vector_of,
};
use super::{Backend, LOG_ID, PARTITIONS, Probe};
use crate::stores::{Checkpoint, Filter, Projection, StoreError};

pub(super) async fn found<S: Probe + ?Sized>(store: &S, filter: &Filter) -> Vec<MemoryId> {
    let answer = store.found(filter).await.expect("the store answers");
    let mut ids: Vec<MemoryId> = answer.hits.iter().map(|hit| hit.memory_id).collect();
    ids.sort();
    ids
}

/// Every owner's rows are what the fold expects, and there is no other owner.
pub(super) async fn assert_holds<S: Projection + ?Sized>(store: &S, script: &Script) {
    let kind = store.store();
    let expected = script
        .owners()
        .into_iter()
        .filter(|owner| !script.expected(kind, *owner).is_empty());
    let expected: Vec<_> = expected.collect();
    assert_eq!(store.owners().await.unwrap(), expected, "owners");
    for owner in expected {
        let rows = store.rows(OwnerScope::of_log_record(owner)).await.unwrap();
        assert_eq!(rows, script.expected(kind, owner), "rows of {owner}");
    }
}

pub async fn a_fresh_store_stands_nowhere<B: Backend>(fresh: impl Fn() -> B) {
    let place = fresh();
    let store = place.open().await.unwrap();
    for partition in 0..PARTITIONS {
        assert_eq!(store.checkpoint(partition).await.unwrap(), None);
    }
    assert_eq!(store.owners().await.unwrap(), []);
    assert_eq!(store.rows(scope(1)).await.unwrap(), []);
    let answer = store.found(&everything(1, 100)).await.unwrap();
    assert_eq!((answer.hits, answer.position), (vec![], 0));
}

pub async fn a_batch_moves_the_checkpoint_with_its_data<B: Backend>(fresh: impl Fn() -> B) {
    let place = fresh();
    let store = place.open().await.unwrap();
    let mut script = Script::default();
    let partition = script.partition_of(1);
    script.decide(1, vec![memory(1, "one"), memory(2, "two")]);
    script.play(&*store).await;
    let expected = Checkpoint {
        log_id: LOG_ID,
        next: script.end(1),
    };
    assert_eq!(store.checkpoint(partition).await.unwrap(), Some(expected));
    for other in (0..PARTITIONS).filter(|other| *other != partition) {
        assert_eq!(store.checkpoint(other).await.unwrap(), None);
    }
    assert_holds(&*store, &script).await;
    assert_eq!(
        store.found(&everything(1, 100)).await.unwrap().position,
        script.end(1)
    );

    // Records that change nothing still move the position.
    let empty = Checkpoint {
        log_id: LOG_ID,
        next: 40,
    };
    store
        .apply(partition, script.end(1), &[], empty)
        .await
        .unwrap();
    assert_eq!(store.checkpoint(partition).await.unwrap(), Some(empty));
    assert_holds(&*store, &script).await;
}

pub async fn a_batch_from_elsewhere_changes_nothing<B: Backend>(fresh: impl Fn() -> B) {
    let place = fresh();
    let store = place.open().await.unwrap();
    let mut script = Script::default();
    script.decide(1, vec![memory(1, "one")]);
    script.play(&*store).await;
    let end = script.end(1);
    let partition = script.partition_of(1);

    let mut later = Script::default();
    later.decide(1, vec![memory(3, "three")]);
    let changes = later.take(1).remove(0).changes;
    for from in [0, end - 1, end + 1, end + 40] {
        let next = Checkpoint {
            log_id: LOG_ID,
            next: from + 9,
        };
        let refused = store.apply(partition, from, &changes, next).await;
        let Err(StoreError::Moved {
            partition: p,
            expected,
            found,
            store: which,
        }) = refused
        else {
            panic!("a batch from {from} was not refused as moved: {refused:?}");
        };
        assert_eq!(
            (p, expected, found, which),
            (partition, from, end, store.store())
        );
    }
    assert_eq!(
        store.checkpoint(partition).await.unwrap().map(|c| c.next),
        Some(end)
    );
    assert_holds(&*store, &script).await;
}

pub async fn a_batch_of_another_log_changes_nothing<B: Backend>(fresh: impl Fn() -> B) {
    let place = fresh();
    let store = place.open().await.unwrap();
    let mut script = Script::default();
    script.decide(1, vec![memory(1, "one")]);
    let batch = script.take(1).remove(0);
    let other = LogId::from_bytes([0x20; 16]);
    let foreign = OwnedBatch {
        next: Checkpoint {
            log_id: other,
            ..batch.next
        },
        ..batch.clone()
    };
    let refused = foreign.apply(&*store).await;
    assert!(
        matches!(refused, Err(StoreError::OtherLog { expected, found, .. }) if expected == other && found == LOG_ID),
        "{refused:?}"
    );
    assert_eq!(store.owners().await.unwrap(), []);
    assert_eq!(store.checkpoint(batch.partition).await.unwrap(), None);
    batch.apply(&*store).await.unwrap();
}

pub async fn a_batch_of_another_partition_changes_nothing<B: Backend>(fresh: impl Fn() -> B) {
    let place = fresh();
    let store = place.open().await.unwrap();
    let mut script = Script::default();
    script.decide(1, vec![memory(1, "one")]);
    let mut batch = script.take(1).remove(0);
    batch.partition = (batch.partition + 1) % PARTITIONS;
    let refused = batch.apply(&*store).await;
    assert!(
        matches!(refused, Err(StoreError::Unusable { .. })),
        "{refused:?}"
    );
    assert_eq!(store.owners().await.unwrap(), []);
}

pub async fn batches_of_any_size_give_the_same_rows<B: Backend>(fresh: impl Fn() -> B) {
    for steps_max in [1, 2, 7, 1000] {
        let place = fresh();
        let store = place.open().await.unwrap();
        let mut script = Script::default();
        Draw::new(11).history(&mut script, 5, 120);
        for batch in script.take(steps_max) {
            batch.apply(&*store).await.unwrap();
        }
        assert_holds(&*store, &script).await;
    }
}

pub async fn a_version_closes_the_open_one<B: Backend>(fresh: impl Fn() -> B) {
    let place = fresh();
    let store = place.open().await.unwrap();
    let mut script = Script::default();
    let first = script.decide(1, vec![memory(1, "5 mg"), memory(2, "tea")]);
    let second = script.decide(1, vec![memory(1, "10 mg")]);
    script.play(&*store).await;
    assert_holds(&*store, &script).await;
    for (cut, version) in [(first + 1, 1), (second, 1), (second + 1, 2)] {
        let answer = store.found(&everything(1, cut)).await.unwrap();
        let mine = answer.hits.iter().filter(|hit| hit.memory_id == id(1));
        assert_eq!(
            mine.map(|hit| hit.version).collect::<Vec<_>>(),
            [version],
            "cut {cut}"
        );
        assert!(
            answer
                .hits
                .iter()
                .any(|hit| hit.memory_id == id(2) && hit.version == 1)
        );
    }
}

pub async fn a_rewrite_leaves_exactly_what_it_lists<B: Backend>(fresh: impl Fn() -> B) {
    let place = fresh();
    let store = place.open().await.unwrap();
    let mut script = Script::default();
    script.decide(1, vec![memory(1, "secret"), memory(2, "kept")]);
    script.decide(1, vec![memory(1, "secret again")]);
    script.decide(2, vec![memory(1, "somebody else's")]);
    script.erase(1, &[id(1)]);
    script.play(&*store).await;
    assert_holds(&*store, &script).await;
    let words = everything(1, script.end(1));
    let kept = Filter {
        statuses: vec![Status::Active],
        ..words
    };
    assert_eq!(found(&*store, &kept).await, [id(2)]);
    assert_eq!(found(&*store, &everything(2, 100)).await, [id(1)]);

    // Everything of the owner: nothing is left that any question finds, in the past neither.
    script.erase(1, &[id(1), id(2)]);
    script.play(&*store).await;
    assert_holds(&*store, &script).await;
    for cut in 0..script.end(1) + 1 {
        let past = Filter {
            statuses: vec![Status::Active],
            ..everything(1, cut)
        };
        assert_eq!(found(&*store, &past).await, [], "cut {cut}");
    }
}

/// Whoever asks after a batch was applied sees it, also when others asked right before; and asked again
/// as of every earlier cut, the answer is the one of that time.
pub async fn what_was_applied_is_seen_by_all_who_ask_after_it<B: Backend>(fresh: impl Fn() -> B) {
    let place = fresh();
    let store = place.open().await.unwrap();
    let mut script = Script::default();
    let mut known = Vec::new();
    for number in 1..20u8 {
        script.decide(1, vec![memory(number, "tea 茶")]);
        script.decide(2, vec![memory(number, "somebody else's")]);
        script.play(&*store).await;
        let filter = everything(1, script.end(1));
        known.push(filter.clone());
        let (one, other) = tokio::join!(store.found(&filter), store.found(&filter));
        for answer in [one.unwrap(), other.unwrap()] {
            assert_eq!(answer.hits.len(), usize::from(number));
            assert_eq!(answer.position, script.end(1));
        }
        for (before, filter) in known.iter().enumerate() {
            assert_eq!(found(&*store, filter).await.len(), before + 1);
        }
    }
}

/// Others ask all the time while an erasure is applied. Before it is, they find all or what is left, and
/// nobody who asks after it finds more, as of no time.
pub async fn nobody_finds_what_was_erased_while_others_ask<B: Backend>(fresh: impl Fn() -> B) {
    let place = fresh();
    let store = place.open().await.unwrap();
    let mut script = Script::default();
    let mut all: Vec<MemoryId> = Vec::new();
    for number in 1..20u8 {
        script.decide(1, vec![memory(number, "tea 茶")]);
        all.push(id(number));
    }
    script.play(&*store).await;
    let active = |cut| Filter {
        statuses: vec![Status::Active],
        ..everything(1, cut)
    };
    while !all.is_empty() {
        let before = script.end(1);
        let erased: Vec<MemoryId> = all.drain(..all.len().min(5)).collect();
        assert_eq!(
            found(&*store, &active(before)).await.len(),
            all.len() + erased.len()
        );
        script.erase(1, &erased);
        for batch in script.take(1) {
            let is_over = AtomicBool::new(false);
            let asking = async {
                while !is_over.load(Ordering::Acquire) {
                    let ids = found(&*store, &active(before)).await;
                    assert!(
                        all.iter().all(|kept| ids.contains(kept)),
                        "what is kept is found"
                    );
                    tokio::task::yield_now().await;
                }
            };
            let applying = async {
                batch.apply(&*store).await.unwrap();
                is_over.store(true, Ordering::Release);
            };
            tokio::join!(asking, applying);
        }
        for cut in 0..=script.end(1) {
            let ids = found(&*store, &active(cut)).await;
            assert!(erased.iter().all(|id| !ids.contains(id)), "cut {cut}");
        }
        assert_eq!(found(&*store, &active(script.end(1))).await, all);
    }
}

/// A stale write must not bring an erased memory back.
pub async fn a_redelivered_batch_resurrects_nothing<B: Backend>(fresh: impl Fn() -> B) {
    let place = fresh();
    let store = place.open().await.unwrap();
    let mut script = Script::default();
    script.decide(1, vec![memory(1, "secret")]);
    script.decide(1, vec![memory(1, "secret, updated")]);
    let stale = script.take(1);
    for batch in &stale {
        batch.apply(&*store).await.unwrap();
    }
    script.erase(1, &[id(1)]);
    script.play(&*store).await;
    for batch in &stale {
        let refused = batch.apply(&*store).await;
        assert!(
            matches!(refused, Err(StoreError::Moved { .. })),
            "{refused:?}"
        );
    }
    assert_holds(&*store, &script).await;
    let filter = Filter {
        statuses: vec![Status::Active],
        ..everything(1, 100)
    };
    assert_eq!(found(&*store, &filter).await, []);
}

pub async fn one_version_lives_and_none_after_erasure<B: Backend>(fresh: impl Fn() -> B) {
    let place = fresh();
    let store = place.open().await.unwrap();
    let mut script = Script::default();
    for text in [
        "Dose-A-17 10 MG",
        "剂量 ＡＢ-17",
        "x".repeat(300).as_str(),
        "e-mail@ward.example",
    ] {
        script.decide(1, vec![memory(1, text), memory(2, text)]);
    }
    script.play(&*store).await;
    assert_eq!(
        found(&*store, &everything(1, script.end(1))).await,
        [id(1), id(2)]
    );
    script.erase(1, &[id(1), id(2)]);
    script.play(&*store).await;
    let filter = Filter {
        statuses: vec![Status::Active],
        ..everything(1, script.end(1))
    };
    assert_eq!(found(&*store, &filter).await, []);
    assert_holds(&*store, &script).await;
}

pub async fn a_store_opens_where_it_stood<B: Backend>(fresh: impl Fn() -> B) {
    let place = fresh();
    let mut script = Script::default();
    let mut draw = Draw::new(5);
    for _ in 0..4 {
        let store = place.open().await.unwrap();
        draw.history(&mut script, 3, 12);
        script.play(&*store).await;
        drop(store);
        let store = place.open().await.unwrap();
        assert_holds(&*store, &script).await;
        for number in 1..=3 {
            let stood = store.checkpoint(script.partition_of(number)).await.unwrap();
            assert_eq!(
                stood.map_or(1, |checkpoint| checkpoint.next),
                script.end(number)
            );
        }
    }
}

pub async fn compaction_leaves_no_erased_byte<B: Backend>(fresh: impl Fn() -> B) {
    let place = fresh();
    let store = place.open().await.unwrap();
    let text = "zyzzyvacanary 金丝雀暗号";
    let mut script = Script::default();
    let secret = memory_with(1, text, |memory| {
        memory
            .claim
            .entities
            .push(entity(EntityKind::Thing, "zyzzyvacanary"));
        memory
            .claim
            .entities
            .push(entity(EntityKind::Thing, "金丝雀暗号"));
    });
    let vector = vector_of(secret.claim.text.expose()).expect("it has words");
    let mut needles = vec![b"zyzzyvacanary".to_vec(), "金丝雀暗号".as_bytes().to_vec()];
    needles.push(
        vector
            .iter()
            .flat_map(|component| component.to_le_bytes())
            .collect(),
    );
    // Enough around it that pages split and segments merge.
    for number in 10..60 {
        script.decide(1, vec![memory(number, &"filler 填充 ".repeat(20))]);
    }
    script.decide(1, vec![secret.clone()]);
    script.decide(2, vec![memory(1, "somebody else's")]);
    script.decide(1, vec![secret]);
    script.play(&*store).await;
    let expected_before = place.dir().is_some() && place.is_plain();
    if expected_before {
        let dir = place.dir().expect("files");
        let seen = needles.iter().any(|needle| holds_bytes(dir, needle));
        assert!(
            seen,
            "the canary is not in the files before it is erased: the search is broken"
        );
    }
    script.erase(1, &[id(1)]);
    script.play(&*store).await;
    store.compact().await.unwrap();
    if let Some(dir) = place.dir() {
        for (number, needle) in needles.iter().enumerate() {
            assert!(
                !holds_bytes(dir, needle),
                "canary {number} is left in the files"
            );
        }
    }
    assert_holds(&*store, &script).await;
    // A compacted store goes on.
    script.decide(1, vec![memory(3, "after")]);
    script.play(&*store).await;
    assert_holds(&*store, &script).await;
    drop(store);
    assert_holds(&*place.open().await.unwrap(), &script).await;
}

/// Whether any file below `dir` holds these bytes.
pub fn holds_bytes(dir: &Path, needle: &[u8]) -> bool {
    let entries = std::fs::read_dir(dir).expect("a readable folder");
    entries
        .map(|entry| entry.expect("a readable entry").path())
        .any(|path| {
            if path.is_dir() {
                return holds_bytes(&path, needle);
            }
            let bytes = std::fs::read(&path).expect("a readable file");
            bytes.windows(needle.len()).any(|window| window == needle)
        })
}
