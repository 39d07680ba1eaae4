//! The way in and the privacy boundary: from what platforms send to sealed records on the log.
//!
//! - [`normalise`]: which messages an event of any accepted shape holds (pure)
//! - [`import`]: which messages a line of a file holds (pure)
//! - [`redact`]: what identifies somebody by a number (pure)
//! - [`request`]: what a write call may say (pure)
//! - [`service`]: the shell: scope, consent, quarantine, redaction, sealing, append
//! - [`inbox`]: the same events out of Kafka
//! - [`commands`]: from what a caller wants done to a command record
//! - [`http`]: the same as HTTP calls
//! - [`caps`], [`metrics`]: limits with their reasons; what is counted

pub mod caps;
pub mod commands;
pub mod http;
mod identifiers;
pub mod import;
pub mod inbox;
pub mod message;
pub mod metrics;
pub mod normalise;
mod read;
pub mod redact;
pub mod request;
pub mod service;
mod shapes;
#[cfg(test)]
mod world;
