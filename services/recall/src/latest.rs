//! Does a question ask for how things stand, so that of several answers the latest is meant?
//!
//! What was distilled is replaced when something new is said, and only what holds answers. A turn stays as
//! it was said: "I have read eight books" and, later, "I have read twelve" answer "how many books have I
//! read?" equally well, and only the second is right.

use anamnesis_domain::memory::{Kind, Role};

use crate::select::Scored;

/// How many of the first answers are put in order: as many as a context is given.
const FIRST: usize = crate::select::INJECTED_MAX;
/// What a turn must answer as well as, by the share of the best one's strength. Two wordings of one matter
/// differ by about a quarter.
const AS_WELL: f64 = 0.7;

/// Questions for an amount, a time or a value that may have changed.
const ASKING: &[&str] = &[
    "how many",
    "how much",
    "how long",
    "how often",
    "how old",
    "how far",
    "how big",
    "what is",
    "what are",
    "what's",
    "what time",
    "what day",
    "what date",
    "what percentage",
    "what number",
    "when is",
    "when are",
    "when should",
    "when do",
    "when will",
    "which",
];
const ASKING_ZH: &[&str] = &[
    "多少",
    "几",
    "什么时候",
    "何时",
    "哪天",
    "多大",
    "多久",
    "多长",
    "多高",
    "多重",
    "是什么",
];
/// Words that ask for something past, whose answer does not change any more.
const PAST: &[&str] = &[
    "did",
    "was",
    "were",
    "had",
    "used",
    "ago",
    "last",
    "before",
    "previous",
    "previously",
    "original",
    "originally",
    "first",
    "initial",
    "initially",
];
const PAST_ZH: &[&str] = &[
    "曾",
    "以前",
    "当时",
    "之前",
    "过去",
    "最初",
    "原来",
    "上次",
    "第一次",
    "那时",
];

/// Whether the latest answer is meant.
pub(crate) fn is_about_now(question: &str) -> bool {
    let lower = question.to_lowercase();
    if ASKING_ZH.iter().any(|words| lower.contains(words)) {
        return !PAST_ZH.iter().any(|words| lower.contains(words));
    }
    let words: Vec<&str> = lower
        .split(|c: char| !c.is_alphanumeric() && c != '\'')
        .filter(|word| !word.is_empty())
        .collect();
    let said = format!(" {} ", words.join(" "));
    let asks = ASKING
        .iter()
        .any(|asking| said.contains(&format!(" {asking} ")));
    asks && !words.iter().any(|word| PAST.contains(word))
}

/// Puts the latest first among the owner's own turns that stand at the beginning and answer about as well.
/// They change places with each other only. Said at one time, the one recorded later is the later one.
pub(crate) fn latest_first(sorted: &mut [Scored]) {
    let is_own_turn = |one: &Scored| {
        one.version.memory.claim.kind == Kind::Episode
            && match one.version.memory.claim.source.role {
                Role::User | Role::Clinician | Role::Record => true,
                Role::Assistant | Role::System | Role::Tool | Role::Document => false,
            }
    };
    let mut places: Vec<usize> = (0..sorted.len().min(FIRST))
        .filter(|place| is_own_turn(&sorted[*place]))
        .collect();
    let best = places
        .iter()
        .map(|place| sorted[*place].score.strength)
        .fold(0.0, f64::max);
    places.retain(|place| sorted[*place].score.strength >= AS_WELL * best);
    let mut turns: Vec<Scored> = places.iter().map(|place| sorted[*place].clone()).collect();
    turns.sort_by_key(|one| {
        let said_at = one.version.memory.claim.source.at;
        std::cmp::Reverse((said_at, one.version.recorded_from, one.version.memory.id))
    });
    for (place, turn) in places.into_iter().zip(turns) {
        sorted[place] = turn;
    }
}

#[cfg(test)]
mod tests {
    use anamnesis_domain::memory::Memory;

    use super::*;
    use crate::fixture::{at, claim, memory, version};
    use crate::score::Score;

    #[test]
    fn a_question_for_an_amount_asks_for_the_latest_one() {
        let check = |question: &str, expected: bool| {
            assert_eq!(is_about_now(question), expected, "{question}");
        };
        check("How many books have I read?", true);
        check("How many books did I read last year?", false);
        check("What is my budget?", true);
        check("What was my budget?", false);
        check("我每周运动几次？", true);
        check("我以前每周运动几次？", false);
        check("Am I allergic to peanuts?", false);
        check("我对花生过敏吗", false);
    }

    fn turn(text: &str, said: &str, role: Role, strength: f64) -> Scored {
        let mut turn: Memory = memory(claim(Kind::Episode, text));
        turn.claim.source.at = at(said);
        turn.claim.source.role = role;
        Scored {
            version: version(turn, 1),
            score: Score {
                strength,
                ..Score::default()
            },
        }
    }

    #[test]
    fn of_what_answers_about_as_well_the_latest_stands_first() {
        let mut sorted = vec![
            turn("eight books", "2026-01-01T00:00:00Z", Role::User, 0.8),
            turn("well done", "2026-03-01T00:00:00Z", Role::Assistant, 0.7),
            turn("twelve books", "2026-02-01T00:00:00Z", Role::User, 0.6),
            turn("a bookshop", "2026-04-01T00:00:00Z", Role::User, 0.3),
        ];
        latest_first(&mut sorted);
        let texts: Vec<&str> = sorted
            .iter()
            .map(|one| one.version.memory.claim.text.expose())
            .collect();
        assert_eq!(
            texts,
            ["twelve books", "well done", "eight books", "a bookshop"]
        );
    }
}
