//! Do the stages keep every promise, whatever goes wrong, for many seeds?

use anamnesis_testbed::simulation::{self, Faults};

/// Seeds of the gate; `ANAMNESIS_SEEDS` asks for more.
const SEEDS: u64 = 200;

/// The one to look at: set it (or `ANAMNESIS_SEED`) to a seed that failed.
const ONE_SEED: u64 = 1;

fn one() -> u64 {
    std::env::var("ANAMNESIS_SEED")
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(ONE_SEED)
}

fn seeds() -> u64 {
    std::env::var("ANAMNESIS_SEEDS")
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(SEEDS)
}

fn block_on<F: Future>(future: F) -> F::Output {
    tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap()
        .block_on(future)
}

#[test]
fn every_promise_holds_in_every_storm() {
    let seeds = seeds();
    // Two at a time: each seed is a world of its own.
    let run = |first: u64| {
        let mut failures = Vec::new();
        let mut total = Faults::default();
        for seed in (first..seeds).step_by(2) {
            match block_on(simulation::run(seed)) {
                Ok(faults) => total.add(faults),
                Err(failure) => failures.push(failure.to_string()),
            }
        }
        (failures, total)
    };
    let (mut failures, mut total) = std::thread::scope(|scope| {
        let other = scope.spawn(|| run(1));
        let mine = run(0);
        let other = other.join().unwrap();
        (mine.0.into_iter().chain(other.0).collect::<Vec<_>>(), {
            let mut total = mine.1;
            total.add(other.1);
            total
        })
    });
    failures.sort();
    println!("{seeds} seeds: {total:?}");
    assert!(
        failures.is_empty(),
        "{} of {seeds} fail:\n{}",
        failures.len(),
        failures.join("\n")
    );
    total.turns = total.turns.max(1);
    assert!(
        total.fenced > 0 && total.repeats > 0 && total.losses > 0,
        "the storm did nothing"
    );
}

#[test]
fn one_seed() {
    if let Err(failure) = block_on(simulation::run(one())) {
        panic!("{failure}");
    }
}

#[test]
fn the_same_seed_gives_the_same_log() {
    for seed in [1, 3, 5] {
        let first = block_on(simulation::log_of(seed)).unwrap();
        let again = block_on(simulation::log_of(seed)).unwrap();
        assert_eq!(first, again, "seed {seed}");
    }
    assert_ne!(
        block_on(simulation::log_of(1)).unwrap(),
        block_on(simulation::log_of(3)).unwrap()
    );
}
