//! From domain values to bodies and back. A body is a bare datum: its schema's fingerprint travels in
//! the part header, and both are authenticated together.

use anamnesis_domain::ids::{EventTag, MemoryId, RecallId, SourceTag};
use anamnesis_domain::input::{CandidateSet, CommandRecord, Turn};
use anamnesis_domain::receipt::RecallReceipt;
use anamnesis_domain::text::Text;
use anamnesis_domain::time::Timestamp;
use anamnesis_domain::transition::{Detail, Transition};
use apache_avro::AvroSchema;
use serde::{Deserialize, Serialize};

use crate::claim::words;
use crate::command::CommandBody;
use crate::datum::{self, Wire};
use crate::error::WireError;
use crate::registry::{Fingerprint, Record, registry};
use crate::scalar::{Id, ids};
use crate::transition::{DetailBody, TransitionBody};
use crate::turn::{CandidatesBody, TurnBody, read_owner};

/// A body before it is sealed, or after it was opened.
#[derive(Clone, PartialEq, Eq)]
pub struct Body {
    pub schema: Fingerprint,
    pub datum: Vec<u8>,
}

fn encode<T: Wire>(value: &T) -> Result<Body, WireError> {
    let schema = registry().newest(T::RECORD).fingerprint;
    Ok(Body {
        schema,
        datum: datum::encode_datum(value)?,
    })
}

impl Body {
    pub fn of_turn(turn: &Turn) -> Result<Self, WireError> {
        encode(&TurnBody::of(turn)?)
    }

    pub fn of_candidates(set: &CandidateSet) -> Result<Self, WireError> {
        encode(&CandidatesBody::of(set)?)
    }

    pub fn of_command(command: &CommandRecord) -> Result<Self, WireError> {
        encode(&CommandBody::of(command)?)
    }

    pub fn of_transition(transition: &Transition) -> Result<Self, WireError> {
        encode(&TransitionBody::of(transition)?)
    }

    pub fn of_detail(detail: &Detail) -> Result<Self, WireError> {
        encode(&DetailBody::of(detail)?)
    }

    pub fn of_vector(values: &[f32]) -> Result<Self, WireError> {
        encode(&VectorBody {
            values: values.to_vec(),
        })
    }

    pub fn of_receipt(receipt: &RecallReceipt) -> Result<Self, WireError> {
        encode(&ReceiptBody::of(receipt)?)
    }

    /// Event and source tag come from the header.
    pub fn turn(&self, event: EventTag, source_tag: SourceTag) -> Result<Turn, WireError> {
        self.decode::<TurnBody>()?.read(event, source_tag)
    }

    pub fn candidates(
        &self,
        event: EventTag,
        source_tag: SourceTag,
    ) -> Result<CandidateSet, WireError> {
        self.decode::<CandidatesBody>()?.read(event, source_tag)
    }

    pub fn command(
        &self,
        event: EventTag,
        source_tag: SourceTag,
    ) -> Result<CommandRecord, WireError> {
        self.decode::<CommandBody>()?.read(event, source_tag)
    }

    pub fn transition(&self) -> Result<Transition, WireError> {
        self.decode::<TransitionBody>()?.read()
    }

    pub fn detail(&self) -> Result<Detail, WireError> {
        Ok(self.decode::<DetailBody>()?.read())
    }

    pub fn vector(&self) -> Result<Vec<f32>, WireError> {
        Ok(self.decode::<VectorBody>()?.values)
    }

    /// The recall's id comes from the header.
    pub fn receipt(&self, recall_id: RecallId) -> Result<RecallReceipt, WireError> {
        self.decode::<ReceiptBody>()?.read(recall_id)
    }

    fn decode<T: Wire>(&self) -> Result<T, WireError> {
        datum::decode_datum(self.schema, &self.datum)
    }
}

#[derive(AvroSchema, Serialize, Deserialize)]
#[avro(namespace = "anamnesis")]
pub(crate) struct VectorBody {
    values: Vec<f32>,
}

impl Wire for VectorBody {
    const RECORD: Record = Record::VectorBody;
}

#[derive(AvroSchema, Serialize, Deserialize)]
#[avro(namespace = "anamnesis")]
pub(crate) struct ReceiptBody {
    owner: String,
    at: i64,
    caller: String,
    purpose: Option<String>,
    request: String,
    answer: String,
    returned: Vec<Id>,
}

impl Wire for ReceiptBody {
    const RECORD: Record = Record::ReceiptBody;
}

impl ReceiptBody {
    fn of(receipt: &RecallReceipt) -> Result<Self, WireError> {
        Ok(Self {
            owner: receipt.owner.to_string(),
            at: receipt.at.millis(),
            caller: receipt.caller.clone(),
            purpose: receipt.purpose.clone(),
            request: words(&receipt.request),
            answer: words(&receipt.answer),
            returned: ids("returned", &receipt.returned)?,
        })
    }

    fn read(self, recall_id: RecallId) -> Result<RecallReceipt, WireError> {
        Ok(RecallReceipt {
            recall_id,
            owner: read_owner(&self.owner)?,
            at: Timestamp::from_millis(self.at),
            caller: self.caller,
            purpose: self.purpose,
            request: Text::new(self.request),
            answer: Text::new(self.answer),
            returned: self.returned.into_iter().map(MemoryId::from).collect(),
        })
    }
}
