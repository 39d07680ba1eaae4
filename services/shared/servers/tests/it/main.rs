//! The conformance suites over real servers.
mod neo4j;
mod postgres;

mod chat;
mod embeddings;
mod kafka;
mod model;
mod qdrant;
mod registry;
mod shard;
mod site;
