//! `topics …`: makes the topics of the log, says what differs from what they must be, and lets reading of
//! `inbox` go on behind what is lost.

use anamnesis_intake::inbox::InboxReader;
use anamnesis_pipeline::clock::SystemClock;
use anamnesis_servers::kafka::{KafkaConfig, Topics, check_topics, create_topics};

use crate::cli::{Exit, TopicsCommand};
use crate::config::{Config, LogConfig};
use crate::failure::Failure;
use crate::node::Node;

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
        TopicsCommand::GiveUpLost(_) => give_up_lost(config).await,
    }
}

/// # Errors
/// When a partition of `inbox` ends before what was read of it: then it is another topic.
async fn give_up_lost(config: Config) -> Result<Exit, Failure> {
    let node = Node::open_tool(config).await?;
    let (Some(inbox), Some(kafka)) = (&node.config.inbox, &node.kafka) else {
        return Err(Failure::wrong_use(
            "nothing of inbox is read: configure [inbox]",
        ));
    };
    let caller = inbox.caller().map_err(Failure::wrong_use)?;
    let reader = InboxReader::new(kafka.clone(), node.intake(), caller);
    for partition in 0..reader.partitions() {
        let lost = reader.give_up_lost(partition).await?;
        if lost.is_empty() {
            crate::say!("inbox-{partition}: nothing is lost");
        } else {
            crate::say!(
                "inbox-{partition}: {}..{} is given up; intake goes on at {}",
                lost.start,
                lost.end,
                lost.end
            );
        }
    }
    Ok(Exit::Fine)
}

async fn create(kafka: &KafkaConfig) -> Result<Exit, Failure> {
    let identity = create_topics(kafka, &Topics::of(kafka)?, &SystemClock).await?;
    crate::say!(
        "the topics {}* are as they must be: log {}, {} partitions",
        kafka.topic_prefix,
        identity.log_id,
        identity.partitions
    );
    Ok(Exit::Fine)
}

async fn check(kafka: &KafkaConfig) -> Result<Exit, Failure> {
    let differences = check_topics(kafka, &Topics::of(kafka)?).await?;
    for difference in &differences {
        crate::say!("{difference}");
    }
    if differences.is_empty() {
        crate::say!("the topics {}* are as they must be", kafka.topic_prefix);
        return Ok(Exit::Fine);
    }
    Ok(Exit::DoesNotHold)
}
