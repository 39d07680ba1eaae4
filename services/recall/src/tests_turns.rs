//! Turns beside what was distilled from them: a turn answers while something of it holds, and what is over
//! does not come back by way of the words that once said it.

use anamnesis_domain::ids::EventTag;
use anamnesis_domain::memory::{Kind, Memory, Permille, Status};
use anamnesis_domain::owner::Subject;

use crate::answer::Answer;
use crate::compose::ContextAsk;
use crate::fixture::{at, memory, said};
use crate::request::Ask;
use crate::world::World;

/// A turn and what was distilled from it, as one decision records them.
struct Said {
    event: EventTag,
    turn: Memory,
    memories: Vec<Memory>,
}

fn turn(number: u8, when: &str, text: &str, distilled: &[(Kind, &str)]) -> Said {
    let event = EventTag::from_bytes([number; 16]);
    let mut turn = memory(said(Kind::Episode, text, event, when));
    turn.claim.importance = Permille::new(100);
    Said {
        event,
        turn,
        memories: distilled
            .iter()
            .map(|(kind, text)| memory(said(*kind, text, event, when)))
            .collect(),
    }
}

fn ended(mut memory: Memory, by: &Memory) -> Memory {
    memory.version += 1;
    memory.standing.status = Status::Superseded;
    memory.standing.valid_to = Some(by.standing.valid_from);
    memory.standing.superseded_by = Some(by.id);
    memory
}

impl World {
    async fn hears(&self, said: &Said) {
        let mut all = said.memories.clone();
        all.push(said.turn.clone());
        self.decides("p1", said.event, &all).await;
    }
}

async fn world() -> World {
    let world = World::new();
    world.consents("p1").await;
    world
}

fn texts(answer: &Answer) -> Vec<&str> {
    answer
        .memories
        .iter()
        .map(|memory| memory.record.text.expose())
        .collect()
}

/// Case C07: one card, then another, then the other again.
async fn two_cards() -> World {
    let world = world().await;
    let first = turn(
        1,
        "2026-06-10T00:00:00Z",
        "退款打到尾号 8812 的卡",
        &[(Kind::Fact, "退款卡尾号 8812")],
    );
    let mut second = turn(
        2,
        "2026-06-12T00:00:00Z",
        "退款改成尾号 3047 的卡",
        &[(Kind::Fact, "退款卡尾号 3047")],
    );
    let mut again = turn(
        3,
        "2026-06-13T00:00:00Z",
        "退款改成尾号 3047 的卡",
        &[(Kind::Fact, "退款卡尾号 3047")],
    );
    world.hears(&first).await;
    let current = second.memories[0].clone();
    second
        .memories
        .push(ended(first.memories[0].clone(), &current));
    world.hears(&second).await;
    again.memories[0].standing.confirms = Some(current.id);
    world.hears(&again).await;
    world
}

#[tokio::test]
async fn what_is_over_does_not_come_back_as_the_turn_that_said_it() {
    let world = two_cards().await;
    let ask = Ask::new("退款 尾号");
    assert_eq!(
        texts(&world.asks("p1", ask.clone()).await),
        ["退款卡尾号 3047"]
    );
    let as_of = Ask {
        as_of: Some(at("2026-06-11T00:00:00Z")),
        ..ask.clone()
    };
    assert_eq!(texts(&world.asks("p1", as_of).await), ["退款卡尾号 8812"]);
    let known_then = Ask {
        known_at: Some(at("2026-06-11T00:00:00Z")),
        ..ask.clone()
    };
    assert_eq!(
        texts(&world.asks("p1", known_then).await),
        ["退款卡尾号 8812"]
    );
    // A history shows it as what it is: replaced.
    let history = Ask {
        include_history: true,
        ..ask
    };
    let history = world.asks("p1", history).await;
    assert!(texts(&history).contains(&"退款卡尾号 8812"), "{history:#?}");
}

#[tokio::test]
async fn a_context_is_not_given_what_is_over_either() {
    let world = two_cards().await;
    let (patient, scope) = world.scope("p1");
    let wanted = ContextAsk {
        ask: Ask::new("退款 尾号"),
        usable_tokens: 20_000,
        sections: None,
        companions: Vec::new(),
    };
    let context = world
        .shared()
        .context(scope, &patient, "test", wanted)
        .await
        .unwrap();
    assert!(
        context.text.contains("3047") && !context.text.contains("8812"),
        "{}",
        context.text
    );
}

#[tokio::test]
async fn an_explained_answer_says_why_a_turn_is_silent() {
    let world = two_cards().await;
    let ask = Ask {
        explain: true,
        ..Ask::new("退款 尾号")
    };
    let explain = world.asks("p1", ask).await.explain.unwrap();
    let count = |outcome: &str| {
        explain
            .considered
            .iter()
            .filter(|one| one.outcome == outcome)
            .count()
    };
    assert_eq!((count("returned"), count("over"), count("told")), (1, 1, 2));
}

/// Whether the turn answers a question that only its own words meet, when what was distilled from it
/// stands like this.
async fn check(change: impl Fn(&mut Memory), answers: bool, why: &str) {
    let world = world().await;
    let mut told = turn(
        4,
        "2026-05-01T00:00:00Z",
        "zebra: my sister drove me to the ward",
        &[(Kind::Fact, "lives with the family")],
    );
    change(&mut told.memories[0]);
    world.hears(&told).await;
    let answer = world.asks("p1", Ask::new("zebra sister drove")).await;
    assert_eq!(answer.answerable, answers, "{why}: {answer:#?}");
}

#[tokio::test]
async fn a_turn_answers_while_something_of_it_holds() {
    let with = |status: Status| move |memory: &mut Memory| memory.standing.status = status;
    check(|_| (), true, "active").await;
    check(with(Status::Conflicted), true, "in conflict").await;
    check(with(Status::PendingReview), true, "not decided yet").await;
    check(with(Status::Retired), false, "never true").await;
    check(with(Status::Archived), false, "archived").await;
    check(with(Status::Restricted), false, "restricted").await;
    check(
        |memory| memory.standing.valid_to = Some(at("2026-05-02T00:00:00Z")),
        false,
        "ended",
    )
    .await;
    check(
        |memory| memory.standing.valid_from = at("2027-01-01T00:00:00Z"),
        true,
        "begins later",
    )
    .await;
    check(
        |memory| memory.claim.subject = Subject::Mother,
        true,
        "about somebody else",
    )
    .await;
}

#[tokio::test]
async fn a_turn_without_memories_stays() {
    let world = world().await;
    world
        .hears(&turn(
            5,
            "2026-05-01T00:00:00Z",
            "zebra: my sister drove me",
            &[],
        ))
        .await;
    assert!(
        world
            .asks("p1", Ask::new("zebra sister drove"))
            .await
            .answerable
    );
}

#[tokio::test]
async fn a_turn_that_only_confirmed_ends_with_what_it_confirmed() {
    let first = turn(
        6,
        "2026-05-01T00:00:00Z",
        "I moved",
        &[(Kind::Fact, "lives in Suzhou")],
    );
    let mut again = turn(
        7,
        "2026-05-03T00:00:00Z",
        "zebra: my sister drove me home",
        &[(Kind::Fact, "lives in Suzhou, as said")],
    );
    again.memories[0].standing.confirms = Some(first.memories[0].id);
    let world = world().await;
    world.hears(&first).await;
    world.hears(&again).await;
    let ask = Ask::new("zebra sister drove");
    assert!(world.asks("p1", ask.clone()).await.answerable);
    // Moved away: the memory that it confirmed is over, and its own claim with it.
    let next = turn(
        8,
        "2026-06-01T00:00:00Z",
        "off",
        &[(Kind::Fact, "lives in Hangzhou")],
    );
    let new = next.memories[0].clone();
    let over = ended(first.memories[0].clone(), &new);
    let mut with_it = ended(again.memories[0].clone(), &new);
    with_it.standing.confirms = Some(first.memories[0].id);
    let next = Said {
        memories: vec![new, over, with_it],
        ..next
    };
    world.hears(&next).await;
    assert!(!world.asks("p1", ask.clone()).await.answerable);
    let before = Ask {
        as_of: Some(at("2026-05-10T00:00:00Z")),
        ..ask
    };
    assert!(world.asks("p1", before).await.answerable);
}

#[tokio::test]
async fn of_a_turn_that_said_two_things_the_one_that_is_asked_about_decides() {
    let world = world().await;
    let told = turn(
        9,
        "2026-05-01T00:00:00Z",
        "I am taking warfarin, five milligram, and I sold the blue bicycle",
        &[
            (Kind::Medication, "warfarin five milligram"),
            (Kind::Fact, "sold the bicycle"),
        ],
    );
    let new = turn(
        10,
        "2026-06-01T00:00:00Z",
        "now it is seven",
        &[(Kind::Medication, "warfarin seven milligram")],
    );
    world.hears(&told).await;
    let current = new.memories[0].clone();
    let over = ended(told.memories[0].clone(), &current);
    world
        .hears(&Said {
            memories: vec![current, over],
            ..new
        })
        .await;
    let dose = world
        .asks("p1", Ask::new("What dose of warfarin do I take?"))
        .await;
    assert_eq!(texts(&dose), ["warfarin seven milligram"]);
    // The other half still holds.
    let colour = world.asks("p1", Ask::new("blue bicycle")).await;
    assert_eq!(texts(&colour).len(), 1, "{colour:#?}");
}

#[tokio::test]
async fn a_memory_speaks_for_its_turn_only_where_it_answers_about_as_well() {
    for (text, fact, about_both, about_the_rest) in [
        (
            "I live in Suzhou and repair old violins from Cremona in a cellar workshop",
            "lives in Suzhou",
            "Do I live in Suzhou?",
            "Does somebody who lives here repair old violins from Cremona in a cellar?",
        ),
        (
            "我住在苏州，平时在地下室修理克雷莫纳的旧小提琴",
            "住在苏州",
            "住在苏州吗",
            "住在哪里的人在地下室修理旧小提琴",
        ),
    ] {
        let world = world().await;
        world
            .hears(&turn(
                11,
                "2026-05-01T00:00:00Z",
                text,
                &[(Kind::Fact, fact)],
            ))
            .await;
        let mut ask = Ask::new(about_both);
        ask.min_score = Some(0.0);
        assert_eq!(texts(&world.asks("p1", ask).await), [fact], "{text}");
        let mut ask = Ask::new(about_the_rest);
        ask.min_score = Some(0.0);
        assert_eq!(texts(&world.asks("p1", ask).await), [text, fact], "{text}");
    }
}
