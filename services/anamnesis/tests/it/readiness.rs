//! Does a node admit that something is not done, and turn questions away until it can answer them?

use std::sync::Arc;

use anamnesis::config::{Config, ConsentDefault};
use anamnesis::node::Node;
use anamnesis::readiness::{Readiness, until_caught_up};
use anamnesis::role::Role;
use anamnesis_audit::balance::balance;
use anamnesis_domain::time::Timestamp;
use anamnesis_pipeline::caller::Caller;
use anamnesis_pipeline::clock::ManualClock;
use anamnesis_pipeline::consumer::{Consumer, Progress};
use anamnesis_pipeline::stands::Stands;
use axum::body::Body;
use axum::http::Request;
use serde_json::{Value, json};
use tower::ServiceExt as _;

use crate::node::{Folder, TENANT};

const START: Timestamp = Timestamp::from_millis(1_700_000_000_000);

async fn node_at(folder: &Folder, clock: &Arc<ManualClock>) -> Node {
    let mut config = Config {
        tenant: TENANT.to_owned(),
        ..Config::default()
    };
    config.data_dir = folder.data().to_owned();
    config.consent.default = ConsentDefault::Granted;
    Node::open_with(config, clock.clone())
        .await
        .expect("the folder opens")
}

/// Stages in all partitions, with the places where they tell how far they are.
fn consumers(node: &Node, stands: &Stands) -> Vec<Consumer> {
    let mut all = Vec::new();
    for stage in node.stages().unwrap() {
        for partition in 0..node.log.partitions() {
            let consumer = Consumer::new(
                node.log.clone(),
                stage.clone(),
                partition,
                node.clock.clone(),
            );
            all.push(consumer.with_stands(stands));
        }
    }
    all
}

/// Turns until nobody has anything to do.
async fn catch_up(consumers: &mut [Consumer]) {
    loop {
        let mut is_idle = true;
        for consumer in consumers.iter_mut() {
            is_idle &= consumer.turn().await.expect("a turn") == Progress::Idle;
        }
        if is_idle {
            return;
        }
    }
}

async fn fault(readiness: &Readiness) -> String {
    let report = readiness.report().await.expect("a report");
    report.fault.unwrap_or_default()
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_stage_does_not_answer_in_time_makes_the_node_unready() {
    let folder = Folder::new();
    let clock = Arc::new(ManualClock::new(START));
    let node = node_at(&folder, &clock).await;
    let stands = Stands::default();
    let mut consumers = consumers(&node, &stands);
    let readiness = Readiness::new(&node, Role::All, stands.clone())
        .await
        .expect("a log");
    // The identity records have not been read.
    assert!(fault(&readiness).await.starts_with("stores are behind"));
    node.settle().await.expect("a calm log");
    assert!(fault(&readiness).await.ends_with("begins"));
    catch_up(&mut consumers).await;
    assert_eq!(fault(&readiness).await, "");

    let intake = node.intake();
    let events: Vec<Value> = (0..100)
        .map(|n| {
            json!({
                "event_id": format!("e-{n}"), "owner": format!("{TENANT}/patient/{}", n % 7),
                "role": "user", "at": "2023-11-01T09:00:00Z", "text": "I am allergic to mango.",
            })
        })
        .collect();
    let caller = Caller::local(TENANT);
    let answer = intake.accept_values(&caller, &events, None).await;
    assert_eq!(answer.expect("an answer").accepted.len(), 100);

    clock.advance_millis(59_000);
    assert_eq!(fault(&readiness).await, "");
    clock.advance_millis(2_000);
    let told = fault(&readiness).await;
    assert!(told.starts_with("extractor of partition"), "{told}");
    assert!(told.ends_with("the oldest is 61 s old"), "{told}");

    // Caught up by the same stages, it is ready again, and nothing is missing.
    catch_up(&mut consumers).await;
    assert_eq!(fault(&readiness).await, "");
    let counted = balance(&*node.log, &node.codec).await.expect("a balance");
    assert!(counted.is_exact() && counted.in_flight == 0, "{counted:?}");
}

/// A store that lost its last writes may show what has been erased since.
#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_recalled_before_the_stores_have_caught_up() {
    let folder = Folder::new();
    let server = folder.serve().await;
    let owner = format!("{TENANT}/patient/p-1");
    server.grant(&owner).await;
    let event = json!([{
        "event_id": "e-1", "owner": owner, "role": "user", "at": "2026-03-01T09:00:00Z",
        "text": "I am allergic to mango.",
    }]);
    server
        .post("/v1/events?wait=decided", &event)
        .await
        .expect(202);
    server.stop();
    std::fs::remove_dir_all(folder.data().join("stores")).expect("stores are there");

    let clock = Arc::new(ManualClock::new(START));
    let node = node_at(&folder, &clock).await;
    let readiness = Readiness::new(&node, Role::All, Stands::default())
        .await
        .expect("a log");
    let router = axum::Router::new()
        .route("/v1/recall", axum::routing::get(|| async { "an answer" }))
        .layer(axum::middleware::from_fn_with_state(
            readiness.clone(),
            until_caught_up,
        ));
    let ask = async || {
        let request = Request::get("/v1/recall")
            .body(Body::empty())
            .expect("a request");
        let response = router.clone().oneshot(request).await.expect("a response");
        response.status().as_u16()
    };
    assert_eq!(ask().await, 503);
    assert!(
        fault(&readiness)
            .await
            .starts_with("stores are behind: records by")
    );
    node.settle().await.expect("the stores are built");
    assert_eq!(ask().await, 200);
}
