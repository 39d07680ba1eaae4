//! Memories, versions and a small lexicon for this crate's tests.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use anamnesis_domain::attribute::Attributes;
use anamnesis_domain::ids::{EventTag, IdKey, OwnerKey};
use anamnesis_domain::memory::{
    Claim, Entity, EntityKind, Intent, Kind, Memory, Permille, Polarity, Role, Source, Standing,
    Status,
};
use anamnesis_domain::owner::{Owner, Subject};
use anamnesis_domain::text::Text;
use anamnesis_domain::time::Timestamp;
use anamnesis_pipeline::doubles::keyring::MemoryKeyring;
use anamnesis_pipeline::keyring::Keys;
use anamnesis_pipeline::stores::MemoryVersion;

use crate::understand::QueryReader;

/// The keyring of every test's site.
pub(crate) fn keys() -> Keys {
    Arc::new(MemoryKeyring::new(7))
}

pub(crate) fn ids() -> IdKey {
    keys().id_key().clone()
}

pub(crate) fn at(text: &str) -> Timestamp {
    Timestamp::parse(text).unwrap()
}

/// Knows a few things and relatives in both languages.
pub(crate) struct Reader;

const KNOWN: [(EntityKind, &str, [&str; 2]); 10] = [
    (EntityKind::Allergen, "peanut", ["peanut", "花生"]),
    (EntityKind::Allergen, "mango", ["mango", "芒果"]),
    (EntityKind::Drug, "penicillin", ["penicillin", "青霉素"]),
    (EntityKind::Drug, "metformin", ["metformin", "二甲双胍"]),
    (EntityKind::Drug, "ibuprofen", ["ibuprofen", "布洛芬"]),
    (
        EntityKind::Drug,
        "atorvastatin",
        ["atorvastatin", "阿托伐他汀"],
    ),
    (EntityKind::Disease, "depression", ["depression", "抑郁症"]),
    (EntityKind::Disease, "glaucoma", ["glaucoma", "青光眼"]),
    (
        EntityKind::Disease,
        "hypertension",
        ["hypertension", "高血压"],
    ),
    (
        EntityKind::Disease,
        "type 2 diabetes",
        ["type 2 diabetes", "二型糖尿病"],
    ),
];

/// Words for relatives, the longer ones first.
const FATHER: [&str; 5] = ["我爸爸", "我爸", "父亲", "爸爸", "father"];
const MOTHER: [&str; 5] = ["我妈妈", "我妈", "母亲", "妈妈", "mother"];
const CHILD: [&str; 2] = ["我儿子", "my son"];

fn places(text: &str, words: impl Iterator<Item = &'static str>) -> Vec<Range<usize>> {
    let mut found: Vec<Range<usize>> = Vec::new();
    for word in words {
        for (at, _) in text.match_indices(word) {
            let range = at..at + word.len();
            if found
                .iter()
                .all(|r| range.end <= r.start || r.end <= range.start)
            {
                found.push(range);
            }
        }
    }
    found.sort_by_key(|range| range.start);
    found
}

impl QueryReader for Reader {
    fn things(&self, text: &str) -> Vec<Range<usize>> {
        let words = KNOWN.iter().flat_map(|(_, _, names)| names.iter().copied());
        places(&text.to_ascii_lowercase(), words)
    }

    fn persons(&self, text: &str) -> Vec<Range<usize>> {
        let words = FATHER.into_iter().chain(MOTHER).chain(CHILD);
        places(&text.to_ascii_lowercase(), words)
    }

    fn entities(&self, text: &str) -> Vec<Entity> {
        let lower = text.to_lowercase();
        KNOWN
            .into_iter()
            .filter(|(_, _, names)| names.iter().any(|name| lower.contains(name)))
            .map(|(kind, name, _)| Entity {
                kind,
                name: Text::new(name),
            })
            .collect()
    }

    fn subject(&self, text: &str) -> Option<Subject> {
        let lower = text.to_lowercase();
        let has = |words: &[&str]| words.iter().any(|word| lower.contains(word));
        if has(&FATHER) {
            return Some(Subject::Father);
        }
        if has(&CHILD) {
            return Some(Subject::Child);
        }
        has(&MOTHER).then_some(Subject::Mother)
    }
}

pub(crate) fn owner(name: &str) -> (Owner, OwnerKey) {
    let owner: Owner = format!("h/{name}").parse().unwrap();
    let key = ids().owner(&owner);
    (owner, key)
}

/// A claim of an event of its own, said by the owner on 1 January 2025.
pub(crate) fn claim(kind: Kind, text: &str) -> Claim {
    static EVENTS: AtomicU32 = AtomicU32::new(0);
    let number = EVENTS.fetch_add(1, Ordering::SeqCst);
    let mut event = [0; 16];
    event[..4].copy_from_slice(&number.to_be_bytes());
    said(
        kind,
        text,
        EventTag::from_bytes(event),
        "2025-01-01T00:00:00Z",
    )
}

pub(crate) fn said(kind: Kind, text: &str, event: EventTag, when: &str) -> Claim {
    let when = at(when);
    Claim {
        subject: Subject::Self_,
        kind,
        text: Text::new(text),
        attribute: None,
        value: None,
        quantity: None,
        schedule: None,
        polarity: Polarity::Positive,
        intent: Intent::Assert,
        quote: None,
        entities: Reader.entities(text),
        valid_from: when,
        valid_to: None,
        importance: Attributes::shipped().kind(kind).importance,
        confidence: Permille::new(950),
        explicit: false,
        namespace: None,
        key: None,
        context_tags: Vec::new(),
        language: if text.is_ascii() { "en" } else { "zh" }.to_owned(),
        source: Source {
            event,
            source_tag: ids().source(OwnerKey::from_bytes([0; 16]), "test"),
            source: "test".to_owned(),
            event_id: "1".to_owned(),
            conversation_id: None,
            turn_id: None,
            message_id: None,
            role: Role::User,
            speaker: None,
            at: when,
            zone_minutes: 0,
            extractor: "rules".to_owned(),
            model: None,
            prompt_version: None,
        },
    }
}

/// The memory that the claim makes: active, seen once.
pub(crate) fn memory(claim: Claim) -> Memory {
    // A memory's id follows from event and text, so the same story has the same ids.
    let ordinal = anamnesis_domain::ids::Hash::of(claim.text.expose().as_bytes()).0;
    let ordinal = u32::from_le_bytes([ordinal[0], ordinal[1], ordinal[2], ordinal[3]]);
    Memory {
        id: ids().memory(claim.source.event, ordinal),
        version: 1,
        standing: Standing {
            status: Status::Active,
            valid_from: claim.valid_from,
            valid_to: claim.valid_to,
            superseded_by: None,
            conflict_with: None,
            confirms: None,
            rule: "first".to_owned(),
        },
        protected: Attributes::shipped().kind(claim.kind).protected,
        supersedes: Vec::new(),
        recorded_at: claim.source.at,
        last_verified_at: None,
        confirmations: 0,
        access_count: 0,
        last_accessed_at: None,
        review: None,
        claim,
    }
}

/// A version of the memory, recorded at `offset` of some owner.
pub(crate) fn version(memory: Memory, offset: u64) -> MemoryVersion {
    MemoryVersion {
        owner: OwnerKey::from_bytes([1; 16]),
        recorded_from: offset,
        recorded_to: None,
        recorded_at: memory.recorded_at,
        memory,
    }
}
