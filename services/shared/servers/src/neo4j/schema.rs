//! What stands in the database, and is what makes each thing exist once in force?
//!
//! - `(:AnamnesisLive)`: which generation answers, by prefix
//! - `(:AnamnesisGeneration)`: which log a generation follows, and in which format
//! - `(:AnamnesisPartition)`: how far a partition is applied; locked while a batch is applied
//! - `(:AnamnesisOwner)`: the owner's secret (see [`super::words`]) and the offset of the last rewrite
//! - `(:AnamnesisVersion)`: a version of a memory with both clocks
//! - `(:AnamnesisEntity)`: an entity of one owner; no two owners share one
//! - `(version)-[:ANAMNESIS_ABOUT]->(entity)`
//! - `(version)-[:ANAMNESIS_SUPERSEDES]->(version)`: what its memory replaced, as it stood then
//!
//! Without the constraints two writers could each make a node of one identity, and every question would
//! read whole labels. They belong to the database and are shared by all generations in it.

use std::collections::BTreeSet;

use anamnesis_domain::ids::LogId;
use anamnesis_pipeline::feed::Feed;
use anamnesis_pipeline::stores::{Store, StoreError};
use neo4rs::query;
use serde::Deserialize;

use super::client::{Client, Failure, damaged, rows, unusable};
use super::settings::Neo4jConfig;
use super::words::{hex, unhex};

/// Layout of all nodes. A change of any property, or of what it means, is a new number, and the
/// generation is rebuilt.
const FORMAT: i64 = 1;

/// Name, label, and the properties that identify a node together.
const CONSTRAINTS: [(&str, &str, &[&str]); 6] = [
    ("anamnesis_live", "AnamnesisLive", &["prefix"]),
    (
        "anamnesis_generation",
        "AnamnesisGeneration",
        &["generation"],
    ),
    (
        "anamnesis_partition",
        "AnamnesisPartition",
        &["generation", "partition"],
    ),
    (
        "anamnesis_owner",
        "AnamnesisOwner",
        &["generation", "owner"],
    ),
    (
        "anamnesis_version",
        "AnamnesisVersion",
        &["generation", "owner", "memory", "version"],
    ),
    (
        "anamnesis_entity",
        "AnamnesisEntity",
        &["generation", "owner", "token"],
    ),
];

#[derive(Deserialize)]
struct Constraint {
    kind: String,
    labels: Vec<String>,
    properties: Vec<String>,
}

#[derive(Deserialize)]
struct Index {
    labels: Vec<String>,
    state: String,
}

/// The labels whose constraint is not in force.
async fn missing(client: &Client) -> Result<Vec<&'static str>, Failure> {
    let sql = "SHOW CONSTRAINTS YIELD type, labelsOrTypes, properties
               RETURN type AS kind, labelsOrTypes AS labels, properties";
    let mut found = BTreeSet::new();
    for row in client.ask(query(sql)).await? {
        let constraint: Constraint = row.to().map_err(neo4rs::Error::from)?;
        if constraint.kind == "UNIQUENESS" || constraint.kind == "NODE_PROPERTY_UNIQUENESS" {
            found.insert((constraint.labels, constraint.properties));
        }
    }
    let sql = "SHOW INDEXES YIELD labelsOrTypes, state, owningConstraint
               WHERE owningConstraint IS NOT NULL AND labelsOrTypes IS NOT NULL
               RETURN labelsOrTypes AS labels, state";
    let mut online = BTreeSet::new();
    for row in client.ask(query(sql)).await? {
        let index: Index = row.to().map_err(neo4rs::Error::from)?;
        if index.state == "ONLINE" {
            online.extend(index.labels);
        }
    }
    let is_missing = |label: &str, properties: &[&str]| {
        let properties: Vec<String> = properties.iter().map(|&name| name.to_owned()).collect();
        !found.contains(&(vec![label.to_owned()], properties)) || !online.contains(label)
    };
    let missing = CONSTRAINTS
        .iter()
        .filter(|(_, label, properties)| is_missing(label, properties));
    Ok(missing.map(|(_, label, _)| *label).collect())
}

/// Whether every constraint is in force.
///
/// # Errors
/// [`StoreError::Unusable`] that names the labels without one.
pub(super) async fn check_constraints(client: &Client) -> Result<(), Failure> {
    let missing = missing(client).await?;
    if missing.is_empty() {
        return Ok(());
    }
    let what = format!(
        "nothing is written while constraints are missing (on {}); they are made at start",
        missing.join(", ")
    );
    Err(unusable(what).into())
}

/// Makes the constraints that are missing.
///
/// # Errors
/// [`StoreError::Damaged`] when the database holds nodes that break one already.
pub(super) async fn make_constraints(
    client: &Client,
    config: &Neo4jConfig,
) -> Result<(), StoreError> {
    let missing = client
        .call(config.write_deadline, || missing(client))
        .await?;
    for (name, label, properties) in CONSTRAINTS {
        if !missing.contains(&label) {
            continue;
        }
        let made = client
            .call(config.write_deadline, || {
                make(client, name, label, properties)
            })
            .await;
        match made {
            Ok(()) => tracing::info!(label, "neo4j: made the constraint"),
            Err(StoreError::Damaged { .. }) => {
                return Err(damaged(format!(
                    "the constraint on {label} cannot be made, because nodes exist twice"
                )));
            }
            Err(error) => return Err(error),
        }
    }
    client
        .call(config.write_deadline, || check_constraints(client))
        .await
}

async fn make(
    client: &Client,
    name: &str,
    label: &str,
    properties: &[&str],
) -> Result<(), Failure> {
    let properties: Vec<String> = properties.iter().map(|name| format!("n.{name}")).collect();
    let statement = format!(
        "CREATE CONSTRAINT {name} IF NOT EXISTS FOR (n:{label}) REQUIRE ({}) IS UNIQUE",
        properties.join(", ")
    );
    let mut transaction = client.begin().await?;
    rows(&mut transaction, query(&statement)).await?;
    transaction.commit().await?;
    Ok(())
}

/// What the database says of a generation.
#[derive(Deserialize)]
struct Identity {
    format: Option<i64>,
    log_id: Option<String>,
    partitions: Option<i64>,
    /// Versions that were written; none of them left means that somebody deleted them.
    written: i64,
    is_placed: bool,
    holds_any: bool,
}

const IDENTITY: &str = "
    OPTIONAL MATCH (g:AnamnesisGeneration {generation: $generation})
    RETURN g.format AS format, g.log_id AS log_id, g.partitions AS partitions,
        reduce(sum = 0, one IN COLLECT {
            MATCH (p:AnamnesisPartition {generation: $generation}) WHERE p.partition IS NOT NULL
            RETURN p.versions
        } | sum + one) AS written,
        EXISTS {
            MATCH (p:AnamnesisPartition {generation: $generation}) WHERE p.partition IS NOT NULL
        } AS is_placed,
        EXISTS {
            MATCH (v:AnamnesisVersion {generation: $generation})
            WHERE v.owner IS NOT NULL AND v.memory IS NOT NULL AND v.version IS NOT NULL
        } AS holds_any";

/// Finds the generation or makes it.
///
/// # Errors
/// [`StoreError::OtherLog`], [`StoreError::Damaged`] for one that is half deleted,
/// [`StoreError::Unusable`] for one of another format.
pub(super) async fn open_generation(
    client: &Client,
    config: &Neo4jConfig,
    feed: Feed,
) -> Result<(), StoreError> {
    client
        .call(config.write_deadline, || {
            find_or_make(client, &config.generation, feed)
        })
        .await
}

async fn find_or_make(client: &Client, generation: &str, feed: Feed) -> Result<(), Failure> {
    let rows = client
        .ask(query(IDENTITY).param("generation", generation))
        .await?;
    let row = rows
        .first()
        .ok_or_else(|| damaged("a question of one row has none"))?;
    let identity: Identity = row.to().map_err(neo4rs::Error::from)?;
    if identity.format.is_some() || identity.log_id.is_some() {
        return Ok(check_identity(&identity, generation, feed)?);
    }
    if identity.is_placed || identity.holds_any {
        return Err(damaged(format!(
            "the identity of generation {generation} is missing"
        ))
        .into());
    }
    let mut transaction = client.begin().await?;
    // Made by another process in between: it stays as it is, and the check follows.
    let statement = "
        MERGE (g:AnamnesisGeneration {generation: $generation})
        ON CREATE SET g.format = $format, g.log_id = $log_id, g.partitions = $partitions
        RETURN g.format AS format, g.log_id AS log_id, g.partitions AS partitions,
            0 AS written, false AS is_placed, false AS holds_any";
    let made = query(statement)
        .param("generation", generation)
        .param("format", FORMAT)
        .param("log_id", hex(feed.log_id.bytes()))
        .param("partitions", i64::from(feed.partitions));
    let made = super::client::rows(&mut transaction, made).await?;
    transaction.commit().await?;
    let row = made
        .first()
        .ok_or_else(|| damaged("a question of one row has none"))?;
    let identity: Identity = row.to().map_err(neo4rs::Error::from)?;
    Ok(check_identity(&identity, generation, feed)?)
}

fn check_identity(identity: &Identity, generation: &str, feed: Feed) -> Result<(), StoreError> {
    if identity.format != Some(FORMAT) {
        let found = identity
            .format
            .map_or_else(|| "no".to_owned(), |format| format.to_string());
        return Err(unusable(format!(
            "generation {generation} has {found} format and this program writes {FORMAT}: use the other \
             version, or rebuild it: anamnesis rebuild --store graph"
        )));
    }
    let log_id = identity
        .log_id
        .as_deref()
        .and_then(unhex)
        .map(LogId::from_bytes);
    let Some(log_id) = log_id else {
        return Err(damaged(format!(
            "the log of generation {generation} cannot be read"
        )));
    };
    if log_id != feed.log_id {
        return Err(StoreError::OtherLog {
            store: Store::Graph,
            expected: feed.log_id,
            found: log_id,
        });
    }
    if identity.partitions != Some(i64::from(feed.partitions)) {
        return Err(damaged(format!(
            "it follows {} partitions, the log has {}",
            identity.partitions.unwrap_or_default(),
            feed.partitions
        )));
    }
    if identity.written > 0 && !identity.holds_any {
        return Err(damaged("the checkpoint is there and the versions are not"));
    }
    if identity.holds_any && !identity.is_placed {
        return Err(damaged("the versions are there and the checkpoint is not"));
    }
    Ok(())
}
