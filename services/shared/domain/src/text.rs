//! Words that somebody said. They never reach a log line: `Debug` and `Display` print the length.

use std::fmt;

use serde::{Deserialize, Serialize};
use unicode_normalization::UnicodeNormalization as _;

/// Text of or about a person. Read it with [`Text::expose`], which is easy to search for in review.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Text(String);

impl Text {
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// The words themselves.
    pub fn expose(&self) -> &str {
        &self.0
    }

    pub fn into_exposed(self) -> String {
        self.0
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Length in Unicode code points.
    pub fn chars_count(&self) -> usize {
        self.0.chars().count()
    }

    /// The form in which two statements are compared: see [`normalise`].
    pub fn normalised(&self) -> String {
        normalise(&self.0)
    }
}

impl fmt::Debug for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Text({} chars)", self.chars_count())
    }
}

impl fmt::Display for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "[{} chars]", self.chars_count())
    }
}

impl From<&str> for Text {
    fn from(text: &str) -> Self {
        Self::new(text)
    }
}

impl From<String> for Text {
    fn from(text: String) -> Self {
        Self::new(text)
    }
}

/// NFKC, lower case, runs of white space as one space, no punctuation at the ends. Numbers and units
/// stay as they are, so 5 mg and 50 mg never become equal.
pub fn normalise(text: &str) -> String {
    let folded: String = text.nfkc().flat_map(char::to_lowercase).collect();
    let joined = folded.split_whitespace().collect::<Vec<_>>().join(" ");
    joined.trim_matches(is_sentence_mark).to_owned()
}

/// The text with everything that cannot be seen written out, as `[U+200B]`: what a person reads before
/// deciding must be all that is there.
pub fn visible(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        if is_hidden(c) {
            shown.push_str(&format!("[U+{:04X}]", c as u32));
        } else {
            shown.push(c);
        }
    }
    shown
}

/// Whether a character takes no place of its own on a screen, or changes the order of others: controls,
/// zero-width and bidirectional marks, fillers, variation selectors and tags.
pub fn is_hidden(c: char) -> bool {
    match c {
        '\n' | '\t' => false,
        '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{180e}' | '\u{feff}' => true,
        '\u{115f}' | '\u{1160}' | '\u{3164}' | '\u{ffa0}' => true,
        '\u{17b4}' | '\u{17b5}' | '\u{180b}'..='\u{180d}' | '\u{180f}' => true,
        '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' => true,
        '\u{fe00}'..='\u{fe0e}' | '\u{fff9}'..='\u{fffb}' => true,
        '\u{1bca0}'..='\u{1bca3}' | '\u{1d173}'..='\u{1d17a}' => true,
        '\u{e0000}'..='\u{e0fff}' => true,
        other => other.is_control(),
    }
}

/// Whether nothing of it is seen: no character, or white space and hidden ones only.
pub fn is_blank(text: &str) -> bool {
    text.chars().all(|c| c.is_whitespace() || is_hidden(c))
}

/// Punctuation that may stand around a sentence without changing what it says.
fn is_sentence_mark(c: char) -> bool {
    matches!(
        c,
        '.' | ',' | ';' | ':' | '!' | '?' | '"' | '\'' | '(' | ')' | ' '
    ) || matches!(
        c,
        '。' | '，' | '；' | '：' | '！' | '？' | '、' | '“' | '”' | '‘' | '’' | '…'
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_never_print() {
        let text = Text::new("我对花生过敏");
        assert_eq!(format!("{text:?} {text}"), "Text(6 chars) [6 chars]");
    }

    #[test]
    fn what_hides_is_shown() {
        let hidden = "对青霉素\u{200b}不\u{202e}过敏\u{2069} \u{e0041}a\u{7}";
        assert_eq!(
            visible(hidden),
            "对青霉素[U+200B]不[U+202E]过敏[U+2069] [U+E0041]a[U+0007]"
        );
        assert_eq!(visible("一行\n二行 ❤\u{fe0f}"), "一行\n二行 ❤\u{fe0f}");
    }

    #[test]
    fn what_cannot_be_seen_says_nothing() {
        for blank in [
            "",
            "  ",
            "\u{3000}\n",
            "\u{0}\u{0}",
            "\u{200b}\u{feff} \u{202e}",
            "\u{e0041}",
        ] {
            assert!(is_blank(blank), "{blank:?}");
        }
        for said in ["x", "痛", " . ", "\u{200b}痛", "❤\u{fe0f}"] {
            assert!(!is_blank(said), "{said:?}");
        }
    }

    #[test]
    fn width_case_and_marks_do_not_distinguish() {
        assert_eq!(normalise("  ０．６２５Ｇ  阿莫西林。"), "0.625g 阿莫西林");
        assert_ne!(normalise("5 mg"), normalise("50 mg"));
    }
}
