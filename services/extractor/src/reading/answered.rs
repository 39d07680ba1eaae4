//! What does an answer state, with its question in mind?

use super::{Heard, Reader, Statement};
use crate::asked::Answered;
use crate::sentence::sentences;

impl Reader {
    /// Reads what a short answer says in a whole sentence. The quote is the answer, `words`, as it was
    /// given; the text is the sentence, since nobody could read "No." later.
    pub(crate) fn hear_answer(
        &mut self,
        answered: &Answered,
        words: &str,
        statement: &mut Statement,
    ) {
        let mut heard: Vec<Heard> = Vec::new();
        for sentence in sentences(&answered.text) {
            let range = sentence.range.clone();
            let read = self.read(&answered.text, sentence);
            heard.extend(read.heard.into_iter().map(|one| Heard {
                text: spoken(answered.text[range.clone()].trim()),
                ..one
            }));
        }
        let quote = super::without_end_mark(words);
        for one in &mut heard {
            one.quote.clone_from(&quote);
        }
        statement.says_something |= !heard.is_empty();
        statement.heard = heard;
    }
}

/// With the capital letters that a sentence has.
fn spoken(text: &str) -> String {
    let text = text.trim_end_matches(['.', '。']);
    match text.strip_prefix("i ") {
        Some(rest) => format!("I {rest}"),
        None => {
            let mut chars = text.chars();
            let first = chars.next().map(|c| c.to_ascii_uppercase());
            first.into_iter().chain(chars).collect()
        }
    }
}
