//! How changes reach the index: one commit per batch, with the position in it.

use std::fs::File;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anamnesis_pipeline::stores::{Change, MemoryVersion, StoreError};
use tantivy::merge_policy::{LogMergePolicy, NoMergePolicy};
use tantivy::{Index, IndexReader, IndexWriter, ReloadPolicy, SegmentMeta};

use super::folder::{self, Payload};
use super::read::View;
use super::schema::Fields;
use super::{damaged, engine, io};

/// Beyond this, tantivy cuts a segment within a batch. It is the least that tantivy takes: a share of it
/// is cleared and walked through at every commit, however small the batch.
const WRITER_HEAP_BYTES: usize = 15_000_000;
/// Segments below this size are merged with each other whatever their sizes. With tantivy's own value
/// (10,000) every eighth small batch would write all documents below it anew.
const MERGED_ALIKE_DOCUMENTS_MAX: u32 = 100;

pub(super) struct Writing {
    dir: PathBuf,
    index: Index,
    fields: Fields,
    reader: IndexReader,
    /// Absent after an error: a writer that failed half-way is dropped with all it had staged, and the
    /// next batch gets a fresh one, which stands at the last commit.
    writer: Option<IndexWriter>,
    /// When the last commit of batches began.
    committed: Option<Instant>,
    /// Held as long as the index is open.
    lock: File,
}

impl Writing {
    pub(super) fn new(
        dir: PathBuf,
        index: Index,
        fields: Fields,
        lock: File,
    ) -> Result<Self, StoreError> {
        let reader = index
            .reader_builder()
            .reload_policy(ReloadPolicy::Manual)
            .try_into()
            .map_err(engine)?;
        Ok(Self {
            dir,
            index,
            fields,
            reader,
            writer: None,
            committed: None,
            lock,
        })
    }

    /// Applies the changes and the position in one atomic step, durable when it returns.
    pub(super) fn commit<'a>(
        &mut self,
        changes: impl Iterator<Item = &'a Change>,
        payload: &Payload,
    ) -> Result<(), StoreError> {
        let mut writer = self.take_writer()?;
        for change in changes {
            match change {
                Change::Version { version, vector: _ } => self.put(&writer, version)?,
                Change::Rewrite(rows) => {
                    writer.delete_term(self.fields.owner_term(rows.owner));
                    for (version, _) in &rows.versions {
                        self.put(&writer, version)?;
                    }
                }
                Change::Decision(_) | Change::Owner(_) => (),
            }
        }
        let mut prepared = writer.prepare_commit().map_err(engine)?;
        prepared.set_payload(&serde_json::to_string(payload).expect("plain data"));
        prepared.commit().map_err(engine)?;
        self.writer = Some(writer);
        Ok(())
    }

    /// Batches are being committed from now on.
    pub(super) fn begins(&mut self) {
        self.committed = Some(Instant::now());
    }

    /// How long ago the last commit of batches began; as long as can be before the first.
    pub(super) fn since_commit(&self) -> Duration {
        self.committed.map_or(Duration::MAX, |at| at.elapsed())
    }

    fn put(&self, writer: &IndexWriter, version: &MemoryVersion) -> Result<(), StoreError> {
        writer.delete_term(self.fields.key_term(version));
        writer
            .add_document(self.fields.document(version))
            .map_err(engine)?;
        Ok(())
    }

    fn take_writer(&mut self) -> Result<IndexWriter, StoreError> {
        match self.writer.take() {
            Some(writer) => Ok(writer),
            None => {
                let writer: IndexWriter = self
                    .index
                    .writer_with_num_threads(1, WRITER_HEAP_BYTES)
                    .map_err(engine)?;
                let mut merges = LogMergePolicy::default();
                merges.set_min_layer_size(MERGED_ALIKE_DOCUMENTS_MAX);
                writer.set_merge_policy(Box::new(merges));
                Ok(writer)
            }
        }
    }

    /// The last commit, as searches will see it.
    pub(super) fn view(&self) -> Result<View, StoreError> {
        self.reader.reload().map_err(engine)?;
        let metas = self.index.load_metas().map_err(engine)?;
        let payload = metas
            .payload
            .ok_or_else(|| damaged("the last commit names no position"))?;
        let payload = folder::parse_payload(&payload)?;
        Ok(View::new(self.reader.searcher(), self.fields, payload))
    }

    /// Rewrites every segment that still has documents which were deleted.
    pub(super) fn purge(&mut self) -> Result<(), StoreError> {
        // A merge that is under way would clash with ours, so it is waited for, and none starts after it.
        self.take_writer()?.wait_merging_threads().map_err(engine)?;
        let mut writer = self.take_writer()?;
        writer.set_merge_policy(Box::new(NoMergePolicy));
        let metas = self.index.load_metas().map_err(engine)?;
        let with_deletes: Vec<_> = metas
            .segments
            .iter()
            .filter(|segment| segment.has_deletes())
            .map(SegmentMeta::id)
            .collect();
        if !with_deletes.is_empty() {
            writer.merge(&with_deletes).wait().map_err(engine)?;
        }
        // Dropped, not kept: the next batch gets a writer with the usual merges.
        writer.wait_merging_threads().map_err(engine)
    }

    /// Removes the files that [`Writing::purge`] left without an owner.
    pub(super) fn sweep(&mut self) -> Result<(), StoreError> {
        folder::sweep(&self.dir, &self.index)?;
        // A removal that the disk has not seen would bring the bytes back after a power cut.
        File::open(&self.dir)
            .and_then(|dir| dir.sync_all())
            .map_err(|error| io(&error))
    }
}

impl Drop for Writing {
    /// A merge that goes on in the background would write into the folder after its lock is free, so it
    /// is waited for; what it makes of itself does not matter.
    fn drop(&mut self) {
        if let Some(writer) = self.writer.take() {
            let _ = writer.wait_merging_threads();
        }
        // Closing the file would leave the lock to a process that is just being forked.
        let _ = self.lock.unlock();
    }
}
