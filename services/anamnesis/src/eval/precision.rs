//! What must not be returned: what is replaced, of another scope, of another user. The set's tiers
//! (pinned facts, a prelude, open questions) are its authors' design and are left out: a belief of them
//! that is returned counts neither way, unless the case forbids it by name.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use anamnesis_domain::ids::MemoryId;
use anamnesis_domain::memory::Kind;
use anamnesis_domain::text::Text;
use anamnesis_domain::time::Timestamp;
use anamnesis_intake::commands::Order;
use anamnesis_intake::request::Remember;
use anamnesis_pipeline::caller::Caller;
use anamnesis_recall::request::Ask;
use serde::Deserialize;

use crate::cli::EvalArgs;
use crate::config::{Config, Episodes};
use crate::eval::score::{Means, share};
use crate::eval::world::{World, exists};
use crate::eval::{Figures, read_lines};
use crate::failure::Failure;

const TENANT: &str = "precision";
const USER: &str = "test-user";
/// Tag of what holds in every scope.
const UNIVERSAL: &str = "user:universal";
/// After the last belief was changed.
const NOW: &str = "2026-11-01T00:00:00Z";
/// The categories that ask about retrieval and not about a tier.
const CATEGORIES: [&str; 5] = [
    "Alias resolution",
    "Scope disambiguation",
    "Supersession chain exclusion",
    "Counter-signal retrieval",
    "Cross-user isolation",
];

#[derive(Deserialize)]
struct Belief {
    #[serde(rename = "_id")]
    id: String,
    user_id: String,
    #[serde(rename = "type")]
    kind: String,
    canonical_name: String,
    aliases: Vec<String>,
    content: String,
    scope: Vec<String>,
    epistemic_status: String,
    pinned: bool,
    superseded_by: Option<String>,
    resolved_at: Option<Timestamp>,
    created_at: Timestamp,
    updated_at: Timestamp,
}

impl Belief {
    /// Of the tier that this set's precision is measured in.
    fn is_relevant_tier(&self) -> bool {
        !self.pinned && self.kind != "open_question" && !self.is_universal()
    }

    fn is_universal(&self) -> bool {
        self.scope.iter().any(|scope| scope == UNIVERSAL)
    }

    fn kind(&self) -> Kind {
        match self.kind.as_str() {
            "preference" => Kind::Preference,
            _ => Kind::Fact,
        }
    }

    /// What somebody who writes it down by hand would write: the words that it goes by, and what it says.
    fn text(&self) -> String {
        let name = self.canonical_name.replace('_', " ");
        let names: Vec<&str> = std::iter::once(name.as_str())
            .chain(self.aliases.iter().map(String::as_str))
            .collect();
        format!("{}: {}", names.join(", "), self.content)
    }
}

#[derive(Deserialize)]
struct Case {
    #[serde(rename = "caseId")]
    id: String,
    category: String,
    scope: Vec<String>,
    query: String,
    #[serde(default, rename = "userId")]
    user: Option<String>,
    expect: Expect,
}

#[derive(Default, Deserialize)]
struct Expect {
    #[serde(default, rename = "relevantBeliefs")]
    relevant: Rules,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Rules {
    should_only_include: Option<BTreeSet<String>>,
    must_include: BTreeSet<String>,
    must_exclude: BTreeSet<String>,
}

/// # Errors
/// When the set cannot be read or a node cannot be opened.
pub async fn measure(config: &Config, args: &EvalArgs) -> Result<Figures, Failure> {
    let folder = args.folder("precisionmembench")?;
    let beliefs = beliefs(&folder.join("beliefs.seed.json"))?;
    let mut cases: Vec<Case> = read_lines(&folder.join("cases.jsonl"))?;
    let all = cases.len();
    cases.retain(|case| CATEGORIES.contains(&case.category.as_str()));
    cases.truncate(args.limit.unwrap_or(usize::MAX));
    let now = Timestamp::parse(NOW).map_err(Failure::wrong_use)?;
    let mut world = World::open(config, TENANT, Episodes::All, Some(now)).await?;
    let ids = write(&mut world, &beliefs).await?;
    let tier: BTreeSet<&str> = beliefs
        .iter()
        .filter(|belief| belief.is_relevant_tier())
        .map(|belief| belief.id.as_str())
        .collect();

    let mut means = Means::default();
    let mut notes = vec![format!(
        "{} of {all} cases: those whose category asks about retrieval",
        cases.len()
    )];
    for case in &cases {
        let owner = world.owner(case.user.as_deref().unwrap_or(USER))?;
        let ask = Ask {
            context_tags: Some(case.scope.clone()),
            ..Ask::new(case.query.as_str())
        };
        let answer = world.ask(&owner, ask).await?;
        let returned: BTreeSet<&str> = answer
            .memories
            .iter()
            .filter_map(|one| ids.get(&one.record.id).map(String::as_str))
            .collect();
        let told = judge(&case.expect.relevant, &returned, &tier);
        if let Some((precision, recall)) = told.counted {
            means.add("mean_precision", precision);
            means.add("mean_recall", recall);
        }
        means.add("passed", share(told.is_passed));
        let category = case.category.to_lowercase().replace([' ', '-'], "_");
        means.add(format!("passed.{category}"), share(told.is_passed));
        if !told.is_passed {
            notes.push(format!("not passed: {}", case.id));
        }
    }
    let mut figures = Figures {
        n: cases.len(),
        model: world.node.embed.identity().to_string(),
        notes,
        ..Figures::default()
    };
    figures.put(&means);
    world.close().await;
    Ok(figures)
}

fn beliefs(file: &Path) -> Result<Vec<Belief>, Failure> {
    exists(file)?;
    let failed = |what: &dyn std::fmt::Display| {
        Failure::wrong_use(format!("cannot read {}: {what}", file.display()))
    };
    let bytes = std::fs::read(file).map_err(|error| failed(&error))?;
    serde_json::from_slice(&bytes)
        .map_err(|error| failed(&format!("line {} is not as expected", error.line())))
}

/// Writes the beliefs as explicit memories; gives the belief of each memory.
async fn write(
    world: &mut World,
    beliefs: &[Belief],
) -> Result<BTreeMap<MemoryId, String>, Failure> {
    let users: BTreeSet<&str> = beliefs.iter().map(|one| one.user_id.as_str()).collect();
    let owners: Result<Vec<_>, _> = users.into_iter().map(|user| world.owner(user)).collect();
    world.grant(&owners?).await?;
    let begun: BTreeMap<&str, Timestamp> = beliefs
        .iter()
        .map(|one| (one.id.as_str(), one.created_at))
        .collect();
    let intake = world.node.intake();
    let caller = Caller::local(TENANT);
    let mut ids = BTreeMap::new();
    for belief in beliefs {
        let owner = world.owner(&belief.user_id)?;
        let order = Order {
            caller: &caller,
            owner: &owner,
            key: Some(&belief.id),
        };
        // What replaces it began when this was over.
        let next = belief.superseded_by.as_deref();
        let replaced = next.and_then(|next| begun.get(next)).copied();
        let is_over = belief.epistemic_status == "superseded";
        let ended = replaced.or(is_over.then_some(belief.updated_at));
        let tags = if belief.is_universal() {
            Vec::new()
        } else {
            belief.scope.clone()
        };
        let remember = Remember {
            kind: Some(belief.kind()),
            valid_from: Some(belief.created_at),
            valid_to: belief
                .resolved_at
                .or(ended.map(|end| end.max(belief.created_at))),
            context_tags: tags,
            ..plain(&belief.text())
        };
        let ordered = intake.remember(&order, &remember).await?;
        ids.extend(ordered.memory_id.map(|id| (id, belief.id.clone())));
    }
    world.settle().await?;
    Ok(ids)
}

fn plain(text: &str) -> Remember {
    Remember {
        owner: None,
        text: Text::new(text),
        kind: None,
        subject: None,
        importance: None,
        valid_from: None,
        valid_to: None,
        ttl: None,
        attribute: None,
        value: None,
        polarity: None,
        namespace: None,
        key: None,
        context_tags: Vec::new(),
        source: None,
    }
}

#[derive(Clone, Copy, PartialEq, Debug)]
struct Told {
    is_passed: bool,
    /// Precision and recall, where the case says what is right.
    counted: Option<(f64, f64)>,
}

fn judge(rules: &Rules, returned: &BTreeSet<&str>, tier: &BTreeSet<&str>) -> Told {
    let has = |id: &String| returned.contains(id.as_str());
    let mut is_passed = rules.must_include.iter().all(has) && !rules.must_exclude.iter().any(has);
    let mut counted = None;
    if let Some(expected) = &rules.should_only_include {
        let of_tier: BTreeSet<&str> = returned.intersection(tier).copied().collect();
        let hits = expected.iter().filter(|id| has(id)).count();
        let share_of = |all: usize| match all {
            0 => 1.0,
            all => hits as f64 / all as f64,
        };
        // Silence where something is expected has no precision worth the name.
        let precision = if of_tier.is_empty() && !expected.is_empty() {
            0.0
        } else {
            share_of(of_tier.len())
        };
        is_passed &= hits == expected.len() && hits == of_tier.len();
        counted = Some((precision, share_of(expected.len())));
    }
    Told { is_passed, counted }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(expected: &[&str], returned: &[&str], is_passed: bool, counted: (f64, f64)) {
        let rules = Rules {
            should_only_include: Some(expected.iter().map(|id| (*id).to_owned()).collect()),
            ..Rules::default()
        };
        let tier = BTreeSet::from(["a", "b", "c"]);
        let returned: BTreeSet<&str> = returned.iter().copied().collect();
        let told = judge(&rules, &returned, &tier);
        let counted = Some(counted);
        assert_eq!(told, Told { is_passed, counted }, "{returned:?}");
    }

    #[test]
    fn what_is_of_another_tier_counts_neither_way() {
        check(&["a"], &["a"], true, (1.0, 1.0));
        check(&["a"], &["a", "pinned"], true, (1.0, 1.0));
        check(&["a"], &["a", "b"], false, (0.5, 1.0));
        check(&["a", "b"], &["a"], false, (1.0, 0.5));
        check(&["a"], &[], false, (0.0, 0.0));
        check(&[], &[], true, (1.0, 1.0));
        check(&[], &["pinned"], true, (1.0, 1.0));
        check(&[], &["c"], false, (0.0, 1.0));
    }

    #[test]
    fn what_is_forbidden_by_name_is_wrong_in_any_tier() {
        let rules = Rules {
            must_exclude: BTreeSet::from(["pinned".to_owned()]),
            ..Rules::default()
        };
        let told = judge(&rules, &BTreeSet::from(["pinned"]), &BTreeSet::new());
        assert!(!told.is_passed);
    }
}
