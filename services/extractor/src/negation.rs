//! Which words turn a statement into its opposite, and which only look as if they did?
//!
//! 不 in 不断 or 不久 negates nothing, nor does 别 in 别嘌醇 or "not" in "not only". 不过 is "however",
//! except in 不过敏.

use std::ops::Range;
use std::sync::LazyLock;

use regex::Regex;

use crate::lexicon::Mention;
use crate::pattern::compile;

static NEGATORS: LazyLock<Regex> = LazyLock::new(|| {
    compile(concat!(
        r"不是不|没有不|不是没有|并非|绝非|否认|排除|从未|没有|没|不|无|未|别|勿|",
        r"\b(?:not|no|never|none|neither|nor|without|cannot|can't|cant|don't|dont|doesn't|doesnt|didn't|didnt|",
        r"isn't|isnt|aren't|arent|wasn't|weren't|haven't|havent|hasn't|hadn't|won't|wouldn't|shouldn't|couldn't|",
        r"ain't|denies|denied|deny|negative for|free of|nobody|nothing|no longer|rule[sd] out|n't)\b",
    ))
});

/// Longer words in which a negator is none.
static LOOK_ALIKES: LazyLock<Regex> = LazyLock::new(|| {
    let words: Vec<String> = serde_json::from_str(include_str!("../data/pseudo_negators.json"))
        .expect("checked by a test");
    let mut words: Vec<String> = words
        .iter()
        .map(|word| {
            let is_latin = word.starts_with(|c: char| c.is_ascii_alphabetic());
            let escaped = regex::escape(word);
            if is_latin {
                format!(r"\b{escaped}\b")
            } else {
                escaped
            }
        })
        .collect();
    words.sort_by_key(|word| (std::cmp::Reverse(word.len()), word.clone()));
    compile(&words.join("|"))
});

/// Where a folded text negates. `mentions` are its known words: a negator inside a name (关闭不全) is
/// part of the name.
pub(crate) fn negators(folded: &str, mentions: &[Mention]) -> Vec<Range<usize>> {
    let mut masked: Vec<Range<usize>> = mentions.iter().map(|m| m.start..m.end).collect();
    for hit in LOOK_ALIKES.find_iter(folded) {
        let is_not_allergic = hit.as_str() == "不过" && folded[hit.end()..].starts_with('敏');
        let is_no_diabetes = hit.as_str() == "无糖" && folded[hit.end()..].starts_with('尿');
        if !is_not_allergic && !is_no_diabetes {
            masked.push(hit.start()..hit.end());
        }
    }
    NEGATORS
        .find_iter(folded)
        .map(|hit| hit.start()..hit.end())
        .filter(|hit| {
            masked
                .iter()
                .all(|m| hit.end <= m.start || m.end <= hit.start)
        })
        .collect()
}

/// Whether what follows `window` is negated by it: an odd number of negators.
pub(crate) fn is_negated(folded: &str, negators: &[Range<usize>], window: Range<usize>) -> bool {
    let weight = |range: &Range<usize>| match &folded[range.clone()] {
        "不是不" | "没有不" | "不是没有" => 2,
        _ => 1,
    };
    let inside: Vec<&Range<usize>> = negators
        .iter()
        .filter(|range| window.start <= range.start && range.end <= window.end)
        .collect();
    // "neither … nor" and "don't … nor" deny once.
    let count: usize = inside
        .iter()
        .enumerate()
        .filter(|(i, range)| *i == 0 || &folded[(**range).clone()] != "nor")
        .map(|(_, range)| weight(range))
        .sum();
    count % 2 == 1
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fold::fold;
    use crate::lexicon::mentions;

    fn check(text: &str, expected: &str) {
        let folded = fold(text);
        let found: Vec<&str> = negators(&folded, &mentions(&folded))
            .into_iter()
            .map(|r| &folded[r])
            .collect();
        assert_eq!(found.join(" "), expected, "{text}");
    }

    #[test]
    fn look_alikes_negate_nothing() {
        check("疼痛不断加重", "");
        check("不过已经好多了", "");
        check("不久前去过不同的医院，特别贵", "");
        check("Das Knie schmerzt seit Tagen", "");
        check("not only that", "");
        check("每天吃别嘌醇", "");
        check("二尖瓣关闭不全", "");
    }

    #[test]
    fn negators_are_found() {
        check("我对花生不过敏", "不");
        check("我没有药物过敏", "没有");
        check("既往无糖尿病史", "无");
        check("I don't have asthma", "don't");
        check("no known drug allergies", "no");
    }
}
