//! A talk about one thing that never pauses: is it remembered while it goes on, and does what was once
//! told stay told? And does writing wait for a model that reads slowly?

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::routing::post;
use axum::{Json, Router};
use serde_json::{Value, json};
use tokio::sync::Semaphore;

use crate::node::{Folder, Http, TENANT};

fn owner(name: &str) -> String {
    format!("{TENANT}/patient/{name}")
}

fn turn(owner: &str, number: usize, text: &str) -> Value {
    json!({
        "event_id": format!("t-{number}"), "owner": owner, "source": "/chat",
        "conversation_id": "c-1", "role": if number % 2 == 1 { "user" } else { "assistant" },
        "at": format!("2026-03-01T{:02}:{:02}:00+08:00", 9 + number / 60, number % 60),
        "text": text,
    })
}

/// Ids of all that holds of an owner.
async fn visible(http: &Http, owner: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut cursor = String::new();
    loop {
        let path = format!("/v1/memories?owner={owner}&limit=200{cursor}");
        let page = http.get(&path).await.expect(200);
        for memory in page["memories"].as_array().expect("a list") {
            found.insert(memory["id"].as_str().expect("an id").to_owned());
        }
        match page["cursor"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => return found,
        }
    }
}

/// C25: 150 turns about one thing in one conversation without a pause. What was said is recallable as
/// soon as a write says so, the middle of the talk finds its beginning, and nothing that was once shown
/// disappears without a decision.
#[tokio::test(flavor = "multi_thread")]
async fn a_long_talk_about_one_thing_is_remembered_while_it_goes_on() {
    let folder = Folder::new();
    let server = folder.serve().await;
    for (name, fact, question, lines) in [
        (
            "zh",
            "我左膝的疼是从打羽毛球扭伤以后开始的。",
            "我的左膝是怎么开始疼的？",
            ["膝盖上楼的时候还是疼，编号", "膝盖可以先冷敷一下，编号"],
        ),
        (
            "en",
            "The pain in my left knee began when I twisted it playing badminton.",
            "How did the pain in my left knee begin?",
            [
                "The knee still hurts on the stairs, number",
                "You could cool the knee first, number",
            ],
        ),
    ] {
        let owner = owner(name);
        server.grant(&owner).await;
        let mut seen = BTreeSet::new();
        for number in 1..=150 {
            let text = match number {
                5 => fact.to_owned(),
                _ => format!("{} {number}", lines[usize::from(number % 2 == 0)]),
            };
            let event = turn(&owner, number, &text);
            let answer = server
                .post("/v1/events?wait=recallable", &event)
                .await
                .expect(202);
            assert_eq!(answer["decided"], json!(true), "turn {number}");
            if number % 30 == 0 {
                let answer = server.recall(&owner, question, json!({})).await;
                let first = &answer["memories"][0]["text"];
                assert_eq!(first, &json!(fact), "at turn {number}");
                let now = visible(&server, &owner).await;
                let lost: Vec<&String> = seen.difference(&now).collect();
                assert_eq!(lost, Vec::<&String>::new(), "gone by turn {number}");
                assert!(now.len() >= number, "{} of {number} are there", now.len());
                seen = now;
            }
        }
        for _ in 0..10 {
            let answer = server.recall(&owner, question, json!({})).await;
            assert_eq!(answer["memories"][0]["text"], json!(fact));
        }
    }
    server.stop();
    folder.check_sound();
}

/// A model that answers nothing until it may.
async fn held_back(may: Arc<Semaphore>) -> String {
    let answer = move |Json(_): Json<Value>| {
        let may = may.clone();
        async move {
            may.acquire().await.expect("it is not closed").forget();
            let content = json!({"asks_to_remember": [], "facts": []}).to_string();
            Json(json!({
                "model": "slow",
                "choices": [{"message": {"role": "assistant", "content": content}, "finish_reason": "stop"}],
                "usage": {"prompt_tokens": 100, "completion_tokens": 10},
            }))
        }
    };
    let router = Router::new().route("/v1/chat/completions", post(answer));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0")
        .await
        .expect("a port");
    let address = listener.local_addr().expect("an address");
    tokio::spawn(async move { axum::serve(listener, router).await });
    format!("http://{address}/v1")
}

async fn metric(http: &Http, series: &str) -> f64 {
    let metrics = http.get("/metrics").await.text;
    let line = metrics.lines().find(|line| line.starts_with(series));
    line.and_then(|line| line.rsplit(' ').next()?.parse().ok())
        .unwrap_or(0.0)
}

/// C22: while a model holds its answers back, writes are accepted and stay in flight, visibly; when it
/// answers, all are decided, and the numbers say how many calls and tokens that took.
#[tokio::test(flavor = "multi_thread")]
async fn writing_does_not_wait_for_a_slow_model_and_its_cost_is_told() {
    const EVENTS: usize = 200;
    let may = Arc::new(Semaphore::new(0));
    let url = held_back(may.clone()).await;
    let config = format!(
        "[extraction]\nkind = \"chat\"\nurl = \"{url}\"\nmodel = \"slow\"\ntimeout = \"600s\"\n\
         patience = \"900s\"\n"
    );
    let folder = Folder::new().with_config(&config);
    let server = folder.serve().await;
    let started = Instant::now();
    for number in 0..10 {
        server.grant(&owner(&format!("p-{number}"))).await;
    }
    for number in 0..EVENTS {
        let event = json!({
            "event_id": format!("e-{number}"), "owner": owner(&format!("p-{}", number % 10)),
            "role": "user", "at": "2026-03-01T09:00:00+08:00",
            "text": format!("I am allergic to mango, order number A-{number}."),
        });
        let answer = server.post("/v1/events", &event).await.expect(202);
        assert!(
            answer["accepted"][0]["position"]["offset"].is_u64(),
            "{answer}"
        );
    }
    let taken = started.elapsed();
    assert!(
        taken < Duration::from_secs(100),
        "{taken:?} for {EVENTS} writes"
    );
    let balance = server.get("/v1/audit/balance").await.expect(200);
    assert_eq!(balance["in_flight"], json!(EVENTS), "{balance}");
    assert_eq!(metric(&server, "anamnesis_model_calls_total{").await, 0.0);

    may.add_permits(EVENTS);
    server.settle().await;
    for (series, expected) in [
        ("anamnesis_model_calls_total{outcome=\"answered\"}", EVENTS),
        (
            "anamnesis_model_tokens_total{part=\"prompt\"}",
            EVENTS * 100,
        ),
        (
            "anamnesis_model_tokens_total{part=\"completion\"}",
            EVENTS * 10,
        ),
    ] {
        assert_eq!(metric(&server, series).await, expected as f64, "{series}");
    }
    server.stop();
    let balance = folder.check_sound();
    assert_eq!(
        balance["decided"]["stored"],
        json!(EVENTS + 10),
        "{balance}"
    );
}
