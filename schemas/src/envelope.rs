//! The outermost record of every payload, and what the bodies in it are bound to.
//!
//! `header` and each part's `header` are single-object encodings of their own. They are kept as bytes,
//! so that authenticated data and hashes cover what was written, whatever version reads it.

use anamnesis_domain::ids::{KeyId, MemoryId};
use apache_avro::AvroSchema;
use serde::{Deserialize, Serialize};

use crate::datum::{self, Wire};
use crate::error::WireError;
use crate::registry::{Fingerprint, Record};
use crate::scalar::{Id, Nonce, SchemaId};

#[derive(AvroSchema, Serialize, Deserialize, Clone, PartialEq, Eq)]
#[avro(namespace = "anamnesis")]
pub struct Envelope {
    /// In clear: one header record.
    #[avro(with)]
    #[serde(with = "apache_avro::serde::bytes")]
    pub header: Vec<u8>,
    pub parts: Vec<Part>,
}

#[derive(AvroSchema, Serialize, Deserialize, Clone, PartialEq, Eq)]
#[avro(namespace = "anamnesis")]
pub struct Part {
    /// In clear: a [`PartHeader`].
    #[avro(with)]
    #[serde(with = "apache_avro::serde::bytes")]
    pub header: Vec<u8>,
    /// A bare datum, sealed unless the part header names no key.
    #[avro(with)]
    #[serde(with = "apache_avro::serde::bytes")]
    pub body: Vec<u8>,
}

impl Wire for Envelope {
    const RECORD: Record = Record::Envelope;
}

impl Envelope {
    /// # Errors
    /// [`WireError::TooLarge`] or [`WireError::TooMany`].
    pub fn encode(&self) -> Result<Vec<u8>, WireError> {
        datum::encode_object(self)
    }

    /// # Errors
    /// When the bytes are not an envelope of a version that this one knows.
    pub fn decode(payload: &[u8]) -> Result<Self, WireError> {
        if payload.len() > datum::RECORD_BYTES_MAX {
            let (bytes, limit) = (payload.len(), datum::RECORD_BYTES_MAX);
            return Err(WireError::TooLarge { bytes, limit });
        }
        datum::decode_object(payload)
    }
}

/// What is authenticated with the body of part `index`: both headers as written, each behind its
/// length, and the place. A body therefore opens in no other record, part or order.
pub fn associated_data(header: &[u8], part_header: &[u8], index: u32) -> Vec<u8> {
    let mut data = Vec::with_capacity(header.len() + part_header.len() + 20);
    for bytes in [header, part_header] {
        data.extend_from_slice(&(bytes.len() as u64).to_le_bytes());
        data.extend_from_slice(bytes);
    }
    data.extend_from_slice(&index.to_le_bytes());
    data
}

/// What is said in clear about a part.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PartHeader {
    /// `turn`, `candidates`, a command's code, `detail`, a transition's code, `vector`, `receipt`.
    pub code: String,
    pub memory_id: Option<MemoryId>,
    /// The key that seals the body; `None` for a body in clear.
    pub key_id: Option<KeyId>,
    /// Which schema wrote the body.
    pub body_schema: Fingerprint,
    /// Zeros for a body in clear.
    pub nonce: [u8; 24],
}

#[derive(AvroSchema, Serialize, Deserialize)]
#[avro(namespace = "anamnesis")]
#[serde(rename = "PartHeader")]
pub(crate) struct PartHeaderWire {
    code: String,
    memory_id: Option<Id>,
    key_id: Option<Id>,
    body_schema: SchemaId,
    nonce: Nonce,
}

impl Wire for PartHeaderWire {
    const RECORD: Record = Record::PartHeader;
}

impl PartHeader {
    /// # Errors
    /// [`WireError::TooLarge`].
    pub fn encode(&self) -> Result<Vec<u8>, WireError> {
        datum::encode_object(&PartHeaderWire {
            code: self.code.clone(),
            memory_id: self.memory_id.map(Id::from),
            key_id: self.key_id.map(Id::from),
            body_schema: SchemaId(*self.body_schema.bytes()),
            nonce: Nonce(self.nonce),
        })
    }

    /// # Errors
    /// When the bytes are not a part header of a version that this one knows.
    pub fn decode(bytes: &[u8]) -> Result<Self, WireError> {
        let wire: PartHeaderWire = datum::decode_object(bytes)?;
        Ok(Self {
            code: wire.code,
            memory_id: wire.memory_id.map(MemoryId::from),
            key_id: wire.key_id.map(KeyId::from),
            body_schema: Fingerprint::from_bytes(wire.body_schema.0),
            nonce: wire.nonce.0,
        })
    }
}
