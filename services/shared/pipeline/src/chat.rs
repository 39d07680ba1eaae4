//! One question to a language model, and one answer or the reason why there is none.

use std::sync::Arc;
use std::time::Duration;

use anamnesis_domain::text::Text;
use async_trait::async_trait;

/// The form that an answer must have.
#[derive(Clone, PartialEq, Debug)]
pub struct AnswerSchema {
    /// Letters, digits, `_` and `-`.
    pub name: String,
    /// A JSON schema in the subset that servers with constrained decoding share: every property is
    /// required, no others are allowed, no bounds.
    pub json: serde_json::Value,
}

/// What a model is asked. The same question is asked in the same bytes.
#[derive(Clone, PartialEq, Debug)]
pub struct ChatRequest {
    /// What it shall do.
    pub system: Arc<str>,
    /// What it shall do it with.
    pub user: Text,
    pub schema: Arc<AnswerSchema>,
    /// The model stops after so many tokens; the answer is then cut off.
    pub answer_tokens_max: u32,
}

/// What a model answered.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ChatAnswer {
    /// The whole answer, as it came. It may be anything.
    pub content: Text,
    /// Which model says that it answered; the asked one when it says nothing.
    pub model: String,
    pub prompt_tokens: u32,
    pub completion_tokens: u32,
}

/// Why there is no answer. Says nothing of what was asked or answered.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ChatError {
    #[error("the model did not answer in time")]
    Timeout,
    #[error("the model cannot be reached: {reason}")]
    Unreachable { reason: String },
    #[error("the model has too many questions (429)")]
    Busy { retry_after: Option<Duration> },
    #[error("the model's server fails ({status})")]
    Failing {
        status: u16,
        retry_after: Option<Duration>,
    },
    /// The question, the credentials or the address are wrong.
    #[error("the model's server refuses the question ({status})")]
    Refused { status: u16 },
    #[error("the answer is longer than {bytes_max} bytes")]
    TooLong { bytes_max: usize },
    /// Not what the protocol says.
    #[error("the model's server answers something else")]
    NotAnAnswer,
    /// The protocol's form with nothing in it.
    #[error("the answer is empty")]
    Empty,
    /// The model, or a filter before it, does not want to answer.
    #[error("the model declines")]
    Declined,
}

impl ChatError {
    /// Every [`ChatError::code`].
    pub const CODES: [&str; 9] = [
        "timeout",
        "unreachable",
        "busy",
        "server_failing",
        "refused",
        "answer_too_long",
        "not_an_answer",
        "empty_answer",
        "declined",
    ];

    /// Stable code, in records and metrics.
    pub const fn code(&self) -> &'static str {
        match self {
            Self::Timeout => "timeout",
            Self::Unreachable { .. } => "unreachable",
            Self::Busy { .. } => "busy",
            Self::Failing { .. } => "server_failing",
            Self::Refused { .. } => "refused",
            Self::TooLong { .. } => "answer_too_long",
            Self::NotAnAnswer => "not_an_answer",
            Self::Empty => "empty_answer",
            Self::Declined => "declined",
        }
    }

    /// Whether asking the same again may help. At temperature 0 a bad answer comes again.
    pub const fn is_retryable(&self) -> bool {
        match self {
            Self::Timeout | Self::Unreachable { .. } | Self::Busy { .. } | Self::Failing { .. } => {
                true
            }
            Self::Refused { .. }
            | Self::TooLong { .. }
            | Self::NotAnAnswer
            | Self::Empty
            | Self::Declined => false,
        }
    }

    /// Whether this tells that the model's server is not well, whatever it is asked.
    pub const fn is_outage(&self) -> bool {
        match self {
            Self::Refused { status } => matches!(status, 401 | 403 | 404),
            Self::Timeout
            | Self::Unreachable { .. }
            | Self::Busy { .. }
            | Self::Failing { .. }
            | Self::TooLong { .. }
            | Self::NotAnAnswer
            | Self::Empty
            | Self::Declined => self.is_retryable(),
        }
    }

    /// How long the server wants to be left alone.
    pub const fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Busy { retry_after } | Self::Failing { retry_after, .. } => *retry_after,
            Self::Timeout
            | Self::Unreachable { .. }
            | Self::Refused { .. }
            | Self::TooLong { .. }
            | Self::NotAnAnswer
            | Self::Empty
            | Self::Declined => None,
        }
    }
}

/// Contract: one try per call, within the implementation's own time limit; temperature 0; nothing of
/// question or answer in an error or a log.
#[async_trait]
pub trait ChatModel: Send + Sync {
    /// The model that is asked for.
    fn model(&self) -> &str;

    async fn complete(&self, request: &ChatRequest) -> Result<ChatAnswer, ChatError>;
}

pub type Chat = Arc<dyn ChatModel>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_error_has_a_code_of_the_list() {
        let all = [
            ChatError::Timeout,
            ChatError::Unreachable {
                reason: String::new(),
            },
            ChatError::Busy { retry_after: None },
            ChatError::Failing {
                status: 500,
                retry_after: None,
            },
            ChatError::Refused { status: 400 },
            ChatError::TooLong { bytes_max: 1 },
            ChatError::NotAnAnswer,
            ChatError::Empty,
            ChatError::Declined,
        ];
        assert_eq!(all.map(|error| error.code()), ChatError::CODES);
    }
}
