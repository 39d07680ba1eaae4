//! What a vector index must pass beside [`super::projection`].

use anamnesis_domain::text::Text;

use super::script::{Script, everything, id, memory, memory_with, vector_of};
use super::{Backend, LOG_ID, model};
use crate::similarity;
use crate::stores::{Change, Checkpoint, StoreError, VectorIndex};

pub async fn a_score_is_the_cosine<B>(fresh: impl Fn() -> B)
where
    B: Backend<Store = dyn VectorIndex>,
{
    let place = fresh();
    let index = place.open().await.unwrap();
    assert_eq!(*index.model(), model());
    let mut script = Script::default();
    script.decide(
        1,
        vec![memory(1, "tea"), memory(2, "茶"), memory(3, "coffee")],
    );
    script.play(&*index).await;
    let query = vector_of(memory(2, "茶").claim.text.expose()).unwrap();
    let answer = index.search(&everything(1, 100), &query, 2).await.unwrap();
    assert_eq!(answer.hits.len(), 2);
    assert_eq!(answer.hits[0].memory_id, id(2));
    assert!((answer.hits[0].score - 1.0).abs() < 1e-6);
    for hit in &answer.hits {
        let rows = &script.rows_of(1).versions;
        let (_, vector) = rows
            .iter()
            .find(|(version, _)| version.memory.id == hit.memory_id)
            .unwrap();
        let cosine = similarity::dot(vector.as_ref().unwrap(), &query);
        assert_eq!(hit.score, f64::from(cosine));
    }
}

pub async fn a_vector_of_another_length_is_refused<B>(fresh: impl Fn() -> B)
where
    B: Backend<Store = dyn VectorIndex>,
{
    let place = fresh();
    let index = place.open().await.unwrap();
    let short = index.search(&everything(1, 100), &[1.0], 5).await;
    assert!(
        matches!(short, Err(StoreError::Unusable { .. })),
        "{short:?}"
    );

    let mut script = Script::default();
    script.decide(1, vec![memory(1, "tea")]);
    let mut batch = script.take(1).remove(0);
    for change in &mut batch.changes {
        if let Change::Version { version: _, vector } = change {
            *vector = Some(vec![1.0f32, 0.0].into());
        }
    }
    let refused = batch.apply(&*index).await;
    assert!(
        matches!(refused, Err(StoreError::Unusable { .. })),
        "{refused:?}"
    );
    assert_eq!(index.owners().await.unwrap(), []);
    assert_eq!(index.checkpoint(batch.partition).await.unwrap(), None);
    let next = Checkpoint {
        log_id: LOG_ID,
        next: 1,
    };
    index.apply(batch.partition, 0, &[], next).await.unwrap();
}

/// Its text is gone, and so the version has no vector; the one before is over all the same.
pub async fn a_version_without_vector_closes_the_one_before<B>(fresh: impl Fn() -> B)
where
    B: Backend<Store = dyn VectorIndex>,
{
    let place = fresh();
    let index = place.open().await.unwrap();
    let mut script = Script::default();
    let first = script.decide(1, vec![memory(1, "tea")]);
    script.decide(
        1,
        vec![memory_with(1, "", |memory| {
            memory.claim.text = Text::default()
        })],
    );
    script.play(&*index).await;
    let query = vector_of("tea").unwrap();
    let then = index
        .search(&everything(1, first + 1), &query, 5)
        .await
        .unwrap();
    assert_eq!(then.hits.len(), 1);
    let now = index
        .search(&everything(1, script.end(1)), &query, 5)
        .await
        .unwrap();
    assert_eq!(now.hits, []);
}

/// A cache of vectors never answers for a state that is over.
pub async fn a_search_sees_what_was_just_applied<B>(fresh: impl Fn() -> B)
where
    B: Backend<Store = dyn VectorIndex>,
{
    let place = fresh();
    let index = place.open().await.unwrap();
    let mut script = Script::default();
    let query = vector_of("tea").unwrap();
    for number in 1..30 {
        script.decide(1, vec![memory(number, "tea")]);
        script.play(&*index).await;
        let answer = index
            .search(&everything(1, script.end(1)), &query, 100)
            .await
            .unwrap();
        assert_eq!(
            (answer.hits.len(), answer.position),
            (number as usize, script.end(1))
        );
    }
    script.erase(1, &(1..30).map(id).collect::<Vec<_>>());
    script.play(&*index).await;
    let answer = index
        .search(&everything(1, script.end(1)), &query, 100)
        .await
        .unwrap();
    assert_eq!(answer.hits, []);
}
