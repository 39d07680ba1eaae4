//! How is a question answered, step by step? The shell around the pure files: it fetches, asks the
//! legs at once, and leaves a receipt.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anamnesis_domain::ids::{IdKey, MemoryId, RecallId};
use anamnesis_domain::input::{Position, Task};
use anamnesis_domain::memory::Kind;
use anamnesis_domain::owner::{Owner, OwnerScope};
use anamnesis_domain::time::{Known, Timestamp};
use anamnesis_pipeline::clock::Clock;
use anamnesis_pipeline::codec::Codec;
use anamnesis_pipeline::embedder::Embed;
use anamnesis_pipeline::log::Log;
use anamnesis_pipeline::stores::{
    Cut, Filter, MemoryVersion, Order, OwnerView, StoreError, Stores, SubjectFilter,
};
use serde::{Deserialize, Serialize};
use tokio::time::Instant;
use tracing::error;

use crate::answer::{
    Answer, Considered, Explain, Legs, QueryView, RangeView, Reason, Recalled, Record, subject_view,
};
use crate::context::{self, Context, Material, Tag};
use crate::fuse::{Evidence, fuse};
use crate::legs::{self, Deadlines};
use crate::metrics::{
    CONTEXT_TOKENS_TOTAL, CONTEXT_USABLE_TOKENS_TOTAL, DEGRADED_TOTAL, DROPPED_TOTAL,
    FOREIGN_TOTAL, OUTCOMES_TOTAL, RECALL_SECONDS, RECALLS_TOTAL, RECEIPTS_TOTAL,
};
use crate::reach::{Reach, admits_episode, reach, readable_kinds};
use crate::receipts::{
    self, OutcomeReport, ReceiptError, ReceiptQueue, ReceiptRequest, ReceiptWriter,
};
use crate::request::Ask;
use crate::score::{FLOOR, Model, score, staleness};
use crate::select::{INJECTED_MAX, Scored, injected, select};
use crate::understand::{QueryReader, Understood, When, understand};
use crate::wait;

/// Most memories of a kind that the question names outright which join the legs' hits.
const LISTED_MAX: usize = 50;
/// Longest chain of predecessors that a history shows.
const HISTORY_MAX: usize = 10;
/// Recalls whose owner is remembered, so that an outcome needs no owner.
const RECENT_MAX: usize = 10_000;

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RecallSettings {
    pub text_deadline_ms: u64,
    /// With the embedding of the question.
    pub vector_deadline_ms: u64,
    pub graph_deadline_ms: u64,
    /// How long `wait_for` waits.
    pub wait_for_seconds: u64,
    /// Relevance below which nothing is returned.
    pub floor: f64,
    /// What two unrelated texts of the embedding model have as cosine.
    pub unrelated_cosine: f64,
    /// Whether a patient's memories need a grant to be read.
    pub is_consent_required: bool,
    /// The clock that words like "last year" are read on, in minutes east of Greenwich.
    pub zone_minutes: i32,
}

impl Default for RecallSettings {
    fn default() -> Self {
        Self {
            text_deadline_ms: 250,
            vector_deadline_ms: 250,
            graph_deadline_ms: 100,
            wait_for_seconds: 5,
            floor: FLOOR,
            unrelated_cosine: 0.35,
            is_consent_required: true,
            zone_minutes: 0,
        }
    }
}

#[derive(Debug, thiserror::Error)]
pub enum RecallError {
    /// The authority or the log cannot be read: no answer is better than an unchecked one.
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Receipt(#[from] ReceiptError),
    #[error("the log cannot be read: {0}")]
    Log(#[from] anamnesis_pipeline::log::LogError),
    #[error("the machine gives no randomness")]
    Random,
}

impl RecallError {
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Store(error) => error.is_retryable(),
            Self::Receipt(error) => error.is_retryable(),
            Self::Log(error) => error.is_retryable(),
            Self::Random => false,
        }
    }
}

/// What the service is made of.
#[derive(Clone)]
pub struct Parts {
    pub stores: Stores,
    pub embed: Embed,
    pub log: Log,
    /// Its keyring also gives the key that owners are hashed under.
    pub codec: Codec,
    pub clock: Arc<dyn Clock>,
    pub reader: Arc<dyn QueryReader>,
    pub settings: RecallSettings,
}

pub struct Recall {
    pub(crate) parts: Parts,
    receipts: ReceiptQueue,
    recent: Mutex<Recent>,
}

#[derive(Default)]
struct Recent {
    order: VecDeque<RecallId>,
    owners: HashMap<RecallId, Owner>,
}

/// The state that one answer is given from.
pub(crate) struct Seen {
    pub now: Timestamp,
    pub cut: Cut,
    pub view: Option<OwnerView>,
}

impl Seen {
    pub(crate) fn task(&self, id: Option<&str>) -> Option<&Task> {
        self.view.as_ref()?.tasks.get(id?)
    }
}

impl Recall {
    /// The service, and the writer of its receipts, to be run beside it.
    pub fn new(parts: Parts) -> (Arc<Self>, ReceiptWriter) {
        let (receipts, writer) = receipts::queue(parts.codec.clone(), parts.log.clone());
        (
            Arc::new(Self {
                parts,
                receipts,
                recent: Mutex::default(),
            }),
            writer,
        )
    }

    pub fn ids(&self) -> &IdKey {
        self.parts.codec.keys().id_key()
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.parts.clock.now()
    }

    /// Whether anything was ever decided for this owner and not erased.
    pub(crate) async fn knows(&self, scope: OwnerScope) -> Result<bool, RecallError> {
        let view = self.parts.stores.records.owner(scope).await?;
        Ok(view.is_some_and(|view| view.owner.is_some()))
    }

    /// Answers a question and leaves a receipt.
    ///
    /// # Errors
    /// Only when the authority cannot be asked; a leg that fails is declared in the answer.
    pub async fn recall(
        &self,
        scope: OwnerScope,
        owner: &Owner,
        caller: &str,
        ask: Ask,
    ) -> Result<Answer, RecallError> {
        let started = Instant::now();
        let is_late = !self.waited(scope, &ask).await?;
        let seen = self.see(scope, ask.known_at).await?;
        let mut answer = self.answer(scope, owner, &ask, &seen).await?;
        if is_late {
            metrics::counter!(DEGRADED_TOTAL, "part" => "wait_for").increment(1);
            answer.degraded.push("wait_for".to_owned());
        }
        self.leave_receipt(
            scope,
            owner,
            caller,
            ReceiptRequest::of(&ask, seen.now, seen.cut),
            &seen,
            &answer,
        );
        let answerable = if answer.answerable { "true" } else { "false" };
        metrics::counter!(RECALLS_TOTAL, "answerable" => answerable).increment(1);
        metrics::histogram!(RECALL_SECONDS).record(started.elapsed().as_secs_f64());
        Ok(answer)
    }

    /// Asks a receipt's question again, at its own now and cut. Leaves no receipt.
    ///
    /// # Errors
    /// As [`Recall::recall`].
    pub async fn rerun(
        &self,
        scope: OwnerScope,
        owner: &Owner,
        request: &ReceiptRequest,
    ) -> Result<Answer, RecallError> {
        let view = self.parts.stores.records.owner(scope).await?;
        let seen = Seen {
            now: request.now,
            cut: request.cut,
            view,
        };
        self.answer(scope, owner, &request.ask(), &seen).await
    }

    /// Records what a caller says about a recall, durably.
    ///
    /// # Errors
    /// When the record could not be written.
    pub async fn report_outcome(
        &self,
        scope: OwnerScope,
        owner: &Owner,
        caller: &str,
        recall_id: RecallId,
        report: &OutcomeReport,
    ) -> Result<Option<Position>, RecallError> {
        let at = self.parts.clock.now();
        let receipt = receipts::outcome_receipt(recall_id, owner, caller, report, at);
        let group = [(scope.key(), receipt)];
        let written = receipts::write(&self.parts.codec, &self.parts.log, &group).await?;
        metrics::counter!(OUTCOMES_TOTAL, "outcome" => report.outcome.code()).increment(1);
        Ok(written.first().copied())
    }

    /// The owner of a recall that this process answered lately.
    pub fn owner_of(&self, recall_id: RecallId) -> Option<Owner> {
        let recent = self.recent.lock().unwrap_or_else(PoisonError::into_inner);
        recent.owners.get(&recall_id).cloned()
    }

    pub(crate) async fn see(
        &self,
        scope: OwnerScope,
        known_at: Option<Timestamp>,
    ) -> Result<Seen, RecallError> {
        let known = known_at.map_or(Known::Latest, Known::At);
        let records = &self.parts.stores.records;
        let (cut, view) = tokio::join!(records.cut(scope, known), records.owner(scope));
        Ok(Seen {
            now: self.parts.clock.now(),
            cut: cut?,
            view: view?,
        })
    }

    /// True when there was nothing to wait for or it came in time.
    pub(crate) async fn waited(&self, scope: OwnerScope, ask: &Ask) -> Result<bool, RecallError> {
        let Some(wait_for) = ask.wait_for else {
            return Ok(true);
        };
        let at_most = Duration::from_secs(self.parts.settings.wait_for_seconds);
        wait::until(&self.parts, scope, wait_for, at_most).await
    }

    pub(crate) fn leave_receipt(
        &self,
        scope: OwnerScope,
        owner: &Owner,
        caller: &str,
        request: ReceiptRequest,
        seen: &Seen,
        answer: &Answer,
    ) {
        let is_known = seen.view.as_ref().is_some_and(|view| view.owner.is_some());
        if !is_known {
            // An owner without a record has no keys, and a question must not make any: after an erasure
            // it would open the next key epoch.
            metrics::counter!(RECEIPTS_TOTAL, "outcome" => "skipped").increment(1);
            return;
        }
        self.receipts.push(
            scope.key(),
            receipts::receipt(owner, caller, &request, answer),
        );
        let mut recent = self.recent.lock().unwrap_or_else(PoisonError::into_inner);
        recent.order.push_back(answer.recall_id);
        recent.owners.insert(answer.recall_id, owner.clone());
        if recent.order.len() > RECENT_MAX
            && let Some(oldest) = recent.order.pop_front()
        {
            recent.owners.remove(&oldest);
        }
    }

    /// The answer as a function of the stores and of what was seen.
    pub(crate) async fn answer(
        &self,
        scope: OwnerScope,
        owner: &Owner,
        ask: &Ask,
        seen: &Seen,
    ) -> Result<Answer, RecallError> {
        let Parts {
            stores,
            embed,
            reader,
            settings,
            ..
        } = &self.parts;
        let task = seen.task(ask.task_id.as_deref());
        let understood = understand(ask, task, seen.now, settings.zone_minutes, reader.as_ref());
        let readable = readable_kinds(
            owner,
            seen.view.as_ref(),
            settings.is_consent_required,
            seen.now,
        );
        let reach = reach(scope, seen.cut, ask, &understood, readable, seen.now);

        let deadlines = Deadlines {
            text: Duration::from_millis(settings.text_deadline_ms),
            vector: Duration::from_millis(settings.vector_deadline_ms),
            graph: Duration::from_millis(settings.graph_deadline_ms),
        };
        let question = understood.rewritten.expose();
        let (text, vector) = legs::text_and_vector(
            stores,
            embed,
            &reach.filters,
            &understood.search,
            question,
            deadlines,
        )
        .await;
        let entities = &understood.terms.entities;
        let graph = legs::graph(stores, &reach.filters, &text, &vector, entities, deadlines).await;
        let fused = fuse(&text.hits, &vector.hits, &graph.hits);

        let confirmed = self.confirm(&reach, &understood, fused).await?;
        let model = Model {
            is_semantic: embed.is_semantic(),
            unrelated: settings.unrelated_cosine,
        };
        let mut scored: Vec<Scored> = confirmed
            .into_iter()
            .map(|(version, evidence)| {
                let score = score(
                    &version.memory,
                    evidence,
                    &understood.terms,
                    model,
                    reach.at,
                );
                Scored { version, score }
            })
            .collect();
        show_both_sides(&mut scored);
        let floor = ask.min_score.unwrap_or(settings.floor);
        let considered = ask.explain.then(|| scored.clone());
        let selected = select(scored, floor, ask.top_k);

        let reason = match selected.is_empty() {
            true => Some(self.why_nothing(&reach).await?),
            false => None,
        };
        let explain = considered.map(|all| explain(&understood, &reach, floor, all, &selected));
        let mut memories = Vec::new();
        for one in selected {
            let history = if ask.include_history {
                self.predecessors(&reach, owner, &one.version).await?
            } else {
                Vec::new()
            };
            memories.push(Recalled {
                record: Record::of(owner, &one.version.memory),
                score: one.score,
                staleness: staleness(&one.version.memory, reach.at),
                history,
            });
        }
        let legs = Legs {
            text: text.report,
            vector: vector.report,
            graph: graph.report,
        };
        let degraded = [
            ("text", &legs.text),
            ("vector", &legs.vector),
            ("graph", &legs.graph),
        ]
        .into_iter()
        .filter(|(_, report)| !report.ran)
        .map(|(name, _)| name.to_owned())
        .collect();
        Ok(Answer {
            recall_id: random_id()?,
            answerable: reason.is_none(),
            reason,
            query: QueryView {
                original: ask.query.clone(),
                rewritten: understood.rewritten,
                subject: subject_view(&understood.subject),
                as_of: reach.at,
                known_at: ask.known_at.unwrap_or(seen.now),
                during: match understood.when {
                    When::During(range) if ask.as_of.is_none() && ask.time_range.is_none() => {
                        Some(RangeView {
                            from: range.from(),
                            to: range.to(),
                        })
                    }
                    When::During(_) | When::AsOf(_) | When::Unsaid => None,
                },
                added_terms: understood.added,
            },
            memories,
            legs,
            degraded,
            explain,
        })
    }

    /// The authority's word on what the legs proposed: only versions that it holds itself, admitted by
    /// the same filters. Memories of a kind that the question names outright join here, whatever words
    /// they use: a question for allergies must not miss one.
    async fn confirm(
        &self,
        reach: &Reach,
        understood: &Understood,
        fused: Vec<(MemoryId, Evidence)>,
    ) -> Result<Vec<(MemoryVersion, Evidence)>, RecallError> {
        let records = &self.parts.stores.records;
        let ids: Vec<MemoryId> = fused.iter().map(|(id, _)| *id).collect();
        let mut found: BTreeMap<MemoryId, MemoryVersion> = BTreeMap::new();
        for filter in &reach.filters {
            let checked = records.check(filter, &ids).await?;
            found.extend(own(filter, checked).map(|version| (version.memory.id, version)));
            let listed = self.listed(filter, &understood.kinds).await?;
            found.extend(own(filter, listed).map(|version| (version.memory.id, version)));
            let others: Vec<MemoryId> = found
                .values()
                .filter_map(|version| version.memory.standing.conflict_with)
                .filter(|other| !found.contains_key(other))
                .collect();
            let other_sides = records.check(filter, &others).await?;
            found.extend(own(filter, other_sides).map(|version| (version.memory.id, version)));
        }
        let missing = ids.iter().filter(|id| !found.contains_key(id)).count() as u64;
        if missing > 0 {
            metrics::counter!(DROPPED_TOTAL, "reason" => "inadmissible").increment(missing);
        }
        let evidence: BTreeMap<MemoryId, Evidence> = fused.into_iter().collect();
        let reader = self.parts.reader.as_ref();
        let mut confirmed = Vec::new();
        for (id, version) in found {
            if !admits_episode(
                &version.memory,
                &understood.subject,
                &reach.readable,
                reader,
            ) {
                continue;
            }
            confirmed.push((version, evidence.get(&id).copied().unwrap_or_default()));
        }
        Ok(confirmed)
    }

    async fn listed(
        &self,
        filter: &Filter,
        kinds: &[Kind],
    ) -> Result<Vec<MemoryVersion>, RecallError> {
        let is_admitted = |kind: &Kind| {
            filter
                .kinds
                .as_ref()
                .is_none_or(|kinds| kinds.contains(kind))
        };
        let kinds: Vec<Kind> = kinds.iter().copied().filter(is_admitted).collect();
        if kinds.is_empty() {
            return Ok(Vec::new());
        }
        let filter = Filter {
            kinds: Some(kinds),
            ..filter.clone()
        };
        let page = self
            .parts
            .stores
            .records
            .list(&filter, Order::Valid, LISTED_MAX, None)
            .await?;
        Ok(page.versions)
    }

    async fn why_nothing(&self, reach: &Reach) -> Result<Reason, RecallError> {
        for filter in &reach.filters {
            let page = self
                .parts
                .stores
                .records
                .list(filter, Order::Recorded, 1, None)
                .await?;
            if !page.versions.is_empty() {
                return Ok(Reason::BelowFloor);
            }
        }
        Ok(Reason::NothingStored)
    }

    /// What a memory replaced, latest first, along `supersedes`.
    async fn predecessors(
        &self,
        reach: &Reach,
        owner: &Owner,
        version: &MemoryVersion,
    ) -> Result<Vec<Record>, RecallError> {
        let Some(filter) = reach.filters.first() else {
            return Ok(Vec::new());
        };
        let filter = Filter {
            valid_at: None,
            time_range: None,
            kinds: Some(reach.readable.clone()),
            context_tags: None,
            subject: SubjectFilter::Only(version.memory.claim.subject.clone()),
            ..filter.clone()
        };
        let mut chain: Vec<MemoryVersion> = Vec::new();
        let mut next = version.memory.supersedes.clone();
        while !next.is_empty() && chain.len() < HISTORY_MAX {
            let known = |id: &MemoryId| chain.iter().any(|version| version.memory.id == *id);
            next.retain(|id| !known(id) && *id != version.memory.id);
            let found: Vec<_> = own(
                &filter,
                self.parts.stores.records.check(&filter, &next).await?,
            )
            .collect();
            next = found
                .iter()
                .flat_map(|version| version.memory.supersedes.iter().copied())
                .collect();
            chain.extend(found);
        }
        chain.sort_by_key(|version| {
            (
                std::cmp::Reverse(version.memory.standing.valid_from),
                version.memory.id,
            )
        });
        chain.truncate(HISTORY_MAX);
        Ok(chain
            .iter()
            .map(|version| Record::of(owner, &version.memory))
            .collect())
    }
}

/// The last gate: whatever a store gave, only the owner's own and admitted versions pass. A foreign one
/// is a violation of isolation, counted and told.
pub(crate) fn own(
    filter: &Filter,
    versions: Vec<MemoryVersion>,
) -> impl Iterator<Item = MemoryVersion> {
    versions.into_iter().filter(move |version| {
        if version.owner != filter.scope.key() {
            metrics::counter!(FOREIGN_TOTAL).increment(1);
            metrics::counter!(DROPPED_TOTAL, "reason" => "foreign").increment(1);
            error!("the authority gave a foreign record to a recall; it was dropped");
            return false;
        }
        let is_admitted = filter.admits(&version.facets());
        if !is_admitted {
            metrics::counter!(DROPPED_TOTAL, "reason" => "inadmissible").increment(1);
        }
        is_admitted
    })
}

/// Both sides of an open conflict are as relevant as the one that matches better, and each names the
/// other.
fn show_both_sides(scored: &mut [Scored]) {
    let pairs: Vec<(MemoryId, MemoryId)> = scored
        .iter()
        .filter_map(|one| {
            Some((
                one.version.memory.id,
                one.version.memory.standing.conflict_with?,
            ))
        })
        .collect();
    for (one, other) in pairs {
        let relevance = scored
            .iter()
            .filter(|scored| [one, other].contains(&scored.version.memory.id))
            .map(|scored| scored.score.relevance)
            .fold(0.0, f64::max);
        for scored in scored.iter_mut() {
            let id = scored.version.memory.id;
            if id != one && id != other {
                continue;
            }
            scored.score.raise_relevance(relevance);
            let names = if id == one { other } else { one };
            scored
                .version
                .memory
                .standing
                .conflict_with
                .get_or_insert(names);
        }
    }
}

fn explain(
    understood: &Understood,
    reach: &Reach,
    floor: f64,
    mut all: Vec<Scored>,
    selected: &[Scored],
) -> Explain {
    all.sort_by(|a, b| {
        b.score
            .final_score
            .total_cmp(&a.score.final_score)
            .then(a.version.memory.id.cmp(&b.version.memory.id))
    });
    let is_returned = |id| selected.iter().any(|one| one.version.memory.id == id);
    let outcome = |one: &Scored| {
        if is_returned(one.version.memory.id) {
            "returned"
        } else if one.score.relevance < floor {
            "below_floor"
        } else {
            "not_selected"
        }
    };
    Explain {
        terms: understood
            .terms
            .terms
            .iter()
            .map(|term| (term.token.clone(), term.weight))
            .collect(),
        entities: understood.terms.entities.clone(),
        kinds_asked: understood.kinds.clone(),
        kinds_readable: reach.readable.clone(),
        floor,
        considered: all
            .iter()
            .map(|one| Considered {
                memory_id: one.version.memory.id,
                relevance: one.score.relevance,
                final_score: one.score.final_score,
                outcome: outcome(one).to_owned(),
            })
            .collect(),
    }
}

/// Another owner whose policies or lessons a context may take from; the caller's token covers it.
#[derive(Clone, Debug)]
pub struct Companion {
    pub owner: Owner,
    pub scope: OwnerScope,
    pub kind: Kind,
}

/// What a context is to be made of.
#[derive(Clone, Debug)]
pub struct ContextAsk {
    pub ask: Ask,
    pub usable_tokens: u32,
    pub sections: Option<Vec<Tag>>,
    pub companions: Vec<Companion>,
}

impl Recall {
    /// Recalls, and composes what an assistant is given within its budget. The receipt names what was
    /// injected.
    ///
    /// # Errors
    /// As [`Recall::recall`].
    pub async fn context(
        &self,
        scope: OwnerScope,
        owner: &Owner,
        caller: &str,
        wanted: ContextAsk,
    ) -> Result<Context, RecallError> {
        let ContextAsk {
            ask,
            usable_tokens,
            sections,
            companions,
        } = wanted;
        let is_late = !self.waited(scope, &ask).await?;
        let seen = self.see(scope, ask.known_at).await?;
        let answer = self.answer(scope, owner, &ask, &seen).await?;
        let mut degraded = answer.degraded.clone();
        if is_late {
            degraded.push("wait_for".to_owned());
        }
        let (mut memories, beyond) = injected(answer.memories.clone(), |one| one.record.protected);
        for companion in companions {
            memories.extend(self.companion_memories(&companion, &ask).await?);
        }
        let context = context::compose(Material {
            recall_id: answer.recall_id,
            task: seen.task(ask.task_id.as_deref()),
            memories,
            beyond_limit: beyond.iter().map(|one| one.record.id).collect(),
            usable_tokens,
            sections,
            degraded,
        });
        let mut request = ReceiptRequest::of(&ask, seen.now, seen.cut);
        let lines = context.sections.iter().flat_map(|section| &section.lines);
        let own = |id: &MemoryId| answer.memories.iter().any(|one| one.record.id == *id);
        request.injected = Some(
            lines
                .filter_map(|line| line.memory_id)
                .filter(own)
                .collect(),
        );
        self.leave_receipt(scope, owner, caller, request, &seen, &answer);
        metrics::counter!(CONTEXT_TOKENS_TOTAL).increment(u64::from(context.tokens));
        metrics::counter!(CONTEXT_USABLE_TOKENS_TOTAL).increment(u64::from(usable_tokens));
        Ok(context)
    }

    /// Policies or lessons that match the question. They never see the patient: no receipt is left in
    /// their owner's chain.
    async fn companion_memories(
        &self,
        companion: &Companion,
        ask: &Ask,
    ) -> Result<Vec<Recalled>, RecallError> {
        let ask = Ask {
            kinds: Some(vec![companion.kind]),
            subject: Some(SubjectFilter::Any),
            top_k: INJECTED_MAX,
            task_id: None,
            include_history: false,
            ..ask.clone()
        };
        let seen = self.see(companion.scope, ask.known_at).await?;
        Ok(self
            .answer(companion.scope, &companion.owner, &ask, &seen)
            .await?
            .memories)
    }
}

pub(crate) fn random_id() -> Result<RecallId, RecallError> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).map_err(|_| RecallError::Random)?;
    Ok(RecallId::from_bytes(bytes))
}
