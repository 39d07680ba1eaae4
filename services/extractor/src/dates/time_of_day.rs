//! Which times of day does a text name: 上午九点半, "3:30 pm", noon?

use std::sync::LazyLock;

use chrono::NaiveTime;
use regex::Regex;

use crate::pattern::compile;
use crate::quantity::han_number;

static CHINESE_TIME: LazyLock<Regex> = LazyLock::new(|| {
    compile(
        r"(?P<part>凌晨|清晨|早上|早晨|上午|中午|下午|午后|傍晚|晚上|晚间|夜里|夜间|今晚|明晚|昨晚|明早|今早)?(?:的)?\s*(?:(?P<h>\d{1,2}|[一二两三四五六七八九十]{1,3})\s*[点时](?:(?P<half>半)|(?P<quarter>一刻|三刻)|(?P<m>\d{1,2}|[一二三四五六七八九十]{1,3})分?)?|(?P<h2>\d{1,2}):(?P<m2>\d{2}))(?P<tail>间|候|左右|儿)?",
    )
});

static ENGLISH_TIME: LazyLock<Regex> = LazyLock::new(|| {
    compile(
        r"\b(?:(?:at\s+)?(?P<h>\d{1,2})(?:[:.](?P<m>\d{2}))?\s*(?P<half>a\.?m\b\.?|p\.?m\b\.?)|at\s+(?P<h3>\d{1,2})(?:\s+o'clock)?\b|at\s+(?P<noon>noon|midnight)\b)(?P<rest>[^,;]{0,20}\b(?:afternoon|evening|night)\b)?",
    )
});

/// Behind a time that is written with a colon.
static HALF_AFTER: LazyLock<Regex> =
    LazyLock::new(|| compile(r"^\s*(?:(?P<am>a\.?\s?m\b\.?)|(?P<pm>p\.?\s?m\b\.?))"));

/// "tomorrow evening at 6:30": the part of the day right before the time.
static LATE_BEFORE: LazyLock<Regex> = LazyLock::new(|| {
    compile(r"\b(?:afternoon|evening|night|tonight)(?:,|\s|\bat\b|\baround\b|\babout\b|\bby\b)*$")
});

/// "6:30 in the evening", "7:30 tomorrow night".
static LATE_AFTER: LazyLock<Regex> = LazyLock::new(|| {
    compile(
        r"^\s*(?:o'clock\s*)?(?:(?:in the|this|tomorrow|on|at|next|\w+day)\s+){0,3}(?:afternoon|evening|night|tonight)\b",
    )
});

static AT_BEFORE: LazyLock<Regex> = LazyLock::new(|| compile(r"\bat\s*$"));

/// The hour of the day of a time written 7:30, and where its words end: the half of the day stands
/// behind it ("7:30 pm") or in the words around it.
fn colon_hour(folded: &str, start: usize, end: usize, hour: u32, written: &str) -> (u32, usize) {
    if let Some(half) = HALF_AFTER.captures(&folded[end..]) {
        let end = end + half.get(0).map_or(0, |m| m.end());
        let hour = match (half.name("pm").is_some(), hour) {
            (true, 0..12) => hour + 12,
            (false, 12) => 0,
            (true | false, _) => hour,
        };
        return (hour, end);
    }
    let is_late = LATE_BEFORE.is_match(&folded[..start]) || LATE_AFTER.is_match(&folded[end..]);
    // Nobody is seen at 2:45 at night; 02:45 is exact.
    let is_bare = AT_BEFORE.is_match(&folded[..start]) && hour < 7 && !written.starts_with('0');
    if (is_late || is_bare) && (1..12).contains(&hour) {
        (hour + 12, end)
    } else {
        (hour, end)
    }
}

pub(super) fn times_of_day(folded: &str) -> Vec<(usize, usize, NaiveTime)> {
    let mut found = Vec::new();
    for hit in CHINESE_TIME.captures_iter(folded) {
        let whole = hit.get(0).expect("a match has a whole");
        let part = hit.name("part").map_or("", |m| m.as_str());
        if matches!(hit.name("tail").map(|m| m.as_str()), Some("间" | "候")) {
            continue;
        }
        let written = hit
            .name("h")
            .or_else(|| hit.name("h2"))
            .map_or("", |m| m.as_str());
        let is_bit = written == "一"
            && part.is_empty()
            && hit.name("half").is_none()
            && hit.name("m").is_none();
        let Some(mut hour) = han_number(written).filter(|_| !is_bit) else {
            continue;
        };
        let minute = match (
            hit.name("half"),
            hit.name("quarter"),
            hit.name("m").or_else(|| hit.name("m2")),
        ) {
            (Some(_), _, _) => 30,
            (_, Some(quarter), _) => {
                if quarter.as_str() == "一刻" {
                    15
                } else {
                    45
                }
            }
            (_, _, Some(minute)) => han_number(minute.as_str()).unwrap_or(0),
            (None, None, None) => 0,
        };
        let is_night = matches!(
            part,
            "晚上" | "晚间" | "夜里" | "夜间" | "今晚" | "明晚" | "昨晚"
        );
        let is_small = matches!(part, "夜里" | "夜间") && hour < 6;
        let is_later = (is_night && !is_small)
            || matches!(part, "下午" | "午后" | "傍晚")
            || (part == "中午" && hour < 3);
        if is_night && hour == 12 {
            // Twelve at night belongs to two days: the day alone is certain.
            continue;
        }
        if is_later && hour < 12 {
            hour += 12;
        } else if part == "凌晨" && hour == 12 {
            hour = 0;
        }
        let mut end = whole.end();
        if part.is_empty() && hit.name("h2").is_some() {
            let start = hit.name("h2").map_or(whole.start(), |m| m.start());
            (hour, end) = colon_hour(folded, start, end, hour, written);
        }
        if let Some(time) = NaiveTime::from_hms_opt(hour, minute, 0) {
            found.push((whole.start(), end, time));
        }
    }
    for hit in ENGLISH_TIME.captures_iter(folded) {
        let whole = hit.get(0).expect("a match has a whole");
        if found
            .iter()
            .any(|(start, end, _)| whole.start() < *end && *start < whole.end())
        {
            continue;
        }
        let number = |name: &str| hit.name(name).and_then(|m| m.as_str().parse::<u32>().ok());
        let hour = match (
            number("h"),
            number("h3"),
            hit.name("noon").map(|m| m.as_str()),
        ) {
            (Some(hour), _, _) => match hit.name("half").map(|m| m.as_str().starts_with('p')) {
                Some(true) if hour < 12 => hour + 12,
                Some(false) if hour == 12 => 0,
                Some(_) | None => hour,
            },
            // Nobody is seen at 3 at night: a bare small hour is in the afternoon.
            (_, Some(hour), _)
                if hour < 7
                    || (hit.name("rest").is_some()
                        || LATE_BEFORE.is_match(&folded[..whole.start()]))
                        && hour < 12 =>
            {
                hour + 12
            }
            (_, Some(hour), _) => hour,
            (_, _, Some("noon")) => 12,
            (None, None, _) => 0,
        };
        if let Some(time) = NaiveTime::from_hms_opt(hour, number("m").unwrap_or(0), 0) {
            found.push((whole.start(), whole.end(), time));
        }
    }
    found
}
