//! The contract kept: schemas, golden bytes, compatibility, and what hostile bytes can do.

use std::fs;
use std::path::PathBuf;

use anamnesis_domain::ids::Hash;
use anamnesis_domain::memory::Permille;
use anamnesis_domain::text::Text;
use anamnesis_domain::time::Timestamp;
use anamnesis_domain::transition::{Detail, Note, Transition};
use apache_avro::reader::datum::GenericDatumReader;
use apache_avro::schema::{RecordSchema, Schema};
use apache_avro::schema_compatibility::{Compatibility, SchemaCompatibility};
use apache_avro::types::Value;
use apache_avro::writer::datum::GenericDatumWriter;
use proptest::prelude::*;

use crate::body::{Body, ReceiptBody, VectorBody};
use crate::command::CommandBody;
use crate::datum::{RECORD_BYTES_MAX, Wire, decode_object, split_object};
use crate::envelope::{Envelope, PartHeader, PartHeaderWire};
use crate::error::WireError;
use crate::header::{Header, wire};
use crate::registry::{Record, Version, registry};
use crate::samples;
use crate::transition::{DetailBody, TransitionBody};
use crate::turn::{CandidatesBody, TurnBody};

fn parse(version: &Version) -> Schema {
    Schema::parse_str(version.text).unwrap()
}

/// Fields and their defaults, of this record and those inside it. The canonical form drops defaults.
fn defaults(schema: &Schema, found: &mut Vec<(String, Option<serde_json::Value>)>) {
    match schema {
        Schema::Record(RecordSchema { name, fields, .. }) => {
            for field in fields {
                found.push((
                    format!("{}.{}", name.name(), field.name),
                    field.default.clone(),
                ));
                defaults(&field.schema, found);
            }
        }
        Schema::Array(array) => defaults(&array.items, found),
        Schema::Union(union) => union
            .variants()
            .iter()
            .for_each(|inner| defaults(inner, found)),
        _ => (),
    }
}

fn check_derived<T: Wire>() {
    let newest = parse(registry().newest(T::RECORD));
    let derived = T::get_schema();
    let record = T::RECORD.name();
    assert_eq!(
        derived.canonical_form(),
        newest.canonical_form(),
        "{record}"
    );
    let (mut by_file, mut by_type) = (Vec::new(), Vec::new());
    defaults(&newest, &mut by_file);
    defaults(&derived, &mut by_type);
    assert_eq!(by_type, by_file, "{record}");
}

#[test]
fn the_types_are_the_newest_schemas() {
    for record in Record::ALL {
        match record {
            Record::Envelope => check_derived::<Envelope>(),
            Record::PartHeader => check_derived::<PartHeaderWire>(),
            Record::IdentityHeader => check_derived::<wire::IdentityHeader>(),
            Record::InputHeader => check_derived::<wire::InputHeader>(),
            Record::DecidedHeader => check_derived::<wire::DecidedHeader>(),
            Record::WriterStartedHeader => check_derived::<wire::WriterStartedHeader>(),
            Record::ParkedHeader => check_derived::<wire::ParkedHeader>(),
            Record::UnparkedHeader => check_derived::<wire::UnparkedHeader>(),
            Record::EmbeddingHeader => check_derived::<wire::EmbeddingHeader>(),
            Record::AccessHeader => check_derived::<wire::AccessHeader>(),
            Record::ErasureReceiptHeader => check_derived::<wire::ErasureReceiptHeader>(),
            Record::InboxReadHeader => check_derived::<wire::InboxReadHeader>(),
            Record::TurnBody => check_derived::<TurnBody>(),
            Record::CandidatesBody => check_derived::<CandidatesBody>(),
            Record::CommandBody => check_derived::<CommandBody>(),
            Record::TransitionBody => check_derived::<TransitionBody>(),
            Record::DetailBody => check_derived::<DetailBody>(),
            Record::VectorBody => check_derived::<VectorBody>(),
            Record::ReceiptBody => check_derived::<ReceiptBody>(),
        }
    }
}

/// Decodes as the newest version whatever the record is.
fn decodes(record: Record, object: &[u8]) -> Result<(), WireError> {
    match record {
        Record::Envelope => Envelope::decode(object).map(drop),
        Record::PartHeader => PartHeader::decode(object).map(drop),
        Record::IdentityHeader
        | Record::InputHeader
        | Record::DecidedHeader
        | Record::WriterStartedHeader
        | Record::ParkedHeader
        | Record::UnparkedHeader
        | Record::EmbeddingHeader
        | Record::AccessHeader
        | Record::ErasureReceiptHeader
        | Record::InboxReadHeader => Header::decode(object).map(drop),
        Record::TurnBody
        | Record::CandidatesBody
        | Record::CommandBody
        | Record::TransitionBody
        | Record::DetailBody
        | Record::VectorBody
        | Record::ReceiptBody => {
            let (schema, datum) = split_object(object)?;
            let body = Body {
                schema,
                datum: datum.to_vec(),
            };
            match record {
                Record::TurnBody => body.turn(samples::EVENT, samples::SOURCE).map(drop),
                Record::CandidatesBody => {
                    body.candidates(samples::EVENT, samples::SOURCE).map(drop)
                }
                Record::CommandBody => body.command(samples::EVENT, samples::SOURCE).map(drop),
                Record::TransitionBody => body.transition().map(drop),
                Record::DetailBody => body.detail().map(drop),
                Record::VectorBody => body.vector().map(drop),
                _ => body.receipt(samples::RECALL).map(drop),
            }
        }
    }
}

/// Takes the defaults of all fields out of a schema's text.
fn without_defaults(value: &mut serde_json::Value) {
    if let Some(fields) = value.as_object_mut() {
        fields.remove("default");
        fields.values_mut().for_each(without_defaults);
    }
    if let Some(items) = value.as_array_mut() {
        items.iter_mut().for_each(without_defaults);
    }
}

/// a version that is compatible with the one before it and not with the first must not pass. Each
/// record that has gained fields is tried once without their defaults.
#[test]
fn a_next_version_that_drops_a_default_would_be_refused() {
    let mut tried = 0;
    for first in registry().versions() {
        let newest = registry().newest(first.record);
        if first.number == newest.number {
            continue;
        }
        let mut text: serde_json::Value = serde_json::from_str(newest.text).unwrap();
        without_defaults(&mut text);
        let next = Schema::parse_str(&text.to_string()).unwrap();
        let of_newest = SchemaCompatibility::can_read(&parse(newest), &next);
        assert!(
            matches!(of_newest, Ok(Compatibility::Full)),
            "{of_newest:?}"
        );
        let of_first = SchemaCompatibility::can_read(&parse(first), &next);
        assert!(!matches!(of_first, Ok(Compatibility::Full)), "{of_first:?}");
        tried += 1;
    }
    assert!(tried > 2, "{tried} records have several versions");
}

/// all pairs, not only neighbours.
#[test]
fn every_pair_of_versions_of_a_record_reads_each_other() {
    for writer in registry().versions() {
        for reader in registry()
            .versions()
            .iter()
            .filter(|other| other.record == writer.record)
        {
            let compatibility = SchemaCompatibility::can_read(&parse(writer), &parse(reader));
            let pair = (writer.record.name(), writer.number, reader.number);
            assert_eq!(compatibility.unwrap(), Compatibility::Full, "{pair:?}");
        }
    }
}

#[test]
fn no_two_schemas_share_a_fingerprint_and_every_file_is_listed() {
    for version in registry().versions() {
        let found = registry().version(version.fingerprint).unwrap();
        assert_eq!(
            (found.record, found.number),
            (version.record, version.number)
        );
    }
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("avro");
    let files: usize = fs::read_dir(folder)
        .unwrap()
        .map(|record| fs::read_dir(record.unwrap().path()).unwrap().count())
        .sum();
    assert_eq!(files, registry().versions().len());
}

fn golden(version: &Version, extension: &str) -> PathBuf {
    let file = format!("v{}.{extension}", version.number);
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("golden")
        .join(version.record.name())
        .join(file)
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn unhex(text: &str) -> Vec<u8> {
    let digit = |at: usize| u8::from_str_radix(&text[at..at + 2], 16).unwrap();
    (0..text.len()).step_by(2).map(digit).collect()
}

/// JSON with bytes as hexadecimal digits.
fn readable(value: Value) -> serde_json::Value {
    match value {
        Value::Bytes(bytes) | Value::Fixed(_, bytes) => hex(&bytes).into(),
        Value::Union(_, inner) => readable(*inner),
        Value::Array(items) => items.into_iter().map(readable).collect(),
        Value::Record(fields) => fields
            .into_iter()
            .map(|(name, inner)| (name, readable(inner)))
            .collect(),
        other => other.try_into().unwrap(),
    }
}

/// As the version's own schema sees it, without the newest version's types.
fn as_written(version: &Version, object: &[u8]) -> (serde_json::Value, Vec<u8>) {
    let schema = parse(version);
    let (fingerprint, mut datum) = split_object(object).unwrap();
    assert_eq!(fingerprint, version.fingerprint);
    let reader = GenericDatumReader::builder(&schema).build().unwrap();
    let value = reader.read_value(&mut datum).unwrap();
    let writer = GenericDatumWriter::builder(&schema).build().unwrap();
    let again = writer.write_value_to_vec(value.clone()).unwrap();
    (readable(value), again)
}

fn golden_objects(version: &Version) -> Vec<Vec<u8>> {
    let path = golden(version, "hex");
    let text = fs::read_to_string(&path)
        .unwrap_or_else(|_| panic!("{} is missing: every version has one", path.display()));
    text.lines().map(unhex).collect()
}

/// Run with `ANAMNESIS_WRITE_GOLDEN=1` once, when a version is added. Existing files never change.
#[test]
fn golden_files_are_written_on_request_only() {
    if std::env::var_os("ANAMNESIS_WRITE_GOLDEN").is_none() {
        return;
    }
    for (record, objects) in samples::objects() {
        let version = registry().newest(record);
        let path = golden(version, "hex");
        if path.exists() {
            continue;
        }
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        let lines: String = objects.iter().map(|object| hex(object) + "\n").collect();
        fs::write(path, lines).unwrap();
        let values: Vec<_> = objects
            .iter()
            .map(|object| as_written(version, object).0)
            .collect();
        let json = serde_json::to_string_pretty(&values).unwrap();
        fs::write(golden(version, "json"), json + "\n").unwrap();
    }
}

#[test]
fn golden_bytes_of_every_version_decode_and_encode_to_themselves() {
    for version in registry().versions() {
        let record = version.record.name();
        let json = fs::read_to_string(golden(version, "json")).unwrap();
        let values: Vec<serde_json::Value> = serde_json::from_str(&json).unwrap();
        let objects = golden_objects(version);
        assert_eq!(objects.len(), values.len(), "{record}");
        for (object, expected) in objects.iter().zip(values) {
            let (value, again) = as_written(version, object);
            assert_eq!(value, expected, "{record}");
            assert_eq!(again, object[10..], "{record}");
            assert_eq!(decodes(version.record, object), Ok(()), "{record}");
        }
    }
}

#[test]
fn the_newest_version_still_writes_its_golden_bytes() {
    for (record, objects) in samples::objects() {
        assert_eq!(
            objects,
            golden_objects(registry().newest(record)),
            "{}",
            record.name()
        );
    }
}

#[test]
fn every_domain_value_comes_back() {
    let (event, source) = (samples::EVENT, samples::SOURCE);
    for turn in samples::turns() {
        assert_eq!(
            Body::of_turn(&turn).unwrap().turn(event, source).unwrap(),
            turn
        );
    }
    for set in samples::candidate_sets() {
        assert_eq!(
            Body::of_candidates(&set)
                .unwrap()
                .candidates(event, source)
                .unwrap(),
            set
        );
    }
    for command in samples::commands() {
        assert_eq!(
            Body::of_command(&command)
                .unwrap()
                .command(event, source)
                .unwrap(),
            command
        );
    }
    for transition in samples::transitions() {
        assert_eq!(
            Body::of_transition(&transition)
                .unwrap()
                .transition()
                .unwrap(),
            transition
        );
    }
    for detail in samples::details() {
        assert_eq!(Body::of_detail(&detail).unwrap().detail().unwrap(), detail);
    }
    for vector in samples::vectors() {
        assert_eq!(Body::of_vector(&vector).unwrap().vector().unwrap(), vector);
    }
    for receipt in samples::receipts() {
        assert_eq!(
            Body::of_receipt(&receipt)
                .unwrap()
                .receipt(samples::RECALL)
                .unwrap(),
            receipt
        );
    }
    for header in samples::headers() {
        assert_eq!(Header::decode(&header.encode().unwrap()).unwrap(), header);
    }
    for header in samples::part_headers() {
        assert_eq!(
            PartHeader::decode(&header.encode().unwrap()).unwrap(),
            header
        );
    }
}

/// Reads a transition body in which one field (`path=value`) was changed.
fn check_transition(change: &str, expected: &str) {
    let version = registry().newest(Record::TransitionBody);
    let schema = parse(version);
    let sample = samples::transitions().swap_remove(0);
    let object = Body::of_transition(&sample).unwrap();
    let reader = GenericDatumReader::builder(&schema).build().unwrap();
    let value = reader.read_value(&mut object.datum.as_slice()).unwrap();
    let (path, text) = change.split_once('=').unwrap();
    let changed = replace(value, &path.split('.').collect::<Vec<_>>(), text);
    let datum = GenericDatumWriter::builder(&schema).build().unwrap();
    let datum = datum.write_value_to_vec(changed).unwrap();
    let error = Body {
        schema: object.schema,
        datum,
    }
    .transition()
    .unwrap_err();
    assert_eq!(error.to_string(), expected);
}

fn replace(value: Value, path: &[&str], text: &str) -> Value {
    match (value, path) {
        (Value::Record(fields), [name, rest @ ..]) => Value::Record(
            fields
                .into_iter()
                .map(|(field, inner)| {
                    let inner = if field == *name {
                        replace(inner, rest, text)
                    } else {
                        inner
                    };
                    (field, inner)
                })
                .collect(),
        ),
        (Value::Union(_, _), []) if text == "null" => Value::Union(0, Box::new(Value::Null)),
        (Value::Union(index, inner), path) => {
            Value::Union(index, Box::new(replace(*inner, path, text)))
        }
        (Value::Long(_), []) => Value::Long(text.parse().unwrap()),
        (Value::String(_), []) => Value::String(text.to_owned()),
        (value, path) => panic!("{path:?} in {value:?}"),
    }
}

#[test]
fn what_avro_cannot_check_is_checked_and_never_repeated() {
    check_transition("change=invented", "field change holds an unknown code");
    check_transition("claim=null", "field claim is missing");
    check_transition("standing=null", "field standing is missing");
    check_transition("memory_id=null", "field memory_id is missing");
    check_transition("claim.kind=secret", "field kind holds an unknown code");
    check_transition(
        "claim.importance=1001",
        "field importance is not from 0 to 1000",
    );
    check_transition(
        "claim.source.zone_minutes=99999999999",
        "field source.zone_minutes is out of range",
    );
    check_transition(
        "standing.status=gone",
        "field standing.status holds an unknown code",
    );
}

#[test]
fn what_is_too_large_is_refused_before_it_is_written_and_before_it_is_read() {
    let text = Text::new("x".repeat(RECORD_BYTES_MAX));
    let mut turn = samples::turns().swap_remove(0);
    turn.text = text;
    assert!(matches!(
        Body::of_turn(&turn),
        Err(WireError::TooLarge { .. })
    ));
    let mut receipt = samples::receipts().swap_remove(0);
    receipt.returned = vec![receipt.returned[0]; 65_537];
    assert_eq!(
        Body::of_receipt(&receipt).err().map(|error| error.code()),
        Some("undecodable")
    );
    let payload = vec![0xC3; RECORD_BYTES_MAX + 1];
    assert!(matches!(
        Envelope::decode(&payload),
        Err(WireError::TooLarge { .. })
    ));
}

#[test]
fn an_unknown_fingerprint_is_an_error_and_never_a_guess() {
    for (record, objects) in samples::objects() {
        let mut object = objects[0].clone();
        object[5] ^= 1;
        assert_eq!(
            decodes(record, &object).unwrap_err().code(),
            "unknown_schema"
        );
    }
}

fn check_round_trip<T: Wire>(object: &[u8]) {
    decode_object::<T>(object).map(drop).unwrap();
}

#[test]
fn an_object_is_read_only_as_what_it_says_it_is() {
    let objects = samples::objects();
    check_round_trip::<VectorBody>(&objects[&Record::VectorBody][0]);
    let error = decode_object::<VectorBody>(&objects[&Record::DetailBody][0])
        .err()
        .unwrap();
    assert_eq!(
        error.to_string(),
        "a detail_body stands where a vector_body belongs"
    );
    let error = Header::decode(&objects[&Record::VectorBody][0]).unwrap_err();
    assert_eq!(
        error.to_string(),
        "a vector_body stands where a header belongs"
    );
}

fn text() -> impl Strategy<Value = Text> {
    "\\PC{0,40}".prop_map(Text::new)
}

proptest! {
    #[test]
    fn any_claim_comes_back(
        words in text(),
        quote in proptest::option::of(text()),
        value in proptest::option::of("\\PC{0,12}"),
        from in any::<i64>(),
        to in proptest::option::of(any::<i64>()),
        importance in 0_u16..=1000,
        tags in proptest::collection::vec("\\PC{0,8}", 0..5),
        zone in any::<i32>(),
    ) {
        let mut claim = samples::full_claim();
        claim.text = words;
        claim.quote = quote;
        claim.value = value;
        claim.valid_from = Timestamp::from_millis(from);
        claim.valid_to = to.map(Timestamp::from_millis);
        claim.importance = Permille::new(importance);
        claim.context_tags = tags;
        claim.source.zone_minutes = zone;
        let Transition::Asserted { id, standing, .. } = samples::transitions().swap_remove(0) else {
            unreachable!("the first sample")
        };
        let transition = Transition::Asserted { id, claim: Box::new(claim), standing };
        let body = Body::of_transition(&transition).unwrap();
        prop_assert_eq!(body.transition().unwrap(), transition);
    }

    #[test]
    fn any_turn_comes_back(
        words in text(),
        speaker in proptest::option::of(text()),
        at in any::<i64>(),
        injected in proptest::collection::vec(any::<(u32, u32)>(), 0..6),
    ) {
        let mut turn = samples::turns().swap_remove(1);
        turn.text = words;
        turn.speaker = speaker;
        turn.at = Timestamp::from_millis(at);
        turn.injected = injected;
        let body = Body::of_turn(&turn).unwrap();
        prop_assert_eq!(body.turn(samples::EVENT, samples::SOURCE).unwrap(), turn);
    }

    #[test]
    fn any_detail_comes_back(
        owner in "\\PC{0,30}",
        content in proptest::option::of(any::<[u8; 32]>()),
        notes in proptest::collection::vec(("[a-z_]{1,12}", proptest::option::of(text())), 0..6),
    ) {
        let note = |(code, detail)| Note { code, memory_id: None, detail };
        let notes = notes.into_iter().map(note).collect();
        let detail = Detail { owner, content: content.map(Hash), notes };
        prop_assert_eq!(Body::of_detail(&detail).unwrap().detail().unwrap(), detail);
    }
}

#[test]
fn a_plain_claim_needs_no_optional_field() {
    let Transition::Asserted { id, standing, .. } = samples::transitions().swap_remove(0) else {
        unreachable!("the first sample")
    };
    let claim = Box::new(samples::plain_claim());
    let transition = Transition::Asserted {
        id,
        claim,
        standing,
    };
    assert_eq!(
        Body::of_transition(&transition)
            .unwrap()
            .transition()
            .unwrap(),
        transition
    );
}
