//! `export`: everything that is remembered of one owner, as one JSON document, out of the log.

use anamnesis_audit::replay::replay_owner;
use anamnesis_domain::digest;
use anamnesis_domain::time::Known;
use anamnesis_pipeline::history::History;
use anamnesis_pipeline::log::partition_of;
use serde_json::json;

use crate::cli::{Exit, ExportArgs};
use crate::config::Config;
use crate::failure::Failure;
use crate::node::Node;

/// # Errors
/// When the data folder cannot be read, or nothing is known of the owner.
pub async fn run(config: Config, args: ExportArgs) -> Result<Exit, Failure> {
    let node = Node::open_tool(config).await?;
    let key = node.codec.keys().id_key().owner(&args.owner);
    let (state, offset, _) = replay_owner(&*node.log, &node.codec, key, Known::Latest).await?;
    if state.seq == 0 {
        return Err(Failure::does_not_hold(
            "nothing is remembered of this owner",
        ));
    }
    let mut history = History::new(key);
    let skeleton = anamnesis_audit::replay::read_partition(
        &*node.log,
        &node.codec,
        partition_of(key, node.log.partitions()),
        Known::Latest,
        &mut |step| {
            let applied = matches!(
                &step.folded,
                anamnesis_pipeline::fold::Folded::Decision(owner, anamnesis_domain::skeleton::Verdict::Apply)
                    if *owner == key
            );
            if let (true, Some(decided)) = (applied, step.decided) {
                history.apply(&decided.decided, anamnesis_pipeline::fold::recorded(decided));
            }
        },
    )
    .await?;
    let rows = history.rows(|_| None);
    let versions: Vec<_> = rows.versions.iter().map(|(version, _)| version).collect();
    let document = json!({
        "format": "anamnesis-export/1",
        "owner": args.owner,
        "log_offset": offset.max(skeleton.next),
        "exact_digest": digest::exact(&state),
        "content_digest": digest::content(&state),
        "state": state,
        "versions": versions,
        "decisions": rows.decisions,
    });
    crate::say!(
        "{}",
        serde_json::to_string_pretty(&document).map_err(Failure::wrong_use)?
    );
    Ok(Exit::Fine)
}
