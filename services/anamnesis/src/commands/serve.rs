//! `serve` and the services: everything in one process, or one part of it, until a signal.

use std::future::{Future, IntoFuture as _};
use std::time::Duration;

use anamnesis_pipeline::problem::Problem;
use axum::Router;
use axum::routing::get;
use metrics_exporter_prometheus::PrometheusHandle;
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::assemble::{self, Assembled};
use crate::cli::Exit;
use crate::config::{Config, LogConfig};
use crate::door::Door;
use crate::failure::Failure;
use crate::operations;
use crate::role::Role;

/// How long a graceful stop may take before the process ends anyway.
const STOP_MAX: Duration = Duration::from_secs(4);

/// Between two tries to reach what a service needs.
const TRY_AGAIN: Duration = Duration::from_secs(1);

/// What runs in the background, by name.
pub(crate) type Tasks = JoinSet<(String, Result<(), Failure>)>;

/// Runs a named part in the background.
pub(crate) fn spawn<E: Into<Failure>>(
    tasks: &mut Tasks,
    name: impl Into<String>,
    part: impl Future<Output = Result<(), E>> + Send + 'static,
) {
    let name = name.into();
    tasks.spawn(async move { (name, part.await.map_err(Into::into)) });
}

/// Runs until SIGINT or SIGTERM; a second signal ends the process at once.
///
/// # Errors
/// When the folder or the address cannot be used, or a part stops by itself.
pub async fn run(config: Config, role: Role) -> Result<Exit, Failure> {
    let callers = config.callers()?;
    let is_shared = matches!(config.log, LogConfig::Kafka(_));
    if role != Role::All && !is_shared {
        return Err(Failure::wrong_use(format!(
            "{role} as a process of its own needs a log that several processes share: configure [log] \
             with kind = \"kafka\"; or run everything in one process: anamnesis serve"
        )));
    }
    let metrics = operations::install_metrics(role.counts()).map_err(Failure::wrong_use)?;
    let door = Door::closed(metrics.clone());
    let shutdown = CancellationToken::new();
    let mut tasks = Tasks::new();
    let start = Start {
        config: &config,
        role,
        shutdown: &shutdown,
        metrics: &metrics,
    };
    // One wait for all of it: a signal that came between two would be nobody's.
    let mut stop = std::pin::pin!(signal());
    // A folder is opened at once or never: whoever starts it shall see why. Servers are waited for.
    let server = if is_shared {
        let server = listen(&config, role, &door, &shutdown).await?;
        let opened = tokio::select! {
            () = &mut stop => None,
            opened = start.when_reachable(&door, &mut tasks) => Some(opened?),
        };
        let Some(opened) = opened else {
            return Ok(Exit::Fine);
        };
        door.open(with_fallback(opened.router));
        server
    } else {
        let opened = start.once(&mut tasks).await?;
        door.open(with_fallback(opened.router));
        listen(&config, role, &door, &shutdown).await?
    };
    if callers.is_open() {
        tracing::warn!("no callers are configured: every local process may read and write");
    }
    let mut server = server;
    let failure = tokio::select! {
        () = &mut stop => None,
        stopped = first_stop(&mut tasks) => Some(stopped),
        _ = &mut server => Some(Failure::unreachable("the server stopped by itself")),
    };
    tracing::info!(%role, "stopping");
    shutdown.cancel();
    tokio::spawn(async {
        signal().await;
        std::process::exit(130);
    });
    let drained = tokio::time::timeout(STOP_MAX, async {
        let _ = server.await;
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

/// What a part of the system is started with.
struct Start<'a> {
    config: &'a Config,
    role: Role,
    shutdown: &'a CancellationToken,
    metrics: &'a PrometheusHandle,
}

impl Start<'_> {
    async fn once(&self, tasks: &mut Tasks) -> Result<Assembled, Failure> {
        let config = self.config.clone();
        assemble::start(config, self.role, self.shutdown, self.metrics, tasks).await
    }

    /// Tries until everything that the part needs can be reached.
    async fn when_reachable(&self, door: &Door, tasks: &mut Tasks) -> Result<Assembled, Failure> {
        let mut told = String::new();
        loop {
            let failure = match self.once(tasks).await {
                Ok(opened) => return Ok(opened),
                Err(failure) => failure,
            };
            // What was started before something else was out of reach.
            tasks.shutdown().await;
            if !failure.is_passing() {
                return Err(failure);
            }
            let reason = failure.to_string();
            if reason != told {
                tracing::warn!(role = %self.role, reason, "waiting");
                told.clone_from(&reason);
            }
            door.waits(reason);
            tokio::time::sleep(TRY_AGAIN).await;
        }
    }
}

async fn listen(
    config: &Config,
    role: Role,
    door: &Door,
    shutdown: &CancellationToken,
) -> Result<tokio::task::JoinHandle<std::io::Result<()>>, Failure> {
    let listen = config.listen;
    let failed =
        |error: std::io::Error| Failure::unreachable(format!("cannot listen on {listen}: {error}"));
    let listener = TcpListener::bind(listen).await.map_err(failed)?;
    let address = listener.local_addr().map_err(failed)?;
    tracing::info!(%address, %role, "serving");
    // For programs that started this one: the address, since port 0 asks for a free one.
    crate::say!("listening on http://{address}");
    let stop = shutdown.clone();
    let server = axum::serve(listener, door.router())
        .with_graceful_shutdown(async move { stop.cancelled().await })
        .into_future();
    Ok(tokio::spawn(server))
}

fn with_fallback(router: Router) -> Router {
    router
        .route("/", get(|| async { "anamnesis\n" }))
        .fallback(|| async { Problem::new(404, "no_such_call", "there is no such call") })
        .method_not_allowed_fallback(|| async {
            let detail = "this call has another method; the header allow says which";
            Problem::new(405, "method_not_allowed", detail)
        })
}

/// The first part that stops without being asked to.
async fn first_stop(tasks: &mut Tasks) -> Failure {
    match tasks.join_next().await {
        Some(Ok((_, Err(failure)))) => failure,
        Some(Ok((name, Ok(())))) => Failure::unreachable(format!("{name} has stopped")),
        Some(Err(error)) => Failure::unreachable(format!("a part has failed: {error}")),
        None => std::future::pending().await,
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
