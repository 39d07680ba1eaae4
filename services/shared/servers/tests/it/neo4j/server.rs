//! A Neo4j server of one test, started by the script in `infra/servers`, that may be stopped and killed.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use tempfile::TempDir;

use super::Place;

pub(crate) struct Server {
    dir: TempDir,
    uri: String,
}

impl Server {
    pub(crate) fn start() -> Self {
        Self::start_with(&[])
    }

    /// With these variables in the script's environment.
    pub(crate) fn start_with(variables: &[(&str, &str)]) -> Self {
        let dir = TempDir::new().expect("a temporary folder");
        let uri = run("start", dir.path(), variables);
        Self { dir, uri }
    }

    /// The same data, at the same address.
    pub(crate) fn start_again(&self) {
        assert_eq!(run("start", self.dir.path(), &[]), self.uri);
    }

    pub(crate) fn kill(&self) {
        run("kill", self.dir.path(), &[]);
    }

    /// `STOP` or `CONT`: a server that neither answers nor closes its sockets.
    pub(crate) fn signal(&self, name: &str) {
        send(name, &self.pid());
    }

    pub(crate) fn pid(&self) -> String {
        let pid = std::fs::read_to_string(self.dir.path().join("pid")).expect("it was started");
        pid.trim().to_owned()
    }

    pub(crate) fn uri(&self) -> &str {
        &self.uri
    }

    pub(crate) fn data(&self) -> PathBuf {
        self.dir.path().join("data")
    }

    pub(crate) fn place(&self) -> Place {
        let mut place = Place::at(&self.uri);
        place.dir = Some(self.data());
        place.config.server_data = Some(self.data());
        place
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // A stopped process takes this signal too.
        self.kill();
    }
}

pub(crate) fn kill_process(pid: &str) {
    send("KILL", pid);
}

fn send(signal: &str, pid: &str) {
    let done = Command::new("kill")
        .arg(format!("-{signal}"))
        .arg(pid)
        .status();
    assert!(done.expect("kill").success());
}

fn run(command: &str, dir: &Path, variables: &[(&str, &str)]) -> String {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../infra/servers/neo4j.sh");
    let output = Command::new(script)
        .arg(command)
        .arg(dir)
        .envs(variables.iter().copied())
        .stderr(Stdio::inherit())
        .output()
        .expect("the script runs");
    assert!(
        output.status.success(),
        "neo4j.sh {command}: {}",
        output.status
    );
    let line = String::from_utf8(output.stdout).expect("text");
    line.trim()
        .trim_start_matches("ANAMNESIS_TEST_NEO4J=")
        .to_owned()
}
