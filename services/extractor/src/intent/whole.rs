//! What does the head see of a sentence as it is written, from its begin to its end?
//!
//! Runs of words, words with a gap between them, and how each clause begins and ends. [`super::features`]
//! looks at one word that a request may hang on and at classes of words around it, and so misses how a
//! sentence is put together ("to be filed.", "if you haven't yet, do it now"); this one knows no classes
//! and no such word, and errs elsewhere. A Chinese character is a word here.

use super::features::GAP;
use super::words::{hash, mixed};
use crate::fold::is_han;

/// Weights, as a power of two.
pub const PLACES_BITS: u32 = 18;

const RUN_MAX: usize = 4;
const GAPS: [usize; 2] = [2, 3];
const OPENING_MAX: usize = 3;
const CLOSING_MAX: usize = 2;

const START: u64 = 1;
const END: u64 = 2;
const NUMBER: u64 = 3;
/// A statement while the head is trained: nothing that reaches into it is seen.
const SLOT: u64 = 4;

/// Kinds of what is seen, so that the same words seen in two ways have two weights.
#[derive(Clone, Copy)]
enum Seen {
    Run = 1,
    Gap,
    Opening,
    Closing,
}

struct Written {
    words: Vec<u64>,
    /// Where in `words` a mark between clauses stands.
    marks: Vec<usize>,
}

/// The places of the weights that speak for or against a request in a folded sentence, in order and
/// without repeats.
pub fn parts(folded: &str) -> Vec<u32> {
    let Written { words, marks } = split(folded);
    let mut places = Vec::with_capacity(words.len() * 8);
    let mut see = |seen: Seen, parts: &[u64]| {
        if parts.contains(&SLOT) {
            return;
        }
        let mut sum = 0xcbf2_9ce4_8422_2325 ^ seen as u64;
        for part in parts {
            sum = (sum ^ part).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            sum ^= sum >> 29;
        }
        places.push((mixed(sum) >> (64 - PLACES_BITS)) as u32);
    };
    for from in 0..words.len() {
        for to in from + 1..=(from + RUN_MAX).min(words.len()) {
            see(Seen::Run, &words[from..to]);
        }
        for gap in GAPS {
            if let Some(other) = words.get(from + gap) {
                see(Seen::Gap, &[words[from], *other, gap as u64]);
            }
        }
    }
    // Between the start and the end.
    let mut from = 1;
    for to in marks.into_iter().chain([words.len() - 1]) {
        let clause = &words[from..to];
        for count in 1..=OPENING_MAX.min(clause.len()) {
            see(Seen::Opening, &clause[..count]);
        }
        for count in 1..=CLOSING_MAX.min(clause.len()) {
            see(Seen::Closing, &clause[clause.len() - count..]);
        }
        from = to + 1;
    }
    places.sort_unstable();
    places.dedup();
    places
}

fn split(folded: &str) -> Written {
    let mut words = vec![START];
    let mut marks = Vec::new();
    let mut rest = folded;
    while let Some(c) = rest.chars().next() {
        let is_in = |other: char| {
            if c.is_ascii_digit() {
                other.is_ascii_digit() || other == '.'
            } else {
                (other.is_alphanumeric() && !is_han(other)) || other == '\''
            }
        };
        let is_word = c.is_alphanumeric() && !is_han(c);
        let length = if is_word {
            rest.find(|other| !is_in(other)).unwrap_or(rest.len())
        } else {
            c.len_utf8()
        };
        if matches!(c, ',' | ';' | ':' | '.' | '!' | '?' | '。') {
            marks.push(words.len());
        }
        if c == GAP {
            words.push(SLOT);
        } else if c.is_ascii_digit() {
            words.push(NUMBER);
        } else if !c.is_whitespace() {
            words.push(hash(&rest.as_bytes()[..length]));
        }
        rest = &rest[length..];
    }
    words.push(END);
    Written { words, marks }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_order_of_words_is_seen() {
        assert_ne!(parts("note it, he said"), parts("he said note it,"));
        assert_ne!(parts("你写下来没"), parts("没写你下来"));
        assert_eq!(parts("take 5 pills"), parts("take 81.5 pills"));
    }

    #[test]
    fn nothing_that_reaches_into_a_statement_is_seen() {
        // The start, the end, and the two of them with one thing between.
        assert_eq!(parts("\u{fffc}").len(), 3);
    }

    #[test]
    fn any_text_has_parts() {
        for text in ["", "?", ",,", "\u{fffc}", "…", "记", "a-", "1.5.", "' '"] {
            assert!(parts(text).len() >= 2, "{text}");
        }
    }
}
