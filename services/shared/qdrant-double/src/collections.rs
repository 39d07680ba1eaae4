//! The service `Collections`: what exists, how it is made, and what stands for what.

use std::sync::Arc;
use std::time::Instant;

use qdrant_client::qdrant::collections_server::Collections;
use qdrant_client::qdrant::{
    self as proto, AliasDescription, ChangeAliases, CollectionClusterInfoRequest,
    CollectionClusterInfoResponse, CollectionConfig, CollectionDescription, CollectionExists,
    CollectionExistsRequest, CollectionExistsResponse, CollectionInfo, CollectionOperationResponse,
    CollectionParams, CollectionStatus, CreateCollection, CreateShardKeyRequest,
    CreateShardKeyResponse, DeleteCollection, DeleteShardKeyRequest, DeleteShardKeyResponse,
    GetCollectionInfoRequest, GetCollectionInfoResponse, HnswConfigDiff, ListAliasesRequest,
    ListAliasesResponse, ListCollectionAliasesRequest, ListCollectionsRequest,
    ListCollectionsResponse, ListShardKeysRequest, ListShardKeysResponse, OptimizerStatus,
    OptimizersConfigDiff, PayloadSchemaInfo, UpdateCollection, UpdateCollectionClusterSetupRequest,
    UpdateCollectionClusterSetupResponse, VectorParams, VectorsConfig, alias_operations,
    vectors_config,
};
use qdrant_edge::{
    Distance, EdgeConfig, EdgeOptimizersConfig, EdgeShard, EdgeVectorParams, HnswIndexConfig,
    PayloadSchemaType,
};
use serde_json::json;
use tonic::{Request, Response, Status};

use crate::engine::{AliasChange, Engine};
use crate::refuse::{absent, empty, invalid, only, unmodelled};

pub(crate) struct Service(pub(crate) Arc<Engine>);

type Answer<T> = Result<Response<T>, Status>;

/// The name of the vector that has none.
const UNNAMED: &str = "";

fn done(result: bool, since: Instant) -> Answer<CollectionOperationResponse> {
    let time = since.elapsed().as_secs_f64();
    Ok(Response::new(CollectionOperationResponse { result, time }))
}

#[tonic::async_trait]
impl Collections for Service {
    async fn get(
        &self,
        request: Request<GetCollectionInfoRequest>,
    ) -> Answer<GetCollectionInfoResponse> {
        let since = Instant::now();
        let name = request.into_inner().collection_name;
        let info = self.0.read(name, |shard| Ok(info(shard))).await?;
        Ok(Response::new(GetCollectionInfoResponse {
            result: Some(info),
            time: since.elapsed().as_secs_f64(),
        }))
    }

    async fn list(&self, _: Request<ListCollectionsRequest>) -> Answer<ListCollectionsResponse> {
        let names = self.0.collections().into_iter();
        Ok(Response::new(ListCollectionsResponse {
            collections: names.map(|name| CollectionDescription { name }).collect(),
            time: 0.0,
        }))
    }

    async fn create(
        &self,
        request: Request<CreateCollection>,
    ) -> Answer<CollectionOperationResponse> {
        let since = Instant::now();
        let (name, config) = creation(request.into_inner())?;
        self.0
            .work(move |engine| engine.create(&name, config))
            .await?;
        done(true, since)
    }

    /// Also runs the optimiser: a server would do so in the background.
    async fn update(
        &self,
        request: Request<UpdateCollection>,
    ) -> Answer<CollectionOperationResponse> {
        let since = Instant::now();
        let UpdateCollection {
            collection_name,
            optimizers_config,
            timeout,
            params,
            hnsw_config,
            vectors_config,
            quantization_config,
            sparse_vectors_config,
            strict_mode_config,
            metadata,
        } = request.into_inner();
        absent("update.timeout", timeout)?;
        absent("update.params", params)?;
        absent("update.hnsw_config", hnsw_config)?;
        absent("update.vectors_config", vectors_config)?;
        absent("update.quantization_config", quantization_config)?;
        absent("update.sparse_vectors_config", sparse_vectors_config)?;
        absent("update.strict_mode_config", strict_mode_config)?;
        empty("update.metadata", metadata.len())?;
        let diff = optimizers_config.unwrap_or_default();
        // What it refuses must be known before anything changes.
        optimizers(diff, EdgeOptimizersConfig::default())?;
        self.0
            .write(collection_name, move |shard| {
                let before = shard.config().optimizers.clone();
                if let Ok(after) = optimizers(diff, before) {
                    shard.set_optimizers_config(after)?;
                }
                shard.optimize()
            })
            .await?;
        done(true, since)
    }

    async fn delete(
        &self,
        request: Request<DeleteCollection>,
    ) -> Answer<CollectionOperationResponse> {
        let since = Instant::now();
        let DeleteCollection {
            collection_name,
            timeout,
        } = request.into_inner();
        absent("delete.timeout", timeout)?;
        let was_there = self
            .0
            .work(move |engine| engine.delete(&collection_name))
            .await?;
        done(was_there, since)
    }

    async fn update_aliases(
        &self,
        request: Request<ChangeAliases>,
    ) -> Answer<CollectionOperationResponse> {
        use alias_operations::Action;
        let since = Instant::now();
        let ChangeAliases { actions, timeout } = request.into_inner();
        absent("update_aliases.timeout", timeout)?;
        let mut changes = Vec::new();
        for operation in actions {
            changes.push(
                match operation.action.ok_or_else(|| invalid("an empty action"))? {
                    Action::CreateAlias(create) => AliasChange::Set {
                        alias: create.alias_name,
                        collection: create.collection_name,
                    },
                    Action::DeleteAlias(delete) => AliasChange::Delete {
                        alias: delete.alias_name,
                    },
                    Action::RenameAlias(_) => {
                        return Err(unmodelled("update_aliases.rename_alias"));
                    }
                },
            );
        }
        self.0
            .work(move |engine| engine.change_aliases(changes))
            .await?;
        done(true, since)
    }

    async fn list_collection_aliases(
        &self,
        request: Request<ListCollectionAliasesRequest>,
    ) -> Answer<ListAliasesResponse> {
        let name = request.into_inner().collection_name;
        let aliases = self.0.aliases().into_iter();
        Ok(listed(
            aliases.filter(|(_, collection)| *collection == name),
        ))
    }

    async fn list_aliases(&self, _: Request<ListAliasesRequest>) -> Answer<ListAliasesResponse> {
        Ok(listed(self.0.aliases().into_iter()))
    }

    async fn collection_exists(
        &self,
        request: Request<CollectionExistsRequest>,
    ) -> Answer<CollectionExistsResponse> {
        let exists = self.0.exists(&request.into_inner().collection_name);
        Ok(Response::new(CollectionExistsResponse {
            result: Some(CollectionExists { exists }),
            time: 0.0,
        }))
    }

    async fn collection_cluster_info(
        &self,
        _: Request<CollectionClusterInfoRequest>,
    ) -> Answer<CollectionClusterInfoResponse> {
        Err(unmodelled("collection_cluster_info"))
    }

    async fn update_collection_cluster_setup(
        &self,
        _: Request<UpdateCollectionClusterSetupRequest>,
    ) -> Answer<UpdateCollectionClusterSetupResponse> {
        Err(unmodelled("update_collection_cluster_setup"))
    }

    async fn create_shard_key(
        &self,
        _: Request<CreateShardKeyRequest>,
    ) -> Answer<CreateShardKeyResponse> {
        Err(unmodelled("create_shard_key"))
    }

    async fn delete_shard_key(
        &self,
        _: Request<DeleteShardKeyRequest>,
    ) -> Answer<DeleteShardKeyResponse> {
        Err(unmodelled("delete_shard_key"))
    }

    async fn list_shard_keys(
        &self,
        _: Request<ListShardKeysRequest>,
    ) -> Answer<ListShardKeysResponse> {
        Err(unmodelled("list_shard_keys"))
    }
}

fn listed(aliases: impl Iterator<Item = (String, String)>) -> Response<ListAliasesResponse> {
    let aliases = aliases.map(|(alias_name, collection_name)| AliasDescription {
        alias_name,
        collection_name,
    });
    Response::new(ListAliasesResponse {
        aliases: aliases.collect(),
        time: 0.0,
    })
}

#[allow(deprecated)]
fn creation(request: CreateCollection) -> Result<(String, EdgeConfig), Status> {
    let CreateCollection {
        collection_name,
        hnsw_config,
        wal_config,
        optimizers_config,
        shard_number,
        on_disk_payload,
        timeout,
        vectors_config,
        replication_factor,
        write_consistency_factor,
        quantization_config,
        sharding_method,
        sparse_vectors_config,
        strict_mode_config,
        metadata,
        payload,
        id_tracker,
    } = request;
    absent("create.wal_config", wal_config)?;
    only("create.shard_number", shard_number, 1)?;
    absent("create.on_disk_payload", on_disk_payload)?;
    absent("create.timeout", timeout)?;
    only("create.replication_factor", replication_factor, 1)?;
    only(
        "create.write_consistency_factor",
        write_consistency_factor,
        1,
    )?;
    absent("create.quantization_config", quantization_config)?;
    absent("create.sharding_method", sharding_method)?;
    absent("create.sparse_vectors_config", sparse_vectors_config)?;
    absent("create.strict_mode_config", strict_mode_config)?;
    empty("create.metadata", metadata.len())?;
    absent("create.payload", payload)?;
    absent("create.id_tracker", id_tracker)?;

    let Some(vectors_config::Config::Params(params)) = vectors_config.and_then(|one| one.config)
    else {
        return Err(unmodelled(
            "create.vectors_config that is not one unnamed vector",
        ));
    };
    let VectorParams {
        size,
        distance,
        hnsw_config: own_hnsw,
        quantization_config,
        on_disk,
        datatype,
        multivector_config,
        memory,
    } = params;
    absent("vectors_config.hnsw_config", own_hnsw)?;
    absent("vectors_config.quantization_config", quantization_config)?;
    absent("vectors_config.on_disk", on_disk)?;
    absent("vectors_config.datatype", datatype)?;
    absent("vectors_config.multivector_config", multivector_config)?;
    absent("vectors_config.memory", memory)?;
    let distance = match proto::Distance::try_from(distance) {
        Ok(proto::Distance::Dot) => Distance::Dot,
        Ok(proto::Distance::Cosine) => Distance::Cosine,
        Ok(_) => return Err(unmodelled("vectors_config.distance")),
        Err(_) => return Err(invalid("an unknown distance")),
    };
    let size = usize::try_from(size).map_err(|_| invalid("the vectors are too long"))?;
    let vectors = EdgeVectorParams::builder(size, distance).build();
    let config = EdgeConfig::builder()
        .vector(UNNAMED, vectors)
        .hnsw_config(hnsw(hnsw_config.unwrap_or_default())?)
        .optimizers(optimizers(
            optimizers_config.unwrap_or_default(),
            EdgeOptimizersConfig::default(),
        )?)
        .build();
    Ok((collection_name, config))
}

#[allow(deprecated)]
fn hnsw(diff: HnswConfigDiff) -> Result<HnswIndexConfig, Status> {
    let HnswConfigDiff {
        m,
        ef_construct,
        full_scan_threshold,
        max_indexing_threads,
        on_disk,
        payload_m,
        inline_storage,
        memory,
    } = diff;
    absent("hnsw_config.max_indexing_threads", max_indexing_threads)?;
    absent("hnsw_config.on_disk", on_disk)?;
    absent("hnsw_config.inline_storage", inline_storage)?;
    absent("hnsw_config.memory", memory)?;
    // The server's defaults.
    let config = json!({
        "m": m.unwrap_or(16),
        "ef_construct": ef_construct.unwrap_or(100),
        "full_scan_threshold": full_scan_threshold.unwrap_or(10_000),
        "payload_m": payload_m,
    });
    serde_json::from_value(config)
        .map_err(|_| invalid("an hnsw_config that the engine does not read"))
}

fn optimizers(
    diff: OptimizersConfigDiff,
    before: EdgeOptimizersConfig,
) -> Result<EdgeOptimizersConfig, Status> {
    let OptimizersConfigDiff {
        deleted_threshold,
        vacuum_min_vector_number,
        default_segment_number,
        max_segment_size,
        memmap_threshold,
        indexing_threshold,
        flush_interval_sec,
        deprecated_max_optimization_threads,
        max_optimization_threads,
        prevent_unoptimized,
    } = diff;
    absent("optimizers_config.max_segment_size", max_segment_size)?;
    absent("optimizers_config.memmap_threshold", memmap_threshold)?;
    absent("optimizers_config.flush_interval_sec", flush_interval_sec)?;
    absent(
        "optimizers_config.deprecated_max_optimization_threads",
        deprecated_max_optimization_threads,
    )?;
    absent(
        "optimizers_config.max_optimization_threads",
        max_optimization_threads,
    )?;
    absent("optimizers_config.prevent_unoptimized", prevent_unoptimized)?;
    if deleted_threshold.is_some_and(|share| !(0.0..=1.0).contains(&share)) {
        return Err(invalid("deleted_threshold is not from 0 to 1"));
    }
    // As the server: a smaller segment is never worth it.
    if vacuum_min_vector_number.is_some_and(|number| number < 100) {
        return Err(invalid("vacuum_min_vector_number is below 100"));
    }
    let number = |value: Option<u64>| value.and_then(|number| usize::try_from(number).ok());
    let mut after = before;
    after.deleted_threshold = deleted_threshold.or(after.deleted_threshold);
    after.vacuum_min_vector_number =
        number(vacuum_min_vector_number).or(after.vacuum_min_vector_number);
    after.default_segment_number = number(default_segment_number).or(after.default_segment_number);
    after.indexing_threshold = number(indexing_threshold).or(after.indexing_threshold);
    Ok(after)
}

fn info(shard: &EdgeShard) -> CollectionInfo {
    let held = shard.info();
    let config = shard.config();
    let params = config.vectors.get(UNNAMED).map(|vectors| VectorParams {
        size: vectors.size as u64,
        distance: match vectors.distance {
            Distance::Cosine => proto::Distance::Cosine,
            Distance::Euclid => proto::Distance::Euclid,
            Distance::Dot => proto::Distance::Dot,
            Distance::Manhattan => proto::Distance::Manhattan,
        }
        .into(),
        ..VectorParams::default()
    });
    let vectors_config = params.map(|params| VectorsConfig {
        config: Some(vectors_config::Config::Params(params)),
    });
    let schema = held.payload_schema.into_iter().map(|(field, index)| {
        let data_type = match index.data_type {
            PayloadSchemaType::Keyword => proto::PayloadSchemaType::Keyword,
            PayloadSchemaType::Integer => proto::PayloadSchemaType::Integer,
            PayloadSchemaType::Bool => proto::PayloadSchemaType::Bool,
            _ => proto::PayloadSchemaType::UnknownType,
        };
        let info = PayloadSchemaInfo {
            data_type: data_type.into(),
            params: None,
            points: Some(index.points as u64),
        };
        (field.to_string(), info)
    });
    CollectionInfo {
        status: CollectionStatus::Green.into(),
        optimizer_status: Some(OptimizerStatus {
            ok: true,
            error: String::new(),
        }),
        segments_count: held.segments_count as u64,
        config: Some(CollectionConfig {
            params: Some(CollectionParams {
                shard_number: 1,
                vectors_config,
                ..CollectionParams::default()
            }),
            ..CollectionConfig::default()
        }),
        payload_schema: schema.collect(),
        points_count: Some(held.points_count as u64),
        indexed_vectors_count: Some(held.indexed_vectors_count as u64),
        ..CollectionInfo::default()
    }
}
