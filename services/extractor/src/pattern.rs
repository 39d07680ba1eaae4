//! How are the extractor's patterns compiled?

use regex::Regex;

/// Compiles a pattern that a test has seen. `\b` is the edge of a word of ASCII letters and digits: in
/// 我吃aspirin the English word begins after 吃. It is also what a pattern can be found by quickly; the
/// edges of words of any script would send every Chinese text to the slowest engine.
pub(crate) fn compile(pattern: &str) -> Regex {
    Regex::new(&pattern.replace(r"\b", r"(?-u:\b)")).expect("a pattern that a test compiles")
}

/// A pattern with a name of its own.
macro_rules! fixed {
    ($name:ident, $pattern:expr) => {
        static $name: std::sync::LazyLock<regex::Regex> =
            std::sync::LazyLock::new(|| $crate::pattern::compile($pattern));
    };
}
pub(crate) use fixed;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_ends_where_another_script_begins() {
        let pattern = compile(r"\b(?:no|aspirin)\b");
        for text in ["no", "no!", "我吃aspirin片", "说no", "no, thanks"] {
            assert!(pattern.is_match(text), "{text}");
        }
        for text in ["nobody", "piano", "no1", "baby-aspirins"] {
            assert!(!pattern.is_match(text), "{text}");
        }
    }
}
