//! Which schemas exist: every version of every record ever written, compiled in, found by fingerprint.
//!
//! A message never brings its own schema. To change a record, add `avro/<record>/v<n+1>.avsc` with new
//! fields at the end, each nullable with a default, list it below, and write its golden file.

use std::collections::HashMap;
use std::fmt;
use std::sync::OnceLock;

use apache_avro::Schema;
use apache_avro::rabin::Rabin;
use apache_avro::reader::datum::GenericDatumReader;
use apache_avro::writer::datum::GenericDatumWriter;

use crate::datum::RECORD_BYTES_MAX;

/// CRC-64-AVRO of a schema's canonical form, in the byte order of the single-object encoding.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Fingerprint([u8; 8]);

impl Fingerprint {
    pub const fn from_bytes(bytes: [u8; 8]) -> Self {
        Self(bytes)
    }

    pub const fn bytes(&self) -> &[u8; 8] {
        &self.0
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

macro_rules! records {
    ($($variant:ident => $name:literal: [$($file:literal),+]),+ $(,)?) => {
        /// The records of the contract.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        pub enum Record { $($variant),+ }

        impl Record {
            pub const ALL: &'static [Self] = &[$(Self::$variant),+];

            /// Name of the record's folder under `avro/` and `golden/`.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name),+ }
            }

            /// The text of every version, oldest first.
            const fn texts(self) -> &'static [&'static str] {
                match self {
                    $(Self::$variant => &[$(include_str!(concat!("../avro/", $name, "/", $file))),+]),+
                }
            }
        }
    };
}

records!(
    Envelope => "envelope": ["v1.avsc"],
    PartHeader => "part_header": ["v1.avsc"],
    IdentityHeader => "identity_header": ["v1.avsc"],
    InputHeader => "input_header": ["v1.avsc"],
    DecidedHeader => "decided_header": ["v1.avsc"],
    WriterStartedHeader => "writer_started_header": ["v1.avsc"],
    ParkedHeader => "parked_header": ["v1.avsc"],
    UnparkedHeader => "unparked_header": ["v1.avsc"],
    EmbeddingHeader => "embedding_header": ["v1.avsc"],
    AccessHeader => "access_header": ["v1.avsc"],
    ErasureReceiptHeader => "erasure_receipt_header": ["v1.avsc"],
    InboxReadHeader => "inbox_read_header": ["v1.avsc"],
    TurnBody => "turn_body": ["v1.avsc", "v2.avsc"],
    CandidatesBody => "candidates_body": ["v1.avsc", "v2.avsc"],
    CommandBody => "command_body": ["v1.avsc", "v2.avsc"],
    TransitionBody => "transition_body": ["v1.avsc", "v2.avsc"],
    DetailBody => "detail_body": ["v1.avsc"],
    VectorBody => "vector_body": ["v1.avsc"],
    ReceiptBody => "receipt_body": ["v1.avsc"],
);

/// One version of one record, ready to read and write.
pub(crate) struct Version {
    pub(crate) record: Record,
    /// From 1.
    pub(crate) number: usize,
    pub(crate) text: &'static str,
    pub(crate) fingerprint: Fingerprint,
    pub(crate) writer: GenericDatumWriter<'static>,
    pub(crate) reader: GenericDatumReader<'static>,
    /// From this version to the newest; `None` for the newest itself.
    pub(crate) resolving: Option<GenericDatumReader<'static>>,
}

impl Version {
    /// Oldest first. Leaks the parsed schemas: they live as long as the process.
    pub(crate) fn load(record: Record, texts: &[&'static str]) -> Vec<Self> {
        let parsed: Vec<&'static Schema> = texts
            .iter()
            .map(|text| {
                let schema = Schema::parse_str(text).expect("compiled in; a test parses every one");
                &*Box::leak(Box::new(schema))
            })
            .collect();
        let newest = *parsed.last().expect("a record has at least one version");
        let version = |(index, schema): (usize, &'static Schema)| {
            let fingerprint = schema.fingerprint::<Rabin>().bytes;
            let reader = |reader_schema: Option<&'static Schema>| {
                GenericDatumReader::builder(schema)
                    .maybe_reader_schema(reader_schema)
                    .human_readable(false)
                    .build()
                    .expect("compiled in; names resolve within the file")
            };
            Self {
                record,
                number: index + 1,
                text: texts[index],
                fingerprint: Fingerprint(
                    fingerprint
                        .as_slice()
                        .try_into()
                        .expect("a Rabin fingerprint has 8 bytes"),
                ),
                writer: GenericDatumWriter::builder(schema)
                    .human_readable(false)
                    .build()
                    .expect("compiled in; names resolve within the file"),
                reader: reader(None),
                resolving: (index + 1 < texts.len()).then(|| reader(Some(newest))),
            }
        };
        parsed.iter().copied().enumerate().map(version).collect()
    }
}

pub(crate) struct Registry {
    versions: Vec<Version>,
    by_fingerprint: HashMap<Fingerprint, usize>,
    newest: HashMap<Record, usize>,
}

impl Registry {
    fn load() -> Self {
        // The first call in a process decides. Without it one length field could claim 512 MiB.
        apache_avro::util::max_allocation_bytes(RECORD_BYTES_MAX);
        let versions: Vec<Version> = Record::ALL
            .iter()
            .flat_map(|record| Version::load(*record, record.texts()))
            .collect();
        let by_fingerprint = (0..)
            .zip(&versions)
            .map(|(i, v)| (v.fingerprint, i))
            .collect();
        // Later versions overwrite earlier ones.
        let newest = (0..).zip(&versions).map(|(i, v)| (v.record, i)).collect();
        Self {
            versions,
            by_fingerprint,
            newest,
        }
    }

    pub(crate) fn version(&self, fingerprint: Fingerprint) -> Option<&Version> {
        self.by_fingerprint
            .get(&fingerprint)
            .map(|index| &self.versions[*index])
    }

    pub(crate) fn newest(&self, record: Record) -> &Version {
        &self.versions[self.newest[&record]]
    }

    pub(crate) fn versions(&self) -> &[Version] {
        &self.versions
    }
}

pub(crate) fn registry() -> &'static Registry {
    static REGISTRY: OnceLock<Registry> = OnceLock::new();
    REGISTRY.get_or_init(Registry::load)
}

/// A schema as the `schemas` topic publishes it.
#[derive(Clone, Copy, Debug)]
pub struct Published {
    pub record: Record,
    pub version: usize,
    pub fingerprint: Fingerprint,
    pub text: &'static str,
}

/// Every schema that this version can read.
pub fn published() -> impl Iterator<Item = Published> {
    registry().versions().iter().map(|version| Published {
        record: version.record,
        version: version.number,
        fingerprint: version.fingerprint,
        text: version.text,
    })
}

/// Which record and version a fingerprint names.
pub fn find(fingerprint: Fingerprint) -> Option<(Record, usize)> {
    registry()
        .version(fingerprint)
        .map(|version| (version.record, version.number))
}
