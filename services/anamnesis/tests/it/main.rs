//! One binary for everything that needs the whole product: each further one would link it all again.

// The future of a test that drives a whole node nests deeper than the default allows.
#![recursion_limit = "256"]

mod commands;
mod crash;
mod deploy;
mod erasure;
mod every_path;
mod fleet;
mod fleet_crash;
mod fleet_generations;
mod fleet_outage;
mod fleet_stories;
mod fleet_story;
mod http;
mod listeners;
mod long_talk;
mod model;
mod node;
mod overload;
mod poisoned;
mod privacy;
mod readiness;
mod real_data;
mod refusals;
mod self_described;
mod stores;
mod stories;
mod story;
mod swapped_model;
mod tamper;
mod tidy;
mod variants;
mod watch;
