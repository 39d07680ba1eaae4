//! What becomes of a record that somebody else's producer wrote? The log's readers expect an owner's
//! pseudonym and a payload of bounded length; on a broker anything can stand.
//!
//! - Without a payload (a tombstone), or with one above the limit: an **empty payload**, which no
//!   decoder accepts. The stage parks its owner, in order, at this position.
//! - Without a lawful key on an owner's topic: nobody's key (zeros) **and** an empty payload. A lawful
//!   payload under another key must not reach anybody, since the key says whose it is.
//! - On `inbox` keys mean nothing: the payload passes as it is. (Intake reads more than that; see
//!   [`super::inbox`].)
//! - A place where no record is (a transaction's marker): on `inbox` an empty payload under nobody's
//!   key; elsewhere an error that names the place, because history with a hole is no history.

use std::panic::{AssertUnwindSafe, catch_unwind};

use anamnesis_domain::ids::OwnerKey;
use anamnesis_domain::input::{Position, Topic};
use anamnesis_domain::time::Timestamp;
use anamnesis_pipeline::inbox::{FRAME_BYTES_MAX, HEADERS_MAX};
use anamnesis_pipeline::log::{PAYLOAD_BYTES_MAX, Record};
use bytes::Bytes;
use rdkafka::message::{BorrowedMessage, Headers, Message};

/// Key of the records that belong to no owner.
pub(super) const NOBODY: OwnerKey = OwnerKey::from_bytes([0; 16]);

/// A record as it stands on the broker.
#[derive(Clone, PartialEq, Eq)]
pub struct Foreign {
    pub offset: u64,
    /// The broker's time, before the running maximum.
    pub own_time: Timestamp,
    pub key: Option<Bytes>,
    pub payload: Option<Bytes>,
    /// `ce_type` and its like, in order. Only read on `inbox`.
    pub headers: Vec<(String, Option<Bytes>)>,
    /// Why there is no more of it here.
    pub lack: Option<Lack>,
}

/// Why a record is not here as it was written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Lack {
    /// No record stands at this place.
    NoRecord,
    TooLarge,
    /// On `inbox`: the name of a header is not UTF-8.
    HeaderName,
}

impl std::fmt::Debug for Foreign {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Foreign")
            .field("offset", &self.offset)
            .field("payload_bytes", &self.payload.as_ref().map(Bytes::len))
            .finish_non_exhaustive()
    }
}

impl Foreign {
    pub(super) fn read(message: &BorrowedMessage<'_>, topic: Topic) -> Self {
        // An owner's key is short, and another one means nothing there.
        let key = message.key().filter(|key| key.len() <= FRAME_BYTES_MAX);
        let mut read = Self {
            offset: message.offset().unsigned_abs(),
            own_time: Timestamp::from_millis(message.timestamp().to_millis().unwrap_or(0)),
            key: key.map(Bytes::copy_from_slice),
            payload: None,
            headers: Vec::new(),
            lack: None,
        };
        // Not copied: a reader's memory is bounded whatever was written.
        if message.payload_len() > PAYLOAD_BYTES_MAX {
            read.lack = Some(Lack::TooLarge);
            return read;
        }
        if topic == Topic::Inbox {
            let is_too_long = message.key_len() > FRAME_BYTES_MAX;
            match headers(message) {
                Ok(headers) if !is_too_long => read.headers = headers,
                Ok(_) => read.lack = Some(Lack::TooLarge),
                Err(lack) => read.lack = Some(lack),
            }
            if read.lack.is_some() {
                read.key = None;
                return read;
            }
        }
        read.payload = message.payload().map(Bytes::copy_from_slice);
        read
    }

    /// Stands for a place where no record is.
    pub(super) fn nothing(offset: u64, own_time: Timestamp) -> Self {
        Self {
            offset,
            own_time,
            key: None,
            payload: None,
            headers: Vec::new(),
            lack: Some(Lack::NoRecord),
        }
    }

    pub(super) fn bytes(&self) -> usize {
        let headers = self.headers.iter().map(|(name, value)| {
            let value = value.as_ref().map_or(0, Bytes::len);
            name.len() + value
        });
        let payload = self.payload.as_ref().map_or(0, Bytes::len);
        payload + self.key.as_ref().map_or(0, Bytes::len) + headers.sum::<usize>()
    }

    pub(super) fn into_record(self, position: Position, appended_at: Timestamp) -> Record {
        let owner = self
            .key
            .as_deref()
            .and_then(|key| <[u8; 16]>::try_from(key).ok())
            .map(OwnerKey::from_bytes);
        let (key, payload) = match (owner, position.topic == Topic::Inbox) {
            (Some(key), _) => (key, self.payload),
            (None, true) => (NOBODY, self.payload),
            (None, false) => {
                tracing::warn!(%position, "a record without an owner's key is handed on as undecodable");
                (NOBODY, None)
            }
        };
        Record {
            position,
            key,
            appended_at,
            payload: payload.unwrap_or_default(),
        }
    }
}

fn headers(message: &BorrowedMessage<'_>) -> Result<Vec<(String, Option<Bytes>)>, Lack> {
    let Some(headers) = message.headers() else {
        return Ok(Vec::new());
    };
    if headers.count() > HEADERS_MAX {
        return Err(Lack::TooLarge);
    }
    // The library takes it for granted that a name is UTF-8, and panics.
    let read = catch_unwind(AssertUnwindSafe(|| {
        let mut bytes = message.key_len();
        let mut read = Vec::with_capacity(headers.count());
        for header in headers.iter() {
            bytes += header.key.len() + header.value.map_or(0, <[u8]>::len);
            if bytes > FRAME_BYTES_MAX {
                return Err(Lack::TooLarge);
            }
            let value = header.value.map(Bytes::copy_from_slice);
            read.push((header.key.to_owned(), value));
        }
        Ok(read)
    }));
    read.unwrap_or(Err(Lack::HeaderName))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(topic: Topic, key: Option<&[u8]>, payload: Option<&[u8]>, expected: (u8, &[u8])) {
        let foreign = Foreign {
            offset: 3,
            own_time: Timestamp::from_millis(1),
            key: key.map(Bytes::copy_from_slice),
            payload: payload.map(Bytes::copy_from_slice),
            headers: Vec::new(),
            lack: None,
        };
        let position = Position {
            topic,
            partition: 0,
            offset: 3,
        };
        let record = foreign.into_record(position, Timestamp::from_millis(1));
        assert_eq!(record.key, OwnerKey::from_bytes([expected.0; 16]));
        assert_eq!(record.payload, expected.1);
    }

    #[test]
    fn a_payload_reaches_only_the_owner_whose_key_it_has() {
        let owner: &[u8] = &[7; 16];
        let topic = Topic::Conversation;
        check(topic, Some(owner), Some(b"x"), (7, b"x"));
        check(topic, Some(owner), None, (7, b""));
        check(topic, Some(b"short"), Some(b"x"), (0, b""));
        check(topic, None, Some(b"x"), (0, b""));
        check(topic, Some(b""), None, (0, b""));
        check(Topic::Inbox, None, Some(b"x"), (0, b"x"));
        check(Topic::Inbox, Some("会话".as_bytes()), Some(b"x"), (0, b"x"));
    }
}
