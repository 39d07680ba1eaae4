//! Where does one statement end and the next begin?
//!
//! Sentences end at end marks and line ends. A sentence falls into clauses at commas and conjunctions;
//! commas inside a list ("花生，芒果，海鲜过敏") or before a detail ("…，每天两次") do not split.

use std::ops::Range;
use std::sync::LazyLock;

use regex::Regex;

use crate::fold::{Folded, is_han};
use crate::lexicon::{Class, lookup_class, mentions};
use crate::pattern::compile;

/// A statement longer than this is cut at a comma or space: nobody says one fact in more words, and
/// every pattern then works on a bounded text.
const SENTENCE_CHARS_MAX: usize = 400;

/// A sentence of a turn: where it stands there, and its folded form.
#[derive(Clone, Debug)]
pub(crate) struct Sentence {
    /// Bytes of the turn's text, with the end mark.
    pub(crate) range: Range<usize>,
    pub(crate) folded: Folded,
}

/// Sentences of `text` in order, empty ones left out.
pub(crate) fn sentences(text: &str) -> Vec<Sentence> {
    let mut found = Vec::new();
    for range in sentence_ranges(text) {
        let raw = &text[range.clone()];
        if raw.chars().any(char::is_alphanumeric) {
            found.push(Sentence {
                range,
                folded: Folded::of(raw),
            });
        }
    }
    found
}

fn sentence_ranges(text: &str) -> Vec<Range<usize>> {
    let mut ranges = Vec::new();
    let mut start = 0;
    let mut chars_count = 0;
    let mut last_soft = None;
    let mut chars = text.char_indices().peekable();
    while let Some((at, c)) = chars.next() {
        let end = at + c.len_utf8();
        let next = chars.peek().map(|(_, next)| *next);
        chars_count += 1;
        if matches!(c, ',' | '，' | '、' | ' ') {
            last_soft = Some(end);
        }
        let is_mark = matches!(
            c,
            '。' | '！' | '？' | '!' | '?' | '；' | ';' | '\n' | '\r' | '…'
        );
        let is_stop = c == '.' && is_full_stop(&text[start..at], next);
        // `?!` and `……` end one sentence, not two.
        let goes_on =
            next.is_some_and(|n| matches!(n, '！' | '？' | '!' | '?' | '…' | '"' | '”' | '」'));
        // "? penicillin allergy" and "?pneumonia" query what follows.
        let is_query = matches!(c, '?' | '？')
            && (!text[start..at].chars().any(char::is_alphanumeric)
                || (text[..at].ends_with([' ', ':']) && next.is_some_and(char::is_alphanumeric)));
        if (is_mark || is_stop) && !is_query && !(goes_on && c != '\n') {
            ranges.push(start..end);
            (start, chars_count, last_soft) = (end, 0, None);
        } else if chars_count >= SENTENCE_CHARS_MAX {
            let cut = last_soft.unwrap_or(end);
            ranges.push(start..cut);
            chars_count = text[cut..end].chars().count();
            (start, last_soft) = (cut, None);
        }
    }
    ranges.push(start..text.len());
    ranges
}

/// A full stop ends a sentence unless it stands in a number, an abbreviation or a name.
fn is_full_stop(before: &str, next: Option<char>) -> bool {
    if next
        .is_some_and(|n| !n.is_whitespace() && !is_han(n) && !matches!(n, '"' | '\'' | ')' | '”'))
    {
        return false;
    }
    let is_capital = before
        .chars()
        .next_back()
        .is_some_and(|c| c.is_ascii_uppercase());
    let word_at = before
        .rfind(|c: char| !(c.is_alphanumeric() || c == '.'))
        .map_or(0, |i| {
            i + before[i..].chars().next().map_or(1, char::len_utf8)
        });
    let word = before[word_at..].to_lowercase();
    let is_abbreviation = matches!(
        word.as_str(),
        "dr" | "mr" | "mrs" | "ms" | "st" | "e.g" | "i.e" | "vs" | "approx" | "prof"
    );
    let is_initial = word.chars().count() == 1
        && is_capital
        && word != "i"
        && !before[..word_at].ends_with(['\'', '’']);
    let is_list_number = word.len() <= 2
        && !word.is_empty()
        && word.chars().all(|c| c.is_ascii_digit())
        && before[..word_at].trim().is_empty();
    !(is_abbreviation || is_initial || is_list_number)
}

/// After an English comma or `and` these begin a new statement; anything else continues a list.
static OPENS_CLAUSE: LazyLock<Regex> = LazyLock::new(|| {
    compile(
        r"^(?:(?:and|but|so|because|although|though|however|or|then|also|now|actually|since|plus)\s+)*(?:i|i'm|i've|i'd|i'll|we|we're|he|he's|she|she's|they|it|it's|you|my|his|her|our|your|their|the|this|that|there|which|who|whose|if|when|while|where|what|how|why|can|could|do|does|did|is|are|am|was|were|should|would|will|please|pls|no|not|never|don't|do not|doesn't|didn't|stop|stopped|start|started|take|takes|taking|took|have|has|had|having|been|live|lives|work|works|smoke|smokes|drink|drinks|prefer|prefers|like|likes|hate|hates|love|need|needs|want|wants|just|only|but|because|so|although|though|however|correction|sorry|mom|dad|nobody|neither|nor|none|same|only|use|used|remember|note|write|keep|call|allergic|diagnosed|switched|changed|increased|decreased|reduced|went|also allergic|negative|denies|especially|particularly)\b",
    )
});

/// Words before which an English sentence splits although there is no comma.
static ENGLISH_BREAK: LazyLock<Regex> = LazyLock::new(|| {
    compile(
        r"\s(?:but|however|although|though|whereas|because|unless|if|so i|while (?:i|my|he|she)|and (?:so (?:do|does|did|am|is|are|have|has)|neither (?:do|does|did|am|is|are|have|has)|i|i'm|i've|my|he|she|they|we|his|her|please|also|am|is|are|was|take|takes|taking|have|has|had|don't|do not|doesn't|never|no longer|now|used|live|lives|work|works|smoke|smokes|drink|drinks|prefer|prefers|like|likes|hate|hates|can|can't|cannot|need|needs|start|started|stop|stopped|switched|currently|recently|diagnosed|allergic|not))\b",
    )
});

static ASKS_IF: LazyLock<Regex> = LazyLock::new(|| {
    compile(
        r"\b(?:ask|asks|asked|asking|wonder|wonders|wondered|wondering|know|sure|see|check|find out|tell|told)(?: me| us| him| her| my \w+)?$",
    )
});

static AND_PERSON: LazyLock<Regex> = LazyLock::new(|| compile(r"^\s*and (?:i|my|his|her)$"));

static ONLY_PERSON: LazyLock<Regex> = LazyLock::new(|| {
    compile(
        r"^\s*(?:(?:and|but|so|both|neither|also)\s+)*(?:(?:my|our|his|her)\s+(?:[a-z-]+\s+){0,2}[a-z-]+|i|mom|dad|mum|me)\s*$",
    )
});

/// Words before which a Chinese sentence splits although there is no comma.
static CHINESE_BREAK: LazyLock<Regex> =
    LazyLock::new(|| compile("但是|但|可是|然而|而且|并且|另外|同时也|除此之外|因为|所以"));

/// Begins with how much, how often or what for: a detail of what was said before.
static DETAIL: LazyLock<Regex> = LazyLock::new(|| {
    compile(
        r"^\s*(?:用于|用来治|治疗|每(?:天|日|晚|早|次|周|月|隔|个?月|个?星期|两|三|\d)|隔[天日周]|周[一二三四五六日]\s*\d|一(?:天|日|次)|早晚|早上一|饭[前后]|餐[前后]|睡前|剂量|单次|口服|必要时|需要(?:的)?时候?|各?[一二两三半\d]+(?:片|粒|颗|丸|次|袋|支|滴|mg|毫克|克)|\d+(?:\.\d+)?\s*(?:mg|g|mcg|ml|iu|units?|tablets?|capsules?|毫克|毫升|微克|克|单位)|(?:once|twice|three times|every|daily|nightly|weekly|monthly|fortnightly|with (?:food|meals)|before|after|as needed|prn|bid|tid|qd|at (?:night|bedtime|\d|noon))\b)",
    )
});

/// Ranges of the clauses of a folded sentence, in order.
pub(crate) fn clauses(folded: &str) -> Vec<Range<usize>> {
    let mut cuts: Vec<(usize, usize)> = Vec::new();
    for (at, c) in folded.char_indices() {
        let (before, after) = (&folded[..at], &folded[at + c.len_utf8()..]);
        let splits = match c {
            ',' => splits_at_comma(before, after),
            '-' => before.ends_with(' ') && after.starts_with(' '),
            _ => false,
        };
        if splits {
            cuts.push((at, at + c.len_utf8()));
        }
    }
    for hit in ENGLISH_BREAK.find_iter(folded) {
        // "asked me if …", "not sure if …" is one clause with its question.
        let is_indirect = hit.as_str().trim() == "if" && ASKS_IF.is_match(&folded[..hit.start()]);
        // "my mother and I are …": two persons, one statement.
        let from = cuts
            .iter()
            .map(|(_, to)| *to)
            .filter(|to| *to <= hit.start())
            .max();
        let before = &folded[from.unwrap_or(0)..hit.start()];
        let joins_persons = AND_PERSON.is_match(hit.as_str()) && ONLY_PERSON.is_match(before);
        if !is_indirect && !joins_persons {
            cuts.push((hit.start(), hit.start() + 1));
        }
    }
    cuts.extend(
        CHINESE_BREAK
            .find_iter(folded)
            .map(|hit| (hit.start(), hit.start())),
    );
    cuts.sort_unstable();
    let mut parts = Vec::new();
    let mut start = 0;
    for (from, to) in cuts {
        if from >= start {
            parts.push(start..from);
            start = to;
        }
    }
    parts.push(start..folded.len());
    parts.retain(|part| folded[part.clone()].chars().any(char::is_alphanumeric));
    let mut parts = join_allergen_lists(folded, parts);
    for part in &mut parts {
        let text = &folded[part.clone()];
        part.start += text.len() - text.trim_start().len();
        part.end -= folded[part.clone()].len() - folded[part.clone()].trim_end().len();
    }
    parts
}

fn splits_at_comma(before: &str, after: &str) -> bool {
    let is_in_number = before.ends_with(|c: char| c.is_ascii_digit())
        && after.starts_with(|c: char| c.is_ascii_digit())
        && after.chars().take_while(char::is_ascii_digit).count() == 3;
    if is_in_number {
        return false;
    }
    let segment = after.split(',').next().unwrap_or(after).trim();
    let names_drug = || mentions(segment).iter().any(|m| m.class == Class::Drug);
    if DETAIL.is_match(segment) && !names_drug() {
        return false;
    }
    let is_chinese =
        before.chars().rev().take(8).any(is_han) || segment.chars().take(4).any(is_han);
    // "5 mg, not 50 mg" is one correction.
    let is_contrast =
        segment.starts_with("not ") && segment[4..].starts_with(|c: char| c.is_ascii_digit());
    if is_chinese {
        !is_bare_item(segment)
    } else {
        OPENS_CLAUSE.is_match(segment) && !is_contrast
    }
}

/// Nothing but a known word: the next item of a list.
fn is_bare_item(segment: &str) -> bool {
    const CLASSES: [Class; 6] = [
        Class::Drug,
        Class::Allergen,
        Class::Condition,
        Class::Food,
        Class::Procedure,
        Class::Test,
    ];
    let item = segment.trim_matches(|c: char| !c.is_alphanumeric());
    let item = ["以及", "还有", "和", "及", "或"]
        .iter()
        .find_map(|w| item.strip_prefix(w))
        .unwrap_or(item);
    lookup_class(item, &CLASSES).is_some()
}

/// `我对花生，芒果，海鲜过敏` is one statement: a part with 对 waits for its 过敏.
fn join_allergen_lists(folded: &str, parts: Vec<Range<usize>>) -> Vec<Range<usize>> {
    let mut joined: Vec<Range<usize>> = Vec::new();
    let mut waits = false;
    for part in parts {
        let text = &folded[part.clone()];
        let gap_is_short = text.chars().count() <= 12;
        match joined.last_mut() {
            Some(last) if waits && gap_is_short => last.end = part.end,
            Some(_) | None => joined.push(part.clone()),
        }
        let whole = &folded[joined.last().map_or(part.clone(), Clone::clone)];
        waits = whole.contains('对')
            && !whole.contains("过敏")
            && whole.chars().count() <= 40
            && folded[part.end..].contains("过敏");
    }
    joined
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: &[&str]) {
        let found: Vec<String> = sentences(text)
            .iter()
            .flat_map(|s| {
                clauses(s.folded.as_str())
                    .into_iter()
                    .map(|c| s.folded.as_str()[c].trim().to_owned())
            })
            .collect();
        assert_eq!(found, expected, "{text}");
    }

    #[test]
    fn marks_and_commas_split() {
        check(
            "我爸对青霉素过敏，我自己没有药物过敏。",
            &["我爸对青霉素过敏", "我自己没有药物过敏。"],
        );
        check(
            "I have asthma. I take 2.5 mg of it.",
            &["i have asthma.", "i take 2.5 mg of it."],
        );
        check(
            "Dr. Smith put me on metformin.",
            &["dr. smith put me on metformin."],
        );
    }

    #[test]
    fn a_list_and_a_detail_stay_with_their_statement() {
        check("我对花生，芒果，海鲜过敏", &["我对花生,芒果,海鲜过敏"]);
        check("我在吃二甲双胍，每天两次", &["我在吃二甲双胍,每天两次"]);
        check(
            "I take metformin, lisinopril, and aspirin",
            &["i take metformin, lisinopril, and aspirin"],
        );
    }

    #[test]
    fn a_conjunction_opens_a_clause() {
        check(
            "I don't smoke and I have asthma",
            &["i don't smoke", "and i have asthma"],
        );
        check(
            "我对花生过敏但对牛奶不过敏",
            &["我对花生过敏", "但对牛奶不过敏"],
        );
    }

    #[test]
    fn a_text_without_marks_is_still_cut() {
        let long = "词".repeat(1_000);
        let sentences = sentences(&long);
        assert_eq!(
            sentences.iter().map(|s| s.range.len()).sum::<usize>(),
            long.len()
        );
        assert!(
            sentences
                .iter()
                .all(|s| s.range.len() <= SENTENCE_CHARS_MAX * 3)
        );
    }
}
