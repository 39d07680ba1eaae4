//! How does a batch change the graph, in one transaction with its checkpoint?
//!
//! The checkpoint's node is locked first. So a second writer of the partition waits, then reads where
//! the first one ended, and is refused; and nobody else changes the owners of the partition meanwhile.

use std::collections::{BTreeMap, BTreeSet};

use anamnesis_domain::ids::{MemoryId, OwnerKey};
use anamnesis_domain::memory::Entity;
use anamnesis_pipeline::feed::{Batch, Feed};
use anamnesis_pipeline::stores::{Change, Facets, MemoryVersion, OwnerRows, Store};
use neo4rs::{BoltType, Query, Row, Txn, query};

use super::client::{Client, Failure, damaged, rows, unusable};
use super::node::{
    OwnerRow, VersionId, entity_node, entity_token, map, owner_hex, to_column, version_node,
};
use super::words::{Secret, hex, unhex};

/// Rows of one statement: bounds what the server holds at once.
const ROWS_MAX: usize = 1_000;

/// Rows of a statement with little in each. The driver writes a message of more than eight KiB in
/// pieces, which the network holds back for 40 ms (Nagle's algorithm against delayed acknowledgement;
/// the driver does not turn it off). Many messages below that are faster than one above.
const SMALL_ROWS_MAX: usize = 50;

/// Setting a property takes the node's lock, and `next` is read behind it.
const LOCK: &str = "
    MERGE (p:AnamnesisPartition {generation: $generation, partition: $partition})
    ON CREATE SET p.next = 0, p.versions = 0
    SET p.is_locked = true
    WITH p
    RETURN p.next AS next";

const MOVE: &str = "
    MATCH (p:AnamnesisPartition {generation: $generation, partition: $partition})
    SET p.next = $next, p.versions = p.versions + $added";

/// A new owner gets the secret that was drawn for it; one that is there keeps its own.
const OWNERS: &str = "
    UNWIND $rows AS row
    MERGE (o:AnamnesisOwner {generation: $generation, owner: row.owner})
    ON CREATE SET o.floor = -1, o.newest = -1,
        o.secret_0 = row.secret[0], o.secret_1 = row.secret[1],
        o.secret_2 = row.secret[2], o.secret_3 = row.secret[3]
    WITH o, row.newest AS newest, o.newest AS newest_before
    SET o.newest = CASE WHEN newest > newest_before THEN newest ELSE newest_before END
    RETURN o.owner AS owner, o.floor AS floor, newest_before AS newest,
        [o.secret_0, o.secret_1, o.secret_2, o.secret_3] AS secret";

/// Closes the open versions of each memory, at the first later version of the batch.
const CLOSE: &str = "
    UNWIND $rows AS row
    MATCH (v:AnamnesisVersion {generation: $generation, owner: row.owner, memory: row.memory})
    WHERE v.version >= 0 AND v.recorded_to IS NULL
    WITH v, [later IN row.later WHERE later.version > v.version] AS later
    WHERE size(later) > 0
    SET v.recorded_to = later[0].at";

/// A version that is there already: only a log that repeats a decision does this.
const REPLACE: &str = "
    UNWIND $rows AS row
    MATCH (v:AnamnesisVersion {generation: $generation, owner: row.owner, memory: row.memory,
        version: row.version})
    DETACH DELETE v
    RETURN count(*) AS deleted";

const FORGET_UNUSED: &str = "
    UNWIND $rows AS row
    MATCH (e:AnamnesisEntity {generation: $generation, owner: row.owner})
    WHERE e.token IS NOT NULL AND NOT EXISTS { (e)<-[:ANAMNESIS_ABOUT]-() }
    DELETE e";

const ENTITIES: &str = "
    UNWIND $rows AS row
    MERGE (e:AnamnesisEntity {generation: $generation, owner: row.owner, token: row.token})
    ON CREATE SET e.words = row.words";

const VERSIONS: &str = "
    UNWIND $rows AS row
    CREATE (v:AnamnesisVersion)
    SET v = row.node
    WITH v, row
    UNWIND row.tokens AS token
    MATCH (e:AnamnesisEntity {generation: $generation, owner: row.node.owner, token: token})
    CREATE (v)-[:ANAMNESIS_ABOUT]->(e)";

const SUPERSEDES: &str = "
    UNWIND $rows AS row
    MATCH (v:AnamnesisVersion {generation: $generation, owner: row.owner, memory: row.memory,
        version: row.version})
    CALL (row) {
        MATCH (w:AnamnesisVersion {generation: $generation, owner: row.owner, memory: row.target})
        WHERE w.version >= 0 AND w.recorded_from <= row.recorded_from
        RETURN w ORDER BY w.version DESC LIMIT 1
    }
    CREATE (v)-[:ANAMNESIS_SUPERSEDES]->(w)";

const DELETE_VERSIONS: &str = "
    MATCH (v:AnamnesisVersion {generation: $generation, owner: $owner})
    WHERE v.memory IS NOT NULL AND v.version IS NOT NULL
    DETACH DELETE v
    RETURN count(*) AS deleted";

const DELETE_ENTITIES: &str = "
    MATCH (e:AnamnesisEntity {generation: $generation, owner: $owner})
    WHERE e.token IS NOT NULL
    DETACH DELETE e";

/// The new secret falls on the old one, byte by byte.
const NEW_SECRET: &str = "
    MATCH (o:AnamnesisOwner {generation: $generation, owner: $owner})
    SET o.floor = $floor,
        o.secret_0 = $secret[0], o.secret_1 = $secret[1],
        o.secret_2 = $secret[2], o.secret_3 = $secret[3]";

/// What is known of an owner while a batch is applied.
struct Head {
    floor: i64,
    /// The highest version of any memory: what is above it cannot be there yet.
    newest: i64,
    secret: Secret,
}

/// Applies a batch. Gives the secrets of its owners.
///
/// # Errors
/// [`anamnesis_pipeline::stores::StoreError::Moved`] and the rest of [`Feed::check`], with nothing
/// changed; or what the server says.
pub(super) async fn apply(
    client: &Client,
    generation: &str,
    feed: Feed,
    batch: &Batch<'_>,
) -> Result<Vec<(OwnerKey, Secret)>, Failure> {
    let mut write = Write {
        transaction: client.begin().await?,
        generation,
        heads: BTreeMap::new(),
        added: 0,
    };
    match write.batch(feed, batch).await {
        Ok(()) => {
            write.transaction.commit().await?;
            let heads = write.heads.into_iter();
            Ok(heads.map(|(owner, head)| (owner, head.secret)).collect())
        }
        Err(failure) => {
            // Its lock goes now, and not when the connection is used again. If this fails too, the
            // server rolls back by itself.
            let _ = write.transaction.rollback().await;
            Err(failure)
        }
    }
}

struct Write<'a> {
    transaction: Txn,
    generation: &'a str,
    heads: BTreeMap<OwnerKey, Head>,
    /// How many versions there are more.
    added: i64,
}

impl Write<'_> {
    async fn batch(&mut self, feed: Feed, batch: &Batch<'_>) -> Result<(), Failure> {
        let partition = i64::from(batch.partition);
        let lock = query(LOCK).param("partition", partition);
        let stored: i64 = self.number(lock, "next").await?;
        feed.check(Store::Graph, stored as u64, batch)?;
        self.owners(batch.changes).await?;
        // What an owner's last rewrite does not list is not written in the first place, so that erased
        // words of a rebuild never reach the server.
        let mut rewrites: BTreeMap<OwnerKey, (usize, &OwnerRows)> = BTreeMap::new();
        for (place, change) in batch.changes.iter().enumerate() {
            if let Change::Rewrite(rows) = change {
                rewrites.insert(rows.owner, (place, rows));
            }
        }
        let mut run = Vec::new();
        for (place, change) in batch.changes.iter().enumerate() {
            if let Change::Version { version, vector: _ } = change {
                let rewrite = rewrites.get(&version.owner);
                if rewrite.is_none_or(|(rewritten, _)| *rewritten < place) {
                    run.push(&**version);
                }
            }
        }
        for (_, rows) in rewrites.into_values() {
            self.rewrite(rows).await?;
        }
        self.versions(&run).await?;
        let moved = query(MOVE)
            .param("partition", partition)
            .param("next", to_column(batch.next.next))
            .param("added", self.added);
        self.run(moved).await?;
        Ok(())
    }

    async fn run(&mut self, query: Query) -> Result<Vec<Row>, Failure> {
        let query = query.param("generation", self.generation);
        Ok(rows(&mut self.transaction, query).await?)
    }

    /// Runs a statement over rows, some at a time.
    async fn run_over(
        &mut self,
        statement: &str,
        values: Vec<BoltType>,
        at_once: usize,
    ) -> Result<(), Failure> {
        for rows in chunks(values, at_once) {
            self.run(query(statement).param("rows", rows)).await?;
        }
        Ok(())
    }

    async fn number(&mut self, query: Query, column: &str) -> Result<i64, Failure> {
        let rows = self.run(query).await?;
        let row = rows
            .first()
            .ok_or_else(|| damaged("a question of one row has none"))?;
        Ok(row.get(column).map_err(neo4rs::Error::from)?)
    }

    /// Finds or makes the nodes of all owners of the batch, in one order, so that writers of two
    /// partitions cannot wait for each other.
    async fn owners(&mut self, changes: &[Change]) -> Result<(), Failure> {
        let mut newest: BTreeMap<OwnerKey, i64> = BTreeMap::new();
        let mut raise = |owner, version: i64| {
            let newest = newest.entry(owner).or_insert(-1);
            *newest = version.max(*newest);
        };
        for change in changes {
            match change {
                Change::Version { version, vector: _ } => {
                    raise(version.owner, to_column(version.memory.version));
                }
                Change::Rewrite(rows) => {
                    raise(rows.owner, -1);
                    for (version, _) in &rows.versions {
                        raise(rows.owner, to_column(version.memory.version));
                    }
                }
                Change::Decision(_) | Change::Owner(_) => (),
            }
        }
        let mut values = Vec::new();
        for (owner, newest) in newest {
            let secret: Vec<i64> = draw()?.numbers().to_vec();
            values.push(map([
                ("owner", owner_hex(owner).into()),
                ("newest", newest.into()),
                ("secret", secret.into()),
            ]));
        }
        for rows in chunks(values, SMALL_ROWS_MAX) {
            for row in self.run(query(OWNERS).param("rows", rows)).await? {
                let row: OwnerRow = row.to().map_err(neo4rs::Error::from)?;
                let owner = unhex(&row.owner).map(OwnerKey::from_bytes);
                let owner = owner.ok_or_else(|| damaged("an owner cannot be read"))?;
                let head = Head {
                    floor: row.floor,
                    newest: row.newest,
                    secret: Secret::from_numbers(row.secret),
                };
                self.heads.insert(owner, head);
            }
        }
        Ok(())
    }

    fn head(&self, owner: OwnerKey) -> Result<&Head, Failure> {
        let head = self.heads.get(&owner);
        head.ok_or_else(|| damaged("an owner's node is missing").into())
    }

    /// Adds versions that follow each other, but none that was recorded before its owner's last
    /// rewrite: a stale write must not bring back what was erased.
    async fn versions(&mut self, run: &[&MemoryVersion]) -> Result<(), Failure> {
        let mut fresh = Vec::new();
        for version in run {
            if to_column(version.recorded_from) > self.head(version.owner)?.floor {
                fresh.push(*version);
            }
        }
        if fresh.is_empty() {
            return Ok(());
        }
        self.run_over(CLOSE, closings(&fresh), SMALL_ROWS_MAX)
            .await?;
        let nodes = settle(fresh);
        let deleted = self.make_room(&nodes).await?;
        self.create(&nodes).await?;
        if deleted > 0 {
            let owners: BTreeSet<OwnerKey> = nodes.keys().map(|id| id.owner).collect();
            let owners = owners
                .into_iter()
                .map(|owner| map([("owner", owner_hex(owner).into())]));
            self.run_over(FORGET_UNUSED, owners.collect(), SMALL_ROWS_MAX)
                .await?;
        }
        Ok(())
    }

    /// Deletes what stands where new versions come. Tells how many that were.
    async fn make_room(&mut self, nodes: &BTreeMap<VersionId, New<'_>>) -> Result<i64, Failure> {
        let mut taken = Vec::new();
        for id in nodes.keys() {
            if id.version <= self.head(id.owner)?.newest {
                taken.push(map(identity(*id)));
            }
        }
        let mut deleted = 0;
        for rows in chunks(taken, SMALL_ROWS_MAX) {
            let replace = query(REPLACE).param("rows", rows);
            deleted += self.number(replace, "deleted").await?;
        }
        self.added -= deleted;
        Ok(deleted)
    }

    /// What there is of the owner becomes exactly this, and what there was becomes unreadable.
    async fn rewrite(&mut self, rows: &OwnerRows) -> Result<(), Failure> {
        let decided = rows.decisions.iter().map(|row| row.offset);
        let recorded = rows
            .versions
            .iter()
            .map(|(version, _)| version.recorded_from);
        let last = decided.chain(recorded).max().map(to_column);
        let floor = self.head(rows.owner)?.floor;
        if last.is_some_and(|last| last < floor) {
            // A stale one, from before a later rewrite.
            return Ok(());
        }
        let owner = owner_hex(rows.owner);
        let delete = query(DELETE_VERSIONS).param("owner", owner.as_str());
        self.added -= self.number(delete, "deleted").await?;
        self.run(query(DELETE_ENTITIES).param("owner", owner.as_str()))
            .await?;
        let head = Head {
            floor: last.unwrap_or(floor),
            // Raised by what follows.
            newest: -1,
            secret: draw()?,
        };
        let renewed = query(NEW_SECRET)
            .param("owner", owner)
            .param("floor", head.floor)
            .param("secret", head.secret.numbers().to_vec());
        self.run(renewed).await?;
        self.heads.insert(rows.owner, head);
        let versions = rows.versions.iter().map(|(version, _)| &**version);
        let nodes = versions.map(|version| (VersionId::of(version), New::of(version)));
        self.create(&nodes.collect()).await
    }

    /// Makes nodes that are not there, their entities, and the edges of both kinds.
    async fn create(&mut self, nodes: &BTreeMap<VersionId, New<'_>>) -> Result<(), Failure> {
        let mut entities: BTreeMap<(OwnerKey, &Entity), BoltType> = BTreeMap::new();
        let mut versions = Vec::new();
        let mut supersedes = Vec::new();
        for (id, new) in nodes {
            let secret = &self.head(id.owner)?.secret;
            // Named twice is one entity.
            let named: BTreeSet<&Entity> = new.entities.iter().collect();
            let mut tokens: Vec<String> = Vec::new();
            for entity in named {
                tokens.push(entity_token(secret, entity));
                entities
                    .entry((id.owner, entity))
                    .or_insert_with(|| entity_node(secret, self.generation, id.owner, entity));
            }
            let node = version_node(secret, self.generation, *id, &new.facets);
            versions.push(map([("node", node), ("tokens", tokens.into())]));
            for target in new.supersedes.iter().filter(|target| **target != id.memory) {
                let [owner, memory, version] = identity(*id);
                supersedes.push(map([
                    owner,
                    memory,
                    version,
                    ("recorded_from", to_column(new.facets.recorded_from).into()),
                    ("target", hex(target.bytes()).into()),
                ]));
            }
        }
        for id in nodes.keys() {
            if let Some(head) = self.heads.get_mut(&id.owner) {
                head.newest = head.newest.max(id.version);
            }
        }
        self.added += versions.len() as i64;
        self.run_over(ENTITIES, entities.into_values().collect(), ROWS_MAX)
            .await?;
        self.run_over(VERSIONS, versions, ROWS_MAX).await?;
        self.run_over(SUPERSEDES, supersedes, SMALL_ROWS_MAX).await
    }
}

/// Lists of so many rows as one statement takes.
fn chunks(values: Vec<BoltType>, at_once: usize) -> impl Iterator<Item = BoltType> {
    let mut values = values.into_iter();
    std::iter::from_fn(move || {
        let rows: Vec<BoltType> = values.by_ref().take(at_once).collect();
        (!rows.is_empty()).then(|| BoltType::List(rows.into()))
    })
}

fn draw() -> Result<Secret, Failure> {
    Secret::draw().map_err(|_| unusable("the system has no random bytes to give").into())
}

fn identity(id: VersionId) -> [(&'static str, BoltType); 3] {
    [
        ("owner", owner_hex(id.owner).into()),
        ("memory", hex(id.memory.bytes()).into()),
        ("version", id.version.into()),
    ]
}

/// A version that is to be written.
struct New<'a> {
    facets: Facets,
    entities: &'a [Entity],
    supersedes: &'a [MemoryId],
}

impl<'a> New<'a> {
    fn of(version: &'a MemoryVersion) -> Self {
        Self {
            facets: version.facets(),
            entities: &version.memory.claim.entities,
            supersedes: &version.memory.supersedes,
        }
    }
}

/// For each memory, its versions in this order: the first that is later than an open one closes it.
fn closings(run: &[&MemoryVersion]) -> Vec<BoltType> {
    let mut later: BTreeMap<(OwnerKey, MemoryId), Vec<BoltType>> = BTreeMap::new();
    for version in run {
        let closing = map([
            ("version", to_column(version.memory.version).into()),
            ("at", to_column(version.recorded_from).into()),
        ]);
        later
            .entry((version.owner, version.memory.id))
            .or_default()
            .push(closing);
    }
    let rows = later.into_iter().map(|((owner, memory), later)| {
        map([
            ("owner", owner_hex(owner).into()),
            ("memory", hex(memory.bytes()).into()),
            ("later", later.into()),
        ])
    });
    rows.collect()
}

/// How the versions of a run stand at its end: each closes those before it.
fn settle(run: Vec<&MemoryVersion>) -> BTreeMap<VersionId, New<'_>> {
    let mut nodes: BTreeMap<VersionId, New<'_>> = BTreeMap::new();
    for version in run {
        let id = VersionId::of(version);
        let first = VersionId {
            version: i64::MIN,
            ..id
        };
        for (_, earlier) in nodes.range_mut(first..id) {
            earlier
                .facets
                .recorded_to
                .get_or_insert(version.recorded_from);
        }
        nodes.insert(id, New::of(version));
    }
    nodes
}
