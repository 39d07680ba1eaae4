//! How is a question answered, step by step? The shell around the pure files: it fetches, asks the
//! legs at once, and leaves a receipt.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anamnesis_domain::ids::{IdKey, RecallId};
use anamnesis_domain::input::{Position, Task};
use anamnesis_domain::owner::{Owner, OwnerScope};
use anamnesis_domain::receipt::RecallReceipt;
use anamnesis_domain::time::{Known, Timestamp};
use anamnesis_pipeline::clock::Clock;
use anamnesis_pipeline::embedder::Embed;
use anamnesis_pipeline::log::Log;
use anamnesis_pipeline::stores::{Cut, OwnerView, StoreError, Stores};
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use crate::admission::{Depth, Gate, Turn};
use crate::answer::{
    Answer, Considered, Explain, Legs, Proposed, QueryView, RangeView, Reason, Recalled, Record,
    erased_since, subject_view,
};
use crate::authority::show_both_sides;
use crate::fuse::{AtMost, fuse};
use crate::kept::{Comparison, KeptAnswer, LATE, compare};
use crate::legs::{self, Deadlines, Leg, OVERLOAD};
use crate::metrics::{self, DEGRADED_TOTAL, OUTCOMES_TOTAL, RECEIPTS_TOTAL};
use crate::reach::{Reach, admits_episode, reach, readable_kinds};
use crate::receipts::{
    self, OutcomeReport, ReceiptError, ReceiptQueue, ReceiptRequest, ReceiptSealer, ReceiptWriter,
    Told,
};
use crate::request::Ask;
use crate::reviews::RejectsReader;
use crate::score::{FLOOR, Model, score, staleness, unrelated_cosine};
use crate::select::{Scored, select};
use crate::turns::Silent;
use crate::understand::{QueryReader, Understood, When, spoken_of, understand};
use crate::wait;

/// Default of [`RecallSettings::at_once`]: where the stores are on servers, a question mostly waits for them.
pub const AT_ONCE: usize = 64;

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
    /// What two unrelated texts of the embedding model have as cosine; `None` for what is known of the
    /// model ([`unrelated_cosine`]). A hash embedding's cosines never count.
    pub unrelated_cosine: Option<f64>,
    /// Questions that are answered as a whole at the same time.
    pub at_once: usize,
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
            unrelated_cosine: None,
            at_once: AT_ONCE,
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
    #[error(transparent)]
    Decisions(#[from] anamnesis_pipeline::consumer::StageError),
    #[error("the machine gives no randomness")]
    Random,
    /// More ask at once than can be answered even in part.
    #[error("too many questions at once")]
    Overloaded,
}

impl RecallError {
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Store(error) => error.is_retryable(),
            Self::Receipt(error) => error.is_retryable(),
            Self::Log(error) => error.is_retryable(),
            Self::Decisions(error) => error.is_retryable(),
            Self::Random => false,
            Self::Overloaded => true,
        }
    }
}

/// What the service is made of.
#[derive(Clone)]
pub struct Parts {
    pub stores: Stores,
    pub embed: Embed,
    pub log: Log,
    pub sealer: Arc<dyn ReceiptSealer>,
    pub rejects: RejectsReader,
    /// How long a question to a person stays open.
    pub review_expires_millis: i64,
    /// The key that owners are hashed under.
    pub ids: IdKey,
    pub clock: Arc<dyn Clock>,
    pub reader: Arc<dyn QueryReader>,
    pub settings: RecallSettings,
}

pub struct Recall {
    pub(crate) parts: Parts,
    receipts: ReceiptQueue,
    recent: Mutex<Recent>,
    pub(crate) gate: Gate,
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

fn seen_by(request: &ReceiptRequest, view: Option<OwnerView>) -> Seen {
    Seen {
        now: request.now,
        cut: request.cut,
        view,
    }
}

impl Seen {
    pub(crate) fn task(&self, id: Option<&str>) -> Option<&Task> {
        self.view.as_ref()?.tasks.get(id?)
    }
}

impl Recall {
    /// The service, and the writer of its receipts, to be run beside it.
    pub fn new(parts: Parts) -> (Arc<Self>, ReceiptWriter) {
        let (receipts, writer) = receipts::queue(parts.sealer.clone(), parts.log.clone());
        (
            Arc::new(Self {
                gate: Gate::new(parts.settings.at_once),
                parts,
                receipts,
                recent: Mutex::default(),
            }),
            writer,
        )
    }

    pub fn ids(&self) -> &IdKey {
        &self.parts.ids
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
        self.recalled(scope, owner, caller, &ask, None).await
    }

    /// As [`Recall::recall`], in turn with all others who ask: only from what protects when they are too
    /// many, which the answer says.
    ///
    /// # Errors
    /// As [`Recall::recall`], and [`RecallError::Overloaded`].
    pub async fn recall_in_turn(
        &self,
        scope: OwnerScope,
        owner: &Owner,
        caller: &str,
        ask: Ask,
    ) -> Result<Answer, RecallError> {
        let gate = Some(&self.gate);
        self.recalled(scope, owner, caller, &ask, gate).await
    }

    async fn recalled(
        &self,
        scope: OwnerScope,
        owner: &Owner,
        caller: &str,
        ask: &Ask,
        gate: Option<&Gate>,
    ) -> Result<Answer, RecallError> {
        // A caller who asks to wait is not kept waiting by recall: the clock starts after that.
        let is_late = !self.waited(scope, ask).await?;
        let started = Instant::now();
        let answer = match entered(gate).await {
            Ok(turn) => {
                let depth = turn.as_ref().map_or(Depth::Whole, |turn| turn.depth);
                self.recall_now(scope, owner, caller, (ask, depth), is_late)
                    .await
            }
            Err(error) => Err(error),
        };
        metrics::recalled("recall", answer.as_ref(), started.elapsed());
        answer
    }

    async fn recall_now(
        &self,
        scope: OwnerScope,
        owner: &Owner,
        caller: &str,
        (ask, depth): (&Ask, Depth),
        is_late: bool,
    ) -> Result<Answer, RecallError> {
        let seen = self.see(scope, ask.known_at).await?;
        let mut answer = self.answer(scope, owner, (ask, depth), &seen).await?;
        if is_late {
            ::metrics::counter!(DEGRADED_TOTAL, "part" => LATE).increment(1);
            answer.degraded.push(LATE.to_owned());
        }
        let told = Told {
            recall_id: answer.recall_id,
            request: self.receipt_request((ask, depth), &seen),
            kept: KeptAnswer::of(&answer, &[]),
        };
        self.leave_receipt(scope, owner, caller, &seen, told);
        Ok(answer)
    }

    /// Asks a receipt's question again, at its own now and cut. Leaves no receipt. Consent is asked for
    /// as it stands now.
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
        let seen = seen_by(request, view);
        let asked = (&request.ask(), request.depth());
        self.answer(scope, owner, asked, &seen).await
    }

    /// Asks a receipt's question again and tells how the answer compares. Because nothing of the answer
    /// is shown, it is asked under the grants of that time: a withdrawal since then is no difference.
    ///
    /// # Errors
    /// As [`Recall::recall`].
    pub async fn recheck(
        &self,
        scope: OwnerScope,
        owner: &Owner,
        receipt: &RecallReceipt,
    ) -> Result<Comparison, RecallError> {
        let Ok(request) = serde_json::from_str::<ReceiptRequest>(receipt.request.expose()) else {
            return Ok(Comparison::Differs {
                what: vec!["receipt".to_owned()],
            });
        };
        let view = self.parts.stores.records.owner(scope).await?;
        let mut seen = seen_by(&request, view);
        if let Some(view) = &mut seen.view {
            view.consents
                .retain(|recorded| recorded.recorded_from < request.cut.0);
            for recorded in &mut view.consents {
                recorded.recorded_to = recorded.recorded_to.filter(|to| *to < request.cut.0);
            }
        }
        let mut ask = request.ask();
        let depth = request.depth();
        let rerun = self.answer(scope, owner, (&ask, depth), &seen).await?;
        let compared = compare(receipt, &rerun, seen.view.as_ref());
        let has_erasures = seen
            .view
            .as_ref()
            .is_some_and(|view| !view.erasures.is_empty());
        if !has_erasures || !matches!(compared, Comparison::Differs { .. }) {
            return Ok(compared);
        }
        // Words weigh otherwise after an erasure, so one that was kept may now lie under the floor or
        // beyond the last place; it is compared all the same.
        ask.min_score = Some(0.0);
        ask.top_k = usize::MAX;
        let everything = self.answer(scope, owner, (&ask, depth), &seen).await?;
        Ok(compare(receipt, &everything, seen.view.as_ref()))
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
        let written = receipts::write(self.parts.sealer.as_ref(), &self.parts.log, &group).await?;
        ::metrics::counter!(OUTCOMES_TOTAL, "outcome" => report.outcome.code()).increment(1);
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
        seen: &Seen,
        told: Told,
    ) {
        let is_known = seen.view.as_ref().is_some_and(|view| view.owner.is_some());
        if !is_known {
            // An owner without a record has no keys, and a question must not make any: after an erasure
            // it would open the next key epoch.
            ::metrics::counter!(RECEIPTS_TOTAL, "outcome" => "skipped").increment(1);
            return;
        }
        let Told {
            recall_id,
            request,
            kept,
        } = told;
        self.receipts.push(
            scope.key(),
            receipts::receipt(owner, caller, recall_id, &request, &kept),
        );
        let mut recent = self.recent.lock().unwrap_or_else(PoisonError::into_inner);
        recent.order.push_back(recall_id);
        recent.owners.insert(recall_id, owner.clone());
        if recent.order.len() > RECENT_MAX
            && let Some(oldest) = recent.order.pop_front()
        {
            recent.owners.remove(&oldest);
        }
    }

    pub(crate) fn receipt_request(
        &self,
        (ask, depth): (&Ask, Depth),
        seen: &Seen,
    ) -> ReceiptRequest {
        let spoken_of = spoken_of(ask, self.parts.reader.as_ref());
        ReceiptRequest::of(ask, spoken_of, seen.now, seen.cut, depth)
    }

    /// The answer as a function of the stores and of what was seen.
    pub(crate) async fn answer(
        &self,
        scope: OwnerScope,
        owner: &Owner,
        (ask, depth): (&Ask, Depth),
        seen: &Seen,
    ) -> Result<Answer, RecallError> {
        let Parts {
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

        let kinds = understood.terms.kinds_to_list();
        let (legs, listed) = match depth {
            Depth::Whole => {
                tokio::join!(self.legs(&reach, &understood), self.listed(&reach, &kinds))
            }
            Depth::Protected => (
                ["text", "vector", "graph"].map(legs::unasked),
                self.protected(&reach, &understood).await,
            ),
        };
        let [text, vector, graph] = legs;
        let fused = fuse(&text.hits, &vector.hits, &graph.hits);
        let at_most = AtMost::of(&text.hits, &vector.hits);
        let confirmed = self.confirm(&reach, fused, listed?, text.checked).await?;
        let is_any_known = !confirmed.is_empty();
        let model = Model {
            is_semantic: embed.is_semantic(),
            unrelated: settings
                .unrelated_cosine
                .unwrap_or_else(|| unrelated_cosine(&embed.identity().id)),
        };
        let mut scored: Vec<Scored> = confirmed
            .into_iter()
            .map(|(version, evidence)| {
                let score = score(
                    &version.memory,
                    evidence,
                    at_most,
                    &understood.terms,
                    model,
                    reach.at,
                );
                Scored { version, score }
            })
            .collect();
        show_both_sides(&mut scored);
        let floor = ask.min_score.unwrap_or(settings.floor);
        // Reading a turn costs as much as scoring it, so one that is only dropped is not read.
        scored.retain(|one| {
            let is_seen = ask.explain || one.score.relevance >= floor;
            !is_seen
                || admits_episode(
                    &one.version.memory,
                    &understood.subject,
                    &reach.readable,
                    reader.as_ref(),
                )
        });
        let silent = if ask.include_history {
            Silent::default()
        } else {
            let matching: Vec<&Scored> = scored
                .iter()
                .filter(|one| one.score.relevance >= floor)
                .collect();
            self.silent_turns(&reach, &understood.terms, &matching)
                .await?
        };
        let considered = if ask.explain {
            let hits = [&text.hits[..], &vector.hits, &graph.hits];
            Some((scored.clone(), self.proposed(&reach, hits).await?))
        } else {
            None
        };
        scored.retain(|one| !silent.has(one.version.memory.id));
        let selected = select(scored, floor, ask.top_k, understood.is_about_now);

        let reason = match (selected.is_empty(), is_any_known) {
            (false, _) => None,
            (true, _) if depth == Depth::Protected => Some(Reason::Overload),
            (true, _) if self.is_over(&reach, &understood.terms, floor).await? => {
                Some(Reason::Over)
            }
            (true, true) => Some(Reason::BelowFloor),
            (true, false) => Some(self.why_nothing(&reach).await?),
        };
        let explain = considered.map(|(all, proposed)| Explain {
            proposed,
            ..explain(&understood, &reach, floor, all, &selected, &silent)
        });
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
        let mut degraded: Vec<String> = [
            ("text", &legs.text),
            ("vector", &legs.vector),
            ("graph", &legs.graph),
        ]
        .into_iter()
        .filter(|(_, report)| !report.ran)
        .map(|(name, _)| name.to_owned())
        .collect();
        if depth == Depth::Protected {
            ::metrics::counter!(DEGRADED_TOTAL, "part" => OVERLOAD).increment(1);
            degraded.push(OVERLOAD.to_owned());
        }
        let known_at = ask.known_at.unwrap_or(seen.now);
        let erased = erased_since(seen.view.as_ref(), seen.cut, reach.at, known_at);
        Ok(Answer {
            recall_id: random_id()?,
            answerable: reason.is_none(),
            reason,
            query: QueryView {
                original: ask.query.clone(),
                rewritten: understood.rewritten,
                subject: subject_view(&understood.subject),
                as_of: reach.at,
                known_at,
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
            erased,
            explain,
        })
    }

    /// What the three legs propose, the graph from the best of the other two.
    async fn legs(&self, reach: &Reach, understood: &Understood) -> [Leg; 3] {
        let Parts {
            stores,
            embed,
            settings,
            ..
        } = &self.parts;
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
        [text, vector, graph]
    }
}

/// A place among those who ask; none is needed without a gate.
pub(crate) async fn entered(gate: Option<&Gate>) -> Result<Option<Turn<'_>>, RecallError> {
    match gate {
        Some(gate) => gate
            .enter()
            .await
            .map(Some)
            .map_err(|_| RecallError::Overloaded),
        None => Ok(None),
    }
}

fn explain(
    understood: &Understood,
    reach: &Reach,
    floor: f64,
    mut all: Vec<Scored>,
    selected: &[Scored],
    silent: &Silent,
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
        } else if silent.over.contains(&one.version.memory.id) {
            "over"
        } else if silent.told.contains(&one.version.memory.id) {
            "told"
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
        proposed: Proposed::default(),
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

pub(crate) fn random_id() -> Result<RecallId, RecallError> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).map_err(|_| RecallError::Random)?;
    Ok(RecallId::from_bytes(bytes))
}
