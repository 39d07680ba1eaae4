//! How memories fade: half-lives for ranking, exponential decay with a unit in its type, access, and
//! the order of eviction. One set of functions for recall and for the forgetter.

use std::fmt;
use std::str::FromStr;

use crate::memory::Permille;
use crate::time::Timestamp;

/// `0.5^(age / half-life)`; 1 for what has not happened yet.
pub fn recency(age_days: f64, half_life_days: f64) -> f64 {
    if age_days <= 0.0 {
        1.0
    } else {
        0.5_f64.powf(age_days / half_life_days)
    }
}

/// How often and how lately a memory was recalled, 0 to 1:
/// `min(1, ln(1+n)/ln(1+20)) × 0.5^(days since the last access / half-life)`.
pub fn access(count: u64, days_since_last: f64, half_life_days: f64) -> f64 {
    let often = ((1.0 + count as f64).ln() / 21f64.ln()).min(1.0);
    often * recency(days_since_last, half_life_days)
}

/// Eviction score, highest first: `0.4 (1 − importance) + 0.3 (1 − access) + 0.3 age`, age = 1 − recency.
pub fn eviction(importance: Permille, access: f64, recency: f64) -> f64 {
    0.4 * (1.0 - importance.share()) + 0.3 * (1.0 - access) + 0.3 * (1.0 - recency)
}

/// A decay rate with its unit.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Rate {
    per_day: f64,
    shown: (f64, Unit),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unit {
    Second,
    Hour,
    Day,
}

impl Unit {
    fn per_day(self) -> f64 {
        match self {
            Self::Second => 86_400.0,
            Self::Hour => 24.0,
            Self::Day => 1.0,
        }
    }
}

#[derive(Debug, thiserror::Error, PartialEq, Eq, Clone, Copy)]
pub enum RateError {
    #[error("a rate needs its unit: 0.02/day, 0.1/hour or 1e-5/s")]
    NoUnit,
    #[error("a rate must be a number from 0 up")]
    NotARate,
}

impl Rate {
    /// # Errors
    /// When the number is negative or not finite.
    pub fn new(value: f64, unit: Unit) -> Result<Self, RateError> {
        if !value.is_finite() || value < 0.0 {
            return Err(RateError::NotARate);
        }
        Ok(Self {
            per_day: value * unit.per_day(),
            shown: (value, unit),
        })
    }

    /// The rate that halves in `days`.
    pub fn from_half_life(days: f64) -> Self {
        let per_day = std::f64::consts::LN_2 / days;
        Self {
            per_day,
            shown: (per_day, Unit::Day),
        }
    }

    /// What is left after `days`: `e^(−λ Δt)`, counted from the event's time.
    pub fn left_after_days(self, days: f64) -> f64 {
        (-self.per_day * days.max(0.0)).exp()
    }

    pub fn left_at(self, event: Timestamp, now: Timestamp) -> f64 {
        self.left_after_days(now.days_since(event))
    }

    pub fn half_life_days(self) -> f64 {
        std::f64::consts::LN_2 / self.per_day
    }
}

impl FromStr for Rate {
    type Err = RateError;

    fn from_str(text: &str) -> Result<Self, RateError> {
        let (value, unit) = text.trim().split_once('/').ok_or(RateError::NoUnit)?;
        let unit = match unit.trim() {
            "s" | "second" | "sec" => Unit::Second,
            "h" | "hour" => Unit::Hour,
            "d" | "day" => Unit::Day,
            _ => return Err(RateError::NoUnit),
        };
        Self::new(value.trim().parse().map_err(|_| RateError::NotARate)?, unit)
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let unit = match self.shown.1 {
            Unit::Second => "s",
            Unit::Hour => "hour",
            Unit::Day => "day",
        };
        write!(f, "{}/{unit}", self.shown.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(rate: &str, days: f64, left: f64) {
        let got = rate.parse::<Rate>().unwrap().left_after_days(days);
        assert!(
            (got - left).abs() <= left * 0.002,
            "{rate} over {days} d: {got}, not {left}"
        );
    }

    #[test]
    fn worked_figures_are_right() {
        check("0.02/day", 30.0, 0.549);
        check("0.15/day", 7.0, 0.350);
        check("0.001/day", 1095.0, 0.3345);
        check("1e-5/s", 30.0, 5.54e-12);
    }

    #[test]
    fn a_half_life_halves() {
        assert!((recency(180.0, 180.0) - 0.5).abs() < 1e-12);
        assert!((Rate::from_half_life(180.0).left_after_days(360.0) - 0.25).abs() < 1e-12);
        assert_eq!(recency(-3.0, 180.0), 1.0);
    }

    #[test]
    fn a_rate_without_unit_is_refused() {
        assert_eq!("0.02".parse::<Rate>(), Err(RateError::NoUnit));
        assert_eq!("-1/day".parse::<Rate>(), Err(RateError::NotARate));
    }

    #[test]
    fn access_is_capped_and_fades() {
        assert_eq!(access(0, 0.0, 100.0), 0.0);
        assert!((access(20, 0.0, 100.0) - 1.0).abs() < 1e-12);
        assert!((access(1_000, 100.0, 100.0) - 0.5).abs() < 1e-12);
    }
}
