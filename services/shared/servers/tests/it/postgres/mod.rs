//! The PostgreSQL keyring over a real server: the contract, and what several processes, outages and
//! leftovers do to it.

mod erased;
mod opening;
mod outages;
mod several;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use anamnesis_domain::ids::{ErasureId, EventTag, KeyId, MemoryId, OwnerKey, SourceTag};
use anamnesis_pipeline::conformance::keyring::KeyringBackend;
use anamnesis_pipeline::keyring::master_key::MasterKey;
use anamnesis_pipeline::keyring::{KeyState, Keyring, KeyringError, Keys, NewKey};
use anamnesis_servers::postgres_keyring::{PostgresKeyring, PostgresKeyringConfig};
use async_trait::async_trait;
use tempfile::TempDir;
use tokio_postgres::NoTls;

const VARIABLE: &str = "ANAMNESIS_TEST_POSTGRES";

/// Far above what is measured, so that only a hang reaches it.
const SOON: Duration = Duration::from_secs(20);

fn url() -> String {
    std::env::var(VARIABLE).unwrap_or_else(|_| {
        panic!("{VARIABLE} is not set: infra/servers/postgres.sh start DIR says it")
    })
}

fn master() -> MasterKey {
    MasterKey::from_bytes([9; 32])
}

/// A schema of its own on a server, dropped in the end.
struct Schema {
    url: String,
    name: String,
}

impl Schema {
    fn new() -> Self {
        Self::on(url())
    }

    fn on(url: String) -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::SeqCst);
        let name = format!("test_{}_{number}", std::process::id());
        Self { url, name }
    }

    fn config(&self) -> PostgresKeyringConfig {
        PostgresKeyringConfig {
            schema: self.name.clone(),
            connections_max: 2,
            // Tests share two cores.
            deadline: SOON,
            ..PostgresKeyringConfig::new(self.url.parse().unwrap())
        }
    }

    async fn open(&self) -> PostgresKeyring {
        PostgresKeyring::open(&self.config(), &master())
            .await
            .unwrap()
    }

    async fn open_with(
        &self,
        change: impl FnOnce(&mut PostgresKeyringConfig),
    ) -> Result<PostgresKeyring, KeyringError> {
        let mut config = self.config();
        change(&mut config);
        PostgresKeyring::open(&config, &master()).await
    }

    /// A connection beside the keyring's, in its schema.
    async fn client(&self) -> tokio_postgres::Client {
        let client = connect(&self.url).await;
        let path = format!("SET search_path = {}", self.name);
        client.batch_execute(&path).await.unwrap();
        client
    }
}

async fn connect(url: &str) -> tokio_postgres::Client {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await.unwrap();
    tokio::spawn(connection);
    client
}

impl Drop for Schema {
    fn drop(&mut self) {
        let (url, name) = (self.url.clone(), self.name.clone());
        // From a thread: a runtime cannot be waited for from within one.
        let dropping = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .unwrap();
            runtime.block_on(async {
                // A server that the test has stopped needs no clearing.
                if let Ok((client, connection)) = tokio_postgres::connect(&url, NoTls).await {
                    tokio::spawn(connection);
                    let drop =
                        format!("SET lock_timeout = '10s'; DROP SCHEMA IF EXISTS {name} CASCADE");
                    let _ = client.batch_execute(&drop).await;
                }
            });
        });
        let _ = dropping.join();
    }
}

/// A server of its own, for tests that stop it or look into its files.
struct Server {
    dir: TempDir,
    url: String,
}

impl Server {
    fn start() -> Self {
        let mut server = Self {
            dir: tempfile::tempdir().unwrap(),
            url: String::new(),
        };
        server.restart();
        server
    }

    fn run(&self, verb: &str) -> String {
        let script =
            Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../infra/servers/postgres.sh");
        let output = Command::new(script)
            .arg(verb)
            .arg(self.dir.path())
            .output()
            .unwrap();
        let (out, errors) = (
            String::from_utf8(output.stdout).unwrap(),
            String::from_utf8(output.stderr).unwrap(),
        );
        assert!(output.status.success(), "{verb}: {errors}");
        out
    }

    fn restart(&mut self) {
        let line = self.run("start");
        let url = line.trim_end().strip_prefix(&format!("{VARIABLE}="));
        url.expect("the script prints an address")
            .clone_into(&mut self.url);
    }

    fn kill(&self) {
        self.run("kill");
    }

    fn stop(&self) {
        self.run("stop");
    }

    /// To the server and all of its processes.
    fn signal(&self, signal: &str) {
        let pid = std::fs::read_to_string(self.dir.path().join("pid")).unwrap();
        let children = Command::new("pgrep")
            .args(["-P", pid.trim()])
            .output()
            .unwrap();
        let children = String::from_utf8(children.stdout).unwrap();
        let sent = Command::new("kill")
            .arg(signal)
            .arg(pid.trim())
            .args(children.split_whitespace())
            .status();
        assert!(sent.unwrap().success());
    }

    fn schema(&self) -> Schema {
        Schema::on(self.url.clone())
    }

    fn data(&self) -> PathBuf {
        self.dir.path().join("data")
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            self.kill();
        } else if let Ok(pid) = std::fs::read_to_string(self.dir.path().join("pid")) {
            // A second panic would hide the first.
            let _ = Command::new("kill").args(["-INT", pid.trim()]).status();
        }
    }
}

/// Every keyring in a schema of its own.
#[derive(Default)]
struct Postgres {
    schemas: Mutex<Vec<Arc<Schema>>>,
}

impl Postgres {
    fn last(&self) -> Arc<Schema> {
        self.schemas.lock().unwrap().last().unwrap().clone()
    }
}

#[async_trait]
impl KeyringBackend for Postgres {
    async fn make(&self) -> Keys {
        self.schemas.lock().unwrap().push(Arc::new(Schema::new()));
        Arc::new(self.last().open().await)
    }

    async fn restart(&self, keys: Keys) -> Keys {
        drop(keys);
        Arc::new(self.last().open().await)
    }
}

anamnesis_pipeline::keyring_conformance!(Postgres::default());

const OWNER: OwnerKey = OwnerKey::from_bytes([1; 16]);
const OTHER: OwnerKey = OwnerKey::from_bytes([2; 16]);

/// Ids are keyed hashes: they come in no order.
fn scattered(what: &str, number: u32) -> [u8; 16] {
    let hash = blake3::hash(format!("{what} {number}").as_bytes());
    hash.as_bytes()[..16].try_into().unwrap()
}

fn erasure(number: u32) -> ErasureId {
    ErasureId::from_bytes(scattered("erasure", number))
}

fn source_key(owner: OwnerKey, number: u32) -> NewKey {
    NewKey {
        id: KeyId::from_bytes(scattered("source key", number)),
        owner,
        epoch: 1,
        parent: None,
        event: EventTag::from_bytes(scattered("event", number)),
        source: SourceTag::from_bytes(scattered("source", number % 3)),
        memory: None,
        expires_at: None,
    }
}

fn transition_key(owner: OwnerKey, number: u32) -> NewKey {
    let source = source_key(owner, number);
    NewKey {
        id: KeyId::from_bytes(scattered("transition key", number)),
        parent: Some(source.id),
        memory: Some(MemoryId::from_bytes(scattered("memory", number))),
        ..source
    }
}

/// The two keys of a message.
fn message(owner: OwnerKey, number: u32) -> [NewKey; 2] {
    [source_key(owner, number), transition_key(owner, number)]
}

fn ids(new: &[NewKey]) -> Vec<KeyId> {
    new.iter().map(|new| new.id).collect()
}

/// As `open`, `destroyed` or `unknown`.
async fn states(keys: &PostgresKeyring, ids: &[KeyId]) -> Vec<&'static str> {
    let states = keys.get(ids).await.unwrap();
    states
        .iter()
        .map(|state| match state {
            KeyState::Open(_) => "open",
            KeyState::Destroyed => "destroyed",
            KeyState::Unknown => "unknown",
        })
        .collect()
}

/// Asks until this is the answer.
async fn until(keys: &PostgresKeyring, id: KeyId, expected: &str) -> Duration {
    let started = Instant::now();
    while states(keys, &[id]).await != [expected] {
        assert!(started.elapsed() < SOON, "it never is {expected}");
        tokio::task::yield_now().await;
    }
    started.elapsed()
}
