//! One call to Qdrant: under a deadline, waited for, and its failure told without the server's words,
//! which can repeat what was sent.

use std::collections::HashMap;
use std::time::Duration;

use anamnesis_pipeline::stores::{Store, StoreError};
use qdrant_client::qdrant::{
    CollectionInfo, CountPoints, CreateCollection, CreateFieldIndexCollection, FacetCounts,
    FacetHit, Filter, GetPoints, PointId, PointStruct, PointsUpdateOperation, QueryPoints,
    ReadConsistency, ReadConsistencyType, RetrievedPoint, ScoredPoint, ScrollPoints,
    UpdateBatchPoints, UpdateCollection, UpdateResult, UpdateStatus, UpsertPoints, Value,
    WithPayloadSelector, WithVectorsSelector, WriteOrdering, WriteOrderingType, points_selector,
    points_update_operation, read_consistency, with_payload_selector, with_vectors_selector,
};
use qdrant_client::{Qdrant, QdrantError};

use super::config::QdrantConfig;

/// gRPC status codes, by number: the type belongs to a crate that only the client depends on.
mod code {
    pub(super) const INVALID_ARGUMENT: i32 = 3;
    pub(super) const NOT_FOUND: i32 = 5;
    pub(super) const ALREADY_EXISTS: i32 = 6;
    pub(super) const PERMISSION_DENIED: i32 = 7;
    pub(super) const FAILED_PRECONDITION: i32 = 9;
    pub(super) const OUT_OF_RANGE: i32 = 11;
    pub(super) const UNIMPLEMENTED: i32 = 12;
    pub(super) const UNAUTHENTICATED: i32 = 16;
}

/// What became of a call.
#[derive(Debug)]
pub(super) enum Failure {
    /// The collection, or the alias, is not there.
    NotFound,
    Other(StoreError),
}

impl From<Failure> for StoreError {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::NotFound => damaged("the collection is missing"),
            Failure::Other(error) => error,
        }
    }
}

pub(super) fn damaged(reason: impl Into<String>) -> StoreError {
    StoreError::Damaged {
        store: Store::Vectors,
        reason: reason.into(),
    }
}

pub(super) fn unavailable(reason: impl Into<String>) -> StoreError {
    StoreError::Unavailable {
        store: Store::Vectors,
        reason: reason.into(),
    }
}

pub(super) struct Server {
    client: Qdrant,
    read_deadline: Duration,
    write_deadline: Duration,
}

/// One page of a listing.
pub(super) struct Listed {
    pub(super) points: Vec<RetrievedPoint>,
    pub(super) next: Option<PointId>,
}

impl Server {
    pub(super) fn new(config: &QdrantConfig) -> Result<Self, StoreError> {
        Ok(Self {
            client: config.client()?,
            read_deadline: config.read_deadline,
            write_deadline: config.write_deadline,
        })
    }

    pub(super) async fn version(&self) -> Result<String, Failure> {
        let reply = self.read(self.client.health_check()).await?;
        Ok(reply.version)
    }

    pub(super) async fn info(&self, collection: &str) -> Result<CollectionInfo, Failure> {
        let reply = self.read(self.client.collection_info(collection)).await?;
        let missing = || Failure::Other(unavailable("qdrant sent an empty answer"));
        reply.result.ok_or_else(missing)
    }

    pub(super) async fn exists(&self, collection: &str) -> Result<bool, Failure> {
        self.read(self.client.collection_exists(collection)).await
    }

    pub(super) async fn create(&self, request: CreateCollection) -> Result<(), Failure> {
        let reply = self.write(self.client.create_collection(request)).await?;
        accepted(reply.result)
    }

    pub(super) async fn create_index(
        &self,
        request: CreateFieldIndexCollection,
    ) -> Result<(), Failure> {
        let reply = self.write(self.client.create_field_index(request)).await?;
        completed(reply.result.as_ref())
    }

    pub(super) async fn configure(&self, request: UpdateCollection) -> Result<(), Failure> {
        let reply = self.write(self.client.update_collection(request)).await?;
        accepted(reply.result)
    }

    pub(super) async fn delete_collection(&self, collection: &str) -> Result<(), Failure> {
        let reply = self
            .write(self.client.delete_collection(collection))
            .await?;
        accepted(reply.result)
    }

    pub(super) async fn collections(&self) -> Result<Vec<String>, Failure> {
        let reply = self.read(self.client.list_collections()).await?;
        Ok(reply.collections.into_iter().map(|one| one.name).collect())
    }

    /// The collection that an alias stands for.
    pub(super) async fn alias(&self, alias: &str) -> Result<Option<String>, Failure> {
        let reply = self.read(self.client.list_aliases()).await?;
        let mut aliases = reply.aliases.into_iter();
        let found = aliases.find(|one| one.alias_name == alias);
        Ok(found.map(|one| one.collection_name))
    }

    /// Lets an alias stand for a collection, whatever it stood for before: one step on the server.
    pub(super) async fn set_alias(&self, alias: &str, collection: &str) -> Result<(), Failure> {
        let request = qdrant_client::qdrant::CreateAlias {
            collection_name: collection.to_owned(),
            alias_name: alias.to_owned(),
        };
        let reply = self.write(self.client.create_alias(request)).await?;
        accepted(reply.result)
    }

    pub(super) async fn get(
        &self,
        collection: &str,
        ids: Vec<PointId>,
    ) -> Result<Vec<RetrievedPoint>, Failure> {
        let request = GetPoints {
            collection_name: collection.to_owned(),
            ids,
            with_payload: Some(with_payload()),
            read_consistency: Some(consistency()),
            ..GetPoints::default()
        };
        let reply = self.read(self.client.get_points(request)).await?;
        Ok(reply.result)
    }

    pub(super) async fn list(
        &self,
        collection: &str,
        filter: Filter,
        offset: Option<PointId>,
        page: u32,
        is_with_vectors: bool,
    ) -> Result<Listed, Failure> {
        let request = ScrollPoints {
            collection_name: collection.to_owned(),
            filter: Some(filter),
            offset,
            limit: Some(page),
            with_payload: Some(with_payload()),
            with_vectors: is_with_vectors.then(with_vectors),
            read_consistency: Some(consistency()),
            ..ScrollPoints::default()
        };
        let reply = self.read(self.client.scroll(request)).await?;
        Ok(Listed {
            points: reply.result,
            next: reply.next_page_offset,
        })
    }

    /// Nearly how many points match: an index knows without looking at them.
    pub(super) async fn estimate(&self, collection: &str, filter: Filter) -> Result<u64, Failure> {
        let request = CountPoints {
            collection_name: collection.to_owned(),
            filter: Some(filter),
            exact: Some(false),
            read_consistency: Some(consistency()),
            ..CountPoints::default()
        };
        let reply = self.read(self.client.count(request)).await?;
        Ok(reply.result.map_or(0, |result| result.count))
    }

    pub(super) async fn facet(
        &self,
        collection: &str,
        key: &str,
        filter: Filter,
        limit: u64,
    ) -> Result<Vec<FacetHit>, Failure> {
        let request = FacetCounts {
            collection_name: collection.to_owned(),
            key: key.to_owned(),
            filter: Some(filter),
            limit: Some(limit),
            exact: Some(true),
            read_consistency: Some(consistency()),
            ..FacetCounts::default()
        };
        let reply = self.read(self.client.facet(request)).await?;
        Ok(reply.hits)
    }

    /// The best points under the filter, with their vectors.
    pub(super) async fn nearest(
        &self,
        collection: &str,
        filter: Filter,
        query: &[f32],
        limit: u64,
        is_exact: bool,
    ) -> Result<Vec<ScoredPoint>, Failure> {
        let request = QueryPoints {
            collection_name: collection.to_owned(),
            query: Some(qdrant_client::qdrant::Query::new_nearest(query.to_vec())),
            filter: Some(filter),
            params: Some(qdrant_client::qdrant::SearchParams {
                exact: Some(is_exact),
                ..qdrant_client::qdrant::SearchParams::default()
            }),
            limit: Some(limit),
            with_payload: Some(with_payload()),
            with_vectors: Some(with_vectors()),
            read_consistency: Some(consistency()),
            ..QueryPoints::default()
        };
        let reply = self.read(self.client.query(request)).await?;
        Ok(reply.result)
    }

    /// Writes points; those that are there already are replaced only when they match `replaces`.
    pub(super) async fn upsert(
        &self,
        collection: &str,
        points: Vec<PointStruct>,
        replaces: Filter,
    ) -> Result<(), Failure> {
        let request = UpsertPoints {
            collection_name: collection.to_owned(),
            wait: Some(true),
            points,
            ordering: Some(ordering()),
            update_filter: Some(replaces),
            ..UpsertPoints::default()
        };
        let reply = self.write(self.client.upsert_points(request)).await?;
        completed(reply.result.as_ref())
    }

    /// Sets fields of all points that match: what does not match when it is applied is left alone.
    pub(super) async fn set_payloads(
        &self,
        collection: &str,
        changes: Vec<(HashMap<String, Value>, Filter)>,
    ) -> Result<(), Failure> {
        let operation = |(payload, filter): (HashMap<String, Value>, Filter)| {
            let selector = points_selector::PointsSelectorOneOf::Filter(filter);
            let set = points_update_operation::SetPayload {
                payload,
                points_selector: Some(qdrant_client::qdrant::PointsSelector {
                    points_selector_one_of: Some(selector),
                }),
                ..points_update_operation::SetPayload::default()
            };
            PointsUpdateOperation {
                operation: Some(points_update_operation::Operation::SetPayload(set)),
            }
        };
        let count = changes.len();
        let request = UpdateBatchPoints {
            collection_name: collection.to_owned(),
            wait: Some(true),
            operations: changes.into_iter().map(operation).collect(),
            ordering: Some(ordering()),
            ..UpdateBatchPoints::default()
        };
        let reply = self.write(self.client.update_points_batch(request)).await?;
        if reply.result.len() != count {
            return Err(Failure::Other(unavailable(
                "qdrant did not answer for every write",
            )));
        }
        reply.result.iter().try_for_each(|one| completed(Some(one)))
    }

    async fn read<T>(
        &self,
        call: impl Future<Output = Result<T, QdrantError>>,
    ) -> Result<T, Failure> {
        within(self.read_deadline, call).await
    }

    async fn write<T>(
        &self,
        call: impl Future<Output = Result<T, QdrantError>>,
    ) -> Result<T, Failure> {
        within(self.write_deadline, call).await
    }
}

/// On a majority of the copies; where there is one copy this costs nothing.
fn consistency() -> ReadConsistency {
    ReadConsistency {
        value: Some(read_consistency::Value::Type(
            ReadConsistencyType::Majority.into(),
        )),
    }
}

/// Through the leader, in one order for all copies: the conditions of two writes must not see each
/// other differently.
fn ordering() -> WriteOrdering {
    WriteOrdering {
        r#type: WriteOrderingType::Strong.into(),
    }
}

fn with_payload() -> WithPayloadSelector {
    WithPayloadSelector {
        selector_options: Some(with_payload_selector::SelectorOptions::Enable(true)),
    }
}

fn with_vectors() -> WithVectorsSelector {
    WithVectorsSelector {
        selector_options: Some(with_vectors_selector::SelectorOptions::Enable(true)),
    }
}

async fn within<T>(
    deadline: Duration,
    call: impl Future<Output = Result<T, QdrantError>>,
) -> Result<T, Failure> {
    match tokio::time::timeout(deadline, call).await {
        Ok(Ok(reply)) => Ok(reply),
        Ok(Err(error)) => Err(explain(&error)),
        Err(_) => Err(Failure::Other(unavailable(format!(
            "qdrant did not answer within {deadline:?}"
        )))),
    }
}

/// What a failure means to the caller. The server's message is dropped: it can repeat a payload.
fn explain(error: &QdrantError) -> Failure {
    let status = match error {
        QdrantError::ResponseError { status }
        | QdrantError::ResourceExhaustedError { status, .. } => status,
        QdrantError::Io(_) => return Failure::Other(unavailable("qdrant cannot be reached")),
        QdrantError::ConversionError(_)
        | QdrantError::InvalidUri(_)
        | QdrantError::NoSnapshotFound(_)
        | QdrantError::JsonToPayload(_)
        | QdrantError::PayloadDeserialization(_) => {
            return Failure::Other(unusable(
                "a request to qdrant could not be written".to_owned(),
            ));
        }
    };
    let number = status.code() as i32;
    match number {
        code::NOT_FOUND => Failure::NotFound,
        code::PERMISSION_DENIED | code::UNAUTHENTICATED => {
            Failure::Other(unusable("qdrant refuses the API key".to_owned()))
        }
        code::UNIMPLEMENTED => Failure::Other(unusable(
            "qdrant does not know a request: it is older than this program needs".to_owned(),
        )),
        code::INVALID_ARGUMENT
        | code::ALREADY_EXISTS
        | code::FAILED_PRECONDITION
        | code::OUT_OF_RANGE => Failure::Other(unusable(format!(
            "qdrant refuses a request (gRPC code {number})"
        ))),
        // Down, slow, full, stopping, in the middle of an election: what a second attempt can mend.
        _ => Failure::Other(unavailable(format!("qdrant failed (gRPC code {number})"))),
    }
}

fn unusable(what: String) -> StoreError {
    StoreError::Unusable { what }
}

fn accepted(is_done: bool) -> Result<(), Failure> {
    if is_done {
        Ok(())
    } else {
        Err(Failure::Other(unavailable(
            "qdrant did not do what was asked",
        )))
    }
}

/// Waited for and applied. "Acknowledged" is not enough: it hides errors and is not visible yet.
fn completed(result: Option<&UpdateResult>) -> Result<(), Failure> {
    let is_completed =
        result.is_some_and(|result| result.status == i32::from(UpdateStatus::Completed));
    if is_completed {
        Ok(())
    } else {
        Err(Failure::Other(unavailable(
            "qdrant took a write and has not applied it yet",
        )))
    }
}
