//! FHIR dates may stop at the year, the month or the day.

use anamnesis_domain::time::Timestamp;
use chrono::{Datelike as _, FixedOffset, NaiveDate, TimeZone as _};

use crate::message::Rejected;
use crate::read::Node;

/// A time as exact as it was written.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct When {
    /// The first moment of what was written.
    pub(super) from: Timestamp,
    /// The first moment after it; the same for an instant.
    pub(super) after: Timestamp,
    /// Minutes east of Greenwich, when it was written.
    pub(super) zone: Option<i32>,
    is_coarse: bool,
    /// Year, month or day as written.
    pub(super) words: String,
    pub(super) path: String,
}

impl When {
    /// The end that this says. A day as an end is its beginning, as everywhere; a year or a month is over
    /// only when it is over. What began and ended on one day did last that day.
    pub(super) fn end(&self, began: Option<Timestamp>) -> Timestamp {
        if self.is_coarse || began.is_some_and(|began| began >= self.from) {
            self.after
        } else {
            self.from
        }
    }
}

/// Reads a FHIR date or dateTime. One without a zone is read on the clock `zone_minutes` east of
/// Greenwich.
pub(super) fn read(node: &Node<'_>, zone_minutes: i32) -> Result<When, Rejected> {
    let text = node.text()?;
    let invalid = || {
        let detail = "not a FHIR date (2024, 2024-03, 2024-03-05) or an instant with its zone";
        Rejected::new("invalid_time", &node.path, detail)
    };
    if text.len() > 10 {
        let (at, zone) = node.instant()?;
        return Ok(When {
            from: at,
            after: at,
            zone: Some(zone),
            is_coarse: false,
            words: text.chars().take(10).collect(),
            path: node.path.clone(),
        });
    }
    let full = match text.len() {
        4 => format!("{text}-01-01"),
        7 => format!("{text}-01"),
        _ => text.to_owned(),
    };
    let first = NaiveDate::parse_from_str(&full, "%Y-%m-%d")
        .ok()
        .filter(|first| full.len() == 10 && (1900..=9998).contains(&first.year()))
        .ok_or_else(invalid)?;
    let next = match text.len() {
        4 => NaiveDate::from_ymd_opt(first.year() + 1, 1, 1),
        7 if first.month() == 12 => NaiveDate::from_ymd_opt(first.year() + 1, 1, 1),
        7 => NaiveDate::from_ymd_opt(first.year(), first.month() + 1, 1),
        _ => first.succ_opt(),
    };
    let zone = FixedOffset::east_opt(zone_minutes.clamp(-1439, 1439) * 60);
    let start = |date: NaiveDate| {
        let midnight = date.and_hms_opt(0, 0, 0)?;
        let at = zone?.from_local_datetime(&midnight).single()?;
        Some(Timestamp::from_millis(at.timestamp_millis()))
    };
    Ok(When {
        from: start(first).ok_or_else(invalid)?,
        after: next.and_then(start).ok_or_else(invalid)?,
        zone: None,
        is_coarse: text.len() < 10,
        words: text.to_owned(),
        path: node.path.clone(),
    })
}

/// The first of these fields that is there; each is a way inward.
pub(super) fn first(
    root: &Node<'_>,
    fields: &[&[&str]],
    zone_minutes: i32,
) -> Result<Option<When>, Rejected> {
    fields
        .iter()
        .find_map(|way| root.walk(way))
        .map(|node| read(&node, zone_minutes))
        .transpose()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn check(text: &str, expected: Result<(&str, &str), &str>) {
        let value = json!(text);
        let read = read(&Node::root(&value), 480);
        let read = read
            .map(|when| (when.from.to_string(), when.after.to_string()))
            .map_err(|rejected| rejected.code);
        let expected = expected.map(|(from, after)| (from.to_owned(), after.to_owned()));
        assert_eq!(read, expected, "{text}");
    }

    #[test]
    fn a_date_is_as_exact_as_it_was_written() {
        check("2024", Ok(("2023-12-31T16:00:00Z", "2024-12-31T16:00:00Z")));
        check(
            "2024-12",
            Ok(("2024-11-30T16:00:00Z", "2024-12-31T16:00:00Z")),
        );
        check(
            "2024-02-29",
            Ok(("2024-02-28T16:00:00Z", "2024-02-29T16:00:00Z")),
        );
        check(
            "2024-03-05T08:00:00Z",
            Ok(("2024-03-05T08:00:00Z", "2024-03-05T08:00:00Z")),
        );
        check("2023-02-29", Err("invalid_time"));
        check("24-03-05", Err("invalid_time"));
        check("2024-3-5", Err("invalid_time"));
        check("2024-03-05T08:00:00", Err("time_without_zone"));
    }
}
