//! The vocabulary of anamnesis and everything that can be decided by plain functions: no I/O, no
//! clock, no randomness. What each file answers:
//!
//! - [`text`], [`time`], [`ids`], [`owner`]: the values that carry what was checked
//! - [`attribute`]: which attributes and kinds exist, and how each behaves (data)
//! - [`memory`]: what a claim says and what a memory is
//! - [`input`]: what a decision answers: candidates and commands, and the turns behind them
//! - [`transition`]: what a decision says
//! - [`line`]: which claims of one attribute hold when (the whole of validity)
//! - [`state`], [`evolve`]: one owner's memory and how a decision changes it (the full fold)
//! - [`skeleton`]: the fold of headers alone: chain, fencing, parking, positions
//! - [`receipt`]: what recalls, stores and stages leave behind besides decisions
//! - [`digest`]: canonical hashes of states
//! - [`tokens`], [`bm25`], [`rank`], [`decay`], [`budget`]: recall's arithmetic
//! - [`invariants`]: named predicates, checked in tests and in production

pub mod attribute;
pub mod bm25;
pub mod budget;
pub mod decay;
pub mod digest;
pub mod evolve;
pub mod ids;
pub mod input;
pub mod invariants;
pub mod line;
pub mod memory;
pub mod owner;
pub mod rank;
pub mod receipt;
pub mod skeleton;
pub mod state;
pub mod text;
pub mod time;
pub mod tokens;
pub mod transition;
