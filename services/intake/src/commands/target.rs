//! What a call is about, when it says so in one of four ways.

use anamnesis_domain::ids::{EventTag, MemoryId};
use anamnesis_domain::input::Target;
use anamnesis_domain::owner::OwnerScope;

use super::{API_SOURCE, invalid, missing};
use crate::caps;
use crate::request::Targets;
use crate::service::{Intake, IntakeError};

impl Intake {
    /// Exactly one way to say what is meant.
    pub(super) async fn target(
        &self,
        scope: OwnerScope,
        targets: &Targets,
    ) -> Result<Target, IntakeError> {
        let key = scope.key();
        let all = targets.all.unwrap_or(false);
        match (&targets.memory_ids, &targets.message, &targets.source, all) {
            (Some(ids), None, None, false) => {
                check_ids(ids)?;
                Ok(Target::Memories(ids.clone()))
            }
            (None, Some(message), source, false) => {
                self.message_target(scope, message, source.as_deref()).await
            }
            (None, None, Some(source), false) => Ok(Target::Source(self.ids().source(key, source))),
            (None, None, None, true) => Ok(Target::Owner),
            (None, None, None, false) => Err(missing(
                "memory_ids",
                "say what: memory_ids, source, message (with its source), or all: true",
            )),
            (_, _, _, _) => Err(invalid(
                "memory_ids",
                "give only one of memory_ids, source, message (with its source), or all: true",
            )),
        }
    }

    /// A message is named by its token, or by its event id (`event` or `event#message`) and source.
    async fn message_target(
        &self,
        scope: OwnerScope,
        message: &str,
        source: Option<&str>,
    ) -> Result<Target, IntakeError> {
        if let Ok(event) = message.parse::<EventTag>() {
            return Ok(Target::Message(event));
        }
        let source = source.unwrap_or(API_SOURCE);
        let whole = self.ids().event(scope.key(), source, message, "");
        let Some((event_id, part)) = message.rsplit_once('#') else {
            return Ok(Target::Message(whole));
        };
        // An event id may hold a mark of its own; what was decided tells which is meant.
        let split = self.ids().event(scope.key(), source, event_id, part);
        let is_whole = self.records.decision(scope, whole).await?.is_some();
        Ok(Target::Message(if is_whole { whole } else { split }))
    }
}

pub(super) fn check_ids(ids: &[MemoryId]) -> Result<(), IntakeError> {
    if ids.is_empty() || ids.len() > caps::MEMORY_IDS_MAX {
        return Err(invalid(
            "memory_ids",
            format!("1 to {} ids", caps::MEMORY_IDS_MAX),
        ));
    }
    Ok(())
}
