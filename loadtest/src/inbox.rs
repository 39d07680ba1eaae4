//! How many events a second go from `inbox` to memories?

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anamnesis::base::Base;
use anamnesis_domain::ids::OwnerKey;
use anamnesis_domain::input::Topic;
use anamnesis_pipeline::log::NewRecord;
use anyhow::Context as _;
use clap::Args;
use reqwest::Client;
use serde_json::Value;

use crate::corpus::Corpus;
use crate::report::machine;
use crate::{Target, grant, open, wait_until_stored};

/// Between two looks whether all is decided: so much a figure may be too high.
const LOOK_EVERY: Duration = Duration::from_millis(200);
const SAID_EVERY: Duration = Duration::from_secs(5);

/// Records of one append.
const BATCH: usize = 500;

#[derive(Args)]
pub(crate) struct InboxArgs {
    #[command(flatten)]
    target: Target,
    /// The configuration of the services, which names Kafka.
    #[arg(long)]
    config: PathBuf,
    #[arg(long, default_value_t = 60_000)]
    events: usize,
}

pub(crate) async fn run(args: InboxArgs) -> anyhow::Result<()> {
    let scratch = tempfile::tempdir()?;
    let base = open(&args.config, scratch.path()).await?;
    let client = Client::new();
    let corpus = Corpus::new(args.target.seed, args.target.owners);
    grant(&client, &corpus, &args.target).await?;
    wait_until_stored(&client, args.target.recall_url()).await?;
    let decided = ends(&base, Topic::Memories).await?;

    let started = Instant::now();
    for (number, from) in (0..args.events).step_by(BATCH).enumerate() {
        let to = args.events.min(from + BATCH);
        let records = (from..to).map(|n| record(n, &corpus.event(n)));
        let partition = number as u32 % base.log.partitions();
        base.log
            .append(Topic::Inbox, partition, records.collect())
            .await?;
    }
    let written = started.elapsed();
    let mut last = (Instant::now(), decided);
    loop {
        let now = (Instant::now(), ends(&base, Topic::Memories).await?);
        let seconds = (now.0 - last.0).as_secs_f64();
        if seconds >= SAID_EVERY.as_secs_f64() {
            println!(
                "{:.0} s: {:.0} decisions/s",
                started.elapsed().as_secs_f64(),
                (now.1 - last.1) as f64 / seconds
            );
            last = now;
        }
        if now.1 - decided >= args.events as u64 {
            break;
        }
        anyhow::ensure!(
            started.elapsed() < Duration::from_secs(3_600),
            "not everything was decided within an hour"
        );
        tokio::time::sleep(LOOK_EVERY).await;
    }
    let decided = started.elapsed();
    wait_until_stored(&client, args.target.recall_url()).await?;
    let stored = started.elapsed();
    println!("machine: {}", machine());
    let rate = |taken: Duration| args.events as f64 / taken.as_secs_f64();
    println!(
        "{} events written in {:.1} s, decided in {:.1} s ({:.0}/s), in every store in {:.1} s ({:.0}/s)",
        args.events,
        written.as_secs_f64(),
        decided.as_secs_f64(),
        rate(decided),
        stored.as_secs_f64(),
        rate(stored)
    );
    Ok(())
}

/// An event as a platform writes it, under a key of its own.
pub(crate) fn record(n: usize, event: &Value) -> NewRecord {
    NewRecord {
        key: OwnerKey::from_bytes((n as u128).to_be_bytes()),
        payload: event.to_string().into(),
    }
}

async fn ends(base: &Base, topic: Topic) -> anyhow::Result<u64> {
    let mut sum = 0;
    for partition in 0..base.log.partitions() {
        sum += base.log.end(topic, partition).await.context("the log")?;
    }
    Ok(sum)
}
