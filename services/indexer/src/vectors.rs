//! Vectors are computed once and recorded in `embeddings`; the first one of a memory and a model wins.
//! A rebuild reads them from there and calls no model.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroUsize;
use std::sync::Arc;

use anamnesis_domain::ids::MemoryId;
use anamnesis_domain::input::Topic;
use anamnesis_domain::memory::Kind;
use anamnesis_domain::text::Text;
use anamnesis_pipeline::codec::{Codec, EmbeddingDraft, Opened, OpenedDecided};
use anamnesis_pipeline::consumer::{BATCH_BYTES_MAX, StageError};
use anamnesis_pipeline::embedder::{Embed, ModelIdentity};
use anamnesis_pipeline::log::Log;
use anamnesis_schemas::{Envelope, Header};
use lru::LruCache;

use crate::stage::{Drafts, PURPOSE, asserted};

/// Texts that go to the model in one call.
const EMBED_TEXTS_MAX: usize = 64;
/// Vectors kept in memory, those used last: later versions of a memory carry its vector again.
const KEPT_MAX: NonZeroUsize = NonZeroUsize::new(4_096).unwrap();
/// Records of vectors that are read at once.
const READ_MAX: usize = 500;

/// Where each memory's vector stands in `embeddings`, for one partition and one model.
pub(crate) struct VectorBook {
    partition: u32,
    model: ModelIdentity,
    offsets: BTreeMap<MemoryId, u64>,
    kept: LruCache<MemoryId, Arc<[f32]>>,
    next: u64,
}

impl VectorBook {
    pub(crate) async fn open(log: &Log, embed: &Embed, partition: u32) -> Result<Self, StageError> {
        let mut book = Self {
            partition,
            model: embed.identity().clone(),
            offsets: BTreeMap::new(),
            kept: LruCache::new(KEPT_MAX),
            next: log.start(Topic::Embeddings, partition).await?,
        };
        book.read_to_end(log).await?;
        Ok(book)
    }

    /// Notes every vector that the topic holds beyond what was read before.
    async fn read_to_end(&mut self, log: &Log) -> Result<(), StageError> {
        loop {
            let records = log
                .read(
                    Topic::Embeddings,
                    self.partition,
                    self.next,
                    1_000,
                    BATCH_BYTES_MAX,
                )
                .await?;
            let Some(last) = records.last() else {
                return Ok(());
            };
            self.next = last.position.offset + 1;
            for record in &records {
                if let Some((id, model)) = embedded(&record.payload)
                    && model == self.model
                {
                    self.offsets.entry(id).or_insert(record.position.offset);
                }
            }
        }
    }

    /// Computes and records vectors of the claims that these decisions assert, where none is recorded.
    pub(crate) async fn embed_new(
        &mut self,
        decisions: &[Option<OpenedDecided>],
        log: &Log,
        codec: &Codec,
        embed: &Embed,
    ) -> Result<(), StageError> {
        let mut wanted = Vec::new();
        for opened in decisions.iter().flatten() {
            for (id, key_id, claim) in asserted(&opened.decided) {
                let speaker = claim.source.speaker.as_ref().map(Text::expose);
                let text = passage(claim.kind, speaker, claim.text.expose());
                let is_known = self.offsets.contains_key(&id);
                if !is_known && !text.is_empty() {
                    wanted.push((
                        opened.decided.owner,
                        opened.decided.key_epoch,
                        id,
                        key_id,
                        text,
                    ));
                }
            }
        }
        if wanted.is_empty() {
            return Ok(());
        }
        let mut drafts: Drafts = Vec::with_capacity(wanted.len());
        for chunk in wanted.chunks(EMBED_TEXTS_MAX) {
            let texts: Vec<&str> = chunk.iter().map(|(.., text)| &**text).collect();
            let vectors = embed.embed(&texts, PURPOSE).await?;
            for ((owner, epoch, id, key_id, _), vector) in chunk.iter().zip(vectors) {
                drafts.push(EmbeddingDraft {
                    owner: *owner,
                    epoch: *epoch,
                    memory_id: *id,
                    key_id: *key_id,
                    model: self.model.clone(),
                    vector,
                });
            }
        }
        let records = codec.seal_embeddings(&drafts).await?;
        let appended = log
            .append(Topic::Embeddings, self.partition, records)
            .await?;
        // Read back what the topic says: if somebody else was first, theirs is used.
        self.read_to_end(log).await?;
        if appended.len() != drafts.len() {
            // Somebody was erased meanwhile, and what is left is not told apart here.
            return Ok(());
        }
        for (draft, appended) in drafts.into_iter().zip(appended) {
            if self.offsets.get(&draft.memory_id) == Some(&appended.position.offset) {
                self.kept.put(draft.memory_id, draft.vector.into());
            }
        }
        Ok(())
    }

    /// The recorded vectors of these memories. One that has none, or whose key is destroyed, is absent.
    pub(crate) async fn vectors(
        &mut self,
        ids: &BTreeSet<MemoryId>,
        log: &Log,
        codec: &Codec,
    ) -> Result<BTreeMap<MemoryId, Arc<[f32]>>, StageError> {
        let mut found = BTreeMap::new();
        let mut missing = Vec::new();
        for id in ids {
            match (self.kept.get(id), self.offsets.get(id)) {
                (Some(vector), _) => {
                    found.insert(*id, vector.clone());
                }
                (None, Some(offset)) => missing.push(*offset),
                (None, None) => (),
            }
        }
        // Each place of the log costs a question, so that all are asked for together.
        missing.sort_unstable();
        for offsets in missing.chunks(READ_MAX) {
            let records = log
                .read_at(Topic::Embeddings, self.partition, offsets)
                .await?;
            for opened in codec.open(&records).await? {
                if let Opened::Embedding {
                    memory_id,
                    vector: Some(vector),
                    ..
                } = opened?
                {
                    let vector: Arc<[f32]> = vector.into();
                    self.kept.put(memory_id, vector.clone());
                    found.insert(memory_id, vector);
                }
            }
        }
        Ok(found)
    }

    /// Drops what is held in memory: keys were destroyed.
    pub(crate) fn forget(&mut self) {
        self.kept.clear();
    }
}

/// What the vector of a claim is made of: a turn with the name of who said it, since questions ask by that name
/// what somebody did who speaks of "I"; what was distilled says whom it is about by itself.
fn passage<'a>(kind: Kind, speaker: Option<&str>, text: &'a str) -> Cow<'a, str> {
    match speaker {
        Some(speaker) if kind == Kind::Episode && !text.is_empty() => {
            Cow::Owned(format!("{speaker}: {text}"))
        }
        Some(_) | None => Cow::Borrowed(text),
    }
}

/// Which memory and model a record of `embeddings` is about: its clear header.
fn embedded(payload: &[u8]) -> Option<(MemoryId, ModelIdentity)> {
    let envelope = Envelope::decode(payload).ok()?;
    match Header::decode(&envelope.header).ok()? {
        Header::Embedding(header) => Some((
            header.memory_id,
            ModelIdentity {
                id: header.model,
                dimension: header.dimension,
            },
        )),
        Header::Identity(_)
        | Header::Input(_)
        | Header::Decided(_)
        | Header::WriterStarted(_)
        | Header::Parked(_)
        | Header::Unparked(_)
        | Header::Access(_)
        | Header::ErasureReceipt(_)
        | Header::InboxRead(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_turn_is_embedded_with_its_speaker_and_what_was_distilled_without() {
        let check = |kind, speaker, text, expected: &str| {
            assert_eq!(passage(kind, speaker, text), expected);
        };
        check(Kind::Episode, Some("Ann"), "I moved", "Ann: I moved");
        check(Kind::Episode, Some("小陈"), "我搬家了", "小陈: 我搬家了");
        check(Kind::Episode, None, "I moved", "I moved");
        check(
            Kind::Fact,
            Some("Ann"),
            "lives in Suzhou",
            "lives in Suzhou",
        );
        // Nothing to be embedded stays nothing.
        check(Kind::Episode, Some("Ann"), "", "");
    }
}
