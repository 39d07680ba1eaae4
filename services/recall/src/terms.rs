//! What in a question tells, how much of it does a memory say, and how relevant is that?
//!
//! BM25 alone cannot carry a floor: its score depends on how many memories an owner has, so the only
//! memory of a new owner would never clear one. The share of the question's telling words that a memory
//! covers does not depend on anything else, and the two together are lexical relevance.

use std::collections::{BTreeSet, HashSet};

use anamnesis_domain::attribute::Attributes;
use anamnesis_domain::memory::{Claim, Entity, EntityKind, Kind, Memory};
use anamnesis_domain::rank;
use anamnesis_domain::tokens;

use crate::asked::{Parts, is_alternative};
use crate::cues;
use crate::days::Day;
use crate::likeness::Script;
use crate::opposites::Opposites;
use crate::understand::QueryReader;
use crate::wording::{
    addresses_the_assistant, headings, is_identifier, is_pair, is_single, plain_tokens, said_by,
    tells_nothing,
};

/// Relevance of a memory that says every telling word of the question, before the part of BM25. With
/// half of the words it stays below the floor of 0.45, with more than half it clears it.
const FULL_COVERAGE: f64 = 0.82;
/// BM25's own part for memories that cover equally much.
const BM25_PART: f64 = 0.05;
/// Relevance of an exact identifier (order, model or examination number) that question and memory
/// share: it is what was asked for, whatever else the question says.
const SAME_IDENTIFIER: f64 = 0.90;

/// Relevance of a memory that was written down under a name which the question says, before its coverage:
/// who writes "WiFi, network: …" will ask by that name, among whatever else they say.
const NAMED: f64 = 0.55;
const NAMED_COVERAGE: f64 = 0.30;
/// What a word that tells of a wide kind ("like" of preferences) still counts for a memory of the kind, when it
/// says nothing else of the question.
const KIND_ALONE: f64 = 0.5;

/// A thing weighs as two words: another thing of the same kind is no answer.
const THING: f64 = 2.0;

/// One telling part of a question.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Term {
    pub token: String,
    /// Each of them says the part when all of its tokens are said.
    pub said: Vec<Vec<String>>,
    pub weight: f64,
    /// Kinds of memory that the part asks for.
    pub kinds: Vec<Kind>,
    /// Attributes that it asks for.
    pub attributes: Vec<&'static str>,
    /// Entities that it names, by their place in the question's list: one of them is enough.
    pub entities: Vec<usize>,
    pub is_identifier: bool,
}

impl Term {
    /// Whether it says which kind of memory may answer and not what is asked about.
    fn is_wide(&self) -> bool {
        !self.kinds.is_empty()
    }
}

/// The telling parts of a question, and the entities that it names.
#[derive(Clone, PartialEq, Debug, Default)]
pub(crate) struct Terms {
    pub terms: Vec<Term>,
    pub entities: Vec<Entity>,
    /// Tokens of each entity's canonical name, read once and not for every memory.
    names: Vec<Vec<String>>,
    /// Every token that a memory can count with: of its other words nothing needs to be known.
    telling: HashSet<String>,
    /// Whether a record about allergies as a whole ("no known drug allergies") answers for a thing.
    is_about_harm: bool,
    opposites: Opposites,
    /// How many words the question is searched by.
    pub words: usize,
    /// Days that the question names.
    pub days: Vec<Day>,
    /// Whether what the asker said is asked about, and not what was answered.
    pub is_about_the_asker: bool,
    /// What the question is written in, as models read it.
    pub script: Script,
}

impl Terms {
    pub(crate) fn of(question: &str, entities: Vec<Entity>, reader: &dyn QueryReader) -> Self {
        let parts = Parts::of(question, &entities, reader);
        let mut terms: Vec<Term> = parts
            .rest
            .iter()
            .map(|token| term(token, reader))
            .filter(|term| term.weight > 0.0)
            .collect();
        if terms.iter().any(|term| is_pair(&term.token)) {
            // A pair of characters says more than each of them; a lone cue such as 药 still tells.
            terms.retain(|term| !is_single(&term.token) || !term.kinds.is_empty());
        }
        let is_more = !parts.cues.is_empty() || !parts.things.is_empty();
        if let [only] = terms.as_mut_slice()
            && is_more
        {
            // 我能吃虾吗, 猫叫什么名字: the one word left is what the question is about.
            only.weight = only.weight.max(1.0);
        }
        let is_about_harm = parts.is_request
            || parts.kinds.contains(&Kind::Allergy)
            || parts.kinds.contains(&Kind::Contraindication);
        if !parts.kinds.is_empty() || !parts.attributes.is_empty() {
            terms.push(Term {
                token: parts.cues.join(" "),
                said: parts.cues.iter().flat_map(|cue| said_by(cue)).collect(),
                // Whoever asks for a drug asks about the drug.
                weight: if parts.is_request { 0.0 } else { 1.0 },
                kinds: parts.kinds,
                attributes: parts.attributes,
                entities: Vec::new(),
                is_identifier: false,
            });
        }
        terms.extend(parts.things.into_iter().map(|thing| Term {
            said: vec![plain_tokens(&thing.words)],
            token: thing.words,
            weight: THING,
            kinds: Vec::new(),
            attributes: Vec::new(),
            entities: thing.entities,
            is_identifier: false,
        }));
        if terms.is_empty() {
            let tokens = tokens::query_tokens(question);
            let plain = |token: &String| Term {
                weight: 1.0,
                ..term(token, reader)
            };
            terms = tokens.iter().map(plain).collect();
        }
        let name = |entity: &Entity| tokens::query_tokens(entity.name.expose());
        let names: Vec<Vec<String>> = entities.iter().map(name).collect();
        let cues = terms
            .iter()
            .flat_map(|term| &term.kinds)
            .flat_map(|kind| cues::tokens_of(*kind));
        let telling = terms.iter().flat_map(|term| term.said.iter().flatten());
        let telling = telling.chain(cues).chain(names.iter().flatten());
        Self {
            telling: telling.cloned().collect(),
            names,
            terms,
            entities,
            is_about_harm,
            opposites: Opposites::of(question),
            words: tokens::query_tokens(question).len(),
            days: Vec::new(),
            is_about_the_asker: !addresses_the_assistant(question),
            script: Script::of(question),
        }
    }

    /// Whether a memory speaks of the opposite of what is asked about: the right knee, not the left. What
    /// warns is never ruled out: who may not have the short-acting insulin is told so when asking about
    /// the long-acting one.
    pub(crate) fn rules_out(&self, memory: &Memory) -> bool {
        let warns = matches!(memory.claim.kind, Kind::Allergy | Kind::Contraindication);
        !warns && self.opposites.rule_out(memory.claim.text.expose())
    }

    /// Kinds whose memories are all looked at, whatever words they use: those asked for, and those that
    /// tell of such things as the question names.
    pub(crate) fn kinds_to_list(&self) -> Vec<Kind> {
        let table = Attributes::shipped();
        let of_attributes = self
            .terms
            .iter()
            .flat_map(|term| &term.attributes)
            .filter_map(|name| table.attribute(name).map(|rule| rule.kind));
        let named = self.terms.iter().flat_map(|term| &term.entities);
        let of_things = named
            .filter_map(|place| self.entities.get(*place))
            .flat_map(|entity| kinds_about(entity.kind).iter().copied());
        let kinds: BTreeSet<Kind> = self
            .kinds()
            .into_iter()
            .chain(of_attributes)
            .chain(of_things)
            .collect();
        kinds.into_iter().collect()
    }

    /// Kinds that the question asks for by a word.
    pub(crate) fn kinds(&self) -> Vec<Kind> {
        let kinds: BTreeSet<Kind> = self
            .terms
            .iter()
            .flat_map(|term| term.kinds.iter().copied())
            .collect();
        kinds.into_iter().collect()
    }

    /// What the text leg searches beside the question's own tokens: the other language's words for the
    /// kinds asked about, and canonical names of the entities.
    pub(crate) fn added(&self, question: &[String]) -> Vec<String> {
        let cues = self
            .kinds()
            .into_iter()
            .flat_map(|kind| cues::tokens_of(kind).iter().cloned());
        let names = self.names.iter().flatten().cloned();
        let added: BTreeSet<String> = cues
            .chain(names)
            .filter(|token| !question.contains(token))
            .collect();
        added.into_iter().collect()
    }

    /// Lexical relevance of a memory, 0 to 1.
    pub(crate) fn relevance(&self, memory: &Memory, bm25: f64) -> f64 {
        self.covered(memory, bm25).0
    }

    /// Lexical relevance, and the share of the question that the memory's own words and things cover. A word
    /// that only tells of a kind ("like" of a preference) says which memories of that kind may answer;
    /// in a turn it says next to nothing.
    pub(crate) fn covered(&self, memory: &Memory, bm25: f64) -> (f64, f64) {
        let words: BTreeSet<String> = tokens::index_tokens(memory.claim.text.expose())
            .into_iter()
            .chain(memory.speaker_tokens())
            .filter(|token| self.telling.contains(token))
            .collect();
        let says = |tokens: &Vec<String>| {
            !tokens.is_empty() && tokens.iter().all(|token| words.contains(token))
        };
        let is_turn = memory.claim.kind == Kind::Episode;
        let (mut covered, mut said, mut all) = (0.0, 0.0, 0.0);
        // The same of those words alone that tell of a kind.
        let (mut wide_covered, mut wide_said, mut wide_all) = (0.0, 0.0, 0.0);
        let mut has_identifier = false;
        for term in &self.terms {
            all += term.weight;
            if term.is_wide() {
                wide_all += term.weight;
            }
            let is_said = term.said.iter().any(says);
            // The first is the thing itself. The classes behind it say who must not have it; that another
            // drug of a class is taken answers nothing.
            let is_harm = matches!(memory.claim.kind, Kind::Allergy | Kind::Contraindication);
            let told = if is_harm { term.entities.len() } else { 1 };
            let is_named = term.entities.iter().take(told).any(|place| {
                self.names.get(*place).is_some_and(says)
                    || self
                        .entities
                        .get(*place)
                        .is_some_and(|entity| tells_of(&memory.claim, entity, self.is_about_harm))
            });
            let is_asked = term.kinds.iter().any(|kind| {
                memory.claim.kind == *kind
                    || cues::tokens_of(*kind).iter().any(|cue| words.contains(cue))
            });
            let attribute = memory.claim.attribute.as_deref();
            let is_held = attribute.is_some_and(|name| term.attributes.contains(&name));
            if is_said || is_named || is_asked || is_held {
                covered += term.weight;
                if term.is_wide() && !is_held {
                    let is_list = !is_turn && term.kinds.iter().any(|kind| is_alternative(*kind));
                    wide_covered += if is_list { 0.0 } else { term.weight };
                }
            }
            if is_said || is_named {
                said += term.weight;
                if term.is_wide() {
                    wide_said += term.weight;
                }
            }
            has_identifier |= is_said && term.is_identifier;
        }
        if all == 0.0 {
            return (0.0, 0.0);
        }
        if wide_all < all && covered == wide_covered {
            // Nothing was hit but the kind: "which colour do I like?" is not answered by what is liked.
            covered *= if is_turn { 0.0 } else { KIND_ALONE };
            said -= if is_turn { wide_said } else { 0.0 };
        }
        let share = covered / all;
        let frequency = rank::lexical_relevance(bm25.max(0.0));
        let by_words = FULL_COVERAGE * share + BM25_PART * frequency;
        // A rare word alone makes a high BM25 score; the less of the question it is, the less it tells.
        let by_frequency = frequency * (0.5 + 0.5 * share);
        let lexical = if share > 0.0 {
            by_words.max(by_frequency)
        } else {
            0.0
        };
        let lexical = if has_identifier {
            lexical.max(SAME_IDENTIFIER)
        } else if self.names_heading(&memory.claim) {
            lexical.max(NAMED + NAMED_COVERAGE * share)
        } else {
            lexical
        };
        (lexical, said / all)
    }

    /// Whether the question says one of the names under which a memory was explicitly written down.
    fn names_heading(&self, claim: &Claim) -> bool {
        let is_asked = |token: &String| {
            let mut said = self
                .terms
                .iter()
                .flat_map(|term| term.said.iter().flatten());
            said.any(|asked| asked == token)
        };
        claim.explicit
            && headings(claim.text.expose()).any(|name| {
                let tokens = plain_tokens(name);
                !tokens.is_empty() && tokens.iter().all(is_asked)
            })
    }
}

/// Kinds of memory that tell of such a thing.
fn kinds_about(entity: EntityKind) -> &'static [Kind] {
    match entity {
        EntityKind::Drug => &[Kind::Medication, Kind::Allergy, Kind::Contraindication],
        EntityKind::Allergen => &[Kind::Allergy],
        EntityKind::Disease => &[Kind::Condition],
        EntityKind::Test => &[Kind::Measurement, Kind::Procedure, Kind::Event],
        EntityKind::Thing | EntityKind::Person | EntityKind::Order | EntityKind::Place => &[],
    }
}

/// Whether a claim is about the thing: it names it, it names a narrower one (type 2 diabetes, when
/// diabetes is asked for), or it answers for everything of that sort.
fn tells_of(claim: &Claim, thing: &Entity, is_about_harm: bool) -> bool {
    let name = thing.name.expose();
    let is_it = |other: &str| {
        other == name
            || (thing.kind == EntityKind::Disease
                && other
                    .strip_suffix(name)
                    .is_some_and(|rest| rest.ends_with(' ')))
    };
    if claim.entities.contains(thing)
        || claim
            .entities
            .iter()
            .any(|other| other.kind == thing.kind && is_it(other.name.expose()))
        || claim.value.as_deref().is_some_and(is_it)
    {
        return true;
    }
    if !is_about_harm || claim.kind != Kind::Allergy {
        return false;
    }
    match claim.value.as_deref() {
        Some("any") => matches!(
            thing.kind,
            EntityKind::Drug | EntityKind::Allergen | EntityKind::Thing
        ),
        Some("drug") => thing.kind == EntityKind::Drug,
        Some("food") => thing.kind == EntityKind::Thing,
        Some(_) | None => false,
    }
}

fn term(token: &str, reader: &dyn QueryReader) -> Term {
    let kinds = cues::kinds_of(token).to_vec();
    let is_identifier = is_identifier(token);
    let weight = if is_identifier {
        3.0
    } else if !kinds.is_empty() {
        1.0
    } else if tells_nothing(token) || reader.subject(token).is_some() {
        // A relative is whom the question is about, and already the filter.
        0.0
    } else if is_pair(token) {
        // Every word boundary makes a pair too, so one of them is less than a word.
        0.6
    } else {
        1.0
    };
    Term {
        token: token.to_owned(),
        said: vec![vec![token.to_owned()]],
        weight,
        kinds,
        attributes: Vec::new(),
        entities: Vec::new(),
        is_identifier,
    }
}

#[cfg(test)]
mod tests {
    use anamnesis_domain::memory::EntityKind;
    use anamnesis_domain::text::Text;

    use super::*;
    use crate::fixture::{Reader, claim, memory};

    fn terms(question: &str) -> Terms {
        Terms::of(question, Reader.entities(question), &Reader)
    }

    /// Whether the memory clears the default floor without any help of BM25.
    fn check(question: &str, kind: Kind, text: &str, clears: bool) {
        let mut said = claim(kind, text);
        said.entities = Reader.entities(text);
        let relevance = terms(question).relevance(&memory(said), 0.0);
        assert_eq!(
            relevance >= crate::score::FLOOR,
            clears,
            "{question} / {text}: {relevance}"
        );
    }

    #[test]
    fn the_only_memory_of_an_owner_can_answer() {
        check("我对什么过敏？", Kind::Allergy, "我对花生过敏", true);
        check(
            "What am I allergic to?",
            Kind::Allergy,
            "I am allergic to mango",
            true,
        );
        check("头孢", Kind::Allergy, "患者对头孢曲松钠皮试阳性", true);
        check(
            "0.625g",
            Kind::Medication,
            "阿莫西林克拉维酸钾 ０．６２５ｇ",
            true,
        );
    }

    #[test]
    fn a_question_in_one_language_meets_a_memory_in_the_other() {
        check(
            "What am I allergic to?",
            Kind::Allergy,
            "我对花生过敏",
            true,
        );
        check("我对什么过敏", Kind::Allergy, "no shellfish for me", true);
        check(
            "Am I allergic to peanuts?",
            Kind::Allergy,
            "我对花生过敏",
            true,
        );
        check(
            "我对花生过敏吗",
            Kind::Allergy,
            "I am allergic to peanuts",
            true,
        );
    }

    #[test]
    fn another_thing_of_the_same_kind_does_not_answer() {
        check(
            "Am I allergic to penicillin?",
            Kind::Allergy,
            "我对花生过敏",
            false,
        );
        check("我对青霉素过敏吗", Kind::Allergy, "我对花生过敏", false);
        check("头孢曲松钠", Kind::Allergy, "对头孢克肟过敏", false);
    }

    #[test]
    fn an_exact_number_is_enough() {
        check(
            "帮我查一下订单 A-20391 现在到哪里了，我很着急想知道",
            Kind::Event,
            "A-20391 已签收",
            true,
        );
        check("订单 A-20391", Kind::Event, "订单 A-20392 已签收", false);
        check(
            "the slot with ID 88A17",
            Kind::Event,
            "王医生 6月21日 08:30 ID 88A17",
            true,
        );
    }

    #[test]
    fn an_unrelated_memory_stays_below_the_floor() {
        check("北京明天天气怎么样", Kind::Allergy, "我对花生过敏", false);
        check(
            "What is the name of my cat?",
            Kind::Preference,
            "I prefer coffee without sugar",
            false,
        );
    }

    #[test]
    fn a_kind_alone_does_not_answer_a_question_for_more() {
        let liked = Kind::Preference;
        check("我喜欢什么颜色？", liked, "我喜欢喝茶", false);
        check("我喜欢什么颜色？", liked, "我喜欢红的颜色", true);
        check("What do I like?", liked, "I prefer tea", true);
        check(
            "Which colour do I like and prefer?",
            liked,
            "I like tea",
            false,
        );
        check(
            "Which colour do I like?",
            liked,
            "I like the colour red",
            true,
        );
        // In a turn it says nothing, whatever kind it is.
        let turn = Kind::Episode;
        check("我的过敏卡放在抽屉里吗", turn, "我对花生过敏", false);
        check("药店几点关门", turn, "我每天吃药", false);
        check("我对什么过敏", turn, "I am allergic to mango", true);
        check(
            "Which pharmacy has my medication?",
            turn,
            "a tablet to read on",
            false,
        );
    }

    #[test]
    fn an_unknown_thing_beside_a_cue_is_what_the_question_is_about() {
        check("我能吃虾吗", Kind::Allergy, "我对花生过敏", false);
        check("我有精神疾病吗", Kind::Condition, "我有哮喘", false);
        check("我有什么疾病呀", Kind::Condition, "我有哮喘", true);
        check("我的药和过敏", Kind::Medication, "我吃二甲双胍", true);
        check(
            "allergies and medications",
            Kind::Medication,
            "我吃二甲双胍",
            true,
        );
        check("药物过敏", Kind::Medication, "我每天吃二甲双胍", false);
    }

    #[test]
    fn a_memory_answers_to_the_names_that_it_was_written_down_under() {
        let check = |question: &str, text: &str, clears: bool| {
            let mut said = claim(Kind::Fact, text);
            said.explicit = true;
            let relevance = terms(question).relevance(&memory(said), 0.0);
            assert_eq!(
                relevance >= crate::score::FLOOR,
                clears,
                "{question} / {text}"
            );
        };
        let note = "router, home network: the password is on the fridge";
        check(
            "so my cousin is coming over and wonders about the router thing",
            note,
            true,
        );
        check(
            "does our home network reach the garden shed and the barn",
            note,
            true,
        );
        check(
            "which network of clinics covers physiotherapy for knees",
            note,
            false,
        );
        let plain = "the router stands in the hall";
        check(
            "so my cousin is coming over and wonders about the router thing",
            plain,
            false,
        );
        check(
            "周末客人要来，路由器怎么重启比较快",
            "路由器、无线网：密码在冰箱上",
            true,
        );
    }

    #[test]
    fn a_named_entity_counts_by_its_canonical_name() {
        let peanut = Entity {
            kind: EntityKind::Allergen,
            name: Text::new("peanut"),
        };
        assert_eq!(terms("我对花生过敏吗").entities, [peanut]);
        assert!(
            terms("我对花生过敏吗")
                .added(&[])
                .contains(&"peanut".to_owned())
        );
    }
}
