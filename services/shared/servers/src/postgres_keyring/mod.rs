//! How do several processes share the keys, so that one of them can destroy a key for all?
//!
//! - [`config`]: what has to be said about the server
//! - [`schema`]: what stands in the database, and why a destroyed key is in no table file
//! - [`make`]: opening epochs, making keys
//! - [`read`], [`opener`]: from the master key down to a data key
//! - [`destroy`]: destroying keys
//! - [`cache`], [`listener`]: which keys are kept open in memory, and how erasures elsewhere end that
//! - [`call`], [`pool`], [`connect`], [`statements`], [`failed`]: how the server is asked

mod cache;
mod call;
mod config;
mod connect;
mod destroy;
mod failed;
mod listener;
mod make;
mod opener;
mod pool;
mod read;
mod schema;
mod statements;

use std::sync::Arc;
use std::time::Duration;

use anamnesis_domain::ids::{ErasureId, IdKey, KeyId, OwnerKey};
use anamnesis_domain::input::Target;
use anamnesis_domain::time::Timestamp;
use anamnesis_pipeline::keyring::master_key::MasterKey;
use anamnesis_pipeline::keyring::{
    DataKey, Destroyed, EpochState, KeyState, Keyring, KeyringError, NewKey,
};
use async_trait::async_trait;
use tokio::task::JoinHandle;

pub use config::{Address, AddressError, PostgresKeyringConfig};

use cache::Cache;
use call::{Call, run};
use connect::Connector;
use destroy::{Destroy, DestroyExpired, ExpiredOwners, Means};
use failed::{late, unusable};
use listener::Listener;
use make::{Create, Keep, OpenEpoch};
use opener::Opened;
use pool::Pool;
use read::{Epoch, Get};
use schema::Identity;

/// The keyring in a schema of a PostgreSQL database, for any number of processes.
pub struct PostgresKeyring {
    identity: Identity,
    pool: Pool,
    cache: Arc<Cache>,
    schema: String,
    deadline: Duration,
    destroy_deadline: Duration,
    listener: JoinHandle<()>,
}

impl PostgresKeyring {
    /// Opens the keyring in the schema, or makes one.
    ///
    /// # Errors
    /// [`KeyringError::WrongMasterKey`] and [`KeyringError::Unusable`] need an operator.
    pub async fn open(
        config: &PostgresKeyringConfig,
        master: &MasterKey,
    ) -> Result<Self, KeyringError> {
        config.check()?;
        let connector = Arc::new(Connector::new(config)?);
        let identity = within(config.destroy_deadline, async {
            let (client, _driver) = connector.connect(|_| ()).await?;
            schema::open(&client, &config.schema, master).await
        })
        .await?;
        let cache = Arc::new(Cache::new(config.cached_keys_max, config.lease));
        let listener = Listener::new(
            connector.clone(),
            cache.clone(),
            config.deadline,
            config.lease,
        );
        let listener = listener.start().await?;
        let wrapped_site = identity.wrapped_site.clone();
        Ok(Self {
            identity,
            pool: Pool::new(connector, wrapped_site, config.connections_max),
            cache,
            schema: config.schema.clone(),
            deadline: config.deadline,
            destroy_deadline: config.destroy_deadline,
            listener,
        })
    }

    /// Whether there is a keyring. A log that is in use and has none must not be given a new one: it
    /// would open nothing.
    ///
    /// # Errors
    /// When the server does not say.
    pub async fn exists(config: &PostgresKeyringConfig) -> Result<bool, KeyringError> {
        config.check()?;
        let connector = Connector::new(config)?;
        within(config.deadline, async {
            let (client, _driver) = connector.connect(|_| ()).await?;
            schema::exists(&client, &config.schema).await
        })
        .await
    }

    async fn call<C: Call>(&self, call: &C) -> Result<C::Answer, KeyringError> {
        run(&self.pool, self.deadline, call).await
    }

    fn means(&self) -> Means<'_> {
        Means {
            wrapping: &self.identity.wrapping,
            schema: &self.schema,
            deadline: self.destroy_deadline,
        }
    }
}

impl Drop for PostgresKeyring {
    fn drop(&mut self) {
        self.listener.abort();
    }
}

async fn within<T>(
    deadline: Duration,
    work: impl Future<Output = Result<T, KeyringError>>,
) -> Result<T, KeyringError> {
    tokio::time::timeout(deadline, work)
        .await
        .unwrap_or_else(|_| Err(late()))
}

#[async_trait]
impl Keyring for PostgresKeyring {
    fn id_key(&self) -> &IdKey {
        &self.identity.id_key
    }

    async fn epoch(&self, owner: OwnerKey) -> Result<EpochState, KeyringError> {
        self.call(&Epoch(owner)).await
    }

    async fn open_epoch(&self, owner: OwnerKey) -> Result<u32, KeyringError> {
        // Asked before every message. A remembered epoch that was closed a moment ago does no harm:
        // the keys of the message are then refused.
        if let Some(epoch) = self.cache.epoch(owner) {
            return Ok(epoch);
        }
        let turn = self.cache.turn();
        let wrapping = &self.identity.wrapping;
        let epoch = self.call(&OpenEpoch { owner, wrapping }).await?;
        self.cache.learn_epoch(turn, owner, epoch);
        Ok(epoch)
    }

    async fn create(&self, keys: &[NewKey]) -> Result<Vec<DataKey>, KeyringError> {
        if keys.is_empty() {
            return Ok(Vec::new());
        }
        let turn = self.cache.turn();
        let wrapping = &self.identity.wrapping;
        match self.call(&Create { keys, wrapping }).await {
            Ok(created) => {
                self.cache.learn(turn, created.opened);
                Ok(created.keys)
            }
            Err(error) => {
                if matches!(error, KeyringError::Destroyed) {
                    // The news may still be on its way here, and the caller asks for the epoch next.
                    for new in keys {
                        self.cache.forget(new.owner);
                    }
                }
                Err(error)
            }
        }
    }

    async fn get(&self, ids: &[KeyId]) -> Result<Vec<KeyState>, KeyringError> {
        let turn = self.cache.turn();
        let known = self.cache.keys(ids);
        let missing: Vec<KeyId> = ids
            .iter()
            .zip(&known)
            .filter(|(_, known)| known.is_none())
            .map(|(id, _)| *id)
            .collect();
        let mut read = Vec::new();
        if !missing.is_empty() {
            let wrapping = &self.identity.wrapping;
            let ids = &missing;
            let got = self.call(&Get { ids, wrapping }).await?;
            self.cache.learn(turn, got.opened);
            read = got.states;
        }
        let mut read = read.into_iter();
        let mut states = Vec::with_capacity(ids.len());
        for known in known {
            states.push(match known {
                Some(key) => KeyState::Open(key),
                None => match read.next() {
                    Some(Opened::Open(known)) => KeyState::Open(known.key),
                    Some(Opened::Destroyed) => KeyState::Destroyed,
                    Some(Opened::Unknown) | None => KeyState::Unknown,
                },
            });
        }
        Ok(states)
    }

    async fn destroy(
        &self,
        owner: OwnerKey,
        target: &Target,
        erasure: ErasureId,
    ) -> Result<Destroyed, KeyringError> {
        let named =
            serde_json::to_vec(&(owner, target)).map_err(|error| unusable(&error.to_string()))?;
        let destroy = Destroy {
            means: self.means(),
            owner,
            target,
            erasure,
            named: *blake3::hash(&named).as_bytes(),
        };
        let keys = run(&self.pool, self.destroy_deadline, &destroy).await;
        // Also after an error: the answer to the commit may be what was lost.
        self.cache.forget(owner);
        Ok(Destroyed { keys: keys? })
    }

    async fn destroy_expired(&self, now: Timestamp) -> Result<u64, KeyringError> {
        let mut count = 0;
        for (part, owners) in self.call(&ExpiredOwners(now)).await? {
            let destroy = DestroyExpired {
                means: self.means(),
                now,
                part,
                owners: &owners,
            };
            let keys = run(&self.pool, self.destroy_deadline, &destroy).await;
            for owner in &owners {
                self.cache.forget(*owner);
            }
            count += keys?;
        }
        Ok(count)
    }

    async fn keep(&self, ids: &[KeyId]) -> Result<(), KeyringError> {
        self.call(&Keep(ids)).await
    }
}
