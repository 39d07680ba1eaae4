//! In-memory stores with a story in them, for this crate's tests.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use anamnesis_domain::ids::{ErasureId, EventTag, Hash, LogId, MemoryId, OwnerKey};
use anamnesis_domain::input::{Consent, Position, Target, Task, TaskStatus, Topic};
use anamnesis_domain::memory::{Entity, Memory, Status};
use anamnesis_domain::owner::{Owner, OwnerScope};
use anamnesis_domain::receipt::RecallReceipt;
use anamnesis_domain::text::Text;
use anamnesis_domain::time::Timestamp;
use anamnesis_pipeline::clock::ManualClock;
use anamnesis_pipeline::codec::{Codec, Opened, identity_payload};
use anamnesis_pipeline::doubles::graph::MemoryGraph;
use anamnesis_pipeline::doubles::log::MemoryLog;
use anamnesis_pipeline::doubles::records::MemoryRecords;
use anamnesis_pipeline::doubles::text::MemoryText;
use anamnesis_pipeline::doubles::vectors::MemoryVectors;
use anamnesis_pipeline::embedder::{Embed, Purpose};
use anamnesis_pipeline::hash_embedder::HashEmbedder;
use anamnesis_pipeline::log::Log;
use anamnesis_pipeline::reviews::EXPIRES_MILLIS;
use anamnesis_pipeline::stores::{
    Change, Checkpoint, Cut, DecisionRow, ErasureRow, Filter, GraphIndex, LegAnswer, MemoryVersion,
    Order, OwnerRows, OwnerView, Projection, RecordedConsent, RowDigest, Store, StoreError, Stores,
    SubjectFilter, TextIndex, VectorIndex,
};
use async_trait::async_trait;

use crate::answer::Answer;
use crate::fixture::{Reader, at, keys, owner};
use crate::receipts::ReceiptWriter;
use crate::request::Ask;
use crate::reviews::LogRejects;
use crate::service::{Parts, Recall, RecallSettings};

/// Now, in every test.
pub(crate) const NOW: &str = "2026-11-02T04:00:00Z";
const LOG_ID: LogId = LogId::from_bytes([5; 16]);

pub(crate) struct World {
    pub(crate) parts: Parts,
    pub(crate) clock: Arc<ManualClock>,
    codec: Codec,
    /// What the story has come to: the next offset, and what is known of each owner.
    story: Mutex<Story>,
}

struct Story {
    offset: u64,
    views: BTreeMap<OwnerKey, OwnerView>,
}

impl World {
    pub(crate) fn new() -> Self {
        let clock = Arc::new(ManualClock::new(at(NOW)));
        let embed: Embed = Arc::new(HashEmbedder::new());
        let log = MemoryLog::new(clock.clone(), 1, LOG_ID, identity_payload);
        let log: Log = Arc::new(log);
        let codec = Codec::new(keys());
        let parts = Parts {
            stores: Stores {
                records: Arc::new(MemoryRecords::new(LOG_ID, 1)),
                text: Arc::new(MemoryText::new(LOG_ID, 1)),
                vectors: Arc::new(MemoryVectors::new(LOG_ID, 1, embed.identity().clone())),
                graph: Arc::new(MemoryGraph::new(LOG_ID, 1)),
            },
            embed,
            log: log.clone(),
            sealer: Arc::new(codec.clone()),
            rejects: Arc::new(LogRejects {
                log: log.clone(),
                codec: codec.clone(),
            }),
            review_expires_millis: EXPIRES_MILLIS,
            ids: keys().id_key().clone(),
            clock: clock.clone(),
            reader: Arc::new(Reader),
            settings: RecallSettings::default(),
        };
        Self {
            parts,
            clock,
            codec,
            story: Mutex::new(Story {
                offset: 0,
                views: BTreeMap::new(),
            }),
        }
    }

    pub(crate) fn recall(&mut self) -> (Arc<Recall>, ReceiptWriter) {
        Recall::new(self.parts.clone())
    }

    pub(crate) fn shared(&self) -> Arc<Recall> {
        Recall::new(self.parts.clone()).0
    }

    pub(crate) fn scope(&self, name: &str) -> (Owner, OwnerScope) {
        let (owner, key) = owner(name);
        (owner, OwnerScope::of_log_record(key))
    }

    pub(crate) async fn asks(&self, name: &str, ask: Ask) -> Answer {
        let (owner, scope) = self.scope(name);
        self.shared()
            .recall(scope, &owner, "test", ask)
            .await
            .unwrap()
    }

    /// What stands in `accesses`, opened.
    pub(crate) async fn receipts(&self) -> Vec<RecallReceipt> {
        let records = self
            .parts
            .log
            .read(Topic::Accesses, 0, 1, 1000, 1 << 20)
            .await
            .unwrap();
        let mut receipts = Vec::new();
        for opened in self.codec.open(&records).await.unwrap() {
            let Opened::Access {
                receipt: Some(receipt),
                ..
            } = opened.unwrap()
            else {
                panic!("accesses hold receipts")
            };
            receipts.push(*receipt);
        }
        receipts
    }

    /// A decision that makes these versions, recorded when the last of them was said.
    pub(crate) async fn remembers(&self, name: &str, memories: &[Memory]) {
        self.decides(name, EventTag::from_bytes([0; 16]), memories)
            .await;
    }

    /// As [`World::remembers`], for an owner in full.
    pub(crate) async fn remembers_as(&self, owner: &str, memories: &[Memory]) {
        let name = owner.strip_prefix("h/").unwrap();
        self.remembers(name, memories).await;
    }

    pub(crate) async fn decides(&self, name: &str, event: EventTag, memories: &[Memory]) {
        let said = memories.iter().map(|memory| memory.claim.source.at).max();
        self.applies(
            name,
            said.unwrap_or(at("2025-01-01T00:00:00Z")),
            event,
            memories,
            |_| (),
        )
        .await;
    }

    pub(crate) async fn consents(&self, name: &str) {
        let grant = Consent {
            purposes: vec!["care".to_owned()],
            kinds: None,
            max_sensitivity: 4,
            valid_from: Timestamp::default(),
            valid_to: None,
        };
        self.changes(name, |view, offset| {
            view.consents.push(RecordedConsent {
                consent: grant,
                recorded_from: offset,
                recorded_to: None,
            });
        })
        .await;
    }

    pub(crate) async fn withdraws(&self, name: &str) {
        self.changes(name, |view, offset| {
            for recorded in &mut view.consents {
                recorded.recorded_to.get_or_insert(offset);
            }
        })
        .await;
    }

    pub(crate) async fn works_on(&self, name: &str, id: &str, goal: &str) {
        let task = Task {
            id: id.to_owned(),
            goal: Text::new(goal),
            status: TaskStatus::Active,
            decision: None,
            confirmed_facts: Vec::new(),
            constraints: Vec::new(),
            open_questions: vec![Text::new("退款到哪张卡")],
            tool_error: None,
            pending_confirmations: Vec::new(),
            expires_at: None,
            updated_at: at(NOW),
        };
        self.changes(name, |view, _| {
            view.tasks.insert(task.id.clone(), task);
        })
        .await;
    }

    pub(crate) async fn erased(&self, name: &str, row: ErasureRow) {
        self.changes(name, |view, _| view.erasures.push(row)).await;
    }

    /// Erases memories as the indexer does: what the stores hold of the owner is written anew without
    /// them, and the owner's view says so.
    pub(crate) async fn erases(&self, name: &str, ids: &[MemoryId]) {
        let (_, scope) = self.scope(name);
        let everything = Filter {
            scope,
            cut: Cut(u64::MAX),
            valid_at: None,
            time_range: None,
            kinds: None,
            statuses: Status::ALL.to_vec(),
            subject: SubjectFilter::Any,
            context_tags: None,
        };
        let records = &self.parts.stores.records;
        let page = records
            .list(&everything, Order::Recorded, 200, None)
            .await
            .unwrap();
        let (mut versions, mut decisions) = (Vec::new(), BTreeMap::new());
        for version in page.versions {
            let event = version.memory.claim.source.event;
            if let Some(row) = records.decision(scope, event).await.unwrap() {
                decisions.insert(row.owner_seq, row);
            }
            if !ids.contains(&version.memory.id) {
                let vector = self.vector(&version.memory).await;
                versions.push((Arc::new(version), Some(vector)));
            }
        }
        let (from, view) = {
            let mut story = self.story.lock().unwrap();
            let from = story.offset;
            story.offset += 1;
            let view = story.views.get_mut(&scope.key()).unwrap();
            view.owner_seq += 1;
            view.erasures.push(ErasureRow {
                erasure: ErasureId::from_bytes([6; 16]),
                target: Target::Memories(ids.to_vec()),
                memory_ids: ids.to_vec(),
                recorded_at: at(NOW),
                offset: from,
            });
            (from, view.clone())
        };
        let rows = OwnerRows {
            owner: scope.key(),
            versions,
            decisions: decisions.into_values().collect(),
            view,
        };
        let next = Checkpoint {
            log_id: LOG_ID,
            next: from + 1,
        };
        let changes = [Change::Rewrite(Box::new(rows))];
        for projection in self.parts.stores.projections() {
            projection.apply(0, from, &changes, next).await.unwrap();
        }
    }

    async fn vector(&self, memory: &Memory) -> Arc<[f32]> {
        let text = memory.claim.text.expose();
        let vectors = self.parts.embed.embed(&[text], Purpose::Passage).await;
        vectors.unwrap().remove(0).into()
    }

    async fn changes(&self, name: &str, change: impl FnOnce(&mut OwnerView, u64)) {
        let event = EventTag::from_bytes([0; 16]);
        let early = at("2020-01-01T00:00:00Z");
        let mut change = Some(change);
        let offset = self.story.lock().unwrap().offset;
        self.applies(name, early, event, &[], |view| {
            if let Some(change) = change.take() {
                change(view, offset);
            }
        })
        .await;
    }

    async fn applies(
        &self,
        name: &str,
        recorded_at: Timestamp,
        event: EventTag,
        memories: &[Memory],
        change: impl FnOnce(&mut OwnerView),
    ) {
        let (owner, key) = owner(name);
        let (from, view) = {
            let mut story = self.story.lock().unwrap();
            let from = story.offset;
            story.offset += 1;
            let view = story.views.entry(key).or_insert_with(|| OwnerView {
                key,
                owner: Some(owner),
                owner_seq: 0,
                head: Hash::NONE,
                consents: Vec::new(),
                tasks: BTreeMap::new(),
                closed_through: 0,
                erasures: Vec::new(),
            });
            view.owner_seq += 1;
            change(view);
            (from, view.clone())
        };
        let cause = Position {
            topic: Topic::Commands,
            partition: 0,
            offset: from,
        };
        let mut changes = vec![
            Change::Decision(DecisionRow {
                owner: key,
                owner_seq: view.owner_seq,
                offset: from,
                hash: Hash::NONE,
                recorded_at,
                outcome: "stored".to_owned(),
                event,
                cause,
                origin: cause,
                memory_ids: memories.iter().map(|memory| memory.id).collect(),
            }),
            Change::Owner(Box::new(view)),
        ];
        for memory in memories {
            let vector = self.vector(memory).await;
            changes.push(Change::Version {
                version: Arc::new(MemoryVersion {
                    owner: key,
                    memory: memory.clone(),
                    recorded_from: from,
                    recorded_to: None,
                    recorded_at,
                }),
                vector: Some(vector),
            });
        }
        let next = Checkpoint {
            log_id: LOG_ID,
            next: from + 1,
        };
        for projection in self.parts.stores.projections() {
            projection.apply(0, from, &changes, next).await.unwrap();
        }
    }
}

/// The same stores, with one that never answers a search.
pub(crate) fn stuck(leg: &str, stores: &Stores) -> Stores {
    let mut stores = stores.clone();
    match leg {
        "text" => stores.text = Arc::new(Stuck(stores.text.clone(), stores.vectors.clone())),
        "vector" => stores.vectors = Arc::new(Stuck(stores.text.clone(), stores.vectors.clone())),
        "graph" => stores.graph = Arc::new(Stuck(stores.text.clone(), stores.vectors.clone())),
        _ => panic!("no such leg"),
    }
    stores
}

struct Stuck(Arc<dyn TextIndex>, Arc<dyn VectorIndex>);

#[async_trait]
impl Projection for Stuck {
    fn store(&self) -> Store {
        self.0.store()
    }

    async fn checkpoint(&self, partition: u32) -> Result<Option<Checkpoint>, StoreError> {
        self.0.checkpoint(partition).await
    }

    async fn apply(&self, _: u32, _: u64, _: &[Change], _: Checkpoint) -> Result<(), StoreError> {
        std::future::pending().await
    }

    async fn owners(&self) -> Result<Vec<OwnerKey>, StoreError> {
        std::future::pending().await
    }

    async fn rows(&self, _: OwnerScope) -> Result<Vec<RowDigest>, StoreError> {
        std::future::pending().await
    }

    async fn compact(&self) -> Result<(), StoreError> {
        std::future::pending().await
    }
}

#[async_trait]
impl TextIndex for Stuck {
    async fn search(&self, _: &Filter, _: &[String], _: usize) -> Result<LegAnswer, StoreError> {
        std::future::pending().await
    }
}

#[async_trait]
impl VectorIndex for Stuck {
    fn model(&self) -> &anamnesis_pipeline::embedder::ModelIdentity {
        self.1.model()
    }

    async fn search(&self, _: &Filter, _: &[f32], _: usize) -> Result<LegAnswer, StoreError> {
        std::future::pending().await
    }
}

#[async_trait]
impl GraphIndex for Stuck {
    async fn neighbours(
        &self,
        _: &Filter,
        _: &[MemoryId],
        _: &[Entity],
        _: usize,
    ) -> Result<LegAnswer, StoreError> {
        std::future::pending().await
    }
}
