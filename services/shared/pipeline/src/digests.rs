//! What each store should hold for a version, reduced to a hash: the fold's side of `audit diff`.

use anamnesis_domain::ids::Hash;
use anamnesis_domain::memory::Memory;
use anamnesis_domain::tokens;
use serde::Serialize;

use crate::beside::Place;
use crate::stores::{DecisionRow, MemoryVersion, OwnerRows, OwnerView, RowDigest, Store};

/// Hash of a value's canonical JSON. Fields are written in the order of the type; maps are ordered.
pub fn hash_of<T: Serialize>(value: &T) -> Hash {
    Hash::of(&serde_json::to_vec(value).expect("plain data"))
}

pub fn version_key(version: &MemoryVersion) -> String {
    format!("{}/{:010}", version.memory.id, version.memory.version)
}

pub fn decision_key(row: &DecisionRow) -> String {
    format!("decision/{:010}", row.owner_seq)
}

pub const OWNER_KEY: &str = "owner";

/// Terms of a version with their frequencies, ascending: what a text index holds of it. Those of a turn
/// are its words and the name of whoever said them.
pub fn term_frequencies(memory: &Memory) -> Vec<(String, u32)> {
    let mut counts = std::collections::BTreeMap::new();
    let spoken = tokens::index_tokens(memory.claim.text.expose());
    for token in spoken.into_iter().chain(memory.speaker_tokens()) {
        *counts.entry(token).or_insert(0) += 1;
    }
    counts.into_iter().collect()
}

/// Hash of a row of the records store.
pub fn records_hash(version: &MemoryVersion) -> Hash {
    hash_of(version)
}

/// Hash of a document of the text index: its facets, its terms, and where it stands in its conversation.
pub fn text_hash(
    facets: &crate::stores::Facets,
    terms: &[(String, u32)],
    place: Option<Place>,
) -> Hash {
    hash_of(&(facets, terms, place))
}

/// Hash of a row of the vectors store: its facets and the vector's bytes.
pub fn vector_hash(facets: &crate::stores::Facets, vector: &[f32]) -> Hash {
    let bits: Vec<u32> = vector.iter().map(|component| component.to_bits()).collect();
    hash_of(&(facets, bits))
}

/// Hash of a memory in the graph store: its facets and its entities, ascending.
pub fn graph_hash(
    facets: &crate::stores::Facets,
    entities: &[anamnesis_domain::memory::Entity],
) -> Hash {
    let mut sorted = entities.to_vec();
    sorted.sort();
    sorted.dedup();
    hash_of(&(facets, sorted))
}

pub fn decision_digest(row: &DecisionRow) -> RowDigest {
    RowDigest {
        key: decision_key(row),
        hash: hash_of(row),
    }
}

pub fn owner_digest(view: &OwnerView) -> RowDigest {
    RowDigest {
        key: OWNER_KEY.to_owned(),
        hash: hash_of(view),
    }
}

/// Everything that `store` should hold of one owner, ascending by key.
pub fn expected_rows(store: Store, rows: &OwnerRows) -> Vec<RowDigest> {
    let mut digests = Vec::new();
    for (version, vector) in &rows.versions {
        let facets = version.facets();
        let hash = match store {
            Store::Records => Some(records_hash(version)),
            Store::Text => Some(text_hash(
                &facets,
                &term_frequencies(&version.memory),
                Place::of(&version.memory),
            )),
            Store::Vectors => vector.as_ref().map(|vector| vector_hash(&facets, vector)),
            Store::Graph => Some(graph_hash(&facets, &version.memory.claim.entities)),
        };
        if let Some(hash) = hash {
            digests.push(RowDigest {
                key: version_key(version),
                hash,
            });
        }
    }
    if store == Store::Records {
        digests.extend(rows.decisions.iter().map(decision_digest));
        digests.push(owner_digest(&rows.view));
    }
    digests.sort();
    digests
}
