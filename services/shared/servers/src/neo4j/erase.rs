//! How do erased bytes leave the files of a server that rewrites none of its files?
//!
//! A rewrite puts an owner's new secret over the old one, and without the old one every word written
//! under it is noise ([`super::words`]). Two copies of the old secret are left: the page on disk until
//! the server's next checkpoint, and the server's transaction log until its file is deleted. Neo4j
//! Community has no command for either. It does both by itself, if it is configured to:
//!
//! - a checkpoint is due `db.checkpoint.interval.time` after a change;
//! - a log file is closed when it has `db.tx_log.rotation.size` bytes, and deleted at a later
//!   checkpoint under `db.tx_log.rotation.retention_policy=keep_none`.
//!
//! So compaction refuses a server that keeps its logs, writes as many bytes as fill the log file, and
//! waits for the checkpoints. What stays in the files afterwards, until Neo4j needs the place, are
//! freed records with numbers of erased versions (offsets, times, opaque ids), tokens, and sealed words
//! whose secret is gone. Copies that somebody else made of the files (backups, file system snapshots)
//! are out of reach.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anamnesis_pipeline::stores::{Store, StoreError};
use neo4rs::{BoltBytes, BoltType, Query, query};
use serde::Deserialize;
use tokio::time::{Instant, sleep};

use super::client::{Client, Failure, rows, unusable};
use super::settings::Neo4jConfig;

/// More than this is not written to fill a log file.
const ROTATION_BYTES_MAX: u64 = 16 << 20;

/// Nobody waits longer for one checkpoint.
const CHECKPOINT_INTERVAL_MAX: Duration = Duration::from_secs(60);

/// Bytes of one node that only fills the log.
const FILLER_BYTES: usize = 1 << 20;

/// A file that was closed is deleted at the second checkpoint after it.
const ROUNDS: u32 = 2;

/// So often, if the log files are watched; the server's disk may be slow.
const ROUNDS_MAX: u32 = 20;

const POLL: Duration = Duration::from_millis(100);

/// Nodes of one deleting transaction.
const DELETED_AT_ONCE: i64 = 5_000;

/// What the server does by itself.
struct Habits {
    rotation_bytes: u64,
    checkpoint_interval: Duration,
}

#[derive(Deserialize)]
struct Setting {
    name: String,
    value: String,
}

/// Waits until nothing that was overwritten before is left in the server's files.
///
/// # Errors
/// [`StoreError::Unusable`] for a server that keeps its transaction logs, with the settings to change.
pub(super) async fn compact(client: &Client, config: &Neo4jConfig) -> Result<(), StoreError> {
    let habits = client.call(config.deadline, || habits(client)).await?;
    let Some(data) = &config.server_data else {
        for _ in 0..ROUNDS {
            fill_log(client, config, &habits).await?;
            // It is looked for once in an interval whether a checkpoint is due; then it takes a while.
            sleep(habits.checkpoint_interval * 2 + Duration::from_secs(1)).await;
        }
        return Ok(());
    };
    let dir = data
        .join("transactions")
        .join(config.database.as_deref().unwrap_or("neo4j"));
    let old = log_files(&dir)?;
    for _ in 0..ROUNDS_MAX {
        fill_log(client, config, &habits).await?;
        let until = Instant::now() + habits.checkpoint_interval * 2 + Duration::from_secs(1);
        while Instant::now() < until {
            if log_files(&dir)?.is_disjoint(&old) {
                return Ok(());
            }
            sleep(POLL).await;
        }
    }
    Err(StoreError::Unavailable {
        store: Store::Graph,
        reason: "neo4j: it has not yet deleted its old transaction logs".to_owned(),
    })
}

async fn habits(client: &Client) -> Result<Habits, Failure> {
    let sql = "SHOW SETTINGS 'db.tx_log.rotation.retention_policy', 'db.tx_log.rotation.size',
                   'db.checkpoint.interval.time' YIELD name, value RETURN name, value";
    let mut settings = Vec::new();
    for row in client.ask(query(sql)).await? {
        let setting: Setting = row.to().map_err(neo4rs::Error::from)?;
        settings.push(setting);
    }
    Ok(read_habits(&settings)?)
}

fn read_habits(settings: &[Setting]) -> Result<Habits, StoreError> {
    let value = |name: &str| {
        let setting = settings.iter().find(|setting| setting.name == name);
        setting.map_or("unknown", |setting| setting.value.as_str())
    };
    let refused = |name: &str, wanted: &str| {
        unusable(format!(
            "erased bytes would stay in its transaction logs: {name} is {}, and must be {wanted}",
            value(name)
        ))
    };
    let retention = "db.tx_log.rotation.retention_policy";
    if !matches!(value(retention), "keep_none" | "false") {
        return Err(refused(retention, "keep_none"));
    }
    let size = "db.tx_log.rotation.size";
    let rotation_bytes = bytes(value(size)).filter(|bytes| *bytes <= ROTATION_BYTES_MAX);
    let interval = "db.checkpoint.interval.time";
    let checkpoint_interval = humantime::parse_duration(value(interval))
        .ok()
        .filter(|interval| *interval <= CHECKPOINT_INTERVAL_MAX);
    Ok(Habits {
        rotation_bytes: rotation_bytes.ok_or_else(|| refused(size, "at most 16m"))?,
        checkpoint_interval: checkpoint_interval.ok_or_else(|| refused(interval, "at most 60s"))?,
    })
}

/// Reads an amount as the server prints it: `1.00MiB`.
fn bytes(text: &str) -> Option<u64> {
    let digits = text.find(|c: char| !(c.is_ascii_digit() || c == '.'))?;
    let (number, unit) = text.split_at(digits);
    let unit = match unit {
        "B" => 1.0,
        "KiB" => 1024.0,
        "MiB" => 1024.0 * 1024.0,
        "GiB" => 1024.0 * 1024.0 * 1024.0,
        _ => return None,
    };
    // Rounded up: the print is rounded to two digits.
    Some(((number.parse::<f64>().ok()? + 0.01) * unit) as u64)
}

/// Writes more than one log file holds, and deletes it again.
async fn fill_log(
    client: &Client,
    config: &Neo4jConfig,
    habits: &Habits,
) -> Result<(), StoreError> {
    let filler = "CREATE (:AnamnesisFiller {generation: $generation, bytes: $bytes})";
    let mut left = habits.rotation_bytes as usize + FILLER_BYTES / 4;
    while left > 0 {
        let count = left.min(FILLER_BYTES);
        let bytes = BoltType::Bytes(BoltBytes::new(vec![0; count].into()));
        let fill = query(filler)
            .param("generation", config.generation.as_str())
            .param("bytes", bytes);
        client
            .call(config.write_deadline, || run(client, fill.clone()))
            .await?;
        left -= count;
    }
    delete_all(client, config, "AnamnesisFiller").await
}

fn log_files(dir: &Path) -> Result<BTreeSet<PathBuf>, StoreError> {
    let unreadable = |error: std::io::Error| {
        unusable(format!(
            "its transaction logs cannot be listed ({})",
            error.kind()
        ))
    };
    let mut files = BTreeSet::new();
    for entry in std::fs::read_dir(dir).map_err(unreadable)? {
        let path = entry.map_err(unreadable)?.path();
        let name = path.file_name().and_then(|name| name.to_str());
        if name.is_some_and(|name| name.starts_with("neostore.transaction.db.")) {
            files.insert(path);
        }
    }
    Ok(files)
}

/// Runs one statement in a transaction of its own. Gives its number, if it has one.
async fn run(client: &Client, statement: Query) -> Result<i64, Failure> {
    let mut transaction = client.begin().await?;
    let rows = rows(&mut transaction, statement).await?;
    transaction.commit().await?;
    match rows.first() {
        Some(row) => Ok(row.get("count").map_err(neo4rs::Error::from)?),
        None => Ok(0),
    }
}

async fn run_until_done(
    client: &Client,
    config: &Neo4jConfig,
    statement: &str,
) -> Result<(), StoreError> {
    let statement = query(statement)
        .param("generation", config.generation.as_str())
        .param("limit", DELETED_AT_ONCE);
    while client
        .call(config.write_deadline, || run(client, statement.clone()))
        .await?
        > 0
    {}
    Ok(())
}

async fn delete_all(client: &Client, config: &Neo4jConfig, label: &str) -> Result<(), StoreError> {
    let statement = format!(
        "MATCH (n:{label} {{generation: $generation}}) WITH n LIMIT $limit
         DETACH DELETE n RETURN count(*) AS count"
    );
    run_until_done(client, config, &statement).await
}

/// Deletes everything of a generation, whatever state it is in. Its secrets are overwritten first, in
/// transactions of their own: a node that is deleted keeps its bytes.
pub(super) async fn delete_generation(
    client: &Client,
    config: &Neo4jConfig,
) -> Result<(), StoreError> {
    let blank = super::words::BLANK;
    let overwrite = format!(
        "MATCH (o:AnamnesisOwner {{generation: $generation}}) WHERE o.secret_0 <> {blank}
         WITH o LIMIT $limit
         SET o.secret_0 = {blank}, o.secret_1 = {blank}, o.secret_2 = {blank}, o.secret_3 = {blank}
         RETURN count(*) AS count"
    );
    run_until_done(client, config, &overwrite).await?;
    // The identity last: until then a half deleted generation is seen to be one.
    for label in [
        "AnamnesisVersion",
        "AnamnesisEntity",
        "AnamnesisOwner",
        "AnamnesisFiller",
        "AnamnesisPartition",
        "AnamnesisGeneration",
    ] {
        delete_all(client, config, label).await?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(retention: &str, size: &str, interval: &str) -> Result<(u64, Duration), String> {
        let setting = |name: &str, value: &str| Setting {
            name: name.to_owned(),
            value: value.to_owned(),
        };
        let settings = [
            setting("db.tx_log.rotation.retention_policy", retention),
            setting("db.tx_log.rotation.size", size),
            setting("db.checkpoint.interval.time", interval),
        ];
        let habits = read_habits(&settings).map_err(|error| error.to_string())?;
        Ok((habits.rotation_bytes >> 10, habits.checkpoint_interval))
    }

    #[test]
    fn a_server_that_keeps_its_logs_is_refused() {
        assert_eq!(
            check("keep_none", "128.00KiB", "1s"),
            Ok((128, Duration::from_secs(1)))
        );
        for (retention, size, interval, expected) in [
            (
                "2 days 2G",
                "1.00MiB",
                "1s",
                "retention_policy is 2 days 2G, and must be keep_none",
            ),
            (
                "keep_none",
                "256.00MiB",
                "1s",
                "rotation.size is 256.00MiB, and must be at most 16m",
            ),
            (
                "keep_none",
                "1.00MiB",
                "15m",
                "interval.time is 15m, and must be at most 60s",
            ),
            ("keep_none", "many", "1s", "rotation.size is many"),
        ] {
            let error = check(retention, size, interval).unwrap_err();
            assert!(error.contains(expected), "{error}");
        }
    }
}
