//! Names of what the extractor counts. Labels come from closed sets; never an owner.

use std::time::Duration;

use anamnesis_domain::input::{CandidateSet, RejectCode};
use anamnesis_pipeline::chat::{ChatAnswer, ChatError};

use crate::ask::ANSWERED;
use crate::reply::Reply;

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

/// Calls of a language model; label `outcome`: `answered`, or the code of what came instead.
pub const MODEL_CALLS_TOTAL: &str = "anamnesis_model_calls_total";
/// Tokens of a language model; label `part`: one of [`TOKENS`].
pub const MODEL_TOKENS_TOTAL: &str = "anamnesis_model_tokens_total";
/// Duration of one call.
pub const MODEL_SECONDS: &str = "anamnesis_model_seconds";
/// Turns about which a model was to be asked, and that the rules read alone; by code.
pub const FALLBACKS_TOTAL: &str = "anamnesis_extraction_fallbacks_total";
/// Answers that were repaired before they could be read; label `repair`.
pub const ANSWER_REPAIRS_TOTAL: &str = "anamnesis_answer_repairs_total";

pub const TOKENS: [&str; 2] = ["prompt", "completion"];

pub(crate) fn called(answer: &Result<ChatAnswer, ChatError>, spent: Duration) {
    metrics::histogram!(MODEL_SECONDS).record(spent.as_secs_f64());
    let outcome = match answer {
        Ok(_) => ANSWERED,
        Err(error) => error.code(),
    };
    metrics::counter!(MODEL_CALLS_TOTAL, "outcome" => outcome).increment(1);
    if let Ok(answer) = answer {
        let [prompt, completion] = TOKENS;
        metrics::counter!(MODEL_TOKENS_TOTAL, "part" => prompt)
            .increment(answer.prompt_tokens.into());
        metrics::counter!(MODEL_TOKENS_TOTAL, "part" => completion)
            .increment(answer.completion_tokens.into());
    }
}

pub(crate) fn replied(reply: &Reply) {
    if let Some(code) = reply.fallback() {
        metrics::counter!(FALLBACKS_TOTAL, "code" => code.to_owned()).increment(1);
    }
    for repair in reply.repairs() {
        metrics::counter!(ANSWER_REPAIRS_TOTAL, "repair" => repair.code()).increment(1);
    }
}

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
