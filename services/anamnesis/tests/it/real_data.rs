//! Does it run on conversations and records that were not written for it?
//!
//! `ANAMNESIS_DATA` names the folder of the evaluation sets. Without it these tests say that they are
//! skipped, and fail when `ANAMNESIS_REQUIRED=1`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::node::{Folder, Http, texts};

fn data() -> Option<PathBuf> {
    if let Some(dir) = std::env::var_os("ANAMNESIS_DATA") {
        return Some(PathBuf::from(dir));
    }
    let is_required = std::env::var("ANAMNESIS_REQUIRED").is_ok_and(|value| value == "1");
    assert!(
        !is_required,
        "ANAMNESIS_DATA must name the folder of the evaluation sets"
    );
    println!("skipped: ANAMNESIS_DATA does not name the folder of the evaluation sets");
    None
}

fn lines(path: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(path).unwrap_or_else(|error| {
        panic!("{} cannot be read: {error}", path.display());
    });
    text.lines()
        .filter(|line| !line.trim().is_empty())
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .collect()
}

fn import(folder: &Folder, arguments: &[&str], file: &Path) -> crate::node::Done {
    let file = file.to_str().expect("a path");
    let mut all = vec!["import", "--consent", "--tenant", "real"];
    all.extend(arguments);
    all.push(file);
    folder.run(&all)
}

/// Posts events in batches, and waits until the last of each is decided.
async fn post_all(http: &Http, events: &[Value]) {
    for batch in events.chunks(100) {
        let answer = http
            .post("/v1/events?wait=decided", &json!(batch))
            .await
            .expect(202);
        assert_eq!(answer["rejected"], json!([]), "{answer}");
        assert_eq!(
            answer["accepted"].as_array().map(Vec::len),
            Some(batch.len())
        );
    }
}

/// Each sample, and the problem that it must get where it carries no owner, text or time.
const SAMPLES: [(&str, Option<(&str, &str)>); 12] = [
    ("anthropic_messages", Some(("missing_field", "created_at"))),
    ("cloudevents_kafka_binary", None),
    ("cloudevents_structured", None),
    ("fhir_allergyintolerance", None),
    (
        "fhir_auditevent",
        Some(("unsupported_shape", "resourceType")),
    ),
    ("fhir_communication", None),
    ("langgraph_checkpoint", None),
    ("openai_chat_completion", None),
    ("openai_response_items", None),
    ("openinference_span", None),
    ("otel_genai_event", None),
    (
        "otel_genai_memory_span",
        Some(("missing_field", "attributes.user.id")),
    ),
];

#[tokio::test(flavor = "multi_thread")]
async fn the_event_samples_are_accepted_or_refused_by_field() {
    let Some(data) = data() else { return };
    let dir = data.join("event-samples");
    let imported = Folder::new();
    let posted = Folder::new();
    let server = posted.serve().await;
    for owner in ["hosp-01/patient/p001", "hospital-7/patient/p001"] {
        server.grant(owner).await;
    }
    for (name, refused) in SAMPLES {
        let file = dir.join(format!("{name}.json"));
        let body = std::fs::read(&file).expect("the sample can be read");
        let headers = [("content-type", "application/json")];
        let answer = server
            .post_raw("/v1/events?wait=decided", &headers, body)
            .await;
        let done = import(&imported, &[], &file);
        match refused {
            None => {
                assert_eq!(answer.status, 202, "{name}: {}", answer.text);
                assert_eq!(
                    answer.body["decided"],
                    json!(true),
                    "{name}: {}",
                    answer.text
                );
                done.expect(0);
            }
            Some((code, field)) => {
                answer.is_problem(400, code, field);
                done.expect(1).says(&[code, field]);
            }
        }
    }
    // The same owner has it under its tenant, or under the caller's where the shape has none.
    let answer = server
        .recall("hosp-01/patient/p001", "我对什么过敏？", json!({}))
        .await;
    assert!(
        texts(&answer).iter().any(|text| text.contains("花生")),
        "{answer}"
    );
    let answer = server
        .recall("hosp-01/patient/p001", "Do I take metformin?", json!({}))
        .await;
    assert!(
        texts(&answer).iter().any(|text| text.contains("二甲双胍")),
        "{answer}"
    );
    let answer = server
        .recall("hospital-7/patient/p001", "我对青霉素过敏吗？", json!({}))
        .await;
    assert_eq!(
        answer["memories"][0]["polarity"],
        json!("-"),
        "the later record says no: {answer}"
    );
    server.settle().await;
    server.stop();
    posted.check_sound();
    imported.check_sound();
}

/// Questions about what each patient was first told to be allergic to, in both languages.
async fn ask_for_allergies(http: &Http, events: &[Value]) {
    let mut asked = 0;
    for (zh, en, query_zh, query_en) in [
        (
            "阿司匹林",
            "aspirin",
            "我对阿司匹林过敏吗？",
            "Am I allergic to aspirin?",
        ),
        (
            "青霉素",
            "penicillin",
            "我对青霉素过敏吗？",
            "Am I allergic to penicillin?",
        ),
        (
            "花生",
            "peanut",
            "我对花生过敏吗？",
            "Am I allergic to peanuts?",
        ),
    ] {
        let said = events.iter().find(|event| {
            event["kind"] == json!("allergy") && event["text_zh"].to_string().contains(zh)
        });
        let Some(said) = said else { continue };
        asked += 1;
        let owner = format!("real/patient/{}", said["owner"].as_str().expect("an owner"));
        for query in [query_zh, query_en] {
            let answer = http.recall(&owner, query, json!({})).await;
            let first = &answer["memories"][0];
            let text = first["text"].as_str().unwrap_or_default().to_lowercase();
            assert!(
                text.contains(zh) || text.contains(en),
                "{query}: {:?}",
                texts(&answer)
            );
            assert_eq!(first["owner"], json!(owner));
        }
    }
    assert!(asked > 0, "the set has such allergies");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_timelines_are_imported_and_recalled() {
    let Some(data) = data() else { return };
    let file = data.join("synthea-timelines").join("events.jsonl");
    let events = lines(&file);
    for language in ["zh", "en"] {
        let folder = Folder::new();
        import(&folder, &["--language", language], &file).expect(0);
        folder.check_sound();
        let server = folder.serve().await;
        ask_for_allergies(&server, &events).await;
        server.stop();
    }

    // The first three patients through HTTP, each event in words.
    let folder = Folder::new();
    let server = folder.serve().await;
    let mut by_owner: BTreeMap<&str, Vec<Value>> = BTreeMap::new();
    for event in &events {
        let owner = event["owner"].as_str().expect("an owner");
        by_owner.entry(owner).or_default().push(json!({
            "event_id": event["event_id"], "owner": format!("real/patient/{owner}"), "role": "user",
            "source": "/timelines", "at": event["time"], "text": event["text_zh"],
        }));
    }
    for (owner, events) in by_owner.iter().take(3) {
        server.grant(&format!("real/patient/{owner}")).await;
        post_all(&server, events).await;
    }
    let first: Vec<Value> = events
        .iter()
        .filter(|event| by_owner.keys().take(3).any(|o| event["owner"] == **o))
        .cloned()
        .collect();
    ask_for_allergies(&server, &first).await;
    server.settle().await;
    server.stop();
    folder.check_sound();
}

/// The share of questions for which a piece of evidence is among the first ten.
async fn hits(http: &Http, questions: &[(String, String, Vec<String>)]) -> f64 {
    let mut found = 0;
    for (owner, question, evidence) in questions {
        let answer = http.recall(owner, question, json!({"top_k": 10})).await;
        let memories = answer["memories"].as_array().expect("a list").clone();
        let is_found = memories.iter().any(|memory| {
            let turn = memory["source"]["turn_id"].as_str().unwrap_or_default();
            evidence.iter().any(|wanted| wanted == turn)
        });
        found += usize::from(is_found);
    }
    found as f64 / questions.len() as f64
}

#[tokio::test(flavor = "multi_thread")]
async fn a_long_conversation_is_imported_and_recalled() {
    let Some(data) = data() else { return };
    let file = data.join("locomo").join("conv-26.turns.jsonl");
    let questions: Vec<(String, String, Vec<String>)> =
        lines(&data.join("locomo").join("conv-26.qa.jsonl"))
            .into_iter()
            .filter(|line| line["category"] == json!("single_hop"))
            .map(|line| {
                let evidence = serde_json::from_value(line["evidence"].clone()).expect("ids");
                let question = line["question"].as_str().expect("a question").to_owned();
                ("real/patient/conv-26".to_owned(), question, evidence)
            })
            .take(20)
            .collect();
    let folder = Folder::new();
    import(&folder, &[], &file).expect(0);
    folder.check_sound();
    let server = folder.serve().await;
    let share = hits(&server, &questions).await;
    assert!(
        share >= 0.25,
        "evidence is found for {share} of the questions"
    );
    server.stop();

    let folder = Folder::new();
    let server = folder.serve().await;
    let owner = "real/patient/conv-26";
    server.grant(owner).await;
    let turns: Vec<Value> = lines(&file)
        .iter()
        .map(|turn| {
            json!({
                "event_id": turn["dia_id"], "turn_id": turn["dia_id"], "owner": owner,
                "source": "/dialogues", "role": "user", "speaker": turn["speaker"],
                "at": turn["session_time"], "text": turn["text"],
            })
        })
        .collect();
    post_all(&server, &turns).await;
    let share = hits(&server, &questions).await;
    assert!(
        share >= 0.25,
        "evidence is found for {share} of the questions"
    );
    server.settle().await;
    server.stop();
    folder.check_sound();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_chinese_diary_is_imported_and_recalled() {
    let Some(data) = data() else { return };
    let dir = data.join("memorybank");
    let file = dir.join("exchanges.zh.jsonl");
    let exchanges = lines(&file);
    let user = exchanges[0]["owner"].as_str().expect("an owner").to_owned();
    let owner = format!("real/patient/{user}");
    let questions: Vec<(String, String, Vec<String>)> = lines(&dir.join("questions.zh.jsonl"))
        .into_iter()
        .filter(|line| line["owner"] == json!(user) && line["type"] == json!("fact"))
        .map(|line| {
            let sets: Vec<Vec<String>> =
                serde_json::from_value(line["gold_any_of"].clone()).expect("ids");
            let question = line["question"].as_str().expect("a question").to_owned();
            (owner.clone(), question, sets.concat())
        })
        .collect();
    assert!(!questions.is_empty());
    let folder = Folder::new();
    import(&folder, &["--owner", &owner], &file).expect(0);
    folder.check_sound();
    let server = folder.serve().await;
    let share = hits(&server, &questions).await;
    assert!(
        share >= 0.5,
        "evidence is found for {share} of the questions"
    );
    let answer = server
        .recall(&owner, "你给我推荐过什么书？", json!({}))
        .await;
    assert_eq!(answer["answerable"], json!(true), "{answer}");
    server.stop();

    let folder = Folder::new();
    let server = folder.serve().await;
    server.grant(&owner).await;
    let mut events = Vec::new();
    for exchange in exchanges
        .iter()
        .filter(|exchange| exchange["owner"] == json!(user))
    {
        let at = format!(
            "{}T08:00:00+08:00",
            exchange["date"].as_str().expect("a day")
        );
        for role in ["user", "assistant"] {
            let id = exchange["ex_id"].as_str().expect("an id");
            events.push(json!({
                "event_id": format!("{id}-{role}"), "turn_id": id, "owner": owner,
                "source": "/diary", "role": role, "at": at, "text": exchange[role],
            }));
        }
    }
    post_all(&server, &events).await;
    let share = hits(&server, &questions).await;
    assert!(
        share >= 0.5,
        "evidence is found for {share} of the questions"
    );
    server.settle().await;
    server.stop();
    folder.check_sound();
}
