//! Does a speaker ask for something to be written down?
//!
//! A linear head judges it, trained on the examples in `data/intent` (`examples/train_intent.rs`). It sees
//! a sentence as words of a few classes (to write, to ask for, not, others, the past …) in the order in
//! which they stand around each word that could carry the request; everything else is only "something".
//! So "the nurse wrote it down", "write it down" and "don't write it down" differ, and what is to be
//! written down does not matter. Beside that it sees the sentence as it is written, with how each clause
//! begins and ends.
//!
//! - [`words`]: the classes; [`features`], [`whole`]: what the head sees; [`head`]: the head and its weights

pub mod features;
pub mod head;
pub mod whole;
pub mod words;

use crate::fold::fold;
use crate::sentence::sentences;

pub use head::Head;

/// Whether some sentence of the text asks for something to be written down.
pub fn asks_to_keep(text: &str) -> bool {
    sentences(text)
        .iter()
        .any(|sentence| judge(sentence.folded.as_str()))
}

/// The sentences of a text in the form in which they are judged.
pub fn folded_sentences(text: &str) -> Vec<String> {
    let folded = |sentence: &crate::sentence::Sentence| fold(&text[sentence.range.clone()]);
    sentences(text).iter().map(folded).collect()
}

/// Whether a folded sentence asks for something to be written down.
pub(crate) fn judge(folded: &str) -> bool {
    Head::shipped().score(folded) > 0
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRAIN: [&str; 2] = [
        include_str!("../data/intent/train.zh.tsv"),
        include_str!("../data/intent/train.en.tsv"),
    ];
    const STATEMENTS: [&str; 2] = [
        include_str!("../data/intent/statements.zh.txt"),
        include_str!("../data/intent/statements.en.txt"),
    ];

    /// Texts that ask, those of them that are taken to ask, and others that are.
    fn judged(examples: &str) -> (usize, usize, usize) {
        let (mut asking, mut right, mut wrong) = (0, 0, 0);
        for line in examples.lines() {
            let (label, text) = line.split_once('\t').unwrap();
            assert!(["0", "1"].contains(&label), "{line}");
            let is_taken = asks_to_keep(text);
            asking += usize::from(label == "1");
            right += usize::from(label == "1" && is_taken);
            wrong += usize::from(label == "0" && is_taken);
        }
        (asking, right, wrong)
    }

    #[test]
    fn the_weights_are_those_of_the_examples() {
        let all: String = (0..2).flat_map(|i| [STATEMENTS[i], TRAIN[i]]).collect();
        let print = format!("{:016x}", features::fingerprint(&all));
        assert_eq!(
            Head::shipped().about.examples,
            print,
            "the examples, the words or the features have changed: run the example train_intent"
        );
    }

    #[test]
    fn the_head_has_learned_its_examples() {
        for examples in TRAIN {
            let (asking, right, wrong) = judged(examples);
            assert!(asking >= 500 && examples.lines().count() - asking >= 500);
            assert!(
                right * 100 >= asking * 99 && wrong * 100 <= asking,
                "{right} {wrong} of {asking}"
            );
        }
    }

    /// Written by another hand, and never used in training. What is asserted is what was reached, rounded
    /// down.
    #[test]
    fn the_judgement_holds_on_examples_of_another_hand() {
        for (examples, precision, recall) in [
            (include_str!("../data/intent/test.zh.tsv"), 0.97, 0.98),
            (include_str!("../data/intent/test.en.tsv"), 0.91, 0.96),
        ] {
            let (asking, right, wrong) = judged(examples);
            let share = |of: usize| right as f64 / of as f64;
            assert!(
                share(right + wrong) >= precision,
                "precision below {precision}"
            );
            assert!(share(asking) >= recall, "recall below {recall}");
        }
    }

    #[test]
    fn a_text_asks_when_one_of_its_sentences_does() {
        for text in [
            "我对芒果过敏。以后看病别忘了这点。谢谢",
            "I carry a titanium rod. This should go on my chart. Thanks!",
        ] {
            assert!(asks_to_keep(text), "{text}");
        }
        for text in [
            "",
            "我对芒果过敏。谢谢",
            "The nurse wrote it down. I saw it.",
        ] {
            assert!(!asks_to_keep(text), "{text}");
        }
    }
}
