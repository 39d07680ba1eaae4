//! One value of everything that the contract can say, for the golden files and the round trips.

use std::collections::BTreeMap;

use anamnesis_domain::ids::{
    ErasureId, EventTag, Hash, KeyId, LogId, MemoryId, OwnerKey, RecallId, SourceTag,
};
use anamnesis_domain::input::{
    AccessSummary, Candidate, CandidateSet, Cause, Command, CommandRecord, Consent, Held, ModelUse,
    Position, Reject, RejectCode, Stance, StructuredClaim, Target, Task, TaskStatus, Topic, Turn,
    Verdict,
};
use anamnesis_domain::memory::{
    Claim, Entity, EntityKind, Intent, Kind, Permille, Polarity, Quantity, Role, Source, Standing,
    Status,
};
use anamnesis_domain::owner::Subject;
use anamnesis_domain::receipt::{
    ErasureReceipt, InboxRead, InboxRejected, Parked, RecallReceipt, Unparked,
};
use anamnesis_domain::text::Text;
use anamnesis_domain::time::Timestamp;
use anamnesis_domain::transition::{Detail, Mark, Note, Outcome, Review, Transition};

use crate::body::Body;
use crate::envelope::{Envelope, Part, PartHeader};
use crate::header::{
    AccessHeader, DecidedHeader, EmbeddingHeader, Header, IdentityHeader, InputHeader,
    WriterStartedHeader,
};
use crate::registry::{Fingerprint, Record};

pub(crate) const EVENT: EventTag = EventTag::from_bytes([0xe1; 16]);
pub(crate) const SOURCE: SourceTag = SourceTag::from_bytes([0x51; 16]);
const OWNER: OwnerKey = OwnerKey::from_bytes([0x0a; 16]);
const ERASURE: ErasureId = ErasureId::from_bytes([0xe5; 16]);
const KEY: KeyId = KeyId::from_bytes([0x4b; 16]);
pub(crate) const RECALL: RecallId = RecallId::from_bytes([0x4c; 16]);

fn memory(n: u8) -> MemoryId {
    MemoryId::from_bytes([n; 16])
}

fn at(minute: i64) -> Timestamp {
    Timestamp::from_millis(1_790_000_000_000 + minute * 60_000)
}

fn place(topic: Topic, offset: u64) -> Position {
    Position {
        topic,
        partition: 3,
        offset,
    }
}

/// Every optional field set.
pub(crate) fn full_claim() -> Claim {
    Claim {
        subject: Subject::Other("邻居".into()),
        kind: Kind::Medication,
        text: "二甲双胍 0.5 g 每日两次".into(),
        attribute: Some("medication_dose".into()),
        value: Some("metformin".into()),
        quantity: Some(Quantity {
            micros: 500_000_000,
            unit: "mg".into(),
        }),
        schedule: Some("twice_daily".into()),
        polarity: Polarity::Positive,
        intent: Intent::Correct,
        quote: Some("我现在吃二甲双胍".into()),
        entities: vec![
            Entity {
                kind: EntityKind::Drug,
                name: "metformin".into(),
            },
            Entity {
                kind: EntityKind::Disease,
                name: "diabetes".into(),
            },
        ],
        valid_from: at(0),
        valid_to: Some(at(600)),
        importance: Permille::new(900),
        confidence: Permille::new(950),
        explicit: true,
        namespace: Some("profile".into()),
        key: Some("dose".into()),
        context_tags: vec!["clinic".into(), "门诊".into()],
        language: "zh".into(),
        source: Source {
            event: EVENT,
            source_tag: SOURCE,
            source: "miniprogram".into(),
            event_id: "ev-1".into(),
            conversation_id: Some("c-1".into()),
            turn_id: Some("t-1".into()),
            message_id: Some("msg-1".into()),
            role: Role::User,
            speaker: Some("p-1029".into()),
            at: at(0),
            zone_minutes: 480,
            extractor: "model".into(),
            model: Some("some-model".into()),
            prompt_version: Some("3".into()),
        },
    }
}

/// No optional field set.
pub(crate) fn plain_claim() -> Claim {
    Claim {
        subject: Subject::Self_,
        kind: Kind::Allergy,
        text: "allergic to peanuts".into(),
        attribute: None,
        value: None,
        quantity: None,
        schedule: None,
        polarity: Polarity::Negative,
        intent: Intent::Assert,
        quote: None,
        entities: Vec::new(),
        valid_from: Timestamp::from_millis(-1),
        valid_to: None,
        importance: Permille::ZERO,
        confidence: Permille::ONE,
        explicit: false,
        namespace: None,
        key: None,
        context_tags: Vec::new(),
        language: "en".into(),
        source: Source {
            event: EVENT,
            source_tag: SOURCE,
            source: "ehr".into(),
            event_id: "ev-2".into(),
            conversation_id: None,
            turn_id: None,
            message_id: None,
            role: Role::Record,
            speaker: None,
            at: at(1),
            zone_minutes: -300,
            extractor: "rules".into(),
            model: None,
            prompt_version: None,
        },
    }
}

pub(crate) fn turns() -> Vec<Turn> {
    let full = Turn {
        owner: "hospital-7/patient/p-1029".parse().unwrap(),
        event: EVENT,
        source_tag: SOURCE,
        source: "miniprogram".into(),
        event_id: "ev-1".into(),
        message: "0".into(),
        conversation_id: Some("c-1".into()),
        turn_id: Some("t-1".into()),
        message_id: Some("msg-1".into()),
        role: Role::User,
        speaker: Some("p-1029".into()),
        at: at(0),
        zone_minutes: 480,
        text: "我对花生过敏，请记住。".into(),
        context_tags: vec!["clinic".into()],
        injected: vec![(0, 2), (4, 9)],
        structured: Some(StructuredClaim {
            kind: Kind::Allergy,
            code: "91935009".into(),
            attribute: Some("allergy".into()),
            ends: false,
            valid_from: Some(at(-5)),
            valid_to: Some(at(5)),
            stance: Stance::Unconfirmed,
            names: vec!["花生".into(), "peanut".into()],
            dose: Some("500 mg twice daily".into()),
            held: Some(Held {
                from: at(-9),
                text: "曾对花生过敏。".into(),
            }),
        }),
    };
    let plain = Turn {
        message: String::new(),
        conversation_id: None,
        turn_id: None,
        message_id: None,
        role: Role::Assistant,
        speaker: None,
        zone_minutes: 0,
        text: "Noted: no peanuts.".into(),
        context_tags: Vec::new(),
        injected: Vec::new(),
        structured: None,
        ..full.clone()
    };
    vec![full, plain]
}

pub(crate) fn candidate_sets() -> Vec<CandidateSet> {
    let full = CandidateSet {
        owner: "hospital-7/patient/p-1029".parse().unwrap(),
        event: EVENT,
        source_tag: SOURCE,
        content: Hash([7; 32]),
        at: at(0),
        candidates: vec![
            Candidate {
                ordinal: 0,
                claim: full_claim(),
                stability: Permille::new(800),
            },
            Candidate {
                ordinal: 2,
                claim: plain_claim(),
                stability: Permille::ONE,
            },
        ],
        rejects: vec![
            Reject {
                code: RejectCode::Hypothetical,
                text: Some("if I were allergic".into()),
            },
            Reject {
                code: RejectCode::Echo,
                text: None,
            },
        ],
        extractor: "some-model".into(),
        prompt_version: Some("3".into()),
        model_answer: Some("{\"claims\":[]}".into()),
        failed: None,
        model_use: Some(ModelUse {
            calls: 2,
            prompt_tokens: 1_100,
            completion_tokens: u32::MAX,
            fallback: None,
        }),
    };
    let fallen_back = CandidateSet {
        model_answer: None,
        model_use: Some(ModelUse {
            calls: 4,
            prompt_tokens: 0,
            completion_tokens: 0,
            fallback: Some("timeout".into()),
        }),
        ..full.clone()
    };
    let failed = CandidateSet {
        candidates: Vec::new(),
        rejects: Vec::new(),
        extractor: "rules".into(),
        prompt_version: None,
        model_answer: None,
        failed: Some("model_unavailable".into()),
        model_use: None,
        ..full.clone()
    };
    vec![full, failed, fallen_back]
}

fn consent() -> Consent {
    Consent {
        purposes: vec!["care".into(), "研究".into()],
        kinds: Some(vec![Kind::Allergy, Kind::Episode]),
        max_sensitivity: 3,
        valid_from: at(0),
        valid_to: Some(at(100)),
    }
}

fn task() -> Task {
    Task {
        id: "task-9".into(),
        goal: "book a cardiology appointment".into(),
        status: TaskStatus::BlockedByToolError,
        decision: Some("周三上午".into()),
        confirmed_facts: vec!["order 20260301-7".into()],
        constraints: vec!["not before 9:00".into()],
        open_questions: vec!["which doctor?".into(), "哪个院区？".into()],
        tool_error: Some("timeout".into()),
        pending_confirmations: vec!["cancel the old one".into()],
        expires_at: Some(at(60)),
        updated_at: at(2),
    }
}

fn accesses() -> Vec<AccessSummary> {
    vec![
        AccessSummary {
            memory_id: memory(1),
            count: 3,
            last_at: at(1),
        },
        AccessSummary {
            memory_id: memory(2),
            count: u32::MAX,
            last_at: at(2),
        },
    ]
}

fn targets() -> [Target; 4] {
    [
        Target::Memories(vec![memory(1), memory(2)]),
        Target::Message(EVENT),
        Target::Source(SOURCE),
        Target::Owner,
    ]
}

pub(crate) fn commands() -> Vec<CommandRecord> {
    let reason = || Text::from("患者要求");
    let mut commands = vec![
        Command::Remember {
            claim: Box::new(full_claim()),
        },
        Command::Correct {
            memory_id: memory(1),
            claim: Some(Box::new(plain_claim())),
            ended_at: None,
            expected_version: Some(4),
            reason: reason(),
        },
        Command::Correct {
            memory_id: memory(1),
            claim: None,
            ended_at: Some(at(3)),
            expected_version: None,
            reason: reason(),
        },
        Command::Retire {
            memory_id: memory(1),
            expected_version: Some(4),
            reason: reason(),
        },
        Command::Archive {
            memories: vec![(memory(1), 4), (memory(2), 9)],
            reason: "capacity".into(),
        },
        Command::Restore {
            memory_ids: vec![memory(1)],
        },
        Command::Unrestrict {
            target: Target::Owner,
        },
        Command::Grant { consent: consent() },
        Command::Withdraw {
            kinds: Some(vec![Kind::Condition]),
            from: at(4),
        },
        Command::Withdraw {
            kinds: None,
            from: at(4),
        },
        Command::Review {
            memory_id: memory(1),
            verdict: Verdict::KeepBoth,
            expected_version: Some(4),
            reason: reason(),
        },
        Command::Task {
            task: Box::new(task()),
        },
        Command::Summarise {
            accesses: accesses(),
        },
        Command::Admit {
            event: EVENT,
            index: 3,
            claim: Box::new(plain_claim()),
            reason: reason(),
        },
    ];
    for target in targets() {
        commands.push(Command::Restrict {
            target: target.clone(),
            reason: reason(),
        });
        commands.push(Command::Erase {
            erasure: ERASURE,
            target,
            reason: reason(),
        });
    }
    let record = |command| CommandRecord {
        owner: "hospital-7/patient/p-1029".parse().unwrap(),
        event: EVENT,
        source_tag: SOURCE,
        source: "api".into(),
        event_id: "cmd-1".into(),
        actor: "dr-lin".into(),
        at: at(0),
        zone_minutes: 480,
        command,
    };
    commands.into_iter().map(record).collect()
}

pub(crate) fn transitions() -> Vec<Transition> {
    let standing = Standing {
        status: Status::Conflicted,
        valid_from: at(0),
        valid_to: Some(at(9)),
        superseded_by: Some(memory(2)),
        conflict_with: Some(memory(3)),
        confirms: Some(memory(4)),
        rule: "tenfold".into(),
    };
    let mut transitions = vec![
        Transition::Asserted {
            id: memory(1),
            claim: Box::new(full_claim()),
            standing: standing.clone(),
        },
        Transition::Moved {
            id: memory(1),
            standing,
        },
        Transition::ConsentGranted { consent: consent() },
        Transition::ConsentWithdrawn {
            kinds: Some(vec![Kind::Condition]),
            from: at(4),
        },
        Transition::ConsentWithdrawn {
            kinds: None,
            from: at(4),
        },
        Transition::TaskChanged {
            task: Box::new(task()),
        },
    ];
    for status in Status::ALL {
        let standing = Standing {
            status: *status,
            valid_from: at(0),
            valid_to: None,
            superseded_by: None,
            conflict_with: None,
            confirms: None,
            rule: "update".into(),
        };
        transitions.push(Transition::Moved {
            id: memory(1),
            standing,
        });
    }
    for mark in [
        Mark::Ended { at: at(3) },
        Mark::Retired,
        Mark::Archived,
        Mark::Restored,
        Mark::Restricted,
        Mark::Unrestricted,
        Mark::Reviewed(Box::new(Review {
            verdict: Verdict::TakeNew,
            actor: Some("dr-lin".into()),
            at: Some(at(4)),
            reason: Some("读错了小数点".into()),
        })),
        Mark::Reviewed(Box::new(Review {
            verdict: Verdict::Reopen,
            actor: None,
            at: None,
            reason: None,
        })),
        Mark::Corrected { by: memory(7) },
    ] {
        transitions.push(Transition::Marked {
            id: memory(1),
            mark,
        });
    }
    for target in targets() {
        let memory_ids = vec![memory(1), memory(2)];
        transitions.push(Transition::Erased {
            erasure: ERASURE,
            target,
            memory_ids,
        });
    }
    for access in accesses() {
        transitions.push(Transition::Accessed { access });
    }
    transitions
}

pub(crate) fn details() -> Vec<Detail> {
    vec![
        Detail {
            owner: "hospital-7/patient/p-1029".into(),
            content: Some(Hash([9; 32])),
            notes: vec![
                Note {
                    code: "update".into(),
                    memory_id: Some(memory(1)),
                    detail: Some("5 mg → 10 mg".into()),
                },
                Note {
                    code: "coexist".into(),
                    memory_id: None,
                    detail: None,
                },
            ],
        },
        Detail {
            owner: "h/patient/p".into(),
            content: None,
            notes: Vec::new(),
        },
    ]
}

pub(crate) fn vectors() -> Vec<Vec<f32>> {
    vec![vec![0.5, -0.25, 1.0, f32::MIN_POSITIVE], Vec::new()]
}

pub(crate) fn receipts() -> Vec<RecallReceipt> {
    let full = RecallReceipt {
        recall_id: RECALL,
        owner: "hospital-7/patient/p-1029".parse().unwrap(),
        at: at(0),
        caller: "assistant-1".into(),
        purpose: Some("care".into()),
        request: "{\"query\":\"过敏史\"}".into(),
        answer: "{\"memories\":[]}".into(),
        returned: vec![memory(1), memory(2)],
    };
    let plain = RecallReceipt {
        purpose: None,
        returned: Vec::new(),
        ..full.clone()
    };
    vec![full, plain]
}

pub(crate) fn headers() -> Vec<Header> {
    let input = InputHeader {
        kind: "turn".into(),
        owner: OWNER,
        event: EVENT,
        source_tag: SOURCE,
        key_id: KEY,
        key_epoch: 1,
        consent_version: 12,
        origin: None,
        failed: None,
    };
    let cause = Cause {
        position: place(Topic::Candidates, 41),
        event: EVENT,
        source_tag: SOURCE,
        origin: place(Topic::Conversation, 40),
    };
    let decided = DecidedHeader {
        owner: OWNER,
        owner_seq: 1,
        prev_hash: Hash::NONE,
        writer_epoch: 5,
        key_epoch: 1,
        cause,
        source_key: Some(KEY),
        decided_at: at(1),
        outcome: Outcome::Stored,
        origin: None,
    };
    vec![
        Header::Identity(IdentityHeader {
            log_id: LogId::from_bytes([0x10; 16]),
            created_at: at(0),
            partitions: 4,
            topic: Topic::Memories,
        }),
        Header::Input(input.clone()),
        Header::Input(InputHeader {
            kind: "candidates".into(),
            key_epoch: u32::MAX,
            consent_version: 0,
            origin: Some(place(Topic::Conversation, 40)),
            failed: Some("erased".into()),
            ..input
        }),
        Header::Decided(decided.clone()),
        Header::Decided(DecidedHeader {
            owner_seq: 2,
            prev_hash: Hash([3; 32]),
            source_key: None,
            outcome: Outcome::Rejected("erased".into()),
            origin: Some(OwnerKey::from_bytes([0x0b; 16])),
            ..decided
        }),
        Header::WriterStarted(WriterStartedHeader {
            writer: [0x33; 16],
            at: at(0),
        }),
        Header::Parked(Parked {
            stage: "extractor".into(),
            owner: OWNER,
            first: place(Topic::Conversation, 7),
            reason: "undecodable".into(),
            at: at(1),
            writer_epoch: Some(7),
        }),
        Header::Unparked(Unparked {
            stage: "extractor".into(),
            owner: OWNER,
            at: at(2),
            writer_epoch: None,
        }),
        Header::Embedding(EmbeddingHeader {
            owner: OWNER,
            memory_id: memory(1),
            key_id: KEY,
            key_epoch: 1,
            model: "hash-1".into(),
            dimension: 512,
        }),
        Header::Access(AccessHeader {
            owner: OWNER,
            recall_id: RECALL,
            key_id: KEY,
            key_epoch: 1,
        }),
        Header::ErasureReceipt(ErasureReceipt {
            erasure: ERASURE,
            owner: OWNER,
            place: "keyring".into(),
            stage: "effective".into(),
            count: 12,
            at: at(3),
        }),
        Header::InboxRead(InboxRead {
            partition: 3,
            from: 1,
            next: 501,
            read: 499,
            accepted: 497,
            rejected_count: 3,
            rejected: vec![
                InboxRejected {
                    offset: 7,
                    code: "invalid_json".into(),
                },
                InboxRejected {
                    offset: 300,
                    code: "tenant_not_covered".into(),
                },
            ],
            at: at(4),
        }),
        Header::InboxRead(InboxRead {
            partition: 0,
            from: 501,
            next: 502,
            read: 0,
            accepted: 0,
            rejected_count: 0,
            rejected: Vec::new(),
            at: at(5),
        }),
    ]
}

pub(crate) fn part_headers() -> Vec<PartHeader> {
    let full = PartHeader {
        code: "memory_asserted".into(),
        memory_id: Some(memory(1)),
        key_id: Some(KEY),
        body_schema: Fingerprint::from_bytes([1, 2, 3, 4, 5, 6, 7, 8]),
        nonce: [0x77; 24],
    };
    let clear = PartHeader {
        memory_id: None,
        key_id: None,
        nonce: [0; 24],
        ..full.clone()
    };
    vec![full, clear]
}

fn envelopes() -> Vec<Envelope> {
    let part = |header: &PartHeader| Part {
        header: header.encode().unwrap(),
        body: vec![1, 2, 3],
    };
    let header = |header: &Header| header.encode().unwrap();
    vec![
        Envelope {
            header: header(&headers()[3]),
            parts: part_headers().iter().map(part).collect(),
        },
        Envelope {
            header: header(&headers()[5]),
            parts: Vec::new(),
        },
    ]
}

/// Every sample as a single-object encoding of the newest version.
pub(crate) fn objects() -> BTreeMap<Record, Vec<Vec<u8>>> {
    fn object(body: Body) -> Vec<u8> {
        [&[0xC3, 0x01], body.schema.bytes().as_slice(), &body.datum].concat()
    }
    fn bodies<T>(
        values: &[T],
        encode: impl Fn(&T) -> Result<Body, crate::WireError>,
    ) -> Vec<Vec<u8>> {
        values
            .iter()
            .map(|value| object(encode(value).unwrap()))
            .collect()
    }
    let mut objects: BTreeMap<Record, Vec<Vec<u8>>> = BTreeMap::from([
        (
            Record::Envelope,
            envelopes().iter().map(|e| e.encode().unwrap()).collect(),
        ),
        (
            Record::PartHeader,
            part_headers().iter().map(|h| h.encode().unwrap()).collect(),
        ),
        (Record::TurnBody, bodies(&turns(), Body::of_turn)),
        (
            Record::CandidatesBody,
            bodies(&candidate_sets(), Body::of_candidates),
        ),
        (Record::CommandBody, bodies(&commands(), Body::of_command)),
        (
            Record::TransitionBody,
            bodies(&transitions(), Body::of_transition),
        ),
        (Record::DetailBody, bodies(&details(), Body::of_detail)),
        (
            Record::VectorBody,
            bodies(&vectors(), |vector| Body::of_vector(vector)),
        ),
        (Record::ReceiptBody, bodies(&receipts(), Body::of_receipt)),
    ]);
    for header in headers() {
        let record = match header {
            Header::Identity(_) => Record::IdentityHeader,
            Header::Input(_) => Record::InputHeader,
            Header::Decided(_) => Record::DecidedHeader,
            Header::WriterStarted(_) => Record::WriterStartedHeader,
            Header::Parked(_) => Record::ParkedHeader,
            Header::Unparked(_) => Record::UnparkedHeader,
            Header::Embedding(_) => Record::EmbeddingHeader,
            Header::Access(_) => Record::AccessHeader,
            Header::ErasureReceipt(_) => Record::ErasureReceiptHeader,
            Header::InboxRead(_) => Record::InboxReadHeader,
        };
        objects
            .entry(record)
            .or_default()
            .push(header.encode().unwrap());
    }
    objects
}
