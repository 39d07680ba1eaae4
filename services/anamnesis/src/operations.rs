//! What operators and their tools ask: is it alive, is it ready, what does it count.

use std::sync::Arc;

use anamnesis_pipeline::consumer::StageError;
use anamnesis_pipeline::problem::Problem;
use anamnesis_pipeline::stores::Records;
use axum::extract::State;
use axum::routing::get;
use axum::{Json, Router};
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle};
use serde_json::{Map, Value, json};

use crate::metrics::{MEMORIES, OLDEST_UNANSWERED_SECONDS, UNANSWERED_RECORDS, describe};
use crate::node::Node;
use crate::readiness::Readiness;

/// Sets the process's recorder.
///
/// # Errors
/// When one is set already.
pub fn install_metrics() -> Result<PrometheusHandle, String> {
    let handle = PrometheusBuilder::new()
        .install_recorder()
        .map_err(|error| error.to_string())?;
    describe();
    Ok(handle)
}

#[derive(Clone)]
struct Shared {
    readiness: Readiness,
    metrics: PrometheusHandle,
    /// Of a process that has stores.
    node: Option<OfNode>,
}

#[derive(Clone)]
struct OfNode {
    records: Arc<dyn Records>,
    embedding: Value,
}

pub fn router(readiness: Readiness, metrics: PrometheusHandle, node: Option<&Node>) -> Router {
    let node = node.map(|node| OfNode {
        records: node.stores.records.clone(),
        embedding: json!({
            "model": node.embed.identity().to_string(),
            "semantic": node.embed.is_semantic(),
        }),
    });
    let shared = Shared {
        readiness,
        metrics,
        node,
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
    if let Some(node) = shared.node {
        ready["embedding"] = node.embedding;
    }
    Ok(Json(ready))
}

async fn scrape(State(shared): State<Shared>) -> Result<String, Problem> {
    if let Some(node) = &shared.node {
        let counts = node.records.counts().await;
        let counts = counts.map_err(|error| Problem::unavailable(error.to_string()))?;
        for (kind, status, count) in counts {
            metrics::gauge!(MEMORIES, "kind" => kind.code(), "status" => status.code())
                .set(count as f64);
        }
    }
    let lags = shared.readiness.lags().await;
    for lag in lags.map_err(|error| Problem::unavailable(error.to_string()))? {
        let labels = [
            ("stage", lag.stage.to_owned()),
            ("partition", lag.partition.to_string()),
        ];
        metrics::gauge!(UNANSWERED_RECORDS, &labels).set(lag.records as f64);
        metrics::gauge!(OLDEST_UNANSWERED_SECONDS, &labels).set(lag.oldest_ms as f64 / 1e3);
    }
    shared.metrics.run_upkeep();
    Ok(shared.metrics.render())
}
