//! `audit …`: answers from the log, never from a store.

use anamnesis_audit::balance::{Balance, balance};
use anamnesis_audit::diff::{Diff, diff};
use anamnesis_audit::erasure::certificate;
use anamnesis_audit::explain::{Explanation, explain};
use anamnesis_audit::replay::digests;
use anamnesis_audit::state::{StateAsOf, state_as_of};
use anamnesis_audit::verify::{Verified, verify};
use anamnesis_domain::memory::Memory;
use anamnesis_domain::owner::Owner;
use anamnesis_domain::time::{AsOf, Known};
use serde::Serialize;

use crate::cli::{
    AuditBalanceArgs, AuditCommand, AuditErasureArgs, AuditExplainArgs, AuditOwnerArgs,
    AuditStateArgs, Exit,
};
use crate::config::Config;
use crate::failure::Failure;
use crate::node::Node;

/// Rows that differ which are shown one by one.
const SHOWN: usize = 20;

/// # Errors
/// When the data folder cannot be read.
pub async fn run(config: Config, command: AuditCommand) -> Result<Exit, Failure> {
    let node = Node::open_tool(config).await?;
    match command {
        AuditCommand::State(args) => show_state(&node, &args).await,
        AuditCommand::Explain(args) => show_explanation(&node, &args).await,
        AuditCommand::Verify(args) => show_verified(&node, &args).await,
        AuditCommand::Diff(args) => show_diff(&node, &args).await,
        AuditCommand::Balance(args) => show_balance(&node, &args).await,
        AuditCommand::Erasure(args) => show_certificate(&node, &args).await,
    }
}

fn print_json<T: Serialize>(value: &T) -> Result<(), Failure> {
    let json = serde_json::to_string_pretty(value).map_err(Failure::wrong_use)?;
    crate::say!("{json}");
    Ok(())
}

async fn show_state(node: &Node, args: &AuditStateArgs) -> Result<Exit, Failure> {
    let key = node.codec.keys().id_key().owner(&args.owner);
    let as_of = AsOf {
        valid: args.as_of.unwrap_or_else(|| node.clock.now()),
        known: args.known_at.map_or(Known::Latest, Known::At),
    };
    let state = state_as_of(&*node.log, &node.codec, key, as_of).await?;
    if args.json {
        print_json(&state)?;
    } else {
        crate::say_text!("{}", state_text(&args.owner, &state));
    }
    Ok(Exit::Fine)
}

/// A state as a person reads it.
pub fn state_text(owner: &Owner, state: &StateAsOf) -> String {
    let mut text = format!(
        "{owner} as of {}, known at {}: memories-{} below offset {}, decision {}\n  exact   {}\n  \
         content {}\n",
        state.valid_at,
        state.known_at,
        state.partition,
        state.offset,
        state.owner_seq,
        state.exact_digest,
        state.content_digest
    );
    for memory in &state.memories {
        text.push_str(&format!("  {}\n", memory_line(memory)));
    }
    if !state.others.is_empty() {
        text.push_str(" not holding then:\n");
        for memory in &state.others {
            text.push_str(&format!("  {}\n", memory_line(memory)));
        }
    }
    for erasure in &state.erasures {
        text.push_str(&format!(
            "  erased on {} under {}: {} memories\n",
            erasure.recorded_at,
            erasure.erasure,
            erasure.memory_ids.len()
        ));
    }
    text
}

/// One memory in a line.
pub fn memory_line(memory: &Memory) -> String {
    let standing = &memory.standing;
    let to = standing
        .valid_to
        .map_or("…".to_owned(), |to| to.to_string());
    let dispute = standing
        .conflict_with
        .map(|with| format!(" disputed by {with}"))
        .unwrap_or_default();
    format!(
        "{} [{} {} {}] {} .. {}: {}{dispute}",
        memory.id,
        memory.claim.kind,
        memory.claim.subject,
        standing.status,
        standing.valid_from,
        to,
        memory.claim.text.expose()
    )
}

async fn show_explanation(node: &Node, args: &AuditExplainArgs) -> Result<Exit, Failure> {
    let only = args
        .owner
        .as_ref()
        .map(|owner| node.codec.keys().id_key().owner(owner));
    let Some(explanation) = explain(&*node.log, &node.codec, args.memory, only).await? else {
        return Err(Failure::does_not_hold(format!(
            "no decision names {}",
            args.memory
        )));
    };
    if args.json {
        print_json(&explanation)?;
    } else {
        crate::say_text!("{}", explanation_text(&explanation));
    }
    Ok(Exit::Fine)
}

/// An explanation as a person reads it.
pub fn explanation_text(explanation: &Explanation) -> String {
    let mut text = format!("{}\n", explanation.memory_id);
    match (&explanation.claim, &explanation.erased) {
        (_, Some(erased)) => text.push_str(&format!(
            "  erased on {} under {} ({})\n",
            erased.recorded_at, erased.erasure, erased.position
        )),
        (Some(claim), None) => text.push_str(&format!("  says: {}\n", claim.text.expose())),
        (None, None) => text.push_str("  its text cannot be read\n"),
    }
    if let Some(said) = &explanation.said {
        let marked = match said.quote {
            Some((from, to)) => format!(", quote at {from}..{to}"),
            None => String::new(),
        };
        text.push_str(&format!(
            "  said by {} at {} ({}, event {}{marked}):\n    {}\n",
            said.role,
            said.at,
            said.position,
            said.event_id,
            said.text.expose()
        ));
    }
    for happened in &explanation.history {
        let standing = happened.standing.as_ref().map(|standing| {
            let to = standing
                .valid_to
                .map_or("…".to_owned(), |to| to.to_string());
            format!(" -> {} {} .. {to}", standing.status, standing.valid_from)
        });
        let rules = if happened.rules.is_empty() {
            String::new()
        } else {
            format!(" by rule {}", happened.rules.join(", "))
        };
        text.push_str(&format!(
            "  {} {} {}{}{rules}, cause {}\n",
            happened.recorded_at,
            happened.position,
            happened.transition,
            standing.unwrap_or_default(),
            happened.cause
        ));
    }
    text
}

async fn show_verified(node: &Node, args: &AuditOwnerArgs) -> Result<Exit, Failure> {
    let only = args
        .owner
        .as_ref()
        .map(|owner| node.codec.keys().id_key().owner(owner));
    let verified = verify(&*node.log, &node.codec, only, Some(node.redecide())).await?;
    if args.json {
        print_json(&verified)?;
    } else {
        crate::say_text!("{}", verified_text(&verified));
        let digests = digests(&*node.log, &node.codec).await?;
        crate::say!(
            "digests over {} owners\n  exact   {}\n  content {}",
            digests.owners,
            digests.exact,
            digests.content
        );
    }
    Ok(if verified.is_good() {
        Exit::Fine
    } else {
        Exit::DoesNotHold
    })
}

/// A verification as a person reads it.
pub fn verified_text(verified: &Verified) -> String {
    let mut text = format!(
        "{} records, {} decisions, {} decided again the same, {} dropped by every fold, {} parts \
         unreadable (keys destroyed)\n",
        verified.records,
        verified.decisions,
        verified.redecided,
        verified.dropped,
        verified.unreadable_parts
    );
    match verified.bad.first() {
        None => text.push_str("the chain verifies\n"),
        Some(first) => text.push_str(&format!(
            "NOT GOOD: first bad record {}: {} ({} in all)\n",
            first.position,
            first.what,
            verified.bad.len()
        )),
    }
    text
}

async fn show_diff(node: &Node, args: &AuditOwnerArgs) -> Result<Exit, Failure> {
    let mut found = diff(
        &*node.log,
        &node.codec,
        &node.stores.projections(),
        node.embed.identity(),
    )
    .await?;
    if let Some(owner) = &args.owner {
        let key = node.codec.keys().id_key().owner(owner);
        found.drift.retain(|drift| drift.owner == key);
    }
    if args.json {
        print_json(&found)?;
    } else {
        crate::say_text!("{}", diff_text(&found));
    }
    Ok(if found.is_clean() {
        Exit::Fine
    } else {
        Exit::DoesNotHold
    })
}

/// A comparison as a person reads it.
pub fn diff_text(found: &Diff) -> String {
    let rows: Vec<String> = found
        .rows
        .iter()
        .map(|(store, rows)| format!("{store} {rows}"))
        .collect();
    let mut text = format!("{} owners; rows: {}\n", found.owners, rows.join(", "));
    for (store, records) in &found.behind {
        text.push_str(&format!(
            "{store} is {records} records behind the log; start serve, or rebuild it\n"
        ));
    }
    for drift in found.drift.iter().take(SHOWN) {
        text.push_str(&format!(
            "{} {} {} {}\n",
            drift.store, drift.what, drift.owner, drift.row
        ));
    }
    if found.drift.len() > SHOWN {
        text.push_str(&format!("… {} rows differ in all\n", found.drift.len()));
    }
    if found.is_clean() {
        text.push_str("every store equals the fold\n");
    }
    text
}

async fn show_balance(node: &Node, args: &AuditBalanceArgs) -> Result<Exit, Failure> {
    let counted = balance(&*node.log, &node.codec).await?;
    if args.json {
        print_json(&counted)?;
    } else {
        crate::say_text!("{}", balance_text(&counted));
    }
    Ok(if counted.is_exact() {
        Exit::Fine
    } else {
        Exit::DoesNotHold
    })
}

/// A balance as a person reads it.
pub fn balance_text(counted: &Balance) -> String {
    let decided: u64 = counted.decided.values().sum();
    let mut text = format!(
        "accepted {} = decided {decided} + in flight {} + parked {}\n",
        counted.accepted, counted.in_flight, counted.parked
    );
    for (code, count) in &counted.decided {
        text.push_str(&format!("  {code} {count}\n"));
    }
    text.push_str(&format!(
        "lost {}, duplicates {}, foreign {}\n",
        counted.lost, counted.answered_twice, counted.foreign
    ));
    text.push_str(if counted.is_exact() {
        "the balance is exact\n"
    } else {
        "NOT BALANCED\n"
    });
    text
}

async fn show_certificate(node: &Node, args: &AuditErasureArgs) -> Result<Exit, Failure> {
    let (copies, now) = (node.copies(), node.clock.now());
    let found = certificate(&*node.log, &node.codec, args.erasure, None, &copies, now).await?;
    let Some(found) = found else {
        return Err(Failure::wrong_use("no erasure with this id was accepted"));
    };
    print_json(&found)?;
    Ok(Exit::Fine)
}
