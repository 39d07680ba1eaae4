//! `rebuild`: a new generation of a store from the log, compared with the fold, then switched; or back to
//! the one before.

use std::sync::Arc;

use anamnesis_audit::diff::diff;
use anamnesis_domain::input::Topic;
use anamnesis_pipeline::consumer::Stage;
use anamnesis_pipeline::stores::{Projection, Store};
use anamnesis_servers::generations::before;
use anamnesis_servers::live::LOOK_EVERY;
use indicatif::{ProgressBar, ProgressStyle};

use crate::cli::{Exit, RebuildArgs, RebuildStore};
use crate::commands::audit::diff_text;
use crate::config::Config;
use crate::failure::Failure;
use crate::node::Node;

/// # Errors
/// When the folder is in use, or the new generation does not equal the fold: the old one then stays.
pub async fn run(config: Config, args: RebuildArgs) -> Result<Exit, Failure> {
    let stores = match args.store {
        RebuildStore::Records => vec![Store::Records],
        RebuildStore::Text => vec![Store::Text],
        RebuildStore::Vectors => vec![Store::Vectors],
        RebuildStore::Graph => vec![Store::Graph],
        RebuildStore::All => Store::ALL.to_vec(),
    };
    if args.back {
        let node = Node::open_tool(config).await?;
        for store in stores {
            back(&node, store).await?;
        }
        return Ok(Exit::Fine);
    }
    let node = Node::open_tool_with_next(config, &stores).await?;
    for store in stores {
        rebuild(&node, store).await?;
        crate::say!("{store}: rebuilt from the log, equal to the fold, switched");
    }
    Ok(Exit::Fine)
}

/// Fills the next generation of one store, which the node has opened, and switches to it.
///
/// # Errors
/// As [`run`].
pub async fn rebuild(node: &Node, store: Store) -> Result<(), Failure> {
    let fresh = node.projection(store);
    fill(node, &fresh).await?;
    let found = diff(
        &*node.log,
        &node.codec,
        std::slice::from_ref(&fresh),
        node.embed.identity(),
    )
    .await?;
    if !found.is_clean() {
        return Err(Failure::does_not_hold(format!(
            "{store}: the new generation does not equal the fold; the old one stays in use\n{}",
            diff_text(&found)
        )));
    }
    match node.remote.get(&store) {
        None => node.generations.switch(store).map_err(Failure::unreachable),
        Some(held) => {
            let Some(built) = &held.building else {
                return Err(Failure::wrong_use(format!(
                    "no generation of {store} was built"
                )));
            };
            // Whoever fills the live one goes on with the new one, from where it stands.
            Ok(held.generations.switch(built).await?)
        }
    }
}

/// Makes the generation before the live one the live one again, and deletes the one that was: nobody
/// would keep it up to date, so no erasure would reach it.
async fn back(node: &Node, store: Store) -> Result<(), Failure> {
    let Some(held) = node.remote.get(&store) else {
        return Err(Failure::wrong_use(format!(
            "{store} is on no server: its generation before was deleted when it was switched; rebuild it"
        )));
    };
    let generations = &held.generations;
    let all = generations.list().await?;
    let live = generations.live().await?.unwrap_or_default();
    let Some(before) = before(&all, &live) else {
        return Err(Failure::does_not_hold(format!(
            "{store}: there is no generation before {live}: none was, or an erasure has ended the way back"
        )));
    };
    generations.switch(before).await?;
    // By then every process asks the other one.
    tokio::time::sleep(LOOK_EVERY * 2).await;
    if let Err(error) = generations.delete(&live).await {
        return Err(Failure::unreachable(format!(
            "{store}: {before} is live again, but {live} could not be deleted ({error}): only an erasure \
             a day after it was begun deletes it now"
        )));
    }
    crate::say!(
        "{store}: {before} is live again and catches up from where it stands; {live} is deleted"
    );
    Ok(())
}

/// Replays the log into a store, with a progress bar.
async fn fill(node: &Node, store: &Arc<dyn Projection>) -> Result<(), Failure> {
    let mut total = 0;
    for partition in 0..node.log.partitions() {
        total += node.log.end(Topic::Memories, partition).await?;
    }
    let bar = ProgressBar::new(total);
    if let Ok(style) = ProgressStyle::with_template("{msg} [{bar:40}] {pos}/{len} {eta}") {
        bar.set_style(style);
    }
    bar.set_message(format!("rebuilding {}", store.store()));
    let stage: Arc<dyn Stage> = Arc::new(node.indexer(vec![store.clone()]));
    let mut flow = node.flow_of(&[stage]);
    let replay = flow.settle();
    tokio::pin!(replay);
    loop {
        tokio::select! {
            done = &mut replay => {
                done?;
                bar.finish_and_clear();
                return Ok(());
            }
            () = tokio::time::sleep(std::time::Duration::from_millis(200)) => {
                let mut done = 0;
                for partition in 0..node.log.partitions() {
                    done += store.checkpoint(partition).await?.map_or(0, |c| c.next);
                }
                bar.set_position(done);
            }
        }
    }
}
