//! FHIR R4: a Communication is a message; an AllergyIntolerance is a coded statement of a hospital
//! system. Other resources carry no statement about the patient that a memory could be made of.

use anamnesis_domain::input::StructuredClaim;
use anamnesis_domain::memory::{Kind, Role};
use anamnesis_domain::time::Timestamp;
use chrono::{FixedOffset, NaiveDate, TimeZone as _};
use serde_json::Value;

use crate::message::Rejected;
use crate::normalise::{Context, Draft, Part};
use crate::read::Node;

pub(crate) fn resource(root: &Node<'_>, context: &Context) -> Result<Draft, Rejected> {
    match root
        .require("resourceType", "the resource's type")?
        .text()?
    {
        "Communication" => communication(root, context),
        "AllergyIntolerance" => allergy(root, context),
        other => {
            let known = [
                "AuditEvent",
                "Provenance",
                "Patient",
                "Encounter",
                "Bundle",
                "Observation",
            ];
            let name = known
                .into_iter()
                .find(|known| *known == other)
                .unwrap_or("this resource");
            Err(Rejected::new(
                "unsupported_shape",
                "resourceType",
                format!(
                    "FHIR {name} carries no statement to remember; accepted FHIR resources: \
                     Communication, AllergyIntolerance"
                ),
            ))
        }
    }
}

/// `Communication/com-1/_history/3`: another version of a resource is another event.
fn event_id(root: &Node<'_>, kind: &str) -> Result<Option<String>, Rejected> {
    let version = root
        .walk(&["meta", "versionId"])
        .map(|version| version.id())
        .transpose()?;
    let identifier = match root.get("identifier") {
        Some(list) => match list.items()?.first() {
            Some(first) => first.opt_id(&["value"])?,
            None => None,
        },
        None => None,
    };
    let id = root
        .opt_id(&["id"])?
        .map(|id| format!("{kind}/{id}"))
        .or(identifier);
    Ok(id.map(|id| match version {
        Some(version) => format!("{id}/_history/{version}"),
        None => id,
    }))
}

fn source(root: &Node<'_>) -> Result<Option<String>, Rejected> {
    let source = root.walk(&["meta", "source"]).map(|source| source.id());
    Ok(Some(
        source.transpose()?.unwrap_or_else(|| "fhir".to_owned()),
    ))
}

fn communication(root: &Node<'_>, context: &Context) -> Result<Draft, Rejected> {
    if let Some(status) = root.get("status") {
        let happened = matches!(
            status.text()?,
            "completed" | "in-progress" | "stopped" | "on-hold"
        );
        if !happened {
            return Err(Rejected::new(
                "not_a_statement",
                status.path,
                "only a communication that took place is a message",
            ));
        }
    }
    let subject = root.walk(&["subject", "reference"]).ok_or_else(|| {
        Rejected::missing(
            "subject.reference",
            "whose message this is, as Patient/<id>",
        )
    })?;
    let time = root
        .get_any(&["sent", "received"])
        .ok_or_else(|| Rejected::missing("sent", "when it was said, in RFC 3339"))?;
    let sender = root
        .walk(&["sender", "reference"])
        .map(|sender| sender.id())
        .transpose()?;
    let role = sender.as_deref().map_or(Role::Document, sender_role);
    let payload = root.require("payload", "what was said")?.items()?;
    let mut parts = Vec::new();
    for (i, item) in payload.iter().enumerate() {
        let text = item
            .get("contentString")
            .or_else(|| item.walk(&["contentCodeableConcept", "text"]));
        if let Some(text) = text {
            let label = if payload.len() == 1 {
                String::new()
            } else {
                i.to_string()
            };
            let mut part = Part::new(label, role, text.text()?.to_owned(), text.path.clone());
            part.speaker.clone_from(&sender);
            parts.push(part);
        }
    }
    Ok(Draft {
        owner: subject.patient(&context.default_tenant)?,
        source: source(root)?,
        event_id: event_id(root, "Communication")?,
        conversation_id: root
            .walk(&["encounter", "reference"])
            .map(|e| e.id())
            .transpose()?,
        turn_id: None,
        at: time.instant()?,
        at_field: time.path,
        context_tags: Vec::new(),
        parts,
        text_field: "payload[0].contentString".to_owned(),
    })
}

fn sender_role(reference: &str) -> Role {
    let is = |kind: &str| reference.split('/').any(|part| part == kind);
    if is("Patient") || is("RelatedPerson") {
        Role::User
    } else if is("Practitioner") || is("PractitionerRole") || is("CareTeam") {
        Role::Clinician
    } else if is("Device") {
        Role::Assistant
    } else {
        Role::Document
    }
}

/// How an allergy stands, from both of its status fields.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Stands {
    Holds,
    /// Was there and is over.
    Resolved,
    /// Was looked into and is not there.
    Refuted,
}

fn allergy(root: &Node<'_>, context: &Context) -> Result<Draft, Rejected> {
    let patient = root.walk(&["patient", "reference"]).ok_or_else(|| {
        Rejected::missing(
            "patient.reference",
            "whose allergy this is, as Patient/<id>",
        )
    })?;
    // What this version says was said when it was written, not when the allergy was first recorded.
    let time = root
        .walk(&["meta", "lastUpdated"])
        .or_else(|| root.get("recordedDate"))
        .ok_or_else(|| Rejected::missing("recordedDate", "when it was recorded, in RFC 3339"))?;
    let at = time.instant()?;
    let substance = substance(root)?;
    let stands = match (
        first_code(root, "verificationStatus"),
        first_code(root, "clinicalStatus"),
    ) {
        (Some("refuted" | "entered-in-error"), _) => Stands::Refuted,
        (_, Some("inactive" | "resolved")) => Stands::Resolved,
        (_, _) => Stands::Holds,
    };
    let ends = stands != Stands::Holds;
    let onset = root
        .get("onsetDateTime")
        .map(|onset| begins(&onset, at.1))
        .transpose()?;
    let text = sentence(root, &substance, stands)?;
    let mut part = Part::new("", Role::Record, text, "code".to_owned());
    part.structured = Some(StructuredClaim {
        kind: Kind::Allergy,
        code: anamnesis_domain::text::normalise(&substance),
        attribute: Some("allergy".to_owned()),
        ends,
        // An end holds from when it was found, not from when the allergy began.
        valid_from: if ends { None } else { onset },
        valid_to: None,
    });
    Ok(Draft {
        owner: patient.patient(&context.default_tenant)?,
        source: source(root)?,
        event_id: event_id(root, "AllergyIntolerance")?,
        conversation_id: root
            .walk(&["encounter", "reference"])
            .map(|e| e.id())
            .transpose()?,
        turn_id: None,
        at,
        at_field: time.path,
        context_tags: Vec::new(),
        parts: vec![part],
        text_field: "code".to_owned(),
    })
}

/// `code.text`, or the first coding's display or code.
fn substance(root: &Node<'_>) -> Result<String, Rejected> {
    let code = root.require("code", "what the patient is allergic to")?;
    if let Some(text) = code.get("text") {
        return Ok(text.text()?.to_owned());
    }
    let first = code
        .get("coding")
        .map(|coding| coding.items())
        .transpose()?
        .unwrap_or_default();
    first
        .first()
        .map(|coding| coding.opt_id(&["display", "code"]))
        .transpose()?
        .flatten()
        .ok_or_else(|| Rejected::missing("code.text", "what the patient is allergic to"))
}

fn first_code<'a>(root: &Node<'a>, field: &str) -> Option<&'a str> {
    root.value
        .get(field)?
        .get("coding")?
        .get(0)?
        .get("code")?
        .as_str()
}

/// The resource in words, in the language of its own substance.
fn sentence(root: &Node<'_>, substance: &str, stands: Stands) -> Result<String, Rejected> {
    let is_chinese = substance
        .chars()
        .any(|c| ('\u{4e00}'..='\u{9fff}').contains(&c));
    let mut text = match (stands, is_chinese) {
        (Stands::Holds, true) => format!("对{substance}过敏。"),
        (Stands::Resolved, true) => format!("对{substance}不再过敏。"),
        (Stands::Refuted, true) => format!("对{substance}不过敏，该过敏记录已排除。"),
        (Stands::Holds, false) => format!("Allergic to {substance}."),
        (Stands::Resolved, false) => format!("No longer allergic to {substance}."),
        (Stands::Refuted, false) => {
            format!("Not allergic to {substance}: the allergy was refuted.")
        }
    };
    if stands == Stands::Holds {
        let mut reactions: Vec<&str> = Vec::new();
        for reaction in root
            .get("reaction")
            .map(|list| list.items())
            .transpose()?
            .unwrap_or_default()
        {
            let list = reaction
                .get("manifestation")
                .map(|list| list.items())
                .transpose()?;
            for manifestation in list.unwrap_or_default() {
                if let Some(Value::String(text)) = manifestation.value.get("text") {
                    reactions.push(text);
                }
            }
        }
        match (reactions.is_empty(), is_chinese) {
            (true, _) => {}
            (false, true) => text.push_str(&format!("反应：{}。", reactions.join("、"))),
            (false, false) => text.push_str(&format!(" Reaction: {}.", reactions.join(", "))),
        }
    }
    Ok(text)
}

/// FHIR dates may stop at the year or the month: the start of that time on the sender's clock.
fn begins(onset: &Node<'_>, zone_minutes: i32) -> Result<Timestamp, Rejected> {
    let text = onset.text()?;
    if text.len() > 10 {
        return Ok(onset.instant()?.0);
    }
    let full = match text.len() {
        4 => format!("{text}-01-01"),
        7 => format!("{text}-01"),
        _ => text.to_owned(),
    };
    let date = NaiveDate::parse_from_str(&full, "%Y-%m-%d").ok();
    let zone = FixedOffset::east_opt(zone_minutes.clamp(-1439, 1439) * 60);
    let start = date.and_then(|date| date.and_hms_opt(0, 0, 0));
    let at = start
        .zip(zone)
        .and_then(|(start, zone)| zone.from_local_datetime(&start).single());
    at.map(|at| Timestamp::from_millis(at.timestamp_millis()))
        .ok_or_else(|| Rejected::new("invalid_time", &onset.path, "not a FHIR date or instant"))
}
