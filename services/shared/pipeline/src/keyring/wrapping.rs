//! How is one key hidden under another? XChaCha20-Poly1305 with a random nonce, bound to what the key
//! is for, so that a wrapped key that is moved to another row does not open.

use anamnesis_domain::ids::{KeyId, OwnerKey};
use chacha20poly1305::aead::{Aead as _, KeyInit as _, Payload};
use chacha20poly1305::{XChaCha20Poly1305, XNonce};
use zeroize::Zeroizing;

use super::master_key::MasterKey;

const NONCE_BYTES: usize = 24;

/// Nonce, key and tag. Always so long: a destroyed key is overwritten in place by as many zeros.
pub const WRAPPED_BYTES: usize = NONCE_BYTES + 32 + 16;

pub type Key = Zeroizing<[u8; 32]>;
pub type Wrapped = [u8; WRAPPED_BYTES];

/// What a wrapped key is for.
pub enum Purpose {
    Site,
    Epoch(OwnerKey, u32),
    Data(OwnerKey, KeyId),
}

impl Purpose {
    fn bytes(&self) -> Vec<u8> {
        match self {
            Self::Site => b"site".to_vec(),
            Self::Epoch(owner, epoch) => {
                [b"epoch", &owner.bytes()[..], &epoch.to_le_bytes()].concat()
            }
            Self::Data(owner, id) => [b"data", &owner.bytes()[..], id.bytes()].concat(),
        }
    }
}

/// Two keys from the master key, so that the check value tells nothing about the wrapping key.
pub fn wrapping_key(master: &MasterKey) -> Key {
    Zeroizing::new(blake3::derive_key(
        "anamnesis keyring v1: wrapping of owner keys",
        master.bytes(),
    ))
}

pub fn check_value(master: &MasterKey) -> [u8; 32] {
    blake3::derive_key(
        "anamnesis keyring v1: check of the master key",
        master.bytes(),
    )
}

/// A new random key.
pub fn draw() -> Result<Key, String> {
    let mut key = Zeroizing::new([0; 32]);
    getrandom::fill(&mut *key).map_err(|error| error.to_string())?;
    Ok(key)
}

pub fn wrap(outer: &[u8; 32], inner: &[u8; 32], purpose: &Purpose) -> Result<Wrapped, String> {
    let mut wrapped = [0; WRAPPED_BYTES];
    let (nonce, sealed) = wrapped.split_at_mut(NONCE_BYTES);
    getrandom::fill(nonce).map_err(|error| error.to_string())?;
    let nonce: [u8; NONCE_BYTES] = (&*nonce).try_into().map_err(|_| "nonce".to_owned())?;
    let cipher = XChaCha20Poly1305::new(outer.into());
    let payload = Payload {
        msg: inner,
        aad: &purpose.bytes(),
    };
    let bytes = cipher
        .encrypt(&XNonce::from(nonce), payload)
        .map_err(|_| "a key cannot be wrapped".to_owned())?;
    sealed.copy_from_slice(&bytes);
    Ok(wrapped)
}

/// `None`: another key wrapped it, or another purpose, or its bytes were altered.
pub fn unwrap(outer: &[u8; 32], wrapped: &[u8], purpose: &Purpose) -> Option<Key> {
    let (nonce, sealed) = wrapped.split_at_checked(NONCE_BYTES)?;
    let nonce: [u8; NONCE_BYTES] = nonce.try_into().ok()?;
    let cipher = XChaCha20Poly1305::new(outer.into());
    let payload = Payload {
        msg: sealed,
        aad: &purpose.bytes(),
    };
    let opened = Zeroizing::new(cipher.decrypt(&XNonce::from(nonce), payload).ok()?);
    let mut key = Zeroizing::new([0; 32]);
    if opened.len() != key.len() {
        return None;
    }
    key.copy_from_slice(&opened);
    Some(key)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn data(byte: u8) -> Purpose {
        Purpose::Data(OwnerKey::from_bytes([1; 16]), KeyId::from_bytes([byte; 16]))
    }

    #[test]
    fn a_key_opens_under_its_own_key_and_purpose_only() {
        let (outer, inner) = ([1; 32], [2; 32]);
        let wrapped = wrap(&outer, &inner, &data(1)).unwrap();
        assert!(unwrap(&outer, &wrapped, &data(1)).is_some_and(|key| *key == inner));
        assert!(unwrap(&[3; 32], &wrapped, &data(1)).is_none());
        assert!(unwrap(&outer, &wrapped, &data(2)).is_none());
        assert!(unwrap(&outer, &wrapped, &Purpose::Site).is_none());
        assert!(unwrap(&outer, &[0; WRAPPED_BYTES], &data(1)).is_none());
        assert!(unwrap(&outer, &[], &data(1)).is_none());
        assert!(
            wrapped != wrap(&outer, &inner, &data(1)).unwrap(),
            "a nonce of its own"
        );
    }
}
