//! Ten days of small talk in Chinese and English: is the exchange found, also across languages?

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use anamnesis_domain::time::Timestamp;
use anamnesis_recall::request::Ask;
use serde::Deserialize;

use crate::cli::{EvalArgs, Language};
use crate::config::{Config, Episodes};
use crate::eval::score::{Means, recall_at, reciprocal_rank, share};
use crate::eval::world::World;
use crate::eval::{Figures, read_lines};
use crate::failure::Failure;

/// The clock of the questions: some days after the last exchange.
const NOW: &str = "2023-05-15T00:00:00Z";

#[derive(Deserialize)]
struct Exchange {
    owner: String,
}

#[derive(Deserialize)]
struct Question {
    owner: String,
    #[serde(rename = "type")]
    kind: String,
    question: String,
    gold_any_of: Vec<BTreeSet<String>>,
}

/// # Errors
/// When the set cannot be read or a node cannot be opened.
pub async fn measure(config: &Config, args: &EvalArgs) -> Result<Figures, Failure> {
    let folder = args.folder("memorybank")?;
    let zh = questions(&folder, Language::Zh, args.limit)?;
    let en = questions(&folder, Language::En, args.limit)?;
    let mut figures = Figures {
        n: 2 * (zh.len() + en.len()),
        ..Figures::default()
    };
    let mut rows: BTreeMap<&'static str, Means> = BTreeMap::new();
    for (spoken, own, foreign) in [(Language::Zh, &zh, &en), (Language::En, &en, &zh)] {
        let now = Timestamp::parse(NOW).map_err(Failure::wrong_use)?;
        let mut world = World::open(config, "memorybank", Episodes::All, Some(now)).await?;
        let file = folder.join(format!("exchanges.{}.jsonl", spoken.tag()));
        world.import(vec![file], None).await?;
        world.settle().await?;
        figures.model = world.node.embed.identity().to_string();
        ask(&world, own, spoken.tag(), &mut rows).await?;
        let across = match spoken {
            Language::Zh => "en_zh",
            Language::En => "zh_en",
        };
        ask(&world, foreign, across, &mut rows).await?;
        let coverage = world.coverage().await?;
        let key = format!("{}.coverage", spoken.tag());
        figures.metrics.insert(key, coverage);
        world.close().await;
    }
    figures.put_rows(&rows);
    Ok(figures)
}

fn questions(
    folder: &Path,
    language: Language,
    limit: Option<usize>,
) -> Result<Vec<Question>, Failure> {
    let tag = language.tag();
    let exchanges: Vec<Exchange> = read_lines(&folder.join(format!("exchanges.{tag}.jsonl")))?;
    let mut questions: Vec<Question> = read_lines(&folder.join(format!("questions.{tag}.jsonl")))?;
    if let Some(limit) = limit {
        let owners: BTreeSet<String> = exchanges.into_iter().map(|one| one.owner).collect();
        let kept: BTreeSet<String> = owners.into_iter().take(limit).collect();
        questions.retain(|question| kept.contains(&question.owner));
    }
    Ok(questions)
}

async fn ask(
    world: &World,
    questions: &[Question],
    prefix: &str,
    rows: &mut BTreeMap<&'static str, Means>,
) -> Result<(), Failure> {
    for question in questions {
        let owner = world.owner(&question.owner)?;
        let units = world
            .units(&owner, |memory| memory.claim.source.event_id.clone())
            .await?;
        let asked = Ask::new(question.question.as_str());
        let ranked = world.ranked(&owner, asked, &units).await?;
        for (row, returned) in &ranked.rows {
            measure_one(rows.entry(row).or_default(), prefix, question, returned);
        }
        let is_answered = share(ranked.is_answered);
        let full = rows.entry("full").or_default();
        full.add(format!("{prefix}.above_floor"), is_answered);
    }
    Ok(())
}

fn measure_one(means: &mut Means, prefix: &str, question: &Question, returned: &[String]) {
    match question.kind.as_str() {
        "fact" | "false_premise" => {
            for k in [1, 3, 5] {
                let best = best(&question.gold_any_of, |gold| recall_at(returned, gold, k));
                means.add(format!("{prefix}.r{k}"), best);
            }
            let best = best(&question.gold_any_of, |gold| {
                reciprocal_rank(returned, gold)
            });
            means.add(format!("{prefix}.mrr"), best);
        }
        "day_topics" => {
            let best = best(&question.gold_any_of, |gold| recall_at(returned, gold, 5));
            means.add(format!("{prefix}.day_topics.r5"), best);
        }
        // Nothing to find: there is no evidence.
        _ => {}
    }
}

/// Any of the alternatives is right.
fn best(alternatives: &[BTreeSet<String>], score: impl Fn(&BTreeSet<String>) -> f64) -> f64 {
    alternatives.iter().map(score).fold(0.0, f64::max)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_best_alternative_counts() {
        let set = |ids: &[&str]| ids.iter().map(|id| (*id).to_owned()).collect();
        let question = Question {
            owner: "u".to_owned(),
            kind: "fact".to_owned(),
            question: String::new(),
            gold_any_of: vec![set(&["0.1", "0.2"]), set(&["4.2"])],
        };
        let returned: Vec<String> = ["0.1", "4.2"].map(str::to_owned).to_vec();
        let mut means = Means::default();
        measure_one(&mut means, "zh", &question, &returned);
        let means = means.means();
        assert_eq!(
            (means["zh.r1"], means["zh.r3"], means["zh.mrr"]),
            (0.5, 1.0, 1.0)
        );
    }
}
