//! The whole product with a language model that a test speaks for: what is kept, what is said of the rest,
//! and that nothing is asked a second time.

use std::sync::{Arc, Mutex};

use axum::extract::State;
use axum::routing::post;
use axum::{Json, Router};
use serde_json::{Value, json};

use crate::node::{Folder, TENANT};

const DRAWER: &str = "备用的药都放在床头抽屉里";

/// Every text that was asked about, in order.
type Asked = Arc<Mutex<Vec<String>>>;

async fn answer(State(asked): State<Asked>, Json(question): Json<Value>) -> Json<Value> {
    let user = question["messages"][1]["content"].as_str().expect("a text");
    let user: Value = serde_json::from_str(user).expect("a question is JSON");
    let text = user["text"].as_str().expect("a text").to_owned();
    let fact = |quote: &str, kind: &str, value: Value, negated: bool| json!({"quote": quote, "kind": kind, "subject": "self", "value": value, "negated": negated, "amount": null});
    let facts = |facts: &[Value]| json!({"asks_to_remember": [], "facts": facts}).to_string();
    let content = if text.contains("青霉素") {
        // Both are lies.
        facts(&[
            fact("我对青霉素不过敏", "allergy", json!("青霉素"), false),
            fact("我对头孢过敏", "allergy", json!("头孢"), false),
        ])
    } else if text.contains("牙科") {
        "{\"facts\": [{".to_owned()
    } else if text.contains(DRAWER) {
        format!(
            "```json\n{}\n```",
            facts(&[fact(DRAWER, "fact", Value::Null, false)])
        )
    } else {
        facts(&[])
    };
    asked.lock().expect("nobody panics").push(text);
    Json(json!({
        "model": "scripted-2026",
        "choices": [{"message": {"role": "assistant", "content": content}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 1_000, "completion_tokens": 50},
    }))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_model_adds_what_was_said_and_nothing_else() {
    let asked = Asked::default();
    let router = Router::new()
        .route("/v1/chat/completions", post(answer))
        .with_state(asked.clone());
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0")
        .await
        .expect("a port");
    let address = listener.local_addr().expect("an address");
    let model = tokio::spawn(async move { axum::serve(listener, router).await });

    let config = format!(
        "[extraction]\nkind = \"chat\"\nurl = \"http://{address}/v1\"\nmodel = \"scripted\"\n\
         api_key_env = \"CANARY_KEY\"\n[telemetry]\nlevel = \"trace\""
    );
    let folder = Folder::new()
        .with_config(&config)
        .with("CANARY_KEY", "canary-key");
    let server = folder.serve().await;
    let owner = format!("{TENANT}/patient/m-1");
    server.grant(&owner).await;
    let said = [
        format!("{DRAWER}。"),
        "我对青霉素不过敏。".to_owned(),
        "牙科的号我约在周三，我对芒果过敏。".to_owned(),
        "我的密码是 abc12345。我住在杭州。".to_owned(),
    ];
    let events: Vec<Value> = (1..)
        .zip(&said)
        .map(|(number, text)| {
            json!({
                "event_id": format!("m{number}"), "owner": owner, "role": "user",
                "at": format!("2026-03-0{number}T09:00:00+08:00"), "text": text,
            })
        })
        .collect();
    let answer = server
        .post("/v1/events?wait=recallable", &events.into())
        .await;
    assert_eq!(answer.status, 202, "{}", answer.text);
    let listed = server
        .get(&format!("/v1/memories?owner={owner}&limit=100"))
        .await;
    let memories = listed.body["memories"].as_array().expect("a list").clone();
    let of = |text: &str| -> Vec<&Value> {
        let has = |m: &&Value| {
            m["text"].as_str().is_some_and(|t| t.contains(text)) && m["kind"] != "episode"
        };
        memories.iter().filter(has).collect()
    };

    let [drawer] = of(DRAWER)[..] else {
        panic!("{}", listed.text);
    };
    let source = &drawer["source"];
    assert_eq!(
        (
            &source["extractor"],
            &source["model"],
            &source["prompt_version"]
        ),
        (&json!("model"), &json!("scripted-2026"), &json!("v1"))
    );
    let penicillin = of("青霉素");
    assert!(
        penicillin
            .iter()
            .all(|m| m["polarity"] == "-" && m["source"]["extractor"] == "rules")
    );
    assert_eq!(of("头孢").len(), 0, "nobody said it");
    assert!(
        of("芒果")
            .iter()
            .all(|m| m["source"]["extractor"] == "rules_fallback")
    );
    assert_eq!(
        (penicillin.len(), of("芒果").len()),
        (1, 1),
        "{}",
        listed.text
    );

    let metrics = server.get("/metrics").await.text;
    let value = |series: &str| -> f64 {
        let line = metrics.lines().find(|line| line.starts_with(series));
        let value = line.and_then(|line| line.rsplit(' ').next()?.parse().ok());
        value.unwrap_or_else(|| panic!("{series} is not there"))
    };
    for (series, expected) in [
        ("anamnesis_model_calls_total{outcome=\"answered\"}", 4.0),
        ("anamnesis_model_tokens_total{part=\"prompt\"}", 4_000.0),
        (
            "anamnesis_extraction_fallbacks_total{code=\"broken_json\"}",
            1.0,
        ),
        (
            "anamnesis_answer_repairs_total{repair=\"surroundings\"}",
            1.0,
        ),
        ("anamnesis_rejects_total{code=\"negation_changed\"}", 1.0),
        ("anamnesis_rejects_total{code=\"quote_not_found\"}", 1.0),
        ("anamnesis_model_seconds_count", 4.0),
    ] {
        assert_eq!(value(series), expected, "{series}");
    }
    let texts = asked.lock().expect("nobody panics").clone();
    assert_eq!(texts.len(), 4);
    assert!(
        texts.iter().all(|text| !text.contains("abc12345")),
        "secrets are not asked about"
    );
    server.stop();

    // Neither what was said nor the key stands in a line of the log.
    let lines = folder.log_lines();
    for canary in [DRAWER, "青霉素", "canary-key"] {
        assert!(!lines.contains(canary), "{canary}");
    }
    // Everything is built again, and decided again, without asking anybody.
    model.abort();
    std::fs::remove_dir_all(folder.data().join("stores")).expect("stores are there");
    let server = folder.serve().await;
    let again = server
        .get(&format!("/v1/memories?owner={owner}&limit=100"))
        .await;
    assert_eq!(
        again.body["memories"].as_array().map(Vec::len),
        Some(memories.len())
    );
    server.stop();
    folder.run(&["audit", "verify"]).expect(0);
    assert_eq!(asked.lock().expect("nobody panics").len(), 4);
}
