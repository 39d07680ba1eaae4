//! Which statements does a later one take off the line, whatever time they are about? Most statements
//! only say how it is from some time on; these four also say that what stands was wrong.

use super::Content;
use super::meet::is_outweighed;
use crate::input::Verdict;
use crate::memory::{Claim, Intent, Polarity, Role, Status};
use crate::state::Entry;

/// How a statement is overruled.
pub(super) struct Overruled<'a> {
    pub(super) by: &'a Entry,
    pub(super) status: Status,
    pub(super) rule: &'static str,
}

/// The statements of a line that may overrule others. Most only assert: comparing each with each would
/// take minutes for somebody of whom thousands are known.
pub(super) fn overruling<'a>(line: &[&'a Entry]) -> Vec<&'a Entry> {
    let may = |by: &&&Entry| match by.claim.intent {
        Intent::Change | Intent::Correct | Intent::Refute | Intent::Withdraw => counts(by),
        Intent::Assert => false,
    };
    line.iter().filter(may).copied().collect()
}

/// Whether `entry` is overruled by one of these ([`overruling`]), and by which: the first that was said, so
/// that the answer does not depend on the order of arrival.
pub(super) fn overruled<'a>(entry: &Entry, overruling: &[&'a Entry]) -> Option<Overruled<'a>> {
    // A person looked at it and let it stand: another person has to look again.
    if matches!(
        entry.verdict(),
        Some(Verdict::TakeNew | Verdict::KeepBoth | Verdict::Admit)
    ) {
        return None;
    }
    let mut found: Vec<Overruled<'a>> = overruling
        .iter()
        .filter(|by| by.id != entry.id)
        .filter_map(|by| overrules(by, entry))
        .collect();
    // What was never true was also never replaced.
    found.sort_by_cached_key(|found| {
        let claim = &found.by.claim;
        (
            found.status != Status::Retired,
            claim.source.at,
            claim.valid_from,
            Content::of(claim),
            found.by.id,
        )
    });
    found.into_iter().next()
}

/// Whether the statement is on the line at all.
pub(super) fn counts(by: &Entry) -> bool {
    by.retired_by().is_none() && by.corrected_by().is_none() && !super::is_pending(by)
}

fn overrules<'a>(by: &'a Entry, entry: &Entry) -> Option<Overruled<'a>> {
    let (later, earlier) = (&*by.claim, &*entry.claim);
    if earlier.source.at > later.source.at {
        return None;
    }
    let (own, other) = (later.source.role, earlier.source.role);
    if is_outweighed(own.authority(), other.authority()) {
        return None;
    }
    let overruled = |status, rule| Some(Overruled { by, status, rule });
    let denies = Content::of(later).value == Content::of(earlier).value
        && later.polarity == Polarity::Negative
        && earlier.polarity == Polarity::Positive;
    let is_said_later = earlier.source.at < later.source.at;
    match later.intent {
        Intent::Withdraw if is_same_record(later, earlier) => {
            overruled(Status::Retired, "entered_in_error")
        }
        Intent::Refute if denies => overruled(Status::Retired, "refuted"),
        // A correction that says how it was all along is not undone by the mistake that it corrects.
        Intent::Correct if is_said_later && later.valid_from <= earlier.valid_from => {
            let is_other = !Content::of(later).agrees(&Content::of(earlier));
            is_other
                .then(|| overruled(Status::Superseded, "corrected"))
                .flatten()
        }
        // "I stopped a week ago": what was said this morning, about no time in particular, was late.
        Intent::Change if denies && is_said_later && later.valid_from < earlier.valid_from => {
            let is_undated = earlier.valid_from == earlier.source.at;
            (is_undated || is_same_record(later, earlier))
                .then(|| overruled(Status::Superseded, "over_before"))
                .flatten()
        }
        Intent::Assert | Intent::Change | Intent::Correct | Intent::Refute | Intent::Withdraw => {
            None
        }
    }
}

/// Whether both come from the same record of a hospital system, in whatever version. A record without
/// an id stands for every record of its source.
fn is_same_record(later: &Claim, earlier: &Claim) -> bool {
    let (later, earlier) = (&later.source, &earlier.source);
    let is_same = match (&later.message_id, &earlier.message_id) {
        (Some(later), Some(earlier)) => later == earlier,
        (None, _) => earlier.role == Role::Record,
        (Some(_), None) => false,
    };
    later.source_tag == earlier.source_tag && is_same
}
