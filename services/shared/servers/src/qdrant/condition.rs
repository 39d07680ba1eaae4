//! The hard filter as conditions of Qdrant, so that nothing outside it is ever a candidate.

use anamnesis_domain::ids::OwnerKey;
use anamnesis_domain::time::Timestamp;
use anamnesis_pipeline::stores::{Filter, SubjectFilter};
use qdrant_client::qdrant::r#match::MatchValue;
use qdrant_client::qdrant::{Condition, Filter as Conditions, PointId, Range};

use super::row::{VERSION_ROW, field, integer};

/// What [`Filter::admits`] admits, of what was applied below `position`.
///
/// A batch that has written its points and not its checkpoint begins at `position`: with a cut no
/// higher than that, none of its versions is known yet, and none that it closed is closed yet.
///
/// What batches wrote that end at `rewritten` or before does not count: see [`current_of_owner`].
///
/// `None` when nothing can match.
pub(super) fn admitted(filter: &Filter, position: u64, rewritten: u64) -> Option<Conditions> {
    let Filter {
        scope,
        cut,
        valid_at,
        time_range,
        kinds,
        statuses,
        subject,
        context_tags,
    } = filter;
    let cut = cut.0.min(position);
    let mut all = vec![
        is_version(),
        is(field::OWNER, scope.key().to_string()),
        not_before(rewritten),
        Condition::matches(field::IS_ASKABLE, true),
        below(field::RECORDED_FROM, integer(cut)),
        missing_or(
            field::RECORDED_TO,
            at_least(field::RECORDED_TO, integer(cut)),
        ),
    ];
    if let Some(at) = valid_at {
        all.push(at_most(field::VALID_FROM, at.millis()));
        all.push(ends_after(*at));
    }
    if let Some(range) = time_range {
        if let Some(to) = range.to() {
            all.push(below(field::VALID_FROM, to.millis()));
        }
        all.push(ends_after(range.from()));
    }
    if let Some(kinds) = kinds {
        all.push(one_of(field::KIND, kinds.iter().map(|kind| kind.code()))?);
    }
    all.push(one_of(
        field::STATUS,
        statuses.iter().map(|status| status.code()),
    )?);
    match subject {
        SubjectFilter::Any => (),
        SubjectFilter::Only(subject) => {
            all.push(is(field::SUBJECT, subject.to_string()));
        }
    }
    if let Some(tags) = context_tags {
        let untagged = Condition::is_empty(field::TAGS);
        all.push(match one_of(field::TAGS, tags.iter().map(String::as_str)) {
            Some(tagged) => either([untagged, tagged]),
            None => untagged,
        });
    }
    Some(Conditions::must(all))
}

/// All versions of an owner, current or not.
pub(super) fn of_owner(owner: OwnerKey) -> Conditions {
    Conditions::must([is_version(), is(field::OWNER, owner.to_string())])
}

/// Versions of an owner that count: a batch that was cut off before the owner was rewritten may still
/// bring in points that nobody had made by then, and no condition keeps Qdrant from making them.
pub(super) fn current_of_owner(owner: OwnerKey, rewritten: u64) -> Conditions {
    Conditions::must([
        is_version(),
        is(field::OWNER, owner.to_string()),
        not_before(rewritten),
    ])
}

/// Versions of an owner that do not count any more.
pub(super) fn stale_of_owner(owner: OwnerKey, rewritten: u64) -> Conditions {
    Conditions::must([
        is_version(),
        is(field::OWNER, owner.to_string()),
        below(field::FENCE, integer(rewritten)),
    ])
}

/// Versions in a partition that were applied before `position`.
pub(super) fn of_partition(partition: u32, position: u64) -> Conditions {
    Conditions::must([
        is_version(),
        Condition::matches(field::PARTITION, i64::from(partition)),
        below(field::RECORDED_FROM, integer(position)),
    ])
}

/// Open versions of any of these memories.
pub(super) fn open_versions(owners: Vec<String>, memories: Vec<String>) -> Conditions {
    Conditions::must([
        is_version(),
        Condition::matches(field::OWNER, owners),
        Condition::matches(field::MEMORY, memories),
        Condition::is_empty(field::RECORDED_TO),
    ])
}

/// These points, as long as they are open versions that no later batch has written.
pub(super) fn closable(points: Vec<PointId>, fence: u64) -> Conditions {
    Conditions::must([
        Condition::has_id(points),
        is_version(),
        Condition::is_empty(field::RECORDED_TO),
        at_most(field::FENCE, integer(fence)),
    ])
}

/// Points that no later batch has written.
pub(super) fn not_after(fence: u64) -> Conditions {
    Conditions::must([at_most(field::FENCE, integer(fence))])
}

/// A checkpoint, as long as it stands at `next`.
pub(super) fn standing_at(checkpoint: PointId, next: u64) -> Conditions {
    Conditions::must([
        Condition::has_id([checkpoint]),
        Condition::matches(field::NEXT, integer(next)),
    ])
}

/// Matches no point: a point that is there already is not replaced.
pub(super) fn nothing() -> Conditions {
    Conditions::must([is(field::ROW, String::new())])
}

/// Not written by a batch that ends earlier. A point without a readable fence is no such point: it was
/// altered, and shows.
fn not_before(fence: u64) -> Condition {
    Conditions::must_not([below(field::FENCE, integer(fence))]).into()
}

fn is_version() -> Condition {
    is(field::ROW, VERSION_ROW.to_owned())
}

/// The whole word. The client's own conversion would ask for a full-text match of a word with a space.
fn is(name: &str, word: String) -> Condition {
    Condition::matches(name, MatchValue::Keyword(word))
}

fn one_of<'a>(name: &str, values: impl Iterator<Item = &'a str>) -> Option<Condition> {
    let values: Vec<String> = values.map(str::to_owned).collect();
    (!values.is_empty()).then(|| Condition::matches(name, values))
}

fn either(conditions: [Condition; 2]) -> Condition {
    Conditions::should(conditions).into()
}

fn missing_or(name: &str, condition: Condition) -> Condition {
    either([Condition::is_empty(name), condition])
}

fn ends_after(at: Timestamp) -> Condition {
    missing_or(field::VALID_TO, above(field::VALID_TO, at.millis()))
}

// Qdrant compares whole numbers as 64-bit floats: exact below 2^53, which is more offsets than a log
// will have, and the milliseconds of 285,000 years.

fn below(name: &str, bound: i64) -> Condition {
    let lt = Some(bound as f64);
    Condition::range(
        name,
        Range {
            lt,
            ..Range::default()
        },
    )
}

fn above(name: &str, bound: i64) -> Condition {
    let gt = Some(bound as f64);
    Condition::range(
        name,
        Range {
            gt,
            ..Range::default()
        },
    )
}

fn at_most(name: &str, bound: i64) -> Condition {
    let lte = Some(bound as f64);
    Condition::range(
        name,
        Range {
            lte,
            ..Range::default()
        },
    )
}

fn at_least(name: &str, bound: i64) -> Condition {
    let gte = Some(bound as f64);
    Condition::range(
        name,
        Range {
            gte,
            ..Range::default()
        },
    )
}
