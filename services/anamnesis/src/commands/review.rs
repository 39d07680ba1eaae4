//! `review …`: what waits for a person on the command line, and how a person decides.

use anamnesis_domain::memory::Kind;
use anamnesis_domain::owner::OwnerScope;
use anamnesis_domain::text::Text;
use anamnesis_intake::commands::{Order, ReviewId};
use anamnesis_intake::request::ReviewDecision;
use anamnesis_pipeline::caller::Caller;
use anamnesis_pipeline::reviews;
use anamnesis_recall::reviews::{Asked, Item, State};
use anamnesis_recall::service::RecallError;
use serde_json::Value;

use crate::cli::{Exit, ReviewDecideArgs, ReviewListArgs, ReviewState};
use crate::config::Config;
use crate::failure::Failure;
use crate::node::Node;

/// Items of one page; the command goes on by itself.
const PAGE: usize = 100;

fn unreadable(error: &RecallError) -> Failure {
    if error.is_retryable() {
        Failure::unreachable(error)
    } else {
        Failure::does_not_hold(error)
    }
}

/// # Errors
/// When the data folder cannot be read.
pub async fn list(config: Config, args: ReviewListArgs) -> Result<Exit, Failure> {
    let node = Node::open_tool(config).await?;
    node.settle().await?;
    let (recall, _receipts) = node.recall();
    let key = node.codec.keys().id_key().owner(&args.owner);
    let state = match args.state {
        ReviewState::Open => State::Open,
        ReviewState::Expired => State::Expired,
        ReviewState::Decided => State::Decided,
        ReviewState::Rejected => State::Rejected,
    };
    let mut cursor: Option<String> = None;
    let mut count = 0;
    loop {
        let asked = Asked {
            owner: &args.owner,
            scope: OwnerScope::of_verified_caller(key),
            state,
            // The operator of this machine reads the folder anyway.
            kinds: Kind::ALL.to_vec(),
            limit: PAGE,
            cursor: cursor.as_deref(),
        };
        let page = recall.reviews(&asked).await.map_err(|e| unreadable(&e))?;
        for item in &page.reviews {
            count += 1;
            if args.json {
                crate::say!(
                    "{}",
                    serde_json::to_string(item).map_err(Failure::wrong_use)?
                );
            } else {
                crate::say_text!("{}", in_words(item));
            }
        }
        cursor = page.cursor;
        if cursor.is_none() {
            break;
        }
    }
    if !args.json {
        crate::say!("{count} {}", state.as_str());
    }
    Ok(Exit::Fine)
}

/// One item over a few lines, as a reviewer reads it.
fn in_words(item: &Item) -> String {
    let mut text = format!("{} {}", item.id, item.why);
    if let Some(rule) = &item.rule {
        text.push_str(&format!(" by {rule}"));
    }
    if let Some(version) = item.expected_version {
        text.push_str(&format!(", version {version}"));
    }
    if let (Some(opened), Some(expires)) = (item.opened_at, item.expires_at) {
        text.push_str(&format!(", open since {opened}, until {expires}"));
    }
    text.push('\n');
    for (name, side) in [("new", &item.new), ("old", &item.old)] {
        if !side.is_null() {
            text.push_str(&format!("  {name}: {}\n", side_in_words(side)));
        }
    }
    if let Some(decision) = &item.decision {
        let part = |name: &str| decision[name].as_str().unwrap_or("?").to_owned();
        text.push_str(&format!(
            "  decided: {} by {} at {}: {}\n",
            part("decision"),
            part("by"),
            part("at"),
            part("reason")
        ));
    }
    if item.has_hidden_characters {
        text.push_str("  hidden characters are written out as [U+…]\n");
    }
    text
}

fn side_in_words(side: &Value) -> String {
    let words = side["text"].as_str().unwrap_or("(not kept)");
    let Some(role) = side["evidence"]["role"].as_str() else {
        return words.to_owned();
    };
    let evidence = &side["evidence"];
    format!(
        "{words} [{role}, said {}, weight {}, confirmed {}×, from {}, since {}]",
        evidence["said_at"].as_str().unwrap_or("?"),
        evidence["weight"],
        evidence["confirmations"],
        side["source"]["source"].as_str().unwrap_or("?"),
        side["valid_from"].as_str().unwrap_or("?"),
    )
}

/// # Errors
/// When the data folder cannot be read, or the question is not there or not open.
pub async fn decide(config: Config, args: ReviewDecideArgs) -> Result<Exit, Failure> {
    let Some(id) = ReviewId::parse(&args.id) else {
        return Err(Failure::wrong_use(
            "--id is not one that `review list` shows",
        ));
    };
    let node = Node::open_tool(config).await?;
    node.settle().await?;
    let intake = node.intake();
    let mut caller = Caller::local(&node.config.tenant);
    if let Some(actor) = args.actor {
        caller.name = actor;
    }
    let order = Order {
        caller: &caller,
        owner: &args.owner,
        key: None,
    };
    let ask = ReviewDecision {
        expected_version: args.expected_version,
        text: args.text.as_deref().map(Text::from),
        kind: args.kind,
        attribute: args.attribute,
        value: args.value,
        ..ReviewDecision::new(args.decision, args.reason)
    };
    let ordered = intake.review(&order, id, &ask).await?;
    node.settle().await?;
    let records = &node.stores.records;
    let decided = records.decision(ordered.scope, ordered.event).await?;
    let outcome = decided.map_or("not decided yet".to_owned(), |row| row.outcome);
    crate::say!("{outcome}");
    if outcome == "stored" {
        return Ok(Exit::Fine);
    }
    let history = records
        .history(ordered.scope, intake.reviewed_memory(id))
        .await?;
    let latest = history.last().map(|version| &version.memory);
    if let Some(review) = latest.and_then(|memory| reviews::decided(memory.review.as_ref())) {
        crate::say!(
            "decided before: {} by {} at {}",
            review.verdict,
            review.actor.as_deref().unwrap_or("?"),
            review.at.map_or("?".to_owned(), |at| at.to_string())
        );
    }
    Ok(Exit::DoesNotHold)
}
