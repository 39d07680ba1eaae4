//! Names of what the extractor counts. Labels come from closed sets; never an owner.

use std::time::Duration;

use anamnesis_domain::input::{CandidateSet, RejectCode};

/// Candidates found, by kind.
pub const CANDIDATES_TOTAL: &str = "anamnesis_candidates_total";
/// Statements looked at and turned down, by coded reason.
pub const REJECTS_TOTAL: &str = "anamnesis_rejects_total";
/// Turns in which somebody asked for something to be written down and nothing was stored, by what ended
/// them: `reply` or `idle`.
pub const REQUESTS_UNMET_TOTAL: &str = "anamnesis_requests_unmet_total";
pub const ENDED_BY: [&str; 2] = ["reply", "idle"];
/// Duration of reading one turn.
pub const EXTRACT_SECONDS: &str = "anamnesis_extract_seconds";

pub(crate) fn extracted(set: &CandidateSet, spent: Duration) {
    metrics::histogram!(EXTRACT_SECONDS).record(spent.as_secs_f64());
    for candidate in &set.candidates {
        metrics::counter!(CANDIDATES_TOTAL, "kind" => candidate.claim.kind.code()).increment(1);
    }
    for reject in &set.rejects {
        metrics::counter!(REJECTS_TOTAL, "code" => reject.code.code()).increment(1);
        if reject.code == RejectCode::NotStored {
            metrics::counter!(REQUESTS_UNMET_TOTAL, "ended_by" => "reply").increment(1);
        }
    }
}

/// A conversation went idle with a request that nothing came of.
pub(crate) fn went_idle() {
    metrics::counter!(REQUESTS_UNMET_TOTAL, "ended_by" => "idle").increment(1);
}
