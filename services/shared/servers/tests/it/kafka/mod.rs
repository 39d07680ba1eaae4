//! The log over a real Kafka broker: the contract, and what only a cluster can do wrong.

mod assignment;
pub(crate) mod broker;
mod driving;
mod faults;
mod foreign;
mod inbox;
mod secure;
mod speed;
mod topics;

use std::sync::{Arc, Mutex};

use anamnesis_pipeline::clock::Clock;
use anamnesis_pipeline::conformance::log::LogBackend;
use anamnesis_pipeline::log::Log;
use anamnesis_servers::kafka::{KafkaLog, create_topics};
use async_trait::async_trait;

use broker::{Prefix, shared_brokers, topics_with_sender_time};

/// Every log in topics of its own, whose times are the sender's, so that the suite can set the clock
/// back; everything else is as in production.
#[derive(Default)]
struct Kafka {
    made: Mutex<Vec<Prefix>>,
}

#[async_trait]
impl LogBackend for Kafka {
    async fn make(&self, clock: Arc<dyn Clock>, partitions: u32) -> Log {
        let prefix = Prefix::new(&shared_brokers(), partitions);
        let topics = topics_with_sender_time(&prefix.config);
        create_topics(&prefix.config, &topics, &*clock)
            .await
            .unwrap();
        let log = KafkaLog::connect(&prefix.config, &topics, clock)
            .await
            .unwrap();
        self.made.lock().unwrap().push(prefix);
        Arc::new(log)
    }

    async fn restart(&self, log: Log, clock: Arc<dyn Clock>) -> Log {
        drop(log);
        let mut config = self.made.lock().unwrap().last().unwrap().config.clone();
        // Other partitions are asked for: a log that is there keeps its own.
        config.partitions = Some(7);
        let topics = topics_with_sender_time(&config);
        Arc::new(KafkaLog::connect(&config, &topics, clock).await.unwrap())
    }
}

anamnesis_pipeline::log_conformance!(Kafka::default());
