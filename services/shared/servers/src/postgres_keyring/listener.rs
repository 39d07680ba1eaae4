//! How does this process learn that another one destroyed keys? The destroying transaction announces
//! it, and a connection of its own waits here for announcements.

use std::sync::Arc;
use std::time::Duration;

use anamnesis_pipeline::keyring::KeyringError;
use tokio::task::JoinHandle;
use tokio_postgres::Client;

use super::cache::Cache;
use super::connect::{Connector, Driver};
use super::failed::{late, to_keyring_error};

/// Between two tries to listen again. In the meantime every key is read from the database.
const RETRY: Duration = Duration::from_secs(1);

const HEARTBEAT_MIN: Duration = Duration::from_secs(1);

pub(super) struct Listener {
    connector: Arc<Connector>,
    cache: Arc<Cache>,
    deadline: Duration,
    /// A connection that seems fine can be dead. How often it is tried.
    heartbeat: Duration,
}

impl Listener {
    pub(super) fn new(
        connector: Arc<Connector>,
        cache: Arc<Cache>,
        deadline: Duration,
        lease: Duration,
    ) -> Self {
        Self {
            connector,
            cache,
            deadline,
            heartbeat: (lease / 2).max(HEARTBEAT_MIN),
        }
    }

    /// Listens until the handle is aborted.
    pub(super) async fn start(self) -> Result<JoinHandle<()>, KeyringError> {
        let first = self.listen().await?;
        Ok(tokio::spawn(self.watch(first)))
    }

    async fn watch(self, first: (Client, Driver)) {
        let (mut client, mut driver) = first;
        loop {
            self.until_lost(&client, &mut driver).await;
            self.cache.go_deaf();
            driver.abort();
            tracing::warn!(
                "the keyring's announcements are lost: keys are read from the server each time"
            );
            (client, driver) = loop {
                match self.listen().await {
                    Ok(again) => break again,
                    Err(_) => tokio::time::sleep(RETRY).await,
                }
            };
            tracing::info!("the keyring's announcements arrive again");
        }
    }

    async fn until_lost(&self, client: &Client, driver: &mut Driver) {
        loop {
            tokio::select! {
                _ = &mut *driver => return,
                () = tokio::time::sleep(self.heartbeat) => (),
            }
            let alive = tokio::time::timeout(self.deadline, client.check_connection()).await;
            if !matches!(alive, Ok(Ok(()))) {
                return;
            }
        }
    }

    async fn listen(&self) -> Result<(Client, Driver), KeyringError> {
        let cache = self.cache.clone();
        let notice = move |owner: &str| match owner.parse() {
            Ok(owner) => cache.forget(owner),
            // Somebody else's announcement: to forget more than needed harms nobody.
            Err(_) => cache.forget_all(),
        };
        let (client, driver) = self.connector.connect(notice).await?;
        let listen = format!("LISTEN \"{}\"", self.connector.schema);
        let listening = tokio::time::timeout(self.deadline, client.batch_execute(&listen)).await;
        listening
            .map_err(|_| late())?
            .map_err(|error| to_keyring_error(&error))?;
        self.cache.hear();
        Ok((client, driver))
    }
}
