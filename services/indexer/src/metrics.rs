//! Names of what the indexer counts. Labels come from closed sets; never an owner.

use anamnesis_domain::time::Timestamp;
use anamnesis_pipeline::log::Record;
use anamnesis_pipeline::stores::Store;

/// Records of `memories` applied to the stores.
pub const APPLIED_TOTAL: &str = "anamnesis_indexer_applied_total";
/// Age of the newest applied record when it was applied, in seconds, by partition.
pub const LAG_SECONDS: &str = "anamnesis_indexer_lag_seconds";
/// Decisions dropped because their writer had been replaced.
pub const FENCED_TOTAL: &str = "anamnesis_fenced_decisions_total";
/// Owners whose chain does not continue: tampering or loss.
pub const BROKEN_CHAINS_TOTAL: &str = "anamnesis_broken_chains_total";
/// Batches that a store refused, by store.
pub const STORE_FAILURES_TOTAL: &str = "anamnesis_store_failures_total";

pub(crate) fn applied(partition: u32, records: &[Record], now: Timestamp) {
    metrics::counter!(APPLIED_TOTAL).increment(records.len() as u64);
    if let Some(last) = records.last() {
        let lag_ms = (now.millis() - last.appended_at.millis()).max(0);
        metrics::gauge!(LAG_SECONDS, "partition" => partition.to_string()).set(lag_ms as f64 / 1e3);
    }
}

pub(crate) fn fenced() {
    metrics::counter!(FENCED_TOTAL).increment(1);
}

pub(crate) fn broken_chain() {
    metrics::counter!(BROKEN_CHAINS_TOTAL).increment(1);
}

pub(crate) fn store_failed(store: Store) {
    metrics::counter!(STORE_FAILURES_TOTAL, "store" => store.as_str()).increment(1);
}
