//! What is answered to a question that nobody should ask, and to one too many? Each with one exact answer.

use anamnesis_domain::memory::Kind;
use anamnesis_pipeline::caller::{CallerRole, Callers};
use axum::body::Body;
use axum::http::{Request, header};
use serde_json::{Value, json};

use super::router;
use super::tests::{Reply, allergy, post, send, send_to, tokens, world};
use crate::admission::Depth;
use crate::fixture::{claim, memory};
use crate::kept::Comparison;
use crate::service::Recall;
use crate::world::World;

/// Two patients: one with an allergy in Chinese and one in English, and somebody else.
async fn hospital() -> World {
    let world = world(&[
        allergy(),
        memory(claim(Kind::Allergy, "allergic to penicillin")),
    ])
    .await;
    world.consents("p2").await;
    let theirs = memory(claim(Kind::Allergy, "CANARY 我对花生过敏 penicillin"));
    world.remembers("p2", &[theirs]).await;
    world
}

async fn asks(world: &World, body: &Value) -> Reply {
    post(world, "/v1/recall", body.to_string()).await
}

fn texts(answer: &Value) -> Vec<&str> {
    let memories = answer["memories"].as_array().expect("a list");
    memories
        .iter()
        .map(|one| one["text"].as_str().unwrap())
        .collect()
}

#[tokio::test]
async fn a_question_that_cannot_be_asked_is_refused_by_field() {
    let world = hospital().await;
    for (field, value, code) in [
        ("query", json!(""), "missing_field"),
        ("query", json!(" \t\n\u{3000}"), "missing_field"),
        ("query", json!(null), "missing_field"),
        ("query", json!("x".repeat(100_000)), "query_too_long"),
        ("query", json!("过敏".repeat(17_000)), "query_too_long"),
        ("query", json!({"$ne": null}), "invalid_field"),
        ("query", json!(["花生"]), "invalid_field"),
        ("top_k", json!(0), "invalid_field"),
        ("top_k", json!(1_000_000), "invalid_field"),
        ("top_k", json!(-1), "invalid_field"),
        ("top_k", json!(2.5), "invalid_field"),
        ("filter", json!({"owner": "h/p2"}), "unknown_field"),
        ("owner_key", json!("o-00"), "unknown_field"),
        ("statuses", json!(["erased"]), "unknown_field"),
        ("owner", json!({"should": ["h/p2"]}), "invalid_field"),
        ("owner", json!("h/*"), "invalid_owner"),
        ("kinds", json!({"should": "allergy"}), "invalid_field"),
        ("subject", json!(""), "invalid_field"),
        ("as_of", json!("tomorrow"), "invalid_time"),
        (
            "known_at",
            json!("2099-01-01T00:00:00Z"),
            "known_at_in_future",
        ),
    ] {
        let mut body = json!({"owner": "h/p1", "query": "我对什么过敏"});
        body[field] = value;
        let reply = asks(&world, &body).await;
        let told = (
            reply.status,
            reply.json["code"].as_str(),
            reply.json["field"].as_str(),
        );
        assert_eq!(told, (400, Some(code), Some(field)), "{code} {field}");
        assert_eq!(reply.retry_after, None, "asking again does not help");
    }
    assert_eq!(world.receipts().await, [], "nothing was recalled");
}

/// What has no telling word is asked about nothing; that is said, and nothing is guessed.
#[tokio::test]
async fn a_question_about_nothing_is_answered_with_nothing() {
    let world = hospital().await;
    for query in [
        "the of and is",
        "的 了 吗 呢",
        "?!... --- ,;",
        "？！……。，",
        "🥜🥜🥜",
        "\u{200b}\u{feff}x",
        "\u{0}\u{7}",
        "𠀀𠀁",
    ] {
        let reply = asks(&world, &json!({"owner": "h/p1", "query": query})).await;
        assert_eq!(reply.status, 200, "{query}");
        let answer = &reply.json;
        let told = (answer["answerable"].clone(), answer["reason"].clone());
        assert_eq!(told, (json!(false), json!("below_floor")), "{query}");
        assert_eq!(answer["memories"], json!([]), "{query}");
        assert_eq!(answer["degraded"], json!([]), "{query}");
        assert_eq!(answer["query"]["original"], json!(query));
    }
}

#[tokio::test]
async fn what_looks_like_a_filter_is_a_question_like_any_other() {
    let world = hospital().await;
    for query in [
        "花生过敏\" OR owner:\"h/p2",
        "花生过敏 owner:h/patient/p2 status:erased",
        "花生过敏'); DROP TABLE versions; --",
        "花生过敏 *:* OR text:/.*/",
        "花生过敏 MATCH (n) RETURN n",
        "我 allergic 花生 peanut 過敏",
    ] {
        let reply = asks(&world, &json!({"owner": "h/p1", "query": query})).await;
        assert_eq!(reply.status, 200, "{query}");
        let found = texts(&reply.json);
        assert!(!found.iter().any(|text| text.contains("CANARY")), "{query}");
        assert!(found.contains(&"我对花生过敏"), "{query}: {found:?}");
    }
}

#[tokio::test]
async fn an_owner_nobody_knows_has_nothing_and_gets_nothing() {
    let world = hospital().await;
    let reply = asks(
        &world,
        &json!({"owner": "h/nobody", "query": "我对什么过敏"}),
    )
    .await;
    assert_eq!(reply.status, 200);
    assert_eq!(reply.json["answerable"], json!(false));
    assert_eq!(reply.json["reason"], json!("nothing_stored"));
    assert_eq!(reply.json["memories"], json!([]));
    // A question must not make keys for somebody who is not known, or was erased.
    assert_eq!(world.receipts().await, []);
}

#[tokio::test]
async fn an_owner_of_another_tenant_is_out_of_reach_whether_known_or_not() {
    let world = hospital().await;
    let mut replies = Vec::new();
    for owner in ["h2/p1", "h2/nobody"] {
        let body = json!({"owner": owner, "query": "我对什么过敏"}).to_string();
        let request = Request::post("/v1/recall")
            .header(header::AUTHORIZATION, "Bearer token")
            .body(Body::from(body))
            .unwrap();
        let reply = send(&world, tokens(CallerRole::Assistant), request).await;
        replies.push((reply.status, reply.json));
    }
    assert_eq!(replies[0].0, 403);
    assert_eq!(replies[0], replies[1]);
}

#[tokio::test]
async fn what_will_hold_is_a_fair_question() {
    let mut over = memory(claim(Kind::Medication, "takes metformin"));
    over.standing.valid_to = Some(crate::fixture::at("2027-01-01T00:00:00Z"));
    let world = world(&[allergy(), over]).await;
    let ask = async |query: &str, as_of: &str| {
        let body = json!({"owner": "h/p1", "query": query, "as_of": as_of});
        let reply = asks(&world, &body).await;
        assert_eq!(reply.status, 200);
        assert_eq!(reply.json["query"]["as_of"], json!(as_of));
        let found = texts(&reply.json).len();
        (found, reply.json["reason"].clone())
    };
    assert_eq!(
        ask("花生过敏", "2099-01-01T00:00:00Z").await,
        (1, Value::Null)
    );
    assert_eq!(
        ask("metformin", "2026-12-01T00:00:00Z").await,
        (1, Value::Null)
    );
    assert_eq!(
        ask("metformin", "2099-01-01T00:00:00Z").await,
        (0, json!("over"))
    );
}

/// A service with one whole place, of whose places this many are taken for good.
async fn crowded(world: &World, places: usize) -> (axum::Router, std::sync::Arc<Recall>) {
    let mut parts = world.parts.clone();
    parts.settings.at_once = 1;
    let (recall, _) = Recall::new(parts);
    for _ in 0..places {
        std::mem::forget(recall.gate.enter().await.unwrap());
    }
    let router = router(recall.clone(), Callers::open_on_loopback("h"));
    (router, recall)
}

#[tokio::test]
async fn one_question_too_many_is_answered_from_what_protects_and_says_so() {
    let world = hospital().await;
    let liking = memory(claim(Kind::Preference, "likes penicillin jokes"));
    world.remembers("p1", &[liking]).await;
    let (router, recall) = crowded(&world, 1).await;
    for (query, expected) in [
        ("我对花生过敏吗", "我对花生过敏"),
        ("Am I allergic to penicillin?", "allergic to penicillin"),
    ] {
        for path in ["/v1/recall", "/v1/context"] {
            let mut body = json!({"owner": "h/p1", "query": query});
            if path == "/v1/context" {
                body["usable_tokens"] = json!(4_000);
            }
            let request = Request::post(path)
                .body(Body::from(body.to_string()))
                .unwrap();
            let reply = send_to(router.clone(), request).await;
            assert_eq!(reply.status, 200, "{path}");
            let degraded = reply.json["degraded"].as_array().unwrap();
            assert!(degraded.contains(&json!("overload")), "{degraded:?}");
            assert!(reply.json.to_string().contains(expected), "{query}");
            assert!(!reply.json.to_string().contains("jokes"), "{query}");
            assert!(!reply.json.to_string().contains("CANARY"), "{query}");
        }
    }
    let body = json!({"owner": "h/p1", "query": "which jokes do I like"}).to_string();
    let request = Request::post("/v1/recall").body(Body::from(body)).unwrap();
    let reply = send_to(router, request).await;
    assert_eq!(reply.json["reason"], json!("overload"), "{:?}", reply.json);
    assert_eq!(reply.json["legs"]["text"]["reason"], json!("overload"));
    drop(recall);
}

#[tokio::test]
async fn one_question_too_many_even_for_that_is_refused_at_once() {
    let world = hospital().await;
    let (router, _recall) = crowded(&world, 5).await;
    for (path, body) in [
        (
            "/v1/recall",
            json!({"owner": "h/p1", "query": "我对什么过敏"}),
        ),
        (
            "/v1/context",
            json!({"owner": "h/p1", "query": "我对什么过敏", "usable_tokens": 4_000}),
        ),
    ] {
        let request = Request::post(path)
            .body(Body::from(body.to_string()))
            .unwrap();
        let reply = send_to(router.clone(), request).await;
        let told = (reply.status, reply.json["code"].as_str());
        assert_eq!(told, (503, Some("overloaded")));
        assert_eq!(reply.retry_after.as_deref(), Some("1"));
    }
}

/// What was answered in part can be proven like any other answer: asked again, in part, it is the same.
#[tokio::test]
async fn an_answer_in_part_leaves_a_receipt_that_can_be_asked_again() {
    let world = hospital().await;
    let mut parts = world.parts.clone();
    parts.settings.at_once = 1;
    let (recall, writer) = Recall::new(parts);
    let (patient, scope) = world.scope("p1");
    let place = recall.gate.enter().await.unwrap();
    assert_eq!(place.depth, Depth::Whole);
    let ask = crate::request::Ask::new("我对花生过敏吗");
    let answer = recall
        .recall_in_turn(scope, &patient, "triage", ask)
        .await
        .unwrap();
    assert!(answer.degraded.contains(&"overload".to_owned()));
    drop(place);
    let check = recall.clone();
    drop(recall);
    let stop = tokio_util::sync::CancellationToken::new();
    stop.cancel();
    writer.run(stop).await;
    let receipt = world.receipts().await.pop().unwrap();
    assert_eq!(
        check.recheck(scope, &patient, &receipt).await.unwrap(),
        Comparison::Same
    );
    // The places are counted, not the questions: the next one is answered as a whole.
    let ask = crate::request::Ask::new("我对花生过敏吗");
    let whole = check
        .recall_in_turn(scope, &patient, "triage", ask)
        .await
        .unwrap();
    assert_eq!(whole.degraded, Vec::<String>::new());
}
