//! Which services run in this process, how they are started, driven to the tail, and stopped.

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use anamnesis_extractor::stage::Extractor;
use anamnesis_forgetter::service::{Forgetter, Settings as ForgetSettings};
use anamnesis_indexer::stage::Indexer;
use anamnesis_intake::service::{Intake, Settings as IntakeSettings};
use anamnesis_pipeline::consumer::{Consumer, Progress, Stage, StageError};
use anamnesis_pipeline::guarded::Guarded;
use anamnesis_pipeline::stores::{Projection, Store};
use anamnesis_recall::reviews::LogRejects;
use anamnesis_recall::service::{AT_ONCE, Parts, Recall, RecallSettings};
use anamnesis_validity_manager::decide::Rules;
use anamnesis_validity_manager::stage::ValidityManager;
use tokio::task::JoinSet;

use crate::base::Base;
use crate::config::{ConsentDefault, LogConfig, RecordsConfig};
use crate::node::{Node, NodeError};
use crate::query_reader::{LexiconReader, RuleReader};
use crate::settle::Settling;

/// Whole recalls at once for each processor: each takes some milliseconds of it.
const RECALLS_PER_PROCESSOR: usize = 4;

/// Tries of a stage that fails while it is driven to the tail, before the failure is told.
const DRIVE_FAILURES_MAX: u32 = 20;

impl Base {
    pub fn rules(&self) -> Rules {
        Rules {
            consent_required: self.config.consent.default == ConsentDefault::Required,
            ..Rules::default()
        }
    }

    /// # Errors
    /// When the configured model cannot be used, or its key is not set.
    pub fn extractor(&self) -> Result<Arc<dyn Stage>, NodeError> {
        let extraction = &self.config.extraction;
        let asker = extraction
            .asker()
            .map_err(|what| NodeError::WrongUse { what })?;
        Ok(Arc::new(Extractor {
            log: self.log.clone(),
            codec: self.codec.clone(),
            episodes: extraction.episodes(),
            snapshots: self.snapshots.clone(),
            asker,
        }))
    }

    pub fn validity_manager(&self) -> Arc<dyn Stage> {
        Arc::new(ValidityManager {
            log: self.log.clone(),
            codec: self.codec.clone(),
            rules: self.rules(),
            snapshots: self.snapshots.clone(),
        })
    }

    /// The stages of every partition, to be driven by hand.
    pub fn flow_of(&self, stages: &[Arc<dyn Stage>]) -> Flow {
        let consumers = |partition| {
            let consumer = |stage: &Arc<dyn Stage>| {
                Consumer::new(
                    self.log.clone(),
                    stage.clone(),
                    partition,
                    self.clock.clone(),
                )
            };
            stages.iter().map(consumer).collect()
        };
        Flow::Driven((0..self.log.partitions()).map(consumers).collect())
    }
}

impl Node {
    /// The stages that turn turns into memories, in the order of the flow.
    ///
    /// # Errors
    /// As [`Base::extractor`].
    pub fn stages(&self) -> Result<Vec<Arc<dyn Stage>>, NodeError> {
        let mut stages = vec![self.extractor()?, self.validity_manager()];
        stages.extend(self.indexers());
        Ok(stages)
    }

    /// One fold for what is in this process; one each for what is on a server, which may be down while
    /// the others go on.
    pub fn indexers(&self) -> Vec<Arc<dyn Stage>> {
        let mut stages = vec![self.shard_indexer()];
        stages.extend(self.server_indexers());
        stages
    }

    /// The stores in this process, in one fold.
    pub fn shard_indexer(&self) -> Arc<dyn Stage> {
        let local = self.stores.projections().into_iter();
        let local = local.filter(|store| !self.remote.contains_key(&store.store()));
        Arc::new(Indexer {
            copy: self
                .config
                .shard
                .as_ref()
                .map(|shard| shard.replica.clone()),
            ..self.indexer(local.collect())
        })
    }

    /// The stores on servers, each in a fold of its own.
    pub fn server_indexers(&self) -> Vec<Arc<dyn Stage>> {
        let held = self.remote.keys();
        held.map(|store| {
            let stage: Arc<dyn Stage> = Arc::new(Indexer {
                is_on_server: true,
                ..self.indexer(vec![self.projection(*store)])
            });
            stage
        })
        .collect()
    }

    /// An indexer over these stores.
    pub fn indexer(&self, stores: Vec<Arc<dyn Projection>>) -> Indexer {
        Indexer {
            log: self.log.clone(),
            codec: self.codec.clone(),
            embed: self.embed.clone(),
            stores,
            snapshots: self.snapshots.clone(),
            copy: None,
            is_on_server: false,
        }
    }

    /// Drives every stage until nothing is left to do, one task per partition.
    ///
    /// # Errors
    /// The first failure that beginning again did not help.
    pub async fn settle(&self) -> Result<(), NodeError> {
        self.flow()?.settle().await
    }

    /// Every stage of every partition: driven by hand in a folder, watched where services run.
    ///
    /// # Errors
    /// As [`Base::extractor`].
    pub fn flow(&self) -> Result<Flow, NodeError> {
        if matches!(self.config.log, LogConfig::Kafka(_)) {
            return Ok(Flow::Watched(Box::new(Settling::new(self))));
        }
        Ok(self.flow_of(&self.stages()?))
    }

    pub fn intake(&self) -> Arc<Intake> {
        Arc::new(Intake {
            log: self.log.clone(),
            codec: self.codec.clone(),
            records: self.stores.records.clone(),
            clock: self.clock.clone(),
            reader: Arc::new(RuleReader),
            settings: IntakeSettings {
                consent_required: self.config.consent.default == ConsentDefault::Required,
                review_expires_millis: self.config.review.expires_millis(),
                ..IntakeSettings::default()
            },
        })
    }

    /// The recall service, and the writer of its receipts to be run beside it.
    pub fn recall(&self) -> (Arc<Recall>, anamnesis_recall::receipts::ReceiptWriter) {
        let config = &self.config.recall;
        let mut stores = self.stores.clone();
        if self.remote.contains_key(&Store::Vectors) {
            let patience = config.vector_deadline.duration();
            stores.vectors = Arc::new(Guarded::new(stores.vectors, patience));
        }
        if self.remote.contains_key(&Store::Graph) {
            let patience = config.graph_deadline.duration();
            stores.graph = Arc::new(Guarded::new(stores.graph, patience));
        }
        Recall::new(Parts {
            stores,
            embed: self.embed.clone(),
            log: self.log.clone(),
            sealer: Arc::new(self.codec.clone()),
            rejects: Arc::new(LogRejects {
                log: self.log.clone(),
                codec: self.codec.clone(),
            }),
            review_expires_millis: self.config.review.expires_millis(),
            ids: self.codec.keys().id_key().clone(),
            clock: self.clock.clone(),
            reader: Arc::new(LexiconReader),
            settings: RecallSettings {
                text_deadline_ms: config.text_deadline.duration().as_millis() as u64,
                vector_deadline_ms: config.vector_deadline.duration().as_millis() as u64,
                graph_deadline_ms: config.graph_deadline.duration().as_millis() as u64,
                wait_for_seconds: config.wait_for.duration().as_secs().max(1),
                floor: config.floor.share(),
                is_consent_required: self.config.consent.default == ConsentDefault::Required,
                zone_minutes: self.config.zone.minutes(),
                at_once: self.recalls_at_once(),
                ..RecallSettings::default()
            },
        })
    }

    /// As configured; otherwise by what a recall mostly waits for: a processor where all stores are in this
    /// process, and servers where they are not.
    fn recalls_at_once(&self) -> usize {
        if let Some(at_once) = self.config.recall.at_once {
            return at_once.get() as usize;
        }
        let is_local =
            self.remote.is_empty() && matches!(self.config.records, RecordsConfig::Sqlite {});
        if is_local {
            let processors = std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
            RECALLS_PER_PROCESSOR * processors
        } else {
            AT_ONCE
        }
    }

    pub fn forgetter(&self) -> Forgetter {
        let config = &self.config.forget;
        Forgetter::new(
            self.log.clone(),
            self.codec.clone(),
            self.stores.records.clone(),
            self.clock.clone(),
            ForgetSettings {
                capacity_per_owner: config.capacity_per_owner as usize,
                accesses_kept: config.accesses_kept.duration(),
                inbox_kept: config.inbox_kept.duration(),
                quarantine_kept: config.quarantine_kept.duration(),
                every: config.every.duration(),
            },
        )
    }
}

/// What leads from accepted to recallable.
pub enum Flow {
    /// Stages that have begun and stay begun between two drives, as they do in a server.
    Driven(Vec<Vec<Consumer>>),
    /// Services in other processes.
    Watched(Box<Settling>),
}

impl Flow {
    /// Returns when all stages, in every partition, stand at the tail.
    ///
    /// # Errors
    /// The first failure that beginning again did not help; the flow is then empty. Services that make
    /// no progress.
    pub async fn settle(&mut self) -> Result<(), NodeError> {
        let partitions = match self {
            Self::Watched(watch) => return watch.settled().await,
            Self::Driven(partitions) => partitions,
        };
        let mut tasks: JoinSet<Result<Vec<Consumer>, StageError>> = JoinSet::new();
        for consumers in partitions.drain(..) {
            tasks.spawn(drive_partition(consumers));
        }
        while let Some(done) = tasks.join_next().await {
            let consumers = done.map_err(|error| NodeError::Stopped {
                part: "a stage".to_owned(),
                reason: error.to_string(),
            })??;
            partitions.push(consumers);
        }
        Ok(())
    }
}

async fn drive_partition(mut consumers: Vec<Consumer>) -> Result<Vec<Consumer>, StageError> {
    let mut failures = 0;
    loop {
        let mut is_idle = true;
        for consumer in &mut consumers {
            match consumer.turn().await {
                Ok(Progress::Idle) => (),
                Ok(Progress::Began | Progress::Advanced(_)) => is_idle = false,
                Err(error) if error.is_retryable() && failures < DRIVE_FAILURES_MAX => {
                    failures += 1;
                    is_idle = false;
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
                Err(error) => return Err(error),
            }
        }
        if is_idle {
            return Ok(consumers);
        }
    }
}
