//! How does the head judge what it sees?
//!
//! The judgement is a sum of whole numbers, so it is the same on every machine.

use std::sync::LazyLock;

use serde::{Deserialize, Serialize};

use super::features::{PLACES_BITS, views};

/// What stands beside the weights.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct About {
    /// [`super::features::fingerprint`] of the examples that the weights come from.
    pub examples: String,
    /// What is added to every sum.
    pub bias: i32,
}

/// A trained linear head.
pub struct Head {
    pub about: About,
    pub weights: Vec<i8>,
}

impl Head {
    pub const PLACES: usize = 1 << PLACES_BITS;

    pub fn shipped() -> &'static Self {
        static SHIPPED: LazyLock<Head> = LazyLock::new(|| {
            let about = include_str!("../../data/intent/head.toml");
            let weights = include_bytes!("../../data/intent/weights.bin");
            // A test reads both.
            Head::read(about, weights).expect("the shipped head can be read")
        });
        &SHIPPED
    }

    /// # Errors
    /// What is wrong with the data.
    pub fn read(about: &str, weights: &[u8]) -> Result<Self, String> {
        let about = toml::from_str(about).map_err(|error| error.to_string())?;
        if weights.len() != Self::PLACES {
            return Err(format!("{} weights, not {}", weights.len(), Self::PLACES));
        }
        let weights = weights.iter().map(|byte| byte.cast_signed()).collect();
        Ok(Self { about, weights })
    }

    /// Above 0 when a folded sentence asks for something to be written down: how much speaks for it at
    /// the place where most does.
    pub fn score(&self, folded: &str) -> i32 {
        let sum = |view: &Vec<u32>| -> i32 {
            let weight = |place: &u32| i32::from(self.weights[*place as usize]);
            view.iter().map(weight).sum()
        };
        // There is always one view.
        self.about.bias + views(folded).iter().map(sum).max().unwrap_or(0)
    }
}
