//! The conformance suites over real servers.
mod postgres;
mod neo4j;

mod qdrant;
mod kafka;
