//! What any store must pass, whichever of the four it is.
//!
//! A backend says how it is opened ([`Backend`]) and lists the suites in its tests:
//!
//! ```text
//! mod sqlite_text {
//!     fn fresh() -> impl Backend<Store = dyn TextIndex> { … }
//!     anamnesis_pipeline::projection_cases!(fresh);
//!     anamnesis_pipeline::text_cases!(fresh);
//! }
//! ```
//!
//! - [`projection`], [`filters`]: checkpoints, batches, rewriting, filters, agreement with the double:
//!   every store
//! - [`records`], [`text`], [`vectors`], [`graph`]: what one store alone promises
//! - [`script`], [`draw`]: histories to apply, written by hand or drawn from a seed

use std::future::Future;
use std::path::Path;
use std::sync::Arc;

use anamnesis_domain::ids::{LogId, MemoryId};
use anamnesis_domain::tokens;
use async_trait::async_trait;

use crate::doubles::graph::MemoryGraph;
use crate::doubles::records::MemoryRecords;
use crate::doubles::text::MemoryText;
use crate::doubles::vectors::MemoryVectors;
use crate::embedder::ModelIdentity;
use crate::stores::{
    Filter, GraphIndex, Hit, LegAnswer, Order, Projection, Records, StoreError, TextIndex,
    VectorIndex,
};

pub mod draw;
pub mod filters;
pub mod graph;
pub mod projection;
pub mod records;
pub mod script;
pub mod text;
pub mod vectors;

use draw::Draw;
use script::peanut;

/// The log that backends under test follow.
pub const LOG_ID: LogId = LogId::from_bytes([0x10; 16]);

/// More than one, so that a store which mixes partitions up is found.
pub const PARTITIONS: u32 = 4;

/// The model of vectors under test. The dimension is no multiple of a vector register.
pub fn model() -> ModelIdentity {
    ModelIdentity {
        id: "conformance".to_owned(),
        dimension: 21,
    }
}

/// One place that holds a store: a folder, or some memory.
pub trait Backend: Send + Sync {
    type Store: Probe + ?Sized;

    /// Opens the place with [`LOG_ID`], [`PARTITIONS`] and [`model`]: an empty store the first time,
    /// later what was applied to it. Everything opened before has been dropped without a word, as in
    /// a crash.
    fn open(&self) -> impl Future<Output = Result<Arc<Self::Store>, StoreError>> + Send;

    /// Where the files are; `None` in memory.
    fn dir(&self) -> Option<&Path>;

    /// Whether the files hold words as they were said, so that a search for them must succeed before
    /// it may fail. False for a compressing format.
    fn is_plain(&self) -> bool {
        true
    }
}

/// How the shared cases question a store, and which double is its reference.
#[async_trait]
pub trait Probe: Projection {
    /// An empty double of the same port.
    fn reference() -> Arc<Self>;

    /// All memories that answer under the filter, when what they share (see [`script::memory`]) is
    /// asked for.
    async fn found(&self, filter: &Filter) -> Result<LegAnswer, StoreError>;

    /// Any question that the store can be asked, drawn from `draw`.
    async fn ask(&self, filter: &Filter, draw: &mut Draw) -> Result<LegAnswer, StoreError>;
}

const EVERYTHING: usize = 10_000;

#[async_trait]
impl Probe for dyn Records {
    fn reference() -> Arc<Self> {
        Arc::new(MemoryRecords::new(LOG_ID, PARTITIONS))
    }

    async fn found(&self, filter: &Filter) -> Result<LegAnswer, StoreError> {
        records_answer(self, filter, Order::Recorded, 3).await
    }

    async fn ask(&self, filter: &Filter, draw: &mut Draw) -> Result<LegAnswer, StoreError> {
        let order = if draw.chance(50) {
            Order::Recorded
        } else {
            Order::Valid
        };
        let listed = records_answer(self, filter, order, 1 + draw.below(20) as usize).await?;
        let ids: Vec<MemoryId> = (0..12).map(|_| draw.memory_id()).collect();
        let checked = self.check(filter, &ids).await?;
        let checked = checked.into_iter().map(|version| Hit {
            memory_id: version.memory.id,
            version: version.memory.version,
            score: version.recorded_from as f64,
        });
        let hits = listed.hits.into_iter().chain(checked).collect();
        Ok(LegAnswer {
            hits,
            position: listed.position,
        })
    }
}

/// All pages of a listing as one answer; the score says which version it was.
async fn records_answer(
    records: &dyn Records,
    filter: &Filter,
    order: Order,
    limit: usize,
) -> Result<LegAnswer, StoreError> {
    let mut hits = Vec::new();
    let mut cursor: Option<String> = None;
    loop {
        let page = records
            .list(filter, order, limit, cursor.as_deref())
            .await?;
        assert!(page.versions.len() <= limit, "a page is longer than asked");
        hits.extend(page.versions.iter().map(|version| Hit {
            memory_id: version.memory.id,
            version: version.memory.version,
            score: version.recorded_to.map_or(0.0, |to| to as f64),
        }));
        cursor = page.cursor;
        if cursor.is_none() {
            break;
        }
    }
    let latest = records
        .cut(filter.scope, anamnesis_domain::time::Known::Latest)
        .await?;
    Ok(LegAnswer {
        hits,
        position: latest.0,
    })
}

#[async_trait]
impl Probe for dyn TextIndex {
    fn reference() -> Arc<Self> {
        Arc::new(MemoryText::new(LOG_ID, PARTITIONS))
    }

    async fn found(&self, filter: &Filter) -> Result<LegAnswer, StoreError> {
        self.search(filter, &tokens::query_tokens("peanut 花生"), EVERYTHING)
            .await
    }

    async fn ask(&self, filter: &Filter, draw: &mut Draw) -> Result<LegAnswer, StoreError> {
        let terms = tokens::query_tokens(&draw.text(6));
        let top = if draw.chance(30) { 3 } else { EVERYTHING };
        self.search(filter, &terms, top).await
    }
}

#[async_trait]
impl Probe for dyn VectorIndex {
    fn reference() -> Arc<Self> {
        Arc::new(MemoryVectors::new(LOG_ID, PARTITIONS, model()))
    }

    async fn found(&self, filter: &Filter) -> Result<LegAnswer, StoreError> {
        let query = script::vector_of("peanut 花生").expect("a text gives a vector");
        self.search(filter, &query, EVERYTHING).await
    }

    async fn ask(&self, filter: &Filter, draw: &mut Draw) -> Result<LegAnswer, StoreError> {
        let text = format!("x {}", draw.text(6));
        let query = script::vector_of(&text).expect("a text gives a vector");
        let top = if draw.chance(30) { 3 } else { EVERYTHING };
        self.search(filter, &query, top).await
    }
}

#[async_trait]
impl Probe for dyn GraphIndex {
    fn reference() -> Arc<Self> {
        Arc::new(MemoryGraph::new(LOG_ID, PARTITIONS))
    }

    async fn found(&self, filter: &Filter) -> Result<LegAnswer, StoreError> {
        self.neighbours(filter, &[], &[peanut()], EVERYTHING).await
    }

    async fn ask(&self, filter: &Filter, draw: &mut Draw) -> Result<LegAnswer, StoreError> {
        let seeds: Vec<MemoryId> = (0..draw.below(4)).map(|_| draw.memory_id()).collect();
        let entities = draw.entities();
        let top = if draw.chance(30) { 3 } else { EVERYTHING };
        self.neighbours(filter, &seeds, &entities, top).await
    }
}

/// One test per case. `$fresh` is a function that gives a new, empty [`Backend`].
#[doc(hidden)]
#[macro_export]
macro_rules! store_cases {
    ($suite:ident, $fresh:path, $($case:ident)+) => {
        mod $suite {
            use super::*;

            $(
                #[tokio::test]
                async fn $case() {
                    $crate::conformance::stores::$suite::$case($fresh).await;
                }
            )+
        }
    };
}

/// What every store must pass.
#[macro_export]
macro_rules! projection_cases {
    ($fresh:path) => {
        $crate::store_cases!(projection, $fresh,
            a_fresh_store_stands_nowhere
            a_batch_moves_the_checkpoint_with_its_data
            a_batch_from_elsewhere_changes_nothing
            a_batch_of_another_log_changes_nothing
            a_batch_of_another_partition_changes_nothing
            batches_of_any_size_give_the_same_rows
            a_version_closes_the_open_one
            a_rewrite_leaves_exactly_what_it_lists
            what_was_applied_is_seen_by_all_who_ask_after_it
            nobody_finds_what_was_erased_while_others_ask
            a_redelivered_batch_resurrects_nothing
            one_version_lives_and_none_after_erasure
            a_store_opens_where_it_stood
            compaction_leaves_no_erased_byte
        );
        $crate::store_cases!(filters, $fresh,
            owners_never_meet
            recorded_time_is_a_filter
            valid_time_is_a_filter
            every_facet_is_a_filter
            odd_words_are_kept_whole
            answers_agree_with_the_reference
        );
    };
}

#[macro_export]
macro_rules! records_cases {
    ($fresh:path) => {
        $crate::store_cases!(records, $fresh,
            a_cut_is_the_first_offset_recorded_later
            a_check_answers_in_the_order_asked
            a_history_is_oldest_first
            pages_join_without_gap_or_repeat
            a_listing_does_not_move_while_it_is_read
            a_foreign_cursor_is_refused
            a_decision_answers_its_event
            an_owner_is_known_by_its_last_view
            counts_are_of_current_memories
        );
    };
}

#[macro_export]
macro_rules! text_cases {
    ($fresh:path) => {
        $crate::store_cases!(text, $fresh,
            a_score_is_the_formula_of_the_domain
            statistics_are_taken_before_the_filter
            a_turn_is_found_by_what_was_said_beside_it
            statistics_are_those_of_the_cut
            other_owners_change_no_score
            chinese_and_english_are_found_alike
            a_repeated_term_counts_as_asked
            without_a_shared_term_nothing_is_found
            ties_are_ordered_by_id
        );
    };
}

#[macro_export]
macro_rules! vectors_cases {
    ($fresh:path) => {
        $crate::store_cases!(vectors, $fresh,
            a_score_is_the_cosine
            a_vector_of_another_length_is_refused
            a_version_without_vector_closes_the_one_before
            a_search_sees_what_was_just_applied
        );
    };
}

#[macro_export]
macro_rules! graph_cases {
    ($fresh:path) => {
        $crate::store_cases!(graph, $fresh,
            seeds_lead_to_what_shares_their_entities
            a_hub_weighs_less
            the_degree_counts_admitted_memories_only
            an_unknown_seed_leads_nowhere
        );
    };
}
