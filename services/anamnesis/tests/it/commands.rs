//! Do the commands that are run by hand say what they should, and end with the code that scripts rely
//! on?

use serde_json::json;

use crate::node::{Folder, texts};
use crate::story::{self, patient};

#[tokio::test(flavor = "multi_thread")]
async fn what_is_exported_is_what_the_audit_says() {
    let folder = Folder::new();
    story::tell(&folder, true).await;
    for name in ["liu", "mora", "nagy"] {
        let owner = patient(name);
        let exported = folder.run(&["export", "--owner", &owner]).expect(0).json();
        let state = folder
            .run(&["audit", "state", "--owner", &owner, "--json"])
            .expect(0)
            .json();
        for digest in ["exact_digest", "content_digest"] {
            assert_eq!(exported[digest], state[digest], "{name}");
        }
        assert_eq!(exported["owner"], json!(owner));
    }
    folder
        .run(&["export", "--owner", &patient("nobody")])
        .expect(1)
        .says(&["nothing is remembered"]);
    folder
        .run(&["parked", "list"])
        .expect(0)
        .says(&["nobody is parked"]);
    folder.run(&["parked", "retry"]).expect(0);
    folder
        .run(&["health-check"])
        .expect(0)
        .says(&["over capacity"]);
    folder
        .run(&["health-check", "--apply"])
        .expect(0)
        .says(&["archived"]);
    folder
        .run(&["config"])
        .expect(0)
        .says(&["consent", "required"]);
    let dead = "m-00112233445566778899aabbccddeeff";
    folder
        .run(&["audit", "explain", "--memory", dead])
        .expect(1)
        .says(&["no decision names"]);
    folder.check_sound();
}

#[tokio::test(flavor = "multi_thread")]
async fn messages_and_memories_are_forgotten_by_hand() {
    let folder = Folder::new();
    story::tell(&folder, false).await;
    let owner = patient("liu");
    let forget = |what: &[&str], mode: &str| {
        let mut arguments = vec![
            "forget", "--owner", &owner, "--mode", mode, "--reason", "asked",
        ];
        arguments.extend(what);
        folder.run(&arguments)
    };
    forget(&["--source", "/clinic/0", "--event", "liu-0"], "erase")
        .expect(0)
        .says(&["stored"]);
    forget(&["--source", "/clinic/1"], "restrict")
        .expect(0)
        .says(&["stored"]);
    forget(&["--memory", "m-00112233445566778899aabbccddeeff"], "erase")
        .expect(1)
        .says(&["not_found"]);
    let server = folder.serve().await;
    let page = server
        .get(&format!("/v1/memories?owner={owner}&limit=100"))
        .await
        .expect(200);
    let said = texts(&page).join("\n");
    assert!(!said.contains("花生过敏，吃了会起疹子"), "{said}");
    assert!(
        !said.contains("metformin 500"),
        "source 1 is restricted: {said}"
    );
    assert!(
        said.contains("shellfish") || said.contains("高血压"),
        "{said}"
    );
    server.stop();
    folder.check_sound();
}

#[tokio::test(flavor = "multi_thread")]
async fn evidence_is_imported_and_a_person_decides_by_hand() {
    let folder = Folder::new();
    let owner = "hospital-7/patient/zoe";
    let status = |code: &str| json!({"coding": [{"code": code}]});
    let record = |id: &str, what: &str, verification: &str| {
        json!({
            "resourceType": "Condition", "id": id, "clinicalStatus": status("active"),
            "verificationStatus": status(verification), "code": {"text": what},
            "subject": {"reference": "Patient/zoe"}, "recordedDate": "2026-01-02",
        })
        .to_string()
    };
    let lines = [
        record("c1", "asthma", "provisional"),
        record("c2", "高血压", "confirmed"),
        record("c3", "gout", "surely"),
        json!({
            "event_id": "q1", "owner": owner, "role": "user", "at": "2026-01-03T00:00:00Z",
            "text": "如果我对青霉素过敏怎么办？",
        })
        .to_string(),
    ];
    let file = folder.write("evidence.jsonl", lines.join("\n"));
    let file = file.to_str().expect("a path");
    let import = ["import", "--tenant", "hospital-7", "--consent", file];
    folder
        .run(&import)
        .expect(1)
        .says(&[":3: invalid_field", "verificationStatus.coding[0].code"]);

    let list = |state: &str| {
        folder
            .run(&[
                "review", "list", "--owner", owner, "--state", state, "--json",
            ])
            .expect(0)
            .json()
    };
    let open = list("open");
    assert_eq!(open["why"], json!("pending_review"), "{open}");
    assert_eq!(open["new"]["evidence"]["verified"], json!(true), "{open}");
    let decide = |id: &serde_json::Value, decision: &str| {
        folder.run(&[
            "review",
            "decide",
            "--owner",
            owner,
            "--id",
            id.as_str().expect("an id"),
            "--decision",
            decision,
            "--reason",
            "seen",
            "--actor",
            "dr-lin",
        ])
    };
    decide(&open["id"], "admit").expect(0).says(&["stored"]);
    decide(&open["id"], "retire")
        .expect(1)
        .says(&["not_in_review", "decided before: admit by dr-lin"]);
    let rejected = list("rejected");
    assert_eq!(rejected["why"], json!("hypothetical"), "{rejected}");
    decide(&rejected["id"], "admit").expect(0).says(&["stored"]);
    folder
        .run(&["review", "list", "--owner", owner])
        .expect(0)
        .says(&["0 open"]);
    let server = folder.serve().await;
    let page = server
        .get(&format!("/v1/memories?owner={owner}&kind=condition"))
        .await
        .expect(200);
    let said = texts(&page).join("\n");
    assert!(said.contains("asthma") && said.contains("高血压"), "{said}");
    server.stop();
    folder.check_sound();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_with_bad_lines_is_imported_but_for_those() {
    let folder = Folder::new();
    let line = |n: u32, text: &str| {
        json!({
            "event_id": format!("f-{n}"), "owner": patient("zoe"), "role": "user",
            "at": "2026-01-01T00:00:00Z", "text": text,
        })
        .to_string()
    };
    let mut bytes = b"\xef\xbb\xbf".to_vec();
    for part in [
        line(1, "I am allergic to kiwi.").as_bytes(),
        b"",
        b"{\"owner\": \"x",
        b"{\"text\": \"\xff\"}",
        b"   ",
        br#"{"greeting": 1}"#,
        line(2, "我对菠萝过敏。").as_bytes(),
    ] {
        bytes.extend_from_slice(part);
        bytes.push(b'\n');
    }
    let file = folder.write("mixed.jsonl", bytes);
    let file = file.to_str().expect("a path");
    folder.run(&["import", "--consent", file]).expect(1).says(&[
        "accepted 2 messages of 1 owners",
        "3 rejected",
        ":3: invalid_json",
        ":4: invalid_utf8",
        ":6: unsupported_shape",
    ]);
    folder
        .run(&["import", "no-such-file.jsonl"])
        .expect(2)
        .says(&["no-such-file.jsonl"]);
    // Without a grant it waits, and says so.
    let waiting = folder.write("waiting.jsonl", line(3, "Hello.").replace("zoe", "yan"));
    let waiting = waiting.to_str().expect("a path");
    folder
        .run(&["import", waiting])
        .expect(0)
        .says(&["1 quarantined", "--consent"]);
    let balance = folder.check_sound();
    assert_eq!(balance["decided"]["quarantined"], json!(1), "{balance}");
    folder.run(&["import", "--consent", waiting]).expect(0);
    let balance = folder.check_sound();
    assert_eq!(balance["decided"].get("quarantined"), None, "{balance}");
    folder.run(&["imprt"]).expect(2);
}
