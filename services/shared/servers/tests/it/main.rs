//! The conformance suites over real servers.
mod neo4j;
