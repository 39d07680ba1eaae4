//! Does a speaker ask for something to be written down?
//!
//! A linear head judges it, trained on the examples in `data/intent` (`examples/train_intent.rs`). It sees
//! a sentence as words of a few classes (to write, to ask for, not, others, the past …) in the order in
//! which they stand around each word that could carry the request; everything else is only "something".
//! So "the nurse wrote it down", "write it down" and "don't write it down" differ, and what is to be
//! written down does not matter.
//!
//! - [`words`]: the classes; [`features`]: what the head sees; [`head`]: the head and its weights

pub mod features;
pub mod head;
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
