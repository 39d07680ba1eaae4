//! Does each store hold exactly what the fold says? Names every row that differs.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use anamnesis_domain::ids::{MemoryId, OwnerKey};
use anamnesis_domain::input::Topic;
use anamnesis_domain::owner::OwnerScope;
use anamnesis_domain::skeleton::Verdict;
use anamnesis_domain::time::Known;
use anamnesis_pipeline::codec::{Codec, Opened};
use anamnesis_pipeline::consumer::{BATCH_BYTES_MAX, StageError};
use anamnesis_pipeline::digests::expected_rows;
use anamnesis_pipeline::embedder::ModelIdentity;
use anamnesis_pipeline::fold::{self, Folded};
use anamnesis_pipeline::history::History;
use anamnesis_pipeline::log::{EventLog, partition_of};
use anamnesis_pipeline::stores::{Projection, RowDigest, Store};
use serde::Serialize;

use crate::replay::read_partition;

/// One row that differs.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Drift {
    pub store: Store,
    pub owner: OwnerKey,
    pub row: String,
    /// `missing` in the store, `unexpected` there, or `changed`.
    pub what: &'static str,
}

/// What was compared.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Diff {
    pub owners: usize,
    pub rows: BTreeMap<String, usize>,
    pub drift: Vec<Drift>,
    /// Stores that have not applied the whole log, with how many records they are behind.
    pub behind: BTreeMap<String, u64>,
}

impl Diff {
    pub fn is_clean(&self) -> bool {
        self.drift.is_empty() && self.behind.is_empty()
    }
}

/// Compares every row of every store with the fold.
///
/// # Errors
/// When the log, the keyring or a store cannot be read.
pub async fn diff(
    log: &dyn EventLog,
    codec: &Codec,
    stores: &[Arc<dyn Projection>],
    model: &ModelIdentity,
) -> Result<Diff, StageError> {
    let mut found = Diff::default();
    let mut known: BTreeSet<OwnerKey> = BTreeSet::new();
    for partition in 0..log.partitions() {
        let end = log.end(Topic::Memories, partition).await?;
        for store in stores {
            let next = store
                .checkpoint(partition)
                .await?
                .map_or(0, |checkpoint| checkpoint.next);
            if next < end {
                *found.behind.entry(store.store().to_string()).or_insert(0) += end - next;
            }
        }
        let vectors = recorded_vectors(log, codec, partition, model).await?;
        let mut histories: BTreeMap<OwnerKey, History> = BTreeMap::new();
        read_partition(log, codec, partition, Known::Latest, &mut |step| {
            if let (Folded::Decision(owner, Verdict::Apply), Some(decided)) =
                (&step.folded, step.decided)
            {
                let history = histories
                    .entry(*owner)
                    .or_insert_with(|| History::new(*owner));
                history.apply(&decided.decided, fold::recorded(decided));
            }
        })
        .await?;
        for (owner, history) in histories {
            known.insert(owner);
            found.owners += 1;
            let rows = history.rows(|id| vectors.get(&id).cloned());
            for store in stores {
                let expected = expected_rows(store.store(), &rows);
                let held = store.rows(OwnerScope::of_log_record(owner)).await?;
                *found.rows.entry(store.store().to_string()).or_insert(0) += held.len();
                compare(store.store(), owner, &expected, &held, &mut found.drift);
            }
        }
    }
    for store in stores {
        for owner in store.owners().await? {
            let is_foreign = !known.contains(&owner)
                || partition_of(owner, log.partitions()) >= log.partitions();
            if is_foreign {
                let held = store.rows(OwnerScope::of_log_record(owner)).await?;
                compare(store.store(), owner, &[], &held, &mut found.drift);
            }
        }
    }
    Ok(found)
}

pub(crate) fn compare(
    store: Store,
    owner: OwnerKey,
    expected: &[RowDigest],
    held: &[RowDigest],
    drift: &mut Vec<Drift>,
) {
    let mut left: BTreeMap<&str, &RowDigest> =
        held.iter().map(|row| (row.key.as_str(), row)).collect();
    // A key that the store holds twice is not in the fold either.
    if left.len() != held.len() {
        drift.push(Drift {
            store,
            owner,
            row: "(repeated key)".to_owned(),
            what: "unexpected",
        });
    }
    let mut push = |row: &str, what| {
        drift.push(Drift {
            store,
            owner,
            row: row.to_owned(),
            what,
        })
    };
    for row in expected {
        match left.remove(row.key.as_str()) {
            None => push(&row.key, "missing"),
            Some(held) if held.hash != row.hash => push(&row.key, "changed"),
            Some(_) => (),
        }
    }
    for key in left.into_keys() {
        push(key, "unexpected");
    }
}

/// Vectors that the log holds for this model; the first of a memory wins.
pub async fn recorded_vectors(
    log: &dyn EventLog,
    codec: &Codec,
    partition: u32,
    model: &ModelIdentity,
) -> Result<BTreeMap<MemoryId, Arc<[f32]>>, StageError> {
    let mut vectors: BTreeMap<MemoryId, Arc<[f32]>> = BTreeMap::new();
    let mut from = log.start(Topic::Embeddings, partition).await?;
    loop {
        let records = log
            .read(Topic::Embeddings, partition, from, 1_000, BATCH_BYTES_MAX)
            .await?;
        let Some(last) = records.last() else {
            return Ok(vectors);
        };
        from = last.position.offset + 1;
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
}
