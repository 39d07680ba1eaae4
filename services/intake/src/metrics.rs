//! Names of what intake counts. Labels come from closed sets; never an owner.

/// Messages accepted, by where they went (`conversation`, `quarantine`).
pub const ACCEPTED_TOTAL: &str = "anamnesis_intake_accepted_total";
/// Events refused, by code.
pub const REJECTED_TOTAL: &str = "anamnesis_intake_rejected_total";
/// Commands accepted, by code.
pub const COMMANDS_TOTAL: &str = "anamnesis_intake_commands_total";
/// Identifiers replaced by placeholders, by kind.
pub const REDACTED_TOTAL: &str = "anamnesis_intake_redacted_total";
/// Quarantined messages that a grant released.
pub const RELEASED_TOTAL: &str = "anamnesis_intake_released_total";

/// Records of `inbox` that were answered.
pub const INBOX_READ_TOTAL: &str = "anamnesis_intake_inbox_read_total";
/// Age of the oldest record of `inbox` that is known and not answered, by its partition.
pub const INBOX_LAG_SECONDS: &str = "anamnesis_intake_inbox_lag_seconds";

pub(crate) fn accepted(topic: &'static str, count: usize) {
    metrics::counter!(ACCEPTED_TOTAL, "topic" => topic).increment(count as u64);
}

pub(crate) fn rejected(code: &'static str) {
    metrics::counter!(REJECTED_TOTAL, "code" => code).increment(1);
}

pub(crate) fn command(code: &'static str) {
    metrics::counter!(COMMANDS_TOTAL, "command" => code).increment(1);
}

pub(crate) fn redacted(kind: &'static str) {
    metrics::counter!(REDACTED_TOTAL, "kind" => kind).increment(1);
}

pub(crate) fn inbox_read(count: u64) {
    metrics::counter!(INBOX_READ_TOTAL).increment(count);
}

pub(crate) fn inbox_lag(partition: u32, millis: i64) {
    metrics::gauge!(INBOX_LAG_SECONDS, "partition" => partition.to_string())
        .set(millis as f64 / 1_000.0);
}

pub(crate) fn released(count: usize) {
    metrics::counter!(RELEASED_TOTAL).increment(count as u64);
}
