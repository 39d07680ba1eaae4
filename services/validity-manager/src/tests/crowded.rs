//! Does deciding stay quick for somebody of whom thousands are known? One owner must not hold up a
//! partition.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anamnesis_domain::attribute::Attributes;
use anamnesis_domain::line::{LineKey, derive};
use anamnesis_domain::memory::{Standing, Status};
use anamnesis_domain::state::{CausedBy, Entry};

use super::{IDS, claim};

const CLAIMS: usize = 3_000;
/// Far above what was measured, so that only a comparison of each with each breaks it.
const AT_MOST: Duration = Duration::from_secs(6);

fn entry(number: usize) -> Entry {
    let claim = claim(
        &format!("dose={}mg@{number}", 5 + number % 4),
        &format!("s{number}"),
    );
    let by = CausedBy {
        event: claim.source.event,
        source: claim.source.source_tag,
    };
    Entry {
        id: IDS.memory(claim.source.event, 0),
        seq: number as u64,
        version: number as u64,
        recorded_at: claim.source.at,
        standing: Standing {
            status: Status::Active,
            valid_from: claim.valid_from,
            valid_to: None,
            superseded_by: None,
            conflict_with: None,
            confirms: None,
            rule: String::new(),
        },
        claim: Arc::new(claim),
        marks: Vec::new(),
        standing_by: by,
        accesses: Vec::new(),
    }
}

#[test]
fn a_line_of_thousands_of_doses_is_derived_at_once() {
    let attributes = Attributes::shipped();
    let entries: Vec<Entry> = (1..=CLAIMS).map(entry).collect();
    let key = LineKey::of(entries[0].id, &entries[0].claim, attributes);
    let lines = [(key, entries.iter().collect::<Vec<&Entry>>())];
    let started = Instant::now();
    let derived = derive(&lines, attributes);
    let taken = started.elapsed();
    // Each took the place of the one before.
    let holds = derived
        .standings
        .values()
        .filter(|one| one.status == Status::Active);
    assert_eq!((derived.standings.len(), holds.count()), (CLAIMS, 1));
    assert!(taken < AT_MOST, "{taken:?}");
}
