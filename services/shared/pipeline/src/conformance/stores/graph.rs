//! What a graph store must pass beside [`super::projection`].

use anamnesis_domain::ids::MemoryId;
use anamnesis_domain::memory::{Entity, EntityKind, Kind, Memory};
use anamnesis_domain::rank::hub_weight;

use super::Backend;
use super::script::{Script, entity, everything, id, memory_with};
use crate::stores::{Filter, GraphIndex};

fn drug(name: &str) -> Entity {
    entity(EntityKind::Drug, name)
}

/// A memory with exactly these entities.
fn about(number: u8, names: &[&str]) -> Memory {
    memory_with(number, "", |memory| {
        memory.claim.entities = names.iter().map(|name| drug(name)).collect();
    })
}

async fn scores(
    graph: &dyn GraphIndex,
    filter: &Filter,
    seeds: &[MemoryId],
    entities: &[Entity],
) -> Vec<(MemoryId, f64)> {
    let answer = graph
        .neighbours(filter, seeds, entities, 50)
        .await
        .expect("the graph answers");
    answer
        .hits
        .iter()
        .map(|hit| (hit.memory_id, hit.score))
        .collect()
}

pub async fn seeds_lead_to_what_shares_their_entities<B>(fresh: impl Fn() -> B)
where
    B: Backend<Store = dyn GraphIndex>,
{
    let place = fresh();
    let graph = place.open().await.unwrap();
    let mut script = Script::default();
    // Named twice is one entity.
    script.decide(
        1,
        vec![
            about(1, &["华法林", "aspirin", "aspirin"]),
            about(2, &["aspirin"]),
            about(3, &["华法林", "aspirin"]),
            about(4, &["metformin"]),
        ],
    );
    script.decide(2, vec![about(9, &["aspirin", "华法林"])]);
    script.play(&*graph).await;
    let (both, three) = (hub_weight(2), hub_weight(3));
    // Entities are added in ascending order: aspirin, then 华法林.
    let expected = [(id(1), three + both), (id(3), three + both), (id(2), three)];
    assert_eq!(
        scores(&*graph, &everything(1, 100), &[id(1)], &[]).await,
        expected
    );
    let named = scores(&*graph, &everything(1, 100), &[], &[drug("metformin")]).await;
    assert_eq!(named, [(id(4), 1.0)]);
    assert_eq!(scores(&*graph, &everything(1, 100), &[], &[]).await, []);
}

pub async fn a_hub_weighs_less<B>(fresh: impl Fn() -> B)
where
    B: Backend<Store = dyn GraphIndex>,
{
    let place = fresh();
    let graph = place.open().await.unwrap();
    let mut script = Script::default();
    for number in 1..=20 {
        script.decide(1, vec![about(number, &["aspirin"])]);
    }
    script.decide(1, vec![about(21, &["aspirin", "rare"])]);
    script.decide(1, vec![about(22, &["rare"])]);
    script.play(&*graph).await;
    let found = scores(&*graph, &everything(1, 100), &[id(21)], &[]).await;
    assert_eq!(found[0], (id(21), hub_weight(21) + hub_weight(2)));
    assert_eq!(found[1], (id(22), hub_weight(2)));
    assert_eq!(found[2], (id(1), hub_weight(21)));
}

pub async fn the_degree_counts_admitted_memories_only<B>(fresh: impl Fn() -> B)
where
    B: Backend<Store = dyn GraphIndex>,
{
    let place = fresh();
    let graph = place.open().await.unwrap();
    let mut script = Script::default();
    let allergy = |mut memory: Memory| {
        memory.claim.kind = Kind::Allergy;
        memory
    };
    let first = script.decide(
        1,
        vec![
            allergy(about(1, &["aspirin"])),
            allergy(about(2, &["aspirin"])),
        ],
    );
    script.decide(1, vec![about(3, &["aspirin"])]);
    script.decide(1, vec![about(1, &["metformin"])]);
    script.play(&*graph).await;
    let filter = Filter {
        kinds: Some(vec![Kind::Allergy]),
        ..everything(1, first + 1)
    };
    let weight = hub_weight(2);
    assert_eq!(
        scores(&*graph, &filter, &[id(1)], &[]).await,
        [(id(1), weight), (id(2), weight)]
    );
    // The seed has lost that entity since; it is named by the query instead.
    let now = Filter {
        kinds: Some(vec![Kind::Allergy]),
        ..everything(1, script.end(1))
    };
    assert_eq!(scores(&*graph, &now, &[id(1)], &[]).await, []);
    assert_eq!(
        scores(&*graph, &now, &[], &[drug("aspirin")]).await,
        [(id(2), 1.0)]
    );
}

pub async fn an_unknown_seed_leads_nowhere<B>(fresh: impl Fn() -> B)
where
    B: Backend<Store = dyn GraphIndex>,
{
    let place = fresh();
    let graph = place.open().await.unwrap();
    let mut script = Script::default();
    script.decide(1, vec![about(1, &["aspirin"]), about(2, &[])]);
    script.decide(2, vec![about(3, &["aspirin"])]);
    script.play(&*graph).await;
    // The seed of another owner is unknown here.
    for seed in [2, 3, 99] {
        assert_eq!(
            scores(&*graph, &everything(1, 100), &[id(seed)], &[]).await,
            [],
            "{seed}"
        );
    }
    let other_kind = entity(EntityKind::Thing, "aspirin");
    assert_eq!(
        scores(&*graph, &everything(1, 100), &[], &[other_kind]).await,
        []
    );
}
