//! How alike two vectors are, and which hits of a leg come first: one answer for every backend, bit for
//! bit.

use std::cmp::Ordering;

use crate::stores::Hit;

/// Partial sums that are kept side by side, so that the compiler can use vector instructions. Part of
/// the result: another number of lanes rounds differently.
const LANES: usize = 16;

/// Dot product of two vectors of equal length: their cosine when both have length one.
///
/// Lane `i` adds the components `i`, `i + 16`, `i + 32`, … in order, in `f32`; then the lanes are added
/// in order. Every backend scores with this function, so that live, rebuilt and replayed answers agree.
pub fn dot(a: &[f32], b: &[f32]) -> f32 {
    debug_assert_eq!(a.len(), b.len());
    let mut lanes = [0.0f32; LANES];
    let (mut left, mut right) = (a.chunks_exact(LANES), b.chunks_exact(LANES));
    for (x, y) in (&mut left).zip(&mut right) {
        for lane in 0..LANES {
            lanes[lane] += x[lane] * y[lane];
        }
    }
    for (lane, (x, y)) in left.remainder().iter().zip(right.remainder()).enumerate() {
        lanes[lane] += x * y;
    }
    lanes.iter().sum()
}

/// The first `top` hits: descending score, ties by memory id, then the newer version.
pub fn best(mut hits: Vec<Hit>, top: usize) -> Vec<Hit> {
    // Most of some thousand hits are not asked for: they need no order among themselves.
    if top > 0 && top < hits.len() {
        hits.select_nth_unstable_by(top - 1, order);
    }
    hits.truncate(top);
    hits.sort_unstable_by(order);
    hits
}

fn order(a: &Hit, b: &Hit) -> Ordering {
    let by_score = b.score.total_cmp(&a.score);
    by_score
        .then(a.memory_id.cmp(&b.memory_id))
        .then(b.version.cmp(&a.version))
}

#[cfg(test)]
mod tests {
    use anamnesis_domain::ids::MemoryId;

    use super::*;

    #[test]
    fn a_product_counts_every_component_once() {
        for length in [0usize, 1, 15, 16, 17, 384] {
            let ones = vec![1.0f32; length];
            assert_eq!(dot(&ones, &ones), length as f32, "{length}");
        }
        assert_eq!(dot(&[0.6, 0.8], &[0.6, -0.8]), 0.6f32 * 0.6 - 0.8 * 0.8);
    }

    #[test]
    fn equal_scores_are_told_apart_by_id() {
        let hit = |id: u8, score| Hit {
            memory_id: MemoryId::from_bytes([id; 16]),
            version: 1,
            score,
        };
        let hits = best(vec![hit(3, 0.5), hit(1, 0.5), hit(2, 0.9), hit(4, 0.1)], 3);
        let order: Vec<u8> = hits.iter().map(|hit| hit.memory_id.bytes()[0]).collect();
        assert_eq!(order, [2, 1, 3]);
    }
}
