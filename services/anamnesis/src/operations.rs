//! What operators and their tools ask: is it alive, is it ready, what does it count.

use anamnesis_pipeline::consumer::StageError;
use anamnesis_pipeline::problem::Problem;
use axum::extract::State;
use axum::routing::get;
use axum::{Json, Router};
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle};
use serde_json::{Map, Value, json};

use crate::metrics::{BUCKETS, By, describe};
use crate::node::Node;
use crate::readiness::Readiness;
use crate::watch::Watch;

/// Sets the process's recorder, for what these services count.
///
/// # Errors
/// When one is set already.
pub fn install_metrics(services: &[By]) -> Result<PrometheusHandle, String> {
    let handle = PrometheusBuilder::new()
        .set_buckets(&BUCKETS)
        .and_then(PrometheusBuilder::install_recorder)
        .map_err(|error| error.to_string())?;
    describe(services);
    Ok(handle)
}

#[derive(Clone)]
struct Shared {
    readiness: Readiness,
    watch: Watch,
    /// Of a process that embeds.
    embedding: Option<Value>,
}

pub fn router(readiness: Readiness, watch: Watch, node: Option<&Node>) -> Router {
    let embedding = node.map(|node| {
        json!({
            "model": node.embed.identity().to_string(),
            "semantic": node.embed.is_semantic(),
        })
    });
    let shared = Shared {
        readiness,
        watch,
        embedding,
    };
    Router::new()
        .route("/livez", get(|| async { "alive\n" }))
        .route("/readyz", get(ready))
        .route("/metrics", get(scrape))
        .with_state(shared)
}

async fn ready(State(shared): State<Shared>) -> Result<Json<Value>, Problem> {
    let unreadable = |error: StageError| Problem::unavailable(error.to_string());
    let report = shared.readiness.report().await.map_err(unreadable)?;
    let behind: Map<String, Value> = report
        .behind
        .into_iter()
        .map(|(store, records)| (store.to_string(), records.into()))
        .collect();
    let lags: Vec<Value> = report
        .lags
        .iter()
        .filter(|lag| lag.records > 0 || lag.failing_since.is_some())
        .map(|lag| {
            json!({
                "stage": lag.stage,
                "partition": lag.partition,
                "records": lag.records,
                "oldest_seconds": lag.oldest_ms / 1_000,
                "failing_since": lag.failing_since,
            })
        })
        .collect();
    if let Some(fault) = report.fault {
        return Err(Problem::unavailable(fault)
            .with("behind_records", behind)
            .with("unanswered", lags));
    }
    let mut ready = json!({ "ready": true, "behind_records": behind, "unanswered": lags });
    if let Some(embedding) = shared.embedding {
        ready["embedding"] = embedding;
    }
    Ok(Json(ready))
}

async fn scrape(State(shared): State<Shared>) -> String {
    shared.watch.scrape()
}
