//! From an act of a workload to records of a world.

use anamnesis_domain::ids::OwnerKey;
use anamnesis_domain::input::{
    AccessSummary, Command, Consent, Position, Target, Task, TaskStatus, Topic, Turn, Verdict,
};
use anamnesis_domain::memory::{Claim, Intent, Permille, Polarity};
use anamnesis_domain::text::Text;
use anamnesis_pipeline::codec::{InputMeta, Opened};
use anamnesis_pipeline::log::{EventLog as _, partition_of};

use crate::spec::Spec;
use crate::workload::{Act, Aim, Order, Saying};
use crate::world::{Said, World, day, everything};

/// Source of every command of a workload.
pub const API: &str = "api";

impl Saying {
    pub fn as_said(&self, owner: &str) -> Said {
        let specs: Vec<&str> = self.claims.iter().map(|(spec, _)| spec.as_str()).collect();
        Said {
            owner: owner.to_owned(),
            source: self.source.clone(),
            event_id: self.event_id.clone(),
            at: day(self.said),
            zone_minutes: 480,
            role: self.role,
            text: Text::new(specs.join("; ")),
        }
    }

    pub fn claims_in(&self, turn: &Turn) -> Vec<Claim> {
        let claim = |(spec, words): &(String, Option<String>)| {
            let spec = Spec::parse(spec).expect("a workload's claims can be read");
            let mut claim = spec.claim(words.as_deref(), day(self.valid), World::source_of(turn));
            claim.valid_to = self.until.map(day);
            if self.is_hedged {
                claim.confidence = Permille::new(600);
            }
            claim
        };
        self.claims.iter().map(claim).collect()
    }
}

/// Who finds the claims in what is said.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Extraction {
    /// The workload itself: each message comes with its claims.
    Given,
    /// The real extractor: messages are only said, aloud.
    Real,
}

/// Writes what an act puts on the log; gives the place of the record that a stage reads first.
pub async fn play(
    world: &World,
    owner: &str,
    act: &Act,
    extraction: Extraction,
) -> Option<Position> {
    match act {
        Act::Say(saying) if extraction == Extraction::Real => {
            let mut said = saying.as_said(owner);
            let aloud: Vec<String> = saying.claims.iter().map(aloud).collect();
            said.text = Text::new(aloud.join(" "));
            Some(world.accept(&world.turn(&said)).await.position)
        }
        // It repeats itself when it crashes.
        Act::ExtractAgain(_) if extraction == Extraction::Real => None,
        Act::Say(saying) => {
            let said = saying.as_said(owner);
            Some(world.say(&said, |turn| saying.claims_in(turn)).await)
        }
        Act::ExtractAgain(saying) => {
            let turn = world.turn(&saying.as_said(owner));
            let meta = first_accepted(world, &turn).await?;
            let set = World::found(&turn, saying.claims_in(&turn));
            Some(world.extracted(&meta, set).await)
        }
        Act::Order { event_id, order } => {
            let command = command(world, owner, event_id, order).await?;
            Some(world.command(owner, API, event_id, command).await)
        }
    }
}

/// A claim as a person would say it.
fn aloud((spec, words): &(String, Option<String>)) -> String {
    if let Some(words) = words {
        return format!("{words}。");
    }
    let spec = Spec::parse(spec).expect("a workload's claims can be read");
    let (value, amount) = (&spec.value, spec.quantity.as_ref());
    let amount = amount.map_or(String::new(), |amount| {
        format!(" {} {}", amount.micros / 1_000_000, amount.unit)
    });
    let not = if spec.polarity == Polarity::Negative {
        " not"
    } else {
        ""
    };
    let now = if spec.intent == Intent::Change {
        " now"
    } else {
        ""
    };
    match spec.attribute.as_deref() {
        Some("allergy") => format!("I am{not} allergic to {value}{now}."),
        Some("medication") if spec.polarity == Polarity::Negative => {
            format!("I stopped taking {value}.")
        }
        Some("medication") => format!("I take {value}{amount} a day{now}."),
        Some("weight") => format!("I weigh{amount}{now}."),
        Some("smoking_status") => format!("I am a {value} smoker{now}."),
        Some(name) => format!("My {} is{not} {value}{now}.", name.replace('_', " ")),
        None => format!("{value}."),
    }
}

/// The conversation record that first held this turn, readable or not.
async fn first_accepted(world: &World, turn: &Turn) -> Option<InputMeta> {
    let key: OwnerKey = world.codec.keys().id_key().owner(&turn.owner);
    let partition = partition_of(key, world.calm.partitions());
    let records = world
        .calm
        .read(Topic::Conversation, partition, 1, usize::MAX, usize::MAX)
        .await;
    let opened = world
        .codec
        .open(&records.expect("calm log"))
        .await
        .expect("calm keyring");
    for opened in opened.into_iter().flatten() {
        if let Opened::Turn { meta, .. } | Opened::Erased { meta } = opened
            && meta.event == turn.event
        {
            return Some(meta);
        }
    }
    None
}

fn target(world: &World, owner: &str, aim: &Aim) -> Target {
    match aim {
        Aim::Message { source, event_id } => Target::Message(world.event(owner, source, event_id)),
        Aim::Memory { source, event_id } => {
            Target::Memories(vec![world.memory_id(owner, source, event_id)])
        }
        Aim::Source(source) => {
            let key = world.owner(owner).1;
            Target::Source(world.codec.keys().id_key().source(key, source))
        }
        Aim::Owner => Target::Owner,
    }
}

async fn command(world: &World, owner: &str, event_id: &str, order: &Order) -> Option<Command> {
    let reason = || Text::new("because");
    let id = |of: &Saying| world.memory_id(owner, &of.source, &of.event_id);
    Some(match order {
        Order::Grant => Command::Grant {
            consent: everything(),
        },
        Order::GrantKinds(kinds) => Command::Grant {
            consent: Consent {
                kinds: Some(kinds.clone()),
                ..everything()
            },
        },
        Order::Withdraw(kinds) => Command::Withdraw {
            kinds: kinds.clone(),
            from: day(0),
        },
        Order::Remember(saying) => {
            let mut turn = world.turn(&saying.as_said(owner));
            turn.event = world.event(owner, API, event_id);
            turn.source_tag = world
                .codec
                .keys()
                .id_key()
                .source(world.owner(owner).1, API);
            turn.source = API.to_owned();
            turn.event_id = event_id.to_owned();
            let mut claim = saying.claims_in(&turn).remove(0);
            claim.explicit = true;
            Command::Remember {
                claim: Box::new(claim),
            }
        }
        Order::Correct { of, claim, valid } => {
            let said = Said {
                source: API.to_owned(),
                event_id: event_id.to_owned(),
                ..of.as_said(owner)
            };
            let turn = world.turn(&said);
            let spec = Spec::parse(claim).expect("a workload's claims can be read");
            Command::Correct {
                memory_id: id(of),
                claim: Some(Box::new(spec.claim(
                    None,
                    day(*valid),
                    World::source_of(&turn),
                ))),
                ended_at: None,
                expected_version: None,
                reason: reason(),
            }
        }
        Order::End { of, at } => Command::Correct {
            memory_id: id(of),
            claim: None,
            ended_at: Some(day(*at)),
            expected_version: None,
            reason: reason(),
        },
        Order::Retire(of) => Command::Retire {
            memory_id: id(of),
            expected_version: None,
            reason: reason(),
        },
        Order::Archive(of) => {
            let state = world.state(owner).await;
            let version = state.claims.get(&id(of)).map_or(0, |entry| entry.version);
            Command::Archive {
                memories: vec![(id(of), version)],
                reason: "capacity".to_owned(),
            }
        }
        Order::Restore(of) => Command::Restore {
            memory_ids: vec![id(of)],
        },
        Order::Restrict(aim) => Command::Restrict {
            target: target(world, owner, aim),
            reason: reason(),
        },
        Order::Unrestrict(aim) => Command::Unrestrict {
            target: target(world, owner, aim),
        },
        Order::Erase(aim) => {
            let erasure = world
                .codec
                .keys()
                .id_key()
                .erasure(world.event(owner, API, event_id));
            Command::Erase {
                erasure,
                target: target(world, owner, aim),
                reason: reason(),
            }
        }
        Order::Review { of, verdict } => Command::Review {
            memory_id: id(of),
            verdict: Verdict::from_code(verdict)?,
            expected_version: None,
            reason: reason(),
        },
        Order::Task(n) => Command::Task {
            task: Box::new(Task {
                id: format!("t{n}"),
                goal: Text::new("change the appointment"),
                status: TaskStatus::Active,
                decision: None,
                confirmed_facts: Vec::new(),
                constraints: Vec::new(),
                open_questions: Vec::new(),
                tool_error: None,
                pending_confirmations: Vec::new(),
                expires_at: None,
                updated_at: day(1),
            }),
        },
        Order::Accessed(of) => Command::Summarise {
            accesses: vec![AccessSummary {
                memory_id: id(of),
                count: 1,
                last_at: day(1),
            }],
        },
    })
}
