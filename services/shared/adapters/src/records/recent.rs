//! What is at hand of an owner, so that a recall asks no file?
//!
//! Of each version what the hard filter looks at, and the rest of it once it was asked for. Answers are
//! those of [`super::read`]: the same filter, the same order. Where a block cannot say, the file is asked.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use anamnesis_domain::ids::{EventTag, MemoryId};
use anamnesis_domain::memory::Kind;
use anamnesis_domain::owner::OwnerScope;
use anamnesis_pipeline::paging::{Cursor, PAGE_VERSIONS_MAX};
use anamnesis_pipeline::stores::{
    DecisionRow, Facets, Filter, MemoryVersion, Order, OwnerView, StoreError,
};
use rusqlite::{Connection, params};

use super::{body, read};
use crate::owner_cache::Block;
use crate::sqlite_store::Failure;
use crate::sqlite_store::facets::{self, VERSION_COLUMNS, VersionId, version_columns};

const ROWS: &str = concat!(
    "SELECT ",
    version_columns!(),
    ", id FROM versions WHERE owner = ?1 ORDER BY memory, version LIMIT ?2"
);

/// Versions of one owner that are kept at hand; of an owner with more the file is asked.
const ROWS_MAX: usize = 200_000;

const BODY: &str = concat!(
    "SELECT ",
    version_columns!(),
    ", recorded_at, body FROM versions WHERE id = ?1"
);

/// What lies beside a version in memory: texts that its fields point to, about as long as most are.
const TEXTS_BYTES: usize = 400;

/// One owner's rows in one snapshot.
pub(super) struct Recent {
    view: Option<OwnerView>,
    /// Whether the owner has more than is kept at hand: then nothing is.
    pub(super) is_too_large: bool,
    /// By memory, then by version.
    rows: Vec<Known>,
    /// Places in `rows` in the order of a listing.
    by_recorded: Vec<u32>,
    by_valid: Vec<u32>,
    /// The same of one kind each: a few memories that protect are asked for at each recall, among all of an
    /// owner's.
    of_kind: BTreeMap<Kind, Vec<u32>>,
    /// First decisions that were asked for; `None` for an event that none answers.
    decisions: Mutex<BTreeMap<EventTag, Option<DecisionRow>>>,
    /// What was read since the block was made.
    grown: AtomicUsize,
}

struct Known {
    row: i64,
    memory: MemoryId,
    version: u64,
    facets: Facets,
    whole: OnceLock<Box<MemoryVersion>>,
}

impl Block for Recent {
    fn bytes(&self) -> usize {
        // The view has a few grants and tasks.
        size_of::<Self>()
            + 1_000
            + self.rows.capacity() * (size_of::<Known>() + 3 * size_of::<u32>())
            + self.grown.load(Ordering::Relaxed)
    }
}

/// Versions that answer, by their places in a block, and where the next page starts.
pub(super) struct Places {
    places: Vec<usize>,
    pub(super) cursor: Option<String>,
}

impl Recent {
    /// # Errors
    /// When a row cannot be read; whoever does not ask about that one is answered from the file.
    pub(super) fn load(connection: &Connection, scope: OwnerScope) -> Result<Self, Failure> {
        let mut statement = connection.prepare_cached(ROWS)?;
        let mut found = statement.query(params![scope.key().bytes(), ROWS_MAX as i64 + 1])?;
        let mut rows = Vec::new();
        while let Some(row) = found.next()? {
            let id = VersionId::read(row)?;
            rows.push(Known {
                row: row.get(VERSION_COLUMNS)?,
                memory: id.memory,
                version: id.version,
                facets: facets::read(row)?,
                whole: OnceLock::new(),
            });
        }
        let is_too_large = rows.len() > ROWS_MAX;
        if is_too_large {
            rows.clear();
        }
        rows.shrink_to_fit();
        let order = |key: fn(&Facets) -> i64| {
            let mut places: Vec<u32> = (0..rows.len() as u32).collect();
            places.sort_by_key(|place| {
                let known = &rows[*place as usize];
                (std::cmp::Reverse(key(&known.facets)), known.memory)
            });
            places
        };
        let by_valid = order(|facets| key_of(Order::Valid, facets));
        let mut of_kind: BTreeMap<Kind, Vec<u32>> = BTreeMap::new();
        for place in &by_valid {
            let kind = rows[*place as usize].facets.kind;
            of_kind.entry(kind).or_default().push(*place);
        }
        Ok(Self {
            view: read::owner(connection, scope)?,
            is_too_large,
            by_recorded: order(|facets| key_of(Order::Recorded, facets)),
            by_valid,
            of_kind,
            rows,
            decisions: Mutex::default(),
            grown: AtomicUsize::new(0),
        })
    }

    pub(super) fn owner(&self) -> Option<OwnerView> {
        self.view.clone()
    }

    /// As [`read::check`].
    pub(super) fn check(&self, filter: &Filter, ids: &[MemoryId]) -> Places {
        let admitted = |id: &MemoryId| {
            let mut versions = self.versions_of(*id);
            versions.find(|place| filter.admits(&self.rows[*place].facets))
        };
        Places {
            places: ids.iter().filter_map(admitted).collect(),
            cursor: None,
        }
    }

    /// As [`read::history`].
    pub(super) fn history(&self, id: MemoryId) -> Places {
        Places {
            places: self.versions_of(id).collect(),
            cursor: None,
        }
    }

    fn versions_of(&self, id: MemoryId) -> impl Iterator<Item = usize> {
        let from = self.rows.partition_point(|known| known.memory < id);
        let rows = self.rows[from..].iter();
        (from..)
            .zip(rows.take_while(move |known| known.memory == id))
            .map(|(place, _)| place)
    }

    /// As [`read::list`].
    pub(super) fn list(
        &self,
        mut filter: Filter,
        order: Order,
        limit: usize,
        cursor: Option<&str>,
    ) -> Result<Places, StoreError> {
        let limit = limit.clamp(1, PAGE_VERSIONS_MAX);
        let after = cursor.map(|text| Cursor::read(text, order)).transpose()?;
        if let Some(after) = after {
            filter.cut = after.cut;
        }
        let ordered: &[u32] = match (order, filter.kinds.as_deref()) {
            (Order::Recorded, _) => &self.by_recorded,
            (Order::Valid, Some([kind])) => self.of_kind.get(kind).map_or(&[][..], Vec::as_slice),
            (Order::Valid, _) => &self.by_valid,
        };
        let at = |place: u32| {
            let known = &self.rows[place as usize];
            (
                std::cmp::Reverse(key_of(order, &known.facets)),
                known.memory,
            )
        };
        let from = after.map_or(0, |after| {
            let last = (std::cmp::Reverse(after.key), after.id);
            ordered.partition_point(|place| at(*place) <= last)
        });
        let mut places = Vec::new();
        let mut cursor = None;
        for place in &ordered[from..] {
            let known = &self.rows[*place as usize];
            if !filter.admits(&known.facets) {
                continue;
            }
            if places.len() == limit {
                let last = places.last().map(|last: &usize| &self.rows[*last]);
                cursor = last.map(|last| {
                    let cursor = Cursor {
                        order,
                        cut: filter.cut,
                        key: key_of(order, &last.facets),
                        id: last.memory,
                    };
                    cursor.write()
                });
                break;
            }
            places.push(*place as usize);
        }
        Ok(Places { places, cursor })
    }

    /// The versions at these places; `None` while one of them was not read.
    pub(super) fn whole(&self, at: &Places) -> Option<Vec<MemoryVersion>> {
        let whole = at.places.iter().map(|place| self.rows[*place].whole.get());
        whole
            .map(|whole| whole.map(|whole| (**whole).clone()))
            .collect()
    }

    /// Reads what is missing at these places. False when the file has gone on since the block was made:
    /// then it does not say the same any more.
    pub(super) fn fill(&self, connection: &Connection, at: &Places) -> Result<bool, Failure> {
        let mut statement = connection.prepare_cached(BODY)?;
        for place in &at.places {
            let known = &self.rows[*place];
            if known.whole.get().is_some() {
                continue;
            }
            let mut rows = statement.query([known.row])?;
            let Some(row) = rows.next()? else {
                return Ok(false);
            };
            // The number of a row that was deleted may be another one's by now.
            let id = VersionId::read(row)?;
            if id.memory != known.memory || id.version != known.version {
                return Ok(false);
            }
            let version = body::read_version(row)?;
            if version.facets() != known.facets {
                return Ok(false);
            }
            if known.whole.set(Box::new(version)).is_ok() {
                let bytes = size_of::<MemoryVersion>() + TEXTS_BYTES;
                self.grown.fetch_add(bytes, Ordering::Relaxed);
            }
        }
        Ok(true)
    }

    fn decisions(&self) -> MutexGuard<'_, BTreeMap<EventTag, Option<DecisionRow>>> {
        self.decisions
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// As [`read::decision`]; `None` while it was not read.
    pub(super) fn decision(&self, event: EventTag) -> Option<Option<DecisionRow>> {
        self.decisions().get(&event).cloned()
    }

    /// What was read after the block was. Should it be of a later state, then a batch of this owner has
    /// ended, or is about to, and with it the block.
    pub(super) fn keep_decision(&self, event: EventTag, decision: Option<DecisionRow>) {
        let memories = decision.as_ref().map_or(0, |row| row.memory_ids.len());
        let bytes = size_of::<(EventTag, Option<DecisionRow>)>() + memories * size_of::<MemoryId>();
        if self.decisions().insert(event, decision).is_none() {
            self.grown.fetch_add(bytes, Ordering::Relaxed);
        }
    }
}

/// What a listing is sorted by, descending.
fn key_of(order: Order, facets: &Facets) -> i64 {
    match order {
        Order::Recorded => facets.recorded_from as i64,
        Order::Valid => facets.valid_from.millis(),
    }
}
