//! A second opinion: what should be believed of plain claims, straight from the table of validity, in
//! the simplest way. It shares no code with the folds. It understands claims, consent to everything or
//! nothing, and erasures of a message, a source or an owner.

use std::collections::{BTreeMap, BTreeSet};

use anamnesis_domain::attribute::Attributes;
use anamnesis_domain::ids::MemoryId;
use anamnesis_domain::memory::{Intent, Kind, Polarity, Role};
use anamnesis_domain::state::OwnerState;

use crate::spec::Spec;
use crate::workload::{Act, Aim, Order, Saying};
use crate::world::day;

/// One memory: what is said, what is thought of it, from which day, to which day.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Belief {
    pub line: String,
    pub says: String,
    pub amount: Option<i64>,
    pub status: String,
    pub from: i64,
    pub to: Option<i64>,
}

#[derive(Clone)]
struct Claimed {
    spec: Spec,
    words: String,
    saying: Saying,
    tie: MemoryId,
}

impl Claimed {
    fn line(&self) -> String {
        let who = &self.spec.subject;
        match (&self.spec.attribute, self.spec.kind) {
            (_, Kind::Episode) => {
                format!(
                    "{who}/episode/{}/{}",
                    self.saying.source, self.saying.event_id
                )
            }
            (Some(name), _) if Attributes::shipped().holds_one_value(name) => {
                format!("{who}/{name}")
            }
            (Some(name), _) => format!("{who}/{name}/{}", self.spec.value),
            (None, _) => format!("{who}/{}", self.words),
        }
    }

    fn says(&self) -> String {
        let sign = self.spec.polarity.code();
        let value = if self.spec.attribute.is_some() {
            &self.spec.value
        } else {
            &self.words
        };
        format!("{sign}{value}")
    }

    fn amount(&self) -> Option<i64> {
        self.spec.quantity.as_ref().map(|amount| amount.micros)
    }

    fn is_hedged(&self) -> bool {
        self.saying.is_hedged && self.spec.kind != Kind::Episode
    }

    fn weight(&self) -> u32 {
        match self.saying.role {
            Role::Clinician | Role::Record => 100,
            Role::User => 95,
            Role::Assistant | Role::System | Role::Tool | Role::Document => 70,
        }
    }
}

/// What an owner should be believed to have said, after these acts in this order. `id` names the memory
/// of a source's event and ordinal: of statements that are equal in everything that can be compared the
/// lower id goes first.
pub fn beliefs<'a>(
    acts: impl Iterator<Item = &'a Act>,
    id: &dyn Fn(&str, &str, u32) -> MemoryId,
) -> Vec<Belief> {
    let mut has_consent = false;
    let mut known: BTreeSet<(String, String)> = BTreeSet::new();
    let mut claims: Vec<Claimed> = Vec::new();
    for act in acts {
        match act {
            Act::Say(saying) => {
                let is_new = known.insert((saying.source.clone(), saying.event_id.clone()));
                if is_new && has_consent {
                    claims.extend(claims_of(saying, id));
                }
            }
            Act::ExtractAgain(_) => (),
            Act::Order { order, .. } => match order {
                Order::Grant => has_consent = true,
                Order::Withdraw(_) => has_consent = false,
                Order::Erase(Aim::Message { source, event_id }) => claims.retain(|claim| {
                    (&claim.saying.source, &claim.saying.event_id) != (source, event_id)
                }),
                Order::Erase(Aim::Source(source)) => {
                    claims.retain(|claim| claim.saying.source != *source);
                }
                Order::Erase(Aim::Owner) => {
                    claims.clear();
                    has_consent = false;
                }
                Order::GrantKinds(_)
                | Order::Remember(_)
                | Order::Correct { .. }
                | Order::End { .. }
                | Order::Retire(_)
                | Order::Archive(_)
                | Order::Restore(_)
                | Order::Restrict(_)
                | Order::Unrestrict(_)
                | Order::Erase(Aim::Memory { .. })
                | Order::Review { .. }
                | Order::Task(_)
                | Order::Accessed(_) => {
                    panic!("the naive interpreter does not understand {order:?}")
                }
            },
        }
    }
    let mut lines: BTreeMap<String, Vec<Claimed>> = BTreeMap::new();
    for claim in claims {
        lines.entry(claim.line()).or_default().push(claim);
    }
    let mut beliefs: Vec<Belief> = lines
        .into_iter()
        .flat_map(|(line, claims)| believe(&line, claims))
        .collect();
    beliefs.sort();
    beliefs
}

fn claims_of(saying: &Saying, id: &dyn Fn(&str, &str, u32) -> MemoryId) -> Vec<Claimed> {
    let claimed = |(ordinal, (text, words)): (u32, &(String, Option<String>))| {
        let spec = Spec::parse(text).expect("a workload's claims can be read");
        let words = words.clone().unwrap_or_else(|| spec.value.clone());
        let tie = id(&saying.source, &saying.event_id, ordinal);
        Claimed {
            spec,
            words,
            saying: saying.clone(),
            tie,
        }
    };
    (0..).zip(&saying.claims).map(claimed).collect()
}

/// One value at a time, in the order in which things began to hold.
struct Row {
    says: String,
    amount: Option<i64>,
    status: &'static str,
    from: i64,
    until: Option<i64>,
    replaced: Option<i64>,
    weight: u32,
    said: i64,
    /// When each supporting statement was said, and its weight.
    evidence: Vec<(i64, u32)>,
    /// The row that this one contradicts.
    against: Option<usize>,
    is_aside: bool,
}

impl Row {
    /// The same statement; unless loosely, one that adds an amount is another.
    fn agrees(&self, claim: &Claimed, is_loose: bool) -> bool {
        let same_amount = match (self.amount, claim.amount()) {
            (Some(a), Some(b)) => a == b,
            // Whoever may say more says more.
            (None, Some(_)) if !is_loose => claim.weight() + 20 <= self.weight,
            _ => true,
        };
        self.says == claim.says() && (same_amount || claim.spec.polarity == Polarity::Negative)
    }

    fn confirm(&mut self, claim: &Claimed) {
        self.amount = self.amount.or(claim.amount());
        // Who may not contradict may not say until when either.
        if claim.weight() + 20 > self.weight {
            self.until = claim.saying.until;
        }
        self.evidence.push((claim.saying.said, claim.weight()));
        self.weight = self.weight.max(claim.weight());
        self.said = self.said.max(claim.saying.said);
    }

    fn is_over(&self, at: i64) -> bool {
        self.until.is_some_and(|until| until < at)
    }
}

fn believe(line: &str, mut claims: Vec<Claimed>) -> Vec<Belief> {
    claims.sort_by_key(|claim| {
        let content = (
            claim.spec.value.clone(),
            claim.spec.polarity,
            claim.spec.quantity.clone(),
        );
        let manner = (claim.spec.intent, claim.saying.role);
        (
            claim.saying.valid,
            claim.saying.said,
            std::cmp::Reverse(claim.weight()),
            content,
            manner,
            claim.tie,
        )
    });
    let mut rows: Vec<Row> = Vec::new();
    let mut now: Option<usize> = None;
    for claim in &claims {
        let mut row = Row {
            says: claim.says(),
            amount: claim.amount(),
            status: "active",
            from: claim.saying.valid,
            until: claim.saying.until,
            replaced: None,
            weight: claim.weight(),
            said: claim.saying.said,
            evidence: vec![(claim.saying.said, claim.weight())],
            against: None,
            is_aside: false,
        };
        if claims.iter().any(|later| undoes(later, claim)) {
            row.status = "superseded";
            row.until = Some(row.from);
            rows.push(row);
            continue;
        }
        if claim.is_hedged() {
            row.status = "pending_review";
            rows.push(row);
            continue;
        }
        let current = now.filter(|at| !rows[*at].is_over(row.from));
        let Some(at) = current else {
            now = Some(rows.len());
            rows.push(row);
            continue;
        };
        if rows[at].agrees(claim, false) {
            rows[at].confirm(claim);
            if claim.spec.intent == Intent::Correct {
                retire_contradictions(&mut rows, at);
            }
            continue;
        }
        match meets(&rows[at], claim) {
            Meets::Replaces => {
                rows[at].replaced = Some(row.from);
                end_contradictions(&mut rows, at, claim);
                now = Some(rows.len());
                rows.push(row);
            }
            Meets::Contradicts => {
                row.status = "conflicted";
                row.against = Some(at);
                add_or_confirm(&mut rows, row, claim, |row| {
                    row.status == "conflicted" && row.against == Some(at)
                });
            }
            Meets::IsOutvoted => {
                row.status = "superseded";
                row.until = Some(row.from);
                rows.push(row);
            }
            Meets::StandsAside => {
                row.is_aside = true;
                let from = row.from;
                add_or_confirm(&mut rows, row, claim, |row| {
                    row.is_aside && !row.is_over(from)
                });
            }
        }
    }
    rows.into_iter().map(|row| row.settle(line)).collect()
}

impl Row {
    fn settle(self, line: &str) -> Belief {
        let is_replaced = self
            .replaced
            .filter(|at| self.until.is_none_or(|until| *at < until));
        Belief {
            line: line.to_owned(),
            says: self.says,
            amount: self.amount,
            status: if is_replaced.is_some() {
                "superseded"
            } else {
                self.status
            }
            .to_owned(),
            from: self.from,
            to: is_replaced.or(self.until),
        }
    }
}

enum Meets {
    Replaces,
    Contradicts,
    StandsAside,
    IsOutvoted,
}

/// Whether a statement that was said later takes an earlier one back, whatever time it was about.
fn undoes(later: &Claimed, earlier: &Claimed) -> bool {
    if later.is_hedged() || later.saying.said <= earlier.saying.said {
        return false;
    }
    if later.weight() + 20 <= earlier.weight() {
        return false;
    }
    // Without an attribute the words are the line.
    let same_value = later.spec.attribute.is_none() || later.spec.value == earlier.spec.value;
    match later.spec.intent {
        Intent::Correct => {
            let polarity = later.spec.polarity;
            let same_amount = match (later.amount(), earlier.amount()) {
                (Some(a), Some(b)) => a == b,
                _ => true,
            };
            let agrees =
                later.says() == earlier.says() && (same_amount || polarity == Polarity::Negative);
            later.saying.valid <= earlier.saying.valid && !agrees
        }
        Intent::Change => {
            later.spec.polarity == Polarity::Negative
                && earlier.spec.polarity == Polarity::Positive
                && same_value
                && later.saying.valid < earlier.saying.valid
                && earlier.saying.valid == earlier.saying.said
        }
        Intent::Assert | Intent::Refute | Intent::Withdraw => false,
    }
}

/// Sources disagree: the better evidence wins if it is clearly better, as long as nobody's safety hangs
/// on it.
fn vote(row: &Row, claim: &Claimed) -> Meets {
    let rule = Attributes::shipped().kind(claim.spec.kind);
    if rule.protected {
        return Meets::Contradicts;
    }
    let now = row.said.max(claim.saying.said);
    let left = |(said, weight): (i64, u32)| {
        let halves = (now - said) as f64 / f64::from(rule.half_life_days);
        (f64::from(weight) * 10.0 * 0.5f64.powf(halves)).round() as i64
    };
    let theirs = row.evidence.iter().map(|one| left(*one)).max().unwrap_or(0);
    let own = left((claim.saying.said, claim.weight()));
    if own - theirs >= 200 {
        Meets::Replaces
    } else if theirs - own >= 200 {
        Meets::IsOutvoted
    } else {
        Meets::Contradicts
    }
}

fn meets(row: &Row, claim: &Claimed) -> Meets {
    let Spec {
        intent,
        polarity,
        kind,
        ..
    } = claim.spec;
    if claim.saying.until.is_some() && intent == Intent::Assert {
        return Meets::StandsAside;
    }
    if claim.weight() + 20 <= row.weight {
        return vote(row, claim);
    }
    if row.agrees(claim, true) {
        return Meets::Replaces;
    }
    if intent == Intent::Correct || (intent == Intent::Change && polarity == Polarity::Negative) {
        return Meets::Replaces;
    }
    if let (Some(a), Some(b)) = (row.amount, claim.amount())
        && a.max(b) >= 10 * a.min(b)
    {
        let is_only_inferred = row.weight + 20 <= claim.weight();
        if is_only_inferred {
            return Meets::Replaces;
        }
        return Meets::Contradicts;
    }
    if intent == Intent::Change {
        return Meets::Replaces;
    }
    // That a protection no longer holds is asked about; that it holds is believed.
    let is_loss = polarity == Polarity::Negative && !row.says.starts_with(polarity.code());
    let is_protected = Attributes::shipped().kind(kind).protected;
    let at_once = row.from == claim.saying.valid && row.said == claim.saying.said;
    if is_loss && is_protected {
        Meets::Contradicts
    } else if at_once {
        vote(row, claim)
    } else {
        Meets::Replaces
    }
}

fn add_or_confirm(rows: &mut Vec<Row>, row: Row, claim: &Claimed, among: impl Fn(&Row) -> bool) {
    match rows
        .iter_mut()
        .find(|row| among(row) && row.agrees(claim, true))
    {
        Some(same) => same.confirm(claim),
        None => rows.push(row),
    }
}

fn retire_contradictions(rows: &mut [Row], of: usize) {
    for row in rows.iter_mut() {
        if row.status == "conflicted" && row.against == Some(of) {
            row.status = "retired";
        }
    }
}

/// What contradicted a row that is replaced: over from then on too, or never true, when a correction
/// says something else.
fn end_contradictions(rows: &mut [Row], of: usize, claim: &Claimed) {
    for row in rows.iter_mut() {
        if row.status != "conflicted" || row.against != Some(of) {
            continue;
        }
        if claim.spec.intent == Intent::Correct && !row.agrees(claim, true) {
            row.status = "retired";
        } else {
            row.replaced = Some(claim.saying.valid);
        }
    }
}

/// The same, read from a state of the real fold.
pub fn read(state: &OwnerState) -> Vec<Belief> {
    let days = |at: anamnesis_domain::time::Timestamp| {
        (at.millis() - day(0).millis()) / anamnesis_domain::time::DAY_MS
    };
    let mut beliefs = Vec::new();
    for entry in state
        .claims
        .values()
        .filter(|entry| entry.standing.confirms.is_none())
    {
        let claim = &entry.claim;
        let who = &claim.subject;
        let words = claim.text.normalised();
        let value = claim.value.clone().unwrap_or_else(|| words.clone());
        let line = match (&claim.attribute, claim.kind) {
            (_, Kind::Episode) => {
                format!(
                    "{who}/episode/{}/{}",
                    claim.source.source, claim.source.event_id
                )
            }
            (Some(name), _) if Attributes::shipped().holds_one_value(name) => {
                format!("{who}/{name}")
            }
            (Some(name), _) => format!("{who}/{name}/{value}"),
            (None, _) => format!("{who}/{words}"),
        };
        let quantity = |claim: &anamnesis_domain::memory::Claim| {
            claim.quantity.as_ref().map(|amount| amount.micros)
        };
        let confirming = state.confirming(entry.id);
        let amount =
            quantity(claim).or_else(|| confirming.iter().find_map(|other| quantity(&other.claim)));
        beliefs.push(Belief {
            line,
            says: format!("{}{value}", claim.polarity.code()),
            amount,
            status: entry.standing.status.code().to_owned(),
            from: days(entry.standing.valid_from),
            to: entry.standing.valid_to.map(days),
        });
    }
    beliefs.sort();
    beliefs
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(n: i64, spec: &str) -> Act {
        Act::Say(Saying {
            source: "chat".to_owned(),
            event_id: format!("e{n}"),
            said: n,
            valid: n,
            until: None,
            role: Role::User,
            is_hedged: false,
            claims: vec![(spec.to_owned(), None)],
        })
    }

    fn check(specs: &str, expected: &str) {
        let grant = Act::Order {
            event_id: "c".to_owned(),
            order: Order::Grant,
        };
        let acts = specs
            .split_whitespace()
            .zip(1..)
            .map(|(spec, n)| said(n, spec));
        let acts: Vec<Act> = std::iter::once(grant).chain(acts).collect();
        let id = |_: &str, event: &str, _: u32| {
            let number: u8 = event[1..].parse().unwrap();
            MemoryId::from_bytes([number; 16])
        };
        let told: Vec<String> = beliefs(acts.iter(), &id)
            .into_iter()
            .map(|belief| {
                let to = belief.to.map_or("…".to_owned(), |to| to.to_string());
                format!("{} {}[{},{to})", belief.says, belief.status, belief.from)
            })
            .collect();
        assert_eq!(told.join("; "), expected);
    }

    #[test]
    fn the_table_of_validity() {
        check(
            "smoking_status=smoker smoking_status=former",
            "+former active[2,…); +smoker superseded[1,2)",
        );
        check(
            "allergy=peanut !allergy=peanut",
            "+peanut active[1,…); -peanut conflicted[2,…)",
        );
        check(
            "allergy=peanut ~!allergy=peanut",
            "+peanut superseded[1,2); -peanut active[2,…)",
        );
        check("allergy=peanut allergy=peanut", "+peanut active[1,…)");
    }
}
