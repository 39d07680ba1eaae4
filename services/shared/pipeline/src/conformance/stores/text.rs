//! What a text index must pass beside [`super::projection`].

use anamnesis_domain::bm25::{BESIDE, Population, term_score};
use anamnesis_domain::ids::MemoryId;
use anamnesis_domain::memory::{Kind, Memory, Status};
use anamnesis_domain::text::Text;
use anamnesis_domain::tokens::query_tokens;

use super::Backend;
use super::script::{START, Script, everything, id, memory, memory_with};
use crate::stores::{Filter, Hit, TextIndex};

async fn hits(index: &dyn TextIndex, filter: &Filter, query: &str) -> Vec<Hit> {
    let answer = index
        .search(filter, &query_tokens(query), 50)
        .await
        .expect("the index answers");
    answer.hits
}

async fn ids(index: &dyn TextIndex, filter: &Filter, query: &str) -> Vec<MemoryId> {
    hits(index, filter, query)
        .await
        .into_iter()
        .map(|hit| hit.memory_id)
        .collect()
}

/// A memory with exactly these words.
fn says(number: u8, text: &str) -> Memory {
    memory_with(number, "", |memory| memory.claim.text = Text::new(text))
}

pub async fn a_score_is_the_formula_of_the_domain<B>(fresh: impl Fn() -> B)
where
    B: Backend<Store = dyn TextIndex>,
{
    let place = fresh();
    let index = place.open().await.unwrap();
    let mut script = Script::default();
    // Lengths 3, 4 and 1; `tea` twice in the second.
    script.decide(
        1,
        vec![
            says(1, "drinks green tea"),
            says(2, "tea or black tea"),
            says(3, "coffee"),
        ],
    );
    script.play(&*index).await;
    let population = Population {
        versions: 3,
        tokens: 8.0,
    };
    let green = term_score(population, 1, 1.0, 3.0);
    let expected = [
        (id(1), green + term_score(population, 2, 1.0, 3.0)),
        (id(2), term_score(population, 2, 2.0, 4.0)),
    ];
    let found = hits(&*index, &everything(1, 100), "green tea").await;
    let found: Vec<(MemoryId, f64)> = found.iter().map(|hit| (hit.memory_id, hit.score)).collect();
    assert_eq!(found, expected);
}

pub async fn statistics_are_taken_before_the_filter<B>(fresh: impl Fn() -> B)
where
    B: Backend<Store = dyn TextIndex>,
{
    let place = fresh();
    let index = place.open().await.unwrap();
    let mut script = Script::default();
    let allergy = |m: &mut Memory| {
        m.claim.kind = Kind::Allergy;
        m.claim.text = Text::new("tea");
    };
    // A confirmation is no part of the population; memories of another kind are.
    let confirmation = memory_with(4, "", |m| {
        m.claim.text = Text::new("tea tea tea");
        m.standing.confirms = Some(id(1));
    });
    script.decide(
        1,
        vec![
            memory_with(1, "", allergy),
            says(2, "black tea"),
            says(3, "coffee"),
            says(5, ""),
            confirmation,
        ],
    );
    script.play(&*index).await;
    let filter = Filter {
        kinds: Some(vec![Kind::Allergy]),
        ..everything(1, 100)
    };
    let found = hits(&*index, &filter, "tea").await;
    let population = Population {
        versions: 4,
        tokens: 4.0,
    };
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].score, term_score(population, 2, 1.0, 1.0));
}

pub async fn a_turn_is_found_by_what_was_said_beside_it<B>(fresh: impl Fn() -> B)
where
    B: Backend<Store = dyn TextIndex>,
{
    let turn = |number: u8, conversation: &str, minute: i64, text: &str| {
        memory_with(number, "", |memory| {
            memory.claim.kind = Kind::Episode;
            memory.claim.text = Text::new(text);
            memory.claim.source.conversation_id = Some(conversation.to_owned());
            memory.claim.source.at = START.plus_millis(minute * 60_000);
        })
    };
    let place = fresh();
    let index = place.open().await.unwrap();
    let mut script = Script::default();
    // What was said later is decided first: the time it was said at tells what stands beside what.
    script.decide(
        1,
        vec![
            turn(2, "a", 2, "lake tahoe"),
            turn(1, "a", 1, "where camping"),
            turn(3, "a", 3, "lovely"),
            turn(4, "b", 2, "forest"),
        ],
    );
    script.play(&*index).await;
    let all = everything(1, script.end(1));
    let population = Population {
        versions: 4,
        // 2 + 2/2, 2 + (2 + 1)/2, 1 + 2/2 and 1.
        tokens: 3.0 + 3.5 + 2.0 + 1.0,
    };
    let expected = [
        (id(1), term_score(population, 1, 1.0, 3.0)),
        (id(2), term_score(population, 1, BESIDE, 3.5)),
    ];
    let found = hits(&*index, &all, "camping").await;
    let found: Vec<(MemoryId, f64)> = found.iter().map(|hit| (hit.memory_id, hit.score)).collect();
    assert_eq!(found, expected);

    // What may not answer says nothing for those beside it.
    script.decide(
        1,
        vec![memory_with(1, "", |memory| {
            memory.claim = turn(1, "a", 1, "where camping").claim;
            memory.standing.status = Status::Restricted;
        })],
    );
    script.play(&*index).await;
    let readable = Filter {
        statuses: vec![Status::Active],
        ..everything(1, script.end(1))
    };
    assert!(ids(&*index, &readable, "camping").await.is_empty());
}

pub async fn statistics_are_those_of_the_cut<B>(fresh: impl Fn() -> B)
where
    B: Backend<Store = dyn TextIndex>,
{
    let place = fresh();
    let index = place.open().await.unwrap();
    let mut script = Script::default();
    let first = script.decide(1, vec![says(1, "tea"), says(2, "coffee")]);
    script.play(&*index).await;
    let then = everything(1, first + 1);
    let before = hits(&*index, &then, "tea").await;
    assert_eq!(before.len(), 1);
    // What is recorded later changes no earlier answer.
    for number in 3..9 {
        script.decide(1, vec![says(number, "green tea")]);
    }
    script.decide(1, vec![says(1, "water")]);
    script.play(&*index).await;
    assert_eq!(hits(&*index, &then, "tea").await, before);
    let now = ids(&*index, &everything(1, script.end(1)), "tea").await;
    assert_eq!(now, (3..9).map(id).collect::<Vec<_>>());
}

pub async fn other_owners_change_no_score<B>(fresh: impl Fn() -> B)
where
    B: Backend<Store = dyn TextIndex>,
{
    let place = fresh();
    let index = place.open().await.unwrap();
    let mut script = Script::default();
    script.decide(1, vec![says(1, "peanut 花生"), says(2, "tea")]);
    script.play(&*index).await;
    let alone = hits(&*index, &everything(1, 1000), "花生 peanut").await;
    for number in 2..=12 {
        script.decide(
            number,
            vec![says(1, "peanut"), says(2, "花生"), says(3, "peanut butter")],
        );
    }
    script.play(&*index).await;
    assert_eq!(
        hits(&*index, &everything(1, 1000), "花生 peanut").await,
        alone
    );
    assert_eq!(alone.len(), 1);
}

pub async fn chinese_and_english_are_found_alike<B>(fresh: impl Fn() -> B)
where
    B: Backend<Store = dyn TextIndex>,
{
    let place = fresh();
    let index = place.open().await.unwrap();
    let mut script = Script::default();
    script.decide(
        1,
        vec![
            says(1, "Allergic to PEANUTS"),
            says(2, "对花生过敏"),
            says(3, "服用阿莫西林 0.625g，每天两次"),
            says(4, "order A-1029 was shipped"),
            says(5, &format!("{} is a token", "k".repeat(300))),
        ],
    );
    script.play(&*index).await;
    let all = everything(1, 100);
    for (query, expected) in [
        ("peanut", 1),
        ("花生", 2),
        ("０．６２５Ｇ", 3),
        ("阿莫西林", 3),
        ("a-1029", 4),
        (&*"K".repeat(300), 5),
    ] {
        assert_eq!(
            ids(&*index, &all, query).await.first(),
            Some(&id(expected)),
            "{query}"
        );
    }
}

pub async fn a_repeated_term_counts_as_asked<B>(fresh: impl Fn() -> B)
where
    B: Backend<Store = dyn TextIndex>,
{
    let place = fresh();
    let index = place.open().await.unwrap();
    let mut script = Script::default();
    script.decide(1, vec![says(1, "tea"), says(2, "coffee")]);
    script.play(&*index).await;
    let terms = |terms: &[&str]| {
        terms
            .iter()
            .map(|term| (*term).to_owned())
            .collect::<Vec<_>>()
    };
    let once = index
        .search(&everything(1, 100), &terms(&["tea"]), 5)
        .await
        .unwrap();
    let twice = index
        .search(&everything(1, 100), &terms(&["tea", "tea", "absent"]), 5)
        .await
        .unwrap();
    assert_eq!(twice.hits[0].score, once.hits[0].score + once.hits[0].score);
    assert_eq!(
        index
            .search(&everything(1, 100), &terms(&["tea"]), 0)
            .await
            .unwrap()
            .hits,
        []
    );
}

pub async fn without_a_shared_term_nothing_is_found<B>(fresh: impl Fn() -> B)
where
    B: Backend<Store = dyn TextIndex>,
{
    let place = fresh();
    let index = place.open().await.unwrap();
    let mut script = Script::default();
    script.decide(1, vec![says(1, "tea"), says(2, "")]);
    script.play(&*index).await;
    assert_eq!(hits(&*index, &everything(1, 100), "coffee").await, []);
    assert_eq!(
        index
            .search(&everything(1, 100), &[], 5)
            .await
            .unwrap()
            .hits,
        []
    );
}

pub async fn ties_are_ordered_by_id<B>(fresh: impl Fn() -> B)
where
    B: Backend<Store = dyn TextIndex>,
{
    let place = fresh();
    let index = place.open().await.unwrap();
    let mut script = Script::default();
    for number in [7, 3, 9, 1] {
        script.decide(1, vec![memory(number, "the same")]);
    }
    script.play(&*index).await;
    let all = everything(1, 100);
    assert_eq!(
        ids(&*index, &all, "same").await,
        [id(1), id(3), id(7), id(9)]
    );
    let two = index.search(&all, &query_tokens("same"), 2).await.unwrap();
    assert_eq!(
        two.hits.iter().map(|hit| hit.memory_id).collect::<Vec<_>>(),
        [id(1), id(3)]
    );
}
