//! What does the head see of a sentence?
//!
//! For each word that a request may hang on, the words around it: their classes and themselves, in runs,
//! and each with its side, its distance and whether a mark stands between; and the text there as it is
//! written, in pairs of characters or words, for what no class knows. A sentence without such a word is
//! seen as a whole. Each thing seen is a place among the weights.

use super::words::{OTHER, Word, Words, hash, mixed};
use crate::fold::is_han;

/// Belongs to the weights: with other rules below or in [`super::whole`] they mean nothing.
pub const VERSION: u32 = 1;

/// Weights, as a power of two: few enough to be read at once, and most of what the examples show has a
/// place of its own.
pub const PLACES_BITS: u32 = 17;

/// Stands for a statement while the head is trained: nothing that reaches into it is seen.
pub const GAP: char = '\u{fffc}';

/// Words before and after: a request and what turns its meaning stand close together, and what lies
/// farther away is what shall be written down.
const REACH: usize = 8;
const CLASS_RUN_MAX: usize = 3;
const WORD_RUN_MAX: usize = 2;
/// A known word and the next ones, whatever stands between.
const PAIR_REACH: usize = 3;
/// Up to here the exact distance is seen.
const NEAR: usize = 3;

const START: Word = Word::only(2);
const END: Word = Word::only(3);
/// The sentence goes on beyond what is seen.
const FAR: Word = Word::only(4);
const COMMA: Word = Word::only(5);
const ASKS: Word = Word::only(6);
const QUOTE: Word = Word::only(7);
const NUMBER: Word = Word::only(8);
const SLOT: Word = Word::only(9);

/// What is seen of a folded sentence: for each place where a request may stand, the places of the weights
/// that speak for or against it, in order and without repeats.
pub fn views(folded: &str) -> Vec<Vec<u32>> {
    let (words, starts) = split(folded);
    let anchors = (0..words.len()).filter(|at| words[*at].is_anchor);
    let is_question = words[words.len() - 2] == ASKS;
    let mut all: Vec<Vec<u32>> = anchors
        .map(|at| {
            let (from, to) = (at.saturating_sub(REACH), (at + REACH + 1).min(words.len()));
            let mut near = Vec::with_capacity(to - from + 2);
            near.extend((from > 0).then_some(FAR));
            let anchor = near.len() + at - from;
            near.extend_from_slice(&words[from..to]);
            near.extend((to < words.len()).then_some(FAR));
            let end = starts.get(to).copied().unwrap_or(folded.len());
            let text = &folded[starts[from]..end];
            view(&near, Some(anchor), text, is_question)
        })
        .collect();
    if all.is_empty() {
        all.push(view(&words, None, "", is_question));
    }
    all
}

/// The words and marks of a folded sentence, between a start and an end, and where each begins.
fn split(folded: &str) -> (Vec<Word>, Vec<usize>) {
    let known = Words::shipped();
    let mut words = vec![START];
    let mut starts = vec![0];
    let mut rest = folded;
    while let Some(c) = rest.chars().next() {
        let (word, length) = if c == GAP {
            (Some(SLOT), c.len_utf8())
        } else if is_han(c) {
            let (count, word) = known.han(rest).unwrap_or((1, OTHER));
            (
                Some(word),
                rest.chars().take(count).map(char::len_utf8).sum(),
            )
        } else if c.is_ascii_digit() {
            let is_number = |c: char| c.is_ascii_alphanumeric() || c == '.';
            (
                Some(NUMBER),
                rest.find(|c| !is_number(c)).unwrap_or(rest.len()),
            )
        } else if c.is_alphanumeric() {
            let (word, length) = latin(rest, known);
            (Some(word), length)
        } else {
            let before = &folded[..folded.len() - rest.len()];
            (mark(c, before), c.len_utf8())
        };
        if let Some(word) = word {
            let repeats = words.last() == Some(&word) && (word == OTHER || word == COMMA);
            if !repeats {
                words.push(word);
                starts.push(folded.len() - rest.len());
            }
        }
        rest = &rest[length..];
    }
    while words.last() == Some(&COMMA) {
        words.pop();
        starts.pop();
    }
    words.push(END);
    starts.push(folded.len());
    (words, starts)
}

fn mark(c: char, before: &str) -> Option<Word> {
    match c {
        ',' | ';' | ':' | '、' | '.' | '。' | '!' => Some(COMMA),
        '-' if before.ends_with(' ') => Some(COMMA),
        '?' => Some(ASKS),
        '"' => Some(QUOTE),
        _ => None,
    }
}

/// The word that a Latin text begins with, of up to three that are known together, and its length.
fn latin(text: &str, known: &Words) -> (Word, usize) {
    let mut ends = vec![latin_end(text, 0)];
    while ends.len() < 3 {
        let end = ends[ends.len() - 1];
        let goes_on = text[end..]
            .strip_prefix(' ')
            .is_some_and(|next| next.starts_with(|c: char| c.is_alphabetic() && !is_han(c)));
        if !goes_on {
            break;
        }
        ends.push(latin_end(text, end + 1));
    }
    for end in ends.iter().rev() {
        if let Some(word) = known.latin(&text[..*end]) {
            return (word, *end);
        }
    }
    let word = known.misspelt(&text[..ends[0]]).unwrap_or(OTHER);
    (word, ends[0])
}

fn latin_end(text: &str, from: usize) -> usize {
    let mut rest = text[from..].char_indices().peekable();
    while let Some((at, c)) = rest.next() {
        let is_letter = c.is_alphanumeric() && !is_han(c);
        let joins = matches!(c, '\'' | '-')
            && rest
                .peek()
                .is_some_and(|(_, next)| next.is_ascii_alphabetic());
        if !(is_letter || joins) {
            return from + at;
        }
    }
    text.len()
}

/// Kinds of what is seen, so that the same words seen in two ways have two weights.
#[derive(Clone, Copy)]
enum Seen {
    Classes = 1,
    Words,
    BareClasses,
    BareWords,
    Pair,
    KnownClasses,
    Side,
    SideOfClass,
    SideWord,
    SideOfWord,
    Distance,
    ClauseSide,
    ClauseSideOfClass,
    ClauseWord,
    Written,
    Question,
    NoAnchor,
}

fn view(words: &[Word], anchor: Option<usize>, text: &str, is_question: bool) -> Vec<u32> {
    let mut places = Vec::with_capacity(words.len() * 24);
    let mut see = |seen: Seen, parts: &[u64]| {
        let mut sum = 0xcbf2_9ce4_8422_2325 ^ seen as u64;
        for part in parts {
            sum = (sum ^ part).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            sum ^= sum >> 29;
        }
        places.push((mixed(sum) >> (64 - PLACES_BITS)) as u32);
    };
    runs(
        words,
        |w| w.class,
        CLASS_RUN_MAX,
        |run| see(Seen::Classes, run),
    );
    runs(
        words,
        |w| w.itself,
        WORD_RUN_MAX,
        |run| see(Seen::Words, run),
    );

    // The same without marks: whoever dictates makes none.
    let mut bare: Vec<Word> = Vec::with_capacity(words.len());
    let mut bare_anchor = 0;
    for (at, word) in words.iter().enumerate() {
        if Some(at) == anchor {
            bare_anchor = bare.len();
        }
        let is_mark = [COMMA, ASKS, QUOTE].contains(word);
        let repeats = *word == OTHER && bare.last() == Some(&OTHER);
        bare.extend((!is_mark && !repeats).then_some(*word));
    }
    runs(
        &bare,
        |w| w.class,
        CLASS_RUN_MAX,
        |run| see(Seen::BareClasses, run),
    );
    runs(
        &bare,
        |w| w.itself,
        WORD_RUN_MAX,
        |run| see(Seen::BareWords, run),
    );

    let mut known = bare.clone();
    known.retain(|word| ![OTHER, NUMBER, FAR].contains(word));
    runs(
        &known,
        |w| w.class,
        CLASS_RUN_MAX,
        |run| see(Seen::KnownClasses, run),
    );
    for (at, one) in known.iter().enumerate() {
        let next = known[at + 1..].iter().take(PAIR_REACH);
        for other in next.filter(|other| **other != SLOT && *one != SLOT) {
            see(Seen::Pair, &[one.class, other.class]);
        }
    }

    match anchor {
        Some(anchor) => {
            around(&bare, bare_anchor, &mut see);
            around_clauses(words, anchor, &mut see);
        }
        None => see(Seen::NoAnchor, &[]),
    }
    written(text, &mut see);
    if is_question {
        see(Seen::Question, &[]);
    }
    places.sort_unstable();
    places.dedup();
    places
}

/// Each word with its side of the anchor and, when it is near, its distance.
fn around(words: &[Word], anchor: usize, see: &mut impl FnMut(Seen, &[u64])) {
    let centre = words[anchor];
    for (at, word) in words.iter().enumerate() {
        if at == anchor || *word == SLOT {
            continue;
        }
        let (side, distance) = (u64::from(at > anchor), at.abs_diff(anchor));
        see(Seen::Side, &[centre.class, word.class, side]);
        see(Seen::SideOfClass, &[word.class, side]);
        see(Seen::SideWord, &[centre.class, word.itself, side]);
        see(Seen::SideOfWord, &[centre.itself, word.itself, side]);
        if distance <= NEAR {
            see(
                Seen::Distance,
                &[centre.class, word.class, side, distance as u64],
            );
        }
    }
}

/// Each word with its side of the anchor and whether a mark parts them.
fn around_clauses(words: &[Word], anchor: usize, see: &mut impl FnMut(Seen, &[u64])) {
    let centre = words[anchor];
    let before = (0..anchor).rev().map(|at| (0, words[at]));
    let after = (anchor + 1..words.len()).map(|at| (1, words[at]));
    for side in [before.collect::<Vec<_>>(), after.collect()] {
        let mut is_parted = 0;
        for (side, word) in side {
            if word == COMMA || word == ASKS {
                is_parted = 1;
            } else if word != SLOT {
                see(
                    Seen::ClauseSide,
                    &[centre.class, word.class, side, is_parted],
                );
                see(Seen::ClauseSideOfClass, &[word.class, side, is_parted]);
                see(
                    Seen::ClauseWord,
                    &[centre.class, word.itself, side, is_parted],
                );
            }
        }
    }
}

/// The text in pairs of characters or Latin words, and each Latin word.
fn written(text: &str, see: &mut impl FnMut(Seen, &[u64])) {
    let mut before: Option<u64> = None;
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        let is_latin = c.is_alphanumeric() && !is_han(c);
        let length = if is_latin {
            latin_end(rest, 0)
        } else {
            c.len_utf8()
        };
        let part = hash(&rest.as_bytes()[..length]);
        rest = &rest[length..];
        if c == GAP {
            before = None;
        } else if is_latin || is_han(c) {
            if is_latin {
                see(Seen::Written, &[part]);
            }
            if let Some(before) = before {
                see(Seen::Written, &[before, part]);
            }
            before = Some(part);
        }
    }
}

/// Runs of up to `most` neighbours that do not reach into a statement.
fn runs(words: &[Word], part: impl Fn(&Word) -> u64, most: usize, mut see: impl FnMut(&[u64])) {
    let parts: Vec<u64> = words.iter().map(part).collect();
    for from in 0..words.len() {
        for to in from + 1..=(from + most).min(words.len()) {
            if words[to - 1] == SLOT {
                break;
            }
            see(&parts[from..to]);
        }
    }
}

/// What stands for all examples: their hash says which the weights come from.
pub fn fingerprint(examples: &str) -> u64 {
    let mut sum = hash(super::words::WORDS.as_bytes()) ^ u64::from(VERSION);
    sum = mixed(sum) ^ hash(examples.as_bytes());
    sum
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_to_be_written_down_is_something() {
        let classes = |text: &str| split(text).0;
        let one = classes("请记一下,花生使嘴巴肿");
        assert_eq!(one, classes("请记一下,海鲜引起荨麻疹"));
        assert_ne!(one, classes("别记一下,花生使嘴巴肿"));
        let one = classes("write this down, peanuts swell lips");
        assert_eq!(one, classes("write this down, shrimp causes hives"));
    }

    #[test]
    fn any_text_has_a_view() {
        for text in ["", "?", "\u{fffc}", "…", "记", "a-", "1.5.", "' '"] {
            assert!(!views(text).is_empty(), "{text}");
        }
    }
}
