//! A person decides: about a memory that waits, or about a candidate that was turned down.

use anamnesis_domain::ids::MemoryId;
use anamnesis_domain::input::{ADMITTED, Command, Topic, Turn, Verdict};
use anamnesis_domain::memory::{Claim, Intent};
use anamnesis_domain::owner::OwnerScope;
use anamnesis_domain::text::Text;
use anamnesis_pipeline::codec::Opened;
use anamnesis_pipeline::log::partition_of;
use anamnesis_pipeline::problem::Problem;
use anamnesis_pipeline::reviews::{self, RejectId, Rejected};

use super::{Order, Ordered, invalid, missing};
use crate::request::{Remember, ReviewDecision};
use crate::service::{Intake, IntakeError};

/// What a review is about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ReviewId {
    Memory(MemoryId),
    Rejected(RejectId),
}

impl ReviewId {
    pub fn parse(text: &str) -> Option<Self> {
        let memory = text.parse().map(Self::Memory);
        memory.or_else(|_| text.parse().map(Self::Rejected)).ok()
    }
}

impl Intake {
    /// The memory that a review is or will be about.
    pub fn reviewed_memory(&self, id: ReviewId) -> MemoryId {
        match id {
            ReviewId::Memory(id) => id,
            ReviewId::Rejected(id) => self
                .ids()
                .memory(id.event, ADMITTED.saturating_add(id.index)),
        }
    }

    /// Decides a conflict, a candidate in doubt, or one that was turned down.
    ///
    /// # Errors
    /// 403 without the role, 404 for what this owner has not, 409 `review_expired` for what has waited
    /// too long.
    pub async fn review(
        &self,
        order: &Order<'_>,
        id: ReviewId,
        ask: &ReviewDecision,
    ) -> Result<Ordered, IntakeError> {
        let scope = self.reviewer_scope(order)?;
        match id {
            ReviewId::Memory(memory_id) => self.review_memory(order, scope, memory_id, ask).await,
            ReviewId::Rejected(id) => self.admit_rejected(order, scope, id, ask).await,
        }
    }

    async fn review_memory(
        &self,
        order: &Order<'_>,
        scope: OwnerScope,
        memory_id: MemoryId,
        ask: &ReviewDecision,
    ) -> Result<Ordered, IntakeError> {
        if let Some(field) = ask.says_what() {
            let detail =
                "only an admitted candidate may be put in other words; use POST /v1/correct";
            return Err(invalid(field, detail));
        }
        let history = self.records.history(scope, memory_id).await?;
        if history.is_empty() {
            return Err(Problem::not_found("review").into());
        }
        let opened = reviews::opened_at(&history);
        let expires = opened.map(|at| at.plus_millis(self.settings.review_expires_millis));
        if let Some(end) = expires.filter(|end| *end <= self.now())
            && ask.decision != Verdict::Reopen
        {
            let detail = "nobody was asked any more after this; send decision: reopen to ask again";
            let problem =
                Problem::new(409, "review_expired", detail).with("expired_at", end.to_string());
            return Err(problem.into());
        }
        let reason = self.given_reason(scope.key(), &ask.reason)?;
        self.plain(order, scope, |_| Command::Review {
            memory_id,
            verdict: ask.decision,
            expected_version: ask.expected_version,
            reason: reason.clone(),
        })
        .await
    }

    async fn admit_rejected(
        &self,
        order: &Order<'_>,
        scope: OwnerScope,
        id: RejectId,
        ask: &ReviewDecision,
    ) -> Result<Ordered, IntakeError> {
        if ask.decision != Verdict::Admit {
            let detail = "a rejected candidate can only be admitted; it stays rejected otherwise";
            return Err(invalid("decision", detail));
        }
        let (rejected, turn) = self.rejected(scope, id).await?;
        let envelope = self.envelope(order, scope, super::API_SOURCE)?;
        let claim = self.admitted(order, &envelope, &rejected, &turn, ask)?;
        self.check_consent(order.owner, scope, claim.kind).await?;
        let memory_id = self.reviewed_memory(ReviewId::Rejected(id));
        let reason = self.given_reason(scope.key(), &ask.reason)?;
        let position = self
            .order(order, &envelope, |_| Command::Admit {
                event: id.event,
                index: id.index,
                claim: Box::new(claim.clone()),
                reason: reason.clone(),
            })
            .await?;
        Ok(Ordered {
            scope,
            event: envelope.event,
            position,
            memory_id: Some(memory_id),
            erasure: None,
        })
    }

    /// The candidate and the message that it is of, from the log: no store holds it.
    async fn rejected(
        &self,
        scope: OwnerScope,
        id: RejectId,
    ) -> Result<(Rejected, Turn), IntakeError> {
        let not_found = || IntakeError::from(Problem::not_found("review"));
        let decision = self.records.decision(scope, id.event).await?;
        let Some(decision) = decision.filter(|row| row.owner == scope.key()) else {
            return Err(not_found());
        };
        let partition = partition_of(scope.key(), self.log.partitions());
        let decided = self
            .opened(Topic::Memories, partition, decision.offset)
            .await?;
        let Some(Opened::Decided(decided)) = decided else {
            return Err(not_found());
        };
        let index = id.index as usize;
        let rejected = reviews::rejected(&decided).into_iter().nth(index);
        let rejected = rejected.ok_or_else(not_found)?;
        let origin = rejected.origin;
        let turn = self
            .opened(origin.topic, origin.partition, origin.offset)
            .await?;
        match turn {
            Some(Opened::Turn { turn, .. }) => Ok((rejected, *turn)),
            // Erased meanwhile, or never a turn.
            Some(_) | None => Err(not_found()),
        }
    }

    async fn opened(
        &self,
        topic: Topic,
        partition: u32,
        offset: u64,
    ) -> Result<Option<Opened>, IntakeError> {
        let records = self.log.read_at(topic, partition, &[offset]).await?;
        let opened = self.codec.open(&records).await?.into_iter().next();
        Ok(opened.transpose()?)
    }

    /// What the candidate claims: the reviewer's words where given, otherwise its own, and always as
    /// something that the message's speaker said when it was said.
    fn admitted(
        &self,
        order: &Order<'_>,
        envelope: &super::order::Envelope,
        rejected: &Rejected,
        turn: &Turn,
        ask: &ReviewDecision,
    ) -> Result<Claim, IntakeError> {
        let text = ask.text.as_ref().or(rejected.text.as_ref());
        let Some(text) = text else {
            let detail = "the words of this candidate are not kept; say what it claims";
            return Err(missing("text", detail));
        };
        let remember = Remember {
            text: Text::new(text.expose()),
            kind: ask.kind,
            subject: ask.subject.clone(),
            attribute: ask.attribute.clone(),
            value: ask.value.clone(),
            polarity: ask.polarity,
            valid_from: Some(ask.valid_from.unwrap_or(turn.at)),
            ..Remember::default()
        };
        let mut claim = self.claim(order.owner, envelope, &remember)?;
        let table = anamnesis_domain::attribute::Attributes::shipped();
        claim.importance = table.kind(claim.kind).importance;
        claim.intent = Intent::Assert;
        claim.context_tags.clone_from(&turn.context_tags);
        claim.confidence = turn.role.authority();
        let source = &mut claim.source;
        source.event = turn.event;
        source.source_tag = turn.source_tag;
        source.source.clone_from(&turn.source);
        source.event_id.clone_from(&turn.event_id);
        source.conversation_id.clone_from(&turn.conversation_id);
        source.turn_id.clone_from(&turn.turn_id);
        source.message_id.clone_from(&turn.message_id);
        source.role = turn.role;
        source.speaker.clone_from(&turn.speaker);
        source.at = turn.at;
        source.zone_minutes = turn.zone_minutes;
        source.extractor = "review".to_owned();
        Ok(claim)
    }
}
