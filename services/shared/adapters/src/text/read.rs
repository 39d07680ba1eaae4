//! What one snapshot of the index answers: hits with their scores, and digests of what it holds.

use std::collections::{BTreeSet, HashMap};

use anamnesis_domain::bm25::{self, Population};
use anamnesis_domain::ids::{MemoryId, OwnerKey};
use anamnesis_domain::owner::OwnerScope;
use anamnesis_domain::time::Timestamp;
use anamnesis_pipeline::beside::{Place, Stand, neighbours};
use anamnesis_pipeline::stores::{Facets, Filter, Hit, RowDigest, StoreError};
use anamnesis_pipeline::{digests, similarity};
use tantivy::columnar::{BytesColumn, Column};
use tantivy::postings::Postings as _;
use tantivy::schema::IndexRecordOption;
use tantivy::{DocId, DocSet as _, Searcher, SegmentReader, TERMINATED, Term};

use super::folder::Payload;
use super::schema::{Fields, Traits, column, memory_id};
use super::terms::{self, Tokens};
use super::{damaged, engine, io};

pub(super) struct View {
    pub(super) searcher: Searcher,
    pub(super) fields: Fields,
    pub(super) payload: Payload,
}

/// One live document of an owner.
struct Row {
    segment: usize,
    doc: DocId,
    memory: MemoryId,
    version: u64,
    recorded_from: u64,
    recorded_to: Option<u64>,
    length: u64,
    is_confirmation: bool,
    place: Option<Place>,
}

/// An owner's live documents, by segment and document number.
struct Rows {
    rows: Vec<Row>,
    columns: Vec<Columns>,
}

struct Columns {
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

impl View {
    /// The best `top` versions for the terms. Scores add up in the order of the terms, so that they equal
    /// those of any other backend bit for bit.
    pub(super) fn search(
        &self,
        filter: &Filter,
        terms: &[String],
        top: usize,
    ) -> Result<Vec<Hit>, StoreError> {
        let owner = filter.scope.key();
        let held = self.rows_of(owner)?;
        // Statistics count what was believed at the cut, whatever else the question filters by.
        let live: Vec<bool> = held.rows.iter().map(|row| row.is_live(filter)).collect();
        let counted: Vec<bool> = held
            .rows
            .iter()
            .zip(&live)
            .map(|(row, is_live)| *is_live && !row.is_confirmation)
            .collect();
        let beside = held.beside(&live);
        let lengths = held.lengths(&beside);
        let mut population = Population::default();
        for (length, _) in lengths.iter().zip(&counted).filter(|(_, counts)| **counts) {
            population.versions += 1;
            population.tokens += length;
        }

        let prefix = terms::prefix(owner);
        let mut heard = Heard::new(&held, filter);
        let mut scores = vec![0.0f64; held.rows.len()];
        // Of one term, by row: how often it is said in the turns beside; all zero between two terms.
        let mut around = vec![0u64; held.rows.len()];
        let mut own = vec![0u64; held.rows.len()];
        for term in terms {
            let found = self.occurrences(&held.rows, &prefix, term)?;
            let with_term = found.iter().filter(|(row, _)| counted[*row]).count() as u64;
            let mut touched: Vec<usize> = Vec::with_capacity(found.len());
            for (row, frequency) in found {
                if counted[row] {
                    own[row] = u64::from(frequency);
                    touched.push(row);
                }
                if !live[row] {
                    continue;
                }
                for neighbour in beside[row].iter().flatten().copied() {
                    if counted[neighbour] && heard.hears(row)? {
                        around[neighbour] += u64::from(frequency);
                        touched.push(neighbour);
                    }
                }
            }
            for row in touched {
                // A row that is touched twice counts once.
                let (own, around) = (
                    std::mem::take(&mut own[row]),
                    std::mem::take(&mut around[row]),
                );
                let frequency = bm25::weighted(own, around);
                scores[row] += bm25::term_score(population, with_term, frequency, lengths[row]);
            }
        }

        let mut traits = TraitsOf::default();
        let mut hits = Vec::new();
        for (row, score) in held.rows.iter().zip(scores) {
            if score > 0.0 && filter.admits(&held.facets(row, &mut traits)?) {
                hits.push(Hit {
                    memory_id: row.memory,
                    version: row.version,
                    score,
                });
            }
        }
        Ok(similarity::best(hits, top))
    }

    pub(super) fn owners(&self) -> Result<Vec<OwnerKey>, StoreError> {
        let mut owners = BTreeSet::new();
        for segment in self.searcher.segment_readers() {
            let index = segment.inverted_index(self.fields.owner).map_err(engine)?;
            let mut keys = index.terms().stream().map_err(|error| io(&error))?;
            while let Some((key, info)) = keys.next() {
                let mut docs = index
                    .read_postings_from_terminfo(info, IndexRecordOption::Basic)
                    .map_err(|error| io(&error))?;
                let mut doc = docs.doc();
                while doc != TERMINATED && segment.is_deleted(doc) {
                    doc = docs.advance();
                }
                if doc != TERMINATED {
                    let key = key
                        .try_into()
                        .map_err(|_| damaged("an owner is not 16 bytes long"))?;
                    owners.insert(OwnerKey::from_bytes(key));
                }
            }
        }
        Ok(owners.into_iter().collect())
    }

    /// Digests of what the postings and columns say, not of a hash that was kept.
    pub(super) fn rows(&self, scope: OwnerScope) -> Result<Vec<RowDigest>, StoreError> {
        let owner = scope.key();
        let held = self.rows_of(owner)?;
        let mut tokens: Vec<Tokens> = held.rows.iter().map(|_| Tokens::default()).collect();
        let (prefix, range) = (terms::prefix(owner), terms::range(owner));
        for (number, segment) in self.searcher.segment_readers().iter().enumerate() {
            let index = segment.inverted_index(self.fields.text).map_err(engine)?;
            let mut stream = index
                .terms()
                .range()
                .ge(&range.start)
                .lt(&range.end)
                .into_stream()
                .map_err(|error| io(&error))?;
            while let Some((term, info)) = stream.next() {
                let term = std::str::from_utf8(term).map_err(|_| damaged("a term is not text"))?;
                let mut docs = index
                    .read_postings_from_terminfo(info, IndexRecordOption::WithFreqs)
                    .map_err(|error| io(&error))?;
                let mut doc = docs.doc();
                while doc != TERMINATED {
                    // Deleted documents are not among the rows.
                    if let Some(row) = held.find(number, doc) {
                        tokens[row].push(&term[prefix.len()..], docs.term_freq());
                    }
                    doc = docs.advance();
                }
            }
        }

        let mut traits = TraitsOf::default();
        let mut digests = Vec::new();
        for (row, tokens) in held.rows.iter().zip(tokens) {
            let mut tokens = tokens.finish();
            let length: u64 = tokens
                .iter()
                .map(|(_, frequency)| u64::from(*frequency))
                .sum();
            if length != row.length {
                // The length is scored with, so a length that was altered has to show.
                tokens.push(("\u{1}length".to_owned(), row.length as u32));
            }
            digests.push(RowDigest {
                key: format!("{}/{:010}", row.memory, row.version),
                hash: digests::text_hash(&held.facets(row, &mut traits)?, &tokens, row.place),
            });
        }
        digests.sort();
        Ok(digests)
    }

    /// Where a token occurs: row and frequency.
    fn occurrences(
        &self,
        rows: &[Row],
        prefix: &str,
        token: &str,
    ) -> Result<Vec<(usize, u32)>, StoreError> {
        // All pieces of a long token are in the same documents: the first stands for the token.
        let Some(term) = terms::of_token(prefix, token).into_iter().next() else {
            return Ok(Vec::new());
        };
        let term = Term::from_field_text(self.fields.text, &term);
        let mut found = Vec::new();
        let mut row = 0;
        for (number, segment) in self.searcher.segment_readers().iter().enumerate() {
            let index = segment.inverted_index(self.fields.text).map_err(engine)?;
            let postings = index.read_postings(&term, IndexRecordOption::WithFreqs);
            let Some(mut docs) = postings.map_err(|error| io(&error))? else {
                continue;
            };
            let mut doc = docs.doc();
            while doc != TERMINATED {
                // Both ascend by segment and document.
                while rows
                    .get(row)
                    .is_some_and(|held| (held.segment, held.doc) < (number, doc))
                {
                    row += 1;
                }
                if rows
                    .get(row)
                    .is_some_and(|held| (held.segment, held.doc) == (number, doc))
                {
                    found.push((row, docs.term_freq()));
                }
                doc = docs.advance();
            }
        }
        Ok(found)
    }

    fn rows_of(&self, owner: OwnerKey) -> Result<Rows, StoreError> {
        let term = self.fields.owner_term(owner);
        let mut rows = Vec::new();
        let mut all = Vec::new();
        for (number, segment) in self.searcher.segment_readers().iter().enumerate() {
            let columns = Columns::open(segment)?;
            let index = segment.inverted_index(self.fields.owner).map_err(engine)?;
            let postings = index.read_postings(&term, IndexRecordOption::Basic);
            if let Some(mut docs) = postings.map_err(|error| io(&error))? {
                let mut doc = docs.doc();
                while doc != TERMINATED {
                    if !segment.is_deleted(doc) {
                        rows.push(columns.row(number, doc)?);
                    }
                    doc = docs.advance();
                }
            }
            all.push(columns);
        }
        close(&mut rows);
        Ok(Rows { rows, columns: all })
    }
}

/// Ends each open version where the next version of its memory starts.
fn close(rows: &mut [Row]) {
    let mut order: Vec<usize> = (0..rows.len()).collect();
    order.sort_unstable_by_key(|row| (rows[*row].memory, rows[*row].version));
    for pair in order.windows(2) {
        let (earlier, later) = (pair[0], pair[1]);
        if rows[earlier].memory == rows[later].memory && rows[earlier].recorded_to.is_none() {
            rows[earlier].recorded_to = Some(rows[later].recorded_from);
        }
    }
}

impl Row {
    fn is_live(&self, filter: &Filter) -> bool {
        self.recorded_from < filter.cut.0 && self.recorded_to.is_none_or(|to| to >= filter.cut.0)
    }
}

/// Whose words count for the turns beside them, looked up once per row.
struct Heard<'a> {
    rows: &'a Rows,
    filter: &'a Filter,
    traits: TraitsOf,
    known: Vec<Option<bool>>,
}

impl<'a> Heard<'a> {
    fn new(rows: &'a Rows, filter: &'a Filter) -> Self {
        Self {
            rows,
            filter,
            traits: TraitsOf::default(),
            known: vec![None; rows.rows.len()],
        }
    }

    fn hears(&mut self, row: usize) -> Result<bool, StoreError> {
        if let Some(known) = self.known[row] {
            return Ok(known);
        }
        let facets = self.rows.facets(&self.rows.rows[row], &mut self.traits)?;
        let hears = self.filter.hears(&facets);
        self.known[row] = Some(hears);
        Ok(hears)
    }
}

impl Rows {
    /// The live rows right before and right after each live row in its conversation.
    fn beside(&self, live: &[bool]) -> Vec<[Option<usize>; 2]> {
        let stands: Vec<Stand> = self
            .rows
            .iter()
            .zip(live)
            .map(|(row, is_live)| Stand {
                place: row.place.filter(|_| *is_live),
                recorded_from: row.recorded_from,
                memory: row.memory,
            })
            .collect();
        neighbours(&stands)
    }

    fn lengths(&self, beside: &[[Option<usize>; 2]]) -> Vec<f64> {
        let rows = self.rows.iter().zip(beside);
        rows.map(|(row, beside)| {
            let around = beside.iter().flatten().map(|one| self.rows[*one].length);
            bm25::weighted(row.length, around.sum())
        })
        .collect()
    }

    fn find(&self, segment: usize, doc: DocId) -> Option<usize> {
        self.rows
            .binary_search_by_key(&(segment, doc), |row| (row.segment, row.doc))
            .ok()
    }

    fn facets(&self, row: &Row, traits: &mut TraitsOf) -> Result<Facets, StoreError> {
        let columns = &self.columns[row.segment];
        let Traits {
            kind,
            status,
            subject,
            context_tags,
        } = traits.read(columns, row)?;
        let valid_to = columns
            .valid_to
            .as_ref()
            .and_then(|column| column.first(row.doc));
        Ok(Facets {
            recorded_from: row.recorded_from,
            recorded_to: row.recorded_to,
            valid_from: Timestamp::from_millis(value(&columns.valid_from, row.doc)?),
            valid_to: valid_to.map(Timestamp::from_millis),
            subject,
            kind,
            status,
            context_tags,
            is_confirmation: row.is_confirmation,
        })
    }
}

/// Traits that were decoded, by segment and places in its dictionary (one, unless they are very long):
/// most versions share theirs.
#[derive(Default)]
struct TraitsOf(HashMap<(usize, Vec<u64>), Traits>);

impl TraitsOf {
    fn read(&mut self, columns: &Columns, row: &Row) -> Result<Traits, StoreError> {
        let missing = || damaged(format!("the column {} is incomplete", column::TRAITS));
        let traits = columns.traits.as_ref().ok_or_else(missing)?;
        let places: Vec<u64> = traits.term_ords(row.doc).collect();
        let key = (row.segment, places);
        if let Some(known) = self.0.get(&key) {
            return Ok(known.clone());
        }
        let (mut bytes, mut piece) = (Vec::new(), Vec::new());
        for place in &key.1 {
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
        self.0.insert(key, read.clone());
        Ok(read)
    }
}

impl Columns {
    fn open(segment: &SegmentReader) -> Result<Self, StoreError> {
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

    fn row(&self, segment: usize, doc: DocId) -> Result<Row, StoreError> {
        let conversation = self.conversation.as_ref().and_then(|one| one.first(doc));
        let said_at = self.said_at.as_ref().and_then(|one| one.first(doc));
        Ok(Row {
            segment,
            doc,
            memory: memory_id(
                value(&self.memory_high, doc)?,
                value(&self.memory_low, doc)?,
            ),
            version: value(&self.version, doc)?,
            recorded_from: value(&self.recorded_from, doc)?,
            recorded_to: self
                .recorded_to
                .as_ref()
                .and_then(|column| column.first(doc)),
            length: value(&self.length, doc)?,
            is_confirmation: value(&self.confirmation, doc)?,
            place: conversation.map(|conversation| Place {
                conversation,
                said_at: said_at.unwrap_or_default(),
            }),
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
