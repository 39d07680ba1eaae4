//! How do words stand in a store that keeps the bytes of what it deletes?
//!
//! Neo4j marks a deleted record as free and leaves its bytes in the file until another record needs the
//! place: an entity's name would outlive its erasure. So no word is written as it is. Each owner's node
//! holds a secret of four numbers; what a question compares is a *token*, a hash under that secret, and
//! what must be read again is *sealed* under it. A number of fixed size is overwritten in place, so
//! that a new secret leaves nothing of the old one in the file, and everything that was written under
//! the old one is noise.

use chacha20poly1305::aead::{Aead as _, KeyInit as _, Payload};
use chacha20poly1305::{XChaCha20Poly1305, XNonce};
use zeroize::{Zeroize as _, Zeroizing};

const NONCE_BYTES: usize = 24;

/// How many numbers a secret has.
pub(super) const NUMBERS: usize = 4;

/// Neo4j keeps an integer in eight bytes of its own if it needs more than 35 bits, and beside others if
/// not. With this bit set it always needs its own, and a new number falls exactly on the old one.
const ALWAYS: i64 = 1 << 61;
const RANDOM: i64 = ALWAYS - 1;

/// What stands in place of a secret that is no more.
pub(super) const BLANK: i64 = ALWAYS;

/// One owner's secret in one generation: 244 random bits.
#[derive(Clone)]
pub(super) struct Secret {
    numbers: [i64; NUMBERS],
    tokens: Zeroizing<[u8; 32]>,
    sealing: Zeroizing<[u8; 32]>,
    nonces: Zeroizing<[u8; 32]>,
}

impl PartialEq for Secret {
    fn eq(&self, other: &Self) -> bool {
        self.numbers == other.numbers
    }
}

impl Drop for Secret {
    fn drop(&mut self) {
        self.numbers.zeroize();
    }
}

impl Secret {
    /// # Errors
    /// When the system has no random bytes to give.
    pub(super) fn draw() -> Result<Self, getrandom::Error> {
        let mut bytes = Zeroizing::new([0; 8 * NUMBERS]);
        getrandom::fill(&mut *bytes)?;
        let mut numbers = [0; NUMBERS];
        for (number, bytes) in numbers.iter_mut().zip(bytes.as_chunks::<8>().0) {
            *number = (i64::from_le_bytes(*bytes) & RANDOM) | ALWAYS;
        }
        Ok(Self::from_numbers(numbers))
    }

    pub(super) fn from_numbers(numbers: [i64; NUMBERS]) -> Self {
        let mut material = Zeroizing::new([0; 8 * NUMBERS]);
        for (bytes, number) in material.chunks_exact_mut(8).zip(numbers) {
            bytes.copy_from_slice(&number.to_le_bytes());
        }
        let derive = |purpose| Zeroizing::new(blake3::derive_key(purpose, &*material));
        Self {
            numbers,
            tokens: derive("anamnesis graph v1: tokens"),
            sealing: derive("anamnesis graph v1: sealing"),
            nonces: derive("anamnesis graph v1: nonces"),
        }
    }

    pub(super) fn numbers(&self) -> [i64; NUMBERS] {
        self.numbers
    }

    /// What stands for these words in a comparison: equal for equal words of one owner only.
    pub(super) fn token(&self, what: &str, words: &[&str]) -> String {
        let hash = keyed(
            &self.tokens,
            std::iter::once(what)
                .chain(words.iter().copied())
                .map(str::as_bytes),
        );
        hex(&hash.as_bytes()[..16])
    }

    /// Seals words for one place: moved to another one they do not open. The same words in the same
    /// place give the same bytes.
    pub(super) fn seal(&self, place: &[u8], words: &[u8]) -> Vec<u8> {
        let mut nonce = [0; NONCE_BYTES];
        let hash = keyed(&self.nonces, [place, words].into_iter());
        nonce.copy_from_slice(&hash.as_bytes()[..NONCE_BYTES]);
        let payload = Payload {
            msg: words,
            aad: place,
        };
        let sealed = self
            .cipher()
            .encrypt(&XNonce::from(nonce), payload)
            .expect("it fails only for more bytes than an address space holds");
        [&nonce[..], &sealed].concat()
    }

    /// `None` when the bytes were not sealed for this place under this secret.
    pub(super) fn open(&self, place: &[u8], sealed: &[u8]) -> Option<Zeroizing<Vec<u8>>> {
        let (nonce, sealed) = sealed.split_first_chunk::<NONCE_BYTES>()?;
        let payload = Payload {
            msg: sealed,
            aad: place,
        };
        let opened = self.cipher().decrypt(&XNonce::from(*nonce), payload);
        opened.ok().map(Zeroizing::new)
    }

    fn cipher(&self) -> XChaCha20Poly1305 {
        XChaCha20Poly1305::new((&*self.sealing).into())
    }
}

/// Keyed hash over length-prefixed parts.
fn keyed<'a>(key: &[u8; 32], parts: impl Iterator<Item = &'a [u8]>) -> blake3::Hash {
    let mut hasher = blake3::Hasher::new_keyed(key);
    for part in parts {
        hasher.update(&(part.len() as u64).to_le_bytes());
        hasher.update(part);
    }
    hasher.finalize()
}

pub(super) fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    bytes.iter().fold(String::new(), |mut text, byte| {
        // Writing to a text never fails.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// Reads what [`hex`] wrote of sixteen bytes.
pub(super) fn unhex(text: &str) -> Option<[u8; 16]> {
    if text.len() != 32 || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    let mut bytes = [0; 16];
    for (index, byte) in bytes.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&text[2 * index..2 * index + 2], 16).ok()?;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_open_in_their_place_only() {
        let (mine, other) = (Secret::draw().unwrap(), Secret::draw().unwrap());
        let sealed = mine.seal(b"here", "花生".as_bytes());
        let opened = mine.open(b"here", &sealed);
        assert_eq!(
            opened.as_ref().map(|words| &words[..]),
            Some("花生".as_bytes())
        );
        assert_eq!(mine.open(b"there", &sealed), None);
        assert_eq!(other.open(b"here", &sealed), None);
        assert_eq!(mine.open(b"here", &sealed[..10]), None);
        let again = Secret::from_numbers(mine.numbers());
        assert_eq!(again.seal(b"here", "花生".as_bytes()), sealed);
    }

    #[test]
    fn tokens_tell_words_and_owners_apart() {
        let (mine, other) = (Secret::draw().unwrap(), Secret::draw().unwrap());
        let token = mine.token("entity", &["drug", "tea"]);
        assert_eq!(token, mine.token("entity", &["drug", "tea"]));
        assert_ne!(token, mine.token("entity", &["drugt", "ea"]));
        assert_ne!(token, mine.token("tag", &["drug", "tea"]));
        assert_ne!(token, other.token("entity", &["drug", "tea"]));
        assert_eq!(unhex(&token).map(|bytes| hex(&bytes)), Some(token));
    }

    #[test]
    fn every_number_needs_eight_bytes() {
        for _ in 0..1_000 {
            for number in Secret::draw().unwrap().numbers() {
                assert!(number > 1 << 60);
            }
        }
    }
}
