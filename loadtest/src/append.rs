//! Does a process that appends for a long time keep its size?

use std::path::PathBuf;
use std::time::Instant;

use anamnesis_domain::ids::OwnerKey;
use anamnesis_domain::input::Topic;
use anamnesis_pipeline::log::NewRecord;
use clap::Args;

use crate::open;
use crate::report::{machine, resident_mib};

/// Records of one append, and bytes of one record.
const BATCH: usize = 500;
const BYTES: usize = 1_000;
/// Looks at the size: the first is taken when a tenth is written, as everything is in use by then.
const LOOKS: usize = 10;

#[derive(Args)]
pub(crate) struct AppendArgs {
    /// A configuration that names Kafka. The records go to `inbox`, where nobody can read them: use a log
    /// of its own, and no services.
    #[arg(long)]
    config: PathBuf,
    #[arg(long, default_value_t = 1_000_000)]
    records: usize,
}

pub(crate) async fn run(args: AppendArgs) -> anyhow::Result<()> {
    let scratch = tempfile::tempdir()?;
    let base = open(&args.config, scratch.path()).await?;
    let started = Instant::now();
    let mut sizes = Vec::new();
    let (mut written, look) = (0, (args.records / LOOKS).max(1));
    while written < args.records {
        let count = BATCH.min(args.records - written);
        let records = (written..written + count).map(|n| NewRecord {
            key: OwnerKey::from_bytes((n as u128).to_be_bytes()),
            payload: vec![b'x'; BYTES].into(),
        });
        let partition = (written / BATCH) as u32 % base.log.partitions();
        base.log
            .append(Topic::Inbox, partition, records.collect())
            .await?;
        let before = written / look;
        written += count;
        if written / look > before {
            sizes.push(resident_mib(std::process::id())?);
        }
    }
    println!("machine: {}", machine());
    println!(
        "{written} records of {BYTES} bytes in {:.1} s; resident MiB at each tenth: {sizes:?}",
        started.elapsed().as_secs_f64()
    );
    Ok(())
}
