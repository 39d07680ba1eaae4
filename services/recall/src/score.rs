//! How good an answer is one memory, and is it stale?

use anamnesis_domain::attribute::Attributes;
use anamnesis_domain::decay;
use anamnesis_domain::memory::{Kind, Memory, Role};
use anamnesis_domain::rank::{self, ScoreParts};
use anamnesis_domain::time::Timestamp;
use serde::{Deserialize, Serialize};

use crate::fuse::{AtMost, Evidence};
use crate::likeness::{Likenesses, Script};
use crate::terms::Terms;

/// Relevance below which nothing is returned unless the caller asks for another floor. Lexical
/// relevance reaches it when more than half of a question's telling words are said; a semantic model's
/// when the stretched cosine does. `min_score` replaces it.
pub const FLOOR: f64 = 0.45;

/// What is left of the relevance of a memory that speaks of the opposite of what is asked about: it must
/// not stand before the right one, and alone only when nearly every other word fits.
const OPPOSITE: f64 = 0.6;

/// What is left of the strength of a turn that was not the owner's, when the owner asks about themselves:
/// an assistant's long answer repeats the words of what it was told and adds its own.
const ANOTHERS_WORDS: f64 = 0.85;

/// What a memory gains that was said on a day which the question names: more than words and meaning commonly
/// tell apart, since the day is what the asker is sure of.
const ON_THE_DAY: f64 = 0.25;

/// What BM25's words weigh in [`Signs::strength`], beside one for the share of telling words that are said.
const WORDS_PART: f64 = 2.0;
/// The same between two scripts, which share no words but names, numbers and the other language's words for a
/// kind of memory.
const WORDS_ACROSS_PART: f64 = 0.5;
/// What the vectors weigh where they are fully believed.
const MEANING_PART: f64 = 1.5;

/// What the legs say of one memory, each in [0, 1].
struct Signs {
    /// By BM25.
    words: f64,
    /// Share of the question's telling words that are said.
    covered: f64,
    /// By the vectors, and how far they are believed.
    meaning: f64,
    trust: f64,
    /// Whether question and memory are written in one script.
    is_one_script: bool,
}

impl Signs {
    /// All together, in [0, 1]. They are added and not the best of them taken, since two weak signs of one
    /// memory are more than one of another.
    fn strength(&self) -> f64 {
        let words = if self.is_one_script {
            WORDS_PART
        } else {
            WORDS_ACROSS_PART
        };
        let meaning = MEANING_PART * self.trust;
        let sum = words * self.words + self.covered + meaning * self.meaning;
        sum / (words + 1.0 + meaning)
    }
}

/// Whether it is what an assistant, a tool or a document said, as it was said.
fn is_anothers_turn(memory: &Memory) -> bool {
    memory.claim.kind == Kind::Episode
        && match memory.claim.source.role {
            Role::Assistant | Role::System | Role::Tool | Role::Document => true,
            Role::User | Role::Clinician | Role::Record => false,
        }
}

/// How vectors of the configured model are read.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Model {
    /// A hash embedding's cosines mean nothing beyond shared words, which the lexical part counts
    /// better: then only lexical relevance counts.
    pub is_semantic: bool,
    /// The cosine below which vectors alone never say that a memory answers: what the floor is about.
    pub unrelated: f64,
    /// How cosines are read where only the order is asked for.
    pub likenesses: Likenesses,
}

impl Model {
    /// By the model's id, unless the configuration says what two unrelated texts have (`unrelated`).
    pub(crate) fn of(model_id: &str, is_semantic: bool, unrelated: Option<f64>) -> Self {
        let for_floor = unrelated.unwrap_or_else(|| unrelated_cosine(model_id));
        let measured = Likenesses::of(model_id).filter(|_| unrelated.is_none());
        Self {
            is_semantic,
            unrelated: for_floor,
            likenesses: measured.unwrap_or_else(|| Likenesses::all(for_floor)),
        }
    }
}

/// What two unrelated texts have as cosine, by the beginning of the model's id: the first that fits, so
/// that models joined to one stand before the first of them alone.
///
/// bge-small-zh, over 34 questions and statements of patients: unrelated pairs have 0.27 in Chinese and
/// 0.44 in English at the median, 0.38 and 0.50 at the 95th percentile; related pairs 0.60 to 0.62 at
/// the median. With 0.40 the floor of 0.45 lies at a cosine of 0.67, just above the nearest miss ("Am I
/// allergic to penicillin?", "I am allergic to peanuts": 0.668): what only the vectors find must be
/// nearly a paraphrase to answer alone.
///
/// The three models together, over 17 questions and statements of patients, each in both languages:
/// unrelated pairs have 0.22 in Chinese, 0.33 in English and 0.13 to 0.17 across at the median, 0.33, 0.40
/// and 0.24 at the 95th percentile; related pairs 0.48, 0.49 and 0.26 to 0.30 at the median. With 0.34 the
/// floor lies at a cosine of 0.637, just above the nearest misses (penicillin and peanuts: 0.62 in
/// Chinese, 0.63 in English).
const UNRELATED: &[(&str, f64)] = &[
    (
        "bge-small-zh-v1.5+bge-small-en-v1.5-q+use-multilingual-v3-",
        0.34,
    ),
    ("bge-small-zh", 0.40),
];
/// For a model that nobody measured.
const UNRELATED_DEFAULT: f64 = 0.35;

/// The cosine from which on a model's vectors say that two texts have something to do with each other.
pub fn unrelated_cosine(model_id: &str) -> f64 {
    let known = UNRELATED
        .iter()
        .find(|(begin, _)| model_id.starts_with(begin));
    known.map_or(UNRELATED_DEFAULT, |(_, cosine)| *cosine)
}

/// The parts of a score and where each leg saw the memory: why this came.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Score {
    #[serde(rename = "final")]
    pub final_score: f64,
    /// Whether it answers: what the floor is about.
    pub relevance: f64,
    /// How strongly it answers beside others: what they are ordered by.
    #[serde(default)]
    pub strength: f64,
    pub recency: f64,
    pub importance: f64,
    pub access: f64,
    /// The boost of a protected fact, or 0.
    pub protected: f64,
    pub ranks: Ranks,
}

/// What a memory must answer as strongly as, by the share of its turn's strength, to speak for the turn. A
/// memory says one thing of a turn, and the question may be about another.
const SPEAKS_FOR: f64 = 0.7;

impl Score {
    /// Whether a memory that was distilled from a turn or confirmed by it answers in its place.
    pub(crate) fn speaks_for(&self, turn: &Self) -> bool {
        self.strength >= SPEAKS_FOR * turn.strength
    }

    /// Lifts relevance and strength to at least these, and the final score with them.
    pub(crate) fn raise(&mut self, relevance: f64, strength: f64) {
        self.relevance = self.relevance.max(relevance);
        let lift = strength - self.strength;
        if lift > 0.0 {
            self.strength = strength;
            self.final_score = rounded(self.final_score + rank::STRENGTH_PART * lift);
        }
    }
}

/// Places from 1; `null` where a leg did not see the memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Ranks {
    pub text: Option<usize>,
    pub vector: Option<usize>,
    pub graph: Option<usize>,
}

#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct Staleness {
    pub stale: bool,
    /// Days since it began to hold or was last verified, whichever is later.
    pub age_days: f64,
    pub half_life_days: u32,
}

/// Six decimals: more than anybody reads, and few enough that the last bit of a vectorised sum does
/// not decide an order.
fn rounded(value: f64) -> f64 {
    (value * 1e6).round() / 1e6
}

/// Scores a memory at the instant asked about.
pub(crate) fn score(
    memory: &Memory,
    evidence: Evidence,
    at_most: AtMost,
    terms: &Terms,
    model: Model,
    at: Timestamp,
) -> Score {
    let found = evidence.text.map_or(0.0, |(_, bm25)| bm25);
    let (lexical, said) = terms.covered(memory, found);
    let covered = if memory.claim.kind == Kind::Episode {
        said
    } else {
        lexical
    };
    let dense = match evidence.vector {
        Some((_, cosine)) if model.is_semantic => rank::dense_relevance(cosine, model.unrelated),
        Some(_) | None => 0.0,
    };
    let bm25 = evidence.text.map_or(at_most.bm25, |(_, bm25)| bm25);
    let words = rank::lexical_strength(bm25, terms.words);
    let cosine = evidence.vector.map(|(_, cosine)| cosine).or(at_most.cosine);
    let script = Script::of(memory.claim.text.expose());
    let likeness = model.likenesses.between(terms.script, script);
    let meaning = cosine.map_or(0.0, |cosine| likeness.meaning(cosine));
    let trust = if model.is_semantic {
        likeness.trust()
    } else {
        0.0
    };
    let signs = Signs {
        words,
        covered,
        meaning,
        trust,
        is_one_script: script == terms.script,
    };
    let strength = signs.strength();
    let fits = if terms.rules_out(memory) {
        OPPOSITE
    } else {
        1.0
    };
    let voice = if terms.is_about_the_asker && is_anothers_turn(memory) {
        ANOTHERS_WORDS
    } else {
        1.0
    };
    let half_life = half_life_days(memory);
    let access = match memory.last_accessed_at {
        Some(last) => decay::access(memory.access_count, at.days_since(last), half_life),
        None => 0.0,
    };
    let day = if terms.days.iter().any(|day| day.is_of(memory)) {
        ON_THE_DAY
    } else {
        0.0
    };
    let parts = ScoreParts {
        strength: rounded((fits * voice * strength + day).min(1.0)),
        recency: rounded(decay::recency(at.days_since(fresh_at(memory)), half_life)),
        importance: memory.claim.importance.share(),
        access: rounded(access),
        protected: if memory.protected {
            rank::PROTECTED_BOOST
        } else {
            0.0
        },
    };
    Score {
        final_score: rounded(parts.final_score()),
        relevance: rounded(fits * lexical.max(dense)),
        strength: parts.strength,
        recency: parts.recency,
        importance: parts.importance,
        access: parts.access,
        protected: parts.protected,
        ranks: Ranks {
            text: evidence.text.map(|(place, _)| place),
            vector: evidence.vector.map(|(place, _)| place),
            graph: evidence.graph,
        },
    }
}

/// A memory is stale when nobody said it again for longer than its half-life.
pub(crate) fn staleness(memory: &Memory, at: Timestamp) -> Staleness {
    let half_life_days = Attributes::shipped().kind(memory.claim.kind).half_life_days;
    let age_days = at.days_since(fresh_at(memory)).max(0.0);
    Staleness {
        stale: age_days > f64::from(half_life_days),
        age_days: (age_days * 10.0).round() / 10.0,
        half_life_days,
    }
}

fn fresh_at(memory: &Memory) -> Timestamp {
    let from = memory.standing.valid_from;
    memory
        .last_verified_at
        .map_or(from, |verified| verified.max(from))
}

fn half_life_days(memory: &Memory) -> f64 {
    f64::from(Attributes::shipped().kind(memory.claim.kind).half_life_days)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{Reader, at, claim, memory};
    use crate::understand::QueryReader as _;

    fn hash() -> Model {
        Model::of("hash", false, None)
    }

    fn terms(question: &str) -> Terms {
        Terms::of(question, Reader.entities(question), &Reader)
    }

    #[test]
    fn the_parts_add_up_to_the_formula() {
        let mut memory = memory(claim(Kind::Allergy, "我对花生过敏"));
        memory.claim.valid_from = at("2016-11-02T00:00:00Z");
        memory.standing.valid_from = memory.claim.valid_from;
        memory.protected = true;
        let now = memory
            .claim
            .valid_from
            .plus_millis(3650 * anamnesis_domain::time::DAY_MS);
        let score = score(
            &memory,
            Evidence::default(),
            AtMost::default(),
            &terms("我对花生过敏吗"),
            hash(),
            now,
        );
        assert!((score.recency - 0.5).abs() < 1e-9);
        let sum = 0.90 * score.strength + 0.04 * 0.5 + 0.05 * score.importance + 0.05;
        assert!((score.final_score - sum).abs() < 1e-6);
        assert!(!staleness(&memory, now).stale);
        assert!(staleness(&memory, now.plus_millis(1)).stale);
    }

    #[test]
    fn signs_count_as_far_as_they_tell() {
        let signs = |words, meaning, trust, is_one_script| Signs {
            words,
            covered: 0.5,
            meaning,
            trust,
            is_one_script,
        };
        assert_eq!(signs(0.5, 0.5, 1.0, true).strength(), 0.5);
        // Two weak signs are more than one.
        let one = signs(0.8, 0.0, 1.0, true).strength();
        assert!(signs(0.5, 0.5, 1.0, true).strength() > one);
        let by_meaning = |trust| {
            signs(0.5, 1.0, trust, true).strength() - signs(0.5, 0.0, trust, true).strength()
        };
        assert!(by_meaning(1.0) > by_meaning(0.3) && by_meaning(0.3) > 0.0);
        assert_eq!(by_meaning(0.0), 0.0);
        // Between languages meaning outweighs words.
        let within = |words, meaning| signs(words, meaning, 0.9, true).strength();
        let across = |words, meaning| signs(words, meaning, 0.9, false).strength();
        assert!(within(0.6, 0.2) > within(0.2, 0.6));
        assert!(across(0.6, 0.2) < across(0.2, 0.6));
    }

    #[test]
    fn a_hash_embedding_never_lifts_anything_over_the_floor() {
        let memory = memory(claim(Kind::Fact, "I live in Suzhou"));
        let near = Evidence {
            vector: Some((1, 0.99)),
            ..Evidence::default()
        };
        let asked = terms("favourite colour");
        let now = at("2026-11-02T00:00:00Z");
        assert_eq!(
            score(&memory, near, AtMost::default(), &asked, hash(), now).relevance,
            0.0
        );
        let semantic = Model {
            is_semantic: true,
            ..hash()
        };
        assert!(score(&memory, near, AtMost::default(), &asked, semantic, now).relevance > 0.9);
    }

    #[test]
    fn unrelated_texts_are_known_by_the_models_id() {
        let check = |id: &str, expected: f64| assert_eq!(unrelated_cosine(id), expected, "{id}");
        check("bge-small-zh-v1.5-0a1b2c3d", 0.40);
        check(
            "bge-small-zh-v1.5+bge-small-en-v1.5-q+use-multilingual-v3-0a1b2c3d",
            0.34,
        );
        check("all-minilm-l6-v2-0a1b2c3d", UNRELATED_DEFAULT);
    }

    #[test]
    fn another_allergy_is_no_paraphrase() {
        let unrelated = unrelated_cosine("bge-small-zh-v1.5");
        let relevance = |cosine| rank::dense_relevance(cosine, unrelated);
        // "Am I allergic to penicillin?" and "I am allergic to peanuts".
        assert!(relevance(0.668) < FLOOR);
        // "What am I allergic to?" and the same.
        assert!(relevance(0.728) > FLOOR);
    }

    #[test]
    fn another_allergy_is_no_paraphrase_to_the_joined_models() {
        let joined = "bge-small-zh-v1.5+bge-small-en-v1.5-q+use-multilingual-v3-";
        let relevance = |cosine| rank::dense_relevance(cosine, unrelated_cosine(joined));
        // Penicillin and peanuts, in Chinese and in English.
        assert!(relevance(0.62) < FLOOR && relevance(0.63) < FLOOR);
        // "What am I allergic to?" and peanuts, in English and in Chinese.
        assert!(relevance(0.70) > FLOOR && relevance(0.74) > FLOOR);
    }

    #[test]
    fn being_verified_makes_a_memory_fresh_again() {
        let mut memory = memory(claim(Kind::Preference, "less sugar"));
        let said = memory.standing.valid_from;
        let years_later = said.plus_millis(800 * anamnesis_domain::time::DAY_MS);
        assert!(staleness(&memory, years_later).stale);
        memory.last_verified_at = Some(years_later);
        assert!(!staleness(&memory, years_later).stale);
    }
}
