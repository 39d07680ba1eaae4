//! What platforms write to Kafka, read in bad weather by readers that are killed: is what is believed the
//! same as after a calm reading?

use std::sync::Arc;

use anamnesis_domain::digest;
use anamnesis_domain::ids::Hash;
use anamnesis_domain::input::Turn;
use anamnesis_domain::memory::Claim;
use anamnesis_extractor::Episodes;
use anamnesis_extractor::stage::Extractor;
use anamnesis_intake::inbox::InboxReader;
use anamnesis_intake::service::{Intake, Settings, StatementReader};
use anamnesis_pipeline::caller::Caller;
use anamnesis_pipeline::consumer::{Consumer, Progress};
use anamnesis_pipeline::doubles::inbox::{MemoryInbox, Produced};
use anamnesis_pipeline::doubles::log::Weather;
use anamnesis_pipeline::log::EventLog as _;
use anamnesis_testbed::world::{World, believed, drain};
use serde_json::json;

use crate::talk::block_on;

/// Each is a whole site; one takes about a second without optimisation.
const SEEDS: u64 = 8;

const OWNERS: [&str; 4] = ["p1", "p2", "p3", "p4"];

struct NothingRead;

impl StatementReader for NothingRead {
    fn read(&self, _turn: &Turn) -> Vec<Claim> {
        Vec::new()
    }
}

/// What is said, in Chinese and English, with changes of mind and words that state nothing.
const SAID: [&str; 8] = [
    "我对青霉素过敏",
    "I take warfarin 5 mg every evening",
    "我现在不吃二甲双胍了",
    "I am allergic to peanuts",
    "我每天吃两次二甲双胍",
    "I take warfarin 10 mg every evening now",
    "今天天气不错",
    "我妈妈有高血压",
];

fn inbox(world: &World) -> Arc<MemoryInbox> {
    let inbox = MemoryInbox::new(world.clock.clone(), 2);
    for n in 0..64_usize {
        let owner = format!("h1/{}", OWNERS[n % OWNERS.len()]);
        let minute = n % 60;
        let event = json!({"event_id": n.to_string(), "owner": owner, "role": "user",
            "at": format!("2024-10-01T10:{minute:02}:00+08:00"), "text": SAID[n / OWNERS.len() % SAID.len()]});
        // One owner's events stay in one partition, as a platform that keeps their order sees to.
        let partition = (n % OWNERS.len() % 2) as u32;
        inbox.put(partition, Produced::of(event.to_string()));
        if n % 10 == 3 {
            inbox.put(partition, Produced::of("no event"));
        }
    }
    Arc::new(inbox)
}

/// What is believed of each owner, how many memories there are, and how many repeats were decided.
async fn after_reading(seed: Option<u64>) -> (Vec<Hash>, usize, u64) {
    let world = World::new(seed.unwrap_or(0), 2);
    for owner in OWNERS {
        world.grant(owner, "grant").await;
    }
    world.settle().await;
    let inbox = inbox(&world);
    if seed.is_some() {
        world.faulty.set_weather(Weather {
            answer_lost: 200,
            append_lost: 100,
            repeated: 100,
            ..Weather::STORM
        });
    }
    let intake = Arc::new(Intake {
        log: world.log(),
        codec: world.codec.clone(),
        records: world.stores.records.clone(),
        clock: world.clock.clone(),
        reader: Arc::new(NothingRead),
        settings: Settings::default(),
    });
    let caller = Caller::platform("inbox", Some(vec!["h1".to_owned()]), "h1");
    let reader = InboxReader::new(inbox.clone(), intake, caller).with_batch(9);
    let reader = Arc::new(reader);
    for partition in 0..2 {
        let mut reading = reader.reading(partition);
        loop {
            match reading.turn().await {
                Ok(Progress::Idle) => break,
                Ok(Progress::Began | Progress::Advanced(_)) => (),
                Err(error) => {
                    assert!(error.is_retryable(), "{error}");
                    world.faulty.crash();
                    reading = reader.reading(partition);
                }
            }
        }
    }
    world.faulty.set_weather(Weather::CALM);
    let extractor = Arc::new(Extractor {
        log: world.log(),
        codec: world.codec.clone(),
        episodes: Episodes::All,
        snapshots: world.snapshots.clone(),
        asker: None,
    });
    for partition in 0..2 {
        let stage = extractor.clone();
        let mut consumer = Consumer::new(world.log(), stage, partition, world.clock.clone());
        drain(&mut consumer).await.unwrap();
    }
    world.settle().await;
    let balance = world.balance().await;
    assert!(
        balance.is_exact() && balance.in_flight + balance.parked == 0,
        "{balance:?}"
    );
    let duplicates = balance.decided.get("duplicate").copied().unwrap_or(0);
    let reused = balance
        .decided
        .keys()
        .find(|code| code.contains("id_reused"));
    assert_eq!(reused, None, "a repeat says what it said before");
    assert!(
        world
            .calm
            .end(anamnesis_domain::input::Topic::Receipts, 0)
            .await
            .unwrap()
            > 1
    );
    let states = world.states().await;
    let digests = OWNERS.map(|owner| digest::content(&states[&world.owner(owner).1]));
    let memories = states.values().map(|state| believed(state).len()).sum();
    (digests.to_vec(), memories, duplicates)
}

#[test]
fn killed_readers_in_a_storm_leave_the_beliefs_of_a_calm_reading() {
    let (calm, memories, duplicates) = block_on(after_reading(None));
    assert_eq!(duplicates, 0);
    assert!(memories >= 4 * OWNERS.len(), "{memories} memories");
    let mut repeats = 0;
    for seed in 0..SEEDS {
        let (stormy, found, duplicates) = block_on(after_reading(Some(seed)));
        assert_eq!((stormy, found), (calm.clone(), memories), "seed {seed}");
        repeats += duplicates;
    }
    assert!(repeats > 5 * SEEDS, "{repeats} repeats: the storm was none");
}
