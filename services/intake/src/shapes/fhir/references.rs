//! Whom a FHIR resource is about, and who speaks in it.

use anamnesis_domain::memory::Role;
use anamnesis_domain::owner::Owner;

use crate::message::Rejected;
use crate::normalise::Context;
use crate::read::Node;

/// The patient that `field` refers to: by a reference (relative, absolute, with a version), or by an
/// identifier where the reference is a logical one.
pub(super) fn patient(
    root: &Node<'_>,
    field: &str,
    what: &str,
    context: &Context,
) -> Result<Owner, Rejected> {
    let missing = || {
        let field = format!("{}.reference", root.path_of(field));
        Rejected::missing(field, &format!("{what}, as Patient/<id>"))
    };
    let subject = root.get(field).ok_or_else(missing)?;
    if let Some(reference) = subject.get("reference") {
        return reference.patient(&context.default_tenant);
    }
    if let Some(kind) = subject.get("type")
        && kind.text()? != "Patient"
    {
        let detail = "only what is about a patient is remembered";
        return Err(Rejected::new("invalid_owner", kind.path, detail));
    }
    let value = subject.walk(&["identifier", "value"]).ok_or_else(missing)?;
    let id = value.id()?;
    Owner::parse_in_tenant(&format!("Patient/{id}"), &context.default_tenant)
        .map_err(|error| Rejected::new("invalid_owner", value.path, format!("{error}")))
}

/// Who speaks, by the type of what is referred to.
pub(super) fn role(reference: &str) -> Role {
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

/// Whose word a record holds: the patient's where the record says so, otherwise the hospital's.
pub(super) fn record_role(root: &Node<'_>, field: &str) -> Result<Role, Rejected> {
    let reference = root
        .walk(&[field, "reference"])
        .map(|reference| reference.id())
        .transpose()?;
    Ok(match reference.as_deref().map(role) {
        Some(Role::User) => Role::User,
        Some(
            Role::Assistant
            | Role::System
            | Role::Tool
            | Role::Clinician
            | Role::Record
            | Role::Document,
        )
        | None => Role::Record,
    })
}
