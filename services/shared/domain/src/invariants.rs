//! Named predicates that hold in every state. Tests check them after each step; production checks the
//! cheap ones and counts what fails.

use crate::attribute::Attributes;
use crate::line::{self, LineKey};
use crate::memory::Status;
use crate::state::OwnerState;

/// A predicate that does not hold, by its name.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{name} does not hold: {what}")]
pub struct Violation {
    pub name: &'static str,
    pub what: String,
}

fn violation(name: &'static str, what: impl Into<String>) -> Violation {
    Violation {
        name,
        what: what.into(),
    }
}

/// Every predicate over one owner's state.
///
/// # Errors
/// The first one that does not hold.
pub fn check(state: &OwnerState) -> Result<(), Violation> {
    standings_follow_from_claims(state)?;
    links_stay_within_the_owner(state)?;
    one_value_holds_at_a_time(state)?;
    erased_claims_are_gone(state)
}

/// What was recorded of each claim is what the claims of its line say.
pub fn standings_follow_from_claims(state: &OwnerState) -> Result<(), Violation> {
    let attributes = Attributes::shipped();
    for key in state.lines.keys() {
        let lines: Vec<_> = state
            .lines_beside(key, &[])
            .into_iter()
            .map(|key| (key.clone(), state.line(&key)))
            .collect();
        let derived = line::derive(&lines, attributes);
        for entry in state.line(key) {
            if derived.standings.get(&entry.id) != Some(&entry.standing) {
                return Err(violation(
                    "standings_follow_from_claims",
                    entry.id.to_string(),
                ));
            }
        }
    }
    Ok(())
}

/// Supersession, conflict and confirmation point to claims of the same line, or between what is said of
/// everything and what is said of one.
pub fn links_stay_within_the_owner(state: &OwnerState) -> Result<(), Violation> {
    let attributes = Attributes::shipped();
    for entry in state.claims.values() {
        let standing = &entry.standing;
        // A correction by command may move a memory to another line.
        if entry.corrected_by().is_some() {
            continue;
        }
        let links = [
            standing.superseded_by,
            standing.conflict_with,
            standing.confirms,
        ];
        for link in links.into_iter().flatten() {
            let own = LineKey::of(entry.id, &entry.claim, attributes);
            let is_lawful = state.claims.get(&link).is_some_and(|other| {
                let other = LineKey::of(link, &other.claim, attributes);
                let is_blanket = own.is_blanket() || other.is_blanket();
                own == other || (is_blanket && own.group() == other.group())
            });
            if !is_lawful {
                return Err(violation(
                    "links_stay_within_the_owner",
                    entry.id.to_string(),
                ));
            }
        }
    }
    Ok(())
}

/// On a line, statements without a stated end that count never hold at the same time.
pub fn one_value_holds_at_a_time(state: &OwnerState) -> Result<(), Violation> {
    for key in state.lines.keys() {
        let open = state.line(key).into_iter().filter(|entry| {
            entry.standing.status == Status::Active
                && entry.standing.confirms.is_none()
                && entry.standing.valid_to.is_none()
                && entry.verdict().is_none()
        });
        if open.count() > 1 {
            return Err(violation("one_value_holds_at_a_time", format!("{key:?}")));
        }
    }
    Ok(())
}

/// A tombstone and a claim never share an id.
pub fn erased_claims_are_gone(state: &OwnerState) -> Result<(), Violation> {
    match state.erased.iter().find(|id| state.claims.contains_key(id)) {
        Some(id) => Err(violation("erased_claims_are_gone", id.to_string())),
        None => Ok(()),
    }
}
