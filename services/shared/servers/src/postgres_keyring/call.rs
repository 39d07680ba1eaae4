//! How does one call of the port run? In tries, each on a connection of its own turn, all within the
//! deadline; what is not committed when a try ends is undone before anything else happens.

use std::time::Duration;

use anamnesis_domain::ids::{KeyId, OwnerKey};
use anamnesis_pipeline::keyring::KeyringError;
use async_trait::async_trait;
use tokio_postgres::Row;
use tokio_postgres::types::FromSql;

use super::failed::{Failed, late, unusable};
use super::opener;
use super::pool::{Pool, Session};

/// A race that is lost three times in a row is left to the caller, who waits before he repeats.
const TRIES_MAX: u32 = 3;

/// Sends statements at once, in this order, and waits for all answers: one round trip. The first error
/// is that of the first statement that failed; within a transaction the later ones fail for it.
macro_rules! together {
    ($($statement:expr),+ $(,)?) => {
        futures::try_join!($(async { $statement.await }),+)
    };
}
pub(super) use together;

#[async_trait]
pub(super) trait Call: Sync {
    type Answer: Send;

    async fn attempt(&self, session: &Session) -> Result<Self::Answer, Failed>;
}

pub(super) async fn run<C: Call>(
    pool: &Pool,
    deadline: Duration,
    call: &C,
) -> Result<C::Answer, KeyringError> {
    let tries = async {
        let mut left = TRIES_MAX;
        loop {
            left -= 1;
            let taken = pool.take().await?;
            let failed = match call.attempt(&taken.session).await {
                Ok(answer) => {
                    pool.give_back(taken);
                    return Ok(answer);
                }
                Err(failed) => failed,
            };
            // Locks must not outlive the try.
            if taken.session.client.batch_execute("ROLLBACK").await.is_ok() {
                pool.give_back(taken);
            } else {
                drop(taken);
                pool.drop_idle();
            }
            match failed {
                Failed::Again(_) if left > 0 => (),
                Failed::Again(error) | Failed::Done(error) => return Err(error),
            }
        }
    };
    tokio::time::timeout(deadline, tries)
        .await
        .unwrap_or_else(|_| Err(late()))
}

pub(super) fn bytes_of(ids: &[KeyId]) -> Vec<&[u8]> {
    ids.iter().map(|id| &id.bytes()[..]).collect()
}

/// `name` of a secret.
pub(super) fn name(kind: u8, id: &[u8; 16]) -> Vec<u8> {
    let mut name = vec![kind];
    name.extend(id);
    name
}

pub(super) fn column<'a, T: FromSql<'a>>(row: &'a Row, at: usize) -> Result<T, KeyringError> {
    row.try_get(at).map_err(|_| misfit())
}

pub(super) fn sixteen(row: &Row, at: usize) -> Result<[u8; 16], KeyringError> {
    column::<&[u8]>(row, at)?.try_into().map_err(|_| misfit())
}

pub(super) fn maybe_sixteen(row: &Row, at: usize) -> Result<Option<[u8; 16]>, KeyringError> {
    let bytes = column::<Option<&[u8]>>(row, at)?;
    bytes
        .map(|bytes| bytes.try_into().map_err(|_| misfit()))
        .transpose()
}

pub(super) fn epoch(row: &Row, at: usize) -> Result<u32, KeyringError> {
    u32::try_from(column::<i64>(row, at)?).map_err(|_| misfit())
}

fn misfit() -> KeyringError {
    unusable("a row of the keyring has another form than this version writes")
}

/// A row of the statement `chain`; gives the wrapped owner's key that came with it as well.
pub(super) fn chain_row(row: &Row) -> Result<(opener::Row, Option<Vec<u8>>), KeyringError> {
    let stored = opener::Row {
        id: KeyId::from_bytes(sixteen(row, 0)?),
        owner: OwnerKey::from_bytes(sixteen(row, 1)?),
        epoch: epoch(row, 2)?,
        wrapped_by: maybe_sixteen(row, 3)?.map(KeyId::from_bytes),
        is_destroyed: column(row, 4)?,
        wrapped: column(row, 5)?,
    };
    Ok((stored, column(row, 6)?))
}
