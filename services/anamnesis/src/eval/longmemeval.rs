//! Whole sessions of many people as one owner's: is the session found, and is it known when there is
//! none?

use std::collections::{BTreeMap, BTreeSet};

use anamnesis_domain::time::Timestamp;
use anamnesis_recall::request::Ask;
use serde::Deserialize;

use crate::cli::EvalArgs;
use crate::config::{Config, Episodes};
use crate::eval::score::{Means, auroc, recall_at, reciprocal_rank, share};
use crate::eval::world::{World, exists};
use crate::eval::{Figures, read_lines};
use crate::failure::Failure;

const DAY_MILLIS: i64 = 86_400_000;

#[derive(Deserialize)]
struct Session {
    date: Timestamp,
}

#[derive(Deserialize)]
struct Question {
    question_type: String,
    question: String,
    gold_session_ids: BTreeSet<String>,
    must_abstain: bool,
}

/// # Errors
/// When the set cannot be read or a node cannot be opened.
pub async fn measure(config: &Config, args: &EvalArgs) -> Result<Figures, Failure> {
    let folder = args.folder("longmemeval-sample")?;
    let file = folder.join("sessions.jsonl");
    exists(&file)?;
    let mut questions: Vec<Question> = read_lines(&folder.join("questions.jsonl"))?;
    questions.truncate(args.limit.unwrap_or(usize::MAX));
    let sessions: Vec<Session> = read_lines(&file)?;
    let last = sessions.iter().map(|session| session.date).max();
    let now = last.unwrap_or_default().plus_millis(DAY_MILLIS);
    let mut world = World::open(config, "longmemeval", Episodes::All, Some(now)).await?;
    world.import(vec![file], None).await?;
    world.settle().await?;
    // The file is one owner's, and names none.
    let owner = world.owner("sessions")?;
    let units = world
        .units(&owner, |memory| memory.claim.source.event_id.clone())
        .await?;
    let mut rows: BTreeMap<&'static str, Means> = BTreeMap::new();
    let (mut told, mut untold) = (Vec::new(), Vec::new());
    for question in &questions {
        let asked = Ask::new(question.question.as_str());
        let ranked = world.ranked(&owner, asked, &units).await?;
        let is_answered = share(ranked.is_answered);
        let full = rows.entry("full").or_default();
        if question.must_abstain {
            untold.push(ranked.relevance);
            full.add("above_floor.abstention", is_answered);
            continue;
        }
        told.push(ranked.relevance);
        full.add("above_floor", is_answered);
        for (row, returned) in &ranked.rows {
            measure_one(rows.entry(row).or_default(), question, returned);
        }
    }
    let mut figures = Figures {
        n: questions.len(),
        model: world.node.embed.identity().to_string(),
        ..Figures::default()
    };
    figures.put_rows(&rows);
    let coverage = world.coverage().await?;
    figures.metrics.insert("coverage".to_owned(), coverage);
    if let Some(auroc) = auroc(&told, &untold) {
        figures.metrics.insert("abstention_auroc".to_owned(), auroc);
    }
    world.close().await;
    Ok(figures)
}

fn measure_one(means: &mut Means, question: &Question, returned: &[String]) {
    let gold = &question.gold_session_ids;
    for k in [1, 5] {
        let value = recall_at(returned, gold, k);
        let key = format!("session.r{k}");
        means.add(format!("{key}.{}", question.question_type), value);
        means.add(key, value);
    }
    means.add("session.mrr", reciprocal_rank(returned, gold));
}
