//! `topics create|check`: makes the topics of the log, or says what differs from what they must be.

use anamnesis_pipeline::clock::SystemClock;
use anamnesis_servers::kafka::{KafkaConfig, Topics, check_topics, create_topics};

use crate::cli::{Exit, TopicsCommand};
use crate::config::{Config, LogConfig};
use crate::failure::Failure;

/// # Errors
/// When the configuration names no Kafka, the cluster does not answer, or a topic is there and is not
/// as it must be.
pub async fn run(config: Config, command: TopicsCommand) -> Result<Exit, Failure> {
    let LogConfig::Kafka(kafka) = &config.log else {
        return Err(Failure::wrong_use(
            "topics are of a log in Kafka: configure [log] with kind = \"kafka\" and brokers",
        ));
    };
    match command {
        TopicsCommand::Create => create(kafka).await,
        TopicsCommand::Check => check(kafka).await,
    }
}

async fn create(kafka: &KafkaConfig) -> Result<Exit, Failure> {
    let identity = create_topics(kafka, &Topics::of(kafka)?, &SystemClock).await?;
    println!(
        "the topics {}* are as they must be: log {}, {} partitions",
        kafka.topic_prefix, identity.log_id, identity.partitions
    );
    Ok(Exit::Fine)
}

async fn check(kafka: &KafkaConfig) -> Result<Exit, Failure> {
    let differences = check_topics(kafka, &Topics::of(kafka)?).await?;
    for difference in &differences {
        println!("{difference}");
    }
    if differences.is_empty() {
        println!("the topics {}* are as they must be", kafka.topic_prefix);
        return Ok(Exit::Fine);
    }
    Ok(Exit::DoesNotHold)
}
