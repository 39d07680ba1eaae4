//! Puts a command on the log, once per idempotency key.

use anamnesis_domain::ids::{EventTag, Hash, OwnerKey};
use anamnesis_domain::input::{Command, CommandRecord, Position, Topic};
use anamnesis_domain::owner::OwnerScope;
use anamnesis_domain::time::Timestamp;
use anamnesis_pipeline::codec::{Clear, Opened, read_clear};
use anamnesis_pipeline::log::{Record, partition_of};
use anamnesis_pipeline::problem::Problem;

use super::{API_SOURCE, Order, Ordered, invalid};
use crate::caps;
use crate::metrics;
use crate::service::{Intake, IntakeError};

/// How far back a repeated command is looked for when it is not decided yet.
const IN_FLIGHT_RECORDS: u64 = 500;

/// What every command of one call shares.
pub(super) struct Envelope {
    pub(super) scope: OwnerScope,
    pub(super) key: OwnerKey,
    pub(super) source: String,
    pub(super) event_id: String,
    pub(super) event: EventTag,
    pub(super) at: Timestamp,
}

impl Intake {
    pub(super) async fn plain(
        &self,
        order: &Order<'_>,
        scope: OwnerScope,
        build: impl Fn(Timestamp) -> Command,
    ) -> Result<Ordered, IntakeError> {
        self.plain_from(order, scope, API_SOURCE, build).await
    }

    /// As `plain`, from a source of its own.
    pub(super) async fn plain_from(
        &self,
        order: &Order<'_>,
        scope: OwnerScope,
        source: &str,
        build: impl Fn(Timestamp) -> Command,
    ) -> Result<Ordered, IntakeError> {
        let envelope = self.envelope(order, scope, source)?;
        let position = self.order(order, &envelope, build).await?;
        Ok(Ordered {
            scope,
            event: envelope.event,
            position,
            memory_id: None,
            erasure: None,
        })
    }

    pub(super) fn envelope(
        &self,
        order: &Order<'_>,
        scope: OwnerScope,
        source: &str,
    ) -> Result<Envelope, IntakeError> {
        if source.is_empty() || source.len() > caps::ID_BYTES_MAX {
            return Err(invalid("source", "a name of at most 1024 bytes"));
        }
        let event_id = match order.key {
            Some(key) if key.is_empty() || key.len() > caps::ID_BYTES_MAX => {
                return Err(invalid("idempotency-key", "1 to 1024 bytes"));
            }
            Some(key) => key.to_owned(),
            None => random_id()?,
        };
        let key = scope.key();
        Ok(Envelope {
            scope,
            key,
            event: self.ids().event(key, source, &event_id, ""),
            source: source.to_owned(),
            event_id,
            at: self.now(),
        })
    }

    /// Appends the command, unless the same one under the same id is there already.
    pub(super) async fn order(
        &self,
        order: &Order<'_>,
        envelope: &Envelope,
        build: impl Fn(Timestamp) -> Command,
    ) -> Result<Position, IntakeError> {
        if order.key.is_some()
            && let Some(position) = self.earlier(envelope, &build).await?
        {
            return Ok(position);
        }
        let command = build(envelope.at);
        let code = command.code();
        let record = CommandRecord {
            owner: order.owner.clone(),
            event: envelope.event,
            source_tag: self.ids().source(envelope.key, &envelope.source),
            source: envelope.source.clone(),
            event_id: envelope.event_id.clone(),
            actor: order.caller.name.clone(),
            at: envelope.at,
            zone_minutes: 0,
            command,
        };
        let sealed = self.codec.seal_commands(&[record]).await?;
        let positions = self.append(Topic::Commands, sealed).await?;
        metrics::command(code);
        Ok(positions[0])
    }

    /// The command that was given under this id before: the same one answers again; another one is a
    /// conflict.
    async fn earlier(
        &self,
        envelope: &Envelope,
        build: impl Fn(Timestamp) -> Command,
    ) -> Result<Option<Position>, IntakeError> {
        let conflict = || {
            let detail = "this idempotency-key was used for another write; use a new one";
            IntakeError::from(Problem::new(409, "id_reused", detail).at("idempotency-key"))
        };
        let record = match self
            .records
            .decision(envelope.scope, envelope.event)
            .await?
        {
            Some(decision) if decision.cause.topic != Topic::Commands => return Err(conflict()),
            Some(decision) => {
                let Position {
                    topic,
                    partition,
                    offset,
                } = decision.cause;
                self.log
                    .read_at(topic, partition, &[offset])
                    .await?
                    .into_iter()
                    .next()
            }
            None => self.in_flight(envelope).await?,
        };
        let Some(record) = record else {
            return Ok(None);
        };
        let position = record.position;
        match self.codec.open(&[record]).await?.into_iter().next() {
            Some(Ok(Opened::Command { command, .. })) if command.command == build(command.at) => {
                Ok(Some(position))
            }
            // Erased meanwhile: what it said cannot be compared, and it is not done again.
            Some(Ok(Opened::Erased { .. })) => Ok(Some(position)),
            Some(_) | None => Err(conflict()),
        }
    }

    /// The first record of this event among the newest commands, which may not be decided yet. An
    /// older one that this misses is caught by the manager, where the first wins.
    async fn in_flight(&self, envelope: &Envelope) -> Result<Option<Record>, IntakeError> {
        let partition = partition_of(envelope.key, self.log.partitions());
        let end = self.log.end(Topic::Commands, partition).await?;
        let start = self.log.start(Topic::Commands, partition).await?;
        let mut next = end.saturating_sub(IN_FLIGHT_RECORDS).max(start);
        while next < end {
            let batch = self
                .log
                .read(
                    Topic::Commands,
                    partition,
                    next,
                    IN_FLIGHT_RECORDS as usize,
                    8 << 20,
                )
                .await?;
            let Some(last) = batch.last() else { break };
            next = last.position.offset + 1;
            let own = batch.into_iter().find(|record| {
                let is_it = matches!(
                    read_clear(&record.payload),
                    Ok(Clear::Input { event, .. }) if event == envelope.event
                );
                record.key == envelope.key && is_it
            });
            if own.is_some() {
                return Ok(own);
            }
        }
        Ok(None)
    }
}

fn random_id() -> Result<String, IntakeError> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).map_err(|_| IntakeError::NoRandomness)?;
    let hex = Hash::of(&bytes).to_string();
    Ok(format!("c-{}", &hex[..32]))
}
