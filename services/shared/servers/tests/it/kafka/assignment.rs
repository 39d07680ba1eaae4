//! Members of a service's group: every partition has one holder, whoever comes, goes or freezes.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use anamnesis_pipeline::log::LogError;
use anamnesis_servers::kafka::{GroupConfig, KafkaConfig, Lease, Membership};
use rdkafka::ClientConfig;
use rdkafka::consumer::{BaseConsumer, Consumer as _};
use tokio::task::JoinHandle;

use super::broker::{Prefix, shared_brokers};

const PARTITIONS: u32 = 8;
const SERVICE: &str = "validity-manager";

/// Variables of the test binary when it runs as a member that a test can freeze.
const CHILD_BROKERS: &str = "ANAMNESIS_TEST_MEMBER_BROKERS";
const CHILD_PREFIX: &str = "ANAMNESIS_TEST_MEMBER_PREFIX";

fn quick() -> GroupConfig {
    GroupConfig {
        instance: None,
        session_timeout: Duration::from_secs(3),
        drain_timeout: Duration::from_secs(1),
    }
}

/// Who holds what, and what was ever held twice at once.
#[derive(Default)]
struct Table {
    holders: BTreeMap<u32, String>,
    twice: Vec<String>,
    /// When a partition was last let go, and the longest time that one had no holder.
    free_since: BTreeMap<u32, Instant>,
    pauses: Vec<Duration>,
}

type Shared = Arc<Mutex<Table>>;

struct Worker {
    member: Arc<Membership>,
    task: JoinHandle<()>,
}

impl Worker {
    fn start(prefix: &Prefix, name: &str, table: &Shared) -> Self {
        Self::with(prefix, name, table, &quick())
    }

    fn with(prefix: &Prefix, name: &str, table: &Shared, group: &GroupConfig) -> Self {
        let member = Arc::new(Membership::join(&prefix.config, group, SERVICE).unwrap());
        let task = tokio::spawn(claim_all(member.clone(), name.to_owned(), table.clone()));
        Self { member, task }
    }

    async fn leave(self) {
        // The holders go on until they are asked to stop; only the claiming ends.
        self.task.abort();
        let _ = self.task.await;
        let member = Arc::into_inner(self.member).unwrap();
        member.leave().await;
    }
}

async fn claim_all(member: Arc<Membership>, name: String, table: Shared) {
    let mut owned = member.owned();
    loop {
        let partitions: Vec<u32> = owned
            .borrow_and_update()
            .partitions
            .keys()
            .copied()
            .collect();
        for partition in partitions {
            if let Some(lease) = member.claim(partition) {
                // Not part of this task: it outlives the claiming, as a stage does.
                tokio::spawn(hold(lease, name.clone(), table.clone()));
            }
        }
        if owned.changed().await.is_err() {
            return;
        }
    }
}

async fn hold(lease: Lease, name: String, table: Shared) {
    let partition = lease.partition();
    {
        let mut table = table.lock().unwrap();
        if let Some(other) = table.holders.insert(partition, name.clone()) {
            table
                .twice
                .push(format!("{partition} by {other} and {name}"));
        }
        if let Some(since) = table.free_since.remove(&partition) {
            table.pauses.push(since.elapsed());
        }
    }
    lease.revoked().await;
    assert!(!lease.is_current());
    let mut table = table.lock().unwrap();
    table.holders.remove(&partition);
    table.free_since.insert(partition, Instant::now());
}

/// Waits until the partitions are held as the closure wants.
async fn until(table: &Shared, what: &str, is_so: impl Fn(&BTreeMap<u32, String>) -> bool) {
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        {
            let table = table.lock().unwrap();
            if is_so(&table.holders) {
                assert_eq!(table.twice, Vec::<String>::new(), "{what}");
                return;
            }
            assert!(Instant::now() < deadline, "{what}: {:?}", table.holders);
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

fn counts(holders: &BTreeMap<u32, String>) -> BTreeMap<&str, usize> {
    let mut counts = BTreeMap::new();
    for name in holders.values() {
        *counts.entry(name.as_str()).or_insert(0) += 1;
    }
    counts
}

fn is_shared_by(names: &'static [&'static str]) -> impl Fn(&BTreeMap<u32, String>) -> bool {
    move |holders| {
        let counts = counts(holders);
        let share = PARTITIONS as usize / names.len();
        holders.len() == PARTITIONS as usize
            && names.iter().all(|name| {
                let count = counts.get(name).copied().unwrap_or(0);
                (share..=share + 1).contains(&count)
            })
    }
}

async fn prefix() -> Prefix {
    let prefix = Prefix::new(&shared_brokers(), PARTITIONS);
    prefix.create().await;
    prefix
}

/// One thread for everything async: a callback that waited for a task on it would never end.
#[tokio::test]
async fn members_that_join_and_leave_share_every_partition() {
    let prefix = prefix().await;
    let table = Shared::default();
    let one = Worker::start(&prefix, "one", &table);
    until(&table, "alone", is_shared_by(&["one"])).await;
    let two = Worker::start(&prefix, "two", &table);
    until(&table, "two", is_shared_by(&["one", "two"])).await;
    let three = Worker::start(&prefix, "three", &table);
    until(&table, "three", is_shared_by(&["one", "two", "three"])).await;
    one.leave().await;
    until(&table, "one left", is_shared_by(&["two", "three"])).await;
    two.leave().await;
    until(&table, "alone again", is_shared_by(&["three"])).await;
    three.leave().await;
    until(&table, "nobody", BTreeMap::is_empty).await;
}

#[tokio::test]
async fn joins_and_leaves_pause_a_partition_only_shortly() {
    let prefix = prefix().await;
    let table = Shared::default();
    let stays = Worker::start(&prefix, "stays", &table);
    until(&table, "alone", is_shared_by(&["stays"])).await;
    for round in 0..6 {
        let comes = Worker::start(&prefix, "comes", &table);
        until(&table, "both", is_shared_by(&["stays", "comes"])).await;
        comes.leave().await;
        until(&table, &format!("round {round}"), is_shared_by(&["stays"])).await;
    }
    stays.leave().await;
    let mut pauses = table.lock().unwrap().pauses.clone();
    pauses.sort_unstable();
    println!(
        "{} hand-overs, longest pause {:?}, median {:?}",
        pauses.len(),
        pauses.last(),
        pauses.get(pauses.len() / 2)
    );
    assert!(
        pauses
            .last()
            .is_some_and(|longest| *longest < Duration::from_secs(5))
    );
}

/// A deployment of eight replicas that are rolled one after the other.
#[tokio::test(flavor = "multi_thread")]
async fn eight_members_that_come_at_once_and_restart_once_each_come_to_rest() {
    const NAMES: [&str; 8] = ["a", "b", "c", "d", "e", "f", "g", "h"];
    let prefix = prefix().await;
    let table = Shared::default();
    let began = Instant::now();
    let mut workers: Vec<Worker> = NAMES
        .iter()
        .map(|name| Worker::start(&prefix, name, &table))
        .collect();
    until(&table, "eight", is_shared_by(&NAMES)).await;
    let stable = began.elapsed();
    for name in NAMES {
        workers.remove(0).leave().await;
        workers.push(Worker::start(&prefix, name, &table));
    }
    let restarted = Instant::now();
    until(&table, "eight again", is_shared_by(&NAMES)).await;
    println!(
        "at rest {stable:?} after all came and {:?} after the last restart",
        restarted.elapsed()
    );
    for worker in workers {
        worker.leave().await;
    }
    until(&table, "nobody", BTreeMap::is_empty).await;
    assert_eq!(members_of(&prefix), 0);
}

/// How many members the broker knows.
fn members_of(prefix: &Prefix) -> usize {
    let group = format!("{}{SERVICE}", prefix.config.topic_prefix);
    let asking: BaseConsumer = ClientConfig::new()
        .set("bootstrap.servers", &prefix.config.brokers)
        .create()
        .unwrap();
    let list = asking
        .fetch_group_list(Some(&group), Duration::from_secs(30))
        .unwrap();
    let found = list.groups().first();
    found.map_or(0, |found| found.members().len())
}

#[tokio::test(flavor = "multi_thread")]
async fn who_leaves_is_known_to_have_left_whenever_it_leaves() {
    let prefix = prefix().await;
    let table = Shared::default();
    let a = Worker::start(&prefix, "a", &table);
    until(&table, "a alone", is_shared_by(&["a"])).await;
    // Also while the group still settles what its coming has changed.
    for wait in (0..12).map(|n| n * n * 10) {
        let b = Worker::start(&prefix, "b", &table);
        until(&table, "a and b", is_shared_by(&["a", "b"])).await;
        tokio::time::sleep(Duration::from_millis(wait)).await;
        b.leave().await;
        assert_eq!(members_of(&prefix), 1, "left {wait} ms after it came");
        until(&table, "a again", is_shared_by(&["a"])).await;
    }
    a.leave().await;
    assert_eq!(members_of(&prefix), 0);
}

#[tokio::test]
async fn a_holder_that_does_not_stop_loses_its_partition_at_the_deadline() {
    let prefix = prefix().await;
    let stubborn = Membership::join(&prefix.config, &quick(), SERVICE).unwrap();
    let mut owned = stubborn.owned();
    let all =
        |owned: &anamnesis_servers::kafka::Owned| owned.partitions.len() == PARTITIONS as usize;
    owned.wait_for(all).await.unwrap();
    let leases: Vec<Lease> = (0..PARTITIONS).filter_map(|p| stubborn.claim(p)).collect();
    assert_eq!(leases.len(), PARTITIONS as usize);
    assert!(
        stubborn.claim(0).is_none(),
        "nobody holds a partition twice"
    );
    assert!(leases.iter().all(Lease::is_current));
    let table = Shared::default();
    let other = Worker::start(&prefix, "other", &table);
    until(&table, "half", |holders| {
        holders.len() == PARTITIONS as usize / 2
    })
    .await;
    assert_eq!(stubborn.given_up(), u64::from(PARTITIONS) / 2);
    let current = leases.iter().filter(|lease| lease.is_current()).count();
    assert_eq!(
        current,
        PARTITIONS as usize / 2,
        "a lease that is lost says so"
    );
    other.leave().await;
    drop(leases);
    stubborn.leave().await;
}

#[tokio::test]
async fn a_second_process_under_the_same_name_ends_the_first() {
    let prefix = prefix().await;
    let named = GroupConfig {
        instance: Some("pod-0".to_owned()),
        ..quick()
    };
    let table = Shared::default();
    let first = Worker::with(&prefix, "first", &table, &named);
    until(&table, "first", is_shared_by(&["first"])).await;
    let mut owned = first.member.owned();
    let second_table = Shared::default();
    let second = Worker::with(&prefix, "second", &second_table, &named);
    until(&second_table, "second", is_shared_by(&["second"])).await;
    let ended = owned
        .wait_for(|owned| owned.failed.is_some())
        .await
        .unwrap()
        .clone();
    assert!(
        matches!(ended.failed, Some(LogError::Unusable { .. })),
        "{ended:?}"
    );
    assert!(ended.partitions.is_empty());
    until(&table, "first has nothing", BTreeMap::is_empty).await;
    second.leave().await;
}

/// A member in a process of its own, which says what it holds.
struct Process {
    child: Child,
    lines: std::sync::mpsc::Receiver<String>,
}

impl Process {
    fn start(prefix: &Prefix) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args([
                "kafka::assignment::member_in_a_process_of_its_own",
                "--exact",
                "--nocapture",
            ])
            .env(CHILD_BROKERS, &prefix.config.brokers)
            .env(CHILD_PREFIX, &prefix.config.topic_prefix)
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .spawn()
            .unwrap();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        let (send, lines) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            for line in stdout.lines().map_while(Result::ok) {
                let _ = send.send(line);
            }
        });
        Self { child, lines }
    }

    fn signal(&self, signal: &str) {
        let sent = Command::new("kill")
            .arg(signal)
            .arg(self.child.id().to_string())
            .status();
        assert!(sent.unwrap().success());
    }

    fn says(&self, words: &str) {
        let deadline = Instant::now() + Duration::from_secs(60);
        while Instant::now() < deadline {
            match self.lines.recv_timeout(Duration::from_millis(200)) {
                Ok(line) if line.contains(words) => return,
                Ok(_) | Err(_) => (),
            }
        }
        panic!("the other process never said: {words}");
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Not a test of its own: what [`Process`] runs. Alone it has nothing to do.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn member_in_a_process_of_its_own() {
    let (Ok(brokers), Ok(prefix)) = (std::env::var(CHILD_BROKERS), std::env::var(CHILD_PREFIX))
    else {
        return;
    };
    let mut config = KafkaConfig::new(brokers);
    config.topic_prefix = prefix;
    let member = Membership::join(&config, &quick(), SERVICE).unwrap();
    let mut owned = member.owned();
    let mut leases: Vec<Lease> = Vec::new();
    let say = |words: String| {
        println!("{words}");
        std::io::stdout().flush().unwrap();
    };
    loop {
        let partitions: Vec<u32> = owned
            .borrow_and_update()
            .partitions
            .keys()
            .copied()
            .collect();
        leases.extend(partitions.iter().filter_map(|p| member.claim(*p)));
        let stale = leases.iter().filter(|lease| !lease.is_current()).count();
        if stale > 0 {
            say(format!("stopped with {stale}"));
        }
        leases.retain(Lease::is_current);
        say(format!("holds {}", leases.len()));
        let _ = tokio::time::timeout(Duration::from_millis(50), owned.changed()).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_that_was_frozen_stops_by_itself_and_comes_back() {
    let prefix = prefix().await;
    let process = Process::start(&prefix);
    process.says(&format!("holds {PARTITIONS}"));
    let table = Shared::default();
    let other = Worker::start(&prefix, "other", &table);
    until(&table, "half", |holders| {
        holders.len() == PARTITIONS as usize / 2
    })
    .await;
    process.says(&format!("holds {}", PARTITIONS / 2));
    process.signal("-STOP");
    until(&table, "the frozen one's too", is_shared_by(&["other"])).await;
    process.signal("-CONT");
    process.says(&format!("stopped with {}", PARTITIONS / 2));
    process.says("holds 0");
    process.says(&format!("holds {}", PARTITIONS / 2));
    until(&table, "half again", |holders| {
        holders.len() == PARTITIONS as usize / 2
    })
    .await;
    drop(process);
    until(&table, "after a kill", is_shared_by(&["other"])).await;
    other.leave().await;
}
