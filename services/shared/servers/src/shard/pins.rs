//! Which replica answered for an owner just now, and how far was it?
//!
//! A caller that has seen its own write in one answer must find it in the next, and one recall asks
//! several questions about one state. Replicas are never equally far, so what an answer implied (the cut
//! it gave, the decision it found) is asked of the next answer for the same owner too.

use std::num::NonZeroUsize;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anamnesis_domain::ids::OwnerKey;
use lru::LruCache;
use tokio::time::Instant;

/// As long as a replica's default lease: after that, any replica that answers is as far.
const KEPT_FOR: Duration = Duration::from_secs(5);

/// Owners at once; some megabytes. With more in a few seconds, the oldest may see a replica that is a
/// little behind.
const OWNERS_MAX: NonZeroUsize = NonZeroUsize::new(1 << 16).unwrap();

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Pin {
    pub(super) replica: usize,
    /// The first offset that need not be applied.
    pub(super) at_least: u64,
    until: Instant,
}

pub(super) struct Pins(Mutex<LruCache<OwnerKey, Pin>>);

impl Pins {
    pub(super) fn new() -> Self {
        Self(Mutex::new(LruCache::new(OWNERS_MAX)))
    }

    fn lock(&self) -> MutexGuard<'_, LruCache<OwnerKey, Pin>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn of(&self, owner: OwnerKey, now: Instant) -> Option<Pin> {
        let mut pins = self.lock();
        let pin = *pins.get(&owner)?;
        if now > pin.until {
            pins.pop(&owner);
            return None;
        }
        Some(pin)
    }

    /// `replica` gave an answer that implies everything below `at_least`.
    pub(super) fn put(&self, owner: OwnerKey, replica: usize, at_least: u64, now: Instant) {
        let mut pins = self.lock();
        let earlier = pins.get(&owner).filter(|pin| now <= pin.until);
        let at_least = earlier.map_or(at_least, |pin| pin.at_least.max(at_least));
        let until = now + KEPT_FOR;
        pins.put(
            owner,
            Pin {
                replica,
                at_least,
                until,
            },
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWNER: OwnerKey = OwnerKey::from_bytes([1; 16]);
    const OTHER: OwnerKey = OwnerKey::from_bytes([2; 16]);

    fn seen(pins: &Pins, owner: OwnerKey, now: Instant) -> Option<(usize, u64)> {
        pins.of(owner, now).map(|pin| (pin.replica, pin.at_least))
    }

    #[test]
    fn what_was_answered_is_kept_for_its_owner_and_for_a_while() {
        let (pins, now) = (Pins::new(), Instant::now());
        pins.put(OWNER, 1, 7, now);
        assert_eq!(seen(&pins, OWNER, now), Some((1, 7)));
        assert_eq!(seen(&pins, OTHER, now), None);
        assert_eq!(seen(&pins, OWNER, now + KEPT_FOR), Some((1, 7)));
        assert_eq!(
            seen(&pins, OWNER, now + KEPT_FOR + Duration::from_millis(1)),
            None
        );
    }

    #[test]
    fn an_earlier_answer_takes_nothing_back() {
        let (pins, now) = (Pins::new(), Instant::now());
        pins.put(OWNER, 1, 7, now);
        pins.put(OWNER, 0, 5, now);
        assert_eq!(seen(&pins, OWNER, now), Some((0, 7)));
        let later = now + KEPT_FOR + Duration::from_millis(1);
        pins.put(OWNER, 1, 6, later);
        assert_eq!(seen(&pins, OWNER, later), Some((1, 6)));
    }
}
