//! Implementations of the ports that need a file, an engine or a model: all heavy dependencies.
//!
//! - [`sqlite_log`]: the log in one SQLite file
//! - [`sqlite_keyring`], [`master_key`]: the keys that open it, and the key that opens those
//! - [`folder`]: who owns a data folder
//! - [`records`], [`vectors`], [`graph`]: the authority and two legs, one SQLite file each
//! - [`text`]: the third leg, on tantivy
//! - [`onnx_embedder`]: language models in this process; [`query_cache`]: questions asked again

pub mod folder;
pub mod graph;
pub mod onnx_embedder;
mod owner_cache;
pub mod query_cache;
pub mod records;
pub mod sqlite_keyring;
pub mod sqlite_log;
mod sqlite_store;
pub mod text;
pub mod vectors;

pub use anamnesis_pipeline::keyring::master_key;
