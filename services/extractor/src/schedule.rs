//! How often, in one canonical word?

use std::sync::LazyLock;

use regex::Regex;

use crate::pattern::compile;
use crate::quantity::han_number;

static FIXED: LazyLock<Vec<(Regex, &'static str)>> = LazyLock::new(|| {
    const TABLE: [(&str, &str); 15] = [
        (
            r"必要时|需要时|疼的时候|不舒服时|按需|\bas needed\b|\bwhen needed\b|\bif needed\b|\bprn\b",
            "as_needed",
        ),
        (
            r"隔(?:一)?(?:天|日)|每隔一(?:天|日)|两天一次|每两天|\bevery other day\b|\bqod\b|\bevery two days\b",
            "every_other_day",
        ),
        (
            r"(?:每|一)(?:周|星期|礼拜)\s*(?:一|1)\s*次|每周(?:一次)?$|\bonce a week\b|\bonce weekly\b|\bweekly\b|\bevery week\b|\bqw\b",
            "once_weekly",
        ),
        (
            r"(?:每|一)(?:周|星期|礼拜)\s*(?:两|二|2)\s*次|\btwice a week\b|\btwice weekly\b",
            "twice_weekly",
        ),
        (
            r"(?:每|一)(?:周|星期|礼拜)\s*(?:三|3)\s*次|\bthree times a week\b",
            "three_times_weekly",
        ),
        (
            r"(?:每|一)个?月\s*(?:一|1)\s*次|\bonce a month\b|\bmonthly\b|\bevery month\b",
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
        r"每(?:隔)?\s*(?P<zh>\d{1,2}|[一二两三四五六七八九十]{1,2})\s*个?小时|\bevery (?P<en>\d{1,2}) hours?\b|\bq(?P<q>\d{1,2})h\b",
    )
});

/// The first schedule that the table knows in a folded text.
pub(crate) fn schedule(folded: &str) -> Option<String> {
    if let Some(hit) = EVERY_HOURS.captures(folded) {
        let number = ["zh", "en", "q"]
            .iter()
            .find_map(|name| hit.name(name))?
            .as_str();
        return match han_number(number)? {
            6 => Some("four_times_daily".to_owned()),
            8 => Some("three_times_daily".to_owned()),
            12 => Some("twice_daily".to_owned()),
            24 => Some("once_daily".to_owned()),
            hours => Some(format!("every_{hours}_hours")),
        };
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
        check("every 4 hours", Some("every_4_hours"));
        check("5 mg", None);
    }
}
