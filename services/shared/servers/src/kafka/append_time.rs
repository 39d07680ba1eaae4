//! What is the append time of a record? The log promises that it never decreases within a partition,
//! and a broker's clock does not: it is set back, or leadership goes to a broker whose clock is behind.
//! So the time of a record is the **largest time of any record up to it**, for every reader the same,
//! wherever it begins to read.
//!
//! A reader that goes on from a record whose time it knows takes the larger one. A reader that begins in
//! the middle asks the broker's own index of times, once: is there an earlier record with a later time?
//! `first_at(t + 1)` is the first record that is later than `t`; when it stands behind the record in
//! question, nothing before it was later, and its own time is the answer. Only when a clock really went
//! back is the largest time searched for, by halving, with the same question.
//!
//! Retention takes records away, and with them what was known of their time. Before our own retention
//! drops anything, the largest time among it is written down as metadata of a committed offset (the only
//! place a client has for it); see [`super::retention`].

use std::sync::{Mutex, PoisonError};

use anamnesis_domain::time::Timestamp;
use anamnesis_pipeline::log::LogError;

use super::client::Asker;

/// What this process knows of one partition's times.
#[derive(Default)]
pub(super) struct Times(Mutex<Known>);

#[derive(Default, Clone)]
struct Known {
    /// The time of the record before this offset.
    tail: Option<(u64, Timestamp)>,
    /// The largest time of what retention has dropped.
    floor: Option<Timestamp>,
    run: Run,
}

/// Records that were read one after the other, from one whose time was known.
#[derive(Default, Clone)]
pub(super) struct Run {
    from: u64,
    to: u64,
    /// Where a record's own time is not the answer: from, to (exclusive), the time. As long as clocks
    /// go forward there is none.
    later: Vec<(u64, u64, Timestamp)>,
}

/// A partition whose clock went back more often than this is asked about record by record.
const LATER_MAX: usize = 1_000;

impl Run {
    pub(super) fn starting_at(offset: u64) -> Self {
        Self {
            from: offset,
            to: offset,
            later: Vec::new(),
        }
    }

    /// The record at the end of the run has this time of its own and this append time.
    pub(super) fn push(&mut self, own: Timestamp, appended_at: Timestamp) {
        let offset = self.to;
        self.to += 1;
        if own == appended_at {
            return;
        }
        match self.later.last_mut() {
            Some((_, to, at)) if *to == offset && *at == appended_at => *to += 1,
            Some(_) | None => self.later.push((offset, offset + 1, appended_at)),
        }
        if self.later.len() > LATER_MAX {
            *self = Self::starting_at(self.to);
        }
    }

    fn time_of(&self, offset: u64, own: Timestamp) -> Option<Timestamp> {
        if !(self.from..self.to).contains(&offset) {
            return None;
        }
        let after = self.later.partition_point(|(from, _, _)| *from <= offset);
        let before = after.checked_sub(1).and_then(|index| self.later.get(index));
        Some(match before {
            Some((_, to, at)) if offset < *to => *at,
            Some(_) | None => own,
        })
    }
}

impl Times {
    fn known<T>(&self, look: impl FnOnce(&mut Known) -> T) -> T {
        look(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// A record of our own was appended. Its time, if that follows from what is known.
    pub(super) fn appended(&self, offset: u64, own: Timestamp) -> Option<Timestamp> {
        self.known(|known| {
            let before = known.tail.filter(|(next, _)| *next == offset)?;
            let at = own.max(before.1);
            known.tail = Some((offset + 1, at));
            Some(at)
        })
    }

    /// The append time of the record at `offset` was found out.
    pub(super) fn learn(&self, offset: u64, at: Timestamp) {
        self.known(|known| {
            if known.tail.is_none_or(|(next, _)| next <= offset) {
                known.tail = Some((offset + 1, at));
            }
        });
    }

    /// Keeps the longest run: the times in it need no question.
    pub(super) fn offer(&self, run: &Run) {
        self.known(|known| {
            let length = |run: &Run| run.to - run.from;
            let continues = run.from == known.run.from && run.to > known.run.to;
            if continues || length(run) > length(&known.run) {
                known.run = run.clone();
            }
        });
    }

    pub(super) fn floor(&self) -> Option<Timestamp> {
        self.known(|known| known.floor)
    }

    pub(super) fn raise_floor(&self, at: Timestamp) {
        self.known(|known| known.floor = known.floor.max(Some(at)));
    }

    /// The append time of the record at `offset`, whose own time is `own`.
    pub(super) async fn of(
        &self,
        asker: &Asker,
        name: &str,
        partition: u32,
        offset: u64,
        own: Timestamp,
    ) -> Result<Timestamp, LogError> {
        let told = self.known(|known| {
            let from_tail = match known.tail {
                Some((next, at)) if next == offset => Some(own.max(at)),
                Some(_) | None => None,
            };
            from_tail.or_else(|| known.run.time_of(offset, own))
        });
        if let Some(at) = told {
            return Ok(at);
        }
        let at = self.floor().map_or(own, |floor| floor.max(own));
        let exists = async |later: Timestamp| -> Result<bool, LogError> {
            let first = asker.first_at(name, partition, later).await?;
            Ok(first.is_some_and(|first| first <= offset))
        };
        // In milliseconds above `at`: a record up to this one has `low`, none has `high`.
        if !exists(at.plus_millis(1)).await? {
            return Ok(at);
        }
        let (mut low, mut high) = (1_i64, 2_i64);
        while exists(at.plus_millis(high)).await? {
            low = high;
            high = high.saturating_mul(2);
        }
        while high - low > 1 {
            let middle = low + (high - low) / 2;
            if exists(at.plus_millis(middle)).await? {
                low = middle;
            } else {
                high = middle;
            }
        }
        Ok(at.plus_millis(low))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: i64) -> Timestamp {
        Timestamp::from_millis(millis)
    }

    fn run_of(from: u64, own: &[i64]) -> Run {
        let mut run = Run::starting_at(from);
        let mut largest = i64::MIN;
        for own in own {
            largest = largest.max(*own);
            run.push(at(*own), at(largest));
        }
        run
    }

    #[test]
    fn a_run_knows_the_largest_time_up_to_each_of_its_records() {
        let own = [5, 3, 4, 5, 9, 1, 1, 10];
        let run = run_of(100, &own);
        let mut largest = i64::MIN;
        for (offset, own) in (100..).zip(own) {
            largest = largest.max(own);
            assert_eq!(run.time_of(offset, at(own)), Some(at(largest)), "{offset}");
        }
        assert_eq!(run.time_of(99, at(1)), None);
        assert_eq!(run.time_of(108, at(1)), None);
        assert_eq!(run.later.len(), 2, "only where a clock went back");
    }

    #[test]
    fn our_own_appends_follow_each_other_without_a_question() {
        let times = Times::default();
        assert_eq!(times.appended(7, at(50)), None, "nothing is known yet");
        times.learn(7, at(50));
        assert_eq!(times.appended(8, at(40)), Some(at(50)));
        assert_eq!(times.appended(9, at(60)), Some(at(60)));
        assert_eq!(
            times.appended(12, at(70)),
            None,
            "somebody else appended between"
        );
    }

    #[test]
    fn the_longest_run_is_kept() {
        let times = Times::default();
        times.offer(&run_of(0, &[1, 2, 3]));
        times.offer(&run_of(10, &[1]));
        assert_eq!(times.known(|known| (known.run.from, known.run.to)), (0, 3));
        times.offer(&run_of(0, &[1, 2, 3, 4]));
        assert_eq!(times.known(|known| (known.run.from, known.run.to)), (0, 4));
    }
}
