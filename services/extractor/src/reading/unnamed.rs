//! Who is meant by a pronoun, and by a name that no lexicon of relations knows?

use std::sync::LazyLock;

use anamnesis_domain::owner::Subject;
use regex::Regex;

use crate::pattern::compile;
use crate::scene::Scene;
use crate::subject::{Person, may_be};

/// The dead do not tell of themselves.
static DIED: LazyLock<Regex> = LazyLock::new(|| {
    compile(r"走的|去世|过世|离世|病逝|病故|死于|\b(?:died|passed away|passed on|deceased)\b")
});
/// "Gramps has gout": whoever that is, it is not the speaker.
static SOMEBODY: LazyLock<Regex> = LazyLock::new(|| {
    compile(
        r"^\W*(?:(?:and|but|so|because|while|since|also)\s+)?(?P<who>(?:(?:the|a|an|my|our|poor|old|this|that)\s+)?[a-z][a-z'-]*(?:\s+[a-z][a-z'-]*)?)\s+(?P<verb>has|takes|uses|is allergic|is on|suffers|was diagnosed|lost|swells|carries|caught|survived|beat|died|had (?:his|her|their)|developed|is diabetic|is asthmatic)\b(?:\s+(?P<then>[a-z]+))?",
    )
});
/// What has or shows a fact without being anybody.
static THING: LazyLock<Regex> = LazyLock::new(|| {
    compile(
        r"\b(?:i|we|it|this|that|there|which|who|what|everything|test|tests|scan|results?|report|blood|pressure|sugar|level|levels|doctor|dr|nurse|gp|consultant|specialist|clinic|hospital|history|pain|patient|lab|x-ray|mri|ct|biopsy|eyes?|skin|heart|liver|kidneys?|lungs?|knees?|back|foot|feet|hands?|legs?|arms?|head|chest|stomach|throat|ears?|nose|neck|shoulders?|spine|bones?|joints?|hips?|wrists?|ankles?|thyroid|prostate|bladder|gut|bowel|brain|mouth|teeth|gums?|hair|nails?|body|face|breasts?|system|condition|insurance|prescription|pharmacy|pharmacist|team|[a-z]+ologist|psychiatrist|therapist|dentist|surgeon|midwife|record|chart|file|he|she|they|you|his|her|their|now|still|never|currently|also)\b",
    )
});
static OF_SOMETHING: LazyLock<Regex> = LazyLock::new(|| {
    compile(
        r"^(?:been|shown|found|confirmed|diagnosed|told|said|prescribed|given|put|started|changed|stopped|gone|improved|increased|risen|dropped|become|got|never|always|just|now)$",
    )
});

/// Somebody whom no lexicon knows, named before the predicate at `anchor`.
pub(super) fn unnamed(clause: &str, anchor: usize) -> Option<Subject> {
    if DIED.is_match(clause) {
        return Some(Subject::Other("they".to_owned()));
    }
    let hit = SOMEBODY.captures(clause)?;
    let (who, verb) = (hit.name("who")?, hit.name("verb")?);
    let is_report = hit
        .name("then")
        .is_some_and(|then| OF_SOMETHING.is_match(then.as_str()));
    let is_predicate = anchor >= verb.start();
    (is_predicate && !is_report && !THING.is_match(who.as_str()))
        .then(|| Subject::Other(who.as_str().to_owned()))
}

/// Bytes between "his" and a thing that is his; behind more words it is another's: "one of his patients
/// has gout".
const OWN_GAP_MAX: usize = 16;

/// Whom a pronoun stands for: somebody named in this clause already ("I give Grandpa his tablets"), else
/// the relative whom the conversation named last, else nobody known.
pub(super) fn meant_by(
    pronoun: &Person,
    persons: &[Person],
    scene: &Scene<'_>,
    known: Option<&Subject>,
) -> Subject {
    let word = scene.text.get(pronoun.start..pronoun.end).unwrap_or("");
    let nobody = || Subject::Other(word.to_owned());
    if word.ends_with('们') || word == "they" {
        return nobody();
    }
    let near = pronoun.end..pronoun.end + OWN_GAP_MAX;
    let is_owner = !matches!(word, "his" | "her" | "their")
        || scene.mentions.iter().any(|m| near.contains(&m.start));
    let here = persons
        .iter()
        .rev()
        .filter(|p| p.end <= pronoun.start && !p.is_self)
        .find_map(|p| p.who.last())
        .filter(|who| is_owner && may_be(word, who));
    here.or(known).cloned().unwrap_or_else(nobody)
}
