//! What a document of the text index holds: one memory version as terms and columns. Nothing is stored
//! as text; the words are in the terms, and columns hold what the hard filter asks.
//!
//! A version's end of the recorded interval is written only where it came with the version (a rewrite
//! after an erasure). Otherwise it is the start of the same memory's next version, read and not written:
//! so a new version never has to touch the document of the one before it.

use anamnesis_domain::ids::{MemoryId, OwnerKey};
use anamnesis_domain::memory::{Kind, Status};
use anamnesis_domain::owner::Subject;
use anamnesis_pipeline::beside::Place;
use anamnesis_pipeline::digests;
use anamnesis_pipeline::stores::{Facets, MemoryVersion};
use serde::{Deserialize, Serialize};
use tantivy::schema::{
    FAST, Field, INDEXED, IndexRecordOption, Schema, SchemaBuilder, TextFieldIndexing, TextOptions,
};
use tantivy::tokenizer::{PreTokenizedString, Token};
use tantivy::{TantivyDocument, Term};

use super::terms;

/// Belongs to a generation; another number is another layout of the document.
pub(super) const FORMAT: u32 = 2;

/// tantivy cuts a value beyond 65,535 bytes without an error; a longer one is written as several.
const VALUE_BYTES_MAX: usize = 60_000;

/// Columns, by their names.
pub(super) mod column {
    pub(in crate::text) const MEMORY_HIGH: &str = "memory_high";
    pub(in crate::text) const MEMORY_LOW: &str = "memory_low";
    pub(in crate::text) const VERSION: &str = "version";
    pub(in crate::text) const RECORDED_FROM: &str = "recorded_from";
    pub(in crate::text) const RECORDED_TO: &str = "recorded_to";
    pub(in crate::text) const VALID_FROM: &str = "valid_from";
    pub(in crate::text) const VALID_TO: &str = "valid_to";
    pub(in crate::text) const LENGTH: &str = "length";
    pub(in crate::text) const CONFIRMATION: &str = "confirmation";
    pub(in crate::text) const TRAITS: &str = "traits";
    /// Of turns only ([`anamnesis_pipeline::beside::Place`]).
    pub(in crate::text) const CONVERSATION: &str = "conversation";
    pub(in crate::text) const SAID_AT: &str = "said_at";
}

#[derive(Clone, Copy)]
pub(super) struct Fields {
    /// Names one version: what an update or a deletion goes by. Bytes, so that nothing tokenises it.
    key: Field,
    pub(super) owner: Field,
    pub(super) text: Field,
    memory_high: Field,
    memory_low: Field,
    version: Field,
    recorded_from: Field,
    recorded_to: Field,
    valid_from: Field,
    valid_to: Field,
    length: Field,
    confirmation: Field,
    traits: Field,
    conversation: Field,
    said_at: Field,
}

/// The facets that are not numbers. Few combinations occur, so the column's dictionary is short.
#[derive(Clone, Serialize, Deserialize)]
pub(super) struct Traits {
    pub(super) kind: Kind,
    pub(super) status: Status,
    pub(super) subject: Subject,
    pub(super) context_tags: Vec<String>,
}

pub(super) fn schema() -> (Schema, Fields) {
    let mut builder = SchemaBuilder::new();
    let words = TextOptions::default().set_indexing_options(
        TextFieldIndexing::default()
            // Terms arrive as tokens; this tokenizer is never asked.
            .set_tokenizer("raw")
            .set_fieldnorms(false)
            .set_index_option(IndexRecordOption::WithFreqs),
    );
    let fields = Fields {
        key: builder.add_bytes_field("key", INDEXED),
        owner: builder.add_bytes_field("owner", INDEXED),
        text: builder.add_text_field("text", words),
        memory_high: builder.add_u64_field(column::MEMORY_HIGH, FAST),
        memory_low: builder.add_u64_field(column::MEMORY_LOW, FAST),
        version: builder.add_u64_field(column::VERSION, FAST),
        recorded_from: builder.add_u64_field(column::RECORDED_FROM, FAST),
        recorded_to: builder.add_u64_field(column::RECORDED_TO, FAST),
        valid_from: builder.add_i64_field(column::VALID_FROM, FAST),
        valid_to: builder.add_i64_field(column::VALID_TO, FAST),
        length: builder.add_u64_field(column::LENGTH, FAST),
        confirmation: builder.add_bool_field(column::CONFIRMATION, FAST),
        traits: builder.add_bytes_field(column::TRAITS, FAST),
        conversation: builder.add_u64_field(column::CONVERSATION, FAST),
        said_at: builder.add_i64_field(column::SAID_AT, FAST),
    };
    (builder.build(), fields)
}

impl Fields {
    pub(super) fn key_term(&self, version: &MemoryVersion) -> Term {
        let mut key = Vec::with_capacity(40);
        key.extend_from_slice(version.owner.bytes());
        key.extend_from_slice(version.memory.id.bytes());
        key.extend_from_slice(&version.memory.version.to_be_bytes());
        Term::from_field_bytes(self.key, &key)
    }

    pub(super) fn owner_term(&self, owner: OwnerKey) -> Term {
        Term::from_field_bytes(self.owner, owner.bytes())
    }

    pub(super) fn document(&self, version: &MemoryVersion) -> TantivyDocument {
        let Facets {
            recorded_from,
            recorded_to,
            valid_from,
            valid_to,
            subject,
            kind,
            status,
            context_tags,
            is_confirmation,
        } = version.facets();
        let tokens = digests::term_frequencies(&version.memory);
        let length: u64 = tokens
            .iter()
            .map(|(_, frequency)| u64::from(*frequency))
            .sum();
        let (high, low) = halves(version.memory.id);
        let traits = Traits {
            kind,
            status,
            subject,
            context_tags,
        };

        let mut document = TantivyDocument::default();
        document.add_bytes(self.key, self.key_term(version).serialized_value_bytes());
        document.add_bytes(self.owner, version.owner.bytes());
        document.add_pre_tokenized_text(self.text, words(version.owner, &tokens));
        document.add_u64(self.memory_high, high);
        document.add_u64(self.memory_low, low);
        document.add_u64(self.version, version.memory.version);
        document.add_u64(self.recorded_from, recorded_from);
        if let Some(to) = recorded_to {
            document.add_u64(self.recorded_to, to);
        }
        document.add_i64(self.valid_from, valid_from.millis());
        if let Some(to) = valid_to {
            document.add_i64(self.valid_to, to.millis());
        }
        document.add_u64(self.length, length);
        document.add_bool(self.confirmation, is_confirmation);
        if let Some(place) = Place::of(&version.memory) {
            document.add_u64(self.conversation, place.conversation);
            document.add_i64(self.said_at, place.said_at);
        }
        let traits = serde_json::to_vec(&traits).expect("plain data");
        for piece in traits.chunks(VALUE_BYTES_MAX) {
            document.add_bytes(self.traits, piece);
        }
        document
    }
}

/// The owner's terms, each as often as it occurs. The text itself is left out.
fn words(owner: OwnerKey, tokens: &[(String, u32)]) -> PreTokenizedString {
    let prefix = terms::prefix(owner);
    let mut words = Vec::new();
    for (token, frequency) in tokens {
        for term in terms::of_token(&prefix, token) {
            let word = Token {
                text: term,
                position: 0,
                position_length: 1,
                offset_from: 0,
                offset_to: 0,
            };
            words.extend(std::iter::repeat_n(word, *frequency as usize));
        }
    }
    PreTokenizedString {
        text: String::new(),
        tokens: words,
    }
}

fn halves(id: MemoryId) -> (u64, u64) {
    let id = u128::from_be_bytes(*id.bytes());
    ((id >> 64) as u64, id as u64)
}

pub(super) fn memory_id(high: u64, low: u64) -> MemoryId {
    MemoryId::from_bytes(((u128::from(high) << 64) | u128::from(low)).to_be_bytes())
}
