//! BM25 (Robertson & Zaragoza 2009, k1 = 1.2, b = 0.75) with the statistics of one owner.

pub const K1: f64 = 1.2;
pub const B: f64 = 0.75;

/// Statistics over the versions of one owner that are live at the asked cut.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Population {
    pub versions: u64,
    /// Sum of their lengths in tokens.
    pub tokens: u64,
}

impl Population {
    pub fn mean_length(self) -> f64 {
        if self.versions == 0 {
            0.0
        } else {
            self.tokens as f64 / self.versions as f64
        }
    }
}

/// `ln(1 + (N - n + 0.5) / (n + 0.5))`: never negative.
pub fn idf(versions: u64, with_term: u64) -> f64 {
    let (all, some) = (versions as f64, with_term as f64);
    (1.0 + (all - some + 0.5) / (some + 0.5)).ln()
}

/// One term's part of a version's score.
pub fn term_score(population: Population, with_term: u64, frequency: u32, length: u64) -> f64 {
    let mean = population.mean_length();
    if frequency == 0 || mean <= 0.0 {
        return 0.0;
    }
    let f = f64::from(frequency);
    let norm = 1.0 - B + B * length as f64 / mean;
    idf(population.versions, with_term) * f * (K1 + 1.0) / (f + K1 * norm)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rarer_term_weighs_more() {
        let population = Population {
            versions: 10,
            tokens: 100,
        };
        let rare = term_score(population, 1, 1, 10);
        assert!(rare > term_score(population, 9, 1, 10));
        // idf(10, 1) = ln(1 + 9.5/1.5) = 1.99243…; tf part = 2.2/2.2 = 1 at mean length.
        assert!((rare - (1.0f64 + 9.5 / 1.5).ln()).abs() < 1e-12);
    }

    #[test]
    fn nothing_scores_in_an_empty_population() {
        assert_eq!(term_score(Population::default(), 0, 1, 1), 0.0);
    }
}
