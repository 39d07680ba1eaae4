//! From a memory back to the sentence it came from: every decision that names it, and the turn behind.

use anamnesis_domain::ids::{EventTag, MemoryId, OwnerKey};
use anamnesis_domain::input::{Position, Topic};
use anamnesis_domain::line::VOTE_NOTE;
use anamnesis_domain::memory::{Claim, Role, Standing};
use anamnesis_domain::skeleton::Verdict;
use anamnesis_domain::text::Text;
use anamnesis_domain::time::{Known, Timestamp};
use anamnesis_domain::transition::{PartBody, Transition};
use anamnesis_pipeline::codec::{Codec, Opened, OpenedDecided};
use anamnesis_pipeline::consumer::StageError;
use anamnesis_pipeline::fold::Folded;
use anamnesis_pipeline::log::EventLog;
use serde::Serialize;

use crate::replay::read_partition;

#[derive(Clone, Debug, Serialize)]
pub struct Explanation {
    pub memory_id: MemoryId,
    pub owner: OwnerKey,
    /// What it says; `None` once erased.
    pub claim: Option<Claim>,
    /// Every decision that names it, in order.
    pub history: Vec<Happened>,
    /// The message it came from; `None` once erased, or for a memory that a command made.
    pub said: Option<Said>,
    /// "Erased on D under R".
    pub erased: Option<ErasedBy>,
}

#[derive(Clone, Debug, Serialize)]
pub struct Happened {
    pub position: Position,
    pub recorded_at: Timestamp,
    pub decided_at: Timestamp,
    /// Kind of the transition, from the clear header.
    pub transition: String,
    pub standing: Option<Standing>,
    pub cause: Position,
    pub cause_event: EventTag,
    /// Rules that decided, by code.
    pub rules: Vec<String>,
    /// What was weighed where sources disagreed, as the event keeps it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub weighed: Vec<Text>,
}

#[derive(Clone, Debug, Serialize)]
pub struct Said {
    pub position: Position,
    pub at: Timestamp,
    pub role: Role,
    pub speaker: Option<Text>,
    pub text: Text,
    /// Range of the quote in the text, in code points.
    pub quote: Option<(usize, usize)>,
    pub source: String,
    pub event_id: String,
}

#[derive(Clone, Debug, Serialize)]
pub struct ErasedBy {
    pub erasure: anamnesis_domain::ids::ErasureId,
    pub recorded_at: Timestamp,
    pub position: Position,
}

/// Explains a memory, wherever it is; with `only`, one owner's.
///
/// # Errors
/// When the log or the keyring cannot be read.
pub async fn explain(
    log: &dyn EventLog,
    codec: &Codec,
    id: MemoryId,
    only: Option<OwnerKey>,
) -> Result<Option<Explanation>, StageError> {
    for partition in 0..log.partitions() {
        let mut found: Option<Explanation> = None;
        let mut origin: Option<Position> = None;
        read_partition(log, codec, partition, Known::Latest, &mut |step| {
            let (Folded::Decision(owner, Verdict::Apply), Some(opened)) =
                (&step.folded, step.decided)
            else {
                return;
            };
            if only.is_some_and(|only| only != *owner) {
                return;
            }
            note(&mut found, &mut origin, id, *owner, opened);
        })
        .await?;
        let Some(mut explanation) = found else {
            continue;
        };
        if let Some(origin) = origin.filter(|origin| origin.topic == Topic::Conversation) {
            explanation.said = said(log, codec, origin, explanation.claim.as_ref()).await?;
        }
        if explanation.erased.is_some() {
            explanation.claim = None;
            explanation.said = None;
        }
        return Ok(Some(explanation));
    }
    Ok(None)
}

fn note(
    found: &mut Option<Explanation>,
    origin: &mut Option<Position>,
    id: MemoryId,
    owner: OwnerKey,
    opened: &OpenedDecided,
) {
    let decided = &opened.decided;
    for part in &decided.parts {
        let erases = match &part.body {
            PartBody::Open(transition) => match &**transition {
                Transition::Erased {
                    erasure,
                    memory_ids,
                    target,
                } => {
                    let all = *target == anamnesis_domain::input::Target::Owner;
                    (memory_ids.contains(&id) || (all && found.is_some())).then_some(*erasure)
                }
                Transition::Asserted { .. }
                | Transition::Moved { .. }
                | Transition::Marked { .. }
                | Transition::ConsentGranted { .. }
                | Transition::ConsentWithdrawn { .. }
                | Transition::TaskChanged { .. }
                | Transition::Accessed { .. } => None,
            },
            PartBody::Unreadable => None,
        };
        if part.memory_id != Some(id) && erases.is_none() {
            continue;
        }
        let explanation = found.get_or_insert_with(|| Explanation {
            memory_id: id,
            owner,
            claim: None,
            history: Vec::new(),
            said: None,
            erased: None,
        });
        let mut standing = None;
        if let PartBody::Open(transition) = &part.body {
            match &**transition {
                Transition::Asserted {
                    claim,
                    standing: first,
                    ..
                } => {
                    explanation.claim = Some((**claim).clone());
                    standing = Some(first.clone());
                    *origin = Some(decided.cause.origin);
                }
                Transition::Moved {
                    standing: moved, ..
                } => standing = Some(moved.clone()),
                Transition::Marked { .. }
                | Transition::Erased { .. }
                | Transition::ConsentGranted { .. }
                | Transition::ConsentWithdrawn { .. }
                | Transition::TaskChanged { .. }
                | Transition::Accessed { .. } => (),
            }
        }
        if let Some(erasure) = erases {
            explanation.erased = Some(ErasedBy {
                erasure,
                recorded_at: opened.appended_at,
                position: opened.position,
            });
        }
        let notes = decided.detail.iter().flat_map(|detail| &detail.notes);
        let notes = notes.filter(|note| note.memory_id == Some(id));
        explanation.history.push(Happened {
            position: opened.position,
            recorded_at: opened.appended_at,
            decided_at: decided.decided_at,
            transition: part.code.clone(),
            standing,
            cause: decided.cause.position,
            cause_event: decided.cause.event,
            weighed: notes
                .clone()
                .filter(|note| note.code == VOTE_NOTE)
                .filter_map(|note| note.detail.clone())
                .collect(),
            rules: notes.map(|note| note.code.clone()).collect(),
        });
    }
}

async fn said(
    log: &dyn EventLog,
    codec: &Codec,
    origin: Position,
    claim: Option<&Claim>,
) -> Result<Option<Said>, StageError> {
    let records = log
        .read_at(origin.topic, origin.partition, &[origin.offset])
        .await?;
    for opened in codec.open(&records).await? {
        let Ok(Opened::Turn { turn, .. }) = opened else {
            continue;
        };
        let quote = claim
            .and_then(|claim| claim.quote.as_ref())
            .and_then(|quote| {
                let at = turn.text.expose().find(quote.expose())?;
                let from = turn.text.expose()[..at].chars().count();
                Some((from, from + quote.chars_count()))
            });
        return Ok(Some(Said {
            position: origin,
            at: turn.at,
            role: turn.role,
            speaker: turn.speaker,
            text: turn.text,
            quote,
            source: turn.source,
            event_id: turn.event_id,
        }));
    }
    Ok(None)
}
