//! A model that answers badly, late or not at all: who is held up, what is asked twice, and what stands in
//! the log afterwards?

use std::sync::Arc;
use std::time::Duration;

use anamnesis_domain::input::{CandidateSet, RejectCode, Target, Topic};
use anamnesis_domain::memory::{Kind, Role};
use anamnesis_extractor::Episodes;
use anamnesis_extractor::ask::{Asker, Settings};
use anamnesis_extractor::prompt::Prompt;
use anamnesis_extractor::stage::Extractor;
use anamnesis_pipeline::chat::{ChatError, ChatRequest};
use anamnesis_pipeline::codec::{InputMeta, Opened};
use anamnesis_pipeline::consumer::Consumer;
use anamnesis_pipeline::doubles::chat::{Said, ScriptedChat};
use anamnesis_pipeline::doubles::log::Weather;
use anamnesis_pipeline::log::{EventLog as _, Log};
use anamnesis_testbed::faults::MisreadLog;
use anamnesis_testbed::world::{World, believed, drain};
use serde_json::json;
use tokio_util::sync::CancellationToken;

use crate::talk::said;

const NOTHING: &str = r#"{"asks_to_remember":[],"facts":[]}"#;

/// The words that a model is asked about.
fn text_of(request: &ChatRequest) -> String {
    let asked: serde_json::Value = serde_json::from_str(request.user.expose()).unwrap();
    asked["text"].as_str().unwrap().to_owned()
}

/// An answer that repeats the words as a plain fact.
fn repeating(request: &ChatRequest) -> Said {
    let fact = json!({
        "quote": text_of(request), "kind": "fact", "subject": "self", "value": null, "negated": false,
        "amount": null,
    });
    Said::now(json!({"asks_to_remember": [], "facts": [fact]}).to_string())
}

fn asking(chat: &Arc<ScriptedChat>, settings: Settings) -> Arc<Asker> {
    Asker::new(chat.clone(), Prompt::of(Prompt::NEWEST).unwrap(), settings)
}

fn extractor(world: &World, asker: &Arc<Asker>) -> Consumer {
    extractor_over(world, world.log(), Some(asker.clone()))
}

fn extractor_over(world: &World, log: Log, asker: Option<Arc<Asker>>) -> Consumer {
    let stage = Extractor {
        log: log.clone(),
        codec: world.codec.clone(),
        episodes: Episodes::All,
        snapshots: world.snapshots.clone(),
        asker,
    };
    Consumer::new(log, Arc::new(stage), 0, world.clock.clone())
}

/// Every candidates record, in order, with the offset of its turn.
async fn found(world: &World) -> Vec<(u64, CandidateSet)> {
    let end = world.calm.end(Topic::Candidates, 0).await.unwrap();
    let offsets: Vec<u64> = (0..end).collect();
    let records = world
        .calm
        .read_at(Topic::Candidates, 0, &offsets)
        .await
        .unwrap();
    let opened = world.codec.open(&records).await.unwrap();
    let mut sets = Vec::new();
    for opened in opened {
        if let Opened::Candidates { meta, set } = opened.unwrap() {
            sets.push((meta.origin.offset, *set));
        }
    }
    sets
}

async fn accept(world: &World, owner: &str, number: i64, text: &str) -> InputMeta {
    accept_by(world, Role::User, owner, number, text).await
}

async fn accept_by(world: &World, role: Role, owner: &str, number: i64, text: &str) -> InputMeta {
    let said = anamnesis_testbed::world::Said {
        role,
        ..said(owner, &format!("e{number}"), number, text)
    };
    world.accept(&world.turn(&said)).await
}

/// What became of asking about each turn.
fn codes(sets: &[(u64, CandidateSet)]) -> Vec<String> {
    let code = |(_, set): &(u64, CandidateSet)| match &set.model_use {
        None => "not asked".to_owned(),
        Some(used) => used.fallback.clone().unwrap_or("answered".to_owned()),
    };
    sets.iter().map(code).collect()
}

/// Ten turns; the model breaks off in the fifth and is late once in the seventh.
#[tokio::test(start_paused = true)]
async fn a_broken_and_a_late_answer_hold_up_nobody() {
    let world = World::new(3, 1);
    world.grant("p", "grant").await;
    let places = [
        "杭州", "苏州", "无锡", "常州", "南京", "镇江", "扬州", "泰州", "南通", "盐城",
    ];
    for (number, place) in (1..).zip(places) {
        let text = format!("候诊时我常想起{place}的老街");
        accept(&world, "p", number, &text).await;
    }
    let chat = Arc::new(ScriptedChat::new(move |request, number| {
        let text = text_of(request);
        if text.contains("南京") {
            Said::now("{\"facts\": [{")
        } else if text.contains("扬州") && number == 6 {
            Said::error(ChatError::Timeout)
        } else {
            repeating(request)
        }
    }));
    let asker = asking(&chat, Settings::default());
    drain(&mut extractor(&world, &asker)).await.unwrap();
    world.settle().await;

    let sets = found(&world).await;
    let origins: Vec<u64> = sets.iter().map(|(origin, _)| *origin).collect();
    assert_eq!(origins, (1..=10).collect::<Vec<u64>>());
    let expected: Vec<&str> = (1..=10)
        .map(|n| if n == 5 { "broken_json" } else { "answered" })
        .collect();
    assert_eq!(codes(&sets), expected);
    let calls: Vec<u32> = sets
        .iter()
        .map(|(_, set)| set.model_use.as_ref().unwrap().calls)
        .collect();
    assert_eq!(calls, [1, 1, 1, 1, 1, 1, 2, 1, 1, 1]);
    let fifth = &sets[4].1;
    assert_eq!(
        fifth.model_answer.as_ref().unwrap().expose(),
        "{\"facts\": [{"
    );
    // The turn itself is there, and what it says of itself tells who read it.
    let episode = &fifth.candidates[0].claim;
    assert_eq!(episode.kind, Kind::Episode);

    let state = world.state("p").await;
    let stored = believed(&state);
    for place in places {
        assert_eq!(
            stored.iter().filter(|line| line.contains(place)).count(),
            if place == "南京" { 1 } else { 2 },
            "{place}: {stored:?}"
        );
    }
    let balance = world.balance().await;
    assert!(
        balance.is_exact() && balance.in_flight + balance.parked == 0,
        "{balance:?}"
    );
}

/// The answer came, and the append did not: it is asked again, and one record stands.
#[tokio::test(start_paused = true)]
async fn a_crash_before_the_append_asks_again_and_writes_once() {
    let world = World::new(5, 1);
    accept(&world, "p", 1, "我对花生过敏").await;
    let chat = Arc::new(ScriptedChat::new(|_, number| {
        // What a model says twice need not be the same.
        Said::now(if number == 0 { "{}" } else { NOTHING })
    }));
    let asker = asking(&chat, Settings::default());
    let mut consumer = extractor(&world, &asker);
    consumer.turn().await.unwrap();
    world.faulty.set_weather(Weather {
        append_lost: 1000,
        ..Weather::CALM
    });
    consumer.turn().await.unwrap_err();
    assert_eq!((chat.calls(), found(&world).await.len()), (1, 0));
    world.faulty.set_weather(Weather::CALM);
    drain(&mut consumer).await.unwrap();
    let sets = found(&world).await;
    assert_eq!((chat.calls(), sets.len()), (2, 1));
    assert_eq!(codes(&sets), ["answered"]);

    // The append was durable and its answer was lost: nothing is asked again.
    accept(&world, "p", 2, "我对芒果过敏").await;
    world.faulty.set_weather(Weather {
        answer_lost: 1000,
        ..Weather::CALM
    });
    consumer.turn().await.unwrap_err();
    world.faulty.set_weather(Weather::CALM);
    drain(&mut consumer).await.unwrap();
    assert_eq!((chat.calls(), found(&world).await.len()), (3, 2));
}

/// Two processes that both believe to own the partition: the first record of a turn counts.
#[tokio::test(start_paused = true)]
async fn of_two_answers_the_first_that_was_written_counts() {
    let world = World::new(6, 1);
    world.grant("p", "grant").await;
    accept(&world, "p", 1, "候诊时我常想起杭州的老街").await;
    let chat = Arc::new(ScriptedChat::new(|request, number| {
        if number == 0 {
            Said::now(NOTHING)
        } else {
            repeating(request)
        }
    }));
    let asker = asking(&chat, Settings::default());
    let (mut one, mut other) = (extractor(&world, &asker), extractor(&world, &asker));
    one.turn().await.unwrap();
    other.turn().await.unwrap();
    drain(&mut one).await.unwrap();
    drain(&mut other).await.unwrap();
    assert_eq!((chat.calls(), found(&world).await.len()), (2, 2));
    world.settle().await;
    let facts = believed(&world.state("p").await);
    assert_eq!(facts.len(), 1, "the episode alone: {facts:?}");
    assert!(world.balance().await.is_exact());
}

/// Owners are asked about side by side, the turns of one in their order.
#[tokio::test(start_paused = true)]
async fn owners_go_side_by_side_and_the_turns_of_one_in_order() {
    let world = World::new(7, 1);
    for number in 1..=6 {
        for owner in ["a", "b", "c", "d"] {
            let text = format!("我是{owner}，说到第{number}句");
            accept(&world, owner, number, &text).await;
        }
    }
    // The later the sentence, the sooner the answer: without an order they would overtake.
    let chat = Arc::new(ScriptedChat::new(|request, _| {
        let text = text_of(request);
        let number = (1..=6)
            .find(|n| text.contains(&format!("第{n}句")))
            .unwrap();
        Said {
            after: Duration::from_millis(1_000 - 100 * number),
            answer: Ok(NOTHING.to_owned()),
        }
    }));
    let settings = Settings {
        concurrency: 3,
        ..Settings::default()
    };
    let asker = asking(&chat, settings);
    drain(&mut extractor(&world, &asker)).await.unwrap();
    assert_eq!(chat.most_at_once(), 3);
    let asked: Vec<String> = chat.asked().iter().map(text_of).collect();
    for owner in ["a", "b", "c", "d"] {
        let of_one: Vec<&String> = asked
            .iter()
            .filter(|t| t.contains(&format!("我是{owner}")))
            .collect();
        let expected: Vec<String> = (1..=6)
            .map(|n| format!("我是{owner}，说到第{n}句"))
            .collect();
        assert_eq!(of_one, expected.iter().collect::<Vec<_>>());
    }
    let origins: Vec<u64> = found(&world)
        .await
        .iter()
        .map(|(origin, _)| *origin)
        .collect();
    assert_eq!(origins, (1..=24).collect::<Vec<u64>>());
}

/// A slow model holds the stage back, what is answered is written as it comes, and a crash costs no more
/// than what is under way.
#[tokio::test(start_paused = true)]
async fn a_slow_model_holds_the_stage_back_and_a_crash_costs_little() {
    const TURNS: usize = 200;
    let world = World::new(8, 1);
    for number in 0..TURNS {
        let owner = format!("p{}", number % 50);
        accept(&world, &owner, number as i64, "候诊时我常想起杭州的老街").await;
    }
    let chat = Arc::new(ScriptedChat::new(|_, _| Said {
        after: Duration::from_secs(1),
        answer: Ok(NOTHING.to_owned()),
    }));
    let settings = Settings {
        concurrency: 4,
        ..Settings::default()
    };
    let asker = asking(&chat, settings);
    let mut consumer = extractor(&world, &asker);
    consumer.turn().await.unwrap();
    let cut = tokio::time::timeout(Duration::from_millis(3_500), consumer.turn()).await;
    assert!(cut.is_err(), "the stage waits for the model");
    let written = found(&world).await.len();
    assert_eq!((chat.calls(), written), (16, 12));
    consumer.drop_state();
    drain(&mut consumer).await.unwrap();
    assert_eq!(found(&world).await.len(), TURNS);
    assert_eq!((chat.calls(), chat.most_at_once()), (TURNS + 4, 4));
}

/// Without a model, and without a budget, everything is still read.
#[tokio::test(start_paused = true)]
async fn without_model_or_budget_the_rules_read_on() {
    let world = World::new(9, 1);
    for number in 1..=12 {
        accept(&world, "p", number, "我对花生过敏").await;
    }
    let chat = Arc::new(ScriptedChat::new(|_, number| {
        if number < 2 {
            Said::now(NOTHING)
        } else {
            Said::error(ChatError::Unreachable {
                reason: "refused".to_owned(),
            })
        }
    }));
    let settings = Settings {
        tries_max: 1,
        outages_max: 3,
        calls_per_hour: Some(5),
        ..Settings::default()
    };
    let asker = asking(&chat, settings.clone());
    drain(&mut extractor(&world, &asker)).await.unwrap();
    let sets = found(&world).await;
    let mut expected = vec!["answered"; 2];
    expected.extend(["unreachable"; 3]);
    expected.extend(["circuit_open"; 7]);
    assert_eq!(codes(&sets), expected);
    for (_, set) in &sets {
        let claim = &set.candidates[0].claim;
        assert_eq!(claim.value.as_deref(), Some("peanut"));
        let is_answered = set.model_use.as_ref().unwrap().fallback.is_none();
        let expected = if is_answered {
            "rules"
        } else {
            "rules_fallback"
        };
        assert_eq!(claim.source.extractor, expected);
    }
    // The hour's calls are used up when the model is back.
    tokio::time::sleep(settings.rest).await;
    accept(&world, "p", 13, "我对芒果过敏").await;
    drain(&mut extractor(&world, &asker)).await.unwrap();
    assert_eq!(codes(&found(&world).await[12..]), ["no_budget"]);
}

/// What was spent in an hour is spent, whoever reads on: a new process, or the same one again.
#[tokio::test(start_paused = true)]
async fn a_start_forgives_nobody_what_the_hour_has_cost() {
    let chat = Arc::new(ScriptedChat::new(|_, _| Said::now(NOTHING)));
    let of_calls = Settings {
        calls_per_hour: Some(3),
        ..Settings::default()
    };
    // An answer of the double takes 120.
    let of_tokens = Settings {
        calls_per_hour: None,
        tokens_per_hour: Some(300),
        ..Settings::default()
    };
    for (settings, is_new) in [(&of_calls, true), (&of_calls, false), (&of_tokens, true)] {
        let world = World::new(14, 1);
        let mut asker = asking(&chat, settings.clone());
        for number in 1..=5 {
            accept(&world, "p", number, "候诊时我常想起杭州的老街").await;
            drain(&mut extractor(&world, &asker)).await.unwrap();
            if is_new {
                asker = asking(&chat, settings.clone());
            }
        }
        accept(&world, "q", 6, "候诊时我常想起杭州的老街").await;
        drain(&mut extractor(&world, &asker)).await.unwrap();
        world.clock.advance_millis(3_600_000);
        accept(&world, "p", 7, "候诊时我常想起杭州的老街").await;
        let asker = asking(&chat, settings.clone());
        drain(&mut extractor(&world, &asker)).await.unwrap();
        let mut expected = vec!["answered"; 3];
        expected.extend(["no_budget"; 2]);
        expected.extend(["answered"; 2]);
        assert_eq!(codes(&found(&world).await), expected, "{settings:?}");
    }
}

/// A process that is told to stop does not wait for a model.
#[tokio::test(start_paused = true)]
async fn a_stop_does_not_wait_for_an_answer() {
    let world = World::new(10, 1);
    accept(&world, "p", 1, "我对花生过敏").await;
    let chat = Arc::new(ScriptedChat::new(|_, _| Said {
        after: Duration::from_secs(3_600),
        answer: Ok(NOTHING.to_owned()),
    }));
    let asker = asking(&chat, Settings::default());
    let shutdown = CancellationToken::new();
    let since = tokio::time::Instant::now();
    let stop = async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        shutdown.cancel();
    };
    let (ended, ()) = tokio::join!(extractor(&world, &asker).run(shutdown.clone()), stop);
    ended.unwrap();
    assert_eq!((chat.calls(), since.elapsed().as_secs()), (1, 1));
    assert_eq!(found(&world).await.len(), 0);
}

/// Who asks for something to be kept is the model's judgement where it judged, for later messages too; and
/// what it added counts as stored. A start in between changes nothing.
#[tokio::test(start_paused = true)]
async fn a_request_is_met_or_not_by_what_the_model_judged_and_added() {
    let story = [
        (Role::User, "药都放在床头抽屉里，这个你心里要有数。"),
        (Role::Assistant, "好的"),
        (Role::User, "今天天气不错"),
        (Role::Assistant, "是的"),
        (Role::User, "帮我记一下。"),
        (Role::Assistant, "请讲"),
        (Role::User, "这个你心里要有数。"),
        (Role::Assistant, "好的"),
    ];
    let chat = || {
        Arc::new(ScriptedChat::new(|request, _| {
            let text = text_of(request);
            let asks = Some("这个你心里要有数").filter(|asks| text.contains(asks));
            Said::now(json!({"asks_to_remember": Vec::from_iter(asks), "facts": []}).to_string())
        }))
    };
    let unmet = |sets: &[(u64, CandidateSet)]| -> Vec<u64> {
        let is_unmet = |set: &CandidateSet| {
            let mut codes = set.rejects.iter().map(|reject| reject.code);
            codes.any(|code| code == RejectCode::NotStored)
        };
        let unmet = sets.iter().filter(|(_, set)| is_unmet(set));
        unmet.map(|(origin, _)| *origin).collect()
    };
    let mut told = Vec::new();
    for restarts in [false, true] {
        let world = World::new(11, 1);
        let chat = chat();
        let asker = asking(&chat, Settings::default());
        let mut consumer = extractor(&world, &asker);
        for (number, (role, text)) in (1..).zip(story) {
            accept_by(&world, role, "p", number, text).await;
            if restarts {
                drain(&mut consumer).await.unwrap();
                consumer.drop_state();
            }
        }
        drain(&mut consumer).await.unwrap();
        let sets = found(&world).await;
        assert!(sets[0].1.candidates.iter().any(|one| one.claim.explicit));
        // The model, unlike the head, hears no request in the fifth, and one in the seventh.
        assert_eq!(unmet(&sets), [8], "restarts: {restarts}");
        assert_eq!(chat.calls(), 4, "what an assistant says is not sent");
        told.push(sets);
    }
    assert_eq!(told[0], told[1]);

    let world = World::new(11, 1);
    for (number, (role, text)) in (1..).zip(story) {
        accept_by(&world, role, "p", number, text).await;
    }
    let mut by_rules = extractor_over(&world, world.log(), None);
    drain(&mut by_rules).await.unwrap();
    assert!(unmet(&found(&world).await).contains(&6));
}

/// A turn that is erased while a model is asked about it leaves nothing, and holds up nobody.
#[tokio::test(start_paused = true)]
async fn a_turn_that_is_erased_while_it_is_asked_about_leaves_nothing() {
    let world = World::new(12, 1);
    let erased = accept(&world, "p", 1, "我对花生过敏").await;
    accept(&world, "p", 2, "我对芒果过敏").await;
    let chat = Arc::new(ScriptedChat::new(|_, _| Said {
        after: Duration::from_secs(5),
        answer: Ok(NOTHING.to_owned()),
    }));
    let asker = asking(&chat, Settings::default());
    let mut consumer = extractor(&world, &asker);
    let erase = async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        let erasure = world.codec.keys().id_key().erasure(erased.event);
        let target = Target::Message(erased.event);
        let keyring = world.codec.keys();
        keyring
            .destroy(erased.owner, &target, erasure)
            .await
            .unwrap();
    };
    let (drained, ()) = tokio::join!(drain(&mut consumer), erase);
    drained.unwrap();
    let origins: Vec<u64> = found(&world)
        .await
        .iter()
        .map(|(origin, _)| *origin)
        .collect();
    assert_eq!((chat.calls(), origins), (2, vec![2]));
    // Its record is there, without words: nothing waits for it.
    consumer.drop_state();
    drain(&mut consumer).await.unwrap();
    assert_eq!(chat.calls(), 2);
}

/// An owner whose record cannot be read waits with all that follows, and is asked about in order when it
/// can; what was said before a turn goes with it once.
#[tokio::test(start_paused = true)]
async fn a_parked_owner_waits_while_others_are_asked_about_and_then_goes_on_in_order() {
    let world = World::new(13, 1);
    let log = MisreadLog::new(world.log());
    for number in 1..=4 {
        for owner in ["a", "b"] {
            let text = format!("我是{owner}，说到第{number}句");
            let meta = accept(&world, owner, number, &text).await;
            if (owner, number) == ("a", 2) {
                log.misread(meta.origin);
            }
        }
    }
    let chat = Arc::new(ScriptedChat::new(|_, number| Said {
        after: Duration::from_millis(900 - 100 * number as u64),
        answer: Ok(NOTHING.to_owned()),
    }));
    let asker = asking(&chat, Settings::default());
    let mut consumer = extractor_over(&world, log.clone(), Some(asker));
    drain(&mut consumer).await.unwrap();
    let asked = |chat: &ScriptedChat, owner: &str| -> Vec<String> {
        let all = chat.asked().iter().map(text_of).collect::<Vec<_>>();
        let of = |text: &String| text.contains(&format!("我是{owner}"));
        all.into_iter().filter(of).collect()
    };
    assert_eq!((asked(&chat, "a").len(), asked(&chat, "b").len()), (1, 4));
    assert_eq!(consumer.parked(), [world.owner("a").1]);
    log.mend();
    consumer.drop_state();
    drain(&mut consumer).await.unwrap();
    assert_eq!(consumer.parked(), []);
    let expected: Vec<String> = (1..=4).map(|n| format!("我是a，说到第{n}句")).collect();
    assert_eq!(asked(&chat, "a"), expected);
    assert_eq!(asked(&chat, "b").len(), 4);
    let last = chat.asked().last().unwrap().user.expose().to_owned();
    for sentence in &expected[..3] {
        assert_eq!(last.matches(sentence).count(), 1, "{last}");
    }
    let origins: Vec<u64> = found(&world)
        .await
        .iter()
        .map(|(origin, _)| *origin)
        .collect();
    assert_eq!(origins, [1, 2, 4, 6, 8, 3, 5, 7]);
}
