//! How does a version stand in a node, and an entity, and how are they read again?

use std::collections::HashMap;

use anamnesis_domain::ids::{MemoryId, OwnerKey};
use anamnesis_domain::memory::{Entity, EntityKind, Kind, Status};
use anamnesis_domain::owner::Subject;
use anamnesis_domain::text::Text;
use anamnesis_domain::time::Timestamp;
use anamnesis_pipeline::stores::{Facets, MemoryVersion};
use neo4rs::BoltType;
use serde::{Deserialize, Serialize};

use super::words::{NUMBERS, Secret, hex};

/// A version's name within a generation.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct VersionId {
    pub(super) owner: OwnerKey,
    pub(super) memory: MemoryId,
    pub(super) version: i64,
}

impl VersionId {
    pub(super) fn of(version: &MemoryVersion) -> Self {
        Self {
            owner: version.owner,
            memory: version.memory.id,
            version: to_column(version.memory.version),
        }
    }

    /// As [`anamnesis_pipeline::digests::version_key`].
    pub(super) fn key(&self) -> String {
        format!("{}/{:010}", self.memory, self.version)
    }

    /// What the words of this version are bound to.
    fn place(&self) -> Vec<u8> {
        let Self {
            owner,
            memory,
            version,
        } = self;
        format!("version/{owner}/{memory}/{version}").into_bytes()
    }
}

/// An offset or sequence number; Neo4j's integers are signed.
pub(super) fn to_column(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

pub(super) fn owner_hex(owner: OwnerKey) -> String {
    hex(owner.bytes())
}

/// A map of the query language.
pub(super) fn map<const N: usize>(pairs: [(&str, BoltType); N]) -> BoltType {
    HashMap::<&str, BoltType>::from(pairs).into()
}

/// The parts of a version that a question filters by: numbers as they are, words as tokens.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
pub(super) struct Columns {
    recorded_from: i64,
    pub(super) recorded_to: Option<i64>,
    valid_from: i64,
    valid_to: Option<i64>,
    is_confirmation: bool,
    subject: String,
    kind: String,
    status: String,
    tags: Vec<String>,
}

/// The words of a version, which are sealed.
#[derive(Serialize, Deserialize)]
struct Words {
    subject: String,
    kind: String,
    status: String,
    tags: Vec<String>,
}

pub(super) fn subject_token(secret: &Secret, subject: &Subject) -> String {
    secret.token("subject", &[&subject.to_string()])
}

pub(super) fn kind_token(secret: &Secret, kind: Kind) -> String {
    secret.token("kind", &[kind.code()])
}

pub(super) fn status_token(secret: &Secret, status: Status) -> String {
    secret.token("status", &[status.code()])
}

pub(super) fn tag_token(secret: &Secret, tag: &str) -> String {
    secret.token("tag", &[tag])
}

pub(super) fn entity_token(secret: &Secret, entity: &Entity) -> String {
    secret.token("entity", &[entity.kind.code(), entity.name.expose()])
}

impl Columns {
    fn of(secret: &Secret, facets: &Facets) -> Self {
        let tags = facets.context_tags.iter();
        Self {
            recorded_from: to_column(facets.recorded_from),
            recorded_to: facets.recorded_to.map(to_column),
            valid_from: facets.valid_from.millis(),
            valid_to: facets.valid_to.map(Timestamp::millis),
            is_confirmation: facets.is_confirmation,
            subject: subject_token(secret, &facets.subject),
            kind: kind_token(secret, facets.kind),
            status: status_token(secret, facets.status),
            tags: tags.map(|tag| tag_token(secret, tag)).collect(),
        }
    }

    /// What was written, if columns and words still agree.
    pub(super) fn facets(&self, secret: &Secret, id: VersionId, sealed: &[u8]) -> Option<Facets> {
        let words = secret.open(&id.place(), sealed)?;
        let words: Words = serde_json::from_slice(&words).ok()?;
        let facets = Facets {
            recorded_from: self.recorded_from as u64,
            recorded_to: self.recorded_to.map(|to| to as u64),
            valid_from: Timestamp::from_millis(self.valid_from),
            valid_to: self.valid_to.map(Timestamp::from_millis),
            subject: Subject::parse(&words.subject),
            kind: Kind::from_code(&words.kind)?,
            status: Status::from_code(&words.status)?,
            context_tags: words.tags,
            is_confirmation: self.is_confirmation,
        };
        (*self == Self::of(secret, &facets)).then_some(facets)
    }
}

/// All properties of a version's node.
pub(super) fn version_node(
    secret: &Secret,
    generation: &str,
    id: VersionId,
    facets: &Facets,
) -> BoltType {
    let words = Words {
        subject: facets.subject.to_string(),
        kind: facets.kind.code().to_owned(),
        status: facets.status.code().to_owned(),
        tags: facets.context_tags.clone(),
    };
    let words = serde_json::to_vec(&words).expect("plain data");
    let columns = Columns::of(secret, facets);
    map([
        ("generation", generation.into()),
        ("owner", owner_hex(id.owner).into()),
        ("memory", hex(id.memory.bytes()).into()),
        ("version", id.version.into()),
        ("recorded_from", columns.recorded_from.into()),
        ("recorded_to", columns.recorded_to.into()),
        ("valid_from", columns.valid_from.into()),
        ("valid_to", columns.valid_to.into()),
        ("is_confirmation", columns.is_confirmation.into()),
        ("subject", columns.subject.into()),
        ("kind", columns.kind.into()),
        ("status", columns.status.into()),
        ("tags", columns.tags.into()),
        ("words", secret.seal(&id.place(), &words).into()),
    ])
}

fn entity_place(owner: OwnerKey, token: &str) -> Vec<u8> {
    format!("entity/{owner}/{token}").into_bytes()
}

/// All properties of an entity's node.
pub(super) fn entity_node(
    secret: &Secret,
    generation: &str,
    owner: OwnerKey,
    entity: &Entity,
) -> BoltType {
    let token = entity_token(secret, entity);
    let words =
        serde_json::to_vec(&(entity.kind.code(), entity.name.expose())).expect("plain data");
    let sealed = secret.seal(&entity_place(owner, &token), &words);
    map([
        ("generation", generation.into()),
        ("owner", owner_hex(owner).into()),
        ("token", token.into()),
        ("words", sealed.into()),
    ])
}

/// The entity of a node, if its token and words still agree.
pub(super) fn read_entity(
    secret: &Secret,
    owner: OwnerKey,
    token: &str,
    sealed: &[u8],
) -> Option<Entity> {
    let words = secret.open(&entity_place(owner, token), sealed)?;
    let (kind, name): (String, String) = serde_json::from_slice(&words).ok()?;
    let entity = Entity {
        kind: EntityKind::from_code(&kind)?,
        name: Text::new(name),
    };
    (entity_token(secret, &entity) == token).then_some(entity)
}

/// An owner's node.
#[derive(Deserialize)]
pub(super) struct OwnerRow {
    pub(super) owner: String,
    /// The offset of the last decision that rewrote the owner: nothing at or below it is written again.
    pub(super) floor: i64,
    /// The highest version of any memory that was written.
    pub(super) newest: i64,
    pub(super) secret: [i64; NUMBERS],
}
