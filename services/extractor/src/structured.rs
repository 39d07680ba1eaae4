//! What does a coded statement of a hospital system claim? One claim, or two: a record that is first
//! seen when it is over still says that it once was so.

use anamnesis_domain::input::{Stance, StructuredClaim, Turn};
use anamnesis_domain::memory::{
    Claim, EntityKind, Intent, Kind, Permille, Polarity, Quantity, Role, STRUCTURED,
};

use crate::extract::{blank, entities_of, source};
use crate::fold::fold;
use crate::lexicon::{Class, lookup};
use crate::quantity::amounts;
use crate::schedule::schedule;

/// The claims of a coded statement, in the order in which they began to hold.
pub(crate) fn claims(turn: &Turn, structured: &StructuredClaim) -> Vec<Claim> {
    let text = turn.text.expose();
    let text = if text.trim().is_empty() {
        structured.code.as_str()
    } else {
        text
    };
    let known = known_name(structured);
    let (quantity, schedule) = dose(structured.dose.as_deref());
    // A record may hold what the patient told: then it is the patient's word.
    let role = match turn.role {
        Role::User => Role::User,
        Role::Assistant
        | Role::System
        | Role::Tool
        | Role::Clinician
        | Role::Record
        | Role::Document => Role::Record,
    };
    let (polarity, intent) = match (structured.stance, structured.ends) {
        (Stance::Refuted, _) => (Polarity::Negative, Intent::Refute),
        (Stance::EnteredInError, _) => (Polarity::Positive, Intent::Withdraw),
        (Stance::Absent, _) => (Polarity::Negative, Intent::Assert),
        (Stance::Holds | Stance::Unconfirmed, true) => (Polarity::Negative, Intent::Change),
        (Stance::Holds | Stance::Unconfirmed, false) => (Polarity::Positive, Intent::Assert),
    };
    let confidence = match structured.stance {
        Stance::Unconfirmed => UNCONFIRMED,
        Stance::Holds | Stance::Absent | Stance::Refuted | Stance::EnteredInError => {
            role.authority()
        }
    };
    let claim = Claim {
        attribute: Some(
            structured
                .attribute
                .clone()
                .unwrap_or_else(|| own_attribute(structured.kind).to_owned()),
        ),
        value: Some(known.map_or_else(|| structured.code.clone(), |(_, name)| name.to_owned())),
        entities: known.map_or_else(Vec::new, |(kind, name)| entities_of(kind, name)),
        quantity,
        schedule,
        polarity,
        intent,
        valid_from: structured.valid_from.unwrap_or(turn.at),
        valid_to: structured.valid_to,
        confidence,
        source: source(turn, role, STRUCTURED),
        ..blank(turn, structured.kind, text)
    };
    let held = structured.held.as_ref().filter(|held| {
        polarity == Polarity::Negative && intent == Intent::Change && held.from < claim.valid_from
    });
    let Some(held) = held else {
        return vec![claim];
    };
    let before = Claim {
        text: held.text.clone(),
        polarity: Polarity::Positive,
        intent: Intent::Assert,
        valid_from: held.from,
        valid_to: Some(claim.valid_from),
        ..claim.clone()
    };
    vec![before, claim]
}

/// As sure as what was only inferred: below what counts without a person.
const UNCONFIRMED: Permille = Permille::new(700);

/// Amount and schedule that the words name; a range or several amounts are none.
fn dose(words: Option<&str>) -> (Option<Quantity>, Option<String>) {
    let Some(words) = words else {
        return (None, None);
    };
    let folded = fold(words);
    let mut found = amounts(&folded);
    let quantity = match (found.pop(), found.is_empty()) {
        (Some(amount), true) if !amount.is_range => Some(amount.quantity),
        (_, _) => None,
    };
    (quantity, schedule(&folded))
}

/// A record that names a substance or a condition in words means the same as a sentence that does, in
/// either language: "not allergic to 青霉素" ends what was said of penicillin.
fn known_name(structured: &StructuredClaim) -> Option<(EntityKind, &'static str)> {
    let (kind, classes): (EntityKind, &[Class]) = match structured.kind {
        Kind::Allergy | Kind::Contraindication => (
            EntityKind::Allergen,
            &[Class::Allergen, Class::Drug, Class::Food],
        ),
        Kind::Medication => (EntityKind::Drug, &[Class::Drug]),
        Kind::Condition => (EntityKind::Disease, &[Class::Condition]),
        Kind::Procedure
        | Kind::Measurement
        | Kind::Preference
        | Kind::Event
        | Kind::Constraint
        | Kind::Fact
        | Kind::Policy
        | Kind::Lesson
        | Kind::Episode => return None,
    };
    let names = std::iter::once(&structured.code).chain(&structured.names);
    let name = names
        .flat_map(|name| wordings(&fold(name), structured.kind))
        .find_map(|wording| lookup(&wording, classes))?;
    Some((kind, name))
}

/// The name as written, then in its parts: what stands before and in brackets, on both sides of a
/// slash, in each script, and without the words that only say what kind of entry it is.
fn wordings(name: &str, kind: Kind) -> Vec<String> {
    let mut found = vec![name.to_owned()];
    let is_bracket = |c: char| matches!(c, '(' | ')' | '[' | ']' | '/' | '|' | ';');
    found.extend(name.split(is_bracket).map(str::to_owned));
    for part in found.clone() {
        found.extend(by_script(&part));
    }
    for part in found.clone() {
        found.push(bare(&part, kind));
    }
    let mut seen = std::collections::BTreeSet::new();
    found.retain_mut(|part| {
        *part = part.trim().to_owned();
        !part.is_empty() && seen.insert(part.clone())
    });
    found
}

/// "青霉素 penicillin" is two names of one thing.
fn by_script(name: &str) -> Vec<String> {
    let has = |is: fn(char) -> bool| name.chars().any(is);
    if !has(crate::fold::is_han) || !has(|c| c.is_ascii_alphabetic()) {
        return Vec::new();
    }
    let han: String = name.chars().filter(|c| crate::fold::is_han(*c)).collect();
    let latin: String = name
        .chars()
        .map(|c| if crate::fold::is_han(c) { ' ' } else { c })
        .collect();
    vec![han, latin]
}

/// Without what catalogues put around a name: "allergy to penicillin", "metformin 500 mg oral tablet",
/// "青霉素过敏史". A drug's name is not shortened for an allergy: who is allergic to a salt or a form of a
/// drug may tolerate another.
fn bare(name: &str, kind: Kind) -> String {
    const OF_ALLERGIES: [&str; 9] = [
        "allergy to ",
        "allergic to ",
        "allergy status to ",
        " allergy",
        "对",
        "过敏史",
        "过敏",
        " (finding)",
        " (disorder)",
    ];
    const OF_DRUGS: [&str; 12] = [
        " oral",
        " tablets",
        " tablet",
        " capsules",
        " capsule",
        " injection",
        " solution",
        "缓释片",
        "肠溶片",
        "分散片",
        "胶囊",
        "注射液",
    ];
    let strip = |name: &str, around: &[&str]| {
        let mut name = name.trim().to_owned();
        for word in around {
            name = name.strip_prefix(word).unwrap_or(&name).to_owned();
            name = name.strip_suffix(word).unwrap_or(&name).trim().to_owned();
        }
        name
    };
    match kind {
        Kind::Allergy | Kind::Contraindication => strip(name, &OF_ALLERGIES),
        Kind::Medication => {
            let until = name.find(|c: char| c.is_ascii_digit());
            let name = &name[..until.unwrap_or(name.len())];
            let name = strip(name, &OF_DRUGS);
            name.strip_suffix('片').unwrap_or(&name).to_owned()
        }
        Kind::Condition
        | Kind::Procedure
        | Kind::Measurement
        | Kind::Preference
        | Kind::Event
        | Kind::Constraint
        | Kind::Fact
        | Kind::Policy
        | Kind::Lesson
        | Kind::Episode => name.to_owned(),
    }
}

/// The attribute that a kind's statements belong to unless they name another.
pub(crate) fn own_attribute(kind: Kind) -> &'static str {
    match kind {
        Kind::Allergy => "allergy",
        Kind::Contraindication => "contraindication",
        Kind::Medication => "medication",
        Kind::Condition => "condition",
        Kind::Procedure => "procedure",
        Kind::Measurement => "measurement",
        Kind::Preference => "preference",
        Kind::Event => "examination",
        Kind::Constraint => "constraint",
        Kind::Fact | Kind::Policy | Kind::Lesson | Kind::Episode => "finding",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(kind: Kind, code: &str, names: &[&str], expected: Option<&str>) {
        let mut structured = StructuredClaim::new(kind, code);
        structured.names = names.iter().map(|name| (*name).to_owned()).collect();
        let name = known_name(&structured).map(|(_, name)| name);
        assert_eq!(name, expected, "{code} {names:?}");
    }

    #[test]
    fn a_catalogues_name_is_the_name_that_people_use() {
        check(
            Kind::Allergy,
            "Allergy to penicillin (finding)",
            &[],
            Some("penicillin"),
        );
        check(Kind::Allergy, "青霉素过敏史", &[], Some("penicillin"));
        check(Kind::Allergy, "青霉素 Penicillin", &[], Some("penicillin"));
        check(Kind::Allergy, "Peanut (花生)", &[], Some("peanut"));
        check(
            Kind::Allergy,
            "7980",
            &["Penicillin", "青霉素"],
            Some("penicillin"),
        );
        check(
            Kind::Medication,
            "Metformin hydrochloride 500 MG Oral Tablet",
            &[],
            Some("metformin"),
        );
        check(Kind::Medication, "二甲双胍缓释片", &[], Some("metformin"));
        check(
            Kind::Condition,
            "高血压 / Hypertension",
            &[],
            Some("hypertension"),
        );
        // What is only made of a thing is another thing.
        check(Kind::Condition, "Family history of hypertension", &[], None);
        check(Kind::Medication, "Insulin pump", &[], None);
        check(Kind::Medication, "313782", &[], None);
    }

    #[test]
    fn a_dose_in_words_is_a_quantity_and_a_schedule() {
        let (quantity, often) = dose(Some("0.5 g twice daily"));
        assert_eq!(
            quantity.map(|q| (q.micros, q.unit)),
            Some((500_000_000, "mg".to_owned()))
        );
        assert_eq!(often.as_deref(), Some("twice_daily"));
        let (none, often) = dose(Some("1 to 2 tablets every morning"));
        assert_eq!((none, often.as_deref()), (None, Some("every_morning")));
    }
}
