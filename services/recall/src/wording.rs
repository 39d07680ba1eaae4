//! Which words of a question tell, what sort of word is each, and under which names was a text written down?

use anamnesis_domain::tokens;

use crate::cues;

/// Longest heading of a memory in characters: beyond it a colon ends no heading.
const HEADING_CHARS_MAX: usize = 120;

/// Whether a question is about what the assistant said: "what did you recommend", 你推荐过什么. "Can you
/// tell me" asks it for something, and is about anything.
pub(crate) fn addresses_the_assistant(question: &str) -> bool {
    const ASKING: &[&str] = &["can", "could", "would", "will", "do", "please", "if"];
    let lower = question.to_lowercase();
    if lower.contains(['你', '您']) {
        let asks_for_help = [
            "你能",
            "你可以",
            "您能",
            "您可以",
            "请你",
            "请您",
            "你知道",
            "你记得",
            "你还记得",
        ];
        return !asks_for_help.iter().any(|words| lower.contains(words));
    }
    let words: Vec<&str> = lower
        .split(|c: char| !c.is_alphanumeric() && c != '\'')
        .filter(|word| !word.is_empty())
        .collect();
    let is_you = |word: &str| matches!(word, "you" | "your" | "yours");
    words.iter().enumerate().any(|(place, word)| {
        let before = place.checked_sub(1).and_then(|before| words.get(before));
        is_you(word) && !before.is_some_and(|before| ASKING.contains(before))
    })
}

/// The names before the first colon of a text, when it begins with names: `WiFi, network: …`.
pub(crate) fn headings(text: &str) -> impl Iterator<Item = &str> {
    let heading = text.split_once([':', '：']).map(|(heading, _)| heading);
    let heading = heading.filter(|heading| {
        let is_sentence =
            heading.contains(". ") || heading.contains(['。', '?', '？', '!', '！', '\n']);
        !is_sentence && heading.chars().count() <= HEADING_CHARS_MAX
    });
    let names = heading.into_iter();
    names.flat_map(|heading| heading.split([',', '，', '、', ';', '；']))
}

/// What says a cue: its own characters, or one telling word of it ("card" of "card number").
pub(crate) fn said_by(cue: &str) -> Vec<Vec<String>> {
    if cue.chars().any(tokens::is_han) {
        return vec![plain_tokens(cue)];
    }
    let words = plain_tokens(cue).into_iter();
    words
        .filter(|word| !cues::is_light(word))
        .map(|word| vec![word])
        .collect()
}

/// Tokens of words that are looked for as they are.
pub(crate) fn plain_tokens(words: &str) -> Vec<String> {
    let tokens = tokens::query_tokens(words);
    let has_pair = tokens.iter().any(|token| is_pair(token));
    tokens
        .into_iter()
        .filter(|token| !has_pair || !is_single(token))
        .collect()
}

/// An order, model or examination number: letters and digits together, or at least five digits. A
/// number with its unit (500mg) is an amount, and a year is a time.
pub(crate) fn is_identifier(token: &str) -> bool {
    let has_digit = token.chars().any(|c| c.is_ascii_digit());
    if !has_digit || !token.is_ascii() || token.len() < 4 {
        return false;
    }
    let rest = token.trim_start_matches(|c: char| c.is_ascii_digit() || c == '.');
    if rest.is_empty() {
        return token.len() >= 5 && !token.contains('.');
    }
    let starts_with_letter = token.starts_with(|c: char| c.is_ascii_alphabetic());
    starts_with_letter
        || (rest.len() < token.len()
            && rest.chars().any(|c| c.is_ascii_digit())
            && !is_ratio_or_date(token))
}

/// `120/80`, `2024-03-01`: digits and marks only.
fn is_ratio_or_date(token: &str) -> bool {
    token
        .chars()
        .all(|c| c.is_ascii_digit() || matches!(c, '-' | '/' | '.'))
}

pub(crate) fn is_single(token: &str) -> bool {
    let mut chars = token.chars();
    chars.next().is_some_and(tokens::is_han) && chars.next().is_none()
}

pub(crate) fn is_pair(token: &str) -> bool {
    token.chars().count() == 2 && token.chars().all(tokens::is_han)
}

/// Words that a question has whatever it is about.
pub(crate) fn tells_nothing(token: &str) -> bool {
    const LATIN: &[&str] = &[
        "tell",
        "please",
        "know",
        "any",
        "some",
        "there",
        "list",
        "show",
        "give",
        "remember",
        "all",
        "from",
        "as",
        "by",
        "if",
        "so",
        "not",
        "no",
        "still",
        "currently",
        "now",
        "current",
        "last",
        "year",
        "month",
        "week",
        "yesterday",
        "today",
        "much",
        "many",
        "been",
        "get",
        "got",
        "ever",
    ];
    const PAIRS: &[&str] = &[
        "现在", "目前", "最近", "之前", "以前", "时候", "一下", "知道", "告诉", "帮忙", "记得",
        "去年", "前年", "上个", "上月", "月的", "昨天", "前天", "上周", "情况", "患者", "病人",
        "本人",
    ];
    const FUNCTION: &str = "我你您他她它们的了吗呢吧啊呀是有在和与及对把被给什么请问哪谁怎多少几个这那都还会能可以要不没就又也很啥去到里";
    if token.chars().all(tokens::is_han) {
        return PAIRS.contains(&token) || token.chars().any(|c| FUNCTION.contains(c));
    }
    LATIN.contains(&token)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_and_times_are_no_identifiers() {
        for (token, expected) in [
            ("88a17", true),
            ("a-1029", true),
            ("20391", true),
            ("2024", false),
            ("500mg", false),
            ("0.625g", false),
            ("120/80", false),
            ("2024-03-01", false),
            ("hba1c", true),
        ] {
            assert_eq!(is_identifier(token), expected, "{token}");
        }
    }
}
