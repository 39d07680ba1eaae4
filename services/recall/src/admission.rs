//! How many questions are answered at once, and what becomes of the others?
//!
//! A question that finds all places taken waits a moment. Then it is answered from what protects the
//! patient alone, which takes a part of the time, and the answer says so. When even these are too many, it
//! is refused at once: whoever asks again a second later is served better than one of a thousand who wait.
//! So what is waiting stays short, however many ask, and is gone as soon as they ask less.

use std::time::Duration;

use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::task::yield_now;
use tokio::time::timeout;

/// How long a question waits for a place among the whole ones, and then for one among the others: together
/// less than half of what a caller is promised.
const PATIENCE: Duration = Duration::from_millis(5);

/// Questions that are answered in part at once, for each that is answered as a whole.
const IN_PART: usize = 4;

/// How much of an answer is worked out.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Depth {
    #[default]
    Whole,
    /// Only from what protects: no leg is asked.
    Protected,
}

/// More ask than can be answered even in part.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Overloaded;

pub(crate) struct Gate {
    whole: Semaphore,
    in_part: Semaphore,
}

/// A question's place, free again when it is dropped.
pub(crate) struct Turn<'a> {
    pub(crate) depth: Depth,
    _place: SemaphorePermit<'a>,
}

impl Gate {
    /// For at most `at_once` whole answers at the same time.
    pub(crate) fn new(at_once: usize) -> Self {
        let at_once = at_once.max(1);
        Self {
            whole: Semaphore::new(at_once),
            in_part: Semaphore::new(at_once * IN_PART),
        }
    }

    pub(crate) async fn enter(&self) -> Result<Turn<'_>, Overloaded> {
        for (places, depth) in [
            (&self.whole, Depth::Whole),
            (&self.in_part, Depth::Protected),
        ] {
            // The places are never closed.
            if let Ok(Ok(place)) = timeout(PATIENCE, places.acquire()).await {
                // Whoever came at the same time is counted before any of them is worked on: answering
                // takes a processor, and gives it up nowhere.
                yield_now().await;
                return Ok(Turn {
                    depth,
                    _place: place,
                });
            }
        }
        Err(Overloaded)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn depths(gate: &Gate, asked: usize) -> (Vec<Turn<'_>>, usize, usize, usize) {
        let entered = futures::future::join_all((0..asked).map(|_| gate.enter())).await;
        let refused = entered.iter().filter(|turn| turn.is_err()).count();
        let turns: Vec<Turn<'_>> = entered.into_iter().flatten().collect();
        let of = |depth| turns.iter().filter(|turn| turn.depth == depth).count();
        let (whole, in_part) = (of(Depth::Whole), of(Depth::Protected));
        (turns, whole, in_part, refused)
    }

    #[tokio::test(start_paused = true)]
    async fn who_finds_no_place_is_answered_in_part_and_then_refused() {
        let gate = Gate::new(2);
        let (turns, whole, in_part, refused) = depths(&gate, 100).await;
        assert_eq!((whole, in_part, refused), (2, 8, 90));
        drop(turns);
        let (_turns, whole, in_part, refused) = depths(&gate, 2).await;
        assert_eq!(
            (whole, in_part, refused),
            (2, 0, 0),
            "as if nothing had been"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_place_that_becomes_free_in_time_is_taken() {
        let gate = Gate::new(1);
        let (turns, ..) = depths(&gate, 1).await;
        let (waited, ()) = tokio::join!(gate.enter(), async {
            tokio::time::sleep(PATIENCE / 2).await;
            drop(turns);
        });
        assert_eq!(waited.map(|turn| turn.depth), Ok(Depth::Whole));
    }

    #[tokio::test(start_paused = true)]
    async fn nobody_waits_longer_than_promised() {
        let gate = Gate::new(1);
        let _turns = depths(&gate, 5).await;
        let started = tokio::time::Instant::now();
        assert!(gate.enter().await.is_err());
        assert!(started.elapsed() <= 3 * PATIENCE);
    }
}
