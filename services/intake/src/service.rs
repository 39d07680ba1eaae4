//! The shell: checks scope and consent, redacts, seals, appends. What it answers is durable.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use anamnesis_domain::ids::{EventTag, IdKey, OwnerKey};
use anamnesis_domain::input::{Position, StructuredClaim, Topic, Turn};
use anamnesis_domain::memory::Claim;
use anamnesis_domain::owner::{Owner, OwnerScope};
use anamnesis_domain::state::OwnerState;
use anamnesis_domain::text::Text;
use anamnesis_domain::time::Timestamp;
use anamnesis_pipeline::caller::Caller;
use anamnesis_pipeline::clock::Clock;
use anamnesis_pipeline::codec::{Codec, CodecError, Opened};
use anamnesis_pipeline::keyring::KeyringError;
use anamnesis_pipeline::log::{Appended, Log, LogError, NewRecord, Record, partition_of};
use anamnesis_pipeline::problem::Problem;
use anamnesis_pipeline::reviews::EXPIRES_MILLIS;
use anamnesis_pipeline::stores::{DecisionRow, OwnerView, Records, StoreError};
use futures::future::join_all;
use futures::stream::{self, StreamExt as _, TryStreamExt as _};
use serde::Serialize;
use serde_json::Value;
use tracing::{error, info};

use crate::caps;
use crate::message::{Message, Rejected};
use crate::metrics;
use crate::normalise::{Context, normalise_each};
use crate::redact::{Redacted, redact};

/// Pause before the second look for a decision, which takes some milliseconds to arrive. Each later one
/// is half as long again: what does not come soon is asked for less often.
const PAUSE: Duration = Duration::from_millis(5);
const PAUSE_MAX: Duration = Duration::from_millis(50);

/// Owners whose consent is looked up at the same time.
const OWNERS_AT_ONCE: usize = 32;

/// Records and bytes of one read of the quarantine.
const READ_RECORDS_MAX: usize = 500;
const READ_BYTES_MAX: usize = 8 << 20;

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Settings {
    /// Whether a patient must have agreed before anything is stored (`consent.default = required`).
    pub consent_required: bool,
    /// How long a message without consent waits for a grant.
    pub quarantine_millis: i64,
    /// Longest wait of one call for what it wrote to be decided and stored.
    pub wait_millis_max: u64,
    /// How long a question to a person stays open.
    pub review_expires_millis: i64,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            consent_required: true,
            quarantine_millis: caps::QUARANTINE_MILLIS,
            wait_millis_max: 10_000,
            review_expires_millis: EXPIRES_MILLIS,
        }
    }
}

/// The write side of the API, used by HTTP, `import` and `demo` alike.
pub struct Intake {
    pub log: Log,
    pub codec: Codec,
    pub records: Arc<dyn Records>,
    pub clock: Arc<dyn Clock>,
    pub reader: Arc<dyn StatementReader>,
    pub settings: Settings,
}

/// Reads explicit writes with the vocabulary of extraction, so that "Patient is allergic to latex" is
/// comparable with what was said in conversation.
pub trait StatementReader: Send + Sync {
    /// What the turn states, in comparable form.
    fn read(&self, turn: &Turn) -> Vec<Claim>;
}

/// Nothing was accepted, or not all of it: sending the same again is safe.
#[derive(Debug, thiserror::Error)]
pub enum IntakeError {
    #[error(transparent)]
    Log(#[from] LogError),
    #[error(transparent)]
    Codec(#[from] CodecError),
    #[error(transparent)]
    Keyring(#[from] KeyringError),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("the machine gives no random bytes")]
    NoRandomness,
    /// The caller's mistake.
    #[error("{0}")]
    Refused(Box<Problem>),
}

impl From<Problem> for IntakeError {
    fn from(problem: Problem) -> Self {
        Self::Refused(Box::new(problem))
    }
}

impl IntakeError {
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Log(error) => error.is_retryable(),
            Self::Codec(error) => error.is_retryable(),
            Self::Keyring(error) => error.is_retryable(),
            Self::Store(error) => error.is_retryable(),
            Self::NoRandomness => true,
            Self::Refused(_) => false,
        }
    }

    /// What the caller is told. The journey of the error ends here, so it is logged here.
    pub fn into_problem(self) -> Problem {
        if let Self::Refused(problem) = self {
            return *problem;
        }
        error!(error = %self, "a write was not accepted");
        if self.is_retryable() {
            Problem::unavailable(
                "nothing was confirmed; send the same again, it is not stored twice",
            )
        } else {
            Problem::new(
                500,
                "internal",
                "the write was not accepted; the operator's log says why",
            )
        }
    }
}

/// One message that is durable.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Accepted {
    /// `event`, or `event#message`.
    pub event_id: String,
    /// Names the message's decision: recall's `wait_for` takes it.
    pub token: EventTag,
    pub position: Position,
    /// Waits for a grant, at most 72 hours.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub quarantined: bool,
    /// Whose it is, to wait for it.
    #[serde(skip)]
    pub scope: OwnerScope,
}

/// One event that was turned down; the others of the batch are not affected.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct RejectedEvent {
    /// Place in the batch, from 0.
    pub index: usize,
    pub code: &'static str,
    pub detail: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub field: Option<String>,
}

#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct AcceptAnswer {
    pub accepted: Vec<Accepted>,
    pub rejected: Vec<RejectedEvent>,
}

impl AcceptAnswer {
    fn reject(&mut self, index: usize, rejected: Rejected) {
        metrics::rejected(rejected.code);
        let Rejected {
            code,
            field,
            detail,
        } = rejected;
        self.rejected.push(RejectedEvent {
            index,
            code,
            detail,
            field,
        });
    }
}

/// A message on its way to a topic.
struct Admitted {
    /// Place in the answer.
    place: usize,
    key: OwnerKey,
    owner: Owner,
    turn: Turn,
}

impl Intake {
    pub fn ids(&self) -> &IdKey {
        self.codec.keys().id_key()
    }

    pub fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// Accepts events of any shape. `event_id` names an event that brings no id of its own.
    ///
    /// # Errors
    /// When something could not be made durable; what is wrong with an event is in the answer.
    pub async fn accept_values(
        &self,
        caller: &Caller,
        values: &[Value],
        event_id: Option<&str>,
    ) -> Result<AcceptAnswer, IntakeError> {
        let mut context = Context::new(&caller.default_tenant, self.now());
        let mut answer = AcceptAnswer::default();
        let mut messages = Vec::new();
        for (index, value) in values.iter().enumerate() {
            context.event_id_default = event_id.map(|id| match values.len() {
                1 => id.to_owned(),
                _ => format!("{id}/{index}"),
            });
            for event in normalise_each(value, &context) {
                match event {
                    Ok(list) => messages.extend(list.into_iter().map(|message| (index, message))),
                    Err(rejected) => answer.reject(index, rejected),
                }
            }
        }
        self.admit(caller, messages, answer).await
    }

    /// Accepts messages that were read elsewhere (a file). A rejection's index is the message's.
    ///
    /// # Errors
    /// As [`Intake::accept_values`].
    pub async fn accept(
        &self,
        caller: &Caller,
        messages: Vec<Message>,
    ) -> Result<AcceptAnswer, IntakeError> {
        let numbered = messages.into_iter().enumerate().collect();
        self.admit(caller, numbered, AcceptAnswer::default()).await
    }

    /// Accepts messages that come with the number of their event.
    pub(crate) async fn admit(
        &self,
        caller: &Caller,
        messages: Vec<(usize, Message)>,
        mut answer: AcceptAnswer,
    ) -> Result<AcceptAnswer, IntakeError> {
        let mut admitted = Vec::new();
        for (index, message) in messages {
            let key = match caller.write_scope(&message.owner, self.ids()) {
                Ok(scope) => scope.key(),
                Err(problem) => {
                    // One event has one owner: one rejection speaks for all its messages.
                    if answer
                        .rejected
                        .last()
                        .is_none_or(|last| last.index != index)
                    {
                        answer.reject(index, not_covered(&problem));
                    }
                    continue;
                }
            };
            let place = admitted.len();
            let owner = message.owner.clone();
            let event_id = message.public_id();
            let turn = self.redacted(message).into_turn(self.ids());
            admitted.push((
                event_id,
                Admitted {
                    place,
                    key,
                    owner,
                    turn,
                },
            ));
        }
        answer.rejected.sort_by_key(|rejected| rejected.index);

        let consents = self.consent_versions(&admitted).await?;
        let (event_ids, admitted): (Vec<String>, Vec<Admitted>) = admitted.into_iter().unzip();
        let tokens: Vec<(OwnerKey, EventTag)> = admitted
            .iter()
            .map(|message| (message.key, message.turn.event))
            .collect();
        let mut agreed = Vec::new();
        let mut waiting = Vec::new();
        for message in admitted {
            match consents[&message.key] {
                Some(version) => agreed.push((message, version)),
                None => waiting.push((message, 0)),
            }
        }
        let mut places: BTreeMap<usize, (Position, bool)> = BTreeMap::new();
        for (place, position) in self.write(Topic::Conversation, agreed, None).await? {
            places.insert(place, (position, false));
        }
        if !waiting.is_empty() {
            let owners: BTreeMap<OwnerKey, Owner> = waiting
                .iter()
                .map(|(message, _)| (message.key, message.owner.clone()))
                .collect();
            let expires_at = self.now().plus_millis(self.settings.quarantine_millis);
            for (place, position) in self
                .write(Topic::Quarantine, waiting, Some(expires_at))
                .await?
            {
                places.insert(place, (position, true));
            }
            // A grant may have become visible between the look and the append, and its own release
            // may have passed before the append.
            for (key, owner) in owners {
                if self.consent_version(key, &owner).await?.is_some() {
                    self.release_key(key, &owner).await?;
                }
            }
        }
        for (place, (event_id, (key, token))) in event_ids.into_iter().zip(tokens).enumerate() {
            let (position, quarantined) = places[&place];
            let scope = OwnerScope::of_verified_caller(key);
            answer.accepted.push(Accepted {
                event_id,
                token,
                position,
                quarantined,
                scope,
            });
        }
        Ok(answer)
    }

    /// Seals and appends, in order per owner, each message under the consent that it comes with. Gives
    /// each message's place in the answer.
    async fn write(
        &self,
        topic: Topic,
        messages: Vec<(Admitted, u64)>,
        expires_at: Option<Timestamp>,
    ) -> Result<Vec<(usize, Position)>, IntakeError> {
        let mut written = Vec::with_capacity(messages.len());
        let mut rest = messages.into_iter();
        loop {
            let chunk = rest.by_ref().take(caps::APPEND_RECORDS_MAX);
            let mut places = Vec::new();
            let mut versions = Vec::new();
            let mut turns = Vec::new();
            for (message, version) in chunk {
                places.push(message.place);
                versions.push(version);
                turns.push(message.turn);
            }
            if places.is_empty() {
                break;
            }
            let records = self.seal(&turns, &versions, expires_at).await?;
            let positions = self.append(topic, records).await?;
            written.extend(places.into_iter().zip(positions));
        }
        metrics::accepted(topic.as_str(), written.len());
        Ok(written)
    }

    async fn seal(
        &self,
        turns: &[Turn],
        consent_versions: &[u64],
        expires_at: Option<Timestamp>,
    ) -> Result<Vec<NewRecord>, IntakeError> {
        match self
            .codec
            .seal_consented(turns, consent_versions, expires_at)
            .await
        {
            // The owner was erased between the look for an open epoch and the new keys; what arrives
            // after an erasure belongs to the next epoch.
            Err(CodecError::Keyring(KeyringError::Destroyed)) => Ok(self
                .codec
                .seal_consented(turns, consent_versions, expires_at)
                .await?),
            sealed => Ok(sealed?),
        }
    }

    /// Appends records of any owners, in order per partition and in all partitions at once, and gives
    /// their positions in the order given.
    pub(crate) async fn append(
        &self,
        topic: Topic,
        records: Vec<NewRecord>,
    ) -> Result<Vec<Position>, IntakeError> {
        let partitions = self.log.partitions();
        let mut by_partition: BTreeMap<u32, (Vec<usize>, Vec<NewRecord>)> = BTreeMap::new();
        let count = records.len();
        for (place, record) in records.into_iter().enumerate() {
            let entry = by_partition
                .entry(partition_of(record.key, partitions))
                .or_default();
            entry.0.push(place);
            entry.1.push(record);
        }
        let mut positions: Vec<Option<Position>> = vec![None; count];
        let appends = by_partition
            .into_iter()
            .map(|(partition, (places, records))| async move {
                let appended = self.log.append(topic, partition, records).await;
                (places, appended)
            });
        // All of them are waited for, also when one fails: what is under way is not left alone.
        for (places, appended) in join_all(appends).await {
            let appended: Vec<Appended> = appended?;
            for (place, appended) in places.into_iter().zip(appended) {
                positions[place] = Some(appended.position);
            }
        }
        // An append that returned gives a position for each of its records.
        Ok(positions.into_iter().flatten().collect())
    }

    fn redacted(&self, mut message: Message) -> Message {
        let key = self.ids().owner(&message.owner);
        let redacted = self.redact(key, message.text.expose());
        message.injected = message
            .injected
            .iter()
            .map(|range| redacted.shift(*range))
            .collect();
        message.text = Text::new(redacted.text);
        message.speaker = message.speaker.map(|name| self.redact_text(key, &name));
        if let Some(claim) = &mut message.structured {
            self.redact_claim(key, claim);
        }
        message
    }

    /// The free words of a coded statement. A bare code stays: long ones look like the number of a card.
    fn redact_claim(&self, key: OwnerKey, claim: &mut StructuredClaim) {
        let words = |text: &str| {
            if text.chars().all(|c| c.is_ascii_digit()) {
                text.to_owned()
            } else {
                self.redact(key, text).text
            }
        };
        claim.code = words(&claim.code);
        for name in &mut claim.names {
            *name = words(name);
        }
        claim.dose = claim.dose.as_deref().map(words);
        if let Some(held) = &mut claim.held {
            held.text = Text::new(words(held.text.expose()));
        }
    }

    fn redact(&self, key: OwnerKey, text: &str) -> Redacted {
        let redacted = redact(text, |kind, value| self.ids().placeholder(key, kind, value));
        for span in &redacted.spans {
            metrics::redacted(span.kind);
        }
        redacted
    }

    pub(crate) fn redact_text(&self, key: OwnerKey, text: &Text) -> Text {
        Text::new(self.redact(key, text.expose()).text)
    }

    /// As [`Intake::consent_version`], for every owner among these messages.
    async fn consent_versions(
        &self,
        admitted: &[(String, Admitted)],
    ) -> Result<BTreeMap<OwnerKey, Option<u64>>, IntakeError> {
        let owners: BTreeMap<OwnerKey, &Owner> = admitted
            .iter()
            .map(|(_, message)| (message.key, &message.owner))
            .collect();
        let looks = owners.into_iter().map(|(key, owner)| async move {
            Ok::<_, IntakeError>((key, self.consent_version(key, owner).await?))
        });
        // The authority may be another process: not one look after the other.
        let looks: Vec<_> = looks.collect();
        stream::iter(looks)
            .buffer_unordered(OWNERS_AT_ONCE)
            .try_collect()
            .await
    }

    /// The consent that lets this owner's messages in: `None` when there is none. 0 when none is
    /// needed.
    async fn consent_version(
        &self,
        key: OwnerKey,
        owner: &Owner,
    ) -> Result<Option<u64>, IntakeError> {
        if !self.settings.consent_required || !OwnerState::needs_consent(owner) {
            return Ok(Some(0));
        }
        let view = self.records.owner(OwnerScope::of_log_record(key)).await?;
        Ok(view.and_then(|view| granted_version(&view, self.now())))
    }

    /// Lets in what waited for a grant of this owner. Gives how many messages.
    ///
    /// # Errors
    /// When log, keyring or store fail. A repeat is harmless: the first decision per event wins.
    pub async fn release(&self, owner: &Owner) -> Result<usize, IntakeError> {
        self.release_key(self.ids().owner(owner), owner).await
    }

    async fn release_key(&self, key: OwnerKey, owner: &Owner) -> Result<usize, IntakeError> {
        let Some(version) = self.consent_version(key, owner).await? else {
            return Ok(0);
        };
        let partition = partition_of(key, self.log.partitions());
        let mut next = self.log.start(Topic::Quarantine, partition).await?;
        let mut released = 0;
        loop {
            let batch = self
                .log
                .read(
                    Topic::Quarantine,
                    partition,
                    next,
                    READ_RECORDS_MAX,
                    READ_BYTES_MAX,
                )
                .await?;
            let Some(last) = batch.last() else { break };
            next = last.position.offset + 1;
            let own: Vec<Record> = batch
                .into_iter()
                .filter(|record| record.key == key)
                .collect();
            let turns = self.waiting(key, &own).await?;
            if turns.is_empty() {
                continue;
            }
            let versions = vec![version; turns.len()];
            let records = self.seal(&turns, &versions, None).await?;
            released += self.append(Topic::Conversation, records).await?.len();
        }
        metrics::released(released);
        Ok(released)
    }

    /// The turns among these quarantined records that can still be read and were not decided.
    async fn waiting(&self, key: OwnerKey, records: &[Record]) -> Result<Vec<Turn>, IntakeError> {
        let mut turns = Vec::new();
        for opened in self.codec.open(records).await? {
            // Expired, erased, or not a turn: nothing to release. What cannot be read expires too.
            let Ok(Opened::Turn { turn, .. }) = opened else {
                continue;
            };
            let scope = OwnerScope::of_log_record(key);
            if self.records.decision(scope, turn.event).await?.is_none() {
                turns.push(*turn);
            }
        }
        Ok(turns)
    }

    /// Lets in whatever waits in quarantine and has a grant by now: run at start, for grants that
    /// became visible while intake was down.
    ///
    /// # Errors
    /// As [`Intake::release`].
    pub async fn release_all(&self) -> Result<usize, IntakeError> {
        let mut owners: BTreeMap<OwnerKey, Owner> = BTreeMap::new();
        for partition in 0..self.log.partitions() {
            let mut next = self.log.start(Topic::Quarantine, partition).await?;
            loop {
                let batch = self
                    .log
                    .read(
                        Topic::Quarantine,
                        partition,
                        next,
                        READ_RECORDS_MAX,
                        READ_BYTES_MAX,
                    )
                    .await?;
                let Some(last) = batch.last() else { break };
                next = last.position.offset + 1;
                let unknown: Vec<Record> = batch
                    .into_iter()
                    .filter(|record| !owners.contains_key(&record.key))
                    .collect();
                for opened in self.codec.open(&unknown).await? {
                    if let Ok(Opened::Turn { turn, .. }) = opened {
                        owners.insert(self.ids().owner(&turn.owner), turn.owner);
                    }
                }
            }
        }
        let mut released = 0;
        for (key, owner) in owners {
            released += self.release_key(key, &owner).await?;
        }
        if released > 0 {
            info!(released, "messages that waited for consent were let in");
        }
        Ok(released)
    }

    /// The decision on an event, when it has reached the authority within `at_most`.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn wait(
        &self,
        scope: OwnerScope,
        event: EventTag,
        at_most: Duration,
    ) -> Result<Option<DecisionRow>, IntakeError> {
        let deadline = tokio::time::Instant::now() + at_most;
        let mut pause = PAUSE;
        loop {
            if let Some(decision) = self.records.decision(scope, event).await? {
                return Ok(Some(decision));
            }
            if tokio::time::Instant::now() + pause > deadline {
                return Ok(None);
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 3 / 2).min(PAUSE_MAX);
        }
    }

    pub(crate) fn wait_at_most(&self) -> Duration {
        Duration::from_millis(self.settings.wait_millis_max)
    }
}

/// The newest grant that is in force, as the offset of its decision.
pub(crate) fn granted_version(view: &OwnerView, now: Timestamp) -> Option<u64> {
    view.consents
        .iter()
        .filter(|held| held.recorded_to.is_none())
        .filter(|held| {
            let consent = &held.consent;
            consent.valid_from <= now && consent.valid_to.is_none_or(|to| now < to)
        })
        .map(|held| held.recorded_from)
        .max()
}

fn not_covered(problem: &Problem) -> Rejected {
    let code = match problem.code.as_str() {
        "tenant_not_covered" => "tenant_not_covered",
        _ => "role_required",
    };
    Rejected::new(code, "owner", problem.detail.clone())
}

#[cfg(test)]
mod tests;
