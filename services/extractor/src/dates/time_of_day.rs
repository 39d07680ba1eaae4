//! Which times of day does a text name: 上午九点半, "3:30 pm", noon?

use std::sync::LazyLock;

use chrono::NaiveTime;
use regex::Regex;

use crate::pattern::compile;
use crate::quantity::han_number;

static CHINESE_TIME: LazyLock<Regex> = LazyLock::new(|| {
    compile(
        r"(?P<part>凌晨|清晨|早上|早晨|上午|中午|下午|傍晚|晚上|今晚|明晚|明早|今早)?\s*(?:(?P<h>\d{1,2}|[一二两三四五六七八九十]{1,3})\s*[点时](?:(?P<half>半)|(?P<quarter>一刻|三刻)|(?P<m>\d{1,2}|[一二三四五六七八九十]{1,3})分?)?|(?P<h2>\d{1,2}):(?P<m2>\d{2}))(?P<tail>间|候|左右|儿)?",
    )
});

static ENGLISH_TIME: LazyLock<Regex> = LazyLock::new(|| {
    compile(
        r"\b(?:(?P<h>\d{1,2})(?::(?P<m>\d{2}))?\s*(?P<half>a\.?m\b\.?|p\.?m\b\.?)|at\s+(?P<h3>\d{1,2})(?:\s+o'clock)?\b|at\s+(?P<noon>noon|midnight)\b)(?P<rest>[^,;]{0,20}\b(?:afternoon|evening|night)\b)?",
    )
});

pub(super) fn times_of_day(folded: &str) -> Vec<(usize, usize, NaiveTime)> {
    let mut found = Vec::new();
    for hit in CHINESE_TIME.captures_iter(folded) {
        let whole = hit.get(0).expect("a match has a whole");
        let part = hit.name("part").map_or("", |m| m.as_str());
        if matches!(hit.name("tail").map(|m| m.as_str()), Some("间" | "候")) {
            continue;
        }
        let hour = hit
            .name("h")
            .or_else(|| hit.name("h2"))
            .map_or("", |m| m.as_str());
        let is_bit = hour == "一"
            && part.is_empty()
            && hit.name("half").is_none()
            && hit.name("m").is_none();
        let Some(mut hour) = han_number(hour).filter(|_| !is_bit) else {
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
        let is_later = matches!(part, "下午" | "傍晚" | "晚上" | "今晚" | "明晚")
            || (part == "中午" && hour < 3);
        if is_later && hour < 12 {
            hour += 12;
        }
        if let Some(time) = NaiveTime::from_hms_opt(hour, minute, 0) {
            found.push((whole.start(), whole.end(), time));
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
            (_, Some(hour), _) if hour < 7 || hit.name("rest").is_some() && hour < 12 => hour + 12,
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
