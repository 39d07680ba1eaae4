//! Answers questions from memory: understands the question, asks three legs at once, fuses them, has
//! the authority check every memory, scores, and says so when it does not know.
//!
//! - [`request`]: what a caller may ask
//! - [`understand`], `asked`, `cues`, `days`, `terms`, `opposites`: what the question is about, and how much of it a
//!   memory says
//! - `reach`, `relatives`: which memories may answer at all
//! - `legs`, `fuse`: what the stores propose; `authority`: what is confirmed of it
//! - [`score`], [`select`], `latest`: how good each is, which are the answer, and in which order
//! - [`answer`], [`context`], [`compose`]: what the caller gets
//! - `turns`: which turns must be silent, because what they said is over or told already
//! - [`kept`]: what a receipt keeps of an answer, and whether the question is answered the same again
//! - [`reviews`]: what waits for a person
//! - [`service`], `receipts`, `wait`, [`admission`]: the shell around these
//! - [`http`]: the calls

// A problem document is made once per refused request; boxing it would only make reading harder.
#![allow(clippy::result_large_err)]

pub mod admission;
pub mod answer;
pub mod compose;
pub mod context;
pub mod http;
pub mod kept;
pub mod metrics;
pub mod receipts;
pub mod request;
pub mod reviews;
pub mod score;
pub mod select;
pub mod service;
pub mod understand;

mod asked;
mod authority;
mod cues;
mod days;
mod fuse;
mod latest;
mod legs;
mod opposites;
mod reach;
mod relatives;
mod terms;
mod turns;
mod wait;

#[cfg(test)]
mod fixture;
#[cfg(test)]
mod tests_beside;
#[cfg(test)]
mod tests_receipts;
#[cfg(test)]
mod tests_service;
#[cfg(test)]
mod tests_turns;
#[cfg(test)]
mod world;
