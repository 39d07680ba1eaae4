//! The codec over the keyring in memory: what its tests share.

mod refusing;
mod sealing;

use std::sync::Arc;

use anamnesis_domain::ids::{ErasureId, Hash, LogId, RecallId};
use anamnesis_domain::input::{
    AccessSummary, Candidate, Command, Consent, Target, Task, TaskStatus, Topic,
};
use anamnesis_domain::memory::{
    Claim, Intent, Kind, Permille, Polarity, Role, Source, Standing, Status,
};
use anamnesis_domain::owner::{Owner, Subject};
use anamnesis_domain::text::Text;
use anamnesis_domain::transition::{Decision, Note, Outcome, PartBody, Transition};
use anamnesis_schemas::{Envelope, PartHeader};
use bytes::Bytes;

use super::*;
use crate::doubles::keyring::MemoryKeyring;
use crate::log::{NewRecord, Record, partition_of};

fn codec() -> Codec {
    Codec::new(Arc::new(MemoryKeyring::new(7)))
}

fn owner() -> Owner {
    "hospital-7/patient/p-1".parse().unwrap()
}

fn at(minute: i64) -> Timestamp {
    Timestamp::from_millis(1_790_000_000_000 + minute * 60_000)
}

fn place(topic: Topic, offset: u64) -> Position {
    Position {
        topic,
        partition: 1,
        offset,
    }
}

/// As the log would return it.
fn logged(topic: Topic, offset: u64, record: &NewRecord) -> Record {
    Record {
        position: place(topic, offset),
        key: record.key,
        appended_at: at(9),
        payload: record.payload.clone(),
    }
}

async fn open_one(codec: &Codec, record: &Record) -> Result<Opened, CodecError> {
    codec
        .open(std::slice::from_ref(record))
        .await
        .unwrap()
        .remove(0)
}

fn turn(codec: &Codec, text: &str) -> Turn {
    let id_key = codec.keys().id_key();
    let key = id_key.owner(&owner());
    Turn {
        owner: owner(),
        event: id_key.event(key, "app", text, ""),
        source_tag: id_key.source(key, "app"),
        source: "app".into(),
        event_id: text.into(),
        message: String::new(),
        conversation_id: Some("c".into()),
        turn_id: None,
        message_id: None,
        role: Role::User,
        speaker: None,
        at: at(0),
        zone_minutes: 480,
        text: text.into(),
        context_tags: vec![],
        injected: vec![(0, 1)],
        structured: None,
    }
}

fn claim(turn: &Turn) -> Claim {
    Claim {
        subject: Subject::Self_,
        kind: Kind::Allergy,
        text: turn.text.clone(),
        attribute: Some("allergy".into()),
        value: Some("mango".into()),
        quantity: None,
        schedule: None,
        polarity: Polarity::Positive,
        intent: Intent::Assert,
        quote: Some(turn.text.clone()),
        entities: vec![],
        valid_from: at(0),
        valid_to: None,
        importance: Permille::ONE,
        confidence: Permille::new(950),
        explicit: false,
        namespace: None,
        key: None,
        context_tags: vec![],
        language: "zh".into(),
        source: Source {
            event: turn.event,
            source_tag: turn.source_tag,
            source: turn.source.clone(),
            event_id: turn.event_id.clone(),
            conversation_id: None,
            turn_id: None,
            message_id: None,
            role: turn.role,
            speaker: None,
            at: turn.at,
            zone_minutes: turn.zone_minutes,
            extractor: "rules".into(),
            model: None,
            prompt_version: None,
        },
    }
}

fn candidates(turn: &Turn) -> CandidateSet {
    CandidateSet {
        owner: turn.owner.clone(),
        event: turn.event,
        source_tag: turn.source_tag,
        content: turn.content_hash(),
        at: turn.at,
        candidates: vec![Candidate {
            ordinal: 0,
            claim: claim(turn),
            stability: Permille::new(900),
        }],
        rejects: vec![],
        extractor: "rules".into(),
        prompt_version: None,
        model_answer: None,
        failed: None,
        model_use: None,
    }
}

fn command(codec: &Codec, command: Command) -> CommandRecord {
    let turn = turn(codec, command.code());
    CommandRecord {
        owner: turn.owner,
        event: turn.event,
        source_tag: turn.source_tag,
        source: "api".into(),
        event_id: turn.event_id,
        actor: "dr-lin".into(),
        at: at(1),
        zone_minutes: 0,
        command,
    }
}

fn standing() -> Standing {
    Standing {
        status: Status::Active,
        valid_from: at(0),
        valid_to: None,
        superseded_by: None,
        conflict_with: None,
        confirms: None,
        rule: "new".into(),
    }
}

/// One of each transition that a decision may hold.
fn decision(codec: &Codec, turn: &Turn) -> Decision {
    let first = codec.keys().id_key().memory(turn.event, 0);
    let second = codec.keys().id_key().memory(turn.event, 1);
    let task = Task {
        id: "t".into(),
        goal: "book".into(),
        status: TaskStatus::Active,
        decision: None,
        confirmed_facts: vec![],
        constraints: vec![],
        open_questions: vec![],
        tool_error: None,
        pending_confirmations: vec![],
        expires_at: None,
        updated_at: at(0),
    };
    let consent = Consent {
        purposes: vec!["care".into()],
        kinds: None,
        max_sensitivity: 4,
        valid_from: at(0),
        valid_to: None,
    };
    Decision {
        outcome: Outcome::Stored,
        transitions: vec![
            Transition::Asserted {
                id: first,
                claim: Box::new(claim(turn)),
                standing: standing(),
            },
            Transition::Erased {
                erasure: ErasureId::from_bytes([5; 16]),
                target: Target::Message(turn.event),
                memory_ids: vec![second],
            },
            Transition::Moved {
                id: second,
                standing: standing(),
            },
            Transition::ConsentGranted { consent },
            Transition::TaskChanged {
                task: Box::new(task),
            },
            Transition::Accessed {
                access: AccessSummary {
                    memory_id: first,
                    count: 2,
                    last_at: at(0),
                },
            },
        ],
        notes: vec![Note {
            code: "new".into(),
            memory_id: Some(first),
            detail: Some("过敏".into()),
        }],
        content: Some(turn.content_hash()),
    }
}

fn draft(meta: &InputMeta) -> DecidedDraft {
    DecidedDraft {
        owner: meta.owner,
        owner_seq: 1,
        prev_hash: Hash::NONE,
        writer_epoch: 3,
        key_epoch: meta.key_epoch,
        cause: Cause {
            position: meta.position,
            event: meta.event,
            source_tag: meta.source_tag,
            origin: meta.origin,
        },
        source_key: Some(meta.key_id),
        decided_at: at(2),
        owner_words: owner().to_string(),
    }
}

/// A turn in the log, with what its header says.
async fn told(codec: &Codec, text: &str) -> (Turn, Record, InputMeta) {
    let turn = turn(codec, text);
    let sealed = codec
        .seal_turns(std::slice::from_ref(&turn), 12, None)
        .await
        .unwrap();
    let record = logged(Topic::Conversation, 4, &sealed[0]);
    match open_one(codec, &record).await.unwrap() {
        Opened::Turn { meta, turn: opened } if *opened == turn => (turn, record, meta),
        other => panic!("{other:?}"),
    }
}

async fn decided(codec: &Codec, text: &str) -> (Decision, Record, Hash) {
    let (turn, _, meta) = told(codec, text).await;
    let (draft, decision) = (draft(&meta), decision(codec, &turn));
    let keys = codec.prepare_decided(&[(&draft, &decision)]).await.unwrap();
    let (record, hash) = codec.seal_decided(&draft, &decision, &keys[0]).unwrap();
    (decision, logged(Topic::Memories, 8, &record), hash)
}

async fn opened_decided(codec: &Codec, record: &Record) -> OpenedDecided {
    match open_one(codec, record).await.unwrap() {
        Opened::Decided(decided) => *decided,
        other => panic!("{other:?}"),
    }
}

async fn erase(codec: &Codec, target: Target) {
    let key = codec.keys().id_key().owner(&owner());
    codec
        .keys()
        .destroy(key, &target, ErasureId::from_bytes([9; 16]))
        .await
        .unwrap();
}
