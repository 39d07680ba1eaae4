//! FHIR R4: a Communication is a message; AllergyIntolerance, Condition and MedicationStatement are
//! coded statements of a hospital system. Other resources carry no statement about the patient that a
//! memory could be made of.

mod allergy;
pub(crate) mod bundle;
mod communication;
mod concept;
mod condition;
mod dates;
mod evidence;
mod medication;
mod references;

use crate::message::{Rejected, derived_id};
use crate::normalise::{Context, Draft};
use crate::read::Node;

pub(crate) fn resource(root: &Node<'_>, context: &Context) -> Result<Draft, Rejected> {
    match root
        .require("resourceType", "the resource's type")?
        .text()?
    {
        "Communication" => communication::read(root, context),
        "AllergyIntolerance" => allergy::read(root, context),
        "Condition" => condition::read(root, context),
        "MedicationStatement" => medication::read(root, context),
        other => {
            let known = [
                "AuditEvent",
                "Provenance",
                "Patient",
                "Encounter",
                "Observation",
            ];
            let name = known
                .into_iter()
                .find(|known| *known == other)
                .unwrap_or("this resource");
            Err(Rejected::new(
                "unsupported_shape",
                root.path_of("resourceType"),
                format!(
                    "FHIR {name} carries no statement to remember; accepted FHIR resources: \
                     Communication, AllergyIntolerance, Condition, MedicationStatement, and a Bundle \
                     of them"
                ),
            ))
        }
    }
}

/// What names a resource.
struct Ids {
    /// `Communication/com-1/_history/3`: another version of a resource is another event.
    event: String,
    /// `Communication/com-1`, in whatever version.
    record: String,
    is_version: bool,
}

fn event_id(root: &Node<'_>, kind: &str) -> Result<Option<Ids>, Rejected> {
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
    Ok(id.map(|record| Ids {
        event: match &version {
            Some(version) => format!("{record}/_history/{version}"),
            None => record.clone(),
        },
        record,
        is_version: version.is_some(),
    }))
}

/// As [`event_id`]; a record that numbers no versions is told from its earlier ones by its content, or
/// its correction would be taken for the same event again.
fn record_ids(root: &Node<'_>, kind: &str) -> Result<Option<Ids>, Rejected> {
    Ok(event_id(root, kind)?.map(|ids| {
        if ids.is_version {
            return ids;
        }
        let content = derived_id(root.value, 0);
        let event = format!("{}/_content/{}", ids.record, &content[content.len() - 16..]);
        Ids { event, ..ids }
    }))
}

fn source(root: &Node<'_>) -> Result<Option<String>, Rejected> {
    let source = root.walk(&["meta", "source"]).map(|source| source.id());
    Ok(Some(
        source.transpose()?.unwrap_or_else(|| "fhir".to_owned()),
    ))
}
