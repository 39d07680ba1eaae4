//! The wire contract: the only place that knows Avro.
//!
//! Every payload on the log is an [`Envelope`]: a [`Header`] in clear and parts, each a [`PartHeader`]
//! in clear with a [`Body`] that is sealed (sealing itself is not done here). What each file answers:
//!
//! - `registry`: which schemas exist (every version ever written, under `avro/`)
//! - `datum`: how one record becomes bytes and comes back, bounded and without panic
//! - `envelope`, `header`: what is said in clear, and what bodies are bound to
//! - `body`, with `turn`, `command`, `transition`, `claim`, `shared`: from domain values to bodies
//! - `foreign`: what platforms wrote by schemas of their own
//! - `scalar`: the named fixed types, and the checks that Avro cannot express

mod body;
mod claim;
mod command;
mod datum;
mod envelope;
mod error;
mod foreign;
mod header;
mod registry;
mod scalar;
mod shared;
mod transition;
mod turn;

#[cfg(test)]
#[allow(
    clippy::wildcard_enum_match_arm,
    reason = "Avro's enums are wide; a test names what it expects"
)]
mod contract;
#[cfg(test)]
mod samples;

pub use body::Body;
pub use datum::{READS_MAX, RECORD_BYTES_MAX};
pub use envelope::{Envelope, Part, PartHeader, associated_data};
pub use error::WireError;
pub use foreign::{ForeignError, ForeignSchema, SCHEMA_BYTES_MAX};
pub use header::{
    AccessHeader, DecidedHeader, EmbeddingHeader, Header, IdentityHeader, InputHeader,
    WriterStartedHeader,
};
pub use registry::{Fingerprint, Published, Record, find, published};
