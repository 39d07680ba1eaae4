//! Coded records of a hospital system: how each stands to what it names, and when.

use anamnesis_domain::input::{Stance, StructuredClaim};
use anamnesis_domain::memory::{Kind, Role};
use serde_json::{Value, json};

use super::{context, refused, with, without};
use crate::message::Message;
use crate::normalise::{normalise, normalise_each};

fn allergy(clinical: &str, verification: &str) -> Value {
    let code = |code: &str| json!({"coding": [{"system": "x", "code": code}]});
    json!({
        "resourceType": "AllergyIntolerance", "id": "a2",
        "clinicalStatus": code(clinical), "verificationStatus": code(verification),
        "code": {"text": "Mango"}, "patient": {"reference": "Patient/q-55"},
        "onsetDateTime": "2020-03", "recordedDate": "2020-04-01T08:00:00+08:00",
        "reaction": [{"manifestation": [{"text": "hives"}]}]
    })
}

fn condition(clinical: &str, verification: &str) -> Value {
    let code = |code: &str| json!({"coding": [{"code": code}]});
    json!({
        "resourceType": "Condition", "id": "c7",
        "clinicalStatus": code(clinical), "verificationStatus": code(verification),
        "code": {"coding": [
            {"system": "http://snomed.info/sct", "code": "233604007", "display": "Pneumonia"},
            {"system": "urn:local", "code": "J18", "display": "肺炎"}]},
        "subject": {"reference": "https://his.example/fhir/Patient/q-55/_history/2"},
        "onsetDateTime": "2024-01-05", "abatementDateTime": "2024-02",
        "recordedDate": "2024-03-01"
    })
}

fn medication(status: &str) -> Value {
    json!({
        "resourceType": "MedicationStatement", "id": "m3", "status": status,
        "medicationCodeableConcept": {"text": "二甲双胍"},
        "subject": {"type": "Patient", "identifier": {"system": "urn:mrn", "value": "q-55"}},
        "effectivePeriod": {"start": "2023", "end": "2024-06-30"},
        "dateAsserted": "2024-07-01T09:00:00+08:00",
        "dosage": [{"timing": {"repeat": {"frequency": 2, "period": 1, "periodUnit": "d"}},
            "doseAndRate": [{"doseQuantity": {"value": 0.5, "unit": "g"}}]}]
    })
}

fn read(value: &Value) -> (Message, StructuredClaim) {
    let message = normalise(value, &context()).unwrap().remove(0);
    let claim = message.structured.clone().unwrap();
    (message, claim)
}

/// `text | stance ends from..to | held`
fn check(value: &Value, expected: &str) {
    let (message, claim) = read(value);
    let time = |at: Option<anamnesis_domain::time::Timestamp>| {
        at.map_or("…".to_owned(), |at| at.to_string())
    };
    let ends = if claim.ends { " ends" } else { "" };
    let held = claim.held.as_ref().map_or("-".to_owned(), |held| {
        format!("{} {}", held.from, held.text.expose())
    });
    let told = format!(
        "{} | {}{ends} {}..{} | {held}",
        message.text.expose(),
        claim.stance,
        time(claim.valid_from),
        time(claim.valid_to),
    );
    assert_eq!(told, expected);
}

#[test]
fn an_allergy_is_a_coded_statement() {
    let (message, claim) = read(&allergy("active", "confirmed"));
    assert_eq!(message.role, Role::Record);
    assert_eq!(message.message_id.as_deref(), Some("AllergyIntolerance/a2"));
    assert_eq!(
        (claim.kind, claim.code.as_str(), claim.attribute.as_deref()),
        (Kind::Allergy, "mango", Some("allergy"))
    );
    check(
        &allergy("active", "confirmed"),
        "Allergic to Mango. Reaction: hives. | holds 2020-02-29T16:00:00Z..… | -",
    );
    let chinese = with(
        &allergy("active", "confirmed"),
        &["code", "text"],
        json!("芒果"),
    );
    assert_eq!(read(&chinese).0.text.expose(), "对芒果过敏。反应：hives。");
}

#[test]
fn what_was_never_true_is_not_what_is_over() {
    check(
        &allergy("inactive", "refuted"),
        "Not allergic to Mango: the allergy was refuted. | refuted …..… | -",
    );
    check(
        &allergy("active", "entered-in-error"),
        "The allergy to Mango was entered in error. | entered_in_error …..… | -",
    );
    for clinical in ["resolved", "inactive"] {
        check(
            &allergy(clinical, "confirmed"),
            "No longer allergic to Mango. | holds ends 2020-04-01T00:00:00Z..… | \
             2020-02-29T16:00:00Z Was allergic to Mango (2020-03 to 2020-04-01).",
        );
    }
    check(
        &allergy("active", "unconfirmed"),
        "Possibly allergic to Mango (unconfirmed). | unconfirmed 2020-02-29T16:00:00Z..… | -",
    );
}

#[test]
fn a_later_version_is_another_event_said_when_it_was_written() {
    let meta = json!({"versionId": "2", "lastUpdated": "2025-05-01T00:00:00Z"});
    let later = with(&allergy("active", "confirmed"), &["meta"], meta);
    let (message, _) = read(&later);
    assert_eq!(message.event_id, "AllergyIntolerance/a2/_history/2");
    assert_eq!(message.at.to_string(), "2025-05-01T00:00:00Z");
    // Without numbers the content tells versions apart, and the same content is the same event.
    let id = |value: &Value| read(value).0.event_id;
    let (first, second) = (allergy("active", "confirmed"), allergy("active", "refuted"));
    assert_ne!(id(&first), id(&second));
    assert_eq!(id(&first), id(&first.clone()));
}

#[test]
fn no_known_allergy_denies() {
    let none = |code: Value| with(&allergy("active", "confirmed"), &["code"], code);
    let coded = none(json!({"coding": [{"code": "716186003", "display": "No known allergy"}]}));
    check(&coded, "No known allergy. | absent …..… | -");
    assert_eq!(read(&coded).1.code, "any");
    for (text, code) in [
        ("无已知药物过敏", "drug"),
        ("No known drug allergies", "drug"),
        ("无食物过敏", "food"),
        ("No known food allergies", "food"),
        ("无已知环境过敏", "environment"),
        ("No known environmental allergies", "environment"),
    ] {
        let denied = none(json!({ "text": text }));
        let (_, claim) = read(&denied);
        assert_eq!(
            (claim.code.as_str(), claim.stance),
            (code, Stance::Absent),
            "{text}"
        );
    }
}

#[test]
fn a_code_without_words_has_the_name_that_belongs_to_it() {
    let coded = |system: &str, code: &str| {
        let concept = json!({"coding": [{"system": system, "code": code}]});
        with(&allergy("active", "confirmed"), &["code"], concept)
    };
    let (message, claim) = read(&coded("http://snomed.info/sct", "91935009"));
    assert!(message.text.expose().starts_with("Allergic to peanut."));
    assert_eq!(claim.names, ["peanut", "91935009"]);
    let (_, claim) = read(&coded("urn:local", "X-1"));
    assert_eq!(
        (claim.code.as_str(), claim.names),
        ("x-1", vec!["X-1".to_owned()])
    );
}

#[test]
fn a_condition_tells_since_when_and_until_when() {
    check(
        &condition("active", "confirmed"),
        "Has Pneumonia. | holds 2024-01-05T00:00:00Z..2024-03-01T00:00:00Z | -",
    );
    check(
        &condition("resolved", "confirmed"),
        "No longer has Pneumonia. | holds ends 2024-03-01T00:00:00Z..… | \
         2024-01-05T00:00:00Z Had Pneumonia (2024-01-05 to 2024-02).",
    );
    for verification in ["provisional", "differential", "unconfirmed"] {
        let (_, claim) = read(&condition("active", verification));
        assert_eq!(claim.stance, Stance::Unconfirmed);
    }
    let (_, claim) = read(&condition("active", "confirmed"));
    assert_eq!(
        claim.names[..2],
        ["Pneumonia".to_owned(), "肺炎".to_owned()]
    );
    let one_day = with(
        &condition("resolved", "confirmed"),
        &["abatementDateTime"],
        json!("2024-01-05"),
    );
    let (_, claim) = read(&one_day);
    assert_eq!(
        claim.valid_from.unwrap().to_string(),
        "2024-01-06T00:00:00Z"
    );
}

#[test]
fn a_medication_tells_its_dose_and_its_end() {
    check(
        &medication("active"),
        "在用二甲双胍，0.5 g twice daily。 | holds 2022-12-31T16:00:00Z..2024-06-29T16:00:00Z | -",
    );
    for status in ["stopped", "completed"] {
        check(
            &medication(status),
            "不再使用二甲双胍。 | holds ends 2024-06-29T16:00:00Z..… | \
             2022-12-31T16:00:00Z 曾用二甲双胍，0.5 g twice daily（2023 至 2024-06-30）。",
        );
    }
    let (message, claim) = read(&medication("active"));
    assert_eq!(message.owner.to_string(), "ward-2/patient/q-55");
    assert_eq!(claim.dose.as_deref(), Some("0.5 g twice daily"));
    let (_, claim) = read(&medication("not-taken"));
    assert_eq!(claim.stance, Stance::Absent);
    let contained = json!({
        "resourceType": "MedicationStatement", "status": "active",
        "contained": [{"resourceType": "Medication", "id": "d", "code": {"text": "Warfarin"}}],
        "medicationReference": {"reference": "#d"}, "subject": {"reference": "Patient/q-55"},
        "dateAsserted": "2024", "informationSource": {"reference": "Patient/q-55"}
    });
    let (message, _) = read(&contained);
    assert_eq!(
        (message.text.expose(), message.role),
        ("Takes Warfarin.", Role::User)
    );
}

#[test]
fn a_bad_record_is_refused_by_field() {
    let allergy = allergy("active", "confirmed");
    refused(
        &without(&allergy, &["patient"]),
        "missing_field patient.reference",
    );
    refused(
        &without(&allergy, &["recordedDate"]),
        "missing_field recordedDate",
    );
    refused(&without(&allergy, &["code"]), "missing_field code");
    refused(
        &with(&allergy, &["code"], json!({})),
        "missing_field code.text",
    );
    refused(
        &with(&allergy, &["code"], json!("Mango")),
        "invalid_field code",
    );
    refused(
        &with(&allergy, &["recordedDate"], json!("1 April 2020")),
        "invalid_time recordedDate",
    );
    refused(
        &with(&allergy, &["recordedDate"], json!("2020-04-01T08:00:00")),
        "time_without_zone recordedDate",
    );
    refused(
        &with(
            &allergy,
            &["verificationStatus"],
            json!({"coding": [{"code": "sure"}]}),
        ),
        "invalid_field verificationStatus.coding[0].code",
    );
    refused(
        &with(&allergy, &["clinicalStatus"], json!("active")),
        "invalid_field clinicalStatus",
    );
    refused(
        &with(&allergy, &["patient", "reference"], json!("Group/g1")),
        "invalid_owner patient.reference",
    );
    let condition = condition("resolved", "confirmed");
    refused(
        &without(&condition, &["subject"]),
        "missing_field subject.reference",
    );
    refused(
        &with(&condition, &["abatementDateTime"], json!("2023")),
        "invalid_field abatementDateTime",
    );
    refused(
        &with(&condition, &["onsetDateTime"], json!("2024-13")),
        "invalid_time onsetDateTime",
    );
    let medication = medication("active");
    refused(&without(&medication, &["status"]), "missing_field status");
    refused(
        &with(&medication, &["status"], json!("on")),
        "invalid_field status",
    );
    refused(
        &without(&medication, &["medicationCodeableConcept"]),
        "missing_field medicationCodeableConcept",
    );
    refused(
        &without(&medication, &["dateAsserted"]),
        "missing_field dateAsserted",
    );
}

/// As a hospital exports a patient: what carries no statement stands between what does, and entries are
/// named by their own addresses.
#[test]
fn each_resource_of_a_bundle_is_an_event_of_its_own() {
    let mut allergy = allergy("active", "confirmed");
    allergy["patient"]["reference"] = json!("urn:uuid:6c1f");
    let bundle = json!({"resourceType": "Bundle", "type": "collection", "entry": [
        {"fullUrl": "urn:uuid:6c1f", "resource": {"resourceType": "Patient", "id": "q-55"}},
        {"resource": allergy},
        {"request": {"method": "DELETE", "url": "Condition/c7"}},
        {"resource": medication("active")},
        {"resource": without(&condition("active", "confirmed"), &["subject"])},
    ]});
    let mut context = context();
    context.event_id_default = Some("call-9".to_owned());
    let read: Vec<Result<String, String>> = normalise_each(&bundle, &context)
        .into_iter()
        .map(|event| match event {
            Ok(messages) => {
                let one = &messages[0];
                Ok(format!("{} {}", one.owner, one.message_id.clone().unwrap()))
            }
            Err(rejected) => Err(format!(
                "{} {}",
                rejected.code,
                rejected.field.unwrap_or_default()
            )),
        })
        .collect();
    let said = |result: Result<&str, &str>| result.map(str::to_owned).map_err(str::to_owned);
    assert_eq!(
        read,
        [
            said(Err("unsupported_shape entry[0].resource.resourceType")),
            said(Ok("ward-2/patient/q-55 AllergyIntolerance/a2")),
            said(Err("missing_field entry[2].resource")),
            said(Ok("ward-2/patient/q-55 MedicationStatement/m3")),
            said(Err("missing_field entry[4].resource.subject.reference")),
        ]
    );
    let empty = normalise_each(&json!({"resourceType": "Bundle"}), &context);
    assert_eq!(
        empty[0].as_ref().unwrap_err().field.as_deref(),
        Some("entry")
    );
}

#[test]
fn a_record_in_an_envelope_is_the_envelopes_patients() {
    let envelope = |subject: &str| {
        json!({
            "specversion": "1.0", "id": "ev-7", "source": "/his", "type": "org.example.record",
            "subject": subject, "time": "2025-05-04T09:08:07+02:00",
            "data": allergy("active", "confirmed")
        })
    };
    let message = normalise(&envelope("north/q-55"), &context())
        .unwrap()
        .remove(0);
    assert_eq!(message.owner.to_string(), "north/patient/q-55");
    assert_eq!(message.source, "/his");
    // The record's own name: its next version, in whatever envelope, must find this one.
    assert_eq!(message.message_id.as_deref(), Some("AllergyIntolerance/a2"));
    assert!(message.structured.is_some());
    let other = normalise(&envelope("north/q-56"), &context()).unwrap_err();
    assert_eq!(
        (other.code, other.field.as_deref()),
        ("owner_mismatch", Some("data"))
    );
}
