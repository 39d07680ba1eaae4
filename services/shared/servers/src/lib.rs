//! The ports over servers: Kafka, Qdrant, Neo4j, PostgreSQL.

pub mod kafka;
pub mod neo4j;
pub mod postgres_keyring;
pub mod qdrant;
