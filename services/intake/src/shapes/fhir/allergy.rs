//! FHIR AllergyIntolerance: what a patient must not be given.

use anamnesis_domain::input::Stance;
use anamnesis_domain::memory::Kind;

use super::evidence::{Evidence, TimeFields, Times, Words};
use super::{concept, references};
use crate::message::Rejected;
use crate::normalise::{Context, Draft};
use crate::read::Node;

const CLINICAL: [&str; 3] = ["active", "inactive", "resolved"];
const VERIFICATION: [&str; 5] = [
    "unconfirmed",
    "presumed",
    "confirmed",
    "refuted",
    "entered-in-error",
];

pub(super) fn read(root: &Node<'_>, context: &Context) -> Result<Draft, Rejected> {
    let owner = references::patient(root, "patient", "whose allergy this is", context)?;
    let clinical = concept::status(root, "clinicalStatus", &CLINICAL)?;
    let verification = concept::status(root, "verificationStatus", &VERIFICATION)?;
    let times = Times::read(
        root,
        &TimeFields {
            written: &[&["recordedDate"]],
            began: &[&["onsetDateTime"], &["onsetPeriod", "start"]],
            until: &[&["onsetPeriod", "end"]],
            required: "recordedDate",
        },
    )?;
    let what = "what the patient is allergic to";
    let code = root.require("code", what)?;
    let named = concept::named(&code, what)?;
    let none = no_known(&named.names);
    let (stance, ends) = match (verification, clinical) {
        (Some("entered-in-error"), _) => (Stance::EnteredInError, false),
        (Some("refuted"), _) => (Stance::Refuted, false),
        _ if none.is_some() => (Stance::Absent, false),
        (Some("unconfirmed" | "presumed"), clinical) => (Stance::Unconfirmed, is_over(clinical)),
        (_, clinical) => (Stance::Holds, is_over(clinical)),
    };
    let mut words = words(&named.words, named.is_chinese());
    if none.is_some() {
        words.absent = if named.is_chinese() {
            format!("{}。", named.words)
        } else {
            format!("{}.", named.words)
        };
    }
    if stance == Stance::Holds && !ends {
        words.holds.push_str(&reactions(root, named.is_chinese())?);
    }
    Evidence {
        resource: "AllergyIntolerance",
        owner,
        role: references::record_role(root, "asserter")?,
        kind: Kind::Allergy,
        named,
        value: none,
        stance,
        ends,
        times,
        words,
        dose: None,
        field: "code".to_owned(),
    }
    .into_draft(root)
}

fn is_over(clinical: Option<&str>) -> bool {
    matches!(clinical, Some("inactive" | "resolved"))
}

/// "No known allergies" is a code too: it denies everything, or every drug.
fn no_known(names: &[String]) -> Option<&'static str> {
    const CODES: [(&str, &str); 4] = [
        ("716186003", "any"),
        ("409137002", "drug"),
        ("429625007", "food"),
        ("428607008", "environment"),
    ];
    let by_code = CODES
        .iter()
        .find(|(code, _)| names.iter().any(|name| name == code));
    if let Some((_, value)) = by_code {
        return Some(value);
    }
    names.iter().find_map(|name| {
        let name = name.to_lowercase();
        let is_denial = [
            "no known",
            "nka",
            "nkda",
            "无已知",
            "无药物",
            "无食物",
            "无环境",
            "无过敏",
            "否认",
        ]
        .iter()
        .any(|start| name.starts_with(start));
        let is_of_drugs = ["drug", "medication", "nkda", "药"]
            .iter()
            .any(|word| name.contains(word));
        let is_of_food = name.contains("food") || name.contains("食物");
        let is_of_environment = name.contains("environment") || name.contains("环境");
        match (is_denial, is_of_drugs, is_of_food, is_of_environment) {
            (false, ..) => None,
            (true, true, ..) => Some("drug"),
            (true, false, true, _) => Some("food"),
            (true, false, false, true) => Some("environment"),
            (true, false, false, false) => Some("any"),
        }
    })
}

fn words(name: &str, is_chinese: bool) -> Words {
    if is_chinese {
        Words {
            holds: format!("对{name}过敏。"),
            unconfirmed: format!("可能对{name}过敏（未确认）。"),
            ended: format!("对{name}不再过敏。"),
            was: format!("曾对{name}过敏"),
            absent: format!("对{name}不过敏。"),
            refuted: format!("对{name}不过敏，该过敏记录已排除。"),
            entered_in_error: format!("{name}过敏的记录系误录。"),
        }
    } else {
        Words {
            holds: format!("Allergic to {name}."),
            unconfirmed: format!("Possibly allergic to {name} (unconfirmed)."),
            ended: format!("No longer allergic to {name}."),
            was: format!("Was allergic to {name}"),
            absent: format!("Not allergic to {name}."),
            refuted: format!("Not allergic to {name}: the allergy was refuted."),
            entered_in_error: format!("The allergy to {name} was entered in error."),
        }
    }
}

fn reactions(root: &Node<'_>, is_chinese: bool) -> Result<String, Rejected> {
    let mut found: Vec<String> = Vec::new();
    let list = root.get("reaction").map(|list| list.items()).transpose()?;
    for reaction in list.unwrap_or_default() {
        let list = reaction
            .get("manifestation")
            .map(|list| list.items())
            .transpose()?;
        for manifestation in list.unwrap_or_default() {
            // What cannot be named is left out: the allergy itself matters.
            if let Ok(named) = concept::named(&manifestation, "the reaction") {
                found.push(named.words);
            }
        }
    }
    Ok(match (found.is_empty(), is_chinese) {
        (true, _) => String::new(),
        (false, true) => format!("反应：{}。", found.join("、")),
        (false, false) => format!(" Reaction: {}.", found.join(", ")),
    })
}
