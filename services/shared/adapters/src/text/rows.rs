//! What does the index hold of one owner? Its live documents, by their columns, and how they stand beside
//! each other.

use std::collections::HashMap;
use std::sync::OnceLock;

use anamnesis_domain::bm25::{self, Population};
use anamnesis_domain::ids::{MemoryId, OwnerKey};
use anamnesis_domain::time::Timestamp;
use anamnesis_pipeline::beside::{Place, Stand, neighbours};
use anamnesis_pipeline::stores::{Cut, Facets, StoreError};
use tantivy::columnar::{BytesColumn, Column};
use tantivy::index::SegmentId;
use tantivy::schema::IndexRecordOption;
use tantivy::{DocId, DocSet as _, SegmentReader, TERMINATED};

use super::read::View;
use super::schema::{Traits, column, memory_id};
use super::{damaged, engine, io};
use crate::owner_cache::Block;

/// One live document of an owner.
pub(super) struct Row {
    /// Place of its segment in [`Rows::segments`].
    pub(super) segment: usize,
    pub(super) doc: DocId,
    pub(super) memory: MemoryId,
    pub(super) version: u64,
    pub(super) length: u64,
    pub(super) place: Option<Place>,
    pub(super) facets: Facets,
}

/// An owner's live documents, by segment and document number.
pub(super) struct Rows {
    /// Segments that have any of them. What they say of a document never changes; which documents are
    /// deleted does, and then these rows are dropped.
    pub(super) segments: Vec<SegmentId>,
    pub(super) rows: Vec<Row>,
    /// The first cut at which everything here is known.
    settled: u64,
    latest: OnceLock<Standing>,
}

/// How the rows stand at one cut. Statistics count what was believed at the cut, whatever else a question
/// filters by.
pub(super) struct Standing {
    pub(super) live: Vec<bool>,
    pub(super) counted: Vec<bool>,
    pub(super) beside: Vec<[Option<usize>; 2]>,
    pub(super) lengths: Vec<f64>,
    pub(super) population: Population,
}

impl Block for Rows {
    fn bytes(&self) -> usize {
        let standing = 2 * size_of::<bool>() + size_of::<[Option<usize>; 2]>() + size_of::<f64>();
        size_of::<Self>()
            + self.segments.capacity() * size_of::<SegmentId>()
            + self.rows.capacity() * (size_of::<Row>() + standing)
    }
}

impl Rows {
    pub(super) fn load(view: &View, owner: OwnerKey) -> Result<Self, StoreError> {
        let term = view.fields.owner_term(owner);
        let mut rows = Vec::new();
        let mut segments = Vec::new();
        for (number, segment) in view.searcher.segment_readers().iter().enumerate() {
            let index = segment.inverted_index(view.fields.owner).map_err(engine)?;
            let postings = index.read_postings(&term, IndexRecordOption::Basic);
            let Some(mut docs) = postings.map_err(|error| io(&error))? else {
                continue;
            };
            let columns = view.columns(number)?;
            let mut traits = TraitsOf::default();
            let before = rows.len();
            let mut doc = docs.doc();
            while doc != TERMINATED {
                if !segment.is_deleted(doc) {
                    rows.push(columns.row(segments.len(), doc, &mut traits)?);
                }
                doc = docs.advance();
            }
            if rows.len() > before {
                segments.push(segment.segment_id());
            }
        }
        close(&mut rows);
        rows.shrink_to_fit();
        let ends = |row: &Row| {
            row.facets
                .recorded_from
                .max(row.facets.recorded_to.unwrap_or(0))
        };
        Ok(Self {
            segments,
            settled: rows.iter().map(ends).max().map_or(0, |last| last + 1),
            rows,
            latest: OnceLock::new(),
        })
    }

    /// How the rows stand at the cut, `made` where that is not known already.
    pub(super) fn standing<'a>(&'a self, cut: Cut, made: &'a mut Option<Standing>) -> &'a Standing {
        if cut.0 >= self.settled {
            return self.latest.get_or_init(|| Standing::of(&self.rows, cut));
        }
        made.insert(Standing::of(&self.rows, cut))
    }

    pub(super) fn find(&self, segment: usize, doc: DocId) -> Option<usize> {
        self.rows
            .binary_search_by_key(&(segment, doc), |row| (row.segment, row.doc))
            .ok()
    }
}

impl Standing {
    fn of(rows: &[Row], cut: Cut) -> Self {
        let is_live = |row: &Row| {
            let Facets {
                recorded_from,
                recorded_to,
                ..
            } = row.facets;
            recorded_from < cut.0 && recorded_to.is_none_or(|to| to >= cut.0)
        };
        let live: Vec<bool> = rows.iter().map(is_live).collect();
        let counted: Vec<bool> = rows
            .iter()
            .zip(&live)
            .map(|(row, is_live)| *is_live && !row.facets.is_confirmation)
            .collect();
        let beside = beside(rows, &live);
        let lengths: Vec<f64> = rows
            .iter()
            .zip(&beside)
            .map(|(row, beside)| {
                let around = beside.iter().flatten().map(|one| rows[*one].length);
                bm25::weighted(row.length, around.sum())
            })
            .collect();
        let mut population = Population::default();
        for (length, _) in lengths.iter().zip(&counted).filter(|(_, counts)| **counts) {
            population.versions += 1;
            population.tokens += length;
        }
        Self {
            live,
            counted,
            beside,
            lengths,
            population,
        }
    }
}

/// The live rows right before and right after each live row in its conversation.
fn beside(rows: &[Row], live: &[bool]) -> Vec<[Option<usize>; 2]> {
    let stands: Vec<Stand> = rows
        .iter()
        .zip(live)
        .map(|(row, is_live)| Stand {
            place: row.place.filter(|_| *is_live),
            recorded_from: row.facets.recorded_from,
            memory: row.memory,
        })
        .collect();
    neighbours(&stands)
}

/// Ends each open version where the next version of its memory starts.
fn close(rows: &mut [Row]) {
    let mut order: Vec<usize> = (0..rows.len()).collect();
    order.sort_unstable_by_key(|row| (rows[*row].memory, rows[*row].version));
    for pair in order.windows(2) {
        let (earlier, later) = (pair[0], pair[1]);
        if rows[earlier].memory == rows[later].memory && rows[earlier].facets.recorded_to.is_none()
        {
            rows[earlier].facets.recorded_to = Some(rows[later].facets.recorded_from);
        }
    }
}

/// Traits of one segment that were decoded, by their places in its dictionary (one, unless they are very
/// long): most versions share theirs.
#[derive(Default)]
struct TraitsOf(HashMap<Vec<u64>, Traits>);

impl TraitsOf {
    fn read(&mut self, columns: &Columns, doc: DocId) -> Result<Traits, StoreError> {
        let missing = || damaged(format!("the column {} is incomplete", column::TRAITS));
        let traits = columns.traits.as_ref().ok_or_else(missing)?;
        let places: Vec<u64> = traits.term_ords(doc).collect();
        if let Some(known) = self.0.get(&places) {
            return Ok(known.clone());
        }
        let (mut bytes, mut piece) = (Vec::new(), Vec::new());
        for place in &places {
            if !traits
                .ord_to_bytes(*place, &mut piece)
                .map_err(|error| io(&error))?
            {
                return Err(missing());
            }
            bytes.append(&mut piece);
        }
        let read: Traits = serde_json::from_slice(&bytes)
            .map_err(|_| damaged(format!("the column {} cannot be read", column::TRAITS)))?;
        self.0.insert(places, read.clone());
        Ok(read)
    }
}

/// The columns of one segment.
pub(super) struct Columns {
    memory_high: Option<Column<u64>>,
    memory_low: Option<Column<u64>>,
    version: Option<Column<u64>>,
    recorded_from: Option<Column<u64>>,
    recorded_to: Option<Column<u64>>,
    valid_from: Option<Column<i64>>,
    valid_to: Option<Column<i64>>,
    length: Option<Column<u64>>,
    confirmation: Option<Column<bool>>,
    traits: Option<BytesColumn>,
    conversation: Option<Column<u64>>,
    said_at: Option<Column<i64>>,
}

impl Columns {
    pub(super) fn open(segment: &SegmentReader) -> Result<Self, StoreError> {
        let fast = segment.fast_fields();
        Ok(Self {
            memory_high: fast.column_opt(column::MEMORY_HIGH).map_err(engine)?,
            memory_low: fast.column_opt(column::MEMORY_LOW).map_err(engine)?,
            version: fast.column_opt(column::VERSION).map_err(engine)?,
            recorded_from: fast.column_opt(column::RECORDED_FROM).map_err(engine)?,
            recorded_to: fast.column_opt(column::RECORDED_TO).map_err(engine)?,
            valid_from: fast.column_opt(column::VALID_FROM).map_err(engine)?,
            valid_to: fast.column_opt(column::VALID_TO).map_err(engine)?,
            length: fast.column_opt(column::LENGTH).map_err(engine)?,
            confirmation: fast.column_opt(column::CONFIRMATION).map_err(engine)?,
            traits: fast.bytes(column::TRAITS).map_err(engine)?,
            conversation: fast.column_opt(column::CONVERSATION).map_err(engine)?,
            said_at: fast.column_opt(column::SAID_AT).map_err(engine)?,
        })
    }

    fn row(&self, segment: usize, doc: DocId, traits: &mut TraitsOf) -> Result<Row, StoreError> {
        let conversation = self.conversation.as_ref().and_then(|one| one.first(doc));
        let said_at = self.said_at.as_ref().and_then(|one| one.first(doc));
        let valid_to = self.valid_to.as_ref().and_then(|one| one.first(doc));
        let Traits {
            kind,
            status,
            subject,
            context_tags,
        } = traits.read(self, doc)?;
        Ok(Row {
            segment,
            doc,
            memory: memory_id(
                value(&self.memory_high, doc)?,
                value(&self.memory_low, doc)?,
            ),
            version: value(&self.version, doc)?,
            length: value(&self.length, doc)?,
            place: conversation.map(|conversation| Place {
                conversation,
                said_at: said_at.unwrap_or_default(),
            }),
            facets: Facets {
                recorded_from: value(&self.recorded_from, doc)?,
                recorded_to: self
                    .recorded_to
                    .as_ref()
                    .and_then(|column| column.first(doc)),
                valid_from: Timestamp::from_millis(value(&self.valid_from, doc)?),
                valid_to: valid_to.map(Timestamp::from_millis),
                subject,
                kind,
                status,
                context_tags,
                is_confirmation: value(&self.confirmation, doc)?,
            },
        })
    }
}

/// A value that every document has.
fn value<T: Copy + PartialOrd + std::fmt::Debug + Send + Sync + 'static>(
    column: &Option<Column<T>>,
    doc: DocId,
) -> Result<T, StoreError> {
    column
        .as_ref()
        .and_then(|column| column.first(doc))
        .ok_or_else(|| damaged("a column is incomplete"))
}
