//! What happens to a few owners in a small hospital: seeded, so that a failing run can be had again.
//!
//! A workload is a list of rounds. Within a round each owner either says things or commands things, so
//! that the order of one owner's inputs is the same in every run that finishes a round before the next:
//! such runs must end in the same beliefs. Played without that care, only what holds for any order is
//! checked.

use anamnesis_domain::memory::{Kind, Role};
use anamnesis_pipeline::doubles::log::Dice;

/// A message with the claims that are in it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Saying {
    pub source: String,
    pub event_id: String,
    pub said: i64,
    pub valid: i64,
    /// A stated end, in days.
    pub until: Option<i64>,
    pub role: Role,
    pub is_hedged: bool,
    /// In the form of [`crate::spec`], each with its words.
    pub claims: Vec<(String, Option<String>)>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Aim {
    Message {
        source: String,
        event_id: String,
    },
    /// The first memory of an event.
    Memory {
        source: String,
        event_id: String,
    },
    Source(String),
    Owner,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Order {
    Grant,
    GrantKinds(Vec<Kind>),
    Withdraw(Option<Vec<Kind>>),
    Remember(Saying),
    Correct {
        of: Saying,
        claim: String,
        valid: i64,
    },
    End {
        of: Saying,
        at: i64,
    },
    Retire(Saying),
    Archive(Saying),
    Restore(Saying),
    Restrict(Aim),
    Unrestrict(Aim),
    Erase(Aim),
    Review {
        of: Saying,
        verdict: &'static str,
    },
    Task(u64),
    Accessed(Saying),
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Act {
    Say(Saying),
    /// The extractor answers a turn for a second time.
    ExtractAgain(Saying),
    Order {
        event_id: String,
        order: Order,
    },
}

#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Workload {
    /// Acts with their owner, round by round.
    pub rounds: Vec<Vec<(String, Act)>>,
}

/// How much of what can happen does happen.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Scope {
    /// What the naive interpreter understands.
    Plain,
    Full,
}

const CLAIMS: &[(&str, Option<&str>)] = &[
    ("allergy=peanut", None),
    ("allergy=peanut", Some("我对花生过敏")),
    ("allergy=mango", Some("我对芒果过敏")),
    ("!allergy=peanut", Some("我对花生不过敏")),
    ("~!allergy=peanut", Some("我现在对花生不过敏了")),
    ("^!allergy=mango", None),
    ("~allergy=mango", None),
    ("father.allergy=penicillin", Some("我爸对青霉素过敏")),
    ("!father.allergy=penicillin", None),
    ("medication=warfarin:5mg", Some("华法林每天 5 mg")),
    ("medication=warfarin", None),
    ("medication=warfarin:10mg", None),
    ("medication=warfarin:50mg", None),
    ("~medication=warfarin:50mg", None),
    ("~medication=warfarin:3mg", Some("华法林改成 3 mg")),
    ("~!medication=warfarin", Some("华法林停了")),
    ("^medication=warfarin:5mg", None),
    ("medication=metformin", Some("在吃二甲双胍")),
    ("mother.medication=metformin", None),
    ("smoking_status=smoker", None),
    ("smoking_status=former", Some("已经戒烟")),
    ("~smoking_status=former", None),
    ("^smoking_status=never", None),
    ("payout_account=8812", Some("退款打到尾号 8812 的卡")),
    ("~payout_account=3047", Some("改成尾号 3047 的卡")),
    ("weight=72kg", Some("体重 72 公斤")),
    ("weight=80kg", None),
    ("weight=800kg", None),
    ("^weight=80kg", None),
    ("preference=sweet", None),
    ("!preference=sweet", None),
    ("text=please call in the morning", None),
    ("text=早上再打电话", None),
    ("episode=we talked about the weather", None),
    ("episode=聊了聊天气", None),
];

const OWNERS: &[&str] = &["p1", "p2", "h2/p1", "p3"];
const SOURCES: &[&str] = &["chat", "chat", "chat", "note", "lab"];

impl Workload {
    pub fn new(seed: u64, scope: Scope) -> Self {
        let mut teller = Teller {
            dice: Dice::new(seed ^ 0x5eed),
            scope,
            made: 0,
            past: Vec::new(),
        };
        let owners = 2 + teller.dice.below(3) as usize;
        let mut rounds = vec![teller.consents(&OWNERS[..owners])];
        for _ in 0..3 + teller.dice.below(4) {
            let mut round = Vec::new();
            for owner in &OWNERS[..owners] {
                let acts = 1 + teller.dice.below(4);
                // A conversation is more talk than orders.
                let talks = teller.dice.below(100) < 60;
                for _ in 0..acts {
                    let act = if talks {
                        teller.talk(owner)
                    } else {
                        teller.order(owner)
                    };
                    // What is accepted before an erasure of the owner has closed the key epoch goes
                    // with it; what comes later depends on when that was.
                    let is_end = matches!(
                        &act,
                        Act::Order {
                            order: Order::Erase(Aim::Owner),
                            ..
                        }
                    );
                    round.push(((*owner).to_owned(), act));
                    if is_end {
                        break;
                    }
                }
            }
            rounds.push(round);
        }
        Self { rounds }
    }

    pub fn acts(&self) -> impl Iterator<Item = &(String, Act)> {
        self.rounds.iter().flatten()
    }

    pub fn owners(&self) -> Vec<String> {
        let mut owners: Vec<String> = self.acts().map(|(owner, _)| owner.clone()).collect();
        owners.sort();
        owners.dedup();
        owners
    }
}

struct Teller {
    dice: Dice,
    scope: Scope,
    made: u64,
    past: Vec<(String, Saying)>,
}

impl Teller {
    fn consents(&mut self, owners: &[&str]) -> Vec<(String, Act)> {
        owners
            .iter()
            .map(|owner| ((*owner).to_owned(), self.named(Order::Grant)))
            .collect()
    }

    fn named(&mut self, order: Order) -> Act {
        self.made += 1;
        Act::Order {
            event_id: format!("c{}", self.made),
            order,
        }
    }

    fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.dice.below(from.len() as u64) as usize]
    }

    fn saying(&mut self) -> Saying {
        self.made += 1;
        let claims = 1 + u64::from(self.dice.below(5) == 0);
        let said = self.dice.below(12) as i64;
        let claims = (0..claims).map(|_| self.pick(CLAIMS));
        let claims = claims.map(|(spec, words)| (spec.to_owned(), words.map(str::to_owned)));
        let mut claims: Vec<_> = claims.collect();
        // A message is one turn: it has one episode at most.
        let mut has_episode = false;
        claims.retain(|(spec, _): &(String, _)| {
            let is_second = has_episode && spec.starts_with("episode=");
            has_episode |= spec.starts_with("episode=");
            !is_second
        });
        let valid = if self.dice.below(3) == 0 {
            self.dice.below(12) as i64
        } else {
            said
        };
        let until = (self.dice.below(6) == 0).then(|| valid + 1 + self.dice.below(4) as i64);
        Saying {
            source: self.pick(SOURCES).to_owned(),
            event_id: format!("e{}", self.made),
            said,
            valid,
            until,
            role: self.pick(&[
                Role::User,
                Role::User,
                Role::User,
                Role::Clinician,
                Role::Tool,
            ]),
            is_hedged: self.dice.below(12) == 0,
            claims,
        }
    }

    fn earlier(&mut self, owner: &str) -> Option<Saying> {
        let of_owner: Vec<&Saying> = self
            .past
            .iter()
            .filter(|(who, _)| who == owner)
            .map(|(_, saying)| saying)
            .collect();
        let count = of_owner.len() as u64;
        let at = self.dice.below(count) as usize;
        of_owner.get(at).map(|saying| (*saying).clone())
    }

    fn talk(&mut self, owner: &str) -> Act {
        if let Some(earlier) = self.earlier(owner) {
            match self.dice.below(20) {
                0 | 1 => return Act::Say(earlier),
                2 => return Act::ExtractAgain(earlier),
                3 => {
                    let other = self.saying();
                    let (source, event_id) = (earlier.source, earlier.event_id);
                    return Act::Say(Saying {
                        source,
                        event_id,
                        ..other
                    });
                }
                _ => (),
            }
        }
        let saying = self.saying();
        self.past.push((owner.to_owned(), saying.clone()));
        Act::Say(saying)
    }

    fn aim(&mut self, owner: &str) -> Aim {
        let Some(earlier) = self.earlier(owner) else {
            return Aim::Owner;
        };
        let Saying {
            source, event_id, ..
        } = earlier;
        match self.dice.below(10) {
            0 => Aim::Owner,
            1 | 2 => Aim::Source(source),
            3..=5 if self.scope == Scope::Full => Aim::Memory { source, event_id },
            6 if self.scope == Scope::Full => {
                // A command is a message too.
                let event_id = format!("c{}", 1 + self.dice.below(self.made));
                Aim::Message {
                    source: "api".to_owned(),
                    event_id,
                }
            }
            _ => Aim::Message { source, event_id },
        }
    }

    fn order(&mut self, owner: &str) -> Act {
        let choice = self
            .dice
            .below(if self.scope == Scope::Full { 20 } else { 5 });
        let order = match choice {
            0 | 1 => Order::Grant,
            2 => Order::Withdraw(None),
            3 | 4 => Order::Erase(self.aim(owner)),
            5 => Order::GrantKinds(vec![Kind::Allergy, Kind::Fact]),
            6 => Order::Withdraw(Some(vec![Kind::Medication])),
            7 => Order::Restrict(self.aim(owner)),
            8 => Order::Unrestrict(self.aim(owner)),
            9 => Order::Task(self.dice.below(3)),
            10 => Order::Remember(self.saying()),
            _ => {
                let Some(of) = self.earlier(owner) else {
                    return self.named(Order::Grant);
                };
                match choice {
                    11 => Order::Retire(of),
                    12 => Order::Archive(of),
                    13 => Order::Restore(of),
                    14 => Order::Accessed(of),
                    15 => Order::End {
                        of,
                        at: self.dice.below(14) as i64,
                    },
                    16 | 17 => {
                        let (claim, _) = self.pick(CLAIMS);
                        let valid = self.dice.below(12) as i64;
                        Order::Correct {
                            of,
                            claim: claim.to_owned(),
                            valid,
                        }
                    }
                    _ => {
                        let verdict = self.pick(&[
                            "keep_old",
                            "take_new",
                            "keep_both",
                            "retire",
                            "admit",
                            "reopen",
                        ]);
                        Order::Review { of, verdict }
                    }
                }
            }
        };
        self.named(order)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_tells_the_same_story() {
        assert_eq!(Workload::new(3, Scope::Full), Workload::new(3, Scope::Full));
        assert_ne!(Workload::new(3, Scope::Full), Workload::new(4, Scope::Full));
    }

    #[test]
    fn every_claim_of_the_table_can_be_read() {
        for (spec, _) in CLAIMS {
            assert!(crate::spec::Spec::parse(spec).is_ok(), "{spec}");
        }
    }
}
