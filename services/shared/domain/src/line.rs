//! Which claims of one attribute hold, and when: the whole of validity (`domain.md` §4).
//!
//! [`derive`] is a function of the set of claims, not of the order in which they arrived: claims are
//! sorted by (valid from, time of the statement, content) and walked once. Whoever adds a claim derives
//! the line again and records the differences.

mod blanket;
mod meet;
mod overruled;
mod records;
mod run;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use self::meet::{Meeting, confirms, meet};
use self::overruled::{overruled, overruling};
use self::records::Records;
use self::run::{Run, stated_end};
use crate::attribute::Attributes;
use crate::ids::MemoryId;
use crate::input::Verdict;
use crate::memory::{Claim, Intent, Kind, Permille, Polarity, Quantity, Standing, Status};
use crate::owner::Subject;
use crate::state::Entry;

/// Below this an ordinary claim waits for a person.
pub const CONFIDENCE_MIN: Permille = Permille::new(850);
/// A source that is weaker by this much cannot replace a stronger one's statement, and a side whose
/// evidence weighs more by this much clearly wins a vote.
pub const AUTHORITY_MARGIN: Permille = Permille::new(200);

/// Claims that can replace, confirm or contradict each other: same subject, same attribute (and value,
/// where the attribute holds many).
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct LineKey {
    pub subject: Subject,
    pub head: String,
}

impl std::fmt::Debug for LineKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "LineKey({:?}, {} chars)",
            self.subject,
            self.head.chars().count()
        )
    }
}

/// The value of a statement about everything that an attribute could hold: "I have no allergies".
const EVERYTHING: &str = "any";
/// The same about drugs only: "no known drug allergies".
const EVERY_DRUG: &str = "drug";
/// The same about the other sorts of allergens: "no food allergies". Of another attribute these are
/// values like others.
const EVERY_OTHER_SORT: [&str; 2] = ["environment", "food"];
const ALLERGY: &str = "allergy";

impl LineKey {
    /// Whether the line is about everything of its attribute, or everything of a sort.
    pub fn is_blanket(&self) -> bool {
        self.blankets().contains(self)
    }

    /// The lines that are about everything or everything of a sort, beside this one.
    pub fn blankets(&self) -> Vec<Self> {
        let Some(group) = self.group() else {
            return Vec::new();
        };
        let mut values = vec![EVERYTHING, EVERY_DRUG];
        if self.attribute() == Some(ALLERGY) {
            values.extend(EVERY_OTHER_SORT);
        }
        let line = |value| Self {
            subject: group.subject.clone(),
            head: format!("{}{value}", group.head),
        };
        values.into_iter().map(line).collect()
    }

    /// The attribute, where it has several lines.
    fn attribute(&self) -> Option<&str> {
        self.head.strip_prefix("many:")?.split('=').next()
    }

    /// What every line of the same subject and attribute begins with, where an attribute has several
    /// lines: what is said of everything bears on each of them.
    pub fn group(&self) -> Option<Self> {
        let attribute = self.attribute()?;
        Some(Self {
            subject: self.subject.clone(),
            head: format!("many:{attribute}="),
        })
    }

    pub fn of(id: MemoryId, claim: &Claim, attributes: &Attributes) -> Self {
        let head = if claim.kind == Kind::Episode {
            // A turn is itself; two equal turns are two turns.
            format!("episode:{id}")
        } else if let (Some(namespace), Some(key)) = (&claim.namespace, &claim.key) {
            format!("key:{namespace}/{key}")
        } else if let Some(attribute) = &claim.attribute {
            match &claim.value {
                Some(value) if !attributes.holds_one_value(attribute) => {
                    format!("many:{attribute}={value}")
                }
                Some(_) | None => format!("one:{attribute}"),
            }
        } else {
            format!("text:{}", claim.text.normalised())
        };
        Self {
            subject: claim.subject.clone(),
            head,
        }
    }
}

/// What a claim says in comparable form.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub struct Content {
    pub value: String,
    pub polarity: Polarity,
    pub quantity: Option<Quantity>,
    pub schedule: Option<String>,
}

impl Content {
    pub fn of(claim: &Claim) -> Self {
        Self {
            value: claim
                .value
                .clone()
                .unwrap_or_else(|| claim.text.normalised()),
            polarity: claim.polarity,
            quantity: claim.quantity.clone(),
            schedule: claim.schedule.clone(),
        }
    }

    /// Whether `other` says nothing that this does not say: it confirms. A dose or a schedule that only
    /// the other one names must not be lost in a confirmation.
    fn covers(&self, other: &Self) -> bool {
        let adds_quantity = self.quantity.is_none() && other.quantity.is_some();
        let adds_schedule = self.schedule.is_none() && other.schedule.is_some();
        let adds = (adds_quantity || adds_schedule) && other.polarity == Polarity::Positive;
        self.agrees(other) && !adds
    }

    /// Both can be said of the same thing; a quantity or schedule that one of them leaves out does not
    /// distinguish, and a negative statement has none.
    fn agrees(&self, other: &Self) -> bool {
        fn fits<T: PartialEq>(a: &Option<T>, b: &Option<T>) -> bool {
            match (a, b) {
                (Some(a), Some(b)) => a == b,
                (None, _) | (_, None) => true,
            }
        }
        let same = self.value == other.value && self.polarity == other.polarity;
        let details =
            fits(&self.quantity, &other.quantity) && fits(&self.schedule, &other.schedule);
        same && (details || self.polarity == Polarity::Negative)
    }

    fn fill(&mut self, other: &Self) {
        if self.quantity.is_none() {
            self.quantity.clone_from(&other.quantity);
        }
        if self.schedule.is_none() {
            self.schedule.clone_from(&other.schedule);
        }
    }
}

/// Whether the claim waits for a person before it counts.
fn is_pending(entry: &Entry) -> bool {
    entry.claim.confidence < CONFIDENCE_MIN
        && !entry.claim.explicit
        && entry.claim.kind != Kind::Episode
        && entry.verdict().is_none()
}

/// What is believed of every claim, and what was weighed to get there.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Derived {
    pub standings: BTreeMap<MemoryId, Standing>,
    pub votes: Vec<Vote>,
}

/// Code of the decision's note that holds what a vote weighed.
pub const VOTE_NOTE: &str = "vote";

/// Sources disagreed, and their evidence was weighed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Vote {
    /// The statement that came to the one in force.
    pub id: MemoryId,
    pub against: MemoryId,
    /// Weight of the newcomer's evidence, faded by its age.
    pub own: Permille,
    pub other: Permille,
    /// `won`, `lost`, or `unclear`: then a person decides.
    pub outcome: &'static str,
}

/// What is believed of every claim of some lines: one, or all of a [`LineKey::group`].
///
/// The answer does not depend on the order of claims or lines, except that of several claims that say
/// the same the one that arrived first represents the memory.
pub fn derive(lines: &[(LineKey, Vec<&Entry>)], attributes: &Attributes) -> Derived {
    let mut derived = Derived::default();
    let (blanket, named): (Vec<_>, Vec<_>) = lines.iter().partition(|(key, _)| key.is_blanket());
    let records = Records::of(lines);
    for (_, entries) in &named {
        derive_line(entries, &records, attributes, &mut derived);
    }
    for (_, entries) in &blanket {
        let named: Vec<&Entry> = named.iter().flat_map(|(_, of)| of).copied().collect();
        blanket::derive(entries, &named, &records, attributes, &mut derived);
    }
    for entry in lines.iter().flat_map(|(_, entries)| entries) {
        if let Some(hidden) = entry.hidden_as()
            && let Some(standing) = derived.standings.get_mut(&entry.id)
            && standing.status != Status::Retired
        {
            standing.status = hidden;
        }
    }
    derived
}

fn derive_line(
    entries: &[&Entry],
    records: &Records<'_>,
    attributes: &Attributes,
    derived: &mut Derived,
) {
    let standing = take_off(entries, records, &mut derived.standings);
    walk(&standing, attributes, derived);
    follow_to_representatives(entries, &mut derived.standings);
}

/// Gives the claims that stand on the line; those that do not get their standing here.
fn take_off<'a>(
    entries: &[&'a Entry],
    records: &Records<'_>,
    standings: &mut BTreeMap<MemoryId, Standing>,
) -> Vec<&'a Entry> {
    let mut left = Vec::new();
    let overruling = overruling(entries);
    for entry in entries.iter().copied() {
        if let Some(rule) = entry.retired_by() {
            standings.insert(entry.id, alone(entry, Status::Retired, rule));
        } else if let Some(by) = entry.corrected_by() {
            let mut standing = alone(entry, Status::Superseded, "corrected_by_command");
            standing.superseded_by = Some(by);
            standings.insert(entry.id, standing);
        } else if entry.claim.intent == Intent::Withdraw {
            // It only takes back; as a statement of its own it never held.
            standings.insert(entry.id, alone(entry, Status::Retired, "entered_in_error"));
        } else if let Some(rule) = records.take_back(entry) {
            standings.insert(entry.id, alone(entry, Status::Retired, rule));
        } else if let Some(found) = overruled(entry, &overruling) {
            let mut standing = alone(entry, found.status, found.rule);
            if found.status == Status::Superseded {
                standing.superseded_by = Some(found.by.id);
                standing.valid_to = Some(standing.valid_from);
            }
            standings.insert(entry.id, standing);
        } else if is_pending(entry) {
            let standing = alone(entry, Status::PendingReview, "low_confidence");
            standings.insert(entry.id, standing);
        } else {
            left.push(entry);
        }
    }
    left
}

/// Walks claims in the order in which they began to hold.
fn walk(entries: &[&Entry], attributes: &Attributes, derived: &mut Derived) {
    let mut sorted: Vec<&Entry> = entries.to_vec();
    sorted.sort_by_cached_key(|entry| {
        (
            (entry.claim.valid_from, entry.claim.source.at),
            // A bare "no" of the same instant, whoever says it, comes to what protects, not before it.
            is_bare_denial(&entry.claim) && attributes.kind(entry.claim.kind).protected,
            // Of what else was said at one instant the better evidence is in force.
            std::cmp::Reverse(entry.claim.source.role.authority()),
            Content::of(&entry.claim),
            (entry.claim.intent, entry.claim.source.role),
            entry.id,
        )
    });
    let mut line = Line::default();
    for entry in sorted {
        line.place(entry, attributes);
    }
    line.settle(derived);
}

/// Whether the claim only says that something is not so: neither that it has ended, nor what is right
/// instead.
fn is_bare_denial(claim: &Claim) -> bool {
    let is_bare = match claim.intent {
        Intent::Assert | Intent::Refute | Intent::Withdraw => true,
        Intent::Change | Intent::Correct => false,
    };
    is_bare && claim.polarity == Polarity::Negative
}

/// What replaces a claim may itself only confirm a memory: that memory is what replaced it.
fn follow_to_representatives(entries: &[&Entry], standings: &mut BTreeMap<MemoryId, Standing>) {
    for entry in entries {
        // A correction by command may have moved to another line.
        if entry.corrected_by().is_some() {
            continue;
        }
        let by = standings
            .get(&entry.id)
            .and_then(|standing| standing.superseded_by);
        let represented = by.and_then(|by| standings.get(&by)?.confirms);
        if let (Some(represented), Some(standing)) = (represented, standings.get_mut(&entry.id)) {
            standing.superseded_by = Some(represented);
        }
    }
}

/// A line while it is walked.
#[derive(Default)]
struct Line<'a> {
    runs: Vec<Run<'a>>,
    in_force: Option<usize>,
    /// By run, the newcomers that were weighed against it.
    votes: Vec<(usize, Vote)>,
    outvoted: Vec<(&'a Entry, usize)>,
}

impl<'a> Line<'a> {
    fn place(&mut self, entry: &'a Entry, attributes: &Attributes) {
        let content = Content::of(&entry.claim);
        let Some(current) = self.in_force else {
            self.in_force = Some(self.runs.len());
            self.runs.push(Run::new(entry, Status::Active, "new"));
            return;
        };
        let runs = &mut self.runs;
        if confirms(&runs[current], entry, &content)
            && runs[current].holds_until(entry.claim.valid_from)
        {
            if entry.claim.intent == Intent::Correct {
                retire_conflicts(runs, current);
            }
            runs[current].join(entry);
            return;
        }
        let is_over = !runs[current].holds_until(entry.claim.valid_from);
        let (meeting, weights) = if is_over {
            (Meeting::Coexists("after_the_end"), None)
        } else {
            meet(&runs[current], entry, attributes)
        };
        if let Some(weights) = weights {
            let outcome = match meeting {
                Meeting::Supersedes(_) => "won",
                Meeting::Outvoted => "lost",
                Meeting::Conflicts(_) | Meeting::Coexists(_) => "unclear",
            };
            let vote = Vote {
                id: entry.id,
                against: entry.id,
                own: weights.own,
                other: weights.other,
                outcome,
            };
            self.votes.push((current, vote));
        }
        match meeting {
            Meeting::Supersedes(rule) => {
                let next = runs.len();
                let from = entry.claim.valid_from;
                runs[current].superseded = Some((from, next));
                for run in against(runs, current) {
                    // Whoever was right until now, this is what holds from here on. A correction also
                    // says who was wrong: whoever did not say the same.
                    if entry.claim.intent == Intent::Correct && !run.content.agrees(&content) {
                        run.status = Status::Retired;
                        run.rule = "corrected";
                    } else {
                        run.superseded = Some((from, next));
                    }
                }
                runs.push(Run::new(entry, Status::Active, rule));
                if entry.verdict() == Some(Verdict::TakeNew) {
                    runs[current].conflict = None;
                }
                self.in_force = Some(next);
            }
            Meeting::Conflicts(rule) => {
                let again = against(runs, current).find(|run| run.content.agrees(&content));
                if let Some(run) = again {
                    run.join(entry);
                    return;
                }
                let mut run = Run::new(entry, Status::Conflicted, rule);
                run.conflict = Some(current);
                runs[current].conflict = Some(runs.len());
                runs.push(run);
            }
            Meeting::Coexists(rule) => {
                // What is over, or was replaced, is not joined: the statement holds anew.
                let again = runs.iter_mut().filter(|_| !is_over).find(|run| {
                    run.rule == rule
                        && run.superseded.is_none()
                        && run.content.agrees(&content)
                        && run.holds_until(entry.claim.valid_from)
                });
                if let Some(run) = again {
                    run.join(entry);
                    return;
                }
                if is_over {
                    self.in_force = Some(runs.len());
                }
                runs.push(Run::new(entry, Status::Active, rule));
            }
            Meeting::Outvoted => self.outvoted.push((entry, current)),
        }
    }

    fn settle(self, derived: &mut Derived) {
        settle(&self.runs, &mut derived.standings);
        for (entry, by) in self.outvoted {
            let mut standing = alone(entry, Status::Superseded, "outvoted");
            standing.superseded_by = Some(self.runs[by].representative().id);
            standing.valid_to = Some(standing.valid_from);
            derived.standings.insert(entry.id, standing);
        }
        for (against, mut vote) in self.votes {
            vote.against = self.runs[against].representative().id;
            derived.votes.push(vote);
        }
    }
}

/// What waits for a person because it contradicts the run.
fn against<'r, 'a>(
    runs: &'r mut [Run<'a>],
    current: usize,
) -> impl Iterator<Item = &'r mut Run<'a>> {
    runs.iter_mut()
        .filter(move |run| run.status == Status::Conflicted && run.conflict == Some(current))
}

/// To say the same again as a correction says that what stood against it was never true.
fn retire_conflicts(runs: &mut [Run<'_>], current: usize) {
    for run in against(runs, current) {
        run.status = Status::Retired;
        run.rule = "corrected";
    }
    runs[current].conflict = None;
}

fn settle(runs: &[Run<'_>], standings: &mut BTreeMap<MemoryId, Standing>) {
    for run in runs {
        let representative = run.representative();
        let (valid_to, superseded_by) = match run.replaced() {
            Some((at, by)) => (Some(at), Some(runs[by].representative().id)),
            None => (run.stated_to, None),
        };
        let status = if superseded_by.is_some() {
            Status::Superseded
        } else {
            run.status
        };
        let open_conflict = run
            .conflict
            .filter(|other| run.is_in_doubt() || runs[*other].is_in_doubt());
        let standing = Standing {
            status,
            valid_from: run.from,
            // A stated end before the start never holds; the interval stays lawful.
            valid_to: valid_to.map(|to| to.max(run.from)),
            superseded_by,
            conflict_with: open_conflict.map(|other| runs[other].representative().id),
            confirms: None,
            rule: run.rule.to_owned(),
        };
        for member in &run.members {
            let mut own = standing.clone();
            if member.id != representative.id {
                own.confirms = Some(representative.id);
                own.rule = "confirms".to_owned();
            }
            standings.insert(member.id, own);
        }
    }
}

fn alone(entry: &Entry, status: Status, rule: &str) -> Standing {
    let from = entry.claim.valid_from;
    Standing {
        status,
        valid_from: from,
        valid_to: stated_end(entry).map(|to| to.max(from)),
        superseded_by: None,
        conflict_with: None,
        confirms: None,
        rule: rule.to_owned(),
    }
}
