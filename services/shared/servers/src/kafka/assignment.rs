//! Which partitions does this process own? One consumer group per service, subscribed to **one** topic
//! only to learn partition numbers: whoever owns number N handles partition N of every topic, so that
//! candidates-N and commands-N are always with the same member (rule 6). No record is read here and no
//! offset is committed.
//!
//! A dedicated thread polls the group and never waits for async code except at one place: before a
//! partition is given back, its holder is asked to stop and has a deadline to do so. A holder is whoever
//! has the [`Lease`]; it stops by dropping it. After the deadline the partition goes all the same, and a
//! write of the old holder is fenced by the log itself.
//!
//! Frozen (SIGSTOP, a suspended machine) for longer than the group's session, this process has lost
//! everything without being told. The thread's pulse shows it: a lease is current only while the pulse
//! is younger than the session, and after a longer pause everything is given up and joined anew.

use std::collections::BTreeMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anamnesis_domain::input::Topic;
use anamnesis_pipeline::broken::broke_off;
use anamnesis_pipeline::log::LogError;
use rdkafka::ClientConfig;
use rdkafka::client::ClientContext;
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::consumer::{BaseConsumer, Consumer, ConsumerContext};
use rdkafka::error::{KafkaError, RDKafkaErrorCode as Code};
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};
use rdkafka::types::RDKafkaRespErr;
use serde::{Deserialize, Serialize};
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::client::{Context, is_forbidden};
use super::config::{KafkaConfig, millis};
use super::writer::drop_apart;

/// Longest that a member that leaves waits until the group knows, once its stages have stopped or had their
/// time. Stopping may take five seconds in all.
const GOODBYE_MAX: Duration = Duration::from_millis(1_500);
/// The group is polled this often at least; a revocation is noticed as late.
const POLL_EVERY: Duration = Duration::from_millis(100);

const HEARTBEAT_MAX: Duration = Duration::from_millis(300);

/// How a process takes part in a service's group.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GroupConfig {
    /// A name that this process keeps over restarts: one that is back within the session gets its
    /// partitions without a rebalance.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instance: Option<String>,
    /// A member that is silent for so long loses its partitions.
    #[serde(default = "default_session", with = "crate::period")]
    pub session_timeout: Duration,
    /// How long a holder may take to stop when its partition goes to another member.
    #[serde(default = "default_drain", with = "crate::period")]
    pub drain_timeout: Duration,
}

fn default_session() -> Duration {
    Duration::from_secs(10)
}

fn default_drain() -> Duration {
    Duration::from_secs(2)
}

impl Default for GroupConfig {
    fn default() -> Self {
        Self {
            instance: None,
            session_timeout: default_session(),
            drain_timeout: default_drain(),
        }
    }
}

/// What this process owns now.
#[derive(Clone, Default, Debug)]
pub struct Owned {
    /// The generation of each partition: it grows whenever a partition comes to this process.
    pub partitions: BTreeMap<u32, u64>,
    /// The membership has ended, and why.
    pub failed: Option<LogError>,
}

/// Why partitions are not driven any more.
#[derive(Debug, thiserror::Error)]
pub enum DriveError<E> {
    #[error(transparent)]
    Membership(LogError),
    #[error("partition {partition} has ended")]
    Partition {
        partition: u32,
        #[source]
        error: E,
    },
}

/// Takes part in a group until it is dropped or left.
pub struct Membership {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

/// The right to handle one partition. Dropping it says that the holder has stopped.
pub struct Lease {
    shared: Arc<Shared>,
    partition: u32,
    generation: u64,
    revoked: watch::Receiver<bool>,
}

struct Shared {
    owned: watch::Sender<Owned>,
    state: Mutex<State>,
    /// Notified when a lease is dropped.
    stopped: Condvar,
    session: Duration,
    drain: Duration,
}

struct State {
    held: BTreeMap<u32, Holding>,
    generation: u64,
    /// When the thread last polled the group.
    pulse: Instant,
    is_leaving: bool,
    given_up: u64,
    /// Which of the clients that this membership had is the one that counts.
    client: u64,
}

struct Holding {
    generation: u64,
    revoked: watch::Sender<bool>,
    is_claimed: bool,
}

impl Membership {
    /// Joins the group of a service.
    ///
    /// # Errors
    /// [`LogError::Unusable`] when the configuration cannot be.
    pub fn join(
        config: &KafkaConfig,
        group: &GroupConfig,
        service: &str,
    ) -> Result<Self, LogError> {
        if group.drain_timeout >= group.session_timeout {
            return Err(LogError::Unusable {
                what: format!(
                    "a drain timeout of {:?} must be shorter than the session of {:?}",
                    group.drain_timeout, group.session_timeout
                ),
            });
        }
        let shared = Arc::new(Shared {
            owned: watch::Sender::new(Owned::default()),
            state: Mutex::new(State {
                held: BTreeMap::new(),
                generation: 0,
                pulse: Instant::now(),
                is_leaving: false,
                given_up: 0,
                client: 0,
            }),
            stopped: Condvar::new(),
            session: group.session_timeout,
            drain: group.drain_timeout,
        });
        let member = Member {
            settings: settings(config, group, service)?,
            // Any topic that is spread by owner: all have the same partitions.
            topic: config.topic_name(Topic::Memories),
            shared: shared.clone(),
        };
        let consumer = member.make().map_err(|error| config.refused(&error))?;
        let thread = std::thread::Builder::new()
            .name("kafka-group".to_owned())
            .spawn(move || member.run(consumer))
            .map_err(|error| LogError::Unavailable {
                reason: error.to_string(),
            })?;
        Ok(Self {
            shared,
            thread: Some(thread),
        })
    }

    pub fn owned(&self) -> watch::Receiver<Owned> {
        self.shared.owned.subscribe()
    }

    /// The lease of a partition that is owned and that nobody in this process has.
    pub fn claim(&self, partition: u32) -> Option<Lease> {
        let mut state = self.shared.state();
        let holding = state.held.get_mut(&partition)?;
        if holding.is_claimed || *holding.revoked.borrow() {
            return None;
        }
        holding.is_claimed = true;
        Some(Lease {
            shared: self.shared.clone(),
            partition,
            generation: holding.generation,
            revoked: holding.revoked.subscribe(),
        })
    }

    /// Runs `start` for every partition for as long as this process owns it. What it starts ends soon
    /// after its lease is revoked; when it fails, or when `shutdown` is ready, everything is given back
    /// and the group is left.
    ///
    /// # Errors
    /// Why the membership or the first partition ended.
    pub async fn drive<E, Work>(
        self,
        start: impl Fn(Arc<Lease>) -> Work,
        shutdown: impl Future<Output = ()>,
    ) -> Result<(), DriveError<E>>
    where
        E: Send + 'static,
        Work: Future<Output = Result<(), E>> + Send + 'static,
    {
        let mut tasks: JoinSet<(u32, Result<(), E>)> = JoinSet::new();
        let mut owned = self.owned();
        let mut shutdown = std::pin::pin!(shutdown);
        let mut result = Ok(());
        loop {
            let now = owned.borrow_and_update().clone();
            if let Some(error) = now.failed {
                result = Err(DriveError::Membership(error));
                break;
            }
            for lease in now.partitions.keys().filter_map(|p| self.claim(*p)) {
                let (partition, work) = (lease.partition, start(Arc::new(lease)));
                tasks.spawn(async move { (partition, work.await) });
            }
            tokio::select! {
                biased;
                () = &mut shutdown => break,
                changed = owned.changed() => if changed.is_err() { break },
                Some(ended) = tasks.join_next() => match ended {
                    Ok((_, Ok(()))) => (),
                    Ok((partition, Err(error))) => {
                        result = Err(DriveError::Partition { partition, error });
                        break;
                    }
                    Err(error) => {
                        let reason = broke_off(&error).to_owned();
                        result = Err(DriveError::Membership(LogError::Unavailable { reason }));
                        break;
                    }
                },
            }
        }
        // The leases are revoked, and what runs has the drain timeout to end by itself.
        self.leave().await;
        tasks.shutdown().await;
        result
    }

    /// How many partitions went before their holder had stopped.
    pub fn given_up(&self) -> u64 {
        self.shared.state().given_up
    }

    /// Gives everything back, as a revocation does, and leaves the group, so that the others need not
    /// wait for the session to end.
    pub async fn leave(mut self) {
        self.shared.state().is_leaving = true;
        if let Some(thread) = self.thread.take() {
            // A thread that panicked has left as well.
            let _ = tokio::task::spawn_blocking(move || thread.join()).await;
        }
    }
}

impl Drop for Membership {
    fn drop(&mut self) {
        self.shared.state().is_leaving = true;
    }
}

impl Lease {
    pub fn partition(&self) -> u32 {
        self.partition
    }

    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// Returns when the holder has to stop.
    pub async fn revoked(&self) {
        let mut revoked = self.revoked.clone();
        // An end without a word is an end.
        let _ = revoked.wait_for(|is_revoked| *is_revoked).await;
    }

    /// Whether the partition is still this process's, to be asked before something is written. It can
    /// become wrong a moment later: the log fences, this only spares the attempt.
    pub fn is_current(&self) -> bool {
        !*self.revoked.borrow() && self.shared.state().pulse.elapsed() < self.shared.session
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        let mut state = self.shared.state();
        if let Some(holding) = state.held.get_mut(&self.partition)
            && holding.generation == self.generation
        {
            holding.is_claimed = false;
        }
        drop(state);
        self.shared.stopped.notify_all();
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn publish(&self, state: &State, failed: Option<LogError>) {
        let partitions = state
            .held
            .iter()
            .filter(|(_, holding)| !*holding.revoked.borrow())
            .map(|(partition, holding)| (*partition, holding.generation))
            .collect();
        self.owned.send_modify(|owned| {
            owned.partitions = partitions;
            if failed.is_some() {
                owned.failed = failed;
            }
        });
    }

    fn gain(&self, partitions: &[u32]) {
        let mut state = self.state();
        for partition in partitions {
            state.generation += 1;
            let holding = Holding {
                generation: state.generation,
                revoked: watch::Sender::new(false),
                is_claimed: false,
            };
            if let Some(old) = state.held.insert(*partition, holding) {
                old.revoked.send_replace(true);
            }
        }
        self.publish(&state, None);
    }

    /// Asks the holders to stop, and waits for them unless it is too late anyway.
    fn lose(&self, partitions: &[u32], is_too_late: bool) {
        let mut state = self.state();
        for partition in partitions {
            if let Some(holding) = state.held.get(partition) {
                holding.revoked.send_replace(true);
            }
        }
        self.publish(&state, None);
        let deadline = Instant::now() + self.drain;
        let is_held = |state: &State| {
            let mut held = partitions.iter().filter_map(|p| state.held.get(p));
            held.any(|holding| holding.is_claimed)
        };
        while !is_too_late && is_held(&state) {
            let now = Instant::now();
            // Waiting here is no stall: the client's own thread keeps the session alive.
            state.pulse = now;
            let Some(left) = deadline
                .checked_duration_since(now)
                .filter(|left| !left.is_zero())
            else {
                break;
            };
            let waited = self.stopped.wait_timeout(state, left.min(POLL_EVERY));
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        for partition in partitions {
            if let Some(holding) = state.held.remove(partition)
                && holding.is_claimed
            {
                state.given_up += 1;
                tracing::warn!(
                    partition,
                    is_too_late,
                    "a partition goes before its holder has stopped"
                );
            }
        }
    }

    fn lose_all(&self) {
        let all: Vec<u32> = self.state().held.keys().copied().collect();
        self.lose(&all, true);
    }

    fn fail(&self, error: LogError) {
        self.lose_all();
        self.publish(&self.state(), Some(error));
    }
}

/// Hears of the group's decisions, on the thread that polls.
#[derive(Clone)]
struct Group {
    context: Context,
    shared: Arc<Shared>,
    client: u64,
}

impl ClientContext for Group {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, message: &str) {
        self.context.log(level, facility, message);
    }

    fn error(&self, error: KafkaError, reason: &str) {
        self.context.error(error, reason);
    }
}

impl ConsumerContext for Group {
    fn rebalance(
        &self,
        consumer: &BaseConsumer<Self>,
        what: RDKafkaRespErr,
        partitions: &mut TopicPartitionList,
    ) {
        let numbers: Vec<u32> = partitions
            .elements()
            .iter()
            .filter_map(|element| u32::try_from(element.partition()).ok())
            .collect();
        let is_assignment = what == RDKafkaRespErr::RD_KAFKA_RESP_ERR__ASSIGN_PARTITIONS;
        if self.client != self.shared.state().client {
            // Of a client that was replaced and ends: what it had was given up before.
            if !is_assignment && let Err(error) = consumer.incremental_unassign(partitions) {
                tracing::debug!(%error, "while a replaced client ends");
            }
            return;
        }
        let done = if is_assignment {
            self.assign(consumer, partitions, &numbers)
        } else {
            self.shared.lose(&numbers, consumer.assignment_lost());
            consumer.incremental_unassign(partitions)
        };
        if let Err(error) = done {
            tracing::warn!(%error, "the group's decision cannot be followed");
        }
    }
}

impl Group {
    fn assign(
        &self,
        consumer: &BaseConsumer<Self>,
        partitions: &mut TopicPartitionList,
        numbers: &[u32],
    ) -> Result<(), KafkaError> {
        // Any place will do: nothing is read here.
        partitions.set_all_offsets(Offset::Offset(0))?;
        consumer.incremental_assign(partitions)?;
        if !numbers.is_empty() {
            consumer.pause(partitions)?;
        }
        self.shared.gain(numbers);
        Ok(())
    }
}

struct Member {
    settings: ClientConfig,
    topic: String,
    shared: Arc<Shared>,
}

impl Member {
    fn make(&self) -> Result<BaseConsumer<Group>, KafkaError> {
        let client = {
            let mut state = self.shared.state();
            state.client += 1;
            state.client
        };
        let consumer: BaseConsumer<Group> = self.settings.create_with_context(Group {
            context: Context::default(),
            shared: self.shared.clone(),
            client,
        })?;
        consumer.subscribe(&[&self.topic])?;
        Ok(consumer)
    }

    fn run(self, mut consumer: BaseConsumer<Group>) {
        loop {
            let (pause, is_leaving) = {
                let mut state = self.shared.state();
                let pause = state.pulse.elapsed();
                if pause < self.shared.session {
                    state.pulse = Instant::now();
                }
                (pause, state.is_leaving)
            };
            if is_leaving {
                return self.leave(consumer);
            }
            if pause >= self.shared.session {
                tracing::warn!(
                    ?pause,
                    "this process was frozen for longer than its session"
                );
                self.shared.lose_all();
                match self.make() {
                    Ok(made) => drop_apart(std::mem::replace(&mut consumer, made)),
                    Err(error) => return self.end(consumer, &error),
                }
                self.shared.state().pulse = Instant::now();
            }
            match consumer.poll(POLL_EVERY) {
                // Paused: what comes all the same was fetched before.
                None | Some(Ok(_)) => (),
                Some(Err(error)) if is_lasting(&error) => return self.end(consumer, &error),
                Some(Err(error)) => tracing::debug!(%error, "an event of the group"),
            }
        }
    }

    fn end(&self, consumer: BaseConsumer<Group>, error: &KafkaError) {
        self.shared.fail(lasting(error));
        drop_apart(consumer);
    }

    /// Ends the client, which gives everything back and tells the group. To unsubscribe first would save
    /// nothing: a client that is closed while that is under way never says that it leaves, and its
    /// partitions are nobody's until its session is over.
    fn leave(&self, consumer: BaseConsumer<Group>) {
        let (ended, ends) = mpsc::channel::<()>();
        drop_apart((consumer, ended));
        let within = self.shared.drain + GOODBYE_MAX;
        if ends.recv_timeout(within) == Err(mpsc::RecvTimeoutError::Timeout) {
            tracing::warn!("the group may not have heard that this process has left");
        }
        self.shared.lose_all();
    }
}

fn is_lasting(error: &KafkaError) -> bool {
    const LASTING: [Code; 3] = [
        Code::FencedInstanceId,
        Code::Fatal,
        Code::InconsistentGroupProtocol,
    ];
    let is_fatal = matches!(error, KafkaError::MessageConsumptionFatal(_));
    is_fatal
        || error
            .rdkafka_error_code()
            .is_some_and(|code| LASTING.contains(&code) || is_forbidden(code))
}

fn lasting(error: &KafkaError) -> LogError {
    LogError::Unusable {
        what: format!("the membership in the service's group has ended: {error}"),
    }
}

fn settings(
    config: &KafkaConfig,
    group: &GroupConfig,
    service: &str,
) -> Result<ClientConfig, LogError> {
    let mut settings = config.base()?;
    settings
        .set("group.id", format!("{}{service}", config.topic_prefix))
        .set("session.timeout.ms", millis(group.session_timeout))
        // A member hears of a rebalance with its next heartbeat, and a partition has no holder meanwhile.
        .set(
            "heartbeat.interval.ms",
            millis(HEARTBEAT_MAX.min(group.session_timeout / 5)),
        )
        // A member that comes takes only what it gets; the others go on with the rest.
        .set("partition.assignment.strategy", "cooperative-sticky")
        .set("enable.auto.commit", "false")
        .set("enable.auto.offset.store", "false")
        .set("auto.offset.reset", "error")
        .set("allow.auto.create.topics", "false")
        .set("queued.min.messages", "1")
        .set("queued.max.messages.kbytes", "1");
    if let Some(instance) = &group.instance {
        settings.set("group.instance.id", instance);
    }
    Ok(settings)
}
