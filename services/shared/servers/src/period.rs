//! How is a period written in the configuration? With its unit: `250ms`, `30s`, `10m`.

use std::time::Duration;

use serde::de::Error as _;
use serde::{Deserialize as _, Deserializer, Serializer};

pub(crate) fn serialize<S: Serializer>(
    period: &Duration,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    serializer.collect_str(&humantime::format_duration(*period))
}

pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Duration, D::Error> {
    let text = String::deserialize(deserializer)?;
    match humantime::parse_duration(&text) {
        Ok(period) if !period.is_zero() => Ok(period),
        Ok(_) | Err(_) => Err(D::Error::custom(format!(
            "`{text}` is not a period longer than 0 with its unit, as 250ms, 30s or 10m"
        ))),
    }
}
