//! Which of an owner's memories share something with these? Entities and their memories, in one SQLite
//! file.
//!
//! An edge holds the entity's words itself, so there is no node that two owners could share, nothing
//! that dangles, and one altered row changes the digest of one version.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use anamnesis_domain::ids::{MemoryId, OwnerKey};
use anamnesis_domain::memory::{Entity, EntityKind};
use anamnesis_domain::owner::OwnerScope;
use anamnesis_domain::rank::hub_weight;
use anamnesis_domain::text::Text;
use anamnesis_pipeline::feed::Feed;
use anamnesis_pipeline::stores::{
    Change, Checkpoint, Filter, GraphIndex, Hit, LegAnswer, MemoryVersion, Projection, RowDigest,
    Store, StoreError,
};
use anamnesis_pipeline::{digests, similarity};
use async_trait::async_trait;
use rusqlite::{Connection, Row, params};

use crate::sqlite_store::facets::{self, VersionId, version_columns, version_table};
use crate::sqlite_store::{
    Database, Failure, Layout, altered, cut_column, position, to_column, unreadable,
};

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
    " FROM versions WHERE owner = ?1"
);

/// The entities of a memory's version that is live at the cut.
const ENTITIES_OF_LIVE: &str = "
    SELECT edges.kind, edges.name FROM versions INDEXED BY versions_by_memory CROSS JOIN edges USING (owner, memory, version)
    WHERE versions.owner = ?1 AND versions.memory = ?2
      AND recorded_from < ?3 AND (recorded_to IS NULL OR recorded_to >= ?3)";

/// The versions that are live at the cut and have an entity. Columns as [`version_columns`].
const LIVE_WITH_ENTITY: &str = "
    SELECT versions.owner, versions.memory, versions.version, recorded_from, recorded_to, valid_from,
        valid_to, subject, versions.kind, status, context_tags, is_confirmation
    FROM edges CROSS JOIN versions INDEXED BY versions_by_memory USING (owner, memory, version)
    WHERE edges.owner = ?1 AND edges.kind = ?2 AND edges.name = ?3
      AND recorded_from < ?4 AND (recorded_to IS NULL OR recorded_to >= ?4)";

/// The graph of one generation: the file `graph.db`.
pub struct SqliteGraph {
    database: Database,
}

impl SqliteGraph {
    /// Opens or makes `dir/graph.db`.
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
        self.database
            .apply(partition, from, changes, next, write, |_| ())
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
        let feed = self.database.feed();
        let (filter, seeds) = (filter.clone(), seeds.to_vec());
        let mut asked: BTreeSet<Entity> = entities.iter().cloned().collect();
        self.database
            .read(move |connection| {
                for seed in seeds {
                    add_entities(connection, &filter, seed, &mut asked)?;
                }
                let hits = weigh(connection, &filter, &asked)?;
                let position = position(connection, feed, filter.scope)?;
                Ok(LegAnswer {
                    hits: similarity::best(hits, top),
                    position,
                })
            })
            .await
    }
}

fn add_entities(
    connection: &Connection,
    filter: &Filter,
    seed: MemoryId,
    asked: &mut BTreeSet<Entity>,
) -> Result<(), Failure> {
    let mut statement = connection.prepare_cached(ENTITIES_OF_LIVE)?;
    let owner = filter.scope.key();
    let mut rows = statement.query(params![owner.bytes(), seed.bytes(), cut_column(filter.cut)])?;
    while let Some(row) = rows.next()? {
        asked.insert(read_entity(row)?);
    }
    Ok(())
}

/// Adds up, in ascending order of the entities, what each shared one weighs.
fn weigh(
    connection: &Connection,
    filter: &Filter,
    asked: &BTreeSet<Entity>,
) -> Result<Vec<Hit>, Failure> {
    let mut scores: BTreeMap<(MemoryId, u64), f64> = BTreeMap::new();
    let mut statement = connection.prepare_cached(LIVE_WITH_ENTITY)?;
    let owner = filter.scope.key();
    for entity in asked {
        let (kind, name) = (entity.kind.code(), entity.name.expose());
        let mut rows =
            statement.query(params![owner.bytes(), kind, name, cut_column(filter.cut)])?;
        let mut having = Vec::new();
        while let Some(row) = rows.next()? {
            if filter.admits(&facets::read(row)?) {
                let id = VersionId::read(row)?;
                having.push((id.memory, id.version));
            }
        }
        let weight = hub_weight(having.len() as u64);
        for version in having {
            *scores.entry(version).or_insert(0.0) += weight;
        }
    }
    let hits = scores.into_iter().map(|((memory_id, version), score)| Hit {
        memory_id,
        version,
        score,
    });
    Ok(hits.collect())
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
