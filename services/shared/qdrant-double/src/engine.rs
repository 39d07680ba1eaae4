//! Where are the collections, and who may touch one when?

use std::collections::{BTreeMap, HashMap};
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use qdrant_edge::{
    CreateIndex, EdgeConfig, EdgeShard, FieldIndexOperations, OperationError, OperationResult,
    PayloadFieldSchema, UpdateOperation,
};
use tonic::Status;

/// One collection. `None` once it is deleted.
type Slot = Arc<RwLock<Option<EdgeShard>>>;

pub(crate) struct Engine {
    dir: PathBuf,
    state: Mutex<State>,
    /// Held as long as the process lives: two of them in one folder would spoil it.
    _lock: File,
}

struct State {
    collections: HashMap<String, Slot>,
    /// Alias to collection.
    aliases: BTreeMap<String, String>,
}

/// One change of the aliases.
pub(crate) enum AliasChange {
    Set { alias: String, collection: String },
    Delete { alias: String },
}

const COLLECTIONS: &str = "collections";
const ALIASES: &str = "aliases.json";

impl Engine {
    pub(crate) fn open(dir: &Path) -> Result<Self, Box<dyn std::error::Error>> {
        fs::create_dir_all(dir.join(COLLECTIONS))?;
        let lock = File::create(dir.join("lock"))?;
        lock.try_lock()
            .map_err(|_| "the folder is in use by another process")?;
        let aliases = match fs::read(dir.join(ALIASES)) {
            Ok(bytes) => serde_json::from_slice(&bytes)?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => BTreeMap::new(),
            Err(error) => return Err(error.into()),
        };
        let mut collections = HashMap::new();
        for entry in fs::read_dir(dir.join(COLLECTIONS))? {
            let path = entry?.path();
            let name = path
                .file_name()
                .and_then(|name| name.to_str())
                .unwrap_or_default()
                .to_owned();
            // Half made, or half deleted.
            if name.starts_with('.') {
                fs::remove_dir_all(&path)?;
                continue;
            }
            let shard = EdgeShard::load(&path, None)?;
            index_again(&shard)?;
            collections.insert(name, Arc::new(RwLock::new(Some(shard))));
        }
        Ok(Self {
            dir: dir.to_owned(),
            state: Mutex::new(State {
                collections,
                aliases,
            }),
            _lock: lock,
        })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.join(COLLECTIONS).join(name)
    }

    pub(crate) fn create(&self, name: &str, config: EdgeConfig) -> Result<(), Status> {
        let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        if name.is_empty() || name.starts_with('.') || !name.chars().all(is_plain) {
            return Err(Status::invalid_argument(
                "a collection's name is of a-z, 0-9, -, _ and .",
            ));
        }
        let mut state = self.state();
        if state.collections.contains_key(name) || state.aliases.contains_key(name) {
            return Err(Status::already_exists(format!(
                "Collection `{name}` already exists!"
            )));
        }
        let half_made = self.path(&format!(".{name}"));
        fs::create_dir_all(&half_made).map_err(|error| failed(&error))?;
        EdgeShard::new(&half_made, config).map_err(|error| explain(&error))?;
        let path = self.path(name);
        fs::rename(&half_made, &path).map_err(|error| failed(&error))?;
        let shard = EdgeShard::load(&path, None).map_err(|error| explain(&error))?;
        let slot = Arc::new(RwLock::new(Some(shard)));
        state.collections.insert(name.to_owned(), slot);
        Ok(())
    }

    /// Whether there was one.
    pub(crate) fn delete(&self, name: &str) -> Result<bool, Status> {
        let mut state = self.state();
        let Some(slot) = state.collections.remove(name) else {
            return Ok(false);
        };
        state.aliases.retain(|_, collection| collection != name);
        self.save_aliases(&state.aliases)?;
        let half_deleted = self.path(&format!(".{name}"));
        // Nobody may be writing when the files go.
        let mut shard = slot.write().unwrap_or_else(PoisonError::into_inner);
        shard.take();
        fs::rename(self.path(name), &half_deleted).map_err(|error| failed(&error))?;
        fs::remove_dir_all(&half_deleted).map_err(|error| failed(&error))?;
        Ok(true)
    }

    pub(crate) fn collections(&self) -> Vec<String> {
        let mut names: Vec<String> = self.state().collections.keys().cloned().collect();
        names.sort();
        names
    }

    pub(crate) fn exists(&self, name: &str) -> bool {
        let state = self.state();
        let name = state.aliases.get(name).map_or(name, String::as_str);
        state.collections.contains_key(name)
    }

    pub(crate) fn aliases(&self) -> BTreeMap<String, String> {
        self.state().aliases.clone()
    }

    /// All of them or none.
    pub(crate) fn change_aliases(&self, changes: Vec<AliasChange>) -> Result<(), Status> {
        let mut state = self.state();
        let mut aliases = state.aliases.clone();
        for change in changes {
            match change {
                AliasChange::Set { alias, collection } => {
                    if !state.collections.contains_key(&collection) {
                        return Err(missing(&collection));
                    }
                    if state.collections.contains_key(&alias) {
                        return Err(Status::already_exists(
                            "a collection has the name of the alias",
                        ));
                    }
                    aliases.insert(alias, collection);
                }
                AliasChange::Delete { alias } => {
                    aliases.remove(&alias);
                }
            }
        }
        self.save_aliases(&aliases)?;
        state.aliases = aliases;
        Ok(())
    }

    fn save_aliases(&self, aliases: &BTreeMap<String, String>) -> Result<(), Status> {
        let path = self.dir.join(ALIASES);
        let new = self.dir.join("aliases.new");
        let bytes = serde_json::to_vec(aliases).map_err(|error| failed(&error))?;
        fs::write(&new, bytes)
            .and_then(|()| fs::rename(&new, &path))
            .map_err(|error| failed(&error))
    }

    fn slot(&self, name: &str) -> Result<Slot, Status> {
        let state = self.state();
        let collection = state.aliases.get(name).map_or(name, String::as_str);
        state
            .collections
            .get(collection)
            .cloned()
            .ok_or_else(|| missing(name))
    }

    /// Asks a collection, beside others who ask.
    pub(crate) async fn read<T: Send + 'static>(
        self: &Arc<Self>,
        name: String,
        ask: impl FnOnce(&EdgeShard) -> OperationResult<T> + Send + 'static,
    ) -> Result<T, Status> {
        let engine = self.clone();
        blocking(move || {
            let slot = engine.slot(&name)?;
            let shard = slot.read().unwrap_or_else(PoisonError::into_inner);
            let shard = shard.as_ref().ok_or_else(|| missing(&name))?;
            ask(shard).map_err(|error| explain(&error))
        })
        .await
    }

    /// Changes a collection, alone, and flushes it.
    pub(crate) async fn write<T: Send + 'static>(
        self: &Arc<Self>,
        name: String,
        change: impl FnOnce(&EdgeShard) -> OperationResult<T> + Send + 'static,
    ) -> Result<T, Status> {
        let engine = self.clone();
        blocking(move || {
            let slot = engine.slot(&name)?;
            // The engine's flush gives up when anybody else holds the shard.
            let shard = slot.write().unwrap_or_else(PoisonError::into_inner);
            let shard = shard.as_ref().ok_or_else(|| missing(&name))?;
            let changed = change(shard);
            shard.flush();
            changed.map_err(|error| explain(&error))
        })
        .await
    }

    /// Anything else that touches the disk.
    pub(crate) async fn work<T: Send + 'static>(
        self: &Arc<Self>,
        work: impl FnOnce(&Self) -> Result<T, Status> + Send + 'static,
    ) -> Result<T, Status> {
        let engine = self.clone();
        blocking(move || work(&engine)).await
    }
}

/// Makes every index of payloads anew from the payloads. The engine in a process does not replay its log
/// after a kill, as the server does: an index that was not flushed with its payloads would for ever answer
/// as it was, and a condition on a value would not find the point that has it.
fn index_again(shard: &EdgeShard) -> OperationResult<()> {
    for (field, index) in shard.info().payload_schema {
        let Ok(schema) = PayloadFieldSchema::try_from(index) else {
            continue;
        };
        let change = |operation| shard.update(UpdateOperation::FieldIndexOperation(operation));
        change(FieldIndexOperations::DeleteIndex(field.clone()))?;
        change(FieldIndexOperations::CreateIndex(CreateIndex {
            field_name: field,
            field_schema: Some(schema),
        }))?;
    }
    shard.flush();
    Ok(())
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Status> + Send + 'static,
) -> Result<T, Status> {
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|error| Err(failed(&error)))
}

fn missing(name: &str) -> Status {
    Status::not_found(format!("Not found: Collection `{name}` doesn't exist!"))
}

fn failed(error: &dyn std::error::Error) -> Status {
    Status::internal(error.to_string())
}

/// As the server tells them apart.
fn explain(error: &OperationError) -> Status {
    let message = error.to_string();
    match error {
        OperationError::ServiceError { .. }
        | OperationError::InconsistentStorage { .. }
        | OperationError::OutOfMemory { .. }
        | OperationError::Cancelled { .. } => Status::internal(message),
        OperationError::Timeout { .. } => Status::deadline_exceeded(message),
        OperationError::PointIdError { .. } => Status::not_found(message),
        _ => Status::invalid_argument(message),
    }
}
