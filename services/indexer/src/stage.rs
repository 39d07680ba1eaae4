//! The shell around `project`: reads `memories` of one partition, folds it once, and applies what
//! changed to its stores, each at its own checkpoint.
//!
//! An erasure is carried out here, before the checkpoint passes it: keys destroyed, the owner folded
//! again from the log with what is left, the stores made to hold exactly that. A crash anywhere in
//! between repeats it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anamnesis_domain::evolve::evolve;
use anamnesis_domain::ids::{ErasureId, KeyId, LogId, MemoryId, OwnerKey};
use anamnesis_domain::input::{Target, Topic};
use anamnesis_domain::memory::Claim;
use anamnesis_domain::receipt::{ErasureReceipt, place};
use anamnesis_domain::skeleton::{Skeleton, Verdict};
use anamnesis_domain::state::OwnerState;
use anamnesis_domain::time::Timestamp;
use anamnesis_domain::transition::{Decided, PartBody, Transition};
use anamnesis_pipeline::codec::{Codec, EmbeddingDraft, Opened, OpenedDecided};
use anamnesis_pipeline::consumer::{
    BATCH_BYTES_MAX, BATCH_RECORDS_MAX, Running, Stage, StageError,
};
use anamnesis_pipeline::embedder::{Embed, Purpose};
use anamnesis_pipeline::fold::{self, Folded};
use anamnesis_pipeline::log::{Log, Record};
use anamnesis_pipeline::owner_states::OwnerStates;
use anamnesis_pipeline::pace::Pace;
use anamnesis_pipeline::snapshots::{self, Snaps};
use anamnesis_pipeline::stores::{Change, Checkpoint, Projection, Store, StoreError};
use async_trait::async_trait;
use tokio::task::JoinHandle;

use crate::metrics;
use crate::vectors::VectorBook;
use anamnesis_pipeline::history::{self as project, History};

pub const STAGE: &str = "indexer";
/// Of the stores that one process holds, where others are on servers.
pub const SHARD: &str = "indexer-shard";
/// Every name that the stage has, by what it keeps.
pub const STAGES: [&str; 6] = [
    STAGE,
    "indexer-graph",
    "indexer-records",
    SHARD,
    "indexer-text",
    "indexer-vectors",
];

/// Longest that rewriting erased bytes waits for a quiet moment: minutes, as is promised.
const PHYSICAL_DELAY_MS_MAX: i64 = 60_000;
/// Records between two snapshots of the skeleton.
const SNAPSHOT_EVERY: u64 = 10_000;
/// The same when there is nothing else to do: a trickle must not write a snapshot per record.
const SNAPSHOT_EVERY_IDLE: u64 = 1_000;
/// Records of one batch for a server: one that a slow server cannot apply within its deadline would be sent
/// again and again.
const SERVER_BATCH_RECORDS: usize = 200;
/// Between two small batches for a server. What was just decided is found meanwhile by what is in a shard:
/// the authority and the text.
const SERVER_PACE: Pace = Pace::every(Duration::from_millis(500));
/// How late a stage without records notices that its store is another one.
const LOOK_EVERY: Duration = Duration::from_secs(2);

/// Keeps a set of stores equal to the fold. All of them in one stage share the fold; a store that
/// should be able to lag on its own gets a stage of its own.
pub struct Indexer {
    pub log: Log,
    pub codec: Codec,
    pub embed: Embed,
    pub stores: Vec<Arc<dyn Projection>>,
    pub snapshots: Snaps,
    /// Which of several copies of its stores this one keeps, as receipts name it.
    pub copy: Option<String>,
    /// Whether the stores are on a server, where each call costs much: small batches are spaced, bytes are
    /// rewritten beside the stage, and another generation may become the live one.
    pub is_on_server: bool,
}

#[async_trait]
impl Stage for Indexer {
    fn name(&self) -> &'static str {
        name_of(&self.stores)
    }

    fn pace(&self) -> Pace {
        if self.is_on_server {
            SERVER_PACE
        } else {
            Pace::NONE
        }
    }

    fn batch_records_max(&self) -> usize {
        if self.is_on_server {
            SERVER_BATCH_RECORDS
        } else {
            BATCH_RECORDS_MAX
        }
    }

    async fn begin(&self, partition: u32, _now: Timestamp) -> Result<Box<dyn Running>, StageError> {
        let log_id = self.log.identity(Topic::Memories, partition).await?.log_id;
        let end = self.log.end(Topic::Memories, partition).await?;
        let mut stand = Vec::new();
        for store in &self.stores {
            let next = store
                .checkpoint(partition)
                .await?
                .map_or(0, |checkpoint| checkpoint.next);
            if next > end {
                return Err(StageError::Broken {
                    what: format!(
                        "{} stands at {next} of memories-{partition}, which ends at {end}: the log \
                         was replaced or cut; restore it, or rebuild the store",
                        store.store()
                    ),
                });
            }
            stand.push(next);
        }
        let from = stand.iter().copied().min().unwrap_or(0);
        let name = self.snapshot_name(partition);
        let mut skeleton: Skeleton =
            match snapshots::load::<Skeleton>(&*self.snapshots, &name, log_id).await {
                Some(snapshot) if snapshot.next <= from => snapshot,
                Some(_) | None => Skeleton::default(),
            };
        fold::fold_skeleton(&*self.log, partition, &mut skeleton, from).await?;
        let wants_vectors = self
            .stores
            .iter()
            .any(|store| store.store() == Store::Vectors);
        let vectors = if wants_vectors {
            Some(VectorBook::open(&self.log, &self.embed, partition).await?)
        } else {
            None
        };
        // The authority comes last: what it knows, every leg of recall can find, so that "decided" means
        // "recallable", and an erasure that it shows has left the others.
        let mut stores: Vec<(Arc<dyn Projection>, u64)> =
            self.stores.iter().cloned().zip(stand).collect();
        stores.sort_by_key(|(store, _)| store.store() == Store::Records);
        let mut folding = Folding {
            log: self.log.clone(),
            codec: self.codec.clone(),
            embed: self.embed.clone(),
            stores,
            snapshots: self.snapshots.clone(),
            snapshot_name: name,
            snapshot_next: skeleton.next,
            log_id,
            partition,
            skeleton,
            states: OwnerStates::of_one_in(self.log.partitions()),
            vectors,
            copy: self.copy.clone(),
            is_on_server: self.is_on_server,
            compacting: None,
            physical: Vec::new(),
            physical_since: None,
            looked: Instant::now(),
        };
        folding.find_unfinished().await?;
        Ok(Box::new(folding))
    }
}

/// The stage's name, by what it keeps.
fn name_of(stores: &[Arc<dyn Projection>]) -> &'static str {
    let mut held: Vec<Store> = stores.iter().map(|store| store.store()).collect();
    held.sort();
    match held[..] {
        [Store::Records] => "indexer-records",
        [Store::Text] => "indexer-text",
        [Store::Records, Store::Text] => SHARD,
        [Store::Vectors] => "indexer-vectors",
        [Store::Graph] => "indexer-graph",
        _ => STAGE,
    }
}

impl Indexer {
    fn snapshot_name(&self, partition: u32) -> String {
        let stores: Vec<&str> = self
            .stores
            .iter()
            .map(|store| store.store().as_str())
            .collect();
        format!("{STAGE}-{}-{partition}", stores.join("-"))
    }
}

struct Folding {
    log: Log,
    codec: Codec,
    embed: Embed,
    /// Each store with the first offset that it has not applied.
    stores: Vec<(Arc<dyn Projection>, u64)>,
    snapshots: Snaps,
    snapshot_name: String,
    snapshot_next: u64,
    log_id: LogId,
    partition: u32,
    skeleton: Skeleton,
    states: OwnerStates,
    vectors: Option<VectorBook>,
    copy: Option<String>,
    is_on_server: bool,
    compacting: Option<Compacting>,
    /// Erasures whose bytes are still to be rewritten.
    physical: Vec<(ErasureId, OwnerKey)>,
    /// Since when the oldest of them waits.
    physical_since: Option<Timestamp>,
    /// When it was last looked whether a store stands elsewhere.
    looked: Instant,
}

/// Bytes that are being rewritten beside the stage, and the erasures that wait for it.
struct Compacting {
    done: JoinHandle<Result<(), StoreError>>,
    erasures: Vec<(ErasureId, OwnerKey)>,
}

impl Drop for Compacting {
    fn drop(&mut self) {
        self.done.abort();
    }
}

/// Changes that one record makes.
struct Step {
    offset: u64,
    changes: Vec<Change>,
}

#[async_trait]
impl Running for Folding {
    fn positions(&self) -> Vec<(Topic, u64)> {
        vec![(Topic::Memories, self.skeleton.next)]
    }

    async fn step(&mut self, records: Vec<Record>, now: Timestamp) -> Result<(), StageError> {
        let Some(last) = records.last().map(|record| record.position.offset) else {
            return Ok(());
        };
        self.states.begin_batch();
        let opened = self.codec.open(&records).await?;
        let decisions: Vec<Option<OpenedDecided>> = opened
            .into_iter()
            .map(|opened| match opened {
                Ok(Opened::Decided(decided)) => Ok(Some(*decided)),
                Ok(_) => Ok(None),
                Err(error) if error.is_retryable() => Err(StageError::from(error)),
                // The skeleton stops the owner's chain there.
                Err(_) => Ok(None),
            })
            .collect::<Result<_, StageError>>()?;
        if let Some(vectors) = &mut self.vectors {
            vectors
                .embed_new(&decisions, &self.log, &self.codec, &self.embed)
                .await?;
        }
        let mut steps = Vec::with_capacity(records.len());
        let mut erased = Vec::new();
        let mut viewed: BTreeMap<OwnerKey, usize> = BTreeMap::new();
        for (record, decided) in records.iter().zip(decisions) {
            let offset = record.position.offset;
            let folded = fold::fold_header(&mut self.skeleton, record);
            let mut step = Step {
                offset,
                changes: Vec::new(),
            };
            match (folded, decided) {
                (Folded::Decision(owner, Verdict::Apply), Some(decided)) => {
                    step.changes = self.apply(owner, &decided, &mut erased).await?;
                    viewed.insert(owner, steps.len());
                }
                (Folded::Decision(_, Verdict::Broken(broken)), _) => {
                    tracing::error!(
                        partition = self.partition,
                        offset = broken.offset,
                        what = broken.what,
                        "an owner's chain is broken"
                    );
                    metrics::broken_chain();
                }
                (Folded::Decision(_, Verdict::Fenced), _) => metrics::fenced(),
                (Folded::Undecodable(_), _) => metrics::broken_chain(),
                (Folded::Decision(_, Verdict::Repeat | Verdict::Apply) | Folded::Other, _) => (),
            }
            steps.push(step);
        }
        for (owner, at) in viewed {
            if let Some(state) = self.states.peek(owner) {
                steps[at]
                    .changes
                    .push(Change::Owner(Box::new(project::owner_view(state))));
            }
        }
        self.add_vectors(&mut steps).await?;
        self.apply_to_stores(&steps, last + 1).await?;
        self.acknowledge(erased, now).await?;
        self.states.trim();
        metrics::applied(&records, now);
        if self.skeleton.next >= self.snapshot_next + SNAPSHOT_EVERY {
            self.save_snapshot().await;
        }
        // Usually bytes are rewritten when there is nothing else to do; a busy log must not put it off,
        // nor that the erasure stood before a restart.
        self.take_compacted(now).await?;
        if !self.physical.is_empty() {
            self.physical_since.get_or_insert(now);
        }
        let is_due = self
            .physical_since
            .is_some_and(|since| now.millis() - since.millis() > PHYSICAL_DELAY_MS_MAX);
        if is_due {
            self.rewrite_bytes(now).await?;
        }
        Ok(())
    }

    async fn idle(&mut self, now: Timestamp) -> Result<(), StageError> {
        if self.skeleton.next >= self.snapshot_next + SNAPSHOT_EVERY_IDLE {
            self.save_snapshot().await;
        }
        self.look_whether_moved().await?;
        self.rewrite_bytes(now).await
    }

    fn parked(&self) -> Vec<OwnerKey> {
        self.skeleton
            .broken_owners()
            .map(|(owner, _)| *owner)
            .collect()
    }
}

impl Folding {
    /// Another generation of a store on a server may be the live one by now. The next write would find
    /// that it stands elsewhere; where nothing is written, nobody else would.
    async fn look_whether_moved(&mut self) -> Result<(), StageError> {
        if !self.is_on_server || self.looked.elapsed() < LOOK_EVERY {
            return Ok(());
        }
        self.looked = Instant::now();
        for (store, next) in &self.stores {
            let stored = store.checkpoint(self.partition).await?;
            let found = stored.map_or(0, |checkpoint| checkpoint.next);
            if found != *next {
                return Err(StageError::Store(StoreError::Moved {
                    store: store.store(),
                    partition: self.partition,
                    expected: *next,
                    found,
                }));
            }
        }
        Ok(())
    }

    async fn save_snapshot(&mut self) {
        snapshots::save(
            &*self.snapshots,
            &self.snapshot_name,
            self.log_id,
            &self.skeleton,
        )
        .await;
        self.snapshot_next = self.skeleton.next;
    }

    /// Applies one accepted decision to the owner's state and says what it changes in the stores.
    async fn apply(
        &mut self,
        owner: OwnerKey,
        decided: &OpenedDecided,
        erased: &mut Vec<(ErasureId, OwnerKey, u64)>,
    ) -> Result<Vec<Change>, StageError> {
        let recorded = fold::recorded(decided);
        let erasures = project::erasures(&decided.decided);
        if !erasures.is_empty() {
            for (erasure, target) in &erasures {
                let destroyed = self.destroy(owner, target, *erasure).await?;
                erased.push((*erasure, owner, destroyed));
            }
            let rows = self.refold(owner).await?;
            return Ok(vec![rows]);
        }
        let state = self.state_before(owner, recorded.offset).await?;
        let named = evolve(state, &decided.decided, recorded);
        let versions = project::versions(state, &named, recorded);
        let mut changes = vec![Change::Decision(project::decision_row(
            &decided.decided,
            recorded,
        ))];
        // Their vectors come with those of the whole batch.
        changes.extend(versions.into_iter().map(|version| Change::Version {
            version: Arc::new(version),
            vector: None,
        }));
        Ok(changes)
    }

    /// Gives each version of the batch the vector of its memory.
    async fn add_vectors(&mut self, steps: &mut [Step]) -> Result<(), StageError> {
        let Some(book) = &mut self.vectors else {
            return Ok(());
        };
        let mut wanting: Vec<(MemoryId, &mut Option<Arc<[f32]>>)> = Vec::new();
        for change in steps.iter_mut().flat_map(|step| &mut step.changes) {
            match change {
                Change::Version { version, vector } => wanting.push((version.memory.id, vector)),
                Change::Decision(_) | Change::Owner(_) | Change::Rewrite(_) => (),
            }
        }
        let ids: BTreeSet<MemoryId> = wanting.iter().map(|(id, _)| *id).collect();
        let found = book.vectors(&ids, &self.log, &self.codec).await?;
        for (id, vector) in wanting {
            *vector = found.get(&id).cloned();
        }
        Ok(())
    }

    async fn destroy(
        &self,
        owner: OwnerKey,
        target: &Target,
        erasure: ErasureId,
    ) -> Result<u64, StageError> {
        Ok(self
            .codec
            .keys()
            .destroy(owner, target, erasure)
            .await?
            .keys)
    }

    /// Everything of the owner up to the record just folded, with the keys that are left.
    async fn refold(&mut self, owner: OwnerKey) -> Result<Change, StageError> {
        let offsets = self
            .skeleton
            .owners
            .get(&owner)
            .map(|c| c.offsets.clone())
            .unwrap_or_default();
        let mut history = History::new(owner);
        for decided in fold::decisions_at(&*self.log, &self.codec, self.partition, &offsets).await?
        {
            history.apply(&decided.decided, fold::recorded(&decided));
        }
        self.states.insert(history.state.clone());
        let mut vectors = BTreeMap::new();
        if let Some(book) = &mut self.vectors {
            book.forget();
            let ids = history.memory_ids().into_iter().collect();
            vectors = book.vectors(&ids, &self.log, &self.codec).await?;
        }
        Ok(Change::Rewrite(Box::new(
            history.rows(|id| vectors.get(&id).cloned()),
        )))
    }

    /// The owner's state before the decision at `offset`, which the skeleton already counts.
    async fn state_before(
        &mut self,
        owner: OwnerKey,
        offset: u64,
    ) -> Result<&mut OwnerState, StageError> {
        if !self.states.contains(owner) {
            let all = self
                .skeleton
                .owners
                .get(&owner)
                .map(|c| c.offsets.as_slice());
            let before: Vec<u64> = all
                .unwrap_or_default()
                .iter()
                .copied()
                .filter(|at| *at < offset)
                .collect();
            let state =
                fold::owner_state(&*self.log, &self.codec, self.partition, owner, &before).await?;
            self.states.insert(state);
        }
        Ok(self.states.get(owner).expect("inserted above"))
    }

    /// Applies to every store what it has not applied yet. One store's failure does not keep the
    /// others back; it is reported when all have had their turn.
    async fn apply_to_stores(&mut self, steps: &[Step], next: u64) -> Result<(), StageError> {
        let checkpoint = Checkpoint {
            log_id: self.log_id,
            next,
        };
        let mut failure = None;
        for (store, stands) in &mut self.stores {
            if *stands >= next {
                continue;
            }
            let changes: Vec<Change> = steps
                .iter()
                .filter(|step| step.offset >= *stands)
                .flat_map(|step| step.changes.iter().cloned())
                .collect();
            let started = Instant::now();
            let applied = store
                .apply(self.partition, *stands, &changes, checkpoint)
                .await;
            match applied {
                Ok(()) => {
                    metrics::store_applied(store.store(), started.elapsed());
                    *stands = next;
                }
                Err(error) => {
                    metrics::store_failed(store.store());
                    failure.get_or_insert(error);
                }
            }
        }
        match failure {
            Some(error) => Err(error.into()),
            None => Ok(()),
        }
    }

    /// Receipts of what is unreachable from now on; the bytes follow when there is time.
    async fn acknowledge(
        &mut self,
        erased: Vec<(ErasureId, OwnerKey, u64)>,
        now: Timestamp,
    ) -> Result<(), StageError> {
        for (erasure, owner, keys) in erased {
            let mut receipts = vec![receipt(erasure, owner, "keyring", "effective", keys, now)];
            for (store, _) in &self.stores {
                let place = self.place_of(&**store);
                receipts.push(receipt(erasure, owner, &place, "effective", 0, now));
            }
            self.write_receipts(&receipts).await?;
            self.physical.push((erasure, owner));
        }
        Ok(())
    }

    /// Rewrites the stores' files so that no erased byte is left, once for all that is due.
    async fn rewrite_bytes(&mut self, now: Timestamp) -> Result<(), StageError> {
        self.take_compacted(now).await?;
        if self.physical.is_empty() || self.compacting.is_some() {
            return Ok(());
        }
        let erasures = std::mem::take(&mut self.physical);
        self.physical_since = None;
        let stores: Vec<_> = self.stores.iter().map(|(store, _)| store.clone()).collect();
        if self.is_on_server {
            let done = tokio::spawn(compact_all(stores));
            self.compacting = Some(Compacting { done, erasures });
            return Ok(());
        }
        compact_all(stores).await?;
        self.acknowledge_physical(&erasures, now).await
    }

    /// What was rewritten beside the stage by now.
    async fn take_compacted(&mut self, now: Timestamp) -> Result<(), StageError> {
        let is_done = |compacting: &mut Compacting| compacting.done.is_finished();
        let Some(mut compacted) = self.compacting.take_if(is_done) else {
            return Ok(());
        };
        let done = (&mut compacted.done).await;
        match done {
            Ok(Ok(())) => self.acknowledge_physical(&compacted.erasures, now).await,
            Ok(Err(error)) => Err(error.into()),
            Err(error) => Err(StageError::Broken {
                what: format!("bytes were not rewritten: {error}"),
            }),
        }
    }

    async fn acknowledge_physical(
        &self,
        erasures: &[(ErasureId, OwnerKey)],
        now: Timestamp,
    ) -> Result<(), StageError> {
        let mut receipts = Vec::new();
        for (erasure, owner) in erasures {
            for (store, _) in &self.stores {
                let place = self.place_of(&**store);
                receipts.push(receipt(*erasure, *owner, &place, "physical", 0, now));
            }
        }
        self.write_receipts(&receipts).await
    }

    fn place_of(&self, store: &dyn Projection) -> String {
        place(store.store().as_str(), self.copy.as_deref())
    }

    async fn write_receipts(&self, receipts: &[ErasureReceipt]) -> Result<(), StageError> {
        let mut records = Vec::new();
        for receipt in receipts {
            records.push(self.codec.erasure_receipt(receipt)?);
        }
        self.log
            .append(Topic::Receipts, self.partition, records)
            .await?;
        Ok(())
    }

    /// Erasures that were effective before a crash and whose bytes were not rewritten.
    async fn find_unfinished(&mut self) -> Result<(), StageError> {
        let end = self.log.end(Topic::Receipts, self.partition).await?;
        let mut from = self.log.start(Topic::Receipts, self.partition).await?;
        let stores = self.stores.iter();
        let places: BTreeSet<String> = stores.map(|(store, _)| self.place_of(&**store)).collect();
        let mut open: BTreeSet<(ErasureId, OwnerKey)> = BTreeSet::new();
        while from < end {
            let records = self
                .log
                .read(
                    Topic::Receipts,
                    self.partition,
                    from,
                    2_000,
                    BATCH_BYTES_MAX,
                )
                .await?;
            let Some(last) = records.last() else { break };
            from = last.position.offset + 1;
            for opened in self.codec.open(&records).await? {
                let Ok(Opened::Receipt(receipt)) = opened else {
                    continue;
                };
                if !places.contains(&receipt.place) {
                    continue;
                }
                let id = (receipt.erasure, receipt.owner);
                if receipt.stage == "physical" {
                    open.remove(&id);
                } else {
                    open.insert(id);
                }
            }
        }
        self.physical = open.into_iter().collect();
        Ok(())
    }
}

async fn compact_all(stores: Vec<Arc<dyn Projection>>) -> Result<(), StoreError> {
    for store in &stores {
        store.compact().await?;
    }
    Ok(())
}

fn receipt(
    erasure: ErasureId,
    owner: OwnerKey,
    place: &str,
    stage: &str,
    count: u64,
    at: Timestamp,
) -> ErasureReceipt {
    ErasureReceipt {
        erasure,
        owner,
        place: place.to_owned(),
        stage: stage.to_owned(),
        count,
        at,
    }
}

/// The claims that a batch of decisions asserts, with the keys that seal them.
pub(crate) fn asserted(decided: &Decided) -> Vec<(MemoryId, KeyId, &Claim)> {
    let mut found = Vec::new();
    for part in &decided.parts {
        if let (Some(key), PartBody::Open(transition)) = (part.key, &part.body)
            && let Transition::Asserted { id, claim, .. } = &**transition
        {
            found.push((*id, key, &**claim));
        }
    }
    found
}

/// What the vectors of a batch are embedded as.
pub(crate) const PURPOSE: Purpose = Purpose::Passage;

pub(crate) type Drafts = Vec<EmbeddingDraft>;
