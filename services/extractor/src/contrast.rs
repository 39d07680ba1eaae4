//! "不是我过敏，是我爸": whose is it, if not mine?
//!
//! Such a sentence moves a fact that was stated just before, in the same sentence or conversation, to
//! another person. It never asserts anything about the speaker that was not said.

use anamnesis_domain::memory::{EntityKind, Intent, Kind, Polarity};
use anamnesis_domain::owner::Subject;

use crate::pattern::fixed;
use crate::scene::{Found, Known};
use crate::subject::persons;

fixed!(
    NOT_SELF,
    r"不是我(?:自己|本人)?(?:过敏|对.{0,12}过敏|的|有)?\s*(?:$|[,.。!])|不是我(?:自己|本人)?过敏|(?:的|过敏)不是我|\bnot (?:me|mine|myself)\b|\b(?:isn't|is not|wasn't|was not) (?:me|mine)\b|\bi(?:'m| am) not (?:the one|the allergic one)\b"
);
// The clause that only says who.
fixed!(
    ONLY_WHO,
    r"^(?:而)?(?:就)?是$|^$|^(?:but |and )?(?:it's|it is|that's|that is|it was)?$"
);
fixed!(
    ELLIPSIS,
    r"^(?:才)?(?:过敏的?|有的?|得的?|得了|患的?|在吃|对它过敏)?(?:的|啊|呢|哦)*$|^(?:is|does|has|did|was|who (?:is|does|has|was)(?: allergic)?|who's allergic|that is|is the one|is allergic)?(?: though| instead)?$"
);

/// A clause that names a person and nothing else: `是我爸`, "it's my dad", "my father does".
pub(crate) fn names_only(clause: &str) -> Option<Vec<Subject>> {
    let clause = clause
        .trim()
        .trim_matches(|c: char| !c.is_alphanumeric())
        .trim();
    let persons = persons(clause);
    let person = persons.iter().find(|p| !p.is_self && !p.who.is_empty())?;
    let (before, after) = (clause[..person.start].trim(), clause[person.end..].trim());
    let is_all = ONLY_WHO.is_match(before) && ELLIPSIS.is_match(after);
    is_all.then(|| person.who.clone())
}

/// Whether a sentence says "not me".
pub(crate) fn denies_self(sentence: &str) -> bool {
    NOT_SELF.is_match(sentence)
}

/// What follows from "not me" and "my father" beside what the sentence itself states.
///
/// `stated` are the facts of this sentence with their subjects; `named` the person of a clause that
/// names only a person.
pub(crate) fn resolve(
    sentence: &str,
    stated: &[(Vec<Subject>, Found)],
    named: Option<&[Subject]>,
    known: &Known,
) -> Vec<(Vec<Subject>, Found)> {
    let denies = denies_self(sentence);
    let own = [Subject::Self_];
    let own_denied = stated
        .iter()
        .find(|(who, found)| who.as_slice() == own && found.polarity == Polarity::Negative);
    let mut moved: Vec<(Vec<Subject>, Found)> = Vec::new();
    if let (Some(named), Some((_, denied))) = (named, own_denied) {
        // 我没有高血压，是我父亲有
        let mut found = denied.clone();
        found.polarity = Polarity::Positive;
        found.intent = Intent::Assert;
        moved.push((named.to_vec(), found));
        return moved;
    }
    if !denies {
        return moved;
    }
    let value = match (named, known.allergies.as_slice()) {
        // Said in this sentence of the relative: 我女儿对头孢过敏，不是我
        _ if !stated.is_empty() => stated
            .iter()
            .find(|(_, found)| found.kind == Kind::Allergy && found.polarity == Polarity::Positive)
            .and_then(|(_, found)| found.value.clone()),
        (Some(_), allergies) => only_value(allergies),
        (None, _) => None,
    };
    let Some(value) = value else { return moved };
    let allergy = |polarity, intent| {
        Found::new(Kind::Allergy, "allergy", value.clone(), 0)
            .polarity(polarity)
            .intent(intent)
            .entity(EntityKind::Allergen, &value)
    };
    let was_own = known.allergies.iter().any(|(who, v, polarity)| {
        who.contains(&Subject::Self_) && *v == value && *polarity == Polarity::Positive
    });
    if was_own {
        moved.push((own.to_vec(), allergy(Polarity::Negative, Intent::Correct)));
    }
    if let Some(named) = named.filter(|_| stated.is_empty()) {
        moved.push((named.to_vec(), allergy(Polarity::Positive, Intent::Assert)));
    }
    moved
}

/// The one allergy that the conversation has named; `None` when there are several.
fn only_value(allergies: &[(Vec<Subject>, String, Polarity)]) -> Option<String> {
    let mut values: Vec<&String> = allergies
        .iter()
        .filter(|(_, value, polarity)| {
            *polarity == Polarity::Positive && !matches!(value.as_str(), "any" | "drug" | "food")
        })
        .map(|(_, value, _)| value)
        .collect();
    values.sort_unstable();
    values.dedup();
    match values.as_slice() {
        [value] => Some((*value).clone()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clause_that_names_only_a_person_is_told() {
        for (clause, who) in [
            ("是我爸", "father"),
            ("it's my dad", "father"),
            ("my mother does", "mother"),
            ("是我父亲有", "father"),
        ] {
            let named = names_only(clause).unwrap_or_default();
            assert_eq!(
                named.first().map(ToString::to_string).as_deref(),
                Some(who),
                "{clause}"
            );
        }
        assert_eq!(names_only("我爸对青霉素过敏"), None);
        assert_eq!(names_only("i love my dad"), None);
    }
}
