//! What does each metric mean? Told once, for all services of the process.

use anamnesis_extractor::metrics::{CANDIDATES_TOTAL, REJECTS_TOTAL};
use anamnesis_forgetter::metrics::ARCHIVE_PROPOSED_TOTAL;
use anamnesis_indexer::metrics::{
    APPLIED_TOTAL, BROKEN_CHAINS_TOTAL, FENCED_TOTAL, LAG_SECONDS, STORE_FAILURES_TOTAL,
};
use anamnesis_intake::metrics::{
    ACCEPTED_TOTAL, COMMANDS_TOTAL, INBOX_LAG_SECONDS, INBOX_READ_TOTAL, REDACTED_TOTAL,
    REJECTED_TOTAL, RELEASED_TOTAL,
};
use anamnesis_validity_manager::metrics::{DECISIONS_TOTAL, PARKED_OWNERS, TRANSITIONS_TOTAL};
use metrics::{Unit, describe_counter, describe_gauge};

/// Current memories by kind and status, for the shares of conflicts.
pub const MEMORIES: &str = "anamnesis_memories";

/// Records that a stage has not answered, by stage and partition.
pub const UNANSWERED_RECORDS: &str = "anamnesis_unanswered_records";
/// Age of the oldest record that a stage has not answered, in seconds.
pub const OLDEST_UNANSWERED_SECONDS: &str = "anamnesis_oldest_unanswered_seconds";

/// Describes every metric to the process's recorder.
pub fn describe() {
    describe_counter!(ACCEPTED_TOTAL, "messages made durable, by topic");
    describe_counter!(REJECTED_TOTAL, "events turned down, by code");
    describe_counter!(COMMANDS_TOTAL, "commands made durable, by kind");
    describe_counter!(
        REDACTED_TOTAL,
        "identifiers replaced by placeholders, by type"
    );
    describe_counter!(RELEASED_TOTAL, "messages let in by a grant that came later");
    describe_counter!(INBOX_READ_TOTAL, "records of inbox that were answered");
    describe_gauge!(
        INBOX_LAG_SECONDS,
        Unit::Seconds,
        "age of the oldest record of inbox that is not answered, by partition"
    );
    describe_counter!(CANDIDATES_TOTAL, "candidates found in turns, by kind");
    describe_counter!(REJECTS_TOTAL, "statements not taken as memories, by reason");
    describe_counter!(DECISIONS_TOTAL, "decisions, by outcome");
    describe_counter!(TRANSITIONS_TOTAL, "transitions of memories, by kind");
    describe_gauge!(
        PARKED_OWNERS,
        "owners that wait behind a record that cannot be applied"
    );
    describe_counter!(
        APPLIED_TOTAL,
        "records of the memory log applied to the stores"
    );
    describe_gauge!(
        LAG_SECONDS,
        Unit::Seconds,
        "age of the latest record when it was applied"
    );
    describe_counter!(
        FENCED_TOTAL,
        "decisions of replaced writers, dropped by every fold"
    );
    describe_counter!(
        BROKEN_CHAINS_TOTAL,
        "records that break an owner's chain: must be 0"
    );
    describe_counter!(
        STORE_FAILURES_TOTAL,
        "batches that a store could not apply, by store"
    );
    describe_counter!(
        ARCHIVE_PROPOSED_TOTAL,
        "memories proposed for archiving over capacity"
    );
    describe_gauge!(
        UNANSWERED_RECORDS,
        "records that a stage has not answered, by stage and partition"
    );
    describe_gauge!(
        OLDEST_UNANSWERED_SECONDS,
        Unit::Seconds,
        "age of the oldest record that a stage has not answered"
    );
    describe_gauge!(MEMORIES, "current memories, by kind and status");
    anamnesis_recall::metrics::describe();
}
