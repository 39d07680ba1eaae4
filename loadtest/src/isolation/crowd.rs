//! Who lives in several hospitals at once, and what does each of them say? Patients share their ids,
//! names, drugs, allergies and whole sentences; each has one word that nobody else says.

use serde_json::{Value, json};

use super::dice::Dice;

pub(super) const TENANTS: [&str; 4] = ["h1", "h2", "h10", "医院三"];

/// Said by many, word for word.
const LINES: [&str; 24] = [
    "I am allergic to peanuts.",
    "我对花生过敏。",
    "I am allergic to penicillin.",
    "我对青霉素过敏。",
    "我对花生不过敏了。",
    "I take metformin 500 mg daily.",
    "My metformin dose was changed to 1000 mg.",
    "我每天吃二甲双胍 500 mg。",
    "我在吃华法林 5 mg。",
    "I take warfarin 5 mg daily.",
    "My mother is allergic to penicillin.",
    "我爸对青霉素过敏。",
    "我爸有高血压。",
    "My name is Zhang Wei.",
    "我叫张伟。",
    "我住在成都，是老师。",
    "I live in Chengdu and work as a teacher.",
    "我不喜欢打针。",
    "Please remember: call me after nine in the morning.",
    "请记住：早上九点以后再打电话给我。",
    "I had my appendix removed in 2019.",
    "我体重 70 公斤。",
    "我的主治医生是王医生。",
    "My doctor is Dr. Wang.",
];

pub(super) const DRUGS: [&str; 6] = [
    "metformin",
    "warfarin",
    "penicillin",
    "二甲双胍",
    "华法林",
    "青霉素",
];

/// A word that only patient `n` says.
pub(super) fn mark(n: usize) -> String {
    format!("zqx{n}zqx")
}

#[derive(Clone, Copy)]
pub(super) struct Crowd {
    pub seed: u64,
    /// Of each tenant.
    pub patients: usize,
}

impl Crowd {
    pub(super) fn len(&self) -> usize {
        TENANTS.len() * self.patients
    }

    pub(super) fn tenant(&self, n: usize) -> usize {
        n / self.patients
    }

    /// The same ids in every tenant.
    pub(super) fn owner(&self, n: usize) -> String {
        format!(
            "{}/patient/p-{}",
            TENANTS[self.tenant(n)],
            n % self.patients
        )
    }

    /// What patient `n` says, oldest first.
    pub(super) fn events(&self, n: usize) -> Vec<Value> {
        let mut dice = Dice::new(self.seed ^ ((n as u64) << 20));
        let mut texts: Vec<String> = (0..8).map(|_| (*dice.pick(&LINES)).to_owned()).collect();
        texts.push(format!("My bed label is {}.", mark(n)));
        texts.push(format!("我的床头牌是{}，记一下。", mark(n)));
        let event = |(place, text): (usize, String)| {
            json!({
                // Also the ids of events are the same everywhere.
                "event_id": format!("e-{place}"), "owner": self.owner(n), "source": "/ward",
                "conversation_id": "c-1", "role": "user", "text": text,
                "at": format!("2026-0{}-01T0{place}:00:00+08:00", 1 + place / 2),
            })
        };
        texts.into_iter().enumerate().map(event).collect()
    }
}
