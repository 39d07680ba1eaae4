//! Several processes over one keyring. A process is a keyring value: none of them share anything else.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use anamnesis_domain::ids::{KeyId, OwnerKey};
use anamnesis_domain::input::Target;
use anamnesis_domain::time::Timestamp;
use anamnesis_pipeline::conformance::keyring::KeyringBackend;
use anamnesis_pipeline::keyring::{Keyring, KeyringError, Keys, NewKey};
use async_trait::async_trait;

use super::{
    OTHER, OWNER, Postgres, PostgresKeyring, Schema, erasure, ids, message, source_key, states,
    until,
};

/// A lease that no test lives to see the end of.
const LONG: Duration = Duration::from_secs(3600);

/// The contract when another process goes on with the work while the first one stays.
mod another_process {
    use super::*;

    #[derive(Default)]
    struct Another {
        postgres: Postgres,
        staying: Mutex<Vec<Keys>>,
    }

    #[async_trait]
    impl KeyringBackend for Another {
        async fn make(&self) -> Keys {
            self.postgres.make().await
        }

        async fn restart(&self, keys: Keys) -> Keys {
            self.staying.lock().unwrap().push(keys);
            Arc::new(self.postgres.last().open().await)
        }
    }

    anamnesis_pipeline::keyring_conformance!(Another::default());
}

#[tokio::test]
async fn processes_that_start_at_once_agree_on_the_site_key() {
    let schema = Schema::new();
    let opened = futures::future::join_all((0..8).map(|_| schema.open())).await;
    for keys in &opened {
        assert!(keys.id_key() == opened[0].id_key());
    }
    opened[0].open_epoch(OWNER).await.unwrap();
    opened[0].create(&message(OWNER, 1)).await.unwrap();
    let ids = ids(&message(OWNER, 1));
    assert_eq!(states(&opened[7], &ids).await, ["open", "open"]);
}

#[tokio::test]
async fn an_epoch_that_is_opened_twice_at_once_is_one() {
    let schema = Schema::new();
    let (one, two) = (schema.open().await, schema.open().await);
    for round in 0..20 {
        let owner = OwnerKey::from_bytes([round; 16]);
        let (first, second) = tokio::join!(one.open_epoch(owner), two.open_epoch(owner));
        assert_eq!((first.unwrap(), second.unwrap()), (1, 1));
        let keys = message(owner, u32::from(round));
        two.create(&keys).await.unwrap();
        assert_eq!(states(&one, &ids(&keys)).await, ["open", "open"]);
    }
}

#[tokio::test]
async fn a_key_that_two_processes_make_at_once_is_one_key() {
    let schema = Schema::new();
    let (one, two) = (schema.open().await, schema.open().await);
    one.open_epoch(OWNER).await.unwrap();
    for round in 0..20 {
        let numbers = || round * 10..round * 10 + 10;
        let forth: Vec<NewKey> = numbers().flat_map(|n| message(OWNER, n)).collect();
        let back: Vec<NewKey> = numbers().rev().flat_map(|n| message(OWNER, n)).collect();
        let (first, second) = tokio::join!(one.create(&forth), two.create(&back));
        let (first, second) = (first.unwrap(), second.unwrap());
        for (new, key) in forth.iter().zip(&first) {
            let at = back.iter().position(|other| other.id == new.id).unwrap();
            assert!(key.bytes() == second[at].bytes());
        }
    }
}

/// One process makes keys without a pause, another erases: whatever was made is destroyed, and nothing
/// is made afterwards.
async fn race(target: impl Fn(u32) -> Target) {
    let schema = Schema::new();
    let (maker, eraser) = (schema.open().await, schema.open().await);
    let (mut made_count, mut refused_count) = (0, 0);
    for round in 0..50 {
        let owner = OwnerKey::from_bytes(super::scattered("owner", round));
        let parent = source_key(owner, round);
        maker.open_epoch(owner).await.unwrap();
        maker.create(std::slice::from_ref(&parent)).await.unwrap();
        let (made, makes) = tokio::sync::watch::channel(0);
        let make = async {
            let mut asked = vec![parent.id];
            for number in 0.. {
                let new = NewKey {
                    id: KeyId::from_bytes(super::scattered("late key", round * 1000 + number)),
                    parent: Some(parent.id),
                    ..parent.clone()
                };
                asked.push(new.id);
                match maker.create(&[new]).await {
                    Ok(_) => {
                        made_count += 1;
                        made.send_modify(|made| *made += 1);
                    }
                    Err(KeyringError::Destroyed) => {
                        refused_count += 1;
                        return asked;
                    }
                    Err(error) => panic!("{error}"),
                }
            }
            asked
        };
        let erase = async {
            // Not always at the same moment, and however slow the maker is.
            let mut makes = makes.clone();
            makes.wait_for(|made| *made >= round % 5).await.unwrap();
            eraser
                .destroy(owner, &target(round), erasure(round))
                .await
                .unwrap()
                .keys
        };
        let (asked, destroyed) = tokio::join!(make, erase);
        let destroyed = usize::try_from(destroyed).unwrap();
        // The parent and every key but the refused one, which was never made.
        assert_eq!(destroyed, asked.len() - 1, "round {round}");
        let mut expected = vec!["destroyed"; destroyed];
        expected.push("unknown");
        assert_eq!(states(&eraser, &asked).await, expected, "round {round}");
        let fresh = schema.open().await;
        assert_eq!(states(&fresh, &asked).await, expected, "round {round}");
    }
    assert_eq!(refused_count, 50);
    assert!(made_count > 50, "there was a race: {made_count}");
}

#[tokio::test]
async fn a_key_made_against_an_owners_erasure_is_destroyed_or_refused() {
    race(|_| Target::Owner).await;
}

#[tokio::test]
async fn a_key_made_against_a_messages_erasure_is_destroyed_or_refused() {
    race(|round| Target::Message(source_key(OWNER, round).event)).await;
}

async fn erase(keys: &PostgresKeyring, owners: &[OwnerKey]) {
    for number in 0..40_u32 {
        let owner = owners[number as usize % owners.len()];
        // In half of the cases what else was told in the message is saved from its sentence.
        let target = if number % 2 == 0 {
            Target::Message(source_key(owner, number).event)
        } else {
            Target::Memories(vec![message(owner, number)[1].memory.unwrap()])
        };
        let destroyed = keys.destroy(owner, &target, erasure(number)).await.unwrap();
        assert_eq!(destroyed.keys, 2);
    }
}

/// Erasures of owners in all parts, makers of keys of many owners, and readers: nobody waits for ever
/// and nobody is answered wrongly.
#[tokio::test]
async fn erasures_makers_and_readers_do_not_block_each_other() {
    let schema = Schema::new();
    let (one, two) = (schema.open().await, schema.open().await);
    let owners: Vec<OwnerKey> = (0..32)
        .map(|byte| OwnerKey::from_bytes([byte; 16]))
        .collect();
    for owner in &owners {
        one.open_epoch(*owner).await.unwrap();
    }
    let all: Vec<NewKey> = (0..320)
        .flat_map(|n| message(owners[n as usize % 32], n))
        .collect();
    one.create(&all).await.unwrap();
    let make = async {
        for round in 0..40 {
            let new: Vec<NewKey> = (0..64)
                .map(|n| source_key(owners[n as usize % 32], 1000 + round * 64 + n))
                .collect();
            two.create(&new).await.unwrap();
        }
    };
    let read = async {
        let ids = ids(&all[200..]);
        for _ in 0..40 {
            let found = two.get(&ids).await.unwrap();
            assert_eq!(found.len(), ids.len());
        }
    };
    tokio::join!(erase(&one, &owners), erase(&two, &owners), make, read);
    let fresh = schema.open().await;
    assert!(
        states(&fresh, &ids(&all[..80]))
            .await
            .iter()
            .all(|state| *state == "destroyed")
    );
    assert!(
        states(&fresh, &ids(&all[80..]))
            .await
            .iter()
            .all(|state| *state == "open")
    );
}

/// Two processes that both have the key open in memory.
async fn both_know(schema: &Schema, lease: Duration) -> [PostgresKeyring; 2] {
    let open = || async {
        schema
            .open_with(|config| config.lease = lease)
            .await
            .unwrap()
    };
    let (one, two) = (open().await, open().await);
    one.open_epoch(OWNER).await.unwrap();
    one.open_epoch(OTHER).await.unwrap();
    one.create(&message(OWNER, 1)).await.unwrap();
    one.create(&message(OTHER, 2)).await.unwrap();
    let ids = [ids(&message(OWNER, 1)), ids(&message(OTHER, 2))].concat();
    assert_eq!(states(&two, &ids).await, ["open"; 4]);
    [one, two]
}

/// Behind the keyring's back, so that nobody is told.
async fn destroy_untold(schema: &Schema) {
    let client = schema.client().await;
    let changed = client
        .execute("UPDATE keys SET destroyed_by = ''", &[])
        .await;
    assert_eq!(changed.unwrap(), 4);
}

#[tokio::test]
async fn an_erasure_is_told_to_other_processes_at_once() {
    let schema = Schema::new();
    let [one, two] = both_know(&schema, LONG).await;
    two.open_epoch(OWNER).await.unwrap();
    one.destroy(OWNER, &Target::Owner, erasure(1))
        .await
        .unwrap();
    let id = source_key(OWNER, 1).id;
    assert_eq!(
        states(&one, &[id]).await,
        ["destroyed"],
        "its own process waits for nothing"
    );
    let took = until(&two, id, "destroyed").await;
    println!("told after {took:?}");
    assert_eq!(two.open_epoch(OWNER).await.unwrap(), 2);
    // Nobody was told of these: they come from memory.
    let client = schema.client().await;
    client
        .execute("UPDATE keys SET destroyed_by = ''", &[])
        .await
        .unwrap();
    assert_eq!(
        states(&two, &ids(&message(OTHER, 2))).await,
        ["open", "open"]
    );
}

#[tokio::test]
async fn an_expiry_is_told_as_well() {
    let schema = Schema::new();
    let [one, two] = both_know(&schema, LONG).await;
    let at = Timestamp::from_millis(1000);
    let expiring: Vec<NewKey> = [(OWNER, 3), (OTHER, 4)]
        .map(|(owner, number)| NewKey {
            expires_at: Some(at),
            ..source_key(owner, number)
        })
        .to_vec();
    two.create(&expiring).await.unwrap();
    assert_eq!(states(&two, &ids(&expiring)).await, ["open", "open"]);
    assert_eq!(one.destroy_expired(at).await.unwrap(), 2);
    for new in &expiring {
        until(&two, new.id, "destroyed").await;
    }
}

#[tokio::test]
async fn a_key_is_not_used_beyond_its_lease() {
    let schema = Schema::new();
    let lease = Duration::from_millis(500);
    let [_one, two] = both_know(&schema, lease).await;
    destroy_untold(&schema).await;
    let took = until(&two, source_key(OWNER, 1).id, "destroyed").await;
    println!("a lease of {lease:?} ended after {took:?}");
}

#[tokio::test]
async fn without_news_no_key_is_used_from_memory() {
    let schema = Schema::new();
    let [_one, two] = both_know(&schema, LONG).await;
    destroy_untold(&schema).await;
    let id = source_key(OWNER, 1).id;
    assert_eq!(states(&two, &[id]).await, ["open"], "from memory");
    let client = schema.client().await;
    let listening = format!("LISTEN \"{}\"", schema.name);
    let ended = client
        .query(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query = $1",
            &[&listening],
        )
        .await
        .unwrap();
    assert_eq!(ended.len(), 2);
    until(&two, id, "destroyed").await;
}

#[tokio::test]
async fn a_process_that_learns_of_an_erasure_by_a_refusal_opens_the_next_epoch() {
    let schema = Schema::new();
    let [one, two] = both_know(&schema, LONG).await;
    assert_eq!(two.open_epoch(OWNER).await.unwrap(), 1);
    // As if the announcement were late: the epoch is closed untold.
    let client = schema.client().await;
    client
        .execute("UPDATE owners SET is_open = false", &[])
        .await
        .unwrap();
    let late = two.create(&[source_key(OWNER, 9)]).await;
    assert!(matches!(late, Err(KeyringError::Destroyed)));
    drop(one);
    assert_eq!(two.epoch(OWNER).await.unwrap().closed_through, 1);
}
