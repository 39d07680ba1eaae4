//! Which generation answers? A generation is built beside the live one, compared, and then the alias is
//! set in one step; the old one is kept for a way back, until an erasure or a person ends that.

use anamnesis_pipeline::stores::StoreError;

use super::config::QdrantConfig;
use super::server::Server;

/// The generations under one prefix.
pub struct Generations {
    server: Server,
    config: QdrantConfig,
}

impl Generations {
    /// # Errors
    /// [`StoreError::Unusable`] for a configuration that cannot be used.
    pub fn connect(config: &QdrantConfig) -> Result<Self, StoreError> {
        Ok(Self {
            server: Server::new(config)?,
            config: config.clone(),
        })
    }

    /// All that exist, ascending.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`] and what else a call can end with; so for all below.
    pub async fn list(&self) -> Result<Vec<String>, StoreError> {
        let collections = self.server.collections().await?;
        let names = collections
            .iter()
            .filter_map(|name| self.config.generation(name));
        let mut names: Vec<String> = names.map(str::to_owned).collect();
        names.sort();
        Ok(names)
    }

    /// The one that recall asks.
    ///
    /// # Errors
    /// As [`Generations::list`].
    pub async fn live(&self) -> Result<Option<String>, StoreError> {
        let collection = self.server.alias(&self.config.prefix).await?;
        let collection = collection.as_deref();
        Ok(collection
            .and_then(|name| self.config.generation(name))
            .map(str::to_owned))
    }

    /// Makes this generation the live one, at once for every reader.
    ///
    /// # Errors
    /// [`StoreError::Unusable`] for one that does not exist.
    pub async fn switch(&self, generation: &str) -> Result<(), StoreError> {
        let collection = self.config.collection(generation)?;
        if !self.server.exists(&collection).await? {
            let what = format!("there is no generation {generation} of the vectors in qdrant");
            return Err(StoreError::Unusable { what });
        }
        Ok(self
            .server
            .set_alias(&self.config.prefix, &collection)
            .await?)
    }

    /// Deletes a generation and its files.
    ///
    /// # Errors
    /// [`StoreError::Unusable`] for the live one.
    pub async fn delete(&self, generation: &str) -> Result<(), StoreError> {
        let collection = self.config.collection(generation)?;
        if self.live().await?.as_deref() == Some(generation) {
            let what = format!("the generation {generation} of the vectors is live: switch first");
            return Err(StoreError::Unusable { what });
        }
        Ok(self.server.delete_collection(&collection).await?)
    }
}
