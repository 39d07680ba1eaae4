//! What becomes of a command or a server when nobody reads what it says, or it cannot be written?

use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};

use serde_json::json;

use crate::node::{Folder, TENANT};
use crate::story;

/// Closes standard output before anything is said; gives the exit code and what stood on standard error.
fn unheard(folder: &Folder, arguments: &[&str]) -> (Option<i32>, String) {
    let mut child = folder
        .command(arguments)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary starts");
    drop(child.stdout.take());
    let done = child.wait_with_output().expect("it ends");
    (
        done.status.code(),
        String::from_utf8_lossy(&done.stderr).into_owned(),
    )
}

/// `… | head` and `… | true`: the command ends as it would have, without a panic.
#[tokio::test(flavor = "multi_thread")]
async fn a_command_that_nobody_listens_to_ends_as_it_would_have() {
    let folder = Folder::new();
    story::tell(&folder, false).await;
    let owner = format!("{TENANT}/patient/liu");
    for arguments in [
        &["audit", "state", "--owner", &owner][..],
        &["audit", "state", "--owner", &owner, "--json"],
        &["audit", "verify"],
        &["audit", "diff"],
        &["audit", "balance"],
        &["export", "--owner", &owner],
        &["review", "list", "--owner", &owner, "--state", "rejected"],
        &["health-check", "--owner", &owner],
        &["parked", "list"],
        &["config"],
    ] {
        let (code, said) = unheard(&folder, arguments);
        assert_eq!(code, Some(0), "{arguments:?}: {said}");
        assert!(!said.contains("panicked"), "{arguments:?}: {said}");
    }
    // What does not hold is an exit code too.
    let nobody = format!("{TENANT}/patient/nobody");
    let heard = folder.run(&["audit", "state", "--owner", &nobody]).code;
    let (code, _) = unheard(&folder, &["audit", "state", "--owner", &nobody]);
    assert_eq!(code, heard);
}

/// Half an export on a full disk must not look like a whole one.
#[tokio::test(flavor = "multi_thread")]
async fn a_command_whose_words_cannot_be_written_says_so() {
    let folder = Folder::new();
    story::tell(&folder, false).await;
    let owner = format!("{TENANT}/patient/liu");
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full");
    let done = folder
        .command(&["export", "--owner", &owner])
        .stdout(full.expect("a device that is full"))
        .output()
        .expect("it runs");
    let said = String::from_utf8_lossy(&done.stderr);
    assert_eq!(done.status.code(), Some(3), "{said}");
    assert!(said.contains("standard output cannot be written"), "{said}");
    assert!(!said.contains("panicked"), "{said}");
}

/// `serve 2>&1 | head -1`: whoever read the address goes away, and the server goes on.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_goes_on_when_nobody_reads_its_lines() {
    let folder = Folder::new();
    let mut child = folder
        .command(&["serve", "--listen", "127.0.0.1:0"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary starts");
    drop(child.stderr.take());
    let mut lines = BufReader::new(child.stdout.take().expect("it is piped")).lines();
    let line = lines.next().expect("a line").expect("words");
    drop(lines);
    let base = line.strip_prefix("listening on ").expect("an address");
    let http = crate::node::Http::new(base.to_owned());
    let owner = format!("{TENANT}/patient/p-1");
    let deadline = std::time::Instant::now() + crate::node::PATIENCE;
    while http.get("/readyz").await.status != 200 {
        assert!(std::time::Instant::now() < deadline, "it is not ready");
        tokio::time::sleep(std::time::Duration::from_millis(25)).await;
    }
    http.grant(&owner).await;
    let event = json!({"event_id": "e", "owner": owner, "role": "user",
        "at": "2026-03-01T09:00:00Z", "text": "I am allergic to mango."});
    http.post("/v1/events?wait=recallable", &event)
        .await
        .expect(202);
    let answer = http
        .recall(&owner, "Am I allergic to mango?", json!({}))
        .await;
    assert_eq!(answer["answerable"], json!(true));
    // Stopping says something too.
    let asked = Command::new("kill").arg(child.id().to_string()).status();
    assert!(asked.is_ok_and(|status| status.success()));
    assert_eq!(child.wait().expect("it ends").code(), Some(0));
}
