//! How does a stage fare when the model is slow or gone?

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;

use crate::embedder::{Embed, EmbedError, Embedder, ModelIdentity, Purpose};

/// Another embedder, late or failing as a test says.
pub struct SlowOrFailingEmbedder {
    inner: Embed,
    delay: Duration,
    failures_left: AtomicU64,
    calls: AtomicU64,
}

impl SlowOrFailingEmbedder {
    /// Answers after `delay` (of the runtime's clock, which a test may pause).
    pub fn slow(inner: Embed, delay: Duration) -> Self {
        Self {
            inner,
            delay,
            failures_left: AtomicU64::new(0),
            calls: AtomicU64::new(0),
        }
    }

    /// Fails so many times before it answers; `u64::MAX` for always.
    pub fn failing(inner: Embed, times: u64) -> Self {
        let failures_left = AtomicU64::new(times);
        Self {
            inner,
            delay: Duration::ZERO,
            failures_left,
            calls: AtomicU64::new(0),
        }
    }

    /// How often it was called: a rebuild must not call it at all.
    pub fn calls(&self) -> u64 {
        self.calls.load(Ordering::SeqCst)
    }
}

#[async_trait]
impl Embedder for SlowOrFailingEmbedder {
    fn identity(&self) -> &ModelIdentity {
        self.inner.identity()
    }

    fn is_semantic(&self) -> bool {
        self.inner.is_semantic()
    }

    async fn embed(&self, texts: &[&str], purpose: Purpose) -> Result<Vec<Vec<f32>>, EmbedError> {
        self.calls.fetch_add(1, Ordering::SeqCst);
        if !self.delay.is_zero() {
            tokio::time::sleep(self.delay).await;
        }
        let one_less = |left: u64| match left {
            0 => None,
            u64::MAX => Some(u64::MAX),
            1.. => Some(left - 1),
        };
        let failed = self
            .failures_left
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, one_less);
        if failed.is_ok() {
            return Err(EmbedError::Unavailable {
                reason: "told to fail".to_owned(),
            });
        }
        self.inner.embed(texts, purpose).await
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::hash_embedder::HashEmbedder;

    #[tokio::test]
    async fn it_fails_as_often_as_told() {
        let embedder = SlowOrFailingEmbedder::failing(Arc::new(HashEmbedder::new()), 2);
        for is_ok in [false, false, true, true] {
            assert_eq!(embedder.embed(&["x"], Purpose::Query).await.is_ok(), is_ok);
        }
        assert_eq!(embedder.calls(), 4);
    }

    #[tokio::test(start_paused = true)]
    async fn it_answers_late() {
        let late = Duration::from_secs(9);
        let embedder = SlowOrFailingEmbedder::slow(Arc::new(HashEmbedder::new()), late);
        let started = tokio::time::Instant::now();
        embedder.embed(&["x"], Purpose::Query).await.unwrap();
        assert_eq!(started.elapsed(), late);
    }
}
