//! The ports over servers: Kafka, Qdrant, Neo4j, PostgreSQL.

pub mod kafka;
