//! From what a caller wants done to a command record on the log.

mod claim;
mod order;
mod review;
mod target;

use anamnesis_domain::ids::{ErasureId, EventTag, MemoryId, OwnerKey};
use anamnesis_domain::input::{Command, Consent, Position, Task, TaskStatus};
use anamnesis_domain::memory::{Intent, Kind};
use anamnesis_domain::owner::{Owner, OwnerScope};
use anamnesis_domain::text::{Text, is_blank, normalise};
use anamnesis_domain::time::{Interval, Timestamp};
use anamnesis_pipeline::caller::{Caller, CallerRole};
use anamnesis_pipeline::problem::Problem;
use serde_json::Value;

pub use self::review::ReviewId;
use self::target::check_ids;
use crate::caps;
use crate::request::{
    ConsentChange, Correct, ForgetMode, Remember, Retract, Targets, TaskChange, Withdraw,
    ttl_millis,
};
use crate::service::{Intake, IntakeError};

/// Source of commands whose caller names none.
pub const API_SOURCE: &str = "api";
/// Source of grants and withdrawals, apart from what is stored: what somebody agreed to stays provable
/// when everything of the API is erased.
pub const CONSENT_SOURCE: &str = "consent";

/// Who asks, about whom, and under which id.
#[derive(Clone, Debug)]
pub struct Order<'a> {
    pub caller: &'a Caller,
    pub owner: &'a Owner,
    /// The call's `idempotency-key`: the same key again is the same command.
    pub key: Option<&'a str>,
}

/// A command that is durable.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Ordered {
    pub scope: OwnerScope,
    pub event: EventTag,
    pub position: Position,
    /// The memory that a `remember` or `correct` makes.
    pub memory_id: Option<MemoryId>,
    /// The erasure that a `forget` starts.
    pub erasure: Option<ErasureId>,
}

fn invalid(field: &str, detail: impl Into<String>) -> IntakeError {
    Problem::bad_request("invalid_field", detail)
        .at(field)
        .into()
}

fn missing(field: &str, detail: impl Into<String>) -> IntakeError {
    Problem::bad_request("missing_field", detail)
        .at(field)
        .into()
}

impl Intake {
    /// Stores an explicit statement.
    ///
    /// # Errors
    /// 403 `consent_required` before anything is written; otherwise what is wrong with a field.
    pub async fn remember(
        &self,
        order: &Order<'_>,
        ask: &Remember,
    ) -> Result<Ordered, IntakeError> {
        let scope = order.caller.write_scope(order.owner, self.ids())?;
        let source = ask.source.as_deref().unwrap_or(API_SOURCE);
        let envelope = self.envelope(order, scope, source)?;
        let claim = self.claim(order.owner, &envelope, ask)?;
        self.check_consent(order.owner, scope, claim.kind).await?;
        let memory_id = self.ids().memory(envelope.event, 0);
        let build = |at: Timestamp| {
            let mut claim = claim.clone();
            // What the caller left open follows the moment of the command, also when it is repeated.
            claim.source.at = at;
            if ask.valid_from.is_none() {
                claim.valid_from = at;
            }
            if let Some(Ok(millis)) = ask.ttl.as_deref().map(ttl_millis) {
                claim.valid_to = Some(at.plus_millis(millis));
            }
            Command::Remember {
                claim: Box::new(claim),
            }
        };
        let position = self.order(order, &envelope, build).await?;
        Ok(Ordered {
            scope,
            event: envelope.event,
            position,
            memory_id: Some(memory_id),
            erasure: None,
        })
    }

    /// Replaces what a memory says, or ends it.
    ///
    /// # Errors
    /// 404 for a memory that this owner has not; otherwise what is wrong with a field.
    pub async fn correct(&self, order: &Order<'_>, ask: &Correct) -> Result<Ordered, IntakeError> {
        let scope = order.caller.write_scope(order.owner, self.ids())?;
        if ask
            .text
            .as_ref()
            .is_some_and(|text| is_blank(text.expose()))
        {
            return Err(missing("text", "the text says nothing"));
        }
        let envelope = self.envelope(order, scope, API_SOURCE)?;
        let history = self.records.history(scope, ask.memory_id).await?;
        let Some(latest) = history.last() else {
            return Err(Problem::not_found("memory").into());
        };
        let old = &latest.memory.claim;
        let reason = self.given_reason(envelope.key, &ask.reason)?;
        let replaces = ask.text.is_some() || ask.value.is_some();
        if !replaces && ask.valid_to.is_none() {
            return Err(missing(
                "text",
                "say what is right (text, or attribute and value), or when it ended (valid_to)",
            ));
        }
        let claim = if replaces {
            let text = match (&ask.text, &ask.value) {
                (Some(text), _) => text.clone(),
                (None, Some(value)) => {
                    let attribute = ask.attribute.as_deref().or(old.attribute.as_deref());
                    Text::new(format!("{}: {value}", attribute.unwrap_or("value")))
                }
                (None, None) => Text::default(),
            };
            // New words about the same thing keep its comparable form; about another thing they have
            // none until somebody gives it.
            let kept = old
                .value
                .clone()
                .filter(|value| text.normalised().contains(&normalise(value)));
            let (attribute, value) = match (&ask.attribute, &ask.value) {
                (_, Some(value)) => (
                    ask.attribute.clone().or_else(|| old.attribute.clone()),
                    Some(value.clone()),
                ),
                (Some(attribute), None) => (Some(attribute.clone()), kept),
                (None, None) => (
                    kept.is_some().then(|| old.attribute.clone()).flatten(),
                    kept,
                ),
            };
            let remember = Remember {
                text,
                kind: Some(old.kind),
                subject: Some(old.subject.to_string()),
                importance: Some(old.importance),
                valid_from: Some(ask.valid_from.unwrap_or(old.valid_from)),
                valid_to: ask.valid_to,
                attribute,
                value,
                namespace: old.namespace.clone(),
                key: old.key.clone(),
                context_tags: old.context_tags.clone(),
                ..Remember::default()
            };
            let is_comparable = remember.attribute.is_some();
            let mut claim = if ask.attribute.is_none() && ask.value.is_none() {
                let in_words = Remember {
                    attribute: None,
                    value: None,
                    ..remember.clone()
                };
                let read = self.claim(order.owner, &envelope, &in_words)?;
                // Of another attribute, or not understood: what is known of the old one stays.
                if read.attribute.is_some() && (read.attribute == old.attribute || !is_comparable) {
                    read
                } else {
                    self.claim(order.owner, &envelope, &remember)?
                }
            } else {
                self.claim(order.owner, &envelope, &remember)?
            };
            claim.intent = Intent::Correct;
            self.check_consent(order.owner, scope, claim.kind).await?;
            Some(claim)
        } else {
            None
        };
        let memory_id = claim
            .is_some()
            .then(|| self.ids().memory(envelope.event, 0));
        let build = |at: Timestamp| Command::Correct {
            memory_id: ask.memory_id,
            claim: claim.clone().map(|mut claim| {
                claim.source.at = at;
                Box::new(claim)
            }),
            ended_at: if replaces { None } else { ask.valid_to },
            expected_version: ask.expected_version,
            reason: reason.clone(),
        };
        let position = self.order(order, &envelope, build).await?;
        Ok(Ordered {
            scope,
            event: envelope.event,
            position,
            memory_id,
            erasure: None,
        })
    }

    /// Says that a memory was never true.
    ///
    /// # Errors
    /// 403 without the right to write to this owner.
    pub async fn retire(&self, order: &Order<'_>, ask: &Retract) -> Result<Ordered, IntakeError> {
        let scope = order.caller.write_scope(order.owner, self.ids())?;
        let reason = self.given_reason(scope.key(), &ask.reason)?;
        self.plain(order, scope, |_| Command::Retire {
            memory_id: ask.memory_id,
            expected_version: ask.expected_version,
            reason: reason.clone(),
        })
        .await
    }

    /// Why something that cannot be taken back was asked for, without what intake hides.
    ///
    /// # Errors
    /// 400 `missing_field` when nothing is said: an auditor must find a reason.
    fn given_reason(&self, key: OwnerKey, reason: &Text) -> Result<Text, IntakeError> {
        if is_blank(reason.expose()) {
            return Err(missing("reason", "reason is required: why"));
        }
        Ok(self.redact_text(key, reason))
    }

    /// Restricts or erases.
    ///
    /// # Errors
    /// 403 without the role; 400 when it is not clear what should be forgotten, or an erasure has no reason.
    pub async fn forget(
        &self,
        order: &Order<'_>,
        targets: &Targets,
        mode: ForgetMode,
        reason: &Text,
    ) -> Result<Ordered, IntakeError> {
        let scope = self.reviewer_scope(order)?;
        let target = self.target(scope, targets).await?;
        let envelope = self.envelope(order, scope, API_SOURCE)?;
        let reason = match mode {
            ForgetMode::Erase => self.given_reason(envelope.key, reason)?,
            ForgetMode::Restrict => self.redact_text(envelope.key, reason),
        };
        let erasure = match mode {
            ForgetMode::Erase => Some(self.ids().erasure(envelope.event)),
            ForgetMode::Restrict => None,
        };
        let build = |_| match erasure {
            Some(erasure) => Command::Erase {
                erasure,
                target: target.clone(),
                reason: reason.clone(),
            },
            None => Command::Restrict {
                target: target.clone(),
                reason: reason.clone(),
            },
        };
        let position = self.order(order, &envelope, build).await?;
        Ok(Ordered {
            scope,
            event: envelope.event,
            position,
            memory_id: None,
            erasure,
        })
    }

    /// Lets a restricted target be recalled again.
    ///
    /// # Errors
    /// As [`Intake::forget`].
    pub async fn unrestrict(
        &self,
        order: &Order<'_>,
        targets: &Targets,
    ) -> Result<Ordered, IntakeError> {
        let scope = self.reviewer_scope(order)?;
        let target = self.target(scope, targets).await?;
        self.plain(order, scope, |_| Command::Unrestrict {
            target: target.clone(),
        })
        .await
    }

    /// Brings archived memories back.
    ///
    /// # Errors
    /// 400 without ids.
    pub async fn restore(
        &self,
        order: &Order<'_>,
        ids: &[MemoryId],
    ) -> Result<Ordered, IntakeError> {
        let scope = order.caller.write_scope(order.owner, self.ids())?;
        check_ids(ids)?;
        self.plain(order, scope, |_| Command::Restore {
            memory_ids: ids.to_vec(),
        })
        .await
    }

    /// Grants or withdraws consent.
    ///
    /// # Errors
    /// 400 with the field that does not fit.
    pub async fn consent(
        &self,
        order: &Order<'_>,
        ask: &ConsentChange,
    ) -> Result<Ordered, IntakeError> {
        let scope = order.caller.write_scope(order.owner, self.ids())?;
        let withdrawn = match &ask.withdraw {
            None | Some(Withdraw::All(false)) => None,
            Some(Withdraw::All(true)) => Some(ask.kinds.clone()),
            Some(Withdraw::Kinds(kinds)) => Some(Some(kinds.clone())),
        };
        if let Some(kinds) = withdrawn {
            return self
                .plain_from(order, scope, CONSENT_SOURCE, |at| Command::Withdraw {
                    kinds: kinds.clone(),
                    from: ask.valid_from.unwrap_or(at),
                })
                .await;
        }
        let max_sensitivity = sensitivity(ask.max_sensitivity.as_ref())?;
        let purposes = ask
            .purposes
            .clone()
            .unwrap_or_else(|| vec!["care".to_owned()]);
        let is_bad = |purpose: &String| purpose.is_empty() || purpose.len() > caps::ID_BYTES_MAX;
        if purposes.len() > caps::CONTEXT_TAGS_MAX || purposes.iter().any(is_bad) {
            return Err(invalid("purposes", "a few short words that say what for"));
        }
        if let (Some(from), to) = (ask.valid_from, ask.valid_to)
            && Interval::new(from, to).is_err()
        {
            return Err(invalid("valid_to", "the consent ends before it starts"));
        }
        self.plain_from(order, scope, CONSENT_SOURCE, |at| Command::Grant {
            consent: Consent {
                purposes: purposes.clone(),
                kinds: ask.kinds.clone(),
                max_sensitivity,
                valid_from: ask.valid_from.unwrap_or(at),
                valid_to: ask.valid_to,
            },
        })
        .await
    }

    /// Replaces the state of a task.
    ///
    /// # Errors
    /// 400 with the field that does not fit, 403 `consent_required`.
    pub async fn task(&self, order: &Order<'_>, ask: &TaskChange) -> Result<Ordered, IntakeError> {
        let scope = order.caller.write_scope(order.owner, self.ids())?;
        if ask.task_id.is_empty() || ask.task_id.len() > caps::ID_BYTES_MAX {
            return Err(invalid("task_id", "an id of at most 1024 bytes"));
        }
        let lists = [
            ("confirmed_facts", &ask.confirmed_facts),
            ("constraints", &ask.constraints),
            ("open_questions", &ask.open_questions),
            ("pending_confirmations", &ask.pending_confirmations),
        ];
        for (name, list) in lists {
            if list.len() > caps::TASK_ENTRIES_MAX {
                return Err(invalid(
                    name,
                    format!("at most {} entries", caps::TASK_ENTRIES_MAX),
                ));
            }
        }
        let ttl = match &ask.ttl {
            Some(ttl) => ttl_millis(ttl)?,
            None => caps::TASK_TTL_MILLIS_DEFAULT,
        };
        if !caps::TASK_TTL_MILLIS.contains(&ttl) {
            return Err(invalid("ttl", "a task lives from an hour to 30 days"));
        }
        self.check_consent(order.owner, scope, Kind::Fact).await?;
        let clean = |text: &Text| self.redact_text(scope.key(), text);
        let all = |list: &[Text]| list.iter().map(clean).collect::<Vec<_>>();
        // A tool error blocks until somebody says otherwise.
        let status = ask.status.unwrap_or(match ask.tool_error {
            Some(_) => TaskStatus::BlockedByToolError,
            None => TaskStatus::Active,
        });
        let task = Task {
            id: ask.task_id.clone(),
            goal: clean(&ask.goal),
            status,
            decision: ask.decision.as_ref().map(clean),
            confirmed_facts: all(&ask.confirmed_facts),
            constraints: all(&ask.constraints),
            open_questions: all(&ask.open_questions),
            tool_error: ask.tool_error.as_ref().map(clean),
            pending_confirmations: all(&ask.pending_confirmations),
            expires_at: None,
            updated_at: self.now(),
        };
        check_size(&task)?;
        self.plain(order, scope, |at| {
            let mut task = task.clone();
            task.updated_at = at;
            task.expires_at = Some(at.plus_millis(ttl));
            Command::Task {
                task: Box::new(task),
            }
        })
        .await
    }

    /// Reviews, erasures and restrictions need their own role.
    fn reviewer_scope(&self, order: &Order<'_>) -> Result<OwnerScope, Problem> {
        order.caller.require(CallerRole::Reviewer)?;
        order.caller.scope(order.owner, self.ids())
    }
}

/// All of a task's state travels in one record.
fn check_size(task: &Task) -> Result<(), IntakeError> {
    let lists = [
        &task.confirmed_facts,
        &task.constraints,
        &task.open_questions,
        &task.pending_confirmations,
    ];
    let single = [
        Some(&task.goal),
        task.decision.as_ref(),
        task.tool_error.as_ref(),
    ];
    let texts = lists
        .into_iter()
        .flatten()
        .chain(single.into_iter().flatten());
    let bytes: usize = texts.map(|text| text.expose().len()).sum();
    if bytes > caps::TEXT_BYTES_MAX {
        let detail = format!(
            "the texts of a task have at most {} bytes together",
            caps::TEXT_BYTES_MAX
        );
        return Err(Problem::new(413, "text_too_long", detail).at("goal").into());
    }
    Ok(())
}

/// 1 to 4, or `L1` to `L4`. L3 unless told: L4 needs a confirmation of its own.
fn sensitivity(value: Option<&Value>) -> Result<u8, IntakeError> {
    let Some(value) = value else { return Ok(3) };
    let level = match value {
        Value::Number(number) => number.as_u64(),
        Value::String(text) => text
            .strip_prefix(['L', 'l'])
            .and_then(|level| level.parse().ok()),
        Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => None,
    };
    match level {
        Some(level @ 1..=4) => Ok(level as u8),
        Some(_) | None => Err(invalid("max_sensitivity", "1 to 4, or L1 to L4")),
    }
}
