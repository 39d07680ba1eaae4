//! How much was said, exactly?
//!
//! Numbers are decimal, never floating: 0.625 g is 625,000,000 millionths of a milligram.

use std::sync::LazyLock;

use anamnesis_domain::memory::Quantity;
use regex::Regex;
use serde::Deserialize;

use crate::pattern::compile;

/// A quantity and where it stands in the folded text.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Amount {
    pub(crate) start: usize,
    pub(crate) end: usize,
    pub(crate) quantity: Quantity,
    /// The end of a range ("4-6 units"): no single quantity was said.
    pub(crate) is_range: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Unit {
    /// Canonical unit.
    unit: String,
    /// One of the written unit is `times`/`per` of the canonical one.
    times: i64,
    per: i64,
    words: Vec<String>,
}

static UNITS: LazyLock<Vec<Unit>> = LazyLock::new(|| {
    serde_json::from_str(include_str!("../data/units.json")).expect("checked by a test")
});

static AMOUNT: LazyLock<Regex> = LazyLock::new(|| {
    let mut words: Vec<&String> = UNITS.iter().flat_map(|unit| &unit.words).collect();
    words.sort_by_key(|word| (std::cmp::Reverse(word.len()), (*word).clone()));
    let words: Vec<String> = words.iter().map(|word| regex::escape(word)).collect();
    let words = words.join("|");
    compile(&format!(
        r"(?P<number>\d{{1,3}}(?:,\d{{3}})+(?:\.\d+)?|\d+(?:\.\d+)?|\.\d+|半|[一二两三四五六七八九十百]+|\b(?:half a|one|two|three|four|five|six)\b)(?:\s|-|个)?\s*(?P<unit>{words})(?:\s*(?:/|每)\s*(?P<per>ml|毫升|揿|actuation|puff|喷|dose|次|片|tablet|day|天|日))?"
    ))
});

/// A lower end before the number. "从 5 到 10 mg" and "from 5 to 10 mg" are a change, no range.
static RANGE_BEFORE: LazyLock<Regex> = LazyLock::new(|| {
    compile(
        r"(?:^|[^\d./-])(?:\d+(?:\.\d+)?|[一二两三四五六七八九]|\b(?:one|two|three|four|five))\s*(?:-|~|～|到|至|或|\bto\b|\bor\b)\s*$",
    )
});
static CHANGE_BEFORE: LazyLock<Regex> =
    LazyLock::new(|| compile(r"(?:从|由|\bfrom\b)[^,;\d]{0,3}$"));

/// Quantities of a folded text, in order.
pub(crate) fn amounts(folded: &str) -> Vec<Amount> {
    AMOUNT
        .captures_iter(folded)
        .filter_map(|hit| {
            let whole = hit.get(0)?;
            let unit = hit.name("unit")?;
            let is_latin = |c: char| c.is_ascii_alphabetic();
            if unit.as_str().ends_with(is_latin) && folded[unit.end()..].starts_with(is_latin) {
                return None;
            }
            // The tail of a longer number or a code (A-17) is no quantity.
            let before = folded[..whole.start()].chars().next_back();
            if before.is_some_and(|c| c.is_ascii_digit() || c == '.' || c.is_ascii_alphabetic()) {
                return None;
            }
            let unit = UNITS
                .iter()
                .find(|known| known.words.iter().any(|w| w == unit.as_str()))?;
            let micros = micros(hit.name("number")?.as_str())?;
            let scaled =
                i64::try_from(i128::from(micros) * i128::from(unit.times) / i128::from(unit.per))
                    .ok()?;
            let per = match hit.name("per").map(|m| m.as_str()) {
                Some("ml" | "毫升") => "/ml",
                Some("揿" | "actuation" | "puff" | "喷" | "dose") => "/actuation",
                Some(_) | None => "",
            };
            let name = format!("{}{per}", unit.unit);
            let is_range = RANGE_BEFORE
                .captures(&folded[..whole.start()])
                .is_some_and(|hit| {
                    let before = &folded[..hit.get(0).map_or(0, |m| m.start())];
                    !CHANGE_BEFORE.is_match(before)
                });
            Some(Amount {
                start: whole.start(),
                end: whole.end(),
                quantity: Quantity {
                    micros: scaled,
                    unit: name,
                },
                is_range,
            })
        })
        .collect()
}

/// Millionths of a written number, exact; `None` when it does not fit.
pub(crate) fn micros(number: &str) -> Option<i64> {
    match number {
        "半" | "half a" => return Some(500_000),
        "one" => return Some(1_000_000),
        "two" => return Some(2_000_000),
        "three" => return Some(3_000_000),
        "four" => return Some(4_000_000),
        "five" => return Some(5_000_000),
        "six" => return Some(6_000_000),
        _ => (),
    }
    if let Some(whole) = han_number(number) {
        return i64::from(whole).checked_mul(1_000_000);
    }
    let plain: String = number.chars().filter(|c| *c != ',').collect();
    let (whole, fraction) = plain.split_once('.').unwrap_or((&plain, ""));
    if fraction.len() > 6 && fraction[6..].bytes().any(|b| b != b'0') {
        return None;
    }
    let whole: i64 = if whole.is_empty() {
        0
    } else {
        whole.parse().ok()?
    };
    let digits: String = fraction.chars().chain("000000".chars()).take(6).collect();
    let fraction: i64 = digits.parse().ok()?;
    whole.checked_mul(1_000_000)?.checked_add(fraction)
}

/// A Chinese or Arabic whole number below 10,000: `十二`, `两`, `二十`, `一百二十`, `15`.
pub(crate) fn han_number(text: &str) -> Option<u32> {
    if !text.is_empty() && text.len() <= 4 && text.bytes().all(|b| b.is_ascii_digit()) {
        return text.parse().ok();
    }
    if text.is_empty() || text.chars().count() > 7 {
        return None;
    }
    let (mut total, mut digit): (u32, Option<u32>) = (0, None);
    let mut has_scale = false;
    for c in text.chars() {
        let scale = match c {
            '十' => 10,
            '百' => 100,
            '千' => 1000,
            _ => 1,
        };
        if scale > 1 {
            total += digit.take().unwrap_or(1) * scale;
            has_scale = true;
            continue;
        }
        let value = "零一二三四五六七八九"
            .chars()
            .position(|d| d == c)
            .or(match c {
                '两' => Some(2),
                '〇' => Some(0),
                '几' | '数' => None,
                _ => None,
            })?;
        if digit.is_some_and(|d| d != 0) && !has_scale {
            return None;
        }
        digit = Some(u32::try_from(value).ok()?);
    }
    Some(total + digit.unwrap_or(0))
}

/// A quantity as it is written in values and texts: `72 kg`, `2.5 mg`.
pub(crate) fn written(quantity: &Quantity) -> String {
    let whole = quantity.micros / 1_000_000;
    let fraction = (quantity.micros % 1_000_000).abs();
    if fraction == 0 {
        return format!("{whole} {}", quantity.unit);
    }
    let digits = format!("{fraction:06}");
    format!("{whole}.{} {}", digits.trim_end_matches('0'), quantity.unit)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fold::fold;

    fn check(text: &str, expected: &str) {
        let found: Vec<String> = amounts(&fold(text))
            .iter()
            .map(|a| written(&a.quantity))
            .collect();
        assert_eq!(found.join("; "), expected, "{text}");
    }

    #[test]
    fn mass_is_exact_and_in_milligrams() {
        check("0.625g", "625 mg");
        check("０．６２５ｇ", "625 mg");
        check("阿莫西林 625毫克", "625 mg");
        check(".5 mg", "0.5 mg");
        check("1,000 mg and 75 mcg", "1000 mg; 0.075 mg");
    }

    #[test]
    fn other_units_have_one_name_each() {
        check("体重 72 公斤", "72 kg");
        check("160斤", "80 kg");
        check("每次两片", "2 tablet");
        check("half a tablet", "0.5 tablet");
        check("5 mg/mL", "5 mg/ml");
        check("0.4 mg/揿", "0.4 mg/actuation");
        check("7.8 mmol/L", "7.8 mmol/l");
        check("1000 IU", "1000 iu");
    }

    #[test]
    fn a_word_that_begins_like_a_unit_is_none() {
        check("5 great years", "");
        check("A17 g", "");
    }

    #[test]
    fn chinese_numbers_are_read() {
        for (text, number) in [
            ("十二", 12),
            ("两", 2),
            ("二十", 20),
            ("一百二十", 120),
            ("十", 10),
            ("9", 9),
        ] {
            assert_eq!(han_number(text), Some(number), "{text}");
        }
        assert_eq!(han_number("几"), None);
    }
}
