//! How much of a context window may be spent on what.

use serde::{Deserialize, Serialize};

/// Token budgets of one window: system 16 %, history 30 %, tools 38 %, recall 16 % of what is usable.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Budget {
    pub system: u32,
    pub history: u32,
    pub tools: u32,
    pub recall: u32,
}

impl Budget {
    pub fn of(usable_tokens: u32) -> Self {
        let share = |percent: u64| (u64::from(usable_tokens) * percent / 100) as u32;
        Self {
            system: share(16),
            history: share(30),
            tools: share(38),
            recall: share(16),
        }
    }
}

/// Indices of the items that fit, taken in the given order; an item that does not fit is left out
/// whole and later, smaller ones may still fit.
pub fn fill(costs: &[u32], budget: u32) -> Vec<usize> {
    let mut left = budget;
    let mut taken = Vec::new();
    for (index, cost) in costs.iter().enumerate() {
        if *cost <= left {
            left -= cost;
            taken.push(index);
        }
    }
    taken
}

/// Tokens of a text by a rule of thumb that never undercounts common tokenizers by much: one per Han
/// character, one per three other characters.
pub fn estimate_tokens(text: &str) -> u32 {
    let (mut han, mut other) = (0u32, 0u32);
    for c in text.chars() {
        if crate::tokens::is_han(c) {
            han += 1
        } else {
            other += 1
        }
    }
    han + other.div_ceil(3)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_add_up_to_the_window() {
        let budget = Budget::of(10_000);
        assert_eq!(
            budget,
            Budget {
                system: 1600,
                history: 3000,
                tools: 3800,
                recall: 1600
            }
        );
    }

    #[test]
    fn nothing_is_cut_in_half() {
        assert_eq!(fill(&[5, 7, 3], 9), [0, 2]);
        assert_eq!(fill(&[5], 0), [] as [usize; 0]);
    }

    #[test]
    fn han_costs_a_token_a_character() {
        assert_eq!(estimate_tokens("花生过敏 ab"), 5);
    }
}
