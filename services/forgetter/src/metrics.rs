//! Names of what the forgetter counts.

/// Memories proposed for the archive because their owner is over capacity.
pub const ARCHIVE_PROPOSED_TOTAL: &str = "anamnesis_archive_proposed_total";

pub(crate) fn looked(archived: usize) {
    metrics::counter!(ARCHIVE_PROPOSED_TOTAL).increment(archived as u64);
}
