//! How long does a stage gather before its next batch?

use std::time::Duration;

/// Least time from the begin of one batch to the begin of the next, while there is no whole batch to read: where
/// a batch costs much and one more record in it little. Whoever reads after a longer rest does not wait.
///
/// Gathering for long would delay the few records of a quiet hour and gain nothing; at a high rate it is what keeps
/// batches from costing more than their records. So the time grows with the records of the last batch, which tells the
/// rate, up to a limit that tells how late a record may be; a batch of many records is followed at once.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Pace {
    per_record: Duration,
    most: Duration,
    enough: usize,
}

impl Pace {
    /// No rest: each batch costs what its records cost.
    pub const NONE: Self = Self::every(Duration::ZERO);

    /// The same after each batch that was not a whole one.
    pub const fn every(rest: Duration) -> Self {
        Self {
            per_record: rest,
            most: rest,
            enough: usize::MAX,
        }
    }

    /// So much for each record of the last batch, so much at most, and nothing after one of `enough` records.
    pub const fn gathering(per_record: Duration, most: Duration, enough: usize) -> Self {
        Self {
            per_record,
            most,
            enough,
        }
    }

    /// What is left to rest after a batch of so many records that took so long, where a whole one has
    /// `records_max`.
    pub fn rest_after(self, records: usize, records_max: usize, took: Duration) -> Duration {
        if records >= records_max.min(self.enough) {
            return Duration::ZERO;
        }
        let records = u32::try_from(records).unwrap_or(u32::MAX);
        let whole = self.per_record.saturating_mul(records).min(self.most);
        whole.saturating_sub(took)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    #[test]
    fn the_more_came_the_longer_the_next_is_gathered() {
        let pace = Pace::gathering(ms(50), ms(200), 20);
        let after = |records, took| pace.rest_after(records, 500, took);
        assert_eq!(after(1, ms(0)), ms(50));
        assert_eq!(after(1, ms(20)), ms(30));
        assert_eq!(after(1, ms(60)), ms(0));
        assert_eq!(after(3, ms(20)), ms(130));
        assert_eq!(after(4, ms(20)), ms(180));
        assert_eq!(after(19, ms(20)), ms(180));
        assert_eq!(after(19, ms(300)), ms(0));
        // Many records carry the cost of their batch.
        assert_eq!(after(20, ms(20)), ms(0));
        // Of a whole one, more is waiting already.
        assert_eq!(pace.rest_after(8, 8, ms(20)), ms(0));
    }

    #[test]
    fn an_even_pace_does_not_look_at_how_many_came() {
        let pace = Pace::every(ms(500));
        assert_eq!(pace.rest_after(1, 200, ms(100)), ms(400));
        assert_eq!(pace.rest_after(199, 200, ms(100)), ms(400));
        assert_eq!(pace.rest_after(200, 200, ms(100)), ms(0));
        assert_eq!(Pace::NONE.rest_after(1, 500, ms(0)), ms(0));
    }
}
