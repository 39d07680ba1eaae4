//! What holds of every history, whatever is said in which order.

use proptest::prelude::*;

use super::*;

fn a_claim() -> impl Strategy<Value = (String, &'static str)> {
    let what = prop_oneof![
        Just("dose=5mg"),
        Just("dose=10mg"),
        Just("dose=50mg"),
        Just("~!dose=0mg"),
        Just("^dose=10mg"),
        Just("allergy=peanut"),
        Just("!allergy=peanut"),
        Just("~!allergy=peanut"),
        Just("%!allergy=peanut"),
        Just("&allergy=peanut"),
        Just("father.allergy=peanut"),
        Just("~!father.allergy=peanut"),
        Just("!allergy=any"),
        Just("!allergy=drug"),
        Just("!allergy=food"),
        Just("allergy=penicillin"),
        Just("smoking=yes"),
        Just("smoking=no"),
        Just("~smoking=former"),
        Just("^smoking=no"),
    ];
    let until = prop_oneof![5 => Just(0i64), 1 => 1..4i64];
    let role = prop_oneof![
        4 => Just(""),
        1 => Just("#tool"),
        1 => Just("#record/r1"),
        1 => Just("#record/r2"),
        1 => Just("*"),
    ];
    let source = prop_oneof![Just("chat"), Just("note")];
    (what, 1..6i64, 1..6i64, until, role, source).prop_map(
        |(what, said, valid, until, role, source)| {
            let until = match until {
                0 => String::new(),
                days => format!("<{}", valid + days),
            };
            (format!("{what}@{said}>{valid}{until}{role}"), source)
        },
    )
}

/// How a fact without a stated end counts now.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Counts {
    Not,
    /// Against another statement: "both are shown as in conflict until a person decides".
    InConflict,
    InForce,
}

fn counts(state: &OwnerState, id: MemoryId) -> Counts {
    let Some(entry) = state.claims.get(&id) else {
        return Counts::Not;
    };
    let standing = &entry.standing;
    if let Some(of) = standing.confirms {
        return counts(state, of);
    }
    match (standing.status, standing.valid_to, standing.conflict_with) {
        (Status::Active, None, _) => Counts::InForce,
        (Status::Conflicted, None, Some(_)) => Counts::InConflict,
        (_, _, _) => Counts::Not,
    }
}

/// Whether a statement may put what protects in conflict though it may not end it. Of a contradiction the
/// "new" one is "conflicted", the "old stays as it is", and "the order of arrival never decides": so the
/// word of a stronger source about an earlier time, or said earlier of the same, is the old one, and puts
/// in conflict what a weaker source says after it. Nothing else does.
fn may_doubt(claim: &Claim, doubted: &Claim) -> bool {
    let authority = |claim: &Claim| claim.source.role.authority().thousandths();
    let is_stronger = authority(claim) >= authority(doubted) + 200;
    let when = |claim: &Claim| (claim.valid_from, claim.source.at);
    is_stronger && when(claim) < when(doubted) && is_sure(claim)
}

fn is_sure(claim: &Claim) -> bool {
    claim.confidence >= Permille::new(850)
}

/// Whether a statement of this kind may end what protects: it says that the world changed or that the
/// record was wrong, or says something else of the same thing, and nobody doubts it. Whoever says it is
/// no weaker source than who said what it ends.
fn may_end(claim: &Claim, ended: &Claim) -> bool {
    let authority = |claim: &Claim| claim.source.role.authority().thousandths();
    let is_heard = authority(claim) + 200 > authority(ended);
    let says_so = match claim.intent {
        Intent::Change | Intent::Correct | Intent::Refute | Intent::Withdraw => true,
        Intent::Assert => claim.polarity == Polarity::Positive,
    };
    is_sure(claim) && is_heard && says_so
}

/// Some seconds' worth of cases; `PROPTEST_CASES` asks for more.
fn config() -> ProptestConfig {
    let asked = ProptestConfig::default();
    let cases = match std::env::var_os("PROPTEST_CASES") {
        Some(_) => asked.cases,
        None => 400,
    };
    ProptestConfig { cases, ..asked }
}

proptest! {
    #![proptest_config(config())]

    /// The order of arrival never decides.
    #[test]
    fn any_order_of_arrival_gives_the_same_content(
        claims in proptest::collection::vec(a_claim(), 1..8),
        seed in any::<u64>(),
    ) {
        let mut shuffled = claims.clone();
        let mut rng = seed;
        for i in (1..shuffled.len()).rev() {
            rng = rng.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            shuffled.swap(i, (rng >> 33) as usize % (i + 1));
        }
        let fold = |claims: &[(String, &str)]| {
            let mut world = World::new();
            for (spec, source) in claims {
                world.input(&said(spec, source));
            }
            assert_eq!(world.replay(), world.state);
            (digest::content(&world.state), world.believed())
        };
        let (a, told_a) = fold(&claims);
        let (b, told_b) = fold(&shuffled);
        prop_assert_eq!(a, b, "{} | {}", told_a, told_b);
    }

    /// Erasure at any point: the live state is the state of a replay without the keys.
    #[test]
    fn a_replay_without_the_keys_ends_where_the_live_fold_is(
        claims in proptest::collection::vec((a_claim(), 0..8u8), 1..14),
    ) {
        let mut world = World::new();
        for (n, ((spec, source), action)) in claims.iter().enumerate() {
            world.input(&said(spec, source));
            let victim = &claims[n * 7 % (n + 1)].0;
            let event = IDS.event(key(), victim.1, &victim.0, "");
            let id = IDS.memory(event, 0);
            let erasure = IDS.erasure(IDS.event(key(), "api", &format!("x{n}"), ""));
            let target = match action {
                0 => Target::Message(event),
                1 => Target::Memories(vec![id]),
                2 => Target::Source(IDS.source(key(), victim.1)),
                3 => {
                    let mark = Command::Retire { memory_id: id, expected_version: None, reason: "".into() };
                    world.command(&format!("c{n}"), "api", mark);
                    continue;
                }
                4 => Target::Message(IDS.event(key(), "api", &format!("c{}", n.saturating_sub(1)), "")),
                5 => Target::Message(IDS.event(key(), "api", &format!("x{}", n.saturating_sub(1)), "")),
                _ => continue,
            };
            world.command(&format!("x{n}"), "api", Command::Erase { erasure, target, reason: "".into() });
            let replayed = world.replay();
            prop_assert_eq!(&replayed, &world.state);
            prop_assert_eq!(digest::exact(&replayed), digest::exact(&world.state));
        }
    }

    /// What was decided once is not decided again, and nothing is believed otherwise.
    #[test]
    fn a_repeated_input_changes_nothing(
        claims in proptest::collection::vec(a_claim(), 1..8),
        again in any::<proptest::sample::Index>(),
    ) {
        let mut world = World::new();
        for (spec, source) in &claims {
            world.input(&said(spec, source));
        }
        let before = world.state.clone();
        let (spec, source) = again.get(&claims);
        prop_assert_eq!(world.input(&said(spec, source)), Outcome::Duplicate);
        prop_assert_eq!(&before.claims, &world.state.claims);
        prop_assert_eq!(digest::content(&before), digest::content(&world.state));
    }

    /// A decision names memories of the subject that was spoken of, and no others; and two owners who
    /// say the same have nothing in common.
    #[test]
    fn no_decision_crosses_owner_or_subject(
        claims in proptest::collection::vec(a_claim(), 1..8),
    ) {
        let mut world = World::new();
        for (spec, source) in &claims {
            world.input(&said(spec, source));
            let spoken_of = claim(spec, source).subject;
            for part in &world.decided.last().unwrap().parts {
                let id = part.memory_id.unwrap();
                prop_assert_eq!(&world.state.claims[&id].claim.subject, &spoken_of);
            }
        }
        for entry in world.state.claims.values() {
            let standing = &entry.standing;
            let links = [standing.superseded_by, standing.conflict_with, standing.confirms];
            for link in links.into_iter().flatten() {
                prop_assert_eq!(
                    &world.state.claims[&link].claim.subject,
                    &entry.claim.subject
                );
            }
            let other = IDS.owner(&"h1/patient/p2".parse().unwrap());
            let event = IDS.event(other, &entry.claim.source.source, &entry.claim.source.event_id, "");
            prop_assert!(!world.state.claims.contains_key(&IDS.memory(event, 0)));
        }
    }

    #[test]
    fn what_protects_never_ends_without_a_cause_that_may_end_it(
        claims in proptest::collection::vec(a_claim(), 1..9),
    ) {
        let mut world = World::new();
        for (spec, source) in &claims {
            let before = world.state.clone();
            world.input(&said(spec, source));
            let said = claim(spec, source);
            for entry in before.claims.values() {
                let is_protected = Attributes::shipped().kind(entry.claim.kind).protected
                    && entry.claim.polarity == Polarity::Positive;
                let (was, is) = (counts(&before, entry.id), counts(&world.state, entry.id));
                if is_protected && is < was {
                    prop_assert!(
                        may_end(&said, &entry.claim)
                            || (is == Counts::InConflict && may_doubt(&said, &entry.claim)),
                        "{spec}: {} was {was:?}, is {is:?}", entry.claim.text.expose()
                    );
                    prop_assert_eq!(&said.subject, &entry.claim.subject);
                    prop_assert_eq!(&said.attribute, &entry.claim.attribute);
                }
            }
        }
    }
}
