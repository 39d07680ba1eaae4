//! The ports over servers: Kafka and its schema registry, Qdrant, Neo4j, PostgreSQL.

pub mod kafka;
pub mod neo4j;
pub mod postgres_keyring;
pub mod qdrant;
pub mod registry;
mod tls;
