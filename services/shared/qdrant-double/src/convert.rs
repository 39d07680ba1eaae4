//! How does a message become what the engine takes, and back? Every field is named, so that a new one
//! cannot pass unseen.

use std::collections::HashMap;

use qdrant_client::qdrant::condition::ConditionOneOf;
use qdrant_client::qdrant::r#match::MatchValue;
use qdrant_client::qdrant::point_id::PointIdOptions;
use qdrant_client::qdrant::{
    self, Condition, FieldCondition, Match, PointStruct, Range, Value, VectorsOutput, vector,
    vector_output, vectors, vectors_output, with_payload_selector, with_vectors_selector,
};
use qdrant_edge::{
    Filter, Payload, PointId, PointStructPersisted, VectorStructInternal, VectorStructPersisted,
    WithPayloadInterface, WithVector,
};
use serde_json::{Map, Value as Json, json};
use tonic::Status;

use crate::refuse::{absent, empty, invalid, unmodelled};

pub(crate) fn point_id(id: Option<qdrant::PointId>) -> Result<PointId, Status> {
    let options = id.and_then(|id| id.point_id_options);
    match options.ok_or_else(|| invalid("a point has no id"))? {
        PointIdOptions::Num(number) => Ok(PointId::NumId(number)),
        PointIdOptions::Uuid(text) => {
            let uuid =
                uuid::Uuid::parse_str(&text).map_err(|_| invalid("a point's id is no UUID"))?;
            Ok(PointId::Uuid(uuid))
        }
    }
}

pub(crate) fn to_point_id(id: PointId) -> qdrant::PointId {
    match id {
        PointId::NumId(number) => number.into(),
        PointId::Uuid(uuid) => uuid.to_string().into(),
    }
}

pub(crate) fn payload(fields: HashMap<String, Value>) -> Payload {
    let fields = fields
        .into_iter()
        .map(|(name, value)| (name, Json::from(value)));
    Payload(fields.collect())
}

pub(crate) fn to_payload(payload: Option<Payload>) -> HashMap<String, Value> {
    let fields = payload.map(|payload| payload.0).unwrap_or_default();
    fields
        .into_iter()
        .map(|(name, value)| (name, Value::from(value)))
        .collect()
}

pub(crate) fn point(point: PointStruct) -> Result<PointStructPersisted, Status> {
    let PointStruct {
        id,
        payload: fields,
        vectors,
    } = point;
    let vectors = vectors.and_then(|vectors| vectors.vectors_options);
    let vector = match vectors {
        Some(vectors::VectorsOptions::Vector(vector)) => dense(vector)?,
        Some(vectors::VectorsOptions::Vectors(_)) => return Err(unmodelled("vectors by name")),
        None => return Err(unmodelled("a point without a vector")),
    };
    Ok(PointStructPersisted {
        id: point_id(id)?,
        vector: VectorStructPersisted::Single(vector),
        payload: Some(payload(fields)),
    })
}

#[allow(deprecated)]
fn dense(vector: qdrant::Vector) -> Result<Vec<f32>, Status> {
    let qdrant::Vector {
        data,
        indices,
        vectors_count,
        vector,
    } = vector;
    absent("vector.indices", indices)?;
    absent("vector.vectors_count", vectors_count)?;
    match vector {
        None => Ok(data),
        Some(vector::Vector::Dense(dense)) => Ok(dense.data),
        Some(_) => Err(unmodelled("a vector that is not dense")),
    }
}

pub(crate) fn to_vectors(
    vector: Option<VectorStructInternal>,
) -> Result<Option<VectorsOutput>, Status> {
    let Some(vector) = vector else {
        return Ok(None);
    };
    let VectorStructInternal::Single(data) = vector else {
        return Err(unmodelled("a stored vector with a name"));
    };
    #[allow(deprecated)]
    let output = qdrant::VectorOutput {
        data: Vec::new(),
        indices: None,
        vectors_count: None,
        vector: Some(vector_output::Vector::Dense(qdrant::DenseVector { data })),
    };
    Ok(Some(VectorsOutput {
        vectors_options: Some(vectors_output::VectorsOptions::Vector(output)),
    }))
}

pub(crate) fn with_payload(
    selector: Option<qdrant::WithPayloadSelector>,
) -> Result<WithPayloadInterface, Status> {
    use with_payload_selector::SelectorOptions;
    match selector.and_then(|selector| selector.selector_options) {
        None => Ok(WithPayloadInterface::Bool(false)),
        Some(SelectorOptions::Enable(is_wanted)) => Ok(WithPayloadInterface::Bool(is_wanted)),
        Some(SelectorOptions::Include(_)) => Err(unmodelled("with_payload.include")),
        Some(SelectorOptions::Exclude(_)) => Err(unmodelled("with_payload.exclude")),
    }
}

pub(crate) fn with_vectors(
    selector: Option<qdrant::WithVectorsSelector>,
) -> Result<WithVector, Status> {
    use with_vectors_selector::SelectorOptions;
    match selector.and_then(|selector| selector.selector_options) {
        None => Ok(WithVector::Bool(false)),
        Some(SelectorOptions::Enable(is_wanted)) => Ok(WithVector::Bool(is_wanted)),
        Some(SelectorOptions::Include(_)) => Err(unmodelled("with_vectors.include")),
    }
}

/// A filter, by way of the REST form that the engine reads as the server does.
pub(crate) fn filter(filter: Option<qdrant::Filter>) -> Result<Option<Filter>, Status> {
    let Some(filter) = filter else {
        return Ok(None);
    };
    let json = filter_json(filter)?;
    let read = serde_json::from_value(json);
    read.map(Some)
        .map_err(|_| invalid("a filter that the engine does not read"))
}

fn filter_json(filter: qdrant::Filter) -> Result<Json, Status> {
    let qdrant::Filter {
        should,
        must,
        must_not,
        min_should,
    } = filter;
    absent("filter.min_should", min_should)?;
    let mut all = Map::new();
    for (name, conditions) in [("should", should), ("must", must), ("must_not", must_not)] {
        if !conditions.is_empty() {
            let conditions: Result<Vec<Json>, Status> =
                conditions.into_iter().map(condition_json).collect();
            all.insert(name.to_owned(), Json::Array(conditions?));
        }
    }
    Ok(Json::Object(all))
}

fn condition_json(condition: Condition) -> Result<Json, Status> {
    let Condition { condition_one_of } = condition;
    match condition_one_of.ok_or_else(|| invalid("an empty condition"))? {
        ConditionOneOf::Field(field) => field_json(field),
        ConditionOneOf::IsEmpty(field) => Ok(json!({ "is_empty": { "key": field.key } })),
        ConditionOneOf::IsNull(field) => Ok(json!({ "is_null": { "key": field.key } })),
        ConditionOneOf::HasId(ids) => {
            let ids: Result<Vec<Json>, Status> = ids
                .has_id
                .into_iter()
                .map(|id| match point_id(Some(id))? {
                    PointId::NumId(number) => Ok(json!(number)),
                    PointId::Uuid(uuid) => Ok(json!(uuid.to_string())),
                })
                .collect();
            Ok(json!({ "has_id": ids? }))
        }
        ConditionOneOf::Filter(filter) => filter_json(filter),
        ConditionOneOf::Nested(_) => Err(unmodelled("condition.nested")),
        ConditionOneOf::HasVector(_) => Err(unmodelled("condition.has_vector")),
        ConditionOneOf::Slice(_) => Err(unmodelled("condition.slice")),
    }
}

fn field_json(field: FieldCondition) -> Result<Json, Status> {
    let FieldCondition {
        key,
        r#match,
        range,
        geo_bounding_box,
        geo_radius,
        values_count,
        geo_polygon,
        datetime_range,
        is_empty,
        is_null,
    } = field;
    absent("condition.geo_bounding_box", geo_bounding_box)?;
    absent("condition.geo_radius", geo_radius)?;
    absent("condition.values_count", values_count)?;
    absent("condition.geo_polygon", geo_polygon)?;
    absent("condition.datetime_range", datetime_range)?;
    absent("condition.is_empty", is_empty)?;
    absent("condition.is_null", is_null)?;
    let mut all = Map::new();
    all.insert("key".to_owned(), json!(key));
    if let Some(Match { match_value }) = r#match {
        let value = match_value.ok_or_else(|| invalid("an empty match"))?;
        all.insert("match".to_owned(), match_json(value)?);
    }
    if let Some(Range { lt, gt, gte, lte }) = range {
        let bounds = [("lt", lt), ("gt", gt), ("gte", gte), ("lte", lte)];
        let bounds = bounds
            .into_iter()
            .filter_map(|(name, bound)| Some((name.to_owned(), json!(bound?))));
        all.insert("range".to_owned(), Json::Object(bounds.collect()));
    }
    Ok(Json::Object(all))
}

fn match_json(value: MatchValue) -> Result<Json, Status> {
    match value {
        MatchValue::Keyword(keyword) => Ok(json!({ "value": keyword })),
        MatchValue::Integer(integer) => Ok(json!({ "value": integer })),
        MatchValue::Boolean(boolean) => Ok(json!({ "value": boolean })),
        MatchValue::Keywords(keywords) => Ok(json!({ "any": keywords.strings })),
        MatchValue::Integers(integers) => Ok(json!({ "any": integers.integers })),
        MatchValue::ExceptKeywords(keywords) => Ok(json!({ "except": keywords.strings })),
        MatchValue::ExceptIntegers(integers) => Ok(json!({ "except": integers.integers })),
        MatchValue::Text(_) => Err(unmodelled("match.text")),
        MatchValue::Phrase(_) => Err(unmodelled("match.phrase")),
        MatchValue::TextAny(_) => Err(unmodelled("match.text_any")),
        MatchValue::Prefix(_) => Err(unmodelled("match.prefix")),
        MatchValue::Substring(_) => Err(unmodelled("match.substring")),
    }
}

/// What a payload index is, in the REST form.
pub(crate) fn index_json(
    field_type: Option<i32>,
    params: Option<qdrant::PayloadIndexParams>,
) -> Result<Json, Status> {
    use qdrant::payload_index_params::IndexParams;
    let Some(params) = params.and_then(|params| params.index_params) else {
        let kind = field_type.and_then(|number| qdrant::FieldType::try_from(number).ok());
        return match kind {
            Some(qdrant::FieldType::Keyword) => Ok(json!("keyword")),
            Some(qdrant::FieldType::Integer) => Ok(json!("integer")),
            Some(qdrant::FieldType::Bool) => Ok(json!("bool")),
            Some(_) => Err(unmodelled("field_type")),
            None => Err(invalid("an index has no type")),
        };
    };
    match params {
        IndexParams::KeywordIndexParams(params) => keyword_json(params),
        IndexParams::IntegerIndexParams(params) => integer_json(params),
        IndexParams::BoolIndexParams(params) => bool_json(params),
        _ => Err(unmodelled("field_index_params")),
    }
}

#[allow(deprecated)]
fn keyword_json(params: qdrant::KeywordIndexParams) -> Result<Json, Status> {
    let qdrant::KeywordIndexParams {
        is_tenant,
        on_disk,
        enable_hnsw,
        prefix,
        memory,
        nested,
    } = params;
    absent("keyword_index_params.on_disk", on_disk)?;
    absent("keyword_index_params.prefix", prefix)?;
    absent("keyword_index_params.memory", memory)?;
    absent("keyword_index_params.nested", nested)?;
    Ok(json!({ "type": "keyword", "is_tenant": is_tenant, "enable_hnsw": enable_hnsw }))
}

#[allow(deprecated)]
fn integer_json(params: qdrant::IntegerIndexParams) -> Result<Json, Status> {
    let qdrant::IntegerIndexParams {
        lookup,
        range,
        is_principal,
        on_disk,
        enable_hnsw,
        memory,
        nested,
    } = params;
    absent("integer_index_params.on_disk", on_disk)?;
    absent("integer_index_params.memory", memory)?;
    absent("integer_index_params.nested", nested)?;
    Ok(json!({
        "type": "integer",
        "lookup": lookup,
        "range": range,
        "is_principal": is_principal,
        "enable_hnsw": enable_hnsw,
    }))
}

#[allow(deprecated)]
fn bool_json(params: qdrant::BoolIndexParams) -> Result<Json, Status> {
    let qdrant::BoolIndexParams {
        on_disk,
        enable_hnsw,
        memory,
        nested,
    } = params;
    absent("bool_index_params.on_disk", on_disk)?;
    absent("bool_index_params.memory", memory)?;
    absent("bool_index_params.nested", nested)?;
    Ok(json!({ "type": "bool", "enable_hnsw": enable_hnsw }))
}

/// The parameters of a question's search.
pub(crate) fn is_exact(params: Option<qdrant::SearchParams>) -> Result<bool, Status> {
    let Some(params) = params else {
        return Ok(false);
    };
    let qdrant::SearchParams {
        hnsw_ef,
        exact,
        quantization,
        indexed_only,
        acorn,
        idf,
    } = params;
    absent("params.hnsw_ef", hnsw_ef)?;
    absent("params.quantization", quantization)?;
    absent("params.indexed_only", indexed_only)?;
    absent("params.acorn", acorn)?;
    absent("params.idf", idf)?;
    Ok(exact.unwrap_or(false))
}

/// The vector that a question asks for.
pub(crate) fn nearest(query: Option<qdrant::Query>) -> Result<Vec<f32>, Status> {
    let variant = query.and_then(|query| query.variant);
    let Some(qdrant::query::Variant::Nearest(input)) = variant else {
        return Err(unmodelled("a query that is not `nearest`"));
    };
    match input.variant {
        Some(qdrant::vector_input::Variant::Dense(dense)) => {
            empty("an empty query", usize::from(dense.data.is_empty()))?;
            Ok(dense.data)
        }
        Some(_) | None => Err(unmodelled("a query that is not a dense vector")),
    }
}
