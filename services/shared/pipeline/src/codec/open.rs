//! From records back to domain values: one question to the keyring for a whole batch, and one answer
//! per record.

use std::collections::HashMap;

use anamnesis_domain::ids::{Hash, KeyId};
use anamnesis_domain::input::{Position, Topic};
use anamnesis_domain::transition::{Decided, Part as DecidedPart, PartBody, Transition};
use anamnesis_schemas::{
    AccessHeader, Body, DecidedHeader, EmbeddingHeader, Envelope, Header, InputHeader, PartHeader,
    WireError,
};

use super::{Codec, CodecError, DETAIL, ERASED, InputMeta, NO_OWNER, Opened, OpenedDecided, aead};
use crate::embedder::ModelIdentity;
use crate::keyring::{KeyState, KeyringError};
use crate::log::{Identity, Record, partition_of};

impl Codec {
    /// Opens a batch. The outer error is the keyring's; the inner ones are each record's own:
    /// [`CodecError::Undecodable`] parks the owner, [`KeyringError::Unknown`] means that the keyring
    /// does not belong to the log. A destroyed key is no error.
    ///
    /// # Errors
    /// When the keyring cannot answer.
    pub async fn open(
        &self,
        records: &[Record],
    ) -> Result<Vec<Result<Opened, CodecError>>, KeyringError> {
        let read = |record: &Record| Headers::read(record, self.partitions);
        let read: Vec<Result<Headers, CodecError>> = records.iter().map(read).collect();
        let mut wanted: Vec<KeyId> = read
            .iter()
            .flatten()
            .flat_map(|headers| headers.parts.iter().filter_map(|part| part.key_id))
            .collect();
        wanted.sort_unstable();
        wanted.dedup();
        let states = if wanted.is_empty() {
            Vec::new()
        } else {
            self.keys.get(&wanted).await?
        };
        let states: HashMap<KeyId, KeyState> = wanted.into_iter().zip(states).collect();
        let open = |(record, headers): (&Record, Result<Headers, CodecError>)| {
            headers.and_then(|headers| {
                Opening {
                    record,
                    headers,
                    states: &states,
                }
                .open()
            })
        };
        Ok(records.iter().zip(read).map(open).collect())
    }
}

/// A payload with its headers decoded and its bodies still sealed.
struct Headers {
    envelope: Envelope,
    header: Header,
    parts: Vec<PartHeader>,
}

impl Headers {
    fn read(record: &Record, partitions: Option<u32>) -> Result<Self, CodecError> {
        let at = |error: WireError| CodecError::undecodable(record.position, error.code());
        let envelope = Envelope::decode(&record.payload).map_err(at)?;
        let header = Header::decode(&envelope.header).map_err(at)?;
        let parts = envelope
            .parts
            .iter()
            .map(|part| PartHeader::decode(&part.header).map_err(at));
        let parts = parts.collect::<Result<_, _>>()?;
        let headers = Self {
            envelope,
            header,
            parts,
        };
        headers.check_place(record, partitions)?;
        Ok(headers)
    }

    /// A record copied to another owner or topic decodes and opens; only its place betrays it. (A turn
    /// moved from `quarantine` to `conversation` is the manager's to find: it rechecks consent.)
    fn check_place(&self, record: &Record, partitions: Option<u32>) -> Result<(), CodecError> {
        let (topic, partition) = (record.position.topic, record.position.partition);
        let (owner, is_at_home) = match &self.header {
            Header::Identity(header) => (None, header.topic == topic),
            Header::Input(header) => (
                Some(header.owner),
                match header.kind.as_str() {
                    super::TURN => matches!(topic, Topic::Conversation | Topic::Quarantine),
                    super::CANDIDATES => topic == Topic::Candidates && header.origin.is_some(),
                    _ => topic == Topic::Commands,
                },
            ),
            Header::Decided(header) => (Some(header.owner), topic == Topic::Memories),
            Header::WriterStarted(_) => (None, topic == Topic::Memories),
            // In the output topic of whichever stage parks.
            Header::Parked(parked) => (Some(parked.owner), true),
            Header::Unparked(unparked) => (Some(unparked.owner), true),
            Header::Embedding(header) => (Some(header.owner), topic == Topic::Embeddings),
            Header::Access(header) => (Some(header.owner), topic == Topic::Accesses),
            Header::ErasureReceipt(receipt) => (Some(receipt.owner), topic == Topic::Receipts),
            Header::InboxRead(_) => (Some(NO_OWNER), topic == Topic::Receipts),
        };
        if owner.is_some_and(|owner| owner != record.key) {
            return Err(CodecError::undecodable(record.position, "wrong_owner"));
        }
        if !is_at_home {
            return Err(CodecError::undecodable(record.position, "misplaced"));
        }
        // Whoever is parked for such a record is parked where it stands.
        let is_note = matches!(self.header, Header::Parked(_) | Header::Unparked(_));
        let is_bound = owner.is_some_and(|owner| owner != NO_OWNER) && !is_note;
        if is_bound && partitions.is_some_and(|count| partition_of(record.key, count) != partition)
        {
            return Err(CodecError::undecodable(record.position, "wrong_partition"));
        }
        Ok(())
    }
}

struct Opening<'a> {
    record: &'a Record,
    headers: Headers,
    states: &'a HashMap<KeyId, KeyState>,
}

impl Opening<'_> {
    fn open(&self) -> Result<Opened, CodecError> {
        match &self.headers.header {
            Header::Identity(header) => Ok(Opened::Identity(Identity {
                log_id: header.log_id,
                created_at: header.created_at,
                partitions: header.partitions,
            })),
            Header::Input(header) => self.input(header),
            Header::Decided(header) => self.decided(header),
            Header::WriterStarted(header) => Ok(Opened::WriterStarted {
                writer: header.writer,
                at: header.at,
                position: self.record.position,
            }),
            Header::Parked(parked) => Ok(Opened::Parked(parked.clone())),
            Header::Unparked(unparked) => Ok(Opened::Unparked(unparked.clone())),
            Header::Embedding(header) => self.embedding(header),
            Header::Access(header) => self.access(header),
            Header::ErasureReceipt(receipt) => Ok(Opened::Receipt(receipt.clone())),
            Header::InboxRead(read) => Ok(Opened::InboxRead(read.clone())),
        }
    }

    fn bad(&self, reason: &'static str) -> CodecError {
        CodecError::undecodable(self.record.position, reason)
    }

    fn wire(&self, error: &WireError) -> CodecError {
        self.bad(error.code())
    }

    /// The body of a part; `None` when its key is destroyed.
    fn body(&self, index: usize) -> Result<Option<Body>, CodecError> {
        let (part, said) = match (
            self.headers.envelope.parts.get(index),
            self.headers.parts.get(index),
        ) {
            (Some(part), Some(said)) => (part, said),
            (None, _) | (_, None) => return Err(self.bad("no_body")),
        };
        let Some(key_id) = said.key_id else {
            return Ok(Some(Body {
                schema: said.body_schema,
                datum: part.body.clone(),
            }));
        };
        match self.states.get(&key_id) {
            Some(KeyState::Open(key)) => {
                let place = u32::try_from(index).map_err(|_| self.bad("undecodable"))?;
                aead::open(key, &self.headers.envelope.header, part, said, place)
                    .map(Some)
                    .ok_or_else(|| self.bad("tampered"))
            }
            Some(KeyState::Destroyed) => Ok(None),
            Some(KeyState::Unknown) | None => Err(KeyringError::Unknown.into()),
        }
    }

    /// The one body of a record that has one, sealed under the key that the header names.
    fn only_body(&self, key_id: KeyId) -> Result<Option<Body>, CodecError> {
        match self.headers.parts.as_slice() {
            [part] if part.key_id == Some(key_id) => self.body(0),
            [] => Err(self.bad("no_body")),
            _ => Err(self.bad("mislabelled")),
        }
    }

    fn input(&self, header: &InputHeader) -> Result<Opened, CodecError> {
        let meta = InputMeta {
            position: self.record.position,
            appended_at: self.record.appended_at,
            owner: header.owner,
            event: header.event,
            source_tag: header.source_tag,
            key_id: header.key_id,
            key_epoch: header.key_epoch,
            consent_version: header.consent_version,
            code: header.kind.clone(),
            origin: header.origin.unwrap_or(self.record.position),
            failed: header.failed.clone(),
        };
        // The extractor found its turn's key destroyed: a header is all that it could write.
        if self.headers.parts.is_empty() && header.failed.as_deref() == Some(ERASED) {
            return Ok(Opened::Erased { meta });
        }
        let Some(body) = self.only_body(header.key_id)? else {
            return Ok(Opened::Erased { meta });
        };
        let (event, source_tag) = (header.event, header.source_tag);
        match header.kind.as_str() {
            super::TURN => {
                let turn = body
                    .turn(event, source_tag)
                    .map_err(|error| self.wire(&error))?;
                Ok(Opened::Turn {
                    meta,
                    turn: Box::new(turn),
                })
            }
            super::CANDIDATES => {
                let set = body
                    .candidates(event, source_tag)
                    .map_err(|error| self.wire(&error))?;
                Ok(Opened::Candidates {
                    meta,
                    set: Box::new(set),
                })
            }
            code => {
                let command = body
                    .command(event, source_tag)
                    .map_err(|error| self.wire(&error))?;
                // Parking is decided by the header's code before the body is read.
                if command.command.code() != code {
                    return Err(self.bad("mislabelled"));
                }
                Ok(Opened::Command {
                    meta,
                    command: Box::new(command),
                })
            }
        }
    }

    fn decided(&self, header: &DecidedHeader) -> Result<Opened, CodecError> {
        let mut detail = None;
        let mut parts = Vec::with_capacity(self.headers.parts.len());
        for (index, said) in self.headers.parts.iter().enumerate() {
            let body = self.body(index)?;
            if said.code == DETAIL {
                if index != 0 || said.key_id.is_none() || said.key_id != header.source_key {
                    return Err(self.bad("mislabelled"));
                }
                let opened = body.map(|body| body.detail()).transpose();
                detail = opened.map_err(|error| self.wire(&error))?;
                continue;
            }
            let body = match body {
                None => PartBody::Unreadable,
                Some(body) => {
                    let transition = body.transition().map_err(|error| self.wire(&error))?;
                    // Only what tells nothing about a person is ever written in clear.
                    let is_erasure = matches!(transition, Transition::Erased { .. });
                    if said.key_id.is_none() && !is_erasure {
                        return Err(self.bad("unsealed"));
                    }
                    PartBody::Open(Box::new(transition))
                }
            };
            parts.push(DecidedPart {
                code: said.code.clone(),
                memory_id: said.memory_id,
                key: said.key_id,
                body,
            });
        }
        let decided = Decided {
            owner: header.owner,
            owner_seq: header.owner_seq,
            prev_hash: header.prev_hash,
            writer_epoch: header.writer_epoch,
            key_epoch: header.key_epoch,
            cause: header.cause,
            decided_at: header.decided_at,
            outcome: header.outcome.clone(),
            parts,
            source_key: header.source_key,
            detail,
        };
        Ok(Opened::Decided(Box::new(OpenedDecided {
            decided,
            hash: Hash::of(&self.record.payload),
            position: self.record.position,
            appended_at: self.record.appended_at,
        })))
    }

    fn embedding(&self, header: &EmbeddingHeader) -> Result<Opened, CodecError> {
        let body = self.only_body(header.key_id)?;
        let vector = body.map(|body| body.vector()).transpose();
        let vector = vector.map_err(|error| self.wire(&error))?;
        let has_dimension = |values: &Vec<f32>| {
            u32::try_from(values.len()).is_ok_and(|len| len == header.dimension)
        };
        if vector.as_ref().is_some_and(|values| !has_dimension(values)) {
            return Err(self.bad("mislabelled"));
        }
        Ok(Opened::Embedding {
            owner: header.owner,
            memory_id: header.memory_id,
            model: ModelIdentity {
                id: header.model.clone(),
                dimension: header.dimension,
            },
            vector,
        })
    }

    fn access(&self, header: &AccessHeader) -> Result<Opened, CodecError> {
        let receipt = match self.only_body(header.key_id)? {
            None => None,
            Some(body) => {
                let receipt = body
                    .receipt(header.recall_id)
                    .map_err(|error| self.wire(&error))?;
                Some(Box::new(receipt))
            }
        };
        Ok(Opened::Access {
            owner: header.owner,
            recall_id: header.recall_id,
            receipt,
        })
    }
}

/// Where an error happened, for a caller that has the record.
impl CodecError {
    pub(super) fn undecodable(position: Position, reason: &'static str) -> Self {
        Self::Undecodable {
            position: Some(position),
            reason,
        }
    }

    pub(super) fn unreadable(error: WireError) -> Self {
        Self::Undecodable {
            position: None,
            reason: error.code(),
        }
    }
}
