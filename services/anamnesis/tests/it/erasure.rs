//! Can anybody read what was forgotten: with the old log and the new keys, in any file, by asking?

use std::collections::BTreeMap;
use std::path::Path;

use anamnesis_adapters::master_key::MasterKey;
use anamnesis_adapters::sqlite_keyring::SqliteKeyring;
use anamnesis_domain::ids::{Hash, OwnerKey};
use anamnesis_domain::input::{Position, Topic};
use anamnesis_domain::time::Timestamp;
use anamnesis_domain::transition::PartBody;
use anamnesis_pipeline::codec::{Codec, Opened};
use anamnesis_pipeline::log::Record;
use rusqlite::Connection;
use serde_json::{Value, json};

use crate::node::{Folder, Http, TENANT, copy_dir, exact_digest, texts};

/// Words that nobody else says, by what is erased. Each stands in a Latin and in a Han text.
const MEMORY: [&str; 2] = ["quaggaberry", "獐牙果"];
const MESSAGE: [&str; 2] = ["numbatfruit", "鼬瓣豆"];
const SOURCE: [&str; 2] = ["okapinut", "貘油籽"];
const OWNER: [&str; 2] = ["axolotlroot", "蝾螈根"];
const WAITING: [&str; 2] = ["pangolinleaf", "鲮鲤叶"];
const KEPT: [&str; 2] = ["capybaramelon", "豚鼠瓜"];

fn patient(name: &str) -> String {
    format!("{TENANT}/patient/{name}")
}

/// Two events, one for each word.
fn said(owner: &str, source: &str, words: [&str; 2]) -> Value {
    let event = |n: u32, text: String| {
        json!({
        "event_id": format!("{owner}-{}-{n}", Hash::of(words[0].as_bytes())), "owner": patient(owner),
            "source": source, "role": "user", "conversation_id": "c-1",
            "at": format!("2026-03-01T0{n}:00:00Z"), "text": text,
        })
    };
    json!([
        event(
            1,
            format!(
                "I am allergic to {}. I take aspirin 100 mg daily.",
                words[0]
            )
        ),
        event(
            2,
            format!("我对{}过敏。我每天吃二甲双胍 500 mg。", words[1])
        ),
    ])
}

async fn post(http: &Http, events: &Value) -> Vec<Value> {
    let answer = http
        .post("/v1/events?wait=decided", events)
        .await
        .expect(202);
    answer["accepted"].as_array().expect("a list").clone()
}

/// Everything that is said, asked and ordered before anything is forgotten.
struct Told {
    message_tokens: Vec<Value>,
    memory_ids: Vec<Value>,
}

async fn tell(http: &Http) -> Told {
    for name in ["ada", "bo", "cy"] {
        http.grant(&patient(name)).await;
    }
    post(http, &said("ada", "/chat", MEMORY)).await;
    let messages = post(http, &said("ada", "/chat", MESSAGE)).await;
    post(http, &said("ada", "/letters", SOURCE)).await;
    post(http, &said("bo", "/chat", OWNER)).await;
    post(http, &said("cy", "/chat", KEPT)).await;
    // Nobody asked this one, so what it says waits for an answer that never comes.
    post(http, &said("dee", "/chat", WAITING)).await;
    for (owner, word) in [("ada", MEMORY[0]), ("bo", OWNER[0]), ("cy", KEPT[0])] {
        let body = json!({
            "owner": patient(owner), "text": format!("No {word} in the meals."),
            "kind": "constraint", "valid_from": "2026-03-02T00:00:00Z",
        });
        let answer = http
            .post("/v1/remember?wait=decided", &body)
            .await
            .expect(202);
        let body = json!({
            "owner": patient(owner), "memory_id": answer["memory_id"], "reason": "more exact",
            "text": format!("No {word} in any meal."),
        });
        http.post("/v1/correct?wait=decided", &body)
            .await
            .expect(202);
        let task = json!({
            "owner": patient(owner), "task_id": "t-1", "goal": format!("Meals without {word}."),
        });
        if owner != "ada" {
            http.post("/v1/tasks?wait=decided", &task).await.expect(202);
        }
        let answer = http
            .recall(&patient(owner), "What am I allergic to?", json!({}))
            .await;
        assert!(answer.to_string().contains(word), "{answer}");
    }
    http.settle().await;
    let mut memory_ids = Vec::new();
    let statuses = "active,superseded,retired,conflicted,pending_review";
    let path = format!(
        "/v1/memories?owner={}&limit=200&status={statuses}",
        patient("ada")
    );
    for memory in http.get(&path).await.expect(200)["memories"]
        .as_array()
        .expect("a list")
    {
        let text = memory["text"].as_str().unwrap_or_default();
        let is_it = MEMORY.iter().any(|word| text.contains(word));
        if is_it && memory["kind"] != json!("episode") {
            memory_ids.push(memory["id"].clone());
        }
    }
    assert!(memory_ids.len() >= 3, "{memory_ids:?}");
    Told {
        message_tokens: messages
            .iter()
            .map(|accepted| accepted["token"].clone())
            .collect(),
        memory_ids,
    }
}

async fn forget(http: &Http, told: &Told) -> Vec<(String, String)> {
    let mut erasures = Vec::new();
    let mut erase = async |owner: &str, what: Value| {
        let mut body = json!({"owner": patient(owner), "mode": "erase", "reason": "asked"});
        let fields = body.as_object_mut().expect("an object");
        fields.extend(what.as_object().cloned().unwrap_or_default());
        let answer = http
            .post("/v1/forget?wait=decided", &body)
            .await
            .expect(202);
        assert_eq!(answer["outcome"], json!("stored"), "{what} {answer}");
        let id = answer["erasure_id"].as_str().expect("an id").to_owned();
        erasures.push((patient(owner), id));
    };
    for id in &told.memory_ids {
        erase("ada", json!({"memory_ids": [id]})).await;
    }
    for token in &told.message_tokens {
        erase("ada", json!({"message": token})).await;
    }
    erase("ada", json!({"source": "/letters"})).await;
    erase("bo", json!({"all": true})).await;
    erase("dee", json!({"all": true})).await;
    http.settle().await;
    erasures
}

/// Every erasure has a certificate: who asked and when is in the log, keys are gone, each store has
/// confirmed.
async fn check_certificates(http: &Http, erasures: &[(String, String)]) {
    let mut keys = 0;
    for (owner, id) in erasures {
        let path = format!("/v1/erasures/{id}?owner={owner}");
        let found = http.get(&path).await.expect(200);
        let status = found["status"].as_str().unwrap_or_default();
        assert!(["effective", "complete"].contains(&status), "{found}");
        keys += found["keys_destroyed"].as_u64().unwrap_or_default();
        for place in ["keyring", "records", "text", "vectors", "graph"] {
            assert!(
                found["receipts"][place]["effective_at"].is_string(),
                "{found}"
            );
        }
        let without_owner = http.get(&format!("/v1/erasures/{id}")).await.expect(200);
        assert_eq!(without_owner["decision"], found["decision"]);
    }
    assert!(keys > 0);
    let (_, id) = &erasures[0];
    for (path, status) in [
        (format!("/v1/erasures/{id}?owner={}", patient("cy")), 404),
        ("/v1/erasures/none".to_owned(), 400),
        (format!("/v1/erasures/{id}?who=x"), 400),
    ] {
        http.get(&path).await.expect(status);
    }
}

/// All records of a log file, read with SQLite alone.
fn records_of(file: &Path) -> Vec<Record> {
    let connection = Connection::open(file).expect("the log opens");
    let partitions: u32 = connection
        .query_row("SELECT partitions FROM meta", [], |row| row.get(0))
        .expect("a count");
    let mut records = Vec::new();
    for topic in Topic::ALL {
        for partition in 0..partitions {
            let sql =
                format!("SELECT offset, appended_at, owner, payload FROM {topic}_{partition}");
            // `schemas` has one partition.
            let Ok(mut statement) = connection.prepare(&sql) else {
                continue;
            };
            let rows = statement
                .query_map([], |row| {
                    Ok(Record {
                        position: Position {
                            topic,
                            partition,
                            offset: row.get::<_, i64>(0)?.unsigned_abs(),
                        },
                        appended_at: Timestamp::from_millis(row.get(1)?),
                        key: OwnerKey::from_bytes(row.get(2)?),
                        payload: row.get::<_, Vec<u8>>(3)?.into(),
                    })
                })
                .expect("rows");
            records.extend(rows.map(|row| row.expect("a record")));
        }
    }
    records
}

fn codec_of(folder: &Path) -> Codec {
    let master = MasterKey::from_file(&folder.join("master.key")).expect("the master key");
    let keys = SqliteKeyring::open(&folder.join("keys.db"), &master).expect("the keyring opens");
    Codec::new(std::sync::Arc::new(keys))
}

/// Everything that these keys can read in these records, by topic.
async fn readable(codec: &Codec, records: &[Record]) -> BTreeMap<String, String> {
    let mut all: BTreeMap<String, String> = BTreeMap::new();
    for record in records {
        let opened = codec
            .open(std::slice::from_ref(record))
            .await
            .expect("the keyring answers");
        let text = match opened.into_iter().next() {
            Some(Ok(opened)) => words_of(opened),
            Some(Err(_)) | None => String::new(),
        };
        let topic = all.entry(record.position.topic.to_string()).or_default();
        topic.push_str(&text);
        topic.push('\n');
    }
    all
}

/// What an opened record says, in full.
fn words_of(opened: Opened) -> String {
    fn json<T: serde::Serialize>(value: &T) -> String {
        serde_json::to_string(value).expect("plain data")
    }
    match opened {
        Opened::Turn { turn, .. } => json(&turn),
        Opened::Candidates { set, .. } => json(&set),
        Opened::Command { command, .. } => json(&command),
        Opened::Embedding {
            memory_id, vector, ..
        } => match vector {
            Some(_) => format!("vector of {memory_id}"),
            None => String::new(),
        },
        Opened::Access { receipt, .. } => receipt.map(|receipt| json(&receipt)).unwrap_or_default(),
        Opened::Decided(decided) => {
            let mut text = json(&decided.decided.detail);
            for part in decided.decided.parts {
                if let PartBody::Open(transition) = part.body {
                    text.push_str(&json(&transition));
                }
            }
            text
        }
        Opened::Identity(_)
        | Opened::Erased { .. }
        | Opened::Parked(_)
        | Opened::Unparked(_)
        | Opened::Receipt(_)
        | Opened::InboxRead(_)
        | Opened::WriterStarted { .. } => String::new(),
    }
}

/// Files under a folder that hold a word in UTF-8 or UTF-16.
fn files_with(dir: &Path, word: &str) -> Vec<String> {
    let wide: Vec<u16> = word.encode_utf16().collect();
    let forms = [
        word.as_bytes().to_vec(),
        wide.iter().flat_map(|unit| unit.to_le_bytes()).collect(),
        wide.iter().flat_map(|unit| unit.to_be_bytes()).collect(),
    ];
    let mut found = Vec::new();
    for entry in std::fs::read_dir(dir).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            found.extend(files_with(&path, word));
            continue;
        }
        let bytes = std::fs::read(&path).expect("a file");
        let holds = |form: &Vec<u8>| {
            bytes
                .windows(form.len())
                .any(|part| part == form.as_slice())
        };
        if forms.iter().any(holds) {
            found.push(path.display().to_string());
        }
    }
    found
}

async fn digest_of(folder: &Folder, name: &str) -> Hash {
    exact_digest(&folder.open().await, &patient(name)).await
}

/// C04, R-51, R-52: nothing is told, no key opens it, no byte of it is left; the others are as they were.
#[tokio::test(flavor = "multi_thread")]
async fn what_was_forgotten_can_be_read_nowhere() {
    let folder = Folder::new();
    let server = folder.serve().await;
    let told = tell(&server).await;
    server.stop();
    let before = tempfile::tempdir().expect("a folder");
    copy_dir(folder.data(), before.path());
    let kept_digest = digest_of(&folder, "cy").await;

    let server = folder.serve().await;
    let erasures = forget(&server, &told).await;
    check_certificates(&server, &erasures).await;
    for owner in ["ada", "bo", "cy", "dee"] {
        for query in [
            "What am I allergic to?",
            "我对什么过敏？",
            MEMORY[0],
            OWNER[1],
        ] {
            let as_of = json!({"as_of": "2026-03-03T00:00:00Z", "include_history": true});
            for more in [json!({}), as_of] {
                let answer = server.recall(&patient(owner), query, more).await;
                let said = answer["memories"].to_string();
                let word = forgotten().find(|word| said.contains(word));
                assert_eq!(word, None, "{owner} {query} {answer}");
            }
        }
    }
    // What else the erased sentences said is kept.
    let ada = server
        .get(&format!("/v1/memories?owner={}&limit=100", patient("ada")))
        .await;
    let ada = texts(&ada.expect(200)).join("\n");
    assert!(
        ada.contains("aspirin 100 mg") || ada.contains("二甲双胍"),
        "{ada}"
    );
    server.stop();
    folder.check_sound();
    assert_eq!(kept_digest, digest_of(&folder, "cy").await);

    // A reader of its own, with the old log and the keys as they are now.
    let old = records_of(&before.path().join("log.db"));
    let at_the_time = readable(&codec_of(before.path()), &old).await;
    let now = readable(&codec_of(folder.data()), &old).await;
    for word in forgotten() {
        let topics: Vec<&String> = at_the_time
            .iter()
            .filter(|(_, text)| text.contains(word))
            .map(|(topic, _)| topic)
            .collect();
        assert!(
            !topics.is_empty(),
            "the test would notice: {word} was readable"
        );
        let still = now.iter().find(|(_, text)| text.contains(word));
        let line = |text: &String| {
            text.lines()
                .find(|line| line.contains(word))
                .map(str::to_owned)
        };
        let still = still.map(|(topic, text)| (topic, line(text)));
        assert_eq!(still, None, "{word} can still be read");
    }
    for topic in [
        "conversation",
        "candidates",
        "commands",
        "memories",
        "quarantine",
    ] {
        assert!(
            forgotten().any(|word| at_the_time[topic].contains(word)),
            "{topic} had one"
        );
    }
    for id in &told.memory_ids {
        let id = id.as_str().expect("an id");
        let vector = format!("vector of {id}");
        assert!(
            at_the_time["embeddings"].contains(&vector) && !now["embeddings"].contains(&vector)
        );
    }
    for word in KEPT {
        assert!(now["conversation"].contains(word) && now["memories"].contains(word));
    }

    // No byte of it is left.
    for word in forgotten() {
        // What waited for consent never stood in clear.
        let was_there = !files_with(before.path(), word).is_empty();
        assert_eq!(
            was_there,
            !WAITING.contains(&word),
            "the test would notice {word}"
        );
        assert_eq!(
            files_with(folder.data(), word),
            Vec::<String>::new(),
            "{word}"
        );
    }
    assert!(!files_with(folder.data(), KEPT[1]).is_empty());
}

fn forgotten() -> impl Iterator<Item = &'static str> {
    [MEMORY, MESSAGE, SOURCE, OWNER, WAITING]
        .into_iter()
        .flatten()
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_forgotten_does_not_come_back_and_a_new_consent_is_a_new_beginning() {
    let folder = Folder::new();
    let server = folder.serve().await;
    let told = tell(&server).await;
    forget(&server, &told).await;
    server.grant(&patient("bo")).await;
    server.settle().await;
    let before = server.get("/v1/audit/balance").await.expect(200);
    // The platform sends everything again.
    for (owner, source, words) in [
        ("ada", "/chat", MESSAGE),
        ("ada", "/letters", SOURCE),
        ("bo", "/chat", OWNER),
    ] {
        post(&server, &said(owner, source, words)).await;
    }
    server.settle().await;
    let after = server.get("/v1/audit/balance").await.expect(200);
    let rejected = |balance: &Value| balance["decided"]["rejected(erased)"].as_u64().unwrap_or(0);
    assert_eq!(rejected(&after), rejected(&before) + 6, "{before} {after}");
    let new = json!({
        "event_id": "bo-new", "owner": patient("bo"), "source": "/chat", "role": "user",
        "at": "2026-05-01T09:00:00Z", "text": "I am allergic to wombatcress.",
    });
    post(&server, &new).await;
    for owner in ["ada", "bo"] {
        let page = server
            .get(&format!("/v1/memories?owner={}&limit=100", patient(owner)))
            .await;
        let said = texts(&page.expect(200)).join("\n");
        for word in MESSAGE.into_iter().chain(SOURCE).chain(OWNER) {
            assert!(!said.contains(word), "{owner}: {said}");
        }
        assert_eq!(said.contains("wombatcress"), owner == "bo", "{said}");
    }
    server.stop();
    folder.check_sound();
    // Sent again means sealed again; that copy is nowhere to be read in a store either.
    for word in MESSAGE.into_iter().chain(OWNER) {
        assert_eq!(
            files_with(&folder.data().join("stores"), word),
            Vec::<String>::new()
        );
    }
}

/// A rebuild that was killed leaves a half-filled generation; an erasure must reach it too.
#[tokio::test(flavor = "multi_thread")]
async fn a_left_over_generation_keeps_nothing_that_was_forgotten() {
    let folder = Folder::new();
    let server = folder.serve().await;
    let told = tell(&server).await;
    server.stop();
    let stores = folder.data().join("stores");
    for name in ["records", "text", "vectors", "graph"] {
        let left = stores.join(format!("{name}-2"));
        copy_dir(&stores.join(format!("{name}-1")), &left);
    }
    let server = folder.serve().await;
    forget(&server, &told).await;
    server.stop();
    for word in forgotten() {
        assert_eq!(
            files_with(folder.data(), word),
            Vec::<String>::new(),
            "{word}"
        );
    }
}

/// Erasing one memory takes the sentences that said it, and not those that merely replaced it.
#[tokio::test(flavor = "multi_thread")]
async fn what_replaced_a_forgotten_memory_keeps_its_own_sentence() {
    let folder = Folder::new();
    let server = folder.serve().await;
    let owner = patient("eve");
    server.grant(&owner).await;
    let event = |n: u32, text: &str| {
        json!({
            "event_id": format!("eve-{n}"), "owner": owner, "source": "/chat", "role": "user",
            "at": format!("2026-03-0{n}T09:00:00Z"), "text": text,
        })
    };
    let change = event(2, "My warfarin dose was changed to 7.5 mg.");
    post(&server, &event(1, "I take warfarin 5 mg daily.")).await;
    post(&server, &change).await;
    let path = format!("/v1/memories?owner={owner}&kind=medication&status=active,superseded");
    let page = server.get(&path).await.expect(200);
    let id = |status: &str| {
        let memories = page["memories"].as_array().expect("a list");
        let found = memories
            .iter()
            .find(|memory| memory["status"] == json!(status));
        found.expect("it is there")["id"].clone()
    };
    let (old, new) = (id("superseded"), id("active"));
    let body = json!({"owner": owner, "memory_ids": [old], "mode": "erase", "reason": "asked"});
    server
        .post("/v1/forget?wait=decided", &body)
        .await
        .expect(202);
    server.settle().await;
    let new = new.as_str().expect("an id");
    let explained = server
        .get(&format!("/v1/audit/memories/{new}?owner={owner}"))
        .await
        .expect(200);
    assert!(
        explained["said"]["text"].to_string().contains("7.5 mg"),
        "{explained}"
    );
    // The same again is known, and not taken for something erased.
    post(&server, &change).await;
    server.settle().await;
    let balance = server.get("/v1/audit/balance").await.expect(200);
    assert_eq!(balance["decided"]["duplicate"], json!(1), "{balance}");
    server.stop();
    folder.check_sound();
}
