//! How is a log made on a cluster, so that two who do it at once make one log, and one who was killed in
//! the middle is finished by the next?
//!
//! 1. The topics that are missing are created; whoever comes second is told that they exist.
//! 2. The first partition of `schemas` decides: the identity record that got offset 0 there is the
//!    log's, whoever wrote it.
//! 3. The same record goes to offset 0 of every other partition, `memories` last.
//!
//! Whoever did not create the topics waits as long as somebody makes progress. When both write all the
//! same, the second record lies behind the first, and readers pass over it.
//!
//! A log in which anything was said is never filled up: an empty or missing partition then is a loss,
//! and is named.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anamnesis_domain::ids::LogId;
use anamnesis_domain::input::Topic;
use anamnesis_pipeline::clock::Clock;
use anamnesis_pipeline::log::{Identity, LogError, NewRecord};
use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, TopicReplication};
use rdkafka::error::{KafkaError, RDKafkaErrorCode as Code};

use super::client::{Asker, Context, number};
use super::config::KafkaConfig;
use super::place::Place;
use super::record::NOBODY;
use super::survey::{Held, Survey, expected_first};
use super::topics::{Difference, Topics, What, refusal};
use super::writer::Writer;

const DECISIVE: Topic = Topic::Schemas;

/// Somebody else who creates is given up after so long without progress.
const PROGRESS_MAX: Duration = Duration::from_secs(3);

/// Between two looks at what somebody else does.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// Makes what is missing, and gives the identity of the log.
///
/// # Errors
/// [`LogError::Unusable`] names everything that is there and is not as it must be.
pub async fn create_topics(
    config: &KafkaConfig,
    topics: &Topics,
    clock: &dyn Clock,
) -> Result<Identity, LogError> {
    let asker = Asker::new(config, config.connect_timeout)?;
    let admin = admin(config)?;
    let survey = Survey::take(config, topics, &asker, &admin).await?;
    refuse_unless_unfinished(config, &survey)?;
    let is_creator = create_missing(config, topics, &survey, &admin, &asker).await?;
    wait_for_leaders(config, topics, &asker).await?;
    fill(config, topics, clock, &asker, &admin, is_creator).await
}

/// What differs, each by name; nothing when the log can be used.
///
/// # Errors
/// [`LogError::Unavailable`] when the cluster does not answer.
pub async fn check_topics(
    config: &KafkaConfig,
    topics: &Topics,
) -> Result<Vec<Difference>, LogError> {
    let asker = Asker::new(config, config.connect_timeout)?;
    let survey = Survey::take(config, topics, &asker, &admin(config)?).await?;
    let mut differences = survey.differences;
    if let (Some(asked), Some(identity)) = (config.partitions, survey.identity)
        && asked != identity.partitions
    {
        differences.push(Difference {
            name: config.topic_name(Topic::Memories),
            topic: Topic::Memories,
            what: What::Partitions {
                found: identity.partitions,
                expected: asked,
            },
        });
    }
    Ok(differences)
}

pub(super) fn admin(config: &KafkaConfig) -> Result<AdminClient<Context>, LogError> {
    config
        .base()?
        .create_with_context(Context::default())
        .map_err(|error| config.refused(&error))
}

/// Only what creation itself does may be missing, and only while nothing was said.
fn refuse_unless_unfinished(config: &KafkaConfig, survey: &Survey) -> Result<(), LogError> {
    let is_unfinished = |difference: &&Difference| {
        matches!(
            difference.what,
            What::Missing | What::IdentityMissing { .. }
        )
    };
    let differences = &survey.differences;
    let is_used =
        |held: &Held| held.topic != DECISIVE && (held.bounds.end > 1 || held.bounds.start > 0);
    let has_others = !differences
        .iter()
        .all(|difference| is_unfinished(&difference));
    let is_in_use = survey.held.iter().any(is_used);
    let is_other_count = config
        .partitions
        .zip(survey.identity)
        .filter(|(asked, identity)| *asked != identity.partitions);
    if let Some((asked, identity)) = is_other_count {
        return Err(LogError::Unusable {
            what: format!(
                "the log {} has {} partitions, and {asked} are configured",
                identity.log_id, identity.partitions
            ),
        });
    }
    if has_others || (is_in_use && !differences.is_empty()) {
        return Err(refusal(differences));
    }
    Ok(())
}

/// Whether it was this call that made the topic that decides.
async fn create_missing(
    config: &KafkaConfig,
    topics: &Topics,
    survey: &Survey,
    admin: &AdminClient<Context>,
    asker: &Asker,
) -> Result<bool, LogError> {
    let partitions = survey
        .identity
        .map_or(topics.partitions, |log| log.partitions);
    let missing: Vec<_> = topics
        .topics
        .iter()
        .filter(|plan| {
            let is_it = |d: &Difference| d.topic == plan.topic && d.what == What::Missing;
            survey.differences.iter().any(is_it)
        })
        .map(|plan| (config.topic_name(plan.topic), plan, topics.settings(plan)))
        .collect();
    if missing.is_empty() {
        return Ok(false);
    }
    let new: Vec<NewTopic<'_>> = missing
        .iter()
        .map(|(name, plan, settings)| NewTopic {
            name,
            num_partitions: number(topics.partitions_of(plan.topic, partitions)),
            replication: TopicReplication::Fixed(i32::from(topics.replication_factor)),
            config: settings
                .iter()
                .map(|(name, value)| (*name, value.as_str()))
                .collect(),
        })
        .collect();
    let options = AdminOptions::new()
        .request_timeout(Some(config.connect_timeout))
        .operation_timeout(Some(config.connect_timeout));
    let made = admin
        .create_topics(new.iter(), &options)
        .await
        .map_err(|error| asker.explain(&error))?;
    let mut is_creator = false;
    for result in made {
        match result {
            Ok(name) => is_creator |= name == config.topic_name(DECISIVE),
            Err((_, Code::TopicAlreadyExists)) => (),
            Err((name, code)) => return Err(not_made(&name, code, asker)),
        }
    }
    Ok(is_creator)
}

fn not_made(name: &str, code: Code, asker: &Asker) -> LogError {
    const LASTING: [Code; 5] = [
        Code::InvalidReplicationFactor,
        Code::InvalidPartitions,
        Code::InvalidConfig,
        Code::InvalidTopic,
        Code::PolicyViolation,
    ];
    if LASTING.contains(&code) {
        return LogError::Unusable {
            what: format!("topic {name} cannot be created: {code}"),
        };
    }
    asker.explain(&KafkaError::AdminOp(code))
}

/// A topic exists before its partitions can be written.
async fn wait_for_leaders(
    config: &KafkaConfig,
    topics: &Topics,
    asker: &Asker,
) -> Result<(), LogError> {
    let deadline = Instant::now() + config.connect_timeout;
    loop {
        let names: Vec<String> = topics
            .topics
            .iter()
            .map(|plan| config.topic_name(plan.topic))
            .collect();
        let count = names.len();
        let found = asker.topics(names).await?;
        if found.len() == count && found.values().all(|topic| topic.is_led) {
            return Ok(());
        }
        if Instant::now() > deadline {
            return Err(LogError::Unavailable {
                reason: "the new topics have no leaders yet".to_owned(),
            });
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

async fn fill(
    config: &KafkaConfig,
    topics: &Topics,
    clock: &dyn Clock,
    asker: &Asker,
    admin: &AdminClient<Context>,
    mut is_my_turn: bool,
) -> Result<Identity, LogError> {
    let writer = Writer::new(config)?;
    let mut progress = (usize::MAX, Instant::now());
    loop {
        let survey = Survey::take(config, topics, asker, admin).await?;
        refuse_unless_unfinished(config, &survey)?;
        let empty: Vec<&Held> = survey
            .held
            .iter()
            .filter(|held| held.bounds.end == 0)
            .collect();
        if let (Some(identity), true) = (survey.identity, survey.differences.is_empty()) {
            return Ok(identity);
        }
        if empty.len() != progress.0 {
            progress = (empty.len(), Instant::now());
        }
        is_my_turn |= progress.1.elapsed() > PROGRESS_MAX;
        if !is_my_turn {
            tokio::time::sleep(LOOK_EVERY).await;
            continue;
        }
        let (partitions, decisive) = match survey.identity {
            Some(identity) => (identity.partitions, None),
            None => (topics.partitions, Some(DECISIVE)),
        };
        let identity = match survey.identity {
            Some(identity) => identity,
            None => Identity {
                log_id: random_id()?,
                created_at: clock.now(),
                partitions,
            },
        };
        let wanted = |held: &&&Held| decisive.is_none_or(|topic| held.topic == topic);
        let (last, first): (Vec<&Held>, Vec<&Held>) = empty
            .iter()
            .filter(wanted)
            .partition(|held| held.topic == Topic::Memories);
        for group in [first, last] {
            let appends = group
                .into_iter()
                .map(|held| write(config, &writer, held, identity));
            futures::future::try_join_all(appends).await?;
        }
    }
}

async fn write(
    config: &KafkaConfig,
    writer: &Writer,
    held: &Held,
    identity: Identity,
) -> Result<(), LogError> {
    let name = config.topic_name(held.topic);
    let place = Arc::new(Place::new(held.topic, held.partition, name));
    let record = NewRecord {
        key: NOBODY,
        payload: expected_first(&identity, held.topic),
    };
    writer
        .append(&place, identity.created_at, &[record])
        .await?;
    Ok(())
}

fn random_id() -> Result<LogId, LogError> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).map_err(|error| LogError::Unavailable {
        reason: error.to_string(),
    })?;
    Ok(LogId::from_bytes(bytes))
}
