//! A server of vectors that does everything that it should not: what is it called, and what does it hear?

use std::num::NonZeroUsize;
use std::time::Duration;

use anamnesis_pipeline::embedder::{EmbedError, Embedder as _, Purpose};
use anamnesis_servers::embeddings::{EmbeddingsConfig, EmbeddingsServer};
use serde_json::{Value, json};
use tokio::net::TcpListener;

use crate::chat::{Act, Scripted, raw, status};

fn client(url: &str) -> EmbeddingsServer {
    let config = EmbeddingsConfig {
        api_key: Some("sk-canary".to_owned()),
        connect_timeout: Duration::from_millis(500),
        timeout: Duration::from_millis(500),
        batch: NonZeroUsize::new(2).unwrap(),
        query_prefix: "Q: ".to_owned(),
        ..EmbeddingsConfig::new(url, "asked-for", 2)
    };
    EmbeddingsServer::new(config).unwrap()
}

fn vectors(vectors: &[[f32; 2]]) -> Act {
    let data: Vec<Value> = vectors
        .iter()
        .enumerate()
        .map(|(index, vector)| json!({"object": "embedding", "index": index, "embedding": vector}))
        .collect();
    raw(json!({"object": "list", "data": data, "model": "scripted-1"}).to_string())
}

fn described(error: &EmbedError) -> String {
    let shown = format!("{error} {error:?}");
    assert!(!shown.contains("canary"), "{shown}");
    match error {
        EmbedError::Unavailable { reason } => format!("later: {reason}"),
        EmbedError::Unusable { reason } => format!("never: {reason}"),
    }
}

/// One call, and what its failure is called.
async fn check(act: Act, expected: &str) {
    let shown = format!("{act:?}");
    let server = Scripted::start(vec![act]).await;
    let model = client(&server.url);
    let asked = model
        .embed(&["canary 我对花生过敏"], Purpose::Passage)
        .await;
    let found = match asked {
        Ok(vectors) => format!("{vectors:?}"),
        Err(error) => described(&error),
    };
    assert!(found.contains(expected), "{found} after {shown}");
    assert_eq!(server.calls(), 1, "{shown}");
    server.end().await;
}

#[tokio::test]
async fn every_fault_of_a_server_says_whether_another_try_can_help() {
    check(vectors(&[[0.0, 2.0]]), "[[0.0, 1.0]]").await;
    check(Act::Silence, "later: no answer in time").await;
    check(Act::Half, "later: the answer broke off").await;
    check(Act::Close, "later: ").await;
    check(status(429, ""), "later: the server answers 429").await;
    check(status(408, ""), "later: the server answers 408").await;
    check(status(503, ""), "later: the server answers 503").await;
    check(status(401, ""), "never: the server answers 401").await;
    check(status(404, ""), "never: the server answers 404").await;
    check(status(413, ""), "never: the server answers 413").await;
    // What a patient said goes nowhere else.
    let elsewhere = "location: http://127.0.0.1:9/v1/embeddings\r\n";
    check(status(307, elsewhere), "never: the server answers 307").await;
    check(
        raw("<html>sign in</html>"),
        "never: the answer holds no vectors",
    )
    .await;
    check(vectors(&[]), "never: the answer has fewer").await;
    check(vectors(&[[1.0, 0.0]; 2]), "never: the answer has more").await;
    let wide = json!({"data": [{"index": 0, "embedding": [1, 2, 3]}]});
    check(
        raw(wide.to_string()),
        "never: the server makes vectors of 3",
    )
    .await;
    check(raw("x".repeat(1 << 20)), "never: the answer is longer").await;
}

#[tokio::test]
async fn nobody_listening_is_worth_another_try() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/v1", listener.local_addr().unwrap());
    drop(listener);
    let error = client(&url)
        .embed(&["x"], Purpose::Query)
        .await
        .unwrap_err();
    assert_eq!(described(&error), "later: no connection");
}

#[tokio::test]
async fn texts_are_asked_in_batches_and_empty_ones_not_at_all() {
    let acts = vec![vectors(&[[1.0, 0.0], [0.0, 1.0]]), vectors(&[[0.6, 0.8]])];
    let server = Scripted::start(acts).await;
    let model = client(&server.url);
    let texts = ["a", " ", "b", "c"];
    let made = model.embed(&texts, Purpose::Query).await.unwrap();
    assert_eq!(made, [[1.0, 0.0], [0.0, 0.0], [0.0, 1.0], [0.6, 0.8]]);
    let heard = server.bodies.lock().unwrap().clone();
    let inputs: Vec<Value> = heard
        .iter()
        .map(|sent| {
            let (head, body) = sent.split_once("\r\n\r\n").unwrap();
            assert!(head.starts_with("POST /v1/embeddings "), "{head}");
            let head = head.to_lowercase();
            assert!(head.contains("authorization: bearer sk-canary"), "{head}");
            serde_json::from_str(body).unwrap()
        })
        .collect();
    let body =
        |input: Value| json!({"model": "asked-for", "input": input, "encoding_format": "float"});
    assert_eq!(
        inputs,
        [body(json!(["Q: a", "Q: b"])), body(json!(["Q: c"]))]
    );
    assert!(model.embed(&[], Purpose::Query).await.unwrap().is_empty());
    assert_eq!(server.calls(), 2);
    server.end().await;
}
