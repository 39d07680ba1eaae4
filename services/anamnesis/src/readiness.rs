//! May this node be asked? Not before its stores have reached what was in the log when it started: a
//! store that lost its last writes with the power could show what has been erased since.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anamnesis_domain::input::Topic;
use anamnesis_domain::time::Timestamp;
use anamnesis_pipeline::clock::Clock;
use anamnesis_pipeline::consumer::StageError;
use anamnesis_pipeline::log::Log;
use anamnesis_pipeline::problem::Problem;
use anamnesis_pipeline::stands::Stands;
use anamnesis_pipeline::stores::{Projection, Store};
use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::Response;

use crate::base::Base;
use crate::node::Node;
use crate::role::Role;

/// Records that a store may be behind before the node is not ready: a few seconds of writing.
const BEHIND_MAX: u64 = 5_000;

/// What the stages and stores of a node have not done yet.
#[derive(Clone)]
pub struct Readiness {
    log: Log,
    /// Those that the node cannot do without.
    stores: Vec<Arc<dyn Projection>>,
    /// Those on servers, without which it does less.
    remote: Vec<Arc<dyn Projection>>,
    /// Those that this process keeps up to date or asks for.
    partitions: Vec<u32>,
    stands: Stands,
    clock: Arc<dyn Clock>,
    oldest_ms_max: u64,
    /// The end of each partition of `memories` when the node was opened.
    ends_at_start: Vec<u64>,
    is_caught_up: Arc<AtomicBool>,
}

/// What one stage has not answered in one partition.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Lag {
    pub stage: &'static str,
    pub partition: u32,
    pub records: u64,
    /// Age of the oldest of them.
    pub oldest_ms: u64,
    pub failing_since: Option<Timestamp>,
    pub has_begun: bool,
}

pub struct Report {
    pub behind: Vec<(Store, u64)>,
    pub lags: Vec<Lag>,
    /// Why the node is not ready; `None` when it is.
    pub fault: Option<String>,
}

impl Readiness {
    /// # Errors
    /// When the log cannot be read.
    pub async fn new(node: &Node, role: Role, stands: Stands) -> Result<Self, StageError> {
        let mut ends_at_start = Vec::new();
        for partition in 0..node.log.partitions() {
            ends_at_start.push(node.log.end(Topic::Memories, partition).await?);
        }
        let all = node.stores.projections().into_iter();
        let (mut remote, stores): (Vec<_>, Vec<_>) =
            all.partition(|store| node.remote.contains_key(&store.store()));
        // Whoever neither fills nor asks them does without them.
        if matches!(role, Role::Intake | Role::Forgetter) {
            remote.clear();
        }
        let of_shard = node.config.shard.as_ref();
        let of_shard = of_shard.filter(|_| role == Role::Indexer);
        let partitions = match of_shard {
            Some(shard) => shard.partitions.iter().collect(),
            None => (0..node.log.partitions()).collect(),
        };
        // Served copies fence themselves while they are behind.
        if role != Role::All {
            ends_at_start.clear();
        }
        Ok(Self {
            stores,
            remote,
            partitions,
            ends_at_start,
            ..Self::of_stages(node, stands)
        })
    }

    /// Of a process without stores.
    pub fn of_stages(base: &Base, stands: Stands) -> Self {
        Self {
            log: base.log.clone(),
            stores: Vec::new(),
            remote: Vec::new(),
            partitions: Vec::new(),
            stands,
            clock: base.clock.clone(),
            oldest_ms_max: base.config.ready.oldest_max.duration().as_millis() as u64,
            ends_at_start: Vec::new(),
            is_caught_up: Arc::default(),
        }
    }

    /// # Errors
    /// When the log or a store cannot be read.
    pub async fn report(&self) -> Result<Report, StageError> {
        let behind = self.behind().await?;
        let lags = self.lags().await?;
        let fault = self.fault(&behind, &lags).await?;
        Ok(Report {
            behind,
            lags,
            fault,
        })
    }

    async fn fault(
        &self,
        behind: &[(Store, u64)],
        lags: &[Lag],
    ) -> Result<Option<String>, StageError> {
        if !self.is_caught_up().await? || self.is_far_behind(behind) {
            let stores = behind.iter().filter(|(_, records)| *records > 0);
            let stores: Vec<String> = stores
                .map(|(store, records)| format!("{store} by {records}"))
                .collect();
            return Ok(Some(format!("stores are behind: {}", stores.join(", "))));
        }
        let late = lags.iter().max_by_key(|lag| lag.oldest_ms);
        if let Some(late) = late.filter(|lag| lag.oldest_ms > self.oldest_ms_max) {
            return Ok(Some(format!(
                "{} of partition {} has not answered {} records; the oldest is {} s old",
                late.stage,
                late.partition,
                late.records,
                late.oldest_ms / 1_000
            )));
        }
        let waiting = lags.iter().find(|lag| !lag.has_begun);
        Ok(waiting.map(|lag| format!("{} of partition {} begins", lag.stage, lag.partition)))
    }

    fn is_far_behind(&self, behind: &[(Store, u64)]) -> bool {
        let must = |store: Store| self.stores.iter().any(|one| one.store() == store);
        behind
            .iter()
            .any(|(store, records)| must(*store) && *records > BEHIND_MAX)
    }

    /// Whether every store has applied what was in the log at the start; once true, always true.
    async fn is_caught_up(&self) -> Result<bool, StageError> {
        if self.is_caught_up.load(Ordering::Relaxed) {
            return Ok(true);
        }
        for store in &self.stores {
            for (partition, end) in (0..).zip(&self.ends_at_start) {
                let next = store.checkpoint(partition).await?.map_or(0, |c| c.next);
                if next < *end {
                    return Ok(false);
                }
            }
        }
        self.is_caught_up.store(true, Ordering::Relaxed);
        Ok(true)
    }

    /// Records that each store has not applied.
    async fn behind(&self) -> Result<Vec<(Store, u64)>, StageError> {
        let mut all = Vec::new();
        for store in &self.stores {
            all.push((store.store(), self.behind_of(&**store).await?));
        }
        for store in &self.remote {
            match self.behind_of(&**store).await {
                Ok(records) => all.push((store.store(), records)),
                // The answers say that they do without it.
                Err(StageError::Store(_)) => (),
                Err(error) => return Err(error),
            }
        }
        Ok(all)
    }

    async fn behind_of(&self, store: &dyn Projection) -> Result<u64, StageError> {
        let mut records = 0;
        for &partition in &self.partitions {
            let end = self.log.end(Topic::Memories, partition).await?;
            let next = store.checkpoint(partition).await?.map_or(0, |c| c.next);
            records += end.saturating_sub(next);
        }
        Ok(records)
    }

    /// # Errors
    /// When the log cannot be read.
    pub async fn lags(&self) -> Result<Vec<Lag>, StageError> {
        let now = self.clock.now();
        let mut all = Vec::new();
        for (stage, partition, stand) in self.stands.all() {
            let mut lag = Lag {
                stage,
                partition,
                records: 0,
                oldest_ms: 0,
                failing_since: stand.failing_since,
                has_begun: !stand.positions.is_empty(),
            };
            for (topic, next) in stand.positions {
                let end = self.log.end(topic, partition).await?;
                lag.records += end.saturating_sub(next);
                if next >= end {
                    continue;
                }
                let oldest = self.log.read(topic, partition, next, 1, 1).await?;
                if let Some(oldest) = oldest.first() {
                    let age = now.millis() - oldest.appended_at.millis();
                    lag.oldest_ms = lag.oldest_ms.max(u64::try_from(age).unwrap_or_default());
                }
            }
            all.push(lag);
        }
        Ok(all)
    }
}

/// Turns questions away until the stores have caught up.
///
/// # Errors
/// 503 `unavailable`, with how far the stores are.
pub async fn until_caught_up(
    State(readiness): State<Readiness>,
    request: Request,
    next: Next,
) -> Result<Response, Problem> {
    let unreadable = |_| Problem::unavailable("the log or a store cannot be read at the moment");
    if readiness.is_caught_up().await.map_err(unreadable)? {
        return Ok(next.run(request).await);
    }
    let behind = readiness.behind().await.map_err(unreadable)?;
    let most = behind.iter().map(|(_, records)| *records).max();
    Err(Problem::unavailable(format!(
        "memory is being read from the log; {} records are left; try again",
        most.unwrap_or_default()
    )))
}
