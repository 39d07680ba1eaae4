//! The ports over servers: Kafka, Qdrant, Neo4j, PostgreSQL, and the shards of our own indexer.

pub mod generations;
pub mod kafka;
pub mod live;
pub mod neo4j;
mod period;
pub mod postgres_keyring;
pub mod qdrant;
pub mod shard;
