//! Facts of the real world with real intervals: which one held at the instant asked about?

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use anamnesis_domain::time::Timestamp;
use anamnesis_recall::request::Ask;
use serde::Deserialize;

use crate::cli::EvalArgs;
use crate::config::{Config, Episodes};
use crate::eval::score::{Means, hit_at_1, share};
use crate::eval::world::World;
use crate::eval::{Figures, read_lines};
use crate::failure::Failure;

const FACTS: &str = "facts.jsonl";

#[derive(Deserialize)]
struct Fact {
    owner: String,
}

#[derive(Deserialize)]
struct Question {
    owner: String,
    question: String,
    as_of: String,
    gold_fact_ids: BTreeSet<String>,
}

/// # Errors
/// When the set cannot be read or a node cannot be opened.
pub async fn measure(config: &Config, args: &EvalArgs) -> Result<Figures, Failure> {
    let folder = args.folder("timeqa-asof")?;
    let questions = read(&folder, args.limit)?;
    let mut world = World::open(config, "timeqa", Episodes::Off, None).await?;
    let report = world.import(vec![folder.join(FACTS)], None).await?;
    world.settle().await?;
    let mut rows: BTreeMap<&'static str, Means> = BTreeMap::new();
    let mut owner_leak = 0.0;
    for question in &questions {
        let owner = world.owner(&question.owner)?;
        let units = world
            .units(&owner, |memory| memory.claim.source.event_id.clone())
            .await?;
        let ask = Ask {
            as_of: Some(midday(&question.as_of)?),
            ..Ask::new(question.question.as_str())
        };
        let ranked = world.ranked(&owner, ask, &units).await?;
        for (row, returned) in &ranked.rows {
            let means = rows.entry(row).or_default();
            means.add("hit1", hit_at_1(returned, &question.gold_fact_ids));
        }
        // Ids of this set begin with the owner's.
        let is_foreign = |unit: &&String| !unit.starts_with(question.owner.as_str());
        owner_leak += ranked.full().iter().filter(is_foreign).count() as f64;
        let full = rows.entry("full").or_default();
        full.add("candidates", ranked.full().len() as f64);
        full.add("above_floor", share(ranked.is_answered));
    }
    let mut figures = Figures {
        n: questions.len(),
        model: world.node.embed.identity().to_string(),
        ..Figures::default()
    };
    figures.put_rows(&rows);
    let coverage = world.coverage().await?;
    figures.metrics.insert("coverage".to_owned(), coverage);
    figures.metrics.insert("owner_leak".to_owned(), owner_leak);
    figures.notes.push(format!(
        "{} facts in {:.1} s; candidates: memories left by the filter per question",
        report.accepted, report.seconds
    ));
    world.close().await;
    Ok(figures)
}

/// Only the questions are limited: the facts of all owners stand beside each other, as they would.
fn read(folder: &Path, limit: Option<usize>) -> Result<Vec<Question>, Failure> {
    let facts: Vec<Fact> = read_lines(&folder.join(FACTS))?;
    let mut questions: Vec<Question> = read_lines(&folder.join("asof.jsonl"))?;
    if let Some(limit) = limit {
        let owners: BTreeSet<String> = facts.into_iter().map(|fact| fact.owner).collect();
        let kept: BTreeSet<String> = owners.into_iter().take(limit).collect();
        questions.retain(|question| kept.contains(&question.owner));
    }
    Ok(questions)
}

fn midday(date: &str) -> Result<Timestamp, Failure> {
    let at = Timestamp::parse(&format!("{date}T12:00:00Z"));
    at.map_err(|_| Failure::wrong_use("as_of of a question is not a date"))
}
