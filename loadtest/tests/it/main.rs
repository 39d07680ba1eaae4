//! Does the program run at all, say what is wrong when nobody answers, and find nothing of others?

use std::process::Command;

#[test]
fn a_node_that_does_not_run_is_a_clear_error() {
    let check = |arguments: &[&str]| {
        // Nobody listens there: it is below the ports that a process without rights may take.
        let done = Command::new(env!("CARGO_BIN_EXE_anamnesis-loadtest"))
            .args(arguments)
            .args(["--url", "http://127.0.0.1:1"])
            .output()
            .expect("the program starts");
        let said = String::from_utf8_lossy(&done.stderr);
        assert_eq!(done.status.code(), Some(1), "{arguments:?}: {said}");
        assert!(said.contains("127.0.0.1:1"), "{arguments:?}: {said}");
        assert!(!said.contains("panicked"), "{arguments:?}: {said}");
    };
    check(&["fill", "--owners", "1", "--events", "1"]);
}

/// C18, R-32, R-54: over hundreds of owners in several hospitals who share ids, names, drugs and
/// sentences no question, however hostile, brings what another owner said. `ANAMNESIS_ISOLATION_QUERIES`
/// asks more.
#[test]
fn no_question_brings_what_another_owner_said() {
    let queries = std::env::var("ANAMNESIS_ISOLATION_QUERIES").unwrap_or("20000".to_owned());
    let done = Command::new(env!("CARGO_BIN_EXE_anamnesis-loadtest"))
        .args(["isolation", "--queries", &queries, "--patients", "60"])
        .output()
        .expect("the program starts");
    let said = String::from_utf8_lossy(&done.stderr);
    let found = String::from_utf8_lossy(&done.stdout);
    assert_eq!(done.status.code(), Some(0), "{found}{said}");
    let all = format!("{queries} questions in ");
    assert!(
        found.contains(&all) && found.contains("foreign: 0"),
        "{found}"
    );
}
