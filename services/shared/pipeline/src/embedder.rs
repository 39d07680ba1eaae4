//! Text to vector, by a model whose identity belongs to every vector it made.

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

/// Which model made a vector. Vectors of different identities are never compared.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct ModelIdentity {
    /// Name and content hash of what is really loaded, not a label from a configuration.
    pub id: String,
    pub dimension: u32,
}

impl fmt::Display for ModelIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({} dimensions)", self.id, self.dimension)
    }
}

/// A question and a passage may need different prefixes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Purpose {
    Query,
    Passage,
}

#[derive(Debug, thiserror::Error, Clone)]
pub enum EmbedError {
    #[error("the embedding model is unavailable: {reason}")]
    Unavailable { reason: String },
    #[error("the embedding model cannot be used: {reason}")]
    Unusable { reason: String },
}

/// Contract: one unit-length vector of `identity().dimension` per text, in order; the same text gives
/// the same vector whatever else is in the call; an empty text gives a zero vector.
#[async_trait]
pub trait Embedder: Send + Sync {
    fn identity(&self) -> &ModelIdentity;

    /// Whether the vectors mean something: the hash embedding says no, and every answer repeats it.
    fn is_semantic(&self) -> bool;

    async fn embed(&self, texts: &[&str], purpose: Purpose) -> Result<Vec<Vec<f32>>, EmbedError>;
}

pub type Embed = Arc<dyn Embedder>;
