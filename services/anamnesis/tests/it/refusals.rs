//! What is turned down over HTTP, and how: bad input by name, callers without the right, owners that
//! are none, repeats and races.

use serde_json::{Value, json};

use crate::node::{Folder, Http, TENANT, texts};

const PATIENT: &str = "hospital-7/patient/r-1";

fn said(id: &str, text: &str) -> Value {
    json!({
        "event_id": id, "owner": PATIENT, "role": "user", "at": "2026-01-01T00:00:00Z", "text": text,
    })
}

async fn post_bytes(http: &Http, body: impl Into<reqwest::Body>) -> crate::node::Answer {
    http.post_raw("/v1/events", &[("content-type", "application/json")], body)
        .await
}

#[tokio::test(flavor = "multi_thread")]
async fn bad_input_is_refused_by_field_and_reason_and_nothing_else_is_lost() {
    let folder = Folder::new();
    let server = folder.serve().await;
    server.grant(PATIENT).await;
    let with = |field: &str, value: Value| {
        let mut event = said("bad", "canary-text");
        event[field] = value;
        event.to_string()
    };
    let without = |field: &str| {
        let mut event = said("bad", "I am hospital-7/patient/r-1, canary-text.");
        event.as_object_mut().expect("an object").remove(field);
        event.to_string()
    };
    let cases: Vec<(Vec<u8>, u16, &str, &str)> = vec![
        (
            br#"{"greeting": "canary-text"}"#.to_vec(),
            400,
            "unsupported_shape",
            "-",
        ),
        (without("owner").into(), 400, "missing_field", "owner"),
        (without("at").into(), 400, "missing_field", "at"),
        (without("role").into(), 400, "missing_field", "role"),
        (
            b"{\"owner\": \"hospital-7/r-1\", \"text\": \"canary-text \xff\xfe\"}".to_vec(),
            400,
            "invalid_utf8",
            "-",
        ),
        (
            with("text", json!("x".repeat(5 << 20))).into(),
            413,
            "text_too_long",
            "text",
        ),
        (vec![b' '; 20 << 20], 413, "body_too_large", "-"),
        (b"[]".to_vec(), 400, "empty_batch", "-"),
        (b"".to_vec(), 400, "missing_body", "-"),
        (
            b"{\"owner\": \"canary-text".to_vec(),
            400,
            "invalid_json",
            "-",
        ),
        (b"[".repeat(20_000), 400, "too_deep", "-"),
        (
            with("at", json!("2026-01-01T00:00:00")).into(),
            400,
            "time_without_zone",
            "at",
        ),
        (
            with("at", json!("2126-01-01T00:00:00Z")).into(),
            400,
            "time_in_future",
            "at",
        ),
        (
            with("at", json!("canary-text")).into(),
            400,
            "invalid_time",
            "at",
        ),
        (
            with("owner", json!("*")).into(),
            400,
            "invalid_owner",
            "owner",
        ),
        (
            with("owner", json!("")).into(),
            400,
            "missing_field",
            "owner",
        ),
        (
            with("owner", json!("a/b/c/d")).into(),
            400,
            "invalid_owner",
            "owner",
        ),
        (
            with("wonder", json!("canary-text")).into(),
            400,
            "unknown_field",
            "wonder",
        ),
        (
            with("text", json!("  ")).into(),
            400,
            "missing_field",
            "text",
        ),
        (
            with("role", json!("canary-text")).into(),
            400,
            "unknown_role",
            "role",
        ),
    ];
    for (body, status, code, field) in cases {
        let answer = post_bytes(&server, body).await;
        answer.is_problem(status, code, field);
        assert!(
            !answer.text.contains("canary"),
            "nothing is repeated: {}",
            answer.text
        );
    }

    // The rest of a batch is accepted.
    let batch = json!([
        said("good-1", "I am allergic to kiwi."),
        {"greeting": 1},
        {"owner": PATIENT, "role": "user", "at": "2026-01-01T00:00:00", "text": "x"},
        said("good-2", "我对菠萝过敏。"),
    ]);
    let answer = server
        .post("/v1/events?wait=decided", &batch)
        .await
        .expect(202);
    let rejected: Vec<String> = answer["rejected"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|one| format!("{} {} {}", one["index"], one["code"], one["field"]))
        .collect();
    assert_eq!(
        rejected,
        [
            r#"1 "unsupported_shape" null"#,
            r#"2 "time_without_zone" "at""#
        ]
    );
    let page = server
        .get(&format!("/v1/memories?owner={PATIENT}&kind=allergy"))
        .await
        .expect(200);
    assert_eq!(texts(&page).len(), 2, "{page}");

    // What intake cannot know is decided, and visible.
    let reused = said("good-1", "I am allergic to grapes.");
    let answer = server
        .post("/v1/events?wait=decided", &reused)
        .await
        .expect(202);
    assert_eq!(answer["decided"], json!(true));
    server
        .post(
            "/v1/events?wait=decided",
            &said("good-1", "I am allergic to kiwi."),
        )
        .await
        .expect(202);
    server.settle().await;
    let balance = server.get("/v1/audit/balance").await.expect(200);
    let decided = &balance["decided"];
    assert_eq!(
        (
            &decided["rejected(id_reused)"],
            &decided["duplicate"],
            &decided["stored"]
        ),
        (&json!(1), &json!(1), &json!(3)),
        "{balance}"
    );
    server.stop();
    folder.check_sound();
    // None of it stands in a log line.
    assert!(
        !folder.log_lines().contains("canary"),
        "{}",
        folder.log_lines()
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn bad_requests_to_the_other_calls_are_refused_by_field() {
    let folder = Folder::new();
    let server = folder.serve().await;
    server.grant(PATIENT).await;
    let memory = "m-00112233445566778899aabbccddeeff";
    let cases = [
        ("/v1/recall", json!({"query": "x"}), "missing_field owner"),
        (
            "/v1/recall",
            json!({"owner": PATIENT, "query": ""}),
            "missing_field query",
        ),
        (
            "/v1/recall",
            json!({"owner": PATIENT, "query": "x", "quary": 1}),
            "unknown_field quary",
        ),
        (
            "/v1/recall",
            json!({"owner": PATIENT, "query": "x", "as_of": "2026-01-01"}),
            "time_without_zone as_of",
        ),
        (
            "/v1/recall",
            json!({"owner": PATIENT, "query": "x", "known_at": "2126-01-01T00:00:00Z"}),
            "known_at_in_future known_at",
        ),
        (
            "/v1/recall",
            json!({"owner": PATIENT, "query": "x", "kinds": ["alergy"]}),
            "unknown_kind kinds[0]",
        ),
        (
            "/v1/recall",
            json!({"owner": PATIENT, "query": "x", "top_k": 0}),
            "invalid_field top_k",
        ),
        (
            "/v1/context",
            json!({"owner": PATIENT, "query": "x"}),
            "missing_field usable_tokens",
        ),
        (
            "/v1/remember",
            json!({"owner": PATIENT}),
            "missing_field text",
        ),
        (
            "/v1/remember",
            json!({"owner": PATIENT, "text": "x", "ttl": "30"}),
            "invalid_field ttl",
        ),
        (
            "/v1/remember",
            json!({"owner": PATIENT, "text": "x", "colour": "y"}),
            "unknown_field colour",
        ),
        ("/v1/remember", json!({"text": "x"}), "missing_field owner"),
        (
            "/v1/forget",
            json!({"owner": PATIENT, "all": true, "reason": "r"}),
            "missing_field mode",
        ),
        (
            "/v1/forget",
            json!({"owner": PATIENT, "mode": "erase", "reason": "r"}),
            "missing_field memory_ids",
        ),
        (
            "/v1/forget",
            json!({"owner": PATIENT, "all": true, "source": "s", "mode": "erase", "reason": "r"}),
            "invalid_field memory_ids",
        ),
        // What cannot be seen says nothing, and an erasure without a reason can never be explained.
        (
            "/v1/remember",
            json!({"owner": PATIENT, "text": "\u{0}\u{200b} "}),
            "missing_field text",
        ),
        (
            "/v1/correct",
            json!({"owner": PATIENT, "memory_id": memory, "text": "\u{feff}", "reason": "r"}),
            "missing_field text",
        ),
        (
            "/v1/recall",
            json!({"owner": PATIENT, "query": "\u{202e}\u{2069}"}),
            "missing_field query",
        ),
        (
            "/v1/forget",
            json!({"owner": PATIENT, "all": true, "mode": "erase", "reason": "\u{3000}"}),
            "missing_field reason",
        ),
        (
            "/v1/retract",
            json!({"owner": PATIENT, "memory_id": memory, "reason": ""}),
            "missing_field reason",
        ),
        (
            "/v1/consents",
            json!({"owner": PATIENT, "max_sensitivity": 5}),
            "invalid_field max_sensitivity",
        ),
        (
            "/v1/correct",
            json!({"owner": PATIENT, "memory_id": "m-1", "reason": "r"}),
            "invalid_field memory_id",
        ),
    ];
    for (path, body, expected) in cases {
        let answer = server.post(path, &body).await;
        let (code, field) = expected.split_once(' ').expect("code and field");
        answer.is_problem(400, code, field);
    }
    let body = json!({"owner": PATIENT, "memory_id": memory, "text": "x", "reason": "r"});
    assert_eq!(server.post("/v1/correct", &body).await.status, 404);
    assert_eq!(
        server.get("/v1/nothing").await.body["code"],
        json!("no_such_call")
    );
    let other_method = server.get("/v1/events").await;
    other_method.is_problem(405, "method_not_allowed", "-");
    assert_eq!(other_method.headers["allow"], "POST");
    for (path, expected) in [
        (
            format!("/v1/memories?owner={PATIENT}&statuss=active"),
            "unknown_parameter statuss",
        ),
        (
            format!("/v1/memories?owner={PATIENT}&status=alive"),
            "unknown_status status",
        ),
        (
            format!("/v1/memories?owner={PATIENT}&limit=1000"),
            "invalid_parameter limit",
        ),
        (format!("/v1/memories/m-7?owner={PATIENT}"), "invalid_id id"),
        (
            format!("/v1/audit/state?owner={PATIENT}&as_of=2026-01-01"),
            "invalid_time as_of",
        ),
    ] {
        let (code, field) = expected.split_once(' ').expect("code and field");
        server.get(&path).await.is_problem(400, code, field);
    }
    server.stop();
}

const CALLERS: &str = r#"
[[callers]]
name = "triage"
token_env = "TEST_TOKEN_TRIAGE"
tenants = ["hospital-7"]
roles = ["assistant"]

[[callers]]
name = "officer"
token_env = "TEST_TOKEN_OFFICER"
tenants = ["hospital-7"]
roles = ["reviewer", "auditor"]

[[callers]]
name = "elsewhere"
token_env = "TEST_TOKEN_ELSEWHERE"
tenants = ["hospital-9"]
roles = ["operator"]
"#;

async fn guarded() -> (Folder, crate::node::Server) {
    let folder = Folder::new()
        .with_config(CALLERS)
        .with("TEST_TOKEN_TRIAGE", "tok-triage")
        .with("TEST_TOKEN_OFFICER", "tok-officer")
        .with("TEST_TOKEN_ELSEWHERE", "tok-elsewhere");
    let server = folder.serve().await;
    (folder, server)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_caller_does_what_its_token_covers_and_nothing_else() {
    let (_folder, server) = guarded().await;
    let triage = server.as_caller("tok-triage");
    let officer = server.as_caller("tok-officer");
    let elsewhere = server.as_caller("tok-elsewhere");
    triage.grant(PATIENT).await;
    let event = said("e-1", "I am allergic to kiwi.");
    triage
        .post("/v1/events?wait=decided", &event)
        .await
        .expect(202);
    let ask = json!({"owner": PATIENT, "query": "What am I allergic to?"});
    let answer = triage.post("/v1/recall", &ask).await;
    assert!(!answer.headers.contains_key("x-anamnesis-open"));
    assert!(answer.text.contains("kiwi"));

    for path in [
        "/v1/recall",
        "/v1/events",
        "/v1/remember",
        "/v1/forget",
        "/v1/consents",
    ] {
        server
            .post(path, &ask)
            .await
            .is_problem(401, "token_required", "-");
        server
            .as_caller("tok-guess")
            .post(path, &ask)
            .await
            .is_problem(401, "token_unknown", "-");
    }
    elsewhere
        .post("/v1/recall", &ask)
        .await
        .is_problem(403, "tenant_not_covered", "owner");
    elsewhere
        .post("/v1/events", &event)
        .await
        .is_problem(403, "tenant_not_covered", "owner");
    officer
        .post("/v1/events", &event)
        .await
        .is_problem(403, "role_required", "owner");
    let mut ward = said("e-2", "Visiting hours end at eight.");
    ward["owner"] = json!(format!("{TENANT}/org/ward-3"));
    triage
        .post("/v1/events", &ward)
        .await
        .is_problem(403, "role_required", "owner");
    let forget = json!({"owner": PATIENT, "all": true, "mode": "erase", "reason": "asked"});
    triage
        .post("/v1/forget", &forget)
        .await
        .is_problem(403, "role_required", "-");
    let state = format!("/v1/audit/state?owner={PATIENT}");
    triage
        .get(&state)
        .await
        .is_problem(403, "role_required", "-");
    officer.get(&state).await.expect(200);
    elsewhere
        .get(&state)
        .await
        .is_problem(403, "tenant_not_covered", "owner");
    officer
        .post("/v1/forget?wait=decided", &forget)
        .await
        .expect(202);
    server.stop();
}

/// The other tenant's marker in no answer to a caller who does not cover it, whatever is asked.
#[tokio::test(flavor = "multi_thread")]
async fn no_call_gives_another_owner_away() {
    let (_folder, server) = guarded().await;
    let triage = server.as_caller("tok-triage");
    let officer = server.as_caller("tok-officer");
    let elsewhere = server.as_caller("tok-elsewhere");
    let foreign = "hospital-9/patient/p-9";
    triage.grant(PATIENT).await;
    elsewhere.grant(foreign).await;
    let mut secret = said("m-1", "I am allergic to zanzibar pepper, marker-h9.");
    secret["owner"] = json!(foreign);
    elsewhere
        .post("/v1/events?wait=decided", &secret)
        .await
        .expect(202);
    triage
        .post(
            "/v1/events?wait=decided",
            &said("m-2", "I am allergic to kiwi."),
        )
        .await
        .expect(202);
    let page = elsewhere
        .get(&format!("/v1/memories?owner={foreign}"))
        .await
        .expect(200);
    let id = page["memories"][0]["id"]
        .as_str()
        .expect("an id")
        .to_owned();
    let answer = elsewhere
        .recall(foreign, "What am I allergic to?", json!({}))
        .await;
    assert!(answer.to_string().contains("marker-h9"), "{answer}");
    let recall_id = answer["recall_id"].clone();

    let owners = [
        PATIENT,
        "",
        "*",
        "hospital-7/*",
        "*/patient/p-9",
        "hospital-7/patient/p-9",
        foreign,
    ];
    for caller in [&triage, &officer] {
        for owner in owners {
            let mut answers = Vec::new();
            for path in [
                format!("/v1/memories?owner={owner}"),
                "/v1/memories".to_owned(),
                format!("/v1/memories/{id}?owner={owner}"),
                format!("/v1/memories/{id}?owner={owner}&history=true"),
                format!("/v1/reviews?owner={owner}"),
                format!("/v1/owners/tasks?owner={owner}"),
                format!("/v1/changes?owner={owner}&since=0"),
                format!("/v1/consents?owner={owner}"),
                format!("/v1/audit/state?owner={owner}"),
                format!("/v1/audit/memories/{id}?owner={owner}"),
                format!("/v1/audit/memories/{id}"),
                "/v1/audit/verify".to_owned(),
                "/v1/audit/balance".to_owned(),
                "/metrics".to_owned(),
                "/readyz".to_owned(),
            ] {
                answers.push((path.clone(), caller.get(&path).await));
            }
            for (path, body) in [
                (
                    "/v1/recall",
                    json!({"owner": owner, "query": "zanzibar pepper marker-h9"}),
                ),
                ("/v1/recall", json!({"query": "zanzibar pepper"})),
                (
                    "/v1/context",
                    json!({"owner": owner, "query": "zanzibar", "usable_tokens": 4000}),
                ),
                (
                    "/v1/context",
                    json!({"owner": PATIENT, "query": "zanzibar", "usable_tokens": 4000,
                    "org": owner}),
                ),
                (
                    "/v1/correct",
                    json!({"owner": owner, "memory_id": id, "text": "x", "reason": "r"}),
                ),
                (
                    "/v1/retract",
                    json!({"owner": owner, "memory_id": id, "reason": "r"}),
                ),
                ("/v1/restore", json!({"owner": owner, "memory_ids": [id]})),
                (
                    "/v1/outcomes",
                    json!({"recall_id": recall_id, "outcome": "used"}),
                ),
                (
                    "/v1/forget",
                    json!({"owner": owner, "memory_ids": [id], "mode": "restrict", "reason": "r"}),
                ),
            ] {
                answers.push((format!("{path} {body}"), caller.post(path, &body).await));
            }
            for (what, answer) in answers {
                let is_echo = what.contains("marker-h9");
                let leaks = answer.text.contains("zanzibar pepper, marker")
                    || (!is_echo && answer.text.contains("marker-h9"));
                assert!(!leaks, "{what}: {}", answer.text);
                let needs_owner = what.contains("owner=") || what.contains("\"owner\"");
                let is_foreign = owner == foreign || owner.is_empty() || owner.contains('*');
                if needs_owner && is_foreign {
                    assert!(
                        (400..500).contains(&answer.status),
                        "{what}: {}",
                        answer.text
                    );
                }
            }
        }
    }
    // Nothing of it touched the other owner.
    let answer = elsewhere
        .recall(foreign, "What am I allergic to?", json!({}))
        .await;
    assert!(answer.to_string().contains("marker-h9"), "{answer}");
    server.stop();
}

#[tokio::test(flavor = "multi_thread")]
async fn the_same_event_three_times_is_one_memory() {
    let folder = Folder::new();
    let server = folder.serve().await;
    server.grant(PATIENT).await;
    let event = said("once", "I am allergic to kiwi.");
    let (first, second) = tokio::join!(
        server.post("/v1/events?wait=decided", &event),
        server.post("/v1/events?wait=decided", &event),
    );
    let third = server.post("/v1/events?wait=decided", &event).await;
    let tokens: Vec<Value> = [first, second, third]
        .into_iter()
        .map(|answer| answer.expect(202)["accepted"][0]["token"].clone())
        .collect();
    assert!(tokens.iter().all(|token| *token == tokens[0]), "{tokens:?}");
    let page = server
        .get(&format!("/v1/memories?owner={PATIENT}&limit=50"))
        .await
        .expect(200);
    let allergies = texts(&page)
        .into_iter()
        .filter(|text| text.contains("kiwi"))
        .count();
    // The memory, and the turn that said it.
    assert_eq!(allergies, 2, "{page}");
    assert_eq!(
        page["memories"][0]["confirmations"],
        json!(0),
        "a repeat confirms nothing: {page}"
    );

    // A command is done once per key, also when it is sent twice at once.
    let body = json!({"owner": PATIENT, "text": "记住：改用 B 方案", "kind": "preference"});
    let remember = async || {
        let sent = server
            .try_post_as("/v1/remember?wait=decided", "key-1", &body)
            .await;
        sent.expect("an answer").expect(202)["memory_id"].clone()
    };
    let (one, two) = tokio::join!(remember(), remember());
    assert_eq!((&one, &one), (&two, &remember().await));
    let other = json!({"owner": PATIENT, "text": "记住：改用 C 方案", "kind": "preference"});
    let refused = server
        .try_post_as("/v1/remember", "key-1", &other)
        .await
        .expect("an answer");
    refused.is_problem(409, "id_reused", "idempotency-key");
    server.settle().await;
    server.stop();
    let balance = folder.check_sound();
    assert_eq!(balance["decided"]["stored"], json!(3), "{balance}");
}

/// Everything that was answered 202 is decided after the process died (C02).
#[tokio::test(flavor = "multi_thread")]
async fn a_hundred_accepted_events_survive_the_process() {
    let folder = Folder::new();
    let server = folder.serve().await;
    server.grant(PATIENT).await;
    let mut accepted = 0;
    for n in 0..20 {
        let batch: Vec<Value> = (0..5)
            .map(|m| {
                said(
                    &format!("b-{n}-{m}"),
                    &format!("Note number {n} of {m} for the ward."),
                )
            })
            .collect();
        let answer = server.post("/v1/events", &json!(batch)).await.expect(202);
        for one in answer["accepted"].as_array().expect("a list") {
            assert_eq!(one["position"]["topic"], json!("conversation"));
            assert!(
                one["position"]["offset"]
                    .as_u64()
                    .is_some_and(|offset| offset > 0)
            );
            accepted += 1;
        }
    }
    server.kill();
    assert_eq!(accepted, 100);
    let server = folder.serve().await;
    server.settle().await;
    server.stop();
    let balance = folder.check_sound();
    assert_eq!(
        (&balance["accepted"], &balance["decided"]["stored"]),
        (&json!(101), &json!(101))
    );
}
