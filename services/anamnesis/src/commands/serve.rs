//! `serve`: everything in one process, until a signal.

use std::future::IntoFuture as _;
use std::time::Duration;

use anamnesis_pipeline::consumer::StageError;
use anamnesis_pipeline::problem::Problem;
use anamnesis_pipeline::stands::Stands;
use axum::Router;
use axum::middleware::{from_fn, from_fn_with_state};
use axum::routing::get;
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::audit_http;
use crate::cli::Exit;
use crate::config::Config;
use crate::failure::Failure;
use crate::metrics::By;
use crate::node::Node;
use crate::operations;
use crate::readiness::{Readiness, until_caught_up};
use crate::requests;
use crate::watch::Watch;

/// How long a graceful stop may take before the process ends anyway.
const STOP_SECONDS_MAX: u64 = 10;

/// Runs until SIGINT or SIGTERM; a second signal ends the process at once.
///
/// # Errors
/// When the folder or the address cannot be used, or a part stops by itself.
pub async fn run(config: Config) -> Result<Exit, Failure> {
    let callers = config.callers()?;
    let listen = config.listen;
    let node = Node::open(config).await?;
    let listener = TcpListener::bind(listen)
        .await
        .map_err(|error| Failure::unreachable(format!("cannot listen on {listen}: {error}")))?;
    let address = listener
        .local_addr()
        .map_err(|error| Failure::unreachable(format!("cannot listen on {listen}: {error}")))?;
    let metrics = operations::install_metrics(&By::ALL).map_err(Failure::wrong_use)?;

    let shutdown = CancellationToken::new();
    let stands = Stands::default();
    let readiness = Readiness::new(&node, stands.clone()).await?;
    let mut tasks = node.start(&shutdown, &stands);
    let watch = Watch::start(&node, &readiness, &stands, metrics, &shutdown);
    let intake = node.intake();
    let (recall, receipts) = node.recall();
    let writer = tokio::spawn(receipts.run(shutdown.clone()));
    let released = intake.clone();
    tokio::spawn(async move {
        if let Err(error) = released.release_all().await {
            tracing::warn!(%error, "what waits for consent was not looked at");
        }
    });

    let reads = anamnesis_recall::http::router(recall, callers.clone())
        .layer(from_fn_with_state(readiness.clone(), until_caught_up));
    let router = Router::new()
        .merge(anamnesis_intake::http::router(intake, callers.clone()))
        .merge(reads)
        .merge(audit_http::router(&node, callers.clone()))
        .merge(operations::router(&node, readiness, watch))
        .route("/", get(|| async { "anamnesis\n" }))
        .fallback(|| async { Problem::new(404, "no_such_call", "there is no such call") })
        .layer(from_fn(requests::count));
    if callers.is_open() {
        tracing::warn!("no callers are configured: every local process may read and write");
    }
    tracing::info!(%address, model = %node.embed.identity(), "serving");
    // For programs that started this one: the address, since port 0 asks for a free one.
    println!("listening on http://{address}");

    let stop = shutdown.clone();
    let server = axum::serve(listener, router)
        .with_graceful_shutdown(async move { stop.cancelled().await })
        .into_future();
    let mut server = tokio::spawn(server);
    let failure = tokio::select! {
        () = signal() => None,
        stopped = first_stop(&mut tasks) => Some(stopped),
        _ = &mut server => Some(Failure::unreachable("the server stopped by itself")),
    };
    tracing::info!("stopping");
    shutdown.cancel();
    tokio::spawn(async {
        signal().await;
        std::process::exit(130);
    });
    let drained = tokio::time::timeout(Duration::from_secs(STOP_SECONDS_MAX), async {
        let _ = server.await;
        let _ = writer.await;
        while tasks.join_next().await.is_some() {}
    });
    if drained.await.is_err() {
        tracing::warn!("a part did not stop in time; what it had not finished is in the log");
    }
    match failure {
        None => Ok(Exit::Fine),
        Some(failure) => Err(failure),
    }
}

/// The first part that stops without being asked to.
async fn first_stop(tasks: &mut JoinSet<(String, Result<(), StageError>)>) -> Failure {
    match tasks.join_next().await {
        Some(Ok((_, Err(error)))) => Failure::from(error),
        Some(Ok((name, Ok(())))) => Failure::unreachable(format!("{name} has stopped")),
        Some(Err(error)) => Failure::unreachable(format!("a part has failed: {error}")),
        None => Failure::unreachable("nothing is running"),
    }
}

/// SIGINT or SIGTERM.
async fn signal() {
    use tokio::signal::unix::{SignalKind, signal};
    let (Ok(mut interrupt), Ok(mut terminate)) = (
        signal(SignalKind::interrupt()),
        signal(SignalKind::terminate()),
    ) else {
        tracing::error!("signals cannot be received; the process can only be killed");
        return std::future::pending().await;
    };
    tokio::select! {
        _ = interrupt.recv() => (),
        _ = terminate.recv() => (),
    }
}
