//! The calls as a caller sees them.
