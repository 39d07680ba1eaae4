//! Timelines of synthetic patients: validity, supersession, as-of, isolation of owners.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use anamnesis_domain::ids::MemoryId;
use anamnesis_domain::memory::{Kind, Memory, Polarity, Status};
use anamnesis_domain::owner::{Owner, OwnerScope, Scope, Subject};
use anamnesis_domain::time::{Known, Timestamp};
use anamnesis_pipeline::stores::{Filter, Order, SubjectFilter};
use serde::Deserialize;

use crate::cli::{EvalArgs, Language, Track};
use crate::commands::import;
use crate::config::{Config, Episodes};
use crate::eval::score::f1;
use crate::eval::{Figures, read_lines};
use crate::failure::Failure;
use crate::node::Node;

const TENANT: &str = "synthea";

#[derive(Deserialize)]
struct Event {
    event_id: String,
    owner: String,
    action: String,
    fact_id: String,
}

#[derive(Deserialize)]
struct Fact {
    fact_id: String,
    owner: String,
    code: String,
    superseded_by: Option<String>,
}

#[derive(Deserialize)]
struct SetQuestion {
    owner: String,
    kind: Kind,
    as_of: Timestamp,
    gold_fact_ids: BTreeSet<String>,
    stale_fact_ids: BTreeSet<String>,
    future_fact_ids: BTreeSet<String>,
    is_now: bool,
}

#[derive(Deserialize)]
struct PointQuestion {
    owner: String,
    kind: Kind,
    as_of: Timestamp,
    answer: bool,
    fact_ids: Vec<String>,
    same_code_fact_ids: Vec<String>,
}

struct Sets {
    events: Vec<Event>,
    facts: Vec<Fact>,
    sets: Vec<SetQuestion>,
    points: Vec<PointQuestion>,
}

/// Imports the events of every patient into one store, per track, and asks the questions.
///
/// # Errors
/// When the set cannot be read or a node cannot be opened.
pub async fn measure(config: &Config, args: &EvalArgs) -> Result<Figures, Failure> {
    let folder = args.folder("synthea-timelines")?;
    let sets = read(&folder, args.limit)?;
    let mut figures = Figures {
        n: sets.sets.len() + sets.points.len(),
        ..Figures::default()
    };
    let tracks = [
        ("structured", Track::Structured, Language::Zh),
        ("zh.text", Track::Text, Language::Zh),
        ("en.text", Track::Text, Language::En),
    ];
    for (name, track, language) in tracks {
        measure_track(
            config,
            args,
            &folder,
            &sets,
            (name, track, language),
            &mut figures,
        )
        .await?;
    }
    Ok(figures)
}

fn read(folder: &Path, limit: Option<usize>) -> Result<Sets, Failure> {
    let mut sets = Sets {
        events: read_lines(&folder.join("events.jsonl"))?,
        facts: read_lines(&folder.join("facts.jsonl"))?,
        sets: read_lines(&folder.join("asof_sets.jsonl"))?,
        points: read_lines(&folder.join("asof_points.jsonl"))?,
    };
    if let Some(limit) = limit {
        let owners: BTreeSet<String> = sets.events.iter().map(|e| e.owner.clone()).collect();
        let kept: BTreeSet<String> = owners.into_iter().take(limit).collect();
        sets.events.retain(|event| kept.contains(&event.owner));
        sets.facts.retain(|fact| kept.contains(&fact.owner));
        sets.sets.retain(|question| kept.contains(&question.owner));
        sets.points
            .retain(|question| kept.contains(&question.owner));
    }
    Ok(sets)
}

async fn measure_track(
    config: &Config,
    args: &EvalArgs,
    folder: &Path,
    sets: &Sets,
    (name, track, language): (&str, Track, Language),
    figures: &mut Figures,
) -> Result<(), Failure> {
    let scratch = tempfile::tempdir()
        .map_err(|error| Failure::unreachable(format!("cannot make a folder: {error}")))?;
    let mut config = config.clone();
    config.data_dir = scratch.path().to_owned();
    config.tenant = TENANT.to_owned();
    // Only distilled memories are asked about; the turns themselves would be ballast.
    config.extraction.set_episodes(Episodes::Off);
    let node = Node::open(config).await?;
    figures.model = node.embed.identity().to_string();
    let mut arguments = import::arguments(vec![folder.join("events.jsonl")]);
    arguments.track = Some(track);
    arguments.language = Some(language);
    let report = import::import(&node, &arguments).await?;
    figures.notes.push(format!(
        "{name}: {} events in {:.1} s ({:.0}/s)",
        report.accepted,
        report.seconds,
        report.accepted as f64 / report.seconds.max(1e-9)
    ));
    let world = World::new(&node, sets);
    let told = world.ask(sets, args).await?;
    let structured = name == "structured";
    let mut put = |key: &str, value: f64| {
        figures.metrics.insert(format!("{name}.{key}"), value);
    };
    put(
        "asof_exact",
        told.exact as f64 / sets.sets.len().max(1) as f64,
    );
    put(
        "asof_exact.now",
        told.exact_now as f64 / told.now.max(1) as f64,
    );
    put(
        "asof_exact.past",
        (told.exact - told.exact_now) as f64 / (sets.sets.len() - told.now).max(1) as f64,
    );
    put("asof_f1", told.f1_sum / sets.sets.len().max(1) as f64);
    put(
        "point_acc",
        told.points_right as f64 / sets.points.len().max(1) as f64,
    );
    put(
        "supersede_f1",
        f1(told.pairs_right, told.pairs_told, told.pairs_expected),
    );
    put(
        "stale_leak",
        told.stale as f64 / told.returned.max(1) as f64,
    );
    put(
        "future_leak",
        told.future as f64 / told.returned.max(1) as f64,
    );
    put(
        "coverage",
        told.covered as f64 / sets.events.len().max(1) as f64,
    );
    if structured {
        for key in ["stale_leak", "future_leak", "coverage"] {
            let value = figures.metrics[&format!("structured.{key}")];
            figures.metrics.insert(key.to_owned(), value);
        }
    }
    let leaked = figures
        .metrics
        .entry("owner_leak".to_owned())
        .or_insert(0.0);
    *leaked += told.foreign as f64;
    Ok(())
}

#[derive(Default)]
struct Told {
    exact: usize,
    exact_now: usize,
    now: usize,
    f1_sum: f64,
    returned: usize,
    stale: usize,
    future: usize,
    foreign: usize,
    points_right: usize,
    pairs_right: usize,
    pairs_told: usize,
    pairs_expected: usize,
    covered: usize,
}

/// A node with the set imported, and the gold labels beside it.
struct World<'a> {
    node: &'a Node,
    /// Fact that each asserting event states, with its owner.
    facts_of_events: BTreeMap<&'a str, (&'a str, &'a str)>,
    codes: BTreeMap<&'a str, &'a str>,
}

impl<'a> World<'a> {
    fn new(node: &'a Node, sets: &'a Sets) -> Self {
        let asserting = sets.events.iter().filter(|event| event.action == "assert");
        Self {
            node,
            facts_of_events: asserting
                .map(|event| {
                    (
                        event.event_id.as_str(),
                        (event.fact_id.as_str(), event.owner.as_str()),
                    )
                })
                .collect(),
            codes: sets
                .facts
                .iter()
                .map(|fact| (fact.fact_id.as_str(), fact.code.as_str()))
                .collect(),
        }
    }

    fn scope(&self, owner: &str) -> Result<OwnerScope, Failure> {
        let owner = Owner::new(TENANT, Scope::Patient, owner).map_err(Failure::wrong_use)?;
        let ids = self.node.codec.keys().id_key();
        Ok(OwnerScope::of_verified_caller(ids.owner(&owner)))
    }

    /// What the authority says held at an instant.
    async fn memories(
        &self,
        owner: &str,
        kinds: Option<Vec<Kind>>,
        at: Option<Timestamp>,
    ) -> Result<Vec<Memory>, Failure> {
        let records = &self.node.stores.records;
        let scope = self.scope(owner)?;
        let filter = Filter {
            scope,
            cut: records.cut(scope, Known::Latest).await?,
            valid_at: at,
            time_range: None,
            kinds,
            statuses: vec![Status::Active, Status::Superseded, Status::Conflicted],
            subject: SubjectFilter::Only(Subject::Self_),
            context_tags: None,
        };
        let mut memories = Vec::new();
        let mut cursor: Option<String> = None;
        loop {
            let page = records
                .list(&filter, Order::Valid, 500, cursor.as_deref())
                .await?;
            memories.extend(page.versions.into_iter().map(|version| version.memory));
            cursor = page.cursor;
            if cursor.is_none() {
                return Ok(memories);
            }
        }
    }

    fn fact(&self, memory: &Memory) -> Option<(&'a str, &'a str)> {
        self.facts_of_events
            .get(memory.claim.source.event_id.as_str())
            .copied()
    }

    async fn ask(&self, sets: &Sets, _args: &EvalArgs) -> Result<Told, Failure> {
        let mut told = Told::default();
        for question in &sets.sets {
            let held = self
                .memories(
                    &question.owner,
                    Some(vec![question.kind]),
                    Some(question.as_of),
                )
                .await?;
            let mut returned: BTreeSet<&str> = BTreeSet::new();
            for memory in held
                .iter()
                .filter(|m| m.claim.polarity == Polarity::Positive)
            {
                let Some((fact, owner)) = self.fact(memory) else {
                    continue;
                };
                if owner == question.owner {
                    returned.insert(fact);
                } else {
                    told.foreign += 1;
                }
            }
            let has =
                |set: &BTreeSet<String>| returned.iter().filter(|f| set.contains(**f)).count();
            let right = has(&question.gold_fact_ids);
            let is_exact =
                right == returned.len() && returned.len() == question.gold_fact_ids.len();
            told.exact += usize::from(is_exact);
            told.now += usize::from(question.is_now);
            told.exact_now += usize::from(is_exact && question.is_now);
            told.f1_sum += f1(right, returned.len(), question.gold_fact_ids.len());
            told.returned += returned.len();
            told.stale += has(&question.stale_fact_ids);
            told.future += has(&question.future_fact_ids);
        }
        for question in &sets.points {
            told.points_right += usize::from(self.holds(question).await? == question.answer);
        }
        self.count_pairs(sets, &mut told).await?;
        Ok(told)
    }

    /// Whether a fact of the code that the question is about held then. The gold labels only say which
    /// code is asked.
    async fn holds(&self, question: &PointQuestion) -> Result<bool, Failure> {
        let asked = question.fact_ids.iter().chain(&question.same_code_fact_ids);
        let codes: BTreeSet<&str> = asked
            .filter_map(|fact| self.codes.get(fact.as_str()).copied())
            .collect();
        let held = self
            .memories(
                &question.owner,
                Some(vec![question.kind]),
                Some(question.as_of),
            )
            .await?;
        Ok(held.iter().any(|memory| {
            memory.claim.polarity == Polarity::Positive
                && self
                    .fact(memory)
                    .and_then(|(fact, _)| self.codes.get(fact))
                    .is_some_and(|code| codes.contains(code))
        }))
    }

    async fn count_pairs(&self, sets: &Sets, told: &mut Told) -> Result<(), Failure> {
        let expected: BTreeSet<(&str, &str)> = sets
            .facts
            .iter()
            .filter_map(|fact| Some((fact.fact_id.as_str(), fact.superseded_by.as_deref()?)))
            .collect();
        told.pairs_expected = expected.len();
        let owners: BTreeSet<&str> = sets
            .events
            .iter()
            .map(|event| event.owner.as_str())
            .collect();
        let mut covered: BTreeSet<String> = BTreeSet::new();
        for owner in owners {
            let memories = self.memories(owner, None, None).await?;
            let by_id: BTreeMap<MemoryId, &Memory> =
                memories.iter().map(|memory| (memory.id, memory)).collect();
            for memory in &memories {
                covered.insert(memory.claim.source.event_id.clone());
                let next = memory.standing.superseded_by.and_then(|id| by_id.get(&id));
                let is_positive = |m: &Memory| m.claim.polarity == Polarity::Positive;
                let Some(next) = next.filter(|next| is_positive(next) && is_positive(memory))
                else {
                    continue;
                };
                if let (Some((old, _)), Some((new, _))) = (self.fact(memory), self.fact(next)) {
                    told.pairs_told += 1;
                    told.pairs_right += usize::from(expected.contains(&(old, new)));
                }
            }
        }
        told.covered = sets
            .events
            .iter()
            .filter(|event| covered.contains(&event.event_id))
            .count();
        Ok(())
    }
}
