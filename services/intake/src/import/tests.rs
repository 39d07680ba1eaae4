use serde_json::json;

use super::*;

fn options() -> Options {
    Options::new(
        "ward",
        "conv-3.turns",
        Timestamp::parse("2026-12-01T00:00:00Z").unwrap(),
    )
}

/// `owner source event#message role at text`, one line per message.
fn read(line: &Value, options: &Options) -> Vec<String> {
    let messages = detect_and_read(line, options).unwrap();
    let show = |m: &Message| {
        format!(
            "{} {} {} {} {} {}",
            m.owner,
            m.source,
            m.public_id(),
            m.role,
            m.at,
            m.text.expose()
        )
    };
    messages.iter().map(show).collect()
}

fn check(line: Value, expected: &[&str]) {
    assert_eq!(read(&line, &options()), expected);
}

#[test]
fn the_table_of_codes_names_attributes_that_hold_one_value() {
    let attributes = anamnesis_domain::attribute::Attributes::shipped();
    for code in ["433144002", "160903007", "15777000", "8517006"] {
        assert!(
            attributes.holds_one_value(attribute_of_code(code).unwrap()),
            "{code}"
        );
    }
}

fn timeline(action: &str, kind: &str, code: &str) -> Value {
    json!({"event_id": "q7-e1", "owner": "q7", "seq": 1, "time": "2001-02-03T04:05:06Z",
        "action": action, "fact_id": "q7-f1", "kind": kind, "code": code,
        "text_en": "Diagnosed with gout.", "text_zh": "诊断为痛风。"})
}

#[test]
fn a_timeline_is_read_in_words_or_in_codes() {
    let line = timeline("assert", "condition", "90560007");
    check(
        line.clone(),
        &["ward/patient/q7 conv-3.turns/q7 q7-e1 user 2001-02-03T04:05:06Z 诊断为痛风。"],
    );
    let mut options = options();
    options.language = Language::En;
    options.structured = true;
    let message = &detect_and_read(&line, &options).unwrap()[0];
    assert_eq!(message.text.expose(), "Diagnosed with gout.");
    let claim = message.structured.clone().unwrap();
    assert_eq!(
        (claim.kind, claim.code.as_str(), claim.ends),
        (Kind::Condition, "90560007", false)
    );
    assert_eq!(claim.attribute, None);

    let ended = timeline("end", "condition", "433144002");
    let claim = detect_and_read(&ended, &options).unwrap()[0]
        .structured
        .clone()
        .unwrap();
    assert_eq!(
        (claim.attribute.as_deref(), claim.ends),
        (Some("ckd_stage"), true)
    );
    assert_eq!(
        detect_and_read(&timeline("begin", "condition", "1"), &options)
            .unwrap_err()
            .field
            .as_deref(),
        Some("action")
    );
}

#[test]
fn the_words_of_a_timeline_ignore_its_codes() {
    let message =
        &detect_and_read(&timeline("assert", "fact", "160903007"), &options()).unwrap()[0];
    assert_eq!(message.structured, None);
}

#[test]
fn a_dialogue_turn_keeps_its_speaker_and_caption() {
    let line = json!({"dia_id": "D2:4", "session": 2, "session_time": "2022-05-01T10:00:00Z",
        "speaker": "Ana", "text": "Look at this!", "image_caption": "a red kite"});
    check(
        line.clone(),
        &[
            "ward/patient/conv-3 conv-3.turns D2:4 user 2022-05-01T10:00:00Z \
           Look at this! [image: a red kite]",
        ],
    );
    let message = &detect_and_read(&line, &options()).unwrap()[0];
    assert_eq!(message.conversation_id.as_deref(), Some("conv-3/session-2"));
    assert_eq!(message.speaker.as_ref().unwrap().expose(), "Ana");
}

#[test]
fn an_exchange_is_two_messages() {
    check(
        json!({"owner": "u9", "name": "小林", "ex_id": "3.1", "date": "2022-06-07",
            "user": "我养了一只猫。", "assistant": "它叫什么？"}),
        &[
            "ward/patient/u9 conv-3.turns 3.1#user user 2022-06-07T00:00:00Z 我养了一只猫。",
            "ward/patient/u9 conv-3.turns 3.1#assistant assistant 2022-06-07T00:00:00Z 它叫什么？",
        ],
    );
}

#[test]
fn long_chats_sessions_and_facts_are_read() {
    check(
        json!({"id": 5, "batch": 1, "date": "2022-06-07", "role": "user", "content": "I moved."}),
        &["ward/patient/conv-3.turns conv-3.turns 5 user 2022-06-07T00:00:00Z I moved."],
    );
    check(
        json!({"session_id": "s1", "date": "2022-06-07T01:02:03Z",
            "turns": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello"}]}),
        &[
            "ward/patient/conv-3.turns conv-3.turns s1#0 user 2022-06-07T01:02:03Z Hi",
            "ward/patient/conv-3.turns conv-3.turns s1#1 assistant 2022-06-07T01:02:03Z Hello",
        ],
    );
    check(
        json!({"fact_id": "w1-1", "owner": "w1", "subject": "A", "relation": "P6", "object": "B",
            "valid_from": "1999-01-01", "valid_to": null, "evidence": "B led A from 1999."}),
        &["ward/patient/w1 conv-3.turns w1-1 document 1999-01-01T00:00:00Z B led A from 1999."],
    );
}

#[test]
fn a_date_starts_on_the_files_own_clock() {
    let mut options = options();
    options.zone_minutes = 480;
    let line =
        json!({"id": 5, "batch": 1, "date": "2022-06-07", "role": "user", "content": "搬家了"});
    assert!(read(&line, &options)[0].contains("2022-06-06T16:00:00Z"));
}

#[test]
fn every_shape_of_the_api_is_a_line_too() {
    check(
        json!({"owner": "u1", "role": "user", "at": "2022-01-01T00:00:00Z", "text": "hi",
            "event_id": "n1"}),
        &["ward/patient/u1 conv-3.turns n1 user 2022-01-01T00:00:00Z hi"],
    );
    assert_eq!(
        detect_and_read(&json!({"question": "?"}), &options())
            .unwrap_err()
            .code,
        "unsupported_shape"
    );
}

#[test]
fn a_line_without_id_gets_the_same_one_again() {
    let line = json!({"owner": "u1", "role": "user", "at": "2022-01-01T00:00:00Z", "text": "hi"});
    let id = |position: u64| {
        let options = Options {
            position,
            ..options()
        };
        detect_and_read(&line, &options).unwrap()[0]
            .event_id
            .clone()
    };
    assert_eq!(id(4), id(4));
    assert_ne!(id(4), id(5));
}

fn check_values(bytes: &[u8], expected: &[(u64, Result<&str, &str>)]) {
    let read: Vec<_> = values(bytes)
        .into_iter()
        .map(|(line, value)| (line, value.map(|v| v.to_string()).map_err(|r| r.code)))
        .collect();
    let expected: Vec<_> = expected
        .iter()
        .map(|(line, value)| (*line, value.map(str::to_owned)))
        .collect();
    assert_eq!(read, expected);
}

#[test]
fn a_file_is_lines_or_one_document() {
    check_values(
        b"{\"a\":1}\n\n{\"a\":2}\n",
        &[(1, Ok("{\"a\":1}")), (3, Ok("{\"a\":2}"))],
    );
    check_values(b"{\n \"a\": 1\n}\n", &[(1, Ok("{\"a\":1}"))]);
    check_values(
        b"[{\"a\":1},\n {\"a\":2}]",
        &[(1, Ok("{\"a\":1}")), (2, Ok("{\"a\":2}"))],
    );
    check_values(
        b"{\"a\":1}\n{broken\n\xff\xfe\n{\"a\":2}",
        &[
            (1, Ok("{\"a\":1}")),
            (2, Err("invalid_json")),
            (3, Err("invalid_utf8")),
            (4, Ok("{\"a\":2}")),
        ],
    );
    check_values(b"", &[]);
}
