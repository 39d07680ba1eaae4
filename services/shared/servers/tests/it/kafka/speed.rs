//! How fast is it here? Printed, not judged: machines differ. What is judged is that reading single
//! records does not read the log.

use std::time::Instant;

use anamnesis_domain::input::Topic;
use anamnesis_pipeline::log::{EventLog, NewRecord};

use super::broker::{Prefix, key, shared_brokers};

const RECORDS: u64 = 50_000;
const BATCH: u64 = 500;
const BYTES: usize = 1_000;

fn per_second(count: u64, began: Instant) -> u64 {
    (count as f64 / began.elapsed().as_secs_f64()) as u64
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn throughput() {
    let prefix = Prefix::new(&shared_brokers(), 1);
    let log = prefix.log().await;
    let topic = Topic::Conversation;
    let batch = || {
        let record = NewRecord {
            key: key(1),
            payload: vec![7; BYTES].into(),
        };
        vec![record; BATCH as usize]
    };
    let began = Instant::now();
    for _ in 0..RECORDS / BATCH {
        log.append(topic, 0, batch()).await.unwrap();
    }
    println!(
        "{} records/s appended, one batch of {BATCH} after the other",
        per_second(RECORDS, began)
    );

    let began = Instant::now();
    for _ in 0..200 {
        log.append(topic, 0, batch()[..1].to_vec()).await.unwrap();
    }
    println!("{:?} for one append of one record", began.elapsed() / 200);

    let end = log.end(topic, 0).await.unwrap();
    let began = Instant::now();
    let mut from = 0;
    while from < end {
        from += log.read(topic, 0, from, 500, 8 << 20).await.unwrap().len() as u64;
    }
    println!("{} records/s read", per_second(end, began));

    // Another process, which has read nothing.
    let other = prefix.connect().await;
    let sparse: Vec<u64> = (0..200).map(|n| 1 + n * 250).collect();
    let began = Instant::now();
    assert_eq!(other.read_at(topic, 0, &sparse).await.unwrap().len(), 200);
    println!(
        "{:?} for one record at its offset, times unknown",
        began.elapsed() / 200
    );
    let began = Instant::now();
    assert_eq!(log.read_at(topic, 0, &sparse).await.unwrap().len(), 200);
    println!(
        "{:?} for one record at its offset, times known",
        began.elapsed() / 200
    );
    let dense: Vec<u64> = (1..=500).collect();
    let began = Instant::now();
    assert_eq!(log.read_at(topic, 0, &dense).await.unwrap().len(), 500);
    println!(
        "{:?} for 500 adjacent records at their offsets",
        began.elapsed()
    );
}
