//! Names of what the forgetter counts.

/// Looks at what fades; label `outcome`: one of [`OUTCOMES`].
pub const LOOKS_TOTAL: &str = "anamnesis_forgetter_looks_total";
/// Memories proposed for the archive because their owner is over capacity.
pub const ARCHIVE_PROPOSED_TOTAL: &str = "anamnesis_archive_proposed_total";
/// Keys destroyed because what they seal had its time.
pub const KEYS_EXPIRED_TOTAL: &str = "anamnesis_keys_expired_total";

pub const OUTCOMES: [&str; 2] = ["done", "failed"];

pub(crate) fn looked(archived: usize, keys_expired: u64) {
    metrics::counter!(LOOKS_TOTAL, "outcome" => "done").increment(1);
    metrics::counter!(ARCHIVE_PROPOSED_TOTAL).increment(archived as u64);
    metrics::counter!(KEYS_EXPIRED_TOTAL).increment(keys_expired);
}

pub(crate) fn failed() {
    metrics::counter!(LOOKS_TOTAL, "outcome" => "failed").increment(1);
}
