//! What is watched while the node runs, and how often?

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::units::Period;

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct WatchConfig {
    /// Time between two owners that are replayed and compared with the stores; `0s` for never.
    pub drift_every: Every,
}

impl Default for WatchConfig {
    fn default() -> Self {
        Self {
            drift_every: Every(Some(Period::secs(60))),
        }
    }
}

/// How often something is done; `0s` for never.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Every(Option<Period>);

impl Every {
    pub fn duration(self) -> Option<Duration> {
        self.0.map(Period::duration)
    }
}

impl FromStr for Every {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if matches!(text, "0" | "0s") {
            return Ok(Self(None));
        }
        text.parse().map(|period| Self(Some(period)))
    }
}

impl fmt::Display for Every {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(period) => period.fmt(f),
            None => f.write_str("0s"),
        }
    }
}

impl Serialize for Every {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Every {
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
    fn never_is_said_with_zero() {
        for (text, seconds) in [
            ("0s", None),
            ("0", None),
            ("90s", Some(90)),
            ("1m", Some(60)),
        ] {
            let every: Every = text.parse().unwrap();
            let duration = every.duration().map(|duration| duration.as_secs());
            assert_eq!(duration, seconds, "{text}");
            assert_eq!(every.to_string().parse::<Every>().unwrap(), every);
        }
        assert!("60".parse::<Every>().is_err(), "a period has its unit");
    }
}
