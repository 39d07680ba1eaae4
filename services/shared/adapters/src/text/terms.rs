//! How a token of one owner becomes a term of the shared dictionary, and back.
//!
//! A term is the owner's key in hexadecimal and the token. A token longer than the engine takes (a
//! pasted blob without a space) becomes several terms, each a numbered piece under the token's hash.

use std::ops::Range;

use anamnesis_domain::ids::{Hash, OwnerKey};

/// tantivy drops terms beyond 65,530 bytes without an error; the rest is room for the prefixes.
const PIECE_BYTES_MAX: usize = 60_000;

/// Starts the name of a piece; no token starts with a control character.
const PIECE_MARK: char = '\u{1}';

/// Mark, 64 digits of the hash, 8 digits of the piece's number.
const PIECE_NAME_BYTES: usize = 1 + 64 + 8;

pub(super) fn prefix(owner: OwnerKey) -> String {
    owner
        .bytes()
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

/// The dictionary keys that hold everything of one owner: from its prefix to the next prefix, which may
/// be nobody's.
pub(super) fn range(owner: OwnerKey) -> Range<Vec<u8>> {
    let from = prefix(owner).into_bytes();
    let mut to = from.clone();
    if let Some(last) = to.last_mut() {
        *last += 1;
    }
    from..to
}

/// The terms that stand for a token; more than one only for a very long one.
pub(super) fn of_token(prefix: &str, token: &str) -> Vec<String> {
    if token.len() <= PIECE_BYTES_MAX {
        return vec![format!("{prefix}{token}")];
    }
    let hash = Hash::of(token.as_bytes());
    let mut terms = Vec::new();
    let mut rest = token;
    while !rest.is_empty() {
        let (piece, after) = rest.split_at(rest.floor_char_boundary(PIECE_BYTES_MAX));
        terms.push(format!(
            "{prefix}{PIECE_MARK}{hash}{:08}{piece}",
            terms.len()
        ));
        rest = after;
    }
    terms
}

/// Puts the tokens of one document together again, from its terms in dictionary order.
#[derive(Default)]
pub(super) struct Tokens {
    tokens: Vec<(String, u32)>,
    pieces: Option<String>,
}

impl Tokens {
    /// Takes the next term, without its prefix.
    pub(super) fn push(&mut self, term: &str, frequency: u32) {
        let Some(name) = term
            .strip_prefix(PIECE_MARK)
            .and_then(|_| term.get(..PIECE_NAME_BYTES))
        else {
            self.tokens.push((term.to_owned(), frequency));
            return;
        };
        let (token, number) = name.split_at(PIECE_NAME_BYTES - 8);
        let piece = &term[PIECE_NAME_BYTES..];
        if self.pieces.as_deref() == Some(token) && number != "00000000" {
            if let Some((whole, _)) = self.tokens.last_mut() {
                whole.push_str(piece);
            }
        } else {
            self.pieces = Some(token.to_owned());
            self.tokens.push((piece.to_owned(), frequency));
        }
    }

    /// Tokens with their frequencies, ascending.
    pub(super) fn finish(mut self) -> Vec<(String, u32)> {
        self.tokens.sort();
        self.tokens
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWNER: OwnerKey = OwnerKey::from_bytes([0xaf; 16]);

    /// What a dictionary gives back for the terms of `tokens`.
    fn through_a_dictionary(tokens: &[&str]) -> Vec<(String, u32)> {
        let (prefix, range) = (prefix(OWNER), range(OWNER));
        let mut terms: Vec<String> = tokens
            .iter()
            .flat_map(|token| of_token(&prefix, token))
            .collect();
        terms.sort();
        let mut back = Tokens::default();
        for term in &terms {
            assert!(
                range.contains(&term.clone().into_bytes()),
                "{} bytes",
                term.len()
            );
            assert!(term.len() < 65_530, "{} bytes", term.len());
            back.push(&term[prefix.len()..], 1);
        }
        back.finish()
    }

    #[test]
    fn a_token_of_any_length_comes_back() {
        let (long, longer) = ("敏".repeat(30_000), "b".repeat(200_001));
        let mut tokens = vec!["花生", "a-17", "z", &long, &longer, "𠀀"];
        tokens.sort_unstable();
        let expected: Vec<(String, u32)> = tokens
            .iter()
            .map(|token| ((*token).to_owned(), 1))
            .collect();
        assert_eq!(through_a_dictionary(&tokens), expected);
    }

    #[test]
    fn owners_do_not_share_a_range() {
        let other = OwnerKey::from_bytes([0xb0; 16]);
        assert!(!range(OWNER).contains(&format!("{}花生", prefix(other)).into_bytes()));
    }
}
