//! What does a recall leave behind, and how does it reach the log without making the caller wait?

use std::sync::Arc;
use std::time::Duration;

use anamnesis_domain::ids::{MemoryId, OwnerKey, RecallId};
use anamnesis_domain::input::{Position, Topic};
use anamnesis_domain::memory::Kind;
use anamnesis_domain::owner::{Owner, Subject};
use anamnesis_domain::receipt::RecallReceipt;
use anamnesis_domain::text::Text;
use anamnesis_domain::time::{Interval, Timestamp};
use anamnesis_pipeline::codec::Codec;
use anamnesis_pipeline::log::{Log, LogError, NewRecord, partition_of};
use anamnesis_pipeline::stores::{Cut, SubjectFilter};
use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tracing::warn;

use crate::admission::Depth;
use crate::answer::{RangeView, subject_view};
use crate::kept::KeptAnswer;
use crate::metrics::RECEIPTS_TOTAL;
use crate::request::Ask;

/// Receipts that may wait to be written; more are lost, and counted. One is a few kilobytes.
const WAITING_MAX: usize = 4096;
/// Receipts of one group commit.
const GROUP_MAX: usize = 256;
/// How long a receipt waits for others: a kill of the process loses those of the last moment either way, and
/// so they are some more.
const GATHERED_FOR: Duration = Duration::from_millis(25);
/// How often a group is tried again before it is given up.
const ATTEMPTS_MAX: u32 = 5;

/// Why a receipt could not be sealed.
#[derive(Debug, thiserror::Error, Clone, PartialEq, Eq)]
#[error("a receipt cannot be sealed: {reason}")]
pub struct SealError {
    pub reason: String,
    pub is_retryable: bool,
}

/// Seals receipts under their owners' keys.
///
/// Contract: one record per receipt, in order, or an error and none.
#[async_trait]
pub trait ReceiptSealer: Send + Sync {
    async fn seal(
        &self,
        receipts: &[(OwnerKey, RecallReceipt)],
    ) -> Result<Vec<NewRecord>, SealError>;
}

#[async_trait]
impl ReceiptSealer for Codec {
    async fn seal(
        &self,
        receipts: &[(OwnerKey, RecallReceipt)],
    ) -> Result<Vec<NewRecord>, SealError> {
        self.seal_receipts(receipts)
            .await
            .map_err(|error| SealError {
                reason: error.to_string(),
                is_retryable: error.is_retryable(),
            })
    }
}

#[derive(Debug, thiserror::Error, Clone)]
pub enum ReceiptError {
    #[error(transparent)]
    Seal(#[from] SealError),
    #[error(transparent)]
    Log(#[from] LogError),
}

impl ReceiptError {
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Seal(error) => error.is_retryable,
            Self::Log(error) => error.is_retryable(),
        }
    }
}

/// The question of a receipt, with every moment resolved: enough to ask it again.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct ReceiptRequest {
    pub query: Text,
    pub top_k: usize,
    pub kinds: Option<Vec<Kind>>,
    pub subject: Option<String>,
    pub as_of: Option<Timestamp>,
    pub known_at: Option<Timestamp>,
    pub time_range: Option<RangeView>,
    pub context_tags: Option<Vec<String>>,
    pub purpose: Option<String>,
    pub task_id: Option<String>,
    pub include_history: bool,
    pub min_score: Option<f64>,
    pub explain: bool,
    /// Whom the words before the question speak of, where the question leaves it to them. The words
    /// themselves are not kept: they may be turns that are erased one day.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spoken_of: Option<Subject>,
    pub now: Timestamp,
    /// The offset that the recorded time asked about meant.
    pub cut: Cut,
    /// Whether only what protects was looked at, because too many asked at once.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_in_part: bool,
    /// Which of the returned memories a context was given; absent for a plain recall.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub injected: Option<Vec<MemoryId>>,
}

impl ReceiptRequest {
    pub(crate) fn of(
        ask: &Ask,
        spoken_of: Option<Subject>,
        now: Timestamp,
        cut: Cut,
        depth: Depth,
    ) -> Self {
        Self {
            query: ask.query.clone(),
            top_k: ask.top_k,
            kinds: ask.kinds.clone(),
            subject: ask.subject.as_ref().map(subject_view),
            as_of: ask.as_of,
            known_at: ask.known_at,
            time_range: ask.time_range.map(|range| RangeView {
                from: range.from(),
                to: range.to(),
            }),
            context_tags: ask.context_tags.clone(),
            purpose: ask.purpose.clone(),
            task_id: ask.task_id.clone(),
            include_history: ask.include_history,
            min_score: ask.min_score,
            explain: ask.explain,
            spoken_of,
            now,
            cut,
            is_in_part: depth == Depth::Protected,
            injected: None,
        }
    }

    /// How much of the answer was worked out.
    pub fn depth(&self) -> Depth {
        if self.is_in_part {
            Depth::Protected
        } else {
            Depth::Whole
        }
    }

    /// The question again.
    pub fn ask(&self) -> Ask {
        Ask {
            query: self.query.clone(),
            top_k: self.top_k,
            kinds: self.kinds.clone(),
            subject: self.subject.as_deref().map(|subject| match subject {
                "any" => SubjectFilter::Any,
                one => SubjectFilter::Only(Subject::parse(one)),
            }),
            as_of: self.as_of,
            known_at: self.known_at,
            time_range: self
                .time_range
                .and_then(|range| Interval::new(range.from, range.to).ok()),
            context_tags: self.context_tags.clone(),
            purpose: self.purpose.clone(),
            task_id: self.task_id.clone(),
            include_history: self.include_history,
            min_score: self.min_score,
            wait_for: None,
            explain: self.explain,
            said_before: Vec::new(),
            spoken_of: self.spoken_of.clone(),
        }
    }
}

/// What a caller reported about a recall; kept beside the receipts, as a receipt that returned nothing.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct OutcomeReport {
    pub outcome: Outcome,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_id: Option<MemoryId>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    Used,
    Unused,
    OffTopic,
    Wrong,
    Missed,
}

impl Outcome {
    pub const ALL: [Self; 5] = [
        Self::Used,
        Self::Unused,
        Self::OffTopic,
        Self::Wrong,
        Self::Missed,
    ];

    pub const fn code(self) -> &'static str {
        match self {
            Self::Used => "used",
            Self::Unused => "unused",
            Self::OffTopic => "off_topic",
            Self::Wrong => "wrong",
            Self::Missed => "missed",
        }
    }
}

/// `purpose` of a receipt that reports an outcome.
pub const OUTCOME_PURPOSE: &str = "outcome";

/// What a receipt is made of.
pub(crate) struct Told {
    pub recall_id: RecallId,
    pub request: ReceiptRequest,
    pub kept: KeptAnswer,
}

pub(crate) fn receipt(
    owner: &Owner,
    caller: &str,
    recall_id: RecallId,
    request: &ReceiptRequest,
    kept: &KeptAnswer,
) -> RecallReceipt {
    RecallReceipt {
        recall_id,
        owner: owner.clone(),
        at: request.now,
        caller: caller.to_owned(),
        purpose: request.purpose.clone(),
        request: Text::new(serde_json::to_string(request).expect("a request is plain data")),
        answer: Text::new(serde_json::to_string(kept).expect("what is kept is plain data")),
        returned: kept.memories.iter().map(|memory| memory.id).collect(),
    }
}

pub(crate) fn outcome_receipt(
    recall_id: RecallId,
    owner: &Owner,
    caller: &str,
    report: &OutcomeReport,
    at: Timestamp,
) -> RecallReceipt {
    RecallReceipt {
        recall_id,
        owner: owner.clone(),
        at,
        caller: caller.to_owned(),
        purpose: Some(OUTCOME_PURPOSE.to_owned()),
        request: Text::new(serde_json::to_string(report).expect("an outcome is plain data")),
        answer: Text::default(),
        returned: Vec::new(),
    }
}

/// The end that recalls push to. Never waits: a full queue loses the receipt and counts it.
#[derive(Clone, Debug)]
pub(crate) struct ReceiptQueue(mpsc::Sender<(OwnerKey, RecallReceipt)>);

impl ReceiptQueue {
    pub(crate) fn push(&self, owner: OwnerKey, receipt: RecallReceipt) {
        if self.0.try_send((owner, receipt)).is_err() {
            lost(1);
        }
    }
}

fn lost(count: u64) {
    metrics::counter!(RECEIPTS_TOTAL, "outcome" => "lost").increment(count);
    warn!(count, "recall receipts were lost");
}

/// Writes receipts in groups. Run it beside the service; it ends when told to, after what is waiting.
pub struct ReceiptWriter {
    waiting: mpsc::Receiver<(OwnerKey, RecallReceipt)>,
    sealer: Arc<dyn ReceiptSealer>,
    log: Log,
}

pub(crate) fn queue(sealer: Arc<dyn ReceiptSealer>, log: Log) -> (ReceiptQueue, ReceiptWriter) {
    let (sender, waiting) = mpsc::channel(WAITING_MAX);
    (
        ReceiptQueue(sender),
        ReceiptWriter {
            waiting,
            sealer,
            log,
        },
    )
}

impl ReceiptWriter {
    pub async fn run(mut self, shutdown: CancellationToken) {
        let mut group = Vec::new();
        loop {
            let received = tokio::select! {
                received = self.waiting.recv_many(&mut group, GROUP_MAX) => received,
                () = shutdown.cancelled() => {
                    self.waiting.close();
                    // A closed queue still gives what it holds.
                    self.waiting.recv_many(&mut group, GROUP_MAX).await
                }
            };
            if received == 0 {
                return;
            }
            self.gather(&mut group, &shutdown).await;
            self.write_group(std::mem::take(&mut group)).await;
        }
    }

    /// Lets others come that are written with these: keys and records are made durable once for all of them.
    async fn gather(
        &mut self,
        group: &mut Vec<(OwnerKey, RecallReceipt)>,
        shutdown: &CancellationToken,
    ) {
        if self.waiting.is_closed() {
            return;
        }
        tokio::select! {
            () = tokio::time::sleep(GATHERED_FOR) => (),
            () = shutdown.cancelled() => (),
        }
        while group.len() < GROUP_MAX
            && let Ok(one) = self.waiting.try_recv()
        {
            group.push(one);
        }
    }

    async fn write_group(&self, group: Vec<(OwnerKey, RecallReceipt)>) {
        if self.write_patiently(&group).await {
            return;
        }
        // One owner whose keys are destroyed must not cost the others theirs.
        for one in group {
            if !self.write_patiently(std::slice::from_ref(&one)).await {
                lost(1);
            }
        }
    }

    /// True when written. A repeat after an unknown outcome may write a receipt twice: its recall id
    /// tells.
    async fn write_patiently(&self, group: &[(OwnerKey, RecallReceipt)]) -> bool {
        let mut pause = Duration::from_millis(20);
        for attempt in 1..=ATTEMPTS_MAX {
            match write(self.sealer.as_ref(), &self.log, group).await {
                Ok(_) => return true,
                Err(error) if error.is_retryable() && attempt < ATTEMPTS_MAX => {
                    tokio::time::sleep(pause).await;
                    pause *= 2;
                }
                Err(error) => {
                    warn!(%error, count = group.len(), "recall receipts could not be written");
                    return false;
                }
            }
        }
        false
    }
}

/// Seals and appends, one append per partition.
pub(crate) async fn write(
    sealer: &dyn ReceiptSealer,
    log: &Log,
    group: &[(OwnerKey, RecallReceipt)],
) -> Result<Vec<Position>, ReceiptError> {
    let records = sealer.seal(group).await?;
    let mut by_partition: std::collections::BTreeMap<u32, Vec<NewRecord>> =
        std::collections::BTreeMap::new();
    for record in records {
        by_partition
            .entry(partition_of(record.key, log.partitions()))
            .or_default()
            .push(record);
    }
    let mut positions = Vec::new();
    for (partition, records) in by_partition {
        let appended = log.append(Topic::Accesses, partition, records).await?;
        positions.extend(appended.iter().map(|appended| appended.position));
    }
    metrics::counter!(RECEIPTS_TOTAL, "outcome" => "written").increment(group.len() as u64);
    Ok(positions)
}
