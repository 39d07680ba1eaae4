//! Does the demo's story hold with other words, and in any order of arrival?

use anamnesis_audit::replay::replay_owner;
use anamnesis_domain::digest;
use anamnesis_domain::ids::Hash;
use anamnesis_domain::owner::Owner;
use anamnesis_domain::time::{Known, Timestamp};
use anamnesis_intake::commands::Order;
use anamnesis_intake::request::ConsentChange;
use anamnesis_pipeline::caller::Caller;
use serde_json::{Value, json};

use crate::node::{Dice, Folder, TENANT, owner_key, texts};

/// What the story is told with.
struct Words {
    name: &'static str,
    allergen_zh: &'static str,
    allergen_en: &'static str,
    relative_zh: &'static str,
    subject: &'static str,
    illness_zh: &'static str,
    drug: &'static str,
    doses: [&'static str; 2],
    other_drug_zh: &'static str,
    constraint: &'static str,
    about_constraint: &'static str,
}

const VARIANTS: [Words; 3] = [
    Words {
        name: "mango",
        allergen_zh: "芒果",
        allergen_en: "mango",
        relative_zh: "我舅舅",
        subject: "other",
        illness_zh: "帕金森病",
        drug: "apixaban",
        doses: ["2.5 mg", "5 mg"],
        other_drug_zh: "氨氯地平 5 mg",
        constraint: "never schedule me on Fridays",
        about_constraint: "Can you schedule me on Fridays?",
    },
    Words {
        name: "shrimp",
        allergen_zh: "虾",
        allergen_en: "shrimp",
        relative_zh: "我妈妈",
        subject: "mother",
        illness_zh: "高血压",
        drug: "metoprolol",
        doses: ["25 mg", "50 mg"],
        other_drug_zh: "阿托伐他汀 20 mg",
        constraint: "don't leave voicemail messages",
        about_constraint: "May I leave voicemail messages?",
    },
    Words {
        name: "walnut",
        allergen_zh: "核桃",
        allergen_en: "walnuts",
        relative_zh: "我姐姐",
        subject: "older sister",
        illness_zh: "糖尿病",
        drug: "levothyroxine",
        doses: ["50 mcg", "75 mcg"],
        other_drug_zh: "奥美拉唑 20 mg",
        constraint: "always call my wife first",
        about_constraint: "Who should you call first?",
    },
];

fn said(owner: &str, n: usize, at: &str, text: &str) -> Value {
    json!({
        "event_id": format!("v-{n}"), "owner": owner, "source": "/clinic", "role": "user",
        "at": at, "text": text,
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn the_story_holds_with_other_words() {
    let folder = Folder::new();
    let server = folder.serve().await;
    for words in &VARIANTS {
        let owner = format!("{TENANT}/patient/{}", words.name);
        server.grant(&owner).await;
        let [old, new] = words.doses;
        let story = [
            (
                "2025-03-10T09:00:00+08:00",
                format!("我对{}过敏，吃了会起疹子。", words.allergen_zh),
            ),
            (
                "2025-03-10T09:02:00+08:00",
                format!("{}有{}。", words.relative_zh, words.illness_zh),
            ),
            (
                "2025-03-10T09:03:00+08:00",
                format!("我每天吃{}。", words.other_drug_zh),
            ),
            (
                "2025-06-12T15:20:00+08:00",
                format!("From today I am taking {} {old} once daily.", words.drug),
            ),
            (
                "2025-06-12T15:22:00+08:00",
                format!("Please write this down: {}.", words.constraint),
            ),
            (
                "2026-04-02T11:00:00+08:00",
                format!("My {} dose was changed to {new}.", words.drug),
            ),
            (
                "2026-09-01T09:30:00+08:00",
                format!("其实我对{}不过敏了，上周皮试阴性。", words.allergen_zh),
            ),
        ];
        for (n, (at, text)) in story.iter().enumerate() {
            server
                .post("/v1/events?wait=decided", &said(&owner, n, at, text))
                .await
                .expect(202);
        }
        let first = async |query: String, more: Value| {
            let answer = server.recall(&owner, &query, more).await;
            let first = answer["memories"][0].clone();
            assert!(first.is_object(), "{query}: {answer}");
            first
        };
        let last_year = json!({"as_of": "2025-12-01T00:00:00+08:00"});
        let allergy = first(format!("我对{}过敏吗？", words.allergen_zh), json!({})).await;
        assert_eq!(
            (&allergy["kind"], &allergy["polarity"]),
            (&json!("allergy"), &json!("-")),
            "{allergy}"
        );
        let allergy = first(
            format!("我对{}过敏吗？", words.allergen_zh),
            last_year.clone(),
        )
        .await;
        assert_eq!(allergy["polarity"], json!("+"), "{allergy}");
        let allergy = first(
            format!("Am I allergic to {}?", words.allergen_en),
            last_year.clone(),
        )
        .await;
        assert!(
            allergy["text"].to_string().contains(words.allergen_zh),
            "{allergy}"
        );
        let illness = first(format!("{}有什么病？", words.relative_zh), json!({})).await;
        assert!(
            illness["text"].to_string().contains(words.illness_zh),
            "{illness}"
        );
        assert!(
            illness["subject"].to_string().contains(words.subject),
            "{illness}"
        );
        let dose = first(format!("What dose of {} do I take?", words.drug), json!({})).await;
        assert!(dose["text"].to_string().contains(new), "{dose}");
        let dose = first(format!("What dose of {} do I take?", words.drug), last_year).await;
        assert!(dose["text"].to_string().contains(old), "{dose}");
        let own = server.recall(&owner, "我自己有什么病？", json!({})).await;
        assert!(!texts(&own).join("\n").contains(words.illness_zh), "{own}");
        let explicit = server
            .recall(&owner, words.about_constraint, json!({}))
            .await;
        assert_eq!(
            explicit["memories"][0]["explicit"],
            json!(true),
            "{explicit}"
        );
    }
    server.settle().await;
    server.stop();
    folder.check_sound();
}

/// Claims that replace, confirm, contradict and end each other, about one owner and his father.
const CLAIMS: [(&str, &str); 16] = [
    ("2025-01-01T08:00:00Z", "I take amlodipine 5 mg daily."),
    ("2025-02-01T08:00:00Z", "我每天吃氨氯地平 5 mg。"),
    (
        "2025-03-01T08:00:00Z",
        "My amlodipine dose was changed to 10 mg.",
    ),
    ("2025-04-01T08:00:00Z", "I take amlodipine 100 mg daily."),
    ("2025-05-01T08:00:00Z", "我对花生过敏。"),
    ("2025-06-01T08:00:00Z", "I am not allergic to peanuts."),
    ("2025-07-01T08:00:00Z", "我对花生不过敏了。"),
    ("2025-08-01T08:00:00Z", "I am allergic to peanuts."),
    ("2025-01-15T08:00:00Z", "我体重 80 公斤。"),
    ("2025-06-01T08:00:00Z", "我体重 72 公斤。"),
    ("2025-06-01T08:00:00Z", "I weigh 73 kg."),
    ("2025-03-01T08:00:00Z", "我爸对青霉素过敏。"),
    ("2025-04-01T08:00:00Z", "I am allergic to penicillin."),
    ("2025-05-05T08:00:00Z", "I quit smoking."),
    ("2024-05-05T08:00:00Z", "我抽烟。"),
    ("2025-09-01T08:00:00Z", "I stopped taking amlodipine."),
];

async fn content_of(order: &[usize], batch: usize) -> (Hash, String) {
    let folder = Folder::new();
    let owner = format!("{TENANT}/patient/any-order");
    let node = folder.open().await;
    let words: Owner = owner.parse().expect("an owner");
    let intake = node.intake();
    let caller = Caller::local(TENANT);
    let grant = ConsentChange {
        max_sensitivity: Some(4.into()),
        valid_from: Some(Timestamp::from_millis(0)),
        ..ConsentChange::default()
    };
    let order_of_grant = Order {
        caller: &caller,
        owner: &words,
        key: None,
    };
    intake
        .consent(&order_of_grant, &grant)
        .await
        .expect("granted");
    node.settle().await.expect("settled");
    for batch in order.chunks(batch) {
        let events: Vec<Value> = batch
            .iter()
            .map(|n| said(&owner, *n, CLAIMS[*n].0, CLAIMS[*n].1))
            .collect();
        let answer = intake
            .accept_values(&caller, &events, None)
            .await
            .expect("accepted");
        assert!(answer.rejected.is_empty());
        node.settle().await.expect("settled");
    }
    let key = owner_key(&node, &owner);
    let (state, ..) = replay_owner(&*node.log, &node.codec, key, Known::Latest)
        .await
        .expect("replayed");
    let mut lines: Vec<String> = state
        .claims
        .values()
        .filter(|entry| entry.standing.confirms.is_none())
        .map(|entry| {
            format!(
                "{} {} {:?} {}",
                entry.claim.text.expose(),
                entry.standing.valid_from,
                entry.standing.valid_to.map(|to| to.to_string()),
                entry.standing.status
            )
        })
        .collect();
    lines.sort();
    (digest::content(&state), lines.join("\n"))
}

#[tokio::test(flavor = "multi_thread")]
async fn the_order_of_arrival_never_decides() {
    let mut dice = Dice::new(crate::node::from_environment("ANAMNESIS_SEED", 17));
    let mut order: Vec<usize> = (0..CLAIMS.len()).collect();
    let (expected, lines) = content_of(&order, 1).await;
    for _ in 0..6 {
        dice.shuffle(&mut order);
        let batch = 1 + dice.below(6) as usize;
        let (found, other) = content_of(&order, batch).await;
        assert_eq!(
            expected, found,
            "{order:?} by {batch}\n{lines}\n---\n{other}"
        );
    }
}
