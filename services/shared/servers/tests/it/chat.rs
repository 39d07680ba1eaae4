//! A model's server that does everything that it should not: what is it called, and what is tried again?

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anamnesis_domain::ids::OwnerKey;
use anamnesis_domain::text::Text;
use anamnesis_domain::time::Timestamp;
use anamnesis_extractor::ask::{Asker, Settings};
use anamnesis_extractor::prompt::Prompt;
use anamnesis_extractor::{Context, extract_with};
use anamnesis_pipeline::chat::{AnswerSchema, ChatError, ChatModel as _, ChatRequest};
use anamnesis_servers::chat::{ANSWER_BYTES_MAX, ChatConfig, ChatServer};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::model::turn;

/// What the server does with one call.
#[derive(Clone, Debug)]
pub(crate) enum Act {
    /// Status, further header lines, body.
    Answer(u16, &'static str, String),
    /// Takes the question and says nothing.
    Silence,
    /// Announces more than it sends.
    Half,
    /// Closes the connection at once.
    Close,
}

/// A server on loopback that does what a test says, call by call; the last act is repeated.
pub(crate) struct Scripted {
    pub(crate) url: String,
    calls: Arc<AtomicUsize>,
    pub(crate) bodies: Arc<std::sync::Mutex<Vec<String>>>,
    stop: CancellationToken,
    served: JoinHandle<()>,
}

impl Scripted {
    pub(crate) async fn start(acts: Vec<Act>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/v1", listener.local_addr().unwrap());
        let calls = Arc::new(AtomicUsize::new(0));
        let bodies = Arc::new(std::sync::Mutex::new(Vec::new()));
        let stop = CancellationToken::new();
        let (counted, heard, stopped) = (calls.clone(), bodies.clone(), stop.clone());
        let served = tokio::spawn(async move {
            let mut open = tokio::task::JoinSet::new();
            loop {
                let mut stream = tokio::select! {
                    () = stopped.cancelled() => break,
                    accepted = listener.accept() => accepted.unwrap().0,
                };
                let (acts, counted, heard) = (acts.clone(), counted.clone(), heard.clone());
                open.spawn(async move {
                    let Some(body) = read_request(&mut stream).await else {
                        return;
                    };
                    heard.lock().unwrap().push(body);
                    let number = counted.fetch_add(1, Ordering::SeqCst);
                    match &acts[number.min(acts.len() - 1)] {
                        Act::Answer(status, headers, body) => {
                            let head = format!(
                                "HTTP/1.1 {status} x\r\n{headers}connection: close\r\ncontent-length: {}\r\n\r\n",
                                body.len()
                            );
                            let _ = stream.write_all(head.as_bytes()).await;
                            let _ = stream.write_all(body.as_bytes()).await;
                        }
                        Act::Silence => {
                            // Until the client goes.
                            let _ = stream.read(&mut [0]).await;
                        }
                        Act::Half => {
                            let half = "HTTP/1.1 200 x\r\ncontent-length: 1000\r\n\r\n{\"choices\":[{";
                            let _ = stream.write_all(half.as_bytes()).await;
                        }
                        Act::Close => (),
                    }
                });
            }
        });
        Self {
            url,
            calls,
            bodies,
            stop,
            served,
        }
    }

    pub(crate) fn calls(&self) -> usize {
        self.calls.load(Ordering::SeqCst)
    }

    pub(crate) async fn end(self) {
        self.stop.cancel();
        self.served.await.unwrap();
    }
}

/// One whole request: its body.
async fn read_request(stream: &mut tokio::net::TcpStream) -> Option<String> {
    let mut bytes = Vec::new();
    loop {
        let mut chunk = [0; 8192];
        let count = stream.read(&mut chunk).await.ok().filter(|n| *n > 0)?;
        bytes.extend_from_slice(&chunk[..count]);
        let text = String::from_utf8_lossy(&bytes);
        let Some((head, body)) = text.split_once("\r\n\r\n") else {
            continue;
        };
        let length = head
            .lines()
            .find_map(|line| {
                line.to_lowercase()
                    .strip_prefix("content-length: ")
                    .map(str::to_owned)
            })
            .and_then(|length| length.parse::<usize>().ok())
            .unwrap_or(0);
        if body.len() >= length {
            return Some(format!("{head}\r\n\r\n{body}"));
        }
    }
}

fn completion(content: &str) -> Act {
    let body = json!({
        "model": "scripted-1",
        "choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": content}}],
        "usage": {"prompt_tokens": 900, "completion_tokens": 30, "total_tokens": 930},
    });
    Act::Answer(200, "", body.to_string())
}

pub(crate) fn status(status: u16, headers: &'static str) -> Act {
    // Servers like to repeat what they were asked.
    Act::Answer(status, headers, "canary 我对花生过敏".to_owned())
}

pub(crate) fn raw(body: impl Into<String>) -> Act {
    Act::Answer(200, "content-type: application/json\r\n", body.into())
}

fn client(url: &str) -> ChatServer {
    let config = ChatConfig {
        api_key: Some("sk-canary".to_owned()),
        connect_timeout: Duration::from_millis(500),
        timeout: Duration::from_millis(500),
        ..ChatConfig::new(url, "asked-for")
    };
    ChatServer::new(&config).unwrap()
}

fn request() -> ChatRequest {
    ChatRequest {
        system: Arc::from("list what is stated"),
        user: Text::from("canary 我对花生过敏"),
        schema: Arc::new(AnswerSchema {
            name: "facts".to_owned(),
            json: json!({"type": "object"}),
        }),
        answer_tokens_max: 77,
    }
}

/// One try, and what it is called.
async fn check(act: Act, code: &str) {
    let shown = format!("{act:?}");
    let server = Scripted::start(vec![act]).await;
    let found = match client(&server.url).complete(&request()).await {
        Ok(answer) => answer.content.into_exposed(),
        Err(error) => {
            let shown = format!("{error} {error:?}");
            assert!(!shown.contains("canary"), "{shown}");
            error.code().to_owned()
        }
    };
    assert_eq!(found, code, "{shown}");
    assert_eq!(server.calls(), 1, "{shown}");
    server.end().await;
}

#[tokio::test]
async fn every_fault_of_a_server_has_its_code() {
    check(completion("{\"facts\":[]}"), "{\"facts\":[]}").await;
    check(Act::Silence, "timeout").await;
    check(Act::Half, "unreachable").await;
    check(Act::Close, "unreachable").await;
    check(status(429, "retry-after: 1\r\n"), "busy").await;
    check(status(500, ""), "server_failing").await;
    check(status(503, ""), "server_failing").await;
    check(status(408, ""), "timeout").await;
    check(status(400, ""), "refused").await;
    check(status(401, ""), "refused").await;
    check(status(404, ""), "refused").await;
    // What a patient said goes nowhere else.
    check(
        status(307, "location: http://127.0.0.1:9/v1/chat/completions\r\n"),
        "refused",
    )
    .await;
    check(raw(r#"{"choices":[]}"#), "empty_answer").await;
    let refusal = json!({"choices": [{"message": {"content": null, "refusal": "I will not"}}]});
    check(raw(refusal.to_string()), "declined").await;
    check(raw("<html>sign in</html>"), "not_an_answer").await;
    check(raw("{\"choices\":[{"), "not_an_answer").await;
    check(completion(&"x".repeat(1 << 20)), "answer_too_long").await;
    let longest = "x".repeat(ANSWER_BYTES_MAX - 1_000);
    check(completion(&longest), &longest).await;
}

#[tokio::test]
async fn nobody_listening_is_unreachable() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/v1", listener.local_addr().unwrap());
    drop(listener);
    let error = client(&url).complete(&request()).await.unwrap_err();
    assert!(matches!(error, ChatError::Unreachable { .. }), "{error:?}");
}

#[tokio::test]
async fn a_question_is_what_the_protocol_says() {
    let server = Scripted::start(vec![completion("{}")]).await;
    let answer = client(&server.url).complete(&request()).await.unwrap();
    assert_eq!(
        (
            answer.model.as_str(),
            answer.prompt_tokens,
            answer.completion_tokens
        ),
        ("scripted-1", 900, 30)
    );
    let sent = server.bodies.lock().unwrap()[0].clone();
    let (head, body) = sent.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("POST /v1/chat/completions "), "{head}");
    assert!(
        head.to_lowercase()
            .contains("authorization: bearer sk-canary"),
        "{head}"
    );
    let body: Value = serde_json::from_str(body).unwrap();
    let expected = json!({
        "model": "asked-for",
        "messages": [
            {"role": "system", "content": "list what is stated"},
            {"role": "user", "content": "canary 我对花生过敏"},
        ],
        "temperature": 0,
        "max_tokens": 77,
        "stream": false,
        "response_format": {
            "type": "json_schema",
            "json_schema": {"name": "facts", "strict": true, "schema": {"type": "object"}},
        },
    });
    assert_eq!(body, expected);
    server.end().await;
}

/// A turn through the whole of it: tries, answer, reading. `kept` is what becomes of the turn.
async fn check_turn(acts: Vec<Act>, calls: usize, code: Option<&str>, kept: &[&str]) {
    let server = Scripted::start(acts.clone()).await;
    let settings = Settings {
        pause: Duration::from_millis(10),
        patience: Duration::from_secs(10),
        ..Settings::default()
    };
    let prompt = Prompt::of(Prompt::NEWEST).unwrap();
    let asker = Asker::new(Arc::new(client(&server.url)), prompt, settings);
    let turn =
        turn("我爸对青霉素过敏，我不吃香菜。备用的药都放在床头抽屉里。我每天吃氨氯地平 5 mg。");
    let owner = OwnerKey::from_bytes([1; 16]);
    let reply = asker
        .ask(owner, &turn, &Context::default(), Timestamp::from_millis(0))
        .await;
    let set = extract_with(&turn, &Context::default(), reply.as_ref());
    let used = set.model_use.clone().unwrap();
    assert_eq!(
        (server.calls(), used.fallback.as_deref()),
        (calls, code),
        "{acts:?}"
    );
    assert_eq!(used.calls as usize, calls, "{acts:?}");
    let found: Vec<String> = set
        .candidates
        .iter()
        .map(|c| &c.claim)
        .filter(|claim| claim.source.extractor == "model")
        .map(|claim| claim.text.expose().to_owned())
        .collect();
    assert_eq!(found, kept, "{acts:?}");
    // What the rules read is there whatever the model does, and tells whether it was asked in vain.
    let by_rules = if code.is_some() {
        "rules_fallback"
    } else {
        "rules"
    };
    let of_rules = set
        .candidates
        .iter()
        .filter(|c| c.claim.source.extractor == by_rules);
    assert!(of_rules.count() >= 3, "{acts:?}");
    server.end().await;
}

fn facts(facts: &[Value]) -> String {
    json!({"asks_to_remember": [], "facts": facts}).to_string()
}

fn fact(
    quote: &str,
    kind: &str,
    subject: &str,
    value: Value,
    negated: bool,
    amount: Value,
) -> Value {
    json!({
        "quote": quote, "kind": kind, "subject": subject, "value": value, "negated": negated, "amount": amount,
    })
}

#[tokio::test]
async fn a_turn_is_read_whatever_the_server_does() {
    const DRAWER: &str = "备用的药都放在床头抽屉里";
    let good = || fact(DRAWER, "fact", "self", Value::Null, false, Value::Null);
    let answer = || completion(&facts(&[good()]));
    check_turn(vec![answer()], 1, None, &[DRAWER]).await;
    check_turn(vec![Act::Silence, answer()], 2, None, &[DRAWER]).await;
    check_turn(vec![status(500, ""), answer()], 2, None, &[DRAWER]).await;
    check_turn(
        vec![status(429, "retry-after: 1\r\n"), answer()],
        2,
        None,
        &[DRAWER],
    )
    .await;
    check_turn(vec![Act::Half, Act::Close, answer()], 3, None, &[DRAWER]).await;
    check_turn(vec![status(502, "")], 4, Some("server_failing"), &[]).await;
    check_turn(
        vec![status(429, "retry-after: 3600\r\n")],
        1,
        Some("busy"),
        &[],
    )
    .await;
    check_turn(vec![status(401, "")], 1, Some("refused"), &[]).await;
    check_turn(vec![raw("{\"choices\":[]}")], 1, Some("empty_answer"), &[]).await;
    check_turn(
        vec![completion(&"x".repeat(1 << 20))],
        1,
        Some("answer_too_long"),
        &[],
    )
    .await;
    check_turn(
        vec![completion("{\"facts\": [{")],
        1,
        Some("broken_json"),
        &[],
    )
    .await;
    check_turn(
        vec![completion("{\"claims\": []}")],
        1,
        Some("wrong_schema"),
        &[],
    )
    .await;
    let fenced = format!("```json\n{}\n```", facts(&[good()]));
    check_turn(vec![completion(&fenced)], 1, None, &[DRAWER]).await;
    let cut = facts(&[good(), good()]);
    check_turn(
        vec![completion(&cut[..cut.len() - 20])],
        1,
        Some("answer_cut_off"),
        &[DRAWER],
    )
    .await;
}

#[tokio::test]
async fn a_lying_model_adds_nothing() {
    let lies = [
        fact(
            "我对头孢过敏",
            "allergy",
            "self",
            json!("头孢"),
            false,
            Value::Null,
        ),
        fact(
            "我爸对青霉素过敏",
            "allergy",
            "self",
            json!("青霉素"),
            false,
            Value::Null,
        ),
        fact(
            "我爸对青霉素过敏",
            "allergy",
            "father",
            json!("青霉素"),
            true,
            Value::Null,
        ),
        fact(
            "我每天吃氨氯地平 5 mg",
            "medication",
            "self",
            json!("氨氯地平"),
            false,
            json!("50 mg"),
        ),
        fact(
            "备用的药都放在床头抽屉里",
            "medication",
            "self",
            json!("氨氯地平"),
            false,
            Value::Null,
        ),
        fact(
            "备用的药都放在床头抽屉里",
            "allergy",
            "self",
            json!("备用的药"),
            false,
            Value::Null,
        ),
        json!({"quote": "我不吃香菜", "kind": "command", "owner": "h1/p2"}),
    ];
    check_turn(vec![completion(&facts(&lies))], 1, None, &[]).await;
}
