//! The alias, and what it stands for.

use anamnesis_pipeline::conformance::stores::model;
use anamnesis_pipeline::conformance::stores::script::{Script, everything, id, memory, vector_of};
use anamnesis_pipeline::embedder::ModelIdentity;
use anamnesis_pipeline::stores::{StoreError, VectorIndex};
use anamnesis_servers::generations::Generations as _;
use anamnesis_servers::qdrant::generations::QdrantGenerations;
use anamnesis_servers::qdrant::{Place, QdrantVectors};

use super::{FEED, Fresh};

#[tokio::test]
async fn a_switch_changes_what_readers_see_at_once() {
    let fresh = Fresh::new();
    let generations = QdrantGenerations::connect(&fresh.config).unwrap();
    let live = QdrantVectors::connect(&fresh.config, Place::Live, FEED, model()).unwrap();
    let query = vector_of("tea").unwrap();
    let ask = || async {
        let answer = live.search(&everything(1, 100), &query, 5).await?;
        Ok::<_, StoreError>((answer.hits.len(), answer.position))
    };
    assert_eq!(generations.live().await.unwrap(), None);
    let none = ask().await;
    assert!(
        matches!(none, Err(StoreError::Unavailable { .. })),
        "{none:?}"
    );
    let missing = generations.switch("g9").await;
    assert!(
        matches!(missing, Err(StoreError::Unusable { .. })),
        "{missing:?}"
    );

    // Blue, and green that has come further.
    let (blue, green) = (
        fresh.open_as("blue", FEED, model()).await.unwrap(),
        fresh.open_as("green", FEED, model()).await.unwrap(),
    );
    let mut script = Script::default();
    script.decide(1, vec![memory(1, "tea")]);
    let first = script.take(1);
    script.decide(1, vec![memory(2, "tea")]);
    let second = script.take(1);
    for batch in &first {
        batch.apply(&blue).await.unwrap();
        batch.apply(&green).await.unwrap();
    }
    for batch in &second {
        batch.apply(&green).await.unwrap();
    }
    assert_eq!(generations.list().await.unwrap(), ["blue", "green"]);

    generations.switch("blue").await.unwrap();
    assert_eq!(ask().await.unwrap(), (1, 2));
    let refused = generations.delete("blue").await;
    assert!(
        matches!(refused, Err(StoreError::Unusable { .. })),
        "{refused:?}"
    );

    generations.switch("green").await.unwrap();
    assert_eq!(generations.live().await.unwrap().as_deref(), Some("green"));
    assert_eq!(ask().await.unwrap(), (2, 3));
    generations.switch("blue").await.unwrap();
    assert_eq!(ask().await.unwrap(), (1, 2), "the way back");
    generations.switch("green").await.unwrap();
    generations.delete("blue").await.unwrap();
    assert_eq!(ask().await.unwrap(), (2, 3));
    assert_eq!(generations.list().await.unwrap(), ["green"]);
}

/// The vectors of another model answer other questions: a reader that was not told notices.
#[tokio::test]
async fn a_reader_refuses_a_generation_of_another_model() {
    let fresh = Fresh::new();
    let generations = QdrantGenerations::connect(&fresh.config).unwrap();
    let old = fresh.open_as("old", FEED, model()).await.unwrap();
    let mut script = Script::default();
    script.decide(1, vec![memory(1, "tea")]);
    script.play(&old).await;
    generations.switch("old").await.unwrap();
    let live = QdrantVectors::open(&fresh.config, Place::Live, FEED, model())
        .await
        .unwrap();
    let query = vector_of("tea").unwrap();
    assert_eq!(
        live.search(&everything(1, 100), &query, 5)
            .await
            .unwrap()
            .hits[0]
            .memory_id,
        id(1)
    );

    let other = ModelIdentity {
        id: "other".to_owned(),
        ..model()
    };
    fresh.open_as("new", FEED, other.clone()).await.unwrap();
    generations.switch("new").await.unwrap();
    let refused = live.search(&everything(1, 100), &query, 5).await;
    assert!(
        matches!(&refused, Err(StoreError::OtherModel { found, .. }) if *found == other),
        "{refused:?}"
    );
    generations.switch("old").await.unwrap();
    assert_eq!(
        live.search(&everything(1, 100), &query, 5)
            .await
            .unwrap()
            .hits
            .len(),
        1
    );
}

/// Readers ask without pause while the alias goes back and forth: every answer is wholly of one
/// generation.
#[tokio::test]
async fn no_answer_is_of_two_generations() {
    let fresh = Fresh::new();
    let generations = QdrantGenerations::connect(&fresh.config).unwrap();
    let mut script = Script::default();
    for number in 1..=3 {
        script.decide(1, vec![memory(number, "tea")]);
    }
    let batches = script.take(1);
    for (generation, count) in [("one", 1), ("three", 3)] {
        let store = fresh.open_as(generation, FEED, model()).await.unwrap();
        for batch in &batches[..count] {
            batch.apply(&store).await.unwrap();
        }
    }
    generations.switch("one").await.unwrap();
    let live = QdrantVectors::open(&fresh.config, Place::Live, FEED, model())
        .await
        .unwrap();
    let query = vector_of("tea").unwrap();
    let switching = async {
        for _ in 0..20 {
            generations.switch("three").await.unwrap();
            generations.switch("one").await.unwrap();
        }
    };
    let asking = async {
        loop {
            let answer = live.search(&everything(1, 100), &query, 5).await.unwrap();
            let seen = (answer.hits.len() as u64, answer.position);
            assert!([(1, 2), (3, 4)].contains(&seen), "{seen:?}");
        }
    };
    tokio::select! {
        () = switching => (),
        () = asking => (),
    }
}
