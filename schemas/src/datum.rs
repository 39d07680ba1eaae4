//! How one Avro datum becomes bytes and comes back: bounded, exact to the last byte, and never a panic.

use std::io::{self, Read, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};

use apache_avro::AvroSchema;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::error::WireError;
use crate::registry::{Fingerprint, Record, Version, registry};

/// Longest encoding of one record. It is also the log's limit for a payload.
pub const RECORD_BYTES_MAX: usize = 4 << 20;

/// Most reads that decoding one datum may take. A payload of 4 MiB could claim four million empty
/// strings, each of which costs 24 bytes of memory; real records stay a hundred times below this.
/// [`encode_datum`] refuses what would exceed it, so that nothing is written that cannot be read.
pub const READS_MAX: usize = 1 << 18;

/// First bytes of an Avro single-object encoding.
const MARKER: [u8; 2] = [0xC3, 0x01];
const PREFIX_BYTES: usize = MARKER.len() + 8;

/// A type whose derived schema is the newest version of a record.
pub(crate) trait Wire: AvroSchema + Serialize + DeserializeOwned {
    const RECORD: Record;
}

/// The bare datum, as it stands in a part's body; its schema is the newest version of the record.
pub(crate) fn encode_datum<T: Wire>(value: &T) -> Result<Vec<u8>, WireError> {
    encode_onto::<T>(Vec::new(), value)
}

/// Marker, fingerprint, datum.
pub(crate) fn encode_object<T: Wire>(value: &T) -> Result<Vec<u8>, WireError> {
    let mut start = Vec::with_capacity(256);
    start.extend_from_slice(&MARKER);
    start.extend_from_slice(registry().newest(T::RECORD).fingerprint.bytes());
    encode_onto::<T>(start, value)
}

fn encode_onto<T: Wire>(start: Vec<u8>, value: &T) -> Result<Vec<u8>, WireError> {
    let record = T::RECORD.name();
    let mut sink = Sink {
        bytes: start,
        reads: 0,
    };
    let written = registry()
        .newest(T::RECORD)
        .writer
        .write_ser(&mut sink, value);
    if written.is_err() {
        return Err(WireError::Malformed { record });
    }
    if sink.bytes.len() > RECORD_BYTES_MAX {
        return Err(WireError::TooLarge {
            bytes: sink.bytes.len(),
            limit: RECORD_BYTES_MAX,
        });
    }
    if sink.reads > READS_MAX {
        return Err(WireError::TooMany { record });
    }
    Ok(sink.bytes)
}

/// Which schema wrote a single-object encoding, and the datum behind it.
pub(crate) fn split_object(bytes: &[u8]) -> Result<(Fingerprint, &[u8]), WireError> {
    let rest = bytes
        .strip_prefix(&MARKER)
        .ok_or(WireError::NotSingleObject)?;
    let (fingerprint, datum) = rest
        .split_first_chunk::<8>()
        .ok_or(WireError::NotSingleObject)?;
    debug_assert_eq!(bytes.len(), PREFIX_BYTES + datum.len());
    Ok((Fingerprint::from_bytes(*fingerprint), datum))
}

pub(crate) fn decode_object<T: Wire>(bytes: &[u8]) -> Result<T, WireError> {
    let (fingerprint, datum) = split_object(bytes)?;
    decode_datum(fingerprint, datum)
}

pub(crate) fn decode_datum<T: Wire>(
    fingerprint: Fingerprint,
    datum: &[u8],
) -> Result<T, WireError> {
    let version = registry()
        .version(fingerprint)
        .ok_or(WireError::UnknownSchema(fingerprint))?;
    if version.record != T::RECORD {
        let (expected, found) = (T::RECORD.name(), version.record.name());
        return Err(WireError::WrongRecord { expected, found });
    }
    decode_as(version, datum)
}

/// Decodes what `version` wrote into the newest version's type.
pub(crate) fn decode_as<T: DeserializeOwned>(
    version: &Version,
    datum: &[u8],
) -> Result<T, WireError> {
    if datum.len() > RECORD_BYTES_MAX {
        return Err(WireError::TooLarge {
            bytes: datum.len(),
            limit: RECORD_BYTES_MAX,
        });
    }
    let malformed = WireError::Malformed {
        record: version.record.name(),
    };
    let mut source = Source::new(datum);
    // The decoder has panicked on hostile bytes in earlier releases. A record that does that must park
    // its owner, not stop the process for everybody.
    let decoded = catch_unwind(AssertUnwindSafe(|| match &version.resolving {
        None => version.reader.read_deser::<T>(&mut source),
        Some(resolving) => {
            let value = resolving.read_value(&mut source)?;
            apache_avro::from_value::<T>(&value)
        }
    }));
    // The library reads a string, boolean or union cut off at the end as null: only a datum that was
    // read to its last byte, and not beyond, is what its writer meant.
    match decoded {
        Ok(Ok(value)) if source.is_read_exactly() => Ok(value),
        // An error of the library may repeat content, so it is not passed on.
        Ok(_) | Err(_) => Err(malformed),
    }
}

/// Reads from a slice; notes when more was asked than there is, and stops after [`READS_MAX`] reads.
pub(crate) struct Source<'a> {
    rest: &'a [u8],
    reads: usize,
    ran_out: bool,
}

impl<'a> Source<'a> {
    pub(crate) fn new(datum: &'a [u8]) -> Self {
        Self {
            rest: datum,
            reads: 0,
            ran_out: false,
        }
    }

    /// Whether everything was read, and nothing beyond.
    pub(crate) fn is_read_exactly(&self) -> bool {
        self.rest.is_empty() && !self.ran_out
    }
}

impl Read for Source<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.reads += 1;
        if self.reads > READS_MAX {
            return Err(io::Error::other("too many values"));
        }
        if buffer.len() > self.rest.len() {
            self.ran_out = true;
        }
        self.rest.read(buffer)
    }

    fn read_exact(&mut self, buffer: &mut [u8]) -> io::Result<()> {
        if buffer.len() > self.rest.len() {
            self.ran_out = true;
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.read(buffer).map(|_| ())
    }
}

/// Collects bytes and counts how many reads they will take at most: a number is read byte by byte (and
/// has at most ten), anything longer at once.
struct Sink {
    bytes: Vec<u8>,
    reads: usize,
}

impl Write for Sink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.reads += if bytes.len() <= 10 {
            bytes.len().max(1)
        } else {
            1
        };
        self.bytes.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::*;
    use crate::registry::Version;

    #[derive(Serialize, Deserialize, PartialEq, Debug)]
    #[serde(rename = "N")]
    struct Newest {
        name: String,
        note: Option<String>,
    }

    const V1: &str = r#"{"type":"record","name":"N","namespace":"t","fields":[
        {"name":"name","type":"string"}]}"#;
    const V2: &str = r#"{"type":"record","name":"N","namespace":"t","fields":[
        {"name":"name","type":"string"},
        {"name":"note","type":["null","string"],"default":null}]}"#;

    fn check(versions: &[&'static str], written_by: usize, datum: &[u8], expected: Option<Newest>) {
        let versions = Version::load(Record::Envelope, versions);
        assert_eq!(
            decode_as::<Newest>(&versions[written_by], datum).ok(),
            expected
        );
    }

    #[test]
    fn an_old_version_is_read_as_the_newest() {
        let datum = [6, b'a', b'b', b'c'];
        check(
            &[V1, V2],
            0,
            &datum,
            Some(Newest {
                name: "abc".into(),
                note: None,
            }),
        );
    }

    #[test]
    fn what_is_cut_off_or_continued_is_no_record_in_any_version() {
        let full = [6, b'a', b'b', b'c', 2, 2, b'x'];
        check(
            &[V1, V2],
            1,
            &full,
            Some(Newest {
                name: "abc".into(),
                note: Some("x".into()),
            }),
        );
        for cut in 0..full.len() {
            check(&[V1, V2], 1, &full[..cut], None);
        }
        for cut in 0..4 {
            check(&[V1, V2], 0, &full[..cut], None);
        }
        check(&[V1, V2], 0, &full, None);
        check(&[V1, V2], 1, &[6, b'a', b'b', b'c', 0, 0], None);
    }
}
