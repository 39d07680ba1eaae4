//! How is an answer scored against what was expected? Plain functions over plain values.

use std::collections::{BTreeMap, BTreeSet};

/// Share of the expected units among the first `k` that were returned; 1 when nothing is expected.
pub fn recall_at(returned: &[String], expected: &BTreeSet<String>, k: usize) -> f64 {
    if expected.is_empty() {
        return 1.0;
    }
    let hits = returned
        .iter()
        .take(k)
        .filter(|one| expected.contains(*one));
    hits.count() as f64 / expected.len() as f64
}

/// `1 / place` of the first expected unit, 0 when none was returned.
pub fn reciprocal_rank(returned: &[String], expected: &BTreeSet<String>) -> f64 {
    let place = returned.iter().position(|one| expected.contains(one));
    place.map_or(0.0, |place| 1.0 / (place as f64 + 1.0))
}

/// Whether the first unit is an expected one, as 0 or 1.
pub fn hit_at_1(returned: &[String], expected: &BTreeSet<String>) -> f64 {
    share(returned.first().is_some_and(|one| expected.contains(one)))
}

pub fn share(is_right: bool) -> f64 {
    f64::from(u8::from(is_right))
}

/// Harmonic mean of precision and recall; nothing expected and nothing returned counts 1.
pub fn f1(hits: usize, returned: usize, expected: usize) -> f64 {
    if returned + expected == 0 {
        return 1.0;
    }
    2.0 * hits as f64 / (returned + expected) as f64
}

/// Probability that a score of `high` lies above one of `low`, ties counting half; `None` without one
/// of the two.
pub fn auroc(high: &[f64], low: &[f64]) -> Option<f64> {
    if high.is_empty() || low.is_empty() {
        return None;
    }
    let mut wins = 0.0;
    for above in high {
        for below in low {
            wins += match above.total_cmp(below) {
                std::cmp::Ordering::Greater => 1.0,
                std::cmp::Ordering::Equal => 0.5,
                std::cmp::Ordering::Less => 0.0,
            };
        }
    }
    Some(wins / (high.len() * low.len()) as f64)
}

/// What was told and what is right, by class: for F1 per class.
#[derive(Clone, Debug, Default)]
pub struct Confusion(BTreeMap<&'static str, [usize; 3]>);

impl Confusion {
    /// One case; `None` for a case of no class.
    pub fn add(&mut self, told: Option<&'static str>, right: Option<&'static str>) {
        if let Some(told) = told {
            let [hits, returned, _] = self.0.entry(told).or_default();
            *returned += 1;
            *hits += usize::from(Some(told) == right);
        }
        if let Some(right) = right {
            self.0.entry(right).or_default()[2] += 1;
        }
    }

    /// F1 of each class that was told or expected.
    pub fn f1(&self) -> BTreeMap<&'static str, f64> {
        let classes = self.0.iter();
        classes
            .map(|(class, [hits, returned, expected])| (*class, f1(*hits, *returned, *expected)))
            .collect()
    }

    /// Mean of the classes' F1.
    pub fn macro_f1(&self) -> f64 {
        mean(&self.f1().into_values().collect::<Vec<_>>())
    }
}

pub fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len().max(1) as f64
}

/// Values per key, one per question that the key applies to.
#[derive(Clone, Debug, Default)]
pub struct Means(BTreeMap<String, Vec<f64>>);

impl Means {
    pub fn add(&mut self, key: impl Into<String>, value: f64) {
        self.0.entry(key.into()).or_default().push(value);
    }

    pub fn means(&self) -> BTreeMap<String, f64> {
        let keys = self.0.iter();
        keys.map(|(key, values)| (key.clone(), mean(values)))
            .collect()
    }

    /// In which 95 % of the means of random samples of the same size lie, by key (percentile bootstrap,
    /// the same samples at every run).
    pub fn intervals(&self) -> BTreeMap<String, [f64; 2]> {
        let keys = self.0.iter();
        keys.map(|(key, values)| (key.clone(), interval(values)))
            .collect()
    }
}

const RESAMPLES: usize = 1_000;

fn interval(values: &[f64]) -> [f64; 2] {
    // Knuth's MMIX generator: no more than a fair and repeatable choice is needed.
    let mut state: u64 = 0x5eed;
    let mut next = || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize
    };
    let mut means: Vec<f64> = (0..RESAMPLES)
        .map(|_| {
            let drawn = (0..values.len()).map(|_| values[next() % values.len()]);
            drawn.sum::<f64>() / values.len().max(1) as f64
        })
        .collect();
    means.sort_by(f64::total_cmp);
    [means[RESAMPLES / 40], means[RESAMPLES - RESAMPLES / 40 - 1]]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        text.split_whitespace().map(str::to_owned).collect()
    }

    fn set(text: &str) -> BTreeSet<String> {
        words(text).into_iter().collect()
    }

    #[test]
    fn recall_counts_what_stands_among_the_first() {
        let check = |expected: &str, k, value| {
            assert_eq!(recall_at(&words("a b c d"), &set(expected), k), value);
        };
        check("b d", 1, 0.0);
        check("b d", 2, 0.5);
        check("b d", 4, 1.0);
        check("z", 4, 0.0);
        check("", 4, 1.0);
    }

    #[test]
    fn the_first_expected_place_tells_the_reciprocal_rank() {
        assert_eq!(reciprocal_rank(&words("a b c"), &set("c b")), 0.5);
        assert_eq!(reciprocal_rank(&words("a b c"), &set("z")), 0.0);
        assert_eq!(hit_at_1(&words("a b"), &set("a")), 1.0);
        assert_eq!(hit_at_1(&[], &set("a")), 0.0);
    }

    #[test]
    fn nothing_expected_and_nothing_returned_is_right() {
        assert_eq!(f1(0, 0, 0), 1.0);
        assert_eq!(f1(1, 2, 2), 0.5);
        assert_eq!(f1(0, 3, 0), 0.0);
    }

    #[test]
    fn auroc_is_the_share_of_pairs_in_order() {
        assert_eq!(auroc(&[0.9, 0.8], &[0.1]), Some(1.0));
        assert_eq!(auroc(&[0.9, 0.1], &[0.5]), Some(0.5));
        assert_eq!(auroc(&[0.5], &[0.5]), Some(0.5));
        assert_eq!(auroc(&[], &[0.5]), None);
    }

    #[test]
    fn classes_are_averaged_alike_however_frequent_they_are() {
        let mut confusion = Confusion::default();
        for _ in 0..3 {
            confusion.add(Some("a"), Some("a"));
        }
        confusion.add(Some("a"), Some("b"));
        confusion.add(Some("b"), None);
        confusion.add(None, None);
        let f1 = confusion.f1();
        assert_eq!((f1["a"], f1["b"]), (6.0 / 7.0, 0.0));
        assert_eq!(confusion.macro_f1(), 3.0 / 7.0);
    }

    #[test]
    fn an_interval_holds_the_mean_and_narrows_with_more_values() {
        let mut means = Means::default();
        for n in 0..400 {
            means.add("many", share(n % 2 == 0));
            if n < 10 {
                means.add("few", share(n % 2 == 0));
            }
            means.add("same", 1.0);
        }
        let intervals = means.intervals();
        let width = |key: &str| intervals[key][1] - intervals[key][0];
        assert!(intervals["many"][0] < 0.5 && 0.5 < intervals["many"][1]);
        assert!(width("many") < width("few"));
        assert_eq!(intervals["same"], [1.0, 1.0]);
        assert_eq!(means.means()["few"], 0.5);
    }
}
