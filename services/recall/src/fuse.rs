//! Which fifty memories do the legs propose together, and at which place did each leg see them?

use std::collections::BTreeMap;

use anamnesis_domain::ids::MemoryId;
use anamnesis_domain::rank;
use anamnesis_pipeline::stores::Hit;

/// How many fused memories go on to the authority (`domain.md` §5).
pub(crate) const FUSED_MAX: usize = 50;

/// What the legs said of one memory. Places count from 1.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub(crate) struct Evidence {
    /// Place and BM25 score.
    pub text: Option<(usize, f64)>,
    /// Place and cosine.
    pub vector: Option<(usize, f64)>,
    pub graph: Option<usize>,
}

/// The most that a leg can think of a memory that it did not name: its last score when its list is full,
/// and nothing otherwise. A memory that the other leg found is not as good as unrelated for it.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub(crate) struct AtMost {
    pub bm25: f64,
    pub cosine: Option<f64>,
}

impl AtMost {
    pub(crate) fn of(text: &[Hit], vector: &[Hit]) -> Self {
        let last = |hits: &[Hit]| hits.get(FUSED_MAX - 1).map(|hit| hit.score);
        Self {
            bm25: last(text).unwrap_or_default(),
            cosine: last(vector),
        }
    }
}

/// Reciprocal rank fusion of the legs' hits; what only the graph or only one leg found is in it too. A
/// place among the vectors' hits counts as far as they are believed (`trust`, 0 to 1): where they tell little,
/// half of the fifty would otherwise be theirs.
pub(crate) fn fuse(
    text: &[Hit],
    vector: &[Hit],
    graph: &[Hit],
    trust: f64,
) -> Vec<(MemoryId, Evidence)> {
    let mut evidence: BTreeMap<MemoryId, Evidence> = BTreeMap::new();
    for (place, hit) in text.iter().enumerate() {
        evidence.entry(hit.memory_id).or_default().text = Some((place + 1, hit.score));
    }
    for (place, hit) in vector.iter().enumerate() {
        evidence.entry(hit.memory_id).or_default().vector = Some((place + 1, hit.score));
    }
    for (place, hit) in graph.iter().enumerate() {
        evidence.entry(hit.memory_id).or_default().graph = Some(place + 1);
    }
    let ids = |hits: &[Hit]| hits.iter().map(|hit| hit.memory_id).collect::<Vec<_>>();
    let mut fused = rank::fuse(&[ids(text), ids(graph)]);
    let words: BTreeMap<MemoryId, f64> = fused.iter().copied().collect();
    let near: BTreeMap<MemoryId, f64> = rank::fuse(&[ids(vector)]).into_iter().collect();
    for (id, score) in &mut fused {
        *score += trust * near.get(id).copied().unwrap_or_default();
    }
    let only_near = near.into_iter().filter(|(id, _)| !words.contains_key(id));
    fused.extend(only_near.map(|(id, score)| (id, trust * score)));
    fused.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
    let known = |id: MemoryId| evidence.get(&id).copied().unwrap_or_default();
    fused
        .into_iter()
        .take(FUSED_MAX)
        .map(|(id, _)| (id, known(id)))
        .collect()
}

/// Hits of one leg over several filters as one list: the filters admit different memories, and the
/// scores are comparable, since the statistics are those of the owner and not of the filter.
pub(crate) fn merge(lists: Vec<Vec<Hit>>) -> Vec<Hit> {
    let mut hits: Vec<Hit> = lists.into_iter().flatten().collect();
    hits.sort_by(|a, b| {
        b.score
            .total_cmp(&a.score)
            .then(a.memory_id.cmp(&b.memory_id))
    });
    let mut seen = std::collections::BTreeSet::new();
    hits.retain(|hit| seen.insert(hit.memory_id));
    hits.truncate(FUSED_MAX);
    hits
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hit(id: u8, score: f64) -> Hit {
        Hit {
            memory_id: MemoryId::from_bytes([id; 16]),
            version: 1,
            score,
        }
    }

    #[test]
    fn a_place_in_each_leg_is_kept() {
        let fused = fuse(
            &[hit(1, 9.0), hit(2, 3.0)],
            &[hit(2, 0.8)],
            &[hit(3, 1.0)],
            1.0,
        );
        assert_eq!(fused[0].0, hit(2, 0.0).memory_id);
        let expected = Evidence {
            text: Some((2, 3.0)),
            vector: Some((1, 0.8)),
            graph: None,
        };
        assert_eq!(fused[0].1, expected);
        assert_eq!(fused.len(), 3);
    }

    #[test]
    fn only_a_full_list_says_something_of_what_it_leaves_out() {
        let full: Vec<Hit> = (0..60).map(|n| hit(n, f64::from(100 - n))).collect();
        let at_most = AtMost::of(&full, &full[..10]);
        assert_eq!(at_most.bm25, 51.0);
        assert_eq!(at_most.cosine, None);
    }

    #[test]
    fn vectors_that_tell_little_push_out_no_words() {
        let said: Vec<Hit> = (0..50).map(|n| hit(n, f64::from(100 - n))).collect();
        let near: Vec<Hit> = (100..150).map(|n| hit(n, 0.5)).collect();
        let words = |trust| {
            let fused = fuse(&said, &near, &[], trust);
            fused.iter().filter(|(_, one)| one.text.is_some()).count()
        };
        assert_eq!(words(1.0), 25);
        assert_eq!(words(0.2), 50);
        // What the words leave free is still theirs.
        assert_eq!(fuse(&said[..20], &near, &[], 0.2).len(), FUSED_MAX);
    }

    #[test]
    fn no_more_than_fifty_go_on() {
        let many: Vec<Hit> = (0..200).map(|n| hit(n, 1.0)).collect();
        assert_eq!(fuse(&many, &[], &[], 1.0).len(), FUSED_MAX);
    }

    #[test]
    fn merged_lists_are_ordered_by_score_and_hold_each_memory_once() {
        let merged = merge(vec![vec![hit(1, 1.0)], vec![hit(2, 2.0), hit(1, 0.5)]]);
        assert_eq!(
            merged.iter().map(|hit| hit.score).collect::<Vec<_>>(),
            [2.0, 1.0]
        );
    }
}
