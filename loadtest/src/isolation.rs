//! Does any question bring what somebody else said? Hundreds of patients of several hospitals who share
//! ids, names, drugs and sentences are remembered by the real services over the real stores of a folder;
//! then drawn questions, many of them hostile, are asked of the calls of recall, and of each store
//! without the authority behind it. What belongs to whom is taken from the log, not from a store.

mod crowd;
mod dice;
mod questions;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use anamnesis::config::{Config, ConsentDefault, Period};
use anamnesis::node::Node;
use anamnesis_domain::ids::{Hash, MemoryId, OwnerKey};
use anamnesis_domain::memory::{Entity, Status};
use anamnesis_domain::owner::{Owner, OwnerScope};
use anamnesis_domain::time::Known;
use anamnesis_domain::tokens::query_tokens;
use anamnesis_pipeline::caller::{Caller, CallerRole, Callers, TokenConfig};
use anamnesis_pipeline::embedder::Purpose;
use anamnesis_pipeline::stores::{Filter, Order, SubjectFilter};
use anyhow::{Context as _, bail, ensure};
use axum::Router;
use axum::body::{Body, to_bytes};
use axum::http::Request;
use clap::Args;
use serde_json::Value;
use tokio::task::JoinSet;
use tower::ServiceExt as _;

use self::crowd::{Crowd, TENANTS, mark};
use self::dice::Dice;
use self::questions::{Call, Question, question};
use crate::report::machine;

/// Questions on their way at a time: more than there are processors, so that owners are asked about side
/// by side.
const AT_ONCE: usize = 16;
/// One question in so many is asked of the stores themselves as well.
const STORES_EVERY: usize = 16;
/// Longest answer that is read.
const ANSWER_BYTES_MAX: usize = 16 << 20;

#[derive(Args)]
pub(crate) struct IsolationArgs {
    #[arg(long, default_value_t = 1_000_000)]
    queries: usize,
    /// Patients of each of four hospitals.
    #[arg(long, default_value_t = 100)]
    patients: usize,
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

pub(crate) async fn run(args: IsolationArgs) -> anyhow::Result<()> {
    let scratch = tempfile::tempdir()?;
    let crowd = Crowd {
        seed: args.seed,
        patients: args.patients.max(2),
    };
    let started = Instant::now();
    let ward = Arc::new(Ward::fill(scratch.path(), crowd).await?);
    println!("machine: {}", machine());
    println!(
        "{} owners in {} tenants, {} memories, remembered in {:.1} s",
        crowd.len(),
        TENANTS.len(),
        ward.memories.iter().map(Vec::len).sum::<usize>(),
        started.elapsed().as_secs_f64()
    );
    ward.check_the_judge().await?;

    let asking = Instant::now();
    let (next, counts) = (Arc::new(AtomicUsize::new(0)), Arc::new(Counts::default()));
    let mut askers: JoinSet<anyhow::Result<()>> = JoinSet::new();
    for _ in 0..AT_ONCE {
        let (ward, next, counts) = (ward.clone(), next.clone(), counts.clone());
        askers.spawn(async move {
            loop {
                let n = next.fetch_add(1, Ordering::Relaxed);
                if n >= args.queries {
                    return Ok(());
                }
                ward.ask(n, &counts).await?;
                if n % STORES_EVERY == 0 {
                    ward.ask_stores(n, &counts).await?;
                }
            }
        });
    }
    while let Some(done) = askers.join_next().await {
        done??;
    }
    let seconds = asking.elapsed().as_secs_f64();
    println!(
        "{} questions in {seconds:.1} s ({:.0}/s), seed {}: {} answered, {} of them with memories ({} in \
         all), {} refused; {} hits of stores; foreign: {}",
        args.queries,
        args.queries as f64 / seconds,
        args.seed,
        counts.of(&counts.answered),
        counts.of(&counts.with_memories),
        counts.of(&counts.memories),
        counts.of(&counts.refused),
        counts.of(&counts.hits),
        counts.of(&counts.foreign),
    );
    ensure!(
        counts.of(&counts.foreign) == 0,
        "memories of others were told"
    );
    // Silence would be isolation too.
    ensure!(
        counts.of(&counts.with_memories) * 5 > args.queries,
        "too few questions were answered with memories"
    );
    ensure!(
        counts.of(&counts.hits) * STORES_EVERY > args.queries,
        "the stores found too little"
    );
    Ok(())
}

#[derive(Default)]
struct Counts {
    answered: AtomicUsize,
    with_memories: AtomicUsize,
    memories: AtomicUsize,
    refused: AtomicUsize,
    hits: AtomicUsize,
    foreign: AtomicUsize,
}

impl Counts {
    fn of(&self, count: &AtomicUsize) -> usize {
        count.load(Ordering::Relaxed)
    }
}

/// A node that remembers the crowd, with its calls.
struct Ward {
    crowd: Crowd,
    node: Node,
    router: Router,
    /// One per tenant.
    tokens: Vec<String>,
    /// Of each patient, from the log.
    memories: Vec<Vec<MemoryId>>,
    /// Ids and marks of each owner, in words.
    own: BTreeMap<Owner, BTreeSet<String>>,
}

impl Ward {
    async fn fill(data: &Path, crowd: Crowd) -> anyhow::Result<Self> {
        let mut config = Config {
            data_dir: data.to_owned(),
            ..Config::default()
        };
        config.consent.default = ConsentDefault::Granted;
        // A question that waits for a write that never was must not hold up the others for long.
        config.recall.wait_for = Period::secs(1);
        // What is asked here is what is found, however busy the machine is.
        config.recall.text_deadline = Period::secs(60);
        config.recall.vector_deadline = Period::secs(60);
        config.recall.graph_deadline = Period::secs(60);
        let node = Node::open(config).await?;
        let intake = node.intake();
        let caller = Caller::local(TENANTS[0]);
        for n in 0..crowd.len() {
            let answer = intake
                .accept_values(&caller, &crowd.events(n), None)
                .await?;
            if let Some(rejected) = answer.rejected.first() {
                bail!("an event was rejected: {}", rejected.code);
            }
        }
        node.settle().await?;

        let mut states = BTreeMap::new();
        for partition in 0..node.log.partitions() {
            let replayed =
                anamnesis_audit::replay::replay(&*node.log, &node.codec, partition, Known::Latest);
            states.extend(replayed.await?.states);
        }
        let (mut memories, mut own) = (Vec::new(), BTreeMap::new());
        for n in 0..crowd.len() {
            let owner: Owner = crowd.owner(n).parse()?;
            let state = states
                .get(&key(&node, &owner))
                .context("an owner is missing")?;
            let ids: Vec<MemoryId> = state.claims.keys().copied().collect();
            let mut words: BTreeSet<String> = ids.iter().map(ToString::to_string).collect();
            words.insert(mark(n));
            memories.push(ids);
            own.insert(owner, words);
        }

        let tokens: Vec<String> = (0..TENANTS.len()).map(|n| format!("token-{n}")).collect();
        let configured: Vec<TokenConfig> = tokens
            .iter()
            .zip(TENANTS)
            .map(|(token, tenant)| TokenConfig {
                name: format!("assistant of {tenant}"),
                token_blake3: Some(Hash::of(token.as_bytes()).to_string()),
                token_env: None,
                tenants: vec![tenant.to_owned()],
                roles: vec![CallerRole::Assistant, CallerRole::Reviewer],
            })
            .collect();
        let callers = Callers::from_config(&configured, TENANTS[0]).map_err(anyhow::Error::msg)?;
        // Nobody writes receipts: a million of them would be most of the work, and no answer.
        let (recall, _receipts) = node.recall();
        let router = anamnesis_recall::http::router(recall, callers);
        Ok(Self {
            crowd,
            node,
            router,
            tokens,
            memories,
            own,
        })
    }

    /// Asks question `n` and counts what does not belong to the owner who was named.
    async fn ask(&self, n: usize, counts: &Counts) -> anyhow::Result<()> {
        let question = question(self.crowd, n, &self.memories);
        let (status, answer) = self.call(&question).await?;
        ensure!(status < 500, "question {n} failed with {status}");
        let strangers = self.strangers(&question, answer.clone());
        if !strangers.is_empty() {
            counts.foreign.fetch_add(strangers.len(), Ordering::Relaxed);
            eprintln!("question {n} brought {strangers:?}");
        }
        if status >= 400 {
            counts.refused.fetch_add(1, Ordering::Relaxed);
            return Ok(());
        }
        counts.answered.fetch_add(1, Ordering::Relaxed);
        let told = words_of(&answer, "m-").len();
        if told > 0 {
            counts.with_memories.fetch_add(1, Ordering::Relaxed);
            counts.memories.fetch_add(told, Ordering::Relaxed);
        }
        Ok(())
    }

    async fn call(&self, question: &Question) -> anyhow::Result<(u16, Value)> {
        let mut request = match &question.call {
            Call::Post(path, body) => Request::post(*path)
                .header("content-type", "application/json")
                .body(Body::from(body.to_string()))?,
            Call::Get(path) => Request::get(path.as_str()).body(Body::empty())?,
        };
        let headers = request.headers_mut();
        let token = &self.tokens[question.tenant];
        headers.insert("authorization", format!("Bearer {token}").parse()?);
        for (name, value) in &question.headers {
            headers.insert(*name, value.parse()?);
        }
        let response = self.router.clone().oneshot(request).await?;
        let status = response.status().as_u16();
        let bytes = to_bytes(response.into_body(), ANSWER_BYTES_MAX).await?;
        // A refusal of the framework is plain text.
        let text = || Value::String(String::from_utf8_lossy(&bytes).into_owned());
        Ok((
            status,
            serde_json::from_slice(&bytes).unwrap_or_else(|_| text()),
        ))
    }

    /// Ids of memories and marks in an answer that are not of the owner whom the question names, or
    /// whom its caller may not see. Where the answer repeats the question's own words, they do not count.
    fn strangers(&self, question: &Question, mut answer: Value) -> Vec<String> {
        if let Some(fields) = answer.as_object_mut() {
            fields.remove("query");
            if let Some(Value::Object(explained)) = fields.get_mut("explain") {
                explained.remove("terms");
                explained.remove("entities");
            }
        }
        let tenant = TENANTS[question.tenant];
        let named: Option<Owner> = question.owner.parse().ok();
        let own = named
            .filter(|owner| owner.tenant() == tenant)
            .and_then(|owner| self.own.get(&owner));
        words_of(&answer, "m-")
            .into_iter()
            .chain(words_of(&answer, "zqx"))
            .filter(|word| !own.is_some_and(|own| own.contains(word)))
            .collect()
    }

    /// The judge must find everything foreign when the answer of one is held against the memories of
    /// another.
    async fn check_the_judge(&self) -> anyhow::Result<()> {
        let honest = |n: usize| Question {
            tenant: self.crowd.tenant(n),
            owner: self.crowd.owner(n),
            call: Call::Get(format!(
                "/v1/memories?owner={}&limit=200",
                self.crowd.owner(n)
            )),
            headers: Vec::new(),
        };
        let (mine, other) = (honest(0), honest(1));
        let (status, answer) = self.call(&mine).await?;
        ensure!(status == 200, "the list is answered with {status}");
        ensure!(self.strangers(&mine, answer.clone()).is_empty());
        let told = words_of(&answer, "m-").len() + words_of(&answer, "zqx").len();
        ensure!(told > 10, "the list of a patient is nearly empty");
        ensure!(self.strangers(&other, answer).len() == told);
        Ok(())
    }

    /// Asks each store for itself: no authority looks at these answers.
    async fn ask_stores(&self, n: usize, counts: &Counts) -> anyhow::Result<()> {
        let mut dice = Dice::new(self.crowd.seed.rotate_left(31) ^ n as u64);
        let asker = dice.below(self.crowd.len());
        let other = dice.below(self.crowd.len());
        let owner: Owner = self.crowd.owner(asker).parse()?;
        let scope = OwnerScope::of_verified_caller(key(&self.node, &owner));
        let stores = &self.node.stores;
        let filter = Filter {
            scope,
            cut: stores.records.cut(scope, Known::Latest).await?,
            valid_at: None,
            time_range: None,
            kinds: None,
            statuses: Status::ALL.to_vec(),
            subject: SubjectFilter::Any,
            context_tags: None,
        };
        let text = match dice.below(3) {
            0 => "Am I allergic to peanuts or penicillin?".to_owned(),
            1 => "我吃二甲双胍，对花生和青霉素过敏".to_owned(),
            _ => format!("{} metformin", mark(other)),
        };
        let vectors = self
            .node
            .embed
            .embed(&[text.as_str()], Purpose::Query)
            .await?;
        let query = vectors.first().map(Vec::as_slice).unwrap_or_default();
        // The hop begins with memories of another owner, and with what everybody has.
        let seeds = &self.memories[other];
        let entities: Vec<Entity> = anamnesis_extractor::query_entities(&text);
        let found = [
            stores
                .text
                .search(&filter, &query_tokens(&text), 50)
                .await?,
            stores.vectors.search(&filter, query, 50).await?,
            stores
                .graph
                .neighbours(&filter, seeds, &entities, 50)
                .await?,
        ];
        let mut ids: Vec<MemoryId> = found
            .into_iter()
            .flat_map(|answer| answer.hits)
            .map(|hit| hit.memory_id)
            .collect();
        let listed = stores
            .records
            .list(&filter, Order::Recorded, 500, None)
            .await?;
        let mut versions = listed.versions;
        // Held against an owner who has none of these.
        let checked = stores.records.check(&filter, seeds).await?;
        versions.extend(checked);
        ids.extend(versions.iter().map(|version| version.memory.id));
        counts.hits.fetch_add(ids.len(), Ordering::Relaxed);
        let own = &self.memories[asker];
        let foreign = ids.iter().filter(|id| !own.contains(id)).count()
            + versions
                .iter()
                .filter(|version| version.owner != scope.key())
                .count();
        if foreign > 0 {
            counts.foreign.fetch_add(foreign, Ordering::Relaxed);
            eprintln!("the stores gave {foreign} foreign memories to question {n}");
        }
        Ok(())
    }
}

fn key(node: &Node, owner: &Owner) -> OwnerKey {
    node.codec.keys().id_key().owner(owner)
}

/// Every word in the strings of an answer that begins like this, names of fields included.
fn words_of(answer: &Value, begins: &str) -> BTreeSet<String> {
    let text = answer.to_string();
    let is_edge = |c: char| !c.is_ascii_alphanumeric() && c != '-';
    text.split(is_edge)
        .filter(|word| word.starts_with(begins) && word.len() > begins.len())
        .map(str::to_owned)
        .collect()
}
