//! Does this replica know that it has everything that was recorded until a lease ago?

use std::collections::VecDeque;
use std::time::Duration;

use tokio::time::Instant;

/// How far the copy of one partition is known to be behind the log. It only answers: it looks at no
/// clock, no log and no store.
///
/// The clock must be one that does not go back. Most of those stand still while a machine sleeps, so a
/// copy that wakes up may take what it knew before for new, for one lease.
pub(super) struct Freshness {
    lease: Duration,
    next: u64,
    /// Ends of the log that are not applied yet, and when each was asked for.
    ahead: VecDeque<(u64, Instant)>,
    /// Everything recorded until then is applied.
    caught_up_at: Option<Instant>,
    /// Time does not go back here, whatever the clock does.
    latest: Option<Instant>,
}

impl Freshness {
    pub(super) fn new(lease: Duration) -> Self {
        Self {
            lease,
            next: 0,
            ahead: VecDeque::new(),
            caught_up_at: None,
            latest: None,
        }
    }

    /// The first offset that is not applied, as last told.
    pub(super) fn next(&self) -> u64 {
        self.next
    }

    /// Everything below `next` is applied.
    pub(super) fn reached(&mut self, next: u64, now: Instant) {
        self.pass(now);
        if next < self.next {
            // Another copy stands in its place: nothing is known of it.
            self.caught_up_at = None;
        }
        self.next = next;
        self.settle();
    }

    /// The log ended at `end` when it was asked at `asked_at`, or later.
    pub(super) fn end(&mut self, end: u64, asked_at: Instant) {
        self.pass(asked_at);
        self.ahead.push_back((end, asked_at));
        self.settle();
    }

    /// Whether the copy may answer.
    pub(super) fn is_current(&self, now: Instant) -> bool {
        let now = self.latest.map_or(now, |latest| latest.max(now));
        self.caught_up_at
            .is_some_and(|at| now.saturating_duration_since(at) <= self.lease)
    }

    fn pass(&mut self, now: Instant) {
        self.latest = Some(self.latest.map_or(now, |latest| latest.max(now)));
    }

    fn settle(&mut self) {
        let (next, lease, latest) = (self.next, self.lease, self.latest);
        let mut caught_up_at = self.caught_up_at;
        self.ahead.retain(|(end, asked_at)| {
            if *end <= next {
                caught_up_at = caught_up_at.max(Some(*asked_at));
                return false;
            }
            // Reaching an end that was seen longer ago would prove nothing any more.
            latest.is_none_or(|latest| latest.saturating_duration_since(*asked_at) <= lease)
        });
        self.caught_up_at = caught_up_at;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Words: `e3@10` the log ended at 3 at second 10, `a3@10` applied up to 3, `?@10` and `!@10`: at
    /// second 10 it is current, or is not. The lease is five seconds.
    fn check(script: &str) {
        let start = Instant::now();
        let mut freshness = Freshness::new(Duration::from_secs(5));
        for word in script.split_whitespace() {
            let (what, second) = word.split_once('@').unwrap();
            let at = start + Duration::from_secs_f64(second.parse().unwrap());
            match what.split_at(1) {
                ("e", end) => freshness.end(end.parse().unwrap(), at),
                ("a", next) => freshness.reached(next.parse().unwrap(), at),
                ("?", "") => assert!(freshness.is_current(at), "{word} in: {script}"),
                ("!", "") => assert!(!freshness.is_current(at), "{word} in: {script}"),
                (other, _) => panic!("{other}"),
            }
        }
    }

    #[test]
    fn nothing_is_known_at_the_start() {
        check("!@0 a7@1 !@1");
        check("e7@0 !@0");
    }

    #[test]
    fn a_copy_at_the_end_is_current_for_a_lease() {
        check("a7@0 e7@1 ?@1 ?@6 !@6.1");
        check("a7@0 e7@1 e7@4 ?@9 !@9.1");
        check("e0@1 ?@1");
    }

    #[test]
    fn what_counts_is_when_the_end_was_asked_for() {
        check("e7@1 a7@4 ?@6 !@6.1");
    }

    #[test]
    fn an_end_that_runs_ahead_does_not_fence_what_follows_it() {
        check("a5@0 e5@0 e8@1 e12@2 a8@3 ?@3 ?@6 !@6.1 a12@6.2 ?@7 !@7.1");
    }

    #[test]
    fn a_record_that_is_not_applied_fences_after_the_lease() {
        check("a7@0 e7@1 e8@2 ?@6 e8@4 !@6.1 e8@100 !@100 a8@101 ?@101");
    }

    #[test]
    fn an_old_end_proves_nothing() {
        check("e8@0 e9@6 a8@6 !@6 a9@7 ?@7");
    }

    #[test]
    fn a_copy_that_starts_again_knows_nothing() {
        check("a7@0 e7@1 ?@1 a2@2 !@2 e7@3 !@3 a7@4 ?@4");
    }

    #[test]
    fn a_clock_that_goes_back_makes_nothing_younger() {
        check("a7@0 e7@1 e7@20 ?@20 !@25.1");
        check("a7@10 e7@10 e8@20 !@12");
        // An answer from the past counts as from the past.
        check("a7@20 e7@10 !@10");
        check("a7@20 e7@18 ?@10 ?@23 !@23.1");
    }
}
