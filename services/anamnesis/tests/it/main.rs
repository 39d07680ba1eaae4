//! One binary for everything that needs the whole product: each further one would link it all again.

mod commands;
mod crash;
mod erasure;
mod http;
mod node;
mod privacy;
mod readiness;
mod real_data;
mod refusals;
mod stores;
mod stories;
mod story;
mod tamper;
mod tidy;
mod variants;
mod watch;
