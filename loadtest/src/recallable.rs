//! How long after it was decided does recall find a memory, while events come at a fixed rate?

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anamnesis_domain::input::Topic;
use anyhow::{Context as _, ensure};
use chrono::{DateTime, Utc};
use clap::Args;
use reqwest::{Client, StatusCode};
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::corpus::Corpus;
use crate::report::{Latencies, machine};
use crate::{Target, grant, inbox, open, wait_until_stored};

/// Between two questions for a memory that is not found yet: so much a figure may be too high.
const ASK_EVERY: Duration = Duration::from_millis(20);
const GIVEN_UP_AFTER: Duration = Duration::from_secs(60);
/// Before the same is sent again.
const REFUSED_PAUSE: Duration = Duration::from_millis(200);

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
    /// The configuration of the services: what is not looked for goes to `inbox` in Kafka, as platforms
    /// do it, instead of one call each.
    #[arg(long)]
    config: Option<PathBuf>,
}

/// What became of one write.
#[derive(Default)]
struct Written {
    /// Answers of 503 before the one that counted: to the write and to the questions for it.
    refused: usize,
    found: Option<Found>,
}

/// How long it took from its decision, and from when it was due, until the answer that has it; and how long the
/// legs of that answer took, the slower of text and vectors and then the graph.
struct Found {
    since_decided: Duration,
    since_due: Duration,
    legs: Duration,
}

#[derive(Default)]
struct Counts {
    since_decided: Latencies,
    since_due: Latencies,
    legs: Latencies,
    refused: usize,
    writes_refused: usize,
}

impl Counts {
    fn take(&mut self, written: Written) {
        self.refused += written.refused;
        self.writes_refused += usize::from(written.refused > 0);
        if let Some(found) = written.found {
            self.since_decided.push(found.since_decided);
            self.since_due.push(found.since_due);
            self.legs.push(found.legs);
        }
    }
}

pub(crate) async fn run(args: RecallableArgs) -> anyhow::Result<()> {
    let client = Client::builder().pool_max_idle_per_host(256).build()?;
    let corpus = Corpus::new(args.target.seed, args.target.owners);
    grant(&client, &corpus, &args.target).await?;
    wait_until_stored(&client, args.target.recall_url()).await?;

    let scratch = tempfile::tempdir()?;
    let log = match &args.config {
        Some(config) => Some(open(config, scratch.path()).await?.log),
        None => None,
    };
    let total = (args.rate * args.seconds as f64) as usize;
    let interval = Duration::from_secs_f64(1.0 / args.rate);
    let started = Instant::now();
    let mut writes: JoinSet<anyhow::Result<Written>> = JoinSet::new();
    let mut counts = Counts::default();
    for n in 0..total {
        let due = started + interval * n as u32;
        tokio::time::sleep_until(due.into()).await;
        let (client, target) = (client.clone(), args.target.clone());
        if n % args.every == 0 {
            let owner = corpus.owner(n / args.every % args.target.owners);
            let number = format!("{}-{n}", args.target.seed);
            writes.spawn(sought(client, target, owner, number, due));
        } else {
            let event = corpus.event(n);
            if let Some(log) = &log {
                let log = log.clone();
                writes.spawn(async move {
                    let partition = n as u32 % log.partitions();
                    log.append(Topic::Inbox, partition, vec![inbox::record(n, &event)])
                        .await?;
                    Ok(Written::default())
                });
                continue;
            }
            let url = format!("{}/v1/events", target.url);
            writes.spawn(async move {
                let (_, refused) = insist(&client, &url, &event, due).await?;
                let found = None;
                Ok(Written { refused, found })
            });
        }
        while let Some(done) = writes.try_join_next() {
            counts.take(done??);
        }
    }
    let asked = started.elapsed();
    while let Some(done) = writes.join_next().await {
        counts.take(done??);
    }
    println!("machine: {}", machine());
    println!(
        "{total} events of {} owners in {:.1} s ({:.0}/s), one in {} looked for",
        args.target.owners,
        asked.as_secs_f64(),
        total as f64 / asked.as_secs_f64(),
        args.every
    );
    println!(
        "refused with 503 and sent again: {} of {total} writes, {} answers in all",
        counts.writes_refused, counts.refused
    );
    println!("decision to recallable: {}", counts.since_decided.summary());
    println!("due to recallable: {}", counts.since_due.summary());
    println!("of it the legs of the answer: {}", counts.legs.summary());
    Ok(())
}

/// Sends the same again while it is refused as unavailable. Gives the answer and how often it was refused.
async fn insist(
    client: &Client,
    url: &str,
    body: &Value,
    due: Instant,
) -> anyhow::Result<(Value, usize)> {
    let mut refused = 0;
    loop {
        let response = client.post(url).json(body).send().await?;
        let status = response.status();
        if status.is_success() {
            return Ok((response.json().await?, refused));
        }
        ensure!(status == StatusCode::SERVICE_UNAVAILABLE, "{url}: {status}");
        ensure!(
            due.elapsed() < GIVEN_UP_AFTER,
            "{url} is unavailable for {GIVEN_UP_AFTER:?}"
        );
        refused += 1;
        tokio::time::sleep(REFUSED_PAUSE).await;
    }
}

/// Writes a memory with a number of its own and asks until recall returns it.
async fn sought(
    client: Client,
    target: Target,
    owner: String,
    number: String,
    due: Instant,
) -> anyhow::Result<Written> {
    let text = format!("Locker number K-{number}");
    let write = json!({"owner": owner, "text": text, "kind": "fact"});
    let url = format!("{}/v1/remember", target.url);
    let (answer, mut refused) = insist(&client, &url, &write, due).await?;
    let memory = answer["memory_id"].clone();
    ensure!(
        memory.is_string(),
        "a write is answered with its memory's id"
    );
    // As an assistant does that has just written: recall waits, so that asking again and again is no part
    // of the load.
    let token = answer["token"].clone();
    ensure!(token.is_string(), "a write is answered with a token");
    let query = format!("locker number K-{number}");
    let question = json!({"owner": owner, "query": query, "wait_for": token});
    let url = format!("{}/v1/recall", target.recall_url());
    loop {
        let (answer, more) = insist(&client, &url, &question, due).await?;
        refused += more;
        let found = Utc::now();
        let memories = answer["memories"].as_array().map_or(&[][..], Vec::as_slice);
        if let Some(record) = memories.iter().find(|record| is(record, &memory)) {
            let decided = record["recorded_at"].as_str().context("recorded_at")?;
            let decided = DateTime::parse_from_rfc3339(decided)?.to_utc();
            let found = Found {
                since_decided: (found - decided).to_std().unwrap_or_default(),
                since_due: due.elapsed(),
                legs: legs(&answer["legs"]),
            };
            return Ok(Written {
                refused,
                found: Some(found),
            });
        }
        ensure!(
            due.elapsed() < GIVEN_UP_AFTER,
            "a memory was not found within {GIVEN_UP_AFTER:?}"
        );
        tokio::time::sleep(ASK_EVERY).await;
    }
}

/// How long the legs of an answer took.
fn legs(legs: &Value) -> Duration {
    let ms = |leg: &str| legs[leg]["ms"].as_f64().unwrap_or_default();
    Duration::from_secs_f64((ms("text").max(ms("vector")) + ms("graph")) / 1e3)
}

fn is(record: &Value, memory: &Value) -> bool {
    record["id"] == *memory
}
