//! What becomes of an owner whose record cannot be read, and of everybody else?

use std::collections::BTreeMap;
use std::sync::Arc;

use anamnesis_domain::digest;
use anamnesis_domain::ids::OwnerKey;
use anamnesis_domain::input::{Command, Position, Target, Topic};
use anamnesis_domain::memory::Permille;
use anamnesis_pipeline::codec::Opened;
use anamnesis_pipeline::consumer::{Consumer, Progress};
use anamnesis_pipeline::log::{EventLog as _, NewRecord, partition_of};
use anamnesis_schemas::Envelope;
use anamnesis_testbed::faults::{Luck, MisreadLog, TornLog};
use anamnesis_testbed::spec::Spec;
use anamnesis_testbed::world::{World, believed, day, drain};
use bytes::Bytes;

use crate::talk::{block_on, said, say};

/// Records that no version can read, by what is wrong with them.
async fn poisons(world: &World, topic: Topic) -> BTreeMap<&'static str, Bytes> {
    let good = good_payload(world, topic).await;
    let mut unknown = good.to_vec();
    // The frame's marker stays; the schema's fingerprint is nobody's.
    unknown[2..10].fill(0xee);
    let mut swapped = Envelope::decode(&good).unwrap();
    swapped.parts[0].body.reverse();
    let other = if topic == Topic::Commands {
        Topic::Candidates
    } else {
        Topic::Commands
    };
    BTreeMap::from([
        (
            "garbage bytes",
            Bytes::from_static(b"\xc3\x01 what is this"),
        ),
        ("nothing at all", Bytes::new()),
        ("a truncated frame", good.slice(..good.len() / 2)),
        ("an unknown schema", Bytes::from(unknown)),
        ("2 MiB of noise", Bytes::from(vec![0x5a; 2 << 20])),
        (
            "a body of something else",
            Bytes::from(swapped.encode().unwrap()),
        ),
        (
            "a record of another topic",
            good_payload(world, other).await,
        ),
    ])
}

/// The payload of a record that could stand in this topic.
async fn good_payload(world: &World, topic: Topic) -> Bytes {
    let turn = world.turn(&said("a", "poison", 1, "poison"));
    let position = if topic == Topic::Commands {
        world.grant("a", "poison").await
    } else {
        let meta = world.accept(&turn).await;
        world
            .extracted(&meta, World::found(&turn, Vec::new()))
            .await
    };
    let at = [position.offset];
    let records = world
        .calm
        .read_at(topic, position.partition, &at)
        .await
        .unwrap();
    records[0].payload.clone()
}

async fn append(world: &World, topic: Topic, owner: &str, payload: Bytes) {
    let key = world.owner(owner).1;
    world
        .append(topic, key, vec![NewRecord { key, payload }])
        .await;
}

/// Turns until nothing is left to do, and some more: a stage that begins again and again is no rest.
async fn rest(consumer: &mut Consumer) {
    drain(consumer).await.unwrap();
    for _ in 0..10 {
        assert_eq!(consumer.turn().await.unwrap(), Progress::Idle);
    }
}

#[test]
fn an_unreadable_record_parks_its_owner_at_once_and_nobody_else() {
    block_on(async {
        for topic in [Topic::Candidates, Topic::Commands] {
            for what in poisons(&World::new(1, 1), topic).await.into_keys() {
                let scratch = World::new(1, 1);
                let payload = poisons(&scratch, topic).await.remove(what).unwrap();
                one_poison(topic, what, payload).await;
            }
        }
    });
}

async fn one_poison(topic: Topic, what: &str, payload: Bytes) {
    let world = World::new(1, 1);
    for owner in ["a", "b"] {
        world.grant(owner, "grant").await;
    }
    say(&world, "a", "e1", 1, "smoking_status=smoker").await;
    append(&world, topic, "a", payload).await;
    say(&world, "a", "e2", 2, "~smoking_status=former").await;
    for n in 0..20 {
        say(&world, "b", &format!("e{n}"), n, "allergy=mango").await;
    }
    let mut manager = world.manager(0);
    assert_eq!(manager.turn().await.unwrap(), Progress::Began, "{what}");
    manager.turn().await.unwrap();
    let a = world.owner("a").1;
    assert_eq!(
        manager.parked(),
        [a],
        "{what} in {topic}: parked within one turn"
    );
    rest(&mut manager).await;
    let before = world.calm.dump().len();
    rest(&mut manager).await;
    assert_eq!(
        world.calm.dump().len(),
        before,
        "{what} in {topic}: no circles"
    );
    assert_eq!(
        believed(&world.state("b").await),
        ["allergy mango active[0,…)"]
    );
    // Everything of `a` after the poison waits; what came before it counts.
    let smoker: &[&str] = &["smoking status smoker active[1,…)"];
    let expected = if topic == Topic::Candidates {
        smoker
    } else {
        &[]
    };
    assert_eq!(
        believed(&world.state("a").await),
        expected,
        "{what} in {topic}"
    );
    let balance = world.balance().await;
    assert!(
        balance.is_exact() && balance.parked > 0,
        "{what} in {topic}: {balance:?}"
    );
    drain(&mut world.indexer(0)).await.unwrap();
    assert!(world.diff(&world.stores.projections()).await.is_clean());
    // A start finds the owner parked and writes nothing but that it started.
    manager.drop_state();
    rest(&mut manager).await;
    assert_eq!(
        manager.parked(),
        [a],
        "{what} in {topic}: still parked after a start"
    );
}

/// what another partitioner wrote is nobody's, and the owner goes on at home.
#[test]
fn a_lawful_record_in_another_partition_is_parked_there_and_changes_nothing() {
    const PARTITIONS: u32 = 4;
    block_on(async {
        let world = World::new(1, PARTITIONS);
        world.grant("a", "grant").await;
        say(&world, "a", "e1", 1, "smoking_status=smoker").await;
        let key = world.owner("a").1;
        let home = partition_of(key, PARTITIONS);
        let elsewhere = (home + 1) % PARTITIONS;
        for topic in [Topic::Candidates, Topic::Commands] {
            let payload = good_payload(&world, topic).await;
            let stray = vec![NewRecord { key, payload }];
            world.calm.append(topic, elsewhere, stray).await.unwrap();
        }
        say(&world, "a", "e2", 2, "~smoking_status=former").await;
        for partition in 0..PARTITIONS {
            let mut manager = world.manager(partition);
            rest(&mut manager).await;
            let expected: &[OwnerKey] = if partition == elsewhere { &[key] } else { &[] };
            assert_eq!(manager.parked(), expected, "{partition}");
            drain(&mut world.indexer(partition)).await.unwrap();
        }
        let expected = [
            "smoking status former active[2,…)",
            "smoking status smoker superseded[1,2)",
        ];
        assert_eq!(believed(&world.state("a").await), expected);
        let balance = world.balance().await;
        assert!(balance.is_exact() && balance.parked > 0, "{balance:?}");
        assert!(world.diff(&world.stores.projections()).await.is_clean());
    });
}

/// Owner A said something, then something that this version cannot read, then changed it. Owner B spoke
/// a hundred times.
async fn a_parked_owner() -> (World, Arc<MisreadLog>, Consumer) {
    let world = World::new(2, 1);
    let log = MisreadLog::new(world.log());
    for owner in ["a", "b"] {
        world.grant(owner, "grant").await;
    }
    say(&world, "a", "ok", 1, "smoking_status=smoker").await;
    let poison = world
        .say(&said("a", "poison", 2, "mango"), |turn| {
            let spec = Spec::parse("allergy=mango").unwrap();
            vec![spec.claim(None, day(2), World::source_of(turn))]
        })
        .await;
    log.misread(poison);
    say(&world, "a", "supersede", 3, "~smoking_status=former").await;
    for n in 0..100 {
        say(&world, "b", &format!("e{n}"), n, "allergy=mango").await;
    }
    let mut manager = world.manager_over(0, log.clone(), world.codec.clone());
    rest(&mut manager).await;
    assert_eq!(manager.parked(), [world.owner("a").1]);
    let smoker = ["smoking status smoker active[1,…)"];
    assert_eq!(
        believed(&world.state("a").await),
        smoker,
        "the change waits"
    );
    assert_eq!(world.state("b").await.seq, 101, "the others go on");
    (world, log, manager)
}

async fn outcomes(world: &World, of: OwnerKey) -> Vec<String> {
    let mut outcomes = Vec::new();
    for replayed in world.replay().await {
        for offset in &replayed.skeleton.owners[&of].offsets {
            let position = Position {
                topic: Topic::Memories,
                partition: 0,
                offset: *offset,
            };
            if let Opened::Decided(decided) = world.open(position).await {
                outcomes.push(decided.decided.outcome.code());
            }
        }
    }
    outcomes
}

#[test]
fn an_erasure_overtakes_what_waits_and_releases_it_as_erased() {
    block_on(async {
        let (world, log, mut manager) = a_parked_owner().await;
        world.erase("a", "forget", Target::Owner).await;
        manager.turn().await.unwrap();
        let erased = world.state("a").await;
        assert_eq!(
            erased.closed_through, 1,
            "decided at once, while the owner is parked"
        );
        assert!(erased.claims.is_empty());
        // A start reads again what waited, readable or not.
        manager.drop_state();
        rest(&mut manager).await;
        assert_eq!(manager.parked(), []);
        let a = world.owner("a").1;
        let all = outcomes(&world, a).await;
        assert_eq!(
            all,
            [
                "stored",
                "stored",
                "stored",
                "rejected(erased)",
                "rejected(erased)"
            ]
        );
        drain(&mut world.indexer(0)).await.unwrap();
        let (first, again) = (world.states().await, world.states().await);
        assert_eq!(digest::exact(&first[&a]), digest::exact(&again[&a]));
        assert!(first[&a].claims.is_empty());
        assert!(world.diff(&world.stores.projections()).await.is_clean());
        assert!(world.verify().await.is_good());
        drop(log);
    });
}

#[test]
fn what_waited_is_applied_in_order_when_it_can_be_read() {
    block_on(async {
        let (world, log, mut manager) = a_parked_owner().await;
        // A start that still cannot read it changes nothing.
        manager.drop_state();
        rest(&mut manager).await;
        assert_eq!(manager.parked().len(), 1);
        log.mend();
        manager.drop_state();
        rest(&mut manager).await;
        assert_eq!(manager.parked(), []);
        let state = world.state("a").await;
        let expected = [
            "allergy mango active[2,…)",
            "smoking status former active[3,…)",
            "smoking status smoker superseded[1,3)",
        ];
        assert_eq!(believed(&state), expected);
        // As if nothing had ever been wrong.
        let plain = World::new(2, 1);
        plain.grant("a", "grant").await;
        say(&plain, "a", "ok", 1, "smoking_status=smoker").await;
        say(&plain, "a", "poison", 2, "allergy=mango").await;
        say(&plain, "a", "supersede", 3, "~smoking_status=former").await;
        plain.settle().await;
        assert_eq!(
            digest::content(&state),
            digest::content(&plain.state("a").await)
        );
        let balance = world.balance().await;
        assert!(balance.is_exact() && balance.parked == 0, "{balance:?}");
        assert!(world.verify().await.is_good());
    });
}

#[test]
fn what_was_written_while_the_owner_waited_is_not_lost() {
    block_on(async {
        let (world, log, mut manager) = a_parked_owner().await;
        say(&world, "a", "later", 5, "allergy=peanut").await;
        let claim = Spec::parse("preference=tea").unwrap();
        let turn = world.turn(&said("a", "asked", 6, "tea"));
        let mut claim = claim.claim(None, day(6), World::source_of(&turn));
        claim.importance = Permille::ONE;
        world
            .command(
                "a",
                "api",
                "asked",
                Command::Remember {
                    claim: Box::new(claim),
                },
            )
            .await;
        rest(&mut manager).await;
        say(&world, "b", "last", 7, "allergy=peanut").await;
        rest(&mut manager).await;
        // Another process takes over, and only then the record can be read.
        log.mend();
        let mut other = world.manager_over(0, log.clone(), world.codec.clone());
        rest(&mut other).await;
        let told = believed(&world.state("a").await);
        assert_eq!(told.len(), 5, "{told:?}");
        assert!(world.balance().await.is_exact());
    });
}

#[test]
fn an_owner_that_came_back_after_an_erasure_is_parked_like_any_other() {
    block_on(async {
        let world = World::new(3, 1);
        world.grant("a", "grant").await;
        say(&world, "a", "e1", 1, "allergy=mango").await;
        world.settle().await;
        world.erase("a", "forget", Target::Owner).await;
        world.settle().await;
        world.grant("a", "again").await;
        world.settle().await;
        let log = MisreadLog::new(world.log());
        let poison = world
            .say(&said("a", "poison", 2, "peanut"), |turn| {
                let spec = Spec::parse("allergy=peanut").unwrap();
                vec![spec.claim(None, day(2), World::source_of(turn))]
            })
            .await;
        log.misread(poison);
        let mut manager = world.manager_over(0, log.clone(), world.codec.clone());
        rest(&mut manager).await;
        manager.drop_state();
        rest(&mut manager).await;
        assert_eq!(
            manager.parked().len(),
            1,
            "the old erasure says nothing about the new record"
        );
        log.mend();
        manager.drop_state();
        rest(&mut manager).await;
        assert_eq!(
            believed(&world.state("a").await),
            ["allergy peanut active[2,…)"]
        );
    });
}

#[test]
fn an_append_that_arrives_in_part_leaves_nothing_behind_it_unanswered() {
    block_on(async {
        let world = World::new(4, 1);
        let luck = Luck::new(1);
        let torn = TornLog {
            inner: world.log(),
            luck: luck.clone(),
        };
        let mut manager = world.manager_over(0, Arc::new(torn), world.codec.clone());
        for owner in ["a", "b"] {
            world.grant(owner, "grant").await;
        }
        drain(&mut manager).await.unwrap();
        say(&world, "b", "e1", 1, "allergy=mango").await;
        append(&world, Topic::Candidates, "a", Bytes::new()).await;
        say(&world, "b", "e2", 2, "allergy=peanut").await;
        say(&world, "b", "e3", 3, "preference=tea").await;
        // Four records go out, two arrive.
        luck.set_per_mille(1000);
        assert!(manager.turn().await.is_err());
        luck.set_per_mille(0);
        rest(&mut manager).await;
        assert_eq!(manager.parked(), [world.owner("a").1]);
        assert_eq!(believed(&world.state("b").await).len(), 3);
        assert!(world.balance().await.is_exact());
    });
}
