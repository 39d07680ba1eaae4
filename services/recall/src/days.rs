//! Which days does a question name, and was a memory said on one of them?
//!
//! Whoever names a day asks about what was said on it ("what did I tell you on May 4th?") or about what
//! is true of it ("is May 4th my birthday?"). So a day never shuts anything out; it brings forward.

use std::ops::Range;

use anamnesis_domain::memory::Memory;
use chrono::{Datelike as _, NaiveDate};

use crate::understand::month_of;

/// A day that a question names; of any year when it names none.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Day {
    year: Option<i32>,
    month: u32,
    day: u32,
}

impl Day {
    fn of(year: Option<i32>, month: u32, day: u32) -> Option<Self> {
        // A leap year, so that the 29th of February is a day.
        NaiveDate::from_ymd_opt(year.unwrap_or(2024), month, day)?;
        Some(Self { year, month, day })
    }

    /// Whether the memory was said on this day, on the speaker's clock.
    pub(crate) fn is_of(self, memory: &Memory) -> bool {
        let source = &memory.claim.source;
        let said = source.at.to_zone(source.zone_minutes).date_naive();
        self.year.is_none_or(|year| year == said.year())
            && (self.month, self.day) == (said.month(), said.day())
    }
}

/// The days that a lower-case text names, with their words: `5月4号`, `2024年5月4日`, `may 4th`, `4 may
/// 2024`, `2024-05-04`.
pub(crate) fn days_named(lower: &str) -> Vec<(Day, Range<usize>)> {
    let words = words(lower);
    let mut days: Vec<(Day, Range<usize>)> = Vec::new();
    for place in 0..words.len() {
        let found = chinese(lower, &words, place)
            .or_else(|| english(lower, &words, place))
            .or_else(|| iso(lower, &words, place));
        if let Some((day, range)) = found
            && days.last().is_none_or(|(_, last)| last.end <= range.start)
        {
            days.push((day, range));
        }
    }
    days
}

/// Runs of digits and runs of Latin letters, with where they stand.
fn words(lower: &str) -> Vec<Range<usize>> {
    let class = |c: char| {
        if c.is_ascii_digit() {
            1
        } else {
            2 * u8::from(c.is_ascii_alphabetic())
        }
    };
    let mut words: Vec<Range<usize>> = Vec::new();
    let mut before = 0;
    for (at, c) in lower.char_indices() {
        let now = class(c);
        match words.last_mut() {
            Some(last) if now != 0 && now == before => last.end = at + 1,
            Some(_) | None if now != 0 => words.push(at..at + 1),
            Some(_) | None => (),
        }
        before = now;
    }
    words
}

fn number(lower: &str, words: &[Range<usize>], place: usize, digits: usize) -> Option<u32> {
    let word = words.get(place)?;
    let is_fit = (1..=digits).contains(&word.len());
    lower[word.clone()].parse().ok().filter(|_| is_fit)
}

fn between<'a>(lower: &'a str, words: &[Range<usize>], place: usize) -> Option<&'a str> {
    Some(&lower[words.get(place)?.end..words.get(place + 1)?.start])
}

fn chinese(lower: &str, words: &[Range<usize>], place: usize) -> Option<(Day, Range<usize>)> {
    let (month, day) = (
        number(lower, words, place, 2)?,
        number(lower, words, place + 1, 2)?,
    );
    if between(lower, words, place)?.trim() != "月" {
        return None;
    }
    let end = words.get(place + 1)?.end;
    let unit = lower[end..]
        .chars()
        .next()
        .filter(|c| matches!(c, '日' | '号' | '號'))?;
    let mut start = words.get(place)?.start;
    let mut year = None;
    if let Some(before) = place.checked_sub(1)
        && between(lower, words, before)?.trim() == "年"
        && let Some(named) = number(lower, words, before, 4)
    {
        year = i32::try_from(named).ok();
        start = words.get(before)?.start;
    }
    Some((Day::of(year, month, day)?, start..end + unit.len_utf8()))
}

fn english(lower: &str, words: &[Range<usize>], place: usize) -> Option<(Day, Range<usize>)> {
    let word = |place: usize| words.get(place).map(|range| &lower[range.clone()]);
    let is_apart = |place: usize| {
        let between = between(lower, words, place);
        between.is_some_and(|gap| gap.chars().all(|c| matches!(c, ' ' | ',' | '.')))
    };
    let is_ending = |place: usize| {
        matches!(word(place), Some("st" | "nd" | "rd" | "th"))
            && between(lower, words, place - 1) == Some("")
    };
    let (month, day, mut last) = if let Some(month) = month_of(word(place)?) {
        let day = number(lower, words, place + 1, 2).filter(|_| is_apart(place))?;
        let last = place + 1 + usize::from(is_ending(place + 2));
        (month, day, last)
    } else {
        let day = number(lower, words, place, 2)?;
        let mut month = place + 1 + usize::from(is_ending(place + 1));
        month += usize::from(word(month) == Some("of"));
        (month_of(word(month)?)?, day, month)
    };
    let mut year = None;
    if is_apart(last)
        && words.get(last + 1).is_some_and(|range| range.len() == 4)
        && let Some(named) = number(lower, words, last + 1, 4)
    {
        year = i32::try_from(named).ok();
        last += 1;
    }
    let range = words.get(place)?.start..words.get(last)?.end;
    Some((Day::of(year, month, day)?, range))
}

fn iso(lower: &str, words: &[Range<usize>], place: usize) -> Option<(Day, Range<usize>)> {
    let is_dash = |place| matches!(between(lower, words, place), Some("-" | "/"));
    if words.get(place)?.len() != 4 || !is_dash(place) || !is_dash(place + 1) {
        return None;
    }
    let year = i32::try_from(number(lower, words, place, 4)?).ok()?;
    let (month, day) = (
        number(lower, words, place + 1, 2)?,
        number(lower, words, place + 2, 2)?,
    );
    let range = words.get(place)?.start..words.get(place + 2)?.end;
    Some((Day::of(Some(year), month, day)?, range))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{at, claim, memory};
    use anamnesis_domain::memory::Kind;

    fn check(text: &str, expected: &[(&str, Option<i32>, u32, u32)]) {
        let found = days_named(text);
        let found: Vec<_> = found
            .iter()
            .map(|(day, range)| (&text[range.clone()], day.year, day.month, day.day))
            .collect();
        assert_eq!(found, expected, "{text}");
    }

    #[test]
    fn days_are_read_in_both_languages() {
        check("我在5月4号买了什么", &[("5月4号", None, 5, 4)]);
        check("2024年12月31日", &[("2024年12月31日", Some(2024), 12, 31)]);
        check("on may 4th, i told you", &[("may 4th", None, 5, 4)]);
        check(
            "on april 27, 2023",
            &[("april 27, 2023", Some(2023), 4, 27)],
        );
        check("the 3rd of march", &[("3rd of march", None, 3, 3)]);
        check("what of 2024-05-04?", &[("2024-05-04", Some(2024), 5, 4)]);
        check(
            "from may 1 to may 3",
            &[("may 1", None, 5, 1), ("may 3", None, 5, 3)],
        );
    }

    #[test]
    fn what_is_no_day_is_none() {
        check("5月有什么", &[]);
        check("may i have 4 of them", &[]);
        check("13月4号", &[]);
        check("500 mg twice, order 2024-88-99", &[]);
        check("2月30日", &[]);
    }

    #[test]
    fn a_memory_is_of_the_day_it_was_said_on_the_speakers_clock() {
        let mut memory = memory(claim(Kind::Episode, "a museum"));
        memory.claim.source.at = at("2026-05-03T23:30:00Z");
        memory.claim.source.zone_minutes = 480;
        let day = |year, month, day| Day { year, month, day };
        assert!(day(None, 5, 4).is_of(&memory));
        assert!(day(Some(2026), 5, 4).is_of(&memory));
        assert!(!day(Some(2025), 5, 4).is_of(&memory));
        assert!(!day(None, 5, 3).is_of(&memory));
    }
}
