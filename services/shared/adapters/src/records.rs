//! What is believed of an owner, exactly, without any model? The authority, in one SQLite file.
//!
//! - [`body`](self::body): what stands in columns, what beside them, and whether the two agree
//! - [`write`](self::write): changes
//! - [`read`](self::read): questions and digests

mod body;
mod read;
mod write;

use std::path::Path;

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

use crate::sqlite_store::facets::version_table;
use crate::sqlite_store::{Database, Layout};

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

/// The authority of one generation: the file `records.db`.
pub struct SqliteRecords {
    database: Database,
}

impl SqliteRecords {
    /// Opens or makes `dir/records.db`.
    ///
    /// # Errors
    /// [`StoreError::OtherLog`], [`StoreError::Damaged`], or [`StoreError::Unusable`] for a file of
    /// another format.
    pub fn open(dir: &Path, feed: Feed) -> Result<Self, StoreError> {
        Ok(Self {
            database: Database::open(dir, &LAYOUT, feed, None)?,
        })
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
        self.database
            .apply(partition, from, changes, next, write, |_| ())
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
        let (filter, cursor) = (filter.clone(), cursor.map(str::to_owned));
        self.database
            .read(move |connection| read::list(connection, filter, order, limit, cursor.as_deref()))
            .await
    }

    async fn owner(&self, scope: OwnerScope) -> Result<Option<OwnerView>, StoreError> {
        self.database
            .read(move |connection| read::owner(connection, scope))
            .await
    }

    async fn decision(
        &self,
        scope: OwnerScope,
        event: EventTag,
    ) -> Result<Option<DecisionRow>, StoreError> {
        self.database
            .read(move |connection| read::decision(connection, scope, event))
            .await
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
