//! The calls as a caller sees them.

use std::sync::Arc;

use anamnesis_domain::ids::Hash;
use anamnesis_domain::input::{Command, Target, TaskStatus, Topic, Verdict};
use anamnesis_domain::memory::{Intent, Kind, Permille};
use anamnesis_domain::owner::Subject;
use anamnesis_pipeline::caller::{CallerRole, Callers, OPEN_HEADER, TokenConfig};
use axum::body::{Body, to_bytes};
use axum::http::Request;
use serde_json::{Value, json};
use tower::ServiceExt as _;

use super::router;
use crate::caps;
use crate::world::World;

struct Reply {
    status: u16,
    json: Value,
    is_open: bool,
}

impl Reply {
    /// `202`, or `400 code field`.
    fn brief(&self) -> String {
        let word = |name: &str| self.json[name].as_str().unwrap_or("-").to_owned();
        match self.status {
            200..300 => self.status.to_string(),
            status => format!("{status} {} {}", word("code"), word("field")),
        }
    }
}

async fn send(world: &Arc<World>, callers: Callers, request: Request<Body>) -> Reply {
    let response = router(world.intake.clone(), callers)
        .oneshot(request)
        .await
        .unwrap();
    let (parts, body) = response.into_parts();
    let bytes = to_bytes(body, 1 << 24).await.unwrap();
    if parts.status.as_u16() >= 400 {
        let kind = parts.headers["content-type"].to_str().unwrap();
        assert_eq!(kind, "application/problem+json");
    }
    Reply {
        status: parts.status.as_u16(),
        json: serde_json::from_slice(&bytes).unwrap_or(Value::Null),
        is_open: parts.headers.contains_key(OPEN_HEADER),
    }
}

async fn post(world: &Arc<World>, path: &str, body: impl Into<Body>) -> Reply {
    let request = Request::post(path).body(body.into()).unwrap();
    send(world, Callers::open_on_loopback("ward-2"), request).await
}

async fn post_json(world: &Arc<World>, path: &str, body: Value) -> Reply {
    post(world, path, body.to_string()).await
}

async fn post_with_key(world: &Arc<World>, path: &str, key: &str, body: Value) -> Reply {
    let request = Request::post(path)
        .header("idempotency-key", key)
        .body(Body::from(body.to_string()))
        .unwrap();
    send(world, Callers::open_on_loopback("ward-2"), request).await
}

async fn get(world: &Arc<World>, path: &str) -> Reply {
    let request = Request::get(path).body(Body::empty()).unwrap();
    send(world, Callers::open_on_loopback("ward-2"), request).await
}

async fn post_as(world: &Arc<World>, roles: &[CallerRole], path: &str, body: Value) -> Reply {
    let config = TokenConfig {
        name: "triage".to_owned(),
        token_blake3: Some(Hash::of(b"token").to_string()),
        token_env: None,
        tenants: vec!["h".to_owned()],
        roles: roles.to_vec(),
    };
    let request = Request::post(path)
        .header("authorization", "Bearer token")
        .body(Body::from(body.to_string()))
        .unwrap();
    send(
        world,
        Callers::from_config(&[config], "h").unwrap(),
        request,
    )
    .await
}

fn said(owner: &str, text: &str) -> Value {
    json!({"event_id": "e1", "owner": owner, "role": "user", "at": "2025-05-01T10:00:00Z", "text": text})
}

/// A site that decides what it is told, with consent given by `h/p1`.
async fn agreed() -> Arc<World> {
    let world = World::new(true);
    world.decide_in_background();
    let reply = post_json(&world, "/v1/consents", json!({"owner": "h/p1"})).await;
    assert_eq!(reply.brief(), "202");
    world
}

async fn last_command(world: &World) -> Command {
    world.commands().await.pop().unwrap().1.command
}

#[tokio::test(start_paused = true)]
async fn events_are_accepted_one_by_one_or_in_a_batch() {
    let world = World::new(false);
    let reply = post_json(&world, "/v1/events", said("h/p1", "我对芒果过敏")).await;
    assert_eq!((reply.brief().as_str(), reply.is_open), ("202", true));
    let accepted = &reply.json["accepted"][0];
    assert_eq!(accepted["event_id"], "e1");
    assert_eq!(accepted["position"]["topic"], "conversation");
    assert!(accepted["token"].as_str().unwrap().starts_with("e-"));

    let batch = json!([said("h/p1", "a"), {"hello": 1}, said("", "b"), said("h/p2", "c")]);
    let reply = post_json(&world, "/v1/events", batch).await;
    assert_eq!(reply.json["accepted"].as_array().unwrap().len(), 2);
    let rejected: Vec<String> = reply.json["rejected"]
        .as_array()
        .unwrap()
        .iter()
        .map(|r| {
            format!(
                "{} {} {}",
                r["index"],
                r["code"].as_str().unwrap(),
                r["field"]
            )
        })
        .collect();
    assert_eq!(
        rejected,
        ["1 unsupported_shape null", "2 missing_field \"owner\""]
    );
}

#[tokio::test(start_paused = true)]
async fn bad_input_is_told_by_name_and_writes_nothing() {
    let world = World::new(false);
    let with = |field: &str, value: Value| {
        let mut event = said("h/p1", "x");
        event[field] = value;
        event.to_string().into_bytes()
    };
    let mut nowhere = said("h/p1", "I am h/patient/p1");
    nowhere.as_object_mut().unwrap().shift_remove("owner");
    let cases: Vec<(Vec<u8>, &str)> = vec![
        (b"{\"hello\": 1}".to_vec(), "400 unsupported_shape -"),
        (nowhere.to_string().into_bytes(), "400 missing_field owner"),
        (
            b"{\"owner\": \"h/p1\", \"text\": \"\xc3\x28\"}".to_vec(),
            "400 invalid_utf8 -",
        ),
        (
            with("text", json!("x".repeat(5 << 20))),
            "413 text_too_long text",
        ),
        (b"[]".to_vec(), "400 empty_batch -"),
        (b" ".to_vec(), "400 missing_body -"),
        (b"{\"owner\":".to_vec(), "400 invalid_json -"),
        (vec![b'['; 5000], "400 too_deep -"),
        (
            with("at", json!("2025-05-01T10:00:00")),
            "400 time_without_zone at",
        ),
        (
            with("at", json!("2025-06-01T01:00:00Z")),
            "400 time_in_future at",
        ),
        (with("ownr", json!("x")), "400 unknown_field ownr"),
        (with("owner", json!("*")), "400 invalid_owner owner"),
        (vec![b' '; caps::BODY_BYTES_MAX + 1], "413 body_too_large -"),
    ];
    for (body, expected) in cases {
        let shown = String::from_utf8_lossy(&body[..body.len().min(80)]).into_owned();
        assert_eq!(
            post(&world, "/v1/events", body).await.brief(),
            expected,
            "{shown}"
        );
    }
    assert!(world.turns(Topic::Conversation).await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_cloud_event_may_keep_its_envelope_in_headers() {
    let world = World::new(false);
    let request = Request::post("/v1/events")
        .header("ce-specversion", "1.0")
        .header("ce-id", "e7")
        .header("ce-source", "/app")
        .header("ce-subject", "h/p1")
        .header("ce-time", "2025-05-01T10:00:00Z")
        .body(Body::from(r#"{"role": "user", "text": "hello"}"#))
        .unwrap();
    let reply = send(&world, Callers::open_on_loopback("h"), request).await;
    assert_eq!(reply.json["accepted"][0]["event_id"], "e7");
}

#[tokio::test(start_paused = true)]
async fn a_caller_writes_only_where_its_token_covers() {
    let world = World::new(false);
    let assistant = [CallerRole::Assistant];
    let reply = post_as(&world, &assistant, "/v1/events", said("h/p1", "a")).await;
    assert_eq!((reply.brief().as_str(), reply.is_open), ("202", false));
    let reply = post_as(&world, &assistant, "/v1/events", said("other/p1", "a")).await;
    assert_eq!(reply.brief(), "403 tenant_not_covered owner");
    let reply = post_as(&world, &assistant, "/v1/events", said("h/org/ward", "a")).await;
    assert_eq!(reply.brief(), "403 role_required owner");
    let reply = post_as(
        &world,
        &[CallerRole::Auditor],
        "/v1/events",
        said("h/p1", "a"),
    )
    .await;
    assert_eq!(reply.brief(), "403 role_required owner");
    let request = Request::post("/v1/events").body(Body::from("{}")).unwrap();
    let callers = Callers::from_config(&[], "h").unwrap();
    assert_eq!(
        send(&world, callers, request).await.brief(),
        "401 token_required -"
    );

    let forget = json!({"owner": "h/p1", "all": true, "mode": "erase", "reason": "asked"});
    assert_eq!(
        post_as(&world, &assistant, "/v1/forget", forget.clone())
            .await
            .brief(),
        "403 role_required -"
    );
    assert_eq!(
        post_as(&world, &[CallerRole::Reviewer], "/v1/forget", forget)
            .await
            .brief(),
        "202"
    );
}

#[tokio::test(start_paused = true)]
async fn a_grant_is_visible_when_it_is_answered_and_lets_in_what_waited() {
    let world = World::new(true);
    world.decide_in_background();
    let reply = post_json(&world, "/v1/events", said("h/p1", "早上好")).await;
    assert_eq!(reply.json["accepted"][0]["quarantined"], true);

    let reply = post_json(
        &world,
        "/v1/consents",
        json!({"owner": "h/p1", "purposes": ["care"], "kinds": ["allergy", "episode"],
            "max_sensitivity": "L2", "valid_from": "2025-01-01T00:00:00Z"}),
    )
    .await;
    assert_eq!(
        (
            reply.json["decided"].clone(),
            reply.json["released"].clone()
        ),
        (json!(true), json!(1))
    );
    let reply = get(&world, "/v1/consents?owner=h/p1").await;
    assert_eq!(reply.json["granted"], true);
    assert_eq!(
        reply.json["consents"][0]["kinds"],
        json!(["allergy", "episode"])
    );
    assert_eq!(reply.json["consents"][0]["max_sensitivity"], 2);
    let reply = post_json(&world, "/v1/events?wait=decided", said("h/p1", "早上好")).await;
    assert_eq!(reply.json["decided"], true);

    let reply = post_json(
        &world,
        "/v1/consents",
        json!({"owner": "h/p1", "withdraw": true}),
    )
    .await;
    assert_eq!(reply.brief(), "202");
    assert_eq!(
        get(&world, "/v1/consents?owner=h/p1").await.json["granted"],
        false
    );
    let long_ago = "/v1/consents?owner=h/p1&known_at=2000-01-01T00:00:00Z";
    assert_eq!(get(&world, long_ago).await.json["consents"], json!([]));
    let unclear = get(&world, "/v1/consents?owner=h/p1&as_of=yesterday").await;
    assert_eq!(unclear.brief(), "400 invalid_parameter as_of");
    let one = post_json(
        &world,
        "/v1/consents",
        json!({"owner": "h/p1", "withdraw": ["allergy"]}),
    )
    .await;
    assert_eq!(one.brief(), "202");
    let Command::Withdraw { kinds, .. } = last_command(&world).await else {
        panic!("a withdrawal")
    };
    assert_eq!(kinds, Some(vec![Kind::Allergy]));
}

#[tokio::test(start_paused = true)]
async fn a_consent_is_refused_by_the_name_of_its_field() {
    let world = World::new(true);
    for (body, expected) in [
        (json!({"purposes": ["care"]}), "400 missing_field owner"),
        (
            json!({"owner": "h/p1", "max_sensitivity": 5}),
            "400 invalid_field max_sensitivity",
        ),
        (
            json!({"owner": "h/p1", "max_sensitivity": "high"}),
            "400 invalid_field max_sensitivity",
        ),
        (
            json!({"owner": "h/p1", "kinds": ["mood"]}),
            "400 invalid_field kinds[0]",
        ),
        (
            json!({"owner": "h/p1", "purpose": ["care"]}),
            "400 unknown_field purpose",
        ),
        (
            json!({"owner": "h/p1", "valid_from": "2025-02-01T00:00:00Z", "valid_to": "2025-01-01T00:00:00Z"}),
            "400 invalid_field valid_to",
        ),
    ] {
        assert_eq!(
            post_json(&world, "/v1/consents", body.clone())
                .await
                .brief(),
            expected,
            "{body}"
        );
    }
    assert!(world.commands().await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn an_explicit_write_becomes_a_claim() {
    let world = agreed().await;
    let reply = post_json(
        &world,
        "/v1/remember?wait=recallable",
        json!({"owner": "h/p1", "text": "对芒果过敏，电话13912345678", "attribute": "allergy", "value": "芒果",
            "subject": "father", "context_tags": ["health"], "source": "desk"}),
    )
    .await;
    assert_eq!(
        (reply.brief().as_str(), reply.json["outcome"].clone()),
        ("202", json!("stored"))
    );
    let Command::Remember { claim } = last_command(&world).await else {
        panic!("a remember")
    };
    assert_eq!(
        (claim.kind, claim.explicit, claim.importance),
        (Kind::Allergy, true, Permille::ONE)
    );
    assert_eq!(
        (claim.subject.clone(), claim.language.as_str()),
        (Subject::Father, "zh")
    );
    assert_eq!(claim.entities[0].name.expose(), "芒果");
    assert_eq!(claim.source.source, "desk");
    assert!(claim.text.expose().contains("<PHONE#"), "redacted");
    let id = world.ids().memory(claim.source.event, 0);
    assert_eq!(reply.json["memory_id"], json!(id));

    let plain = json!({"owner": "h/p1", "text": "likes tea", "ttl": "2d", "importance": 0.25});
    post_json(&world, "/v1/remember", plain).await;
    let Command::Remember { claim } = last_command(&world).await else {
        panic!("a remember")
    };
    assert_eq!(
        (claim.kind, claim.importance),
        (Kind::Fact, Permille::new(250))
    );
    assert_eq!(
        claim.valid_to.unwrap(),
        claim.valid_from.plus_millis(2 * 86_400_000)
    );
}

#[tokio::test(start_paused = true)]
async fn an_explicit_write_without_consent_is_an_error_that_is_seen() {
    let world = World::new(true);
    let ask = json!({"owner": "h/p1", "text": "likes tea"});
    assert_eq!(
        post_json(&world, "/v1/remember", ask).await.brief(),
        "403 consent_required -"
    );
    assert!(world.commands().await.is_empty());
    let world = agreed().await;
    world.decide_as("remember", "rejected(consent)");
    let ask = json!({"owner": "h/p1", "text": "likes tea"});
    assert_eq!(
        post_json(&world, "/v1/remember?wait=decided", ask)
            .await
            .brief(),
        "403 consent_required -"
    );
}

#[tokio::test(start_paused = true)]
async fn an_explicit_write_is_refused_by_the_name_of_its_field() {
    let world = agreed().await;
    let base = || json!({"owner": "h/p1", "text": "a"});
    for (field, value, expected) in [
        ("text", json!(" "), "400 missing_field text"),
        ("text", json!("x".repeat(2 << 20)), "413 text_too_long text"),
        ("owner", json!(""), "400 missing_field owner"),
        ("owner", json!("h/*"), "400 invalid_owner owner"),
        ("kind", json!("mood"), "400 invalid_field kind"),
        ("importance", json!(2), "400 invalid_field importance"),
        ("ttl", json!("30"), "400 invalid_field ttl"),
        (
            "valid_to",
            json!("2020-01-01T00:00:00Z"),
            "400 invalid_field valid_to",
        ),
        (
            "valid_from",
            json!("2020-01-01"),
            "400 time_without_zone valid_from",
        ),
        ("namespace", json!("profile"), "400 invalid_field key"),
        (
            "context_tags",
            json!([""]),
            "400 invalid_field context_tags",
        ),
        ("txt", json!("a"), "400 unknown_field txt"),
    ] {
        let mut body = base();
        body[field] = value;
        assert_eq!(
            post_json(&world, "/v1/remember", body).await.brief(),
            expected,
            "{field}"
        );
    }
    let reply = post_json(&world, "/v1/remember?wate=1", base()).await;
    assert_eq!(reply.brief(), "400 unknown_parameter wate");
}

#[tokio::test(start_paused = true)]
async fn the_same_key_is_the_same_write() {
    let world = agreed().await;
    let before = world.commands().await.len();
    let ask = json!({"owner": "h/p1", "text": "likes tea"});
    let first = post_with_key(&world, "/v1/remember", "k1", ask.clone()).await;
    world.clock.advance_millis(1000);
    // Not decided yet.
    let second = post_with_key(&world, "/v1/remember?wait=decided", "k1", ask.clone()).await;
    world.clock.advance_millis(1000);
    let third = post_with_key(&world, "/v1/remember", "k1", ask).await;
    assert_eq!(first.json["position"], second.json["position"]);
    assert_eq!(first.json["position"], third.json["position"]);
    assert_eq!(first.json["memory_id"], third.json["memory_id"]);
    assert_eq!(world.commands().await.len(), before + 1);

    let other = json!({"owner": "h/p1", "text": "likes coffee"});
    let reply = post_with_key(&world, "/v1/remember", "k1", other).await;
    assert_eq!(reply.brief(), "409 id_reused idempotency-key");
}

/// Remembers something and puts it into the authority, as the indexer would.
async fn remembered(world: &Arc<World>) -> String {
    let ask = json!({"owner": "h/p1", "text": "takes 5 mg warfarin", "kind": "medication",
        "attribute": "medication", "value": "warfarin", "valid_from": "2024-01-01T00:00:00Z"});
    post_json(world, "/v1/remember?wait=decided", ask).await;
    let Command::Remember { claim } = last_command(world).await else {
        panic!("a remember")
    };
    world.put("h/p1", *claim).await.to_string()
}

#[tokio::test(start_paused = true)]
async fn a_correction_replaces_or_ends() {
    let world = agreed().await;
    let id = remembered(&world).await;
    let ask = json!({"owner": "h/p1", "memory_id": id, "text": "takes 3 mg warfarin",
        "expected_version": 4, "reason": "misheard"});
    let reply = post_json(&world, "/v1/correct", ask).await;
    assert_eq!(reply.brief(), "202");
    let Command::Correct {
        claim: Some(claim),
        ended_at: None,
        expected_version,
        ..
    } = last_command(&world).await
    else {
        panic!("a correction")
    };
    assert_eq!(
        (claim.kind, claim.intent, expected_version),
        (Kind::Medication, Intent::Correct, Some(4))
    );
    assert_eq!(claim.value.as_deref(), Some("warfarin"));
    assert_eq!(claim.valid_from.to_string(), "2024-01-01T00:00:00Z");

    // Words about something else do not keep the old value.
    let ask =
        json!({"owner": "h/p1", "memory_id": id, "text": "takes aspirin", "reason": "misheard"});
    post_json(&world, "/v1/correct", ask).await;
    let Command::Correct {
        claim: Some(claim), ..
    } = last_command(&world).await
    else {
        panic!("a correction")
    };
    assert_eq!((claim.attribute, claim.value), (None, None));

    let ask = json!({"owner": "h/p1", "memory_id": id, "valid_to": "2025-05-01T00:00:00Z", "reason": "stopped"});
    post_json(&world, "/v1/correct", ask).await;
    let Command::Correct {
        claim: None,
        ended_at: Some(at),
        ..
    } = last_command(&world).await
    else {
        panic!("an end")
    };
    assert_eq!(at.to_string(), "2025-05-01T00:00:00Z");

    let ask = json!({"owner": "h/p1", "memory_id": id, "reason": "?"});
    assert_eq!(
        post_json(&world, "/v1/correct", ask).await.brief(),
        "400 missing_field text"
    );
    let foreign = json!({"owner": "h/p2", "memory_id": id, "text": "x", "reason": "?"});
    assert_eq!(
        post_json(&world, "/v1/correct", foreign).await.brief(),
        "404 not_found -"
    );
    let ask = json!({"owner": "h/p1", "memory_id": id, "reason": "never true"});
    assert_eq!(post_json(&world, "/v1/retract", ask).await.brief(), "202");
    assert!(matches!(last_command(&world).await, Command::Retire { .. }));
}

#[tokio::test(start_paused = true)]
async fn a_conflict_is_told_with_the_winner() {
    let world = agreed().await;
    let id = remembered(&world).await;
    let path = format!("/v1/reviews/{id}/decision");
    let ask =
        json!({"owner": "h/p1", "decision": "take_new", "expected_version": 4, "reason": "asked"});
    assert_eq!(post_json(&world, &path, ask.clone()).await.brief(), "200");
    let Command::Review { verdict, .. } = last_command(&world).await else {
        panic!("a review")
    };
    assert_eq!(verdict, Verdict::TakeNew);

    world.decide_as("review", "rejected(version)");
    let reply = post_json(&world, &path, ask).await;
    assert_eq!(reply.brief(), "409 version expected_version");
    assert_eq!(reply.json["winner"]["version"], 4);
    assert_eq!(reply.json["winner"]["status"], "active");

    let ask = json!({"owner": "h/p1", "decision": "maybe", "reason": "asked"});
    assert_eq!(
        post_json(&world, &path, ask).await.brief(),
        "400 invalid_field decision"
    );
    let ask = json!({"owner": "h/p2", "decision": "keep_old", "reason": "asked"});
    assert_eq!(
        post_json(&world, &path, ask).await.brief(),
        "404 not_found -"
    );
}

#[tokio::test(start_paused = true)]
async fn what_is_to_be_forgotten_is_named_in_one_way() {
    let world = agreed().await;
    let id = remembered(&world).await;
    let key = world.scope("h/p1").key();
    let message = |source: &str, event: &str, part: &str| {
        Target::Message(world.ids().event(key, source, event, part))
    };
    let token = world.ids().event(key, "s", "x", "").to_string();
    for (what, target) in [
        (
            json!({"memory_ids": [id]}),
            Target::Memories(vec![id.parse().unwrap()]),
        ),
        (
            json!({"source": "desk"}),
            Target::Source(world.ids().source(key, "desk")),
        ),
        (json!({"all": true}), Target::Owner),
        (
            json!({"message": "e9", "source": "desk"}),
            message("desk", "e9", ""),
        ),
        (
            json!({"message": "e9#2", "source": "desk"}),
            message("desk", "e9", "2"),
        ),
        (json!({"message": token}), message("s", "x", "")),
    ] {
        let mut ask = json!({"owner": "h/p1", "mode": "erase", "reason": "asked"});
        ask.as_object_mut()
            .unwrap()
            .extend(what.as_object().unwrap().clone());
        let reply = post_json(&world, "/v1/forget", ask.clone()).await;
        let Command::Erase {
            erasure,
            target: found,
            ..
        } = last_command(&world).await
        else {
            panic!("an erasure")
        };
        assert_eq!(
            (found, reply.json["erasure_id"].clone()),
            (target, json!(erasure))
        );

        ask["mode"] = json!("restrict");
        let reply = post_json(&world, "/v1/forget", ask).await;
        assert_eq!(
            (reply.brief().as_str(), reply.json.get("erasure_id")),
            ("202", None)
        );
    }
    for (what, expected) in [
        (json!({}), "400 missing_field memory_ids"),
        (json!({"all": false}), "400 missing_field memory_ids"),
        (json!({"memory_ids": []}), "400 invalid_field memory_ids"),
        (
            json!({"all": true, "source": "x"}),
            "400 invalid_field memory_ids",
        ),
        (
            json!({"memory_ids": ["*"]}),
            "400 invalid_field memory_ids[0]",
        ),
    ] {
        let mut ask = json!({"owner": "h/p1", "mode": "erase", "reason": "asked"});
        ask.as_object_mut()
            .unwrap()
            .extend(what.as_object().unwrap().clone());
        assert_eq!(
            post_json(&world, "/v1/forget", ask).await.brief(),
            expected,
            "{what}"
        );
    }
    let no_mode = json!({"owner": "h/p1", "all": true, "reason": "asked"});
    assert_eq!(
        post_json(&world, "/v1/forget", no_mode).await.brief(),
        "400 missing_field mode"
    );
}

#[tokio::test(start_paused = true)]
async fn a_user_is_forgotten_by_path() {
    let world = agreed().await;
    let reply = post(
        &world,
        "/v1/users/h%2Fp1/forget?reason=asked",
        Body::empty(),
    )
    .await;
    assert_eq!(reply.brief(), "202");
    let (_, record) = world.commands().await.pop().unwrap();
    assert_eq!(record.owner.to_string(), "h/patient/p1");
    assert!(matches!(
        record.command,
        Command::Erase {
            target: Target::Owner,
            ..
        }
    ));
    let reply = post(&world, "/v1/users/p9/forget?reason=asked", Body::empty()).await;
    assert_eq!(reply.brief(), "202");
    let found = world
        .commands()
        .await
        .into_iter()
        .any(|(_, r)| r.owner.to_string() == "ward-2/patient/p9");
    assert!(found, "an id without tenant belongs to the caller's");
    let reply = post(&world, "/v1/users/p9/forget", Body::empty()).await;
    assert_eq!(reply.brief(), "400 missing_parameter reason");
    assert_eq!(
        post(&world, "/v1/users/*/forget?reason=x", Body::empty())
            .await
            .brief(),
        "400 invalid_owner owner"
    );
}

#[tokio::test(start_paused = true)]
async fn memories_are_restricted_freed_and_restored() {
    let world = agreed().await;
    let id = remembered(&world).await;
    let ask = json!({"owner": "h/p1", "memory_ids": [id]});
    assert_eq!(
        post_json(&world, "/v1/restrict", ask.clone()).await.brief(),
        "202"
    );
    assert!(matches!(
        last_command(&world).await,
        Command::Restrict { .. }
    ));
    assert_eq!(
        post_json(&world, "/v1/unrestrict", ask.clone())
            .await
            .brief(),
        "202"
    );
    assert!(matches!(
        last_command(&world).await,
        Command::Unrestrict { .. }
    ));
    assert_eq!(post_json(&world, "/v1/restore", ask).await.brief(), "202");
    assert!(matches!(
        last_command(&world).await,
        Command::Restore { .. }
    ));
}

#[tokio::test(start_paused = true)]
async fn a_tool_error_blocks_a_task() {
    let world = agreed().await;
    let ask = json!({"owner": "h/p1", "task_id": "t1", "goal": "换个号", "tool_error": "timeout", "ttl": "2h"});
    assert_eq!(
        post_json(&world, "/v1/tasks?wait=decided", ask)
            .await
            .brief(),
        "202"
    );
    let Command::Task { task } = last_command(&world).await else {
        panic!("a task")
    };
    assert_eq!(
        (task.id.as_str(), task.status),
        ("t1", TaskStatus::BlockedByToolError)
    );
    assert_eq!(
        task.expires_at.unwrap(),
        task.updated_at.plus_millis(7_200_000)
    );
    for (body, expected) in [
        (
            json!({"owner": "h/p1", "goal": "x"}),
            "400 missing_field task_id",
        ),
        (
            json!({"owner": "h/p1", "task_id": "t", "goal": "x", "ttl": "31d"}),
            "400 invalid_field ttl",
        ),
        (
            json!({"owner": "h/p1", "task_id": "t", "goal": "x", "status": "lost"}),
            "400 invalid_field status",
        ),
    ] {
        assert_eq!(post_json(&world, "/v1/tasks", body).await.brief(), expected);
    }
}

#[tokio::test(start_paused = true)]
async fn a_wait_that_is_not_met_is_still_accepted() {
    let world = World::new(false);
    let ask = json!({"owner": "h/p1", "text": "likes tea"});
    let reply = post_json(&world, "/v1/remember?wait=recallable", ask).await;
    assert_eq!(
        (reply.brief().as_str(), reply.json["decided"].clone()),
        ("202", json!(false))
    );
}
