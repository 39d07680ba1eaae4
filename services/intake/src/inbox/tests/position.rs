//! Where a reader begins, goes on and stops.

use std::collections::BTreeMap;
use std::sync::Mutex;

use anamnesis_domain::ids::EventTag;
use anamnesis_pipeline::doubles::log::{FaultyLog, Weather};
use anamnesis_pipeline::log::{Log, NewRecord};

use super::refusing::RefusingLog;
use super::*;

fn intake_over(world: &World, log: Log) -> Arc<Intake> {
    let intake = &world.intake;
    Arc::new(Intake {
        log,
        codec: intake.codec.clone(),
        records: intake.records.clone(),
        clock: intake.clock.clone(),
        reader: intake.reader.clone(),
        settings: intake.settings.clone(),
    })
}

fn say(site: &Site, count: u32) {
    let first = count * 100;
    for n in first..first + count {
        let owner = format!("h/p{}", n % 5);
        site.put(of(&plain(&owner, &format!("{n}"), &format!("{n}"))));
    }
}

#[tokio::test]
async fn a_reader_goes_on_where_the_last_one_stopped() {
    let site = Site::new().await;
    say(&site, 3);
    site.read().await;
    say(&site, 4);
    let mut reading = site.reader().reading(0);
    assert_eq!(reading.turn().await.unwrap(), Progress::Began);
    assert_eq!(reading.position(), Some(4));
    assert_eq!(reading.turn().await.unwrap(), Progress::Advanced(4));
    assert_eq!(reading.turn().await.unwrap(), Progress::Idle);
    let spans: Vec<(u64, u64)> = site
        .receipts()
        .await
        .iter()
        .map(|read| (read.from, read.next))
        .collect();
    assert_eq!(spans, [(1, 4), (4, 8)]);
    assert_eq!(site.texts().await.len(), 7);
}

#[tokio::test]
async fn the_position_is_found_behind_those_of_other_partitions() {
    let site = Site::new().await;
    // Partitions 0 and 2 of inbox share partition 0 of receipts, since the log has two.
    say(&site, 2);
    site.read().await;
    let reader = site.reader_of(site.world.intake.clone(), 1);
    for n in 0..1_200 {
        site.inbox.put(2, of(&plain("h/q", &format!("q{n}"), "x")));
    }
    settle(&mut reader.reading(2)).await.unwrap();
    assert!(site.receipts().await.len() > 1_200);
    for (partition, next) in [(0, 3), (2, 1_201), (1, 1)] {
        let mut reading = site.reader().reading(partition);
        reading.turn().await.unwrap();
        assert_eq!(reading.position(), Some(next), "partition {partition}");
    }
    assert_eq!(receipts(&site.world, 1).await, []);
}

#[tokio::test]
async fn a_receipt_that_cannot_be_read_costs_a_repeat() {
    let site = Site::new().await;
    say(&site, 2);
    site.read().await;
    let record = NewRecord {
        key: anamnesis_domain::ids::OwnerKey::from_bytes([0; 16]),
        payload: bytes::Bytes::from_static(b"\xc3\x01 what is this"),
    };
    site.world
        .log
        .append(Topic::Receipts, 0, vec![record])
        .await
        .unwrap();
    let mut reading = site.reader().reading(0);
    reading.turn().await.unwrap();
    assert_eq!(reading.position(), Some(3));
}

#[tokio::test]
async fn the_first_reader_passes_over_the_identity_and_nothing_else() {
    let site = Site::new().await;
    // Two who made the topic at once.
    let identity = site.world.log.identity(Topic::Receipts, 0).await.unwrap();
    site.put(Produced::of(identity_payload(&identity, Topic::Inbox)));
    say(&site, 1);
    let mut reading = site.reader().reading(0);
    reading.turn().await.unwrap();
    assert_eq!(reading.position(), Some(1));
    settle(&mut reading).await.unwrap();
    let read = &site.receipts().await[0];
    assert_eq!((read.read, read.accepted, read.rejected_count), (1, 1, 0));

    // A topic that begins with a platform's record.
    let bare = MemoryInbox::new(site.world.clock.clone(), 3);
    bare.put(1, of(&plain("h/p", "1", "first of all")));
    let site = Site {
        inbox: Arc::new(bare),
        ..Site::new().await
    };
    let mut reading = site.reader().reading(1);
    reading.turn().await.unwrap();
    assert_eq!(reading.position(), Some(0));
    settle(&mut reading).await.unwrap();
    assert_eq!(site.texts().await, ["h/patient/p first of all"]);

    // The identity record of another log is a platform's mistake.
    let mut other = identity;
    other.log_id = anamnesis_domain::ids::LogId::from_bytes([1; 16]);
    site.inbox
        .put(2, Produced::of(identity_payload(&other, Topic::Inbox)));
    settle(&mut site.reader().reading(2)).await.unwrap();
    let rejected = &receipts(&site.world, 0).await[0].rejected;
    assert_eq!(rejected[0].code, "invalid_utf8");
}

#[tokio::test]
async fn a_topic_that_was_never_read_is_read_from_what_retention_left() {
    let site = Site::new().await;
    say(&site, 5);
    site.inbox.drop_before(0, 4);
    let mut reading = site.reader().reading(0);
    reading.turn().await.unwrap();
    assert_eq!(reading.position(), Some(4));
    settle(&mut reading).await.unwrap();
    assert_eq!(site.texts().await.len(), 2);
}

async fn refused(site: &Site) -> InboxError {
    let error = settle(&mut site.reader().reading(0)).await.unwrap_err();
    assert!(!error.is_retryable());
    error
}

#[tokio::test]
async fn a_position_that_retention_has_passed_stops_until_it_is_given_up() {
    let site = Site::new().await;
    say(&site, 3);
    site.read().await;
    say(&site, 5);
    site.inbox.drop_before(0, 7);
    let error = refused(&site).await;
    assert!(
        matches!(
            error,
            InboxError::OutOfRange {
                partition: 0,
                next: 4,
                start: 7,
                end: 9
            }
        ),
        "{error}"
    );
    // Asking again changes nothing.
    refused(&site).await;
    assert_eq!(site.texts().await.len(), 3);

    let lost = site.reader().give_up_lost(0).await.unwrap();
    assert_eq!(lost, 4..7);
    site.read().await;
    assert_eq!(site.texts().await.len(), 5);
    assert_eq!(site.rejected().await, [(4, "lost".to_owned())]);
    assert!(site.reader().give_up_lost(0).await.unwrap().is_empty());
    assert_eq!(site.rejected().await.len(), 1);
}

#[tokio::test]
async fn a_topic_that_was_made_anew_stops_its_reader() {
    let site = Site::new().await;
    say(&site, 3);
    site.read().await;
    let anew = Site {
        inbox: Site::of(site.world.clone()).await.inbox,
        ..site
    };
    let error = refused(&anew).await;
    assert!(
        matches!(
            error,
            InboxError::OutOfRange {
                next: 4,
                start: 0,
                end: 1,
                ..
            }
        ),
        "{error}"
    );
    let kept = anew.reader().give_up_lost(0).await.unwrap_err();
    assert!(matches!(kept, InboxError::OutOfRange { .. }));
}

#[tokio::test]
async fn retention_that_passes_what_was_read_is_no_loss() {
    let site = Site::new().await;
    say(&site, 3);
    let mut reading = site.read().await;
    site.inbox.drop_before(0, 4);
    assert_eq!(reading.turn().await.unwrap(), Progress::Idle);
    say(&site, 2);
    site.read().await;
    assert_eq!(site.texts().await.len(), 5);
}

#[tokio::test]
async fn transactions_leave_places_that_cost_one_receipt_when_there_is_time() {
    let site = Site::new().await;
    say(&site, 1);
    for _ in 0..40 {
        site.inbox.put_gap(0);
    }
    site.read().await;
    let spans: Vec<(u64, u64, u64)> = site
        .receipts()
        .await
        .iter()
        .map(|read| (read.from, read.next, read.read))
        .collect();
    assert_eq!(spans, [(1, 2, 1), (2, 42, 0)]);
    site.inbox.drop_before(0, 42);
    assert_eq!(site.read().await.position(), Some(42));
    assert_eq!(site.receipts().await.len(), 2, "at rest nothing is written");
}

/// The killed process had appended the messages and not the position.
#[tokio::test]
async fn a_kill_between_the_two_appends_repeats_messages_and_decides_each_once() {
    let site = Site::new().await;
    say(&site, 20);
    let refusing = Arc::new(RefusingLog {
        inner: site.world.log.clone(),
        refused: Mutex::new(Some(Topic::Receipts)),
    });
    let intake = intake_over(&site.world, refusing.clone());
    for _ in 0..2 {
        let reader = site.reader_of(intake.clone(), 7);
        let error = settle(&mut reader.reading(0)).await.unwrap_err();
        assert!(error.is_retryable());
    }
    assert_eq!(site.texts().await.len(), 14, "the first batch, twice");
    assert_eq!(site.receipts().await, []);
    *refusing.refused.lock().unwrap() = None;
    settle(&mut site.reader_of(intake, 7).reading(0))
        .await
        .unwrap();

    let mut seen: BTreeMap<EventTag, Vec<String>> = BTreeMap::new();
    for (_, turn) in site.world.turns(Topic::Conversation).await {
        let text = turn.text.expose().to_owned();
        seen.entry(turn.event).or_default().push(text);
    }
    assert_eq!(seen.len(), 20, "nothing is lost");
    let repeated: Vec<usize> = seen.values().map(Vec::len).collect();
    assert_eq!(repeated.iter().sum::<usize>(), 34);
    // The same under the same name: the first one wins, and no name says two things.
    assert!(
        seen.values()
            .all(|texts| texts.iter().all(|text| *text == texts[0]))
    );
    site.world.decide().await;
    for event in seen.keys() {
        let mut outcomes = Vec::new();
        for owner in 0..5 {
            let scope = site.world.scope(&format!("h/p{owner}"));
            let records = site.world.records.as_ref();
            let row = anamnesis_pipeline::stores::Records::decision(records, scope, *event).await;
            outcomes.extend(row.unwrap());
        }
        assert_eq!(outcomes.len(), 1);
    }
}

#[tokio::test]
async fn in_any_weather_each_owner_is_heard_in_order_and_nothing_is_lost() {
    for seed in 0..40 {
        let site = Site::new().await;
        say(&site, 60);
        for _ in 0..3 {
            site.put(Produced::of("no event"));
        }
        let faulty = Arc::new(FaultyLog::new(site.world.log.clone(), seed, Weather::STORM));
        let intake = intake_over(&site.world, faulty.clone());
        let batch = 1 + seed as usize % 9;
        let mut reading = site.reader_of(intake.clone(), batch).reading(0);
        let mut failures = 0;
        loop {
            match reading.turn().await {
                Ok(Progress::Idle) => break,
                Ok(Progress::Began | Progress::Advanced(_)) => (),
                Err(error) => {
                    assert!(error.is_retryable(), "seed {seed}: {error}");
                    failures += 1;
                    if failures % 3 == 0 {
                        faulty.crash();
                        reading = site.reader_of(intake.clone(), batch).reading(0);
                    }
                }
            }
        }
        // First appearances, owner by owner.
        let mut heard: BTreeMap<String, Vec<u64>> = BTreeMap::new();
        for turn in site.turns().await {
            let own = heard.entry(turn.owner.to_string()).or_default();
            let number: u64 = turn.event_id.parse().unwrap();
            if !own.contains(&number) {
                own.push(number);
            }
        }
        assert_eq!(
            heard.values().map(Vec::len).sum::<usize>(),
            60,
            "seed {seed}"
        );
        assert!(heard.values().all(|own| own.is_sorted()), "seed {seed}");
        let receipts = site.receipts().await;
        assert_eq!(receipts.last().unwrap().next, 64, "seed {seed}");
        let rejected: std::collections::BTreeSet<_> = site.rejected().await.into_iter().collect();
        assert_eq!(rejected.len(), 3, "seed {seed}");
    }
}

#[tokio::test(start_paused = true)]
async fn it_runs_until_it_is_told_to_stop_and_says_where_it_stands() {
    let site = Site::new().await;
    let stands = Stands::default();
    let caller = Caller::platform("inbox", None, "h");
    let reader = InboxReader::new(site.inbox.clone(), site.world.intake.clone(), caller);
    let reader = Arc::new(
        reader
            .with_stands(&stands)
            .with_registry(site.schemas.clone()),
    );
    assert_eq!(reader.partitions(), 3);
    let shutdown = CancellationToken::new();
    let running = tokio::spawn(reader.run(0, shutdown.clone()));
    tokio::time::sleep(Duration::from_millis(10)).await;
    say(&site, 4);
    tokio::time::sleep(Duration::from_millis(10)).await;
    assert_eq!(site.texts().await.len(), 4);
    let stand = |stands: &Stands| stands.all().remove(0);
    let (name, partition, now) = stand(&stands);
    assert_eq!((name, partition), ("intake", 0));
    assert_eq!(now.positions, [(Topic::Inbox, 5)]);
    assert_eq!(now.failing_since, None);

    // The registry stops for a minute.
    site.schemas.register(7, TURN);
    site.schemas.set_down(true);
    site.put(Produced::of(framed(7, "h/z", "waits")));
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert!(stand(&stands).2.failing_since.is_some());
    let asked = site.schemas.asked();
    assert!((10..30).contains(&asked), "asked {asked} times in a minute");
    site.schemas.set_down(false);
    tokio::time::sleep(Duration::from_secs(6)).await;
    assert_eq!(site.texts().await.last().unwrap(), "h/patient/z waits");
    assert_eq!(stand(&stands).2.failing_since, None);

    shutdown.cancel();
    running.await.unwrap().unwrap();
}
