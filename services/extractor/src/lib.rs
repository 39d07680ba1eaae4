//! Finds in a conversation turn what could become a memory: rules over lexicons, in Chinese and
//! English, and beside them what a language model says, as far as the words bear it out. Pure: the same
//! turn, context and answer give the same candidates.
//!
//! - [`extract`]: the verb; [`context`]: what the shell hands over beside the turn
//! - [`query`]: entities and subject of a question, for recall
//! - `fold`, `sentence`, `scene`: from a turn to clauses, each read once
//! - `lexicon`, `subject`, `negation`, `quantity`, `schedule`, `dates`: what words mean
//! - [`intent`]: whether somebody asks for something to be written down
//! - `modality`, `explicit`, `gates`, `directives`, `contrast`: what is asserted, asked to be kept, never
//!   kept, moved
//! - `request`: what becomes of a request to write something down, over several messages
//! - `asked`: what a short answer says, with the question before it in mind
//! - `repair`: words taken back or left out within one sentence
//! - `patterns`: which facts a clause states
//! - [`prompt`], [`ask`]: what a model is asked, and how, so that it costs no more than was allowed
//! - `answer`, [`reply`], `offer`: what it said, as it is recorded, and what of it is true of the turn

mod answer;
pub mod ask;
mod asked;
pub mod context;
mod contrast;
mod dates;
mod directives;
mod explicit;
pub mod extract;
mod fold;
mod gates;
pub mod intent;
mod lexicon;
pub mod metrics;
mod modality;
mod negation;
mod offer;
mod pattern;
mod patterns;
pub mod prompt;
mod quantity;
pub mod query;
mod reading;
mod repair;
pub mod reply;
mod request;
mod scene;
mod schedule;
mod sentence;
pub mod stage;
mod structured;
mod subject;

use anamnesis_domain::input::Turn;
use anamnesis_domain::memory::Claim;

pub use answer::Repair;
pub use context::{Context, Episodes, Said};
pub use extract::{extract, extract_with};
pub use query::{query_entities, query_persons, query_subject, query_things};

/// What a sentence states on its own, without a conversation around it and without its episode.
pub fn statements(turn: &Turn) -> Vec<Claim> {
    let alone = Context {
        episodes: Episodes::Off,
        ..Context::default()
    };
    let set = extract(turn, &alone);
    set.candidates.into_iter().map(|one| one.claim).collect()
}
