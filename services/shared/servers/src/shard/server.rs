//! How is a replica's copy served, and how does it stop?

use std::convert::Infallible;
use std::fs;
use std::future::Future;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anamnesis_pipeline::stores::StoreError;
use bytes::Bytes;
use futures::stream;
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::{MissedTickBehavior, interval, timeout};
use tonic::body::Body;
use tonic::codegen::{BoxFuture, Context, Poll, Service, http};
use tonic::metadata::MetadataMap;
use tonic::server::Grpc;
use tonic::transport::server::TcpIncoming;
use tonic::transport::{Identity, Server, ServerTlsConfig};
use tonic::{Request, Response, Status};
use tracing::{info, warn};

use super::answer::Replica;
pub use super::answer::ShardParts;
use super::config::{ShardServerConfig, TlsFiles, unusable};
use super::frames::{
    self, ANSWER_BYTES_MAX, FRAME_BYTES_MAX, Frames, KEEP_ALIVE, PATH, PROTOCOL,
    QUESTION_BYTES_MAX, WINDOW_BYTES,
};
use super::refusal::Refusal;
use super::token::Guard;
use super::wire::{self, Asked};

/// Questions of one connection at once; more wait.
const STREAMS_MAX: u32 = 512;
/// How often within a lease the copy is compared with the log.
pub(super) const LOOKS_PER_LEASE: u32 = 5;
/// How long answers that are under way may take once the server is asked to stop.
const GRACE: Duration = Duration::from_secs(5);

/// A server that runs.
pub struct ShardServer {
    address: SocketAddr,
    task: JoinHandle<Result<(), StoreError>>,
}

impl ShardServer {
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns when the server has stopped: soon after `shutdown` was ready.
    ///
    /// # Errors
    /// When it stopped for another reason.
    pub async fn stopped(self) -> Result<(), StoreError> {
        self.task.await.unwrap_or_else(|error| {
            Err(unusable(format!(
                "the server of the shard ended unexpectedly ({})",
                if error.is_panic() {
                    "panic"
                } else {
                    "cancelled"
                }
            )))
        })
    }
}

/// Serves a copy until `shutdown` is ready. Returns once questions are accepted and the copy has been
/// compared with the log.
///
/// # Errors
/// [`StoreError::Unusable`] for a configuration that cannot be served, or an address that is taken.
pub async fn serve(
    config: ShardServerConfig,
    parts: ShardParts,
    shutdown: impl Future<Output = ()> + Send + 'static,
) -> Result<ShardServer, StoreError> {
    config.check(parts.feed.partitions)?;
    let guard = Guard::new(config.token_env.as_deref())?;
    let mut server = Server::builder()
        .max_concurrent_streams(STREAMS_MAX)
        .initial_stream_window_size(WINDOW_BYTES)
        .initial_connection_window_size(WINDOW_BYTES)
        .http2_keepalive_interval(Some(KEEP_ALIVE.0))
        .http2_keepalive_timeout(Some(KEEP_ALIVE.1));
    if let Some(files) = &config.tls {
        let tls = ServerTlsConfig::new().identity(identity(files)?);
        server = server
            .tls_config(tls)
            .map_err(|_| unusable("the shard's certificate and key do not fit".to_owned()))?;
    } else if !config.listen.ip().is_loopback() {
        warn!(
            listen = %config.listen,
            "the shard's answers travel unencrypted: it listens beyond this machine without tls"
        );
    }
    let listening = TcpListener::bind(config.listen).await;
    let taken = |error| unusable(format!("cannot listen on {}: {error}", config.listen));
    let listener = listening.map_err(taken)?;
    let address = listener.local_addr().map_err(taken)?;
    let incoming = TcpIncoming::from(listener).with_nodelay(Some(true));

    let period = config.lease / LOOKS_PER_LEASE;
    let (name, partitions) = (config.replica.clone(), config.partitions.to_string());
    let replica = Arc::new(Replica::new(parts, config));
    replica.look().await;
    let service = Shard(Arc::new(Inner {
        replica: replica.clone(),
        guard,
    }));
    let (stop, stopping) = oneshot::channel::<()>();
    let task = tokio::spawn(async move {
        let serving = server.serve_with_incoming_shutdown(service, incoming, async {
            // Either way it is over.
            let _ = stopping.await;
        });
        let mut serving = std::pin::pin!(serving);
        let ended = tokio::select! {
            ended = &mut serving => Some(ended),
            () = shutdown => None,
            () = watch(&replica, period) => None,
        };
        drop(stop);
        let ended = match ended {
            Some(ended) => ended,
            None => timeout(GRACE, serving).await.unwrap_or(Ok(())),
        };
        info!(replica = name, "the shard is not served any more");
        ended.map_err(|_| unusable("the server of the shard failed".to_owned()))
    });
    info!(%address, partitions, "the shard is served");
    Ok(ShardServer { address, task })
}

async fn watch(replica: &Replica, period: Duration) {
    let mut ticks = interval(period);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        replica.look().await;
    }
}

fn identity(files: &TlsFiles) -> Result<Identity, StoreError> {
    let read = |path: &Path| {
        fs::read(path).map_err(|error| unusable(format!("cannot read {}: {error}", path.display())))
    };
    Ok(Identity::from_pem(
        read(&files.certificate_file)?,
        read(&files.key_file)?,
    ))
}

struct Inner {
    replica: Arc<Replica>,
    guard: Guard,
}

/// The one method there is.
#[derive(Clone)]
struct Shard(Arc<Inner>);

impl Service<http::Request<Body>> for Shard {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<Self::Response, Infallible>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let inner = self.0.clone();
        Box::pin(async move { Ok(inner.handle(request).await) })
    }
}

impl Inner {
    async fn handle(self: Arc<Self>, request: http::Request<Body>) -> http::Response<Body> {
        if request.uri().path() != PATH {
            return Status::unimplemented("a shard has one method").into_http();
        }
        // Nothing of the question is read before it is known who asks.
        let metadata = MetadataMap::from_headers(request.headers().clone());
        if let Err(refusal) = self.admit(&metadata) {
            return refusal.status().into_http();
        }
        let mut grpc = Grpc::new(Frames)
            .max_decoding_message_size(QUESTION_BYTES_MAX)
            .max_encoding_message_size(FRAME_BYTES_MAX);
        grpc.server_streaming(Ask(self), request).await
    }

    fn admit(&self, metadata: &MetadataMap) -> Result<(), Refusal> {
        if !self.guard.admits(metadata) {
            return Err(Refusal::Token);
        }
        let (protocol, log) = frames::introduced(metadata);
        if protocol != Some(PROTOCOL) {
            return Err(Refusal::Protocol { spoken: PROTOCOL });
        }
        let found = self.replica.feed().log_id;
        if log != Some(found) {
            return Err(Refusal::OtherLog { found });
        }
        Ok(())
    }

    async fn ask(&self, question: &[u8]) -> Result<Bytes, Refusal> {
        let asked: Asked = wire::read(question).ok_or(Refusal::Question)?;
        let answer = wire::write(&self.replica.answer(asked).await?);
        if answer.len() > ANSWER_BYTES_MAX {
            return Err(Refusal::TooLarge);
        }
        Ok(Bytes::from(answer))
    }
}

struct Ask(Arc<Inner>);

type AnswerFrames = stream::Iter<Box<dyn Iterator<Item = Result<Bytes, Status>> + Send>>;

impl Service<Request<Bytes>> for Ask {
    type Response = Response<AnswerFrames>;
    type Error = Status;
    type Future = BoxFuture<Self::Response, Status>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Status>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Bytes>) -> Self::Future {
        let inner = self.0.clone();
        Box::pin(async move {
            let answer = inner.ask(request.get_ref()).await;
            let answer = answer.map_err(|refusal| refusal.status())?;
            let frames: Box<dyn Iterator<Item = _> + Send> = Box::new(frames::cut(answer).map(Ok));
            Ok(Response::new(stream::iter(frames)))
        })
    }
}
