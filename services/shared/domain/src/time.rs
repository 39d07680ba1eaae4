//! Instants in UTC milliseconds, half-open intervals, and the two clocks of every read.

use std::fmt;

use chrono::{DateTime, Datelike as _, FixedOffset, SecondsFormat, Utc};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// An instant: milliseconds since 1970-01-01T00:00:00Z. Outward (JSON) it is RFC 3339.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Timestamp(i64);

/// An instant that could not be read. The text itself is not repeated: it came from outside.
#[derive(Debug, thiserror::Error, PartialEq, Eq, Clone, Copy)]
pub enum TimeError {
    /// RFC 3339 demands an offset; guessing one would move a dose by hours.
    #[error("the instant has no zone; write RFC 3339 with Z or an offset such as +08:00")]
    NoZone,
    #[error("not an RFC 3339 instant")]
    NotAnInstant,
    #[error("the interval ends before it starts")]
    EndsBeforeStart,
}

pub const DAY_MS: i64 = 86_400_000;

impl Timestamp {
    pub const fn from_millis(millis: i64) -> Self {
        Self(millis)
    }

    pub const fn millis(self) -> i64 {
        self.0
    }

    /// Reads RFC 3339 and also gives the offset that the speaker's clock had, in minutes.
    ///
    /// # Errors
    /// [`TimeError::NoZone`] when only the offset is missing, [`TimeError::NotAnInstant`] otherwise.
    pub fn parse_with_zone(text: &str) -> Result<(Self, i32), TimeError> {
        match DateTime::parse_from_rfc3339(text) {
            // In UTC it must have a year of four digits, or it could not be written and read again.
            Ok(at) if !(1..=9999).contains(&at.with_timezone(&Utc).year()) => {
                Err(TimeError::NotAnInstant)
            }
            Ok(at) => Ok((
                Self(at.timestamp_millis()),
                at.offset().local_minus_utc() / 60,
            )),
            Err(_) if DateTime::parse_from_rfc3339(&format!("{text}Z")).is_ok() => {
                Err(TimeError::NoZone)
            }
            Err(_) if chrono::NaiveDate::parse_from_str(text, "%Y-%m-%d").is_ok() => {
                Err(TimeError::NoZone)
            }
            Err(_) => Err(TimeError::NotAnInstant),
        }
    }

    /// # Errors
    /// As [`Timestamp::parse_with_zone`].
    pub fn parse(text: &str) -> Result<Self, TimeError> {
        Ok(Self::parse_with_zone(text)?.0)
    }

    pub fn to_utc(self) -> DateTime<Utc> {
        DateTime::from_timestamp_millis(self.0).unwrap_or(if self.0 < 0 {
            DateTime::<Utc>::MIN_UTC
        } else {
            DateTime::<Utc>::MAX_UTC
        })
    }

    /// The instant on the wall clock `zone_minutes` east of Greenwich.
    pub fn to_zone(self, zone_minutes: i32) -> DateTime<FixedOffset> {
        let offset = FixedOffset::east_opt(zone_minutes.clamp(-1439, 1439) * 60)
            .expect("less than a day from Greenwich");
        self.to_utc().with_timezone(&offset)
    }

    pub fn plus_millis(self, millis: i64) -> Self {
        Self(self.0.saturating_add(millis))
    }

    /// Days from `earlier` to `self`; negative when `self` is earlier.
    pub fn days_since(self, earlier: Self) -> f64 {
        (self.0 - earlier.0) as f64 / DAY_MS as f64
    }
}

impl From<DateTime<Utc>> for Timestamp {
    fn from(at: DateTime<Utc>) -> Self {
        Self(at.timestamp_millis())
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.to_utc().to_rfc3339_opts(SecondsFormat::AutoSi, true))
    }
}

impl fmt::Debug for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Serialize for Timestamp {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Timestamp {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Self::parse(&text).map_err(serde::de::Error::custom)
    }
}

/// `from <= t < to`, open-ended without `to`. Cannot end before it starts.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Interval {
    from: Timestamp,
    to: Option<Timestamp>,
}

impl Interval {
    /// # Errors
    /// [`TimeError::EndsBeforeStart`]. An empty interval (`to == from`) is allowed: it never holds.
    pub fn new(from: Timestamp, to: Option<Timestamp>) -> Result<Self, TimeError> {
        match to {
            Some(to) if to < from => Err(TimeError::EndsBeforeStart),
            Some(_) | None => Ok(Self { from, to }),
        }
    }

    pub fn from(self) -> Timestamp {
        self.from
    }

    pub fn to(self) -> Option<Timestamp> {
        self.to
    }

    pub fn contains(self, at: Timestamp) -> bool {
        self.from <= at && self.to.is_none_or(|to| at < to)
    }

    pub fn overlaps(self, other: Self) -> bool {
        self.to.is_none_or(|to| other.from < to) && other.to.is_none_or(|to| self.from < to)
    }
}

impl fmt::Debug for Interval {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.to {
            Some(to) => write!(f, "[{}, {})", self.from, to),
            None => write!(f, "[{}, …)", self.from),
        }
    }
}

/// The recorded time asked about: what did we know then?
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Known {
    /// Everything recorded so far.
    #[default]
    Latest,
    /// What had been recorded at this instant.
    At(Timestamp),
}

/// Both clocks of a read: valid time (what was true) and recorded time (what was known).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AsOf {
    pub valid: Timestamp,
    pub known: Known,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> Timestamp {
        Timestamp::parse(text).unwrap()
    }

    #[test]
    fn the_speakers_zone_is_kept() {
        let (at, zone) = Timestamp::parse_with_zone("2026-11-02T10:11:05.120+08:00").unwrap();
        assert_eq!(
            (at.to_string().as_str(), zone),
            ("2026-11-02T02:11:05.120Z", 480)
        );
        assert_eq!(
            at.to_zone(zone).to_rfc3339(),
            "2026-11-02T10:11:05.120+08:00"
        );
    }

    #[test]
    fn a_time_without_zone_is_told_apart_from_nonsense() {
        assert_eq!(
            Timestamp::parse("2026-11-02T10:11:05"),
            Err(TimeError::NoZone)
        );
        assert_eq!(Timestamp::parse("2026-11-02"), Err(TimeError::NoZone));
        assert_eq!(Timestamp::parse("yesterday"), Err(TimeError::NotAnInstant));
        let beyond = Timestamp::parse("9999-12-31T23:59:59-08:00");
        assert_eq!(
            beyond,
            Err(TimeError::NotAnInstant),
            "it is in the year 10000 in UTC"
        );
    }

    #[test]
    fn an_interval_is_half_open() {
        let (a, b) = (at("2026-01-01T00:00:00Z"), at("2026-02-01T00:00:00Z"));
        let interval = Interval::new(a, Some(b)).unwrap();
        assert!(interval.contains(a) && !interval.contains(b));
        assert_eq!(Interval::new(b, Some(a)), Err(TimeError::EndsBeforeStart));
        assert!(!interval.overlaps(Interval::new(b, None).unwrap()));
    }
}
