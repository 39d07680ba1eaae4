//! Does the program run at all, and say what is wrong when nobody answers?

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
