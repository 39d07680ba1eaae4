//! How far is an erasure: asked for, decided, unreachable in every store, its bytes rewritten? The
//! answer is the certificate, from the log alone.

use std::collections::BTreeMap;

use anamnesis_domain::ids::{ErasureId, OwnerKey};
use anamnesis_domain::input::{Position, Topic};
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
    /// What the keyring and each store has done, by name.
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

/// The certificate of an erasure of `owner`, or of any owner; `None` when no such command was accepted.
///
/// # Errors
/// When the log or the keyring cannot be read.
pub async fn certificate(
    log: &dyn EventLog,
    codec: &Codec,
    id: ErasureId,
    owner: Option<OwnerKey>,
) -> Result<Option<Certificate>, StageError> {
    let partitions = match owner {
        Some(owner) => {
            let partition = partition_of(owner, log.partitions());
            partition..partition + 1
        }
        None => 0..log.partitions(),
    };
    for partition in partitions {
        let found = in_partition(log, codec, id, partition).await?;
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
    let mut receipts = places();
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
    Ok(Some(Certificate {
        erasure_id: id,
        owner,
        status: progress(decision.as_ref(), &receipts),
        command: position,
        accepted_at,
        decision,
        keys_destroyed,
        receipts,
    }))
}

fn places() -> BTreeMap<String, Receipt> {
    let stores = Store::ALL.map(Store::as_str);
    stores
        .into_iter()
        .chain(["keyring"])
        .map(|place| (place.to_owned(), Receipt::default()))
        .collect()
}

fn progress(decision: Option<&Decision>, receipts: &BTreeMap<String, Receipt>) -> Progress {
    let Some(decision) = decision else {
        return Progress::Accepted;
    };
    if decision.outcome != Outcome::Stored {
        return Progress::Refused;
    }
    let is_effective = receipts.values().all(|r| r.effective_at.is_some());
    // The keyring overwrites a key when it destroys it; there is nothing left to rewrite.
    let is_physical = receipts
        .iter()
        .all(|(place, r)| r.physical_at.is_some() || place == "keyring");
    match (is_effective, is_physical) {
        (false, _) => Progress::Decided,
        (true, false) => Progress::Effective,
        (true, true) => Progress::Complete,
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

    #[test]
    fn an_erasure_is_as_far_as_its_slowest_store() {
        let at = Some(Timestamp::default());
        let mut receipts = places();
        let stored = decided(Outcome::Stored);
        let refused = decided(Outcome::NoOp);
        assert_eq!(progress(None, &receipts), Progress::Accepted);
        assert_eq!(progress(Some(&refused), &receipts), Progress::Refused);
        assert_eq!(progress(Some(&stored), &receipts), Progress::Decided);
        for place in ["keyring", "records", "text", "vectors"] {
            receipts.get_mut(place).unwrap().effective_at = at;
        }
        assert_eq!(progress(Some(&stored), &receipts), Progress::Decided);
        receipts.get_mut("graph").unwrap().effective_at = at;
        assert_eq!(progress(Some(&stored), &receipts), Progress::Effective);
        for place in ["records", "text", "vectors", "graph"] {
            receipts.get_mut(place).unwrap().physical_at = at;
        }
        assert_eq!(progress(Some(&stored), &receipts), Progress::Complete);
    }
}
