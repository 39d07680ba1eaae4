//! What a CodeableConcept names, and which of the codes of a status it holds.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use anamnesis_domain::text::normalise;
use serde_json::Value;

use crate::message::Rejected;
use crate::read::Node;

/// More names of one thing than any catalogue gives.
const NAMES_MAX: usize = 16;

/// What a concept names.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Named {
    /// As a sentence calls it.
    pub(super) words: String,
    /// Every name: its text, its displays in whatever language, the names that belong to its codes, and
    /// its codes.
    pub(super) names: Vec<String>,
}

/// Names of codes that stand without words.
fn name_of_code(system: &str, code: &str) -> Option<&'static str> {
    static TABLE: OnceLock<BTreeMap<String, String>> = OnceLock::new();
    let table = TABLE.get_or_init(|| {
        serde_json::from_str(include_str!("../../../data/code_names.json"))
            .expect("the table of codes is checked by a test")
    });
    let system = match system {
        "http://snomed.info/sct" => "snomed",
        "http://www.nlm.nih.gov/research/umls/rxnorm" => "rxnorm",
        "http://hl7.org/fhir/sid/icd-10" | "http://hl7.org/fhir/sid/icd-10-cm" => "icd10",
        "http://www.whocc.no/atc" => "atc",
        _ => return None,
    };
    table.get(&format!("{system}|{code}")).map(String::as_str)
}

/// What the concept at `node` names; `what` tells a sender what is missing.
pub(super) fn named(node: &Node<'_>, what: &str) -> Result<Named, Rejected> {
    let mut words = Vec::new();
    let mut codes = Vec::new();
    if !node.value.is_object() {
        return Err(Rejected::wrong_type(&node.path, "a CodeableConcept"));
    }
    if let Some(text) = node.get("text") {
        words.push(text.text()?.to_owned());
    }
    let mut meanings = Vec::new();
    for coding in codings(node)? {
        if let Some(display) = coding.get("display") {
            words.push(display.text()?.to_owned());
        }
        words.extend(translations(&coding));
        let Some(code) = coding.opt_id(&["code"])? else {
            continue;
        };
        let system = coding.opt_id(&["system"])?.unwrap_or_default();
        meanings.extend(name_of_code(&system, &code).map(str::to_owned));
        codes.push(code);
    }
    let names: Vec<String> = words
        .into_iter()
        .chain(meanings)
        .chain(codes)
        .map(|name| name.trim().to_owned())
        .filter(|name| !name.is_empty())
        .take(NAMES_MAX)
        .collect();
    let Some(first) = names.first() else {
        return Err(Rejected::missing(node.path_of("text"), what));
    };
    Ok(Named {
        words: first.clone(),
        names,
    })
}

fn codings<'a>(node: &Node<'a>) -> Result<Vec<Node<'a>>, Rejected> {
    let list = node.get("coding").map(|coding| coding.items());
    Ok(list.transpose()?.unwrap_or_default())
}

/// Displays in other languages, from the extension that FHIR has for them.
fn translations(coding: &Node<'_>) -> Vec<String> {
    let extensions = coding
        .value
        .pointer("/_display/extension")
        .and_then(Value::as_array);
    let parts = extensions
        .into_iter()
        .flatten()
        .filter_map(|extension| extension.get("extension")?.as_array());
    parts
        .flatten()
        .filter(|part| part.get("url").and_then(Value::as_str) == Some("content"))
        .filter_map(|part| Some(part.get("valueString")?.as_str()?.to_owned()))
        .collect()
}

impl Named {
    /// The value that statements are compared by, when no lexicon knows a name.
    pub(super) fn value(&self) -> String {
        normalise(&self.words)
    }

    pub(super) fn is_chinese(&self) -> bool {
        self.words
            .chars()
            .any(|c| ('\u{4e00}'..='\u{9fff}').contains(&c))
    }
}

/// The code of a status, one of `known`. `None` when the resource does not say.
pub(super) fn status(
    root: &Node<'_>,
    field: &str,
    known: &[&'static str],
) -> Result<Option<&'static str>, Rejected> {
    let Some(node) = root.get(field) else {
        return Ok(None);
    };
    if !node.value.is_object() {
        return Err(Rejected::wrong_type(
            &node.path,
            "a CodeableConcept with a coding",
        ));
    }
    let codings = codings(&node)?;
    for coding in &codings {
        let code = coding.opt_id(&["code"])?;
        if let Some(found) = known.iter().find(|known| Some(**known) == code.as_deref()) {
            return Ok(Some(found));
        }
    }
    let path = match codings.first() {
        Some(coding) => coding.path_of("code"),
        None => node.path_of("coding"),
    };
    Err(not_known(&path, known))
}

/// The same of a status that is a plain code.
pub(super) fn code(node: &Node<'_>, known: &[&'static str]) -> Result<&'static str, Rejected> {
    let text = node.text()?;
    known
        .iter()
        .find(|known| **known == text)
        .copied()
        .ok_or_else(|| not_known(&node.path, known))
}

fn not_known(path: &str, known: &[&str]) -> Rejected {
    let detail = format!("{path} must be one of {}", known.join(", "));
    Rejected::new("invalid_field", path, detail)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_has_a_system_and_a_name() {
        let table: BTreeMap<String, String> =
            serde_json::from_str(include_str!("../../../data/code_names.json")).unwrap();
        for (code, name) in &table {
            let (system, code) = code.split_once('|').unwrap();
            assert!(["snomed", "rxnorm", "icd10", "atc"].contains(&system));
            assert!(!code.is_empty() && !name.is_empty());
        }
        assert_eq!(
            name_of_code("http://snomed.info/sct", "256349002"),
            Some("peanut")
        );
    }
}
