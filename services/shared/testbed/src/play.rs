//! From an act of a workload to records of a world.

use anamnesis_domain::ids::OwnerKey;
use anamnesis_domain::input::{
    AccessSummary, Command, Consent, Target, Task, TaskStatus, Topic, Turn, Verdict,
};
use anamnesis_domain::memory::{Claim, Permille};
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

/// Writes what an act puts on the log.
pub async fn play(world: &World, owner: &str, act: &Act) {
    match act {
        Act::Say(saying) => {
            world
                .say(&saying.as_said(owner), |turn| saying.claims_in(turn))
                .await;
        }
        Act::ExtractAgain(saying) => {
            let said = saying.as_said(owner);
            let turn = world.turn(&said);
            if let Some(meta) = first_accepted(world, &turn).await {
                world
                    .extracted(&meta, World::found(&turn, saying.claims_in(&turn)))
                    .await;
            }
        }
        Act::Order { event_id, order } => {
            if let Some(command) = command(world, owner, event_id, order).await {
                world.command(owner, API, event_id, command).await;
            }
        }
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
