//! Disposable snapshots that bound how much of the log a start reads. They hold headers only: no key
//! and no word of anybody. A lost or stale snapshot costs time.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use anamnesis_domain::ids::LogId;
use async_trait::async_trait;
use serde::{Deserialize, Serialize};

/// Contract: `load` gives what the last `save` of that name stored, whole, or nothing. Errors are
/// treated as "nothing": a snapshot is never needed.
#[async_trait]
pub trait Snapshots: Send + Sync {
    async fn load(&self, name: &str) -> Option<Vec<u8>>;
    async fn save(&self, name: &str, bytes: Vec<u8>);
}

pub type Snaps = Arc<dyn Snapshots>;

/// A value with the log it belongs to, so that a snapshot of another log is not believed.
#[derive(Serialize, Deserialize)]
struct Stamped<T> {
    log_id: LogId,
    format: u32,
    value: T,
}

/// Changes when the meaning of a stored value changes.
const FORMAT: u32 = 1;

/// The stored value of `name`, if it belongs to this log and can be read.
pub async fn load<T: for<'de> Deserialize<'de>>(
    snapshots: &dyn Snapshots,
    name: &str,
    log_id: LogId,
) -> Option<T> {
    let bytes = snapshots.load(name).await?;
    let stamped: Stamped<T> = serde_json::from_slice(&bytes).ok()?;
    (stamped.log_id == log_id && stamped.format == FORMAT).then_some(stamped.value)
}

pub async fn save<T: Serialize + Sync>(
    snapshots: &dyn Snapshots,
    name: &str,
    log_id: LogId,
    value: &T,
) {
    if let Ok(bytes) = serde_json::to_vec(&Stamped {
        log_id,
        format: FORMAT,
        value,
    }) {
        snapshots.save(name, bytes).await;
    }
}

/// Snapshots in memory.
#[derive(Default)]
pub struct MemorySnapshots(Mutex<BTreeMap<String, Vec<u8>>>);

#[async_trait]
impl Snapshots for MemorySnapshots {
    async fn load(&self, name: &str) -> Option<Vec<u8>> {
        self.0.lock().ok()?.get(name).cloned()
    }

    async fn save(&self, name: &str, bytes: Vec<u8>) {
        if let Ok(mut all) = self.0.lock() {
            all.insert(name.to_owned(), bytes);
        }
    }
}

/// Snapshots as files of one folder, replaced by rename so that a reader never sees half of one.
pub struct FileSnapshots {
    folder: PathBuf,
}

impl FileSnapshots {
    pub fn new(folder: PathBuf) -> Self {
        Self { folder }
    }
}

#[async_trait]
impl Snapshots for FileSnapshots {
    async fn load(&self, name: &str) -> Option<Vec<u8>> {
        tokio::fs::read(self.folder.join(format!("{name}.json")))
            .await
            .ok()
    }

    async fn save(&self, name: &str, bytes: Vec<u8>) {
        let part = self.folder.join(format!("{name}.part"));
        let whole = self.folder.join(format!("{name}.json"));
        let written = async {
            tokio::fs::create_dir_all(&self.folder).await?;
            tokio::fs::write(&part, bytes).await?;
            tokio::fs::rename(&part, &whole).await
        };
        if let Err(error) = written.await {
            tracing::warn!(%error, "a snapshot was not written; the next start reads more of the log");
        }
    }
}
