//! What platforms write, and what a hostile registry or datum can do.

use apache_avro::writer::datum::GenericDatumWriter;
use serde_json::json;

use super::*;

const TURN: &str = r#"{"type":"record","name":"Turn","namespace":"his","fields":[
    {"name":"owner","type":"string"},
    {"name":"role","type":{"type":"enum","name":"Role","symbols":["user","assistant"]}},
    {"name":"at","type":{"type":"long","logicalType":"timestamp-millis"}},
    {"name":"text","type":"string"},
    {"name":"speaker","type":["null","string"],"default":null},
    {"name":"context_tags","type":{"type":"array","items":"string"}}]}"#;

fn write(text: &str, value: Value) -> Vec<u8> {
    let schema = Schema::parse_str(text).unwrap();
    let writer = GenericDatumWriter::builder(&schema).build().unwrap();
    writer.write_value_to_vec(value).unwrap()
}

fn turn(text: &str) -> Value {
    let string = |text: &str| Value::String(text.to_owned());
    Value::Record(vec![
        ("owner".to_owned(), string("h1/p1")),
        ("role".to_owned(), Value::Enum(0, "user".to_owned())),
        ("at".to_owned(), Value::TimestampMillis(1_748_736_000_250)),
        ("text".to_owned(), string(text)),
        (
            "speaker".to_owned(),
            Value::Union(1, Box::new(string("李女士"))),
        ),
        (
            "context_tags".to_owned(),
            Value::Array(vec![string("门诊"), string("ward-2")]),
        ),
    ])
}

#[test]
fn a_record_becomes_the_json_that_would_have_been_sent() {
    let schema = ForeignSchema::parse(TURN).unwrap();
    let read = schema.decode(&write(TURN, turn("我对芒果过敏"))).unwrap();
    let expected = json!({
        "owner": "h1/p1", "role": "user", "at": "2025-06-01T00:00:00.250Z",
        "text": "我对芒果过敏", "speaker": "李女士", "context_tags": ["门诊", "ward-2"],
    });
    assert_eq!(read, expected);
}

fn check_one(kind: &str, value: Value, expected: Json) {
    let text = format!(r#"{{"type":"record","name":"R","fields":[{{"name":"f","type":{kind}}}]}}"#);
    let datum = write(&text, Value::Record(vec![("f".to_owned(), value)]));
    let read = ForeignSchema::parse(&text).unwrap().decode(&datum).unwrap();
    assert_eq!(read["f"], expected, "{kind}");
}

#[test]
fn what_has_no_zone_is_no_instant_and_what_json_cannot_say_is_null() {
    check_one(
        r#"{"type":"int","logicalType":"date"}"#,
        Value::Date(20_240),
        json!("2025-06-01"),
    );
    check_one(
        r#"{"type":"int","logicalType":"time-millis"}"#,
        Value::TimeMillis(3_600_000),
        json!("01:00:00"),
    );
    check_one(
        r#"{"type":"long","logicalType":"local-timestamp-millis"}"#,
        Value::LocalTimestampMillis(1_748_736_000_000),
        json!("2025-06-01T00:00:00"),
    );
    check_one(
        r#"{"type":"long","logicalType":"timestamp-micros"}"#,
        Value::TimestampMicros(i64::MAX),
        json!(i64::MAX.div_euclid(1_000)),
    );
    check_one(r#""double""#, Value::Double(f64::NAN), Json::Null);
    check_one(r#""bytes""#, Value::Bytes(vec![0xff, 0xfe]), Json::Null);
    check_one(
        r#""bytes""#,
        Value::Bytes("芒果".as_bytes().to_vec()),
        json!("芒果"),
    );
}

#[test]
fn a_map_is_read_in_the_same_order_each_time() {
    let text = r#"{"type":"map","values":"long"}"#;
    let items: HashMap<String, Value> = (0..50)
        .map(|n| (format!("k{n:02}"), Value::Long(n)))
        .collect();
    let datum = write(text, Value::Map(items));
    let schema = ForeignSchema::parse(text).unwrap();
    let first = schema.decode(&datum).unwrap().to_string();
    let names: Vec<usize> = (0..50)
        .filter_map(|n| first.find(&format!("k{n:02}")))
        .collect();
    assert!(names.len() == 50 && names.is_sorted());
}

fn check_refused(text: &str, expected: &str) {
    let refused = ForeignSchema::parse(text).err().map(ForeignError::code);
    assert_eq!(refused, Some(expected), "{}", &text[..text.len().min(200)]);
}

/// R-47: also names and aliases that the library would panic over.
#[test]
fn text_that_is_no_schema_is_refused_and_never_panics() {
    for text in [
        "",
        "{",
        "null",
        "[]",
        r#"{"type":"record"}"#,
        r#"{"type":"record","name":"","fields":[]}"#,
        r#"{"type":"record","name":"a..b","fields":[]}"#,
        r#"{"type":"record","name":"R","aliases":[":"],"fields":[]}"#,
        r#"{"type":"record","name":"R","fields":[{"name":"f","aliases":[":"],"type":"long"}]}"#,
        r#"{"type":"enum","name":"E","symbols":[":"]}"#,
        r#"{"type":"fixed","name":":","size":4}"#,
        r#"{"type":"record","name":"R","fields":[{"name":"f","type":"Elsewhere"}]}"#,
    ] {
        if let Err(error) = ForeignSchema::parse(text) {
            assert!(["invalid_schema", "unsupported_schema"].contains(&error.code()));
        }
    }
    check_refused(
        r#"{"type":"record","name":":","fields":[]}"#,
        "invalid_schema",
    );
    check_refused(
        r#"{"type":"record","name":"R","aliases":[":"],"fields":[{"name":"f","type":"long"}]}"#,
        "invalid_schema",
    );
}

#[test]
fn a_schema_that_makes_a_small_datum_endless_is_refused() {
    let code = "unsupported_schema";
    check_refused(r#"{"type":"array","items":"null"}"#, code);
    check_refused(
        r#"{"type":"array","items":{"type":"record","name":"E","fields":[]}}"#,
        code,
    );
    check_refused(
        r#"{"type":"record","name":"R","fields":[{"name":"f","type":"null"}]}"#,
        code,
    );
    check_refused(r#"{"type":"fixed","name":"F","size":0}"#, code);
    check_refused(r#"{"type":"fixed","name":"F","size":4294967296}"#, code);
    check_refused(
        r#"{"type":"record","name":"L","fields":[{"name":"n","type":["null","L"]}]}"#,
        code,
    );
    let long = "x".repeat(1000);
    check_refused(
        &format!(r#"{{"type":"record","name":"R","fields":[{{"name":"{long}","type":"long"}}]}}"#),
        code,
    );
    check_refused(&" ".repeat(SCHEMA_BYTES_MAX + 1), code);
}

#[test]
fn a_schema_is_as_deep_as_its_types_inside_each_other() {
    // Each type holds the one before, by name.
    let nested = |count: usize| {
        let mut fields = vec![r#"{"name":"f0","type":{"type":"record","name":"T0","fields":[{"name":"x","type":"long"}]}}"#.to_owned()];
        for n in 1..count {
            let before = n - 1;
            fields.push(format!(
                r#"{{"name":"f{n}","type":{{"type":"record","name":"T{n}","fields":[{{"name":"a","type":"T{before}"}},{{"name":"b","type":"T{before}"}}]}}}}"#
            ));
        }
        format!(
            r#"{{"type":"record","name":"R","fields":[{}]}}"#,
            fields.join(",")
        )
    };
    assert!(ForeignSchema::parse(&nested(20)).is_ok());
    check_refused(&nested(60), "unsupported_schema");
}

#[test]
fn ten_thousand_damaged_records_are_errors_or_records_and_never_a_panic() {
    let schema = ForeignSchema::parse(TURN).unwrap();
    let other = ForeignSchema::parse(
        r#"{"type":"record","name":"O","fields":[
            {"name":"a","type":{"type":"array","items":{"type":"map","values":"bytes"}}},
            {"name":"b","type":["string","double",{"type":"fixed","name":"F","size":3}]},
            {"name":"c","type":{"type":"long","logicalType":"timestamp-nanos"}}]}"#,
    )
    .unwrap();
    let good = write(TURN, turn(&"胸痛三天。".repeat(20)));
    let mut state = 7_u64;
    let mut roll = |below: usize| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % below
    };
    let mut read = 0;
    for _ in 0..10_000 {
        let mut datum = good.clone();
        for _ in 0..=roll(4) {
            let at = roll(datum.len());
            datum[at] = roll(256) as u8;
        }
        if roll(3) == 0 {
            datum.truncate(roll(datum.len()));
        }
        read += usize::from(schema.decode(&datum).is_ok());
        read += usize::from(other.decode(&datum).is_ok());
    }
    assert!(read > 0 && read < 10_000, "{read}");
}

#[test]
fn a_datum_of_another_schema_or_with_a_rest_is_malformed() {
    let schema = ForeignSchema::parse(TURN).unwrap();
    let good = write(TURN, turn("x"));
    for cut in 0..good.len() {
        assert_eq!(schema.decode(&good[..cut]), Err(ForeignError::Malformed));
    }
    let longer = [good.as_slice(), &[0]].concat();
    assert_eq!(schema.decode(&longer), Err(ForeignError::Malformed));
    let claim = [0xfe, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01];
    assert_eq!(schema.decode(&claim), Err(ForeignError::Malformed));
    assert_eq!(
        schema.decode(&vec![2; RECORD_BYTES_MAX + 1]),
        Err(ForeignError::Malformed)
    );
    assert_eq!(
        schema.decode(&vec![2; RECORD_BYTES_MAX]),
        Err(ForeignError::Malformed)
    );
}
