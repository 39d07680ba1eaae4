//! The validity-manager: the only writer of `memories`.
//!
//! - [`decide`]: what an input changes (pure)
//! - [`stage`]: the shell: read, decide, append, fenced by the log
//! - [`metrics`]: what is counted

pub mod decide;
pub mod metrics;
pub mod stage;
#[cfg(test)]
mod tests;
