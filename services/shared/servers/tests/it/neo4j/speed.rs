//! How fast is it? Prints; run with `--nocapture`.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anamnesis_domain::ids::{MemoryId, OwnerKey};
use anamnesis_domain::memory::EntityKind;
use anamnesis_domain::owner::OwnerScope;
use anamnesis_pipeline::conformance::stores::LOG_ID;
use anamnesis_pipeline::conformance::stores::script::{START, entity, everything, memory_with};
use anamnesis_pipeline::feed::Feed;
use anamnesis_pipeline::stores::{
    Change, Checkpoint, Filter, GraphIndex as _, MemoryVersion, Projection as _,
};
use anamnesis_servers::neo4j::Neo4jGraph;

use super::fresh;

const FEED: Feed = Feed {
    log_id: LOG_ID,
    partitions: 1,
};
const OWNERS: u64 = 100;
const BATCH: u64 = 500;
const BATCHES: u64 = 20;

fn owner(number: u64) -> OwnerKey {
    OwnerKey::from_bytes((u128::from(number) + 1).to_be_bytes())
}

fn memory_id(number: u64) -> MemoryId {
    MemoryId::from_bytes((u128::from(number) + 1).to_be_bytes())
}

fn version(offset: u64) -> Change {
    let memory = memory_with(1, "", |memory| {
        memory.id = memory_id(offset);
        memory.version = offset;
        let drug = entity(EntityKind::Drug, &format!("drug {}", offset / OWNERS % 40));
        let disease = entity(
            EntityKind::Disease,
            &format!("disease {}", offset / OWNERS % 7),
        );
        memory.claim.entities = vec![drug, disease];
    });
    Change::Version {
        version: Arc::new(MemoryVersion {
            owner: owner(offset % OWNERS),
            memory,
            recorded_from: offset,
            recorded_to: None,
            recorded_at: START,
        }),
        vector: None,
    }
}

fn percentile(times: &mut [Duration], percent: usize) -> Duration {
    times.sort();
    times[(times.len() - 1) * percent / 100]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_thousand_versions_go_in_and_answer() {
    let place = fresh();
    let graph = Neo4jGraph::open(&place.config, FEED).await.unwrap();
    let mut times = Vec::new();
    let start = Instant::now();
    for batch in 0..BATCHES {
        let (from, end) = (batch * BATCH, (batch + 1) * BATCH);
        let changes: Vec<Change> = (from..end).map(version).collect();
        let next = Checkpoint {
            log_id: LOG_ID,
            next: end,
        };
        let began = Instant::now();
        graph.apply(0, from, &changes, next).await.unwrap();
        times.push(began.elapsed());
    }
    let count = BATCH * BATCHES;
    let rate = count as f64 / start.elapsed().as_secs_f64();
    println!(
        "{count} versions in batches of {BATCH}: {rate:.0} a second, batch p50 {:?}, p90 {:?}",
        percentile(&mut times, 50),
        percentile(&mut times, 90)
    );

    let mut times = Vec::new();
    let mut hits = 0;
    for round in 0..600 {
        let scope = OwnerScope::of_log_record(owner(round % OWNERS));
        let filter = Filter {
            scope,
            ..everything(1, count)
        };
        let seeds = [
            memory_id(round % OWNERS),
            memory_id(round % OWNERS + OWNERS * 3),
        ];
        let asked = [entity(EntityKind::Disease, "disease 5")];
        let began = Instant::now();
        let answer = graph.neighbours(&filter, &seeds, &asked, 50).await.unwrap();
        if round >= 100 {
            times.push(began.elapsed());
        }
        hits += answer.hits.len();
    }
    println!(
        "neighbours of two seeds and a name ({} hits each): p50 {:?}, p99 {:?}",
        hits / 600,
        percentile(&mut times, 50),
        percentile(&mut times, 99)
    );
    // Small batches, as when decisions come one by one.
    let mut times = Vec::new();
    for offset in count..count + 100 {
        let next = Checkpoint {
            log_id: LOG_ID,
            next: offset + 1,
        };
        let began = Instant::now();
        graph
            .apply(0, offset, &[version(offset)], next)
            .await
            .unwrap();
        times.push(began.elapsed());
    }
    println!("one version a batch: p50 {:?}", percentile(&mut times, 50));
    let rows = graph
        .rows(OwnerScope::of_log_record(owner(0)))
        .await
        .unwrap();
    assert_eq!(rows.len() as u64, count / OWNERS + 1);
}
