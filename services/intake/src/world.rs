//! A site for this crate's tests: intake over doubles, and a stand-in for the stages behind it that
//! decides every input in the plainest way (consent is kept, everything else is stored).

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anamnesis_domain::ids::{Hash, IdKey, LogId, MemoryId, OwnerKey};
use anamnesis_domain::input::{Command, Position, Topic, Turn};
use anamnesis_domain::memory::{Claim, Memory, Standing, Status};
use anamnesis_domain::owner::{Owner, OwnerScope};
use anamnesis_domain::time::Timestamp;
use anamnesis_pipeline::caller::Caller;
use anamnesis_pipeline::clock::ManualClock;
use anamnesis_pipeline::codec::{Codec, InputMeta, Opened, identity_payload};
use anamnesis_pipeline::doubles::keyring::MemoryKeyring;
use anamnesis_pipeline::doubles::log::MemoryLog;
use anamnesis_pipeline::doubles::records::MemoryRecords;
use anamnesis_pipeline::log::{EventLog as _, partition_of};
use anamnesis_pipeline::stores::{
    Change, Checkpoint, DecisionRow, MemoryVersion, OwnerView, Projection as _, RecordedConsent,
    Records as _,
};

use crate::service::{Intake, Settings, StatementReader};

const LOG: LogId = LogId::from_bytes([9; 16]);
const PARTITIONS: u32 = 2;

pub(crate) struct World {
    pub(crate) intake: Arc<Intake>,
    pub(crate) log: Arc<MemoryLog>,
    pub(crate) clock: Arc<ManualClock>,
    pub(crate) keys: Arc<MemoryKeyring>,
    pub(crate) records: Arc<MemoryRecords>,
    /// Next offsets to decide, by topic and partition.
    decided: Mutex<BTreeMap<(Topic, u32), u64>>,
    /// How commands of this code are decided, where not `stored`.
    outcomes: Mutex<BTreeMap<&'static str, &'static str>>,
}

pub(crate) fn at(text: &str) -> Timestamp {
    Timestamp::parse(text).unwrap()
}

impl World {
    pub(crate) fn new(consent_required: bool) -> Arc<Self> {
        let clock = Arc::new(ManualClock::new(at("2025-06-01T00:00:00Z")));
        let log = Arc::new(MemoryLog::new(
            clock.clone(),
            PARTITIONS,
            LOG,
            identity_payload,
        ));
        let keys = Arc::new(MemoryKeyring::new(3));
        let records = Arc::new(MemoryRecords::new(LOG, PARTITIONS));
        let settings = Settings {
            consent_required,
            ..Settings::default()
        };
        let intake = Arc::new(Intake {
            log: log.clone(),
            codec: Codec::new(keys.clone()),
            records: records.clone(),
            clock: clock.clone(),
            reader: Arc::new(NothingRead),
            settings,
        });
        Arc::new(Self {
            intake,
            log,
            clock,
            keys,
            records,
            decided: Mutex::default(),
            outcomes: Mutex::default(),
        })
    }

    pub(crate) fn caller() -> Caller {
        Caller::local("ward-2")
    }

    pub(crate) fn ids(&self) -> &IdKey {
        self.intake.ids()
    }

    pub(crate) fn scope(&self, owner: &str) -> OwnerScope {
        let owner: Owner = owner.parse().unwrap();
        OwnerScope::of_log_record(self.ids().owner(&owner))
    }

    pub(crate) fn decide_as(&self, command: &'static str, outcome: &'static str) {
        self.outcomes.lock().unwrap().insert(command, outcome);
    }

    /// Puts a memory into the authority, as an earlier remember would have.
    pub(crate) async fn put(&self, owner: &str, claim: Claim) -> MemoryId {
        let key = self.scope(owner).key();
        let partition = partition_of(key, PARTITIONS);
        let from = self
            .records
            .checkpoint(partition)
            .await
            .unwrap()
            .map_or(0, |c| c.next);
        let id = self.ids().memory(claim.source.event, 0);
        let standing = Standing {
            status: Status::Active,
            valid_from: claim.valid_from,
            valid_to: claim.valid_to,
            superseded_by: None,
            conflict_with: None,
            confirms: None,
            rule: "first".to_owned(),
        };
        let memory = Memory {
            id,
            version: 4,
            claim,
            standing,
            protected: false,
            supersedes: Vec::new(),
            recorded_at: at("2025-01-01T00:00:00Z"),
            last_verified_at: None,
            confirmations: 0,
            access_count: 0,
            last_accessed_at: None,
            review: None,
        };
        let version = MemoryVersion {
            owner: key,
            memory,
            recorded_from: from,
            recorded_to: None,
            recorded_at: at("2025-01-01T00:00:00Z"),
        };
        let change = Change::Version {
            version: Arc::new(version),
            vector: None,
        };
        let next = Checkpoint {
            log_id: LOG,
            next: from + 1,
        };
        self.records
            .apply(partition, from, &[change], next)
            .await
            .unwrap();
        id
    }

    /// Decides whatever comes, beside the test, until the test ends. Time is the test's own.
    pub(crate) fn decide_in_background(self: &Arc<Self>) {
        let world = self.clone();
        tokio::spawn(async move {
            loop {
                world.decide().await;
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        });
    }

    /// Decides what conversation and commands hold.
    pub(crate) async fn decide(&self) {
        for topic in [Topic::Conversation, Topic::Commands] {
            for partition in 0..PARTITIONS {
                let next = self
                    .decided
                    .lock()
                    .unwrap()
                    .get(&(topic, partition))
                    .copied();
                let next = next.unwrap_or(1);
                let batch = self
                    .log
                    .read(topic, partition, next, 1000, 1 << 24)
                    .await
                    .unwrap();
                let opened = self.intake.codec.open(&batch).await.unwrap();
                for (record, opened) in batch.iter().zip(opened) {
                    let (meta, command) = match opened.unwrap() {
                        Opened::Turn { meta, .. } => (meta, None),
                        Opened::Command { meta, command } => (meta, Some(command.command)),
                        Opened::Erased { meta } => (meta, None),
                        other @ (Opened::Identity(_)
                        | Opened::Candidates { .. }
                        | Opened::Parked(_)
                        | Opened::Unparked(_)
                        | Opened::Receipt(_)
                        | Opened::InboxRead(_)
                        | Opened::Embedding { .. }
                        | Opened::Access { .. }
                        | Opened::WriterStarted { .. }
                        | Opened::Decided(_)) => panic!("not an input: {other:?}"),
                    };
                    self.record(&meta, command).await;
                    let next = record.position.offset + 1;
                    self.decided
                        .lock()
                        .unwrap()
                        .insert((topic, partition), next);
                }
            }
        }
    }

    async fn record(&self, meta: &InputMeta, command: Option<Command>) {
        let partition = meta.position.partition;
        let offset = self
            .records
            .checkpoint(partition)
            .await
            .unwrap()
            .map_or(0, |c| c.next);
        let scope = OwnerScope::of_log_record(meta.owner);
        let view = self.records.owner(scope).await.unwrap();
        let mut view = view.unwrap_or_else(|| empty(meta.owner));
        let known = self
            .records
            .decision(scope, meta.event)
            .await
            .unwrap()
            .is_some();
        let set = self
            .outcomes
            .lock()
            .unwrap()
            .get(meta.code.as_str())
            .copied();
        let outcome = if known {
            "duplicate"
        } else {
            set.unwrap_or("stored")
        };
        view.owner_seq += 1;
        match command {
            Some(Command::Grant { consent }) if outcome == "stored" => {
                view.consents.push(RecordedConsent {
                    consent,
                    recorded_from: offset,
                    recorded_to: None,
                });
            }
            Some(Command::Withdraw { .. }) => {
                for held in &mut view.consents {
                    held.recorded_to.get_or_insert(offset);
                }
            }
            _ => {}
        }
        let row = DecisionRow {
            owner: meta.owner,
            owner_seq: view.owner_seq,
            offset,
            hash: Hash::NONE,
            recorded_at: meta.appended_at,
            outcome: outcome.to_owned(),
            event: meta.event,
            cause: meta.position,
            origin: meta.origin,
            memory_ids: Vec::new(),
        };
        let changes = [Change::Decision(row), Change::Owner(Box::new(view))];
        let next = Checkpoint {
            log_id: LOG,
            next: offset + 1,
        };
        self.records
            .apply(partition, offset, &changes, next)
            .await
            .unwrap();
    }

    /// Everything that a topic holds and that can be read, as turns.
    pub(crate) async fn turns(&self, topic: Topic) -> Vec<(InputMeta, Turn)> {
        let mut turns = Vec::new();
        for partition in 0..PARTITIONS {
            let batch = self
                .log
                .read(topic, partition, 0, 1000, 1 << 24)
                .await
                .unwrap();
            for opened in self.intake.codec.open(&batch).await.unwrap() {
                if let Ok(Opened::Turn { meta, turn }) = opened {
                    turns.push((meta, *turn));
                }
            }
        }
        turns
    }

    /// The commands of all owners with their positions.
    pub(crate) async fn commands(&self) -> Vec<(Position, anamnesis_domain::input::CommandRecord)> {
        let mut commands = Vec::new();
        for partition in 0..PARTITIONS {
            let batch = self
                .log
                .read(Topic::Commands, partition, 0, 1000, 1 << 24)
                .await
                .unwrap();
            for opened in self.intake.codec.open(&batch).await.unwrap() {
                if let Ok(Opened::Command { meta, command }) = opened {
                    commands.push((meta.position, *command));
                }
            }
        }
        commands
    }
}

fn empty(key: OwnerKey) -> OwnerView {
    OwnerView {
        key,
        owner: None,
        owner_seq: 0,
        head: Hash::NONE,
        consents: Vec::new(),
        tasks: BTreeMap::new(),
        closed_through: 0,
        erasures: Vec::new(),
    }
}

/// Explicit writes stay as they are given: what their words mean is not this service's knowledge.
struct NothingRead;

impl StatementReader for NothingRead {
    fn read(&self, _turn: &Turn) -> Vec<Claim> {
        Vec::new()
    }
}
