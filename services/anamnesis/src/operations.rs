//! What operators and their tools ask: is it alive, is it ready, what does it count.

use std::sync::Arc;

use anamnesis_domain::input::Topic;
use anamnesis_pipeline::log::Log;
use anamnesis_pipeline::problem::Problem;
use anamnesis_pipeline::stores::{Projection, Store};
use axum::extract::State;
use axum::routing::get;
use axum::{Json, Router};
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle};
use serde_json::{Value, json};

use crate::metrics::{MEMORIES, describe};
use crate::node::Node;

/// Records that a store may be behind before the node is not ready: a few seconds of writing.
const BEHIND_MAX: u64 = 5_000;

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
    log: Log,
    stores: Vec<Arc<dyn Projection>>,
    records: Arc<dyn anamnesis_pipeline::stores::Records>,
    metrics: PrometheusHandle,
    model: String,
    is_semantic: bool,
}

pub fn router(node: &Node, metrics: PrometheusHandle) -> Router {
    let shared = Shared {
        log: node.log.clone(),
        stores: node.stores.projections(),
        records: node.stores.records.clone(),
        metrics,
        model: node.embed.identity().to_string(),
        is_semantic: node.embed.is_semantic(),
    };
    Router::new()
        .route("/livez", get(|| async { "alive\n" }))
        .route("/readyz", get(ready))
        .route("/metrics", get(scrape))
        .with_state(shared)
}

async fn ready(State(shared): State<Shared>) -> Result<Json<Value>, Problem> {
    let behind = behind(&shared).await.map_err(Problem::unavailable)?;
    let worst = behind
        .iter()
        .map(|(_, records)| *records)
        .max()
        .unwrap_or(0);
    if worst > BEHIND_MAX {
        let stores: Vec<String> = behind
            .iter()
            .map(|(store, records)| format!("{store} by {records}"))
            .collect();
        return Err(Problem::unavailable(format!(
            "stores are behind: {}",
            stores.join(", ")
        )));
    }
    let behind: serde_json::Map<String, Value> = behind
        .into_iter()
        .map(|(store, records)| (store.to_string(), records.into()))
        .collect();
    Ok(Json(json!({
        "ready": true,
        "behind_records": behind,
        "embedding": { "model": shared.model, "semantic": shared.is_semantic },
    })))
}

/// Records that each store has not applied.
async fn behind(shared: &Shared) -> Result<Vec<(Store, u64)>, String> {
    let mut all = Vec::new();
    for store in &shared.stores {
        let mut records = 0;
        for partition in 0..shared.log.partitions() {
            let end = shared.log.end(Topic::Memories, partition).await;
            let checkpoint = store.checkpoint(partition).await;
            let end = end.map_err(|error| error.to_string())?;
            let next = checkpoint
                .map_err(|error| error.to_string())?
                .map_or(0, |c| c.next);
            records += end.saturating_sub(next);
        }
        all.push((store.store(), records));
    }
    Ok(all)
}

async fn scrape(State(shared): State<Shared>) -> Result<String, Problem> {
    let counts = shared.records.counts().await;
    for (kind, status, count) in counts.map_err(|error| Problem::unavailable(error.to_string()))? {
        metrics::gauge!(MEMORIES, "kind" => kind.code(), "status" => status.code())
            .set(count as f64);
    }
    shared.metrics.run_upkeep();
    Ok(shared.metrics.render())
}
