//! The binary's parts.
//!
//! - [`cli`], [`config`]: what is asked, what is configured
//! - [`role`], [`base`], [`node`], [`generations`], [`services`]: what is opened for which part of the
//!   system, and what runs over it
//! - [`commands`]: what each command does; [`failure`]: how it fails
//! - [`audit_http`], [`operations`], [`requests`]: calls that no service has of its own, and how all are
//!   answered
//! - [`watch`], [`drift`], [`exposition`], [`metrics`]: what is published, and where it comes from
//! - [`eval`]: evaluation sets
//! - [`telemetry`], [`decay_curve`], [`out`]: lines of the log, a table, what a command says

// They panic when nobody reads any more; `say!` and `complain!` do not.
#![warn(clippy::print_stdout, clippy::print_stderr)]

mod assemble;
pub mod audit_http;
pub mod base;
mod behind;
pub mod cli;
pub mod commands;
pub mod config;
pub mod decay_curve;
mod door;
pub mod drift;
pub mod eval;
pub mod exposition;
pub mod failure;
pub mod generations;
pub mod metrics;
pub mod node;
pub mod operations;
pub mod out;
mod query_reader;
pub mod readiness;
pub mod requests;
pub mod role;
pub mod services;
mod settle;
pub mod telemetry;
pub mod watch;
