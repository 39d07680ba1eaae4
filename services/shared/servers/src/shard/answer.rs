//! What does one replica answer to one question, and when does it refuse?

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anamnesis_domain::ids::OwnerKey;
use anamnesis_domain::input::Topic;
use anamnesis_domain::owner::OwnerScope;
use anamnesis_pipeline::feed::Feed;
use anamnesis_pipeline::log::Log;
use anamnesis_pipeline::stores::{Projection, Records, Store, StoreError, TextIndex};
use tokio::time::{Instant, timeout};
use tracing::{debug, info, warn};

use super::ahead::Ahead;
use super::config::ShardServerConfig;
use super::freshness::Freshness;
use super::refusal::Refusal;
use super::server::LOOKS_PER_LEASE;
use super::wire::{self, Answer, Asked, Filter, Question, pack};

/// Hits that the records are asked about at once; recall asks for fifty.
const CHECKED_MAX: usize = 200;

/// Records that are looked at ahead of a copy: some seconds of reading. A copy that misses more is being
/// built, and misses something of nearly every owner.
const AHEAD_RECORDS_MAX: u64 = 200_000;
/// Records and bytes of one read.
const READ_RECORDS_MAX: usize = 2_000;
const READ_BYTES_MAX: usize = 8 << 20;

/// What a replica is made of.
#[derive(Clone)]
pub struct ShardParts {
    pub records: Arc<dyn Records>,
    pub text: Arc<dyn TextIndex>,
    /// Says how far the copy should be.
    pub log: Log,
    pub feed: Feed,
}

pub(super) struct Replica {
    parts: ShardParts,
    config: ShardServerConfig,
    known: Mutex<BTreeMap<u32, Known>>,
}

/// What is known of the copy of one partition.
struct Known {
    freshness: Freshness,
    ahead: Ahead,
    /// What was logged last.
    is_said_current: bool,
}

/// What a question is about, for the checks around its answer.
enum About {
    Nothing,
    Partitions(Vec<u32>),
    /// Of one owner, by the text index as well or by the records alone.
    Owner {
        owner: OwnerKey,
        partition: u32,
        is_text_asked: bool,
    },
}

impl Replica {
    pub(super) fn new(parts: ShardParts, config: ShardServerConfig) -> Self {
        let nothing = |partition| {
            let known = Known {
                freshness: Freshness::new(config.lease),
                ahead: Ahead::new(config.lease),
                is_said_current: false,
            };
            (partition, known)
        };
        let known = Mutex::new(config.partitions.iter().map(nothing).collect());
        Self {
            parts,
            config,
            known,
        }
    }

    pub(super) fn feed(&self) -> Feed {
        self.parts.feed
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<u32, Known>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Compares the copy with the log, in every partition. One call at a time: what is seen must be told
    /// in the order in which it was seen.
    pub(super) async fn look(&self) {
        let partitions = self.config.partitions.iter();
        futures::future::join_all(partitions.map(|partition| self.look_at(partition))).await;
    }

    async fn look_at(&self, partition: u32) {
        let asked_at = Instant::now();
        let end = self.parts.log.end(Topic::Memories, partition);
        let end = match timeout(self.config.lease, end).await {
            Ok(Ok(end)) => Some(end),
            Ok(Err(error)) => {
                debug!(partition, %error, "the log does not tell its end");
                None
            }
            Err(_) => {
                debug!(partition, "the log does not tell its end in time");
                None
            }
        };
        let next = match self.next(partition, true).await {
            Ok(next) => Some(next),
            Err(error) => {
                debug!(partition, %error, "a store does not tell where it stands");
                None
            }
        };
        let is_falling_behind = self.tell(partition, end.map(|end| (end, asked_at)), next);
        if let (Some(end), Some(next)) = (end, next)
            && is_falling_behind
            && end.saturating_sub(next) <= AHEAD_RECORDS_MAX
        {
            let looking = self.look_ahead(partition, end);
            // The next look goes on: this one must not delay it.
            let at_most = self.config.lease / LOOKS_PER_LEASE;
            if timeout(at_most, looking).await.is_err() {
                debug!(partition, "not all that is ahead of the copy is read yet");
            }
        }
    }

    /// Takes in what a look has seen. Gives whether the copy will soon be too old.
    fn tell(&self, partition: u32, end: Option<(u64, Instant)>, next: Option<u64>) -> bool {
        let now = Instant::now();
        let mut all = self.lock();
        let Some(known) = all.get_mut(&partition) else {
            return false;
        };
        if let Some((end, asked_at)) = end {
            known.freshness.end(end, asked_at);
            known.ahead.end(end, asked_at);
        }
        if let Some(next) = next {
            known.freshness.reached(next, now);
            known.ahead.applied(next, now);
        }
        let is_current = known.freshness.is_current(now);
        let was_current = std::mem::replace(&mut known.is_said_current, is_current);
        let replica = &self.config.replica;
        if is_current && !was_current {
            info!(replica, partition, "the copy is current");
        } else if was_current && !is_current {
            warn!(
                replica,
                partition, "the copy lags: it answers only for owners of whom nothing is missing"
            );
        }
        !known.freshness.is_current(now + self.config.lease / 2)
    }

    /// Finds out whose records lie between the copy and `end`.
    async fn look_ahead(&self, partition: u32, end: u64) {
        loop {
            let from = self.lock().get(&partition).map(|one| one.ahead.next());
            let Some(from) = from.filter(|from| *from < end) else {
                return;
            };
            let read = self.parts.log.read(
                Topic::Memories,
                partition,
                from,
                READ_RECORDS_MAX,
                READ_BYTES_MAX,
            );
            let records = match read.await {
                Ok(records) if !records.is_empty() => records,
                Ok(_) => return,
                Err(error) => {
                    debug!(partition, %error, "the log does not tell what is ahead of the copy");
                    return;
                }
            };
            let now = Instant::now();
            if let Some(known) = self.lock().get_mut(&partition) {
                let owners = records.iter().map(|record| record.key);
                known.ahead.saw(owners, now);
            }
        }
    }

    /// Where the copy stands.
    async fn next(&self, partition: u32, with_text: bool) -> Result<u64, StoreError> {
        let records = next_of(&*self.parts.records, partition).await?;
        if !with_text {
            return Ok(records);
        }
        Ok(records.min(next_of(&*self.parts.text, partition).await?))
    }

    /// # Errors
    /// Whatever keeps this replica from answering.
    pub(super) async fn answer(&self, asked: Asked) -> Result<Answer, Refusal> {
        let Asked {
            question,
            at_least,
            even_if_behind,
        } = asked;
        let about = self.about(&question)?;
        let is_open = even_if_behind && is_of_projection(&question);
        if !is_open {
            self.check_current(&about).await?;
            self.check_reached(&about, at_least).await?;
        }
        let answer = self.answer_unfenced(question).await?;
        // Reading took its time, and the copy may have become too old meanwhile.
        if !is_open {
            self.check_current(&about).await?;
        }
        Ok(answer)
    }

    fn about(&self, question: &Question) -> Result<About, Refusal> {
        let about = match question {
            Question::Current => About::Nothing,
            Question::Checkpoint {
                store: _,
                partition,
            } => About::Partitions(vec![*partition]),
            Question::Owners {
                store: _,
                partitions,
            }
            | Question::Counts { partitions } => About::Partitions(partitions.clone()),
            Question::Rows { store: _, owner }
            | Question::Cut { owner, known_at: _ }
            | Question::History { owner, id: _ }
            | Question::Owner { owner }
            | Question::Decision { owner, event: _ }
            | Question::DecisionOffsets { owner } => self.about_owner(*owner, false),
            Question::Check { filter, ids: _ } | Question::List { filter, .. } => {
                self.about_owner(filter.owner, false)
            }
            Question::Search { filter, .. } => self.about_owner(filter.owner, true),
        };
        let served = &self.config.partitions;
        let foreign = about.partitions().find(|one| !served.contains(*one));
        match foreign {
            Some(partition) => Err(Refusal::NoPartition { partition }),
            None => Ok(about),
        }
    }

    fn about_owner(&self, owner: OwnerKey, is_text_asked: bool) -> About {
        About::Owner {
            owner,
            partition: self.parts.feed.partition_of(owner),
            is_text_asked,
        }
    }

    async fn check_current(&self, about: &About) -> Result<(), Refusal> {
        let Some(partition) = self.find_lagging(about) else {
            return Ok(());
        };
        let lags = Refusal::Lags { partition };
        let About::Owner {
            owner,
            partition,
            is_text_asked,
        } = about
        else {
            return Err(lags);
        };
        match self.needs(*owner, *partition) {
            Some(0) => Ok(()),
            Some(needs) if self.next(*partition, *is_text_asked).await? >= needs => Ok(()),
            Some(_) | None => Err(lags),
        }
    }

    fn needs(&self, owner: OwnerKey, partition: u32) -> Option<u64> {
        let all = self.lock();
        all.get(&partition)?.ahead.needs(owner, Instant::now())
    }

    fn find_lagging(&self, about: &About) -> Option<u32> {
        let now = Instant::now();
        let all = self.lock();
        let is_current = |partition| {
            let known = all.get(&partition);
            known.is_some_and(|known| known.freshness.is_current(now))
        };
        about.partitions().find(|partition| !is_current(*partition))
    }

    async fn check_reached(&self, about: &About, at_least: u64) -> Result<(), Refusal> {
        let About::Owner {
            owner: _,
            partition,
            is_text_asked,
        } = about
        else {
            return Ok(());
        };
        let seen = self.lock().get(partition).map(|one| one.freshness.next());
        if seen.is_some_and(|next| next >= at_least) {
            return Ok(());
        }
        let next = self.next(*partition, *is_text_asked).await?;
        if next < at_least {
            return Err(Refusal::Behind { next });
        }
        Ok(())
    }

    async fn answer_unfenced(&self, question: Question) -> Result<Answer, Refusal> {
        let records = &self.parts.records;
        let answer = match question {
            Question::Current => {
                let now = Instant::now();
                let all = self.lock();
                let current = all.iter().filter(|(_, one)| one.freshness.is_current(now));
                Answer::Current(current.map(|(partition, _)| *partition).collect())
            }
            Question::Checkpoint { store, partition } => {
                let store = self.projection(store)?;
                Answer::Checkpoint(store.checkpoint(partition).await?)
            }
            Question::Owners { store, partitions } => {
                let mut owners = self.projection(store)?.owners().await?;
                let feed = self.parts.feed;
                owners.retain(|owner| partitions.contains(&feed.partition_of(*owner)));
                Answer::Owners(owners)
            }
            Question::Rows { store, owner } => {
                Answer::Rows(self.projection(store)?.rows(scope(owner)).await?)
            }
            Question::Cut { owner, known_at } => {
                Answer::Cut(records.cut(scope(owner), wire::known(known_at)).await?)
            }
            Question::Check { filter, ids } => {
                Answer::Versions(pack(records.check(&read(filter)?, &ids).await?))
            }
            Question::History { owner, id } => {
                Answer::Versions(pack(records.history(scope(owner), id).await?))
            }
            Question::List {
                filter,
                order,
                limit,
                cursor,
            } => {
                let filter = read(filter)?;
                let page = records.list(&filter, order, length(limit), cursor.as_deref());
                let page = page.await?;
                Answer::Page {
                    versions: pack(page.versions),
                    cursor: page.cursor,
                }
            }
            Question::Owner { owner } => {
                Answer::Owner(records.owner(scope(owner)).await?.map(Box::new))
            }
            Question::Decision { owner, event } => {
                Answer::Decision(records.decision(scope(owner), event).await?)
            }
            Question::DecisionOffsets { owner } => {
                Answer::Offsets(records.decision_offsets(scope(owner)).await?)
            }
            Question::Counts { partitions: _ } => Answer::Counts(records.counts().await?),
            Question::Search {
                filter,
                terms,
                top,
                with_check,
            } => {
                let filter = read(filter)?;
                let found = self.parts.text.search(&filter, &terms, length(top)).await?;
                let checked = if with_check && found.hits.len() <= CHECKED_MAX {
                    let ids: Vec<_> = found.hits.iter().map(|hit| hit.memory_id).collect();
                    Some(pack(records.check(&filter, &ids).await?))
                } else {
                    None
                };
                Answer::Hits {
                    hits: found.hits,
                    position: found.position,
                    checked,
                }
            }
        };
        Ok(answer)
    }

    fn projection(&self, store: Store) -> Result<&dyn Projection, Refusal> {
        match store {
            Store::Records => Ok(&*self.parts.records),
            Store::Text => Ok(&*self.parts.text),
            Store::Vectors | Store::Graph => Err(Refusal::Question),
        }
    }
}

impl About {
    fn partitions(&self) -> impl Iterator<Item = u32> {
        let (one, several) = match self {
            Self::Nothing => (None, &[][..]),
            Self::Owner { partition, .. } => (Some(*partition), &[][..]),
            Self::Partitions(partitions) => (None, partitions.as_slice()),
        };
        one.into_iter().chain(several.iter().copied())
    }
}

/// Looks at the copy itself instead of what it remembers.
fn is_of_projection(question: &Question) -> bool {
    matches!(
        question,
        Question::Checkpoint { .. } | Question::Owners { .. } | Question::Rows { .. }
    )
}

/// The guard has seen to it that the caller is one of our own services, which verify theirs.
fn scope(owner: OwnerKey) -> OwnerScope {
    OwnerScope::of_verified_caller(owner)
}

fn read(filter: Filter) -> Result<anamnesis_pipeline::stores::Filter, Refusal> {
    filter.into_filter().ok_or(Refusal::Question)
}

fn length(number: u64) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

async fn next_of<S: Projection + ?Sized>(store: &S, partition: u32) -> Result<u64, StoreError> {
    let checkpoint = store.checkpoint(partition).await?;
    Ok(checkpoint.map_or(0, |checkpoint| checkpoint.next))
}

impl From<StoreError> for Refusal {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}
