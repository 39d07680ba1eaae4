//! The service `Points`: writing, asking, listing.

use std::sync::Arc;
use std::time::Instant;

use ::qdrant_client::qdrant::points_server::Points;
use ::qdrant_client::qdrant::{self as proto, *};
use qdrant_edge::{
    CountRequest, EdgeShard, FacetRequest, FieldIndexOperations, JsonPath, NamedQuery,
    OperationResult, PayloadFieldSchema, PayloadOps, PointInsertOperations, PointOperations,
    QueryEnum, QueryRequest, ScoringQuery, ScrollRequest, SearchParams as EngineSearchParams,
    SetPayloadOp, UpdateMode, UpdateOperation,
};
use tonic::{Request, Response, Status};

use crate::convert;
use crate::engine::Engine;
use crate::refuse::{absent, empty, invalid, unmodelled};

pub(crate) struct Service(pub(crate) Arc<Engine>);

type Answer<T> = Result<Response<T>, Status>;

/// The server answers a write that is not waited for before it is applied, and hides its failure.
fn waited(wait: Option<bool>) -> Result<(), Status> {
    match wait {
        Some(true) => Ok(()),
        Some(false) | None => Err(unmodelled("a write with wait = false")),
    }
}

fn path(key: &str) -> Result<JsonPath, Status> {
    key.parse()
        .map_err(|()| invalid("a field's name is no path"))
}

fn completed() -> UpdateResult {
    UpdateResult {
        operation_id: Some(0),
        status: UpdateStatus::Completed.into(),
    }
}

fn operated(since: Instant) -> Answer<PointsOperationResponse> {
    Ok(Response::new(PointsOperationResponse {
        result: Some(completed()),
        time: since.elapsed().as_secs_f64(),
        usage: None,
    }))
}

impl Service {
    /// In order; the first that fails ends it, as on the server.
    async fn update(
        &self,
        collection: String,
        operations: Vec<UpdateOperation>,
    ) -> Result<(), Status> {
        let change = |shard: &EdgeShard| -> OperationResult<()> {
            operations
                .into_iter()
                .try_for_each(|operation| shard.update(operation))
        };
        self.0.write(collection, change).await
    }
}

fn upsert(
    points: Vec<PointStruct>,
    update_filter: Option<proto::Filter>,
    update_mode: Option<i32>,
) -> Result<UpdateOperation, Status> {
    let points: Result<Vec<_>, Status> = points.into_iter().map(convert::point).collect();
    let points = PointInsertOperations::PointsList(points?);
    let mode = match update_mode.map(proto::UpdateMode::try_from) {
        None => None,
        Some(Ok(proto::UpdateMode::Upsert)) => Some(UpdateMode::Upsert),
        Some(Ok(proto::UpdateMode::InsertOnly)) => Some(UpdateMode::InsertOnly),
        Some(Ok(proto::UpdateMode::UpdateOnly)) => Some(UpdateMode::UpdateOnly),
        Some(Err(_)) => return Err(invalid("an unknown update_mode")),
    };
    let filter = convert::filter(update_filter)?;
    let operation = match (filter, mode) {
        (None, None) => PointOperations::UpsertPoints(points),
        (filter, update_mode) => {
            PointOperations::UpsertPointsConditional(qdrant_edge::ConditionalInsertOperation {
                points_op: points,
                condition: filter.unwrap_or_default(),
                update_mode,
            })
        }
    };
    Ok(UpdateOperation::PointOperation(operation))
}

fn set_payload(
    payload: std::collections::HashMap<String, Value>,
    selector: Option<PointsSelector>,
    key: Option<String>,
) -> Result<UpdateOperation, Status> {
    use points_selector::PointsSelectorOneOf;
    absent("set_payload.key", key)?;
    let selector = selector.and_then(|selector| selector.points_selector_one_of);
    let (points, filter) = match selector.ok_or_else(|| invalid("no points are selected"))? {
        PointsSelectorOneOf::Points(PointsIdsList { ids }) => {
            let ids: Result<Vec<_>, Status> = ids
                .into_iter()
                .map(|id| convert::point_id(Some(id)))
                .collect();
            (Some(ids?), None)
        }
        PointsSelectorOneOf::Filter(filter) => (None, convert::filter(Some(filter))?),
    };
    Ok(UpdateOperation::PayloadOperation(PayloadOps::SetPayload(
        SetPayloadOp {
            payload: convert::payload(payload),
            points,
            filter,
            key: None,
        },
    )))
}

fn batched(operation: PointsUpdateOperation) -> Result<UpdateOperation, Status> {
    use points_update_operation::{Operation, PointStructList, SetPayload};
    match operation
        .operation
        .ok_or_else(|| invalid("an empty operation"))?
    {
        Operation::Upsert(list) => {
            let PointStructList {
                points,
                shard_key_selector,
                update_filter,
                update_mode,
            } = list;
            absent("upsert.shard_key_selector", shard_key_selector)?;
            upsert(points, update_filter, update_mode)
        }
        Operation::SetPayload(set) => {
            let SetPayload {
                payload,
                points_selector,
                shard_key_selector,
                key,
            } = set;
            absent("set_payload.shard_key_selector", shard_key_selector)?;
            set_payload(payload, points_selector, key)
        }
        _ => Err(unmodelled("an operation of update_batch")),
    }
}

fn retrieved(record: qdrant_edge::Record) -> Result<RetrievedPoint, Status> {
    Ok(RetrievedPoint {
        id: Some(convert::to_point_id(record.id)),
        payload: convert::to_payload(record.payload),
        vectors: convert::to_vectors(record.vector)?,
        shard_key: None,
        order_value: None,
    })
}

#[tonic::async_trait]
impl Points for Service {
    async fn upsert(&self, request: Request<UpsertPoints>) -> Answer<PointsOperationResponse> {
        let since = Instant::now();
        let UpsertPoints {
            collection_name,
            wait,
            points,
            // One node has one order.
            ordering: _,
            shard_key_selector,
            update_filter,
            timeout,
            update_mode,
        } = request.into_inner();
        waited(wait)?;
        absent("upsert.shard_key_selector", shard_key_selector)?;
        absent("upsert.timeout", timeout)?;
        let operation = upsert(points, update_filter, update_mode)?;
        self.update(collection_name, vec![operation]).await?;
        operated(since)
    }

    async fn set_payload(
        &self,
        request: Request<SetPayloadPoints>,
    ) -> Answer<PointsOperationResponse> {
        let since = Instant::now();
        let SetPayloadPoints {
            collection_name,
            wait,
            payload,
            points_selector,
            ordering: _,
            shard_key_selector,
            key,
            timeout,
        } = request.into_inner();
        waited(wait)?;
        absent("set_payload.shard_key_selector", shard_key_selector)?;
        absent("set_payload.timeout", timeout)?;
        let operation = set_payload(payload, points_selector, key)?;
        self.update(collection_name, vec![operation]).await?;
        operated(since)
    }

    async fn update_batch(
        &self,
        request: Request<UpdateBatchPoints>,
    ) -> Answer<UpdateBatchResponse> {
        let since = Instant::now();
        let UpdateBatchPoints {
            collection_name,
            wait,
            operations,
            ordering: _,
            timeout,
        } = request.into_inner();
        waited(wait)?;
        absent("update_batch.timeout", timeout)?;
        let operations: Result<Vec<_>, Status> = operations.into_iter().map(batched).collect();
        let operations = operations?;
        let count = operations.len();
        self.update(collection_name, operations).await?;
        Ok(Response::new(UpdateBatchResponse {
            result: vec![completed(); count],
            time: since.elapsed().as_secs_f64(),
            usage: None,
        }))
    }

    async fn delete(&self, request: Request<DeletePoints>) -> Answer<PointsOperationResponse> {
        use points_selector::PointsSelectorOneOf;
        let since = Instant::now();
        let DeletePoints {
            collection_name,
            wait,
            points,
            ordering: _,
            shard_key_selector,
            timeout,
        } = request.into_inner();
        waited(wait)?;
        absent("delete.shard_key_selector", shard_key_selector)?;
        absent("delete.timeout", timeout)?;
        let selector = points.and_then(|selector| selector.points_selector_one_of);
        let operation = match selector.ok_or_else(|| invalid("no points are selected"))? {
            PointsSelectorOneOf::Points(PointsIdsList { ids }) => {
                let ids: Result<Vec<_>, Status> = ids
                    .into_iter()
                    .map(|id| convert::point_id(Some(id)))
                    .collect();
                PointOperations::DeletePoints { ids: ids? }
            }
            PointsSelectorOneOf::Filter(filter) => PointOperations::DeletePointsByFilter(
                convert::filter(Some(filter))?.unwrap_or_default(),
            ),
        };
        self.update(
            collection_name,
            vec![UpdateOperation::PointOperation(operation)],
        )
        .await?;
        operated(since)
    }

    async fn create_field_index(
        &self,
        request: Request<CreateFieldIndexCollection>,
    ) -> Answer<PointsOperationResponse> {
        let since = Instant::now();
        let CreateFieldIndexCollection {
            collection_name,
            wait,
            field_name,
            field_type,
            field_index_params,
            ordering: _,
            timeout,
        } = request.into_inner();
        waited(wait)?;
        absent("create_field_index.timeout", timeout)?;
        let schema = convert::index_json(field_type, field_index_params)?;
        let schema: PayloadFieldSchema = serde_json::from_value(schema)
            .map_err(|_| invalid("index parameters that the engine does not read"))?;
        let operation = FieldIndexOperations::CreateIndex(qdrant_edge::CreateIndex {
            field_name: path(&field_name)?,
            field_schema: Some(schema),
        });
        self.update(
            collection_name,
            vec![UpdateOperation::FieldIndexOperation(operation)],
        )
        .await?;
        operated(since)
    }

    async fn delete_field_index(
        &self,
        request: Request<DeleteFieldIndexCollection>,
    ) -> Answer<PointsOperationResponse> {
        let since = Instant::now();
        let DeleteFieldIndexCollection {
            collection_name,
            wait,
            field_name,
            ordering: _,
            timeout,
        } = request.into_inner();
        waited(wait)?;
        absent("delete_field_index.timeout", timeout)?;
        let operation = FieldIndexOperations::DeleteIndex(path(&field_name)?);
        self.update(
            collection_name,
            vec![UpdateOperation::FieldIndexOperation(operation)],
        )
        .await?;
        operated(since)
    }

    async fn get(&self, request: Request<GetPoints>) -> Answer<GetResponse> {
        let since = Instant::now();
        let GetPoints {
            collection_name,
            ids,
            with_payload,
            with_vectors,
            // One copy agrees with itself.
            read_consistency: _,
            shard_key_selector,
            timeout,
        } = request.into_inner();
        absent("get.shard_key_selector", shard_key_selector)?;
        absent("get.timeout", timeout)?;
        let ids: Result<Vec<_>, Status> = ids
            .into_iter()
            .map(|id| convert::point_id(Some(id)))
            .collect();
        let ids = ids?;
        let with_payload = convert::with_payload(with_payload)?;
        let with_vectors = convert::with_vectors(with_vectors)?;
        let records = self
            .0
            .read(collection_name, move |shard| {
                shard.retrieve(&ids, Some(with_payload), Some(with_vectors))
            })
            .await?;
        let result: Result<Vec<_>, Status> = records.into_iter().map(retrieved).collect();
        Ok(Response::new(GetResponse {
            result: result?,
            time: since.elapsed().as_secs_f64(),
            usage: None,
        }))
    }

    async fn scroll(&self, request: Request<ScrollPoints>) -> Answer<ScrollResponse> {
        let since = Instant::now();
        let ScrollPoints {
            collection_name,
            filter,
            offset,
            limit,
            with_payload,
            with_vectors,
            read_consistency: _,
            shard_key_selector,
            order_by,
            timeout,
        } = request.into_inner();
        absent("scroll.shard_key_selector", shard_key_selector)?;
        absent("scroll.order_by", order_by)?;
        absent("scroll.timeout", timeout)?;
        let request = ScrollRequest {
            offset: offset.map(|id| convert::point_id(Some(id))).transpose()?,
            limit: limit.map(|limit| limit as usize),
            filter: convert::filter(filter)?,
            with_payload: Some(convert::with_payload(with_payload)?),
            with_vector: convert::with_vectors(with_vectors)?,
            order_by: None,
        };
        let (records, next) = self
            .0
            .read(collection_name, move |shard| shard.scroll(request))
            .await?;
        let result: Result<Vec<_>, Status> = records.into_iter().map(retrieved).collect();
        Ok(Response::new(ScrollResponse {
            next_page_offset: next.map(convert::to_point_id),
            result: result?,
            time: since.elapsed().as_secs_f64(),
            usage: None,
        }))
    }

    async fn count(&self, request: Request<CountPoints>) -> Answer<CountResponse> {
        let since = Instant::now();
        let CountPoints {
            collection_name,
            filter,
            exact,
            read_consistency: _,
            shard_key_selector,
            timeout,
        } = request.into_inner();
        absent("count.shard_key_selector", shard_key_selector)?;
        absent("count.timeout", timeout)?;
        let request = CountRequest {
            filter: convert::filter(filter)?,
            exact: exact.unwrap_or(true),
        };
        let count = self
            .0
            .read(collection_name, move |shard| shard.count(request))
            .await?;
        Ok(Response::new(CountResponse {
            result: Some(CountResult {
                count: count as u64,
            }),
            time: since.elapsed().as_secs_f64(),
            usage: None,
        }))
    }

    async fn facet(&self, request: Request<FacetCounts>) -> Answer<FacetResponse> {
        let since = Instant::now();
        let FacetCounts {
            collection_name,
            key,
            filter,
            limit,
            exact,
            timeout,
            read_consistency: _,
            shard_key_selector,
        } = request.into_inner();
        absent("facet.shard_key_selector", shard_key_selector)?;
        absent("facet.timeout", timeout)?;
        let limit = limit
            .map_or(Ok(10), usize::try_from)
            .map_err(|_| invalid("facet.limit"))?;
        let request = FacetRequest {
            key: path(&key)?,
            limit,
            filter: convert::filter(filter)?,
            exact: exact.unwrap_or(false),
        };
        let response = self
            .0
            .read(collection_name, move |shard| shard.facet(request))
            .await?;
        let mut hits = Vec::new();
        for hit in response.hits {
            let qdrant_edge::FacetValue::Keyword(value) = hit.value else {
                return Err(unmodelled("facet of a field that is no keyword"));
            };
            hits.push(FacetHit {
                value: Some(FacetValue {
                    variant: Some(facet_value::Variant::StringValue(value)),
                }),
                count: hit.count as u64,
            });
        }
        Ok(Response::new(FacetResponse {
            hits,
            time: since.elapsed().as_secs_f64(),
            usage: None,
        }))
    }

    async fn query(&self, request: Request<QueryPoints>) -> Answer<QueryResponse> {
        let since = Instant::now();
        let QueryPoints {
            collection_name,
            prefetch,
            query,
            using,
            filter,
            params,
            score_threshold,
            limit,
            offset,
            with_vectors,
            with_payload,
            read_consistency: _,
            shard_key_selector,
            lookup_from,
            timeout,
        } = request.into_inner();
        empty("query.prefetch", prefetch.len())?;
        absent("query.using", using)?;
        absent("query.score_threshold", score_threshold)?;
        absent("query.offset", offset)?;
        absent("query.shard_key_selector", shard_key_selector)?;
        absent("query.lookup_from", lookup_from)?;
        absent("query.timeout", timeout)?;
        let vector = convert::nearest(query)?;
        let limit = limit
            .map_or(Ok(10), usize::try_from)
            .map_err(|_| invalid("query.limit"))?;
        let request = QueryRequest {
            prefetches: Vec::new(),
            query: Some(ScoringQuery::Vector(QueryEnum::Nearest(
                NamedQuery::default_dense(vector),
            ))),
            filter: convert::filter(filter)?,
            score_threshold: None,
            limit,
            offset: 0,
            params: Some(EngineSearchParams {
                exact: convert::is_exact(params)?,
                ..EngineSearchParams::default()
            }),
            with_vector: convert::with_vectors(with_vectors)?,
            with_payload: convert::with_payload(with_payload)?,
        };
        let points = self
            .0
            .read(collection_name, move |shard| shard.query(request))
            .await?;
        let mut result = Vec::new();
        for point in points {
            result.push(ScoredPoint {
                id: Some(convert::to_point_id(point.id)),
                payload: convert::to_payload(point.payload),
                score: point.score,
                version: point.version,
                vectors: convert::to_vectors(point.vector)?,
                shard_key: None,
                order_value: None,
            });
        }
        Ok(Response::new(QueryResponse {
            result,
            time: since.elapsed().as_secs_f64(),
            usage: None,
        }))
    }

    async fn update_vectors(
        &self,
        _: Request<UpdatePointVectors>,
    ) -> Answer<PointsOperationResponse> {
        Err(unmodelled("update_vectors"))
    }

    async fn delete_vectors(
        &self,
        _: Request<DeletePointVectors>,
    ) -> Answer<PointsOperationResponse> {
        Err(unmodelled("delete_vectors"))
    }

    async fn overwrite_payload(
        &self,
        _: Request<SetPayloadPoints>,
    ) -> Answer<PointsOperationResponse> {
        Err(unmodelled("overwrite_payload"))
    }

    async fn delete_payload(
        &self,
        _: Request<DeletePayloadPoints>,
    ) -> Answer<PointsOperationResponse> {
        Err(unmodelled("delete_payload"))
    }

    async fn clear_payload(
        &self,
        _: Request<ClearPayloadPoints>,
    ) -> Answer<PointsOperationResponse> {
        Err(unmodelled("clear_payload"))
    }

    async fn create_vector_name(
        &self,
        _: Request<CreateVectorNameRequest>,
    ) -> Answer<PointsOperationResponse> {
        Err(unmodelled("create_vector_name"))
    }

    async fn delete_vector_name(
        &self,
        _: Request<DeleteVectorNameRequest>,
    ) -> Answer<PointsOperationResponse> {
        Err(unmodelled("delete_vector_name"))
    }

    async fn search(&self, _: Request<SearchPoints>) -> Answer<SearchResponse> {
        Err(unmodelled("search"))
    }

    async fn search_batch(&self, _: Request<SearchBatchPoints>) -> Answer<SearchBatchResponse> {
        Err(unmodelled("search_batch"))
    }

    async fn search_groups(&self, _: Request<SearchPointGroups>) -> Answer<SearchGroupsResponse> {
        Err(unmodelled("search_groups"))
    }

    async fn recommend(&self, _: Request<RecommendPoints>) -> Answer<RecommendResponse> {
        Err(unmodelled("recommend"))
    }

    async fn recommend_batch(
        &self,
        _: Request<RecommendBatchPoints>,
    ) -> Answer<RecommendBatchResponse> {
        Err(unmodelled("recommend_batch"))
    }

    async fn recommend_groups(
        &self,
        _: Request<RecommendPointGroups>,
    ) -> Answer<RecommendGroupsResponse> {
        Err(unmodelled("recommend_groups"))
    }

    async fn discover(&self, _: Request<DiscoverPoints>) -> Answer<DiscoverResponse> {
        Err(unmodelled("discover"))
    }

    async fn discover_batch(
        &self,
        _: Request<DiscoverBatchPoints>,
    ) -> Answer<DiscoverBatchResponse> {
        Err(unmodelled("discover_batch"))
    }

    async fn query_batch(&self, _: Request<QueryBatchPoints>) -> Answer<QueryBatchResponse> {
        Err(unmodelled("query_batch"))
    }

    async fn query_groups(&self, _: Request<QueryPointGroups>) -> Answer<QueryGroupsResponse> {
        Err(unmodelled("query_groups"))
    }

    async fn search_matrix_pairs(
        &self,
        _: Request<SearchMatrixPoints>,
    ) -> Answer<SearchMatrixPairsResponse> {
        Err(unmodelled("search_matrix_pairs"))
    }

    async fn search_matrix_offsets(
        &self,
        _: Request<SearchMatrixPoints>,
    ) -> Answer<SearchMatrixOffsetsResponse> {
        Err(unmodelled("search_matrix_offsets"))
    }
}
