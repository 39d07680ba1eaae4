//! Which of an owner's memories hold the words of a question? The text index, on tantivy.
//!
//! tantivy supplies postings, frequencies and deletions; the score is ours, with the statistics of one
//! owner. Every term carries its owner's key in front, so no dictionary entry, posting list or count is
//! shared between owners, and an answer does not depend on how many segments or deleted documents the
//! index happens to have.
//!
//! - [`terms`](self::terms): from tokens to an owner's terms and back
//! - [`schema`](self::schema): one document per memory version
//! - [`directory`](self::directory): the folder as the engine sees it
//! - [`folder`](self::folder): opening, what a crash leaves behind, what is refused
//! - [`write`](self::write): commits, compaction
//! - [`read`](self::read): scores, digests
//! - [`rows`](self::rows): the owner's versions, as they stand in the columns

mod directory;
mod folder;
mod read;
mod rows;
mod schema;
mod terms;
mod write;

use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::Duration;

use anamnesis_domain::ids::OwnerKey;
use anamnesis_domain::owner::OwnerScope;
use anamnesis_pipeline::feed::{Batch, Feed};
use anamnesis_pipeline::stores::{
    Change, Checkpoint, Filter, LegAnswer, Projection, RowDigest, Store, StoreError, TextIndex,
};
use async_trait::async_trait;

use self::read::View;
use self::rows::Rows;
use self::write::Writing;
use crate::owner_cache::OwnerCache;

/// Changes that are a commit of their own: more of them beside it would save little.
const WHOLE_COMMIT: usize = 200;

/// Memory for the rows of owners asked about lately: some 150,000 versions.
const CACHE_BYTES: usize = 40 << 20;

/// Rows of an owner among which a search takes less time than handing it to another thread.
const ROWS_SOON_SEARCHED: usize = 4_000;

/// How often rows are read again because their segments were merged meanwhile.
const MERGED_MEANWHILE_MAX: usize = 3;

/// One partition's batch on its way into the index.
struct Waiting {
    partition: u32,
    from: u64,
    changes: Vec<Change>,
    next: Checkpoint,
    done: SyncSender<Result<(), StoreError>>,
}

/// The text index of one generation, in a folder of its own.
#[derive(Clone)]
pub struct TantivyText {
    inner: Arc<Inner>,
}

struct Inner {
    feed: Feed,
    /// Least time from one small commit to the next.
    pace: Duration,
    writing: Mutex<Writing>,
    /// Batches that wait for a commit; whoever commits next takes all of them.
    waiting: Mutex<Vec<Waiting>>,
    /// Told of each batch that waits.
    arrived: Condvar,
    /// What searches see: a snapshot of the index together with the position that it stands at.
    view: RwLock<Arc<View>>,
    cache: OwnerCache<Rows>,
}

impl TantivyText {
    /// Opens or makes the index in `dir`, at its last commit. Files that a killed process left behind
    /// are removed.
    ///
    /// # Errors
    /// [`StoreError::InUse`] when another process or handle has it, [`StoreError::OtherLog`],
    /// [`StoreError::Damaged`], or [`StoreError::Unusable`] for a folder of another format.
    pub fn open(dir: &Path, feed: Feed) -> Result<Self, StoreError> {
        Self::open_paced(dir, feed, Duration::ZERO)
    }

    /// As [`TantivyText::open`]. Small batches wait until `pace` has passed since the last commit began, and
    /// are committed together: a commit takes some ten milliseconds of a processor, however little is in it.
    ///
    /// # Errors
    /// As [`TantivyText::open`].
    pub fn open_paced(dir: &Path, feed: Feed, pace: Duration) -> Result<Self, StoreError> {
        Self::open_with_cache(dir, feed, pace, CACHE_BYTES)
    }

    /// As [`TantivyText::open_paced`], with another bound of the memory for rows.
    ///
    /// # Errors
    /// As [`TantivyText::open`].
    pub fn open_with_cache(
        dir: &Path,
        feed: Feed,
        pace: Duration,
        cache_bytes_max: usize,
    ) -> Result<Self, StoreError> {
        let (writing, view) = folder::open(dir, feed)?;
        let inner = Inner {
            feed,
            pace,
            writing: Mutex::new(writing),
            waiting: Mutex::default(),
            arrived: Condvar::new(),
            view: RwLock::new(Arc::new(view)),
            cache: OwnerCache::new(feed, cache_bytes_max),
        };
        Ok(Self {
            inner: Arc::new(inner),
        })
    }

    /// The owner's rows, of the snapshot that stands at the position or of one in which nothing of the
    /// owner was different.
    async fn rows_of(&self, scope: OwnerScope) -> Result<(Arc<Rows>, u64), StoreError> {
        let load = || {
            self.blocking(move |inner| {
                let view = inner.view();
                let rows = Rows::load(&view, scope.key())?;
                Ok((Arc::new(rows), inner.position(&view, scope)))
            })
        };
        self.inner.cache.block(scope.key(), load).await
    }

    /// Runs on a thread that may wait for the disk.
    async fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Inner) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let inner = self.inner.clone();
        let done = tokio::task::spawn_blocking(move || work(&inner)).await;
        done.unwrap_or_else(|error| {
            Err(if error.is_panic() {
                panicked()
            } else {
                StoreError::Unavailable {
                    store: Store::Text,
                    reason: "shutting down".to_owned(),
                }
            })
        })
    }
}

impl Inner {
    fn position(&self, view: &View, scope: OwnerScope) -> u64 {
        let partition = self.feed.partition_of(scope.key());
        view.payload.next.get(&partition).copied().unwrap_or(0)
    }

    fn view(&self) -> Arc<View> {
        self.view
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    fn show(&self, mut view: View) {
        view.inherit(&self.view());
        *self.view.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(view);
    }

    /// Applies a batch, in one commit with whatever other partitions' batches wait beside it: a commit
    /// costs the same for one as for many.
    fn apply(
        &self,
        partition: u32,
        from: u64,
        changes: Vec<Change>,
        next: Checkpoint,
    ) -> Result<(), StoreError> {
        let (done, answer) = sync_channel(1);
        lock(&self.waiting).push(Waiting {
            partition,
            from,
            changes,
            next,
            done,
        });
        self.arrived.notify_all();
        let mut writing = lock(&self.writing);
        if let Ok(answer) = answer.try_recv() {
            return answer;
        }
        self.gather(&writing);
        let taken = std::mem::take(&mut *lock(&self.waiting));
        self.commit(&mut writing, taken);
        answer.try_recv().unwrap_or_else(|_| {
            Err(StoreError::Unavailable {
                store: Store::Text,
                reason: "another batch's commit broke off".to_owned(),
            })
        })
    }

    /// Lets other partitions' batches come, unless the last commit is long ago, all have come, or there is
    /// enough for a commit.
    fn gather(&self, writing: &Writing) {
        let is_too_little = |waiting: &mut Vec<Waiting>| {
            let changes: usize = waiting.iter().map(|batch| batch.changes.len()).sum();
            changes < WHOLE_COMMIT && waiting.len() < self.feed.partitions as usize
        };
        let rest = self.pace.saturating_sub(writing.since_commit());
        drop(
            self.arrived
                .wait_timeout_while(lock(&self.waiting), rest, is_too_little),
        );
    }

    fn commit(&self, writing: &mut Writing, taken: Vec<Waiting>) {
        let mut payload = self.view().payload.clone();
        let mut admitted = Vec::new();
        for batch in taken {
            let stored = payload.next.get(&batch.partition).copied().unwrap_or(0);
            let checked = self.feed.check(
                Store::Text,
                stored,
                &Batch {
                    partition: batch.partition,
                    from: batch.from,
                    changes: &batch.changes,
                    next: batch.next,
                },
            );
            match checked {
                Ok(()) => {
                    payload.next.insert(batch.partition, batch.next.next);
                    admitted.push(batch);
                }
                Err(error) => drop(batch.done.send(Err(error))),
            }
        }
        if admitted.is_empty() {
            return;
        }
        writing.begins();
        let changes = admitted.iter().flat_map(|batch| &batch.changes);
        let written = writing.commit(changes, &payload);
        // Also after an error: a commit of unknown outcome is known by reading the index again.
        let written = match writing.view() {
            Ok(view) => {
                self.show(view);
                written
            }
            Err(error) => Err(error),
        };
        for batch in admitted {
            let touched: BTreeSet<OwnerKey> = batch.changes.iter().map(Change::owner).collect();
            let position = written.is_ok().then_some(batch.next.next);
            self.cache.batch_ended(batch.partition, &touched, position);
            drop(batch.done.send(written.clone()));
        }
    }

    fn compact(&self) -> Result<(), StoreError> {
        let mut writing = lock(&self.writing);
        writing.purge()?;
        self.show(writing.view()?);
        writing.sweep()
    }
}

#[async_trait]
impl Projection for TantivyText {
    fn store(&self) -> Store {
        Store::Text
    }

    async fn checkpoint(&self, partition: u32) -> Result<Option<Checkpoint>, StoreError> {
        let next = self.inner.view().payload.next.get(&partition).copied();
        Ok(next.map(|next| Checkpoint {
            log_id: self.inner.feed.log_id,
            next,
        }))
    }

    async fn apply(
        &self,
        partition: u32,
        from: u64,
        changes: &[Change],
        next: Checkpoint,
    ) -> Result<(), StoreError> {
        let changes = changes.to_vec();
        self.blocking(move |inner| inner.apply(partition, from, changes, next))
            .await
    }

    async fn owners(&self) -> Result<Vec<OwnerKey>, StoreError> {
        self.blocking(|inner| inner.view().owners()).await
    }

    async fn rows(&self, scope: OwnerScope) -> Result<Vec<RowDigest>, StoreError> {
        self.blocking(move |inner| inner.view().rows(scope)).await
    }

    async fn compact(&self) -> Result<(), StoreError> {
        self.blocking(Inner::compact).await
    }
}

#[async_trait]
impl TextIndex for TantivyText {
    async fn search(
        &self,
        filter: &Filter,
        terms: &[String],
        top: usize,
    ) -> Result<LegAnswer, StoreError> {
        for _ in 0..MERGED_MEANWHILE_MAX {
            let (rows, position) = self.rows_of(filter.scope).await?;
            let view = self.inner.view();
            let Some(places) = view.places(&rows) else {
                self.inner.cache.forget(filter.scope.key(), &rows);
                continue;
            };
            let hits = if rows.rows.len() <= ROWS_SOON_SEARCHED {
                let search = || view.search((&rows, &places), filter, terms, top);
                catch_unwind(AssertUnwindSafe(search)).unwrap_or_else(|_| Err(panicked()))?
            } else {
                let (filter, terms) = (filter.clone(), terms.to_vec());
                self.blocking(move |_| view.search((&rows, &places), &filter, &terms, top))
                    .await?
            };
            return Ok(LegAnswer { hits, position });
        }
        let (filter, terms) = (filter.clone(), terms.to_vec());
        self.blocking(move |inner| {
            let view = inner.view();
            let rows = Rows::load(&view, filter.scope.key())?;
            let places = view.places(&rows).unwrap_or_default();
            Ok(LegAnswer {
                hits: view.search((&rows, &places), &filter, &terms, top)?,
                position: inner.position(&view, filter.scope),
            })
        })
        .await
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// tantivy panics on files that cannot be what it wrote.
fn panicked() -> StoreError {
    damaged("reading or writing it failed unexpectedly")
}

fn damaged(reason: impl Into<String>) -> StoreError {
    StoreError::Damaged {
        store: Store::Text,
        reason: reason.into(),
    }
}

fn io(error: &std::io::Error) -> StoreError {
    StoreError::Unavailable {
        store: Store::Text,
        reason: error.to_string(),
    }
}

/// What an error of the engine means to the caller. Its texts name files and fields, never terms.
fn engine(error: tantivy::TantivyError) -> StoreError {
    use tantivy::TantivyError as E;
    use tantivy::directory::error::OpenReadError as Read;

    let reason = error.to_string();
    let is_incompatible = matches!(
        error,
        E::IncompatibleIndex(_) | E::OpenReadError(Read::IncompatibleIndex(_))
    );
    if is_incompatible {
        let what =
            format!("text was written by another version of the engine ({reason}); {REBUILD}");
        return StoreError::Unusable { what };
    }
    #[allow(
        clippy::wildcard_enum_match_arm,
        reason = "the library's own enum, which grows"
    )]
    let is_damaged = match &error {
        E::DataCorruption(_) | E::OpenReadError(Read::FileDoesNotExist(_)) => true,
        E::OpenReadError(Read::IoError { io_error, .. }) | E::IoError(io_error) => {
            is_cut_short(io_error)
        }
        _ => false,
    };
    if is_damaged {
        return damaged(reason);
    }
    // Of the disk or the moment. So is the engine's own lock: the folder's is held, and the engine's
    // passes for a moment to whatever process is being forked.
    StoreError::Unavailable {
        store: Store::Text,
        reason,
    }
}

fn is_cut_short(error: &std::io::Error) -> bool {
    matches!(
        error.kind(),
        std::io::ErrorKind::UnexpectedEof | std::io::ErrorKind::InvalidData
    )
}

const REBUILD: &str = "rebuild it: anamnesis rebuild --store text";
