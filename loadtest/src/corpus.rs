//! Events and questions of many owners, the same for the same seed. Owners are skewed: a few have most.

use serde_json::{Value, json};

const DRUGS: [&str; 12] = [
    "metformin",
    "amlodipine",
    "atorvastatin",
    "omeprazole",
    "lisinopril",
    "sertraline",
    "阿莫西林",
    "二甲双胍",
    "氨氯地平",
    "布洛芬",
    "华法林",
    "氯吡格雷",
];
const THINGS: [&str; 16] = [
    "green tea",
    "jazz",
    "hiking",
    "chess",
    "noodles",
    "swimming",
    "gardening",
    "coffee",
    "苹果",
    "京剧",
    "散步",
    "围棋",
    "面条",
    "游泳",
    "养花",
    "豆浆",
];
const ALLERGENS: [&str; 10] = [
    "peanut",
    "mango",
    "shrimp",
    "penicillin",
    "latex",
    "花生",
    "芒果",
    "青霉素",
    "尘螨",
    "海鲜",
];

pub(crate) struct Corpus {
    seed: u64,
    owners: usize,
}

impl Corpus {
    pub(crate) fn new(seed: u64, owners: usize) -> Self {
        Self {
            seed,
            owners: owners.max(1),
        }
    }

    pub(crate) fn owner(&self, n: usize) -> String {
        format!("load/patient/p-{n}")
    }

    /// A number that depends on seed, place and purpose (splitmix64).
    fn roll(&self, n: usize, salt: u64) -> usize {
        let mut x =
            self.seed ^ (n as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ salt.rotate_left(32);
        x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (x ^ (x >> 31)) as usize >> 1
    }

    /// The square of an even share: the first tenth of the owners gets about a third of the events.
    fn owner_of(&self, n: usize) -> usize {
        let share = (self.roll(n, 1) % 10_000) as f64 / 10_000.0;
        ((share * share) * self.owners as f64) as usize
    }

    pub(crate) fn event(&self, n: usize) -> Value {
        let pick = |list: &[&'static str], salt| list[self.roll(n, salt) % list.len()];
        let number = n % 9_973;
        let text = match self.roll(n, 2) % 6 {
            0 => format!("I take {} {} mg daily.", pick(&DRUGS, 3), 5 + number % 95),
            1 => format!("我每天吃{} {} mg。", pick(&DRUGS, 3), 5 + number % 95),
            2 => format!("I like {} number {number}.", pick(&THINGS, 4)),
            3 => format!("我喜欢{}第{number}号。", pick(&THINGS, 4)),
            4 => format!(
                "I am allergic to {}. My order number is A-{n}.",
                pick(&ALLERGENS, 5)
            ),
            _ => format!("我对{}过敏，单号 B-{n}。", pick(&ALLERGENS, 5)),
        };
        json!({
            "event_id": format!("load-{}-{n}", self.seed),
            "owner": self.owner(self.owner_of(n)),
            "conversation_id": format!("c-{}", n / 20),
            "role": "user",
            "at": format!("20{:02}-{:02}-{:02}T{:02}:00:00Z", 20 + n % 6, 1 + n % 12, 1 + n % 28, n % 24),
            "text": text,
        })
    }

    pub(crate) fn question(&self, n: usize) -> Value {
        let pick = |list: &[&'static str], salt| list[self.roll(n, salt) % list.len()];
        let query = match self.roll(n, 7) % 4 {
            0 => format!("Am I allergic to {}?", pick(&ALLERGENS, 8)),
            1 => format!("我对{}过敏吗？", pick(&ALLERGENS, 8)),
            2 => format!("What dose of {} do I take?", pick(&DRUGS, 9)),
            _ => format!("我喜欢{}吗？", pick(&THINGS, 10)),
        };
        json!({"owner": self.owner(self.owner_of(n)), "query": query})
    }
}
