//! How does the head judge what it sees?
//!
//! Two linear heads that err on different sentences, added up: one for the place in the sentence where most
//! speaks for a request, one for the sentence as it is written. The judgement is a sum of whole numbers, so
//! it is the same on every machine.

use std::sync::LazyLock;

use serde::{Deserialize, Serialize};

use super::features::views;
use super::{features, whole};

/// What stands beside the weights.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct About {
    /// [`features::fingerprint`] of the examples that the weights come from.
    pub examples: String,
    /// What is added to every sum.
    pub bias: i32,
}

/// A trained head.
pub struct Head {
    pub about: About,
    /// Of [`features::views`].
    pub near: Vec<i8>,
    /// Of [`whole::parts`].
    pub whole: Vec<i8>,
}

impl Head {
    pub const NEAR_PLACES: usize = 1 << features::PLACES_BITS;
    pub const WHOLE_PLACES: usize = 1 << whole::PLACES_BITS;

    pub fn shipped() -> &'static Self {
        static SHIPPED: LazyLock<Head> = LazyLock::new(|| {
            let about = include_str!("../../data/intent/head.toml");
            let near = include_bytes!("../../data/intent/near.bin");
            let whole = include_bytes!("../../data/intent/whole.bin");
            // A test reads all three.
            Head::read(about, near, whole).expect("the shipped head can be read")
        });
        &SHIPPED
    }

    /// # Errors
    /// What is wrong with the data.
    pub fn read(about: &str, near: &[u8], whole: &[u8]) -> Result<Self, String> {
        let about = toml::from_str(about).map_err(|error| error.to_string())?;
        for (weights, wanted) in [(near, Self::NEAR_PLACES), (whole, Self::WHOLE_PLACES)] {
            if weights.len() != wanted {
                return Err(format!("{} weights, not {wanted}", weights.len()));
            }
        }
        let signed = |weights: &[u8]| weights.iter().map(|byte| byte.cast_signed()).collect();
        Ok(Self {
            about,
            near: signed(near),
            whole: signed(whole),
        })
    }

    /// Above 0 when a folded sentence asks for something to be written down.
    pub fn score(&self, folded: &str) -> i32 {
        let sum = |weights: &[i8], places: &[u32]| -> i32 {
            let weight = |place: &u32| i32::from(weights[*place as usize]);
            places.iter().map(weight).sum()
        };
        let views = views(folded);
        let near = views.iter().map(|view| sum(&self.near, view)).max();
        // There is always one view.
        near.unwrap_or(0) + sum(&self.whole, &whole::parts(folded)) + self.about.bias
    }
}
