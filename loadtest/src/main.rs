//! Load on a running node, from outside: fills it, then asks at a fixed rate whatever the answers take
//! (open loop, so a slow answer delays no later question and is not hidden). Figures are printed with
//! the machine they were taken on.

mod append;
mod corpus;
mod inbox;
mod joins;
mod poison;
mod probe;
mod recall;
mod recallable;
mod report;

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anamnesis::base::Base;
use anamnesis::config::{Config, Flags};
use anamnesis_pipeline::clock::SystemClock;
use anyhow::{Context as _, bail};
use clap::{Args, Parser, Subcommand};
use reqwest::Client;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::corpus::Corpus;
use crate::report::{machine, resident_mib};

#[derive(Parser)]
#[command(name = "loadtest", version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Write events of many owners and wait until all are stored.
    Fill(FillArgs),
    /// Ask at a fixed rate.
    Recall(recall::RecallArgs),
    /// Write events to `inbox` in Kafka as platforms do, and wait until all are stored.
    Inbox(inbox::InboxArgs),
    /// Write at a fixed rate, and ask for some of it until recall finds it.
    Recallable(recallable::RecallableArgs),
    /// Let members of a group come and go beside writes in every partition.
    Joins(joins::JoinsArgs),
    /// Append many records and report the size of the process.
    Append(append::AppendArgs),
    /// Append records that nobody can read beside writes of others.
    Poison(poison::PoisonArgs),
}

#[derive(Args, Clone)]
struct Target {
    /// Address of a running node; of its intake, when services run apart.
    #[arg(long, default_value = "http://127.0.0.1:7700")]
    url: String,
    /// Address of its recall, when services run apart.
    #[arg(long)]
    recall_url: Option<String>,
    /// Process whose memory is reported.
    #[arg(long)]
    pid: Option<u32>,
    #[arg(long, default_value_t = 1)]
    seed: u64,
    #[arg(long, default_value_t = 1_000)]
    owners: usize,
}

#[derive(Args)]
struct FillArgs {
    #[command(flatten)]
    target: Target,
    #[arg(long, default_value_t = 50_000)]
    events: usize,
    /// Events per call.
    #[arg(long, default_value_t = 500)]
    batch: usize,
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    // Also without TLS the client wants to know who would compute it; the first to say so is heard.
    let _ = rustls::crypto::ring::default_provider().install_default();
    match Cli::parse().command {
        Command::Fill(args) => fill(args).await,
        Command::Recall(args) => recall::run(args).await,
        Command::Inbox(args) => inbox::run(args).await,
        Command::Recallable(args) => recallable::run(args).await,
        Command::Joins(args) => joins::run(args).await,
        Command::Append(args) => append::run(args).await,
        Command::Poison(args) => poison::run(args).await,
    }
}

impl Target {
    fn recall_url(&self) -> &str {
        self.recall_url.as_deref().unwrap_or(&self.url)
    }
}

async fn call(client: &Client, url: &str, body: &Value) -> anyhow::Result<Value> {
    let response = client
        .post(url)
        .json(body)
        .send()
        .await
        .context("the node does not answer")?;
    let status = response.status();
    let answer: Value = response.json().await.context("the answer is not JSON")?;
    if !status.is_success() {
        bail!("{status}: {}", answer["code"]);
    }
    Ok(answer)
}

/// The log that a configuration of the services names, opened beside them with a folder of its own.
async fn open(config: &Path, data: &Path) -> anyhow::Result<Base> {
    let flags = Flags {
        data_dir: Some(data.to_owned()),
        listen: None,
    };
    let config = Config::load(Some(config), &flags)?;
    Ok(Base::open(config, Arc::new(SystemClock)).await?)
}

/// Every owner agrees.
async fn grant(client: &Client, corpus: &Corpus, target: &Target) -> anyhow::Result<()> {
    let granting = Instant::now();
    let mut grants: JoinSet<anyhow::Result<()>> = JoinSet::new();
    for owner in 0..target.owners {
        let (client, url) = (client.clone(), format!("{}/v1/consents", target.url));
        let body = json!({"owner": corpus.owner(owner), "max_sensitivity": 4});
        grants.spawn(async move { call(&client, &url, &body).await.map(|_| ()) });
        if grants.len() >= 64
            && let Some(done) = grants.join_next().await
        {
            done??;
        }
    }
    while let Some(done) = grants.join_next().await {
        done??;
    }
    println!(
        "{} grants in {:.1} s",
        target.owners,
        granting.elapsed().as_secs_f64()
    );
    Ok(())
}

async fn fill(args: FillArgs) -> anyhow::Result<()> {
    let client = Client::new();
    let corpus = Corpus::new(args.target.seed, args.target.owners);
    let url = &args.target.url;
    grant(&client, &corpus, &args.target).await?;
    let started = Instant::now();
    let mut sent = 0;
    while sent < args.events {
        let count = args.batch.min(args.events - sent);
        let events: Vec<Value> = (sent..sent + count).map(|n| corpus.event(n)).collect();
        let answer = call(&client, &format!("{url}/v1/events"), &Value::Array(events)).await?;
        if let Some(rejected) = answer["rejected"].as_array().and_then(|list| list.first()) {
            bail!("an event was rejected: {}", rejected["code"]);
        }
        sent += count;
    }
    let accepted = started.elapsed();
    wait_until_stored(&client, args.target.recall_url()).await?;
    let stored = started.elapsed();
    println!("machine: {}", machine());
    println!(
        "{sent} events accepted in {:.1} s ({:.0}/s), stored in {:.1} s ({:.0}/s)",
        accepted.as_secs_f64(),
        sent as f64 / accepted.as_secs_f64(),
        stored.as_secs_f64(),
        sent as f64 / stored.as_secs_f64()
    );
    if let Some(pid) = args.target.pid {
        println!("resident memory of the node: {} MiB", resident_mib(pid)?);
    }
    Ok(())
}

/// Waits until the balance has nothing in flight.
async fn wait_until_stored(client: &Client, url: &str) -> anyhow::Result<()> {
    let deadline = Instant::now() + Duration::from_secs(3_600);
    while Instant::now() < deadline {
        let ready = client.get(format!("{url}/readyz")).send().await?;
        let behind: Value = ready.json().await?;
        let is_behind = behind["behind_records"]
            .as_object()
            .is_none_or(|stores| stores.values().any(|records| records.as_u64() != Some(0)));
        // A balance reads the log: only when it may be what is waited for.
        if !is_behind {
            let response = client.get(format!("{url}/v1/audit/balance")).send().await?;
            let balance: Value = response.json().await?;
            if balance["in_flight"].as_u64() == Some(0) {
                return Ok(());
            }
        }
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    bail!("not everything was stored within an hour")
}
