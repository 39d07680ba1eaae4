//! What is asked of the graph: which memories share entities with these, where does it stand, and what
//! does it hold of an owner?

use std::collections::{BTreeMap, BTreeSet};

use anamnesis_domain::ids::{Hash, MemoryId, OwnerKey};
use anamnesis_domain::memory::Entity;
use anamnesis_domain::rank::hub_weight;
use anamnesis_domain::time::Timestamp;
use anamnesis_pipeline::digests;
use anamnesis_pipeline::stores::{Filter, Hit, RowDigest, StoreError, SubjectFilter};
use neo4rs::{BoltType, Query, Row, query};
use serde::Deserialize;

use super::client::{Client, Failure, damaged};
use super::node::{
    Columns, VersionId, entity_token, kind_token, owner_hex, read_entity, status_token,
    subject_token, tag_token, to_column,
};
use super::words::{NUMBERS, Secret, hex, unhex};

/// Which version is believed at the cut; a macro, so that questions are put together at compile time.
macro_rules! is_live {
    ($v:literal) => {
        concat!(
            $v,
            ".recorded_from < $cut AND (",
            $v,
            ".recorded_to IS NULL OR ",
            $v,
            ".recorded_to >= $cut)"
        )
    };
}

/// Where the owner's partition stands, and the owner's secret. Asked first, so that the answer holds at
/// least what was applied up to there.
macro_rules! stands {
    () => {
        "OPTIONAL MATCH (p:AnamnesisPartition {generation: $generation, partition: $partition})
         OPTIONAL MATCH (o:AnamnesisOwner {generation: $generation, owner: $owner})
         WITH coalesce(p.next, 0) AS position,
            CASE WHEN o IS NULL THEN NULL
            ELSE [o.secret_0, o.secret_1, o.secret_2, o.secret_3] END AS secret "
    };
}

const STANDS: &str = concat!(stands!(), "RETURN position, secret, [] AS shared");

/// One hop: the entities of the seeds and those that were asked for, each with the versions that have
/// it and answer. The same conditions as [`Filter::admits`].
const NEIGHBOURS: &str = concat!(
    stands!(),
    "WITH position, secret, COLLECT {
        UNWIND $seeds AS seed
        MATCH (s:AnamnesisVersion {generation: $generation, owner: $owner, memory: seed})
        WHERE s.version >= 0 AND ",
    is_live!("s"),
    "
        MATCH (s)-[:ANAMNESIS_ABOUT]->(e:AnamnesisEntity)
        RETURN e
        UNION
        UNWIND $tokens AS token
        MATCH (e:AnamnesisEntity {generation: $generation, owner: $owner, token: token})
        RETURN e
    } AS entities
    RETURN position, secret, COLLECT {
        UNWIND entities AS e
        RETURN [e.token, e.words, COLLECT {
            MATCH (e)<-[:ANAMNESIS_ABOUT]-(v:AnamnesisVersion)
            WHERE v.generation = $generation AND v.owner = $owner AND ",
    is_live!("v"),
    "
            AND (v.valid_to IS NULL OR v.valid_to >= v.valid_from)
            AND ($valid_at IS NULL OR (v.valid_from <= $valid_at
                AND (v.valid_to IS NULL OR $valid_at < v.valid_to)))
            AND ($range_from IS NULL OR (($range_to IS NULL OR v.valid_from < $range_to)
                AND (v.valid_to IS NULL OR $range_from < v.valid_to)))
            AND ($kinds IS NULL OR v.kind IN $kinds)
            AND v.status IN $statuses
            AND ($subject IS NULL OR v.subject = $subject)
            AND ($tags IS NULL OR size(v.tags) = 0 OR any(tag IN v.tags WHERE tag IN $tags))
            AND NOT v.is_confirmation
            RETURN [v.memory, v.version]
        }]
    } AS shared"
);

const OWNERS: &str = "
    MATCH (v:AnamnesisVersion {generation: $generation})
    WHERE v.owner IS NOT NULL AND v.memory IS NOT NULL AND v.version IS NOT NULL
    RETURN DISTINCT v.owner AS owner
    UNION
    MATCH (e:AnamnesisEntity {generation: $generation})
    WHERE e.owner IS NOT NULL AND e.token IS NOT NULL
    RETURN DISTINCT e.owner AS owner";

const VERSIONS_OF: &str = "
    MATCH (v:AnamnesisVersion {generation: $generation, owner: $owner})
    WHERE v.memory IS NOT NULL AND v.version IS NOT NULL
    RETURN v.memory AS memory, v.version AS version, v.words AS words,
        v {.recorded_from, .recorded_to, .valid_from, .valid_to, .is_confirmation, .subject, .kind,
            .status, .tags} AS columns,
        COLLECT { MATCH (v)-[:ANAMNESIS_ABOUT]->(e) RETURN [e.token, e.owner] } AS entities";

const ENTITIES_OF: &str = "
    MATCH (e:AnamnesisEntity {generation: $generation, owner: $owner})
    WHERE e.token IS NOT NULL
    RETURN e.token AS token, e.words AS words,
        EXISTS { (e)<-[:ANAMNESIS_ABOUT]-(:AnamnesisVersion) } AS is_used";

const CHECKPOINT: &str = "
    MATCH (p:AnamnesisPartition {generation: $generation, partition: $partition})
    RETURN p.next AS next";

/// One owner, as all questions name it.
#[derive(Clone, Copy)]
pub(super) struct Whom<'a> {
    pub(super) generation: &'a str,
    pub(super) partition: u32,
    pub(super) owner: OwnerKey,
}

impl Whom<'_> {
    fn ask(&self, statement: &str) -> Query {
        query(statement)
            .param("generation", self.generation)
            .param("partition", i64::from(self.partition))
            .param("owner", owner_hex(self.owner))
    }
}

/// Where an owner's partition stands, the owner's secret at that time, and what was found.
pub(super) struct Answer {
    pub(super) position: u64,
    pub(super) secret: Option<Secret>,
    pub(super) hits: Vec<Hit>,
}

#[derive(Deserialize)]
struct AnswerRow {
    position: i64,
    secret: Option<[i64; NUMBERS]>,
    shared: Vec<Shared>,
}

/// Token and sealed words of an entity, and the versions that have it.
#[derive(Deserialize)]
struct Shared(String, Vec<u8>, Vec<(String, i64)>);

pub(super) async fn stands(client: &Client, whom: Whom<'_>) -> Result<Answer, Failure> {
    let rows = client.ask(whom.ask(STANDS)).await?;
    let row = answer_row(&rows)?;
    Ok(Answer {
        position: row.position as u64,
        secret: row.secret.map(Secret::from_numbers),
        hits: Vec::new(),
    })
}

/// The hits are worth something only if the answer's secret is the one that was asked with.
pub(super) async fn neighbours(
    client: &Client,
    whom: Whom<'_>,
    secret: &Secret,
    filter: &Filter,
    seeds: &[MemoryId],
    entities: &[Entity],
) -> Result<Answer, Failure> {
    let seeds: BTreeSet<MemoryId> = seeds.iter().copied().collect();
    let entities: BTreeSet<&Entity> = entities.iter().collect();
    let seeds: BoltType = seeds.iter().map(|seed| hex(seed.bytes())).collect();
    let tokens: BoltType = entities
        .iter()
        .map(|entity| entity_token(secret, entity))
        .collect();
    let asked = whom
        .ask(NEIGHBOURS)
        .param("seeds", seeds)
        .param("tokens", tokens);
    let rows = client.ask(with_filter(asked, secret, filter)).await?;
    let row = answer_row(&rows)?;
    let now = row.secret.map(Secret::from_numbers);
    let hits = if now.as_ref() == Some(secret) {
        weigh(secret, whom.owner, row.shared)?
    } else {
        Vec::new()
    };
    Ok(Answer {
        position: row.position as u64,
        secret: now,
        hits,
    })
}

fn answer_row(rows: &[Row]) -> Result<AnswerRow, Failure> {
    let row = rows
        .first()
        .ok_or_else(|| damaged("a question of one row has none"))?;
    Ok(row.to().map_err(neo4rs::Error::from)?)
}

fn with_filter(query: Query, secret: &Secret, filter: &Filter) -> Query {
    let kinds = filter.kinds.as_ref().map(|kinds| {
        let tokens = kinds.iter().map(|kind| kind_token(secret, *kind));
        tokens.collect::<Vec<String>>()
    });
    let statuses = filter
        .statuses
        .iter()
        .map(|status| status_token(secret, *status));
    let subject = match &filter.subject {
        SubjectFilter::Any => None,
        SubjectFilter::Only(subject) => Some(subject_token(secret, subject)),
    };
    let tags = filter.context_tags.as_ref().map(|tags| {
        let tokens = tags.iter().map(|tag| tag_token(secret, tag));
        tokens.collect::<Vec<String>>()
    });
    let range_from = filter.time_range.map(|range| range.from().millis());
    let range_to = filter
        .time_range
        .and_then(|range| range.to().map(Timestamp::millis));
    query
        .param("cut", to_column(filter.cut.0))
        .param("valid_at", filter.valid_at.map(Timestamp::millis))
        .param("range_from", range_from)
        .param("range_to", range_to)
        .param("kinds", kinds)
        .param("statuses", statuses.collect::<BoltType>())
        .param("subject", subject)
        .param("tags", tags)
}

/// Adds up, in ascending order of the entities, what each shared one weighs.
fn weigh(secret: &Secret, owner: OwnerKey, shared: Vec<Shared>) -> Result<Vec<Hit>, StoreError> {
    let mut by_entity = BTreeMap::new();
    for Shared(token, words, having) in shared {
        let entity = read_entity(secret, owner, &token, &words);
        let entity = entity.ok_or_else(|| damaged("an entity was altered"))?;
        by_entity.insert(entity, having);
    }
    let mut scores: BTreeMap<(MemoryId, i64), f64> = BTreeMap::new();
    for having in by_entity.into_values() {
        let weight = hub_weight(having.len() as u64);
        for (memory, version) in having {
            let memory = unhex(&memory).map(MemoryId::from_bytes);
            let memory = memory.ok_or_else(|| damaged("a memory's id was altered"))?;
            *scores.entry((memory, version)).or_insert(0.0) += weight;
        }
    }
    let hits = scores.into_iter().map(|((memory_id, version), score)| Hit {
        memory_id,
        version: version as u64,
        score,
    });
    Ok(hits.collect())
}

pub(super) async fn next(
    client: &Client,
    generation: &str,
    partition: u32,
) -> Result<Option<u64>, Failure> {
    let asked = query(CHECKPOINT)
        .param("generation", generation)
        .param("partition", i64::from(partition));
    let rows = client.ask(asked).await?;
    let next: Option<i64> = match rows.first() {
        Some(row) => Some(row.get("next").map_err(neo4rs::Error::from)?),
        None => None,
    };
    Ok(next.map(|next| next as u64))
}

pub(super) async fn owners(client: &Client, generation: &str) -> Result<Vec<OwnerKey>, Failure> {
    let mut owners = BTreeSet::new();
    for row in client
        .ask(query(OWNERS).param("generation", generation))
        .await?
    {
        let owner: String = row.get("owner").map_err(neo4rs::Error::from)?;
        let owner = unhex(&owner).map(OwnerKey::from_bytes);
        owners.insert(owner.ok_or_else(|| damaged("an owner cannot be read"))?);
    }
    Ok(owners.into_iter().collect())
}

#[derive(Deserialize)]
struct VersionRow {
    columns: Columns,
    words: Vec<u8>,
    entities: Vec<(String, String)>,
}

#[derive(Deserialize)]
struct EntityRow {
    token: String,
    words: Vec<u8>,
    is_used: bool,
}

/// Digests of all that stands there of one owner. `None` when the owner was rewritten meanwhile.
pub(super) async fn digests_of(
    client: &Client,
    whom: Whom<'_>,
) -> Result<Option<Vec<RowDigest>>, Failure> {
    let before = stands(client, whom).await?.secret;
    let mut entities: BTreeMap<String, Entity> = BTreeMap::new();
    let mut digests = Vec::new();
    let secret = before.as_ref();
    for row in client.ask(whom.ask(ENTITIES_OF)).await? {
        let read: Result<EntityRow, _> = row.to();
        let entity = read.as_ref().ok().and_then(|row| {
            let entity = read_entity(secret?, whom.owner, &row.token, &row.words)?;
            Some((row, entity))
        });
        match entity {
            Some((found, entity)) if found.is_used => {
                entities.insert(found.token.clone(), entity);
            }
            // One that nothing leads to should not be there; one that does not open shows in the
            // versions that have it.
            Some((found, _)) => digests.push(altered(format!("entity/{}", found.token))),
            None => (),
        }
    }
    for row in client.ask(whom.ask(VERSIONS_OF)).await? {
        let memory: String = row.get("memory").map_err(neo4rs::Error::from)?;
        let memory = unhex(&memory).map(MemoryId::from_bytes);
        let id = VersionId {
            owner: whom.owner,
            memory: memory.ok_or_else(|| damaged("a memory's id was altered"))?,
            version: row.get("version").map_err(neo4rs::Error::from)?,
        };
        let hash = secret.and_then(|secret| {
            let version: VersionRow = row.to().ok()?;
            let facets = version.columns.facets(secret, id, &version.words)?;
            let own = owner_hex(whom.owner);
            let named = version.entities.iter().map(|(token, owner)| {
                let entity = entities.get(token).filter(|_| *owner == own);
                entity.cloned()
            });
            let named: Vec<Entity> = named.collect::<Option<_>>()?;
            Some(digests::graph_hash(&facets, &named))
        });
        digests.push(match hash {
            Some(hash) => RowDigest {
                key: id.key(),
                hash,
            },
            None => altered(id.key()),
        });
    }
    if stands(client, whom).await?.secret != before {
        return Ok(None);
    }
    digests.sort();
    Ok(Some(digests))
}

/// Digest of what says one thing in its properties and another in its words, or cannot be read at all:
/// it equals nothing that the fold expects.
fn altered(key: String) -> RowDigest {
    RowDigest {
        hash: Hash::of(format!("altered {key}").as_bytes()),
        key,
    }
}
