//! The calls as a caller sees them.

use anamnesis_domain::ids::{ErasureId, MemoryId};
use anamnesis_domain::input::{Target, Verdict};
use anamnesis_domain::memory::{Kind, Memory, Status};
use anamnesis_domain::time::Timestamp;
use anamnesis_domain::transition::Review;
use anamnesis_pipeline::caller::{CallerRole, Callers, OPEN_HEADER, TokenConfig};
use anamnesis_pipeline::stores::ErasureRow;
use axum::Router;
use axum::body::{Body, to_bytes};
use axum::http::{Request, header};
use serde_json::{Value, json};
use tower::ServiceExt as _;

use super::router;
use crate::fixture::{at, claim, memory};
use crate::world::World;

pub(super) struct Reply {
    pub(super) status: u16,
    pub(super) json: Value,
    pub(super) is_open: bool,
    pub(super) retry_after: Option<String>,
}

pub(super) async fn send(world: &World, callers: Callers, request: Request<Body>) -> Reply {
    send_to(router(world.shared(), callers), request).await
}

pub(super) async fn send_to(router: Router, request: Request<Body>) -> Reply {
    let response = router.oneshot(request).await.unwrap();
    let (parts, body) = response.into_parts();
    let bytes = to_bytes(body, 1 << 20).await.unwrap();
    Reply {
        status: parts.status.as_u16(),
        json: serde_json::from_slice(&bytes).unwrap_or(Value::Null),
        is_open: parts.headers.contains_key(OPEN_HEADER),
        retry_after: parts
            .headers
            .get(header::RETRY_AFTER)
            .map(|value| value.to_str().unwrap().to_owned()),
    }
}

async fn get(world: &World, path: &str) -> Reply {
    let request = Request::get(path).body(Body::empty()).unwrap();
    send(world, Callers::open_on_loopback("h"), request).await
}

pub(super) async fn post(world: &World, path: &str, body: impl Into<Body>) -> Reply {
    let request = Request::post(path).body(body.into()).unwrap();
    send(world, Callers::open_on_loopback("h"), request).await
}

/// A caller with a token for tenant `h` and one role.
pub(super) fn tokens(role: CallerRole) -> Callers {
    let config = TokenConfig {
        name: "triage".to_owned(),
        token_blake3: Some(anamnesis_domain::ids::Hash::of(b"token").to_string()),
        token_env: None,
        tenants: vec!["h".to_owned()],
        roles: vec![role],
    };
    Callers::from_config(&[config], "h").unwrap()
}

async fn get_as(world: &World, role: CallerRole, path: &str) -> Reply {
    let request = Request::get(path)
        .header(header::AUTHORIZATION, "Bearer token")
        .body(Body::empty());
    send(world, tokens(role), request.unwrap()).await
}

pub(super) async fn world(memories: &[Memory]) -> World {
    let world = World::new();
    world.consents("p1").await;
    world.remembers("p1", memories).await;
    world
}

pub(super) fn allergy() -> Memory {
    memory(claim(Kind::Allergy, "我对花生过敏"))
}

#[tokio::test]
async fn a_recall_answers_with_the_fields_of_the_interface() {
    let world = world(&[allergy()]).await;
    let body = json!({"owner": "h/p1", "query": "我对什么过敏"}).to_string();
    let reply = post(&world, "/v1/recall", body).await;
    assert_eq!(
        (reply.status, reply.is_open),
        (200, true),
        "{:?}",
        reply.json
    );
    let answer = &reply.json;
    for field in [
        "recall_id",
        "answerable",
        "query",
        "memories",
        "legs",
        "degraded",
    ] {
        assert!(answer.get(field).is_some(), "{field}");
    }
    for field in ["original", "rewritten", "subject", "as_of", "known_at"] {
        assert!(answer["query"].get(field).is_some(), "query.{field}");
    }
    let first = &answer["memories"][0];
    for field in [
        "id",
        "owner",
        "subject",
        "kind",
        "text",
        "status",
        "valid_from",
        "importance",
        "confidence",
        "source",
        "score",
        "staleness",
    ] {
        assert!(first.get(field).is_some(), "{field}");
    }
    for field in [
        "final",
        "relevance",
        "recency",
        "importance",
        "access",
        "protected",
        "ranks",
    ] {
        assert!(first["score"].get(field).is_some(), "score.{field}");
    }
    for leg in ["text", "vector", "graph"] {
        assert_eq!(answer["legs"][leg]["ran"], true);
        assert!(
            answer["legs"][leg].get("ms").is_some()
                && answer["legs"][leg].get("position").is_some()
        );
    }
}

#[tokio::test]
async fn a_bad_body_is_named_and_not_repeated() {
    let world = world(&[]).await;
    let too_long = json!({"owner": "h/p1", "query": "x".repeat(9000)}).to_string();
    for (body, status, code) in [
        (Body::from(vec![0xff, 0xfe]), 400, "invalid_utf8"),
        (Body::from("{\"owner\": SECRET"), 400, "invalid_json"),
        (Body::from("[]"), 400, "not_an_object"),
        (Body::from("{}"), 400, "missing_field"),
        (Body::from(vec![b' '; (1 << 20) + 1]), 413, "body_too_large"),
        (Body::from(too_long), 400, "query_too_long"),
    ] {
        let reply = post(&world, "/v1/recall", body).await;
        assert_eq!(
            (reply.status, reply.json["code"].as_str()),
            (status, Some(code))
        );
        assert!(!reply.json.to_string().contains("SECRET"));
    }
}

#[tokio::test]
async fn no_owner_never_means_all() {
    let world = world(&[allergy()]).await;
    for path in [
        "/v1/memories",
        "/v1/reviews",
        "/v1/owners/tasks",
        "/v1/tasks/t1",
        "/v1/changes",
        "/v1/memories/m-00000000000000000000000000000000",
    ] {
        for query in ["", "?owner=", "?owner=*", "?owner=h/*", "?owner=h/patient/"] {
            let reply = get(&world, &format!("{path}{query}")).await;
            assert_eq!(reply.status, 400, "{path}{query}");
        }
    }
    let reply = post(
        &world,
        "/v1/context",
        json!({"query": "q", "usable_tokens": 10}).to_string(),
    )
    .await;
    assert_eq!(
        (reply.status, reply.json["field"].as_str()),
        (400, Some("owner"))
    );
}

#[tokio::test]
async fn a_token_reaches_its_tenant_only_and_learns_nothing_of_others() {
    let world = world(&[allergy()]).await;
    let anonymous = Request::get("/v1/memories?owner=h/p1")
        .body(Body::empty())
        .unwrap();
    assert_eq!(
        send(&world, tokens(CallerRole::Assistant), anonymous)
            .await
            .status,
        401
    );
    let own = get_as(&world, CallerRole::Assistant, "/v1/memories?owner=h/p1").await;
    assert_eq!((own.status, own.is_open), (200, false));
    assert_eq!(own.json["memories"].as_array().unwrap().len(), 1);
    let foreign = get_as(&world, CallerRole::Assistant, "/v1/memories?owner=h2/p1").await;
    assert_eq!(foreign.status, 403);
    // Another owner's memory looks like one that never was.
    let id = allergy().id;
    let theirs = get(
        &world,
        &format!("/v1/memories/{}?owner=h/p2", id_in(&world).await),
    )
    .await;
    let never = get(&world, &format!("/v1/memories/{id}?owner=h/p2")).await;
    assert_eq!((theirs.status, &theirs.json), (404, &never.json));
}

async fn id_in(world: &World) -> String {
    let listed = get(world, "/v1/memories?owner=h/p1").await;
    listed.json["memories"][0]["id"]
        .as_str()
        .unwrap()
        .to_owned()
}

#[tokio::test]
async fn unknown_and_wrong_parameters_are_refused_by_name() {
    let world = world(&[]).await;
    for (query, code, field) in [
        ("stat=active", "unknown_parameter", "stat"),
        ("status=alive", "unknown_status", "status"),
        ("kind=mood", "unknown_kind", "kind"),
        ("limit=0", "invalid_parameter", "limit"),
        ("limit=9999", "invalid_parameter", "limit"),
        ("order=up", "invalid_parameter", "order"),
        ("as_of=2024-01-01", "time_without_zone", "as_of"),
        (
            "known_at=2099-01-01T00:00:00Z",
            "known_at_in_future",
            "known_at",
        ),
        ("cursor=SECRET", "invalid_cursor", "cursor"),
        ("limit=1&limit=2", "repeated_parameter", "limit"),
    ] {
        let reply = get(&world, &format!("/v1/memories?owner=h/p1&{query}")).await;
        let told = (
            reply.status,
            reply.json["code"].as_str(),
            reply.json["field"].as_str(),
        );
        assert_eq!(told, (400, Some(code), Some(field)), "{query}");
    }
}

#[tokio::test]
async fn memories_are_listed_in_pages() {
    let all: Vec<Memory> = (0..5)
        .map(|n| memory(claim(Kind::Fact, &format!("fact {n}"))))
        .collect();
    let world = world(&all).await;
    let mut seen = Vec::new();
    let mut path = "/v1/memories?owner=h/p1&limit=2".to_owned();
    loop {
        let page = get(&world, &path).await.json;
        seen.extend(
            page["memories"]
                .as_array()
                .unwrap()
                .iter()
                .map(|one| one["id"].clone()),
        );
        let Some(cursor) = page["cursor"].as_str() else {
            break;
        };
        path = format!("/v1/memories?owner=h/p1&limit=2&cursor={cursor}");
    }
    let distinct: std::collections::BTreeSet<String> = seen.iter().map(Value::to_string).collect();
    assert_eq!((seen.len(), distinct.len()), (5, 5));
}

#[tokio::test]
async fn an_erased_memory_says_when_and_under_which_erasure() {
    let world = world(&[]).await;
    let (id, erasure) = (
        MemoryId::from_bytes([8; 16]),
        ErasureId::from_bytes([9; 16]),
    );
    let row = ErasureRow {
        erasure,
        target: Target::Memories(vec![id]),
        memory_ids: vec![id],
        recorded_at: at("2026-10-01T00:00:00Z"),
        offset: 1,
    };
    world.erased("p1", row).await;
    let reply = get(&world, &format!("/v1/memories/{id}?owner=h/p1")).await;
    assert_eq!(
        (reply.status, reply.json["code"].as_str()),
        (410, Some("erased"))
    );
    let detail = format!("erased on 2026-10-01 under erasure {erasure}");
    assert_eq!(reply.json["detail"].as_str(), Some(detail.as_str()));
}

#[tokio::test]
async fn a_question_about_a_time_before_an_erasure_is_told_of_it() {
    let world = world(&[allergy()]).await;
    let erasure = ErasureId::from_bytes([9; 16]);
    let row = ErasureRow {
        erasure,
        target: Target::Memories(vec![MemoryId::from_bytes([8; 16])]),
        memory_ids: vec![MemoryId::from_bytes([8; 16])],
        recorded_at: at("2026-10-01T00:00:00Z"),
        offset: 1,
    };
    world.erased("p1", row).await;
    let told = json!([{"erasure_id": erasure, "erased_at": "2026-10-01T00:00:00Z"}]);
    let (before, after) = ("2026-09-30T23:59:59Z", "2026-10-02T00:00:00Z");
    let listed = |clock: &'static str, instant: &'static str| {
        let path = format!("/v1/memories?owner=h/p1&{clock}={instant}");
        let world = &world;
        async move { get(world, &path).await.json["erased"].clone() }
    };
    assert_eq!(listed("as_of", before).await, told);
    assert_eq!(listed("known_at", before).await, told);
    assert_eq!(listed("as_of", after).await, Value::Null);
    for (path, more) in [
        ("/v1/recall", json!({})),
        ("/v1/context", json!({"usable_tokens": 900})),
    ] {
        for (clock, instant, expected) in [
            ("as_of", before, &told),
            ("known_at", before, &told),
            ("known_at", after, &Value::Null),
        ] {
            let mut body = json!({"owner": "h/p1", "query": "我对什么过敏", clock: instant});
            body.as_object_mut()
                .unwrap()
                .extend(more.as_object().unwrap().clone());
            let reply = post(&world, path, body.to_string()).await;
            assert_eq!(reply.status, 200, "{path}: {:?}", reply.json);
            assert_eq!(reply.json["erased"], *expected, "{path} {clock} {instant}");
        }
    }
}

#[tokio::test]
async fn a_memory_is_read_by_both_clocks() {
    let mut drug = memory(claim(Kind::Medication, "氨氯地平 5 mg"));
    drug.standing.valid_from = at("2026-02-01T00:00:00Z");
    drug.claim.source.at = at("2026-03-01T00:00:00Z");
    let world = world(std::slice::from_ref(&drug)).await;
    let mut ended = drug.clone();
    ended.version = 2;
    ended.claim.source.at = at("2026-06-01T00:00:00Z");
    ended.standing.valid_to = Some(at("2026-05-01T00:00:00Z"));
    world.remembers("p1", std::slice::from_ref(&ended)).await;
    let check = |clocks: &'static str, expected: Result<u64, u16>| {
        let path = format!("/v1/memories/{}?owner=h/p1{clocks}", drug.id);
        let world = &world;
        async move {
            let reply = get(world, &path).await;
            let found = match reply.status {
                200 => Ok(reply.json["version"].as_u64().unwrap()),
                status => Err(status),
            };
            assert_eq!(found, expected, "{clocks}: {:?}", reply.json);
        }
    };
    check("", Ok(2)).await;
    check("&as_of=2026-04-01T00:00:00Z", Ok(2)).await;
    check("&as_of=2026-05-02T00:00:00Z", Err(404)).await;
    check("&known_at=2026-04-01T00:00:00Z", Ok(1)).await;
    // Nobody knew yet that it had ended.
    check(
        "&as_of=2026-05-02T00:00:00Z&known_at=2026-05-15T00:00:00Z",
        Ok(1),
    )
    .await;
    check("&known_at=2026-02-15T00:00:00Z", Err(404)).await;
    check("&known_at=2999-01-01T00:00:00Z", Err(400)).await;
}

#[tokio::test]
async fn what_is_restricted_needs_a_role_to_be_seen() {
    let mut hidden = allergy();
    hidden.standing.status = Status::Restricted;
    let world = world(std::slice::from_ref(&hidden)).await;
    let path = format!("/v1/memories/{}?owner=h/p1", hidden.id);
    assert_eq!(
        get_as(&world, CallerRole::Assistant, &path).await.status,
        404
    );
    assert_eq!(get_as(&world, CallerRole::Auditor, &path).await.status, 200);
    let list = "/v1/memories?owner=h/p1&status=restricted";
    assert_eq!(
        get_as(&world, CallerRole::Assistant, list).await.status,
        403
    );
    assert_eq!(
        get_as(&world, CallerRole::Reviewer, list).await.json["memories"]
            .as_array()
            .unwrap()
            .len(),
        1
    );
}

#[tokio::test]
async fn open_reviews_show_both_sides() {
    let old = memory(claim(Kind::Medication, "氨氯地平 5 mg"));
    let mut new = memory(claim(Kind::Medication, "氨氯地平 50 mg"));
    new.standing.status = Status::Conflicted;
    new.standing.conflict_with = Some(old.id);
    let world = world(&[old.clone(), new.clone()]).await;
    world.clock.set(at("2025-01-02T00:00:00Z"));
    let reviews = get(&world, "/v1/reviews?owner=h/p1&state=open").await.json;
    assert_eq!(reviews["reviews"].as_array().unwrap().len(), 1);
    assert_eq!(reviews["reviews"][0]["id"], json!(new.id));
    assert_eq!(reviews["reviews"][0]["old"]["text"], "氨氯地平 5 mg");
    let evidence = &reviews["reviews"][0]["new"]["evidence"];
    assert_eq!(
        (&evidence["role"], &evidence["authority"]),
        (&json!("user"), &json!(0.95))
    );
    assert!(reviews["reviews"][0]["expires_at"].is_string(), "{reviews}");
    for state in ["decided", "expired"] {
        let path = format!("/v1/reviews?owner=h/p1&state={state}");
        assert_eq!(
            get(&world, &path).await.json["reviews"],
            json!([]),
            "{state}"
        );
    }
    assert_eq!(
        get(&world, "/v1/reviews?owner=h/p1&state=closed")
            .await
            .status,
        400
    );
    let rejected = "/v1/reviews?owner=h/p1&state=rejected";
    assert_eq!(
        get_as(&world, CallerRole::Assistant, rejected).await.status,
        403
    );
}

#[tokio::test]
async fn what_hides_is_written_out_for_a_reviewer() {
    let mut doubted = memory(claim(Kind::Allergy, "对青霉素\u{200b}不\u{202e}过敏"));
    doubted.standing.status = Status::PendingReview;
    let world = world(&[doubted]).await;
    world.clock.set(at("2025-01-02T00:00:00Z"));
    let reviews = get(&world, "/v1/reviews?owner=h/p1").await.json;
    let item = &reviews["reviews"][0];
    assert_eq!(item["new"]["text"], "对青霉素[U+200B]不[U+202E]过敏");
    assert_eq!(item["has_hidden_characters"], json!(true));
}

#[tokio::test]
async fn a_question_expires_and_what_was_decided_says_who_when_and_what() {
    let mut old = memory(claim(Kind::Medication, "氨氯地平 50 mg"));
    old.standing.status = Status::PendingReview;
    let mut decided = memory(claim(Kind::Medication, "二甲双胍 5 g"));
    decided.standing.status = Status::Retired;
    decided.review = Some(Review {
        verdict: Verdict::KeepOld,
        actor: Some("dr-lin".to_owned()),
        at: Some(Timestamp::from_millis(0)),
        reason: Some("a slip".into()),
    });
    let world = world(&[old.clone(), decided.clone()]).await;
    world.clock.set(at("2025-01-02T00:00:00Z"));
    let of = async |state: &str| {
        let path = format!("/v1/reviews?owner=h/p1&state={state}");
        get(&world, &path).await.json["reviews"].clone()
    };
    assert_eq!(of("open").await[0]["id"], json!(old.id));
    let told = of("decided").await[0].clone();
    assert_eq!(told["id"], json!(decided.id));
    assert_eq!(
        told["decision"],
        json!({"decision": "keep_old", "by": "dr-lin", "at": "1970-01-01T00:00:00Z", "reason": "a slip"})
    );
    world.clock.advance_millis(31 * 86_400_000);
    assert_eq!(of("open").await, json!([]));
    assert_eq!(of("expired").await[0]["state"], "expired");
}

#[tokio::test]
async fn tasks_are_read_by_owner_and_by_id() {
    let world = world(&[]).await;
    world.works_on("p1", "t1", "退款").await;
    let all = get(&world, "/v1/owners/tasks?owner=h/p1").await.json;
    assert_eq!(all["tasks"][0]["goal"], "退款");
    assert_eq!(
        get(&world, "/v1/tasks/t1?owner=h/p1").await.json["id"],
        "t1"
    );
    assert_eq!(get(&world, "/v1/tasks/t1?owner=h/p2").await.status, 404);
}

#[tokio::test]
async fn a_context_has_sections_within_the_budget() {
    let world = world(&[allergy(), memory(claim(Kind::Preference, "咖啡少糖"))]).await;
    let rule = memory(claim(Kind::Policy, "花生过敏的患者在就餐前核对餐单"));
    world.remembers_as("h/org/ward", &[rule]).await;
    let body = json!({
        "owner": "h/p1", "query": "我对花生过敏吗", "usable_tokens": 20000, "org": "h/org/ward",
        "messages": [{"role": "user", "content": "你好"}],
    });
    let reply = post(&world, "/v1/context", body.to_string()).await;
    assert_eq!(reply.status, 200, "{:?}", reply.json);
    let tags: Vec<&str> = reply.json["sections"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|s| s["tag"].as_str())
        .collect();
    assert_eq!(tags, ["safety_facts", "org_policies"]);
    assert!(reply.json["tokens"].as_u64().unwrap() <= 3200);
    for (field, value, code) in [
        ("org", json!("h/project/x"), "invalid_owner"),
        ("sections", json!(["everything"]), "unknown_section"),
        ("usable_tokens", json!(null), "missing_field"),
        ("budget", json!(1), "unknown_field"),
    ] {
        let mut wrong = body.clone();
        wrong[field] = value;
        let reply = post(&world, "/v1/context", wrong.to_string()).await;
        assert_eq!(reply.json["code"], code, "{field}");
    }
}

#[tokio::test]
async fn outcomes_are_accepted_for_known_recalls_only() {
    let world = world(&[allergy()]).await;
    let recall = world.shared();
    let ask = |path: &'static str, body: Value| {
        let recall = recall.clone();
        async move {
            let request = Request::post(path)
                .body(Body::from(body.to_string()))
                .unwrap();
            let response = router(recall, Callers::open_on_loopback("h"))
                .oneshot(request)
                .await
                .unwrap();
            let status = response.status().as_u16();
            let bytes = to_bytes(response.into_body(), 1 << 20).await.unwrap();
            (status, serde_json::from_slice::<Value>(&bytes).unwrap())
        }
    };
    let (_, answer) = ask("/v1/recall", json!({"owner": "h/p1", "query": "花生过敏"})).await;
    let id = answer["recall_id"].clone();
    let (status, accepted) = ask("/v1/outcomes", json!({"recall_id": id, "outcome": "used"})).await;
    assert_eq!(
        (status, accepted["position"]["topic"].as_str()),
        (202, Some("accesses"))
    );
    let strange = "r-00000000000000000000000000000000";
    assert_eq!(
        ask(
            "/v1/outcomes",
            json!({"recall_id": strange, "outcome": "used"})
        )
        .await
        .0,
        404
    );
    let (status, _) = ask(
        "/v1/outcomes",
        json!({"recall_id": strange, "outcome": "used", "owner": "h/p1"}),
    )
    .await;
    assert_eq!(status, 202);
    let (status, problem) = ask("/v1/outcomes", json!({"recall_id": id, "outcome": "great"})).await;
    assert_eq!((status, problem["field"].as_str()), (400, Some("outcome")));
    assert_eq!(
        ask(
            "/v1/outcomes",
            json!({"recall_id": strange, "outcome": "used", "owner": "h/p9"})
        )
        .await
        .0,
        404
    );
}

#[tokio::test]
async fn changes_since_a_version_are_told() {
    let mut tagged = claim(Kind::Fact, "账单已付");
    tagged.context_tags = vec!["finance".to_owned()];
    let mut tagged = memory(tagged);
    tagged.version = 7;
    let world = world(&[allergy(), tagged]).await;
    let changes = get(&world, "/v1/changes?owner=h/p1&tag=finance&since=3")
        .await
        .json;
    assert_eq!(
        (
            changes["version"].as_u64(),
            changes["changes"].as_array().unwrap().len()
        ),
        (Some(7), 1)
    );
    let none = get(&world, "/v1/changes?owner=h/p1&tag=finance&since=7")
        .await
        .json;
    assert!(none["changes"].as_array().unwrap().is_empty());
}
