//! Which part of the system is this process?

use std::fmt;

use crate::metrics::By;

/// One service, all of them, or a command that looks at what they made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Role {
    /// Every service in one process.
    All,
    Intake,
    Extractor,
    ValidityManager,
    Indexer,
    Forgetter,
    Recall,
    /// A command beside running services.
    Tool,
}

impl Role {
    pub const fn name(self) -> &'static str {
        match self {
            Self::All => "serve",
            Self::Intake => "intake",
            Self::Extractor => "extractor",
            Self::ValidityManager => "validity-manager",
            Self::Indexer => "indexer",
            Self::Forgetter => "forgetter",
            Self::Recall => "recall",
            Self::Tool => "tool",
        }
    }

    /// Whose counters start at 0 in this process.
    pub const fn counts(self) -> &'static [By] {
        match self {
            Self::All => &By::ALL,
            Self::Intake => &[By::Intake],
            Self::Extractor => &[By::Extractor],
            Self::ValidityManager => &[By::Manager],
            Self::Indexer => &[By::Indexer],
            Self::Forgetter => &[By::Forgetter],
            Self::Recall => &[By::Recall],
            Self::Tool => &[],
        }
    }

    /// Whether it applies the log to the stores.
    pub const fn writes_stores(self) -> bool {
        match self {
            Self::All | Self::Indexer => true,
            Self::Intake
            | Self::Extractor
            | Self::ValidityManager
            | Self::Forgetter
            | Self::Recall
            | Self::Tool => false,
        }
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
