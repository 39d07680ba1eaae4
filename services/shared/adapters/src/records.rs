//! What is believed of an owner, exactly, without any model? The authority, in one SQLite file.
//!
//! - [`body`](self::body): what stands in columns, what beside them, and whether the two agree
//! - [`write`](self::write): changes
//! - [`read`](self::read): questions and digests
//! - [`recent`](self::recent): the same answers for owners asked about lately, from memory

mod body;
mod read;
mod recent;
mod write;

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use anamnesis_domain::ids::{EventTag, MemoryId, OwnerKey};
use anamnesis_domain::memory::{Kind, Status};
use anamnesis_domain::owner::OwnerScope;
use anamnesis_domain::time::Known;
use anamnesis_pipeline::feed::Feed;
use anamnesis_pipeline::stores::{
    Change, Checkpoint, Cut, DecisionRow, Filter, MemoryVersion, Order, OwnerView, Page,
    Projection, Records, RowDigest, Store, StoreError,
};
use async_trait::async_trait;

use self::recent::{Places, Recent};
use crate::owner_cache::OwnerCache;
use crate::sqlite_store::facets::version_table;
use crate::sqlite_store::{Database, Layout, position};

const LAYOUT: Layout = Layout {
    store: Store::Records,
    tables: &["versions", "decisions", "owners"],
    sql: concat!(
        version_table!(
            ",
            recorded_at INTEGER NOT NULL,
            body TEXT NOT NULL"
        ),
        "
        CREATE INDEX versions_by_recorded
            ON versions (owner, recorded_from DESC, memory, recorded_to, kind);
        CREATE INDEX versions_by_valid
            ON versions (owner, valid_from DESC, memory, recorded_from, recorded_to, kind);
        CREATE INDEX versions_current ON versions (kind, status)
            WHERE recorded_to IS NULL AND is_confirmation = 0;

        CREATE TABLE decisions (
            id INTEGER PRIMARY KEY,
            owner BLOB NOT NULL,
            owner_seq INTEGER NOT NULL,
            partition INTEGER NOT NULL,
            \"offset\" INTEGER NOT NULL,
            recorded_at INTEGER NOT NULL,
            event BLOB NOT NULL,
            body TEXT NOT NULL
        ) STRICT;
        CREATE UNIQUE INDEX decisions_by_seq ON decisions (owner, owner_seq);
        CREATE INDEX decisions_by_event ON decisions (owner, event, owner_seq, \"offset\");
        -- Recorded time to offset, over all owners of a partition.
        CREATE INDEX decisions_by_time ON decisions (partition, recorded_at, \"offset\");

        CREATE TABLE owners (owner BLOB PRIMARY KEY, body TEXT NOT NULL) STRICT;"
    ),
};

/// Memory for what is at hand of owners: some 70,000 memories that were answered from, or the filters of
/// ten times as many.
const CACHE_BYTES: usize = 96 << 20;

/// The authority of one generation: the file `records.db`.
pub struct SqliteRecords {
    database: Database,
    cache: Arc<OwnerCache<Recent>>,
}

impl SqliteRecords {
    /// Opens or makes `dir/records.db`.
    ///
    /// # Errors
    /// [`StoreError::OtherLog`], [`StoreError::Damaged`], or [`StoreError::Unusable`] for a file of
    /// another format.
    pub fn open(dir: &Path, feed: Feed) -> Result<Self, StoreError> {
        Self::open_with_cache(dir, feed, CACHE_BYTES)
    }

    /// The same with another bound of the memory for what is at hand.
    ///
    /// # Errors
    /// As [`SqliteRecords::open`].
    pub fn open_with_cache(
        dir: &Path,
        feed: Feed,
        cache_bytes_max: usize,
    ) -> Result<Self, StoreError> {
        Ok(Self {
            database: Database::open(dir, &LAYOUT, feed, None)?,
            cache: Arc::new(OwnerCache::new(feed, cache_bytes_max)),
        })
    }

    /// What is at hand of the owner, and how far its partition is applied. `None` for an owner with very
    /// much, and where a row cannot be read: then the file answers whatever does not need that row.
    async fn recent(&self, scope: OwnerScope) -> Option<(Arc<Recent>, u64)> {
        let feed = self.database.feed();
        let load = || {
            self.database.read(move |connection| {
                let recent = Recent::load(connection, scope)?;
                Ok((Arc::new(recent), position(connection, feed, scope)?))
            })
        };
        let found = self.cache.block(scope.key(), load).await.ok();
        found.filter(|(recent, _)| !recent.is_too_large)
    }

    /// The versions at these places. `None` where the file has to be asked.
    async fn whole(
        &self,
        scope: OwnerScope,
        recent: &Arc<Recent>,
        places: Places,
    ) -> Option<(Vec<MemoryVersion>, Option<String>)> {
        if let Some(versions) = recent.whole(&places) {
            return Some((versions, places.cursor));
        }
        let block = recent.clone();
        let filled = self
            .database
            .read(move |connection| Ok((block.fill(connection, &places)?, places)));
        let (is_filled, places) = filled.await.ok()?;
        if !is_filled {
            return None;
        }
        self.cache.grew(scope.key(), recent);
        // While the file was read, an erasure may have become effective.
        if !self.cache.has(scope.key(), recent) {
            return None;
        }
        Some((recent.whole(&places)?, places.cursor))
    }
}

#[async_trait]
impl Projection for SqliteRecords {
    fn store(&self) -> Store {
        Store::Records
    }

    async fn checkpoint(&self, partition: u32) -> Result<Option<Checkpoint>, StoreError> {
        self.database.checkpoint(partition).await
    }

    async fn apply(
        &self,
        partition: u32,
        from: u64,
        changes: &[Change],
        next: Checkpoint,
    ) -> Result<(), StoreError> {
        let write =
            move |connection: &_, changes: &[Change]| write::all(connection, partition, changes);
        let touched: BTreeSet<OwnerKey> = changes.iter().map(Change::owner).collect();
        let cache = self.cache.clone();
        let ended = move |is_applied: bool| {
            cache.batch_ended(partition, &touched, is_applied.then_some(next.next));
        };
        self.database
            .apply(partition, from, changes, next, write, ended)
            .await
    }

    async fn owners(&self) -> Result<Vec<OwnerKey>, StoreError> {
        let sql = "SELECT owner FROM versions UNION SELECT owner FROM decisions
                   UNION SELECT owner FROM owners ORDER BY 1";
        self.database.owners(sql).await
    }

    async fn rows(&self, scope: OwnerScope) -> Result<Vec<RowDigest>, StoreError> {
        self.database
            .read(move |connection| read::rows(connection, scope))
            .await
    }

    async fn compact(&self) -> Result<(), StoreError> {
        self.database.compact().await
    }
}

#[async_trait]
impl Records for SqliteRecords {
    async fn cut(&self, scope: OwnerScope, known: Known) -> Result<Cut, StoreError> {
        if known == Known::Latest
            && let Some((_, position)) = self.recent(scope).await
        {
            return Ok(Cut(position));
        }
        let feed = self.database.feed();
        self.database
            .read(move |connection| read::cut(connection, feed, scope, known))
            .await
    }

    async fn check(
        &self,
        filter: &Filter,
        ids: &[MemoryId],
    ) -> Result<Vec<MemoryVersion>, StoreError> {
        if let Some((recent, _)) = self.recent(filter.scope).await {
            let places = recent.check(filter, ids);
            if let Some((versions, _)) = self.whole(filter.scope, &recent, places).await {
                return Ok(versions);
            }
        }
        let (filter, ids) = (filter.clone(), ids.to_vec());
        self.database
            .read(move |connection| read::check(connection, &filter, &ids))
            .await
    }

    async fn history(
        &self,
        scope: OwnerScope,
        id: MemoryId,
    ) -> Result<Vec<MemoryVersion>, StoreError> {
        if let Some((recent, _)) = self.recent(scope).await {
            let places = recent.history(id);
            if let Some((versions, _)) = self.whole(scope, &recent, places).await {
                return Ok(versions);
            }
        }
        self.database
            .read(move |connection| read::history(connection, scope, id))
            .await
    }

    async fn list(
        &self,
        filter: &Filter,
        order: Order,
        limit: usize,
        cursor: Option<&str>,
    ) -> Result<Page, StoreError> {
        if let Some((recent, _)) = self.recent(filter.scope).await {
            let places = recent.list(filter.clone(), order, limit, cursor)?;
            if let Some((versions, cursor)) = self.whole(filter.scope, &recent, places).await {
                return Ok(Page { versions, cursor });
            }
        }
        let (filter, cursor) = (filter.clone(), cursor.map(str::to_owned));
        self.database
            .read(move |connection| read::list(connection, filter, order, limit, cursor.as_deref()))
            .await
    }

    async fn owner(&self, scope: OwnerScope) -> Result<Option<OwnerView>, StoreError> {
        if let Some((recent, _)) = self.recent(scope).await {
            return Ok(recent.owner());
        }
        self.database
            .read(move |connection| read::owner(connection, scope))
            .await
    }

    async fn decision(
        &self,
        scope: OwnerScope,
        event: EventTag,
    ) -> Result<Option<DecisionRow>, StoreError> {
        let recent = self.recent(scope).await.map(|(recent, _)| recent);
        if let Some(known) = recent.as_ref().and_then(|recent| recent.decision(event)) {
            return Ok(known);
        }
        let decision = self
            .database
            .read(move |connection| read::decision(connection, scope, event))
            .await?;
        if let Some(recent) = recent {
            recent.keep_decision(event, decision.clone());
            self.cache.grew(scope.key(), &recent);
        }
        Ok(decision)
    }

    async fn decision_offsets(&self, scope: OwnerScope) -> Result<Vec<u64>, StoreError> {
        self.database
            .read(move |connection| read::decision_offsets(connection, scope))
            .await
    }

    async fn counts(&self) -> Result<Vec<(Kind, Status, u64)>, StoreError> {
        self.database.read(read::counts).await
    }
}
