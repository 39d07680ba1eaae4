//! The doubles pass what every backend passes.

use std::path::Path;
use std::sync::Arc;

use crate::conformance::stores::{Backend, Probe};
use crate::stores::StoreError;

struct Place<S: ?Sized>(Arc<S>);

impl<S: Probe + ?Sized> Backend for Place<S> {
    type Store = S;

    async fn open(&self) -> Result<Arc<S>, StoreError> {
        Ok(self.0.clone())
    }

    fn dir(&self) -> Option<&Path> {
        None
    }
}

mod memory_records {
    use super::*;
    use crate::stores::Records;

    fn fresh() -> Place<dyn Records> {
        Place(<dyn Records>::reference())
    }

    crate::projection_cases!(fresh);
    crate::records_cases!(fresh);
}

mod memory_text {
    use super::*;
    use crate::stores::TextIndex;

    fn fresh() -> Place<dyn TextIndex> {
        Place(<dyn TextIndex>::reference())
    }

    crate::projection_cases!(fresh);
    crate::text_cases!(fresh);
}

mod memory_vectors {
    use super::*;
    use crate::stores::VectorIndex;

    fn fresh() -> Place<dyn VectorIndex> {
        Place(<dyn VectorIndex>::reference())
    }

    crate::projection_cases!(fresh);
    crate::vectors_cases!(fresh);
}

mod memory_graph {
    use super::*;
    use crate::stores::GraphIndex;

    fn fresh() -> Place<dyn GraphIndex> {
        Place(<dyn GraphIndex>::reference())
    }

    crate::projection_cases!(fresh);
    crate::graph_cases!(fresh);
}
