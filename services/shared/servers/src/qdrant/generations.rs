//! Which generation of the vectors answers? The one that the alias stands for.

use anamnesis_pipeline::stores::StoreError;
use async_trait::async_trait;

use super::config::QdrantConfig;
use super::server::Server;
use crate::generations::Generations;

/// The generations under one prefix.
pub struct QdrantGenerations {
    server: Server,
    config: QdrantConfig,
}

impl QdrantGenerations {
    /// # Errors
    /// [`StoreError::Unusable`] for a configuration that cannot be used.
    pub fn connect(config: &QdrantConfig) -> Result<Self, StoreError> {
        Ok(Self {
            server: Server::new(config)?,
            config: config.clone(),
        })
    }
}

#[async_trait]
impl Generations for QdrantGenerations {
    async fn list(&self) -> Result<Vec<String>, StoreError> {
        let collections = self.server.collections().await?;
        let names = collections
            .iter()
            .filter_map(|name| self.config.generation(name));
        let mut names: Vec<String> = names.map(str::to_owned).collect();
        names.sort();
        Ok(names)
    }

    async fn live(&self) -> Result<Option<String>, StoreError> {
        let collection = self.server.alias(&self.config.prefix).await?;
        let collection = collection.as_deref();
        Ok(collection
            .and_then(|name| self.config.generation(name))
            .map(str::to_owned))
    }

    async fn switch(&self, generation: &str) -> Result<(), StoreError> {
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

    async fn delete(&self, generation: &str) -> Result<(), StoreError> {
        let collection = self.config.collection(generation)?;
        if self.live().await?.as_deref() == Some(generation) {
            let what = format!("the generation {generation} of the vectors is live: switch first");
            return Err(StoreError::Unusable { what });
        }
        Ok(self.server.delete_collection(&collection).await?)
    }
}
