//! Which words does the judgement of a request know, and which of them are alike?
//!
//! `data/intent/words.txt` lists them by class, one class a line, both languages together; `_` stands for
//! a blank. Words of class `none` are known so that no shorter word is found in them (记者 is nobody's
//! request to 记).

use std::collections::HashMap;
use std::sync::LazyLock;

use crate::fold::is_han;

pub const WORDS: &str = include_str!("../../data/intent/words.txt");

/// A word as the head sees it: itself, and what kind of word it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Word {
    pub(crate) itself: u64,
    pub(crate) class: u64,
    /// Whether a request may hang on it.
    pub(crate) is_anchor: bool,
}

impl Word {
    /// A mark, or a word that is seen as nothing but its class.
    pub(crate) const fn only(class: u64) -> Self {
        Self {
            itself: class,
            class,
            is_anchor: false,
        }
    }
}

/// What is not known: any number of such words is one of them.
pub(crate) const OTHER: Word = Word::only(1);

/// Classes of words that a request may hang on.
const ANCHORS: [&str; 15] = [
    "put",
    "putting",
    "write",
    "heart",
    "forget",
    "recall",
    "record",
    "keep",
    "forgetful",
    "writing",
    "written",
    "wrote",
    "forgot",
    "remembering",
    "remind",
];
/// Classes whose words are also known misspelt.
const MISSPELT: [&str; 4] = ["write", "ask", "forget", "record"];
/// In shorter words one wrong letter makes another word.
const MISSPELT_CHARS_MIN: usize = 6;
/// In shorter words two letters that changed places make another word.
const SWAPPED_CHARS_MIN: usize = 4;

pub(crate) struct Words {
    by_text: HashMap<String, Word>,
    /// Words with one letter left out, for words in which one letter is wrong.
    by_rest: HashMap<String, Word>,
    /// Words with two neighbouring letters in each other's place.
    by_swap: HashMap<String, Word>,
    /// The first characters of Chinese words, and how long such a word is at most.
    han_chars_max: HashMap<char, usize>,
}

impl Words {
    pub(crate) fn shipped() -> &'static Self {
        static SHIPPED: LazyLock<Words> = LazyLock::new(|| Words::read(WORDS));
        &SHIPPED
    }

    fn read(text: &str) -> Self {
        let mut words = Self {
            by_text: HashMap::new(),
            by_rest: HashMap::new(),
            by_swap: HashMap::new(),
            han_chars_max: HashMap::new(),
        };
        for line in text.lines() {
            let mut parts = line.split_whitespace();
            let Some(class) = parts.next() else { continue };
            for part in parts {
                words.add(class, &part.replace('_', " "));
            }
        }
        words
    }

    fn add(&mut self, class: &str, text: &str) {
        let word = if class == "none" {
            OTHER
        } else {
            Word {
                itself: hash(text.as_bytes()),
                class: hash(class.as_bytes()) ^ 1,
                is_anchor: ANCHORS.contains(&class),
            }
        };
        if let Some(first) = text.chars().next().filter(|c| is_han(*c)) {
            let most = self.han_chars_max.entry(first).or_default();
            *most = text.chars().count().max(*most);
        }
        if MISSPELT.contains(&class) && text.chars().all(|c| c.is_ascii_lowercase()) {
            if text.len() >= MISSPELT_CHARS_MIN {
                for rest in rests(text) {
                    self.by_rest.entry(rest).or_insert(word);
                }
            }
            if text.len() >= SWAPPED_CHARS_MIN {
                for swapped in swaps(text) {
                    self.by_swap.entry(swapped).or_insert(word);
                }
            }
        }
        self.by_text.entry(text.to_owned()).or_insert(word);
    }

    /// The longest known word that the Chinese text begins with, and its length in characters.
    pub(crate) fn han(&self, text: &str) -> Option<(usize, Word)> {
        let most = *self.han_chars_max.get(&text.chars().next()?)?;
        let ends = text.char_indices().map(|(at, c)| at + c.len_utf8());
        let mut longest = None;
        for (at, end) in ends.take(most).enumerate() {
            if let Some(word) = self.by_text.get(&text[..end]) {
                longest = Some((at + 1, *word));
            }
        }
        longest
    }

    pub(crate) fn latin(&self, text: &str) -> Option<Word> {
        let stem = text.strip_suffix("'s").unwrap_or(text);
        let found = self.by_text.get(text).or_else(|| self.by_text.get(stem));
        found.copied()
    }

    /// The word that is meant, if one letter of it is missing, wrong, doubled or in its neighbour's place.
    pub(crate) fn misspelt(&self, text: &str) -> Option<Word> {
        let swapped = self.by_swap.get(text);
        if swapped.is_some() || text.len() < MISSPELT_CHARS_MIN || !text.is_ascii() {
            return swapped.copied();
        }
        let meant = self.by_rest.get(text).copied();
        meant.or_else(|| rests(text).find_map(|rest| self.by_rest.get(&rest).copied()))
    }
}

/// An ASCII text with each of its letters left out, and the whole.
fn rests(text: &str) -> impl Iterator<Item = String> {
    let without = |at: usize| format!("{}{}", &text[..at], &text[at + 1..]);
    (0..text.len())
        .map(without)
        .chain(std::iter::once(text.to_owned()))
}

/// An ASCII text with each two neighbouring letters in each other's place.
fn swaps(text: &str) -> impl Iterator<Item = String> {
    let swapped = |at: usize| {
        let (before, rest) = text.split_at(at);
        format!("{before}{}{}{}", &rest[1..2], &rest[..1], &rest[2..])
    };
    (0..text.len() - 1).map(swapped)
}

/// The same on every machine: it decides which weight belongs to a word.
pub(crate) fn hash(bytes: &[u8]) -> u64 {
    let mut sum: u64 = 0xcbf2_9ce4_8422_2325;
    for byte in bytes {
        sum = (sum ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    }
    mixed(sum)
}

/// Spreads the bits of a sum.
pub(crate) fn mixed(sum: u64) -> u64 {
    let folded = (sum ^ (sum >> 32)).wrapping_mul(0xd6e8_feb8_6659_fd93);
    folded ^ (folded >> 32)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn class(text: &str) -> Option<u64> {
        let words = Words::shipped();
        let found = words.latin(text).or_else(|| words.misspelt(text));
        found.map(|word| word.class)
    }

    #[test]
    fn a_longer_word_hides_a_shorter_one() {
        let words = Words::shipped();
        assert_eq!(words.han("记者来了"), Some((2, OTHER)));
        let (chars, word) = words.han("记下来吧").unwrap();
        assert!(chars == 3 && word.is_anchor);
    }

    #[test]
    fn a_wrong_letter_leaves_a_word_what_it_is() {
        for text in [
            "remmeber",
            "rememebr",
            "remembr",
            "plaese",
            "documment",
            "wrtie",
            "flie",
        ] {
            assert!(class(text).is_some(), "{text}");
        }
        assert_eq!(class("remembering"), class("noting"));
        for text in ["december", "wrist", "nose", "white"] {
            assert_eq!(class(text), None, "{text}");
        }
    }
}
