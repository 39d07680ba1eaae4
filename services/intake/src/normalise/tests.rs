mod fhir;

use anamnesis_domain::ids::IdKey;
use anamnesis_domain::input::Turn;
use serde_json::{Value, json};

use super::*;

fn context() -> Context {
    Context::new("ward-2", Timestamp::parse("2025-06-01T00:00:00Z").unwrap())
}

/// `owner source event#message conversation role at: text`, one line per message.
fn lines(value: &Value) -> Result<Vec<String>, String> {
    let show = |m: &Message| {
        format!(
            "{} {} {} {} {} {}: {}",
            m.owner,
            m.source,
            m.public_id(),
            m.conversation_id.as_deref().unwrap_or("-"),
            m.role,
            m.at,
            m.text.expose()
        )
    };
    let messages = normalise(value, &context());
    messages
        .map(|messages| messages.iter().map(show).collect())
        .map_err(|r| format!("{} {}", r.code, r.field.as_deref().unwrap_or("-")))
}

fn check(value: &Value, expected: &[&str]) {
    assert_eq!(
        lines(value),
        Ok(expected.iter().map(|line| (*line).to_owned()).collect())
    );
}

fn refused(value: &Value, expected: &str) {
    assert_eq!(lines(value), Err(expected.to_owned()));
}

/// The value without the field at this path.
fn without(value: &Value, path: &[&str]) -> Value {
    let mut changed = value.clone();
    let (last, way) = path.split_last().unwrap();
    let inner = way
        .iter()
        .fold(&mut changed, |inner, key| inner.get_mut(*key).unwrap());
    inner.as_object_mut().unwrap().shift_remove(*last).unwrap();
    changed
}

/// The value with another value at this path.
fn with(value: &Value, path: &[&str], new: Value) -> Value {
    let mut changed = value.clone();
    let (last, way) = path.split_last().unwrap();
    let inner = way
        .iter()
        .fold(&mut changed, |inner, key| inner.get_mut(*key).unwrap());
    inner
        .as_object_mut()
        .unwrap()
        .insert((*last).to_owned(), new);
    changed
}

fn cloud_event() -> Value {
    json!({
        "specversion": "1.0", "id": "ev-7", "source": "/ward-2/app", "type": "org.example.said.v1",
        "subject": "north/q-55", "time": "2025-05-04T09:08:07+02:00",
        "data": {"conversationId": "c-3", "turnId": "t-2", "role": "user", "text": "芒果我吃了会起疹子"}
    })
}

#[test]
fn a_structured_cloud_event_is_one_message() {
    check(
        &cloud_event(),
        &["north/patient/q-55 /ward-2/app ev-7 c-3 user 2025-05-04T07:08:07Z: 芒果我吃了会起疹子"],
    );
    let message = &normalise(&cloud_event(), &context()).unwrap()[0];
    assert_eq!(
        (message.zone_minutes, message.turn_id.as_deref()),
        (120, Some("t-2"))
    );
}

#[test]
fn an_id_without_tenant_belongs_to_the_callers() {
    check(
        &with(&cloud_event(), &["subject"], json!("q-55")),
        &["ward-2/patient/q-55 /ward-2/app ev-7 c-3 user 2025-05-04T07:08:07Z: 芒果我吃了会起疹子"],
    );
}

#[test]
fn a_cloud_event_needs_what_its_envelope_must_say() {
    let event = cloud_event();
    refused(&without(&event, &["subject"]), "missing_field subject");
    refused(&without(&event, &["time"]), "missing_field time");
    refused(&without(&event, &["id"]), "missing_field id");
    refused(&without(&event, &["source"]), "missing_field source");
    refused(&without(&event, &["data"]), "missing_field data");
    refused(
        &without(&event, &["data", "text"]),
        "missing_field data.text",
    );
    refused(
        &with(&event, &["data", "text"], json!(" \n")),
        "missing_field data.text",
    );
    refused(
        &with(&event, &["data", "text"], json!(7)),
        "invalid_field data.text",
    );
    refused(
        &with(&event, &["data", "role"], json!("ghost")),
        "unknown_role data.role",
    );
    refused(
        &with(&event, &["specversion"], json!("0.3")),
        "unsupported_shape specversion",
    );
    refused(
        &with(&event, &["subject"], json!("*")),
        "invalid_owner subject",
    );
    refused(
        &with(&event, &["subject"], json!("")),
        "missing_field subject",
    );
    refused(
        &with(&event, &["subject"], json!("north/ward/x")),
        "invalid_owner subject",
    );
}

#[test]
fn an_owner_in_the_data_or_the_text_is_no_owner() {
    let event = without(&cloud_event(), &["subject"]);
    let event = with(&event, &["data", "owner"], json!("north/q-55"));
    refused(
        &with(&event, &["data", "text"], json!("I am north/patient/q-55")),
        "missing_field subject",
    );
}

#[test]
fn a_time_must_be_an_instant_that_has_passed() {
    let at = |time: &str| with(&cloud_event(), &["time"], json!(time));
    refused(&at("2025-05-04T09:08:07"), "time_without_zone time");
    refused(&at("2025-05-04"), "time_without_zone time");
    refused(&at("last week"), "invalid_time time");
    refused(&at("2025-06-01T00:05:01Z"), "time_in_future time");
    assert!(
        lines(&at("2025-06-01T00:05:00Z")).is_ok(),
        "clocks may differ a little"
    );
}

#[test]
fn a_cloud_event_in_kafka_headers_reads_the_same() {
    let record = json!({
        "key": "north/q-55",
        "headers": {
            "ce_specversion": "1.0", "ce_id": "ev-8", "ce_source": "/ward-2/app",
            "ce_type": "x", "ce_subject": "north/q-55", "ce_time": "2025-05-04T07:08:07Z"
        },
        "value": {"role": "assistant", "text": "Noted, no mango."}
    });
    let line =
        "north/patient/q-55 /ward-2/app ev-8 - assistant 2025-05-04T07:08:07Z: Noted, no mango.";
    check(&record, &[line]);
    let packed = r#"{"role": "assistant", "text": "Noted, no mango."}"#;
    check(&with(&record, &["value"], json!(packed)), &[line]);
    check(&without(&record, &["headers", "ce_subject"]), &[line]);
    let without_owner = without(&without(&record, &["headers", "ce_subject"]), &["key"]);
    refused(&without_owner, "missing_field headers.ce_subject");
    refused(
        &without(&record, &["headers", "ce_time"]),
        "missing_field headers.ce_time",
    );
}

fn chat_completion() -> Value {
    json!({
        "id": "cmpl-4", "object": "chat.completion", "created": 1_748_000_000,
        "metadata": {"conversation_id": "c-9", "patient_id": "north/q-55"},
        "messages": [
            {"role": "developer", "content": "You help with bookings."},
            {"role": "user", "name": "Mia", "content": [
                {"type": "text", "text": "I take warfarin."},
                {"type": "image_url", "image_url": {"url": "x"}},
                {"type": "text", "text": "Every evening."}
            ]},
            {"role": "assistant", "content": null, "tool_calls": [{"id": "k1", "type": "function",
                "function": {"name": "memory_write", "arguments": "{\"text\": \"takes warfarin\"}"}}]},
            {"role": "tool", "tool_call_id": "k1", "content": "stored"}
        ],
        "choices": [{"index": 0, "message": {"role": "assistant", "content": "Got it."}}]
    })
}

#[test]
fn a_chat_completion_gives_its_messages_and_its_answer() {
    check(
        &chat_completion(),
        &[
            "north/patient/q-55 openai-chat cmpl-4#0 c-9 system 2025-05-23T11:33:20Z: You help with bookings.",
            "north/patient/q-55 openai-chat cmpl-4#1 c-9 user 2025-05-23T11:33:20Z: \
             I take warfarin.\nEvery evening.",
            "north/patient/q-55 openai-chat cmpl-4#2.call0 c-9 assistant 2025-05-23T11:33:20Z: takes warfarin",
            "north/patient/q-55 openai-chat cmpl-4#3 c-9 tool 2025-05-23T11:33:20Z: stored",
            "north/patient/q-55 openai-chat cmpl-4#4 c-9 assistant 2025-05-23T11:33:20Z: Got it.",
        ],
    );
    let mia = &normalise(&chat_completion(), &context()).unwrap()[1];
    assert_eq!(mia.speaker.as_ref().unwrap().expose(), "Mia");
}

#[test]
fn what_an_assistant_wants_written_down_is_a_message_with_the_tool_as_its_speaker() {
    let written = |event: &Value| -> Vec<String> {
        normalise(event, &context())
            .unwrap()
            .into_iter()
            .map(|message| message.into_turn(&IdKey::from_bytes([7; 32])))
            .filter(Turn::is_memory_write)
            .map(|turn| turn.text.expose().to_owned())
            .collect()
    };
    let chat = |calls: Value| {
        let message = json!([{"role": "assistant", "content": "Saving.", "tool_calls": calls}]);
        with(&chat_completion(), &["messages"], message)
    };
    let call = |name: &str, arguments: Value| json!([{"name": name, "args": arguments}]);
    let is_written = json!({"text": "no latex"});
    assert_eq!(written(&chat_completion()), ["takes warfarin"]);
    assert_eq!(
        written(&chat(call("memory_write", is_written.clone()))),
        ["no latex"]
    );
    assert!(written(&chat(call("memory_recall", is_written.clone()))).is_empty());
    assert!(written(&chat(call("memory_write", json!("not json")))).is_empty());
    assert!(written(&chat(call("memory_write", json!({"text": 5})))).is_empty());
    for kind in ["tool_use", "tool_call"] {
        let part = json!([{"type": kind, "name": "memory_write", "input": is_written}]);
        let message = json!([{"role": "assistant", "content": part}]);
        let event = with(&chat_completion(), &["messages"], message);
        assert_eq!(written(&event), ["no latex"], "{kind}");
    }
}

#[test]
fn a_chat_completion_names_what_it_lacks() {
    let chat = chat_completion();
    refused(
        &without(&chat, &["metadata"]),
        "missing_field metadata.patient_id",
    );
    refused(&without(&chat, &["created"]), "missing_field created");
    refused(
        &with(&chat, &["messages"], json!("hi")),
        "invalid_field messages",
    );
    refused(
        &with(&chat, &["messages"], json!([{"content": "hi"}])),
        "missing_field messages[0].role",
    );
    let number = json!([{"role": "user", "content": "a"}, {"role": "user", "content": 5}]);
    refused(
        &with(&chat, &["messages"], number),
        "invalid_field messages[1].content",
    );
    let empty = with(
        &chat,
        &["messages"],
        json!([{"role": "user", "content": ""}]),
    );
    refused(&without(&empty, &["choices"]), "missing_field messages");
    let long = "x".repeat(caps::TEXT_BYTES_MAX + 1);
    let long = json!([{"role": "system", "content": "ok"}, {"role": "user", "content": long}]);
    refused(
        &with(&chat, &["messages"], long),
        "text_too_long messages[1].content",
    );
}

#[test]
fn a_response_gives_messages_and_tool_outputs() {
    let response = json!({
        "id": "resp-2", "object": "response", "created_at": 1_748_000_000, "conversation": {"id": "c-9"},
        "metadata": {"patient_id": "q-55"},
        "input": [{"type": "message", "role": "user",
            "content": [{"type": "input_text", "text": "我戒烟了"}]}],
        "output": [
            {"type": "function_call", "id": "f1", "call_id": "k2", "name": "x", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "k2", "output": "{\"n\":1}"},
            {"type": "reasoning", "id": "r1", "summary": []},
            {"type": "message", "id": "m1", "role": "assistant",
                "content": [{"type": "output_text", "text": "恭喜", "annotations": []}]}
        ]
    });
    check(
        &response,
        &[
            "ward-2/patient/q-55 openai-responses resp-2#0 c-9 user 2025-05-23T11:33:20Z: 我戒烟了",
            "ward-2/patient/q-55 openai-responses resp-2#k2.output c-9 tool 2025-05-23T11:33:20Z: {\"n\":1}",
            "ward-2/patient/q-55 openai-responses resp-2#m1 c-9 assistant 2025-05-23T11:33:20Z: 恭喜",
        ],
    );
    let short = with(&response, &["input"], json!("I quit smoking"));
    assert_eq!(
        normalise(&short, &context()).unwrap()[0].text.expose(),
        "I quit smoking"
    );
    refused(
        &without(&response, &["metadata"]),
        "missing_field metadata.patient_id",
    );
    refused(
        &without(&response, &["created_at"]),
        "missing_field created_at",
    );
}

#[test]
fn anthropic_messages_need_a_time_beside_them() {
    let messages = json!({
        "id": "msg-3", "type": "message", "role": "assistant", "metadata": {"user_id": "north/q-55"},
        "messages": [
            {"role": "user", "content": "Do I have a booking?"},
            {"role": "assistant", "content": [{"type": "tool_use", "id": "u1", "name": "look", "input": {}}]},
            {"role": "user", "content": [
                {"type": "tool_result", "tool_use_id": "u1",
                    "content": [{"type": "text", "text": "Friday 9:00"}]},
                {"type": "text", "text": "And?"}
            ]}
        ],
        "content": [{"type": "text", "text": "Friday at nine."}]
    });
    refused(&messages, "missing_field created_at");
    let timed = with(&messages, &["created_at"], json!("2025-05-23T11:33:20Z"));
    check(
        &timed,
        &[
            "north/patient/q-55 anthropic msg-3#0 - user 2025-05-23T11:33:20Z: Do I have a booking?",
            "north/patient/q-55 anthropic msg-3#2 - user 2025-05-23T11:33:20Z: And?",
            "north/patient/q-55 anthropic msg-3#2.0 - tool 2025-05-23T11:33:20Z: Friday 9:00",
            "north/patient/q-55 anthropic msg-3#3 - assistant 2025-05-23T11:33:20Z: Friday at nine.",
        ],
    );
    refused(
        &without(&timed, &["metadata"]),
        "missing_field metadata.user_id",
    );
}

#[test]
fn a_checkpoint_names_messages_within_their_thread() {
    let checkpoint = json!({
        "config": {"configurable": {"thread_id": "th-1", "user_id": "north/q-55"}},
        "checkpoint": {
            "v": 1, "id": "cp-9", "ts": "2025-05-23T11:33:20.500000+00:00",
            "channel_values": {"messages": [
                {"type": "human", "id": "h9", "content": "I moved to Lyon."},
                {"type": "ai", "id": "a9", "content": "", "tool_calls": [{"name": "x"}]},
                {"type": "tool", "id": "t9", "name": "geo", "content": "{\"city\":\"Lyon\"}"}
            ]}
        },
        "metadata": {"step": 1}
    });
    check(
        &checkpoint,
        &[
            "north/patient/q-55 langgraph th-1#h9 th-1 user 2025-05-23T11:33:20.500Z: I moved to Lyon.",
            "north/patient/q-55 langgraph th-1#t9 th-1 tool 2025-05-23T11:33:20.500Z: {\"city\":\"Lyon\"}",
        ],
    );
    refused(
        &without(&checkpoint, &["config", "configurable", "user_id"]),
        "missing_field config.configurable.user_id",
    );
    refused(
        &without(&checkpoint, &["checkpoint", "ts"]),
        "missing_field checkpoint.ts",
    );
}

fn genai_event() -> Value {
    json!({
        "timeUnixNano": "1748000000500000000",
        "eventName": "gen_ai.client.inference.operation.details",
        "spanId": "0badcafe",
        "attributes": {
            "gen_ai.operation.name": "chat", "gen_ai.conversation.id": "c-9", "user.id": "north/q-55",
            "gen_ai.input.messages": [
                {"role": "user", "parts": [{"type": "text", "content": "父亲有青光眼"}]},
                {"role": "assistant", "parts": [{"type": "tool_call", "id": "k", "name": "w",
                    "arguments": {"text": "never"}}]},
                {"role": "tool", "parts": [{"type": "tool_call_response", "id": "k", "result": "ok"}]}
            ],
            "gen_ai.output.messages": [{"role": "assistant", "parts": [{"type": "text", "content": "记下了"}]}]
        }
    })
}

#[test]
fn a_genai_event_gives_its_messages() {
    let expected = [
        "north/patient/q-55 opentelemetry 0badcafe#0 c-9 user 2025-05-23T11:33:20.500Z: 父亲有青光眼",
        "north/patient/q-55 opentelemetry 0badcafe#2.0 c-9 tool 2025-05-23T11:33:20.500Z: ok",
        "north/patient/q-55 opentelemetry 0badcafe#3 c-9 assistant 2025-05-23T11:33:20.500Z: 记下了",
    ];
    check(&genai_event(), &expected);
    // Spans carry the lists as JSON in strings, and OTLP carries attributes as a list.
    let mut list = Vec::new();
    for (key, value) in genai_event()["attributes"].as_object().unwrap() {
        let text = value
            .as_str()
            .map_or_else(|| value.to_string(), str::to_owned);
        list.push(json!({"key": key, "value": {"stringValue": text}}));
    }
    check(
        &with(&genai_event(), &["attributes"], Value::Array(list)),
        &expected,
    );
    refused(
        &without(&genai_event(), &["attributes", "user.id"]),
        "missing_field attributes.user.id",
    );
    refused(
        &without(&genai_event(), &["timeUnixNano"]),
        "missing_field timeUnixNano",
    );
}

#[test]
fn a_memory_span_lacks_an_owner() {
    let span = json!({
        "name": "search_memory", "startTimeUnixNano": "1748000000500000000", "spanId": "beef",
        "attributes": {
            "gen_ai.operation.name": "search_memory", "gen_ai.memory.store.id": "m",
            "gen_ai.memory.query.text": "what does she drink",
            "gen_ai.memory.records": [{"id": "1", "content": "drinks tea"}]
        }
    });
    refused(&span, "missing_field attributes.user.id");
    check(
        &with(&span, &["attributes", "user.id"], json!("north/q-55")),
        &[
            "north/patient/q-55 opentelemetry beef - tool 2025-05-23T11:33:20.500Z: what does she drink",
        ],
    );
}

#[test]
fn an_open_inference_span_gives_its_messages() {
    let span = json!({
        "name": "llm", "context": {"trace_id": "0x1", "span_id": "0x2"},
        "start_time": "2025-05-23T11:33:20Z", "end_time": "2025-05-23T11:33:21Z",
        "attributes": {
            "openinference.span.kind": "LLM", "session.id": "c-9", "user.id": "north/q-55",
            "llm.input_messages.0.message.role": "system",
            "llm.input_messages.0.message.content": "Be brief.",
            "llm.input_messages.1.message.role": "user",
            "llm.input_messages.1.message.contents.0.message_content.type": "text",
            "llm.input_messages.1.message.contents.0.message_content.text": "No more aspirin for me.",
            "llm.output_messages.0.message.role": "assistant",
            "llm.output_messages.0.message.content": "Understood."
        }
    });
    check(
        &span,
        &[
            "north/patient/q-55 openinference 0x2#0 c-9 system 2025-05-23T11:33:20Z: Be brief.",
            "north/patient/q-55 openinference 0x2#1 c-9 user 2025-05-23T11:33:20Z: No more aspirin for me.",
            "north/patient/q-55 openinference 0x2#2 c-9 assistant 2025-05-23T11:33:20Z: Understood.",
        ],
    );
    refused(
        &without(&span, &["attributes", "user.id"]),
        "missing_field attributes.user.id",
    );
    refused(
        &with(&span, &["attributes"], json!({"http.method": "GET"})),
        "unsupported_shape attributes",
    );
}

fn communication() -> Value {
    json!({
        "resourceType": "Communication", "id": "m5", "status": "completed",
        "subject": {"reference": "Patient/q-55"}, "encounter": {"reference": "Encounter/n3"},
        "sent": "2025-05-23T19:33:20+08:00", "sender": {"reference": "Practitioner/dr-4"},
        "payload": [{"contentString": "停用布洛芬"}]
    })
}

#[test]
fn a_fhir_communication_is_a_message_of_its_sender() {
    check(
        &communication(),
        &[
            "ward-2/patient/q-55 fhir Communication/m5 Encounter/n3 clinician 2025-05-23T11:33:20Z: 停用布洛芬",
        ],
    );
    let role = |sender: &str| {
        let event = with(&communication(), &["sender", "reference"], json!(sender));
        normalise(&event, &context()).unwrap()[0].role
    };
    assert_eq!(role("Patient/q-55"), Role::User);
    assert_eq!(role("Device/bot"), Role::Assistant);
    assert_eq!(role("Organization/x"), Role::Document);
    refused(
        &without(&communication(), &["subject"]),
        "missing_field subject.reference",
    );
    refused(&without(&communication(), &["sent"]), "missing_field sent");
    refused(
        &without(&communication(), &["payload"]),
        "missing_field payload",
    );
    refused(
        &with(&communication(), &["status"], json!("entered-in-error")),
        "not_a_statement status",
    );
    let two = with(
        &communication(),
        &["payload"],
        json!([{"contentString": "a"}, {"contentString": "b"}]),
    );
    assert_eq!(
        normalise(&two, &context()).unwrap()[1].public_id(),
        "Communication/m5#1"
    );
}

#[test]
fn other_resources_carry_no_statement() {
    for kind in ["AuditEvent", "Provenance", "Unheard"] {
        refused(
            &json!({"resourceType": kind}),
            "unsupported_shape resourceType",
        );
    }
}

fn native() -> Value {
    json!({"event_id": "n1", "owner": "north/q-55", "source": "desk", "conversation_id": "c-9",
        "role": "user", "speaker": "Mia", "at": "2025-05-23T11:33:20Z", "text": "我住在南京",
        "context_tags": ["health"], "injected": [[0, 2]]})
}

#[test]
fn the_plain_shape_refuses_what_it_does_not_know() {
    check(
        &native(),
        &["north/patient/q-55 desk n1 c-9 user 2025-05-23T11:33:20Z: 我住在南京"],
    );
    let message = &normalise(&native(), &context()).unwrap()[0];
    assert_eq!(
        (message.context_tags.len(), message.injected.as_slice()),
        (1, &[(0, 2)][..])
    );

    refused(
        &with(&native(), &["onwer"], json!("x")),
        "unknown_field onwer",
    );
    refused(&without(&native(), &["owner"]), "missing_field owner");
    refused(&without(&native(), &["at"]), "missing_field at");
    refused(&without(&native(), &["role"]), "missing_field role");
    let bare = without(&native(), &["injected"]);
    refused(&with(&bare, &["text"], json!("")), "missing_field text");
    refused(
        &with(&bare, &["text"], json!("x".repeat(5 << 20))),
        "text_too_long text",
    );
    refused(
        &with(&native(), &["injected"], json!([[0, 99]])),
        "invalid_field injected[0]",
    );
    refused(
        &with(&native(), &["injected"], json!([[3, 1]])),
        "invalid_field injected[0]",
    );
    refused(
        &with(&native(), &["context_tags"], json!([""])),
        "invalid_field context_tags",
    );
    refused(
        &with(&native(), &["event_id"], json!("x".repeat(2000))),
        "field_too_long event_id",
    );
    refused(
        &json!({"text": "north/q-55 says hello"}),
        "missing_field owner",
    );
}

#[test]
fn an_unknown_shape_is_told_what_is_accepted() {
    for value in [
        json!({"hello": 1}),
        json!([]),
        json!("text"),
        json!(null),
        json!(17),
    ] {
        let rejected = normalise(&value, &context()).unwrap_err();
        assert_eq!(rejected.code, "unsupported_shape");
        assert!(
            rejected.detail.contains("CloudEvents"),
            "{}",
            rejected.detail
        );
    }
}

#[test]
fn a_refusal_never_repeats_what_was_sent() {
    let secret = "隐私内容 4242";
    let mut events = Vec::new();
    for field in [
        "owner",
        "role",
        "at",
        "injected",
        "context_tags",
        "structured",
    ] {
        events.push(with(&native(), &[field], json!(secret)));
        events.push(with(&native(), &[field], json!([[secret]])));
    }
    events.push(with(&cloud_event(), &["data"], json!(secret)));
    events.push(with(&cloud_event(), &["subject"], json!(secret)));
    events.push(with(
        &communication(),
        &["subject", "reference"],
        json!(secret),
    ));
    for event in events {
        let rejected = normalise(&event, &context()).unwrap_err();
        assert!(!format!("{rejected:?}").contains("4242"), "{rejected:?}");
    }
}

#[test]
fn hostile_nesting_is_refused_before_it_is_read() {
    let deep = format!("{}1{}", "[".repeat(100_000), "]".repeat(100_000));
    assert_eq!(
        crate::import::parse(deep.as_bytes()).unwrap_err().code,
        "too_deep"
    );
    assert_eq!(
        crate::import::parse(b"{\"a\": \"\xff\"}").unwrap_err().code,
        "invalid_utf8"
    );
    assert_eq!(
        crate::import::parse(b"{\"a\": \"\\ud800\"}")
            .unwrap_err()
            .code,
        "invalid_json"
    );
}

#[test]
fn an_event_without_id_gets_the_same_one_again() {
    let event = without(&native(), &["event_id"]);
    let id = |event: &Value| normalise(event, &context()).unwrap()[0].event_id.clone();
    assert_eq!(id(&event), id(&event));
    assert_ne!(
        id(&event),
        id(&with(&event, &["text"], json!("我住在北京")))
    );
}
