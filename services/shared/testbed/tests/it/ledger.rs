//! Does a ledger, which reads each record once, say what the balance says, which reads them all; and does
//! a sample see what a comparison of everything sees?

use std::sync::Arc;
use std::time::Duration;

use anamnesis_audit::balance::Balance;
use anamnesis_audit::ledger::{Counts, Ledger, Reads};
use anamnesis_audit::sample::{Sample, sample};
use anamnesis_domain::ids::MemoryId;
use anamnesis_domain::input::{Command, Target, Topic};
use anamnesis_domain::owner::OwnerScope;
use anamnesis_domain::text::Text;
use anamnesis_domain::time::Timestamp;
use anamnesis_pipeline::log::{Appended, EventLog, Identity, Log, LogError, NewRecord, Record};
use anamnesis_pipeline::stores::{Change, Checkpoint, Store};
use anamnesis_testbed::world::{World, difference, drain};
use async_trait::async_trait;
use bytes::Bytes;

use crate::talk::{block_on, said, say};

const ALL: Reads = Reads {
    inputs: true,
    vectors: true,
};

async fn advance(world: &World, ledger: &mut Ledger) -> Counts {
    let advanced = ledger.advance(&*world.calm, &world.codec).await;
    advanced.expect("the log is readable");
    ledger.counts()
}

#[track_caller]
fn check(counts: &Counts, balance: &Balance, when: &str) {
    let what = difference(counts, balance);
    assert_eq!(what, None, "{when}: {counts:?} {balance:?}");
}

#[test]
fn a_ledger_that_reads_on_says_what_the_balance_says() {
    block_on(async {
        let world = World::new(1, 1);
        let mut ledger = Ledger::new(0, ALL);
        let mut manager = world.manager(0);
        check(
            &advance(&world, &mut ledger).await,
            &world.balance().await,
            "nothing is there",
        );
        for owner in ["a", "b"] {
            world.grant(owner, "grant").await;
        }
        for n in 0..5 {
            say(&world, "a", &format!("e{n}"), n, "smoking_status=smoker").await;
            say(&world, "b", &format!("e{n}"), n, "allergy=mango").await;
            let counts = advance(&world, &mut ledger).await;
            assert!(counts.in_flight > 0 && counts.oldest_in_flight.is_some());
            check(&counts, &world.balance().await, "said and not decided");
            drain(&mut manager).await.unwrap();
            let counts = advance(&world, &mut ledger).await;
            assert_eq!((counts.in_flight, counts.oldest_in_flight), (0, None));
            check(&counts, &world.balance().await, "decided");
        }
        // A turn that nothing was extracted from yet.
        world.accept(&world.turn(&said("a", "late", 9, "…"))).await;
        check(
            &advance(&world, &mut ledger).await,
            &world.balance().await,
            "not extracted",
        );
        // A record that cannot be read: its owner waits, and what comes after it.
        let key = world.owner("b").1;
        let garbage = NewRecord {
            key,
            payload: Bytes::from_static(b"what is this"),
        };
        world.append(Topic::Commands, key, vec![garbage]).await;
        say(&world, "b", "e9", 9, "allergy=mango").await;
        drain(&mut manager).await.unwrap();
        let counts = advance(&world, &mut ledger).await;
        assert!(counts.parked > 0);
        assert_eq!(counts.parked_owners["validity-manager"].0, 1);
        check(&counts, &world.balance().await, "parked");
        // An erasure releases the owner.
        world.erase("b", "forget", Target::Owner).await;
        drain(&mut manager).await.unwrap();
        manager.drop_state();
        drain(&mut manager).await.unwrap();
        let counts = advance(&world, &mut ledger).await;
        assert_eq!(counts.parked, 0, "{counts:?}");
        check(&counts, &world.balance().await, "erased");
    });
}

#[test]
fn an_erasure_is_open_until_every_store_has_done_it() {
    block_on(async {
        let world = World::new(2, 1);
        let mut ledger = Ledger::new(0, ALL);
        world.grant("a", "grant").await;
        say(&world, "a", "e1", 1, "allergy=mango").await;
        world.settle().await;
        let counts = advance(&world, &mut ledger).await;
        assert_eq!((counts.not_effective.0, counts.not_physical.0), (0, 0));
        world.erase("a", "forget", Target::Owner).await;
        let counts = advance(&world, &mut ledger).await;
        assert_eq!((counts.not_effective.0, counts.not_physical.0), (1, 1));
        drain(&mut world.manager(0)).await.unwrap();
        let mut indexer = world.indexer(0);
        while advance(&world, &mut ledger).await.not_effective.0 > 0 {
            indexer.turn().await.unwrap();
        }
        assert_eq!(
            ledger.counts().not_physical.0,
            1,
            "bytes are rewritten later"
        );
        drain(&mut indexer).await.unwrap();
        let counts = advance(&world, &mut ledger).await;
        assert_eq!((counts.not_effective.0, counts.not_physical.0), (0, 0));
        // One that was turned down is not open either.
        let memory = MemoryId::from_bytes([9; 16]);
        world
            .erase("a", "again", Target::Memories(vec![memory]))
            .await;
        assert_eq!(advance(&world, &mut ledger).await.not_physical.0, 1);
        world.settle().await;
        assert_eq!(advance(&world, &mut ledger).await.not_physical.0, 0);
    });
}

#[test]
fn what_the_manager_passed_over_is_lost_and_counted() {
    block_on(async {
        let world = World::new(3, 1);
        world.grant("a", "grant").await;
        let passed = world
            .command(
                "a",
                "api",
                "c1",
                Command::Retire {
                    memory_id: MemoryId::from_bytes([1; 16]),
                    expected_version: None,
                    reason: Text::new("never seen"),
                },
            )
            .await;
        world.grant("a", "grant-2").await;
        let blind = Arc::new(BlindLog {
            inner: world.log(),
            hidden: passed.offset,
        });
        let mut manager = world.manager_over(0, blind, world.codec.clone());
        drain(&mut manager).await.unwrap();
        let counts = advance(&world, &mut Ledger::new(0, ALL)).await;
        assert_eq!(counts.lost, 1, "{counts:?}");
        check(&counts, &world.balance().await, "passed over");
    });
}

/// One command is never read: what a gap in the log would be, had the client skipped it.
struct BlindLog {
    inner: Log,
    hidden: u64,
}

#[async_trait]
impl EventLog for BlindLog {
    fn partitions(&self) -> u32 {
        self.inner.partitions()
    }

    async fn identity(&self, topic: Topic, partition: u32) -> Result<Identity, LogError> {
        self.inner.identity(topic, partition).await
    }

    async fn append(
        &self,
        topic: Topic,
        partition: u32,
        records: Vec<NewRecord>,
    ) -> Result<Vec<Appended>, LogError> {
        self.inner.append(topic, partition, records).await
    }

    async fn read(
        &self,
        topic: Topic,
        partition: u32,
        from: u64,
        records_max: usize,
        bytes_max: usize,
    ) -> Result<Vec<Record>, LogError> {
        let read = self
            .inner
            .read(topic, partition, from, records_max, bytes_max);
        let mut records = read.await?;
        records.retain(|record| topic != Topic::Commands || record.position.offset != self.hidden);
        Ok(records)
    }

    async fn read_at(
        &self,
        topic: Topic,
        partition: u32,
        offsets: &[u64],
    ) -> Result<Vec<Record>, LogError> {
        self.inner.read_at(topic, partition, offsets).await
    }

    async fn start(&self, topic: Topic, partition: u32) -> Result<u64, LogError> {
        self.inner.start(topic, partition).await
    }

    async fn end(&self, topic: Topic, partition: u32) -> Result<u64, LogError> {
        self.inner.end(topic, partition).await
    }

    async fn wait_beyond(
        &self,
        topic: Topic,
        partition: u32,
        offset: u64,
        at_most: Duration,
    ) -> Result<(), LogError> {
        let wait = self.inner.wait_beyond(topic, partition, offset, at_most);
        wait.await
    }

    async fn retain(
        &self,
        topic: Topic,
        partition: u32,
        before: Timestamp,
    ) -> Result<u64, LogError> {
        self.inner.retain(topic, partition, before).await
    }
}

async fn sampled(world: &World, ledger: &mut Ledger, owner: &str) -> Sample {
    let owner = world.owner(owner).1;
    let stores = world.stores.projections();
    let model = world.embed.identity();
    sample(ledger, &*world.calm, &world.codec, &stores, model, owner)
        .await
        .expect("everything is readable")
}

#[test]
fn a_sample_sees_a_row_that_differs_and_no_store_that_is_only_behind() {
    block_on(async {
        let world = World::new(4, 1);
        let mut ledger = Ledger::new(
            0,
            Reads {
                inputs: false,
                vectors: true,
            },
        );
        assert_eq!(ledger.owner_from(world.owner("a").1), None);
        for owner in ["a", "b"] {
            world.grant(owner, "grant").await;
            say(&world, owner, "e1", 1, "allergy=mango").await;
            say(&world, owner, "e2", 2, "smoking_status=smoker").await;
        }
        drain(&mut world.manager(0)).await.unwrap();
        let found = sampled(&world, &mut ledger, "a").await;
        assert_eq!(found, Sample::default(), "no store has applied anything");
        drain(&mut world.indexer(0)).await.unwrap();
        let found = sampled(&world, &mut ledger, "a").await;
        assert!(found.drift.is_empty(), "{found:?}");
        for store in Store::ALL {
            assert!(found.rows[&store] >= 2, "{store}: {found:?}");
        }
        let drawn = ledger.owner_from(world.owner("b").1);
        assert_eq!(drawn, Some(world.owner("b").1));

        // What somebody changed in a store by hand, at the position where it stands.
        let graph = world.stores.projections().pop().expect("four stores");
        assert_eq!(graph.store(), Store::Graph);
        let records = &world.stores.records;
        let scope = OwnerScope::of_log_record(world.owner("a").1);
        let id = world.memory_id("a", "chat", "e1");
        let mut version = records.history(scope, id).await.unwrap().pop().unwrap();
        version.memory.version += 1;
        version.recorded_from += 1;
        let forged = Change::Version {
            version: Arc::new(version),
            vector: None,
        };
        let checkpoint = graph.checkpoint(0).await.unwrap().unwrap();
        let next = Checkpoint {
            next: checkpoint.next,
            ..checkpoint
        };
        graph
            .apply(0, checkpoint.next, &[forged], next)
            .await
            .unwrap();
        let found = sampled(&world, &mut ledger, "a").await;
        assert!(!found.drift.is_empty());
        assert!(found.drift.iter().all(|drift| drift.store == Store::Graph));
        assert!(sampled(&world, &mut ledger, "b").await.drift.is_empty());

        // Somebody who was erased: nothing is expected and nothing is there.
        world.erase("b", "forget", Target::Owner).await;
        world.settle().await;
        let found = sampled(&world, &mut ledger, "b").await;
        assert!(
            found.drift.is_empty() && !found.rows.is_empty(),
            "{found:?}"
        );
    });
}
