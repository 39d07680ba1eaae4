//! The binary's parts: what is configured, what is asked, what is logged.

pub mod cli;
pub mod config;
pub mod decay_curve;
pub mod telemetry;
