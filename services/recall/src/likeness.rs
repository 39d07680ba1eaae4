//! What does a cosine say, by the scripts of the question and of the memory?
//!
//! A model tells what belongs together apart from what does not, better in one language than in another
//! and between two languages at other cosines than within one. One figure of "unrelated" for all of them
//! makes nothing of nearly every cosine between languages, and one belief in the vectors lets a Chinese
//! model overrule the words of English texts.

use anamnesis_domain::tokens;

/// Cosine of a related pair's median, in parts of the way from "unrelated" to the whole of the sign: what
/// is three times as near as an answer commonly is says all that a cosine can say.
const RELATED_PART: f64 = 1.0 / 3.0;
/// How far related pairs must lie from unrelated ones, in standard deviations of the unrelated, for the
/// vectors to be fully believed.
const FULLY_APART: f64 = 3.0;

/// Which writing a text has: with one Han character in it, models read it as Chinese.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum Script {
    Han,
    #[default]
    Other,
}

impl Script {
    pub(crate) fn of(text: &str) -> Self {
        if text.chars().any(tokens::is_han) {
            Self::Han
        } else {
            Self::Other
        }
    }
}

/// What a model's cosines are between questions and statements of two scripts.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Likeness {
    /// Median of a question with what answers another one.
    unrelated: f64,
    /// Median of a question with what answers it.
    related: f64,
    /// Between the two means, in standard deviations of the unrelated.
    apart: f64,
}

impl Likeness {
    const fn new(related: f64, unrelated: f64, apart: f64) -> Self {
        Self {
            unrelated,
            related,
            apart,
        }
    }

    /// How near a memory is by its cosine, in [0, 1].
    pub(crate) fn meaning(self, cosine: f64) -> f64 {
        let way = (self.related - self.unrelated) / RELATED_PART;
        ((cosine - self.unrelated) / way).clamp(0.0, 1.0)
    }

    /// How far that is to be believed, in [0, 1].
    pub(crate) fn trust(self) -> f64 {
        (self.apart / FULLY_APART).min(1.0)
    }
}

/// The four of a model, question's script first.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Likenesses {
    han: Likeness,
    other: Likeness,
    /// A Chinese question and another text.
    han_other: Likeness,
    other_han: Likeness,
}

impl Likenesses {
    /// Of a model of which nothing is known but what two unrelated texts have: the same in all languages.
    pub(crate) fn all(unrelated: f64) -> Self {
        let related = unrelated + RELATED_PART * (1.0 - unrelated);
        let one = Likeness::new(related, unrelated, FULLY_APART);
        Self {
            han: one,
            other: one,
            han_other: one,
            other_han: one,
        }
    }

    /// Of a model by the beginning of its id, or nothing.
    pub(crate) fn of(model_id: &str) -> Option<Self> {
        let known = MEASURED
            .iter()
            .find(|(begin, _)| model_id.starts_with(begin));
        known.map(|(_, likenesses)| *likenesses)
    }

    /// How far the vectors' list for a question is believed, whatever is on it.
    pub(crate) fn trust(&self, question: Script) -> f64 {
        let of = |memory| self.between(question, memory).trust();
        f64::max(of(Script::Han), of(Script::Other))
    }

    pub(crate) fn between(&self, question: Script, memory: Script) -> Likeness {
        match (question, memory) {
            (Script::Han, Script::Han) => self.han,
            (Script::Other, Script::Other) => self.other,
            (Script::Han, Script::Other) => self.han_other,
            (Script::Other, Script::Han) => self.other_han,
        }
    }
}

/// From `anamnesis eval alike` (36 questions and what answers them, in both languages), by the beginning of
/// the model's id, models joined to one before the first of them alone.
const MEASURED: &[(&str, Likenesses)] = &[
    (
        "bge-small-zh-v1.5+bge-small-en-v1.5-q+use-multilingual-v3-",
        Likenesses {
            han: Likeness::new(0.376, 0.161, 3.18),
            other: Likeness::new(0.445, 0.287, 3.31),
            han_other: Likeness::new(0.250, 0.136, 2.70),
            other_han: Likeness::new(0.250, 0.116, 2.80),
        },
    ),
    (
        "bge-small-zh",
        Likenesses {
            han: Likeness::new(0.432, 0.243, 2.72),
            other: Likeness::new(0.470, 0.430, 1.01),
            han_other: Likeness::new(0.340, 0.274, 1.01),
            other_han: Likeness::new(0.304, 0.225, 1.38),
        },
    ),
];

#[cfg(test)]
mod tests {
    use super::*;

    const JOINED: &str = "bge-small-zh-v1.5+bge-small-en-v1.5-q+use-multilingual-v3-0a1b2c3d";

    fn read(model: &str, question: &str, memory: &str, cosine: f64) -> (f64, f64) {
        let likenesses = Likenesses::of(model).unwrap();
        let between = likenesses.between(Script::of(question), Script::of(memory));
        (between.meaning(cosine), between.trust())
    }

    #[test]
    fn what_is_related_between_languages_counts_as_what_is_within_one() {
        let check = |question: &str, memory: &str, cosine: f64| {
            let (meaning, trust) = read(JOINED, question, memory, cosine);
            assert!((meaning - RELATED_PART).abs() < 1e-9, "{question} {memory}");
            assert!(trust > 0.8, "{question} {memory}: {trust}");
        };
        check("我养了什么宠物？", "我家有只橘猫", 0.376);
        check("What pet do I have?", "we have a ginger cat", 0.445);
        check("我养了什么宠物？", "we have a ginger cat", 0.250);
        check("What pet do I have?", "我家有只 ginger cat", 0.250);
    }

    #[test]
    fn a_model_is_believed_where_it_tells_apart() {
        let trust =
            |question: &str, memory: &str| read("bge-small-zh-v1.5-0a1b", question, memory, 0.5).1;
        assert!(trust("宠物", "橘猫") > 0.8);
        assert!(trust("pet", "cat") < 0.4);
        assert!(trust("宠物", "cat") < 0.4);
    }

    #[test]
    fn an_unknown_model_is_read_alike_in_all_languages() {
        assert_eq!(Likenesses::of("all-minilm-l6-v2-0a1b2c3d"), None);
        let all = Likenesses::all(0.4);
        assert_eq!(all.han.meaning(0.4), 0.0);
        assert!((all.other_han.meaning(0.7) - 0.5).abs() < 1e-9);
        assert_eq!((all.other.meaning(1.2), all.trust(Script::Han)), (1.0, 1.0));
    }
}
