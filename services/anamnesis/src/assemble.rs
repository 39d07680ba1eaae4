//! Which parts does a process of each role run, and what does it answer over HTTP?

use std::sync::Arc;

use anamnesis_pipeline::clock::SystemClock;
use anamnesis_pipeline::consumer::{Consumer, Stage, StageError};
use anamnesis_pipeline::log::LogError;
use anamnesis_pipeline::stands::Stands;
use anamnesis_servers::kafka::{DriveError, Lease, Membership};
use anamnesis_servers::shard::config::ShardServerConfig;
use anamnesis_servers::shard::server::{self, ShardParts};
use axum::Router;
use axum::middleware::from_fn_with_state;
use metrics_exporter_prometheus::PrometheusHandle;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::audit_http;
use crate::base::Base;
use crate::commands::serve::{Tasks, spawn};
use crate::config::{Config, LogConfig};
use crate::failure::Failure;
use crate::node::Node;
use crate::observe::Observer;
use crate::operations;
use crate::readiness::{Readiness, until_caught_up};
use crate::role::Role;

/// A part of the system that runs.
pub(crate) struct Assembled {
    pub(crate) router: Router,
}

/// Opens what the role needs and starts what it runs.
///
/// # Errors
/// When something cannot be opened. What was started by then is in `tasks`.
pub(crate) async fn start(
    config: Config,
    role: Role,
    shutdown: &CancellationToken,
    metrics: &PrometheusHandle,
    tasks: &mut Tasks,
) -> Result<Assembled, Failure> {
    let base = Base::open(config, Arc::new(SystemClock)).await?;
    let parts = Parts {
        role,
        shutdown,
        metrics,
        stands: Stands::default(),
    };
    match role {
        Role::Extractor => {
            parts.drive(&base, vec![base.extractor()], tasks)?;
            parts.stage_only(&base).await
        }
        Role::ValidityManager => {
            parts.drive(&base, vec![base.validity_manager()], tasks)?;
            parts.stage_only(&base).await
        }
        Role::All | Role::Intake | Role::Indexer | Role::Forgetter | Role::Recall | Role::Tool => {
            parts.with_stores(base, tasks).await
        }
    }
}

struct Parts<'a> {
    role: Role,
    shutdown: &'a CancellationToken,
    metrics: &'a PrometheusHandle,
    stands: Stands,
}

impl Parts<'_> {
    async fn stage_only(&self, base: &Base) -> Result<Assembled, Failure> {
        let readiness = Readiness::of_stages(base, self.stands.clone());
        let observer = self.observe(base, None, &readiness);
        let router = operations::router(readiness, observer, None);
        Ok(Assembled { router })
    }

    async fn with_stores(&self, base: Base, tasks: &mut Tasks) -> Result<Assembled, Failure> {
        let callers = base.config.callers()?;
        let node = Node::over(base, self.role, &[]).await?;
        let readiness = Readiness::new(&node, self.role, self.stands.clone()).await?;
        let has = |roles: &[Role]| roles.contains(&self.role);
        let mut router = Router::new();
        if has(&[Role::All]) {
            let partitions: Vec<u32> = (0..node.log.partitions()).collect();
            self.run(&node, &node.stages(), &partitions, tasks);
        }
        if has(&[Role::Indexer]) {
            let shard = served_shard(&node.config)?;
            let partitions: Vec<u32> = shard.partitions.iter().collect();
            self.run(&node, &[node.shard_indexer()], &partitions, tasks);
            self.drive(&node, node.server_indexers(), tasks)?;
            self.serve_shard(&node, shard, tasks).await?;
        }
        if has(&[Role::All, Role::Forgetter]) {
            let forgetter = node.forgetter();
            let shutdown = self.shutdown.clone();
            spawn(
                tasks,
                "forgetter",
                async move { forgetter.run(shutdown).await },
            );
        }
        if has(&[Role::All, Role::Intake]) {
            let intake = node.intake();
            let released = intake.clone();
            tokio::spawn(async move {
                if let Err(error) = released.release_all().await {
                    tracing::warn!(%error, "what waits for consent was not looked at");
                }
            });
            router = router.merge(anamnesis_intake::http::router(intake, callers.clone()));
        }
        if has(&[Role::All, Role::Recall]) {
            let (recall, receipts) = node.recall();
            let shutdown = self.shutdown.clone();
            spawn(tasks, "the writer of receipts", async move {
                receipts.run(shutdown).await;
                Ok::<(), Failure>(())
            });
            let reads = anamnesis_recall::http::router(recall, callers.clone())
                .layer(from_fn_with_state(readiness.clone(), until_caught_up));
            router = router
                .merge(reads)
                .merge(audit_http::router(&node, callers.clone()));
        }
        tracing::info!(role = %self.role, model = %node.embed.identity(), "open");
        let observer = self.observe(&node, Some(&node), &readiness);
        let operations = operations::router(readiness, observer, Some(&node));
        Ok(Assembled {
            router: router.merge(operations),
        })
    }

    /// Looks at this process from outside, in the background.
    fn observe(&self, base: &Base, node: Option<&Node>, readiness: &Readiness) -> Observer {
        let metrics = self.metrics.clone();
        Observer::start(base, node, readiness, &self.stands, metrics, self.shutdown)
    }

    /// Serves the records and the text of this process to the others.
    async fn serve_shard(
        &self,
        node: &Node,
        shard: &ShardServerConfig,
        tasks: &mut Tasks,
    ) -> Result<(), Failure> {
        let parts = ShardParts {
            records: node.stores.records.clone(),
            text: node.stores.text.clone(),
            log: node.log.clone(),
            feed: node.feed,
        };
        let shutdown = self.shutdown.clone();
        let server = server::serve(
            shard.clone(),
            parts,
            async move { shutdown.cancelled().await },
        );
        let server = server.await?;
        tracing::info!(
            address = %server.address(),
            partitions = %shard.partitions,
            replica = shard.replica,
            "serving a shard"
        );
        spawn(tasks, "the server of the shard", server.stopped());
        Ok(())
    }

    /// Runs these stages in these partitions, whoever else does.
    fn run(&self, base: &Base, stages: &[Arc<dyn Stage>], partitions: &[u32], tasks: &mut Tasks) {
        for stage in stages {
            for &partition in partitions {
                let consumer = Consumer::new(
                    base.log.clone(),
                    stage.clone(),
                    partition,
                    base.clock.clone(),
                );
                let consumer = consumer.with_stands(&self.stands);
                let name = format!("{} of partition {partition}", stage.name());
                spawn(tasks, name, consumer.run(self.shutdown.clone()));
            }
        }
    }

    /// Runs these stages in the partitions that this process gets as a member of its service's group.
    fn drive(
        &self,
        base: &Base,
        stages: Vec<Arc<dyn Stage>>,
        tasks: &mut Tasks,
    ) -> Result<(), Failure> {
        let LogConfig::Kafka(kafka) = &base.config.log else {
            return Err(Failure::wrong_use("a group needs a log in Kafka"));
        };
        if stages.is_empty() {
            return Ok(());
        }
        let member = Membership::join(kafka, &kafka.group, self.role.name())?;
        let (base, stands, shutdown) = (base.clone(), self.stands.clone(), self.shutdown.clone());
        let name = format!("the group of {}", self.role);
        spawn(tasks, name, async move {
            let start = |lease: Arc<Lease>| {
                let consumers: Vec<Consumer> = stages
                    .iter()
                    .map(|stage| {
                        let lease = lease.clone();
                        Consumer::new(
                            base.log.clone(),
                            stage.clone(),
                            lease.partition(),
                            base.clock.clone(),
                        )
                        .with_stands(&stands)
                        .with_lease(Arc::new(move || lease.is_current()))
                    })
                    .collect();
                hold(lease, consumers)
            };
            member.drive(start, shutdown.cancelled()).await
        });
        Ok(())
    }
}

fn served_shard(config: &Config) -> Result<&ShardServerConfig, Failure> {
    config.shard.as_ref().ok_or_else(|| {
        Failure::wrong_use(
            "an indexer serves the records and the text of some partitions: configure [shard] with \
             listen, partitions and replica",
        )
    })
}

/// Runs the consumers of one partition until its lease is revoked.
async fn hold(lease: Arc<Lease>, consumers: Vec<Consumer>) -> Result<(), StageError> {
    let stop = CancellationToken::new();
    let mut running = JoinSet::new();
    for consumer in consumers {
        running.spawn(consumer.run(stop.clone()));
    }
    let mut result = Ok(());
    loop {
        tokio::select! {
            () = lease.revoked(), if !stop.is_cancelled() => stop.cancel(),
            ended = running.join_next() => match ended {
                None => return result,
                Some(Ok(Ok(()))) => stop.cancel(),
                Some(Ok(Err(error))) => {
                    result = Err(error);
                    stop.cancel();
                }
                Some(Err(error)) => {
                    let reason = error.to_string();
                    result = Err(StageError::Log(LogError::Unavailable { reason }));
                    stop.cancel();
                }
            },
        }
    }
}

impl From<DriveError<StageError>> for Failure {
    fn from(error: DriveError<StageError>) -> Self {
        match error {
            DriveError::Membership(error) => error.into(),
            DriveError::Partition {
                partition: _,
                error,
            } => error.into(),
        }
    }
}
