//! What does a service answer before it is open? That it is alive, why it is not ready, and its metrics:
//! a service that waits for a server must be seen to wait.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use anamnesis_pipeline::problem::Problem;
use axum::Router;
use axum::extract::{Request, State};
use axum::response::{IntoResponse as _, Response};
use metrics_exporter_prometheus::PrometheusHandle;
use tower::ServiceExt as _;

/// Leads to a router as soon as there is one.
#[derive(Clone)]
pub(crate) struct Door(Arc<Inner>);

struct Inner {
    opened: OnceLock<Router>,
    /// Why it is not open.
    reason: Mutex<String>,
    metrics: PrometheusHandle,
}

impl Door {
    pub(crate) fn closed(metrics: PrometheusHandle) -> Self {
        Self(Arc::new(Inner {
            opened: OnceLock::new(),
            reason: Mutex::new("the service begins".to_owned()),
            metrics,
        }))
    }

    pub(crate) fn waits(&self, reason: impl Into<String>) {
        let mut kept = self.0.reason.lock().unwrap_or_else(PoisonError::into_inner);
        *kept = reason.into();
    }

    pub(crate) fn open(&self, router: Router) {
        // Opened once, by whoever made it.
        let _ = self.0.opened.set(router);
    }

    pub(crate) fn router(&self) -> Router {
        Router::new().fallback(pass).with_state(self.clone())
    }
}

async fn pass(State(door): State<Door>, request: Request) -> Response {
    if let Some(router) = door.0.opened.get() {
        let Ok(response) = router.clone().oneshot(request).await;
        return response;
    }
    match request.uri().path() {
        "/livez" => "alive\n".into_response(),
        "/metrics" => door.0.metrics.render().into_response(),
        _ => {
            let reason = door.0.reason.lock();
            let reason = reason.unwrap_or_else(PoisonError::into_inner).clone();
            Problem::unavailable(reason).into_response()
        }
    }
}
