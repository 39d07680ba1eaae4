//! Statements that say the same, one after the other without another in between: one memory.

use super::Content;
use super::meet::is_outweighed;
use crate::memory::{Permille, Status};
use crate::state::Entry;
use crate::time::Timestamp;

pub(super) struct Run<'a> {
    pub(super) members: Vec<&'a Entry>,
    pub(super) content: Content,
    pub(super) from: Timestamp,
    /// End that somebody stated.
    pub(super) stated_to: Option<Timestamp>,
    pub(super) status: Status,
    pub(super) superseded: Option<(Timestamp, usize)>,
    pub(super) conflict: Option<usize>,
    pub(super) rule: &'static str,
}

impl<'a> Run<'a> {
    pub(super) fn new(entry: &'a Entry, status: Status, rule: &'static str) -> Self {
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

    pub(super) fn join(&mut self, entry: &'a Entry) {
        self.content.fill(&Content::of(&entry.claim));
        // The latest statement says until when, unless its source may not speak against the others.
        if !is_outweighed(entry.claim.source.role.authority(), self.authority()) {
            self.stated_to = stated_end(entry);
        }
        self.members.push(entry);
    }

    pub(super) fn holds_until(&self, at: Timestamp) -> bool {
        self.stated_to.is_none_or(|to| at <= to)
    }

    /// When something else took its place, and what: not before the end that was stated for it.
    pub(super) fn replaced(&self) -> Option<(Timestamp, usize)> {
        self.superseded
            .filter(|(at, _)| self.stated_to.is_none_or(|to| *at < to))
    }

    /// Whether it waits for a person. What was replaced does not any more.
    pub(super) fn is_in_doubt(&self) -> bool {
        self.status == Status::Conflicted && self.replaced().is_none()
    }

    /// The claim that represents the memory: the one that arrived first keeps its id.
    pub(super) fn representative(&self) -> &'a Entry {
        self.members
            .iter()
            .copied()
            .min_by_key(|entry| (entry.seq, entry.id))
            .expect("a run has at least one member")
    }

    pub(super) fn authority(&self) -> Permille {
        self.members
            .iter()
            .map(|entry| entry.claim.source.role.authority())
            .max()
            .unwrap_or_default()
    }

    pub(super) fn last_said(&self) -> Timestamp {
        self.members
            .iter()
            .map(|entry| entry.claim.source.at)
            .max()
            .unwrap_or_default()
    }
}

/// When the claim ends by what was said or by a mark.
pub(super) fn stated_end(entry: &Entry) -> Option<Timestamp> {
    match (entry.claim.valid_to, entry.ended_at()) {
        (Some(said), Some(marked)) => Some(said.min(marked)),
        (said, marked) => said.or(marked),
    }
}
