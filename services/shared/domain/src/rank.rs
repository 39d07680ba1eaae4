//! Fusion and ranking: reciprocal rank fusion, the final score, and how relevance is made comparable.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::ids::MemoryId;
use crate::memory::Permille;

/// Constant of reciprocal rank fusion (Cormack, Clarke & Büttcher 2009).
pub const RRF_K: f64 = 60.0;

/// `Σ 1/(60 + rank)` over the lists, ranks from 1; descending score, ties by id.
pub fn fuse(lists: &[Vec<MemoryId>]) -> Vec<(MemoryId, f64)> {
    let mut scores: BTreeMap<MemoryId, f64> = BTreeMap::new();
    for list in lists {
        for (place, id) in list.iter().enumerate() {
            *scores.entry(*id).or_insert(0.0) += 1.0 / (RRF_K + place as f64 + 1.0);
        }
    }
    let mut fused: Vec<(MemoryId, f64)> = scores.into_iter().collect();
    fused.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
    fused
}

/// Damping of an entity that many memories share: `1 / (1 + ln degree)`.
pub fn hub_weight(degree: u64) -> f64 {
    1.0 / (1.0 + (degree.max(1) as f64).ln())
}

/// BM25 score at which lexical relevance is one half; it makes the score comparable with a cosine.
pub const BM25_HALF: f64 = 4.0;

/// Lexical relevance in [0, 1), independent of the other results: `s / (s + k)`.
pub fn lexical_relevance(bm25: f64) -> f64 {
    bm25 / (bm25 + BM25_HALF)
}

/// A cosine stretched so that `unrelated` (what two unrelated texts of the model have) is 0 and 1 is 1.
pub fn dense_relevance(cosine: f64, unrelated: f64) -> f64 {
    ((cosine - unrelated) / (1.0 - unrelated)).clamp(0.0, 1.0)
}

/// BM25 score per word of a question from which on more of it tells nothing: about what each word gives
/// when an owner has thousands of memories and one of them says all.
pub const BM25_PER_WORD: f64 = 4.0;

/// How much of a question a BM25 score stands for, rare words counting more, in [0, 1].
pub fn lexical_strength(bm25: f64, words: usize) -> f64 {
    (bm25 / (BM25_PER_WORD * words.max(1) as f64)).clamp(0.0, 1.0)
}

/// What the legs say together, in [0, 1]: `words` by BM25, `covered` by how many of the telling words are
/// said, `meaning` by the vectors; `None` where there is no language model. They are added and not the
/// best of them taken, since two weak signs of one memory are more than one of another.
pub fn strength(words: f64, covered: f64, meaning: Option<f64>) -> f64 {
    match meaning {
        Some(meaning) => (2.0 * words + covered + 2.0 * meaning) / 5.0,
        None => (2.0 * words + covered) / 3.0,
    }
}

/// The parts of a final score, each in [0, 1] before its weight.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct ScoreParts {
    /// How strongly the memory answers, whatever else is known of it ([`strength`]).
    pub strength: f64,
    pub recency: f64,
    pub importance: f64,
    pub access: f64,
    /// The boost itself: 0 or [`PROTECTED_BOOST`].
    pub protected: f64,
}

pub const PROTECTED_BOOST: f64 = 0.05;

pub const STRENGTH_PART: f64 = 0.90;
pub const RECENCY_PART: f64 = 0.04;

impl ScoreParts {
    /// `0.90 strength + 0.04 recency + 0.05 importance + 0.01 access + protected boost`: what answers
    /// stands first, and what else is known decides among memories that answer about as well.
    pub fn final_score(self) -> f64 {
        STRENGTH_PART * self.strength
            + RECENCY_PART * self.recency
            + 0.05 * self.importance
            + 0.01 * self.access
            + self.protected
    }
}

/// Parts from plain values; see [`crate::decay`] for recency and access.
pub fn parts(
    strength: f64,
    recency: f64,
    importance: Permille,
    access: f64,
    is_protected: bool,
) -> ScoreParts {
    ScoreParts {
        strength,
        recency,
        importance: importance.share(),
        access,
        protected: if is_protected { PROTECTED_BOOST } else { 0.0 },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(n: u8) -> MemoryId {
        MemoryId::from_bytes([n; 16])
    }

    #[test]
    fn two_legs_that_agree_win() {
        let fused = fuse(&[vec![id(1), id(2)], vec![id(3), id(2)]]);
        assert_eq!(
            fused.iter().map(|(id, _)| *id).collect::<Vec<_>>(),
            [id(2), id(1), id(3)]
        );
        assert!((fused[0].1 - 2.0 / 62.0).abs() < 1e-12);
    }

    #[test]
    fn the_formula_adds_up() {
        let parts = parts(1.0, 1.0, Permille::ONE, 1.0, true);
        assert!((parts.final_score() - 1.05).abs() < 1e-12);
    }

    #[test]
    fn relevance_never_depends_on_the_list() {
        assert!((lexical_relevance(BM25_HALF) - 0.5).abs() < 1e-12);
        assert_eq!(dense_relevance(0.3, 0.3), 0.0);
        assert_eq!(lexical_strength(8.0, 2), 1.0);
        assert_eq!(lexical_strength(4.0, 2), 0.5);
    }

    #[test]
    fn two_weak_signs_are_more_than_one() {
        assert!(strength(0.5, 0.5, Some(0.5)) > strength(0.8, 0.0, Some(0.0)));
        assert_eq!(strength(1.0, 1.0, None), 1.0);
    }
}
