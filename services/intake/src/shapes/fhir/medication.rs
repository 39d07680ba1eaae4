//! FHIR MedicationStatement: what a patient takes, or took.

use anamnesis_domain::input::Stance;
use anamnesis_domain::memory::Kind;

use super::concept::{self, Named};
use super::evidence::{Evidence, TimeFields, Times, Words};
use super::references;
use crate::message::Rejected;
use crate::normalise::{Context, Draft};
use crate::read::Node;

const STATUS: [&str; 8] = [
    "active",
    "completed",
    "entered-in-error",
    "intended",
    "stopped",
    "on-hold",
    "unknown",
    "not-taken",
];

pub(super) fn read(root: &Node<'_>, context: &Context) -> Result<Draft, Rejected> {
    let owner = references::patient(root, "subject", "who takes it", context)?;
    let status = root.require("status", "active, completed, stopped …")?;
    let status = concept::code(&status, &STATUS)?;
    let times = Times::read(
        root,
        &TimeFields {
            written: &[&["dateAsserted"]],
            began: &[&["effectiveDateTime"], &["effectivePeriod", "start"]],
            until: &[&["effectivePeriod", "end"]],
            required: "dateAsserted",
        },
    )?;
    let (field, named) = medication(root)?;
    let (stance, ends) = match status {
        "entered-in-error" => (Stance::EnteredInError, false),
        // Not taken now; whether it will be again is not known.
        "completed" | "stopped" | "on-hold" => (Stance::Holds, true),
        "not-taken" => (Stance::Absent, false),
        "intended" | "unknown" => (Stance::Unconfirmed, false),
        _ => (Stance::Holds, false),
    };
    let dose = dose(root)?;
    let words = words(&named.words, dose.as_deref(), status, named.is_chinese());
    Evidence {
        resource: "MedicationStatement",
        owner,
        role: references::record_role(root, "informationSource")?,
        kind: Kind::Medication,
        named,
        value: None,
        stance,
        ends,
        times,
        words,
        dose,
        field,
    }
    .into_draft(root)
}

/// The drug: a concept, or a reference to a medication that the resource brings or names.
fn medication(root: &Node<'_>) -> Result<(String, Named), Rejected> {
    let what = "which drug";
    if let Some(concept) = root.get("medicationCodeableConcept") {
        return Ok((concept.path.clone(), concept::named(&concept, what)?));
    }
    let Some(reference) = root.get("medicationReference") else {
        return Err(Rejected::missing("medicationCodeableConcept", what));
    };
    let target = reference.opt_id(&["reference"])?;
    if let Some(id) = target
        .as_deref()
        .and_then(|target| target.strip_prefix('#'))
    {
        let contained = root.get("contained").map(|list| list.items()).transpose()?;
        for resource in contained.unwrap_or_default() {
            if resource.opt_id(&["id"])?.as_deref() == Some(id) {
                let code = resource.require("code", what)?;
                return Ok((reference.path, concept::named(&code, what)?));
            }
        }
    }
    if let Some(display) = reference.opt_id(&["display"])? {
        let named = Named {
            words: display.clone(),
            names: vec![display],
        };
        return Ok((reference.path, named));
    }
    let detail = "a reference to a medication elsewhere names no drug; send \
                  medicationCodeableConcept, a contained Medication, or a display";
    Err(Rejected::new(
        "missing_field",
        reference.path_of("display"),
        detail,
    ))
}

/// Amount and schedule in words, as the record gives them.
fn dose(root: &Node<'_>) -> Result<Option<String>, Rejected> {
    let dosages = root.get("dosage").map(|list| list.items()).transpose()?;
    // Several dosages are a plan over time; one amount would be wrong for the others.
    let dosages = dosages.unwrap_or_default();
    let [dosage] = dosages.as_slice() else {
        return Ok(None);
    };
    if let Some(text) = dosage.get("text") {
        return Ok(Some(text.text()?.trim().to_owned()).filter(|text| !text.is_empty()));
    }
    let rate = dosage
        .get("doseAndRate")
        .map(|list| list.items())
        .transpose()?;
    let quantity = match rate.unwrap_or_default().first() {
        Some(rate) => amount(rate)?,
        None => None,
    };
    let words: Vec<String> = [quantity, often(dosage)?].into_iter().flatten().collect();
    Ok((!words.is_empty()).then(|| words.join(" ")))
}

fn amount(rate: &Node<'_>) -> Result<Option<String>, Rejected> {
    let Some(quantity) = rate.get("doseQuantity") else {
        return Ok(None);
    };
    let Some(value) = quantity.get("value") else {
        return Ok(None);
    };
    if !value.value.is_number() {
        return Err(Rejected::wrong_type(&value.path, "a number"));
    }
    let unit = quantity.opt_id(&["unit", "code"])?;
    Ok(Some(match unit {
        Some(unit) => format!("{} {unit}", value.value),
        None => value.value.to_string(),
    }))
}

fn often(dosage: &Node<'_>) -> Result<Option<String>, Rejected> {
    if let Some(true) = dosage
        .get("asNeededBoolean")
        .and_then(|needed| needed.value.as_bool())
    {
        return Ok(Some("as needed".to_owned()));
    }
    let Some(repeat) = dosage.walk(&["timing", "repeat"]) else {
        let text = dosage.walk(&["timing", "code", "text"]);
        return text.map(|text| Ok(text.text()?.to_owned())).transpose();
    };
    let number = |field: &str| {
        repeat
            .get(field)
            .map_or(Some(1), |number| number.value.as_u64())
    };
    let (Some(times), Some(period)) = (number("frequency"), number("period")) else {
        return Ok(None);
    };
    let unit = match repeat.opt_id(&["periodUnit"])?.as_deref() {
        Some("h") => "hour",
        Some("d") => "day",
        Some("wk") => "week",
        Some("mo") => "month",
        Some(_) | None => return Ok(None),
    };
    Ok(Some(match (times, period, unit) {
        (1, 1, "day") | (1, 24, "hour") => "once daily".to_owned(),
        (2, 1, "day") | (1, 12, "hour") => "twice daily".to_owned(),
        (3, 1, "day") | (1, 8, "hour") => "three times daily".to_owned(),
        (4, 1, "day") | (1, 6, "hour") => "four times daily".to_owned(),
        (1, 2, "day") => "every other day".to_owned(),
        (1, 1, "week") => "once a week".to_owned(),
        (2, 1, "week") => "twice a week".to_owned(),
        (3, 1, "week") => "three times a week".to_owned(),
        (1, 2, "week") => "every 2 weeks".to_owned(),
        (1, 1, "month") => "once a month".to_owned(),
        (times, period, unit) => format!("{times} times per {period} {unit}"),
    }))
}

fn words(name: &str, dose: Option<&str>, status: &str, is_chinese: bool) -> Words {
    let is_paused = status == "on-hold";
    if is_chinese {
        let dose = dose.map_or(String::new(), |dose| format!("，{dose}"));
        Words {
            holds: format!("在用{name}{dose}。"),
            unconfirmed: format!("可能在用{name}{dose}（未确认）。"),
            ended: if is_paused {
                format!("{name}已暂停使用。")
            } else {
                format!("不再使用{name}。")
            },
            was: format!("曾用{name}{dose}"),
            absent: format!("没有在用{name}。"),
            refuted: format!("从未使用{name}。"),
            entered_in_error: format!("使用{name}的记录系误录。"),
        }
    } else {
        let dose = dose.map_or(String::new(), |dose| format!(", {dose}"));
        Words {
            holds: format!("Takes {name}{dose}."),
            unconfirmed: format!("Possibly takes {name}{dose} (not confirmed)."),
            ended: if is_paused {
                format!("{name} is on hold.")
            } else {
                format!("No longer takes {name}.")
            },
            was: format!("Took {name}{dose}"),
            absent: format!("Does not take {name}."),
            refuted: format!("Never took {name}."),
            entered_in_error: format!("The record of {name} was entered in error."),
        }
    }
}
