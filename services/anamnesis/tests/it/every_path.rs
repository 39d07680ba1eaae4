//! Is what was forgotten told by no path: while a store lags, by its words, its meaning, a shared
//! entity, or a time before? And does a neighbour lose nothing by it?

use std::collections::BTreeMap;
use std::sync::Arc;

use anamnesis::config::{Config, ConsentDefault, Period};
use anamnesis::node::Node;
use anamnesis_audit::diff::diff;
use anamnesis_domain::ids::MemoryId;
use anamnesis_domain::owner::OwnerScope;
use anamnesis_domain::text::Text;
use anamnesis_domain::time::Timestamp;
use anamnesis_intake::commands::Order;
use anamnesis_intake::request::{ForgetMode, Targets};
use anamnesis_pipeline::caller::Caller;
use anamnesis_pipeline::clock::ManualClock;
use anamnesis_pipeline::consumer::{Consumer, Progress};
use anamnesis_pipeline::stores::Projection;
use anamnesis_recall::request::RecallRequest;
use serde_json::{Value, json};

use crate::node::{Folder, Server, TENANT, owner_key, texts};

const MARCH: Timestamp = Timestamp::from_millis(1_772_000_000_000);

fn patient(name: &str) -> String {
    format!("{TENANT}/patient/{name}")
}

/// A node in this process whose stores are driven one by one.
struct Lagging {
    node: Node,
    clock: Arc<ManualClock>,
    deciders: Vec<Consumer>,
    indexers: BTreeMap<&'static str, Vec<Consumer>>,
}

impl Lagging {
    async fn open(folder: &Folder) -> Self {
        let mut config = Config {
            tenant: TENANT.to_owned(),
            ..Config::default()
        };
        config.data_dir = folder.data().to_owned();
        config.consent.default = ConsentDefault::Granted;
        let long = Period::secs(60);
        config.recall.text_deadline = long;
        config.recall.vector_deadline = long;
        config.recall.graph_deadline = long;
        let clock = Arc::new(ManualClock::new(MARCH));
        let node = Node::open_with(config, clock.clone())
            .await
            .expect("the folder opens");
        let consumer = |stage: &Arc<dyn anamnesis_pipeline::consumer::Stage>, partition| {
            Consumer::new(node.log.clone(), stage.clone(), partition, clock.clone())
        };
        let mut deciders = Vec::new();
        for stage in [node.extractor().expect("rules"), node.validity_manager()] {
            deciders.extend((0..node.log.partitions()).map(|n| consumer(&stage, n)));
        }
        let mut indexers = BTreeMap::new();
        for store in node.stores.projections() {
            let name = store.store().as_str();
            let stage: Arc<dyn anamnesis_pipeline::consumer::Stage> =
                Arc::new(node.indexer(vec![store]));
            let all = (0..node.log.partitions()).map(|n| consumer(&stage, n));
            indexers.insert(name, all.collect());
        }
        Self {
            node,
            clock,
            deciders,
            indexers,
        }
    }

    /// Decides everything, and applies it to these stores.
    async fn settle(&mut self, stores: &[&'static str]) {
        drive(&mut self.deciders).await;
        for name in stores {
            drive(self.indexers.get_mut(name).expect("a store")).await;
        }
    }

    async fn say(&self, owner: &str, id: &str, text: &str) {
        let event = json!({
            "event_id": id, "owner": patient(owner), "source": "/chat", "role": "user",
            "conversation_id": "c", "at": "2026-01-05T09:00:00+08:00", "text": text,
        });
        let caller = Caller::local(TENANT);
        let intake = self.node.intake();
        let answer = intake.accept_values(&caller, &[event], None).await;
        let answer = answer.expect("an answer");
        assert_eq!(answer.accepted.len(), 1);
    }

    /// Everything that recall tells to this question, with every way of asking for more.
    async fn told(&self, owner: &str, query: &str) -> Vec<(MemoryId, String)> {
        let (recall, _receipts) = self.node.recall();
        let name = patient(owner);
        let mut told = Vec::new();
        for (as_of, known_at, include_history) in [
            (None, None, false),
            (None, None, true),
            (Some("2026-01-06T00:00:00Z"), None, true),
            (
                Some("2026-01-06T00:00:00Z"),
                Some("2026-02-26T00:00:00Z"),
                true,
            ),
        ] {
            let request = RecallRequest {
                owner: name.clone(),
                query: Text::new(query),
                as_of: as_of.map(str::to_owned),
                known_at: known_at.map(str::to_owned),
                include_history,
                explain: true,
                top_k: Some(50),
                ..RecallRequest::default()
            };
            let now = Timestamp::from_millis(MARCH.millis() + 30 * 86_400_000);
            let (owner, ask) = request.validate(now).expect("a question");
            let scope = OwnerScope::of_verified_caller(owner_key(&self.node, &name));
            let answer = recall.recall(scope, &owner, "test", ask).await;
            let answer = answer.expect("an answer");
            assert_eq!(answer.degraded, Vec::<String>::new());
            let memories = answer.memories.iter();
            told.extend(memories.map(|one| (one.record.id, one.record.text.expose().to_owned())));
        }
        told
    }
}

async fn drive(consumers: &mut [Consumer]) {
    loop {
        let mut is_idle = true;
        for consumer in consumers.iter_mut() {
            is_idle &= consumer.turn().await.expect("a turn") == Progress::Idle;
        }
        if is_idle {
            return;
        }
    }
}

const EVERY: [&str; 4] = ["records", "text", "vectors", "graph"];

/// By its words, by other words for it, and through what it shares with what is kept.
const QUESTIONS: [&str; 7] = [
    "okapinut",
    "我对貘油籽过敏吗？",
    "Am I allergic to okapinut?",
    "What am I allergic to?",
    "我对什么过敏？",
    "penicillin and peanuts",
    "青霉素",
];

/// R-50: whichever of the other stores lags behind the authority, what was erased is not told from the
/// moment that the authority has applied it, and the store that lagged ends without a row of it.
#[tokio::test(flavor = "multi_thread")]
async fn what_was_forgotten_is_told_by_no_path_while_a_store_lags() {
    for lags in ["text", "vectors", "graph"] {
        let folder = Folder::new();
        let mut ward = Lagging::open(&folder).await;
        ward.say(
            "ada",
            "e-1",
            "I am allergic to okapinut, penicillin and peanuts.",
        )
        .await;
        ward.say("ada", "e-2", "我对貘油籽、青霉素和花生过敏。")
            .await;
        ward.say(
            "ada",
            "e-3",
            "I am allergic to penicillin and I like peanuts.",
        )
        .await;
        ward.settle(&EVERY).await;
        for query in QUESTIONS {
            assert!(!ward.told("ada", query).await.is_empty(), "{query}");
        }
        ward.clock.advance_millis(86_400_000);

        let owner: anamnesis_domain::owner::Owner = patient("ada").parse().expect("an owner");
        for event in ["e-1", "e-2"] {
            let caller = Caller::local(TENANT);
            let order = Order {
                caller: &caller,
                owner: &owner,
                key: None,
            };
            let targets = Targets {
                message: Some(event.to_owned()),
                source: Some("/chat".to_owned()),
                ..Targets::default()
            };
            let intake = ward.node.intake();
            let done = intake
                .forget(&order, &targets, ForgetMode::Erase, &Text::new("asked"))
                .await;
            done.expect("it is ordered");
        }
        let prompt: Vec<&str> = EVERY.into_iter().filter(|name| *name != lags).collect();
        ward.settle(&prompt).await;
        for query in QUESTIONS {
            for (_, text) in ward.told("ada", query).await {
                let is_kept = !text.contains("okapinut") && !text.contains("貘油籽");
                assert!(is_kept, "{lags} lags: {query} tells {text}");
            }
        }
        // What the third message said is kept.
        let kept = ward.told("ada", "Am I allergic to penicillin?").await;
        assert!(
            kept.iter().any(|(_, text)| text.contains("penicillin")),
            "{kept:?}"
        );

        ward.settle(&EVERY).await;
        let stores: Vec<Arc<dyn Projection>> = ward.node.stores.projections();
        let model = ward.node.embed.identity().clone();
        let found = diff(&*ward.node.log, &ward.node.codec, &stores, &model).await;
        let found = found.expect("a comparison");
        assert!(found.is_clean(), "{lags}: {:?}", found.drift);
        drop(ward);
        check_no_orphan(&folder);
    }
}

/// Every edge of the graph belongs to a version that is there.
fn check_no_orphan(folder: &Folder) {
    let stores = folder.data().join("stores");
    let database = rusqlite::Connection::open(stores.join("graph-1").join("graph.db"));
    let orphans: i64 = database
        .expect("the graph opens")
        .query_row(
            "SELECT count(*) FROM edges WHERE NOT EXISTS (SELECT 1 FROM versions
             WHERE versions.owner = edges.owner AND versions.memory = edges.memory
             AND versions.version = edges.version)",
            [],
            |row| row.get(0),
        )
        .expect("a count");
    assert_eq!(orphans, 0);
}

/// Everything of a patient in words: twelve facts, what tools brought, and a summary of it all.
fn said_by(name: &str) -> Value {
    let event = |number: usize, role: &str, text: &str| {
        json!({
            "event_id": format!("e-{number}"), "owner": patient(name), "source": "/ward",
            "conversation_id": "c-1", "role": role, "text": text,
            "at": format!("2026-01-{:02}T09:00:00+08:00", number + 1),
        })
    };
    let facts = [
        "我对青霉素过敏，吃了会起疹子。",
        "I am allergic to shellfish.",
        "我每天吃二甲双胍 500 mg。",
        "I take warfarin 5 mg daily.",
        "我爸有高血压。",
        "My mother has glaucoma.",
        "我有哮喘。",
        "I had my appendix removed in 2019.",
        "我体重 70 公斤。",
        "I live in Chengdu and work as a teacher.",
        "请记住：不要在早上九点前打电话给我。",
        "I like swimming.",
    ];
    let mut events: Vec<Value> = (0..)
        .zip(facts)
        .map(|(n, text)| event(n, "user", text))
        .collect();
    for (number, text) in [
        (13, "血糖 6.8 mmol/L，凝血正常。"),
        (14, "Appointment 88A17 with Dr. Wang at 08:30."),
        (15, "青霉素皮试：阳性。"),
    ] {
        events.push(event(number, "tool", text));
    }
    let summary = "Summary: 青霉素过敏, warfarin 5 mg, asthma, lives in Chengdu.";
    events.push(event(16, "assistant", summary));
    json!(events)
}

async fn listed(server: &Server, name: &str) -> Vec<String> {
    let path = format!(
        "/v1/memories?owner={}&limit=200&status=active,superseded,conflicted,pending_review,archived",
        patient(name)
    );
    let mut texts = texts(&server.get(&path).await.expect(200));
    texts.sort();
    texts
}

/// C04: a patient asks to be forgotten. Accepted is told with an id, done only with a receipt of every
/// store; nothing is told by any path; who shares allergies and words with that patient loses nothing.
#[tokio::test(flavor = "multi_thread")]
async fn a_forgotten_patient_is_gone_from_every_store_and_nobody_else_loses_anything() {
    let folder = Folder::new();
    let server = folder.serve().await;
    for name in ["ada", "bo"] {
        server.grant(&patient(name)).await;
        let answer = server
            .post("/v1/events?wait=recallable", &said_by(name))
            .await
            .expect(202);
        assert_eq!(answer["rejected"], json!([]), "{answer}");
    }
    let (gone, kept) = (listed(&server, "ada").await, listed(&server, "bo").await);
    assert_eq!(gone, kept, "they said the same");
    assert!(gone.len() > 20, "{gone:?}");
    let question = "我对青霉素过敏吗？";
    let before = server.recall(&patient("bo"), question, json!({})).await;

    let body = json!({"owner": patient("ada"), "all": true, "mode": "erase", "reason": "asked"});
    let accepted = server.post("/v1/forget", &body).await.expect(202);
    let id = accepted["erasure_id"].as_str().expect("an id").to_owned();
    server.settle().await;
    let certificate = server
        .get(&format!("/v1/erasures/{id}?owner={}", patient("ada")))
        .await
        .expect(200);
    let status = certificate["status"].as_str().unwrap_or_default();
    assert!(["effective", "complete"].contains(&status), "{certificate}");
    for store in ["keyring", "records", "text", "vectors", "graph"] {
        let receipt = &certificate["receipts"][store];
        assert!(
            receipt["effective_at"].is_string(),
            "{store}: {certificate}"
        );
    }
    // A key for each message at least.
    assert!(
        certificate["keys_destroyed"].as_u64() >= Some(16),
        "{certificate}"
    );

    assert_eq!(listed(&server, "ada").await, Vec::<String>::new());
    let asked = [
        question,
        "What do I take?",
        "88A17",
        "summary",
        "青霉素",
        "Chengdu",
    ];
    for query in asked {
        for more in [
            json!({}),
            json!({"include_history": true}),
            json!({"as_of": "2026-02-01T00:00:00Z", "include_history": true}),
        ] {
            let answer = server.recall(&patient("ada"), query, more).await;
            assert_eq!(answer["memories"], json!([]), "{query}");
            assert_eq!(answer["answerable"], json!(false));
        }
        let ask = json!({"owner": patient("ada"), "query": query, "usable_tokens": 8_000});
        let context = server.post("/v1/context", &ask).await.expect(200);
        assert_eq!(context["sections"], json!([]), "{context}");
    }
    for path in ["reviews", "owners/tasks"] {
        let answer = server
            .get(&format!("/v1/{path}?owner={}", patient("ada")))
            .await;
        assert!(!answer.text.contains("青霉素"), "{}", answer.text);
    }

    assert_eq!(listed(&server, "bo").await, kept);
    let after = server.recall(&patient("bo"), question, json!({})).await;
    assert_eq!(texts(&after), texts(&before));
    server.stop();
    folder.check_sound();
    check_no_orphan(&folder);
}

/// C18: two patients were sent the same letter, word for word and under the same ids. One of them has it
/// forgotten; the other keeps it, and neither learns of the other.
#[tokio::test(flavor = "multi_thread")]
async fn a_document_of_two_patients_is_forgotten_for_one_of_them() {
    let folder = Folder::new();
    let server = folder.serve().await;
    for name in ["ada", "bo"] {
        server.grant(&patient(name)).await;
        let letter = |number: u32, text: &str| {
            json!({
                "event_id": format!("l-{number}"), "owner": patient(name), "role": "clinician",
                "source": "/letters/2026-17", "at": format!("2026-01-0{number}T09:00:00+08:00"),
                "text": text,
            })
        };
        let events = json!([
            letter(1, "The patient is allergic to okapinut."),
            letter(2, "患者对青霉素过敏。"),
        ]);
        server
            .post("/v1/events?wait=recallable", &events)
            .await
            .expect(202);
    }
    let kept = listed(&server, "bo").await;
    let id_of = async |name: &str| {
        let path = format!("/v1/memories?owner={}", patient(name));
        server.get(&path).await.expect(200)["memories"][0]["id"].clone()
    };
    let (mine, other) = (id_of("ada").await, id_of("bo").await);
    assert_ne!(
        mine, other,
        "the same event is another memory of another owner"
    );
    // The other's memory is not there for this owner, whatever is asked of it.
    for mode in ["restrict", "erase"] {
        let body =
            json!({"owner": patient("ada"), "memory_ids": [other], "mode": mode, "reason": "r"});
        let answer = server.post("/v1/forget?wait=decided", &body).await;
        let is_done = answer.status == 202 && answer.body["outcome"] == json!("stored");
        assert!(!is_done || mode == "restrict", "{}", answer.text);
    }
    assert_eq!(listed(&server, "bo").await, kept);

    let body = json!({"owner": patient("ada"), "source": "/letters/2026-17", "mode": "erase",
        "reason": "asked"});
    let done = server
        .post("/v1/forget?wait=decided", &body)
        .await
        .expect(202);
    assert_eq!(done["outcome"], json!("stored"), "{done}");
    server.settle().await;
    assert_eq!(listed(&server, "ada").await, Vec::<String>::new());
    assert_eq!(listed(&server, "bo").await, kept);
    let answer = server
        .recall(&patient("bo"), "Am I allergic to okapinut?", json!({}))
        .await;
    assert!(texts(&answer)[0].contains("okapinut"), "{answer}");
    server.stop();
    folder.check_sound();
}
