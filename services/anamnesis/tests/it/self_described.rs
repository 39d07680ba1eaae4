//! Does the log hold every schema that its records were written with, so that it can be read without a
//! registry, and by a program that has forgotten a version?

use std::collections::{BTreeMap, BTreeSet};

use anamnesis_audit::replay::each_record;
use anamnesis_domain::input::Topic;
use anamnesis_pipeline::log::Record;
use anamnesis_schemas::{Envelope, Fingerprint, ForeignSchema, PartHeader, published};

use crate::node::Folder;
use crate::story;

/// The schema that an object in Avro's single-object encoding names.
fn named_by(object: &[u8]) -> Fingerprint {
    assert_eq!(&object[..2], [0xc3, 0x01]);
    Fingerprint::from_bytes(object[2..10].try_into().expect("eight bytes"))
}

/// Every schema that a record was written with: its frame, headers, and what is sealed.
fn schemas_of(record: &Record) -> Vec<Fingerprint> {
    let envelope = Envelope::decode(&record.payload).expect("a frame");
    let mut found = vec![named_by(&record.payload), named_by(&envelope.header)];
    for part in &envelope.parts {
        let header = PartHeader::decode(&part.header).expect("a header");
        found.extend([named_by(&part.header), header.body_schema]);
    }
    found
}

/// whatever a registry deletes, each schema that any record names stands in the log's own topic,
/// as a text that parses.
#[tokio::test(flavor = "multi_thread")]
async fn every_schema_that_a_record_names_stands_in_the_log() {
    let folder = Folder::new();
    story::tell(&folder, true).await;
    let node = folder.open().await;
    let mut texts: BTreeSet<Vec<u8>> = BTreeSet::new();
    let mut see = |record: &Record| {
        texts.insert(record.payload.to_vec());
    };
    each_record(&*node.log, Topic::Schemas, 0, &mut see)
        .await
        .expect("the topic is read");
    let fingerprints: BTreeMap<&[u8], Fingerprint> = published()
        .map(|schema| (schema.text.as_bytes(), schema.fingerprint))
        .collect();
    let mut held: BTreeSet<[u8; 8]> = BTreeSet::new();
    for text in &texts {
        let readable = std::str::from_utf8(text).expect("a text");
        assert!(ForeignSchema::parse(readable).is_ok(), "{readable}");
        held.extend(fingerprints.get(text.as_slice()).map(Fingerprint::bytes));
    }

    let mut used: BTreeSet<[u8; 8]> = BTreeSet::new();
    for topic in [
        Topic::Conversation,
        Topic::Candidates,
        Topic::Commands,
        Topic::Memories,
        Topic::Embeddings,
        Topic::Receipts,
    ] {
        let mut count = 0;
        for partition in 0..node.log.partitions() {
            let mut see = |record: &Record| {
                count += 1;
                used.extend(schemas_of(record).iter().map(Fingerprint::bytes));
            };
            each_record(&*node.log, topic, partition, &mut see)
                .await
                .expect("the topic is read");
        }
        assert!(count > 0, "{topic:?} has records");
    }
    assert!(used.len() > 8, "{} schemas are used", used.len());
    let missing: Vec<_> = used.difference(&held).collect();
    assert!(missing.is_empty(), "{missing:?}");
}
