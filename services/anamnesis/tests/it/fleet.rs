//! How does a test run the distributed form: each service a process of its own with a folder of its own,
//! over real Kafka, Neo4j and PostgreSQL and Qdrant's protocol?
//!
//! Fleets share servers and stay apart by prefix; one that stops or kills a server starts its own.

use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::io::Write as _;
use std::net::TcpListener;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

use anamnesis::node::Node;
use serde_json::Value;
use tempfile::TempDir;

use crate::node::{Done, Folder, Http, Server, TENANT};

/// The servers' addresses.
pub(crate) struct Servers {
    pub(crate) kafka: String,
    pub(crate) neo4j: String,
    pub(crate) postgres: String,
    pub(crate) qdrant: String,
    /// Where they lie, when they are the test's own.
    own: Option<TempDir>,
}

/// The scripts' names.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    Kafka,
    Neo4j,
    Postgres,
    Qdrant,
}

impl Kind {
    const fn script(self) -> &'static str {
        match self {
            Self::Kafka => "kafka",
            Self::Neo4j => "neo4j",
            Self::Postgres => "postgres",
            Self::Qdrant => "qdrant-double",
        }
    }
}

fn scripts() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../infra/servers")
}

fn run_script(script: &str, verb: &str, dir: &Path) -> String {
    let output = Command::new(scripts().join(format!("{script}.sh")))
        .arg(verb)
        .arg(dir)
        .stderr(Stdio::inherit())
        .output()
        .expect("the script runs");
    assert!(output.status.success(), "{script}.sh {verb} failed");
    String::from_utf8(output.stdout).expect("text")
}

impl Servers {
    /// Those that the test run has.
    pub(crate) fn shared() -> Self {
        let address = |name: &str| {
            let variable = format!("ANAMNESIS_TEST_{name}");
            std::env::var(&variable).unwrap_or_else(|_| {
                panic!("{variable} is not set: infra/servers/all.sh start DIR says it")
            })
        };
        Self {
            kafka: address("KAFKA"),
            neo4j: address("NEO4J"),
            postgres: address("POSTGRES"),
            qdrant: address("QDRANT"),
            own: None,
        }
    }

    /// New ones, to be killed.
    pub(crate) fn own() -> Self {
        let dir = tempfile::tempdir().expect("a temporary folder");
        let said = run_script("all", "start", dir.path());
        let address = |name: &str| {
            let line = said
                .lines()
                .find_map(|line| line.strip_prefix(&format!("ANAMNESIS_TEST_{name}=")));
            line.expect("each server says its address").to_owned()
        };
        Self {
            kafka: address("KAFKA"),
            neo4j: address("NEO4J"),
            postgres: address("POSTGRES"),
            qdrant: address("QDRANT"),
            own: Some(dir),
        }
    }

    fn dir(&self, kind: Kind) -> PathBuf {
        let dir = self.own.as_ref().expect("only own servers are stopped");
        dir.path().join(kind.script())
    }

    /// SIGKILL.
    pub(crate) fn kill(&self, kind: Kind) {
        run_script(kind.script(), "kill", &self.dir(kind));
    }

    /// The same data at the same address.
    pub(crate) fn start_again(&self, kind: Kind) {
        run_script(kind.script(), "start", &self.dir(kind));
    }

    /// SIGSTOP or SIGCONT: a server that neither answers nor closes its sockets.
    pub(crate) fn signal(&self, kind: Kind, name: &str) {
        let pid = std::fs::read_to_string(self.dir(kind).join("pid")).expect("it was started");
        let done = Command::new("kill")
            .arg(format!("-{name}"))
            .arg(pid.trim())
            .status();
        assert!(done.is_ok_and(|status| status.success()), "{name} was sent");
    }
}

impl Drop for Servers {
    fn drop(&mut self) {
        if let Some(dir) = &self.own {
            run_script("all", "kill", dir.path());
        }
    }
}

/// One fleet at a time: ten processes and their servers share the processors that a test run has.
struct Turn;

static IS_TAKEN: Mutex<bool> = Mutex::new(false);
static GIVEN_BACK: Condvar = Condvar::new();

impl Turn {
    fn wait() -> Self {
        let is_taken = IS_TAKEN.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = GIVEN_BACK.wait_while(is_taken, |is_taken| *is_taken);
        *waited.unwrap_or_else(PoisonError::into_inner) = true;
        Self
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        *IS_TAKEN.lock().unwrap_or_else(PoisonError::into_inner) = false;
        GIVEN_BACK.notify_one();
    }
}

/// Services over servers.
pub(crate) struct Fleet {
    pub(crate) servers: Servers,
    config: String,
    scratch: TempDir,
    shards: Vec<ShardReplica>,
    members: BTreeMap<String, Member>,
    /// Given back last.
    _turn: Turn,
}

/// One indexer, by what it serves.
#[derive(Clone)]
struct ShardReplica {
    name: String,
    partitions: String,
    port: u16,
}

struct Member {
    service: &'static str,
    folder: Folder,
    server: Option<Server>,
}

/// What makes one system of everything that carries its name.
pub(crate) fn new_name() -> String {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    format!("it{}x{number}", std::process::id())
}

/// Two shards; the first has two replicas.
fn plan_shards(partitions: u32) -> Vec<ShardReplica> {
    let half = partitions / 2;
    let replica = |name: &str, from: u32, to: u32| ShardReplica {
        name: name.to_owned(),
        partitions: format!("{from}-{}", to - 1),
        port: free_port(),
    };
    vec![
        replica("indexer-0a", 0, half),
        replica("indexer-0b", 0, half),
        replica("indexer-1a", half, partitions),
    ]
}

fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    listener.local_addr().expect("an address").port()
}

fn configuration(
    servers: &Servers,
    name: &str,
    partitions: u32,
    master: &Path,
    shards: &[ShardReplica],
) -> String {
    let mut by_partitions: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for replica in shards {
        let address = format!("\"http://127.0.0.1:{}\"", replica.port);
        by_partitions
            .entry(&replica.partitions)
            .or_default()
            .push(address);
    }
    let shards: Vec<String> = by_partitions
        .iter()
        .map(|(partitions, replicas)| {
            format!(
                "[[records.shards]]\npartitions = \"{partitions}\"\nreplicas = [{}]\n",
                replicas.join(", ")
            )
        })
        .collect();
    let Servers {
        kafka,
        neo4j,
        postgres,
        qdrant,
        own: _,
    } = servers;
    format!(
        r#"
[log]
kind = "kafka"
brokers = "{kafka}"
topic_prefix = "{name}."
partitions = {partitions}
replication_factor = 1
min_insync_replicas = 1
# As below: a broker among ten busy processes may take its time.
read_timeout = "30s"
connect_timeout = "60s"
group = {{ session_timeout = "6s", drain_timeout = "2s" }}

[keyring]
kind = "postgres"
url = "{postgres}"
schema = "{name}"
master_key_file = "{master}"

[vectors]
kind = "qdrant"
url = "{qdrant}"
prefix = "{name}"

[graph]
kind = "neo4j"
uri = "{neo4j}"
prefix = "{name}"

[text]
kind = "shards"

[records]
kind = "shards"
# What is asked here is whether an answer is right; a busy machine may take its time.
deadline = "20s"

[inbox]
tenants = ["{TENANT}"]

{shards}
"#,
        master = master.display(),
        shards = shards.join("\n"),
    )
}

impl Fleet {
    /// Topics made, nothing running.
    pub(crate) fn new(servers: impl FnOnce() -> Servers, partitions: u32) -> Self {
        let fleet = Self::without_topics(servers, partitions);
        fleet.run(&["topics", "create"]).expect(0);
        fleet.run(&["topics", "check"]).expect(0);
        fleet
    }

    pub(crate) fn without_topics(servers: impl FnOnce() -> Servers, partitions: u32) -> Self {
        let turn = Turn::wait();
        let servers = servers();
        let scratch = tempfile::tempdir().expect("a temporary folder");
        let master = scratch.path().join("master.key");
        let file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&master);
        file.and_then(|mut file| file.write_all("5a".repeat(32).as_bytes()))
            .expect("the key can be written");
        let shards = plan_shards(partitions);
        let config = configuration(&servers, &new_name(), partitions, &master, &shards);
        Self {
            servers,
            config,
            scratch,
            shards,
            members: BTreeMap::new(),
            _turn: turn,
        }
    }

    fn folder(&self, name: &str) -> Folder {
        let folder = Folder::in_dir(&self.scratch.path().join(name)).with_config(&self.config);
        let Some(shard) = self.shards.iter().find(|shard| shard.name == name) else {
            return folder;
        };
        folder
            .with(
                "ANAMNESIS__SHARD__LISTEN",
                &format!("127.0.0.1:{}", shard.port),
            )
            .with("ANAMNESIS__SHARD__PARTITIONS", &shard.partitions)
            .with("ANAMNESIS__SHARD__REPLICA", &shard.name)
    }

    /// Runs a command beside the services.
    pub(crate) fn run(&self, arguments: &[&str]) -> Done {
        self.folder("command").run(arguments)
    }

    /// Runs a command as one of the services would be run.
    pub(crate) fn run_as(&self, name: &str, arguments: &[&str]) -> Done {
        self.folder(name).run(arguments)
    }

    /// The log and the stores, opened in this process.
    pub(crate) async fn open(&self) -> Node {
        self.folder("inspector").open_tool().await
    }

    /// Starts a service and waits for its address only.
    pub(crate) fn start(&mut self, service: &'static str, name: &str) {
        let folder = match self.members.remove(name) {
            Some(member) => member.folder,
            None => self.folder(name),
        };
        let server = folder.start_service(service);
        let member = Member {
            service,
            folder,
            server: Some(server),
        };
        self.members.insert(name.to_owned(), member);
    }

    /// One of each service and every indexer; returns when all are ready.
    pub(crate) async fn start_all(&mut self) {
        let running = self.running();
        for (service, name) in [
            ("intake", "intake-a"),
            ("extractor", "extractor-a"),
            ("validity-manager", "validity-manager-a"),
            ("forgetter", "forgetter-a"),
            ("recall", "recall-a"),
        ] {
            if !running.contains(&name.to_owned()) {
                self.start(service, name);
            }
        }
        let indexers: Vec<String> = self.shards.iter().map(|s| s.name.clone()).collect();
        for name in indexers {
            self.start("indexer", &name);
        }
        self.wait_ready().await;
    }

    /// Waits until every service that runs says that it is ready.
    pub(crate) async fn wait_ready(&mut self) {
        for member in self.members.values_mut() {
            if let Some(server) = &mut member.server {
                server.wait_ready().await;
            }
        }
    }

    /// The names of the services that run.
    pub(crate) fn running(&self) -> Vec<String> {
        let running = self.members.iter().filter(|(_, m)| m.server.is_some());
        running.map(|(name, _)| name.clone()).collect()
    }

    /// Panics when a service has ended by itself: whatever happens around it, it waits.
    pub(crate) fn check_alive(&mut self) {
        for (name, member) in &mut self.members {
            if let Some(server) = &mut member.server {
                assert!(
                    !server.has_ended(),
                    "{name} ended by itself:\n{}",
                    last_lines(&member.folder.log_lines().lines().collect::<Vec<_>>())
                );
            }
        }
    }

    fn server(&self, name: &str) -> &Server {
        let member = self.members.get(name).and_then(|m| m.server.as_ref());
        member.unwrap_or_else(|| panic!("{name} does not run"))
    }

    pub(crate) fn http(&self, name: &str) -> Http {
        self.server(name).http.clone()
    }

    pub(crate) fn service_of(&self, name: &str) -> &'static str {
        self.members[name].service
    }

    /// SIGKILL.
    pub(crate) fn kill(&mut self, name: &str) {
        let member = self.members.get_mut(name).expect("it was started");
        if let Some(server) = member.server.take() {
            server.kill();
        }
    }

    /// SIGTERM, and its end in time.
    pub(crate) fn stop(&mut self, name: &str) {
        let member = self.members.get_mut(name).expect("it was started");
        if let Some(server) = member.server.take() {
            server.stop();
        }
    }

    /// SIGSTOP or SIGCONT.
    pub(crate) fn signal(&self, name: &str, signal: &str) {
        self.server(name).signal(signal);
    }

    /// Waits until everything accepted is decided and in every store.
    pub(crate) async fn settle(&self) {
        let recall = self.http("recall-a");
        recall.settle_looking(Duration::from_secs(3)).await;
    }

    /// What must hold of any settled fleet: balance, chain and stores.
    pub(crate) fn check_sound(&self) -> Value {
        self.folder("command").check_sound()
    }
}

/// A test that fails says what its services complained of: their logs go with it.
impl Drop for Fleet {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            return;
        }
        for (name, member) in &self.members {
            let log = member.folder.log_lines();
            let complaints: Vec<&str> = log
                .lines()
                .filter(|line| line.contains("WARN") || line.contains("ERROR"))
                .collect();
            if !complaints.is_empty() {
                eprintln!("{name} complained:\n{}", last_lines(&complaints));
            }
        }
    }
}

fn last_lines(lines: &[&str]) -> String {
    lines[lines.len().saturating_sub(30)..].join("\n")
}
