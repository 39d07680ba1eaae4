//! The fold of headers alone: one partition of `memories`. It survives erasure, verifies every owner's
//! chain, drops records of fenced writers, and knows where each stage stands.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::ids::{Hash, OwnerKey};
use crate::input::{Position, Topic};
use crate::receipt::{Parked, Unparked};

/// The part of a decision's header that the chain is made of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ChainLink {
    pub owner: OwnerKey,
    pub owner_seq: u64,
    pub prev_hash: Hash,
    pub writer_epoch: u64,
    /// Position of the input that it answers.
    pub cause: Position,
    /// Hash of the whole payload.
    pub hash: Hash,
}

/// Why an owner's fold stopped: tampering or loss, never fencing.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Break {
    pub offset: u64,
    /// `sequence` or `hash`.
    pub what: String,
    pub expected_seq: u64,
    pub found_seq: u64,
}

/// What a fold does with a decision record.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Verdict {
    Apply,
    /// Written by a writer that had been replaced: dropped by every fold.
    Fenced,
    /// Already applied (`owner_seq` not above the last): dropped by every fold.
    Repeat,
    /// The owner's chain does not continue: the owner's fold stops and alarms.
    Broken(Break),
}

#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct OwnerChain {
    pub seq: u64,
    pub head: Hash,
    /// Offsets of the applied decisions, ascending: one owner can be folded without a scan.
    pub offsets: Vec<u64>,
    pub broken: Option<Break>,
}

/// One partition of `memories`, headers only.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Skeleton {
    /// The first offset that is not folded.
    pub next: u64,
    /// Offset of the latest `WriterStarted`.
    pub writer_epoch: Option<u64>,
    pub owners: BTreeMap<OwnerKey, OwnerChain>,
    /// Highest answered position per input topic.
    answered: BTreeMap<Topic, u64>,
    /// Parked owners, by stage.
    #[serde(with = "parked_list")]
    parked: BTreeMap<(String, OwnerKey), Parked>,
    pub fenced: u64,
    pub repeats: u64,
}

/// JSON has no maps with pairs as keys.
mod parked_list {
    use super::*;
    use serde::{Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(
        parked: &BTreeMap<(String, OwnerKey), Parked>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(parked.values())
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<BTreeMap<(String, OwnerKey), Parked>, D::Error> {
        let list = Vec::<Parked>::deserialize(deserializer)?;
        Ok(list
            .into_iter()
            .map(|p| ((p.stage.clone(), p.owner), p))
            .collect())
    }
}

impl Skeleton {
    /// Folds the header of the decision at `offset`.
    pub fn decided(&mut self, offset: u64, link: &ChainLink) -> Verdict {
        self.next = offset + 1;
        if Some(link.writer_epoch) != self.writer_epoch {
            self.fenced += 1;
            return Verdict::Fenced;
        }
        let chain = self.owners.entry(link.owner).or_default();
        if let Some(broken) = &chain.broken {
            return Verdict::Broken(broken.clone());
        }
        if link.owner_seq <= chain.seq {
            self.repeats += 1;
            return Verdict::Repeat;
        }
        let what = if link.owner_seq != chain.seq + 1 {
            Some("sequence")
        } else if link.prev_hash != chain.head {
            Some("hash")
        } else {
            None
        };
        if let Some(what) = what {
            let broken = Break {
                offset,
                what: what.to_owned(),
                expected_seq: chain.seq + 1,
                found_seq: link.owner_seq,
            };
            chain.broken = Some(broken.clone());
            return Verdict::Broken(broken);
        }
        chain.seq = link.owner_seq;
        chain.head = link.hash;
        chain.offsets.push(offset);
        let answered = self.answered.entry(link.cause.topic).or_insert(0);
        *answered = (*answered).max(link.cause.offset);
        Verdict::Apply
    }

    /// A new writer: its epoch is the record's offset. Records of older epochs are dropped from here on.
    pub fn writer_started(&mut self, offset: u64) {
        self.next = offset + 1;
        self.writer_epoch = Some(offset);
    }

    /// A parking note counts only from the writer in force: a replaced one would move the position past
    /// inputs that its own, dropped decisions had answered.
    pub fn parked(&mut self, offset: u64, parked: Parked) {
        self.next = offset + 1;
        if self.is_fenced(parked.writer_epoch) {
            return;
        }
        let answered = self.answered.entry(parked.first.topic).or_insert(0);
        *answered = (*answered).max(parked.first.offset);
        // The first parking position stands until the owner is released.
        self.parked
            .entry((parked.stage.clone(), parked.owner))
            .or_insert(parked);
    }

    /// A release counts only from the writer in force.
    pub fn unparked(&mut self, offset: u64, unparked: &Unparked) {
        self.next = offset + 1;
        if self.is_fenced(unparked.writer_epoch) {
            return;
        }
        self.parked
            .remove(&(unparked.stage.clone(), unparked.owner));
    }

    /// Whether a note was written by a writer that had been replaced; counts it.
    fn is_fenced(&mut self, writer_epoch: Option<u64>) -> bool {
        let is_fenced = writer_epoch.is_some() && writer_epoch != self.writer_epoch;
        self.fenced += u64::from(is_fenced);
        is_fenced
    }

    /// A record that cannot be decoded: the chain of the owner it is keyed by cannot be followed past
    /// it. Others go on.
    pub fn undecodable(&mut self, offset: u64, owner: OwnerKey) {
        self.next = offset + 1;
        let chain = self.owners.entry(owner).or_default();
        let seq = chain.seq;
        chain.broken.get_or_insert(Break {
            offset,
            what: "undecodable".to_owned(),
            expected_seq: seq + 1,
            found_seq: seq,
        });
    }

    /// An input that a stage other than the validity-manager answered in its own output.
    pub fn answer(&mut self, offset: u64, cause: Position) {
        self.next = offset + 1;
        let answered = self.answered.entry(cause.topic).or_insert(0);
        *answered = (*answered).max(cause.offset);
    }

    /// A record that carries nothing for the fold (the identity record).
    pub fn pass(&mut self, offset: u64) {
        self.next = offset + 1;
    }

    /// The next input position to answer, by the highest cause found: inputs are answered in order.
    pub fn next_input(&self, topic: Topic) -> Option<u64> {
        self.answered.get(&topic).map(|offset| offset + 1)
    }

    pub fn is_parked(&self, stage: &str, owner: OwnerKey) -> bool {
        self.parked.contains_key(&(stage.to_owned(), owner))
    }

    pub fn parked_owners(&self) -> impl Iterator<Item = &Parked> {
        self.parked.values()
    }

    pub fn broken_owners(&self) -> impl Iterator<Item = (&OwnerKey, &Break)> {
        self.owners
            .iter()
            .filter_map(|(key, chain)| Some((key, chain.broken.as_ref()?)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWNER: OwnerKey = OwnerKey::from_bytes([1; 16]);

    fn link(seq: u64, prev: u8, epoch: u64, hash: u8) -> ChainLink {
        ChainLink {
            owner: OWNER,
            owner_seq: seq,
            prev_hash: Hash([prev; 32]),
            writer_epoch: epoch,
            cause: Position {
                topic: Topic::Commands,
                partition: 0,
                offset: seq,
            },
            hash: Hash([hash; 32]),
        }
    }

    fn started() -> Skeleton {
        let mut skeleton = Skeleton::default();
        skeleton.pass(0);
        skeleton.writer_started(1);
        skeleton
    }

    #[test]
    fn a_chain_continues() {
        let mut skeleton = started();
        assert_eq!(skeleton.decided(2, &link(1, 0, 1, 11)), Verdict::Apply);
        assert_eq!(skeleton.decided(3, &link(2, 11, 1, 12)), Verdict::Apply);
        assert_eq!(skeleton.owners[&OWNER].offsets, [2, 3]);
        assert_eq!(skeleton.next_input(Topic::Commands), Some(3));
    }

    #[test]
    fn a_fenced_writer_and_a_repeat_change_nothing() {
        let mut skeleton = started();
        skeleton.decided(2, &link(1, 0, 1, 11));
        skeleton.writer_started(3);
        assert_eq!(skeleton.decided(4, &link(2, 11, 1, 12)), Verdict::Fenced);
        assert_eq!(skeleton.decided(5, &link(1, 0, 3, 13)), Verdict::Repeat);
        assert_eq!(skeleton.decided(6, &link(2, 11, 3, 14)), Verdict::Apply);
        assert_eq!(skeleton.owners[&OWNER].head, Hash([14; 32]));
    }

    #[test]
    fn a_gap_or_another_hash_stops_the_owner() {
        let mut gap = started();
        assert!(matches!(
            gap.decided(2, &link(2, 0, 1, 11)),
            Verdict::Broken(_)
        ));
        assert!(
            matches!(gap.decided(3, &link(1, 0, 1, 11)), Verdict::Broken(_)),
            "stays stopped"
        );
        let mut hash = started();
        hash.decided(2, &link(1, 0, 1, 11));
        assert!(matches!(
            hash.decided(3, &link(2, 99, 1, 12)),
            Verdict::Broken(_)
        ));
        assert_eq!(hash.broken_owners().count(), 1);
    }

    fn note(epoch: u64, first: u64) -> Parked {
        Parked {
            stage: "validity-manager".to_owned(),
            owner: OWNER,
            first: Position {
                topic: Topic::Commands,
                partition: 0,
                offset: first,
            },
            reason: "undecodable".to_owned(),
            at: crate::time::Timestamp::from_millis(5),
            writer_epoch: Some(epoch),
        }
    }

    #[test]
    fn a_replaced_writer_parks_and_releases_nobody() {
        let mut skeleton = started();
        skeleton.writer_started(2);
        skeleton.parked(3, note(1, 11));
        assert!(!skeleton.is_parked("validity-manager", OWNER));
        assert_eq!(
            skeleton.next_input(Topic::Commands),
            None,
            "no input is passed over"
        );
        skeleton.parked(4, note(2, 9));
        let release = |writer_epoch| Unparked {
            stage: "validity-manager".to_owned(),
            owner: OWNER,
            at: crate::time::Timestamp::from_millis(6),
            writer_epoch,
        };
        skeleton.unparked(5, &release(Some(1)));
        assert!(skeleton.is_parked("validity-manager", OWNER));
        skeleton.unparked(6, &release(Some(2)));
        assert!(!skeleton.is_parked("validity-manager", OWNER));
        assert_eq!((skeleton.next, skeleton.fenced), (7, 2));
    }

    #[test]
    fn a_skeleton_survives_json() {
        let mut skeleton = started();
        skeleton.decided(2, &link(1, 0, 1, 11));
        skeleton.parked(
            3,
            Parked {
                stage: "validity-manager".to_owned(),
                owner: OWNER,
                first: Position {
                    topic: Topic::Candidates,
                    partition: 0,
                    offset: 7,
                },
                reason: "undecodable".to_owned(),
                at: crate::time::Timestamp::from_millis(5),
                writer_epoch: Some(1),
            },
        );
        let json = serde_json::to_string(&skeleton).unwrap();
        assert_eq!(serde_json::from_str::<Skeleton>(&json).unwrap(), skeleton);
        assert_eq!(skeleton.next_input(Topic::Candidates), Some(8));
        assert!(skeleton.is_parked("validity-manager", OWNER));
    }
}
