//! Canonical hashes of an owner's state.
//!
//! `exact` covers everything: a rebuild equals the live state. `content` covers what is believed and
//! when, without ids, offsets and append times: equal for any order of arrival, and for embedded and
//! distributed. Both hash canonical JSON (fields in the order of the type, maps ordered, no floats but
//! shares with three digits).

use serde::Serialize;

use crate::attribute::Attributes;
use crate::ids::Hash;
use crate::line::{Content, LineKey};
use crate::memory::{Kind, Status};
use crate::state::OwnerState;
use crate::time::Timestamp;

/// Hash of the whole state.
pub fn exact(state: &OwnerState) -> Hash {
    Hash::of(&serde_json::to_vec(state).expect("a state is plain data"))
}

#[derive(Serialize, PartialEq, Eq, PartialOrd, Ord)]
struct Believed {
    line: LineKeyJson,
    kind: Kind,
    content: Content,
    status: Status,
    valid_from: Timestamp,
    valid_to: Option<Timestamp>,
    in_conflict: bool,
    confirmations: usize,
}

#[derive(Serialize, PartialEq, Eq, PartialOrd, Ord)]
struct LineKeyJson(String, String);

/// Hash of what is believed and when it holds.
pub fn content(state: &OwnerState) -> Hash {
    let attributes = Attributes::shipped();
    let mut believed = Vec::new();
    for entry in state
        .claims
        .values()
        .filter(|entry| entry.standing.confirms.is_none())
    {
        let key = LineKey::of(entry.id, &entry.claim, attributes);
        let confirming = state.confirming(entry.id);
        let mut said = Content::of(&entry.claim);
        // What a member adds (a dose that the first statement left out) belongs to the memory.
        for member in &confirming {
            let other = Content::of(&member.claim);
            said.quantity = said.quantity.or(other.quantity);
            said.schedule = said.schedule.or(other.schedule);
        }
        let head = if entry.claim.kind == Kind::Episode {
            // The id stands in the line's key; the turn's words do not depend on it.
            format!("episode:{}", entry.claim.text.normalised())
        } else {
            key.head
        };
        believed.push(Believed {
            line: LineKeyJson(key.subject.to_string(), head),
            kind: entry.claim.kind,
            content: said,
            status: entry.standing.status,
            valid_from: entry.standing.valid_from,
            valid_to: entry.standing.valid_to,
            in_conflict: entry.standing.conflict_with.is_some(),
            confirmations: confirming.len(),
        });
    }
    believed.sort();
    let mut consents: Vec<String> = state
        .consents
        .iter()
        .filter(|held| held.recorded_to.is_none())
        .map(|held| serde_json::to_string(&held.value).expect("plain data"))
        .collect();
    consents.sort();
    Hash::of(&serde_json::to_vec(&(believed, consents)).expect("plain data"))
}

/// Hash over many owners: `(owner, hash)` pairs, ascending by owner.
pub fn of_owners<'a>(owners: impl IntoIterator<Item = (&'a crate::ids::OwnerKey, Hash)>) -> Hash {
    let mut pairs: Vec<_> = owners.into_iter().map(|(key, hash)| (*key, hash)).collect();
    pairs.sort();
    Hash::of(&serde_json::to_vec(&pairs).expect("plain data"))
}
