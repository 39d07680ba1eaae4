//! `decide` and `evolve` together, over plain values: what is said, and what is believed afterwards.

use std::collections::BTreeSet;

use anamnesis_domain::attribute::Attributes;
use anamnesis_domain::digest;
use anamnesis_domain::evolve::{Recorded, evolve};
use anamnesis_domain::ids::{Hash, IdKey, MemoryId, OwnerKey};
use anamnesis_domain::input::{
    Candidate, CandidateSet, Cause, Command, CommandRecord, Consent, Input, Position, Target,
    Topic, Verdict,
};
use anamnesis_domain::invariants;
use anamnesis_domain::memory::{
    Claim, Entity, EntityKind, Intent, Kind, Permille, Polarity, Quantity, Role, STRUCTURED,
    Source, Status,
};
use anamnesis_domain::owner::Subject;
use anamnesis_domain::state::OwnerState;
use anamnesis_domain::time::{DAY_MS, Timestamp};
use anamnesis_domain::transition::{Decided, Detail, Outcome, Part, PartBody, Transition};

mod crowded;
mod properties;
mod table;

use crate::decide::{Rules, decide};

const IDS: IdKey = IdKey::from_bytes([9; 32]);
const OWNER: &str = "h1/patient/p1";

fn key() -> OwnerKey {
    IDS.owner(&OWNER.parse().unwrap())
}

fn day(n: i64) -> Timestamp {
    Timestamp::from_millis(n * DAY_MS)
}

/// The pure half of the log: decides, records, folds; and folds again after keys are destroyed.
struct World {
    state: OwnerState,
    decided: Vec<Decided>,
    /// Records whose source key and all keys below it are destroyed, by index.
    unreadable: BTreeSet<usize>,
    /// Records that lost their source key only: what else was derived from them was wrapped anew.
    unsourced: BTreeSet<usize>,
    destroyed_memories: BTreeSet<MemoryId>,
    inputs: u64,
}

impl World {
    fn new() -> Self {
        let mut world = Self {
            state: OwnerState::new(key()),
            decided: Vec::new(),
            unreadable: BTreeSet::new(),
            unsourced: BTreeSet::new(),
            destroyed_memories: BTreeSet::new(),
            inputs: 0,
        };
        let consent = Consent {
            purposes: vec!["care".to_owned()],
            kinds: None,
            max_sensitivity: 4,
            valid_from: day(-100_000),
            valid_to: None,
        };
        world.command("grant", "consent", Command::Grant { consent });
        world
    }

    fn command(&mut self, id: &str, source: &str, command: Command) -> Outcome {
        self.input(&Input::Command(Box::new(CommandRecord {
            owner: OWNER.parse().unwrap(),
            event: IDS.event(key(), source, id, ""),
            source_tag: IDS.source(key(), source),
            source: source.to_owned(),
            event_id: id.to_owned(),
            actor: "test".to_owned(),
            at: day(0),
            zone_minutes: 0,
            command,
        })))
    }

    fn input(&mut self, input: &Input) -> Outcome {
        let decision = decide(&self.state, input, day(10_000), &IDS, &Rules::default());
        let again = decide(&self.state, input, day(10_000), &IDS, &Rules::default());
        assert_eq!(decision, again, "deciding twice gives the same");
        self.inputs += 1;
        let (event, source) = match input {
            Input::Candidates(set) => (set.event, set.source_tag),
            Input::Command(record) => (record.event, record.source_tag),
            Input::Erased { event } => (*event, IDS.source(key(), "erased")),
        };
        let position = Position {
            topic: Topic::Candidates,
            partition: 0,
            offset: self.inputs,
        };
        let decided = Decided {
            owner: key(),
            owner_seq: self.state.seq + 1,
            prev_hash: self.state.head,
            writer_epoch: 1,
            key_epoch: 1,
            cause: Cause {
                position,
                event,
                source_tag: source,
                origin: position,
            },
            decided_at: day(10_000),
            outcome: decision.outcome.clone(),
            parts: decision
                .transitions
                .iter()
                .map(|transition| Part {
                    code: transition.code().to_owned(),
                    memory_id: transition.memory_id(),
                    key: None,
                    body: PartBody::Open(Box::new(transition.clone())),
                })
                .collect(),
            source_key: None,
            detail: Some(Detail {
                owner: OWNER.to_owned(),
                content: decision.content,
                notes: decision.notes,
            }),
        };
        let recorded = self.recorded(self.inputs);
        evolve(&mut self.state, &decided, recorded);
        self.decided.push(decided);
        for transition in &decision.transitions {
            if let Transition::Erased { target, .. } = transition {
                self.destroy(target);
            }
        }
        invariants::check(&self.state).unwrap();
        decision.outcome
    }

    fn recorded(&self, n: u64) -> Recorded {
        Recorded {
            offset: n,
            at: Timestamp::from_millis(n as i64),
            hash: Hash::of(&n.to_le_bytes()),
        }
    }

    /// What the keyring does: to the keys that exist now.
    fn destroy(&mut self, target: &Target) {
        for (n, decided) in self.decided.iter().enumerate() {
            let cause = &decided.cause;
            match target {
                Target::Memories(ids) => {
                    let asserts = |part: &Part| {
                        let about = part.memory_id.is_some_and(|id| ids.contains(&id));
                        about
                            && matches!(part.code.as_str(), "memory_asserted" | "memory_confirmed")
                    };
                    if decided.parts.iter().any(asserts) {
                        self.unsourced.insert(n);
                    }
                    self.destroyed_memories.extend(ids);
                }
                Target::Message(event) if cause.event == *event => _ = self.unreadable.insert(n),
                Target::Source(source) if cause.source_tag == *source => {
                    self.unreadable.insert(n);
                }
                Target::Owner => _ = self.unreadable.insert(n),
                Target::Message(_) | Target::Source(_) => (),
            }
        }
    }

    /// A fold of the log from the start, with the keys that are left.
    fn replay(&self) -> OwnerState {
        let mut state = OwnerState::new(key());
        for (n, decided) in self.decided.iter().enumerate() {
            let mut read = decided.clone();
            let gone = self.unreadable.contains(&n);
            if gone || self.unsourced.contains(&n) {
                read.detail = None;
            }
            for part in &mut read.parts {
                let is_clear = part.code == "memories_erased";
                let is_memory_gone = part
                    .memory_id
                    .is_some_and(|id| self.destroyed_memories.contains(&id));
                if !is_clear && (gone || is_memory_gone) {
                    part.body = PartBody::Unreadable;
                }
            }
            evolve(&mut state, &read, self.recorded(n as u64 + 1));
        }
        state
    }

    fn believed(&self) -> String {
        let mut lines: Vec<String> = self
            .state
            .claims
            .values()
            .filter(|entry| entry.standing.confirms.is_none())
            .map(|entry| {
                let standing = &entry.standing;
                let days = |at: Timestamp| at.millis() / DAY_MS;
                let to = standing
                    .valid_to
                    .map_or("…".to_owned(), |to| days(to).to_string());
                format!(
                    "{} {}[{},{})",
                    entry.claim.text.expose(),
                    standing.status,
                    days(standing.valid_from),
                    to
                )
            })
            .collect();
        lines.sort();
        lines.join("; ")
    }
}

/// `dose=5mg@3` is said on day 3. Before the name: `!` denies, `~` says that the world changed, `^`
/// corrects, `%` refutes, `&` takes back, `father.` is about the father. After the day: `>2` holds from
/// day 2, `<9` until day 9, `#tool` is said by a tool, `/r1` stands in record r1, `*` is hedged.
fn claim(spec: &str, source: &str) -> Claim {
    let (intent, rest) = match spec.split_at(1) {
        ("~", rest) => (Intent::Change, rest),
        ("^", rest) => (Intent::Correct, rest),
        ("%", rest) => (Intent::Refute, rest),
        ("&", rest) => (Intent::Withdraw, rest),
        _ => (Intent::Assert, spec),
    };
    let (polarity, rest) = match rest.strip_prefix('!') {
        Some(rest) => (Polarity::Negative, rest),
        None => (Polarity::Positive, rest),
    };
    let is_hedged = rest.ends_with('*');
    let (what, when) = rest.trim_end_matches('*').split_once('@').unwrap();
    let (when, record) = match when.split_once('/') {
        Some((when, record)) => (when, Some(record.to_owned())),
        None => (when, None),
    };
    let (when, role) = when.split_once('#').unwrap_or((when, "user"));
    let (when, until) = match when.split_once('<') {
        Some((when, until)) => (when, Some(day(until.parse().unwrap()))),
        None => (when, None),
    };
    let (said, valid) = when.split_once('>').unwrap_or((when, when));
    let (name, value) = what.split_once('=').unwrap();
    let (subject, name) = match name.split_once('.') {
        Some((subject, name)) => (Subject::parse(subject), name),
        None => (Subject::Self_, name),
    };
    let (kind, attribute, key_value, quantity) = match name {
        "dose" => (
            Kind::Medication,
            "medication",
            "warfarin",
            value.strip_suffix("mg"),
        ),
        "allergy" => (Kind::Allergy, "allergy", value, None),
        "condition" => (Kind::Condition, "condition", value, None),
        "smoking" => (Kind::Fact, "smoking_status", value, None),
        "likes" => (Kind::Preference, "preference", value, None),
        other => panic!("no such attribute: {other}"),
    };
    let entities = match value {
        "penicillin" => vec![Entity {
            kind: EntityKind::Drug,
            name: value.into(),
        }],
        _ => Vec::new(),
    };
    let extractor = match record {
        Some(_) => STRUCTURED,
        None => "test",
    };
    let event = IDS.event(key(), source, spec, "");
    Claim {
        subject,
        kind,
        text: spec
            .trim_start_matches(['~', '^', '%', '&'])
            .split('@')
            .next()
            .unwrap()
            .into(),
        attribute: Some(attribute.to_owned()),
        value: Some(key_value.to_owned()),
        quantity: quantity
            .and_then(|n| n.parse::<i64>().ok())
            .map(|n| Quantity {
                micros: n * 1_000_000,
                unit: "mg".to_owned(),
            }),
        schedule: None,
        polarity,
        intent,
        quote: None,
        entities,
        valid_from: day(valid.parse().unwrap()),
        valid_to: until,
        importance: Permille::new(500),
        confidence: Permille::new(if is_hedged { 700 } else { 950 }),
        explicit: false,
        namespace: None,
        key: None,
        context_tags: Vec::new(),
        language: "en".to_owned(),
        source: Source {
            event,
            source_tag: IDS.source(key(), source),
            source: source.to_owned(),
            event_id: spec.to_owned(),
            conversation_id: None,
            turn_id: None,
            message_id: record,
            role: Role::from_code(role).unwrap(),
            speaker: None,
            at: day(said.parse().unwrap()),
            zone_minutes: 0,
            extractor: extractor.to_owned(),
            model: None,
            prompt_version: None,
        },
    }
}

fn said(spec: &str, source: &str) -> Input {
    let claim = claim(spec, source);
    Input::Candidates(Box::new(CandidateSet {
        owner: OWNER.parse().unwrap(),
        event: claim.source.event,
        source_tag: claim.source.source_tag,
        content: Hash::of(spec.as_bytes()),
        at: claim.source.at,
        candidates: vec![Candidate {
            ordinal: 0,
            claim,
            stability: Permille::ONE,
        }],
        rejects: Vec::new(),
        extractor: "test".to_owned(),
        prompt_version: None,
        model_answer: None,
        failed: None,
        model_use: None,
    }))
}

fn check(specs: &str, believed: &str) {
    let mut world = World::new();
    for spec in specs.split_whitespace() {
        world.input(&said(spec, "chat"));
    }
    assert_eq!(world.believed(), believed, "{specs}");
    assert_eq!(
        world.replay(),
        world.state,
        "a replay ends in the same state"
    );
}

#[test]
fn a_changed_value_supersedes() {
    check(
        "dose=5mg@1 dose=10mg@4",
        "dose=10mg active[4,…); dose=5mg superseded[1,4)",
    );
    check(
        "smoking=yes@1 smoking=former@4",
        "smoking=former active[4,…); smoking=yes superseded[1,4)",
    );
}

#[test]
fn many_values_stand_side_by_side() {
    check(
        "allergy=peanut@1 allergy=mango@2",
        "allergy=mango active[2,…); allergy=peanut active[1,…)",
    );
}

#[test]
fn a_repeat_confirms() {
    check(
        "allergy=peanut@1 allergy=peanut@9",
        "allergy=peanut active[1,…)",
    );
}

#[test]
fn no_longer_gives_the_opposite() {
    check(
        "allergy=peanut@1 ~!allergy=peanut@5",
        "!allergy=peanut active[5,…); allergy=peanut superseded[1,5)",
    );
}

#[test]
fn a_bare_contradiction_about_an_allergy_waits_for_a_person() {
    check(
        "allergy=peanut@1 !allergy=peanut@5",
        "!allergy=peanut conflicted[5,…); allergy=peanut active[1,…)",
    );
}

/// Found by the property that what protects never ends without a cause: the record's "no" was taken as
/// what stood, and the patient's own allergy as what came to it.
#[test]
fn a_bare_no_of_the_same_instant_never_takes_the_place_of_what_protects() {
    let believed = "!allergy=peanut conflicted[1,…); allergy=peanut active[1,…)";
    for role in ["", "#tool", "#record/r1", "#clinician"] {
        check(
            &format!("allergy=peanut@1 !allergy=peanut@1{role}"),
            believed,
        );
        check(
            &format!("!allergy=peanut@1{role} allergy=peanut@1"),
            believed,
        );
    }
    // What is no bare "no" says more: it has ended, or it never was so.
    check(
        "allergy=peanut@1 ~!allergy=peanut@1",
        "!allergy=peanut active[1,…); allergy=peanut superseded[1,1)",
    );
    check(
        "allergy=peanut@1 %!allergy=peanut@1#record/r1",
        "!allergy=peanut active[1,…); allergy=peanut retired[1,…)",
    );
}

#[test]
fn what_was_stopped_can_be_taken_again() {
    check(
        "dose=5mg@1 ~!dose=0mg@5 dose=5mg@9",
        "!dose=0mg superseded[5,9); dose=5mg active[9,…); dose=5mg superseded[1,5)",
    );
}

#[test]
fn an_older_fact_that_arrives_later_never_supersedes() {
    check(
        "smoking=no@9 smoking=yes@10>2",
        "smoking=no active[9,…); smoking=yes superseded[2,9)",
    );
}

#[test]
fn a_tenfold_dose_waits_and_a_correction_retires_it() {
    check(
        "dose=5mg@1 dose=50mg@2",
        "dose=50mg conflicted[2,…); dose=5mg active[1,…)",
    );
    check(
        "dose=5mg@1 dose=50mg@2 ^dose=5mg@3",
        "dose=50mg retired[2,…); dose=5mg active[1,…)",
    );
}

#[test]
fn a_dose_that_is_added_is_no_confirmation() {
    check(
        "dose=some@1 dose=5mg@2",
        "dose=5mg active[2,…); dose=some superseded[1,2)",
    );
    // The other way round it says nothing new, and a later slip is still one.
    check("dose=5mg@1 dose=some@2", "dose=5mg active[1,…)");
    check(
        "dose=5mg@1 dose=some@2 dose=50mg@3",
        "dose=50mg conflicted[3,…); dose=5mg active[1,…)",
    );
}

#[test]
fn what_replaces_both_sides_ends_their_conflict() {
    // Neither was said to be wrong.
    check(
        "dose=5mg@1 dose=50mg@2 dose=20mg@3",
        "dose=20mg active[3,…); dose=50mg superseded[2,3); dose=5mg superseded[1,3)",
    );
    // To say a slip again, even as a change, is a slip again; as a correction, what was doubted was right.
    check(
        "dose=5mg@1 dose=50mg@2 ~dose=50mg@3",
        "dose=50mg conflicted[2,…); dose=5mg active[1,…)",
    );
    check(
        "dose=5mg@1 dose=50mg@2 ^dose=50mg@3",
        "dose=50mg active[3,…); dose=50mg superseded[2,3); dose=5mg superseded[1,3)",
    );
    check(
        "allergy=peanut@1 !allergy=peanut@2 ^!allergy=peanut@3",
        "!allergy=peanut active[3,…); !allergy=peanut superseded[2,3); allergy=peanut superseded[1,3)",
    );
    // A correction says that both were wrong about the present; the doubted one was never true.
    check(
        "dose=5mg@1 dose=50mg@2 ^dose=20mg@3",
        "dose=20mg active[3,…); dose=50mg retired[2,…); dose=5mg superseded[1,3)",
    );
    // A later contradiction is one of its own, and a correction reaches it.
    check(
        "dose=5mg@1 dose=50mg@2 dose=4mg@3 dose=50mg@4 ^dose=4mg@5",
        "dose=4mg active[3,…); dose=50mg retired[4,…); dose=50mg superseded[2,3); \
         dose=5mg superseded[1,3)",
    );
}

#[test]
fn the_same_event_again_changes_nothing_and_a_reused_id_is_refused() {
    let mut world = World::new();
    assert_eq!(
        world.input(&said("allergy=peanut@1", "chat")),
        Outcome::Stored
    );
    assert_eq!(
        world.input(&said("allergy=peanut@1", "chat")),
        Outcome::Duplicate
    );
    let mut other = said("allergy=peanut@1", "chat");
    let Input::Candidates(set) = &mut other else {
        unreachable!()
    };
    set.content = Hash::of(b"something else");
    assert_eq!(
        world.input(&other),
        Outcome::Rejected("id_reused".to_owned())
    );
}

#[test]
fn nothing_is_stored_without_consent() {
    let mut world = World::new();
    world.command(
        "w",
        "consent",
        Command::Withdraw {
            kinds: None,
            from: day(0),
        },
    );
    let outcome = world.input(&said("allergy=peanut@1", "chat"));
    assert_eq!(outcome, Outcome::Rejected("consent".to_owned()));
    assert_eq!(world.believed(), "");
}

#[test]
fn a_person_decides_a_conflict_once() {
    let mut world = World::new();
    world.input(&said("dose=5mg@1", "chat"));
    world.input(&said("dose=50mg@2", "chat"));
    let id = IDS.memory(IDS.event(key(), "chat", "dose=50mg@2", ""), 0);
    let version = world.state.claims[&id].version;
    let review = |verdict| Command::Review {
        memory_id: id,
        verdict,
        expected_version: Some(version),
        reason: "".into(),
    };
    assert_eq!(
        world.command("r1", "api", review(Verdict::TakeNew)),
        Outcome::Stored
    );
    assert_eq!(
        world.believed(),
        "dose=50mg active[2,…); dose=5mg superseded[1,2)"
    );
    let second = world.command("r2", "api", review(Verdict::KeepOld));
    assert_eq!(second, Outcome::Rejected("version".to_owned()));
    // Erasing the decision opens the conflict again.
    let event = IDS.event(key(), "api", "r1", "");
    erase(&mut world, "x1", Target::Message(event));
    assert_eq!(
        world.believed(),
        "dose=50mg conflicted[2,…); dose=5mg active[1,…)"
    );
    assert_eq!(world.replay(), world.state);
}

#[test]
fn an_erased_message_takes_back_what_it_superseded() {
    let mut world = World::new();
    for spec in ["dose=5mg@1", "dose=10mg@4", "allergy=mango@2"] {
        world.input(&said(spec, "chat"));
    }
    let event = IDS.event(key(), "chat", "dose=10mg@4", "");
    erase(&mut world, "x1", Target::Message(event));
    assert_eq!(
        world.believed(),
        "allergy=mango active[2,…); dose=5mg active[1,…)"
    );
    assert_eq!(world.replay(), world.state);
    // What was erased does not come back with a repeat.
    assert_eq!(
        world.input(&said("dose=10mg@4", "chat")),
        Outcome::Rejected("erased".to_owned())
    );
}

#[test]
fn an_erased_owner_leaves_a_skeleton() {
    let mut world = World::new();
    world.input(&said("allergy=mango@2", "chat"));
    erase(&mut world, "x1", Target::Owner);
    assert_eq!(world.believed(), "");
    assert_eq!(
        (world.state.closed_through, world.state.erased.len()),
        (1, 1)
    );
    assert_eq!(world.replay(), world.state);
}

#[test]
fn erasing_one_memory_takes_its_confirmations() {
    let mut world = World::new();
    for spec in ["allergy=peanut@1", "allergy=peanut@9", "likes=tea@3"] {
        world.input(&said(spec, "chat"));
    }
    let id = IDS.memory(IDS.event(key(), "chat", "allergy=peanut@1", ""), 0);
    erase(&mut world, "x1", Target::Memories(vec![id]));
    assert_eq!(world.believed(), "likes=tea active[3,…)");
    assert_eq!(world.replay(), world.state);
}

fn erase(world: &mut World, id: &str, target: Target) {
    let erasure = IDS.erasure(IDS.event(key(), "api", id, ""));
    let command = Command::Erase {
        erasure,
        target,
        reason: "".into(),
    };
    assert_eq!(world.command(id, "api", command), Outcome::Stored, "{id}");
}

#[test]
fn the_shipped_tables_are_used() {
    assert!(Attributes::shipped().kind(Kind::Allergy).protected);
}
