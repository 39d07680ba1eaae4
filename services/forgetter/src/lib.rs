//! The forgetter: what fades, by command.
//!
//! - [`plan`]: what should be forgotten (pure)
//! - [`service`]: the shell: look, propose
//! - [`metrics`]: what is counted

pub mod metrics;
pub mod plan;
pub mod service;
