//! The table of validity, row by row, and `docs/decide.md`, which is written from it: what the document
//! says is what `decide` did.

use std::fmt::Write as _;
use std::path::PathBuf;

use super::*;

struct Row {
    title: &'static str,
    rule: &'static str,
    cases: &'static [&'static str],
}

/// Statements in the notation of [`claim`]; `end[…]@9`, `retire[…]`, `erase[…]` and the verdicts
/// (`take_new[…]` …) are commands about the statement in brackets.
const TABLE: &[Row] = &[
    Row {
        title: "A duplicate",
        rule: "Same subject, attribute, value with its number and unit, polarity, overlapping validity: \
               no new memory, the old one is confirmed. Near neighbours are no duplicates.",
        cases: &[
            "allergy=peanut@1 allergy=peanut@9",
            "dose=5mg@1 dose=6mg@2",
            "allergy=peanut@1 father.allergy=peanut@2",
            "dose=5mg@1<4 dose=5mg@9",
        ],
    },
    Row {
        title: "A clear update",
        rule: "The old one ends where the new one begins, and names what replaced it.",
        cases: &[
            "smoking=yes@1 smoking=former@4",
            "dose=5mg@1 ~dose=10mg@4",
            "dose=5mg@1 dose=10mg@4",
        ],
    },
    Row {
        title: "One value or many",
        rule: "Of an attribute with one value the new one replaces the old; of one with many it adds.",
        cases: &[
            "smoking=yes@1 smoking=no@4",
            "allergy=peanut@1 allergy=mango@4",
        ],
    },
    Row {
        title: "A contradiction where it is unclear who is right",
        rule: "The old one stays, the new one is conflicted, a review opens; a person decides once. What \
               protects is never lost by a bare \"no\", also not by one of the same instant, whoever says \
               it; of what is about different times the earlier is the old one, in whatever order they \
               arrive.",
        cases: &[
            "allergy=peanut@1 !allergy=peanut@5",
            "allergy=peanut@1 !allergy=peanut@1#record/r1",
            "allergy=peanut@1>4#tool !allergy=peanut@1>1",
            "smoking=yes@3 smoking=no@3",
            "allergy=peanut@1 !allergy=peanut@5 keep_old[!allergy=peanut@5]",
            "allergy=peanut@1 !allergy=peanut@5 take_new[!allergy=peanut@5]",
            "allergy=peanut@1 !allergy=peanut@5 keep_both[!allergy=peanut@5]",
            "allergy=peanut@1 !allergy=peanut@5 keep_old[!allergy=peanut@5] \
             reopen[!allergy=peanut@5]",
        ],
    },
    Row {
        title: "An explicit correction",
        rule: "The old one is superseded at once, also where the correction is about an earlier time; \
               what stood in doubt against the right value was never true.",
        cases: &[
            "dose=5mg@1 ^dose=6mg@3",
            "dose=5mg@3 ^dose=6mg@5>1",
            "dose=5mg@1 dose=50mg@2 ^dose=5mg@3",
            "dose=5mg@1 dose=50mg@2 ^dose=50mg@3",
        ],
    },
    Row {
        title: "\"No longer\"",
        rule: "The old one is superseded by a record of opposite polarity, which recall then returns.",
        cases: &[
            "allergy=peanut@1 ~!allergy=peanut@5",
            "dose=5mg@1 ~!dose=0mg@5 dose=5mg@9",
            "dose=5mg@9 ~!dose=0mg@10>2",
        ],
    },
    Row {
        title: "Learned later than it happened",
        rule: "Valid time is when it held. It never supersedes a later fact.",
        cases: &[
            "smoking=no@9 smoking=yes@10>2",
            "dose=5mg@1 dose=10mg@9 dose=7mg@10>4",
        ],
    },
    Row {
        title: "A temporary statement",
        rule: "It has an end, stands beside what it interrupts, and is over without any event.",
        cases: &["dose=5mg@1 dose=10mg@4<6", "likes=tea@1<3"],
    },
    Row {
        title: "Several sources that disagree",
        rule: "Evidence is weighed (clinician or record 1.00, owner 0.95, inferred 0.70, each faded by its \
               age with the kind's half-life); a side wins by 0.20. Never about what is protected.",
        cases: &[
            "smoking=no@1 smoking=yes@2#tool",
            "smoking=no@1 smoking=yes@300#tool",
            "smoking=no@1 smoking=yes@900#tool",
            "smoking=yes@3#tool smoking=no@3#record",
            "smoking=yes@3 smoking=no@3#record",
            "allergy=peanut@1 !allergy=peanut@2#tool",
            "dose=5mg@1#record dose=10mg@900#tool",
        ],
    },
    Row {
        title: "Ended, retired, erased",
        rule: "Ended: the world changed. Retired: the record was wrong, it was never true. Erased: the \
               text is gone. A hospital's record that is sent again and names another thing takes back \
               what it named before; what it only denies takes back nothing.",
        cases: &[
            "allergy=peanut@1 end[allergy=peanut@1]@5",
            "allergy=peanut@1 retire[allergy=peanut@1]",
            "allergy=peanut@1 erase[allergy=peanut@1]",
            "allergy=peanut@1#record/r1 ~!allergy=peanut@5#record/r1",
            "allergy=peanut@1#record/r1 %!allergy=peanut@5#record/r1",
            "allergy=peanut@1#record/r1 &allergy=peanut@5#record/r1",
            "allergy=peanut@1 &allergy=peanut@5#record/r1",
            "allergy=peanut@1#record/r1 allergy=penicillin@5#record/r1",
            "allergy=peanut@1#record/r1 allergy=penicillin@5#record/r2",
            "allergy=peanut@1#record/r1 allergy=peanut@2 allergy=penicillin@5#record/r1",
            "allergy=peanut@1#record/r1 allergy=penicillin@5#record/r1 allergy=peanut@9#record/r1",
            "allergy=peanut@1#record/r1 &allergy=penicillin@5#record/r1",
            "allergy=peanut@1#record/r1 !allergy=penicillin@5#record/r1",
            "allergy=peanut@1#record/r1 !allergy=any@5#record/r1",
            "!allergy=any@1#record/r1 allergy=peanut@5#record/r1",
            "allergy=peanut@1 %!allergy=peanut@5#record/r1 allergy=peanut@9",
        ],
    },
    Row {
        title: "Not confirmed",
        rule: "What nobody is sure of waits for a person and counts for nothing until then.",
        cases: &[
            "condition=asthma@1#record*",
            "condition=asthma@1#record* admit[condition=asthma@1#record*]",
            "allergy=peanut@1 ~!allergy=peanut@5*",
            "condition=asthma@1#record/r1* %!condition=asthma@5#record/r1",
        ],
    },
    Row {
        title: "A jump that looks like a slip",
        rule: "A dose ten times up or down goes to review while the old value stays.",
        cases: &[
            "dose=5mg@1 dose=50mg@2",
            "dose=50mg@1 dose=5mg@2",
            "dose=5mg@1 ~dose=50mg@2",
            "dose=5mg@1 dose=49mg@2",
        ],
    },
    Row {
        title: "A denial of everything beside a named fact",
        rule: "\"I have no allergies\" never ends a named one: a review opens. A named one that begins \
               later ends the denial. The same holds of a sort (drugs, food, the environment) and what is \
               of that sort, or of none that is known.",
        cases: &[
            "allergy=peanut@1 !allergy=any@5",
            "!allergy=any@1 allergy=peanut@5",
            "allergy=peanut@1 ~!allergy=peanut@3 !allergy=any@5",
            "allergy=peanut@1 !allergy=drug@5",
            "allergy=penicillin@1 !allergy=drug@5",
            "allergy=peanut@1 !allergy=food@5",
            "!allergy=food@1 allergy=peanut@5",
            "allergy=penicillin@1 !allergy=food@5",
            "allergy=pollen@1 !allergy=food@5",
            "allergy=pollen@1 !allergy=environment@5",
            "allergy=zorbil@1 !allergy=food@5",
            "allergy=peanut@1 !allergy=food@5 take_new[!allergy=food@5]",
            "allergy=peanut@1 !allergy=any@5 take_new[!allergy=any@5]",
            "allergy=peanut@1 !allergy=any@5 keep_old[!allergy=any@5]",
        ],
    },
];

fn apply(world: &mut World, token: &str, number: usize) {
    let Some((what, rest)) = token.split_once('[') else {
        world.input(&said(token, "chat"));
        return;
    };
    let (spec, rest) = rest.split_once(']').unwrap();
    let event = IDS.event(key(), "chat", spec, "");
    let id = IDS.memory(event, 0);
    let command = match what {
        "end" => Command::Correct {
            memory_id: id,
            claim: None,
            ended_at: Some(day(rest.trim_start_matches('@').parse().unwrap())),
            expected_version: None,
            reason: "".into(),
        },
        "retire" => Command::Retire {
            memory_id: id,
            expected_version: None,
            reason: "".into(),
        },
        "erase" => Command::Erase {
            erasure: IDS.erasure(event),
            target: Target::Memories(vec![id]),
            reason: "".into(),
        },
        verdict => Command::Review {
            memory_id: id,
            verdict: Verdict::from_code(verdict).unwrap(),
            expected_version: None,
            reason: "".into(),
        },
    };
    assert_eq!(
        world.command(&format!("c{number}"), "api", command),
        Outcome::Stored,
        "{token}"
    );
}

/// What is believed after a case, with the rule of each, and what was weighed.
fn told(case: &str) -> String {
    let mut world = World::new();
    for (number, token) in case.split_whitespace().enumerate() {
        apply(&mut world, token, number);
    }
    assert_eq!(world.replay(), world.state, "{case}");
    let mut lines: Vec<(i64, String)> = Vec::new();
    for entry in world.state.claims.values() {
        let standing = &entry.standing;
        if standing.confirms.is_some() {
            continue;
        }
        let days = |at: Timestamp| at.millis() / DAY_MS;
        let to = standing
            .valid_to
            .map_or("…".to_owned(), |to| days(to).to_string());
        let from = days(standing.valid_from);
        let doubted = if standing.conflict_with.is_some() {
            " (in doubt)"
        } else {
            ""
        };
        let confirmed = match world.state.confirming(entry.id).len() {
            0 => String::new(),
            more => format!(", confirmed {more}×"),
        };
        lines.push((
            from,
            format!(
                "`{}` {}{doubted} [{from}, {to}): {}{confirmed}",
                entry.claim.text.expose(),
                standing.status,
                standing.rule
            ),
        ));
    }
    lines.sort();
    let mut told: Vec<String> = lines.into_iter().map(|(_, line)| line).collect();
    for decided in &world.decided {
        let notes = decided.detail.iter().flat_map(|detail| &detail.notes);
        for note in notes.filter(|note| note.code == "vote") {
            let detail = note.detail.as_ref().unwrap().expose().to_owned();
            // The id is a keyed hash: it tells a reader nothing.
            let weights = detail.split(r#","against""#).next().unwrap().to_owned();
            told.push(format!("weighed `{weights}}}`"));
        }
    }
    if told.is_empty() {
        told.push("nothing".to_owned());
    }
    told.join("<br>")
}

fn document() -> String {
    let mut text = String::from(
        "# What `decide` makes of what arrives\n\n\
         This file is written by a test from what `decide` does \
         (`services/validity-manager/src/tests/table.rs`), and the test fails when they differ. To write \
         it anew: `ANAMNESIS_WRITE_DOCS=1 cargo test --workspace --lib -- tests::table`.\n\n\
         A case is a row of statements. `dose=5mg@3` is said on day 3 and holds from then on; `>2` makes \
         it hold from day 2, `<9` until day 9. Before the name, `!` denies, `~` says that the world \
         changed, `^` that the record was wrong, `%` that it never was so, `&` takes back what the same \
         record said; `father.` is about the father. `#tool` names who speaks (the owner unless said \
         otherwise), `/r1` a hospital's record, and `*` marks what nobody is sure of. `end[…]@9`, \
         `retire[…]`, `erase[…]` and verdicts such as `take_new[…]` are commands about the statement in \
         brackets. `dose` (of one drug) and `allergy` are protected, `smoking` holds one value, \
         `allergy`, `condition` and `likes` hold many.\n\n\
         The order in which a case arrives never matters for what is said; each memory is shown with \
         its status, the days on which it holds, and the rule that decided.\n",
    );
    for row in TABLE {
        let _ = write!(text, "\n## {}\n\n{}\n\n", row.title, row.rule);
        text.push_str("| what arrives | what is believed then |\n| --- | --- |\n");
        for case in row.cases {
            let said: Vec<String> = case.split_whitespace().map(|s| format!("`{s}`")).collect();
            let _ = writeln!(text, "| {} | {} |", said.join(" "), told(case));
        }
    }
    text
}

#[test]
fn the_document_says_what_is_decided() {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/decide.md");
    let now = document();
    if std::env::var_os("ANAMNESIS_WRITE_DOCS").is_some() {
        std::fs::write(&path, &now).unwrap();
    }
    let written = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        written == now,
        "docs/decide.md does not say what is decided; run ANAMNESIS_WRITE_DOCS=1 cargo test \
         --workspace --lib -- tests::table and read the difference"
    );
}

/// Statements of a case arrive in every order; commands name what is there, so they come last.
#[test]
fn the_order_of_arrival_changes_no_case() {
    for row in TABLE {
        for case in row.cases {
            let (commands, said): (Vec<&str>, Vec<&str>) = case
                .split_whitespace()
                .partition(|token| token.contains('['));
            if commands.is_empty() {
                check_reversed(&said);
            }
        }
    }
}

fn check_reversed(said_: &[&str]) {
    let content = |specs: &mut dyn Iterator<Item = &&str>| {
        let mut world = World::new();
        for spec in specs {
            world.input(&said(spec, "chat"));
        }
        digest::content(&world.state)
    };
    let forward = content(&mut said_.iter());
    let backward = content(&mut said_.iter().rev());
    assert_eq!(forward, backward, "{said_:?}");
}
