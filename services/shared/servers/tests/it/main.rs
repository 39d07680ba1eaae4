//! The conformance suites over real servers.
mod neo4j;
mod postgres;

mod kafka;
mod qdrant;
mod registry;
mod shard;
mod site;
