//! Everything that is tested over a whole node in memory.

mod fencing_model;
mod simulation;
