//! Which of an owner's memories mean what a question means? Vectors in Qdrant, asked through its gRPC
//! protocol, with the answers and the digests of the embedded store.
//!
//! Qdrant has no transaction, so the contract of [`Projection`] is kept by three rules:
//!
//! - **The checkpoint comes last, and nothing beyond it is seen.** A batch writes its points, waits
//!   until they are applied, and then moves its partition's checkpoint. Questions and digests read the
//!   checkpoint first and look at the points as of that offset: versions of a batch that has not
//!   arrived there are not known yet, and what it closed is not closed yet. A crash in between is
//!   repaired by the same batch again, cut anywhere.
//! - **A point says which batch wrote it** (`fence`, the batch's end). Every write carries the
//!   condition that no later batch wrote the point. As all writers fold the same log, the later state
//!   is the right one, whoever writes it: a writer that was stopped between its check and its write
//!   brings nothing back. For this, what an erasure takes remains as a tombstone without vector words,
//!   and a point of the owner says behind which offset the rest counts: the late write of a batch that
//!   was never applied can make a point that nobody had made, and no condition prevents that.
//! - **The checkpoint moves by comparison** with the position that the batch began at, under a mark that
//!   is read again: of two writers of the same batch one is told [`StoreError::Moved`]. What it wrote
//!   by then is what the other one wrote, or lies beyond the checkpoint, or was refused by the fence.
//!
//! Two things are weaker than in the embedded store. An erasure (`Rewrite`) is seen before its
//! checkpoint: the vectors are gone a moment early. And `compact` asks Qdrant's optimiser to write anew
//! every segment that holds something deleted and waits for it; segments with fewer than a hundred
//! points, the write-ahead log until it is rotated, and snapshots are out of its reach. A tombstone
//! writes its vector over with zeros, in place where the segment is still appendable. That no erased
//! byte is left on the server's disk is certain only once a new generation is built and the old one is
//! deleted ([`generations`]).
//!
//! - [`config`]: where the server is, and its deadlines
//! - [`server`]: one call and its failure
//! - [`collection`]: making and checking a collection
//! - [`row`], [`condition`]: versions as points, the hard filter as conditions
//! - [`batch`]: what a batch makes of each point
//! - [`compaction`]: what the optimiser is asked for

mod batch;
mod collection;
mod compaction;
mod condition;
pub mod config;
pub mod generations;
mod row;
mod server;

use std::collections::{BTreeMap, BTreeSet};

use anamnesis_domain::ids::OwnerKey;
use anamnesis_domain::owner::OwnerScope;
use anamnesis_pipeline::embedder::ModelIdentity;
use anamnesis_pipeline::feed::{self, Batch, Feed};
use anamnesis_pipeline::similarity;
use anamnesis_pipeline::stores::{
    Change, Checkpoint, Filter, Hit, LegAnswer, Projection, RowDigest, Store, StoreError,
    VectorIndex,
};
use async_trait::async_trait;
use qdrant_client::qdrant::{
    Filter as Conditions, PointId, PointStruct, RetrievedPoint, ScoredPoint, facet_value,
};
use tokio::sync::Mutex;

use self::batch::{After, Effects};
use self::collection::Identity;
use self::config::QdrantConfig;
use self::row::{VersionId, field};
use self::server::{Failure, Server, damaged, unavailable};

/// Points in one request: with 1,024 dimensions 2 MiB.
const POINTS_MAX: usize = 500;

/// Owners of one partition that are asked for at first.
const OWNERS_FIRST: u64 = 10_000;

/// Hits beyond those asked for, so that equal scores at the end are seen together.
const SPARE_HITS: u64 = 16;

/// How often a question is asked again because its collection was replaced meanwhile.
const ATTEMPTS: usize = 3;

/// Which collection is meant.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Place {
    /// The collection of this generation; made when it is not there. For the one that writes it.
    Generation(String),
    /// The generation that the alias stands for at the moment of each call. For recall.
    Live,
}

/// The vectors of one generation, or of the live one.
pub struct QdrantVectors {
    server: Server,
    config: QdrantConfig,
    identity: Identity,
    place: Place,
    /// What calls name: a collection, or the alias.
    name: String,
    /// The collection that was found to be ours.
    checked: Mutex<Option<String>>,
    /// Owners that were rewritten since their files were, with partition and offset.
    rewritten: Mutex<BTreeMap<OwnerKey, (u32, u64)>>,
}

/// Where a partition stands, and in which collection.
struct Stand {
    collection: String,
    next: Option<u64>,
    mark: String,
}

impl Stand {
    fn position(&self) -> u64 {
        self.next.unwrap_or(0)
    }
}

impl QdrantVectors {
    /// Opens the place, and makes it if it is a generation that is not there.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] while the server does not answer or no generation is live;
    /// [`StoreError::OtherModel`] and [`StoreError::OtherLog`] name both; [`StoreError::Damaged`], or
    /// [`StoreError::Unusable`] for a configuration, server or format that cannot be used.
    pub async fn open(
        config: &QdrantConfig,
        place: Place,
        feed: Feed,
        model: ModelIdentity,
    ) -> Result<Self, StoreError> {
        let vectors = Self::connect(config, place, feed, model)?;
        vectors.ready().await?;
        Ok(vectors)
    }

    /// The same without asking the server: the checks are made by the first call that reaches it, so
    /// that recall can start while Qdrant is down.
    ///
    /// # Errors
    /// [`StoreError::Unusable`] for a configuration that cannot be used.
    pub fn connect(
        config: &QdrantConfig,
        place: Place,
        feed: Feed,
        model: ModelIdentity,
    ) -> Result<Self, StoreError> {
        let name = match &place {
            Place::Generation(generation) => config.collection(generation)?,
            Place::Live => {
                config.collection("live")?;
                config.prefix.clone()
            }
        };
        Ok(Self {
            server: Server::new(config)?,
            config: config.clone(),
            identity: Identity { feed, model },
            place,
            name,
            checked: Mutex::new(None),
            rewritten: Mutex::default(),
        })
    }

    /// The collection that was checked; checks it now if none was.
    async fn ready(&self) -> Result<String, StoreError> {
        let mut checked = self.checked.lock().await;
        if let Some(collection) = &*checked {
            return Ok(collection.clone());
        }
        collection::check_server(&self.server).await?;
        let found = match &self.place {
            Place::Generation(_) => {
                let replicas = self.config.replicas;
                collection::make(&self.server, &self.name, &self.identity, replicas).await?;
                self.name.clone()
            }
            Place::Live => {
                let found = self.server.alias(&self.name).await?.ok_or_else(not_live)?;
                collection::check(&self.server, &found, &self.identity).await?;
                found
            }
        };
        *checked = Some(found.clone());
        Ok(found)
    }

    /// Checks a collection that the alias has come to stand for since.
    async fn check(&self, collection: &str) -> Result<(), StoreError> {
        let mut checked = self.checked.lock().await;
        if checked.as_deref() != Some(collection) {
            collection::check(&self.server, collection, &self.identity).await?;
            *checked = Some(collection.to_owned());
        }
        Ok(())
    }

    async fn stand(&self, partition: u32) -> Result<Stand, StoreError> {
        let mut stands = self.stands(&[partition]).await?;
        stands
            .pop_first()
            .map(|(_, stand)| stand)
            .ok_or_else(no_checkpoint)
    }

    /// Where these partitions stand: all of them in one collection.
    async fn stands(&self, partitions: &[u32]) -> Result<BTreeMap<u32, Stand>, StoreError> {
        if let Some(partition) = partitions
            .iter()
            .find(|one| **one >= self.identity.feed.partitions)
        {
            let what = format!("{} has no partition {partition}", Store::Vectors);
            return Err(StoreError::Unusable { what });
        }
        self.ready().await?;
        let ids = partitions
            .iter()
            .map(|partition| row::checkpoint_point(*partition));
        let points = match self.server.get(&self.name, ids.collect()).await {
            Ok(points) => points,
            Err(Failure::NotFound) if self.place == Place::Live => return Err(not_live()),
            Err(failure) => return Err(failure.into()),
        };
        let stands: Option<BTreeMap<u32, Stand>> = points.iter().map(read_stand).collect();
        let stands = stands.ok_or_else(no_checkpoint)?;
        if stands.len() != partitions.len() {
            return Err(no_checkpoint());
        }
        let collections: BTreeSet<&str> = stands
            .values()
            .map(|stand| stand.collection.as_str())
            .collect();
        for collection in collections {
            self.check(collection).await?;
        }
        Ok(stands)
    }

    /// Where the owner's partition stands, and behind which offset what stands of the owner counts.
    async fn stand_of(&self, owner: OwnerKey) -> Result<(Stand, u64), StoreError> {
        let partition = self.identity.feed.partition_of(owner);
        self.ready().await?;
        let ids = vec![row::checkpoint_point(partition), row::owner_point(owner)];
        let points = match self.server.get(&self.name, ids).await {
            Ok(points) => points,
            Err(Failure::NotFound) if self.place == Place::Live => return Err(not_live()),
            Err(failure) => return Err(failure.into()),
        };
        let rewritten = points
            .iter()
            .filter(|point| row::text(&point.payload, field::ROW) == Some(row::OWNER_ROW))
            .find_map(|point| row::offset(&point.payload, field::REWRITTEN));
        let stand = points.iter().find_map(read_stand);
        let (_, stand) = stand.ok_or_else(no_checkpoint)?;
        self.check(&stand.collection).await?;
        Ok((stand, rewritten.unwrap_or(0)))
    }

    /// Makes tombstones of what came in after its owner was rewritten.
    async fn sweep(
        &self,
        collection: &str,
        owner: OwnerKey,
        partition: u32,
        rewritten: u64,
    ) -> Result<(), StoreError> {
        let filter = condition::stale_of_owner(owner, rewritten);
        let stale: Vec<VersionId> = self.all(collection, filter, false, read_id).await?;
        let dimension = self.identity.model.dimension as usize;
        let tombstone = |id: &VersionId| row::tombstone(*id, partition, rewritten, dimension);
        let points: Vec<PointStruct> = stale.iter().map(tombstone).collect();
        for some in points.chunks(POINTS_MAX) {
            self.server
                .upsert(collection, some.to_vec(), condition::not_after(rewritten))
                .await?;
        }
        Ok(())
    }

    /// What `read` takes from every point that matches, page by page.
    async fn all<T>(
        &self,
        collection: &str,
        filter: Conditions,
        is_with_vectors: bool,
        read: impl Fn(&RetrievedPoint) -> Result<Option<T>, StoreError> + Send,
    ) -> Result<Vec<T>, StoreError>
    where
        T: Send,
    {
        let mut all = Vec::new();
        let mut offset: Option<PointId> = None;
        loop {
            let page = POINTS_MAX as u32;
            let listed = self
                .server
                .list(collection, filter.clone(), offset, page, is_with_vectors)
                .await?;
            for point in &listed.points {
                all.extend(read(point)?);
            }
            offset = listed.next;
            if offset.is_none() {
                return Ok(all);
            }
        }
    }

    /// Writes what the batch makes of its points. The checkpoint does not move.
    async fn write(
        &self,
        collection: &str,
        partition: u32,
        fence: u64,
        mut effects: Effects,
    ) -> Result<(), StoreError> {
        let dimension = self.identity.model.dimension as usize;
        // First of all: from now on nothing counts that is not written with or after the erasure.
        let marks = effects.rewritten.iter();
        let marks: Vec<PointStruct> = marks
            .map(|(owner, rewritten)| {
                row::owner_mark(*owner, partition, fence, *rewritten, dimension)
            })
            .collect();
        for some in marks.chunks(POINTS_MAX) {
            self.server
                .upsert(collection, some.to_vec(), condition::not_after(fence))
                .await?;
        }
        for owner in effects.rewritten.keys().copied().collect::<Vec<_>>() {
            let filter = condition::of_owner(owner);
            for id in self.all(collection, filter, false, read_id).await? {
                effects.points.entry(id).or_insert(After::Tombstone);
            }
        }
        let mut closed: BTreeMap<u64, Vec<PointId>> = BTreeMap::new();
        let memories: Vec<_> = effects.closings.keys().copied().collect();
        for some in memories.chunks(POINTS_MAX) {
            let owners: BTreeSet<String> =
                some.iter().map(|(owner, _)| owner.to_string()).collect();
            let memories = some.iter().map(|(_, memory)| memory.to_string()).collect();
            let filter = condition::open_versions(owners.into_iter().collect(), memories);
            for id in self.all(collection, filter, false, read_id).await? {
                if let Some(at) = effects.closes(id) {
                    closed.entry(at).or_default().push(id.point());
                }
            }
        }
        let mut points: Vec<PointStruct> = Vec::with_capacity(effects.points.len());
        for (id, after) in &effects.points {
            points.push(match after {
                After::Version { facets, vector } => {
                    row::version_point(*id, partition, fence, facets, vector)
                }
                After::Tombstone => row::tombstone(*id, partition, fence, dimension),
            });
        }
        for some in points.chunks(POINTS_MAX) {
            self.server
                .upsert(collection, some.to_vec(), condition::not_after(fence))
                .await?;
        }
        let closings: Vec<_> = closed
            .into_iter()
            .map(|(at, points)| {
                let set = row::payload([
                    (field::RECORDED_TO, row::integer(at).into()),
                    (field::FENCE, row::integer(fence).into()),
                ]);
                (set, condition::closable(points, fence))
            })
            .collect();
        for some in closings.chunks(POINTS_MAX) {
            self.server.set_payloads(collection, some.to_vec()).await?;
        }
        Ok(())
    }

    /// Moves the checkpoint from where the batch began, unless somebody else has moved it.
    async fn arrive(
        &self,
        collection: &str,
        partition: u32,
        from: u64,
        next: u64,
    ) -> Result<(), StoreError> {
        let mark = random_mark()?;
        let set = row::payload([
            (field::NEXT, row::integer(next).into()),
            (field::IS_PLACED, true.into()),
            (field::MARK, mark.as_str().into()),
        ]);
        let id = row::checkpoint_point(partition);
        let condition = condition::standing_at(id.clone(), from);
        self.server
            .set_payloads(collection, vec![(set, condition)])
            .await?;
        let points = self.server.get(collection, vec![id]).await?;
        let (_, stand) = points
            .first()
            .and_then(read_stand)
            .ok_or_else(no_checkpoint)?;
        if stand.mark == mark {
            return Ok(());
        }
        if stand.position() == from {
            // Nobody moved it, and the server did not find it by what it says.
            return Err(StoreError::Unavailable {
                store: Store::Vectors,
                reason: format!(
                    "the checkpoint of partition {partition} says {from} and is not found by that: \
                     qdrant's index of `{}` is not of its payloads; make the index anew, or rebuild \
                     the vectors",
                    field::NEXT
                ),
            });
        }
        Err(StoreError::Moved {
            store: Store::Vectors,
            partition,
            expected: from,
            found: stand.position(),
        })
    }

    /// The hits under `filter`, which only collections can have that it was made for.
    async fn hits(
        &self,
        collection: &str,
        filter: Conditions,
        query: &[f32],
        top: usize,
        is_exact: bool,
    ) -> Result<Vec<Hit>, Failure> {
        // Both sums round at every step, each in its own order.
        let length = query.iter().map(|x| x * x).sum::<f32>().sqrt();
        let slack = f64::from(query.len() as f32 * f32::EPSILON * length.max(1.0));
        let mut limit = (top as u64).saturating_add(SPARE_HITS);
        loop {
            let points = self
                .server
                .nearest(collection, filter.clone(), query, limit, is_exact)
                .await?;
            let is_all = (points.len() as u64) < limit;
            let last = points
                .last()
                .map_or(f64::NEG_INFINITY, |point| f64::from(point.score));
            let hits: Option<Vec<Hit>> = points.iter().map(|point| score(point, query)).collect();
            let hits = hits.ok_or_else(|| Failure::Other(unreadable()))?;
            let best = similarity::best(hits, top);
            // What was not sent scores at most as much as the last that was.
            let is_certain =
                best.len() == top && best.last().is_some_and(|hit| hit.score > last + slack);
            if is_all || is_certain {
                return Ok(best);
            }
            limit = limit.saturating_mul(4);
        }
    }
}

#[async_trait]
impl Projection for QdrantVectors {
    fn store(&self) -> Store {
        Store::Vectors
    }

    async fn checkpoint(&self, partition: u32) -> Result<Option<Checkpoint>, StoreError> {
        let stand = self.stand(partition).await?;
        let log_id = self.identity.feed.log_id;
        Ok(stand.next.map(|next| Checkpoint { log_id, next }))
    }

    async fn apply(
        &self,
        partition: u32,
        from: u64,
        changes: &[Change],
        next: Checkpoint,
    ) -> Result<(), StoreError> {
        feed::check_dimension(changes, &self.identity.model)?;
        let stand = self.stand(partition).await?;
        let batch = Batch {
            partition,
            from,
            changes,
            next,
        };
        self.identity
            .feed
            .check(Store::Vectors, stand.position(), &batch)?;
        let effects = Effects::of(changes);
        let rewritten = effects.rewritten.clone();
        self.write(&stand.collection, partition, next.next, effects)
            .await?;
        let rewritten = rewritten.into_iter();
        let rewritten = rewritten.map(|(owner, offset)| (owner, (partition, offset)));
        self.rewritten.lock().await.extend(rewritten);
        self.arrive(&stand.collection, partition, from, next.next)
            .await
    }

    async fn owners(&self) -> Result<Vec<OwnerKey>, StoreError> {
        let partitions: Vec<u32> = (0..self.identity.feed.partitions).collect();
        let mut owners = BTreeSet::new();
        for (partition, stand) in self.stands(&partitions).await? {
            let filter = condition::of_partition(partition, stand.position());
            let mut limit = OWNERS_FIRST;
            let hits = loop {
                let hits = self
                    .server
                    .facet(&stand.collection, field::OWNER, filter.clone(), limit)
                    .await?;
                if (hits.len() as u64) < limit {
                    break hits;
                }
                limit = limit.saturating_mul(10);
            };
            for hit in hits {
                let value = hit.value.and_then(|value| value.variant);
                let Some(facet_value::Variant::StringValue(owner)) = value else {
                    return Err(unreadable());
                };
                owners.insert(owner.parse().map_err(|_| unreadable())?);
            }
        }
        Ok(owners.into_iter().collect())
    }

    async fn rows(&self, scope: OwnerScope) -> Result<Vec<RowDigest>, StoreError> {
        let partition = self.identity.feed.partition_of(scope.key());
        let (stand, rewritten) = self.stand_of(scope.key()).await?;
        let filter = condition::current_of_owner(scope.key(), rewritten);
        let dimension = self.identity.model.dimension as usize;
        let digest =
            |point: &RetrievedPoint| Ok(row::digest(point, partition, stand.position(), dimension));
        let mut digests: Vec<RowDigest> = self.all(&stand.collection, filter, true, digest).await?;
        digests.sort();
        Ok(digests)
    }

    async fn compact(&self) -> Result<(), StoreError> {
        let collection = self.ready().await?;
        let rewritten = self.rewritten.lock().await.clone();
        for (owner, (partition, offset)) in &rewritten {
            self.sweep(&collection, *owner, *partition, *offset).await?;
        }
        compaction::compact(&self.server, &collection, self.config.compact_deadline).await?;
        let mut kept = self.rewritten.lock().await;
        kept.retain(|owner, stands| rewritten.get(owner) != Some(stands));
        Ok(())
    }
}

#[async_trait]
impl VectorIndex for QdrantVectors {
    fn model(&self) -> &ModelIdentity {
        &self.identity.model
    }

    async fn search(
        &self,
        filter: &Filter,
        query: &[f32],
        top: usize,
    ) -> Result<LegAnswer, StoreError> {
        feed::check_query(query, &self.identity.model)?;
        let owner = filter.scope.key();
        for _ in 0..ATTEMPTS {
            self.ready().await?;
            let (stand, count) = tokio::join!(
                self.stand_of(owner),
                self.server.estimate(&self.name, condition::of_owner(owner)),
            );
            let (stand, rewritten) = stand?;
            let position = stand.position();
            let conditions = condition::admitted(filter, position, rewritten);
            let Some(conditions) = conditions.filter(|_| top > 0) else {
                return Ok(LegAnswer {
                    hits: Vec::new(),
                    position,
                });
            };
            let is_exact = match count {
                Ok(count) => count <= self.config.exact_versions_max,
                Err(Failure::NotFound) => continue,
                Err(failure) => return Err(failure.into()),
            };
            match self
                .hits(&stand.collection, conditions, query, top, is_exact)
                .await
            {
                Ok(hits) => return Ok(LegAnswer { hits, position }),
                // The alias stands for another collection by now, and this one is deleted.
                Err(Failure::NotFound) => continue,
                Err(failure) => return Err(failure.into()),
            }
        }
        Err(Failure::NotFound.into())
    }
}

/// The score of every backend: the server's own sum may be rounded otherwise.
fn score(point: &ScoredPoint, query: &[f32]) -> Option<Hit> {
    let id = row::read_id(&point.payload)?;
    let vector = row::read_vector(point.vectors.as_ref())?;
    let is_whole = vector.len() == query.len();
    is_whole.then(|| Hit {
        memory_id: id.memory,
        version: id.version,
        score: f64::from(similarity::dot(vector, query)),
    })
}

fn read_id(point: &RetrievedPoint) -> Result<Option<VersionId>, StoreError> {
    row::read_id(&point.payload)
        .map(Some)
        .ok_or_else(unreadable)
}

fn read_stand(point: &RetrievedPoint) -> Option<(u32, Stand)> {
    let payload = &point.payload;
    let next = row::offset(payload, field::NEXT)?;
    let stand = Stand {
        collection: row::text(payload, field::COLLECTION)?.to_owned(),
        next: row::flag(payload, field::IS_PLACED)?.then_some(next),
        mark: row::text(payload, field::MARK)?.to_owned(),
    };
    let partition = u32::try_from(row::number(payload, field::PARTITION)?).ok()?;
    Some((partition, stand))
}

fn random_mark() -> Result<String, StoreError> {
    let mut bytes = [0u8; 16];
    getrandom::fill(&mut bytes).map_err(|_| unavailable("the system gives no random numbers"))?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

fn not_live() -> StoreError {
    unavailable("no generation of the collection is live")
}

fn no_checkpoint() -> StoreError {
    damaged("a checkpoint is missing or unreadable")
}

fn unreadable() -> StoreError {
    damaged("a version cannot be read")
}
