//! What do services do while what they need is not there? They wait, say what for, and go on by
//! themselves; an answer never waits for a store that it can do without.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::fleet::{Fleet, Kind, Servers};
use crate::node::{Http, TENANT, texts};

const PARTITIONS: u32 = 2;

/// Far above what it takes not to ask, far below any deadline of a stopped server.
const SOON_MS: f64 = 1_500.0;

fn owner() -> String {
    format!("{TENANT}/patient/p-1")
}

async fn say(intake: &Http, id: &str, text: &str) {
    let event = json!([{
        "event_id": id, "owner": owner(), "role": "user", "at": "2026-03-01T09:00:00+08:00",
        "text": text,
    }]);
    let answer = intake
        .post("/v1/events?wait=recallable", &event)
        .await
        .expect(202);
    assert_eq!(answer["decided"], json!(true), "{answer}");
}

async fn ask(recall: &Http, query: &str) -> Value {
    let question = json!({"owner": owner(), "query": query});
    recall.post("/v1/recall", &question).await.expect(200)
}

/// Asks until the store is left alone: the first questions after it stopped wait for their deadline.
async fn until_left_alone(recall: &Http, leg: &str) {
    for _ in 0..4 {
        let answer = ask(recall, "Am I allergic to mango?").await;
        assert_eq!(
            texts(&answer).first().map(String::as_str),
            Some("我对芒果过敏")
        );
        assert!(
            answer["degraded"]
                .as_array()
                .is_some_and(|parts| parts.contains(&json!(leg))),
            "{answer}"
        );
    }
}

async fn until_ran(recall: &Http, leg: &str) {
    let deadline = Instant::now() + Duration::from_secs(120);
    loop {
        let answer = ask(recall, "Am I allergic to mango?").await;
        if answer["legs"][leg]["ran"] == json!(true) {
            return;
        }
        assert!(
            Instant::now() < deadline,
            "{leg} does not come back: {answer}"
        );
        tokio::time::sleep(Duration::from_millis(250)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn services_wait_for_topics_and_say_so() {
    let mut fleet = Fleet::without_topics(Servers::shared, PARTITIONS);
    fleet.start("recall", "recall-a");
    fleet.start("intake", "intake-a");
    let recall = fleet.http("recall-a");
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        let answer = recall.get("/readyz").await;
        assert_eq!(answer.status, 503, "{}", answer.text);
        if answer.text.contains("anamnesis topics create makes them") {
            break;
        }
        assert!(Instant::now() < deadline, "{}", answer.text);
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert_eq!(recall.get("/livez").await.status, 200);
    fleet
        .run(&["topics", "check"])
        .expect(1)
        .says(&["is missing"]);
    fleet.run(&["topics", "create"]).expect(0);
    fleet.start_all().await;
    fleet.http("intake-a").grant(&owner()).await;
    // A copy belongs to one indexer.
    let second = fleet.run_as("indexer-0a", &["indexer", "--listen", "127.0.0.1:0"]);
    second.expect(3).says(&["in use"]);
    fleet.check_alive();
    say(&fleet.http("intake-a"), "e1", "我对芒果过敏，帮我记住。").await;
    fleet.settle().await;
    fleet.check_sound();
}

/// a server that hangs, and one that was killed and comes back. What protects is told
/// all the time, and the answer says what it did without.
#[tokio::test(flavor = "multi_thread")]
async fn a_stopped_server_costs_what_it_does_and_nothing_else() {
    let mut fleet = Fleet::new(Servers::own, PARTITIONS);
    fleet.start_all().await;
    let (intake, recall) = (fleet.http("intake-a"), fleet.http("recall-a"));
    intake.grant(&owner()).await;
    say(&intake, "e1", "我对芒果过敏，帮我记住。").await;
    fleet.settle().await;
    until_ran(&recall, "graph").await;
    until_ran(&recall, "vector").await;

    // A server that neither answers nor closes its sockets; then one that is gone.
    for (kind, leg) in [(Kind::Neo4j, "graph"), (Kind::Qdrant, "vector")] {
        fleet.servers.signal(kind, "STOP");
        until_left_alone(&recall, leg).await;
        for _ in 0..10 {
            let answer = ask(&recall, "我对什么过敏").await;
            assert_eq!(
                texts(&answer).first().map(String::as_str),
                Some("我对芒果过敏")
            );
            // What the others take is the machine's affair; this one is not waited for.
            let waited = answer["legs"][leg]["ms"].as_f64();
            assert!(waited.is_some_and(|ms| ms < SOON_MS), "{answer}");
        }
        // What is said meanwhile is decided and recalled.
        say(&intake, leg, "I take lisinopril 10 mg daily.").await;
        fleet.servers.signal(kind, "CONT");
        until_ran(&recall, leg).await;
        fleet.servers.kill(kind);
        until_left_alone(&recall, leg).await;
        fleet.servers.start_again(kind);
        until_ran(&recall, leg).await;
    }
    fleet.settle().await;
    fleet.check_alive();
    fleet.check_sound();

    // Without a broker nothing is accepted, and every service still ends when it is asked to.
    fleet.servers.kill(Kind::Kafka);
    let event = json!([{
        "event_id": "late", "owner": owner(), "role": "user", "at": "2026-03-01T09:00:00+08:00",
        "text": "I take aspirin.",
    }]);
    let refused = intake.post("/v1/events", &event).await;
    assert_eq!(refused.status, 503, "{}", refused.text);
    for name in fleet.running() {
        fleet.stop(&name);
    }
}
