//! A Bundle: which resources does it hold, and whom do its own references name?

use std::collections::HashMap;

use serde_json::Value;

use crate::message::Rejected;
use crate::read::Node;

/// One resource of a Bundle.
#[derive(Debug)]
pub(crate) struct Entry {
    /// As `entry[3].resource`.
    pub(crate) path: String,
    pub(crate) resource: Value,
}

/// The fields that say whose a resource is.
const PERSONS: [&str; 2] = ["subject", "patient"];

/// `None` for everything but a Bundle.
///
/// # Errors
/// Of the whole, when it has no entries to read; of one entry, when it has no resource.
pub(crate) fn entries(root: &Node<'_>) -> Option<Result<Vec<Result<Entry, Rejected>>, Rejected>> {
    if root.get("resourceType")?.value.as_str() != Some("Bundle") {
        return None;
    }
    let read = || {
        let list = root
            .require("entry", "the resources of the Bundle")?
            .items()?;
        let patients = patients(&list);
        let entries = list.iter().map(|entry| {
            let resource = entry.require("resource", "the resource of this entry")?;
            Ok(Entry {
                path: resource.path.clone(),
                resource: resolved(resource.value, &patients),
            })
        });
        Ok(entries.collect())
    };
    Some(read())
}

/// The patients among the entries by what other entries call them: within a Bundle that is being made, a
/// resource has no other name than its entry's `fullUrl`.
fn patients(entries: &[Node<'_>]) -> HashMap<String, String> {
    let name = |entry: &Node<'_>| {
        let url = entry.get("fullUrl")?.value.as_str()?.to_owned();
        let resource = entry.get("resource")?;
        let is_patient = resource.get("resourceType")?.value.as_str() == Some("Patient");
        let id = resource.get("id")?.value.as_str()?.to_owned();
        is_patient.then(|| (url, format!("Patient/{id}")))
    };
    entries.iter().filter_map(name).collect()
}

fn resolved(resource: &Value, patients: &HashMap<String, String>) -> Value {
    let mut resource = resource.clone();
    for field in PERSONS {
        let reference = resource
            .get_mut(field)
            .and_then(|person| person.get_mut("reference"));
        if let Some(reference) = reference
            && let Some(patient) = reference.as_str().and_then(|name| patients.get(name))
        {
            *reference = Value::String(patient.clone());
        }
    }
    resource
}
