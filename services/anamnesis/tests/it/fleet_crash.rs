//! Does anything that was accepted get lost, doubled or changed when services and servers of the
//! distributed form are killed, frozen and joined?
//!
//! The writers are those of [`crate::crash`]. Afterwards the log must hold what a single process that
//! was never killed would hold. `ANAMNESIS_FLEET_FAULTS` asks for more of them, `ANAMNESIS_SEED` for
//! other moments.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::sync::watch;

use crate::crash::{
    ALONE, Progress, WRITERS, assert_same, check_promises, content_of, listed, owner_of, repeat,
    write,
};
use crate::fleet::{Fleet, Kind, Servers};
use crate::node::{Dice, Folder, from_environment};

const FAULTS: u64 = ROUND;
const PARTITIONS: u32 = 4;
/// Between two acts of a writer: servers that begin again need the processors too.
const PAUSE: Duration = Duration::from_millis(400);

/// What happens to the fleet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Fault {
    /// A service is killed and started again.
    Kill,
    /// A service is frozen for longer than the session of its group, while another one is there.
    Freeze,
    /// A second one of a service comes, or goes.
    Join,
    KillServer(Kind),
}

/// Faults of one round.
const ROUND: u64 = 24;
/// Of so many rounds the last one ends with a look at everything.
const ROUNDS_CHECKED: u64 = 5;

/// Twenty kills and four joins in each round.
fn choose(number: u64) -> Fault {
    match number % ROUND {
        3 | 15 => Fault::KillServer(Kind::Kafka),
        5 => Fault::Freeze,
        7 | 18 => Fault::KillServer(Kind::Qdrant),
        9 => Fault::KillServer(Kind::Neo4j),
        11 => Fault::KillServer(Kind::Postgres),
        2 | 8 | 14 | 20 => Fault::Join,
        _ => Fault::Kill,
    }
}

/// Services of which a second one helps.
const DOUBLED: [(&str, &str); 3] = [
    ("extractor", "extractor-b"),
    ("validity-manager", "validity-manager-b"),
    ("intake", "intake-b"),
];

async fn inflict(fleet: &mut Fleet, fault: Fault, dice: &mut Dice) {
    match fault {
        Fault::Kill => {
            let name = dice.pick(&fleet.running()).clone();
            let service = fleet.service_of(&name);
            fleet.kill(&name);
            tokio::time::sleep(Duration::from_millis(dice.below(300))).await;
            fleet.start(service, &name);
        }
        Fault::Freeze => {
            let (service, other) = ("validity-manager", "validity-manager-b");
            if !fleet.running().contains(&other.to_owned()) {
                fleet.start(service, other);
                fleet.wait_ready().await;
            }
            fleet.signal("validity-manager-a", "STOP");
            // Longer than the session: the other one takes over and decides.
            tokio::time::sleep(Duration::from_secs(9)).await;
            fleet.signal("validity-manager-a", "CONT");
        }
        Fault::Join => {
            let (service, name) = *dice.pick(&DOUBLED);
            if fleet.running().contains(&name.to_owned()) {
                fleet.stop(name);
            } else {
                fleet.start(service, name);
            }
        }
        Fault::KillServer(kind) => {
            fleet.servers.kill(kind);
            tokio::time::sleep(Duration::from_millis(dice.below(1_000))).await;
            fleet.servers.start_again(kind);
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn nothing_is_lost_or_doubled_when_services_and_servers_are_killed() {
    let kills = from_environment("ANAMNESIS_FLEET_FAULTS", FAULTS);
    let seed = from_environment("ANAMNESIS_SEED", 17);
    let mut dice = Dice::new(seed);
    let mut fleet = Fleet::new(Servers::own, PARTITIONS);
    fleet.start_all().await;

    let (address, seen) = watch::channel(Some(fleet.http("intake-a")));
    let progress = Arc::new(Progress::default());
    let writers: Vec<_> = (0..WRITERS)
        .map(|writer| tokio::spawn(write(writer, seed, PAUSE, seen.clone(), progress.clone())))
        .collect();
    let began = std::time::Instant::now();
    for number in 0..kills {
        progress.wait(dice.below(60)).await;
        let fault = choose(number);
        inflict(&mut fleet, fault, &mut dice).await;
        fleet.check_alive();
        eprintln!("{number}: {fault:?} after {:?}", began.elapsed());
        // A service that was started again has another address.
        address.send_replace(Some(fleet.http("intake-a")));
        if number % ROUND == ROUND - 1 {
            // What a round broke is seen at its end, and the next one begins with stores that keep up.
            progress.is_held.store(true, Ordering::Relaxed);
            fleet.wait_ready().await;
            fleet.settle().await;
            eprintln!("at rest after {number}, {:?}", began.elapsed());
            // Reads the whole log: not after every round of many.
            if (number / ROUND) % ROUNDS_CHECKED == ROUNDS_CHECKED - 1 {
                let balance = fleet.check_sound();
                eprintln!("sound after {number}, {:?}: {balance}", began.elapsed());
            }
            progress.is_held.store(false, Ordering::Relaxed);
        }
    }
    progress.is_over.store(true, Ordering::Relaxed);
    let mut ledgers = Vec::new();
    for writer in writers {
        ledgers.push(writer.await.expect("a writer ends by itself"));
    }
    fleet.wait_ready().await;
    fleet.settle().await;
    let answers = listed(&fleet.http("recall-a")).await;
    for (writer, ledger) in ledgers.iter().enumerate() {
        let said = &answers[&owner_of(writer as u64)];
        let word = ledger.erased_words.iter().find(|word| said.contains(*word));
        assert_eq!(word, None, "what was erased stays erased");
    }

    let accepted: usize = ledgers.iter().map(|ledger| ledger.accepted.len()).sum();
    let balance = fleet.check_sound();
    assert!(
        balance["accepted"].as_u64() >= Some(accepted as u64),
        "{balance}"
    );
    println!("{kills} faults, {accepted} accepted, {balance}");
    let node = fleet.open().await;
    check_promises(&node, &ledgers).await;
    let content = content_of(&node).await;

    // The same acts in one process, and nobody is killed.
    let calm = Folder::new();
    let server = calm.serve().await;
    let (address, seen) = watch::channel(Some(server.http.clone()));
    let tasks: Vec<_> = ledgers
        .iter()
        .enumerate()
        .map(|(writer, ledger)| {
            tokio::spawn(repeat(
                writer as u64,
                ledger.acts.clone(),
                ledger.events.clone(),
                seen.clone(),
            ))
        })
        .collect();
    for task in tasks {
        task.await.expect("a writer ends by itself");
    }
    drop(address);
    server.settle().await;
    let calm_answers = listed(&server).await;
    for writer in 0..ALONE {
        let owner = owner_of(writer);
        assert_same(&owner, &answers[&owner], &calm_answers[&owner]);
    }
    server.stop();
    calm.check_sound();
    assert_eq!(content, content_of(&calm.open().await).await);
}
