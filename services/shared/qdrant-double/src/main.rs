//! A test tool: Qdrant's gRPC protocol over Qdrant's own engine, in one process.
//!
//! For places where no Qdrant server can be installed. It answers the calls that the vectors adapter
//! makes as the server does, because the engine is the server's; and it refuses every call and every
//! field that it does not model with `UNIMPLEMENTED` and the field's name, so that nothing is ignored
//! in silence.
//!
//! What it is not: it has one node, one shard per collection and no authentication; it listens on the
//! loopback address only. It never optimises by itself: it does so when the optimiser's settings are
//! changed. Its log is not replayed after a kill, so every write is flushed before it is answered
//! (which a server does not do), and `wait = false` is refused.
//!
//! - [`collections`], [`points`]: the services
//! - [`engine`]: collections on disk, aliases
//! - [`convert`]: from messages to the engine and back
//! - [`refuse`]: what is not modelled

mod collections;
mod convert;
mod engine;
mod points;
mod refuse;

use std::io::Write as _;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;

use clap::Parser;
use qdrant_client::qdrant::collections_server::CollectionsServer;
use qdrant_client::qdrant::points_server::PointsServer;
use qdrant_client::qdrant::qdrant_server::{Qdrant, QdrantServer};
use qdrant_client::qdrant::{HealthCheckReply, HealthCheckRequest};
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio_stream::wrappers::TcpListenerStream;
use tonic::transport::Server;
use tonic::{Request, Response, Status};

use crate::engine::Engine;

/// Qdrant's gRPC protocol over Qdrant's engine, for tests.
#[derive(Parser)]
struct Arguments {
    /// Folder of the collections; made when it is not there.
    #[arg(long)]
    dir: PathBuf,
    /// Port on 127.0.0.1; 0 for a free one, which is printed.
    #[arg(long, default_value_t = 0)]
    port: u16,
}

struct Root;

#[tonic::async_trait]
impl Qdrant for Root {
    async fn health_check(
        &self,
        _: Request<HealthCheckRequest>,
    ) -> Result<Response<HealthCheckReply>, Status> {
        Ok(Response::new(HealthCheckReply {
            title: "anamnesis qdrant double".to_owned(),
            // Of the server that the engine belongs to.
            version: "1.18.0".to_owned(),
            commit: None,
        }))
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments = Arguments::parse();
    let engine = Arc::new(Engine::open(&arguments.dir)?);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()?;
    runtime.block_on(serve(engine.clone(), arguments.port))?;
    // Flushes.
    drop(engine);
    Ok(())
}

async fn serve(engine: Arc<Engine>, port: u16) -> Result<(), Box<dyn std::error::Error>> {
    let listener = TcpListener::bind(SocketAddr::from((Ipv4Addr::LOCALHOST, port))).await?;
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut out = std::io::stdout();
    writeln!(out, "http://{}", listener.local_addr()?)?;
    out.flush()?;
    let stopped = async move {
        tokio::select! {
            _ = terminate.recv() => (),
            _ = interrupt.recv() => (),
        }
    };
    let collections = CollectionsServer::new(collections::Service(engine.clone()));
    let points = PointsServer::new(points::Service(engine)).max_decoding_message_size(usize::MAX);
    let serving = Server::builder()
        .add_service(QdrantServer::new(Root))
        .add_service(collections)
        .add_service(points)
        .serve_with_incoming(TcpListenerStream::new(listener));
    // Connections that are open would hold a graceful stop up.
    tokio::select! {
        served = serving => served?,
        () = stopped => (),
    }
    Ok(())
}
