//! What does a look from outside say of this process: how far is each stage, is everything accounted
//! for, do the stores equal the log? Looked at in the background, so that a scrape asks no backend and
//! still answers when one is down.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anamnesis_audit::ledger::{Counts, Ledger, Reads};
use anamnesis_domain::memory::{Kind, Status};
use anamnesis_domain::time::Timestamp;
use anamnesis_indexer::stage::{SHARD as SHARD_INDEXER, STAGE as INDEXER};
use anamnesis_pipeline::clock::Clock;
use anamnesis_pipeline::codec::Codec;
use anamnesis_pipeline::consumer::StageError;
use anamnesis_pipeline::log::Log;
use anamnesis_pipeline::stands::Stands;
use anamnesis_pipeline::stores::{Records, Store};
use anamnesis_servers::generations::Generations as ServerGenerations;
use anamnesis_validity_manager::stage::STAGE as MANAGER;
use metrics_exporter_prometheus::PrometheusHandle;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::base::Base;
use crate::drift::Sampler;
use crate::exposition::Family;
use crate::metrics::{
    BALANCE_RECORDS, BROKEN_OWNERS, DRIFT_EVERY_SECONDS, DRIFTING_OWNERS, FAILING_SECONDS,
    GENERATION, IMBALANCE_RECORDS, LAG_SECONDS, MEMORIES, NEXT_OFFSET, OLDEST_ERASURE_SECONDS,
    OLDEST_PARKED_SECONDS, OLDEST_UNPROCESSED_SECONDS, OPEN_ERASURES, PARKED_OWNERS, PARTITIONS,
    READY, REBUILT_READERS_TOTAL, STORE_BEHIND_RECORDS, UNANSWERED_RECORDS, UPTIME_SECONDS,
    WATCH_AGE_SECONDS,
};
use crate::node::Node;
use crate::readiness::{Lag, Readiness};

/// Time between two looks. Prometheus scrapes no more often.
const LOOK_EVERY: Duration = Duration::from_secs(5);
/// Looks between two counts of all memories, which read a whole index.
const LOOKS_PER_COUNT: u32 = 6;
/// A look older than this says nothing about now.
const FRESH: Duration = Duration::from_secs(30);

/// What was seen, and the process that it was seen of.
#[derive(Clone)]
pub struct Watch {
    log: Log,
    clock: Arc<dyn Clock>,
    stands: Stands,
    generations: Vec<(Store, u64)>,
    /// Of stores on servers, the server says which one is live.
    on_servers: Vec<(Store, Arc<dyn ServerGenerations>)>,
    /// Zero for never.
    drift_every: Duration,
    started: Instant,
    metrics: PrometheusHandle,
    seen: Arc<Mutex<Seen>>,
}

#[derive(Default)]
struct Seen {
    stages: Option<SeenStages>,
    ledger: Option<SeenLedger>,
    memories: Vec<(Kind, Status, u64)>,
    /// Of stores on servers.
    generations: BTreeMap<Store, u64>,
}

struct SeenStages {
    at: Instant,
    is_ready: bool,
    behind: Vec<(Store, u64)>,
    lags: Vec<Lag>,
}

struct SeenLedger {
    at: Instant,
    /// `None` where another process answers inputs.
    counts: Option<Counts>,
    /// `None` where another process applies.
    drifting: Option<usize>,
}

impl Watch {
    /// Looks in the background until `shutdown`.
    pub fn start(
        base: &Base,
        node: Option<&Node>,
        readiness: &Readiness,
        stands: &Stands,
        metrics: PrometheusHandle,
        shutdown: &CancellationToken,
    ) -> Self {
        let drift_every = base.config.watch.drift_every.duration();
        let generations = node.map_or_else(Vec::new, |node| {
            let local = Store::ALL.into_iter();
            let local = local.filter(|store| !node.remote.contains_key(store));
            local
                .map(|store| (store, node.generations.number(store)))
                .collect()
        });
        let on_servers = node.map_or_else(Vec::new, |node| {
            let held = node.remote.iter();
            held.map(|(store, held)| (*store, held.generations.clone()))
                .collect()
        });
        let watch = Self {
            log: base.log.clone(),
            clock: base.clock.clone(),
            stands: stands.clone(),
            generations,
            on_servers,
            drift_every: drift_every.unwrap_or_default(),
            started: Instant::now(),
            metrics,
            seen: Arc::default(),
        };
        let sampler = node.map(|node| {
            Sampler::new(
                base.log.clone(),
                base.codec.clone(),
                node.stores.projections(),
                node.embed.identity().clone(),
                drift_every,
            )
        });
        let records = node.map(|node| node.stores.records.clone());
        let stages = watch.clone().look_at_stages(readiness.clone(), records);
        let ledgers = watch.clone().look_at_ledgers(base.codec.clone(), sampler);
        for look in [
            Box::pin(stages) as std::pin::Pin<Box<dyn Future<Output = ()> + Send>>,
            Box::pin(ledgers),
        ] {
            let shutdown = shutdown.clone();
            tokio::spawn(async move { shutdown.run_until_cancelled(look).await });
        }
        watch
    }

    async fn look_at_stages(self, readiness: Readiness, records: Option<Arc<dyn Records>>) {
        let mut looks = 0;
        let mut trouble = Trouble::new("how far the stages are is not known");
        loop {
            // Without it the samples of histograms pile up while nobody scrapes.
            self.metrics.run_upkeep();
            let looked = self
                .look(&readiness, records.as_deref(), looks % LOOKS_PER_COUNT == 0)
                .await;
            trouble.note(looked);
            self.look_at_generations().await;
            looks += 1;
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    async fn look(
        &self,
        readiness: &Readiness,
        records: Option<&dyn Records>,
        counts: bool,
    ) -> Result<(), StageError> {
        let at = Instant::now();
        let report = readiness.report().await?;
        self.seen().stages = Some(SeenStages {
            at,
            is_ready: report.fault.is_none(),
            behind: report.behind,
            lags: report.lags,
        });
        // Each memory is counted by who applies it, and not by everybody who can ask.
        let records = records.filter(|_| counts && !self.applied_partitions().is_empty());
        if let Some(records) = records {
            let memories = records.counts().await?;
            self.seen().memories = memories;
        }
        Ok(())
    }

    /// What cannot be asked keeps its last answer.
    async fn look_at_generations(&self) {
        for (store, generations) in &self.on_servers {
            if let Ok(Some(live)) = generations.live().await {
                // Named by the moment at which it was begun.
                let digits: String = live.chars().filter(char::is_ascii_digit).collect();
                let number = digits.parse().unwrap_or_default();
                self.seen().generations.insert(*store, number);
            }
        }
    }

    async fn look_at_ledgers(self, codec: Codec, mut sampler: Option<Sampler>) {
        let mut ledgers: BTreeMap<u32, Ledger> = BTreeMap::new();
        let mut trouble = Trouble::new("the balance is not known");
        loop {
            let at = Instant::now();
            let advanced = self.advance(&mut ledgers, &codec).await;
            if advanced.is_ok() {
                if let Some(sampler) = &mut sampler {
                    sampler.look(&mut ledgers).await;
                }
                let mut counts = Counts::default();
                for ledger in ledgers.values() {
                    counts.add(&ledger.counts());
                }
                let decides = !self.partitions_of(MANAGER).is_empty();
                let applies = sampler
                    .as_ref()
                    .filter(|_| !self.applied_partitions().is_empty());
                self.seen().ledger = Some(SeenLedger {
                    at,
                    counts: decides.then_some(counts),
                    drifting: applies.map(Sampler::drifting),
                });
            }
            trouble.note(advanced);
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    /// Reads on in every owned partition, and forgets the others.
    async fn advance(
        &self,
        ledgers: &mut BTreeMap<u32, Ledger>,
        codec: &Codec,
    ) -> Result<(), StageError> {
        let mut wanted: BTreeMap<u32, Reads> = BTreeMap::new();
        for partition in self.partitions_of(MANAGER) {
            wanted.entry(partition).or_default().inputs = true;
        }
        for partition in self.applied_partitions() {
            wanted.entry(partition).or_default().vectors = true;
        }
        ledgers.retain(|partition, ledger| wanted.get(partition) == Some(&ledger.reads()));
        for (partition, reads) in wanted {
            let ledger = ledgers
                .entry(partition)
                .or_insert_with(|| Ledger::new(partition, reads));
            ledger.advance(&*self.log, codec).await?;
        }
        Ok(())
    }

    /// Those whose authority this process keeps up to date.
    fn applied_partitions(&self) -> Vec<u32> {
        let mut all = self.partitions_of(INDEXER);
        all.extend(self.partitions_of(SHARD_INDEXER));
        all
    }

    fn partitions_of(&self, stage: &str) -> Vec<u32> {
        let stands = self.stands.all().into_iter();
        stands
            .filter(|(name, ..)| *name == stage)
            .map(|(_, partition, _)| partition)
            .collect()
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Everything that is published, in Prometheus' text format.
    pub fn scrape(&self) -> String {
        let mut out = self.metrics.render();
        for family in self.families() {
            family.write(&mut out);
        }
        out
    }

    fn families(&self) -> Vec<Family> {
        let seen = self.seen();
        let now = self.clock.now();
        let mut all = vec![
            Family::single(UPTIME_SECONDS, self.started.elapsed().as_secs_f64()),
            Family::single(PARTITIONS, f64::from(self.log.partitions())),
            Family::single(DRIFT_EVERY_SECONDS, self.drift_every.as_secs_f64()),
            Family::single(REBUILT_READERS_TOTAL, self.log.rebuilt_readers() as f64),
            self.ages(&seen),
            self.generations(&seen),
        ];
        all.extend(self.stages(seen.stages.as_ref()));
        if let Some(ledger) = &seen.ledger {
            if let Some(counts) = &ledger.counts {
                all.extend(balance(counts, now));
            }
            if let Some(drifting) = ledger.drifting {
                all.push(Family::single(DRIFTING_OWNERS, drifting as f64));
            }
        }
        if !seen.memories.is_empty() && !self.applied_partitions().is_empty() {
            let mut memories = Family::new(MEMORIES);
            for (kind, status, count) in &seen.memories {
                memories.push(&[kind.code(), status.code()], *count as f64);
            }
            all.push(memories);
        }
        all
    }

    /// Before the first look, since the start.
    fn ages(&self, seen: &Seen) -> Family {
        let mut ages = Family::new(WATCH_AGE_SECONDS);
        let looks = [
            ("stages", seen.stages.as_ref().map(|stages| stages.at)),
            ("ledger", seen.ledger.as_ref().map(|ledger| ledger.at)),
        ];
        for (watch, at) in looks {
            let age = at.unwrap_or(self.started).elapsed();
            ages.push(&[watch], age.as_secs_f64());
        }
        ages
    }

    fn generations(&self, seen: &Seen) -> Family {
        let mut generations = Family::new(GENERATION);
        let on_servers = seen.generations.iter();
        let on_servers = on_servers.map(|(store, number)| (*store, *number));
        for (store, number) in self.generations.iter().copied().chain(on_servers) {
            generations.push(&[store.as_str()], number as f64);
        }
        generations
    }

    /// What is told of a partition is told only while it is owned.
    fn stages(&self, seen: Option<&SeenStages>) -> Vec<Family> {
        let is_fresh = |seen: &&SeenStages| seen.at.elapsed() < FRESH;
        let is_ready = seen.filter(is_fresh).is_some_and(|seen| seen.is_ready);
        let mut all = vec![Family::single(READY, if is_ready { 1.0 } else { 0.0 })];
        let mut next = Family::new(NEXT_OFFSET);
        let mut lag_seconds = Family::new(LAG_SECONDS);
        let mut unanswered = Family::new(UNANSWERED_RECORDS);
        let mut failing = Family::new(FAILING_SECONDS);
        for (stage, partition, stand) in self.stands.all() {
            let number = partition.to_string();
            for (topic, offset) in &stand.positions {
                next.push(&[stage, &number, topic.as_str()], *offset as f64);
            }
            let since = |at: Timestamp| seconds_since(at, self.clock.now());
            failing.push(&[stage, &number], stand.failing_since.map_or(0.0, since));
            let Some(seen) = seen else { continue };
            let mut lags = seen.lags.iter();
            let lag = lags.find(|lag| lag.stage == stage && lag.partition == partition);
            let Some(lag) = lag else { continue };
            unanswered.push(&[stage, &number], lag.records as f64);
            // What was not answered when it was looked at has grown older since.
            let older = if lag.records > 0 {
                seen.at.elapsed().as_secs_f64()
            } else {
                0.0
            };
            lag_seconds.push(&[stage, &number], lag.oldest_ms as f64 / 1e3 + older);
        }
        all.extend([next, lag_seconds, unanswered, failing]);
        if let Some(seen) = seen {
            let mut behind = Family::new(STORE_BEHIND_RECORDS);
            for (store, records) in &seen.behind {
                behind.push(&[store.as_str()], *records as f64);
            }
            all.push(behind);
        }
        all
    }
}

fn balance(counts: &Counts, now: Timestamp) -> Vec<Family> {
    let age = |at: Option<Timestamp>| at.map_or(0.0, |at| seconds_since(at, now));
    let mut records = Family::new(BALANCE_RECORDS);
    for (state, count) in [
        ("accepted", counts.accepted),
        ("decided", counts.decided),
        ("quarantined", counts.quarantined),
        ("in_flight", counts.in_flight),
        ("parked", counts.parked),
    ] {
        records.push(&[state], count as f64);
    }
    let mut missing = Family::new(IMBALANCE_RECORDS);
    for (fault, count) in [
        ("lost", counts.lost),
        ("answered_twice", counts.answered_twice),
        ("foreign", counts.foreign),
    ] {
        missing.push(&[fault], count as f64);
    }
    let mut parked = Family::new(PARKED_OWNERS);
    let mut parked_for = Family::new(OLDEST_PARKED_SECONDS);
    for stage in [anamnesis_extractor::stage::STAGE, MANAGER] {
        let noted = counts.parked_owners.get(stage).copied();
        let (owners, since) = noted.map_or((0, None), |(owners, since)| (owners, Some(since)));
        parked.push(&[stage], owners as f64);
        parked_for.push(&[stage], age(since));
    }
    let mut open = Family::new(OPEN_ERASURES);
    let mut open_for = Family::new(OLDEST_ERASURE_SECONDS);
    for (step, (count, since)) in [
        ("effective", counts.not_effective),
        ("physical", counts.not_physical),
    ] {
        open.push(&[step], count as f64);
        open_for.push(&[step], age(since));
    }
    let oldest = age(counts.oldest_in_flight);
    vec![
        records,
        missing,
        Family::single(OLDEST_UNPROCESSED_SECONDS, oldest),
        parked,
        parked_for,
        Family::single(BROKEN_OWNERS, counts.broken_owners as f64),
        open,
        open_for,
    ]
}

fn seconds_since(at: Timestamp, now: Timestamp) -> f64 {
    (now.millis() - at.millis()).max(0) as f64 / 1e3
}

/// Tells a failure when it begins and when it is over, not at every look.
struct Trouble {
    what: &'static str,
    is_told: bool,
}

impl Trouble {
    fn new(what: &'static str) -> Self {
        Self {
            what,
            is_told: false,
        }
    }

    fn note(&mut self, looked: Result<(), StageError>) {
        match looked {
            Ok(()) if self.is_told => {
                self.is_told = false;
                tracing::info!("over: {}", self.what);
            }
            Err(error) if !self.is_told => {
                self.is_told = true;
                tracing::warn!(%error, "{}", self.what);
            }
            Ok(()) | Err(_) => (),
        }
    }
}
