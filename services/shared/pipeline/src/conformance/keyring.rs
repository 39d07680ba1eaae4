//! What does a keyring have to do to be a [`Keyring`]? One case per line of its contract.
//!
//! A backend calls [`crate::keyring_conformance!`] with a value of its [`KeyringBackend`]; the macro
//! holds the list of cases, so that no backend can leave one out.

use anamnesis_domain::ids::{ErasureId, EventTag, KeyId, MemoryId, OwnerKey, SourceTag};
use anamnesis_domain::input::Target;
use anamnesis_domain::time::Timestamp;
use async_trait::async_trait;

use crate::keyring::{EpochState, KeyState, Keyring, KeyringError, Keys, NewKey};

/// A way to make keyrings of one kind.
#[async_trait]
pub trait KeyringBackend: Send + Sync {
    /// A fresh keyring without any owner.
    async fn make(&self) -> Keys;

    /// The keyring that [`KeyringBackend::make`] made last, after a restart of its process.
    async fn restart(&self, keys: Keys) -> Keys;
}

/// Runs every case of the keyring's contract over a backend.
#[macro_export]
macro_rules! keyring_conformance {
    ($backend:expr) => {
        $crate::keyring_conformance! { @each $backend;
            the_site_key_is_drawn_once,
            two_keyrings_have_two_site_keys,
            epochs_count_from_one,
            a_created_key_is_durable,
            a_repeat_comes_back_with_the_first_key,
            keys_differ,
            answers_come_in_the_order_asked,
            an_unopened_epoch_is_unknown,
            a_parent_must_be_there,
            a_parent_may_be_made_in_the_same_call,
            a_refused_create_makes_nothing,
            one_owner_cannot_use_anothers_keys,
            destroying_a_message_destroys_what_it_led_to,
            destroying_a_source_destroys_all_its_events,
            destroying_a_memory_takes_the_sentence_and_leaves_its_siblings,
            destroying_the_siblings_later_still_works,
            destroying_the_owner_closes_the_epoch,
            a_repeated_erasure_answers_the_same_and_spares_what_came_later,
            a_repeated_owner_erasure_spares_the_next_epoch,
            other_owners_keys_are_untouched,
            destruction_survives_a_restart,
            late_sealing_is_refused,
            expired_keys_are_destroyed,
            a_kept_key_does_not_expire,
            a_destroyed_key_cannot_be_kept,
        }
    };
    (@each $backend:expr; $($case:ident,)+) => {
        $(
            #[tokio::test]
            async fn $case() {
                $crate::conformance::keyring::$case(&$backend).await;
            }
        )+
    };
}

fn owner(byte: u8) -> OwnerKey {
    OwnerKey::from_bytes([byte; 16])
}

fn id(byte: u8) -> KeyId {
    KeyId::from_bytes([byte; 16])
}

fn event(byte: u8) -> EventTag {
    EventTag::from_bytes([byte; 16])
}

fn source(byte: u8) -> SourceTag {
    SourceTag::from_bytes([byte; 16])
}

fn memory(byte: u8) -> MemoryId {
    MemoryId::from_bytes([byte; 16])
}

fn erasure(byte: u8) -> ErasureId {
    ErasureId::from_bytes([byte; 16])
}

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_millis(seconds * 1000)
}

/// The key of a conversation record: source 1 for events below 10, source 2 from there on.
fn source_key(id_: u8, event_: u8) -> NewKey {
    NewKey {
        id: id(id_),
        owner: owner(1),
        epoch: 1,
        parent: None,
        event: event(event_),
        source: source(if event_ < 10 { 1 } else { 2 }),
        memory: None,
        expires_at: None,
    }
}

/// The key of a transition about `memory_` that was decided on `event_`.
fn transition_key(id_: u8, event_: u8, parent: u8, memory_: u8) -> NewKey {
    NewKey {
        parent: Some(id(parent)),
        memory: Some(memory(memory_)),
        ..source_key(id_, event_)
    }
}

/// Owner 1 in epoch 1 with two events of source 1 and one of source 2:
///
/// | event | source key | transitions (key: memory) |
/// |-------|------------|---------------------------|
/// | 1     | 10         | 11: memory 1, 12: memory 2 |
/// | 2     | 20         | 21: memory 2              |
/// | 11    | 30         | 31: memory 3              |
async fn with_keys(backend: &dyn KeyringBackend) -> Keys {
    let keys = backend.make().await;
    assert_eq!(keys.open_epoch(owner(1)).await.unwrap(), 1);
    let all = [
        source_key(10, 1),
        transition_key(11, 1, 10, 1),
        transition_key(12, 1, 10, 2),
        source_key(20, 2),
        transition_key(21, 2, 20, 2),
        source_key(30, 11),
        transition_key(31, 11, 30, 3),
    ];
    keys.create(&all).await.unwrap();
    keys
}

/// Which of the keys of [`with_keys`] open.
async fn check_open(keys: &dyn Keyring, expected: &[u8]) {
    let all = [10, 11, 12, 20, 21, 30, 31];
    let states = keys.get(&all.map(id)).await.unwrap();
    let mut open = Vec::new();
    for (byte, state) in all.into_iter().zip(states) {
        match state {
            KeyState::Open(_) => open.push(byte),
            KeyState::Destroyed => (),
            KeyState::Unknown => panic!("key {byte} is forgotten"),
        }
    }
    assert_eq!(open, expected);
}

async fn bytes_of(keys: &dyn Keyring, byte: u8) -> Option<[u8; 32]> {
    match keys.get(&[id(byte)]).await.unwrap().remove(0) {
        KeyState::Open(key) => Some(*key.bytes()),
        KeyState::Destroyed | KeyState::Unknown => None,
    }
}

async fn destroy(keys: &dyn Keyring, target: Target, erasure_: u8) -> u64 {
    keys.destroy(owner(1), &target, erasure(erasure_))
        .await
        .unwrap()
        .keys
}

pub async fn the_site_key_is_drawn_once(backend: &dyn KeyringBackend) {
    let keys = backend.make().await;
    let site = keys.id_key().clone();
    let keys = backend.restart(keys).await;
    assert!(*keys.id_key() == site);
}

pub async fn two_keyrings_have_two_site_keys(backend: &dyn KeyringBackend) {
    let (one, two) = (backend.make().await, backend.make().await);
    assert!(one.id_key() != two.id_key());
}

pub async fn epochs_count_from_one(backend: &dyn KeyringBackend) {
    let keys = backend.make().await;
    assert_eq!(keys.epoch(owner(1)).await.unwrap(), EpochState::default());
    assert_eq!(keys.open_epoch(owner(1)).await.unwrap(), 1);
    assert_eq!(
        keys.open_epoch(owner(1)).await.unwrap(),
        1,
        "an open epoch stays open"
    );
    let expected = EpochState {
        open: Some(1),
        closed_through: 0,
    };
    assert_eq!(keys.epoch(owner(1)).await.unwrap(), expected);
    let keys = backend.restart(keys).await;
    assert_eq!(keys.epoch(owner(1)).await.unwrap(), expected);
}

pub async fn a_created_key_is_durable(backend: &dyn KeyringBackend) {
    let keys = with_keys(backend).await;
    let (source, transition) = (bytes_of(&*keys, 10).await, bytes_of(&*keys, 11).await);
    assert!(source.is_some() && transition.is_some());
    let keys = backend.restart(keys).await;
    assert!(bytes_of(&*keys, 11).await == transition);
    assert!(bytes_of(&*keys, 10).await == source);
}

pub async fn a_repeat_comes_back_with_the_first_key(backend: &dyn KeyringBackend) {
    let keys = backend.make().await;
    keys.open_epoch(owner(1)).await.unwrap();
    let new = [source_key(10, 1), source_key(10, 1)];
    let first = keys.create(&new).await.unwrap();
    assert!(first[0].bytes() == first[1].bytes(), "twice in one call");
    let again = keys.create(&new[..1]).await.unwrap();
    assert!(first[0].bytes() == again[0].bytes());
    let keys = backend.restart(keys).await;
    let again = keys.create(&new[..1]).await.unwrap();
    assert!(first[0].bytes() == again[0].bytes());
    assert!(bytes_of(&*keys, 10).await == Some(*first[0].bytes()));
}

pub async fn keys_differ(backend: &dyn KeyringBackend) {
    let keys = with_keys(backend).await;
    let mut seen = std::collections::BTreeSet::new();
    for byte in [10, 11, 12, 20, 21, 30, 31] {
        assert!(seen.insert(bytes_of(&*keys, byte).await.unwrap()), "{byte}");
    }
    assert!(!seen.contains(&[0; 32]));
}

pub async fn answers_come_in_the_order_asked(backend: &dyn KeyringBackend) {
    let keys = with_keys(backend).await;
    let states = keys.get(&[id(99), id(31), id(10), id(31)]).await.unwrap();
    let mut given = Vec::new();
    for state in states {
        given.push(match state {
            KeyState::Open(key) => Some(*key.bytes()),
            KeyState::Unknown => None,
            KeyState::Destroyed => panic!("nothing was destroyed"),
        });
    }
    let (ten, thirty_one) = (bytes_of(&*keys, 10).await, bytes_of(&*keys, 31).await);
    assert!(given == [None, thirty_one, ten, thirty_one]);
    assert!(keys.get(&[]).await.unwrap().is_empty());
    assert!(keys.create(&[]).await.unwrap().is_empty());
}

async fn refusal(keys: &dyn Keyring, new: &[NewKey]) -> KeyringError {
    keys.create(new).await.unwrap_err()
}

pub async fn an_unopened_epoch_is_unknown(backend: &dyn KeyringBackend) {
    let keys = backend.make().await;
    let new = source_key(10, 1);
    assert!(matches!(
        refusal(&*keys, &[new]).await,
        KeyringError::Unknown
    ));
    keys.open_epoch(owner(1)).await.unwrap();
    let ahead = NewKey {
        epoch: 2,
        ..source_key(10, 1)
    };
    assert!(matches!(
        refusal(&*keys, &[ahead]).await,
        KeyringError::Unknown
    ));
}

pub async fn a_parent_must_be_there(backend: &dyn KeyringBackend) {
    let keys = with_keys(backend).await;
    let orphan = transition_key(40, 1, 99, 1);
    assert!(matches!(
        refusal(&*keys, &[orphan]).await,
        KeyringError::Unknown
    ));
}

pub async fn a_parent_may_be_made_in_the_same_call(backend: &dyn KeyringBackend) {
    let keys = with_keys(backend).await;
    let made = keys
        .create(&[source_key(40, 4), transition_key(41, 4, 40, 4)])
        .await
        .unwrap();
    assert!(bytes_of(&*keys, 41).await == Some(*made[1].bytes()));
    let child_first = [transition_key(51, 5, 50, 5), source_key(50, 5)];
    assert!(matches!(
        refusal(&*keys, &child_first).await,
        KeyringError::Unknown
    ));
}

pub async fn a_refused_create_makes_nothing(backend: &dyn KeyringBackend) {
    let keys = with_keys(backend).await;
    refusal(&*keys, &[source_key(40, 4), transition_key(41, 4, 99, 4)]).await;
    assert!(matches!(
        keys.get(&[id(40)]).await.unwrap()[..],
        [KeyState::Unknown]
    ));
    let keys = backend.restart(keys).await;
    assert!(matches!(
        keys.get(&[id(40)]).await.unwrap()[..],
        [KeyState::Unknown]
    ));
}

pub async fn one_owner_cannot_use_anothers_keys(backend: &dyn KeyringBackend) {
    let keys = with_keys(backend).await;
    keys.open_epoch(owner(2)).await.unwrap();
    let same_id = NewKey {
        owner: owner(2),
        ..source_key(10, 1)
    };
    assert!(matches!(
        refusal(&*keys, &[same_id]).await,
        KeyringError::Unusable { .. }
    ));
    let foreign_parent = NewKey {
        owner: owner(2),
        ..transition_key(40, 1, 10, 1)
    };
    assert!(matches!(
        refusal(&*keys, &[foreign_parent]).await,
        KeyringError::Unusable { .. }
    ));
}

pub async fn destroying_a_message_destroys_what_it_led_to(backend: &dyn KeyringBackend) {
    let keys = with_keys(backend).await;
    assert_eq!(destroy(&*keys, Target::Message(event(1)), 1).await, 3);
    check_open(&*keys, &[20, 21, 30, 31]).await;
    assert_eq!(destroy(&*keys, Target::Message(event(77)), 2).await, 0);
}

pub async fn destroying_a_source_destroys_all_its_events(backend: &dyn KeyringBackend) {
    let keys = with_keys(backend).await;
    assert_eq!(destroy(&*keys, Target::Source(source(1)), 1).await, 5);
    check_open(&*keys, &[30, 31]).await;
}

pub async fn destroying_a_memory_takes_the_sentence_and_leaves_its_siblings(
    backend: &dyn KeyringBackend,
) {
    let keys = with_keys(backend).await;
    let sibling = bytes_of(&*keys, 12).await;
    assert_eq!(
        destroy(&*keys, Target::Memories(vec![memory(1)]), 1).await,
        2
    );
    check_open(&*keys, &[12, 20, 21, 30, 31]).await;
    assert!(
        bytes_of(&*keys, 12).await == sibling,
        "the same key under another wrapping"
    );
    let keys = backend.restart(keys).await;
    check_open(&*keys, &[12, 20, 21, 30, 31]).await;
    assert!(bytes_of(&*keys, 12).await == sibling);
}

pub async fn destroying_the_siblings_later_still_works(backend: &dyn KeyringBackend) {
    let keys = with_keys(backend).await;
    destroy(&*keys, Target::Memories(vec![memory(1)]), 1).await;
    // Memory 2 was told in both events: what is left of the first, and all of the second.
    assert_eq!(
        destroy(&*keys, Target::Memories(vec![memory(2)]), 2).await,
        3
    );
    check_open(&*keys, &[30, 31]).await;

    // A re-wrapped key is no source's key: it outlives another memory's erasure, not its event's.
    let keys = with_keys(backend).await;
    keys.create(&[transition_key(13, 1, 10, 3)]).await.unwrap();
    destroy(&*keys, Target::Memories(vec![memory(1)]), 1).await;
    assert_eq!(
        destroy(&*keys, Target::Memories(vec![memory(3)]), 2).await,
        3
    );
    check_open(&*keys, &[12, 20, 21]).await;
    assert_eq!(destroy(&*keys, Target::Message(event(1)), 3).await, 1);
    check_open(&*keys, &[20, 21]).await;
}

pub async fn destroying_the_owner_closes_the_epoch(backend: &dyn KeyringBackend) {
    let keys = with_keys(backend).await;
    assert_eq!(destroy(&*keys, Target::Owner, 1).await, 7);
    check_open(&*keys, &[]).await;
    let closed = EpochState {
        open: None,
        closed_through: 1,
    };
    assert_eq!(keys.epoch(owner(1)).await.unwrap(), closed);
    assert!(matches!(
        refusal(&*keys, &[source_key(40, 4)]).await,
        KeyringError::Destroyed
    ));
    assert_eq!(keys.open_epoch(owner(1)).await.unwrap(), 2);
    assert!(matches!(
        refusal(&*keys, &[source_key(40, 4)]).await,
        KeyringError::Destroyed
    ));
    let next = NewKey {
        epoch: 2,
        ..source_key(40, 4)
    };
    keys.create(&[next]).await.unwrap();
    check_open(&*keys, &[]).await;
}

pub async fn a_repeated_erasure_answers_the_same_and_spares_what_came_later(
    backend: &dyn KeyringBackend,
) {
    let keys = with_keys(backend).await;
    assert_eq!(destroy(&*keys, Target::Source(source(1)), 1).await, 5);
    keys.create(&[source_key(40, 4)]).await.unwrap();
    let keys = backend.restart(keys).await;
    assert_eq!(destroy(&*keys, Target::Source(source(1)), 1).await, 5);
    assert!(
        bytes_of(&*keys, 40).await.is_some(),
        "said after the erasure"
    );
    assert_eq!(
        destroy(&*keys, Target::Source(source(1)), 2).await,
        1,
        "another erasure"
    );
}

pub async fn a_repeated_owner_erasure_spares_the_next_epoch(backend: &dyn KeyringBackend) {
    let keys = with_keys(backend).await;
    assert_eq!(destroy(&*keys, Target::Owner, 1).await, 7);
    keys.open_epoch(owner(1)).await.unwrap();
    keys.create(&[NewKey {
        epoch: 2,
        ..source_key(40, 4)
    }])
    .await
    .unwrap();
    assert_eq!(destroy(&*keys, Target::Owner, 1).await, 7);
    assert!(bytes_of(&*keys, 40).await.is_some());
    assert_eq!(keys.epoch(owner(1)).await.unwrap().open, Some(2));
}

pub async fn other_owners_keys_are_untouched(backend: &dyn KeyringBackend) {
    let targets = [
        Target::Owner,
        Target::Source(source(1)),
        Target::Message(event(1)),
        Target::Memories(vec![memory(1)]),
    ];
    for target in targets {
        let keys = with_keys(backend).await;
        keys.open_epoch(owner(2)).await.unwrap();
        // The same tags: a backend must not rely on them being distinct.
        let theirs = [
            NewKey {
                owner: owner(2),
                ..source_key(60, 1)
            },
            NewKey {
                owner: owner(2),
                ..transition_key(61, 1, 60, 1)
            },
        ];
        keys.create(&theirs).await.unwrap();
        destroy(&*keys, target, 1).await;
        assert!(bytes_of(&*keys, 60).await.is_some());
        assert!(bytes_of(&*keys, 61).await.is_some());
        assert_eq!(keys.epoch(owner(2)).await.unwrap().open, Some(1));
    }
}

pub async fn destruction_survives_a_restart(backend: &dyn KeyringBackend) {
    let keys = with_keys(backend).await;
    destroy(&*keys, Target::Message(event(1)), 1).await;
    let keys = backend.restart(keys).await;
    check_open(&*keys, &[20, 21, 30, 31]).await;
    assert_eq!(destroy(&*keys, Target::Message(event(1)), 1).await, 3);
}

pub async fn late_sealing_is_refused(backend: &dyn KeyringBackend) {
    let keys = with_keys(backend).await;
    destroy(&*keys, Target::Message(event(1)), 1).await;
    let below = transition_key(40, 1, 10, 4);
    assert!(matches!(
        refusal(&*keys, &[below]).await,
        KeyringError::Destroyed
    ));
    let same = source_key(10, 1);
    assert!(matches!(
        refusal(&*keys, &[same]).await,
        KeyringError::Destroyed
    ));
    assert!(matches!(
        keys.get(&[id(40)]).await.unwrap()[..],
        [KeyState::Unknown]
    ));
}

async fn with_expiring_keys(backend: &dyn KeyringBackend) -> Keys {
    let keys = with_keys(backend).await;
    let expiring = [
        NewKey {
            expires_at: Some(at(10)),
            ..source_key(40, 4)
        },
        NewKey {
            expires_at: Some(at(20)),
            ..source_key(50, 5)
        },
    ];
    keys.create(&expiring).await.unwrap();
    keys
}

pub async fn expired_keys_are_destroyed(backend: &dyn KeyringBackend) {
    let keys = with_expiring_keys(backend).await;
    assert_eq!(keys.destroy_expired(at(9)).await.unwrap(), 0);
    assert_eq!(keys.destroy_expired(at(10)).await.unwrap(), 1);
    assert_eq!(keys.destroy_expired(at(10)).await.unwrap(), 0, "once");
    assert!(bytes_of(&*keys, 40).await.is_none());
    assert!(bytes_of(&*keys, 50).await.is_some());
    check_open(&*keys, &[10, 11, 12, 20, 21, 30, 31]).await;
}

pub async fn a_kept_key_does_not_expire(backend: &dyn KeyringBackend) {
    let keys = with_expiring_keys(backend).await;
    keys.keep(&[id(40)]).await.unwrap();
    let keys = backend.restart(keys).await;
    assert_eq!(keys.destroy_expired(at(30)).await.unwrap(), 1);
    assert!(bytes_of(&*keys, 40).await.is_some());
}

pub async fn a_destroyed_key_cannot_be_kept(backend: &dyn KeyringBackend) {
    let keys = with_expiring_keys(backend).await;
    keys.destroy_expired(at(10)).await.unwrap();
    let answer = keys.keep(&[id(50), id(40)]).await;
    assert!(matches!(answer, Err(KeyringError::Destroyed)));
    assert!(matches!(
        keys.keep(&[id(99)]).await,
        Err(KeyringError::Unknown)
    ));
    assert_eq!(
        keys.destroy_expired(at(30)).await.unwrap(),
        1,
        "nothing was kept"
    );
}
