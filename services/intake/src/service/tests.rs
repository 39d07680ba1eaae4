//! What becomes durable, where, and for whom.

use anamnesis_domain::ids::ErasureId;
use anamnesis_domain::input::Target;
use anamnesis_domain::memory::Role;
use anamnesis_pipeline::keyring::Keyring as _;
use serde_json::{Value, json};

use super::*;
use crate::commands::Order;
use crate::request::ConsentChange;
use crate::world::World;

fn said(id: &str, owner: &str, text: &str) -> Value {
    json!({"event_id": id, "owner": owner, "role": "user", "at": "2025-05-01T10:00:00+08:00", "text": text})
}

async fn accept(world: &World, events: &[Value]) -> AcceptAnswer {
    world
        .intake
        .accept_values(&World::caller(), events, None)
        .await
        .unwrap()
}

async fn grant(world: &World, owner: &str) {
    let (caller, owner) = (World::caller(), owner.parse().unwrap());
    let order = Order {
        caller: &caller,
        owner: &owner,
        key: None,
    };
    world
        .intake
        .consent(&order, &ConsentChange::default())
        .await
        .unwrap();
    world.decide().await;
}

async fn texts(world: &World, topic: Topic) -> Vec<String> {
    let turns = world.turns(topic).await;
    turns
        .into_iter()
        .map(|(_, turn)| turn.text.into_exposed())
        .collect()
}

#[tokio::test]
async fn a_message_is_durable_under_its_own_key_when_it_is_accepted() {
    let world = World::new(false);
    let answer = accept(
        &world,
        &[
            said("e1", "h/p1", "我对芒果过敏"),
            said("e2", "h/p1", "也对虾过敏"),
        ],
    )
    .await;
    assert!(answer.rejected.is_empty());
    let turns = world.turns(Topic::Conversation).await;
    assert_eq!(turns.len(), 2);
    assert_ne!(turns[0].0.key_id, turns[1].0.key_id);
    for (accepted, (meta, turn)) in answer.accepted.iter().zip(&turns) {
        assert_eq!(accepted.position, meta.position);
        assert_eq!(accepted.token, turn.event);
        assert_eq!(
            turn.event,
            world.ids().event(meta.owner, "api", &turn.event_id, "")
        );
        assert_eq!((turn.role, turn.zone_minutes), (Role::User, 480));
    }
}

#[tokio::test]
async fn an_owners_messages_keep_their_order() {
    let world = World::new(false);
    let events: Vec<Value> = (0..40)
        .map(|i| {
            said(
                &format!("e{i}"),
                &format!("h/p{}", i % 3),
                &format!("text {i}"),
            )
        })
        .collect();
    let answer = accept(&world, &events).await;
    let ids: Vec<&str> = answer
        .accepted
        .iter()
        .map(|one| one.event_id.as_str())
        .collect();
    let sent: Vec<String> = (0..40).map(|i| format!("e{i}")).collect();
    assert_eq!(ids, sent);
    for owner in 0..3 {
        let scope = world.scope(&format!("h/p{owner}"));
        let own: Vec<u64> = answer
            .accepted
            .iter()
            .filter(|one| one.scope == scope)
            .map(|one| one.position.offset)
            .collect();
        assert!(own.is_sorted() && own.len() >= 13);
    }
}

#[tokio::test]
async fn what_is_wrong_with_one_event_does_not_touch_the_others() {
    let world = World::new(false);
    let mut wrong = said("e2", "h/p1", "x");
    wrong["text"] = json!(7);
    let answer = accept(
        &world,
        &[said("e1", "h/p1", "a"), wrong, said("e3", "h/p1", "b")],
    )
    .await;
    assert_eq!(answer.accepted.len(), 2);
    let rejected = &answer.rejected[0];
    assert_eq!(
        (rejected.index, rejected.code, rejected.field.as_deref()),
        (1, "invalid_field", Some("text"))
    );
}

#[tokio::test]
async fn identifiers_never_reach_the_log_and_injected_ranges_follow() {
    let world = World::new(false);
    let mut event = said("e1", "h/p1", "电话13912345678，您对花生过敏");
    event["injected"] = json!([[14, 20]]);
    event["speaker"] = json!("李 13912345678");
    accept(&world, &[event, said("e2", "h/p2", "call 139-1234-5678")]).await;
    let turns = world.turns(Topic::Conversation).await;
    let mut all: Vec<&str> = turns.iter().map(|(_, turn)| turn.text.expose()).collect();
    all.sort_unstable();
    for text in &all {
        assert!(!text.contains("1234") && text.contains("<PHONE#"), "{text}");
    }
    let of = |owner: &str| {
        let key = world.scope(owner).key();
        turns
            .iter()
            .find(|(meta, _)| meta.owner == key)
            .unwrap()
            .1
            .clone()
    };
    let first = of("h/p1");
    let (from, to) = first.injected[0];
    let injected: String = first
        .text
        .expose()
        .chars()
        .skip(from as usize)
        .take((to - from) as usize)
        .collect();
    assert_eq!(injected, "您对花生过敏");
    assert!(first.speaker.unwrap().expose().starts_with("李 <PHONE#"));
    // The same number is another placeholder for another owner.
    let number = |text: &str| text.split('#').nth(1).unwrap()[..8].to_owned();
    assert_ne!(
        number(first.text.expose()),
        number(of("h/p2").text.expose())
    );
}

#[tokio::test]
async fn without_consent_a_message_waits_and_a_grant_lets_it_in() {
    let world = World::new(true);
    let answer = accept(
        &world,
        &[said("e1", "h/p1", "早"), said("e2", "h/p2", "晚")],
    )
    .await;
    assert!(answer.accepted.iter().all(|one| one.quarantined));
    assert_eq!(answer.accepted[0].position.topic, Topic::Quarantine);
    assert!(texts(&world, Topic::Conversation).await.is_empty());

    grant(&world, "h/p1").await;
    assert_eq!(
        world
            .intake
            .release(&"h/p1".parse().unwrap())
            .await
            .unwrap(),
        1
    );
    assert_eq!(texts(&world, Topic::Conversation).await, ["早"]);
    world.decide().await;
    // What was decided is not let in again, and the other owner still waits.
    assert_eq!(
        world
            .intake
            .release(&"h/p1".parse().unwrap())
            .await
            .unwrap(),
        0
    );
    assert_eq!(
        world
            .intake
            .release(&"h/p2".parse().unwrap())
            .await
            .unwrap(),
        0
    );

    let answer = accept(&world, &[said("e3", "h/p1", "午")]).await;
    assert!(!answer.accepted[0].quarantined);
    // Each carries the version of the consent that let it in.
    for (meta, _) in world.turns(Topic::Conversation).await {
        let view = world
            .records
            .owner(world.scope("h/p1"))
            .await
            .unwrap()
            .unwrap();
        assert_eq!(meta.consent_version, view.consents[0].recorded_from);
    }
}

#[tokio::test]
async fn what_was_granted_while_intake_was_down_is_let_in_at_start() {
    let world = World::new(true);
    accept(
        &world,
        &[
            said("e1", "h/p1", "一"),
            said("e2", "h/p2", "二"),
            said("e3", "h/p3", "三"),
        ],
    )
    .await;
    grant(&world, "h/p1").await;
    grant(&world, "h/p3").await;
    assert_eq!(world.intake.release_all().await.unwrap(), 2);
    let mut seen = texts(&world, Topic::Conversation).await;
    seen.sort();
    assert_eq!(seen, ["一", "三"]);
}

#[tokio::test]
async fn what_waited_too_long_or_was_erased_is_gone() {
    let world = World::new(true);
    let answer = accept(&world, &[said("e1", "h/p1", "a"), said("e2", "h/p1", "b")]).await;
    let key = world.scope("h/p1").key();
    let erased = Target::Message(answer.accepted[0].token);
    world
        .keys
        .destroy(key, &erased, ErasureId::from_bytes([1; 16]))
        .await
        .unwrap();
    assert_eq!(texts(&world, Topic::Quarantine).await, ["b"]);

    world.clock.advance_millis(caps::QUARANTINE_MILLIS + 1);
    world
        .keys
        .destroy_expired(world.intake.now())
        .await
        .unwrap();
    grant(&world, "h/p1").await;
    assert_eq!(world.intake.release_all().await.unwrap(), 0);
    assert!(texts(&world, Topic::Conversation).await.is_empty());
}

#[tokio::test]
async fn a_grant_that_is_over_or_not_yet_in_force_lets_nothing_in() {
    let world = World::new(true);
    let (caller, owner) = (World::caller(), "h/p1".parse().unwrap());
    let order = Order {
        caller: &caller,
        owner: &owner,
        key: None,
    };
    for (from, to) in [
        ("2025-07-01T00:00:00Z", None),
        ("2025-01-01T00:00:00Z", Some("2025-02-01T00:00:00Z")),
    ] {
        let ask = ConsentChange {
            valid_from: Some(crate::world::at(from)),
            valid_to: to.map(crate::world::at),
            ..ConsentChange::default()
        };
        world.intake.consent(&order, &ask).await.unwrap();
    }
    world.decide().await;
    assert!(accept(&world, &[said("e1", "h/p1", "a")]).await.accepted[0].quarantined);
}

#[tokio::test]
async fn policies_need_no_consent() {
    let world = World::new(true);
    let answer = accept(
        &world,
        &[said("e1", "h/org/ward", "visiting ends at eight")],
    )
    .await;
    assert!(!answer.accepted[0].quarantined);
}

#[tokio::test]
async fn what_follows_an_erasure_is_sealed_in_the_next_epoch() {
    let world = World::new(false);
    accept(&world, &[said("e1", "h/p1", "a")]).await;
    let key = world.scope("h/p1").key();
    world
        .keys
        .destroy(key, &Target::Owner, ErasureId::from_bytes([2; 16]))
        .await
        .unwrap();
    accept(&world, &[said("e2", "h/p1", "b")]).await;
    let turns = world.turns(Topic::Conversation).await;
    assert_eq!(turns.len(), 1, "the first is unreadable");
    assert_eq!(turns[0].0.key_epoch, 2);
}

#[tokio::test]
async fn a_batch_of_nothing_but_refusals_writes_nothing() {
    let world = World::new(false);
    let answer = accept(&world, &[json!({}), json!(1)]).await;
    assert_eq!(answer.rejected.len(), 2);
    assert!(world.turns(Topic::Conversation).await.is_empty());
}

#[tokio::test]
async fn an_idempotency_key_names_events_that_have_no_id() {
    let world = World::new(false);
    let mut event = said("x", "h/p1", "a");
    event.as_object_mut().unwrap().shift_remove("event_id");
    let one = world
        .intake
        .accept_values(&World::caller(), &[event.clone()], Some("k"))
        .await
        .unwrap();
    assert_eq!(one.accepted[0].event_id, "k");
    let two = world
        .intake
        .accept_values(&World::caller(), &[event.clone(), event], Some("k"))
        .await
        .unwrap();
    assert_eq!(two.accepted[1].event_id, "k/1");
}

#[tokio::test]
async fn a_message_from_a_file_is_the_same_event_over_http() {
    let world = World::new(false);
    let event = json!({"specversion": "1.0", "id": "e1", "source": "/a", "type": "t", "subject": "h/p1",
        "time": "2025-05-01T10:00:00Z", "data": {"text": "hi"}});
    let over_http = accept(&world, std::slice::from_ref(&event)).await;
    let options = crate::import::Options::new("h", "file", world.intake.now());
    let messages = crate::import::detect_and_read(&event, &options).unwrap();
    let imported = world
        .intake
        .accept(&World::caller(), messages)
        .await
        .unwrap();
    assert_eq!(over_http.accepted[0].token, imported.accepted[0].token);
}
