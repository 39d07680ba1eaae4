//! Does the distributed form do the main job? What was said is recalled, asked about as of a day,
//! explained and forgotten, by services that share nothing but servers.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use serde_json::json;

use crate::fleet::{Fleet, Servers};
use crate::node::{PATIENCE, TENANT, texts};

const PARTITIONS: u32 = 4;

#[tokio::test(flavor = "multi_thread")]
async fn what_was_said_to_one_service_is_recalled_by_another_and_forgotten_by_all() {
    let mut fleet = Fleet::new(Servers::shared, PARTITIONS);
    fleet.start_all().await;
    let (intake, recall) = (fleet.http("intake-a"), fleet.http("recall-a"));
    let owner = format!("{TENANT}/patient/p-1");
    intake.grant(&owner).await;
    let events = json!([
        {"event_id": "e1", "owner": owner, "role": "user", "at": "2026-03-01T09:00:00+08:00",
         "text": "我对芒果过敏，帮我记住。"},
        {"event_id": "e2", "owner": owner, "role": "user", "at": "2026-04-02T09:00:00+08:00",
         "text": "My mother has glaucoma. I take lisinopril 10 mg daily."},
    ]);
    let accepted = intake
        .post("/v1/events?wait=recallable", &events)
        .await
        .expect(202);
    assert_eq!(accepted["rejected"], json!([]), "{accepted}");
    fleet.settle().await;

    let found = recall
        .recall(&owner, "Am I allergic to mango?", json!({}))
        .await;
    assert_eq!(
        texts(&found).first().map(String::as_str),
        Some("我对芒果过敏")
    );
    for leg in ["text", "vector", "graph"] {
        assert_eq!(found["legs"][leg]["ran"], json!(true), "{found}");
    }
    let earlier = json!({"as_of": "2026-02-01T00:00:00Z"});
    let found = recall.recall(&owner, "我对什么过敏", earlier).await;
    assert_eq!(texts(&found), Vec::<String>::new());
    fleet.check_sound();

    // One of two copies is gone, and then the other one instead.
    for replica in ["indexer-0a", "indexer-0b"] {
        fleet.kill(replica);
        let found = recall
            .recall(&owner, "Which medicine do I take?", json!({}))
            .await;
        assert!(texts(&found).iter().any(|text| text.contains("lisinopril")));
        fleet.start("indexer", replica);
        fleet.wait_ready().await;
    }

    each_partition_is_told_of_by_its_holder_alone(&mut fleet).await;

    let forget = json!({"owner": owner, "all": true, "mode": "erase", "reason": "asked for it"});
    let asked = intake
        .post("/v1/forget?wait=recallable", &forget)
        .await
        .expect(202);
    let erasure = asked["erasure_id"].as_str().expect("an id").to_owned();
    let path = format!("/v1/erasures/{erasure}");
    loop {
        let status = recall.get(&path).await.expect(200)["status"].clone();
        if status == json!("complete") {
            break;
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    // A graph that is slow after it has rewritten its files is left out; what is gone stays gone.
    let question = json!({"owner": owner, "query": "Am I allergic to mango?"});
    let found = recall.post("/v1/recall", &question).await.expect(200);
    assert_eq!(texts(&found), Vec::<String>::new());
    fleet.check_sound();
    for name in fleet.running() {
        fleet.stop(&name);
    }
}

/// A partition that went to another process would be reported for ever by the one that had it, and its
/// lag counted twice.
async fn each_partition_is_told_of_by_its_holder_alone(fleet: &mut Fleet) {
    fleet.start("validity-manager", "validity-manager-b");
    fleet.wait_ready().await;
    let began = Instant::now();
    loop {
        let mut shares = Vec::new();
        for name in ["validity-manager-a", "validity-manager-b"] {
            let metrics = fleet.http(name).get("/metrics").await.text;
            shares.push(unanswered(&metrics));
        }
        let partitions: usize = shares.iter().map(BTreeMap::len).sum();
        let is_shared = shares.iter().all(|share| !share.is_empty());
        let all: BTreeMap<String, f64> = shares.into_iter().flatten().collect();
        if is_shared && partitions == PARTITIONS as usize && all.len() == partitions {
            let unanswered: f64 = all.values().sum();
            assert_eq!(unanswered, 0.0, "everything is decided: {all:?}");
            return;
        }
        assert!(
            began.elapsed() < PATIENCE,
            "{partitions} partitions are told of: {all:?}"
        );
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

/// Records that the validity-manager has not answered, by partition.
fn unanswered(metrics: &str) -> BTreeMap<String, f64> {
    let lines = metrics.lines().filter(|line| {
        line.starts_with("anamnesis_unanswered_records{")
            && line.contains("stage=\"validity-manager\"")
    });
    lines
        .map(|line| {
            let (series, value) = line.rsplit_once(' ').expect("a series has a value");
            (series.to_owned(), value.parse().expect("a number"))
        })
        .collect()
}
