//! What recalls leave behind, and what it proves later: nothing that was erased, and everything else.

use anamnesis_domain::ids::{Hash, MemoryId, RecallId};
use anamnesis_domain::input::Topic;
use anamnesis_domain::memory::{Kind, Memory};
use anamnesis_domain::receipt::RecallReceipt;
use anamnesis_domain::text::Text;
use tokio_util::sync::CancellationToken;

use crate::answer::Answer;
use crate::compose::ContextAsk;
use crate::fixture::{claim, memory};
use crate::kept::{Comparison, KeptAnswer};
use crate::receipts::{Outcome, OutcomeReport, ReceiptRequest};
use crate::request::{Ask, WaitFor};
use crate::world::World;

fn plain(kind: Kind, text: &str) -> Memory {
    memory(claim(kind, text))
}

async fn patient(memories: &[Memory]) -> World {
    let world = World::new();
    world.consents("p1").await;
    world.remembers("p1", memories).await;
    world
}

/// The answer, and the receipt that it left.
async fn recalled(world: &mut World, ask: Ask) -> (Answer, RecallReceipt) {
    let (recall, writer) = world.recall();
    let (patient, scope) = world.scope("p1");
    let answer = recall.recall(scope, &patient, "triage", ask).await.unwrap();
    drop(recall);
    writer.run(CancellationToken::new()).await;
    (answer, world.receipts().await.pop().unwrap())
}

async fn recheck(world: &World, receipt: &RecallReceipt) -> Comparison {
    let (patient, scope) = world.scope("p1");
    world
        .shared()
        .recheck(scope, &patient, receipt)
        .await
        .unwrap()
}

fn kept(receipt: &RecallReceipt) -> KeptAnswer {
    serde_json::from_str(receipt.answer.expose()).unwrap()
}

fn except(ids: &[MemoryId]) -> Comparison {
    Comparison::SameExceptErased { ids: ids.to_vec() }
}

#[tokio::test]
async fn a_receipt_can_be_asked_again_and_gives_the_same_answer() {
    let mut world = patient(&[
        plain(Kind::Allergy, "我对花生过敏"),
        plain(Kind::Fact, "住在苏州"),
    ])
    .await;
    let (answer, receipt) = recalled(&mut world, Ask::new("花生过敏")).await;
    // Something else becomes known afterwards.
    world
        .remembers("p1", &[plain(Kind::Allergy, "花生过敏加重")])
        .await;
    world.clock.advance_millis(1_000);
    assert_eq!(receipt.returned, [answer.memories[0].record.id]);
    let request: ReceiptRequest = serde_json::from_str(receipt.request.expose()).unwrap();
    let (patient, scope) = world.scope("p1");
    let again = world
        .shared()
        .rerun(scope, &patient, &request)
        .await
        .unwrap();
    assert_eq!(again.settled().to_string(), answer.settled().to_string());
    let bytes = answer.settled().to_string();
    assert_eq!(Hash::of(bytes.as_bytes()), kept(&receipt).digest);
    assert_eq!(recheck(&world, &receipt).await, Comparison::Same);
}

#[tokio::test]
async fn a_receipt_holds_no_word_of_what_was_recalled_or_said_before() {
    let mut told = plain(Kind::Allergy, "我对花生过敏 CANARY-TEXT");
    told.claim.quote = Some(Text::new("CANARY-QUOTE"));
    told.claim.value = Some("CANARY-VALUE".to_owned());
    told.claim.source.speaker = Some(Text::new("CANARY-SPEAKER"));
    let mut world = patient(&[told]).await;
    let mut ask = Ask::new("我对花生过敏吗");
    ask.explain = true;
    ask.said_before = vec![Text::new("CANARY-BEFORE")];
    let (answer, receipt) = recalled(&mut world, ask).await;
    assert!(answer.settled().to_string().contains("CANARY-TEXT"));
    let receipt = serde_json::to_string(&receipt).unwrap();
    assert!(
        receipt.contains("我对花生过敏吗"),
        "the question is the caller's own"
    );
    assert!(!receipt.contains("CANARY"), "{receipt}");
}

#[tokio::test]
async fn after_an_erasure_the_rest_of_an_answer_is_still_proven() {
    let (peanut, mango) = (
        plain(Kind::Allergy, "我对花生过敏"),
        plain(Kind::Allergy, "我对芒果过敏"),
    );
    let other = plain(Kind::Fact, "住在苏州");
    let mut world = patient(&[peanut.clone(), mango.clone(), other.clone()]).await;
    let (answer, receipt) = recalled(&mut world, Ask::new("我对什么过敏")).await;
    assert_eq!(answer.memories.len(), 2);
    // Words weigh otherwise without the other memory, so the bytes differ; what was returned does not.
    world.erases("p1", &[other.id]).await;
    assert_eq!(recheck(&world, &receipt).await, except(&[]));
    world.erases("p1", &[other.id, mango.id]).await;
    assert_eq!(recheck(&world, &receipt).await, except(&[mango.id]));
    world.erases("p1", &[other.id, mango.id, peanut.id]).await;
    assert_eq!(
        recheck(&world, &receipt).await,
        except(
            &answer
                .memories
                .iter()
                .map(|one| one.record.id)
                .collect::<Vec<_>>()
        )
    );
}

#[tokio::test]
async fn a_withdrawal_hides_and_does_not_make_a_receipt_wrong() {
    let mut world = patient(&[plain(Kind::Allergy, "我对花生过敏")]).await;
    let (_, receipt) = recalled(&mut world, Ask::new("花生过敏")).await;
    world.withdraws("p1").await;
    assert!(!world.asks("p1", Ask::new("花生过敏")).await.answerable);
    assert_eq!(recheck(&world, &receipt).await, Comparison::Same);
}

#[tokio::test]
async fn a_memory_that_a_store_altered_is_told_from_an_erased_one() {
    let told = plain(Kind::Allergy, "我对花生过敏");
    let mut world = patient(std::slice::from_ref(&told)).await;
    let (_, mut receipt) = recalled(&mut world, Ask::new("花生过敏")).await;
    let mut wrong = kept(&receipt);
    wrong.memories[0].version = 7;
    wrong.digest = Hash::NONE;
    receipt.answer = Text::new(serde_json::to_string(&wrong).unwrap());
    let what = vec![format!("{}: version", told.id)];
    assert_eq!(
        recheck(&world, &receipt).await,
        Comparison::Differs { what }
    );
}

#[tokio::test(start_paused = true)]
async fn a_wait_that_was_in_vain_is_no_part_of_what_is_proven() {
    let mut world = patient(&[plain(Kind::Allergy, "我对花生过敏")]).await;
    let mut ask = Ask::new("花生过敏");
    ask.wait_for = Some(WaitFor::Event(anamnesis_domain::ids::EventTag::from_bytes(
        [9; 16],
    )));
    let (answer, receipt) = recalled(&mut world, ask).await;
    assert_eq!(answer.degraded, ["wait_for"]);
    assert_eq!(kept(&receipt).degraded, ["wait_for"]);
    assert_eq!(recheck(&world, &receipt).await, Comparison::Same);
}

#[tokio::test]
async fn whom_a_pronoun_meant_is_kept_without_the_words() {
    let mut father = plain(Kind::Allergy, "对青霉素过敏");
    father.claim.subject = anamnesis_domain::owner::Subject::Father;
    let mut world = patient(&[father]).await;
    let mut ask = Ask::new("他对什么过敏");
    ask.said_before = vec![Text::new("我爸要做手术 CANARY")];
    let (answer, receipt) = recalled(&mut world, ask).await;
    assert_eq!(
        (answer.query.subject.as_str(), answer.memories.len()),
        ("father", 1)
    );
    assert!(!receipt.request.expose().contains("CANARY"));
    assert_eq!(recheck(&world, &receipt).await, Comparison::Same);
}

#[tokio::test]
async fn a_context_receipt_says_what_was_injected_and_what_was_withheld() {
    let facts: Vec<Memory> = (0..9)
        .map(|n| plain(Kind::Fact, &format!("复查记录 {n} 血压正常")))
        .collect();
    let mut world = patient(&facts).await;
    let (recall, writer) = world.recall();
    let (patient, scope) = world.scope("p1");
    let wanted = ContextAsk {
        ask: Ask::new("血压 复查记录"),
        usable_tokens: 20_000,
        sections: None,
        companions: Vec::new(),
    };
    let context = recall
        .context(scope, &patient, "triage", wanted)
        .await
        .unwrap();
    drop(recall);
    writer.run(CancellationToken::new()).await;
    let receipt = world.receipts().await.pop().unwrap();
    let request: ReceiptRequest = serde_json::from_str(receipt.request.expose()).unwrap();
    assert_eq!(
        request.injected.unwrap().len(),
        context.sections[0].lines.len()
    );
    assert!(!context.withheld.is_empty());
    assert_eq!(kept(&receipt).withheld, context.withheld);
    assert!(!receipt.answer.expose().contains("血压"));
    assert_eq!(recheck(&world, &receipt).await, Comparison::Same);
}

#[tokio::test]
async fn a_question_about_nobody_leaves_no_receipt() {
    let mut world = World::new();
    let (recall, writer) = world.recall();
    let (nobody, scope) = world.scope("nobody");
    recall
        .recall(scope, &nobody, "triage", Ask::new("花生过敏"))
        .await
        .unwrap();
    drop(recall);
    writer.run(CancellationToken::new()).await;
    assert!(world.receipts().await.is_empty());
}

#[tokio::test]
async fn an_outcome_is_durable_before_it_is_accepted() {
    let mut world = patient(&[]).await;
    let (recall, _writer) = world.recall();
    let (patient, scope) = world.scope("p1");
    let report = OutcomeReport {
        outcome: Outcome::OffTopic,
        memory_id: None,
    };
    let id = RecallId::from_bytes([3; 16]);
    let position = recall
        .report_outcome(scope, &patient, "triage", id, &report)
        .await
        .unwrap();
    assert_eq!(position.unwrap().topic, Topic::Accesses);
    let receipts = world.receipts().await;
    assert_eq!(receipts[0].recall_id, id);
    assert!(receipts[0].returned.is_empty());
}
