//! What gets in through Kafka, what is turned down, and where a reader goes on after anything.

mod position;
mod refusing;

use anamnesis_domain::input::Turn;
use anamnesis_pipeline::codec::identity_payload;
use anamnesis_pipeline::doubles::inbox::{MemoryInbox, MemorySchemas, Produced};
use anamnesis_pipeline::log::{EventLog as _, PAYLOAD_BYTES_MAX};
use serde_json::{Value, json};

use super::*;
use crate::world::World;

/// A site, and a topic of three partitions, each with the log's identity record.
struct Site {
    world: Arc<World>,
    inbox: Arc<MemoryInbox>,
    schemas: Arc<MemorySchemas>,
}

impl Site {
    async fn new() -> Self {
        Self::of(World::new(false)).await
    }

    async fn of(world: Arc<World>) -> Self {
        let inbox = Arc::new(MemoryInbox::new(world.clock.clone(), 3));
        let identity = world.log.identity(Topic::Receipts, 0).await.unwrap();
        for partition in 0..3 {
            let payload = identity_payload(&identity, Topic::Inbox);
            inbox.put(partition, Produced::of(payload));
        }
        Self {
            world,
            inbox,
            schemas: Arc::default(),
        }
    }

    fn reader(&self) -> Arc<InboxReader> {
        self.reader_of(self.world.intake.clone(), BATCH_RECORDS_MAX)
    }

    fn reader_of(&self, intake: Arc<Intake>, batch: usize) -> Arc<InboxReader> {
        let config: InboxConfig =
            serde_json::from_value(json!({"tenants": ["h", "h2"], "tenant": "h"})).unwrap();
        let caller = config.caller().unwrap();
        let reader = InboxReader::new(self.inbox.clone(), intake, caller);
        Arc::new(reader.with_registry(self.schemas.clone()).with_batch(batch))
    }

    fn put(&self, produced: Produced) -> u64 {
        self.inbox.put(0, produced)
    }

    /// Reads everything with a reader that has just started.
    async fn read(&self) -> Reading {
        let mut reading = self.reader().reading(0);
        settle(&mut reading).await.unwrap();
        reading
    }

    /// What was said, in order per owner.
    async fn turns(&self) -> Vec<Turn> {
        let turns = self.world.turns(Topic::Conversation).await;
        turns.into_iter().map(|(_, turn)| turn).collect()
    }

    async fn texts(&self) -> Vec<String> {
        let mut texts: Vec<String> = self
            .turns()
            .await
            .into_iter()
            .map(|turn| format!("{} {}", turn.owner, turn.text.expose()))
            .collect();
        texts.sort();
        texts
    }

    async fn receipts(&self) -> Vec<InboxRead> {
        receipts(&self.world, 0).await
    }

    /// Offset and code of everything that was turned down.
    async fn rejected(&self) -> Vec<(u64, String)> {
        let receipts = self.receipts().await;
        let all = receipts.into_iter().flat_map(|read| read.rejected);
        all.map(|rejected| (rejected.offset, rejected.code))
            .collect()
    }
}

async fn receipts(world: &World, partition: u32) -> Vec<InboxRead> {
    let records = world
        .log
        .read(Topic::Receipts, partition, 1, 10_000, 1 << 24)
        .await
        .unwrap();
    let opened = world.intake.codec.open(&records).await.unwrap();
    let reads = opened.into_iter().map(|opened| {
        let opened = opened.unwrap();
        let Opened::InboxRead(read) = opened else {
            panic!("{opened:?}");
        };
        read
    });
    reads.collect()
}

async fn settle(reading: &mut Reading) -> Result<(), InboxError> {
    while reading.turn().await? != Progress::Idle {}
    Ok(())
}

fn plain(owner: &str, id: &str, text: &str) -> Value {
    json!({"event_id": id, "owner": owner, "role": "user", "at": "2025-05-01T10:00:00+08:00", "text": text})
}

fn cloud(owner: &str, id: &str, text: &str) -> Value {
    json!({"specversion": "1.0", "id": id, "source": "/triage", "type": "turn", "subject": owner,
        "time": "2025-05-01T02:00:00Z", "data": {"role": "user", "text": text}})
}

fn of(value: &Value) -> Produced {
    Produced::of(value.to_string())
}

fn binary(owner: &str, id: &str, data: impl Into<bytes::Bytes>) -> Produced {
    Produced::of(data)
        .with("ce_specversion", "1.0")
        .with("ce_id", id)
        .with("ce_source", "/triage")
        .with("ce_type", "turn")
        .with("ce_time", "2025-05-01T02:00:00Z")
        .with("ce_subject", owner)
}

#[tokio::test]
async fn every_kind_of_record_gets_in() {
    let site = Site::new().await;
    site.put(of(&cloud("h/a", "1", "我对芒果过敏")));
    site.put(of(&cloud("h/a", "2", "I take warfarin")).with(
        "Content-Type",
        "application/CloudEvents+json; charset=UTF-8",
    ));
    // A structured event may repeat its attributes as headers.
    site.put(
        of(&cloud("h/a", "3", "structured"))
            .with("content-type", "application/cloudevents+json")
            .with("ce_subject", "h/somebody"),
    );
    let list = json!([cloud("h/b", "4", "一"), cloud("h/b", "5", "二")]);
    site.put(of(&list).with("content-type", "application/cloudevents-batch+json"));
    let data = json!({"role": "user", "text": "binär 二进制"}).to_string();
    site.put(binary("h/c", "6", data.clone()).with("content-type", "application/json"));
    site.put(
        Produced::of(data)
            .with_key("h/d")
            .with("CE_SpecVersion", "1.0")
            .with("Ce_Id", "7")
            .with("CE_SOURCE", "/triage")
            .with("ce_Type", "turn")
            .with("ce_time", "2025-05-01T02:00:00Z")
            .with("traceparent", "00-1-2-3"),
    );
    site.put(of(&plain("e", "8", "plain")));
    site.put(of(&json!([plain("h2/f", "9", "list")])));
    site.put(Produced::of(format!(
        "\u{feff} {}",
        plain("h/g", "10", "mark")
    )));
    let chat = json!({"id": "c1", "object": "chat.completion", "created": 1_746_000_000, "user": "h/i",
        "messages": [{"role": "user", "content": "早上头晕"}],
        "choices": [{"index": 0, "message": {"role": "assistant", "content": "多久了？"}}]});
    site.put(of(&chat));
    let reading = site.read().await;
    assert_eq!(site.rejected().await, []);
    let expected = [
        "h/patient/a I take warfarin",
        "h/patient/a structured",
        "h/patient/a 我对芒果过敏",
        "h/patient/b 一",
        "h/patient/b 二",
        "h/patient/c binär 二进制",
        "h/patient/d binär 二进制",
        "h/patient/e plain",
        "h/patient/g mark",
        "h/patient/i 多久了？",
        "h/patient/i 早上头晕",
        "h2/patient/f list",
    ];
    assert_eq!(site.texts().await, expected);
    let read = &site.receipts().await[0];
    assert_eq!((read.from, read.next, read.read), (1, 11, 10));
    assert_eq!((read.accepted, read.rejected_count), (12, 0));
    assert_eq!(reading.position(), Some(11));
    assert_eq!(site.inbox.end(0).await.unwrap(), 11);
}

#[tokio::test]
async fn what_cannot_be_read_is_told_by_code_and_the_others_go_on() {
    let site = Site::new().await;
    let good = |n: u32| of(&plain("h/p", &format!("good {n}"), &format!("good {n}")));
    let mut wrong_type = plain("h/p", "w", "x");
    wrong_type["text"] = json!(7);
    let mut unknown_field = plain("h/p", "u", "x");
    unknown_field["name"] = json!("李");
    let mut nobodys = cloud("", "n", "x");
    nobodys.as_object_mut().unwrap().shift_remove("subject");
    let long = "x".repeat(2 << 20);
    let noise: Vec<u8> = (0..2 << 20).map(|n| (n % 251) as u8 | 0x80).collect();
    let unreadable = Produced {
        headers: vec![(
            "ce_subject".to_owned(),
            Some(bytes::Bytes::from_static(&[0xff])),
        )],
        ..binary("h/p", "v", "{}")
    };
    let deep = format!("{}{}", "[".repeat(200), "]".repeat(200));
    let many: Vec<Value> = (0..1_001)
        .map(|n| plain("h/p", &format!("m{n}"), "x"))
        .collect();
    let cases: Vec<(Produced, &str)> = vec![
        (Produced::default(), "empty_record"),
        (Produced::of(""), "empty_record"),
        (Produced::of("[]"), "empty_record"),
        (Produced::of("{\"owner\": \"h/p\", "), "invalid_json"),
        (Produced::of("\u{1}\u{2} what is this"), "invalid_json"),
        (Produced::of(vec![0xff, 0xfe, 0x00]), "invalid_utf8"),
        (Produced::of(noise), "invalid_utf8"),
        (Produced::of("7"), "unsupported_shape"),
        (Produced::of("{\"hello\": 1}"), "unsupported_shape"),
        (of(&plain("h/p", "l", &long)), "text_too_long"),
        (
            Produced::of(vec![b'1'; PAYLOAD_BYTES_MAX + 1]),
            "record_too_large",
        ),
        (of(&wrong_type), "invalid_field"),
        (of(&unknown_field), "unknown_field"),
        (of(&nobodys), "missing_field"),
        (
            of(&plain("h3/p", "t", "other tenant")),
            "tenant_not_covered",
        ),
        (
            of(&plain("h/org/ward", "o", "an organisation's")),
            "role_required",
        ),
        (Produced::of(deep), "too_deep"),
        (of(&Value::Array(many)), "too_many_events"),
        (unreadable, "invalid_utf8"),
        (binary("h/p", "b", "no json"), "invalid_json"),
        (binary("h/p", "b", "\"text\""), "invalid_field"),
        (
            binary("h/p", "b", "{}").with("ce_subject", "h/q"),
            "invalid_field",
        ),
        (
            binary("h/p", "b", "hello").with("content-type", "text/plain"),
            "unsupported_content_type",
        ),
        (
            binary("h/p", "b", "Obj\u{1}").with("content-type", "application/avro"),
            "undecodable",
        ),
        (
            Produced::of("{}").with("ce_id", "without the rest"),
            "missing_field",
        ),
        (
            of(&plain("h/p", "c", "x")).with("content-type", "application/cloudevents+json"),
            "missing_field",
        ),
        (
            of(&cloud("h/p", "c", "x")).with("content-type", "application/cloudevents-batch+json"),
            "invalid_field",
        ),
        (
            of(&cloud("h/p", "c", "x")).with("content-type", "application/cloudevents+xml"),
            "unsupported_content_type",
        ),
        (Produced::of(vec![0, 0, 0]), "undecodable"),
        (Produced::of(vec![0, 0, 0, 0, 9, 1, 2, 3]), "unknown_schema"),
    ];
    let mut expected = Vec::new();
    for (number, (produced, code)) in (0..).zip(&cases) {
        site.put(good(number));
        expected.push((site.put(produced.clone()), (*code).to_owned()));
    }
    site.read().await;
    assert_eq!(site.rejected().await, expected);
    let texts = site.texts().await;
    assert_eq!(texts.len(), cases.len());
    assert!(
        texts
            .iter()
            .all(|text| text.starts_with("h/patient/p good"))
    );
    let receipts = site.receipts().await;
    let read: u64 = receipts.iter().map(|read| read.read).sum();
    let rejected: u64 = receipts.iter().map(|read| read.rejected_count).sum();
    assert_eq!(
        (read, rejected),
        (2 * cases.len() as u64, cases.len() as u64)
    );
}

#[tokio::test]
async fn one_bad_event_of_a_list_does_not_spoil_the_others() {
    let site = Site::new().await;
    let mut bad = plain("h/p", "2", "x");
    bad["role"] = json!("stranger");
    let list = json!([
        plain("h/p", "1", "one"),
        bad,
        plain("h3/p", "3", "x"),
        7,
        plain("h/p", "4", "four")
    ]);
    let offset = site.put(of(&list));
    site.read().await;
    assert_eq!(site.texts().await, ["h/patient/p four", "h/patient/p one"]);
    let codes = ["tenant_not_covered", "unknown_role", "unsupported_shape"];
    let expected: Vec<(u64, String)> = codes.map(|code| (offset, code.to_owned())).into();
    assert_eq!(site.rejected().await, expected);
}

#[tokio::test]
async fn an_event_without_an_id_is_called_by_its_place() {
    let site = Site::new().await;
    let mut nameless = plain("h/p", "", "x");
    nameless.as_object_mut().unwrap().shift_remove("event_id");
    site.put(of(&nameless));
    site.put(of(&nameless));
    site.put(of(&json!([nameless, nameless])));
    site.read().await;
    let ids: Vec<(String, String)> = site
        .turns()
        .await
        .into_iter()
        .map(|turn| (turn.source, turn.event_id))
        .collect();
    let expected = ["inbox/0/1", "inbox/0/2", "inbox/0/3/0", "inbox/0/3/1"];
    assert_eq!(ids, expected.map(|id| ("inbox".to_owned(), id.to_owned())));
}

#[tokio::test]
async fn without_consent_a_message_waits_as_one_that_was_posted() {
    let site = Site::of(World::new(true)).await;
    site.put(of(&plain("h/p", "1", "x")));
    site.read().await;
    assert_eq!(site.turns().await, []);
    assert_eq!(site.world.turns(Topic::Quarantine).await.len(), 1);
    assert_eq!(site.receipts().await[0].accepted, 1);
}

#[tokio::test]
async fn the_owners_of_one_batch_are_let_in_each_under_their_own_consent() {
    let site = Site::of(World::new(true)).await;
    for owner in ["h/a", "h/b", "h/c"] {
        let (caller, owner) = (World::caller(), owner.parse().unwrap());
        let order = crate::commands::Order {
            caller: &caller,
            owner: &owner,
            key: None,
        };
        let all = crate::request::ConsentChange::default();
        site.world.intake.consent(&order, &all).await.unwrap();
    }
    site.world.decide().await;
    for n in 0..9 {
        let owner = ["h/a", "h/b", "h/c"][n % 3];
        site.put(of(&plain(owner, &format!("{n}"), &format!("{n}"))));
    }
    site.read().await;
    let turns = site.world.turns(Topic::Conversation).await;
    assert_eq!(turns.len(), 9);
    for (meta, turn) in &turns {
        let scope = site.world.scope(&turn.owner.to_string());
        let view = site.world.records.as_ref();
        let view = anamnesis_pipeline::stores::Records::owner(view, scope).await;
        let version = view.unwrap().unwrap().consents[0].recorded_from;
        assert_eq!(meta.consent_version, version);
    }
    for owner in ["h/patient/a", "h/patient/b", "h/patient/c"] {
        let own = turns
            .iter()
            .filter(|(_, turn)| turn.owner.to_string() == owner);
        let texts: Vec<&str> = own.map(|(_, turn)| turn.text.expose()).collect();
        assert!(texts.is_sorted() && texts.len() == 3);
    }
}

const TURN: &str = r#"{"type":"record","name":"Turn","fields":[
    {"name":"owner","type":"string"},{"name":"role","type":"string"},
    {"name":"at","type":{"type":"long","logicalType":"timestamp-millis"}},
    {"name":"text","type":"string"}]}"#;

/// A record of [`TURN`] in Confluent's frame.
fn framed(schema: u32, owner: &str, text: &str) -> Vec<u8> {
    let mut bytes = vec![0];
    bytes.extend_from_slice(&schema.to_be_bytes());
    bytes.extend(datum(owner, text));
    bytes
}

fn datum(owner: &str, text: &str) -> Vec<u8> {
    fn long(bytes: &mut Vec<u8>, value: i64) {
        let mut rest = ((value << 1) ^ (value >> 63)) as u64;
        while rest >= 0x80 {
            bytes.push(rest as u8 | 0x80);
            rest >>= 7;
        }
        bytes.push(rest as u8);
    }
    fn string(bytes: &mut Vec<u8>, text: &str) {
        long(bytes, text.len() as i64);
        bytes.extend_from_slice(text.as_bytes());
    }
    let mut bytes = Vec::new();
    string(&mut bytes, owner);
    string(&mut bytes, "user");
    long(&mut bytes, 1_746_000_000_000);
    string(&mut bytes, text);
    bytes
}

#[tokio::test]
async fn avro_gets_in_as_the_json_that_it_stands_for() {
    let site = Site::new().await;
    site.schemas.register(7, TURN);
    let data = r#"{"type":"record","name":"D","fields":[{"name":"text","type":"string"}]}"#;
    site.schemas.register(8, data);
    site.put(Produced::of(framed(7, "h/a", "我对芒果过敏")));
    let text = [&[0, 0, 0, 0, 8, 10][..], b"knees"].concat();
    site.put(binary("h/b", "1", text).with("content-type", "application/avro"));
    for n in 0..50 {
        site.put(Produced::of(framed(7, "h/c", &format!("{n}"))));
    }
    site.read().await;
    assert_eq!(site.rejected().await, []);
    let texts = site.texts().await;
    assert!(texts.contains(&"h/patient/a 我对芒果过敏".to_owned()));
    assert!(texts.contains(&"h/patient/b knees".to_owned()));
    assert_eq!(texts.len(), 52);
    assert_eq!(site.schemas.asked(), 2, "a schema is asked for once");
}

#[tokio::test(start_paused = true)]
async fn a_registry_that_is_down_is_waited_for_and_one_that_knows_nothing_is_not() {
    let site = Site::new().await;
    site.schemas.register(7, TURN);
    site.schemas
        .register(9, "{\"type\":\"record\",\"name\":\":\",\"fields\":[]}");
    site.schemas.set_down(true);
    site.put(of(&plain("h/a", "1", "before")));
    let waits = site.put(Produced::of(framed(7, "h/b", "waits")));
    site.put(of(&plain("h/c", "3", "behind")));
    let unknown = site.put(Produced::of(framed(8, "h/b", "x")));
    let again = site.put(Produced::of(framed(8, "h/b", "x")));
    let refused = site.put(Produced::of(framed(9, "h/b", "x")));

    let mut reading = site.reader().reading(0);
    let error = settle(&mut reading).await.unwrap_err();
    assert!(error.is_retryable(), "{error}");
    assert_eq!(site.texts().await, ["h/patient/a before"]);
    assert_eq!(site.receipts().await.last().unwrap().next, waits);
    for _ in 0..3 {
        settle(&mut reading).await.unwrap_err();
    }
    assert_eq!(site.receipts().await.len(), 1, "the position stays");

    site.schemas.set_down(false);
    let asked = site.schemas.asked();
    settle(&mut reading).await.unwrap();
    let expected = [
        "h/patient/a before",
        "h/patient/b waits",
        "h/patient/c behind",
    ];
    assert_eq!(site.texts().await, expected);
    let codes = [
        (unknown, "unknown_schema"),
        (again, "unknown_schema"),
        (refused, "invalid_schema"),
    ];
    assert_eq!(
        site.rejected().await,
        codes.map(|(offset, code)| (offset, code.to_owned()))
    );
    assert_eq!(site.schemas.asked() - asked, 3, "three schemas, once each");

    // A schema may be registered after somebody named its number.
    site.schemas.register(8, TURN);
    site.put(Produced::of(framed(8, "h/d", "too early")));
    settle(&mut reading).await.unwrap();
    tokio::time::advance(Duration::from_secs(11)).await;
    site.put(Produced::of(framed(8, "h/d", "registered")));
    settle(&mut reading).await.unwrap();
    assert_eq!(site.texts().await.last().unwrap(), "h/patient/d registered");
}

#[tokio::test]
async fn avro_without_a_registry_is_turned_down_by_name() {
    let site = Site::new().await;
    let offset = site.put(Produced::of(framed(7, "h/a", "x")));
    let caller = Caller::platform("inbox", None, "h");
    let reader = InboxReader::new(site.inbox.clone(), site.world.intake.clone(), caller);
    settle(&mut Arc::new(reader).reading(0)).await.unwrap();
    let expected = [(offset, "registry_not_configured".to_owned())];
    assert_eq!(site.rejected().await, expected);
}

#[tokio::test]
async fn ten_thousand_damaged_frames_stop_nobody() {
    let site = Site::new().await;
    site.schemas.register(7, TURN);
    let good = framed(7, "h/a", &"胸痛三天。".repeat(10));
    let mut dice = anamnesis_pipeline::doubles::log::Dice::new(11);
    for _ in 0..10_000 {
        let mut bytes = good.clone();
        for _ in 0..=dice.below(3) {
            let at = dice.below(bytes.len() as u64) as usize;
            bytes[at] = dice.roll() as u8;
        }
        if dice.below(4) == 0 {
            bytes.truncate(dice.below(bytes.len() as u64) as usize);
        }
        site.put(Produced::of(bytes));
    }
    let last = site.put(of(&plain("h/z", "1", "still there")));
    let reading = site.read().await;
    assert_eq!(reading.position(), Some(last + 1));
    let receipts = site.receipts().await;
    let read: u64 = receipts.iter().map(|read| read.read).sum();
    let accepted: u64 = receipts.iter().map(|read| read.accepted).sum();
    let rejected: u64 = receipts.iter().map(|read| read.rejected_count).sum();
    assert_eq!((read, accepted + rejected), (10_001, 10_001));
    assert!(rejected > 1_000 && accepted > 10, "{accepted} {rejected}");
    assert!(
        site.texts()
            .await
            .contains(&"h/patient/z still there".to_owned())
    );
}

#[test]
fn nothing_that_was_said_is_shown() {
    let error = InboxError::OutOfRange {
        partition: 3,
        next: 7,
        start: 9,
        end: 12,
    };
    let text = error.to_string();
    assert!(text.contains("inbox-3") && text.contains('7') && text.contains("9..12"));
}
