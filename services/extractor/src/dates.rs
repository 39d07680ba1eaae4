//! When was it, in the speaker's own zone, counted from the moment of speaking?
//!
//! "上周五" and "next Tuesday at 3pm" are resolved against the event's own time, never against the
//! time of processing. A moment is a half-open range of local time with its grain.

use std::sync::LazyLock;

use anamnesis_domain::time::Timestamp;
use chrono::{Days, NaiveDate, NaiveDateTime, NaiveTime};
use regex::{Captures, Regex};

mod resolve;
mod time_of_day;

use resolve::{
    Span, chinese_ago, chinese_day, chinese_hence, chinese_month, chinese_week, day_alone,
    english_ago, english_date, english_day, english_hence, english_unit, english_weekday,
    full_date, month_alone, month_day, relative_year, slashed,
};
use time_of_day::times_of_day;

use crate::pattern::compile;

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
        .map(|(pattern, resolve)| (compile(&pattern), resolve))
        .collect()
});

static HAVE_BEEN: LazyLock<Regex> = LazyLock::new(|| {
    compile(&format!(
        r"\b(?:have|has|i've|'ve|been|had)\b.{{0,60}}\bfor\s+(?:about\s+|over\s+)?{EN_N}\s+(?P<unit>day|week|month|year)s?\b"
    ))
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
