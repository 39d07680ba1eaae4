//! How long after it was decided does recall find a memory, while events come at a fixed rate?

use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use chrono::{DateTime, Utc};
use clap::Args;
use reqwest::Client;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::corpus::Corpus;
use crate::report::{Latencies, machine};
use crate::{Target, call, grant, wait_until_stored};

/// Between two questions for a memory that is not found yet: so much a figure may be too high.
const ASK_EVERY: Duration = Duration::from_millis(20);
const GIVEN_UP_AFTER: Duration = Duration::from_secs(60);

#[derive(Args)]
pub(crate) struct RecallableArgs {
    #[command(flatten)]
    target: Target,
    /// Events per second.
    #[arg(long, default_value_t = 200.0)]
    rate: f64,
    #[arg(long, default_value_t = 60)]
    seconds: u64,
    /// One write in so many is looked for.
    #[arg(long, default_value_t = 100)]
    every: usize,
}

/// How long it took from its decision, and from when it was due.
type Found = (Duration, Duration);

pub(crate) async fn run(args: RecallableArgs) -> anyhow::Result<()> {
    let client = Client::builder().pool_max_idle_per_host(256).build()?;
    let corpus = Corpus::new(args.target.seed, args.target.owners);
    grant(&client, &corpus, &args.target).await?;
    wait_until_stored(&client, args.target.recall_url()).await?;

    let total = (args.rate * args.seconds as f64) as usize;
    let interval = Duration::from_secs_f64(1.0 / args.rate);
    let started = Instant::now();
    let mut writes: JoinSet<anyhow::Result<Option<Found>>> = JoinSet::new();
    let (mut since_decided, mut since_due) = (Latencies::default(), Latencies::default());
    for n in 0..total {
        let due = started + interval * n as u32;
        tokio::time::sleep_until(due.into()).await;
        let (client, target) = (client.clone(), args.target.clone());
        if n % args.every == 0 {
            let owner = corpus.owner(n / args.every % args.target.owners);
            let number = format!("{}-{n}", args.target.seed);
            writes.spawn(async move { sought(client, target, owner, number, due).await.map(Some) });
        } else {
            let event = corpus.event(n);
            let url = format!("{}/v1/events", target.url);
            writes.spawn(async move { call(&client, &url, &event).await.map(|_| None) });
        }
        while let Some(done) = writes.try_join_next() {
            count(done??, &mut since_decided, &mut since_due);
        }
    }
    let asked = started.elapsed();
    while let Some(done) = writes.join_next().await {
        count(done??, &mut since_decided, &mut since_due);
    }
    println!("machine: {}", machine());
    println!(
        "{total} events in {:.1} s ({:.0}/s), one in {} looked for",
        asked.as_secs_f64(),
        total as f64 / asked.as_secs_f64(),
        args.every
    );
    println!("decision to recallable: {}", since_decided.summary());
    println!("due to recallable: {}", since_due.summary());
    Ok(())
}

fn count(found: Option<Found>, since_decided: &mut Latencies, since_due: &mut Latencies) {
    if let Some((decided, due)) = found {
        since_decided.push(decided);
        since_due.push(due);
    }
}

/// Writes a memory with a number of its own and asks until recall returns it.
async fn sought(
    client: Client,
    target: Target,
    owner: String,
    number: String,
    due: Instant,
) -> anyhow::Result<Found> {
    let text = format!("Locker number K-{number}");
    let write = json!({"owner": owner, "text": text, "kind": "fact"});
    let answer = call(&client, &format!("{}/v1/remember", target.url), &write).await?;
    let memory = answer["memory_id"].clone();
    ensure!(
        memory.is_string(),
        "a write is answered with its memory's id"
    );
    let question = json!({"owner": owner, "query": format!("locker number K-{number}")});
    let url = format!("{}/v1/recall", target.recall_url());
    loop {
        let answer = call(&client, &url, &question).await?;
        let found = Utc::now();
        let memories = answer["memories"].as_array().map_or(&[][..], Vec::as_slice);
        if let Some(record) = memories.iter().find(|record| is(record, &memory)) {
            let decided = record["recorded_at"].as_str().context("recorded_at")?;
            let decided = DateTime::parse_from_rfc3339(decided)?.to_utc();
            return Ok((
                (found - decided).to_std().unwrap_or_default(),
                due.elapsed(),
            ));
        }
        ensure!(
            due.elapsed() < GIVEN_UP_AFTER,
            "a memory was not found within {GIVEN_UP_AFTER:?}"
        );
        tokio::time::sleep(ASK_EVERY).await;
    }
}

fn is(record: &Value, memory: &Value) -> bool {
    record["id"] == *memory
}
