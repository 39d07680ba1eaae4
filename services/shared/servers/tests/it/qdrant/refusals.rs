//! What is not opened, and what rows show that somebody altered.

use anamnesis_domain::ids::LogId;
use anamnesis_pipeline::conformance::stores::model;
use anamnesis_pipeline::conformance::stores::script::{Script, id, memory, scope};
use anamnesis_pipeline::embedder::ModelIdentity;
use anamnesis_pipeline::feed::Feed;
use anamnesis_pipeline::stores::{Projection, StoreError};
use anamnesis_servers::qdrant::QdrantVectors;
use qdrant_client::qdrant::{
    Condition, CreateCollectionBuilder, DeleteFieldIndexCollectionBuilder, DeletePointsBuilder,
    Distance, Filter, PointStruct, UpsertPointsBuilder, VectorParamsBuilder,
};

use super::{FEED, Fresh, GENERATION, Raw, row};

fn refusal(opened: Result<QdrantVectors, StoreError>) -> StoreError {
    match opened {
        Ok(_) => panic!("opened"),
        Err(error) => error,
    }
}

#[tokio::test]
async fn another_log_model_or_format_is_refused_by_name() {
    let fresh = Fresh::new();
    fresh.opened().await;
    let other_log = LogId::from_bytes([9; 16]);
    let feed = Feed {
        log_id: other_log,
        ..FEED
    };
    let error = refusal(fresh.open_as(GENERATION, feed, model()).await);
    assert!(
        matches!(error, StoreError::OtherLog { expected, found, .. } if expected == other_log && found == FEED.log_id),
        "{error:?}"
    );

    let feed = Feed {
        partitions: 9,
        ..FEED
    };
    let error = refusal(fresh.open_as(GENERATION, feed, model()).await);
    assert!(matches!(error, StoreError::Damaged { .. }), "{error:?}");

    for dimension in [384, model().dimension] {
        let other = ModelIdentity {
            id: "other".to_owned(),
            dimension,
        };
        let error = refusal(fresh.open_as(GENERATION, FEED, other).await);
        assert!(matches!(error, StoreError::OtherModel { .. }), "{error:?}");
        let says = error.to_string();
        assert!(
            says.contains(&format!("other ({dimension} dimensions)")),
            "{says}"
        );
        assert!(says.contains("conformance (21 dimensions)"), "{says}");
    }

    fresh.raw().set(row("meta"), "format", 2).await;
    let error = refusal(fresh.open_as(GENERATION, FEED, model()).await);
    assert!(matches!(error, StoreError::Unusable { .. }), "{error:?}");
    assert!(error.to_string().contains("format 2"), "{error}");
}

/// A collection of another dimension that somebody made by hand, or for another program.
#[tokio::test]
async fn a_foreign_collection_is_not_written_to() {
    for (size, distance) in [(7, Distance::Dot), (21, Distance::Cosine)] {
        let fresh = Fresh::new();
        let Raw { client, collection } = fresh.raw();
        let vectors = VectorParamsBuilder::new(size, distance);
        let request = CreateCollectionBuilder::new(&collection).vectors_config(vectors);
        client.create_collection(request).await.unwrap();
        let error = refusal(fresh.open_as(GENERATION, FEED, model()).await);
        let is_named = match distance {
            Distance::Dot => matches!(
                &error,
                StoreError::OtherModel { expected, found, .. }
                    if (expected, found.dimension) == (&model(), 7)
            ),
            Distance::Cosine
            | Distance::Euclid
            | Distance::Manhattan
            | Distance::UnknownDistance => matches!(&error, StoreError::Damaged { .. }),
        };
        assert!(is_named, "{error:?}");
        let raw = Raw { client, collection };
        assert!(raw.points(Filter::default()).await.is_empty());
    }
}

/// Making a collection takes many calls: whoever comes next finishes what was begun.
#[tokio::test]
async fn a_half_made_collection_is_finished() {
    let fresh = Fresh::new();
    let Raw { client, collection } = fresh.raw();
    let vectors = VectorParamsBuilder::new(21, Distance::Dot);
    let request = CreateCollectionBuilder::new(&collection).vectors_config(vectors);
    client.create_collection(request).await.unwrap();
    let (a, b) = tokio::join!(fresh.opened(), fresh.opened());
    for (partition, store) in [(0, a), (1, b)] {
        assert_eq!(store.checkpoint(partition).await.unwrap(), None);
    }
}

/// also when only the index of a field is gone: answers would be slow and, in the graph, fewer.
#[tokio::test]
async fn a_half_deleted_collection_says_so() {
    for kind in ["meta", "checkpoint"] {
        let fresh = Fresh::new();
        let store = fresh.opened().await;
        let mut script = Script::default();
        script.decide(
            1,
            vec![
                memory(1, "a"),
                memory(2, "b"),
                memory(3, "c"),
                memory(4, "d"),
            ],
        );
        script.play(&store).await;
        let Raw { client, collection } = fresh.raw();
        let request = DeletePointsBuilder::new(&collection)
            .points(row(kind))
            .wait(true);
        client.delete_points(request).await.unwrap();
        assert_damaged(refusal(fresh.open_as(GENERATION, FEED, model()).await));
        if kind == "checkpoint" {
            assert_damaged(store.checkpoint(0).await.unwrap_err());
        }
    }
    let fresh = Fresh::new();
    let store = fresh.opened().await;
    let Raw { client, collection } = fresh.raw();
    let request = DeleteFieldIndexCollectionBuilder::new(&collection, "owner").wait(true);
    client.delete_field_index(request).await.unwrap();
    assert_damaged(refusal(fresh.open_as(GENERATION, FEED, model()).await));
    client.delete_collection(&collection).await.unwrap();
    assert_damaged(store.rows(scope(1)).await.unwrap_err());
}

fn assert_damaged(error: StoreError) {
    assert!(matches!(error, StoreError::Damaged { .. }), "{error:?}");
    let says = error.to_string();
    assert!(says.contains("anamnesis rebuild --store vectors"), "{says}");
}

#[tokio::test]
async fn any_altered_field_shows_in_its_own_row_only() {
    let fresh = Fresh::new();
    let store = fresh.opened().await;
    let raw = fresh.raw();
    let mut script = Script::default();
    for owner in [1, 2] {
        script.decide(owner, vec![memory(1, "tea"), memory(2, "花生")]);
        script.decide(owner, vec![memory(1, "green tea")]);
    }
    script.play(&store).await;
    let before = store.rows(scope(1)).await.unwrap();
    let others = store.rows(scope(2)).await.unwrap();
    let first = format!("{}/0000000001", id(1));
    let one = Filter::must([
        Condition::matches("owner", scope(1).key().to_string()),
        Condition::matches("memory", id(1).to_string()),
        Condition::matches("version", 1),
    ]);
    let whole = raw.points(one.clone()).await.remove(0);
    let put_back = || PointStruct {
        id: whole.id.clone(),
        payload: whole.payload.clone(),
        vectors: Some(super::vector_of_point(&whole).into()),
    };
    for (name, value) in [
        ("recorded_from", serde_json::json!(9)),
        ("recorded_to", serde_json::json!(77)),
        ("valid_from", serde_json::json!(5)),
        ("valid_to", serde_json::json!(5)),
        ("subject", serde_json::json!("father")),
        ("kind", serde_json::json!("allergy")),
        ("kind", serde_json::json!("no such kind")),
        ("status", serde_json::json!("erased")),
        ("status", serde_json::json!(3)),
        ("tags", serde_json::json!(["ward"])),
        ("tags", serde_json::json!("ward")),
        ("is_confirmation", serde_json::json!(true)),
        ("is_askable", serde_json::json!(false)),
        ("partition", serde_json::json!(99)),
        ("fence", serde_json::json!("none")),
    ] {
        raw.set(one.clone(), name, value.clone()).await;
        let after = store.rows(scope(1)).await.unwrap();
        let differing: Vec<&str> = after
            .iter()
            .filter(|row| !before.contains(row))
            .map(|row| row.key.as_str())
            .collect();
        assert_eq!(
            (differing, after.len()),
            (vec![first.as_str()], before.len()),
            "{name}={value}"
        );
        assert_eq!(store.rows(scope(2)).await.unwrap(), others);
        raw.put(put_back()).await;
        assert_eq!(store.rows(scope(1)).await.unwrap(), before);
    }
    let mut turned = put_back();
    turned.vectors = Some(vec![0.5f32; 21].into());
    let request = UpsertPointsBuilder::new(&raw.collection, vec![turned]).wait(true);
    raw.client.upsert_points(request).await.unwrap();
    assert_ne!(store.rows(scope(1)).await.unwrap(), before);
}

/// Neither the words of a memory nor those of its entities are sent, and no error repeats anything.
#[tokio::test]
async fn nothing_that_was_said_is_stored() {
    let fresh = Fresh::new();
    let store = fresh.opened().await;
    let mut script = Script::default();
    script.decide(1, vec![memory(1, "zyzzyvacanary 金丝雀暗号")]);
    script.play(&store).await;
    for point in fresh.raw().points(Filter::default()).await {
        let says = format!("{:?}", point.payload);
        for word in ["zyzzyvacanary", "金丝雀暗号", "peanut", "花生", "p-1"] {
            assert!(!says.contains(word), "{word}");
        }
    }
}
