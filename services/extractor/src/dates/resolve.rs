//! From the words of a date to its span of local time, counted from the moment of speaking. A date
//! that does not exist is none.

use chrono::{Datelike as _, Days, Duration, Months, NaiveDate, NaiveDateTime, NaiveTime};
use regex::Captures;

use super::{Clock, Direction, Grain};
use crate::quantity::han_number;

/// A half-open range of local time.
pub(super) type Span = (NaiveDateTime, NaiveDateTime, Grain);

fn midnight(day: NaiveDate) -> NaiveDateTime {
    day.and_time(NaiveTime::MIN)
}

fn day_span(day: NaiveDate) -> Option<Span> {
    Some((
        midnight(day),
        midnight(day.checked_add_days(Days::new(1))?),
        Grain::Day,
    ))
}

fn month_span(year: i32, month: u32) -> Option<Span> {
    let first = NaiveDate::from_ymd_opt(year, month, 1)?;
    Some((
        midnight(first),
        midnight(first.checked_add_months(Months::new(1))?),
        Grain::Month,
    ))
}

fn year_span(year: i32) -> Option<Span> {
    let first = NaiveDate::from_ymd_opt(year, 1, 1)?;
    Some((
        midnight(first),
        midnight(NaiveDate::from_ymd_opt(year + 1, 1, 1)?),
        Grain::Year,
    ))
}

fn week_span(monday: NaiveDate) -> Option<Span> {
    Some((
        midnight(monday),
        midnight(monday.checked_add_days(Days::new(7))?),
        Grain::Week,
    ))
}

fn plus_days(day: NaiveDate, days: i64) -> Option<NaiveDate> {
    day.checked_add_signed(Duration::try_days(days)?)
}

fn number(hit: &Captures<'_>, name: &str) -> Option<u32> {
    hit.name(name).and_then(|m| han_number(m.as_str()))
}

fn year(hit: &Captures<'_>) -> Option<i32> {
    let year: i32 = hit.name("y")?.as_str().parse().ok()?;
    (1900..=2200).contains(&year).then_some(year)
}

pub(super) fn full_date(hit: &Captures<'_>, _: &Clock, _: Direction) -> Option<Span> {
    let year = year(hit)?;
    match (number(hit, "m"), number(hit, "d")) {
        (Some(month), Some(day)) => day_span(NaiveDate::from_ymd_opt(year, month, day)?),
        (Some(month), None) => month_span(year, month),
        (None, _) => year_span(year),
    }
}

pub(super) fn slashed(hit: &Captures<'_>, _: &Clock, _: Direction) -> Option<Span> {
    let (a, b, year) = (number(hit, "a")?, number(hit, "b")?, year(hit)?);
    let date =
        NaiveDate::from_ymd_opt(year, a, b).or_else(|| NaiveDate::from_ymd_opt(year, b, a))?;
    day_span(date)
}

pub(super) fn relative_year(hit: &Captures<'_>, clock: &Clock, _: Direction) -> Option<Span> {
    let by = match hit.name("rel")?.as_str() {
        "大前" => -3,
        "前" => -2,
        "去" => -1,
        "今" => 0,
        "明" => 1,
        _ => 2,
    };
    let year = clock.today().year() + by;
    match (number(hit, "m"), number(hit, "d")) {
        (Some(month), Some(day)) => day_span(NaiveDate::from_ymd_opt(year, month, day)?),
        (Some(month), None) => month_span(year, month),
        (None, _) => year_span(year),
    }
}

fn monday(day: NaiveDate) -> Option<NaiveDate> {
    plus_days(day, -i64::from(day.weekday().num_days_from_monday()))
}

pub(super) fn chinese_week(
    hit: &Captures<'_>,
    clock: &Clock,
    direction: Direction,
) -> Option<Span> {
    let today = clock.today();
    let index = match hit.name("day").map(|m| m.as_str()) {
        Some("末") => Some(5),
        Some("日" | "天") => Some(6),
        Some(day) => Some(i64::from(han_number(day)?) - 1),
        None => None,
    };
    let weeks = match hit.name("rel").map(|m| m.as_str()) {
        Some("上上") => -2,
        Some("上") => -1,
        Some("这" | "本") => 0,
        Some("下") => 1,
        Some(_) => 2,
        None => return day_span(bare_weekday(today, index?, direction)?),
    };
    let monday = plus_days(monday(today)?, weeks * 7)?;
    match index {
        Some(index) => day_span(plus_days(monday, index)?),
        None => week_span(monday),
    }
}

/// The most recent such day, today included, or the next one.
fn bare_weekday(today: NaiveDate, index: i64, direction: Direction) -> Option<NaiveDate> {
    let ahead = (index - i64::from(today.weekday().num_days_from_monday())).rem_euclid(7);
    match direction {
        Direction::Past => plus_days(today, if ahead == 0 { 0 } else { ahead - 7 }),
        Direction::Future => plus_days(today, if ahead == 0 { 7 } else { ahead }),
    }
}

pub(super) fn chinese_month(hit: &Captures<'_>, clock: &Clock, _: Direction) -> Option<Span> {
    let first = clock.today().with_day(1)?;
    let month = match hit.name("rel")?.as_str() {
        "上上" => first.checked_sub_months(Months::new(2))?,
        "上" => first.checked_sub_months(Months::new(1))?,
        "下" => first.checked_add_months(Months::new(1))?,
        _ => first,
    };
    match number(hit, "d") {
        Some(day) => day_span(month.with_day(day)?),
        None => month_span(month.year(), month.month()),
    }
}

pub(super) fn month_day(hit: &Captures<'_>, clock: &Clock, direction: Direction) -> Option<Span> {
    dated(
        number(hit, "m")?,
        number(hit, "d")?,
        clock.today(),
        direction,
    )
}

fn dated(month: u32, day: u32, today: NaiveDate, direction: Direction) -> Option<Span> {
    let this_year = NaiveDate::from_ymd_opt(today.year(), month, day);
    let other = match direction {
        Direction::Past => NaiveDate::from_ymd_opt(today.year() - 1, month, day),
        Direction::Future => NaiveDate::from_ymd_opt(today.year() + 1, month, day),
    };
    let fits = |date: NaiveDate| match direction {
        Direction::Past => date <= today,
        Direction::Future => date >= today,
    };
    day_span(
        this_year
            .filter(|date| fits(*date))
            .or(other)
            .or(this_year)?,
    )
}

pub(super) fn month_alone(hit: &Captures<'_>, clock: &Clock, direction: Direction) -> Option<Span> {
    let month = number(hit, "m")?;
    month_near(month, clock.today(), direction)
}

fn month_near(month: u32, today: NaiveDate, direction: Direction) -> Option<Span> {
    let year = match direction {
        Direction::Past if month > today.month() => today.year() - 1,
        Direction::Future if month < today.month() => today.year() + 1,
        Direction::Past | Direction::Future => today.year(),
    };
    month_span(year, month)
}

pub(super) fn day_alone(hit: &Captures<'_>, clock: &Clock, direction: Direction) -> Option<Span> {
    let (day, today) = (number(hit, "d")?, clock.today());
    let this = today.with_day(day)?;
    let first = today.with_day(1)?;
    let date = match direction {
        Direction::Past if this > today => {
            first.checked_sub_months(Months::new(1))?.with_day(day)?
        }
        Direction::Future if this < today => {
            first.checked_add_months(Months::new(1))?.with_day(day)?
        }
        Direction::Past | Direction::Future => this,
    };
    day_span(date)
}

pub(super) fn chinese_day(hit: &Captures<'_>, clock: &Clock, _: Direction) -> Option<Span> {
    let by = match hit.get(0)?.as_str() {
        "大前天" => -3,
        "前天" | "前日" => -2,
        "昨天" | "昨日" | "昨晚" | "昨夜" => -1,
        "明天" | "明日" | "明早" | "明晚" => 1,
        "后天" => 2,
        "大后天" => 3,
        _ => 0,
    };
    day_span(plus_days(clock.today(), by)?)
}

/// Days, months and half of either, as whole days and months.
fn length(n: &str, unit: &str, has_half: bool) -> Option<(i64, u32)> {
    let is_half = matches!(n, "半" | "half a");
    let count = if is_half {
        0
    } else {
        english_number(n).or_else(|| han_number(n))?
    };
    let has_half = has_half || is_half;
    Some(match unit {
        "天" | "日" | "day" => (i64::from(count), 0),
        "周" | "星期" | "礼拜" | "week" => {
            (i64::from(count) * 7 + if has_half { 3 } else { 0 }, 0)
        }
        "月" | "month" => (if has_half { 15 } else { 0 }, count),
        "年" | "year" => (0, count * 12 + if has_half { 6 } else { 0 }),
        _ => return None,
    })
}

fn english_number(word: &str) -> Option<u32> {
    const WORDS: [(&str, u32); 15] = [
        ("a", 1),
        ("an", 1),
        ("one", 1),
        ("two", 2),
        ("couple of", 2),
        ("a couple of", 2),
        ("three", 3),
        ("four", 4),
        ("five", 5),
        ("six", 6),
        ("seven", 7),
        ("eight", 8),
        ("nine", 9),
        ("ten", 10),
        ("twelve", 12),
    ];
    WORDS
        .iter()
        .find(|(known, _)| *known == word)
        .map(|(_, number)| *number)
}

fn minutes(n: &str, unit: &str) -> Option<i64> {
    let count = english_number(n).or_else(|| han_number(n))?;
    match unit {
        "小时" | "钟头" | "hour" => Some(i64::from(count) * 60),
        "分钟" | "minute" => Some(i64::from(count)),
        _ => None,
    }
}

fn shifted(hit: &Captures<'_>, clock: &Clock, forward: bool) -> Option<Span> {
    let (n, unit) = (hit.name("n")?.as_str(), hit.name("unit")?.as_str());
    if let Some(minutes) = minutes(n, unit) {
        let by = Duration::try_minutes(if forward { minutes } else { -minutes })?;
        let at = clock.now().checked_add_signed(by)?;
        return Some((at, at, Grain::Minute));
    }
    let has_half = hit.name("half").is_some() || hit.name("half2").is_some();
    let (days, months) = length(n, unit, has_half)?;
    let today = clock.today();
    let day = if forward {
        plus_days(today.checked_add_months(Months::new(months))?, days)?
    } else {
        plus_days(today.checked_sub_months(Months::new(months))?, -days)?
    };
    day_span(day)
}

pub(super) fn chinese_ago(hit: &Captures<'_>, clock: &Clock, _: Direction) -> Option<Span> {
    shifted(hit, clock, false)
}

pub(super) fn chinese_hence(hit: &Captures<'_>, clock: &Clock, _: Direction) -> Option<Span> {
    shifted(hit, clock, true)
}

pub(super) fn english_ago(hit: &Captures<'_>, clock: &Clock, _: Direction) -> Option<Span> {
    shifted(hit, clock, false)
}

pub(super) fn english_hence(hit: &Captures<'_>, clock: &Clock, _: Direction) -> Option<Span> {
    shifted(hit, clock, true)
}

fn english_month(name: &str) -> Option<u32> {
    const MONTHS: [&str; 12] = [
        "jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec",
    ];
    let index = MONTHS.iter().position(|month| name.starts_with(month))?;
    u32::try_from(index + 1).ok()
}

pub(super) fn english_date(
    hit: &Captures<'_>,
    clock: &Clock,
    direction: Direction,
) -> Option<Span> {
    let month = english_month(hit.name("month")?.as_str())?;
    match (year(hit), number(hit, "d")) {
        (Some(year), Some(day)) => day_span(NaiveDate::from_ymd_opt(year, month, day)?),
        (Some(year), None) => month_span(year, month),
        (None, Some(day)) => dated(month, day, clock.today(), direction),
        (None, None) => month_near(month, clock.today(), direction),
    }
}

pub(super) fn english_day(hit: &Captures<'_>, clock: &Clock, _: Direction) -> Option<Span> {
    let by = match hit.get(0)?.as_str() {
        "the day before yesterday" => -2,
        "yesterday" | "last night" => -1,
        "tomorrow" => 1,
        "the day after tomorrow" => 2,
        _ => 0,
    };
    day_span(plus_days(clock.today(), by)?)
}

pub(super) fn english_weekday(
    hit: &Captures<'_>,
    clock: &Clock,
    direction: Direction,
) -> Option<Span> {
    const DAYS: [&str; 7] = [
        "monday",
        "tuesday",
        "wednesday",
        "thursday",
        "friday",
        "saturday",
        "sunday",
    ];
    let index = i64::try_from(DAYS.iter().position(|day| *day == &hit["day"])?).ok()?;
    let today = clock.today();
    let day = match hit.name("rel").map(|m| m.as_str()) {
        Some("last" | "past" | "this past") => {
            let recent = bare_weekday(today, index, Direction::Past)?;
            if recent == today {
                plus_days(recent, -7)?
            } else {
                recent
            }
        }
        Some("next") => plus_days(monday(today)?, 7 + index)?,
        Some("coming" | "this coming") => bare_weekday(today, index, Direction::Future)?,
        Some("this") => plus_days(monday(today)?, index)?,
        Some(_) | None => bare_weekday(today, index, direction)?,
    };
    day_span(day)
}

pub(super) fn english_unit(hit: &Captures<'_>, clock: &Clock, _: Direction) -> Option<Span> {
    let by: i32 = match &hit["rel"] {
        "last" | "past" => -1,
        "next" | "coming" => 1,
        _ => 0,
    };
    let today = clock.today();
    match &hit["unit"] {
        "week" => week_span(plus_days(monday(today)?, i64::from(by) * 7)?),
        "weekend" => day_span(plus_days(monday(today)?, i64::from(by) * 7 + 5)?),
        "month" => {
            let first = today.with_day(1)?;
            let month = if by < 0 {
                first.checked_sub_months(Months::new(1))?
            } else {
                first.checked_add_months(Months::new(by.unsigned_abs()))?
            };
            month_span(month.year(), month.month())
        }
        _ => year_span(today.year() + by),
    }
}
