//! The indexer: keeps the four projections equal to the fold of `memories`.
//!
//! - [`stage`]: the shell: read, fold once, apply to each store at its own checkpoint
//! - [`metrics`]: what is counted
//!
//! What the stores should hold is [`anamnesis_pipeline::history`], which `audit diff` uses too.

pub mod metrics;
pub mod stage;
mod vectors;
