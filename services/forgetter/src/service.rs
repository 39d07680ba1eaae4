//! The shell: looks at the authority and at the receipts of recalls, and proposes commands. It changes
//! nothing itself; `decide` rechecks what it saw.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anamnesis_domain::ids::{MemoryId, OwnerKey};
use anamnesis_domain::input::{Command, CommandRecord, Topic};
use anamnesis_domain::memory::Status;
use anamnesis_domain::owner::{Owner, OwnerScope};
use anamnesis_domain::time::{Known, Timestamp};
use anamnesis_pipeline::clock::Clock;
use anamnesis_pipeline::codec::{Codec, Opened};
use anamnesis_pipeline::consumer::StageError;
use anamnesis_pipeline::log::{Log, LogError, partition_of};
use anamnesis_pipeline::stores::{Filter, Order, Records, SubjectFilter};
use tokio_util::sync::CancellationToken;

use crate::metrics;
use crate::plan::{self, HOUR_MS, HourlyAccesses};

/// The source of the forgetter's commands.
pub const SOURCE: &str = "forgetter";
/// Page size when an owner's memories are read.
const PAGE: usize = 500;

/// More memories than a message usually leaves: below so many per decision nobody is counted.
const MEMORIES_PER_DECISION: u64 = 32;
/// Decisions of an owner between two counts of what it holds, for a large capacity: counting reads all
/// of it, and being a little over capacity for a while harms nobody.
const CAPACITY_SLACK: u64 = 500;

#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// Memories that an owner keeps in recall; the rest is archived, protected ones never.
    pub capacity_per_owner: usize,
    /// How long receipts of recalls are kept.
    pub accesses_kept: Duration,
    /// How long raw inbox records are kept.
    pub inbox_kept: Duration,
    /// How long a quarantined record may wait for consent.
    pub quarantine_kept: Duration,
    /// Time between two looks.
    pub every: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            capacity_per_owner: 50_000,
            accesses_kept: Duration::from_secs(90 * 24 * 3600),
            inbox_kept: Duration::from_secs(24 * 3600),
            quarantine_kept: Duration::from_secs(72 * 3600),
            every: Duration::from_secs(60),
        }
    }
}

/// What one look found and asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Look {
    pub keys_expired: u64,
    pub summaries: usize,
    pub archived: usize,
    pub records_dropped: u64,
}

pub struct Forgetter {
    log: Log,
    codec: Codec,
    records: Arc<dyn Records>,
    clock: Arc<dyn Clock>,
    settings: Settings,
    /// What was looked at before, so that an unchanged owner costs nothing.
    seen: Mutex<Seen>,
}

#[derive(Default)]
struct Seen {
    /// The owner's decision at which its capacity was checked.
    capacity: BTreeMap<OwnerKey, u64>,
    /// The hour up to which accesses were summed.
    accesses_hour: Option<i64>,
}

impl Forgetter {
    pub fn new(
        log: Log,
        codec: Codec,
        records: Arc<dyn Records>,
        clock: Arc<dyn Clock>,
        settings: Settings,
    ) -> Self {
        Self {
            log,
            codec,
            records,
            clock,
            settings,
            seen: Mutex::default(),
        }
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Looks until `shutdown`.
    ///
    /// # Errors
    /// The first error that another look cannot help.
    pub async fn run(&self, shutdown: CancellationToken) -> Result<(), StageError> {
        loop {
            match self.look().await {
                Ok(_) => (),
                Err(error) if error.is_retryable() => {
                    metrics::failed();
                    tracing::warn!(%error, "the forgetter looks again later");
                }
                Err(error) => return Err(error),
            }
            tokio::select! {
                biased;
                () = shutdown.cancelled() => return Ok(()),
                () = tokio::time::sleep(self.settings.every) => (),
            }
        }
    }

    /// One look at everything that fades.
    ///
    /// # Errors
    /// When the log, the keyring or the authority cannot be reached.
    pub async fn look(&self) -> Result<Look, StageError> {
        let now = self.clock.now();
        let keys_expired = self.codec.keys().destroy_expired(now).await?;
        let records_dropped = self.drop_old(now).await?;
        let summaries = self.summarise_accesses(now).await?;
        let archived = self.keep_capacity(now).await?;
        metrics::looked(archived, keys_expired);
        Ok(Look {
            keys_expired,
            summaries,
            archived,
            records_dropped,
        })
    }

    async fn drop_old(&self, now: Timestamp) -> Result<u64, StageError> {
        let kept = [
            (Topic::Inbox, self.settings.inbox_kept),
            (Topic::Quarantine, self.settings.quarantine_kept),
            (Topic::Accesses, self.settings.accesses_kept),
        ];
        let mut dropped = 0;
        for (topic, kept) in kept {
            let kept_ms = i64::try_from(kept.as_millis()).unwrap_or(i64::MAX);
            let before = Timestamp::from_millis(now.millis().saturating_sub(kept_ms));
            // Platforms may have made `inbox` with another number of partitions.
            for partition in 0.. {
                match self.log.retain(topic, partition, before).await {
                    Ok(records) => dropped += records,
                    Err(LogError::NoPartition { .. }) => break,
                    Err(error) => return Err(error.into()),
                }
            }
        }
        Ok(dropped)
    }

    /// Commands of the last day's finished hours that are not there yet. The event id names the hour,
    /// so a repeat after a crash changes nothing.
    async fn summarise_accesses(&self, now: Timestamp) -> Result<usize, StageError> {
        let hour = now.millis().div_euclid(HOUR_MS);
        if self.seen().accesses_hour == Some(hour) {
            return Ok(0);
        }
        let mut written = 0;
        for partition in 0..self.log.partitions() {
            let recalls = self.recent_recalls(partition, now).await?;
            let owners: BTreeMap<OwnerKey, Owner> = recalls
                .iter()
                .map(|(key, owner, ..)| (*key, owner.clone()))
                .collect();
            let sums =
                plan::summarise(recalls.into_iter().map(|(k, _, at, ids)| (k, at, ids)), now);
            let mut commands = Vec::new();
            for summary in sums {
                let Some(owner) = owners.get(&summary.owner) else {
                    continue;
                };
                if let Some(command) = self.summary_command(owner, summary).await? {
                    commands.push(command);
                }
            }
            written += commands.len();
            self.append(partition, &commands).await?;
        }
        self.seen().accesses_hour = Some(hour);
        Ok(written)
    }

    async fn recent_recalls(
        &self,
        partition: u32,
        now: Timestamp,
    ) -> Result<Vec<(OwnerKey, Owner, Timestamp, Vec<MemoryId>)>, StageError> {
        let since = now.plus_millis(-25 * HOUR_MS);
        let start = self.log.start(Topic::Accesses, partition).await?;
        let mut to = self.log.end(Topic::Accesses, partition).await?;
        let mut recalls = Vec::new();
        // Backwards from the tail, so that a long history costs nothing.
        while to > start {
            let from = start.max(to.saturating_sub(500));
            let offsets: Vec<u64> = (from..to).collect();
            let records = self
                .log
                .read_at(Topic::Accesses, partition, &offsets)
                .await?;
            let is_past = records
                .first()
                .is_some_and(|record| record.appended_at < since);
            for opened in self.codec.open(&records).await? {
                if let Ok(Opened::Access {
                    owner,
                    receipt: Some(receipt),
                    ..
                }) = opened
                {
                    recalls.push((owner, receipt.owner, receipt.at, receipt.returned));
                }
            }
            if is_past {
                break;
            }
            to = from;
        }
        Ok(recalls)
    }

    async fn summary_command(
        &self,
        owner: &Owner,
        summary: HourlyAccesses,
    ) -> Result<Option<CommandRecord>, StageError> {
        let event_id = format!("accesses-{}", summary.hour);
        let command = self.command(
            owner,
            &event_id,
            Timestamp::from_millis((summary.hour + 1) * HOUR_MS),
            Command::Summarise {
                accesses: summary.accesses,
            },
        );
        let scope = OwnerScope::of_log_record(summary.owner);
        let known = self.records.decision(scope, command.event).await?;
        Ok(known.is_none().then_some(command))
    }

    /// Archives what exceeds an owner's capacity.
    async fn keep_capacity(&self, now: Timestamp) -> Result<usize, StageError> {
        let mut archived = 0;
        for key in self.records.owners().await? {
            let scope = OwnerScope::of_log_record(key);
            let Some(view) = self.records.owner(scope).await? else {
                continue;
            };
            let Some(owner) = view.owner else { continue };
            let most = view.owner_seq.saturating_mul(MEMORIES_PER_DECISION);
            if most <= self.settings.capacity_per_owner as u64 {
                continue;
            }
            let seen = self.seen().capacity.get(&key).copied();
            let slack = CAPACITY_SLACK.min(self.settings.capacity_per_owner as u64 / 8);
            if seen.is_some_and(|seen| view.owner_seq <= seen + slack) {
                continue;
            }
            self.seen().capacity.insert(key, view.owner_seq);
            let memories = self.memories_of(scope).await?;
            let evict = plan::over_capacity(&memories, self.settings.capacity_per_owner, now);
            if evict.is_empty() {
                continue;
            }
            archived += evict.len();
            // The id names the state that was seen: the same proposal is made once.
            let event_id = format!("capacity-{}", view.owner_seq);
            let command = self.command(
                &owner,
                &event_id,
                now,
                Command::Archive {
                    memories: evict,
                    reason: "capacity".to_owned(),
                },
            );
            let is_known = self.records.decision(scope, command.event).await?.is_some();
            if !is_known {
                self.append(partition_of(key, self.log.partitions()), &[command])
                    .await?;
            }
        }
        Ok(archived)
    }

    async fn memories_of(
        &self,
        scope: OwnerScope,
    ) -> Result<Vec<anamnesis_domain::memory::Memory>, StageError> {
        let filter = Filter {
            scope,
            cut: self.records.cut(scope, Known::Latest).await?,
            valid_at: None,
            time_range: None,
            kinds: None,
            statuses: vec![Status::Active, Status::Superseded],
            subject: SubjectFilter::Any,
            context_tags: None,
        };
        let mut memories = Vec::new();
        let mut cursor: Option<String> = None;
        loop {
            let page = self
                .records
                .list(&filter, Order::Recorded, PAGE, cursor.as_deref())
                .await?;
            memories.extend(page.versions.into_iter().map(|version| version.memory));
            cursor = page.cursor;
            if cursor.is_none() {
                return Ok(memories);
            }
        }
    }

    fn command(
        &self,
        owner: &Owner,
        event_id: &str,
        at: Timestamp,
        command: Command,
    ) -> CommandRecord {
        let ids = self.codec.keys().id_key();
        let key = ids.owner(owner);
        CommandRecord {
            owner: owner.clone(),
            event: ids.event(key, SOURCE, event_id, ""),
            source_tag: ids.source(key, SOURCE),
            source: SOURCE.to_owned(),
            event_id: event_id.to_owned(),
            actor: SOURCE.to_owned(),
            at,
            zone_minutes: 0,
            command,
        }
    }

    async fn append(&self, partition: u32, commands: &[CommandRecord]) -> Result<(), StageError> {
        if commands.is_empty() {
            return Ok(());
        }
        let records = self.codec.seal_commands(commands).await?;
        self.log.append(Topic::Commands, partition, records).await?;
        Ok(())
    }
}
