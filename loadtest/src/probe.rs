//! One write after the other to an owner of each partition: how long does each take until recall would
//! act on it, and which partition stands still?

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use reqwest::Client;
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use crate::call;
use crate::corpus::Corpus;

/// Between two writes of one partition.
const PAUSE: Duration = Duration::from_millis(20);
/// Owners that are tried until each partition has one.
const TRIED: usize = 1_000;

/// A write, from when it was sent until it was recallable.
#[derive(Clone, Copy)]
pub(crate) struct Probe {
    pub(crate) sent: Instant,
    pub(crate) taken: Duration,
}

/// Writers that go on until they are stopped.
pub(crate) struct Probes {
    is_over: Arc<AtomicBool>,
    writers: Vec<JoinHandle<anyhow::Result<Vec<Probe>>>>,
}

/// An event whose fact is stored by what it says.
fn event(owner: &str, id: &str, number: usize) -> Value {
    json!({
        "event_id": id,
        "owner": owner,
        "role": "user",
        "at": "2026-03-01T09:00:00+08:00",
        "text": format!("I take metformin {} mg daily.", 5 + number % 95),
    })
}

/// An owner for each partition, who has agreed.
pub(crate) async fn owners(
    client: &Client,
    url: &str,
    corpus: &Corpus,
    partitions: u32,
) -> anyhow::Result<BTreeMap<u32, String>> {
    let mut found = BTreeMap::new();
    for number in 0..TRIED {
        let owner = corpus.owner(number);
        let body = json!({"owner": owner, "max_sensitivity": 4});
        let answer = call(client, &format!("{url}/v1/consents"), &body).await?;
        let partition = answer["position"]["partition"]
            .as_u64()
            .context("a consent is answered with its position")?;
        found.entry(u32::try_from(partition)?).or_insert(owner);
        if found.len() == partitions as usize {
            return Ok(found);
        }
    }
    bail!("{TRIED} owners do not reach every partition")
}

impl Probes {
    pub(crate) fn start(url: &str, owners: &BTreeMap<u32, String>, name: &str) -> Self {
        let is_over = Arc::new(AtomicBool::new(false));
        let writers = owners.values().map(|owner| {
            let (url, owner, name) = (url.to_owned(), owner.clone(), name.to_owned());
            tokio::spawn(write(url, owner, name, is_over.clone()))
        });
        let writers = writers.collect();
        Self { is_over, writers }
    }

    /// What each partition's writer saw, in the order of their partitions.
    pub(crate) async fn stop(self) -> anyhow::Result<Vec<Vec<Probe>>> {
        self.is_over.store(true, Ordering::Relaxed);
        let mut seen = Vec::new();
        for writer in self.writers {
            seen.push(writer.await??);
        }
        Ok(seen)
    }
}

async fn write(
    url: String,
    owner: String,
    name: String,
    is_over: Arc<AtomicBool>,
) -> anyhow::Result<Vec<Probe>> {
    let client = Client::new();
    let url = format!("{url}/v1/events?wait=recallable");
    let mut seen = Vec::new();
    for number in 0.. {
        if is_over.load(Ordering::Relaxed) {
            break;
        }
        let sent = Instant::now();
        let id = format!("{name}-{number}");
        let answer = call(&client, &url, &event(&owner, &id, number)).await?;
        let taken = sent.elapsed();
        if answer["decided"] != json!(true) {
            eprintln!("a write of {owner} was not decided within {taken:?}");
        }
        seen.push(Probe { sent, taken });
        tokio::time::sleep(PAUSE).await;
    }
    Ok(seen)
}
