//! `parked …`: owners that wait behind a record which a stage could not apply.

use anamnesis_domain::ids::OwnerKey;
use anamnesis_domain::input::Topic;
use anamnesis_domain::receipt::Parked;
use anamnesis_domain::skeleton::Skeleton;
use anamnesis_pipeline::codec::{Clear, read_clear};
use anamnesis_pipeline::consumer::BATCH_BYTES_MAX;
use anamnesis_pipeline::fold::fold_skeleton;

use crate::cli::{Exit, ParkedArgs};
use crate::config::Config;
use crate::failure::Failure;
use crate::node::Node;

/// # Errors
/// When the data folder cannot be read.
pub async fn list(config: Config, args: ParkedArgs) -> Result<Exit, Failure> {
    let node = Node::open_tool(config).await?;
    let parked = find(&node, &args).await?;
    if parked.is_empty() {
        crate::say!("nobody is parked");
        return Ok(Exit::Fine);
    }
    for parked in &parked {
        crate::say!(
            "{} {} behind {}: {} (since {})",
            parked.stage,
            parked.owner,
            parked.first,
            parked.reason,
            parked.at
        );
    }
    Ok(Exit::DoesNotHold)
}

/// Beginning a stage reads the records of parked owners again; so this drives the stages once.
///
/// # Errors
/// When the data folder cannot be read or a stage fails.
pub async fn retry(config: Config, args: ParkedArgs) -> Result<Exit, Failure> {
    let node = Node::open_tool(config).await?;
    let before = find(&node, &args).await?.len();
    node.settle().await?;
    let after = find(&node, &args).await?.len();
    crate::say!(
        "{} released, {after} still parked",
        before.saturating_sub(after)
    );
    Ok(if after == 0 {
        Exit::Fine
    } else {
        Exit::DoesNotHold
    })
}

async fn find(node: &Node, args: &ParkedArgs) -> Result<Vec<Parked>, Failure> {
    let only: Option<OwnerKey> = args
        .owner
        .as_ref()
        .map(|owner| node.codec.keys().id_key().owner(owner));
    let mut found = Vec::new();
    for partition in 0..node.log.partitions() {
        let mut skeleton = Skeleton::default();
        let end = node.log.end(Topic::Memories, partition).await?;
        fold_skeleton(&*node.log, partition, &mut skeleton, end).await?;
        read_extractor(node, partition, &mut skeleton).await?;
        found.extend(skeleton.parked_owners().cloned());
    }
    found.retain(|parked| only.is_none_or(|only| only == parked.owner));
    Ok(found)
}

/// The extractor's parking notes stand in `candidates`.
async fn read_extractor(
    node: &Node,
    partition: u32,
    skeleton: &mut Skeleton,
) -> Result<(), Failure> {
    let end = node.log.end(Topic::Candidates, partition).await?;
    let mut from = 1;
    while from < end {
        let records = node
            .log
            .read(Topic::Candidates, partition, from, 2_000, BATCH_BYTES_MAX)
            .await?;
        let Some(last) = records.last() else { break };
        from = last.position.offset + 1;
        for record in &records {
            match read_clear(&record.payload) {
                Ok(Clear::Parked(parked)) => skeleton.parked(record.position.offset, parked),
                Ok(Clear::Unparked(unparked)) => {
                    skeleton.unparked(record.position.offset, &unparked);
                }
                Ok(_) | Err(_) => (),
            }
        }
    }
    Ok(())
}
