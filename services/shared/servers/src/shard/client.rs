//! Which replica answers a question, and what if it does not?

use std::collections::BTreeMap;
use std::fs;
use std::sync::Arc;
use std::time::Duration;

use anamnesis_domain::ids::OwnerKey;
use anamnesis_pipeline::feed::Feed;
use anamnesis_pipeline::stores::{Records, Store, StoreError, TextIndex};
use bytes::Bytes;
use tokio::time::Instant;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Uri};
use tracing::warn;

use super::config::{Partitions, ShardsConfig, is_encrypted, is_loopback, unusable};
use super::frames::{KEEP_ALIVE, QUESTION_BYTES_MAX, WINDOW_BYTES};
use super::pins::Pins;
use super::ports::{ShardRecords, ShardText};
use super::refusal::Failure;
use super::replica::Replica;
use super::token;
use super::wire::{self, Answer, Asked, Question};

/// The ports over all shards.
#[derive(Clone)]
pub struct ShardStores {
    pub records: Arc<dyn Records>,
    pub text: Arc<dyn TextIndex>,
}

/// The ports over the shards of a log. Nothing is sent yet: a shard that cannot be reached fails the
/// questions that concern it.
///
/// # Errors
/// [`StoreError::Unusable`] for a configuration that names no token that is there, no readable
/// certificate, or not each partition exactly once.
pub fn connect(config: &ShardsConfig, feed: Feed) -> Result<ShardStores, StoreError> {
    let shards = Arc::new(Shards::new(config, feed)?);
    Ok(ShardStores {
        records: Arc::new(ShardRecords::new(shards.clone())),
        text: Arc::new(ShardText::new(shards)),
    })
}

pub(super) struct Shards {
    feed: Feed,
    shard_of: BTreeMap<u32, usize>,
    shards: Vec<Shard>,
    pins: Pins,
    deadline: Duration,
    sweep_deadline: Duration,
}

struct Shard {
    partitions: Partitions,
    replicas: Vec<Arc<Replica>>,
}

/// Whom an answer came from.
pub(super) struct Answered {
    pub(super) answer: Answer,
    pub(super) replica: usize,
}

impl Shards {
    fn new(config: &ShardsConfig, feed: Feed) -> Result<Self, StoreError> {
        let plan = config.plan(feed.partitions)?;
        let credentials = token::credentials(config.token_env.as_deref())?;
        let mut shards = Vec::with_capacity(plan.addresses.len());
        for (addresses, shard) in plan.addresses.into_iter().zip(&config.shards) {
            let mut replicas = Vec::with_capacity(addresses.len());
            for address in addresses {
                let channel = channel(config, &address)?;
                replicas.push(Replica::new(
                    address,
                    channel,
                    shard.partitions.clone(),
                    feed.log_id,
                    credentials.clone(),
                    config.look_again_after,
                ));
            }
            shards.push(Shard {
                partitions: shard.partitions.clone(),
                replicas,
            });
        }
        Ok(Self {
            feed,
            shard_of: plan.shard_of,
            shards,
            pins: Pins::new(),
            deadline: config.deadline,
            sweep_deadline: config.sweep_deadline,
        })
    }

    /// Asks about one owner. Replicas take turns by owner, so that all questions about one owner go to
    /// the same one as long as it is well.
    pub(super) async fn ask_of_owner(
        &self,
        store: Store,
        owner: OwnerKey,
        question: Question,
    ) -> Result<Answered, StoreError> {
        let partition = self.feed.partition_of(owner);
        let shard = self.shard(partition)?;
        let pin = self.pins.of(owner, Instant::now());
        let asked = Asked {
            question,
            at_least: pin.map_or(0, |pin| pin.at_least),
            even_if_behind: false,
        };
        let [.., high, low] = owner.bytes();
        let turn = usize::from(u16::from_be_bytes([*high, *low])) % shard.replicas.len();
        let first = pin.map_or(turn, |pin| pin.replica);
        self.ask(store, shard, partition, first, self.deadline, &asked)
            .await
    }

    /// Asks about one owner what the copy holds, however old it is.
    pub(super) async fn look_at_owner(
        &self,
        store: Store,
        owner: OwnerKey,
        question: Question,
    ) -> Result<Answer, StoreError> {
        let partition = self.feed.partition_of(owner);
        let shard = self.shard(partition)?;
        let asked = even_if_behind(question);
        let answered = self.ask(store, shard, partition, 0, self.deadline, &asked);
        Ok(answered.await?.answer)
    }

    /// Asks every replica that is well about one partition, or all when none is; gives the answers of
    /// those that answer, at least one.
    pub(super) async fn look_at_all(
        &self,
        store: Store,
        partition: u32,
        question: Question,
    ) -> Result<Vec<Answer>, StoreError> {
        let shard = self.shard(partition)?;
        let bytes = self.write(&even_if_behind(question))?;
        let well = |replica: &&Arc<Replica>| replica.is_well(partition);
        let mut asked: Vec<&Arc<Replica>> = shard.replicas.iter().filter(well).collect();
        if asked.is_empty() {
            asked = shard.replicas.iter().collect();
        }
        let asking = asked
            .into_iter()
            .map(|replica| replica.ask(bytes.clone(), self.deadline));
        let (mut answers, mut failures) = (Vec::new(), Vec::new());
        for answer in futures::future::join_all(asking).await {
            match answer {
                Ok(answer) => answers.push(answer),
                Err(failure) => failures.push(failure),
            }
        }
        if answers.is_empty() {
            return Err(self.nobody_answers(store, shard, failures));
        }
        Ok(answers)
    }

    /// Asks one replica of each shard about all of the shard's partitions.
    pub(super) async fn sweep(
        &self,
        store: Store,
        is_even_if_behind: bool,
        question: impl Fn(Vec<u32>) -> Question,
    ) -> Result<Vec<Answer>, StoreError> {
        let asking = self.shards.iter().map(async |shard| {
            let partitions: Vec<u32> = shard.partitions.iter().collect();
            let first = partitions.first().copied().unwrap_or_default();
            let asked = Asked {
                question: question(partitions),
                at_least: 0,
                even_if_behind: is_even_if_behind,
            };
            let answered = self
                .ask(store, shard, first, 0, self.sweep_deadline, &asked)
                .await?;
            Ok(answered.answer)
        });
        futures::future::try_join_all(asking).await
    }

    /// What `replica` answered implies everything below `at_least`; another one must not know less.
    pub(super) fn pin(&self, owner: OwnerKey, replica: usize, at_least: u64) {
        self.pins.put(owner, replica, at_least, Instant::now());
    }

    fn shard(&self, partition: u32) -> Result<&Shard, StoreError> {
        let shard = self.shard_of.get(&partition);
        shard
            .and_then(|shard| self.shards.get(*shard))
            .ok_or_else(|| unusable(format!("partition {partition} is in no shard")))
    }

    fn write(&self, asked: &Asked) -> Result<Bytes, StoreError> {
        let bytes = wire::write(asked);
        if bytes.len() > QUESTION_BYTES_MAX {
            return Err(unusable(format!(
                "a question to a shard may have {QUESTION_BYTES_MAX} bytes, not {}",
                bytes.len()
            )));
        }
        Ok(Bytes::from(bytes))
    }

    /// Asks one replica after the other, each for its share of the time, until one answers: `first` and
    /// those after it in turn, the ones that are left out last.
    async fn ask(
        &self,
        store: Store,
        shard: &Shard,
        partition: u32,
        first: usize,
        deadline: Duration,
        asked: &Asked,
    ) -> Result<Answered, StoreError> {
        let until = Instant::now() + deadline;
        let bytes = self.write(asked)?;
        let count = shard.replicas.len();
        let mut order: Vec<usize> = (0..count).map(|i| (first + i) % count).collect();
        order.sort_by_key(|replica| !shard.replicas[*replica].is_well(partition));
        let mut failures = Vec::new();
        for (tried, replica) in order.into_iter().enumerate() {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            let share = left / (count - tried) as u32;
            let asking = shard.replicas[replica].ask(bytes.clone(), share);
            match asking.await {
                Ok(answer) => return Ok(Answered { answer, replica }),
                Err(failure) if failure.is_final() => {
                    return Err(failure.into_error(store, self.feed.log_id));
                }
                Err(failure) => failures.push(failure),
            }
        }
        Err(self.nobody_answers(store, shard, failures))
    }

    /// What time may mend in one of the replicas is worth another try; else the first one's word counts.
    fn nobody_answers(&self, store: Store, shard: &Shard, failures: Vec<Failure>) -> StoreError {
        let mut first = None;
        let mut why = "there was no time left".to_owned();
        for failure in failures {
            match failure.into_error(store, self.feed.log_id) {
                StoreError::Unavailable { store: _, reason } => {
                    first = None;
                    why = reason;
                    break;
                }
                error @ (StoreError::Moved { .. }
                | StoreError::OtherLog { .. }
                | StoreError::OtherModel { .. }
                | StoreError::Damaged { .. }
                | StoreError::InUse { .. }
                | StoreError::Unusable { .. }) => {
                    first.get_or_insert(error);
                }
            }
        }
        first.unwrap_or_else(|| StoreError::Unavailable {
            store,
            reason: format!(
                "no replica of the shard of partitions {} answers: {why}",
                shard.partitions
            ),
        })
    }
}

fn even_if_behind(question: Question) -> Asked {
    Asked {
        question,
        at_least: 0,
        even_if_behind: true,
    }
}

fn channel(config: &ShardsConfig, address: &Uri) -> Result<Channel, StoreError> {
    let mut endpoint = Endpoint::from(address.clone())
        .connect_timeout(config.deadline)
        .tcp_nodelay(true)
        .initial_stream_window_size(WINDOW_BYTES)
        .initial_connection_window_size(WINDOW_BYTES)
        .http2_keep_alive_interval(KEEP_ALIVE.0)
        .keep_alive_timeout(KEEP_ALIVE.1);
    if is_encrypted(address) {
        let mut tls = ClientTlsConfig::new();
        match &config.tls_ca_file {
            Some(path) => {
                let pem = fs::read(path).map_err(|error| {
                    unusable(format!("cannot read {}: {error}", path.display()))
                })?;
                tls = tls.ca_certificate(Certificate::from_pem(pem));
            }
            None => tls = tls.with_native_roots(),
        }
        endpoint = endpoint.tls_config(tls).map_err(|_| {
            unusable(
                "the certificates that should sign those of the shards cannot be used".to_owned(),
            )
        })?;
    } else if !is_loopback(address) {
        warn!(
            replica = %address,
            "questions to a shard, their answers and the token travel unencrypted: it is not https"
        );
    }
    Ok(endpoint.connect_lazy())
}
