//! What does a record of a hospital system say now? A system sends a record again when it changes. Where
//! the latest version names another thing, what an earlier one named was a mistake: nobody else said it.

use std::collections::BTreeMap;

use super::meet::is_outweighed;
use super::overruled::counts;
use super::{Content, LineKey, is_bare_denial};
use crate::ids::SourceTag;
use crate::input::Verdict;
use crate::memory::Intent;
use crate::state::Entry;

/// The latest version of each record; several claims where it makes several.
pub(super) struct Records<'a> {
    latest: BTreeMap<(SourceTag, &'a str), Vec<&'a Entry>>,
}

impl<'a> Records<'a> {
    /// Of lines that are derived together.
    pub(super) fn of(lines: &[(LineKey, Vec<&'a Entry>)]) -> Self {
        let mut latest: BTreeMap<_, Vec<&Entry>> = BTreeMap::new();
        for entry in lines.iter().flat_map(|(_, entries)| entries).copied() {
            // "No known allergies" names nothing else instead: it never takes back what protects.
            let Some(record) = entry
                .claim
                .source
                .record()
                .filter(|_| counts(entry) && !is_bare_denial(&entry.claim))
            else {
                continue;
            };
            let version = latest.entry(record).or_default();
            let written = entry.claim.source.at;
            let known = version.first().map(|entry| entry.claim.source.at);
            if known.is_none_or(|known| known < written) {
                *version = vec![entry];
            } else if known == Some(written) {
                version.push(entry);
            }
        }
        Self { latest }
    }

    /// The rule by which a later version of its record takes the claim back.
    pub(super) fn take_back(&self, entry: &Entry) -> Option<&'static str> {
        // A person looked at it and let it stand: another person has to look again.
        if matches!(
            entry.verdict(),
            Some(Verdict::TakeNew | Verdict::KeepBoth | Verdict::Admit)
        ) {
            return None;
        }
        let latest = self.latest.get(&entry.claim.source.record()?)?;
        let value = |entry: &Entry| Content::of(&entry.claim).value;
        let own = value(entry);
        let takes_back = latest.iter().all(|later| {
            entry.claim.source.at < later.claim.source.at
                && value(later) != own
                && !is_outweighed(
                    later.claim.source.role.authority(),
                    entry.claim.source.role.authority(),
                )
        });
        let is_a_mistake = latest
            .iter()
            .any(|later| later.claim.intent == Intent::Withdraw);
        match (takes_back, is_a_mistake) {
            (true, true) => Some("entered_in_error"),
            (true, false) => Some("record_corrected"),
            (false, _) => None,
        }
    }
}
