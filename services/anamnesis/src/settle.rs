//! Have the services, which run in other processes, answered everything that was accepted?

use std::sync::Arc;
use std::time::Duration;

use anamnesis_audit::balance::balance;
use anamnesis_domain::input::Topic;
use anamnesis_pipeline::codec::Codec;
use anamnesis_pipeline::log::Log;
use anamnesis_pipeline::stores::{Projection, StoreError};
use tokio::time::{Instant, sleep};

use crate::node::{Node, NodeError};

/// Services that move nothing for so long are not running.
const PATIENCE: Duration = Duration::from_secs(60);
/// A look replays the log: the next one comes after as long as it took, and this at least.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// The log and the stores of running services.
pub struct Settling {
    log: Log,
    codec: Codec,
    stores: Vec<Arc<dyn Projection>>,
}

/// What is left to do.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Left {
    in_flight: u64,
    behind: u64,
}

impl Settling {
    pub(crate) fn new(node: &Node) -> Self {
        Self {
            log: node.log.clone(),
            codec: node.codec.clone(),
            stores: node.stores.projections(),
        }
    }

    /// # Errors
    /// When nothing moves any more.
    pub(crate) async fn settled(&self) -> Result<(), NodeError> {
        let mut before = None;
        let mut moved = Instant::now();
        loop {
            let began = Instant::now();
            let left = self.left().await?;
            if left.is_some_and(|left| left.in_flight == 0 && left.behind == 0) {
                return Ok(());
            }
            if left != before {
                before = left;
                moved = Instant::now();
            }
            if moved.elapsed() > PATIENCE {
                let reason = match left {
                    Some(left) => format!(
                        "{} inputs are not decided and {} records not in every store",
                        left.in_flight, left.behind
                    ),
                    None => "a store cannot be reached".to_owned(),
                };
                return Err(NodeError::Stopped {
                    part: "a service".to_owned(),
                    reason: format!(
                        "{reason}, and nothing moves for {PATIENCE:?}; what was accepted is in the log"
                    ),
                });
            }
            sleep(LOOK_EVERY.max(began.elapsed())).await;
        }
    }

    /// `None` while a store cannot be reached.
    async fn left(&self) -> Result<Option<Left>, NodeError> {
        let in_flight = balance(&*self.log, &self.codec).await?.in_flight;
        let mut behind = 0;
        for store in &self.stores {
            for partition in 0..self.log.partitions() {
                let end = self.log.end(Topic::Memories, partition).await?;
                let next = match store.checkpoint(partition).await {
                    Ok(checkpoint) => checkpoint.map_or(0, |checkpoint| checkpoint.next),
                    Err(StoreError::Unavailable { .. }) => return Ok(None),
                    Err(error) => return Err(error.into()),
                };
                behind += end.saturating_sub(next);
            }
        }
        Ok(Some(Left { in_flight, behind }))
    }
}
