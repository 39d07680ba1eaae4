//! The conformance suites over real servers.

mod kafka;
