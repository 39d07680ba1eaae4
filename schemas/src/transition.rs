//! The bodies of a decision: one per transition, and the detail beside them.

use anamnesis_domain::ids::{ErasureId, Hash, MemoryId};
use anamnesis_domain::input::Verdict;
use anamnesis_domain::text::Text;
use anamnesis_domain::time::Timestamp;
use anamnesis_domain::transition as domain;
use apache_avro::AvroSchema;
use serde::{Deserialize, Serialize};

use crate::claim::{Claim, Standing, words_of};
use crate::datum::Wire;
use crate::error::WireError;
use crate::registry::Record;
use crate::scalar::{Hash32, Id, ids, instant, known, list, millis, need};
use crate::shared::{Access, Consent, Target, Task, kind_codes, read_kinds};

/// One flat record whose `change` says which fields are meant. The code in the part header is more
/// telling and follows from these fields.
#[derive(AvroSchema, Serialize, Deserialize)]
#[avro(namespace = "anamnesis")]
pub(crate) struct TransitionBody {
    change: String,
    memory_id: Option<Id>,
    claim: Option<Claim>,
    standing: Option<Standing>,
    mark: Option<Mark>,
    erasure: Option<Id>,
    target: Option<Target>,
    memory_ids: Vec<Id>,
    consent: Option<Consent>,
    kinds: Option<Vec<String>>,
    from: Option<i64>,
    task: Option<Task>,
    access: Option<Access>,
}

#[derive(AvroSchema, Serialize, Deserialize)]
#[avro(namespace = "anamnesis")]
pub(crate) struct Mark {
    code: String,
    at: Option<i64>,
    verdict: Option<String>,
    by: Option<Id>,
    actor: Option<String>,
    reason: Option<String>,
}

impl Mark {
    fn of(mark: &domain::Mark) -> Self {
        let mut body = Self {
            code: String::new(),
            at: None,
            verdict: None,
            by: None,
            actor: None,
            reason: None,
        };
        let code = match mark {
            domain::Mark::Ended { at } => {
                body.at = Some(at.millis());
                "ended"
            }
            domain::Mark::Retired => "retired",
            domain::Mark::Archived => "archived",
            domain::Mark::Restored => "restored",
            domain::Mark::Restricted => "restricted",
            domain::Mark::Unrestricted => "unrestricted",
            domain::Mark::Reviewed(review) => {
                body.verdict = Some(review.verdict.code().to_owned());
                body.at = millis(review.at);
                body.actor.clone_from(&review.actor);
                body.reason = words_of(review.reason.as_ref());
                "reviewed"
            }
            domain::Mark::Corrected { by } => {
                body.by = Some((*by).into());
                "corrected"
            }
        };
        body.code = code.to_owned();
        body
    }

    fn read(self) -> Result<domain::Mark, WireError> {
        match self.code.as_str() {
            "ended" => Ok(domain::Mark::Ended {
                at: Timestamp::from_millis(need("mark.at", self.at)?),
            }),
            "retired" => Ok(domain::Mark::Retired),
            "archived" => Ok(domain::Mark::Archived),
            "restored" => Ok(domain::Mark::Restored),
            "restricted" => Ok(domain::Mark::Restricted),
            "unrestricted" => Ok(domain::Mark::Unrestricted),
            "reviewed" => {
                let code = need("mark.verdict", self.verdict)?;
                let verdict = known("mark.verdict", Verdict::from_code(&code))?;
                Ok(domain::Mark::Reviewed(Box::new(domain::Review {
                    verdict,
                    actor: self.actor,
                    at: instant(self.at),
                    reason: self.reason.map(Text::new),
                })))
            }
            "corrected" => Ok(domain::Mark::Corrected {
                by: need("mark.by", self.by)?.into(),
            }),
            _ => known("mark.code", None),
        }
    }
}

impl Wire for TransitionBody {
    const RECORD: Record = Record::TransitionBody;
}

impl TransitionBody {
    pub(crate) fn of(transition: &domain::Transition) -> Result<Self, WireError> {
        let mut body = Self {
            change: String::new(),
            memory_id: None,
            claim: None,
            standing: None,
            mark: None,
            erasure: None,
            target: None,
            memory_ids: Vec::new(),
            consent: None,
            kinds: None,
            from: None,
            task: None,
            access: None,
        };
        let change = match transition {
            domain::Transition::Asserted {
                id,
                claim,
                standing,
            } => {
                body.memory_id = Some((*id).into());
                body.claim = Some(Claim::of(claim)?);
                body.standing = Some(Standing::of(standing));
                "asserted"
            }
            domain::Transition::Moved { id, standing } => {
                body.memory_id = Some((*id).into());
                body.standing = Some(Standing::of(standing));
                "moved"
            }
            domain::Transition::Marked { id, mark } => {
                body.memory_id = Some((*id).into());
                body.mark = Some(Mark::of(mark));
                "marked"
            }
            domain::Transition::Erased {
                erasure,
                target,
                memory_ids,
            } => {
                body.erasure = Some((*erasure).into());
                body.target = Some(Target::of(target)?);
                body.memory_ids = ids("memory_ids", memory_ids)?;
                "erased"
            }
            domain::Transition::ConsentGranted { consent } => {
                body.consent = Some(Consent::of(consent)?);
                "consent_granted"
            }
            domain::Transition::ConsentWithdrawn { kinds, from } => {
                body.kinds = kind_codes(kinds.as_ref());
                body.from = Some(from.millis());
                "consent_withdrawn"
            }
            domain::Transition::TaskChanged { task } => {
                body.task = Some(Task::of(task)?);
                "task_changed"
            }
            domain::Transition::Accessed { access } => {
                body.access = Some(Access::of(access));
                "accessed"
            }
        };
        body.change = change.to_owned();
        Ok(body)
    }

    pub(crate) fn read(self) -> Result<domain::Transition, WireError> {
        let id = |id: Option<Id>| need("memory_id", id).map(MemoryId::from);
        match self.change.as_str() {
            "asserted" => Ok(domain::Transition::Asserted {
                id: id(self.memory_id)?,
                claim: Box::new(need("claim", self.claim)?.read()?),
                standing: need("standing", self.standing)?.read()?,
            }),
            "moved" => Ok(domain::Transition::Moved {
                id: id(self.memory_id)?,
                standing: need("standing", self.standing)?.read()?,
            }),
            "marked" => Ok(domain::Transition::Marked {
                id: id(self.memory_id)?,
                mark: need("mark", self.mark)?.read()?,
            }),
            "erased" => Ok(domain::Transition::Erased {
                erasure: ErasureId::from(need("erasure", self.erasure)?),
                target: need("target", self.target)?.read()?,
                memory_ids: self.memory_ids.into_iter().map(MemoryId::from).collect(),
            }),
            "consent_granted" => Ok(domain::Transition::ConsentGranted {
                consent: need("consent", self.consent)?.read()?,
            }),
            "consent_withdrawn" => Ok(domain::Transition::ConsentWithdrawn {
                kinds: read_kinds(self.kinds)?,
                from: Timestamp::from_millis(need("from", self.from)?),
            }),
            "task_changed" => Ok(domain::Transition::TaskChanged {
                task: Box::new(need("task", self.task)?.read()?),
            }),
            "accessed" => Ok(domain::Transition::Accessed {
                access: need("access", self.access)?.read()?,
            }),
            _ => known("change", None),
        }
    }
}

#[derive(AvroSchema, Serialize, Deserialize)]
#[avro(namespace = "anamnesis")]
pub(crate) struct DetailBody {
    owner: String,
    content: Option<Hash32>,
    notes: Vec<Note>,
}

#[derive(AvroSchema, Serialize, Deserialize)]
#[avro(namespace = "anamnesis")]
pub(crate) struct Note {
    code: String,
    memory_id: Option<Id>,
    detail: Option<String>,
}

impl Wire for DetailBody {
    const RECORD: Record = Record::DetailBody;
}

impl DetailBody {
    pub(crate) fn of(detail: &domain::Detail) -> Result<Self, WireError> {
        Ok(Self {
            owner: detail.owner.clone(),
            content: detail.content.map(Hash32::from),
            notes: list("notes", &detail.notes, |note| {
                Ok(Note {
                    code: note.code.clone(),
                    memory_id: note.memory_id.map(Id::from),
                    detail: words_of(note.detail.as_ref()),
                })
            })?,
        })
    }

    pub(crate) fn read(self) -> domain::Detail {
        let note = |note: Note| domain::Note {
            code: note.code,
            memory_id: note.memory_id.map(MemoryId::from),
            detail: note.detail.map(Text::new),
        };
        domain::Detail {
            owner: self.owner,
            content: self.content.map(Hash::from),
            notes: self.notes.into_iter().map(note).collect(),
        }
    }
}
