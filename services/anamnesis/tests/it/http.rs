//! Does the whole story work over HTTP, in both languages and on both clocks, from every shape that
//! platforms send?

use std::time::{Duration, SystemTime};

use anamnesis_domain::time::Timestamp;
use serde_json::{Value, json};

use crate::node::{Folder, Http, TENANT, texts};

const PATIENT: &str = "hospital-7/patient/h-1";

fn said(n: u32, at: &str, role: &str, text: &str) -> Value {
    json!({
        "event_id": format!("e-{n}"), "owner": PATIENT, "source": "/front-desk", "role": role,
        "conversation_id": "c-1", "at": at, "text": text,
    })
}

async fn tell(http: &Http, event: &Value) -> Value {
    let answer = http
        .post("/v1/events?wait=decided", event)
        .await
        .expect(202);
    assert_eq!(answer["decided"], json!(true), "{answer}");
    answer["accepted"][0].clone()
}

/// An instant after everything before the call and before everything after it.
async fn between() -> String {
    let pause = Duration::from_millis(20);
    tokio::time::sleep(pause).await;
    let now = SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .expect("after 1970");
    tokio::time::sleep(pause).await;
    Timestamp::from_millis(now.as_millis() as i64).to_string()
}

#[track_caller]
fn first(answer: &Value, part: &str) -> Value {
    let first = answer["memories"][0].clone();
    let text = first["text"].as_str().unwrap_or_default();
    assert!(
        text.contains(part),
        "\"{part}\" does not come first: {:?} {answer}",
        texts(answer)
    );
    first
}

#[track_caller]
fn nowhere(answer: &Value, part: &str) {
    let found = texts(answer).into_iter().find(|text| text.contains(part));
    assert_eq!(found, None, "{answer}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_conversation_becomes_memories_that_follow_both_clocks() {
    let folder = Folder::new();
    let server = folder.serve().await;
    server.grant(PATIENT).await;
    let granted = server
        .get(&format!("/v1/consents?owner={PATIENT}"))
        .await
        .expect(200);
    assert_eq!(granted["granted"], json!(true));

    let at = "2025-02-10T09:00:00+08:00";
    tell(&server, &said(1, at, "user", "我对虾过敏，吃了嘴唇会肿。")).await;
    tell(
        &server,
        &said(2, at, "user", "My uncle has Parkinson's disease."),
    )
    .await;
    let dose = said(3, at, "user", "I take lisinopril 10 mg once daily.");
    tell(&server, &dose).await;
    let early = between().await;
    tell(
        &server,
        &said(
            4,
            "2026-01-15T09:00:00Z",
            "user",
            "My lisinopril dose was changed to 20 mg.",
        ),
    )
    .await;
    tell(
        &server,
        &said(
            5,
            "2026-05-02T09:00:00+08:00",
            "user",
            "我现在对虾不过敏了。",
        ),
    )
    .await;

    // Recall, in the language of the statement and in the other one for what is protected.
    let answer = server
        .recall(PATIENT, "What dose of lisinopril do I take?", json!({}))
        .await;
    let now = first(&answer, "20 mg");
    assert_eq!(
        (&now["status"], &now["kind"]),
        (&json!("active"), &json!("medication"))
    );
    let answer = server.recall(PATIENT, "我对虾过敏吗？", json!({})).await;
    assert_eq!(first(&answer, "虾")["polarity"], json!("-"), "{answer}");
    let answer = server
        .recall(PATIENT, "Does my uncle have a disease?", json!({}))
        .await;
    let uncle = first(&answer, "Parkinson");
    assert!(
        uncle["subject"]
            .as_str()
            .is_some_and(|subject| subject != "self"),
        "{uncle}"
    );
    let answer = server
        .recall(PATIENT, "Which diseases do I have?", json!({}))
        .await;
    nowhere(&answer, "Parkinson");
    let answer = server
        .recall(PATIENT, "What is my favourite opera?", json!({}))
        .await;
    assert_eq!(answer["answerable"], json!(false), "{answer}");

    // What was true then, and what was known then.
    let then = json!({"as_of": "2025-08-01T00:00:00Z"});
    let answer = server
        .recall(PATIENT, "What dose of lisinopril do I take?", then.clone())
        .await;
    first(&answer, "10 mg");
    let answer = server.recall(PATIENT, "我对虾过敏吗？", then).await;
    assert_eq!(first(&answer, "虾")["polarity"], json!("+"), "{answer}");
    let known = json!({"known_at": early});
    let answer = server
        .recall(PATIENT, "What dose of lisinopril do I take?", known)
        .await;
    first(&answer, "10 mg");
    nowhere(&answer, "20 mg");

    let listed = server
        .get(&format!("/v1/memories?owner={PATIENT}&kind=medication"))
        .await
        .expect(200);
    assert_eq!(texts(&listed).len(), 1, "{listed}");
    let id = listed["memories"][0]["id"]
        .as_str()
        .expect("an id")
        .to_owned();
    let one = server
        .get(&format!("/v1/memories/{id}?owner={PATIENT}&history=true"))
        .await
        .expect(200);
    assert_eq!(one["id"], json!(id));
    let explained = server
        .get(&format!("/v1/audit/memories/{id}?owner={PATIENT}"))
        .await
        .expect(200);
    assert!(explained.to_string().contains("20 mg"), "{explained}");
    let state = server
        .get(&format!("/v1/audit/state?owner={PATIENT}&as_of={at}").replace('+', "%2B"))
        .await;
    assert!(state.text.contains("10 mg"), "{}", state.text);
    state.expect(200);
    server.get("/v1/audit/verify").await.expect(200);
    server.get("/v1/audit/balance").await.expect(200);

    for path in ["/livez", "/readyz", "/metrics", "/"] {
        let answer = server.get(path).await;
        assert_eq!(answer.status, 200, "{path}: {}", answer.text);
    }
    let open = server
        .post("/v1/recall", &json!({"owner": PATIENT, "query": "虾"}))
        .await;
    assert_eq!(
        open.headers["x-anamnesis-open"], "true",
        "an open server says so"
    );
    server.settle().await;
    server.stop();
    folder.check_sound();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_person_remembers_corrects_and_decides() {
    let folder = Folder::new();
    let server = folder.serve().await;
    server.grant(PATIENT).await;

    let body = json!({"owner": PATIENT, "text": "周三下午不要打电话", "kind": "constraint"});
    let answer = server
        .post("/v1/remember?wait=recallable", &body)
        .await
        .expect(202);
    let id = answer["memory_id"].as_str().expect("an id").to_owned();
    assert_eq!(answer["position"]["topic"], json!("commands"));
    let found = server
        .recall(PATIENT, "周三下午可以打电话吗", json!({}))
        .await;
    assert_eq!(first(&found, "周三")["id"], json!(id));

    // The correction holds as long as the wrong one did, and the second of two editors is told.
    let one = server
        .get(&format!("/v1/memories/{id}?owner={PATIENT}"))
        .await
        .expect(200);
    let version = one["version"].clone();
    let body = json!({
        "owner": PATIENT, "memory_id": id, "text": "周四下午不要打电话", "reason": "说错了",
        "expected_version": version,
    });
    server
        .post("/v1/correct?wait=decided", &body)
        .await
        .expect(202);
    let again = server.post("/v1/correct?wait=decided", &body).await;
    assert_eq!(
        (again.status, &again.body["code"]),
        (409, &json!("version")),
        "{}",
        again.text
    );
    let found = server
        .recall(PATIENT, "哪天下午不要打电话", json!({}))
        .await;
    first(&found, "周四");
    nowhere(&found, "周三");

    // A dose that jumps tenfold waits for a person; the first decision wins.
    tell(
        &server,
        &said(
            1,
            "2026-05-01T08:00:00Z",
            "user",
            "I take amlodipine 5 mg daily.",
        ),
    )
    .await;
    tell(
        &server,
        &said(
            2,
            "2026-05-02T08:00:00Z",
            "user",
            "I take amlodipine 50 mg daily.",
        ),
    )
    .await;
    let reviews = server
        .get(&format!("/v1/reviews?owner={PATIENT}&state=open"))
        .await
        .expect(200);
    let review = reviews["reviews"][0].clone();
    assert!(
        review["new"]["text"].to_string().contains("50 mg"),
        "{reviews}"
    );
    let path = format!(
        "/v1/reviews/{}/decision",
        review["id"].as_str().expect("an id")
    );
    let body = json!({
        "owner": PATIENT, "decision": "keep_old", "reason": "a slip of the pen",
        "expected_version": review["expected_version"],
    });
    server.post(&path, &body).await.expect(200);
    let second = server.post(&path, &body).await;
    assert_eq!(second.status, 409, "{}", second.text);
    assert!(
        second.body["winner"]["status"].is_string(),
        "{}",
        second.text
    );
    // Who, when and what.
    let winner = &second.body["winner"];
    assert_eq!(
        (&winner["decision"], &winner["by"], &winner["reason"]),
        (
            &json!("keep_old"),
            &json!("local"),
            &json!("a slip of the pen")
        )
    );
    assert!(winner["at"].is_string(), "{}", second.text);
    let decided = server
        .get(&format!("/v1/reviews?owner={PATIENT}&state=decided"))
        .await
        .expect(200);
    assert_eq!(decided["reviews"][0]["decision"]["by"], json!("local"));
    let answer = server
        .recall(PATIENT, "What dose of amlodipine?", json!({}))
        .await;
    first(&answer, "5 mg");
    nowhere(&answer, "50 mg");

    // Restricted: kept and not recalled.
    let body = json!({
        "owner": PATIENT, "memory_ids": [answer["memories"][0]["id"]], "mode": "restrict",
        "reason": "a dispute",
    });
    server
        .post("/v1/forget?wait=decided", &body)
        .await
        .expect(202);
    let answer = server
        .recall(
            PATIENT,
            "What dose of amlodipine?",
            json!({"kinds": ["medication"]}),
        )
        .await;
    nowhere(&answer, "amlodipine");
    server.settle().await;
    server.stop();
    folder.check_sound();
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_forgotten_is_gone_at_once_and_says_so() {
    let folder = Folder::new();
    let server = folder.serve().await;
    let other = format!("{TENANT}/patient/h-2");
    server.grant(PATIENT).await;
    server.grant(&other).await;
    let mut cherry = said(
        1,
        "2026-04-01T08:00:00Z",
        "user",
        "I am allergic to cherries.",
    );
    cherry["source"] = json!("/leaflet");
    let cherry_token = tell(&server, &cherry).await["token"].clone();
    let mut plum = said(2, "2026-04-01T08:01:00Z", "user", "我对李子过敏。");
    plum["source"] = json!("/letter");
    tell(&server, &plum).await;
    tell(
        &server,
        &said(3, "2026-04-01T08:02:00Z", "user", "I am allergic to figs."),
    )
    .await;
    let mut foreign = said(4, "2026-04-01T08:03:00Z", "user", "I am allergic to figs.");
    foreign["owner"] = json!(other);
    tell(&server, &foreign).await;

    let forget = async |what: Value| {
        let mut body = json!({"owner": PATIENT, "mode": "erase", "reason": "asked"});
        let fields = body.as_object_mut().expect("an object");
        fields.extend(what.as_object().cloned().unwrap_or_default());
        let answer = server
            .post("/v1/forget?wait=decided", &body)
            .await
            .expect(202);
        assert_eq!(answer["outcome"], json!("stored"), "{answer}");
        answer["erasure_id"]
            .as_str()
            .expect("an erasure")
            .to_owned()
    };
    let of_allergies = async |owner: &str| {
        let path = format!("/v1/memories?owner={owner}&kind=allergy,episode&limit=100");
        texts(&server.get(&path).await.expect(200)).join("\n")
    };
    let id = async |part: &str| {
        let path = format!("/v1/memories?owner={PATIENT}&kind=allergy");
        let page = server.get(&path).await.expect(200);
        let memories = page["memories"].as_array().expect("a list").clone();
        let found = memories
            .iter()
            .find(|memory| memory["text"].to_string().contains(part));
        found.expect("it is listed")["id"]
            .as_str()
            .expect("an id")
            .to_owned()
    };

    let cherry_id = id("cherries").await;
    let erasure = forget(json!({"message": cherry_token})).await;
    assert!(!of_allergies(PATIENT).await.contains("cherries"));
    let gone = server
        .get(&format!("/v1/memories/{cherry_id}?owner={PATIENT}"))
        .await;
    assert_eq!(
        (gone.status, &gone.body["code"]),
        (410, &json!("erased")),
        "{}",
        gone.text
    );
    assert!(gone.text.contains(&erasure), "{}", gone.text);

    forget(json!({"source": "/letter"})).await;
    let left = of_allergies(PATIENT).await;
    assert!(!left.contains("李子") && left.contains("figs"), "{left}");

    forget(json!({"memory_ids": [id("figs").await]})).await;
    assert_eq!(of_allergies(PATIENT).await, "");

    // The same event again stays erased; the other owner has what it said.
    let again = tell(&server, &cherry).await;
    let state = server
        .get(&format!("/v1/audit/state?owner={PATIENT}"))
        .await
        .expect(200);
    assert!(!state.to_string().contains("cherries"), "{again} {state}");
    assert!(of_allergies(&other).await.contains("figs"));

    forget(json!({"all": true})).await;
    let answer = server
        .recall(PATIENT, "What am I allergic to?", json!({}))
        .await;
    assert_eq!(
        (&answer["answerable"], texts(&answer).len()),
        (&json!(false), 0),
        "{answer}"
    );
    assert!(of_allergies(&other).await.contains("figs"));
    // A new consent is a new beginning.
    server.grant(PATIENT).await;
    tell(
        &server,
        &said(9, "2026-04-02T08:00:00Z", "user", "我对桃子过敏。"),
    )
    .await;
    assert!(of_allergies(PATIENT).await.contains("桃子"));
    server.settle().await;
    let balance = server.get("/v1/audit/balance").await.expect(200);
    assert_eq!(
        balance["decided"]["rejected(erased)"],
        json!(1),
        "{balance}"
    );
    server.stop();
    folder.check_sound();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_older_statement_that_arrives_later_supersedes_nothing() {
    let folder = Folder::new();
    let server = folder.serve().await;
    let weight = |n: u32, at: &str, kilos: u32| {
        let mut event = said(n, at, "user", &format!("我体重{kilos}公斤。"));
        event["owner"] = json!(format!("{TENANT}/patient/w-{}", n % 10));
        event
    };
    let (newer, older) = ("2026-06-01T08:00:00Z", "2026-01-15T08:00:00Z");
    for owner in 0..3 {
        server.grant(&format!("{TENANT}/patient/w-{owner}")).await;
    }
    tell(&server, &weight(10, newer, 72)).await;
    let between = between().await;
    tell(&server, &weight(20, older, 80)).await;
    tell(&server, &weight(21, older, 80)).await;
    tell(&server, &weight(11, newer, 72)).await;
    let batch = json!([weight(22, older, 80), weight(12, newer, 72)]);
    server
        .post("/v1/events?wait=decided", &batch)
        .await
        .expect(202);
    for owner in 0..3 {
        let owner = format!("{TENANT}/patient/w-{owner}");
        let path = format!("/v1/memories?owner={owner}&kind=measurement");
        let now = texts(&server.get(&path).await.expect(200));
        assert!(now.len() == 1 && now[0].contains("72"), "{owner}: {now:?}");
        let past = format!("{path}&as_of=2026-03-01T00:00:00Z");
        let past = texts(&server.get(&past).await.expect(200));
        assert!(
            past.len() == 1 && past[0].contains("80"),
            "{owner}: {past:?}"
        );
    }
    let known = json!({"known_at": between, "as_of": "2026-03-01T00:00:00Z"});
    let answer = server
        .recall(&format!("{TENANT}/patient/w-0"), "我的体重是多少", known)
        .await;
    nowhere(&answer, "80");
    server.stop();
}

/// One event of each accepted shape: each says one allergy of its own.
fn shapes() -> Vec<(&'static str, &'static str, Value)> {
    let owner = "hospital-7/patient/s-1";
    let nanos = "1767225600000000000";
    vec![
        (
            "plain",
            "pollen",
            json!({
                "event_id": "s-1", "owner": owner, "role": "user", "at": "2026-01-01T00:00:00Z",
                "text": "I am allergic to pollen.",
            }),
        ),
        (
            "cloud event",
            "latex",
            json!({
                "specversion": "1.0", "id": "s-2", "source": "/app", "type": "said", "subject": owner,
                "time": "2026-01-01T00:00:00Z", "data": {"role": "user", "text": "I am allergic to latex."},
            }),
        ),
        (
            "kafka record",
            "虾",
            json!({
                "key": owner,
                "headers": {
                    "ce_specversion": "1.0", "ce_id": "s-3", "ce_source": "/app", "ce_type": "said",
                    "ce_time": "2026-01-01T00:00:00Z",
                },
                "value": {"role": "user", "text": "我对虾过敏。"},
            }),
        ),
        (
            "chat completion",
            "peanuts",
            json!({
                "id": "s-4", "object": "chat.completion", "created": 1_767_225_600,
                "metadata": {"patient_id": owner},
                "messages": [{"role": "user", "content": "I am allergic to peanuts."}],
                "choices": [{"index": 0, "message": {"role": "assistant", "content": "Noted."}}],
            }),
        ),
        (
            "response",
            "大豆",
            json!({
                "id": "s-5", "object": "response", "created_at": 1_767_225_600,
                "metadata": {"patient_id": owner}, "input": "我对大豆过敏。",
                "output": [{"type": "message", "id": "m", "role": "assistant",
                    "content": [{"type": "output_text", "text": "好的。"}]}],
            }),
        ),
        (
            "anthropic",
            "eggs",
            json!({
                "id": "s-6", "type": "message", "role": "assistant", "created_at": "2026-01-01T00:00:00Z",
                "metadata": {"user_id": owner},
                "messages": [{"role": "user", "content": [{"type": "text", "text": "I am allergic to eggs."}]}],
                "content": [{"type": "text", "text": "I will remember that."}],
            }),
        ),
        (
            "checkpoint",
            "牛奶",
            json!({
                "config": {"configurable": {"thread_id": "t", "user_id": owner}},
                "checkpoint": {"v": 1, "id": "s-7", "ts": "2026-01-01T00:00:00+00:00", "channel_values": {
                    "messages": [{"type": "human", "id": "h", "content": "我对牛奶过敏。"}]}},
            }),
        ),
        (
            "inference event",
            "walnuts",
            json!({
                "timeUnixNano": nanos, "eventName": "gen_ai.client.inference.operation.details",
                "spanId": "s8", "attributes": {
                    "gen_ai.operation.name": "chat", "user.id": owner,
                    "gen_ai.input.messages": [{"role": "user",
                        "parts": [{"type": "text", "content": "I am allergic to walnuts."}]}],
                },
            }),
        ),
        (
            "open inference",
            "芒果",
            json!({
                "name": "llm", "context": {"span_id": "s9"}, "start_time": "2026-01-01T00:00:00Z",
                "attributes": {
                    "openinference.span.kind": "LLM", "user.id": owner,
                    "llm.input_messages.0.message.role": "user",
                    "llm.input_messages.0.message.content": "我对芒果过敏。",
                },
            }),
        ),
        (
            "communication",
            "penicillin",
            json!({
                "resourceType": "Communication", "id": "s-10", "status": "completed",
                "subject": {"reference": "Patient/s-1"}, "sender": {"reference": "Patient/s-1"},
                "sent": "2026-01-01T00:00:00Z",
                "payload": [{"contentString": "I am allergic to penicillin."}],
            }),
        ),
        (
            "allergy",
            "头孢",
            json!({
                "resourceType": "AllergyIntolerance", "id": "s-11",
                "patient": {"reference": "Patient/s-1"}, "recordedDate": "2026-01-01T00:00:00Z",
                "code": {"text": "头孢"},
                "clinicalStatus": {"coding": [{"code": "active"}]},
            }),
        ),
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn an_event_of_every_shape_becomes_a_memory() {
    let folder = Folder::new();
    let server = folder.serve().await;
    let owner = "hospital-7/patient/s-1";
    server.grant(owner).await;
    for (shape, _, event) in shapes() {
        let answer = server.post("/v1/events?wait=decided", &event).await;
        assert_eq!(answer.status, 202, "{shape}: {}", answer.text);
    }
    let binary = [
        ("content-type", "application/json"),
        ("ce-specversion", "1.0"),
        ("ce-id", "s-12"),
        ("ce-source", "/app"),
        ("ce-type", "said"),
        ("ce-subject", owner),
        ("ce-time", "2026-01-01T00:00:00Z"),
    ];
    let body = r#"{"role": "user", "text": "I am allergic to mustard."}"#;
    server
        .post_raw("/v1/events?wait=decided", &binary, body)
        .await
        .expect(202);

    let page = server
        .get(&format!("/v1/memories?owner={owner}&kind=allergy&limit=50"))
        .await;
    let page = page.expect(200);
    let found = texts(&page).join("\n");
    let words = shapes()
        .into_iter()
        .map(|(_, word, _)| word)
        .chain(["mustard"]);
    for word in words {
        assert!(found.contains(word), "{word} is missing in {found}");
    }
    assert_eq!(texts(&page).len(), 12, "{found}");
    server.stop();
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_call_waited_for_is_recalled_at_once() {
    let folder = Folder::new();
    let server = folder.serve().await;
    server.grant(PATIENT).await;
    for round in 0..8 {
        let word = format!("topaz{round}stone");
        let mut batch: Vec<Value> = (0..60)
            .map(|n| {
                said(
                    round * 100 + n,
                    "2026-02-01T08:00:00Z",
                    "user",
                    "The ward was quiet.",
                )
            })
            .collect();
        let last = format!("The visitor brought a {word} from the sea.");
        batch.push(said(
            round * 100 + 99,
            "2026-02-01T08:01:00Z",
            "user",
            &last,
        ));
        server
            .post("/v1/events?wait=recallable", &json!(batch))
            .await
            .expect(202);
        first(
            &server
                .recall(PATIENT, &format!("Who brought the {word}?"), json!({}))
                .await,
            &word,
        );

        let word = format!("opal{round}stone");
        let body = json!({"owner": PATIENT, "text": format!("Keep the {word} locked.")});
        server
            .post("/v1/remember?wait=recallable", &body)
            .await
            .expect(202);
        first(
            &server
                .recall(PATIENT, &format!("Where is the {word}?"), json!({}))
                .await,
            &word,
        );
    }
    server.stop();
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_written_by_hand_is_compared_with_what_is_said() {
    let folder = Folder::new();
    let server = folder.serve().await;
    server.grant(PATIENT).await;
    let remember = async |text: &str| {
        let body = json!({"owner": PATIENT, "text": text});
        let answer = server.post("/v1/remember?wait=recallable", &body).await;
        let id = answer.expect(202)["memory_id"].clone();
        let id = id.as_str().expect("an id").to_owned();
        let path = format!("/v1/memories/{id}?owner={PATIENT}");
        server.get(&path).await.expect(200)
    };
    for (text, kind, value) in [
        ("Patient is allergic to latex", "allergy", "latex"),
        ("患者对芒果过敏", "allergy", "mango"),
        ("The ward is quiet after nine", "fact", "-"),
    ] {
        let one = remember(text).await;
        assert_eq!(one["kind"], json!(kind), "{one}");
        assert_eq!(one["value"].as_str().unwrap_or("-"), value, "{one}");
    }
    let opposite = remember("Patient is not allergic to latex").await;
    assert_eq!(opposite["status"], json!("conflicted"), "{opposite}");

    // A corrected dose is a dose: a slip after it is seen.
    let dose = remember("I take metoprolol 25 mg twice daily").await;
    let body = json!({
        "owner": PATIENT, "memory_id": dose["id"], "reason": "typing error",
        "text": "I take metoprolol 50 mg twice daily",
    });
    let answer = server.post("/v1/correct", &body).await.expect(202);
    let id = answer["memory_id"].as_str().expect("an id");
    let path = format!("/v1/memories/{id}?owner={PATIENT}");
    let corrected = server.get(&path).await.expect(200);
    assert_eq!(corrected["schedule"], json!("twice_daily"), "{corrected}");
    let slip = remember("I take metoprolol 500 mg twice daily").await;
    assert_eq!(slip["status"], json!("conflicted"), "{slip}");
}
