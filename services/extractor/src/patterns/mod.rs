//! Which facts does a clause state? One file per family of facts.

mod allergy;
mod condition;
mod constraint;
pub(crate) mod drug;
mod measurement;
mod medication;
mod preference;
mod profile;
mod visit;

use anamnesis_domain::memory::Kind;

use crate::lexicon::Class;
use crate::scene::{Found, Scene};

/// Everything that the patterns find in one clause, in order of appearance.
pub(crate) fn find(scene: &Scene<'_>) -> Vec<Found> {
    let mut found = allergy::find(scene);
    found.extend(medication::find(scene));
    let mut conditions = condition::find(scene);
    // Hives are the allergy's sign here, no second fact.
    let is_sign = |f: &Found| {
        f.entities.len() == 1
            && crate::lexicon::lookup(f.value.as_deref().unwrap_or(""), &[Class::Symptom]).is_some()
            || f.value.as_deref() == Some("urticaria")
    };
    conditions.retain(|f| found.iter().all(|a| a.kind != Kind::Allergy) || !is_sign(f));
    found.extend(conditions);
    found.extend(measurement::find(scene));
    found.extend(visit::find(scene));
    found.extend(profile::find(scene));
    // "History of a bypass operation" is one fact, not two.
    let histories: Vec<String> = found
        .iter()
        .filter(|f| f.kind == Kind::Condition)
        .filter_map(|f| f.value.clone())
        .collect();
    found.retain(|f| {
        f.kind != Kind::Procedure
            || !histories
                .iter()
                .any(|h| f.value.as_ref().is_some_and(|v| h.ends_with(v.as_str())))
    });
    // "My INR was 2.8" is the value, not also the test.
    let measured: Vec<String> = found
        .iter()
        .filter(|f| f.kind == Kind::Measurement)
        .filter_map(|f| f.value.clone())
        .collect();
    found.retain(|f| {
        f.kind != Kind::Event || f.value.as_ref().is_none_or(|v| !measured.contains(v))
    });
    let preferences = preference::find(scene);
    let is_setting = preferences
        .iter()
        .any(|f| matches!(f.attribute, Some("language" | "plan")));
    let constraints = if is_setting {
        Vec::new()
    } else {
        constraint::find(scene)
    };
    // "Don't give me …" is a rule and no taste.
    found.extend(if constraints.is_empty() {
        preferences
    } else {
        constraints
    });
    found.sort_by_key(|f| f.anchor);
    found
}
