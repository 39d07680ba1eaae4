//! Was this question embedded a moment ago? Its vector is kept for a while, so that a question that is asked
//! again, for another owner or with other filters, waits for no model.
//!
//! Only questions: a memory's vector stands in the log. A question is known by its hash under a key of this
//! process, so that its text is not kept, and its vector is dropped some minutes after its last use.

use std::num::NonZeroUsize;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use anamnesis_pipeline::embedder::{Embed, EmbedError, Embedder, ModelIdentity, Purpose};
use async_trait::async_trait;
use lru::LruCache;
use tokio::time::Instant;

/// Some megabytes: a vector has 4 bytes for each of about 1,000 dimensions.
const KEPT_MAX: NonZeroUsize = NonZeroUsize::new(1_000).unwrap();
const KEPT_FOR: Duration = Duration::from_secs(300);

/// Another embedder, asked once for a question that is repeated.
pub struct QueryCache {
    inner: Embed,
    key: [u8; 32],
    kept: Mutex<LruCache<blake3::Hash, Kept>>,
}

struct Kept {
    used: Instant,
    vector: Vec<f32>,
}

impl QueryCache {
    /// # Errors
    /// [`EmbedError::Unusable`] when the machine gives no randomness for the key.
    pub fn new(inner: Embed) -> Result<Self, EmbedError> {
        let mut key = [0; 32];
        getrandom::fill(&mut key).map_err(|_| EmbedError::Unusable {
            reason: "the machine gives no randomness".to_owned(),
        })?;
        Ok(Self {
            inner,
            key,
            kept: Mutex::new(LruCache::new(KEPT_MAX)),
        })
    }

    fn find(&self, question: &blake3::Hash) -> Option<Vec<f32>> {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        // The one that was used longest ago is the last.
        while let Some((_, oldest)) = kept.peek_lru() {
            if now.duration_since(oldest.used) < KEPT_FOR {
                break;
            }
            kept.pop_lru();
        }
        let found = kept.get_mut(question)?;
        found.used = now;
        Some(found.vector.clone())
    }

    fn keep(&self, question: blake3::Hash, vector: Vec<f32>) {
        let used = Instant::now();
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.put(question, Kept { used, vector });
    }
}

#[async_trait]
impl Embedder for QueryCache {
    fn identity(&self) -> &ModelIdentity {
        self.inner.identity()
    }

    fn is_semantic(&self) -> bool {
        self.inner.is_semantic()
    }

    async fn embed(&self, texts: &[&str], purpose: Purpose) -> Result<Vec<Vec<f32>>, EmbedError> {
        match purpose {
            Purpose::Passage => return self.inner.embed(texts, purpose).await,
            Purpose::Query => (),
        }
        let mut vectors = Vec::with_capacity(texts.len());
        for text in texts {
            let question = blake3::keyed_hash(&self.key, text.as_bytes());
            if let Some(vector) = self.find(&question) {
                vectors.push(vector);
                continue;
            }
            let made = self.inner.embed(&[text], purpose).await?;
            for vector in made {
                self.keep(question, vector.clone());
                vectors.push(vector);
            }
        }
        Ok(vectors)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use anamnesis_pipeline::doubles::embedder::SlowOrFailingEmbedder;
    use anamnesis_pipeline::hash_embedder::HashEmbedder;

    use super::*;

    fn cache(failures: u64) -> (Arc<SlowOrFailingEmbedder>, QueryCache) {
        let hash = Arc::new(HashEmbedder::new());
        let counted = Arc::new(SlowOrFailingEmbedder::failing(hash, failures));
        let cache = QueryCache::new(counted.clone()).unwrap();
        (counted, cache)
    }

    #[tokio::test(start_paused = true)]
    async fn a_repeated_question_waits_for_no_model_and_others_do() {
        let (model, cache) = cache(0);
        let check = async |texts: &[&str], purpose, calls: u64| {
            let expected = HashEmbedder::new().embed(texts, purpose).await.unwrap();
            assert_eq!(cache.embed(texts, purpose).await.unwrap(), expected);
            assert_eq!(model.calls(), calls, "{texts:?}");
        };
        check(&["芒果"], Purpose::Query, 1).await;
        check(&["芒果"], Purpose::Query, 1).await;
        check(&["mango", "芒果", ""], Purpose::Query, 3).await;
        check(&["芒果"], Purpose::Passage, 4).await;
        check(&["芒果"], Purpose::Passage, 5).await;
        check(&["芒果"], Purpose::Query, 5).await;
        tokio::time::advance(KEPT_FOR).await;
        check(&["mango"], Purpose::Query, 6).await;
        assert_eq!(cache.kept.lock().unwrap().len(), 1, "the others are gone");
    }

    #[tokio::test]
    async fn a_failure_is_not_kept() {
        let (model, cache) = cache(1);
        assert!(cache.embed(&["x"], Purpose::Query).await.is_err());
        assert!(cache.embed(&["x"], Purpose::Query).await.is_ok());
        assert_eq!((model.calls(), cache.identity()), (2, model.identity()));
    }
}
