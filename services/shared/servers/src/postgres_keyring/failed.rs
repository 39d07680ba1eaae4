//! What does an error of the server mean for the caller?
//!
//! The server's own message is never passed on: it can repeat what was sent. Its code says enough.

use std::error::Error as _;
use std::io;

use anamnesis_pipeline::keyring::KeyringError;
use tokio_postgres::error::SqlState;

/// Why one try of a call came to nothing.
pub(super) enum Failed {
    /// Nothing was changed, and another try may go better; this is the answer if none is left.
    Again(KeyringError),
    Done(KeyringError),
}

impl Failed {
    /// Of the first statements of a call: what was lost then has changed nothing. Connections that
    /// idled through a restart of the server are found out like that.
    pub(super) fn first(error: tokio_postgres::Error) -> Self {
        let is_lost = match error.code() {
            Some(code) => is_shutdown(code),
            None => true,
        };
        if is_lost {
            Self::Again(to_keyring_error(&error))
        } else {
            Self::from(error)
        }
    }
}

impl From<KeyringError> for Failed {
    fn from(error: KeyringError) -> Self {
        Self::Done(error)
    }
}

impl From<tokio_postgres::Error> for Failed {
    fn from(error: tokio_postgres::Error) -> Self {
        let is_undone = error.code().is_some_and(|code| {
            *code == SqlState::T_R_SERIALIZATION_FAILURE
                || *code == SqlState::T_R_DEADLOCK_DETECTED
                || *code == SqlState::LOCK_NOT_AVAILABLE
                // Another process made the same key at the same moment; the next try finds it.
                || *code == SqlState::UNIQUE_VIOLATION
        });
        let answer = to_keyring_error(&error);
        if is_undone {
            Self::Again(answer)
        } else {
            Self::Done(answer)
        }
    }
}

fn is_shutdown(code: &SqlState) -> bool {
    *code == SqlState::ADMIN_SHUTDOWN
        || *code == SqlState::CRASH_SHUTDOWN
        || *code == SqlState::CANNOT_CONNECT_NOW
}

pub(super) fn to_keyring_error(error: &tokio_postgres::Error) -> KeyringError {
    let Some(code) = error.code() else {
        return unavailable(&without_code(error));
    };
    let what = match code.code() {
        "28P01" | "28000" => "the server refuses this user or its password",
        "3D000" => "the server has no such database",
        "42501" => "the server's role lacks a privilege on the keyring's schema",
        "3F000" | "42P01" => "the keyring's schema or a table of it is missing",
        "XX001" | "XX002" => "the server reports damaged data",
        _ if code.code().starts_with("42") => "the keyring's tables are not those of this version",
        "55P03" => {
            return unavailable("another program reads the keys, so they cannot be cleared yet");
        }
        "57014" => return unavailable("the server did not answer within the deadline"),
        "25006" => return unavailable("the server only lets read: it is a standby"),
        "53300" => return unavailable("the server has no connection left"),
        "57P01" | "57P02" | "57P03" => return unavailable("the server stops or starts"),
        other => return unavailable(&format!("the server answered with code {other}")),
    };
    unusable(&format!("{what} (code {})", code.code()))
}

/// The client's own errors have fixed texts; of the system's errors the kind is enough. Only why a
/// certificate is refused has to be told.
fn without_code(error: &tokio_postgres::Error) -> String {
    let text = error.to_string();
    let Some(cause) = error.source() else {
        return text;
    };
    if text == "error performing TLS handshake" {
        return format!("{text}: {cause}");
    }
    match cause.downcast_ref::<io::Error>() {
        Some(cause) => format!("{text}: {}", cause.kind()),
        None => text,
    }
}

pub(super) fn unavailable(reason: &str) -> KeyringError {
    KeyringError::Unavailable {
        reason: format!("PostgreSQL: {reason}"),
    }
}

pub(super) fn unusable(what: &str) -> KeyringError {
    KeyringError::Unusable {
        what: what.to_owned(),
    }
}

pub(super) fn late() -> KeyringError {
    unavailable("no answer within the deadline")
}

pub(super) fn no_randomness(reason: String) -> KeyringError {
    KeyringError::Unavailable { reason }
}
