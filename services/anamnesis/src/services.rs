//! Which services run in this process, how they are started, driven to the tail, and stopped.

use std::sync::Arc;
use std::time::Duration;

use anamnesis_extractor::stage::Extractor;
use anamnesis_forgetter::service::{Forgetter, Settings as ForgetSettings};
use anamnesis_indexer::stage::Indexer;
use anamnesis_intake::service::{Intake, Settings as IntakeSettings};
use anamnesis_pipeline::consumer::{Consumer, Progress, Stage, StageError};
use anamnesis_pipeline::stands::Stands;
use anamnesis_pipeline::stores::Projection;
use anamnesis_recall::service::{Parts, Recall, RecallSettings};
use anamnesis_validity_manager::decide::Rules;
use anamnesis_validity_manager::stage::ValidityManager;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::config::{ConsentDefault, Episodes};
use crate::node::{Node, NodeError};
use crate::query_reader::{LexiconReader, RuleReader};

/// Tries of a stage that fails while it is driven to the tail, before the failure is told.
const DRIVE_FAILURES_MAX: u32 = 20;

impl Node {
    pub fn rules(&self) -> Rules {
        Rules {
            consent_required: self.config.consent.default == ConsentDefault::Required,
            ..Rules::default()
        }
    }

    /// The three stages that turn turns into memories, in the order of the flow.
    pub fn stages(&self) -> Vec<Arc<dyn Stage>> {
        let episodes = match self.config.extraction.episodes {
            Episodes::All => anamnesis_extractor::Episodes::All,
            Episodes::UserOnly => anamnesis_extractor::Episodes::UserOnly,
            Episodes::Off => anamnesis_extractor::Episodes::Off,
        };
        vec![
            Arc::new(Extractor {
                log: self.log.clone(),
                codec: self.codec.clone(),
                episodes,
                snapshots: self.snapshots.clone(),
            }),
            Arc::new(ValidityManager {
                log: self.log.clone(),
                codec: self.codec.clone(),
                rules: self.rules(),
                snapshots: self.snapshots.clone(),
            }),
            Arc::new(self.indexer(self.stores.projections())),
        ]
    }

    /// An indexer over these stores.
    pub fn indexer(&self, stores: Vec<Arc<dyn Projection>>) -> Indexer {
        Indexer {
            log: self.log.clone(),
            codec: self.codec.clone(),
            embed: self.embed.clone(),
            stores,
            snapshots: self.snapshots.clone(),
        }
    }

    /// Drives every stage until nothing is left to do, one task per partition.
    ///
    /// # Errors
    /// The first failure that beginning again did not help.
    pub async fn settle(&self) -> Result<(), NodeError> {
        self.flow().settle().await
    }

    /// The stages of every partition, to be driven by hand.
    pub fn flow(&self) -> Flow {
        self.flow_of(&self.stages())
    }

    /// As [`Node::flow`], for these stages only.
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
        Flow {
            partitions: (0..self.log.partitions()).map(consumers).collect(),
        }
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
                ..IntakeSettings::default()
            },
        })
    }

    /// The recall service, and the writer of its receipts to be run beside it.
    pub fn recall(&self) -> (Arc<Recall>, anamnesis_recall::receipts::ReceiptWriter) {
        let config = &self.config.recall;
        Recall::new(Parts {
            stores: self.stores.clone(),
            embed: self.embed.clone(),
            log: self.log.clone(),
            sealer: Arc::new(self.codec.clone()),
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
                ..RecallSettings::default()
            },
        })
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

    /// Starts every stage and the forgetter in the background; the stages tell `stands` how far they
    /// are.
    pub fn start(
        &self,
        shutdown: &CancellationToken,
        stands: &Stands,
    ) -> JoinSet<(String, Result<(), StageError>)> {
        let mut tasks = JoinSet::new();
        for stage in self.stages() {
            for partition in 0..self.log.partitions() {
                let consumer = Consumer::new(
                    self.log.clone(),
                    stage.clone(),
                    partition,
                    self.clock.clone(),
                )
                .with_stands(stands);
                let name = format!("{} of partition {partition}", stage.name());
                let shutdown = shutdown.clone();
                tasks.spawn(async move { (name, consumer.run(shutdown).await) });
            }
        }
        let forgetter = self.forgetter();
        let shutdown = shutdown.clone();
        tasks.spawn(async move { ("forgetter".to_owned(), forgetter.run(shutdown).await) });
        tasks
    }
}

/// Stages that have begun and stay begun between two drives, as they do in a server.
pub struct Flow {
    partitions: Vec<Vec<Consumer>>,
}

impl Flow {
    /// Drives every stage, in every partition at once, until all stand at the tail.
    ///
    /// # Errors
    /// The first failure that beginning again did not help; the flow is then empty.
    pub async fn settle(&mut self) -> Result<(), NodeError> {
        let mut tasks: JoinSet<Result<Vec<Consumer>, StageError>> = JoinSet::new();
        for consumers in self.partitions.drain(..) {
            tasks.spawn(drive_partition(consumers));
        }
        while let Some(done) = tasks.join_next().await {
            let consumers = done.map_err(|error| NodeError::Stopped {
                part: "a stage".to_owned(),
                reason: error.to_string(),
            })??;
            self.partitions.push(consumers);
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
