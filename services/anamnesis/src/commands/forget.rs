//! `forget`: restrict or erase, and wait until the stores have done it.

use anamnesis_domain::text::Text;
use anamnesis_intake::commands::Order;
use anamnesis_intake::request::{ForgetMode as Mode, Targets};
use anamnesis_pipeline::caller::Caller;

use crate::cli::{Exit, ForgetArgs, ForgetMode};
use crate::config::Config;
use crate::failure::Failure;
use crate::node::Node;

/// # Errors
/// When the data folder cannot be read, or it is not clear what should be forgotten.
pub async fn run(config: Config, args: ForgetArgs) -> Result<Exit, Failure> {
    let node = Node::open_tool(config).await?;
    node.settle().await?;
    let intake = node.intake();
    let caller = Caller::local(&node.config.tenant);
    let order = Order {
        caller: &caller,
        owner: &args.owner,
        key: None,
    };
    let (source, message) = match (&args.target.source, &args.target.event) {
        (Some(source), Some(event)) => (Some(source.clone()), Some(event.clone())),
        (source, _) => (source.clone(), None),
    };
    let targets = Targets {
        memory_ids: (!args.target.memory.is_empty()).then(|| args.target.memory.clone()),
        source,
        message,
        all: args.target.all.then_some(true),
    };
    let mode = match args.mode {
        ForgetMode::Restrict => Mode::Restrict,
        ForgetMode::Erase => Mode::Erase,
    };
    let ordered = intake
        .forget(&order, &targets, mode, &Text::new(args.reason.as_str()))
        .await?;
    node.settle().await?;
    let decided = node
        .stores
        .records
        .decision(ordered.scope, ordered.event)
        .await?;
    let outcome = decided.map_or("not decided yet".to_owned(), |row| row.outcome);
    match ordered.erasure {
        Some(erasure) => crate::say!("{outcome}: {erasure}, keys destroyed, stores rewritten"),
        None => crate::say!("{outcome}"),
    }
    Ok(if outcome == "stored" {
        Exit::Fine
    } else {
        Exit::DoesNotHold
    })
}
