//! FHIR Condition: what a patient has, or had.

use anamnesis_domain::input::Stance;
use anamnesis_domain::memory::Kind;

use super::evidence::{Evidence, TimeFields, Times, Words};
use super::{concept, references};
use crate::message::Rejected;
use crate::normalise::{Context, Draft};
use crate::read::Node;

const CLINICAL: [&str; 6] = [
    "active",
    "recurrence",
    "relapse",
    "inactive",
    "remission",
    "resolved",
];
const VERIFICATION: [&str; 6] = [
    "unconfirmed",
    "provisional",
    "differential",
    "confirmed",
    "refuted",
    "entered-in-error",
];

pub(super) fn read(root: &Node<'_>, context: &Context) -> Result<Draft, Rejected> {
    let owner = references::patient(root, "subject", "whose condition this is", context)?;
    let clinical = concept::status(root, "clinicalStatus", &CLINICAL)?;
    let verification = concept::status(root, "verificationStatus", &VERIFICATION)?;
    let times = Times::read(
        root,
        &TimeFields {
            written: &[&["recordedDate"]],
            began: &[&["onsetDateTime"], &["onsetPeriod", "start"]],
            until: &[
                &["abatementDateTime"],
                &["abatementPeriod", "end"],
                &["abatementPeriod", "start"],
            ],
            required: "recordedDate",
        },
    )?;
    let what = "what the patient has";
    let code = root.require("code", what)?;
    let named = concept::named(&code, what)?;
    let is_abated = [
        "abatementDateTime",
        "abatementPeriod",
        "abatementAge",
        "abatementString",
    ]
    .iter()
    .any(|field| root.get(field).is_some());
    let is_over = match clinical {
        Some(status) => matches!(status, "inactive" | "remission" | "resolved"),
        None => is_abated,
    };
    let (stance, ends) = match verification {
        Some("entered-in-error") => (Stance::EnteredInError, false),
        Some("refuted") => (Stance::Refuted, false),
        Some("unconfirmed" | "provisional" | "differential") => (Stance::Unconfirmed, is_over),
        Some(_) | None => (Stance::Holds, is_over),
    };
    Evidence {
        resource: "Condition",
        owner,
        role: references::record_role(root, "asserter")?,
        kind: Kind::Condition,
        words: words(&named.words, named.is_chinese()),
        named,
        value: None,
        stance,
        ends,
        times,
        dose: None,
        field: "code".to_owned(),
    }
    .into_draft(root)
}

fn words(name: &str, is_chinese: bool) -> Words {
    if is_chinese {
        Words {
            holds: format!("患有{name}。"),
            unconfirmed: format!("可能患有{name}（未确诊）。"),
            ended: format!("不再患有{name}。"),
            was: format!("曾患{name}"),
            absent: format!("没有{name}。"),
            refuted: format!("没有{name}，该诊断已排除。"),
            entered_in_error: format!("{name}的诊断系误录。"),
        }
    } else {
        Words {
            holds: format!("Has {name}."),
            unconfirmed: format!("Possibly has {name} (not confirmed)."),
            ended: format!("No longer has {name}."),
            was: format!("Had {name}"),
            absent: format!("Does not have {name}."),
            refuted: format!("Does not have {name}: the diagnosis was refuted."),
            entered_in_error: format!("The diagnosis {name} was entered in error."),
        }
    }
}
