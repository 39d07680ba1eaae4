//! How long does any partition stand still when members of a group come and go?

use std::path::PathBuf;
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use clap::Args;
use reqwest::Client;
use tokio::process::{Child, Command};

use crate::corpus::Corpus;
use crate::probe::{Probe, Probes, owners};
use crate::report::{Latencies, machine};
use crate::{Target, open};

/// Writes before the first member comes, by which the rest is judged.
const CALM: Duration = Duration::from_secs(10);
/// After a member came or went: its partitions have moved by then.
const MOVED: Duration = Duration::from_secs(3);
const READY: Duration = Duration::from_secs(60);
const SERVICES: [&str; 2] = ["extractor", "validity-manager"];

#[derive(Args)]
pub(crate) struct JoinsArgs {
    #[command(flatten)]
    target: Target,
    /// The configuration of the services.
    #[arg(long)]
    config: PathBuf,
    /// The program that joins as a second extractor and a second validity-manager in turn.
    #[arg(long)]
    binary: PathBuf,
    /// Joins and leaves in all.
    #[arg(long, default_value_t = 100)]
    changes: usize,
}

pub(crate) async fn run(args: JoinsArgs) -> anyhow::Result<()> {
    let scratch = tempfile::tempdir()?;
    // Not kept: its clients would take part of what is measured.
    let partitions = open(&args.config, &scratch.path().join("asking"))
        .await?
        .log
        .partitions();
    let client = Client::new();
    let corpus = Corpus::new(args.target.seed, args.target.owners);
    let owners = owners(&client, &args.target.url, &corpus, partitions).await?;
    let name = format!("joins-{}", args.target.seed);
    let probes = Probes::start(&args.target.url, &owners, &name);
    tokio::time::sleep(CALM).await;

    let mut changes = Vec::new();
    let mut member: Option<Child> = None;
    for number in 0..args.changes {
        let began = Instant::now();
        match member.take() {
            Some(child) => leave(child).await?,
            None => {
                let service = SERVICES[number / 2 % SERVICES.len()];
                let folder = scratch.path().join(format!("{service}-{number}"));
                member = Some(join(&args, service, folder).await?);
            }
        }
        tokio::time::sleep(MOVED).await;
        changes.push((began, Instant::now()));
    }
    if let Some(child) = member {
        leave(child).await?;
    }
    let seen = probes.stop().await?;

    let first = changes.first().map(|(began, _)| *began);
    let mut calm = Latencies::default();
    let before = |probe: &&Probe| first.is_some_and(|first| probe.sent + probe.taken < first);
    for probe in seen.iter().flatten().filter(before) {
        calm.push(probe.taken);
    }
    // The longest that any partition's writer waited, of the writes that were under way meanwhile.
    let mut pauses = Latencies::default();
    for (number, (began, ended)) in changes.iter().enumerate() {
        let meanwhile = |probe: &&Probe| probe.sent < *ended && probe.sent + probe.taken > *began;
        let longest = seen
            .iter()
            .flatten()
            .filter(meanwhile)
            .map(|p| p.taken)
            .max();
        let longest = longest.context("every change is met by some write")?;
        let service = SERVICES[number / 2 % SERVICES.len()];
        let what = ["joins", "leaves"][number % 2];
        println!("{number}: {service} {what}: {} ms", longest.as_millis());
        pauses.push(longest);
    }
    println!("machine: {}", machine());
    println!("{} partitions, a write in each all the time", seen.len());
    println!("write to recallable before: {}", calm.summary());
    println!(
        "longest of any partition around each of {} joins and leaves: {}",
        changes.len(),
        pauses.summary()
    );
    Ok(())
}

async fn join(args: &JoinsArgs, service: &str, folder: PathBuf) -> anyhow::Result<Child> {
    let port = std::net::TcpListener::bind("127.0.0.1:0")?
        .local_addr()?
        .port();
    let address = format!("127.0.0.1:{port}");
    let child = Command::new(&args.binary)
        .args([service, "--listen", &address, "--config"])
        .arg(&args.config)
        .arg("--data")
        .arg(folder)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .context("the program cannot be started")?;
    let (client, url) = (Client::new(), format!("http://{address}/readyz"));
    let began = Instant::now();
    while began.elapsed() < READY {
        let answer = client.get(&url).send().await;
        if answer.is_ok_and(|answer| answer.status().is_success()) {
            return Ok(child);
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    bail!("a second {service} was not ready within {READY:?}")
}

/// SIGTERM, as an orchestrator does it.
async fn leave(mut child: Child) -> anyhow::Result<()> {
    let pid = child.id().context("the member ended by itself")?;
    let sent = Command::new("kill").arg(pid.to_string()).status().await?;
    ensure!(sent.success(), "the member could not be told to end");
    let ended = child.wait().await?;
    ensure!(ended.success(), "the member ended with {ended}");
    Ok(())
}
