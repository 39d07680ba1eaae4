//! Who has a connection at the moment? One that is given back has no transaction open; one that is
//! dropped, in the middle of a call that ran out of time, is closed.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anamnesis_pipeline::keyring::KeyringError;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_postgres::Client;

use super::connect::Connector;
use super::failed::{to_keyring_error, unusable};
use super::schema;
use super::statements::Statements;

/// A connection with its prepared statements.
pub(super) struct Session {
    pub(super) client: Client,
    pub(super) statements: Statements,
}

pub(super) struct Pool {
    connector: Arc<Connector>,
    /// The keyring that every connection must lead to.
    wrapped_site: Vec<u8>,
    idle: Mutex<Vec<Session>>,
    permits: Arc<Semaphore>,
}

pub(super) struct Taken {
    pub(super) session: Session,
    permit: OwnedSemaphorePermit,
}

impl Pool {
    pub(super) fn new(
        connector: Arc<Connector>,
        wrapped_site: Vec<u8>,
        connections_max: usize,
    ) -> Self {
        Self {
            connector,
            wrapped_site,
            idle: Mutex::new(Vec::new()),
            permits: Arc::new(Semaphore::new(connections_max)),
        }
    }

    /// Waits for its turn, so the caller needs a deadline.
    pub(super) async fn take(&self) -> Result<Taken, KeyringError> {
        let permit = self.permits.clone().acquire_owned().await;
        let permit = permit.map_err(|_| unusable("the keyring is closed"))?;
        let idle = {
            let mut idle = self.idle();
            idle.retain(|session| !session.client.is_closed());
            idle.pop()
        };
        let session = match idle {
            Some(session) => session,
            None => self.connect().await?,
        };
        Ok(Taken { session, permit })
    }

    pub(super) fn give_back(&self, taken: Taken) {
        self.idle().push(taken.session);
        drop(taken.permit);
    }

    /// One connection was lost, so the others were probably as well.
    pub(super) fn drop_idle(&self) {
        self.idle().clear();
    }

    fn idle(&self) -> MutexGuard<'_, Vec<Session>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn connect(&self) -> Result<Session, KeyringError> {
        let (client, _driver) = self.connector.connect(|_| ()).await?;
        // After a failover or a restore the same address can lead to another keyring.
        if schema::wrapped_site(&client).await? != self.wrapped_site {
            return Err(unusable(
                "the server holds another keyring than when this process started: restart it when \
                 that is intended",
            ));
        }
        let statements = Statements::prepare(&client).await;
        Ok(Session {
            client,
            statements: statements.map_err(|error| to_keyring_error(&error))?,
        })
    }
}
