//! Which generation of each store is in use. A rebuild makes a new one beside it and switches by one
//! atomic replacement of a small file.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use anamnesis_pipeline::stores::Store;
use serde::{Deserialize, Serialize};

const FILE: &str = "current.json";

#[derive(Debug, thiserror::Error)]
pub enum GenerationsError {
    #[error("{what}: {source}")]
    Io {
        what: String,
        source: std::io::Error,
    },
    #[error(
        "{path} cannot be read as the list of generations; the stores can be made again from the log: \
         delete the folder `stores` and start"
    )]
    Unreadable { path: PathBuf },
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Current {
    /// Generation number of each store.
    stores: BTreeMap<Store, u64>,
}

/// The generations under `stores/`: `<store>-<number>`.
pub struct Generations {
    dir: PathBuf,
    current: Mutex<Current>,
}

impl Generations {
    /// Reads what is in use; a folder without a list starts with generation 1 of each store.
    ///
    /// # Errors
    /// When the list is there and cannot be read.
    pub fn open(dir: &Path) -> Result<Self, GenerationsError> {
        let failed = |what: &str, source| GenerationsError::Io {
            what: format!("cannot {what} in {}", dir.display()),
            source,
        };
        std::fs::create_dir_all(dir).map_err(|source| failed("make a folder", source))?;
        let path = dir.join(FILE);
        let current = match std::fs::read(&path) {
            Ok(bytes) => serde_json::from_slice(&bytes)
                .map_err(|_| GenerationsError::Unreadable { path: path.clone() })?,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Current {
                stores: Store::ALL.into_iter().map(|store| (store, 1)).collect(),
            },
            Err(error) => return Err(failed("read the list", error)),
        };
        let generations = Self {
            dir: dir.to_owned(),
            current: Mutex::new(current),
        };
        generations
            .write()
            .map_err(|source| failed("write the list", source))?;
        generations.sweep()?;
        Ok(generations)
    }

    /// Deletes generations that are not in use: what a rebuild that was killed left behind is reached
    /// by no erasure.
    fn sweep(&self) -> Result<(), GenerationsError> {
        let failed = |source| GenerationsError::Io {
            what: format!("cannot look into {}", self.dir.display()),
            source,
        };
        for entry in std::fs::read_dir(&self.dir).map_err(failed)? {
            let path = entry.map_err(failed)?.path();
            let name = path.file_name().and_then(|name| name.to_str());
            let generation = name.and_then(|name| name.rsplit_once('-'));
            let is_left_over = generation.is_some_and(|(store, number)| {
                let store = Store::ALL.into_iter().find(|one| one.as_str() == store);
                let number: Option<u64> = number.parse().ok();
                store.is_some_and(|store| number.is_some_and(|number| number != self.number(store)))
            });
            if is_left_over {
                remove(&path)?;
            }
        }
        Ok(())
    }

    /// The generation in use.
    pub fn number(&self, store: Store) -> u64 {
        let current = self
            .current
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        current.stores.get(&store).copied().unwrap_or(1)
    }

    fn folder_of(&self, store: Store, number: u64) -> PathBuf {
        self.dir.join(format!("{store}-{number}"))
    }

    /// The folder in use.
    pub fn folder(&self, store: Store) -> PathBuf {
        self.folder_of(store, self.number(store))
    }

    /// An empty folder for the next generation; what a broken rebuild left there is deleted.
    ///
    /// # Errors
    /// When the left-over cannot be deleted.
    pub fn next_folder(&self, store: Store) -> Result<PathBuf, GenerationsError> {
        let folder = self.folder_of(store, self.number(store) + 1);
        remove(&folder)?;
        Ok(folder)
    }

    /// Uses the next generation from now on and deletes the one before.
    ///
    /// # Errors
    /// When the list cannot be replaced; the old generation then stays in use.
    pub fn switch(&self, store: Store) -> Result<(), GenerationsError> {
        let old = self.number(store);
        {
            let mut current = self
                .current
                .lock()
                .unwrap_or_else(std::sync::PoisonError::into_inner);
            current.stores.insert(store, old + 1);
        }
        self.write().map_err(|source| GenerationsError::Io {
            what: format!("cannot switch the generation of {store}"),
            source,
        })?;
        remove(&self.folder_of(store, old))
    }

    fn write(&self) -> std::io::Result<()> {
        let current = self
            .current
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        let bytes = serde_json::to_vec_pretty(&*current).map_err(std::io::Error::other)?;
        let part = self.dir.join("current.part");
        std::fs::write(&part, bytes)?;
        std::fs::rename(&part, self.dir.join(FILE))
    }
}

fn remove(folder: &Path) -> Result<(), GenerationsError> {
    match std::fs::remove_dir_all(folder) {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        Err(source) => Err(GenerationsError::Io {
            what: format!("cannot delete {}", folder.display()),
            source,
        }),
    }
}
