//! A whole node in memory, stories for it, misfortunes, and oracles that say what must come out.
//!
//! - [`world`]: the node; [`spec`]: what is said, in short lines
//! - [`workload`], [`play`]: seeded stories, and how they reach the log
//! - [`faults`], [`simulation`]: what goes wrong, and one seed with everything that must hold
//! - [`story`]: what was said and is then told, step by step, in files that a clinician can read
//! - [`naive`]: a second, independent opinion of what should be believed

pub mod faults;
pub mod naive;
pub mod play;
pub mod simulation;
pub mod spec;
pub mod story;
pub mod workload;
pub mod world;
