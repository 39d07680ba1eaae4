//! A whole node in memory, stories for it, misfortunes, and oracles that say what must come out.
//!
//! - [`world`]: the node; [`spec`]: what is said, in short lines
//! - [`workload`], [`play`]: seeded stories, and how they reach the log
//! - [`faults`], [`simulation`]: what goes wrong, and one seed with everything that must hold
//! - [`scenario`]: files that a clinician can read, played over doubles and over real stores
//! - [`naive`]: a second, independent opinion of what should be believed

pub mod faults;
pub mod naive;
pub mod play;
pub mod scenario;
pub mod simulation;
pub mod spec;
pub mod workload;
pub mod world;
