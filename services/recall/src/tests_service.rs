//! Recall as a whole over the in-memory stores: what was remembered, what is answered, as of when.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use anamnesis_domain::ids::{EventTag, MemoryId};
use anamnesis_domain::input::{Position, Topic};
use anamnesis_domain::memory::{Kind, Memory, Permille, Status};
use anamnesis_domain::owner::Subject;
use anamnesis_pipeline::doubles::embedder::SlowOrFailingEmbedder;
use anamnesis_pipeline::embedder::Embed;
use anamnesis_pipeline::hash_embedder::HashEmbedder;

use crate::answer::{Answer, Reason};
use crate::fixture::{at, claim, memory, owner, said};
use crate::request::{Ask, WaitFor};
use crate::service::RecallSettings;
use crate::world::{World, stuck};

fn texts(answer: &Answer) -> Vec<&str> {
    answer
        .memories
        .iter()
        .map(|memory| memory.record.text.expose())
        .collect()
}

fn about(subject: Subject, kind: Kind, text: &str) -> Memory {
    let mut claim = claim(kind, text);
    claim.subject = subject;
    memory(claim)
}

fn plain(kind: Kind, text: &str) -> Memory {
    memory(claim(kind, text))
}

async fn patient(memories: &[Memory]) -> World {
    let world = World::new();
    world.consents("p1").await;
    world.remembers("p1", memories).await;
    world
}

async fn check(memories: &[Memory], question: &str, expected: &[&str]) {
    let answer = patient(memories).await.asks("p1", Ask::new(question)).await;
    assert_eq!(texts(&answer), expected, "{question}: {answer:#?}");
    assert_eq!(answer.answerable, !expected.is_empty(), "{question}");
}

#[tokio::test]
async fn a_question_is_answered_in_the_language_of_the_memory_and_in_the_other() {
    let zh = [
        plain(Kind::Allergy, "我对花生过敏"),
        plain(Kind::Preference, "咖啡少糖"),
    ];
    check(&zh, "我对什么过敏？", &["我对花生过敏"]).await;
    check(&zh, "What am I allergic to?", &["我对花生过敏"]).await;
    check(&zh, "Am I allergic to peanuts?", &["我对花生过敏"]).await;
    let en = [
        plain(Kind::Allergy, "I am allergic to mango"),
        plain(Kind::Fact, "I live in Suzhou"),
    ];
    check(&en, "What am I allergic to?", &["I am allergic to mango"]).await;
    check(&en, "我对芒果过敏吗", &["I am allergic to mango"]).await;
}

/// As the reader of turns would store it: canonical, whatever the language.
fn named(subject: Subject, kind: Kind, text: &str, attribute: &str, value: &str) -> Memory {
    let mut claim = claim(kind, text);
    claim.subject = subject;
    claim.attribute = Some(attribute.to_owned());
    claim.value = Some(value.to_owned());
    memory(claim)
}

#[tokio::test]
async fn a_kind_is_asked_for_by_its_word_whoever_it_is_about() {
    let glaucoma = "My mother has glaucoma";
    let family = [
        about(Subject::Mother, Kind::Condition, glaucoma),
        plain(Kind::Medication, "I take metformin 500 mg"),
    ];
    for question in [
        "我妈妈有什么病？",
        "妈妈有青光眼吗？",
        "What does my mother have?",
        "What disease does my mother have?",
    ] {
        check(&family, question, &[glaucoma]).await;
    }
    for question in [
        "What medications am I on?",
        "List my medications",
        "我在吃什么药？",
    ] {
        check(&family, question, &["I take metformin 500 mg"]).await;
    }
    for question in [
        "我有什么病？",
        "我有青光眼吗",
        "我爸有什么病",
        "我妈妈对什么过敏",
        "我妈妈在吃什么药",
        "我妈妈有高血压吗",
    ] {
        check(&family, question, &[]).await;
    }
}

#[tokio::test]
async fn one_thing_is_asked_about_across_languages() {
    let own = [
        plain(Kind::Condition, "I have hypertension"),
        plain(Kind::Allergy, "I am allergic to ibuprofen"),
        plain(Kind::Medication, "I take atorvastatin 20 mg"),
    ];
    check(&own, "我有高血压吗？", &["I have hypertension"]).await;
    check(&own, "能给我开布洛芬吗？", &["I am allergic to ibuprofen"]).await;
    check(
        &own,
        "我吃阿托伐他汀多少毫克？",
        &["I take atorvastatin 20 mg"],
    )
    .await;
    check(&own, "能给我开青霉素吗？", &[]).await;
    check(&own, "我有青光眼吗", &[]).await;
    check(&own, "我吃二甲双胍多少毫克", &[]).await;
}

#[tokio::test]
async fn a_record_of_no_drug_allergies_answers_for_every_drug_and_for_nothing_else() {
    let text = "no known drug allergies";
    let none = [named(
        Subject::Self_,
        Kind::Allergy,
        text,
        "allergy",
        "drug",
    )];
    for question in [
        "Am I allergic to penicillin?",
        "我对青霉素过敏吗？",
        "药物过敏史",
        "能给我开布洛芬吗？",
    ] {
        check(&none, question, &[text]).await;
    }
    for question in [
        "我对花生过敏吗",
        "Am I allergic to mango?",
        "我在吃布洛芬吗",
    ] {
        check(&none, question, &[]).await;
    }
}

#[tokio::test]
async fn an_attribute_is_asked_for_by_its_words_in_either_language() {
    let fact = |text, attribute, value| named(Subject::Self_, Kind::Fact, text, attribute, value);
    let facts = [
        fact("改成尾号 3047 的卡", "payout_account", "3047"),
        fact("我住在苏州", "address", "苏州"),
        fact("A型血", "blood_type", "a"),
        named(
            Subject::Self_,
            Kind::Measurement,
            "I weigh 70 kg",
            "weight",
            "70",
        ),
    ];
    for (question, expected) in [
        ("退款打到哪张卡？", "改成尾号 3047 的卡"),
        ("退款", "改成尾号 3047 的卡"),
        ("Which card does the refund go to?", "改成尾号 3047 的卡"),
        ("报销打到哪个账户？", "改成尾号 3047 的卡"),
        ("Where do I live?", "我住在苏州"),
        ("我的地址", "我住在苏州"),
        ("What is my blood type?", "A型血"),
        ("我体重多少", "I weigh 70 kg"),
    ] {
        check(&facts, question, &[expected]).await;
    }
    for question in ["我的身高", "What is my name?", "我抽烟吗", "Am I pregnant?"] {
        check(&facts, question, &[]).await;
    }
}

#[tokio::test]
async fn a_past_appointment_is_said_to_be_over() {
    let mut visit = named(
        Subject::Self_,
        Kind::Event,
        "下周三复查",
        "appointment",
        "follow-up",
    );
    visit.standing.valid_to = Some(at("2025-01-08T00:00:00Z"));
    let world = patient(&[visit]).await;
    let answer = world.asks("p1", Ask::new("什么时候复查？")).await;
    assert_eq!(
        (answer.answerable, answer.reason),
        (false, Some(Reason::Over))
    );
    let answer = world.asks("p1", Ask::new("我对什么过敏")).await;
    assert_ne!(answer.reason, Some(Reason::Over));
    let mut ask = Ask::new("When was my appointment?");
    ask.include_history = true;
    let answer = world.asks("p1", ask).await;
    assert_eq!(texts(&answer), ["下周三复查"]);
    assert!(answer.memories[0].record.valid_to.is_some());
}

#[tokio::test]
async fn a_relatives_allergy_never_answers_for_the_owner() {
    let family = [about(Subject::Father, Kind::Allergy, "我爸对青霉素过敏")];
    check(&family, "我对青霉素过敏吗", &[]).await;
    check(&family, "Am I allergic to penicillin?", &[]).await;
    check(&family, "我爸对什么过敏", &["我爸对青霉素过敏"]).await;
    check(
        &family,
        "What is my father allergic to?",
        &["我爸对青霉素过敏"],
    )
    .await;
    check(&family, "我妈对什么过敏", &[]).await;
}

#[tokio::test]
async fn a_turn_that_tells_of_a_relative_does_not_answer_for_the_owner_either() {
    let turn = [plain(Kind::Episode, "我爸对青霉素过敏，上周刚查出来")];
    check(&turn, "我对青霉素过敏吗", &[]).await;
    check(
        &turn,
        "我爸对青霉素过敏吗",
        &["我爸对青霉素过敏，上周刚查出来"],
    )
    .await;
}

#[tokio::test]
async fn an_order_number_comes_first_by_its_word_alone() {
    let mut all: Vec<Memory> = (0..30)
        .map(|n| plain(Kind::Fact, &format!("订单物流进度说明 {n}")))
        .collect();
    all.push(plain(Kind::Fact, "A-20391 已签收"));
    let answer = patient(&all)
        .await
        .asks("p1", Ask::new("订单 A-20391 物流进度怎么样"))
        .await;
    assert_eq!(texts(&answer)[0], "A-20391 已签收");
    assert_eq!(answer.memories[0].score.ranks.text.map(|_| ()), Some(()));
}

#[tokio::test]
async fn an_old_allergy_is_recalled_after_many_recent_memories() {
    let tag = EventTag::from_bytes([200; 16]);
    let mut old = memory(said(
        Kind::Allergy,
        "对头孢过敏",
        tag,
        "2012-01-01T00:00:00Z",
    ));
    old.claim.importance = Permille::new(950);
    let mut all = vec![old];
    for n in 0..40 {
        let mut recent = plain(Kind::Event, &format!("第{n}次过敏科复查，过敏原检测"));
        recent.protected = true;
        all.push(recent);
    }
    let answer = patient(&all).await.asks("p1", Ask::new("过敏")).await;
    assert!(
        texts(&answer).contains(&"对头孢过敏"),
        "{:?}",
        texts(&answer)
    );
    assert_eq!(answer.memories.len(), 8);
}

/// 5 mg until 1 June 2026, 10 mg from then on, told on that day.
async fn changed_dose() -> (World, MemoryId, MemoryId) {
    let world = World::new();
    world.consents("p1").await;
    let (first, second) = (
        EventTag::from_bytes([201; 16]),
        EventTag::from_bytes([202; 16]),
    );
    let old = memory(said(
        Kind::Medication,
        "华法林 5 mg 每天",
        first,
        "2026-01-01T00:00:00Z",
    ));
    let mut new = memory(said(
        Kind::Medication,
        "华法林 10 mg 每天",
        second,
        "2026-06-01T00:00:00Z",
    ));
    world.remembers("p1", std::slice::from_ref(&old)).await;
    let mut over = old.clone();
    over.version = 2;
    over.standing.status = Status::Superseded;
    over.standing.valid_to = Some(at("2026-06-01T00:00:00Z"));
    over.standing.superseded_by = Some(new.id);
    new.version = 2;
    new.supersedes = vec![old.id];
    world.remembers("p1", &[over, new.clone()]).await;
    (world, old.id, new.id)
}

#[tokio::test]
async fn both_clocks_are_honoured() {
    let (world, ..) = changed_dose().await;
    let mut ask = Ask::new("华法林剂量");
    assert_eq!(
        texts(&world.asks("p1", ask.clone()).await),
        ["华法林 10 mg 每天"]
    );
    ask.as_of = Some(at("2026-03-01T00:00:00Z"));
    assert_eq!(
        texts(&world.asks("p1", ask.clone()).await),
        ["华法林 5 mg 每天"]
    );
    // What was known in May about July: still 5 mg.
    ask.as_of = Some(at("2026-07-01T00:00:00Z"));
    ask.known_at = Some(at("2026-05-01T00:00:00Z"));
    assert_eq!(
        texts(&world.asks("p1", ask.clone()).await),
        ["华法林 5 mg 每天"]
    );
    ask.known_at = Some(at("2025-05-01T00:00:00Z"));
    let before = world.asks("p1", ask).await;
    assert_eq!(
        (before.answerable, before.reason),
        (false, Some(Reason::NothingStored))
    );
}

#[tokio::test]
async fn a_time_in_the_question_is_answered_as_of_then() {
    let (world, ..) = changed_dose().await;
    let answer = world.asks("p1", Ask::new("2026年3月华法林剂量")).await;
    assert_eq!(texts(&answer), ["华法林 5 mg 每天"]);
    assert!(answer.query.during.is_some());
}

#[tokio::test]
async fn a_history_shows_what_was_replaced() {
    let (world, old, new) = changed_dose().await;
    let mut ask = Ask::new("华法林剂量");
    ask.include_history = true;
    let answer = world.asks("p1", ask).await;
    let current = answer
        .memories
        .iter()
        .find(|memory| memory.record.id == new)
        .unwrap();
    assert_eq!(
        current
            .history
            .iter()
            .map(|record| record.id)
            .collect::<Vec<_>>(),
        [old]
    );
    let replaced = answer
        .memories
        .iter()
        .find(|memory| memory.record.id == old)
        .unwrap();
    assert_eq!(replaced.record.status, Status::Superseded);
    assert_eq!(replaced.record.superseded_by, Some(new));
}

#[tokio::test]
async fn both_sides_of_a_conflict_are_shown_and_name_each_other() {
    let old = plain(Kind::Medication, "氨氯地平 5 mg");
    let mut new = plain(Kind::Medication, "amlodipine fifty");
    new.standing.status = Status::Conflicted;
    new.standing.conflict_with = Some(old.id);
    // Only the new one is found by its words; the other side comes with it.
    let world = patient(&[old.clone(), new.clone()]).await;
    let answer = world.asks("p1", Ask::new("amlodipine fifty")).await;
    let other = |id| {
        answer
            .memories
            .iter()
            .find(|m| m.record.id == id)
            .and_then(|m| m.record.conflict_with)
    };
    assert_eq!((other(old.id), other(new.id)), (Some(new.id), Some(old.id)));
}

#[tokio::test]
async fn nothing_of_another_owner_is_recalled() {
    let world = patient(&[plain(Kind::Allergy, "我对花生过敏")]).await;
    world.consents("p2").await;
    world
        .remembers("p2", &[plain(Kind::Allergy, "SECRET-H2 我对芒果过敏")])
        .await;
    let mine = world.asks("p1", Ask::new("SECRET-H2 我对芒果过敏吗")).await;
    assert!(!texts(&mine).iter().any(|text| text.contains("SECRET-H2")));
    assert_eq!(
        texts(&world.asks("p2", Ask::new("芒果过敏")).await),
        ["SECRET-H2 我对芒果过敏"]
    );
}

#[tokio::test]
async fn to_decline_is_a_right_answer() {
    let world = patient(&[plain(Kind::Allergy, "我对花生过敏")]).await;
    let answer = world.asks("p1", Ask::new("北京明天天气怎么样")).await;
    assert_eq!(
        (answer.answerable, answer.reason),
        (false, Some(Reason::BelowFloor))
    );
    let mut ask = Ask::new("北京明天天气怎么样");
    ask.min_score = Some(0.0);
    ask.kinds = Some(vec![Kind::Lesson]);
    let answer = world.asks("p1", ask).await;
    assert_eq!(answer.reason, Some(Reason::NothingStored));
}

#[tokio::test]
async fn an_unknown_owner_looks_like_one_without_memories() {
    let world = World::new();
    world.consents("p1").await;
    let settled = |answer: Answer| answer.settled();
    let known = settled(world.asks("p1", Ask::new("过敏")).await);
    let unknown = settled(world.asks("nobody", Ask::new("过敏")).await);
    assert_eq!(known, unknown);
    assert_eq!(known["reason"], "nothing_stored");
}

#[tokio::test]
async fn without_a_grant_nothing_is_read() {
    let world = World::new();
    world
        .remembers("p1", &[plain(Kind::Allergy, "我对花生过敏")])
        .await;
    let answer = world.asks("p1", Ask::new("花生过敏")).await;
    assert_eq!(answer.reason, Some(Reason::NothingStored));
    world.consents("p1").await;
    assert!(world.asks("p1", Ask::new("花生过敏")).await.answerable);
    world.withdraws("p1").await;
    assert!(!world.asks("p1", Ask::new("花生过敏")).await.answerable);
}

#[tokio::test]
async fn what_is_restricted_retired_or_archived_is_not_recalled() {
    for status in [
        Status::Restricted,
        Status::Retired,
        Status::Archived,
        Status::Erased,
        Status::PendingReview,
    ] {
        let mut hidden = plain(Kind::Allergy, "我对花生过敏");
        hidden.standing.status = status;
        check(&[hidden], "花生过敏", &[]).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_leg_that_is_late_or_fails_is_declared_and_the_answer_still_comes() {
    let memories = [plain(Kind::Allergy, "我对花生过敏")];
    for leg in ["text", "vector", "graph"] {
        let mut world = patient(&memories).await;
        world.parts.stores = stuck(leg, &world.parts.stores);
        let answer = world.asks("p1", Ask::new("花生过敏")).await;
        assert_eq!(texts(&answer), ["我对花生过敏"], "{leg}");
        assert_eq!(answer.degraded, [leg]);
    }
}

#[tokio::test(start_paused = true)]
async fn an_embedding_that_is_late_or_fails_costs_the_vectors_only() {
    let hash: Embed = Arc::new(HashEmbedder::new());
    let late = SlowOrFailingEmbedder::slow(hash.clone(), Duration::from_secs(9));
    let broken = SlowOrFailingEmbedder::failing(hash, u64::MAX);
    for embed in [late, broken] {
        let mut world = patient(&[plain(Kind::Allergy, "我对花生过敏")]).await;
        world.parts.embed = Arc::new(embed);
        let answer = world.asks("p1", Ask::new("花生过敏")).await;
        assert_eq!(texts(&answer), ["我对花生过敏"]);
        assert_eq!(answer.degraded, ["vector"]);
    }
}

#[tokio::test]
async fn the_same_state_gives_the_same_bytes() {
    let memories: Vec<Memory> = (0..40)
        .map(|n| plain(Kind::Fact, &format!("复查记录 {n} 血压正常")))
        .collect();
    let mut ask = Ask::new("血压 复查记录");
    ask.as_of = Some(at("2026-10-01T00:00:00Z"));
    ask.known_at = Some(at("2026-10-01T00:00:00Z"));
    ask.explain = true;
    let once = patient(&memories)
        .await
        .asks("p1", ask.clone())
        .await
        .settled()
        .to_string();
    let world = patient(&memories).await;
    world.clock.advance_millis(86_400_000);
    let again = world.asks("p1", ask).await.settled().to_string();
    assert_eq!(once, again);
    assert!(!once.contains("recall_id"));
}

#[tokio::test(start_paused = true)]
async fn a_write_is_awaited_and_what_does_not_come_is_declared() {
    let world = patient(&[]).await;
    let mut ask = Ask::new("花生过敏");
    ask.wait_for = Some(WaitFor::Event(EventTag::from_bytes([9; 16])));
    assert_eq!(world.asks("p1", ask.clone()).await.degraded, ["wait_for"]);
    let recall = world.shared();
    let (patient, scope) = world.scope("p1");
    let (answer, ()) = tokio::join!(recall.recall(scope, &patient, "t", ask), async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        world
            .decides(
                "p1",
                EventTag::from_bytes([9; 16]),
                &[plain(Kind::Allergy, "我对花生过敏")],
            )
            .await;
    });
    let answer = answer.unwrap();
    assert!(answer.degraded.is_empty() && answer.answerable);
}

#[tokio::test(start_paused = true)]
async fn a_position_of_memories_is_awaited() {
    let world = patient(&[plain(Kind::Allergy, "我对花生过敏")]).await;
    let (_, key) = owner("p1");
    let partition = anamnesis_pipeline::log::partition_of(key, 1);
    for (offset, degraded) in [(1, &[][..]), (999, &["wait_for".to_owned()][..])] {
        let mut ask = Ask::new("花生过敏");
        ask.wait_for = Some(WaitFor::Position(Position {
            topic: Topic::Memories,
            partition,
            offset,
        }));
        assert_eq!(world.asks("p1", ask).await.degraded, degraded, "{offset}");
    }
}

#[tokio::test]
async fn the_hash_embedding_is_named_in_the_answer() {
    let answer = patient(&[]).await.asks("p1", Ask::new("花生")).await;
    assert_eq!(answer.legs.vector.semantic, Some(false));
    let model = answer.legs.vector.model.unwrap();
    use anamnesis_pipeline::embedder::Embedder as _;
    assert_eq!(model, HashEmbedder::new().identity().id);
}

#[tokio::test]
async fn an_explained_answer_says_what_was_considered() {
    let world = patient(&[
        plain(Kind::Allergy, "我对花生过敏"),
        plain(Kind::Fact, "花生酱 很贵 北京 天气 明天"),
    ])
    .await;
    let mut ask = Ask::new("我对花生过敏吗");
    ask.explain = true;
    let explain = world.asks("p1", ask).await.explain.unwrap();
    assert_eq!(explain.kinds_asked, [Kind::Allergy]);
    assert!(
        explain
            .considered
            .iter()
            .any(|one| one.outcome == "returned")
    );
    assert!(explain.terms.iter().any(|(token, _)| token == "花生"));
    let all: BTreeSet<_> = explain.considered.iter().map(|one| one.memory_id).collect();
    let proposed = explain.proposed;
    for leg in [&proposed.text, &proposed.vector, &proposed.fused] {
        assert_eq!(leg.iter().copied().collect::<BTreeSet<_>>(), all);
    }
}

#[tokio::test]
async fn a_question_that_points_at_the_task_is_filled_from_it() {
    let world = patient(&[plain(Kind::Fact, "订单 A-20391 已签收")]).await;
    world.works_on("p1", "t1", "为订单 A-20391 申请退款").await;
    let mut ask = Ask::new("继续那个");
    ask.task_id = Some("t1".to_owned());
    let answer = world.asks("p1", ask).await;
    assert_eq!(texts(&answer), ["订单 A-20391 已签收"]);
    assert_eq!(
        answer.query.rewritten.expose(),
        "继续那个 (为订单 A-20391 申请退款)"
    );
}

#[test]
fn settings_refuse_what_they_do_not_know() {
    let read = |json: &str| serde_json::from_str::<RecallSettings>(json);
    assert_eq!(read("{}").unwrap(), RecallSettings::default());
    assert!(read(r#"{"flor": 0.5}"#).is_err());
}
