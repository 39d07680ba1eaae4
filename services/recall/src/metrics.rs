//! Which numbers recall publishes. Labels come from small closed sets; never an owner.

use metrics::{Unit, describe_counter, describe_histogram};

/// Recalls answered; label `answerable`: `true`, `false`.
pub const RECALLS_TOTAL: &str = "anamnesis_recall_recalls_total";
/// Duration of a whole recall.
pub const RECALL_SECONDS: &str = "anamnesis_recall_seconds";
/// Duration of one leg; label `leg`: `text`, `vector`, `graph`.
pub const LEG_SECONDS: &str = "anamnesis_recall_leg_seconds";
/// Recalls that had to do without something; label `part`: a leg or `wait_for`.
pub const DEGRADED_TOTAL: &str = "anamnesis_recall_degraded_total";
/// Hits that the authority did not confirm; label `reason`: `inadmissible`, `foreign`, `consent`.
pub const DROPPED_TOTAL: &str = "anamnesis_recall_dropped_total";
/// Isolation violations stopped at the last check. Must be 0; any increase is an alarm.
pub const FOREIGN_TOTAL: &str = "anamnesis_recall_foreign_total";
/// Receipts by what became of them; label `outcome`: `written`, `lost`, `skipped`.
pub const RECEIPTS_TOTAL: &str = "anamnesis_recall_receipts_total";
/// What callers reported; label `outcome`: `used`, `unused`, `off_topic`, `wrong`, `missed`.
pub const OUTCOMES_TOTAL: &str = "anamnesis_recall_outcomes_total";
/// Tokens spent on injected memories, to be compared with `..._context_usable_tokens_total`.
pub const CONTEXT_TOKENS_TOTAL: &str = "anamnesis_recall_context_tokens_total";
/// Usable tokens of the windows that contexts were composed for.
pub const CONTEXT_USABLE_TOKENS_TOTAL: &str = "anamnesis_recall_context_usable_tokens_total";

/// Says what each number means; called once at start.
pub fn describe() {
    describe_counter!(RECALLS_TOTAL, "recalls answered");
    describe_histogram!(RECALL_SECONDS, Unit::Seconds, "duration of a recall");
    describe_histogram!(
        LEG_SECONDS,
        Unit::Seconds,
        "duration of one leg of a recall"
    );
    describe_counter!(DEGRADED_TOTAL, "recalls that had to do without a part");
    describe_counter!(DROPPED_TOTAL, "hits that the authority did not confirm");
    describe_counter!(
        FOREIGN_TOTAL,
        "foreign records stopped at the last check; must be 0"
    );
    describe_counter!(RECEIPTS_TOTAL, "recall receipts by what became of them");
    describe_counter!(OUTCOMES_TOTAL, "outcomes that callers reported");
    describe_counter!(CONTEXT_TOKENS_TOTAL, "tokens spent on injected memories");
    describe_counter!(
        CONTEXT_USABLE_TOKENS_TOTAL,
        "usable tokens of the windows composed for"
    );
}
