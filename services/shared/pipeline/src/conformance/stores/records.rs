//! What the authority must pass beside [`super::projection`].

use anamnesis_domain::ids::MemoryId;
use anamnesis_domain::memory::{Kind, Memory, Status};
use anamnesis_domain::time::Known;

use super::Backend;
use super::script::{
    Script, day, event, everything, id, memory, memory_with, owner, recorded_at, scope,
};
use crate::stores::{Cut, Filter, MemoryVersion, Order, Records, StoreError};

fn ids(versions: &[MemoryVersion]) -> Vec<MemoryId> {
    versions.iter().map(|version| version.memory.id).collect()
}

pub async fn a_cut_is_the_first_offset_recorded_later<B>(fresh: impl Fn() -> B)
where
    B: Backend<Store = dyn Records>,
{
    let place = fresh();
    let records = place.open().await.unwrap();
    let mut script = Script::default();
    let other = (2..100).find(|other| script.partition_of(*other) == script.partition_of(1));
    let other = other.expect("some owner shares the partition");
    assert_eq!(records.cut(scope(1), Known::Latest).await.unwrap(), Cut(0));
    script.decide(1, vec![memory(1, "one")]);
    script.decide(other, vec![memory(1, "between")]);
    script.decide(1, vec![memory(1, "two")]);
    script.play(&*records).await;
    for (at, expected) in [
        (Known::At(day(-1)), 1),
        (Known::At(recorded_at(1)), 2),
        // Another owner's decision counts: an owner without any is asked about as well.
        (Known::At(recorded_at(2).plus_millis(-1)), 2),
        (Known::At(recorded_at(2)), 3),
        (Known::At(recorded_at(3)), 4),
        (Known::At(day(999)), 4),
        (Known::Latest, 4),
    ] {
        assert_eq!(
            records.cut(scope(1), at).await.unwrap(),
            Cut(expected),
            "{at:?}"
        );
    }
    let elsewhere = (2..100).find(|n| script.partition_of(*n) != script.partition_of(1));
    let elsewhere = scope(elsewhere.expect("some owner is elsewhere"));
    assert_eq!(
        records.cut(elsewhere, Known::At(day(999))).await.unwrap(),
        Cut(0)
    );
}

pub async fn a_check_answers_in_the_order_asked<B>(fresh: impl Fn() -> B)
where
    B: Backend<Store = dyn Records>,
{
    let place = fresh();
    let records = place.open().await.unwrap();
    let mut script = Script::default();
    let restricted = memory_with(4, "", |memory| memory.standing.status = Status::Restricted);
    let first = script.decide(
        1,
        vec![memory(1, "a"), memory(2, "b"), memory(3, "c"), restricted],
    );
    script.decide(1, vec![memory(2, "b, again")]);
    script.decide(2, vec![memory(9, "somebody else's")]);
    script.play(&*records).await;
    let asked = [id(3), id(9), id(4), id(2), id(77), id(1)];
    let filter = Filter {
        statuses: vec![Status::Active],
        ..everything(1, script.end(1))
    };
    let found = records.check(&filter, &asked).await.unwrap();
    assert_eq!(ids(&found), [id(3), id(2), id(1)]);
    assert_eq!(found[1].memory.version, 2);
    assert_eq!(found[1].memory.claim.text.expose(), "peanut 花生 b, again");
    let past = Filter {
        cut: Cut(first + 1),
        ..filter
    };
    let found = records.check(&past, &asked).await.unwrap();
    assert_eq!(found[1].memory.version, 1);
    assert_eq!(found[1].recorded_to, Some(first + 1));
    assert_eq!(records.check(&past, &[]).await.unwrap(), []);
}

pub async fn a_history_is_oldest_first<B>(fresh: impl Fn() -> B)
where
    B: Backend<Store = dyn Records>,
{
    let place = fresh();
    let records = place.open().await.unwrap();
    let mut script = Script::default();
    for text in ["5 mg", "10 mg", "15 mg"] {
        script.decide(1, vec![memory(1, text), memory(2, text)]);
    }
    script.decide(2, vec![memory(1, "somebody else's")]);
    script.play(&*records).await;
    let history = records.history(scope(1), id(1)).await.unwrap();
    let expected: Vec<MemoryVersion> = script
        .rows_of(1)
        .versions
        .iter()
        .filter(|(version, _)| version.memory.id == id(1))
        .map(|(version, _)| MemoryVersion::clone(version))
        .collect();
    assert_eq!(history, expected);
    assert_eq!(records.history(scope(3), id(1)).await.unwrap(), []);
}

fn dated(number: u8, days: i64) -> Memory {
    memory_with(number, "", |memory| memory.standing.valid_from = day(days))
}

async fn pages(
    records: &dyn Records,
    filter: &Filter,
    order: Order,
    limit: usize,
) -> Vec<MemoryId> {
    let mut all = Vec::new();
    let mut cursor: Option<String> = None;
    loop {
        let page = records
            .list(filter, order, limit, cursor.as_deref())
            .await
            .unwrap();
        all.extend(ids(&page.versions));
        cursor = page.cursor;
        if cursor.is_none() {
            return all;
        }
    }
}

pub async fn pages_join_without_gap_or_repeat<B>(fresh: impl Fn() -> B)
where
    B: Backend<Store = dyn Records>,
{
    let place = fresh();
    let records = place.open().await.unwrap();
    let mut script = Script::default();
    // Several of the same recorded and the same valid time; also before 1970.
    script.decide(1, vec![dated(1, 5), dated(2, -20_000), dated(3, 5)]);
    script.decide(1, vec![dated(5, 7), dated(4, 5)]);
    script.decide(1, vec![dated(1, 1)]);
    script.play(&*records).await;
    let all = everything(1, script.end(1));
    for limit in [1, 2, 3, 4, 5, 500, 100_000] {
        let recorded = pages(&*records, &all, Order::Recorded, limit).await;
        assert_eq!(
            recorded,
            [id(1), id(4), id(5), id(2), id(3)],
            "limit {limit}"
        );
        let valid = pages(&*records, &all, Order::Valid, limit).await;
        assert_eq!(valid, [id(5), id(3), id(4), id(1), id(2)], "limit {limit}");
    }
    let exact = records.list(&all, Order::Recorded, 5, None).await.unwrap();
    assert_eq!(exact.cursor, None, "the last page says so");
}

pub async fn a_listing_does_not_move_while_it_is_read<B>(fresh: impl Fn() -> B)
where
    B: Backend<Store = dyn Records>,
{
    let place = fresh();
    let records = place.open().await.unwrap();
    let mut script = Script::default();
    for number in 1..=4 {
        script.decide(1, vec![memory(number, "")]);
    }
    script.play(&*records).await;
    let first = records
        .list(&everything(1, script.end(1)), Order::Recorded, 2, None)
        .await
        .unwrap();
    assert_eq!(ids(&first.versions), [id(4), id(3)]);
    // One that was on the first page and one that was not change meanwhile, and one is new.
    script.decide(
        1,
        vec![memory(4, "new"), memory(1, "new"), memory(5, "new")],
    );
    script.play(&*records).await;
    let later = everything(1, script.end(1));
    let second = records
        .list(&later, Order::Recorded, 2, first.cursor.as_deref())
        .await
        .unwrap();
    assert_eq!(ids(&second.versions), [id(2), id(1)]);
    assert_eq!(second.versions[1].memory.version, 1);
    assert_eq!(second.cursor, None);
}

pub async fn a_foreign_cursor_is_refused<B>(fresh: impl Fn() -> B)
where
    B: Backend<Store = dyn Records>,
{
    let place = fresh();
    let records = place.open().await.unwrap();
    let mut script = Script::default();
    script.decide(1, vec![memory(1, ""), memory(2, "")]);
    script.play(&*records).await;
    let all = everything(1, 100);
    let page = records.list(&all, Order::Recorded, 1, None).await.unwrap();
    let cursor = page.cursor.expect("there is more");
    for (order, text) in [
        (Order::Valid, cursor.as_str()),
        (Order::Recorded, "1"),
        (Order::Recorded, ""),
    ] {
        let refused = records.list(&all, order, 1, Some(text)).await;
        assert!(
            matches!(refused, Err(StoreError::Unusable { .. })),
            "{text}: {refused:?}"
        );
    }
}

pub async fn a_decision_answers_its_event<B>(fresh: impl Fn() -> B)
where
    B: Backend<Store = dyn Records>,
{
    let place = fresh();
    let records = place.open().await.unwrap();
    let mut script = Script::default();
    script.decide(1, vec![memory(1, "")]);
    script.decide(2, vec![memory(2, "")]);
    script.decide(1, vec![]);
    script.erase(1, &[id(1)]);
    script.play(&*records).await;
    let rows = &script.rows_of(1).decisions;
    for row in rows {
        let found = records.decision(scope(1), row.event).await.unwrap();
        assert_eq!(found.as_ref(), Some(row));
    }
    assert_eq!(records.decision(scope(2), event(2)).await.unwrap(), None);
    assert_eq!(records.decision(scope(3), event(1)).await.unwrap(), None);
    let offsets: Vec<u64> = rows.iter().map(|row| row.offset).collect();
    assert_eq!(records.decision_offsets(scope(1)).await.unwrap(), offsets);
    assert!(records.decision_offsets(scope(3)).await.unwrap().is_empty());
}

pub async fn an_owner_is_known_by_its_last_view<B>(fresh: impl Fn() -> B)
where
    B: Backend<Store = dyn Records>,
{
    let place = fresh();
    let records = place.open().await.unwrap();
    let mut script = Script::default();
    assert_eq!(records.owner(scope(1)).await.unwrap(), None);
    script.decide(1, vec![memory(1, "")]);
    script.decide(1, vec![]);
    script.play(&*records).await;
    let view = records.owner(scope(1)).await.unwrap();
    assert_eq!(view.as_ref(), Some(&script.rows_of(1).view));
    script.erase(1, &[id(1)]);
    script.play(&*records).await;
    let view = records.owner(scope(1)).await.unwrap().expect("still known");
    assert_eq!((view.key, view.erasures.len()), (owner(1), 1));
    assert_eq!(records.owner(scope(2)).await.unwrap(), None);
}

pub async fn counts_are_of_current_memories<B>(fresh: impl Fn() -> B)
where
    B: Backend<Store = dyn Records>,
{
    let place = fresh();
    let records = place.open().await.unwrap();
    let mut script = Script::default();
    assert_eq!(records.counts().await.unwrap(), []);
    let allergy = |number| memory_with(number, "", |memory| memory.claim.kind = Kind::Allergy);
    let confirming = memory_with(3, "", |memory| memory.standing.confirms = Some(id(1)));
    script.decide(1, vec![allergy(1), memory(2, ""), confirming]);
    script.decide(2, vec![allergy(1)]);
    script.decide(
        1,
        vec![memory_with(2, "", |memory| {
            memory.standing.status = Status::Retired
        })],
    );
    script.play(&*records).await;
    let expected = [
        (Kind::Allergy, Status::Active, 2),
        (Kind::Fact, Status::Retired, 1),
    ];
    assert_eq!(records.counts().await.unwrap(), expected);
}
