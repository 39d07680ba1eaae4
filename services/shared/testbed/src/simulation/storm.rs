//! The machinery of one run: consumers in seats, and what befalls them.

use std::fmt::Write as _;
use std::sync::Arc;

use anamnesis_domain::time::DAY_MS;
use anamnesis_extractor::Episodes;
use anamnesis_extractor::stage::Extractor;
use anamnesis_indexer::stage::Indexer;
use anamnesis_pipeline::codec::Codec;
use anamnesis_pipeline::consumer::{Consumer, Stage, StageError};
use anamnesis_pipeline::doubles::graph::MemoryGraph;
use anamnesis_pipeline::doubles::log::{Dice, Weather};
use anamnesis_pipeline::doubles::records::MemoryRecords;
use anamnesis_pipeline::doubles::text::MemoryText;
use anamnesis_pipeline::doubles::vectors::MemoryVectors;
use anamnesis_pipeline::log::{EventLog as _, Log};
use anamnesis_pipeline::stores::Projection;
use anamnesis_validity_manager::stage::ValidityManager;

use super::{Faults, Ran};
use crate::faults::{
    FaultyEmbedder, FaultyKeyring, LostSnapshots, Luck, MisreadLog, TornLog, UnsyncedStore,
};
use crate::play::{Extraction, play};
use crate::workload::Workload;
use crate::world::{World, drain};

/// A consumer and what it was made to be.
pub(super) struct Seat {
    consumer: Consumer,
    partition: u32,
    /// Replaced by another one, and not aware of it.
    is_zombie: bool,
    part: Part,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    Extractor,
    Manager,
    Indexer,
}

/// Everything of one run.
pub(super) struct Sim {
    pub(super) world: World,
    /// As the stages see it: torn, and behind that in bad weather.
    log: Log,
    misread: Arc<MisreadLog>,
    dice: Dice,
    luck: Arc<Luck>,
    extraction: Extraction,
    extractor: Arc<dyn Stage>,
    manager: Arc<dyn Stage>,
    indexers: Vec<Arc<dyn Stage>>,
    pub(super) stores: Vec<Arc<UnsyncedStore>>,
    snapshots: Arc<LostSnapshots>,
    seats: Vec<Seat>,
    is_storm: bool,
    pub(super) faults: Faults,
}

/// Turns of the storm for each round; then it must come to rest.
const STORM_TURNS: u64 = 30;
/// Records that the running version cannot read, where nobody minds the order.
const MISREAD_PER_MILLE: u32 = 40;
/// Zombies at once.
const ZOMBIES_MAX: usize = 3;

impl Sim {
    pub(super) fn new(seed: u64, is_storm: bool, extraction: Extraction) -> Self {
        let mut dice = Dice::new(seed);
        // The keyring's seed is the run's, so that ids are the same in calm and in storm.
        let world = World::new(seed, 1 + (seed % 3) as u32);
        let luck = Luck::new(dice.roll());
        let partitions = world.calm.partitions();
        let log_id = anamnesis_domain::ids::LogId::from_bytes([7; 16]);
        let model = world.embed.identity().clone();
        let stores = vec![
            UnsyncedStore::new(luck.clone(), move || {
                Arc::new(MemoryRecords::new(log_id, partitions))
            }),
            UnsyncedStore::new(luck.clone(), move || {
                Arc::new(MemoryText::new(log_id, partitions))
            }),
            UnsyncedStore::new(luck.clone(), move || {
                Arc::new(MemoryVectors::new(log_id, partitions, model.clone()))
            }),
            UnsyncedStore::new(luck.clone(), move || {
                Arc::new(MemoryGraph::new(log_id, partitions))
            }),
        ];
        let snapshots = Arc::new(LostSnapshots::default());
        let keys = FaultyKeyring {
            inner: world.keyring.clone(),
            luck: luck.clone(),
        };
        let codec = Codec::new(Arc::new(keys));
        let misread = MisreadLog::new(world.log());
        let log: Log = Arc::new(TornLog {
            inner: misread.clone(),
            luck: luck.clone(),
        });
        let extractor = Arc::new(Extractor {
            log: log.clone(),
            codec: codec.clone(),
            episodes: Episodes::All,
            snapshots: snapshots.clone(),
            asker: None,
        });
        let manager = Arc::new(ValidityManager {
            log: log.clone(),
            codec: codec.clone(),
            rules: world.rules.clone(),
            snapshots: snapshots.clone(),
        });
        let indexer = |stores: &[Arc<UnsyncedStore>]| -> Arc<dyn Stage> {
            Arc::new(Indexer {
                log: log.clone(),
                codec: codec.clone(),
                embed: Arc::new(FaultyEmbedder {
                    inner: world.embed.clone(),
                    luck: luck.clone(),
                }),
                stores: stores
                    .iter()
                    .map(|store| store.clone() as Arc<dyn Projection>)
                    .collect(),
                snapshots: snapshots.clone(),
                copy: None,
                is_on_server: false,
            })
        };
        // All stores in one stage, or two stages that lag on their own.
        let indexers = if dice.strikes(500) {
            vec![indexer(&stores)]
        } else {
            vec![indexer(&stores[..2]), indexer(&stores[2..])]
        };
        let mut sim = Self {
            world,
            log,
            misread,
            dice,
            luck,
            extraction,
            extractor,
            manager,
            indexers,
            stores,
            snapshots,
            seats: Vec::new(),
            is_storm,
            faults: Faults::default(),
        };
        for partition in 0..partitions {
            for part in sim.parts() {
                sim.seat(part, partition);
            }
        }
        sim
    }

    /// In the order of the flow.
    fn parts(&self) -> Vec<Part> {
        match self.extraction {
            Extraction::Given => vec![Part::Manager, Part::Indexer],
            Extraction::Real => vec![Part::Extractor, Part::Manager, Part::Indexer],
        }
    }

    fn consumer(&mut self, stage: Arc<dyn Stage>, partition: u32) -> Consumer {
        let batch = if self.is_storm {
            1 + self.dice.below(6) as usize
        } else {
            500
        };
        Consumer::new(self.log.clone(), stage, partition, self.world.clock.clone())
            .with_batch(batch)
    }

    fn seat(&mut self, part: Part, partition: u32) {
        let stages = match part {
            Part::Extractor => vec![self.extractor.clone()],
            Part::Manager => vec![self.manager.clone()],
            Part::Indexer => self.indexers.clone(),
        };
        for stage in stages {
            let consumer = self.consumer(stage, partition);
            self.seats.push(Seat {
                consumer,
                partition,
                is_zombie: false,
                part,
            });
        }
    }

    pub(super) async fn play(
        mut self,
        workload: &Workload,
        in_order: bool,
    ) -> Result<(Ran, Self), String> {
        for round in &workload.rounds {
            for (owner, act) in round {
                self.world.clock.advance_millis(1_000);
                let written = play(&self.world, owner, act, self.extraction).await;
                if let Some(position) = written
                    && !in_order
                    && self.dice.strikes(MISREAD_PER_MILLE)
                {
                    self.misread.misread(position);
                }
                if !in_order && self.is_storm {
                    self.storm(4).await?;
                }
            }
            if self.is_storm {
                self.storm(STORM_TURNS).await?;
            }
            if in_order {
                self.rest().await?;
            }
        }
        self.rest().await?;
        // A version that can read everything is started.
        self.misread.mend();
        for seat in &mut self.seats {
            seat.consumer.drop_state();
        }
        self.rest().await?;
        let exact = self.check().await?;
        self.wake_zombies().await?;
        self.rest().await?;
        let ran = self.report(&exact).await?;
        Ok((ran, self))
    }

    async fn storm(&mut self, turns: u64) -> Result<(), String> {
        self.world.faulty.set_weather(Weather::STORM);
        self.luck.set_per_mille(30);
        for _ in 0..turns {
            let at = self.dice.below(self.seats.len() as u64) as usize;
            match self.dice.below(100) {
                0..=79 => self.turn(at).await?,
                80..=87 => {
                    self.faults.crashes += 1;
                    self.seats[at].consumer.drop_state();
                }
                88..=90 => self.stop_machine().await?,
                91..=94 => self.replace(at),
                95..=96 => {
                    let days = self.dice.below(5) as i64 - 2;
                    self.world.clock.advance_millis(days * DAY_MS);
                }
                97 => self.snapshots.lose(),
                _ => self.set_back(at).await?,
            }
        }
        Ok(())
    }

    async fn turn(&mut self, at: usize) -> Result<(), String> {
        self.faults.turns += 1;
        match self.seats[at].consumer.turn().await {
            Ok(_) => Ok(()),
            Err(error) if error.is_retryable() => {
                self.faults.failed_turns += 1;
                Ok(())
            }
            Err(error) => Err(format!("a stage stopped: {}", chain(&error))),
        }
    }

    /// Everything stops at once: what was appended and never seen may be gone, and so may be the last
    /// steps of the stores.
    async fn stop_machine(&mut self) -> Result<(), String> {
        self.faults.stops += 1;
        self.seats.retain(|seat| !seat.is_zombie);
        for seat in &mut self.seats {
            seat.consumer.drop_state();
        }
        self.world.faulty.crash();
        for store in self.stores.clone() {
            self.lose_steps(&store).await?;
        }
        Ok(())
    }

    async fn lose_steps(&mut self, store: &UnsyncedStore) -> Result<(), String> {
        let steps = self.dice.below(4) as usize;
        self.faults.losses += steps as u64;
        store
            .lose(steps)
            .await
            .map_err(|error| format!("a store cannot be set back: {error}"))
    }

    /// One store loses its last steps; whoever feeds it begins again.
    async fn set_back(&mut self, at: usize) -> Result<(), String> {
        let which = at % self.stores.len();
        let store = self.stores[which].clone();
        for seat in self
            .seats
            .iter_mut()
            .filter(|seat| seat.part == Part::Indexer)
        {
            seat.consumer.drop_state();
        }
        self.lose_steps(&store).await
    }

    /// A second one of the same kind begins in the same partition. The first lives on.
    fn replace(&mut self, at: usize) {
        self.faults.takeovers += 1;
        let partition = self.seats[at].partition;
        let part = self.seats[at].part;
        for seat in &mut self.seats {
            if seat.partition == partition && seat.part == part {
                seat.is_zombie = true;
            }
        }
        self.seat(part, partition);
        let mut excess = self.seats.iter().filter(|seat| seat.is_zombie).count();
        self.seats.retain(|seat| {
            let is_kept = !seat.is_zombie || excess <= ZOMBIES_MAX;
            if !is_kept {
                excess -= 1;
            }
            is_kept
        });
    }

    /// The weather clears, and everything that is not a zombie comes to rest.
    async fn rest(&mut self) -> Result<(), String> {
        self.world.faulty.set_weather(Weather::CALM);
        self.luck.set_per_mille(0);
        for part in self.parts() {
            for seat in &mut self.seats {
                if seat.is_zombie || seat.part != part {
                    continue;
                }
                drain(&mut seat.consumer)
                    .await
                    .map_err(|error| format!("does not come to rest: {}", chain(&error)))?;
            }
        }
        Ok(())
    }

    async fn wake_zombies(&mut self) -> Result<(), String> {
        for at in 0..self.seats.len() {
            if self.seats[at].is_zombie {
                self.turn(at).await?;
                self.turn(at).await?;
            }
        }
        // Awake and up to date, they are ordinary members; two of them must not both lead.
        self.seats.retain(|seat| !seat.is_zombie);
        Ok(())
    }
}

/// An error with its causes.
fn chain(error: &StageError) -> String {
    let mut told = error.to_string();
    let mut source = std::error::Error::source(error);
    while let Some(cause) = source {
        let _ = write!(told, ": {cause}");
        source = cause.source();
    }
    told
}
