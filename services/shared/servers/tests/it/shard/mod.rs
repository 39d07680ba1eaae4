//! Do shards that are asked over gRPC answer like the stores behind them, and what if one does not?
//!
//! Everything runs in this process, on loopback: the stores are the doubles, and the log is one that
//! tells its end and whose the records before it are.
//!
//! - [`conformance`]: the suites of the ports, applied beside the server and read through it
//! - [`answers`]: long answers, words in Chinese and English, several shards
//! - [`replicas`]: dead, hung, behind, found again
//! - [`fencing`]: a copy that lags does not answer
//! - [`refusals`]: who is not answered, and what is not read
//! - [`stopping`], [`tls`]

mod answers;
mod conformance;
mod fencing;
mod refusals;
mod replicas;
mod slow;
mod stopping;
mod tls;

use std::future::Future;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anamnesis_domain::ids::OwnerKey;
use anamnesis_domain::input::{Position, Topic};
use anamnesis_domain::time::Timestamp;
use anamnesis_pipeline::conformance::stores::script::{OwnedBatch, Script, memory, owner};
use anamnesis_pipeline::conformance::stores::{LOG_ID, PARTITIONS};
use anamnesis_pipeline::doubles::records::MemoryRecords;
use anamnesis_pipeline::doubles::text::MemoryText;
use anamnesis_pipeline::feed::Feed;
use anamnesis_pipeline::log::{Appended, EventLog, Identity, LogError, NewRecord, Record};
use anamnesis_pipeline::stores::{Checkpoint, Projection as _, StoreError};
use anamnesis_servers::shard::client::{ShardStores, connect};
use anamnesis_servers::shard::config::{Partitions, ShardConfig, ShardServerConfig, ShardsConfig};
use anamnesis_servers::shard::server::{ShardParts, ShardServer, serve};
use async_trait::async_trait;
use bytes::Bytes;
use tokio_util::sync::{CancellationToken, DropGuard};

use slow::slow;

const FEED: Feed = Feed {
    log_id: LOG_ID,
    partitions: PARTITIONS,
};

/// Nothing here takes this long, on however slow a machine.
const LONG: Duration = Duration::from_secs(60);

/// A log that tells where it ends, and whose the last records are.
#[derive(Default)]
struct EndLog {
    /// The same in all partitions.
    end: AtomicU64,
    is_down: AtomicBool,
    /// Whose the records at the end are, in all partitions; what lies before cannot be read.
    last: Mutex<Vec<OwnerKey>>,
}

fn not_here() -> LogError {
    LogError::Unusable {
        what: "this log only tells its end".to_owned(),
    }
}

#[async_trait]
impl EventLog for EndLog {
    fn partitions(&self) -> u32 {
        PARTITIONS
    }

    async fn identity(&self, _: Topic, _: u32) -> Result<Identity, LogError> {
        Err(not_here())
    }

    async fn append(&self, _: Topic, _: u32, _: Vec<NewRecord>) -> Result<Vec<Appended>, LogError> {
        Err(not_here())
    }

    async fn read(
        &self,
        topic: Topic,
        partition: u32,
        from: u64,
        _: usize,
        _: usize,
    ) -> Result<Vec<Record>, LogError> {
        let last = self.last.lock().unwrap();
        let first = self.end.load(Ordering::SeqCst) - last.len() as u64;
        let place = from
            .checked_sub(first)
            .and_then(|place| usize::try_from(place).ok());
        let key = place
            .and_then(|place| last.get(place))
            .ok_or_else(not_here)?;
        // A read may be short.
        Ok(vec![Record {
            position: Position {
                topic,
                partition,
                offset: from,
            },
            key: *key,
            appended_at: Timestamp::from_millis(0),
            payload: Bytes::new(),
        }])
    }

    async fn read_at(&self, _: Topic, _: u32, _: &[u64]) -> Result<Vec<Record>, LogError> {
        Err(not_here())
    }

    async fn start(&self, _: Topic, _: u32) -> Result<u64, LogError> {
        Ok(0)
    }

    async fn end(&self, topic: Topic, _: u32) -> Result<u64, LogError> {
        assert_eq!(topic, Topic::Memories);
        if self.is_down.load(Ordering::SeqCst) {
            return Err(LogError::Unavailable {
                reason: "down".to_owned(),
            });
        }
        Ok(self.end.load(Ordering::SeqCst))
    }

    async fn wait_beyond(&self, _: Topic, _: u32, _: u64, _: Duration) -> Result<(), LogError> {
        Err(not_here())
    }

    async fn retain(&self, _: Topic, _: u32, _: Timestamp) -> Result<u64, LogError> {
        Err(not_here())
    }
}

/// One indexer's copy.
struct Copy {
    records: Arc<MemoryRecords>,
    text: Arc<MemoryText>,
    log: Arc<EndLog>,
}

impl Copy {
    fn new() -> Self {
        Self {
            records: Arc::new(MemoryRecords::new(LOG_ID, PARTITIONS)),
            text: Arc::new(MemoryText::new(LOG_ID, PARTITIONS)),
            log: Arc::default(),
        }
    }

    /// A copy that has applied these.
    async fn with(batches: &[OwnedBatch]) -> Self {
        let copy = Self::new();
        copy.apply(batches).await;
        copy
    }

    async fn apply(&self, batches: &[OwnedBatch]) {
        for batch in batches {
            batch.apply(&*self.records).await.unwrap();
            batch.apply(&*self.text).await.unwrap();
        }
    }

    async fn records_checkpoint(&self, partition: u32) -> Option<Checkpoint> {
        self.records.checkpoint(partition).await.unwrap()
    }

    fn parts(&self) -> ShardParts {
        ShardParts {
            records: self.records.clone(),
            text: self.text.clone(),
            log: self.log.clone(),
            feed: FEED,
        }
    }
}

/// A server that is stopped when it is dropped.
struct Served {
    server: ShardServer,
    stop: CancellationToken,
    _at_the_end: DropGuard,
}

impl Served {
    async fn start(config: ShardServerConfig, parts: ShardParts) -> Result<Self, StoreError> {
        let stop = CancellationToken::new();
        let stopped = stop.clone();
        let server = serve(config, parts, async move { stopped.cancelled().await }).await?;
        let at_the_end = stop.clone().drop_guard();
        Ok(Self {
            server,
            stop,
            _at_the_end: at_the_end,
        })
    }

    /// All partitions of a copy, on any port, with a lease that no test outlives.
    async fn whole(copy: &Copy) -> Self {
        Self::start(serving(any_port()), copy.parts())
            .await
            .unwrap()
    }

    fn address(&self) -> SocketAddr {
        self.server.address()
    }

    fn url(&self) -> String {
        format!("http://{}", self.address())
    }

    async fn stop(self) {
        self.stop.cancel();
        self.server.stopped().await.unwrap();
    }
}

fn any_port() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 0))
}

fn partitions(numbers: impl IntoIterator<Item = u32>) -> Partitions {
    Partitions::new(numbers).unwrap()
}

fn all_partitions() -> Partitions {
    partitions(0..PARTITIONS)
}

fn serving(listen: SocketAddr) -> ShardServerConfig {
    ShardServerConfig {
        lease: LONG,
        ..ShardServerConfig::new(listen, all_partitions(), "a")
    }
}

/// One shard of all partitions with these replicas.
fn one_shard(replicas: Vec<String>) -> ShardsConfig {
    let mut config = ShardsConfig::new(vec![ShardConfig {
        partitions: all_partitions(),
        replicas,
    }]);
    config.deadline = LONG;
    config.look_again_after = Duration::from_millis(50);
    config
}

fn client(config: &ShardsConfig) -> ShardStores {
    connect(config, FEED).unwrap()
}

/// Asks until the answer is as hoped for.
async fn until<T, F: Future<Output = T>>(ask: impl Fn() -> F, is_so: impl Fn(&T) -> bool) -> T {
    let asking = async {
        loop {
            let answer = ask().await;
            if is_so(&answer) {
                return answer;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let waited = tokio::time::timeout(LONG, asking).await;
    waited.expect("it never becomes so")
}

/// Decisions on memory 1 of these owners, one after the other.
fn decisions(script: &mut Script, owners: &[u8], text: &str) -> Vec<OwnedBatch> {
    for number in owners {
        script.decide(*number, vec![memory(1, text)]);
    }
    script.take(1)
}

/// Which of two replicas the client turns to first for an owner.
fn turn(number: u8) -> usize {
    let key: OwnerKey = owner(number);
    usize::from(key.bytes()[15]) % 2
}

fn is_unavailable<T>(answer: &Result<T, StoreError>, saying: &str) -> bool {
    match answer {
        Err(StoreError::Unavailable { store: _, reason }) => reason.contains(saying),
        Err(_) | Ok(_) => false,
    }
}
