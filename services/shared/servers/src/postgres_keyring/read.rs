//! What does the database know of keys and owners?

use std::collections::HashMap;

use anamnesis_domain::ids::{KeyId, OwnerKey};
use anamnesis_pipeline::keyring::wrapping::Key;
use anamnesis_pipeline::keyring::{EpochState, KeyringError};
use async_trait::async_trait;
use tokio_postgres::Row;

use super::cache::Known;
use super::call::{Call, bytes_of, chain_row, column, epoch};
use super::failed::Failed;
use super::opener::{Opened, Opener};
use super::pool::Session;

/// Reads and opens keys.
pub(super) struct Get<'a> {
    pub(super) ids: &'a [KeyId],
    pub(super) wrapping: &'a Key,
}

pub(super) struct Got {
    /// In the order asked.
    pub(super) states: Vec<Opened>,
    /// These keys and those above them.
    pub(super) opened: HashMap<KeyId, Known>,
}

#[async_trait]
impl Call for Get<'_> {
    type Answer = Got;

    async fn attempt(&self, session: &Session) -> Result<Got, Failed> {
        let chain = &session.statements.chain;
        let rows = session
            .client
            .query(chain, &[&bytes_of(self.ids)])
            .await
            .map_err(Failed::first)?;
        let mut opener = opener(&rows, self.wrapping)?;
        let mut states = Vec::with_capacity(self.ids.len());
        for id in self.ids {
            states.push(opener.open(*id)?);
        }
        Ok(Got {
            states,
            opened: opener.into_opened(),
        })
    }
}

/// Over the rows of the statement `chain`.
pub(super) fn opener<'a>(rows: &[Row], wrapping: &'a Key) -> Result<Opener<'a>, KeyringError> {
    let mut opener = Opener::new(wrapping);
    for row in rows {
        let (row, above) = chain_row(row)?;
        if let Some(wrapped) = above {
            opener.add_epoch(row.owner, row.epoch, wrapped);
        }
        opener.add_row(row);
    }
    Ok(opener)
}

pub(super) struct Epoch(pub(super) OwnerKey);

#[async_trait]
impl Call for Epoch {
    type Answer = EpochState;

    async fn attempt(&self, session: &Session) -> Result<EpochState, Failed> {
        let statement = &session.statements.epoch;
        let row = session
            .client
            .query_opt(statement, &[&&self.0.bytes()[..]])
            .await
            .map_err(Failed::first)?;
        Ok(match row {
            None => EpochState::default(),
            Some(row) => epoch_state(epoch(&row, 0)?, column(&row, 1)?),
        })
    }
}

pub(super) fn epoch_state(epoch: u32, is_open: bool) -> EpochState {
    if is_open {
        EpochState {
            open: Some(epoch),
            closed_through: epoch - 1,
        }
    } else {
        EpochState {
            open: None,
            closed_through: epoch,
        }
    }
}
