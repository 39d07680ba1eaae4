//! The ports over servers: Kafka and its schema registry, Qdrant, Neo4j, PostgreSQL, a language model, and
//! the shards of our own indexers.

pub mod chat;
pub mod embeddings;
pub mod generations;
pub mod kafka;
pub mod live;
pub mod neo4j;
mod period;
pub mod postgres_keyring;
pub mod qdrant;
pub mod registry;
pub mod shard;
mod tls;
