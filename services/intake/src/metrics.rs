//! Names of what intake counts. Labels come from closed sets; never an owner.

/// Messages accepted, by where they went ([`TOPICS`]).
pub const ACCEPTED_TOTAL: &str = "anamnesis_intake_accepted_total";
/// Events refused, by code ([`CODES`]).
pub const REJECTED_TOTAL: &str = "anamnesis_intake_rejected_total";
/// Commands accepted, by code.
pub const COMMANDS_TOTAL: &str = "anamnesis_intake_commands_total";
/// Identifiers replaced by placeholders, by kind ([`IDENTIFIERS`]).
pub const REDACTED_TOTAL: &str = "anamnesis_intake_redacted_total";
/// Quarantined messages that a grant released.
pub const RELEASED_TOTAL: &str = "anamnesis_intake_released_total";

/// Records of `inbox` that were answered.
pub const INBOX_READ_TOTAL: &str = "anamnesis_intake_inbox_read_total";
/// Where an accepted message goes.
pub const TOPICS: [&str; 2] = ["conversation", "quarantine"];

/// Codes of refused events. One that is not in this list is counted as `other`.
pub const CODES: [&str; 28] = [
    "body_too_large",
    "empty_record",
    "field_too_long",
    "invalid_field",
    "invalid_json",
    "invalid_owner",
    "invalid_time",
    "invalid_utf8",
    "missing_field",
    "not_a_statement",
    "other",
    "owner_mismatch",
    "record_too_large",
    "registry_not_configured",
    "role_required",
    "tenant_not_covered",
    "text_too_long",
    "time_in_future",
    "time_without_zone",
    "too_deep",
    "too_many_events",
    "undecodable",
    "unknown_field",
    "unknown_role",
    "unknown_schema",
    "unsupported_content_type",
    "unsupported_schema",
    "unsupported_shape",
];

/// Kinds of identifiers. One that is not in this list is counted as `other`.
pub const IDENTIFIERS: [&str; 17] = [
    "BANK_ACCOUNT",
    "BANK_CARD",
    "DRIVER_LICENCE",
    "EMAIL",
    "IBAN",
    "ID_CARD",
    "INSURANCE_NO",
    "IP",
    "MRN",
    "PASSPORT",
    "PHONE",
    "PLATE",
    "QQ",
    "SECRET",
    "US_SSN",
    "WECHAT",
    "other",
];

/// A label is never what somebody sent, and a set of labels never grows by itself.
fn of(set: &[&'static str], label: &'static str) -> &'static str {
    if set.contains(&label) { label } else { "other" }
}

pub(crate) fn accepted(topic: &'static str, count: usize) {
    metrics::counter!(ACCEPTED_TOTAL, "topic" => topic).increment(count as u64);
}

pub(crate) fn rejected(code: &'static str) {
    metrics::counter!(REJECTED_TOTAL, "code" => of(&CODES, code)).increment(1);
}

pub(crate) fn command(code: &'static str) {
    metrics::counter!(COMMANDS_TOTAL, "command" => code).increment(1);
}

pub(crate) fn redacted(kind: &'static str) {
    metrics::counter!(REDACTED_TOTAL, "identifier" => of(&IDENTIFIERS, kind)).increment(1);
}

pub(crate) fn inbox_read(count: u64) {
    metrics::counter!(INBOX_READ_TOTAL).increment(count);
}

pub(crate) fn released(count: usize) {
    metrics::counter!(RELEASED_TOTAL).increment(count as u64);
}
