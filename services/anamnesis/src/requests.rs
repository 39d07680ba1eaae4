//! How are calls answered? Counted by route and outcome, whatever service is behind them.

use axum::extract::{MatchedPath, Request};
use axum::middleware::Next;
use axum::response::Response;

use crate::metrics::{REQUESTS_TOTAL, ROUTES};

/// Counts one call. To be laid over the whole router.
pub async fn count(request: Request, next: Next) -> Response {
    // The route as it is written in the router: the path that was called may hold an owner.
    let matched = request.extensions().get::<MatchedPath>();
    let route = matched.map_or("other", |matched| closed(matched.as_str()));
    let response = next.run(request).await;
    let status = response.status();
    let outcome = if status.is_server_error() {
        "failed"
    } else if status.is_client_error() {
        "refused"
    } else {
        "ok"
    };
    metrics::counter!(REQUESTS_TOTAL, "route" => route, "outcome" => outcome).increment(1);
    response
}

fn closed(route: &str) -> &'static str {
    let known = ROUTES.into_iter().find(|known| *known == route);
    known.unwrap_or("other")
}
