//! From domain values to records. Every key is durable in the keyring before anything is sealed with
//! it, and a whole batch asks the keyring once.

use std::collections::{BTreeMap, HashMap};

use anamnesis_domain::ids::{EventTag, Hash, IdKey, KeyId, MemoryId, OwnerKey, SourceTag};
use anamnesis_domain::input::{CandidateSet, CommandRecord, Topic, Turn};
use anamnesis_domain::receipt::{ErasureReceipt, InboxRead, Parked, RecallReceipt, Unparked};
use anamnesis_domain::time::Timestamp;
use anamnesis_domain::transition::{Decision, Detail, Transition};
use anamnesis_schemas::{
    AccessHeader, Body, DecidedHeader, EmbeddingHeader, Envelope, Header, IdentityHeader,
    InputHeader, WriterStartedHeader,
};
use bytes::Bytes;

use super::aead::{self, PartDraft};
use super::{
    CANDIDATES, Codec, CodecError, DETAIL, DecidedDraft, ERASED, EmbeddingDraft, InputMeta,
    NO_OWNER, PreparedKeys, RECEIPT, TURN, VECTOR,
};
use crate::keyring::{DataKey, KeyState, KeyringError, NewKey};
use crate::log::{Identity, NewRecord};

/// Source of the keys that seal recall receipts.
const RECALL_SOURCE: &str = "anamnesis:recall";

/// A source key with what its header says about it.
struct SourceKey {
    owner: OwnerKey,
    epoch: u32,
    id: KeyId,
    key: DataKey,
}

impl Codec {
    /// Seals turns for `conversation`, or for `quarantine` when their keys expire. Each has a source
    /// key of its own in the owner's open epoch; one call to the keyring makes them all.
    ///
    /// # Errors
    /// The keyring's, or [`CodecError::Unwritable`] for a turn that no record can hold.
    pub async fn seal_turns(
        &self,
        turns: &[Turn],
        consent_version: u64,
        expires_at: Option<Timestamp>,
    ) -> Result<Vec<NewRecord>, CodecError> {
        let versions = vec![consent_version; turns.len()];
        self.seal_consented(turns, &versions, expires_at).await
    }

    /// As [`Codec::seal_turns`], with the consent of each turn: the owners of one batch agreed at
    /// different times.
    ///
    /// # Errors
    /// As [`Codec::seal_turns`].
    pub async fn seal_consented(
        &self,
        turns: &[Turn],
        consent_versions: &[u64],
        expires_at: Option<Timestamp>,
    ) -> Result<Vec<NewRecord>, CodecError> {
        let id_key = self.keys.id_key();
        let fresh = |turn: &Turn| (id_key.owner(&turn.owner), turn.event, turn.source_tag);
        let inputs: Vec<_> = turns.iter().map(fresh).collect();
        let keys = self.source_keys(&inputs, expires_at).await?;
        let mut records = Vec::with_capacity(turns.len());
        for ((turn, consent_version), source) in turns.iter().zip(consent_versions).zip(&keys) {
            let mut header = input_header(TURN, source, turn.event, turn.source_tag);
            header.consent_version = *consent_version;
            records.push(sealed_input(header, &source.key, Body::of_turn(turn)?)?);
        }
        Ok(records)
    }

    /// Seals commands, as [`Codec::seal_turns`].
    ///
    /// # Errors
    /// As [`Codec::seal_turns`].
    pub async fn seal_commands(
        &self,
        commands: &[CommandRecord],
    ) -> Result<Vec<NewRecord>, CodecError> {
        let id_key = self.keys.id_key();
        let fresh = |command: &CommandRecord| {
            let owner = id_key.owner(&command.owner);
            let (event, source) = command.words_of();
            (owner, event, source)
        };
        let inputs: Vec<_> = commands.iter().map(fresh).collect();
        let keys = self.source_keys(&inputs, None).await?;
        let mut records = Vec::with_capacity(commands.len());
        for (command, source) in commands.iter().zip(&keys) {
            let code = command.command.code();
            let header = input_header(code, source, command.event, command.source_tag);
            records.push(sealed_input(
                header,
                &source.key,
                Body::of_command(command)?,
            )?);
        }
        Ok(records)
    }

    async fn source_keys(
        &self,
        inputs: &[(OwnerKey, EventTag, SourceTag)],
        expires_at: Option<Timestamp>,
    ) -> Result<Vec<SourceKey>, CodecError> {
        let mut epochs: BTreeMap<OwnerKey, u32> = BTreeMap::new();
        let mut wanted = Vec::with_capacity(inputs.len());
        for (owner, event, source) in inputs {
            let epoch = match epochs.get(owner) {
                Some(epoch) => *epoch,
                None => {
                    let epoch = self.keys.open_epoch(*owner).await?;
                    epochs.insert(*owner, epoch);
                    epoch
                }
            };
            wanted.push(self.source_key(*owner, epoch, *event, *source, expires_at)?);
        }
        let made = self.create(&wanted).await?;
        let pair = |(new, key): (NewKey, DataKey)| SourceKey {
            owner: new.owner,
            epoch: new.epoch,
            id: new.id,
            key,
        };
        Ok(wanted.into_iter().zip(made).map(pair).collect())
    }

    fn source_key(
        &self,
        owner: OwnerKey,
        epoch: u32,
        event: EventTag,
        source: SourceTag,
        expires_at: Option<Timestamp>,
    ) -> Result<NewKey, CodecError> {
        let mut attempt = [0; 16];
        aead::fill_random(&mut attempt)?;
        Ok(NewKey {
            id: self.keys.id_key().source_data_key(event, &attempt),
            owner,
            epoch,
            parent: None,
            event,
            source,
            memory: None,
            expires_at,
        })
    }

    async fn create(&self, keys: &[NewKey]) -> Result<Vec<DataKey>, CodecError> {
        if keys.is_empty() {
            return Ok(Vec::new());
        }
        Ok(self.keys.create(keys).await?)
    }

    /// The keys among `ids` that are open; destroyed ones are left out.
    async fn open_keys(&self, mut ids: Vec<KeyId>) -> Result<HashMap<KeyId, DataKey>, CodecError> {
        ids.sort_unstable();
        ids.dedup();
        if ids.is_empty() {
            return Ok(HashMap::new());
        }
        let states = self.keys.get(&ids).await?;
        let mut open = HashMap::with_capacity(ids.len());
        for (id, state) in ids.into_iter().zip(states) {
            match state {
                KeyState::Open(key) => {
                    open.insert(id, key);
                }
                KeyState::Destroyed => (),
                KeyState::Unknown => return Err(KeyringError::Unknown.into()),
            }
        }
        Ok(open)
    }

    /// Seals what was found in turns, under each turn's own key. `meta` is the turn's. Without a set,
    /// or when the key was destroyed meanwhile, the record is a header that says `erased`: every turn
    /// has exactly one answer.
    ///
    /// # Errors
    /// The keyring's, or [`CodecError::Unwritable`].
    pub async fn seal_candidates(
        &self,
        items: &[(InputMeta, Option<CandidateSet>)],
    ) -> Result<Vec<NewRecord>, CodecError> {
        let with_set = items.iter().filter(|(_, set)| set.is_some());
        let keys = self
            .open_keys(with_set.map(|(meta, _)| meta.key_id).collect())
            .await?;
        let mut records = Vec::with_capacity(items.len());
        for (meta, set) in items {
            let mut header = InputHeader {
                kind: CANDIDATES.to_owned(),
                owner: meta.owner,
                event: meta.event,
                source_tag: meta.source_tag,
                key_id: meta.key_id,
                key_epoch: meta.key_epoch,
                consent_version: meta.consent_version,
                origin: Some(meta.origin),
                failed: Some(ERASED.to_owned()),
            };
            match (set, keys.get(&meta.key_id)) {
                (Some(set), Some(key)) => {
                    header.failed.clone_from(&set.failed);
                    records.push(sealed_input(header, key, Body::of_candidates(set)?)?);
                }
                (None, _) | (_, None) => {
                    records.push(aead::record(
                        meta.owner,
                        &Header::Input(header),
                        Vec::new(),
                    )?);
                }
            }
        }
        Ok(records)
    }

    /// Makes the keys of a batch of decisions, of any owners: one question for the causes' keys, one
    /// for the transitions' own. Ask again after a crash and the same keys come back.
    ///
    /// # Errors
    /// [`KeyringError::Destroyed`] when a cause was erased since it was opened: open the batch again,
    /// and it says so.
    pub async fn prepare_decided(
        &self,
        batch: &[(&DecidedDraft, &Decision)],
    ) -> Result<Vec<PreparedKeys>, CodecError> {
        let causes: Vec<KeyId> = batch
            .iter()
            .filter_map(|(draft, _)| draft.source_key)
            .collect();
        let sources = self.open_keys(causes).await?;
        let mut wanted = Vec::new();
        for (draft, decision) in batch {
            let Some(source_key) = draft.source_key else {
                continue;
            };
            for (index, transition) in (0..).zip(&decision.transitions) {
                if is_clear(transition) {
                    continue;
                }
                let memory = transition.memory_id();
                let (event, source) = match transition {
                    // What a command took from a message goes with the message.
                    Transition::Asserted { claim, .. } => {
                        (claim.source.event, claim.source.source_tag)
                    }
                    Transition::Moved { .. }
                    | Transition::Marked { .. }
                    | Transition::Erased { .. }
                    | Transition::ConsentGranted { .. }
                    | Transition::ConsentWithdrawn { .. }
                    | Transition::TaskChanged { .. }
                    | Transition::Accessed { .. } => (draft.cause.event, draft.cause.source_tag),
                };
                wanted.push(NewKey {
                    id: transition_key(self.keys.id_key(), source_key, index, memory),
                    owner: draft.owner,
                    epoch: draft.key_epoch,
                    parent: Some(source_key),
                    event,
                    source,
                    // Only the assertion holds words. A standing of this memory that another message
                    // caused must not take that message's key with it when the memory is erased.
                    memory: memory.filter(|_| is_assertion(transition)),
                    expires_at: None,
                });
            }
        }
        let made = self.create(&wanted).await?;
        let mut made = wanted.into_iter().map(|new| new.id).zip(made);
        let mut prepared = Vec::with_capacity(batch.len());
        for (draft, decision) in batch {
            let Some(source_key) = draft.source_key else {
                prepared.push(PreparedKeys {
                    source: None,
                    transitions: Vec::new(),
                });
                continue;
            };
            let source = sources
                .get(&source_key)
                .cloned()
                .ok_or(KeyringError::Destroyed)?;
            let sealed = decision
                .transitions
                .iter()
                .filter(|transition| !is_clear(transition));
            let transitions = made.by_ref().take(sealed.count()).collect();
            prepared.push(PreparedKeys {
                source: Some((source_key, source)),
                transitions,
            });
        }
        Ok(prepared)
    }

    /// Seals one decision, and gives the hash that the owner's next record points to. Part 0 is the
    /// detail under the key of the cause; then each transition under its own key; erasures in clear.
    ///
    /// # Errors
    /// [`CodecError::Unprepared`] when `keys` are not those of this draft and decision, or a transition
    /// needs a key and the cause has none.
    pub fn seal_decided(
        &self,
        draft: &DecidedDraft,
        decision: &Decision,
        keys: &PreparedKeys,
    ) -> Result<(NewRecord, Hash), CodecError> {
        let header = Header::Decided(DecidedHeader {
            owner: draft.owner,
            owner_seq: draft.owner_seq,
            prev_hash: draft.prev_hash,
            writer_epoch: draft.writer_epoch,
            key_epoch: draft.key_epoch,
            cause: draft.cause,
            source_key: draft.source_key,
            decided_at: draft.decided_at,
            outcome: decision.outcome.clone(),
            origin: None,
        });
        if keys.source.as_ref().map(|(id, _)| *id) != draft.source_key {
            return Err(CodecError::Unprepared);
        }
        let mut parts = Vec::with_capacity(decision.transitions.len() + 1);
        if let Some((id, key)) = &keys.source {
            let detail = Detail {
                owner: draft.owner_words.clone(),
                content: decision.content,
                notes: decision.notes.clone(),
            };
            let body = Body::of_detail(&detail)?;
            parts.push(PartDraft {
                code: DETAIL,
                memory_id: None,
                key: Some((*id, key)),
                body,
            });
        }
        let mut made = keys.transitions.iter();
        for (index, transition) in (0..).zip(&decision.transitions) {
            let memory_id = transition.memory_id();
            let key = if is_clear(transition) {
                None
            } else {
                let (id, key) = made.next().ok_or(CodecError::Unprepared)?;
                let source_key = draft.source_key.ok_or(CodecError::Unprepared)?;
                if *id != transition_key(self.keys.id_key(), source_key, index, memory_id) {
                    return Err(CodecError::Unprepared);
                }
                Some((*id, key))
            };
            let body = Body::of_transition(transition)?;
            parts.push(PartDraft {
                code: transition.code(),
                memory_id,
                key,
                body,
            });
        }
        let record = aead::record(draft.owner, &header, parts)?;
        let hash = Hash::of(&record.payload);
        Ok((record, hash))
    }

    /// Seals vectors under the keys of the transitions that asserted their memories. One whose key is
    /// destroyed is left out: a stored vector confirms a guessed sentence.
    ///
    /// # Errors
    /// The keyring's, or [`CodecError::Unwritable`].
    pub async fn seal_embeddings(
        &self,
        items: &[EmbeddingDraft],
    ) -> Result<Vec<NewRecord>, CodecError> {
        let keys = self
            .open_keys(items.iter().map(|item| item.key_id).collect())
            .await?;
        let mut records = Vec::with_capacity(items.len());
        for item in items {
            let Some(key) = keys.get(&item.key_id) else {
                continue;
            };
            let header = Header::Embedding(EmbeddingHeader {
                owner: item.owner,
                memory_id: item.memory_id,
                key_id: item.key_id,
                key_epoch: item.epoch,
                model: item.model.id.clone(),
                dimension: item.model.dimension,
            });
            let part = PartDraft {
                code: VECTOR,
                memory_id: Some(item.memory_id),
                key: Some((item.key_id, key)),
                body: Body::of_vector(&item.vector)?,
            };
            records.push(aead::record(item.owner, &header, vec![part])?);
        }
        Ok(records)
    }

    /// Seals recall receipts: one key per owner and call.
    ///
    /// # Errors
    /// The keyring's, or [`CodecError::Unwritable`].
    pub async fn seal_receipts(
        &self,
        receipts: &[(OwnerKey, RecallReceipt)],
    ) -> Result<Vec<NewRecord>, CodecError> {
        let mut places: BTreeMap<OwnerKey, usize> = BTreeMap::new();
        let mut wanted: Vec<NewKey> = Vec::new();
        for (owner, receipt) in receipts {
            if places.contains_key(owner) {
                continue;
            }
            let id_key = self.keys.id_key();
            let event = id_key.event(*owner, RECALL_SOURCE, &receipt.recall_id.to_string(), "");
            let source = id_key.source(*owner, RECALL_SOURCE);
            let epoch = self.keys.open_epoch(*owner).await?;
            places.insert(*owner, wanted.len());
            wanted.push(self.source_key(*owner, epoch, event, source, None)?);
        }
        let made = self.create(&wanted).await?;
        let mut records = Vec::with_capacity(receipts.len());
        for (owner, receipt) in receipts {
            let place = places[owner];
            let (new, key) = (&wanted[place], &made[place]);
            let header = Header::Access(AccessHeader {
                owner: *owner,
                recall_id: receipt.recall_id,
                key_id: new.id,
                key_epoch: new.epoch,
            });
            let body = Body::of_receipt(receipt)?;
            let part = PartDraft {
                code: RECEIPT,
                memory_id: None,
                key: Some((new.id, key)),
                body,
            };
            records.push(aead::record(*owner, &header, vec![part])?);
        }
        Ok(records)
    }

    /// The record with which a writer of `memories` begins; its id is random.
    ///
    /// # Errors
    /// [`CodecError::NoRandomness`].
    pub fn writer_started(&self, at: Timestamp) -> Result<NewRecord, CodecError> {
        let mut writer = [0; 16];
        aead::fill_random(&mut writer)?;
        let header = Header::WriterStarted(WriterStartedHeader { writer, at });
        aead::record(NO_OWNER, &header, Vec::new())
    }

    /// # Errors
    /// [`CodecError::Unwritable`], as for the other records that are only a header.
    pub fn parked(&self, parked: &Parked) -> Result<NewRecord, CodecError> {
        aead::record(parked.owner, &Header::Parked(parked.clone()), Vec::new())
    }

    /// # Errors
    /// As [`Codec::parked`].
    pub fn unparked(&self, unparked: &Unparked) -> Result<NewRecord, CodecError> {
        aead::record(
            unparked.owner,
            &Header::Unparked(unparked.clone()),
            Vec::new(),
        )
    }

    /// # Errors
    /// As [`Codec::parked`].
    pub fn erasure_receipt(&self, receipt: &ErasureReceipt) -> Result<NewRecord, CodecError> {
        aead::record(
            receipt.owner,
            &Header::ErasureReceipt(receipt.clone()),
            Vec::new(),
        )
    }

    /// Intake's position in a partition of `inbox`; [`Codec::open`] gives it back.
    ///
    /// # Errors
    /// As [`Codec::parked`].
    pub fn inbox_read(&self, read: &InboxRead) -> Result<NewRecord, CodecError> {
        aead::record(NO_OWNER, &Header::InboxRead(read.clone()), Vec::new())
    }
}

/// Payload of the first record of a partition; a log asks for it when it is created.
pub fn identity_payload(identity: &Identity, topic: Topic) -> Bytes {
    let header = Header::Identity(IdentityHeader {
        log_id: identity.log_id,
        created_at: identity.created_at,
        partitions: identity.partitions,
        topic,
    });
    let header = header
        .encode()
        .expect("three numbers and a topic fit into any record");
    let envelope = Envelope {
        header,
        parts: Vec::new(),
    };
    Bytes::from(
        envelope
            .encode()
            .expect("a header of a few dozen bytes fits into any record"),
    )
}

fn is_assertion(transition: &Transition) -> bool {
    matches!(transition, Transition::Asserted { .. })
}

/// An erasure stays readable when every key is gone, and tells nothing about a person.
fn is_clear(transition: &Transition) -> bool {
    match transition {
        Transition::Erased { .. } => true,
        Transition::Asserted { .. }
        | Transition::Moved { .. }
        | Transition::Marked { .. }
        | Transition::ConsentGranted { .. }
        | Transition::ConsentWithdrawn { .. }
        | Transition::TaskChanged { .. }
        | Transition::Accessed { .. } => false,
    }
}

/// The id of a transition's key. The memory is part of it: a decision that was prepared, lost in a crash
/// and taken again after other inputs may have another memory at the same place, and a key that the
/// keyring keeps under one memory must never seal what is said of another.
fn transition_key(
    id_key: &IdKey,
    source_key: KeyId,
    index: u32,
    memory: Option<MemoryId>,
) -> KeyId {
    let Some(memory) = memory else {
        return id_key.transition_data_key(source_key, index);
    };
    let hash = Hash::of(&[memory.bytes().as_slice(), &index.to_le_bytes()].concat()).0;
    let place = u32::from_le_bytes([hash[0], hash[1], hash[2], hash[3]]);
    id_key.transition_data_key(source_key, place)
}

fn input_header(
    kind: &str,
    source: &SourceKey,
    event: EventTag,
    source_tag: SourceTag,
) -> InputHeader {
    InputHeader {
        kind: kind.to_owned(),
        owner: source.owner,
        event,
        source_tag,
        key_id: source.id,
        key_epoch: source.epoch,
        consent_version: 0,
        origin: None,
        failed: None,
    }
}

fn sealed_input(header: InputHeader, key: &DataKey, body: Body) -> Result<NewRecord, CodecError> {
    let code = header.kind.clone();
    let (owner, key_id) = (header.owner, header.key_id);
    let part = PartDraft {
        code: &code,
        memory_id: None,
        key: Some((key_id, key)),
        body,
    };
    aead::record(owner, &Header::Input(header), vec![part])
}
