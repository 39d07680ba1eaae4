//! How do questions and answers travel as gRPC messages?
//!
//! One call, one question, a stream of frames: an answer is one CBOR value, cut into frames of bounded
//! length and put together again, so that a long listing needs no large message. What says who asks,
//! and in which version, stands in the metadata and is judged before a byte of the question is read.

use std::time::Duration;

use anamnesis_domain::ids::LogId;
use bytes::{Buf as _, BufMut as _, Bytes};
use tonic::Status;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::metadata::MetadataMap;

/// Rises with every change that an older process would misread.
pub(super) const PROTOCOL: u32 = 1;

pub(super) const PATH: &str = "/anamnesis.shard.Shard/Ask";

const PROTOCOL_HEADER: &str = "anamnesis-protocol";
const LOG_HEADER: &str = "anamnesis-log";

/// Longest question: a hundred thousand ids to check.
pub(super) const QUESTION_BYTES_MAX: usize = 4 << 20;
/// Longest message of an answer. Small beside the window of a connection, so that a long answer does
/// not hold up the short ones.
pub(super) const FRAME_BYTES_MAX: usize = 256 << 10;
/// Longest answer: a page of five hundred of the longest memories, the owners of a very large shard.
pub(super) const ANSWER_BYTES_MAX: usize = 256 << 20;
/// What one side takes before the other must wait.
pub(super) const WINDOW_BYTES: u32 = 2 << 20;

/// How long a connection may be silent before it is asked whether it still stands, and how long that
/// may take.
pub(super) const KEEP_ALIVE: (Duration, Duration) =
    (Duration::from_secs(10), Duration::from_secs(5));

/// Metadata that every question carries.
pub(super) fn introduce(log_id: LogId, metadata: &mut MetadataMap) {
    let protocol = PROTOCOL.to_string().parse();
    metadata.insert(PROTOCOL_HEADER, protocol.expect("digits"));
    let log = log_id.to_string().parse();
    metadata.insert(LOG_HEADER, log.expect("plain characters"));
}

/// The protocol and the log of a caller, where it says them.
pub(super) fn introduced(metadata: &MetadataMap) -> (Option<u32>, Option<LogId>) {
    let text = |name| metadata.get(name).and_then(|value| value.to_str().ok());
    let protocol = text(PROTOCOL_HEADER).and_then(|text| text.parse().ok());
    let log = text(LOG_HEADER).and_then(|text| text.parse().ok());
    (protocol, log)
}

/// The frames of an answer, in order. An empty answer is one empty frame.
pub(super) fn cut(answer: Bytes) -> impl Iterator<Item = Bytes> {
    let mut rest = Some(answer);
    std::iter::from_fn(move || {
        let mut all = rest.take()?;
        if all.len() <= FRAME_BYTES_MAX {
            return Some(all);
        }
        let frame = all.split_to(FRAME_BYTES_MAX);
        rest = Some(all);
        Some(frame)
    })
}

/// Messages are bytes as they are.
#[derive(Clone, Copy, Default)]
pub(super) struct Frames;

impl Codec for Frames {
    type Encode = Bytes;
    type Decode = Bytes;
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self {
        *self
    }

    fn decoder(&mut self) -> Self {
        *self
    }
}

impl Encoder for Frames {
    type Item = Bytes;
    type Error = Status;

    fn encode(&mut self, item: Bytes, buffer: &mut EncodeBuf<'_>) -> Result<(), Status> {
        buffer.put(item);
        Ok(())
    }
}

impl Decoder for Frames {
    type Item = Bytes;
    type Error = Status;

    fn decode(&mut self, buffer: &mut DecodeBuf<'_>) -> Result<Option<Bytes>, Status> {
        Ok(Some(buffer.copy_to_bytes(buffer.remaining())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_bounded_and_join_to_the_answer() {
        for (length, frames) in [
            (0, 1),
            (1, 1),
            (FRAME_BYTES_MAX, 1),
            (FRAME_BYTES_MAX + 1, 2),
            (10 << 20, 40),
        ] {
            let answer: Vec<u8> = (0..length).map(|i| (i % 251) as u8).collect();
            let cut: Vec<Bytes> = cut(Bytes::from(answer.clone())).collect();
            assert_eq!(cut.len(), frames, "{length}");
            assert!(cut.iter().all(|frame| frame.len() <= FRAME_BYTES_MAX));
            assert_eq!(cut.concat(), answer);
        }
    }

    #[test]
    fn a_caller_is_read_as_it_introduced_itself() {
        let log_id = LogId::from_bytes([7; 16]);
        let mut metadata = MetadataMap::new();
        assert_eq!(introduced(&metadata), (None, None));
        introduce(log_id, &mut metadata);
        assert_eq!(introduced(&metadata), (Some(PROTOCOL), Some(log_id)));
    }
}
