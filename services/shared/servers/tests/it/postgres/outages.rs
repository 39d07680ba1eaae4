//! A server that stops, dies or is busy: nothing that was answered is lost, and nobody waits for ever.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use anamnesis_domain::ids::KeyId;
use anamnesis_domain::input::Target;
use anamnesis_pipeline::keyring::{KeyState, Keyring, KeyringError};

use super::{
    OTHER, OWNER, PostgresKeyring, SOON, Schema, Server, erasure, ids, message, source_key, states,
};

/// Repeats a call while the server is away, as callers do.
async fn epoch_when_back(keys: &PostgresKeyring) -> u32 {
    let started = Instant::now();
    loop {
        match keys.open_epoch(OWNER).await {
            Ok(epoch) => return epoch,
            Err(error) => {
                assert!(error.is_retryable() && started.elapsed() < SOON, "{error}");
                tokio::task::yield_now().await;
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_answered_is_there_after_a_crash() {
    let mut server = Server::start();
    let schema = server.schema();
    let keys = schema.open().await;
    keys.open_epoch(OWNER).await.unwrap();
    let mut answered: HashMap<KeyId, Option<[u8; 32]>> = HashMap::new();
    for crash in 0..3_u32 {
        assert_eq!(epoch_when_back(&keys).await, 1);
        let (gone, is_gone) = tokio::sync::watch::channel(false);
        let begun = std::sync::atomic::AtomicUsize::new(0);
        let work = async {
            let mut answered = Vec::new();
            for number in crash * 100_000.. {
                let new = message(OWNER, number);
                match keys.create(&new).await {
                    Ok(made) => {
                        answered.extend(
                            new.iter()
                                .zip(made)
                                .map(|(new, key)| (new.id, Some(*key.bytes()))),
                        );
                        begun.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                    }
                    Err(error) => {
                        assert!(error.is_retryable(), "{error}");
                        if *is_gone.borrow() {
                            break;
                        }
                    }
                }
                if number % 10 != 0 {
                    continue;
                }
                let target = Target::Message(new[0].event);
                if keys.destroy(OWNER, &target, erasure(number)).await.is_ok() {
                    answered.extend(new.iter().map(|new| (new.id, None)));
                } else if answered.last().is_some_and(|(id, _)| *id == new[1].id) {
                    // The answer is lost: destroyed or not, the caller repeats it.
                    answered.truncate(answered.len() - 2);
                }
            }
            answered
        };
        let kill = async {
            let started = Instant::now();
            // However slow the machine is, it is killed in the middle of work.
            while started.elapsed() < Duration::from_millis(400)
                || begun.load(std::sync::atomic::Ordering::Relaxed) <= 10
            {
                keys.epoch(OTHER).await.unwrap();
            }
            tokio::task::block_in_place(|| server.kill());
            gone.send_replace(true);
        };
        let (some, ()) = tokio::join!(work, kill);
        assert!(some.len() > 10, "it had begun: {}", some.len());
        answered.extend(some);
        server.restart();
    }
    epoch_when_back(&keys).await;
    let fresh = schema.open().await;
    let ids: Vec<KeyId> = answered.keys().copied().collect();
    for keys in [&keys, &fresh] {
        for (id, state) in ids.iter().zip(keys.get(&ids).await.unwrap()) {
            match (state, answered[id]) {
                (KeyState::Open(key), Some(bytes)) => assert!(*key.bytes() == bytes),
                (KeyState::Destroyed, None) => (),
                (state, _) => panic!("{state:?}"),
            }
        }
    }
    println!("{} answered keys over 3 crashes", ids.len());
}

#[tokio::test]
async fn a_server_that_is_away_is_an_outage_and_is_found_again() {
    let mut server = Server::start();
    let schema = server.schema();
    let keys = schema.open().await;
    keys.open_epoch(OWNER).await.unwrap();
    keys.create(&message(OWNER, 1)).await.unwrap();
    server.stop();
    let started = Instant::now();
    let down = [
        keys.epoch(OWNER).await.unwrap_err(),
        keys.create(&message(OWNER, 2)).await.unwrap_err(),
        keys.get(&[source_key(OWNER, 7).id]).await.unwrap_err(),
        keys.destroy(OWNER, &Target::Owner, erasure(1))
            .await
            .unwrap_err(),
        keys.keep(&[source_key(OWNER, 1).id]).await.unwrap_err(),
        PostgresKeyring::exists(&schema.config()).await.unwrap_err(),
        schema.open_with(|_| ()).await.err().unwrap(),
    ];
    assert!(started.elapsed() < SOON);
    for error in &down {
        assert!(matches!(error, KeyringError::Unavailable { .. }), "{error}");
    }
    println!("{}", down[0]);
    server.restart();
    // Idle connections are dead, and no call fails for it.
    assert_eq!(keys.epoch(OWNER).await.unwrap().open, Some(1));
    keys.create(&message(OWNER, 2)).await.unwrap();
    assert_eq!(states(&keys, &ids(&message(OWNER, 1))).await, ["open"; 2]);
}

/// Connections that idled through a restart are replaced within the call.
#[tokio::test]
async fn a_restart_between_two_calls_is_not_noticed() {
    let mut server = Server::start();
    let schema = server.schema();
    let keys = schema.open().await;
    for round in 0..3 {
        keys.open_epoch(OWNER).await.unwrap();
        keys.create(&message(OWNER, round)).await.unwrap();
        if round % 2 == 0 {
            server.kill();
        } else {
            server.stop();
        }
        server.restart();
    }
    for round in 0..3 {
        assert_eq!(
            states(&keys, &ids(&message(OWNER, round))).await,
            ["open"; 2]
        );
    }
}

/// On a busy machine a connection can take longer to be made than this deadline.
async fn open_impatient(schema: &Schema, deadline: Duration) -> PostgresKeyring {
    let started = Instant::now();
    loop {
        let opened = schema.open_with(|config| {
            config.deadline = deadline;
            config.destroy_deadline = deadline;
        });
        match opened.await {
            Ok(keys) => return keys,
            Err(error) => assert!(started.elapsed() < SOON, "{error}"),
        }
    }
}

#[tokio::test]
async fn a_call_ends_at_its_deadline() {
    let schema = Schema::new();
    let patient = schema.open().await;
    patient.open_epoch(OWNER).await.unwrap();
    patient.create(&message(OWNER, 1)).await.unwrap();
    let keys = open_impatient(&schema, Duration::from_millis(500)).await;
    let client = schema.client().await;
    client
        .batch_execute("BEGIN; LOCK TABLE owners, keys")
        .await
        .unwrap();
    let started = Instant::now();
    let late = [
        keys.epoch(OWNER).await.unwrap_err(),
        keys.create(&message(OWNER, 2)).await.unwrap_err(),
        keys.get(&[source_key(OWNER, 9).id]).await.unwrap_err(),
        keys.destroy(OWNER, &Target::Owner, erasure(1))
            .await
            .unwrap_err(),
    ];
    let took = started.elapsed();
    for error in late {
        assert!(matches!(error, KeyringError::Unavailable { .. }), "{error}");
    }
    // Four deadlines, and what a busy machine adds.
    assert!(took < SOON, "{took:?}");
    client.batch_execute("ROLLBACK").await.unwrap();
    // Whatever was given up is undone, or as good as repeated.
    let destroyed = patient.destroy(OWNER, &Target::Owner, erasure(1));
    assert_eq!(destroyed.await.unwrap().keys, 2);
    assert_eq!(
        states(&patient, &ids(&message(OWNER, 1))).await,
        ["destroyed"; 2]
    );
}

/// Its connections stay open and nothing answers, as when its machine hangs.
#[tokio::test]
async fn a_frozen_server_is_an_outage() {
    let server = Server::start();
    let schema = server.schema();
    let patient = schema.open().await;
    patient.open_epoch(OWNER).await.unwrap();
    patient.create(&message(OWNER, 1)).await.unwrap();
    let keys = open_impatient(&schema, Duration::from_millis(500)).await;
    server.signal("-STOP");
    let started = Instant::now();
    let frozen = [
        keys.epoch(OWNER).await.unwrap_err(),
        keys.create(&message(OWNER, 2)).await.unwrap_err(),
        keys.get(&[source_key(OWNER, 9).id]).await.unwrap_err(),
    ];
    let took = started.elapsed();
    server.signal("-CONT");
    for error in frozen {
        assert!(matches!(error, KeyringError::Unavailable { .. }), "{error}");
    }
    assert!(took < SOON, "{took:?}");
    assert_eq!(epoch_when_back(&keys).await, 1);
    patient.create(&message(OWNER, 2)).await.unwrap();
    assert_eq!(
        states(&patient, &ids(&message(OWNER, 2))).await,
        ["open"; 2]
    );
}

/// A dump of the database reads the keys for hours. A destruction cannot be acknowledged meanwhile,
/// and must not make the readers wait behind it.
#[tokio::test]
async fn a_dump_delays_destructions_only() {
    let schema = Schema::new();
    let keys = schema.open().await;
    keys.open_epoch(OWNER).await.unwrap();
    keys.create(&message(OWNER, 1)).await.unwrap();
    let dump = schema.client().await;
    dump.batch_execute("BEGIN; LOCK TABLE secrets IN ACCESS SHARE MODE")
        .await
        .unwrap();
    let held_up = keys
        .destroy(OWNER, &Target::Owner, erasure(1))
        .await
        .unwrap_err();
    assert!(held_up.is_retryable());
    assert!(
        held_up.to_string().contains("another program reads"),
        "{held_up}"
    );
    assert_eq!(states(&keys, &ids(&message(OWNER, 1))).await, ["open"; 2]);
    keys.create(&message(OWNER, 2)).await.unwrap();
    dump.batch_execute("COMMIT").await.unwrap();
    assert_eq!(
        keys.destroy(OWNER, &Target::Owner, erasure(1))
            .await
            .unwrap()
            .keys,
        4
    );
}
