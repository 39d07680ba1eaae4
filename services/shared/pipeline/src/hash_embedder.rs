//! What stands in for a language model when none is configured? Words hashed into signed buckets: equal
//! words give near vectors, equal meanings do not, and every answer says so.

use anamnesis_domain::tokens;
use async_trait::async_trait;

use crate::embedder::{EmbedError, Embedder, ModelIdentity, Purpose};

/// Few enough to be cheap to store for every memory, many enough that a sentence's words seldom meet.
const DIMENSION: usize = 256;

/// Another rule below, or other tokens, is another model.
const ID: &str = "hash-v1";

pub struct HashEmbedder {
    identity: ModelIdentity,
}

impl HashEmbedder {
    pub fn new() -> Self {
        Self {
            identity: ModelIdentity {
                id: ID.to_owned(),
                dimension: DIMENSION as u32,
            },
        }
    }
}

impl Default for HashEmbedder {
    fn default() -> Self {
        Self::new()
    }
}

#[async_trait]
impl Embedder for HashEmbedder {
    fn identity(&self) -> &ModelIdentity {
        &self.identity
    }

    fn is_semantic(&self) -> bool {
        false
    }

    async fn embed(&self, texts: &[&str], _purpose: Purpose) -> Result<Vec<Vec<f32>>, EmbedError> {
        Ok(texts.iter().map(|text| embed(text)).collect())
    }
}

fn embed(text: &str) -> Vec<f32> {
    let mut sums = [0_i32; DIMENSION];
    let mut first = None;
    for token in tokens::index_tokens(text) {
        let hash = blake3::hash(token.as_bytes());
        let [bucket, sign, ..] = *hash.as_bytes();
        sums[usize::from(bucket)] += if sign & 1 == 0 { 1 } else { -1 };
        first.get_or_insert(usize::from(bucket));
    }
    // Words that cancel each other out still are words.
    if let Some(bucket) = first.filter(|_| sums.iter().all(|sum| *sum == 0)) {
        sums[bucket] = 1;
    }
    let square: i64 = sums
        .iter()
        .map(|sum| i64::from(*sum) * i64::from(*sum))
        .sum();
    let length = (square as f64).sqrt().max(1.0);
    sums.iter()
        .map(|sum| (f64::from(*sum) / length) as f32)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cosine(a: &str, b: &str) -> f32 {
        embed(a).iter().zip(embed(b)).map(|(x, y)| x * y).sum()
    }

    #[test]
    fn a_vector_has_unit_length_unless_there_are_no_words() {
        for text in [
            "mango",
            "我对芒果过敏",
            "metformin 500 mg twice a day",
            "a a a",
        ] {
            assert!((cosine(text, text) - 1.0).abs() < 1e-5, "{text}");
        }
        for text in ["", "  ", "…？！"] {
            assert!(
                embed(text).iter().all(|component| *component == 0.0),
                "{text}"
            );
        }
    }

    #[test]
    fn shared_words_are_near() {
        for (question, near, far) in [
            (
                "allergic to mango",
                "the patient is allergic to mango",
                "takes metformin at night",
            ),
            ("芒果过敏", "我对芒果过敏", "每天晚上吃二甲双胍"),
        ] {
            assert!(
                cosine(question, near) > cosine(question, far) + 0.2,
                "{question}"
            );
        }
    }

    #[tokio::test]
    async fn the_same_text_gives_the_same_vector_in_any_company() {
        let embedder = HashEmbedder::new();
        let both = embedder
            .embed(&["mango", "芒果"], Purpose::Passage)
            .await
            .unwrap();
        let one = embedder.embed(&["芒果"], Purpose::Query).await.unwrap();
        assert_eq!(both[1], one[0]);
        assert_eq!(both[0].len(), embedder.identity().dimension as usize);
    }
}
