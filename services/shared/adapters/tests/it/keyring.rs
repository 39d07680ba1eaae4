//! The SQLite keyring: the contract, and what only a file can give away.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use anamnesis_adapters::master_key::MasterKey;
use anamnesis_adapters::sqlite_keyring::SqliteKeyring;
use anamnesis_domain::ids::{ErasureId, EventTag, KeyId, MemoryId, OwnerKey, SourceTag};
use anamnesis_domain::input::Target;
use anamnesis_pipeline::conformance::keyring::KeyringBackend;
use anamnesis_pipeline::keyring::{KeyState, Keyring, KeyringError, Keys, NewKey};
use async_trait::async_trait;
use tempfile::TempDir;

fn master() -> MasterKey {
    MasterKey::from_bytes([9; 32])
}

fn open_in(dir: &Path) -> Result<SqliteKeyring, KeyringError> {
    SqliteKeyring::open(&dir.join("keys.db"), &master())
}

/// Every keyring in a folder of its own.
#[derive(Default)]
struct Sqlite {
    dirs: Mutex<Vec<TempDir>>,
}

impl Sqlite {
    fn last(&self) -> PathBuf {
        self.dirs.lock().unwrap().last().unwrap().path().to_owned()
    }
}

#[async_trait]
impl KeyringBackend for Sqlite {
    async fn make(&self) -> Keys {
        self.dirs.lock().unwrap().push(tempfile::tempdir().unwrap());
        Arc::new(open_in(&self.last()).unwrap())
    }

    async fn restart(&self, keys: Keys) -> Keys {
        drop(keys);
        Arc::new(open_in(&self.last()).unwrap())
    }
}

anamnesis_pipeline::keyring_conformance!(Sqlite::default());

/// The files as `kill -9` leaves them: copied while the keyring is open, without a close.
mod after_a_kill {
    use super::*;

    #[derive(Default)]
    struct Killed(Sqlite);

    #[async_trait]
    impl KeyringBackend for Killed {
        async fn make(&self) -> Keys {
            self.0.make().await
        }

        async fn restart(&self, keys: Keys) -> Keys {
            let copy = tempfile::tempdir().unwrap();
            for (path, bytes) in files(&self.0.last()) {
                std::fs::write(copy.path().join(path.file_name().unwrap()), bytes).unwrap();
            }
            drop(keys);
            let reopened = open_in(copy.path()).unwrap();
            self.0.dirs.lock().unwrap().push(copy);
            Arc::new(reopened)
        }
    }

    anamnesis_pipeline::keyring_conformance!(Killed::default());
}

fn files(dir: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        let bytes = std::fs::read(&path).unwrap();
        files.push((path, bytes));
    }
    files
}

fn alter(dir: &Path, sql: &str) {
    let connection = rusqlite::Connection::open(dir.join("keys.db")).unwrap();
    connection.execute_batch(sql).unwrap();
}

const OWNER: OwnerKey = OwnerKey::from_bytes([1; 16]);
const OTHER: OwnerKey = OwnerKey::from_bytes([2; 16]);

/// Ids are keyed hashes: they come in no order, so rows of the indexes move all the time.
fn scattered(what: &str, number: u32) -> [u8; 16] {
    let hash = blake3::hash(format!("{what} {number}").as_bytes());
    hash.as_bytes()[..16].try_into().unwrap()
}

fn source_key(owner: OwnerKey, number: u32) -> NewKey {
    NewKey {
        id: KeyId::from_bytes(scattered("source key", number)),
        owner,
        epoch: 1,
        parent: None,
        event: EventTag::from_bytes(scattered("event", number)),
        source: SourceTag::from_bytes(scattered("source", number % 3)),
        memory: None,
        expires_at: None,
    }
}

fn transition_key(owner: OwnerKey, number: u32) -> NewKey {
    let source = source_key(owner, number);
    NewKey {
        id: KeyId::from_bytes(scattered("transition key", number)),
        parent: Some(source.id),
        memory: Some(MemoryId::from_bytes(scattered("memory", number))),
        ..source
    }
}

/// Two owners with so many messages each that the tables have several levels, in small calls.
async fn filled(dir: &Path, messages: u32) -> SqliteKeyring {
    let keys = open_in(dir).unwrap();
    keys.open_epoch(OWNER).await.unwrap();
    keys.open_epoch(OTHER).await.unwrap();
    let calls = (0..messages * 2).map(|number| {
        let owner = if number % 2 == 0 { OWNER } else { OTHER };
        let new = [source_key(owner, number), transition_key(owner, number)];
        let keys = &keys;
        async move { keys.create(&new).await.unwrap() }
    });
    futures::future::join_all(calls).await;
    keys
}

/// The wrapped keys of `ids`, as they lie in the file.
fn wrapped(dir: &Path, ids: &[KeyId]) -> Vec<Vec<u8>> {
    let connection = rusqlite::Connection::open(dir.join("keys.db")).unwrap();
    let mut select = connection
        .prepare("SELECT wrapped FROM keys JOIN secrets ON n = secret WHERE id = ?1")
        .unwrap();
    ids.iter()
        .map(|id| select.query_row([id.bytes()], |row| row.get(0)).unwrap())
        .collect()
}

fn find(haystack: &[u8], needle: &[u8]) -> bool {
    haystack
        .windows(needle.len())
        .any(|window| window == needle)
}

/// How many of these byte strings are found in any file of the folder. Half of one would be too much.
fn found(dir: &Path, secrets: &[Vec<u8>]) -> usize {
    let files = files(dir);
    let mut count = 0;
    for secret in secrets {
        let half = &secret[24..48];
        count += usize::from(files.iter().any(|(_, bytes)| find(bytes, half)));
    }
    count
}

#[tokio::test]
async fn destroyed_keys_are_in_no_file() {
    let dir = tempfile::tempdir().unwrap();
    let keys = filled(dir.path(), 1000).await;
    let of = |numbers: [u32; 4]| -> Vec<KeyId> {
        numbers
            .iter()
            .flat_map(|n| [source_key(OWNER, *n).id, transition_key(OWNER, *n).id])
            .collect()
    };
    let messages = wrapped(dir.path(), &of([0, 500, 1000, 1998]));
    let memories = wrapped(dir.path(), &of([2, 502, 1002, 1996]));
    assert_eq!(found(dir.path(), &messages), 8, "they are found before");
    assert_eq!(found(dir.path(), &memories), 8);

    for number in [0, 500, 1000, 1998] {
        let target = Target::Message(source_key(OWNER, number).event);
        let erasure = ErasureId::from_bytes(scattered("erasure", number));
        assert_eq!(keys.destroy(OWNER, &target, erasure).await.unwrap().keys, 2);
    }
    assert_eq!(found(dir.path(), &messages), 0);

    let ids = [2, 502, 1002, 1996].map(|n| MemoryId::from_bytes(scattered("memory", n)));
    let target = Target::Memories(ids.to_vec());
    let erasure = ErasureId::from_bytes([7; 16]);
    assert_eq!(keys.destroy(OWNER, &target, erasure).await.unwrap().keys, 8);
    assert_eq!(found(dir.path(), &memories), 0);

    let rest: Vec<KeyId> = (4..24)
        .step_by(2)
        .map(|n| source_key(OWNER, n).id)
        .collect();
    let rest = wrapped(dir.path(), &rest);
    let theirs = wrapped(
        dir.path(),
        &[source_key(OTHER, 1).id, transition_key(OTHER, 1).id],
    );
    keys.destroy(OWNER, &Target::Owner, ErasureId::from_bytes([8; 16]))
        .await
        .unwrap();
    assert_eq!(found(dir.path(), &rest), 0);
    assert_eq!(found(dir.path(), &theirs), 2);

    drop(keys);
    assert_eq!(
        found(dir.path(), &messages) + found(dir.path(), &memories),
        0,
        "nor after a close"
    );
}

#[tokio::test]
async fn a_rewrapped_key_leaves_no_old_wrapping() {
    let dir = tempfile::tempdir().unwrap();
    let keys = filled(dir.path(), 10).await;
    let doomed = transition_key(OWNER, 0);
    let sibling = NewKey {
        id: KeyId::from_bytes([5; 16]),
        memory: Some(MemoryId::from_bytes([5; 16])),
        ..doomed.clone()
    };
    keys.create(&[sibling]).await.unwrap();
    let old = wrapped(dir.path(), &[KeyId::from_bytes([5; 16])]);
    let target = Target::Memories(vec![doomed.memory.unwrap()]);
    keys.destroy(OWNER, &target, ErasureId::from_bytes([7; 16]))
        .await
        .unwrap();
    assert_eq!(
        found(dir.path(), &old),
        0,
        "the old wrapping opened under the destroyed key"
    );
    let states = keys.get(&[KeyId::from_bytes([5; 16])]).await.unwrap();
    assert!(matches!(states[..], [KeyState::Open(_)]));
}

/// A process that is killed between the commit and the clearing of the write-ahead log.
#[tokio::test]
async fn opening_clears_what_a_kill_left_behind() {
    let dir = tempfile::tempdir().unwrap();
    let keys = filled(dir.path(), 10).await;
    let secrets = wrapped(
        dir.path(),
        &[source_key(OWNER, 0).id, transition_key(OWNER, 0).id],
    );
    // A reader from outside keeps the log from being cleared, as a kill would.
    let outside = rusqlite::Connection::open(dir.path().join("keys.db")).unwrap();
    outside
        .execute_batch("BEGIN; SELECT count(*) FROM secrets;")
        .unwrap();
    let _: i64 = outside
        .query_row("SELECT count(*) FROM secrets", [], |row| row.get(0))
        .unwrap();
    let target = Target::Message(source_key(OWNER, 0).event);
    let erasure = ErasureId::from_bytes([7; 16]);
    let answer = keys.destroy(OWNER, &target, erasure).await;
    assert!(
        matches!(answer, Err(KeyringError::Unavailable { .. })),
        "not acknowledged"
    );
    let states = keys.get(&[source_key(OWNER, 0).id]).await.unwrap();
    assert!(
        matches!(states[..], [KeyState::Destroyed]),
        "and still not usable"
    );
    assert!(found(dir.path(), &secrets) > 0, "the old pages are there");

    let copy = tempfile::tempdir().unwrap();
    for (path, bytes) in files(dir.path()) {
        std::fs::write(copy.path().join(path.file_name().unwrap()), bytes).unwrap();
    }
    let reopened = open_in(copy.path()).unwrap();
    assert_eq!(found(copy.path(), &secrets), 0);
    drop(reopened);

    drop(outside);
    assert_eq!(
        keys.destroy(OWNER, &target, erasure).await.unwrap().keys,
        2,
        "a repeat finishes it"
    );
    assert_eq!(found(dir.path(), &secrets), 0);
}

#[tokio::test]
async fn another_master_key_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    drop(filled(dir.path(), 1).await);
    let path = dir.path().join("keys.db");
    let answer = SqliteKeyring::open(&path, &MasterKey::from_bytes([8; 32]));
    assert!(matches!(answer, Err(KeyringError::WrongMasterKey)));
    let keys = open_in(dir.path()).unwrap();
    let states = keys.get(&[transition_key(OWNER, 0).id]).await.unwrap();
    assert!(matches!(states[..], [KeyState::Open(_)]));
}

#[tokio::test]
async fn no_key_lies_in_the_file_in_clear() {
    let dir = tempfile::tempdir().unwrap();
    let keys = filled(dir.path(), 10).await;
    for state in keys
        .get(&[source_key(OWNER, 0).id, transition_key(OWNER, 0).id])
        .await
        .unwrap()
    {
        let KeyState::Open(key) = state else {
            panic!("it is open")
        };
        assert!(
            files(dir.path())
                .iter()
                .all(|(_, bytes)| !find(bytes, &key.bytes()[..16]))
        );
    }
}

#[tokio::test]
async fn a_damaged_or_moved_key_is_refused_by_name() {
    for change in [
        "wrapped = zeroblob(72)",
        "wrapped = x''",
        "wrapped = (SELECT wrapped FROM secrets ORDER BY n DESC LIMIT 1)",
    ] {
        let dir = tempfile::tempdir().unwrap();
        drop(filled(dir.path(), 3).await);
        let id = source_key(OWNER, 0).id;
        let digits = id.to_string()[2..].to_owned();
        let at = format!("WHERE n = (SELECT secret FROM keys WHERE id = x'{digits}')");
        alter(dir.path(), &format!("UPDATE secrets SET {change} {at}"));
        let keys = open_in(dir.path()).unwrap();
        let answer = keys.get(&[id]).await.unwrap_err();
        assert!(
            matches!(&answer, KeyringError::Unusable { what } if what.contains(&id.to_string()))
        );
        let states = keys.get(&[source_key(OWNER, 2).id]).await.unwrap();
        assert!(matches!(states[..], [KeyState::Open(_)]), "others open");
    }
}

#[tokio::test]
async fn a_keyring_is_opened_once() {
    let dir = tempfile::tempdir().unwrap();
    let keys = open_in(dir.path()).unwrap();
    assert!(matches!(
        open_in(dir.path()),
        Err(KeyringError::InUse { .. })
    ));
    drop(keys);
    open_in(dir.path()).unwrap();
}

#[tokio::test]
async fn a_newer_format_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    drop(open_in(dir.path()).unwrap());
    alter(dir.path(), "UPDATE meta SET format = 2");
    let Err(refused) = open_in(dir.path()) else {
        panic!("it opened")
    };
    assert!(refused.to_string().contains("newer version"), "{refused}");
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("keys.db"), "no database at all".repeat(100)).unwrap();
    assert!(matches!(
        open_in(dir.path()),
        Err(KeyringError::Unusable { .. })
    ));
}

/// Many callers at once, some of them refused: nobody gets into another's way.
#[tokio::test]
async fn a_refused_call_does_not_harm_the_others_of_its_group() {
    let dir = tempfile::tempdir().unwrap();
    let keys = filled(dir.path(), 1).await;
    let calls = (100..300).map(|number| {
        let keys = &keys;
        async move {
            let good = source_key(OWNER, number);
            let orphan = NewKey {
                parent: Some(KeyId::from_bytes([3; 16])),
                ..transition_key(OWNER, number)
            };
            let new = if number % 3 == 0 {
                vec![good.clone(), orphan]
            } else {
                vec![good.clone()]
            };
            (number, good.id, keys.create(&new).await)
        }
    });
    for (number, id, answer) in futures::future::join_all(calls).await {
        let state = keys.get(&[id]).await.unwrap().remove(0);
        match answer {
            Ok(made) => {
                let KeyState::Open(key) = state else {
                    panic!("{number} is there")
                };
                assert!(key.bytes() == made[0].bytes(), "{number}");
            }
            Err(error) => {
                assert!(
                    number % 3 == 0 && matches!(error, KeyringError::Unknown),
                    "{number}"
                );
                assert!(matches!(state, KeyState::Unknown), "{number}");
            }
        }
    }
}

/// Ceilings far above what was measured, so that only a mistake breaks them.
#[tokio::test]
async fn keys_are_made_and_found_quickly() {
    let dir = tempfile::tempdir().unwrap();
    let keys = filled(dir.path(), 1).await;
    let new: Vec<NewKey> = (10..510)
        .flat_map(|n| [source_key(OWNER, n), transition_key(OWNER, n)])
        .collect();
    let started = Instant::now();
    keys.create(&new).await.unwrap();
    let made = started.elapsed();
    let ids: Vec<KeyId> = new.iter().map(|new| new.id).collect();
    let started = Instant::now();
    for id in &ids {
        keys.get(&[*id]).await.unwrap();
    }
    let cached = started.elapsed() / 1000;
    drop(keys);
    let keys = open_in(dir.path()).unwrap();
    let started = Instant::now();
    keys.get(&ids).await.unwrap();
    let opened = started.elapsed();
    println!("1000 keys: made in {made:?}, found in {cached:?} each, opened anew in {opened:?}");
    assert!(made.as_millis() < 2000 && cached.as_millis() < 5 && opened.as_millis() < 2000);
}
