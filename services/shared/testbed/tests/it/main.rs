//! Everything that is tested over a whole node in memory.

mod erasure;
mod fencing_model;
mod inbox;
mod ledger;
mod model;
mod parking;
mod simulation;
mod stories;
mod talk;
