//! Which numbers recall publishes. Labels come from small closed sets; never an owner.

use std::time::Duration;

use crate::answer::Answer;
use crate::service::RecallError;

/// Recalls; labels `call`: one of [`CALLS`], `outcome`: one of [`OUTCOMES`].
pub const RECALLS_TOTAL: &str = "anamnesis_recall_recalls_total";
/// Duration of a whole recall that was answered; label `call`.
pub const RECALL_SECONDS: &str = "anamnesis_recall_seconds";
/// Duration of one leg; label `leg`: one of [`LEGS`].
pub const LEG_SECONDS: &str = "anamnesis_recall_leg_seconds";
/// Duration of embedding a question, part of the vector leg.
pub const EMBED_SECONDS: &str = "anamnesis_recall_embed_seconds";
/// Recalls that had to do without something; label `part`: one of [`PARTS`].
pub const DEGRADED_TOTAL: &str = "anamnesis_recall_degraded_total";
/// Hits that the authority did not confirm; label `reason`: one of [`REASONS`].
pub const DROPPED_TOTAL: &str = "anamnesis_recall_dropped_total";
/// Isolation violations stopped at the last check. Must be 0; any increase is an alarm.
pub const FOREIGN_TOTAL: &str = "anamnesis_recall_foreign_total";
/// Receipts by what became of them; label `outcome`: one of [`RECEIPT_OUTCOMES`].
pub const RECEIPTS_TOTAL: &str = "anamnesis_recall_receipts_total";
/// What callers reported; label `outcome`: a code of [`crate::receipts::Outcome`].
pub const OUTCOMES_TOTAL: &str = "anamnesis_recall_outcomes_total";
/// Tokens spent on injected memories, to be compared with `..._context_usable_tokens_total`.
pub const CONTEXT_TOKENS_TOTAL: &str = "anamnesis_recall_context_tokens_total";
/// Usable tokens of the windows that contexts were composed for.
pub const CONTEXT_USABLE_TOKENS_TOTAL: &str = "anamnesis_recall_context_usable_tokens_total";

pub const CALLS: [&str; 2] = ["recall", "context"];
/// `nothing`: it was answered that nothing is known of this.
/// `shed`: it was refused, because more asked than could be answered.
pub const OUTCOMES: [&str; 4] = ["answered", "nothing", "failed", "shed"];
/// `records` is the authority, which checks what the others found.
pub const LEGS: [&str; 4] = ["text", "vector", "graph", "records"];
/// `overload`: more asked than could be answered as a whole.
pub const PARTS: [&str; 5] = ["text", "vector", "graph", "wait_for", "overload"];
pub const REASONS: [&str; 2] = ["inadmissible", "foreign"];
pub const RECEIPT_OUTCOMES: [&str; 3] = ["written", "lost", "skipped"];

/// One recall from its start to its answer.
pub(crate) fn recalled(call: &'static str, answer: Result<&Answer, &RecallError>, spent: Duration) {
    let outcome = match answer {
        Ok(answer) if answer.answerable => "answered",
        Ok(_) => "nothing",
        Err(RecallError::Overloaded) => "shed",
        Err(_) => "failed",
    };
    metrics::counter!(RECALLS_TOTAL, "call" => call, "outcome" => outcome).increment(1);
    if answer.is_ok() {
        metrics::histogram!(RECALL_SECONDS, "call" => call).record(spent.as_secs_f64());
    }
}
