//! What every store must pass when it is asked: both clocks, every facet, one owner at a time, and the
//! same answers as the double.

use anamnesis_domain::ids::MemoryId;
use anamnesis_domain::memory::{EntityKind, Kind, Memory, Status};
use anamnesis_domain::owner::Subject;
use anamnesis_domain::text::Text;
use anamnesis_domain::time::Interval;

use super::draw::Draw;
use super::projection::{assert_holds, found};
use super::script::{Script, day, entity, everything, id, memory, memory_with};
use super::{Backend, Probe};
use crate::stores::{Filter, SubjectFilter};

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
            let seed = draw.number();
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
