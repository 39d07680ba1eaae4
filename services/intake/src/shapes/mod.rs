//! One file per family of shapes: from a JSON value to a draft.
//!
//! A shape that names no source gets its family's: event ids are unique within a source only, and one
//! completion may arrive both as such and as the telemetry about it.

pub(crate) mod anthropic;
pub(crate) mod cloudevents;
pub(crate) mod content;
pub(crate) mod fhir;
pub(crate) mod langgraph;
pub(crate) mod native;
pub(crate) mod openai;
pub(crate) mod telemetry;
