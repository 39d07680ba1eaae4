//! What does a replica say when it does not answer, and what does the caller make of it?

use std::error::Error;
use std::fmt;

use anamnesis_domain::ids::LogId;
use anamnesis_pipeline::stores::{Store, StoreError};
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use tonic::{Code, Status};

use super::frames::PROTOCOL;
use super::wire;

/// Travels as the details of a gRPC status. No word of a question is ever in it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) enum Refusal {
    Token,
    /// The replica speaks another protocol.
    Protocol {
        spoken: u32,
    },
    OtherLog {
        found: LogId,
    },
    /// The question cannot be read.
    Question,
    NoPartition {
        partition: u32,
    },
    /// The replica does not know that it is as far as the lease demands.
    Lags {
        partition: u32,
    },
    /// The replica is not as far as the question demands.
    Behind {
        next: u64,
    },
    TooLarge,
    /// Asked of its stores, and they failed.
    Store(StoreError),
}

impl Refusal {
    pub(super) fn status(&self) -> Status {
        let code = match self {
            Self::Token => Code::Unauthenticated,
            Self::Protocol { .. } | Self::OtherLog { .. } => Code::FailedPrecondition,
            Self::Question => Code::InvalidArgument,
            Self::NoPartition { .. } => Code::NotFound,
            Self::TooLarge => Code::ResourceExhausted,
            Self::Lags { .. } | Self::Behind { .. } => Code::Unavailable,
            Self::Store(error) if error.is_retryable() => Code::Unavailable,
            Self::Store(_) => Code::Internal,
        };
        Status::with_details(code, self.to_string(), Bytes::from(wire::write(self)))
    }

    /// Whether every replica would say the same.
    pub(super) fn is_final(&self) -> bool {
        match self {
            Self::Store(StoreError::Unusable { .. }) | Self::TooLarge => true,
            Self::Store(
                StoreError::Unavailable { .. }
                | StoreError::Moved { .. }
                | StoreError::OtherLog { .. }
                | StoreError::OtherModel { .. }
                | StoreError::Damaged { .. }
                | StoreError::InUse { .. },
            )
            | Self::Token
            | Self::Protocol { .. }
            | Self::OtherLog { .. }
            | Self::Question
            | Self::NoPartition { .. }
            | Self::Lags { .. }
            | Self::Behind { .. } => false,
        }
    }

    fn into_error(self, store: Store, log_id: LogId) -> StoreError {
        match self {
            Self::Store(error) => error,
            Self::OtherLog { found } => StoreError::OtherLog {
                store,
                expected: log_id,
                found,
            },
            Self::Lags { .. } | Self::Behind { .. } => StoreError::Unavailable {
                store,
                reason: self.to_string(),
            },
            Self::Token
            | Self::Protocol { .. }
            | Self::Question
            | Self::NoPartition { .. }
            | Self::TooLarge => StoreError::Unusable {
                what: self.to_string(),
            },
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Token => f.write_str("the shard refuses the token"),
            Self::Protocol { spoken } => write!(
                f,
                "the shard speaks protocol {spoken}, not {PROTOCOL}: run the same version everywhere"
            ),
            Self::OtherLog { found } => write!(f, "the shard belongs to log {found}"),
            Self::Question => f.write_str("the shard cannot read the question"),
            Self::NoPartition { partition } => write!(
                f,
                "the shard does not serve partition {partition}: its configuration says otherwise \
                 than the caller's"
            ),
            Self::Lags { partition } => {
                write!(f, "the replica lags in partition {partition}")
            }
            Self::Behind { next } => write!(
                f,
                "the replica stands at {next}, before what was answered already"
            ),
            Self::TooLarge => f.write_str("the answer is too large for one question"),
            Self::Store(error) => error.fmt(f),
        }
    }
}

/// Why one replica gave no answer.
#[derive(Clone, Debug)]
pub(super) enum Failure {
    /// Dead or slow: it is left out for a while.
    Down {
        reason: String,
    },
    Refused(Refusal),
    /// It answers what this version cannot read.
    Unreadable,
}

impl Failure {
    pub(super) fn of(status: &Status) -> Self {
        if let Some(refusal) = wire::read(status.details()) {
            return Self::Refused(refusal);
        }
        if status.code() == Code::Unimplemented {
            return Self::Unreadable;
        }
        let mut reason = format!("gRPC code {}", status.code() as i32);
        let mut source = status.source();
        while let Some(error) = source {
            reason.push_str(&format!(": {error}"));
            source = error.source();
        }
        Self::Down { reason }
    }

    pub(super) fn is_final(&self) -> bool {
        match self {
            Self::Refused(refusal) => refusal.is_final(),
            Self::Down { .. } | Self::Unreadable => false,
        }
    }

    /// Addresses and the like are for the log, not for the error.
    pub(super) fn into_error(self, store: Store, log_id: LogId) -> StoreError {
        match self {
            Self::Down { .. } => StoreError::Unavailable {
                store,
                reason: "the replica is dead or slow".to_owned(),
            },
            Self::Refused(refusal) => refusal.into_error(store, log_id),
            Self::Unreadable => StoreError::Unusable {
                what: "the shard's address answers, but not as a shard of this version".to_owned(),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use anamnesis_pipeline::embedder::ModelIdentity;

    use super::*;

    const LOG_ID: LogId = LogId::from_bytes([1; 16]);
    const OTHER: LogId = LogId::from_bytes([2; 16]);

    fn told(refusal: &Refusal) -> StoreError {
        Failure::of(&refusal.status()).into_error(Store::Text, LOG_ID)
    }

    #[test]
    fn errors_of_the_stores_arrive_as_they_are() {
        let (store, model) = (Store::Records, |id: &str| ModelIdentity {
            id: id.to_owned(),
            dimension: 3,
        });
        for error in [
            StoreError::Unavailable {
                store,
                reason: "忙".to_owned(),
            },
            StoreError::Moved {
                store,
                partition: 3,
                expected: u64::MAX,
                found: 0,
            },
            StoreError::OtherLog {
                store,
                expected: LOG_ID,
                found: OTHER,
            },
            StoreError::OtherModel {
                store,
                expected: model("a"),
                found: model("b"),
            },
            StoreError::Damaged {
                store,
                reason: "half".to_owned(),
            },
            StoreError::InUse {
                what: "it".to_owned(),
            },
            StoreError::Unusable {
                what: "it".to_owned(),
            },
        ] {
            let arrived = told(&Refusal::Store(error.clone()));
            assert_eq!(format!("{arrived:?}"), format!("{error:?}"));
        }
    }

    #[test]
    fn only_time_mends_what_may_be_tried_again() {
        for (refusal, is_retryable) in [
            (Refusal::Lags { partition: 1 }, true),
            (Refusal::Behind { next: 1 }, true),
            (Refusal::Token, false),
            (Refusal::Protocol { spoken: 9 }, false),
            (Refusal::OtherLog { found: OTHER }, false),
            (Refusal::Question, false),
            (Refusal::NoPartition { partition: 1 }, false),
            (Refusal::TooLarge, false),
        ] {
            assert_eq!(told(&refusal).is_retryable(), is_retryable, "{refusal}");
        }
        let down = Failure::of(&Status::unavailable("no"));
        assert!(down.into_error(Store::Text, LOG_ID).is_retryable());
    }
}
