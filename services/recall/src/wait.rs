//! Has what the caller wrote been decided and stored yet?

use std::time::Duration;

use anamnesis_domain::ids::EventTag;
use anamnesis_domain::input::{Position, Topic};
use anamnesis_domain::owner::OwnerScope;
use anamnesis_pipeline::codec::{Clear, read_clear};
use anamnesis_pipeline::log::partition_of;
use tokio::time::{Instant, sleep};

use crate::request::WaitFor;
use crate::service::{Parts, RecallError};

/// Pause before the second look: a decision takes some milliseconds to arrive. Each later one is half as
/// long again.
const PAUSE: Duration = Duration::from_millis(5);
const PAUSE_MAX: Duration = Duration::from_millis(50);

/// True when the authority has it; false when it did not come in time. What belongs to another owner
/// never comes, and looks like what is late.
pub(crate) async fn until(
    parts: &Parts,
    scope: OwnerScope,
    wait_for: WaitFor,
    at_most: Duration,
) -> Result<bool, RecallError> {
    let deadline = Instant::now() + at_most;
    let mut pause = PAUSE;
    loop {
        if has_arrived(parts, scope, wait_for).await? {
            return Ok(true);
        }
        if Instant::now() + pause > deadline {
            return Ok(false);
        }
        sleep(pause).await;
        pause = (pause * 3 / 2).min(PAUSE_MAX);
    }
}

async fn has_arrived(
    parts: &Parts,
    scope: OwnerScope,
    wait_for: WaitFor,
) -> Result<bool, RecallError> {
    match wait_for {
        WaitFor::Event(event) => Ok(parts.stores.records.decision(scope, event).await?.is_some()),
        WaitFor::Position(position) => position_has_arrived(parts, scope, position).await,
    }
}

async fn position_has_arrived(
    parts: &Parts,
    scope: OwnerScope,
    position: Position,
) -> Result<bool, RecallError> {
    if position.partition != partition_of(scope.key(), parts.log.partitions()) {
        return Ok(false);
    }
    match position.topic {
        Topic::Memories => {
            let checkpoint = parts.stores.records.checkpoint(position.partition).await?;
            Ok(checkpoint.is_some_and(|checkpoint| checkpoint.next > position.offset))
        }
        Topic::Conversation | Topic::Candidates | Topic::Commands => {
            match event_at(parts, scope, position).await? {
                Some(event) => Ok(parts.stores.records.decision(scope, event).await?.is_some()),
                None => Ok(false),
            }
        }
        Topic::Inbox
        | Topic::Quarantine
        | Topic::Embeddings
        | Topic::Accesses
        | Topic::Receipts
        | Topic::Schemas => Ok(false),
    }
}

/// The event of an input of this owner; `None` for a record of another owner, or for none.
async fn event_at(
    parts: &Parts,
    scope: OwnerScope,
    position: Position,
) -> Result<Option<EventTag>, RecallError> {
    let Position {
        topic,
        partition,
        offset,
    } = position;
    let end = parts.log.end(topic, partition).await?;
    if offset >= end || offset < parts.log.start(topic, partition).await? {
        return Ok(None);
    }
    let records = parts.log.read_at(topic, partition, &[offset]).await?;
    let Some(record) = records.first().filter(|record| record.key == scope.key()) else {
        return Ok(None);
    };
    // What cannot be read is not decided soon; the wait ends by its own bound.
    match read_clear(&record.payload) {
        Ok(Clear::Input { event, .. }) => Ok(Some(event)),
        Ok(
            Clear::Identity(_)
            | Clear::WriterStarted { .. }
            | Clear::Decided(_)
            | Clear::Parked(_)
            | Clear::Unparked(_)
            | Clear::Other,
        )
        | Err(_) => Ok(None),
    }
}
