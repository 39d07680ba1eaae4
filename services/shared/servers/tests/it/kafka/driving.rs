//! The consumer loop over the real log and a real group: members come and go, and every input has its
//! answer.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anamnesis_domain::ids::OwnerKey;
use anamnesis_domain::input::Topic;
use anamnesis_domain::time::Timestamp;
use anamnesis_pipeline::clock::SystemClock;
use anamnesis_pipeline::consumer::{Consumer, Running, Stage, StageError};
use anamnesis_pipeline::log::{EventLog, Log, NewRecord, Record};
use anamnesis_servers::kafka::{DriveError, GroupConfig, Membership};
use async_trait::async_trait;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::broker::{Prefix, read_all, records, shared_brokers, text};

const PARTITIONS: u32 = 4;

/// Answers each conversation record with one candidates record, and finds its position in its own
/// output: one more than the largest input that is answered there.
struct Echo(Log);

struct Echoing {
    log: Log,
    partition: u32,
    next: u64,
}

#[async_trait]
impl Stage for Echo {
    fn name(&self) -> &'static str {
        "echo"
    }

    async fn begin(&self, partition: u32, _: Timestamp) -> Result<Box<dyn Running>, StageError> {
        let (mut from, mut next) = (1, 1);
        let end = self.0.end(Topic::Candidates, partition).await?;
        while from < end {
            let read = self
                .0
                .read(Topic::Candidates, partition, from, 500, 1 << 20)
                .await?;
            from += read.len() as u64;
            for record in read {
                next = next.max(answered(&record) + 1);
            }
        }
        Ok(Box::new(Echoing {
            log: self.0.clone(),
            partition,
            next,
        }))
    }
}

fn answered(record: &Record) -> u64 {
    text(record).parse().unwrap()
}

#[async_trait]
impl Running for Echoing {
    fn positions(&self) -> Vec<(Topic, u64)> {
        vec![(Topic::Conversation, self.next)]
    }

    async fn step(&mut self, records: Vec<Record>, _: Timestamp) -> Result<(), StageError> {
        let answers: Vec<String> = records
            .iter()
            .map(|r| r.position.offset.to_string())
            .collect();
        let answers: Vec<NewRecord> = super::broker::records(&answers);
        self.log
            .append(Topic::Candidates, self.partition, answers)
            .await?;
        self.next += records.len() as u64;
        Ok(())
    }

    async fn idle(&mut self, _: Timestamp) -> Result<(), StageError> {
        Ok(())
    }

    fn parked(&self) -> Vec<OwnerKey> {
        Vec::new()
    }
}

struct Process {
    shutdown: CancellationToken,
    task: JoinHandle<Result<(), DriveError<StageError>>>,
}

impl Process {
    async fn start(prefix: &Prefix) -> Self {
        let log: Log = prefix.connect().await;
        let group = GroupConfig {
            session_timeout: Duration::from_secs(3),
            ..GroupConfig::default()
        };
        let member = Membership::join(&prefix.config, &group, "echo").unwrap();
        let shutdown = CancellationToken::new();
        let stopped = shutdown.clone();
        let task = tokio::spawn(async move {
            let start = |lease: Arc<anamnesis_servers::kafka::Lease>| {
                let stage = Arc::new(Echo(log.clone()));
                let consumer =
                    Consumer::new(log.clone(), stage, lease.partition(), Arc::new(SystemClock));
                async move {
                    let token = CancellationToken::new();
                    let mut running = tokio::spawn(consumer.run(token.clone()));
                    tokio::select! {
                        ended = &mut running => return ended.unwrap(),
                        () = lease.revoked() => token.cancel(),
                    }
                    running.await.unwrap()
                }
            };
            member.drive(start, stopped.cancelled_owned()).await
        });
        Self { shutdown, task }
    }

    async fn stop(self) {
        self.shutdown.cancel();
        let ended = self.task.await.unwrap();
        assert!(ended.is_ok(), "{ended:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn members_that_come_and_go_leave_no_input_without_an_answer() {
    let prefix = Prefix::new(&shared_brokers(), PARTITIONS);
    let log = prefix.log().await;
    let first = Process::start(&prefix).await;
    let mut others = Vec::new();
    const ROUNDS: usize = 24;
    for round in 0..ROUNDS {
        for partition in 0..PARTITIONS {
            let texts: Vec<String> = (0..20).map(|n| format!("{round}/{n}")).collect();
            log.append(Topic::Conversation, partition, records(&texts))
                .await
                .unwrap();
        }
        match round % 6 {
            1 => others.push(Process::start(&prefix).await),
            4 => others.pop().unwrap().stop().await,
            _ => (),
        }
    }
    let expected: BTreeSet<u64> = (1..=(ROUNDS * 20) as u64).collect();
    let deadline = Instant::now() + Duration::from_secs(60);
    for partition in 0..PARTITIONS {
        let found = loop {
            let answers = read_all(&*log, Topic::Candidates, partition, 1).await;
            let found: BTreeSet<u64> = answers.iter().map(answered).collect();
            if found == expected || Instant::now() > deadline {
                println!(
                    "partition {partition}: {} answers to {} inputs",
                    answers.len(),
                    expected.len()
                );
                break found;
            }
            let end = answers.len() as u64 + 1;
            log.wait_beyond(Topic::Candidates, partition, end, Duration::from_secs(1))
                .await
                .unwrap();
        };
        assert_eq!(found, expected, "partition {partition}");
    }
    first.stop().await;
    for other in others {
        other.stop().await;
    }
}
