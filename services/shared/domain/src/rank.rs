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

/// The parts of a final score (`domain.md` §5), each in [0, 1] before its weight.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct ScoreParts {
    pub relevance: f64,
    pub recency: f64,
    pub importance: f64,
    pub access: f64,
    /// The boost itself: 0 or [`PROTECTED_BOOST`].
    pub protected: f64,
}

pub const PROTECTED_BOOST: f64 = 0.10;

impl ScoreParts {
    /// `0.55 relevance + 0.20 recency + 0.20 importance + 0.05 access + protected boost`.
    pub fn final_score(self) -> f64 {
        0.55 * self.relevance
            + 0.20 * self.recency
            + 0.20 * self.importance
            + 0.05 * self.access
            + self.protected
    }
}

/// Parts from plain values; see [`crate::decay`] for recency and access.
pub fn parts(
    relevance: f64,
    recency: f64,
    importance: Permille,
    access: f64,
    is_protected: bool,
) -> ScoreParts {
    ScoreParts {
        relevance,
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
        assert!((parts.final_score() - 1.1).abs() < 1e-12);
    }

    #[test]
    fn relevance_never_depends_on_the_list() {
        assert!((lexical_relevance(BM25_HALF) - 0.5).abs() < 1e-12);
        assert_eq!(dense_relevance(0.3, 0.3), 0.0);
    }
}
