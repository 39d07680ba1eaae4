//! How often, in one canonical word?

use std::sync::LazyLock;

use regex::Regex;

use crate::pattern::compile;
use crate::quantity::han_number;

static FIXED: LazyLock<Vec<(Regex, &'static str)>> = LazyLock::new(|| {
    const TABLE: [(&str, &str); 16] = [
        (
            r"必要时|需要时|疼的时候|不舒服时|按需|\bas needed\b|\bwhen needed\b|\bif needed\b|\bprn\b",
            "as_needed",
        ),
        (
            r"隔(?:一)?(?:天|日)|每隔一(?:天|日)|两天一次|每两天|\bevery other day\b|\bqod\b|\bevery (?:two|2|second) days?\b|\balternate days\b|\bevery second day\b",
            "every_other_day",
        ),
        (
            r"每(?:隔)?(?:两|二|2)个?(?:周|星期|礼拜)|每隔一个?(?:周|星期|礼拜)|隔周|(?:两|二|2)周(?:一|1)次|\bevery (?:two|2|other|second) weeks?\b|\bfortnightly\b|\bbi-?weekly\b|\bonce a fortnight\b",
            "every_2_weeks",
        ),
        (
            r"(?:每|一)(?:周|星期|礼拜)\s*(?:两|二|2)\s*次|\b(?:twice|two times|2 times|2x) (?:a|per|each|every) week\b|\b(?:twice|two times) weekly\b",
            "twice_weekly",
        ),
        (
            r"(?:每|一)(?:周|星期|礼拜)\s*(?:三|3)\s*次|\b(?:three times|3 times|3x|thrice) (?:a|per|each|every) week\b|\bthree times weekly\b|\b3 times weekly\b",
            "three_times_weekly",
        ),
        (
            r"(?:每|一)个?(?:周|星期|礼拜)\s*(?:一|1)\s*次|每个?(?:周|星期|礼拜)|/周|\b(?:once|one time|1 time|1x) (?:a|per|each|every) week\b|\bweekly\b|\b(?:every|each|per) week\b|\b(?:every|each) (?:mon|tues|wednes|thurs|fri|satur|sun)day\b|\bon (?:mon|tues|wednes|thurs|fri|satur|sun)days\b|/ ?(?:week|wk)\b|\b(?:mg|mcg|g|units?|tablets?|pills?|shots?|injections?) a week\b|\bqw\b",
            "once_weekly",
        ),
        (
            r"(?:每|一)个?月\s*(?:一|1)\s*次|每个?月|\b(?:once|one time) (?:a|per|each|every) month\b|\bmonthly\b|\b(?:every|each|per) month\b",
            "once_monthly",
        ),
        (
            r"(?:每|一)(?:天|日)\s*(?:四|4)\s*次|(?:四|4)次(?:每|一)(?:天|日)|\bfour times (?:a day|daily)\b|\bqid\b|\b4 times a day\b|\bq6h\b",
            "four_times_daily",
        ),
        (
            r"(?:每|一)(?:天|日)\s*(?:三|3)\s*次|(?:三|3)次(?:每|一)(?:天|日)|早中晚|三餐|\bthree times (?:a day|daily)\b|\btid\b|\b3 times a day\b|\bq8h\b|\bwith every meal\b",
            "three_times_daily",
        ),
        (
            r"(?:每|一)(?:天|日)\s*(?:两|二|2)\s*次|(?:两|二|2)次(?:每|一)(?:天|日)|早晚|\btwice (?:a day|daily|per day)\b|\bbid\b|\b2 times a day\b|\bq12h\b|\bmorning and (?:night|evening)\b|\btwo times a day\b",
            "twice_daily",
        ),
        (
            r"(?:每|一)(?:天|日)\s*(?:一|1)\s*次|(?:一|1)次(?:每|一)(?:天|日)|\bonce (?:a day|daily|per day)\b|\bone time a day\b|\bqd\b|\bq24h\b",
            "once_daily",
        ),
        (
            r"每晚|睡前|晚上睡觉前|每天晚上|\bat bedtime\b|\bat night\b|\bevery night\b|\bnightly\b|\bbefore bed\b|\bqhs\b|\bqn\b",
            "at_bedtime",
        ),
        (
            r"每(?:天)?早上?|每天早晨|\bevery morning\b|\bin the morning\b|\bqam\b",
            "every_morning",
        ),
        (
            r"饭前|餐前|空腹|\bbefore (?:meals|food|eating)\b",
            "before_meals",
        ),
        (
            r"饭后|餐后|随餐|\bafter (?:meals|food|eating)\b|\bwith (?:food|meals)\b",
            "with_meals",
        ),
        (
            r"每天|每日|天天|\bdaily\b|\bevery day\b|\ba day\b|\bper day\b",
            "once_daily",
        ),
    ];
    TABLE
        .iter()
        .map(|(pattern, name)| (compile(pattern), *name))
        .collect()
});

static EVERY_HOURS: LazyLock<Regex> = LazyLock::new(|| {
    compile(
        r"每(?:隔)?\s*(?P<zh>\d{1,2}|[一二两三四五六七八九十]{1,2})\s*个?小时|\bevery (?P<en>\d{1,2}|two|three|four|six|eight|ten|twelve|twenty-four) hours?\b|\bevery (?P<en2>\d{1,2})h\b|\bq ?(?P<q>\d{1,2}) ?h\b",
    )
});

/// Every so many days, weeks or months.
static EVERY_MANY: LazyLock<Regex> = LazyLock::new(|| {
    compile(
        r"每(?:隔)?\s*(?P<zh>\d{1,2}|[二两三四五六七八九十]{1,2})\s*个?(?P<zh_unit>天|日|周|星期|礼拜|月)|\bevery (?P<en>\d{1,2}|two|three|four|five|six|eight|ten|twelve) (?P<en_unit>day|week|month)s\b",
    )
});

/// 每周一、三、五: the days of a week.
static DAYS_OF_WEEK: LazyLock<Regex> = LazyLock::new(|| {
    compile(
        r"每个?(?:周|星期|礼拜)(?P<days>[一二三四五六日天](?:[、,和及]?(?:周|星期)?[一二三四五六日天])*)(?P<times>次)?",
    )
});

fn number_word(word: &str) -> Option<u32> {
    han_number(word).or(match word {
        "two" => Some(2),
        "three" => Some(3),
        "four" => Some(4),
        "five" => Some(5),
        "six" => Some(6),
        "eight" => Some(8),
        "ten" => Some(10),
        "twelve" => Some(12),
        "twenty-four" => Some(24),
        _ => None,
    })
}

fn every_many(folded: &str) -> Option<String> {
    let hit = EVERY_MANY.captures(folded)?;
    let number = hit.name("zh").or_else(|| hit.name("en"))?.as_str();
    let unit = hit.name("zh_unit").or_else(|| hit.name("en_unit"))?;
    let unit = match unit.as_str() {
        "天" | "日" | "day" => "days",
        "月" | "month" => "months",
        _ => "weeks",
    };
    match (number_word(number)?, unit) {
        (1, _) => None,
        (2, "days") => Some("every_other_day".to_owned()),
        (7, "days") => Some("once_weekly".to_owned()),
        (14, "days") => Some("every_2_weeks".to_owned()),
        (number, unit) => Some(format!("every_{number}_{unit}")),
    }
}

fn days_of_week(folded: &str) -> Option<String> {
    let hit = DAYS_OF_WEEK.captures(folded)?;
    if hit.name("times").is_some() {
        return None;
    }
    let days = hit["days"]
        .chars()
        .filter(|c| "一二三四五六日天".contains(*c))
        .count();
    match days {
        1 => Some("once_weekly".to_owned()),
        2 => Some("twice_weekly".to_owned()),
        3 => Some("three_times_weekly".to_owned()),
        days => Some(format!("{days}_times_weekly")),
    }
}

/// The first schedule that the table knows in a folded text.
pub(crate) fn schedule(folded: &str) -> Option<String> {
    if let Some(hit) = EVERY_HOURS.captures(folded) {
        let number = ["zh", "en", "en2", "q"]
            .iter()
            .find_map(|name| hit.name(name))?
            .as_str();
        return match number_word(number)? {
            6 => Some("four_times_daily".to_owned()),
            8 => Some("three_times_daily".to_owned()),
            12 => Some("twice_daily".to_owned()),
            24 => Some("once_daily".to_owned()),
            48 => Some("every_other_day".to_owned()),
            168 => Some("once_weekly".to_owned()),
            hours => Some(format!("every_{hours}_hours")),
        };
    }
    if let Some(found) = every_many(folded).or_else(|| days_of_week(folded)) {
        return Some(found);
    }
    FIXED
        .iter()
        .find(|(regex, _)| regex.is_match(folded))
        .map(|(_, name)| (*name).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: Option<&str>) {
        assert_eq!(schedule(text).as_deref(), expected, "{text}");
    }

    #[test]
    fn both_languages_have_one_word_for_it() {
        for text in [
            "每天两次",
            "twice a day",
            "bid",
            "every 12 hours",
            "早晚各一片",
        ] {
            check(text, Some("twice_daily"));
        }
        check("每天 5 mg", Some("once_daily"));
        check("一天三次", Some("three_times_daily"));
        check("once a week", Some("once_weekly"));
        for text in [
            "每周一次",
            "每周 10 mg",
            "每周一",
            "weekly",
            "10 mg once weekly",
            "every week",
            "every Monday",
        ] {
            check(&text.to_lowercase(), Some("once_weekly"));
        }
        for text in [
            "隔天",
            "隔日一次",
            "每隔一天",
            "每两天一次",
            "every other day",
            "alternate days",
        ] {
            check(text, Some("every_other_day"));
        }
        for text in ["每月一次", "每月", "monthly", "once a month"] {
            check(text, Some("once_monthly"));
        }
        for text in [
            "每两周一次",
            "every 2 weeks",
            "every other week",
            "fortnightly",
        ] {
            check(text, Some("every_2_weeks"));
        }
        check("每周一、三、五", Some("three_times_weekly"));
        check("每周两次", Some("twice_weekly"));
        check("每8小时", Some("three_times_daily"));
        check("every six hours", Some("four_times_daily"));
        check("每三个月", Some("every_3_months"));
        check("for a week", None);
        check("every 4 hours", Some("every_4_hours"));
        check("5 mg", None);
    }
}
