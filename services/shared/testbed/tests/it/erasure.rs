//! What is erased stays erased, is read the same by everybody, and touches nothing else.

use std::sync::Arc;

use anamnesis_audit::replay::replay;
use anamnesis_domain::digest;
use anamnesis_domain::input::{ADMITTED, Command, Target};
use anamnesis_domain::time::Known;
use anamnesis_domain::transition::{Decided, PartBody};
use anamnesis_pipeline::codec::{Codec, Opened};
use anamnesis_pipeline::consumer::Consumer;
use anamnesis_pipeline::log::EventLog as _;
use anamnesis_pipeline::stores::{Change, Checkpoint, StoreError};
use anamnesis_testbed::faults::{FaultyKeyring, Luck, PatientKeyring};
use anamnesis_testbed::spec::Spec;
use anamnesis_testbed::world::{World, believed, day, drain};

use crate::talk::{block_on, said, say, say_from};

async fn three_patients() -> World {
    let world = World::new(5, 2);
    for owner in ["a", "b", "c"] {
        world.grant(owner, "grant").await;
        say(&world, owner, "e1", 1, "smoking_status=smoker").await;
        say_from(&world, "note", owner, "n1", 2, "allergy=mango").await;
        say(&world, owner, "e2", 3, "~smoking_status=former").await;
        say(&world, owner, "e3", 4, "allergy=mango").await;
        say(&world, owner, "e4", 5, "preference=tea").await;
    }
    // An admission needs a message that is decided.
    decide_all(&world, &world.codec).await;
    for owner in ["a", "b", "c"] {
        admit(&world, owner, "e2", "medication=warfarin:5mg").await;
    }
    world
}

/// Somebody admits what was turned down of a message.
async fn admit(world: &World, owner: &str, event_id: &str, spec: &str) {
    let turn = world.turn(&said(owner, event_id, 3, spec));
    let claim = Spec::parse(spec)
        .unwrap()
        .claim(None, turn.at, World::source_of(&turn));
    let command = Command::Admit {
        event: turn.event,
        index: 0,
        claim: Box::new(claim),
        reason: "it was meant".into(),
    };
    world.command(owner, "api", "admit", command).await;
}

fn targets(world: &World) -> [(&'static str, Target); 6] {
    let ids = world.codec.keys().id_key();
    let source = ids.source(world.owner("a").1, "chat");
    [
        (
            "memory",
            Target::Memories(vec![world.memory_id("a", "chat", "e4")]),
        ),
        (
            "superseded",
            Target::Memories(vec![world.memory_id("a", "chat", "e1")]),
        ),
        ("message", Target::Message(world.event("a", "chat", "e2"))),
        (
            "admitted",
            Target::Memories(vec![ids.memory(world.event("a", "chat", "e2"), ADMITTED)]),
        ),
        ("source", Target::Source(source)),
        ("owner", Target::Owner),
    ]
}

async fn decide_all(world: &World, codec: &Codec) {
    for partition in 0..world.calm.partitions() {
        let mut manager = world.manager_over(partition, world.log(), codec.clone());
        drain(&mut manager).await.unwrap();
    }
}

#[test]
fn a_replay_is_the_same_before_and_after_the_keys_are_gone() {
    block_on(async {
        for (what, target) in targets(&three_patients().await) {
            let world = three_patients().await;
            let patient = PatientKeyring::new(world.keyring.clone());
            let codec = Codec::new(patient.clone());
            decide_all(&world, &codec).await;
            let untouched = world.states().await;
            world.erase("a", "forget", target).await;
            decide_all(&world, &codec).await;
            let (before, open) = (world.replay().await, world.keyring.open_count());
            patient.catch_up().await.unwrap();
            assert!(world.keyring.open_count() < open, "{what}: keys are gone");
            let after = world.replay().await;
            for (before, after) in before.iter().zip(&after) {
                assert_eq!(
                    before.skeleton, after.skeleton,
                    "{what}: one graph of states"
                );
                assert_eq!(
                    before.states, after.states,
                    "{what}: one state of everybody"
                );
            }
            let states = world.states().await;
            for other in ["b", "c"] {
                let key = world.owner(other).1;
                let (then, now) = (&untouched[&key], &states[&key]);
                assert_eq!(
                    digest::exact(then),
                    digest::exact(now),
                    "{what}: {other} is untouched"
                );
            }
            assert!(world.verify().await.is_good(), "{what}");
            world.settle().await;
            assert!(
                world.diff(&world.stores.projections()).await.is_clean(),
                "{what}"
            );
        }
    });
}

#[test]
fn a_late_write_of_an_older_version_brings_nothing_back() {
    block_on(async {
        let world = three_patients().await;
        world.settle().await;
        let scope = world.scope("a");
        let id = world.memory_id("a", "chat", "e4");
        let old = world.stores.records.history(scope, id).await.unwrap();
        let partition = world.partition("a");
        let mut stood = Vec::new();
        for store in world.stores.projections() {
            stood.push(store.checkpoint(partition).await.unwrap().unwrap().next);
        }
        world.erase("a", "forget", Target::Memories(vec![id])).await;
        world.settle().await;
        let change = Change::Version {
            version: Arc::new(old[0].clone()),
            vector: None,
        };
        for (store, stood) in world.stores.projections().into_iter().zip(stood) {
            let before = store.rows(scope).await.unwrap();
            let now = store.checkpoint(partition).await.unwrap().unwrap();
            let next = Checkpoint {
                next: stood + 1,
                ..now
            };
            let late = store
                .apply(partition, stood, std::slice::from_ref(&change), next)
                .await;
            assert!(
                matches!(late, Err(StoreError::Moved { .. })),
                "{}",
                store.store()
            );
            assert_eq!(
                store.rows(scope).await.unwrap(),
                before,
                "{}",
                store.store()
            );
        }
        assert!(
            world
                .stores
                .records
                .history(scope, id)
                .await
                .unwrap()
                .is_empty()
        );
        // Nor does the message itself, when it comes again.
        say(&world, "a", "e4", 5, "preference=tea").await;
        world.settle().await;
        assert!(!world.state("a").await.claims.contains_key(&id));
        assert!(world.diff(&world.stores.projections()).await.is_clean());
    });
}

/// What the manager believes is what a reader of the log believes, also for what is said while an
/// erasure is on its way.
async fn checked(world: &World) {
    for partition in 0..world.calm.partitions() {
        drain(&mut world.indexer(partition)).await.unwrap();
    }
    for state in world.states().await.values() {
        anamnesis_domain::invariants::check(state).unwrap();
    }
    assert!(world.diff(&world.stores.projections()).await.is_clean());
    assert!(world.verify().await.is_good());
    assert!(world.balance().await.is_exact());
}

async fn erase_chat(world: &World) {
    let source = world
        .codec
        .keys()
        .id_key()
        .source(world.owner("a").1, "chat");
    world.erase("a", "forget", Target::Source(source)).await;
}

#[test]
fn what_a_source_says_after_its_erasure_was_decided_is_remembered_by_all() {
    block_on(async {
        let world = World::new(6, 1);
        let mut manager = world.manager(0);
        world.grant("a", "grant").await;
        say(&world, "a", "e1", 1, "smoking_status=smoker").await;
        drain(&mut manager).await.unwrap();
        erase_chat(&world).await;
        drain(&mut manager).await.unwrap();
        // No projection has read the erasure yet.
        say(&world, "a", "e2", 2, "smoking_status=former").await;
        say(&world, "a", "e3", 3, "smoking_status=never").await;
        drain(&mut manager).await.unwrap();
        checked(&world).await;
        let expected = [
            "smoking status former superseded[2,3)",
            "smoking status never active[3,…)",
        ];
        assert_eq!(believed(&world.state("a").await), expected);
    });
}

#[test]
fn what_follows_an_erasure_in_one_batch_is_opened_with_the_keys_that_are_left() {
    block_on(async {
        let world = World::new(6, 1);
        let mut manager = world.manager(0);
        world.grant("a", "grant").await;
        drain(&mut manager).await.unwrap();
        erase_chat(&world).await;
        // Sealed before the erasure is decided: it goes with its source.
        let spec = Spec::parse("allergy=mango").unwrap();
        let turn = world.turn(&said("a", "c1", 1, "mango"));
        let claim = Box::new(spec.claim(None, day(1), World::source_of(&turn)));
        world
            .command("a", "chat", "c1", Command::Remember { claim })
            .await;
        drain(&mut manager).await.unwrap();
        checked(&world).await;
        assert!(believed(&world.state("a").await).is_empty());
    });
}

#[test]
fn a_crash_between_an_erasure_and_its_keys_is_made_good_before_anything_else_is_decided() {
    block_on(async {
        for attempt in 0..20 {
            let world = World::new(6, 1);
            let luck = Luck::new(attempt);
            let keys = FaultyKeyring {
                inner: world.keyring.clone(),
                luck: luck.clone(),
            };
            let codec = Codec::new(Arc::new(keys));
            let mut manager: Consumer = world.manager_over(0, world.log(), codec);
            world.grant("a", "grant").await;
            say(&world, "a", "e1", 1, "smoking_status=smoker").await;
            drain(&mut manager).await.unwrap();
            erase_chat(&world).await;
            luck.set_per_mille(300);
            for _ in 0..3 {
                let _ = manager.turn().await;
            }
            say(&world, "a", "e2", 2, "smoking_status=former").await;
            drain(&mut manager).await.unwrap();
            luck.set_per_mille(0);
            say(&world, "a", "e3", 3, "smoking_status=never").await;
            drain(&mut manager).await.unwrap();
            checked(&world).await;
            let told = believed(&world.state("a").await);
            assert!(
                told.contains(&"smoking status never active[3,…)".to_owned()),
                "{told:?}"
            );
        }
    });
}

#[test]
fn the_erased_words_are_in_no_record_that_can_be_opened() {
    block_on(async {
        let world = three_patients().await;
        world.settle().await;
        world
            .erase(
                "a",
                "forget",
                Target::Message(world.event("a", "chat", "e4")),
            )
            .await;
        world.settle().await;
        let (a, mut seen) = (world.owner("a").1, 0);
        for record in world
            .calm
            .dump()
            .into_iter()
            .filter(|record| record.key == a)
        {
            let opened = world
                .codec
                .open(std::slice::from_ref(&record))
                .await
                .unwrap()
                .remove(0);
            let text = match opened.unwrap() {
                Opened::Turn { turn, .. } => serde_json::to_string(&turn).unwrap(),
                Opened::Candidates { set, .. } => serde_json::to_string(&set).unwrap(),
                Opened::Command { command, .. } => serde_json::to_string(&command).unwrap(),
                Opened::Decided(opened) => words(&opened.decided),
                Opened::Identity(_)
                | Opened::Erased { .. }
                | Opened::Parked(_)
                | Opened::Unparked(_)
                | Opened::Receipt(_)
                | Opened::InboxRead(_)
                | Opened::Embedding { .. }
                | Opened::Access { .. }
                | Opened::WriterStarted { .. } => continue,
            };
            seen += 1;
            assert!(!text.contains("tea"), "{}", record.position);
        }
        assert!(seen > 5);
        let known = replay(&*world.calm, &world.codec, 0, Known::Latest)
            .await
            .unwrap();
        assert!(known.skeleton.broken_owners().next().is_none());
    });
}

/// Everything of a decision that can be read.
fn words(decided: &Decided) -> String {
    let mut words = serde_json::to_string(&decided.detail).unwrap();
    for part in &decided.parts {
        if let PartBody::Open(body) = &part.body {
            words.push_str(&serde_json::to_string(body).unwrap());
        }
    }
    words
}
