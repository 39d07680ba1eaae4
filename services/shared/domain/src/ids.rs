//! Opaque identities. All are keyed hashes of what caused them, so deciding again over the same log
//! gives the same ids, and none of them can be guessed from a text without the site key.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::owner::Owner;

/// An id that is not 32 hexadecimal digits with the right prefix.
#[derive(Debug, thiserror::Error, PartialEq, Eq, Clone, Copy)]
#[error("not an id of the form {prefix}-<32 hexadecimal digits>")]
pub struct IdError {
    pub prefix: &'static str,
}

macro_rules! id {
    ($(#[$doc:meta])* $name:ident, $prefix:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name([u8; 16]);

        impl $name {
            pub const fn from_bytes(bytes: [u8; 16]) -> Self {
                Self(bytes)
            }

            pub const fn bytes(&self) -> &[u8; 16] {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(concat!($prefix, "-"))?;
                self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(self, f)
            }
        }

        impl FromStr for $name {
            type Err = IdError;

            fn from_str(text: &str) -> Result<Self, IdError> {
                let error = IdError { prefix: $prefix };
                let digits = text.strip_prefix(concat!($prefix, "-")).ok_or(error)?;
                Ok(Self(sixteen_bytes(digits).ok_or(error)?))
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = String::deserialize(deserializer)?;
                text.parse().map_err(serde::de::Error::custom)
            }
        }
    };
}

fn sixteen_bytes(digits: &str) -> Option<[u8; 16]> {
    if digits.len() != 32 || !digits.bytes().all(|b| b.is_ascii_hexdigit()) {
        return None;
    }
    let mut bytes = [0; 16];
    for (i, byte) in bytes.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&digits[2 * i..2 * i + 2], 16).ok()?;
    }
    Some(bytes)
}

id!(/** An owner on the log: the pseudonym that survives erasure without telling who it was. */ OwnerKey, "o");
id!(/** A memory, which is a claim that has an identity. */ MemoryId, "m");
id!(/** One message of one event of one source: what "the same event again" means. */ EventTag, "e");
id!(/** A source (CloudEvents source, document, tool) within one owner. */ SourceTag, "s");
id!(/** A data key in the keyring. */ KeyId, "k");
id!(/** One erasure, from request to certificate. */ ErasureId, "x");
id!(/** One recall and its receipt. */ RecallId, "r");
id!(/** The identity that a log was created with. */ LogId, "l");

/// A 32-byte BLAKE3 hash.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Hash(pub [u8; 32]);

impl Hash {
    /// What the first record of an owner's chain points to.
    pub const NONE: Self = Self([0; 32]);

    pub fn of(bytes: &[u8]) -> Self {
        Self(*blake3::hash(bytes).as_bytes())
    }

    /// Reads 64 hexadecimal digits.
    pub fn from_hex(text: &str) -> Option<Self> {
        let (high, low) = (text.get(..32)?, text.get(32..)?);
        let mut bytes = [0; 32];
        bytes[..16].copy_from_slice(&sixteen_bytes(high)?);
        bytes[16..].copy_from_slice(&sixteen_bytes(low)?);
        Some(Self(bytes))
    }
}

impl fmt::Display for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Serialize for Hash {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Hash {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Self::from_hex(&text).ok_or_else(|| serde::de::Error::custom("not 64 hexadecimal digits"))
    }
}

/// The site key: one per log, kept in the keyring, never rotated. Everything that identifies without
/// telling is hashed under it.
#[derive(Clone, PartialEq, Eq)]
pub struct IdKey([u8; 32]);

impl fmt::Debug for IdKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("IdKey(…)")
    }
}

impl IdKey {
    pub const fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// Keyed hash over length-prefixed parts: `("ab", "c")` and `("a", "bc")` differ.
    fn hash(&self, domain: &str, parts: &[&[u8]]) -> [u8; 16] {
        let mut hasher = blake3::Hasher::new_keyed(&self.0);
        for part in std::iter::once(domain.as_bytes()).chain(parts.iter().copied()) {
            hasher.update(&(part.len() as u64).to_le_bytes());
            hasher.update(part);
        }
        let mut id = [0; 16];
        id.copy_from_slice(&hasher.finalize().as_bytes()[..16]);
        id
    }

    pub fn owner(&self, owner: &Owner) -> OwnerKey {
        OwnerKey(self.hash("owner", &[owner.to_string().as_bytes()]))
    }

    /// `message` tells the messages of one event apart; it is empty for an event with one message.
    pub fn event(&self, owner: OwnerKey, source: &str, event_id: &str, message: &str) -> EventTag {
        EventTag(self.hash(
            "event",
            &[
                &owner.0,
                source.as_bytes(),
                event_id.as_bytes(),
                message.as_bytes(),
            ],
        ))
    }

    pub fn source(&self, owner: OwnerKey, source: &str) -> SourceTag {
        SourceTag(self.hash("source", &[&owner.0, source.as_bytes()]))
    }

    pub fn memory(&self, cause: EventTag, ordinal: u32) -> MemoryId {
        MemoryId(self.hash("memory", &[&cause.0, &ordinal.to_le_bytes()]))
    }

    /// The data key of an input record at its place in the world (not in the log: it is made before
    /// the record is appended). `attempt` is 16 random bytes, so that a repeat has a key of its own.
    pub fn source_data_key(&self, cause: EventTag, attempt: &[u8; 16]) -> KeyId {
        KeyId(self.hash("source-key", &[&cause.0, attempt]))
    }

    /// The data key of one transition of the decision on `cause`.
    pub fn transition_data_key(&self, source_key: KeyId, ordinal: u32) -> KeyId {
        KeyId(self.hash("transition-key", &[&source_key.0, &ordinal.to_le_bytes()]))
    }

    pub fn erasure(&self, cause: EventTag) -> ErasureId {
        ErasureId(self.hash("erasure", &[&cause.0]))
    }

    /// Pseudonym of a word within one owner, for placeholders: the same number gives the same
    /// placeholder within one owner only.
    pub fn placeholder(&self, owner: OwnerKey, kind: &str, value: &str) -> u32 {
        let hash = self.hash(
            "placeholder",
            &[&owner.0, kind.as_bytes(), value.as_bytes()],
        );
        u32::from_le_bytes([hash[0], hash[1], hash[2], hash[3]])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: IdKey = IdKey::from_bytes([7; 32]);

    #[test]
    fn an_id_reads_what_it_prints() {
        let id = KEY.memory(EventTag::from_bytes([1; 16]), 0);
        assert_eq!(id.to_string().parse::<MemoryId>(), Ok(id));
        assert!("m-12".parse::<MemoryId>().is_err());
        assert!(id.to_string().parse::<OwnerKey>().is_err());
    }

    #[test]
    fn parts_cannot_slide_into_each_other() {
        let owner = OwnerKey::from_bytes([1; 16]);
        assert_ne!(
            KEY.event(owner, "ab", "c", ""),
            KEY.event(owner, "a", "bc", "")
        );
    }
}
