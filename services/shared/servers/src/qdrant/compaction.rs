//! How is Qdrant brought to drop what is deleted? It has no call for it: its optimiser rewrites a segment
//! when the share of deleted points in it passes a threshold, so the threshold is lowered for a while.

use std::time::Duration;

use anamnesis_pipeline::stores::StoreError;
use qdrant_client::qdrant::{CollectionStatus, UpdateCollection};

use super::collection::{self, DELETED_SHARE, DELETED_SHARE_COMPACTING};
use super::server::{Server, unavailable};

/// Between two looks at the optimiser.
const POLL: Duration = Duration::from_millis(100);

/// Has every segment written anew that holds something deleted, and waits for it. A process that ends
/// in between leaves the threshold low, which costs work and no answer; the next compaction raises it.
///
/// # Errors
/// [`StoreError::Unavailable`] when the optimiser is not done in time, or has failed.
pub(super) async fn compact(
    server: &Server,
    collection: &str,
    deadline: Duration,
) -> Result<(), StoreError> {
    set_threshold(server, collection, DELETED_SHARE_COMPACTING).await?;
    let done = tokio::time::timeout(deadline, settled(server, collection)).await;
    // Also when it failed: at this threshold every single deletion would have a segment rewritten.
    set_threshold(server, collection, DELETED_SHARE).await?;
    match done {
        Ok(settled) => settled,
        Err(_) => Err(unavailable(format!(
            "the optimiser of qdrant was not done within {deadline:?}"
        ))),
    }
}

async fn set_threshold(
    server: &Server,
    collection: &str,
    deleted_share: f64,
) -> Result<(), StoreError> {
    let request = UpdateCollection {
        collection_name: collection.to_owned(),
        optimizers_config: Some(collection::optimizers(deleted_share)),
        ..UpdateCollection::default()
    };
    Ok(server.configure(request).await?)
}

/// Waits until the optimiser says twice that it has nothing to do: at the first time it may not have
/// begun.
async fn settled(server: &Server, collection: &str) -> Result<(), StoreError> {
    let mut idle = 0;
    while idle < 2 {
        tokio::time::sleep(POLL).await;
        let info = server.info(collection).await?;
        if info.optimizer_status.is_some_and(|status| !status.ok) {
            return Err(unavailable("the optimiser of qdrant has failed"));
        }
        let is_idle = info.status == i32::from(CollectionStatus::Green);
        idle = if is_idle { idle + 1 } else { 0 };
    }
    Ok(())
}
