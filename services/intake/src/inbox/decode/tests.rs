//! How a record's headers say what its payload is.

use anamnesis_domain::time::Timestamp;

use super::*;

fn record(headers: &[(&str, &str)]) -> InboxRecord {
    InboxRecord {
        offset: 1,
        appended_at: Timestamp::from_millis(0),
        key: None,
        headers: headers
            .iter()
            .map(|(name, value)| {
                let value = Bytes::copy_from_slice(value.as_bytes());
                ((*name).to_owned(), Some(value))
            })
            .collect(),
        payload: None,
        damage: None,
    }
}

fn check(headers: &[(&str, &str)], expected: Result<Kind, &str>) {
    let kind = Headers::read(&record(headers)).and_then(|headers| headers.kind());
    assert_eq!(
        kind.map_err(|rejected| rejected.code),
        expected,
        "{headers:?}"
    );
}

#[test]
fn the_media_type_comes_first_and_then_the_attributes() {
    let (id, json) = (("ce_id", "1"), "application/json");
    check(&[], Ok(Kind::Plain));
    check(&[("content-type", json)], Ok(Kind::Plain));
    check(&[("x-trace", "1")], Ok(Kind::Plain));
    check(&[id], Ok(Kind::Binary));
    check(&[("CE_ID", "1"), ("Content-Type", json)], Ok(Kind::Binary));
    check(
        &[id, ("content-type", "application/fhir+json; v=4")],
        Ok(Kind::Binary),
    );
    check(
        &[id, ("content-type", "avro/binary")],
        Err("unsupported_content_type"),
    );
    check(
        &[id, ("content-type", "application/avro")],
        Ok(Kind::Binary),
    );
    check(
        &[id, ("content-type", "application/vnd.apache.avro+json")],
        Ok(Kind::Binary),
    );
    let structured = ("content-type", "Application/CloudEvents+JSON;charset=utf-8");
    check(&[id, structured], Ok(Kind::Structured));
    check(
        &[("content-type", "application/cloudevents")],
        Ok(Kind::Structured),
    );
    check(
        &[("content-type", "application/cloudevents-batch+json")],
        Ok(Kind::Batch),
    );
    let other = "unsupported_content_type";
    check(
        &[("content-type", "application/cloudevents-batch+avro")],
        Err(other),
    );
    check(&[id, ("content-type", "image/png")], Err(other));
}

#[test]
fn a_header_that_says_two_things_is_refused() {
    check(&[("ce_id", "1"), ("Ce_Id", "1")], Ok(Kind::Binary));
    check(&[("ce_id", "1"), ("ce_id", "2")], Err("invalid_field"));
    let types = [
        ("content-type", "application/json"),
        ("Content-Type", "text/plain"),
    ];
    check(&types, Err("invalid_field"));
}
