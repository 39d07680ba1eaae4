//! How soon is the owner of a record that nobody can read parked, and do the others notice?

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anamnesis_domain::ids::OwnerKey;
use anamnesis_domain::input::Topic;
use anamnesis_pipeline::log::{NewRecord, partition_of};
use anyhow::{Context as _, ensure};
use clap::Args;
use reqwest::Client;
use serde_json::Value;

use crate::corpus::Corpus;
use crate::probe::{Probe, Probes, owners};
use crate::report::{Latencies, machine};
use crate::{Target, open};

/// Between two looks: so much a figure may be too high.
const LOOK_EVERY: Duration = Duration::from_millis(10);
const GIVEN_UP_AFTER: Duration = Duration::from_secs(60);
/// Of the others' writes, before the first poison.
const CALM: Duration = Duration::from_secs(10);

#[derive(Args)]
pub(crate) struct PoisonArgs {
    #[command(flatten)]
    target: Target,
    /// The configuration of the services, which names Kafka. Use a log of its own: its owners stay parked.
    #[arg(long)]
    config: PathBuf,
    #[arg(long, default_value_t = 20)]
    records: usize,
}

pub(crate) async fn run(args: PoisonArgs) -> anyhow::Result<()> {
    let scratch = tempfile::tempdir()?;
    let base = open(&args.config, scratch.path()).await?;
    let client = Client::new();
    let corpus = Corpus::new(args.target.seed, args.target.owners);
    let url = &args.target.url;
    let bystanders = owners(&client, url, &corpus, base.log.partitions()).await?;
    let name = format!("poison-{}", args.target.seed);
    let probes = Probes::start(url, &bystanders, &name);
    tokio::time::sleep(CALM).await;

    let first = Instant::now();
    let mut parking = Latencies::default();
    for number in 0..args.records {
        let before = parked(&client, &args.target).await?;
        // Nobody's key: an owner who never was, in a partition that everybody shares.
        let key = OwnerKey::from_bytes((0xbad_0000 + number as u128).to_be_bytes());
        let partition = partition_of(key, base.log.partitions());
        let record = NewRecord {
            key,
            payload: vec![0xff; 100].into(),
        };
        let appended = Instant::now();
        base.log
            .append(Topic::Conversation, partition, vec![record])
            .await?;
        while parked(&client, &args.target).await? == before {
            ensure!(
                appended.elapsed() < GIVEN_UP_AFTER,
                "nobody was parked within {GIVEN_UP_AFTER:?}"
            );
            tokio::time::sleep(LOOK_EVERY).await;
        }
        parking.push(appended.elapsed());
    }
    let seen: Vec<Probe> = probes.stop().await?.into_iter().flatten().collect();
    let mut taken: BTreeMap<&str, Latencies> = BTreeMap::new();
    for probe in seen {
        let when = if probe.sent < first {
            "before"
        } else {
            "meanwhile"
        };
        taken.entry(when).or_default().push(probe.taken);
    }
    println!("machine: {}", machine());
    println!(
        "{} unreadable records, append to parked: {}",
        args.records,
        parking.summary()
    );
    for (when, latencies) in taken {
        println!(
            "others, write to recallable, {when}: {}",
            latencies.summary()
        );
    }
    Ok(())
}

/// Owners who are parked.
async fn parked(client: &Client, target: &Target) -> anyhow::Result<u64> {
    let url = format!("{}/v1/audit/balance", target.recall_url());
    let balance: Value = client.get(url).send().await?.json().await?;
    balance["parked"]
        .as_u64()
        .context("a balance says who is parked")
}
