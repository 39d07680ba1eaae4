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
