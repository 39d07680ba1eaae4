//! Chats of a hundred thousand tokens: is the message found, does what was updated come first, are both
//! sides of a contradiction there, and is it known when nothing was said?

use std::collections::{BTreeMap, BTreeSet};

use anamnesis_domain::time::Timestamp;
use anamnesis_recall::request::Ask;
use serde::Deserialize;
use serde_json::Value;

use crate::cli::EvalArgs;
use crate::config::{Config, Episodes};
use crate::eval::score::{Means, auroc, recall_at, share};
use crate::eval::world::{World, exists};
use crate::eval::{Figures, names, read_lines};
use crate::failure::Failure;

/// The clock of the questions: after the last chat.
const NOW: &str = "2025-12-01T00:00:00Z";

#[derive(Deserialize)]
struct Question {
    ability: String,
    question: String,
    evidence: Vec<Value>,
    evidence_roles: Option<BTreeMap<String, Value>>,
}

/// # Errors
/// When the set cannot be read or a node cannot be opened.
pub async fn measure(config: &Config, args: &EvalArgs) -> Result<Figures, Failure> {
    let folder = args.folder("beam-100k")?;
    let mut chats = names(&folder, ".questions.jsonl")?;
    chats.truncate(args.limit.unwrap_or(usize::MAX));
    let now = Timestamp::parse(NOW).map_err(Failure::wrong_use)?;
    let mut figures = Figures::default();
    let mut rows: BTreeMap<&'static str, Means> = BTreeMap::new();
    let (mut told, mut untold) = (Vec::new(), Vec::new());
    let (mut covered, mut messages) = (0.0, 0.0);
    for name in chats {
        let file = folder.join(format!("{name}.messages.jsonl.gz"));
        exists(&file)?;
        let questions: Vec<Question> = read_lines(&folder.join(format!("{name}.questions.jsonl")))?;
        let mut world = World::open(config, "beam", Episodes::All, Some(now)).await?;
        let report = world.import(vec![file], None).await?;
        world.settle().await?;
        figures.model = world.node.embed.identity().to_string();
        covered += world.coverage().await? * report.accepted as f64;
        messages += report.accepted as f64;
        let owner = world.owner(&name)?;
        let units = world
            .units(&owner, |memory| memory.claim.source.event_id.clone())
            .await?;
        for question in &questions {
            figures.n += 1;
            let asked = Ask::new(question.question.as_str());
            let ranked = world.ranked(&owner, asked, &units).await?;
            let relevances = if question.ability == "abstention" {
                &mut untold
            } else {
                &mut told
            };
            relevances.push(ranked.relevance);
            for (row, returned) in &ranked.rows {
                measure_one(rows.entry(row).or_default(), question, returned);
            }
            let key = match question.ability.as_str() {
                "abstention" => "above_floor.abstention",
                _ => "above_floor",
            };
            let is_answered = share(ranked.is_answered);
            rows.entry("full").or_default().add(key, is_answered);
        }
        world.close().await;
    }
    figures.put_rows(&rows);
    if let Some(auroc) = auroc(&told, &untold) {
        figures.metrics.insert("abstention_auroc".to_owned(), auroc);
    }
    figures
        .metrics
        .insert("coverage".to_owned(), covered / f64::max(messages, 1.0));
    Ok(figures)
}

fn measure_one(means: &mut Means, question: &Question, returned: &[String]) {
    let evidence = ids(&question.evidence);
    if evidence.is_empty() {
        return;
    }
    for k in [5, 10, 20] {
        let value = recall_at(returned, &evidence, k);
        means.add(format!("r{k}"), value);
        means.add(format!("r{k}.{}", question.ability), value);
    }
    match question.ability.as_str() {
        "knowledge_update" => {
            let of = |role: &str| {
                let roles = question.evidence_roles.as_ref()?;
                let ids = ids(std::slice::from_ref(roles.get(role)?));
                (!ids.is_empty()).then_some(ids)
            };
            if let (Some(old), Some(new)) = (of("original_info"), of("updated_info")) {
                means.add("update_first", share(comes_first(returned, &new, &old)));
            }
        }
        "contradiction_resolution" => {
            let is_whole = recall_at(returned, &evidence, 10) == 1.0;
            means.add("both_sides_10", share(is_whole));
        }
        // The other abilities are only counted by recall.
        _ => {}
    }
}

/// Whether the best of `new` is returned, and before the best of `old`.
fn comes_first(returned: &[String], new: &BTreeSet<String>, old: &BTreeSet<String>) -> bool {
    let place = |ids: &BTreeSet<String>| returned.iter().position(|one| ids.contains(one));
    match (place(new), place(old)) {
        (Some(new), Some(old)) => new < old,
        (Some(_), None) => true,
        (None, _) => false,
    }
}

/// The message ids in any nesting.
fn ids(values: &[Value]) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for value in values {
        match value {
            Value::Number(number) => {
                found.insert(number.to_string());
            }
            Value::String(id) => {
                found.insert(id.clone());
            }
            Value::Array(list) => found.extend(ids(list)),
            Value::Object(fields) => {
                let list: Vec<Value> = fields.values().cloned().collect();
                found.extend(ids(&list));
            }
            Value::Null | Value::Bool(_) => {}
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        text.split_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn an_update_comes_first_only_when_it_is_there() {
        let check = |returned: &str, expected: bool| {
            let set = |id: &str| BTreeSet::from([id.to_owned()]);
            let told = comes_first(&words(returned), &set("new"), &set("old"));
            assert_eq!(told, expected, "{returned}");
        };
        check("x new old", true);
        check("old new", false);
        check("new", true);
        check("old", false);
        check("", false);
    }

    #[test]
    fn both_sides_must_be_among_ten() {
        let question: Question = serde_json::from_value(serde_json::json!({
            "ability": "contradiction_resolution",
            "question": "q",
            "evidence": [24, [58]],
            "evidence_roles": null,
        }))
        .unwrap();
        let both = |returned: &str| {
            let mut means = Means::default();
            measure_one(&mut means, &question, &words(returned));
            means.means()["both_sides_10"]
        };
        assert_eq!(both("1 58 2 24"), 1.0);
        assert_eq!(both("58 1 2 3 4 5 6 7 8 9 24"), 0.0);
    }
}
