//! The ports over servers: Kafka, Qdrant, Neo4j, PostgreSQL, and the shards of our own indexer.

pub mod kafka;
pub mod neo4j;
pub mod postgres_keyring;
pub mod qdrant;
pub mod shard;
