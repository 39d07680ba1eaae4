//! Which generation of the graph answers? A node per prefix names it:
//! `(:AnamnesisLive {prefix, generation})`.

use anamnesis_pipeline::stores::{Store, StoreError};
use async_trait::async_trait;
use neo4rs::query;
use serde::Deserialize;

use super::client::{Client, Failure, rows, unusable};
use super::settings::Neo4jConfig;
use super::{erase, schema};
use crate::generations::Generations;

/// The generations under one prefix, in one database.
pub struct Neo4jGenerations {
    client: Client,
    config: Neo4jConfig,
}

#[derive(Deserialize)]
struct Named {
    generation: String,
}

impl Neo4jGenerations {
    /// Does not connect yet.
    ///
    /// # Errors
    /// [`StoreError::Unusable`] for a configuration that cannot be used.
    pub fn new(config: &Neo4jConfig) -> Result<Self, StoreError> {
        Ok(Self {
            client: Client::new(config)?,
            config: config.clone(),
        })
    }

    async fn names(&self, statement: &str) -> Result<Vec<String>, StoreError> {
        let prefix = self.config.prefix.as_str();
        let found = self.client.call(self.config.deadline, || async {
            let asked = query(statement)
                .param("prefix", prefix)
                .param("start", self.config.name_of(""));
            self.client.ask(asked).await
        });
        let found = found.await?;
        let mut names = Vec::with_capacity(found.len());
        for row in found {
            let row: Named = row.to().map_err(|_| StoreError::Damaged {
                store: Store::Graph,
                reason: "neo4j: a generation has no name".to_owned(),
            })?;
            names.extend(
                self.config
                    .generation_of(&row.generation)
                    .map(str::to_owned),
            );
        }
        Ok(names)
    }

    async fn try_switch(&self, name: &str) -> Result<bool, Failure> {
        let mut transaction = self.client.begin().await?;
        let statement = "
            MATCH (g:AnamnesisGeneration {generation: $generation})
            MERGE (live:AnamnesisLive {prefix: $prefix})
            SET live.generation = g.generation
            RETURN live.generation AS generation";
        let asked = query(statement)
            .param("generation", name)
            .param("prefix", self.config.prefix.as_str());
        let switched = rows(&mut transaction, asked).await?;
        transaction.commit().await?;
        Ok(!switched.is_empty())
    }
}

#[async_trait]
impl Generations for Neo4jGenerations {
    async fn list(&self) -> Result<Vec<String>, StoreError> {
        let statement = "
            MATCH (g:AnamnesisGeneration) WHERE g.generation STARTS WITH $start
            RETURN g.generation AS generation ORDER BY generation";
        self.names(statement).await
    }

    async fn live(&self) -> Result<Option<String>, StoreError> {
        let statement = "
            MATCH (live:AnamnesisLive {prefix: $prefix}) RETURN live.generation AS generation";
        Ok(self.names(statement).await?.pop())
    }

    async fn switch(&self, generation: &str) -> Result<(), StoreError> {
        // Of two that switch at once, one node must remain.
        schema::make_constraints(&self.client, &self.config).await?;
        let name = self.config.name_of(generation);
        let deadline = self.config.write_deadline;
        let switched = self.client.call(deadline, || self.try_switch(&name));
        if switched.await? {
            return Ok(());
        }
        Err(unusable(format!("there is no generation {generation}")))
    }

    async fn delete(&self, generation: &str) -> Result<(), StoreError> {
        if self.live().await?.as_deref() == Some(generation) {
            return Err(unusable(format!(
                "the generation {generation} is live: switch first"
            )));
        }
        erase::delete_generation(&self.client, &self.config.of_generation(generation)).await
    }
}
