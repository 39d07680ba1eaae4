//! When was it, in the speaker's own zone, counted from the moment of speaking?
//!
//! "上周五" and "next Tuesday at 3pm" are resolved against the event's own time, never against the
//! time of processing. A moment is a half-open range of local time with its grain.

use std::sync::LazyLock;

use anamnesis_domain::time::Timestamp;
use chrono::{Datelike as _, Days, Duration, Months, NaiveDate, NaiveDateTime, NaiveTime};
use regex::{Captures, Regex};

use crate::quantity::han_number;

/// When it was said, and the speaker's offset from Greenwich.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    at: Timestamp,
    zone_minutes: i32,
}

impl Clock {
    pub(crate) fn new(at: Timestamp, zone_minutes: i32) -> Self {
        Self {
            at,
            zone_minutes: zone_minutes.clamp(-1439, 1439),
        }
    }

    pub(crate) fn at(self) -> Timestamp {
        self.at
    }

    fn now(self) -> NaiveDateTime {
        self.at.to_zone(self.zone_minutes).naive_local()
    }

    pub(crate) fn today(self) -> NaiveDate {
        self.now().date()
    }

    /// The instant at which the speaker's wall clock shows `local`.
    pub(crate) fn instant(self, local: NaiveDateTime) -> Timestamp {
        let millis = local.and_utc().timestamp_millis();
        Timestamp::from_millis(millis.saturating_sub(i64::from(self.zone_minutes) * 60_000))
    }

    pub(crate) fn end_of_day(self, day: NaiveDate) -> Timestamp {
        let next = day.checked_add_days(Days::new(1)).unwrap_or(day);
        self.instant(next.and_time(NaiveTime::MIN))
    }

    /// `2026-06-19T09:00+08:00`, or the date alone where no time was said.
    pub(crate) fn written(self, moment: &Moment) -> String {
        match moment.grain {
            Grain::Minute => {
                let (sign, minutes) = if self.zone_minutes < 0 {
                    ('-', -self.zone_minutes)
                } else {
                    ('+', self.zone_minutes)
                };
                format!(
                    "{}{sign}{:02}:{:02}",
                    moment.from.format("%Y-%m-%dT%H:%M"),
                    minutes / 60,
                    minutes % 60
                )
            }
            Grain::Day | Grain::Week => moment.from.format("%Y-%m-%d").to_string(),
            Grain::Month => moment.from.format("%Y-%m").to_string(),
            Grain::Year => moment.from.format("%Y").to_string(),
        }
    }
}

/// Which way a bare "Wednesday" or "3月1日" points.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Direction {
    Past,
    Future,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Grain {
    Minute,
    Day,
    Week,
    Month,
    Year,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Moment {
    /// Bytes of the folded text.
    pub(crate) start: usize,
    pub(crate) end: usize,
    pub(crate) from: NaiveDateTime,
    pub(crate) to: NaiveDateTime,
    pub(crate) grain: Grain,
    /// "today", "now", "从今天起": the moment of speaking itself.
    pub(crate) is_now: bool,
    /// Says what a noun is like ("三年前的降压药") and not when the statement holds.
    pub(crate) attributive: bool,
}

type Span = (NaiveDateTime, NaiveDateTime, Grain);
type Resolve = fn(&Captures<'_>, &Clock, Direction) -> Option<Span>;

const N: &str = r"(?P<n>\d{1,3}|半|[一二两三四五六七八九十百]{1,4}|几)";
const EN_N: &str = r"(?P<n>\d{1,3}|an?|one|two|three|four|five|six|seven|eight|nine|ten|twelve|couple of|a couple of|half a)";
const MONTH: &str = r"(?P<month>jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may|june?|july?|aug(?:ust)?|sept?(?:ember)?|oct(?:ober)?|nov(?:ember)?|dec(?:ember)?)\.?";

/// In order of preference: what an earlier pattern took, a later one cannot take again.
static PATTERNS: LazyLock<Vec<(Regex, Resolve)>> = LazyLock::new(|| {
    let table: Vec<(String, Resolve)> = vec![
        (r"(?P<y>\d{4})\s*[-/.]\s*(?P<m>\d{1,2})\s*[-/.]\s*(?P<d>\d{1,2})".into(), full_date),
        (r"(?P<y>\d{4})\s*年\s*(?:(?P<m>\d{1,2})\s*月(?:份)?\s*(?:(?P<d>\d{1,2})\s*[日号]?)?)?".into(), full_date),
        (r"(?P<rel>大前|前|去|今|明|后)年(?:\s*(?P<m>\d{1,2}|[一二三四五六七八九十]{1,2})\s*月(?:份)?(?:\s*(?P<d>\d{1,2}|[一二三四五六七八九十]{1,3})\s*[日号])?)?".into(), relative_year),
        (r"(?P<rel>上上|上|这|本|下下|下)个?(?:周|星期|礼拜)(?P<day>[一二三四五六日天末])?".into(), chinese_week),
        (r"(?P<rel>上上|上|这|本|下)个?月(?:\s*(?P<d>\d{1,2}|[一二三四五六七八九十]{1,3})\s*[日号])?".into(), chinese_month),
        (r"(?P<m>\d{1,2}|[一二三四五六七八九十]{1,2})\s*月\s*(?P<d>\d{1,2}|[一二三四五六七八九十]{1,3})\s*[日号]?".into(), month_day),
        (r"大前天|前天|前日|昨天|昨日|昨晚|昨夜|今天|今日|今早|今晚|今晨|当天|明天|明日|明早|明晚|大后天|后天|现在|目前|如今|即日".into(), chinese_day),
        (format!(r"{N}\s*个?(?P<half>半)?(?P<unit>天|日|周|星期|礼拜|月|年|小时|钟头|分钟)(?P<half2>半)?(?:多)?(?:之前|以前|前)"), chinese_ago),
        (format!(r"{N}\s*个?(?P<half>半)?(?P<unit>天|日|周|星期|礼拜|月|年|小时|分钟)(?P<half2>半)?(?:之后|以后|后)"), chinese_hence),
        (format!(r"(?:了|已经|有|连续)\s*{N}\s*个?(?P<half>半)?(?P<unit>天|周|星期|礼拜|月|年)(?P<half2>半)?(?:多)?"), chinese_ago),
        (format!(r"{N}\s*个?(?P<half>半)?(?P<unit>天|周|星期|礼拜|月|年)(?P<half2>半)?(?:多)?了"), chinese_ago),
        (r"(?:周|星期|礼拜)(?P<day>[一二三四五六日天末])".into(), chinese_week),
        (r"(?P<m>\d{1,2}|十[一二]?|[一二三四五六七八九])\s*月份?".into(), month_alone),
        (r"(?P<d>\d{1,2})号".into(), day_alone),
        (format!(r"\b{MONTH}\s+(?P<d>\d{{1,2}})(?:st|nd|rd|th)?(?:,?\s+(?P<y>\d{{4}}))?\b"), english_date),
        (format!(r"\b(?P<d>\d{{1,2}})(?:st|nd|rd|th)?\s+(?:of\s+)?{MONTH}(?:,?\s+(?P<y>\d{{4}}))?\b"), english_date),
        (format!(r"\b{MONTH},?\s+(?:of\s+)?(?P<y>\d{{4}})\b"), english_date),
        (format!(r"\b(?:in|since|last|next|this|from|until|till)\s+{MONTH}\b"), english_date),
        (r"\b(?P<a>\d{1,2})/(?P<b>\d{1,2})/(?P<y>\d{4})\b".into(), slashed),
        (r"\bthe day before yesterday\b|\byesterday\b|\blast night\b|\btoday\b|\btonight\b|\bthis (?:morning|afternoon|evening)\b|\bthe day after tomorrow\b|\btomorrow\b|\b(?:right )?now\b|\bcurrently\b".into(), english_day),
        (r"\b(?:(?P<rel>last|next|this|past|coming|this coming|this past|on)\s+)?(?P<day>monday|tuesday|wednesday|thursday|friday|saturday|sunday)\b".into(), english_weekday),
        (r"\b(?P<rel>last|next|this|past|coming)\s+(?P<unit>week(?:end)?|month|year)\b".into(), english_unit),
        (format!(r"\b{EN_N}\s+(?P<unit>minute|hour|day|week|month|year)s?\s+(?:ago|back|earlier)\b"), english_ago),
        (format!(r"\b(?:in|within)\s+{EN_N}\s+(?P<unit>minute|hour|day|week|month|year)s?\b"), english_hence),
        (format!(r"\b{EN_N}\s+(?P<unit>day|week|month|year)s?\s+from\s+(?:now|today)\b"), english_hence),
        (format!(r"\bfor\s+(?:the\s+)?(?:past|last|about|over|almost|nearly|more than)\s+{EN_N}\s+(?P<unit>day|week|month|year)s?\b"), english_ago),
        (r"\b(?:since|in|back in|from|as of|during|around)\s+(?P<y>(?:19|20)\d{2})\b".into(), full_date),
    ];
    table
        .into_iter()
        .map(|(pattern, resolve)| (Regex::new(&pattern).expect("a fixed pattern"), resolve))
        .collect()
});

static HAVE_BEEN: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(&format!(
        r"\b(?:have|has|i've|'ve|been|had)\b.{{0,60}}\bfor\s+(?:about\s+|over\s+)?{EN_N}\s+(?P<unit>day|week|month|year)s?\b"
    ))
    .expect("a fixed pattern")
});

/// Moments of a folded text in order, without overlaps, each with the time of day said beside it.
pub(crate) fn moments(folded: &str, clock: Clock, direction: Direction) -> Vec<Moment> {
    let mut found: Vec<Moment> = Vec::new();
    // A date that does not exist must not be read as its month.
    let mut refused: Vec<(usize, usize)> = Vec::new();
    for (regex, resolve) in PATTERNS.iter() {
        for hit in regex.captures_iter(folded) {
            let whole = hit.get(0).expect("a match has a whole");
            let (start, end) = (whole.start(), whole.end());
            let is_taken = found.iter().any(|m| start < m.end && m.start < end)
                || refused.iter().any(|(from, to)| start < *to && *from < end);
            if is_taken || is_habit(&folded[..start]) {
                continue;
            }
            if let Some((from, to, grain)) = resolve(&hit, &clock, direction) {
                let is_now = is_now(whole.as_str());
                // 吃了三年的药: a length of time, not an attribute.
                let attributive =
                    is_attributive(&folded[end..]) && !whole.as_str().starts_with('了');
                found.push(Moment {
                    start,
                    end,
                    from,
                    to,
                    grain,
                    is_now,
                    attributive,
                });
            } else {
                refused.push((start, end));
            }
        }
    }
    if let Some(hit) = HAVE_BEEN.captures(folded)
        && let (Some(n), Some((from, to, grain))) =
            (hit.name("n"), english_ago(&hit, &clock, direction))
        && found
            .iter()
            .all(|m| n.start() >= m.end || m.start >= n.end())
    {
        let end = hit.get(0).map_or(n.end(), |m| m.end());
        found.push(Moment {
            start: n.start(),
            end,
            from,
            to,
            grain,
            is_now: false,
            attributive: false,
        });
    }
    found.sort_by_key(|moment| moment.start);
    add_time_of_day(folded, &mut found);
    found
}

/// The time of day alone: "at 3pm" on the day of speaking, or on the day `day`.
pub(crate) fn time_alone(folded: &str, day: NaiveDate) -> Option<Moment> {
    let (start, end, time) = times_of_day(folded).into_iter().next()?;
    let from = day.and_time(time);
    Some(Moment {
        start,
        end,
        from,
        to: from,
        grain: Grain::Minute,
        is_now: false,
        attributive: false,
    })
}

fn is_now(words: &str) -> bool {
    matches!(
        words,
        "今天"
            | "今日"
            | "现在"
            | "目前"
            | "如今"
            | "当天"
            | "即日"
            | "今早"
            | "今晨"
            | "today"
            | "now"
            | "right now"
            | "currently"
            | "this morning"
    )
}

/// 每周三 and "every Monday" are habits, not days.
fn is_habit(before: &str) -> bool {
    let before = before.trim_end();
    // 建国路1号 is a house, not a day.
    before.ends_with([
        '每', '第', '尾', '隔', '路', '街', '弄', '楼', '栋', '巷', '道', '院', '床', '村', '里',
    ]) || before.ends_with("every")
        || before.ends_with("each")
}

fn is_attributive(after: &str) -> bool {
    after.starts_with('的') && !after.starts_with("的时候") && !after.starts_with("的事")
}

fn add_time_of_day(folded: &str, moments: &mut [Moment]) {
    for (start, end, time) in times_of_day(folded) {
        let day = moments
            .iter_mut()
            .rev()
            .find(|m| m.start <= start && m.grain == Grain::Day);
        if let Some(day) = day {
            day.from = day.from.date().and_time(time);
            day.grain = Grain::Minute;
            day.end = day.end.max(end);
            day.is_now = false;
        } else if let Some(day) = moments.iter_mut().find(|m| m.grain == Grain::Day) {
            // "at 3pm on Tuesday": the time stands before its day.
            day.from = day.from.date().and_time(time);
            day.grain = Grain::Minute;
            day.is_now = false;
        }
    }
}

static CHINESE_TIME: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(r"(?P<part>凌晨|清晨|早上|早晨|上午|中午|下午|傍晚|晚上|今晚|明晚|明早|今早)?\s*(?:(?P<h>\d{1,2}|[一二两三四五六七八九十]{1,3})\s*[点时](?:(?P<half>半)|(?P<quarter>一刻|三刻)|(?P<m>\d{1,2}|[一二三四五六七八九十]{1,3})分?)?|(?P<h2>\d{1,2}):(?P<m2>\d{2}))(?P<tail>间|候|左右|儿)?")
        .expect("a fixed pattern")
});

static ENGLISH_TIME: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(r"\b(?:(?P<h>\d{1,2})(?::(?P<m>\d{2}))?\s*(?P<half>a\.?m\b\.?|p\.?m\b\.?)|at\s+(?P<h3>\d{1,2})(?:\s+o'clock)?\b|at\s+(?P<noon>noon|midnight)\b)(?P<rest>[^,;]{0,20}\b(?:afternoon|evening|night)\b)?")
        .expect("a fixed pattern")
});

fn times_of_day(folded: &str) -> Vec<(usize, usize, NaiveTime)> {
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

fn full_date(hit: &Captures<'_>, _: &Clock, _: Direction) -> Option<Span> {
    let year = year(hit)?;
    match (number(hit, "m"), number(hit, "d")) {
        (Some(month), Some(day)) => day_span(NaiveDate::from_ymd_opt(year, month, day)?),
        (Some(month), None) => month_span(year, month),
        (None, _) => year_span(year),
    }
}

fn slashed(hit: &Captures<'_>, _: &Clock, _: Direction) -> Option<Span> {
    let (a, b, year) = (number(hit, "a")?, number(hit, "b")?, year(hit)?);
    let date =
        NaiveDate::from_ymd_opt(year, a, b).or_else(|| NaiveDate::from_ymd_opt(year, b, a))?;
    day_span(date)
}

fn relative_year(hit: &Captures<'_>, clock: &Clock, _: Direction) -> Option<Span> {
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

fn chinese_week(hit: &Captures<'_>, clock: &Clock, direction: Direction) -> Option<Span> {
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

fn chinese_month(hit: &Captures<'_>, clock: &Clock, _: Direction) -> Option<Span> {
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

fn month_day(hit: &Captures<'_>, clock: &Clock, direction: Direction) -> Option<Span> {
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

fn month_alone(hit: &Captures<'_>, clock: &Clock, direction: Direction) -> Option<Span> {
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

fn day_alone(hit: &Captures<'_>, clock: &Clock, direction: Direction) -> Option<Span> {
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

fn chinese_day(hit: &Captures<'_>, clock: &Clock, _: Direction) -> Option<Span> {
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

fn chinese_ago(hit: &Captures<'_>, clock: &Clock, _: Direction) -> Option<Span> {
    shifted(hit, clock, false)
}

fn chinese_hence(hit: &Captures<'_>, clock: &Clock, _: Direction) -> Option<Span> {
    shifted(hit, clock, true)
}

fn english_ago(hit: &Captures<'_>, clock: &Clock, _: Direction) -> Option<Span> {
    shifted(hit, clock, false)
}

fn english_hence(hit: &Captures<'_>, clock: &Clock, _: Direction) -> Option<Span> {
    shifted(hit, clock, true)
}

fn english_month(name: &str) -> Option<u32> {
    const MONTHS: [&str; 12] = [
        "jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec",
    ];
    let index = MONTHS.iter().position(|month| name.starts_with(month))?;
    u32::try_from(index + 1).ok()
}

fn english_date(hit: &Captures<'_>, clock: &Clock, direction: Direction) -> Option<Span> {
    let month = english_month(hit.name("month")?.as_str())?;
    match (year(hit), number(hit, "d")) {
        (Some(year), Some(day)) => day_span(NaiveDate::from_ymd_opt(year, month, day)?),
        (Some(year), None) => month_span(year, month),
        (None, Some(day)) => dated(month, day, clock.today(), direction),
        (None, None) => month_near(month, clock.today(), direction),
    }
}

fn english_day(hit: &Captures<'_>, clock: &Clock, _: Direction) -> Option<Span> {
    let by = match hit.get(0)?.as_str() {
        "the day before yesterday" => -2,
        "yesterday" | "last night" => -1,
        "tomorrow" => 1,
        "the day after tomorrow" => 2,
        _ => 0,
    };
    day_span(plus_days(clock.today(), by)?)
}

fn english_weekday(hit: &Captures<'_>, clock: &Clock, direction: Direction) -> Option<Span> {
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

fn english_unit(hit: &Captures<'_>, clock: &Clock, _: Direction) -> Option<Span> {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fold::fold;

    const AT: &str = "2026-06-18T23:50:00+08:00";

    fn check_toward(text: &str, direction: Direction, expected: &str) {
        let (at, zone) = Timestamp::parse_with_zone(AT).unwrap();
        let clock = Clock::new(at, zone);
        let found: Vec<String> = moments(&fold(text), clock, direction)
            .iter()
            .map(|m| clock.written(m))
            .collect();
        assert_eq!(found.join(" "), expected, "{text}");
    }

    fn check(text: &str, expected: &str) {
        check_toward(text, Direction::Past, expected);
    }

    #[test]
    fn relative_days_count_from_the_event_in_its_zone() {
        check(
            "明天上午九点复查，上周五抽的血",
            "2026-06-19T09:00+08:00 2026-06-12",
        );
        check("前天", "2026-06-16");
        check("下周二下午三点", "2026-06-23T15:00+08:00");
        check("appointment next Tuesday at 3pm", "2026-06-23T15:00+08:00");
        check("last Friday", "2026-06-12");
        check("yesterday at 8:30 am", "2026-06-17T08:30+08:00");
    }

    #[test]
    fn spans_of_time_count_back_and_ahead() {
        check("三年前", "2023-06-18");
        check("半年前", "2025-12-18");
        check("上个月", "2026-05");
        check("two months ago", "2026-04-18");
        check("last week", "2026-06-08");
        check("吃了三年了", "2023-06-18");
        check("i have been taking it for 3 years", "2023-06-18");
        check("in two weeks", "2026-07-02");
        check("三天后", "2026-06-21");
    }

    #[test]
    fn dates_are_read_in_both_languages() {
        check("2026年3月1日", "2026-03-01");
        check("since 2019", "2019");
        check("March 1, 2024", "2024-03-01");
        check("3月1日", "2026-03-01");
        check("12月1日", "2025-12-01");
        check_toward("12月1日", Direction::Future, "2026-12-01");
        check("去年3月", "2025-03");
        check("2026-06-01 体重 72 公斤", "2026-06-01");
    }

    #[test]
    fn a_bare_weekday_points_where_the_verb_does() {
        check_toward("周三", Direction::Past, "2026-06-17");
        check_toward("周三", Direction::Future, "2026-06-24");
        check("每周三", "");
        check("every monday", "");
    }

    #[test]
    fn a_bit_is_no_hour() {
        check("今天好一点", "2026-06-18");
    }

    #[test]
    fn nonsense_dates_are_none() {
        check("2026年13月45日 2月31日", "");
    }
}
