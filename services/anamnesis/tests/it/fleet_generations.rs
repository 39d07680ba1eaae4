//! Can a store on a server be built anew beside the services, and is there a way back until an erasure?

use serde_json::json;

use crate::fleet::{Fleet, Servers};
use crate::node::{Http, TENANT, texts};

const PARTITIONS: u32 = 2;

async fn say(intake: &Http, owner: &str, id: &str, text: &str) {
    let event = json!({
        "event_id": id, "owner": owner, "role": "user", "at": "2026-03-01T09:00:00+08:00",
        "text": text,
    });
    let answer = intake.post("/v1/events?wait=recallable", &event).await;
    assert_eq!(answer.expect(202)["decided"], json!(true));
}

/// Both stores have everything that is stored and answer.
async fn check(fleet: &Fleet, owner: &str, said: &str) {
    fleet.settle().await;
    fleet.check_sound();
    let recall = fleet.http("recall-a");
    let found = recall.recall(owner, said, json!({})).await;
    for leg in ["text", "vector", "graph"] {
        assert_eq!(found["legs"][leg]["ran"], json!(true), "{found}");
    }
    assert!(
        texts(&found).iter().any(|text| text.contains(said)),
        "{found}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_generation_is_built_beside_the_services_and_left_again_until_an_erasure() {
    let mut fleet = Fleet::new(Servers::shared, PARTITIONS);
    fleet.start_all().await;
    let intake = fleet.http("intake-a");
    let (zhang, nagy) = (
        format!("{TENANT}/patient/张"),
        format!("{TENANT}/patient/nagy"),
    );
    for owner in [&zhang, &nagy] {
        intake.grant(owner).await;
    }
    say(&intake, &zhang, "e1", "我对芒果过敏。").await;
    say(&intake, &nagy, "e1", "I take lisinopril 10 mg daily.").await;
    check(&fleet, &zhang, "芒果").await;
    for store in ["vectors", "graph"] {
        fleet
            .run(&["rebuild", "--store", store, "--back"])
            .expect(1)
            .says(&[store, "there is no generation before"]);
        fleet.run(&["rebuild", "--store", store]).expect(0);
    }
    say(&intake, &zhang, "e2", "我对花生过敏。").await;
    check(&fleet, &zhang, "花生").await;

    // What was said since is in the generation before as soon as it has caught up.
    for store in ["vectors", "graph"] {
        fleet
            .run(&["rebuild", "--store", store, "--back"])
            .expect(0)
            .says(&[store, "is live again"]);
    }
    check(&fleet, &zhang, "花生").await;
    say(&intake, &zhang, "e3", "我对青霉素过敏。").await;
    check(&fleet, &zhang, "青霉素").await;

    // An erasure ends the way back: nobody would carry it out there.
    for store in ["vectors", "graph"] {
        fleet.run(&["rebuild", "--store", store]).expect(0);
    }
    let forget = json!({"owner": nagy, "all": true, "mode": "erase", "reason": "asked for it"});
    intake
        .post("/v1/forget?wait=recallable", &forget)
        .await
        .expect(202);
    check(&fleet, &zhang, "青霉素").await;
    for store in ["vectors", "graph"] {
        fleet
            .run(&["rebuild", "--store", store, "--back"])
            .expect(1)
            .says(&[store, "an erasure has ended the way back"]);
    }
    fleet
        .run(&["topics", "give-up-lost"])
        .expect(0)
        .says(&["inbox-0: nothing is lost"]);
    for name in fleet.running() {
        fleet.stop(&name);
    }
}
