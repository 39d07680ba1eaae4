//! Random histories, filters and questions from a seed: the same seed, the same history.

use anamnesis_domain::ids::MemoryId;
use anamnesis_domain::memory::{Entity, EntityKind, Kind, Memory, Status};
use anamnesis_domain::owner::Subject;
use anamnesis_domain::text::Text;
use anamnesis_domain::time::{DAY_MS, Interval};

use super::script::{Script, day, entity, everything, id, memory};
use crate::stores::{Filter, SubjectFilter};

/// Numbers from a seed (splitmix64).
pub struct Draw(u64);

const WORDS: &[&str] = &[
    "peanut",
    "花生",
    "allergy",
    "过敏",
    "metformin 0.5 g",
    "阿莫西林 0.625g",
    "每天两次",
    "prefers tea",
    "不喝咖啡",
    "A-1029",
    "blood pressure 120/80",
    "血压",
    "father",
    "父亲",
    "Smoking",
    "已戒烟",
    "MRI",
    "12 mg",
    "１２ｍｇ",
    "penicillin",
    "青霉素",
    "left knee",
    "左膝",
];

/// Few, so that histories share entities and touch the same memory again.
const MEMORIES: u64 = 9;

impl Draw {
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `bound`, which is not 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.number() % bound
    }

    pub fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    pub fn of<'a, T>(&mut self, choices: &'a [T]) -> &'a T {
        &choices[self.below(choices.len() as u64) as usize]
    }

    pub fn memory_id(&mut self) -> MemoryId {
        id(1 + self.below(MEMORIES) as u8)
    }

    /// Up to `words_max` words of both languages, maybe none.
    pub fn text(&mut self, words_max: u64) -> String {
        let count = self.below(words_max + 1);
        let words: Vec<&str> = (0..count).map(|_| *self.of(WORDS)).collect();
        words.join(if self.chance(50) { " " } else { "，" })
    }

    pub fn entities(&mut self) -> Vec<Entity> {
        let count = self.below(4);
        (0..count).map(|_| self.entity()).collect()
    }

    fn entity(&mut self) -> Entity {
        let kind = *self.of(&EntityKind::ALL[..3]);
        let name = *self.of(&["peanut", "花生", "tea"]);
        entity(kind, name)
    }

    fn subject(&mut self) -> Subject {
        let choices = [
            Subject::Self_,
            Subject::Father,
            Subject::Other("邻居".to_owned()),
        ];
        self.of(&choices).clone()
    }

    fn tags(&mut self) -> Vec<String> {
        let count = self.below(3);
        (0..count)
            .map(|_| (*self.of(&["home", "ward", "病房"])).to_owned())
            .collect()
    }

    /// A memory with any facets, also those that never answer.
    fn memory(&mut self, memory_id: MemoryId) -> Memory {
        let valid_from = day(self.below(40) as i64);
        // Also an interval that is empty, and one that ends before it starts.
        let valid_to = self
            .chance(40)
            .then(|| valid_from.plus_millis((self.below(20) as i64 - 1) * DAY_MS));
        let mut memory = memory(0, "");
        memory.id = memory_id;
        memory.claim.text = Text::new(self.text(9));
        memory.claim.entities = self.entities();
        memory.claim.kind = *self.of(&Kind::ALL[..4]);
        memory.claim.subject = self.subject();
        memory.claim.context_tags = self.tags();
        memory.standing.status = *self.of(Status::ALL);
        memory.standing.valid_from = valid_from;
        memory.standing.valid_to = valid_to;
        memory.standing.confirms = self.chance(10).then(|| id(200));
        memory
    }

    /// Any filter of one owner, whose partition ends at `end`.
    pub fn filter(&mut self, number: u8, end: u64) -> Filter {
        let mut filter = everything(
            number,
            if self.chance(50) {
                end
            } else {
                self.below(end + 2)
            },
        );
        if self.chance(25) {
            return filter;
        }
        filter.valid_at = self.chance(50).then(|| day(self.below(60) as i64));
        if self.chance(20) {
            let from = day(self.below(50) as i64);
            let to = self
                .chance(70)
                .then(|| from.plus_millis(self.below(15) as i64 * DAY_MS));
            filter.time_range = Interval::new(from, to).ok();
        }
        filter.kinds = self
            .chance(20)
            .then(|| Kind::ALL[..1 + self.below(3) as usize].to_vec());
        if self.chance(40) {
            filter.statuses = Status::ALL[..self.below(5) as usize].to_vec();
        }
        if self.chance(20) {
            filter.subject = SubjectFilter::Only(self.subject());
        }
        filter.context_tags = self.chance(20).then(|| self.tags());
        filter
    }

    /// `decisions` decisions of owners 1 to `owners`, some of them erasures.
    pub fn history(&mut self, script: &mut Script, owners: u64, decisions: u64) {
        for _ in 0..decisions {
            let number = 1 + self.below(owners) as u8;
            let first = self.memory_id();
            if self.chance(6) {
                script.erase(number, &[first]);
                continue;
            }
            let mut memories = vec![self.memory(first)];
            let second = self.memory_id();
            if second != first && self.chance(40) {
                memories.push(self.memory(second));
            }
            if self.chance(8) {
                memories.clear();
            }
            script.decide(number, memories);
        }
    }
}
