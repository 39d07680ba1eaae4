//! How far is an erasure: asked for, decided, unreachable in every store, its bytes rewritten? The
//! answer is the certificate, from the log alone.

use std::collections::BTreeMap;
use std::time::Duration;

use anamnesis_domain::ids::{ErasureId, OwnerKey};
use anamnesis_domain::input::{Position, Topic};
use anamnesis_domain::receipt::store_of;
use anamnesis_domain::skeleton::Verdict;
use anamnesis_domain::time::{Known, Timestamp};
use anamnesis_domain::transition::Outcome;
use anamnesis_pipeline::codec::{Clear, Codec, Opened, read_clear};
use anamnesis_pipeline::consumer::StageError;
use anamnesis_pipeline::fold::Folded;
use anamnesis_pipeline::log::{EventLog, partition_of};
use anamnesis_pipeline::stores::Store;
use serde::Serialize;

use crate::replay::{each_record, read_partition};

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Progress {
    /// The command is durable and not yet decided.
    Accepted,
    /// Decided against; the outcome says why.
    Refused,
    /// Decided; not every store has applied it yet.
    Decided,
    /// Unreachable: the keys are destroyed and no store finds anything of it.
    Effective,
    /// No erased byte is left in the stores' files either.
    Complete,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Certificate {
    pub erasure_id: ErasureId,
    pub owner: OwnerKey,
    pub status: Progress,
    pub command: Position,
    pub accepted_at: Timestamp,
    pub decision: Option<Decision>,
    /// Keys that were destroyed; what they sealed is unreadable wherever it stands in the log.
    pub keys_destroyed: u64,
    /// What the keyring and each store, or copy of it, has done, by name.
    pub receipts: BTreeMap<String, Receipt>,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Decision {
    pub position: Position,
    pub recorded_at: Timestamp,
    pub outcome: Outcome,
}

#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Receipt {
    pub effective_at: Option<Timestamp>,
    pub physical_at: Option<Timestamp>,
}

/// The copies of the records and of the text, each kept by an indexer of its own.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Copies {
    /// How many there are of each partition; one where nothing is said.
    pub of_partition: BTreeMap<u32, usize>,
    /// How long after a record was appended a copy that has not applied it may still answer.
    pub lease: Duration,
}

/// The certificate of an erasure of `owner`, or of any owner; `None` when no such command was accepted.
///
/// # Errors
/// When the log or the keyring cannot be read.
pub async fn certificate(
    log: &dyn EventLog,
    codec: &Codec,
    id: ErasureId,
    owner: Option<OwnerKey>,
    copies: &Copies,
    now: Timestamp,
) -> Result<Option<Certificate>, StageError> {
    let partitions = match owner {
        Some(owner) => {
            let partition = partition_of(owner, log.partitions());
            partition..partition + 1
        }
        None => 0..log.partitions(),
    };
    for partition in partitions {
        let found = in_partition(log, codec, id, partition, copies, now).await?;
        if let Some(found) = found.filter(|found| owner.is_none_or(|owner| owner == found.owner)) {
            return Ok(Some(found));
        }
    }
    Ok(None)
}

async fn in_partition(
    log: &dyn EventLog,
    codec: &Codec,
    id: ErasureId,
    partition: u32,
    copies: &Copies,
    now: Timestamp,
) -> Result<Option<Certificate>, StageError> {
    let ids = codec.keys().id_key();
    let mut command = None;
    each_record(log, Topic::Commands, partition, &mut |record| {
        if let Ok(Clear::Input { owner, event, .. }) = read_clear(&record.payload)
            && command.is_none()
            && ids.erasure(event) == id
        {
            command = Some((owner, record.position, record.appended_at));
        }
    })
    .await?;
    let Some((owner, position, accepted_at)) = command else {
        return Ok(None);
    };
    let mut decision = None;
    read_partition(log, codec, partition, Known::Latest, &mut |step| {
        if let (Folded::Decision(_, Verdict::Apply), Some(opened)) = (&step.folded, step.decided)
            && opened.decided.cause.position == position
        {
            decision = Some(Decision {
                position: step.record.position,
                recorded_at: step.record.appended_at,
                outcome: opened.decided.outcome.clone(),
            });
        }
    })
    .await?;
    let mut receipts: BTreeMap<String, Receipt> = BTreeMap::new();
    let mut keys_destroyed = 0;
    let mut notes = Vec::new();
    each_record(log, Topic::Receipts, partition, &mut |record| {
        if record.key == owner {
            notes.push(record.clone());
        }
    })
    .await?;
    for (opened, record) in codec.open(&notes).await?.into_iter().zip(&notes) {
        let Ok(Opened::Receipt(note)) = opened else {
            continue;
        };
        if note.erasure != id {
            continue;
        }
        let receipt = receipts.entry(note.place).or_default();
        if note.stage == "physical" {
            receipt.physical_at.get_or_insert(record.appended_at);
        } else {
            // The log's time, not the note's: a receipt is appended when the store has done it.
            receipt.effective_at.get_or_insert(record.appended_at);
            // A repeat after a crash counts what the first one reached.
            keys_destroyed = keys_destroyed.max(note.count);
        }
    }
    for place in places() {
        if !receipts.keys().any(|found| store_of(found) == place) {
            receipts.insert(place.to_owned(), Receipt::default());
        }
    }
    let told = Told {
        receipts: &receipts,
        copies: copies.of_partition.get(&partition).copied().unwrap_or(1),
        lease: copies.lease,
        now,
    };
    let status = told.progress(decision.as_ref());
    Ok(Some(Certificate {
        erasure_id: id,
        owner,
        status,
        command: position,
        accepted_at,
        decision,
        keys_destroyed,
        receipts,
    }))
}

/// Where an erasure is applied.
fn places() -> impl Iterator<Item = &'static str> {
    Store::ALL.map(Store::as_str).into_iter().chain([KEYRING])
}

const KEYRING: &str = "keyring";

/// What the log says of an erasure, to be judged.
struct Told<'a> {
    receipts: &'a BTreeMap<String, Receipt>,
    copies: usize,
    lease: Duration,
    now: Timestamp,
}

impl Told<'_> {
    fn progress(&self, decision: Option<&Decision>) -> Progress {
        let Some(decision) = decision else {
            return Progress::Accepted;
        };
        if decision.outcome != Outcome::Stored {
            return Progress::Refused;
        }
        let is_effective = places().all(|place| self.is_effective(place, decision.recorded_at));
        // The keyring overwrites a key when it destroys it; there is nothing left to rewrite.
        let is_physical = places().all(|place| place == KEYRING || self.is_physical(place));
        match (is_effective, is_physical) {
            (false, _) => Progress::Decided,
            (true, false) => Progress::Effective,
            (true, true) => Progress::Complete,
        }
    }

    fn copies_of(&self, place: &str) -> usize {
        let is_copied = [Store::Records, Store::Text]
            .map(Store::as_str)
            .contains(&place);
        if is_copied { self.copies } else { 1 }
    }

    fn receipts_of(&self, place: &'static str) -> impl Iterator<Item = &Receipt> {
        let all = self.receipts.iter();
        all.filter(move |(found, _)| store_of(found) == place)
            .map(|(_, receipt)| receipt)
    }

    /// Every copy has said so; or one has, and the others have either done the same since or answer
    /// nothing any more.
    fn is_effective(&self, place: &'static str, decided: Timestamp) -> bool {
        let done = self.receipts_of(place);
        let done = done
            .filter(|receipt| receipt.effective_at.is_some())
            .count();
        let lease_ms = i64::try_from(self.lease.as_millis()).unwrap_or(i64::MAX);
        let is_over = self.now.millis() >= decided.millis().saturating_add(lease_ms);
        done >= self.copies_of(place) || (done > 0 && is_over)
    }

    fn is_physical(&self, place: &'static str) -> bool {
        let done = self.receipts_of(place);
        done.filter(|receipt| receipt.physical_at.is_some()).count() >= self.copies_of(place)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decided(outcome: Outcome) -> Decision {
        Decision {
            position: Position {
                topic: Topic::Memories,
                partition: 0,
                offset: 9,
            },
            recorded_at: Timestamp::default(),
            outcome,
        }
    }

    const LEASE: Duration = Duration::from_secs(5);

    #[track_caller]
    fn check(
        decision: Option<&Decision>,
        copies: usize,
        now_ms: i64,
        receipts: &BTreeMap<String, Receipt>,
        expected: Progress,
    ) {
        let told = Told {
            receipts,
            copies,
            lease: LEASE,
            now: Timestamp::from_millis(now_ms),
        };
        assert_eq!(told.progress(decision), expected);
    }

    #[test]
    fn an_erasure_is_as_far_as_its_slowest_store() {
        let at = Some(Timestamp::default());
        let mut receipts = BTreeMap::new();
        let stored = decided(Outcome::Stored);
        let refused = decided(Outcome::NoOp);
        check(None, 1, 0, &receipts, Progress::Accepted);
        check(Some(&refused), 1, 0, &receipts, Progress::Refused);
        check(Some(&stored), 1, 0, &receipts, Progress::Decided);
        let done = |effective_at, physical_at| Receipt {
            effective_at,
            physical_at,
        };
        for place in ["keyring", "records", "text", "vectors"] {
            receipts.insert(place.to_owned(), done(at, None));
        }
        check(Some(&stored), 1, 60_000, &receipts, Progress::Decided);
        receipts.insert("graph".to_owned(), done(at, None));
        check(Some(&stored), 1, 0, &receipts, Progress::Effective);
        for place in ["records", "text", "vectors", "graph"] {
            receipts.insert(place.to_owned(), done(at, at));
        }
        check(Some(&stored), 1, 0, &receipts, Progress::Complete);
    }

    #[test]
    fn a_copy_that_says_nothing_is_waited_for_until_it_answers_nothing() {
        let at = Some(Timestamp::default());
        let stored = decided(Outcome::Stored);
        let whole = Receipt {
            effective_at: at,
            physical_at: at,
        };
        let mut receipts: BTreeMap<String, Receipt> =
            ["keyring", "records@a", "text@a", "vectors", "graph"]
                .map(|place| (place.to_owned(), whole.clone()))
                .into();
        check(Some(&stored), 2, 4_999, &receipts, Progress::Decided);
        check(Some(&stored), 2, 5_000, &receipts, Progress::Effective);
        for place in ["records@b", "text@b"] {
            receipts.insert(place.to_owned(), whole.clone());
        }
        check(Some(&stored), 2, 0, &receipts, Progress::Complete);
    }
}
