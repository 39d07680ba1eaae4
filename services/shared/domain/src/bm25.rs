//! BM25 (Robertson & Zaragoza 2009, k1 = 1.2, b = 0.75) with the statistics of one owner.

pub const K1: f64 = 1.2;
pub const B: f64 = 0.75;
/// What a word of the turn before or after counts as, in words of the turn itself: an answer is often
/// found by the words of its question.
pub const BESIDE: f64 = 0.5;

/// Statistics over the versions of one owner that are live at the asked cut.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Population {
    pub versions: u64,
    /// Sum of their lengths in tokens, those beside them included ([`weighted`]).
    pub tokens: f64,
}

impl Population {
    pub fn mean_length(self) -> f64 {
        if self.versions == 0 {
            0.0
        } else {
            self.tokens / self.versions as f64
        }
    }
}

/// `ln(1 + (N - n + 0.5) / (n + 0.5))`: never negative.
pub fn idf(versions: u64, with_term: u64) -> f64 {
    let (all, some) = (versions as f64, with_term as f64);
    (1.0 + (all - some + 0.5) / (some + 0.5)).ln()
}

/// A count of a version's own words and of those beside it as one (BM25F, Robertson, Zaragoza & Taylor
/// 2004): frequencies of a term, or lengths.
pub fn weighted(own: u64, beside: u64) -> f64 {
    own as f64 + BESIDE * beside as f64
}

/// One term's part of a version's score, from its weighted frequency and length. `with_term` counts the
/// versions that say the term themselves.
pub fn term_score(population: Population, with_term: u64, frequency: f64, length: f64) -> f64 {
    let mean = population.mean_length();
    if frequency <= 0.0 || mean <= 0.0 {
        return 0.0;
    }
    let norm = 1.0 - B + B * length / mean;
    idf(population.versions, with_term) * frequency * (K1 + 1.0) / (frequency + K1 * norm)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rarer_term_weighs_more() {
        let population = Population {
            versions: 10,
            tokens: 100.0,
        };
        let rare = term_score(population, 1, 1.0, 10.0);
        assert!(rare > term_score(population, 9, 1.0, 10.0));
        // idf(10, 1) = ln(1 + 9.5/1.5) = 1.99243…; tf part = 2.2/2.2 = 1 at mean length.
        assert!((rare - (1.0f64 + 9.5 / 1.5).ln()).abs() < 1e-12);
    }

    #[test]
    fn nothing_scores_in_an_empty_population() {
        assert_eq!(term_score(Population::default(), 0, 1.0, 1.0), 0.0);
    }
}
