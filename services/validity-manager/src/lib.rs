//! The validity-manager: the only writer of `memories`.
//!
//! - [`decide`]: what an input changes (pure)

pub mod decide;
#[cfg(test)]
mod tests;
