//! Which claims of one attribute hold, and when: the whole of validity (`domain.md` §4).
//!
//! [`derive`] is a function of the set of claims, not of the order in which they arrived: claims are
//! sorted by (valid from, time of the statement, content) and walked once. Whoever adds a claim derives
//! the line again and records the differences.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::attribute::Attributes;
use crate::ids::MemoryId;
use crate::input::Verdict;
use crate::memory::{Claim, Intent, Kind, Permille, Polarity, Quantity, Standing, Status};
use crate::owner::Subject;
use crate::state::Entry;
use crate::time::Timestamp;

/// Below this an ordinary claim waits for a person.
pub const CONFIDENCE_MIN: Permille = Permille::new(850);
/// A source that is weaker by this much cannot replace a stronger one's statement.
pub const AUTHORITY_MARGIN: Permille = Permille::new(200);
/// A quantity that jumps by this factor looks like a slip.
const SLIP_FACTOR: i64 = 10;

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

impl LineKey {
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

/// Claims that say the same without another in between: one memory.
struct Run<'a> {
    members: Vec<&'a Entry>,
    content: Content,
    from: Timestamp,
    /// End that somebody stated.
    stated_to: Option<Timestamp>,
    status: Status,
    superseded: Option<(Timestamp, usize)>,
    conflict: Option<usize>,
    rule: &'static str,
}

impl<'a> Run<'a> {
    fn new(entry: &'a Entry, status: Status, rule: &'static str) -> Self {
        Self {
            content: Content::of(&entry.claim),
            from: entry.claim.valid_from,
            stated_to: stated_end(entry),
            members: vec![entry],
            status,
            superseded: None,
            conflict: None,
            rule,
        }
    }

    fn join(&mut self, entry: &'a Entry) {
        self.content.fill(&Content::of(&entry.claim));
        // The latest statement says until when.
        self.stated_to = stated_end(entry);
        self.members.push(entry);
    }

    fn holds_until(&self, at: Timestamp) -> bool {
        self.stated_to.is_none_or(|to| at <= to)
    }

    /// The claim that represents the memory: the one that arrived first keeps its id.
    fn representative(&self) -> &'a Entry {
        self.members
            .iter()
            .copied()
            .min_by_key(|entry| (entry.seq, entry.id))
            .expect("a run has at least one member")
    }

    fn authority(&self) -> Permille {
        self.members
            .iter()
            .map(|entry| entry.claim.source.role.authority())
            .max()
            .unwrap_or_default()
    }

    fn last_said(&self) -> Timestamp {
        self.members
            .iter()
            .map(|entry| entry.claim.source.at)
            .max()
            .unwrap_or_default()
    }
}

/// When the claim ends by what was said or by a mark.
fn stated_end(entry: &Entry) -> Option<Timestamp> {
    match (entry.claim.valid_to, entry.ended_at()) {
        (Some(said), Some(marked)) => Some(said.min(marked)),
        (said, marked) => said.or(marked),
    }
}

enum Meeting {
    Supersedes(&'static str),
    Conflicts(&'static str),
    /// Both hold side by side.
    Coexists(&'static str),
}

/// How a claim that says something else meets the run that is in force.
fn meet(run: &Run<'_>, entry: &Entry, attributes: &Attributes) -> Meeting {
    let claim = &entry.claim;
    match entry.verdict() {
        Some(Verdict::TakeNew) => return Meeting::Supersedes("review_take_new"),
        Some(Verdict::KeepBoth) => return Meeting::Coexists("review_keep_both"),
        // Turned down ones are not on the line any more.
        Some(Verdict::KeepOld | Verdict::Retire) | None => (),
    }
    if claim.valid_to.is_some() && claim.intent == Intent::Assert {
        return Meeting::Coexists("temporary");
    }
    if is_weaker(run, entry) {
        return Meeting::Conflicts("weaker_source");
    }
    if run.content.agrees(&Content::of(claim)) {
        return Meeting::Supersedes("more_exact");
    }
    match claim.intent {
        Intent::Correct => return Meeting::Supersedes("correction"),
        Intent::Change if claim.polarity == Polarity::Negative => {
            return Meeting::Supersedes("no_longer");
        }
        Intent::Assert | Intent::Change => (),
    }
    if is_slip(run.content.quantity.as_ref(), claim.quantity.as_ref()) {
        return Meeting::Conflicts("tenfold");
    }
    if let (Some(old), Some(new)) = (&run.content.schedule, &claim.schedule)
        && is_rare(old) != is_rare(new)
    {
        return Meeting::Conflicts("weekly_or_daily");
    }
    if claim.intent == Intent::Change {
        return Meeting::Supersedes("change");
    }
    // A protection is not lost by a bare "no"; that it holds (again) is taken at once.
    let loses_protection = claim.polarity == Polarity::Negative
        && run.content.polarity == Polarity::Positive
        && attributes.kind(claim.kind).protected;
    if loses_protection {
        return Meeting::Conflicts("protected_contradiction");
    }
    if claim.valid_from == run.from && claim.source.at == run.last_said() {
        return Meeting::Conflicts("same_instant");
    }
    Meeting::Supersedes("update")
}

/// Whether a schedule is by the week or longer, not by the day. One taken for the other is the slip
/// that kills with methotrexate.
fn is_rare(schedule: &str) -> bool {
    schedule.contains("week") || schedule.contains("month")
}

/// Whether the claim's source is too weak to replace what the run says.
fn is_weaker(run: &Run<'_>, entry: &Entry) -> bool {
    entry.claim.source.role.authority().thousandths() + AUTHORITY_MARGIN.thousandths()
        <= run.authority().thousandths()
}

/// Whether `claim` confirms the run: it says no more, or its source may not say more.
fn confirms(run: &Run<'_>, entry: &Entry, content: &Content) -> bool {
    run.content.covers(content) || (run.content.agrees(content) && is_weaker(run, entry))
}

fn is_slip(old: Option<&Quantity>, new: Option<&Quantity>) -> bool {
    let (Some(old), Some(new)) = (old, new) else {
        return false;
    };
    if old.unit != new.unit || old.micros <= 0 || new.micros <= 0 {
        return false;
    }
    let (low, high) = (old.micros.min(new.micros), old.micros.max(new.micros));
    low.checked_mul(SLIP_FACTOR)
        .is_some_and(|tenfold| high >= tenfold)
}

/// Whether the claim waits for a person before it counts.
fn is_pending(entry: &Entry) -> bool {
    entry.claim.confidence < CONFIDENCE_MIN
        && !entry.claim.explicit
        && entry.claim.kind != Kind::Episode
        && entry.verdict().is_none()
}

/// What is believed of every claim of one line.
///
/// The answer does not depend on the order of `entries`, except that of several claims that say the
/// same the one that arrived first represents the memory.
pub fn derive(entries: &[&Entry], attributes: &Attributes) -> BTreeMap<MemoryId, Standing> {
    let mut sorted: Vec<&Entry> = entries.to_vec();
    sorted.sort_by_cached_key(|entry| {
        (
            entry.claim.valid_from,
            entry.claim.source.at,
            Content::of(&entry.claim),
            (entry.claim.intent, entry.claim.source.role),
            entry.id,
        )
    });
    let mut standings = BTreeMap::new();
    let mut runs: Vec<Run<'_>> = Vec::new();
    let mut in_force: Option<usize> = None;
    for entry in sorted {
        if let Some(rule) = entry.retired_by() {
            standings.insert(entry.id, alone(entry, Status::Retired, rule));
            continue;
        }
        if let Some(by) = entry.corrected_by() {
            let mut standing = alone(entry, Status::Superseded, "corrected_by_command");
            standing.superseded_by = Some(by);
            standings.insert(entry.id, standing);
            continue;
        }
        if is_pending(entry) {
            standings.insert(
                entry.id,
                alone(entry, Status::PendingReview, "low_confidence"),
            );
            continue;
        }
        place(entry, &mut runs, &mut in_force, attributes);
    }
    settle(&runs, &mut standings);
    for entry in entries {
        if let Some(hidden) = entry.hidden_as()
            && let Some(standing) = standings.get_mut(&entry.id)
            && standing.status != Status::Retired
        {
            standing.status = hidden;
        }
    }
    standings
}

fn place<'a>(
    entry: &'a Entry,
    runs: &mut Vec<Run<'a>>,
    in_force: &mut Option<usize>,
    attributes: &Attributes,
) {
    let content = Content::of(&entry.claim);
    let Some(current) = *in_force else {
        *in_force = Some(runs.len());
        runs.push(Run::new(entry, Status::Active, "new"));
        return;
    };
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
    let meeting = if is_over {
        Meeting::Coexists("after_the_end")
    } else {
        meet(&runs[current], entry, attributes)
    };
    match meeting {
        Meeting::Supersedes(rule) => {
            let next = runs.len();
            let from = entry.claim.valid_from;
            runs[current].superseded = Some((from, next));
            for run in against(runs, current) {
                // Whoever was right until now, this is what holds from here on. A correction also says
                // who was wrong: whoever did not say the same.
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
            *in_force = Some(next);
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
                *in_force = Some(runs.len());
            }
            runs.push(Run::new(entry, Status::Active, rule));
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
        let (valid_to, superseded_by) = match run.superseded {
            Some((at, by)) if run.stated_to.is_none_or(|to| at < to) => {
                (Some(at), Some(runs[by].representative().id))
            }
            Some(_) | None => (run.stated_to, None),
        };
        let status = if superseded_by.is_some() {
            Status::Superseded
        } else {
            run.status
        };
        let open_conflict = run.conflict.filter(|other| {
            run.status == Status::Conflicted || runs[*other].status == Status::Conflicted
        });
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
