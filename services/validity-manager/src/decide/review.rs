//! What a person decides: about a memory that waits, and about a candidate that was turned down.

use anamnesis_domain::ids::{EventTag, MemoryId};
use anamnesis_domain::input::{CommandRecord, Verdict};
use anamnesis_domain::memory::{Claim, Status};
use anamnesis_domain::state::Held;
use anamnesis_domain::text::Text;
use anamnesis_domain::transition::{Mark, Outcome, Review, Transition};

use super::Draft;

/// Decides once: whoever comes second finds it decided. Another decision needs it opened again first,
/// which is an event of its own.
pub(super) fn decide(
    draft: &mut Draft<'_>,
    record: &CommandRecord,
    id: MemoryId,
    verdict: Verdict,
    reason: &Text,
) -> Outcome {
    let Some(entry) = draft.state.claims.get(&id) else {
        return Outcome::Rejected("not_found".to_owned());
    };
    let status = entry.standing.status;
    let is_open = matches!(status, Status::Conflicted | Status::PendingReview);
    let is_lawful = match verdict {
        // What was decided before, or what has waited too long.
        Verdict::Reopen => is_open || entry.verdict().is_some(),
        Verdict::Admit => status == Status::PendingReview,
        Verdict::KeepOld | Verdict::TakeNew | Verdict::KeepBoth | Verdict::Retire => is_open,
    };
    if !is_lawful {
        return Outcome::Rejected("not_in_review".to_owned());
    }
    draft.mark_group(id, &reviewed(record, verdict, reason));
    draft.note(verdict.code(), Some(id), None);
    draft.changed()
}

/// Lets a rejected candidate count after all. Its id tells it from what the message's own candidates
/// became, and a second admission finds the first.
pub(super) fn admit(
    draft: &mut Draft<'_>,
    record: &CommandRecord,
    event: EventTag,
    id: MemoryId,
    claim: &Claim,
    reason: &Text,
) -> Outcome {
    let rejected = |code: &str| Outcome::Rejected(code.to_owned());
    if claim.source.event != event {
        return rejected("not_found");
    }
    match draft.state.events.get(&event).map(|seen| seen.content) {
        None => return rejected("not_found"),
        Some(None) => return rejected("erased"),
        Some(Some(_)) => (),
    }
    if draft.state.erased.contains(&id) {
        return rejected("erased");
    }
    if draft.state.claims.contains_key(&id) {
        return rejected("not_in_review");
    }
    draft.assert(vec![(id, claim.clone())]);
    let mark = reviewed(record, Verdict::Admit, reason);
    let by = draft.by;
    if let Some(entry) = draft.touched.get_mut(&id) {
        entry.marks.push(Held {
            value: mark.clone(),
            by,
            recorded_from: 0,
            recorded_to: None,
            closed_by: None,
        });
    }
    draft.note(Verdict::Admit.code(), Some(id), None);
    let outcome = draft.changed();
    // After the assertion: a mark needs its memory.
    draft.push(Transition::Marked { id, mark });
    outcome
}

fn reviewed(record: &CommandRecord, verdict: Verdict, reason: &Text) -> Mark {
    Mark::Reviewed(Box::new(Review {
        verdict,
        actor: Some(record.actor.clone()),
        at: Some(record.at),
        reason: Some(reason.clone()),
    }))
}
