//! How does a version stand in a point: its id, its payload, and back?
//!
//! A payload holds what the hard filter needs and nothing that was said: no text.

use std::collections::HashMap;

use anamnesis_domain::ids::{Hash, MemoryId, OwnerKey};
use anamnesis_domain::memory::{Kind, Status};
use anamnesis_domain::owner::Subject;
use anamnesis_domain::time::{Interval, Timestamp};
use anamnesis_pipeline::digests;
use anamnesis_pipeline::stores::{Facets, RowDigest};
use qdrant_client::qdrant::value::Kind as ValueKind;
use qdrant_client::qdrant::{
    ListValue, PointId, PointStruct, RetrievedPoint, Value, Vectors, VectorsOutput, vector_output,
    vectors_output,
};

/// Names of the payload's fields.
pub(super) mod field {
    /// What the point is: `version`, `tombstone`, `owner`, `checkpoint` or `meta`.
    pub(in super::super) const ROW: &str = "row";
    pub(in super::super) const PARTITION: &str = "partition";
    /// The end of the batch that wrote the point last: a batch that ends earlier does not replace it.
    pub(in super::super) const FENCE: &str = "fence";
    pub(in super::super) const OWNER: &str = "owner";
    pub(in super::super) const MEMORY: &str = "memory";
    pub(in super::super) const VERSION: &str = "version";
    pub(in super::super) const RECORDED_FROM: &str = "recorded_from";
    pub(in super::super) const RECORDED_TO: &str = "recorded_to";
    pub(in super::super) const VALID_FROM: &str = "valid_from";
    pub(in super::super) const VALID_TO: &str = "valid_to";
    pub(in super::super) const SUBJECT: &str = "subject";
    pub(in super::super) const KIND: &str = "kind";
    pub(in super::super) const STATUS: &str = "status";
    pub(in super::super) const TAGS: &str = "tags";
    pub(in super::super) const IS_CONFIRMATION: &str = "is_confirmation";
    /// Neither a confirmation nor a version whose validity ends before it starts: a comparison of
    /// two fields is no condition that Qdrant has.
    pub(in super::super) const IS_ASKABLE: &str = "is_askable";

    /// Of a checkpoint: the first offset that is not applied.
    pub(in super::super) const NEXT: &str = "next";
    /// Of a checkpoint: which write moved it last.
    pub(in super::super) const MARK: &str = "mark";
    /// Of a checkpoint: the collection that it stands in, so that a question through the alias asks
    /// one collection to its end.
    pub(in super::super) const COLLECTION: &str = "collection";
    /// Of a checkpoint: false until a batch was applied.
    pub(in super::super) const IS_PLACED: &str = "is_placed";

    /// Of an owner: behind the last decision that made everything of it be written anew.
    pub(in super::super) const REWRITTEN: &str = "rewritten";

    /// Of the meta point.
    pub(in super::super) const FORMAT: &str = "format";
    pub(in super::super) const LOG_ID: &str = "log_id";
    pub(in super::super) const PARTITIONS: &str = "partitions";
    pub(in super::super) const MODEL: &str = "model";
    pub(in super::super) const DIMENSION: &str = "dimension";
}

pub(super) const VERSION_ROW: &str = "version";
pub(super) const TOMBSTONE_ROW: &str = "tombstone";
pub(super) const OWNER_ROW: &str = "owner";
pub(super) const CHECKPOINT_ROW: &str = "checkpoint";
pub(super) const META_ROW: &str = "meta";

pub(super) type Payload = HashMap<String, Value>;

/// A version's name.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct VersionId {
    pub(super) owner: OwnerKey,
    pub(super) memory: MemoryId,
    pub(super) version: u64,
}

impl VersionId {
    /// As [`digests::version_key`].
    pub(super) fn key(&self) -> String {
        format!("{}/{:010}", self.memory, self.version)
    }

    pub(super) fn point(&self) -> PointId {
        let Self {
            owner,
            memory,
            version,
        } = self;
        point_id(&[
            b"version",
            owner.bytes(),
            memory.bytes(),
            &version.to_le_bytes(),
        ])
    }
}

pub(super) fn meta_point() -> PointId {
    point_id(&[b"meta"])
}

pub(super) fn checkpoint_point(partition: u32) -> PointId {
    point_id(&[b"checkpoint", &partition.to_le_bytes()])
}

pub(super) fn owner_point(owner: OwnerKey) -> PointId {
    point_id(&[b"owner", owner.bytes()])
}

/// Says from which batches on what stands of an owner counts.
pub(super) fn owner_mark(
    owner: OwnerKey,
    partition: u32,
    fence: u64,
    rewritten: u64,
    dimension: usize,
) -> PointStruct {
    let payload = payload([
        (field::ROW, OWNER_ROW.into()),
        (field::PARTITION, i64::from(partition).into()),
        (field::FENCE, integer(fence).into()),
        (field::OWNER, owner.to_string().into()),
        (field::REWRITTEN, integer(rewritten).into()),
    ]);
    point(owner_point(owner), payload, vec![0.0; dimension])
}

/// The same parts give the same id in every generation, so that a repeat finds its point. The parts
/// are pseudonyms already, hashes under the site key.
fn point_id(parts: &[&[u8]]) -> PointId {
    let mut hasher = blake3::Hasher::new_derive_key("anamnesis 2026 qdrant point");
    for part in parts {
        hasher.update(&(part.len() as u64).to_le_bytes());
        hasher.update(part);
    }
    let mut bytes = [0; 16];
    bytes.copy_from_slice(&hasher.finalize().as_bytes()[..16]);
    PointId::from(
        uuid::Builder::from_custom_bytes(bytes)
            .into_uuid()
            .to_string(),
    )
}

/// Offsets and sequence numbers as Qdrant's integers, which are signed.
pub(super) fn integer(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

pub(super) fn payload<const N: usize>(fields: [(&str, Value); N]) -> Payload {
    let fields = fields.into_iter();
    fields
        .map(|(name, value)| (name.to_owned(), value))
        .collect()
}

/// A version in place.
pub(super) fn version_point(
    id: VersionId,
    partition: u32,
    fence: u64,
    facets: &Facets,
    vector: &[f32],
) -> PointStruct {
    let mut payload = named(id, VERSION_ROW, partition, fence);
    let tags = facets.context_tags.iter().cloned().map(Value::from);
    let tags = ListValue {
        values: tags.collect(),
    };
    let facts: [(&str, Value); 8] = [
        (field::RECORDED_FROM, integer(facets.recorded_from).into()),
        (field::VALID_FROM, facets.valid_from.millis().into()),
        (field::SUBJECT, facets.subject.to_string().into()),
        (field::KIND, facets.kind.code().into()),
        (field::STATUS, facets.status.code().into()),
        (
            field::TAGS,
            Value {
                kind: Some(ValueKind::ListValue(tags)),
            },
        ),
        (field::IS_CONFIRMATION, facets.is_confirmation.into()),
        (field::IS_ASKABLE, is_askable(facets).into()),
    ];
    payload.extend(facts.map(|(name, value)| (name.to_owned(), value)));
    if let Some(to) = facets.recorded_to {
        payload.insert(field::RECORDED_TO.to_owned(), integer(to).into());
    }
    if let Some(to) = facets.valid_to {
        payload.insert(field::VALID_TO.to_owned(), to.millis().into());
    }
    point(id.point(), payload, vector.to_vec())
}

/// What remains of a version that an erasure took: its name, so that no late write brings it back.
///
/// The vector is written over with zeros, and not left out: a point that the optimiser has moved keeps
/// each vector that an upsert does not name.
pub(super) fn tombstone(
    id: VersionId,
    partition: u32,
    fence: u64,
    dimension: usize,
) -> PointStruct {
    point(
        id.point(),
        named(id, TOMBSTONE_ROW, partition, fence),
        vec![0.0; dimension],
    )
}

fn named(id: VersionId, row: &str, partition: u32, fence: u64) -> Payload {
    payload([
        (field::ROW, row.into()),
        (field::PARTITION, i64::from(partition).into()),
        (field::FENCE, integer(fence).into()),
        (field::OWNER, id.owner.to_string().into()),
        (field::MEMORY, id.memory.to_string().into()),
        (field::VERSION, integer(id.version).into()),
    ])
}

pub(super) fn point(id: PointId, payload: Payload, vector: Vec<f32>) -> PointStruct {
    PointStruct {
        id: Some(id),
        payload,
        vectors: Some(Vectors::from(vector)),
    }
}

fn is_askable(facets: &Facets) -> bool {
    !facets.is_confirmation && Interval::new(facets.valid_from, facets.valid_to).is_ok()
}

pub(super) fn text<'a>(payload: &'a Payload, name: &str) -> Option<&'a str> {
    match &payload.get(name)?.kind {
        Some(ValueKind::StringValue(text)) => Some(text),
        Some(_) | None => None,
    }
}

pub(super) fn number(payload: &Payload, name: &str) -> Option<i64> {
    match payload.get(name)?.kind {
        Some(ValueKind::IntegerValue(number)) => Some(number),
        Some(_) | None => None,
    }
}

pub(super) fn offset(payload: &Payload, name: &str) -> Option<u64> {
    u64::try_from(number(payload, name)?).ok()
}

pub(super) fn flag(payload: &Payload, name: &str) -> Option<bool> {
    match payload.get(name)?.kind {
        Some(ValueKind::BoolValue(flag)) => Some(flag),
        Some(_) | None => None,
    }
}

/// A field that may be missing, but is not something else.
fn optional<T>(
    payload: &Payload,
    name: &str,
    read: fn(&Payload, &str) -> Option<T>,
) -> Option<Option<T>> {
    if payload.contains_key(name) {
        read(payload, name).map(Some)
    } else {
        Some(None)
    }
}

pub(super) fn read_id(payload: &Payload) -> Option<VersionId> {
    Some(VersionId {
        owner: text(payload, field::OWNER)?.parse().ok()?,
        memory: text(payload, field::MEMORY)?.parse().ok()?,
        version: offset(payload, field::VERSION)?,
    })
}

fn read_facets(payload: &Payload) -> Option<Facets> {
    let facets = Facets {
        recorded_from: offset(payload, field::RECORDED_FROM)?,
        recorded_to: optional(payload, field::RECORDED_TO, offset)?,
        valid_from: Timestamp::from_millis(number(payload, field::VALID_FROM)?),
        valid_to: optional(payload, field::VALID_TO, number)?.map(Timestamp::from_millis),
        subject: Subject::parse(text(payload, field::SUBJECT)?),
        kind: Kind::from_code(text(payload, field::KIND)?)?,
        status: Status::from_code(text(payload, field::STATUS)?)?,
        context_tags: read_tags(payload)?,
        is_confirmation: flag(payload, field::IS_CONFIRMATION)?,
    };
    (flag(payload, field::IS_ASKABLE)? == is_askable(&facets)).then_some(facets)
}

fn read_tags(payload: &Payload) -> Option<Vec<String>> {
    let Some(ValueKind::ListValue(list)) = &payload.get(field::TAGS)?.kind else {
        return None;
    };
    let tag = |value: &Value| match &value.kind {
        Some(ValueKind::StringValue(tag)) => Some(tag.clone()),
        Some(_) | None => None,
    };
    list.values.iter().map(tag).collect()
}

pub(super) fn read_vector(vectors: Option<&VectorsOutput>) -> Option<&[f32]> {
    let Some(vectors_output::VectorsOptions::Vector(output)) = &vectors?.vectors_options else {
        return None;
    };
    match &output.vector {
        Some(vector_output::Vector::Dense(dense)) => Some(&dense.data),
        Some(_) => None,
        // As servers before 1.16 write it.
        #[allow(deprecated)]
        None => Some(&output.data),
    }
}

/// Digest of a version as it stood when `position` was reached. `None` for one that a batch wrote
/// which has not moved the checkpoint: it is not applied.
pub(super) fn digest(
    point: &RetrievedPoint,
    partition: u32,
    position: u64,
    dimension: usize,
) -> Option<RowDigest> {
    let whole = read_whole(point, partition, dimension);
    let Some((id, mut facets, vector)) = whole else {
        return Some(altered(point));
    };
    let is_ahead = offset(&point.payload, field::FENCE).is_some_and(|fence| fence > position);
    if is_ahead {
        if facets.recorded_from >= position {
            return None;
        }
        facets.recorded_to = facets.recorded_to.filter(|to| *to < position);
    }
    Some(RowDigest {
        key: id.key(),
        hash: digests::vector_hash(&facets, vector),
    })
}

/// A point that says the same thing in its id and in all its fields.
fn read_whole(
    point: &RetrievedPoint,
    partition: u32,
    dimension: usize,
) -> Option<(VersionId, Facets, &[f32])> {
    let id = read_id(&point.payload)?;
    let facets = read_facets(&point.payload)?;
    let vector = read_vector(point.vectors.as_ref())?;
    let is_whole = point.id.as_ref() == Some(&id.point())
        && number(&point.payload, field::PARTITION) == Some(i64::from(partition))
        && offset(&point.payload, field::FENCE).is_some()
        && vector.len() == dimension;
    is_whole.then_some((id, facets, vector))
}

/// Digest of a point that was changed by hand: of everything in it, so that it equals nothing that the
/// fold expects.
fn altered(point: &RetrievedPoint) -> RowDigest {
    let id = point.id.as_ref();
    let key = match read_id(&point.payload) {
        Some(id) => id.key(),
        None => format!("altered/{id:?}"),
    };
    let mut fields: Vec<String> = point
        .payload
        .iter()
        .map(|(name, value)| format!("{name}={value:?}"))
        .collect();
    fields.sort();
    let vector = read_vector(point.vectors.as_ref());
    RowDigest {
        key,
        hash: Hash::of(format!("altered {id:?} {fields:?} {vector:?}").as_bytes()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: VersionId = VersionId {
        owner: OwnerKey::from_bytes([1; 16]),
        memory: MemoryId::from_bytes([2; 16]),
        version: 3,
    };

    fn facets() -> Facets {
        Facets {
            recorded_from: 7,
            recorded_to: Some(9),
            valid_from: Timestamp::from_millis(-5),
            valid_to: None,
            subject: Subject::Other("邻居".to_owned()),
            kind: Kind::Allergy,
            status: Status::Active,
            context_tags: vec!["ward".to_owned(), "ward".to_owned(), String::new()],
            is_confirmation: false,
        }
    }

    /// The point as the server would give it back.
    fn stored(facets: &Facets, fence: u64) -> RetrievedPoint {
        let PointStruct { id, payload, .. } = version_point(ID, 1, fence, facets, &[0.6, 0.8]);
        #[allow(deprecated)]
        let vector = qdrant_client::qdrant::VectorOutput {
            data: vec![0.6, 0.8],
            indices: None,
            vectors_count: None,
            vector: None,
        };
        RetrievedPoint {
            id,
            payload,
            vectors: Some(VectorsOutput {
                vectors_options: Some(vectors_output::VectorsOptions::Vector(vector)),
            }),
            ..RetrievedPoint::default()
        }
    }

    fn check(point: &RetrievedPoint, position: u64, expected: Option<&Facets>) {
        let digest = digest(point, 1, position, 2);
        let expected = expected.map(|facets| digests::vector_hash(facets, &[0.6, 0.8]));
        assert_eq!(digest.map(|digest| digest.hash), expected, "at {position}");
    }

    #[test]
    fn a_version_reads_as_it_was_written() {
        check(&stored(&facets(), 10), 10, Some(&facets()));
        check(&stored(&facets(), 10), 12, Some(&facets()));
    }

    #[test]
    fn what_the_checkpoint_has_not_reached_is_not_seen() {
        let open = Facets {
            recorded_to: None,
            ..facets()
        };
        check(&stored(&facets(), 10), 9, Some(&open));
        check(&stored(&facets(), 10), 8, Some(&open));
        check(&stored(&facets(), 10), 7, None);
    }

    #[test]
    fn a_field_changed_by_hand_shows() {
        for (name, value) in [
            (field::RECORDED_TO, Value::from(77)),
            (field::KIND, "no such kind".into()),
            (field::IS_ASKABLE, false.into()),
            (field::PARTITION, 2.into()),
            (field::VERSION, 4.into()),
            (field::TAGS, "ward".into()),
        ] {
            let mut point = stored(&facets(), 10);
            point.payload.insert(name.to_owned(), value);
            let digest = digest(&point, 1, 10, 2).unwrap();
            assert_ne!(
                digest.hash,
                digests::vector_hash(&facets(), &[0.6, 0.8]),
                "{name}"
            );
        }
    }
}
