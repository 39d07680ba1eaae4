//! Does each store hold of one owner what the fold says, while everything goes on? A whole
//! [`crate::diff`] wants the stores to stand still; this one looks at each store where it stands.

use std::collections::BTreeMap;
use std::sync::Arc;

use anamnesis_domain::ids::{MemoryId, OwnerKey};
use anamnesis_domain::input::Topic;
use anamnesis_domain::owner::OwnerScope;
use anamnesis_pipeline::codec::{Codec, Opened};
use anamnesis_pipeline::consumer::StageError;
use anamnesis_pipeline::digests::expected_rows;
use anamnesis_pipeline::embedder::ModelIdentity;
use anamnesis_pipeline::fold;
use anamnesis_pipeline::history::History;
use anamnesis_pipeline::log::EventLog;
use anamnesis_pipeline::stores::{Projection, RowDigest, Store, StoreError};

use crate::diff::{Drift, compare};
use crate::ledger::Ledger;

/// What was found of one owner.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Sample {
    /// Rows compared, by store; a store that is away, or has not applied the owner's last decision, is
    /// not in it.
    pub rows: BTreeMap<Store, u64>,
    pub drift: Vec<Drift>,
}

/// What a store held, and how far it had applied the log just before.
struct Held {
    store: Store,
    stood: u64,
    rows: Vec<RowDigest>,
}

/// Compares an owner's rows in each store with the owner's fold. A store that has not applied the
/// owner's last decision, or an owner who changes meanwhile, is no drift and is not compared.
///
/// # Errors
/// When the log, the keyring or a store cannot be read.
pub async fn sample(
    ledger: &mut Ledger,
    log: &dyn EventLog,
    codec: &Codec,
    stores: &[Arc<dyn Projection>],
    model: &ModelIdentity,
    owner: OwnerKey,
) -> Result<Sample, StageError> {
    let partition = ledger.partition();
    let mut held = Vec::new();
    for store in stores {
        match hold(&**store, partition, owner).await {
            Ok(one) => held.push(one),
            // A store that is away keeps nobody from looking at the others.
            Err(error) if error.is_retryable() => (),
            Err(error) => return Err(error.into()),
        }
    }
    // Everything that the stores can have applied is in the log by now.
    ledger.advance(log, codec).await?;
    let decisions = ledger.decisions(owner).to_vec();
    held.retain(|held| decisions.last().is_none_or(|last| *last < held.stood));
    if held.is_empty() {
        return Ok(Sample::default());
    }
    let mut history = History::new(owner);
    for decided in fold::decisions_at(log, codec, partition, &decisions).await? {
        history.apply(&decided.decided, fold::recorded(&decided));
    }
    let vectors = recorded(ledger, log, codec, model, owner).await?;
    let rows = history.rows(|id| vectors.get(&id).cloned());
    let mut sample = Sample::default();
    for held in &held {
        // Nothing was ever decided: then a store holds nothing either, not even the owner's view.
        let expected = if decisions.is_empty() {
            Vec::new()
        } else {
            expected_rows(held.store, &rows)
        };
        let compared = expected.len().max(held.rows.len()) as u64;
        sample.rows.insert(held.store, compared);
        compare(held.store, owner, &expected, &held.rows, &mut sample.drift);
    }
    if !sample.drift.is_empty() {
        // An erasure destroys keys before the stores follow: what was folded may be younger than the
        // rows. The decision stands in the log before any key is destroyed.
        ledger.advance(log, codec).await?;
        if ledger.decisions(owner) != decisions {
            return Ok(Sample::default());
        }
    }
    Ok(sample)
}

async fn hold(store: &dyn Projection, partition: u32, owner: OwnerKey) -> Result<Held, StoreError> {
    let checkpoint = store.checkpoint(partition).await?;
    Ok(Held {
        store: store.store(),
        stood: checkpoint.map_or(0, |checkpoint| checkpoint.next),
        rows: store.rows(OwnerScope::of_log_record(owner)).await?,
    })
}

/// The owner's vectors of this model; the first of a memory wins.
async fn recorded(
    ledger: &Ledger,
    log: &dyn EventLog,
    codec: &Codec,
    model: &ModelIdentity,
    owner: OwnerKey,
) -> Result<BTreeMap<MemoryId, Arc<[f32]>>, StageError> {
    let mut vectors: BTreeMap<MemoryId, Arc<[f32]>> = BTreeMap::new();
    for offsets in ledger.vectors(owner).chunks(1_000) {
        let records = log
            .read_at(Topic::Embeddings, ledger.partition(), offsets)
            .await?;
        for opened in codec.open(&records).await? {
            if let Ok(Opened::Embedding {
                memory_id,
                model: made_by,
                vector: Some(vector),
                ..
            }) = opened
                && made_by == *model
            {
                vectors.entry(memory_id).or_insert_with(|| vector.into());
            }
        }
    }
    Ok(vectors)
}
