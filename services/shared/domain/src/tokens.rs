//! Words of a text as the text index sees them: Han text as single characters and bigrams, Latin words
//! lower-cased and lightly stemmed, numbers and identifiers whole, and a number together with its unit.

use unicode_normalization::UnicodeNormalization as _;

/// Belongs to a generation of the text index; a change of the rules below is a new number.
pub const TOKENIZER_VERSION: u32 = 1;

/// Tokens of a text to be indexed, in order, with repeats.
pub fn index_tokens(text: &str) -> Vec<String> {
    let folded: String = text.nfkc().flat_map(char::to_lowercase).collect();
    let mut tokens = Vec::new();
    let mut number_before: Option<String> = None;
    for run in runs(&folded) {
        match run {
            Run::Han(run) => {
                let chars: Vec<char> = run.chars().collect();
                tokens.extend(chars.iter().map(char::to_string));
                tokens.extend(chars.windows(2).map(|pair| pair.iter().collect::<String>()));
                number_before = None;
            }
            Run::Word(word) => {
                let is_unit = is_unit(word);
                if let Some(number) = number_before.take().filter(|_| is_unit) {
                    tokens.push(format!("{number}{word}"));
                }
                push_word(&mut tokens, word);
                number_before = is_number(word).then(|| word.to_owned());
            }
            Run::Other => number_before = None,
            Run::Space => (),
        }
    }
    tokens
}

/// Tokens of a question, each once, without words that every question has. Chinese question words
/// separate, so that 我对什么过敏 asks for 过敏 and not for 对什 and 么过.
pub fn query_tokens(text: &str) -> Vec<String> {
    let mut asked: String = text.nfkc().flat_map(char::to_lowercase).collect();
    for word in SEPARATORS {
        asked = asked.replace(word, " ");
    }
    let mut seen = std::collections::BTreeSet::new();
    let telling: Vec<String> = index_tokens(&asked)
        .into_iter()
        .filter(|token| !is_stop_word(token))
        .filter(|token| seen.insert(token.clone()))
        .collect();
    if !telling.is_empty() {
        return telling;
    }
    // A question of nothing but such words is taken as it is.
    index_tokens(text)
        .into_iter()
        .filter(|token| seen.insert(token.clone()))
        .collect()
}

/// Words of Chinese questions, longer ones first. None of them is part of common drug names in a way
/// that would leave nothing to find.
const SEPARATORS: &[&str] = &[
    "能不能",
    "可不可以",
    "有没有",
    "是不是",
    "什么",
    "哪些",
    "哪个",
    "哪种",
    "哪张",
    "哪里",
    "哪儿",
    "怎么",
    "怎样",
    "多少",
    "请问",
    "可以",
    "能否",
    "现在",
    "目前",
    "以前",
    "吗",
    "呢",
    "吧",
    "啊",
    "的",
    "了",
    "是",
    "我",
    "你",
    "您",
    "有",
    "对",
];

enum Run<'a> {
    Han(&'a str),
    Word(&'a str),
    Space,
    Other,
}

#[derive(PartialEq, Eq, Clone, Copy)]
enum Class {
    Han,
    Word,
    Space,
    Other,
}

fn class(c: char) -> Class {
    if is_han(c) {
        Class::Han
    } else if c.is_alphanumeric() || matches!(c, '_' | '%' | '℃' | 'µ') {
        Class::Word
    } else if c.is_whitespace() {
        Class::Space
    } else {
        Class::Other
    }
}

/// Scripts that are written without spaces between words.
pub fn is_han(c: char) -> bool {
    matches!(c, '\u{3400}'..='\u{4dbf}' | '\u{4e00}'..='\u{9fff}' | '\u{f900}'..='\u{faff}'
        | '\u{20000}'..='\u{2ffff}' | '\u{3040}'..='\u{30ff}' | '\u{ac00}'..='\u{d7af}')
}

/// Splits into runs; a mark inside a word (`0.625`, `a-17`, `120/80`) stays inside when letters or
/// digits stand on both sides.
fn runs(text: &str) -> Vec<Run<'_>> {
    let chars: Vec<(usize, char)> = text.char_indices().collect();
    let end_of = |i: usize| chars.get(i).map_or(text.len(), |(at, _)| *at);
    let mut runs = Vec::new();
    let mut i = 0;
    while i < chars.len() {
        let kind = class(chars[i].1);
        let mut j = i + 1;
        while j < chars.len() {
            let inside = kind == Class::Word
                && matches!(chars[j].1, '.' | '-' | '/')
                && chars
                    .get(j + 1)
                    .is_some_and(|(_, next)| class(*next) == Class::Word);
            if class(chars[j].1) != kind && !inside {
                break;
            }
            j += 1;
        }
        let run = &text[chars[i].0..end_of(j)];
        runs.push(match kind {
            Class::Han => Run::Han(run),
            Class::Word => Run::Word(run),
            Class::Space => Run::Space,
            Class::Other => Run::Other,
        });
        i = j;
    }
    runs
}

fn push_word(tokens: &mut Vec<String>, word: &str) {
    if word.chars().all(|c| c.is_ascii_alphabetic()) {
        tokens.push(stem(word));
        return;
    }
    tokens.push(word.to_owned());
    let digits_end = word
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(word.len());
    let (number, unit) = word.split_at(digits_end);
    if !number.is_empty() && !unit.is_empty() && is_unit(unit) {
        tokens.push(number.to_owned());
        tokens.push(stem(unit));
        return;
    }
    if word.contains(['-', '/']) {
        for part in word.split(['-', '/']).filter(|part| !part.is_empty()) {
            tokens.push(if part.chars().all(|c| c.is_ascii_alphabetic()) {
                stem(part)
            } else {
                part.to_owned()
            });
        }
    }
}

fn is_number(word: &str) -> bool {
    word.starts_with(|c: char| c.is_ascii_digit())
        && word.chars().all(|c| c.is_ascii_digit() || c == '.')
}

fn is_unit(word: &str) -> bool {
    matches!(
        word,
        "mg" | "g"
            | "kg"
            | "ug"
            | "µg"
            | "μg"
            | "mcg"
            | "ml"
            | "l"
            | "dl"
            | "iu"
            | "u"
            | "mm"
            | "cm"
            | "m"
            | "mmol"
            | "mmol/l"
            | "mg/dl"
            | "mmhg"
            | "%"
            | "℃"
            | "tablet"
            | "tablets"
            | "units"
            | "unit"
            | "kcal"
    )
}

/// A light English suffix stripper: plural and verb endings of words long enough to keep a stem.
fn stem(word: &str) -> String {
    let strip = |suffix: &str, left: usize, with: &str| {
        let stem = word.strip_suffix(suffix)?;
        (stem.len() >= left).then(|| format!("{stem}{with}"))
    };
    if word.ends_with("ss") || word.ends_with("us") || word.ends_with("is") {
        return word.to_owned();
    }
    strip("ies", 3, "y")
        .or_else(|| strip("ing", 4, ""))
        .or_else(|| strip("ed", 4, ""))
        .or_else(|| strip("es", 4, "e").filter(|s| !s.ends_with("ee")))
        .or_else(|| strip("s", 3, ""))
        .unwrap_or_else(|| word.to_owned())
}

fn is_stop_word(token: &str) -> bool {
    matches!(
        token,
        "a" | "an"
            | "the"
            | "is"
            | "are"
            | "was"
            | "were"
            | "be"
            | "been"
            | "do"
            | "doe"
            | "does"
            | "did"
            | "i"
            | "me"
            | "my"
            | "you"
            | "your"
            | "he"
            | "she"
            | "it"
            | "we"
            | "they"
            | "his"
            | "her"
            | "their"
            | "to"
            | "of"
            | "in"
            | "on"
            | "at"
            | "for"
            | "and"
            | "or"
            | "what"
            | "which"
            | "who"
            | "when"
            | "where"
            | "how"
            | "that"
            | "thi"
            | "this"
            | "with"
            | "have"
            | "ha"
            | "has"
            | "had"
            | "am"
            | "can"
            | "could"
            | "would"
            | "should"
            | "will"
            | "about"
            | "may"
            | "might"
            | "的"
            | "了"
            | "吗"
            | "呢"
            | "吧"
            | "是"
            | "什么"
            | "什"
            | "么"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: &str) {
        assert_eq!(index_tokens(text).join(" "), expected, "{text}");
    }

    #[test]
    fn han_text_is_characters_and_bigrams() {
        check("花生过敏", "花 生 过 敏 花生 生过 过敏");
    }

    #[test]
    fn a_dose_keeps_number_and_unit() {
        check("０．６２５ｇ", "0.625g 0.625 g");
        check("take 10 mg", "take 10 10mg mg");
    }

    #[test]
    fn identifiers_stay_whole() {
        check("ID 88A17 and A-1029", "id 88a17 and a-1029 a 1029");
    }

    #[test]
    fn plural_and_singular_meet() {
        check(
            "allergies allergy peanuts peanut",
            "allergy allergy peanut peanut",
        );
    }

    #[test]
    fn a_question_keeps_what_tells() {
        assert_eq!(query_tokens("What am I allergic to?").join(" "), "allergic");
        assert_eq!(query_tokens("what is it").join(" "), "what is it");
        assert_eq!(query_tokens("我对什么过敏？").join(" "), "过 敏 过敏");
        assert_eq!(query_tokens("是什么").join(" "), "是 什 么 是什 什么");
    }
}
