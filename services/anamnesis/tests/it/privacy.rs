//! Does anything that a person says or is called reach a log line, a metric or a problem document, even
//! when everything is logged?

use serde_json::json;

use crate::node::{Folder, TENANT};

/// Words that are sent in every place where a person could put them.
const CANARIES: [&str; 12] = [
    "canaryowner",
    "canarytext",
    "金丝雀正文",
    "canaryquery",
    "金丝雀提问",
    "canaryspeaker",
    "canaryreason",
    "canaryconversation",
    "canaryvalue",
    "canarybody",
    "canarytask",
    "canaryevent",
];

#[tokio::test(flavor = "multi_thread")]
async fn nobodys_words_reach_a_log_line_a_metric_or_a_problem() {
    let folder = Folder::new().with("ANAMNESIS__TELEMETRY__LEVEL", "trace");
    let server = folder.serve().await;
    let owner = format!("{TENANT}/patient/canaryowner");
    server.grant(&owner).await;
    let event = json!({
        "event_id": "canaryevent", "owner": owner, "source": "/canarysource", "role": "user",
        "conversation_id": "canaryconversation", "speaker": "canaryspeaker",
        "at": "2026-01-01T00:00:00Z",
        "text": "I am allergic to canarytext. 我对金丝雀正文过敏。My phone is 13800138000.",
    });
    server
        .post("/v1/events?wait=decided", &event)
        .await
        .expect(202);
    let body = json!({
        "owner": owner, "text": "Remember canarytext, 金丝雀正文.", "attribute": "canaryvalue",
        "value": "canaryvalue", "kind": "fact",
    });
    let remembered = server
        .post("/v1/remember?wait=decided", &body)
        .await
        .expect(202);
    let correct = json!({
        "owner": owner, "memory_id": remembered["memory_id"], "text": "canarytext again",
        "reason": "canaryreason",
    });
    server
        .post("/v1/correct?wait=decided", &correct)
        .await
        .expect(202);
    let task = json!({"owner": owner, "task_id": "canarytask", "goal": "canarytext"});
    server
        .post("/v1/tasks?wait=decided", &task)
        .await
        .expect(202);
    for query in [
        "What about canaryquery and canarytext?",
        "金丝雀提问和金丝雀正文？",
    ] {
        server.recall(&owner, query, json!({"explain": true})).await;
        let context = json!({
            "owner": owner, "query": query, "usable_tokens": 4000,
            "messages": [{"role": "user", "content": "canarytext"}],
        });
        server.post("/v1/context", &context).await.expect(200);
    }

    // Everything that can be wrong, with a canary in the wrong place.
    let mut problems = Vec::new();
    for (path, body) in [
        ("/v1/events", r#"{"canaryless": "canarybody"}"#.to_owned()),
        (
            "/v1/events",
            r#"{"owner": "canaryowner canarybody", "#.to_owned(),
        ),
        ("/v1/events", r#"["canarybody"]"#.to_owned()),
        ("/v1/events", r#""canarybody""#.to_owned()),
        (
            "/v1/events",
            json!({"owner": "a/b/c/canarybody", "role": "user", "text": "canarybody",
            "at": "2026-01-01T00:00:00Z"})
            .to_string(),
        ),
        (
            "/v1/events",
            json!({"owner": owner, "role": "canarybody", "text": "canarybody",
            "at": "canarybody"})
            .to_string(),
        ),
        (
            "/v1/events",
            json!({"owner": owner, "role": "user", "text": {"canarybody": 1},
            "at": "2026-01-01T00:00:00Z"})
            .to_string(),
        ),
        (
            "/v1/recall",
            json!({"owner": "canarybody", "query": "canarybody"}).to_string(),
        ),
        (
            "/v1/recall",
            json!({"owner": owner, "query": "canarybody", "as_of": "canarybody"}).to_string(),
        ),
        (
            "/v1/recall",
            json!({"owner": owner, "query": ["canarybody"]}).to_string(),
        ),
        (
            "/v1/remember",
            json!({"owner": owner, "text": "canarybody", "kind": "canarybody"}).to_string(),
        ),
        (
            "/v1/remember",
            json!({"owner": owner, "text": "canarybody", "ttl": "canarybody"}).to_string(),
        ),
        (
            "/v1/forget",
            json!({"owner": owner, "memory_ids": ["canarybody"], "mode": "erase",
            "reason": "canarybody"})
            .to_string(),
        ),
        (
            "/v1/forget",
            json!({"owner": owner, "message": "canarybody", "mode": "canarybody",
            "reason": "canarybody"})
            .to_string(),
        ),
        (
            "/v1/consents",
            json!({"owner": owner, "max_sensitivity": "canarybody"}).to_string(),
        ),
        (
            "/v1/reviews/canarybody/decision",
            json!({"owner": owner}).to_string(),
        ),
    ] {
        let headers = [
            ("content-type", "application/json"),
            ("idempotency-key", "canarykey"),
        ];
        let answer = server.post_raw(path, &headers, body).await;
        // Of a batch each event is refused by itself.
        let is_refused = answer.body["rejected"][0]["code"].is_string();
        assert!(
            is_refused || (400..500).contains(&answer.status),
            "{path}: {}",
            answer.text
        );
        problems.push(answer.text);
    }
    for path in [
        "/v1/memories?owner=canarybody%2Fcanarybody%2Fcanarybody",
        "/v1/memories?owner=&status=canarybody",
        "/v1/memories/canarybody?owner=hospital-7/patient/canaryowner",
        "/v1/audit/state?owner=canarybody",
        "/canarybody",
    ] {
        let answer = server.get(path).await;
        assert!(
            (400..500).contains(&answer.status),
            "{path}: {}",
            answer.text
        );
        problems.push(answer.text);
    }
    let forget = json!({"owner": owner, "all": true, "mode": "erase", "reason": "canaryreason"});
    server.settle().await;
    let metrics = server.get("/metrics").await.text;
    assert!(metrics.contains("anamnesis_"), "metrics are there");
    server
        .post("/v1/forget?wait=decided", &forget)
        .await
        .expect(202);
    server.settle().await;
    server.stop();
    let lines = folder.log_lines();
    assert!(lines.contains("DEBUG"), "everything is logged");
    for canary in CANARIES.into_iter().chain(["13800138000"]) {
        let line = lines.lines().find(|line| line.contains(canary));
        assert_eq!(line, None, "{canary} stands in a log line");
        assert!(!metrics.contains(canary), "{canary} stands in a metric");
        let problem = problems.iter().find(|text| text.contains(canary));
        assert_eq!(problem, None, "{canary} stands in a problem document");
    }
}
