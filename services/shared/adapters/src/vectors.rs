//! Which of an owner's memories mean what a question means? Exact cosine over the owner's own vectors,
//! which stand in one SQLite file and, for owners asked lately, side by side in memory.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use anamnesis_domain::ids::{MemoryId, OwnerKey};
use anamnesis_domain::owner::OwnerScope;
use anamnesis_pipeline::embedder::ModelIdentity;
use anamnesis_pipeline::feed::{self, Feed};
use anamnesis_pipeline::stores::{
    Change, Checkpoint, Facets, Filter, Hit, LegAnswer, MemoryVersion, Projection, RowDigest,
    Store, StoreError, VectorIndex,
};
use anamnesis_pipeline::{digests, similarity};
use async_trait::async_trait;
use rusqlite::types::Value;
use rusqlite::{Connection, Row, params};

use crate::owner_cache::{Block, OwnerCache};
use crate::sqlite_store::facets::{
    self, VERSION_COLUMNS, VersionId, version_columns, version_table,
};
use crate::sqlite_store::{Database, Failure, Layout, altered, position, unreadable};

const LAYOUT: Layout = Layout {
    store: Store::Vectors,
    tables: &["versions"],
    // Components as 32-bit floats, little end first.
    sql: version_table!(", vector BLOB NOT NULL"),
};

const INSERT: &str = concat!(
    "INSERT OR IGNORE INTO versions (",
    version_columns!(),
    ", vector) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13)"
);

const OF_OWNER: &str = concat!(
    "SELECT ",
    version_columns!(),
    ", vector FROM versions WHERE owner = ?1 ORDER BY memory, version"
);

/// Memory for packed vectors: about 80,000 of 384 components, so that a hundred thousand memories are
/// served in well under 1 GiB.
const CACHE_BYTES: usize = 128 << 20;

/// All vectors of one owner, side by side.
struct Vectors {
    /// With the place of each one's components: versions of a memory that say the same share theirs.
    versions: Vec<(MemoryId, u64, Facets, usize)>,
    /// `dimension` components at each place.
    components: Vec<f32>,
}

impl Block for Vectors {
    fn bytes(&self) -> usize {
        let version = size_of::<(MemoryId, u64, Facets, usize)>();
        size_of::<Self>()
            + self.versions.capacity() * version
            + self.components.capacity() * size_of::<f32>()
    }
}

/// The vectors of one generation: the file `vectors.db`.
pub struct SqliteVectors {
    model: ModelIdentity,
    database: Database,
    cache: Arc<OwnerCache<Vectors>>,
}

impl SqliteVectors {
    /// Opens or makes `dir/vectors.db` for vectors of `model`.
    ///
    /// # Errors
    /// [`StoreError::OtherModel`] names both; [`StoreError::OtherLog`], [`StoreError::Damaged`], or
    /// [`StoreError::Unusable`] for a file of another format.
    pub fn open(dir: &Path, feed: Feed, model: ModelIdentity) -> Result<Self, StoreError> {
        Self::open_with_cache(dir, feed, model, CACHE_BYTES)
    }

    /// The same with another bound of the memory for packed vectors.
    ///
    /// # Errors
    /// As [`SqliteVectors::open`].
    pub fn open_with_cache(
        dir: &Path,
        feed: Feed,
        model: ModelIdentity,
        cache_bytes_max: usize,
    ) -> Result<Self, StoreError> {
        let database = Database::open(dir, &LAYOUT, feed, Some(&model))?;
        Ok(Self {
            model,
            database,
            cache: Arc::new(OwnerCache::new(feed, cache_bytes_max)),
        })
    }

    /// The owner's vectors and how far they are applied.
    async fn block(&self, scope: OwnerScope) -> Result<(Arc<Vectors>, u64), StoreError> {
        let (feed, dimension) = (self.database.feed(), self.model.dimension as usize);
        let load = || {
            self.database.read(move |connection| {
                let block = load(connection, scope, dimension)?;
                Ok((Arc::new(block), position(connection, feed, scope)?))
            })
        };
        self.cache.block(scope.key(), load).await
    }
}

#[async_trait]
impl Projection for SqliteVectors {
    fn store(&self) -> Store {
        Store::Vectors
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
        feed::check_dimension(changes, &self.model)?;
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
        self.database
            .owners("SELECT DISTINCT owner FROM versions ORDER BY owner")
            .await
    }

    async fn rows(&self, scope: OwnerScope) -> Result<Vec<RowDigest>, StoreError> {
        let dimension = self.model.dimension as usize;
        self.database
            .read(move |connection| rows(connection, scope, dimension))
            .await
    }

    async fn compact(&self) -> Result<(), StoreError> {
        self.database.compact().await
    }
}

#[async_trait]
impl VectorIndex for SqliteVectors {
    fn model(&self) -> &ModelIdentity {
        &self.model
    }

    async fn search(
        &self,
        filter: &Filter,
        query: &[f32],
        top: usize,
    ) -> Result<LegAnswer, StoreError> {
        feed::check_query(query, &self.model)?;
        let (block, position) = self.block(filter.scope).await?;
        let mut hits = Vec::new();
        let mut last: Option<(usize, f64)> = None;
        for (memory_id, version, facets, place) in &block.versions {
            if !filter.admits(facets) {
                continue;
            }
            let score = match last {
                Some((known, score)) if known == *place => score,
                Some(_) | None => {
                    let from = place * query.len();
                    let vector = &block.components[from..from + query.len()];
                    f64::from(similarity::dot(vector, query))
                }
            };
            last = Some((*place, score));
            hits.push(Hit {
                memory_id: *memory_id,
                version: *version,
                score,
            });
        }
        Ok(LegAnswer {
            hits: similarity::best(hits, top),
            position,
        })
    }
}

fn write(connection: &Connection, changes: &[Change]) -> Result<i64, Failure> {
    let mut added = 0;
    for change in changes {
        match change {
            Change::Version { version, vector } => {
                facets::close(connection, id_of(version), version.recorded_from)?;
                added += insert(connection, version, vector.as_ref())?;
            }
            Change::Rewrite(rows) => {
                added += facets::delete_owner(connection, rows.owner)?;
                for (version, vector) in &rows.versions {
                    added += insert(connection, version, vector.as_ref())?;
                }
            }
            Change::Decision(_) | Change::Owner(_) => (),
        }
    }
    Ok(added)
}

fn id_of(version: &MemoryVersion) -> VersionId {
    let MemoryVersion { owner, memory, .. } = version;
    VersionId {
        owner: *owner,
        memory: memory.id,
        version: memory.version,
    }
}

fn insert(
    connection: &Connection,
    version: &MemoryVersion,
    vector: Option<&Arc<[f32]>>,
) -> Result<i64, Failure> {
    let Some(vector) = vector else { return Ok(0) };
    let mut values = facets::values(id_of(version), &version.facets());
    values.push(Value::Blob(
        vector.iter().flat_map(|x| x.to_le_bytes()).collect(),
    ));
    facets::insert(connection, INSERT, id_of(version), &values)
}

fn load(connection: &Connection, scope: OwnerScope, dimension: usize) -> Result<Vectors, Failure> {
    let mut block = Vectors {
        versions: Vec::new(),
        components: Vec::new(),
    };
    let mut statement = connection.prepare_cached(OF_OWNER)?;
    let mut rows = statement.query(params![scope.key().bytes()])?;
    while let Some(row) = rows.next()? {
        let id = VersionId::read(row)?;
        let from = block.components.len();
        read_vector(row, dimension, &mut block.components)?;
        let mut place = from / dimension.max(1);
        let before = block.versions.last();
        if let Some((_, _, _, shared)) = before.filter(|(memory, ..)| *memory == id.memory) {
            let (kept, new) = block.components.split_at(from);
            // Bit by bit: what is no number would equal nothing.
            let is_same = |(a, b): (&f32, &f32)| a.to_bits() == b.to_bits();
            if kept[shared * dimension..][..dimension]
                .iter()
                .zip(new)
                .all(is_same)
            {
                place = *shared;
                block.components.truncate(from);
            }
        }
        block
            .versions
            .push((id.memory, id.version, facets::read(row)?, place));
    }
    block.versions.shrink_to_fit();
    block.components.shrink_to_fit();
    Ok(block)
}

fn read_vector(row: &Row<'_>, dimension: usize, into: &mut Vec<f32>) -> rusqlite::Result<()> {
    let bytes = row.get_ref(VERSION_COLUMNS)?.as_blob()?;
    if bytes.len() != dimension * size_of::<f32>() {
        return Err(unreadable(VERSION_COLUMNS, "the vector has another length"));
    }
    let components = bytes.chunks_exact(size_of::<f32>());
    into.extend(components.map(|c| f32::from_le_bytes([c[0], c[1], c[2], c[3]])));
    Ok(())
}

fn rows(
    connection: &Connection,
    scope: OwnerScope,
    dimension: usize,
) -> Result<Vec<RowDigest>, Failure> {
    let mut digests = Vec::new();
    let mut statement = connection.prepare_cached(OF_OWNER)?;
    let mut rows = statement.query(params![scope.key().bytes()])?;
    while let Some(row) = rows.next()? {
        let key = VersionId::read(row)?.key();
        let mut vector = Vec::with_capacity(dimension);
        let facets = read_vector(row, dimension, &mut vector).and_then(|()| facets::read(row));
        digests.push(match facets {
            Ok(facets) => RowDigest {
                key,
                hash: digests::vector_hash(&facets, &vector),
            },
            Err(_) => altered(row, key)?,
        });
    }
    digests.sort();
    Ok(digests)
}
