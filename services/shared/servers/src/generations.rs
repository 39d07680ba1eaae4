//! Which build of a store answers? A generation is built beside the live one, compared with the fold,
//! and then made the live one in one step. The one before stays as a way back, until an erasure ends
//! that: what is not kept up to date is reached by no erasure.

use anamnesis_domain::time::Timestamp;
use anamnesis_pipeline::stores::StoreError;
use async_trait::async_trait;

/// The generations of one store on one server.
///
/// Contract: `switch` is seen by every later `live`, whoever asks; the live one cannot be deleted.
#[async_trait]
pub trait Generations: Send + Sync {
    /// All that exist, ascending by name.
    async fn list(&self) -> Result<Vec<String>, StoreError>;

    /// The one that recall asks.
    async fn live(&self) -> Result<Option<String>, StoreError>;

    /// Makes this generation the live one, at once for every reader.
    ///
    /// # Errors
    /// [`StoreError::Unusable`] for one that does not exist.
    async fn switch(&self, generation: &str) -> Result<(), StoreError>;

    /// Deletes a generation.
    ///
    /// # Errors
    /// [`StoreError::Unusable`] for the live one.
    async fn delete(&self, generation: &str) -> Result<(), StoreError>;
}

/// The first generation of a store: the same name for whoever makes it, so that two make one.
pub const FIRST: &str = "g-00000000000000";

/// A build that is older than this was given up.
const BUILD_MS_MAX: i64 = 24 * 3600 * 1000;

/// The name of a generation that is begun now. Names sort as their times do.
pub fn begun_at(now: Timestamp) -> String {
    format!("g-{:014}", now.millis().max(0))
}

fn begun(generation: &str) -> Option<i64> {
    generation.strip_prefix("g-")?.parse().ok()
}

/// The generation that was live before this one, if it is still there.
pub fn before<'a>(all: &'a [String], live: &str) -> Option<&'a str> {
    let at = begun(live)?;
    let is_before = |name: &&String| begun(name).is_some_and(|other| other < at);
    all.iter().filter(is_before).max().map(String::as_str)
}

/// The generations that must go when something is erased: those before the live one, which nobody keeps
/// up to date, and builds that were given up. A build that goes on comes to the erasure by itself.
pub fn outdated<'a>(all: &'a [String], live: &str, now: Timestamp) -> Vec<&'a str> {
    let is_outdated = |name: &&str| {
        let Some(at) = begun(name) else { return false };
        let is_before = begun(live).is_some_and(|live| at < live);
        *name != live && (is_before || now.millis().saturating_sub(at) > BUILD_MS_MAX)
    };
    all.iter().map(String::as_str).filter(is_outdated).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR_MS: i64 = 3600 * 1000;

    fn at(hours: i64) -> Timestamp {
        Timestamp::from_millis(1_800_000_000_000 + hours * HOUR_MS)
    }

    #[test]
    fn an_erasure_ends_what_nobody_keeps_up_to_date() {
        let all = [
            FIRST.to_owned(),
            begun_at(at(0)),
            begun_at(at(5)),
            begun_at(at(6)),
            "by-hand".to_owned(),
        ];
        let live = begun_at(at(5));
        assert_eq!(
            outdated(&all, &live, at(7)),
            [FIRST, begun_at(at(0)).as_str()]
        );
        assert_eq!(before(&all, &live), Some(begun_at(at(0)).as_str()));
        assert_eq!(before(&all, FIRST), None);
        assert_eq!(before(&all, "by-hand"), None);
        let given_up = begun_at(at(6));
        assert_eq!(
            outdated(&all, &live, at(31)),
            [FIRST, begun_at(at(0)).as_str(), given_up.as_str()]
        );
    }
}
