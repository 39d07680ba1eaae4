//! The body of a command: one flat record whose `code` says which fields are meant.

use anamnesis_domain::ids::{ErasureId, EventTag, MemoryId, SourceTag};
use anamnesis_domain::input as domain;
use anamnesis_domain::text::Text;
use anamnesis_domain::time::Timestamp;
use apache_avro::AvroSchema;
use serde::{Deserialize, Serialize};

use crate::claim::{Claim, words};
use crate::datum::Wire;
use crate::error::WireError;
use crate::registry::Record;
use crate::scalar::{Id, ids, instant, known, list, millis, narrow, need, to_long, unsigned};
use crate::shared::{Access, Consent, Target, Task, kind_codes, read_kinds};
use crate::turn::read_owner;

#[derive(AvroSchema, Serialize, Deserialize)]
#[avro(namespace = "anamnesis")]
pub(crate) struct CommandBody {
    owner: String,
    source: String,
    event_id: String,
    actor: String,
    at: i64,
    zone_minutes: i64,
    code: String,
    claim: Option<Claim>,
    memory_id: Option<Id>,
    ended_at: Option<i64>,
    expected_version: Option<i64>,
    reason: Option<String>,
    memories: Vec<SeenMemory>,
    memory_ids: Vec<Id>,
    erasure: Option<Id>,
    target: Option<Target>,
    consent: Option<Consent>,
    kinds: Option<Vec<String>>,
    from: Option<i64>,
    verdict: Option<String>,
    task: Option<Task>,
    accesses: Vec<Access>,
    event: Option<Id>,
    index: Option<i64>,
}

/// A memory with the version that whoever asks had seen.
#[derive(AvroSchema, Serialize, Deserialize)]
#[avro(namespace = "anamnesis")]
pub(crate) struct SeenMemory {
    memory_id: Id,
    version: i64,
}

impl Wire for CommandBody {
    const RECORD: Record = Record::CommandBody;
}

fn version(expected: Option<u64>) -> Result<Option<i64>, WireError> {
    expected
        .map(|version| to_long("expected_version", version))
        .transpose()
}

impl CommandBody {
    pub(crate) fn of(record: &domain::CommandRecord) -> Result<Self, WireError> {
        let mut body = Self {
            owner: record.owner.to_string(),
            source: record.source.clone(),
            event_id: record.event_id.clone(),
            actor: record.actor.clone(),
            at: record.at.millis(),
            zone_minutes: record.zone_minutes.into(),
            code: record.command.code().to_owned(),
            claim: None,
            memory_id: None,
            ended_at: None,
            expected_version: None,
            reason: None,
            memories: Vec::new(),
            memory_ids: Vec::new(),
            erasure: None,
            target: None,
            consent: None,
            kinds: None,
            from: None,
            verdict: None,
            task: None,
            accesses: Vec::new(),
            event: None,
            index: None,
        };
        match &record.command {
            domain::Command::Remember { claim } => body.claim = Some(Claim::of(claim)?),
            domain::Command::Correct {
                memory_id,
                claim,
                ended_at,
                expected_version,
                reason,
            } => {
                body.memory_id = Some((*memory_id).into());
                body.claim = claim.as_deref().map(Claim::of).transpose()?;
                body.ended_at = millis(*ended_at);
                body.expected_version = version(*expected_version)?;
                body.reason = Some(words(reason));
            }
            domain::Command::Retire {
                memory_id,
                expected_version,
                reason,
            } => {
                body.memory_id = Some((*memory_id).into());
                body.expected_version = version(*expected_version)?;
                body.reason = Some(words(reason));
            }
            domain::Command::Archive { memories, reason } => {
                body.memories = list("memories", memories, |(memory_id, version)| {
                    let version = to_long("memories.version", *version)?;
                    Ok(SeenMemory {
                        memory_id: (*memory_id).into(),
                        version,
                    })
                })?;
                body.reason = Some(reason.clone());
            }
            domain::Command::Restore { memory_ids } => {
                body.memory_ids = ids("memory_ids", memory_ids)?;
            }
            domain::Command::Restrict { target, reason } => {
                body.target = Some(Target::of(target)?);
                body.reason = Some(words(reason));
            }
            domain::Command::Unrestrict { target } => body.target = Some(Target::of(target)?),
            domain::Command::Erase {
                erasure,
                target,
                reason,
            } => {
                body.erasure = Some((*erasure).into());
                body.target = Some(Target::of(target)?);
                body.reason = Some(words(reason));
            }
            domain::Command::Grant { consent } => body.consent = Some(Consent::of(consent)?),
            domain::Command::Withdraw { kinds, from } => {
                body.kinds = kind_codes(kinds.as_ref());
                body.from = Some(from.millis());
            }
            domain::Command::Review {
                memory_id,
                verdict,
                expected_version,
                reason,
            } => {
                body.memory_id = Some((*memory_id).into());
                body.verdict = Some(verdict.code().to_owned());
                body.expected_version = version(*expected_version)?;
                body.reason = Some(words(reason));
            }
            domain::Command::Task { task } => body.task = Some(Task::of(task)?),
            domain::Command::Summarise { accesses } => {
                body.accesses = list("accesses", accesses, |access| Ok(Access::of(access)))?;
            }
            domain::Command::Admit {
                event,
                index,
                claim,
                reason,
            } => {
                body.event = Some((*event).into());
                body.index = Some((*index).into());
                body.claim = Some(Claim::of(claim)?);
                body.reason = Some(words(reason));
            }
        }
        Ok(body)
    }

    pub(crate) fn read(
        self,
        event: EventTag,
        source_tag: SourceTag,
    ) -> Result<domain::CommandRecord, WireError> {
        let memory_id = |id: Option<Id>| need("memory_id", id).map(MemoryId::from);
        let reason = |reason: Option<String>| need("reason", reason).map(Text::new);
        let expected = |version: Option<i64>| {
            version
                .map(|version| unsigned("expected_version", version))
                .transpose()
        };
        let command = match self.code.as_str() {
            "remember" => domain::Command::Remember {
                claim: Box::new(need("claim", self.claim)?.read()?),
            },
            "correct" => domain::Command::Correct {
                memory_id: memory_id(self.memory_id)?,
                claim: self.claim.map(Claim::read).transpose()?.map(Box::new),
                ended_at: instant(self.ended_at),
                expected_version: expected(self.expected_version)?,
                reason: reason(self.reason)?,
            },
            "retire" => domain::Command::Retire {
                memory_id: memory_id(self.memory_id)?,
                expected_version: expected(self.expected_version)?,
                reason: reason(self.reason)?,
            },
            "archive" => {
                let mut memories = Vec::with_capacity(self.memories.len());
                for seen in self.memories {
                    let version = unsigned("memories.version", seen.version)?;
                    memories.push((MemoryId::from(seen.memory_id), version));
                }
                domain::Command::Archive {
                    memories,
                    reason: need("reason", self.reason)?,
                }
            }
            "restore" => domain::Command::Restore {
                memory_ids: self.memory_ids.into_iter().map(MemoryId::from).collect(),
            },
            "restrict" => domain::Command::Restrict {
                target: need("target", self.target)?.read()?,
                reason: reason(self.reason)?,
            },
            "unrestrict" => domain::Command::Unrestrict {
                target: need("target", self.target)?.read()?,
            },
            "erase" => domain::Command::Erase {
                erasure: ErasureId::from(need("erasure", self.erasure)?),
                target: need("target", self.target)?.read()?,
                reason: reason(self.reason)?,
            },
            "grant" => domain::Command::Grant {
                consent: need("consent", self.consent)?.read()?,
            },
            "withdraw" => domain::Command::Withdraw {
                kinds: read_kinds(self.kinds)?,
                from: Timestamp::from_millis(need("from", self.from)?),
            },
            "review" => domain::Command::Review {
                memory_id: memory_id(self.memory_id)?,
                verdict: known(
                    "verdict",
                    domain::Verdict::from_code(&need("verdict", self.verdict)?),
                )?,
                expected_version: expected(self.expected_version)?,
                reason: reason(self.reason)?,
            },
            "task" => domain::Command::Task {
                task: Box::new(need("task", self.task)?.read()?),
            },
            "summarise" => domain::Command::Summarise {
                accesses: self
                    .accesses
                    .into_iter()
                    .map(Access::read)
                    .collect::<Result<_, _>>()?,
            },
            "admit" => domain::Command::Admit {
                event: EventTag::from(need("event", self.event)?),
                index: narrow("index", need("index", self.index)?)?,
                claim: Box::new(need("claim", self.claim)?.read()?),
                reason: reason(self.reason)?,
            },
            _ => return known("code", None),
        };
        Ok(domain::CommandRecord {
            owner: read_owner(&self.owner)?,
            event,
            source_tag,
            source: self.source,
            event_id: self.event_id,
            actor: self.actor,
            at: Timestamp::from_millis(self.at),
            zone_minutes: narrow("zone_minutes", self.zone_minutes)?,
            command,
        })
    }
}
