//! Whether a batch may be applied: what every projection checks before it changes anything.

use anamnesis_domain::ids::{LogId, OwnerKey};

use crate::embedder::ModelIdentity;
use crate::log::partition_of;
use crate::stores::{Change, Checkpoint, Store, StoreError};

/// The log that a store follows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Feed {
    pub log_id: LogId,
    /// Partition count of `memories`.
    pub partitions: u32,
}

/// A batch, by what is checked of it.
pub struct Batch<'a> {
    pub partition: u32,
    pub from: u64,
    pub changes: &'a [Change],
    pub next: Checkpoint,
}

impl Feed {
    pub fn partition_of(self, owner: OwnerKey) -> u32 {
        partition_of(owner, self.partitions)
    }

    /// Whether `batch` may follow `stored`, the position that the store has kept (0 for none).
    ///
    /// # Errors
    /// [`StoreError::OtherLog`], [`StoreError::Moved`], or [`StoreError::Unusable`] for a batch that
    /// goes backwards or holds an owner of another partition.
    pub fn check(self, store: Store, stored: u64, batch: &Batch<'_>) -> Result<(), StoreError> {
        let Batch {
            partition,
            from,
            changes,
            next,
        } = *batch;
        if next.log_id != self.log_id {
            return Err(StoreError::OtherLog {
                store,
                expected: next.log_id,
                found: self.log_id,
            });
        }
        if from != stored {
            return Err(StoreError::Moved {
                store,
                partition,
                expected: from,
                found: stored,
            });
        }
        if next.next < from {
            let what = format!(
                "{store} partition {partition}: a batch from {from} ends at {}",
                next.next
            );
            return Err(StoreError::Unusable { what });
        }
        if changes
            .iter()
            .any(|change| self.partition_of(change.owner()) != partition)
        {
            let what =
                format!("{store} partition {partition}: the batch holds an owner of another one");
            return Err(StoreError::Unusable { what });
        }
        Ok(())
    }
}

impl Change {
    pub fn owner(&self) -> OwnerKey {
        match self {
            Self::Version { version, vector: _ } => version.owner,
            Self::Decision(row) => row.owner,
            Self::Owner(view) => view.key,
            Self::Rewrite(rows) => rows.owner,
        }
    }
}

/// Whether the batch's vectors could have been made by `model`.
///
/// # Errors
/// [`StoreError::Unusable`] for a vector of another length.
pub fn check_dimension(changes: &[Change], model: &ModelIdentity) -> Result<(), StoreError> {
    let has_other = changes.iter().any(|change| match change {
        Change::Version { version: _, vector } => vector
            .as_ref()
            .is_some_and(|vector| !has_dimension(vector, model)),
        Change::Rewrite(rows) => {
            let mut vectors = rows
                .versions
                .iter()
                .filter_map(|(_, vector)| vector.as_ref());
            vectors.any(|vector| !has_dimension(vector, model))
        }
        Change::Decision(_) | Change::Owner(_) => false,
    });
    if has_other {
        Err(other_dimension(model))
    } else {
        Ok(())
    }
}

/// # Errors
/// [`StoreError::Unusable`] for a query of another length.
pub fn check_query(query: &[f32], model: &ModelIdentity) -> Result<(), StoreError> {
    if has_dimension(query, model) {
        Ok(())
    } else {
        Err(other_dimension(model))
    }
}

fn has_dimension(vector: &[f32], model: &ModelIdentity) -> bool {
    vector.len() == model.dimension as usize
}

fn other_dimension(model: &ModelIdentity) -> StoreError {
    StoreError::Unusable {
        what: format!("a vector was not made by {model}: its length differs"),
    }
}
