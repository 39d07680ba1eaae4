//! Long conversations between two people: are the turns found that hold the evidence?

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use anamnesis_domain::time::Timestamp;
use anamnesis_recall::request::Ask;
use serde::Deserialize;

use crate::cli::EvalArgs;
use crate::config::{Config, Episodes};
use crate::eval::score::{Means, hit_at_1, recall_at, reciprocal_rank, share};
use crate::eval::world::{World, exists};
use crate::eval::{Figures, names, read_lines};
use crate::failure::Failure;

const DAY_MILLIS: i64 = 86_400_000;

#[derive(Deserialize)]
struct Turn {
    session_time: Timestamp,
}

#[derive(Deserialize)]
struct Question {
    category: String,
    question: String,
    evidence: BTreeSet<String>,
}

/// # Errors
/// When the set cannot be read or a node cannot be opened.
pub async fn measure(config: &Config, args: &EvalArgs) -> Result<Figures, Failure> {
    let folder = args.folder("locomo")?;
    let mut conversations = names(&folder, ".qa.jsonl")?;
    conversations.truncate(args.limit.unwrap_or(usize::MAX));
    let mut figures = Figures::default();
    let mut rows: BTreeMap<&'static str, Means> = BTreeMap::new();
    let (mut covered, mut turns) = (0.0, 0.0);
    for name in conversations {
        let file = folder.join(format!("{name}.turns.jsonl"));
        exists(&file)?;
        let questions: Vec<Question> = read_lines(&folder.join(format!("{name}.qa.jsonl")))?;
        let now = day_after(&file)?;
        let mut world = World::open(config, "locomo", Episodes::All, Some(now)).await?;
        let report = world.import(vec![file], None).await?;
        world.settle().await?;
        figures.model = world.node.embed.identity().to_string();
        let coverage = world.coverage().await?;
        covered += coverage * report.accepted as f64;
        turns += report.accepted as f64;
        let owner = world.owner(&name)?;
        let units = world
            .units(&owner, |memory| memory.claim.source.event_id.clone())
            .await?;
        for question in questions.iter().filter(|one| !one.evidence.is_empty()) {
            figures.n += 1;
            let asked = Ask::new(question.question.as_str());
            let ranked = world.ranked(&owner, asked, &units).await?;
            for (row, returned) in &ranked.rows {
                measure_one(rows.entry(row).or_default(), question, returned);
            }
            let is_answered = share(ranked.is_answered);
            rows.entry("full")
                .or_default()
                .add("above_floor", is_answered);
        }
        world.close().await;
    }
    figures.put_rows(&rows);
    figures
        .metrics
        .insert("coverage".to_owned(), covered / f64::max(turns, 1.0));
    Ok(figures)
}

/// A day after the last turn: questions are asked when the conversation is over.
fn day_after(file: &Path) -> Result<Timestamp, Failure> {
    let turns: Vec<Turn> = read_lines(file)?;
    let last = turns.iter().map(|turn| turn.session_time).max();
    Ok(last.unwrap_or_default().plus_millis(DAY_MILLIS))
}

fn measure_one(means: &mut Means, question: &Question, returned: &[String]) {
    let Question {
        category, evidence, ..
    } = question;
    let mut put = |key: String, value: f64| {
        means.add(format!("{key}.{category}"), value);
        if category != "adversarial" {
            means.add(format!("{key}.no_adversarial"), value);
        }
        means.add(key, value);
    };
    for k in [5, 10, 25, 50] {
        put(format!("turn.r{k}"), recall_at(returned, evidence, k));
    }
    put("turn.mrr".to_owned(), reciprocal_rank(returned, evidence));
    let (returned, evidence) = (sessions(returned), sessions(evidence));
    let evidence: BTreeSet<String> = evidence.into_iter().collect();
    put("session.hit1".to_owned(), hit_at_1(&returned, &evidence));
    put("session.r5".to_owned(), recall_at(&returned, &evidence, 5));
    put(
        "session.mrr".to_owned(),
        reciprocal_rank(&returned, &evidence),
    );
}

/// The sessions of these turns (`D8` of `D8:6`), each where it comes first.
fn sessions<'a>(turns: impl IntoIterator<Item = &'a String>) -> Vec<String> {
    let mut seen = BTreeSet::new();
    let of = turns
        .into_iter()
        .map(|turn| turn.split(':').next().unwrap_or(turn).to_owned());
    of.filter(|session| seen.insert(session.clone())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_stands_where_its_first_turn_does() {
        let turns: Vec<String> = ["D8:6", "D1:2", "D8:1"].map(str::to_owned).to_vec();
        assert_eq!(sessions(&turns), ["D8", "D1"]);
    }

    #[test]
    fn adversarial_questions_are_kept_apart() {
        let question = |category: &str| Question {
            category: category.to_owned(),
            question: String::new(),
            evidence: BTreeSet::from(["D1:2".to_owned()]),
        };
        let mut means = Means::default();
        measure_one(&mut means, &question("adversarial"), &["D1:2".to_owned()]);
        measure_one(&mut means, &question("multi_hop"), &["D1:9".to_owned()]);
        let means = means.means();
        assert_eq!(means["turn.r5"], 0.5);
        assert_eq!(means["turn.r5.no_adversarial"], 0.0);
        assert_eq!(means["turn.r10.multi_hop"], 0.0);
        assert_eq!(means["session.hit1"], 1.0);
    }
}
