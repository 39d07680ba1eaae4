//! Asks at a fixed rate whatever the answers take, and says what became of each question: answered as a
//! whole, in part (`degraded` says `overload`), refused (503 `overloaded`), or neither. When more was asked
//! than can be answered: how soon all is as before, and whether what protects was in the answers in part.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use anyhow::bail;
use clap::Args;
use reqwest::Client;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::Target;
use crate::corpus::Corpus;
use crate::report::{Latencies, machine, resident_mib};

/// Answers in part that are looked at again.
const LOOKED_AT_MAX: usize = 300;

/// Whole answers in a row after which all is as before; one every tenth of a second.
const AS_BEFORE: usize = 20;

/// After this it never will be.
const RECOVERY_MAX: Duration = Duration::from_secs(60);

#[derive(Args)]
pub(crate) struct RecallArgs {
    #[command(flatten)]
    target: Target,
    /// Questions per second.
    #[arg(long, default_value_t = 200.0)]
    rate: f64,
    #[arg(long, default_value_t = 30)]
    seconds: u64,
}

/// What became of a question.
enum Outcome {
    Whole {
        is_answerable: bool,
    },
    /// With the ids of what protects.
    InPart(BTreeSet<String>),
    Refused,
    /// With the status, or none when there was no answer.
    Failed(Option<u16>),
}

#[derive(Default)]
struct Tally {
    all: Latencies,
    whole: Latencies,
    in_part: Latencies,
    refused: Latencies,
    answerable: usize,
    failed: usize,
    unanswered: usize,
    /// Questions by their number, with what protects in the answer.
    looked_at: Vec<(usize, BTreeSet<String>)>,
}

impl Tally {
    fn count(&mut self, (number, taken, outcome): (usize, Duration, Outcome)) {
        self.all.push(taken);
        match outcome {
            Outcome::Whole { is_answerable } => {
                self.whole.push(taken);
                self.answerable += usize::from(is_answerable);
            }
            Outcome::InPart(protected) => {
                self.in_part.push(taken);
                if self.looked_at.len() < LOOKED_AT_MAX {
                    self.looked_at.push((number, protected));
                }
            }
            Outcome::Refused => self.refused.push(taken),
            Outcome::Failed(Some(_)) => self.failed += 1,
            Outcome::Failed(None) => self.unanswered += 1,
        }
    }
}

pub(crate) async fn run(args: RecallArgs) -> anyhow::Result<()> {
    let client = Client::builder().pool_max_idle_per_host(256).build()?;
    let corpus = Corpus::new(args.target.seed, args.target.owners);
    let url = format!("{}/v1/recall", args.target.recall_url());
    let total = (args.rate * args.seconds as f64) as usize;
    let interval = Duration::from_secs_f64(1.0 / args.rate);
    let started = Instant::now();
    let mut tasks: JoinSet<(usize, Duration, Outcome)> = JoinSet::new();
    let mut tally = Tally::default();
    for n in 0..total {
        let due = started + interval * n as u32;
        tokio::time::sleep_until(due.into()).await;
        let (client, url, body) = (client.clone(), url.clone(), corpus.question(n));
        // From when it was due, not from when it was sent: waiting counts.
        tasks.spawn(async move {
            let outcome = ask(&client, &url, &body).await;
            (n, due.elapsed(), outcome)
        });
        while let Some(done) = tasks.try_join_next() {
            tally.count(done?);
        }
    }
    while let Some(done) = tasks.join_next().await {
        tally.count(done?);
    }
    println!("machine: {}", machine());
    println!(
        "{total} recalls at {}/s over {} owners: {}, {} failed, {} unanswered, {} answerable",
        args.rate,
        args.target.owners,
        tally.all.summary(),
        tally.failed,
        tally.unanswered,
        tally.answerable
    );
    for (name, latencies) in [
        ("whole", &tally.whole),
        ("in part", &tally.in_part),
        ("refused", &tally.refused),
    ] {
        println!("{} {name}: {}", latencies.len(), latencies.summary());
    }
    if tally.in_part.len() + tally.refused.len() > 0 {
        let recovered = recovered(&client, &url, &corpus).await?;
        println!("as before after {:.1} s", recovered.as_secs_f64());
        compare(&client, &url, &corpus, &tally.looked_at).await?;
    }
    if let Some(pid) = args.target.pid {
        println!("resident memory of the node: {} MiB", resident_mib(pid)?);
    }
    Ok(())
}

async fn ask(client: &Client, url: &str, body: &Value) -> Outcome {
    let Ok(response) = client.post(url).json(body).send().await else {
        return Outcome::Failed(None);
    };
    let status = response.status();
    let Ok(answer) = response.json::<Value>().await else {
        return Outcome::Failed(None);
    };
    if !status.is_success() {
        return match answer["code"].as_str() {
            Some("overloaded") => Outcome::Refused,
            Some(_) | None => Outcome::Failed(Some(status.as_u16())),
        };
    }
    let degraded = answer["degraded"].as_array();
    if degraded.is_some_and(|parts| parts.contains(&json!("overload"))) {
        return Outcome::InPart(protected(&answer));
    }
    Outcome::Whole {
        is_answerable: answer["answerable"].as_bool() == Some(true),
    }
}

fn protected(answer: &Value) -> BTreeSet<String> {
    let memories = answer["memories"].as_array().map_or(&[][..], Vec::as_slice);
    memories
        .iter()
        .filter(|memory| memory["protected"] == true)
        .filter_map(|memory| Some(memory["id"].as_str()?.to_owned()))
        .collect()
}

/// How long until answers are whole again and stay so.
async fn recovered(client: &Client, url: &str, corpus: &Corpus) -> anyhow::Result<Duration> {
    let started = Instant::now();
    let (mut since, mut in_a_row) = (started, 0);
    for n in 0.. {
        if started.elapsed() > RECOVERY_MAX {
            bail!("answers were not whole again within {RECOVERY_MAX:?}");
        }
        if let Outcome::Whole { .. } = ask(client, url, &corpus.question(n)).await {
            in_a_row += 1;
            if in_a_row == AS_BEFORE {
                break;
            }
        } else {
            in_a_row = 0;
            since = Instant::now();
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    Ok(since.duration_since(started))
}

/// Asks again at rest: had an answer in part what protects?
async fn compare(
    client: &Client,
    url: &str,
    corpus: &Corpus,
    looked_at: &[(usize, BTreeSet<String>)],
) -> anyhow::Result<()> {
    let (mut with_any, mut had_any, mut all, mut had) = (0, 0, 0, 0);
    for (number, in_part) in looked_at {
        let answer = crate::call(client, url, &corpus.question(*number)).await?;
        let whole = protected(&answer);
        if whole.is_empty() {
            continue;
        }
        with_any += 1;
        had_any += usize::from(!in_part.is_empty());
        all += whole.len();
        had += whole.intersection(in_part).count();
    }
    println!(
        "of {} answers in part {with_any} have something that protects in the whole answer: {had_any} had \
         something that protects, {had} of {all} memories were the same",
        looked_at.len()
    );
    Ok(())
}
