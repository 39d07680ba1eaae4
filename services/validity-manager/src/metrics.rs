//! Names of what the validity-manager counts. Labels come from closed sets; never an owner.

use anamnesis_domain::transition::{Outcome, Transition};

/// Decisions by outcome (`stored`, `duplicate`, `no_op`, `rejected`, `failed`).
pub const DECISIONS_TOTAL: &str = "anamnesis_decisions_total";
/// Transitions by kind.
pub const TRANSITIONS_TOTAL: &str = "anamnesis_transitions_total";
/// Owners that wait behind a record that cannot be applied, by partition.
pub const PARKED_OWNERS: &str = "anamnesis_parked_owners";

pub(crate) fn decided(outcome: &Outcome, transitions: &[Transition]) {
    let label = match outcome {
        Outcome::Stored => "stored",
        Outcome::Duplicate => "duplicate",
        Outcome::NoOp => "no_op",
        Outcome::Rejected(_) => "rejected",
        Outcome::Failed(_) => "failed",
    };
    metrics::counter!(DECISIONS_TOTAL, "outcome" => label).increment(1);
    for transition in transitions {
        metrics::counter!(TRANSITIONS_TOTAL, "kind" => transition.code()).increment(1);
    }
}

pub(crate) fn parked(partition: u32, owners: usize) {
    metrics::gauge!(PARKED_OWNERS, "partition" => partition.to_string()).set(owners as f64);
}
