//! A real language model, small enough to be wrong: it keeps to the protocol and the schema, and what it
//! makes up does not get through.

use std::sync::Arc;
use std::time::Duration;

use anamnesis_domain::ids::{EventTag, OwnerKey, SourceTag};
use anamnesis_domain::input::Turn;
use anamnesis_domain::memory::Role;
use anamnesis_domain::text::Text;
use anamnesis_domain::time::Timestamp;
use anamnesis_extractor::ask::{Asker, Settings};
use anamnesis_extractor::prompt::Prompt;
use anamnesis_extractor::reply::Reply;
use anamnesis_extractor::{Context, extract, extract_with};
use anamnesis_servers::chat::{ChatConfig, ChatServer};

const VARIABLE: &str = "ANAMNESIS_TEST_MODEL";

fn shared_model() -> String {
    std::env::var(VARIABLE).unwrap_or_else(|_| {
        panic!("{VARIABLE} is not set: eval \"$(infra/servers/model.sh start DIR | sed 's/^/export /')\"")
    })
}

/// One message of a patient.
pub(crate) fn turn(text: &str) -> Turn {
    let (at, zone_minutes) = Timestamp::parse_with_zone("2026-06-18T23:50:00+08:00").unwrap();
    Turn {
        owner: "h1/p1".parse().unwrap(),
        event: EventTag::from_bytes([1; 16]),
        source_tag: SourceTag::from_bytes([2; 16]),
        source: "/chat".to_owned(),
        event_id: "e1".to_owned(),
        message: String::new(),
        conversation_id: Some("c1".to_owned()),
        turn_id: None,
        message_id: None,
        role: Role::User,
        speaker: None,
        at,
        zone_minutes,
        text: Text::from(text),
        context_tags: Vec::new(),
        injected: Vec::new(),
        structured: None,
    }
}

#[tokio::test]
async fn a_real_model_is_asked_and_writes_nothing_that_was_not_said() {
    let config = ChatConfig {
        // A processor that also compiles reads the prompt slowly.
        timeout: Duration::from_secs(120),
        ..ChatConfig::new(&shared_model(), "smollm2")
    };
    let chat = Arc::new(ChatServer::new(&config).unwrap());
    let settings = Settings {
        patience: Duration::from_secs(240),
        answer_tokens_max: 300,
        ..Settings::default()
    };
    let asker = Asker::new(chat, Prompt::of(Prompt::NEWEST).unwrap(), settings);
    let owner = OwnerKey::from_bytes([1; 16]);
    for text in [
        "I am allergic to mango. I take lisinopril 10 mg daily.",
        "我对芒果过敏，帮我记住。我爸有高血压。",
    ] {
        let turn = turn(text);
        let context = Context::default();
        let reply = asker
            .ask(owner, &turn, &context, Timestamp::from_millis(0))
            .await
            .unwrap();
        let set = extract_with(&turn, &context, Some(&reply));
        // With a schema held by the server there is nothing to repair but an end that is missing.
        assert!(
            matches!(
                reply.fallback(),
                None | Some("answer_cut_off" | "broken_json")
            ),
            "{:?}",
            reply.fallback()
        );
        let used = set.model_use.clone().unwrap();
        assert!(
            used.calls == 1 && used.prompt_tokens > 100 && used.completion_tokens > 10,
            "{used:?}"
        );
        assert_eq!(set.extractor, "smollm2");
        assert!(set.model_answer.is_some());
        // Nothing is in the set that the words do not say, and nothing is missing that the rules find.
        let by_rules = extract(&turn, &context);
        for candidate in &set.candidates {
            assert!(text.contains(candidate.claim.text.expose()));
        }
        let values = |set: &anamnesis_domain::input::CandidateSet| -> Vec<Option<String>> {
            let of_rules = set
                .candidates
                .iter()
                .filter(|c| c.claim.source.extractor != "model");
            of_rules.map(|c| c.claim.value.clone()).collect()
        };
        assert_eq!(values(&set), values(&by_rules));
        // Once is enough: from the record the same comes again.
        let again = extract_with(&turn, &context, Reply::recorded(&set).as_ref());
        assert_eq!(again, set);
    }
}
