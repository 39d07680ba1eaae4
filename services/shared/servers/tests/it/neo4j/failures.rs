//! Does every call end when the server hangs, dies or refuses, and does all go on afterwards?

use std::time::{Duration, Instant};

use anamnesis_pipeline::conformance::stores::draw::Draw;
use anamnesis_pipeline::conformance::stores::script::{
    OwnedBatch, Script, everything, memory, peanut, scope,
};
use anamnesis_pipeline::stores::{Filter, GraphIndex as _, LegAnswer, Projection as _, StoreError};
use anamnesis_servers::neo4j::{Neo4jConfig, Neo4jGraph};

use super::server::Server;
use super::writers::assert_holds;
use super::{FEED, refusal};

/// How long a server that was started or continued may take to answer; the machine may be busy.
const PATIENCE: Duration = Duration::from_secs(120);

fn unavailable<T>(answer: Result<T, StoreError>) {
    match answer {
        Ok(_) => panic!("a server that does not run answered"),
        Err(error) => {
            assert!(matches!(error, StoreError::Unavailable { .. }), "{error}");
            assert!(error.is_retryable());
        }
    }
}

/// Applies as the indexer does: from the checkpoint, again and again until it stands behind the batch.
async fn apply_until_done(graph: &Neo4jGraph, batch: &OwnedBatch) {
    let start = Instant::now();
    loop {
        let error = match batch.apply(graph).await {
            Ok(()) => return,
            Err(error) => error,
        };
        assert!(start.elapsed() < PATIENCE, "{error}");
        // An earlier attempt may have been applied, and its answer lost.
        if matches!(error, StoreError::Moved { found, .. } if found == batch.next.next) {
            return;
        }
        assert!(error.is_retryable(), "{error}");
        tokio::task::yield_now().await;
    }
}

/// Asks until there is an answer.
async fn patiently(graph: &Neo4jGraph, filter: &Filter) -> LegAnswer {
    let start = Instant::now();
    loop {
        match graph.neighbours(filter, &[], &[peanut()], 50).await {
            Ok(answer) => return answer,
            Err(error) => assert!(
                start.elapsed() < PATIENCE && error.is_retryable(),
                "{error}"
            ),
        }
    }
}

/// the sockets stay open and nothing comes back.
#[tokio::test]
async fn a_server_that_hangs_costs_a_deadline_and_no_more() {
    let server = Server::start();
    let mut place = server.place();
    let graph = place.graph().await;
    place.config.deadline = Duration::from_secs(3);
    place.config.write_deadline = Duration::from_secs(3);
    let mut script = Script::default();
    Draw::new(2).history(&mut script, 3, 30);
    script.play(&graph).await;
    let start = Instant::now();
    let quick = loop {
        // A server that has just started on a busy machine can need longer.
        match Neo4jGraph::open(&place.config, FEED).await {
            Ok(graph) => break graph,
            Err(error) => assert!(start.elapsed() < PATIENCE, "{error}"),
        }
    };
    let filter = everything(1, 100);
    let before = patiently(&quick, &filter).await;
    script.decide(1, vec![memory(1, "meanwhile")]);
    let batch = script.take(1).remove(0);

    server.signal("STOP");
    // More calls than there are connections, at once and one after the other.
    for _ in 0..3 {
        let start = Instant::now();
        let asked = (0..20).map(|_| quick.neighbours(&filter, &[], &[], 50));
        for answer in futures::future::join_all(asked).await {
            unavailable(answer);
        }
        assert!(
            start.elapsed() < Duration::from_secs(5),
            "{:?}",
            start.elapsed()
        );
    }
    let start = Instant::now();
    unavailable(batch.apply(&quick).await);
    unavailable(quick.checkpoint(0).await);
    unavailable(quick.rows(scope(1)).await);
    unavailable(Neo4jGraph::open(&place.config, FEED).await);
    assert!(
        start.elapsed() < Duration::from_secs(16),
        "{:?}",
        start.elapsed()
    );
    server.signal("CONT");

    let after = patiently(&quick, &filter).await;
    assert_eq!(after, before);
    apply_until_done(&graph, &batch).await;
    assert_holds(&graph, &script).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_is_killed_loses_and_doubles_nothing() {
    let server = Server::start();
    let place = server.place();
    let graph = place.graph().await;
    let mut script = Script::default();
    Draw::new(21).history(&mut script, 6, 200);
    let batches = script.take(2);
    let kills = [batches.len() / 5, batches.len() / 2, batches.len() * 4 / 5];
    for (number, batch) in batches.iter().enumerate() {
        if !kills.contains(&number) {
            apply_until_done(&graph, batch).await;
            continue;
        }
        // Somewhere in the middle of this batch or just after it.
        let (applied, ()) = tokio::join!(batch.apply(&graph), async {
            tokio::task::spawn_blocking({
                let pid = server.pid();
                move || super::server::kill_process(&pid)
            })
            .await
            .unwrap();
        });
        if applied.is_err() {
            unavailable(batch.apply(&graph).await);
            unavailable(
                graph
                    .neighbours(&everything(1, 9), &[], &[peanut()], 5)
                    .await,
            );
        }
        server.kill();
        server.start_again();
        if applied.is_err() {
            apply_until_done(&graph, batch).await;
        }
    }
    assert_holds(&graph, &script).await;
    let written =
        "MATCH (p:AnamnesisPartition {generation: $generation}) RETURN sum(p.versions) AS count";
    let held = "MATCH (v:AnamnesisVersion {generation: $generation}) RETURN count(*) AS count";
    assert_eq!(place.count(written).await, place.count(held).await);
}

#[tokio::test]
async fn a_server_that_is_not_there_is_unavailable() {
    let mut config = Neo4jConfig::new("bolt://127.0.0.1:1");
    config.deadline = Duration::from_secs(2);
    unavailable(Neo4jGraph::open(&config, FEED).await);
}

/// The password is what some variable of every test run holds.
#[tokio::test]
async fn a_wrong_password_is_said_and_not_repeated() {
    let variable = "CARGO_PKG_NAME";
    let password = std::env::var(variable).expect("cargo sets it");
    let server = Server::start_with(&[("NEO4J_PASSWORD", &password)]);
    let mut config = Neo4jConfig::new(server.uri());
    let error = refusal(Neo4jGraph::open(&config, FEED).await);
    assert!(matches!(error, StoreError::Unusable { .. }), "{error}");
    assert!(
        error
            .to_string()
            .contains("refuses the user or the password"),
        "{error}"
    );
    config.password_env = Some("CARGO_PKG_VERSION".to_owned());
    let error = refusal(Neo4jGraph::open(&config, FEED).await);
    assert!(matches!(error, StoreError::Unusable { .. }), "{error}");
    config.password_env = Some(variable.to_owned());
    let graph = Neo4jGraph::open(&config, FEED).await.unwrap();
    assert_eq!(graph.owners().await.unwrap(), []);
    for shown in [
        error.to_string(),
        format!("{error:?}"),
        format!("{config:?}"),
    ] {
        assert!(!shown.contains(&password), "{shown}");
    }
}

#[tokio::test]
async fn something_that_is_no_neo4j_is_said_to_be_so() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        use tokio::io::AsyncWriteExt as _;
        while let Ok((mut socket, _)) = listener.accept().await {
            let _ = socket.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await;
        }
    });
    let error =
        refusal(Neo4jGraph::open(&Neo4jConfig::new(format!("bolt://{address}")), FEED).await);
    assert!(matches!(error, StoreError::Unusable { .. }), "{error}");
    assert!(error.to_string().contains("no version of Bolt"), "{error}");
}
