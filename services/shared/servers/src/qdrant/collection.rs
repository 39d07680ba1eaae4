//! Is a collection one that this program made, for this log and this model, and whole?

use anamnesis_domain::ids::LogId;
use anamnesis_pipeline::embedder::ModelIdentity;
use anamnesis_pipeline::feed::Feed;
use anamnesis_pipeline::stores::{Store, StoreError};
use qdrant_client::qdrant::{
    BoolIndexParams, CollectionInfo, CreateCollection, CreateFieldIndexCollection, Distance,
    FieldType, HnswConfigDiff, IntegerIndexParams, KeywordIndexParams, OptimizersConfigDiff,
    PayloadIndexParams, PointId, RetrievedPoint, VectorParams, VectorsConfig, WriteOrdering,
    WriteOrderingType, payload_index_params, vectors_config,
};

use super::condition;
use super::row::{self, CHECKPOINT_ROW, META_ROW, field};
use super::server::{Server, damaged};

/// Of what this file makes and [`super::row`] writes.
const FORMAT: i64 = 1;

/// The first version whose upserts have a condition. An older one would ignore it, and with it the
/// fence.
const SERVER_MIN: (u32, u32) = (1, 16);

/// Share of deleted points in a segment from which the optimiser writes it anew: Qdrant's own default,
/// and what compaction sets until it is done.
pub(super) const DELETED_SHARE: f64 = 0.2;
pub(super) const DELETED_SHARE_COMPACTING: f64 = 0.0;
/// Segments with fewer points are left alone by the optimiser; Qdrant takes no lower number.
pub(super) const VACUUM_POINTS_MIN: u64 = 100;

/// Edges of the graph within one owner's vectors. There is none across owners: no question crosses.
const OWNER_EDGES: u64 = 16;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Index {
    Tenant,
    Keyword,
    Integer,
    Bool,
}

/// Every field that a condition names. An index that is made after the data leaves the graph without
/// its edges, and then answers go missing without a word.
const INDEXES: [(&str, Index); 15] = [
    (field::OWNER, Index::Tenant),
    (field::ROW, Index::Keyword),
    (field::PARTITION, Index::Integer),
    (field::FENCE, Index::Integer),
    (field::NEXT, Index::Integer),
    (field::MEMORY, Index::Keyword),
    (field::RECORDED_FROM, Index::Integer),
    (field::RECORDED_TO, Index::Integer),
    (field::VALID_FROM, Index::Integer),
    (field::VALID_TO, Index::Integer),
    (field::SUBJECT, Index::Keyword),
    (field::KIND, Index::Keyword),
    (field::STATUS, Index::Keyword),
    (field::TAGS, Index::Keyword),
    (field::IS_ASKABLE, Index::Bool),
];

/// What a collection must belong to.
#[derive(Clone)]
pub(super) struct Identity {
    pub(super) feed: Feed,
    pub(super) model: ModelIdentity,
}

/// Whether the server can do what this program relies on.
///
/// # Errors
/// [`StoreError::Unusable`] for one that is too old.
pub(super) async fn check_server(server: &Server) -> Result<(), StoreError> {
    let version = server.version().await?;
    let mut numbers = version.split('.').map(|part| part.parse::<u32>().ok());
    let (major, minor) = (numbers.next().flatten(), numbers.next().flatten());
    match major.zip(minor) {
        Some(found) if found >= SERVER_MIN => Ok(()),
        Some(_) | None => Err(StoreError::Unusable {
            what: format!(
                "qdrant is older than {}.{}, which is the first that can refuse a late write",
                SERVER_MIN.0, SERVER_MIN.1
            ),
        }),
    }
}

/// Makes the collection if it is not there, finishes one whose making was interrupted, and checks it.
///
/// # Errors
/// As [`check`].
pub(super) async fn make(
    server: &Server,
    collection: &str,
    identity: &Identity,
    replicas: u32,
) -> Result<(), StoreError> {
    if !server.exists(collection).await? {
        let made = server
            .create(creation(collection, identity, replicas))
            .await;
        // Somebody else may have been faster.
        if made.is_err() && !server.exists(collection).await? {
            made?;
        }
    }
    let meta = server.get(collection, vec![row::meta_point()]).await?;
    if !meta.is_empty() {
        return check(server, collection, identity).await;
    }
    let info = server.info(collection).await?;
    check_vectors(&info, identity, None)?;
    if info.points_count.unwrap_or(0) > u64::from(identity.feed.partitions) {
        return Err(damaged("the meta point is missing"));
    }
    for (name, index) in INDEXES {
        if !info.payload_schema.contains_key(name) {
            server
                .create_index(index_of(collection, name, index))
                .await?;
        }
    }
    let dimension = identity.model.dimension as usize;
    let checkpoints = (0..identity.feed.partitions).map(|partition| {
        let payload = row::payload([
            (field::ROW, CHECKPOINT_ROW.into()),
            (field::PARTITION, i64::from(partition).into()),
            (field::NEXT, 0.into()),
            (field::IS_PLACED, false.into()),
            (field::MARK, "".into()),
            (field::COLLECTION, collection.into()),
        ]);
        row::point(
            row::checkpoint_point(partition),
            payload,
            vec![0.0; dimension],
        )
    });
    server
        .upsert(collection, checkpoints.collect(), condition::nothing())
        .await?;
    // Last: it says that the rest is there.
    let meta = row::payload([
        (field::ROW, META_ROW.into()),
        (field::FORMAT, FORMAT.into()),
        (field::LOG_ID, identity.feed.log_id.to_string().into()),
        (
            field::PARTITIONS,
            i64::from(identity.feed.partitions).into(),
        ),
        (field::MODEL, identity.model.id.as_str().into()),
        (field::DIMENSION, i64::from(identity.model.dimension).into()),
    ]);
    let meta = row::point(row::meta_point(), meta, vec![0.0; dimension]);
    server
        .upsert(collection, vec![meta], condition::nothing())
        .await?;
    check(server, collection, identity).await
}

/// # Errors
/// [`StoreError::OtherLog`], [`StoreError::OtherModel`], [`StoreError::Damaged`], or
/// [`StoreError::Unusable`] for a collection of another format.
pub(super) async fn check(
    server: &Server,
    collection: &str,
    identity: &Identity,
) -> Result<(), StoreError> {
    let store = Store::Vectors;
    let info = server.info(collection).await?;
    let found = server.get(collection, vec![row::meta_point()]).await?;
    let Some(meta) = found.first().and_then(Meta::read) else {
        check_vectors(&info, identity, None)?;
        return Err(damaged("the meta point is missing or unreadable"));
    };
    if meta.format != FORMAT {
        let what = format!(
            "the collection has the format {} and this program writes {FORMAT}: use the other version, \
             or rebuild it: anamnesis rebuild --store {store}",
            meta.format
        );
        return Err(StoreError::Unusable { what });
    }
    if meta.log_id != identity.feed.log_id {
        return Err(StoreError::OtherLog {
            store,
            expected: identity.feed.log_id,
            found: meta.log_id,
        });
    }
    if meta.model != identity.model {
        return Err(other_model(identity, meta.model));
    }
    check_vectors(&info, identity, Some(&meta.model))?;
    if meta.partitions != i64::from(identity.feed.partitions) {
        return Err(damaged(format!(
            "it follows {} partitions, the log has {}",
            meta.partitions, identity.feed.partitions
        )));
    }
    if let Some((name, _)) = INDEXES
        .iter()
        .find(|(name, _)| !info.payload_schema.contains_key(*name))
    {
        return Err(damaged(format!("the index of the field {name} is missing")));
    }
    let ids: Vec<PointId> = (0..identity.feed.partitions)
        .map(row::checkpoint_point)
        .collect();
    let count = ids.len();
    if server.get(collection, ids).await?.len() != count {
        return Err(damaged("a checkpoint is missing"));
    }
    Ok(())
}

struct Meta {
    format: i64,
    log_id: LogId,
    partitions: i64,
    model: ModelIdentity,
}

impl Meta {
    fn read(point: &RetrievedPoint) -> Option<Self> {
        let payload = &point.payload;
        Some(Self {
            format: row::number(payload, field::FORMAT)?,
            log_id: row::text(payload, field::LOG_ID)?.parse().ok()?,
            partitions: row::number(payload, field::PARTITIONS)?,
            model: ModelIdentity {
                id: row::text(payload, field::MODEL)?.to_owned(),
                dimension: u32::try_from(row::number(payload, field::DIMENSION)?).ok()?,
            },
        })
    }
}

/// The vectors that the server keeps, whatever the meta point says: a collection that somebody made
/// by hand has none.
fn check_vectors(
    info: &CollectionInfo,
    identity: &Identity,
    model: Option<&ModelIdentity>,
) -> Result<(), StoreError> {
    let params = info
        .config
        .as_ref()
        .and_then(|config| config.params.as_ref());
    let config = params.and_then(|params| params.vectors_config.as_ref());
    let Some(vectors_config::Config::Params(vectors)) = config.and_then(|one| one.config.as_ref())
    else {
        return Err(damaged(
            "the collection was not made by this program: it names its vectors",
        ));
    };
    if vectors.size != u64::from(identity.model.dimension) {
        let found = ModelIdentity {
            id: model
                .map_or("a model that it does not name", |model| &model.id)
                .to_owned(),
            dimension: u32::try_from(vectors.size).unwrap_or(u32::MAX),
        };
        return Err(other_model(identity, found));
    }
    if vectors.distance != i32::from(Distance::Dot) {
        return Err(damaged(
            "the collection was not made by this program: its distance is another",
        ));
    }
    Ok(())
}

fn other_model(identity: &Identity, found: ModelIdentity) -> StoreError {
    StoreError::OtherModel {
        store: Store::Vectors,
        expected: identity.model.clone(),
        found,
    }
}

fn creation(collection: &str, identity: &Identity, replicas: u32) -> CreateCollection {
    let vectors = VectorParams {
        size: u64::from(identity.model.dimension),
        // Vectors have length one, so this is their cosine; and unlike "cosine" it keeps their bits.
        distance: Distance::Dot.into(),
        ..VectorParams::default()
    };
    CreateCollection {
        collection_name: collection.to_owned(),
        vectors_config: Some(VectorsConfig {
            config: Some(vectors_config::Config::Params(vectors)),
        }),
        hnsw_config: Some(HnswConfigDiff {
            m: Some(0),
            payload_m: Some(OWNER_EDGES),
            ..HnswConfigDiff::default()
        }),
        optimizers_config: Some(optimizers(DELETED_SHARE)),
        // After a loss of power a shard keeps a beginning of what it was told, and each shard another:
        // a checkpoint must not survive what was written before it.
        shard_number: Some(1),
        replication_factor: Some(replicas),
        write_consistency_factor: Some(replicas / 2 + 1),
        ..CreateCollection::default()
    }
}

pub(super) fn optimizers(deleted_share: f64) -> OptimizersConfigDiff {
    OptimizersConfigDiff {
        deleted_threshold: Some(deleted_share),
        vacuum_min_vector_number: Some(VACUUM_POINTS_MIN),
        ..OptimizersConfigDiff::default()
    }
}

fn index_of(collection: &str, name: &str, index: Index) -> CreateFieldIndexCollection {
    use payload_index_params::IndexParams;
    // Only questions about one owner are asked: other fields need no edges of their own.
    let (field_type, params) = match index {
        Index::Tenant => {
            let params = KeywordIndexParams {
                is_tenant: Some(true),
                ..KeywordIndexParams::default()
            };
            (FieldType::Keyword, IndexParams::KeywordIndexParams(params))
        }
        Index::Keyword => {
            let params = KeywordIndexParams {
                enable_hnsw: Some(false),
                ..KeywordIndexParams::default()
            };
            (FieldType::Keyword, IndexParams::KeywordIndexParams(params))
        }
        Index::Integer => {
            let params = IntegerIndexParams {
                lookup: Some(true),
                range: Some(true),
                enable_hnsw: Some(false),
                ..IntegerIndexParams::default()
            };
            (FieldType::Integer, IndexParams::IntegerIndexParams(params))
        }
        Index::Bool => {
            let params = BoolIndexParams {
                enable_hnsw: Some(false),
                ..BoolIndexParams::default()
            };
            (FieldType::Bool, IndexParams::BoolIndexParams(params))
        }
    };
    CreateFieldIndexCollection {
        collection_name: collection.to_owned(),
        wait: Some(true),
        field_name: name.to_owned(),
        field_type: Some(field_type.into()),
        field_index_params: Some(PayloadIndexParams {
            index_params: Some(params),
        }),
        ordering: Some(WriteOrdering {
            r#type: WriteOrderingType::Strong.into(),
        }),
        ..CreateFieldIndexCollection::default()
    }
}
