//! What can be wrong with bytes from the log, or with a value on its way to it.

use crate::registry::Fingerprint;

/// Never repeats content: neither the bytes nor a value that failed a check.
#[derive(Debug, thiserror::Error, PartialEq, Eq, Clone)]
pub enum WireError {
    #[error("{bytes} bytes exceed the limit of {limit}")]
    TooLarge { bytes: usize, limit: usize },
    /// More values than a reader will take from one record; see [`crate::READS_MAX`].
    #[error("a {record} holds too many values for one record")]
    TooMany { record: &'static str },
    #[error("not an Avro single-object encoding")]
    NotSingleObject,
    /// Written by a newer version, or damaged. Guessing another schema would invent content.
    #[error("the schema with fingerprint {0} is unknown to this version")]
    UnknownSchema(Fingerprint),
    #[error("a {found} stands where a {expected} belongs")]
    WrongRecord {
        expected: &'static str,
        found: &'static str,
    },
    #[error("a {record} cannot be decoded")]
    Malformed { record: &'static str },
    /// Avro accepts the value and the domain does not.
    #[error("field {field} {problem}")]
    Field {
        field: &'static str,
        problem: &'static str,
    },
}

impl WireError {
    /// Stable code, for parked records and metrics.
    pub fn code(&self) -> &'static str {
        match self {
            Self::UnknownSchema(_) => "unknown_schema",
            Self::TooLarge { .. } | Self::TooMany { .. } => "too_large",
            Self::NotSingleObject
            | Self::WrongRecord { .. }
            | Self::Malformed { .. }
            | Self::Field { .. } => "undecodable",
        }
    }
}
