//! One part: sealed under a data key, bound to its record and place, and opened again.

use anamnesis_domain::ids::{KeyId, MemoryId, OwnerKey};
use anamnesis_schemas::{Body, Envelope, Header, Part, PartHeader, associated_data};
use bytes::Bytes;
use chacha20poly1305::aead::{Aead as _, Payload};
use chacha20poly1305::{KeyInit as _, XChaCha20Poly1305, XNonce};

use super::CodecError;
use crate::keyring::DataKey;
use crate::log::NewRecord;

/// A part to be written; without a key its body stays in clear.
pub(super) struct PartDraft<'a> {
    pub(super) code: &'a str,
    pub(super) memory_id: Option<MemoryId>,
    pub(super) key: Option<(KeyId, &'a DataKey)>,
    pub(super) body: Body,
}

/// Header, parts, envelope: the whole payload of one record.
pub(super) fn record(
    owner: OwnerKey,
    header: &Header,
    drafts: Vec<PartDraft<'_>>,
) -> Result<NewRecord, CodecError> {
    let header = header.encode()?;
    let mut parts = Vec::with_capacity(drafts.len());
    for (index, draft) in (0..).zip(drafts) {
        parts.push(part(&header, index, draft)?);
    }
    let payload = Envelope { header, parts }.encode()?;
    Ok(NewRecord {
        key: owner,
        payload: Bytes::from(payload),
    })
}

fn part(header: &[u8], index: u32, draft: PartDraft<'_>) -> Result<Part, CodecError> {
    let PartDraft {
        code,
        memory_id,
        key,
        body,
    } = draft;
    let mut nonce = [0; 24];
    if key.is_some() {
        fill_random(&mut nonce)?;
    }
    let part_header = PartHeader {
        code: code.to_owned(),
        memory_id,
        key_id: key.map(|(id, _)| id),
        body_schema: body.schema,
        nonce,
    }
    .encode()?;
    let body = match key {
        None => body.datum,
        Some((_, key)) => {
            let aad = associated_data(header, &part_header, index);
            let payload = Payload {
                msg: &body.datum,
                aad: &aad,
            };
            cipher(key)
                .encrypt(&XNonce::from(nonce), payload)
                .map_err(|_| CodecError::Unsealable)?
        }
    };
    Ok(Part {
        header: part_header,
        body,
    })
}

/// Gives the body as it was before sealing; `None` when the tag does not fit.
pub(super) fn open(
    key: &DataKey,
    header: &[u8],
    part: &Part,
    part_header: &PartHeader,
    index: u32,
) -> Option<Body> {
    let aad = associated_data(header, &part.header, index);
    let payload = Payload {
        msg: &part.body,
        aad: &aad,
    };
    let datum = cipher(key)
        .decrypt(&XNonce::from(part_header.nonce), payload)
        .ok()?;
    Some(Body {
        schema: part_header.body_schema,
        datum,
    })
}

fn cipher(key: &DataKey) -> XChaCha20Poly1305 {
    XChaCha20Poly1305::new(key.bytes().into())
}

pub(super) fn fill_random(bytes: &mut [u8]) -> Result<(), CodecError> {
    getrandom::fill(bytes).map_err(|_| CodecError::NoRandomness)
}
