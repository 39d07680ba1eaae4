//! What a destruction leaves in the server's files.

use std::collections::BTreeSet;
use std::path::Path;

use aho_corasick::AhoCorasick;
use anamnesis_domain::ids::{KeyId, MemoryId};
use anamnesis_domain::input::Target;
use anamnesis_domain::time::Timestamp;
use anamnesis_pipeline::keyring::{KeyState, Keyring, KeyringError, NewKey};

use super::{
    OTHER, OWNER, PostgresKeyring, Schema, Server, erasure, ids, message, source_key, states,
    transition_key,
};

/// Two owners with so many messages each that the parts have many pages.
async fn filled(schema: &Schema, messages: u32) -> PostgresKeyring {
    let keys = schema.open().await;
    keys.open_epoch(OWNER).await.unwrap();
    keys.open_epoch(OTHER).await.unwrap();
    let owner = |number| if number % 2 == 0 { OWNER } else { OTHER };
    let new: Vec<NewKey> = (0..messages * 2)
        .flat_map(|number| message(owner(number), number))
        .collect();
    for some in new.chunks(500) {
        keys.create(some).await.unwrap();
    }
    keys
}

/// The wrapped keys of `ids`, as the server stores them.
async fn wrapped(schema: &Schema, ids: &[KeyId]) -> Vec<Vec<u8>> {
    let client = schema.client().await;
    let mut wrapped = Vec::new();
    for id in ids {
        let row = client
            .query_one(
                "SELECT wrapped FROM secrets WHERE name = 'k'::bytea || $1",
                &[&&id.bytes()[..]],
            )
            .await
            .unwrap();
        wrapped.push(row.get(0));
    }
    wrapped
}

async fn wrapped_owner_key(schema: &Schema) -> Vec<u8> {
    let client = schema.client().await;
    let row = client
        .query_one(
            "SELECT wrapped FROM secrets WHERE name = 'o'::bytea || $1",
            &[&&OWNER.bytes()[..]],
        )
        .await
        .unwrap();
    row.get(0)
}

/// How many of these byte strings are found in a file below the folder. Half of one would be too much.
async fn found(schema: &Schema, folder: &Path, secrets: &[Vec<u8>]) -> usize {
    // Everything that is still in memory only.
    schema
        .client()
        .await
        .batch_execute("CHECKPOINT")
        .await
        .unwrap();
    let halves: Vec<&[u8]> = secrets.iter().map(|secret| &secret[24..48]).collect();
    let search = AhoCorasick::new(&halves).unwrap();
    let mut seen = BTreeSet::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if let Ok(bytes) = std::fs::read(&path) {
                seen.extend(search.find_iter(&bytes).map(|found| found.pattern()));
            }
        }
    }
    seen.len()
}

fn both(numbers: [u32; 4]) -> Vec<KeyId> {
    numbers
        .iter()
        .flat_map(|n| ids(&message(OWNER, *n)))
        .collect()
}

#[tokio::test]
async fn destroyed_keys_are_in_no_table_file() {
    let server = Server::start();
    let schema = server.schema();
    let tables = server.data().join("base");
    let keys = filled(&schema, 500).await;
    let messages = wrapped(&schema, &both([0, 250, 500, 998])).await;
    let memories = wrapped(&schema, &both([2, 252, 502, 996])).await;
    let theirs = wrapped(&schema, &ids(&message(OTHER, 1))).await;
    let rest = wrapped(&schema, &both([4, 6, 8, 10])).await;
    let owner_key = [wrapped_owner_key(&schema).await];
    for (secrets, count) in [(&messages, 8), (&memories, 8), (&theirs, 2), (&rest, 8)] {
        assert_eq!(
            found(&schema, &tables, secrets).await,
            count,
            "they are found before"
        );
    }

    for number in [0, 250, 500, 998] {
        let target = Target::Message(source_key(OWNER, number).event);
        let destroyed = keys.destroy(OWNER, &target, erasure(number)).await.unwrap();
        assert_eq!(destroyed.keys, 2);
    }
    assert_eq!(found(&schema, &tables, &messages).await, 0);

    let of = [2, 252, 502, 996].map(|n| transition_key(OWNER, n).memory.unwrap());
    let target = Target::Memories(of.to_vec());
    assert_eq!(
        keys.destroy(OWNER, &target, erasure(1)).await.unwrap().keys,
        8
    );
    assert_eq!(found(&schema, &tables, &memories).await, 0);
    assert_eq!(
        found(&schema, &tables, &rest).await,
        8,
        "what was not erased is there"
    );

    assert_eq!(found(&schema, &tables, &owner_key).await, 1);
    keys.destroy(OWNER, &Target::Owner, erasure(2))
        .await
        .unwrap();
    assert_eq!(found(&schema, &tables, &rest).await, 0);
    assert_eq!(found(&schema, &tables, &owner_key).await, 0);
    assert_eq!(found(&schema, &tables, &theirs).await, 2);

    // After a crash the server repeats what its write-ahead log says.
    server.kill();
    let mut server = server;
    server.restart();
    for secrets in [&messages, &memories, &rest] {
        assert_eq!(
            found(&schema, &tables, secrets).await,
            0,
            "nor after a crash"
        );
    }
    assert_eq!(found(&schema, &tables, &theirs).await, 2);
    // Not a promise, but what `schema.rs` says: the log keeps what was written until it is reused.
    let log = found(&schema, &server.data().join("pg_wal"), &messages).await;
    println!("of 8 wrapped keys {log} are still in the write-ahead log");
}

#[tokio::test]
async fn an_expired_key_is_in_no_table_file() {
    let server = Server::start();
    let schema = server.schema();
    let tables = server.data().join("base");
    let keys = filled(&schema, 50).await;
    let expiring = [(OWNER, 1000), (OTHER, 1001)].map(|(owner, number)| NewKey {
        expires_at: Some(Timestamp::from_millis(10)),
        ..source_key(owner, number)
    });
    keys.create(&expiring).await.unwrap();
    let secrets = wrapped(&schema, &ids(&expiring)).await;
    assert_eq!(found(&schema, &tables, &secrets).await, 2);
    assert_eq!(
        keys.destroy_expired(Timestamp::from_millis(10))
            .await
            .unwrap(),
        2
    );
    assert_eq!(found(&schema, &tables, &secrets).await, 0);
}

#[tokio::test]
async fn a_rewrapped_key_leaves_no_old_wrapping() {
    let server = Server::start();
    let schema = server.schema();
    let tables = server.data().join("base");
    let keys = filled(&schema, 10).await;
    let doomed = transition_key(OWNER, 0);
    let sibling = NewKey {
        id: KeyId::from_bytes([5; 16]),
        memory: Some(MemoryId::from_bytes([5; 16])),
        ..doomed.clone()
    };
    keys.create(std::slice::from_ref(&sibling)).await.unwrap();
    let old = wrapped(&schema, &[sibling.id]).await;
    assert_eq!(found(&schema, &tables, &old).await, 1);
    let target = Target::Memories(vec![doomed.memory.unwrap()]);
    keys.destroy(OWNER, &target, erasure(1)).await.unwrap();
    assert_eq!(
        found(&schema, &tables, &old).await,
        0,
        "the old wrapping opened under the destroyed key"
    );
    assert_eq!(states(&keys, &[sibling.id]).await, ["open"]);
}

#[tokio::test]
async fn no_key_is_stored_in_clear() {
    let server = Server::start();
    let schema = server.schema();
    let keys = filled(&schema, 10).await;
    let mut clear = Vec::new();
    for state in keys.get(&ids(&message(OWNER, 0))).await.unwrap() {
        let KeyState::Open(key) = state else {
            panic!("it is open")
        };
        // As long as a wrapped one, for `found`.
        clear.push([&[0; 24], &key.bytes()[..]].concat());
    }
    assert_eq!(
        found(&schema, &server.data(), &clear).await,
        0,
        "in tables, log or anywhere"
    );
}

#[tokio::test]
async fn a_damaged_or_moved_key_is_refused_by_name() {
    let id = source_key(OWNER, 0).id;
    let digits = id.to_string()[2..].to_owned();
    let own = format!("name = 'k'::bytea || decode('{digits}', 'hex')");
    let other = source_key(OWNER, 2).id;
    let other_digits = other.to_string()[2..].to_owned();
    for change in [
        format!("UPDATE secrets SET wrapped = decode(repeat('00', 72), 'hex') WHERE {own}"),
        format!("UPDATE secrets SET wrapped = '' WHERE {own}"),
        format!("DELETE FROM secrets WHERE {own}"),
        format!(
            "UPDATE secrets SET wrapped = (SELECT wrapped FROM secrets WHERE
                 name = 'k'::bytea || decode('{other_digits}', 'hex')) WHERE {own}"
        ),
    ] {
        let schema = Schema::new();
        drop(filled(&schema, 3).await);
        let changed = schema.client().await.execute(&change, &[]).await.unwrap();
        assert_eq!(changed, 1, "{change}");
        let keys = schema.open().await;
        let answer = keys.get(&[id]).await.unwrap_err();
        assert!(
            matches!(&answer, KeyringError::Unusable { what } if what.contains(&id.to_string())),
            "{answer}"
        );
        assert_eq!(states(&keys, &[other]).await, ["open"], "others open");
    }
}
