//! The way in and the privacy boundary: from what platforms send to sealed records on the log.
//!
//! - [`normalise`]: which messages an event of any accepted shape holds (pure)
//! - [`import`]: which messages a line of a file holds (pure)
//! - [`redact`]: what identifies somebody by a number (pure)

pub mod caps;
mod identifiers;
pub mod import;
pub mod message;
pub mod normalise;
mod read;
pub mod redact;
mod shapes;
