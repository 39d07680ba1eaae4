//! The conformance suites over real servers.

mod qdrant;
