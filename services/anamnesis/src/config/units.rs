//! Values that are written with their unit: spans of time, and the offset of a clock.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use anamnesis_domain::time::Timestamp;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A span of time that is written with its unit: `250ms`, `72h`, `7d`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Period(Duration);

impl Period {
    pub const fn millis(millis: u64) -> Self {
        Self(Duration::from_millis(millis))
    }

    pub const fn secs(secs: u64) -> Self {
        Self(Duration::from_secs(secs))
    }

    pub const fn hours(hours: u64) -> Self {
        Self::secs(hours * 3_600)
    }

    pub const fn days(days: u64) -> Self {
        Self::hours(days * 24)
    }

    pub const fn duration(self) -> Duration {
        self.0
    }
}

impl FromStr for Period {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match humantime::parse_duration(text) {
            Ok(duration) if duration.is_zero() => Err("a period must be longer than 0".to_owned()),
            Ok(duration) => Ok(Self(duration)),
            Err(_) => Err(format!(
                "`{text}` is not a period with its unit, as 250ms, 72h or 7d"
            )),
        }
    }
}

impl fmt::Display for Period {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        humantime::format_duration(self.0).fmt(f)
    }
}

impl Serialize for Period {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Period {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?
            .parse()
            .map_err(serde::de::Error::custom)
    }
}

/// Minutes east of Greenwich, written as in an instant: `+08:00`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Zone {
    minutes: i32,
}

impl Zone {
    pub const fn minutes(self) -> i32 {
        self.minutes
    }
}

impl FromStr for Zone {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        // Any instant will do: its offset is what is asked for, and is read as everywhere else.
        match Timestamp::parse_with_zone(&format!("2000-01-01T00:00:00{text}")) {
            Ok((_, minutes)) => Ok(Self { minutes }),
            Err(_) => Err(format!("`{text}` is not an offset from UTC, as +08:00")),
        }
    }
}

impl fmt::Display for Zone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sign = if self.minutes < 0 { '-' } else { '+' };
        write!(
            f,
            "{sign}{:02}:{:02}",
            self.minutes.abs() / 60,
            self.minutes.abs() % 60
        )
    }
}

impl Serialize for Zone {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Zone {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?
            .parse()
            .map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_period_reads_what_it_prints() {
        for (text, period) in [
            ("250ms", Period::millis(250)),
            ("72h", Period::hours(72)),
            ("7d", Period::days(7)),
        ] {
            assert_eq!(text.parse(), Ok(period));
            assert_eq!(period.to_string().parse(), Ok(period));
        }
    }

    #[test]
    fn a_zone_reads_what_it_prints() {
        for (text, minutes) in [("+08:00", 480), ("-03:30", -210), ("+00:00", 0)] {
            let zone: Zone = text.parse().unwrap();
            assert_eq!((zone.minutes(), zone.to_string().as_str()), (minutes, text));
        }
    }
}
