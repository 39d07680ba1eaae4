//! In which form are words compared, and where does a compared word stand in the speaker's own text?
//!
//! Folding maps one character to one character (full width to half width, upper to lower case, curly
//! quotes to straight ones), so a place in the folded text always points back to an exact quote.

use std::ops::Range;

/// A folded text that remembers where each of its bytes came from.
#[derive(Clone, Debug)]
pub(crate) struct Folded {
    text: String,
    /// For every byte of `text` (and one past its end): the byte of the original where its character
    /// begins.
    origin: Vec<u32>,
}

impl Folded {
    pub(crate) fn of(original: &str) -> Self {
        let mut text = String::with_capacity(original.len());
        let mut origin = Vec::with_capacity(original.len() + 1);
        for (at, c) in original.char_indices() {
            let before = text.len();
            text.push(fold_char(c));
            // A turn is at most a few MiB, far below what 32 bits can count.
            origin.resize(origin.len() + text.len() - before, at as u32);
        }
        origin.push(original.len() as u32);
        Self { text, origin }
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.text
    }

    /// The place in the original of a range of the folded text. Both ends must be character
    /// boundaries; ends outside are moved inside.
    pub(crate) fn original(&self, range: Range<usize>) -> Range<usize> {
        let last = self.origin.len() - 1;
        let at = |i: usize| self.origin[i.min(last)] as usize;
        at(range.start)..at(range.end.max(range.start))
    }
}

/// Folds a whole string where no place is needed.
pub(crate) fn fold(text: &str) -> String {
    text.chars().map(fold_char).collect()
}

fn fold_char(c: char) -> char {
    match c {
        '\u{ff01}'..='\u{ff5e}' => {
            let half = char::from_u32(c as u32 - 0xfee0).unwrap_or(c);
            half.to_ascii_lowercase()
        }
        '\u{3000}' | '\u{a0}' | '\t' | '\u{2009}' | '\u{202f}' => ' ',
        '‘' | '’' | '´' | '`' | '\u{2bc}' => '\'',
        '“' | '”' | '「' | '」' | '『' | '』' | '«' | '»' => '"',
        '–' | '—' | '−' | '‐' | '‑' => '-',
        '\u{b5}' | 'Μ' => 'μ',
        _ => {
            let mut lower = c.to_lowercase();
            match (lower.next(), lower.next()) {
                (Some(one), None) => one,
                _ => c,
            }
        }
    }
}

pub(crate) fn is_han(c: char) -> bool {
    anamnesis_domain::tokens::is_han(c)
}

/// The language a text is mostly read as: Chinese as soon as Han characters carry a fair part of it.
pub(crate) fn language(text: &str) -> &'static str {
    let mut han = 0_usize;
    let mut latin_words = 0_usize;
    let mut in_word = false;
    for c in text.chars() {
        han += usize::from(is_han(c));
        let is_latin = c.is_alphabetic() && !is_han(c);
        latin_words += usize::from(is_latin && !in_word);
        in_word = is_latin;
    }
    if han > latin_words { "zh" } else { "en" }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folded_place_points_at_the_speakers_own_words() {
        let original = "阿莫西林０．６２５Ｇ，Ｔａｋｅ";
        let folded = Folded::of(original);
        assert_eq!(folded.as_str(), "阿莫西林0.625g,take");
        let at = folded.as_str().find("0.625g").unwrap();
        assert_eq!(&original[folded.original(at..at + 6)], "０．６２５Ｇ");
        let end = folded.as_str().len();
        assert_eq!(&original[folded.original(end - 4..end)], "Ｔａｋｅ");
    }

    #[test]
    fn a_mixed_sentence_is_chinese_when_its_grammar_is() {
        assert_eq!(language("我对 penicillin 过敏"), "zh");
        assert_eq!(language("I am allergic to 花生"), "en");
        assert_eq!(language("INR 2.5"), "en");
    }
}
