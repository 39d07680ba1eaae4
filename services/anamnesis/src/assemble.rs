//! Which parts does a process of each role run, and what does it answer over HTTP?

use std::future::Future;
use std::sync::Arc;

use anamnesis_intake::inbox::{InboxConfig, InboxError, InboxReader};
use anamnesis_intake::service::Intake;
use anamnesis_pipeline::clock::SystemClock;
use anamnesis_pipeline::consumer::{Consumer, Stage, StageError};
use anamnesis_pipeline::log::LogError;
use anamnesis_pipeline::stands::Stands;
use anamnesis_servers::kafka::{DriveError, Lease, Membership};
use anamnesis_servers::registry::{RegistryConfig, SchemaRegistry};
use anamnesis_servers::shard::config::ShardServerConfig;
use anamnesis_servers::shard::server::{self, ShardParts};
use axum::Router;
use axum::middleware::{from_fn, from_fn_with_state};
use metrics_exporter_prometheus::PrometheusHandle;
use tokio::runtime::Handle;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::audit_http;
use crate::base::Base;
use crate::behind::Behind;
use crate::commands::serve::{Tasks, spawn};
use crate::config::{Config, LogConfig};
use crate::failure::Failure;
use crate::node::Node;
use crate::operations;
use crate::readiness::{Readiness, until_caught_up};
use crate::requests;
use crate::role::Role;
use crate::watch::Watch;

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
            parts.drive(&base, vec![base.extractor()?], None, tasks)?;
            Ok(parts.stage_only(&base))
        }
        Role::ValidityManager => {
            parts.drive(&base, vec![base.validity_manager()], None, tasks)?;
            Ok(parts.stage_only(&base))
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
    fn stage_only(&self, base: &Base) -> Assembled {
        let readiness = Readiness::of_stages(base, self.stands.clone());
        let watch = self.watch(base, None, &readiness);
        let router = operations::router(readiness, watch, None);
        Assembled {
            router: router.layer(from_fn(requests::count)),
        }
    }

    fn watch(&self, base: &Base, node: Option<&Node>, readiness: &Readiness) -> Watch {
        let metrics = self.metrics.clone();
        Watch::start(base, node, readiness, &self.stands, metrics, self.shutdown)
    }

    async fn with_stores(&self, base: Base, tasks: &mut Tasks) -> Result<Assembled, Failure> {
        let callers = base.config.callers()?;
        let node = Node::over(base, self.role, &[]).await?;
        let readiness = Readiness::new(&node, self.role, self.stands.clone()).await?;
        let has = |roles: &[Role]| roles.contains(&self.role);
        let mut router = Router::new();
        if has(&[Role::All]) {
            let partitions: Vec<u32> = (0..node.log.partitions()).collect();
            self.run(&node, &node.stages()?, &partitions, tasks);
        }
        if has(&[Role::Indexer]) {
            let shard = served_shard(&node.config)?;
            let partitions: Vec<u32> = shard.partitions.iter().collect();
            self.run(&node, &[node.shard_indexer()], &partitions, tasks);
            let behind = Arc::new(Behind::start().map_err(Failure::wrong_use)?);
            self.drive(&node, node.server_indexers(), Some(behind), tasks)?;
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
            self.read_inbox(&node, &intake, tasks)?;
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
        let watch = self.watch(&node, Some(&node), &readiness);
        let operations = operations::router(readiness, watch, Some(&node));
        Ok(Assembled {
            router: router.merge(operations).layer(from_fn(requests::count)),
        })
    }

    /// Reads what platforms write to Kafka, where that is configured.
    fn read_inbox(
        &self,
        node: &Node,
        intake: &Arc<Intake>,
        tasks: &mut Tasks,
    ) -> Result<(), Failure> {
        let (Some(inbox), Some(kafka)) = (&node.config.inbox, &node.kafka) else {
            return Ok(());
        };
        let caller = inbox.caller().map_err(Failure::wrong_use)?;
        let mut reader =
            InboxReader::new(kafka.clone(), intake.clone(), caller).with_stands(&self.stands);
        if let Some(registry) = registry_of(inbox)? {
            let registry = SchemaRegistry::new(&registry).map_err(Failure::wrong_use)?;
            reader = reader.with_registry(Arc::new(registry));
        }
        let reader = Arc::new(reader);
        let of_inbox = reader.partitions();
        if self.role == Role::All {
            for partition in 0..of_inbox {
                let name = format!("inbox of partition {partition}");
                let reading = reader.clone().run(partition, self.shutdown.clone());
                spawn(tasks, name, reading);
            }
            return Ok(());
        }
        // Whoever has partition N of the log reads every partition of inbox that comes to it.
        let of_log = node.log.partitions();
        let start = move |lease: Arc<Lease>| {
            let all = (lease.partition()..of_inbox).step_by(of_log as usize);
            let readings = all.map(|partition| (reader.clone(), partition)).collect();
            hold(
                lease,
                readings,
                Handle::current(),
                |(reader, partition), stop| reader.run(partition, stop),
            )
        };
        self.join(node, start, tasks)
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

    /// Runs these stages in the partitions that this process gets as a member of its service's group, behind
    /// what else it does or beside it.
    fn drive(
        &self,
        base: &Base,
        stages: Vec<Arc<dyn Stage>>,
        behind: Option<Arc<Behind>>,
        tasks: &mut Tasks,
    ) -> Result<(), Failure> {
        if stages.is_empty() {
            return Ok(());
        }
        let (of, stands) = (base.clone(), self.stands.clone());
        let start = move |lease: Arc<Lease>| {
            let on = match &behind {
                Some(behind) => behind.handle().clone(),
                None => Handle::current(),
            };
            let consumer = |stage: &Arc<dyn Stage>| {
                let held = lease.clone();
                let (log, clock) = (of.log.clone(), of.clock.clone());
                Consumer::new(log, stage.clone(), lease.partition(), clock)
                    .with_stands(&stands)
                    .with_lease(Arc::new(move || held.is_current()))
            };
            let consumers = stages.iter().map(consumer).collect();
            hold(lease, consumers, on, Consumer::run)
        };
        self.join(base, start, tasks)
    }

    /// Takes part in the service's group, and runs `start` for every partition that comes.
    fn join<E, Work>(
        &self,
        base: &Base,
        start: impl Fn(Arc<Lease>) -> Work + Send + Sync + 'static,
        tasks: &mut Tasks,
    ) -> Result<(), Failure>
    where
        E: Send + 'static,
        DriveError<E>: Into<Failure>,
        Work: Future<Output = Result<(), E>> + Send + 'static,
    {
        let LogConfig::Kafka(kafka) = &base.config.log else {
            return Err(Failure::wrong_use("a group needs a log in Kafka"));
        };
        let member = Membership::join(kafka, &kafka.group, self.role.name())?;
        let shutdown = self.shutdown.clone();
        let name = format!("the group of {}", self.role);
        spawn(tasks, name, async move {
            member.drive(start, shutdown.cancelled()).await
        });
        Ok(())
    }
}

fn registry_of(inbox: &InboxConfig) -> Result<Option<RegistryConfig>, Failure> {
    let Some(url) = &inbox.registry else {
        return Ok(None);
    };
    let mut registry = RegistryConfig::new(url);
    registry.ca_file.clone_from(&inbox.registry_ca_file);
    if let Some(name) = &inbox.registry_auth_env {
        let credentials = std::env::var(name).map_err(|_| {
            Failure::wrong_use(format!(
                "the environment variable {name} should hold the registry's credentials and is not set"
            ))
        })?;
        registry.credentials = Some(credentials);
    }
    Ok(Some(registry))
}

fn served_shard(config: &Config) -> Result<&ShardServerConfig, Failure> {
    config.shard.as_ref().ok_or_else(|| {
        Failure::wrong_use(
            "an indexer serves the records and the text of some partitions: configure [shard] with \
             listen, partitions and replica",
        )
    })
}

/// What a part of a partition ends with when its task is gone.
trait Ended {
    fn ended(reason: String) -> Self;
}

impl Ended for StageError {
    fn ended(reason: String) -> Self {
        Self::Log(LogError::Unavailable { reason })
    }
}

impl Ended for InboxError {
    fn ended(reason: String) -> Self {
        Self::Log(LogError::Unavailable { reason })
    }
}

/// Runs all parts of one partition until its lease is revoked or one of them ends.
async fn hold<Part, Work, E>(
    lease: Arc<Lease>,
    parts: Vec<Part>,
    on: Handle,
    run: impl Fn(Part, CancellationToken) -> Work,
) -> Result<(), E>
where
    Work: Future<Output = Result<(), E>> + Send + 'static,
    E: Ended + Send + 'static,
{
    let stop = CancellationToken::new();
    let mut running = JoinSet::new();
    for part in parts {
        running.spawn_on(run(part, stop.clone()), &on);
    }
    let mut result = Ok(());
    loop {
        let ended = tokio::select! {
            () = lease.revoked(), if !stop.is_cancelled() => {
                stop.cancel();
                continue;
            }
            ended = running.join_next() => ended,
        };
        match ended {
            None if !stop.is_cancelled() => {
                // Nothing to do in this partition, which stays this process's.
                lease.revoked().await;
                return result;
            }
            None => return result,
            Some(Ok(Ok(()))) => (),
            Some(Ok(Err(error))) => result = Err(error),
            Some(Err(error)) => result = Err(E::ended(error.to_string())),
        }
        stop.cancel();
    }
}

impl<E: Into<Failure>> From<DriveError<E>> for Failure {
    fn from(error: DriveError<E>) -> Self {
        match error {
            DriveError::Membership(error) => error.into(),
            DriveError::Partition {
                partition: _,
                error,
            } => error.into(),
        }
    }
}
