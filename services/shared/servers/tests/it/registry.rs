//! A real schema registry, and what stands in its place when it is not there.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use anamnesis_domain::ids::LogId;
use anamnesis_pipeline::clock::SystemClock;
use anamnesis_pipeline::codec::identity_payload;
use anamnesis_pipeline::doubles::inbox::{MemoryInbox, Produced};
use anamnesis_pipeline::doubles::log::MemoryLog;
use anamnesis_pipeline::inbox::{SchemaError, SchemaSource};
use anamnesis_servers::registry::{RegistryConfig, SchemaRegistry};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::site;

/// A type that another schema names.
const BASE: &str =
    r#"{"type":"record","name":"Base","namespace":"his","fields":[{"name":"a","type":"string"}]}"#;

const VARIABLE: &str = "ANAMNESIS_TEST_REGISTRY";

pub(crate) fn shared_registry() -> String {
    std::env::var(VARIABLE).unwrap_or_else(|_| {
        panic!("{VARIABLE} is not set: start a registry with infra/servers/registry.sh start DIR")
    })
}

pub(crate) fn connect(url: &str) -> Arc<SchemaRegistry> {
    Arc::new(SchemaRegistry::new(&RegistryConfig::new(url)).unwrap())
}

/// Registers as a platform's serializer does. Gives the schema's number.
pub(crate) async fn register(url: &str, subject: &str, what: Value) -> u32 {
    // Also without TLS the client wants to know who would compute it; the first to say so is heard.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let answered = reqwest::Client::new()
        .post(format!("{url}/subjects/{subject}/versions"))
        .header("content-type", "application/vnd.schemaregistry.v1+json")
        .body(what.to_string())
        .send()
        .await
        .unwrap();
    let answered: Value = answered.json().await.unwrap();
    answered["id"]
        .as_u64()
        .unwrap_or_else(|| panic!("{answered}")) as u32
}

#[tokio::test]
async fn a_registered_schema_comes_back_by_its_number() {
    let url = shared_registry();
    let schema = site::schema();
    let id = register(&url, "inbox-value", json!({"schema": schema})).await;
    let found = connect(&url).schema(id).await.unwrap();
    let parsed = |text: &str| serde_json::from_str::<Value>(text).unwrap();
    assert_eq!(parsed(&found), parsed(&schema));
    // A slash at the end makes no difference.
    assert!(connect(&format!("{url}/")).schema(id).await.is_ok());
}

#[tokio::test]
async fn what_is_unknown_or_no_avro_is_said_and_a_wrong_address_waits() {
    let url = shared_registry();
    let registry = connect(&url);
    let unknown = registry.schema(4_000_000_000).await.unwrap_err();
    assert_eq!(unknown, SchemaError::Unknown { id: 4_000_000_000 });
    let proto = "syntax = \"proto3\"; message Turn { string text = 1; }";
    let what = json!({"schemaType": "PROTOBUF", "schema": proto});
    let id = register(&url, "other-value", what).await;
    let other = registry.schema(id).await.unwrap_err();
    assert!(matches!(other, SchemaError::Unsupported { .. }), "{other}");
    register(&url, "base", json!({"schema": BASE})).await;
    let needs = json!({"type": "record", "name": "Needs", "namespace": "his",
        "fields": [{"name": "base", "type": "his.Base"}]});
    let named = json!([{"name": "his.Base", "subject": "base", "version": 1}]);
    let what = json!({"schema": needs.to_string(), "references": named});
    let needs = register(&url, "needs", what).await;
    let error = registry.schema(needs).await.unwrap_err();
    assert!(matches!(error, SchemaError::Unsupported { .. }), "{error}");
    for wrong in ["/apis/ccompat/v99", "/nothing/here"] {
        let root = url.strip_suffix("/apis/ccompat/v7").unwrap();
        let error = connect(&format!("{root}{wrong}"))
            .schema(id)
            .await
            .unwrap_err();
        assert!(matches!(error, SchemaError::Unavailable { .. }), "{error}");
    }
}

/// Answers each connection with these bytes; with none, never.
async fn stand_in(answer: Option<Vec<u8>>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        let mut open = Vec::new();
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut request = [0; 4096];
            let _ = stream.read(&mut request).await;
            match &answer {
                Some(answer) => {
                    let _ = stream.write_all(answer).await;
                }
                None => open.push(stream),
            }
        }
    });
    format!("http://{address}/apis/ccompat/v7")
}

async fn ask(url: &str) -> Result<String, SchemaError> {
    let mut config = RegistryConfig::new(url);
    config.timeout = Duration::from_millis(500);
    SchemaRegistry::new(&config).unwrap().schema(7).await
}

#[tokio::test]
async fn a_registry_that_hangs_closes_or_talks_nonsense_is_asked_again() {
    let whole = |body: &str| {
        let length = body.len();
        format!("HTTP/1.1 200 OK\r\ncontent-length: {length}\r\n\r\n{body}").into_bytes()
    };
    let good = stand_in(Some(whole(r#"{"schema": "\"string\""}"#))).await;
    assert_eq!(ask(&good).await.unwrap(), "\"string\"");
    let moved = format!("HTTP/1.1 302 Found\r\nlocation: {good}\r\ncontent-length: 0\r\n\r\n");
    let cases: [(&str, Option<Vec<u8>>); 5] = [
        ("a half-open socket", None),
        ("a closed connection", Some(Vec::new())),
        ("no HTTP", Some(b"220 mail ready\r\n".to_vec())),
        (
            "an answer that is cut off",
            Some(b"HTTP/1.1 200 OK\r\ncontent-length: 900\r\n\r\n{".to_vec()),
        ),
        ("another place", Some(moved.into_bytes())),
    ];
    for (what, answer) in cases {
        let error = ask(&stand_in(answer).await).await.unwrap_err();
        assert!(
            matches!(error, SchemaError::Unavailable { .. }),
            "{what}: {error}"
        );
    }
    let nobody = TcpListener::bind("127.0.0.1:0")
        .await
        .unwrap()
        .local_addr()
        .unwrap();
    let error = ask(&format!("http://{nobody}")).await.unwrap_err();
    assert!(matches!(error, SchemaError::Unavailable { .. }), "{error}");
    let endless = stand_in(Some(whole(&"x".repeat(3 << 20)))).await;
    let error = ask(&endless).await.unwrap_err();
    assert!(matches!(error, SchemaError::Unsupported { .. }), "{error}");
}

/// A registry that a test may kill.
struct Registry {
    dir: TempDir,
    url: String,
}

fn script() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../infra/servers/registry.sh")
}

fn run(verb: &str, dir: &Path) -> String {
    let done = Command::new(script()).arg(verb).arg(dir).output().unwrap();
    let said = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "registry.sh {verb}: {said}");
    String::from_utf8_lossy(&done.stdout).trim().to_owned()
}

impl Registry {
    fn start() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let said = run("start", dir.path());
        let url = said
            .strip_prefix(&format!("{VARIABLE}="))
            .unwrap()
            .to_owned();
        Self { dir, url }
    }
}

impl Drop for Registry {
    fn drop(&mut self) {
        let _ = Command::new(script())
            .arg("kill")
            .arg(self.dir.path())
            .output();
    }
}

async fn apart<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    tokio::task::spawn_blocking(work).await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn records_wait_for_a_killed_registry_and_go_on_when_it_is_back() {
    let registry = Arc::new(apart(Registry::start).await);
    let clock = Arc::new(SystemClock);
    let log = Arc::new(MemoryLog::new(
        clock.clone(),
        2,
        LogId::from_bytes([9; 16]),
        identity_payload,
    ));
    let intake = site::intake(log);
    let inbox = Arc::new(MemoryInbox::new(clock, 1));
    let first = register(&registry.url, "a-value", json!({"schema": site::schema()})).await;
    let second = register(&registry.url, "b-value", json!({"schema": site::schema()})).await;
    let source = connect(&registry.url);
    let reader = site::reader(inbox.clone(), &intake, Some(source));
    let shutdown = CancellationToken::new();
    let running = tokio::spawn(reader.run(0, shutdown.clone()));
    let put = |id, n: &str| {
        let event = site::plain("h/p1", n, &format!("第{n}条"));
        inbox.put(0, Produced::of(site::framed(id, &event)))
    };
    put(first, "1");
    until(&intake, 1).await;

    let down = registry.clone();
    apart(move || run("kill", down.dir.path())).await;
    // Its schema is known already, so it need not wait.
    put(first, "2");
    let waits = put(second, "3");
    put(first, "4");
    until(&intake, 2).await;
    tokio::time::sleep(Duration::from_millis(1_500)).await;
    assert_eq!(site::texts(&intake).await.len(), 2, "the third one waits");
    let place = site::receipts(&intake, 0).await.pop().unwrap();
    assert_eq!((place.next, place.rejected_count), (waits, 0));

    let back = registry.clone();
    apart(move || run("start", back.dir.path())).await;
    until(&intake, 4).await;
    let texts = site::texts(&intake).await;
    assert_eq!(texts.last().unwrap(), "h/patient/p1 第4条");
    assert_eq!(site::rejected(&intake, 0).await, []);
    shutdown.cancel();
    running.await.unwrap().unwrap();
}

/// Returns when so many messages were let in.
pub(crate) async fn until(intake: &anamnesis_intake::service::Intake, count: usize) {
    let deadline = tokio::time::Instant::now() + Duration::from_secs(60);
    loop {
        let found = site::texts(intake).await.len();
        if found >= count {
            return;
        }
        assert!(
            tokio::time::Instant::now() < deadline,
            "{found} of {count} messages are there"
        );
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
