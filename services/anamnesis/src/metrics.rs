//! Which numbers are published, what does each mean, and which values may its labels have? The one list:
//! what is not here is not published, and a test holds a scrape against it.
//!
//! Names of what a service counts stand in the service's own `metrics.rs`; names of what is watched from
//! outside stand here. No label ever carries an owner, a memory or a text.

use anamnesis_domain::input::{Command, RejectCode, Topic};
use anamnesis_domain::memory::{Kind, Status};
use anamnesis_domain::transition::{Outcome, Transition};
use anamnesis_extractor::Repair;
use anamnesis_extractor::ask::{ANSWERED, fallback_codes};
use anamnesis_extractor::metrics::{
    ANSWER_REPAIRS_TOTAL, CANDIDATES_TOTAL, ENDED_BY, EXTRACT_SECONDS, FALLBACKS_TOTAL,
    MODEL_CALLS_TOTAL, MODEL_SECONDS, MODEL_TOKENS_TOTAL, REJECTS_TOTAL, REQUESTS_UNMET_TOTAL,
    TOKENS,
};
use anamnesis_extractor::stage::STAGE as EXTRACTOR;
use anamnesis_forgetter::metrics::{
    ARCHIVE_PROPOSED_TOTAL, KEYS_EXPIRED_TOTAL, LOOKS_TOTAL, OUTCOMES as LOOKS,
};
use anamnesis_forgetter::service::SOURCE as FORGETTER;
use anamnesis_indexer::metrics::{
    APPLIED_TOTAL, APPLY_SECONDS, BROKEN_CHAINS_TOTAL, FENCED_TOTAL, FRESHNESS_SECONDS,
    STORE_FAILURES_TOTAL,
};
use anamnesis_indexer::stage::STAGES as INDEXERS;
use anamnesis_intake::metrics::{
    ACCEPTED_TOTAL, CODES, COMMANDS_TOTAL, IDENTIFIERS, INBOX_READ_TOTAL, REDACTED_TOTAL,
    REJECTED_TOTAL, RELEASED_TOTAL, TOPICS,
};
use anamnesis_pipeline::chat::ChatError;
use anamnesis_pipeline::stores::Store;
use anamnesis_recall::metrics::{
    CALLS, CONTEXT_TOKENS_TOTAL, CONTEXT_USABLE_TOKENS_TOTAL, DEGRADED_TOTAL, DROPPED_TOTAL,
    EMBED_SECONDS, FOREIGN_TOTAL, LEG_SECONDS, LEGS, OUTCOMES, OUTCOMES_TOTAL, PARTS, REASONS,
    RECALL_SECONDS, RECALLS_TOTAL, RECEIPT_OUTCOMES, RECEIPTS_TOTAL,
};
use anamnesis_recall::receipts::Outcome as Reported;
use anamnesis_validity_manager::metrics::{
    ASSERTED_TOTAL, CONFLICTED_TOTAL, DECISIONS_TOTAL, TRANSITIONS_TOTAL,
};
use anamnesis_validity_manager::stage::STAGE as MANAGER;
use metrics::Label;

/// HTTP calls; labels `route`, `outcome`: `ok`, `refused` (4xx), `failed` (5xx).
pub const REQUESTS_TOTAL: &str = "anamnesis_http_requests_total";
/// Since the process started.
pub const UPTIME_SECONDS: &str = "anamnesis_uptime_seconds";
/// 1 when the process says of itself that it is ready.
pub const READY: &str = "anamnesis_ready";
/// Since what is watched was last looked at; label `watch`: one of [`WATCHES`].
pub const WATCH_AGE_SECONDS: &str = "anamnesis_watch_age_seconds";
/// Partitions of the log.
pub const PARTITIONS: &str = "anamnesis_partitions";
/// Age of the oldest record that a stage has not answered; 0 at the tail. Only owned partitions.
pub const LAG_SECONDS: &str = "anamnesis_lag_seconds";
/// Records that a stage has not answered. Only owned partitions.
pub const UNANSWERED_RECORDS: &str = "anamnesis_unanswered_records";
/// The first offset of each input that a stage has not answered. Only owned partitions.
pub const NEXT_OFFSET: &str = "anamnesis_next_offset";
/// Since when beginning again has not helped a stage; 0 when it works.
pub const FAILING_SECONDS: &str = "anamnesis_stage_failing_seconds";
/// Records that a store is behind the log.
pub const STORE_BEHIND_RECORDS: &str = "anamnesis_store_behind_records";
/// Current memories by kind and status, for the shares of conflicts.
pub const MEMORIES: &str = "anamnesis_memories";
/// Every accepted record, by what has become of it; label `state`: one of [`STATES`].
pub const BALANCE_RECORDS: &str = "anamnesis_balance_records";
/// Records that the balance misses; label `fault`: one of [`FAULTS`]. Must be 0.
pub const IMBALANCE_RECORDS: &str = "anamnesis_imbalance_records";
/// Age of the oldest accepted record without a decision that does not wait behind another.
pub const OLDEST_UNPROCESSED_SECONDS: &str = "anamnesis_oldest_unprocessed_seconds";
/// Owners that wait behind a record which cannot be applied, by stage.
pub const PARKED_OWNERS: &str = "anamnesis_parked_owners";
/// For how long the first of them has been waiting, by stage.
pub const OLDEST_PARKED_SECONDS: &str = "anamnesis_oldest_parked_seconds";
/// Owners whose chain does not continue. Must be 0.
pub const BROKEN_OWNERS: &str = "anamnesis_broken_owners";
/// Erasures that are not finished; label `step`: one of [`STEPS`].
pub const OPEN_ERASURES: &str = "anamnesis_open_erasures";
/// Age of the oldest of them.
pub const OLDEST_ERASURE_SECONDS: &str = "anamnesis_oldest_open_erasure_seconds";
/// Generation in use, by store: a number that grows with each rebuild.
pub const GENERATION: &str = "anamnesis_store_generation";
/// Reading clients of the log that stalled and were made anew.
pub const REBUILT_READERS_TOTAL: &str = "anamnesis_rebuilt_readers_total";
/// How often an owner is compared with the fold; 0 for never.
pub const DRIFT_EVERY_SECONDS: &str = "anamnesis_drift_every_seconds";
/// Rows compared with the fold, by store.
pub const DRIFT_ROWS_TOTAL: &str = "anamnesis_drift_rows_total";
/// Rows that were not what the fold says, by store. Must be 0.
pub const DRIFT_MISMATCHES_TOTAL: &str = "anamnesis_drift_mismatches_total";
/// Owners compared with the fold; label `outcome`: one of [`SAMPLES`].
pub const DRIFT_OWNERS_TOTAL: &str = "anamnesis_drift_owners_total";
/// Owners that were found to differ and still do. Must be 0.
pub const DRIFTING_OWNERS: &str = "anamnesis_drifting_owners";

/// Stages and stores; the balance and the drift, which read the whole log once.
pub const WATCHES: [&str; 2] = ["stages", "ledger"];
pub const STATES: [&str; 5] = ["accepted", "decided", "quarantined", "in_flight", "parked"];
pub const FAULTS: [&str; 3] = ["lost", "answered_twice", "foreign"];
/// Not yet unreachable in every store; unreachable, and some store's bytes not yet rewritten.
pub const STEPS: [&str; 2] = ["effective", "physical"];
/// `skipped`: no store had applied the owner's last decision.
pub const SAMPLES: [&str; 4] = ["same", "differs", "skipped", "failed"];
const REQUEST_OUTCOMES: [&str; 3] = ["ok", "refused", "failed"];

/// Calls over HTTP, as the routers name them; `other` for everything else.
pub const ROUTES: [&str; 29] = [
    "/v1/audit/balance",
    "/v1/audit/memories/{id}",
    "/v1/audit/state",
    "/v1/audit/verify",
    "/v1/changes",
    "/v1/consents",
    "/v1/context",
    "/v1/correct",
    "/v1/erasures/{id}",
    "/v1/events",
    "/v1/forget",
    "/v1/memories",
    "/v1/memories/{id}",
    "/v1/outcomes",
    "/v1/owners/tasks",
    "/v1/recall",
    "/v1/remember",
    "/v1/restore",
    "/v1/restrict",
    "/v1/retract",
    "/v1/reviews",
    "/v1/reviews/{id}/decision",
    "/v1/tasks",
    "/v1/tasks/{task_id}",
    "/v1/unrestrict",
    "/v1/users/{id}/forget",
    "/livez",
    "/readyz",
    "other",
];

/// Bounds of every histogram. Fine below 10 ms, where a recall over local stores happens.
pub const BUCKETS: [f64; 19] = [
    0.0005, 0.001, 0.002, 0.003, 0.005, 0.0075, 0.01, 0.015, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5,
    5.0, 10.0, 60.0, 600.0,
];

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Form {
    Counter,
    Gauge,
    Histogram,
}

/// What a label may say.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Values {
    Of(Vec<&'static str>),
    /// A number below the partition count.
    Partition,
}

impl Values {
    pub fn admit(&self, value: &str) -> bool {
        match self {
            Self::Of(values) => values.contains(&value),
            Self::Partition => value.parse::<u32>().is_ok(),
        }
    }
}

/// Who publishes a metric: one of the services, or every process.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum By {
    Process,
    Intake,
    Extractor,
    Manager,
    Indexer,
    Forgetter,
    Recall,
}

impl By {
    pub const ALL: [Self; 7] = [
        Self::Process,
        Self::Intake,
        Self::Extractor,
        Self::Manager,
        Self::Indexer,
        Self::Forgetter,
        Self::Recall,
    ];
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Metric {
    pub name: &'static str,
    pub form: Form,
    pub by: By,
    /// For people, without the name of the unit, which the metric's name ends in.
    pub help: &'static str,
    pub labels: Vec<(&'static str, Values)>,
}

/// Every metric there is.
pub fn catalogue() -> Vec<Metric> {
    let mut all = counted();
    all.extend(measured());
    all.extend(watched());
    all
}

fn kinds() -> Values {
    Values::Of(Kind::ALL.iter().map(|kind| kind.code()).collect())
}

fn stores() -> Values {
    Values::Of(Store::ALL.iter().map(|store| store.as_str()).collect())
}

fn stages() -> Values {
    let mut all = vec!["intake", EXTRACTOR, MANAGER, FORGETTER];
    all.extend(INDEXERS);
    Values::Of(all)
}

fn of(values: &[&'static str]) -> Values {
    Values::Of(values.to_vec())
}

fn counter(
    by: By,
    name: &'static str,
    help: &'static str,
    labels: Vec<(&'static str, Values)>,
) -> Metric {
    Metric {
        name,
        form: Form::Counter,
        by,
        help,
        labels,
    }
}

/// What services count.
fn counted() -> Vec<Metric> {
    let rejects = RejectCode::ALL.iter().map(|code| code.code()).collect();
    let mut calls = vec![ANSWERED];
    calls.extend(ChatError::CODES);
    let repairs = Repair::ALL.iter().map(|repair| repair.code()).collect();
    let reported = Reported::ALL.iter().map(|outcome| outcome.code()).collect();
    let inputs = [Topic::Candidates.as_str(), Topic::Commands.as_str()];
    let mut all = vec![
        counter(
            By::Process,
            REQUESTS_TOTAL,
            "HTTP calls",
            vec![("route", of(&ROUTES)), ("outcome", of(&REQUEST_OUTCOMES))],
        ),
        counter(
            By::Intake,
            ACCEPTED_TOTAL,
            "messages made durable, by topic",
            vec![("topic", of(&TOPICS))],
        ),
        counter(
            By::Intake,
            REJECTED_TOTAL,
            "events turned down, by code",
            vec![("code", of(&CODES))],
        ),
        counter(
            By::Intake,
            COMMANDS_TOTAL,
            "commands made durable, by kind",
            vec![("command", of(&Command::CODES))],
        ),
        counter(
            By::Intake,
            REDACTED_TOTAL,
            "identifiers replaced by placeholders, by type",
            vec![("identifier", of(&IDENTIFIERS))],
        ),
        counter(
            By::Intake,
            RELEASED_TOTAL,
            "messages let in by a grant that came later",
            vec![],
        ),
        counter(
            By::Intake,
            INBOX_READ_TOTAL,
            "records of inbox that were answered",
            vec![],
        ),
        counter(
            By::Extractor,
            CANDIDATES_TOTAL,
            "candidates found in turns, by kind",
            vec![("kind", kinds())],
        ),
        counter(
            By::Extractor,
            REJECTS_TOTAL,
            "statements not taken as memories, by reason",
            vec![("code", Values::Of(rejects))],
        ),
        counter(
            By::Extractor,
            REQUESTS_UNMET_TOTAL,
            "requests to write something down of which nothing came, by what ended the turn",
            vec![("ended_by", of(&ENDED_BY))],
        ),
        counter(
            By::Extractor,
            MODEL_CALLS_TOTAL,
            "calls of the language model, by what came of them",
            vec![("outcome", Values::Of(calls))],
        ),
        counter(
            By::Extractor,
            MODEL_TOKENS_TOTAL,
            "tokens of the language model, in questions and answers",
            vec![("part", of(&TOKENS))],
        ),
        counter(
            By::Extractor,
            FALLBACKS_TOTAL,
            "turns that the rules read in place of the language model, by reason",
            vec![("code", Values::Of(fallback_codes()))],
        ),
        counter(
            By::Extractor,
            ANSWER_REPAIRS_TOTAL,
            "answers of the language model that were repaired, by repair",
            vec![("repair", Values::Of(repairs))],
        ),
        counter(
            By::Manager,
            DECISIONS_TOTAL,
            "decisions, by input and outcome",
            vec![("input", of(&inputs)), ("outcome", of(&Outcome::KINDS))],
        ),
        counter(
            By::Manager,
            TRANSITIONS_TOTAL,
            "transitions of memories, by what they say",
            vec![("transition", of(&Transition::CODES))],
        ),
        counter(
            By::Manager,
            ASSERTED_TOTAL,
            "new memories, by kind",
            vec![("kind", kinds())],
        ),
        counter(
            By::Manager,
            CONFLICTED_TOTAL,
            "memories that came into conflict, by kind",
            vec![("kind", kinds())],
        ),
    ];
    all.extend([
        counter(
            By::Indexer,
            APPLIED_TOTAL,
            "records of the memory log applied to the stores",
            vec![],
        ),
        counter(
            By::Indexer,
            FENCED_TOTAL,
            "decisions of replaced writers, dropped by every fold",
            vec![],
        ),
        counter(
            By::Indexer,
            BROKEN_CHAINS_TOTAL,
            "records that do not continue their owner's chain: must be 0",
            vec![],
        ),
        counter(
            By::Indexer,
            STORE_FAILURES_TOTAL,
            "batches that a store could not apply",
            vec![("store", stores())],
        ),
        counter(
            By::Forgetter,
            LOOKS_TOTAL,
            "looks at what fades",
            vec![("outcome", of(&LOOKS))],
        ),
        counter(
            By::Forgetter,
            ARCHIVE_PROPOSED_TOTAL,
            "memories proposed for archiving over capacity",
            vec![],
        ),
        counter(
            By::Forgetter,
            KEYS_EXPIRED_TOTAL,
            "keys destroyed when their time was over",
            vec![],
        ),
        counter(
            By::Recall,
            RECALLS_TOTAL,
            "recalls, by call and outcome",
            vec![("call", of(&CALLS)), ("outcome", of(&OUTCOMES))],
        ),
        counter(
            By::Recall,
            DEGRADED_TOTAL,
            "recalls that had to do without a part",
            vec![("part", of(&PARTS))],
        ),
        counter(
            By::Recall,
            DROPPED_TOTAL,
            "hits that the authority did not confirm",
            vec![("reason", of(&REASONS))],
        ),
        counter(
            By::Recall,
            FOREIGN_TOTAL,
            "foreign records stopped at the last check: must be 0",
            vec![],
        ),
        counter(
            By::Recall,
            RECEIPTS_TOTAL,
            "recall receipts, by what became of them",
            vec![("outcome", of(&RECEIPT_OUTCOMES))],
        ),
        counter(
            By::Recall,
            OUTCOMES_TOTAL,
            "outcomes that callers reported",
            vec![("outcome", Values::Of(reported))],
        ),
        counter(
            By::Recall,
            CONTEXT_TOKENS_TOTAL,
            "tokens spent on injected memories",
            vec![],
        ),
        counter(
            By::Recall,
            CONTEXT_USABLE_TOKENS_TOTAL,
            "usable tokens of the windows composed for",
            vec![],
        ),
    ]);
    all
}

/// What services measure.
fn measured() -> Vec<Metric> {
    let histogram = |by, name, help, labels| Metric {
        name,
        form: Form::Histogram,
        by,
        help,
        labels,
    };
    vec![
        histogram(By::Extractor, EXTRACT_SECONDS, "reading one turn", vec![]),
        histogram(
            By::Extractor,
            MODEL_SECONDS,
            "one call of the language model",
            vec![],
        ),
        histogram(
            By::Indexer,
            FRESHNESS_SECONDS,
            "from a record's append to the stores that have applied it",
            vec![],
        ),
        histogram(
            By::Indexer,
            APPLY_SECONDS,
            "applying a batch to a store",
            vec![("store", stores())],
        ),
        histogram(
            By::Recall,
            RECALL_SECONDS,
            "a whole recall",
            vec![("call", of(&CALLS))],
        ),
        histogram(
            By::Recall,
            LEG_SECONDS,
            "one leg of a recall",
            vec![("leg", of(&LEGS))],
        ),
        histogram(By::Recall, EMBED_SECONDS, "embedding a question", vec![]),
    ]
}

/// What a look from outside finds: see [`crate::watch`].
fn watched() -> Vec<Metric> {
    let statuses = Status::ALL.iter().map(|status| status.code()).collect();
    let topics = Topic::ALL.iter().map(|topic| topic.as_str()).collect();
    let gauge = |name, help, labels| Metric {
        name,
        form: Form::Gauge,
        by: By::Process,
        help,
        labels,
    };
    let owned = || vec![("stage", stages()), ("partition", Values::Partition)];
    let by_topic = || {
        let mut labels = owned();
        labels.push(("topic", Values::Of(topics)));
        labels
    };
    vec![
        gauge(UPTIME_SECONDS, "time since the process started", vec![]),
        gauge(READY, "1 when the process says that it is ready", vec![]),
        gauge(
            WATCH_AGE_SECONDS,
            "time since the watched numbers were taken",
            vec![("watch", of(&WATCHES))],
        ),
        gauge(PARTITIONS, "partitions of the log", vec![]),
        gauge(
            LAG_SECONDS,
            "age of the oldest record that a stage has not answered",
            owned(),
        ),
        gauge(
            UNANSWERED_RECORDS,
            "records that a stage has not answered",
            owned(),
        ),
        gauge(
            NEXT_OFFSET,
            "first offset that a stage has not answered",
            by_topic(),
        ),
        gauge(
            FAILING_SECONDS,
            "time since a stage last worked; 0 when it does",
            owned(),
        ),
        gauge(
            STORE_BEHIND_RECORDS,
            "records that a store has not applied",
            vec![("store", stores())],
        ),
        gauge(
            MEMORIES,
            "current memories, by kind and status",
            vec![("kind", kinds()), ("status", Values::Of(statuses))],
        ),
        gauge(
            BALANCE_RECORDS,
            "accepted records, by what has become of them",
            vec![("state", of(&STATES))],
        ),
        gauge(
            IMBALANCE_RECORDS,
            "records that the balance misses: must be 0",
            vec![("fault", of(&FAULTS))],
        ),
        gauge(
            OLDEST_UNPROCESSED_SECONDS,
            "age of the oldest accepted record without a decision",
            vec![],
        ),
        gauge(
            PARKED_OWNERS,
            "owners that wait behind a record that cannot be applied",
            vec![("stage", stages())],
        ),
        gauge(
            OLDEST_PARKED_SECONDS,
            "how long the first parked owner has been waiting",
            vec![("stage", stages())],
        ),
        gauge(
            BROKEN_OWNERS,
            "owners whose chain does not continue: must be 0",
            vec![],
        ),
        gauge(
            OPEN_ERASURES,
            "erasures that are not finished",
            vec![("step", of(&STEPS))],
        ),
        gauge(
            OLDEST_ERASURE_SECONDS,
            "age of the oldest erasure that is not finished",
            vec![("step", of(&STEPS))],
        ),
        gauge(
            GENERATION,
            "generation in use, a number that grows with each rebuild",
            vec![("store", stores())],
        ),
        gauge(
            DRIFT_EVERY_SECONDS,
            "time between two owners compared; 0 for never",
            vec![],
        ),
        gauge(
            DRIFTING_OWNERS,
            "owners that differ from the fold: must be 0",
            vec![],
        ),
        counter(
            By::Process,
            REBUILT_READERS_TOTAL,
            "reading clients of the log that stalled and were made anew",
            vec![],
        ),
        counter(
            By::Process,
            DRIFT_ROWS_TOTAL,
            "rows compared with the fold",
            vec![("store", stores())],
        ),
        counter(
            By::Process,
            DRIFT_MISMATCHES_TOTAL,
            "rows that were not what the fold says: must be 0",
            vec![("store", stores())],
        ),
        counter(
            By::Process,
            DRIFT_OWNERS_TOTAL,
            "owners compared with the fold",
            vec![("outcome", of(&SAMPLES))],
        ),
    ]
}

/// Tells the process's recorder what each metric of these services means, and starts counters at 0: the
/// first foreign record must show as an increase, which it cannot in a series that begins with it.
pub fn describe(services: &[By]) {
    for metric in catalogue() {
        let Metric { name, help, .. } = metric;
        match metric.form {
            Form::Counter => metrics::describe_counter!(name, help),
            Form::Gauge => metrics::describe_gauge!(name, help),
            Form::Histogram => metrics::describe_histogram!(name, help),
        }
        if metric.by != By::Process && !services.contains(&metric.by) {
            continue;
        }
        for labels in combinations(&metric.labels) {
            match metric.form {
                Form::Counter if !metric.is_watched() => {
                    metrics::counter!(name, labels).increment(0);
                }
                Form::Histogram => drop(metrics::histogram!(name, labels)),
                Form::Counter | Form::Gauge => (),
            }
        }
    }
}

impl Metric {
    /// Whether it is rendered from what the watch saw, and not counted by the recorder.
    pub fn is_watched(&self) -> bool {
        self.form == Form::Gauge || self.name == REBUILT_READERS_TOTAL
    }
}

/// Every combination of the labels' values; none where a label is a partition.
fn combinations(labels: &[(&'static str, Values)]) -> Vec<Vec<Label>> {
    let mut all: Vec<Vec<Label>> = vec![Vec::new()];
    for (label, values) in labels {
        let Values::Of(values) = values else {
            return Vec::new();
        };
        all = all
            .iter()
            .flat_map(|before| {
                values.iter().map(|value| {
                    let mut labels = before.clone();
                    labels.push(Label::from_static_parts(label, value));
                    labels
                })
            })
            .collect();
    }
    all
}
