//! What an input changes: the only place where a decision is made. Pure: state, input and time come in,
//! a decision goes out.

mod review;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use anamnesis_domain::attribute::Attributes;
use anamnesis_domain::ids::{EventTag, Hash, IdKey, MemoryId};
use anamnesis_domain::input::{
    ADMITTED, CandidateSet, Command, CommandRecord, Input, RejectCode, Target,
};
use anamnesis_domain::line::{self, Content, Derived, LineKey, VOTE_NOTE, Vote};
use anamnesis_domain::memory::{Claim, Kind, Permille, Standing, Status};
use anamnesis_domain::state::{CausedBy, Entry, Held, OwnerState};
use anamnesis_domain::text::Text;
use anamnesis_domain::time::Timestamp;
use anamnesis_domain::transition::{Decision, Mark, Note, Outcome, Transition};

/// What `decide` goes by besides the state.
#[derive(Clone, Debug)]
pub struct Rules {
    pub attributes: &'static Attributes,
    /// Without a grant nothing of a patient is stored.
    pub consent_required: bool,
    /// Statements that will not stay true this long are not long-term memories.
    pub stability_min: Permille,
}

impl Default for Rules {
    fn default() -> Self {
        Self {
            attributes: Attributes::shipped(),
            consent_required: true,
            stability_min: Permille::new(700),
        }
    }
}

/// Decides one input. Always answers, also when nothing changes.
pub fn decide(
    state: &OwnerState,
    input: &Input,
    now: Timestamp,
    ids: &IdKey,
    rules: &Rules,
) -> Decision {
    match input {
        Input::Erased { .. } => rejected("erased", None),
        Input::Candidates(set) => candidates(state, set, now, ids, rules),
        Input::Command(command) => {
            let content = command.content_hash();
            if let Some(again) = repeated(state, command.event, content) {
                return again;
            }
            let (event, source) = command.words_of();
            let by = CausedBy { event, source };
            let mut draft = Draft::new(state, by, rules);
            let outcome = run(&mut draft, command, now, ids);
            draft.finish(outcome, content)
        }
    }
}

/// The same event again, or the same id with other content.
fn repeated(state: &OwnerState, event: EventTag, content: Hash) -> Option<Decision> {
    let seen = state.events.get(&event)?;
    Some(match seen.content {
        None => rejected("erased", Some(content)),
        Some(known) if known == content => Decision {
            outcome: Outcome::Duplicate,
            transitions: Vec::new(),
            notes: Vec::new(),
            content: Some(content),
        },
        Some(_) => rejected("id_reused", Some(content)),
    })
}

fn rejected(code: &str, content: Option<Hash>) -> Decision {
    Decision {
        outcome: Outcome::Rejected(code.to_owned()),
        transitions: Vec::new(),
        notes: Vec::new(),
        content,
    }
}

fn candidates(
    state: &OwnerState,
    set: &CandidateSet,
    now: Timestamp,
    ids: &IdKey,
    rules: &Rules,
) -> Decision {
    if let Some(again) = repeated(state, set.event, set.content) {
        return again;
    }
    let by = CausedBy {
        event: set.event,
        source: set.source_tag,
    };
    let mut draft = Draft::new(state, by, rules);
    for reject in &set.rejects {
        draft.note(reject.code.code(), None, reject.text.clone());
    }
    if let Some(code) = &set.failed {
        return draft.finish(Outcome::Failed(code.clone()), set.content);
    }
    let needs_consent = rules.consent_required && OwnerState::needs_consent(&set.owner);
    let mut claims = Vec::new();
    let mut without_consent = 0;
    for candidate in &set.candidates {
        let claim = &candidate.claim;
        if needs_consent && !state.consents_to(claim.kind, rules.attributes, now) {
            draft.note(RejectCode::Consent.code(), None, None);
            without_consent += 1;
            continue;
        }
        let is_fleeting = candidate.stability < rules.stability_min;
        if is_fleeting && !claim.explicit && claim.valid_to.is_none() && claim.kind != Kind::Episode
        {
            draft.note(RejectCode::Transient.code(), None, Some(claim.text.clone()));
            continue;
        }
        claims.push((ids.memory(set.event, candidate.ordinal), claim.clone()));
    }
    if claims.is_empty() && without_consent > 0 {
        return draft.finish(Outcome::Rejected("consent".to_owned()), set.content);
    }
    draft.assert(claims);
    let outcome = draft.changed();
    draft.finish(outcome, set.content)
}

fn run(draft: &mut Draft<'_>, record: &CommandRecord, now: Timestamp, ids: &IdKey) -> Outcome {
    match &record.command {
        Command::Remember { claim } => {
            if let Some(refused) = draft.refuse_without_consent(record, claim.kind, now) {
                return refused;
            }
            draft.assert(vec![(ids.memory(record.event, 0), (**claim).clone())]);
            draft.changed()
        }
        Command::Correct {
            memory_id,
            claim,
            ended_at,
            expected_version,
            ..
        } => {
            if let Some(refused) = draft.refuse_version(*memory_id, *expected_version) {
                return refused;
            }
            if let Some(claim) = claim
                && let Some(refused) = draft.refuse_without_consent(record, claim.kind, now)
            {
                return refused;
            }
            correct(
                draft,
                *memory_id,
                claim.as_deref(),
                *ended_at,
                ids.memory(record.event, 0),
            );
            draft.changed()
        }
        Command::Retire {
            memory_id,
            expected_version,
            ..
        } => {
            if let Some(refused) = draft.refuse_version(*memory_id, *expected_version) {
                return refused;
            }
            draft.mark_group(*memory_id, &Mark::Retired);
            draft.changed()
        }
        Command::Archive { memories, .. } => {
            for (id, version) in memories {
                draft.archive(*id, *version);
            }
            draft.changed()
        }
        Command::Restore { memory_ids } => {
            for id in memory_ids {
                draft.mark_if(*id, &Mark::Restored, Some(Status::Archived), true);
            }
            draft.changed()
        }
        Command::Restrict { target, .. } => {
            for id in draft.state.claims_of(target) {
                draft.mark_if(id, &Mark::Restricted, Some(Status::Restricted), false);
            }
            draft.changed()
        }
        Command::Unrestrict { target } => {
            for id in draft.state.claims_of(target) {
                draft.mark_if(id, &Mark::Unrestricted, Some(Status::Restricted), true);
            }
            draft.changed()
        }
        Command::Erase {
            erasure, target, ..
        } => {
            if *target != Target::Owner && draft.state.holds_consent_of(target) {
                return Outcome::Rejected("consent_record_kept".to_owned());
            }
            if let Target::Message(event) = target
                && draft
                    .state
                    .events
                    .get(event)
                    .is_some_and(|seen| seen.of.is_some())
            {
                // An admission has no words of its own: erase the message or the memory.
                return Outcome::Rejected("of_another_message".to_owned());
            }
            if let Target::Memories(ids) = target
                && ids.iter().all(|id| !draft.state.claims.contains_key(id))
            {
                return Outcome::Rejected("not_found".to_owned());
            }
            draft.erase(*erasure, target);
            Outcome::Stored
        }
        Command::Grant { consent } => {
            draft.push(Transition::ConsentGranted {
                consent: consent.clone(),
            });
            Outcome::Stored
        }
        Command::Withdraw { kinds, from } => {
            if draft
                .state
                .consents
                .iter()
                .all(|held| held.recorded_to.is_some())
            {
                return Outcome::NoOp;
            }
            draft.push(Transition::ConsentWithdrawn {
                kinds: kinds.clone(),
                from: *from,
            });
            Outcome::Stored
        }
        Command::Review {
            memory_id,
            verdict,
            expected_version,
            reason,
        } => {
            if let Some(refused) = draft.refuse_version(*memory_id, *expected_version) {
                return refused;
            }
            review::decide(draft, record, *memory_id, *verdict, reason)
        }
        Command::Admit {
            event,
            index,
            claim,
            reason,
        } => {
            if let Some(refused) = draft.refuse_without_consent(record, claim.kind, now) {
                return refused;
            }
            let id = ids.memory(*event, ADMITTED.saturating_add(*index));
            review::admit(draft, record, *event, id, claim, reason)
        }
        Command::Task { task } => {
            if let Some(refused) = draft.refuse_without_consent(record, Kind::Fact, now) {
                return refused;
            }
            draft.push(Transition::TaskChanged { task: task.clone() });
            Outcome::Stored
        }
        Command::Summarise { accesses } => {
            for access in accesses {
                if draft.state.claims.contains_key(&access.memory_id) {
                    draft.push(Transition::Accessed {
                        access: access.clone(),
                    });
                }
            }
            draft.changed()
        }
    }
}

/// Replaces what a memory says, or ends it.
fn correct(
    draft: &mut Draft<'_>,
    id: MemoryId,
    claim: Option<&Claim>,
    ended_at: Option<Timestamp>,
    new_id: MemoryId,
) {
    let Some(claim) = claim else {
        if let Some(at) = ended_at {
            draft.mark_group(id, &Mark::Ended { at });
        }
        return;
    };
    // The old one held until the new one does; a correction from the start makes it empty.
    draft.mark_group(
        id,
        &Mark::Ended {
            at: claim.valid_from,
        },
    );
    draft.mark_group(id, &Mark::Corrected { by: new_id });
    draft.assert(vec![(new_id, claim.clone())]);
}

/// A decision in the making: new claims and marks over the state that was handed in.
struct Draft<'a> {
    state: &'a OwnerState,
    rules: &'a Rules,
    by: CausedBy,
    /// Entries that differ from the state: new claims, and claims with new marks.
    touched: BTreeMap<MemoryId, Entry>,
    asserted: BTreeSet<MemoryId>,
    /// Memories that get a new version though their standing stays (one more source, one more place
    /// in a history).
    refreshed: BTreeSet<MemoryId>,
    /// Claims whose standing was set by something that is being erased.
    unsettled: BTreeSet<MemoryId>,
    gone: BTreeSet<MemoryId>,
    lines: BTreeSet<LineKey>,
    transitions: Vec<Transition>,
    notes: Vec<Note>,
}

impl<'a> Draft<'a> {
    fn new(state: &'a OwnerState, by: CausedBy, rules: &'a Rules) -> Self {
        Self {
            state,
            rules,
            by,
            touched: BTreeMap::new(),
            asserted: BTreeSet::new(),
            refreshed: BTreeSet::new(),
            unsettled: BTreeSet::new(),
            gone: BTreeSet::new(),
            lines: BTreeSet::new(),
            transitions: Vec::new(),
            notes: Vec::new(),
        }
    }

    fn push(&mut self, transition: Transition) {
        self.transitions.push(transition);
    }

    fn note(&mut self, code: &str, memory_id: Option<MemoryId>, detail: Option<Text>) {
        self.notes.push(Note {
            code: code.to_owned(),
            memory_id,
            detail,
        });
    }

    fn refuse_without_consent(
        &self,
        record: &CommandRecord,
        kind: Kind,
        now: Timestamp,
    ) -> Option<Outcome> {
        let needed = self.rules.consent_required && OwnerState::needs_consent(&record.owner);
        let given = !needed || self.state.consents_to(kind, self.rules.attributes, now);
        (!given).then(|| Outcome::Rejected("consent".to_owned()))
    }

    fn refuse_version(&self, id: MemoryId, expected: Option<u64>) -> Option<Outcome> {
        let Some(entry) = self.state.claims.get(&id) else {
            let code = if self.state.erased.contains(&id) {
                "erased"
            } else {
                "not_found"
            };
            return Some(Outcome::Rejected(code.to_owned()));
        };
        match expected {
            Some(expected) if expected != entry.version => {
                Some(Outcome::Rejected("version".to_owned()))
            }
            Some(_) | None => None,
        }
    }

    /// The entry as this decision leaves it.
    fn entry(&self, id: MemoryId) -> Option<&Entry> {
        if self.gone.contains(&id) {
            return None;
        }
        self.touched.get(&id).or_else(|| self.state.claims.get(&id))
    }

    fn assert(&mut self, claims: Vec<(MemoryId, Claim)>) {
        for (id, claim) in claims {
            if self.state.claims.contains_key(&id) || self.state.erased.contains(&id) {
                continue;
            }
            let key = LineKey::of(id, &claim, self.rules.attributes);
            // The standing is derived with the line; this one is replaced.
            let standing = Standing {
                status: Status::Active,
                valid_from: claim.valid_from,
                valid_to: claim.valid_to,
                superseded_by: None,
                conflict_with: None,
                confirms: None,
                rule: String::new(),
            };
            let entry = Entry {
                id,
                seq: self.state.seq + 1,
                version: self.state.seq + 1,
                recorded_at: claim.source.at,
                claim: Arc::new(claim),
                marks: Vec::new(),
                standing,
                standing_by: self.by,
                accesses: Vec::new(),
            };
            self.touched.insert(id, entry);
            self.asserted.insert(id);
            self.lines.insert(key);
        }
    }

    /// Sets a mark on a memory and on every claim that confirms it.
    fn mark_group(&mut self, id: MemoryId, mark: &Mark) {
        let mut members: Vec<MemoryId> = self
            .state
            .confirming(id)
            .iter()
            .map(|entry| entry.id)
            .collect();
        members.insert(0, id);
        for member in members {
            self.mark(member, mark);
        }
    }

    fn mark(&mut self, id: MemoryId, mark: &Mark) {
        let Some(mut entry) = self.entry(id).cloned() else {
            return;
        };
        entry.marks.push(Held {
            value: mark.clone(),
            by: self.by,
            recorded_from: 0,
            recorded_to: None,
            closed_by: None,
        });
        self.lines
            .insert(LineKey::of(id, &entry.claim, self.rules.attributes));
        self.touched.insert(id, entry);
        self.transitions.push(Transition::Marked {
            id,
            mark: mark.clone(),
        });
    }

    /// Marks where the claim is (or is not) hidden as `status`.
    fn mark_if(&mut self, id: MemoryId, mark: &Mark, status: Option<Status>, wanted: bool) {
        let is_hidden = self.entry(id).map(|entry| entry.hidden_as() == status);
        if is_hidden == Some(wanted) {
            self.mark_group(id, mark);
        }
    }

    /// The forgetter's proposal, rechecked: protected memories and changed ones stay.
    fn archive(&mut self, id: MemoryId, version: u64) {
        let Some(entry) = self.state.claims.get(&id) else {
            return;
        };
        if self.rules.attributes.kind(entry.claim.kind).protected {
            self.note("protected", Some(id), None);
        } else if entry.version != version {
            self.note("version", Some(id), None);
        } else if entry.hidden_as().is_none() {
            self.mark_group(id, &Mark::Archived);
        }
    }

    fn erase(&mut self, erasure: anamnesis_domain::ids::ErasureId, target: &Target) {
        let gone = self.state.claims_of(target);
        // Of the owner as a whole everything goes; a list would only repeat the skeleton.
        let listed = if *target == Target::Owner {
            Vec::new()
        } else {
            gone.iter().copied().collect()
        };
        let target = match target {
            // What is destroyed is said in full, so that keyring and stores need no state.
            Target::Memories(_) => Target::Memories(gone.iter().copied().collect()),
            Target::Message(_) | Target::Source(_) | Target::Owner => target.clone(),
        };
        self.push(Transition::Erased {
            erasure,
            target: target.clone(),
            memory_ids: listed,
        });
        if target == Target::Owner {
            self.gone = gone;
            return;
        }
        for id in &gone {
            let claim = &self.state.claims[id].claim;
            self.lines
                .insert(LineKey::of(*id, claim, self.rules.attributes));
        }
        for entry in self
            .state
            .claims
            .values()
            .filter(|entry| !gone.contains(&entry.id))
        {
            let is_gone = |by: CausedBy| OwnerState::is_erased_cause(&target, by);
            let loses_marks = entry.marks.iter().any(|mark| is_gone(mark.by));
            let loses_standing = is_gone(entry.standing_by);
            if loses_marks || loses_standing {
                let mut kept = entry.clone();
                kept.marks.retain(|mark| !is_gone(mark.by));
                self.lines
                    .insert(LineKey::of(entry.id, &entry.claim, self.rules.attributes));
                self.touched.insert(entry.id, kept);
                self.unsettled.insert(entry.id);
            }
        }
        self.gone = gone;
    }

    /// Derives every line that this decision touches and records the differences.
    fn derive_lines(&mut self) {
        let mut left = std::mem::take(&mut self.lines);
        let line_of = |entry: &Entry| LineKey::of(entry.id, &entry.claim, self.rules.attributes);
        let touched = self.touched.values();
        let new: Vec<(LineKey, &Entry)> = touched.map(|entry| (line_of(entry), entry)).collect();
        let mut all = Vec::new();
        while let Some(key) = left.pop_first() {
            let beside = self.state.lines_beside(&key, &new);
            left.retain(|key| !beside.contains(key));
            let lines: Vec<(LineKey, Vec<&Entry>)> = beside
                .into_iter()
                .map(|key| (key.clone(), self.line(&key)))
                .collect();
            all.push(line::derive(&lines, self.rules.attributes));
        }
        for derived in all {
            self.record_lines(derived);
        }
    }

    /// The claims of a line as this decision leaves them.
    fn line(&self, key: &LineKey) -> Vec<&Entry> {
        let mut members: BTreeSet<MemoryId> =
            self.state.lines.get(key).cloned().unwrap_or_default();
        for entry in self.touched.values() {
            if LineKey::of(entry.id, &entry.claim, self.rules.attributes) == *key {
                members.insert(entry.id);
            }
        }
        members.iter().filter_map(|id| self.entry(*id)).collect()
    }

    fn record_lines(&mut self, derived: Derived) {
        for vote in &derived.votes {
            let before = self.state.claims.get(&vote.id).map(|entry| &entry.standing);
            if before != derived.standings.get(&vote.id) {
                self.note(VOTE_NOTE, Some(vote.id), Some(weighed(vote)));
            }
        }
        let derived = derived.standings;
        for (id, standing) in &derived {
            if self.asserted.contains(id) {
                self.note(&standing.rule, Some(*id), None);
                self.refreshed.extend(standing.confirms);
            }
            let before = self.state.claims.get(id).map(|entry| &entry.standing);
            if before != Some(standing) {
                self.refreshed.extend(standing.superseded_by);
                self.refreshed
                    .extend(before.and_then(|before| before.superseded_by));
                self.refreshed
                    .extend(before.and_then(|before| before.confirms));
            }
        }
        for (id, standing) in derived {
            if self.asserted.contains(&id) {
                let claim = Box::new((*self.touched[&id].claim).clone());
                self.push(Transition::Asserted {
                    id,
                    claim,
                    standing,
                });
                continue;
            }
            let before = self.state.claims.get(&id).map(|entry| &entry.standing);
            let is_changed = before != Some(&standing) || self.unsettled.contains(&id);
            if is_changed || self.refreshed.contains(&id) {
                self.push(Transition::Moved { id, standing });
            }
        }
    }

    fn changed(&mut self) -> Outcome {
        self.revive_archived();
        self.derive_lines();
        if self.transitions.is_empty() {
            Outcome::NoOp
        } else {
            Outcome::Stored
        }
    }

    /// Somebody says again what was archived: it comes back.
    fn revive_archived(&mut self) {
        let mut revived = Vec::new();
        for id in &self.asserted {
            let entry = &self.touched[id];
            let key = LineKey::of(*id, &entry.claim, self.rules.attributes);
            let said = Content::of(&entry.claim);
            let archived = self.state.line(&key).into_iter().filter(|other| {
                let before = Content::of(&other.claim);
                other.hidden_as() == Some(Status::Archived)
                    && other.standing.confirms.is_none()
                    && (&before.value, before.polarity) == (&said.value, said.polarity)
            });
            revived.extend(archived.map(|other| other.id));
        }
        for id in revived {
            self.mark_group(id, &Mark::Restored);
        }
    }

    fn finish(mut self, outcome: Outcome, content: Hash) -> Decision {
        let outcome = match outcome {
            Outcome::Stored => {
                self.derive_lines();
                Outcome::Stored
            }
            other @ (Outcome::Duplicate
            | Outcome::NoOp
            | Outcome::Rejected(_)
            | Outcome::Failed(_)) => other,
        };
        Decision {
            outcome,
            transitions: self.transitions,
            notes: self.notes,
            content: Some(content),
        }
    }
}

/// The vote's outcome and weights, as the event keeps them.
fn weighed(vote: &Vote) -> Text {
    Text::new(format!(
        r#"{{"outcome":"{}","own":{:.3},"other":{:.3},"against":"{}"}}"#,
        vote.outcome,
        vote.own.share(),
        vote.other.share(),
        vote.against
    ))
}
