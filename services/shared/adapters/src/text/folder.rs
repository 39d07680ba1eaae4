//! Can this folder be used, and at which position does it stand?

use std::collections::{BTreeMap, HashSet};
use std::fs::{self, File, TryLockError};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use anamnesis_domain::ids::LogId;
use anamnesis_domain::tokens::TOKENIZER_VERSION;
use anamnesis_pipeline::feed::Feed;
use anamnesis_pipeline::stores::{Store, StoreError};
use serde::{Deserialize, Serialize};
use tantivy::directory::Directory as _;
use tantivy::{Index, IndexSettings};

use super::directory::{Folder, index_files, is_temporary};
use super::read::View;
use super::schema::{self, FORMAT};
use super::write::Writing;
use super::{REBUILD, damaged, engine, io};

/// What every commit says of itself, in the same atomic step as its documents.
#[derive(Clone, Serialize, Deserialize)]
pub(super) struct Payload {
    format: u32,
    tokenizer: u32,
    log_id: LogId,
    partitions: u32,
    /// The first offset of each partition that is not applied.
    pub(super) next: BTreeMap<u32, u64>,
}

/// What a payload of any format has.
#[derive(Deserialize)]
struct AnyFormat {
    format: u32,
}

const META: &str = "meta.json";
const LOCK: &str = "text.lock";

pub(super) fn open(dir: &Path, feed: Feed) -> Result<(Writing, View), StoreError> {
    fs::create_dir_all(dir).map_err(|error| io(&error))?;
    // tantivy locks its writer only; one folder has one reader and writer here, and readers of a
    // folder that somebody else compacts would lose their files.
    let lock = lock(dir)?;
    let (expected, fields) = schema::schema();
    let index = if dir.join(META).exists() {
        Index::open(Folder::open(dir).map_err(engine)?).map_err(engine)?
    } else {
        let files = index_files(dir).map_err(|error| io(&error))?;
        let left = files.iter().filter(|file| !is_temporary(file)).count();
        if left > 0 {
            return Err(damaged(format!(
                "{META} is missing beside {left} files of the index"
            )));
        }
        Index::create(
            Folder::open(dir).map_err(engine)?,
            expected.clone(),
            IndexSettings::default(),
        )
        .map_err(engine)?
    };

    let metas = index.load_metas().map_err(engine)?;
    let payload = match &metas.payload {
        Some(text) => Some(read_payload(text, feed)?),
        // Killed between the folder's creation and the first commit.
        None if metas.segments.is_empty() => None,
        None => return Err(damaged(format!("{META} names no position"))),
    };
    if index.schema() != expected {
        return Err(StoreError::Unusable {
            what: format!("text has columns that this version does not write; {REBUILD}"),
        });
    }
    sweep(dir, &index)?;
    check_sums(&index)?;

    let mut writing = Writing::new(dir.to_owned(), index, fields, lock)?;
    if payload.is_none() {
        let fresh = Payload {
            format: FORMAT,
            tokenizer: TOKENIZER_VERSION,
            log_id: feed.log_id,
            partitions: feed.partitions,
            next: BTreeMap::new(),
        };
        writing.commit(std::iter::empty(), &fresh)?;
    }
    let view = writing.view()?;
    Ok((writing, view))
}

fn lock(dir: &Path) -> Result<File, StoreError> {
    let file = File::options()
        .create(true)
        .truncate(false)
        .write(true)
        .open(dir.join(LOCK))
        .map_err(|error| io(&error))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(StoreError::InUse {
            what: format!("the text index in {}", dir.display()),
        }),
        Err(TryLockError::Error(error)) => Err(io(&error)),
    }
}

pub(super) fn parse_payload(text: &str) -> Result<Payload, StoreError> {
    serde_json::from_str(text)
        .map_err(|_| damaged(format!("the position in {META} cannot be read")))
}

fn read_payload(text: &str, feed: Feed) -> Result<Payload, StoreError> {
    let AnyFormat { format } = serde_json::from_str(text)
        .map_err(|_| damaged(format!("the position in {META} cannot be read")))?;
    if format > FORMAT {
        return Err(StoreError::Unusable {
            what: format!(
                "text was written by a newer version (format {format}, this one reads {FORMAT}); \
                 use that version, or {REBUILD}"
            ),
        });
    }
    if format < FORMAT {
        return Err(StoreError::Unusable {
            what: format!("text has format {format}, and this version reads {FORMAT}; {REBUILD}"),
        });
    }
    let payload = parse_payload(text)?;
    if payload.log_id != feed.log_id {
        return Err(StoreError::OtherLog {
            store: Store::Text,
            expected: feed.log_id,
            found: payload.log_id,
        });
    }
    if payload.partitions != feed.partitions {
        return Err(StoreError::Unusable {
            what: format!(
                "text was built from {} partitions, and the log has {}; {REBUILD}",
                payload.partitions, feed.partitions
            ),
        });
    }
    if payload.tokenizer != TOKENIZER_VERSION {
        return Err(StoreError::Unusable {
            what: format!(
                "text was built by tokenizer {}, and this version has {TOKENIZER_VERSION}; {REBUILD}",
                payload.tokenizer
            ),
        });
    }
    Ok(payload)
}

/// Bit rot is found here and not in an answer.
fn check_sums(index: &Index) -> Result<(), StoreError> {
    for file in living_files(index)? {
        let exists = index
            .directory()
            .exists(&file)
            .map_err(|error| engine(error.into()))?;
        if exists
            && !index
                .directory()
                .validate_checksum(&file)
                .map_err(|error| engine(error.into()))?
        {
            return Err(damaged(format!(
                "the checksum of {} does not match",
                file.display()
            )));
        }
    }
    Ok(())
}

/// Files that the segments of the last commit may have.
fn living_files(index: &Index) -> Result<HashSet<PathBuf>, StoreError> {
    let metas = index.load_metas().map_err(engine)?;
    Ok(metas.list_segment_files())
}

/// Removes what belongs to no segment of the last commit: files of a commit or merge that never
/// happened, and of segments that were merged away. tantivy does the same after a commit, but not now,
/// and spares what a search might still read. Only while nothing is being written.
pub(super) fn sweep(dir: &Path, index: &Index) -> Result<(), StoreError> {
    let living = living_files(index)?;
    for path in index_files(dir).map_err(|error| io(&error))? {
        let is_living = path
            .file_name()
            .is_some_and(|name| living.contains(Path::new(name)));
        if is_living {
            continue;
        }
        match fs::remove_file(&path) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(io(&error)),
            // Gone already: a merge of a writer that failed cleans up after itself.
            Ok(()) | Err(_) => (),
        }
    }
    Ok(())
}
