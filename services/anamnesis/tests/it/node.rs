//! How does a test run the real binary: a data folder, a server in a process of its own, commands beside
//! it, and what they answer?
//!
//! A child never outlives the test: it is killed when its guard is dropped.

use std::fs::OpenOptions;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anamnesis::config::{Config, Flags};
use anamnesis::node::Node;
use anamnesis_audit::replay::{Digests, digests};
use anamnesis_domain::digest;
use anamnesis_domain::ids::{Hash, OwnerKey};
use anamnesis_domain::owner::Owner;
use anamnesis_domain::state::OwnerState;
use anamnesis_domain::time::Known;
use serde_json::{Value, json};
use tempfile::TempDir;

pub(crate) const TENANT: &str = "hospital-7";

/// How long anything may take before the test fails: generous, since builders share two processors.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);
/// A graceful stop is promised within five seconds.
const STOP_MAX: Duration = Duration::from_secs(5);
const PAUSE: Duration = Duration::from_millis(25);

/// A data folder and what lies beside it: the log lines of its processes, files to import.
pub(crate) struct Folder {
    scratch: PathBuf,
    /// Deletes it in the end, unless somebody else does.
    _own: Option<TempDir>,
    data: PathBuf,
    environment: Vec<(String, String)>,
    config: Option<PathBuf>,
}

impl Folder {
    pub(crate) fn new() -> Self {
        let own = tempfile::tempdir().expect("a temporary folder");
        let mut folder = Self::in_dir(own.path());
        folder._own = Some(own);
        folder
    }

    /// Below a folder that somebody else keeps.
    pub(crate) fn in_dir(scratch: &Path) -> Self {
        std::fs::create_dir_all(scratch).expect("a folder can be made");
        Self {
            scratch: scratch.to_owned(),
            _own: None,
            data: scratch.join("data"),
            environment: Vec::new(),
            config: None,
        }
    }

    /// A folder whose log and keyring are a copy: the same site key, so that ids and digests compare.
    pub(crate) fn copy_of(other: &Self) -> Self {
        let copy = Self::new();
        copy_dir(&other.data, &copy.data);
        copy
    }

    /// Two empty folders with the same keys and the same log id.
    pub(crate) fn twins() -> (Self, Self) {
        let first = Self::new();
        let nothing = first.write("nothing.jsonl", "");
        first
            .run(&["import", nothing.to_str().expect("a path")])
            .expect(0);
        std::fs::remove_dir_all(first.data.join("stores")).expect("stores are there");
        let second = Self::copy_of(&first);
        (first, second)
    }

    /// An environment variable of every process over this folder.
    pub(crate) fn with(mut self, name: &str, value: &str) -> Self {
        self.environment.push((name.to_owned(), value.to_owned()));
        self
    }

    pub(crate) fn with_config(mut self, toml: &str) -> Self {
        self.config = Some(self.write("anamnesis.toml", toml));
        self
    }

    pub(crate) fn data(&self) -> &Path {
        &self.data
    }

    /// A file beside the data folder.
    pub(crate) fn write(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.scratch.join(name);
        std::fs::write(&path, content).expect("a file can be written");
        path
    }

    /// What the processes over this folder wrote to standard error.
    pub(crate) fn log_lines(&self) -> String {
        let bytes = std::fs::read(self.log_file()).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    fn log_file(&self) -> PathBuf {
        self.scratch.join("stderr.log")
    }

    /// A command over this folder, not started.
    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        // A long run may ask for the program as it is shipped.
        let other = std::env::var_os("ANAMNESIS_TEST_PROGRAM");
        let program = other.unwrap_or_else(|| env!("CARGO_BIN_EXE_anamnesis").into());
        let mut command = Command::new(program);
        command.args(arguments);
        // Topics lie in no folder.
        if !matches!(arguments, ["topics", "create" | "check", ..]) {
            command.arg("--data").arg(&self.data);
        }
        if let Some(config) = &self.config {
            command.arg("--config").arg(config);
        }
        command.env("ANAMNESIS__TENANT", TENANT);
        // What is asked here is whether an answer is right; on a busy machine a leg that is late would
        // be left out.
        for leg in ["TEXT", "VECTOR", "GRAPH"] {
            command.env(format!("ANAMNESIS__RECALL__{leg}_DEADLINE"), "60s");
        }
        command.envs(self.environment.iter().map(|(name, value)| (name, value)));
        command.stdin(Stdio::null());
        command
    }

    /// Starts a command and does not wait for it.
    pub(crate) fn spawn(&self, arguments: &[&str]) -> Process {
        let log = OpenOptions::new()
            .create(true)
            .append(true)
            .open(self.log_file());
        let child = self
            .command(arguments)
            .stdout(Stdio::null())
            .stderr(log.expect("the log file can be opened"))
            .spawn()
            .expect("the binary starts");
        Process(child)
    }

    /// Runs a command to its end.
    pub(crate) fn run(&self, arguments: &[&str]) -> Done {
        let output = self.command(arguments).output().expect("the binary starts");
        Done {
            what: arguments.join(" "),
            code: output.status.code(),
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }

    /// Starts a server and waits until it is ready.
    pub(crate) async fn serve(&self) -> Server {
        let mut server = self.start();
        server.wait_ready().await;
        server
    }

    /// Starts a server and waits for its address only.
    pub(crate) fn start(&self) -> Server {
        self.start_service("serve")
    }

    /// Starts one service and waits for its address only.
    pub(crate) fn start_service(&self, service: &str) -> Server {
        self.try_start(service).unwrap_or_else(|status| {
            panic!(
                "{service} ended with {status} before it listened:\n{}",
                self.log_lines()
            )
        })
    }

    fn try_start(&self, service: &str) -> Result<Server, ExitStatus> {
        let log = OpenOptions::new()
            .create(true)
            .append(true)
            .open(self.log_file());
        let mut child = self
            .command(&[service, "--listen", "127.0.0.1:0"])
            .stdout(Stdio::piped())
            .stderr(log.expect("the log file can be opened"))
            .spawn()
            .expect("the binary starts");
        let stdout = child.stdout.take().expect("stdout is piped");
        let mut process = Process(child);
        let address = BufReader::new(stdout)
            .lines()
            .map_while(Result::ok)
            .find_map(|line| {
                line.strip_prefix("listening on ")
                    .map(|address| address.trim().to_owned())
            });
        match address {
            Some(base) => Ok(Server {
                process,
                http: Http::new(base),
                log: self.log_file(),
            }),
            None => Err(process.wait(PATIENCE)),
        }
    }

    /// Opens the folder in this process, to look into what the binary left.
    pub(crate) async fn open(&self) -> Node {
        let mut config = Config {
            tenant: TENANT.to_owned(),
            ..Config::default()
        };
        config.data_dir = self.data.clone();
        Node::open(config)
            .await
            .unwrap_or_else(|error| panic!("the folder opens: {error}"))
    }

    /// Opens the configuration in this process as a command beside running services does.
    pub(crate) async fn open_tool(&self) -> Node {
        let flags = Flags {
            data_dir: Some(self.data.clone()),
            listen: None,
        };
        let config = Config::load(self.config.as_deref(), &flags).expect("a configuration");
        Node::open_tool(config)
            .await
            .unwrap_or_else(|error| panic!("the stores open: {error}"))
    }

    /// Both digests over all owners, by replay.
    pub(crate) async fn digests(&self) -> Digests {
        let node = self.open().await;
        digests(&*node.log, &node.codec)
            .await
            .expect("the log replays")
    }

    /// Checks what must hold of any settled folder: balance, chain and stores.
    pub(crate) fn check_sound(&self) -> Value {
        self.run(&["audit", "verify"]).expect(0);
        self.run(&["audit", "diff"]).expect(0);
        let balance = self.run(&["audit", "balance", "--json"]).expect(0).json();
        for count in ["lost", "answered_twice", "foreign", "in_flight", "parked"] {
            assert_eq!(balance[count], json!(0), "{count} in {balance}");
        }
        balance
    }
}

/// The digest of one owner, by replay.
pub(crate) async fn exact_digest(node: &Node, owner: &str) -> Hash {
    digest::exact(&replayed(node, owner).await)
}

/// As [`exact_digest`], without ids, offsets and append times: equal over logs with other keys.
pub(crate) async fn content_digest(node: &Node, owner: &str) -> Hash {
    digest::content(&replayed(node, owner).await)
}

async fn replayed(node: &Node, owner: &str) -> OwnerState {
    let (state, ..) = anamnesis_audit::replay::replay_owner(
        &*node.log,
        &node.codec,
        owner_key(node, owner),
        Known::Latest,
    )
    .await
    .expect("the log replays");
    state
}

pub(crate) fn owner_key(node: &Node, owner: &str) -> OwnerKey {
    let owner: Owner = owner.parse().expect("an owner");
    node.codec.keys().id_key().owner(&owner)
}

pub(crate) fn copy_dir(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).expect("a folder can be made");
    for entry in std::fs::read_dir(from).expect("a folder can be read") {
        let entry = entry.expect("an entry can be read");
        let target = to.join(entry.file_name());
        if entry.path().is_dir() {
            copy_dir(&entry.path(), &target);
        } else {
            std::fs::copy(entry.path(), target).expect("a file can be copied");
        }
    }
}

/// A child that is killed when it is dropped.
pub(crate) struct Process(Child);

impl Process {
    /// SIGKILL: no handler runs, nothing is flushed.
    pub(crate) fn kill(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }

    fn signal(&self, name: &str) {
        let killed = Command::new("kill")
            .arg(format!("-{name}"))
            .arg(self.0.id().to_string())
            .status();
        assert!(
            killed.is_ok_and(|status| status.success()),
            "{name} was sent"
        );
    }

    /// Its end, within `at_most`.
    pub(crate) fn wait(&mut self, at_most: Duration) -> ExitStatus {
        let deadline = Instant::now() + at_most;
        loop {
            if let Some(status) = self.0.try_wait().expect("a child can be waited for") {
                return status;
            }
            assert!(
                Instant::now() < deadline,
                "the process did not end within {at_most:?}"
            );
            std::thread::sleep(PAUSE);
        }
    }

    pub(crate) fn has_ended(&mut self) -> bool {
        self.0.try_wait().is_ok_and(|status| status.is_some())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

/// How a command ended.
pub(crate) struct Done {
    what: String,
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Done {
    #[track_caller]
    pub(crate) fn expect(self, code: i32) -> Self {
        assert_eq!(
            self.code,
            Some(code),
            "{}\nstdout: {}\nstderr: {}",
            self.what,
            self.stdout,
            self.stderr
        );
        self
    }

    #[track_caller]
    pub(crate) fn says(self, words: &[&str]) -> Self {
        for word in words {
            assert!(
                self.stdout.contains(word) || self.stderr.contains(word),
                "{} does not say \"{word}\"\nstdout: {}\nstderr: {}",
                self.what,
                self.stdout,
                self.stderr
            );
        }
        self
    }

    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|_| panic!("not JSON: {}", self.stdout))
    }
}

/// A running server.
pub(crate) struct Server {
    process: Process,
    pub(crate) http: Http,
    log: PathBuf,
}

impl Server {
    pub(crate) async fn wait_ready(&mut self) {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let ready = self.http.try_get("/readyz").await;
            if ready.as_ref().is_ok_and(|answer| answer.status == 200) {
                return;
            }
            let log = || std::fs::read_to_string(&self.log).unwrap_or_default();
            assert!(!self.process.has_ended(), "serve ended early:\n{}", log());
            assert!(Instant::now() < deadline, "serve is not ready:\n{}", log());
            tokio::time::sleep(PAUSE).await;
        }
    }

    pub(crate) fn kill(mut self) {
        self.process.kill();
    }

    pub(crate) fn has_ended(&mut self) -> bool {
        self.process.has_ended()
    }

    /// SIGSTOP, SIGCONT.
    pub(crate) fn signal(&self, name: &str) {
        self.process.signal(name);
    }

    /// SIGTERM; the process must end by itself, in time and without complaint.
    pub(crate) fn stop(mut self) {
        self.process.signal("TERM");
        let status = self.process.wait(STOP_MAX);
        let log = || std::fs::read_to_string(&self.log).unwrap_or_default();
        assert_eq!(status.code(), Some(0), "a graceful stop:\n{}", log());
    }
}

impl std::ops::Deref for Server {
    type Target = Http;

    fn deref(&self) -> &Http {
        &self.http
    }
}

/// A client of one server.
#[derive(Clone)]
pub(crate) struct Http {
    base: String,
    client: reqwest::Client,
    token: Option<String>,
}

pub(crate) fn http_client() -> reqwest::Client {
    // Also without TLS the client wants to know who would compute it; the first to say so is heard.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let client = reqwest::Client::builder().timeout(PATIENCE).build();
    client.expect("a client")
}

impl Http {
    pub(crate) fn new(base: String) -> Self {
        Self {
            base,
            client: http_client(),
            token: None,
        }
    }

    /// Host and port.
    pub(crate) fn address(&self) -> &str {
        self.base.trim_start_matches("http://")
    }

    /// The same server, called with a bearer token.
    pub(crate) fn as_caller(&self, token: &str) -> Self {
        Self {
            token: Some(token.to_owned()),
            ..self.clone()
        }
    }

    fn request(&self, method: reqwest::Method, path: &str) -> reqwest::RequestBuilder {
        let request = self.client.request(method, format!("{}{path}", self.base));
        match &self.token {
            Some(token) => request.bearer_auth(token),
            None => request,
        }
    }

    pub(crate) async fn try_get(&self, path: &str) -> Result<Answer, reqwest::Error> {
        let what = format!("GET {path}");
        Answer::read(what, self.request(reqwest::Method::GET, path).send().await?).await
    }

    pub(crate) async fn get(&self, path: &str) -> Answer {
        self.try_get(path)
            .await
            .unwrap_or_else(|error| panic!("GET {path}: {error}"))
    }

    pub(crate) async fn try_post(
        &self,
        path: &str,
        body: &Value,
    ) -> Result<Answer, reqwest::Error> {
        let what = format!("POST {path}");
        let request = self.request(reqwest::Method::POST, path).json(body);
        Answer::read(what, request.send().await?).await
    }

    /// With an `idempotency-key`.
    pub(crate) async fn try_post_as(
        &self,
        path: &str,
        key: &str,
        body: &Value,
    ) -> Result<Answer, reqwest::Error> {
        let request = self
            .request(reqwest::Method::POST, path)
            .header("idempotency-key", key);
        Answer::read(format!("POST {path}"), request.json(body).send().await?).await
    }

    pub(crate) async fn post(&self, path: &str, body: &Value) -> Answer {
        self.try_post(path, body)
            .await
            .unwrap_or_else(|error| panic!("POST {path}: {error}"))
    }

    /// A body and headers as they are.
    pub(crate) async fn post_raw(
        &self,
        path: &str,
        headers: &[(&str, &str)],
        body: impl Into<reqwest::Body>,
    ) -> Answer {
        let mut request = self.request(reqwest::Method::POST, path).body(body);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let sent = request
            .send()
            .await
            .unwrap_or_else(|error| panic!("POST {path}: {error}"));
        Answer::read(format!("POST {path}"), sent)
            .await
            .expect("an answer")
    }

    /// Waits until everything accepted is decided and in every store.
    pub(crate) async fn settle(&self) {
        self.settle_looking(PAUSE * 4).await;
    }

    /// As [`Http::settle`], with so long between two looks: each replays the log.
    pub(crate) async fn settle_looking(&self, every: Duration) {
        let deadline = Instant::now() + PATIENCE.max(every * 100);
        loop {
            let balance = self.get("/v1/audit/balance").await.expect(200);
            let is_decided = balance["in_flight"] == json!(0);
            let ready = self.get("/readyz").await;
            let behind = ready.body["behind_records"].as_object();
            if is_decided && behind.is_some_and(|stores| stores.values().all(|n| *n == json!(0))) {
                return;
            }
            assert!(
                Instant::now() < deadline,
                "not settled: {balance} {}",
                ready.body
            );
            tokio::time::sleep(every).await;
        }
    }

    /// The owner agrees to everything, from long ago.
    pub(crate) async fn grant(&self, owner: &str) {
        let body = json!({
            "owner": owner,
            "max_sensitivity": 4,
            "valid_from": "2000-01-01T00:00:00Z",
        });
        let answer = self.post("/v1/consents", &body).await.expect(202);
        assert_eq!(answer["decided"], json!(true), "{answer}");
    }

    /// What recall answers to a question with these further fields.
    pub(crate) async fn recall(&self, owner: &str, query: &str, more: Value) -> Value {
        let mut body = json!({"owner": owner, "query": query});
        let fields = body.as_object_mut().expect("an object");
        fields.extend(more.as_object().cloned().unwrap_or_default());
        let answer = self.post("/v1/recall", &body).await.expect(200);
        assert_eq!(answer["degraded"], json!([]), "{answer}");
        answer
    }
}

/// The texts of an answer's memories, best first.
pub(crate) fn texts(answer: &Value) -> Vec<String> {
    let memories = answer["memories"].as_array().cloned().unwrap_or_default();
    memories
        .iter()
        .map(|memory| memory["text"].as_str().unwrap_or_default().to_owned())
        .collect()
}

/// What a call gave back.
pub(crate) struct Answer {
    what: String,
    pub(crate) status: u16,
    pub(crate) headers: reqwest::header::HeaderMap,
    pub(crate) text: String,
    /// `null` when the text is not JSON.
    pub(crate) body: Value,
}

impl Answer {
    async fn read(what: String, response: reqwest::Response) -> Result<Self, reqwest::Error> {
        let status = response.status().as_u16();
        let headers = response.headers().clone();
        let text = response.text().await?;
        let body = serde_json::from_str(&text).unwrap_or_default();
        Ok(Self {
            what,
            status,
            headers,
            text,
            body,
        })
    }

    #[track_caller]
    pub(crate) fn expect(self, status: u16) -> Value {
        assert_eq!(self.status, status, "{}: {}", self.what, self.text);
        self.body
    }

    /// A problem document with this status, code and field (`-` for none).
    #[track_caller]
    pub(crate) fn is_problem(&self, status: u16, code: &str, field: &str) {
        let found = (
            self.status,
            self.body["code"].as_str().unwrap_or_default(),
            self.body["field"].as_str().unwrap_or("-"),
        );
        assert_eq!(found, (status, code, field), "{}: {}", self.what, self.text);
        let kind = self
            .headers
            .get("content-type")
            .and_then(|value| value.to_str().ok());
        assert_eq!(kind, Some("application/problem+json"), "{}", self.what);
        let detail = self.body["detail"].as_str().unwrap_or_default();
        assert!(
            detail.len() > 5,
            "{}: a problem says what is wrong: {}",
            self.what,
            self.text
        );
    }
}

/// Numbers that a seed determines.
pub(crate) struct Dice(u64);

impl Dice {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    fn roll(&mut self) -> u64 {
        // SplitMix64.
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// From 0 up to and without `below`.
    pub(crate) fn below(&mut self, below: u64) -> u64 {
        self.roll() % below
    }

    pub(crate) fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[self.below(from.len() as u64) as usize]
    }

    pub(crate) fn shuffle<T>(&mut self, list: &mut [T]) {
        for last in (1..list.len()).rev() {
            let other = self.below(last as u64 + 1) as usize;
            list.swap(last, other);
        }
    }
}

/// A number from the environment, for longer runs.
pub(crate) fn from_environment(name: &str, default: u64) -> u64 {
    match std::env::var(name) {
        Ok(text) => text
            .parse()
            .unwrap_or_else(|_| panic!("{name} must be a number")),
        Err(_) => default,
    }
}
