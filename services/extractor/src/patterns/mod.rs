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

use crate::scene::{Found, Scene};

/// Everything that the patterns find in one clause, in order of appearance.
pub(crate) fn find(scene: &Scene<'_>) -> Vec<Found> {
    let mut found = allergy::find(scene);
    found.extend(medication::find(scene));
    found.extend(condition::find(scene));
    found.extend(measurement::find(scene));
    found.extend(visit::find(scene));
    found.extend(profile::find(scene));
    let constraints = constraint::find(scene);
    let is_forbidden = !constraints.is_empty();
    found.extend(constraints);
    if !is_forbidden {
        found.extend(preference::find(scene));
    }
    found.sort_by_key(|f| f.anchor);
    found
}
