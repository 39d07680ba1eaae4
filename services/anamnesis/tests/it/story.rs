//! A settled folder for tests that begin where something was remembered: three patients, two
//! languages, changes, corrections, and much that was forgotten again.

use std::sync::Arc;

use anamnesis::config::{Config, Period};
use anamnesis::node::Node;
use anamnesis_domain::owner::OwnerScope;
use anamnesis_domain::text::Text;
use anamnesis_domain::time::Timestamp;
use anamnesis_pipeline::clock::ManualClock;
use anamnesis_recall::request::RecallRequest;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::node::{Folder, Http, TENANT, owner_key};

pub(crate) const PATIENTS: [&str; 3] = ["liu", "mora", "nagy"];

pub(crate) fn patient(name: &str) -> String {
    format!("{TENANT}/patient/{name}")
}

/// When somebody looks back at the story: after all of it.
pub(crate) const NOW: &str = "2126-01-01T00:00:00Z";

const LINES: [(&str, &str); 14] = [
    ("2025-01-05", "我对花生过敏，吃了会起疹子。"),
    ("2025-01-06", "I take metformin 500 mg twice daily."),
    ("2025-02-01", "我爸有高血压。"),
    ("2025-02-02", "My mother is allergic to penicillin."),
    ("2025-03-03", "我不喜欢打针。"),
    ("2025-04-01", "I had my appendix removed in 2019."),
    ("2025-05-01", "我每天吃阿托伐他汀 20 mg。"),
    ("2025-06-01", "My metformin dose was changed to 1000 mg."),
    ("2025-07-01", "请记住：不要在早上九点前打电话给我。"),
    ("2025-08-01", "I am allergic to shellfish."),
    ("2025-09-01", "我体重 70 公斤。"),
    ("2026-01-10", "I weigh 68 kg now."),
    ("2026-02-01", "其实我对花生不过敏了。"),
    ("2026-03-01", "I live in Chengdu and work as a teacher."),
];

fn event(name: &str, number: usize, day: &str, text: &str) -> Value {
    json!({
        "event_id": format!("{name}-{number}"), "owner": patient(name), "role": "user",
        "source": format!("/clinic/{}", number % 4), "at": format!("{day}T09:00:00+08:00"),
        "text": text,
    })
}

/// Tells the story through the real server and leaves the folder settled. With `forgetful`, a third of
/// it is erased again.
pub(crate) async fn tell(folder: &Folder, forgetful: bool) {
    let server = folder.serve().await;
    for name in PATIENTS {
        server.grant(&patient(name)).await;
        let mut events: Vec<Value> = LINES
            .iter()
            .enumerate()
            .map(|(number, (day, text))| event(name, number, day, text))
            .collect();
        for number in 20..32 {
            let text = format!("The ward round of {name} number {number} was quiet.");
            events.push(event(name, number, "2026-04-01", &text));
        }
        let answer = server
            .post("/v1/events?wait=decided", &json!(events))
            .await
            .expect(202);
        assert_eq!(answer["decided"], json!(true), "{answer}");
        let tokens: Vec<&Value> = answer["accepted"]
            .as_array()
            .expect("a list")
            .iter()
            .map(|accepted| &accepted["token"])
            .collect();
        correct(&server, name).await;
        if forgetful {
            for token in tokens.iter().skip(1).step_by(3) {
                erase(&server, name, json!({"message": token})).await;
            }
        }
    }
    if forgetful {
        erase(&server, "mora", json!({"source": "/clinic/2"})).await;
        erase(&server, "nagy", json!({"all": true})).await;
        server.grant(&patient("nagy")).await;
        let back = event("nagy", 90, "2026-05-01", "我对芒果过敏。");
        server
            .post("/v1/events?wait=decided", &back)
            .await
            .expect(202);
    }
    server.settle().await;
    server.stop();
}

async fn correct(http: &Http, name: &str) {
    let owner = patient(name);
    let body = json!({
        "owner": owner, "text": "The patient prefers afternoon visits.", "kind": "preference",
        "valid_from": "2025-01-01T00:00:00Z",
    });
    let remembered = http
        .post("/v1/remember?wait=decided", &body)
        .await
        .expect(202);
    let body = json!({
        "owner": owner, "memory_id": remembered["memory_id"], "reason": "misheard",
        "text": "The patient prefers morning visits.",
    });
    http.post("/v1/correct?wait=decided", &body)
        .await
        .expect(202);
}

pub(crate) async fn erase(http: &Http, name: &str, what: Value) {
    let mut body = json!({"owner": patient(name), "mode": "erase", "reason": "asked"});
    let fields = body.as_object_mut().expect("an object");
    fields.extend(what.as_object().cloned().unwrap_or_default());
    let answer = http
        .post("/v1/forget?wait=decided", &body)
        .await
        .expect(202);
    assert_eq!(answer["outcome"], json!("stored"), "{answer}");
}

/// The bytes of recall's answers to many questions, at a fixed now, without ids and timings.
pub(crate) async fn answers(folder: &Folder) -> Vec<String> {
    let now = Timestamp::parse(NOW).expect("an instant");
    let mut config = Config {
        tenant: TENANT.to_owned(),
        ..Config::default()
    };
    config.data_dir = folder.data().to_owned();
    // On a busy machine a leg that is late would be left out.
    let long = Period::secs(60);
    config.recall.text_deadline = long;
    config.recall.vector_deadline = long;
    config.recall.graph_deadline = long;
    let clock = Arc::new(ManualClock::new(now));
    let node = Node::open_with(config, clock)
        .await
        .expect("the folder opens");
    let (recall, receipts) = node.recall();
    let stop = CancellationToken::new();
    let writer = tokio::spawn(receipts.run(stop.clone()));
    let mut answers = Vec::new();
    for name in PATIENTS {
        for query in [
            "我对什么过敏？",
            "What dose of metformin do I take?",
            "我爸有什么病？",
            "When may I be called?",
            "我的体重是多少？",
            "visits in the morning",
            "ward round quiet",
        ] {
            for as_of in [None, Some("2025-06-15T00:00:00Z")] {
                let request = RecallRequest {
                    owner: patient(name),
                    query: Text::new(query),
                    as_of: as_of.map(str::to_owned),
                    known_at: Some(NOW.to_owned()),
                    ..RecallRequest::default()
                };
                let (owner, ask) = request.validate(now).expect("a question");
                let scope = OwnerScope::of_verified_caller(owner_key(&node, &patient(name)));
                let answer = recall
                    .recall(scope, &owner, "test", ask)
                    .await
                    .expect("an answer");
                assert_eq!(answer.degraded, Vec::<String>::new());
                answers.push(answer.settled().to_string());
            }
        }
    }
    stop.cancel();
    writer.await.expect("the writer ends");
    answers
}
