//! What does a slow or stopped store cost whoever asks it? Two late answers, and then nothing: the store
//! is not asked until it has answered a probe in time, and every question is told so at once.
//!
//! For the vectors and the graph, which a recall can do without. The authority is never guarded: a
//! recall without it is none.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anamnesis_domain::ids::{MemoryId, OwnerKey};
use anamnesis_domain::memory::Entity;
use anamnesis_domain::owner::OwnerScope;
use async_trait::async_trait;
use tokio::time::{Instant, sleep, timeout};

use crate::embedder::ModelIdentity;
use crate::stores::{
    Change, Checkpoint, Filter, GraphIndex, LegAnswer, Projection, RowDigest, Store, StoreError,
    VectorIndex,
};

/// Failures in a row after which a store is left alone: one may be a pause of the server's own.
const FAILURES_MAX: u32 = 2;

/// Between two probes of a store that is left alone.
const PROBE_EVERY: Duration = Duration::from_millis(250);

/// A store that is left alone while it fails.
pub struct Guarded<S: ?Sized> {
    store: Arc<S>,
    guard: Arc<Guard>,
}

struct Guard {
    name: Store,
    /// An answer that takes longer is a failure.
    patience: Duration,
    failures: AtomicU32,
    is_left_alone: AtomicBool,
    /// Ends with the store.
    probe: Mutex<Option<tokio::task::JoinHandle<()>>>,
}

impl<S: Projection + ?Sized + 'static> Guarded<S> {
    /// `patience` is how long those who ask wait at most.
    pub fn new(store: Arc<S>, patience: Duration) -> Self {
        let guard = Guard {
            name: store.store(),
            patience,
            failures: AtomicU32::new(0),
            is_left_alone: AtomicBool::new(false),
            probe: Mutex::new(None),
        };
        Self {
            store,
            guard: Arc::new(guard),
        }
    }

    async fn ask<T>(
        &self,
        question: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        if self.guard.is_left_alone.load(Ordering::Relaxed) {
            return Err(StoreError::Unavailable {
                store: self.guard.name,
                reason: "it is not asked until it answers in time again".to_owned(),
            });
        }
        // Whoever asks stops waiting by dropping the question.
        let mut asked = Asked {
            guarded: self,
            since: Instant::now(),
            outcome: None,
        };
        let answer = question.await;
        asked.outcome = Some(
            answer
                .as_ref()
                .err()
                .is_none_or(|error| !error.is_retryable()),
        );
        answer
    }

    fn failed(&self) {
        let guard = &self.guard;
        let in_a_row = guard.failures.fetch_add(1, Ordering::Relaxed) + 1;
        if in_a_row < FAILURES_MAX || guard.is_left_alone.swap(true, Ordering::Relaxed) {
            return;
        }
        tracing::warn!(store = %guard.name, in_a_row, "a store is left alone until it answers again");
        let (store, shared) = (self.store.clone(), guard.clone());
        // A question can be dropped where no runtime is left.
        let Ok(runtime) = tokio::runtime::Handle::try_current() else {
            return;
        };
        let probe = runtime.spawn(async move {
            loop {
                sleep(PROBE_EVERY).await;
                let answer = timeout(shared.patience, store.checkpoint(0)).await;
                if matches!(answer, Ok(Ok(_))) {
                    break;
                }
            }
            shared.failures.store(0, Ordering::Relaxed);
            shared.is_left_alone.store(false, Ordering::Relaxed);
            tracing::info!(store = %shared.name, "a store that was left alone is asked again");
        });
        let mut kept = guard.probe.lock().unwrap_or_else(PoisonError::into_inner);
        *kept = Some(probe);
    }
}

struct Asked<'a, S: Projection + ?Sized + 'static> {
    guarded: &'a Guarded<S>,
    since: Instant,
    /// Whether the store is well; `None` when nobody waited for the answer.
    outcome: Option<bool>,
}

impl<S: Projection + ?Sized + 'static> Drop for Asked<'_, S> {
    fn drop(&mut self) {
        let guard = &self.guarded.guard;
        let is_late = self.since.elapsed() >= guard.patience.mul_f64(0.9);
        match self.outcome {
            Some(true) if !is_late => guard.failures.store(0, Ordering::Relaxed),
            Some(true) | None if !is_late => (),
            Some(_) | None => self.guarded.failed(),
        }
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        let probe = self.probe.get_mut().unwrap_or_else(PoisonError::into_inner);
        if let Some(probe) = probe.take() {
            probe.abort();
        }
    }
}

/// What is not a question of a recall is asked as it is.
#[async_trait]
impl<S: Projection + ?Sized + 'static> Projection for Guarded<S> {
    fn store(&self) -> Store {
        self.guard.name
    }

    async fn checkpoint(&self, partition: u32) -> Result<Option<Checkpoint>, StoreError> {
        self.store.checkpoint(partition).await
    }

    async fn apply(
        &self,
        partition: u32,
        from: u64,
        changes: &[Change],
        next: Checkpoint,
    ) -> Result<(), StoreError> {
        self.store.apply(partition, from, changes, next).await
    }

    async fn owners(&self) -> Result<Vec<OwnerKey>, StoreError> {
        self.store.owners().await
    }

    async fn rows(&self, scope: OwnerScope) -> Result<Vec<RowDigest>, StoreError> {
        self.store.rows(scope).await
    }

    async fn compact(&self) -> Result<(), StoreError> {
        self.store.compact().await
    }
}

#[async_trait]
impl<S: VectorIndex + ?Sized + 'static> VectorIndex for Guarded<S> {
    fn model(&self) -> &ModelIdentity {
        self.store.model()
    }

    async fn search(
        &self,
        filter: &Filter,
        query: &[f32],
        top: usize,
    ) -> Result<LegAnswer, StoreError> {
        self.ask(self.store.search(filter, query, top)).await
    }
}

#[async_trait]
impl<S: GraphIndex + ?Sized + 'static> GraphIndex for Guarded<S> {
    async fn neighbours(
        &self,
        filter: &Filter,
        seeds: &[MemoryId],
        entities: &[Entity],
        top: usize,
    ) -> Result<LegAnswer, StoreError> {
        let asked = self.store.neighbours(filter, seeds, entities, top);
        self.ask(asked).await
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU64;

    use anamnesis_domain::time::Timestamp;

    use super::*;
    use crate::stores::{Cut, current};

    /// A graph that takes as long as it is told.
    #[derive(Default)]
    struct Slow {
        millis: AtomicU64,
        asked: AtomicU32,
    }

    #[async_trait]
    impl Projection for Slow {
        fn store(&self) -> Store {
            Store::Graph
        }

        async fn checkpoint(&self, _: u32) -> Result<Option<Checkpoint>, StoreError> {
            sleep(Duration::from_millis(self.millis.load(Ordering::Relaxed))).await;
            Ok(None)
        }

        async fn apply(
            &self,
            _: u32,
            _: u64,
            _: &[Change],
            _: Checkpoint,
        ) -> Result<(), StoreError> {
            Ok(())
        }

        async fn owners(&self) -> Result<Vec<OwnerKey>, StoreError> {
            Ok(Vec::new())
        }

        async fn rows(&self, _: OwnerScope) -> Result<Vec<RowDigest>, StoreError> {
            Ok(Vec::new())
        }

        async fn compact(&self) -> Result<(), StoreError> {
            Ok(())
        }
    }

    #[async_trait]
    impl GraphIndex for Slow {
        async fn neighbours(
            &self,
            _: &Filter,
            _: &[MemoryId],
            _: &[Entity],
            _: usize,
        ) -> Result<LegAnswer, StoreError> {
            self.asked.fetch_add(1, Ordering::Relaxed);
            self.checkpoint(0).await?;
            Ok(LegAnswer::default())
        }
    }

    /// One question as recall asks it; whether an answer came, and after how long.
    async fn ask(guarded: &Guarded<Slow>) -> (bool, Duration) {
        let scope = OwnerScope::of_log_record(OwnerKey::from_bytes([1; 16]));
        let filter = current(
            scope,
            Cut(1),
            anamnesis_domain::time::AsOf {
                valid: Timestamp::default(),
                known: anamnesis_domain::time::Known::Latest,
            },
        );
        let since = Instant::now();
        let asked = guarded.neighbours(&filter, &[], &[], 1);
        let answer = timeout(Duration::from_millis(100), asked).await;
        (matches!(answer, Ok(Ok(_))), since.elapsed())
    }

    /// two seconds more cost two questions their deadline, and all others nothing.
    #[tokio::test(start_paused = true)]
    async fn a_slow_store_costs_two_questions_and_comes_back_by_itself() {
        let slow = Arc::new(Slow::default());
        let guarded = Guarded::new(slow.clone(), Duration::from_millis(100));
        assert!(ask(&guarded).await.0);
        slow.millis.store(2_000, Ordering::Relaxed);
        for _ in 0..2 {
            let (is_answered, spent) = ask(&guarded).await;
            assert!(!is_answered && spent == Duration::from_millis(100));
        }
        let asked = slow.asked.load(Ordering::Relaxed);
        for _ in 0..100 {
            assert_eq!(ask(&guarded).await, (false, Duration::ZERO));
        }
        assert_eq!(slow.asked.load(Ordering::Relaxed), asked);
        slow.millis.store(0, Ordering::Relaxed);
        sleep(PROBE_EVERY * 3).await;
        assert!(ask(&guarded).await.0);
    }

    #[tokio::test(start_paused = true)]
    async fn whoever_stops_asking_early_blames_nobody() {
        let slow = Arc::new(Slow::default());
        let guarded = Guarded::new(slow.clone(), Duration::from_millis(1_000));
        slow.millis.store(500, Ordering::Relaxed);
        for _ in 0..10 {
            assert!(!ask(&guarded).await.0);
        }
        slow.millis.store(0, Ordering::Relaxed);
        assert!(ask(&guarded).await.0);
    }
}
