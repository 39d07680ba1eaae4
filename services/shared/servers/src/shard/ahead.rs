//! A copy is behind the log: for which owners is it complete nevertheless?
//!
//! Keys of records are read ahead of what is applied. An owner without a record in between misses nothing.

use std::collections::BTreeMap;
use std::time::Duration;

use anamnesis_domain::ids::OwnerKey;
use tokio::time::Instant;

use super::freshness::Freshness;

/// What is known of the records of one partition that the copy has not applied. It only answers: it reads
/// nothing itself.
pub(super) struct Ahead {
    freshness: Freshness,
    applied: u64,
    /// The first offset that was not looked at.
    next: u64,
    /// Where each owner's last record stands, of those that are not applied.
    pending: BTreeMap<OwnerKey, u64>,
}

impl Ahead {
    pub(super) fn new(lease: Duration) -> Self {
        Self {
            freshness: Freshness::new(lease),
            applied: 0,
            next: 0,
            pending: BTreeMap::new(),
        }
    }

    /// The first offset that was not looked at.
    pub(super) fn next(&self) -> u64 {
        self.next
    }

    /// The copy has applied everything below `applied`.
    pub(super) fn applied(&mut self, applied: u64, now: Instant) {
        if applied < self.applied {
            // Another copy stands in its place, and what lies between was not looked at.
            self.next = applied;
            self.pending.clear();
        }
        self.applied = applied;
        self.next = self.next.max(applied);
        self.pending.retain(|_, last| *last >= applied);
        self.freshness.reached(self.next, now);
    }

    /// The log ended at `end` when it was asked at `asked_at`, or later.
    pub(super) fn end(&mut self, end: u64, asked_at: Instant) {
        self.freshness.end(end, asked_at);
    }

    /// The next records of the log belong to these owners.
    pub(super) fn saw(&mut self, owners: impl IntoIterator<Item = OwnerKey>, now: Instant) {
        for owner in owners {
            self.pending.insert(owner, self.next);
            self.next += 1;
        }
        self.freshness.reached(self.next, now);
    }

    /// How far the copy must be for this owner; `None` when that is not known.
    pub(super) fn needs(&self, owner: OwnerKey, now: Instant) -> Option<u64> {
        if !self.freshness.is_current(now) {
            return None;
        }
        Some(self.pending.get(&owner).map_or(0, |last| last + 1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owner(name: u8) -> OwnerKey {
        OwnerKey::from_bytes([name; 16])
    }

    /// Words: `e3@10` the log ended at 3 at second 10, `a3@10` applied up to 3, `sab@10` the next two
    /// records are a's and b's, `a=4@10` owner a needs everything below 4, `a?@10` nobody knows. The
    /// lease is five seconds.
    fn check(script: &str) {
        let start = Instant::now();
        let mut ahead = Ahead::new(Duration::from_secs(5));
        for word in script.split_whitespace() {
            let (what, second) = word.split_once('@').unwrap();
            let at = start + Duration::from_secs_f64(second.parse().unwrap());
            let name = what.as_bytes()[0];
            if let Some((_, next)) = what.split_once('=') {
                let needs = ahead.needs(owner(name), at);
                assert_eq!(needs, Some(next.parse().unwrap()), "{word} in: {script}");
                continue;
            }
            match what.split_at(1) {
                ("e", end) => ahead.end(end.parse().unwrap(), at),
                ("a" | "b", "?") => {
                    assert_eq!(ahead.needs(owner(name), at), None, "{word}: {script}")
                }
                ("a", next) => ahead.applied(next.parse().unwrap(), at),
                ("s", owners) => ahead.saw(owners.bytes().map(owner), at),
                (other, _) => panic!("{other}"),
            }
        }
    }

    #[test]
    fn nothing_is_known_before_the_end_is_seen() {
        check("a?@0 a3@0 e5@0 a?@0 sb@0 a?@0 sb@0 a=0@0 b=5@0");
    }

    #[test]
    fn an_owner_needs_its_own_last_record_only() {
        check("a1@0 e5@0 sabab@0 a=4@0 b=5@0 c=0@0");
        check("a1@0 e5@0 sabab@0 a4@1 a=0@1 b=5@1 a5@1 b=0@1");
    }

    #[test]
    fn what_was_seen_is_old_after_a_lease() {
        check("a1@0 e2@0 sa@0 a=2@5 a?@5.1 e3@6 a?@6 sb@6 a=2@6 b=3@6");
    }

    #[test]
    fn what_is_applied_needs_no_look() {
        check("a9@0 e9@0 a=0@0 e12@1 sb@1 a12@2 b=0@2");
    }

    #[test]
    fn a_copy_that_starts_again_is_looked_at_again() {
        check("a5@0 e6@0 sa@0 a=6@0 a2@1 e6@1 a?@1 sbbba@1 a=6@1 b=5@1");
    }
}
