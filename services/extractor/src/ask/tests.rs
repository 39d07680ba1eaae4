//! Tries, pauses, budgets and the circuit, on a clock that a test moves.

use std::sync::atomic::{AtomicUsize, Ordering};

use anamnesis_domain::memory::Role;
use anamnesis_pipeline::doubles::chat::{Said, ScriptedChat};

use super::*;
use crate::extract::tests::turn;

const OWNER: OwnerKey = OwnerKey::from_bytes([7; 16]);
const NOTHING: &str = r#"{"asks_to_remember":[],"facts":[]}"#;

fn failing(status: u16) -> ChatError {
    ChatError::Failing {
        status,
        retry_after: None,
    }
}

fn busy(seconds: u64) -> ChatError {
    ChatError::Busy {
        retry_after: Some(Duration::from_secs(seconds)),
    }
}

fn unreachable() -> ChatError {
    ChatError::Unreachable {
        reason: "refused".to_owned(),
    }
}

fn asker(chat: &Arc<ScriptedChat>, settings: Settings) -> Arc<Asker> {
    let prompt = Prompt::of(Prompt::NEWEST).unwrap();
    Asker::new(chat.clone(), prompt, settings)
}

async fn ask(asker: &Asker, owner: OwnerKey, at: i64) -> (String, u32) {
    let turn = turn(Role::User, "我对花生过敏");
    let now = Timestamp::from_millis(at);
    let reply = asker
        .ask(owner, &turn, &Context::default(), now)
        .await
        .unwrap();
    let code = reply.fallback().unwrap_or("answered").to_owned();
    let mut set = crate::extract(&turn, &Context::default());
    reply.record_in(&mut set);
    (code, set.model_use.unwrap().calls)
}

/// Errors of the first calls, then an answer: what comes out, after how many calls and seconds.
async fn check(errors: Vec<ChatError>, code: &str, calls: u32, seconds: std::ops::Range<u64>) {
    let said = errors.clone();
    let chat = Arc::new(ScriptedChat::new(move |_, number| {
        said.get(number)
            .map_or(Said::now(NOTHING), |error| Said::error(error.clone()))
    }));
    let since = Instant::now();
    let found = ask(&asker(&chat, Settings::default()), OWNER, 0).await;
    assert_eq!(found, (code.to_owned(), calls), "{errors:?}");
    assert!(
        seconds.contains(&since.elapsed().as_secs()),
        "{errors:?}: {:?}",
        since.elapsed()
    );
}

#[tokio::test(start_paused = true)]
async fn what_may_pass_is_tried_again_and_what_comes_again_is_not() {
    check(vec![], "answered", 1, 0..1).await;
    check(vec![failing(500)], "answered", 2, 0..1).await;
    check(vec![ChatError::Timeout, unreachable()], "answered", 3, 0..2).await;
    check(vec![failing(503); 9], "server_failing", 4, 1..4).await;
    check(vec![unreachable(); 9], "unreachable", 4, 1..4).await;
    for error in [
        ChatError::Refused { status: 400 },
        ChatError::TooLong { bytes_max: 1 },
        ChatError::NotAnAnswer,
        ChatError::Empty,
        ChatError::Declined,
    ] {
        let code = error.code();
        check(vec![error], code, 1, 0..1).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_server_is_left_alone_for_as_long_as_it_asks() {
    check(vec![busy(20)], "answered", 2, 20..21).await;
    // Longer than the patience for one turn: the rules speak at once.
    check(vec![busy(900)], "busy", 1, 0..1).await;
}

#[tokio::test(start_paused = true)]
async fn what_one_owner_was_told_to_wait_others_wait_too() {
    let chat = Arc::new(ScriptedChat::new(|_, number| match number {
        0 => Said::error(busy(60)),
        _ => Said::now(NOTHING),
    }));
    let asker = asker(&chat, Settings::default());
    let first = ask(&asker, OWNER, 0);
    let second = async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        let since = Instant::now();
        ask(&asker, OwnerKey::from_bytes([8; 16]), 0).await;
        since.elapsed().as_secs()
    };
    let (first, waited) = tokio::join!(first, second);
    assert_eq!((first.0.as_str(), waited), ("answered", 59));
}

#[tokio::test(start_paused = true)]
async fn a_slow_model_costs_no_more_than_the_patience_for_one_turn() {
    let chat = Arc::new(ScriptedChat::new(|_, _| Said {
        after: Duration::from_secs(3_600),
        answer: Ok(NOTHING.to_owned()),
    }));
    let since = Instant::now();
    let found = ask(&asker(&chat, Settings::default()), OWNER, 0).await;
    assert_eq!(found, ("timeout".to_owned(), 1));
    assert_eq!(since.elapsed(), Settings::default().patience);
}

#[tokio::test(start_paused = true)]
async fn a_budget_is_the_owners_and_the_hours() {
    let chat = Arc::new(ScriptedChat::new(|_, _| Said::now(NOTHING)));
    let other = OwnerKey::from_bytes([8; 16]);
    let check = async |settings: Settings, most: u32| {
        let asker = asker(&chat, settings);
        for _ in 0..most {
            assert_eq!(ask(&asker, OWNER, 0).await.0, "answered");
        }
        assert_eq!(
            ask(&asker, OWNER, HOUR_MILLIS - 1).await,
            ("no_budget".to_owned(), 0)
        );
        assert_eq!(ask(&asker, other, 0).await.0 == "answered", most > 0);
        assert_eq!(
            ask(&asker, OWNER, HOUR_MILLIS).await.0 == "answered",
            most > 0
        );
    };
    let calls = |max| Settings {
        calls_per_hour: Some(max),
        ..Settings::default()
    };
    check(calls(3), 3).await;
    check(calls(0), 0).await;
    // An answer of the double takes 120.
    let tokens = Settings {
        tokens_per_hour: Some(200),
        ..Settings::default()
    };
    check(tokens, 2).await;
}

#[tokio::test(start_paused = true)]
async fn tries_are_calls_of_the_budget() {
    let chat = Arc::new(ScriptedChat::new(|_, _| Said::error(failing(500))));
    let settings = Settings {
        calls_per_hour: Some(2),
        ..Settings::default()
    };
    assert_eq!(
        ask(&asker(&chat, settings), OWNER, 0).await,
        ("no_budget".to_owned(), 2)
    );
}

#[tokio::test(start_paused = true)]
async fn a_model_that_is_down_is_left_alone_and_then_tried_by_one() {
    let is_up = Arc::new(AtomicUsize::new(0));
    let state = is_up.clone();
    let chat = Arc::new(ScriptedChat::new(move |_, _| {
        match state.load(Ordering::SeqCst) {
            0 => Said::error(unreachable()),
            _ => Said::now(NOTHING),
        }
    }));
    let settings = Settings {
        outages_max: 2,
        ..Settings::default()
    };
    let asker = asker(&chat, settings.clone());
    for _ in 0..2 {
        assert_eq!(ask(&asker, OWNER, 0).await.0, "unreachable");
    }
    let calls = chat.calls();
    for _ in 0..5 {
        assert_eq!(ask(&asker, OWNER, 0).await, ("circuit_open".to_owned(), 0));
    }
    assert_eq!(chat.calls(), calls);
    tokio::time::sleep(settings.rest).await;
    let (one, other) = tokio::join!(ask(&asker, OWNER, 0), ask(&asker, OWNER, 0));
    assert_eq!(
        (one.0.as_str(), other.0.as_str()),
        ("unreachable", "circuit_open")
    );
    is_up.store(1, Ordering::SeqCst);
    tokio::time::sleep(settings.rest).await;
    for _ in 0..3 {
        assert_eq!(ask(&asker, OWNER, 0).await, ("answered".to_owned(), 1));
    }
}

#[tokio::test(start_paused = true)]
async fn no_more_ask_at_once_than_is_allowed() {
    let chat = Arc::new(ScriptedChat::new(|_, _| Said {
        after: Duration::from_secs(1),
        answer: Ok(NOTHING.to_owned()),
    }));
    let settings = Settings {
        concurrency: 3,
        ..Settings::default()
    };
    let asker = asker(&chat, settings);
    let owners = (0..12).map(|n| OwnerKey::from_bytes([n; 16]));
    let since = Instant::now();
    let all = futures::future::join_all(owners.map(|owner| ask(&asker, owner, 0))).await;
    assert!(all.iter().all(|(code, _)| code == "answered"));
    assert_eq!((chat.most_at_once(), since.elapsed().as_secs()), (3, 4));
}

#[tokio::test(start_paused = true)]
async fn a_long_turn_is_several_questions_and_one_reply() {
    let chat = Arc::new(ScriptedChat::new(|_, number| match number {
        1 => Said::error(ChatError::Declined),
        _ => Said::now(NOTHING),
    }));
    let asker = asker(&chat, Settings::default());
    let turn = turn(Role::User, &"今天天气不错。".repeat(1_500));
    let now = Timestamp::from_millis(0);
    let reply = asker
        .ask(OWNER, &turn, &Context::default(), now)
        .await
        .unwrap();
    assert_eq!((chat.calls(), reply.fallback()), (3, Some("declined")));
    let book = crate::extract::tests::turn(Role::User, &"今天天气不错。".repeat(15_000));
    let reply = asker
        .ask(OWNER, &book, &Context::default(), now)
        .await
        .unwrap();
    assert_eq!((chat.calls(), reply.fallback()), (3, Some("turn_too_long")));
}

#[test]
fn every_code_is_listed_once() {
    let codes = fallback_codes();
    let unique: std::collections::BTreeSet<_> = codes.iter().collect();
    assert_eq!(unique.len(), codes.len());
}
