//! What every store must pass, whatever it holds.

use std::path::Path;

use anamnesis_domain::ids::{LogId, MemoryId};
use anamnesis_domain::memory::{EntityKind, Kind, Memory, Status};
use anamnesis_domain::owner::{OwnerScope, Subject};
use anamnesis_domain::text::Text;
use anamnesis_domain::time::Interval;

use super::script::{
    Draw, OwnedBatch, Script, day, entity, everything, id, memory, memory_with, scope, vector_of,
};
use super::{Backend, LOG_ID, PARTITIONS, Probe};
use crate::stores::{Checkpoint, Filter, Projection, StoreError, SubjectFilter};

async fn found<S: Probe + ?Sized>(store: &S, filter: &Filter) -> Vec<MemoryId> {
    let answer = store.found(filter).await.expect("the store answers");
    let mut ids: Vec<MemoryId> = answer.hits.iter().map(|hit| hit.memory_id).collect();
    ids.sort();
    ids
}

/// Every owner's rows are what the fold expects, and there is no other owner.
async fn assert_holds<S: Projection + ?Sized>(store: &S, script: &Script) {
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

pub async fn owners_never_meet<B: Backend>(fresh: impl Fn() -> B) {
    let place = fresh();
    let store = place.open().await.unwrap();
    let mut script = Script::default();
    // The same ids and words, in different partitions and in the same one.
    for number in 1..=9 {
        let mine: Vec<Memory> = (1..=number).map(|id| memory(id, "花生 peanut")).collect();
        script.decide(number, mine);
    }
    script.play(&*store).await;
    for number in 1..=9 {
        let expected: Vec<MemoryId> = (1..=number).map(id).collect();
        assert_eq!(
            found(&*store, &everything(number, 100)).await,
            expected,
            "owner {number}"
        );
    }
    assert_eq!(found(&*store, &everything(77, 100)).await, []);
    script.erase(4, &[id(1), id(2), id(3), id(4)]);
    script.play(&*store).await;
    assert_eq!(found(&*store, &everything(5, 100)).await.len(), 5);
    assert_holds(&*store, &script).await;
}

pub async fn recorded_time_is_a_filter<B: Backend>(fresh: impl Fn() -> B) {
    let place = fresh();
    let store = place.open().await.unwrap();
    let mut script = Script::default();
    let first = script.decide(1, vec![memory(1, "one")]);
    let second = script.decide(1, vec![memory(2, "two")]);
    let third = script.decide(
        1,
        vec![memory_with(1, "one", |m| {
            m.standing.status = Status::Retired
        })],
    );
    script.play(&*store).await;
    for (cut, expected) in [
        (0, vec![]),
        (first, vec![]),
        (first + 1, vec![id(1)]),
        (second + 1, vec![id(1), id(2)]),
        (third, vec![id(1), id(2)]),
        (third + 1, vec![id(2)]),
        (u64::MAX, vec![id(2)]),
    ] {
        let filter = Filter {
            statuses: vec![Status::Active],
            ..everything(1, cut)
        };
        assert_eq!(found(&*store, &filter).await, expected, "cut {cut}");
    }
}

pub async fn valid_time_is_a_filter<B: Backend>(fresh: impl Fn() -> B) {
    let place = fresh();
    let store = place.open().await.unwrap();
    let mut script = Script::default();
    let over = |from: i64, to: Option<i64>| {
        move |memory: &mut Memory| {
            memory.standing.valid_from = day(from);
            memory.standing.valid_to = to.map(day);
        }
    };
    script.decide(
        1,
        vec![
            memory_with(1, "", over(0, Some(10))),
            memory_with(2, "", over(10, None)),
            memory_with(3, "", over(5, Some(5))),
        ],
    );
    script.play(&*store).await;
    let end = script.end(1);
    for (at, expected) in [
        (-1, vec![]),
        (0, vec![id(1)]),
        (5, vec![id(1)]),
        (9, vec![id(1)]),
        (10, vec![id(2)]),
        (99, vec![id(2)]),
    ] {
        let filter = Filter {
            valid_at: Some(day(at)),
            ..everything(1, end)
        };
        assert_eq!(found(&*store, &filter).await, expected, "day {at}");
    }
    for (from, to, expected) in [
        (-5, Some(0), vec![]),
        (9, Some(11), vec![id(1), id(2)]),
        (10, Some(11), vec![id(2)]),
        (0, Some(10), vec![id(1), id(3)]),
        (50, None, vec![id(2)]),
    ] {
        let range = Interval::new(day(from), to.map(day)).unwrap();
        let filter = Filter {
            time_range: Some(range),
            ..everything(1, end)
        };
        assert_eq!(
            found(&*store, &filter).await,
            expected,
            "days {from} to {to:?}"
        );
    }
}

pub async fn every_facet_is_a_filter<B: Backend>(fresh: impl Fn() -> B) {
    let place = fresh();
    let store = place.open().await.unwrap();
    let mut script = Script::default();
    let neighbour = Subject::Other("邻居".to_owned());
    script.decide(
        1,
        vec![
            memory(1, "plain"),
            memory_with(2, "", |m| m.claim.kind = Kind::Allergy),
            memory_with(3, "", |m| m.claim.subject = Subject::Father),
            memory_with(4, "", |m| m.claim.subject = neighbour.clone()),
            memory_with(5, "", |m| m.standing.status = Status::Conflicted),
            memory_with(6, "", |m| {
                m.claim.context_tags = vec!["ward".to_owned(), "病房".to_owned()]
            }),
            memory_with(7, "", |m| m.claim.context_tags = vec!["home".to_owned()]),
            memory_with(8, "", |m| m.standing.confirms = Some(id(1))),
            memory_with(9, "", |m| m.standing.status = Status::Restricted),
        ],
    );
    script.play(&*store).await;
    let all = Filter {
        statuses: vec![Status::Active, Status::Conflicted],
        ..everything(1, 100)
    };
    let with = |change: &dyn Fn(&mut Filter)| {
        let mut filter = all.clone();
        change(&mut filter);
        filter
    };
    for (filter, expected) in [
        (all.clone(), vec![1, 2, 3, 4, 5, 6, 7]),
        (with(&|f| f.kinds = Some(vec![Kind::Allergy])), vec![2]),
        (
            with(&|f| f.kinds = Some(vec![Kind::Allergy, Kind::Fact])),
            vec![1, 2, 3, 4, 5, 6, 7],
        ),
        (with(&|f| f.kinds = Some(vec![])), vec![]),
        (
            with(&|f| f.subject = SubjectFilter::Only(Subject::Father)),
            vec![3],
        ),
        (
            with(&|f| f.subject = SubjectFilter::Only(neighbour.clone())),
            vec![4],
        ),
        (
            with(&|f| f.subject = SubjectFilter::Only(Subject::Self_)),
            vec![1, 2, 5, 6, 7],
        ),
        (with(&|f| f.statuses = vec![Status::Conflicted]), vec![5]),
        (with(&|f| f.statuses = vec![]), vec![]),
        (
            with(&|f| f.context_tags = Some(vec!["病房".to_owned()])),
            vec![1, 2, 3, 4, 5, 6],
        ),
        (
            with(&|f| f.context_tags = Some(vec![])),
            vec![1, 2, 3, 4, 5],
        ),
        (
            with(&|f| f.context_tags = Some(vec!["home".to_owned(), "ward".to_owned()])),
            vec![1, 2, 3, 4, 5, 6, 7],
        ),
    ] {
        let expected: Vec<MemoryId> = expected.into_iter().map(id).collect();
        assert_eq!(found(&*store, &filter).await, expected, "{filter:?}");
    }
}

pub async fn odd_words_are_kept_whole<B: Backend>(fresh: impl Fn() -> B) {
    let place = fresh();
    let store = place.open().await.unwrap();
    let mut script = Script::default();
    let texts = [
        "UPPER lower MiXeD",
        "花生过敏，對花生過敏",
        &"長".repeat(100),
        &format!("{}-17", "y".repeat(300)),
        &"z".repeat(70_000),
        "nul \0 quote ' \" percent % underscore _ 🥜",
        "",
    ];
    for (number, text) in texts.iter().enumerate() {
        let word = Text::new(*text);
        let odd = memory_with(number as u8 + 1, text, |memory| {
            memory
                .claim
                .entities
                .push(entity(EntityKind::Thing, word.expose()));
            memory.claim.context_tags = vec![(*text).to_owned()];
            memory.claim.subject = Subject::Other((*text).to_owned());
        });
        script.decide(1, vec![odd]);
    }
    script.play(&*store).await;
    assert_eq!(found(&*store, &everything(1, 100)).await.len(), texts.len());
    assert_holds(&*store, &script).await;
    for (number, text) in texts.iter().enumerate() {
        let subject = SubjectFilter::Only(Subject::Other((*text).to_owned()));
        let filter = Filter {
            subject,
            ..everything(1, 100)
        };
        assert_eq!(found(&*store, &filter).await, [id(number as u8 + 1)]);
    }
}

/// Two hundred owners with random histories, versions of every kind, random filters and questions:
/// hits, order, scores and positions are exactly those of the double.
pub async fn answers_agree_with_the_reference<B: Backend>(fresh: impl Fn() -> B) {
    let place = fresh();
    let store = place.open().await.unwrap();
    let reference = B::Store::reference();
    let mut script = Script::default();
    let mut draw = Draw::new(2026);
    const OWNERS: u64 = 200;
    let mut hits = 0;
    for round in 0..2 {
        draw.history(&mut script, OWNERS, 2000);
        for batch in script.take(100) {
            batch.apply(&*store).await.unwrap();
            batch.apply(&*reference).await.unwrap();
        }
        for number in (1..=OWNERS as u8).flat_map(|number| [number; 3]) {
            let filter = draw.filter(number, script.end(number));
            let seed = draw.next();
            let answer = store.ask(&filter, &mut Draw::new(seed)).await.unwrap();
            let expected = reference.ask(&filter, &mut Draw::new(seed)).await.unwrap();
            assert_eq!(
                answer, expected,
                "round {round}, owner {number}, seed {seed}"
            );
            hits += answer.hits.len();
        }
    }
    assert!(
        hits > 500,
        "the questions find too little to compare: {hits}"
    );
    assert_holds(&*store, &script).await;
}
