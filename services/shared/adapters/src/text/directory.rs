//! The folder as tantivy sees it: memory-mapped files, and the list of them that the folder itself is.
//!
//! tantivy keeps a list of the files that it made, to know which it may remove, and writes it durably
//! before each of the six files of a segment: two thirds of what a small commit waits for. Here the list
//! is what lies in the folder. That cannot be wrong after a crash, and costs nothing.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::{fs, io};

use tantivy::directory::error::{DeleteError, LockError, OpenReadError, OpenWriteError};
use tantivy::directory::{
    Directory, DirectoryLock, FileHandle, Lock, MmapDirectory, WatchCallback, WatchHandle, WritePtr,
};

const LIST: &str = ".managed.json";

#[derive(Clone, Debug)]
pub(super) struct Folder {
    files: MmapDirectory,
    dir: PathBuf,
}

impl Folder {
    pub(super) fn open(dir: &Path) -> tantivy::Result<Self> {
        Ok(Self {
            files: MmapDirectory::open(dir)?,
            dir: dir.to_owned(),
        })
    }
}

/// Files of segments (`<32 hexadecimal digits>.<part>`), and temporary files of atomic writes.
pub(super) fn index_files(dir: &Path) -> io::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(dir)? {
        let path = entry?.path();
        let Some(name) = path.file_name().and_then(|name| name.to_str()) else {
            continue;
        };
        let is_segment = name.split_once('.').is_some_and(|(stem, _)| {
            stem.len() == 32 && stem.bytes().all(|byte| byte.is_ascii_hexdigit())
        });
        if is_segment || is_temporary(&path) {
            files.push(path);
        }
    }
    Ok(files)
}

/// What an atomic write that was cut short leaves.
pub(super) fn is_temporary(file: &Path) -> bool {
    let name = file.file_name().and_then(|name| name.to_str());
    name.is_some_and(|name| name.starts_with(".tmp"))
}

impl Directory for Folder {
    fn get_file_handle(&self, path: &Path) -> Result<Arc<dyn FileHandle>, OpenReadError> {
        self.files.get_file_handle(path)
    }

    fn delete(&self, path: &Path) -> Result<(), DeleteError> {
        self.files.delete(path)
    }

    fn exists(&self, path: &Path) -> Result<bool, OpenReadError> {
        self.files.exists(path)
    }

    fn open_write(&self, path: &Path) -> Result<WritePtr, OpenWriteError> {
        self.files.open_write(path)
    }

    fn atomic_read(&self, path: &Path) -> Result<Vec<u8>, OpenReadError> {
        if path != Path::new(LIST) {
            return self.files.atomic_read(path);
        }
        let failed = |error| OpenReadError::wrap_io_error(error, path.to_owned());
        let files = index_files(&self.dir).map_err(failed)?;
        let names: Vec<&Path> = files
            .iter()
            .filter_map(|file| file.file_name())
            .map(Path::new)
            .collect();
        Ok(serde_json::to_vec(&names).expect("names that are text"))
    }

    fn atomic_write(&self, path: &Path, data: &[u8]) -> io::Result<()> {
        if path == Path::new(LIST) {
            return Ok(());
        }
        self.files.atomic_write(path, data)
    }

    fn sync_directory(&self) -> io::Result<()> {
        self.files.sync_directory()
    }

    fn acquire_lock(&self, lock: &Lock) -> Result<DirectoryLock, LockError> {
        self.files.acquire_lock(lock)
    }

    fn watch(&self, callback: WatchCallback) -> tantivy::Result<WatchHandle> {
        self.files.watch(callback)
    }
}
