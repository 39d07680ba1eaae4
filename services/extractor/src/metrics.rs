//! Names of what the extractor counts. Labels come from closed sets; never an owner.

use std::time::Duration;

use anamnesis_domain::input::CandidateSet;

/// Candidates found, by kind.
pub const CANDIDATES_TOTAL: &str = "anamnesis_candidates_total";
/// Statements looked at and turned down, by coded reason.
pub const REJECTS_TOTAL: &str = "anamnesis_rejects_total";
/// Duration of reading one turn.
pub const EXTRACT_SECONDS: &str = "anamnesis_extract_seconds";

pub(crate) fn extracted(set: &CandidateSet, spent: Duration) {
    metrics::histogram!(EXTRACT_SECONDS).record(spent.as_secs_f64());
    for candidate in &set.candidates {
        metrics::counter!(CANDIDATES_TOTAL, "kind" => candidate.claim.kind.code()).increment(1);
    }
    for reject in &set.rejects {
        metrics::counter!(REJECTS_TOTAL, "code" => reject.code.code()).increment(1);
    }
}
