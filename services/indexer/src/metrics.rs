//! Names of what the indexer counts. Labels come from closed sets; never an owner.

use std::time::Duration;

use anamnesis_domain::time::Timestamp;
use anamnesis_pipeline::log::Record;
use anamnesis_pipeline::stores::Store;

/// Records of `memories` applied to the stores.
pub const APPLIED_TOTAL: &str = "anamnesis_indexer_applied_total";
/// From a record's append to the stores that have applied it.
pub const FRESHNESS_SECONDS: &str = "anamnesis_indexer_freshness_seconds";
/// Duration of applying one batch; label `store`.
pub const APPLY_SECONDS: &str = "anamnesis_store_apply_seconds";
/// Decisions dropped because their writer had been replaced.
pub const FENCED_TOTAL: &str = "anamnesis_fenced_decisions_total";
/// Records that do not continue their owner's chain: tampering or loss.
pub const BROKEN_CHAINS_TOTAL: &str = "anamnesis_broken_chains_total";
/// Batches that a store refused; label `store`.
pub const STORE_FAILURES_TOTAL: &str = "anamnesis_store_failures_total";

pub(crate) fn applied(records: &[Record], now: Timestamp) {
    metrics::counter!(APPLIED_TOTAL).increment(records.len() as u64);
    let freshness = metrics::histogram!(FRESHNESS_SECONDS);
    for record in records {
        let late_ms = (now.millis() - record.appended_at.millis()).max(0);
        freshness.record(late_ms as f64 / 1e3);
    }
}

pub(crate) fn fenced() {
    metrics::counter!(FENCED_TOTAL).increment(1);
}

pub(crate) fn broken_chain() {
    metrics::counter!(BROKEN_CHAINS_TOTAL).increment(1);
}

pub(crate) fn store_applied(store: Store, spent: Duration) {
    metrics::histogram!(APPLY_SECONDS, "store" => store.as_str()).record(spent.as_secs_f64());
}

pub(crate) fn store_failed(store: Store) {
    metrics::counter!(STORE_FAILURES_TOTAL, "store" => store.as_str()).increment(1);
}
