//! The ports over servers: Kafka, Qdrant, Neo4j, PostgreSQL.

pub mod postgres_keyring;
pub mod neo4j;
pub mod qdrant;
pub mod kafka;
