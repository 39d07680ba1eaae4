//! What a payload says without any key: the skeleton fold and the balance read only this.

use anamnesis_domain::ids::{EventTag, Hash, KeyId, MemoryId, OwnerKey, SourceTag};
use anamnesis_domain::input::{Cause, Position};
use anamnesis_domain::receipt::{Parked, Unparked};
use anamnesis_domain::time::Timestamp;
use anamnesis_domain::transition::Transition;
use anamnesis_schemas::{Body, Envelope, Header, PartHeader};

use super::{CodecError, DETAIL};
use crate::log::Identity;

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Clear {
    Identity(Identity),
    /// A turn, candidates or a command.
    Input {
        /// `turn`, `candidates`, or the command's code.
        kind: String,
        owner: OwnerKey,
        event: EventTag,
        source_tag: SourceTag,
        /// The turn behind candidates; `None` for other inputs, which are their own origin.
        origin: Option<Position>,
        failed: Option<String>,
    },
    WriterStarted {
        writer: [u8; 16],
        at: Timestamp,
    },
    Decided(ClearDecided),
    Parked(Parked),
    Unparked(Unparked),
    /// An embedding, an access, an erasure receipt, a position of intake in `inbox`.
    Other,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ClearDecided {
    pub owner: OwnerKey,
    pub owner_seq: u64,
    pub prev_hash: Hash,
    pub writer_epoch: u64,
    pub key_epoch: u32,
    pub cause: Cause,
    pub source_key: Option<KeyId>,
    pub decided_at: Timestamp,
    /// As [`anamnesis_domain::transition::Outcome::code`] writes it.
    pub outcome: String,
    /// Code, memory and key of each transition.
    pub parts: Vec<(String, Option<MemoryId>, Option<KeyId>)>,
    /// The transitions that are in clear: erasures, which outlive every key.
    pub erased: Vec<Transition>,
}

/// Reads the headers of a payload.
///
/// # Errors
/// [`CodecError::Undecodable`] without a position.
pub fn read_clear(payload: &[u8]) -> Result<Clear, CodecError> {
    let envelope = Envelope::decode(payload).map_err(CodecError::unreadable)?;
    match Header::decode(&envelope.header).map_err(CodecError::unreadable)? {
        Header::Identity(header) => Ok(Clear::Identity(Identity {
            log_id: header.log_id,
            created_at: header.created_at,
            partitions: header.partitions,
        })),
        Header::Input(header) => Ok(Clear::Input {
            kind: header.kind,
            owner: header.owner,
            event: header.event,
            source_tag: header.source_tag,
            origin: header.origin,
            failed: header.failed,
        }),
        Header::WriterStarted(header) => Ok(Clear::WriterStarted {
            writer: header.writer,
            at: header.at,
        }),
        Header::Parked(parked) => Ok(Clear::Parked(parked)),
        Header::Unparked(unparked) => Ok(Clear::Unparked(unparked)),
        Header::Embedding(_)
        | Header::Access(_)
        | Header::ErasureReceipt(_)
        | Header::InboxRead(_) => Ok(Clear::Other),
        Header::Decided(header) => {
            let mut parts = Vec::with_capacity(envelope.parts.len());
            let mut erased = Vec::new();
            for part in envelope.parts {
                let said = PartHeader::decode(&part.header).map_err(CodecError::unreadable)?;
                if said.code == DETAIL {
                    continue;
                }
                if said.key_id.is_none() {
                    let body = Body {
                        schema: said.body_schema,
                        datum: part.body,
                    };
                    erased.push(body.transition().map_err(CodecError::unreadable)?);
                }
                parts.push((said.code, said.memory_id, said.key_id));
            }
            Ok(Clear::Decided(ClearDecided {
                owner: header.owner,
                owner_seq: header.owner_seq,
                prev_hash: header.prev_hash,
                writer_epoch: header.writer_epoch,
                key_epoch: header.key_epoch,
                cause: header.cause,
                source_key: header.source_key,
                decided_at: header.decided_at,
                outcome: header.outcome.code(),
                parts,
                erased,
            }))
        }
    }
}
