//! Which of an owner's memories share something with these? Entities and their memories, in one SQLite
//! file.
//!
//! An edge holds the entity's words itself, so there is no node that two owners could share, nothing
//! that dangles, and one altered row changes the digest of one version.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use anamnesis_domain::ids::{MemoryId, OwnerKey};
use anamnesis_domain::memory::{Entity, EntityKind};
use anamnesis_domain::owner::OwnerScope;
use anamnesis_domain::rank::hub_weight;
use anamnesis_domain::text::Text;
use anamnesis_pipeline::feed::Feed;
use anamnesis_pipeline::stores::{
    Change, Checkpoint, Facets, Filter, GraphIndex, Hit, LegAnswer, MemoryVersion, Projection,
    RowDigest, Store, StoreError,
};
use anamnesis_pipeline::{digests, similarity};
use async_trait::async_trait;
use rusqlite::{Connection, Row, params};

use crate::owner_cache::{Block, OwnerCache};
use crate::sqlite_store::facets::{self, VersionId, version_columns, version_table};
use crate::sqlite_store::{Database, Failure, Layout, altered, position, to_column, unreadable};

const LAYOUT: Layout = Layout {
    store: Store::Graph,
    tables: &["versions", "edges"],
    sql: concat!(
        version_table!(""),
        "
        CREATE TABLE edges (
            owner BLOB NOT NULL,
            kind TEXT NOT NULL,
            name TEXT NOT NULL,
            memory BLOB NOT NULL,
            version INTEGER NOT NULL,
            PRIMARY KEY (owner, kind, name, memory, version)
        ) STRICT, WITHOUT ROWID;
        CREATE INDEX edges_by_memory ON edges (owner, memory, version, kind, name);"
    ),
};

const INSERT: &str = concat!(
    "INSERT OR IGNORE INTO versions (",
    version_columns!(),
    ") VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12)"
);

const OF_OWNER: &str = concat!(
    "SELECT ",
    version_columns!(),
    " FROM versions WHERE owner = ?1 ORDER BY memory, version"
);

const EDGES_OF_OWNER: &str =
    "SELECT kind, name, owner, memory, version FROM edges WHERE owner = ?1 ORDER BY kind, name";

/// Memory for what is at hand of owners: a version and its edges take some 200 bytes.
const CACHE_BYTES: usize = 32 << 20;

/// One owner's versions and what they share.
struct Shared {
    /// By memory, then by version.
    versions: Vec<(MemoryId, u64, Facets)>,
    entities: Vec<Sharing>,
    /// Pairs of places in `versions` and in `entities`, ascending.
    edges: Vec<(u32, u32)>,
}

struct Sharing {
    entity: Entity,
    /// Places of the versions that have it.
    having: Vec<u32>,
}

impl Block for Shared {
    fn bytes(&self) -> usize {
        let names: usize = self
            .entities
            .iter()
            .map(|one| one.entity.name.expose().len())
            .sum();
        size_of::<Self>()
            + self.versions.capacity() * size_of::<(MemoryId, u64, Facets)>()
            + self.entities.capacity() * size_of::<Sharing>()
            // Each edge stands at its entity as well.
            + self.edges.capacity() * (size_of::<(u32, u32)>() + size_of::<u32>())
            + names
    }
}

/// The graph of one generation: the file `graph.db`.
pub struct SqliteGraph {
    database: Database,
    cache: Arc<OwnerCache<Shared>>,
}

impl SqliteGraph {
    /// Opens or makes `dir/graph.db`.
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
    /// As [`SqliteGraph::open`].
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
}

#[async_trait]
impl Projection for SqliteGraph {
    fn store(&self) -> Store {
        Store::Graph
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
        let sql = "SELECT owner FROM versions UNION SELECT owner FROM edges ORDER BY 1";
        self.database.owners(sql).await
    }

    async fn rows(&self, scope: OwnerScope) -> Result<Vec<RowDigest>, StoreError> {
        self.database
            .read(move |connection| rows(connection, scope))
            .await
    }

    async fn compact(&self) -> Result<(), StoreError> {
        self.database.compact().await
    }
}

#[async_trait]
impl GraphIndex for SqliteGraph {
    async fn neighbours(
        &self,
        filter: &Filter,
        seeds: &[MemoryId],
        entities: &[Entity],
        top: usize,
    ) -> Result<LegAnswer, StoreError> {
        let (feed, scope) = (self.database.feed(), filter.scope);
        let load = || {
            self.database.read(move |connection| {
                let shared = Shared::load(connection, scope)?;
                Ok((Arc::new(shared), position(connection, feed, scope)?))
            })
        };
        let (shared, position) = self.cache.block(scope.key(), load).await?;
        let hits = shared.weigh(filter, &shared.asked(filter, seeds, entities));
        Ok(LegAnswer {
            hits: similarity::best(hits, top),
            position,
        })
    }
}

impl Shared {
    fn load(connection: &Connection, scope: OwnerScope) -> Result<Self, Failure> {
        let owner = scope.key();
        let mut versions: Vec<(MemoryId, u64, Facets)> = Vec::new();
        let mut statement = connection.prepare_cached(OF_OWNER)?;
        let mut rows = statement.query(params![owner.bytes()])?;
        while let Some(row) = rows.next()? {
            let id = VersionId::read(row)?;
            versions.push((id.memory, id.version, facets::read(row)?));
        }

        let mut shared = Self {
            versions,
            entities: Vec::new(),
            edges: Vec::new(),
        };
        let mut statement = connection.prepare_cached(EDGES_OF_OWNER)?;
        let mut rows = statement.query(params![owner.bytes()])?;
        while let Some(row) = rows.next()? {
            let of = (
                MemoryId::from_bytes(row.get(3)?),
                row.get::<_, i64>(4)? as u64,
            );
            let versions = &shared.versions;
            // An edge of no version leads nowhere.
            let Ok(version) =
                versions.binary_search_by_key(&of, |(memory, version, _)| (*memory, *version))
            else {
                continue;
            };
            let entity = read_entity(row)?;
            if shared
                .entities
                .last()
                .is_none_or(|last| last.entity != entity)
            {
                let having = Vec::new();
                shared.entities.push(Sharing { entity, having });
            }
            let place = shared.entities.len() as u32 - 1;
            if let Some(last) = shared.entities.last_mut() {
                last.having.push(version as u32);
            }
            shared.edges.push((version as u32, place));
        }
        shared.edges.sort_unstable();
        shared.versions.shrink_to_fit();
        shared.edges.shrink_to_fit();
        Ok(shared)
    }

    /// What the question names and what its seeds have: places in `entities`, in ascending order of the
    /// entities.
    fn asked(&self, filter: &Filter, seeds: &[MemoryId], entities: &[Entity]) -> Vec<usize> {
        let mut asked: BTreeSet<(&Entity, usize)> = BTreeSet::new();
        let at = |place: usize| (&self.entities[place].entity, place);
        for seed in seeds {
            let from = self.versions.partition_point(|(memory, ..)| memory < seed);
            let versions = self.versions[from..].iter().enumerate();
            for (place, (.., facets)) in versions.take_while(|(_, (memory, ..))| memory == seed) {
                if !filter.is_live(facets) {
                    continue;
                }
                let version = (from + place) as u32;
                let first = self.edges.partition_point(|edge| edge.0 < version);
                let edges = self.edges[first..]
                    .iter()
                    .take_while(|edge| edge.0 == version);
                asked.extend(edges.map(|edge| at(edge.1 as usize)));
            }
        }
        for entity in entities {
            let known = self.entities.iter().position(|one| one.entity == *entity);
            asked.extend(known.map(at));
        }
        asked.into_iter().map(|(_, place)| place).collect()
    }

    /// Adds up, in ascending order of the entities, what each shared one weighs.
    fn weigh(&self, filter: &Filter, asked: &[usize]) -> Vec<Hit> {
        let mut scores: BTreeMap<(MemoryId, u64), f64> = BTreeMap::new();
        for entity in asked {
            let having = self.entities[*entity].having.iter();
            let versions = having.map(|version| &self.versions[*version as usize]);
            let admitted: Vec<(MemoryId, u64)> = versions
                .filter(|(.., facets)| filter.admits(facets))
                .map(|(memory, version, _)| (*memory, *version))
                .collect();
            let weight = hub_weight(admitted.len() as u64);
            for version in admitted {
                *scores.entry(version).or_insert(0.0) += weight;
            }
        }
        let hits = scores.into_iter().map(|((memory_id, version), score)| Hit {
            memory_id,
            version,
            score,
        });
        hits.collect()
    }
}

/// Reads `kind, name`.
fn read_entity(row: &Row<'_>) -> rusqlite::Result<Entity> {
    let kind = EntityKind::from_code(row.get_ref(0)?.as_str()?);
    Ok(Entity {
        kind: kind.ok_or_else(|| unreadable(0, "no kind of entity"))?,
        name: Text::new(row.get::<_, String>(1)?),
    })
}

fn write(connection: &Connection, changes: &[Change]) -> Result<i64, Failure> {
    let mut added = 0;
    for change in changes {
        match change {
            Change::Version { version, vector: _ } => {
                facets::close(connection, id_of(version), version.recorded_from)?;
                added += insert(connection, version)?;
            }
            Change::Rewrite(rows) => {
                added += delete_owner(connection, rows.owner)?;
                for (version, _) in &rows.versions {
                    added += insert(connection, version)?;
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

fn insert(connection: &Connection, version: &MemoryVersion) -> Result<i64, Failure> {
    let id = id_of(version);
    let values = facets::values(id, &version.facets());
    let added = facets::insert(connection, INSERT, id, &values)?;
    let delete = "DELETE FROM edges WHERE owner = ?1 AND memory = ?2 AND version = ?3";
    connection.prepare_cached(delete)?.execute(params![
        id.owner.bytes(),
        id.memory.bytes(),
        to_column(id.version)
    ])?;
    let sql = "INSERT OR IGNORE INTO edges (owner, kind, name, memory, version)
               VALUES (?1, ?2, ?3, ?4, ?5)";
    let mut statement = connection.prepare_cached(sql)?;
    for entity in &version.memory.claim.entities {
        statement.execute(params![
            id.owner.bytes(),
            entity.kind.code(),
            entity.name.expose(),
            id.memory.bytes(),
            to_column(id.version),
        ])?;
    }
    Ok(added)
}

fn delete_owner(connection: &Connection, owner: OwnerKey) -> rusqlite::Result<i64> {
    let sql = "DELETE FROM edges WHERE owner = ?1";
    connection
        .prepare_cached(sql)?
        .execute(params![owner.bytes()])?;
    facets::delete_owner(connection, owner)
}

fn rows(connection: &Connection, scope: OwnerScope) -> Result<Vec<RowDigest>, Failure> {
    let owner = scope.key();
    let mut edges: BTreeMap<VersionId, Edges> = BTreeMap::new();
    let sql = "SELECT kind, name, owner, memory, version FROM edges WHERE owner = ?1";
    let mut statement = connection.prepare_cached(sql)?;
    let mut rows = statement.query(params![owner.bytes()])?;
    while let Some(row) = rows.next()? {
        let memory = MemoryId::from_bytes(row.get(3)?);
        let id = VersionId {
            owner,
            memory,
            version: row.get::<_, i64>(4)? as u64,
        };
        let edges = edges.entry(id).or_default();
        match read_entity(row) {
            Ok(entity) => edges.entities.push(entity),
            Err(_) => edges.is_altered = true,
        }
    }

    let mut digests = Vec::new();
    let mut statement = connection.prepare_cached(OF_OWNER)?;
    let mut rows = statement.query(params![owner.bytes()])?;
    while let Some(row) = rows.next()? {
        let id = VersionId::read(row)?;
        let edges = edges.remove(&id).unwrap_or_default();
        digests.push(match facets::read(row) {
            Ok(facets) if !edges.is_altered => RowDigest {
                key: id.key(),
                hash: digests::graph_hash(&facets, &edges.entities),
            },
            Ok(_) | Err(_) => altered(row, id.key())?,
        });
    }
    // What is left belongs to no version.
    for (id, edges) in edges {
        digests.push(RowDigest {
            key: id.key(),
            hash: digests::hash_of(&edges.entities),
        });
    }
    digests.sort();
    Ok(digests)
}

#[derive(Default)]
struct Edges {
    entities: Vec<Entity>,
    is_altered: bool,
}
