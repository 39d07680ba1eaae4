//! The conformance suites over real servers.
