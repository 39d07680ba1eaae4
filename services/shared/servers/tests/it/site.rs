//! A place to read `inbox` into: intake over any log, with keys and records in memory, and schemas of
//! platforms with their data.

use std::sync::Arc;

use anamnesis_domain::ids::LogId;
use anamnesis_domain::input::{Topic, Turn};
use anamnesis_domain::memory::Claim;
use anamnesis_domain::receipt::InboxRead;
use anamnesis_intake::inbox::{InboxConfig, InboxReader};
use anamnesis_intake::service::{Intake, Settings, StatementReader};
use anamnesis_pipeline::clock::SystemClock;
use anamnesis_pipeline::codec::{Codec, Opened};
use anamnesis_pipeline::doubles::keyring::MemoryKeyring;
use anamnesis_pipeline::doubles::records::MemoryRecords;
use anamnesis_pipeline::inbox::{Inbox, SchemaSource};
use anamnesis_pipeline::log::Log;
use serde_json::{Value, json};

struct NothingRead;

impl StatementReader for NothingRead {
    fn read(&self, _turn: &Turn) -> Vec<Claim> {
        Vec::new()
    }
}

pub(crate) fn intake(log: Log) -> Arc<Intake> {
    let records = MemoryRecords::new(LogId::from_bytes([9; 16]), log.partitions());
    Arc::new(Intake {
        codec: Codec::new(Arc::new(MemoryKeyring::new(3))),
        records: Arc::new(records),
        clock: Arc::new(SystemClock),
        reader: Arc::new(NothingRead),
        settings: Settings {
            consent_required: false,
            ..Settings::default()
        },
        log,
    })
}

/// A reader for the tenant `h`.
pub(crate) fn reader(
    inbox: Arc<dyn Inbox>,
    intake: &Arc<Intake>,
    registry: Option<Arc<dyn SchemaSource>>,
) -> Arc<InboxReader> {
    let config: InboxConfig = serde_json::from_value(json!({"tenants": ["h"]})).unwrap();
    let caller = config.caller().unwrap();
    let reader = InboxReader::new(inbox, intake.clone(), caller);
    Arc::new(match registry {
        Some(registry) => reader.with_registry(registry),
        None => reader,
    })
}

async fn opened(intake: &Intake, topic: Topic, partition: u32) -> Vec<Opened> {
    let mut all = Vec::new();
    let mut next = 1;
    loop {
        let read = intake.log.read(topic, partition, next, 2_000, 8 << 20);
        let records = read.await.unwrap();
        let Some(last) = records.last() else {
            return all;
        };
        next = last.position.offset + 1;
        let opened = intake.codec.open(&records).await.unwrap();
        all.extend(opened.into_iter().map(Result::unwrap));
    }
}

/// Owner and text of everything that was let in, sorted.
pub(crate) async fn texts(intake: &Intake) -> Vec<String> {
    let mut texts = Vec::new();
    for partition in 0..intake.log.partitions() {
        for opened in opened(intake, Topic::Conversation, partition).await {
            if let Opened::Turn { turn, .. } = opened {
                texts.push(format!("{} {}", turn.owner, turn.text.expose()));
            }
        }
    }
    texts.sort();
    texts
}

/// The numbers that events are called by, in no order.
pub(crate) async fn ids(intake: &Intake) -> Vec<u64> {
    let mut ids = Vec::new();
    for partition in 0..intake.log.partitions() {
        for opened in opened(intake, Topic::Conversation, partition).await {
            if let Opened::Turn { turn, .. } = opened {
                ids.push(turn.event_id.parse().unwrap());
            }
        }
    }
    ids
}

/// What was written about one partition of `inbox`.
pub(crate) async fn receipts(intake: &Intake, partition: u32) -> Vec<InboxRead> {
    let at = partition % intake.log.partitions();
    let mut receipts = Vec::new();
    for opened in opened(intake, Topic::Receipts, at).await {
        if let Opened::InboxRead(read) = opened
            && read.partition == partition
        {
            receipts.push(read);
        }
    }
    receipts
}

/// Offset and code of what was turned down.
pub(crate) async fn rejected(intake: &Intake, partition: u32) -> Vec<(u64, String)> {
    let receipts = receipts(intake, partition).await;
    let all = receipts.into_iter().flat_map(|read| read.rejected);
    all.map(|one| (one.offset, one.code)).collect()
}

pub(crate) fn plain(owner: &str, id: &str, text: &str) -> Value {
    json!({"event_id": id, "owner": owner, "role": "user", "at": "2025-05-01T10:00:00+08:00", "text": text})
}

/// A schema that no other test has registered, with the fields of the plain shape.
pub(crate) fn schema() -> String {
    let mut random = [0; 8];
    getrandom::fill(&mut random).unwrap();
    let name = format!("Turn{:016x}", u64::from_le_bytes(random));
    json!({"type": "record", "name": name, "namespace": "his", "fields": [
        {"name": "event_id", "type": "string"}, {"name": "owner", "type": "string"},
        {"name": "role", "type": "string"}, {"name": "at", "type": "string"},
        {"name": "text", "type": "string"},
    ]})
    .to_string()
}

/// A record of [`schema`] in Confluent's frame.
pub(crate) fn framed(id: u32, event: &Value) -> Vec<u8> {
    let mut bytes = vec![0];
    bytes.extend_from_slice(&id.to_be_bytes());
    for field in ["event_id", "owner", "role", "at", "text"] {
        let text = event[field].as_str().unwrap();
        // A length is a zigzag number in groups of seven bits.
        let mut rest = text.len() << 1;
        while rest >= 0x80 {
            bytes.push(rest as u8 | 0x80);
            rest >>= 7;
        }
        bytes.push(rest as u8);
        bytes.extend_from_slice(text.as_bytes());
    }
    bytes
}
