//! How a statement meets the one that is in force and says something else.

use super::run::Run;
use super::{AUTHORITY_MARGIN, Content, is_bare_denial};
use crate::attribute::Attributes;
use crate::decay;
use crate::input::Verdict;
use crate::memory::{Intent, Permille, Polarity, Quantity};
use crate::state::Entry;
use crate::time::Timestamp;

/// A quantity that jumps by this factor looks like a slip.
const SLIP_FACTOR: i64 = 10;

pub(super) enum Meeting {
    Supersedes(&'static str),
    Conflicts(&'static str),
    /// Both hold side by side.
    Coexists(&'static str),
    /// The one in force has clearly the better evidence; the newcomer never counts.
    Outvoted,
}

/// What both sides weighed when sources disagreed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Weights {
    pub(super) own: Permille,
    pub(super) other: Permille,
}

/// How a claim that says something else meets the run that is in force, and what was weighed.
pub(super) fn meet(
    run: &Run<'_>,
    entry: &Entry,
    attributes: &Attributes,
) -> (Meeting, Option<Weights>) {
    match plainly(run, entry, attributes) {
        Plain::Met(meeting) => (meeting, None),
        Plain::Unclear(rule) => weigh(run, entry, attributes, rule),
    }
}

enum Plain {
    Met(Meeting),
    /// Sources disagree about the same time, and it is unclear who is right.
    Unclear(&'static str),
}

fn plainly(run: &Run<'_>, entry: &Entry, attributes: &Attributes) -> Plain {
    use Meeting::{Coexists, Conflicts, Supersedes};
    let claim = &entry.claim;
    let met = |meeting| Plain::Met(meeting);
    match entry.verdict() {
        Some(Verdict::TakeNew) => return met(Supersedes("review_take_new")),
        Some(Verdict::KeepBoth) => return met(Coexists("review_keep_both")),
        // Turned down ones are not on the line any more; an admitted one is a statement like another.
        Some(Verdict::KeepOld | Verdict::Retire | Verdict::Admit | Verdict::Reopen) | None => (),
    }
    if claim.valid_to.is_some() && claim.intent == Intent::Assert {
        return met(Coexists("temporary"));
    }
    if is_weaker(run, entry) {
        return Plain::Unclear("weaker_source");
    }
    if run.content.agrees(&Content::of(claim)) {
        return met(Supersedes("more_exact"));
    }
    match claim.intent {
        Intent::Correct => return met(Supersedes("correction")),
        Intent::Change if claim.polarity == Polarity::Negative => {
            return met(Supersedes("no_longer"));
        }
        // What is still in force where something is refuted was said later, or a person decided it.
        Intent::Assert | Intent::Change | Intent::Refute | Intent::Withdraw => (),
    }
    if let Some(slip) = slip(run, entry) {
        // What was only inferred must not make the patient's own dose the one in doubt.
        let is_stronger = is_outweighed(run.authority(), claim.source.role.authority());
        return met(if is_stronger {
            Supersedes("stronger_source")
        } else {
            Conflicts(slip)
        });
    }
    if claim.intent == Intent::Change {
        return met(Supersedes("change"));
    }
    // A protection is not lost by a bare "no"; that it holds (again) is taken at once.
    let loses_protection = is_bare_denial(claim)
        && run.content.polarity == Polarity::Positive
        && attributes.kind(claim.kind).protected;
    if loses_protection {
        return met(Conflicts("protected_contradiction"));
    }
    if claim.valid_from == run.from && claim.source.at == run.last_said() {
        return Plain::Unclear("same_instant");
    }
    met(Supersedes("update"))
}

/// The evidence-weighted vote. Each side has the weight of its best evidence, faded by its age: a side
/// does not gain by being repeated, or an echo would outvote the patient. Never about what is protected.
fn weigh(
    run: &Run<'_>,
    entry: &Entry,
    attributes: &Attributes,
    rule: &'static str,
) -> (Meeting, Option<Weights>) {
    let kind = attributes.kind(entry.claim.kind);
    if kind.protected {
        return (Meeting::Conflicts(rule), None);
    }
    let latest = run.last_said().max(entry.claim.source.at);
    let half_life = f64::from(kind.half_life_days);
    let weights = Weights {
        own: evidence(entry, latest, half_life),
        other: run
            .members
            .iter()
            .map(|member| evidence(member, latest, half_life))
            .max()
            .unwrap_or_default(),
    };
    let (own, other) = (weights.own.thousandths(), weights.other.thousandths());
    let margin = AUTHORITY_MARGIN.thousandths();
    let meeting = if own >= other + margin {
        Meeting::Supersedes("outvotes")
    } else if other >= own + margin {
        Meeting::Outvoted
    } else {
        Meeting::Conflicts(rule)
    };
    (meeting, Some(weights))
}

/// In whole thousandths, so that no machine's last digit decides.
fn evidence(entry: &Entry, latest: Timestamp, half_life_days: f64) -> Permille {
    let source = &entry.claim.source;
    let kept = decay::recency(latest.days_since(source.at), half_life_days);
    Permille::from_share(source.role.authority().share() * kept).unwrap_or_default()
}

/// The slip that the change looks like.
fn slip(run: &Run<'_>, entry: &Entry) -> Option<&'static str> {
    let claim = &entry.claim;
    if is_slip(run.content.quantity.as_ref(), claim.quantity.as_ref()) {
        return Some("tenfold");
    }
    match (&run.content.schedule, &claim.schedule) {
        (Some(old), Some(new)) if is_rare(old) != is_rare(new) => Some("weekly_or_daily"),
        (Some(_) | None, _) => None,
    }
}

/// Whether a schedule is by the week or longer, not by the day. One taken for the other is the slip
/// that kills with methotrexate.
fn is_rare(schedule: &str) -> bool {
    schedule.contains("week") || schedule.contains("month")
}

/// Whether the claim's source is too weak to replace what the run says.
fn is_weaker(run: &Run<'_>, entry: &Entry) -> bool {
    is_outweighed(entry.claim.source.role.authority(), run.authority())
}

/// Whether a source of this authority may not speak against one of the other.
pub(super) fn is_outweighed(own: Permille, other: Permille) -> bool {
    own.thousandths() + AUTHORITY_MARGIN.thousandths() <= other.thousandths()
}

/// Whether `claim` confirms the run: it says no more, or its source may not say more.
pub(super) fn confirms(run: &Run<'_>, entry: &Entry, content: &Content) -> bool {
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
