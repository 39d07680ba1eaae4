//! How a command fails: a sentence for the person at the terminal and an exit code for scripts.

use std::fmt;

use anamnesis_intake::inbox::InboxError;
use anamnesis_intake::service::IntakeError;
use anamnesis_pipeline::codec::CodecError;
use anamnesis_pipeline::consumer::StageError;
use anamnesis_pipeline::keyring::KeyringError;
use anamnesis_pipeline::log::LogError;
use anamnesis_pipeline::stores::StoreError;

use crate::cli::Exit;
use crate::config::ConfigError;
use crate::node::NodeError;

#[derive(Debug)]
pub struct Failure {
    what: String,
    exit: Exit,
    /// Trying again helps once a server can be reached, and not while another process has a folder.
    is_passing: bool,
}

impl Failure {
    pub fn wrong_use(what: impl fmt::Display) -> Self {
        Self {
            what: what.to_string(),
            exit: Exit::WrongUse,
            is_passing: false,
        }
    }

    pub fn unreachable(what: impl fmt::Display) -> Self {
        Self {
            what: what.to_string(),
            exit: Exit::Unreachable,
            is_passing: false,
        }
    }

    pub fn does_not_hold(what: impl fmt::Display) -> Self {
        Self {
            what: what.to_string(),
            exit: Exit::DoesNotHold,
            is_passing: false,
        }
    }

    pub fn exit(&self) -> Exit {
        self.exit
    }

    /// Whether a service that meets it at its start waits and tries again.
    pub fn is_passing(&self) -> bool {
        self.is_passing
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)
    }
}

/// A message with its causes.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            text.push_str(": ");
            text.push_str(&cause_text);
        }
        source = cause.source();
    }
    text
}

impl From<ConfigError> for Failure {
    fn from(error: ConfigError) -> Self {
        Self::wrong_use(chain(&error))
    }
}

fn log_exit(error: &LogError) -> Exit {
    match error {
        LogError::Corrupt { .. } | LogError::OutOfRange { .. } => Exit::DoesNotHold,
        LogError::NoPartition { .. } | LogError::TooLarge { .. } | LogError::Unusable { .. } => {
            Exit::WrongUse
        }
        LogError::Unknown { .. } | LogError::Unavailable { .. } | LogError::InUse { .. } => {
            Exit::Unreachable
        }
    }
}

fn keyring_exit(error: &KeyringError) -> Exit {
    match error {
        KeyringError::Unavailable { .. } | KeyringError::InUse { .. } => Exit::Unreachable,
        KeyringError::Destroyed
        | KeyringError::Unknown
        | KeyringError::WrongMasterKey
        | KeyringError::Unusable { .. } => Exit::WrongUse,
    }
}

fn store_exit(error: &StoreError) -> Exit {
    match error {
        StoreError::Unavailable { .. } | StoreError::InUse { .. } => Exit::Unreachable,
        StoreError::Damaged { .. } | StoreError::Moved { .. } => Exit::DoesNotHold,
        StoreError::OtherLog { .. }
        | StoreError::OtherModel { .. }
        | StoreError::Unusable { .. } => Exit::WrongUse,
    }
}

impl From<LogError> for Failure {
    fn from(error: LogError) -> Self {
        Self {
            exit: log_exit(&error),
            is_passing: error.is_retryable(),
            what: chain(&error),
        }
    }
}

impl From<KeyringError> for Failure {
    fn from(error: KeyringError) -> Self {
        Self {
            exit: keyring_exit(&error),
            is_passing: error.is_retryable(),
            what: chain(&error),
        }
    }
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        Self {
            exit: store_exit(&error),
            is_passing: error.is_retryable(),
            what: chain(&error),
        }
    }
}

impl From<CodecError> for Failure {
    fn from(error: CodecError) -> Self {
        match error {
            CodecError::Keyring(error) => error.into(),
            other @ (CodecError::Undecodable { .. }
            | CodecError::Unwritable(_)
            | CodecError::Unsealable
            | CodecError::Unprepared
            | CodecError::NoRandomness) => Self::does_not_hold(chain(&other)),
        }
    }
}

impl From<StageError> for Failure {
    fn from(error: StageError) -> Self {
        match error {
            StageError::Log(error) => error.into(),
            StageError::Keyring(error) => error.into(),
            StageError::Store(error) => error.into(),
            StageError::Codec(error) => error.into(),
            other @ (StageError::Embed(_) | StageError::Fenced { .. }) => {
                Self::unreachable(chain(&other))
            }
            other @ StageError::Broken { .. } => Self::does_not_hold(chain(&other)),
        }
    }
}

impl From<NodeError> for Failure {
    fn from(error: NodeError) -> Self {
        match error {
            NodeError::Log(error) => error.into(),
            NodeError::Keyring(error) => error.into(),
            NodeError::Store(error) => error.into(),
            NodeError::Stage(error) => error.into(),
            other @ (NodeError::Embed(_)
            | NodeError::Generations(_)
            | NodeError::MasterKey(_)
            | NodeError::WrongUse { .. }) => Self::wrong_use(chain(&other)),
            other @ (NodeError::Io { .. } | NodeError::Stopped { .. }) => {
                Self::unreachable(chain(&other))
            }
        }
    }
}

impl From<IntakeError> for Failure {
    fn from(error: IntakeError) -> Self {
        match error {
            IntakeError::Log(error) => error.into(),
            IntakeError::Codec(error) => error.into(),
            IntakeError::Keyring(error) => error.into(),
            IntakeError::Store(error) => error.into(),
            IntakeError::Refused(problem) => Self::wrong_use(problem.detail),
            other @ IntakeError::NoRandomness => Self::unreachable(chain(&other)),
        }
    }
}

impl From<InboxError> for Failure {
    fn from(error: InboxError) -> Self {
        match error {
            InboxError::Log(error) => error.into(),
            InboxError::Intake(error) => error.into(),
            InboxError::Codec(error) => error.into(),
            InboxError::Keyring(error) => error.into(),
            other @ InboxError::Registry(_) => Self::unreachable(chain(&other)),
            other @ InboxError::OutOfRange { .. } => Self::does_not_hold(chain(&other)),
        }
    }
}
