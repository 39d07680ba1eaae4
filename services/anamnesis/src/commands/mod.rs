//! What each command does, one file each.

pub mod audit;
pub mod demo;
pub mod eval;
pub mod export;
pub mod forget;
pub mod health_check;
pub mod import;
pub mod parked;
pub mod ready;
pub mod rebuild;
pub mod review;
pub mod serve;
pub mod topics;
