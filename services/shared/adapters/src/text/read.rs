//! What one snapshot of the index answers: hits with their scores, and digests of what it holds.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, OnceLock};

use anamnesis_domain::bm25;
use anamnesis_domain::ids::OwnerKey;
use anamnesis_domain::owner::OwnerScope;
use anamnesis_pipeline::stores::{Filter, Hit, RowDigest, StoreError};
use anamnesis_pipeline::{digests, similarity};
use tantivy::index::SegmentId;
use tantivy::postings::Postings as _;
use tantivy::schema::IndexRecordOption;
use tantivy::{DocSet as _, Searcher, TERMINATED, Term};

use super::folder::Payload;
use super::rows::{Columns, Rows};
use super::schema::Fields;
use super::terms::{self, Tokens};
use super::{damaged, engine, io};

pub(super) struct View {
    pub(super) searcher: Searcher,
    pub(super) fields: Fields,
    pub(super) payload: Payload,
    /// Where each segment stands in the searcher.
    segments: HashMap<SegmentId, usize>,
    /// By segment, opened when they are first read.
    columns: Vec<Arc<OnceLock<Columns>>>,
}

impl View {
    pub(super) fn new(searcher: Searcher, fields: Fields, payload: Payload) -> Self {
        let readers = searcher.segment_readers().iter().enumerate();
        let segments: HashMap<SegmentId, usize> = readers
            .map(|(number, segment)| (segment.segment_id(), number))
            .collect();
        let columns = segments.iter().map(|_| Arc::default()).collect();
        Self {
            searcher,
            fields,
            payload,
            segments,
            columns,
        }
    }

    /// Takes over what the snapshot before has opened of the segments that both have: what they hold
    /// never changes.
    pub(super) fn inherit(&mut self, before: &Self) {
        for (segment, number) in &self.segments {
            if let Some(was) = before.segments.get(segment) {
                self.columns[*number] = before.columns[*was].clone();
            }
        }
    }

    pub(super) fn columns(&self, segment: usize) -> Result<&Columns, StoreError> {
        let opened = &self.columns[segment];
        if let Some(columns) = opened.get() {
            return Ok(columns);
        }
        let columns = Columns::open(self.searcher.segment_reader(segment as u32))?;
        Ok(opened.get_or_init(|| columns))
    }

    /// Where the segments of these rows stand in this snapshot; `None` when one is not in it any more.
    pub(super) fn places(&self, rows: &Rows) -> Option<Vec<usize>> {
        let segments = rows.segments.iter();
        segments
            .map(|segment| self.segments.get(segment).copied())
            .collect()
    }

    /// The best `top` versions for the terms, among the owner's rows with the [`View::places`] of their
    /// segments. Scores add up in the order of the terms, so that they equal those of any other backend
    /// bit for bit.
    pub(super) fn search(
        &self,
        (held, places): (&Rows, &[usize]),
        filter: &Filter,
        terms: &[String],
        top: usize,
    ) -> Result<Vec<Hit>, StoreError> {
        let mut made = None;
        let standing = held.standing(filter.cut, &mut made);
        let prefix = terms::prefix(filter.scope.key());
        // Whose words count for the turns beside them, looked up once per row.
        let mut hears: Vec<Option<bool>> = vec![None; held.rows.len()];
        let mut scores = vec![0.0f64; held.rows.len()];
        // Of one term, by row: how often it is said in the turns beside; all zero between two terms.
        let mut around = vec![0u64; held.rows.len()];
        let mut own = vec![0u64; held.rows.len()];
        for term in terms {
            let found = self.occurrences(held, places, &prefix, term)?;
            let with_term = found
                .iter()
                .filter(|(row, _)| standing.counted[*row])
                .count() as u64;
            let mut touched: Vec<usize> = Vec::with_capacity(found.len());
            for (row, frequency) in found {
                if standing.counted[row] {
                    own[row] = u64::from(frequency);
                    touched.push(row);
                }
                if !standing.live[row] {
                    continue;
                }
                for neighbour in standing.beside[row].iter().flatten().copied() {
                    if !standing.counted[neighbour] {
                        continue;
                    }
                    let is_heard =
                        *hears[row].get_or_insert_with(|| filter.hears(&held.rows[row].facets));
                    if is_heard {
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
                let length = standing.lengths[row];
                scores[row] += bm25::term_score(standing.population, with_term, frequency, length);
            }
        }

        let mut hits = Vec::new();
        for (row, score) in held.rows.iter().zip(scores) {
            if score > 0.0 && filter.admits(&row.facets) {
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
        let held = Rows::load(self, owner)?;
        let mut tokens: Vec<Tokens> = held.rows.iter().map(|_| Tokens::default()).collect();
        let (prefix, range) = (terms::prefix(owner), terms::range(owner));
        for (place, segment) in held.segments.iter().enumerate() {
            let segment = self.searcher.segment_reader(self.segments[segment] as u32);
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
                    if let Some(row) = held.find(place, doc) {
                        tokens[row].push(&term[prefix.len()..], docs.term_freq());
                    }
                    doc = docs.advance();
                }
            }
        }

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
                hash: digests::text_hash(&row.facets, &tokens, row.place),
            });
        }
        digests.sort();
        Ok(digests)
    }

    /// Where a token occurs: row and frequency.
    fn occurrences(
        &self,
        held: &Rows,
        places: &[usize],
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
        for (place, number) in places.iter().enumerate() {
            let segment = self.searcher.segment_reader(*number as u32);
            let index = segment.inverted_index(self.fields.text).map_err(engine)?;
            let postings = index.read_postings(&term, IndexRecordOption::WithFreqs);
            let Some(mut docs) = postings.map_err(|error| io(&error))? else {
                continue;
            };
            let mut doc = docs.doc();
            while doc != TERMINATED {
                let at = |row: usize| held.rows.get(row).map(|one| (one.segment, one.doc));
                // Both ascend by segment and document.
                while at(row).is_some_and(|held| held < (place, doc)) {
                    row += 1;
                }
                if at(row).is_some_and(|held| held == (place, doc)) {
                    found.push((row, docs.term_freq()));
                }
                doc = docs.advance();
            }
        }
        Ok(found)
    }
}
